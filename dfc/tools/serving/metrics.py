"""What a server counts, in the text format of Prometheus: numbers only, nothing that a client wrote."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

KIND = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters of one server.

    Attributes:
      requests: for a completion, by status. dropped: whose client went away. prompt, cached, generated: tokens.
      first, whole: seconds from a request's arrival to the first sampled tokens, and to the end of the answer.
    """

    def __init__(self, *, queued: Callable[[], float], busy: Callable[[], float], slots: int) -> None:
        """Begins at 0.

        Args:
          queued: how many requests wait now.
          busy: how many slots answer now.
          slots: how many there are.
        """
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("dfc_requests", "Requests for a completion", ["status"], registry=registry)
        self.dropped = Counter("dfc_requests_dropped", "Requests whose client went away", registry=registry)
        self.prompt = Counter("dfc_prompt_tokens", "Tokens of prompts", registry=registry)
        self.cached = Counter("dfc_cached_tokens", "Tokens of prompts that were in the cache", registry=registry)
        self.generated = Counter("dfc_generated_tokens", "Tokens sampled", registry=registry)
        first, whole = "Seconds to the first tokens", "Seconds to the whole answer"
        self.first = Histogram("dfc_first_token_seconds", first, registry=registry, buckets=_SECONDS)
        self.whole = Histogram("dfc_request_seconds", whole, registry=registry, buckets=_SECONDS)
        Gauge("dfc_requests_queued", "Requests that wait for a slot", registry=registry).set_function(queued)
        Gauge("dfc_slots_busy", "Slots that answer", registry=registry).set_function(busy)
        Gauge("dfc_slots", "Slots", registry=registry).set(slots)

    def text(self) -> bytes:
        """Returns all of it."""
        return generate_latest(self._registry)

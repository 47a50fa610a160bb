"""What calls of a chat endpoint cost: counts of tokens, money, and a budget that stops further requests."""

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dfc.config import EndpointConfig
from dfc.players.remote import ChatMessage, PlayerError

_MOST_TOKENS = 10**12  # of one request
_COUNTS = (
    *("calls", "replies", "cache_hits", "failures", "requests", "retries", "time_limits", "cache_write_failures"),
    *("input_tokens", "output_tokens", "estimated_replies", "paused_seconds"),
)


class BudgetExceeded(PlayerError):  # noqa: N818 - the word for it; it ends a call like any other PlayerError
    """The budget of an endpoint is spent: no further request is made."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Tokens of one request.

    Attributes:
      input_tokens: tokens of the chat.
      output_tokens: tokens of the reply, thinking included.
      estimated: whether the server sent no counts, so that these come from the length of the texts.
    """

    input_tokens: int
    output_tokens: int
    estimated: bool = False


def estimated_usage(messages: Sequence[ChatMessage], reply: str) -> Usage:
    """Returns counts for a server that sends none: ceil(UTF-8 bytes / 4) per text, and 4 more per message of the chat.

    Four bytes per token is usual for English with vocabularies of 100,000; other scripts need more tokens than that.
    """
    chat = sum(4 + _num_tokens(message["content"]) for message in messages)
    return Usage(chat, _num_tokens(reply), estimated=True)


def _num_tokens(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4)


def reported_usage(usage: object) -> Usage | None:
    """Returns the counts in the ``usage`` field of an answer; None where they are no whole numbers from 0 to 1e12."""
    if not isinstance(usage, Mapping):
        return None
    inputs, outputs = usage.get("prompt_tokens"), usage.get("completion_tokens")
    # bool is an int, but no count; a number that no float holds would break every later sum of money.
    if type(inputs) is int and type(outputs) is int and 0 <= inputs <= _MOST_TOKENS and 0 <= outputs <= _MOST_TOKENS:
        return Usage(inputs, outputs)
    return None


class Spending:
    """Counts of one endpoint; safe to share between threads."""

    def __init__(self, name: str, config: EndpointConfig) -> None:
        """Starts at zero; `name` is of the endpoint, for the error."""
        self._name = name
        self._config = config
        self._lock = threading.Lock()
        self._counts: dict[str, float] = dict.fromkeys(_COUNTS, 0) | {"paused_seconds": 0.0}

    def count(self, **more: float) -> None:
        """Adds to counts by name, such as ``retries=1``."""
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number

    def charge(self, usage: Usage) -> None:
        """Adds the tokens of one request."""
        self.count(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, estimated_replies=int(usage.estimated)
        )

    def _money(self) -> float:
        """Input tokens x input price / 1e6 + output tokens x output price / 1e6, in the unit of the prices.

        Discounts, such as for chats the server has in its own cache, are not known here: it is an upper bound.
        """
        inputs, outputs = self._counts["input_tokens"], self._counts["output_tokens"]
        return (inputs * self._config.input_price + outputs * self._config.output_price) / 1e6

    def check(self) -> None:
        """Returns if another request may be made.

        Raises:
          BudgetExceeded: not so; says what is spent and which setting to raise.
        """
        with self._lock:
            counts, money = dict(self._counts), self._money()
        inputs, outputs = counts["input_tokens"], counts["output_tokens"]
        most_money, most_tokens = self._config.budget_money, self._config.budget_tokens
        if most_money and money >= most_money:
            over, hint = f"{money:.6g} of a budget of {most_money:g} in money is spent", "budget_money"
        elif most_tokens and inputs + outputs >= most_tokens:
            over, hint = f"{inputs + outputs} of a budget of {most_tokens} tokens are spent", "budget_tokens"
        else:
            return
        raise BudgetExceeded(
            f"{self._name}: {over} ({inputs} tokens in, {outputs} out, {counts['requests']} "
            f"requests); no further request is made; raise EndpointConfig.{hint} (0: no limit) to continue"
        )

    def report(self) -> dict[str, Any]:
        """Returns every count and the money, ready for JSON."""
        with self._lock:
            counts = {**self._counts, "money": self._money()}
        return counts | {"paused_seconds": round(counts["paused_seconds"], 3)}

"""Where a chat endpoint is, how it is asked and what it may cost; every value is checked when it is given."""

import dataclasses
import ipaddress
import urllib.parse
from collections.abc import Mapping
from typing import Any

from dfc.errors import ConfigError
from dfc.players.chat_response import as_json
from dfc.players.key_search import is_variable

_OWN_FIELDS = ("model", "messages", "stream", "n", "temperature", "top_p", "max_tokens", "seed")


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """Where a chat endpoint is, how it is asked, and what it may cost.

    Values that are None are not sent: the server's default holds.

    Attributes:
      base_url: up to and without ``/chat/completions``, such as ``http://localhost:8000/v1``.
      model: the name the server knows it by.
      key_variable: the environment variable with the key; empty for servers without keys.
      temperature: 0, the default, for simulators.
      max_tokens: tokens of one reply.
      top_p: the smallest set of most probable tokens with this sum is sampled from.
      seed: of the server's sampler; trial n of a request is sent seed + n.
      timeout: seconds one attempt may take.
      concurrency: requests at once.
      retries: attempts after the first one.
      backoff: seconds before the first retry, doubled for each further one up to 60, times a random number in [0.5, 1].
      longest_pause: seconds; a server that asks to wait longer ends the call.
      max_answer_bytes: an answer's body of more bytes is not read to its end, and is no reply. Requests
        ask for no compression; of a body that comes with gzip or deflate all the same both sizes are limited.
      cache: folder of replies; None: no cache.
      input_price: money per million tokens of chats.
      output_price: money per million tokens of replies.
      budget_money: no request is made once this much is spent; 0: no limit.
      budget_tokens: no request is made once this many tokens went in and out; 0: no limit.
      extra_body: further fields of the request, such as ``{"top_k": 20}``.
      allow_plain_http: send the key unencrypted to another machine.

    Raises:
      ConfigError: a value makes no sense; lists every problem.
    """

    base_url: str
    model: str
    key_variable: str = ""
    temperature: float | None = 0.0
    max_tokens: int | None = 1024
    top_p: float | None = None
    seed: int | None = None
    timeout: float = 120.0
    concurrency: int = 16
    retries: int = 4
    backoff: float = 1.0
    longest_pause: float = 120.0
    max_answer_bytes: int = 4 * 2**20
    cache: str | None = None
    input_price: float = 0.0
    output_price: float = 0.0
    budget_money: float = 0.0
    budget_tokens: int = 0
    extra_body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    allow_plain_http: bool = False

    def __post_init__(self) -> None:
        # Here and not where it is used: a key written into the wrong field must not reach a run folder.
        problems = [*_number_problems(self), *_url_problems(self), *_other_problems(self)]
        if problems:
            raise ConfigError([f"endpoint.{problem}" for problem in problems])


# Field -> (may it be None, must it be whole, least, whether the least itself is out, most).
_NUMBERS: dict[str, tuple[bool, bool, float, bool, float]] = {
    "temperature": (True, False, 0, False, 2),
    "max_tokens": (True, True, 1, False, 1e9),
    "top_p": (True, False, 0, True, 1),
    "seed": (True, True, 0, False, 2**62),
    "timeout": (False, False, 0, True, 1e6),
    "concurrency": (False, True, 1, False, 1000),
    "retries": (False, True, 0, False, 100),
    "backoff": (False, False, 0, False, 60),
    "longest_pause": (False, False, 0, False, 1e6),
    "max_answer_bytes": (False, True, 1000, False, 1e9),
    "input_price": (False, False, 0, False, 1e9),
    "output_price": (False, False, 0, False, 1e9),
    "budget_money": (False, False, 0, False, 1e12),
    "budget_tokens": (False, True, 0, False, 1e15),
}


def _number_problems(config: EndpointConfig) -> list[str]:
    found = []
    for name, (optional, whole, low, above, high) in _NUMBERS.items():
        value = getattr(config, name)
        if value is None and optional:
            continue
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not low <= value <= high or (above and value == low):
            kind = "a whole number" if whole else "a number"
            least = f"above {low:g}" if above else f"of at least {low:g}"
            found.append(f"{name}={value!r}: must be {kind} {least} and at most {high:g}{' or None' * optional}")
    return found


def _url_problems(config: EndpointConfig) -> list[str]:
    given: object = config.base_url  # nothing has checked its type yet
    try:
        url = urllib.parse.urlsplit(given if isinstance(given, str) else "")
        _ = url.port  # raises where it is no number
    except ValueError as error:
        return [f"base_url: {error}"]
    if (
        not isinstance(given, str)
        or url.scheme not in ("http", "https")
        or not url.hostname
        or given.split() != [given]
    ):
        shown = "..." if "@" in str(given) else repr(given)
        return [f"base_url={shown}: must be an http or https address such as 'http://localhost:8000/v1'"]
    if "@" in config.base_url or url.query or url.fragment:  # not repeated in the message: it may hold a password
        hint = "put the key into an environment variable and name that in key_variable"
        return [f"base_url: must hold no user name, password, '?' or '#'; {hint}"]
    if config.base_url.rstrip("/").endswith("/completions"):
        return [f"base_url={config.base_url!r}: must end before '/chat/completions'"]
    if url.scheme == "http" and config.key_variable and not config.allow_plain_http and not is_loopback(url.hostname):
        hint = "use https, or set allow_plain_http=True if everything between is yours"
        return [f"base_url={config.base_url!r}: would send the key unencrypted to another machine; {hint}"]
    return []


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _other_problems(config: EndpointConfig) -> list[str]:
    found = []
    # Nothing has checked the types of these yet.
    values: dict[str, object] = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    model, variable, cache, extra = (values[name] for name in ("model", "key_variable", "cache", "extra_body"))
    if not isinstance(model, str) or not model:
        found.append(f"model={model!r}: must be the name the server knows the model by")
    # Not repeated in the message: it may be the key itself, which is why small letters are refused.
    if not isinstance(variable, str) or not (variable == "" or is_variable(variable)):
        found.append(
            "key_variable: must be the name of an environment variable in capital letters, such as OPENAI_API_KEY, "
            "and not the key itself"
        )
    if cache is not None and (not isinstance(cache, str) or not cache):
        found.append(f"cache={cache!r}: must be a folder as text, or None")
    if not isinstance(values["allow_plain_http"], bool):
        found.append(f"allow_plain_http={config.allow_plain_http!r}: must be true or false")
    if not isinstance(extra, Mapping) or as_json(dict(extra)) is None:
        found.append("extra_body: must be a mapping of JSON values")
    else:
        own = [name for name in extra if name in _OWN_FIELDS]
        found += [
            f"extra_body[{name!r}]: is set by the endpoint itself; use its own field if it has one" for name in own
        ]
    if config.budget_money and not config.input_price and not config.output_price:
        found.append(f"budget_money={config.budget_money!r}: needs input_price or output_price above 0")
    return found

"""How a chat endpoint is asked and what it may cost; where it is and which model, its name says: ``URL#MODEL``."""

import dataclasses
import ipaddress
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

from dfc.errors import ConfigError
from dfc.players.key_search import is_variable

_OWN_FIELDS = ("model", "messages", "stream", "n", "temperature", "top_p", "max_tokens", "seed")  # of a request


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """How a chat endpoint is asked, and what it may cost.

    A section of a configuration like any other: it may hold any values, and `problems` says which make no sense.
    Values that are None are not sent: the server's default holds.

    Attributes:
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
      cache: folder of replies; empty: no cache.
      input_price: money per million tokens of chats.
      output_price: money per million tokens of replies.
      budget_money: no request is made once this much is spent; 0: no limit.
      budget_tokens: no request is made once this many tokens went in and out; 0: no limit.
      extra_body: further fields of the request, such as ``{"top_k": 20}``.
      allow_plain_http: send the key unencrypted to another machine.
    """

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
    cache: str = ""
    input_price: float = 0.0
    output_price: float = 0.0
    budget_money: float = 0.0
    budget_tokens: int = 0
    extra_body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    allow_plain_http: bool = False

    def problems(self) -> list[str]:
        """Returns what is wrong, one sentence each that begins with the field; never repeats what may be a key."""
        return _number_problems(self) + _other_problems(self)


def split_name(name: str) -> tuple[str, str]:
    """Returns the address and the model in an endpoint's name, ``http://HOST/v1#MODEL``; "" for a part it lacks."""
    base_url, _, model = name.partition("#")
    return base_url, model


def check(base_url: str, model: str, config: EndpointConfig) -> None:
    """Returns if this endpoint can be asked, as far as that shows without asking it.

    Args:
      base_url: up to and without ``/chat/completions``, such as ``http://localhost:8000/v1``.
      model: the name the server knows it by.
      config: how it is asked.

    Raises:
      ConfigError: a value makes no sense; lists every problem.
    """
    problems = [*config.problems(), *_url_problems(base_url, config)]
    if not isinstance(model, str) or not model:
        problems.append(f"model={model!r}: must be the name the server knows the model by")
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
    problems = []
    for name, (optional, whole, low, above, high) in _NUMBERS.items():
        value = getattr(config, name)
        if value is None and optional:
            continue
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not low <= value <= high or (above and value == low):
            kind = "a whole number" if whole else "a number"
            least = f"above {low:g}" if above else f"of at least {low:g}"
            problems.append(f"{name}={value!r}: must be {kind} {least} and at most {high:g}{' or None' * optional}")
    return problems


def _url_problems(base_url: object, config: EndpointConfig) -> list[str]:
    try:
        url = urllib.parse.urlsplit(base_url if isinstance(base_url, str) else "")
        _ = url.port  # raises where it is no number
    except ValueError as error:
        return [f"base_url: {error}"]
    if (
        not isinstance(base_url, str)
        or url.scheme not in ("http", "https")
        or not url.hostname
        or base_url.split() != [base_url]
    ):
        shown = "..." if "@" in str(base_url) else repr(base_url)
        return [f"base_url={shown}: must be an http or https address such as 'http://localhost:8000/v1'"]
    if "@" in base_url or url.query or url.fragment:  # not repeated in the message: it may hold a password
        hint = "put the key into an environment variable and name that in key_variable"
        return [f"base_url: must hold no user name, password, '?' or '#'; {hint}"]
    if base_url.rstrip("/").endswith("/completions"):
        return [f"base_url={base_url!r}: must end before '/chat/completions'"]
    if url.scheme == "http" and config.key_variable and not config.allow_plain_http and not is_loopback(url.hostname):
        hint = "use https, or set allow_plain_http=True if everything between is yours"
        return [f"base_url={base_url!r}: would send the key unencrypted to another machine; {hint}"]
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
    problems = []
    # Nothing has checked the types of these yet.
    values: dict[str, object] = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    variable, cache, extra = (values[name] for name in ("key_variable", "cache", "extra_body"))
    # Not repeated in the message: it may be the key itself, which is why small letters are refused.
    if not isinstance(variable, str) or not (variable == "" or is_variable(variable)):
        problems.append(
            "key_variable: must be the name of an environment variable in capital letters, such as OPENAI_API_KEY, "
            "and not the key itself"
        )
    if not isinstance(cache, str):
        problems.append(f"cache={cache!r}: must be a folder as text; empty: no cache")
    if not isinstance(values["allow_plain_http"], bool):
        problems.append(f"allow_plain_http={config.allow_plain_http!r}: must be true or false")
    if not isinstance(extra, Mapping) or not _is_json(dict(extra)):
        problems.append("extra_body: must be a mapping of JSON values")
    else:
        own = [name for name in extra if name in _OWN_FIELDS]
        problems += [
            f"extra_body[{name!r}]: is set by the endpoint itself; use its own field if it has one" for name in own
        ]
    if config.budget_money and not config.input_price and not config.output_price:
        problems.append(f"budget_money={config.budget_money!r}: needs input_price or output_price above 0")
    return problems


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False, sort_keys=True)  # sorted as for the cache's key
    except (TypeError, ValueError, RecursionError):
        return False
    return True

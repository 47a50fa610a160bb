"""Whether a chat endpoint can be asked as configured; where it is and which model, its name says: ``URL#MODEL``."""

import ipaddress
import json
import re
import urllib.parse
from collections.abc import Mapping

from dfc import files
from dfc.config import EndpointConfig, fields
from dfc.errors import ConfigError
from dfc.players.key_search import is_variable

_OWN_FIELDS = ("model", "messages", "stream", "n", "temperature", "top_p", "max_tokens", "seed")  # of a request
_SECRET = re.compile(r"(?i).*(api_?key|token|secret|password|authorization)")
_MAY_HOLD_KEYS = ("key_variable", "extra_body")  # whose values no sentence repeats


def problems(config: EndpointConfig) -> list[str]:
    """Returns what is wrong, one sentence each that begins with the field; never repeats what may be a key."""
    of_types = [line for line in fields.type_problems(config) if not line.startswith(_MAY_HOLD_KEYS)]
    return of_types + fields.range_problems(config) + rule_problems(config)


def split_name(name: str) -> tuple[str, str]:
    """Returns the address and the model in an endpoint's name, ``http://HOST/v1#MODEL``; "" for a part it lacks."""
    base_url, _, model = name.partition("#")
    return base_url, model


def check(base_url: str, model: str, config: EndpointConfig) -> None:
    """Returns if this endpoint can be asked, as far as that shows without asking it.

    `base_url` is up to and without ``/chat/completions``; `model` is the name the server knows it by.

    Raises:
      ConfigError: a value makes no sense; lists every problem.
    """
    found = [*problems(config), *address_problems(base_url, config)]
    if not isinstance(model, str) or not model:
        found.append(f"model={model!r}: must be the name the server knows the model by")
    if found:
        raise ConfigError([f"endpoint.{problem}" for problem in found])


def address_problems(base_url: object, config: EndpointConfig) -> list[str]:
    """Returns why an endpoint of this configuration cannot be asked at an address; at most one sentence."""
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


def rule_problems(config: EndpointConfig) -> list[str]:
    """Returns what is wrong beside types and ranges, one sentence each that begins with the field."""
    found = []
    variable: object = config.key_variable  # nothing may have checked the types of these
    extra: object = config.extra_body
    # Not repeated in the message: it may be the key itself, which is why small letters are refused.
    if not isinstance(variable, str) or not (variable == "" or is_variable(variable)):
        found.append(
            "key_variable: must be the name of an environment variable in capital letters, such as OPENAI_API_KEY, "
            "and not the key itself"
        )
    if not isinstance(extra, Mapping) or not _is_json(dict(extra)):
        found.append("extra_body: must be a mapping of JSON values")
    else:
        own = [name for name in extra if name in _OWN_FIELDS]
        if any(_SECRET.fullmatch(str(name)) for name in extra):
            found.append("extra_body: holds what is named like a key, which belongs into a variable: key_variable")
        found += [
            f"extra_body[{name!r}]: is set by the endpoint itself; use its own field if it has one" for name in own
        ]
    if address := files.address_problem(str(config.cache)):
        found.append(f"cache={config.cache!r}: {address}")
    if config.budget_money and not config.input_price and not config.output_price:
        found.append(f"budget_money={config.budget_money!r}: needs input_price or output_price above 0")
    return found


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False, sort_keys=True)  # sorted as for the cache's key
    except (TypeError, ValueError, RecursionError):
        return False
    return True

"""Keys: used but never shown (`Secret`), and found where they do not belong (`KeySearch`).

They do not belong into settings and command lines, which are stored and shown.

A key belongs into an environment variable, whose name a setting ``key_variable`` holds. What is taken for
a secret anywhere else:

- what such a variable holds (8 characters or more), as it is or percent-encoded; a placeholder of less than 16
  characters without a digit (``lm-studio``) only where it is the whole value;
- a user name or a password in an address (``http://USER:PASSWORD@HOST``), a key in its query (``?api-key=...``);
- in the place of a variable's name, whatever is no such name;
- the known forms of keys (`_FORMS`). Long strings of letters and digits alone are none of these: hashes of commits and
  names of snapshots look alike.
"""

import contextlib
import dataclasses
import itertools
import logging
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dfc.errors import ConfigError

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LONGEST_VARIABLE = 100
_RANDOM = re.compile(r"[A-Z0-9]{20,}")  # and digits in it: capital letters and digits without a _ are a key
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    # OpenAI, OpenRouter, DeepSeek: one long stretch; in names such as sk-learn-20240101120000 there is none.
    r"sk-(?:(?:proj|svcacct|admin|None|live|test|or|ant|lf|v\d|[a-z]{3,5}\d\d)-){0,3}"
    r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{20,}[A-Za-z0-9_-]*"
    r"|sk-(?:proj|svcacct|admin|ant)-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{12,}"  # OpenAI, Anthropic
    r"|hf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}|pplx-[A-Za-z0-9]{40,}"  # Groq, xAI, Perplexity
    r"|(?:nvapi-|tgp_v1_)[A-Za-z0-9_-]{40,}|r8_[A-Za-z0-9]{37,}"  # NVIDIA, Together, Replicate
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"  # Google
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # Amazon
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"  # GitHub, GitLab
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"  # a signed token (JWT)
    r"|(?i:bearer)[ :=]+[A-Za-z0-9._~+/-]{16,}=*"  # the headers that carry a key or a password; no long word
    r"|(?i:basic) +(?=[A-Za-z0-9+/]*(?:[0-9+=]|[a-z][A-Z]))[A-Za-z0-9+/]{16,}=*"
    r")|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|[?&](?i:[\w.-]*(?:key|token|secret|password)|sig|signature|code)=[^&#\s]{8,}"  # in an address's query
)
# In the part of an address before the path; or with a path's characters in the password, where no port stands (hosts in
# brackets, and lists of addresses, hold colons too); or without http:// before it.
_USER = re.compile(
    r"(?:(?<=://)|(?<=:/)(?!/))[^\s/?#@]*@"
    r"|(?<=://)[^\s/?#@:,;'\"\[\]]+:(?!\d{1,5}(?:[/?#,;'\")\]}]|$))[^\s@]*@"
    r"|(?<![\w/#@.:\[-])[\w.%+-]+:[^\s/@]+@(?=[\w.-]+(?:[:/#]|$))"
)
_ENVIRONMENT = re.compile(r"[A-Z0-9_]*_(?:KEY|TOKEN|SECRET|PASSWORD)")
_SUBSTANCE = 16  # characters of a key without digits
_HINT = "put it into an environment variable and name that in key_variable (docs/endpoints.md); it is not repeated here"
# Loggers that may repeat what a server sends in its headers: of the HTTP client and its transport, by either name.
_LOGGERS = ("httpx", "httpx2", "httpcore.http11", "httpcore2.http11")
_LEAST_REDACTED = 4  # characters of a key; shorter ones are placeholders, and a text without them could not be read
_REVEALING = 8  # characters of a part that gives something away; placeholders such as EMPTY are shorter
_DEPTH = 8  # of mappings and lists in a configuration; what lies deeper is refused elsewhere


def is_variable(name: str) -> bool:
    """Whether a text can be the name of the variable with a key, and not the key: in capital letters, digits, ``_``."""
    if not _VARIABLE.fullmatch(name) or len(name) > _LONGEST_VARIABLE or _FORMS.search(name):
        return False
    return not (_RANDOM.fullmatch(name) and re.search(r"\d", name))


class Secret:
    """A key that is not shown when it is printed."""

    def __init__(self, value: str) -> None:
        self.value = value

    @classmethod
    def read(cls, variable: str, *, named_by: str = "endpoint.key_variable") -> "Secret":
        """Reads an environment variable; an empty name is an empty key. Errors say that `named_by` gave that name.

        Raises:
          ConfigError: it is not set, or what it holds cannot be sent in a header; the key is not repeated.
        """
        value = os.environ.get(variable, "").strip() if variable else ""
        if variable and not value:
            raise ConfigError([f"{named_by}: the environment variable {variable} is not set or empty"])
        if not all("!" <= character <= "~" for character in value):
            raise ConfigError([f"{named_by}: the key in {variable} must be printable ASCII without spaces"])
        return cls(value)

    def __repr__(self) -> str:
        return "<key>"

    def is_in(self, text: str) -> bool:
        """Whether a text holds the key; never for one so short that it may be a word."""
        return len(self.value) >= _REVEALING and self.value in text

    def redact(self, text: str) -> str:
        """Returns a text without the key, whole, percent-encoded, or any part of it of 8 characters or more."""
        if len(self.value) < _LEAST_REDACTED:
            return text
        text = text.replace(self.value, "<key>").replace(urllib.parse.quote(self.value, safe=""), "<key>")
        size = _REVEALING
        parts = {self.value[start : start + size] for start in range(len(self.value) - size + 1)}
        hidden = bytearray(len(text))
        for start in range(len(text) - size + 1):
            if text[start : start + size] in parts:
                hidden[start : start + size] = b"\1" * size
        runs = itertools.groupby(range(len(text)), key=lambda place: hidden[place])
        return "".join("<key>" if hide else "".join(text[place] for place in run) for hide, run in runs)

    @contextlib.contextmanager
    def kept_from_logs(self) -> Iterator[None]:
        """Redacts what the client and its transport log meanwhile, and drops the tracebacks of their records."""

        def redacts(record: logging.LogRecord) -> bool:
            record.msg, record.args, record.exc_info = self.redact(record.getMessage()), (), None
            return True

        loggers = [logging.getLogger(name) for name in _LOGGERS]
        for logger in loggers:
            logger.addFilter(redacts)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(redacts)

    def redact_reply(self, text: str) -> str:
        """Returns a reply without the key; other words, also short placeholders of local servers, stay as they are."""
        return text.replace(self.value, "<key>") if self.is_in(text) else text


class KeySearch:
    """Knows the keys of some variables and the forms of others'."""

    def __init__(self, variables: Iterable[str]) -> None:
        """Reads the environment; in `variables`, what is no name of a variable counts as a key itself."""
        names = list(dict.fromkeys(name for name in variables if name))
        held = {name: Secret(os.environ.get(name, "").strip()) for name in names if is_variable(name)}
        misplaced = [Secret(name) for name in names if not is_variable(name)]
        self._misplaced = [key for key in misplaced if key.is_in(key.value)]
        self._held = {name: key for name, key in held.items() if key.is_in(key.value)}
        self._keys = [*self._held.values(), *self._misplaced]

    def reason(self, text: str) -> str | None:
        """Returns why a text must not be stored or shown, in a text that does not repeat it; None: it may."""
        if _USER.search(text):
            return f"holds a user name or a password in an address; {_HINT}"
        for name, key in self._held.items():
            forms = (text, urllib.parse.unquote(text))
            if any(key.is_in(form) if _has_substance(key) else key.value == form for form in forms):
                return f"holds the key of the environment variable {name}, which belongs nowhere else"
        if _FORMS.search(text) or any(key.is_in(text) for key in self._misplaced):
            return f"holds what looks like a key; {_HINT}"
        return None

    def redact(self, text: str) -> str:
        """Returns a text with ``<key>`` in the place of every secret."""
        for key in self._keys:
            if key in self._held.values() and not _has_substance(key):
                text = re.sub(rf"(?<![^\s=]){re.escape(key.value)}(?!\S)", "<key>", text)
            else:
                text = key.redact(text)
        return _FORMS.sub("<key>", _USER.sub("<key>@", text))


def variables_of(config: object) -> list[str]:
    """Returns what the settings ``key_variable`` of a configuration hold, names or not."""
    return [name for place, text, _ in _texts(config, None, "") for name in _names(place, text)]


def variables_in(words: Iterable[str]) -> list[str]:
    """Returns what the words of a command line give as names of variables, names or not."""
    parts = (word.partition("=") for word in words)
    return [name for flag, _, value in parts for name in _names(flag, value)]


def problems(config: object) -> list[str]:
    """Returns which settings hold a secret, or no name where the name of a variable belongs; one sentence each.

    Args:
      config: a dataclass of `dfc.config`; of whatever types its values are. A default is no secret.
    """
    search = KeySearch(variables_of(config))
    found = []
    for place, text, is_default in _texts(config, None, ""):
        why = _why_no_variable(place, text) or (None if is_default else search.reason(text))
        if why:
            found.append(search.redact(f"{place}: {why}"))
    return list(dict.fromkeys(found))


def word_problems(words: Iterable[str], variables: Iterable[str] = ()) -> list[str]:
    """Returns which words of a command line hold a secret; those of a flag are named by the flag.

    A word is such as ``--config.opponent=http://HOST/v1#MODEL``; `variables` are beside those that the words name.
    """
    words = list(words)
    search = KeySearch([*variables, *variables_in(words)])
    found = []
    for word in words:
        flag, equals, value = word.partition("=")
        place = flag if equals and flag.startswith("-") else "a word of the command line"
        why = (_why_no_variable(flag, value) if equals else None) or search.reason(word) or search.reason(value)
        if why:
            found.append(search.redact(f"{place}: {why}"))
    return list(dict.fromkeys(found))


def redacted_by_environment(text: str) -> str:
    """Returns a text without what the environment's variables hold whose names end as those of keys do."""
    return KeySearch(name for name in os.environ if _ENVIRONMENT.fullmatch(name) and is_variable(name)).redact(text)


def redacted(text: str, config: object) -> str:
    """Returns a text, such as the command line of a run with this configuration, without secrets."""
    return KeySearch(variables_of(config)).redact(text)


def _has_substance(key: Secret) -> bool:
    """Whether a text around it reveals a key; paths may hold placeholders that local servers take (``lm-studio``)."""
    return len(key.value) >= _SUBSTANCE or any(map(str.isdigit, key.value))


def _names(place: str, text: str) -> list[str]:
    """Returns the name of a variable in a value, if one belongs there."""
    is_place = place.rpartition(".")[2].lstrip("-") == "key_variable"
    return [text.strip()] if is_place and text.strip() else []


def _why_no_variable(place: str, text: str) -> str | None:
    if all(is_variable(name) for name in _names(place, text)):
        return None
    example = "such as OPENAI_API_KEY, and not the key itself"
    return f"must be the name of an environment variable in capital letters, {example}"


def _texts(value: object, default: object, place: str, depth: int = 0) -> Iterator[tuple[str, str, bool]]:
    """Yields (dotted place, text, whether it is the default) of every text in a configuration, keys of mappings too.

    Defaults are those of `default`, an object like `value`; None: those that the class of `value` gives its fields.
    """
    if depth > _DEPTH:
        return
    if isinstance(value, str):
        same = default if isinstance(default, list | tuple) else (default,)
        yield place, value, value in same
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner: Any = getattr(value, field.name)
            name = f"{place}.{field.name}" if place else field.name
            usual = _default(field) if default is None else getattr(default, field.name, None)
            yield from _texts(inner, usual, name, depth + 1)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield place, key, False
            yield from _texts(inner, None, f"{place}.{key}" if isinstance(key, str) else place, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _texts(inner, default, place, depth + 1)


def _default(field: "dataclasses.Field[Any]") -> object:
    """Returns what a field of a dataclass holds by default; None where it must be set."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default

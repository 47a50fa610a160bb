"""A key that is used but never shown."""

import contextlib
import itertools
import logging
import os
import urllib.parse
from collections.abc import Iterator

from dfc.errors import ConfigError

# Loggers that may repeat what a server sends in its headers: of the client, and of its transport by either name.
_LOGGERS = ("openai._base_client", "httpx", "httpx2", "httpcore.http11", "httpcore2.http11")
_LEAST = 4
_LENGTH = 8  # of a part that gives something away; placeholders such as EMPTY are shorter, and may be words of a reply


class Secret:
    """A key that shows itself to nobody who prints it."""

    def __init__(self, value: str) -> None:
        self.value = value

    @classmethod
    def read(cls, variable: str) -> "Secret":
        """Reads an environment variable; an empty name is an empty key.

        Raises:
          ConfigError: it is not set, or what it holds cannot be sent in a header; the key is not repeated.
        """
        value = os.environ.get(variable, "").strip() if variable else ""
        if variable and not value:
            raise ConfigError([f"endpoint.key_variable: the environment variable {variable} is not set or empty"])
        if not all("!" <= character <= "~" for character in value):
            raise ConfigError([f"endpoint.key_variable: the key in {variable} must be printable ASCII without spaces"])
        return cls(value)

    def __repr__(self) -> str:
        return "<key>"

    def is_in(self, text: str) -> bool:
        """Whether a text holds the key; never for one so short that it may be a word."""
        return len(self.value) >= _LENGTH and self.value in text

    def redact(self, text: str) -> str:
        """Returns a text without the key, whole, percent-encoded, or any part of it of 8 characters or more.

        Keys of less than 4 characters are placeholders; a text without them could not be read.
        """
        if len(self.value) < _LEAST:
            return text
        text = text.replace(self.value, "<key>").replace(urllib.parse.quote(self.value, safe=""), "<key>")
        size = _LENGTH
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

"""Replies of a chat endpoint on disk: one JSON file per request, shared by threads, processes and later runs."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.files import make_folder, replacing

_FORMAT = 2
_LARGEST = 64 * 2**20  # bytes of an entry; no reply of an endpoint is near that


@dataclasses.dataclass(frozen=True)
class CachedReply:
    """What is kept of an answer.

    Attributes:
      text: the reply.
      input_tokens: what the request cost when it was made; a hit costs nothing.
      output_tokens: likewise.
    """

    text: str
    input_tokens: int
    output_tokens: int


def request_key(url: str, body: Mapping[str, Any], trial: int) -> str:
    """Returns the name of a request: SHA-256, in hexadecimal, of its canonical JSON.

    `url` is without credentials; `body` is all that is sent: model, messages, sampling values, further settings, never
    a key; `trial` is which of several samples of the same request.
    """
    request = {"format": _FORMAT, "url": url, "body": body, "trial": trial}
    return hashlib.sha256(json.dumps(request, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class ReplyCache:
    """A folder of replies. Writes are atomic: a reader sees an entry whole or not at all."""

    def __init__(self, folder: str | Path) -> None:
        """Makes the folder.

        Raises:
          OSError: it cannot be made.
        """
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"  # 256 folders: some file systems are slow with a million names

    def get(self, key: str) -> CachedReply | None:
        """Returns the reply to a request; None where there is none, or one that cannot be read."""
        try:
            with self._path(key).open("rb") as file:
                data = file.read(_LARGEST + 1)
            if len(data) > _LARGEST:
                return None
            entry = json.loads(data)
        except (OSError, ValueError, RecursionError):  # absent, cut short, not UTF-8, not JSON
            return None
        if not isinstance(entry, dict) or (entry.get("format"), entry.get("key")) != (_FORMAT, key):
            return None
        text, inputs, outputs = (entry.get(name) for name in ("text", "input_tokens", "output_tokens"))
        if isinstance(text, str) and isinstance(inputs, int) and isinstance(outputs, int):
            return CachedReply(text, inputs, outputs)
        return None

    def put(self, key: str, reply: CachedReply) -> None:
        """Writes an entry, over any that is there.

        Raises:
          OSError: the file cannot be written.
        """
        path = self._path(key)
        make_folder(path.parent)
        entry = {"format": _FORMAT, "key": key, **dataclasses.asdict(reply)}
        with replacing(path, many_writers=True) as file:
            file.write(json.dumps(entry))

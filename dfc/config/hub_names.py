"""Names of models on the Hub of Hugging Face: ``ORG/NAME``, or ``ORG/NAME@REVISION``; nothing is requested here."""

import re
from pathlib import Path

_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w][\w./-]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
MAIN = "main"


def is_hub_name(path: str) -> bool:
    """Returns whether words that should mean a model are a name on the Hub: no folder here is meant.

    ``runs/mine`` beside a folder ``runs`` is a folder that is missing, and no name.
    """
    match = _NAME.fullmatch(path)
    return match is not None and not Path(path).exists() and not Path(path.partition("/")[0]).exists()


def split(path: str) -> tuple[str, str]:
    """Returns ``ORG/NAME`` and the revision of a name on the Hub; `MAIN` where it names none."""
    name, _, revision = path.partition("@")
    return name, revision or MAIN


def is_pinned(path: str) -> bool:
    """Returns whether a name on the Hub holds a commit, whose files never change."""
    return is_hub_name(path) and _COMMIT.fullmatch(split(path)[1]) is not None

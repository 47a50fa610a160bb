"""The configuration files that come with dfc, and which of them makes a model that others begin with."""

import functools
import re
from pathlib import Path

from dfc.commands import shell_line

FETCHED = {"smollm2-135m": "93 MB to download, then half a minute on two cores"}
"""Name of a model of `dfc.models.fetch.MODELS` -> what fetching it takes."""

_TIME = re.compile(r"^Time: (.+?)(?:\.(?:\s|$)|\n[A-Z]\w+: )", re.MULTILINE | re.DOTALL)


def folder() -> Path:
    """Returns the folder of the files, in a checkout and in an installed wheel."""
    return Path(__file__).resolve().parents[1] / "configs"


def how_to_make(path: str) -> str | None:
    """Returns the command that makes a model, and how long it takes; None: nothing that comes with dfc makes it.

    Args:
      path: of a model that is not there: below ``runs/NAME``, which a file of this name makes, or of a name that is
        fetched.
    """
    model = Path(path)
    if str(model) in FETCHED:
        return f"{shell_line('dfc.models.fetch', str(model))} makes it ({FETCHED[str(model)]})"
    root, _, rest = model.as_posix().partition("/")
    name = rest.partition("/")[0]
    minutes = _minutes(name) if root == "runs" and name.isidentifier() else None
    if minutes is None:
        return None
    return f"{shell_line('dfc.launch', f'--config=configs/{name}.py')} makes it (time: {minutes})"


@functools.cache
def _minutes(name: str) -> str | None:
    """Returns the time that the head of a file states; None: there is no such file."""
    try:
        text = (folder() / f"{name}.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = _TIME.search(text.split('"""')[1])
    return " ".join(found[1].split()) if found else None

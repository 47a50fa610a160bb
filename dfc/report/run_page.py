"""The report of a run: one self-contained HTML file made from the files of the run folder and from nothing else.

``python -m dfc.report RUN_FOLDER`` writes ``report.html`` into the folder; while a run is running,
`dfc.report.live_report` does. Every file may be missing or end in half a line; the section that needs it says so.
The template, the style and the script lie beside this module and are inlined. All text of the folder is escaped; games
are shown as `dfc.games.replay` plays them again, so a shown game is a proven one.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import jinja2
from markupsafe import Markup

from dfc.errors import RunFolderError
from dfc.files import replacing
from dfc.report import formats
from dfc.report.game_replays import ShownGames
from dfc.report.reader import RunData, read
from dfc.report.views import view
from dfc.report.warnings import RunWarning

__all__ = ["RunData", "Status", "build", "read", "view", "write"]

_HERE = Path(__file__).parent
_OWN_PAGE = ("evaluate", "evaluate_tasks")  # recipes whose report this one would replace


@dataclasses.dataclass(frozen=True)
class Status:
    """What a page says about itself.

    Attributes:
      state: ``running``: a process is at work and writes the page again; ``stopped``: it said that it stopped;
        ``unfinished``: the run is not finished, and whether it is still running is not known; ``finished``.
      reload_seconds: the page loads itself again after this long; 0: never.
      total_steps: of the whole run, if known.
      written: seconds since 1970.
    """

    state: Literal["running", "stopped", "unfinished", "finished"]
    reload_seconds: float = 0.0
    total_steps: int | None = None
    written: float = dataclasses.field(default_factory=time.time)


def build(folder: Path) -> Path:
    """Writes the report of a run into its folder and returns its path.

    A run that is not finished gets a page that loads itself again every half minute.

    Raises:
      RunFolderError: the folder does not exist, or its recipe writes a page of its own.
    """
    run = read(folder)
    recipe = (run.config or {}).get("recipe")
    if recipe in _OWN_PAGE:
        raise RunFolderError(f"{folder}: the recipe {recipe} writes a report of its own, {folder / 'report.html'}")
    return write(run, Status("finished") if run.finished else Status("unfinished", reload_seconds=30.0))


def write(
    run: RunData, status: Status, games: ShownGames | None = None, found: Sequence[RunWarning] | None = None
) -> Path:
    """Writes the page of what was found in a run folder into that folder and returns its path.

    The file appears at once and whole: it is written under another name and then moved into place.

    Args:
      run: from `dfc.report.reader`.
      status: what the page says about itself.
      games: makes the shown games; it remembers them from call to call.
      found: the warnings of the run, if they are known already.
    """
    page = _template().render(
        **view(run, games, found),
        status=status,
        written=time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(status.written)),
        css=Markup(_asset("page.css")),  # noqa: S704  (our own file)
        js=Markup(_asset("page.js")),  # noqa: S704  (our own file)
    )
    target = run.path / "report.html"
    with replacing(target, many_writers=True) as file:  # a run writes it, and whoever asks for it meanwhile
        file.write(page)
    return target


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("number", "interval", "measured", "signed", "duration", "text")
    environment.filters.update({name: getattr(formats, name) for name in names})
    return environment.get_template("run.html.jinja")


@functools.cache
def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")

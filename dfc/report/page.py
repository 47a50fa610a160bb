"""The pages: each one HTML file that needs no other file and no network, on a screen of any width.

A page is a list of sections, a section a list of paragraphs, tables and markup of its own. To add a page: make its
`Table`s, put them into `Section`s and write what `html` returns, or `publish` them as `Results`: on a page, as
Markdown, as JSON for programs and on the terminal. Everything is escaped but `Markup`, which is trusted: from the
templates beside this module (`fragments`) or a literal. The style and the script are page.css and page.js; the script
adds to what can be read without it.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dfc.files import write_json, write_text
from dfc.report import tables
from dfc.report.tables import Table

_HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
      title: its heading.
      parts: a str is a paragraph, a `Table` comes with its title and notes, `Markup` is shown as it is.
      name: in the bar on top of the page, and its address in it (`#name`); empty: it is not in the bar.
    """

    title: str
    parts: Sequence[str | Table]
    name: str = ""

    def html(self) -> Markup:
        """Returns what is below the heading."""
        return Markup("\n").join(_part(part, self.title) for part in self.parts)


def _part(part: str | Table, title: str) -> Markup:
    if isinstance(part, Table):
        heading = [Markup("<h3>{}</h3>").format(part.title)] if part.title != title else []
        return Markup("\n").join([*heading, part.html(), *map(note, part.notes)])
    return part if isinstance(part, Markup) else Markup("<p>{}</p>").format(part)


def note(text: str) -> Markup:
    """Returns a sentence in small letters, as below a table."""
    return Markup('<p class="note">{}</p>').format(text)


def empty(text: str) -> Markup:
    """Returns a sentence in the place of missing content."""
    return Markup('<p class="empty">{}</p>').format(text)


def fold(title: str, detail: str, part: Markup, *, opened: bool = False) -> Markup:
    """Returns a section that the reader can unfold; it keeps its state when the page reloads itself."""
    form = (
        '<details class="fold" data-key="{0}"{1}><summary>{0} <span class="muted">{2}</span></summary>\n{3}</details>'
    )
    return Markup(form).format(title, Markup(" open") if opened else "", detail, part)  # noqa: S704 - written above


def embedded(name: str, data: Any) -> Markup:  # noqa: ANN401 - JSON values
    """Returns data for the page's script, as JSON that is safe inside a script element."""
    # Only "<" can end the element or open a comment; as an escape it is the same JSON.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(text))  # noqa: S704 - as above


def html(
    title: str,
    kind: str,
    lead: Sequence[str | Table],
    sections: Sequence[Section],
    *,
    mark: str = "",
    state: Mapping[str, object] | None = None,
    refresh: int = 0,
) -> str:
    """Returns a page.

    `kind` of page, a short text, is in the bar on top; `lead` above the sections; `mark` in front of the window's
    title. `state` has the values passed to page.js, by name (`data-name` of the root). After `refresh` seconds a page
    without script loads itself again; 0: never.
    """
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            title=title,
            kind=kind,
            lead=Section(title, lead),
            sections=sections,
            mark=mark,
            state=state or {},
            refresh=refresh,
            css=Markup(_asset("page.css")),  # noqa: S704 - our own file
            js=Markup(_asset("page.js")),  # noqa: S704 - our own file
        )
    )


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of an evaluation, in every form in which they are published.

    Attributes:
      kind, name: of the evaluation; together the title of its page.
      introduction: what was played and how it is counted, a paragraph each.
      tables: all of them, the shortest summary first.
      data: for programs, ready for JSON.
      lines: for a terminal.
      figures: sections of the page after the `first` tables and before the others.
    """

    kind: str
    name: str
    introduction: Sequence[str]
    tables: Sequence[Table]
    data: object
    lines: Sequence[str]
    figures: Sequence[Section] = ()
    first: int = 0


def publish(folder: Path, results: Results, *, write: bool = True) -> None:
    """Writes ``results.json``, ``tables.md`` and ``report.html``, each atomically, and prints the lines and the places.

    Without `write` the files are there already, and only what is printed is shown again.
    """
    page, markdown = folder / "report.html", folder / "tables.md"
    if write:
        title = f"{results.kind} {results.name}"
        write_json(folder / "results.json", results.data, allow_nan=False)
        texts = [f"# {title}\n", *(f"{line}\n" for line in results.introduction)]
        write_text(markdown, "\n".join([*texts, *(table.markdown() for table in results.tables)]))
        sections = [Section(table.title, [table]) for table in results.tables]
        sections[results.first : results.first] = results.figures
        write_text(page, html(title, results.kind.lower(), results.introduction, sections))
    print("\n".join([*results.lines, f"tables: {markdown}", f"report: {page}"]), flush=True)  # noqa: T201 - the result


def fragments(name: str, folder: Path = _HERE) -> Any:  # noqa: ANN401 - its macros, by name
    """Returns the macros of a template in a folder, that of this module by default; each returns `Markup`."""
    return _environment(folder).get_template(name).module


@functools.cache
def _environment(folder: Path = _HERE) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("number", "bounds", "measured", "signed", "duration", "text")
    environment.filters.update({name: getattr(tables, name) for name in names})
    return environment


@functools.cache
def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")

"""What ``--help`` shows: usage, flags, and of every key its type, range, default and meaning."""

import argparse
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Collection, Mapping

from dfc.commands import shell_line
from dfc.config import RECIPES, RunConfig, fields
from dfc.errors import cut, shown
from dfc.launch import foreign_names
from dfc.launch.key_names import stand_for, suggestion

_WIDTH = 110
_LONGEST = 4000  # characters of a value: the games of a run take a thousand


def help_text(flags: Mapping[str, str], shipped: str, config: RunConfig | None, wanted: str = "") -> str:
    """Returns the help of a command line.

    `flags` are name -> meaning, `shipped` the configuration files that come with dfc. Keys of `config` are shown with
    their values in it; None: all recipes' if there is a search text. `wanted`: only keys whose name or meaning holds
    this text, or that stand for another library's setting of this name (`dfc.launch.foreign_names`); empty: all of
    `config`.
    """
    lines = [
        "Trains a model by letting it play language games.",
        "",
        "usage: python -m dfc.launch --config=FILE [--config.KEY=VALUE ...] [--workdir=FOLDER]",
        f"example: {shell_line('dfc.launch')} --config=configs/quickstart.py --config.optimizer.learning_rate=2e-3",
        "",
        "The same command again resumes a run that was stopped. Ctrl-C or SIGTERM saves and stops;",
        "a second Ctrl-C stops at once. Exit code: 0 finished, 1 failed, 2 wrong command line or configuration,",
        "130 or 143 stopped by a signal.",
        "",
        "flags:",
        *(f"  --{name:12s} {meaning}" for name, meaning in flags.items()),
        "",
        f"configuration files that come with dfc: {shipped}",
        "",
        "keys: set one with --config.KEY=VALUE. Texts need no quotes; a tuple is A,B or \"('a', 'b')\"; an entry of a",
        "mapping --config.KEY.NAME=VALUE, of a section in one --config.endpoints.NAME.timeout=30; an option of a game",
        "--config.games.TowerOfHanoi-v0.max_turns=14; all games --config.games=\"{'Nim-v0': {}}\". What a",
        "configuration has depends on its recipe:",
    ]
    if config is not None:
        return "\n".join([*lines, *_described(config, wanted)]) + "\n"
    if wanted:
        if foreign_names.find(wanted) is not None:
            lines += ["", suggestion(None, wanted).removeprefix("; ")]
        lines += [line for kind in RECIPES.values() for line in _described(kind(), wanted, alone=False)]
    else:
        lines += [f"  {name:20s} {_summary(kind)}" for name, kind in RECIPES.items()]
        lines += [
            "",
            "--config=FILE --help shows every key of that file's recipe, --help=TEXT those that mention a text.",
        ]
    return "\n".join(lines) + "\n"


def _described(config: RunConfig, wanted: str, *, alone: bool = True) -> list[str]:
    """Returns a recipe's keys; where it is the only one, also what stands in it for another library's setting."""
    foreign, keys = stand_for(type(config), wanted)
    lines = _section(config, "", wanted.lower(), keys)
    title = f"{config.recipe} ({type(config).__name__}): {_summary(type(config))}"
    said = [f"  {foreign}"] if foreign and alone else []
    return ["", title, *said, *lines] if lines or said else ([] if wanted else ["", title])


def _section(section: object, path: str, wanted: str, named: Collection[str] = (), *, unset: bool = False) -> list[str]:
    """Returns the keys of a section that hold a text or are named, then those of the sections in it.

    `path` leads to it, with a dot behind it; `named` are dotted keys; `unset`: it stands for None, so that no value of
    it holds.
    """
    meanings = meanings_of(type(section))
    own, nested = [], []
    for name, hint in fields.annotated_fields(section).items():
        value, key = None if unset else getattr(section, name), f"{path}{name}"
        if (kind := fields.section_of(hint)) is not None:
            entries = value if isinstance(value, Mapping) else {}
            for entry, inner in [("NAME", kind()), *entries.items()]:
                lines = _section(inner, f"{key}.{entry}.", wanted, named) if fields.is_section(inner, kind) else []
                nested += [*lines[:2], *_wrapped(meanings.get(name, "")), *lines[2:]] if lines else []
            continue
        if dataclasses.is_dataclass(value):
            nested += _section(value, f"{key}.", wanted, named)
            continue
        if value is None and dataclasses.is_dataclass(kind := fields.without_none(hint)):
            lines = _section(kind(), f"{key}.", wanted, named, unset=True)  # type: ignore[operator] # a class of sections
            nested += [*lines[:2], *_wrapped(meanings.get(name, "")), *lines[2:]] if lines else []
            continue
        if key in named or wanted in key.lower() or wanted in meanings.get(name, "").lower():
            own += [f"  --config.{key} ({fields.describe_type(hint)}; {_value(value)})"]
            own += _wrapped(meanings.get(name, ""))
    if own and path:
        own = ["", f"{path.rstrip('.')}: {_summary(type(section))}", *own]
    return own + nested


def _wrapped(meaning: str) -> list[str]:
    return textwrap.wrap(meaning, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _value(value: object) -> str:
    try:
        return cut(repr(value), _LONGEST)
    except Exception:  # noqa: BLE001 - of a class of the user's; a whole number of 5000 digits raises too
        return shown(value)


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


def truth(word: str) -> bool:
    """Returns what ``true`` or ``false`` means; a type of argparse.

    Raises:
      argparse.ArgumentTypeError: it is another word.
    """
    if word.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, got {shown(word)}")
    return word.lower() == "true"


def meanings_of(kind: type) -> dict[str, str]:
    """Returns what the Attributes section of a class's docstring, and of its bases', says of each field."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        text = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for entry in re.split(r"\n(?=  \w+: )", "\n" + text):
            name, _, meaning = entry.strip().partition(": ")
            meanings[name] = " ".join(meaning.replace("``", "").split())
    return meanings

"""From the words of a command line to a checked configuration; every problem is found before one is reported.

Nothing here imports JAX, so that a mistake is reported immediately.
"""

import dataclasses
import difflib
import os
import pprint
import re
import runpy
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

import dfc
from dfc import files, validation
from dfc.commands import shell_line
from dfc.config import RECIPES, ModelRunConfig, RunConfig, fields, is_recipe, shipped
from dfc.errors import ConfigError, error_text
from dfc.launch import distributed, help_text
from dfc.launch.distributed import Processes
from dfc.launch.key_names import constructed, flag_suggestion, is_switch, suggestion
from dfc.launch.overrides import OVERRIDE, override, unknown_keys
from dfc.players import key_search
from dfc.runs.run_folder import versions

_WIDTH = 100  # of a line of a printed configuration, beside its indentation
_FLAGS = {
    "config": "the configuration file, looked up in the current folder, then among those that come with dfc",
    "workdir": "the run folder; runs/<name> in the current folder by default",
    "programs": "where compiled programs are kept between runs; a folder of the user's caches by default, or off",
    "distributed": "auto: this process is one of several (TPU pod, Slurm, GKE or the next three flags); default off",
    "coordinator": "HOST:PORT of the first process, where the TPU pod, Slurm or GKE does not say it",
    "processes": "how many processes there are; with --coordinator",
    "process": "which of them this is, 0 to processes - 1; with --coordinator",
    "print-config": "show the configuration with every value, as a file that --config takes, and stop",
    "version": "show the versions of dfc, Python and the packages that compute, and stop",
    "help": "show this, with --config=FILE its keys, and stop; --help=TEXT shows the keys that mention a text",
}
_HELP = re.compile(r"--?(?:help|h)(?:=(?P<wanted>.*))?|-\?", re.DOTALL)
_VERSION = re.compile(r"--?version")
_PRINT = re.compile(r"--?print[-_]config")
_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?P<given>=(?P<value>.*))?", re.DOTALL)
_BARE = re.compile(r"\+?(?P<name>[A-Za-z][\w.]*)=(?P<value>.*)", re.DOTALL)  # as verl takes its settings
_SHOWN = ("help", "print-config", "version")  # flags without a value: what they print is all they do


@dataclasses.dataclass(frozen=True)
class Request:
    """What a command line asks for.

    Attributes:
      config: checked.
      workdir: the run folder; it need not exist.
      command: the command line, ready to be typed again.
      programs: where compiled programs are kept, or ``off``; None: the default.
      processes: whether this process is one of several, and how they find each other.
    """

    config: RunConfig
    workdir: Path
    command: str
    programs: str | None = None
    processes: Processes = Processes()  # noqa: RUF009 - frozen


def parse(arguments: Sequence[str]) -> Request | str:
    """Returns what the words after ``python -m dfc.launch`` ask for; or its text, if it asks for one.

    Raises:
      ConfigError: with every problem of the command line, of the file and of the values.
    """
    words, overrides = split(arguments)
    if any(map(_VERSION.fullmatch, words)):
        return _versions_text()
    prints = any(map(_PRINT.fullmatch, words))
    words = [word for word in words if not _PRINT.fullmatch(word)]
    values, wanted, unknown, found = _read_flags(words)
    if wanted is not None:
        return _help(values, words, overrides, wanted)
    processes, more = distributed.read(values)
    found += more
    config, workdir = None, Path()
    place = len(found)  # of the unknown words: their meaning depends on the recipe
    if values["config"] is None:
        named = any(word.endswith(".py") and not word.startswith("-") for word in unknown)  # its own problem reports it
        if not named and not any(problem.startswith("--config") for problem in found):
            found.append(f"--config is missing: name a file, e.g. --config=configs/quickstart.py ({_shipped_text()})")
    else:
        try:
            config = load(values["config"])
        except ConfigError as error:
            found += error.problems
    if config is None:
        found += unknown_keys(overrides)
        found[place:place] = unknown_words(unknown, None)
    else:
        found[place:place] = unknown_words(unknown, type(config))
        config, more = override(config, overrides)
        found += more
        checked = validation.problems(config)
        found += checked
        if not checked and not prints:
            workdir = Path(values["workdir"]) if values["workdir"] else Path("runs") / config.name
            found += _place_problems(config, workdir, values)
    variables = [] if config is None else key_search.variables_of(config)
    found = with_key_problems(dict.fromkeys(found), [*words, *overrides], variables)
    if found or config is None:
        raise ConfigError(found)
    if prints:
        return as_file(config)
    return Request(config, workdir, shell_line("dfc.launch", *arguments), values["programs"], processes)


def _place_problems(config: RunConfig, workdir: Path, flags: Mapping[str, str | None]) -> list[str]:
    """Returns what is wrong with the places that a valid configuration reads and writes."""
    found = validation.path_problems(config)
    for flag, place in (("--workdir", flags["workdir"] or workdir), ("--programs", flags["programs"] or "off")):
        found += written_problems(flag, place)
    if isinstance(config, ModelRunConfig) and config.model.path != "tiny_player":
        found += path_problems("model.path", Path(config.model.path))
    return found


def _help(values: dict[str, str | None], words: Sequence[str], overrides: Sequence[str], wanted: str) -> str:
    """Returns the help, with the keys of the configuration that is named, if one is."""
    if values["config"] is None:
        return help_text.help_text(_FLAGS, _shipped_text(), None, wanted)
    config: RunConfig | None = None
    try:
        config, found = override(load(values["config"]), overrides)
    except ConfigError as error:
        found = list(error.problems)
    if found or config is None:
        raise ConfigError(with_key_problems(found, [*words, *overrides], key_search.variables_of(config)))
    return key_search.redacted(help_text.help_text(_FLAGS, _shipped_text(), config, wanted), config)


def _versions_text() -> str:
    """Returns the versions that a run notes, one a line."""
    found = versions()
    lines = {"dfc": found["dfc"], "Python": found["python"], **found["packages"]}
    return "".join(f"{name} {version}\n" for name, version in lines.items())


def as_file(config: RunConfig) -> str:
    """Returns a configuration file with every value of a valid configuration, defaults too."""
    kind = type(config).__name__
    names = sorted({type(section).__name__ for section in _sections_of(config)})
    body = pprint.pformat(config, width=_WIDTH, sort_dicts=False)
    return (
        f'"""Every value of a run of the recipe {config.recipe}, as --print-config shows it."""\n\n'
        f"from dfc.config import (\n{''.join(f'    {name},{chr(10)}' for name in names)})\n\n\n"
        f"def get_config() -> {kind}:\n"
        f'    """Returns the configuration."""\n'
        f"    return (\n{textwrap.indent(body, ' ' * 8)}\n    )\n"
    )


def _sections_of(value: object) -> Iterator[object]:
    """Yields a configuration and every section in it."""
    if dataclasses.is_dataclass(value):
        yield value
        value = vars(value)
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _sections_of(inner)


def load(name: str) -> RunConfig:
    """Returns the configuration of a file: what its `get_config()` returns.

    `name` is a path, absolute or relative to the current folder; if there is no such file, relative to the folder that
    holds dfc's own ``configs``, so that ``configs/smoke.py`` works everywhere.

    Raises:
      ConfigError: there is no such file, or it raises, or it returns no configuration.
    """
    path = _find(name)
    try:
        # Compiled again each time: a cached file of the same second and size would be taken for the edited one.
        get_config = runpy.run_path(str(path), run_name="dfc_config").get("get_config")
        config = get_config() if callable(get_config) else None
    except BaseException as error:  # the file is the user's code: it may raise anything, or call sys.exit
        # Which variables hold keys is in the configuration, which is missing.
        came = key_search.redacted_by_environment(f"{_where(path, error)}{_constructor_hint(error)}")
        raise ConfigError([f"--config={name}: {came}"]) from error
    if not callable(get_config):
        raise ConfigError([f"--config={name}: {path} has no get_config(); define one that returns a configuration"])
    if not isinstance(config, RunConfig) or not is_recipe(type(config)) or not fields.is_section(config, type(config)):
        kinds = ", ".join(kind.__name__ for kind in RECIPES.values())
        own = "a custom class with a name that no recipe has and the file that runs it, recipe=, module=__file__"
        wanted = f"one of dfc.config ({kinds}), or {own}"
        raise ConfigError([f"--config={name}: get_config() must return {wanted}; not {type(config).__name__}"])
    return config


# ---- words ----------------------------------------------------------------------------------------------------


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the words that are flags, and the overrides, each as one word ``--config.key=value``."""
    words, overrides = [], []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        match = OVERRIDE.fullmatch(word)
        if not match:
            words.append(word)
            continue
        takes_value = not match["given"] and not match["no"] and not is_switch(match["key"])
        if takes_value and rest and not rest[0].startswith("--"):
            word += f"={rest.pop(0)}"
        overrides.append(word)
    return words, overrides


def _read_flags(words: Sequence[str]) -> tuple[dict[str, str | None], str | None, list[str], list[str]]:
    """Returns the flags' values, the text that help is wanted on (None: none is), unknown words, and what is wrong."""
    asked = [match for word in words if (match := _HELP.fullmatch(word))]
    words, unknown = _sort_out([word for word in words if not _HELP.fullmatch(word)])
    kind: Any = flags.FlagValues  # absl has no types
    holder = kind()
    for name in _FLAGS.keys() - set(_SHOWN):
        flags.DEFINE_string(name, None, _FLAGS[name], flag_values=holder)
    found = []
    try:
        unknown += holder(["dfc.launch", *words], known_only=True)[1:]
    except flags.Error as error:
        found.append(f"--{str(error).removeprefix('flag --')}")
    values = {name: holder[name].value for name in _FLAGS.keys() - set(_SHOWN)}
    return values, (asked[-1]["wanted"] or "") if asked else None, unknown, found


def _sort_out(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the known flags with their values, and all other words; an unknown flag and its value are one word."""
    known, unknown, rest = [], [], list(words)
    while rest:
        word = rest.pop(0)
        match = _FLAG.fullmatch(word)
        if match is None:
            unknown.append(word)
            continue
        takes_value = match["given"] is None and bool(rest) and not _FLAG.fullmatch(rest[0])
        if match["name"] in _FLAGS.keys() - set(_SHOWN):
            known += [word, rest.pop(0)] if takes_value else [word]
        else:
            unknown.append(f"{word}={rest.pop(0)}" if takes_value else word)
    return known, unknown


def unknown_words(words: Sequence[str], kind: type[RunConfig] | None) -> list[str]:
    """Returns one problem for each word that is neither a flag nor an override, with what it is meant to set, if known.

    A word is an unknown flag and its value. `kind` is the recipe; None: no configuration is known.
    """
    found = []
    for word in words:
        if match := _FLAG.fullmatch(word):
            name = match["name"]
            means = flag_suggestion(kind, name, match["value"])
            if fields.near(name, _FLAGS, cutoff=0.8) or not means:
                means = fields.nearest(name, _FLAGS)
            found.append(f"{word}: there is no flag --{name}{means}")
        else:
            means = flag_suggestion(kind, bare["name"], bare["value"]) if (bare := _BARE.fullmatch(word)) else ""
            example = f": --config={word}" if word.endswith(".py") else ", as in --config=FILE"
            found.append(f"{word!r}: not expected here{means or f'; a value belongs to its flag{example}'}")
    return found


def with_key_problems(found: Iterable[str], words: Sequence[str], variables: Sequence[str]) -> list[str]:
    """Adds which words hold a key or a password, also where a later one replaces them; no sentence repeats it."""
    search = key_search.KeySearch([*variables, *key_search.variables_in(words)])
    shown = [search.redact(problem) for problem in found]
    more = key_search.word_problems(words, variables)
    return shown + [problem for problem in more if problem.removeprefix("--config.") not in shown]


# ---- files ----------------------------------------------------------------------------------------------------


def _shipped_text() -> str:
    return ", ".join(sorted(f"configs/{path.name}" for path in shipped.folder().glob("*.py")))


def _find(name: str) -> Path:
    here = Path(name)
    ours = shipped.folder().parent / name
    try:
        for path in (here, ours):
            if path.is_file():
                return path
        is_folder = here.is_dir()
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise ConfigError([f"--config={name}: {error.strerror or error}"]) from error
    names = {form: f"configs/{path.name}" for path in shipped.folder().glob("*.py") for form in (path.stem, path.name)}
    names |= {full: full for full in names.values()}
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {names[near[0]]}?" if near else f"dfc comes with {_shipped_text()}"
    kind = "a folder, not a file" if is_folder else "no such file"
    raise ConfigError([f"--config={name}: {kind} (looked at {here.absolute()} and {ours}); {hint}"])


def written_problems(key: str, path: str | Path) -> list[str]:
    """Returns why no run can write to a folder: it is an address, or see `path_problems`."""
    address = files.address_problem(path)
    return [f"{key}={path}: {address}"] if address else path_problems(key, Path(path))


def path_problems(key: str, path: Path) -> list[str]:
    """Returns why no run can use a path: no file system takes it, or the libraries in C++ would look elsewhere."""
    if "\0" in str(path):
        return [f"{key}={path}: holds a zero byte, which no path can"]
    try:
        whole = path.absolute()
        whole.exists()
        same = str(whole).encode() == os.fsencode(whole)
    except UnicodeEncodeError:
        same = False
    except OSError as error:
        return [f"{key}={path}: {error.strerror or error}"]
    if same:
        return []
    # Checkpoints and weights are read and written by code that takes UTF-8, whatever Python takes.
    hint = "set PYTHONUTF8=1 or a locale such as LC_ALL=C.UTF-8, or use a folder whose whole path is plain ASCII"
    encoding = sys.getfilesystemencoding()
    return [f"{key}={path}: {whole} is no UTF-8 for a Python whose file system encoding is {encoding}; {hint}"]


def _where(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"line {error.lineno} is no Python: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{'line ' + str(lines[-1]) if lines else 'the file'} raised {type(error).__name__}: {error_text(error)}"


def _constructor_hint(error: BaseException) -> str:
    match = re.match(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", error_text(error))
    kind = getattr(dfc.config, match[1], None) if match else None
    if not (match and isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return ""
    return constructed(kind, suggestion(kind, match[2])) or fields.nearest(match[2], fields.fields_of(kind))

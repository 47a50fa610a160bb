"""From the words of a command line to a checked `RunConfig`; every problem is found before one is reported.

The dataclasses of `dfc.config` are the only schema. For the overrides they become an `ml_collections.ConfigDict`
(`to_config_dict`), on which `config_flags` sets one value after the other, and then a `RunConfig` again
(`from_config_dict`). Nothing here imports JAX, so that a mistake is answered at once.
"""

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import operator
import os
import re
import runpy
import shlex
import sys
import textwrap
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_dict, config_flags

import dfc
from dfc import validation
from dfc.config import RunConfig
from dfc.errors import ConfigError, error_text
from dfc.games import registry
from dfc.launch import distributed
from dfc.launch.distributed import Processes
from dfc.players import key_search

_FLAGS = {
    "config": "the configuration file, looked up in the current folder, then among those that come with dfc",
    "workdir": "the run folder; runs/<name> in the current folder by default",
    "distributed": "auto: this process is one of several (TPU pod, Slurm, GKE or the next three flags); default off",
    "coordinator": "HOST:PORT of the first process, where the TPU pod, Slurm or GKE does not say it",
    "processes": "how many processes there are; with --coordinator",
    "process": "which of them this is, 0 to processes - 1; with --coordinator",
    "help": "show this and stop",
}
_LISTS = (  # A,B,C will do
    "policies",
    *(f"{section}.endpoint.{name}" for section in ("evaluate", "simulators") for name in ("key_variables", "prices")),
    *("collect.samples_of", "evaluate_tasks.tasks_of", "paprika.stages", "task_curriculum.join_groups"),
    *("tiny_player.novice", "tiny_player.transcripts_of"),
    *("build_data.groups", "build_data.leave_out", "build_data.rejected_failures"),
)
_OVERRIDE = re.compile(r"--?(?P<no>no)?config\.(?P<key>[^=]+)(?P<given>=(?P<value>.*))?", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Request:
    """What a command line asks for.

    Attributes:
      config: checked.
      workdir: the run folder; it need not exist.
      command: the command line, ready to be typed again.
      processes: whether this process is one of several, and how they find each other.
    """

    config: RunConfig
    workdir: Path
    command: str
    processes: Processes = Processes()  # noqa: RUF009 - frozen


def parse(arguments: Sequence[str]) -> Request | None:
    """Returns what the words after ``python -m dfc.launch`` ask for; None if they ask for help.

    Raises:
      ConfigError: with every problem of the command line, of the file and of the values.
    """
    words, overrides = _split(arguments)
    values, found = _read_flags(words)
    if values["help"] is not None:
        return None
    processes, more = distributed.read(values)
    found += more
    config, workdir = None, Path()
    if values["config"] is None:
        if not any(problem.startswith("--config") for problem in found):
            found.append(f"--config is missing: name a file, e.g. --config=configs/quickstart.py ({_shipped_text()})")
    else:
        try:
            config = load(values["config"])
        except ConfigError as error:
            found += error.problems
    # Without a file the keys can still be checked, against the defaults.
    config, more = override(config or RunConfig(), overrides) if config else (None, _unknown_keys(overrides))
    found += more
    if config is not None:
        checked = validation.problems(config)
        found += checked or validation.path_problems(config)
        if not checked:
            workdir = Path(values["workdir"]) if values["workdir"] else Path("runs") / config.name
            found += _path_problems("--workdir", workdir)
            if config.model.path != "tiny_player":
                found += _path_problems("model.path", Path(config.model.path))
    variables = [] if config is None else key_search.variables_of(config)
    found = _with_key_problems(dict.fromkeys(found), [*words, *overrides], variables)
    if found or config is None:
        raise ConfigError(found)
    return Request(config, workdir, shlex.join(["python", "-m", "dfc.launch", *arguments]), processes)


def help_text() -> str:
    """Returns what ``--help`` shows: usage, flags, every key with its type, default and meaning."""
    lines = [
        "Trains a model by letting it play language games.",
        "",
        "usage: python -m dfc.launch --config=FILE [--config.KEY=VALUE ...] [--workdir=FOLDER]",
        "example: python -m dfc.launch --config=configs/quickstart.py --config.optimizer.learning_rate=2e-3",
        "",
        "The same command again resumes a run that was stopped. Ctrl-C or SIGTERM saves and stops;",
        "a second Ctrl-C stops at once. Exit code: 0 finished, 1 failed, 2 wrong command line or configuration,",
        "130 or 143 stopped by a signal.",
        "",
        "flags:",
        *(f"  --{name:11s} {meaning}" for name, meaning in _FLAGS.items()),
        "",
        f"configuration files that come with dfc: {_shipped_text()}",
        "",
        "keys (type; default): set one with --config.KEY=VALUE. Texts need no quotes; a tuple is \"('a', 'b')\";",
        "an option of a game --config.games.TowerOfHanoi-v0.max_turns=14; all games --config.games=\"{'Nim-v0': {}}\".",
    ]
    return "\n".join(lines + _describe(RunConfig(), "")) + "\n"


def load(name: str) -> RunConfig:
    """Returns the configuration of a file: what its `get_config()` returns.

    Args:
      name: a path, absolute or relative to the current folder; if there is no such file, relative to the folder that
        holds dfc's own ``configs``, so that ``configs/smoke.py`` works everywhere.

    Raises:
      ConfigError: there is no such file, or it raises, or it returns something else than a `RunConfig`.
    """
    path = _find(name)
    try:
        # Compiled again each time: a cached file of the same second and size would be taken for the edited one.
        get_config = runpy.run_path(str(path), run_name="dfc_config").get("get_config")
        config = get_config() if callable(get_config) else None
    except BaseException as error:  # the file is the user's code: it may raise anything, or call sys.exit
        # Which variables hold keys stands in the configuration that is not there.
        came = key_search.redacted_by_environment(f"{_where(path, error)}{_constructor_hint(error)}")
        raise ConfigError([f"--config={name}: {came}"]) from error
    if not callable(get_config):
        raise ConfigError([f"--config={name}: {path} has no get_config(); define one that returns a RunConfig"])
    if not isinstance(config, RunConfig) or not validation.is_section(config, RunConfig):
        came = type(config).__name__
        if isinstance(config, RunConfig):
            came += ", which has other fields"
        raise ConfigError([f"--config={name}: get_config() must return a dfc.config.RunConfig, not {came}"])
    return config


def to_config_dict(config: RunConfig) -> Any:  # noqa: ANN401 - ml_collections has no types
    """Returns the configuration as a `ConfigDict`; whole numbers become floats where the schema has floats."""
    return config_dict.ConfigDict(_plain(config))


def from_config_dict(values: Any) -> RunConfig:  # noqa: ANN401 - ml_collections has no types
    """Returns the `RunConfig` of a `ConfigDict` made by `to_config_dict`; inverts it."""
    config: RunConfig = _build(RunConfig, values.to_dict())
    return config


def override(config: RunConfig, overrides: Sequence[str]) -> tuple[RunConfig, list[str]]:
    """Applies words such as ``--config.optimizer.b2=0.98`` in their order; the last one of a key holds.

    Returns:
      The configuration with every override that could be applied, and one problem for each that could not.
    """
    if not validation.has_sections(config):
        return config, _unknown_keys(overrides)
    try:
        values = to_config_dict(config)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:  # of names no game can have
        why = validation.games_problems(config.games) or [
            f"the file's values are of a kind no key has: {error_text(error)}"
        ]
        return config, _unknown_keys(overrides) + why
    found = []
    for word in overrides:
        problem = _apply(values, word)
        if problem:
            found.append(problem)
    return from_config_dict(values), found


# ---- words ----------------------------------------------------------------------------------------------------


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the words that are flags, and the overrides, each as one word ``--config.key=value``."""
    words, overrides = [], []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        match = _OVERRIDE.fullmatch(word)
        if not match:
            words.append(word)
            continue
        takes_value = not match["given"] and not match["no"] and _type_of(match["key"].split(".")) is not bool
        if takes_value and rest and not rest[0].startswith("--"):
            word += f"={rest.pop(0)}"
        overrides.append(word)
    return words, overrides


def _read_flags(words: Sequence[str]) -> tuple[dict[str, str | None], list[str]]:
    kind: Any = flags.FlagValues  # absl has no types
    holder = kind()
    for name in _FLAGS.keys() - {"help"}:
        flags.DEFINE_string(name, None, _FLAGS[name], flag_values=holder)
    flags.DEFINE_boolean("help", None, _FLAGS["help"], short_name="h", flag_values=holder)
    found = []
    try:
        unknown = holder(["dfc.launch", *words], known_only=True)[1:]
    except flags.Error as error:
        found.append(f"--{str(error).removeprefix('flag --')}")
        unknown = []
    for word in unknown:
        if word.startswith("-"):
            name = word.lstrip("-").split("=")[0]
            found.append(f"{word}: there is no flag --{name}{validation.nearest(name, _FLAGS)}")
        else:
            found.append(f"{word!r}: not expected here; a value belongs to its flag, as in --config=FILE")
    return {name: holder[name].value for name in _FLAGS}, found


def _with_key_problems(found: Iterable[str], words: Sequence[str], variables: Sequence[str]) -> list[str]:
    """Adds which words hold a key or a password, also where a later one replaces them; no sentence repeats it."""
    search = key_search.KeySearch([*variables, *key_search.variables_in(words)])
    shown = [search.redact(problem) for problem in found]
    more = key_search.word_problems(words, variables)
    return shown + [problem for problem in more if problem.removeprefix("--config.") not in shown]


# ---- files ----------------------------------------------------------------------------------------------------


def _shipped() -> Path:
    """Returns the folder of the configuration files that come with dfc, in a checkout and in an installed wheel."""
    return Path(dfc.__file__).resolve().parent / "configs"


def _shipped_text() -> str:
    return ", ".join(sorted(f"configs/{path.name}" for path in _shipped().glob("*.py")))


def _find(name: str) -> Path:
    here = Path(name)
    shipped = _shipped().parent / name
    try:
        for path in (here, shipped):
            if path.is_file():
                return path
        is_folder = here.is_dir()
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise ConfigError([f"--config={name}: {error.strerror or error}"]) from error
    names = {form: f"configs/{path.name}" for path in _shipped().glob("*.py") for form in (path.stem, path.name)}
    names |= {full: full for full in names.values()}
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {names[near[0]]}?" if near else f"dfc comes with {_shipped_text()}"
    kind = "a folder, not a file" if is_folder else "no such file"
    raise ConfigError([f"--config={name}: {kind} (looked at {here.absolute()} and {shipped}); {hint}"])


def _path_problems(key: str, path: Path) -> list[str]:
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
    if not (match and dataclasses.is_dataclass(kind)):
        return ""
    return validation.nearest(match[2], validation.fields_of(kind))


# ---- overrides ------------------------------------------------------------------------------------------------


def _type_of(names: Sequence[str]) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    """Returns the schema's type of a key; None if there is no such key or it lies inside `games`."""
    kind: Any = RunConfig
    for name in names:
        fields = validation.fields_of(kind) if dataclasses.is_dataclass(kind) else {}
        kind = fields.get(name)
    return kind


def _key_problem(key: str) -> str | None:
    names = key.split(".")
    if names[0] == "games":
        return _game_key_problem(key, names[1:])
    kind: Any = RunConfig
    for depth, name in enumerate(names):
        if not dataclasses.is_dataclass(kind):
            return f"--config.{key}: {'.'.join(names[:depth])} is {validation.describe_type(kind)}, not a section"
        fields = validation.fields_of(kind)
        if name not in fields:
            section = ".".join(names[:depth]) or "the configuration"
            return f"--config.{key}: there is no '{name}' in {section}{_nearest_key(key, name, fields)}"
        kind = fields[name]
    if dataclasses.is_dataclass(kind):
        inside = ", ".join(validation.fields_of(kind))
        return f"--config.{key}: a section; set its values one by one: {inside}"
    return None


def _nearest_key(key: str, name: str, fields: Mapping[str, Any]) -> str:
    if difflib.get_close_matches(name, fields, n=1, cutoff=0.5):
        return validation.nearest(name, fields)
    # The right name in the wrong section is the usual mistake: --config.learning_rate.
    same_name = [full for full in _all_keys(RunConfig(), "") if full.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return f"; did you mean '{same_name[0]}'?" if same_name else validation.nearest(name, fields)


def _game_key_problem(key: str, names: Sequence[str]) -> str | None:
    if validation.is_file(".".join(names)):
        return f"--config.{key}: {validation.OF_A_FILE}"
    if names and names[0] not in registry.game_ids():
        return f"--config.{key}: there is no game '{names[0]}'{validation.nearest(names[0], registry.game_ids())}"
    if len(names) > 1 and names[1] not in registry.defaults(names[0]):
        options = registry.defaults(names[0])
        return f"--config.{key}: {names[0]} has no option '{names[1]}'{validation.nearest(names[1], options)}"
    return f"--config.{key}: an option has no parts" if len(names) > 2 else None


def _unknown_keys(overrides: Sequence[str]) -> list[str]:
    matches = [_OVERRIDE.fullmatch(word) for word in overrides]
    return [problem for match in matches if match and (problem := _key_problem(match["key"]))]


def _apply(values: Any, word: str) -> str | None:  # noqa: ANN401 - ml_collections has no types
    """Sets one value in a `ConfigDict`; returns what is wrong with the word, if anything."""
    match = re.fullmatch(_OVERRIDE, word)
    assert match is not None, word  # noqa: S101 - `_split` has matched it
    key, names = match["key"], match["key"].split(".")
    problem = _key_problem(key)
    if problem:
        return problem
    if key in _LISTS and match["given"] and not match["value"].startswith(("(", "[")):
        *sections, name = names
        section = functools.reduce(getattr, sections, values)
        setattr(section, name, tuple(part.strip() for part in match["value"].split(",") if part.strip()))
        return None
    in_games = names[0] == "games"
    kind = type(registry.defaults(names[1])[names[2]]) if in_games and len(names) > 2 else _type_of(names)
    if kind is not bool and not match["given"]:
        return f"--config.{key}: a value is missing; write --config.{key}=VALUE"
    if in_games and len(names) < 3:
        return _apply_games(values, names, match["value"] or "")
    allowed = validation.describe_type(kind)
    if in_games:
        _, game_id, option = names
        default = registry.defaults(game_id)[option]
        allowed = f"of the kind of {default!r}"
        if game_id not in values.games:
            return f"--config.{key}: {game_id} is not among this run's games; add it: --config.games.{game_id}={{}}"
        with values.unlocked():  # config_flags reads a value by the type of the one it replaces
            if option not in values.games[game_id]:
                values.games[game_id][option] = default
    *sections, name = names
    return _set(functools.reduce(operator.getitem, sections, values), name, match, allowed)


def _set(section: Any, name: str, match: re.Match[str], allowed: str) -> str | None:  # noqa: ANN401 - ml_collections
    """Lets config_flags read the value and set it under a name of a section."""
    key = match["key"]
    values = config_dict.ConfigDict({name: section[name]})  # alone: config_flags writes out all that it is given
    kind: Any = flags.FlagValues  # absl has no types
    holder = kind()
    changed = f"--{match['no'] or ''}config.{name}{match['given'] or ''}"
    try:
        config_flags.DEFINE_config_dict("config", values, flag_values=holder, sys_argv=[changed])
        holder(["dfc.launch", changed])
        section[name] = values[name]
    except Exception:  # noqa: BLE001 - it prints the value before, which in a file may be of any class
        return f"--config.{key}={match['value'] if match['given'] else ''}: must be {allowed}"
    return None


def _apply_games(values: Any, names: Sequence[str], text: str) -> str | None:  # noqa: ANN401 - ml_collections has no types
    """Replaces all games, or all options of one; an id that is not in the file is added."""
    given: Any = None
    with contextlib.suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # as its page says
        given = ast.literal_eval(text)
    if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
        example = "{'Nim-v0': {}, 'TowerOfHanoi-v0': {'max_turns': 14}}" if len(names) == 1 else "{'max_turns': 14}"
        return f'--config.{".".join(names)}={text}: must be a mapping such as "{example}"'
    wanted = given if len(names) == 1 else {names[1]: given}
    try:
        made = config_dict.ConfigDict(given)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):  # of names no game and no option can have
        return f"--config.{'.'.join(names)}: {'; '.join(validation.games_problems(wanted))}"
    with values.unlocked():
        if len(names) == 1:
            values.games = made
        else:
            values.games[names[1]] = made
    return None


# ---- schema ---------------------------------------------------------------------------------------------------


def _plain(section: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass of the schema
    plain: dict[str, Any] = {}
    for name, kind in validation.fields_of(section).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(value):
            plain[name] = _plain(value)
        elif isinstance(value, Mapping):
            plain[name] = {
                key: dict(options) if isinstance(options, Mapping) else options for key, options in value.items()
            }
        elif kind is float and type(value) is int and abs(value) < 2**1000:  # else validation says so
            plain[name] = float(value)
        else:
            plain[name] = value
    return plain


def _build(kind: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any dataclass of the schema
    fields = validation.fields_of(kind)
    return kind(
        **{
            name: _build(fields[name], value) if dataclasses.is_dataclass(fields[name]) and isinstance(value, Mapping)
            else value
            for name, value in values.items()
        }
    )  # fmt: skip


def _all_keys(section: Any, path: str) -> list[str]:  # noqa: ANN401 - any dataclass of the schema
    keys = []
    for name in validation.fields_of(section):
        value = getattr(section, name)
        keys += _all_keys(value, f"{path}{name}.") if dataclasses.is_dataclass(value) else [f"{path}{name}"]
    return keys


def _describe(section: Any, path: str) -> list[str]:  # noqa: ANN401 - any dataclass of the schema
    meanings = _attributes(type(section))
    title = (inspect.getdoc(type(section)) or "").split("\n", 1)[0]
    lines = ["", f"{path.rstrip('.') or 'top level'}: {title}"]
    nested = []
    for name, kind in validation.fields_of(section).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(value):
            nested += _describe(value, f"{path}{name}.")
            continue
        lines.append(f"  --config.{path}{name} ({validation.describe_type(kind)}; {value!r})")
        lines += textwrap.wrap(meanings.get(name, ""), 110, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return lines + nested


def _attributes(kind: type) -> dict[str, str]:
    """Returns what the Attributes section of a class's docstring says of each field."""
    text = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    meanings: dict[str, str] = {}
    for entry in re.split(r"\n(?=  \w+: )", "\n" + text):
        name, _, meaning = entry.strip().partition(": ")
        meanings[name] = " ".join(meaning.replace("``", "").split())
    return meanings

"""Players, parsed from a configuration or a command line; loads no weights and asks no server.

One grammar for every seat: ``PLAYER``, or ``NAME=PLAYER``, where PLAYER is a scripted player's strength, a folder with
weights or a run, ``tiny_player``, or a chat endpoint. A seat may take further words, such as ``itself`` or ``script``,
that mean none of these.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dfc.config import (
    RECIPES,
    EndpointConfig,
    Evaluate,
    EvaluateTasks,
    ModelConfig,
    PlayersRunConfig,
    RlRunConfig,
    hub_names,
    shipped,
)
from dfc.errors import ConfigError, error_text, shown
from dfc.games.scripted import STRENGTHS

SCRIPT = "script"
BUNDLED = "tiny_player"
EXAMPLE = "http://127.0.0.1:8000/v1#my-model"
# The names of players that a configuration gives a seat and no name: in records, costs and
# `PlayersRunConfig.endpoints`.
OPPONENT, SIMULATORS, DEMONSTRATOR = "opponent", "simulators", "demonstrator"
Kind = Literal["scripted", "endpoint", "model"]

_NAMED = re.compile(r"(?P<name>[\w.+-]+)=(?P<who>.*)", re.DOTALL)
# A host with a port, a path or a model after it, and no http:// before it.
_BARE_ADDRESS = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+)(:\d+)?(/[^\s#]*)?#.*|(localhost|[\w.-]+):\d+(/\S*)?")
# Recipes whose checkpoints hold a policy that can be played.
_PLAYABLE = tuple(name for name, kind in RECIPES.items() if issubclass(kind, RlRunConfig))


@dataclasses.dataclass(frozen=True)
class PlayerSpec:
    """One player.

    Attributes:
      name: in every table and record.
      who: a strength, an address with its model, a folder, or ``tiny_player``.
      kind: ``scripted``, ``endpoint`` or ``model`` (weights that are played here).
    """

    name: str
    who: str
    kind: Kind


@dataclasses.dataclass(frozen=True)
class WeightsSource:
    """Where the weights of a model are.

    Attributes:
      folder: in the Hugging Face layout: shape, tokenizer and, unless `run` says otherwise, weights.
      run: a run that has no policy yet; its newest checkpoint holds the weights.
      config: that run's configuration.
      enable_thinking: what the weights' run passed to the chat template (`ModelConfig.enable_thinking`); None: nothing,
        or there is no run.
      trained: whether a run of dfc made the weights, so that None is what it passed, and not an unknown value.
    """

    folder: str
    run: Path | None = None
    config: Mapping[str, Any] | None = None
    enable_thinking: bool | None = None
    trained: bool = dataclasses.field(default=False, compare=False)


def parse(text: str, name: str = "") -> PlayerSpec:
    """Returns the player that ``NAME=PLAYER`` or ``PLAYER`` means; whether a folder exists is not checked.

    `name` is of the player, where its seat has one; empty: what the words call it, or else the last part of PLAYER.

    Raises:
      ConfigError: there is no PLAYER, or an address without a model, or the words name a player that has a name.
    """
    match = _NAMED.fullmatch(text)
    called, who = (match["name"], match["who"]) if match else ("", text)
    if not who.strip():
        raise ConfigError([f"{text!r}: is empty; expected {'PLAYER' if name else 'PLAYER or NAME=PLAYER'}"])
    if name and called:
        raise ConfigError([f"{text!r}: this player is called {name!r} and gets no other name; write {who!r}"])
    name = name or called
    if who in STRENGTHS:
        return PlayerSpec(name or who, who, "scripted")
    if who.startswith(("http://", "https://")):
        model = who.partition("#")[2]
        if not model:
            raise ConfigError([f"{text!r}: name the model after a #, as in {EXAMPLE}"])
        return PlayerSpec(name or model, who, "endpoint")
    return PlayerSpec(name or who.rstrip("/").rpartition("/")[2], who, "model")


def is_endpoint(who: str) -> bool:
    """Returns whether words are a chat endpoint's address, with its model or without."""
    return who.startswith(("http://", "https://"))


def is_model(who: str) -> bool:
    """Returns whether words mean weights that are played here."""
    try:
        return parse(who).kind == "model"
    except ConfigError:
        return False  # reported elsewhere


def problem(spec: PlayerSpec, words: Sequence[str] = STRENGTHS) -> str | None:
    """Returns why there is no such player, or None; looks at the disk, and the sentence says what it can be.

    Beside folders and endpoints, `words` are right in its place.
    """
    if spec.kind != "model":
        return None
    try:
        weights_in(spec.who, words)
    except ConfigError as error:
        return "; ".join(error.problems)
    except (OSError, RuntimeError) as error:  # a name that is too long, a folder that may not be read, ~nobody
        return f"cannot be read: {error_text(error)}"
    return None


# ---- of a run --------------------------------------------------------------------------------------------------------


def policies(config: Evaluate | EvaluateTasks) -> list[PlayerSpec]:
    """Returns the players of a checked configuration, in its order."""
    return [parse(text) for text in config.policies]


def simulators(config: PlayersRunConfig) -> PlayerSpec | None:
    """Returns who plays the simulators of a run; None: the games' scripts, or the run's own model."""
    return None if config.simulators in (SCRIPT, "initial") else parse(config.simulators, SIMULATORS)


def endpoint_config(config: PlayersRunConfig, name: str) -> EndpointConfig:
    """Returns how a run asks the endpoint of this name."""
    return config.endpoints.get(name, EndpointConfig())


def role(config: Evaluate, which: Literal["trained", "base", "reference"]) -> str | None:
    """Returns which policy takes the place of a column of the paper; None: none does."""
    named: str = getattr(config, which)
    names = [spec.name for spec in policies(config)]
    if named:
        return named
    place = ("trained", "base", "reference").index(which)
    return names[place] if place < len(names) else None


# ---- folders ---------------------------------------------------------------------------------------------------------


def run_config(path: str) -> dict[str, Any] | None:
    """Returns the configuration of a folder that is a run of dfc; None for any other."""
    try:
        stored = json.loads((Path(path).expanduser() / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) and "recipe" in stored else None


def weights_in(path: str, words: Sequence[str] = STRENGTHS, *, endpoints: bool = True) -> WeightsSource:
    """Returns which weights a path means: its own, a finished run's policy, or a running one's newest checkpoint.

    `path` is a folder here or in a bucket, ``tiny_player``, or ``ORG/NAME@COMMIT`` of the Hub; `words`, and with
    `endpoints` a chat endpoint, could have been meant instead.

    Raises:
      ConfigError: there are none, or one policy for every game; says what is there instead.
    """
    if not endpoints and is_endpoint(path):
        raise ConfigError([f"{path!r}: an endpoint serves itself; name a folder with weights or a run"])
    if path == BUNDLED or "://" in path or hub_names.is_pinned(path):
        return WeightsSource(path)
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError([f"{path!r}: {_no_folder(path, words, endpoints=endpoints)}"])
    config = run_config(path)
    if config is None:
        if not (folder / "config.json").exists():
            raise ConfigError([f"{path!r} has no config.json; expected a model or a run of dfc"])
        told = recorded_thinking(folder)
        return WeightsSource(str(folder), enable_thinking=told, trained=_run_around(folder) is not None)
    if config.get("method") == "naive_single":
        done = sorted(str(found.parent) for found in folder.glob("policy/*/config.json"))
        hint = f"name one: {', '.join(done)}" if done else "none is finished yet"
        raise ConfigError([f"{path!r} is a run with a policy of its own for every game; {hint}"])
    if (folder / "policy" / "config.json").exists():
        return WeightsSource(str(folder / "policy"), enable_thinking=recorded_thinking(folder / "policy"), trained=True)
    if config["recipe"] in _PLAYABLE and any((folder / "checkpoints").glob("step_*")):
        path = _pinned(folder, str(config["model"]["path"]))
        return WeightsSource(path, folder, config, recorded_thinking(folder / "policy"), trained=True)
    what = f"{path!r} is a run without a policy or a checkpoint of {' or '.join(_PLAYABLE)} yet"
    inside = sorted(str(found.parents[1]) for found in folder.glob("**/policy/config.json"))
    raise ConfigError([f"{what}; it has stages with one: {', '.join(inside)}" if inside else what])


def recorded_thinking(weights: Path) -> bool | None:
    """Returns what the run around a folder of weights passed to its chat template; None: nothing, or there is no run.

    Args:
      weights: such as ``RUN/policy``, ``RUN/policy/GAME`` or ``RUN/last_good``; it need not exist.

    Raises:
      ConfigError: the run's config.json holds what no run of dfc writes.
    """
    found = _run_around(weights)
    if found is None:
        return None
    run, config = found
    model = config.get("model")
    value = model.get("enable_thinking") if isinstance(model, Mapping) else None
    if value is not None and not isinstance(value, bool):
        where = f"{str(run / 'config.json')!r}: model.enable_thinking"
        raise ConfigError([f"{where}: expected true, false or null, got {shown(value)}"])
    return value


def _run_around(weights: Path) -> tuple[Path, dict[str, Any]] | None:
    """The run that a folder of weights is in, and its configuration; None: in none."""
    runs = ((run, run_config(str(run))) for run in list(weights.resolve().parents)[:2])
    return next(((run, config) for run, config in runs if config is not None), None)


def thinking_problem(weights: WeightsSource, model: ModelConfig) -> str | None:
    """Returns why weights cannot play through the chat template of a run's own model as it is set; None: they can.

    The player's conversations are written with the run's own tokenizer.
    """
    theirs, ours = weights.enable_thinking, model.enable_thinking
    if theirs == ours or (theirs is None and not weights.trained):
        return None
    return (
        f"was trained with model.enable_thinking={theirs}, this run has {ours}, and all its models share one chat "
        f"template; set --config.model.enable_thinking={str(theirs).lower()}, or compare them with the recipe evaluate"
    )


def _pinned(run: Path, path: str) -> str:
    """Returns a run's `model.path`, with the commit that the run notes if it is a name on the Hub."""
    if not hub_names.is_hub_name(path):
        return path
    try:
        starts = json.loads((run / "versions.json").read_bytes())["starts"]
        commits = [start["model"]["commit"] for start in starts if "model" in start]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError([f"{str(run)!r}: versions.json does not say which commit of {path} it ran from"]) from error
    return f"{hub_names.split(path)[0]}@{commits[0]}" if commits else path


def _no_folder(who: str, words: Sequence[str], *, endpoints: bool) -> str:
    """Returns a suggestion for a text that is neither a word, nor a folder, nor an address."""
    if endpoints and _BARE_ADDRESS.fullmatch(who):
        host, _, model = who.partition("#")
        host = host if "/" in host else f"{host}/v1"  # as most servers have it
        return f"an address begins with http:// or https://; did you mean 'http://{host}#{model or 'MODEL'}'?"
    known = [*words, BUNDLED]
    near = difflib.get_close_matches(who.lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? It" if near else f"no such folder (current folder: {Path.cwd()}); it"
    if not near and (made := shipped.how_to_make(who)) is not None:
        return f"{hint.removesuffix('; it')}; {made}"
    asked = f", or a chat endpoint such as {EXAMPLE}" if endpoints else ""
    folder = "a folder with weights or a run"
    return f"{hint} must be {', '.join(known)}{', ' if asked else ' or '}{folder}{asked}"

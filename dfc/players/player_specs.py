"""Who plays in a tournament, from the words of a configuration; reads no weights and asks no server."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from dfc.config import EndpointSettings, Evaluate, EvaluateTasks, GameOptions
from dfc.errors import ConfigError
from dfc.games import registry, scripted
from dfc.games.scripted import Strength
from dfc.players.endpoint_config import EndpointConfig, check, split_name

SCRIPT = "script"
SIMULATORS = "simulators"  # the name under which configured simulators are counted
Kind = Literal["scripted", "endpoint", "model"]

_NAMED = re.compile(r"(?P<name>[\w.+-]+)=(?P<who>.*)", re.DOTALL)
_ROLES = ("anchor", "trained", "base", "reference")


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """One player of a tournament.

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
    """

    folder: str
    run: Path | None = None
    config: Mapping[str, Any] | None = None


def parse(text: str) -> PolicySpec:
    """Returns the player that ``NAME=WHO`` or ``WHO`` means; without a name the last part of WHO is taken.

    Raises:
      ConfigError: there is no WHO, or an address without a model.
    """
    match = _NAMED.fullmatch(text)
    name, who = (match["name"], match["who"]) if match else ("", text)
    if not who.strip():
        raise ConfigError([f"{text!r}: names nobody; write WHO or NAME=WHO"])
    if who in get_args(Strength):
        return PolicySpec(name or who, who, "scripted")
    if who.startswith(("http://", "https://")):
        model = who.partition("#")[2]
        if not model:
            raise ConfigError([f"{text!r}: name the model after a #, as in http://127.0.0.1:8000/v1#my-model"])
        return PolicySpec(name or model, who, "endpoint")
    return PolicySpec(name or who.rstrip("/").rpartition("/")[2], who, "model")


def policies(config: Evaluate | EvaluateTasks) -> list[PolicySpec]:
    """Returns the players of a checked configuration, in its order."""
    return [parse(text) for text in config.policies]


def simulators(config: Evaluate) -> PolicySpec | None:
    """Returns who plays the simulators of a tournament; None: the games' scripts."""
    return None if config.simulators == SCRIPT else dataclasses.replace(parse(config.simulators), name=SIMULATORS)


def role(config: Evaluate, which: Literal["trained", "base", "reference"]) -> str | None:
    """Returns which policy stands in the place of a column of the paper; None: nobody does."""
    named: str = getattr(config, which)
    names = [spec.name for spec in policies(config)]
    if named:
        return named
    place = ("trained", "base", "reference").index(which)
    return names[place] if place < len(names) else None


def endpoint_config(
    spec: PolicySpec, settings: EndpointSettings, *, temperature: float | None = None
) -> EndpointConfig:
    """Returns how an endpoint is asked; `temperature` replaces that of the settings.

    Raises:
      ConfigError: a value makes no sense.
    """
    prices = _by_policy(settings.prices).get(spec.name, "0/0").split("/")
    try:
        money_in, money_out = (float(price) for price in prices)
    except ValueError as error:
        expected = f"{spec.name}=INPUT/OUTPUT, such as {spec.name}=0.15/0.6"
        raise ConfigError([f"endpoint.prices: expected {expected}, got {'/'.join(prices)!r}"]) from error
    config = EndpointConfig(
        key_variable=_by_policy(settings.key_variables).get(spec.name, ""),
        temperature=settings.temperature if temperature is None else temperature,
        max_tokens=settings.max_tokens,
        concurrency=settings.concurrency,
        timeout=settings.timeout,
        retries=settings.retries,
        cache=settings.cache,
        input_price=money_in,
        output_price=money_out,
        budget_money=settings.budget_money if money_in or money_out else 0.0,
    )
    check(*split_name(spec.who), config)
    return config


def problems(config: Evaluate | EvaluateTasks) -> list[str]:
    """Returns what is wrong with the players of a configuration, one sentence each."""
    specs: list[PolicySpec] = []
    found: list[str] = []
    for text in config.policies:
        try:
            specs.append(parse(text))
        except ConfigError as error:
            found += [f"policies: {problem}" for problem in error.problems]
    names = [spec.name for spec in specs]
    found += [
        f"policies: {names.count(name)} of them are called {name!r}; put NAME= before one of them"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if SIMULATORS in names:
        found.append(f"policies: {SIMULATORS!r} is the name of the configured simulators; choose another one")
    seats = [registry.make(game, **options).seats for game, options in sound_games(config.games).items()]
    if not config.policies:
        found.append("policies is empty: name who plays, as in --config.policies=tiny_player,random_legal,strong")
    elif len(config.policies) == 1 and max(seats, default=1) > 1:
        found.append(f"policies={config.policies}: games of two players need two policies")
    found += _scripted_problems(config, specs)
    return found + (_tournament_problems(config, specs) if isinstance(config, Evaluate) else [])


def _tournament_problems(config: Evaluate, specs: Sequence[PolicySpec]) -> list[str]:
    names, found = [spec.name for spec in specs], []
    for which in _ROLES:
        named = getattr(config, which)
        if named and named not in names:
            found.append(f"{which}={named!r}: must be one of {', '.join(names)}")
    try:
        helper = simulators(config)
    except ConfigError as error:
        found += [f"simulators: {problem}" for problem in error.problems]
        helper = None
    else:
        found += _simulator_problems(config, helper)
    return found + _endpoint_problems(config.endpoint, [*specs, *([] if helper is None else [helper])])


def path_problems(config: Evaluate | EvaluateTasks) -> list[str]:
    """Returns which folders of a checked configuration's players do not exist or hold no weights."""
    helper = simulators(config) if isinstance(config, Evaluate) else None
    found: list[str] = []
    for spec in [*policies(config), *([] if helper is None else [helper])]:
        if spec.kind == "model" and spec.who != "tiny_player" and "://" not in spec.who:
            try:
                weights_in(spec.who)
            except ConfigError as error:
                found += error.problems
    return found


def run_config(path: str) -> dict[str, Any] | None:
    """Returns the configuration of a folder that is a run of ours; None for any other."""
    try:
        stored = json.loads((Path(path).expanduser() / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) and "recipe" in stored else None


def weights_in(path: str) -> WeightsSource:
    """Returns which weights a path means: its own, a finished run's policy, or a running one's newest checkpoint.

    Raises:
      ConfigError: there are none, or one policy for every game; says what is there instead.
    """
    if path == "tiny_player" or "://" in path:
        return WeightsSource(path)
    folder = Path(path).expanduser()
    if not folder.is_dir():
        hint = "name random_legal, simple, strong, tiny_player, a folder with weights or a run, or http://HOST/v1#MODEL"
        raise ConfigError([f"policies: {path!r}: no such folder (current folder: {Path.cwd()}); {hint}"])
    config = run_config(path)
    if config is None:
        if not (folder / "config.json").exists():
            raise ConfigError([f"policies: {path!r} has no config.json; expected a model or a run of dfc"])
        return WeightsSource(str(folder))
    if config.get("method") == "naive_single":
        done = sorted(str(found.parent) for found in folder.glob("policy/*/config.json"))
        hint = f"name one: {', '.join(done)}" if done else "none is finished yet"
        raise ConfigError([f"policies: {path!r} is a run with a policy of its own for every game; {hint}"])
    if (folder / "policy" / "config.json").exists():
        return WeightsSource(str(folder / "policy"))
    if config["recipe"] == "divide_fuse_conquer" and any((folder / "checkpoints").glob("step_*")):
        return WeightsSource(str(config["model"]["path"]), folder, config)
    what = f"policies: {path!r} is a run without a policy or a checkpoint of divide_fuse_conquer yet"
    inside = sorted(str(found.parents[1]) for found in folder.glob("**/policy/config.json"))
    raise ConfigError([f"{what}; it has stages with one: {', '.join(inside)}" if inside else what])


def sound_games(games: object) -> Mapping[str, GameOptions]:
    """Returns the games that can be made; what is wrong with the others is said elsewhere."""
    if not isinstance(games, Mapping):
        return {}
    return {g: o for g, o in games.items() if isinstance(o, Mapping) and not registry.problems(g, o)}


def _scripted_problems(config: Evaluate | EvaluateTasks, specs: Iterable[PolicySpec]) -> list[str]:
    found = []
    for spec in specs:
        for game in sound_games(config.games) if spec.kind == "scripted" else ():
            strength: Any = spec.who
            try:
                scripted.player(game, strength)
            except ValueError as error:
                found.append(f"policies: {spec.name!r} cannot play {game}: {error}")
    return found


def _simulator_problems(config: Evaluate, helper: PolicySpec | None) -> list[str]:
    if helper is not None and helper.kind == "scripted":
        got = f"simulators={config.simulators!r}"
        return [f"{got}: must be {SCRIPT}, a folder with weights or an endpoint"]
    found = []
    for game in sound_games(config.games) if helper is None else ():
        try:
            scripted.simulators(game)
        except ValueError as error:
            found.append(f"games.{game}: {error}; name simulators")
    return found


def _endpoint_problems(settings: EndpointSettings, specs: Sequence[PolicySpec]) -> list[str]:
    found = []
    names = [spec.name for spec in specs if spec.kind == "endpoint"]
    for key, entries in (("key_variables", settings.key_variables), ("prices", settings.prices)):
        for entry in entries:
            name, equals, _ = entry.rpartition("=")
            if not equals or name not in names:
                # The entry is not repeated: it may be a key that was put into the wrong place.
                which = ", ".join(names) or "none is an endpoint"
                found.append(f"endpoint.{key}: every entry must begin with NAME= of an endpoint ({which})")
    if settings.cache and settings.temperature > 0:
        found.append(
            f"endpoint.cache={settings.cache!r}: needs endpoint.temperature=0; otherwise a start "
            "that resumes would be given the replies of games that are over"
        )
    if not found:
        for spec in specs:
            if spec.kind == "endpoint":
                try:
                    endpoint_config(spec, settings)
                except ConfigError as error:
                    found += error.problems
    return found


def _by_policy(entries: Iterable[str]) -> dict[str, str]:
    return {name: value for name, _, value in (entry.rpartition("=") for entry in entries)}

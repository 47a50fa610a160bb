"""Checks the players of a run's seats before anything runs, and not at the first game."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dfc.config import (
    Branch,
    CollectConfig,
    EndpointConfig,
    Evaluate,
    EvaluateTasks,
    GameOptions,
    Paprika,
    PlayersRunConfig,
    Playpen,
    RlRunConfig,
    RunConfig,
)
from dfc.errors import ConfigError
from dfc.games import registry, scripted
from dfc.games.scripted import STRENGTHS
from dfc.players import player_specs
from dfc.players.endpoint_config import address_problems, rule_problems, split_name
from dfc.players.key_search import Secret
from dfc.players.player_specs import DEMONSTRATOR, OPPONENT, SCRIPT, SIMULATORS, PlayerSpec

_ROLES = ("anchor", "trained", "base", "reference")
_OPPONENTS_OF_TRAINING, _OPPONENTS = ("initial", "itself", "pool"), ("initial", "itself")


class _Seat(NamedTuple):
    """A setting of a seat: its key, its text, the player's name, the words that mean no player."""

    key: str
    text: str
    name: str = ""
    words: tuple[str, ...] = ()


def problems(config: RunConfig) -> list[str]:
    """Returns what is wrong with the players of a configuration, one sentence each."""
    if not isinstance(config, PlayersRunConfig):
        return []
    specs, found = _specs(config)
    if isinstance(config, Evaluate | EvaluateTasks):
        found += _policy_problems(config, [spec for seat, spec in specs if seat.key == "policies"])
    if isinstance(config, Evaluate):
        names = [spec.name for seat, spec in specs if seat.key == "policies"]
        found += [
            f"{which}={named!r}: must be one of {', '.join(names)}"
            for which in _ROLES
            if (named := getattr(config, which)) and named not in names
        ]
        models = dict.fromkeys(spec.name for _, spec in specs if spec.kind == "model")
        found += [
            f"enable_thinking.{name}: must be a policy of this run that is a model ({', '.join(models) or 'none'})"
            for name in config.enable_thinking
            if name not in models
        ]
    found += _role_problems(config)
    for seat, spec in specs:
        found += _scripted_problems(config, seat, spec)
    return (
        found + _demonstrator_problems(config, specs) + _simulator_problems(config) + _endpoint_problems(config, specs)
    )


def path_problems(config: RunConfig) -> list[str]:
    """Returns which players of a checked configuration are models whose folder is missing or holds no weights."""
    found = []
    for seat, spec in _specs(config)[0] if isinstance(config, PlayersRunConfig) else ():
        if (wrong := player_specs.problem(spec, (*seat.words, *STRENGTHS))) is not None:
            found.append(f"{seat.key}: {wrong}")
    return found


def key_problems(config: RunConfig) -> list[str]:
    """Returns which keys of this recipe's endpoints the environment lacks, or has in a form that cannot be sent."""
    if not isinstance(config, PlayersRunConfig):
        return []
    found = []
    for spec in dict.fromkeys(spec for _, spec in _specs(config)[0] if spec.kind == "endpoint"):
        try:
            Secret.read(player_specs.endpoint_config(config, spec.name).key_variable)
        except ConfigError as error:
            found += [f"endpoints.{spec.name}.{problem.removeprefix('endpoint.')}" for problem in error.problems]
    return found


def sound_games(games: object) -> Mapping[str, GameOptions]:
    """Returns the games that can be made; the others are reported elsewhere."""
    if not isinstance(games, Mapping):
        return {}
    return {g: o for g, o in games.items() if isinstance(o, Mapping) and not registry.problems(g, o)}


def _specs(config: PlayersRunConfig) -> tuple[list[tuple[_Seat, PlayerSpec]], list[str]]:
    """Returns the players of a run with their seats, and what is wrong with the texts of the others."""
    seats = _seats_of_playpen(config)
    if isinstance(config, Evaluate | EvaluateTasks):
        seats += [_Seat("policies", text) for text in config.policies]
    if isinstance(config, EvaluateTasks):
        seats.append(_Seat("opponent", config.opponent, OPPONENT, _OPPONENTS))
    if isinstance(config, RlRunConfig):
        seats.append(_Seat("opponent", config.opponent, OPPONENT, _OPPONENTS_OF_TRAINING))
    elif isinstance(config, Branch):
        seats.append(_Seat("opponent", config.opponent, OPPONENT, _OPPONENTS))
    elif (collect := _collecting(config)) is not None:
        settings, path = collect
        seats.append(_Seat(f"{path}opponent", settings.opponent, OPPONENT, _OPPONENTS))
        if settings.demonstrator:
            seats.append(_Seat(f"{path}demonstrator", settings.demonstrator, DEMONSTRATOR))
    words = (SCRIPT,) if isinstance(config, Evaluate) else (SCRIPT, "initial")
    seats.append(_Seat("simulators", config.simulators, SIMULATORS, words))
    specs, found = [], []
    for seat in seats:
        try:
            if seat.text not in seat.words:
                specs.append((seat, player_specs.parse(seat.text, seat.name)))
        except ConfigError as error:
            found += [f"{seat.key}: {problem}" for problem in error.problems]
    return specs, found


def _seats_of_playpen(config: PlayersRunConfig) -> list[_Seat]:
    if not isinstance(config, Playpen):
        return []
    seats = []
    if "collect" in config.stages:
        seats += [_Seat("collect.players", text, words=("initial",)) for text in config.collect.players]
    if {"grpo", "sft_grpo", "evaluate_with_teacher"} & set(config.stages):
        seats.append(_Seat("grpo.opponent", config.grpo.opponent, OPPONENT, _OPPONENTS_OF_TRAINING))
    return seats


def _collecting(config: PlayersRunConfig) -> tuple[CollectConfig, str] | None:
    """Returns the settings of collecting from several samples, and the part of their keys before them."""
    if isinstance(config, CollectConfig):
        return config, ""
    return (config.collect, "collect.") if isinstance(config, Paprika) and "collect" in config.stages else None


def _role_problems(config: PlayersRunConfig) -> list[str]:
    """Returns which roles the policy cannot take: of games that are not played, or that they do not have."""
    settings, path = (
        (config, "") if isinstance(config, RlRunConfig | EvaluateTasks) else _collecting(config) or (None, "")
    )
    games, found = sound_games(config.games), []
    for game, role in settings.learner_roles.items() if settings is not None else ():
        if game not in games:
            found.append(f"{path}learner_roles: {game!r} must be among this run's games, {', '.join(games) or 'none'}")
            continue
        try:
            registry.make(game, **games[game]).seat_of(role)
        except ValueError as error:
            found.append(f"{path}learner_roles.{game}={role!r}: {error}")
    return found


def _demonstrator_problems(config: PlayersRunConfig, specs: list[tuple[_Seat, PlayerSpec]]) -> list[str]:
    """Returns why a demonstrator cannot play: it and all players it meets are asked without an engine."""
    collect = _collecting(config)
    if collect is None or not collect[0].demonstrator:
        return []
    settings, path = collect
    kinds = {spec.name: spec.kind for _, spec in specs}
    what, found = f"{path}demonstrator={settings.demonstrator!r}", []
    if kinds.get(DEMONSTRATOR) == "model":
        found.append(
            f"{what}: must be {', '.join(STRENGTHS)} or a chat endpoint such as {player_specs.EXAMPLE}; a model that "
            "is here collects as model.path, and sft of another model reads its conversations"
        )
    if settings.opponent == "initial" or kinds.get(OPPONENT) == "model":
        found.append(
            f"{path}opponent={settings.opponent!r}: a demonstrator meets itself, {', '.join(STRENGTHS)}, or a chat "
            "endpoint, and no model"
        )
    if config.simulators == "initial":
        found.append(f"simulators='initial': with {what} no model plays; name {SCRIPT} or a chat endpoint")
    if kinds.get(DEMONSTRATOR) == "scripted" and config.rollout.prompt != "bare_action":
        found.append(
            f"rollout.prompt={config.rollout.prompt!r}: scripted players write no thoughts; {what} needs bare_action"
        )
    return found


def _policy_problems(config: Evaluate | EvaluateTasks, specs: list[PlayerSpec]) -> list[str]:
    names = [spec.name for spec in specs]
    found = [
        f"policies: {names.count(name)} of them are called {name!r}; put NAME= before one of them"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if SIMULATORS in names:
        found.append(f"policies: {SIMULATORS!r} is the name of the configured simulators; choose another one")
    seats = [registry.make(game, **options).seats for game, options in sound_games(config.games).items()]
    if not config.policies:
        found.append("policies is empty: name the players, as in --config.policies=tiny_player,random_legal,strong")
    elif isinstance(config, Evaluate) and len(config.policies) == 1 and max(seats, default=1) > 1:
        found.append(f"policies={config.policies}: games of two players need two policies")
    if isinstance(config, EvaluateTasks):
        found += _opponent_problems(config, specs)
        found += [
            f"policies: {spec.name!r} is a chat endpoint; evaluate_tasks plays models (a folder, a run, tiny_player) "
            "and scripted players (random_legal, simple, strong) only; use the recipe evaluate"
            for spec in specs
            if spec.kind == "endpoint"
        ]
        bots = [spec.name for spec in specs if spec.kind == "scripted"]
        for game, options in sound_games(config.games).items() if bots and config.simulators != SCRIPT else ():
            if registry.make(game, **options).info.simulators:
                found.append(
                    f"policies: {', '.join(bots)} plays {game} only with simulators={SCRIPT!r}, got "
                    f"{config.simulators!r}: a scripted player does not read what others say"
                )
    return found


def _opponent_problems(config: EvaluateTasks, specs: list[PlayerSpec]) -> list[str]:
    """Returns why the other seat of games for a team cannot be taken."""
    found = []
    bots = [spec.name for spec in specs if spec.kind == "scripted"]
    try:
        engine = config.opponent == "initial" or (
            config.opponent != "itself" and player_specs.parse(config.opponent, OPPONENT).kind == "model"
        )
    except ConfigError:
        return []  # reported elsewhere
    if engine and bots:
        found.append(
            f"opponent={config.opponent!r}: models play with models, and {', '.join(bots)} plays without an engine; "
            "leave it out of policies, or name itself, a scripted player or a chat endpoint"
        )
    return found


def _scripted_problems(config: PlayersRunConfig, seat: _Seat, spec: PlayerSpec) -> list[str]:
    found = []
    for game, options in sound_games(config.games).items() if spec.kind == "scripted" else ():
        if seat.key == "simulators" or (seat.name == OPPONENT and registry.make(game, **options).seats == 1):
            continue
        strength: Any = spec.who
        try:
            scripted.player(game, strength)
        except ValueError as error:
            who = f"{seat.key}={spec.who!r}" if seat.name else f"policies: {spec.name!r}"
            found.append(f"{who} cannot play {game}: {error}")
    return found


def _simulator_problems(config: PlayersRunConfig) -> list[str]:
    who, found = config.simulators, []
    if who == SCRIPT:
        for game in sound_games(config.games):
            try:
                scripted.simulators(game)
            except ValueError as error:
                found.append(f"games.{game}: {error}; name simulators")
        return found
    kind = None
    if not isinstance(config, Evaluate) and who == "initial":
        return []
    try:
        kind = player_specs.parse(who, SIMULATORS).kind
    except ConfigError:
        return []  # reported elsewhere
    if isinstance(config, Evaluate) and (kind == "scripted" or who == "initial"):
        return [f"simulators={who!r}: must be {SCRIPT}, a folder with weights or an endpoint"]
    if not isinstance(config, Evaluate) and kind != "endpoint":
        return [f"simulators={who!r}: must be {SCRIPT}, initial, or an endpoint: {player_specs.EXAMPLE}"]
    return []


def _endpoint_problems(config: PlayersRunConfig, specs: list[tuple[_Seat, PlayerSpec]]) -> list[str]:
    found = []
    kinds = {spec.name: spec.kind for _, spec in specs}
    asked = ", ".join(name for name, kind in kinds.items() if kind == "endpoint") or "none"
    for name, entry in config.endpoints.items():
        found += [f"endpoints.{name}.{problem}" for problem in rule_problems(entry)]
        if kinds.get(name) != "endpoint":
            why = (
                "that player is none"
                if name in kinds or name in (OPPONENT, SIMULATORS, DEMONSTRATOR)
                else "no player has this name"
            )
            found.append(f"endpoints.{name}: must be a player of this run that is a chat endpoint ({asked}); {why}")
        elif entry.cache and entry.temperature != 0:
            found.append(
                f"endpoints.{name}.cache={entry.cache!r}: needs endpoints.{name}.temperature=0; otherwise a start "
                "that resumes would be given the replies of games that are over"
            )
    for seat, spec in specs:
        if spec.kind == "endpoint":
            entry = config.endpoints.get(spec.name, EndpointConfig())
            key = seat.key if seat.name else f"policies: {spec.name!r}"
            found += [f"{key}: {problem}" for problem in address_problems(split_name(spec.who)[0], entry)]
    return found

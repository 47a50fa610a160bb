"""Checks the sections of `dfc.task_config`; `dfc.validation` calls it with everything of a right type and range."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from dfc.config import GameOptions, RunConfig
from dfc.errors import ConfigError
from dfc.evaluation import policy_specs
from dfc.games import registry, scripted
from dfc.games.scripted import STRENGTHS
from dfc.players import named

TRAINING = ("offline", "task_curriculum", "paprika")  # recipes that train on rows
WITHOUT_GAMES = ("build_data", "offline")  # recipes that play none
STAGES = ("collect", "build_data", "sft", "rpo", "evaluate_tasks")
_PLAYING = ("collect", "evaluate_tasks", "task_curriculum", "paprika")
_COLLECTING = ("collect", "task_curriculum", "paprika")
_LEARNING = ("divide_fuse_conquer", "tiny_player")  # from the games they play


def counts(entries: tuple[str, ...]) -> dict[str, int]:
    """Returns what ``GAME=NUMBER`` entries say, by game; entries that say something else are left out."""
    pairs = (entry.rpartition("=") for entry in entries)
    return {game: int(number) for game, equals, number in pairs if equals and number.isdecimal() and int(number) > 0}


def problems(config: RunConfig) -> list[str]:
    """Returns every problem of these sections, one sentence each."""
    found = []
    games = policy_specs.sound_games(config.games)
    if config.recipe in _PLAYING:
        found += _staff_problems(config, games)
    if config.recipe in _COLLECTING:
        found += _count_problems("collect.samples_of", config.collect.samples_of)
        found += _collect_problems(config, games)
    if config.recipe in (*_COLLECTING, *_LEARNING):
        found += _forgetful_problems(games)
    if config.recipe in ("evaluate_tasks", "paprika"):
        found += _count_problems("evaluate_tasks.tasks_of", config.evaluate_tasks.tasks_of)
        found += _split_problems("evaluate_tasks.split", config.evaluate_tasks.split, games)
    found += _temperature_problems(config)
    if config.recipe == "evaluate_tasks":
        found += policy_specs.problems(config) + _evaluate_problems(config, games)
    if config.recipe in (*TRAINING, "build_data"):
        found += _build_problems(config)
    if config.recipe in TRAINING:
        found += _offline_problems(config)
    if config.recipe == "paprika":
        found += _stage_problems(config)
    return found


def place_problems(config: RunConfig) -> list[str]:
    """Returns which folders that these recipes read do not exist."""
    wanted = []
    if config.recipe == "build_data":
        wanted.append(("build_data.trajectories", config.build_data.trajectories, "name the run that collected them"))
    if config.recipe == "offline":
        wanted.append(("offline.data", config.offline.data, "name what build_data made, or a file of conversations"))
    if config.recipe == "paprika" and "collect" not in config.paprika.stages:
        wanted.append(("paprika.collected", config.paprika.collected, "name a run of collect, or add that stage"))
    found = policy_specs.place_problems(config) if config.recipe == "evaluate_tasks" else []
    for key, path, cure in wanted:
        if not path or not Path(path).expanduser().exists():
            what = f"{key}={path!r}: there is no such place" if path else f"{key} is empty"
            found.append(f"{what} (current folder: {Path.cwd()}); {cure}")
    return found


def _count_problems(key: str, entries: tuple[str, ...]) -> list[str]:
    return [
        f"{key}: {entry!r} must be GAME=NUMBER with a game's id and a number from 1, such as mastermind=100"
        for entry in entries
        if not counts((entry,)) or entry.rpartition("=")[0] not in registry.ids()
    ]


def _split_problems(key: str, split: str, games: Mapping[str, GameOptions]) -> list[str]:
    found = []
    for game, options in games.items():
        splits = registry.make(game, **options).facts.splits
        if splits and "split" in options:
            found.append(f"games.{game}: leave its split to {key}={split!r}, which is for all games")
        elif splits and split not in splits:
            found.append(f"{key}={split!r}: {game} has {', '.join(splits)}")
    return found


def _collect_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    collect = config.collect
    found = _split_problems("collect.split", collect.split, games)
    for game, options in games.items():
        facts = registry.make(game, **options).facts
        if not facts.splits and not collect.tasks:
            found.append(f"collect.tasks=0: {game} has no splits, so say how many deals to play")
    known = ("initial", "itself", *STRENGTHS)
    if (wrong := named.problem(collect.opponent, known)) is not None:
        found.append(f"collect.opponent={collect.opponent!r}: {wrong}")
    return found


def _forgetful_problems(games: Mapping[str, GameOptions]) -> list[str]:
    return [
        f"games.{game}: every reply is a conversation of its own, and an episode keeps the ids of the last one only: "
        "it cannot be learned from; play it with the recipes evaluate_tasks or evaluate"
        for game, options in games.items()
        if "player" in registry.make(game, **options).forgetful
    ]


def _temperature_problems(config: RunConfig) -> list[str]:
    temperatures = config.evaluate_tasks.temperatures
    if not temperatures and config.recipe in ("evaluate_tasks", "paprika"):
        return ["evaluate_tasks.temperatures is empty: name at least one, such as (0.7,)"]
    if any(temperature < 0 for temperature in temperatures):
        return [f"evaluate_tasks.temperatures={temperatures}: must be 0 or more each"]
    return []


def _evaluate_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    section, found = config.evaluate_tasks, []
    specs = []
    for text in config.policies:
        with contextlib.suppress(ConfigError):  # said elsewhere
            specs.append(policy_specs.parse(text))
    found += [
        f"policies: {spec.name!r} is a chat endpoint; evaluate_tasks plays models (a folder, a run, tiny_player) and "
        "programs (random_legal, simple, strong) only; use the recipe evaluate"
        for spec in specs
        if spec.kind == "endpoint"
    ]
    for game, options in games.items():
        facts = registry.make(game, **options).facts
        if facts.seats > 1:
            found.append(f"games.{game}: is for two players and has no tasks to solve; use the recipe evaluate")
        if not facts.splits and not section.tasks and game not in counts(section.tasks_of):
            cure = f"set evaluate_tasks.tasks, or add {game}=NUMBER to evaluate_tasks.tasks_of"
            found.append(f"evaluate_tasks.tasks=0: {game} has no splits, so say how many deals to play; {cure}")
        programs = [spec.name for spec in specs if spec.kind == "scripted"]
        if facts.staff and programs and config.staff.who != policy_specs.SCRIPT:
            found.append(
                f"policies: {', '.join(programs)} plays {game} only with staff.who={policy_specs.SCRIPT!r}, got "
                f"{config.staff.who!r}: a program does not read what others say"
            )
    if config.adapter.base != "full":
        found.append(f"adapter.base={config.adapter.base!r}: must be 'full'; policies are played at full precision")
    return found


def _staff_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    who, found = config.staff.who, []
    if who == policy_specs.SCRIPT:
        for game in games:
            try:
                scripted.staff(game)
            except ValueError as error:
                found.append(f"games.{game}: {error}; name staff.who")
    elif who != "initial" and not (named.is_endpoint(who) and named.problem(who) is None):
        found.append(f"staff.who={who!r}: must be {policy_specs.SCRIPT}, initial, or an endpoint: {named.EXAMPLE}")
    elif who != "initial":
        spec = policy_specs.PolicySpec(policy_specs.STAFF, who, "endpoint")
        try:
            policy_specs.endpoint_config(spec, config.staff.endpoint)
        except ConfigError as error:
            found += [f"staff: {problem}" for problem in error.problems]
    return found


def _build_problems(config: RunConfig) -> list[str]:
    build, found = config.build_data, []
    if 0 < build.turn_ratio <= 1:
        found.append(f"build_data.turn_ratio={build.turn_ratio}: must be above 1, or 0 for failures only")
    both = sorted(set(build.groups) & set(build.leave_out))
    if both:
        found.append(f"build_data.groups and .leave_out both name {', '.join(both)}")
    for key, names in (("groups", build.groups), ("leave_out", build.leave_out)):
        unknown = [game for game in names if game not in registry.ids()]
        if unknown:
            found.append(f"build_data.{key}={names}: there is no game {', '.join(unknown)}")
    return found


def _offline_problems(config: RunConfig) -> list[str]:
    offline, found = config.offline, []
    if offline.objective == "preference" and offline.preference_weight == 0 and offline.alpha == 0:
        found.append("offline.preference_weight and .alpha are both 0: nothing would be learned; raise one")
    if config.adapter.base == "nf4" and config.adapter.rank == 0:
        found.append("adapter.base='nf4': quantized weights are not trained themselves; set adapter.rank above 0")
    return found + (_length_problems(config) if config.recipe != "offline" else [])


def _length_problems(config: RunConfig) -> list[str]:
    """Returns which rows could come out longer than training takes: said now, and not after the collection."""
    row, longest = config.batch.row_length, config.rollout.max_length
    trained = ("sft", "rpo") if config.recipe == "task_curriculum" else config.paprika.stages
    found = []
    if "sft" in trained and row < (needed := min(longest, config.build_data.sft_tokens)):
        found.append(f"batch.row_length={row}: must be at least {needed}, the longest trajectory that may be imitated")
    if "rpo" in trained and row < (needed := 2 * min(longest, config.build_data.pair_tokens)):
        found.append(
            f"batch.row_length={row}: must be at least {needed}: both sides of the longest pair are in one row"
        )
    return found


def _stage_problems(config: RunConfig) -> list[str]:
    stages = config.paprika.stages
    if not stages or list(stages) != [stage for stage in STAGES if stage in stages]:
        return [f"paprika.stages={stages}: must be some of {', '.join(STAGES)}, each once, in this order"]
    return []

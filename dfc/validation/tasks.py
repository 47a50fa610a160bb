"""Rules between the settings of learning at tasks, of training on rows and of building rows from dialogues.

A stage has a recipe of its own, or is one of several of a recipe. Problems of later stages are reported before the
first one: every check belongs to a stage, and applies to each recipe that has it.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from dfc.config import (
    Branch,
    BuildData,
    BuildDataConfig,
    BuildDialogues,
    Collect,
    CollectConfig,
    EvaluateTasks,
    EvaluateTasksConfig,
    Games,
    GamesRunConfig,
    Paprika,
    Preference,
    PreferenceConfig,
    RlRunConfig,
    RowsRunConfig,
    RunConfig,
    SelectionLimits,
    SftConfig,
    StagesRunConfig,
    TaskCollectionConfig,
    TaskCurriculum,
    TinyPlayer,
)
from dfc.config.dialogues import REPAIRS, WANTED
from dfc.config.tasks import STAGES, TRAININGS
from dfc.errors import ConfigError
from dfc.games import registry
from dfc.games.task import FRESH
from dfc.records import task_groups
from dfc.validation import players

_LEAST = Fraction(1, 1000)  # of an update's rows; below it an epoch takes too many updates
# Where a run of several stages has what a setting names; such a run is easily named by mistake.
_STAGE_OF = {"collected": "collect", "trajectories": "collect", "data": "build_data"}


class _Section(NamedTuple):
    """The settings of one stage, and the part of their keys before them."""

    settings: Any
    path: str


def problems(config: RunConfig) -> list[str]:
    """Returns every problem of the stages of a recipe, one sentence each."""
    found = _stage_problems(config) if isinstance(config, Paprika) else []
    games = players.sound_games(config.games) if isinstance(config, GamesRunConfig) else {}
    if isinstance(config, RlRunConfig | TinyPlayer) or _section(config, "collect") is not None:
        unlearnable = _unlearnable(games, fresh=isinstance(config, TinyPlayer))
        found += unlearnable.values()
        games = {game: options for game, options in games.items() if game not in unlearnable}  # one problem each
    if (section := _section(config, "collect")) is not None:
        found += _collect_problems(config, *section, games)
    if (section := _section(config, "build_data")) is not None:
        found += _build_problems(config, *section)
    if (section := _section(config, "rpo")) is not None:
        found += _preference_problems(*section)
    if (
        isinstance(config, RowsRunConfig | StagesRunConfig)
        and config.adapter.base == "nf4"
        and config.adapter.rank == 0
    ):
        found.append("adapter.base='nf4': quantized weights are not trained themselves; set adapter.rank above 0")
    if isinstance(config, RowsRunConfig):
        found += _row_problems(config)
    if isinstance(config, StagesRunConfig):
        found += _length_problems(config)
    if (section := _section(config, "evaluate_tasks")) is not None:
        found += _evaluate_problems(config, *section, games)
    return found


def _section(config: RunConfig, stage: str) -> _Section | None:
    """Returns the settings of a stage that a recipe goes through, and where they are; None if it does not."""
    own = {
        "collect": Collect | Branch,
        "build_data": BuildData,
        "rpo": Preference,
        "evaluate_tasks": EvaluateTasks,
    }.get(stage)
    if own is not None and isinstance(config, own):
        return _Section(config, "")
    if isinstance(config, Paprika | TaskCurriculum) and stage in config.stages:
        return _Section(getattr(config, stage), f"{stage}.")
    return None


def path_problems(config: RunConfig) -> list[str]:
    """Returns which folders that these recipes read do not exist."""
    wanted, found = [], []
    if isinstance(config, BuildData | Branch):
        wanted.append(("trajectories", config.trajectories, "name the run that collected them"))
    if isinstance(config, RowsRunConfig):
        wanted += _row_places(config)
    if isinstance(config, Paprika) and "build_data" in config.stages:
        if "collect" not in config.stages:
            wanted.append(("collected", config.collected, "name a run of collect, or add that stage"))
    elif isinstance(config, Paprika) and (trained := [name for name in TRAININGS if name in config.stages]):
        if len(trained) > 1 and Path(config.data).expanduser().is_file():
            found.append(
                f"data={config.data!r}: is one file, but sft reads trajectories and rpo reads pairs; name a run of "
                "build_data, or take one of the two out of stages"
            )
        wanted.append(("data", config.data, "name a run of build_data, or add build_data to the stages"))
    for key, path, hint in wanted:
        if not path or not Path(path).expanduser().exists():
            what = f"{key}={path!r}: there is no such place" if path else f"{key} is empty"
            found.append(f"{what} (current folder: {Path.cwd()}); {hint}")
        elif (inside := Path(path).expanduser() / _STAGE_OF.get(key, "build_data")).is_dir():
            found.append(f"{key}={path!r}: is a run of several stages; name {inside}")
    return found


def _unknown_games(key: str, games: Iterable[str]) -> list[str]:
    """Returns which keys of a mapping of games are no game's id."""
    return [f"{key}: there is no game {game!r}" for game in games if not _is_game(game)]


def _is_game(name: str) -> bool:
    return name in registry.game_ids() or not registry.problems(name, {})


# ---- collecting ------------------------------------------------------------------------------------------------------


def _split_problems(key: str, split: str, games: Games) -> list[str]:
    found = []
    for game, options in games.items():
        splits = registry.make(game, **options).info.splits
        if splits and "split" in options:
            found.append(f"games.{game}: leave its split to {key}={split!r}, which is for all games")
        elif splits and split not in splits:
            found.append(f"{key}={split!r}: {game} has {', '.join(splits)}")
    return found


def _collect_problems(config: RunConfig, collect: TaskCollectionConfig, path: str, games: Games) -> list[str]:
    found = _split_problems(f"{path}split", collect.split, games)
    for game, options in games.items():
        played = not isinstance(config, Branch)  # and not recorded before
        if played and not registry.make(game, **options).info.splits and not collect.tasks:
            found.append(f"{path}tasks=0: {game} has no splits, so say how many deals to play")
    if isinstance(collect, CollectConfig):
        found += _unknown_games(f"{path}samples_of", collect.samples_of)
    if isinstance(config, Branch) and config.turns == "first" and config.turns_per_dialogue:
        found.append(f"turns_per_dialogue={config.turns_per_dialogue}: is of turns='all'; leave it at 0")
    found += _samples_problems(config, collect, path, games)
    return found or (_group_problems(config, games) if isinstance(config, TaskCurriculum) else [])


def _group_problems(config: TaskCurriculum, games: Games) -> list[str]:
    try:
        learned = task_groups.learned_games(games, config.build_data)
        task_groups.task_groups(learned, config.collect, config.arms, config.join_groups)
    except ConfigError as error:
        return list(error.problems)
    return []


def _samples_problems(config: RunConfig, collect: TaskCollectionConfig, path: str, games: Games) -> list[str]:
    found: list[str] = []
    several = list(games)  # a curriculum's number is at least 2
    if isinstance(collect, CollectConfig):
        several = [game for game in games if collect.samples_of.get(game, collect.samples) > 1]
        if games and not several and _section(config, "rpo") is not None:
            found.append(f"{path}samples={collect.samples}: must be at least 2; one sample of a task makes no pair")
    played = not (isinstance(collect, CollectConfig) and collect.demonstrator)
    if several and played and collect.sampling.temperature == 0:
        found.append(
            f"{path}sampling.temperature=0: must be above 0; without chance all samples of a task are the same "
            f"({', '.join(several)})"
        )
    return found


def _unlearnable(games: Games, *, fresh: bool) -> dict[str, str]:
    """Returns the games that nothing can be learned from, with the reason.

    A game for evaluation only may be learned, with `fresh`, in tasks that are in none of its splits, as a model that
    other recipes begin with knows rules and words.
    """
    found = {}
    for game, options in games.items():
        made = registry.make(game, **options)
        if made.info.evaluation_only and not (fresh and options.get("split") == FRESH):
            why = "is for evaluation only and is neither trained on nor collected from"
        elif "player" in made.stateless_roles:
            why = (
                "every reply is a conversation of its own, and an episode keeps the tokens of the last one only: it "
                "cannot be learned from"
            )
        else:
            continue
        found[game] = f"games.{game}: {why}; play it with the recipes evaluate_tasks or evaluate"
    return found


# ---- building and training -------------------------------------------------------------------------------------------


def _build_problems(config: RunConfig, build: SelectionLimits, path: str) -> list[str]:
    found = []
    if 0 < build.turn_ratio <= 1:
        found.append(f"{path}turn_ratio={build.turn_ratio}: must be above 1, or 0 for failures only")
    groups = build.game_groups if isinstance(build, BuildDataConfig) else ()
    found += _choice_problems(groups, build.leave_out, path)
    collected = players.sound_games(config.games) if isinstance(config, GamesRunConfig) and _collects(config) else None
    for key, names in (("game_groups", groups), ("leave_out", build.leave_out)):
        unknown = [game for game in names if not _is_game(game)]
        if unknown:
            found.append(f"{path}{key}={names}: there is no game {', '.join(unknown)}")
        absent = [game for game in names if game not in (collected or names) and game not in unknown]
        if absent:
            found.append(
                f"{path}{key}={names}: {', '.join(absent)} must be among this run's games, of which it collects "
                f"({', '.join(collected or ())})"
            )
    if collected and not set(groups or collected) - set(build.leave_out):
        found.append(f"{path}leave_out={build.leave_out}: leaves no game to train on; leave out fewer")
    return found + _label_problems(build.rejected_failures, path)


def _choice_problems(groups: tuple[str, ...], leave_out: Iterable[str], path: str) -> list[str]:
    found = []
    if both := sorted(set(groups) & set(leave_out)):
        found.append(f"{path}game_groups and {path}leave_out both name {', '.join(both)}")
    if measured := task_groups.evaluation_only(groups):
        what = "is for evaluation only and makes no rows to train on; leave it out"
        found.append(f"{path}game_groups={groups}: {', '.join(measured)} {what}")
    return found


def _collects(config: RunConfig) -> bool:
    return _section(config, "collect") is not None


def _label_problems(labels: tuple[str, ...], path: str) -> list[str]:
    if not labels:
        return []
    from dfc.records.trajectories import FAILURES, INCONCLUSIVE  # noqa: PLC0415 - pyarrow is slow to import

    allowed = [label for label in FAILURES if label not in INCONCLUSIVE]
    return [
        f"{path}rejected_failures: {label!r} must be one of {', '.join(allowed)}"
        for label in labels
        if label not in allowed
    ]


def _preference_problems(settings: PreferenceConfig, path: str) -> list[str]:
    if settings.preference_weight == 0 and settings.alpha == 0:
        return [f"{path}preference_weight and .alpha are both 0: nothing would be learned; raise one"]
    return []


def _length_problems(config: StagesRunConfig) -> list[str]:
    """Returns which rows could come out longer than training takes: reported now, and not after the collection."""
    section = _section(config, "build_data")
    if section is None:
        return []
    build, row, longest, found = section.settings, config.batch.row_length, config.rollout.max_length, []
    if _section(config, "sft") is not None and row < (needed := min(longest, build.sft_tokens)):
        found.append(f"batch.row_length={row}: must be at least {needed}, the longest trajectory that may be imitated")
    if _section(config, "rpo") is not None and row < (needed := 2 * min(longest, build.pair_tokens)):
        found.append(
            f"batch.row_length={row}: must be at least {needed}: both sides of the longest pair are in one row"
        )
    return found


def _stage_problems(config: Paprika) -> list[str]:
    stages, found = config.stages, []
    if not stages or list(stages) != [stage for stage in STAGES if stage in stages]:
        return [f"stages={stages}: must be some of {', '.join(STAGES)}, each once, in this order"]
    if stages == ("evaluate_tasks",):
        return [f"stages={stages}: trains nothing; evaluate policies with the recipe evaluate_tasks"]
    trained = [stage for stage in stages if stage in TRAININGS]
    if trained and "build_data" not in stages and not config.data:
        hint = "add it, or name data that is there in data"
        return [f"stages={stages}: {' and '.join(trained)} read what build_data writes; {hint}"]
    if "collect" in stages and config.collected:
        found.append(
            "collected: is not read where collect is a stage; take collect out of stages "
            f"({','.join(stage for stage in stages if stage != 'collect')}), or this out"
        )
    if "build_data" in stages and config.data:
        found.append("data: is not read where build_data is a stage; take one of the two out")
    return found


# ---- evaluating ------------------------------------------------------------------------------------------------------


def _evaluate_problems(config: RunConfig, section: EvaluateTasksConfig, path: str, games: Games) -> list[str]:
    found = _unknown_games(f"{path}tasks_of", section.tasks_of)
    found += _split_problems(f"{path}split", section.split, games)
    if section.temperatures and len(set(section.temperatures)) == 1:
        found.append(
            f"{path}temperatures={section.temperatures}: must be two or more; "
            f"write {path}sampling.temperature={section.temperatures[0]}"
        )
    out = ", or leave the game out" if path else ""
    if isinstance(config, Paprika):
        out = ", or leave the game, or evaluate_tasks of stages, out"
    for game, options in games.items():
        info = registry.make(game, **options).info
        if info.seats > 1 and not info.team:
            found.append(
                f"games.{game}: is for two players against each other and has no tasks to solve; use the recipe "
                f"evaluate{out}"
            )
        elif not info.splits and not section.tasks and game not in section.tasks_of:
            hint = f"set {path}tasks, or {path}tasks_of for it"
            found.append(f"{path}tasks=0: {game} has no splits, so say how many deals to play; {hint}")
    return found + _overlap_problems(config, section, path, games)


def _overlap_problems(config: RunConfig, section: EvaluateTasksConfig, path: str, games: Games) -> list[str]:
    """Returns why no task, or one that is collected from, would be evaluated."""
    collecting = _section(config, "collect")
    collect = collecting.settings if collecting is not None else None
    same, found = [], []
    for game, options in games.items():
        splits = registry.make(game, **options).info.splits
        if section.split not in splits:
            continue
        if section.first >= (end := section.tasks_of.get(game, splits[section.split])):
            found.append(f"{path}first={section.first}: must be below {end}, where the tasks of {game} end")
        if collect is not None and section.split == collect.split:
            same += [game] * (not collect.tasks or section.first < collect.tasks)
    if collect is not None and same:
        hint = "set collect.tasks and a first one after them"
        if collect.tasks:
            hint = f"set {path}first={collect.tasks}"
        found.append(
            f"{path}split={section.split!r}: is collect.split as well, so tasks that were trained on would be "
            f"evaluated ({', '.join(same)}); name another split, or {hint}"
        )
    return found


def _row_problems(config: RowsRunConfig) -> list[str]:
    """Returns every problem of a recipe that trains on rows, one sentence each."""
    assert isinstance(config, SftConfig | PreferenceConfig)  # noqa: S101 - there are no others
    found = list(_share_problems(config.data_shares, config.batch_size))
    held_out = config.held_out
    if held_out.every > 1 and held_out.every % 1:
        found.append(
            f"held_out.every={held_out.every:g}: must be a whole number of updates, or below 1 a share of the run's"
        )
    if held_out.keep != "last" and not held_out.data:
        found.append(
            f"held_out.keep={held_out.keep!r}: which checkpoint that is, rows held out decide; name their file in "
            "held_out.data"
        )
    if held_out.data and held_out.data in (config.data, *config.data_shares):
        found.append(f"held_out.data={held_out.data!r}: is trained on; name a file of rows that are not")
    return found


def _share_problems(data_shares: Mapping[str, float], batch_size: int) -> Iterator[str]:
    shares = [Fraction(str(share)) for share in data_shares.values()]
    most = [-(-batch_size * share.numerator // share.denominator) for share in shares]
    if not all(0 < share < 1 for share in shares):
        return  # its range has been reported
    key = f"data_shares={dict(data_shares)}"
    if sum(shares) > 1 - _LEAST:
        yield f"{key}: sum to {float(sum(shares)):g}; must leave {float(_LEAST):g} of every update at least for data"
    elif sum(most) > batch_size:
        rows = " + ".join(map(str, most))
        yield (
            f"{key}: an update of batch_size={batch_size} can have {rows} rows of these files, more than it has room "
            "for; raise batch_size, or name fewer files"
        )


def _row_places(config: RowsRunConfig) -> list[tuple[str, str, str]]:
    """Returns key, value and fix of every place of rows that a run names."""
    hint = "name what build_data made, or a file of conversations"
    found = [("data", config.data, hint), *(("data_shares", place, hint) for place in config.data_shares)]
    return [*found, ("held_out.data", config.held_out.data, hint)] if config.held_out.data else found


def dialogue_problems(config: BuildDialogues) -> list[str]:
    """Returns every problem of building rows from dialogues, one sentence each."""
    found = []
    if not config.wanted or len(set(config.wanted)) < len(config.wanted):
        found.append(f"wanted={config.wanted}: must be some of {', '.join(WANTED)}, each once")
    if len(set(config.repairs)) < len(config.repairs):
        found.append(f"repairs={config.repairs}: must be some of {', '.join(REPAIRS)}, each once")
    return found + _choice_problems(config.game_groups, config.leave_out, "")


def dialogue_path_problems(config: BuildDialogues) -> list[str]:
    """Returns which sources of dialogues do not exist."""
    hint = "name a run that collected trajectories, a folder of them, or a file of published interactions"
    if not config.sources:
        return [f"sources is empty; {hint}"]
    return [
        f"sources: {source!r}: there is no such place (current folder: {Path.cwd()}); {hint}"
        for source in config.sources
        if not source or not Path(source).expanduser().exists()
    ]

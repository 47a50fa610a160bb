"""Checks the sections of `dfc.task_config`; `dfc.validation` calls it with everything of a right type and range.

What a recipe made of stages would find out in a later one is reported now: every check belongs to a stage, and applies
to each recipe that has it.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

from dfc.config import GameOptions, RunConfig
from dfc.data import task_groups
from dfc.errors import ConfigError
from dfc.games import registry, scripted
from dfc.games.scripted import STRENGTHS
from dfc.players import factory, player_specs
from dfc.task_config import CollectConfig

TRAINING = ("offline", "task_curriculum", "paprika")  # recipes that train on rows
WITHOUT_GAMES = ("build_data", "offline")  # recipes that play none
STAGES = ("collect", "build_data", "sft", "rpo", "evaluate_tasks")
_TRAINED = ("sft", "rpo")
_CURRICULUM = {  # stages of a round and the evaluation, by task_curriculum.objective
    "rpo": ("collect", "build_data", "rpo", "evaluate_tasks"),
    "sft_rpo": STAGES,
}
_LEARNING = ("divide_fuse_conquer", "tiny_player")  # from the games they play
_IGNORED = (  # by which recipes, what, where it is reported instead
    (("paprika",), "offline.epochs", "set paprika.sft_epochs and paprika.rpo_epochs"),
    (("task_curriculum",), "offline.epochs", "set paprika.sft_epochs and paprika.rpo_epochs, which it reads"),
    (("paprika",), "offline.objective", "choose with paprika.stages"),
    (("task_curriculum",), "offline.objective", "choose with task_curriculum.objective"),
    (("task_curriculum",), "offline.data", "every round trains on what it builds"),
    (("paprika",), "build_data.trajectories", "set paprika.collected, and leave collect out of paprika.stages"),
    (("task_curriculum",), "build_data.trajectories", "every round builds from what it collects"),
    (
        ("paprika", "task_curriculum"),
        "policies",
        "it evaluates what it trains; others are for the recipe evaluate_tasks",
    ),
    (("task_curriculum",), "collect.samples", "set task_curriculum.samples"),
)
_SAMPLING_FIELDS = {  # settings of rollout.sampling
    "temperature": "set collect.temperature or evaluate_tasks.temperatures",
    "min_p": "set collect.min_p or evaluate_tasks.min_p",
    "top_k": "a collection is sampled with collect.temperature and collect.min_p",
    "top_p": "a collection is sampled with collect.temperature and collect.min_p",
}

# Where a run of several stages has what a setting names; such a run is easily named by mistake.
_STAGE_OF = {"paprika.collected": "collect", "build_data.trajectories": "collect", "offline.data": "build_data"}


def counts(entries: tuple[str, ...]) -> dict[str, int]:
    """Returns what ``GAME=NUMBER`` entries say, by game; entries that say something else are left out."""
    pairs = (entry.rpartition("=") for entry in entries)
    return {game: int(number) for game, equals, number in pairs if equals and number.isdecimal() and int(number) > 0}


def stages(config: RunConfig) -> tuple[str, ...]:
    """Returns which of `STAGES` a recipe goes through; those of `dfc.recipes.paprika` and its curriculum are these."""
    if config.recipe == "paprika":
        return config.paprika.stages
    if config.recipe == "task_curriculum":
        return _CURRICULUM[config.task_curriculum.objective]
    if config.recipe == "offline":
        return ("sft",) if config.offline.objective == "supervised" else ("rpo",)
    return (config.recipe,) if config.recipe in STAGES else ()


def uses_simulators(config: RunConfig) -> bool:
    """Returns whether a recipe plays games whose simulators `RunConfig.simulators` names."""
    return config.recipe == "divide_fuse_conquer" or bool({"collect", "evaluate_tasks"} & set(stages(config)))


def problems(config: RunConfig) -> list[str]:
    """Returns every problem of these sections, one sentence each."""
    found = _stage_problems(config) + _ignored_problems(config)
    games, does = player_specs.sound_games(config.games), stages(config)
    if "collect" in does or config.recipe in _LEARNING:
        unlearnable = _unlearnable(games)
        found += unlearnable.values()
        games = {game: options for game, options in games.items() if game not in unlearnable}  # one problem each
    if uses_simulators(config):
        found += _simulator_problems(config, games)
    if "collect" in does:
        found += _collect_problems(config, games)
    if "build_data" in does:
        found += _build_problems(config)
    if config.recipe in TRAINING:
        found += _offline_problems(config)
    if "build_data" in does:
        found += _length_problems(config, does)
    if "evaluate_tasks" in does:
        found += _evaluate_problems(config, games)
    if config.recipe == "evaluate_tasks":
        found += player_specs.problems(config) + _policy_problems(config, games)
    if config.recipe in ("collect", "evaluate_tasks") and config.adapter.base != "full":
        found.append(f"adapter.base={config.adapter.base!r}: must be 'full'; {config.recipe} plays at full precision")
    return found


def path_problems(config: RunConfig) -> list[str]:
    """Returns which folders that these recipes read do not exist."""
    wanted = []
    found = player_specs.path_problems(config) if config.recipe == "evaluate_tasks" else []
    if config.recipe == "build_data":
        wanted.append(("build_data.trajectories", config.build_data.trajectories, "name the run that collected them"))
    if config.recipe == "offline":
        wanted.append(("offline.data", config.offline.data, "name what build_data made, or a file of conversations"))
    if config.recipe == "paprika" and "build_data" in config.paprika.stages:
        if "collect" not in config.paprika.stages:
            wanted.append(("paprika.collected", config.paprika.collected, "name a run of collect, or add that stage"))
    elif config.recipe == "paprika" and (trained := [name for name in _TRAINED if name in config.paprika.stages]):
        place = Path(config.offline.data).expanduser()
        if len(trained) > 1 and place.is_file():
            found.append(
                f"offline.data={config.offline.data!r}: is one file, but sft reads trajectories and rpo reads pairs; "
                "name a run of build_data, or take one of the two out of paprika.stages"
            )
        wanted.append(
            ("offline.data", config.offline.data, "name a run of build_data, or add build_data to the stages")
        )
    for key, path, hint in wanted:
        if not path or not Path(path).expanduser().exists():
            what = f"{key}={path!r}: there is no such place" if path else f"{key} is empty"
            found.append(f"{what} (current folder: {Path.cwd()}); {hint}")
        elif (inside := Path(path).expanduser() / _STAGE_OF[key]).is_dir():
            found.append(f"{key}={path!r}: is a run of several stages; name {inside}")
    return found


def count_problems(key: str, entries: tuple[str, ...]) -> list[str]:
    """Returns what is wrong with ``GAME=NUMBER`` entries."""
    return [
        f"{key}: {entry!r} must be GAME=NUMBER with a game's id and a number from 1, such as mastermind=100"
        for entry in entries
        if not counts((entry,)) or entry.rpartition("=")[0] not in registry.game_ids()
    ]


def _split_problems(key: str, split: str, games: Mapping[str, GameOptions]) -> list[str]:
    found = []
    for game, options in games.items():
        splits = registry.make(game, **options).info.splits
        if splits and "split" in options:
            found.append(f"games.{game}: leave its split to {key}={split!r}, which is for all games")
        elif splits and split not in splits:
            found.append(f"{key}={split!r}: {game} has {', '.join(splits)}")
    return found


def _collect_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    collect = config.collect
    found = count_problems("collect.samples_of", collect.samples_of)
    found += _split_problems("collect.split", collect.split, games)
    for game, options in games.items():
        info = registry.make(game, **options).info
        if not info.splits and not collect.tasks:
            found.append(f"collect.tasks=0: {game} has no splits, so say how many deals to play")
    known = ("initial", "itself", *STRENGTHS)
    if (wrong := factory.problem(collect.opponent, known)) is not None:
        found.append(f"collect.opponent={collect.opponent!r}: {wrong}")
    found += _samples_problems(config, games)
    return found or _group_problems(dataclasses.replace(config, games=games))


def _group_problems(config: RunConfig) -> list[str]:
    if config.recipe != "task_curriculum":
        return []
    try:
        task_groups.task_groups(dataclasses.replace(config, games=task_groups.learned_games(config)))
    except ConfigError as error:
        return list(error.problems)
    return []


def _samples_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    collect, found = config.collect, []
    samples = dict.fromkeys(games, collect.samples)
    samples |= {game: count for game, count in counts(collect.samples_of).items() if game in games}
    if config.recipe == "task_curriculum":
        samples = dict.fromkeys(games, config.task_curriculum.samples)
    several = [game for game, count in samples.items() if count > 1]
    # A curriculum's own number is checked with its range.
    if games and not several and "rpo" in stages(config) and config.recipe != "task_curriculum":
        found.append(f"collect.samples={collect.samples}: must be at least 2; one sample of a task makes no pair")
    if several and collect.temperature == 0:
        found.append(
            f"collect.temperature=0: must be above 0; without chance all samples of a task are the same "
            f"({', '.join(several)})"
        )
    return found


def _unlearnable(games: Mapping[str, GameOptions]) -> dict[str, str]:
    """Returns the games that nothing can be learned from, with the reason."""
    found = {}
    for game, options in games.items():
        made = registry.make(game, **options)
        if made.info.evaluation_only:
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


def evaluation_only(games: Iterable[str]) -> list[str]:
    """Returns those games that declare themselves to be for evaluation only; a name that is no id is none of them."""
    known = [game for game in games if not registry.problems(game, {})]
    return [game for game in known if registry.make(game).info.evaluation_only]


def _evaluate_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    section = config.evaluate_tasks
    found = count_problems("evaluate_tasks.tasks_of", section.tasks_of)
    found += _split_problems("evaluate_tasks.split", section.split, games)
    if not section.temperatures:
        found.append("evaluate_tasks.temperatures is empty: name at least one, such as (0.7,)")
    if any(temperature < 0 for temperature in section.temperatures):
        found.append(f"evaluate_tasks.temperatures={section.temperatures}: must be 0 or more each")
    out = "" if config.recipe == "evaluate_tasks" else ", or leave the game out"
    if config.recipe == "paprika":
        out = ", or leave the game, or evaluate_tasks of paprika.stages, out"
    for game, options in games.items():
        info = registry.make(game, **options).info
        if info.seats > 1:
            found.append(
                f"games.{game}: is for two players and has no tasks to solve, which are for one player; use the recipe "
                f"evaluate{out}"
            )
        elif not info.splits and not section.tasks and game not in counts(section.tasks_of):
            hint = f"set evaluate_tasks.tasks, or add {game}=NUMBER to evaluate_tasks.tasks_of"
            found.append(f"evaluate_tasks.tasks=0: {game} has no splits, so say how many deals to play; {hint}")
    return found + _overlap_problems(config, games)


def _overlap_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    """Returns why no task, or one that is collected from, would be evaluated."""
    section, collect, found = config.evaluate_tasks, config.collect, []
    ends, same = counts(section.tasks_of), []
    for game, options in games.items():
        splits = registry.make(game, **options).info.splits
        if section.split not in splits:
            continue
        if section.first >= (end := ends.get(game, splits[section.split])):
            found.append(f"evaluate_tasks.first={section.first}: must be below {end}, where the tasks of {game} end")
        if section.split == collect.split and (not collect.tasks or section.first < collect.tasks):
            same.append(game)
    if "collect" in stages(config) and same:
        hint = "set collect.tasks and a first one after them"
        if collect.tasks:
            hint = f"set evaluate_tasks.first={collect.tasks}"
        found.append(
            f"evaluate_tasks.split={section.split!r}: is collect.split as well, so tasks that were trained on would be "
            f"evaluated ({', '.join(same)}); name another split, or {hint}"
        )
    return found


def _policy_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    specs, found = [], []
    for text in config.policies:
        with contextlib.suppress(ConfigError):  # reported elsewhere
            specs.append(player_specs.parse(text))
    found += [
        f"policies: {spec.name!r} is a chat endpoint; evaluate_tasks plays models (a folder, a run, tiny_player) and "
        "scripted players (random_legal, simple, strong) only; use the recipe evaluate"
        for spec in specs
        if spec.kind == "endpoint"
    ]
    bots = [spec.name for spec in specs if spec.kind == "scripted"]
    for game, options in games.items():
        if registry.make(game, **options).info.simulators and bots and config.simulators.who != player_specs.SCRIPT:
            found.append(
                f"policies: {', '.join(bots)} plays {game} only with simulators.who={player_specs.SCRIPT!r}, got "
                f"{config.simulators.who!r}: a scripted player does not read what others say"
            )
    return found


def _simulator_problems(config: RunConfig, games: Mapping[str, GameOptions]) -> list[str]:
    who, found = config.simulators.who, []
    if who == player_specs.SCRIPT:
        for game in games:
            try:
                scripted.simulators(game)
            except ValueError as error:
                found.append(f"games.{game}: {error}; name simulators.who")
    elif who != "initial" and not (factory.is_endpoint(who) and factory.problem(who) is None):
        found.append(
            f"simulators.who={who!r}: must be {player_specs.SCRIPT}, initial, or an endpoint: {factory.EXAMPLE}"
        )
    elif who != "initial":
        spec = player_specs.PolicySpec(player_specs.SIMULATORS, who, "endpoint")
        try:
            player_specs.endpoint_config(spec, config.simulators.endpoint)
        except ConfigError as error:
            found += [f"simulators: {problem}" for problem in error.problems]
    return found


def _build_problems(config: RunConfig) -> list[str]:
    build, found = config.build_data, []
    if 0 < build.turn_ratio <= 1:
        found.append(f"build_data.turn_ratio={build.turn_ratio}: must be above 1, or 0 for failures only")
    both = sorted(set(build.groups) & set(build.leave_out))
    if both:
        found.append(f"build_data.groups and .leave_out both name {', '.join(both)}")
    collects = "collect" in stages(config)
    for key, names in (("groups", build.groups), ("leave_out", build.leave_out)):
        unknown = [game for game in names if game not in registry.game_ids()]
        if unknown:
            found.append(f"build_data.{key}={names}: there is no game {', '.join(unknown)}")
        absent = [game for game in names if game not in config.games and game not in unknown]
        if collects and absent:
            found.append(
                f"build_data.{key}={names}: {', '.join(absent)} must be among this run's games, of which it collects "
                f"({', '.join(config.games)})"
            )
    if measured := evaluation_only(build.groups):
        found.append(
            f"build_data.groups={build.groups}: {', '.join(measured)} is for evaluation only and makes no rows to "
            "train on; leave it out"
        )
    if collects and config.games and not set(build.groups or config.games) - set(build.leave_out):
        found.append(f"build_data.leave_out={build.leave_out}: leaves no game to train on; leave out fewer")
    if config.recipe == "task_curriculum" and build.groups:
        found.append("build_data.groups: a round may have chosen none of them; name only these in games instead")
    return found + _label_problems(build.rejected_failures)


def _label_problems(labels: tuple[str, ...]) -> list[str]:
    if not labels:
        return []
    from dfc.data.trajectories import FAILURES, INCONCLUSIVE  # noqa: PLC0415 - pyarrow is slow to import

    allowed = [label for label in FAILURES if label not in INCONCLUSIVE]
    return [
        f"build_data.rejected_failures: {label!r} must be one of {', '.join(allowed)}"
        for label in labels
        if label not in allowed
    ]


def _offline_problems(config: RunConfig) -> list[str]:
    offline, found = config.offline, []
    if "rpo" in stages(config) and offline.preference_weight == 0 and offline.alpha == 0:
        found.append("offline.preference_weight and .alpha are both 0: nothing would be learned; raise one")
    if config.adapter.base == "nf4" and config.adapter.rank == 0:
        found.append("adapter.base='nf4': quantized weights are not trained themselves; set adapter.rank above 0")
    return found


def _length_problems(config: RunConfig, does: tuple[str, ...]) -> list[str]:
    """Returns which rows could come out longer than training takes: reported now, and not after the collection."""
    row, longest = config.batch.row_length, config.rollout.max_length
    found = []
    if "sft" in does and row < (needed := min(longest, config.build_data.sft_tokens)):
        found.append(f"batch.row_length={row}: must be at least {needed}, the longest trajectory that may be imitated")
    if "rpo" in does and row < (needed := 2 * min(longest, config.build_data.pair_tokens)):
        found.append(
            f"batch.row_length={row}: must be at least {needed}: both sides of the longest pair are in one row"
        )
    return found


def _stage_problems(config: RunConfig) -> list[str]:
    if config.recipe != "paprika":
        return []
    stages_ = config.paprika.stages
    if not stages_ or list(stages_) != [stage for stage in STAGES if stage in stages_]:
        return [f"paprika.stages={stages_}: must be some of {', '.join(STAGES)}, each once, in this order"]
    if stages_ == ("evaluate_tasks",):
        return [f"paprika.stages={stages_}: trains nothing; evaluate policies with the recipe evaluate_tasks"]
    trained = [stage for stage in stages_ if stage in _TRAINED]
    if trained and "build_data" not in stages_ and not config.offline.data:
        hint = "add it, or name data that is there in offline.data"
        return [f"paprika.stages={stages_}: {' and '.join(trained)} read what build_data writes; {hint}"]
    return []


def _ignored_problems(config: RunConfig) -> list[str]:
    """Returns which settings were changed that this recipe does not read."""
    found = []
    for recipes, key, instead in _IGNORED:
        if config.recipe in recipes and _changed(config, key):
            found.append(f"{key}: {config.recipe} ignores it; {instead}")
    if config.recipe == "paprika" and "collect" in config.paprika.stages and config.paprika.collected:
        found.append(
            "paprika.collected: paprika ignores it where collect is a stage; take collect out of paprika.stages "
            f"({','.join(stage for stage in config.paprika.stages if stage != 'collect')}), or this out"
        )
    if config.recipe == "paprika" and "build_data" in config.paprika.stages and config.offline.data:
        found.append("offline.data: paprika ignores it where build_data is a stage; take one of the two out")
    if config.recipe == "task_curriculum" and config.collect.samples_of not in ((), CollectConfig().samples_of):
        found.append("collect.samples_of: task_curriculum ignores it; set task_curriculum.samples")
    does = stages(config)
    sampling_fields: tuple[str, ...] = ("temperature", "min_p") if "evaluate_tasks" in does else ()
    if "collect" in does:
        sampling_fields = tuple(_SAMPLING_FIELDS)
    return found + [
        f"rollout.sampling.{name}: {config.recipe} ignores it; {_SAMPLING_FIELDS[name]}"
        for name in sampling_fields
        if _changed(config, f"rollout.sampling.{name}")
    ]


def _changed(config: RunConfig, key: str) -> bool:
    value: object = config
    default: object = RunConfig()
    for name in key.split("."):
        value, default = getattr(value, name), getattr(default, name)
    return value != default

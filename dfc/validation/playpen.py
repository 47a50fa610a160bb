"""Rules between the stages of Playpen; the settings of a stage are checked as those of its own recipe."""

from pathlib import Path

from dfc.config import Playpen
from dfc.config.playpen import STAGES
from dfc.errors import ConfigError
from dfc.players import player_specs
from dfc.validation import sampling

_TRAININGS = ("warm_start", "sft", "dpo_dialogue", "dpo_turn", "grpo", "sft_grpo")
_ROWS = ("sft", "dpo_dialogue", "dpo_turn")
_WITH_ROLES = ("grpo", "sft_grpo", "evaluate_with_teacher")
# Stage -> one that it begins after.
_NEEDS = {"warm_start": "minigames", "branch": "sft", "sft_grpo": "sft"}


def problems(config: Playpen) -> list[str]:
    """Returns every problem, one sentence each."""
    stages, found = config.stages, []
    if not stages or list(stages) != [stage for stage in STAGES if stage in stages]:
        return [f"stages={stages}: must be some of {', '.join(STAGES)}, each once, in this order"]
    if not set(stages) & set(_TRAININGS):
        found.append(f"stages={stages}: trains nothing; evaluate policies with the recipe evaluate_tasks")
    found += [
        f"stages={stages}: {stage} begins after {earlier}; add it, or take {stage} out"
        for stage, earlier in _NEEDS.items()
        if stage in stages and earlier not in stages
    ]
    if config.rehearsal and not {"minigames", "sft"} <= set(stages):
        found.append(f"rehearsal={config.rehearsal}: needs the stages minigames and sft; add them, or set it to 0")
    if both := sorted(set(config.games) & set(config.measured_games)):
        found.append(f"games and measured_games both name {', '.join(both)}: what is trained on is evaluated anyway")
    if "collect" in stages:
        found += _player_problems(config)
    if "build_dialogues" in stages and "collect" not in stages and not config.collect.sources:
        found.append(
            "collect.sources is empty: without the stage collect, name runs that collected dialogues, or files"
        )
    if set(stages) & set(_WITH_ROLES):
        found += [
            f"grpo.learner_roles: {game!r} must be among this run's games, {', '.join(config.games)}"
            for game in config.grpo.roles(config.games)
            if game not in config.games
        ]
    if "build_dialogues" in stages and config.built:
        found.append("built: is not read where build_dialogues is a stage; take one of the two out")
    return found + sampling.problems(config.grpo.sampling, "grpo.sampling.")


def _player_problems(config: Playpen) -> list[str]:
    names, found = [], []
    for text in config.collect.players:
        try:
            names.append("initial" if text == "initial" else player_specs.parse(text).name)
        except ConfigError as error:
            found += [f"collect.players: {problem}" for problem in error.problems]
    if not config.collect.players:
        found.append("collect.players is empty: name the players of the dialogues, such as strong,simple")
    return found + [
        f"collect.players: {names.count(name)} of them are called {name!r}; put NAME= before one of them"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def path_problems(config: Playpen) -> list[str]:
    """Returns which places that the run reads do not exist."""
    wanted = []
    if "build_dialogues" in config.stages:
        wanted = [("collect.sources", place) for place in config.collect.sources]
    elif set(config.stages) & set(_ROWS):
        wanted = [("built", config.built)]
    return [
        f"{key}={place!r}: there is no such place (current folder: {Path.cwd()}); name a run of build_dialogues"
        if key == "built"
        else f"{key}: {place!r}: there is no such place (current folder: {Path.cwd()})"
        for key, place in wanted
        if not place or not Path(place).expanduser().exists()
    ]

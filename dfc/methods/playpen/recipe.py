"""Playpen (arXiv 2504.08590), sections 4.3 and 5, as one run; read from top to bottom.

    collect                dialogues of several players with themselves, of every training instance
    build_dialogues        which to imitate, and pairs of a better and a worse one
    minigames, warm_start  short instructions with exact answers, and supervised training on them first
    sft                    supervised training on dialogues, with minigames among them if `rehearsal` says so
    branch                 games of the model after sft, played on from their turns with other seeds, and pairs of them
    dpo_dialogue           training on pairs of whole dialogues, with the model after sft as the reference
    dpo_turn               the same on pairs of one reply to one history
    grpo, sft_grpo         GRPO beside a frozen teacher, from the initial model and from the one after sft
    evaluate_tasks         every model in all seats, on games trained on and others (clemscore)
    evaluate_with_teacher  every model in the learner's roles beside the teacher

Each stage is a recipe of its own (`dfc.runs.stages`). The model after ``sft`` that later stages begin with is the base
at full precision with its adapter merged in, which they quantise again if they hold the base in four bits: of the three
ways that the paper's Table 6 compares, the one that loses nothing.

How it departs from the paper: docs/playpen.md, "What departs from the paper, and why";
each stage's module lists its own.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc import validation
from dfc.config import (
    Branch,
    BuildDialogues,
    Collect,
    EvaluateTasks,
    Grpo,
    HeldOutConfig,
    Minigames,
    ModelConfig,
    Playpen,
    Preference,
    Sft,
)
from dfc.config.dialogues import Wanted
from dfc.config.grpo import AcceptanceConfig
from dfc.config.playpen import AdaptedPreferenceConfig, AdaptedSftConfig
from dfc.errors import ConfigError
from dfc.games import registry
from dfc.players import player_specs
from dfc.players.player_specs import DEMONSTRATOR, OPPONENT
from dfc.rows.training_rows import DATA_FOLDER, dialogue_file, minigames_file
from dfc.runs.run_folder import RunFolder
from dfc.runs.stages import Plan, StageRun, run_stages
from dfc.runs.stop_signals import Stop

INITIAL = "initial"  # among the players of dialogues: the model of the run
_NO_CHECKS = HeldOutConfig()
# What each training reads of the built rows.
_ROWS: Mapping[str, Wanted] = {"sft": "sft", "dpo_dialogue": "pairs_dialogue", "dpo_turn": "pairs_turn"}
# Of the recipe ``grpo`` what the method itself fixes.
_ONLINE: Mapping[str, Any] = {
    "deals": "epochs",
    "acceptance": AcceptanceConfig(rule="always", tolerance=0.0),
}


def run(config: Playpen, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes where it was stopped.

    Raises:
      ConfigError: a stage's settings contradict each other; before anything is played.
    """
    found = [
        f"stage {stage.name}: {problem}"
        for stage in stages(config, folder.path)
        for problem in validation.problems(stage.config)
    ]
    if found:
        raise ConfigError(found)
    run_stages(folder, functools.partial(stages, config, folder.path), stop)


def stages(config: Playpen, folder: Path) -> list[StageRun]:
    """Returns the stages of a run as configurations of their own recipes."""
    plan, base, wanted = Plan(config, folder), config.model, config.stages
    policies = [f"base={base.path}"]
    built = _built(config, folder, plan)
    if "minigames" in wanted:
        plan.add("minigames", Minigames, rows=config.minigames)
    model = _supervised(config, folder, plan, built, policies)
    pairs = {"dpo_dialogue": built, "dpo_turn": _branch(config, plan, model) if "branch" in wanted else built}
    for stage, place in pairs.items():
        if stage in wanted:
            settings = config.dpo_dialogue if stage == "dpo_dialogue" else config.dpo_turn
            data, checks = _rows(config, place, _ROWS[stage], settings)
            trained = plan.add(stage, Preference, settings, model=model, data=data, held_out=checks)
            policies.append(f"{stage}={trained}")
    for stage, start in (("grpo", base), ("sft_grpo", model)):
        if stage in wanted:
            endpoints = _endpoints(config, {OPPONENT: OPPONENT})
            roles = config.grpo.roles(config.games)
            trained = plan.add(
                stage, Grpo, config.grpo, model=start, endpoints=endpoints, learner_roles=roles, **_ONLINE
            )
            policies.append(f"{stage}={trained}")
    _evaluations(config, plan, tuple(policies))
    return plan.stages


# ---- dialogues and rows ----------------------------------------------------------------------------------------------


def _built(config: Playpen, folder: Path, plan: Plan) -> Path:
    """Adds the collections and the building of rows; returns the run whose rows are trained on."""
    sources = [*_collections(config, plan), *config.collect.sources]
    if "build_dialogues" not in config.stages:
        return Path(config.built).expanduser() if config.built else folder / "build_dialogues"
    kinds = tuple(rows for stage, rows in _ROWS.items() if stage in config.stages)
    return plan.add("build_dialogues", BuildDialogues, config.build_dialogues, wanted=kinds, sources=tuple(sources))


def _collections(config: Playpen, plan: Plan) -> list[str]:
    """Adds the collections, one for each player; returns their folders."""
    found = []
    for text in config.collect.players if "collect" in config.stages else ():
        spec = player_specs.parse(text) if text != INITIAL else None
        place = plan.add(
            f"collect/{INITIAL if spec is None else spec.name}",
            Collect,
            config.collect,
            samples_of={},
            demonstrator="" if spec is None else spec.who,
            opponent="itself",
            learner_roles={},
            endpoints={} if spec is None else _endpoints(config, {spec.name: DEMONSTRATOR}),
        )
        found.append(str(place))
    return found


def _branch(config: Playpen, plan: Plan, model: ModelConfig) -> Path:
    """Adds games of a model, those that play on from their turns, and pairs of them; returns where the pairs are."""
    settings, alone = config.branch, {"model": model, "endpoints": {}, "opponent": "itself"}
    played = plan.add("branch/collect", Collect, settings, samples=1, samples_of={}, learner_roles={}, **alone)
    branched = plan.add("branch/siblings", Branch, settings, trajectories=str(played), **alone)
    sources = (str(played), str(branched))
    return plan.add("branch/pairs", BuildDialogues, config.build_dialogues, wanted=("pairs_turn",), sources=sources)


def _rows(
    config: Playpen, built: Path, kind: Wanted, settings: AdaptedSftConfig | AdaptedPreferenceConfig
) -> tuple[str, HeldOutConfig]:
    """Returns the rows that a training reads, and when it takes the loss on the held-out ones, if there are any."""
    data = str(built / DATA_FOLDER / dialogue_file(kind))
    if not config.build_dialogues.held_out:
        return data, _NO_CHECKS
    return data, _checks(settings, built / DATA_FOLDER / dialogue_file(kind, held_out=True))


def _checks(settings: AdaptedSftConfig | AdaptedPreferenceConfig, held_out: Path) -> HeldOutConfig:
    """Returns when a training takes the loss on the rows of a file."""
    return HeldOutConfig(data=str(held_out), **dataclasses.asdict(settings.held_out))


# ---- trainings and evaluations ---------------------------------------------------------------------------------------


def _supervised(config: Playpen, folder: Path, plan: Plan, built: Path, policies: list[str]) -> ModelConfig:
    """Adds the supervised trainings and their policy; returns the model that later stages begin with."""
    model, minigames = config.model, folder / "minigames" / DATA_FOLDER
    short = str(minigames / minigames_file())
    if "warm_start" in config.stages:
        checks = _checks(config.warm_start, minigames / minigames_file(held_out=True))
        trained = plan.add("warm_start", Sft, config.warm_start, model=model, data=short, held_out=checks)
        model = _after(model, trained)
    if "sft" in config.stages:
        shares = {short: config.rehearsal} if config.rehearsal else {}
        data, checks = _rows(config, built, "sft", config.sft)
        trained = plan.add("sft", Sft, config.sft, model=model, data=data, held_out=checks, data_shares=shares)
        policies.append(f"sft={trained}")
        model = _after(model, trained)
    return model


def _after(base: ModelConfig, trained: Path) -> ModelConfig:
    """Returns the model that a training makes."""
    return dataclasses.replace(base, path=str(trained / "policy"))


def _evaluations(config: Playpen, plan: Plan, policies: tuple[str, ...]) -> None:
    """Adds the evaluations: every policy in all seats, and beside the teacher."""
    settings, games = config.evaluate_tasks, {**config.games, **config.measured_games}
    if "evaluate_tasks" in config.stages:
        plan.add("evaluate_tasks", EvaluateTasks, settings, games=games, policies=policies, endpoints={})
    if "evaluate_with_teacher" in config.stages:
        beside = {game: options for game, options in config.games.items() if registry.make(game, **options).seats > 1}
        roles = {game: role for game, role in config.grpo.roles(config.games).items() if game in beside}
        plan.add(
            "evaluate_with_teacher",
            EvaluateTasks,
            settings,
            games=beside,
            policies=policies,
            opponent=config.grpo.opponent,
            learner_roles=roles,
            endpoints=_endpoints(config, {OPPONENT: OPPONENT}),
        )


def _endpoints(config: Playpen, names: Mapping[str, str]) -> dict[str, Any]:
    """Returns how some players are asked, by the names that they have in a stage."""
    return {name: config.endpoints[own] for own, name in names.items() if own in config.endpoints}

"""Divide-Fuse-Conquer (arXiv 2505.16401), Algorithm 1 around Algorithm 2, and its baselines; read from top to bottom.

    base      measure the initial policy on every game; group the games by start kind and whether it can win
    divide k  train a policy on group k alone, from the initial policy
    fuse k    average the policy so far with group k's
    conquer k train the average on groups 1 to k
    final     matches on fresh seeds, export, report

One iteration of a stage is `dfc.training.rl.iterate`. The baselines are other lists of stages (`plan`) of the same
iterations: one per game, and one that imitates the initial policy's won games; one stage on all games is the recipe
grpo.

How it departs from the paper, beside what `dfc.training.rl` lists:

1. The paper's loop over iterations runs to T - 1; here T iterations mean T updates.
2. Win rates before the first update of a stage come from a measurement on fresh seeds, since Algorithm 2 does not say.
3. The paper does not say how its SFT model was made. Here every iteration collects games of the initial policy like
   any other method's, and the loss is that of the won ones' action tokens; what an update makes worse is dropped as
   usual.
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np

from dfc import fusion, multihost
from dfc.config import DivideFuseConquer, FusionConfig, GroupingConfig
from dfc.episodes import Episode
from dfc.evaluation import matches
from dfc.files import write_text
from dfc.losses import Loss, sft_loss
from dfc.models.lora import average
from dfc.models.transformer import Params
from dfc.report import watched
from dfc.rollout.host import PolicyWeights
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.samples import TokenBatch
from dfc.training import game_plan, measurements, rl
from dfc.training.games_run import GamesRun, State
from dfc.training.method import Method, Shares
from dfc.training.trainer import LossFunction

Kind = Literal["divide", "conquer", "single", "imitate"]


@dataclasses.dataclass(frozen=True)
class Group:
    """Games that are learned together; `start` and `winnable` are why, None where the group was given by hand."""

    name: str
    games: tuple[str, ...]
    start: str | None = None
    winnable: bool | None = None

    def why(self) -> str:
        """Returns a text that says why these games are together."""
        if self.start is None:
            return "by hand"
        return f"{self.start} start, {'can' if self.winnable else 'cannot'} be won by the base model"


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stretch of training.

    Attributes:
      name: in metrics, records and the report.
      kind: ``divide``: a group's own policy; ``conquer``: the policy that stays; ``single``: a game's own policy;
        ``imitate``: supervised.
      games: the games trained on.
      group: the divided group's name, else empty.
      fuses: names of the groups whose policies are fused into the policy so far before it begins.
    """

    name: str
    kind: Kind
    games: tuple[str, ...]
    group: str = ""
    fuses: tuple[str, ...] = ()


def run(config: DivideFuseConquer, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes if the folder holds a checkpoint."""
    if multihost.broadcast(folder.finished.exists()):
        watched.show_finished(folder)
        return
    method = method_of(config)
    with contextlib.closing(method.open(config, folder, stop)) as run_:
        state = run_.restore()
        if state is None:
            state = run_.begin()
            groups = _divide(run_, config.grouping)
            state.groups = [{**dataclasses.asdict(group), "games": list(group.games)} for group in groups]
            run_.save_or_stop(state)
        groups = [Group(**{**group, "games": tuple(group["games"])}) for group in state.groups]
        stages = plan(groups, list(config.games), config)
        total = sum(iterations(stage, config) for stage in stages)
        forecast = measurements.forecast_lines(run_, turns(stages, config), games_between(stages, config))
        for line in [*_plan_lines(config, groups, stages, total), *forecast]:
            print(line, flush=True)  # noqa: T201 - progress

        with watched.Watched(folder, total, state.steps, config.shorter) as shown:
            while state.stage < len(stages):
                stage = stages[state.stage]
                if state.iteration == 0:
                    _begin(run_, config, stage, state)
                # The end of a stage is saved after its matches; before them too where these can be stopped.
                own, count = stage.kind == "single", iterations(stage, config)
                rl.train(run_, method, state, stage.name, stage.games, count, shown.show, save_last=own)
                with run_.interruptible(state):
                    measured = stage.games if own else list(config.games)
                    measurements.measure_stage(run_, stage.name, state.best, measured, config.evaluation.stage_games)
                    if own:
                        name = stage.games[0]
                        measurements.final_matches(run_, state.best, stage.games)
                        run_.save_policy(state.best, folder.policy / name, folder.adapter / name)
                _close_stage(stages, state, groups)
                run_.save_or_stop(state)
            run_.settle()
            print("final matches", flush=True)  # noqa: T201 - progress
            measurements.initial_matches(run_)
            if stages[-1].kind != "single":
                measurements.final_matches(run_, state.best, list(config.games))
                run_.save_policy(state.best, folder.policy, folder.adapter)
    watched.finish(folder)


# ---- groups and stages -----------------------------------------------------------------------------------------------


def group_games(measured: Mapping[str, Mapping[str, Any]], settings: GroupingConfig) -> list[Group]:
    """Returns the groups: those given by hand, else the non-empty ones by (start kind) x (can it be won).

    `measured` has by game id the trials (episodes that count), wins and start kind; a game counts as winnable if wins /
    trials is above `winnable_above` (the paper: 0).
    """
    if settings.groups:
        return [Group(f"g{n}", games) for n, games in enumerate(settings.groups, start=1)]
    groups: list[Group] = []
    for kind in settings.order:
        start, winnable = kind.split("_")[0], kind.endswith("_winnable")
        games = tuple(
            game
            for game, m in measured.items()
            if m["start"] == start and (m["wins"] / max(1, m["trials"]) > settings.winnable_above) == winnable
        )
        if games:
            groups.append(Group(f"g{len(groups) + 1}", games, start, winnable))
    return groups


def plan(groups: Sequence[Group], games: Sequence[str], settings: DivideFuseConquer) -> list[Stage]:
    """Returns the stages of the method that `settings` name, for groups of `group_games` or all games of the run."""
    everything = tuple(games)
    if settings.method == "naive_single":
        return [Stage(f"only {game}", "single", (game,)) for game in everything]
    if settings.method == "imitate_wins":
        return [Stage("imitate wins", "imitate", everything)]
    stages = [Stage(f"divide {g.name}", "divide", g.games, group=g.name) for g in groups]
    counts = [len(groups)] if settings.fusion.at_once and len(groups) > 1 else range(2, len(groups) + 1)
    for count in counts:
        joined = groups[:count]
        fuses = [g.name for g in (joined if settings.fusion.at_once else joined[-1:])]
        name = "conquer " + "+".join(g.name for g in joined)
        stages.append(Stage(name, "conquer", tuple(x for g in joined for x in g.games), fuses=tuple(fuses)))
    return stages


def iterations(stage: Stage, settings: DivideFuseConquer) -> int:
    """Returns how many iterations a stage has."""
    return settings.divide_iterations if stage.kind == "divide" else settings.conquer_iterations


def turns(stages: Sequence[Stage], settings: DivideFuseConquer) -> int:
    """Returns how many iterations of single games a run has: iterations of each stage x its games."""
    return sum(iterations(stage, settings) * len(stage.games) for stage in stages)


def games_between(stages: Sequence[Stage], settings: DivideFuseConquer) -> int:
    """Returns how many games the matches between stages play: after each fuse, and at the end of each stage."""
    measured = sum(
        len(stage.games) if stage.kind == "single" else (1 + bool(stage.fuses)) * len(settings.games)
        for stage in stages
    )
    return measured * settings.evaluation.stage_games


# ---- divide --------------------------------------------------------------------------------------------------------


def _divide(run_: GamesRun, settings: GroupingConfig) -> list[Group]:
    """Plays the base model on every game and groups them; writes groups.json and the base rows."""
    config, folder, workers = run_.config, run_.folder, run_.workers
    print(f"base: {settings.trials} games per game id (the first ones compile)", flush=True)  # noqa: T201 - progress
    specs = matches.match_specs(config.games, settings.trials, config.seed, "grouping")
    episodes = run_.pace.timed(lambda: workers.play(specs, PolicyWeights(workers.initial_params), "initial"))
    rl.refuse_all_failed(episodes)  # a game of which nothing is known would be in no group, and never trained on
    folder.append("episodes", [e.record(stage="base", iteration=0, kind="evaluate", reward=None) for e in episodes])
    rows = matches.evaluation_rows(episodes, stage="base", policy="initial", opponent="initial")
    folder.append("evaluations", measurements.without_opponent(rows, workers))
    measured = {
        game: {"trials": r.decided, "wins": r.win, "start": workers.info[game].start}
        for game, r in matches.by_game(matches.tally(episodes)).items()
    }
    for game, found in measured.items():
        print(f"{game}: {found['start']} start, won {found['wins']} of {found['trials']}", flush=True)  # noqa: T201 - progress
    groups = group_games(measured, settings)
    if folder.writes:
        record = {"groups": [dataclasses.asdict(g) for g in groups], "measured": measured}
        write_text(folder.groups, json.dumps(record, indent=1))
    return groups


# ---- one stage -----------------------------------------------------------------------------------------------------


def _close_stage(stages: list[Stage], state: State, groups: list[Group]) -> None:
    """Keeps a finished group policy, and goes to the next stage."""
    stage = stages[state.stage]
    state.stage, state.iteration = state.stage + 1, 0
    state.pool, state.met = {}, {}
    if stage.kind != "divide":
        return
    state.policies = {**state.policies, stage.group: state.best}
    one_by_one = state.stage < len(stages) and groups[0].name not in stages[state.stage].fuses
    if state.stage == len(groups) and one_by_one:  # every group has its policy: Algorithm 1, line 7
        state.best = state.policies.pop(groups[0].name)


def _begin(run_: GamesRun, config: DivideFuseConquer, stage: Stage, state: State) -> None:
    """Sets the policy a stage starts from and measures it."""
    rates = None
    if stage.fuses:
        state.best = _fused(run_, config.fusion, state, stage)
        state.policies = {name: p for name, p in state.policies.items() if name not in stage.fuses}
        name = stage.name.replace("conquer", "fuse")
        games = list(config.games)
        rates = measurements.measure_stage(run_, name, state.best, games, config.evaluation.stage_games)
    else:
        state.best = run_.initial_params
    rl.begin(run_, state, stage.name, stage.games, rates)


def _fused(run_: GamesRun, settings: FusionConfig, state: State, stage: Stage) -> Params:
    """Returns the policies of a stage's groups as one, the policy so far among them unless all are fused at once."""
    policies = [state.policies[name] for name in stage.fuses]
    weights = [1.0] * len(policies) if settings.at_once else [1 - settings.weight, settings.weight]
    policies = policies if settings.at_once else [state.best, *policies]
    if run_.lora is not None:  # one after another the nearest adapters of the same rank, noting what the last ones miss
        fused, total = policies[0], weights[0]
        for policy, weight in zip(policies[1:], weights[1:], strict=True):
            total += weight
            fused, run_.missed = average(fused, policy, weight=weight / total)
        return fused
    if settings.method == "task_arithmetic":
        shares = [weight / sum(weights) for weight in weights]
        return fusion.task_arithmetic(run_.initial_params, *policies, weights=shares, scale=settings.scale)
    if settings.method == "ties":
        return fusion.ties(run_.initial_params, *policies, density=settings.density, scale=settings.scale)
    return fusion.average(*policies, weights=weights)


# ---- learning --------------------------------------------------------------------------------------------------------


def method_of(config: DivideFuseConquer) -> Method:
    """Returns how a method learns from its episodes: GRPO, or supervised training on the initial policy's won games."""
    if config.method != "imitate_wins":
        return rl.grpo(config)
    return dataclasses.replace(
        rl.grpo(config),
        loss=imitation_loss(config.batch.row_length),
        play=functools.partial(rl.play_games, initial=True),
        advantages=lambda now, episodes, _: won_sequences(episodes, config, now.seed("half negative")),
        refill=None,
        reads_reference=False,
        reads_turns=False,
    )


def imitation_loss(row_length: int) -> LossFunction:
    """Returns the negative log-likelihood of action tokens, averaged within each episode first."""

    def loss(
        logprobs: jax.Array, batch: TokenBatch, reference_logprobs: jax.Array | None, proximal: jax.Array | None = None
    ) -> Loss:
        del reference_logprobs, proximal
        return sft_loss(logprobs, batch.mask, segments=batch.segments, num_segments=max(1, row_length // 4))

    return loss


def won_sequences(episodes: Sequence[Episode], config: DivideFuseConquer, seed: int) -> Shares:
    """Returns the won episodes, one list per optimizer update; empty updates are left out."""
    won = [episode.sample for episode in episodes if episode.counted and episode.outcome == "win"]
    alone = np.arange(len(won))[:, None]  # each a group of its own
    return rl.share_out(won, np.ones(len(won)), alone, config.grpo.updates_per_iteration, seed)


# ---- in words --------------------------------------------------------------------------------------------------------


def _plan_lines(config: DivideFuseConquer, groups: list[Group], stages: list[Stage], total: int) -> list[str]:
    """Returns a description of the run: differences from the games' own rules, groups, stages."""
    return [
        *game_plan.games_lines(config),
        *(f"{group.name} ({group.why()}): {', '.join(group.games)}" for group in groups),
        f"stages: {' -> '.join(s.name for s in stages)} -> final; {total} iterations on {jax.device_count()} device(s)",
    ]

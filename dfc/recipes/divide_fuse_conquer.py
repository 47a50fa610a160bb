"""Divide-Fuse-Conquer (arXiv 2505.16401), Algorithm 1 around Algorithm 2, and its baselines; read from top to bottom.

    base      measure the initial policy on every game; group the games by start kind and whether it can win
    divide k  train a policy on group k alone, from the initial policy
    fuse k    average the policy so far with group k's
    conquer k train the average on groups 1 to k
    final     matches on fresh seeds, export, report

The baselines are other lists of stages (`dfc.recipes.stages`) of the same iterations: one stage on all games, one per
game, and one that imitates the initial policy's won games.

How it departs from the paper, beside what `dfc.recipes.conquer` lists:

1. The paper's loop over iterations runs to T - 1; here T iterations mean T updates.
2. Win rates before the first update of a stage come from a measurement on fresh seeds, since Algorithm 2 does not say.
3. The paper does not say how its SFT model was made. Here every iteration collects games of the initial policy like
   any other method's, and the loss is that of the won ones' action tokens; what an update makes worse is dropped as
   usual.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

import jax

from dfc import fusion, multihost
from dfc.config import DivideFuseConquer, SamplingConfig
from dfc.episodes import Episode
from dfc.errors import DivergenceError
from dfc.evaluation import matches
from dfc.files import write_text
from dfc.games.rng import derive_seed
from dfc.models.lora import average
from dfc.models.transformer import Params
from dfc.recipes import conquer, opponents, results
from dfc.recipes.stages import Group, Stage, episodes, group_games, iterations, plan
from dfc.recipes.training_run import Run, State
from dfc.report import run_page
from dfc.report.live_report import LiveReport
from dfc.rollout.workers import PolicyWeights, RolloutWorkers, lora_config
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.metrics import MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training.optimizer import make_optimizer
from dfc.training.packing import micro_batches, pack
from dfc.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Watched:
    """Where an iteration is shown: the records, the terminal, the page."""

    writer: MetricsWriter
    progress: Progress
    live: LiveReport


def run(config: DivideFuseConquer, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes if the folder holds a checkpoint."""
    if multihost.broadcast(folder.finished.exists()):
        print(f"{folder.path} holds this run, finished")  # noqa: T201 - why nothing happens
        if folder.writes:
            run_page.build(folder.path)  # a kill may have come between the last two files
        results.show(folder)
        return
    print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
    sampling = SamplingConfig(temperature=config.temperature)
    nf4 = config.adapter.base == "nf4"
    workers = RolloutWorkers(config, stop.look, sampling=sampling, nf4=nf4, key_variable=config.key_variable)
    if config.opponent != "pool":
        workers.seat(config.opponent)
    optimizer = make_optimizer(config.optimizer)
    trainer = Trainer(
        workers.model,
        conquer.method_loss(config, config.batch.row_length),
        optimizer,
        temperature=config.temperature,
        training=config.training,
        lora=lora_config(config.adapter),
        mesh=workers.mesh,
        workers=config.batch.workers,
    )
    checkpointer = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
    initial_params = trainer.initial_params(workers.initial_params, config.seed)
    trainer.bound_growth(initial_params)
    read = config.adapter.rank > 0 or conquer.reads_reference(config)
    reference_params = trainer.frozen_params(workers.initial_params) if read else None
    run_ = Run(config, folder, stop, workers, trainer, checkpointer, initial_params, reference_params)
    folder.note_device(workers.device)

    restored = run_.restore()
    state, groups = restored or (
        State(best=run_.initial_params, optimizer=trainer.initial_state(run_.initial_params)),
        _divide(run_),
    )
    if restored is None:
        run_.save(state, groups)
        stop.check()
    stages = plan(groups, list(config.games), config)
    total = sum(iterations(stage, config) for stage in stages)
    for line in _plan_lines(config, groups, stages, total):
        print(line, flush=True)  # noqa: T201 - what a person wants to know before the first step

    with (
        contextlib.closing(workers),
        LiveReport(folder.path, total_steps=total, writes=folder.writes) as live,
        MetricsWriter(folder) as writer,
        Progress(total, start_step=state.steps) as progress,
    ):
        live.refresh()
        while state.stage < len(stages):
            stage = stages[state.stage]
            _train(run_, stage, state, groups, Watched(writer, progress, live))
            own = stage.kind == "single"
            with run_.interruptible(state, groups):
                results.measure_stage(run_, stage.name, state.best, stage.games if own else list(config.games))
                if own:
                    name = stage.games[0]
                    results.final_matches(run_, state.best, stage.games)
                    results.save_policy(run_, state.best, folder.policy / name, folder.adapter / name)
            _close_stage(stages, state, groups)
            run_.save(state, groups)
            stop.check()
        print("final matches", flush=True)  # noqa: T201 - progress
        results.initial_matches(run_)
        if stages[-1].kind != "single":
            results.final_matches(run_, state.best, list(config.games))
            results.save_policy(run_, state.best, folder.policy, folder.adapter)
    folder.finish()
    if folder.writes:
        run_page.build(folder.path)
    results.show(folder)


# ---- divide --------------------------------------------------------------------------------------------------------


def _divide(run_: Run) -> list[Group]:
    """Plays the base model on every game and groups them; writes groups.json and the base rows."""
    config, folder, workers = run_.config, run_.folder, run_.workers
    print(f"base: {config.grouping.trials} games per game id (the first ones compile)", flush=True)  # noqa: T201 - progress
    specs = matches.match_specs(config.games, config.grouping.trials, config.seed, "grouping")
    episodes = workers.play(specs, PolicyWeights(workers.initial_params), "initial")
    folder.append("episodes", [e.record(stage="base", iteration=0, kind="evaluate", reward=None) for e in episodes])
    rows = matches.evaluation_rows(episodes, stage="base", policy="initial", opponent="initial")
    folder.append("evaluations", results.without_opponent(rows, workers))
    measured = {
        game: {"trials": r.decided, "wins": r.win, "start": workers.info[game].start}
        for game, r in matches.by_game(matches.tally(episodes)).items()
    }
    for game, found in measured.items():
        print(f"{game}: {found['start']} start, won {found['wins']} of {found['trials']}", flush=True)  # noqa: T201 - what decides the groups
    groups = group_games(measured, config.grouping)
    if folder.writes:
        record = {"groups": [dataclasses.asdict(g) for g in groups], "measured": measured}
        write_text(folder.groups, json.dumps(record, indent=1))
    return groups


# ---- one stage -----------------------------------------------------------------------------------------------------


def _train(run_: Run, stage: Stage, state: State, groups: list[Group], watched: Watched) -> None:
    """Runs the iterations a stage has left; saves now and then, and when asked to stop."""
    count = iterations(stage, run_.config)
    if state.iteration == 0:
        _begin(run_, stage, state)
    while state.iteration < count:
        metrics, clock = _iterated(run_, stage, state, groups)
        state.iteration += 1
        state.steps += 1
        watched.writer.write(
            step=state.steps, stage=stage.name, iteration=state.iteration, metrics=metrics, clock=clock
        )
        watched.live.refresh()
        watched.progress.update(
            stage=stage.name,
            iteration=state.iteration,
            iterations=count,
            step=state.steps,
            episodes_per_second=clock["episodes_per_second"],
            tokens_per_second=clock["tokens_per_second"],
            win_rates=state.win_rates,
            warning=watched.live.warning,
        )
        stopping = run_.stop.requested is not None
        # The end of a stage is saved after its matches; before them too where these can be stopped.
        due = state.iteration % run_.config.checkpoint.every == 0 if state.iteration < count else stage.kind == "single"
        if stopping or due:
            run_.save(state, groups)
            run_.stop.check()


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


def _begin(run_: Run, stage: Stage, state: State) -> None:
    """Sets the policy a stage starts from and measures it."""
    config, workers = run_.config, run_.workers
    if stage.fuses:
        state.best = _fused(run_, state, stage)
        state.policies = {name: p for name, p in state.policies.items() if name not in stage.fuses}
        name = stage.name.replace("conquer", "fuse")
        rates = results.measure_stage(run_, name, state.best, list(config.games))
    else:
        state.best = run_.initial_params
        games = {game: config.games[game] for game in stage.games}
        specs = matches.match_specs(games, config.acceptance.games, config.seed, f"begin {stage.name}")
        played = workers.play(specs, run_.policy(state.best), "initial")
        label = {"stage": stage.name, "iteration": 0, "kind": "accept", "reward": None}
        run_.folder.append("episodes", (e.record(**label) for e in played))
        rates = conquer.win_rates(played)
    state.optimizer = run_.trainer.initial_state(state.best)
    state.win_rates = {game: rates[game] for game in stage.games}
    state.previous = state.highest = _mean(state.win_rates)


def _fused(run_: Run, state: State, stage: Stage) -> Params:
    """Returns the policies of a stage's groups as one, the policy so far among them unless all are fused at once."""
    settings = run_.config.fusion
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


def _iterated(run_: Run, stage: Stage, state: State, groups: list[Group]) -> tuple[dict[str, float], dict[str, float]]:
    """Runs one iteration, or leaves the run as it was before: saved for a resume, or with its last good policy.

    Raises:
      Interrupted: a stop was asked for. TrainingError: training has diverged; says how to continue.
    """
    try:
        with run_.interruptible(state, groups):
            return _iterate(run_, stage, state)
    except DivergenceError as error:
        why = f"{stage.name}, iteration {state.iteration + 1}: {error}"
    raise results.diverged(run_, state, why)  # here, where the error holds the refused weights no more


# ---- one iteration -------------------------------------------------------------------------------------------------


def _iterate(run_: Run, stage: Stage, state: State) -> tuple[dict[str, float], dict[str, float]]:
    """Runs one iteration of Algorithm 2; returns its metrics and its clock readings."""
    config, folder, workers = run_.config, run_.folder, run_.workers
    begun = time.perf_counter()
    place = (stage.name, state.iteration)
    label = {"stage": stage.name, "iteration": state.iteration + 1}

    # Rollouts of the best policy, rewards (lines 4 to 16).
    seeds = conquer.allocate(stage.games, state.win_rates, config)
    specs = conquer.rollout_specs(seeds, config, *place)
    player = PolicyWeights(workers.initial_params) if stage.kind == "imitate" else run_.policy(state.best)
    opponent, who = opponents.choose(run_, state, derive_seed("opponent", config.seed, *place))
    both = config.train_both_seats and config.opponent == "itself"
    played = workers.play(specs, player, opponent, name=who, both_seats=both)
    conquer.refuse_all_failed(played)
    values = [conquer.reward(e, config.reward) for e in played]
    folder.append("episodes", (e.record(**label, kind="train", reward=v) for e, v in zip(played, values, strict=True)))
    multihost.require_equal("episodes", [(e.token_ids, e.mask) for e in played])
    rolled_out = time.perf_counter()

    # Update from the best policy (lines 17 and 18).
    params, optimizer, losses = _update(run_, stage, state, played, values)
    trained = time.perf_counter()

    # Keep it or drop it, with its optimizer state (lines 19 to 22).
    judged = played
    if config.acceptance.rule != "always":
        games = {game: config.games[game] for game in stage.games}
        purpose = f"accept {stage.name} {state.iteration}"
        fresh = matches.match_specs(games, config.acceptance.games, config.seed, purpose)
        judged = workers.play(fresh, run_.policy(params), "initial")
        folder.append("episodes", (e.record(**label, kind="accept", reward=None) for e in judged))
    rates = conquer.win_rates(judged, state.win_rates)
    win_rate = _mean({game: rates[game] for game in stage.games})
    kept = conquer.accepted(win_rate, state.previous, state.highest, config)
    if kept:
        state.best, state.optimizer = params, optimizer
        state.highest = max(state.highest, win_rate)
    state.previous, state.win_rates = win_rate, {game: rates[game] for game in stage.games}
    opponents.remember(run_, state, who, played)

    seconds = time.perf_counter() - begun
    both_kinds = [*played, *(judged if judged is not played else [])]
    count = len(both_kinds)
    metrics = {
        "win_rate": win_rate,
        "accepted": float(kept),
        "episodes": float(len(played)),
        "failed_episodes": float(sum(e.failed for e in both_kinds)),
        "stopped_episodes": float(sum(not e.failed and not e.counted for e in both_kinds)),
        "generated_tokens": float(sum(e.generated_tokens for e in played)),
        **losses,
        **{f"games/{game}/win_rate": rate for game, rate in state.win_rates.items()},
        **{f"games/{game}/seeds": float(number) for game, number in seeds.items()},
        **conquer.episode_metrics(played, values),
    }
    if run_.missed is not None:  # the first iteration after a fuse says what that missed
        metrics["fusion/missed"], run_.missed = run_.missed, None
    clock = {
        "time": time.time(),
        "seconds": seconds,
        "rollout_seconds": rolled_out - begun,
        "training_seconds": trained - rolled_out,
        "acceptance_seconds": seconds - (trained - begun),
        "episodes_per_second": count / seconds,
        "tokens_per_second": sum(e.generated_tokens for e in played) / seconds,
    }
    return metrics, clock


def _update(
    run_: Run, stage: Stage, state: State, played: Sequence[Episode], values: Sequence[float]
) -> tuple[Params, Any, dict[str, float]]:
    """Returns weights and optimizer state after an iteration's updates, and the updates' metrics."""
    config, trainer = run_.config, run_.trainer
    seed = derive_seed("half negative", config.seed, stage.name, state.iteration)
    if stage.kind == "imitate":
        shares = conquer.won_sequences(played, config, seed)
    else:
        shares = conquer.sequences(played, values, config, seed)
    params, optimizer = state.best, state.optimizer
    reference_params = run_.reference_params if conquer.reads_reference(config) else None
    base_params = None if run_.lora is None else run_.reference_params
    # updates: 0 if all rewards of every group were equal, and there was nothing to learn.
    metrics = {"updates": float(len(shares))}
    rows = config.batch.micro_batch_rows
    batches = [micro_batches(pack(share, config.batch.row_length, rows), rows) for share in shares]
    # Later updates are corrected by what the trainer makes of the weights that sampled; the first one is at them.
    corrects = config.grpo.importance_cap > 0
    proximal = [
        trainer.logprobs(params, batch, base_params=base_params, look=run_.stop.look) if corrects and number else None
        for number, batch in enumerate(batches)
    ]
    kept = True  # the state that the iteration began with
    for number, batch in enumerate(batches):
        # What went in is wanted again if the update is dropped, the start by every group, and the past by a pool.
        donate = number > 0 or (
            config.acceptance.rule == "always" and params is not run_.initial_params and not state.pool
        )
        update = trainer.update(
            params,
            optimizer,
            batch,
            reference_params,
            base_params=base_params,
            proximal=proximal[number],
            donate=donate,
            look=run_.stop.look if kept else None,
        )
        kept = kept and not (number == 0 and donate)
        params, optimizer = update.params, update.optimizer_state
        found = {
            "loss": update.loss,
            "gradient_norm": update.gradient_norm,
            "trained_tokens": update.weight,
            **update.metrics,
        }
        for name, value in found.items():
            metrics[name] = metrics.get(name, 0.0) + value / len(shares)
        if number == 0:  # afterwards the change of the policy comes in
            metrics |= update.sampler_gap
    return params, optimizer, metrics


def _mean(rates: dict[str, float]) -> float:
    return sum(rates.values()) / len(rates)


def _plan_lines(config: DivideFuseConquer, groups: list[Group], stages: list[Stage], total: int) -> list[str]:
    """Returns what is about to happen, in words: differences from the games' own rules, groups, stages, games."""
    lines = []
    for game, options in config.games.items():
        if options:
            changes = ", ".join(f"{name} = {value}" for name, value in options.items())
            lines.append(f"{game} differs from its id's rules: {changes}")
    lines += [f"{group.name} ({group.why()}): {', '.join(group.games)}" for group in groups]
    lines.append(
        f"stages: {' -> '.join(s.name for s in stages)} -> final; {total} iterations on {jax.device_count()} device(s)"
    )
    trained, judged = episodes(stages, config)
    lines.append(f"games: {trained} to train on, {judged} to decide what is kept")
    return lines

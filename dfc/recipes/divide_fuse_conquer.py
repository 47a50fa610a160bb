"""Divide-Fuse-Conquer (arXiv 2505.16401), Algorithm 1 around Algorithm 2; read from top to bottom.

    base      measure the initial policy on every game; group the games by start kind and whether it can win
    divide k  train a policy on group k alone, from the initial policy
    fuse k    average the policy so far with group k's
    conquer k train the average on groups 1 to k
    final     matches on fresh seeds, export, report

How it departs from the paper, beside what `dfc.recipes.conquer` lists:

1. The paper's loop over iterations runs to T - 1; here T iterations mean T updates.
2. Win rates before the first update of a stage come from a measurement on fresh seeds, since Algorithm 2 does not say.

Resume order: 1. the run folder's streams are cut to the checkpoint's sizes; 2. weights, optimizer state and finished
group policies are read; 3. the loop goes on at the checkpoint's stage and iteration. Every random number is derived
from (seed, stage, iteration), so what follows is the same, bit for bit, as without the stop.
"""

import dataclasses
import json
import math
import time
from typing import Any

import jax

from dfc import agreement, fusion
from dfc.config import RunConfig
from dfc.errors import TrainingError
from dfc.evaluation import matches, report, summary
from dfc.games.chance import derive_seed
from dfc.interruption import Stop
from dfc.metrics import MetricsWriter
from dfc.models import huggingface, peft
from dfc.models.lora import LoraConfig, average, merge
from dfc.models.transformer import Adapters, Params
from dfc.progress import Progress
from dfc.recipes import conquer
from dfc.recipes.table import Policy, Table, lora_config
from dfc.run_folder import RunFolder
from dfc.training.checkpoint import Checkpointer
from dfc.training.optimizer import make_optimizer
from dfc.training.packing import micro_batches, pack
from dfc.training.step import Trainer


@dataclasses.dataclass(frozen=True)
class Group:
    """Games that are learned together; `start` and `winnable` are why."""

    name: str
    games: tuple[str, ...]
    start: str
    winnable: bool


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stretch of training: `kind` is divide or conquer; `fuses` is the group averaged in before it, if any."""

    name: str
    kind: str
    games: tuple[str, ...]
    group: Group
    fuses: bool


@dataclasses.dataclass
class State:
    """What a checkpoint holds: where the run is, and the weights it needs from here on."""

    stage: int = 0
    iteration: int = 0
    steps: int = 0
    best: Params = None
    optimizer: Any = None
    policies: dict[str, Params] = dataclasses.field(default_factory=dict)  # finished group policies, not yet fused
    win_rates: dict[str, float] = dataclasses.field(default_factory=dict)
    previous: float = 0.0
    highest: float = 0.0


@dataclasses.dataclass
class Run:
    """What every step of the recipe needs beside the state."""

    config: RunConfig
    folder: RunFolder
    stop: Stop
    table: Table
    trainer: Trainer
    checkpointer: Checkpointer
    start: Params  # the initial policy as the trainer trains it
    reference: Params  # the initial policy as the trainer reads it, or None if it does not
    missed: float | None = None  # share of the last average of adapters that their rank could not hold

    @property
    def lora(self) -> LoraConfig | None:
        """What is trained instead of all weights, if it is."""
        return lora_config(self.config.adapter)

    def policy(self, trained: Params) -> Policy:
        """Returns what plays, from what is trained."""
        played = self.trainer.policy(trained)
        if self.lora is None:
            return Policy(played)
        return Policy(self.table.initial, Adapters(played, self.lora.scale))

    def iterations(self, stage: Stage) -> int:
        """Returns how many iterations a stage has."""
        settings = self.config.divide_fuse_conquer
        return settings.divide_iterations if stage.kind == "divide" else settings.conquer_iterations

    def save(self, state: State, groups: list[Group]) -> None:
        """Writes a checkpoint from which the run goes on exactly here."""
        arrays = {"best": state.best, "optimizer": state.optimizer, "policies": state.policies}
        progress = {
            "positions": self.folder.positions(),
            "groups": [{**dataclasses.asdict(group), "games": list(group.games)} for group in groups],
            "state": {name: value for name, value in vars(state).items() if name not in arrays},
        }
        # Increases from save to save: the end of a stage is iteration 0 of the next.
        self.checkpointer.save(state.stage * (1 << 20) + state.iteration, arrays, progress)


def run(config: RunConfig, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes if the folder holds a checkpoint."""
    if agreement.from_first(folder.report.exists() and (folder.policy / "config.json").exists()):
        print(f"{folder.path} holds this run, finished")  # noqa: T201 - why nothing happens
        _show(folder)
        return
    settings = config.divide_fuse_conquer
    print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
    table = Table(config)
    optimizer = make_optimizer(config.optimizer, total_steps=1)  # constant after warm-up: see dfc.validation
    trainer = Trainer(
        table.model,
        conquer.make_loss(settings.grpo, config.batch.row_length),
        optimizer,
        temperature=config.rollout.sampling.temperature,
        training=config.training,
        lora=lora_config(config.adapter),
        mesh=table.mesh,
        workers=config.batch.workers,
    )
    checkpointer = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
    start = trainer.initial(table.initial, config.seed)
    read = config.adapter.rank > 0 or settings.grpo.kl_coefficient > 0
    reference = trainer.frozen(table.initial) if read else None
    run_ = Run(config, folder, stop, table, trainer, checkpointer, start, reference)
    folder.note_device(table.device)

    restored = _restore(run_)
    state, groups = restored or (
        State(best=run_.start, optimizer=trainer.initial_state(run_.start)),
        _divide(run_),
    )
    if restored is None:
        run_.save(state, groups)
        stop.check()
    stages = plan(groups)
    total = sum(map(run_.iterations, stages))
    for line in _plan_lines(config, groups, stages, total):
        print(line, flush=True)  # noqa: T201 - what a person wants to know before the first step

    with MetricsWriter(folder) as writer, Progress(total, start_step=state.steps) as progress:
        while state.stage < len(stages):
            _train(run_, stages[state.stage], state, groups, writer, progress)
            _measure_stage(run_, stages[state.stage].name, state.best)
            _close_stage(stages, state, groups)
            run_.save(state, groups)
            stop.check()

    print("final matches", flush=True)  # noqa: T201 - progress
    _final(run_, state.best)
    _save_policy(run_, state.best)
    if folder.writes:
        report.build(folder.path)
    _show(folder)


def _show(folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    for line in summary.lines(folder.path):
        print(line)  # noqa: T201 - the result
    if folder.adapter.exists():
        print(f"adapter: {folder.adapter}")  # noqa: T201 - where to look
    print(f"policy: {folder.policy}\nreport: {folder.report}", flush=True)  # noqa: T201 - where to look


# ---- restore -------------------------------------------------------------------------------------------------------


def _restore(run_: Run) -> tuple[State, list[Group]] | None:
    """Returns the state and groups of the newest checkpoint; without one, empties the streams and returns None."""
    initial, trainer = run_.start, run_.trainer
    restored = run_.checkpointer.restore(like=lambda saved: _template(saved, initial, trainer))
    if restored is None:
        run_.folder.rewind(dict.fromkeys(run_.folder.positions(), 0))
        return None
    run_.folder.rewind(restored.progress["positions"])
    state = restored.progress["state"]
    print(f"going on behind step {state['steps']}; records after it are made again", flush=True)  # noqa: T201 - progress
    groups = [Group(g["name"], tuple(g["games"]), g["start"], g["winnable"]) for g in restored.progress["groups"]]
    return State(**restored.progress["state"], **restored.arrays), groups


def _template(saved: dict[str, Any], params: Params, trainer: Trainer) -> dict[str, Any]:
    """Returns arrays of the structure, types and placement that a checkpoint's arrays are to have."""
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return {
        "best": like,
        "optimizer": trainer.abstract_state(params),
        "policies": dict.fromkeys(saved["policies"], like),
    }


# ---- divide --------------------------------------------------------------------------------------------------------


def _divide(run_: Run) -> list[Group]:
    """Plays the base model on every id and groups them; writes groups.json and the base rows."""
    config, folder, table = run_.config, run_.folder, run_.table
    settings = config.divide_fuse_conquer
    print(f"base: {settings.grouping.trials} games per id (the first ones compile)", flush=True)  # noqa: T201 - progress
    jobs = matches.match_jobs(config.games, settings.grouping.trials, config.seed, "grouping")
    episodes = table.play(jobs, Policy(table.initial), "initial")
    folder.append("episodes", [e.record(stage="base", iteration=0, kind="evaluate", reward=None) for e in episodes])
    counts = matches.tally(episodes)
    rows = matches.evaluation_rows(counts, stage="base", policy="initial", opponent="initial")
    folder.append("evaluations", _without_opponent(rows, table))
    measured = {
        game: {"trials": r.games, "wins": r.win, "start": table.facts[game].start}
        for game, r in matches.by_game(counts).items()
    }
    groups = group_games(measured, settings.grouping.winnable_above)
    if folder.writes:
        folder.groups.write_text(
            json.dumps({"groups": [dataclasses.asdict(g) for g in groups], "measured": measured}, indent=1)
        )
    return groups


def group_games(measured: dict[str, dict[str, Any]], winnable_above: float) -> list[Group]:
    """Returns the non-empty groups in the paper's order: fixed start before random, not winnable before winnable.

    Args:
      measured: id -> trials, wins and start kind.
      winnable_above: a game counts as winnable if wins / trials is above this (the paper: 0).
    """
    groups: list[Group] = []
    for start in ("fixed", "random"):
        for winnable in (False, True):
            games = tuple(
                game
                for game, m in measured.items()
                if m["start"] == start and (m["wins"] / m["trials"] > winnable_above) == winnable
            )
            if games:
                groups.append(Group(f"g{len(groups) + 1}", games, start, winnable))
    return groups


def plan(groups: list[Group]) -> list[Stage]:
    """Returns the stages of Algorithm 1: one divide per group, then a fuse and a conquer for every group but one."""
    stages = [Stage(f"divide {g.name}", "divide", g.games, g, fuses=False) for g in groups]
    for count in range(2, len(groups) + 1):
        joined = groups[:count]
        games = tuple(game for g in joined for game in g.games)
        name = "conquer " + "+".join(g.name for g in joined)
        stages.append(Stage(name, "conquer", games, joined[-1], fuses=True))
    return stages


# ---- one stage -----------------------------------------------------------------------------------------------------


def _train(
    run_: Run, stage: Stage, state: State, groups: list[Group], writer: MetricsWriter, progress: Progress
) -> None:
    """Runs the iterations a stage has left; saves now and then, and when asked to stop."""
    iterations = run_.iterations(stage)
    if state.iteration == 0:
        _begin(run_, stage, state)
    while state.iteration < iterations:
        metrics, clock = _iterate(run_, stage, state)
        state.iteration += 1
        state.steps += 1
        writer.write(step=state.steps, stage=stage.name, iteration=state.iteration, metrics=metrics, clock=clock)
        progress.update(
            stage=stage.name,
            iteration=state.iteration,
            iterations=iterations,
            step=state.steps,
            episodes_per_second=clock["episodes_per_second"],
            tokens_per_second=clock["tokens_per_second"],
            win_rates=state.win_rates,
        )
        stopping = run_.stop.requested is not None
        if state.iteration < iterations and (stopping or state.iteration % run_.config.checkpoint.every == 0):
            run_.save(state, groups)
            run_.stop.check()


def _close_stage(stages: list[Stage], state: State, groups: list[Group]) -> None:
    """Keeps a finished group policy, and goes to the next stage."""
    stage = stages[state.stage]
    state.stage, state.iteration = state.stage + 1, 0
    if stage.kind == "divide":
        state.policies = {**state.policies, stage.group.name: state.best}
        if state.stage == len(groups):  # every group has its policy: Algorithm 1, line 7
            state.best = state.policies.pop(groups[0].name)


def _begin(run_: Run, stage: Stage, state: State) -> None:
    """Sets the policy a stage starts from and measures it."""
    config, table = run_.config, run_.table
    if stage.fuses:
        state.best = _fused(run_, state.best, state.policies[stage.group.name])
        state.policies = {name: p for name, p in state.policies.items() if name != stage.group.name}
        rates = _measure_stage(run_, stage.name.replace("conquer", "fuse"), state.best)
    else:
        state.best = run_.start
        games = {game: config.games[game] for game in stage.games}
        jobs = matches.match_jobs(
            games, config.divide_fuse_conquer.acceptance.games, config.seed, f"begin {stage.name}"
        )
        episodes = table.play(jobs, run_.policy(state.best), "initial")
        label = {"stage": stage.name, "iteration": 0, "kind": "accept", "reward": None}
        run_.folder.append("episodes", (e.record(**label) for e in episodes))
        rates = conquer.win_rates(episodes)
    state.optimizer = run_.trainer.initial_state(state.best)
    state.win_rates = {game: rates[game] for game in stage.games}
    state.previous = state.highest = _mean(state.win_rates)


def _fused(run_: Run, policy: Params, other: Params) -> Params:
    """Returns the average of two policies; of adapted ones the nearest of the same rank, noting what that misses."""
    if run_.lora is None:
        return fusion.average(policy, other)
    adapters, run_.missed = average(policy, other)
    return adapters


def _save_policy(run_: Run, trained: Params) -> None:
    """Writes the final policy; with adapters the merged model at full precision, and the adapters as PEFT has them."""
    table, folder, lora = run_.table, run_.folder, run_.lora
    policy = run_.policy(trained)
    params = policy.params
    if lora is not None and policy.adapters is not None:
        adapters = policy.adapters.weights
        if run_.config.adapter.base != "full":  # the files have what four bits have lost
            table.close()
            run_.reference = run_.start = None  # room for the whole model
            _, params = huggingface.load(table.source, mesh=table.mesh, dtype=run_.config.model.dtype)
        params = merge(params, adapters, lora.scale)
        if huggingface.reads_images(table.source):
            print("adapter/ is left out: PEFT would look for the image model's names; policy/ has it merged")  # noqa: T201 - why a folder is missing
        else:
            peft.save_adapter(folder.adapter, lora, adapters, table.model, run_.config.model.path)
    huggingface.save(folder.policy, table.model, params, copy_from=table.source)


def _iterate(run_: Run, stage: Stage, state: State) -> tuple[dict[str, float], dict[str, float]]:
    """Runs one iteration of Algorithm 2; returns its metrics and its clock readings."""
    config, folder, table, trainer = run_.config, run_.folder, run_.table, run_.trainer
    settings = config.divide_fuse_conquer
    begun = time.perf_counter()
    place = (stage.name, state.iteration)
    label = {"stage": stage.name, "iteration": state.iteration + 1}

    # Rollouts of the best policy, rewards (lines 4 to 16).
    seeds = conquer.allocate(stage.games, state.win_rates, settings)
    jobs = conquer.rollout_jobs(seeds, config.games, settings, config.seed, *place)
    episodes = table.play(jobs, run_.policy(state.best), settings.opponent)
    values = [conquer.reward(e, settings.reward) for e in episodes]
    folder.append(
        "episodes", (e.record(**label, kind="train", reward=v) for e, v in zip(episodes, values, strict=True))
    )
    agreement.refuse_divergence("episodes", [(e.ids, e.mask) for e in episodes])
    played = time.perf_counter()

    # Update from the best policy (lines 17 and 18).
    shares = conquer.sequences(episodes, values, settings, derive_seed("half negative", config.seed, *place))
    params, optimizer = state.best, state.optimizer
    reference = run_.reference if settings.grpo.kl_coefficient > 0 else None
    base = None if run_.lora is None else run_.reference
    losses: dict[str, float] = {}
    gap: dict[str, float] = {}
    rows = config.batch.micro_batch_rows
    batches = [micro_batches(pack(share, config.batch.row_length, rows), rows) for share in shares]
    # Later updates are corrected by what the trainer makes of the weights that sampled; the first one is at them.
    corrects = settings.grpo.importance_cap > 0
    proximal = [trainer.logprobs(params, b, base=base) if corrects and n else None for n, b in enumerate(batches)]
    for number, batch in enumerate(batches):
        update = trainer.update(
            params,
            optimizer,
            batch,
            reference,
            base=base,
            proximal=proximal[number],
            # What went in is wanted again if the update is dropped, and the start by every group.
            donate=number > 0 or (settings.acceptance.rule == "always" and state.iteration > 0),
        )
        if not (math.isfinite(update.loss) and math.isfinite(update.gradient_norm)):
            raise TrainingError(
                f"{stage.name}, iteration {state.iteration + 1}: "
                f"loss {update.loss}, gradient norm {update.gradient_norm}; "
                "lower optimizer.learning_rate in a new run folder; the last checkpoint is untouched"
            )
        params, optimizer = update.params, update.optimizer_state
        found = {
            "loss": update.loss,
            "gradient_norm": update.gradient_norm,
            "trained_ids": update.weight,
            **update.metrics,
        }
        losses = {name: losses.get(name, 0.0) + value / len(shares) for name, value in found.items()}
        gap = gap or update.sampler_gap  # of the first: afterwards the change of the policy comes in
    trained = time.perf_counter()

    # Keep it or drop it, with its optimizer state (lines 19 to 22).
    judged = episodes
    if settings.acceptance.rule != "always":
        games = {game: config.games[game] for game in stage.games}
        purpose = f"accept {stage.name} {state.iteration}"
        fresh = matches.match_jobs(games, settings.acceptance.games, config.seed, purpose)
        judged = table.play(fresh, run_.policy(params), "initial")
        folder.append("episodes", (e.record(**label, kind="accept", reward=None) for e in judged))
    rates = conquer.win_rates(judged)
    win_rate = _mean({game: rates[game] for game in stage.games})
    kept = conquer.accepted(win_rate, state.previous, state.highest, settings)
    if kept:
        state.best, state.optimizer = params, optimizer
        state.highest = max(state.highest, win_rate)
    state.previous, state.win_rates = win_rate, {game: rates[game] for game in stage.games}

    seconds = time.perf_counter() - begun
    metrics = {
        "win_rate": win_rate,
        "accepted": float(kept),
        "episodes": float(len(episodes)),
        "failed_episodes": float(sum(e.failed for e in [*episodes, *(judged if judged is not episodes else [])])),
        **gap,
        "updates": float(len(shares)),  # 0: all rewards of every group were equal, and there was nothing to learn
        "generated_ids": float(sum(e.drawn for e in episodes)),
        **losses,
        **{f"games/{game}/win_rate": rate for game, rate in state.win_rates.items()},
        **{f"games/{game}/seeds": float(count) for game, count in seeds.items()},
        **conquer.episode_metrics(episodes, values),
    }
    if run_.missed is not None:  # the first iteration behind a fuse says what that missed
        metrics["fusion/missed"], run_.missed = run_.missed, None
    clock = {
        "time": time.time(),
        "seconds": seconds,
        "rollout_seconds": played - begun,
        "training_seconds": trained - played,
        "acceptance_seconds": seconds - (trained - begun),
        "episodes_per_second": (len(episodes) + (len(judged) if judged is not episodes else 0)) / seconds,
        "tokens_per_second": sum(e.drawn for e in episodes) / seconds,
    }
    return metrics, clock


def _measure_stage(run_: Run, name: str, params: Params) -> dict[str, float]:
    """Plays every id against the initial policy for the table of stages; returns the win rates."""
    config, folder, table = run_.config, run_.folder, run_.table
    jobs = matches.match_jobs(config.games, config.evaluation.stage_games, config.seed, f"stage {name}")
    episodes = table.play(jobs, run_.policy(params), "initial")
    folder.append("episodes", (e.record(stage=name, iteration=0, kind="evaluate", reward=None) for e in episodes))
    rows = matches.evaluation_rows(matches.tally(episodes), stage=name, policy="stage", opponent="initial")
    folder.append("evaluations", _without_opponent(rows, table))
    return conquer.win_rates(episodes)


# ---- final ---------------------------------------------------------------------------------------------------------


def _final(run_: Run, params: Params) -> None:
    """Plays the final and the initial policy against the initial one and against a random legal player."""
    config, folder, table = run_.config, run_.folder, run_.table
    two_seats = {game: options for game, options in config.games.items() if table.facts[game].seats > 1}
    for policy, weights in (("initial", Policy(table.initial)), ("final", run_.policy(params))):
        for opponent, games in (("initial", config.games), ("random_legal", two_seats)):
            run_.stop.check()  # the final matches are played anew after a stop
            jobs = matches.match_jobs(games, config.evaluation.games, config.seed, f"final {opponent}")
            episodes = table.play(jobs, weights, opponent)
            record = {"stage": "final", "iteration": 0, "kind": "evaluate", "reward": None}
            folder.append("episodes", (e.record(policy=policy, **record) for e in episodes))
            counts = matches.tally(episodes)
            rows = matches.evaluation_rows(counts, stage="final", policy=policy, opponent=opponent)
            folder.append("evaluations", _without_opponent(rows, table))
    folder.flush()


def _without_opponent(rows: list[dict[str, Any]], table: Table) -> list[dict[str, Any]]:
    return [{**row, "opponent": "none"} if table.facts[row["game"]].seats == 1 else row for row in rows]


def _mean(rates: dict[str, float]) -> float:
    return sum(rates.values()) / len(rates)


def _plan_lines(config: RunConfig, groups: list[Group], stages: list[Stage], total: int) -> list[str]:
    """Returns what is about to happen, in words: differences from the ids' rules, groups, stages."""
    lines = []
    for game, options in config.games.items():
        if options:
            changes = ", ".join(f"{name} = {value}" for name, value in options.items())
            lines.append(f"{game} differs from its id's rules: {changes}")
    for group in groups:
        kind = f"{group.start} start, {'can' if group.winnable else 'cannot'} be won by the base model"
        lines.append(f"{group.name} ({kind}): {', '.join(group.games)}")
    lines.append(
        f"stages: {' -> '.join(s.name for s in stages)} -> final; {total} iterations on {jax.device_count()} device(s)"
    )
    return lines

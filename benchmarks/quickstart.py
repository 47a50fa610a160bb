"""How fast the quickstart plays and trains on this machine, where the time goes, and how far from the limit it is.

    python benchmarks/quickstart.py [--iterations=3] [--games=256] [--model=FOLDER] [--quick]

Measured: iterations of Divide-Fuse-Conquer as `configs/quickstart.py` shapes them, all its games in one stage:
rollouts, rewards and packing, the update with its reference forward, the games that judge the update. Left out: writing
records and checkpoints, which is little; and the second worker of the quickstart, so that shares of time sum to one.

The limit: at these sizes weights and caches stay in the processor's own caches, so that arithmetic is the bound, not
memory. The limit is the rate of dense float32 matrix products between the model's width and its feed-forward width,
measured here, the best of three row counts. Useful operations: 2 per weight of a layer and token processed, 2 per
weight of the output projection and token generated; training: 3 times that (6 per weight) plus once for the reference,
on the tokens and action tokens of episodes, padding not counted. Attention's own products, norms and sampling are not
counted, so that the fractions err on the low side.

How time is attributed: a call of the engine either prefills or decodes. Its seconds run from its dispatch until its
results are ready, waited for here one by one, so that no call hides another. What else passes while games are
played is the host's: rules, rendering, tokenizing, the engine's book-keeping; in a run that does not wait, part of it
passes while the device works.

The baseline: the same games of TicTacToe (same weights, same random numbers), 64 at once, played as one does with a
model and a ``generate`` function: at each turn the whole conversation is prefilled again into an empty cache. Its batch
is refilled as games end, and its rows are padded to the next multiple of 32 tokens only. The share of games that came
out reply for reply alike is printed: both sides do the same work.

Fixed seeds; everything is compiled and run once before the clock starts; medians with the smallest and largest value.
"""

import argparse
import dataclasses
import functools
import json
import runpy
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

import dfc
from dfc.config import DivideFuseConquer, SamplingConfig
from dfc.configs.quickstart import get_config
from dfc.episodes import Episode
from dfc.evaluation import matches
from dfc.games import registry
from dfc.games.game import Game
from dfc.games.rng import derive_seed
from dfc.inference.engine import Engine
from dfc.inference.sampling import filters_of, row_sampling, sample_tokens, uniforms
from dfc.models.cache import empty_cache
from dfc.models.config import DecoderConfig
from dfc.models.transformer import Params, bind
from dfc.packing import empty_batch, packed
from dfc.rollout.host import PolicyWeights
from dfc.rollout.runner import EpisodeSpec
from dfc.rollout.workers import RolloutWorkers
from dfc.samples import TokenBatch
from dfc.scoring.episode_rewards import reward
from dfc.training import game_plan, rl
from dfc.training.optimizer import make_optimizer
from dfc.training.trainer import Trainer

BASELINE_GAME = "TicTacToe-v0"
BASELINE_ROWS = 64
BASELINE_MULTIPLE = 32


# ---- clocks --------------------------------------------------------------------------------------------------------


class TimedEngine(Engine):
    """An engine that waits for every call and knows how many of its seconds were prefill."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - passed on as they are
        super().__init__(*arguments, **settings)
        self.seconds = self.prefill_seconds = 0.0

    def launch(self) -> bool:
        """Runs one call to its end and sums its seconds."""
        begun = time.perf_counter()
        launched = super().launch()
        if launched:
            call = self._flight[-1]
            call.results[0].block_until_ready()  # the outputs of a program are ready together
            spent = time.perf_counter() - begun
            self.seconds += spent
            self.prefill_seconds += 0.0 if call.decodes else spent
        return launched


class Compilations:
    """Counts the programs XLA compiles."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: object) -> None:  # noqa: ARG002 - JAX names it
        self.count += event == "/jax/core/compile/backend_compile_duration"


# ---- the method ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sample:
    """One iteration: wall seconds by part, and counts.

    Attributes:
      seconds: of the whole iteration.
      play: of both series of games; calls and prefill: parts of it.
      train: of the update, reference forward included.
      episodes, calls_made, processed_tokens, generated_tokens, computed: of both series and both seats; `computed`
        counts padding, too.
      trained_tokens: of the episodes trained on; actions: those that carry loss.
    """

    seconds: float
    play: float
    calls: float
    prefill: float
    train: float
    episodes: int
    calls_made: int
    processed_tokens: int
    generated_tokens: int
    computed: int
    trained_tokens: int
    actions: int


class Method:
    """Iterations of the recipe on all games, every update kept."""

    def __init__(self, config: DivideFuseConquer) -> None:
        self.config = config
        with mock.patch("dfc.rollout.host.Engine", TimedEngine):
            self.workers = RolloutWorkers(config, sampling=config.sampling)
        loss = rl.make_loss(config.grpo, config.batch.row_length)
        optimizer = make_optimizer(config.optimizer)
        self.trainer = Trainer(self.workers.host.model, loss, optimizer, training=config.training)
        self.params: Params = self.workers.initial_params
        self.optimizer = self.trainer.initial_state(self.params)
        self.rates = dict.fromkeys(config.games, 0.5)
        self.reference_params = self.workers.initial_params if config.grpo.kl_coefficient > 0 else None

    @property
    def engines(self) -> list[TimedEngine]:
        """Every worker's."""
        return [engine for engine in self.workers.engines if isinstance(engine, TimedEngine)]

    def totals(self) -> np.ndarray:
        """What the engines have done: device seconds, prefill seconds, calls, tokens processed, generated, computed."""
        rows = [
            (
                e.seconds,
                e.prefill_seconds,
                e.counts.calls,
                e.counts.processed_tokens,
                e.counts.generated_tokens,
                e.counts.computed,
            )
            for e in self.engines
        ]
        return np.asarray(rows, np.float64).sum(axis=0)  # type: ignore[no-any-return]  # numpy's sum is Any

    def update(self, batches: Sequence[TokenBatch]) -> None:
        """Runs one update and keeps it."""
        done = self.trainer.update(self.params, self.optimizer, batches, self.reference_params)
        self.params, self.optimizer = done.params, done.optimizer_state

    def iterate(self, iteration: int) -> Sample:
        """Runs one iteration."""
        config = self.config
        before, begun = self.totals(), time.perf_counter()
        seeds = game_plan.allocate(tuple(config.games), self.rates, config)
        specs = game_plan.rollout_specs(seeds, config, "benchmark", iteration)
        episodes, play = timed(lambda: self.workers.play(specs, PolicyWeights(self.params), config.opponent))
        values = [reward(episode, config.reward) for episode in episodes]
        shares = rl.sequences(episodes, values, config, derive_seed("benchmark", config.seed, iteration))
        rows = config.batch.micro_batch_rows
        train, trained_tokens, actions = 0.0, 0, 0
        for share in shares:
            batches = packed(share, config.batch.row_length, rows, self.trainer.halves)
            train += timed(lambda batches=batches: self.update(batches))[1]
            trained_tokens += sum(int((batch.segments > 0).sum()) for batch in batches)
            actions += sum(int(batch.mask.sum()) for batch in batches)
        judges = matches.match_specs(config.games, config.acceptance.games, config.seed, f"benchmark {iteration}")
        judged, more = timed(lambda: self.workers.play(judges, PolicyWeights(self.params), "initial"))
        self.rates = rl.win_rates(judged)
        seconds = time.perf_counter() - begun
        calls, prefill, *counts = (self.totals() - before).tolist()
        calls_made, processed_tokens, generated_tokens, computed = map(int, counts)
        return Sample(
            seconds=seconds,
            play=play + more,
            calls=calls,
            prefill=prefill,
            train=train,
            episodes=len(episodes) + len(judged),
            calls_made=calls_made,
            processed_tokens=processed_tokens,
            generated_tokens=generated_tokens,
            computed=computed,
            trained_tokens=trained_tokens,
            actions=actions,
        )

    def warm_up(self) -> None:
        """Runs every program once, with fresh and with updated weights, then one iteration."""
        batch = self.config.batch
        for divisor in (1, 2, 4):  # the shares of action tokens that programs are compiled for
            empty = empty_batch(batch.micro_batch_rows, batch.row_length)
            empty.segments[:] = 1
            empty.mask.reshape(-1)[: empty.mask.size // divisor] = 1
            self.update([empty, empty])
        for params in (self.workers.initial_params, self.params):
            for engine in self.engines:
                engine.set_params(params, engine.version() + 1)
                engine.warm_up()
        self.params, self.optimizer = (
            self.workers.initial_params,
            self.trainer.initial_state(self.workers.initial_params),
        )
        self.iterate(-1)


# ---- the baseline --------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("config", "sampling", "room"))
def prefill_all(
    params: Params,
    tokens: jax.Array,
    lengths: jax.Array,
    uniform: jax.Array,
    *,
    config: DecoderConfig,
    sampling: SamplingConfig,
    room: int,
) -> tuple[jax.Array, Any]:
    """Prefills whole conversations [B, T] into an empty cache with `room` positions more; samples one token per row."""
    rows, width = tokens.shape
    cache = empty_cache(config, rows, width + room)
    return _sample_next(params, tokens, jnp.zeros_like(lengths), lengths - 1, cache, uniform, config, sampling)


@functools.partial(jax.jit, static_argnames=("config", "sampling"), donate_argnames=("cache",))
def decode_one(
    params: Params,
    tokens: jax.Array,
    start: jax.Array,
    cache: Any,  # noqa: ANN401 - a pytree
    uniform: jax.Array,
    *,
    config: DecoderConfig,
    sampling: SamplingConfig,
) -> tuple[jax.Array, Any]:
    """Decodes one token per row [B, 1] after `start` and samples the next."""
    return _sample_next(params, tokens, start, jnp.zeros_like(start), cache, uniform, config, sampling)


def _sample_next(
    params: Params,
    tokens: jax.Array,
    start: jax.Array,
    last: jax.Array,
    cache: Any,  # noqa: ANN401 - a pytree
    uniform: jax.Array,
    config: DecoderConfig,
    sampling: SamplingConfig,
) -> tuple[jax.Array, Any]:
    model = bind(config, params)
    hidden, cache = model.extend(tokens, start, cache)
    final = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
    logits = jnp.matmul(final, model.output_embedding.T, preferred_element_type=jnp.float32)
    rows = row_sampling([sampling] * len(start))
    return sample_tokens(logits, uniform, rows, filters_of([sampling]))[0], cache


@dataclasses.dataclass
class PlainSeat:
    """One seat's conversation."""

    seed: int
    token_ids: list[int] = dataclasses.field(default_factory=list)
    closed: bool = False


@dataclasses.dataclass
class PlainGame:
    """One game in progress or over."""

    game: Game
    seats: list[PlainSeat]
    said: list[str] = dataclasses.field(default_factory=list)


class Baseline:
    """Plays games by prefilling the whole conversation at every turn."""

    def __init__(self, workers: RolloutWorkers, config: DivideFuseConquer) -> None:
        self.tokenizer = workers.host.tokenizer
        self.model = workers.host.model
        self.rollout = config.rollout
        self.sampling = config.sampling
        self.stop_token_ids = workers.host.tokenizer.stop_token_ids(config.rollout.stop)
        self.processed_tokens = 0

    def play(self, specs: Sequence[EpisodeSpec], params: Params) -> list[PlainGame]:
        """Returns the finished games in the order of the specs."""
        games = list(map(self._seat, specs))
        waiting: Iterator[PlainGame] = iter(games)
        playing: list[PlainGame] = []
        while True:
            while len(playing) < BASELINE_ROWS and (game := next(waiting, None)) is not None:
                playing.append(game)
            if not playing:
                return games
            seats = [self._listen(game) for game in playing]
            for game, seat, reply in zip(playing, seats, self._generate(params, seats), strict=True):
                seat.token_ids += reply
                seat.closed = reply[-1] in self.tokenizer.end_token_ids
                text = self.tokenizer.decode(reply[:-1] if seat.closed else reply)
                game.said.append(text)
                game.game.step(text)
            playing = [game for game in playing if not game.game.over]

    def _seat(self, spec: EpisodeSpec) -> PlainGame:
        game = registry.make(spec.game, **spec.options)
        game.reset(spec.game_seed)
        return PlainGame(game, [PlainSeat(derive_seed("ids", spec.seed, seat)) for seat in range(game.seats)])

    def _listen(self, game: PlainGame) -> PlainSeat:
        mover = game.game.to_move
        if mover is None:
            raise AssertionError("a game that is over is not played on")
        seat, text = game.seats[mover], game.game.observation(mover)
        if seat.token_ids:
            seat.token_ids += self.tokenizer.next_turn(text, closed=seat.closed)
        else:
            seat.token_ids += self.tokenizer.first_turn(text)
        return seat

    def _generate(self, params: Params, seats: Sequence[PlainSeat]) -> list[list[int]]:
        longest = max(len(seat.token_ids) for seat in seats)
        width = -(-longest // BASELINE_MULTIPLE) * BASELINE_MULTIPLE
        tokens = np.zeros((BASELINE_ROWS, width), np.int32)
        lengths = np.ones(BASELINE_ROWS, np.int32)
        seeds = np.zeros(BASELINE_ROWS, np.uint64)
        for row, seat in enumerate(seats):
            tokens[row, : len(seat.token_ids)] = seat.token_ids
            lengths[row], seeds[row] = len(seat.token_ids), seat.seed
            self.processed_tokens += len(seat.token_ids)
        settings = {"config": self.model, "sampling": self.sampling}
        room = self.rollout.max_reply_length
        token_ids, cache = prefill_all(
            params, tokens, lengths, uniforms(seeds, lengths.astype(np.uint64)), room=room, **settings
        )
        replies: list[list[int]] = [[] for _ in seats]
        open_ = set(range(len(seats)))
        for index in range(room):
            host = np.asarray(token_ids)
            for row in list(open_):
                replies[row].append(int(host[row]))
                if replies[row][-1] in self.stop_token_ids:
                    open_.remove(row)
            if not open_ or index == room - 1:
                break
            self.processed_tokens += len(open_)
            later = uniforms(seeds, (lengths + index + 1).astype(np.uint64))
            token_ids, cache = decode_one(params, host[:, None], lengths + np.int32(index), cache, later, **settings)
        return replies


def alike(episodes: Sequence[Episode], games: Sequence[PlainGame]) -> float:
    """Returns the share of games in which every reply is the same on both sides."""
    same = [[r.text for r in episode.replies] == game.said for episode, game in zip(episodes, games, strict=True)]
    return sum(same) / len(same)


# ---- the limit -----------------------------------------------------------------------------------------------------


def matmul_rate(rows: int, width: int, wide: int) -> float:
    """Returns the best rate, in operations per second, of products [rows, width] x [width, wide] and back."""
    pairs = max(8, (1 << 15) // rows)
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (rows, width))
    up = jax.random.normal(keys[1], (width, wide)) / width**0.5
    down = jax.random.normal(keys[2], (wide, width)) / wide**0.5

    @jax.jit
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(pairs):
            x = (x @ up) @ down
        return x

    seconds = [timed(lambda: chain(x).block_until_ready())[1] for _ in range(20)]
    return 4 * rows * width * wide * pairs / min(seconds)  # the first call compiles and is never the fastest


# ---- the report ----------------------------------------------------------------------------------------------------


def timed(work: Any) -> tuple[Any, float]:  # noqa: ANN401 - whatever the work returns
    """Returns the result of some work and its wall seconds."""
    begun = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begun


def figures(sample: Sample, model: DecoderConfig, params: Params, limit: float) -> dict[str, float]:
    """Returns the rates, shares and fractions of one iteration."""
    embedding = model.vocabulary * model.width
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    body = total - embedding * (1 if model.tied_embedding else 2)
    played = 2 * (body * sample.processed_tokens + embedding * sample.generated_tokens)
    trained = 8 * (body * sample.trained_tokens + embedding * sample.actions)
    s = sample.seconds
    return {
        "seconds": s,
        "episodes_per_second": sample.episodes / s,
        "generated_tokens_per_second": sample.generated_tokens / s,
        "processed_tokens_per_second": sample.processed_tokens / s,
        "trained_tokens_per_second": sample.trained_tokens / s,
        "share_decode": (sample.calls - sample.prefill) / s,
        "share_prefill": sample.prefill / s,
        "share_host": (sample.play - sample.calls) / s,
        "share_training": sample.train / s,
        "share_other": (s - sample.play - sample.train) / s,
        "milliseconds_per_call": 1e3 * sample.calls / sample.calls_made,
        "processed_of_computed": sample.processed_tokens / sample.computed,
        "processed_tokens_per_call_second": sample.processed_tokens / sample.calls,
        "trained_tokens_per_training_second": sample.trained_tokens / sample.train,
        "engine_of_limit": played / sample.calls / limit,
        "training_of_limit": trained / sample.train / limit,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def print_table(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Prints one line per figure."""
    print(f"\n{title:34}{'median':>12}{'min':>12}{'max':>12}")
    for name, row in rows.items():
        print(f"{name.replace('_', ' '):34}" + "".join(f"{row[key]:12,.4g}" for key in ("median", "min", "max")))


def measured_config(model: str | None, *, quick: bool) -> DivideFuseConquer:
    """Returns the quickstart's configuration with one worker: parts of an iteration follow each other, shares sum to 1.

    Args:
      model: a folder; None: the quickstart's own.
      quick: with few games, few of them at once.
    """
    config = get_config()
    config = dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, workers=1))
    if quick:
        few, slots = dataclasses.replace(config.acceptance, games=4), dataclasses.replace(config.rollout, slots=8)
        config = dataclasses.replace(config, groups_per_game=2, acceptance=few, rollout=slots)
    if model is not None:
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, path=model))
    return config


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Measures the quickstart's iterations, their limit and a baseline.")
    parser.add_argument("--iterations", type=int, default=3, help="measured iterations, and matches of both sides")
    parser.add_argument("--games", type=int, default=256, help="games of a match")
    parser.add_argument("--model", default=None, help="a model folder instead of the quickstart's")
    parser.add_argument("--quick", action="store_true", help="one small iteration, few games, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.iterations, options.games = 1, 16
    # What `python -m dfc.launch` does first; run by name, since nothing imports the command line.
    runpy.run_module("dfc.launch.memory")["keep_freed_memory"]()
    config = measured_config(options.model, quick=options.quick)

    compilations = Compilations()
    method = Method(config)
    workers = method.workers
    baseline = Baseline(workers, config)
    # The purpose decides the seeds of the games: it stays as it is.
    specs = matches.match_specs({BASELINE_GAME: {}}, options.games, config.seed, "benchmark rival")
    _, warm_up = timed(method.warm_up)
    baseline.play(specs, workers.initial_params)
    programs = compilations.count
    print(f"{workers.host.device}; warm-up: {programs} programs compiled, {warm_up:.0f} s", flush=True)

    samples = [method.iterate(iteration) for iteration in range(options.iterations)]
    ours, theirs, processed_tokens, baseline_tokens, same = [], [], 0, 0, 1.0
    for _ in range(options.iterations):
        before, baseline.processed_tokens = method.totals()[3], 0
        episodes, seconds = timed(lambda: workers.play(specs, PolicyWeights(workers.initial_params), "itself"))
        ours.append(seconds)
        processed_tokens = int(method.totals()[3] - before)
        games, seconds = timed(lambda: baseline.play(specs, workers.initial_params))
        theirs.append(seconds)
        baseline_tokens, same = baseline.processed_tokens, min(same, alike(episodes, games))
    late = compilations.count - programs

    model, rows = workers.host.model, config.batch.micro_batch_rows * config.batch.row_length
    rates = {n: matmul_rate(n, model.width, model.feed_forward) for n in (config.rollout.slots, 512, rows)}
    limit = max(rates.values())
    found = [figures(sample, model, workers.initial_params, limit) for sample in samples]
    result = {name: spread([f[name] for f in found]) for name in found[0]}
    match = {
        "games_per_second": spread([options.games / s for s in ours]),
        "plain_games_per_second": spread([options.games / s for s in theirs]),
        "times_faster": spread([b / a for a, b in zip(ours, theirs, strict=True)]),
    }
    print_table("iteration of the quickstart", result)
    print_table(f"{options.games} games of {BASELINE_GAME}", match)
    print(f"tokens processed: {processed_tokens:,}, plain {baseline_tokens:,}; games alike reply for reply: {same:.1%}")
    shown = ", ".join(f"{rate / 1e9:.1f} at {n} rows" for n, rate in rates.items())
    print(f"limit, float32 products of {model.width} x {model.feed_forward}, 1e9 operations per second: {shown}")
    print(f"compilations after warm-up: {late}\n")
    line = {
        "benchmark": "quickstart",
        "dfc": dfc.__version__,
        "device": workers.host.device,
        "iterations": options.iterations,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(workers.initial_params)),
        "warm_up_programs": programs,
        "warm_up_seconds": warm_up,
        "compilations_after_warm_up": late,
        "limit_operations_per_second": limit,
        **result,
        "baseline": {
            **match,
            "games": options.games,
            "processed_tokens": processed_tokens,
            "plain_processed_tokens": baseline_tokens,
            "alike": same,
        },
    }
    print(json.dumps(line, default=float))
    if late:
        raise SystemExit(f"{late} programs were compiled after the warm-up; expected none")


if __name__ == "__main__":
    main()

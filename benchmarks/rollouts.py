"""How fast conversations are held: beside `generate`, beside an ideal batch, beside the machine's limits.

    python benchmarks/rollouts.py [--only=single,turns,ragged,limit,host,compiles] [--sizes=1M,5M,33M] [--quick]

Both sides of a comparison run in one process and take turns: the same weights (random, drawn by transformers, saved,
read by both; log-probabilities of one reply are compared first), the same lengths, the same number of threads,
float32, temperature 1 and min-p 0.1, no stop tokens. The baseline is `transformers`' `generate` on torch with a
key/value cache, under `torch.inference_mode`.

single    32 rows of 128 tokens get 64 new tokens each. New tokens per second over the whole call; prefilling the prompt
          (a call for one token) and decoding (the difference, 63 tokens) apart. The baseline's attention is eager or
          fused, whichever took less time in one trial. Aim: 3 times.
turns     64 conversations of 10 and of 20 turns, 5M: equal ones, 60 tokens of observation and 16 of reply in each, and
          ragged ones of 20 to 100 and 4 to 28. Ours keeps every conversation's cache. The baseline is `generate` on
          the whole history at every turn (aim 4 times) and with the cache of the turn before handed on (aim 1); ragged
          rows are padded on the left, all at one turn. Beside them our engine with its slot closed at every turn.
ragged    192 conversations of 3 to 20 turns, 20 to 100 tokens of observation and 4 to 64 of reply, sampled once, over
          64 slots, 5M. Rows x decode steps that sampled a token out of all computed (aim 85 %), and wall time a token
          against conversations that are all equal and have as many turns and tokens in total (aim at most 1.25). At
          most two runs; before the clock starts only the first two turns of some conversations.
limit     A decode step of 1, 8, 32 and 128 rows with 256 tokens each on average against the longer of two times: the
          bytes it must read (weights once, live cache once) at the measured rate of reading as many bytes as the
          weights have; its operations (2 per weight and row, and attention's own) at the measured rate of the model's
          own float32 products. Aim: half at 33M.
host      Native games on one core by a model of nearly no cost, both seats played by it: game turns per second, and
          how much of that time passed inside the engine. Every reply is sampled, among the legal actions
          (`legal_only`), so that games continue. Aim: 5,000 a second.
compiles  Programs compiled after `warm_up` while games, limits, opponents and weights change. Aim: 0. Replies
          restricted to legal actions come last.

Fixed seeds; everything runs once before the clock starts (turns: two of all and all of one); medians with the smallest
and largest value. On a machine that does other work only processor time of one thread compares:
`taskset -c 0 python benchmarks/rollouts.py --clock=cpu`. Not counted: making the engine, loading, compiling.
Prints a table for each part and one JSON line.
"""

import argparse
import dataclasses
import functools
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import rollout_workloads as workloads
from rollout_workloads import SIZES, Compilations, Generate, Turns, seconds_of, shown, spread

import dfc
from dfc.config import RolloutConfig, SamplingConfig
from dfc.configs import quickstart
from dfc.evaluation import matches
from dfc.games import scripted
from dfc.inference.engine import Engine
from dfc.inference.protocol import EngineReply
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.models.transformer import Params, initialize
from dfc.rollout.runner import RolloutRunner

Row = dict[str, Any]

GAMES = quickstart.get_config().games


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line says.

    Attributes:
      only: names of parts. sizes: of `single` and `limit`. repeats: measured runs of a contestant.
      in_flight: calls that `ragged` has under way at once. turns: of a conversation of `turns`.
      quick: everything small, to see that it runs; the figures mean nothing.
    """

    only: tuple[str, ...]
    sizes: tuple[str, ...]
    repeats: int
    in_flight: int
    turns: tuple[int, ...]
    quick: bool

    @property
    def middle(self) -> str:
        """The size of turns and ragged."""
        return "0.5M" if self.quick else "5M"


class Checkpoints:
    """Models on disk: with random weights, made when first wanted, or a folder that is there already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, size: str) -> Path:
        path = self._folder / size if size in SIZES else Path(size)
        if not path.exists() and size not in SIZES:
            raise SystemExit(f"{size} is neither one of {', '.join(SIZES)} nor a model's folder")
        if not path.exists():
            workloads.save_random(size, path)
        return path


# ---- single --------------------------------------------------------------------------------------------------------


def single(options: Options, checkpoints: Checkpoints) -> list[Row]:
    """Returns one row per size: a batch of prompts and their replies, beside `generate`."""
    rows, prompt, reply = (4, 16, 4) if options.quick else (32, 128, 64)
    print(f"\nsingle: {rows} rows, prompt {prompt}, {reply} new tokens each; tokens/s, median (smallest..largest)")
    print(f"{'size':6}{'side':18}{'whole call':>24}{'prefill':>10}{'decoding':>10}{'ratio':>8}  (aim 3; at most)")
    return [_single(checkpoints[size], size, (rows, prompt, reply), options.repeats) for size in options.sizes]


def _single(folder: Path, size: str, shape: tuple[int, int, int], repeats: int) -> Row:
    rows, prompt, reply = shape
    config, params = workloads.load(folder)
    token_ids = workloads.random_tokens(config.vocabulary, 1)
    tokens = np.asarray([token_ids(prompt) for _ in range(rows)])
    engine = workloads.make_engine(config, params, slots=rows, max_length=prompt + reply + 1)
    baselines = {name: Generate(folder, name) for name in ("eager", "sdpa")}
    gap = workloads.require_same_weights(engine, baselines["sdpa"], token_ids)
    trial = {name: workloads.best_seconds(functools.partial(g, tokens, reply), 1) for name, g in baselines.items()}
    attention = min(trial, key=trial.__getitem__)
    baseline = baselines[attention]
    seconds = workloads.take_turns(
        {
            "ours": lambda: workloads.converse(engine, [[(prompt, reply)]] * rows, token_ids),
            "ours 1": lambda: workloads.converse(engine, [[(prompt, 1)]] * rows, token_ids),
            "baseline": lambda: baseline(tokens, reply),
            "baseline 1": lambda: baseline(tokens, 1),
        },
        repeats,
    )
    prefill, step = _bounds(config, params, rows, prompt, prompt + reply / 2)
    limit = prefill + (reply - 1) * step
    row: Row = {
        "size": size,
        "weights": workloads.weight_count(params),
        "rows": rows,
        "prompt": prompt,
        "new_tokens": reply,
        "baseline_attention": attention,
        "baseline_trials": {name: rows * reply / s for name, s in trial.items()},
        "largest_logprob_difference": gap,
        "ratio": spread([b / a for a, b in zip(seconds["ours"], seconds["baseline"], strict=True)]),
        "limit_tokens_per_second": rows * reply / limit,
        "limit_of_ratio": statistics.median(seconds["baseline"]) / limit,
    }
    for side, name in (("ours", "ours"), ("baseline", f"generate, {attention}")):
        one, whole = statistics.median(seconds[f"{side} 1"]), statistics.median(seconds[side])
        row[side] = {
            "tokens_per_second": spread([rows * reply / s for s in seconds[side]]),
            "prefilled_per_second": rows * prompt / one,
            "decoded_per_second": rows * (reply - 1) / (whole - one),
        }
        print(
            f"{size:6}{name:18}{shown(row[side]['tokens_per_second']):>24}{row[side]['prefilled_per_second']:10,.0f}"
            f"{row[side]['decoded_per_second']:10,.0f}"
            + (f"{row['ratio']['median']:8.2f}  (limit {row['limit_of_ratio']:.2f})" if side == "ours" else ""),
            flush=True,
        )
    return row


def _bounds(config: DecoderConfig, params: Params, rows: int, prompt: int, live: float) -> tuple[float, float]:
    """Returns seconds that prefilling the prompts and one decode step take at least on this machine."""
    rate = workloads.product_rate(config)
    bandwidth = workloads.read_rate(4.0 * workloads.weight_count(params))
    step = workloads.decode_work(config, rows, live)
    body = workloads.decode_work(config, rows * prompt, prompt / 2).operations
    body -= 2.0 * config.vocabulary * config.width * rows * (prompt - 1)  # only a prompt's last token needs logits
    return body / rate, max(step.bytes / bandwidth, step.operations / rate)


# ---- turns ---------------------------------------------------------------------------------------------------------


def turns(options: Options, checkpoints: Checkpoints) -> list[Row]:
    """Returns one row per number and kind of turns: resident caches beside prefilling again and beside kept caches."""
    rows, (observed, replied), counts = (4, (12, 4), (2,)) if options.quick else (64, (60, 16), options.turns)
    config, params = workloads.load(checkpoints[options.middle])
    token_ids = workloads.random_tokens(config.vocabulary, 2)
    baseline = Generate(checkpoints[options.middle], "sdpa")
    kinds = [
        (kind, count, held)
        for count in counts
        for kind, held in (
            ("equal", [[(observed, replied)] * count] * rows),
            ("ragged", shorter(uneven_talks(rows, count), options)),
        )
    ]
    longest = max(sum(map(sum, talk)) for *_, talks in kinds for talk in talks)
    engine = workloads.make_engine(config, params, slots=rows, max_length=longest + 1)
    programs = engine.warm_up()
    gap = workloads.require_same_weights(engine, baseline, token_ids)
    means = f"{observed} tokens observed and {replied} replied a turn"
    print(f"\nturns: {rows} conversations, {options.middle}, {means}, the mean")
    print(f"{'turns':>5} {'kind':7}{'side':28}{'seconds':>22}{'tokens/s':>9}{'ratio':>24}")
    found = []
    for kind, count, talks in kinds:

        def ours(talks: Sequence[Turns] = talks, *, resident: bool = True) -> None:
            workloads.converse(engine, talks, token_ids, resident=resident)

        def theirs(talks: Sequence[Turns] = talks, *, keep_cache: bool = False) -> None:
            baseline.converse(talks, token_ids, keep_cache=keep_cache)

        for some in ([talk[:2] for talk in talks], talks[:1]):  # the slow ones do not run whole before the clock starts
            ours(some)
            theirs(some)
            theirs(some, keep_cache=True)
        sides: dict[str, Callable[[], None]] = {
            "ours": ours,
            "ours, prefilled again": functools.partial(ours, resident=False),
            "generate, cache handed on": functools.partial(theirs, keep_cache=True),
            "generate": theirs,
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(min(options.repeats, 3)):
            for name, side in sides.items():
                seconds[name].append(seconds_of(side))
        row: Row = {"turns": count, "kind": kind, "rows": rows, "programs": programs}
        row |= {"largest_logprob_difference": gap, "seconds": {}, "ratio": {}}
        found.append(row)
        tokens = sum(reply for talk in talks for _, reply in talk)
        for name, values in seconds.items():
            ratio = spread([other / own for own, other in zip(seconds["ours"], values, strict=True)])
            row["seconds"][name], row["ratio"][name] = spread(values), ratio
            print(
                f"{count:5} {kind:7}{name:28}{shown(spread(values), '.2f'):>22}"
                f"{tokens / statistics.median(values):9,.0f}{shown(ratio, '.2f'):>24}  {AIMS.get(name, '')}",
                flush=True,
            )
    return found


AIMS = {"generate": "aim 4", "generate, cache handed on": "aim 1"}


def uneven_talks(rows: int, count: int) -> list[Turns]:
    """Returns `rows` conversations of `count` turns, 20 to 100 tokens observed and 4 to 28 replied; always the same."""
    rng = np.random.default_rng(6)
    return [[(int(rng.integers(20, 101)), int(rng.integers(4, 29))) for _ in range(count)] for _ in range(rows)]


def shorter(talks: Sequence[Turns], options: Options) -> list[Turns]:
    """Returns conversations as they are; if all is to be small two turns of each, of a quarter of their tokens."""
    if not options.quick:
        return list(talks)
    return [[(heard // 4, max(1, said // 4)) for heard, said in talk[:2]] for talk in talks]


# ---- ragged --------------------------------------------------------------------------------------------------------


def ragged_talks(count: int) -> list[Turns]:
    """Returns conversations of 3 to 20 turns, 20 to 100 tokens observed and 4 to 64 replied each; always the same."""
    rng = np.random.default_rng(3)
    return [
        [(int(rng.integers(20, 101)), int(rng.integers(4, 65))) for _ in range(rng.integers(3, 21))]
        for _ in range(count)
    ]


def equal_talks(talks: Sequence[Turns]) -> list[Turns]:
    """Returns as many conversations, all equal, with the same number of turns, tokens observed and replied, rounded."""
    number = round(sum(map(len, talks)) / len(talks))
    observed, replied = (
        np.diff(np.linspace(0, sum(turn[part] for talk in talks for turn in talk) / len(talks), number + 1).round())
        for part in (0, 1)
    )
    return [list(zip(observed.astype(int).tolist(), replied.astype(int).tolist(), strict=True))] * len(talks)


def ragged(options: Options, checkpoints: Checkpoints) -> list[Row]:
    """Returns how full the rows are, and the time of conversations of all lengths beside that of equal ones."""
    count, slots = (8, 4) if options.quick else (192, 64)
    config, params = workloads.load(checkpoints[options.middle])
    token_ids = workloads.random_tokens(config.vocabulary, 4)
    workload = shorter(ragged_talks(count), options)
    talks = {"ragged": workload, "equal": equal_talks(workload)}
    totals = {name: [sum(t[part] for talk in found for t in talk) for part in (0, 1)] for name, found in talks.items()}
    longest = max(sum(map(sum, talk)) for found in talks.values() for talk in found)
    # Few lengths: conversations of all lengths use every program, and some hundred exhaust a process's memory maps.
    engine = workloads.make_engine(config, params, slots=slots, max_length=longest + 1)
    programs = engine.warm_up()
    seconds: dict[str, list[float]] = {name: [] for name in talks}
    useful: dict[str, list[float]] = {name: [] for name in talks}
    hold = functools.partial(workloads.converse, engine, token_ids=token_ids, in_flight=options.in_flight)
    hold([talk[:2] for talk in workload[: slots + slots // 2]])
    for _ in range(min(options.repeats, 2)):  # a minute or more each
        for name, found in talks.items():
            before = dataclasses.replace(engine.counts)
            seconds[name].append(seconds_of(functools.partial(hold, found)))
            row_steps = engine.counts.row_steps - before.row_steps
            useful[name].append((engine.counts.useful_steps - before.useful_steps) / row_steps)
    per_token = {name: [s / sum(totals[name]) for s in found] for name, found in seconds.items()}
    ratio = spread([a / b for a, b in zip(per_token["ragged"], per_token["equal"], strict=True)])
    print(f"\nragged: {count} conversations over {slots} slots, {options.middle}, the longest {longest} tokens")
    print(f"{'':10}{'observed':>9}{'replied':>9}{'seconds':>24}{'reply/s':>9}{'useful decode rows':>22}")
    for name in talks:
        print(
            f"{name:10}{totals[name][0]:9,}{totals[name][1]:9,}{shown(spread(seconds[name]), '.2f'):>24}"
            f"{totals[name][1] / statistics.median(seconds[name]):9,.0f}{statistics.median(useful[name]):22.1%}"
        )
    print(f"time per token, ragged over equal: {shown(ratio, '.3f')} (aim at most 1.25; useful rows, ragged: aim 85 %)")
    return [
        {
            "conversations": count,
            "slots": slots,
            "in_flight": options.in_flight,
            "programs": programs,
            "totals": totals,
            "seconds": {name: spread(found) for name, found in seconds.items()},
            "useful": {name: spread(found) for name, found in useful.items()},
            "time_per_token_over_equal": ratio,
        }
    ]


# ---- limit ---------------------------------------------------------------------------------------------------------


def limit(options: Options, checkpoints: Checkpoints) -> list[Row]:
    """Returns, per size and batch, the share of the machine's limit that decode steps reach."""
    context, steps = (24, 16) if options.quick else (224, 64)
    print(f"\nlimit: decode steps of rows with {context + steps // 2} tokens each on average")
    print(f"{'size':6}{'rows':>5}{'ms a step':>22}{'at least':>10}{'bound by':>12}{'share':>8}{'tokens/s':>10}")
    found = []
    for size in options.sizes:
        config, params = workloads.load(checkpoints[size])
        token_ids = workloads.random_tokens(config.vocabulary, 5)
        rate = workloads.product_rate(config)
        bandwidth = workloads.read_rate(4.0 * workloads.weight_count(params))
        for rows in (1, 4) if options.quick else (1, 8, 32, 128):
            engine = workloads.make_engine(config, params, slots=rows, max_length=64 if options.quick else 512)
            slots = workloads.fill(engine, rows, context - 1, token_ids)
            times = [took / steps for took in workloads.decode_seconds(engine, slots, steps, options.repeats)]
            work = workloads.decode_work(config, rows, context + steps / 2)
            bounds = {"reading": work.bytes / bandwidth, "products": work.operations / rate}
            bound = max(bounds, key=bounds.__getitem__)
            row: Row = {
                "size": size,
                "rows": rows,
                "context": context + steps // 2,
                "step_seconds": spread(times),
                "least_seconds": bounds[bound],
                "bound": bound,
                "share": bounds[bound] / statistics.median(times),
                "tokens_per_second": rows / statistics.median(times),
                "bytes": work.bytes,
                "operations": work.operations,
            }
            found.append(row)
            print(
                f"{size:6}{rows:5}{shown(spread([1e3 * t for t in times]), '.2f'):>22}{1e3 * bounds[bound]:10.2f}"
                f"{bound:>12}{row['share']:8.0%}{row['tokens_per_second']:10,.0f}",
                flush=True,
            )
        far = workloads.read_rate(4e7 if options.quick else 1e9)
        print(
            f"{size:6}reading as many bytes as the weights {bandwidth / 1e9:.1f} GB/s, 1 GB {far / 1e9:.1f} GB/s; "
            f"products {rate / 1e9:.0f} GFLOP/s"
        )
        found.append({"size": size, "read_rate": bandwidth, "far_read_rate": far, "product_rate": rate})
    return found


# ---- host ----------------------------------------------------------------------------------------------------------


class ClockedEngine(Engine):
    """An engine that knows how long its calls took.

    Attributes:
      seconds: inside launching and collecting: the device's work and the engine's own book-keeping.
    """

    seconds = 0.0

    def launch(self) -> bool:
        """Launches a call."""
        begun = time.perf_counter()
        launched = super().launch()
        self.seconds += time.perf_counter() - begun
        return launched

    def collect(self) -> list[EngineReply]:
        """Waits for a call."""
        begun = time.perf_counter()
        found = super().collect()
        self.seconds += time.perf_counter() - begun
        return found


def little_model(vocabulary: int) -> tuple[DecoderConfig, Params]:
    """Returns a decoder of nearly no cost."""
    config = DecoderConfig(
        vocabulary=vocabulary,
        width=16,
        layers=1,
        heads=1,
        kv_heads=1,
        head_dim=16,
        feed_forward=16,
        rope_theta=10000.0,
        norm_epsilon=1e-5,
        qkv_bias=False,
        tied_embedding=True,
    )
    return config, initialize(config, 0)


def host(options: Options, checkpoints: Checkpoints) -> list[Row]:
    """Returns game turns per second on one core, measured in a process of its own."""
    del checkpoints
    allowed = os.sched_getaffinity(0)
    command = [sys.executable, __file__, "--only=host_child", f"--repeats={options.repeats}"]
    try:
        os.sched_setaffinity(0, {max(allowed)})  # a child keeps it
        made = subprocess.run(  # noqa: S603 - this file
            command + ["--quick"] * options.quick, check=True, capture_output=True, text=True
        )
    finally:
        os.sched_setaffinity(0, allowed)
    row: Row = json.loads(made.stdout.splitlines()[-1])["parts"]["host_child"][0]
    print(
        f"\nhost: {row['games']} matches of {len(GAMES)} games, one core, "
        f"both seats by a model of {row['weights']} weights"
    )
    tokens = shown(row["tokens_per_second"])
    print(f"game turns/s {shown(row['turns_per_second'])} (aim 5,000); tokens sampled/s {tokens}")
    print(f"inside the engine {row['engine_share']:.0%}, games, text and tokenizing {1 - row['engine_share']:.0%}")
    return [row]


def host_child(options: Options, checkpoints: Checkpoints) -> list[Row]:
    """Plays games on the cores this process has."""
    del checkpoints
    folder = Path(huggingface.resolve("tiny_player"))
    tokenizer = ChatTokenizer.load(folder, enable_thinking=None)
    config, params = little_model(json.loads((folder / "config.json").read_text())["vocab_size"])
    slots, longest = (4, 128) if options.quick else (128, 256)
    rollout = RolloutConfig(slots=slots, max_length=longest, max_reply_length=8, stop=("]",), legal_only=True)
    engine = ClockedEngine(
        config,
        params,
        slots=2 * rollout.slots,
        max_length=rollout.max_length,
        stop_token_ids=tokenizer.stop_token_ids(rollout.stop),
        sampling=SamplingConfig(),
        rows=rollout.slots,
        decode_steps=rollout.max_reply_length,
    )
    engine.warm_up()
    runner = RolloutRunner(rollout, tokenizer, engine, opponent="policy", opponent_name="itself")
    games = 4 if options.quick else 200
    rates, generated_tokens, shares = [], [], []
    counter, late = Compilations(), 0
    for repeat in range(options.repeats + 1):
        specs = matches.match_specs(GAMES, games, 0, "host")  # the same every time: constraints compile by need
        late = counter.count if repeat == 1 else late
        engine.seconds, before = 0.0, engine.counts.generated_tokens
        begun = time.perf_counter()
        episodes = runner.play(specs)
        took = time.perf_counter() - begun
        if repeat:
            rates.append(sum(len(episode.replies) for episode in episodes) / took)
            generated_tokens.append((engine.counts.generated_tokens - before) / took)
            shares.append(engine.seconds / took)
    return [
        {
            "games": games * len(GAMES),
            "weights": workloads.weight_count(params),
            "turns_per_second": spread(rates),
            "tokens_per_second": spread(generated_tokens),
            "engine_share": statistics.median(shares),
            "compiled_meanwhile": counter.count - late,
        }
    ]


# ---- compiles ------------------------------------------------------------------------------------------------------


def compiles(options: Options, checkpoints: Checkpoints) -> list[Row]:
    """Returns how many programs were compiled after `warm_up`, phase by phase."""
    del checkpoints
    folder = Path(huggingface.resolve("tiny_player"))
    tokenizer = ChatTokenizer.load(folder, enable_thinking=None)
    config, params = little_model(json.loads((folder / "config.json").read_text())["vocab_size"])
    slots, longest = (4, 128) if options.quick else (16, 320)
    rollout = RolloutConfig(slots=slots, max_length=longest, max_reply_length=8, stop=("]",))
    counter = Compilations()
    engine = Engine(
        config,
        params,
        slots=2 * rollout.slots,
        max_length=rollout.max_length,
        stop_token_ids=tokenizer.stop_token_ids(rollout.stop),
        sampling=SamplingConfig(),
        rows=rollout.slots,
    )
    engine.set_params(params, 0, policy="initial")
    engine.warm_up(actions=True)
    programs, count = counter.count, 2 if options.quick else 12
    late: dict[str, int] = {}

    def play(name: str, games: Sequence[str], opponent: Any = "initial", **settings: Any) -> None:  # noqa: ANN401 - any player, any field
        before = counter.count
        runner = RolloutRunner(
            dataclasses.replace(rollout, **settings), tokenizer, engine, opponent=opponent, opponent_name=name
        )
        runner.play(matches.match_specs({game: GAMES[game] for game in games}, count, len(late), "compiles"))
        late[name] = counter.count - before

    for game in GAMES:
        play(f"{game}", [game])
    play("all games", list(GAMES))
    play("against a random player", list(GAMES), scripted.RandomLegal())
    engine.set_params(initialize(config, 1), 1)
    play("new weights", list(GAMES))
    play("against itself", list(GAMES), "policy")
    for length in (1, 7, 40):
        play(f"replies of up to {length}", list(GAMES), max_reply_length=length)
    play("fewer games at once", list(GAMES), slots=3)
    play("legal replies only", list(GAMES), legal_only=True)
    after = sum(late.values())
    print(f"\ncompiles: {programs} programs before the first game, {after} after (aim 0)")
    for name, compiled in late.items():
        if compiled:
            print(f"  {compiled} in: {name}")
    return [{"before": programs, "after": after, "phases": late}]


# ---- the program ---------------------------------------------------------------------------------------------------


PARTS: dict[str, Callable[[Options, Checkpoints], list[Row]]] = {
    "single": single,
    "turns": turns,
    "ragged": ragged,
    "limit": limit,
    "host": host,
    "compiles": compiles,
}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--sizes", default="1M,5M,33M", help=f"of single and limit: {', '.join(SIZES)} or a folder")
    parser.add_argument("--repeats", type=int, default=5, help="measured runs of each contestant")
    parser.add_argument("--in-flight", type=int, default=1, help="calls that ragged has under way at once")
    parser.add_argument("--turns", type=int, nargs="*", default=[10, 20], help="of the conversations of turns")
    parser.add_argument("--quick", action="store_true", help="everything small, to see that it runs")
    parser.add_argument("--clock", choices=workloads.CLOCKS, default="wall", help="cpu: on a busy machine, one core")
    given = parser.parse_args()
    workloads.use_clock(given.clock)
    options = Options(
        tuple(given.only.split(",")),
        ("0.5M",) if given.quick else tuple(given.sizes.split(",")),
        1 if given.quick else given.repeats,
        given.in_flight,
        tuple(given.turns),
        given.quick,
    )
    # What `python -m dfc.launch` does first; run by name, since nothing imports the command line. It serves both sides.
    runpy.run_module("dfc.launch.memory")["keep_freed_memory"]()
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    print(f"{device}, {workloads.threads()} threads, load average {os.getloadavg()[0]:.1f} before the start")
    parts = PARTS | {"host_child": host_child}
    line = {
        "benchmark": "rollouts",
        "dfc": dfc.__version__,
        "jax": jax.__version__,
        "device": device,
        "threads": workloads.threads(),
        "quick": options.quick,
        "sizes": SIZES,
    }
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        line["parts"] = {name: parts[name](options, checkpoints) for name in options.only}
    print(json.dumps(line))


if __name__ == "__main__":
    main()

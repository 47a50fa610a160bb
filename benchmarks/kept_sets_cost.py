"""What kept sets cost: playing with and without them, and an update's log-probabilities over few tokens or all.

    python benchmarks/kept_sets_cost.py [--only=play,train] [--quick]

Both sides of a comparison take turns in one process. Random weights, float32, no stop tokens.

play   32 rows of 128 tokens get 64 new tokens each, sampled at temperature 1.3 with min-p 0.1, by an engine that keeps
       the sets (`Engine(kept_sets=True)`) and one that does not: seconds of the whole call, and their ratio. The mean
       size of the sets is stated beside the times. Six layers of SmolLM2-135M's width (more layers make the share of
       the sets smaller), its vocabulary of 49,152, and a small one.
train  Value and gradient of log-probabilities of 4,096 tokens, width 576, vocabulary 49,152: among the sets
       (`constrained_logprobs`), of which 97 in 100 have 1 to 8 tokens and the others up to the width of the table, and
       over the whole vocabulary (`token_logprobs`).

Prints a table for each part.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import rollout_workloads as workloads

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine
from dfc.logprobs import constrained_logprobs, token_logprobs
from dfc.models.config import DecoderConfig
from dfc.models.transformer import initialize

PARTS = ("play", "train")
_SHARPER = 12.0  # with it, logits of random weights leave sets of a few tokens, as those of a trained model do


def main() -> None:
    """Measures the parts asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--quick", action="store_true", help="in miniature; figures mean nothing")
    flags = parser.parse_args()
    for part in flags.only.split(","):
        {"play": play, "train": train}[part](quick=flags.quick)


def in_turns(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Returns the median seconds of each side, after one run of each."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(repeats + 1):
        for name, run in sides.items():
            begun = time.perf_counter()
            jax.block_until_ready(run())  # type: ignore[no-untyped-call]  # jax leaves it untyped
            if number:
                seconds[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in seconds.items()}


# ---- playing --------------------------------------------------------------------------------------------------------


def play(*, quick: bool) -> None:
    """Prints seconds of replies with and without sets, by vocabulary."""
    rows, prompt, reply, repeats = (4, 16, 4, 1) if quick else (32, 128, 64, 3)
    sampling = SamplingConfig(temperature=1.3, min_p=0.1)
    print(f"play: {rows} rows, {prompt} tokens read, {reply} sampled, {sampling.temperature=}, {sampling.min_p=}")
    print(f"{'vocabulary':>10} {'layers':>6} {'kept, mean':>10} {'without':>9} {'with':>9} {'ratio':>6}")
    for vocabulary, layers in ((256, 4), (1024, 1)) if quick else ((1024, 6), (49_152, 6)):
        config = DecoderConfig(
            vocabulary=vocabulary,
            width=64 if quick else 576,
            layers=layers,
            heads=2 if quick else 9,
            kv_heads=1 if quick else 3,
            head_dim=32 if quick else 64,
            feed_forward=128 if quick else 1536,
            rope_theta=10_000.0,
            norm_epsilon=1e-5,
            qkv_bias=False,
            tied_embedding=True,
            dtype="float32",
        )
        params = initialize(config, 0)
        params = {**params, "embed": jax.tree.map(lambda x: _SHARPER * x, params["embed"])}
        token_ids = workloads.random_tokens(vocabulary, 1)
        engines = {
            name: workloads.make_engine(
                config, params, slots=rows, max_length=prompt + reply + 1, sampling=sampling, kept_sets=name == "with"
            )
            for name in ("without", "with")
        }
        sides = {
            name: functools.partial(workloads.converse, engine, [[(prompt, reply)]] * rows, token_ids)
            for name, engine in engines.items()
        }
        seconds = in_turns(sides, repeats)
        kept = _mean_kept(engines["with"], prompt, token_ids)
        ratio = seconds["with"] / seconds["without"]
        print(
            f"{vocabulary:10,} {layers:6} {kept:10.1f} {seconds['without']:8.2f}s {seconds['with']:8.2f}s {ratio:6.3f}",
            flush=True,
        )


def _mean_kept(engine: Engine, prompt: int, token_ids: workloads.TokenSource) -> float:
    """Returns how many tokens survive, the mean of a few."""
    slot = engine.open(3)
    engine.append(slot, token_ids(prompt))
    engine.ask(slot, 4)
    replies = []
    while engine.busy:
        replies += engine.step()
    engine.close(slot)
    assert replies[0].choices is not None  # noqa: S101 - a filter is on
    return float(replies[0].choices.kept.mean())


# ---- an update ------------------------------------------------------------------------------------------------------


def train(*, quick: bool) -> None:
    """Prints seconds of value and gradient among sets and over the vocabulary."""
    tokens, width, vocabulary, repeats = (64, 16, 512, 1) if quick else (4096, 576, 49_152, 5)
    rng = np.random.default_rng(0)
    hidden = jnp.asarray(rng.normal(size=(tokens, width)), jnp.float32)
    embedding = jnp.asarray(rng.normal(size=(vocabulary, width)) / np.sqrt(width), jnp.float32)
    print(f"train: {tokens:,} tokens, width {width}, vocabulary {vocabulary:,}, float32; value and gradient")
    print(f"{'places':>6} {'pairs':>8} {'among sets':>11} {'vocabulary':>11} {'ratio':>6}")
    for most in (16, 64) if quick else (16, 64, 512):
        sizes = np.where(rng.random(tokens) < 0.97, rng.integers(1, 9, tokens), rng.integers(1, most + 1, tokens))
        table = np.full((tokens, most), -1, np.int32)
        for row, size in zip(table, sizes, strict=True):
            row[:size] = np.sort(rng.choice(vocabulary, size, replace=False))
        targets, choices = jnp.asarray(table[:, 0]), jnp.asarray(table)

        def among(hidden: jax.Array, embedding: jax.Array) -> jax.Array:
            return constrained_logprobs(hidden, embedding, targets, choices).sum()  # noqa: B023 - called here

        def over_all(hidden: jax.Array, embedding: jax.Array) -> jax.Array:
            return token_logprobs(hidden, embedding, targets).sum()  # noqa: B023 - the same

        programs = {"among": jax.jit(jax.grad(among, (0, 1))), "all": jax.jit(jax.grad(over_all, (0, 1)))}
        sides = {name: lambda program=program: program(hidden, embedding) for name, program in programs.items()}
        seconds = in_turns(sides, repeats)
        ratio = seconds["among"] / seconds["all"]
        print(
            f"{most:6} {int(sizes.sum()):8,} {seconds['among']:10.3f}s {seconds['all']:10.3f}s {ratio:6.3f}", flush=True
        )


if __name__ == "__main__":
    main()

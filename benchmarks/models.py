"""How fast a decoder computes and trains beside transformers + torch, same weights, tokens, shapes and threads.

    python benchmarks/models.py [--sizes=5M,33M,120M] [--lengths=512,2048] [--repeats=7] [--quick]

Measured, in one process and taking turns: a forward pass to the final hidden states, and a training step (forward,
backward, AdamW with a clip) on 2,048 tokens, float32 on a CPU. torch runs `LlamaForCausalLM` with its fused attention
and `AdamW(fused=True)`, and takes the loss of all tokens as transformers does; ours is `Trainer.update` with the
likelihood of all tokens but each row's first. Both see the same number of threads. The weights are drawn once by
transformers, saved, and read by both.

The limit: the rate of a 2048 x 2048 x 2048 float32 product, the better of both libraries', measured here. Operations
of a training step: 6 per weight of a layer and token, 6 per weight of the output projection and token; attention's
products and recomputation are not counted, so that the shares err on the low side.

With a GPU the same for 1B (full) and 8B (LoRA of rank 16 over all projections) in bfloat16, ours alone, with the
share of the card's published dense bfloat16 rate (model FLOPs utilisation). Medians; everything runs once before the
clock starts. A table and one JSON line.
"""

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rollout_workloads as workloads

import dfc
from dfc.config import OptimizerConfig, TrainingConfig
from dfc.losses import Loss, sft_loss
from dfc.models import families, huggingface, lora
from dfc.models.config import DecoderConfig
from dfc.models.execution import Execution
from dfc.models.transformer import abstract_params, bind, stack_layers
from dfc.samples import TokenBatch
from dfc.tools.fit import published
from dfc.training.optimizer import make_optimizer
from dfc.training.trainer import Trainer

TOKENS = 2048
SIZES = {  # vocabulary, width, layers, heads, key heads, feed-forward
    "5M": (4096, 256, 5, 4, 2, 704),
    "33M": (8192, 512, 10, 8, 4, 1408),
    "120M": (16384, 768, 16, 12, 6, 2048),
}
LLAMA_8B = dataclasses.replace(families.from_config_json(published.CONFIGS["llama-3.1-8b"]), dtype="bfloat16")
LLAMA_1B = dataclasses.replace(LLAMA_8B, width=2048, layers=16, head_dim=64, feed_forward=8192, tied_embedding=True)
GPU_RATE = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # dense bfloat16, published


def matmul_weights(config: DecoderConfig) -> int:
    """Returns the weights that take part in a product with every token."""
    attention = config.width * config.head_dim * 2 * (config.heads + config.kv_heads)
    layer = attention + 3 * config.width * config.feed_forward
    return config.layers * layer + config.vocabulary * config.width


def weight_count(config: DecoderConfig) -> int:
    """Returns the number of weights."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(abstract_params(config)))


def batch_of(rows: int, length: int, vocabulary: int) -> TokenBatch:
    """Returns rows of random tokens, all but the first of each an action."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, vocabulary, (rows, length), dtype=np.int32)
    positions = np.broadcast_to(np.arange(length, dtype=np.int32), tokens.shape).copy()
    mask = np.ones(tokens.shape, np.float32)
    mask[:, 0] = 0
    zeros = np.zeros(tokens.shape, np.float32)
    return TokenBatch(tokens, positions, np.ones_like(tokens), mask, zeros, zeros)


def likelihood(logprobs: jax.Array, batch: TokenBatch, _: jax.Array | None) -> Loss:
    """Returns the supervised loss of a batch."""
    return sft_loss(logprobs, batch.mask)


def median_seconds(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Returns the median time of each function; they take turns."""
    found = workloads.take_turns(contestants, repeats)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def matrix_rate(torch: Any, repeats: int) -> float:  # noqa: ANN401 - a module
    """Returns float32 operations per second of a large product, the better library's."""
    size = 2048
    ours = jnp.ones((size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    theirs = torch.ones((size, size))
    found = median_seconds(
        {"jax": lambda: product(ours, ours).block_until_ready(), "torch": lambda: torch.matmul(theirs, theirs)}, repeats
    )
    return float(2 * size**3 / min(found.values()))


class Ours:
    """One checkpoint in our hands."""

    def __init__(self, folder: Path, batch: TokenBatch, training: TrainingConfig) -> None:
        self.config, params = huggingface.load(folder, dtype="float32")
        self._batch = batch
        self._trainer = Trainer(self.config, likelihood, make_optimizer(OptimizerConfig(), 1), training=training)
        rows = jnp.asarray(batch.tokens), jnp.asarray(batch.positions), jnp.asarray(batch.segments)
        self._forward = jax.jit(lambda params: bind(self.config, params, None, Execution())(*rows))
        self._params = self._trainer.initial_params(params)
        self._state = self._trainer.initial_state(self._params)

    def forward(self) -> None:
        """Computes the hidden states."""
        self._forward(self._params).block_until_ready()

    def step(self) -> float:
        """Makes one update; returns its loss."""
        update = self._trainer.update(self._params, self._state, [self._batch], donate=True)
        self._params, self._state = update.params, update.optimizer_state
        jax.block_until_ready(self._params)  # type: ignore[no-untyped-call]  # jax leaves it untyped
        return update.loss


class Theirs:
    """The same checkpoint in transformers' hands."""

    def __init__(self, folder: Path, batch: TokenBatch, torch: Any) -> None:  # noqa: ANN401 - a module
        from transformers import LlamaForCausalLM  # noqa: PLC0415 - slow to import

        self._torch = torch
        self._model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
        settings = OptimizerConfig()
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=settings.learning_rate,
            betas=(settings.b1, settings.b2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._clip = settings.clip_norm
        self._token_ids = torch.tensor(batch.tokens.astype(np.int64))

    def forward(self) -> None:
        """Computes the hidden states."""
        with self._torch.no_grad():
            self._model.model(self._token_ids, use_cache=False)

    def step(self) -> float:
        """Makes one update; returns its loss."""
        self._optimizer.zero_grad()
        loss = self._model(self._token_ids, labels=self._token_ids, use_cache=False).loss
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip)
        self._optimizer.step()
        return float(loss)


def save_random(size: str, folder: Path) -> None:
    """Writes a checkpoint with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - slow to import

    vocabulary, width, layers, heads, kv_heads, feed_forward = SIZES[size]
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            intermediate_size=feed_forward,
            tie_word_embeddings=True,
            max_position_embeddings=4096,
        )
    ).save_pretrained(folder)


def on_cpu(sizes: list[str], lengths: list[int], repeats: int) -> list[dict[str, Any]]:
    """Returns one row per size and length."""
    import torch  # noqa: PLC0415 - the baseline is wanted here only

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rate = matrix_rate(torch, repeats)
    print(f"{len(os.sched_getaffinity(0))} threads, products of 2048: {rate / 1e9:.0f} GFLOP/s\n")
    print("size   length  program   ours tokens/s  torch tokens/s  ratio  share of the matrix rate")
    rows = []
    training = TrainingConfig(scan_layers=False, remat="none")
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            save_random(size, folder)
            for length in lengths:
                batch = batch_of(TOKENS // length, length, SIZES[size][0])
                ours, theirs = Ours(folder, batch, training), Theirs(folder, batch, torch)
                weights = matmul_weights(ours.config)
                gap = abs(ours.step() - theirs.step())
                if gap > 1e-3:
                    raise SystemExit(f"{size}, {length}: the first losses differ by {gap:g}: not the same work")
                for program, factor in (("forward", 2), ("training", 6)):
                    methods = ("forward", "forward") if program == "forward" else ("step", "step")
                    found = median_seconds(
                        {"ours": getattr(ours, methods[0]), "torch": getattr(theirs, methods[1])}, repeats
                    )
                    counted = weights - (ours.config.vocabulary * ours.config.width if factor == 2 else 0)
                    row = {
                        "size": size,
                        "weights": weight_count(ours.config),
                        "length": length,
                        "program": program,
                        "ours": TOKENS / found["ours"],
                        "torch": TOKENS / found["torch"],
                        "ratio": found["torch"] / found["ours"],
                        "share": factor * counted * TOKENS / found["ours"] / rate,
                    }
                    rows.append(row)
                    print(
                        f"{size:6} {length:6}  {program:8} {row['ours']:14,.0f} {row['torch']:15,.0f} "
                        f"{row['ratio']:6.2f} {row['share']:10.0%}",
                        flush=True,
                    )
    return rows


def on_gpu(repeats: int) -> list[dict[str, Any]]:
    """Returns model FLOPs utilisation of a training step at 1B and, with LoRA, at 8B."""
    kind = jax.devices()[0].device_kind
    peak = next((rate for name, rate in GPU_RATE.items() if name in kind), None)
    rows = []
    for name, config, adapters, shape in (
        ("1B", LLAMA_1B, None, (8, 2048)),
        ("8B LoRA", LLAMA_8B, lora.LoraConfig(rank=16, targets=lora.ALL_LINEAR), (4, 2048)),
    ):
        trainer = Trainer(
            config, likelihood, make_optimizer(OptimizerConfig(), 1), training=TrainingConfig(), lora=adapters
        )
        initialized = jax.jit(
            lambda config=config: stack_layers(
                jax.tree.map(lambda x: jnp.full(x.shape, 0.01, x.dtype), abstract_params(config))
            )
        )()
        params = (
            trainer.initial_params(initialized)
            if adapters is not None
            else jax.tree.map(lambda x: x.astype("float32"), initialized)
        )
        base_params = initialized if adapters is not None else None
        state = trainer.initial_state(params)
        batch = batch_of(*shape, config.vocabulary)

        def step(trainer: Trainer = trainer, batch: TokenBatch = batch, base_params: Any = base_params) -> None:  # noqa: ANN401 - a tree
            nonlocal params, state
            update = trainer.update(params, state, [batch], base_params=base_params, donate=True)
            params, state = update.params, update.optimizer_state
            jax.block_until_ready(params)  # type: ignore[no-untyped-call]  # jax leaves it untyped

        seconds = median_seconds({"ours": step}, repeats)["ours"]
        tokens = batch.tokens.size
        factor = 6 if adapters is None else 4  # frozen weights have no gradient of their own
        operations = factor * matmul_weights(config) * tokens
        row = {
            "size": name,
            "shape": shape,
            "tokens_per_second": tokens / seconds,
            "operations_per_second": operations / seconds,
        }
        row["utilisation"] = None if peak is None else operations / seconds / peak
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--lengths", default="512,2048")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clock", choices=workloads.CLOCKS, default="wall", help="cpu: on a busy machine, one core")
    parser.add_argument("--quick", action="store_true", help="the smallest model and one repeat, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.lengths, options.repeats = "5M", "512", 1
    workloads.use_clock(options.clock)
    if jax.default_backend() == "gpu":
        rows = on_gpu(options.repeats)
    else:
        rows = on_cpu(options.sizes.split(","), [int(x) for x in options.lengths.split(",")], options.repeats)
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    print(
        json.dumps(
            {"benchmark": "models", "dfc": dfc.__version__, "jax": jax.__version__, "device": device, "rows": rows}
        )
    )


if __name__ == "__main__":
    main()

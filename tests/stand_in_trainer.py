"""A trainer whose programs are Python: what they would compute is written down from shapes alone, and a loss's value.

Everything else of it is `dfc.training.trainer.Trainer`'s own: order, shapes, threads, which update is refused.
"""

import dataclasses
import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
from tiny_models import tiny

from dfc.config import OptimizerConfig
from dfc.losses import Loss
from dfc.methods.language_self_play import update
from dfc.models.transformer import abstract_params
from dfc.runs.checkpoint import Restored
from dfc.samples import TokenBatch
from dfc.stages import offline
from dfc.training import divergence, optimizer, rl
from dfc.training.trainer import Trainer
from dfc.training.update_parts import gradient_programs

ROW = 128  # of the traced programs; splash attention takes multiples of it


@functools.cache
def made_optimizer(config, total_steps=1):
    return optimizer.make_optimizer(config, total_steps)


@functools.cache
def after_three_updates(transformation):
    """Weights that an optimizer makes of gradients small and large."""
    weights = {"w": jnp.asarray([1.0, -2.0, 0.5])}
    state = transformation.init(weights)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types within itself
        for size in (0.3, 2.0, 5.0):
            gradients = {"w": jnp.asarray([size, 0.1, -size])}
            changes, state = transformation.update(gradients, state, weights)
            weights = jax.tree.map(jnp.add, weights, changes)
    return weights["w"]


make_grpo_loss = functools.cache(rl.make_loss)
_make_self_play_losses = update.make_losses
_ROWS_LOSSES, _make_rows_loss = {}, offline.make_loss  # which a run finds `make_rows_loss` in the place of


def make_rows_loss(config, shortest):
    """One object for equal settings; a configuration with mappings has no hash."""
    key = repr((config, shortest))
    if key not in _ROWS_LOSSES:
        _ROWS_LOSSES[key] = _make_rows_loss(config, shortest)
    return _ROWS_LOSSES[key]


@functools.cache
def _self_play_losses(**read):
    return _make_self_play_losses(types.SimpleNamespace(**read))


def make_self_play_losses(config):
    """The same objects for equal settings; one that is not named here could not be read."""
    return _self_play_losses(kl_coefficient=config.kl_coefficient, kl_gradient=config.kl_gradient)


@functools.cache
def value_of(loss):
    """A loss of four sequences in two rows, and its gradient."""
    rng = np.random.default_rng(3)
    logprobs, old, reference, before = (rng.uniform(-2, -0.5, (2, 16)).astype(np.float32) for _ in range(4))
    segments = np.repeat([[1, 1, 2, 2], [1, 2, 2, 0]], 4, axis=1).astype(np.int32)
    mask = ((rng.random((2, 16)) < 0.6) & (segments > 0)).astype(np.float32)
    advantages = np.where(segments == 1, 1.5, -0.7).astype(np.float32)
    batch = TokenBatch(segments, segments, segments, mask, advantages, old)
    rest = (before,) if loss.__module__ == rl.__name__ else ()

    def total(own):
        found = loss(own, batch, reference, *rest)
        return found.total, found.weight

    # The gradient too: of some losses only that says how they differ.
    return jax.value_and_grad(total, has_aux=True)(jnp.asarray(logprobs))


def summed_up(logprobs, *_):
    return Loss(logprobs.sum(), jnp.float32(1), {})


@functools.cache
def traced(training, lora):
    """The program of a gradient, from shapes alone, and the types of what is trained."""
    config = tiny(dtype="bfloat16", width=16, head_dim=4, feed_forward=16, vocabulary=32)
    trainer = Trainer(config, summed_up, made_optimizer(OptimizerConfig()), training=training, lora=lora)
    weights = abstract_params(config)
    trained = jax.eval_shape(trainer.initial_params, weights) if lora is None else trainer.initial_params(weights)
    base = None if lora is None else weights
    if lora is not None and training.scan_layers:
        base = jax.eval_shape(trainer.programs["frozen_params"], weights)
    whole, real = (jax.ShapeDtypeStruct((1, ROW), dtype) for dtype in (jnp.int32, jnp.float32))
    batch = TokenBatch(whole, whole, whole, real, real, real)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32) if lora is not None and lora.dropout else None
    gradient = functools.partial(trainer.programs["gradient"], capacity=None)
    text = str(jax.make_jaxpr(gradient)(trained, base, batch, None, key, None))
    return re.sub("0x[0-9a-f]+", "", text)  # where functions lie in memory


class ScriptedTrainer(Trainer):
    """A trainer whose updates move weights by a quarter at most, by the number of tokens trained on."""

    def __init__(self, tape, config, loss, transformation, **given):
        super().__init__(config, loss, transformation, **given)
        training, lora = given.pop("training"), given.pop("lora")
        computed = dataclasses.replace(training, max_growth=10.0, max_update=0.5)  # the others: programs are bounded
        losses = gradient_programs(loss)
        tape.add(
            "trainer",
            {name: value_of(one) for name, one in losses.items()},
            after_three_updates(transformation),
            hash(traced(computed, lora)),
            given,
        )
        self._tape = tape
        same = {"frozen_params", "initial_params", "policy"}
        self.programs = dict.fromkeys(same, lambda params: params) | {
            "initial_state": lambda _: {"updates": jnp.zeros(())},
            "logprobs": self._computed_logprobs,
            "own_logprobs": self._computed_logprobs,
            **{name: functools.partial(self._gradients, name) for name in losses},
            "add": lambda total, _: total,
            "apply": self._applied,
            "apply_in_place": self._applied,
            "apply_parts": self._applied_parts,
            "apply_parts_in_place": self._applied_parts,
            "largest": divergence.largest,
        }

    def _placed(self, batch):
        return batch  # where it would lie follows from the mesh

    def _computed_logprobs(self, *given, capacity):
        self._tape.add("score", given[-1], capacity)
        level = np.tanh(np.asarray(jax.tree.leaves(given[0])[0], np.float32).mean())
        return jnp.full(given[-1].tokens.shape, -0.5 - 0.1 * level, jnp.float32)

    def _gradients(self, name, params, _, batch, reference, key, before, *, capacity):
        self._tape.add(name, jax.tree.leaves(params)[0], batch, reference, key, before, capacity)
        gap = {"tokens": np.int32(4), **dict.fromkeys(("mean", "max", "kl"), np.float32(0.1))}
        return {"gap": gap, "tokens": np.asarray(batch.mask).sum(dtype=np.float32)}

    def _applied(self, params, state, found):
        def moved(x):
            return x + 0.25 * np.cos(found["tokens"] + 2 * np.arange(x.size, dtype=np.float32)).reshape(x.shape)

        params = jax.tree.map(moved, params)
        numbers = dict.fromkeys(("loss", "gradient_norm", "weight"), 1.0)
        return params, state, {**numbers, "share": 0.3, "largest": divergence.largest(params)}, {}

    def _applied_parts(self, params, state, totals, coefficients):
        self._tape.add("parts", coefficients)
        tokens = sum(coefficients[name] * total["tokens"] for name, total in totals.items())
        return self._applied(params, state, {"tokens": tokens})


class ScriptedCheckpointer:
    """Finds nothing to resume from."""

    def __init__(self, tape, _, *, keep):
        tape.add("checkpoints", keep)
        self._tape, self._saved = tape, {}

    def save(self, step, arrays, *_, **__):
        self._tape.add("checkpoint", step)
        self._saved[step] = arrays

    def wait(self):
        pass

    def close(self):
        pass

    def steps(self):
        return []

    def keep_only(self, steps):
        self._tape.add("kept only", sorted(steps))

    def restore(self, like=None, *, step=None):
        del like
        if step is not None:
            self._tape.add("restored", step)
            return Restored(step, self._saved[step], {})
        return None

"""One update: gradients summed, divided by the loss's weight and applied, and its log-probabilities compared."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.config import TrainingConfig
from dfc.losses import Loss
from dfc.models.config import DecoderConfig
from dfc.models.execution import Execution
from dfc.models.lora import LoraConfig, adapter_shardings, initialize_adapters
from dfc.models.sharding import batch_sharding, param_shardings, stacked_shardings
from dfc.models.transformer import Adapters, Params, is_stacked, stack_layers, unstack_layers
from dfc.packing import Halves
from dfc.samples import PackedChoices, TokenBatch
from dfc.training import divergence, update_parts
from dfc.training.batch_logprobs import action_capacity, batch_logprobs
from dfc.training.optimizer import in_float32
from dfc.training.update_parts import Part, check_parts, gradient_programs, mean_gradients, parts_of, program_of

Tree = Any  # a pytree of arrays
_TOKENS_ON_CPU = 384  # of a micro-batch: of more, intermediate results leave the cache of a core
LossFunction = update_parts.LossFunction


@dataclasses.dataclass(frozen=True)
class Update:
    """What one update did.

    Attributes:
      params: the new weights.
      optimizer_state: the new state.
      loss: mean over the loss's unit.
      gradient_norm: global norm before clipping.
      weight: units the loss was averaged over.
      metrics: means over the loss's unit, and what `Loss.metric_means` says of importance weights.
      gap: how far the log-probabilities of action tokens, before this update, are from those in the batch: from the
        reference's where it has them (``drift``), else from the sampler's (``sampler_gap``). With d the new less the
        old: ``sampler_gap/mean`` and ``sampler_gap/max``, of abs(d), and ``sampler_gap/kl``, the mean of exp(d) - 1 -
        d, an estimate of KL(old, new) that is unbiased and never negative (Schulman, Approximating KL divergence, 2020:
        "k3"). In the first update after sampling it is the difference between two programs on the same weights; later
        ones include the change of the policy.
    """

    params: Params
    optimizer_state: optax.OptState
    loss: float
    gradient_norm: float
    weight: float
    metrics: dict[str, float]
    gap: dict[str, float]


class Trainer:
    """Computes updates for one model, one loss or several, and one optimizer; holds compiled programs, no weights.

    What is trained is a tree of arrays made by `initial_params`: the weights, in the layout and type that
    `TrainingConfig` asks for, or, with `lora`, adapters beside weights that stay as they are. `policy` turns it into
    rollout weights.

    Attributes:
      config: of the model.
      execution: how its whole sequences are computed.
      programs: the compiled programs by name, each of which can also be lowered from shapes alone.
    """

    def __init__(
        self,
        config: DecoderConfig,
        loss: LossFunction | Mapping[str, LossFunction],
        optimizer: optax.GradientTransformation,
        *,
        temperature: float = 1.0,
        training: TrainingConfig = TrainingConfig(),  # noqa: B008 - frozen
        lora: LoraConfig | None = None,
        mesh: Mesh | None = None,
        workers: int = 1,
    ) -> None:
        """Prepares the programs; nothing is compiled before the first update.

        Args:
          config: of the model.
          loss: of one micro-batch; or several by name, for updates of several parts.
          optimizer: turns gradients into updates; its state and arithmetic are float32 whatever the weights are.
          temperature: that of sampling; log-probabilities are taken at it.
          training: layout, types, what the backward pass keeps.
          lora: train adapters of this kind; None trains the weights.
          mesh: the devices; None leaves everything on one.
          workers: micro-batches computed side by side; their sum is taken in order, so the result is the same.
        """
        self.config = config
        self.execution = Execution(training.attention, training.remat, mesh)
        self._training = training
        self._lora = lora
        self._mesh = mesh
        self._workers = workers
        self._optimizer = in_float32(optimizer)
        # Rows split over several devices: see `batch_logprobs`.
        self._picks = mesh is None or mesh.size == 1
        # Called side by side, programs are lowered by whichever thread comes first.
        self.programs = {
            "frozen_params": jax.jit(stack_layers),
            "initial_params": jax.jit(self._initial_params),
            "initial_state": jax.jit(self._initial_state),
            "logprobs": jax.jit(
                functools.partial(self._logprobs, temperature=temperature), static_argnames=("capacity",)
            ),
            **{
                name: jax.jit(
                    functools.partial(self._gradient, loss=one, temperature=temperature), static_argnames=("capacity",)
                )
                for name, one in gradient_programs(loss).items()
            },
            "own_logprobs": jax.jit(
                functools.partial(self._own_logprobs, temperature=temperature), static_argnames=("capacity",)
            ),
            # A program of its own: inside the gradient it would double the number of large programs to compile.
            "add": jax.jit(_add, donate_argnames=("total",)),
            "apply": jax.jit(self._apply),
            "apply_in_place": jax.jit(self._apply, donate_argnames=("params", "state")),
            "apply_parts": jax.jit(self._apply_parts),
            "apply_parts_in_place": jax.jit(self._apply_parts, donate_argnames=("params", "state")),
            "policy": jax.jit(self._policy),
            "largest": jax.jit(self._largest),
        }
        self._bounds: np.ndarray | None = None  # of the largest values, known once training has a beginning

    @property
    def halves(self) -> Halves:
        """How micro-batches are cut: each device has the same rows, and a CPU few tokens at a time."""
        shards = 1 if self._mesh is None else self._mesh.shape["data"] * self._mesh.shape["fsdp"]
        return Halves(shards, _TOKENS_ON_CPU * shards if self.execution.runs_on == "cpu" else 0)

    # ---- what is trained ----------------------------------------------------------------------------------------

    def initial_params(self, params: Params, seed: int = 0) -> Params:
        """Returns the tree to train, from a model's unrolled weights; fresh adapters have no effect."""
        if self._lora is not None:
            initialized = initialize_adapters(self.config, self._lora, seed)
            return self.programs["initial_params"](jax.tree.map(np.asarray, initialized))
        return params if self._as_is() else self.programs["initial_params"](params)

    def bound_growth(self, initial_params: Params) -> None:
        """Lets `update` refuse what leaves the bounds of `TrainingConfig`, seen from a tree of `initial_params`.

        Without it, or before it, only numbers that are not finite are refused.
        """
        largest = np.asarray(self.programs["largest"](initial_params))
        self._bounds = divergence.bounds(largest, self._training.max_growth)

    def initial_state(self, params: Params) -> optax.OptState:
        """Returns the optimizer's state before the first update of a tree made by `initial_params`."""
        return self.programs["initial_state"](params)

    def abstract_state(self, params: Params) -> optax.OptState:
        """Returns shapes and places of the optimizer's state of such a tree; nothing is allocated."""
        shapes = jax.eval_shape(self._initial_state, params)
        whole = jax.tree.leaves(params)[0].sharding if self._mesh is None else self._whole()

        def place(part: Tree) -> Tree:
            places = jax.tree.map(lambda x: x.sharding, params) if _is_tree(part) else whole
            return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), part, places)  # type: ignore[no-untyped-call]  # jax leaves it untyped

        return jax.tree.map(place, shapes, is_leaf=_is_tree)

    def policy(self, params: Params) -> Params:
        """Returns the weights to play and to save: unrolled, of the model's dtype; adapters stay adapters, unrolled."""
        return params if self._as_is() else self.programs["policy"](params)

    def frozen_params(self, params: Params) -> Params:
        """Returns a model's unrolled weights in the form of `update`'s `base_params` and `reference_params`."""
        return self.programs["frozen_params"](params) if self._training.scan_layers else params

    def _as_is(self) -> bool:
        kept = self.config.dtype if self._lora is None else "float32"
        return not self._training.scan_layers and self._master_dtype == kept

    @property
    def _master_dtype(self) -> str:
        return "float32" if self._lora is not None else self._training.master_dtype

    def _initial_params(self, params: Params) -> Params:
        cast = jax.tree.map(lambda x: x.astype(self._master_dtype), params)
        return self._place(stack_layers(cast) if self._training.scan_layers else cast)

    def _policy(self, params: Params) -> Params:
        dtype = "float32" if self._lora is not None else self.config.dtype
        cast = jax.tree.map(lambda x: x.astype(dtype), params)
        return self._place(unstack_layers(cast) if is_stacked(cast) else cast)

    def _initial_state(self, params: Params) -> optax.OptState:
        return self._place_state(self._optimizer.init(params))

    def _largest(self, params: Params) -> jax.Array:
        found = divergence.largest(params)
        return found if self._mesh is None else _constrained(found, self._whole())

    # ---- placement ----------------------------------------------------------------------------------------------

    def shardings(self, *, stacked: bool) -> Params:
        """Returns the placement of each array of the trained tree; without a mesh None."""
        if self._mesh is None:
            return None
        if self._lora is None:
            found = param_shardings(self.config, self._mesh)
        else:
            found = adapter_shardings(self.config, self._lora, self._mesh)
        return stacked_shardings(found) if stacked else found

    def _place(self, params: Params) -> Params:
        """Pins arrays shaped like the trained tree to their places; a result elsewhere could not be donated."""
        if self._mesh is None:
            return params
        return _constrained(params, self.shardings(stacked=is_stacked(params)))

    def _place_state(self, state: optax.OptState) -> optax.OptState:
        if self._mesh is None:
            return state
        whole = self._whole()

        def place(part: Tree) -> Tree:
            return self._place(part) if _is_tree(part) else _constrained(part, whole)

        return jax.tree.map(place, state, is_leaf=_is_tree)

    def _whole(self) -> NamedSharding:
        """Returns the place of what every device has."""
        assert self._mesh is not None  # noqa: S101 - asked for with one only
        return NamedSharding(self._mesh, PartitionSpec())  # type: ignore[no-untyped-call]  # jax leaves it untyped

    # ---- programs -----------------------------------------------------------------------------------------------

    def _computed(
        self, params: Params, base_params: Params | None, key: jax.Array | None
    ) -> tuple[Params, Adapters | None]:
        """Returns the weights to compute with, of the model's dtype, and the adapters."""
        if self._lora is None:
            return jax.tree.map(lambda x: x.astype(self.config.dtype), params), None
        return base_params, Adapters(params, self._lora.scale, key=key, dropout=self._lora.dropout)

    def _logprobs(self, params: Params, batch: TokenBatch, *, capacity: int | None, temperature: float) -> jax.Array:
        return batch_logprobs(self.config, params, batch, capacity, temperature, execution=self.execution)

    def _own_logprobs(
        self, params: Params, base_params: Params | None, batch: TokenBatch, *, capacity: int | None, temperature: float
    ) -> jax.Array:
        weights, adapters = self._computed(params, base_params, None)
        return batch_logprobs(
            self.config, weights, batch, capacity, temperature, adapters=adapters, execution=self.execution
        )

    def _gradient(
        self,
        params: Params,
        base_params: Params | None,
        batch: TokenBatch,
        reference_logprobs: jax.Array | None,
        dropout_key: jax.Array | None,
        proximal: jax.Array | None = None,
        *,
        capacity: int | None,
        loss: LossFunction,
        temperature: float,
    ) -> Tree:
        key = None if dropout_key is None else jax.random.fold_in(jax.random.key(dropout_key[0]), dropout_key[1])

        def objective(trained: Params) -> tuple[jax.Array, tuple[Loss, Tree]]:
            weights, adapters = self._computed(trained, base_params, key)
            logprobs = batch_logprobs(
                self.config, weights, batch, capacity, temperature, adapters=adapters, execution=self.execution
            )
            result = loss(logprobs, batch, reference_logprobs, *(() if proximal is None else (proximal,)))
            return result.total, (result, logprob_gap(logprobs, batch))

        gradients, (result, gap) = jax.grad(objective, has_aux=True)(params)
        return {"gradients": self._place(gradients), "loss": result, "gap": gap}

    def _apply(self, params: Params, state: optax.OptState, total: Tree) -> Tree:
        result: Loss = total["loss"]
        params, state, numbers = self._step(params, state, mean_gradients(total))
        numbers |= {"loss": result.mean, "weight": result.weight}
        return params, state, numbers, result.metric_means

    def _apply_parts(
        self, params: Params, state: optax.OptState, totals: Mapping[str, Tree], coefficients: Mapping[str, jax.Array]
    ) -> Tree:
        """One step along the sum of the parts' mean gradients, each times its coefficient."""
        gradients: Tree = None
        numbers = {"loss": jnp.float32(0), "weight": jnp.float32(0)}
        metrics: dict[str, jax.Array] = {}
        for name, total in totals.items():
            result: Loss = total["loss"]
            scaled = jax.tree.map(lambda g, c=coefficients[name]: g * c, mean_gradients(total))
            gradients = scaled if gradients is None else jax.tree.map(jnp.add, gradients, scaled)
            numbers["loss"] += coefficients[name] * result.mean
            numbers["weight"] += result.weight
            own = {"loss": result.mean, "weight": result.weight, **result.metric_means}
            metrics |= {f"{name}/{what}": value for what, value in own.items()}
        params, state, moved = self._step(params, state, gradients)
        return params, state, numbers | moved, metrics

    def _step(
        self, params: Params, state: optax.OptState, gradients: Tree
    ) -> tuple[Params, optax.OptState, dict[str, jax.Array]]:
        """The optimizer's step along mean gradients in float32; of the numbers those that say how far it went."""
        updates, state = self._optimizer.update(gradients, state, params)
        squares = (jnp.square(g).sum() for g in jax.tree.leaves(gradients))
        numbers = {"gradient_norm": jnp.sqrt(sum(squares))}
        numbers["share"] = divergence.share(params, updates)
        # Added in float32 and rounded once: in bfloat16 a step below 1/256 of a weight is lost.
        params = jax.tree.map(lambda p, u: (p.astype(jnp.float32) + u).astype(p.dtype), params, updates)
        numbers["largest"] = self._largest(params)
        return self._place(params), self._place_state(state), numbers

    # ---- log-probabilities of what is trained ---------------------------------------------------------------------

    def logprobs(
        self,
        params: Params,
        micro_batches: Sequence[TokenBatch],
        *,
        base_params: Params | None = None,
        check_stop: Callable[[], None] | None = None,
    ) -> list[jax.Array]:
        """Returns log-probabilities float32 [B, T] of the action tokens of each micro-batch, 0 elsewhere.

        Those of the policy about to be trained, dropout off. Taken before the first of several updates, they are what
        `update` takes as `proximal` in the later ones. Micro-batches are of few shapes; with `lora`, `base_params` are
        the weights beside the adapters.

        Raises:
          ValueError: `base_params` is missing or not expected.
        """
        self._check_base_params(base_params)
        program = self.programs["own_logprobs"]
        return self._scored(
            lambda *given, **how: program(params, base_params, *given, **how), micro_batches, check_stop
        )

    def reference_logprobs(
        self,
        reference_params: Params,
        micro_batches: Sequence[TokenBatch],
        *,
        check_stop: Callable[[], None] | None = None,
    ) -> list[jax.Array]:
        """Returns what `update` computes of each micro-batch when it is given `reference_params`, float32 [B, T]."""
        program = self.programs["logprobs"]
        return self._scored(lambda *given, **how: program(reference_params, *given, **how), micro_batches, check_stop)

    def _scored(
        self,
        program: Callable[..., jax.Array],
        micro_batches: Sequence[TokenBatch],
        check_stop: Callable[[], None] | None,
    ) -> list[jax.Array]:
        def score(batch: TokenBatch) -> jax.Array:
            capacity = action_capacity(batch) if self._picks else None
            return program(self._placed(batch), capacity=capacity)

        scored: list[jax.Array] = []
        with ThreadPoolExecutor(self._workers) as pool:
            for start in range(0, len(micro_batches), self._workers):
                _check_stop_after(check_stop, scored, self._workers)
                scored += pool.map(score, micro_batches[start : start + self._workers])
        return scored

    # ---- one update ---------------------------------------------------------------------------------------------

    def update(
        self,
        params: Params,
        state: optax.OptState,
        micro_batches: Sequence[TokenBatch] | Sequence[Part],
        reference_params: Params | None = None,
        *,
        base_params: Params | None = None,
        proximal: Sequence[jax.Array] | None = None,
        dropout_seed: int | None = None,
        donate: bool = False,
        check_stop: Callable[[], None] | None = None,
    ) -> Update:
        """Returns the trained tree after one update on all micro-batches together.

        Of several parts the gradient is sum_k c_k (sum of part k's loss)' / (its weight), one step of the optimizer; a
        part of weight 0 adds nothing. `Update.loss` is the same sum of means, `Update.weight` that of all weights, and
        the metrics of a part, its ``loss`` and ``weight`` among them, have its name before a slash. Beside the sums of
        the part under way those of the finished ones are held, in float32.

        Args:
          params: the trained tree.
          state: the optimizer's.
          micro_batches: of few shapes; or parts, of a trainer that has their losses, each with micro-batches of its
            own.
          reference_params: weights whose log-probabilities the loss needs besides the policy's (for a KL term).
          base_params: with `lora`, the weights beside the adapters; given as `reference_params` too, the reference
            policy is the model with its adapters off, without a second copy.
          proximal: of every micro-batch, log-probabilities under the weights that sampled (see `logprobs`), handed to
            the loss as its fourth argument; None hands it three.
          dropout_seed: with `lora`, of the adapters' dropout; None turns it off.
          donate: reuse the memory of `params` and `state`, which are invalid afterwards.
          check_stop: called between micro-batches, while `params` and `state` are what they were; its exception aborts
            the update (`dfc.runs.stop_signals.Stop.check_stop`). All processes of a run call it equally often.

        Raises:
          ValueError: `base_params` is missing or not expected; `proximal` is not one array per micro-batch; a part
            names an unknown loss or is repeated, has no micro-batch, or not one array of the reference for each.
          DivergenceError: the loss, the gradient or a weight is not finite, or a weight or the change has left
            the range of `TrainingConfig.max_growth` or `max_update`; donated arrays are invalid even then.
        """
        self._check_base_params(base_params)
        parts = parts_of(micro_batches)
        check_parts(parts, self.programs)
        batches = [batch for part in parts for batch in part.micro_batches]
        if proximal is not None and len(proximal) != len(batches):
            raise ValueError(f"proximal: {len(proximal)} arrays for {len(batches)} micro-batches; give one for each")

        def gradient(item: tuple[int, TokenBatch, jax.Array | None], program: str) -> Tree:
            number, batch, reference_logprobs = item
            capacity = action_capacity(batch) if self._picks else None
            placed = self._placed(batch)
            if reference_params is not None and reference_logprobs is None:
                reference_logprobs = self.programs["logprobs"](reference_params, placed, capacity=capacity)
            # Plain numbers: a key made here would be on one process's device.
            dropout_key = None if dropout_seed is None else np.array([dropout_seed, number], np.uint32)
            before = None if proximal is None else proximal[number]
            return self.programs[program](
                params, base_params, placed, reference_logprobs, dropout_key, before, capacity=capacity
            )

        totals: dict[str, Tree] = {}
        gaps: list[Tree] = []
        precomputed = any(batch.reference_logprobs is not None for batch in batches)
        first = 0
        with ThreadPoolExecutor(self._workers) as pool:  # a program's run releases Python's lock
            for part in parts:
                total: Tree = None
                count = len(part.micro_batches)
                known: Sequence[jax.Array | None] = part.reference_logprobs or [None] * count
                numbered = list(zip(range(first, first + count), part.micro_batches, known, strict=True))
                first += count
                one = functools.partial(gradient, program=program_of(part.name))
                for start in range(0, count, self._workers):
                    _check_stop_after(check_stop, gaps, self._workers)
                    for found in pool.map(one, numbered[start : start + self._workers]):
                        gaps.append(found.pop("gap"))  # apart: maxima are not summed
                        total = _widened(found, count) if total is None else self.programs["add"](total, found)
                totals[part.name] = total
        name = "apply" if "" in totals else "apply_parts"
        apply = self.programs[f"{name}_in_place" if donate else name]
        if "" in totals:
            params, state, numbers, metrics = apply(params, state, totals[""])
        else:
            coefficients = {part.name: np.float32(part.coefficient) for part in parts}
            params, state, numbers, metrics = apply(params, state, totals, coefficients)
        loss, norm = float(numbers["loss"]), float(numbers["gradient_norm"])
        # Waits for the program, so that a caller's clock is right.
        divergence.refuse(
            params,
            np.asarray(numbers["largest"]),
            self._bounds,
            loss=loss,
            gradient_norm=norm,
            moved=float(numbers["share"]),
            most=self._training.max_update,
        )
        return Update(
            params,
            state,
            loss=loss,
            gradient_norm=norm,
            weight=float(numbers["weight"]),
            metrics={name: float(value) for name, value in metrics.items()},
            gap=joined_gaps(jax.device_get(gaps), "drift" if precomputed else "sampler_gap"),
        )

    def _check_base_params(self, base_params: Params | None) -> None:
        if (base_params is None) != (self._lora is None):
            raise ValueError("base: give the frozen weights with lora, and only then")

    def _placed(self, batch: TokenBatch) -> TokenBatch:
        if self._mesh is None or self._mesh.size == 1:
            return batch._replace(choices=None if batch.choices is None else np.asarray(batch.choices))
        rows = batch_sharding(self._mesh)
        # Every process holds the whole batch and hands its own devices their rows; of sets only these are laid out.
        arrays = [x if x is None or isinstance(x, PackedChoices) else np.asarray(x) for x in batch]
        placed = [x if x is None else jax.make_array_from_callback(x.shape, rows, x.__getitem__) for x in arrays]
        return TokenBatch(*placed)  # type: ignore[arg-type]  # arrays of either kind serve


def gone(params: Params) -> bool:
    """Returns whether an update has taken the memory of these weights."""
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(params))


def _check_stop_after(check_stop: Callable[[], None] | None, done: Sequence[Tree], workers: int) -> None:
    """Calls `check_stop` when all but the last micro-batches are computed; the host alone would be done immediately."""
    if check_stop is not None:
        if len(done) > workers:
            jax.block_until_ready(done[-workers - 1])  # type: ignore[no-untyped-call]  # jax leaves it untyped
        check_stop()


def _is_tree(part: object) -> bool:
    """Whether a part of an optimizer's state is shaped like what is trained."""
    return isinstance(part, dict) and "layers" in part


def _constrained(tree: Tree, places: Tree) -> Tree:
    return jax.lax.with_sharding_constraint(tree, places)  # type: ignore[no-untyped-call]  # jax leaves it untyped


def _add(total: Tree, found: Tree) -> Tree:
    found = jax.tree.map(lambda t, f: f.astype(t.dtype), total, found)
    return {
        "gradients": jax.tree.map(jnp.add, total["gradients"], found["gradients"]),
        "loss": total["loss"] + found["loss"],  # not leaf by leaf: of importance weights there is a maximum
    }


def _widened(found: Tree, count: int) -> Tree:
    """Sums of several micro-batches are taken in float32, whatever the gradients are."""
    return found if count == 1 else jax.tree.map(lambda x: x.astype(jnp.float32), found)


def logprob_gap(logprobs: jax.Array, batch: TokenBatch) -> dict[str, jax.Array]:
    """Returns sums and the maximum over action tokens of one micro-batch; see `dfc.training.trainer.Update.gap`."""
    sampled = jnp.asarray(batch.mask) != 0
    old = batch.sampled_logprobs if batch.reference_logprobs is None else batch.reference_logprobs
    d = jnp.where(sampled, jax.lax.stop_gradient(logprobs) - old, 0)
    # In float32 exp(d) - 1 - d of a small d is nothing but rounding: its series instead.
    kl = jnp.where(jnp.abs(d) < 0.01, d * d * (0.5 + d / 6), jnp.expm1(d) - d)
    return {"tokens": sampled.sum(), "mean": jnp.abs(d).sum(), "max": jnp.abs(d).max(), "kl": kl.sum()}


def joined_gaps(gaps: Sequence[Mapping[str, np.ndarray]], name: str) -> dict[str, float]:
    """Returns the gap over all micro-batches; zeros without an action token."""
    tokens = max(1, sum(int(one["tokens"]) for one in gaps))
    found = {f"{name}/{part}": sum(float(one[part]) for one in gaps) / tokens for part in ("mean", "kl")}
    return {**found, f"{name}/max": max((float(one["max"]) for one in gaps), default=0.0)}

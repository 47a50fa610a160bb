"""The programs of a run, as the run itself makes them, built from shapes alone.

Nothing here is a copy of a program: the trainer's jitted functions and the engine's are lowered with shapes that carry
the shardings the run would give them.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.config import RlRun
from dfc.episodes import TokenBatch
from dfc.fit import analytic, traced
from dfc.fit.analytic import Workload
from dfc.fit.compilation import DoesNotFitError, compile_program, quiet
from dfc.fit.hardware import Topology, require_cudnn, topology_devices
from dfc.fit.iteration import Lengths, make_trainer, runs
from dfc.fit.report import ProgramReport
from dfc.inference import buckets as engine_shapes
from dfc.inference.programs import CallRows, EngineWeights, Programs, Shape
from dfc.inference.sampling import filters_of, row_sampling
from dfc.inference.slots import tensor_devices_on_one_host
from dfc.models import quantization, sharding
from dfc.models.cache import empty_cache
from dfc.models.lora import abstract_adapters
from dfc.models.transformer import Adapters, abstract_params
from dfc.training.trainer import Trainer

Tree = Any  # a pytree of jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
      name: what it does.
      function: the run's own, jitted.
      arguments: what it is given, in its order; a tuple, or a dict that names them.
      phase: of `MemoryEstimate.phases`, whose other parts lie beside it.
      holds: names of parts that are its arguments, results or temporaries; the rest of the phase is beside it.
      runs: in one iteration after a stage's first.
      donated: the part of the arguments that is given away.
      unread: bytes of the arguments of which it reads a few rows only.
      loop_trips: of its loop, if how many there are is data; all it can run.
      again: bytes that pass through device memory beside each argument once: what further rounds read, and copies.
      options: static keyword arguments.
    """

    name: str
    function: Any
    arguments: Tree
    phase: str
    holds: tuple[str, ...]
    runs: float
    donated: Tree = ()
    unread: int = 0
    loop_trips: int | None = None
    again: float = 0.0
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def trace(self) -> Any:  # noqa: ANN401 - jax.stages.Traced, whose methods are untyped
        """Traces it."""
        given = self.arguments.values() if isinstance(self.arguments, dict) else self.arguments
        return self.function.trace(*given, **self.options)


def local_bytes(tree: Tree) -> int:
    """Returns the bytes on one device of shapes with shardings; without one, of the whole array."""

    def size(x: jax.ShapeDtypeStruct) -> int:
        shape = x.shape if x.sharding is None else x.sharding.shard_shape(x.shape)
        return int(math.prod(shape) * x.dtype.itemsize)

    return sum(map(size, jax.tree.leaves(tree)))


def _shape(shape: tuple[int, ...], dtype: Any, place: NamedSharding | None = None) -> jax.ShapeDtypeStruct:  # noqa: ANN401 - a dtype
    return jax.ShapeDtypeStruct(shape, dtype, sharding=place)  # type: ignore[no-untyped-call]  # jax leaves it untyped


def unread(weights: Tree, workload: Workload) -> int:
    """Returns the bytes on one device of an input embedding that is not the output projection as well."""
    return 0 if workload.model.tied_embedding else local_bytes(weights["embed"])


def _placed(shapes: Tree, places: Tree) -> Tree:
    return jax.tree.map(lambda x, s: _shape(x.shape, x.dtype, s), shapes, places)


@dataclasses.dataclass(frozen=True)
class RunShapes:
    """Every array of a run as a shape with its sharding.

    Attributes:
      initial_params: the model's weights, unrolled, of its dtype.
      frozen_params: the same as the trainer reads them beside what it trains.
      trained: what is trained.
      state: the optimizer's.
      batch: a micro-batch.
      logprobs: of the reference.
      policy: what plays.
    """

    initial_params: Tree
    frozen_params: Tree
    trained: Tree
    state: Tree
    batch: TokenBatch
    logprobs: Tree
    policy: Tree


def shapes_of(trainer: Trainer, workload: Workload, mesh: Mesh) -> RunShapes:
    """Returns the shapes and shardings of a run's arrays."""
    model, spec = workload.model, _spec
    apart = sharding.param_shardings(model, mesh)
    initial_params = abstract_params(model)
    if workload.adapter.base == "nf4":
        apart = quantization.quantized_shardings(model, mesh)
        initial_params = jax.eval_shape(quantization.quantize_params, initial_params)
    initial_params = _placed(initial_params, apart)
    whole = NamedSharding(mesh, spec())
    stacked = workload.training.scan_layers
    frozen_places = sharding.stacked_shardings(apart) if stacked else apart
    frozen_params = _placed(jax.eval_shape(trainer.frozen_params, initial_params), frozen_places)
    if workload.lora is None:
        trained = jax.eval_shape(trainer.initial_params, initial_params)
    else:  # `Trainer.initial_params` initializes them, on the host
        trained = jax.eval_shape(trainer.programs["initial_params"], abstract_adapters(model, workload.lora))
    trained = _placed(trained, trainer.shardings(stacked=stacked))
    policy = _placed(jax.eval_shape(trainer.policy, trained), trainer.shardings(stacked=False))

    def is_tree(part: object) -> bool:
        return isinstance(part, dict) and "layers" in part

    def place(part: Tree) -> Tree:
        places = trainer.shardings(stacked=stacked) if is_tree(part) else whole
        return _placed(part, places if is_tree(part) else jax.tree.map(lambda _: whole, part))

    state = jax.tree.map(place, jax.eval_shape(trainer.initial_state, trained), is_leaf=is_tree)
    rows = sharding.batch_sharding(mesh)
    shape = (workload.batch.micro_batch_rows, workload.batch.row_length)
    kinds = (jnp.int32,) * 3 + (jnp.float32,) * 3
    batch = TokenBatch(*(_shape(shape, kind, rows) for kind in kinds))  # type: ignore[arg-type]  # shapes stand for arrays
    return RunShapes(
        initial_params=initial_params,
        frozen_params=frozen_params,
        trained=trained,
        state=state,
        batch=batch,
        logprobs=_shape(shape, jnp.float32, rows),
        policy=policy,
    )


def _spec(*axes: str | tuple[str, ...] | None) -> PartitionSpec:
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]  # jax leaves it untyped


def of_run(config: RlRun, workload: Workload, topology: Topology, lengths: Lengths) -> Iterator[Program]:
    """Yields the programs of one iteration of the recipe, the costly ones first.

    Args:
      config: of the run.
      workload: its sizes.
      topology: the described devices.
      lengths: of an episode, for how often each runs.
    """
    if workload.training.attention == "cudnn":
        require_cudnn()
    with quiet():
        devices = topology_devices(topology)
        mesh = sharding.make_mesh(*dataclasses.astuple(workload.mesh), devices=devices)
    # A TPU's mesh puts neighbours side by side, which may lie on different hosts.
    hosts = len({device.process_index for device in mesh.devices.flat})
    workload = dataclasses.replace(workload, apart=hosts > 1 and tensor_devices_on_one_host(mesh))
    trainer = make_trainer(config, workload, mesh)
    shapes = shapes_of(trainer, workload, mesh)
    often = runs(config, lengths, workload)
    yield from _training(trainer, workload, shapes, often.micro_batches)
    yield from _playing(workload, shapes, mesh, often.decode, often.prefill)


def _training(trainer: Trainer, workload: Workload, shapes: RunShapes, micro_batches: int) -> Iterator[Program]:
    programs, lora, updates = trainer.programs, workload.lora is not None, workload.updates
    base_params = shapes.frozen_params if lora else None
    kept = "frozen weights, stacked" if lora else "reference policy, stacked"
    reference_logprobs = shapes.logprobs if workload.reference else None
    at_work = ("weights cast", "residuals", "layer at work", "attention weights", "attention mask", "logits")
    gradient = shapes.trained, base_params, shapes.batch, reference_logprobs, None
    # One device picks the positions it projects; a batch of which every token is an action needs most.
    capacity = math.prod(shapes.batch.tokens.shape) if workload.devices == 1 else None
    holds: tuple[str, ...] = "trained weights", "gradients", *at_work, *((kept,) if lora else ())
    options = {"capacity": capacity}
    yield Program("gradient", programs["gradient"], gradient, "gradient", holds, micro_batches, options=options)
    if workload.reference:
        yield Program(
            "reference log-probabilities",
            programs["logprobs"],
            (shapes.frozen_params, shapes.batch),
            "gradient",
            (kept if workload.training.scan_layers else "initial policy", "gradients", *at_work),
            micro_batches,
            unread=unread(shapes.frozen_params, workload),
            options=options,
        )
    found = jax.eval_shape(lambda *a: programs["gradient"](*a, capacity=capacity), *gradient)
    places = trainer.shardings(stacked=workload.training.scan_layers)
    dtype = jnp.float32 if workload.micro_batches > 1 else None
    widened = jax.tree.map(lambda x: _shape(x.shape, dtype or x.dtype), found["gradients"])
    total = {"gradients": _placed(widened, places), "loss": found["loss"]}
    apply = shapes.trained, shapes.state, total
    given = "trained weights", "optimizer", "gradients"
    made = "weights after the update", "optimizer after the update"
    # Whatever the rule, a stage's first update keeps what it starts from: the most that any update holds.
    first = 1 if workload.compares else 0  # of the updates of any other iteration
    phase = "optimizer step"
    yield Program(phase, programs["apply"], apply, phase, (*given, *made), first)
    if updates > first:
        # Of several updates the later ones lie beside what the first started from, as large as what it made.
        holds, rest = given if updates > 1 else (*given, *made), updates - first
        yield Program(f"{phase} in place", programs["apply_in_place"], apply, phase, holds, rest, donated=apply[:2])
    if not workload.one_layout:
        holds, times = ("trained weights", "weights for decoding", "gradients"), 2 if workload.compares else 1
        yield Program("weight hand-over", programs["policy"], (shapes.trained,), phase, holds, times)


def _playing(workload: Workload, shapes: RunShapes, mesh: Mesh, decode: float, prefill: float) -> Iterator[Program]:
    """Yields the engine's programs at their costliest: the most rows, the longest cache, no constraints.

    The weights are those being trained. The initial policy replies from the same cache by programs of the same kind
    (with adapters the same less the adapters).
    """
    model, rollout, count = workload.model, workload.rollout, workload.call_rows
    engine = Programs(model, None if mesh.size == 1 else mesh)
    cache = jax.eval_shape(
        lambda: empty_cache(model, workload.held_here * workload.shards, rollout.max_length + workload.spare)
    )
    whole = NamedSharding(mesh, _spec())
    cache = jax.tree.map(lambda x: _shape(x.shape, x.dtype, engine.cache or whole), cache)
    weights = EngineWeights(shapes.policy, None)
    if workload.lora is not None:
        weights = EngineWeights(shapes.initial_params, Adapters(shapes.policy, workload.lora.scale))
    positions = (rollout.cache_buckets or engine_shapes.default_cache_buckets(rollout.max_length))[-1]
    shape = Shape(model, filters_of([workload.sampling]), positions, workload.whole, pooled=False)

    zeros, answers = np.zeros(count, np.int32), np.zeros(count, bool)
    sampling = row_sampling([workload.sampling] * count)
    # Rows that every host makes alike have no sharding of their own, as in the run: the compiler chooses.
    place = engine.rows if workload.apart else None

    def row(*size: int, kind: Any = jnp.int32) -> jax.ShapeDtypeStruct:  # noqa: ANN401 - a dtype
        return _shape((count, *size), kind, place)

    rows = CallRows(
        zeros, held=zeros, count=zeros, answers=answers, budget=zeros, adapter=zeros, sampling=sampling, node=zeros
    )
    rows = jax.tree.map(lambda x: row(kind=x.dtype), rows)
    common = {"weights": weights, "cache": cache, "rows": rows}
    # In the order in which the programs want them.
    reads = common | {"tokens": row(workload.prefill), "uniform": row(kind=jnp.float32), "trie": None}
    writes = common | {
        "token": row(),
        "uniform": row(workload.steps, kind=jnp.float32),
        "stops": _shape((model.vocabulary,), jnp.bool_),
        "trie": None,
        "limit": _shape((), jnp.int32),
        "least": _shape((), jnp.int32),
    }
    seldom = unread(weights.params, workload)
    read, past = local_bytes(weights) - seldom, analytic.past_bytes(workload)
    at_work = "rows taken out", "what a call adds", "attention weights", "layer at work", "logits"
    held = "trained weights" if workload.one_layout else "weights for decoding", "cache"
    frozen = ("initial policy",) if workload.lora is not None else ()
    for name, function, arguments, times, loop_trips in (
        ("decode", engine.decode, writes, decode, workload.steps),
        ("prefill-append", engine.prefill, reads, prefill, None),
    ):
        yield Program(
            name,
            function,
            arguments,
            "playing",
            (*frozen, *held, *at_work),
            times,
            donated=cache,
            unread=seldom + int(local_bytes(cache) - past),
            loop_trips=loop_trips,
            # Every step reads weights and past; rows taken out are read once more, and written, before the first.
            again=((loop_trips or 1) - 1) * (read + past) + (0 if workload.whole else 2 * past),
            options={"shape": shape},
        )


def compile_one(program: Program, workload: Workload, topology: Topology) -> ProgramReport:
    """Traces, counts and compiles one program."""
    stages = program.trace()
    count = traced.count(stages.jaxpr, program.loop_trips)
    parts = analytic.memory(workload).phases[program.phase]
    beside = sum(size for name, size in parts.items() if name not in program.holds)
    lowered = stages.lower()
    compiled, refusal = None, ""
    try:
        compiled = compile_program(lowered, topology, program.loop_trips)
    except DoesNotFitError as error:
        refusal = str(error)
    moved = float(local_bytes(program.arguments) - program.unread) + program.again
    if compiled is not None:
        moved += compiled.outputs - compiled.aliased
    return ProgramReport(
        program.name,
        count,
        max(moved, count.carried_bytes / topology.devices),
        beside,
        compiled,
        refusal,
        local_bytes(program.donated),
        program.runs,
    )

"""The programs of a run, as the run itself makes them, built from shapes alone.

Nothing here is a copy of a program: the trainer's jitted functions and the engine's are lowered with shapes that carry
the shardings the run would give them.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.config import DivideFuseConquer, SamplingConfig
from dfc.episodes import TokenBatch
from dfc.fit import analytic, traced
from dfc.fit.analytic import Workload
from dfc.fit.compilation import DoesNotFitError, compile_program, quiet
from dfc.fit.hardware import Topology, require_cudnn, topology_devices
from dfc.fit.iteration import Lengths, runs
from dfc.fit.report import ProgramReport
from dfc.inference import buckets as engine_shapes
from dfc.inference.programs import CallRows, EngineWeights, Programs, Shape
from dfc.inference.sampling import filters_of, row_sampling
from dfc.inference.slots import tensor_devices_on_one_host
from dfc.models import quantization, sharding
from dfc.models.cache import empty_cache
from dfc.models.lora import abstract_adapters
from dfc.models.transformer import Adapters, abstract_params
from dfc.recipes import divide_fuse_conquer
from dfc.training.optimizer import make_optimizer
from dfc.training.trainer import Trainer

Tree = Any  # a pytree of jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
      name: what it does.
      trace: traces it; what it returns has `jaxpr` and `lower()`.
      arguments: what it is given, for sizes.
      donated: the part of it that is given away.
      unread: bytes of the arguments of which it reads a few rows only.
      phase: of `MemoryEstimate.phases`, whose other parts lie beside it.
      holds: names of parts that are its arguments, results or temporaries; the rest of the phase is beside it.
      runs: in one iteration after a stage's first.
      loop_trips: of its loop, if how many there are is data; all it can run.
      again: bytes that pass through device memory beside each argument once: what further rounds read, and copies.
    """

    name: str
    trace: Callable[[], Any]
    arguments: Tree
    donated: Tree
    unread: int
    phase: str
    holds: tuple[str, ...]
    runs: float
    loop_trips: int | None = None
    again: float = 0.0


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


def make_trainer(config: DivideFuseConquer, workload: Workload, mesh: Mesh) -> Trainer:
    """Returns the trainer the run would use."""
    return Trainer(
        workload.model,
        divide_fuse_conquer.learning(config).loss,
        make_optimizer(config.optimizer),
        temperature=config.temperature,
        training=config.training,
        lora=workload.lora,
        mesh=mesh,
    )


def shapes_of(trainer: Trainer, workload: Workload, mesh: Mesh) -> RunShapes:
    """Returns the shapes and shardings of a run's arrays."""
    model, spec = workload.model, _spec
    apart = sharding.param_shardings(model, mesh)
    initial_params = abstract_params(model)
    if workload.nf4:
        apart = quantization.quantized_shardings(model, mesh)
        initial_params = jax.eval_shape(quantization.quantize_params, initial_params)
    initial_params = _placed(initial_params, apart)
    whole = NamedSharding(mesh, spec())
    stacked = workload.scan_layers
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
    shape = (workload.rows, workload.row_length)
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


def of_run(config: DivideFuseConquer, workload: Workload, topology: Topology, lengths: Lengths) -> Iterator[Program]:
    """Yields the programs of one iteration of divide_fuse_conquer, the costly ones first.

    Args:
      config: of the run.
      workload: its sizes.
      topology: the described devices.
      lengths: of an episode, for how often each runs.
    """
    if workload.attention == "cudnn":
        require_cudnn()
    with quiet():
        devices = topology_devices(topology)
        mesh = sharding.make_mesh(workload.data, workload.fsdp, workload.tensor, devices=devices)
    # A TPU's mesh puts neighbours side by side, which may lie on different hosts.
    hosts = len({device.process_index for device in mesh.devices.flat})
    workload = dataclasses.replace(workload, apart=hosts > 1 and tensor_devices_on_one_host(mesh))
    trainer = make_trainer(config, workload, mesh)
    shapes = shapes_of(trainer, workload, mesh)
    rows = workload.rows_here * workload.shards
    often = runs(config, lengths, rows=rows, steps=workload.steps, width=workload.prefill)
    yield from _training(trainer, workload, shapes, often.micro_batches, often.updates)
    yield from _playing(config, workload, shapes, mesh, often.decode, often.prefill)


def _training(
    trainer: Trainer, workload: Workload, shapes: RunShapes, micro_batches: int, updates: int
) -> Iterator[Program]:
    programs, lora = trainer.programs, workload.lora is not None
    base_params = shapes.frozen_params if lora else None
    kept = "frozen weights, stacked" if lora else "reference policy, stacked"
    reference_logprobs = shapes.logprobs if workload.reference else None
    at_work = ("weights cast", "residuals", "layer at work", "attention weights", "attention mask", "logits")
    gradient = shapes.trained, base_params, shapes.batch, reference_logprobs, None
    # One device picks the positions it projects; a batch of which every token is an action needs most.
    capacity = workload.rows * workload.row_length if workload.devices == 1 else None
    yield Program(
        "gradient",
        lambda: programs["gradient"].trace(*gradient, capacity=capacity),
        gradient,
        (),
        0,
        "gradient",
        ("trained weights", "gradients", *at_work, *((kept,) if lora else ())),
        micro_batches,
    )
    if workload.reference:
        reference = shapes.frozen_params, shapes.batch
        yield Program(
            "reference log-probabilities",
            lambda: programs["logprobs"].trace(*reference, capacity=capacity),
            reference,
            (),
            unread(shapes.frozen_params, workload),
            "gradient",
            (kept if workload.scan_layers else "initial policy", "gradients", *at_work),
            micro_batches,
        )
    found = jax.eval_shape(lambda *a: programs["gradient"](*a, capacity=capacity), *gradient)
    places = trainer.shardings(stacked=workload.scan_layers)
    dtype = jnp.float32 if workload.micro_batches > 1 else None
    widened = jax.tree.map(lambda x: _shape(x.shape, dtype or x.dtype), found["gradients"])
    total = {"gradients": _placed(widened, places), "loss": found["loss"]}
    apply = shapes.trained, shapes.state, total
    given = "trained weights", "optimizer", "gradients"
    made = "weights after the update", "optimizer after the update"
    # Whatever the rule, a stage's first update keeps what it starts from: the most that any update holds.
    first = 1 if workload.compares else 0  # of the updates of any other iteration
    yield Program(
        "optimizer step",
        lambda: programs["apply"].trace(*apply),
        apply,
        (),
        0,
        "optimizer step",
        (*given, *made),
        first,
    )
    if updates > first:
        yield Program(
            "optimizer step in place",
            lambda: programs["apply_in_place"].trace(*apply),
            apply,
            apply[:2],
            0,
            "optimizer step",
            # Of several updates the later ones lie beside what the first started from, as large as what it made.
            given if updates > 1 else (*given, *made),
            updates - first,
        )
    if not workload.one_layout:
        yield Program(
            "weight hand-over",
            lambda: programs["policy"].trace(shapes.trained),
            shapes.trained,
            (),
            0,
            "optimizer step",
            ("trained weights", "weights for decoding", "gradients"),
            2 if workload.compares else 1,
        )


def _playing(
    config: DivideFuseConquer, workload: Workload, shapes: RunShapes, mesh: Mesh, decode: float, prefill: float
) -> Iterator[Program]:
    """Yields the engine's programs at their costliest: the most rows, the longest cache, no constraints.

    The weights are those being trained. The initial policy replies from the same cache by programs of the same kind
    (with adapters the same less the adapters).
    """
    model, rollout, asked = workload.model, config.rollout, SamplingConfig(temperature=config.temperature)
    engine = Programs(model, None if mesh.size == 1 else mesh)
    cache = jax.eval_shape(
        lambda: empty_cache(model, workload.held_here * workload.shards, workload.positions + workload.spare)
    )
    whole = NamedSharding(mesh, _spec())
    cache = jax.tree.map(lambda x: _shape(x.shape, x.dtype, engine.cache or whole), cache)
    weights = EngineWeights(shapes.policy, None)
    if workload.lora is not None:
        weights = EngineWeights(shapes.initial_params, Adapters(shapes.policy, workload.lora.scale))
    count = workload.rows_here * workload.shards
    positions = (rollout.cache_buckets or engine_shapes.default_cache_buckets(workload.positions))[-1]
    shape = Shape(model, filters_of([asked]), positions, workload.whole, pooled=False)

    zeros, answers = np.zeros(count, np.int32), np.zeros(count, bool)
    sampling = row_sampling([asked] * count)
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
    for name, program, arguments, times, loop_trips in (
        ("decode", engine.decode, writes, decode, workload.steps),
        ("prefill-append", engine.prefill, reads, prefill, None),
    ):

        def trace(program: Any = program, arguments: dict[str, Tree] = arguments) -> Any:  # noqa: ANN401 - jax.jit's own types, whose methods are untyped
            return program.trace(*arguments.values(), shape=shape)

        yield Program(
            name,
            trace,
            arguments,
            cache,
            seldom + int(local_bytes(cache) - past),
            "playing",
            (
                *(("initial policy",) if workload.lora is not None else ()),
                "trained weights" if workload.one_layout else "weights for decoding",
                "cache",
                "rows taken out",
                "what a call adds",
                "attention weights",
                "layer at work",
                "logits",
            ),
            times,
            loop_trips,
            # Every step reads weights and past; rows taken out are read once more, and written, before the first.
            ((loop_trips or 1) - 1) * (read + past) + (0 if workload.whole else 2 * past),
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
        compiled = compile_program(lowered, topology.devices, program.loop_trips)
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

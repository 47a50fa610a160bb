"""The programs of a run, as the run itself makes them, built from shapes alone.

Nothing here is a copy of a program: the trainer's jitted functions and the engine's are lowered with shapes that carry
the shardings the run would give them.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.config import LanguageSelfPlay, Preference, RlRunConfig, RunConfig, Sft, SmallModel
from dfc.inference import decoding_mesh
from dfc.inference.buckets import default_rows
from dfc.inference.programs import CallRows, EngineWeights, Programs, Shape
from dfc.inference.resident_weights import ResidentWeights
from dfc.inference.sampling import filters_of, row_sampling
from dfc.inference.slots import tensor_devices_on_one_host
from dfc.models import quantization, sharding
from dfc.models.cache import BLOCK, empty_cache
from dfc.models.execution import platform_of
from dfc.models.lora import abstract_adapters
from dfc.models.transformer import Adapters, abstract_params
from dfc.samples import MOST_CHOICES, TokenBatch
from dfc.scoring import preference_model
from dfc.tools.fit import analytic, traced
from dfc.tools.fit.compilation import DoesNotFitError, compile_program, quiet
from dfc.tools.fit.hardware import Topology, require_cudnn, topology_devices
from dfc.tools.fit.holdings import REWARD_MODEL, make_trainer
from dfc.tools.fit.iteration import ProgramCalls
from dfc.tools.fit.report import ProgramReport
from dfc.tools.fit.workload import Workload
from dfc.tools.small_models import imitation
from dfc.training.optimizer import make_optimizer
from dfc.training.trainer import Trainer
from dfc.training.update_parts import program_of

Tree = Any  # a pytree of jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
      name: what it does.
      function: the run's own, jitted.
      arguments: what it is given, in its order; a tuple, or a dict that names them.
      phase: of `MemoryEstimate.phases`, whose other parts are in memory beside it.
      holds: names of parts that are its arguments, results or temporaries; the rest of the phase is beside it.
      runs: in one iteration after a stage's first.
      donated: the part of the arguments that is given away.
      unread: bytes of the arguments of which it reads a few rows only.
      loop_trips: of its loops within each other whose trips are data, the outermost first; all they can run.
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
    loop_trips: tuple[int, ...] = ()
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
      policy: the rollout weights.
    """

    initial_params: Tree
    frozen_params: Tree
    trained: Tree
    state: Tree
    batch: TokenBatch
    logprobs: Tree
    policy: Tree


def weights_of(workload: Workload, mesh: Mesh) -> Tree:
    """Returns the shapes and shardings of the model's weights as they are read, unrolled."""
    if workload.trains and workload.adapter.base == "nf4":
        quantized = jax.eval_shape(quantization.quantize_params, abstract_params(workload.model))
        return _placed(quantized, quantization.quantized_shardings(workload.model, mesh))
    return _placed(abstract_params(workload.model), sharding.param_shardings(workload.model, mesh))


def shapes_of(trainer: Trainer, workload: Workload, mesh: Mesh) -> RunShapes:
    """Returns the shapes and shardings of a run's arrays."""
    model, initial_params = workload.model, weights_of(workload, mesh)
    whole, stacked = NamedSharding(mesh, _spec()), workload.training.scan_layers
    apart = jax.tree.map(lambda x: x.sharding, initial_params)
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
    # On rows the sampler's log-probabilities are zeros, and those of the reference come with the batch.
    beside = workload.scores and not workload.plays
    kinds = (jnp.int32,) * 3 + (jnp.float32,) * (4 if beside else 3)
    batch = TokenBatch(*(_shape(shape, kind, rows) for kind in kinds))  # type: ignore[arg-type]  # shapes stand for arrays
    if workload.kept_sets:  # the most that a set may hold
        batch = batch._replace(choices=_shape((*shape, MOST_CHOICES), jnp.int32, rows))  # type: ignore[arg-type]  # the same
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


def of_stage(config: RunConfig, workload: Workload, topology: Topology, often: ProgramCalls) -> Iterator[Program]:
    """Yields the programs of a stage, the costly ones first."""
    if workload.trains and workload.training.attention == "cudnn":
        require_cudnn()
    with quiet():
        devices = topology_devices(topology)
        mesh = sharding.make_mesh(*dataclasses.astuple(workload.mesh), devices=devices)
    # A TPU's mesh puts neighbours side by side, which may lie on different hosts.
    hosts = len({device.process_index for device in mesh.devices.flat})
    playing = mesh if workload.decoding is None else decoding_mesh.make(mesh, workload.decoding.sizes)
    workload = dataclasses.replace(workload, apart=hosts > 1 and tensor_devices_on_one_host(playing))
    weights = EngineWeights(weights_of(workload, mesh), None)
    if isinstance(config, RlRunConfig | Sft | Preference | LanguageSelfPlay):
        trainer = make_trainer(config, workload, mesh)
        shapes = shapes_of(trainer, workload, mesh)
        yield from _training(trainer, workload, shapes, often)
        weights = engine_weights(workload, shapes)
    elif isinstance(config, SmallModel):
        yield from _small_model(config, workload, weights.params, mesh, often)
    if workload.plays and workload.played is not workload:
        moving, weights = _moving(workload, weights, playing, often)
        yield moving
    if workload.plays:
        yield from _playing(workload, weights, playing, often)
    if isinstance(config, LanguageSelfPlay):
        yield from _reward(config, workload, mesh, often)


def _reward(config: LanguageSelfPlay, workload: Workload, mesh: Mesh, often: ProgramCalls) -> Iterator[Program]:
    """Yields the program of a model of preferences; what playing holds, as the cache, is in memory beside it."""
    for other in (one for one in workload.others if one.name == REWARD_MODEL):
        rows, own = sharding.batch_sharding(mesh), config.reward.preference
        params = _placed(abstract_params(other.model), sharding.param_shardings(other.model, mesh))
        tokens = [_shape((own.rows, own.row_length), jnp.int32, rows)] * 3
        ends = _shape((own.rows, preference_model.LEAST_PLACES), jnp.int32, rows)
        holds = other.name, "attention weights", "layer at work", "logits"
        function = preference_model.forward(other.model, mesh)
        yield Program("reward of answers", function, (params, *tokens, ends), "playing", holds, often.rewards)


def engine_weights(workload: Workload, shapes: RunShapes) -> EngineWeights:
    """Returns the rollout weights of what is trained."""
    if workload.lora is None:
        return EngineWeights(shapes.policy, None)
    return EngineWeights(shapes.initial_params, Adapters(shapes.policy, workload.lora.scale))


def _small_model(
    config: SmallModel, workload: Workload, params: Tree, mesh: Mesh, often: ProgramCalls
) -> Iterator[Program]:
    optimizer = make_optimizer(config.optimizer, config.steps)
    gradient, apply = imitation.make_programs(workload.model, optimizer)
    rows, place = (config.batch.micro_batch_rows, config.batch.row_length), NamedSharding(mesh, _spec())

    def shape(size: tuple[int, ...], kind: Any = jnp.float32) -> jax.ShapeDtypeStruct:  # noqa: ANN401 - a dtype
        return _shape(size, kind, place)

    count = math.prod(rows)  # every token is imitated, at the most
    integers = {name: shape(rows, jnp.int32) for name in ("tokens", "positions", "segments")}
    targets = {"places": shape((count,), jnp.int32), "targets": shape((count, workload.model.vocabulary))}
    batch = imitation.SoftBatch(**integers, **targets)  # type: ignore[arg-type]  # shapes stand for arrays
    state = jax.tree.map(lambda x: shape(x.shape, x.dtype), jax.eval_shape(optimizer.init, params))
    held = ("trained weights", "gradients", "residuals", "layer at work", "attention weights", "logits")
    yield Program("gradient", gradient, (params, batch), "gradient", held, often.micro_batches)
    holds = ("trained weights", "optimizer", "gradients", "weights after the update", "optimizer after the update")
    yield Program("optimizer step", apply, (params, state, params, shape(())), "optimizer step", holds, often.updates)


def _training(trainer: Trainer, workload: Workload, shapes: RunShapes, often: ProgramCalls) -> Iterator[Program]:
    programs, lora, updates = trainer.programs, workload.lora, workload.updates
    base_params = None if lora is None else shapes.frozen_params
    kept = "reference policy, stacked" if lora is None else "frozen weights, stacked"
    kept = kept if workload.training.scan_layers else "initial policy"
    holds_reference = workload.plays and workload.reference
    dropout_key = _shape((2,), jnp.uint32) if lora is not None and lora.dropout else None
    proximal = shapes.logprobs if workload.plays and workload.scores else None
    at_work = (
        "weights cast",
        "residuals",
        "layer at work",
        "attention weights",
        "attention mask",
        "logits",
        analytic.KEPT_SETS,
    )
    reference_logprobs = shapes.logprobs if holds_reference else None
    gradient = shapes.trained, base_params, shapes.batch, reference_logprobs, dropout_key, proximal
    # One device picks the positions it projects; a batch of which every token is an action needs most.
    capacity = math.prod(shapes.batch.tokens.shape) if workload.devices == 1 else None
    own: tuple[str, ...] = "trained weights", *at_work, *(() if lora is None else (kept,))
    options = {"capacity": capacity}
    holds = *own, "gradients"
    parts = {part: count for part, count in often.of_parts.items() if program_of(part) in programs}
    for part, count in (parts or {"": often.micro_batches}).items():
        name = f"gradient, {part}" if part else "gradient"
        yield Program(name, programs[program_of(part)], gradient, "gradient", holds, count, options=options)
    if holds_reference:
        yield Program(
            "reference log-probabilities",
            programs["logprobs"],
            (shapes.frozen_params, shapes.batch),
            "gradient",
            (kept, "gradients", *at_work),
            often.micro_batches,
            unread=unread(shapes.frozen_params, workload),
            options=options,
        )
    if workload.scores:
        batch = shapes.batch._replace(reference_logprobs=None)
        name, phase = ("own", "gradient") if workload.plays else ("reference", "reference")
        yield Program(
            f"{name} log-probabilities",
            programs["own_logprobs"],
            (shapes.trained, base_params, batch),
            phase,
            (*own, "gradients"),
            often.scored,
            options=options,
        )
    if workload.checks and not workload.scores:  # a reference's log-probabilities come from the same program
        # How many rows are held out is not known here, so their time is not counted.
        yield Program(
            "held-out log-probabilities",
            programs["own_logprobs"],
            (shapes.trained, base_params, shapes.batch),
            "gradient",
            (*own, "gradients"),
            0,
            options=options,
        )
    yield from _steps(trainer, workload, shapes, gradient, parts, updates)
    if workload.plays and not workload.one_layout:
        times = 2 if workload.compares or workload.role_adapters else 1
        holds = "trained weights", "weights for decoding", "gradients"
        yield Program("weight hand-over", programs["policy"], (shapes.trained,), "optimizer step", holds, times)


def _steps(
    trainer: Trainer, workload: Workload, shapes: RunShapes, gradient: Tree, parts: Mapping[str, int], updates: int
) -> Iterator[Program]:
    """Yields the optimizer's programs; `parts` has micro-batches by a loss's name, empty: of one without a name."""
    programs = trainer.programs
    capacity = math.prod(shapes.batch.tokens.shape) if workload.devices == 1 else None
    places = trainer.shardings(stacked=workload.training.scan_layers)

    def total(part: str, count: int) -> Tree:
        found = jax.eval_shape(lambda *a: programs[program_of(part)](*a, capacity=capacity), *gradient)
        dtype = jnp.float32 if count > 1 else None
        widened = jax.tree.map(lambda x: _shape(x.shape, dtype or x.dtype), found["gradients"])
        return {"gradients": _placed(widened, places), "loss": found["loss"]}

    kind, given = "apply", ("trained weights", "optimizer", "gradients", "gradients of other losses")
    apply: tuple[Tree, ...] = (shapes.trained, shapes.state)
    made = "weights after the update", "optimizer after the update", "updates"
    phase = "optimizer step"
    if workload.role_adapters:  # a step of each, which leaves what it starts from
        for part, count in parts.items():
            own = {part: total(part, count)}, {part: _shape((), jnp.float32)}
            yield Program(f"{phase}, {part}", programs["apply_parts"], apply + own, phase, (*given, *made), 1)
        return
    if parts:
        kind = "apply_parts"
        totals = {part: total(part, count) for part, count in parts.items()}
        apply += (totals, {part: _shape((), jnp.float32) for part in parts})
    else:
        apply += (total("", workload.micro_batches),)
    # Whatever the rule, a stage's first update keeps what it starts from: the most that any update holds.
    first = 1 if workload.compares else 0  # of the updates of any other iteration
    if workload.keeps:
        yield Program(phase, programs[kind], apply, phase, (*given, *made), first)
    if updates > first:
        # Later updates hold the first one's input too, which is as large as its result.
        holds, rest = given if updates > 1 else (*given, *made), updates - first
        yield Program(f"{phase} in place", programs[f"{kind}_in_place"], apply, phase, holds, rest, donated=apply[:2])


def _moving(
    workload: Workload, weights: EngineWeights, mesh: Mesh, often: ProgramCalls
) -> tuple[Program, EngineWeights]:
    """Returns the program that moves a layer's weights to the split that plays, and all of them as placed then."""
    resident = ResidentWeights(workload.model, mesh)
    places = resident.places(weights)
    one, wanted = (jax.tree.leaves(tree["layers"][0]) for tree in (weights.params, places.params))
    # Where playing names the devices in another order (TPUs), their weights are first taken as if placed in it.
    alike = Mesh(mesh.devices.reshape(dataclasses.astuple(workload.mesh)), mesh.axis_names, axis_types=mesh.axis_types)
    one = [_shape(x.shape, x.dtype, NamedSharding(alike, x.sharding.spec)) for x in one]
    times = workload.model.layers * min(1, often.decode)
    program = Program("a layer's weights to the players", resident.program(wanted), (one,), "playing", (), times)
    return program, _placed(weights, places)


def _playing(workload: Workload, weights: EngineWeights, mesh: Mesh, often: ProgramCalls) -> Iterator[Program]:
    """Yields the engine's programs at their costliest: the most rows, the longest cache, no constraints.

    Other policies reply from the same cache by programs of the same kind (with adapters the same less the adapters).
    """
    model, rollout, count = workload.model, workload.rollout, workload.call_rows
    engine = Programs(model, None if mesh.size == 1 else mesh, platform_of(mesh))
    held = workload.held_here * workload.played.shards
    cache = jax.eval_shape(lambda: empty_cache(model, held, workload.positions, engine.layout))
    whole = NamedSharding(mesh, _spec())
    cache = jax.tree.map(lambda x: _shape(x.shape, x.dtype, engine.cache or whole), cache)
    filters = filters_of([workload.sampling, *workload.other_sampling])
    shape = Shape(model, filters, pooled=False, kept=workload.kept_sets)

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
    # In the order in which the programs expect them.
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
    at_work = "attention weights", "layer at work", "logits", analytic.KEPT_SETS
    holds = ["cache"]
    if workload.played is not workload:
        holds.append(analytic.MOVED)
    else:
        holds.append("trained weights" if workload.one_layout else "weights for decoding")
        if workload.lora is not None or not workload.trains:
            holds.append("initial policy" if workload.trains else "model")
    blocks = -(-rollout.max_length // BLOCK)  # of positions, that attention reads one after another
    for name, function, arguments, times, steps in (
        ("decode", engine.decode, writes, often.decode, workload.steps),
        ("prefill-append", engine.prefill, reads, often.prefill, 1),
    ):
        yield Program(
            name,
            function,
            arguments,
            "playing",
            (*holds, *at_work),
            times,
            donated=cache,
            unread=seldom + int(local_bytes(cache) - past),
            loop_trips=(blocks,) if steps == 1 else (steps, blocks),
            again=(steps - 1) * (read + past),  # every step reads weights and past
            options={"shape": shape},
        )
    if workload.apart:
        return  # hosts with conversations of their own share no beginnings
    few = default_rows(workload.rows_here)[0]
    slots, copied = _shape((few * workload.played.shards,), jnp.int32), few * past / workload.rows_here
    yield Program(
        "prefix copy",
        engine.copy,
        {"cache": cache, "sources": slots, "targets": slots, "positions": _shape((), jnp.int32)},
        "playing",
        ("cache", *at_work),  # the others' work is over
        0,  # at least
        donated=cache,
        unread=int(local_bytes(cache) - copied),
        loop_trips=(blocks,),
        again=copied,  # written where it was not read
    )


def context(program: Program, topology: Topology) -> contextlib.AbstractContextManager[object]:
    """A TPU's kernel reads the kind of device in the context, which only a program of several devices sets."""
    meshes = (x.sharding.mesh for x in jax.tree.leaves(program.arguments) if x.sharding is not None)
    one = topology.chip.platform == "tpu" and topology.devices == 1
    return jax.set_mesh(next(meshes)) if one else contextlib.nullcontext()


def compile_one(program: Program, workload: Workload, topology: Topology) -> ProgramReport:
    """Traces, counts and compiles one program."""
    with context(program, topology):
        stages = program.trace()
        lowered = stages.lower()
    count = traced.count(stages.jaxpr, program.loop_trips)
    parts = analytic.memory(workload).phases[program.phase]
    beside = sum(size for name, size in parts.items() if name not in program.holds)
    compiled, refusal = None, ""
    try:
        compiled = compile_program(lowered, topology, program.loop_trips[0] if program.loop_trips else None)
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

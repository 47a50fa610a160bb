"""The shapes programs are compiled from, against the arrays a trainer and an engine really make."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import run_engines

from dfc.config import (
    AdapterConfig,
    BatchConfig,
    DivideFuseConquer,
    MeshConfig,
    ModelConfig,
    RolloutConfig,
    SamplingConfig,
    TrainingConfig,
)
from dfc.inference.prefixes import Copy
from dfc.models import sharding
from dfc.models.config import DecoderConfig
from dfc.models.transformer import abstract_params
from dfc.tools.fit import analytic, holdings, programs, traced
from dfc.tools.fit.hardware import parse_topology
from dfc.tools.fit.iteration import Lengths, ProgramCalls, lengths_of, runs
from dfc.tools.fit.workload import Workload, adapter_parameters

MODEL = DecoderConfig(
    vocabulary=64, width=32, layers=2, heads=4, kv_heads=2, head_dim=8, feed_forward=48, rope_theta=1e4,
    norm_epsilon=1e-5, qkv_bias=False, tied_embedding=False, dtype="bfloat16",
)  # fmt: skip
LORA = AdapterConfig(rank=4)
CONFIG = DivideFuseConquer(
    model=ModelConfig(dtype="bfloat16"),
    rollout=RolloutConfig(
        slots=8, max_length=32, max_reply_length=8, prefill_buckets=(8,), decode_steps=4, sharding="training"
    ),
    batch=BatchConfig(row_length=32, micro_batch_rows=8),
    training=TrainingConfig(remat="layer"),
)
WORKLOAD = Workload(
    MODEL, MeshConfig(1, 4, 2), CONFIG.batch, TrainingConfig(remat="layer", attention="xla"), AdapterConfig(),
    CONFIG.rollout, micro_batches=2, compares=True,
)  # fmt: skip
ONCE = ProgramCalls("one iteration", 1, decode=1, prefill=1, micro_batches=1, updates=1)
ONE_DEVICE = {"mesh": MeshConfig(1, 1, 1)}


@pytest.fixture(autouse=True)
def promotion():
    """Optax raises a float to the power of an integer count."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def mesh():
    return sharding.make_mesh(1, 4, 2)


@pytest.fixture(scope="module")
def made(mesh):
    """A trainer, the shapes, and the weights it starts from."""
    trainer = holdings.make_trainer(CONFIG, WORKLOAD, mesh)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), abstract_params(MODEL))
    weights = jax.device_put(zeros, sharding.param_shardings(MODEL, mesh))
    return trainer, programs.shapes_of(trainer, WORKLOAD, mesh), weights


def same(shapes, arrays):
    """Whether every array has the shape, the type and the place that was foretold."""
    pairs = zip(jax.tree.leaves(shapes), jax.tree.leaves(arrays), strict=True)
    return [
        (s, a.shape, a.dtype, a.sharding)
        for s, a in pairs
        if s.shape != a.shape or s.dtype != a.dtype or not s.sharding.is_equivalent_to(a.sharding, a.ndim)
    ]


def really_local(arrays):
    return sum(a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(arrays))


def test_what_is_trained_has_the_foretold_shapes_and_places(made):
    trainer, shapes, weights = made
    trained = trainer.initial_params(weights)
    state = trainer.initial_state(trained)
    assert same(shapes.trained, trained) == []
    assert same(shapes.state, state) == []
    assert same(shapes.policy, trainer.policy(trained)) == []
    assert programs.local_bytes(shapes.trained) == really_local(trained)
    # The analytic model's state, but for two counters of the schedule.
    found = analytic.memory(WORKLOAD)
    assert found.phases["playing"]["trained weights"] == really_local(trained)
    assert found.phases["playing"]["optimizer"] == pytest.approx(really_local(state), abs=16)
    assert found.phases["playing"]["initial policy"] == really_local(weights)


class Recorder:
    """A program of an engine that keeps what it was given, and computes nothing."""

    def __init__(self, program):
        self.program, self.calls = program, []

    def __call__(self, *given, shape):
        traced = self.program.trace(*given, shape=shape)
        self.calls.append((given, str(traced.jaxpr)))
        *results, _ = traced.out_info
        return *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), results), given[1]


def engine_of_a_run(config, weights, mesh):
    """An engine as a run makes it, with every conversation asking for a reply."""
    engine = run_engines.engine_of(config, MODEL, weights, mesh, config.sampling)
    own = engine._programs_made = engine._programs
    engine._programs = types.SimpleNamespace(prefill=Recorder(own.prefill), decode=Recorder(own.decode))
    for seed in range(engine.slot_allocator.total):
        slot = engine.open(seed)
        engine.append(slot, [seed % 5 + 1] * 8)
        engine.ask(slot, 3)
    return engine, engine._programs


@pytest.mark.parametrize(
    ("game", "rows", "held", "computed", "sampling"),
    [
        ("GuessTheNumber-v0", 0, 8, 8, SamplingConfig()),  # one seat: a call computes all slots
        ("Nim-v0", 0, 16, 8, SamplingConfig()),  # two seats that a model may play: half of the slots
        ("GuessTheNumber-v0", 3, 8, 4, SamplingConfig(min_p=0.1)),  # rows rounded up to the four shards; kept sets
    ],
)
def test_the_playing_programs_are_those_an_engine_runs(made, mesh, game, rows, held, computed, sampling):
    _, shapes, weights = made
    config = dataclasses.replace(
        CONFIG,
        games={game: {}},
        sampling=sampling,
        mesh=MeshConfig(data=1, fsdp=4, tensor=2),
        rollout=dataclasses.replace(CONFIG.rollout, rows=rows),
    )
    workload = holdings.workload_of(config, MODEL, parse_topology("h100:8"), lengths_of(config))
    workload = dataclasses.replace(workload, platform="cpu")  # where this engine runs
    engine, real = engine_of_a_run(config, weights, mesh)
    cache = engine._cache
    assert really_local(cache) == analytic.cache_bytes(workload)
    assert (analytic.KEPT_SETS in analytic.memory(workload).phases["playing"]) == sampling.filtered
    foretold = {p.name: p for p in programs._playing(workload, programs.engine_weights(workload, shapes), mesh, ONCE)}
    assert same(foretold["decode"].arguments["cache"], cache) == []
    assert cache[0].arrays[0].shape[0] == held
    while not real.decode.calls:
        engine.step()
    for program, recorded in ((foretold["decode"], real.decode), (foretold["prefill-append"], real.prefill)):
        given, jaxpr = recorded.calls[0]
        assert same(program.arguments["weights"], given[0]) == []
        assert len(given[2].slot) == computed
        assert [(x.shape, x.dtype) for x in jax.tree.leaves(program.arguments["rows"])] == [
            (x.shape, x.dtype) for x in jax.tree.leaves(given[2])
        ]
        assert str(program.trace().jaxpr) == jaxpr
    given = []

    def copy(*arguments):
        given.append(arguments)
        return arguments[0]

    dataclasses.replace(engine._rows, programs=types.SimpleNamespace(copy=copy)).copied(cache, [Copy(0, 1, 5)])
    assert str(foretold["prefix copy"].trace().jaxpr) == str(engine._programs_made.copy.trace(*given[0]).jaxpr)


def test_hosts_with_games_of_their_own_place_their_rows(made, mesh):
    _, shapes, _ = made
    alike, apart = (
        {
            p.name: p
            for p in programs._playing(
                dataclasses.replace(WORKLOAD, apart=apart),
                programs.engine_weights(dataclasses.replace(WORKLOAD, apart=apart), shapes),
                mesh,
                ONCE,
            )
        }
        for apart in (False, True)
    )
    assert set(alike) - set(apart) == {"prefix copy"}  # there each host reads its own prompts
    for name in apart:
        assert {x.sharding for x in jax.tree.leaves(alike[name].arguments["rows"])} == {None}
        places = {x.sharding for x in jax.tree.leaves(apart[name].arguments["rows"])}
        assert places == {sharding.batch_sharding(mesh)}
        assert apart[name].again == alike[name].again


@pytest.mark.parametrize(
    ("topology", "tensor", "apart"),
    [("h100:8", 4, False), ("h100:64", 8, True), ("h100:64", 16, False), ("v5p:4x4x4", 4, True), ("v5e:2x2", 1, False)],
)
def test_hosts_play_apart_where_tensor_devices_share_one(topology, tensor, apart):
    topology = parse_topology(topology)
    batch = BatchConfig(row_length=32, micro_batch_rows=64)
    config = dataclasses.replace(CONFIG, mesh=MeshConfig(data=1, fsdp=-1, tensor=tensor), batch=batch)
    assert holdings.workload_of(config, MODEL, topology, lengths_of(config)).apart == apart


@pytest.mark.parametrize("conversations", [1, 2])
def test_playing_has_the_arithmetic_of_the_analytic_model_for_all_steps_of_a_call(made, mesh, conversations):
    _, shapes, _ = made
    workload = dataclasses.replace(WORKLOAD, conversations=conversations)
    found = {p.name: p for p in programs._playing(workload, programs.engine_weights(workload, shapes), mesh, ONCE)}
    for name, work in (("decode", analytic.decode_work(workload)), ("prefill-append", analytic.prefill_work(workload))):
        program = found[name]
        count = traced.count(program.trace().jaxpr, program.loop_trips)
        assert count.flops == work.flops * workload.devices
        assert count.unknown == ()
        moved = programs.local_bytes((program.arguments["weights"], program.arguments["cache"]))
        assert moved - program.unread + program.again == pytest.approx(work.bytes, rel=1e-6)


def test_every_program_lowers_from_shapes_and_has_the_arithmetic_of_the_analytic_model(made):
    trainer, shapes, _ = made
    found = {p.name: p for p in programs._training(trainer, WORKLOAD, shapes, ONCE)}
    assert set(found) == {"gradient", "reference log-probabilities", "optimizer step", "weight hand-over"}
    counts = {name: traced.count(p.trace().jaxpr) for name, p in found.items()}
    tokens, head = 8 * 32, 2 * MODEL.width * MODEL.vocabulary * 8 * 32
    forward = analytic.forward_flops(MODEL, tokens, 32)  # rows of up to 1,024 ids compute the whole square
    assert counts["reference log-probabilities"].flops == forward + head
    # Forward, forward again but for the last product of each layer, and twice as much backward.
    last = MODEL.layers * 2 * tokens * MODEL.feed_forward * MODEL.width
    norms = (2 * MODEL.layers + 1) * 2 * tokens * MODEL.width  # the gradient of a norm's scale is a product
    assert counts["gradient"].flops == 4 * forward - last + 4 * head + norms
    assert counts["optimizer step"].flops == counts["weight hand-over"].flops == 0
    found["optimizer step"].trace().lower()


def test_imitation_trains_by_its_own_loss_and_has_no_reference(mesh):
    config = dataclasses.replace(CONFIG, method="imitate_wins")
    workload = dataclasses.replace(WORKLOAD, reference=False)
    trainer = holdings.make_trainer(config, workload, mesh)
    shapes = programs.shapes_of(trainer, workload, mesh)
    found = {p.name: p for p in programs._training(trainer, workload, shapes, ONCE)}
    assert set(found) == {"gradient", "optimizer step", "weight hand-over"}
    assert set(found["gradient"].trace().out_info["loss"].metrics) == {"length"}  # GRPO's loss reports clipping too


def test_sets_are_counted_with_what_is_trained_on_them(mesh):
    """16 bytes for each of at most 512 tokens, and the rows of the embedding; of a call as the host reads them."""
    config = dataclasses.replace(CONFIG, sampling=SamplingConfig(temperature=1.3, min_p=0.1), mesh=MeshConfig(1, 4, 2))
    plain, kept = (
        holdings.workload_of(own, MODEL, parse_topology("h100:8"), lengths_of(own))
        for own in (dataclasses.replace(config, sampling=SamplingConfig()), config)
    )
    before, after = analytic.memory(plain).phases, analytic.memory(kept).phases
    assert after["gradient"][analytic.KEPT_SETS] == 16 * 512 * 2 * 32 + 12 * 32 * 32  # rows of a device x tokens
    assert after["playing"][analytic.KEPT_SETS] == 4 * (1 + 512) * 8 * 4  # rows of all devices x steps of a call
    for phase, sizes in after.items():
        assert {name: size for name, size in sizes.items() if name != analytic.KEPT_SETS} == before[phase]
    trainer = holdings.make_trainer(config, kept, mesh)
    assert programs.shapes_of(trainer, kept, mesh).batch.choices.shape == (8, 32, 512)
    assert programs.shapes_of(trainer, plain, mesh).batch.choices is None


def test_an_update_in_place_reuses_all_it_is_given(made):
    trainer, shapes, _ = made
    workload = dataclasses.replace(WORKLOAD, compares=False)
    found = {p.name: p for p in programs._training(trainer, workload, shapes, ONCE)}
    step = found["optimizer step in place"]
    memory = step.trace().lower().compile().memory_analysis()
    assert memory.alias_size_in_bytes == programs.local_bytes(step.donated) == programs.local_bytes(step.arguments[:2])


@pytest.mark.parametrize(
    ("compares", "updates", "runs"),
    [
        (True, 1, {"optimizer step": 1}),
        (True, 3, {"optimizer step": 1, "optimizer step in place": 2}),
        (False, 1, {"optimizer step": 0, "optimizer step in place": 1}),
    ],
)
def test_a_first_update_keeps_what_it_starts_from_whatever_the_rule(made, compares, updates, runs):
    trainer, shapes, _ = made
    workload = dataclasses.replace(WORKLOAD, compares=compares, updates=updates)
    found = [p for p in programs._training(trainer, workload, shapes, ONCE) if "optimizer" in p.name]
    assert {p.name: p.runs for p in found} == runs
    assert found[0].donated == ()
    # Added up, the phase covers the larger of the two: old and new, whichever way they come to be.
    held = analytic.memory(workload).phases["optimizer step"]
    state = programs.local_bytes((shapes.trained, shapes.state))
    old_and_new = sum(size for name, size in held.items() if name.endswith(("trained weights", "optimizer", "update")))
    assert old_and_new == pytest.approx(2 * state, abs=32)


def test_on_one_device_the_positions_that_are_projected_are_picked_as_the_run_picks_them():
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    workload = dataclasses.replace(WORKLOAD, **ONE_DEVICE)
    trainer = holdings.make_trainer(CONFIG, workload, mesh)
    assert trainer._picks
    shapes = programs.shapes_of(trainer, workload, mesh)
    for program in programs._training(trainer, workload, shapes, ONCE):
        if program.name in ("gradient", "reference log-probabilities"):
            text = str(program.trace().jaxpr)
            assert "cumsum" in text, program.name  # of `nonzero`, which finds the action ids
            program.trace().lower()


def test_on_one_device_decoding_reuses_the_cache_it_is_given():
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    model = dataclasses.replace(MODEL, layers=1)
    workload = dataclasses.replace(WORKLOAD, model=model, conversations=2, **ONE_DEVICE)
    shapes = programs.shapes_of(holdings.make_trainer(CONFIG, workload, mesh), workload, mesh)
    decode = next(iter(programs._playing(workload, programs.engine_weights(workload, shapes), mesh, ONCE)))
    assert decode.name == "decode"
    memory = decode.trace().lower().compile().memory_analysis()
    assert memory.alias_size_in_bytes == programs.local_bytes(decode.donated) == analytic.cache_bytes(workload)


def test_adapters_are_trained_beside_frozen_weights(mesh):
    workload = dataclasses.replace(WORKLOAD, adapter=LORA)
    trainer = holdings.make_trainer(CONFIG, workload, mesh)
    shapes = programs.shapes_of(trainer, workload, mesh)
    found = {p.name: p for p in programs._training(trainer, workload, shapes, ONCE)}
    assert programs.local_bytes(shapes.trained) == 4 * adapter_parameters(MODEL, workload.lora, workload.mesh)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(shapes.trained))
    assert traced.count(found["gradient"].trace().jaxpr).flops > 0
    for program in programs._playing(workload, programs.engine_weights(workload, shapes), mesh, ONCE):
        if program.name == "prefix copy":
            continue  # it has no weights
        assert programs.local_bytes(program.arguments["weights"].adapters) == programs.local_bytes(shapes.policy)
        assert traced.count(program.trace().jaxpr, program.loop_trips).flops > 0


def test_four_bits_make_the_frozen_weights_smaller(mesh):
    wide = dataclasses.replace(MODEL, width=512, heads=8, head_dim=64, feed_forward=1024)
    sizes = []
    for base in ("full", "nf4"):
        workload = dataclasses.replace(WORKLOAD, model=wide, adapter=dataclasses.replace(LORA, base=base))
        shapes = programs.shapes_of(holdings.make_trainer(CONFIG, workload, mesh), workload, mesh)
        sizes.append(programs.local_bytes(shapes.frozen_params["layers"]))
    assert sizes[1] < 0.4 * sizes[0]


def test_an_iteration_runs_each_program_as_often_as_its_lengths_say():
    config = dataclasses.replace(CONFIG, games={"Nim-v0": {}}, groups_per_game=50)
    episodes = config.groups_per_game * config.group_size
    rollout = dataclasses.replace(WORKLOAD.rollout, prefill_buckets=(4,), decode_steps=2)
    found = runs(config, Lengths(16, 0.25), dataclasses.replace(WORKLOAD, rollout=rollout))
    assert found.episodes == episodes == 400
    assert found.decode == 400 / 8 * 4 / 2  # waves of 8 rows, 4 ids drawn, 2 of them in a call
    assert found.prefill == 400 / 8 * 12 / 4
    assert found.micro_batches == 400 * 16 / 32 / 8
    assert lengths_of(config) == Lengths(16, 0.5)
    assert lengths_of(config, 7, 0.25) == Lengths(7, 0.25)

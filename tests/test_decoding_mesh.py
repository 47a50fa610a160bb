"""Playing with a split of its own: which one is chosen, and replies of every one are those of one device."""

import dataclasses
import functools
import math

import jax
import numpy as np
import optax
import pytest
from engine_talks import CONFIG, TEMPERATURE, make, run, talks, weights
from fit_workloads import ONCE
from tiny_models import tiny

from dfc.config import (
    AdapterConfig,
    DivideFuseConquer,
    MeshConfig,
    PlayingRunConfig,
    RolloutConfig,
    SamplingConfig,
    TrainingConfig,
)
from dfc.evaluation.matches import match_specs
from dfc.inference import decoding_mesh, resident_weights
from dfc.models.lora import ALL_LINEAR, LoraConfig, abstract_adapters, adapter_shardings, pool
from dfc.models.sharding import make_mesh, param_shardings
from dfc.models.transformer import Adapters, abstract_params
from dfc.packing import Segment, pack
from dfc.rollout import host as rollout_host
from dfc.rollout.host import PolicyWeights
from dfc.rollout.workers import RolloutWorkers
from dfc.tools.fit import programs
from dfc.tools.fit.collectives import traffic
from dfc.tools.fit.workload import Workload
from dfc.training.trainer import Trainer

TRAINED = MeshConfig(2, 2, 2)
SHARDINGS = ("training", "tensor", "replicated")
LORA = LoraConfig(rank=2, alpha=2.0, targets=ALL_LINEAR)


@functools.cache
def trained_mesh():
    return make_mesh(*dataclasses.astuple(TRAINED))


@functools.cache
def trained(seed=0):
    """Weights as training splits them."""
    return jax.device_put(weights(seed), param_shardings(CONFIG, trained_mesh()))


def mesh_of(sharding):
    return decoding_mesh.make(trained_mesh(), decoding_mesh.sizes_of(sharding, CONFIG, TRAINED, 8))


def engine_on(mesh, params=None, slots=8):
    return make(trained() if params is None else params, slots=slots, prefill_buckets=(4,), mesh=mesh)


@functools.cache
def alone(seed, number=0):
    """Talks played on one device with the weights of a number."""
    found = talks(6, seed, turns=3)
    run(make(weights(number), slots=8, prefill_buckets=(4,)), found)
    return found


def same_as_alone(engine, seed, number=0):
    found = [talk.fresh() for talk in alone(seed, number)]
    run(engine, found)
    for talk, expected in zip(found, alone(seed, number), strict=True):
        talk.same(expected)


# ---- which split -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "kv_heads", "of_a_host", "sizes"),
    [
        (40, 8, 8, (8, 1, 8)),
        (40, 8, 4, (16, 1, 4)),  # a host of four TPU chips
        (28, 4, 8, (16, 1, 4)),  # two copies on a host
        (12, 3, 8, (16, 1, 4)),  # no device divides the key/value heads: the query heads
        (7, 1, 8, (64, 1, 1)),
    ],
)
def test_tensor_devices_are_those_of_a_host_that_divide_the_heads(heads, kv_heads, of_a_host, sizes):
    model = tiny(heads=heads, kv_heads=kv_heads)
    assert decoding_mesh.sizes_of("tensor", model, MeshConfig(1, 16, 4), of_a_host) == MeshConfig(*sizes)
    assert decoding_mesh.sizes_of("replicated", model, MeshConfig(1, 16, 4), of_a_host) == MeshConfig(64, 1, 1)
    assert decoding_mesh.sizes_of("training", model, MeshConfig(1, 16, 4), of_a_host) == MeshConfig(1, 16, 4)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 1, 8), (8, 1, 1), (2, 1, 4)])
def test_weights_and_cache_are_counted_as_they_lie(sizes):
    mesh = make_mesh(*sizes)
    placed = jax.device_put(weights(0), param_shardings(CONFIG, mesh))
    really = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(placed))
    assert decoding_mesh.weight_bytes(CONFIG, MeshConfig(*sizes)) == really
    engine = engine_on(mesh, placed)
    cache = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(engine._cache))
    positions = engine._cache[0].positions
    assert decoding_mesh.cache_bytes(CONFIG, MeshConfig(*sizes), 8, positions) == cache


def chosen(
    model, memory=1e12, mesh=TRAINED, asked="auto", platform="gpu", of_a_host=8, rows=8, positions=64, policies=1
):
    sizes = {"rows": rows, "conversations": rows, "positions": positions, "policies": policies}
    found = decoding_mesh.choose(asked, model, mesh, of_a_host=of_a_host, platform=platform, memory=memory, **sizes)
    return found.sharding


LARGE = tiny(
    vocabulary=152064, width=5120, layers=64, heads=40, kv_heads=8, head_dim=128, feed_forward=27648, dtype="bfloat16"
)  # as Qwen2.5-32B


def test_where_nothing_is_known_or_to_be_gained_playing_splits_as_training():
    assert chosen(CONFIG, None) == "training"
    assert chosen(CONFIG, platform="cpu") == "training"
    assert chosen(CONFIG, mesh=MeshConfig(1, 1, 1)) == "training"
    assert chosen(CONFIG, mesh=MeshConfig(8, 1, 1)) == "training"  # a copy on every device already
    for asked in SHARDINGS:
        assert chosen(CONFIG, 1.0, asked=asked) == asked


def test_small_weights_are_copied_and_large_ones_split_over_the_devices_of_a_host():
    assert chosen(CONFIG) == "replicated"
    sizes = {"mesh": MeshConfig(1, 16, 4), "rows": 256, "positions": 8192}
    assert chosen(LARGE, 80e9, **sizes) == "tensor"
    # Between TPUs of a slice sending is cheap, and a host has four: two dimensions read less.
    assert chosen(LARGE, 100e9, **sizes, platform="tpu", of_a_host=4) == "training"


def test_weights_and_cache_have_to_leave_a_share_of_the_memory():
    total = sum(math.prod(x.shape) * 4 for x in jax.tree.leaves(abstract_params(CONFIG)))
    cache = 64 * CONFIG.cache_bytes_per_position  # of one conversation; each split has eight on eight devices
    split = decoding_mesh.weight_bytes(CONFIG, MeshConfig(4, 1, 2))
    assert total / 2 < split < total  # norms are whole

    def with_room(size, **more):
        return chosen(CONFIG, (size + 0.5) / decoding_mesh.SHARE, **more)

    assert with_room(total + cache) == "replicated"
    for size in (total + cache - 1, split + cache):
        assert with_room(size) == "tensor"
    assert with_room(split + cache - 1) == "training"
    assert with_room(2 * total + cache, policies=2) == "replicated"
    assert with_room(2 * total + cache - 1, policies=2) == "tensor"


@pytest.mark.parametrize(("workers", "rank", "policies"), [(1, 0, 2), (3, 0, 6), (3, 4, 3)])
def test_a_run_that_trains_counts_every_engines_copies(monkeypatch, workers, rank, policies):
    asked = {}

    def choose(*_, **given):
        asked.update(given)
        raise InterruptedError

    monkeypatch.setattr(decoding_mesh, "choose", choose)
    rollout = RolloutConfig(slots=8, max_length=96, workers=workers)
    config = DivideFuseConquer(
        games={"TicTacToe-v0": {}}, mesh=TRAINED, rollout=rollout, adapter=AdapterConfig(rank=rank)
    )
    with pytest.raises(InterruptedError):
        RolloutWorkers(config, sampling=SamplingConfig())
    assert (asked["conversations"], asked["policies"]) == (2 * 8 * workers, policies)


@pytest.mark.parametrize(("sizes", "waits"), [((2, 2, 2), True), ((4, 1, 2), False)])
def test_a_prefill_call_gathers_the_weights_of_one_layer_ahead(sizes, waits):
    mesh = make_mesh(*sizes)
    rollout = RolloutConfig(slots=8, max_length=32, sharding="training")
    workload = Workload(CONFIG, MeshConfig(*sizes), rollout=rollout, trains=False)
    placed = programs.EngineWeights(programs.weights_of(workload, mesh), None)
    found = {p.name: str(p.trace().jaxpr) for p in programs._playing(workload, placed, mesh, ONCE)}
    assert found["prefill-append"].count("optimization_barrier") == waits * (CONFIG.layers - 1)
    assert "optimization_barrier" not in found["decode"]  # activations are sent there


def test_weights_are_looked_at_once(monkeypatch):
    looked = []
    monkeypatch.setattr(resident_weights, "_lies", lambda *_: looked.append(1) or True)
    engine = engine_on(trained_mesh())
    for _ in range(2):
        engine.append(slot := engine.open(1), [1, 2, 3])
        assert engine.ask(slot, 4)
        while engine.busy:
            engine.step()
    assert len(looked) == len(jax.tree.leaves(trained()))


@pytest.mark.parametrize("sizes", [(1, 8, 1), (1, 4, 2), (2, 1, 4), (1, 1, 8), (8, 1, 1)])
def test_what_a_step_sends_is_what_the_compiled_program_sends(sizes):
    model = tiny(
        vocabulary=512, width=128, layers=4, heads=16, kv_heads=8, head_dim=16, feed_forward=512, qkv_bias=False
    )
    rollout = RolloutConfig(slots=16, max_length=32, max_reply_length=8, prefill_buckets=(8,), decode_steps=4)
    workload, mesh = Workload(model, MeshConfig(*sizes), rollout=rollout, trains=False), make_mesh(*sizes)
    given = programs.EngineWeights(programs.weights_of(workload, mesh), None)
    decode = next(p for p in programs._playing(workload, given, mesh, ONCE) if p.name == "decode")
    found = traffic(decode.trace().lower().compile().as_text(), 8, 8, 4)
    expected = decoding_mesh.sent_bytes(model, workload.mesh, 16)
    assert found.total / 4 == pytest.approx(expected, rel=0.25, abs=4096)


# ---- playing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_replies_of_every_split_are_those_of_one_device(sharding):
    mesh = mesh_of(sharding)
    engine = engine_on(mesh)
    same_as_alone(engine, 1)
    again = [talk.fresh() for talk in reversed(alone(1))]  # in other slots, beside others
    run(engine, again, at_once=3)
    for talk, expected in zip(again, reversed(alone(1)), strict=True):
        talk.same(expected)
    parts = {part.data.shape[:2] for leaf in jax.tree.leaves(engine._cache) for part in leaf.addressable_shards}
    assert parts == {(8 // (mesh.shape["data"] * mesh.shape["fsdp"]), CONFIG.kv_heads // mesh.shape["tensor"])}
    params = engine._resident.of(engine._policies["policy"].weights).params
    assert (params is trained()) == (sharding == "training")  # no copy where they lie right
    for x, place in zip(jax.tree.leaves(params), jax.tree.leaves(param_shardings(CONFIG, mesh)), strict=True):
        assert x.sharding.is_equivalent_to(place, x.ndim)


def test_devices_may_stand_in_another_order():
    devices = trained_mesh().devices.reshape(-1)[[3, 1, 7, 0, 2, 6, 4, 5]].reshape(4, 1, 2)
    mesh = jax.sharding.Mesh(devices, trained_mesh().axis_names, axis_types=trained_mesh().axis_types)
    same_as_alone(engine_on(mesh), 1)


def test_weights_of_the_host_are_taken_too():
    same_as_alone(engine_on(mesh_of("tensor"), jax.tree.map(np.asarray, weights(0))), 1)


def test_nothing_compiles_after_warm_up_when_weights_are_new(compilations):
    other = trained(1)
    expected = alone(2, 1)
    engine = engine_on(mesh_of("tensor"))
    engine.warm_up()
    assert expected
    compilations.clear()
    same_as_alone(engine, 1)
    engine.set_params(other, 1)
    same_as_alone(engine, 2, 1)
    held = engine.open(1)
    engine.forget_copies()
    assert engine._cache is not None  # a conversation is there
    engine.close(held)
    engine.forget_copies()
    assert engine._cache is None
    engine.warm_up()  # calls without conversations, as a host makes them beside one that has some
    same_as_alone(engine, 2, 1)
    assert not compilations


def test_weights_are_moved_once_and_their_copies_go_with_them():
    engine = engine_on(mesh_of("replicated"))
    engine.set_params(trained(), 0, policy="initial")
    for policy in ("policy", "initial"):
        engine.append(slot := engine.open(1, policy=policy), [1, 2, 3])
        assert engine.ask(slot, 4)
    while engine.busy:
        engine.step()
    assert len(engine._resident._moved) == 1
    engine.set_params(trained(1), 1)
    assert len(engine._resident._moved) == 1  # still those of the policy "initial"
    engine.set_params(trained(1), 1, policy="initial")
    assert not engine._resident._moved  # new weights are moved when a call needs them


def test_a_tree_that_was_given_other_arrays_is_moved_again():
    params = dict(trained())
    engine = engine_on(mesh_of("replicated"), params)
    same_as_alone(engine, 1)
    params.update(trained(1))
    engine.set_params(params, 1)
    same_as_alone(engine, 2, 1)


@pytest.mark.parametrize("sharding", ["tensor", "replicated"])
def test_adapters_and_pools_of_them_are_moved_and_share_their_base(sharding):
    rng = np.random.default_rng(4)
    trees = [
        jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) * 0.3, abstract_adapters(CONFIG, LORA))
        for _ in range(2)
    ]
    placed = [jax.device_put(tree, adapter_shardings(CONFIG, LORA, trained_mesh())) for tree in trees]
    mesh = mesh_of(sharding)
    expected = [dataclasses.replace(talk, adapter=number % 2) for number, talk in enumerate(talks(6, 3, turns=3))]
    found = [talk.fresh() for talk in expected]
    for base, adapters, on, played in (
        (weights(0), pool(trees), None, expected),
        (trained(), pool(placed), mesh, found),
    ):
        engine = make(base, slots=8, prefill_buckets=(4,), mesh=on)
        engine.set_params(base, 1, Adapters(adapters, LORA.scale))
        engine.set_params(base, 0, policy="initial")
        run(engine, played)
    for talk, wanted in zip(found, expected, strict=True):
        talk.same(wanted)
    assert [given is tree for given, *_ in engine._resident._moved for tree in (trained(), adapters)].count(True) == 2
    moved = engine._resident._moved[1][1]["layers"][0]
    split = {x.sharding.shard_shape(x.shape)[-1] * mesh.shape["tensor"] for x in [moved["attention"]["query"]["b"]]}
    assert split == {CONFIG.heads * CONFIG.head_dim}
    engine.set_params(trained(), 2, Adapters(placed[0], LORA.scale))
    first = [dataclasses.replace(talk.fresh(), adapter=0) for talk in expected if talk.adapter == 0]
    run(engine, first)
    for talk, wanted in zip(first, [talk for talk in expected if talk.adapter == 0], strict=True):
        talk.same(dataclasses.replace(wanted, adapter=0))


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_the_trainer_gives_sampled_tokens_the_same_log_probabilities(sharding):
    found = [talk.fresh() for talk in alone(1)]
    run(engine_on(mesh_of(sharding)), found)
    members = [
        Segment(np.asarray(talk.token_ids, np.int32), np.asarray(talk.mask), 1.0, np.zeros(len(talk.mask), np.float32))
        for talk in found
    ]
    sampled = {id(m): np.asarray(talk.sampled_logprobs) for m, talk in zip(members, found, strict=True)}
    trainer = Trainer(
        CONFIG,
        lambda *_: None,
        optax.sgd(0.1),
        training=TrainingConfig(scan_layers=False, remat="none"),
        mesh=trained_mesh(),
        temperature=TEMPERATURE,
    )
    for member in members:  # a row each, of which four make a batch
        batch = pack([member], 64, 4)
        logprobs, mask = np.asarray(trainer.logprobs(trained(), [batch])[0]), np.asarray(batch.mask)
        np.testing.assert_allclose(logprobs[mask > 0], sampled[id(member)], atol=1e-4, rtol=0)


GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {}}


def episodes_of(**given):
    rollout = RolloutConfig(
        slots=8, max_length=96, max_reply_length=4, stop=("]",), prefill_buckets=(32,), **given.pop("rollout", {})
    )
    workers = RolloutWorkers(PlayingRunConfig(games=GAMES, rollout=rollout, **given), sampling=SamplingConfig())
    specs = match_specs(GAMES, 4, 0, "table")
    episodes = workers.play(specs, PolicyWeights(workers.initial_params), "initial")
    return workers, [(e.replies, e.outcomes, e.sample.token_ids.tolist()) for e in episodes]


def test_games_of_every_split_are_those_of_one_device(monkeypatch, capsys):
    monkeypatch.setattr(decoding_mesh, "device_memory", lambda _: 1e9)
    monkeypatch.setattr(rollout_host, "platform_of", lambda _: "gpu")
    with monkeypatch.context() as one:
        one.setattr(jax, "devices", lambda *_: jax.local_devices()[:1])
        _, expected = episodes_of(mesh=MeshConfig(1, 1, 1))
    for sharding, sizes in (("training", (2, 2, 2)), ("tensor", None), ("replicated", (8, 1, 1)), ("auto", (8, 1, 1))):
        workers, found = episodes_of(mesh=TRAINED, rollout={"sharding": sharding})
        assert found == expected
        tensor = math.gcd(8, workers.host.model.kv_heads)
        assert workers.host.mesh.devices.shape == (sizes or (8 // tensor, 1, tensor))
        assert f"sharding {sharding}, " in (out := capsys.readouterr().out) or sharding in ("training", "auto"), out

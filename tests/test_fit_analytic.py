"""Sums against arrays that were really made, published parameter counts, and counts from traced programs."""

import dataclasses
import json
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from dfc.config import AdapterConfig, BatchConfig, Grpo, MeshConfig, RolloutConfig, TrainingConfig
from dfc.inference.buckets import cache_positions
from dfc.models import attention, families, lora, sharding
from dfc.models.cache import empty_cache, layout_of
from dfc.models.config import DecoderConfig
from dfc.models.execution import Execution
from dfc.models.transformer import abstract_params, bind
from dfc.tools.fit import analytic, holdings, nearest, published
from dfc.tools.fit import workload as counts
from dfc.tools.fit.hardware import parse_topology
from dfc.tools.fit.iteration import lengths_of
from dfc.tools.fit.traced import count
from dfc.tools.fit.workload import Workload

SMALL = DecoderConfig(
    vocabulary=64, width=32, layers=3, heads=4, kv_heads=2, head_dim=8, feed_forward=48, rope_theta=1e4,
    norm_epsilon=1e-5, qkv_bias=True, tied_embedding=False,
)  # fmt: skip

ADAPTERS = {"rank": 64}


def workload_of(model, *mesh, batch, training=None, adapter=None, rollout=None, **more):
    training = TrainingConfig(**({"attention": "xla"} | (training or {})))
    adapter, rollout = AdapterConfig(**(adapter or {})), RolloutConfig(**(rollout or {}))
    return Workload(model, MeshConfig(*mesh), BatchConfig(**batch), training, adapter, rollout, **more)


def large(name, mesh=(1, 16, 1), rows=16, row_length=8192, **sections):
    model = dataclasses.replace(families.from_config_json(published.CONFIGS[name]), dtype="bfloat16")
    return workload_of(model, *mesh, batch={"row_length": row_length, "micro_batch_rows": rows}, **sections)


@pytest.mark.parametrize(
    ("name", "parameters"),  # as the released checkpoints count them
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-32b", 32_763_876_352),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-405b", 405_853_388_800),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("mistral-7b-v0.3", 7_248_023_552),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
        ("gemma-3-1b", 999_885_952),
    ],
)
def test_published_shapes_have_the_published_number_of_parameters(name, parameters):
    assert counts.parameters(large(name).model).total == parameters


def test_published_shapes_are_the_released_files():
    released = json.loads((Path(__file__).parent / "released_configs.json").read_text())
    known = {name: published.CONFIGS.get(published.name_of(name)) for name in released}
    compared = [name for name, values in known.items() if values is not None]
    assert len(compared) >= 10
    for name in compared:
        assert families.from_config_json(known[name]) == families.from_config_json(released[name]), name


@pytest.mark.parametrize("name", published.CONFIGS)
def test_a_name_is_as_large_as_it_says(name):
    said = re.search(r"-([\d.]+)([mb])\b", name)
    total = counts.parameters(families.from_config_json(published.CONFIGS[name])).total
    assert total == pytest.approx(float(said[1]) * {"m": 1e6, "b": 1e9}[said[2]], rel=0.25)


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3-70B", "llama-3-70b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("Qwen/Qwen3-4B-Base", "qwen3-4b"),
        ("google/gemma-3-12b-it", "gemma-3-12b"),
    ],
)
def test_a_repository_of_the_hub_names_a_published_shape(repository, name):
    assert published.name_of(repository) == name
    assert name in published.CONFIGS


@pytest.mark.parametrize("sizes", [(1, 8, 1), (1, 2, 4), (2, 2, 2), (1, 1, 8)])
def test_a_devices_share_is_what_arrays_take_there(sizes):
    mesh = sharding.make_mesh(*sizes)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), abstract_params(SMALL))
    weights = jax.device_put(zeros, sharding.param_shardings(SMALL, mesh))
    really = sum(x.addressable_shards[0].data.size for x in jax.tree.leaves(weights))
    assert counts.parameters(SMALL, MeshConfig(*sizes)).local == really


@pytest.mark.parametrize("targets", [lora.ALL_LINEAR, lora.QKVO])
def test_adapters_are_counted_as_they_are_made(targets):
    adapters = lora.LoraConfig(rank=4, targets=targets)
    made = lora.abstract_adapters(SMALL, adapters)
    assert counts.adapter_parameters(SMALL, adapters) == sum(math.prod(x.shape) for x in jax.tree.leaves(made))


def playing(*sizes, conversations=1, **changes):
    """Sixteen games of 40 positions."""
    rollout = {"slots": 16, "max_length": 40, "prefill_buckets": (8,), "decode_steps": 4} | changes
    batch = {"micro_batch_rows": 8, "row_length": 32}
    return workload_of(SMALL, *sizes, batch=batch, rollout=rollout, conversations=conversations)


def size(arrays):
    return sum(x.nbytes for x in jax.tree.leaves(arrays))


def test_the_cache_is_as_large_as_it_is_made():
    assert analytic.cache_bytes(playing(1, 4, 2)) * 8 == size(empty_cache(SMALL, 16, 40))


def test_slots_are_rounded_up_to_the_shards():
    assert analytic.cache_bytes(playing(1, 8, 1, slots=3)) * 8 == size(empty_cache(SMALL, 8, 40))


@pytest.mark.parametrize("rows", [0, 8, 64])
def test_calls_of_fewer_rows_need_no_cache_of_their_own(rows):
    workload = playing(1, 4, 2, conversations=2, rows=rows)
    cache = size(empty_cache(SMALL, 32, 40))
    assert analytic.cache_bytes(workload) * 8 == cache
    computed = min(rows or 16, 32)
    assert analytic.past_bytes(workload) * 8 == cache * computed / 32


@pytest.mark.parametrize(("topology", "platform"), [("h100:8", "gpu"), ("v5e:2x4", "tpu"), ("mi300x:8", "gpu")])
def test_a_slot_is_rounded_up_to_what_the_kernels_of_a_device_take(topology, platform):
    config = Grpo(games={"Nim-v0": {}}, mesh=MeshConfig(1, 4, 2), rollout=playing(1, 4, 2).rollout)
    workload = holdings.workload_of(config, SMALL, parse_topology(topology), lengths_of(config))
    slots = 16 * workload.conversations
    cache = size(empty_cache(SMALL, slots, cache_positions(40, platform), layout_of(platform, 128)))
    assert analytic.cache_bytes(workload) * 8 == cache == size(empty_cache(SMALL, slots, 128))
    assert analytic.past_bytes(workload) * 8 == cache / workload.conversations


def test_every_worker_has_a_cache():
    parts = analytic.memory(playing(1, 4, 2, workers=3)).phases["playing"]
    assert parts["other engines' caches"] == 2 * parts["cache"]


def test_heads_that_cannot_be_split_leave_a_whole_cache_on_every_device():
    assert analytic.cache_bytes(playing(1, 1, 8)) == size(empty_cache(SMALL, 16, 40))


def test_forward_arithmetic_agrees_with_the_traced_program():
    rows, length = 2, 16
    token_ids = jnp.zeros((rows, length), jnp.int32)
    program = jax.make_jaxpr(lambda p: bind(SMALL, p)(token_ids, token_ids, token_ids))(abstract_params(SMALL))
    # So short, the program computes the whole square: every id sees `length` ids.
    assert analytic.forward_flops(SMALL, rows * length, length) == count(program).flops


def test_the_state_of_a_large_model_is_the_textbook_sum():
    found = analytic.memory(large("llama-3.1-8b", training={"scan_layers": False, "master_dtype": "bfloat16"}))
    parameters = 8_030_261_248 / 16
    assert found.phases["gradient"]["trained weights"] == pytest.approx(2 * parameters, rel=1e-3)
    assert found.phases["gradient"]["optimizer"] == pytest.approx(8 * parameters, rel=1e-3)


def test_adapters_shrink_optimizer_and_gradients_and_four_bits_the_weights():
    full = analytic.memory(large("llama-3.1-70b"))
    adapted = analytic.memory(large("llama-3.1-70b", adapter=ADAPTERS))
    quantized = analytic.memory(large("llama-3.1-70b", adapter=ADAPTERS | {"base": "nf4"}))
    assert adapted.phases["gradient"]["optimizer"] < full.phases["gradient"]["optimizer"] / 7
    assert adapted.phases["gradient"]["gradients"] < full.phases["gradient"]["gradients"] / 3
    assert "reference policy, stacked" not in adapted.phases["gradient"]
    assert quantized.phases["gradient"]["frozen weights, stacked"] == pytest.approx(
        adapted.phases["gradient"]["frozen weights, stacked"] * 0.31, rel=0.1
    )


@pytest.mark.parametrize(
    ("adapters", "coefficient", "held"), [(None, False, None), (None, True, 1), (ADAPTERS, False, 1)]
)
def test_the_initial_policy_is_held_twice_only_if_something_reads_it(adapters, coefficient, held):
    found = analytic.memory(large("llama-3.1-8b", adapter=adapters, reference=coefficient)).phases["gradient"]
    stacked = [size for name, size in found.items() if name.endswith(", stacked")]
    assert stacked == [found["initial policy"]] * (held or 0)


def test_weights_in_four_bits_are_read_as_four_bits():
    adapted, quantized = (
        large("llama-3.1-70b", adapter=ADAPTERS | {"base": base}, rollout={"slots": 16, "max_length": 128})
        for base in ("full", "nf4")
    )
    for work in (analytic.decode_work, analytic.prefill_work, analytic.update_work):
        assert work(quantized).flops == work(adapted).flops
        assert work(quantized).bytes < work(adapted).bytes
    kernels = counts.parameters(adapted.model).products / 16
    spared = analytic.decode_work(adapted).bytes - analytic.decode_work(quantized).bytes
    assert spared / adapted.steps == pytest.approx(
        kernels * (2 - 4.5 / 8), rel=0.01
    )  # 4 bits, and 32 more for every 64 weights


@pytest.mark.parametrize("length", [64, 256, 1024, 8192, 20000])
def test_attention_weights_are_those_of_the_largest_array_xla_forms(length):
    model = dataclasses.replace(SMALL, vocabulary=64)
    x = jax.ShapeDtypeStruct((1, 4, length, 8), jnp.float32)
    kv = jax.ShapeDtypeStruct((1, 2, length, 8), jnp.float32)
    segment_ids = jax.ShapeDtypeStruct((1, length), jnp.int32)
    spec = attention.AttentionSpec(1.0)
    execution = Execution("xla")
    program = jax.make_jaxpr(lambda q, k, v, s: attention.causal_attention(q, k, v, s, spec, execution))(
        x, kv, kv, segment_ids
    )

    def largest(jaxpr):
        inner = [
            largest(getattr(p, "jaxpr", p))
            for e in jaxpr.eqns
            for p in jax.tree.leaves(e.params, is_leaf=is_program)
            if is_program(p)
        ]
        sizes = [math.prod(v.aval.shape[2:]) for e in jaxpr.eqns for v in e.outvars if e.primitive.name == "exp"]
        return max([0, *inner, *sizes])

    workload = workload_of(model, 1, 1, 1, batch={"micro_batch_rows": 1, "row_length": length})
    found = analytic.memory(workload).phases["gradient"]["attention weights"]
    assert found == 10.0 * model.heads * largest(program.jaxpr)


def is_program(x):
    return isinstance(x, ClosedJaxpr | Jaxpr)


@pytest.mark.parametrize(("remat", "less"), [("none", "dots"), ("dots", "layer"), ("layer", "offload")])
def test_each_step_of_remat_keeps_less(remat, less):
    workloads = (large("llama-3.1-8b", training={"remat": r}) for r in (remat, less))
    keeps = [analytic.memory(workload).phases["gradient"].get("residuals", 0.0) for workload in workloads]
    assert keeps[0] > keeps[1]


def test_carried_residuals_are_one_layer_input_per_layer():
    found = analytic.memory(large("llama-3.1-8b"))
    assert found.phases["gradient"]["residuals"] == 32 * 8192 * 4096 * 2
    split = analytic.memory(large("llama-3.1-8b", (1, 4, 4)))
    assert (
        split.phases["gradient"]["residuals"] == 32 * 8192 * 4096 * 2
    )  # four times the rows per device, a fourth of each


def test_a_setting_that_fits_is_its_own_nearest():
    workload = large("llama-3.1-8b")
    found = nearest.nearest_fitting(workload, 1e12)
    assert found.changes == {}


def test_the_nearest_setting_fits_and_names_configuration_keys():
    training = {"scan_layers": False, "master_dtype": "bfloat16"}
    workload = large("llama-3.1-8b", rows=128, rollout={"slots": 64, "max_length": 2048}, training=training)
    available = parse_topology("v5e:4x4").chip.memory
    assert not analytic.memory(workload).fits(available)
    found = nearest.nearest_fitting(workload, available)
    assert found is not None
    assert analytic.memory(found.workload).fits(available)
    assert found.changes
    assert all(word.startswith("--config.") for word in found.changes)
    assert found.workload.batch.micro_batch_rows % found.workload.shards == 0


def test_a_suggested_context_has_room_for_the_longest_input_and_for_a_reply():
    def contexts(length, prompt):
        rollout = {"slots": 1, "max_length": length, "max_prompt_length": prompt, "max_reply_length": 4096}
        return large("llama-3.1-8b", (1, 1, 1), 1, length, adapter=ADAPTERS, rollout=rollout)

    asked = contexts(12288, 8192)
    available = 1.0001 * analytic.memory(contexts(6144, 8192)).peak
    changes = nearest.nearest_fitting(asked, available, margin=0.0).changes
    assert changes == {
        "--config.batch.row_length": 6144,
        "--config.rollout.max_length": 6144,
        "--config.rollout.max_reply_length": 3072,
        "--config.rollout.max_prompt_length": 3072,
    }
    unlimited = nearest.nearest_fitting(contexts(12288, 0), available, margin=0.0).changes
    assert unlimited.keys() == changes.keys() - {"--config.rollout.max_prompt_length"}


def test_where_nothing_fits_there_is_no_suggestion():
    assert nearest.nearest_fitting(large("llama-3.1-70b"), 1e9) is None


def test_the_largest_culprit_comes_first():
    found = analytic.memory(large("llama-3.1-8b", rows=1024))
    parts = found.culprits(3)
    assert [size for _, size in parts] == sorted((size for _, size in parts), reverse=True)
    assert parts[0][0] in {"residuals", "layer at work"}


def test_more_devices_never_need_more_memory_each():
    peaks = [analytic.memory(large("qwen2.5-32b", (1, n, 1), rows=64)).peak for n in (8, 16, 32, 64)]
    assert peaks == sorted(peaks, reverse=True)

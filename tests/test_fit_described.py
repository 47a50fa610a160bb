"""Programs of a small run compiled for devices that are not here: memory, donation, traffic. Needs the extra aot.

Without its wheels these tests are skipped; they have a job of their own (`pytest tests/test_fit_described.py`).
"""

import dataclasses
import importlib.util
import io
import json

import jax
import pytest

from dfc.config import (
    BatchConfig,
    Collect,
    DivideFuseConquer,
    MeshConfig,
    ModelConfig,
    Preference,
    RolloutConfig,
    RowsAdapterConfig,
    Sft,
    TinyPlayer,
    TrainingConfig,
)
from dfc.models import families, sharding
from dfc.tools.fit import analytic, command, hardware, holdings, iteration, programs
from dfc.tools.fit.command import Request
from dfc.tools.fit.compilation import DoesNotFitError, compile_program
from dfc.tools.fit.hardware import CHIPS, Topology, parse_topology, slices, topology_devices
from dfc.tools.fit.iteration import lengths_of
from dfc.tools.fit.workload import parameters

SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
CONFIG = DivideFuseConquer(
    games={"Nim-v0": {}},
    model=ModelConfig(dtype="bfloat16"),
    mesh=MeshConfig(fsdp=2, tensor=2),
    rollout=RolloutConfig(slots=8, max_length=1024, max_reply_length=256, sharding="training"),
    batch=BatchConfig(row_length=1024, micro_batch_rows=4),
)
_TPU = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
_GPU = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="the CUDA plugin is not installed"
)
PLATFORMS = [pytest.param("v5e:2x2", marks=_TPU), pytest.param("h100:4", marks=_GPU)]
ONE_DEVICE = [pytest.param("v5e:1x1", marks=_TPU), pytest.param("h100:1", marks=_GPU)]


@pytest.fixture(autouse=True)
def promotion():
    """Optax raises a float to the power of an integer count; the kernels promote and broadcast."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module", params=PLATFORMS)
def compiled(request):
    """Topology, setting and name -> (program, what the compiler says), each compiled once."""
    topology = parse_topology(request.param)
    decoder = dataclasses.replace(families.from_config_json(SMALL), dtype="bfloat16")
    attention = "splash" if topology.chip.platform == "tpu" else "xla"  # cuDNN is one more wheel, half a gigabyte
    config = dataclasses.replace(CONFIG, training=dataclasses.replace(CONFIG.training, attention=attention))
    workload = holdings.workload_of(config, decoder, topology, lengths_of(config))
    workload = dataclasses.replace(workload, compares=False, micro_batches=1)
    often = iteration.runs(config, lengths_of(config), workload)
    wanted = ("gradient", "optimizer step", "optimizer step in place", "decode")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = {
            p.name: (p, programs.compile_one(p, workload, topology))
            for p in programs.of_stage(config, workload, topology, often)
            if p.name in wanted
        }
    assert set(found) == set(wanted)
    return topology, workload, found


def test_arguments_are_what_the_shapes_add_up_to(compiled):
    for name, (program, found) in compiled[2].items():
        # A program is not given what it does not read, such as the rewards' mask of padding; a TPU rounds up.
        assert found.compiled.arguments == pytest.approx(programs.local_bytes(program.arguments), rel=0.01), name


def test_everything_given_away_is_reused(compiled):
    for name in ("optimizer step in place", "decode"):
        program, found = compiled[2][name]
        assert found.expected_alias == programs.local_bytes(program.donated) > 0
        assert found.compiled.aliased == pytest.approx(found.expected_alias, rel=0.01), name


def test_the_analytic_model_with_its_margin_covers_the_compilers_peak(compiled):
    topology, workload, found = compiled
    peaks = analytic.memory(workload).peaks
    for name, (program, one) in found.items():
        assert one.together() <= peaks[program.phase] * (1 + analytic.MARGIN), name
        assert one.together() >= 0.5 * peaks[program.phase], name
        assert one.together() < topology.chip.memory


def test_a_decode_call_is_counted_for_all_its_steps(compiled):
    _, workload, found = compiled
    program, one = found["decode"]
    assert program.loop_trips[0] == workload.steps == 32
    assert one.count.total_flops == workload.devices * analytic.decode_work(workload).flops
    assert one.count.unknown == ()
    traffic = one.compiled.traffic
    assert traffic.unknown == 0
    # Every step adds up what tensor devices computed, behind attention and behind the feed-forward.
    assert sum(traffic.calls.values()) >= workload.steps * 2 * workload.model.layers


def test_split_weights_are_gathered_and_gradients_scattered(compiled):
    _, workload, found = compiled
    _, gradient = found["gradient"]
    traffic = gradient.compiled.traffic
    # Each device is sent the half of the weights it lacks, forward and again backward.
    weights = workload.weight_bytes * parameters(workload.model, MeshConfig(1, 1, workload.mesh.tensor)).local
    assert traffic.total >= 2 * weights / 2
    assert traffic.unknown == 0
    assert gradient.count.unknown == ()


@pytest.mark.parametrize(
    "chip",
    [
        pytest.param(name, marks=pytest.mark.skipif(hardware.missing_packages(chip) != [], reason="no wheel"))
        for name, chip in CHIPS.items()
        if chip.platform != "rocm"
    ],
)
def test_every_size_up_to_a_hundred_chips_or_so_can_be_described_and_compiled_for(chip):
    chip = CHIPS[chip]
    shapes = slices(chip)[:9] if chip.platform == "tpu" else [(1,), (chip.host,), *([(72,)] if chip.network else [])]
    for shape in shapes:
        topology = Topology(chip, shape)
        devices = topology_devices(topology)
        assert len(devices) == topology.devices, topology.name
        assert len({device.process_index for device in devices}) == topology.hosts, topology.name
    mesh = sharding.make_mesh(1, 1, 1, devices=devices[:1])
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    small = jax.ShapeDtypeStruct((256, 256), "bfloat16", sharding=place)
    found = compile_program(jax.jit(lambda x: x @ x).lower(small), topology)
    assert found.arguments == found.outputs == 2 * 256 * 256


@_TPU
def test_a_tpu_program_that_does_not_fit_is_refused_with_both_sizes():
    topology = parse_topology("v5e:2x2")
    mesh = sharding.make_mesh(1, 4, 1, devices=topology_devices(topology))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    large = jax.ShapeDtypeStruct((131072, 131072), "bfloat16", sharding=place)
    with pytest.raises(DoesNotFitError) as caught:
        compile_program(jax.jit(lambda x: x @ x).lower(large), topology)
    assert caught.value.needed > caught.value.available == topology.chip.memory


@_GPU
def test_the_command_compiles_what_it_is_told_to(tmp_path):
    out = io.StringIO()
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    training = dataclasses.replace(CONFIG.training, attention="xla")  # cuDNN is one more wheel
    config = dataclasses.replace(CONFIG, training=training)
    request = Request(config, "h100:4", model_config=str(tmp_path), compiles=True, programs=("hand-over",))
    assert command.answer(request, out) == 0
    assert "weight hand-over" in out.getvalue()
    assert "of those named (1 of 8) every program fits" in out.getvalue()


OTHERS = {
    "preference": Preference(
        model=CONFIG.model, mesh=CONFIG.mesh, batch=CONFIG.batch, training=TrainingConfig(attention="xla")
    ),
    "adapters": Sft(
        model=CONFIG.model,
        mesh=CONFIG.mesh,
        batch=CONFIG.batch,
        training=TrainingConfig(attention="xla"),
        adapter=RowsAdapterConfig(rank=8, dropout=0.1),
    ),
    "collect": Collect(games={"wordle": {}}, model=CONFIG.model, mesh=CONFIG.mesh, rollout=CONFIG.rollout, tasks=4),
    "tiny_player": TinyPlayer(games={"TicTacToe-v0": {}}),
}


@_GPU
@pytest.mark.parametrize("kind", OTHERS)
def test_the_programs_of_other_recipes_take_what_is_counted(kind):
    config, topology = OTHERS[kind], parse_topology("h100:1" if kind == "tiny_player" else "h100:4")
    decoder = dataclasses.replace(families.from_config_json(SMALL), dtype="bfloat16")
    (stage, *_) = iteration.stages_of(config)
    workload = holdings.workload_of_stage(stage, config, lambda _: decoder, topology, lengths_of(config))
    often = iteration.runs(config, lengths_of(config), workload)
    peaks, largest = analytic.memory(workload).peaks, {}
    for program in programs.of_stage(config, workload, topology, often):
        if program.name == "prefill-append":
            continue  # of so small a model the weights gathered for a layer, which no part counts, are a third of all
        found = programs.compile_one(program, workload, topology)
        assert found.compiled.aliased == pytest.approx(found.expected_alias, rel=0.01), program.name
        assert found.together() <= peaks[program.phase] * (1 + analytic.MARGIN), program.name
        largest[program.phase] = max(found.together(), largest.get(program.phase, 0))
    assert set(peaks) - set(largest) <= {"loading", "saving"}
    assert all(largest[phase] >= 0.5 * peaks[phase] for phase in largest), (largest, peaks)


@pytest.mark.parametrize("topology", ONE_DEVICE)
def test_one_device_reads_and_writes_its_cache_in_place_by_a_kernel(topology):
    """More slots than rows: a copy of the cache, or of its rows, would be the largest temporary."""
    topology = parse_topology(topology)
    decoder = dataclasses.replace(families.from_config_json(SMALL), dtype="bfloat16")
    config = dataclasses.replace(
        OTHERS["collect"], mesh=MeshConfig(), rollout=dataclasses.replace(CONFIG.rollout, slots=32, rows=8)
    )
    (stage, *_) = iteration.stages_of(config)
    workload = holdings.workload_of_stage(stage, config, lambda _: decoder, topology, lengths_of(config))
    often = iteration.runs(config, lengths_of(config), workload)
    for program in programs.of_stage(config, workload, topology, often):
        found = programs.compile_one(program, workload, topology)
        assert (found.count.kernel_flops > 0) == (program.name != "prefix copy")
        assert found.count.unknown == ()
        assert found.compiled.aliased == pytest.approx(found.expected_alias, rel=0.01), program.name
        if program.name != "prefill-append":
            assert found.compiled.temporaries < found.expected_alias / 2, program.name

"""Saving weights: rounded, one tensor at a time, verified, killed at any step, from several hosts."""

import dataclasses
import functools
import json
import shutil
import sys
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import tiny_models
from processes import ROOT, free_port, outcome, python
from tiny_models import NARROW as CONFIG

from dfc.errors import WeightsError
from dfc.models import families, huggingface, lora, peft
from dfc.models.transformer import initialize, stack_layers


def test_weights_are_saved_rounded_to_the_dtype_asked_for(tmp_path):
    params = initialize(CONFIG, 0)
    huggingface.save(tmp_path / "x", CONFIG, params, copy_from=None, dtype="bfloat16")
    assert json.loads((tmp_path / "x" / "config.json").read_text())["dtype"] == "bfloat16"
    tensors = safetensors.numpy.load_file(tmp_path / "x" / "model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"bfloat16"}
    expected = np.asarray(params["layers"][1]["mlp"]["down"]["kernel"]).T.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(tensors["model.layers.1.mlp.down_proj.weight"], expected)
    low = dataclasses.replace(CONFIG, dtype="bfloat16")
    huggingface.save(
        tmp_path / "y", low, jax.tree.map(lambda x: x.astype(jnp.bfloat16), params), copy_from=None, dtype="float32"
    )
    tensors = safetensors.numpy.load_file(tmp_path / "y" / "model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"float32"}
    with pytest.raises(WeightsError, match="dtype: expected one of float32, bfloat16, or None for as trained; got 'f'"):
        huggingface.save(tmp_path / "z", CONFIG, params, copy_from=None, dtype="f")


def test_stacked_weights_are_saved_as_unrolled_ones(tmp_path):
    params = initialize(CONFIG, 0)
    huggingface.save(tmp_path / "unrolled", CONFIG, params, copy_from=None)
    huggingface.save(tmp_path / "stacked", CONFIG, stack_layers(params), copy_from=None)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("unrolled", "stacked"))
    assert one == other


def test_one_tensor_at_a_time_is_fetched(tmp_path, monkeypatch):
    """A weight is asked for only after the one before has been written."""
    sizes = []
    original = huggingface.weight_gathering.Weight.fetch

    def fetch(self, **options):
        sizes.append(sum(file.stat().st_size for file in tmp_path.rglob("*.safetensors")))
        return original(self, **options)

    monkeypatch.setattr(huggingface.weight_gathering.Weight, "fetch", fetch)
    huge = dataclasses.replace(CONFIG, vocabulary=4096, width=64)
    huggingface.save(tmp_path / "x", huge, initialize(huge, 0), copy_from=None)
    assert len(sizes) == len(jax.tree.leaves(initialize(huge, 0)))
    assert sizes[-1] > 4 * 4096 * 64  # the embedding, long written when the last weight is fetched


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_verified_save_compares_with_transformers(tmp_path, monkeypatch, dtype):
    params = initialize(CONFIG, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        huggingface.save(tmp_path / "x", CONFIG, stack_layers(params), copy_from=None, dtype=dtype, verify=True)
        difference = huggingface.verification.verify_saved(
            tmp_path / "x", huggingface.load(tmp_path / "x", dtype=dtype or "float32")[0], params
        )
        assert 0 <= difference < 1e-4
        # A file whose tensors are exchanged loads without complaint and computes something else.
        names = dict(families.tensor_names(CONFIG))
        gate, up = ("layers", "0", "mlp", "gate", "kernel"), ("layers", "0", "mlp", "up", "kernel")
        names[gate], names[up] = names[up], names[gate]
        monkeypatch.setattr(families, "tensor_names", lambda _: names)
        with pytest.raises(WeightsError, match="transformers computes other logits from what was saved"):
            huggingface.save(tmp_path / "y", CONFIG, params, copy_from=None, dtype=dtype, verify=True)
    assert not (tmp_path / "y").exists()


def test_verifying_without_torch_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(WeightsError, match=r"needs PyTorch: /.* -m pip install torch"):
        huggingface.save(tmp_path / "x", CONFIG, initialize(CONFIG, 0), copy_from=None, verify=True)
    assert not (tmp_path / "x").exists()


KILL = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[2])
import test_saving as tests
from dfc.models import huggingface

calls, fatal = 0, 0

def dying(original):
    def call(*args, **options):
        global calls
        calls += 1
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)
    return call

# Every step that changes names, the end of each file, and one tensor in five: its file is then half written.
for name in ("mkdir", "rename"):
    setattr(pathlib.Path, name, dying(getattr(pathlib.Path, name)))
os.fsync = dying(os.fsync)
fetch, fetched = huggingface.weight_gathering.Weight.fetch, 0
fatal_fetch = dying(fetch)

def counted(*args, **options):
    global fetched
    fetched += 1
    return (fetch if fetched % 5 else fatal_fetch)(*args, **options)

huggingface.weight_gathering.Weight.fetch = counted
while True:
    fatal += 1
    child = os.fork()  # no device has been started here, and a fork is cheaper than an interpreter per step
    if not child:
        target = pathlib.Path(sys.argv[1], str(fatal), "model")
        huggingface.save(target, tests.ONE_LAYER, tests.filled(2.0), copy_from=None, shard_bytes=8000)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        assert status == 0
        break
print(fatal)
"""
ONE_LAYER = dataclasses.replace(CONFIG, layers=1)
STEPS = 20
filled = functools.partial(tiny_models.filled, ONE_LAYER)


def test_a_save_killed_at_any_step_leaves_no_folder_that_looks_whole(tmp_path):
    huggingface.save(tmp_path / "earlier", ONE_LAYER, filled(1.0), copy_from=None, shard_bytes=4000)
    for step in range(1, STEPS):
        shutil.copytree(tmp_path / "earlier", tmp_path / "runs" / str(step) / "model")
    steps = int(outcome(python(KILL, tmp_path / "runs", ROOT / "tests")))
    assert 8 < steps < STEPS
    left = []
    for step in range(1, steps + 1):
        found = {}
        for place in (tmp_path / "runs" / str(step)).rglob("config.json"):
            params = huggingface.load(place.parent, dtype="float32")[1]  # whole, or this fails
            values = {float(value) for leaf in jax.tree.leaves(params) for value in (leaf.min(), leaf.max())}
            assert len(values) == 1
            found[place.parent.name] = values.pop()
        left.append(found)
    assert left[-1] == {"model": 2.0}  # this one was not killed
    # Until the last two steps the earlier model is in its place; between them it lies beside it, and so does the new.
    assert all(found["model"] == 1.0 for found in left[:-2])
    assert left[-2] == {"old": 1.0, "new": 2.0}
    assert left[-3] == {"model": 1.0, "new": 2.0}


HOSTS = """
import json, sys
import jax
import numpy as np

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize("127.0.0.1:" + sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
from dfc.errors import WeightsError
from dfc.models import huggingface, lora, peft
from dfc.models.sharding import make_mesh

folder = sys.argv[3]
mesh = make_mesh(1, 2, 2)
config, params = huggingface.load(folder + "/source", mesh=mesh, dtype="float32")
assert not all(leaf.is_fully_addressable for leaf in jax.tree.leaves(params))
huggingface.save(folder + "/saved", config, params, copy_from=None, shard_bytes=4000)
mine, adapters = peft.load_adapter(folder + "/adapter", config, mesh=mesh)
peft.save_adapter(folder + "/adapter2", mine, adapters, config, "base")
try:
    huggingface.save(folder + "/taken", config, params, copy_from=None)
except WeightsError as error:
    assert "notes.md" in str(error), error
else:
    raise AssertionError("every host has to hear of it")
for load in (
    lambda: huggingface.load(folder + "/broken", mesh=mesh, dtype="float32"),
    lambda: peft.load_adapter(folder + "/broken_adapter", config, mesh=mesh),
):
    try:
        load()
    except Exception as error:
        assert "expected finite numbers" in str(error), error
    else:
        raise AssertionError("every host has to hear of it")
"""


def test_two_hosts_save_what_one_does(tmp_path):
    params = initialize(CONFIG, 0)
    huggingface.save(tmp_path / "source", CONFIG, params, copy_from=None)
    huggingface.save(tmp_path / "expected", CONFIG, params, copy_from=None, shard_bytes=4000)
    mine = lora.LoraConfig(rank=2, alpha=4.0, targets=("query", "up"))
    peft.save_adapter(tmp_path / "adapter", mine, lora.initialize_adapters(CONFIG, mine, 0), CONFIG, "base")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.md").write_text("mine")
    # One number of one host's shard is none.
    for source, broken, file in (
        ("source", "broken", "model.safetensors"),
        ("adapter", "broken_adapter", peft.WEIGHTS),
    ):
        tensors = safetensors.numpy.load_file(shutil.copytree(tmp_path / source, tmp_path / broken) / file)
        next(value for name, value in tensors.items() if "q_proj" in name)[-1, -1] = np.nan
        safetensors.numpy.save_file(tensors, tmp_path / broken / file)
    port = free_port()
    for process in [python(HOSTS, port, index, tmp_path) for index in range(2)]:
        outcome(process)
    for made, wanted in (("saved", "expected"), ("adapter2", "adapter")):
        files = sorted(file.name for file in (tmp_path / wanted).iterdir())
        assert sorted(file.name for file in (tmp_path / made).iterdir()) == files
        for file in files:
            assert (tmp_path / made / file).read_bytes() == (tmp_path / wanted / file).read_bytes()

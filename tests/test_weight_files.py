"""Reading and writing weights: memory, buckets, killed saves, several hosts, the file format against its library."""

import dataclasses
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import fsspec
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from fsspec.implementations.memory import MemoryFileSystem

from dfc.errors import WeightsError
from dfc.models import families, huggingface, lora, peft, safetensors_format, shard_reading
from dfc.models.config import DecoderConfig
from dfc.models.safetensors_format import BrokenFileError, TensorToWrite, read_header, write_file
from dfc.models.sharding import make_mesh
from dfc.models.transformer import initialize, stack_layers

ROOT = Path(__file__).resolve().parents[1]
CONFIG = DecoderConfig(
    vocabulary=48,
    width=16,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=4,
    feed_forward=24,
    rope_theta=1e4,
    norm_epsilon=1e-5,
    qkv_bias=False,
    tied_embedding=False,
)


def same(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# The format.


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_library_of_the_format_reads_what_is_written(tmp_path, dtype):
    tensors = {"b": numbers((5, 7), dtype), "a": numbers((3,), dtype, 1), "c": numbers((2, 2, 2), dtype, 2)}
    entries = [TensorToWrite(name, value.dtype, value.shape, lambda v=value: v) for name, value in tensors.items()]
    write_file(tmp_path / "x.safetensors", entries, metadata={"format": "pt"})
    with safetensors.safe_open(tmp_path / "x.safetensors", framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}
        assert set(opened.keys()) == set(tensors)
        for name, value in tensors.items():
            np.testing.assert_array_equal(opened.get_tensor(name), value)


def test_a_fetched_tensor_must_be_what_the_header_promises(tmp_path):
    wrong = TensorToWrite("a", np.dtype(np.float32), (2, 3), lambda: np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match=r"a: expected float32 \[2, 3\], got float32 \[3, 2\]"):
        write_file(tmp_path / "x.safetensors", [wrong])


def with_header(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "empty": b"",
    "half a length": b"\1\0\0\0",
    "a length beyond the file": struct.pack("<Q", 50) + b"{}",
    "an absurd length": struct.pack("<Q", 2**62) + b"{}",
    "no JSON": with_header(b"{]"),
    "no object": with_header([1]),
    "bytes missing": with_header({"a": ENTRY}, b"1234567"),
    "bytes left over": with_header({"a": ENTRY}, b"123456789"),
    "a hole": with_header({"a": ENTRY, "b": ENTRY | {"data_offsets": [16, 24]}}, b"x" * 24),
    "an overlap": with_header({"a": ENTRY, "b": ENTRY | {"data_offsets": [4, 12]}}, b"x" * 12),
    "a range that is not its shape": with_header({"a": ENTRY | {"shape": [3]}}, b"12345678"),
    "a negative range": with_header({"a": ENTRY | {"data_offsets": [8, 0]}}, b"12345678"),
    "no range": with_header({"a": {"dtype": "F32", "shape": [2]}}, b"12345678"),
    "no shape": with_header({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, b"12345678"),
    "no dtype": with_header({"a": {"shape": [2], "data_offsets": [0, 8]}}, b"12345678"),
    "a range of texts": with_header({"a": ENTRY | {"data_offsets": ["0", "8"]}}, b"12345678"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused_as_the_library_refuses_it(tmp_path, damage):
    file = tmp_path / "x.safetensors"
    file.write_bytes(DAMAGED[damage])
    with pytest.raises(safetensors.SafetensorError), safetensors.safe_open(file, framework="numpy"):
        pass
    with pytest.raises(BrokenFileError):
        read_header(file)


def test_a_sound_header_is_read(tmp_path):
    file = tmp_path / "x.safetensors"
    file.write_bytes(with_header({"a": ENTRY}, b"12345678"))  # what the damaged ones were made from
    assert read_header(file)["a"].shape == (2,)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path):
    file = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"a": np.ones((100, 7), np.float32)}, file)
    stored = read_header(file)["a"]
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(BrokenFileError, match="ended 5 bytes early"):
        list(stored.pieces(0, 100))


# From files to devices.


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("wanted", [np.float32, ml_dtypes.bfloat16])
def test_every_part_of_a_mesh_gets_its_numbers(tmp_path, monkeypatch, stored, wanted, transpose):
    """Shapes around tile borders, pieces of a few rows: against numpy's slicing, conversion and transposing."""
    monkeypatch.setattr(safetensors_format, "PIECE_BYTES", 2**17)  # several pieces per tensor
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
    tensors = {f"t{i}": numbers(shape, stored, i) for i, shape in enumerate([(520, 1032), (8, 8), (256, 512)])}
    safetensors.numpy.save_file(tensors, tmp_path / "x.safetensors")
    held = read_header(tmp_path / "x.safetensors")
    for spec in [(None, None), ("x", None), (None, "y"), ("z", "x"), (("x", "y"), "z")]:
        place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        asked = [
            shard_reading.WantedArray(
                held[name], held[name].shape[:: -1 if transpose else 1], np.dtype(wanted), place, transpose
            )
            for name in tensors
        ]
        for array, value in zip(shard_reading.read_arrays(asked), tensors.values(), strict=True):
            assert array.sharding == place
            np.testing.assert_array_equal(np.asarray(array), (value.T if transpose else value).astype(wanted))


@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("wanted", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 65504.0, -0.0])
def test_numbers_that_are_not_finite_are_refused_wherever_they_lie(tmp_path, monkeypatch, *, stored, wanted, value):
    monkeypatch.setattr(shard_reading, "_CHECKED_AT_ONCE", 64)
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for position in (0, 63, 69):
        values = numbers((10, 7), stored)
        values.reshape(-1)[position] = value
        safetensors.numpy.save_file({"a": values}, tmp_path / "x.safetensors")
        held = read_header(tmp_path / "x.safetensors")["a"]
        asked = [shard_reading.WantedArray(held, (7, 10), np.dtype(wanted), place, transpose=True)]
        if np.isfinite(value):
            np.testing.assert_array_equal(shard_reading.read_arrays(asked)[0], values.T.astype(wanted))
        else:
            with pytest.raises(shard_reading.NotFiniteError, match="a: expected finite numbers, but some are NaN"):
                shard_reading.read_arrays(asked)


def test_a_number_beyond_the_range_of_the_wanted_dtype_is_refused_without_a_warning(tmp_path):
    safetensors.numpy.save_file({"a": np.array([3.4e38, 1.0], np.float32)}, tmp_path / "x.safetensors")
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    stored = read_header(tmp_path / "x.safetensors")["a"]
    wanted = shard_reading.WantedArray(stored, (2,), np.dtype(ml_dtypes.bfloat16), place, transpose=False)
    with pytest.raises(shard_reading.NotFiniteError, match="infinite in bfloat16"):
        shard_reading.read_arrays([wanted])
    same = dataclasses.replace(wanted, dtype=np.dtype(np.float32))
    np.testing.assert_array_equal(shard_reading.read_arrays([same])[0], np.array([3.4e38, 1.0], np.float32))


MEMORY = """
import json, sys, threading, time
import jax
from dfc.models import huggingface

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(sys.argv[2]))

huggingface.load("tiny_player", dtype=sys.argv[3])  # what the first load costs whatever its size
before, peak, stop = anonymous(), 0, False

def sample():
    global peak
    while not stop:
        peak = max(peak, anonymous())
        time.sleep(0.002)

thread = threading.Thread(target=sample)
thread.start()
_, params = huggingface.load(sys.argv[1] + "/", dtype=sys.argv[3])
stop = True
thread.join()
arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
print(json.dumps({"extra": peak - before - arrays, "arrays": arrays}))
"""


def write_large(folder, config):
    """A checkpoint in several files, its bytes the same megabyte again and again."""
    folder.mkdir()
    block = numbers(2**19, ml_dtypes.bfloat16).view(np.uint8).tobytes()
    names = families.tensor_names(config)
    shapes = {tuple(str(k.key) for k in path): leaf.shape for path, leaf in shapes_of(config)}
    groups = {}
    for path, name in names.items():
        shape = shapes[path][::-1] if name.transpose else shapes[path]
        groups.setdefault(path[1] if path[0] == "layers" else "ends", {})[name.tensor] = shape
    weight_map = {}
    for i, group in enumerate(groups.values()):
        file, header, end = f"model-{i}.safetensors", {}, 0
        for tensor, shape in group.items():
            size = 2 * int(np.prod(shape))
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
            end += size
            weight_map[tensor] = file
        with (folder / file).open("wb") as handle:
            handle.write(with_header(header))
            for _ in range(end // len(block)):
                handle.write(block)
            handle.write(block[: end % len(block)])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(families.to_config_json(config)))


def shapes_of(config):
    return jax.tree.leaves_with_path(huggingface.abstract_params(config))


def python(script, *arguments, **environment):
    return subprocess.Popen(  # noqa: S603 - this interpreter and the scripts below
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts memory by Linux's account of a process")
def test_host_memory_beside_the_arrays_stays_below_twice_the_largest_tensor(tmp_path):
    """2.2 GB in bfloat16; the largest tensor is the embedding, 134 MB."""
    config = dataclasses.replace(
        CONFIG, vocabulary=32768, width=2048, layers=19, heads=16, kv_heads=4, head_dim=128, feed_forward=7168
    )
    write_large(tmp_path / "large", config)
    size = sum(file.stat().st_size for file in (tmp_path / "large").glob("*.safetensors"))
    assert size > 2 * 10**9
    try:
        found = json.loads(outcome(python(MEMORY, tmp_path / "large", "VmRSS", "bfloat16")))
    finally:
        for file in (tmp_path / "large").iterdir():
            file.unlink()
    largest = 2 * config.vocabulary * config.width
    assert 0 <= found["arrays"] - size + 10**6 <= 2 * 10**6
    assert found["extra"] < 2 * largest, f"{found['extra'] / largest:.2f} times the largest tensor"


# Buckets.


class Bucket(MemoryFileSystem):
    """Google's object store as fsspec knows it, in memory."""

    protocol = "gcs"
    store = {}  # noqa: RUF012 - this is how fsspec's class keeps its objects
    pseudo_dirs = [""]  # noqa: RUF012 - same

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(str(path).removeprefix("gs://").removeprefix("gcs://"))


@pytest.fixture
def bucket(monkeypatch):
    """Returns an address; nothing is renamed, mapped or changed in place there."""
    fsspec.register_implementation("gcs", Bucket, clobber=True)
    fsspec.register_implementation("gs", Bucket, clobber=True)
    Bucket.store.clear()
    Bucket.pseudo_dirs[:] = [""]

    def refuse(*_, **__):
        raise AssertionError("a bucket cannot rename")

    monkeypatch.setattr(Bucket, "mv", refuse)
    return "gs://bucket/models"


def objects():
    return sorted(Bucket.store)


def test_a_model_goes_to_a_bucket_and_comes_back(bucket, tmp_path):
    params = initialize(CONFIG, 0)
    source = tmp_path / "source"
    source.mkdir()
    (source / "tokenizer.json").write_text("{}")
    for kind in ("one", "many"):
        place = f"{bucket}/{kind}"
        huggingface.save(place, CONFIG, params, copy_from=source, shard_bytes=10**9 if kind == "one" else 2000)
        for mesh in (None, make_mesh(2, 2, 2)):
            config, loaded = huggingface.load(place, mesh=mesh, dtype="float32")
            assert config == CONFIG
            same(jax.tree.map(np.asarray, loaded), jax.tree.map(np.asarray, params))
    # The object's bytes are those of a file on a disk.
    huggingface.save(tmp_path / "local", CONFIG, params, copy_from=source)
    stored = Bucket.store["/bucket/models/one/model.safetensors"].getvalue()
    assert stored == (tmp_path / "local" / "model.safetensors").read_bytes()
    assert "/bucket/models/one/tokenizer.json" in objects()
    again = huggingface.resolve(f"{bucket}/one")
    huggingface.save(tmp_path / "again", CONFIG, params, copy_from=again)  # tokenizer files come out of the bucket
    assert (tmp_path / "again" / "tokenizer.json").read_text() == "{}"


def test_a_model_in_a_bucket_is_replaced_and_never_looks_whole_in_between(bucket, monkeypatch):
    huggingface.save(f"{bucket}/x", CONFIG, initialize(CONFIG, 0), copy_from=None, shard_bytes=2000)
    seen = []
    original = safetensors_format.write_file
    monkeypatch.setattr(
        safetensors_format,
        "write_file",
        lambda *args, **options: (seen.append("/bucket/models/x/config.json" in objects()), original(*args, **options)),
    )
    removed, remove = [], Bucket.rm
    monkeypatch.setattr(
        Bucket, "rm", lambda self, path, **options: (removed.append(str(path)), remove(self, path, **options))[1]
    )
    params = initialize(CONFIG, 1)
    huggingface.save(f"{bucket}/x", CONFIG, params, copy_from=None)
    assert removed[0] == f"{bucket}/x/config.json"  # from then on the folder is no model
    assert len(removed) > 2
    assert seen == [False]
    assert objects() == ["/bucket/models/x/config.json", "/bucket/models/x/model.safetensors"]
    same(
        jax.tree.map(np.asarray, huggingface.load(f"{bucket}/x", dtype="float32")[1]), jax.tree.map(np.asarray, params)
    )


def test_what_is_wrong_in_a_bucket_is_listed(bucket):
    with pytest.raises(
        WeightsError, match=r"looked for gs://bucket/models/x/config\.json, but there is no such folder"
    ):
        huggingface.load(f"{bucket}/x", dtype="float32")
    huggingface.save(f"{bucket}/x", CONFIG, initialize(CONFIG, 0), copy_from=None, shard_bytes=2000)
    first, second = [name for name in objects() if name.endswith(".safetensors")][:2]
    del Bucket.store[first]
    Bucket.store[second].truncate(300)
    with pytest.raises(WeightsError) as caught:
        huggingface.load(f"{bucket}/x", dtype="float32")
    listed = str(caught.value).splitlines()[1:]
    assert len(listed) == 2
    assert f"{Path(first).name}: model.safetensors.index.json names this file, but it is not there" in listed[0]
    assert f"{Path(second).name}: not a whole safetensors file" in listed[1]
    with pytest.raises(WeightsError, match="only a folder on a disk can be verified"):
        huggingface.save(f"{bucket}/y", CONFIG, initialize(CONFIG, 0), copy_from=None, verify=True)
    Bucket.store["/bucket/models/x/notes.md"] = Bucket.store[second]
    with pytest.raises(WeightsError, match=r"holds notes\.md"):
        huggingface.save(f"{bucket}/x", CONFIG, initialize(CONFIG, 0), copy_from=None)


def test_an_adapter_goes_to_a_bucket_and_comes_back(bucket):
    mine = lora.LoraConfig(rank=2, alpha=4.0, targets=("query", "up"))
    adapters = lora.initialize_adapters(CONFIG, mine, 0)
    peft.save_adapter(f"{bucket}/a", mine, adapters, CONFIG, "base")
    loaded, again = peft.load_adapter(f"{bucket}/a", CONFIG)
    assert loaded == mine
    same(jax.tree.map(np.asarray, again), jax.tree.map(np.asarray, adapters))


# Saving.


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
    with pytest.raises(WeightsError, match="needs PyTorch: pip install torch"):
        huggingface.save(tmp_path / "x", CONFIG, initialize(CONFIG, 0), copy_from=None, verify=True)
    assert not (tmp_path / "x").exists()


KILL = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[2])
import test_weight_files as tests
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


def filled(value):
    abstract = huggingface.abstract_params(ONE_LAYER)
    return jax.tree.map(lambda leaf: np.full(leaf.shape, value, leaf.dtype), abstract)


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for process in [python(HOSTS, port, index, tmp_path) for index in range(2)]:
        outcome(process)
    for made, wanted in (("saved", "expected"), ("adapter2", "adapter")):
        files = sorted(file.name for file in (tmp_path / wanted).iterdir())
        assert sorted(file.name for file in (tmp_path / made).iterdir()) == files
        for file in files:
            assert (tmp_path / made / file).read_bytes() == (tmp_path / wanted / file).read_bytes()


def test_a_pointer_of_git_lfs_is_called_one(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(safetensors_format.BrokenFileError, match="git lfs pull"):
        safetensors_format.read_header(file)

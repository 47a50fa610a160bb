"""The file format against its library; from files to devices; the memory that loading takes."""

import dataclasses
import json
import struct
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from processes import outcome, python
from tiny_models import NARROW as CONFIG

from dfc.models import families, huggingface, safetensors_format, shard_reading
from dfc.models.safetensors_format import BrokenFileError, TensorToWrite, read_header, write_file

ROOT = Path(__file__).resolve().parents[1]


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


def test_a_pointer_of_git_lfs_is_called_one(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(safetensors_format.BrokenFileError, match="git lfs pull"):
        safetensors_format.read_header(file)


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

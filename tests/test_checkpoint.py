import collections
import json
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from dfc.errors import CheckpointError
from dfc.runs import checkpoint
from dfc.runs.checkpoint import Checkpointer

Pair = collections.namedtuple("Pair", "first second")  # noqa: PYI024 - optax's states are named tuples


@pytest.fixture(autouse=True)
def _pack_only_what_is_tiny(monkeypatch):
    """So that a kilobyte counts as large and has its own files; the tests would write megabytes otherwise."""
    monkeypatch.setattr(checkpoint, "_PACKED_UP_TO", 1000)


def random_bits(shape, dtype, seed):
    """Every bit pattern can occur, NaNs with payload and subnormal numbers among them."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(size), dtype).reshape(shape).copy()


def tree():
    return {
        "policy": {10: random_bits((7, 5), np.float32, 0), 9: random_bits((4,), ml_dtypes.bfloat16, 1)},
        "groups": [random_bits((2, 2), np.int32, 2), (random_bits((3,), np.uint32, 3), None), []],
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.float32(0.1),
        "large": random_bits((50, 40), np.float32, 4),  # above what is packed
    }


def assert_same_bits(found, expected):
    found_leaves, found_tree = jax.tree.flatten(found)
    leaves, structure = jax.tree.flatten(expected)
    assert found_tree == structure
    for one, other in zip(found_leaves, leaves, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def small(value):
    return {"w": jnp.full((3,), value, jnp.float32)}


@pytest.fixture
def saved(tmp_path):
    """Three checkpoints, of steps 1, 2 and 3."""
    checkpointer = Checkpointer(tmp_path / "checkpoints", keep=3)
    for step in (1, 2, 3):
        arrays = small(step) | {"large": np.full((50, 40), step, np.float32)}
        checkpointer.save(step, arrays, {"step": step, "rates": [0.1, None]})
    return checkpointer, tmp_path / "checkpoints"


def test_arrays_of_every_kind_come_back_bit_for_bit_without_a_template(tmp_path):
    arrays = tree()
    on_device = {key: jax.tree.map(jnp.asarray, value) for key, value in arrays.items() if key != "scalar"}
    for name, given in (("numpy", arrays), ("jax", on_device)):
        Checkpointer(tmp_path / name, keep=1).save(5, given, {"a": [1, "ü", {"b": 0.1}]})
        restored = Checkpointer(tmp_path / name, keep=1).restore()
        assert restored.step == 5
        assert restored.progress == {"a": [1, "ü", {"b": 0.1}]}
        assert_same_bits(restored.arrays, given)
        assert isinstance(restored.arrays["large"], np.ndarray)


def test_nothing_saved_is_none(tmp_path):
    assert Checkpointer(tmp_path / "new", keep=1).restore() is None
    assert not (tmp_path / "new").exists()


def test_a_template_places_arrays_and_keeps_named_tuples(tmp_path):
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("fsdp"))
    params = {"w": jnp.arange(32.0), "large": jnp.arange(1600.0)}
    params = jax.device_put(params, sharding)
    arrays = {"policy": params, "optimizer": optax.adam(1e-3).init(params), "pair": Pair(jnp.ones(2), [jnp.zeros(1)])}
    checkpointer = Checkpointer(tmp_path, keep=1)
    checkpointer.save(0, arrays, {})
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), arrays)
    for template in (like, arrays, lambda _: like):
        restored = checkpointer.restore(template).arrays
        assert_same_bits(restored, arrays)
        assert restored["policy"]["w"].sharding == sharding
        assert restored["policy"]["large"].sharding == sharding
        assert isinstance(restored["pair"], Pair)


def test_a_function_can_make_the_template_from_what_was_saved(tmp_path):
    checkpointer = Checkpointer(tmp_path, keep=1)
    checkpointer.save(0, {"groups": {"a": jnp.ones((2, 3))}}, {})
    seen = []

    def like(saved):
        seen.append(saved)
        return saved

    restored = checkpointer.restore(like)
    assert seen[0] == {"groups": {"a": jax.ShapeDtypeStruct((2, 3), jnp.float32)}}
    assert isinstance(restored.arrays["groups"]["a"], jax.Array)


def test_a_template_of_another_structure_is_refused_by_name(saved):
    checkpointer, _ = saved
    with pytest.raises(CheckpointError, match="does not have the arrays asked for") as caught:
        checkpointer.restore({"w": jax.ShapeDtypeStruct((4,), jnp.float32), "b": jax.ShapeDtypeStruct((), jnp.int32)})
    text = str(caught.value)
    assert "w: the checkpoint has float32[3], asked for is float32[4]" in text
    assert "b: the checkpoint has nothing, asked for is int32[]" in text
    assert "large: the checkpoint has float32[50, 40], asked for is nothing" in text


def test_only_the_newest_are_kept_and_a_rewound_future_is_dropped(saved):
    checkpointer, directory = saved
    checkpointer.save(4, small(4), {})
    assert checkpointer.steps() == [2, 3, 4]
    checkpointer.save(3, small(33), {})
    assert checkpointer.steps() == [2, 3]
    assert checkpointer.restore().arrays["w"][0] == 33
    assert sorted(path.name for path in directory.iterdir()) == ["step_000000002", "step_000000003"]


def largest_file(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def flip_one_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "an array file cut short": lambda folder: largest_file(folder).write_bytes(largest_file(folder).read_bytes()[:-10]),
    "one bit of an array": lambda folder: flip_one_bit(largest_file(folder)),
    "one bit of the state": lambda folder: flip_one_bit(folder / "state.json"),
    "one bit of the manifest": lambda folder: flip_one_bit(folder / "manifest.json"),
    "no state": lambda folder: (folder / "state.json").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "an empty manifest": lambda folder: (folder / "manifest.json").write_text("{}"),
    "a manifest of nothing": lambda folder: (folder / "manifest.json").write_text('{"files":{}}'),
    "half of the manifest": lambda folder: (folder / "manifest.json").write_text('{"files":{"sta'),
    "no metadata of Orbax": lambda folder: (folder / "arrays" / "_METADATA").unlink(),
    "no arrays": lambda folder: shutil.rmtree(folder / "arrays"),
    "an empty folder": lambda folder: [shutil.rmtree(folder), folder.mkdir()],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_skipped_with_one_line_that_names_both(saved, capfd, kind):
    checkpointer, directory = saved
    DAMAGE[kind](directory / "step_000000003")
    restored = checkpointer.restore()
    assert restored.step == restored.progress["step"] == 2
    assert (np.asarray(restored.arrays["large"]) == 2).all()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"warning: checkpoint {directory / 'step_000000003'} is damaged (")
    assert line.endswith(f"using {directory / 'step_000000002'} instead")


def test_when_all_are_damaged_the_run_does_not_silently_start_again(saved):
    checkpointer, directory = saved
    for step in (1, 2, 3):
        flip_one_bit(largest_file(directory / f"step_{step:09d}"))
    with pytest.raises(CheckpointError, match="every checkpoint is damaged") as caught:
        checkpointer.restore()
    assert str(caught.value).count("the checksum of") == 3
    assert f"delete {directory}" in str(caught.value)


def test_a_save_that_was_cut_short_leaves_no_checkpoint_and_is_cleared_away(saved):
    checkpointer, directory = saved
    (directory / ".partial_000000004").mkdir()
    (directory / ".partial_000000004" / "state.json").write_text("{")
    assert checkpointer.restore().step == 3
    checkpointer.save(4, small(4), {})
    assert not list(directory.glob(".partial*"))


def test_a_place_that_cannot_be_written_to_is_named_and_the_older_ones_stay(saved, monkeypatch):
    checkpointer, directory = saved
    (directory.parent / "file").touch()
    with pytest.raises(CheckpointError, match=r"cannot save the checkpoint .*file/c/step_000000001"):
        Checkpointer(directory.parent / "file" / "c", keep=1).save(1, small(1), {})

    def full(*_, **__):
        # How tensorstore reports a full disk, seen on a small tmpfs.
        raise ValueError("RESOURCE_EXHAUSTED: No space left on device")

    monkeypatch.setattr(checkpointer._orbax, "save", full)
    with pytest.raises(CheckpointError, match=r"step_000000004: RESOURCE_EXHAUSTED: No space left on device"):
        checkpointer.save(4, small(4), {})
    assert checkpointer.steps() == [1, 2, 3]
    assert not list(directory.glob(".partial*"))


@pytest.mark.parametrize(
    ("arrays", "progress", "text"),
    [
        ({"a": [1.5]}, {}, r"arrays\['a'\]\[0\]: must be a jax or numpy array"),
        ({"a": {None: np.zeros(1)}}, {}, "a key must be a text or an int"),
        ({"a": np.array(["x"])}, {}, "cannot be saved"),
        ({"key": jax.random.key(0)}, {}, "key_data"),
        ({}, {"a": {1: 2}}, r"progress\['a'\]: a key must be a text, got 1"),
        ({}, {"a": [(1, 2)]}, r"progress\['a'\]\[0\]: must be JSON-ready"),
        ({}, {"a": np.float32(1)}, "must be JSON-ready"),
    ],
)
def test_what_would_come_back_changed_is_refused(tmp_path, arrays, progress, text):
    with pytest.raises(TypeError, match=text):
        Checkpointer(tmp_path / "c", keep=1).save(0, arrays, progress)
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_without_arrays_keeps_its_progress(tmp_path):
    checkpointer = Checkpointer(tmp_path, keep=1)
    checkpointer.save(0, {"a": {}, "b": None}, {"nan": float("inf")})
    restored = checkpointer.restore()
    assert restored.arrays == {"a": {}, "b": None}
    assert json.dumps(restored.progress) == '{"nan": Infinity}'


def test_the_checkpoint_before_the_newest_stays_whatever_is_to_be_kept(tmp_path):
    checkpointer = Checkpointer(tmp_path / "c", keep=1)
    for step in (1, 2, 3):
        checkpointer.save(step, small(step), {})
    assert checkpointer.steps() == [2, 3]

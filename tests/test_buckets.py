"""Models and adapters in a bucket, where nothing is renamed, mapped or changed in place."""

from pathlib import Path

import fsspec
import jax
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tiny_models import NARROW as CONFIG
from tiny_models import assert_same

from dfc.errors import WeightsError
from dfc.models import huggingface, lora, peft, safetensors_format
from dfc.models.sharding import make_mesh
from dfc.models.transformer import initialize

ROOT = Path(__file__).resolve().parents[1]


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
            assert_same(jax.tree.map(np.asarray, loaded), jax.tree.map(np.asarray, params))
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
    assert_same(
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
    assert_same(jax.tree.map(np.asarray, again), jax.tree.map(np.asarray, adapters))

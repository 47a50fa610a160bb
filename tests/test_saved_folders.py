"""The folder that a save leaves: what travels, what is replaced, what is refused; whole or not at all."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_models
from tiny_models import assert_same, tiny

from dfc.errors import WeightsError
from dfc.models import huggingface, model_folders, safetensors_format

CONFIG = tiny(
    vocabulary=8,
    width=4,
    layers=1,
    heads=2,
    kv_heads=1,
    head_dim=2,
    feed_forward=6,
    qkv_bias=False,
    tied_embedding=True,
)
filled = functools.partial(tiny_models.filled, CONFIG)


def test_tokenizer_files_travel_and_weights_of_the_source_do_not(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text('{"eos_token_id": 7, "hidden_size": 1000}')
    for name in (*huggingface.TOKENIZER_FILES[:-1], "pytorch_model.bin", "optimizer.pt"):
        (source / name).write_text(f"the {name}")
    huggingface.save(tmp_path / "saved", CONFIG, filled(1.0), copy_from=source)
    expected = {*huggingface.TOKENIZER_FILES[:-1], "config.json", "model.safetensors"}
    assert {file.name for file in (tmp_path / "saved").iterdir()} == expected
    assert (tmp_path / "saved" / "tokenizer.json").read_text() == "the tokenizer.json"
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (written["eos_token_id"], written["hidden_size"]) == (7, 4)


def test_a_tokenizer_without_a_model_can_be_copied(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "tokenizer.model").write_text("pieces")
    huggingface.save(tmp_path / "saved", CONFIG, filled(1.0), copy_from=source)
    assert (tmp_path / "saved" / "tokenizer.model").read_text() == "pieces"
    assert huggingface.load(tmp_path / "saved", dtype="float32")[0] == CONFIG


def test_an_earlier_model_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "runs" / "model"
    huggingface.save(target, CONFIG, filled(1.0), copy_from=None, shard_bytes=100)
    assert len(list(target.glob("model-*"))) > 1
    (target / "tokenizer.json").write_text("{}")
    huggingface.save(target, CONFIG, filled(2.0), copy_from=target)
    assert {file.name for file in target.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
    assert_same(jax.tree.map(np.asarray, huggingface.load(target, dtype="float32")[1]), filled(2.0))
    assert [entry.name for entry in target.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("moment", ["weights", "config", "exchange"])
def test_a_save_that_fails_leaves_the_earlier_model_and_nothing_else(tmp_path, monkeypatch, moment):
    target = tmp_path / "model"
    huggingface.save(target, CONFIG, filled(1.0), copy_from=None)

    def fail(*_, **__):
        raise OSError("no space left on device")

    if moment == "weights":
        monkeypatch.setattr(safetensors_format, "write_file", fail)
    elif moment == "config":
        monkeypatch.setattr(model_folders, "write_json", fail)
    else:
        original = Path.rename
        monkeypatch.setattr(Path, "rename", lambda self, to: fail() if self.name == "new" else original(self, to))
    with pytest.raises(OSError, match="no space left"):
        huggingface.save(target, CONFIG, filled(2.0), copy_from=None)
    monkeypatch.undo()
    assert_same(jax.tree.map(np.asarray, huggingface.load(target, dtype="float32")[1]), filled(1.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_stopped_first_save_leaves_no_config_that_looks_whole(tmp_path, monkeypatch):
    """A killed process cleans nothing up: config.json must come last in the folder being written."""
    seen = []
    original = model_folders.write_json

    def spy(path, value):
        original(path, value)
        seen.append((path.name, sorted(file.name for file in path.parent.iterdir())))

    monkeypatch.setattr(model_folders, "write_json", spy)
    huggingface.save(tmp_path / "model", CONFIG, filled(1.0), copy_from=None, shard_bytes=10**3)
    assert not [names for name, names in seen[:-1] if "config.json" in names]
    assert seen[-1][0] == "config.json"
    assert set(seen[-1][1]) == {file.name for file in (tmp_path / "model").iterdir()}


def test_a_folder_with_anything_else_in_it_is_not_replaced(tmp_path):
    huggingface.save(tmp_path / "model", CONFIG, filled(1.0), copy_from=None)
    (tmp_path / "model" / "notes.md").write_text("mine")
    with pytest.raises(WeightsError, match=r"holds notes\.md, which is no part of a saved model"):
        huggingface.save(tmp_path / "model", CONFIG, filled(2.0), copy_from=None)
    with pytest.raises(WeightsError, match="expected a folder to write to, found a file"):
        huggingface.save(tmp_path / "model" / "notes.md", CONFIG, filled(2.0), copy_from=None)
    assert (tmp_path / "model" / "notes.md").read_text() == "mine"


def test_weights_that_do_not_fit_the_config_are_not_saved(tmp_path):
    params = filled(1.0)
    params["norm"] = {"scale": np.ones(5, np.float32), "shift": np.ones(4, np.float32)}
    del params["layers"][0]["mlp"]["up"]
    params["embed"]["embedding"] = params["embed"]["embedding"].astype(np.float16)
    with pytest.raises(WeightsError) as caught:
        huggingface.save(tmp_path / "model", CONFIG, params, copy_from=None)
    assert str(caught.value).splitlines()[1:] == [
        "  - layers/0/mlp/up/kernel: missing",
        "  - norm/shift: not a weight of this decoder",
        "  - embed/embedding: expected float32 [8, 4], got float16 [8, 4]",
        "  - norm/scale: expected float32 [4], got float32 [5]",
    ]
    assert not (tmp_path / "model").exists()


def test_weights_of_one_family_are_not_saved_as_another(tmp_path):
    """A Llama file would be read back without the bias, as another model."""
    params = tiny_models.filled(dataclasses.replace(CONFIG, qkv_bias=True), 1.0)
    with pytest.raises(WeightsError, match="layers/0/attention/query/bias: not a weight of this decoder"):
        huggingface.save(tmp_path / "x", CONFIG, params, copy_from=None)

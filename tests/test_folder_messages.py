"""A folder that cannot be loaded says what lies in it and what to do."""

import json
import shutil

import pytest
from safetensors.numpy import load_file, save_file

from dfc.commands import shell_line
from dfc.errors import WeightsError
from dfc.models import huggingface


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(huggingface.resolve("tiny_player"), tmp_path / "model")
    return tmp_path / "model"


def said(folder):
    with pytest.raises(WeightsError) as caught:
        huggingface.load(folder, dtype="float32")
    text = str(caught.value)
    assert len(text) < 1000
    assert all(line.isprintable() for line in text.splitlines())
    return text


@pytest.mark.parametrize("prefix", ["_orig_mod.", "base_model.model.", "\x1b[2J" * 500])
def test_weights_under_other_names_are_named_and_the_config_is_not_blamed(folder, prefix):
    weights = load_file(folder / "model.safetensors")
    save_file({prefix + name: tensor for name, tensor in weights.items()}, folder / "model.safetensors")
    text = said(folder)
    first = min(weights)
    assert f"expected tensors such as model.layers.0.self_attn.q_proj.weight, got {len(weights)} of other names" in text
    if prefix.isprintable():
        assert f"the first is {prefix + first!r}" in text
    assert "config.json" not in text


def test_weights_whose_names_lack_the_models_own_prefix_are_named(folder):
    weights = load_file(folder / "model.safetensors")
    save_file({name.removeprefix("model."): value for name, value in weights.items()}, folder / "model.safetensors")
    assert "the first is 'embed_tokens.weight'" in said(folder)


def test_a_folder_of_a_gguf_file_names_the_command_that_converts_it(folder):
    (folder / "model.safetensors").rename(folder / "model-q8_0.gguf")
    text = said(folder)
    fetch = shell_line("dfc.models.fetch")
    assert f"it holds 'model-q8_0.gguf', and `{fetch} --from=FILE.gguf --to=DIR` converts" in text


@pytest.mark.parametrize("name", ["consolidated.safetensors", "model-00001-of-00002.safetensors"])
def test_weights_that_no_index_names_are_named(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    assert f"it holds '{name}', which no index names" in said(folder)


@pytest.mark.parametrize("method", ["fp8", "bitsandbytes", "gptq", "mxfp4"])
def test_a_quantized_model_is_told_that_the_original_is_wanted(folder, method):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
    text = said(folder)
    assert f"got {{'quant_method': '{method}'}}; take the unquantized original (adapter.base=nf4 keeps it in" in text

"""Model folders in and out, against transformers (PyTorch on the CPU) and checkpoints it saved itself."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import tiny_models
from tiny_models import assert_same, quiet, save_checkpoint

from dfc.errors import WeightsError
from dfc.models import huggingface, safetensors_format, shard_reading
from dfc.models.sharding import batch_sharding, make_mesh, param_shardings
from dfc.models.transformer import bind

oracle = tiny_models.oracle  # the fixture

SMALL = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,  # the parity test reads 100 positions
}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
LLAMA, QWEN2 = "LlamaForCausalLM", "Qwen2ForCausalLM"
FAR = PLAIN | {"rope_theta": 1e6}
KINDS = {
    "llama, all heads, tied": (
        LLAMA,
        {"num_key_value_heads": 4, "tie_word_embeddings": True, "rope_parameters": PLAIN},
    ),
    "llama3, grouped heads": (LLAMA, {"num_key_value_heads": 2, "head_dim": 8, "rope_parameters": LLAMA3}),
    "qwen2, bias, tied": (QWEN2, {"num_key_value_heads": 2, "tie_word_embeddings": True, "rope_parameters": FAR}),
    "qwen2, bias, untied": (QWEN2, {"num_key_value_heads": 1, "rms_norm_eps": 1e-3, "rope_parameters": PLAIN}),
}
DEFAULT = "llama3, grouped heads"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """One folder per kind, drawn by transformers with every weight away from its initial value."""
    folders = {kind: tmp_path_factory.mktemp("checkpoint") for kind in KINDS}
    for kind, (architecture, options) in KINDS.items():
        save_checkpoint(folders[kind], architecture, SMALL | options, 0.2)
    return folders


@pytest.fixture
def folder(checkpoints, tmp_path):
    """A copy of one checkpoint, to be damaged."""
    return Path(shutil.copytree(checkpoints[DEFAULT], tmp_path / "model"))


TOKENS = np.random.default_rng(0).integers(0, SMALL["vocab_size"], (2, 100)).astype(np.int32)


def theirs(oracle, folder, dtype="float32"):
    with quiet(), oracle.torch.no_grad():
        model = oracle.transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(oracle.torch, dtype)
        ).eval()
        return model(oracle.torch.from_numpy(TOKENS).long()).logits.float().numpy()


def forward(config, params, tokens):
    model = bind(config, params)
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
    hidden = model(tokens, positions, jnp.ones_like(tokens))
    return jnp.matmul(hidden, model.output_embedding.T, preferred_element_type=jnp.float32)


def ours(config, params):
    return np.asarray(jax.jit(forward, static_argnums=0)(config, params, TOKENS))


def tensors_of(folder):
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in read_file(file).items()}


def read_file(file):
    with safetensors.safe_open(file, framework="numpy") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - the handle is no mapping


def write(folder, tensors):
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers_and_survive_the_round_trip(kind, checkpoints, oracle, tmp_path):
    config, params = huggingface.load(checkpoints[kind], dtype="float32")
    expected = theirs(oracle, checkpoints[kind])
    np.testing.assert_allclose(ours(config, params), expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.1  # the comparison above is of numbers of this size

    huggingface.save(tmp_path / "saved", config, params, copy_from=checkpoints[kind])
    np.testing.assert_array_equal(theirs(oracle, tmp_path / "saved"), expected)
    again, reloaded = huggingface.load(tmp_path / "saved", dtype="float32")
    assert again == config
    assert_same(reloaded, params)
    kept, came = (json.loads((place / "config.json").read_text()) for place in (tmp_path / "saved", checkpoints[kind]))
    assert {name: kept[name] for name in ("bos_token_id", "eos_token_id", "max_position_embeddings")} == {
        name: came[name] for name in ("bos_token_id", "eos_token_id", "max_position_embeddings")
    }


def test_checkpoints_of_the_parity_test_have_biases_and_kinds_as_named(checkpoints):
    loaded = {kind: huggingface.load(folder, dtype="float32") for kind, folder in checkpoints.items()}
    assert [(c.kv_heads, c.qkv_bias, c.tied_embedding, c.rope_scaling is None) for c, _ in loaded.values()] == [
        (4, False, True, True),
        (2, False, False, False),
        (2, True, True, True),
        (1, True, False, True),
    ]
    bias = loaded["qwen2, bias, tied"][1]["layers"][1]["attention"]["value"]["bias"]
    assert np.abs(np.asarray(bias)).min() > 0


def test_transformers_shards_are_read(checkpoints, oracle, tmp_path):
    with quiet():
        oracle.transformers.AutoModelForCausalLM.from_pretrained(checkpoints[DEFAULT]).save_pretrained(
            tmp_path, max_shard_size="8KB"
        )
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_same(
        huggingface.load(tmp_path, dtype="float32")[1], huggingface.load(checkpoints[DEFAULT], dtype="float32")[1]
    )


def test_our_shards_are_read_by_transformers(checkpoints, oracle, tmp_path):
    config, params = huggingface.load(checkpoints[DEFAULT], dtype="float32")
    limit = 8000
    huggingface.save(tmp_path / "sharded", config, params, copy_from=None, shard_bytes=limit)
    files = sorted((tmp_path / "sharded").glob("*.safetensors"))
    assert [file.name for file in files] == [
        f"model-{i:05}-of-{len(files):05}.safetensors" for i in range(1, len(files) + 1)
    ]
    assert len(files) > 2
    assert all(sum(tensor.nbytes for tensor in read_file(file).values()) <= limit for file in files)
    index = json.loads((tmp_path / "sharded" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    np.testing.assert_array_equal(theirs(oracle, tmp_path / "sharded"), theirs(oracle, checkpoints[DEFAULT]))
    assert_same(huggingface.load(tmp_path / "sharded", dtype="float32")[1], params)


def test_a_saved_file_holds_what_transformers_saves(checkpoints, tmp_path):
    config, params = huggingface.load(checkpoints[DEFAULT], dtype="float32")
    huggingface.save(tmp_path / "saved", config, params, copy_from=None)
    expected, found = tensors_of(checkpoints[DEFAULT]), tensors_of(tmp_path / "saved")
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)
    with safetensors.safe_open(tmp_path / "saved" / "model.safetensors", framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_weights_are_rounded_once_to_the_wanted_type(stored, wanted, folder, oracle):
    tensors = {name: tensor.astype(jnp.dtype(stored)) for name, tensor in tensors_of(folder).items()}
    write(folder, tensors)
    config, params = huggingface.load(folder, dtype=wanted)
    assert config.dtype == wanted
    kernel = params["layers"][1]["mlp"]["down"]["kernel"]
    stored_kernel = oracle.torch.from_numpy(tensors["model.layers.1.mlp.down_proj.weight"].astype(np.float32))
    expected = stored_kernel.to(getattr(oracle.torch, wanted)).float().numpy().T
    assert kernel.dtype == jnp.dtype(wanted)
    np.testing.assert_array_equal(np.asarray(kernel, np.float32), expected)


def test_bfloat16_survives_the_round_trip(checkpoints, oracle, tmp_path):
    config, params = huggingface.load(checkpoints[DEFAULT], dtype="bfloat16")
    huggingface.save(tmp_path / "saved", config, params, copy_from=None)
    assert_same(huggingface.load(tmp_path / "saved", dtype="bfloat16")[1], params)
    expected = theirs(oracle, tmp_path / "saved", "bfloat16")
    # bfloat16 keeps 8 bits: 2**-8 of logits of size 10, some roundings deep.
    assert np.abs(ours(config, params) - expected).max() < 0.03 * np.abs(expected).max()


def test_a_mesh_gets_its_shards_and_computes_the_same(checkpoints):
    for kind in (DEFAULT, "qwen2, bias, tied"):
        mesh = make_mesh(2, 2, 2)
        config, params = huggingface.load(checkpoints[kind], dtype="float32")
        same, sharded = huggingface.load(checkpoints[kind], mesh=mesh, dtype="float32")
        assert same == config
        assert jax.tree.map(lambda leaf: leaf.sharding, sharded) == param_shardings(config, mesh)
        assert_same(sharded, params)
        rows = np.concatenate([TOKENS, TOKENS])
        found = jax.jit(forward, static_argnums=0)(config, sharded, jax.device_put(rows, batch_sharding(mesh)))
        np.testing.assert_allclose(np.asarray(found)[:2], ours(config, params), atol=1e-5, rtol=0)


def test_each_byte_is_read_once_and_no_device_is_given_more_than_its_shard(checkpoints, monkeypatch):
    read, made = [], []
    original = safetensors_format._read_into
    monkeypatch.setattr(
        safetensors_format,
        "_read_into",
        lambda handle, array, file: (original(handle, array, file), read.append(array.nbytes))[0],
    )
    aligned = shard_reading._aligned
    monkeypatch.setattr(shard_reading, "_aligned", lambda *args: (made.append(aligned(*args)), made[-1])[1])
    _, params = huggingface.load(checkpoints[DEFAULT], mesh=make_mesh(2, 2, 2), dtype="float32")
    leaves = jax.tree.leaves(params)
    header = int.from_bytes((checkpoints[DEFAULT] / "model.safetensors").read_bytes()[:8], "little")
    assert sum(read) == header + sum(leaf.nbytes for leaf in leaves)
    assert max(part.size for part in made) == max(leaf.addressable_shards[0].data.size for leaf in leaves)
    assert sum(part.size for part in made) == sum(leaf.size for leaf in leaves)  # copies of a shard are read once


def test_a_mesh_saves_what_one_device_saves(checkpoints, tmp_path):
    for name, mesh in (("one", None), ("many", make_mesh(2, 2, 2))):
        config, params = huggingface.load(checkpoints[DEFAULT], mesh=mesh, dtype="float32")
        huggingface.save(tmp_path / name, config, params, copy_from=None)
    one, many = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "many"))
    assert one == many


def error_of(folder):
    with pytest.raises(WeightsError) as caught:
        huggingface.load(folder, dtype="float32")
    return str(caught.value)


def test_every_wrong_tensor_is_listed(folder):
    tensors = tensors_of(folder)
    del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(6, np.float32)
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:-1]
    tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(np.int8)
    query = "model.layers.0.self_attn.q_proj.weight"
    tensors[query] = np.ascontiguousarray(tensors[query].T)
    write(folder, tensors)
    listed = error_of(folder).splitlines()[1:]
    assert listed == [
        "  - model.embed_tokens.weight: expected shape [40, 24] from config.json, got [39, 24]",
        "  - lm_head.weight: expected one of F32, F16, BF16, got I8",
        "  - model.layers.0.self_attn.q_proj.weight: expected shape [32, 24] from config.json, got [24, 32]",
        "  - model.layers.1.mlp.up_proj.weight: missing",
        "  - model.norm.weight: missing",
        "  - model.layers.0.self_attn.q_norm.weight: extra, not a tensor of a LlamaForCausalLM with this config.json",
    ]


def test_computed_and_tied_tensors_may_be_extra(checkpoints, tmp_path):
    folder = shutil.copytree(checkpoints["llama, all heads, tied"], tmp_path / "model")
    tensors = tensors_of(folder)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)
    write(folder, tensors)
    assert_same(
        huggingface.load(folder, dtype="float32")[1],
        huggingface.load(checkpoints["llama, all heads, tied"], dtype="float32")[1],
    )


@pytest.mark.parametrize("left", [4, 300, -1], ids=["in the length", "in the header", "in the tensors"])
def test_a_truncated_file_is_refused(folder, left):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:left])
    message = error_of(folder)
    assert "model.safetensors: not a whole safetensors file" in message
    assert len(message.splitlines()) == 2  # and not a line per tensor


def test_what_an_index_promises_is_checked(checkpoints, tmp_path):
    config, params = huggingface.load(checkpoints[DEFAULT], dtype="float32")
    huggingface.save(tmp_path, config, params, copy_from=None, shard_bytes=6000)
    files = sorted(tmp_path.glob("*.safetensors"))
    gone, short, thin = files[0], files[1], files[2]
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    tensors = read_file(thin)
    lost = min(tensors)
    safetensors.numpy.save_file(
        {name: tensor for name, tensor in tensors.items() if name != lost} | {"more": np.ones(2)}, thin
    )
    listed = error_of(tmp_path).splitlines()[1:]
    assert len(listed) == 4
    assert listed[0] == f"  - {gone.name}: model.safetensors.index.json names this file, but it is not there"
    assert listed[1].startswith(f"  - {short.name}: not a whole safetensors file (")
    assert listed[2] == f"  - {lost}: model.safetensors.index.json expects it in {thin.name}, which does not hold it"
    assert listed[3].startswith("  - more: extra")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "../a.safetensors"}}, "must not lead out of the folder, got ../a.safetensors"),
        ({"weight_map": [1]}, "expected an object 'weight_map'"),
        ({}, "expected an object 'weight_map'"),
        ([], "expected a JSON object, got a list"),
    ],
)
def test_a_broken_index_is_refused(folder, index, message):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert message in error_of(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_never_opened(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"\x80\x04")
    message = error_of(folder)
    assert f"it holds {name}, and pickled files are never loaded" in message
    assert "expected model.safetensors or model.safetensors.index.json" in message


def test_a_config_that_cannot_be_computed_is_refused_with_its_folder(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu"}))
    message = error_of(folder)
    assert str(folder) in message
    assert "hidden_act: only 'silu'" in message
    (folder / "config.json").write_text("{")
    assert "config.json: expected a JSON file" in error_of(folder)
    with pytest.raises(WeightsError, match="dtype: expected one of float32, bfloat16, got 'float16'"):
        huggingface.load(folder, dtype="float16")


def test_a_path_without_a_model_names_what_was_looked_for(folder, tmp_path, monkeypatch):
    assert huggingface.resolve(str(folder)) == folder
    for missing, state in ((tmp_path / "nowhere", "there is no such folder"), (tmp_path, "has no config.json")):
        with pytest.raises(WeightsError) as caught:
            huggingface.resolve(str(missing))
        assert str(missing / "config.json") in str(caught.value)
        assert state in str(caught.value)
    # The bundled model lies beside the module, wherever the process runs.
    monkeypatch.setattr(huggingface, "__file__", str(tmp_path / "huggingface.py"))
    bundled = Path(shutil.copytree(folder, tmp_path / "tiny_player"))
    assert huggingface.resolve("tiny_player") == bundled
    assert huggingface.load("tiny_player", dtype="float32")[0].vocabulary == 40

"""Model and adapter folders that are well formed and wrong: one WeightsError each, and never another model."""

import contextlib
import json
import os
import shutil
import socket
import struct
import warnings

import jax
import numpy as np
import pytest
import safetensors.numpy
from tiny_models import NARROW as CONFIG

from dfc.errors import WeightsError
from dfc.models import huggingface, lora, model_folders, peft
from dfc.models.families import from_config_json, tensor_names, to_config_json
from dfc.models.sharding import make_mesh
from dfc.models.transformer import abstract_params, by_path

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def save(folder, config):
    """Any weights of a decoder, without a device."""
    shapes, chance = by_path(abstract_params(config)), np.random.default_rng(0)
    tensors = {}
    for path, name in tensor_names(config).items():
        shape = shapes[path].shape[::-1] if name.transpose else shapes[path].shape
        tensors[name.tensor] = chance.standard_normal(shape).astype(np.float32)
    write(folder, tensors)
    (folder / "config.json").write_text(json.dumps(to_config_json(config)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    save(folder, CONFIG)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy, to be damaged."""
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture(params=["one device", "a mesh"])
def options(request):
    return {"mesh": make_mesh(2, 2, 2) if request.param == "a mesh" else None}


def tensors_of(folder):
    return safetensors.numpy.load_file(folder / WEIGHTS)


def load(folder, name):
    """Loads what the file of this name is part of."""
    if name in (peft.CONFIG, peft.WEIGHTS):
        peft.load_adapter(folder, CONFIG)
    else:
        huggingface.load(folder, dtype="float32")


def write(folder, tensors):
    safetensors.numpy.save_file(tensors, folder / WEIGHTS)


def write_sharded(folder, files, weight_map):
    """Several files with an index."""
    (folder / WEIGHTS).unlink()
    for file, tensors in files.items():
        safetensors.numpy.save_file(tensors, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def set_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def refused(folder, match, **options):
    with pytest.raises(WeightsError, match=match) as caught:
        huggingface.load(folder, dtype="float32", **options)
    assert len(str(caught.value)) < 10_000
    return str(caught.value)


# ---- a tied embedding with a head of its own ----------------------------------------------------------------------


@pytest.mark.parametrize("sharded", [False, True])
def test_a_head_that_differs_from_the_embedding_it_is_said_to_be_tied_to_is_refused(folder, options, sharded):
    set_config(folder, tie_word_embeddings=True)
    tensors = tensors_of(folder)
    if sharded:
        files = {"a.safetensors": {HEAD: tensors.pop(HEAD)}, "b.safetensors": tensors}
        write_sharded(folder, files, {name: file for file, held in files.items() for name in held})
    message = refused(folder, "lm_head.weight is no copy of model.embed_tokens.weight", **options)
    assert "set tie_word_embeddings to false in config.json" in message


def test_one_other_number_in_the_last_row_is_a_head_of_its_own(folder):
    set_config(folder, tie_word_embeddings=True)
    tensors = tensors_of(folder)
    head = tensors[EMBEDDING].copy()
    head[-1, -1] += 1e-3
    write(folder, tensors | {HEAD: head})
    refused(folder, r"they differ in rows 0 to 47")
    write(folder, tensors | {HEAD: tensors[EMBEDDING][:40]})
    refused(folder, r"F32 \[40, 16\] and F32 \[48, 16\]")


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_copy_of_the_embedding_loads_as_a_tied_model(folder, options, kind):
    """The copy may be stored in another dtype as long as its numbers are the same."""
    set_config(folder, tie_word_embeddings=True)
    tensors = tensors_of(folder)
    tensors[EMBEDDING] = tensors[EMBEDDING].astype(np.float16).astype(np.float32)
    write(folder, tensors | {HEAD: tensors[EMBEDDING].astype(kind)})
    config, params = huggingface.load(folder, dtype="float32", **options)
    assert config.tied_embedding
    assert "head" not in params
    np.testing.assert_array_equal(params["embed"]["embedding"], tensors[EMBEDDING])


# ---- names --------------------------------------------------------------------------------------------------------


def test_a_prefix_of_image_models_is_no_name_of_a_text_model(folder):
    tensors = tensors_of(folder)
    name = "model.language_model.embed_tokens.weight"
    write(folder, tensors | {name: np.ones_like(tensors[EMBEDDING])})
    refused(folder, f"{name}: extra, not a tensor of a LlamaForCausalLM")


GEMMA = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": 48,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 24,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 4,
    "layer_types": ["full_attention"],
}


@pytest.fixture
def with_images(tmp_path):
    """A Gemma 3 that also reads images, and the names of its tensors without a prefix."""
    save(tmp_path, from_config_json(GEMMA))
    written = json.loads((tmp_path / "config.json").read_text())
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": written}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    return tmp_path


def test_two_tensors_that_become_one_are_refused_with_both_names(with_images):
    tensors = {name.replace("model.", "model.language_model."): t for name, t in tensors_of(with_images).items()}
    write(with_images, tensors)
    huggingface.load(with_images, dtype="float32")  # what the others are made from
    older = "language_model.model.norm.weight"
    write(with_images, tensors | {older: tensors["model.language_model.norm.weight"]})
    message = refused(with_images, "both are model.norm.weight of the text model")
    assert older in message
    assert "model.language_model.norm.weight" in message


# ---- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["model.norm.weight", HEAD, "model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_refused_by_name(folder, options, name, value):
    tensors = tensors_of(folder)
    tensors[name].reshape(-1)[-1] = value
    write(folder, tensors)
    refused(folder, f"the weights cannot be used: {name}: expected finite numbers", **options)


def test_an_adapter_that_is_not_finite_is_refused_by_name(tmp_path):
    mine = lora.LoraConfig(rank=2, alpha=4.0, targets=("query",))
    peft.save_adapter(tmp_path / "adapter", mine, lora.initialize_adapters(CONFIG, mine, 0), CONFIG, "base")
    file = tmp_path / "adapter" / peft.WEIGHTS
    tensors = safetensors.numpy.load_file(file)
    name = max(tensors)
    tensors[name][0, 0] = np.nan
    safetensors.numpy.save_file(tensors, file)
    with pytest.raises(WeightsError, match=f"the adapter cannot be used: {name}: expected finite numbers"):
        peft.load_adapter(tmp_path / "adapter", CONFIG)


@pytest.mark.parametrize("value", ["1" + "0" * 400, "NaN", "-1e999"])
def test_an_alpha_that_no_float_can_hold_is_refused(tmp_path, value):
    (tmp_path / peft.CONFIG).write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": ' + value + "}")
    with pytest.raises(WeightsError, match=r"lora_alpha: expected a (positive )?number"):
        peft.load_adapter(tmp_path, CONFIG)


# ---- JSON ---------------------------------------------------------------------------------------------------------

NESTED = b"[" * 200_000
TWICE = b'{"weight_map": {}, "weight_map": {}}'


def header(text):
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize("text", [NESTED, b'{"a":' * 200_000, b"\xff\xfe", b"[1, 2]", b"1" * 5000])
@pytest.mark.parametrize("name", ["config.json", INDEX, WEIGHTS, peft.CONFIG])
def test_json_that_cannot_be_read_is_one_error_that_names_the_file(folder, name, text):
    if name == INDEX:
        (folder / WEIGHTS).unlink()
    (folder / name).write_bytes(header(text) if name == WEIGHTS else text)
    with pytest.raises(WeightsError, match=name) as caught:
        load(folder, name)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["config.json", INDEX, peft.CONFIG])
def test_a_key_that_occurs_twice_is_refused(folder, name):
    if name == INDEX:
        (folder / WEIGHTS).unlink()
    (folder / name).write_bytes(TWICE)
    with pytest.raises(WeightsError, match=f"{name}: .*the key 'weight_map' occurs twice"):
        load(folder, name)


def test_a_header_that_names_a_tensor_twice_is_refused(folder):
    entry = b'"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    (folder / WEIGHTS).write_bytes(header(b"{" + entry + b", " + entry + b"}") + b"1234")
    refused(folder, r"model.safetensors: not a whole safetensors file \(its header .* the key 'a' occurs twice")


def test_a_json_file_of_no_end_is_not_read_whole(folder, monkeypatch):
    monkeypatch.setattr(model_folders, "_LONGEST_JSON", 1000)
    (folder / "config.json").write_bytes(b" " * 1001)
    refused(folder, "config.json: .*it has more than 1000 bytes")


# ---- files that are none, and names that lead elsewhere -----------------------------------------------------------


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    # The address of a socket is a short one.
    with socket.socket(socket.AF_UNIX) as opened, contextlib.chdir(path.parent):
        opened.bind(path.name)


def make_folder(path):
    path.mkdir()


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_folder])
@pytest.mark.parametrize("name", ["config.json", WEIGHTS, INDEX, "a.safetensors", peft.CONFIG, peft.WEIGHTS])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(folder, name, make):
    if name == "a.safetensors":
        (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(tensors_of(folder), name)}))
    if name in ("a.safetensors", INDEX):
        (folder / WEIGHTS).unlink()
    if name == peft.WEIGHTS:
        (folder / peft.CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 2}))
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(WeightsError, match=f"{name}.*expected a regular file"):
        load(folder, name)
    if name in (WEIGHTS, "a.safetensors"):
        with pytest.raises(WeightsError, match=f"{name}: expected a regular file"):
            model_folders.weights_hash(folder)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("a\0b.safetensors", r"printable, got 'a\\x00b.safetensors'"),
        ("\ud800.safetensors", r"printable, got '\\ud800.safetensors'"),
        ("\x1b[2J.safetensors", "printable"),
        ("../model.safetensors", "must not lead out of the folder"),
        ("..", "only safetensors files are ever read"),
        ("/dev/zero.safetensors", "must not lead out of the folder"),
        ("sub/model.safetensors", "must not lead out of the folder"),
        ("..\\\\model.safetensors", "must not lead out of the folder"),
        ("a" * 5000 + ".safetensors", "File name too long|download or save it again"),
        ("", "only safetensors files are ever read"),
    ],
)
def test_a_name_in_an_index_that_is_none_of_a_file_in_the_folder_is_refused(folder, file, expected):
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {EMBEDDING: file}}))
    refused(folder, expected)


def test_a_link_to_a_regular_file_is_followed(folder, tmp_path):
    """A cache of the hub holds links."""
    for name in ("config.json", WEIGHTS):
        (folder / name).rename(tmp_path / f"blob-{name}")
        (folder / name).symlink_to(tmp_path / f"blob-{name}")
    huggingface.load(folder, dtype="float32")


def test_a_very_long_list_of_problems_is_cut(folder):
    tensors = tensors_of(folder)
    write(folder, tensors | {f"extra.{i}": np.zeros(1, np.float32) for i in range(500)} | {"x" * 9000: np.zeros(1)})
    message = refused(folder, "and 461 more")
    assert message.count("extra, not a tensor") == 40


# ---- a tensor in two files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_of_a_tensor_in_two_files_the_one_that_the_index_names_is_read(folder, first, second):
    tensors = tensors_of(folder)
    name, right = "model.norm.weight", tensors["model.norm.weight"]
    other = {name: right + 1, HEAD: tensors.pop(HEAD)}
    places = dict.fromkeys(tensors, f"{first}.safetensors") | {HEAD: f"{second}.safetensors"}
    write_sharded(folder, {f"{first}.safetensors": tensors, f"{second}.safetensors": other}, places)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, params = huggingface.load(folder, dtype="float32")
    np.testing.assert_array_equal(params["norm"]["scale"], right)
    [message] = [str(w.message) for w in caught if name in str(w.message)]
    assert f"{name}: is in a.safetensors and in b.safetensors; {first}.safetensors is read, as {INDEX} says" in message


def test_a_folder_that_is_in_order_loads_without_a_word(folder):
    config, params = huggingface.load(folder, dtype="float32")
    assert config == CONFIG
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))

"""GGUF files of llama.cpp's own package become the models of transformers they were made from; others are refused."""

import copy
import functools
import time

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from gguf_models import SIZES, Contents, contents, write
from tiny_models import quiet, save_checkpoint, torch_and_transformers

from dfc.errors import WeightsError
from dfc.models import fetch, gguf_files, gguf_tokenizer, huggingface, model_folders
from dfc.models.transformer import bind

# Of Llama the output embedding is tied, of Qwen2 it is not; queries, keys and values of Qwen2 have biases.
KINDS = {
    "llama": ("LlamaForCausalLM", "smollm", SIZES | {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", SIZES | {"tie_word_embeddings": False}),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A folder per architecture, drawn by transformers."""
    folders = {name: tmp_path_factory.mktemp(name) for name in KINDS}
    for name, (architecture, _, config) in KINDS.items():
        save_checkpoint(folders[name], architecture, config, 0.2)
    return folders


@pytest.fixture
def written(originals):
    """What llama.cpp's converter writes of an original; to be damaged."""

    @functools.cache
    def of(name, *, quantized=False):
        state = safetensors.numpy.load_file(originals[name] / "model.safetensors")
        return contents(name, KINDS[name][2], state, pre=KINDS[name][1], quantized=quantized)

    return lambda name, **options: copy.deepcopy(of(name, **options))


def converted(file, folder):
    fetch.convert(file, folder, source={})
    return safetensors.numpy.load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", KINDS)
def test_a_converted_model_is_the_one_it_was_made_from(originals, written, tmp_path, name):
    ours = converted(write(tmp_path / "model.gguf", name, written(name)), tmp_path / "model")
    theirs = safetensors.numpy.load_file(originals[name] / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for key, values in ours.items():
        np.testing.assert_array_equal(values, theirs[key], err_msg=key)
    config = model_folders.read_json(tmp_path / "model" / "config.json")
    before = model_folders.read_json(originals[name] / "config.json")
    assert config["rms_norm_eps"] == 1e-5  # not the float32 next to it, 9.999999747378752e-06
    same = ("num_key_value_heads", "rope_parameters", "tie_word_embeddings", "max_position_embeddings", "vocab_size")
    assert {key: config[key] for key in same} == {key: before[key] for key in same}


@pytest.mark.parametrize("name", KINDS)
def test_logits_are_those_of_the_original(originals, written, tmp_path, name):
    converted(write(tmp_path / "model.gguf", name, written(name, quantized=False)), tmp_path / "model")
    oracle, rng = torch_and_transformers(), np.random.default_rng(0)
    tokens = rng.integers(0, SIZES["vocab_size"], (2, 40)).astype(np.int32)
    with quiet(), oracle.torch.no_grad():
        model = oracle.transformers.AutoModelForCausalLM.from_pretrained(originals[name]).eval()
        theirs = model(oracle.torch.from_numpy(tokens).long()).logits.numpy()
    config, params = huggingface.load(tmp_path / "model", dtype="float32")
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)

    @jax.jit
    def logits(params, tokens):
        decoder = bind(config, params)
        return decoder.logits(decoder(tokens, positions, jnp.ones_like(tokens)))

    ours = logits(params, tokens)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_weights_in_few_bits_are_the_numbers_that_transformers_reads(written, tmp_path, name):
    file = write(tmp_path / "model.gguf", name, written(name, quantized=True))
    ours = converted(file, tmp_path / "model")
    oracle = torch_and_transformers()
    with quiet():
        kind = getattr(oracle.transformers, KINDS[name][0])
        theirs = kind.from_pretrained(tmp_path, gguf_file=file.name, dtype=oracle.torch.float32).state_dict()
    for key, values in ours.items():
        np.testing.assert_array_equal(values, theirs[key].numpy(), err_msg=key)


def _with(**fields):
    return lambda made: made.fields.update(
        {
            key.replace("__", "."): (value, getattr(gguf.GGUFValueType, kind) if kind else None)
            for key, (value, kind) in fields.items()
        }
    )


def _without(key):
    return lambda made: made.fields.pop(key)


def _tensor(name, values, kind=gguf.GGMLQuantizationType.F32):
    return lambda made: made.tensors.__setitem__(name, (values, kind))


NORM = np.ones(64, np.float32)
REFUSED = {
    "scaled rotary frequencies": (_tensor("rope_freqs.weight", NORM), r"rope_freqs\.weight: scaled rotary freq"),
    "another scaling": (_with(llama__rope__scaling__type=("linear", "STRING")), r"rope\.scaling\.type: only 'none'"),
    "a factor": (_with(llama__rope__scaling__factor=(4.0, "FLOAT32")), r"llama\.rope\.scaling\.factor: is not comp"),
    "experts": (_with(llama__expert_count=(8, "UINT32")), r"llama\.expert_count: is not computed here, got 8"),
    "something of another program": (_with(split__count=(2, "UINT16")), r"split\.count: is not computed"),
    "part of a rotation": (_with(llama__rope__dimension_count=(8, "UINT32")), r"rope\.dimension_count: only .* 16"),
    "no width": (_without("llama.embedding_length"), r"llama\.embedding_length: expected a positive whole number"),
    "heads per layer": (_with(llama__attention__head_count=([4, 2], "ARRAY")), r"head_count: expected .*\[4, 2\]"),
    "other layers": (_with(llama__block_count=(3, "UINT32")), r"block_count is 3, but .* 2 layers"),
    "layers without end": (_with(llama__block_count=(2**31, "UINT32")), r"block_count: expected .* at most 10000"),
    "a vast vocabulary": (_with(llama__vocab_size=(2**31 - 1, "UINT32")), r"token_embd\.weight: expected shape"),
    "an adapter": (_with(general__type=("adapter", "STRING")), r"general\.type 'model', got 'llama' and 'adapter'"),
    "an unknown tensor": (_tensor("blk.0.attn_q.bias", NORM), r"blk\.0\.attn_q\.bias: unknown tensor"),
    "a missing tensor": (lambda made: made.tensors.pop("blk.1.attn_q.weight"), r"blk\.1\.attn_q\.weight: missing"),
    "another shape": (_tensor("blk.0.ffn_norm.weight", NORM[:32]), r"ffn_norm\.weight: .*\[64\].* got \[32\]"),
    "whole numbers": (
        _tensor("blk.0.ffn_norm.weight", np.ones(64, np.int32), gguf.GGMLQuantizationType.I32),
        r"ffn_norm\.weight: expected one of F32, .* got I32",
    ),
    "not numbers": (_tensor("output_norm.weight", NORM * np.nan), r"output_norm\.weight: holds NaN"),
    "a rule not known": (_with(tokenizer__ggml__pre=("llama-bpe", "STRING")), r"ggml\.pre: .*'smollm' or 'qwen2'"),
    "no rule": (_without("tokenizer.ggml.pre"), r"tokenizer\.ggml\.pre: expected .*got None"),
    "SentencePiece": (_with(tokenizer__ggml__model=("llama", "STRING")), r"ggml\.model: expected 'gpt2', got 'llama'"),
    "an opening token": (_with(tokenizer__ggml__add_bos_token=(True, "BOOL")), r"add_bos_token: only false"),
    "another normalizer": (_with(tokenizer__ggml__precompiled_charsmap=([1], "ARRAY")), r"charsmap: unknown"),
    "no chat template": (_without("tokenizer.chat_template"), r"chat_template: expected .* trained to chat"),
    "no end": (_without("tokenizer.ggml.eos_token_id"), r"eos_token_id: missing"),
    "an end outside": (_with(tokenizer__ggml__eos_token_id=(9999, "UINT32")), r"eos_token_id: expected a token id b"),
    "an odd merge": (_with(tokenizer__ggml__merges=(["h e l"], "ARRAY")), r"merges: expected .* got 'h e l'"),
    "a merge of nothing": (_with(tokenizer__ggml__merges=(["x yz"], "ARRAY")), r"cannot be built: .*out of vocab"),
    "kinds for few": (_with(tokenizer__ggml__token_type=([1, 1], "ARRAY")), r"token_type: expected one of 1, 3, 4, 5"),
    "tokens twice": (_with(tokenizer__ggml__tokens=(["a"] * 3, "ARRAY")), r"tokens: expected different texts, 2"),
    "no tokens": (_without("tokenizer.ggml.tokens"), r"tokens: expected a list of texts, got None"),
    "a template of no use": (_with(tokenizer__chat_template=("{{ bos_token }}", "STRING")), r"chat template"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_converted_is_refused_by_name_and_nothing_is_written(written, tmp_path, case):
    damage, match = REFUSED[case]
    made = written("llama")
    damage(made)
    file = write(tmp_path / "model.gguf", "llama", made)
    with pytest.raises(WeightsError, match=match) as caught:
        fetch.convert(file, tmp_path / "model", source={})
    assert len(str(caught.value)) < 4000
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.gguf"]


def test_another_architecture_is_refused(written, tmp_path):
    made = written("llama")
    with pytest.raises(WeightsError, match=r"general.architecture: expected 'llama' or 'qwen2' .* got 'gemma3'"):
        gguf_files.read(write(tmp_path / "model.gguf", "gemma3", Contents(made.fields, {})))


def _number(value, size=8):
    return value.to_bytes(size, "little")


def _text(text):
    return _number(len(text)) + text


HEAD = b"GGUF" + _number(3, 4)
ARRAY, UINT8 = _number(9, 4), _number(0, 4)
TENSOR = _text(b"output_norm.weight") + _number(1, 4)
HOSTILE = {
    "nothing": b"",
    "another file": b"PK\x03\x04" + b"\0" * 100,
    "another version": b"GGUF" + _number(1, 4) + b"\0" * 100,
    "the other byte order": b"GGUF" + (3).to_bytes(4, "big") + b"\0" * 16,
    "more entries than bytes": HEAD + _number(0) + _number(2**60),
    "more tensors than bytes": HEAD + _number(2**60) + _number(0),
    "an array without end": HEAD + _number(0) + _number(1) + _text(b"a") + ARRAY + UINT8 + _number(2**60) + b"\0" * 9,
    "a text without end": HEAD + _number(0) + _number(1) + _number(2**62) + b"abc",
    "a key twice": HEAD + _number(0) + _number(2) + (_text(b"a") + UINT8 + b"\1") * 2,
    "arrays in arrays": HEAD + _number(0) + _number(1) + _text(b"a") + ARRAY + (ARRAY + _number(1)) * 5000,
    "a kind of number not known": HEAD + _number(0) + _number(1) + _text(b"a") + _number(77, 4) + b"\0" * 8,
    "a key that is no text": HEAD + _number(0) + _number(1) + _text(b"\xff\xfe") + UINT8 + b"\1",
    "dimensions that overflow": HEAD + _number(1) + _number(0) + _text(b"w") + _number(2, 4) + _number(2**33) * 2
    + _number(0, 4) + _number(0) + b"\0" * 64,
    "a place beyond all files": HEAD + _number(1) + _number(0) + TENSOR + _number(4) + _number(0, 4)
    + _number(2**64 - 32) + b"\0" * 64,
    "an alignment of zero": HEAD + _number(0) + _number(1) + _text(b"general.alignment") + _number(4, 4)
    + _number(0, 4),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_ends_in_one_error(tmp_path, case):
    file = tmp_path / "model.gguf"
    file.write_bytes(HOSTILE[case])
    _refused(file)


def _refused(file, match="model.gguf"):
    began = time.thread_time()
    with pytest.raises(WeightsError, match=match) as caught:
        gguf_files.read(file)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()
    assert time.thread_time() - began < 60  # mostly far below 1


def test_entries_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_files, "_MOST_READS", 1000)
    file = tmp_path / "model.gguf"
    file.write_bytes(HEAD + _number(0) + _number(1) + _text(b"a") + ARRAY + UINT8 + _number(5000) + b"\0" * 5000)
    _refused(file, "more than 1,000 entries")


def test_what_is_no_file_is_refused(tmp_path):
    _refused(tmp_path / "model.gguf", "cannot read it")
    (tmp_path / "model.gguf").mkdir()
    _refused(tmp_path / "model.gguf", "expected a regular file")


def test_tensors_that_share_their_bytes_are_refused(tmp_path):
    tensor = _number(1, 4) + _number(1000) + _number(0, 4) + _number(0)
    names = b"".join(_text(f"blk.{layer}.attn_norm.weight".encode()) + tensor for layer in range(100))
    (tmp_path / "model.gguf").write_bytes(HEAD + _number(100) + _number(0) + names + b"\0" * 5000)
    _refused(tmp_path / "model.gguf", "its tensors overlap")


def test_damaged_files_end_in_one_error_or_are_read(written, tmp_path):
    whole = write(tmp_path / "whole.gguf", "llama", written("llama", quantized=True)).read_bytes()
    header, rng, refused = whole.index(b"token_embd.weight"), np.random.default_rng(0), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.integers(0, header + 200, 3):
            damaged[place] = rng.integers(256)
        damaged = damaged[: rng.integers(len(damaged))] if rng.random() < 0.3 else damaged
        (tmp_path / "model.gguf").write_bytes(damaged)
        try:
            model = gguf_files.read(tmp_path / "model.gguf")
            config, _ = gguf_files.config_json(model)
            gguf_tokenizer.tokenizer_files(model.path, model.fields)
            for tensor in gguf_files.tensors(model, config):
                tensor.fetch()
        except WeightsError as error:
            refused += 1
            assert len(str(error)) < 4000  # noqa: PT017 - the type is what the loop asserts
    assert refused > 50

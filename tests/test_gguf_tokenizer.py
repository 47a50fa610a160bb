"""Tokenizers out of GGUF files, against a tokenizer by brute force and transformers' own classes."""

import types
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_models import KINDS, MERGES, SIZES, TOKENS, brute_force_tokens, contents
from tiny_models import torch_and_transformers

from dfc.models import gguf_tokenizer
from dfc.models.chat import ChatTokenizer

PARTS = (
    " ",
    "  ",
    "\n",
    "\n ",
    "\t",
    "\r\n",
    "7",
    "12",
    "½",
    "the",
    "it's",
    "'LL",
    "hello",
    "[",
    "].",
    "é",
    "東",
    "e\u0301",
)


@pytest.fixture
def folder(tmp_path, request):
    """The tokenizer files of a tiny model."""
    made = contents("qwen2", SIZES, {}, pre=request.param)
    fields = {key: value for key, (value, _) in made.fields.items()}
    for name, text in gguf_tokenizer.tokenizer_files(Path("model.gguf"), fields).items():
        (tmp_path / name).write_text(text)
    return types.SimpleNamespace(path=tmp_path, pre=request.param, fields=fields)


EACH = pytest.mark.parametrize("folder", ["smollm", "qwen2"], indirect=True)


def texts(count=300):
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(PARTS, rng.integers(1, 10))) for _ in range(count)]


@EACH
def test_tokens_are_those_of_brute_force(folder):
    tokenizer = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder.path)
    for text in texts():
        composed = text.replace("e\u0301", "é") if folder.pre == "qwen2" else text  # NFC
        assert tokenizer.encode(text) == brute_force_tokens(composed, folder.pre), repr(text)


@pytest.mark.parametrize("folder", ["qwen2"], indirect=True)
def test_qwen2_is_cut_as_by_its_class_in_transformers(folder):
    transformers = torch_and_transformers().transformers
    vocabulary = {token: index for index, token in enumerate(TOKENS)}
    theirs = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in MERGES])
    ours = transformers.AutoTokenizer.from_pretrained(folder.path)
    for text in texts():
        assert ours.encode(text) == theirs.encode(text), repr(text)


@pytest.mark.parametrize("folder", ["smollm"], indirect=True)
def test_white_space_before_a_digit_belongs_to_no_digit(folder):
    tokenizer = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder.path)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("a  12")) == ["a", "ĠĠ", "1", "2"]  # not Ġ, Ġ1, and no 12
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("   7")) == ["ĠĠĠ", "7"]


@EACH
def test_special_tokens_stay_what_they_are(folder):
    tokenizer = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder.path)
    assert tokenizer.encode("<|im_start|>a<tool><|im_end|>[PAD]") == [
        TOKENS.index("<|im_start|>"),
        TOKENS.index("a"),
        TOKENS.index("<tool>"),
        TOKENS.index("<|im_end|>"),
        *map(TOKENS.index, "[PAD]"),  # fills a row of the weights, and is no text
    ]
    assert tokenizer.decode([TOKENS.index("[PAD]")]) == ""
    assert tokenizer.decode(tokenizer.encode("a<tool><|im_end|>"), skip_special_tokens=True) == "a<tool>"
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (TOKENS[1], TOKENS[2], TOKENS[2])


@EACH
def test_a_conversation_has_the_tokens_of_its_template(folder):
    tokenizer = ChatTokenizer.load(folder.path)
    prompt = tokenizer.first_turn("the  12")
    oracle = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder.path)
    messages = [{"role": "user", "content": "the  12"}]
    assert prompt == oracle.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert tokenizer.end_token_ids == (2,)


def test_each_end_of_a_reply_is_written():
    fields = {key: value for key, (value, _) in contents("qwen2", SIZES, {}, pre="qwen2").fields.items()}
    fields["tokenizer.ggml.eot_token_id"] = 0
    written = gguf_tokenizer.tokenizer_files(Path("model.gguf"), fields)
    assert '"eos_token_id": [\n    2,\n    0\n  ]' in written["generation_config.json"]


def test_kinds_of_tokens_are_those_of_the_package():
    assert [gguf.TokenType(kind).name for kind in sorted(set(KINDS))] == ["NORMAL", "CONTROL", "USER_DEFINED", "UNUSED"]

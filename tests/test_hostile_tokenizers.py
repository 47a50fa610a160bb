"""Tokenizer files of strangers: one WeightsError each, within seconds; none of their code runs."""

import base64
import io
import json
import os
import shutil
import sys

import hostile_folders
import pytest
from hostile_folders import GOOD, refused
from transformers import PreTrainedTokenizerFast

from dfc.models import tokenizer_files
from dfc.models.chat import ChatTokenizer

folder = hostile_folders.folder  # the fixture

NESTED = "[" * 200_000
JUNK = ["", "{", "garbage", "[]", "5", '"text"', "null", NESTED, '{"a":' * 100_000, "\x00\xff"]


@pytest.mark.parametrize("text", [*JUNK, "{}", '{"version": "1.0", "model": {"type": "Nothing"}}'])
def test_a_tokenizer_that_is_none_is_one_error(folder, text):
    (folder / "tokenizer.json").write_text(text, encoding="latin-1")
    refused(lambda: ChatTokenizer.load(folder), f"{folder}: its tokenizer cannot be ")


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}},
        {"added_tokens": "x"},
        {"decoder": {"type": "nothing"}},
    ],
)
def test_a_tokenizer_with_a_part_that_is_wrong_is_one_error(folder, change):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    refused(lambda: ChatTokenizer.load(folder), f"{folder}: ")


@pytest.mark.parametrize("text", JUNK)
@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "config.json"])
def test_settings_that_are_no_json_object_are_one_error(folder, name, text):
    (folder / name).write_text(text, encoding="latin-1")
    refused(lambda: ChatTokenizer.load(folder), f"{folder}")


@pytest.mark.parametrize(
    "config",
    [
        {"chat_template": 5},
        {"chat_template": ["x"]},
        {"chat_template": [{"name": "tools", "template": "x"}]},
        {"added_tokens_decoder": "x"},
        {"added_tokens_decoder": {"x": {"content": 5}}},
    ],
)
def test_settings_of_a_tokenizer_that_are_of_the_wrong_kind_are_one_error(folder, config):
    (folder / "chat_template.jinja").unlink()
    given = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": GOOD} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(given))
    refused(lambda: ChatTokenizer.load(folder), f"{folder}")


@pytest.mark.parametrize("value", ["2", True, 2.0, [2, "3"], [[2]], {"a": 2}, -1, 2**40, [None]])
def test_end_ids_that_are_none_are_refused(folder, value):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    refused(lambda: ChatTokenizer.load(folder), "generation_config.json: eos_token_id: expected a token id or a list")


@pytest.mark.parametrize("value", ["2", True, 2.5, [2], -1])
def test_a_vocabulary_that_is_no_number_is_refused(folder, value):
    (folder / "config.json").write_text(json.dumps({"vocab_size": value}))
    refused(lambda: ChatTokenizer.load(folder), "config.json: vocab_size: expected a number of tokens")


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json", "generation_config.json"]
)
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    refused(lambda: ChatTokenizer.load(folder), f"{folder / name}.*expected a regular file")


def test_a_file_beyond_all_bounds_is_not_read(folder):
    with (folder / "tokenizer.json").open("r+b") as handle:
        handle.truncate(2**30)  # a hole: it takes no room on the disk
    refused(lambda: ChatTokenizer.load(folder), "tokenizer.json: expected at most")


def test_a_pattern_that_gives_up_on_a_text_is_one_error_when_that_text_comes(folder, capfd):
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    data["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [part for part in (split, data["pre_tokenizer"]) if part],
    }
    path.write_text(json.dumps(data))
    loaded = ChatTokenizer.load(folder)
    refused(lambda: loaded.first_turn("x" * 60), f"{folder}: its tokenizer fails on a text of .* characters")
    refused(lambda: loaded.encode_reply("x" * 60), f"{folder}: its tokenizer fails on a text of")
    assert loaded.encode_reply("[4]")  # others go on
    assert "panicked" in capfd.readouterr().err  # guard of this test: the library's own words


def change_tokenizer(path, change):
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | change(data)))


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


DOUBLES = replace({"String": "i"}, "ii")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CHARSMAP = base64.b64encode((4).to_bytes(4, "little") + bytes(4) + b"a\0" + b"i" * 1000 + b"\0").decode()
BOMBS = {
    "doubling": ("normalizer", [DOUBLES] * 24),
    "doubling by an expression": ("normalizer", [replace({"Regex": "i"}, "ii")] * 24),
    "one that matches nothing": ("normalizer", [replace({"Regex": ""}, "i")] * 24),
    "an empty string": ("normalizer", [replace({"String": ""}, "i")] * 24),
    "a nested one": ("normalizer", [{"type": "Sequence", "normalizers": [DOUBLES] * 4}] * 6),
    "a long one": ("normalizer", [replace({"String": "i"}, "i" * 100_000)]),
    "many steps": ("normalizer", [{"type": "Lowercase"}] * 65),
    "a long beginning": ("normalizer", [{"type": "Prepend", "prepend": "i" * 100_000}]),
    "a table": ("normalizer", [{"type": "Precompiled", "precompiled_charsmap": CHARSMAP}]),
    "a table without end": ("normalizer", [{"type": "Precompiled", "precompiled_charsmap": "A" * (4 * 2**20 + 4)}]),
    "a field of another step": (
        "normalizer",
        [replace({"String": "i"}, "") | {"type": "Prepend", "prepend": "i" * 65}],
    ),
    "pieces": (
        "pretokenizers",
        [{"type": "Metaspace", "replacement": c, "prepend_scheme": "always"} for c in "_#" * 9],
    ),
    "empty ends of words": ("decoders", [{"type": "BPEDecoder", "suffix": ""}] * 24),
    "bytes of bytes": ("pretokenizers", [BYTES] * 24),
    "many processors": ("processors", [BYTES] * 65),
    "a decoder": ("decoders", [DOUBLES] * 24),
}
PLACES = {"pretokenizers": "pre_tokenizer", "processors": "post_processor", "decoders": "decoder"}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_tokenizer_that_lengthens_texts_without_bound_is_refused_before_it_runs(folder, monkeypatch, kind):
    name, steps = BOMBS[kind]
    place = PLACES.get(name, name)
    inner = "normalizers" if name == "normalizer" else name
    change_tokenizer(folder / "tokenizer.json", lambda _: {place: {"type": "Sequence", inner: steps}})
    monkeypatch.setattr(PreTrainedTokenizerFast, "from_pretrained", None)  # not called
    refused(lambda: ChatTokenizer.load(folder), f"{folder}/tokenizer.json: .*expected at most 64 steps")


def test_a_second_tokenizer_for_another_version_is_looked_at_too(folder):
    shutil.copy(folder / "tokenizer.json", folder / "tokenizer.4.0.0.json")
    change_tokenizer(
        folder / "tokenizer.4.0.0.json", lambda _: {"normalizer": {"type": "Sequence", "normalizers": [DOUBLES] * 24}}
    )
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["fast_tokenizer_files"] = ["tokenizer.4.0.0.json"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    refused(lambda: ChatTokenizer.load(folder), "tokenizer.4.0.0.json: .*expected at most 64 steps")


@pytest.mark.parametrize(
    "change",
    [
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace({"String": " "}, "\u2581")],
            },
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    replace({"String": "\u2581"}, " "),
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
        },  # Llama 2, Mistral
        {"normalizer": replace({"String": " "}, "\u2581")},  # Gemma
        {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated", "invert": False},
                    BYTES,
                ],
            },
            "post_processor": BYTES,
            "decoder": BYTES,
        },  # Qwen
        {
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES],
            },
        },  # SmolLM
        {"normalizer": {"type": "Sequence", "normalizers": [replace({"Regex": " {2,}"}, " "), DOUBLES]}},
    ],
)
def test_the_steps_of_released_tokenizers_pass(folder, change):
    change_tokenizer(folder / "tokenizer.json", lambda _: change)
    tokenizer_files.refuse_growth(folder / "tokenizer.json")


def add_token(folder, content, special):
    size = ChatTokenizer.load(folder).vocabulary
    token = {"id": size, "content": content, "special": special}
    change_tokenizer(
        folder / "tokenizer.json",
        lambda data: {"added_tokens": [*data["added_tokens"], data["added_tokens"][0] | token]},
    )
    (folder / "config.json").write_text(json.dumps({"vocab_size": size}))
    return size


def test_a_special_token_beyond_the_model_that_nothing_yields_passes(folder):
    size = add_token(folder, "<image_soft_token>", special=True)
    loaded = ChatTokenizer.load(folder)
    assert loaded.vocabulary == size + 1
    text = "<image_soft_token>[4]"
    token_ids = [*loaded.first_turn(text), *loaded.encode_reply(text), *loaded.next_turn(text, closed=False)]
    assert max([*token_ids, *loaded.stop_token_ids(["]", "<", "image"])]) < size


def test_a_token_beyond_the_model_that_a_text_can_yield_is_refused(folder):
    add_token(folder, "<think>", special=False)
    refused(lambda: ChatTokenizer.load(folder), "the tokenizer belongs to another model")


def test_a_special_token_beyond_the_model_that_the_template_writes_is_refused(folder):
    add_token(folder, "<start>", special=True)
    (folder / "chat_template.jinja").write_text("<start>" + GOOD)
    refused(lambda: ChatTokenizer.load(folder), "the tokenizer belongs to another model")


def test_an_end_of_a_reply_beyond_the_model_is_refused(folder):
    size = add_token(folder, "<stop>", special=True)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [size]}))
    refused(lambda: ChatTokenizer.load(folder), "the tokenizer belongs to another model")


EVIL = """
import pathlib
pathlib.Path({marker!r}).write_text("ran")
from transformers import PreTrainedTokenizerFast
class Evil(PreTrainedTokenizerFast):
    pass
"""


@pytest.mark.parametrize("files", [("tokenizer.model",), ("vocab.json", "merges.txt"), ("tokenizer.json",)])
def test_code_of_a_folder_never_runs_whatever_is_typed(folder, monkeypatch, files):
    marker = folder / "marker"
    (folder / "evil.py").write_text(EVIL.format(marker=str(marker)))
    tokenizer = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").unlink()
    for name in files:
        (folder / name).write_text(tokenizer if name == "tokenizer.json" else "{}")
    named = {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "tokenizer_class": "Evil"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "evil.Evil"}, "model_type": "evil"}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\ny\ny\n"))
    if files == ("tokenizer.json",):
        ChatTokenizer.load(folder)
    else:
        refused(lambda: ChatTokenizer.load(folder), f"{folder}: .*(code of its own|cannot be read)")
    assert not marker.exists()

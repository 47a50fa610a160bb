"""Tokenizer files and chat templates of strangers: one WeightsError each, within seconds; none of their code runs."""

import base64
import io
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from dfc.errors import WeightsError
from dfc.games import registry
from dfc.launch import play
from dfc.models import chat, chat_template
from dfc.models.chat import ChatTokenizer
from dfc.rollout import terminal_model
from dfc.rollout.workers import load_tokenizer

TINY = Path(__file__).resolve().parents[1] / "models" / "tiny_player"
GOOD = (TINY / "chat_template.jinja").read_text()
BIG = "{%- for i in range(99999) %}"
END = "{%- endfor %}"


@pytest.fixture
def folder(tmp_path):
    """The tokenizer of the bundled model, to be damaged."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        shutil.copy(TINY / name, tmp_path / name)
    return tmp_path


def refused(call, match):
    """Asserts on one message of a bounded length, in seconds."""
    began = time.monotonic()
    with pytest.raises(WeightsError, match=match) as caught:
        call()
    assert len(str(caught.value)) < 1500
    assert time.monotonic() - began < 60  # of a machine that does other things; mostly far below 1
    return str(caught.value)


# ---- chat templates -----------------------------------------------------------------------------------------------


def read(template, folder):
    with chat_template.rendering(template, {"bos_token": "<s>", "eos_token": "</s>"}, None, folder) as render:
        return chat_template.read(render, folder)


RAISING = {
    "TypeError": "{{ 'a' + 1 }}",
    "ZeroDivisionError": "{{ 1 // 0 }}",
    "OverflowError": "{{ range(10 ** 9) | list }}",
    "a float's OverflowError": "{{ 10.0 ** 1000 }}",
    "include": "{% include 'x' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "RecursionError": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "an unsafe attribute": "{{ ''.__class__.__mro__ }}",
    "undefined": "{{ nothing.at.all }}",
    "its own": "{{ raise_exception('no \x1b[2J' ~ 'x' * 100000) }}",
    "no Jinja": "{% for %}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a filter that is none": "{{ 1 | nothing }}",
}
GROWING = {
    "a string of a gigabyte": "{{ 'a' * 10 ** 9 }}",
    "a string of two megabytes": "{{ 'a' * 2000000 }}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "a width": "{{ '%1000000000d' % 1 }}",
    "a filter's width": "{{ 'a' | center(2000000000) }}",
    "a list": "{{ ([0] * 10 ** 9) | length }}",
}
LASTING = {
    "nested loops": BIG + BIG + "{%- set x = i %}" + END + END,
    "one operation": "{{ (messages | length + 6) ** (10 ** 8) % 7 }}",
}


@pytest.mark.parametrize("kind", RAISING | GROWING)
def test_a_template_that_raises_anything_or_grows_beyond_bounds_is_refused(tmp_path, kind):
    template = (RAISING | GROWING)[kind] + GOOD
    message = refused(lambda: read(template, tmp_path), f"{tmp_path}: the chat template cannot be used")
    assert message.isprintable()


@pytest.mark.parametrize("kind", LASTING)
def test_a_template_that_does_not_end_is_refused_in_any_thread(tmp_path, kind):
    found = []
    template = LASTING[kind] + GOOD
    work = threading.Thread(target=lambda: found.append(refused(lambda: read(template, tmp_path), "within 2 seconds")))
    work.start()
    work.join()
    assert len(found) == 1


def test_a_template_that_lasts_for_some_conversations_only_is_refused(tmp_path):
    """Refusing the role of the system is no fault; never coming to an end there is one."""
    guard = "{%- if messages[0]['role'] == 'system' %}" + LASTING["nested loops"] + "{%- endif %}"
    refused(lambda: read(guard + GOOD, tmp_path), "within 2 seconds")


def test_a_template_that_fails_on_a_system_message_takes_none(tmp_path):
    guard = "{%- if messages[0]['role'] == 'system' %}{{ 1 + 'a' }}{%- endif %}"
    parts = read(guard + GOOD, tmp_path)
    assert parts.system is None
    assert parts.foldable


def test_a_template_sees_no_variable_of_the_environment_and_leaves_no_process(tmp_path, monkeypatch):
    started = []
    popen = chat_template.subprocess.Popen
    monkeypatch.setattr(
        chat_template.subprocess,
        "Popen",
        lambda *args, **kw: started.append((popen(*args, **kw), kw)) or started[-1][0],
    )
    monkeypatch.setenv("SECRET_KEY", "sk-1")
    read(GOOD, tmp_path)
    with pytest.raises(WeightsError):
        read("{{ 1 // 0 }}", tmp_path)
    assert len(started) == 2
    for process, options in started:
        assert process.poll() is not None
        assert "SECRET_KEY" not in options["env"]


def test_an_interpreter_that_cannot_render_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    refused(lambda: read(GOOD, tmp_path), "/bin/false ended with status 1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    refused(lambda: read(GOOD, tmp_path), "cannot start")


@pytest.mark.parametrize(
    "template", [RAISING["TypeError"], GROWING["doubling"], "{% generation %}x{% endgeneration %}"]
)
def test_a_folder_with_such_a_template_is_refused(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    refused(lambda: ChatTokenizer.load(folder), f"{folder}: the chat template cannot be used")


def test_the_tag_that_marks_replies_for_training_changes_nothing(folder):
    before = ChatTokenizer.load(folder)
    marked = GOOD.replace(
        "{{- message['content'] + '<|end|>' -}}",
        "{%- generation -%}{{- message['content'] + '<|end|>' -}}{%- endgeneration -%}",
    )
    assert marked != GOOD
    (folder / "chat_template.jinja").write_text(marked)
    after = ChatTokenizer.load(folder)
    assert after.next_turn("[4]", closed=False) == before.next_turn("[4]", closed=False)


# ---- tokenizer files ----------------------------------------------------------------------------------------------

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
    chat._refuse_growth(folder / "tokenizer.json")


# ---- ids beyond the model -----------------------------------------------------------------------------------------


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


# ---- code of the folder -------------------------------------------------------------------------------------------

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


# ---- what a person is told ----------------------------------------------------------------------------------------


def test_a_departure_is_printed_once(folder, capsys):
    drops = GOOD.replace(
        "message['content'] + '<|end|>'",
        "(message['content'] if loop.last else message['content'].split('</think>\\n\\n')[-1]) + '<|end|>'",
    )
    assert drops != GOOD
    (folder / "chat_template.jinja").write_text(drops)
    expected = ChatTokenizer.load(folder).departure
    assert "leaves out the thoughts" in expected
    for _ in range(2):
        load_tokenizer(folder)
    assert capsys.readouterr().out == f"{folder}: {expected}\n"


def test_nothing_is_printed_where_nothing_departs(folder, capsys):
    load_tokenizer(folder)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("simulator", [False, True])
def test_a_departure_is_printed_before_a_person_plays(monkeypatch, simulator):
    class Loaded:
        def __init__(self, *_, **__):
            self.departure = "The chat template leaves something out."

    monkeypatch.setattr(terminal_model, "LocalPlayer", Loaded)
    out = io.StringIO()
    play._player("folder", registry.make("Nim-v0"), None, out=out, simulator=simulator)
    assert out.getvalue() == "loading folder ...\nfolder: The chat template leaves something out.\n"

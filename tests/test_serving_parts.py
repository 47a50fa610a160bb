"""What a request may hold, what is made of a reply, who may ask: without a server."""

import importlib
import importlib.util
import json
import random
import shutil
import sys

import jax
import pytest
import serving_clients

import dfc.tools.serving
from dfc.config import SamplingConfig, ServingConfig
from dfc.errors import ConfigError
from dfc.inference.engine import Engine
from dfc.inference.protocol import EngineReply
from dfc.launch import serve
from dfc.models import huggingface
from dfc.players.key_search import Secret
from dfc.players.player_specs import WeightsSource
from dfc.tools.serving import gate, requests, responses, server
from dfc.tools.serving.requests import RequestError

HELLO = {"role": "user", "content": "Hello"}
TINY = huggingface.resolve("tiny_player")


def parse(**fields):
    return requests.parse(json.dumps({"model": "m", "messages": [HELLO], **fields}).encode())


def test_every_field_is_read():
    found = parse(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
            {"role": "assistant", "content": "Yes.", "refusal": None, "tool_calls": None, "annotations": []},
            HELLO,
        ],
        max_completion_tokens=5,
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        seed=-1,
        stop="x",
        n=3,
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
        user="somebody",
        tools=[],
        top_logprobs=0,
        presence_penalty=0,
        response_format={"type": "text"},
    )
    assert (found.system, found.turns) == ("Be brief.", (("Hello", "Yes."), ("Hello", None)))
    assert found.sampling == SamplingConfig(temperature=0.5, top_p=0.9, top_k=7, min_p=0.1)
    assert (found.seed, found.stop, found.n, found.max_tokens) == ((1 << 64) - 1, ("x",), 3, 5)
    assert (found.logprobs, found.stream, found.usage) == (True, True, True)
    assert requests.characters(found) == len("Be brief.HelloYes.Hello")
    assert parse(seed=3).seed == 3
    assert parse(max_tokens=4).max_tokens == 4
    assert parse().sampling == SamplingConfig()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{}]}, "tools"),
        ({"functions": [{}]}, "functions"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"frequency_penalty": -1}, "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"store": True}, "store"),
        ({"best_of": 2}, "best_of"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"min_tokens": False}, "min_tokens"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"stop_token_ids": [2]}, "stop_token_ids"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"priority": 1}, "priority"),
        ({"top_k": -2}, "top_k"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [HELLO | {"name": "Ann"}]}, "messages[0].name"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [HELLO | {"content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [HELLO | {"content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"model": ""}, "model"),
        ({"stop": ["\ufffd"]}, "stop[0]"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"n": True}, "n"),
        ({"seed": 1 << 63}, "seed"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        ({"stream": True, "stream_options": {"more": 1}}, "stream_options.more"),
        (
            {"messages": [HELLO, {"role": "assistant", "content": "a", "reasoning": "b"}, HELLO]},
            "messages[1].reasoning",
        ),
    ],
    ids=str,
)
def test_what_would_change_the_answer_is_refused_by_name(fields, param):
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param.split("[")[0] in caught.value.message


# What a client of vLLM sends that writes down every default, as its documentation of the extra parameters has them.
NULLS = (
    "truncate_prompt_tokens", "truncation_side", "prompt_logprobs", "logprob_token_ids", "allowed_token_ids",
    "documents", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs",
    "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "guided_decoding_backend", "guided_whitespace_pattern", "logits_processors", "return_tokens_as_token_ids",
    "return_token_ids", "cache_salt", "kv_transfer_params", "vllm_xargs", "thinking_token_budget",
    "repetition_detection", "reasoning_effort", "stream_interval", "watermarking", "logit_bias", "tools",
)  # fmt: skip
OFF = ("use_beam_search", "early_stopping", "include_stop_str_in_output", "ignore_eos", "echo", "add_special_tokens")
ON = ("skip_special_tokens", "spaces_between_special_tokens", "add_generation_prompt", "include_reasoning")
NUMBERS = {"best_of": 1, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "length_penalty": 1.0, "min_tokens": 0}
WRITTEN_DOWN = {
    **dict.fromkeys(NULLS),
    **dict.fromkeys((*OFF, "continue_final_message"), False),
    **dict.fromkeys((*ON, "parallel_tool_calls"), True),
    **{name: [] for name in ("stop_token_ids", "bad_words", "stop")},
    **dict.fromkeys(("priority", "top_logprobs"), 0),
    **NUMBERS,
    "tool_choice": "none",
    "session_id": "s",
}


def test_the_written_down_defaults_of_vllm_change_nothing():
    assert parse(**WRITTEN_DOWN) == parse()
    options = {"include_usage": True, "continuous_usage_stats": False}
    assert parse(stream=True, stream_options=options).usage
    answered = {"role": "assistant", "content": "Yes.", "reasoning": None, "reasoning_content": None, "tool_calls": []}
    assert parse(messages=[HELLO, answered, HELLO]).turns[0] == ("Hello", "Yes.")


def test_a_refusal_says_which_value_passes_and_why_no_other_does():
    with pytest.raises(RequestError) as caught:
        parse(min_tokens=5)
    assert caught.value.code == "unsupported_parameter"
    assert caught.value.message.startswith("min_tokens: expected null or 0, got 5; a reply ends with ")


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"temperature": 2.5}, "invalid_value", "temperature: input should be less than or equal to 2, got 2.5"),
        ({"temperature": True}, "invalid_value", "temperature: input should be a valid number, got True"),
        ({"temperature": 10**400}, "invalid_value", "temperature: input should be a valid number, got 1000"),
        ({"n": 2.0}, "invalid_value", "n: input should be a valid integer, got 2.0"),
        ({"seed": -(1 << 63) - 1}, "invalid_value", "seed: input should be greater than or equal to -9223372036854775"),
        ({"stop": "x" * 257}, "invalid_value", "stop[0]: string should have at most 256 characters, got 'xxx"),
        ({"stop": ["a"] * 5}, "invalid_value", "stop: list should have at most 4 items"),
        ({"messages": []}, "invalid_value", "messages: list should have at least 1 item"),
        ({"messages": None}, "invalid_value", "messages: field required"),
        ({"messages": ["Hello"]}, "invalid_value", "messages[0]: expected an object, got 'Hello'"),
        ({"messages": [{"role": "user"}]}, "invalid_value", "messages[0].content: field required"),
        (
            {"messages": [HELLO | {"content": 7}]},
            "invalid_value",
            "messages[0].content: input should be a valid string",
        ),
        (
            {"messages": [HELLO | {"content": [{"type": "text", "text": "a\ud800"}]}]},
            "invalid_value",
            "messages[0].content[0].text: expected text, got half of a surrogate pair",
        ),
        (
            {"messages": [HELLO | {"content": [{"type": "text", "text": "a", "cache_control": {}}]}]},
            "unsupported_parameter",
            "messages[0].content[0].cache_control: not supported here, and it could change the answer; leave it out",
        ),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "invalid_value", "max_tokens: expected the same as max_compl"),
        ({"stream": True, "stream_options": 7}, "invalid_value", "stream_options: expected an object, got 7"),
        ({"stream_options": {}}, "invalid_value", "stream_options: expected nothing unless stream is true"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_place_what_is_expected_and_what_came(fields, code, message):
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    assert (caught.value.status, caught.value.code) == (400, code)
    assert caught.value.message.startswith(message)
    assert caught.value.param == message.partition(":")[0]
    assert len(caught.value.message) < 500


def test_tokens_are_those_of_the_conversation_and_leave_room_or_are_refused():
    tokenizer = serving_clients.tokenizer()
    request = parse(messages=[HELLO, {"role": "assistant", "content": "[4]"}, HELLO], max_tokens=3)
    found = requests.token_ids(request, tokenizer)
    first, reply = tokenizer.first_turn("Hello"), tokenizer.encode_reply("[4]")
    assert found == [*first, *reply, *tokenizer.next_turn("Hello", closed=False)]
    assert requests.room(request, 10, 100) == 3
    assert requests.room(request, 98, 100) == 2
    assert requests.room(parse(), 10, 100) == 90
    with pytest.raises(RequestError) as caught:
        requests.room(request, 100, 100)
    assert caught.value.code == "context_length_exceeded"


# ---- replies --------------------------------------------------------------------------------------------------------


class Spelling:
    """A tokenizer whose tokens are the bytes of UTF-8, as of models on bytes; 256 ends a reply, 257 is special."""

    end_token_ids = (256,)
    vocabulary = 258

    def decode(self, token_ids):
        return bytes(t for t in token_ids if t < 256).decode("utf-8", "replace")


class Falling(Spelling):
    """The same as decoders do that fall back to bytes: a run that is no UTF-8 is no text at all."""

    def decode(self, token_ids):
        found = bytes(t for t in token_ids if t < 256)
        try:
            return found.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(found)


def reply(token_ids, *, stopped=False):
    count = len(token_ids)
    return EngineReply(0, list(token_ids), [-0.5] * count, [-1.0] * count, [0] * count, stopped)


@pytest.mark.parametrize("kind", [Spelling, Falling])
@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two", (), "one two"),
        ("one two", ("two",), "one "),
        ("one tw", ("tx", "w", "two"), "one t"),
        ("ttttwo", ("two",), "ttt"),
        ("gr\u00fc\u00dfe \U0001f600!", (), "gr\u00fc\u00dfe \U0001f600!"),
        ("gr\u00fc\u00dfe", ("\u00dfe",), "gr\u00fc"),
    ],
)
def test_the_text_grows_to_what_the_whole_has(kind, text, stop, expected):
    tokenizer = kind()
    held = responses.revocable(tokenizer)
    assert bool(held) == (kind is Falling)
    token_ids = [*text.encode(), 256]
    growing, said = responses.ReplyText(tokenizer, stop, held), []
    for count in range(1, len(token_ids)):
        said.append(growing.more(reply(token_ids[:count]), whole=False))
        assert expected.startswith("".join(said))
    said.append(growing.more(reply(token_ids, stopped=True), whole=True))
    assert "".join(said) == expected
    assert "\ufffd" not in expected


def test_bytes_that_turn_out_to_be_no_text_were_not_sent():
    tokenizer = Falling()
    growing = responses.ReplyText(tokenizer, (), responses.revocable(tokenizer))
    assert growing.more(reply(b"0"), whole=False) == ""
    assert growing.more(reply([*b"0", 257]), whole=False) == ""  # a special token parts no bytes
    assert growing.more(reply([*b"0", 257, *"\u00fc".encode()]), whole=False) == ""  # nor is this a character yet
    assert growing.more(reply([*b"0", 257, *"\u00fc".encode(), 255]), whole=True) == "\ufffd" * 4


@pytest.mark.parametrize("seed", range(3))
def test_random_tokens_of_the_bundled_model_stream_to_their_whole_text(seed):
    tokenizer, rng = serving_clients.tokenizer(), random.Random(seed)
    held = responses.revocable(tokenizer)
    likely = sorted(held)  # bytes and special tokens
    for _ in range(1000):
        drawn = [rng.choice(likely) if rng.random() < 0.6 else rng.randrange(793) for _ in range(rng.randrange(1, 12))]
        token_ids = [token_id for token_id in drawn if token_id not in tokenizer.end_token_ids]
        growing = responses.ReplyText(tokenizer, (), held)
        said = [growing.more(reply(token_ids[:count]), whole=False) for count in range(1, len(token_ids))]
        assert "".join([*said, growing.more(reply(token_ids), whole=True)]) == tokenizer.decode(token_ids)


def test_log_probabilities_name_what_each_token_spells():
    token_ids = [*"a\u00fc".encode(), 256]
    found = responses.logprobs(reply(token_ids, stopped=True), Spelling())["content"]
    assert [entry["bytes"] for entry in found][:2] == [[97], None]
    assert found[0] == {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
    assert len(found) == 3
    assert len(responses.logprobs(reply(token_ids), Spelling(), 2)["content"]) == 1


# ---- who may ask ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),  # noqa: S104 - what is refused
        ("::", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_an_address_that_others_reach_needs_a_key(host, loopback):
    assert gate.is_loopback(host) == loopback
    gate.check_address(host, Secret("key"))
    if loopback:
        gate.check_address(host, Secret(""))
    else:
        with pytest.raises(ConfigError, match="a key is needed"):
            gate.check_address(host, Secret(""))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "starlette" else find(name))
    with pytest.raises(ImportError, match=r"needs starlette: /.* -m pip install 'dfc\[serve\]'"):
        importlib.reload(dfc.tools.serving)
    monkeypatch.undo()
    importlib.reload(dfc.tools.serving)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--policy=tiny_player", "--host=0.0.0.0"], "a key is needed"),
        (["--policy=tiny_player", "--key_variable=NOT_SET_4711"], "NOT_SET_4711 is not set"),
        (["--policy=tiny_player", "--key_variable=sk-abcdefghijklmnopqrst1234"], "and not the key itself"),
        (["--policy=tiny_player", "--slots=0"], "--slots=0: must be at least 1"),
        (["--policy=tiny_player", "--deadline=nan"], "--deadline"),
        (["--policy=nothing_there", "--port=0"], "no such folder"),
        (
            ["--policy=tiny_player", "--host=127.0.0.1", "--port=70000"],
            "--port=70000: must be at least 0 and at most 65,535",
        ),
        (["--policy=http://127.0.0.1:1/v1#m", "--port=0"], "an endpoint serves itself"),
    ],
)
def test_a_wrong_command_line_is_said_before_anything_is_loaded(words, expected, capsys):
    assert serve.main(words) == 2
    printed = capsys.readouterr()
    assert expected in printed.err
    assert "abcdefghijkl" not in printed.err


def test_a_missing_folder_is_named_before_the_server_is_imported_and_no_endpoint_is_offered(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "dfc.tools.serving.server", None)  # an import of it raises
    monkeypatch.delattr("dfc.tools.serving.server", raising=False)
    assert serve.main(["--policy=nothing_there"]) == 2
    said = capsys.readouterr().err
    assert "'nothing_there': no such folder" in said
    assert said.rstrip().endswith("it must be tiny_player or a folder with weights or a run")
    assert serve.main(["--policy=localhost:8000"]) == 2
    assert "http" not in capsys.readouterr().err


def test_every_setting_has_a_flag_with_its_meaning(capsys):
    with pytest.raises(SystemExit):
        serve.main(["--help"])
    shown = capsys.readouterr().out
    for name in ServingConfig.__dataclass_fields__:
        assert f"--{name} " in shown


@pytest.mark.parametrize(
    ("backend", "named", "held"),
    [
        ("gpu", {"dtype": "bfloat16"}, "bfloat16"),
        ("tpu", {"dtype": None, "torch_dtype": "bfloat16"}, "bfloat16"),
        ("gpu", {"torch_dtype": "float16"}, "bfloat16"),
        ("gpu", {"dtype": "float32", "torch_dtype": "bfloat16"}, "float32"),
        ("gpu", {}, "float32"),
        ("cpu", {"dtype": "bfloat16"}, "float32"),
    ],
)
def test_weights_and_cache_are_of_the_models_own_type_but_on_a_cpu(monkeypatch, tmp_path, backend, named, held):
    folder = shutil.copytree(TINY, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in ("dtype", "torch_dtype")}
    (folder / "config.json").write_text(json.dumps(kept | named))
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(Engine, "warm_up", lambda _: 0)
    engine = server.load(str(folder), ServingConfig(slots=1, max_length=64)).engine
    for arrays in (engine._policies["policy"].weights, engine._cache):
        assert {leaf.dtype.name for leaf in jax.tree.leaves(arrays)} == {held}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_run_without_a_policy_yet_is_served_in_the_type_it_trains_in(monkeypatch, tmp_path, dtype):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    model = shutil.copytree(TINY, tmp_path / "model")
    other = {"bfloat16": "float32", "float32": "bfloat16"}[dtype]
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"dtype": other, "torch_dtype": other}))
    run = {"model": {"path": str(model), "dtype": dtype}}
    assert server._own_type(WeightsSource(str(model), tmp_path, run)) == dtype


def test_the_type_of_a_model_that_reads_images_is_that_of_its_text(monkeypatch, tmp_path):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"torch_dtype": "bfloat16"}}))
    assert server._own_type(WeightsSource(str(tmp_path))) == "bfloat16"

"""Chat rendering of every family against `apply_chat_template`."""

import dataclasses
import inspect
import itertools
import json

import hypothesis
import pytest
import tokenizers
import transformers
from chat_families import CORPUS, EMPTY_BLOCK, FAMILIES, QWEN3, THINK, appended, rows, whole, write
from hypothesis import strategies

from dfc.errors import WeightsError
from dfc.models.chat import ChatTokenizer

every_family = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("families")
    for name, family in FAMILIES.items():
        write(root / name, family)
    return root


@pytest.fixture(scope="module")
def loaded(folders):
    return {name: ChatTokenizer.load(folders / name) for name in FAMILIES}


@pytest.fixture(scope="module")
def oracles(folders):
    kind = transformers.PreTrainedTokenizerFast
    return {name: kind.from_pretrained(str(folders / name), local_files_only=True) for name in FAMILIES}


# ---- whole conversations --------------------------------------------------------------------------------------

TEXT = strategies.text(strategies.characters(codec="utf-8"), max_size=20) | strategies.sampled_from(CORPUS[:2])
CONTENT = TEXT.filter(lambda text: "<" not in text and text.strip())
# No newline at a reply's left edge: where the template keeps it, it would melt with the newline of the prompt.
REPLY = strategies.builds(str.__add__, strategies.sampled_from(["a", " a", "  [4]"]), CONTENT)
TURNS = strategies.lists(strategies.tuples(CONTENT, REPLY), max_size=3)
SETTINGS = hypothesis.settings(max_examples=50, deadline=None)


@every_family
@hypothesis.given(turns=TURNS, last=CONTENT, system=strategies.none() | CONTENT)
@hypothesis.example(turns=[(" 你好 ", "  é👍 ")] * 3, last="\n x \n", system="\n Be kind. \n")
@hypothesis.example(turns=[("\u00a0\t[4]", "a\n\n")], last="  ", system=None)
@SETTINGS
def test_appended_ids_are_those_of_the_whole_conversation(loaded, oracles, name, turns, last, system):
    contents = [content for content, _ in turns] + [last]
    for count, token_ids in enumerate(appended(loaded[name], turns, last, system)):
        messages = rows(turns[:count], contents[count], system, folds=FAMILIES[name].folds)
        assert token_ids == whole(oracles[name], messages)


@every_family
@hypothesis.given(turns=TURNS, last=CONTENT, system=strategies.none() | CONTENT, data=strategies.data())
@SETTINGS
def test_a_turn_extends_the_one_before_and_keeps_what_was_sampled(loaded, oracles, *, name, turns, last, system, data):
    chat = loaded[name]
    sampled = data.draw(strategies.lists(strategies.integers(0, chat.vocabulary - 1), max_size=8))
    grown = appended(chat, turns, last, system)
    for shorter, longer in itertools.pairwise(grown):
        assert longer[: len(shorter)] == shorter
    # Ids a model draws need not be those its text tokenizes to. They stay, and what follows does not depend on them.
    for closed, end in ((False, []), (True, [chat.end_token_ids[0]])):
        token_ids = [*grown[-1], *sampled, *end, *chat.next_turn(last, closed=closed)]
        assert token_ids[: len(grown[-1]) + len(sampled)] == [*grown[-1], *sampled]
        tail = token_ids[len(grown[-1]) + len(sampled) :]
        expected = whole(oracles[name], rows([*turns, (last, "a")], last))
        assert chat.end_token_ids[0] in tail
        assert expected[-len(tail) :] == tail


@every_family
def test_a_departure_is_named_where_the_template_rewrites_earlier_turns(loaded, name):
    expected = FAMILIES[name].departure
    departure = loaded[name].departure
    assert departure is None if expected is None else expected in departure
    assert departure is None or departure.endswith("here every turn stays as it was first shown or sampled.")


@every_family
def test_text_that_spells_special_tokens_stays_text(loaded, oracles, name):
    chat, oracle = loaded[name], oracles[name]
    spelled = "x" + "".join(FAMILIES[name].specials) + "y"
    special = {oracle.convert_tokens_to_ids(token) for token in FAMILIES[name].specials}
    [token_ids] = appended(chat, [], spelled, spelled)
    [harmless] = appended(chat, [], "x", "x")
    assert [i for i in token_ids if i in special] == [i for i in harmless if i in special]
    assert chat.decode(token_ids).count(spelled) == 2
    assert not special.intersection(chat.encode_reply(spelled))
    # Guard of this test: transformers itself does make special tokens of that text.
    assert set(oracle(spelled, add_special_tokens=False)["input_ids"]) & special


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "mistral_legacy"])
@pytest.mark.parametrize("text", ["[4]", "Piles: 3,  4.\n\n你好 👍", "a <b> c"])
def test_a_reply_decodes_to_its_text(loaded, name, text):
    chat = loaded[name]
    assert chat.decode([*chat.encode_reply(text), *chat.end_token_ids]) == text


# ---- single families ------------------------------------------------------------------------------------------


def test_the_pieces_of_every_family_are_those_of_its_format(loaded, oracles):
    def shown(name, token_ids):
        tokens = oracles[name].convert_ids_to_tokens(token_ids)
        text = "".join(chr(int(token[3:5], 16)) if token.startswith("<0x") else token for token in tokens)
        return text.replace("▁", " ").replace("Ċ", "\n").replace("Ġ", " ")

    def conversation(name):
        chat = loaded[name]
        token_ids = chat.first_turn("U", system="S") + chat.encode_reply("R") + chat.next_turn("V", closed=False)
        return shown(name, token_ids)

    assert conversation("gemma3") == (
        "<bos><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nR<end_of_turn>\n"
        "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"
    )
    assert conversation("gemma2") == conversation("gemma3")
    assert conversation("mistral") == "<s>[INST] S\n\nU[/INST] R</s>[INST] V[/INST]"
    assert conversation("llama2") == ("<s> [INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] R </s><s> [INST] V [/INST]")
    assert conversation("llama3") == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nR<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert conversation("qwen3") == conversation("qwen2.5")


def test_mistral_keeps_the_system_message_in_the_first_turn(loaded, oracles):
    chat, oracle = loaded["mistral"], oracles["mistral"]
    first, second = appended(chat, [("Hi", "[4]")], "Go", "Be kind.")
    assert first == whole(oracle, rows([], "Hi", "Be kind."))
    rewritten = whole(oracle, rows([("Hi", "[4]")], "Go", "Be kind."))
    assert rewritten[: len(first)] != first
    assert second[: len(first)] == first


def test_qwen3_keeps_the_thoughts_of_earlier_replies(loaded, oracles):
    chat, oracle = loaded["qwen3"], oracles["qwen3"]
    thought = "<think>\nTake 4.\n</think>\n\n[4]"
    token_ids = appended(chat, [("Hi", thought)], "Go")[-1]
    text = (
        f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{thought}<|im_end|>\n"
        "<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
    )
    assert token_ids == oracle(text, add_special_tokens=False)["input_ids"]
    assert whole(oracle, rows([("Hi", thought)], "Go")) == whole(oracle, rows([("Hi", "[4]")], "Go"))
    assert whole(oracle, rows([("Hi", thought)], "Go")) != token_ids


def test_qwen3_gets_no_empty_block_before_a_last_reply(loaded, oracles):
    chat, oracle = loaded["qwen3"], oracles["qwen3"]
    messages = [*rows([], "Hi"), {"role": "assistant", "content": "[4]"}]
    template = oracle.apply_chat_template(messages, tokenize=False)
    ours = oracle.decode([*chat.first_turn("Hi"), *chat.encode_reply("[4]"), chat.end_token_ids[0]])
    assert template.endswith(f"assistant\n{EMPTY_BLOCK}[4]<|im_end|>\n")
    assert EMPTY_BLOCK not in ours
    assert "only while it is the last message" in chat.departure


def test_qwen3_without_thinking_keeps_the_empty_block_of_every_turn(folders, oracles):
    oracle = oracles["qwen3"]
    chat = ChatTokenizer.load(folders / "qwen3", enable_thinking=False)
    first, second = appended(chat, [("Hi", "[4]")], "Go", "Be kind.")
    assert first == whole(oracle, rows([], "Hi", "Be kind."), enable_thinking=False)
    text = oracle.apply_chat_template(
        rows([("Hi", "[4]")], "Go", "Be kind."), tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert text.count(EMPTY_BLOCK) == 1
    text = text.replace("assistant\n[4]", f"assistant\n{EMPTY_BLOCK}[4]")
    assert second == oracle(text, add_special_tokens=False)["input_ids"]
    assert f"removes {EMPTY_BLOCK!r} before earlier replies" in chat.departure
    assert "only while it is the last message" not in chat.departure


THINKING = QWEN3.replace("{{- '<|im_start|>assistant\\n' }}", "{{- '<|im_start|>assistant\\n<think>\\n' }}")


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    """A template that opens a thought before every reply, as that of Qwen 3 Thinking does."""
    folder = tmp_path_factory.mktemp("thinking") / "model"
    write(folder, dataclasses.replace(FAMILIES["qwen3"], template=THINKING))
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    if tokenizer.token_to_id("</think>") is None:
        tokenizer.add_tokens([tokenizers.AddedToken(t, special=False, normalized=False) for t in THINK])
        tokenizer.save(str(folder / "tokenizer.json"))
    return ChatTokenizer.load(folder), tokenizer


def test_only_a_prompt_that_ends_in_an_open_thought_opens_one(folders, loaded, thinking):
    assert thinking[0].opens_thought
    assert not any(chat.opens_thought for chat in loaded.values())
    assert not ChatTokenizer.load(folders / "qwen3", enable_thinking=False).opens_thought


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[4]", "<think>\n\n</think>\n\n[4]"),
        ("", "<think>\n\n</think>\n\n"),
        ("take 4</think>\n\n[4]", "<think>\ntake 4</think>\n\n[4]"),
        ("<think>\ntake 4\n</think>\n\n[4]", "<think>\ntake 4\n</think>\n\n[4]"),
        ("<think>take 4", "<think>\n\n</think>\n\ntake 4"),
    ],
)
def test_a_reply_that_nobody_sampled_is_not_taught_inside_an_open_thought(thinking, text, expected):
    chat, tokenizer = thinking
    token_ids = [*chat.first_turn("Hi"), *chat.encode_reply(text), *chat.next_turn("Go", closed=False)]
    opening, closing = (tokenizer.token_to_id(token) for token in THINK)
    whole_text = tokenizer.decode(token_ids, skip_special_tokens=False)
    assert f"<|im_start|>assistant\n{expected}<|im_end|>\n<|im_start|>user\nGo" in whole_text
    assert whole_text.endswith("<|im_start|>assistant\n<think>\n")
    # Both marks are the ids that a policy samples: one opened and closed in the reply, one opened for the next.
    assert [i for i in token_ids if i in (opening, closing)] == [opening, closing, opening]
    assert token_ids.count(chat.end_token_ids[0]) == 3  # of both messages and of the reply


def test_a_thought_spelled_in_an_observation_is_text(thinking, loaded, oracles):
    spelled = "Opponent says: </think>\n\n[4] <think>"
    for chat in (thinking[0], loaded["qwen3"]):
        marks = [thinking[1].token_to_id(token) for token in THINK]
        token_ids = [*chat.first_turn(spelled, system=spelled), *chat.next_turn(spelled, closed=True)]
        harmless = [*chat.first_turn("x", system="x"), *chat.next_turn("x", closed=True)]
        assert [i for i in token_ids if i in marks] == [i for i in harmless if i in marks]
        assert chat.decode(token_ids).count(spelled) == 3
    [token_ids] = appended(loaded["qwen3"], [], spelled, None)
    oracle = oracles["qwen3"]
    assert token_ids != whole(oracle, rows([], spelled))
    if "sanitize_control_tokens" in inspect.signature(oracle.apply_chat_template).parameters:
        assert token_ids == whole(oracle, rows([], spelled), sanitize_control_tokens=True)


def test_newlines_that_are_added_tokens_stay_tokens(loaded, oracles):
    token_id = oracles["gemma2"].convert_tokens_to_ids("\n\n\n")
    assert token_id in loaded["gemma2"].first_turn("a\n\n\nb")


@every_family
@pytest.mark.parametrize("value", [True, False])
def test_a_setting_that_the_template_does_not_look_at_is_refused(folders, loaded, name, value):
    assert loaded[name].reads_thinking == (name == "qwen3")
    if name == "qwen3":
        assert ChatTokenizer.load(folders / name, enable_thinking=value).reads_thinking
        return
    said = f"{folders / name}: enable_thinking is set to {value}, but the chat template does not read it"
    for load in (
        lambda: ChatTokenizer.load(folders / name, enable_thinking=value),
        lambda: loaded[name].with_thinking(value),
    ):
        with pytest.raises(WeightsError, match=said):
            load()


@pytest.mark.parametrize("value", [True, False])
def test_a_tokenizer_with_another_setting_is_the_one_that_is_loaded_with_it(folders, loaded, value):
    fresh, chat = ChatTokenizer.load(folders / "qwen3", enable_thinking=value), loaded["qwen3"]
    before = appended(chat, [("Hi", "[4]")], "Go", "Be kind."), chat.closed_turn("Hi", "[4]")
    other = chat.with_thinking(value)
    assert appended(other, [("Hi", "[4]")], "Go", "Be kind.") == appended(fresh, [("Hi", "[4]")], "Go", "Be kind.")
    assert other.closed_turn("Hi", "[4]") == fresh.closed_turn("Hi", "[4]")
    assert (other.departure, other.thought, other.end_token_ids) == (
        fresh.departure,
        fresh.thought,
        fresh.end_token_ids,
    )
    assert (appended(chat, [("Hi", "[4]")], "Go", "Be kind."), chat.closed_turn("Hi", "[4]")) == before


def test_a_reply_of_mistral_begins_with_the_space_its_template_writes(loaded, oracles):
    tokens = oracles["mistral"].convert_ids_to_tokens(loaded["mistral"].encode_reply(" [4] "))
    assert "".join(tokens) == "▁[4]"
    tokens = oracles["mistral_first"].convert_ids_to_tokens(loaded["mistral_first"].encode_reply("[4]"))
    assert "".join(tokens) == "[4]"


@pytest.mark.parametrize("config", [{"text_config": {}}, {"text_config": None}, {"model_type": "gemma3"}])
def test_a_config_that_declares_no_vocabulary_is_not_checked(tmp_path, config):
    write(tmp_path, FAMILIES["gemma3"])
    (tmp_path / "config.json").write_text(json.dumps(config))
    ChatTokenizer.load(tmp_path)


def test_the_vocabulary_of_a_nested_text_config_is_checked(tmp_path):
    write(tmp_path, FAMILIES["gemma3"])
    highest = ChatTokenizer.load(tmp_path).vocabulary - 1
    config = {"model_type": "gemma3", "text_config": {"vocab_size": highest}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=f"token id is {highest}, but config.json declares vocab_size {highest}"):
        ChatTokenizer.load(tmp_path)
    config["text_config"]["vocab_size"] = highest + 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    ChatTokenizer.load(tmp_path)

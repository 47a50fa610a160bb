import json
import subprocess
import sys

import hypothesis
import numpy as np
import pytest
import transformers
from chat_families import appended, byte_level, rows, save, whole
from hypothesis import strategies

from dfc.errors import WeightsError
from dfc.models.chat import ChatTokenizer
from dfc.tools.small_models import build_tokenizer

MESSAGES = [
    "Nim. You are Player 0.\nPiles: 3, 4, 5.",
    "Opponent plays [4].",
    "Opponent bids [Bid: 3, 4].",
    "[Bid: 3, 4]",
    "[4]",
    "[Call]",
]
WORDS = "user\nassistant\nsystem\n\nYou play a game. Answer in brackets, for example [4].\n\n"

CHATML = """\
{%- if messages[0]['role'] != 'system' %}{{- '<|im_start|>system\\nPlay well.<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}{{- '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
LLAMA3 = """\
{{- bos_token }}
{%- for m in messages %}
  {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
PLAIN = """\
{{- bos_token }}{%- for m in messages %}
{%- if m['role'] == 'system' %}{{- raise_exception('no system') }}{%- endif %}
{{- ('Q: ' + m['content'] + '\\nA:') if m['role'] == 'user' else (m['content'] + eos_token) }}{%- endfor %}"""


def write_bpe(folder, template, specials, *, eos, bos=None):
    """As Qwen 2.5 and Llama 3 have it."""
    split = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer = byte_level([*MESSAGES, WORDS] * 3, split)
    save(folder, tokenizer, template, specials, eos=eos, bos=bos, added=["<tool>"])


def write_chatml(folder, template=CHATML):
    write_bpe(folder, template, ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], eos="<|im_end|>")


def write_llama3(folder):
    names = ["begin_of_text", "start_header_id", "end_header_id", "eot_id", "end_of_text"]
    write_bpe(folder, LLAMA3, [f"<|{n}|>" for n in names], eos="<|eot_id|>", bos="<|begin_of_text|>")


def write_plain(folder):
    write_bpe(folder, PLAIN, ["<s>", "</s>"], eos="</s>", bos="<s>")


def write_tiny(folder):
    build_tokenizer.build(MESSAGES, folder, size=512)


WRITERS = {"tiny": write_tiny, "chatml": write_chatml, "llama3": write_llama3, "plain": write_plain}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("tokenizers")
    for name, write in WRITERS.items():
        write(root / name)
    return root


@pytest.fixture(scope="module")
def loaded(folders):
    return {name: ChatTokenizer.load(folders / name) for name in WRITERS}


@pytest.fixture(scope="module")
def oracles(folders):
    kind = transformers.PreTrainedTokenizerFast
    return {name: kind.from_pretrained(str(folders / name), local_files_only=True) for name in WRITERS}


every_kind = pytest.mark.parametrize("name", WRITERS)
TEXT = strategies.text(strategies.characters(codec="utf-8"), max_size=30) | strategies.sampled_from(MESSAGES)
CONTENT = TEXT.filter(lambda text: "<" not in text)
# No white space at a reply's edges: templates strip it, and a leading newline could join the one before it.
REPLY = CONTENT.map(lambda text: "a" + text.strip())
SETTINGS = hypothesis.settings(max_examples=60, deadline=None)


@every_kind
@hypothesis.given(turns=strategies.lists(strategies.tuples(CONTENT, REPLY), max_size=4), last=CONTENT)
@SETTINGS
def test_turns_joined_have_the_ids_of_the_whole_conversation(loaded, oracles, name, turns, last):
    grown = appended(loaded[name], turns, last)
    for count, token_ids in enumerate(grown):
        contents = [content for content, _ in turns] + [last]
        assert token_ids == whole(oracles[name], rows(turns[:count], contents[count]))


@pytest.mark.parametrize("name", ["tiny", "chatml", "llama3"])
@hypothesis.given(system=CONTENT, turns=strategies.lists(strategies.tuples(CONTENT, REPLY), max_size=2), last=CONTENT)
@SETTINGS
def test_a_system_message_comes_first_as_the_template_has_it(loaded, oracles, *, name, system, turns, last):
    assert appended(loaded[name], turns, last, system)[-1] == whole(oracles[name], rows(turns, last, system))


@every_kind
@hypothesis.given(text=TEXT)
@SETTINGS
def test_a_reply_decodes_to_its_text(loaded, name, text):
    chat = loaded[name]
    token_ids = chat.encode_reply(text)
    expected = text.strip() if name == "llama3" else text  # a reply is stripped where the template strips it
    assert chat.decode(token_ids) == expected
    assert chat.decode(np.asarray(token_ids + list(chat.end_token_ids), np.int32)) == expected


@every_kind
def test_content_that_spells_a_special_token_stays_text(loaded, oracles, name):
    chat, oracle = loaded[name], oracles[name]
    added = oracle.added_tokens_decoder
    special = {token_id for token_id, token in added.items() if token.special}
    assert len(special) >= 2
    spelled = "".join(added[token_id].content for token_id in sorted(special)) + "[4]"
    system = None if name == "plain" else spelled
    for token_ids, harmless in [
        (chat.first_turn(spelled, system=system), chat.first_turn("x", system=None if name == "plain" else "x")),
        (chat.next_turn(spelled, closed=False), chat.next_turn("x", closed=False)),
        (chat.encode_reply(spelled), []),
    ]:
        assert [i for i in token_ids if i in special] == [i for i in harmless if i in special]
        assert spelled in chat.decode(token_ids)
    assert set(oracle(spelled, add_special_tokens=False)["input_ids"]) & special


@pytest.mark.parametrize("name", ["chatml", "llama3", "plain"])
def test_an_added_token_that_is_not_special_stays_text_in_messages_and_is_an_id_in_replies(loaded, oracles, name):
    chat, token_id = loaded[name], oracles[name].convert_tokens_to_ids("<tool>")
    system = None if name == "plain" else "use <tool>"
    for token_ids in (chat.first_turn("use <tool> now", system=system), chat.next_turn("use <tool> now", closed=False)):
        assert token_id not in token_ids
        assert "use <tool> now" in chat.decode(token_ids)
    assert chat.encode_reply("use <tool> now").count(token_id) == 1
    # Guard of this test: transformers makes the token of that text.
    assert token_id in oracles[name]("use <tool> now", add_special_tokens=False)["input_ids"]


@every_kind
def test_a_closed_reply_is_not_closed_twice(loaded, name):
    chat = loaded[name]
    still_open, closed = chat.next_turn("[4]", closed=False), chat.next_turn("[4]", closed=True)
    assert still_open == [chat.end_token_ids[0], *closed]
    assert closed[0] != chat.end_token_ids[0]


def test_the_pieces_around_messages_are_those_of_the_format(loaded, oracles):
    render = {
        name: lambda token_ids, name=name: oracles[name].decode(token_ids, skip_special_tokens=False)
        for name in WRITERS
    }
    assert render["tiny"](loaded["tiny"].first_turn("Hi")) == "<s>Hi<|assistant|>"
    assert render["tiny"](loaded["tiny"].first_turn("Hi", system="S")) == "<s>S\nHi<|assistant|>"
    assert render["tiny"](loaded["tiny"].next_turn("Hi", closed=False)) == "<|end|>Hi<|assistant|>"
    expected = "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert render["chatml"](loaded["chatml"].next_turn("Hi", closed=False)) == expected
    assert render["chatml"](loaded["chatml"].first_turn("Hi")).startswith("<|im_start|>system\nPlay well.<|im_end|>\n")
    assert render["llama3"](loaded["llama3"].first_turn(" Hi\n")) == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


@every_kind
@pytest.mark.parametrize("stop", [("]",), ("]", ","), (), ("zebra",)])
def test_stop_ids_are_the_end_ids_and_every_id_whose_text_holds_a_stop_string(loaded, oracles, name, stop):
    chat, oracle = loaded[name], oracles[name]
    texts = {token_id: oracle.decode([token_id], skip_special_tokens=True) for token_id in range(len(oracle))}
    expected = {token_id for token_id, text in texts.items() if any(s in text for s in stop)} | set(chat.end_token_ids)
    assert chat.stop_token_ids(list(stop)) == expected
    assert chat.stop_token_ids(stop) == expected
    assert ("]" not in stop) or len(expected) > len(chat.end_token_ids)


@pytest.mark.parametrize("stop", ["]", [""], ["]", ""]])
def test_a_stop_that_is_a_string_or_empty_is_refused(loaded, stop):
    with pytest.raises(ValueError, match="stop must be a sequence of strings that are not empty"):
        loaded["tiny"].stop_token_ids(stop)


def test_a_returned_list_belongs_to_the_caller(loaded):
    chat = loaded["tiny"]
    for give in (chat.first_turn, lambda text: chat.next_turn(text, closed=False), chat.encode_reply):
        before = list(give("[4]"))
        give("[4]").clear()
        assert give("[4]") == before


def test_messages_that_are_forgotten_are_tokenized_again_alike(loaded, monkeypatch):
    tokenizer = next(iter(loaded.values()))
    texts = []
    encode = tokenizer._encode_message
    monkeypatch.setattr(tokenizer, "_encode_message", lambda text: texts.append(text) or encode(text))
    tokenizer.forget_messages()
    said = [tokenizer.first_turn("[4]"), tokenizer.next_turn("[4]", closed=True), tokenizer.encode_reply("[4]")]
    once = len(texts)
    assert once
    assert tokenizer.first_turn("[4]") == said[0]
    assert len(texts) == once
    tokenizer.forget_messages()
    again = [tokenizer.first_turn("[4]"), tokenizer.next_turn("[4]", closed=True), tokenizer.encode_reply("[4]")]
    assert again == said
    assert len(texts) == 2 * once


@pytest.mark.parametrize(("declared", "extra"), [(7, (7,)), ([7, 9], (7, 9)), (None, ())])
def test_end_ids_join_the_template_and_generation_config(tmp_path, declared, extra):
    write_tiny(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": declared}))
    assert ChatTokenizer.load(tmp_path).end_token_ids == (build_tokenizer.END_ID, *extra)


@every_kind
def test_the_vocabulary_counts_every_id(loaded, oracles, name):
    assert loaded[name].vocabulary == len(oracles[name])


def test_a_llama_folder_gets_the_ids_of_autotokenizer(tmp_path):
    write_tiny(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 512}))
    chat, oracle = ChatTokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    text = " Opponent plays [4].\n  é"
    assert chat.encode_reply(text) == oracle(text, add_special_tokens=False)["input_ids"]
    assert oracle.decode(chat.encode_reply(text)) == text


# ---- folders that are refused ---------------------------------------------------------------------------------

BODY = "{{- m['content'] + ('<|im_end|>' if m['role'] == 'assistant' else '<|im_start|>') }}"
LOOP = "{%- for m in messages %}" + BODY + "{%- endfor %}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{- messages | length }}" + LOOP, "a second turn must leave the text of the first one as it was"),
        (LOOP.replace("in messages", "in messages[-1:]"), "a second turn must leave the text of the first one"),
        (CHATML.replace("assistant\\n", "bot\\n"), "a second turn must leave the text of the first one as it was"),
        (LOOP.replace("in messages", "in messages[-3:]"), "a third turn must add what a second one adds"),
        (
            LOOP.replace("m['content']", "m['content'].replace('<think>', '(')"),
            r"a reply that thinks .* must stay whole, or lose its thoughts only",
        ),
        (
            LOOP.replace(
                "m['content']", "m['content'].replace('\\n', '') if m['role'] == 'assistant' else m['content']"
            ),
            "a reply must appear as it is, or stripped",
        ),
        (
            CHATML.replace("m['content']", "('<b>' if m['role'] == 'assistant' else '') + m['content']"),
            "a reply must follow its prompt, with an empty block of thought between at most, but '<b>' comes before an",
        ),
        (
            CHATML.replace("m['content']", "('<b>' if m['role'] == 'assistant' and loop.last else '') + m['content']"),
            "a reply must follow its prompt, .* but '<b>' comes before the last reply",
        ),
        (
            CHATML.replace("m['content']", "m['content'].strip(' ')"),
            r"a user message must appear as it is, or stripped .*user.n.nFIRST-MESSAGE.n<.* for ' .nFIRST-MESSAGE.n '",
        ),
        (LOOP.replace("m['content']", "m['content'][0]"), "a user message must appear in it once"),
        (LOOP.replace("m['content']", "m['content'].replace('\\n', '')"), "a user message must appear as it is"),
        (LOOP.replace("<|im_end|>", "\\nQ:"), "a reply must be followed by a special token"),
        (LOOP.replace("<|im_end|>", "<tool>"), "a reply must be followed by a special token"),
        ("{{- raise_exception('tools only') }}" + LOOP, "it fails on plain user and assistant messages .tools only."),
    ],
)
def test_a_template_that_is_not_append_only_is_refused(tmp_path, template, expected):
    write_chatml(tmp_path, template)
    with pytest.raises(WeightsError, match=f"{tmp_path}: the chat template cannot be used: {expected}"):
        ChatTokenizer.load(tmp_path)


def test_a_tokenizer_whose_pieces_do_not_join_is_refused(tmp_path):
    write_chatml(tmp_path)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text())
    # The prompt's colon and the reply's first letter become one character.
    data["normalizer"] = {"type": "Replace", "pattern": {"Regex": ":[A-Z]"}, "content": "z"}
    path.write_text(json.dumps(data))
    template = LOOP.replace("'<|im_start|>'", "'\\nReply:'")
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(WeightsError, match="same tokens in pieces as in one go"):
        ChatTokenizer.load(tmp_path)


def test_a_vocabulary_that_spells_a_special_token_is_refused(tmp_path):
    write_tiny(tmp_path)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["vocab"][build_tokenizer.END_ID][1] = -1.0
    path.write_text(json.dumps(data))
    with pytest.raises(WeightsError, match=r"text that spells <\|end\|> becomes that special token"):
        ChatTokenizer.load(tmp_path)


def test_a_folder_without_tokenizer_or_template_is_refused(tmp_path):
    with pytest.raises(WeightsError, match=f"{tmp_path}: no tokenizer .* copy them"):
        ChatTokenizer.load(tmp_path)
    write_tiny(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(WeightsError, match=f"{tmp_path}: no chat template"):
        ChatTokenizer.load(tmp_path)


def test_ids_beyond_the_models_vocabulary_are_refused(tmp_path):
    write_tiny(tmp_path)
    highest = ChatTokenizer.load(tmp_path).vocabulary - 1
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": highest}))
    with pytest.raises(WeightsError, match=f"{tmp_path}: the tokenizer's highest token id is {highest}, but config"):
        ChatTokenizer.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": highest + 1}))
    assert ChatTokenizer.load(tmp_path).vocabulary == highest + 1


def test_a_system_message_for_a_template_that_refuses_it_goes_before_the_first_user_message(loaded):
    chat = loaded["plain"]
    assert chat.first_turn("x", system="y") == chat.first_turn("y\n\nx")


def test_a_system_message_the_template_ignores_goes_before_the_first_user_message(tmp_path):
    write_chatml(tmp_path, LOOP.replace("in messages", "in messages if m['role'] != 'system'"))
    chat = ChatTokenizer.load(tmp_path)
    assert chat.first_turn("x", system="y") == chat.first_turn("y\n\nx")


@pytest.mark.parametrize(
    ("template", "departure"),
    [
        (CHATML, None),
        (CHATML.replace("m['content']", "m['content'].split('</think>')[-1]"), "leaves out the thoughts"),
        (CHATML.replace("assistant\\n", "assistant\\n<think>\\n"), r"removes '<think>\n' before earlier replies"),
    ],
)
def test_a_template_that_rewrites_earlier_turns_is_appended_to_and_says_so(tmp_path, template, departure):
    write_chatml(tmp_path, template)
    chat = ChatTokenizer.load(tmp_path)
    assert chat.departure is None if departure is None else departure in chat.departure
    assert " and " not in (chat.departure or "")
    assert chat.next_turn("x", closed=True)[-1:] == chat.first_turn("x")[-1:]


@pytest.mark.parametrize(
    ("template", "thought"),
    [
        (CHATML, ""),
        (CHATML.replace("assistant\\n", "assistant\\n<think>\\n"), "<think>\n"),
        (CHATML.replace("assistant\\n", "assistant\\n<think>\\n</think>\\n"), "<think>\n</think>\n"),
    ],
)
def test_it_is_known_whether_a_reply_begins_inside_a_thought(tmp_path, template, thought):
    write_chatml(tmp_path, template)
    chat = ChatTokenizer.load(tmp_path)
    assert chat.thought == thought
    assert thought in chat.decode(chat.first_turn("x"))


@pytest.mark.parametrize(
    "ending",
    [
        "{%- if messages[0]['role'] == 'system' %}{{- 'Sure.' }}{%- endif %}",
        "{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- endif %}",
    ],
)
def test_a_template_that_ends_otherwise_with_a_system_message_takes_none(tmp_path, ending):
    write_chatml(tmp_path, CHATML + ending)
    chat = ChatTokenizer.load(tmp_path)
    with pytest.raises(WeightsError, match="takes no system message"):
        chat.first_turn("x", system="y")


def test_a_process_that_loads_a_tokenizer_does_not_load_torch():
    """It takes two seconds more, and a start has none to give away."""
    load = "from dfc.models import chat, huggingface; chat.ChatTokenizer.load(huggingface.resolve('tiny_player'))"
    words = [sys.executable, "-c", f"import sys; {load}; print('torch' in sys.modules)"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "False"  # noqa: S603 - ours

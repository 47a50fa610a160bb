"""What stands between a template's prompt and a reply: replies that nobody sampled are those of the template itself."""

import json

import pytest
import transformers
from chat_families import FAMILIES, QWEN3, THINK, byte_level, rows, save

from dfc.errors import WeightsError
from dfc.models.chat import ChatTokenizer

PROMPT = "{{- '<|im_start|>assistant\\n' }}"
# Opens a thought in every prompt; shows a reply without thoughts with an empty block while it is the last message.
THINKING = QWEN3.replace(PROMPT, "{{- '<|im_start|>assistant\\n<think>\\n' }}").replace(
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}", ""
)
# The same, with that block before every reply, as templates for training have it.
KEEPING = THINKING.replace("loop.index0 > ns.last", "true")
# Keeps the thoughts of every reply and shows an empty block for none; the prompt opens none.
TRAINING = QWEN3.replace("loop.index0 > ns.last", "true")
# A prompt whose reply names its channel, in the text of the conversation only.
CHANNELS = """\
{%- for m in messages %}
  {%- if m.role == 'assistant' %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
  {%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"""
# Replaces the thoughts of earlier replies by an empty block, which the prompt has not.
BLOCKS = """\
{{- '[gMASK]<sop>' }}
{%- for m in messages %}
  {%- if m.role == 'assistant' %}
    {{- '<|assistant|>\\n<think></think>\\n' + m.content.split('</think>')[-1].strip() }}
  {%- else %}{{- '<|' + m.role + '|>\\n' + m.content }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}
  {%- if enable_thinking is defined and not enable_thinking %}{{- '\\n<think></think>' }}{%- endif %}
{%- endif %}"""
CHANNEL_TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
BLOCK_TOKENS = ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|system|>")


def load(folder, template, **options):
    """Returns our tokenizer and transformers', of a folder like those of Qwen 3 with another template."""
    names = FAMILIES["qwen3"].specials
    save(folder, byte_level(), template, names, eos="<|im_end|>", added=THINK)
    kind = transformers.PreTrainedTokenizerFast
    return ChatTokenizer.load(folder, **options), kind.from_pretrained(str(folder), local_files_only=True)


def told(chat, oracle, *turns, last=None):
    """Returns the text of a conversation as it is appended."""
    token_ids = []
    for number, (user, reply) in enumerate(turns):
        token_ids += chat.next_turn(user, closed=False) if number else chat.first_turn(user)
        token_ids += chat.encode_reply(reply)
    end = [chat.end_token_ids[0]] if last is None else chat.next_turn(last, closed=False)
    return oracle.decode([*token_ids, *end], skip_special_tokens=False)


def shown(oracle, messages, **options):
    return oracle.apply_chat_template(messages, tokenize=False, **options)


THOUGHTFUL = "<think>\nTake 4.\n</think>\n\n[4]"


@pytest.mark.parametrize("template", [THINKING, KEEPING], ids=["thinking", "keeping"])
@pytest.mark.parametrize("reply", ["[4]", THOUGHTFUL, "", "two\n\nlines"])
def test_a_last_reply_behind_an_open_thought_is_the_templates_own(tmp_path, template, reply):
    chat, oracle = load(tmp_path, template)
    assert chat.opens_thought
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": reply}]
    expected = shown(oracle, messages)
    assert told(chat, oracle, ("Hi", reply)) + "\n" == expected
    assert reply != "[4]" or "<think>\n\n</think>\n\n[4]<|im_end|>" in expected  # a guard of this test


@pytest.mark.parametrize("template", [KEEPING, TRAINING], ids=["keeping", "training"])
@pytest.mark.parametrize("replies", [("[4]", "[5]"), (THOUGHTFUL, "[5]"), ("[4]", THOUGHTFUL)])
def test_a_conversation_is_the_templates_own_where_it_keeps_thoughts_and_empty_blocks(tmp_path, template, replies):
    chat, oracle = load(tmp_path, template)
    turns = [("Hi", replies[0]), ("Go", replies[1])]
    assert told(chat, oracle, *turns, last="On") == shown(oracle, rows(turns, "On"), add_generation_prompt=True)
    assert chat.departure is None


def test_a_prompt_that_holds_the_empty_block_says_where_thoughts_would_go(tmp_path):
    chat, oracle = load(tmp_path, TRAINING, enable_thinking=False)
    turns = [("Hi", "[4]"), ("Go", "[5]")]
    expected = shown(oracle, rows(turns, "On"), add_generation_prompt=True, enable_thinking=False)
    assert told(chat, oracle, *turns, last="On") == expected
    assert "puts the thoughts of a reply into the place of the empty block" in chat.departure


def test_a_thought_that_no_reply_shows_closed_is_closed_with_a_blank_line(tmp_path):
    template = THINKING.replace("loop.index0 > ns.last", "false")
    chat, oracle = load(tmp_path, template)
    assert "<think>\n</think>\n\n[4]<|im_end|>" in told(chat, oracle, ("Hi", "[4]"))


def test_a_scored_reply_behind_an_open_thought_has_the_templates_tokens(tmp_path):
    chat, oracle = load(tmp_path, THINKING)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "[4]"}]
    expected = oracle.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert chat.closed_turn("Hi", "[4]") == expected


@pytest.mark.parametrize(
    ("template", "tokens", "added"),
    [(CHANNELS, CHANNEL_TOKENS, "<|channel|>final<|message|>"), (BLOCKS, BLOCK_TOKENS, "\n<think></think>\n")],
)
def test_text_before_a_reply_that_the_prompt_has_not_is_refused_and_quoted(tmp_path, template, tokens, added):
    save(tmp_path, byte_level(), template, tokens, eos=tokens[-1], added=THINK)
    with pytest.raises(WeightsError) as caught:
        ChatTokenizer.load(tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}: the chat template cannot be used: a reply must follow its prompt, ")
    assert f"but {added!r} comes before an earlier reply" in said


def test_such_a_template_is_taken_where_its_prompt_has_the_block(tmp_path):
    save(tmp_path, byte_level(), BLOCKS, BLOCK_TOKENS, eos="<|user|>", added=THINK)
    chat = ChatTokenizer.load(tmp_path, enable_thinking=False)
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(str(tmp_path), local_files_only=True)
    turns = [("Hi", "[4]"), ("Go", "[5]")]
    expected = shown(oracle, rows(turns, "On"), add_generation_prompt=True, enable_thinking=False)
    assert told(chat, oracle, *turns, last="On") == expected


PLAIN = "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
LOOP = "{%- for m in messages %}" + PLAIN + "{%- endfor %}{%- if add_generation_prompt %}" + PROMPT + "{%- endif %}"


@pytest.mark.parametrize("method", ["strip", "lstrip", "rstrip"])
@pytest.mark.parametrize("signs", ["", "'\\n'"])
@pytest.mark.parametrize("text", ["\n\n [4] \n\n", " \n[4]\n ", "[4]"])
def test_what_a_template_strips_of_a_message_is_stripped(tmp_path, method, signs, text):
    chat, oracle = load(tmp_path, LOOP.replace("m.content", f"m.content.{method}({signs})"))
    turns = [(text, text)]
    assert told(chat, oracle, *turns, last=text) == shown(oracle, rows(turns, text), add_generation_prompt=True)


# ---- ends of replies ------------------------------------------------------------------------------------------

ENDS = [
    ({"eos_token_id": 7}, None),
    ({"eos_token_id": [7, 9]}, None),
    ({"eos_token_id": [7, 9]}, {}),
    ({"eos_token_id": [7, 9]}, {"eos_token_id": None}),
    ({"eos_token_id": None, "text_config": {"eos_token_id": [8]}}, None),
    ({"eos_token_id": 7, "text_config": {"eos_token_id": 8}}, None),
    ({}, None),
    (None, None),
]


@pytest.mark.parametrize(("config", "generation"), ENDS)
def test_a_reply_ends_where_transformers_ends_it_without_a_generation_config(tmp_path, config, generation):
    chat, _ = load(tmp_path, QWEN3)
    own = chat.end_token_ids
    for name, values in (("config.json", config), ("generation_config.json", generation)):
        if values is not None:
            (tmp_path / name).write_text(json.dumps(values))
    declared = transformers.GenerationConfig.from_model_config(dict(config or {})).eos_token_id
    declared = declared if isinstance(declared, list) else [] if declared is None else [declared]
    assert ChatTokenizer.load(tmp_path).end_token_ids == (*own, *declared)


def test_a_generation_config_that_names_ends_is_the_one_that_counts(tmp_path):
    chat, _ = load(tmp_path, QWEN3)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 8}))
    assert ChatTokenizer.load(tmp_path).end_token_ids == (*chat.end_token_ids, 8)


@pytest.mark.parametrize("value", ["7", [7, "x"], True, -1, 1 << 40, 1.5, {"a": 1}, [[1]], "\x1b" * 9000])
@pytest.mark.parametrize("nested", [False, True])
def test_ends_in_config_json_that_are_no_tokens_are_refused(tmp_path, value, nested):
    load(tmp_path, QWEN3)
    values = {"eos_token_id": value}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": values} if nested else values))
    with pytest.raises(
        WeightsError, match=r"config\.json: eos_token_id: expected a token id or a list of them"
    ) as caught:
        ChatTokenizer.load(tmp_path)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()

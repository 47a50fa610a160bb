"""Chat rendering of every family against `apply_chat_template`.

Templates and tokenizers are small ones with the facts of the released ones: tags, white space, stripping, where the
system message goes, which thoughts are dropped, where SentencePiece puts spaces.
"""

import dataclasses
import inspect
import itertools
import json

import hypothesis
import pytest
import tokenizers
import transformers
from hypothesis import strategies
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from dfc.errors import WeightsError
from dfc.models.chat import ChatTokenizer

CORPUS = [
    "Nim. You are Player 0.\nPiles: 3, 4, 5.",
    "Opponent plays [4]. Answer in brackets, for example [4].",
    "[INST] <<SYS>>\nYou play a game.\n<</SYS>>\n\nuser\nassistant\nmodel\nsystem\n\nthink [/INST]",
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
] * 3
DATE = "26 Jul 2024"
THINK = ("<think>", "</think>")
EMPTY_BLOCK = "<think>\n\n</think>\n\n"

# ---- templates ------------------------------------------------------------------------------------------------

LLAMA2 = """\
{%- set ns = namespace(prefix='') %}
{%- for m in messages %}
  {%- if m.role == 'system' %}{%- set ns.prefix = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}
  {%- elif m.role == 'user' %}
    {{- bos_token + '[INST] ' + (ns.prefix + m.content).strip() + ' [/INST]' }}{%- set ns.prefix = '' %}
  {%- else %}{{- ' ' + m.content.strip() + ' ' + eos_token }}{%- endif %}
{%- endfor %}"""

LLAMA3 = """\
{%- macro turn(role, text) %}{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + text + '<|eot_id|>' }}
{%- endmacro %}
{%- if date_string is not defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}
{%- set system = messages[0].content | trim if messages[0].role == 'system' else '' %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{{- bos_token }}
{{- turn('system', 'Cutting Knowledge Date: December 2023\\nToday Date: ' + date_string + '\\n\\n' + system) }}
{%- for m in rest %}{{- turn(m.role, m.content | trim) }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

QWEN25 = """\
{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nYou play a game.<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# A reply is shown with its thoughts only behind the last user message, and with an empty block if it has none there.
QWEN3 = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
  {%- set text = m.content %}{%- set thought = '' %}
  {%- if m.role == 'assistant' and '</think>' in text %}
    {%- set thought = text.partition('</think>')[0].partition('<think>')[2].strip('\\n') %}
    {%- set text = text.rpartition('</think>')[2].lstrip('\\n') %}
  {%- endif %}
  {%- if m.role == 'assistant' and loop.index0 > ns.last %}
    {%- set text = '<think>\\n' + thought + '\\n</think>\\n\\n' + text.lstrip('\\n') %}
  {%- endif %}
  {{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\\n' }}
  {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

MISTRAL = """\
{%- set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}
{{- bos_token }}
{%- for m in (messages[1:] if system else messages) %}
  {%- if m.role == 'user' %}{{- '[INST] ' + (system if loop.last else '') + m.content + '[/INST]' }}
  {%- else %}{{- ' ' + m.content | trim + eos_token }}{%- endif %}
{%- endfor %}"""

MISTRAL_FIRST = """\
{{- bos_token }}
{%- for m in messages %}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('user, assistant, user') }}{%- endif %}
  {{- '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else m.content + eos_token }}
{%- endfor %}"""

GEMMA3 = """\
{%- set prefix = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}
{{- bos_token }}
{%- for m in (messages[1:] if messages[0].role == 'system' else messages) %}
  {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}
  {{- (prefix if loop.first else '') + m.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"""

GEMMA2 = "{%- if messages[0].role == 'system' %}{{- raise_exception('no system role') }}{%- endif %}" + GEMMA3


# ---- tokenizers -----------------------------------------------------------------------------------------------


def byte_level():
    """Byte-level BPE with Llama 3's way of splitting text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    split = tokenizers.Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(split, "isolated"), bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece_like(kind):
    """BPE over characters with ▁ for a space and bytes for what it does not know.

    Args:
      kind: "first" puts ▁ before a whole text (Mistral v0.3), "prepend" before every stretch between special tokens
        (Llama 2), "none" nowhere (Gemma).
    """
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    state = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *state["vocab"], "▁▁"]
    vocab = {piece: token_id for token_id, piece in enumerate(dict.fromkeys(pieces))}
    merges = [("▁", "▁"), *map(tuple, state["merges"])]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)  # noqa: S106 - not a password
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    spaces = normalizers.Replace(" ", "▁")
    if kind == "first":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif kind == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    else:
        tokenizer.normalizer = spaces
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        tokenizer.add_tokens([tokenizers.AddedToken("\n" * n, special=False, normalized=False) for n in range(1, 5)])
    tokenizer.decoder = decoders.Sequence(steps if kind == "none" else [*steps, decoders.Strip(" ", 1, 0)])
    return tokenizer


@dataclasses.dataclass(frozen=True)
class Family:
    """One family: its template, its tokenizer, and what is known about it."""

    template: str
    build: str
    specials: tuple[str, ...]
    bos: str | None
    eos: str
    folds: bool = False  # the system message stays at the first user message, which the template does not do by itself
    departure: str | None = None


LLAMA3_TOKENS = tuple(f"<|{n}|>" for n in ("begin_of_text", "start_header_id", "end_header_id", "eot_id"))
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
MISTRAL_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]")
GEMMA_TOKENS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
MOVES = "moves the system message"
FAMILIES = {
    "llama2": Family(LLAMA2, "prepend", ("<s>", "</s>"), "<s>", "</s>"),
    "llama3": Family(LLAMA3, "bytes", LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen2.5": Family(QWEN25, "bytes", CHATML_TOKENS, None, "<|im_end|>"),
    "qwen3": Family(QWEN3, "bytes", CHATML_TOKENS, None, "<|im_end|>", departure="leaves out the thoughts"),
    "mistral": Family(MISTRAL, "first", MISTRAL_TOKENS, "<s>", "</s>", folds=True, departure=MOVES),
    "mistral_legacy": Family(MISTRAL, "prepend", MISTRAL_TOKENS, "<s>", "</s>", folds=True, departure=MOVES),
    "mistral_first": Family(MISTRAL_FIRST, "first", MISTRAL_TOKENS, "<s>", "</s>", folds=True),
    "gemma2": Family(GEMMA2, "none", GEMMA_TOKENS, "<bos>", "<eos>", folds=True),
    "gemma3": Family(GEMMA3, "none", GEMMA_TOKENS, "<bos>", "<eos>"),
}
every_family = pytest.mark.parametrize("name", FAMILIES)


def write(folder, family):
    tokenizer = byte_level() if family.build == "bytes" else sentencepiece_like(family.build)
    if family.template == QWEN3:
        tokenizer.add_tokens([tokenizers.AddedToken(t, special=False, normalized=False) for t in THINK])
    tokenizer.add_special_tokens([tokenizers.AddedToken(t, special=True, normalized=False) for t in family.specials])
    if family.bos is not None:
        # Inside a conversation the template writes it; the tokenizer must not double it.
        pair = (family.bos, tokenizer.token_to_id(family.bos))
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{family.bos} $A", special_tokens=[pair])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": family.eos, "bos_token": family.bos}
    (folder / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if v}))
    (folder / "chat_template.jinja").write_text(family.template)


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


def rows(turns, last, system=None, *, folds=False):
    messages = [
        ("user", content) if i == 0 else ("assistant", content) for turn in turns for i, content in enumerate(turn)
    ]
    messages.append(("user", last))
    if system is not None and folds:
        messages[0] = ("user", f"{system}\n\n{messages[0][1]}")
    elif system is not None:
        messages.insert(0, ("system", system))
    return [{"role": role, "content": content} for role, content in messages]


def whole(oracle, messages, **options):
    return oracle.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False, date_string=DATE, **options
    )


def appended(chat, turns, last, system=None):
    """Ids after every user message of a conversation that is only ever appended to."""
    contents = [content for content, _ in turns] + [last]
    token_ids = chat.first_turn(contents[0], system=system)
    grown = [list(token_ids)]
    for (_, reply), content in zip(turns, contents[1:], strict=True):
        token_ids += chat.encode_reply(reply) + chat.next_turn(content, closed=False)
        grown.append(list(token_ids))
    return grown


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
        ("[4]", "<think>\n</think>\n\n[4]"),
        ("", "<think>\n</think>\n\n"),
        ("take 4</think>\n\n[4]", "<think>\ntake 4</think>\n\n[4]"),
        ("<think>\ntake 4\n</think>\n\n[4]", "<think>\ntake 4\n</think>\n\n[4]"),
        ("<think>take 4", "<think>\n</think>\n\ntake 4"),
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
def test_enable_thinking_changes_nothing_where_the_template_ignores_it(folders, loaded, name):
    if name != "qwen3":
        chat = ChatTokenizer.load(folders / name, enable_thinking=False)
        assert appended(chat, [("Hi", "[4]")], "Go") == appended(loaded[name], [("Hi", "[4]")], "Go")


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

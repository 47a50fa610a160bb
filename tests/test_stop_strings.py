"""Stop strings against looking at every prefix of a reply, with byte pieces and with bytes as pieces."""

import functools
from pathlib import Path

import hypothesis
import pytest
import tokenizers
from hypothesis import strategies
from tokenizers import decoders, models, pre_tokenizers, trainers

from dfc.inference.stop_strings import StopStrings
from dfc.models.chat import ChatTokenizer

TEXT = 'So <answer>[4]</answer>\n\nand 你好 "</a>" é]] 🙂 <b> naïve 好的'


@functools.cache
def byte_level():
    """Every byte is an id (as in GPT-2, Llama 3, Qwen), and a few merges, some across parts of a character."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT, TEXT], trainer)
    return tokenizer


def byte_level_decode(token_ids):
    return byte_level().decode(list(token_ids))


@functools.cache
def byte_fallback():
    """The bundled model: what its pieces cannot spell becomes bytes, as in Llama 2 and Gemma."""
    return ChatTokenizer.load(Path("models/tiny_player"))


def encoded(kind, text):
    return byte_level().encode(text).ids if kind == "byte_level" else byte_fallback().encode_reply(text)


DECODE = {"byte_level": byte_level_decode, "byte_fallback": lambda token_ids: byte_fallback().decode(token_ids)}


def looked_for(strings, decode, token_ids):
    """The smallest number of ids whose text has a string, by trying all of them."""
    return next((n for n in range(len(token_ids) + 1) if any(s in decode(token_ids[:n]) for s in strings)), None)


texts = strategies.lists(strategies.sampled_from([*TEXT, "]", "</answer>", "[4]", "🙂", "\n\n"]), max_size=25).map(
    "".join
)
stops = strategies.lists(
    strategies.sampled_from(["]", "</answer>", "\n\n", "好", "🙂 ", "é]", '"', "a", " <"]), min_size=1, max_size=3
)


@pytest.mark.parametrize("kind", DECODE)
@hypothesis.given(text=texts, strings=stops)
@hypothesis.settings(max_examples=100, deadline=None)
def test_every_beginning_of_a_reply_ends_where_looking_at_all_prefixes_says(kind, text, strings):
    token_ids, decode = encoded(kind, text), DECODE[kind]
    stop = StopStrings(strings, decode)
    assert [stop(token_ids[:n]) for n in range(len(token_ids) + 1)] == [
        looked_for(strings, decode, token_ids[:n]) for n in range(len(token_ids) + 1)
    ]


@hypothesis.given(token_ids=strategies.lists(strategies.integers(0, 289), max_size=40), strings=stops)
@hypothesis.settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_text_do_not_hide_a_string(token_ids, strings):
    assert StopStrings(strings, byte_level_decode)(token_ids) == looked_for(strings, byte_level_decode, token_ids)


def test_a_string_over_several_ids_and_an_id_with_more_than_the_string():
    pieces = ["He", "llo</", "ans", "wer>, and", " more"]

    def decode(token_ids):
        return "".join(pieces[i] for i in token_ids)

    stop = StopStrings(("</answer>",), decode)
    assert [stop(list(range(n))) for n in range(6)] == [None, None, None, None, 4, 4]
    assert StopStrings(["</answer>", "lo"], decode)([0, 1, 2, 3, 4]) == 2


@pytest.mark.parametrize("character", ["é", "好", "🙂"])
def test_a_string_before_an_unfinished_character_is_found(character):
    """In a run of byte pieces one missing byte hides the others: the text of `]` and half a character has neither."""
    token_ids = [byte_fallback_byte(b) for b in f"]{character}".encode()]
    decode = DECODE["byte_fallback"]
    assert "]" in decode(token_ids)
    for count in range(2, len(token_ids)):
        assert "]" not in decode(token_ids[:count])  # so that there is something to overcome
    assert [StopStrings(["]"], decode)(token_ids[:count]) for count in range(len(token_ids) + 1)] == [None] + len(
        token_ids
    ) * [1]


def byte_fallback_byte(value):
    """The id of a byte piece: the 256 of them stand behind the special pieces."""
    (token_id,) = [i for i in range(300) if byte_fallback()._special.id_to_token(i) == f"<0x{value:02X}>"]
    return token_id


def test_a_reply_is_decoded_once_until_a_string_is_there():
    calls = []

    def decode(token_ids):
        calls.append(len(token_ids))
        return "x" * len(token_ids)

    assert StopStrings(["y"], decode)(list(range(5000))) is None
    assert calls == [5000]
    calls.clear()
    assert StopStrings(["x" * 700], decode)(list(range(5000))) == 700
    assert len(calls) < 20
    calls.clear()
    assert StopStrings([], decode)([1, 2]) is None
    assert not calls


@pytest.mark.parametrize("strings", ["]", [""], ["]", "\N{REPLACEMENT CHARACTER}"]])
def test_strings_that_cannot_end_a_reply_are_refused(strings):
    with pytest.raises(ValueError, match="stop strings must be a sequence of strings that are not empty"):
        StopStrings(strings, str)

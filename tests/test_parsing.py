"""Reading of replies: which text is the action."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.games.parsing import extract_action, extract_answer, read_number, spoken
from dfc.games.printable import without_unseen


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("[4]", "[4]"),
        ("I play [col 3], surely.", "[col 3]"),
        ("[4] [4]", "[4]"),
        ("[4] [5]", None),
        ("[4] [ 4 ]", None),  # different groups, even if they mean the same
        ("[[4]]", "[4]"),
        ("[4", None),
        ("[4\n]", "[4\n]"),
        ("<think>[1]</think>[2]", "[2]"),
        ("<Think>[1]</THINK>[2]", "[2]"),
        ("[1]</think>[2]", "[2]"),
        ("<think>[1]", None),
        ("<Think>[1]", None),
        ("[1] <think>", None),
        ("</think>[1]<think>[2]", None),
        ("<think>a</think><think>[2]", None),
        ("<think>a</think>b</think>[2]", "[2]"),
        ("<think>[2]</think>", None),
        ("<thin\u212a>[2]", "[2]"),  # a Kelvin sign is no k
    ],
)
def test_the_action_is_the_only_group_behind_the_thoughts(reply, action):
    assert extract_action(reply) == action


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<Answer>crane</Answer>", "crane"),
        ("<Answer>\n crane \n</Answer>", "crane"),
        ("<Think>slate? <Answer>slate</Answer></Think> So: <Answer>crane</Answer>!", "crane"),
        ("<Answer>a</Answer> or <Answer>b</Answer>", None),
        ("<Answer>a</Answer>, yes, <Answer> a </Answer>", "a"),
        ("I use <Answer> tags: <Answer>a</Answer>", "a"),  # the innermost pair, as with brackets
        ("<Answer>a</Answer></Answer>", "a"),
        ("<Answer>a", None),
        ("a</Answer>", None),
        ("</Answer>a<Answer>", None),
        ("<answer>a</answer>", None),  # Paprika reads its tags letter by letter
        ("<Answer></Answer>", ""),
        ("<think><Answer>a</Answer>", None),
        ("<Answer>[1, 2]</Answer>", "[1, 2]"),
    ],
)
def test_the_answer_stands_between_the_only_tags_behind_the_thoughts(reply, answer):
    assert extract_answer(reply) == answer


@pytest.mark.parametrize(
    ("reply", "said"),
    [("a", "a"), (" a\nb ", "a\nb"), ("<think>x</think> a", "a"), ("x</think>", ""), ("<think>x", None), ("", "")],
)
def test_what_is_said_is_the_text_behind_the_thoughts(reply, said):
    assert spoken(reply) == said


def test_every_character_that_is_not_seen_is_removed_and_all_others_stay():
    ignorable = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0}
    ignorable |= {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
    ignorable |= {0x2800, 0xFFFC, 0x16FE4, 0x1D159}  # drawn as nothing, though Unicode counts them as symbols

    def kept(character):
        kind = unicodedata.category(character)[0]
        if kind == "Z" or character in "\t\r\v\f\x1c\x1d\x1e\x1f\x85":
            return " "
        return "" if character != "\n" and (kind == "C" or ord(character) in ignorable) else character

    for start in range(0, sys.maxunicode + 1, 128):
        characters = [chr(code) for code in range(start, start + 128)]
        for between in ("a", "\u00e9"):
            assert without_unseen(between.join(characters)) == between.join(map(kept, characters)), hex(start)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("<thi\u200bnk>secret</think>aloud", "aloud"),
        ("<thi\0nk>secret", None),
        ("aloud</th\u00adink>", ""),
        ("\ufeff[col\u00a03]\u202e", "[col 3]"),
        ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u0937"),  # a joiner of Hindi is lost
        ("\u2764\ufe0f", "\u2764"),  # and the colour of a heart
        ("ti\u2800g\ufffce\U00016fe4r\U0001d159", "tiger"),
    ],
)
def test_what_is_not_seen_is_removed_before_anything_is_read(reply, said):
    assert spoken(reply) == said


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("000", "0"),
        ("07", "7"),
        ("9" * 9000, "9" * 9000),
        *((wrong, None) for wrong in ("", " 1", "+1", "-1", "1.5", "1e3", "1_0", "\u0663", "\u00b2", "\uff11", "x")),
    ],
)
def test_a_number_is_made_of_the_digits_0_to_9(text, number):
    assert read_number(text) == number


REPLIES = st.lists(
    st.sampled_from(("[", "]", "<Answer>", "</Answer>", "<think>", "</think>", "a", "b", " ", "\n")), max_size=14
).map("".join)


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(reply=REPLIES)
def test_both_readers_agree_with_a_search_for_every_group(reply):
    behind = reply[reply.rfind("</think>") + len("</think>") :] if "</think>" in reply else reply
    for reader, opening, closing in ((extract_action, "[", "]"), (extract_answer, "<Answer>", "</Answer>")):
        groups = set()
        for start in range(len(behind)):
            for end in range(start, len(behind)):
                if behind.startswith(opening, start) and behind.startswith(closing, end):
                    inner = behind[start + len(opening) : end]
                    if end >= start + len(opening) and opening not in inner and closing not in inner:
                        groups.add(f"[{inner}]" if opening == "[" else inner.strip())
        expected = groups.pop() if len(groups) == 1 and "<think>" not in behind else None
        assert reader(reply) == expected


@pytest.mark.parametrize(
    "piece", ["[", "]", "[]", "<Answer>", "</Answer>", "<think>", "</think>", " ", "<", "[a", "\u20ac", "\u200b"]
)
def test_reading_takes_time_in_proportion_to_the_length(piece):
    reply = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    for reader in (extract_action, extract_answer, spoken):
        reader(reply)
        reader(f"<Answer>{reply}")
    assert time.process_time() - begun < 2.0  # 0.3 s measured; a quadratic reader takes hours

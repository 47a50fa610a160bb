"""The one fold of all that compares words, and everywhere that it is used."""

# ruff: noqa: RUF001 - letters that look alike are what is tested here

import json
import pathlib
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.games.dialogue.codenames import GIVER, Codenames
from dfc.games.dialogue.guess_what import objection_to
from dfc.games.dialogue.taboo import Taboo, table
from dfc.games.dialogue.words import bare, stem, stems
from dfc.games.folding import fold
from dfc.games.paprika import accusations, customer_service, twenty_questions
from dfc.games.paprika.world import fold as fold_case
from dfc.methods.language_self_play.hygiene import Memory, Written, inspect

GAMES = pathlib.Path(__file__).parents[1] / "games"
LOOK_ALIKES = str.maketrans("aceopxyijsABCEHKMOPTX", "асеорхуіјѕАВСЕНКМОРТХ")
DISGUISES = {
    "wide": lambda text: "".join(chr(ord(c) + 0xFEE0) if 33 <= ord(c) < 127 else c for c in text),
    "accents": lambda text: "".join(f"{c}\u0301" if c.isalpha() else c for c in text),
    "Cyrillic": lambda text: text.translate(LOOK_ALIKES),
    "zero width": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "variation selectors": "\ufe00".join,
    "bold": lambda text: "".join(chr(0x1D41A + ord(c) - ord("a")) if "a" <= c <= "z" else c for c in text),
}


def texts(data):
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)


def pools():
    for path in sorted(GAMES.rglob("data/*")):
        text = path.read_text(encoding="utf-8")
        yield from texts(json.loads(text)) if path.suffix == ".json" else text.splitlines()


def test_no_text_in_ascii_of_any_pool_is_changed():
    found = [text for text in pools() if text.isascii()]
    assert len(found) > 30_000
    assert [text for text in found if fold(text) != text] == []
    ascii_text = "".join(map(chr, range(32, 127))) + "\n"
    assert fold(ascii_text) == ascii_text


@settings(deadline=None)  # the first text that is not ASCII reads the tables
@given(st.text())
def test_what_is_folded_is_not_changed_by_folding_again(text):
    assert fold(fold(text)) == fold(text)


def test_letters_of_other_scripts_and_styles_become_ascii_letters():
    assert fold("wаtеr ŵåţėř wα\u200btEr 🅦🄰ⓣ🇪Ꭱ 𝔀𝓪𝓽𝓮𝓻 ɹǝʇɐʍ øłđ ﬁre") == "water water watEr WAtER water retaw old fire"
    assert fold("日本 서울") == "日本 서울"  # what is like no Latin letter stays
    assert all(fold(chr(code)).isascii() or not chr(code).isascii() for code in range(0, sys.maxunicode, 97))


@pytest.mark.parametrize("kind", DISGUISES)
def test_words_of_dialogue_games_are_compared_folded(kind):
    hidden = DISGUISES[kind]("peach")
    assert (bare(hidden), stem(hidden), list(stems(hidden))) == ("peach", "peach", ["peach"])


@pytest.mark.parametrize("rules", ["strict", "source"])
@pytest.mark.parametrize("kind", DISGUISES)
def test_the_target_of_taboo_in_letters_that_look_alike_pays_nothing(kind, rules):
    won = []
    for entry in table():
        game = Taboo(rules=rules)
        game.reset(0)
        game.target, game.taboo = entry.target, entry.taboo
        game.step(f"CLUE: {DISGUISES[kind](entry.target)}")
        won += [] if game.over else [entry.target]
    assert won == []


@pytest.mark.parametrize("kind", DISGUISES)
def test_questions_of_guess_what_cannot_be_guesses_in_disguise(kind):
    candidates = ("peach", "apple")
    assert objection_to(f"Is it a {DISGUISES[kind]('peach')}?", candidates) == objection_to(
        "Is it a peach?", candidates
    )


@pytest.mark.parametrize("kind", DISGUISES)
def test_no_clue_of_codenames_is_a_word_of_the_board_in_disguise(kind):
    game = Codenames()
    game.reset(0)
    own = game.hidden("own")
    before = game.observation(GIVER)
    game.step(f"CLUE: {DISGUISES[kind](own[0])}\nTARGETS: {own[0]}")
    assert game.over or game.observation(GIVER) != before
    assert not game.clue


@pytest.mark.parametrize("kind", DISGUISES)
def test_halves_of_the_pool_in_disguise_are_read_as_lists(kind):
    topics = [scenario.name for scenario in twenty_questions.TwentyQuestions.scenarios("test")]
    text = f"Is it one of {', '.join(DISGUISES[kind](topic) for topic in topics[:20])}?"
    assert DISGUISES[kind]("xy") != "xy"
    game = twenty_questions.TwentyQuestions()
    game.reset(0)
    assert game._unanswerable(text) is not None


@pytest.mark.parametrize("kind", DISGUISES)
def test_remedies_and_accusations_are_read_in_disguise(kind):
    hide = DISGUISES[kind]
    several = "Clean the port. Use plane mode."
    assert not customer_service.clearly(hide(several), "phone")
    assert customer_service.proposals(hide("Clean the port."), "phone") == customer_service.proposals(
        "Clean the port.", "phone"
    )
    assert accusations.accused(hide("I accuse Ann Lee."), ("Ann Lee", "Bo Lee")) == {"Ann Lee"}


def test_paprika_folds_case_as_well():
    assert fold_case("São PAULO\u200b") == "sao paulo"


@pytest.mark.parametrize("kind", DISGUISES)
def test_a_query_in_disguise_is_a_duplicate(kind):
    query = "Please explain why a copy of the same old question is never a new one."
    assert inspect([Written(query), Written(DISGUISES[kind](query))], Memory()) == [None, "duplicate"]


def test_what_nobody_sees_is_an_empty_query_and_fills_no_template():
    unseen = "\u200b\u2060\u3164"
    assert inspect([Written(unseen)], Memory()) == ["empty"]
    template = "Say {something} aloud."
    assert inspect([Written(f"Say {unseen} aloud.", template=template)], Memory()) == ["template"]
    assert inspect([Written("Say it\u200b aloud.", template=template)], Memory()) == [None]


def test_a_tag_with_something_unseen_or_a_look_alike_in_it_is_a_tag():
    for text in ("a [st\u200bart] b", "a [stаrt] b", "a ［start］ b"):
        assert inspect([Written(text, tags=("[start]",))], Memory()) == ["tags"]

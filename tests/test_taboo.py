"""Taboo: its rules and prices, its table of words, what each seat may know, and what its players claim."""

import re

import pytest
from game_turns import played

from dfc.games import registry, scripted
from dfc.games.dialogue import taboo
from dfc.games.dialogue.dialogue_game import after_tag, one_line
from dfc.games.dialogue.taboo import DESCRIBER, GUESSER, Taboo, entries, table
from dfc.games.dialogue.words import STOP_WORDS, bare, stem, stems
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 90, "validation": 60, "test": 60}
WON, LOST, BROKEN_OFF = ((outcome,) * 2 for outcome in (Outcome.WIN, Outcome.LOSS, Outcome.INVALID))


def started(target="", taboo_words=("drink", "river", "wet"), **options):
    game = Taboo(**options)
    game.reset(0)
    if target:
        game.target, game.taboo = target, taboo_words
    return game


@pytest.mark.parametrize(("wrong", "quality"), [(0, 100.0), (1, 50.0), (2, pytest.approx(100 / 3))])
def test_a_correct_guess_wins_for_both_and_is_worth_less_each_round(wrong, quality):
    game = started("water")
    for _ in range(wrong):
        played(game, "CLUE: thirst", "GUESS: juice")
    assert "quality" not in game.measures()
    played(game, "CLUE: from the tap", "GUESS: Water!")
    assert (game.outcomes, game.measures()) == (WON, {"rounds": wrong + 1.0, "quality": quality})


def test_three_wrong_guesses_lose_and_are_worth_nothing():
    game = started("water")
    for _ in range(3):
        assert not game.over
        played(game, "CLUE: thirst", "GUESS: a water")
    assert (game.outcomes, game.measures()["quality"], game.abort_reason) == (LOST, 0.0, None)
    assert (game.lost_by, "lost_by" in game.to_json()) == (None, False)


@pytest.mark.parametrize(
    "clue",
    [
        "Water",
        "waters the plants",
        "you are DRINKING it",
        "wa-ter",
        "river/bank",
        "it's 'wet'.",
        "the rivers' end",
        "it is w e t",
        "W. A. T. E. R.",
    ],
)
def test_a_clue_with_a_form_of_a_forbidden_word_loses_at_once_and_breaks_nothing_off(clue):
    game = started("water")
    assert played(game, f"CLUE: {clue}") is Verdict.PLAYED
    assert (game.outcomes, game.measures()["quality"]) == (LOST, 0.0)
    assert (game.forfeited_by, game.abort_reason) == (None, None)
    assert (game.lost_by, game.loss_reason) == (0, "The clue holds the word or a taboo word.")


@pytest.mark.parametrize("clue", ["sweater", "seat erosion", "it is by the sea", "drunk", "rive", "wetland without it"])
def test_words_are_compared_whole(clue):
    """A word within another one is no use of it (clemcore's issue 9)."""
    game = started("water")
    played(game, f"CLUE: {clue}")
    assert not game.over


@pytest.mark.parametrize(
    "reply", ["water", "clue: tap", "Clue: tap", "GUESS: tap", "CLUE tap", "CLUE:", "A CLUE: tap", ""]
)
def test_a_wrong_tag_of_the_describer_breaks_the_game_off(reply):
    game = started("water")
    assert played(game, reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, DESCRIBER)
    assert game.abort_reason == "No action could be read. Reply in the form CLUE: ...."


def test_a_wrong_tag_of_the_guesser_breaks_the_game_off():
    game = started("water")
    played(game, "CLUE: thirst")
    assert played(game, "CLUE: water") is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GUESSER)
    assert game.measures() == {"rounds": 1.0}


def test_thoughts_are_not_read_and_lines_are_joined():
    game = started("water")
    played(game, "<think>GUESS: water</think>\nCLUE: from\n  the tap")
    assert game.clues == ["from the tap"]
    assert game.observation(GUESSER).split("\n")[-1] == "CLUE: from the tap"


def test_what_is_read_of_a_line():
    assert one_line("x" * 5000) == "x" * 2000
    assert after_tag("GUESS:word", "GUESS:") == "word"
    assert bare("Don't-do THAT!") == "dontdo that"
    assert sorted(stems("The wet/waters of it")) == ["water", "wet", "wetwat"]


# ---- what each seat may know ----------------------------------------------------------------------------------------


def test_the_guesser_reads_the_same_whatever_the_words_are():
    """Twins: two tasks, the same clues and guesses; every text the guesser is shown is the same, as is its list."""
    first, second = Taboo(), Taboo()
    for game, seed in ((first, 0), (second, 1)):
        game.reset(seed)
    assert first.target != second.target
    for replies in (("CLUE: one thing", "GUESS: nothing"), ("CLUE: another", "GUESS: nobody")):
        for reply in replies:
            seat = first.to_move
            assert first.observation(GUESSER) == second.observation(GUESSER)
            if seat == GUESSER:
                assert first.legal_actions() == second.legal_actions()
            first.step(reply)
            second.step(reply)
    assert first.observation(GUESSER) == second.observation(GUESSER)


@pytest.mark.parametrize("split", SPLITS)
def test_the_guesser_is_never_shown_the_target_or_a_taboo_word(split):
    for task in range(SPLITS[split]):
        game = Taboo(split=split)
        game.reset(task)
        game.step("CLUE: something")
        shown = re.findall("[a-z]+", game.observation(GUESSER).lower())
        named = {game.target, *game.taboo} & set(shown)
        # The rules themselves are the same in every game, so a word that they hold tells nothing.
        assert named <= set(re.findall("[a-z]+", game._rules(GUESSER).lower()))


# ---- the table ------------------------------------------------------------------------------------------------------


def test_splits_are_disjoint_and_hold_the_same_number_of_each_experiment():
    assert dict(Taboo.splits) == SPLITS
    targets = [entry.target for split in SPLITS for entry in entries(split)]
    assert len(targets) == len(set(targets)) == 210
    for split, size in SPLITS.items():
        kinds = [entry.experiment for entry in entries(split)]
        assert kinds == ["high", "medium", "low"] * (size // 3)
        for task, entry in enumerate(entries(split)):
            game = Taboo(split=split)
            game.reset(task + 5 * size)
            assert (game.target, game.taboo, game.experiment) == (entry.target, entry.taboo, entry.experiment)
    assert Taboo().experiment == ""


def test_every_word_of_the_table_can_be_played():
    assert len(table()) >= 250
    assert len({entry.target for entry in table()}) == len(table())
    for entry in table():
        words = (entry.target, *entry.taboo, *entry.hints)
        assert len(entry.taboo) == len(entry.hints) == 3
        assert all(re.fullmatch("[a-z]+", word) for word in words), words
        assert not STOP_WORDS & set(words)
        forbidden = {stem(word) for word in (entry.target, *entry.taboo)}
        assert len(forbidden) == 4, words
        assert not forbidden & {stem(hint) for hint in entry.hints}, words
        assert len(set(entry.hints)) == 3


# ---- players --------------------------------------------------------------------------------------------------------


def game_of(first, second, split, task):
    game = registry.make("clem_taboo", split=split)
    game.reset(task)
    players = [scripted.player(game, strength) for strength in (first, second)]
    rng = GameRng(task)
    while not game.over:
        game.step(players[game.to_move].act(game, rng))
    return game


@pytest.mark.parametrize("split", SPLITS)
def test_two_strong_players_find_every_word_at_once(split):
    for task in range(SPLITS[split]):
        assert game_of("strong", "strong", split, task).measures()["quality"] == 100.0


def test_simple_players_are_between_random_and_strong_ones():
    quality = {
        strength: sum(game_of(strength, strength, "test", task).measures()["quality"] for task in range(60)) / 60
        for strength in ("random_legal", "simple", "strong")
    }
    assert quality["random_legal"] < 5.0
    assert 60.0 < quality["simple"] < quality["strong"]


def test_the_guesser_looks_at_the_clues_only():
    game, twin = started("water"), started("castle", ("king", "tower", "medieval"))
    for player in (scripted.player(game, "strong"), scripted.player(game, "simple")):
        replies = []
        for each in (game.clone(), twin.clone()):
            each.step("CLUE: thirst, tap, pour")
            replies.append(player.act(each, GameRng(3)))
        assert replies[0] == replies[1] == "GUESS: water"


def test_players_describe_a_word_that_is_not_in_the_table():
    game = started("zeppelin", ("air", "fly", "balloon"))
    for strength in ("simple", "strong"):
        played = game.clone()
        assert played.step(scripted.player(game, strength).act(played, GameRng(0))) is Verdict.PLAYED
        assert not played.over
    assert taboo.forbidden("zeppelin", ("air",)) == {stem("zeppelin"), "air"}

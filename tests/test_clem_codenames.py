"""Codenames: its rules, aborts and ends, its boards, what each seat may know, and its players."""

import pytest

from dfc.games import registry, scripted
from dfc.games.dialogue.codenames import (
    ASSASSIN,
    EXPERIMENTS,
    GIVER,
    GUESSER,
    KINDS,
    NEUTRAL,
    OPPONENT,
    OWN,
    Codenames,
    groups,
    pool,
)
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 65, "validation": 65, "test": 130}
WON, LOST, BROKEN_OFF = ((outcome,) * 2 for outcome in (Outcome.WIN, Outcome.LOSS, Outcome.INVALID))
RISK_LOW, NO_OPPONENT, USUAL, HARD = 0, 4, 5, 6  # numbers of experiments


def started(task=USUAL, **options):
    game = Codenames(**options)
    game.reset(task)
    return game


def clue(game, *targets, word="xylem"):
    return game.step(f"CLUE: {word}\nTARGETS: {', '.join(targets)}")


def guess(game, *words):
    return game.step(f"GUESS: {', '.join(words)}")


def test_all_words_of_the_team_win_for_both():
    game = started()
    own = game.hidden(OWN)
    clue(game, *own[:4])
    assert "quality" not in game.measures()
    guess(game, *own[:4])
    assert (game.hidden(OWN), len(game.hidden(OPPONENT)), game.round) == (own[4:], 7, 2)
    clue(game, *own[4:])
    guess(game, *own[4:])
    assert (game.outcomes, game.measures()) == (WON, {"rounds": 2.0, "quality": 100.0})


def test_guesses_end_with_the_first_word_that_is_not_the_teams():
    game = started()
    own, neutral = game.hidden(OWN), game.hidden(NEUTRAL)
    clue(game, *own[:3])
    guess(game, own[0], neutral[0], own[1])
    assert own[0] in game.revealed
    assert neutral[0] in game.revealed
    assert own[1] not in game.revealed
    assert f"Guessed: {neutral[0]}, a neutral word." in game.observation(GIVER)


def test_the_word_of_the_assassin_loses_at_once():
    game = started()
    clue(game, game.hidden(OWN)[0])
    guess(game, game.hidden(ASSASSIN)[0])
    assert (game.outcomes, game.measures()["quality"], game.abort_reason) == (LOST, 0.0, None)


@pytest.mark.parametrize(("task", "rounds"), [(USUAL, 8), (HARD, 4)])
def test_the_opponents_win_by_their_own_pace(task, rounds):
    game = started(task)
    for _ in range(rounds):
        assert not game.over
        clue(game, game.hidden(OWN)[0])
        guess(game, (game.hidden(NEUTRAL) or game.hidden(OWN))[0])
    # As clembench's master, which looks at the board after a valid reply only: one more clue is asked for.
    assert (game.over, game.to_move, game.hidden(OPPONENT), game.round) == (False, GIVER, [], rounds + 1)
    assert "Open words, the opponents': none" in game.observation(GIVER)
    against_the_rules = game.clone()
    assert clue(against_the_rules, "unicycle") is Verdict.FORFEIT_ILLEGAL
    assert against_the_rules.outcomes == BROKEN_OFF
    assert clue(game, game.hidden(OWN)[0]) is Verdict.PLAYED
    assert (game.outcomes, game.measures()["quality"], game.lost_by) == (LOST, 0.0, None)


def test_the_last_word_of_the_opponents_loses_whoever_reveals_it():
    game = started(NO_OPPONENT)
    for _ in range(8):
        assert not game.over
        clue(game, game.hidden(OWN)[0])
        guess(game, game.hidden(OPPONENT)[0])
    assert game.outcomes == LOST


@pytest.mark.parametrize(
    "reply",
    ["CLUE: sea", "TARGETS: {0}", "CLUE: sea TARGETS: {0}", "clue: sea\ntargets: {0}", "CLUE: sea\nTARGETS:",
     "CLUE: sea\nTARGETS: {0}\nGood luck!", "GUESS: {0}", "", "CLUE:sea\nTARGETS: {0}", "CLUE: sea\nTARGETS:{0}",
     "CLUE: sea\n\nTARGETS: {0}", "CLUE: sea\nTARGETS: {0}, , {0}"],
)  # fmt: skip
def test_a_clue_without_its_two_tagged_lines_breaks_the_game_off(reply):
    game = started()
    assert game.step(reply.format(game.hidden(OWN)[0])) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GIVER)
    assert game.measures() == {"rounds": 1.0}


@pytest.mark.parametrize(
    ("words", "targets", "why"),
    [
        ("two words", "{0}", "a single word of letters"),
        ("sea, 2", "{0}", "a single word of letters"),
        ("{0}", "{0}", "a word on the board"),
        ("{0}s", "{1}", "a form of one"),
        ("{0}{1}", "{0}", "made of words on the board"),
        ("xylem", "unicycle", "not among the open words"),
        ("xylem", "{0}, {0}", "named twice"),
    ],
)
def test_a_clue_against_the_rules_breaks_the_game_off(words, targets, why):
    game = started()
    own = ["whale", "lamp"]  # of a table of our own, so that a plural is a plural
    game.kinds = dict(zip(own, [OWN, OWN], strict=True)) | {"storm": OPPONENT}
    assert game.step(f"CLUE: {words.format(*own)}\nTARGETS: {targets.format(*own)}") is Verdict.FORFEIT_ILLEGAL
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GIVER)
    assert why in game.abort_reason


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("GUESS: {0}, {1}, {2}", Verdict.FORFEIT_ILLEGAL),
        ("GUESS: xylem", Verdict.FORFEIT_ILLEGAL),
        ("GUESS: {0}, {0}", Verdict.FORFEIT_ILLEGAL),
        ("GUESS: {0}\nand more", Verdict.FORFEIT_MALFORMED),
        ("guess: {0}", Verdict.FORFEIT_MALFORMED),
        ("GUESS:{0}", Verdict.FORFEIT_MALFORMED),
        ("GUESS:\n{0}", Verdict.FORFEIT_MALFORMED),
        ("GUESS: {0}, , {1}", Verdict.FORFEIT_MALFORMED),
        ("GUESS: '{0}', {1}.", Verdict.PLAYED),
        ("GUESS:  {0},{1},", Verdict.PLAYED),
        ("GUESS: {0}", Verdict.PLAYED),
    ],
)
def test_guesses_are_at_most_as_many_as_targets_and_lie_open(said, verdict):
    game = started()
    own = game.hidden(OWN)
    clue(game, *own[:2])
    assert game.step(said.format(*own)) is verdict
    assert game.over == (verdict is not Verdict.PLAYED)


def test_a_revealed_word_is_no_target_again_and_two_further_tries_can_be_given():
    game = started(illegal_allowance=2, malformed_allowance=2)
    own = game.hidden(OWN)
    clue(game, own[0])
    guess(game, own[0])
    assert [clue(game, own[0]), clue(game, own[0]), clue(game, own[0])] == [
        Verdict.ILLEGAL, Verdict.ILLEGAL, Verdict.FORFEIT_ILLEGAL,
    ]  # fmt: skip


def test_the_guesser_reads_the_same_whosever_the_words_are():
    """Twins: one board, other kinds and targets; all that the guesser is shown is the same until a word is revealed."""
    game, twin = started(), started()
    words = list(game.kinds)
    twin.kinds = dict(zip(words, reversed(list(game.kinds.values())), strict=True))
    assert game.observation(GUESSER) == twin.observation(GUESSER)
    clue(game, *game.hidden(OWN)[:2])
    clue(twin, *twin.hidden(OWN)[3:5])
    assert game.targets != twin.targets
    assert game.observation(GUESSER) == twin.observation(GUESSER)
    assert game.legal_actions() == twin.legal_actions()
    for strength in ("simple", "strong"):
        player = scripted.player(game, strength)
        assert player.act(game, GameRng(3)) == player.act(twin, GameRng(3))


def test_boards_are_disjoint_and_as_their_experiments_say():
    assert dict(Codenames.splits) == SPLITS
    assert len(EXPERIMENTS) == 13
    seen = set()
    for split, size in SPLITS.items():
        for task in range(size):
            game = started(task + 7 * size, split=split)
            experiment = EXPERIMENTS[game.experiment]
            assert game.experiment == list(EXPERIMENTS)[task % 13]
            assert tuple(list(game.kinds.values()).count(kind) for kind in KINDS) == experiment.words
            assert set(game.kinds) <= pool(experiment.pool)
            assert len(game.kinds) == 25
            seen.add(frozenset(game.kinds))
    assert len(seen) == sum(SPLITS.values())
    assert Codenames().experiment == ""


def test_the_table_is_of_plain_words():
    assert len(pool("all")) >= 200
    for name, words in groups().items():
        assert len(set(words)) == len(words) > 1
        assert all(word.isascii() and word.isalpha() and word.islower() for word in (name, *words))


def test_strong_players_win_more_than_simple_ones_and_random_ones_never():
    won = {}
    for strength in scripted.STRENGTHS:
        player, won[strength] = scripted.player("clem_codenames", strength), 0
        for task in range(65):
            game = registry.make("clem_codenames", split="validation")
            game.reset(task)
            rng = GameRng(task)
            while not game.over:
                game.step(player.act(game, rng))
            won[strength] += game.outcomes == WON
    assert won["random_legal"] < 5
    assert won["simple"] < 25
    assert won["strong"] > 35

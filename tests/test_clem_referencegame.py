"""The reference game: its rules and aborts, its triples of grids, what each seat may know, and its players."""

import re

import pytest

from dfc.games import registry, scripted
from dfc.games.dialogue.grids import EMPTY, split_of, text_of
from dfc.games.dialogue.reference_game import EXPERIMENTS, FOLLOWER, GIVER, NAMES, ReferenceGame, triples
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 256, "validation": 60, "test": 90}
WON, LOST, BROKEN_OFF = ((outcome,) * 2 for outcome in (Outcome.WIN, Outcome.LOSS, Outcome.INVALID))


def started(task=0, order=None, **options):
    game = ReferenceGame(**options)
    game.reset(task)
    game.order = order or game.order
    return game


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("answer", NAMES)
def test_the_place_of_the_target_among_the_followers_grids_wins(order, answer):
    game = started(order=order)
    game.step("Expression: this one")
    assert "quality" not in game.measures()
    assert game.step(f"Answer: {answer}") is Verdict.PLAYED
    right = order[NAMES.index(answer)] == 0
    assert (game.outcomes, game.measures()["quality"]) == ((WON, 100.0) if right else (LOST, 0.0))
    assert game.abort_reason is None


@pytest.mark.parametrize(
    "reply",
    [
        *(
            "Answer: second",
            "answer:2",
            "ANSWER: Second.",
            "Answer: second grid.",
            "Answer: 2nd",
            "\nAnswer:\nsecond\n",
        ),
        *("Answer: second or first", "Answer: second, since the first is full", "Answer: 22", "Answer: secondly"),
    ],
)
def test_the_answer_is_what_follows_the_tag_whatever_follows_it_on_its_line(reply):
    """As clembench's pattern for instances in English, which asks for nothing below that line."""
    pattern = r"^(?P<tag>answer:\s*)(?P<content>(?P<response>first|second|third|1|2|3).*\n*(?P<remainder>(.|\n)*))"
    found = re.match(pattern, reply.strip(), re.IGNORECASE)
    assert (found["response"].lower() in ("second", "2"), found["remainder"]) == (True, "")
    game = started()
    game.step("<think>second</think>expression: x")
    assert game.step(reply) is Verdict.PLAYED
    assert game.answer == "second"


@pytest.mark.parametrize(
    "reply",
    ["", "x", "Expression:", "Answer: first", "Expression: x\nIt is easy.", "So:\nExpression: x", "Expression x"],
)
def test_an_expression_of_another_form_breaks_the_game_off(reply):
    assert not re.fullmatch(r"expression:\s*.+", reply, re.IGNORECASE)
    game = started()
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GIVER)


@pytest.mark.parametrize(
    "reply",
    [
        *("", "first", "Answer:", "Answer: fourth", "Answer: the first", "Answer: grid 1", "Answer: one"),
        *("Answer: first\nI am sure", "Answer - first"),
    ],
)
def test_an_answer_of_another_form_breaks_the_game_off(reply):
    game = started()
    game.step("Expression: x")
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, FOLLOWER)
    assert game.measures() == {"rounds": 1.0}


def test_the_expression_is_shown_on_one_line_and_no_longer_than_what_is_read():
    game = started()
    game.step("Expression:  a\t b " + "y" * 5000)
    shown = game.observation(FOLLOWER).split("\n")[-1]
    assert shown.startswith("Expression: a b yyy")
    assert len(shown) < 2001


# ---- tasks and secrets ----------------------------------------------------------------------------------------------


def test_the_splits_share_no_grid_and_the_experiments_take_turns():
    assert dict(ReferenceGame.splits) == SPLITS
    for split, size in SPLITS.items():
        found = triples()[split]
        assert len(found) == size == len({triple.grids[0] for triple in found})
        assert {split_of(grid) for triple in found for grid in triple.grids} == {split}
        assert all(len(set(triple.grids)) == 3 for triple in found)
        for task in range(0, size, 7):
            game = ReferenceGame(split=split)
            game.reset(task + size)
            assert (game.grids, game.order) == (found[task].grids, found[task].order)
            assert game.experiment == EXPERIMENTS[task % 5]
    assert ReferenceGame().experiment == ""


def test_the_target_is_as_often_in_each_place():
    """Neither always to answer the same nor the grid with most or fewest cells is worth much more than a third."""
    found = [triple for split in SPLITS for triple in triples()[split]]
    for place in range(3):
        assert 0.27 < sum(triple.order[place] == 0 for triple in found) / len(found) < 0.4
    for pick in (min, max):
        right = sum(
            pick(triple.grids, key=lambda grid: sum(row.count(EMPTY) for row in grid)) == triple.grids[0]
            for triple in found
        )
        assert right / len(found) < 0.5


def test_twins_that_differ_in_what_is_meant_look_the_same_to_the_follower():
    """The same three grids in the same order for the follower; another one is the target."""
    first = started(order=(1, 0, 2))
    second = started(order=(0, 1, 2))
    second.grids = (first.grids[1], first.grids[0], first.grids[2])
    assert first.seen == second.seen
    for game in (first, second):
        assert game.observation(GIVER).index(text_of(game.grids[0])) < game.observation(GIVER).index("Another grid:")
        game.step("Expression: an X")
    assert first.observation(FOLLOWER) == second.observation(FOLLOWER)
    assert first.legal_actions() == second.legal_actions()
    for strength in ("simple", "strong"):
        player = scripted.player(first, strength)
        assert player.act(first, GameRng(5)) == player.act(second, GameRng(5))


def test_the_giver_does_not_learn_the_followers_order():
    assert started(order=(0, 1, 2)).observation(GIVER) == started(order=(2, 0, 1)).observation(GIVER)


# ---- players --------------------------------------------------------------------------------------------------------


def quality_of(strength):
    total = 0.0
    for task in range(SPLITS["test"]):
        game = registry.make("clem_referencegame", split="test")
        game.reset(task)
        player, rng = scripted.player(game, strength), GameRng(task)
        while not game.over:
            game.step(player.act(game, rng))
        total += game.measures()["quality"]
    return total / SPLITS["test"]


def test_strong_players_find_every_grid_and_simple_ones_some():
    assert quality_of("strong") == 100.0
    assert quality_of("random_legal") < 50.0 < quality_of("simple") < 90.0


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_grid_written_out_is_found_by_the_strong_follower(experiment):
    """Rows in words, as a chat model might say them."""
    game = started(EXPERIMENTS.index(experiment), split="test")
    rows = [[str(c + 1) for c, cell in enumerate(row) if cell != EMPTY] for row in game.grids[0]]
    said = "; ".join(f"row {r + 1}: columns {', '.join(columns)}" for r, columns in enumerate(rows) if columns)
    game.step(f"Expression: {said}")
    game.step(scripted.player(game, "strong").act(game, GameRng(0)))
    assert game.outcomes == WON

"""What dialogue games pay without the skill that they ask for: nothing where models train, else a known figure."""

import pytest
from test_original_instances import file_of, written

from dfc.games import registry, scripted
from dfc.games.dialogue import words
from dfc.games.dialogue.grid_copies import COPYING, copied
from dfc.games.dialogue.grids import BLANK, EMPTY, text_of
from dfc.games.dialogue.guess_what import GUESSER, GuessWhat
from dfc.games.dialogue.image_game import DONE, GIVER, ImageGame
from dfc.games.dialogue.reference_game import ReferenceGame
from dfc.games.dialogue.taboo import table
from dfc.games.dialogue.text_map import TextMap, TextMapGraph
from dfc.games.game import Outcome
from dfc.games.rng import GameRng

LOST = (Outcome.LOSS, Outcome.LOSS)
WRITTEN = {
    "in one line": lambda grid: " ".join(text_of(grid).split("\n")),
    "with strokes": lambda grid: text_of(grid).replace("\n", " / "),
    "row by row": lambda grid: "; ".join(f"row {n}: {' '.join(row)}" for n, row in enumerate(grid, 1)),
    "row by row with numbers": lambda grid: " ".join(f"{n}. {' '.join(row)}" for n, row in enumerate(grid, 1)),
    "as words": " ".join,
    "as one word": "".join,
    "column by column": lambda grid: " ".join(map("".join, zip(*grid, strict=True))),
    "with dots": lambda grid: " ".join(grid).replace(EMPTY, "."),
    "with zeros and commas": lambda grid: text_of(grid).replace("\n", " | ").replace(" ", ",").replace(EMPTY, "0"),
    "in small letters": lambda grid: " ".join(grid).lower(),
    "with wide letters": lambda grid: " ".join(grid).translate({65 + n: 0xFF21 + n for n in range(26)}),
    "in other words": lambda grid: f"your grid is {' '.join(grid)} and this is all",
}


def image(task, **options):
    game = ImageGame(split="test", **options)
    game.reset(task)
    return game


def reference(task, **options):
    game = ReferenceGame(split="test", **options)
    game.reset(task)
    return game


@pytest.mark.parametrize("way", WRITTEN)
def test_a_grid_that_is_copied_into_one_line_pays_nothing(way):
    for task in range(50):
        drawing, finding = image(task), reference(task)
        for game in (drawing, finding):
            assert COPYING in game.observation(GIVER)
        drawing.step(f"Command: {WRITTEN[way](drawing.target)}")
        finding.step(f"Expression: {WRITTEN[way](finding.grids[0])}")
        for game in (drawing, finding):
            assert (game.outcomes, game.lost_by, game.measures()["quality"]) == (LOST, GIVER, 0.0)


def test_a_copy_takes_what_was_drawn_before():
    game = image(0)
    game.step("Command: the letters in their cells")
    game.step(text_of(game.target))
    game.step(f"Command: {' '.join(game.target)}")
    assert (game.outcomes, game.measures()["quality"]) == (LOST, 0.0)


def test_a_copied_grid_is_paid_by_the_rules_of_the_source(tmp_path):
    drawing = registry.make("clem_imagegame", instances=written(tmp_path, file_of("clem_imagegame")))
    drawing.reset(0)
    finding = reference(0, rules="source")
    assert COPYING not in drawing.observation(GIVER) + finding.observation(GIVER)
    drawing.step(f"Command: {' '.join(drawing.target)}")
    drawing.step(text_of(drawing.target))
    drawing.step(DONE)
    finding.step(f"Expression: {' '.join(finding.grids[0])}")
    finding.step(f"Answer: {('first', 'second', 'third')[finding.order.index(0)]}")
    assert [game.measures()["quality"] for game in (drawing, finding)] == [100.0, 100.0]
    with pytest.raises(ValueError, match="rules must be one of '', 'strict', 'source', got 'hard'"):
        ImageGame(rules="hard")
    with pytest.raises(ValueError, match="rules must be one of"):
        ReferenceGame(rules="hard")


@pytest.mark.parametrize(
    "text",
    [
        "X in row 1, columns 1, 3 and 5, and X in row 2, columns 2 and 4",
        "the first row is X X X X X, all other rows but the last one are empty",
        "a plus sign: the third row and the third column",
        "rows 1 1 2 2 3, columns 1 2 3 4 5",
        "Put an X into each cell of rows 2, 3, 4",
        "both rows ..... the rest ----- is empty ===== like the first one (-----)",
        "It looks like an E; the middle bar is 2 cells long, and 3 4 5 of row 3 are empty",
    ],
)
def test_descriptions_are_no_copies(text):
    grids = [reference(task).grids[0] for task in range(90)] + [image(task).target for task in range(59)]
    assert [grid for grid in grids if copied(text, grid)] == []


@pytest.mark.parametrize("kind", [ImageGame, ReferenceGame])
def test_scripted_players_copy_nothing(kind):
    for split in ("train", "validation", "test", "fresh"):
        for name in ("simple", "strong"):
            for task in range(25):
                game, rng = kind(split=split), GameRng(task)
                player = scripted.player(game, name)
                game.reset(task)
                while not game.over:
                    game.step(player.act(game, rng))
                assert game.lost_by is None


def test_a_row_a_command_is_still_a_description():
    """What docs/games.md says of it: quality 100."""
    for task in range(59):
        game = image(task)
        for number, row in enumerate(game.target, 1):
            game.step(f"Command: row {number} is {' '.join(row)}")
            game.step(text_of((*game.target[:number], *BLANK[number:])))
        game.step(DONE)
        assert game.measures()["quality"] == 100.0


def test_done_pays_for_what_was_drawn_alone():
    first = image(0)
    first.step(DONE)
    early = image(0)
    early.step("Command: draw")
    early.step(text_of(BLANK))
    early.step(DONE)
    assert [(game.outcomes, game.measures()["quality"]) for game in (first, early)] == [(LOST, 0.0)] * 2


# ---- games that are only measured by: the figures of docs/games.md --------------------------------------------------


def test_questions_in_the_order_of_a_dictionary_find_every_word():
    won = 0
    for task in range(60):
        game = GuessWhat(split="test")
        game.reset(task)
        left, middle = sorted(game.instance.candidates), ""
        while not game.over:
            if game.to_move == GUESSER:
                middle = left[len(left) // 2]
                asked = f"QUESTION: Does it come before {middle} in a dictionary?"
                game.step(asked if len(left) > 1 else f"GUESS: {left[0]}")
            else:
                yes = game.instance.target < middle
                game.step(f"ANSWER: {'yes' if yes else 'no'}")
                left = [word for word in left if (word < middle) == yes]
        won += game.measures()["quality"] == 100.0
    assert won == 60


@pytest.mark.parametrize(("kind", "mean"), [(TextMap, 49.3), (TextMapGraph, 52.5)])
def test_done_after_one_step_on_a_map(kind, mean):
    total = 0.0
    for task in range(50):
        game = kind(split="test")
        game.reset(task)
        game.step(game.legal_actions()[0])
        game.step(next(action for action in game.legal_actions() if "DONE" in action))
        total += game.measures()["quality"]
    assert total / 50 == pytest.approx(mean, abs=0.05)


# ---- originals: the fold changes nothing in ASCII -------------------------------------------------------------------

PLAIN = ["waterfall", "retaw", "wa ter", "a wet, running thing: lake-like!", "The lakes'", "w4ter", "salt-sea", "sea"]


def verdict(path, clue):
    game = registry.make("clem_taboo", instances=path)
    game.reset(0)
    game.step(f"CLUE: {clue}")
    return game.outcomes, game.loss_reason, None if game.over else game.observation(1)


def test_ascii_clues_are_scored_on_originals_as_without_the_fold(tmp_path, monkeypatch):
    path = written(tmp_path, file_of("clem_taboo"))
    clues = PLAIN + [word for entry in table() for word in (entry.target, *entry.taboo, *entry.hints)]
    folded = [verdict(path, clue) for clue in clues]
    words.stem.cache_clear()
    monkeypatch.setattr(words, "fold", lambda text: text)
    assert [verdict(path, clue) for clue in clues] == folded
    words.stem.cache_clear()
    lost = [clue for clue, (outcomes, *_) in zip(clues, folded, strict=True) if outcomes]
    assert {"salt-sea", "sea", "water", "The lakes'"} <= set(lost)
    assert not {"waterfall", "retaw", "wa ter", "w4ter"} & set(lost)


def test_any_letters_are_a_clue_of_codenames_on_originals(tmp_path):
    path = written(tmp_path, file_of("clem_codenames"))
    for rules, said in (("", True), ("source", True), ("strict", False)):
        game = registry.make("clem_codenames", instances=path, rules=rules)
        game.reset(0)
        game.step("CLUE: owlic\nTARGETS: owl, ice")
        assert (game.clue == "owlic") is said

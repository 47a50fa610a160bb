"""The image game: what a drawing is worth, how a game ends, what each seat may know; grids and the talk about them."""

import random
import re

import pytest
from game_turns import played

from dfc.games import registry, scripted
from dfc.games.bots.grids import commands, draw
from dfc.games.dialogue.grids import (
    BLANK,
    CELLS,
    EMPTY,
    GENERATORS,
    diagonals,
    draw_of,
    f1,
    glyphs,
    read_grid,
    split_of,
    text_of,
    with_cells,
)
from dfc.games.dialogue.image_game import DONE, FOLLOWER, GIVER, ImageGame, targets
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 80, "validation": 60, "test": 59}
WON, LOST, BROKEN_OFF = ((outcome,) * 2 for outcome in (Outcome.WIN, Outcome.LOSS, Outcome.INVALID))
TARGET = ("AABBA", *(EMPTY * 5,) * 4)


def started(target=TARGET, **options):
    game = ImageGame(**options)
    game.reset(0)
    game.target = target
    return game


def by_hand(target, drawn):
    """Precision and recall from sets of (row, column, letter)."""
    if [len(row) for row in target] != [len(row) for row in drawn]:
        return 0.0
    wanted, found = (
        {(r, c, cell) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell != EMPTY}
        for grid in (target, drawn)
    )
    hits = len(wanted & found)
    if not hits:
        return 0.0
    precision, recall = hits / len(found), hits / len(wanted)
    return 2 * precision * recall / (precision + recall)


# ---- rules and quality ----------------------------------------------------------------------------------------------


def test_f1_is_that_of_precision_and_recall():
    rng = random.Random(0)
    for _ in range(3000):
        shape = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 4))]
        other = shape if rng.random() < 0.8 else [rng.randrange(1, 4) for _ in range(rng.randrange(1, 4))]
        grids = [tuple("".join(rng.choice("AB" + EMPTY) for _ in range(n)) for n in sizes) for sizes in (shape, other)]
        assert f1(*grids) == pytest.approx(by_hand(*grids)), grids


@pytest.mark.parametrize(
    ("row", "quality", "outcomes"),
    [
        ("A A B B A", 100.0, WON),
        ("A A ▢ ▢ ▢", 100 * 4 / 7, LOST),
        ("B B A A B", 0.0, LOST),
        ("▢ ▢ ▢ ▢ ▢", 0.0, LOST),
        ("A A B B A A", 0.0, LOST),  # of another size
    ],
)
def test_done_pays_the_last_drawing(row, quality, outcomes):
    game = started()
    last = "\n".join([row, *["▢ ▢ ▢ ▢ ▢"] * 4])
    assert played(game, "Command: one", text_of(TARGET), "Command: two", last, DONE) is Verdict.PLAYED
    assert (game.outcomes, game.abort_reason) == (outcomes, None)
    assert game.measures() == {"rounds": 3.0, "quality": pytest.approx(quality)}


def test_done_as_the_first_command_is_a_loss_worth_nothing():
    """There the environment raises, and calls any DONE a success."""
    game = started()
    assert played(game, DONE) is Verdict.PLAYED
    assert (game.outcomes, game.measures()["quality"]) == (LOST, 0.0)


@pytest.mark.parametrize("reply", ["Command: DONE", "Command: done", "Command:DONE", " COMMAND :\tDone "])
def test_spellings_of_done(reply):
    """clembench's pattern is ``^\\s*command\\s*:\\s*done\\s*$``, in any case."""
    game = started()
    assert re.match(r"^\s*command\s*:\s*done\s*$", reply, re.IGNORECASE)
    played(game, reply)
    assert game.outcomes == LOST


def test_done_with_a_full_stop_is_a_command_as_in_clembench():
    game = started()
    assert played(game, "Command: DONE.") is Verdict.PLAYED
    assert (game.over, game.to_move, game.commands) == (False, FOLLOWER, ["DONE."])


@pytest.mark.parametrize("last", [text_of(TARGET), "X X"])
def test_the_last_round_ends_the_game_and_its_drawing_counts(last):
    game = started(rounds=2)
    played(game, "Command: DONE with row 1", text_of(BLANK), "Command: b")
    assert (game.over, game.max_game_length) == (False, 4)
    played(game, last)
    assert (game.outcomes, game.measures()["quality"]) == ((WON, 100.0) if last != "X X" else (LOST, 0.0))


def test_fifty_rounds_are_the_limit():
    game = started()
    for number in range(50):
        played(game, f"Command: {number}", text_of(TARGET))
    assert (game.outcomes, game.actions_played) == (WON, 100)


@pytest.mark.parametrize("reply", ["", "DONE", "Instruction: x", "Command:", "Put A\nCommand: x", "A B"])
def test_a_command_without_its_tag_breaks_the_game_off(reply):
    game = started()
    assert played(game, reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GIVER)


@pytest.mark.parametrize(
    "reply",
    [
        *("Command:Put A in row 1", "Command: x\nWhat do you see?", "Command: x\n\nCommand: y"),
        *("Command: DONE\nand more", "Command:DONE!"),
    ],
)
def test_a_command_without_a_blank_or_with_a_second_line_breaks_the_game_off(reply):
    """clembench's pattern is ``^command: [^\\n]+$``, in any case."""
    game = started()
    assert not re.match(r"^command: [^\n]+$", reply, re.IGNORECASE)
    assert played(game, reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GIVER)


@pytest.mark.parametrize("tag", ["Command:", "command:", "COMMAND:", "cOmMaNd:"])
def test_the_tag_of_a_command_is_read_in_any_case(tag):
    game = started()
    assert re.match(r"^command: [^\n]+$", f"{tag} Put A in row 1", re.IGNORECASE)
    assert played(game, f"{tag} Put A in row 1") is Verdict.PLAYED
    assert game.observation(FOLLOWER).endswith("\nCommand: Put A in row 1")
    played(game, text_of(TARGET), f"{tag} done")
    assert game.outcomes == WON


@pytest.mark.parametrize(
    "reply", ["", "AB\nCD", "a b", "Here it is:\nA B", "A B\nC D\nDone.", "A B | C", "```\nA B\n```", "1 2", "A, B"]
)
def test_an_answer_that_is_no_grid_breaks_the_game_off(reply):
    game = started()
    played(game, "Command: x")
    assert played(game, reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, FOLLOWER)
    assert "quality" not in game.measures()


def test_a_command_is_one_line_and_a_grid_is_read_with_its_lines():
    game = started()
    played(game, "<think>DONE?</think>Command:  fill\trow 1\n")
    assert game.observation(FOLLOWER).endswith("\nCommand: fill row 1")
    played(game, "<think>A</think>\n\n A  B\t. _ □\n\n▢ ▢ ▢ ▢ ▢ \n")
    assert game.drawn == ("AB▢▢▢", "▢▢▢▢▢")
    assert game.observation(GIVER) == "What is your next command?"
    assert read_grid("A " * 1000) == ("A" * 1000,)


# ---- what each seat may know ----------------------------------------------------------------------------------------


def test_the_follower_reads_the_same_whatever_the_target_is_and_the_giver_whatever_is_drawn():
    first, second = started(), started(with_cells(BLANK, [(2, 2)], "Q"))
    other = started()
    for reply in ("Command: x", text_of(BLANK), "Command: y", text_of(TARGET), "Command: z"):
        if first.to_move == FOLLOWER:
            assert first.observation(FOLLOWER) == second.observation(FOLLOWER)
            assert first.legal_actions() == second.legal_actions()
        else:
            assert first.observation(GIVER) == other.observation(GIVER)
        other.step("Q Q" if other.to_move == FOLLOWER else reply)
        first.step(reply)
        second.step(reply)
    assert text_of(TARGET) in started().observation(GIVER)


# ---- grids ----------------------------------------------------------------------------------------------------------


def test_splits_are_disjoint_and_the_experiments_take_turns():
    assert dict(ImageGame.splits) == SPLITS
    found = [grid for split in SPLITS for grid in targets()[split]]
    assert len(found) == len(set(found)) == sum(SPLITS.values())
    for split, size in SPLITS.items():
        assert {split_of(grid) for grid in targets()[split]} == {split}
        game = ImageGame(split=split)
        game.reset(size + 1)
        assert (game.target, game.experiment) == (targets()[split][1], "random")
    assert ImageGame().experiment == ""


@pytest.mark.parametrize("kind", GENERATORS)
def test_generated_grids_have_their_size_and_splits_their_share(kind):
    rng = GameRng(0)
    grids = {GENERATORS[kind](rng) for _ in range(400)}
    assert len(grids) > 150
    for grid in grids:
        assert [len(row) for row in grid] == [5] * 5
        assert read_grid(text_of(grid)) == grid
        assert sum(cell != EMPTY for row in grid for cell in row) >= (4 if kind != "random" else 5)
    assert 0.5 < sum(split_of(grid) == "train" for grid in grids) / len(grids) < 0.7
    assert split_of(draw_of("test", kind, rng)) == "test"


def test_lines_and_glyphs():
    assert all(len({r - c for r, c in d}) == 1 or len({r + c for r, c in d}) == 1 for d in diagonals())
    assert sorted(map(len, diagonals())) == sorted([2, 3, 4, 5, 4, 3, 2] * 2)
    assert len(glyphs()) == len(set(glyphs().values())) == 26


# ---- the language of the bots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GENERATORS)
def test_what_is_said_of_a_grid_draws_it(kind):
    rng = GameRng(1)
    for _ in range(100):
        grid = GENERATORS[kind](rng)
        assert draw("; ".join(commands(grid))) == grid


@pytest.mark.parametrize(
    ("said", "picture"),
    [
        ("Fill the first row with A.", "AAAAA/...../...../...../....."),
        ("Put a B in the middle column", "..B../..B../..B../..B../..B.."),
        ("Place C in rows 1, 3 and 5, columns 2-3", ".CC../...../.CC../...../.CC.."),
        ("D at (2, 4) and (5, 1)", "...../...D./...../...../D...."),
        ("Put E in all the corners", "E...E/...../...../...../E...E"),
        ("Fill the entire grid with F then clear row 2", "FFFFF/...../FFFFF/FFFFF/FFFFF"),
        ("the diagonal from the top right to the bottom left is G", "....G/...G./..G../.G.../G...."),
        ("The last row: H. The rest: I", "IIIII/IIIII/IIIII/IIIII/HHHHH"),
        ("Put J in the second column, rows 2 to 4", "...../.J.../.J.../.J.../....."),
        ("It looks like a T", ".XXX./..X../..X../..X../..X.."),
        ("Put K in the 4th row, third column", "...../...../...../..K../....."),
        ("Put L in the center", "...../...../..L../...../....."),
        ("nothing of this kind", "...../...../...../...../....."),
    ],
)
def test_simple_english_is_drawn(said, picture):
    assert "/".join(draw(said)).replace(EMPTY, ".") == picture


def test_reading_a_long_text_takes_no_time():
    for text in (", " * 1000, "row 1" + ", and" * 400, "rows 1 to " * 200, "1 " * 1000 + "row", "put A in " * 220):
        assert len(draw(text)) == 5


def game_of(first, second, task):
    game = registry.make("clem_imagegame", split="test")
    game.reset(task)
    players = [scripted.player(game, strength) for strength in (first, second)]
    rng = GameRng(task)
    while not game.over:
        game.step(players[game.to_move].act(game, rng))
    return game


def test_strong_players_draw_every_grid_and_simple_ones_some_of_it():
    tasks = range(SPLITS["test"])
    assert all(game_of("strong", "strong", task).measures()["quality"] == 100.0 for task in tasks)
    simple = sum(game_of("simple", "simple", task).measures()["quality"] for task in tasks) / len(tasks)
    assert 60.0 < simple < 90.0


def test_the_follower_of_both_strengths_looks_at_the_commands_only():
    first, second = started(), started(with_cells(BLANK, CELLS, "Q"))
    for strength in ("simple", "strong"):
        player = scripted.player(first, strength)
        for game in (first, second):
            if game.to_move == GIVER:
                game.step("Command: Put A in row 1")
        assert player.act(first, GameRng(0)) == player.act(second, GameRng(0))

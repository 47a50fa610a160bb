"""Minesweeper of Paprika: numbers and openings against brute force on arrays, the tasks, what is read and told."""

import collections
import functools
import itertools
import json

import game_turns
import numpy as np
import pytest

from dfc.games.bots import puzzles
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika import minesweeper
from dfc.games.paprika.minesweeper import Minesweeper
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng

SIZES = {"train": 1000, "test": 200}
PLAYER = next(found for found in puzzles.BOTS if found.kind is Minesweeper)
started = functools.partial(game_turns.started, Minesweeper)


def reveal(row, column):
    return tagged(f"reveal {row} {column}")


def mines_of(game):
    """The mines as an array of 0 and 1."""
    cells = game.rows * game.columns
    return np.array([game._mined >> n & 1 for n in range(cells)]).reshape(game.rows, game.columns)


def counted(mines):
    """Mines among the eight neighbours of every cell, by shifts of a padded array."""
    wide = np.pad(mines, 1)
    rows, columns = mines.shape
    return sum(wide[1 + a : 1 + a + rows, 1 + b : 1 + b + columns] for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)


def opened_by(cell, mines):
    """What opening a safe cell opens on a fresh board: the zero cells joined to it and all that touch them."""
    numbers = counted(mines)
    zeros = {cell} if numbers[cell] == 0 else set()
    while True:
        touched = {
            (r, c)
            for r, c in itertools.product(range(mines.shape[0]), range(mines.shape[1]))
            if any(max(abs(r - a), abs(c - b)) <= 1 for a, b in zeros)
        }
        more = {at for at in touched if numbers[at] == 0}
        if more == zeros:
            return touched | {cell}
        zeros = more


def board_text(opened, mines):
    numbers = counted(mines)
    return [
        " ".join(
            "#" if (r, c) not in opened else str(numbers[r, c]) if numbers[r, c] else "*" for c in range(mines.shape[1])
        )
        for r in range(mines.shape[0])
    ]


# ---- the tasks ----------------------------------------------------------------------------------------------------


def all_tasks():
    return [task for split in SIZES for task in minesweeper._tasks()[split]]


def test_no_two_tasks_lay_the_same_mines_for_every_first_cell():
    answers = set()
    for rows, columns, order in all_tasks():
        mines = len(order) - 1
        laid = (frozenset([c for c in order if c != first][:mines]) for first in range(rows * columns))
        answers.add((rows, columns, tuple(laid)))
    assert len(answers) == 1200


def test_sides_are_uniform_and_one_cell_of_ten_has_a_mine():
    shapes = collections.Counter()
    cells = collections.Counter()
    for rows, columns, order in all_tasks():
        shapes[rows, columns] += 1
        assert len(set(order)) == len(order) == max(1, rows * columns // 10) + 1
        assert set(order) <= set(range(rows * columns))
        if (rows, columns) == (4, 4):
            cells.update(order)
    assert sorted(shapes) == list(itertools.product((4, 5, 6, 7), repeat=2))
    assert all(45 <= count <= 110 for count in shapes.values())  # 75 expected
    assert len(cells) == 16
    assert [started(n).mines for n in range(30)] == [max(1, len(started(n).board) // 10) for n in range(30)]


# ---- opening cells ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SIZES)
def test_the_first_cell_of_every_task_is_safe_whichever_it_is(split):
    game = Minesweeper(split=split)
    for task in range(0, SIZES[split], 3):
        game.reset(task)
        order = minesweeper._tasks()[split][task][2]
        for row, column in itertools.product(range(game.rows), range(game.columns)):
            game.reset(task)
            game.step(reveal(row, column))
            first = row * game.columns + column
            assert not game.hit_mine
            assert game.board[first] != "#"
            assert game._mined.bit_count() == game.mines
            assert {n for n in range(len(game.board)) if game._mined >> n & 1} == set(
                [c for c in order if c != first][: game.mines]
            )


def test_the_first_cell_on_the_board_is_safe_after_turns_that_were_wasted():
    for task in range(50):
        order = minesweeper._tasks()["train"][task][2]
        game = started(task)
        game.step(tagged("reveal 9 9"))
        assert game._mined == 0
        game.step(reveal(*divmod(order[0], game.columns)))
        assert not game.hit_mine
        assert game.measures()["wasted_turns"] == 1


def test_neighbours_are_the_cells_that_touch():
    for rows, columns in itertools.product((4, 5, 6, 7), repeat=2):
        for n, near in enumerate(minesweeper.neighbours(rows, columns)):
            cells = range(rows * columns)
            apart = [max(abs(m // columns - n // columns), abs(m % columns - n % columns)) for m in cells]
            assert list(near) == [m for m in cells if apart[m] == 1]


def test_play_is_that_of_a_model_on_arrays():
    ends = collections.Counter()
    for task in range(300):
        game = started(task, max_turns=6 + task % 15)
        opened, wasted = set(), 0
        rng = GameRng(task)
        while not game.over:
            cell = rng.randrange(game.rows + 1), rng.randrange(game.columns)
            if opened and rng.randrange(2):  # often a safe one, so that some games are won
                cell = min(c for c in np.ndindex(game.rows, game.columns) if c not in opened and not mines_of(game)[c])
            before = game.observation(0) if game.actions_played else ""
            game.step(reveal(*cell))
            mines = mines_of(game)
            if cell[0] == game.rows:
                wasted += 1
                expected = ["There is no such cell.", *board_text(opened, mines)]
            elif cell in opened:
                wasted += 1
                expected = ["That cell is open already.", *board_text(opened, mines)]
                assert expected[1:] == before.split("\n")[-game.rows :]
            elif mines[cell]:
                expected = ["There is a mine in that cell."]
            else:
                opened |= opened_by(cell, mines)
                expected = board_text(opened, mines)
            assert game.observation(0).split("\n") == expected
            left = game.rows * game.columns - game.mines - len(opened)
            hit = cell[0] < game.rows and bool(mines[cell])
            assert game.measures() == {
                "cells_opened": len(opened),
                "cells_left": left,
                "hit_mine": hit,
                "wasted_turns": wasted,
            }
            assert game.over == (hit or left == 0 or game.actions_played == game.max_turns)
            if game.over:
                assert game.outcomes == ((Outcome.WIN if left == 0 else Outcome.LOSS),)
                ends["mine" if hit else "all open" if left == 0 else "turns"] += 1
            else:
                hidden = [c for c in np.ndindex(game.rows, game.columns) if c not in opened]
                assert game.legal_actions() == [reveal(*c) for c in hidden]
    assert all(ends[end] >= 20 for end in ("mine", "all open", "turns")), ends


def test_the_last_safe_cell_opened_in_the_last_turn_succeeds():
    won = 0
    for task in range(40):
        game = started(task)
        moves = []
        while not game.over:
            safe = [n for n, symbol in enumerate(game.board) if symbol == "#" and not game._mined >> n & 1]
            moves.append(reveal(*divmod(safe[-1], game.columns)))
            game.step(moves[-1])
        if game.outcomes != (Outcome.WIN,):
            continue
        won += 1
        for turns, outcome in ((len(moves), Outcome.WIN), (len(moves) - 1, Outcome.LOSS)):
            if turns:
                again = started(task, max_turns=turns)
                for move in moves[:turns]:
                    again.step(move)
                assert again.outcomes == (outcome,)
    assert won > 20


def test_twenty_wasted_turns_fail():
    game = started()
    for turn in range(20):
        assert not game.over
        assert game.step(tagged(f"reveal {turn + 7} 0")) is Verdict.PLAYED
    assert game.outcomes == (Outcome.LOSS,)
    assert game.measures()["wasted_turns"] == 20


def test_the_rules_name_the_board_and_its_mines():
    for task in range(20):
        game = started(task)
        rules = game.observation(0)
        assert "\n" not in rules
        assert f"{game.rows} rows and {game.columns} columns" in rules
        assert f"with {game.mines} mine{'s' * (game.mines > 1)}." in rules


# ---- secrecy ------------------------------------------------------------------------------------------------------


def with_position(game, **changes):
    data = game.to_json()
    data["state"]["position"].update(changes)
    twin = Minesweeper()
    twin.from_json(json.loads(json.dumps(data)))
    return twin


def test_before_the_first_cell_the_task_cannot_be_seen():
    for task in range(40):
        game = started(task)
        other = with_position(game, order=list(range(game.mines + 1)))
        assert other.observation(0) == game.observation(0)
        assert other.legal_actions() == game.legal_actions()
        assert other.measures() == game.measures()


def consistent(game):
    """Every layout of mines that shows the same numbers, by brute force, as arrays."""
    hidden = [n for n, symbol in enumerate(game.board) if symbol == "#"]
    shape = game.rows, game.columns
    found = []
    for laid in itertools.combinations(hidden, game.mines):
        mines = np.zeros(game.rows * game.columns, int)
        mines[list(laid)] = 1
        mines = mines.reshape(shape)
        numbers = counted(mines)
        if all(
            s == "#" or (0 if s == "*" else int(s)) == numbers[divmod(n, shape[1])] for n, s in enumerate(game.board)
        ):
            found.append(mines)
    return found


def positions(count):
    """Positions in the middle of games on boards with at most three mines."""
    for task in range(10_000):
        game = started(task)
        if game.mines > 2 + (task % 40 == 0):
            continue
        rng = GameRng(task)
        for _ in range(1 + rng.randrange(4)):
            legal = game.legal_actions()
            if not game.over:
                game.step(legal[rng.randrange(len(legal))])
        if not game.over:
            yield game
            count -= 1
            if not count:
                return


def test_a_player_cannot_tell_mines_apart_that_the_numbers_do_not():
    compared = opened = 0
    for game in positions(40):
        own = mines_of(game)
        for other in consistent(game)[:10]:
            if (other == own).all():
                continue
            mined = sum(1 << int(n) for n in np.flatnonzero(other))
            swapped = with_position(game, mined=mined)
            assert swapped.observation(0) == game.observation(0)
            assert swapped.legal_actions() == game.legal_actions()
            assert swapped.measures() == game.measures()
            for choose in (PLAYER.simple, PLAYER.strong):
                assert choose(swapped, 0, GameRng(5)) == choose(game, 0, GameRng(5))
            compared += 1
            for cell in np.ndindex(game.rows, game.columns):  # one that shows the same in both
                same = (own[cell], counted(own)[cell]) == (other[cell], counted(other)[cell])
                if (
                    same
                    and counted(own)[cell]
                    and not own[cell]
                    and game.board[cell[0] * game.columns + cell[1]] == "#"
                ):
                    twins = game.clone(), swapped.clone()
                    for twin in twins:
                        twin.step(reveal(*cell))
                    assert twins[0].observation(0) == twins[1].observation(0)
                    opened += 1
    assert compared > 60
    assert opened > 20


# ---- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["reveal 2 3", "Reveal 2 3", "REVEAL  2\t3", " reveal 02 003 ", "reveal\n2\n3"])
def test_spellings_of_a_cell(answer):
    assert started()._read(tagged(answer)) == reveal(2, 3)


# ---- copies and players -------------------------------------------------------------------------------------------


def test_the_strong_player_opens_a_cell_of_the_lowest_probability_of_a_mine():
    for game in positions(120):
        row, column = map(int, PLAYER.strong(game, 0, GameRng(1))[len("<Answer>reveal ") : -len("</Answer>")].split())
        layouts = consistent(game)
        risk = sum(layouts)
        hidden = [
            cell for cell in np.ndindex(game.rows, game.columns) if game.board[cell[0] * game.columns + cell[1]] == "#"
        ]
        lowest = min(risk[cell] for cell in hidden)
        assert risk[row, column] == lowest
        empty = {c: sum(counted(m)[c] + m[c] == 0 for m in layouts) for c in hidden if risk[c] == lowest}
        assert empty[row, column] == max(empty.values())


def test_the_simple_player_never_opens_a_mine_that_one_number_gives_away():
    safe = 0
    for game in positions(150):
        action = PLAYER.simple(game, 0, GameRng(2))
        assert action in game.legal_actions()
        row, column = map(int, action[len("<Answer>reveal ") : -len("</Answer>")].split())
        risk = sum(consistent(game))
        near = minesweeper.neighbours(game.rows, game.columns)
        given = {
            n
            for at, symbol in enumerate(game.board)
            if symbol not in "#*"
            for n in near[at]
            if game.board[n] == "#" and sum(game.board[m] == "#" for m in near[at]) == int(symbol)
        }
        assert row * game.columns + column not in given
        safe += risk[row, column] == 0
    assert safe > 40


def test_every_way_to_lay_mines_beside_numbers_is_counted_once():
    numbers = [(2, (0, 1, 2, 3)), (1, (2, 3, 4)), (1, (0, 5))]
    found = list(puzzles._ways(numbers, frozenset(), frozenset(), 4))
    possible = (frozenset(n for n in range(6) if bits >> n & 1) for bits in range(64))
    expected = {laid for laid in possible if all(count == len(laid.intersection(cells)) for count, cells in numbers)}
    assert len(found) == len(expected)
    assert set(found) == {laid for laid in expected if len(laid) <= 4}

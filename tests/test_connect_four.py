"""Connect Four: lines against brute force, known numbers of positions, what is shown."""

import functools
import itertools
import random

import pytest

from dfc.games.textarena.connect_four import ConnectFour, has_line

# ---- Connect Four -------------------------------------------------------------------------------------------------


@functools.cache
def all_lines(rows, cols):
    """Every four cells in a line, cell by cell."""
    steps = [(0, 1), (1, 0), (1, 1), (1, -1)]
    lines = []
    for row, col, (down, right) in itertools.product(range(rows), range(cols), steps):
        line = [(row + i * down, col + i * right) for i in range(4)]
        if all(0 <= r < rows and 0 <= c < cols for r, c in line):
            lines.append(frozenset(line))
    return lines


def as_bits(cells, rows):
    return sum(1 << (col * (rows + 1) + row) for row, col in cells)


@pytest.mark.parametrize(
    ("rows", "cols", "number"), [(6, 7, 69), (4, 4, 10), (12, 15, 495), (9, 4, None), (4, 9, None)]
)
def test_a_line_is_found_exactly_where_brute_force_finds_one(rows, cols, number):
    lines = all_lines(rows, cols)
    assert number in {None, len(lines)}  # 69 is known; 495 = 12 * 12 + 9 * 15 + 2 * 9 * 12
    rng = random.Random(0)
    cells = list(itertools.product(range(rows), range(cols)))
    found = 0
    for _ in range(1500):
        board = frozenset(rng.sample(cells, rng.randrange(len(cells))))
        expected = any(line <= board for line in lines)
        found += expected
        assert has_line(as_bits(board, rows), rows) is expected
    assert 100 < found < 1400


@pytest.mark.parametrize(("rows", "cols"), [(6, 7), (4, 4), (5, 8)])
def test_four_cells_are_a_line_and_three_of_them_are_not(rows, cols):
    for line in all_lines(rows, cols):
        assert has_line(as_bits(line, rows), rows)
        for cell in line:
            assert not has_line(as_bits(line - {cell}, rows), rows)


def test_random_games_end_exactly_when_brute_force_sees_a_line_or_a_full_board():
    for seed in range(200):
        rng = random.Random(seed)
        rows, cols = rng.choice([(6, 7), (4, 5), (7, 4)])
        game = ConnectFour(num_rows=rows, num_cols=cols)
        game.reset(seed)
        columns = [[] for _ in range(cols)]
        while not game.over:
            assert game.legal_actions() == [f"[col {c}]" for c in range(cols) if len(columns[c]) < rows]
            action = rng.choice(game.legal_actions())
            seat = game.to_move
            columns[int(action[5:-1])].append(seat)
            game.step(action)
            own = {(r, c) for c in range(cols) for r, owner in enumerate(columns[c]) if owner == seat}
            won = any(line <= own for line in all_lines(rows, cols))
            full = all(len(column) == rows for column in columns)
            assert game.over is (won or full)
            if game.over:
                assert game.outcomes == (
                    tuple("win" if s == seat else "loss" for s in (0, 1)) if won else ("draw",) * 2
                )


def test_connect_four_has_the_known_numbers_of_positions():
    # Positions after n discs on 6 rows and 7 columns, sequence A212693 of the encyclopedia of integer sequences.
    game = ConnectFour()
    game.reset(0)
    positions = {(0, 0): game}
    for known in (7, 49, 238, 1120, 4263, 16422):
        after = {}
        for position in positions.values():
            for action in position.legal_actions():
                twin = position.clone()
                twin.step(action)
                after[tuple(twin.discs)] = twin
        positions = after
        assert len(positions) == known


def test_connect_four_texts():
    game = ConnectFour()
    game.reset(0)
    assert game.observation(0) == (
        "Connect Four on 6 rows and 7 columns. You are Player 0 and drop X; four in a line win. Columns are numbered "
        "from 0. Reply with one open column in brackets, for example [col 3]."
    )
    game.step("[3]")
    assert game.observation(0) == "Your disc lies in row 0."
    assert game.observation(1) == (
        "Connect Four on 6 rows and 7 columns. You are Player 1 and drop O; four in a line win. Columns are numbered "
        "from 0. Reply with one open column in brackets, for example [col 3].\nOpponent plays [col 3], row 0."
    )
    game.step("[3]")
    assert game.observation(0) == "Your disc lies in row 0.\nOpponent plays [col 3], row 1."


def test_blind_connect_four_tells_columns_only():
    game = ConnectFour(is_open=False)
    game.reset(0)
    assert game.observation(0).endswith("for example [col 3]. The board is hidden.")
    rng = random.Random(0)
    while not game.over:
        seat, action = game.to_move, rng.choice(game.legal_actions())
        game.step(action)
        assert game.observation(seat) == ""
        assert game.observation(1 - seat).split("\n")[-1] == f"Opponent plays {action}."
        assert "row " not in game.observation(1 - seat)


def test_connect_four_shows_the_board_to_the_seat_to_move():
    game = ConnectFour(num_rows=4, num_cols=5, show_board=True)
    game.reset(0)
    empty = ". . . . ."
    assert game.observation(0).split("\n")[1:] == ["0 1 2 3 4", empty, empty, empty, empty]
    assert len(game.observation(1).split("\n")) == 1
    game.step("[col 4]")
    assert game.observation(1).split("\n")[1:] == [
        "Opponent plays [col 4], row 0.", "0 1 2 3 4", empty, empty, empty, ". . . . X",
    ]  # fmt: skip
    game.step("[col 4]")
    assert game.observation(0).split("\n") == [
        "Your disc lies in row 0.", "Opponent plays [col 4], row 1.", "0 1 2 3 4", empty, empty, ". . . . O",
        ". . . . X",
    ]  # fmt: skip


def test_wide_boards_keep_their_columns_aligned():
    game = ConnectFour(num_rows=4, num_cols=12, show_board=True)
    game.reset(0)
    game.step("[col 11]")
    header, *_, bottom = game.observation(1).split("\n")[2:]
    assert header == " 0  1  2  3  4  5  6  7  8  9 10 11"
    assert bottom == " .  .  .  .  .  .  .  .  .  .  .  X"

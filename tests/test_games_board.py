"""Tic Tac Toe, Connect Four and Nim against TextArena 0.6.4, brute force and known figures."""

import copy
import functools
import itertools
import operator
import random

import pytest

from dfc.games import registry
from dfc.games.game import Outcome, Verdict
from dfc.games.textarena.connect_four import ConnectFour, has_line
from dfc.games.textarena.nim import Nim
from dfc.games.textarena.tic_tac_toe import TicTacToe

GAMES = 2000

# ---- agreement with TextArena -------------------------------------------------------------------------------------
#
# A pair is our game, theirs, and a function that returns both boards in one notation. Candidates are replies that
# both grammars read; the replies they read differently have their own tests below.


def oracle(env):
    env.reset(2)
    return env


def tic_tac_toe(_):
    from textarena.envs.TicTacToe.env import TicTacToeEnv

    def boards(game, env):
        cells = ["O" if game.marks[0] >> c & 1 else "X" if game.marks[1] >> c & 1 else "" for c in range(9)]
        return cells, [cell for row in env.state.game_state["board"] for cell in row]

    return TicTacToe(), oracle(TicTacToeEnv()), boards, [f"[{n}]" for n in range(12)] + ["[ 4 ]", "[007]", "[8 ]"]


def connect_four(rng, *, is_open):
    from textarena.envs.ConnectFour.env import ConnectFourEnv

    rows, cols = rng.choice([(6, 7), (6, 7), (4, 4), (5, 8), (7, 4), (12, 15)])
    game = ConnectFour(is_open=is_open, num_rows=rows, num_cols=cols)
    return connect_four_pair(game, ConnectFourEnv(is_open=is_open, num_rows=rows, num_cols=cols))


def connect_four_large(_):
    import textarena

    return connect_four_pair(registry.make("ConnectFour-v0-large"), textarena.make("ConnectFour-v0-large"))


def connect_four_pair(game, env):
    rows, cols = game.num_rows, game.num_cols

    def boards(game, env):
        grid = [[disc(game, row, col) for col in range(cols)] for row in reversed(range(rows))]
        return grid, env.state.game_state["board"]

    texts = [text for n in range(cols + 2) for text in (f"[col {n}]", f"[{n}]", f"[Col{n}]", f"[COL  0{n}]")]
    return game, oracle(env), boards, texts


def connect_four_open(rng):
    return connect_four(rng, is_open=True)


def connect_four_blind(rng):
    return connect_four(rng, is_open=False)


def nim(rng):
    from textarena.envs.Nim.env import NimEnv

    piles = rng.choice([(3, 4, 5), (3, 4, 5), (1,), (1, 1), (7, 2, 9, 4)])
    texts = [f"[{pile} {take}]" for pile in range(len(piles) + 1) for take in range(11)] + ["[ 0   1 ]", "[00 01]"]
    return Nim(piles=piles), oracle(NimEnv(list(piles))), lambda game, env: (game.piles, env.piles), texts


def disc(game, row, col):
    bit = 1 << (col * (game.num_rows + 1) + row)
    return "X" if game.discs[0] & bit else "O" if game.discs[1] & bit else "."


def their_outcomes(env):
    if not env.state.done:
        return None
    return tuple({1: "win", 0: "draw", -1: "loss"}[env.state.rewards[seat]] for seat in (0, 1))


def compare(game, env, boards):
    ours, theirs = boards(game, env)
    assert ours == theirs
    assert game.outcomes == their_outcomes(env)
    if not game.over:
        assert game.to_move == env.state.current_player_id


PAIRS = [tic_tac_toe, connect_four_open, connect_four_blind, connect_four_large, nim]


@pytest.mark.parametrize("pair", PAIRS)
def test_random_games_go_as_in_textarena(pair):
    seen = set()
    for seed in range(GAMES if pair is not connect_four_large else GAMES // 20):
        rng = random.Random(seed)
        game, env, boards, texts = pair(rng)
        game.reset(seed)
        compare(game, env, boards)
        while not game.over:
            legal = game.legal_actions()
            text = rng.choice(texts)
            there = copy.deepcopy(env)
            there.step(text)
            assert game.clone().step(text) is (Verdict.ILLEGAL if there.state.error_count else Verdict.PLAYED), text
            if rng.random() < 0.1:  # one illegal reply is asked again in both
                illegal = [text for text in texts if game._read(text) not in legal]
                if illegal:
                    text = rng.choice(illegal)
                    assert game.step(text) is Verdict.ILLEGAL
                    env.step(text)
                    compare(game, env, boards)
            readable = [text for text in texts if game._read(text) in legal] or legal
            text = rng.choice(readable)
            assert game.step(text) is Verdict.PLAYED
            env.step(text)
            compare(game, env, boards)
        seen.add(game.outcomes)
    assert {("win", "loss"), ("loss", "win")} <= seen
    assert (("draw", "draw") in seen) == (pair not in (nim, connect_four_large))  # random play hardly fills 180 cells


@pytest.mark.parametrize("pair", PAIRS)
def test_every_legal_action_of_a_random_position_does_the_same_in_textarena(pair):
    # Theirs does not play up to the position: its state is set.
    for seed in range(100 if pair is not connect_four_large else 20):
        rng = random.Random(seed)
        game, env, boards, _ = pair(rng)
        game.reset(seed)
        for _ in range(rng.randrange(game.max_game_length)):
            twin = game.clone()
            twin.step(rng.choice(twin.legal_actions()))
            if twin.over:
                break
            game = twin
        put(game, env, boards)
        compare(game, env, boards)
        for action in game.legal_actions():
            ours, theirs = game.clone(), copy.deepcopy(env)
            ours.step(action)
            theirs.step(action)
            compare(ours, theirs, boards)


def put(game, env, boards):
    position = boards(game, env)[0]
    env.state.current_player_id = game.to_move
    if isinstance(game, Nim):
        env.piles = list(position)
    elif isinstance(game, TicTacToe):
        env.state.game_state["board"] = [position[row : row + 3] for row in (0, 3, 6)]
    else:
        env.state.game_state["board"] = position


@pytest.mark.parametrize("pair", PAIRS)
def test_a_second_illegal_reply_loses_in_both_but_here_the_other_seat_wins(pair):
    for first_plays in (False, True):
        game, env, _, texts = pair(random.Random(0))
        game.reset(0)
        if first_plays:
            action = game.legal_actions()[0]
            game.step(action)
            env.step(action)
        loser = game.to_move
        illegal = next(text for text in texts if game._read(text) not in game.legal_actions())
        for _ in range(2):
            game.step(illegal)
            env.step(illegal)
        assert env.state.rewards == {loser: -1, 1 - loser: 0}
        assert game.outcomes[loser] is Outcome.INVALID
        assert game.outcomes[1 - loser] is Outcome.WIN


@pytest.mark.parametrize(
    ("pair", "reply", "played_there"),
    [
        (tic_tac_toe, "hello", False),
        (tic_tac_toe, "[4] or [5]", True),
        (tic_tac_toe, "[col 4]", False),
        (connect_four_open, "hello", False),
        (connect_four_open, "[col 1] or [col 2]", True),
        (connect_four_open, "[1] [col 1]", True),
        (nim, "hello", False),
        (nim, "[0 1] or [0 2]", True),
        (nim, "[0, 1]", False),
    ],
)
def test_replies_that_forfeit_here_and_not_in_textarena(pair, reply, played_there):
    game, env, *_ = pair(random.Random(0))
    game.reset(0)
    env.step(reply)
    assert not env.state.done
    assert bool(env.state.error_count) is not played_there
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED


def test_blanks_next_to_a_bracket_are_read_here_and_not_in_textarena():
    game, env, *_ = connect_four_open(random.Random(0))
    game.reset(0)
    env.step("[ col 1 ]")
    assert env.state.error_count == 1
    assert game.step("[ col 1 ]") is Verdict.PLAYED


# ---- Tic Tac Toe --------------------------------------------------------------------------------------------------


def test_tic_tac_toe_has_the_known_numbers_of_positions_and_games():
    # 5478 positions, 255168 games: 131184 won by the first player, 77904 by the second, 46080 drawn.
    counts = {}

    def games(game):
        if game.over:
            key = tuple(game.marks)
            counts[key] = tuple(int(game.outcomes == end) for end in (("win", "loss"), ("loss", "win"), ("draw",) * 2))
            return counts[key]
        key = tuple(game.marks)
        if key not in counts:
            children = []
            for action in game.legal_actions():
                twin = game.clone()
                twin.step(action)
                children.append(games(twin))
            counts[key] = tuple(map(sum, zip(*children, strict=True)))
        return counts[key]

    game = TicTacToe()
    game.reset(0)
    assert games(game) == (131184, 77904, 46080)
    assert len(counts) == 5478


@pytest.mark.parametrize("action", ["[4]", "[ 4 ]", "[04]", "[4 ]", "[\t4]"])
def test_tic_tac_toe_reads_the_spellings_of_a_cell(action):
    game = TicTacToe()
    game.reset(0)
    assert game.step(action) is Verdict.PLAYED
    assert game.marks == [1 << 4, 0]
    assert game.observation(1).endswith("\nOpponent plays [4].")


def test_tic_tac_toe_says_why_a_cell_is_refused():
    game = TicTacToe(illegal_allowance=2)
    game.reset(0)
    game.step("[4]")
    game.step("[4]")
    assert game.observation(1) == "That cell is taken. Try again."
    game.step("[9]")
    assert game.observation(1) == "There is no such cell. Try again."


def test_tic_tac_toe_texts():
    game = TicTacToe()
    game.reset(0)
    assert game.observation(0) == (
        "Tic Tac Toe. You are Player 0 and place O; three in a row win. Cells are numbered from 0 to 8, row by row. "
        "Reply with one free cell in brackets, for example [4]."
    )
    game.step("[0]")
    assert game.observation(0) == ""
    assert game.observation(1) == (
        "Tic Tac Toe. You are Player 1 and place X; three in a row win. Cells are numbered from 0 to 8, row by row. "
        "Reply with one free cell in brackets, for example [4].\nOpponent plays [0]."
    )
    game.step("[8]")
    assert game.observation(0) == "Opponent plays [8]."


def test_tic_tac_toe_shows_the_board_to_the_seat_to_move():
    game = TicTacToe(show_board=True)
    game.reset(0)
    board = [". . .", ". . .", ". . .", "Free: [0], [1], [2], [3], [4], [5], [6], [7], [8]."]
    assert game.observation(0).split("\n")[1:] == board
    assert len(game.observation(1).split("\n")) == 1
    game.step("[0]")
    assert game.observation(1).split("\n")[1:] == [
        "Opponent plays [0].", "O . .", ". . .", ". . .", "Free: [1], [2], [3], [4], [5], [6], [7], [8].",
    ]  # fmt: skip
    game.step("[5]")
    assert game.observation(0).split("\n") == [
        "Opponent plays [5].", "O . .", ". . X", ". . .", "Free: [1], [2], [3], [4], [6], [7], [8].",
    ]  # fmt: skip
    for action in ("[4]", "[8]", "[2]", "[6]", "[7]", "[1]", "[3]"):
        game.step(action)
    assert game.outcomes == ("draw", "draw")
    assert game.observation(1).split("\n") == ["Opponent plays [3].", "O X O", "O O X", "X O X"]


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


@pytest.mark.parametrize("action", ["[col 3]", "[3]", "[col3]", "[COL 3]", "[ Col  03 ]", "[col\n3]", "[ 3 ]"])
def test_connect_four_reads_the_spellings_of_a_column(action):
    game = ConnectFour()
    game.reset(0)
    assert game.step(action) is Verdict.PLAYED
    assert game.heights == [0, 0, 0, 1, 0, 0, 0]
    assert game.observation(1).endswith("\nOpponent plays [col 3], row 0.")


@pytest.mark.parametrize("action", ["[c 3]", "[col]", "[column 3]", "[col -1]", "[col col 3]", "[3 col]", "[3, 3]"])
def test_connect_four_does_not_read_other_groups(action):
    game = ConnectFour()
    game.reset(0)
    assert game.step(action) is Verdict.FORFEIT_MALFORMED


def test_connect_four_says_why_a_column_is_refused():
    game = ConnectFour(illegal_allowance=2)
    game.reset(0)
    for _ in range(6):
        game.step("[col 0]")
    game.step("[col 0]")
    assert game.observation(0) == "That column is full. Try again."
    game.step("[col 7]")
    assert game.observation(0) == "There is no such column. Try again."


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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_rows": 3}, "num_rows must be from 4 to 32, got 3"),
        ({"num_cols": 33}, "num_cols must be from 4 to 32, got 33"),
        ({"is_open": False, "show_board": True}, "show_board must be False if is_open is False"),
    ],
)
def test_connect_four_refuses_impossible_boards(options, text):
    with pytest.raises(ValueError, match=text):
        ConnectFour(**options)


# ---- Nim ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piles", [(3, 4, 5), (1, 2, 3), (2, 2), (4,), (1, 1, 1), (1, 4, 5), (2, 3, 4)])
def test_nim_is_won_by_the_first_player_exactly_if_the_exclusive_or_is_not_zero(piles):
    # Bouton 1901; the value is found by trying all games.
    wins = {}

    def mover_wins(game):
        key = tuple(game.piles)
        if key not in wins:
            wins[key] = False
            for action in game.legal_actions():
                twin = game.clone()
                seat = twin.to_move
                twin.step(action)
                if twin.outcomes[seat] == "win" if twin.over else not mover_wins(twin):
                    wins[key] = True
        return wins[key]

    game = Nim(piles=piles)
    game.reset(0)
    mover_wins(game)
    assert all(won == bool(functools.reduce(operator.xor, position)) for position, won in wins.items())


def test_nim_takes_as_many_actions_as_objects_at_the_longest():
    game = Nim()
    game.reset(0)
    assert game.info.max_game_length == 12
    while not game.over:
        game.step(next(action for action in game.legal_actions() if action.endswith(" 1]")))
    assert game.actions_played == 12
    assert game.outcomes == ("loss", "win")


@pytest.mark.parametrize("action", ["[1 2]", "[ 1  2 ]", "[01 002]", "[1\t2]"])
def test_nim_reads_the_spellings_of_a_take(action):
    game = Nim()
    game.reset(0)
    assert game.step(action) is Verdict.PLAYED
    assert game.piles == [3, 2, 5]
    assert game.observation(1).endswith("\nOpponent plays [1 2].\nPiles: 3, 2, 5.")


@pytest.mark.parametrize("action", ["[1]", "[1 2 3]", "[1,2]", "[12]", "[1 -2]", "[a 1]", "[pile 1 2]"])
def test_nim_does_not_read_other_groups(action):
    game = Nim()
    game.reset(0)
    assert game.step(action) is Verdict.FORFEIT_MALFORMED


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("[3 1]", "There is no such pile."),
        ("[3 0]", "There is no such pile."),
        ("[0 0]", "Take at least one object."),
        ("[0 4]", "That pile holds fewer objects."),
        ("[0 2]", "That pile holds fewer objects."),
    ],
)
def test_nim_says_why_a_take_is_refused(action, reason):
    game = Nim()
    game.reset(0)
    game.step("[0 2]")
    assert game.step(action) is Verdict.ILLEGAL
    assert game.observation(1) == f"{reason} Try again."


def test_nim_texts_hold_the_newest_piles_only():
    game = Nim()
    game.reset(0)
    rules = (
        "Nim. You are Player {}. Take one or more objects from one pile; whoever takes the last object wins. "
        "Piles are numbered from 0. Reply with pile and quantity in brackets, for example [0 3]."
    )
    assert game.observation(0) == rules.format(0) + "\nPiles: 3, 4, 5."
    assert game.observation(1) == rules.format(1) + "\nPiles: 3, 4, 5."
    game.step("[1 2]")
    assert game.observation(0) == ""
    assert game.observation(1) == rules.format(1) + "\nOpponent plays [1 2].\nPiles: 3, 2, 5."
    game.step("[2 5]")
    assert game.observation(0) == "Opponent plays [2 5].\nPiles: 3, 2, 0."


@pytest.mark.parametrize("piles", [(), (0, 1), (3, -1), (100,), (1,) * 21])
def test_nim_refuses_impossible_piles(piles):
    with pytest.raises(ValueError, match="piles must be 1 to 20 sizes from 1 to 99 each, got"):
        Nim(piles=piles)

"""Tic Tac Toe, Connect Four and Nim against TextArena 0.6.4, brute force and known figures."""

import copy
import functools
import operator
import random

import pytest

from dfc.games import registry
from dfc.games.game import Outcome, Verdict
from dfc.games.textarena.connect_four import ConnectFour
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


@pytest.mark.parametrize("game_id", ["TicTacToe-v0", "ConnectFour-v0", "battleship"])
def test_a_board_for_a_person_is_the_one_that_show_board_tells(game_id):
    shown, silent = registry.make(game_id, show_board=True), registry.make(game_id, show_board=False)
    rng = random.Random(5)
    for game in (shown, silent):
        game.reset(7)
    while not silent.over:
        seat = silent.to_move
        told = shown.observation(seat)
        if shown.actions_played or game_id != "battleship":  # which tells it after every shot
            assert silent.board_text() in told
        assert shown.board_text() is None  # told anyway
        action = rng.choice(silent.legal_actions())
        for game in (shown, silent):
            game.step(action)
    assert registry.make("ConnectFour-v0-blind").board_text() is None

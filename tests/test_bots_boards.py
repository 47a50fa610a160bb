"""Bots of Tic Tac Toe and Connect Four: each method's claim, against brute force."""

import itertools
import time
from collections import Counter, deque

import pytest
from bot_matches import play, score

from dfc.games import registry, scripted
from dfc.games.bots.boards import _Search
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import RandomLegal, strong
from dfc.games.textarena.connect_four import ConnectFour
from dfc.games.textarena.tic_tac_toe import TicTacToe


@pytest.mark.parametrize(
    ("taken", "action"),
    [((0, 3, 1), "[2]"), ((0, 3, 1, 4), "[2]"), ((4, 0, 8), None), ((0,), "[4]"), ((0, 1, 2, 3), "[4]")],
)
def test_simple_tic_tac_toe_wins_then_blocks_then_takes_the_centre(taken, action):
    game = TicTacToe()
    game.reset(0)
    for cell in taken:
        game.step(f"[{cell}]")
    chosen = {scripted.player(game, "simple").act(game, GameRng(seed)) for seed in range(30)}
    assert chosen == ({action} if action else set(game.legal_actions()))


@pytest.mark.parametrize(
    ("columns", "action"),
    [((0, 6, 0, 6, 0, 6), "[col 0]"), ((0, 6, 1, 6, 2), "[col 3]"), ((3, 3, 2), None)],
)
def test_simple_connect_four_wins_then_blocks_and_sees_no_further(columns, action):
    game = line_up(*columns)
    chosen = {scripted.player(game, "simple").act(game, GameRng(seed)) for seed in range(80)}
    assert chosen == ({action} if action else set(game.legal_actions()))


def test_strong_connect_four_plays_the_large_board_in_bearable_time():
    game, player = registry.make("ConnectFour-v0-large"), strong("ConnectFour-v0-large")
    begun = time.process_time()
    assert play(game, [player, scripted.player(game, "simple")], 1)[0] is Outcome.WIN
    assert (time.process_time() - begun) / game.actions_played < 0.1  # 0.004 s measured


def every_tic_tac_toe_position():
    first = TicTacToe()
    first.reset(0)
    seen, queue = {(0, 0): first}, deque([first])
    while queue:
        game = queue.popleft()
        for action in game.legal_actions():
            after = game.clone()
            after.step(action)
            if seen.setdefault(tuple(after.marks), after) is after:
                queue.append(after)
    return seen


def test_minimax_knows_the_value_of_every_one_of_the_5478_positions():
    positions = every_tic_tac_toe_position()
    assert len(positions) == 5478
    sign = {Outcome.WIN: 1, Outcome.DRAW: 0, Outcome.LOSS: -1}
    values = {}  # for seat 0; filled from full boards down to the empty one
    for marks, game in sorted(positions.items(), key=lambda item: -(item[0][0] | item[0][1]).bit_count()):
        if game.over:
            values[marks] = sign[game.outcomes[0]]
            continue
        bit = game.to_move
        children = {}
        for action in game.legal_actions():
            after = list(marks)
            after[bit] |= 1 << int(action[1:-1])
            children[action] = values[tuple(after)]
        values[marks] = (max, min)[bit](children.values())
        assert children[strong(game).act(game, GameRng(1))] == values[marks]
    assert values[0, 0] == 0


def test_minimax_never_loses_against_random_play():
    game, player = TicTacToe(), strong("TicTacToe-v0")
    for seed in range(200):
        seat = seed % 2
        players = [player, RandomLegal()] if seat == 0 else [RandomLegal(), player]
        assert play(game, players, seed)[seat] in (Outcome.WIN, Outcome.DRAW)


def test_minimax_draws_with_itself_in_different_games():
    game, player, games = TicTacToe(), strong("TicTacToe-v0"), set()
    for seed in range(30):
        assert play(game, [player, player], seed) == (Outcome.DRAW, Outcome.DRAW)
        games.add(tuple(game.marks))
    assert len(games) > 5


def test_minimax_takes_a_win_at_once():
    game = TicTacToe()
    for seed in range(10):
        game.reset(0)
        for action in ("[0]", "[1]", "[4]", "[3]"):
            game.step(action)
        assert strong(game).act(game, GameRng(seed)) == "[8]"  # [2] and [6] win too, one move later


def line_up(*columns):
    game = ConnectFour()
    game.reset(0)
    for column in columns:
        assert game.step(f"[{column}]") is Verdict.PLAYED
    return game


@pytest.mark.parametrize(
    ("columns", "action"),
    [
        ((0, 6, 0, 6, 0, 5), "[col 0]"),  # column
        ((0, 0, 1, 1, 2, 6), "[col 3]"),  # row
        ((0, 0, 1, 1, 3, 3), "[col 2]"),  # gap
        ((0, 1, 1, 2, 2, 3, 2, 3, 3, 6), "[col 3]"),  # diagonal
        ((3, 6, 3, 6, 3, 6), "[col 3]"),  # its own win goes before the block
    ],
)
def test_connect_four_takes_a_win_in_one(columns, action):
    game = line_up(*columns)
    seat = game.to_move
    assert strong(game).act(game, GameRng(0)) == action
    game.step(action)
    assert game.outcomes[seat] is Outcome.WIN


@pytest.mark.parametrize(
    ("columns", "action"),
    [
        ((0, 6, 0, 6, 0), "[col 0]"),
        ((0, 6, 1, 6, 2), "[col 3]"),
        ((0, 6, 1, 6, 3), "[col 2]"),
        ((0, 1, 1, 2, 2, 6, 2, 6, 3, 3, 3), "[col 3]"),
    ],
)
def test_connect_four_blocks_a_win_in_one(columns, action):
    assert strong("ConnectFour-v0").act(line_up(*columns), GameRng(0)) == action


def test_connect_four_sees_a_double_threat_coming():
    # X holds 2 and 3 of the bottom row with both sides free: O must take one of 1 and 4 now.
    assert strong("ConnectFour-v0").act(line_up(3, 3, 2), GameRng(0)) in ("[col 1]", "[col 4]")


def test_connect_four_blocks_even_where_both_ends_are_open():
    assert strong("ConnectFour-v0").act(line_up(2, 2, 3, 3, 4), GameRng(0)) in ("[col 1]", "[col 5]")


def completing_cells(game, seat):
    """Free cells, reachable now or not, that would complete a line of four: by trying all lines."""
    rows, columns = game.num_rows, game.num_cols
    owner = {}
    for column, row in itertools.product(range(columns), range(rows)):
        bit = 1 << column * (rows + 1) + row
        owner[column, row] = 0 if game.discs[0] & bit else 1 if game.discs[1] & bit else None
    cells = set()
    for (column, row), (x, y) in itertools.product(owner, ((1, 0), (0, 1), (1, 1), (1, -1))):
        line = [(column + i * x, row + i * y) for i in range(4)]
        if line[3] in owner:
            free = [cell for cell in line if owner[cell] is None]
            if len(free) == 1 and all(owner[cell] in (seat, None) for cell in line):
                cells.add(free[0])
    return len(cells)


def test_connect_four_counts_open_threes():
    rng, counts = GameRng(derive_seed("threes")), Counter()
    for rows, columns in [(6, 7), (4, 5), (5, 9)] * 10:
        game = ConnectFour(num_rows=rows, num_cols=columns)
        game.reset(0)
        search = _Search(rows, tuple(range(columns)))
        while not game.over:
            own, other = completing_cells(game, game.to_move), completing_cells(game, 1 - game.to_move)
            discs = game.discs[game.to_move], game.discs[1 - game.to_move]
            assert search.value(*discs, 0, -10_000, 10_000) == own - other
            counts[own] += 1
            game.step(RandomLegal().act(game, rng))
    assert min(counts[n] for n in range(4)) > 10


def forced_value(game, depth):
    """Plain negamax on clones: +1 if the player to move wins within `depth` moves, -1 if it loses, else 0."""
    if game.over:
        return -1 if Outcome.WIN in game.outcomes else 0  # the previous move won, or the board is full
    if depth == 0:
        return 0
    values = []
    for action in game.legal_actions():
        after = game.clone()
        after.step(action)
        values.append(-forced_value(after, depth - 1))
        if values[-1] == 1:
            break
    return max(values)


def test_connect_four_keeps_every_win_and_refuses_every_loss_within_four_moves():
    rng, decided = GameRng(derive_seed("positions")), 0
    for _ in range(150):
        game = ConnectFour(num_rows=5, num_cols=5)
        game.reset(0)
        for _ in range(10):
            if not game.over:
                game.step(RandomLegal().act(game, rng))
        if game.over:
            continue
        value = forced_value(game, 4)
        decided += value != 0
        game.step(strong(game).act(game, rng))
        assert -forced_value(game, 3) == value
    assert decided > 5


def test_connect_four_beats_random_play():
    assert score(ConnectFour(), strong("ConnectFour-v0"), RandomLegal(), 40) > 0.9

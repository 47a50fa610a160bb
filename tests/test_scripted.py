"""Scripted players: each method's claim, against brute force or counting."""

import itertools
import math
import random
import sys
import time
import types
from collections import Counter, deque

import pytest

from dfc.games import registry, scripted
from dfc.games.bots.connect_four import _Search
from dfc.games.bots.strategy import Strategies
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import STRENGTHS, RandomLegal, strong
from dfc.games.textarena.connect_four import ConnectFour
from dfc.games.textarena.guess_the_number import GuessTheNumber
from dfc.games.textarena.liars_dice import LiarsDice
from dfc.games.textarena.nim import Nim
from dfc.games.textarena.tic_tac_toe import TicTacToe
from dfc.games.textarena.tower_of_hanoi import TowerOfHanoi

KINDS = [TicTacToe, ConnectFour, Nim, TowerOfHanoi, GuessTheNumber, LiarsDice]


def play(game, players, seed):
    """Plays one game; every action must be played at once. Returns the outcomes."""
    game.reset(seed)
    streams = [GameRng(derive_seed("player", seat, seed)) for seat in range(game.seats)]
    while not game.over:
        seat = game.to_move
        assert game.step(players[seat].act(game, streams[seat])) is Verdict.PLAYED
    return game.outcomes


def score(game, player, opponent, games):
    """Wins of `player` from both seats in turn, as a share."""
    wins = 0
    for seed in range(games):
        seat = seed % 2
        players = [player, opponent] if seat == 0 else [opponent, player]
        wins += play(game, players, seed)[seat] is Outcome.WIN
    return wins / games


@pytest.mark.parametrize("game_id", registry.own_game_ids())
@pytest.mark.parametrize("strength", STRENGTHS)
def test_every_game_has_players_of_every_strength_that_play_legally_without_changing_it(game_id, strength):
    game = registry.make(game_id)
    player, helpers = scripted.player(game_id, strength), scripted.simulators(game_id)
    for seed in range(2):
        rng = GameRng(derive_seed(game_id, seed))
        game.reset(seed)
        while not game.over:
            before = game.to_json()
            playing = game.to_move < game.seats
            reply = (player if playing else helpers[game.role(game.to_move)]).act(game, rng)
            assert not playing or game.open_actions or reply in game.legal_actions()
            assert game.to_json() == before
            assert game.step(reply) is Verdict.PLAYED


@pytest.mark.parametrize("game_id", registry.own_game_ids())
def test_scripted_players_leave_the_global_generator_alone(game_id):
    game, before = registry.make(game_id), random.getstate()
    game.reset(0)
    for strength in STRENGTHS:
        scripted.player(game, strength).act(game, GameRng(0))
    assert random.getstate() == before


@pytest.fixture
def module(monkeypatch):
    """A module of a game outside this package."""
    made = types.ModuleType("outside")

    class Outside(Nim):
        pass

    Outside.__module__ = "outside"
    made.Outside = Outside
    monkeypatch.setitem(sys.modules, "outside", made)
    return made


def test_a_game_outside_this_package_brings_its_players_in_its_module(module):
    game = module.Outside()
    with pytest.raises(
        ValueError, match=r"no strong player for 'Outside'; .* brings its own in STRATEGIES of its module"
    ):
        scripted.player(game, "strong")
    module.STRATEGIES = (
        Strategies(TicTacToe, None, None),
        Strategies(module.Outside, lambda *_: "[0 1]", lambda *_: "[1 2]"),
    )
    game.reset(0)
    assert scripted.player(game, "strong").act(game, GameRng(0)) == "[1 2]"
    assert scripted.player(game, "simple").act(game, GameRng(0)) == "[0 1]"
    assert scripted.player("TicTacToe-v0", "strong").choose is not None  # another module's words do not count


@pytest.mark.parametrize("wrong", [3, ["strong"], {"strong": 1}])
def test_strategies_of_another_kind_get_a_sentence(module, wrong):
    module.STRATEGIES = wrong
    with pytest.raises(ValueError, match=r"outside.STRATEGIES must be a tuple of dfc\.games\.bots\.strategy"):
        scripted.player(module.Outside(), "simple")


def test_nobody_plays_randomly_where_no_actions_are_listed(module):
    assert scripted.player(module.Outside(), "random_legal") == RandomLegal()
    module.Outside.lists_actions = False
    game = module.Outside()
    assert game.info.lists_actions is False
    with pytest.raises(ValueError, match="no random_legal player for 'Outside': it lists no legal actions"):
        scripted.player(game, "random_legal")
    module.Outside.legal_actions = lambda _: []
    game.reset(0)
    with pytest.raises(ValueError, match="it lists no legal actions, so nobody can choose one"):
        RandomLegal().act(game, GameRng(0))


BETTER = [  # game, and what share of the games the simple player wins against random play and the strong against it
    ("TicTacToe-v0", 0.8, 0.5),
    ("ConnectFour-v0", 0.8, 0.8),
    ("Nim-v0", 0.7, 0.8),
    ("LiarsDice-v0", 0.9, 0.6),
]


def points(game, player, opponent, games):
    """Wins and half the draws of `player` from both seats in turn, as a share."""
    total = 0.0
    for seed in range(games):
        seat = seed % 2
        outcome = play(game, [player, opponent] if seat == 0 else [opponent, player], seed)[seat]
        total += {Outcome.WIN: 1.0, Outcome.DRAW: 0.5}.get(outcome, 0.0)
    return total / games


@pytest.mark.parametrize(("game_id", "simple", "best"), BETTER)
def test_strong_beats_simple_and_simple_beats_random_against_each_other(game_id, simple, best):
    weak, middle, good = (scripted.player(game_id, strength) for strength in STRENGTHS)
    assert points(registry.make(game_id), middle, weak, 60) > simple
    assert points(registry.make(game_id), good, middle, 60) > best


@pytest.mark.parametrize(
    ("game_id", "options"), [("TowerOfHanoi-v0", {"max_turns": 30}), ("GuessTheNumber-v0-hardcore", {})]
)
def test_strong_solves_more_than_simple_and_simple_more_than_random(game_id, options):
    solved = [0] * len(STRENGTHS)
    for rank, strength in enumerate(STRENGTHS):
        for seed in range(100):
            solved[rank] += play(registry.make(game_id, **options), [scripted.player(game_id, strength)], seed) == (
                "win",
            )
    weak, middle, good = solved
    assert weak + 15 < middle < good == 100


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


@pytest.mark.parametrize(("piles", "action"), [((0, 4, 0), "[1 4]"), ((2, 0, 5), "[2 3]"), ((1, 1), None)])
def test_simple_nim_ends_with_one_pile_and_evens_out_two(piles, action):
    game = Nim(piles=(5,) * len(piles))
    game.reset(0)
    game.piles = list(piles)
    chosen = {scripted.player(game, "simple").act(game, GameRng(seed)) for seed in range(30)}
    assert chosen == ({action} if action else set(game.legal_actions()))


def test_simple_hanoi_moves_the_smallest_disk_every_other_time_and_whenever_it_lies_on_all_others():
    game, rng = registry.make("TowerOfHanoi-v0-medium"), GameRng(3)
    for seed in range(20):
        game.reset(seed)
        while not game.over:
            action = scripted.player(game, "simple").act(game, rng)
            disk = game.towers["ABC".index(action[1])][-1]
            in_turn = game.actions_played % 2 == 0
            assert (disk == 1) == (in_turn or len(game.legal_actions()) == 2)
            game.step(action)


def test_simple_guesses_follow_the_hints():
    game = GuessTheNumber(max_number=50)
    game.reset(1)
    while not game.over:
        chosen = {scripted.player(game, "simple").act(game, GameRng(seed)) for seed in range(400)}
        assert chosen == {f"[{n}]" for n in range(game.low, game.high + 1)}
        game.step(scripted.player(game, "simple").act(game, GameRng(0)))


@pytest.mark.parametrize(
    ("own", "bid", "action"),
    [
        ((2, 2, 3, 5, 6), "[Bid: 1, 2]", "[Bid: 1, 3]"),  # a face it holds
        ((1, 1, 2, 2, 2), "[Bid: 2, 2]", "[Bid: 3, 2]"),  # none higher: one more
        ((1, 1, 2, 2, 2), "[Bid: 2, 6]", "[Call]"),  # two of the five hidden dice would be needed
        ((1, 1, 2, 2, 6), "[Bid: 2, 6]", "[Bid: 3, 6]"),  # one would
        ((6, 6, 6, 6, 6), "[Bid: 10, 6]", "[Call]"),  # nothing is higher
    ],
)
def test_simple_liars_dice_calls_if_a_third_of_the_hidden_dice_is_not_enough(own, bid, action):
    game = LiarsDice()
    game.reset(0)
    game._dice[1] = list(own)
    game.step(bid)
    assert scripted.player(game, "simple").act(game, GameRng(0)) == action


def test_strong_connect_four_plays_the_large_board_in_bearable_time():
    game, player = registry.make("ConnectFour-v0-large"), strong("ConnectFour-v0-large")
    begun = time.process_time()
    assert play(game, [player, scripted.player(game, "simple")], 1)[0] is Outcome.WIN
    assert (time.process_time() - begun) / game.actions_played < 0.1  # 0.004 s measured


def test_random_legal_is_uniform_over_the_legal_actions():
    game, rng, n = LiarsDice(), GameRng(derive_seed("uniform")), 12_000
    game.reset(0)
    game.step("[Bid: 8, 3]")  # twelve answers: 3 quantities times 4 faces, less the bid itself, and the call
    counts = Counter(RandomLegal().act(game, rng) for _ in range(n))
    assert set(counts) == set(game.legal_actions())
    assert len(counts) == 12
    chi_square = sum((count - n / 12) ** 2 / (n / 12) for count in counts.values())
    assert chi_square < 11 + 5 * math.sqrt(22)  # mean and five deviations at 11 degrees of freedom


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


def nim_value(piles, known):
    """Whether the player to move can win, by trying everything."""
    key = tuple(sorted(piles))
    if key not in known:
        known[key] = any(
            not nim_value((*piles[:i], size - take, *piles[i + 1 :]), known)
            for i, size in enumerate(piles)
            for take in range(1, size + 1)
        )
    return known[key]


def test_nim_keeps_every_win_on_small_piles():
    known, rng = {}, GameRng(0)
    for piles in itertools.product(range(1, 6), repeat=3):
        game = Nim(piles=piles)
        game.reset(0)
        action = strong(game).act(game, rng)
        assert action in game.legal_actions()
        game.step(action)
        assert nim_value(tuple(game.piles), known) != nim_value(piles, known) or not nim_value(piles, known)


@pytest.mark.parametrize("opponent", [RandomLegal(), strong("Nim-v0")])
def test_nim_wins_from_a_winning_start(opponent):
    for seed in range(30):
        assert play(Nim(), [strong("Nim-v0"), opponent], seed) == (Outcome.WIN, Outcome.LOSS)


@pytest.mark.parametrize(("disks", "moves"), [(1, 1), (3, 7), (4, 15), (10, 1023)])
def test_hanoi_is_solved_in_the_fewest_moves(disks, moves):
    game = TowerOfHanoi(num_disks=disks, max_turns=moves)
    assert play(game, [strong("TowerOfHanoi-v0")], 0) == (Outcome.WIN,)
    assert game.actions_played == moves


def towers_of(places):
    return [[disk for disk in range(len(places), 0, -1) if places[disk - 1] == tower] for tower in range(3)]


def hanoi_moves(places):
    """Every legal move from a tuple of towers, one per disk, smallest first."""
    for disk, source in enumerate(places):
        if source in places[:disk]:
            continue
        for target in range(3):
            if target != source and target not in places[:disk]:
                yield source, target, (*places[:disk], target, *places[disk + 1 :])


@pytest.mark.parametrize("disks", [3, 4])
def test_hanoi_is_shortest_from_every_position(disks):
    goal = (2,) * disks
    distance, queue = {goal: 0}, deque([goal])
    while queue:  # moves can be undone, so distances from the goal are distances to it
        places = queue.popleft()
        for _, _, after in hanoi_moves(places):
            if after not in distance:
                distance[after] = distance[places] + 1
                queue.append(after)
    assert len(distance) == 3**disks
    game = TowerOfHanoi(num_disks=disks)
    for places, steps in distance.items():
        if not steps:
            continue
        game.reset(0)
        game.towers = towers_of(places)
        action = strong(game).act(game, GameRng(0))
        after = {f"[{'ABC'[a]} {'ABC'[b]}]": result for a, b, result in hanoi_moves(places)}[action]
        assert distance[after] == steps - 1


@pytest.mark.parametrize(("high", "worst"), [(20, 5), (50, 6), (1, 1), (64, 7)])
def test_bisection_needs_the_logarithm_in_the_worst_case(high, worst):
    game = GuessTheNumber(max_number=high)
    needed = []
    for target in range(1, high + 1):
        game.reset(0)
        game._target = target
        while not game.over:
            game.step(strong(game).act(game, GameRng(0)))
        assert game.outcomes == (Outcome.WIN,)
        needed.append(game.actions_played)
    assert max(needed) == worst == math.floor(math.log2(high)) + 1


def test_liars_dice_beats_random_play():
    assert score(LiarsDice(), strong("LiarsDice-v0"), RandomLegal(), 200) > 0.9


def test_liars_dice_decides_without_the_dice_of_the_other():
    rng, game, choices = GameRng(derive_seed("bids")), LiarsDice(), set()
    for seed in range(60):
        game.reset(seed)
        game.step(RandomLegal().act(game, rng) if seed % 4 else "[Bid: 2, 2]")
        seat = game.to_move
        action = strong(game).act(game, GameRng(0))
        choices.add(action)
        for face in range(1, 7):
            game._dice[1 - seat] = [face] * 5
            assert strong(game).act(game, GameRng(0)) == action
    assert len(choices) > 3


def test_liars_dice_calls_exactly_the_bids_that_are_unlikely_if_the_bidder_holds_one_such_die():
    game = LiarsDice(num_dice=4)
    hands = list(itertools.product(range(1, 7), repeat=4))
    hidden = Counter(hand.count(1) for hand in hands)  # every face alike
    bidders = Counter(hand.count(1) for hand in hands if hand[0] == 1)

    def truth(own, quantity, face):
        counts = bidders if face == game.bid[1] else hidden
        return sum(n for count, n in counts.items() if count + own.count(face) >= quantity) / counts.total()

    for own in itertools.combinations_with_replacement(range(1, 7), 4):
        for quantity, face in itertools.product(range(1, 6), range(1, 7)):
            game.reset(0)
            game.step(f"[Bid: {quantity}, {face}]")
            game._dice[1] = list(own)
            action = strong(game).act(game, GameRng(0))
            raises = [(int(text[6]), int(text[9])) for text in game.legal_actions()[:-1]]
            likely = [bid for bid in raises if truth(own, *bid) >= 0.5]
            if truth(own, quantity, face) < 0.5:
                assert action == "[Call]"
            elif likely:
                assert action == f"[Bid: {likely[0][0]}, {likely[0][1]}]"
            elif action == "[Call]":
                assert all(truth(own, *bid) < 1 - truth(own, quantity, face) for bid in raises)
            else:
                assert truth(own, int(action[6]), int(action[9])) == max(truth(own, *bid) for bid in raises)


def test_a_strong_player_refuses_another_game_and_a_finished_one():
    game = Nim()
    with pytest.raises(TypeError, match="plays TicTacToe, got a game of Nim"):
        strong("TicTacToe-v0").act(game, GameRng(0))
    for player in (strong(game), RandomLegal()):
        with pytest.raises(ValueError, match="no action is legal after the end or before reset"):
            player.act(game, GameRng(0))
    with pytest.raises(ValueError, match="there is no game id 'Pocker-v0'; did you mean"):
        strong("Pocker-v0")


@pytest.mark.parametrize("kind", KINDS)
def test_id_and_game_name_the_same_player(kind):
    assert strong(kind()) == strong(f"{kind.__name__}-v0")

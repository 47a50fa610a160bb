"""Scripted players: each method's claim, against brute force or counting."""

import itertools
import math
import random
import sys
import types
from collections import Counter, deque

import pytest
from bot_matches import play, score

from dfc.games import registry, scripted
from dfc.games.bots.bot import GameBots
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
    with pytest.raises(ValueError, match=r"no strong player for 'Outside'; .* brings its own in BOTS of its module"):
        scripted.player(game, "strong")
    module.BOTS = (
        GameBots(TicTacToe, None, None),
        GameBots(module.Outside, lambda *_: "[0 1]", lambda *_: "[1 2]"),
    )
    game.reset(0)
    assert scripted.player(game, "strong").act(game, GameRng(0)) == "[1 2]"
    assert scripted.player(game, "simple").act(game, GameRng(0)) == "[0 1]"
    assert scripted.player("TicTacToe-v0", "strong").choose is not None  # another module's words do not count


@pytest.mark.parametrize("wrong", [3, ["strong"], {"strong": 1}])
def test_bots_of_another_kind_get_a_sentence(module, wrong):
    module.BOTS = wrong
    with pytest.raises(ValueError, match=r"outside.BOTS must be a tuple of dfc\.games\.bots\.bot"):
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


@pytest.mark.parametrize(("game_id", "simple", "best"), BETTER)
def test_strong_beats_simple_and_simple_beats_random_against_each_other(game_id, simple, best):
    weak, middle, good = (scripted.player(game_id, strength) for strength in STRENGTHS)
    assert score(registry.make(game_id), middle, weak, 60, draw=0.5) > simple
    assert score(registry.make(game_id), good, middle, 60, draw=0.5) > best


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


def test_random_legal_is_uniform_over_the_legal_actions():
    game, rng, n = LiarsDice(), GameRng(derive_seed("uniform")), 12_000
    game.reset(0)
    game.step("[Bid: 8, 3]")  # twelve answers: 3 quantities times 4 faces, less the bid itself, and the call
    counts = Counter(RandomLegal().act(game, rng) for _ in range(n))
    assert set(counts) == set(game.legal_actions())
    assert len(counts) == 12
    chi_square = sum((count - n / 12) ** 2 / (n / 12) for count in counts.values())
    assert chi_square < 11 + 5 * math.sqrt(22)  # mean and five deviations at 11 degrees of freedom


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

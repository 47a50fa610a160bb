"""The scripted players of Poker: their estimates against dealing, and whom they beat."""

import collections
import itertools
import random

from poker_turns import started

from dfc.games import registry, scripted
from dfc.games.bots import hidden_information as strategies
from dfc.games.game import Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import RandomLegal, Scripted
from dfc.games.textarena.poker import Poker
from dfc.games.textarena.poker_hands import RANKS, cards, strength, text
from dfc.players import sequential


def share_by_dealing(own, board, rng, deals):
    unseen = [card for card in range(52) if card not in {*own, *board}]
    won = 0
    for _ in range(deals):
        drawn = rng.sample(unseen, 7 - len(board))
        table = [*board, *drawn[2:]]
        first, second = strength([*own, *table]), strength([*drawn[:2], *table])
        won += 2 if first > second else first == second
    return won / (2 * deals)


def test_the_share_won_is_that_of_dealing_the_unseen_cards():
    rng = random.Random(3)
    for trial in range(24):
        game = started(trial)
        game.street = trial % 4
        found = sum(strategies.win_share(game, 0, GameRng(trial, 100 * k)) for k in range(8)) / 8
        expected = share_by_dealing(game.hand(0), game.board, rng, 3000)
        tolerance = 0.045 if game.street else 0.055  # four standard errors; the table has whole percents
        assert abs(found - expected) < tolerance, (text(game.hand(0)), text(game.board))


def test_the_table_of_two_cards_knows_suits_pairs_and_ranks():
    game = started()
    shares = {}
    for names in ("Ah As", "2c 2d", "Ah Kh", "Ah Kd", "7c 2d", "3c 2d"):
        game._hands[0] = sorted(cards(names), reverse=True)
        shares[names] = strategies.win_share(game, 0, GameRng(0))
    assert list(shares.values()) == [0.85, 0.5, 0.67, 0.65, 0.34, 0.32]
    assert all(len(row) == len(RANKS) for row in strategies._PREFLOP)


def share_of_wins(one, two, matches, **options):
    """Wins of the first player as a share, draws half, from both seats in turn."""
    game = Poker(**options)
    points = 0.0
    for seed in range(matches):
        seat = seed % 2
        players = [one, two] if seat == 0 else [two, one]
        streams = [GameRng(derive_seed("poker player", s, seed)) for s in range(2)]
        game.reset(seed // 2)  # each deal from both seats
        while not game.over:
            mover = game.to_move
            action = players[mover].act(game, streams[mover])
            assert action in game.legal_actions()
            assert game.step(action) is Verdict.PLAYED
        points += {"win": 1.0, "draw": 0.5}.get(game.outcomes[seat], 0.0)
    return points / matches


def test_the_strong_player_beats_the_simple_one_and_both_beat_random_play():
    simple, strong = (Scripted(Poker, choose) for choose in (strategies._simple_poker, strategies._strong_poker))
    # Of 200 matches the standard error is 0.035; the shares are about 0.74, 0.70 and 0.60.
    assert share_of_wins(strong, RandomLegal(), 200) > 0.65
    assert share_of_wins(strong, simple, 200) > 0.6
    assert share_of_wins(simple, RandomLegal(), 400) > 0.52


def test_the_strong_player_sits_on_a_lead_that_blinds_cannot_take():
    game = started(num_rounds=3)
    game.chips = [1100, 870]  # 200 ahead after a fold, and two hands of at most 20 and 10 are to come
    game._hands[0] = cards("Ah As")
    assert strategies._strong_poker(game, 0, GameRng(0)) == "[Fold]"
    game.chips = [1030, 940]  # 60 ahead, which the blinds can take: 20 + 10, and the opponent wins them
    assert strategies._strong_poker(game, 0, GameRng(0)) != "[Fold]"


def test_a_board_that_nobody_can_beat_is_worth_half_on_the_river():
    game = started()
    game.street = 3
    game._hands[0], game._board = cards("3c 2d"), cards("Th Jh Qh Kh Ah")
    assert strategies.win_share(game, 0, GameRng(0)) == 0.5


class FirstLegal:
    """Checks or calls; folds, if `tight`, where more than 60 is due."""

    def __init__(self, *, tight):
        self.tight = tight

    def act(self, game, _):
        legal = game.legal_actions()
        return "[Fold]" if self.tight and "[Fold]" in legal and game.due(game.to_move) > 60 else legal[0]


def test_waiting_for_the_limit_of_actions_does_not_save_who_is_behind():
    """Passive play does not end 50 hands within 120 actions: undecided, it would never lose."""
    strong = scripted.player("Poker-v0-extreme", "strong")
    ends = {True: collections.Counter(), False: collections.Counter()}
    for tight, seed in itertools.product(ends, range(5)):
        game = registry.make("Poker-v0-extreme")
        game.reset(seed)
        seat = seed % 2
        players = [FirstLegal(tight=tight), strong] if seat == 0 else [strong, FirstLegal(tight=tight)]
        said = sequential.play_sequentially(game, players, GameRng(seed), max_actions=120)
        assert len(said) <= 120
        behind = game.chips[seat] + game.paid[seat] < game.chips[1 - seat] + game.paid[1 - seat]
        assert game.outcomes[seat] == ("loss" if behind else "win")
        ends[tight][str(game.outcomes[seat])] += 1
    assert all(found["loss"] >= 3 for found in ends.values()), ends


def test_chips_decide_a_match_that_is_stopped_and_bets_go_back():
    game = started(starting_chips=100)
    assert game.standing() == ("draw", "draw")  # the blinds are in the pot of a hand that nobody has won
    for seat, chips in ((0, [120, 40]), (1, [40, 120])):
        game.chips = chips
        game.paid = [20, 20]
        twin = game.clone()
        twin.stop()
        assert twin.outcomes == tuple("win" if s == seat else "loss" for s in range(2))
        assert twin.to_move is None
    assert not game.over

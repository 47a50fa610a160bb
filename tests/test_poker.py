"""Poker: cases worked out by hand, and what must hold in every match."""

import json
import random
import re

import pytest
from game_turns import said
from poker_turns import BAD, GOOD, set_cards, started

from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.textarena.poker import Poker


def with_chips(first, second, dealer=0, **options):
    """A match at the start of a hand before which the seats had these chips; seat 0 holds the better cards."""
    game = Poker(num_rounds=20, starting_chips=(first + second) // 2, **options)
    game.reset(0)
    game.step("[Fold]")  # a hand that the dealer, seat 0, gives up; then another one with the chips wanted
    if not dealer:
        game.step("[Fold]")
    game._news = [[], []]
    game.chips = [first, second]
    game.paid = [0, 0]
    game.round -= 1
    game._deal()
    set_cards(game, GOOD, BAD)
    return game, game._turn(game.dealer)


def amounts(game):
    """Every bet and raise that is accepted now, as the total it brings the seat's chips of this street to."""
    highest = max(game.bets)
    found = set()
    for number in range(2 * game.starting_chips + 2):
        bet = game.clone().step(f"[Bet {number}]") is Verdict.PLAYED
        if number >= highest:
            assert bet == (game.clone().step(f"[Raise {number - highest}]") is Verdict.PLAYED)
        if bet:
            found.add(number)
    return found


# ---- the order of a hand ------------------------------------------------------------------------------------------


def test_blinds_order_and_option_are_those_of_a_match_for_two():
    game = started()
    assert (game.dealer, game.to_move, game.chips, game.bets, game.pot) == (0, 0, [990, 980], [10, 20], 30)
    assert game.board == ()
    said(game, "[Call]")
    assert (game.to_move, game.street, game.due(1)) == (1, 0, 0)  # the big blind is asked after a limp
    assert game.legal_actions() == ["[Check]", "[Raise 20]", "[Raise 40]", "[Raise 980]"]
    said(game, "[Raise 40]")
    assert (game.to_move, game.bets, game.due(0)) == (0, [20, 60], 40)
    said(game, "[Call]")
    for street in (1, 2, 3):
        assert (game.street, len(game.board), game.bets, game.pot) == (street, street + 2, [0, 0], 120)
        assert game.to_move == 1
        said(game, "[Check]")
        assert game.to_move == 0
        said(game, "[Check]")
    assert (game.round, game.hands_played, game.dealer, game.to_move) == (2, 1, 1, 1)
    assert game.bets == [20, 10]


def test_a_check_after_a_limp_opens_the_flop():
    game = started()
    said(game, "[Call]", "[Check]")
    assert (game.street, game.to_move, game.pot) == (1, 1, 40)


def test_a_bet_and_a_call_close_a_street():
    game = started()
    said(game, "[Raise 20]", "[Call]")
    assert (game.street, game.pot, game.to_move) == (1, 80, 1)
    said(game, "[Check]", "[Bet 50]", "[Raise 100]", "[Call]")
    assert (game.street, game.pot, game.bets, game.to_move) == (2, 380, [0, 0], 1)


def test_the_deal_alternates_and_the_match_has_its_number_of_hands():
    game = started(num_rounds=5)
    dealers = []
    while not game.over:
        dealers.append(game.dealer)
        assert game.to_move == game.dealer
        said(game, "[Fold]")
    assert dealers == [0, 1, 0, 1, 0]
    assert game.hands_played == 5
    assert game.chips == [990, 1010]
    assert game.outcomes == (Outcome.LOSS, Outcome.WIN)


# ---- amounts ------------------------------------------------------------------------------------------------------


def test_a_bet_is_at_least_the_big_blind_and_a_raise_at_least_the_last_one():
    game = started(starting_chips=200)
    assert amounts(game) == set(range(40, 402))  # beyond 200 it is all-in
    said(game, "[Bet 90]")
    assert game.bets == [90, 20]
    assert game.smallest_raise == 70
    assert amounts(game) == set(range(160, 402))
    said(game, "[Call]")
    assert amounts(game) == set(range(20, 402))
    said(game, "[Bet 30]")
    assert amounts(game) == set(range(60, 402))
    said(game, "[Raise 40]")
    assert amounts(game) == set(range(110, 402))  # exactly all-in: 40 more than 70


def test_less_than_the_smallest_is_accepted_only_all_in():
    game, _ = with_chips(100, 300)
    said(game, "[Bet 90]")
    game, _ = with_chips(95, 305)
    said(game, "[Call]", "[Bet 60]")
    assert amounts(game) == set(range(95, 402))  # all-in with 35 above 60, where 40 would be the least
    said(game, "[Raise 40]")
    assert game.bets == [95, 60]


def test_nobody_can_raise_a_player_who_is_all_in():
    game, _ = with_chips(100, 300)
    said(game, "[Bet 100]")
    assert game.legal_actions() == ["[Call]", "[Fold]"]
    for reply in ("[Raise 20]", "[Bet 300]", "[Check]"):
        assert game.clone().step(reply) is Verdict.ILLEGAL
    game.step("[Raise 20]")
    assert game.observation(1) == "The opponent is all-in, you can only call or fold. Try again."


def test_who_cannot_exceed_the_bet_cannot_raise():
    game, _ = with_chips(100, 300, dealer=1)
    said(game, "[Bet 100]")
    assert game.legal_actions() == ["[Call]", "[Fold]"]
    assert game.clone().step("[Raise 50]") is Verdict.ILLEGAL
    assert game.clone().step("[Check]") is Verdict.ILLEGAL
    assert game.clone().step("[Bet 100]") is Verdict.ILLEGAL
    said(game, "[Call]")
    assert game.over is (game.chips[1] == 0)


@pytest.mark.parametrize("reply", ["[Bet 0]", "[Raise 0]", "[Bet 1]", "[Raise 19]", "[Bet 39]", "[Check]"])
def test_these_are_illegal_at_the_start(reply):
    game = started()
    assert game.step(reply) is Verdict.ILLEGAL
    assert re.fullmatch(r"[^0-9]+ Try again\.", game.observation(0))


def test_a_call_with_nothing_due_is_illegal_and_a_fold_is_not():
    game = started()
    said(game, "[Call]")
    assert game.clone().step("[Call]") is Verdict.ILLEGAL
    assert "[Fold]" not in game.legal_actions()
    said(game, "[Fold]")
    assert (game.round, game.chips) == (2, [1000, 970])  # 1020 and 980, less the blinds


def test_listed_amounts_are_the_smallest_half_the_pot_the_pot_and_what_both_have():
    game = started()
    assert game.legal_actions() == ["[Call]", "[Fold]", "[Raise 20]", "[Raise 40]", "[Raise 980]"]
    said(game, "[Raise 80]", "[Call]")  # 200 in the pot
    assert game.legal_actions() == ["[Check]", "[Bet 20]", "[Bet 100]", "[Bet 200]", "[Bet 900]"]
    said(game, "[Bet 100]")  # 400 after a call
    assert game.legal_actions() == ["[Call]", "[Fold]", "[Raise 100]", "[Raise 200]", "[Raise 400]", "[Raise 800]"]
    game, _ = with_chips(1000, 50)
    assert game.legal_actions() == ["[Call]", "[Fold]", "[Raise 20]", "[Raise 30]"]  # more than 30 would go back


def test_every_listed_action_is_played_and_no_two_lead_to_the_same_position():
    rng = GameRng(derive_seed("poker listed"))
    for seed in range(30):
        game = started(seed)
        while not game.over:
            actions = game.legal_actions()
            after = []
            for action in actions:
                twin = game.clone()
                assert twin.step(action) is Verdict.PLAYED
                after.append(json.dumps([twin.to_json()["state"], twin.outcomes, twin.to_move]))
            assert len(set(after)) == len(actions)
            said(game, actions[rng.randrange(len(actions))])


# ---- who gets what ------------------------------------------------------------------------------------------------


def test_an_uncalled_bet_goes_back():
    game = started()
    said(game, "[Raise 480]", "[Fold]")
    assert game.observation(0).split("\n")[-2] == "Hand 1 ends: Opponent folds, you win the pot of 40."
    assert [chips + paid for chips, paid in zip(game.chips, game.paid, strict=True)] == [1020, 980]


@pytest.mark.parametrize(("winner", "chips"), [(0, [200, 1800]), (1, [0, 2000])])
def test_a_short_stack_can_win_only_what_it_matched(winner, chips):
    game, _ = with_chips(100, 1900, dealer=1)
    if winner:
        set_cards(game, BAD, GOOD)
    said(game, "[Bet 1900]")
    assert game.chips == [80, 0]
    said(game, "[Call]")
    assert [c + p for c, p in zip(game.chips, game.paid, strict=True)] == chips
    assert game.over is (winner == 1)


def test_a_large_stack_that_calls_a_short_all_in_pays_only_that():
    game, _ = with_chips(100, 1900)
    said(game, "[Raise 80]", "[Call]")
    assert [c + p for c, p in zip(game.chips, game.paid, strict=True)] == [200, 1800]


def test_equal_hands_share_the_pot():
    game = started()
    set_cards(game, "Ac Kc", "Ad Kd", "Qh Qs Jh 2s 3h")
    said(game, "[Raise 281]", "[Call]", *["[Check]"] * 6)
    assert [c + p for c, p in zip(game.chips, game.paid, strict=True)] == [1000, 1000]
    assert "the pot of 602 is shared." in game.observation(0)
    assert "the pot of 602 is shared." in game.observation(1)


def test_the_board_alone_can_be_the_best_hand_of_both():
    game = started(num_rounds=1)
    set_cards(game, "Ac Ad", "7c 2d", "Th Jh Qh Kh Ah")
    said(game, "[Raise 980]", "[Call]")
    assert game.outcomes == (Outcome.DRAW, Outcome.DRAW)
    assert game.measures() == {"chips_0": 1000.0, "chips_1": 1000.0, "hands_played": 1.0}


@pytest.mark.parametrize(
    ("chips", "dealer", "asked", "due"),
    [
        ((985, 15), 0, True, 5),  # the big blind is 15 and all-in: the dealer may call 5
        ((990, 10), 0, False, 0),  # it is as much as the small blind: nothing to decide
        ((995, 5), 0, False, 0),
        ((985, 15), 1, True, 5),  # the small blind has 5 left and owes 10
        ((990, 10), 1, False, 0),  # the small blind is all-in
        ((995, 5), 1, False, 0),
    ],
)
def test_short_blinds_are_all_in_for_what_they_are(chips, dealer, asked, due):
    game, turn = with_chips(*chips, dealer=dealer)
    matched = min(chips)
    if not asked:
        assert turn == (Outcome.WIN, Outcome.LOSS)
        assert game.chips == [1000, 0]
        return
    assert turn == dealer
    assert game.due(dealer) in {due, 10}
    game.to_move = turn
    assert game.legal_actions() == ["[Call]", "[Fold]"]
    assert f"to call {due}." in game.observation(dealer)
    set_cards(game, BAD, GOOD)
    said(game, "[Call]")
    assert [c + p for c, p in zip(game.chips, game.paid, strict=True)] == [1000 - 2 * matched, 2 * matched]


def test_hands_with_a_blind_that_is_all_in_are_played_without_asking():
    # After the first hand seat 1 has 1 chip; every blind is all-in until it is broke or has more than a blind.
    for seed in range(40):
        game = started(seed, num_rounds=30)
        set_cards(game, "Ac Ad", "Ah 2d")
        game.chips = [990 + 979, 1]
        said(game, "[Fold]")
        assert game.over or game.hands_played > 2 or min(game.chips) > 0
        assert sum(game.chips) + game.pot == 2000
        if not game.over:
            assert game.legal_actions()


def test_the_winner_is_whoever_has_more_chips_after_the_last_hand():
    for better, outcomes in ((0, ("win", "loss")), (1, ("loss", "win"))):
        game = started(num_rounds=1)
        set_cards(game, *((GOOD, BAD) if better == 0 else (BAD, GOOD)))
        said(game, "[Call]", *["[Check]"] * 7)
        assert game.outcomes == outcomes
        assert sorted(game.chips) == [980, 1020]


# ---- what always holds --------------------------------------------------------------------------------------------


def any_reply(game, rng):
    """Something legal, mostly, with any amount, listed or not."""
    if rng.random() < 0.5:
        return rng.choice(game.legal_actions())
    most = rng.choice((30, 200, 3000))
    return rng.choice(("[Call]", "[Check]", "[Fold]", f"[Bet {rng.randrange(most)}]", f"[Raise {rng.randrange(most)}]"))


def test_no_chip_is_made_or_lost_at_any_step():
    steps = 0
    for seed in range(400):
        rng = random.Random(seed)
        game = started(seed, illegal_allowance=10**6, starting_chips=rng.choice((21, 55, 1000, 10_000)))
        while not game.over:
            before = game.to_json()["state"]
            verdict = game.step(any_reply(game, rng))
            steps += 1
            if verdict is not Verdict.PLAYED:
                assert game.to_json()["state"] == before
            assert sum(game.chips) + game.pot == 2 * game.starting_chips
            assert min(*game.chips, *game.bets, *game.paid) >= 0
            assert all(bet <= paid for bet, paid in zip(game.bets, game.paid, strict=True))
            assert len({*game.hand(0), *game.hand(1), *game._board}) == 9
            if not game.over:
                assert game.chips[game.to_move] > 0
        own, other = game.chips
        expected = ("draw", "draw") if own == other else ("win", "loss") if own > other else ("loss", "win")
        assert game.outcomes == expected
        assert 0 in (own, other) or game.hands_played == 10 or game.actions_played == game.max_actions
    assert steps > 5_000


STUBBORN = ["[Check]", "[Call]", "[Raise 1]", "[Raise 20]", "[Bet 1000000]", "[Fold]", "[Bet 20]", "nonsense", ""]


@pytest.mark.parametrize("options", [{}, {"num_rounds": 50, "max_actions": 1000}, {"illegal_allowance": 0}])
@pytest.mark.parametrize("other", [*STUBBORN, None])
@pytest.mark.parametrize("one", STUBBORN)
def test_a_match_ends_whatever_is_replied(one, other, options):
    game = started(1, **options)
    rng = random.Random(1)
    replies = 0
    while not game.over:
        reply = one if game.to_move == 0 else other
        game.step(rng.choice(game.legal_actions()) if reply is None else reply)
        replies += 1
        assert replies <= 2 * game.max_game_length + 2
    assert game.actions_played <= game.max_game_length
    assert game.outcomes is not None


def raise_as_little_as_possible(game):
    actions = game.legal_actions()
    return actions[2] if actions[0] == "[Call]" and len(actions) > 2 else actions[1] if len(actions) > 2 else actions[0]


def test_the_match_ends_by_chips_at_the_last_action_allowed_and_bets_go_back():
    game = started(num_rounds=3, max_actions=40)
    assert game.max_game_length == 40
    said(game, "[Fold]")
    while not game.over:
        paid = list(game.paid)
        assert game.actions_played < 40
        said(game, raise_as_little_as_possible(game))
    assert game.actions_played == 40
    assert paid != [0, 0]
    assert game.hands_played == 1
    assert game.chips == [990, 1010]
    assert game.outcomes == ("loss", "win")
    assert "Hand 2 is not finished, the bets go back." in game.observation(0)


def test_a_hand_that_ends_with_the_last_action_counts():
    game = started(max_actions=2)
    said(game, "[Raise 100]")
    assert not game.over
    said(game, "[Fold]")
    assert (game.chips, game.hands_played, game.round, game.outcomes) == ([1020, 980], 1, 1, ("win", "loss"))


def test_no_hand_is_longer_than_the_bound_says():
    # Raises as small as possible on every street, then calls; the bound of one hand is 9 + chips / big blind.
    longest = 0
    for raises in range(60):
        game = started(num_rounds=1, max_actions=10_000)
        while not game.over:
            wants_more = game.actions_played % 60 < raises
            said(game, raise_as_little_as_possible(game) if wants_more else game.legal_actions()[0])
        longest = max(longest, game.actions_played)
        assert game.actions_played <= game.max_game_length == 59
    assert longest >= 50

"""Poker is the game of textarena 0.6.4, but for the deviations that the docstring of `Poker` lists.

The oracle gets our cards; then both take the same replies and are compared after each one: verdict, chips, pot, bets,
board, who moves, how it ends. Where the rules differ only ours plays on until the hand is over, and the oracle is set
to the next one.
"""

import random
from collections import Counter

import pytest
from game_turns import said
from poker_turns import started

from dfc.games.game import Verdict
from dfc.games.textarena.poker_hands import cards, strength, text

GAMES = 2000
SYMBOLS = {"c": "\u2663", "d": "\u2666", "h": "\u2665", "s": "\u2660"}


def their_cards(ours):
    return [{"rank": name[0].replace("T", "10"), "suit": SYMBOLS[name[1]]} for name in text(ours).split()]


def set_oracle(game, env):
    """Sets the oracle to the start of our hand."""
    state = env.state.game_state
    state["round"], state["betting_round"], state["game_complete"] = game.round, 0, False
    state["button"] = 1 - game.dealer  # who posts the big blind is the button there
    state["player_chips"] = {seat: game.chips[seat] + game.paid[seat] for seat in range(2)}
    env.state.error_count = 0
    env._reset_round()
    copy_cards(game, env)


def copy_cards(game, env):
    state = env.state.game_state
    state["player_hands"] = {seat: their_cards(game.hand(seat)) for seat in range(2)}
    state["community_cards"] = their_cards(game._board)


def new_oracle(game):
    from textarena.envs.Poker.env import PokerEnv

    env = PokerEnv(game.num_rounds, game.starting_chips, game.small_blind, game.big_blind)
    env.reset(num_players=2)
    set_oracle(game, env)
    return env


def same_position(game, env):
    state = env.state.game_state
    assert game.to_move == env.state.current_player_id
    assert (game.round, game.street, game.pot) == (state["round"], state["betting_round"], state["pot"])
    assert game.chips == [state["player_chips"][seat] for seat in range(2)]
    assert game.bets == [state["player_bets"][seat] for seat in range(2)]
    assert max(game.bets) == state["current_bet"]
    assert their_cards(game.board) == state["visible_community_cards"]


def has_long_straight(hand):
    """Whether seven cards hold two straights, of which 0.6.4 takes the lower one."""
    ranks = {card // 4 for card in hand}
    ranks |= {-1} if 12 in ranks else set()
    return sum(all(low + k in ranks for k in range(5)) for low in range(-1, 9)) > 1


def rules_differ(game, reply):
    """Whether a legal reply leads to where 0.6.4 has other rules: an all-in, a blind that is one, a long straight."""
    twin = game.clone()
    twin.step(reply)
    if twin.hands_played == game.hands_played:
        return not all(twin.chips)
    compared = reply in {"[Call]", "[Check]"}
    long = any(has_long_straight([*game.hand(seat), *game._board]) for seat in range(2))
    all_in = reply == "[Call]" and min(game.chips) <= game.due(game.to_move)
    return (
        twin.hands_played > game.hands_played + 1
        or all_in
        or (compared and long)
        or (not twin.over and 0 in twin.chips)
    )


def oracle_reply(game, rng):
    """A reply both know: legal, with moderate amounts so that few hands end all-in, or illegal in both."""
    if rng.random() < 0.04:
        return rng.choice(("[Raise 0]", "[Check]"))
    actions = game.legal_actions()
    if len(actions) > 2 and rng.random() < 0.4:
        least = max(game.bets) + game.smallest_raise
        total = least + rng.randrange(40)
        name = rng.choice((f"[Bet {total}]", f"[Raise {total - max(game.bets)}]", f"[raise {total - max(game.bets)}]"))
        return name if rng.random() < 0.97 else f"[Bet {rng.choice((5000, total + 300))}]"
    if rng.random() < 0.06:
        return "[Fold]"
    return rng.choice((actions[0], actions[0].lower(), f"well, {actions[0].upper()}"))


SIGNS = {"invalid": -1, "loss": -1, "draw": 0, "win": 1}


class Pair:
    """Our match and the oracle's.

    Attributes:
      alone: the rules differ in this hand, so only ours plays it.
      seen: what was compared, and how matches ended.
    """

    def __init__(self, seed, hands):
        self.game = started(seed, num_rounds=hands)
        self.env = new_oracle(self.game)
        self.alone = False
        self.seen = Counter()

    def step(self, rng):
        game = self.game
        hand = game.hands_played
        limped = game.street == 0 and not game.due(game.to_move)  # there it is the flop already
        if not (self.alone or limped):
            same_position(game, self.env)
        reply = oracle_reply(game, rng)
        if limped and rng.random() < 0.9:
            reply = "[Check]"
        canonical = game._read(reply[reply.index("[") :])
        legal = game._objection(canonical) is None
        self.alone |= (limped and canonical != "[Check]") or (legal and rules_differ(game, canonical))
        if self.alone or limped:
            game.step(reply)
            self.seen["ends alone"] += game.over
            if game.hands_played > hand and not game.over:
                set_oracle(game, self.env)
                self.alone = not all(game.chips)
            return
        self.step_both(reply)
        if game.hands_played > hand:
            self.seen["hands"] += 1
            copy_cards(game, self.env)
            self.alone = not all(game.chips)

    def step_both(self, reply):
        game, env = self.game, self.env
        seat, errors = game.to_move, env.state.error_count
        verdict = game.step(reply)
        done, info = env.step(reply)
        self.seen["replies"] += 1
        assert done == game.over
        if not done:
            assert (env.state.error_count == errors + 1) == (verdict is Verdict.ILLEGAL), reply
            return
        self.seen[game.outcomes] += 1
        rewards = env.close()
        assert SIGNS[game.outcomes[seat]] == rewards[seat]
        forfeit = info["reason"].startswith("Invalid Move")
        assert forfeit == (verdict is Verdict.FORFEIT_ILLEGAL)
        if not forfeit:  # then textarena gives the other one 0, here he has won
            assert game.chips == [env.state.game_state["player_chips"][s] for s in range(2)]
            assert [SIGNS[outcome] for outcome in game.outcomes] == [rewards[s] for s in range(2)]


def test_a_match_is_that_of_textarena():
    seen = Counter()
    for seed in range(GAMES):
        rng = random.Random(seed)
        pair = Pair(seed, rng.choice((2, 10, 15)))
        while not pair.game.over:
            pair.step(rng)
        seen += pair.seen
    assert seen["ends alone"] < GAMES * 0.5
    assert seen["hands"] > GAMES * 3
    assert seen["replies"] > GAMES * 30
    assert {("win", "loss"), ("loss", "win"), ("win", "invalid"), ("invalid", "win")} <= set(seen)


def test_hands_compare_as_textarena_compares_them_but_for_two_straights():
    from textarena.envs.Poker.env import PokerEnv

    env, rng, compared = PokerEnv(), random.Random(2), 0
    order = []
    for _ in range(6000):
        hand = rng.sample(range(52) if rng.random() < 0.6 else range(20, 52), 7)
        if not has_long_straight(hand):
            compared += 1
            kind, ties = env._evaluate_hand(their_cards(hand))
            order.append((strength(hand), (kind, tuple(ties))))
    ours, theirs = zip(*sorted(set(order)), strict=True)
    assert list(theirs) == sorted(theirs)
    assert len(set(ours)) == len(set(theirs)) == len(ours)
    assert compared > 4000
    low, high = (cards(names) for names in ("4c 5d 6h 7s 8c Kd Kh", "4c 5d 6h 7s 8c 9d Kh"))
    assert strength(high) > strength(low)
    assert env._evaluate_hand(their_cards(high)) == env._evaluate_hand(their_cards(low))


def test_an_all_in_can_be_answered_here_and_not_in_textarena():
    game = started()
    env = new_oracle(game)
    said(game, "[Bet 1000]")
    env.step("[Bet 1000]")
    assert game.to_move == 1
    assert game.hands_played == 0
    assert env.state.game_state["round"] == 2 or env.state.done
    said(game, "[Fold]")
    assert [c + p for c, p in zip(game.chips, game.paid, strict=True)] == [1020, 980]


def test_the_big_blind_may_raise_after_a_limp_here_and_not_in_textarena():
    game = started()
    env = new_oracle(game)
    said(game, "[Call]")
    env.step("[Call]")
    assert (game.street, env.state.game_state["betting_round"]) == (0, 1)
    said(game, "[Raise 20]")
    assert game.street == 0


@pytest.mark.parametrize("reply", ["[Bet 1]", "[Bet 0]", "[Raise 1]"])
def test_bets_below_the_smallest_are_illegal_here_and_legal_in_textarena(reply):
    game = started()
    env = new_oracle(game)
    for one in ("[Call]", "[Check]"):
        said(game, one)
    env.step("[Call]")
    same_position(game, env)
    assert game.step(reply) is Verdict.ILLEGAL
    env.step(reply)
    assert env.state.error_count == 0
    assert env.state.current_player_id == 0


def test_a_part_of_a_bet_cannot_be_called_here_and_can_in_textarena():
    game = started()
    env = new_oracle(game)
    said(game, "[Raise 200]")
    env.step("[Raise 200]")
    assert game.step("[Bet 21]") is Verdict.ILLEGAL
    env.step("[Bet 21]")
    assert env.state.error_count == 0
    assert env.state.game_state["player_bets"] == {0: 220, 1: 21}


def test_a_call_of_nothing_is_illegal_here_and_goes_on_without_end_in_textarena():
    game = started()
    env = new_oracle(game)
    said(game, "[Call]", "[Check]")
    env.step("[Call]")
    for _ in range(40):
        env.step("[Call]")
    assert env.state.game_state["betting_round"] == 1
    assert game.step("[Call]") is Verdict.ILLEGAL

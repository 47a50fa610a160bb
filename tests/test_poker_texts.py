"""Poker: what is read and said, what a seat can see, and how cards are dealt."""

import json
import random
import re
import time
from collections import Counter

import pytest
from game_turns import said
from poker_turns import set_cards, started

from dfc.games.bots import hidden_information as strategies
from dfc.games.game import Verdict
from dfc.games.rng import GameRng
from dfc.games.textarena.poker import Poker
from dfc.games.textarena.poker_hands import text

# ---- what is read and said ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "canonical"),
    [
        ("[call]", "[Call]"),
        ("[CALL 20]", "[Call]"),
        ("[ Fold ]", "[Fold]"),
        ("[raise 040]", "[Raise 40]"),
        ("[BET  40]", "[Bet 40]"),
        ("[Bet 99999999]", "[Bet 2000]"),
        ("[Bet " + "9" * 5000 + "]", "[Bet 2000]"),
        ("[Bet]", None),
        ("[Bet forty]", None),
        ("[Bet -40]", None),
        ("[Bet 4.0]", None),
        ("[Bet 40 chips]", None),
        ("[Bet \u0664\u0660]", None),
        ("[Check 20]", None),
        ("[Check now]", None),
        ("[Call it]", None),
        ("[Fold 1 2]", None),
        ("[Fold 1]", None),
        ("[All-in]", None),
        ("[]", None),
        ("[ ]", None),
    ],
)
def test_actions_are_read_in_these_spellings(reply, canonical):
    assert started()._read(reply) == canonical


@pytest.mark.parametrize("filler", [" ", "9", "[", "]", "\u3000", "bet ", "\u0130", "[Bet ", "0", "\n"])
def test_long_replies_are_answered_at_once(filler):
    game = started(illegal_allowance=100, malformed_allowance=100)
    text_ = filler * (100_000 // len(filler))
    start = time.process_time()
    for reply in (text_, f"[{text_}]", f"[Bet {text_}]", f"[Bet{text_}40{text_}", f"[Raise 4{text_}0]"):
        assert game.step(reply) in set(Verdict)
        if game.over:
            break
    assert time.process_time() - start < 3.0


def test_the_news_of_a_hand_are_these_lines():
    game = started()
    set_cards(game, "Ah Td", "9c 9d", "9h 5s 2c Kd Ac")
    game._news[0][-1] = game._position(0)
    rules, hand, position = game.observation(0).split("\n")
    assert rules.endswith("[Raise 40] to raise the highest bet by 40.")
    assert hand == "Hand 1 of 10: you deal and post 10, Opponent posts 20."
    assert position == "Your cards Ah Td, pot 30, chips 990, Opponent 980, to call 10, smallest raise 20."
    said(game, "[Raise 40]")
    assert game.observation(1).split("\n")[1:] == [
        "Hand 1 of 10: Opponent deals, you post 20, Opponent posts 10.",
        "Preflop: Opponent raises to 60.",
        "Your cards 9c 9d, pot 80, chips 980, Opponent 940, to call 40, smallest raise 40.",
    ]
    said(game, "[Call]")
    assert game.observation(1) == (
        "Your cards 9c 9d, board 9h 5s 2c, pot 120, chips 940, Opponent 940, to call 0, smallest bet 20."
    )
    said(game, "[Check]")
    assert game.observation(0).split("\n")[:2] == ["Preflop: Opponent calls 40.", "Flop: Opponent checks."]
    said(game, "[Bet 900]", "[Raise 40]")
    assert game.observation(0).split("\n") == [
        "Flop: Opponent raises to 940, all-in.",
        "Your cards Ah Td, board 9h 5s 2c, pot 1960, chips 40, Opponent 0, to call 40.",
    ]
    said(game, "[Call]")
    assert game.observation(1).split("\n") == [
        "Flop: Opponent calls 40, all-in.",
        (
            "Hand 1 ends: board 9h 5s 2c Kd Ac, you 9c 9d (three of a kind), Opponent Ah Td (pair), "
            "you win the pot of 2000."
        ),
        "The match ends: you have 2000 chips, Opponent 0.",
    ]


def test_cards_of_a_folded_hand_are_never_shown():
    game = started()
    said(game, "[Raise 40]", "[Call]", "[Bet 40]", "[Fold]")
    for seat in range(2):
        assert text(game.hand(1 - seat)) not in game.observation(seat)
        last = next(line for line in game.observation(seat).split("\n") if "ends" in line)
        assert not re.search(r"[2-9TJQKA][cdhs]", last)


def swapped(game, seat, rng):
    """The same match with other cards where `seat` cannot see them: the opponent's and those not on the table."""
    data = json.loads(json.dumps(game.to_json()))
    table = game._board[: (0, 3, 4, 5)[game.street]]
    seen = [*game.hand(seat), *table]
    hidden = rng.sample([card for card in range(52) if card not in seen], 7)
    data["state"]["hands"][1 - seat] = hidden[:2]
    data["state"]["board"] = [*table, *hidden[2 : 7 - len(table)]]
    twin = Poker()
    twin.from_json(data)
    return twin


@pytest.mark.parametrize("seat", [0, 1])
def test_what_a_seat_is_shown_and_how_it_plays_do_not_depend_on_cards_it_cannot_see(seat):
    compared = Counter()
    for seed in range(150):
        rng = random.Random(seed)
        game = started(seed)
        for _ in range(rng.randrange(12)):
            if not game.over:
                actions = game.legal_actions()
                game.step(actions[0] if rng.random() < 0.8 else rng.choice(actions))
        if game.over:
            continue
        twin = swapped(game, seat, rng)
        assert twin._hands != game._hands
        hand = game.round
        while True:
            assert twin.observation(seat) == game.observation(seat)
            assert twin.legal_actions() == game.legal_actions()
            if game.to_move == seat:
                for choose in (strategies._simple_poker, strategies._strong_poker):
                    assert choose(twin, seat, GameRng(3)) == choose(game, seat, GameRng(3))
            compared[game.street] += 1
            action = rng.choice(game.legal_actions())
            after = game.clone()
            after.step(action)
            if after.over or after.round != hand or after.street != game.street:
                break  # cards are turned over: the worlds part
            game, twin = after, twin.clone()
            twin.step(action)
    assert min(compared[street] for street in range(4)) > 10


def test_cards_are_dealt_with_equal_probability():
    places = [Counter() for _ in range(9)]
    for seed in range(5200):
        game = started(seed)
        dealt = [*game._hands[0], *game._hands[1], *game._board]
        for place, card in zip(places, dealt, strict=True):
            place[card] += 1
    both = places[0] + places[1], places[2] + places[3], *places[4:]
    for counts in both:
        expected = sum(counts.values()) / 52
        chi_square = sum((counts[card] - expected) ** 2 / expected for card in range(52))
        assert chi_square < 51 + 5 * (2 * 51) ** 0.5

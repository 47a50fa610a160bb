"""What every registered game must keep, whatever its rules.

A new game is tested as soon as its id is registered. Add one line for it to `ILLEGAL_AT_START` (by id) and to
`OUT_OF_RANGE` (by class) if some of its actions are readable and against the rules; leave it out, or say None, if
whatever can be read can be played.
"""

import json
import random
import re
import time

import pytest
from game_turns import started
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_games import GAME_IDS, TWO_SEATS, WITH_SIMULATORS, everything_seen, play_random, reply_of

from dfc.games import registry, scripted
from dfc.games.conformance import check
from dfc.games.conformance.protocol import Subject
from dfc.games.game import Game, Verdict

ACTIONS = 300  # about so many are played per test of an id, in 2 to 8 games
# Well-formed and against the rules in the first position of every game.
ILLEGAL_AT_START = {
    "TicTacToe-v0": "[9]",
    "ConnectFour-v0": "[col 7]",
    "ConnectFour-v0-blind": "[col 7]",
    "ConnectFour-v0-large": "[col 15]",
    "TowerOfHanoi-v0": "[B C]",
    "TowerOfHanoi-v0-medium": "[A A]",
    "GuessTheNumber-v0": "[21]",
    "GuessTheNumber-v0-hardcore": "[0]",
    "LiarsDice-v0": "[Call]",
    "Nim-v0": "[0 4]",
    "Poker-v0": "[Bet 0]",
    "Poker-v0-long": "[Bet 0]",
    "Poker-v0-extreme": "[Bet 0]",
    "SimpleNegotiation-v0": "[Accept]",
    "SimpleNegotiation-v0-short": "[Accept]",
    "SimpleNegotiation-v0-long": "[Accept]",
}
OUT_OF_RANGE = {
    "TicTacToe": ["[9]", "[10]", "[99999]"],
    "ConnectFour": ["[col 15]", "[col 70]"],
    "TowerOfHanoi": ["[A A]", "[B B]", "[C C]"],
    "GuessTheNumber": ["[0]", "[51]", "[1000]"],
    "LiarsDice": ["[Bid: 0, 3]", "[Bid: 11, 1]", "[Bid: 1, 7]", "[Bid: 1, 0]"],
    "Nim": ["[0 0]", "[3 1]", "[0 100]", "[30 1]"],
    "Poker": ["[Bet 0]", "[Raise 0]"],
    "SimpleNegotiation": ["[Offer: 9999 Ore -> 1 Wheat]"],
}
HUGE = "9" * 5000  # more digits than int() takes


def seeds_of(game_id):
    """Fewer seeds for longer games."""
    return range(max(2, min(8, ACTIONS // registry.make(game_id).max_game_length)))


def illegal_now(game):
    """A readable reply that is against the rules now, or None if none of the examples is."""
    examples = [ILLEGAL_AT_START.get(game.id), *(OUT_OF_RANGE.get(type(game).__name__) or ())]
    if game.to_move is None or game.to_move >= game.seats:
        return None
    for action in examples:
        twin = game.clone()
        twin.illegal_allowance = 99
        if action is not None and twin.step(action) is Verdict.ILLEGAL:
            return action
    return None


def test_the_illegal_examples_are_those_of_registered_games():
    assert set(ILLEGAL_AT_START) <= set(GAME_IDS)
    assert set(OUT_OF_RANGE) <= {registry.kind(game_id).__name__ for game_id in GAME_IDS}


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_facts_are_the_same_before_and_after_a_game(game_id):
    game = registry.make(game_id)
    before = game.info
    assert before.id == game_id
    assert before.seats in {1, 2}
    assert before.max_game_length >= 1
    assert before.grammar
    assert len(before.simulators) == len(set(before.simulators))
    assert type(game).stateless_roles <= {"player", *before.simulators}
    assert all(size >= 1 for size in before.splits.values())
    for _ in play_random(started(game_id), random.Random(0)):
        pass
    assert game.info == before == started(game_id, 5).info


@pytest.mark.parametrize("game_id", GAME_IDS)
@pytest.mark.parametrize("name", check.PROPERTIES)
def test_every_property_of_the_protocol_holds(game_id, name):
    # That each of them can fail is shown by tests/test_check.py.
    subject = Subject(lambda: registry.make(game_id), seeds_of(game_id), scripted.simulators(game_id))
    assert check.run(name, check.PROPERTIES[name], subject) == []


# ---- what a seat is shown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seat", [0, 1])
def test_observations_do_not_depend_on_the_opponents_dice(seat):
    compared = 0
    for seed in range(60):
        game = started("LiarsDice-v0", seed)
        rng = random.Random(seed)
        for _ in range(rng.randrange(20)):  # also in later rounds, with fewer dice
            if game.over:
                break
            game.step(rng.choice(game.legal_actions()))
        if game.over:
            continue
        data = game.to_json()
        data["state"]["dice"][1 - seat] = sorted(rng.randint(1, 6) for _ in data["state"]["dice"][1 - seat])
        swapped = registry.make("LiarsDice-v0")
        swapped.from_json(data)
        while True:
            assert swapped.observation(seat) == game.observation(seat)
            assert swapped.legal_actions() == game.legal_actions()
            bids = [action for action in game.legal_actions() if action != "[Call]"]
            if not bids:
                break
            bid = rng.choice(bids)
            assert swapped.step(bid) is game.step(bid) is Verdict.PLAYED
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("seat", [0, 1])
def test_the_deal_shows_a_seat_its_own_dice_only(seat):
    # Two seeds that deal this seat the same hand and the other seat different ones.
    by_hand = {}
    pairs = 0
    for seed in range(300):
        game = started("LiarsDice-v0", seed)
        dice = game.to_json()["state"]["dice"]
        twin = by_hand.setdefault(tuple(dice[seat]), game)
        if twin.to_json()["state"]["dice"][1 - seat] == dice[1 - seat]:
            continue
        pairs += 1
        assert game.observation(seat) == twin.observation(seat)
        assert game.observation(1 - seat) != twin.observation(1 - seat)
    assert pairs > 20


@pytest.mark.parametrize("game_id", ["GuessTheNumber-v0", "GuessTheNumber-v0-hardcore"])
def test_observations_tell_of_the_target_only_what_the_hints_say(game_id):
    compared = 0
    for seed in range(60):
        game = started(game_id, seed)
        rng = random.Random(seed)
        data = game.to_json()
        target = data["state"]["target"]
        other = rng.choice([int(action[1:-1]) for action in game.legal_actions()])
        data["state"]["target"] = other
        swapped = registry.make(game_id)
        swapped.from_json(data)
        low, high = sorted((target, other))
        while not game.over:
            assert swapped.observation(0) == game.observation(0)
            assert swapped.legal_actions() == game.legal_actions()
            # Guesses outside the two targets get the same hint in both games.
            outside = [action for action in game.legal_actions() if not low <= int(action[1:-1]) <= high]
            if not outside:
                break
            guess = rng.choice(outside)
            assert swapped.step(guess) is game.step(guess) is Verdict.PLAYED
            compared += 1
        assert swapped.outcomes == game.outcomes
    assert compared > 100


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_a_seat_that_does_not_exist_is_shown_nothing(game_id):
    game = started(game_id)
    seats = game.seats + len(game.simulators)
    for seat in (-1, seats):
        with pytest.raises(ValueError, match=rf"{game_id}: seat must be from 0 to {seats - 1}, got {seat}"):
            game.observation(seat)


# ---- invalid replies ----------------------------------------------------------------------------------------------


CAN_BE_ILLEGAL = [game_id for game_id, example in ILLEGAL_AT_START.items() if example is not None]


@pytest.mark.parametrize("game_id", CAN_BE_ILLEGAL)
@pytest.mark.parametrize("allowance", [0, 1, 3])
def test_illegal_replies_are_asked_again_as_often_as_allowed(game_id, allowance):
    game = started(game_id, illegal_allowance=allowance)
    seat = game.to_move
    legal = game.legal_actions()
    for tries in range(1, allowance + 1):
        assert game.step(ILLEGAL_AT_START[game_id]) is Verdict.ILLEGAL
        assert game.to_move == seat
        assert game.legal_actions() == legal
        assert game.actions_played == 0
        assert game.illegal_tries[seat] == tries
        text = game.observation(seat)
        assert text.endswith(" Try again.")
        assert not any(character.isdigit() for character in text)
        assert "\n" not in text
    assert game.step(ILLEGAL_AT_START[game_id]) is Verdict.FORFEIT_ILLEGAL
    assert game.illegal_tries[seat] == allowance + 1
    assert game.forfeited_by == seat
    assert game.outcomes == tuple("invalid" if s == seat else "win" for s in range(game.seats))
    assert game.legal_actions() == []


@pytest.mark.parametrize("game_id", CAN_BE_ILLEGAL)
def test_a_legal_action_clears_the_row_of_illegal_tries_but_not_their_count(game_id):
    game = started(game_id)
    rng = random.Random(1)
    rounds = 0
    while not game.over and rounds < 4:
        illegal = illegal_now(game)
        seat = game.to_move
        if illegal is not None:
            before = game.illegal_tries[seat]
            assert game.step(illegal) is Verdict.ILLEGAL
            assert game.step(reply_of(game, rng)) is Verdict.PLAYED
            assert game.illegal_tries[seat] == before + 1
            rounds += 1
        else:
            game.step(reply_of(game, rng))
    assert sum(game.illegal_tries) == rounds > 0


@pytest.mark.parametrize("game_id", [game_id for game_id in CAN_BE_ILLEGAL if game_id in TWO_SEATS])
def test_the_opponent_is_not_told_of_an_illegal_try(game_id):
    game = started(game_id)
    quiet = started(game_id)
    other = 1 - game.to_move
    game.step(ILLEGAL_AT_START[game_id])
    assert game.observation(other) == quiet.observation(other)
    action = game.legal_actions()[0]
    game.step(action)
    quiet.step(action)
    assert game.observation(other) == quiet.observation(other)


def test_history_keeps_failed_tries_and_is_kept_by_copies():
    game = started("Nim-v0", malformed_allowance=1, history=True)
    rules = game.observation(0).split("\n")[0]
    game.step("well [0 9]")
    game.step("hm")
    copies = [game.clone(), registry.make("Nim-v0", malformed_allowance=1, history=True)]
    copies[1].from_json(json.loads(json.dumps(game.to_json())))
    for twin in (game, *copies):
        assert twin.observation(0).split("\n") == [
            rules,
            "Piles: 3, 4, 5.",
            "You: [0 9]",
            "That pile holds fewer objects. Try again.",
            "You: (nothing that could be read)",
            "No action could be read. Reply in the form [1 2]. Try again.",
        ]
        twin.step("[0 3]")
        assert "Try again" not in twin.observation(1)
        assert twin.observation(0).endswith("You: [0 3]")


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_words_and_thoughts_around_one_action_do_not_matter(game_id):
    for seed in range(3):
        start = started(game_id, seed)
        first, *others = start.legal_actions()
        second = others[0] if others else first
        expected = start.clone()
        expected.step(first)
        replies = [
            f"<think>{second}? No.</think>{first}",
            f"{second}</think>\n{first}",
            f"<think>a</think><think>{second}</think> {first}",
        ]
        if first.startswith("<Answer>") or type(start).extract is Game.extract:
            replies += [f"I take {first}.", f"{first} yes, {first}"]
        for reply in replies:
            game = start.clone()
            assert game.step(reply) is Verdict.PLAYED, reply
            assert everything_seen(game) == everything_seen(expected)


# What hurts a reader: brackets, tags and digits, alone and by the thousand.
PIECES = (*("[", "]", "<Answer>", "</Answer>", "<Answer> ", "<think>", "</think>", "<Think>"), *" \n,:-09")
TEXTS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(PIECES), st.text(max_size=8), st.just("legal"), st.just("huge")),
        st.sampled_from((1, 2, 30, 5_000, 100_000)),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_any_reply_gets_a_verdict_at_once_and_plays_one_action_at_most(game_id):
    start = started(game_id, malformed_allowance=1)
    position = started(game_id, 1, malformed_allowance=1)  # and one position in the middle
    for _ in range(min(start.max_game_length // 2, 20)):
        twin = position.clone()
        twin.step(reply_of(twin, random.Random(0)))
        if twin.over:
            break
        position = twin

    @settings(max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(parts=TEXTS)
    def hears(parts):
        for game in (start.clone(), position.clone()):
            seat = game.to_move
            legal = (game.legal_actions() or ["yes"])[0]
            huge = re.sub("[0-9]+", HUGE, legal)
            pieces = [({"legal": legal, "huge": huge}.get(piece, piece), n) for piece, n in parts]
            reply = "".join(piece * min(n, 100_000 // (len(piece) or 1)) for piece, n in pieces)[:100_000]
            before, begun = game.actions_played, time.process_time()
            verdict = game.step(reply)
            assert time.process_time() - begun < 3.0, (reply[:100], len(reply))
            assert verdict in set(Verdict)
            assert game.actions_played == before + (verdict is Verdict.PLAYED and seat < game.seats)
            record = json.dumps(game.to_json())
            again = registry.make(game_id, malformed_allowance=1)
            again.from_json(json.loads(record))
            assert json.dumps(again.to_json()) == record

    hears()


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_numbers_of_any_length_get_a_verdict(game_id):
    actions = [f"[{HUGE}]", f"[col {HUGE}]", f"[{HUGE} 1]", f"[0 {HUGE}]", f"[Bid: {HUGE}, 1]", f"[{'0' * 9000}]"]
    legal = started(game_id).legal_actions()[:3]
    for action in (*actions, *(re.sub("[0-9]+", number, text) for text in legal for number in (HUGE, "0" * 9000))):
        assert started(game_id).step(action) in set(Verdict)


# ---- simulators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game_id", WITH_SIMULATORS)
def test_every_simulator_has_a_script_that_is_asked_and_never_refused(game_id):
    asked = set()
    for seed in range(10):
        game = started(game_id, seed)
        assert set(scripted.simulators(game)) == set(game.simulators)
        rng = random.Random(seed)
        while not game.over:
            if game.to_move >= game.seats:
                asked.add(game.role(game.to_move))
                before, played = game.to_json(), game.actions_played
                reply = reply_of(game, rng)
                assert game.to_json() == before
                assert game.step(reply) is Verdict.PLAYED
                assert game.actions_played == played
            else:
                game.step(reply_of(game, rng))
    assert asked == set(game.simulators)

"""Tower of Hanoi, Guess the Number and Liar's Dice: the same games as textarena 0.6.4, but for the listed deviations.

The oracle gets our secret (its seeds do not fix the start); then both take the same replies and are compared after
each one: verdict, position, who moves, what is told, how it ends.
"""

import itertools
import re

import pytest
from game_turns import pick

from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.textarena.guess_the_number import GuessTheNumber
from dfc.games.textarena.liars_dice import LiarsDice
from dfc.games.textarena.tower_of_hanoi import TowerOfHanoi

GAMES = 2000
HANOI = [(3, 100), (4, 100)]
GUESS = [(1, 20, 10), (1, 50, 7)]


def hanoi_pair(disks, turns):
    from textarena.envs.TowerOfHanoi.env import TowerOfHanoiEnv

    game = TowerOfHanoi(num_disks=disks, max_turns=turns)
    game.reset(0)
    env = TowerOfHanoiEnv(num_disks=disks, max_turns=turns)
    env.reset(num_players=1)
    return game, env


def guess_pair(low, high, turns, seed):
    from textarena.envs.GuessTheNumber.env import GuessTheNumberEnv

    game = GuessTheNumber(min_number=low, max_number=high, max_turns=turns)
    game.reset(seed)
    env = GuessTheNumberEnv(min_number=low, max_number=high, max_turns=turns)
    env.reset(num_players=1)
    env.game_number = game._target
    return game, env


def dice_pair(dice, seed):
    from textarena.envs.LiarsDice.env import LiarsDiceEnv

    game = LiarsDice(num_dice=dice)
    game.reset(seed)
    env = LiarsDiceEnv(num_dice=dice)
    env.reset(num_players=2)
    copy_dice(game, env)
    return game, env


def copy_dice(game, env):
    env.state.game_state["dice_rolls"] = {seat: list(game.hand(seat)) for seat in range(2)}


def step_both(game, env, reply):
    """Steps both and compares verdict, mover and outcomes; returns our verdict."""
    seat = game.to_move
    assert seat == env.state.current_player_id
    errors = env.state.error_count
    verdict = game.step(reply)
    done, info = env.step(reply)
    refused = env.state.error_count == errors + 1
    disqualified = done and info["reason"].startswith("Invalid Move")
    assert done == game.over
    assert disqualified == (verdict is Verdict.FORFEIT_ILLEGAL), (reply, info)
    assert refused == (verdict is Verdict.ILLEGAL), (reply, info)
    if done:
        rewards = env.close()
        assert {"invalid": -1, "loss": -1, "draw": 0, "win": 1}[game.outcomes[seat]] == rewards[seat]
        if not disqualified:  # then textarena gives the other one 0, here he has won
            signs = [{"loss": -1, "draw": 0, "win": 1}[outcome] for outcome in game.outcomes]
            assert signs == [rewards[s] for s in range(game.seats)]
    else:
        assert game.to_move == env.state.current_player_id
    return verdict


def told(env, seat):
    """Takes what textarena has told a seat, as one text."""
    text = "\n".join(message for _, message in env.state.observations[seat])
    env.state.observations[seat] = []
    return text


@pytest.mark.parametrize(("disks", "turns"), HANOI)
def test_hanoi_is_the_game_of_textarena(disks, turns):
    ends = set()
    for seed in range(GAMES):
        rng = GameRng(derive_seed("hanoi replies", seed))
        game, env = hanoi_pair(disks, turns)
        carefulness = pick(rng, (0, 10, 1000))
        told(env, 0)
        while not game.over:
            a, b = pick(rng, list(itertools.permutations("ABC", 2)))
            reply = pick(rng, (f"[{a} {b}]", f"[{a}, {b}]", f"[{a}{b}]", f"[{a.lower()} ,{b}]", f"so: [{a} {b}]."))
            if rng.randrange(1 + carefulness):
                reply = pick(rng, game.legal_actions())
            verdict = step_both(game, env, reply)
            assert game.towers == list(env.towers.values())
            text = told(env, 0)
            if verdict is Verdict.PLAYED:
                assert (game.observation(0) + "\n") in text
        ends.add(game.outcomes)
    assert ends == {(Outcome.WIN,), (Outcome.DRAW,), (Outcome.INVALID,)}


@pytest.mark.parametrize(("low", "high", "turns"), GUESS)
def test_guess_the_number_is_the_game_of_textarena(low, high, turns):
    ends = set()
    for seed in range(GAMES):
        rng = GameRng(derive_seed("guess replies", seed))
        game, env = guess_pair(low, high, turns, seed)
        told(env, 0)
        while not game.over:
            number = rng.randrange(high + 4)
            reply = pick(rng, (f"[{number}]", f"[{number:03}]", f"It is [{number}]"))
            if rng.randrange(4):
                reply = pick(rng, game.legal_actions())
            verdict = step_both(game, env, reply)
            assert set(game.guesses) == env.guessed_numbers
            hints = re.findall(r"The target number is (\w+)\.", told(env, 0))
            if verdict is Verdict.PLAYED:
                assert re.findall(r"^The target is (\w+)\.$", game.observation(0), re.MULTILINE) == hints
        ends.add(game.outcomes)
    assert ends == {(Outcome.WIN,), (Outcome.DRAW,), (Outcome.INVALID,)}


def dice_reply(rng, game):
    """A legal action in one of its spellings, or now and then any call or bid within the dice in play."""
    action = pick(rng, game.legal_actions()[-8:])
    if not rng.randrange(12):
        quantity, face = 1 + rng.randrange(sum(game.dice_left)), rng.randrange(9)
        action = pick(rng, ("[Call]", f"[Bid: {quantity}, {face}]"))
    return pick(rng, (action, action.lower(), action.upper(), action.replace(":", ""), action.replace(", ", " ")))


@pytest.mark.parametrize("dice", [5, 2])
def test_liars_dice_is_the_game_of_textarena(dice):
    ends, calls = set(), 0
    for seed in range(GAMES):
        rng = GameRng(derive_seed("dice replies", seed))
        game, env = dice_pair(dice, seed)
        while not game.over:
            seat, reply = game.to_move, dice_reply(rng, game)
            verdict = step_both(game, env, reply)
            state = env.state.game_state
            assert game.dice_left == [state["remaining_dice"][s] for s in range(2)]
            if not game.over:
                assert game.bid == (state["current_bid"]["quantity"], state["current_bid"]["face_value"])
            theirs = [told(env, s) for s in range(2)]
            if verdict is Verdict.PLAYED and "call" in reply.lower():
                calls += 1
                face, count, loser = re.search(
                    r"count of face (\d) is (\d+), .*\nPlayer (\d) .*loses one die", theirs[0]
                ).groups()
                for s in range(2):
                    who = "You call" if s == seat else "Opponent calls"
                    losing = "you lose" if s == int(loser) else "the opponent loses"
                    assert f"{who}: {count} dice show face {face}, {losing} a die." in game.observation(s).split("\n")
                copy_dice(game, env)
            if game.bid == (0, 0) and verdict is Verdict.PLAYED and not game.over:  # a new round
                for s in range(2):
                    rolled, left = state["dice_rolls"][s], state["remaining_dice"]
                    assert len(rolled) == left[s]
                    shown = ", ".join(map(str, sorted(rolled)))
                    assert game.observation(s).endswith(f"Your dice: {shown}. Opponent has {left[1 - s]} dice.")
        ends.add(game.outcomes)
    assert calls > GAMES
    assert {(Outcome.WIN, Outcome.LOSS), (Outcome.LOSS, Outcome.WIN)} < ends
    assert {(Outcome.WIN, Outcome.INVALID), (Outcome.INVALID, Outcome.WIN)} < ends


HANOI_TEXTS = ["[A C]", "[A,C]", "[A , C]", "[ac]", "[a C]", "[ A C]", "[A-C]", "[A C ]", "[D A]", "[A]", "[]", "A C"]
HANOI_TEXTS += ["[A C B]", "(A C)", "[A\tC]", "[A,, C]", "[1 3]"]
GUESS_TEXTS = ["[5]", "[05]", "[005]", "[ 5]", "[5 ]", "[-5]", "[5.0]", "5", "(5)", "[five]", "[]", "[5, 6]", "[+5]"]
DICE_TEXTS = ["[Bid: 3, 4]", "[bid:3,4]", "[Bid 3 4]", "[bid3,4]", "[Bid : 03, 4]", "[Bid:3;4]", "[Bid: 3]", "[3, 4]"]
DICE_TEXTS += ["[Bid: 3, , 4]", "[Bid 3, 4 ]", "[ Bid 3, 4]", "[Bids: 3, 4]", "[Bid: three, 4]", "[Bid: 3, -4]", "Call"]


@pytest.mark.parametrize("text", HANOI_TEXTS)
def test_hanoi_reads_the_spellings_that_textarena_reads(text):
    game, env = hanoi_pair(3, 100)
    malformed = game.step(text) is Verdict.FORFEIT_MALFORMED
    env.step(text)
    assert malformed == ("Invalid move format" in told(env, 0))
    assert game.towers == list(env.towers.values())


@pytest.mark.parametrize("text", GUESS_TEXTS)
def test_guess_the_number_reads_the_spellings_that_textarena_reads(text):
    game, env = guess_pair(1, 20, 10, seed=1)
    malformed = game.step(text) is Verdict.FORFEIT_MALFORMED
    env.step(text)
    assert malformed == ("Invalid move format" in told(env, 0))
    assert set(game.guesses) == env.guessed_numbers


@pytest.mark.parametrize("text", [*DICE_TEXTS, "[call]", "[CALL]", "[Call ]", "[I call]"])
def test_liars_dice_reads_the_spellings_that_textarena_reads(text):
    game, env = dice_pair(5, seed=1)
    step_both(game, env, "[Bid: 2, 2]")
    malformed = game.step(text) is Verdict.FORFEIT_MALFORMED
    env.step(text)
    assert malformed == ("Action not recognized" in told(env, 0))
    if game.over:
        return
    bid = env.state.game_state["current_bid"]
    assert game.bid == (bid["quantity"], bid["face_value"])


def test_a_move_to_the_same_tower_is_illegal_here_and_empty_in_textarena():
    game, env = hanoi_pair(3, 100)
    assert game.step("[A A]") is Verdict.ILLEGAL
    env.step("[A A]")
    assert env.state.error_count == 0
    assert env.state.turn == 1
    assert game.observation(0) == "Source and target are the same tower. Try again."


@pytest.mark.parametrize("bid", ["[Bid: 0, 3]", "[Bid: 11, 3]", "[Bid: 999, 6]"])
def test_bids_beyond_the_dice_are_illegal_here_and_legal_in_textarena(bid):
    game, env = dice_pair(5, seed=0)
    assert game.step(bid) is Verdict.ILLEGAL
    assert game.observation(0) == "There are no such dice on the table. Try again."
    env.step(bid)
    assert env.state.error_count == 0
    assert env.state.current_player_id == 1


def test_the_limit_of_quantity_follows_the_dice_lost():
    game = LiarsDice(num_dice=2)
    game.reset(0)
    assert game.legal_actions()[-1] == "[Bid: 4, 6]"
    game.step("[Bid: 4, 6]")
    assert game.legal_actions() == ["[Call]"]
    game._dice = [[6, 6], [6, 5]]
    game.step("[Call]")
    assert game.dice_left == [1, 2]
    assert game.to_move == 0
    assert game.legal_actions()[-1] == "[Bid: 3, 6]"
    assert game.step("[Bid: 4, 6]") is Verdict.ILLEGAL


@pytest.mark.parametrize(("disks", "turns"), [*HANOI, (3, 1)])
def test_hanoi_ends_in_a_draw_exactly_at_its_limit(disks, turns):
    game = TowerOfHanoi(num_disks=disks, max_turns=turns)
    game.reset(0)
    for turn, reply in zip(range(turns), itertools.cycle(("[A B]", "[B A]")), strict=False):
        assert not game.over
        assert game.actions_played == turn
        game.step(reply)
    assert game.outcomes == (Outcome.DRAW,)
    assert game.actions_played == turns == game.max_game_length


def test_an_illegal_try_uses_up_no_turn():
    game = TowerOfHanoi(max_turns=2)
    game.reset(0)
    assert game.step("[B A]") is Verdict.ILLEGAL
    assert game.observation(0) == "That source tower is empty. Try again."
    game.step("[A B]")
    assert not game.over
    assert game.step("[A B]") is Verdict.ILLEGAL
    assert game.observation(0) == "That disk is larger than the one below it. Try again."
    game.step("[B C]")
    assert game.outcomes == (Outcome.DRAW,)


def test_solving_with_the_last_move_wins():
    game = TowerOfHanoi(num_disks=2, max_turns=3)
    game.reset(0)
    for reply in ("[A B]", "[A C]", "[B C]"):
        game.step(reply)
    assert game.outcomes == (Outcome.WIN,)


@pytest.mark.parametrize(("low", "high", "turns"), GUESS)
def test_guess_the_number_ends_in_a_draw_exactly_at_its_limit(low, high, turns):
    game = GuessTheNumber(min_number=low, max_number=high, max_turns=turns)
    game.reset(3)
    wrong = [action for action in game.legal_actions() if action != f"[{game._target}]"]
    for guess in wrong[:turns]:
        assert not game.over
        game.step(guess)
    assert game.outcomes == (Outcome.DRAW,)
    assert game.actions_played == turns == game.max_game_length
    game.reset(3)
    for guess in wrong[: turns - 1]:
        game.step(guess)
    game.step(f"[{game._target}]")
    assert game.outcomes == (Outcome.WIN,)


def test_no_game_of_guesses_is_longer_than_its_numbers():
    game = GuessTheNumber(min_number=7, max_number=9, max_turns=5)
    game.reset(0)
    game._target = 9
    for guess in ("[7]", "[8]", "[9]"):
        game.step(guess)
    assert game.outcomes == (Outcome.WIN,)
    assert game.actions_played == game.max_game_length == 3


WORDS = {
    TowerOfHanoi: [f"[{a} {b}]" for a in "ABC" for b in "ABC"],
    GuessTheNumber: [f"[{n}]" for n in range(25)],
    LiarsDice: ["[Call]", *(f"[Bid: {q}, {f}]" for q in range(13) for f in range(8))],
}


@pytest.mark.parametrize("kind", WORDS)
def test_legal_actions_are_those_that_are_played(kind):
    rng, game = GameRng(derive_seed("legal", kind.__name__)), kind()
    for seed in range(2):
        game.reset(seed)
        while not game.over:
            accepted = {word for word in WORDS[kind] if game.clone().step(word) is Verdict.PLAYED}
            actions = game.legal_actions()
            assert set(actions) == accepted
            assert len(actions) == len(accepted)
            game.step(pick(rng, actions[-6:]))


def test_the_longest_liars_dice_is_reached():
    game = LiarsDice(num_dice=3)
    game.reset(0)
    while not game.over:
        actions = game.legal_actions()
        if actions == ["[Call]"]:
            caller_must_lose = game.dice_left[game.to_move] >= game.dice_left[1 - game.to_move]
            game._dice = [[6 if caller_must_lose else 1] * left for left in game.dice_left]
        game.step(actions[0])  # the lowest raise: all faces first, then all quantities
    assert game.actions_played == game.max_game_length == sum(d + 6 for d in range(2, 7))


def test_hints_leave_exactly_the_possible_numbers():
    game = GuessTheNumber(max_number=30)
    rng = GameRng(derive_seed("bounds"))
    for seed in range(50):
        game.reset(seed)
        possible = set(range(1, 31))
        while not game.over:
            assert possible == set(range(game.low, game.high + 1))
            guess = 1 + rng.randrange(30)
            if game.step(f"[{guess}]") is Verdict.PLAYED and not game.over:
                possible = {n for n in possible if (n > guess) == (game._target > guess) and n != guess}


def test_targets_and_dice_are_uniform():
    guess, dice = GuessTheNumber(), LiarsDice()
    targets, faces = [0] * 21, [0] * 7
    for seed in range(4000):
        guess.reset(seed)
        dice.reset(seed)
        targets[guess._target] += 1
        for face in (*dice.hand(0), *dice.hand(1)):
            faces[face] += 1
    # chi-square: mean k - 1, deviation sqrt(2 (k - 1)); five deviations
    assert sum((n - 200) ** 2 / 200 for n in targets[1:]) < 19 + 5 * 38**0.5
    assert sum((n - 40000 / 6) ** 2 / (40000 / 6) for n in faces[1:]) < 5 + 5 * 10**0.5

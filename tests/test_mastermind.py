"""Mastermind: the two numbers against independent references, what an answer costs, what is hidden, the bots."""

import collections
import functools
import itertools
import random

import game_turns
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dfc.games.bots.codes import BOTS
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika.mastermind import CODES, Mastermind, matches, targets
from dfc.games.printable import without_unseen
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal, Scripted

SIMPLE, STRONG = (Scripted(Mastermind, getattr(BOTS[0], name)) for name in ("simple", "strong"))
started = functools.partial(game_turns.started, Mastermind)


def answer(text):
    return f"<Answer>{text}</Answer>"


def reference(guess, target):
    exact = sum(a == b for a, b in zip(guess, target, strict=True))
    both = collections.Counter(guess) & collections.Counter(target)
    return exact, both.total() - exact


def best_pairing(guess, target):
    """By brute force: the largest number of equal digits over all ways to lay the guess upon the code."""
    layings = [sum(a == b for a, b in zip(p, target, strict=True)) for p in itertools.permutations(guess)]
    return layings[0], max(layings) - layings[0]  # the first permutation is the guess itself


def test_matches_agree_with_counters_and_with_brute_force():
    few = ["".join(digits) for digits in itertools.product("012", repeat=4)]
    for guess, target in itertools.product(few, few):
        assert matches(guess, target) == reference(guess, target) == best_pairing(guess, target), (guess, target)
    rng = random.Random(0)
    for _ in range(20_000):
        guess, target = rng.choice(CODES), rng.choice(CODES)
        assert matches(guess, target) == reference(guess, target), (guess, target)


def test_the_papers_examples():
    assert matches("1608", "1706") == (2, 1)
    assert matches("5789", "5959") == (2, 0)


def test_matches_agree_with_textarenas_mastermind():
    from textarena.envs.Mastermind.env import MastermindEnv

    env = object.__new__(MastermindEnv)
    env.code_length = 4
    rng = random.Random(1)
    for _ in range(2000):
        guess, target = rng.choice(CODES), rng.choice(CODES)
        env.state = type("State", (), {"game_state": {"secret_code": [int(digit) for digit in target]}})()
        assert tuple(env._evaluate_guess(0, [int(digit) for digit in guess])) == matches(guess, target)


def test_splits_are_disjoint_and_of_their_sizes_and_cover_the_range_evenly():
    train, test = targets("train"), targets("test")
    assert (len(train), len(test)) == (1000, 500)
    assert len(set(train) | set(test)) == 1500
    assert set(train) | set(test) <= set(CODES)
    for split in (train, test):
        assert 4500 < sum(map(int, split)) / len(split) < 5500
        assert 0.4 < sum(a < b for a, b in itertools.pairwise(split)) / len(split) < 0.6


def test_a_seed_takes_the_task_of_its_number():
    for split, size in (("train", 1000), ("test", 500)):
        for seed in (0, size - 1, size, 77 * size + 5):
            game = started(seed, split=split)
            assert game.to_json()["state"]["position"]["target"] == targets(split)[seed % size]


def test_an_unknown_split_has_no_codes():
    with pytest.raises(ValueError, match="split must be one of train, test, got 'dev'"):
        targets("dev")


@pytest.mark.parametrize("spelling", ["0123", "0 1 2 3", " 01\t2\n3 ", "0  12 3"])
def test_blanks_do_not_count(spelling):
    game = started(4)
    assert game.step(answer(spelling)) is Verdict.PLAYED
    exact, partial = reference("0123", targets("train")[4])
    assert game.observation(0) == f"0 1 2 3: {exact} exact, {partial} partial. 11 turns left."
    assert game.turns == [("0123", exact, partial)]


@given(st.text(alphabet=st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=8))
@example("12345")
@example("123")
@example("1,2,3,4")
@example("12.4")
@example("-123")
@example("\u0661\u0662\u0663\u0664")  # digits of another script
@example("12\u00b23")
@example("1 2 3 4")
@settings(max_examples=300, deadline=None)
def test_every_answer_costs_exactly_one_turn_and_only_four_digits_are_a_guess(text):
    game = started(3)
    verdict = game.step(answer(text))
    text = without_unseen(text)  # as every reply is read
    digits = "".join(text.split())
    if not digits:
        assert verdict is Verdict.FORFEIT_MALFORMED
        return
    assert verdict is Verdict.PLAYED
    assert game.actions_played == 1
    is_guess = len(digits) == 4 and all(digit in "0123456789" for digit in digits)
    assert [code for code, _, _ in game.turns] == ([digits] if is_guess else [])
    told = game.observation(0)
    assert told.isascii()
    assert "\n" not in told
    assert ("That is not a code of 4 digits." in told) == (not is_guess)


@pytest.mark.parametrize("before", [0, 1, 11])
def test_the_code_wins_in_any_turn_and_the_last_one_counts(before):
    for split in ("train", "test"):
        game = started(5, split=split)
        for _ in range(before):
            game.step(answer("x"))
        assert game.step(answer(targets(split)[5])) is Verdict.PLAYED
        assert game.outcomes == (Outcome.WIN,)
        assert game.actions_played == before + 1


def test_nothing_tells_two_codes_apart_before_a_guess_that_does():
    rng = random.Random(4)
    alike = told_apart = 0
    while told_apart < 12:
        seed = rng.randrange(1000)
        game = started(seed)
        mine, other = targets("train")[seed], rng.choice(CODES)
        data = game.to_json()
        data["state"]["position"]["target"] = other
        twin = Mastermind()
        twin.from_json(data)
        while not game.over:
            assert twin.observation(0) == game.observation(0)
            assert twin.legal_actions() == game.legal_actions()
            game_rng = rng.getrandbits(40)
            for player in (RandomLegal(), STRONG) if game.turns else (RandomLegal(), SIMPLE, STRONG):
                assert player.act(game, GameRng(game_rng)) == player.act(twin, GameRng(game_rng))
            wanted = rng.random() < 0.4
            sample = rng.sample(CODES, 100)
            differs = {guess: reference(guess, mine) != reference(guess, other) for guess in sample}
            guess = next((guess for guess, found in differs.items() if found == wanted), "12")
            guess = guess if rng.random() < 0.8 else "12"
            for each in (game, twin):
                each.step(answer(guess))
            if differs.get(guess):
                assert twin.observation(0) != game.observation(0)
                told_apart += 1
                break
            alike += 1
    assert alike > 5


def test_bots_guess_codes_that_agree_with_all_they_were_told():
    mean = {}
    for name, player in (("simple", SIMPLE), ("strong", STRONG)):
        turns = 0
        for seed in range(40):
            game = started(seed, split="test")
            game_rng = GameRng(seed)
            while not game.over:
                action = player.act(game, game_rng)
                code = action[8:-9].replace(" ", "")
                assert game._read(action) == action
                assert all(reference(guess, code) == (exact, partial) for guess, exact, partial in game.turns)
                game.step(action)
            assert game.outcomes == (Outcome.WIN,)
            turns += game.actions_played
        mean[name] = turns / 40
    assert mean["strong"] < mean["simple"]
    assert mean["strong"] < 6.3


def test_all_codes_are_listed_once_in_order():
    game = started()
    assert game.legal_actions() == [answer(" ".join(f"{number:04}")) for number in range(10_000)]
    assert [answer(text) for text in game.legal_answers()] == game.legal_actions()
    game.legal_actions().clear()  # the caller's own list
    assert len(game.legal_actions()) == 10_000

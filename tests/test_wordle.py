"""Wordle: feedback against independent references, what an answer costs, what is hidden, the bots."""

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
from dfc.games.paprika.wordle import Wordle, marks, targets, words
from dfc.games.printable import without_unseen
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal, Scripted

SIMPLE, STRONG = (Scripted(Wordle, getattr(BOTS[1], name)) for name in ("simple", "strong"))
started = functools.partial(game_turns.started, Wordle)


def answer(word):
    return f"<Answer>{word}</Answer>"


def swapped(game, target):
    data = game.to_json()
    data["state"]["position"]["target"] = target
    twin = Wordle(split=game.split, length=game.length, max_turns=game.max_turns, feedback=game.feedback)
    twin.from_json(data)
    return twin


# ---- feedback -----------------------------------------------------------------------------------------------------


def naive_reference(guess, target):
    """From the places of each letter in the target: "at another place" as Paprika asks it."""
    places = {letter: {i for i, other in enumerate(target) if other == letter} for letter in guess}
    return "".join("+" if i in places[a] else "?" if places[a] else "-" for i, a in enumerate(guess))


def standard_reference(guess, target):
    """Letter by letter of the alphabet: so many of a letter are elsewhere as both words have left, the first ones."""
    found = ["+" if a == b else "-" for a, b in zip(guess, target, strict=True)]
    for letter in set(guess):
        in_place = sum(a == b == letter for a, b in zip(guess, target, strict=True))
        left = min(guess.count(letter), target.count(letter)) - in_place
        misses = [i for i, a in enumerate(guess) if a == letter and found[i] != "+"]
        for i in misses[:left]:
            found[i] = "?"
    return "".join(found)


@pytest.mark.parametrize(("standard", "reference"), [(False, naive_reference), (True, standard_reference)])
def test_marks_agree_with_a_reference_on_all_pairs_over_three_letters_and_on_random_words(standard, reference):
    every = ["".join(letters) for letters in itertools.product("abc", repeat=4)]
    for guess, target in itertools.product(every, every):
        assert marks(guess, target, standard=standard) == reference(guess, target), (guess, target)
    rng = random.Random(0)
    for length in range(4, 11):
        for _ in range(1500):
            guess, target = rng.choice(words(length)), rng.choice(words(length))
            assert marks(guess, target, standard=standard) == reference(guess, target), (guess, target)


def test_standard_marks_agree_with_textarenas_wordle():
    from textarena.envs.Wordle.env import WordleEnv

    env = object.__new__(WordleEnv)  # its constructor fetches word lists
    env.word_length = 5
    rng = random.Random(1)
    letters = {"G": "+", "Y": "?", "X": "-"}
    for _ in range(3000):
        guess, target = ("".join(rng.choice("aber") for _ in range(5)) for _ in range(2))
        env.state = type("State", (), {"game_state": {"secret_word": target}})()
        assert "".join(letters[mark] for mark in env._evaluate_guess(guess)) == marks(guess, target, standard=True)


def test_the_rules_differ_where_a_letter_is_guessed_more_often_than_the_word_has_it():
    # The paper's pair: boost has one t, which toast has in place, and yet its first t is said to be elsewhere.
    assert marks("toast", "boost") == "?+-++"
    assert marks("toast", "boost", standard=True) == "-+-++"
    rng = random.Random(2)
    for _ in range(3000):
        guess, target = rng.choice(words(5)), rng.choice(words(5))
        counts, has = collections.Counter(guess), collections.Counter(target)
        too_often = any(has[letter] and counts[letter] > has[letter] for letter in counts)
        assert (marks(guess, target) != marks(guess, target, standard=True)) == too_often, (guess, target)


@pytest.mark.parametrize("feedback", ["naive", "standard"])
def test_what_is_told_is_the_marks_of_this_rule_in_words(feedback):
    says = {"in place": "+", "elsewhere": "?", "not in the word": "-"}
    for seed in range(60):
        game = started(seed, feedback=feedback)
        target = targets(5, "train")[seed]
        guess = words(5)[seed * 37]
        game.step(answer(guess))
        told, rest = game.observation(0).removeprefix(f"{guess}: ").split(". ")
        assert rest == "5 turns left."
        letters = [part.split(" ", 1) for part in told.split(", ")]
        assert [letter for letter, _ in letters] == list(guess)
        found = "".join(says[said] for _, said in letters)
        assert found == (standard_reference if feedback == "standard" else naive_reference)(guess, target)
        assert game.turns == [(guess, found)]


# ---- what an answer costs -----------------------------------------------------------------------------------------


@given(st.text(alphabet=st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=12))
@example("toasts")
@example("\u212arane")  # lower() makes a k of the Kelvin sign
@example("\uff54oast")
@example("cr\u00e4ne")
@example(" SLATE\n")
@example("slat e")
@example("\u0131rate")
@settings(max_examples=300, deadline=None)
def test_every_answer_costs_exactly_one_turn_and_only_letters_are_a_guess(text):
    game = started(3)
    verdict = game.step(answer(text))
    text = without_unseen(text)  # as every reply is read
    word = text.strip().lower()
    if not text.strip():
        assert verdict is Verdict.FORFEIT_MALFORMED
        return
    assert verdict is Verdict.PLAYED
    assert game.actions_played == 1
    assert game.illegal_tries == [0]
    is_guess = len(text.strip()) == 5 and all(letter in "abcdefghijklmnopqrstuvwxyz" for letter in word)
    is_guess = is_guess and "\u212a" not in text
    assert [guess for guess, _ in game.turns] == ([word] if is_guess else [])
    told = game.observation(0)
    assert told.isascii()
    assert "\n" not in told
    assert ("That is not a word of 5 letters" in told) == (not is_guess)


@pytest.mark.parametrize("before", range(6))
def test_the_word_wins_in_any_turn_and_the_last_one_counts(before):
    for split in ("train", "test"):
        game = started(5, split=split)
        for _ in range(before):
            game.step(answer("zzzzz"))
        assert game.step(answer(targets(5, split)[5].upper())) is Verdict.PLAYED
        assert game.outcomes == (Outcome.WIN,)
        assert game.actions_played == before + 1
        assert game.observation(0) == f"{targets(5, split)[5]}: this is the word."


# ---- tasks --------------------------------------------------------------------------------------------------------


def test_the_word_of_a_task_is_the_target_of_its_number_in_every_length():
    for split, size in (("train", 1515), ("test", 800)):
        for seed in (0, size - 1, size + 7):
            assert started(seed, split=split).to_json()["state"]["position"]["target"] == targets(5, split)[seed % size]
    assert started(257, length=7).task == 107
    assert started(257, length=7, split="test").task == 57
    assert Wordle(length=7).info.splits == {"train": 150, "test": 100}


@pytest.mark.parametrize("feedback", ["naive", "standard"])
def test_nothing_tells_two_words_apart_before_a_guess_that_does(feedback):
    standard = feedback == "standard"
    rng = random.Random(4)
    alike = told_apart = 0
    while told_apart < 20:
        seed = rng.randrange(1515)
        game = started(seed, feedback=feedback)
        mine, other = targets(5, "train")[seed], rng.choice(words(5))
        twin = swapped(game, other)
        while not game.over:
            assert twin.observation(0) == game.observation(0)
            assert twin.legal_actions() == game.legal_actions()
            game_rng = GameRng(rng.getrandbits(40))
            for player in (RandomLegal(), SIMPLE, STRONG):
                assert player.act(game, GameRng(game_rng.seed)) == player.act(twin, GameRng(game_rng.seed))
            differs = {
                guess: marks(guess, mine, standard=standard) != marks(guess, other, standard=standard)
                for guess in rng.sample(words(5), 100)
            }
            wanted = rng.random() < 0.4
            guess = next((guess for guess, found in differs.items() if found == wanted), "ab")
            for each in (game, twin):
                each.step(answer(guess))
            if differs.get(guess):
                assert twin.observation(0) != game.observation(0)
                told_apart += 1
                break
            alike += 1
    assert alike > 10


# ---- bots and speed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feedback", ["naive", "standard"])
def test_bots_guess_listed_words_that_agree_with_all_they_were_told(feedback):
    reference = standard_reference if feedback == "standard" else naive_reference
    results = {}
    for name, player in (("simple", SIMPLE), ("strong", STRONG)):
        wins = turns = 0
        for seed in range(60):
            game = started(seed, split="test", feedback=feedback)
            game_rng = GameRng(seed)
            while not game.over:
                action = player.act(game, game_rng)
                assert action in game.legal_actions()
                assert all(reference(guess, action[8:-9]) == found for guess, found in game.turns)
                game.step(action)
            wins += game.outcomes == (Outcome.WIN,)
            turns += game.actions_played
        results[name] = (wins / 60, turns / 60)
    assert results["simple"][0] > 0.85
    assert results["strong"][0] > 0.93
    assert results["strong"][1] < results["simple"][1] - 0.2


@pytest.mark.parametrize("length", [4, 6, 7, 8, 9, 10])
def test_words_of_other_lengths_are_found_in_ten_turns(length):
    for seed in range(20):
        game = started(seed, split="test", length=length, max_turns=10)
        while not game.over:
            game.step(STRONG.act(game, GameRng(0)))
        assert game.outcomes == (Outcome.WIN,)

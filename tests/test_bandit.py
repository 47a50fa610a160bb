"""Bandit: how means and rewards are drawn, what an answer costs, the call for a decision, the bots."""

import collections
import functools
import itertools
import random
import statistics

import game_turns
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dfc.games.bots import puzzles
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika import bandit
from dfc.games.paprika.bandit import Bandit, sample_means
from dfc.games.printable import without_unseen
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal, Scripted

SIMPLE, STRONG = (Scripted(Bandit, getattr(puzzles.BOTS[0], name)) for name in ("simple", "strong"))
DECIDE = "No tries left. Decide now: answer with the choice that has the highest probability."
started = functools.partial(game_turns.started, Bandit)


def answer(text):
    return f"<Answer>{text}</Answer>"


def hidden(game):
    position = game.to_json()["state"]["position"]
    return position["best"], position["means"]


def play(game, player, rng):
    while not game.over:
        assert game.step(player.act(game, rng)) is Verdict.PLAYED
    return game


# ---- the scenarios ------------------------------------------------------------------------------------------------


def test_scenarios_have_the_papers_numbers_of_arms():
    train = bandit.scenarios("train")
    assert collections.Counter(len(scenario.arms) for scenario in train) == {3: 47, 4: 9, 5: 11, 6: 8, 7: 6}
    assert [scenario.arms for scenario in bandit.scenarios("test")] == [("blue", "green", "red", "yellow", "purple")]
    assert Bandit.splits == {"train": 81, "test": 1}


@pytest.mark.parametrize("split", ["train", "test"])
def test_texts_are_clean_and_all_different_and_every_arm_is_read_as_itself(split):
    everything = bandit.scenarios("train") + bandit.scenarios("test")
    assert len({scenario.text for scenario in everything}) == len({scenario.arms for scenario in everything}) == 82
    for seed, scenario in enumerate(bandit.scenarios(split)):
        assert scenario.text.isascii()
        assert scenario.text.endswith(".")
        assert "reward" in scenario.text
        assert len(set(scenario.arms)) == len(scenario.arms)
        game = started(seed, split=split)
        rules = game.observation(0)
        assert rules.startswith(f"{scenario.text} Your choices: {', '.join(scenario.arms)}. ")
        assert rules.endswith(f"for example <Answer>{scenario.arms[0]}</Answer>.")
        for number, arm in enumerate(scenario.arms):
            assert game.extract(f"<Answer> {arm.upper()} \n</Answer>") == answer(arm.upper())
            game.step(f"<Answer> {arm.title().replace(' ', '  ')} \n</Answer>")
            assert game.pulls[-1][0] == number


# ---- means and rewards --------------------------------------------------------------------------------------------


def test_means_are_sampled_as_the_paper_says():
    number = 5
    samples = [sample_means(number, GameRng(seed)) for seed in range(6000)]
    gaps = sorted(means[best] - 0.5 for best, means in samples)
    assert gaps[0] >= 0.1
    assert gaps[-1] <= 0.2
    # Kolmogorov-Smirnov distance from the uniform law; 1.95 / sqrt(n) is exceeded with probability 0.001.
    assert max(abs((gap - 0.1) / 0.1 - rank / 6000) for rank, gap in enumerate(gaps)) < 1.95 / 6000**0.5 + 1 / 6000
    others = sorted(
        mean / (1.0 - means[best]) for best, means in samples for arm, mean in enumerate(means) if arm != best
    )
    assert others[0] >= 0.0
    assert others[-1] <= 1.0
    count = len(others)
    assert count == 24_000
    assert max(abs(other - rank / count) for rank, other in enumerate(others)) < 1.95 / count**0.5 + 1 / count
    best_arms = collections.Counter(best for best, _ in samples)
    assert sum((best_arms[arm] - 1200) ** 2 / 1200 for arm in range(number)) < 18.5  # chi-squared, 4 degrees, p = 0.001


def test_a_game_samples_its_means_in_this_way_for_each_trial_of_a_scenario():
    samples = [hidden(started(seed, split="test")) for seed in range(1500)]
    assert len({tuple(means) for _, means in samples}) == 1500
    assert all(0.6 <= means[best] <= 0.7 and means[best] == max(means) for best, means in samples)
    assert all(mean <= 1.0 - means[best] for best, means in samples for arm, mean in enumerate(means) if arm != best)
    assert abs(statistics.mean(means[best] for best, means in samples) - 0.65) < 0.004
    assert all(250 < count < 350 for count in collections.Counter(best for best, _ in samples).values())


def test_the_scenario_is_the_tasks_and_the_means_are_the_seeds():
    first, second = started(3), started(3 + 81)
    assert first.task == second.task == 3
    assert first.scenario == second.scenario
    assert hidden(first) != hidden(second)
    assert hidden(first) == hidden(started(3))
    assert hidden(started(0, split="test"))[1][:3] != hidden(started(0))[1][:3]


@pytest.mark.parametrize("arm", range(5))
def test_rewards_come_as_often_as_the_arms_mean_says(arm):
    surplus = variance = 0.0
    for seed in range(400):
        game = started(seed, split="test")
        mean = hidden(game)[1][arm]
        for _ in range(20):
            game.step(answer(game.arms[arm]))
        surplus += sum(reward for _, reward in game.pulls) - 20 * mean
        variance += 20 * mean * (1.0 - mean)
    assert abs(surplus) < 4.0 * variance**0.5


def test_rewards_of_one_game_are_independent_of_each_other():
    # Of the best arm's pulls in a row, the reward of one says nothing about the next.
    products, count = 0.0, 0
    for seed in range(500):
        game = started(seed, split="test")
        best, means = hidden(game)
        for _ in range(20):
            game.step(answer(game.arms[best]))
        rewards = [reward - means[best] for _, reward in game.pulls]
        products += sum(a * b for a, b in itertools.pairwise(rewards))
        count += len(rewards) - 1
    assert abs(products / count) < 4.0 * 0.25 / count**0.5


def test_measures_are_those_of_the_tries():
    for seed in range(20):
        game = started(seed)
        assert game.measures() == {"pulls": 0.0, "reward_sum": 0.0, "regret": 0.0}
        best, means = hidden(game)
        rng = random.Random(seed)
        regret, rewards, pulls = 0.0, 0, 0
        while game.actions_played < 20:
            arm = rng.randrange(len(means) + 1)
            game.step(answer(game.arms[arm] if arm < len(means) else "none of them"))
            if arm < len(means):
                pulls += 1
                regret += max(means) - means[arm]
                rewards += ": reward 1" in game.observation(0)
        game.step(answer(game.arms[best]))
        assert game.measures() == pytest.approx({"pulls": pulls, "reward_sum": rewards, "regret": regret})


# ---- what an answer costs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("last_try", ["blue", "orange", "?"])
@pytest.mark.parametrize("turns", [2, 5, 21])
def test_the_call_for_a_decision_comes_after_the_last_try_whatever_it_was(last_try, turns):
    game = started(1, split="test", max_turns=turns)
    for turn in range(turns - 2):
        game.step(answer("green"))
        left = turns - 2 - turn
        assert game.observation(0).endswith(f" {left} {'try' if left == 1 else 'tries'} left.")
        assert DECIDE not in game.observation(0)
    game.step(answer(last_try))
    told = game.observation(0).split("\n")
    assert told[-1] == DECIDE
    assert told[0].startswith("blue: reward " if last_try == "blue" else "That is none of the choices")
    assert not game.over
    assert len(game.pulls) == turns - 2 + (last_try == "blue")


@pytest.mark.parametrize("split", ["train", "test"])
def test_only_the_last_answer_decides_and_only_the_best_arm_is_right(split):
    for seed in range(30):
        game = started(seed, split=split)
        best, means = hidden(game)
        for _ in range(20):
            game.step(answer(game.arms[seed % len(game.arms)]))
        for arm, name in enumerate(game.arms):
            twin = game.clone()
            assert twin.step(answer(name)) is Verdict.PLAYED
            assert twin.outcomes == (Outcome.WIN if arm == best else Outcome.LOSS,)
            assert (means[arm] == max(means)) == (arm == best)
            assert twin.actions_played == twin.info.max_game_length == 21
            assert twin.pulls == game.pulls
        for text in ("none", "?", ", ".join(game.arms)):
            twin = game.clone()
            assert twin.step(answer(text)) is Verdict.PLAYED
            assert twin.outcomes == (Outcome.LOSS,)


@given(st.text(alphabet=st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=8))
@example("Blue")
@example(" RED ")
@example("blue.")
@example("b lue")
@example("\uff42lue")
@example("yello\u1d42")
@settings(max_examples=300, deadline=None)
def test_every_answer_costs_exactly_one_turn_and_only_an_arm_is_a_try(text):
    game = started(2, split="test")
    verdict = game.step(answer(text))
    text = without_unseen(text)  # as every reply is read
    if not text.strip():
        assert verdict is Verdict.FORFEIT_MALFORMED
        return
    assert verdict is Verdict.PLAYED
    assert game.actions_played == 1
    assert len(game.pulls) == (text.strip().lower() in {"blue", "green", "red", "yellow", "purple"})
    told = game.observation(0)
    assert told.isascii()
    assert "\n" not in told
    assert told.endswith(" 19 tries left.")
    assert ("That is none of the choices" in told) == (not game.pulls)


def test_nothing_but_rewards_tells_of_the_means():
    for seed in range(20):
        game = started(seed)
        best, means = hidden(game)
        data = game.to_json()
        other = (best + 1) % len(means)
        means[best], means[other] = means[other], means[best]
        data["state"]["position"] |= {"best": other, "means": means}
        twin = Bandit()
        twin.from_json(data)
        rng = random.Random(seed)
        while not game.over:
            alike = [arm for arm in range(len(means)) if arm not in {best, other}]
            assert twin.observation(0) == game.observation(0)
            assert twin.legal_actions() == game.legal_actions()
            for player in (RandomLegal(), SIMPLE, STRONG):
                assert player.act(game, GameRng(seed)) == player.act(twin, GameRng(seed))
            text = rng.choice([*(game.arms[arm] for arm in alike), "none"])  # the arms whose means are as before
            for each in (game, twin):
                each.step(answer(text))


# ---- bots and speed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[(3, 2), (0, 4), (1, 1)], [(0, 0), (2, 5), (5, 2), (1, 3)], [(7, 6), (6, 7)]])
def test_the_posterior_agrees_with_weighted_draws_of_the_means(counts):
    rng = np.random.default_rng(0)
    samples, number = 400_000, len(counts)
    gaps = rng.uniform(0.1, 0.2, samples)
    best = rng.integers(0, number, samples)
    means = (0.5 - gaps)[:, None] * rng.random((samples, number))
    means[np.arange(samples), best] = 0.5 + gaps
    rewards, blanks = np.array(counts, dtype=np.float64).T
    weights = np.prod(means**rewards * (1.0 - means) ** blanks, axis=1)
    expected = np.bincount(best, weights=weights, minlength=number) / weights.sum()
    found = np.array(puzzles._weights(counts))
    np.testing.assert_allclose(found / found.sum(), expected, atol=0.01)


def test_what_a_try_tells_agrees_with_bayes_rule():
    counts = [(3, 2), (0, 4), (1, 1)]

    def posterior(counts):
        weights = np.array(puzzles._weights(counts))
        return weights / weights.sum()

    now = posterior(counts)
    for arm in range(3):
        rewards, blanks = counts[arm]
        won, lost = [*counts], [*counts]
        won[arm], lost[arm] = (rewards + 1, blanks), (rewards, blanks + 1)
        # The posterior is a martingale, which gives the probability of a reward.
        rng = (now[arm] - posterior(lost)[arm]) / (posterior(won)[arm] - posterior(lost)[arm])
        entropies = [-(p * np.log(p)).sum() for p in (posterior(won), posterior(lost))]
        expected = rng * entropies[0] + (1.0 - rng) * entropies[1]
        assert puzzles._entropy_after(counts, arm) == pytest.approx(expected, rel=1e-6)


def test_bots_do_better_than_chance_and_the_strong_one_best():
    wins = {}
    for name, player in (("random", RandomLegal()), ("simple", SIMPLE), ("strong", STRONG)):
        games = [play(started(seed, split="test"), player, GameRng(seed)) for seed in range(250)]
        assert all(game.actions_played == 21 and len(game.pulls) == 20 for game in games)
        wins[name] = sum(game.outcomes == (Outcome.WIN,) for game in games) / 250
    assert 0.1 < wins["random"] < 0.3
    assert wins["random"] + 0.3 < wins["simple"]
    assert wins["simple"] + 0.03 < wins["strong"]


def test_the_simple_bot_tries_the_arms_in_turn():
    for seed in range(30):
        game = play(started(seed), SIMPLE, GameRng(seed))
        tries = collections.Counter(arm for arm, _ in game.pulls)
        assert max(tries.values()) - min(tries[arm] for arm in range(len(game.arms))) <= 1

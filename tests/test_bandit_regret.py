"""The bandit of single turns: what is shown, what is counted, and that a policy has no memory between its turns."""

import functools
import math
import random
import statistics

import game_turns
import numpy as np
import pytest

from dfc import validation
from dfc.config import RECIPES, BuildData, Evaluate, EvaluateTasks, ModelConfig, RolloutConfig, SamplingConfig
from dfc.games import registry, scripted
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika.bandit_regret import BanditRegret
from dfc.games.replay import replay
from dfc.games.rng import GameRng
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.players import sequential
from dfc.players.remote import FunctionPlayer
from dfc.rollout.host import ModelHost
from dfc.rollout.runner import EpisodeSpec, RolloutRunner

started = functools.partial(game_turns.started, BanditRegret)


def press(game, name):
    return game.step(f"<Answer>{name}</Answer>")


def best_of(game):
    return game.to_json()["state"]["position"]["best"]


# ---- the rules -------------------------------------------------------------------------------------------------------


def test_each_button_pays_with_its_own_probability():
    paid = {True: [], False: []}
    for seed in range(40):
        game = started(seed)
        while not game.over:
            press(game, random.Random(game.actions_played).choice(game.arms))
        for arm, reward in game.choices:
            paid[arm == best_of(game)].append(reward)
    for best, mean in ((True, 0.6), (False, 0.4)):
        assert statistics.mean(paid[best]) == pytest.approx(mean, abs=5 * math.sqrt(0.24 / len(paid[best])))


def test_every_button_is_the_best_one_as_often_and_it_belongs_to_the_task():
    best = [best_of(started(task)) for task in range(100)]
    assert best == [best_of(started(task + 100)) for task in range(100)]
    counts = np.bincount(best, minlength=5)
    assert ((counts - 20) ** 2 / 20).sum() < 18.5  # chi-squared with 4 degrees of freedom, p = 0.001


def test_regret_is_the_gap_times_the_turns_that_missed_the_best_button():
    game = started(3, max_turns=10, gap=50)
    best = game.arms[best_of(game)]
    other = next(name for name in game.arms if name != best)
    for name in (best, other, other, best):
        assert press(game, name) is Verdict.PLAYED
    assert press(game, "the left one") is Verdict.PLAYED  # wastes a turn
    for _ in range(5):
        press(game, best)
    assert game.outcomes == (Outcome.WIN,)
    found = game.measures()
    assert found["regret"] == pytest.approx(2 * 0.5 + 0.75)
    assert found["best_arm_share"] == pytest.approx(0.7)
    assert found["reward_sum"] == sum(reward for _, reward in game.choices)


def test_turns_that_never_came_cost_as_much_as_wasted_ones():
    game = started(3, max_turns=10, gap=50)
    press(game, game.arms[best_of(game)])
    assert game.step("no idea") is Verdict.FORFEIT_MALFORMED
    assert game.measures()["regret"] == pytest.approx(9 * 0.75)


@pytest.mark.parametrize(("late", "outcome"), [(4, Outcome.LOSS), (5, Outcome.WIN), (9, Outcome.WIN)])
def test_success_is_the_best_button_in_the_second_half(late, outcome):
    game = started(1, max_turns=10)
    best = game.arms[best_of(game)]
    other = next(name for name in game.arms if name != best)
    for turn in range(10):
        press(game, best if turn == late else other)
    assert game.outcomes == (outcome,)


def test_every_turn_is_shown_the_whole_problem_and_the_summary_is_right():
    game = started(2, arms=3, max_turns=9)
    first = game.observation(0)
    assert "blue never pressed; green never pressed; red never pressed. This is turn 1." in first
    for name in ("blue", "green", "blue", "?"):
        press(game, name)
    blue = [reward for arm, reward in game.choices if arm == 0]
    green = [reward for arm, reward in game.choices if arm == 1]
    text = game.observation(0)
    assert text.split("So far:")[0] == first.split("So far:")[0]
    assert f"blue pressed 2 times, mean reward {sum(blue) / 2:.2f}; green pressed 1 time, mean" in text
    assert f"mean reward {green[0]:.2f}; red never pressed. This is turn 5." in text
    assert "\n" not in text
    assert started(2, history=True).observation(0) == started(2).observation(0)


# ---- bots ------------------------------------------------------------------------------------------------------------


def regret(strength, **options):
    found = []
    for seed in range(150):
        game = started(seed, **options)
        sequential.play_sequentially(game, [scripted.player(game, strength)], GameRng(10**9 + seed))
        found.append(game.measures()["regret"])
    return statistics.mean(found)


def test_bots_are_better_the_more_they_know():
    assert regret("random_legal") == pytest.approx(0.2 * 0.8 * 100, abs=0.4)
    assert regret("random_legal") > regret("simple") + 2 > regret("strong") + 3


def test_the_strong_bot_presses_what_is_best_most_probably():
    game = started(5, arms=3, max_turns=30)
    player, rng = scripted.player(game, "strong"), GameRng(1)
    while not game.over:
        # The posterior by the rule of Bayes, button by button and reward by reward.
        joint = []
        for best in range(3):
            means = [0.6 if arm == best else 0.4 for arm in range(3)]
            joint.append(math.prod(means[arm] if reward else 1 - means[arm] for arm, reward in game.choices))
        action = player.act(game, rng)
        chosen = joint[game.arms.index(action.removeprefix("<Answer>").removesuffix("</Answer>"))]
        assert chosen == pytest.approx(max(joint))
        game.step(action)


# ---- a policy without a memory ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer.load(huggingface.resolve("tiny_player"))


def test_each_turn_of_a_policy_is_a_conversation_of_its_own(tokenizer):
    options = {"arms": 3, "max_turns": 8}
    turn = len(tokenizer.first_turn(started(0, **options).observation(0)))
    # Room for one turn and its reply, not for two turns.
    longest = turn + 120
    assert longest < 2 * turn
    sizes = {"prefill_buckets": (128,), "decode_steps": 8}  # as few programs as possible
    rollout = RolloutConfig(slots=2, max_length=longest, max_reply_length=60, legal_only=True, **sizes)
    host = ModelHost(ModelConfig(), rollout, slots=2)
    engine = host.engine(host.initial_params(), sampling=SamplingConfig())
    free = engine.free
    runner = RolloutRunner(rollout, tokenizer, engine, opponent_name="none")
    specs = [EpisodeSpec("bandit_regret", options, task, 0, task, 7 + task) for task in range(3)]
    episodes = runner.play(specs)
    assert engine.free == free
    for episode in episodes:
        assert episode.failure is None
        assert episode.outcome in ("win", "loss")
        turns = list(replay(episode.record()))
        assert len(turns) == 8
        shown = [
            int(i) for i, sampled in zip(episode.sample.token_ids, episode.sample.mask, strict=True) if not sampled
        ]
        assert shown == tokenizer.first_turn(turns[-1].observation)  # of the last conversation only
        said = episode.sample.token_ids[episode.sample.mask].tolist()
        end = said[-1] in tokenizer.end_token_ids
        assert tokenizer.decode(said[:-1] if end else said) == turns[-1].reply
        assert episode.measures["regret"] > 0
    again = runner.play(specs[1:])
    assert [e.record() for e in again] == [e.record() for e in episodes[1:]]


def test_a_remote_player_is_shown_one_message_at_a_time():
    chats = []

    def presses_blue(messages):
        chats.append(len(messages))
        return "<Answer>blue</Answer>"

    game = started(0, max_turns=5)
    sequential.play_sequentially(game, [FunctionPlayer(presses_blue)], GameRng(0))
    assert chats == [1] * 5


LEARNING = ["collect", "task_curriculum", "paprika", "divide_fuse_conquer", "tiny_player"]


def test_every_button_in_turn_wins_so_the_game_is_for_evaluation_only():
    for seed in range(20):
        game = started(seed)
        while not game.over:
            press(game, game.arms[game.actions_played % len(game.arms)])
        assert game.outcomes == (Outcome.WIN,)
    assert game.info.evaluation_only is True
    measured = [game_id for game_id in registry.own_game_ids() if registry.make(game_id).info.evaluation_only]
    assert [game_id for game_id in measured if not game_id.startswith("clem_")] == ["bandit_regret"]


@pytest.mark.parametrize("recipe", LEARNING)
def test_a_run_that_would_train_on_it_is_refused_with_one_message(recipe):
    alone = [p for p in validation.problems(RECIPES[recipe](games={"bandit_regret": {}})) if "regret" in p]
    (told,) = alone
    assert told.startswith("games.bandit_regret: is for evaluation only and is neither trained on nor collected from")
    beside = validation.problems(RECIPES[recipe](games={"bandit": {}, "bandit_regret": {"arms": 4}}))
    assert [p for p in beside if "bandit_regret" in p] == alone


def test_only_a_model_to_begin_with_learns_such_a_game_and_in_fresh_tasks_only():
    fresh = {"clem_codenames": {"split": "fresh"}}
    assert validation.problems(RECIPES["tiny_player"](games=fresh)) == []
    for recipe, games in (("tiny_player", {"clem_codenames": {}}), ("grpo", fresh), ("collect", fresh)):
        found = [p for p in validation.problems(RECIPES[recipe](games=games)) if "clem_codenames" in p]
        assert found[0].startswith("games.clem_codenames: is for evaluation only")


def test_it_can_be_evaluated():
    for recipe in (EvaluateTasks, Evaluate):
        assert validation.problems(recipe(policies=("simple",), games={"bandit_regret": {}})) == []
    assert registry.make("bandit_regret").info.splits == {"test": 100}


def test_rows_of_it_are_not_built():
    (found,) = validation.problems(BuildData(trajectories="there", game_groups=("bandit_regret",)))
    assert found.startswith("game_groups=('bandit_regret',): bandit_regret is for evaluation only")


@pytest.mark.parametrize("recipe", LEARNING)
def test_a_game_without_a_memory_cannot_be_learned_from_either(monkeypatch, recipe):
    monkeypatch.setattr(BanditRegret, "evaluation_only", False)
    config = RECIPES[recipe](games={"bandit_regret": {}})
    assert any("bandit_regret: every reply is a conversation of its own" in p for p in validation.problems(config))

"""What is wrong with a configuration of self-play is named before anything runs, by its key."""

import pytest

from dfc import validation
from dfc.config import (
    AdapterConfig,
    AnswerRewardConfig,
    BatchConfig,
    ChallengerConfig,
    LanguageSelfPlay,
    PreferenceRewardConfig,
    QueryTask,
    SamplingConfig,
    SelfPlayRolloutConfig,
    SelfRewardConfig,
)


def config(**changes):
    return LanguageSelfPlay(**changes)


def test_the_defaults_fit_each_other():
    assert validation.problems(config()) == []
    assert validation.problems(config(tasks={"free": QueryTask(), "named": QueryTask("sums", "Add {x}.", 2.0)})) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"groups_per_iteration": 1}, "groups_per_iteration=1: must be at least 2"),
        ({"group_size": 1}, "group_size=1: must be at least 2"),
        ({"challenger": ChallengerConfig(coefficient=-0.1)}, "challenger.coefficient=-0.1: must be at least 0"),
        ({"kl_coefficient": -1.0}, "kl_coefficient=-1.0: must be at least 0"),
        ({"self_reward": SelfRewardConfig(weight=-1.0)}, "self_reward.weight=-1.0: must be at least 0"),
        ({"sampling": SamplingConfig(temperature=0.0)}, "sampling.temperature=0.0: must be above 0; without chance"),
        (
            {"sampling": SamplingConfig(top_k=1, top_p=0.9)},
            "sampling.top_k=1: must be 2 or more, or 0 for no limit",
        ),
        (
            {"self_reward": SelfRewardConfig(sampling=SamplingConfig(temperature=0.0))},
            "self_reward.sampling.temperature=0.0: must be above 0; a judge that gave no mark",
        ),
        ({"tasks": {"a": QueryTask("sums", "Add 1 and 2.")}}, "tasks.a.template='Add 1 and 2.': has no placeholder"),
        ({"tasks": {"a": QueryTask(weight=0.0)}}, "tasks.a.weight=0.0: must be above 0"),
        (
            {"tasks": {"a": QueryTask("", "{x}?")}, "challenger": ChallengerConfig(prompt="Ask {task}")},
            "challenger.prompt: has no {template}, which the tasks have",
        ),
        (
            {"tasks": {"a": QueryTask("", "[ A ] {x}")}, "challenger": ChallengerConfig(prompt="[a] {template} [b]")},
            "tasks.a.template='[ A ] {x}': has '[a]' in it, a tag of the Challenger's prompt, which no query may hold",
        ),
        (
            {"challenger": ChallengerConfig(prompt="{task} {template}")},
            "challenger.prompt='{task} {template}': is empty for no tasks, as here; write in it what is asked for",
        ),
        (
            {"tasks": {"a": QueryTask()}, "challenger": ChallengerConfig(prompt="{task}")},
            "challenger.prompt='{task}': is empty for task 'a', which has none",
        ),
        ({"self_reward": SelfRewardConfig(prompt="{instruction}")}, "self_reward.prompt: must have {instruction} and"),
        ({"method": "data"}, "data='': must name a file with method='data'"),
        ({"data": "queries.txt"}, "data='queries.txt': is for method='data' only"),
        ({"adapter": AdapterConfig(base="nf4")}, "adapter.base='nf4': quantized weights are not trained themselves"),
        ({"batch": BatchConfig(row_length=512)}, "batch.row_length=512: must be at least rollout.max_length=1024"),
        (
            {"rollout": SelfPlayRolloutConfig(max_answer_length=1024)},
            "rollout.max_answer_length=1024: must be below rollout.max_length=1024",
        ),
        ({"rollout": SelfPlayRolloutConfig(prefill_buckets=(64, 16))}, "rollout.prefill_buckets=(64, 16): must ascend"),
    ],
)
def test_a_contradiction_is_named_by_its_key(changes, said):
    (found,) = validation.problems(config(**changes))
    assert said in found


# ---- rewards beside which an unsolved query is told from a solved one ------------------------------------------------

SHORT, LONG = {"kind": "words", "at_most": 9}, {"kind": "words", "at_least": 2}
MODEL = PreferenceRewardConfig("ORG/NAME")


def with_unsolved(method="lsp", **reward):
    challenger = ChallengerConfig(unsolved_queries="worst")
    return config(method=method, challenger=challenger, reward=AnswerRewardConfig(**reward))


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ({"sources": {"preference": 1.0}, "preference": MODEL}, "the scores of a model of preferences have no 0"),
        ({"sources": {"formats": 1.0}, "formats": (SHORT, LONG)}, "the share of 2 format checks has more than two"),
        (
            {"sources": {"families": 1.0, "formats": 1.0}, "formats": (SHORT,)},
            "a sum of families, formats has more than two values",
        ),
        (
            {"sources": {"function": 1.0, "preference": 1.0}, "preference": MODEL, "function": f"{__file__}:config"},
            "a sum of function, preference has more than two values",
        ),
    ],
)
def test_unsolved_queries_are_penalised_beside_rewards_of_0_and_1_only(reward, why):
    (found,) = validation.problems(with_unsolved(**reward))
    assert found.startswith("challenger.unsolved_queries='worst': is for rewards that are 0 or 1, and ")
    assert why in found
    assert "leave it at 'as_is', or make families" in found
    assert validation.problems(with_unsolved("untrained_challenger", **reward)) == []  # nobody is paid for queries


@pytest.mark.parametrize(
    "reward",
    [
        {},
        {"sources": {"families": 0.5}},
        {"sources": {"formats": 1.0}, "formats": (SHORT,)},
        {"function": f"{__file__}:config"},  # looked at as it returns
    ],
)
def test_they_are_beside_rewards_of_two_values(reward):
    assert validation.problems(with_unsolved(**reward)) == []

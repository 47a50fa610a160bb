"""What is wrong with a configuration of self-play is named before anything runs, by its key."""

import pytest

from dfc import validation
from dfc.config import (
    AdapterConfig,
    BatchConfig,
    ChallengerConfig,
    LanguageSelfPlay,
    QueryTask,
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
        ({"queries": 1}, "queries=1: must be at least 2"),
        ({"answers": 1}, "answers=1: must be at least 2"),
        ({"challenger": ChallengerConfig(coefficient=-0.1)}, "challenger.coefficient=-0.1: must be at least 0"),
        ({"kl_coefficient": -1.0}, "kl_coefficient=-1.0: must be at least 0"),
        ({"self_reward": SelfRewardConfig(weight=-1.0)}, "self_reward.weight=-1.0: must be at least 0"),
        ({"temperature": 0.0}, "temperature=0.0: must be above 0"),
        ({"tasks": {"a": QueryTask("sums", "Add 1 and 2.")}}, "tasks.a.template='Add 1 and 2.': has no placeholder"),
        ({"tasks": {"a": QueryTask(weight=0.0)}}, "tasks.a.weight=0.0: must be above 0"),
        (
            {"tasks": {"a": QueryTask("", "{x}?")}, "challenger": ChallengerConfig(prompt="Ask {task}")},
            "challenger.prompt: has no {template}, which the tasks have",
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

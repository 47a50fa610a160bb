"""The margin of the penalty: ranges by source, the deviation of a run's rewards against numpy's, and its resume."""

import json
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.config import AnswerRewardConfig
from dfc.methods.language_self_play import penalty
from dfc.methods.language_self_play.penalty import Scored


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"families": 1.0}, 1.0),
        ({"references": 3.0}, 3.0),
        ({"formats": 0.5, "families": 1.0}, 1.5),
        ({"formats": 0.5, "function": 1.0}, None),
        ({"function": 1.0}, None),
        ({"preference": 1.0}, None),
        ({"preference": 0.1, "families": 1.0}, None),
    ],
)
def test_a_range_is_the_sum_of_the_weights_where_every_source_has_one(sources, found):
    assert penalty.reward_range(AnswerRewardConfig(sources=sources).weights) == found


def test_the_margin_is_a_quarter_of_the_range_of_the_challengers_reward():
    assert penalty.margin({"families": 1.0}, Scored(), 0.0) == 0.25
    assert penalty.margin({"families": 1.0, "formats": 1.0}, Scored(), 0.0) == 0.5
    assert penalty.margin({"families": 1.0}, Scored(), 1 / 7) == pytest.approx(0.5)  # r of -1 to 1
    assert penalty.margin({"families": 1.0}, Scored(), 1.0) == 2.0  # of -1 to 7


def test_without_a_range_it_is_one_standard_deviation_of_the_rewards_so_far():
    scored = Scored().with_(np.array([-3.0, 1.0, 5.0])).with_(np.array([20.0]))
    assert penalty.margin({"preference": 1.0}, scored, 0.0) == pytest.approx(statistics.pstdev([-3, 1, 5, 20]))
    assert penalty.margin({"preference": 1.0}, scored, 1.0) == pytest.approx(statistics.pstdev([-3, 1, 5, 20]) + 7 / 4)


@pytest.mark.parametrize(("rewards", "margin"), [([], 1.0), ([0.0] * 9, 1.0), ([0.1] * 7, 1.0), ([1e30] * 3, 1e30)])
def test_rewards_that_are_all_equal_leave_bad_queries_a_price(rewards, margin):
    scored = Scored().with_(np.asarray(rewards, np.float32)).with_(np.asarray(rewards[:1], np.float32))
    assert penalty.margin({"function": 1.0}, scored, 0.0) == pytest.approx(margin)


@given(st.lists(st.lists(st.floats(-1e4, 1e4, width=32), max_size=9), max_size=6))
@settings(max_examples=100, deadline=None)
def test_the_deviation_is_that_of_all_rewards_at_once_and_goes_through_json(parts):
    scored, again = Scored(), Scored()
    for part in parts:
        scored = scored.with_(np.asarray(part, np.float64))
        again = Scored(**json.loads(json.dumps(vars(again)))).with_(np.asarray(part, np.float64))
        assert again == scored  # bit for bit, wherever it is stopped
    together = [x for part in parts for x in part]
    assert scored.count == len(together)
    assert scored.deviation == pytest.approx(np.std(together) if together else 0.0, rel=1e-6, abs=1e-6)

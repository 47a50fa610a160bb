"""Figures of an iteration and their alarms."""

import json

import numpy as np
import pytest

from dfc.methods.language_self_play import watch
from dfc.methods.language_self_play.watch import Watch

CODE = "def answer(x):\n    return x\n"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("```\nhello\n```", True),
        (CODE, True),
        ("int main() {\n  puts(x);\n}", True),
        ("If you import fruit, then return it.", False),
        ("It is a class of its own:\nnobody knows.", False),
        ("", False),
    ],
)
def test_answers_that_look_like_code(answer, found):
    assert watch.code_like(answer) is found


def test_figures_of_an_iteration():
    rewards = np.asarray([[1.0, 0.0], [0.5, 0.5], [9.0, 1.0], [2.0, 3.0]])
    mask = np.asarray([[1, 1], [1, 1], [0, 1], [0, 0]], bool)
    answers = [["yes", "no"], ["yes ", CODE], ["a", "a"], ["b", "c"]]
    found = watch.figures(
        ["a b", "a b", "c d e", ""],
        [None, "duplicate", "template", "empty"],
        answers,
        rewards,
        mask,
        [1, 4, None, None],
    )
    assert found == pytest.approx(
        {
            "template": 0.5,
            "live": 0.25,  # one scored answer does not differ from itself, nor does what was not scored
            "code_like": 1 / 8,
            "repeated_answers": 2 / 8,  # not twice to one query
            "query_length": 11 / 4,
            "distinct_1": 5 / 7,
            "distinct_2": 3 / 4,
            "distinct_3": 1.0,
            "difficulty": 2.5,
        }
    )


GOOD = {"live": 0.6, "template": 0.9, "code_like": 0.1, "distinct_2": 0.8, "query_length": 100.0}


def after(*figures):
    """The alarms of the last of several iterations; the state goes through JSON before it."""
    seen = Watch()
    for found in figures[:-1]:
        seen.take(found)
    return Watch(**json.loads(json.dumps(vars(seen)))).take(figures[-1])


def test_a_run_in_order_has_no_alarm():
    assert after(*[GOOD] * 30) == []


@pytest.mark.parametrize(
    ("name", "bad", "just_good"),
    [("code_like", 0.4, 0.39), ("distinct_2", 0.4, 0.41), ("query_length", 300.0, 299.0)],
)
def test_a_figure_far_from_the_beginning_is_an_alarm(name, bad, just_good):
    assert [alarm.metric for alarm in after(*[GOOD] * 5, GOOD | {name: bad})] == [name]
    assert after(*[GOOD] * 5, GOOD | {name: just_good}) == []
    assert after(*[GOOD] * 4, GOOD | {name: bad}) == []  # the beginning itself


@pytest.mark.parametrize(("name", "bad"), [("live", 0.09), ("template", 0.49)])
def test_a_figure_that_stays_low_for_ten_iterations_is_an_alarm(name, bad):
    low = GOOD | {name: bad}
    assert after(*[low] * 9) == []
    (alarm,) = after(*[low] * 10)
    assert alarm.metric == name
    assert f"{bad:.0%}" in alarm.sentence
    assert "for 10 iterations" in alarm.sentence
    assert after(*[low] * 9, GOOD, low) == []


def test_more_than_a_fifth_of_answers_without_a_mark_is_an_alarm_at_once():
    assert after(GOOD | {"self_reward_failures": 0.2}) == []
    (alarm,) = after(GOOD | {"self_reward_failures": 0.21})
    assert (alarm.metric, alarm.sentence) == (
        "self_reward_failures",
        "21% of answers have no mark of the judge and are excluded from all means and losses",
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            {"bad_queries/cut": 8.0},
            "no query was usable (8 cut), and this iteration taught nothing; raise rollout.max_q",
        ),
        (
            {
                "bad_queries/echo": 1.0,
                "bad_queries/near_duplicate": 3.0,
                "unsolved_queries": 3.0,
                "bad_queries/cut": 0.0,
            },
            (
                "no query was usable (3 near duplicate, 3 unsolved, 1 echo), and this iteration taught the Challenger "
                "nothing; name more"
            ),
        ),
        (
            {},
            "no query was usable (none has an answer that was scored), and this iteration taught nothing; see what sc",
        ),
    ],
)
def test_an_iteration_without_a_usable_query_is_told_at_once_and_why(found, said):
    (alarm,) = after(GOOD | found | {"usable": 0.0})
    assert alarm.sentence.startswith(said)
    assert not alarm.ends
    assert after(GOOD | found | {"usable": 0.125}) == after(GOOD | found) == []


def test_an_iteration_whose_rewards_are_all_equal_is_told_at_once():
    (alarm,) = after(GOOD | {"usable": 1.0, "solver/taught": 0.0})
    assert alarm.sentence.startswith("the answers to each query earned the same, and this iteration taught the Solver")
    assert not alarm.ends
    assert after(GOOD | {"usable": 1.0, "solver/taught": 1.0}) == []
    (other,) = after(GOOD | {"usable": 0.0, "solver/taught": 0.0, "bad_queries/cut": 2.0})
    assert other.metric == "usable"  # says why already

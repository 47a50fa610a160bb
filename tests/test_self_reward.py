"""The judge's reply is read strictly; a failure is asked again once, then counts nowhere."""

import itertools

import numpy as np
import pytest

from dfc.errors import TrainingError
from dfc.methods.language_self_play import self_reward


def reply(points, total=None, score=None):
    total = sum(points) if total is None else total
    said = "+".join(map(str, points))
    return f"Fair. <calculation>{said}={total}</calculation>\n<score>{total if score is None else score}</score>"


def test_every_score_is_read():
    for points in itertools.product((0, 1), repeat=7):
        assert self_reward.read_marks(reply(points)) == sum(points)


GOOD = (1, 1, 0, 1, 0, 1, 0)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "<score>4</score>",
        "<calculation>1+1+0+1+0+1+0=4</calculation>",
        reply(GOOD, total=5),
        reply(GOOD, score=5),
        reply(GOOD[:6]),
        reply((*GOOD, 0)),
        reply((2, 1, 0, 1, 0, 0, 0)),
        reply(GOOD) + reply(GOOD),
        reply(GOOD) + "<score>4</score>",
        "<score>4</score><calculation>1+1+0+1+0+1+0=4</calculation>",
        "<calculation>1+1+0+1+0+1+0=4<score>4</score></calculation>",
        "<calculation>1+1+0+1+0+1+0=4 points</calculation><score>4</score>",
        "<calculation>1+1+0+1+0+1+0=4</calculation><score>4.0</score>",
        "<calculation>1+1+0+1+0+1+0=4</calculation><score>-4</score>",
    ],
)
def test_anything_else_is_no_score(said):
    assert self_reward.read_marks(said) is None


def test_spaces_and_capitals_do_not_matter():
    said = "<Calculation> 1 + 1+0+ 1+0+1+0 = 4 </CALCULATION> so <Score>\n4 </score>!"
    assert self_reward.read_marks(said) == 4


def test_a_failure_is_asked_again_once_and_then_masked():
    asked = []

    def ask(numbers, attempt):
        asked.append((tuple(numbers), attempt))
        said = {(0, 0): reply(GOOD), (1, 0): "no", (1, 1): reply((1,) * 7), (2, 0): "no", (2, 1): "never"}
        return [said[number, attempt] for number in numbers]

    found = self_reward.judge([True] * 3, ask)
    assert asked == [((0, 1, 2), 0), ((1, 2), 1)]
    np.testing.assert_array_equal(found.marks, [4, 7, 0])
    np.testing.assert_array_equal(found.mask, [True, True, False])
    assert found.replies[1:] == [["no", reply((1,) * 7)], ["no", "never"]]
    assert found.asked_again == 2
    assert found.failures == pytest.approx(1 / 3)


def test_what_leaves_the_judge_no_room_has_mark_0_and_is_no_mark_of_the_judges():
    asked = []

    def ask(numbers, attempt):
        asked.append((tuple(numbers), attempt))
        return [reply(GOOD)] * len(numbers)

    found = self_reward.judge([False, True, False], ask)
    assert asked == [((1,), 0)]
    np.testing.assert_array_equal(found.marks, [0, 4, 0])
    assert found.mask.all()
    assert (found.read, found.without_room, found.failures, found.asked_again) == (1, 2, 0, 0)
    silent = self_reward.judge([False] * 64, ask)
    with pytest.raises(TrainingError, match=r"no mark in 64 answers.*raise rollout\.max_length"):
        self_reward.refuse_silent(64, silent.read, silent)


def test_a_judge_that_never_gives_a_score_is_named_with_what_it_said():
    said = self_reward.judge([True] * 64, lambda numbers, _: ["\x1b[2J no idea"] * len(numbers))
    with pytest.raises(TrainingError, match=r"no mark in 64 answers.*\\x1b\[2J no idea.*lsp_zero"):
        self_reward.refuse_silent(64, 0, said)
    self_reward.refuse_silent(63, 0, said)
    self_reward.refuse_silent(640, 1, said)

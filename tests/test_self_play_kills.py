"""Self-play with a judge, killed in each of its phases: marks, how many there were, and replies are all resumed."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from recipe_runs import untimed
from self_play_runs import BASE, Counting, Killed, one_device, run, same

from dfc.errors import Interrupted
from dfc.methods.language_self_play import recipe, self_reward
from dfc.methods.language_self_play import update as learning
from dfc.training import export

__all__ = ["one_device"]

LSP = dataclasses.replace(BASE, method="lsp", checkpoint=dataclasses.replace(BASE.checkpoint, every=1))
READ = self_reward.read_marks


@pytest.fixture(scope="module", autouse=True)
def readable():
    """A random model spells no marks, so they are read off any reply; some have none, and are asked for again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            self_reward, "read_marks", lambda reply: sum(map(ord, reply)) % 8 if len(reply) % 5 not in (1, 2) else None
        )
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    stop = Counting()
    path = run(LSP, tmp_path_factory.mktemp("whole") / "run", stop)
    return path, stop.looks


def progress(path, step=-1):
    """What a checkpoint, the newest one by default, says of the run, but for the sizes of files, where clocks stand."""
    checkpoint = sorted((path / "checkpoints").glob("step_*"))[step]
    found = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))["progress"]
    return {name: value for name, value in found.items() if name != "positions"}


def test_marks_are_given_asked_for_again_and_missing_in_the_run_that_is_killed(whole):
    path, _ = whole
    judged = [record for record in untimed(path, "episodes") if any(record["judge"])]
    assert any(any(record["marks"]) for record in judged)
    again = [replies for record in judged for replies in record["judge"] if len(replies) > 1]
    assert any(first != second for first, second in again)  # sampled anew
    for step in (0, -1):  # so that the two are told apart wherever a run resumes
        assert 0 < progress(path, step)["marked"] < progress(path, step)["judged"]


class Dies:
    """Stands in for a function: dies before or after the call of this number."""

    def __init__(self, function, call, *, after):
        self.function, self.left, self.after = function, call, after

    def __call__(self, *given, **more):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        found = self.function(*given, **more)
        if self.left == 0:
            raise Killed
        return found


# Where, on which call, and whether the call is still made.
KILLS = {
    "before the marks of the first iteration": (self_reward, "judge", 1, False),
    "before the marks of the second iteration": (self_reward, "judge", 2, False),
    "with all marks given": (self_reward, "judge", 2, True),
    "with records written and no step taken": (learning, "step", 2, False),
    "behind the step": (learning, "step", 2, True),
    "behind the metrics": (recipe, "iteration_record", 3, True),
    "with the policy not yet written": (export, "save_policy", 1, False),
}


@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_in_any_phase_resumes_bit_for_bit(whole, tmp_path, kill):
    place, name, call, after = KILLS[kill]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, Dies(getattr(place, name), call, after=after))
        with pytest.raises(Killed):
            run(LSP, tmp_path / "run")
    run(LSP, tmp_path / "run")
    same(whole[0], tmp_path / "run")
    assert progress(tmp_path / "run") == progress(whole[0])


def test_a_judge_that_has_given_marks_may_give_none_later(tmp_path, monkeypatch):
    """Marks of the iteration itself count, and so do those of earlier ones."""
    judge, iterations = self_reward.judge, itertools.count(1)

    def silent_later(room, ask):
        found = judge(room, ask)
        return found if next(iterations) == 1 else dataclasses.replace(found, mask=np.zeros_like(found.mask))

    monkeypatch.setattr(self_reward, "judge", silent_later)
    monkeypatch.setattr(self_reward, "PATIENCE", 1)
    path = run(dataclasses.replace(LSP, iterations=2), tmp_path / "run")
    failures = [line["metrics"]["self_reward_failures"] for line in untimed(path, "metrics")]
    assert failures[0] < failures[1] == 1


def test_a_stop_while_the_judge_replies_throws_its_marks_away(whole, tmp_path):
    """Stopped in the second iteration, after the first replies: what was sampled is thrown away."""
    path = tmp_path / "run"
    judge = self_reward.judge

    iterations = []

    def stopped(room, ask):
        iterations.append(room)

        def some(numbers, attempt):
            found = ask(numbers, attempt)
            if len(iterations) == 2:
                raise Interrupted(15)
            return found

        return judge(room, some)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_reward, "judge", stopped)
        with pytest.raises(Interrupted):
            run(LSP, path)
    assert progress(path)["judged"] < progress(whole[0])["judged"]
    assert [line["iteration"] for line in untimed(path, "metrics")] == [1]
    run(LSP, path)
    same(whole[0], path)


def test_a_run_killed_behind_an_iteration_without_an_update_shares_calls_with_its_reference(tmp_path):
    """Nothing has a mark in the first iteration, so its weights are still the reference's own."""
    silent = dataclasses.replace(LSP, challenger=dataclasses.replace(LSP.challenger, bad_queries="as_is"))
    judge = self_reward.judge

    def played(path, *, dies):
        iterations = itertools.count(1 + (path / "checkpoints" / "step_000000001").exists())

        def silent_first(room, ask):
            done = next(iterations) > 1
            if done and dies:
                raise Killed
            found = judge(room, ask)
            return found if done else dataclasses.replace(found, mask=np.zeros_like(found.mask))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self_reward, "judge", silent_first)
            return run(silent, path)

    unstopped = played(tmp_path / "unstopped", dies=False)
    assert [line["metrics"]["updates"] for line in untimed(unstopped, "metrics")] == [0, 1, 1]
    with pytest.raises(Killed):
        played(tmp_path / "killed", dies=True)
    same(unstopped, played(tmp_path / "killed", dies=False))

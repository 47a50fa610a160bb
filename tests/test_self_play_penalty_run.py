"""The penalty in whole runs: what an iteration without a usable query says, how it resumes, rewards of 0 and 1 only."""

import dataclasses
import json

import numpy as np
import pytest
from recipe_runs import untimed
from run_files import Page
from self_play_runs import BASE, Counting, Killed, one_device, run, same

from dfc.config import AnswerRewardConfig, ChallengerConfig, OptimizerConfig
from dfc.errors import CheckpointError
from dfc.methods.language_self_play import hygiene
from dfc.methods.language_self_play import page as self_play_page
from dfc.methods.language_self_play.penalty import Scored
from dfc.report import reader, run_page, warnings
from dfc.runs.checkpoint import _checksum
from dfc.scoring.scorer import ScoringError

__all__ = ["one_device"]

# A random model ends hardly a query within its limit: each is cut.
CUT = dataclasses.replace(BASE, iterations=1, challenger=ChallengerConfig(prompt="Ask {task} {template}"))


def odd(query):
    """Stands in for what a random model cannot do, end its queries: one of odd length is bad."""
    return "echo" if len(query.text) % 2 else None


def state_of(checkpoint):
    return json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))


# ---- an iteration without a usable query -----------------------------------------------------------------------------


def test_an_iteration_whose_queries_are_all_cut_says_at_once_that_it_taught_nothing(tmp_path, capsys):
    path = run(CUT, tmp_path / "run")
    printed = capsys.readouterr().out
    said = "warning: iteration 1: no query was usable (2 cut), and this iteration taught nothing; raise"
    assert f"{said} rollout.max_query_length" in printed
    (line,) = untimed(path, "metrics")
    assert (line["metrics"]["usable"], line["metrics"]["challenger/taught"]) == (0, 0)
    assert [record["advantage"] for record in untimed(path, "episodes")] == [0, 0]
    page = Page(run_page.build(path).read_text(encoding="utf-8"))
    assert "The iteration taught the Challenger nothing" in page.text
    assert [warning.title for warning in warnings.of_run(reader.read(path))] == ["an iteration taught nothing"]
    assert any(line.split()[:2] == ["Usable", "queries"] for line in self_play_page.lines(path))


def test_it_ends_no_run_that_is_to_end_at_its_first_alarm(tmp_path):
    watch = dataclasses.replace(CUT.watch, stop=True)
    path = run(dataclasses.replace(CUT, iterations=2, watch=watch), tmp_path / "run")
    assert [line["metrics"]["usable"] for line in untimed(path, "metrics")] == [0, 0]


def test_an_iteration_with_usable_queries_says_nothing_of_it(tmp_path, capsys):
    path = run(dataclasses.replace(BASE, iterations=1), tmp_path / "run")
    printed = capsys.readouterr().out
    assert "was usable" not in printed
    assert "earned the same" not in printed
    (line,) = untimed(path, "metrics")
    assert (line["metrics"]["usable"], line["metrics"]["challenger/taught"]) == (1, 1)


def equal(queries, answers):
    """A reward of one's own that tells no answer apart."""
    del queries
    return [1.0] * len(answers)


def test_an_iteration_whose_rewards_are_all_equal_says_at_once_that_it_taught_the_solver_nothing(tmp_path, capsys):
    reward = dataclasses.replace(BASE.reward, function=f"{__file__}:equal")
    path = run(dataclasses.replace(BASE, iterations=1, reward=reward), tmp_path / "run")
    said = (
        "warning: iteration 1: the answers to each query earned the same, and this iteration taught the Solver nothing"
    )
    assert said in capsys.readouterr().out
    (line,) = untimed(path, "metrics")
    assert (line["metrics"]["usable"], line["metrics"]["solver/taught"]) == (1, 0)
    assert [each.title for each in warnings.of_run(reader.read(path))] == ["an iteration taught the Solver nothing"]


# ---- the running deviation -------------------------------------------------------------------------------------------

PENALISED = dataclasses.replace(
    BASE,
    groups_per_iteration=6,
    challenger=ChallengerConfig(prompt="Ask {task} {template}"),
    optimizer=OptimizerConfig(learning_rate=1e-3),
    # Room for any query of a random model, tokenized anew.
    rollout=dataclasses.replace(BASE.rollout, max_length=256, prefill_buckets=(256,)),
    batch=dataclasses.replace(BASE.batch, row_length=256),
)


@pytest.fixture(scope="module")
def penalised(tmp_path_factory):
    """A run some of whose queries are bad, with a reward whose range is not known, and how often it looks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hygiene, "_form", odd)
        stop = Counting()
        yield run(PENALISED, tmp_path_factory.mktemp("penalised") / "run", stop), stop.looks


def test_bad_queries_are_put_one_deviation_of_all_rewards_so_far_below_the_usable_ones(penalised):
    path, _ = penalised
    seen, compared = [], 0
    for iteration in (1, 2, 3):
        played = [record for record in untimed(path, "episodes") if record["iteration"] == iteration]
        usable = [record for record in played if record["wrong"] is None and any(record["scored"])]
        seen += [r for record in usable for r, on in zip(record["rewards"], record["scored"], strict=True) if on]
        bad = [record["advantage"] for record in played if record["wrong"]]
        if not (bad and usable):
            continue
        advantages = [record["advantage"] for record in usable]
        wanted = max(max(advantages) - min(advantages), np.std(seen))
        assert min(advantages) - max(bad) == pytest.approx(wanted)
        compared += 1
    assert compared >= 2
    newest = max((path / "checkpoints").glob("step_*"))
    scored = Scored(**state_of(newest)["progress"]["scored"])
    assert (scored.count, scored.deviation) == (len(seen), pytest.approx(np.std(seen)))


def test_the_deviation_resumes_bit_for_bit(penalised, tmp_path):
    whole, looks = penalised
    config = dataclasses.replace(PENALISED, checkpoint=dataclasses.replace(BASE.checkpoint, every=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hygiene, "_form", odd)
        with pytest.raises(Killed):
            run(config, tmp_path / "run", Counting(looks - 3, Killed))
        done = len(untimed(tmp_path / "run", "metrics"))
        assert 0 < done < 3
        run(config, tmp_path / "run")
    same(whole, tmp_path / "run")
    ends = [max((path / "checkpoints").glob("step_*")) for path in (whole, tmp_path / "run")]
    first, second = (state_of(end)["progress"]["scored"] for end in ends)
    assert first == second


def of_an_older_version(path):
    """Takes from a run's checkpoints what an older version did not write; the newest one's number."""
    for checkpoint in sorted((path / "checkpoints").glob("step_*")):
        state = state_of(checkpoint)
        del state["progress"]["scored"]
        (checkpoint / "state.json").write_text(json.dumps(state), encoding="utf-8")
        manifest = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
        manifest["files"]["state.json"] = _checksum(checkpoint / "state.json")
        (checkpoint / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def test_a_run_of_an_older_version_is_not_resumed_under_another_penalty(tmp_path):
    with pytest.raises(Killed):
        run(dataclasses.replace(CUT, iterations=3), tmp_path / "run", Counting(1, Killed))
    of_an_older_version(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"checkpoint of iteration 0 is of an older version .* Begin a new run"):
        run(dataclasses.replace(CUT, iterations=3), tmp_path / "run")


def test_a_run_of_an_older_version_without_penalties_is_resumed(tmp_path):
    stop = Counting()
    whole = run(BASE, tmp_path / "whole", stop)
    with pytest.raises(Killed):
        run(BASE, tmp_path / "run", Counting(stop.looks - 3, Killed))
    of_an_older_version(tmp_path / "run")
    run(BASE, tmp_path / "run")
    same(whole, tmp_path / "run")


# ---- rewards of 0 and 1 ----------------------------------------------------------------------------------------------


def graded(_, answers):
    return [1.0, 0.25] * (len(answers) // 2)


def right_or_wrong(_, answers):
    return [len(answer) % 2 if answer else float("nan") for answer in answers]


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_a_function_that_is_not_of_0_and_1_is_refused_beside_unsolved_queries(tmp_path, weight):
    def config(name):
        reward = AnswerRewardConfig(sources={"function": weight}, function=f"{__file__}:{name}")
        challenger = dataclasses.replace(BASE.challenger, unsolved_queries="worst")
        return dataclasses.replace(BASE, iterations=1, challenger=challenger, reward=reward)

    run(config("right_or_wrong"), tmp_path / "right")
    with pytest.raises(
        ScoringError, match=r"graded': expected 0 or 1 for each answer .* got 0.25; return 1 for what is"
    ):
        run(config("graded"), tmp_path / "graded")
    untrained = dataclasses.replace(config("graded"), method="untrained_challenger")
    run(untrained, tmp_path / "untrained")  # nobody is paid for queries

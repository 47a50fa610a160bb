"""Accuracy and pass@k on questions: figures by brute force, a run of the bundled model, resume, what is refused."""

import itertools
import json
import math
import random
import weakref

import jax
import pytest
from answer_runs import StopAt, run

from dfc import validation
from dfc.config import AnswersRolloutConfig, EvaluateAnswers, SamplingConfig
from dfc.errors import ConfigError, Interrupted
from dfc.evaluation.answers import accuracy, by_setting
from dfc.evaluation.statistics import wilson_interval
from dfc.players import player_specs
from dfc.report import answers_page
from dfc.report.page import publish
from dfc.rollout.host import ModelHost
from dfc.rollout.policy_answers import AnsweringPolicy
from dfc.scoring.mathematics import Mathematics
from dfc.scoring.scorer import scores_of

# ---- figures ---------------------------------------------------------------------------------------------------------


def record(question, sample, value, **more):
    return {
        "policy": "p",
        "questions": "set",
        "question": question,
        "sample": sample,
        "value": value,
        "verdict": "no_verdict" if value is None else "right" if value else "wrong",
        "cut": False,
        "tokens": 10,
        **more,
    }


def test_pass_at_k_is_the_share_of_subsets_that_hold_a_right_answer():
    generator = random.Random(0)
    values = [[float(generator.random() < share) for _ in range(5)] for share in (0.0, 0.2, 0.5, 0.9, 1.0)]
    records = [record(q, s, value) for q, found in enumerate(values) for s, value in enumerate(found)]
    found = accuracy(records, 5)
    for k in range(1, 6):
        shares = [sum(any(subset) for subset in itertools.combinations(one, k)) / math.comb(5, k) for one in values]
        assert found.pass_at[k - 1].mean == pytest.approx(sum(shares) / len(shares))
    assert found.accuracy.estimate == pytest.approx(found.pass_at[0].mean)
    assert (found.questions, found.answers, found.unscored) == (5, 25, 0)


def test_one_answer_to_each_question_has_wilsons_interval():
    found = accuracy([record(question, 0, float(question < 3)) for question in range(10)], 1)
    assert found.accuracy == wilson_interval(3, 10)
    assert found.verdicts == {"right": 3, "wrong": 7}


def test_questions_that_all_came_out_alike_are_no_proof_of_an_interval_of_no_width():
    alike = accuracy([record(question, sample, 0.0) for question in range(4) for sample in range(3)], 3)
    assert alike.accuracy == wilson_interval(0, 4)
    mixed = accuracy([record(q, s, float(s < q)) for q in range(4) for s in range(3)], 3)
    assert mixed.accuracy.estimate == pytest.approx(0.5)
    assert 0 <= mixed.accuracy.low < 0.5 < mixed.accuracy.high <= 1
    one = accuracy([record(0, sample, float(sample)) for sample in range(2)], 2)
    assert one.accuracy == wilson_interval(0.5, 1)


def test_what_could_not_be_scored_is_in_no_figure_and_counted():
    records = [record(0, 0, 1.0), record(0, 1, None), record(1, 0, None, cut=True), record(1, 1, None, tokens=50)]
    found = accuracy(records, 2)
    assert (found.questions, found.answers, found.unscored) == (1, 1, 3)
    assert found.accuracy.estimate == 1
    assert math.isnan(found.pass_at[1].mean)
    assert (found.cut, found.tokens) == (0.25, 20)
    nothing = by_setting([], ["p"], ["set"], 1)["p", "set"]
    assert math.isnan(nothing.accuracy.estimate)


def test_tables_show_every_figure_and_json_knows_no_nan():
    records = [record(q, s, float(q > s)) for q in range(3) for s in range(2)]
    found = by_setting(records, ["p", "empty"], ["set"], 2)
    tables = answers_page.tables(found, 2)
    assert [table.title for table in tables] == ["Accuracy", "Within k answers", "Verdicts on the answers"]
    assert tables[0].rows[0][2] == "50.0"
    assert tables[1].rows[0][2:] == ("50.0 ± 28.9", "66.7 ± 33.3")
    json.dumps(answers_page.results(config_of("file"), found).data, allow_nan=False)


# ---- a run -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "own.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(5)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def config_of(file, **changes):
    settings = {
        "name": "answers",
        "policies": ("initial", "again=tiny_player"),
        "questions": {"own": str(file)},
        "samples": 2,
        "sampling": SamplingConfig(temperature=1.0),
        "rollout": AnswersRolloutConfig(slots=2, max_length=256, max_reply_length=8),
    }
    return EvaluateAnswers(**settings | changes)


def test_a_policys_weights_are_let_go_before_the_next_ones_are_read(monkeypatch):
    config, alive = config_of("file"), []
    read = ModelHost.policy_params

    def noted(host, weights):
        alive.append([one() is not None for one in kept])
        params = read(host, weights)
        kept.extend(map(weakref.ref, jax.tree.leaves(params)))
        return params

    kept = []
    monkeypatch.setattr(ModelHost, "policy_params", noted)
    policy = AnsweringPolicy(config, {}, lambda _: None, lambda: None)
    for text in config.policies:
        policy.load(player_specs.parse(text))
        (answer,) = policy.answer(["Hello"], [1])
    assert alive[0] == []
    assert alive[1]
    assert not any(alive[1])
    assert answer["tokens"] > 0


@pytest.fixture
def odd_answers(monkeypatch):
    """A stand-in for mathematics, which is tested elsewhere: right are answers of an odd number of signs."""
    asked = []

    def score(queries, answers):
        asked.append(list(zip(queries, answers, strict=True)))
        return scores_of((float(len(a) % 2), "right" if len(a) % 2 else "wrong") for a in answers)

    monkeypatch.setattr(Mathematics, "__init__", lambda self, references, **_: setattr(self, "known", references))
    monkeypatch.setattr(Mathematics, "__call__", lambda _, queries, answers: score(queries, answers))
    monkeypatch.setattr(Mathematics, "close", lambda _: None)
    return asked


def test_a_stop_is_looked_for_while_answers_are_scored(questions, tmp_path, monkeypatch):
    scoring, looked = [], []

    def score(self, _, answers):
        scoring.append(len(answers))
        self.look()
        scoring.pop()
        return scores_of((1.0, "right") for _ in answers)

    stop = StopAt(10**9)
    monkeypatch.setattr(stop, "check_stop", lambda: looked.extend(scoring))
    monkeypatch.setattr(Mathematics, "__init__", lambda self, _, **given: setattr(self, "look", given["check_stop"]))
    monkeypatch.setattr(Mathematics, "__call__", score)
    monkeypatch.setattr(Mathematics, "close", lambda _: None)
    run(config_of(questions, policies=("initial",), samples=1), tmp_path / "run", stop)
    assert sum(looked) == 5


def test_a_stopped_run_resumes_with_the_same_answers_and_samples_none_twice(questions, tmp_path, odd_answers, capsys):
    config = config_of(questions)
    whole = run(config, tmp_path / "whole")
    assert len(whole) == 20
    assert [one for one in whole if one["policy"] == "initial"] == [
        {**one, "policy": "initial"} for one in whole if one["policy"] == "again"
    ]
    assert len({one["answer"] for one in whole}) > 3
    before = sum(map(len, odd_answers))
    assert before == 20
    with pytest.raises(Interrupted):
        run(config, tmp_path / "cut", StopAt(1))
    kept = sum(map(len, odd_answers)) - before
    assert 0 < kept < 20
    assert run(config, tmp_path / "cut") == whole
    assert sum(map(len, odd_answers)) == before + 20
    results = json.loads((tmp_path / "whole" / "results.json").read_text())
    right = sum(one["value"] for one in whole if one["policy"] == "again") / 10
    assert results["results"][1]["policy"] == "again"
    assert results["results"][1]["accuracy"][0] == pytest.approx(right)
    assert "pass@2 %" in (tmp_path / "whole" / "tables.md").read_text()
    assert "report.html" in capsys.readouterr().out
    run(config, tmp_path / "whole")  # shows its results again, and samples nothing
    assert sum(map(len, odd_answers)) == before + 20


def test_hostile_answers_are_escaped_on_the_page(tmp_path):
    found = by_setting([record(0, 0, 1.0, policy="<b>x")], ["<b>x"], ["set"], 1)
    config = config_of("<i>file", policies=("<b>x=tiny_player",), samples=1)
    publish(tmp_path, answers_page.results(config, found))
    page = (tmp_path / "report.html").read_text()
    assert "<b>x" not in page
    assert "<i>file" not in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ()}, "policies is empty"),
        ({"policies": ("simple",)}, "is no model"),
        ({"policies": ("http://127.0.0.1:9/v1#m",)}, "is no model"),
        ({"policies": ("a=tiny_player", "a=initial")}, "a stands for several"),
        ({"questions": {}}, "questions is empty"),
        ({"questions": {"": "x"}}, "a name is empty"),
        ({"rollout": AnswersRolloutConfig(max_length=8, max_reply_length=9)}, "must be at most rollout.max_length"),
        ({"rollout": AnswersRolloutConfig(prefill_buckets=(16, 8))}, "must ascend"),
    ],
)
def test_settings_that_make_no_sense_together_are_named(questions, changes, message):
    (problem,) = validation.problems(config_of(questions, **changes))
    assert message in problem


def test_what_is_not_there_is_named_before_anything_runs(questions, tmp_path):
    config = config_of(tmp_path / "gone.jsonl", policies=("a=" + str(tmp_path / "nobody"),))
    first, second = validation.path_problems(config)
    assert "no such file" in first
    assert "nobody" in second
    assert validation.path_problems(config_of(questions)) == []


@pytest.mark.usefixtures("odd_answers")
def test_files_that_cannot_be_read_and_questions_without_room_are_refused(questions, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "x", "answer": "no mark"}')
    with pytest.raises(ConfigError, match=r"questions.own: .*bad.jsonl, row 0 .*no result"):
        run(config_of(bad), tmp_path / "a")
    short = AnswersRolloutConfig(slots=2, max_length=16, max_reply_length=8)
    with pytest.raises(ConfigError, match="5 of 5 take up to"):
        run(config_of(questions, rollout=short), tmp_path / "b")

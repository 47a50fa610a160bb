"""The recipe on a small random model: whole runs, stops and resumes, methods that are one another, who judges."""

import dataclasses
import functools
import json
import shutil

import jax
import numpy as np
import pytest
from recipe_runs import untimed
from self_play_runs import BASE, MODEL, Counting, Killed, leaves, one_device, run, same, weights

from dfc.config import AnswerRewardConfig, ModelConfig, SamplingConfig
from dfc.config.self_play import QueryTask
from dfc.errors import ConfigError, Interrupted, TrainingError
from dfc.methods.language_self_play import records as self_play_records
from dfc.methods.language_self_play import self_play_run, self_reward
from dfc.methods.language_self_play.sampling import Roles
from dfc.methods.language_self_play.watch import Alarm, Watch
from dfc.models import huggingface
from dfc.rollout.host import PolicyWeights, load_tokenizer
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.scoring.scorer import ScoringError

__all__ = ["one_device"]
LOOKS = {}  # of a run, by its name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    stop = Counting()
    path = run(BASE, tmp_path_factory.mktemp("whole") / "run", stop)
    LOOKS["whole"] = stop.looks
    return path


# ---- a whole run -----------------------------------------------------------------------------------------------------


def test_a_run_leaves_queries_answers_metrics_seconds_and_a_policy(whole):
    queries = untimed(whole, "episodes")
    assert [q["iteration"] for q in queries] == [1, 1, 2, 2, 3, 3]
    assert all(q["replies"][0][1] == q["query"] and len(q["replies"]) == 3 for q in queries)
    for q in queries:
        kept = [r for r, on in zip(q["rewards"], q["scored"], strict=True) if on]
        assert q["reward"] == pytest.approx(np.mean(kept) if kept else 0.0)
    missing = {
        number: sum(q["scored"].count(False) for q in queries if q["iteration"] == number) for number in (1, 2, 3)
    }
    assert [line["metrics"]["unscored_answers"] for line in untimed(whole, "metrics")] == list(missing.values())
    assert sum(missing.values()) > 0
    for line in untimed(whole, "metrics"):
        figures = {"loss", "reward", "live", "template", "distinct_2", "solver/log_ratio", "challenger/log_ratio"}
        assert figures <= set(line["metrics"])
        assert line["metrics"]["prompt_tokens/prefilled"] >= line["metrics"]["prompt_tokens/distinct"] > 0
    clock = json.loads((whole / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])["clock"]
    assert all(f"{phase}_seconds" in clock for phase in self_play_records.PHASES)
    first = huggingface.load(MODEL, dtype="float32")[1]
    moved = max(np.abs(a - b).max() for a, b in zip(leaves(weights(whole)), leaves(first), strict=True))
    assert 1e-4 < moved < 1


def nothing(_, answers):
    return [float("nan")] * len(answers)


def test_a_reward_that_is_no_number_for_a_whole_iteration_ends_the_run_by_name(tmp_path):
    config = dataclasses.replace(BASE, reward=AnswerRewardConfig(function=f"{__file__}:nothing"))
    named = (
        rf"^iteration 1: none of its 4 answers could be scored, .* reward.function='{__file__}:nothing' for 4 of them"
    )
    with pytest.raises(ScoringError, match=named):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "finished.json").exists()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_killed_run_resumes_bit_for_bit(whole, tmp_path):
    """Killed in its second iteration, with no checkpoint but the first one; then stopped there, and in its third."""
    path, looks = tmp_path / "run", LOOKS["whole"]
    with pytest.raises(Killed):
        run(BASE, path, Counting(looks // 2, Killed))
    assert len(untimed(path, "metrics")) == 1
    with pytest.raises(Interrupted):
        run(BASE, path, Counting(looks // 2))
    assert len(untimed(path, "metrics")) == 1
    with pytest.raises(Interrupted):
        run(BASE, path, Counting(looks // 2))
    assert len(untimed(path, "metrics")) == 2
    run(BASE, path)
    same(whole, path)


def test_a_checkpoint_holds_the_memory_of_queries(whole):
    newest = max((whole / "checkpoints").glob("step_*"))
    state = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    texts = [" ".join(q["query"].split()).lower() for q in untimed(whole, "episodes") if q["query"]]
    assert state["progress"]["memory"] == texts
    assert state["progress"]["watch"]["count"] == 3


# ---- methods ---------------------------------------------------------------------------------------------------------


def test_self_reward_of_weight_0_asks_no_judge_and_is_lsp_zero(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(self_reward, "judge", lambda *_: pytest.fail("the judge was asked"))
    config = dataclasses.replace(BASE, method="lsp", self_reward=dataclasses.replace(BASE.self_reward, weight=0.0))
    same(whole, run(config, tmp_path / "run"))


def test_data_takes_the_steps_of_an_untrained_challenger_that_wrote_it(tmp_path):
    untrained = run(dataclasses.replace(BASE, method="untrained_challenger"), tmp_path / "untrained")
    queries = [record["query"] for record in untimed(untrained, "episodes")]
    assert all(queries)
    file = tmp_path / "queries.jsonl"
    file.write_text("".join(json.dumps({"query": query}) + "\n" for query in queries), encoding="utf-8")
    config = dataclasses.replace(BASE, method="data", data=str(file), tasks={})
    data = run(config, tmp_path / "data")
    for one, two in zip(leaves(weights(untrained)), leaves(weights(data)), strict=True):
        np.testing.assert_array_equal(one, two)
    rewards = [[record["rewards"] for record in untimed(path, "episodes")] for path in (untrained, data)]
    assert rewards[0] == rewards[1]


def marks_of(reply):
    return len(reply) % 8 if reply else None


def test_the_reference_judges_and_not_the_policy(tmp_path, monkeypatch):
    """With marks read off any reply; who was asked is seen at the weights that lie in the engine."""
    asked = []
    write = Roles.write

    def seen(roles, prompts, n, **how):
        policies = roles.engine._policies
        first = policies["reference"].weights.params
        asked.append((how.get("judge") is not None, first is policies["policy"].weights.params, first))
        return write(roles, prompts, n, **how)

    monkeypatch.setattr(Roles, "write", seen)
    monkeypatch.setattr(self_reward, "read_marks", marks_of)
    path = run(dataclasses.replace(BASE, method="lsp"), tmp_path / "run")
    assert any(judges for judges, _, _ in asked)
    later = [same_ for judges, same_, _ in asked if judges][1:]
    assert later
    assert not any(later[1:])
    assert len({id(first) for _, _, first in asked}) == 1
    line = untimed(path, "metrics")[-1]["metrics"]
    assert line["self_reward"] > 0
    marked = [record["marks"] for record in untimed(path, "episodes")]
    said = [record["judge"] for record in untimed(path, "episodes")]
    assert any(any(row) for row in marked)
    assert all(
        mark == (marks_of(replies[-1]) or 0)
        for row, group in zip(marked, said, strict=True)
        for mark, replies in zip(row, group, strict=True)
        if replies
    )


def test_a_judge_that_never_gives_a_score_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(self_reward, "PATIENCE", 6)
    with pytest.raises(TrainingError, match="the judge has given no mark in"):
        run(dataclasses.replace(BASE, method="lsp", iterations=8), tmp_path / "run")


def test_a_judge_whose_prompt_leaves_no_room_is_refused_before_the_first_iteration(tmp_path):
    rollout = dataclasses.replace(BASE.rollout, max_judgement_length=62)
    with pytest.raises(ConfigError, match=r"the judge's prompt alone has .* no room for a judgement of 62; raise it"):
        run(dataclasses.replace(BASE, method="lsp", rollout=rollout), tmp_path / "run")


def test_a_run_that_an_alarm_ended_stays_ended_when_its_policy_was_not_yet_written(tmp_path, monkeypatch):
    config = dataclasses.replace(BASE, watch=dataclasses.replace(BASE.watch, stop=True))
    with monkeypatch.context() as patch:
        patch.setattr(Watch, "take", lambda *_: [Alarm("live", "too easy", "all are right")])
        patch.setattr(self_play_run.SelfPlayRun, "save_policy", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            run(config, tmp_path / "run")
    path = run(config, tmp_path / "run")
    assert [line["iteration"] for line in untimed(path, "metrics")] == [1]
    assert weights(path)


def test_what_trains_on_keeps_the_reference_of_an_earlier_run_or_takes_a_new_one(whole, tmp_path):
    """From the policy of a run: the reference is that policy itself, or the model that the run began with."""
    file = tmp_path / "queries.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    model = ModelConfig(path=str(whole / "policy"))
    behind = dataclasses.replace(BASE, method="data", data=str(file), tasks={}, iterations=1, model=model)
    new, kept = (
        run(c, tmp_path / n) for n, c in (("new", behind), ("kept", dataclasses.replace(behind, reference=str(MODEL))))
    )
    ratios = [untimed(path, "metrics")[0]["metrics"]["solver/log_ratio"] for path in (new, kept)]
    assert abs(ratios[0]) < 1e-6
    assert abs(ratios[1]) > 1e-4
    other = tmp_path / "other"
    shutil.copytree(whole / "policy", other)
    said = json.loads((other / "config.json").read_text(encoding="utf-8"))
    (other / "config.json").write_text(json.dumps(said | {"rms_norm_eps": 1e-3}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"reference=.*has another .* than model.path="):
        run(dataclasses.replace(behind, reference=str(other)), tmp_path / "refused")


# ---- what a query is to the Solver -----------------------------------------------------------------------------------


@functools.cache
def tokenizer():
    return load_tokenizer(huggingface.resolve("tiny_player"), enable_thinking=None)


def test_a_query_cannot_forge_a_role():
    roles = Roles(None, tokenizer())
    plain, forged = roles.prompt("a"), None
    special = set(tokenizer().end_token_ids) | {t for t in plain if not tokenizer().decode([t])}
    names = [tokenizer()._special.id_to_token(t) for t in sorted(special)]
    forged = roles.prompt("a" + "".join(names) + "a")
    # As many tokens of markup as around any other query.
    assert sum(t in special for t in forged) == sum(t in special for t in plain)
    assert all(name in tokenizer().decode(forged) for name in names)


def test_prompts_that_leave_no_room_are_named(tmp_path):
    long = dataclasses.replace(BASE, tasks={"long": QueryTask("x" * 300)})
    with pytest.raises(ConfigError, match=r"rollout.max_length=64: the prompt of task 'long' has \d+ tokens"):
        run(long, tmp_path / "run")
    file = tmp_path / "queries.txt"
    file.write_text("short\n" + "x" * 300 + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="query 2: leaves no room for an answer of 6 tokens"):
        run(dataclasses.replace(BASE, method="data", data=str(file), tasks={}), tmp_path / "other")


def test_a_prompt_is_read_once_for_all_its_replies(tmp_path):
    """Three queries, 8 answers each, and a judgement of each answer, in four slots: counted by the engine."""
    with RunFolder.open(tmp_path / "run", BASE, command="test") as folder, jax.numpy_dtype_promotion("standard"):
        play = self_play_run.SelfPlayRun.open(BASE, folder, Stop(), {}, None)
    roles, rng = play.roles, np.random.default_rng(0)
    roles.seat(PolicyWeights(play.weights), PolicyWeights(play.weights))

    def text(length):
        return rng.integers(5, 90, length).tolist()

    def write(prompts, n, judge=None):
        return roles.write(prompts, n, seed=lambda i, j: 10 * i + j, longest=3, judge=judge)

    opening, queries = text(36), [text(56) for _ in range(3)]
    judged = [opening + text(12) for _ in range(24)]
    write([opening] * 3, 1)
    write(queries, 8)
    write(judged, 1, judge=SamplingConfig())
    found = roles.prompt_tokens()
    # Beginnings: each is one token more to read.
    asked = ([opening, *queries], judged)
    distinct = sum(len({tuple(p[:end]) for p in prompts for end in range(1, len(p) + 1)}) for prompts in asked)
    assert distinct > 500
    assert found["prompt_tokens/distinct"] == distinct
    assert distinct <= found["prompt_tokens/prefilled"] <= 1.1 * distinct
    roles.seat(PolicyWeights(play.weights), None)
    assert set(roles.prompt_tokens().values()) == {0.0}
    roles.leave(play.weights)
    assert roles.engine._cache is None  # it would lie beside the update

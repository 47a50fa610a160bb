"""R of self-play: sums over sources, what each is made of, and what is wrong with a configuration of one."""

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import LlamaConfig

from dfc import multihost, validation
from dfc.config import AnswerRewardConfig, BatchConfig, LanguageSelfPlay, PreferenceRewardConfig, WatchConfig
from dfc.errors import ConfigError, ExitError, Interrupted
from dfc.methods.language_self_play import families, recipe, rewards
from dfc.methods.language_self_play.rewards import KnownQueries, make_reward
from dfc.runs.stop_signals import Stop
from dfc.scoring import references, sandbox
from dfc.scoring.scorer import ScoringError, scores_of
from dfc.scoring.sums import OwnFunction, Sum


def lengths(_, answers):
    return [float("nan") if answer == "?" else len(answer) for answer in answers]


def broken(*_):
    return 1 / 0


def words(*_):
    return ["right", "wrong"]


def three(*_):
    return [1, 2, 3]


HERE = f"{__file__}:lengths"


def reward(**changes):
    return LanguageSelfPlay(reward=AnswerRewardConfig(**changes), batch=BatchConfig(row_length=1024))


def data(file, **changes):
    sources = {"sources": {"references": 1.0}, **changes}
    return LanguageSelfPlay(method="data", data=str(file), reward=AnswerRewardConfig(**sources))


def test_a_sum_has_weights_and_an_answer_that_a_part_cannot_score_has_none():
    parts = {
        "lengths": (0.5, OwnFunction(lengths, "lengths")),
        "known": (2.0, lambda _, answers: scores_of((None, "odd") if a == "c" else (3.0, "even") for a in answers)),
    }
    found = Sum(parts)(["q"] * 4, ["aaaa", "?", "c", ""])
    assert found.mask.tolist() == [True, False, False, True]
    assert found.values.tolist() == [8.0, 0.0, 0.0, 6.0]
    assert found.means == {"lengths": pytest.approx(5 / 3), "known": 3.0}
    assert found.counts == {"known/even": 3, "known/odd": 1}
    assert Sum({"known": parts["known"]})(["q"], ["a"]).means == {}


def test_what_a_sum_holds_open_is_closed_once():
    closed = []

    class Held:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            closed.append(self)

        def __call__(self, _, answers):
            return scores_of((1.0, "right") for _ in answers)

    with Sum({"held": (1.0, Held()), "own": (1.0, OwnFunction(lengths, "lengths"))}) as total:
        assert total(["q"], ["aa"]).values.tolist() == [3.0]
        assert closed == []
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (broken, rf"^mine raised ZeroDivisionError: division by zero \({__file__}:\d+ in broken\)$"),
        (words, r"mine: expected a number for each of 2 answers, got list, which raised ValueError: could not convert"),
        (three, r"mine: expected a number for each of 2 answers, got an array \[3\]"),
    ],
)
def test_a_function_that_does_not_work_is_named(function, message):
    with pytest.raises(ScoringError, match=message):
        OwnFunction(function, "mine")(["q", "q"], ["a", "b"])


def test_a_function_that_calls_exit_is_an_error_that_names_the_setting(tmp_path):
    (tmp_path / "rewards.py").write_text("import sys\ndef leaves(queries, answers):\n    sys.exit()\n")
    named = r"^reward.function='.*:leaves' called sys.exit\(\) \(.*:3 in leaves\);"
    own = reward(function=f"{tmp_path}/rewards.py:leaves")
    with make_reward(own, {}) as score, pytest.raises(ExitError, match=named):
        score(["q"], ["a"])


def test_what_a_function_raises_is_told_without_keys(monkeypatch):
    monkeypatch.setenv("WEATHER_API_KEY", "sunny-4711-days")

    def asks(*_):
        raise ValueError(f"401 for {os.environ['WEATHER_API_KEY']}\nat once")

    with pytest.raises(ScoringError, match=r"^mine raised ValueError: 401 for <.*> at once \(") as caught:
        OwnFunction(asks, "mine")(["q"], ["a"])
    assert "4711" not in str(caught.value)


def test_what_each_part_could_not_score_is_counted():
    parts = {"lengths": (1.0, OwnFunction(lengths, "l")), "all": (1.0, OwnFunction(lambda *_: [1, 1, 1], "a"))}
    assert Sum(parts)(["q"] * 3, ["?", "a", "?"]).unscored == {"lengths": 2}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_iteration_without_any_reward_is_refused_with_its_source(value):
    config = reward(function=HERE)
    score = Sum({"function": (1.0, OwnFunction(lambda _, answers: [value] * len(answers), "f"))})
    named = rf"^iteration 4: none of its 3 answers could be scored, .* from reward.function='{HERE}' for 3 of them, so"
    with pytest.raises(ScoringError, match=named):
        rewards.refuse_useless(config, score(["q"] * 3, ["a"] * 3), 4)
    rewards.refuse_useless(config, score([], []), 4)  # all queries were bad
    some = Sum({"function": (1.0, OwnFunction(lengths, "f"))})(["q"] * 2, ["?", "abc"])
    rewards.refuse_useless(config, some, 4)


@pytest.mark.parametrize("value", [1e30, -1e30, 1e300])
def test_rewards_too_large_to_learn_from_are_refused_with_their_source(value):
    config = reward(function=HERE)
    score = Sum({"function": (1.0, OwnFunction(lambda *_: [0.0, value], "f"))})(["q"] * 2, ["a"] * 2)
    named = (
        rf"^iteration 1: the largest reward in size is (1e\+30|inf), from reward.function='{HERE}'; one above 1e\+12"
    )
    with pytest.raises(ScoringError, match=named):
        rewards.refuse_useless(config, score, 1)
    fair = Sum({"function": (1.0, OwnFunction(lambda *_: [0.0, 9e11], "f"))})(["q"] * 2, ["a"] * 2)
    rewards.refuse_useless(config, fair, 1)


def test_sources_without_a_reward_are_each_named():
    config = reward(sources={"families": 1.0, "preference": 1.0}, preference=PreferenceRewardConfig(path="p"))
    parts = {
        "families": (1.0, lambda *_: scores_of([(None, "x"), (1.0, "y")])),
        "preference": (1.0, lambda *_: scores_of([(1.0, "y"), (None, "x")])),
    }
    score = Sum(parts)(["q"] * 2, ["a"] * 2)
    named = "from the source 'families' of reward.sources for 1 and reward.preference.path='p' for 1 of them"
    with pytest.raises(ScoringError, match=named):
        rewards.refuse_useless(dataclasses.replace(config, group_size=1), score, 1)


def test_the_answers_to_one_query_may_all_be_too_long_for_a_model():
    config = dataclasses.replace(reward(preference=PreferenceRewardConfig(path="p")), group_size=2)
    score = Sum({"preference": (1.0, lambda *_: scores_of([(None, "x"), (None, "x")]))})(["q"] * 2, ["a"] * 2)
    rewards.refuse_useless(config, score, 1)
    with pytest.raises(ScoringError, match="none of its 2 answers could be scored"):
        rewards.refuse_useless(dataclasses.replace(config, group_size=1), score, 1)


def test_a_function_of_ones_own_is_not_asked_about_nothing():
    scores = OwnFunction(lambda _, answers: [max(map(len, answers))], "mine")([], [])
    assert (scores.values.shape, scores.mask.shape) == ((0,), (0,))


def test_sources_are_what_the_configuration_names():
    with make_reward(reward(), {}) as score:
        assert score(["Add up the digits 407.", "Hello"], ["11", "11"]).values.tolist() == [1.0, 0.0]
    with make_reward(reward(function=HERE), {}) as score:
        assert score(["q", "q"], ["abc", "?"]).mask.tolist() == [True, False]
    checks = ({"kind": "no_commas"}, {"kind": "words", "at_most": 2})
    config = reward(sources={"formats": 2.0, "function": 1.0}, formats=checks, function=HERE)
    with make_reward(config, {}) as score:
        found = score(["q", "q"], ["a b", "a, b, c"])
        assert found.values.tolist() == [5.0, 7.0]
        assert found.means == {"formats": 0.5, "function": 5.0}


def test_every_process_runs_the_model_of_preferences(monkeypatch):
    """It lies over the devices of all of them; what else scores answers does so in the first process."""

    def model(path, **_):
        assert path == "here"
        return lambda _, answers: scores_of((2.0, "scored") for _ in answers)

    monkeypatch.setattr(rewards, "PreferenceModel", model)
    monkeypatch.setattr(multihost, "is_primary", lambda: False)
    config = reward(sources={"preference": 1.5}, preference=PreferenceRewardConfig("here"))
    with make_reward(config, {}) as score:
        assert score(["q"], ["a"]).values.tolist() == [3.0]


def test_references_score_results_and_programs_of_a_file(tmp_path):
    rows = [
        {"question": "1 + 1?", "answer": "So #### 2"},
        {"text": "Square.", "test_list": ["assert square(3) == 9"], "code": ""},
    ]
    if sandbox.problems():
        rows.pop()
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config = dataclasses.replace(data(file), watch=WatchConfig(probes=1, probe_data=str(file)))
    known = KnownQueries.read(config)
    assert len(known.queries) == len(known.references) == len(rows)
    assert known.probes == known.queries[:1]
    answers = [("\\boxed{2}", "\\boxed{3}"), ("def square(x):\n    return x * x", "def square(x):\n    return 9.5")]
    with make_reward(config, known.references) as score:
        right, wrong = ([pair[at] for pair in answers[: len(rows)]] for at in (0, 1))
        assert score(known.queries, right).values.tolist() == [1.0] * len(rows)
        assert score(known.queries, wrong).values.tolist() == [0.0] * len(rows)
        unknown = score(["another"], ["2"])
        assert not unknown.mask.any()
        assert unknown.counts == {"references/no_reference": 1}


def test_a_stop_is_looked_for_while_results_are_compared(monkeypatch):
    def check_stop():
        raise Interrupted(15)

    config = reward(sources={"references": 1.0})
    with make_reward(config, {"1 + 1?": "2"}, check_stop) as score:
        with pytest.raises(Interrupted):
            score(["1 + 1?"] * 2, ["2", "3"])
        # Several processes would have to look equally often, and one of them scores.
        monkeypatch.setattr(references.jax, "process_count", lambda: 2)
        monkeypatch.setattr(multihost, "on_all_hosts", lambda work: work())
        monkeypatch.setattr(multihost, "broadcast", lambda value: value)
        assert score(["1 + 1?"] * 2, ["2", "3"]).values.tolist() == [1.0, 0.0]


def test_the_run_hands_its_stop_to_the_reward(monkeypatch):
    given = []

    def make(_, __, check_stop):
        given.append(check_stop)
        return contextlib.nullcontext()

    monkeypatch.setattr(recipe, "make_reward", make)
    monkeypatch.setattr(recipe, "_train", lambda *_: None)
    stop = Stop()
    recipe.run(reward(), SimpleNamespace(finished=Path("/nowhere"), writes=True), stop)
    assert given == [stop.check_stop]


def test_probes_are_of_a_file_or_of_families_where_these_are_a_source(tmp_path):
    file = tmp_path / "probes.txt"
    file.write_text("one\ntwo\nthree\n", encoding="utf-8")
    of_file = WatchConfig(probes=2, probe_data=str(file))
    own = reward(function=HERE)
    assert len(KnownQueries.read(reward()).probes) == 64
    assert KnownQueries.read(own).probes == []
    assert KnownQueries.read(dataclasses.replace(own, watch=of_file)).probes == ["one", "two"]
    assert KnownQueries.read(dataclasses.replace(own, watch=dataclasses.replace(of_file, probes=0))).probes == []


def test_a_file_is_of_lines_unless_its_references_are_a_source(tmp_path):
    file = tmp_path / "queries.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    config = data(file, sources={}, function=HERE)
    known = KnownQueries.read(dataclasses.replace(config, watch=WatchConfig(probes=1, probe_data=str(file))))
    assert (known.queries, known.probes, known.references) == (["one", "two"], ["one"], {})
    empty = tmp_path / "empty.txt"
    empty.write_text("one\n\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"watch\.probe_data=.*empty\.txt"):
        KnownQueries.read(dataclasses.replace(config, watch=WatchConfig(probe_data=str(empty))))
    # Where nothing is measured the file is not looked at.
    unread = dataclasses.replace(config, watch=WatchConfig(probes=0, probe_data=str(empty)))
    assert KnownQueries.read(unread).probes == []


def test_only_the_families_that_count_are_probed_and_earn_something():
    some = reward(families=("add_digits", "count_letter"))
    probes = KnownQueries.read(some).probes
    assert {families.read(query).family for query in probes} == {"add_digits", "count_letter"}
    assert {families.read(query).family for query in KnownQueries.read(reward()).probes} == set(families.FAMILIES)
    queries = ["Add up the digits 407.", "Sort the digits 402 from small to large."]
    with make_reward(some, {}) as score:
        assert score(queries, ["11", "024"]).values.tolist() == [1.0, 0.0]
    with make_reward(reward(), {}) as score:
        assert score(queries, ["11", "024"]).values.tolist() == [1.0, 1.0]


def test_probes_stay_the_same_in_a_run_and_differ_between_seeds():
    first, again, other = (KnownQueries.read(dataclasses.replace(reward(), seed=seed)).probes for seed in (1, 1, 2))
    assert first == again != other


# ---- what cannot be used ---------------------------------------------------------------------------------------------

FOLDER = PreferenceRewardConfig(path="/nowhere")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (reward(sources={"judge": 1.0}), "'judge' is none of families, function, preference, formats, references"),
        (reward(sources={"families": 0.0}), r"reward.sources=.*must be above 0"),
        (reward(sources={"preference": 1.0}), "reward.preference.path is empty: must be given"),
        (reward(sources={"formats": 1.0}), "reward.formats is empty"),
        (reward(sources={"function": 1.0}), "reward.function is empty"),
        (reward(preference=FOLDER), "reward.preference.path: would be ignored; add 'preference'"),
        (reward(formats=({"kind": "json"},)), "reward.formats: would be ignored; add 'formats'"),
        (reward(sources={"families": 1.0}, function=HERE), "reward.function: would be ignored"),
        (reward(function=HERE, families=("add_digits",)), "reward.families: would be ignored"),
        (reward(sources={"references": 1.0}), "a query that the Challenger invents has no reference answer"),
        (
            reward(sources={"preference": 1.0}, preference=dataclasses.replace(FOLDER, row_length=512)),
            "reward.preference.row_length=512: must be at least rollout.max_length=1024",
        ),
    ],
)
def test_contradictions_are_named_before_anything_runs(config, message):
    with pytest.raises(AssertionError, match=message):
        raise AssertionError("\n".join(validation.problems(config)))


def test_missing_files_and_models_are_named():
    config = dataclasses.replace(
        reward(sources={"preference": 1.0}, preference=FOLDER),
        watch=WatchConfig(probe_data="/nowhere.txt"),
        reference="/gone",
    )
    assert validation.problems(config) == []
    found = validation.path_problems(config)
    assert any("watch.probe_data='/nowhere.txt': there is no such file" in one for one in found)
    assert any("reward.preference.path='/nowhere': no such folder" in one for one in found)
    assert any("reference='/gone': no such folder" in one for one in found)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"question": "1?", "answer": "1"}], "no result behind ####"),
        ([{"text": "a", "test_list": ["assert f( == 1"], "code": ""}], "the tests cannot be parsed as Python"),
        ([{"question": "1?", "answer": "#### 1"}, {"question": "1?", "answer": "#### 2"}], "asks what an earlier row"),
        ([{"query": "1?"}], "expected those of one layout"),
    ],
)
def test_questions_that_cannot_be_used_are_named_by_file_and_row(tmp_path, rows, message):
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"data: .*questions.jsonl.*{message}"):
        KnownQueries.read(data(file))


def test_a_probe_with_another_result_is_named(tmp_path):
    for name, result in (("data", 1), ("probes", 2)):
        row = {"question": "1?", "answer": f"#### {result}"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row), encoding="utf-8")
    config = data(tmp_path / "data.jsonl")
    config = dataclasses.replace(config, watch=WatchConfig(probe_data=str(tmp_path / "probes.jsonl")))
    with pytest.raises(ConfigError, match=r"watch.probe_data=.*probes.jsonl.*with another result"):
        KnownQueries.read(config)


def test_a_model_of_preferences_with_two_labels_and_a_check_of_no_kind_are_refused(tmp_path):
    LlamaConfig(architectures=["LlamaForSequenceClassification"], num_labels=2).save_pretrained(tmp_path)
    two = reward(sources={"preference": 1.0}, preference=PreferenceRewardConfig(path=str(tmp_path)))
    with pytest.raises(ConfigError, match="gives 2 scores; a model of preferences has one label"):
        make_reward(two, {})
    checks = ({"kind": "json"}, {"kind": "words of praise"})
    with pytest.raises(ConfigError, match=r"reward.formats, check 2: a format check of kind 'words of praise'"):
        make_reward(reward(sources={"formats": 1.0}, formats=checks), {})

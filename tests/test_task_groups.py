"""Groups of tasks, the list of attempts of a collection, and hints on what most attempts ended by."""

import collections
import dataclasses

import pytest
from collect_runs import CONFIG

from dfc.config import Collect, CollectConfig
from dfc.errors import ConfigError, DfcError
from dfc.games.paprika.twenty_questions import TwentyQuestions
from dfc.records import attempts, task_groups
from dfc.records.attempts import CollectionStatistics, TaskSample, TrajectorySummary
from dfc.stages import collect


@pytest.mark.parametrize(("arms", "label"), [("difficulty", "difficulty"), ("category", "group")])
def test_arms_are_the_labels_of_scenarios_within_each_game(arms, label):
    found = task_groups.task_groups({"twenty_questions": {}, "wordle": {}}, CollectConfig(tasks=0), arms)
    oracle = collections.defaultdict(set)
    for task, scenario in enumerate(TwentyQuestions.scenarios("train")):
        oracle[f"twenty_questions {getattr(scenario, label)}"].add(("twenty_questions", task))
    oracle["wordle"] = {("wordle", task) for task in range(1515)}
    assert {name: set(tasks) for name, tasks in found.items()} == oracle
    assert sum(map(len, found.values())) == 1055 + 1515
    if arms == "difficulty":
        assert list(found) == [*(f"twenty_questions {level}" for level in ("easy", "medium", "hard")), "wordle"]


def test_arms_are_games_of_the_first_tasks_where_that_is_configured():
    games = {"twenty_questions": {}, "Nim-v0": {}}
    assert task_groups.task_groups(games, CollectConfig(tasks=2), "game") == {
        "twenty_questions": [("twenty_questions", 0), ("twenty_questions", 1)],
        "Nim-v0": [("Nim-v0", 0), ("Nim-v0", 1)],
    }


def arms_of(joined=None):
    games = {"twenty_questions": {}, "wordle": {}, "mastermind": {}}
    return task_groups.task_groups(games, CollectConfig(tasks=4), "game", joined)


def test_joined_arms_are_one_with_all_their_tasks():
    apart = arms_of()
    assert arms_of({"codes": ("mastermind", "wordle")}) == {
        "twenty_questions": apart["twenty_questions"],
        "codes": apart["wordle"] + apart["mastermind"],
    }
    assert list(arms_of({"wordle": ("wordle", "mastermind")})) == ["twenty_questions", "wordle"]


@pytest.mark.parametrize(
    "joined",
    [
        {"codes": ()},
        {"": ("wordle",)},
        {"codes": ("wordle", "chess")},
        {"a": ("wordle",), "b": ("wordle",)},
        {"twenty_questions": ("wordle",)},
    ],
)
def test_joined_arms_that_are_none_are_refused(joined):
    with pytest.raises(ConfigError, match=r"1 problem(.|\n)*join_groups: "):
        arms_of(joined)


def test_the_split_is_the_collections_and_has_its_size():
    config = Collect(games={"mastermind": {}}, split="test", tasks=0)
    assert task_groups.tasks(config.games, config) == [("mastermind", task) for task in range(500)]
    assert task_groups.playing(config).games == {"mastermind": {"split": "test"}}


def test_every_part_of_the_list_has_its_share_of_every_game():
    found = task_groups.tasks({"wordle": {}, "bandit": {}, "customer_service": {}}, CollectConfig(tasks=0))
    sizes = collections.Counter(game for game, _ in found)
    assert sizes == {"wordle": 1515, "bandit": 81, "customer_service": 120}
    so_far = collections.Counter()
    for number, (game, _) in enumerate(found, start=1):
        so_far[game] += 1
        for name, size in sizes.items():
            assert abs(so_far[name] - number * size / len(found)) <= 2


def test_samples_of_single_games_differ_and_stand_together():
    settings = CollectConfig(tasks=2, samples=3, samples_of={"mastermind": 5})
    found = attempts.planned({"mastermind": {}, "bandit": {}}, settings)
    assert collections.Counter(task_sample.game for task_sample in found) == {"mastermind": 10, "bandit": 6}
    runs = [
        task_sample[:2]
        for task_sample, before in zip(found, [None, *found], strict=False)
        if task_sample[:2] != (before or ())[:2]
    ]
    assert len(runs) == len(set(runs)) == 4


def test_a_limit_that_cuts_many_trajectories_is_named():
    some = [
        TrajectorySummary(
            TaskSample("wordle", task, 0),
            1,
            6,
            success=False,
            failure="truncated" if task < 3 else None,
            generated_tokens=1,
        )
        for task in range(20)
    ]
    (said,) = collect.hints(CollectionStatistics(some).rows(), CONFIG.rollout)
    assert said.startswith("wordle: 15% were cut by a limit outside the rules (rollout.max_length=")
    assert collect.hints(CollectionStatistics(some[2:]).rows(), CONFIG.rollout) == []


def test_a_game_of_which_few_were_played_is_given_time():
    lost = [
        TrajectorySummary(TaskSample("wordle", task, 0), 1, 6, success=False, failure="discarded", generated_tokens=1)
        for task in range(19)
    ]
    planned = {"wordle": 100}
    CollectionStatistics(lost).refuse_inconclusive(planned)
    said = dataclasses.replace(lost[0], task_sample=TaskSample("wordle", 50, 0), failure="malformed")
    more = dataclasses.replace(lost[0], task_sample=TaskSample("wordle", 51, 0))
    CollectionStatistics([*lost, said, more]).refuse_inconclusive(planned)
    for known in (planned, None):
        with pytest.raises(DfcError, match="all 20 trajectories are inconclusive"):
            CollectionStatistics([*lost, more]).refuse_inconclusive(known)
    with pytest.raises(DfcError, match="all 3 trajectories are inconclusive"):
        CollectionStatistics(lost[:3]).refuse_inconclusive({"wordle": 3})

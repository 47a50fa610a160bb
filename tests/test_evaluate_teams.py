"""Games for a team in the recipe evaluate_tasks: who sits where, and what is refused."""

import dataclasses
import json

import pytest
import recipe_runs
from recipe_runs import lines

from dfc import validation
from dfc.config import EvaluateTasks, RolloutConfig
from dfc.games.replay import replay

TEAM = "clem_taboo"
CONFIG = EvaluateTasks(
    name="t",
    games={TEAM: {}},
    policies=("simple", "strong"),
    rollout=RolloutConfig(slots=2, max_length=1024, max_reply_length=6),
    tasks=3,
    trajectories=1,
)


def run(folder, **changes):
    config = dataclasses.replace(CONFIG, **changes)
    assert validation.problems(config) == []
    return lines(recipe_runs.run(folder, config), "episodes")


def speakers(record, seat):
    return {reply[2] for reply in record["replies"] if reply[0] == seat}


def test_a_policy_takes_all_seats_of_a_team(tmp_path):
    records = run(tmp_path)
    assert [(r["policy"], r["opponent"], r["seat"]) for r in records] == [
        (name, name, 0) for name in ("simple", "strong") for _ in range(3)
    ]
    for record in records:
        assert record["team"]
        assert len(set(record["outcomes"])) == 1
        assert (speakers(record, 0), speakers(record, 1)) == ({"policy"}, {"opponent"})
        list(replay(record))
    data = json.loads((tmp_path / "results.json").read_text())["dialogues"]
    assert data["arms"][1]["overall"]["clemscore"][0] == 100.0
    assert data["arms"][1]["games"][TEAM]["instances"] == 3


@pytest.mark.parametrize("policy", ["strong", "tiny_player"])
def test_beside_a_partner_a_policy_takes_its_role(tmp_path, policy):
    (record, *others) = run(tmp_path, policies=(policy,), opponent="simple", learner_roles={TEAM: "guesser"})
    assert len(others) == 2
    assert (record["opponent"], record["seat"]) == ("simple", 1)
    assert (speakers(record, 0), speakers(record, 1)) == ({"opponent"}, {"policy"})
    if policy == "tiny_player":  # which knows nothing of such games
        assert (record["forfeited_by"], record["outcomes"]) == (1, ["invalid", "invalid"])


def test_a_model_plays_with_itself(tmp_path):
    records = run(tmp_path, policies=("tiny_player",))
    assert {(r["opponent"], r["seat"], r["forfeited_by"]) for r in records} == {("tiny_player", 0, 0)}
    assert "No action could be read" in records[0]["abort_reason"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"opponent": "initial"}, "opponent='initial': models play with models, and simple, strong plays without"),
        ({"opponent": "tiny_player"}, "models play with models"),
        ({"opponent": "http://host/v1"}, "opponent: 'http://host/v1': name the model after a #"),
        ({"learner_roles": {TEAM: "judge"}}, "there is no role 'judge' of a player; its roles are describer, guesser"),
        ({"learner_roles": {"wordle": "x"}}, "learner_roles: 'wordle' must be among this run's games"),
        ({"games": {"TicTacToe-v0": {}}}, "is for two players against each other and has no tasks"),
    ],
)
def test_what_cannot_be_seated_is_said_before_any_game(changes, message):
    found = validation.problems(dataclasses.replace(CONFIG, **changes))
    assert any(message in problem for problem in found), found

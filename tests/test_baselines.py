"""Every method, opponent and way to fuse as a whole run, as small as it can be; a stop changes nothing."""

import json
import signal

import pytest
from chat_server import says, serving
from recipe_runs import StopsAfter, lines, untimed
from rl_runs import GAMES, configured, plain, run
from self_play_runs import MODEL, make_model

from dfc.config import (
    EndpointConfig,
    FusionConfig,
    GrpoConfig,
    OpponentPoolConfig,
)
from dfc.runs.stop_signals import Interrupted, Stop


@pytest.fixture(scope="module", autouse=True)
def model():
    make_model()


def stages(path):
    return list(dict.fromkeys(line["stage"] for line in lines(path, "metrics")))


@pytest.mark.parametrize(
    ("config", "expected", "policies"),
    [
        (plain(), ["all games"], ["."]),
        (configured(method="naive_single"), ["only TicTacToe-v0", "only GuessTheNumber-v0"], list(GAMES)),
        (configured(method="imitate_wins"), ["imitate wins"], ["."]),
    ],
    ids=["grpo", "naive_single", "imitate_wins"],
)
def test_a_baseline_runs_to_its_end(tmp_path, config, expected, policies):
    path = run(tmp_path, config)
    assert stages(path) == expected
    for policy in policies:
        assert (path / "policy" / policy / "config.json").exists()
        assert (path / "policy" / policy / "model.safetensors").exists()
    final = {(row["game"], row["policy"]) for row in lines(path, "evaluations") if row["stage"] == "final"}
    assert final == {(game, policy) for game in GAMES for policy in ("initial", "final")}
    assert (path / "finished.json").exists()
    compares = expected != ["imitate wins"]  # the others have a KL coefficient, which is nothing without a reference
    assert all(("kl" in line["metrics"]) == compares for line in lines(path, "metrics"))


@pytest.mark.parametrize(
    "settings",
    [
        {"fusion": FusionConfig(at_once=True)},
        {"fusion": FusionConfig(method="task_arithmetic", scale=0.7)},
        {"fusion": FusionConfig(method="ties", density=0.5)},
    ],
    ids=["at once", "task arithmetic", "ties"],
)
def test_policies_fuse_in_other_ways(tmp_path, settings):
    path = run(tmp_path, configured(**settings))
    assert stages(path) == ["divide g1", "divide g2", "conquer g1+g2"]
    assert any(row["stage"] == "fuse g1+g2" for row in lines(path, "evaluations"))


@pytest.mark.parametrize("opponent", ["simple", "itself"])
def test_opponents_are_named_in_the_records(tmp_path, opponent):
    path = run(tmp_path, plain(iterations=1, opponent=opponent))
    trained = [record for record in lines(path, "episodes") if record["kind"] == "train"]
    assert {record["opponent"] for record in trained} == {opponent, "none"}


def test_a_model_of_the_same_kind_is_an_opponent(tmp_path):
    path = run(tmp_path / "one", plain(iterations=1, opponent=str(MODEL)))
    again = run(tmp_path / "two", plain(iterations=1, opponent=str(path)))  # the run: its policy
    for folder, opponent in ((path, str(MODEL)), (again, str(path))):
        trained = [record for record in lines(folder, "episodes") if record["kind"] == "train"]
        assert {record["opponent"] for record in trained} == {opponent, "none"}
        assert not any("failure" in record for record in trained)


def test_what_an_endpoint_costs_is_counted_over_all_starts(tmp_path, capsys):
    with serving(usual=says("[4]")) as server:
        entry = EndpointConfig(input_price=1, output_price=2)
        config = plain(opponent=f"{server.url}#m", endpoints={"opponent": entry})
        with pytest.raises(Interrupted):
            run(tmp_path, config, StopsAfter(2))
        first = len(server.requests)
        assert first > 0
        assert json.loads((tmp_path / "costs.json").read_text())["requests/opponent"] == first
        run(tmp_path, config)
        requests = len(server.requests)
    total = json.loads((tmp_path / "costs.json").read_text())
    assert (total["requests/opponent"], total["failures/opponent"]) == (requests, 0)
    assert total["money/opponent"] == pytest.approx(requests * 16e-6)
    metrics = [line["metrics"] for line in lines(tmp_path, "metrics")]
    assert sum(line["requests/opponent"] for line in metrics) == requests
    said = capsys.readouterr().out
    assert f"cost so far: {first} requests" in said
    assert f"\ncost: {requests} requests, money {requests * 16e-6:.6g}\n" in said


def test_what_was_asked_before_a_stop_in_the_middle_of_games_is_counted(tmp_path):
    class StopsOnceAsked(Stop):
        def check_stop(self):
            if server.requests:
                self._noted = signal.SIGTERM
            super().check_stop()

    with serving(usual=says("[4]")) as server:
        config = plain(opponent=f"{server.url}#m", games={"TicTacToe-v0": {}})
        with pytest.raises(Interrupted):
            run(tmp_path, config, StopsOnceAsked())
        asked = len(server.requests)
    assert asked > 0
    assert json.loads((tmp_path / "costs.json").read_text())["requests/opponent"] == asked


def test_both_seats_are_trained_on(tmp_path):
    path = run(tmp_path, plain(opponent="itself", train_both_seats=True))
    trained = [r for r in lines(path, "episodes") if r["kind"] == "train" and r["iteration"] == 1]
    seats = [record["seat"] for record in trained if record["game"] == "TicTacToe-v0"]
    assert seats.count(0) == seats.count(1) > 0


def test_estimators_are_settings(tmp_path):
    settings = GrpoConfig(ratio="sequence", baseline="role", clip_ratio_high=0.3, updates_per_iteration=2)
    path = run(tmp_path, plain(grpo=settings))
    assert [line["step"] for line in lines(path, "metrics")] == [1, 2]


POOL = {"opponent": "pool", "pool": OpponentPoolConfig(every=1, choice="uniform")}


@pytest.mark.parametrize("config", [plain(**POOL), configured(method="naive_single", **POOL)], ids=lambda c: c.recipe)
def test_a_stop_changes_nothing(tmp_path, config, capsys):
    whole = run(tmp_path / "whole", config)
    for looks in (1, 3):
        with pytest.raises(Interrupted):
            run(tmp_path / "parts", config, StopsAfter(looks))
    capsys.readouterr()
    parts = run(tmp_path / "parts", config)
    assert "resuming after step 2;" in capsys.readouterr().out  # also where matches of a stage were stopped
    assert untimed(parts) == untimed(whole)
    assert lines(parts, "episodes") == lines(whole, "episodes")
    assert lines(parts, "evaluations") == lines(whole, "evaluations")
    opponents = {record["opponent"] for record in lines(whole, "episodes") if record["kind"] == "train"}
    assert opponents & {"pool initial", "pool iteration 1"}

"""Collections whose world and judge are a chat server: money, failed games, outages, answers of no use."""

import collections
import dataclasses
import json

import pytest
from chat_server import completion, fails, serving
from collect_runs import CONFIG, ROLLOUT, rows, run
from recipe_runs import lines

from dfc.config import Collect, EndpointConfig
from dfc.errors import DfcError

ASKING = Collect(
    name="c",
    seed=5,
    games={"twenty_questions": {"max_turns": 2}},
    mesh=CONFIG.mesh,
    rollout=dataclasses.replace(ROLLOUT, max_length=448, max_reply_length=8, prefill_buckets=(64,), slots=4),
    tasks=2,
    samples=2,
    samples_of={},
)


def with_simulators(url, **settings):
    endpoint = EndpointConfig(input_price=1, output_price=2, retries=0, **settings)
    return dataclasses.replace(ASKING, simulators=f"{url}#m", endpoints={"simulators": endpoint})


def world_and_judge(handler, body):
    """Says no to every question and finds no guess right."""
    judged = "referee" in body["messages"][0]["content"]
    handler.send(200, json.dumps(completion("<NOTVALID>" if judged else "No")).encode())


def test_a_chat_server_is_world_and_judge_and_its_money_is_counted(tmp_path, capsys):
    with serving(usual=world_and_judge) as server:
        path = run(tmp_path / "run", dataclasses.replace(with_simulators(server.url), episodes_per_chunk=3))
    assert len(lines(path)) == 2
    found = rows(path)
    assert found.keys() == {("twenty_questions", task, sample) for task in range(2) for sample in range(2)}
    assert all(row.outcome == "loss" and row.failure is None and row.turns == 2 for row in found.values())
    assert {reply[1] for row in found.values() for reply in row.replies if reply[0] == 1} == {"No"}
    # Every turn is a question to the world and one to the judge; each request has 10 ids in and 3 out.
    assert len(server.requests) == 4 * 2 * 2
    cost = json.loads((path / "collection.json").read_text())["cost"]
    assert cost["requests/simulators"] == 16
    assert (cost["input_tokens/simulators"], cost["output_tokens/simulators"]) == (160, 48)
    assert cost["money/simulators"] == pytest.approx((160 * 1 + 48 * 2) / 1e6)
    assert "money/simulators 0.000256" in capsys.readouterr().out


def test_games_that_failed_are_kept_beside_those_that_did_not(tmp_path):
    with serving(fails(400), usual=world_and_judge) as server:
        found = rows(run(tmp_path / "run", with_simulators(server.url, concurrency=1)))
    labels = collections.Counter(row.failure for row in found.values())
    assert labels == {"failed": 1, None: 3}
    (failed,) = (row for row in found.values() if row.failure is not None)
    assert "400" in failed.failure_reason
    figures = json.loads((tmp_path / "run" / "collection.json").read_text())["games"]["twenty_questions"]
    assert (figures["trajectories"], figures["failures"]["failed"]) == (4, 1)


def test_an_outage_stops_the_run_and_its_games_are_played_again(tmp_path):
    with serving(usual=fails(503)) as server:
        config = with_simulators(server.url)
        games = {"TowerOfHanoi-v0": {"max_turns": 3}, **config.games}
        config = dataclasses.replace(config, games=games)
        with pytest.raises(DfcError, match=r"every game of twenty_questions failed, the first one so: .*503"):
            run(tmp_path / "run", config)
        assert {game for game, _, _ in rows(tmp_path / "run")} == {"TowerOfHanoi-v0"}
        server.usual = world_and_judge
        found = rows(run(tmp_path / "run", config))
    assert len(found) == 8
    assert all(row.failure is None for row in found.values())


def test_simulators_of_no_use_are_reported_after_their_games_were_kept(tmp_path):
    with (
        serving(usual=lambda handler, _: handler.send(200, json.dumps(completion("Perhaps")).encode())) as server,
        pytest.raises(DfcError, match=r"twenty_questions: all 4 trajectories are inconclusive .*\(4 discarded"),
    ):
        run(tmp_path / "run", with_simulators(server.url))
    assert [row.failure for row in rows(tmp_path / "run").values()] == ["discarded"] * 4
    assert not (tmp_path / "run" / "finished.json").exists()

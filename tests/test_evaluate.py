"""Tournaments from end to end: who plays whom on which seeds, what is counted, and what survives a stop."""

import collections
import dataclasses
import json
import re

import jax
import pytest
import recipe_runs
from chat_server import completion, fails, serving
from recipe_runs import lines
from tournaments import CONFIG, GAMES, ROLLOUT, twin_of

from dfc.config import DivideFuseConquer, EndpointConfig, SamplingConfig
from dfc.errors import RunFolderError
from dfc.evaluation import matches, pairing
from dfc.evaluation.statistics import wilson_interval
from dfc.evaluation.tournament_players import TournamentPlayers
from dfc.games.replay import replay
from dfc.models import huggingface
from dfc.players.remote import PlayerError
from dfc.runs.stop_signals import Interrupted
from dfc.training import game_plan


class StopAfter:
    """Asks to stop once it was looked at so often between calls of the engine."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def requested(self):
        return 15 if self.looks < 0 else None

    def check(self):
        if self.requested:
            raise Interrupted(15)

    def check_stop(self):
        self.looks -= 1
        self.check()


def run(config, path, stop=None):
    return json.loads((recipe_runs.run(path, config, stop) / "results.json").read_text())


def records(path):
    return lines(path, "episodes")


def plays_a_legal_cell(handler, body):
    """A player of TicTacToe that remembers which cells were named in the chat; says 7 to anything else."""
    text = " ".join(m["content"] for m in body["messages"][1:])
    taken = set(re.findall(r"\[(\d)\]", text))
    cell = next((c for c in "402681357" if c not in taken), "0")
    handler.send(200, json.dumps(completion(f"I take [{cell}]")).encode())


# ---- deals ---------------------------------------------------------------------------------------------------------


def test_no_deal_is_one_of_a_training_run_whatever_its_seed():
    method = DivideFuseConquer(games=GAMES, groups_per_game=20, group_size=2)
    fresh, trained = set(), set()
    for seed in range(4):
        for meeting in pairing.meetings(["a", "b"], GAMES):
            for episode_spec in pairing.episode_specs(meeting, 50, seed):
                fresh |= {episode_spec.game_seed, episode_spec.seed}
        for purpose in (
            "grouping",
            "begin divide g1",
            "accept divide g1 0",
            "stage base",
            "final initial",
            "tournament",
        ):
            for episode_spec in matches.match_specs(GAMES, 50, seed, purpose):
                trained |= {episode_spec.game_seed, episode_spec.seed}
        for iteration in range(3):
            seeds = dict.fromkeys(GAMES, 20)
            training = dataclasses.replace(method, seed=seed)
            for episode_spec in game_plan.rollout_specs(seeds, training, "divide g1", iteration):
                trained |= {episode_spec.game_seed, episode_spec.seed}
    assert len(fresh) == 4 * 2 * 50 + 4 * (50 * 2 + 50)  # a deal and its draws: of each id, and of each seat
    assert len(trained) > 2000
    assert not fresh & trained


# ---- from end to end -----------------------------------------------------------------------------------------------


def test_models_programs_and_endpoints_play_each_other_and_every_game_is_on_record(tmp_path):
    with serving(usual=plays_a_legal_cell) as server:
        config = dataclasses.replace(
            CONFIG,
            policies=("tiny_player", "strong", f"api={server.url}#m", f"twin={server.url}#n"),
            rollout=dataclasses.replace(ROLLOUT, prompt="think", max_length=384),
            anchor="strong",
            endpoints={"api": EndpointConfig(input_price=1, output_price=10, temperature=1.0)},
        )
        results = run(config, tmp_path / "run")
        asked = len(server.requests)
        assert {body["messages"][0]["role"] for body in server.bodies} == {"system"}  # also where no runner plays
        played = records(tmp_path / "run")
        again = run(config, tmp_path / "run")
        assert len(server.requests) == asked
    assert len(played) == 4 * 2 + 6 * 2 * 2  # alone on two deals; pairs on two deals in two seats
    assert again == results
    assert records(tmp_path / "run") == played
    for line in played:
        list(replay(line))  # raises if the rules contradict it
        assert "failure" not in line
    # The same figures counted from the records by hand.
    wins = collections.Counter()
    for line in played:
        for seat, name in enumerate(line["players"]):
            other = None if len(line["players"]) == 1 else line["players"][1 - seat]
            wins[name, other, line["game"], seat] += line["outcomes"][seat] == "win"
    assert {(g["policy"], g["opponent"], g["game"], g["seat"]): g["win"] for g in results["games"]} == dict(wins)
    for cell in results["games"]:
        assert cell["win_rate"] == pytest.approx(list(wilson_interval(cell["win"], cell["games"])))
        assert cell["win"] + cell["draw"] + cell["loss_by_rule"] + cell["lost_by_forfeit"] + cell["truncated"] == 2
    ratings = {r["policy"]: r["elo"][0] for r in results["ratings"]}
    assert ratings["strong"] == 0 > max(ratings["tiny_player"], ratings["api"])
    costs = results["costs"]
    assert costs["api"]["requests"] + costs["twin"]["requests"] == asked
    assert costs["api"]["money"] == pytest.approx(costs["api"]["requests"] * (10 * 1 + 3 * 10) / 1e6)
    assert costs["tiny_player"]["generated_tokens"] > costs["tiny_player"]["replies"] / 2
    assert costs["strong"]["games"] == 2 + 3 * 4
    tables = (tmp_path / "run" / "tables.md").read_text()
    assert "Table 2, two-players" in tables
    assert "paper: Qwen2.5 (DFC-MSRL) v.s. Qwen2.5" in tables
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<table") == tables.count("\n### ")


def test_a_tournament_that_was_stopped_and_killed_ends_with_the_same_games(tmp_path):
    whole = run(CONFIG, tmp_path / "whole")
    path = tmp_path / "cut"
    with pytest.raises(Interrupted):
        run(CONFIG, path, StopAfter(15))
    first = records(path)
    assert 0 < len(first) < len(records(tmp_path / "whole"))
    with (path / "episodes.jsonl").open("ab") as file:
        file.write(b'{"game": "TicTacToe-v0", "opti')  # what a kill leaves
    results = run(CONFIG, path)
    finished = records(path)
    assert finished[: len(first)] == first  # none of them was played again
    assert sorted(map(str, finished)) == sorted(map(str, records(tmp_path / "whole")))
    assert results["games"] == whole["games"]
    assert results["ratings"] == whole["ratings"]
    for name in ("tiny_player", "random_legal"):
        assert results["costs"][name]["games"] == whole["costs"][name]["games"]
    assert results["costs"]["tiny_player"]["generated_tokens"] == whole["costs"]["tiny_player"]["generated_tokens"]


def test_games_that_are_not_mixed_are_played_one_after_another_and_come_out_alike(tmp_path, monkeypatch):
    played, play = [], TournamentPlayers.play

    def noted(self, meeting, specs, check_stop=None):
        played.append({spec.game for spec in specs})
        return play(self, meeting, specs, check_stop)

    monkeypatch.setattr(TournamentPlayers, "play", noted)
    games = {"TowerOfHanoi-v0": {"max_turns": 3}, "GuessTheNumber-v0": {"max_turns": 4}}
    config = dataclasses.replace(CONFIG, games=games, policies=("tiny_player",))
    run(config, tmp_path / "mixed")
    assert played == [set(games)]
    played.clear()
    run(dataclasses.replace(config, rollout=dataclasses.replace(ROLLOUT, mix_games=False)), tmp_path / "apart")
    assert played == [{game} for game in games]
    assert records(tmp_path / "apart") == records(tmp_path / "mixed")


def test_an_endpoint_that_is_down_stops_the_tournament_and_its_games_are_played_again(tmp_path):
    with serving(usual=fails(401)) as server:
        config = dataclasses.replace(CONFIG, policies=("random_legal", f"api={server.url}#m"))
        with pytest.raises(PlayerError, match=r"api alone: all of the last 2 games failed, the first one so: .*401"):
            run(config, tmp_path / "run")
        failed = [r for r in records(tmp_path / "run") if "failure" in r]
        assert [r["players"] for r in failed] == [["api"], ["api"]]
        server.usual = plays_a_legal_cell
        results = run(config, tmp_path / "run")
    assert sum(cell["failed"] for cell in results["games"]) == 0
    assert sum(cell["games"] for cell in results["games"] if cell["policy"] == "api") == 2 + 4


def test_two_kinds_of_models_play_as_they_would_in_one_engine(tmp_path):
    """Greedy replies depend on the game alone, so which engine answers must not matter."""
    rollout = dataclasses.replace(ROLLOUT, legal_only=True)
    games = {"TicTacToe-v0": {}, "LiarsDice-v0": {"num_dice": 2}}
    config = dataclasses.replace(CONFIG, rollout=rollout, sampling=SamplingConfig(temperature=0.0), games=games)
    found = {}
    for name, differs in (("one", False), ("two", True)):
        other = twin_of(tmp_path / name / "other", tokenizer_differs=differs)
        config = dataclasses.replace(config, policies=("tiny_player", f"other={other}"))
        with TournamentPlayers(config) as contestants:
            (meeting,) = pairing.meetings(["tiny_player", "other"], games)
            assert contestants.slow(meeting) == differs
        results = run(config, tmp_path / name / "run")
        found[name] = [(r["players"], r["replies"], r["outcomes"]) for r in records(tmp_path / name / "run")]
        assert results["costs"]["other"]["generated_tokens"] > 0
    assert found["one"] == found["two"]
    assert all("failure" not in r for r in records(tmp_path / "two" / "run"))


def test_a_model_that_cannot_read_on_is_truncated_whichever_engine_it_has(tmp_path):
    other = twin_of(tmp_path / "other", tokenizer_differs=True)
    rollout = dataclasses.replace(ROLLOUT, max_length=14, legal_only=True)
    config = dataclasses.replace(CONFIG, games={"TicTacToe-v0": {}}, rollout=rollout)
    config = dataclasses.replace(config, policies=("tiny_player", f"other={other}"))
    results = run(config, tmp_path / "run")
    # Every game ends with one side's own overrun and is no result of the other side.
    assert {c["failed"] for c in results["games"]} == {0}
    assert sum(c["lost_by_overrun"] for c in results["games"]) == sum(c["truncated"] for c in results["games"]) == 4


def test_weights_that_changed_are_not_taken_for_those_that_played(tmp_path):
    other = twin_of(tmp_path / "other", tokenizer_differs=False)
    config = dataclasses.replace(CONFIG, policies=("random_legal", f"other={other}"))
    with pytest.raises(Interrupted):
        run(config, tmp_path / "run", StopAfter(15))
    model, params = huggingface.load(other, dtype="float32")
    huggingface.save(other, model, jax.tree.map(lambda x: x * 2, params), copy_from=huggingface.resolve("tiny_player"))
    with pytest.raises(RunFolderError, match="other is not the policy that played"):
        run(config, tmp_path / "run")


def test_an_endpoint_answers_for_the_world_and_is_counted_apart(tmp_path):
    def answers(handler, body):
        assert body["temperature"] == 0
        said = "<NOTVALID>" if "NOTVALID" in body["messages"][-1]["content"] else "No"
        handler.send(200, json.dumps(completion(said)).encode())

    with serving(usual=answers) as server:
        config = dataclasses.replace(
            CONFIG,
            games={"twenty_questions": {}},
            policies=("random_legal",),
            simulators=f"{server.url}#m",
        )
        results = run(config, tmp_path / "run")
        asked = len(server.requests)
    assert asked > 0
    assert results["costs"]["simulators"]["requests"] == asked
    assert {speaker for r in records(tmp_path / "run") for _, _, speaker in r["replies"]} == {"policy", "simulator"}


def test_a_model_that_plays_simulators_keeps_no_slot_after_its_games():
    games = {"twenty_questions": {"max_turns": 1}}
    rollout = dataclasses.replace(ROLLOUT, slots=1, max_length=1024, prefill_buckets=(64,))
    config = dataclasses.replace(
        CONFIG, games=games, policies=("random_legal",), simulators="tiny_player", rollout=rollout
    )
    (meeting,) = pairing.meetings(["random_legal"], games)
    with TournamentPlayers(config) as contestants:
        ((_, episode),) = contestants.play(meeting, pairing.episode_specs(meeting, 1, 0))
        (engine,) = contestants._engine_groups["simulators"].engines
        assert engine.free == 8  # of two slots, one of each device
    assert {reply.speaker for reply in episode.replies} == {"policy", "simulator"}

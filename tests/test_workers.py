"""How games are dealt to workers and mixed changes neither the episodes nor their order."""

import dataclasses
import json
from unittest import mock

import jax
import pytest
from safetensors.numpy import load_file, save_file

from dfc.config import (
    EndpointConfig,
    Grpo,
    MeshConfig,
    ModelConfig,
    OpponentReplyConfig,
    PlayingRunConfig,
    RolloutConfig,
    SamplingConfig,
)
from dfc.errors import ConfigError
from dfc.evaluation.matches import match_specs
from dfc.inference.sampling import Filters
from dfc.models import huggingface
from dfc.rollout.host import ModelHost, PolicyWeights
from dfc.rollout.workers import RolloutWorkers

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {}, "Nim-v0": {}}
ROLLOUT = RolloutConfig(slots=4, max_length=96, max_reply_length=4, stop=("]",), mix_games=False)


def workers_of(rollout=ROLLOUT, **given):
    return RolloutWorkers(PlayingRunConfig(games=GAMES, rollout=rollout, **given), sampling=SamplingConfig())


def played(rollout, opponent):
    workers = workers_of(rollout)
    specs = match_specs(GAMES, 6, 0, "table")
    episodes = workers.play(specs, PolicyWeights(workers.initial_params), opponent)
    assert [(e.game, e.game_seed, e.seat) for e in episodes] == [(j.game, j.game_seed, j.seat) for j in specs]
    return [(e.replies, e.outcomes, e.sample.token_ids.tolist()) for e in episodes]


@pytest.mark.parametrize("opponent", ["initial", "random_legal"])
def test_workers_and_mixing_do_not_change_an_episode(opponent):
    alone = played(ROLLOUT, opponent)
    assert played(dataclasses.replace(ROLLOUT, workers=3, slots=2), opponent) == alone
    assert played(dataclasses.replace(ROLLOUT, mix_games=True, workers=2), opponent) == alone


def test_the_opponents_filters_are_in_the_programs_from_the_first_call():
    reply = OpponentReplyConfig(sampling=SamplingConfig(top_k=3))
    for opponent_reply, filters in ((reply, Filters(top_k=True)), (OpponentReplyConfig(), Filters())):
        config = Grpo(games=GAMES, rollout=ROLLOUT, opponent_reply=opponent_reply)
        (engine,) = RolloutWorkers(config, sampling=config.sampling).engines
        assert engine._filters == filters


def test_playing_itself_from_the_initial_weights_is_playing_the_initial_policy():
    assert played(ROLLOUT, "itself") == played(ROLLOUT, "initial")


def test_a_key_that_is_missing_shows_before_the_first_game(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    workers = workers_of(endpoints={"opponent": EndpointConfig(key_variable="NO_SUCH_KEY")})
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        workers.seat("http://127.0.0.1:1/v1#m")


def test_an_unknown_opponent_is_named_with_those_there_are():
    workers = workers_of()
    with pytest.raises(
        ValueError,
        match=r"'champion': no such folder .* must be initial, itself, random_legal, si",
    ):
        workers.play([], PolicyWeights(workers.initial_params), "champion")


def copied(folder, **changes):
    """A copy of the bundled model, with other values in its config.json."""
    source = huggingface.resolve("tiny_player")
    folder.mkdir()
    for file in source.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stored | changes))
    return folder


def test_a_model_of_the_same_kind_is_an_opponent_with_its_own_weights(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text('{"recipe": "divide_fuse_conquer", "model": {"path": "tiny_player"}}')
    copied(run / "policy")
    initial = played(ROLLOUT, "initial")
    assert played(ROLLOUT, "tiny_player") == initial
    assert played(ROLLOUT, str(run)) == initial  # a run is its policy
    weights = load_file(run / "policy" / "model.safetensors")
    save_file({name: -tensor for name, tensor in weights.items()}, run / "policy" / "model.safetensors")
    assert played(ROLLOUT, str(run)) != initial


@pytest.mark.parametrize(("changed", "what"), [("config.json", "architecture"), ("tokenizer.json", "tokenizer")])
def test_a_model_of_another_kind_is_refused_before_the_first_game(tmp_path, changed, what):
    folder = copied(tmp_path / "m", **({"rms_norm_eps": 0.5} if changed == "config.json" else {}))
    if changed == "tokenizer.json":
        (folder / changed).write_text((folder / changed).read_text() + "\n")
    with pytest.raises(ConfigError, match=rf"opponent: '.*' \(.*\) has another {what} than model.path='tiny_player'"):
        workers_of().seat(str(folder))


@pytest.mark.parametrize("processes", [1, 2])
def test_hosts_answer_together_and_play_dealt_games_apart(monkeypatch, processes):
    made = mock.Mock()
    monkeypatch.setattr("dfc.rollout.host.Engine", made)
    monkeypatch.setattr(ModelHost, "initial_params", lambda _: {})
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    rollout = dataclasses.replace(ROLLOUT, sharding="training")
    # Queries are asked on every host: with conversations of its own, each would answer all of them.
    ModelHost(ModelConfig(), rollout, slots=4, mesh=MeshConfig()).engine({}, sampling=SamplingConfig())
    workers_of(rollout, mesh=MeshConfig())
    assert [call.kwargs["hosts"] for call in made.call_args_list] == ["same", "same" if processes == 1 else "own"]

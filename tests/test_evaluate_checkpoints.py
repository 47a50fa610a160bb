"""Weights of training runs in a tournament: newest checkpoints, merged adapters, at most two models in memory."""

import dataclasses
import gc
import json
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tournaments import CONFIG, GAMES, twin_of

from dfc.config import AdapterConfig, DivideFuseConquer
from dfc.errors import CheckpointError
from dfc.evaluation import pairing
from dfc.evaluation.tournament_players import TournamentPlayers
from dfc.models import huggingface, sharding
from dfc.models.lora import LoraConfig, initialize_adapters, merge
from dfc.models.transformer import initialize, stack_layers
from dfc.players import player_specs
from dfc.players.player_specs import WeightsSource
from dfc.rollout import trained_weights
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.run_folder import config_json


def checkpointed(path, best, config):
    Checkpointer(path / "checkpoints", keep=1).save(3, {"best": best, "optimizer": {"m": np.zeros(3)}}, {})
    (path / "config.json").write_text(json.dumps(config_json(config)))
    return player_specs.weights_in(str(path))


@pytest.mark.parametrize("stacked", [True, False])
def test_the_newest_checkpoint_of_a_run_plays(tmp_path, stacked):
    mesh = sharding.make_mesh(1, -1, 1)
    model, _ = huggingface.load("tiny_player", dtype="float32")
    params = initialize(model, 5)
    weights = checkpointed(tmp_path, stack_layers(params) if stacked else params, DivideFuseConquer(games=GAMES))
    assert (weights.folder, weights.run) == ("tiny_player", tmp_path)
    loaded = trained_weights.load(weights, model, mesh)
    assert jax.tree.structure(loaded) == jax.tree.structure(params)
    for mine, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    before = trained_weights.fingerprint(weights)
    checkpointed(tmp_path, jax.tree.map(lambda x: x + 1, params), DivideFuseConquer(games=GAMES))
    assert trained_weights.fingerprint(weights) != before


def test_a_run_that_went_on_is_not_taken_for_the_policy_that_began(tmp_path):
    model, _ = huggingface.load("tiny_player", dtype="float32")
    params = initialize(model, 5)
    training = DivideFuseConquer(games=GAMES)
    checkpointed(tmp_path, params, training)
    config = dataclasses.replace(CONFIG, policies=("tiny_player", f"goes_on={tmp_path}"))
    alone = pairing.meetings(["tiny_player", "goes_on"], GAMES)[:2]
    with TournamentPlayers(config) as contestants:
        contestants.fingerprints()
        for meeting in (*alone, *alone):
            contestants.play(meeting, [])
        checkpointed(tmp_path, jax.tree.map(lambda x: x + 1, params), training)
        contestants.play(alone[0], [])
        with pytest.raises(CheckpointError, match=r"'goes_on': .* has a newer checkpoint than the one that played"):
            contestants.play(alone[1], [])


def test_two_models_at_most_are_in_memory(tmp_path, monkeypatch):
    names = ["a", "b", "c", "d"]
    folders = {name: twin_of(tmp_path / name, tokenizer_differs=name == "d") for name in names}
    config = dataclasses.replace(CONFIG, policies=tuple(f"{name}={folders[name]}" for name in names))
    loads, alive, most = trained_weights.load, [], []

    def counted(*words):
        params = loads(*words)
        alive.append(weakref.ref(jax.tree.leaves(params)[0]))
        gc.collect()
        most.append(sum(found() is not None for found in alive))
        return params

    monkeypatch.setattr(trained_weights, "load", counted)
    with TournamentPlayers(config) as contestants:
        for meeting in pairing.meetings(names, {"TicTacToe-v0": {}}):
            contestants.play(meeting, [])
    assert len(most) == 8  # a b, c, d, b c, d, c: what the next meeting needs is not read again
    assert max(most) == 2


def test_adapters_of_a_checkpoint_are_merged(tmp_path):
    mesh = sharding.make_mesh(1, -1, 1)
    model, params = huggingface.load("tiny_player", dtype="float32")
    lora = LoraConfig(rank=2, alpha=8.0)
    adapters = jax.tree.map(lambda x: x + jnp.asarray(0.01, x.dtype), initialize_adapters(model, lora, 1))
    adapter = AdapterConfig(rank=2, alpha=8.0)
    weights = checkpointed(tmp_path, stack_layers(adapters), DivideFuseConquer(games=GAMES, adapter=adapter))
    loaded = trained_weights.load(weights, model, mesh)
    for mine, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(merge(params, adapters, 4.0)), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_a_run_without_a_checkpoint_of_this_recipe_is_refused(tmp_path):
    model, _ = huggingface.load("tiny_player", dtype="float32")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        trained_weights.load(WeightsSource("tiny_player", tmp_path, {}), model, None)
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        trained_weights.fingerprint(WeightsSource("tiny_player", tmp_path, {}))

"""What fit counts of playing without training, against engines and weights of real runs."""

import dataclasses

import jax
import numpy as np
import offline_rows
import pytest
import run_engines
import tiny_models
from fit_workloads import EIGHT, MESH, MODEL, ONCE, PLAYS, ROLLOUT, ROWS, phases, really_local, workload_of

from dfc.config import (
    AdapterConfig,
    Collect,
    Evaluate,
    EvaluateTasks,
    Grpo,
    ModelConfig,
    OpponentPoolConfig,
    SamplingConfig,
)
from dfc.games import registry
from dfc.inference import decoding_mesh
from dfc.inference.resident_weights import ResidentWeights
from dfc.models import lora, sharding
from dfc.models.transformer import Adapters
from dfc.rollout import trained_weights
from dfc.stages import evaluate
from dfc.tools.fit import analytic, holdings, iteration, programs, traced
from dfc.tools.fit.iteration import Stage, lengths_of, stages_of
from dfc.tools.fit.nearest import nearest_fitting

pytestmark = pytest.mark.usefixtures("optax_promotion")


def engine_of(config, model=MODEL):
    """An engine as `RolloutWorkers` makes it."""
    mesh = sharding.make_mesh(1, 4, 2)
    weights = jax.device_put(tiny_models.filled(model, 0), sharding.param_shardings(model, mesh))
    return run_engines.engine_of(config, model, weights, mesh, SamplingConfig()), weights


@pytest.mark.parametrize("simulators", ["script", "initial"])
@pytest.mark.parametrize("games", [("twenty_questions",), ("twenty_questions", "Nim-v0")])
def test_playing_holds_weights_and_a_cache_and_nothing_of_training(simulators, games):
    config = Collect(**PLAYS, games={game: {} for game in games}, simulators=simulators, tasks=2)
    engine, weights = engine_of(config)
    found = phases(config)
    assert set(found) == {"playing"}
    assert found["playing"]["cache"] == really_local(engine._cache)
    assert found["playing"]["model"] == really_local(weights)
    assert not {"optimizer", "gradients", "residuals", "trained weights"} & set(found["playing"])
    roles = len(registry.make("twenty_questions").info.simulators)
    held = (2 if len(games) == 2 else 1) + (roles if simulators == "initial" else 0)
    assert workload_of(config).conversations == held
    mesh, workload = sharding.make_mesh(1, 4, 2), workload_of(config)
    made = programs._playing(workload, programs.EngineWeights(programs.weights_of(workload, mesh), None), mesh, ONCE)
    for program in made:
        assert programs.local_bytes(program.arguments["cache"]) == really_local(engine._cache)
        if program.name == "prefix copy":
            assert "model" not in program.holds  # the weights lie beside it
            continue
        assert programs.local_bytes(program.arguments["weights"]) == really_local(weights)
        # Nothing lies beside: all of the phase is the program's own.
        assert not set(found["playing"]) - set(program.holds)
        assert traced.count(program.trace().jaxpr, program.loop_trips).flops > 0


@pytest.mark.parametrize("sharding_of_playing", ["tensor", "replicated"])
@pytest.mark.parametrize("rank", [0, 4])
def test_weights_split_for_playing_are_counted_as_an_engine_moves_them(sharding_of_playing, rank):
    rollout = dataclasses.replace(ROLLOUT, sharding=sharding_of_playing)
    config = Grpo(**ROWS, rollout=rollout, games={"GuessTheNumber-v0": {}}, adapter=AdapterConfig(rank=rank))
    workload = workload_of(config)
    assert (workload.mesh, workload.decoding.trained) == (MESH, MESH)  # training is split as before
    trained = sharding.make_mesh(*dataclasses.astuple(MESH))
    playing = decoding_mesh.make(trained, workload.decoding.sizes)
    params = jax.device_put(tiny_models.filled(MODEL, 0), sharding.param_shardings(MODEL, trained))
    adapters = None
    if rank:
        own = workload.lora
        tree = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), lora.abstract_adapters(MODEL, own))
        adapters = Adapters(jax.device_put(tree, lora.adapter_shardings(MODEL, own, trained)), own.scale)
    moved = ResidentWeights(MODEL, playing).of(programs.EngineWeights(params, adapters))
    found = phases(config)["playing"]
    assert found[analytic.MOVED] == really_local((moved.params, moved.adapters and moved.adapters.weights))
    assert analytic.MOVED not in phases(config)["gradient"]
    assert f"others' {analytic.MOVED}" not in {name for name, size in found.items() if size}
    two = dataclasses.replace(config, games={"Nim-v0": {}})  # where the initial policy may be met
    other = phases(two)["playing"].get(f"others' {analytic.MOVED}", 0)
    assert other == (0 if rank else found[analytic.MOVED])
    weights = programs.EngineWeights(programs.weights_of(workload, trained), None)
    moving, placed = programs._moving(workload, weights, playing, ONCE)
    assert moving.runs == MODEL.layers
    assert moving.trace().lower().compile() is not None
    for program in programs._playing(workload, placed, playing, ONCE):
        assert programs.local_bytes(program.arguments["cache"]) == found["cache"]
        if program.name != "prefix copy":
            assert programs.local_bytes(program.arguments["weights"]) == really_local(moved.params)


def test_playing_as_training_splits_is_named_where_only_a_copy_does_not_fit():
    rollout = dataclasses.replace(ROLLOUT, max_length=32, slots=64, sharding="replicated")
    asked = workload_of(Grpo(**ROWS, rollout=rollout, games={"Nim-v0": {}}))
    assert analytic.memory(asked).dearest == "playing"
    need = analytic.memory(asked).peak
    assert nearest_fitting(asked, 1.21 * need).changes == {}
    assert nearest_fitting(asked, 1.19 * need).changes == {"--config.rollout.sharding": "training"}


def test_an_opponent_with_weights_of_its_own_lies_beside():
    base = {"games": {"Nim-v0": {}}, "tasks": 2}
    alone = phases(Collect(**PLAYS, **base))["playing"]
    for opponent, more in (("random_legal", 0), ("itself", 0), ("tiny_player", 0), ("elsewhere", alone["model"])):
        found = phases(Collect(**PLAYS, **base, opponent=opponent))["playing"]
        assert found.get("opponent", 0) == more
    rl = {**ROWS, "rollout": ROLLOUT, "games": {"Nim-v0": {}}}
    apart = phases(Grpo(**rl, opponent="pool", pool=OpponentPoolConfig(size=3)))["playing"]
    assert apart["past policies"] == 3 * apart["trained weights"]
    assert apart["opponent"] == apart["weights for decoding"]


def test_policies_other_than_the_model_are_loaded_beside_it_one_at_a_time(tmp_path):
    offline_rows.save_model(tmp_path)
    model, _ = trained_weights.kind_of(str(tmp_path))
    config = EvaluateTasks(**PLAYS, games={"wordle": {}}, model=ModelConfig(str(tmp_path)), tasks=2)
    sizes = []
    for policies in (("a=strong",), (f"base={tmp_path}",), (f"base={tmp_path}", "b=x", "c=y", "simple")):
        stage = Stage("s", dataclasses.replace(config, policies=policies))
        sizes.append(None if stage.idle else phases(stage.config, decoder=model)["playing"])
    assert sizes[0] is None
    assert set(sizes[2]) - set(sizes[1]) == {"policy that plays"}
    mesh = sharding.make_mesh(1, 4, 2)
    loaded = trained_weights.load(trained_weights.WeightsSource(str(tmp_path)), model, mesh)
    assert sizes[2]["policy that plays"] == sizes[1]["model"] == really_local(loaded)


@pytest.mark.parametrize("simulators", ["script", "tiny_player"])
@pytest.mark.parametrize("kinds", ["alike", "different", "one model"])
def test_a_tournament_holds_both_policies_of_its_dearest_meeting(kinds, simulators, tmp_path):
    offline_rows.save_model(tmp_path)
    second = {"alike": "b=tiny_player", "different": f"b={tmp_path}", "one model": "strong"}[kinds]
    config = Evaluate(
        mesh=MESH,
        rollout=dataclasses.replace(ROLLOUT, workers=2, stop=("]",)),
        games={"Nim-v0": {}},
        policies=("a=tiny_player", second, "simple"),
        simulators=simulators,
    )

    def find(model):
        return dataclasses.replace(trained_weights.kind_of(model.path)[0], dtype=model.dtype)

    (stage,) = stages_of(config)
    found = holdings.workload_of_stage(stage, config, find, EIGHT, lengths_of(config))
    parts = analytic.memory(dataclasses.replace(found, platform="cpu")).phases["playing"]
    with evaluate.TournamentPlayers(config) as players:
        meeting = iteration.meetings_of(config)[0]
        players._load_models(meeting)
        weights = sum(really_local(tree) for tree in players._weights.values())
        caches = sum(really_local(e._cache) for group in players._engine_groups.values() for e in group.engines)
    names = {"model", "other policy", "simulators"}
    assert sum(size for name, size in parts.items() if name in names) == weights
    assert parts["cache"] + parts.get("other engines' caches", 0) == caches
    assert ("other policy" in parts) == (kinds != "one model")

"""What fit counts of every recipe that is no reinforcement learning, against arrays and programs of real runs."""

import dataclasses
import io
import json
import types

import jax
import numpy as np
import offline_rows
import pytest
import tiny_models

from dfc.config import (
    RECIPES,
    BatchConfig,
    BatchShape,
    BuildData,
    Collect,
    Evaluate,
    EvaluateTasks,
    Grpo,
    GrpoConfig,
    MeshConfig,
    ModelConfig,
    ModelRun,
    OpponentPoolConfig,
    Paprika,
    PlayerRolloutConfig,
    Preference,
    PreferenceConfig,
    RolloutConfig,
    RowsAdapterConfig,
    SamplingConfig,
    Sft,
    TaskCurriculum,
    TinyPlayer,
    TrainingConfig,
)
from dfc.fit import analytic, command, holdings, iteration, programs, published, traced
from dfc.fit.hardware import parse_topology
from dfc.fit.iteration import Runs, Stage, lengths_of, runs, stages_of
from dfc.games import registry
from dfc.launch import fit
from dfc.models import families, lora, quantization, sharding
from dfc.models.transformer import initialize
from dfc.recipes import evaluate, offline, tiny_player
from dfc.rollout import trained_weights
from dfc.rollout.workers import RolloutWorkers
from dfc.samples import TokenBatch
from dfc.training.optimizer import make_optimizer

MODEL = tiny_models.tiny(vocabulary=64, width=64, head_dim=16, feed_forward=128, qkv_bias=False, dtype="bfloat16")
EIGHT, ONE = parse_topology("h100:8"), parse_topology("h100:1")
MESH = MeshConfig(1, 4, 2)
LORA = {"rank": 4}
ONCE = Runs("one update", 1, decode=1, prefill=1, micro_batches=1, updates=1, scored=1)
TRAINING = TrainingConfig(attention="xla")
ROWS = {"mesh": MESH, "batch": BatchConfig(row_length=32, micro_batch_rows=8), "training": TRAINING}
ROLLOUT = RolloutConfig(slots=8, max_length=64, max_reply_length=8, prefill_buckets=(8,), decode_steps=4)
PLAYS = {"mesh": MESH, "rollout": ROLLOUT}


@pytest.fixture(autouse=True)
def promotion():
    """Optax raises a float to the power of an integer count."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def workload_of(config, decoder=MODEL, topology=EIGHT):
    return holdings.workload_of(config, decoder, topology, lengths_of(config))


def phases(config, **more):
    return analytic.memory(workload_of(config, **more)).phases


def really_local(arrays):
    return sum(a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(arrays))


# ---- rows ------------------------------------------------------------------------------------------------------------

KINDS = [
    pytest.param(Sft(**ROWS), id="sft"),
    pytest.param(Preference(**ROWS), id="preference"),
    pytest.param(Preference(**ROWS, reference=False), id="without reference"),
    pytest.param(Sft(**ROWS, adapter=RowsAdapterConfig(**LORA, dropout=0.1)), id="adapters"),
    pytest.param(Preference(**ROWS, adapter=RowsAdapterConfig(**LORA, base="nf4")), id="four bits"),
]


class Recorder:
    """A program that keeps its first arguments, and computes nothing."""

    def __init__(self, program):
        self.program, self.given = program, None

    def __call__(self, *given, **options):
        traced = self.program.trace(*given, **options)
        self.given = self.given or (jax.tree.map(lambda x: (x.shape, x.dtype), given), str(traced.jaxpr))
        return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), traced.out_info)


@pytest.mark.parametrize("config", KINDS)
def test_the_programs_of_training_on_rows_are_those_an_update_runs(config):
    """The update as `offline._train` makes it, its batch as `dfc.training.packing.fill` does."""
    mesh, workload = sharding.make_mesh(1, 4, 2), workload_of(config)
    trainer = holdings.make_trainer(config, workload, mesh)
    weights = jax.device_put(tiny_models.filled(MODEL, 0.5), sharding.param_shardings(MODEL, mesh))
    if config.adapter.base == "nf4":
        places = quantization.quantized_shardings(MODEL, mesh)
        weights = jax.device_put(quantization.quantize_params(tiny_models.filled(MODEL, 0.5)), places)
    params = trainer.initial_params(weights)
    base = None if config.adapter.rank == 0 else trainer.frozen_params(weights)
    state = trainer.initial_state(params)
    held = analytic.memory(workload).phases["gradient"]
    assert held["trained weights"] == really_local(params)
    assert held["optimizer"] == pytest.approx(really_local(state), abs=16)
    if config.adapter.base == "full":  # blocks of 64 inputs of so small a model cannot be split as the sum has it
        assert held.get("frozen weights, stacked", 0) == really_local(base)
    # Nothing else of the model is there: `offline.run` has let go of what it read.
    assert not {"initial policy", "reference policy, stacked", "weights for decoding", "cache"} & set(held)

    for name, program in trainer.programs.items():
        trainer.programs[name] = Recorder(program)
    arrays = [np.ones((8, 32), np.int32)] * 3 + [np.ones((8, 32), np.float32)] * 3
    batch = TokenBatch(*arrays)
    if offline.reads_reference(config):
        (scored,) = trainer.logprobs(params, [batch], base_params=base)
        batch = batch._replace(reference_logprobs=np.asarray(scored))
    seed = 7 if config.adapter.dropout else None
    trainer.update(params, state, [batch], base_params=base, dropout_seed=seed, donate=True)
    ran = {name: recorder for name, recorder in trainer.programs.items() if recorder.given and name != "largest"}

    fresh = holdings.make_trainer(config, workload, mesh)
    workload = dataclasses.replace(workload, micro_batches=1)
    found = {p.name: p for p in programs._training(fresh, workload, programs.shapes_of(fresh, workload, mesh), ONCE)}
    names = {
        "gradient": "gradient",
        "reference log-probabilities": "own_logprobs",
        "optimizer step in place": "apply_in_place",
    }
    assert {names[name] for name in found} == set(ran)
    for name, program in found.items():
        shapes, jaxpr = ran[names[name]].given
        foretold = jax.tree.map(lambda x: (x.shape, x.dtype), tuple(program.arguments))
        assert jax.tree.leaves(foretold) == jax.tree.leaves(shapes), name
        assert str(program.trace().jaxpr) == jaxpr, name


def test_every_update_on_rows_takes_the_memory_of_what_it_starts_from():
    config = Sft(**ROWS)
    workload, mesh = workload_of(config), sharding.make_mesh(1, 4, 2)
    trainer = holdings.make_trainer(config, workload, mesh)
    shapes = programs.shapes_of(trainer, workload, mesh)
    found = {p.name: p for p in programs._training(trainer, workload, shapes, ONCE)}
    step = found["optimizer step in place"]
    memory = step.trace().lower().compile().memory_analysis()
    assert memory.alias_size_in_bytes == programs.local_bytes(step.donated) == programs.local_bytes(step.arguments[:2])
    held = analytic.memory(workload).phases["optimizer step"]
    assert set(held) == {"trained weights", "optimizer", "gradients", "updates"}
    updates = held["updates"]
    assert sum(held.values()) - updates == pytest.approx(memory.argument_size_in_bytes, rel=0.01)
    assert updates == held["gradients"]  # of float32, as what is trained


def test_a_reference_is_held_where_games_are_played_and_run_before_where_rows_are_read():
    with_, without = (phases(Preference(**ROWS, reference=reads)) for reads in (True, False))
    assert with_["gradient"] == without["gradient"]
    assert set(with_) - set(without) == {"reference"}
    assert "optimizer" not in with_["reference"]
    held, not_held = (
        phases(Grpo(**ROWS, rollout=ROLLOUT, grpo=GrpoConfig(kl_coefficient=weight))) for weight in (0.1, 0.0)
    )
    assert set(held["gradient"]) - set(not_held["gradient"]) == {"reference policy, stacked"}
    assert set(held) == set(not_held)


def test_pairs_have_two_rows_and_their_reference_is_run_once_in_all_epochs():
    lengths = iteration.Lengths(32, 0.5)
    for config, rows, scored in (
        (Sft(**ROWS, batch_size=16, epochs=4), 16, 0),
        (Preference(**ROWS, batch_size=16, epochs=4), 32, 1.0),
        (Preference(**ROWS, batch_size=16, epochs=2, preference_weight=0.0), 32, 0),
    ):
        found = runs(config, lengths, holdings.workload_of(config, MODEL, EIGHT, lengths))
        assert (found.unit, found.episodes, found.micro_batches) == ("one update", rows, rows * 32 / 32 / 8)
        assert found.scored == scored
        assert (found.decode, found.prefill) == (0, 0)


def test_adapters_are_merged_beside_the_model_at_full_precision():
    """`offline_results.save_policy` loads the model again, whatever it was trained in, and merges."""
    adapter = lora.LoraConfig(rank=4, targets=lora.ALL_LINEAR)
    weights = jax.tree.map(jax.numpy.asarray, tiny_models.filled(MODEL, 0.5))
    merged = lora.merge(weights, lora.initialize_adapters(MODEL, adapter, 0), adapter.scale)
    of_model = {id(leaf) for leaf in jax.tree.leaves(weights)}
    new = [leaf for leaf in jax.tree.leaves(merged) if id(leaf) not in of_model]
    one = {"mesh": MeshConfig(1, 1, 1), "batch": BatchConfig(row_length=32, micro_batch_rows=8), "training": TRAINING}
    for base in ("full", "nf4"):
        found = phases(Sft(**one, adapter=RowsAdapterConfig(**LORA, base=base)), topology=ONE)["saving"]
        assert found["merged weights"] == pytest.approx(sum(leaf.nbytes for leaf in new))
        assert found["weights at full precision"] == sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    played = phases(Grpo(**one, rollout=ROLLOUT, adapter=RowsAdapterConfig(**LORA)), topology=ONE)["saving"]
    assert "weights at full precision" not in played  # the initial policy is there
    assert played["cache"] > 0
    assert "saving" not in phases(Sft(**one), topology=ONE)


# ---- play ------------------------------------------------------------------------------------------------------------


def engine_of(config, model=MODEL):
    """An engine as `RolloutWorkers` makes it."""
    mesh = sharding.make_mesh(1, 4, 2)
    weights = jax.device_put(tiny_models.filled(model, 0), sharding.param_shardings(model, mesh))
    workers = types.SimpleNamespace(
        _config=config,
        _sampling=SamplingConfig(),
        tokenizer=types.SimpleNamespace(stop_token_ids=lambda _: frozenset()),
        model=model,
        initial_params=weights,
        mesh=mesh,
        _apart=False,
    )
    return RolloutWorkers._engine(workers), weights


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
        assert programs.local_bytes(program.arguments["weights"]) == really_local(weights)
        assert programs.local_bytes(program.arguments["cache"]) == really_local(engine._cache)
        # Nothing lies beside: all of the phase is the program's own.
        assert not set(found["playing"]) - set(program.holds)
        assert traced.count(program.trace().jaxpr, program.loop_trips).flops > 0


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
    parts = analytic.memory(found).phases["playing"]
    with evaluate.TournamentPlayers(config) as players:
        meeting = iteration.meetings_of(config)[0]
        players._load_models(meeting)
        weights = sum(really_local(tree) for tree in players._weights.values())
        caches = sum(really_local(e._cache) for group in players._engine_groups.values() for e in group.engines)
    names = {"model", "other policy", "simulators"}
    assert sum(size for name, size in parts.items() if name in names) == weights
    assert parts["cache"] + parts.get("other engines' caches", 0) == caches
    assert ("other policy" in parts) == (kinds != "one model")


# ---- recipes of stages -----------------------------------------------------------------------------------------------

GAMES = {"games": {"wordle": {}}, "rollout": ROLLOUT}


def counted(config, decoder=MODEL, topology=EIGHT):
    """Stage name -> what it holds at the most."""
    return {
        stage.name: analytic.memory(
            holdings.workload_of_stage(stage, config, lambda _: decoder, topology, lengths_of(stage.config))
        )
        for stage in stages_of(config)
        if not stage.idle
    }


def test_the_stages_of_a_run_are_counted_as_their_own_recipes():
    config = Paprika(**GAMES, **ROWS, rpo=PreferenceConfig(reference=False))
    assert [stage.name for stage in stages_of(config)] == ["collect", "build_data", "sft", "rpo", "evaluate_tasks"]
    assert [stage.name for stage in stages_of(config) if stage.idle] == ["build_data"]
    found = counted(config)
    assert set(found["rpo"].phases) == {"gradient", "optimizer step"}
    assert "reference" in counted(dataclasses.replace(config, rpo=PreferenceConfig()))["rpo"].phases
    # The model after each training is evaluated beside the one before.
    assert "policy that plays" in found["evaluate_tasks"].phases["playing"]
    alone = counted(dataclasses.replace(config, stages=("evaluate_tasks",)))
    assert "policy that plays" not in alone["evaluate_tasks"].phases["playing"]
    adapted = counted(dataclasses.replace(config, adapter=RowsAdapterConfig(**LORA)))
    assert adapted["sft"].phases["gradient"]["optimizer"] < found["sft"].phases["gradient"]["optimizer"]
    assert adapted["collect"] == found["collect"]


def test_the_rounds_of_a_curriculum_are_alike_and_stand_once():
    config = TaskCurriculum(**GAMES, **ROWS, rounds=4, steps=10, samples=3)
    found = {stage.name: stage.times for stage in stages_of(config)}
    assert found == {"collect": 4, "build_data": 4, "sft": 4, "rpo": 4, "evaluate_tasks": 1}
    assert set(counted(config)) == {"collect", "sft", "rpo", "evaluate_tasks"}
    only = {stage.name for stage in stages_of(dataclasses.replace(config, objective="rpo"))}
    assert only == set(found) - {"sft"}
    collect = stages_of(config)[0].config
    assert runs(collect, lengths_of(collect), workload_of(collect)).episodes == 30


# ---- tiny_player -----------------------------------------------------------------------------------------------------

TINY = TinyPlayer(
    games={"TicTacToe-v0": {}},
    rollout=PlayerRolloutConfig(slots=8, max_length=64, max_reply_length=4),
    batch=BatchShape(row_length=64, micro_batch_rows=4),
    vocabulary=512,
)


def test_the_bundled_model_is_counted_as_it_is_made():
    model = tiny_player.shape(TINY, TINY.vocabulary)
    params = initialize(model, 0)
    optimizer = make_optimizer(TINY.optimizer, TINY.steps)
    found = counted(TINY, topology=ONE)
    held = found["training"].phases
    assert set(held) == {"gradient", "optimizer step"}
    assert held["gradient"]["trained weights"] == sum(x.nbytes for x in jax.tree.leaves(params))
    state = sum(x.nbytes for x in jax.tree.leaves(optimizer.init(params)))
    assert held["gradient"]["optimizer"] == pytest.approx(state, abs=16)
    assert found["evaluation"].phases["playing"]["what was trained"] == 12 / 4 * held["gradient"]["trained weights"]
    with pytest.raises(command.ConfigError, match=r"on one device, not on 8; --topology=h100:1"):
        counted(TINY)


def test_the_gradient_of_the_bundled_model_takes_about_what_is_counted():
    workload = workload_of(TINY, tiny_player.shape(TINY, TINY.vocabulary), ONE)
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    gradient, step = programs._tiny_player(TINY, workload, programs.weights_of(workload, mesh), mesh, ONCE)
    held = analytic.memory(workload).phases["gradient"]
    memory = gradient.trace().lower().compile().memory_analysis()
    really = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
    own = sum(size for name, size in held.items() if name in gradient.holds)
    assert really == pytest.approx(own, rel=0.5)
    # Three are computed at a time.
    one = sum(size for name, size in held.items() if name in gradient.holds and name != "trained weights")
    assert held["micro-batches side by side"] == pytest.approx(2 * one)
    step.trace().lower()


# ---- the command -----------------------------------------------------------------------------------------------------


def ask(config, *, topology="h100:8", **more):
    out = io.StringIO()
    code = command.answer(command.Request(config, topology, **more), out)
    return code, out.getvalue()


def test_a_run_of_stages_names_the_dearest():
    config = Paprika(**GAMES, **ROWS)
    code, out = ask(config, model="llama-3.1-8b")
    assert code == 0
    assert "build_data: rows are chosen on the host; nothing is held on a device" in out
    found = counted(config, dataclasses.replace(families.from_config_json(published.CONFIGS["llama-3.1-8b"])))
    dearest = max(found, key=lambda name: found[name].peak)
    assert f"the dearest stage is {dearest}, {found[dearest].dearest}: {found[dearest].peak / 1e9:.2f} GB" in out
    code, out = ask(config, model="llama-3.1-8b", topology="l4:8")
    assert code == 1
    assert "does NOT fit" in out


def test_what_computes_on_the_host_only_says_so():
    for config in (BuildData(), EvaluateTasks(policies=("strong",)), Evaluate(policies=("strong", "http://h/v1#m"))):
        code, out = ask(config)
        assert code == 0
        assert out.strip().endswith("nothing is held on a device")
        assert len(out.strip().splitlines()) == 1


def test_where_playing_does_not_fit_the_nearest_setting_is_one_of_playing():
    config = Collect(games={"wordle": {}}, model=ModelConfig(dtype="bfloat16"), mesh=MeshConfig(1, 1, 1), tasks=2)
    code, out = ask(config, topology="rtx4090:1", model="llama-3.1-8b")
    assert code == 1
    change = next(line for line in out.splitlines() if "nearest setting" in line)
    words = [word for word in change.split() if word.startswith("--config.")]
    assert words
    assert {word.split(".")[1] for word in words} == {"rollout"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_with_its_defaults_is_answered(recipe):
    code, out = ask(RECIPES[recipe](), topology="h100:1")
    assert code in (0, 1)
    assert "fits" in out or "nothing is held on a device" in out


def test_a_recipe_that_nobody_has_counted_is_refused_by_its_name():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Newest(ModelRun):
        recipe = module = "newest"

    with pytest.raises(command.ConfigError, match=r"Newest: dfc/fit/holdings\.py does not say"):
        ask(Newest(), topology="h100:1")


def test_a_model_of_its_own_and_a_tournament_of_several_hosts_are_refused():
    with pytest.raises(command.ConfigError, match="tiny_player makes a model of its own"):
        ask(TINY, topology="h100:1", model="llama-3.1-8b")
    config = Evaluate(policies=("tiny_player", "strong"), games={"Nim-v0": {}})
    with pytest.raises(command.ConfigError, match="a tournament runs on one host, not on 2"):
        ask(config, topology="h100:16")


def test_a_tournament_reads_the_shape_of_every_policy(tmp_path, capsys):
    offline_rows.save_model(tmp_path / "small")
    words = "--config=configs/evaluate.py", "--topology=h100:1"
    assert fit.main((*words, f"--config.policies=tiny_player,{tmp_path / 'small'}")) == 0
    assert "other policy" in capsys.readouterr().out
    assert fit.main((*words, "--config.policies=tiny_player,nowhere")) == 2
    assert "nowhere" in capsys.readouterr().err
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "config.json").write_text(json.dumps(published.CONFIGS["qwen2.5-0.5b"]))
    assert fit.main((*words, f"--config.policies={tmp_path / 'named'},random_legal")) == 0
    assert "494" in capsys.readouterr().out.replace("0.49 billion", "494")

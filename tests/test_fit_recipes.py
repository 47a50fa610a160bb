"""What fit answers for every recipe: the stages of a run, the bundled model, the dearest stage, what is refused."""

import dataclasses
import io
import json

import jax
import offline_rows
import pytest
from fit_workloads import EIGHT, LORA, MODEL, ONCE, ONE, ROLLOUT, ROWS, workload_of

from dfc.config import (
    RECIPES,
    BatchShape,
    BuildData,
    Collect,
    Evaluate,
    EvaluateTasks,
    MeshConfig,
    ModelConfig,
    ModelRunConfig,
    Paprika,
    PlayerRolloutConfig,
    PreferenceConfig,
    RowsAdapterConfig,
    TaskCurriculum,
    TinyPlayer,
)
from dfc.launch import fit
from dfc.models import families, sharding
from dfc.models.transformer import initialize
from dfc.tools.fit import analytic, command, holdings, programs, published
from dfc.tools.fit.iteration import lengths_of, runs, stages_of
from dfc.tools.small_models import imitation
from dfc.training.optimizer import make_optimizer

pytestmark = pytest.mark.usefixtures("optax_promotion")


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
    model = imitation.shape(TINY, TINY.vocabulary)
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
    workload = workload_of(TINY, imitation.shape(TINY, TINY.vocabulary), ONE)
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    gradient, step = programs._small_model(TINY, workload, programs.weights_of(workload, mesh), mesh, ONCE)
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
    assert f"most memory: stage {dearest}, {found[dearest].dearest}: {found[dearest].peak / 1e9:.2f} GB" in out
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
    class Newest(ModelRunConfig):
        recipe = module = "newest"

    with pytest.raises(command.ConfigError, match=r"Newest: dfc/tools/fit/holdings\.py does not say"):
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

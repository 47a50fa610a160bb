"""What fit counts and compiles of self-play, against the arrays and programs of a run."""

import dataclasses

import jax
import pytest
from fit_workloads import MODEL, ONE, workload_of

from dfc.config import (
    AdapterConfig,
    AnswerRewardConfig,
    BatchConfig,
    LanguageSelfPlay,
    MeshConfig,
    ModelConfig,
    PreferenceRewardConfig,
    SelfPlayRolloutConfig,
    TrainingConfig,
)
from dfc.methods.language_self_play import update
from dfc.models.transformer import initialize
from dfc.tools.fit import analytic, programs, published
from dfc.tools.fit.iteration import lengths_of, runs, stages_of
from dfc.training import online_trainer

pytestmark = pytest.mark.usefixtures("optax_promotion")

CONFIG = LanguageSelfPlay(
    model=ModelConfig(dtype="bfloat16"),
    mesh=MeshConfig(1, 1, 1),
    groups_per_iteration=4,
    group_size=3,
    reward=AnswerRewardConfig(
        sources={"preference": 1.0},
        preference=PreferenceRewardConfig("nowhere/its-llama-3.2-1b", row_length=64, rows=2),
    ),
    rollout=SelfPlayRolloutConfig(
        slots=4, max_length=32, max_query_length=4, max_answer_length=8, max_judgement_length=8, decode_steps=4
    ),
    batch=BatchConfig(row_length=32, micro_batch_rows=2),
    training=TrainingConfig(attention="xla"),
)


@pytest.fixture(autouse=True)
def this_device(monkeypatch):
    """Programs are traced for a device that is here: described ones need packages of their own."""
    monkeypatch.setattr(programs, "topology_devices", lambda _: jax.devices()[:1])


def counted(**changes):
    config = dataclasses.replace(CONFIG, **changes)
    return config, workload_of(config, topology=ONE)


def compiled(**changes):
    config, workload = counted(**changes)
    # A small model of preferences: the one that the name stands for takes seconds to trace.
    others = tuple(dataclasses.replace(one, model=dataclasses.replace(MODEL, labels=1)) for one in workload.others)
    workload = dataclasses.replace(workload, others=others)
    (stage,) = stages_of(config)
    often = runs(config, lengths_of(config), workload, stage.episodes)
    return {program.name: program for program in programs.of_stage(config, workload, ONE, often)}


def test_a_run_compiles_both_gradients_one_step_the_reward_and_the_engine():
    found = compiled()
    assert {
        name: program.runs for name, program in found.items() if "decode" not in name and "prefill" not in name
    } == {
        "gradient, solver": 3,  # 12 answers of 16 tokens in rows of 32, two rows at once
        "gradient, challenger": 1,
        "reference log-probabilities": 4,
        "optimizer step in place": 1,
        "weight hand-over": 1,
        "prefix copy": 0,
        "reward of answers": 2,  # rows of 64, two of them
    }
    gradient = found["gradient, challenger"].trace().out_info
    assert set(gradient["loss"].metrics) == {"advantage", "log_ratio", "logprob"}
    params, _, numbers, metrics = found["optimizer step in place"].trace().out_info
    assert jax.tree.structure(params) == jax.tree.structure(found["weight hand-over"].arguments[0])
    assert {"solver/loss", "challenger/loss"} <= set(metrics)
    assert numbers["loss"].shape == ()
    assert found["reward of answers"].trace().out_info.shape == (2, 8)


def test_without_a_challenger_that_learns_there_is_one_gradient():
    found = compiled(method="untrained_challenger")
    assert [name for name in found if name.startswith("gradient")] == ["gradient, solver"]
    assert "reward of answers" not in compiled(reward=AnswerRewardConfig())


def test_what_is_held_is_what_a_run_holds():
    _, workload = counted()
    held = analytic.memory(workload).phases["gradient"]
    weights = initialize(workload.model, 0)
    trainer = online_trainer.make_trainer(CONFIG, workload.model, update.make_losses(CONFIG), None)
    trained = trainer.initial_params(weights)
    size = {
        "initial policy": weights,
        "reference policy, stacked": trainer.frozen_params(weights),
        "weights for decoding": trainer.policy(trained),
        "trained weights": trained,
        "optimizer": trainer.initial_state(trained),
    }
    for name, tree in size.items():
        assert held[name] == pytest.approx(sum(x.nbytes for x in jax.tree.leaves(tree)), abs=16), name
    assert held["gradients of other losses"] == held["summed gradients"]
    step = analytic.memory(workload).phases["optimizer step"]
    assert step["gradients of other losses"] == held["summed gradients"]  # one step takes both
    alone = analytic.memory(counted(method="untrained_challenger")[1]).phases["gradient"]
    assert "gradients of other losses" not in alone
    # What training begins with is not kept: it is made again where a run begins.
    assert "trained weights at the start" not in held
    assert "weights after the update" not in analytic.memory(workload).phases["optimizer step"]


def test_weights_that_train_as_they_are_read_are_left_by_the_first_update():
    training = TrainingConfig(scan_layers=False, master_dtype="bfloat16", attention="xla")
    _, workload = counted(training=training)
    assert "weights after the update" in analytic.memory(workload).phases["optimizer step"]
    assert {"optimizer step", "optimizer step in place"} <= set(compiled(training=training))


def test_an_adapter_of_each_role_is_held_and_stepped_by_itself():
    one, each = AdapterConfig(rank=4), {"adapter": AdapterConfig(rank=4), "adapter_per_role": True}
    shared = analytic.memory(counted(adapter=one)[1]).phases
    config, workload = counted(**each)
    held = analytic.memory(workload).phases
    weights = initialize(workload.model, 0)
    trainer = online_trainer.make_trainer(config, workload.model, update.make_losses(config), None)
    trained = trainer.initial_params(weights)
    trees = (trained, trainer.initial_state(trained), trainer.policy(trained))
    size = sum(x.nbytes for tree in trees for x in jax.tree.leaves(tree))
    for phase in ("gradient", "playing", "saving"):
        assert held[phase]["the Challenger's adapter"] == pytest.approx(size, abs=32)
    assert "gradients of other losses" in shared["gradient"]
    assert "gradients of other losses" not in held["gradient"]  # one loss at a time
    assert "weights after the update" in held["optimizer step"]  # a stop finds both as they were
    found = compiled(**each)
    steps = {name: program for name, program in found.items() if name.startswith("optimizer step")}
    assert {name: program.runs for name, program in steps.items()} == {
        "optimizer step, solver": 1,
        "optimizer step, challenger": 1,
    }
    metrics = steps["optimizer step, challenger"].trace().out_info[3]
    assert all(name.startswith("challenger/") for name in metrics)
    assert found["weight hand-over"].runs == 2
    assert found["gradient, challenger"].runs == 1


def test_a_model_of_preferences_has_the_shape_that_its_name_says():
    named = published.reward_model_of("nowhere/Skywork-Reward-V2-Llama-3.2-3B", "bfloat16", MODEL)
    assert (named.layers, named.width, named.labels, named.dtype) == (28, 3072, 1, "bfloat16")
    assert published.reward_model_of("nowhere/at-all", "float32", MODEL).width == MODEL.width
    _, workload = counted()
    assert [one.name for one in workload.others] == ["reward model"]
    assert workload.others[0].bytes == 4
    held = analytic.memory(workload).phases
    assert all(phase["reward model"] > 4e9 for phase in held.values())
    adapted = counted(adapter=AdapterConfig(rank=4))[1]
    assert analytic.memory(adapted).phases["saving"]["reward model"] == held["playing"]["reward model"]


def test_a_reference_of_its_own_is_held_beside_the_policy_and_plays_only_where_it_judges():
    weights = sum(x.nbytes for x in jax.tree.leaves(initialize(counted()[1].model, 0)))
    for method, plays in (("lsp", True), ("lsp_zero", False)):
        _, workload = counted(method=method, reference="nowhere/earlier")
        assert {one.name: one.plays for one in workload.others} == {
            "reward model": False,  # it scores in a program of its own
            "reference of its own": plays,
        }
        held = analytic.memory(workload).phases
        assert all(phase["reference of its own"] >= weights for phase in held.values())
        assert "reference of its own" not in analytic.memory(counted(method=method)[1]).phases["playing"]

"""An adapter for each role: both play from one engine, each loss moves its own, and both survive a stop."""

import dataclasses
import json
import types

import jax
import numpy as np
import optax
import pytest
from one_layer import CONFIG
from one_layer import weights as random_weights
from recipe_runs import untimed
from self_play_runs import BASE, MODEL, ROLES, Counting, Killed, leaves, one_device, run, same, weights
from test_self_play_update import ANSWERS, MARKS, MASK, QUERIES, REWARDS, RUN
from test_update_parts import ALPHA, RATE

from dfc import validation
from dfc.config import AdapterConfig
from dfc.config.self_play import ChallengerConfig
from dfc.errors import DivergenceError, Interrupted, TrainingError
from dfc.methods.language_self_play import update as learning
from dfc.methods.language_self_play.roles import role_advantages
from dfc.methods.language_self_play.sampling import Roles
from dfc.models import huggingface
from dfc.models.lora import ALL_LINEAR, LoraConfig
from dfc.rollout.host import PolicyWeights
from dfc.training.trainer import Trainer

__all__ = ["one_device"]

LOOKS = {}  # of a run, by its name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    stop = Counting()
    path = run(ROLES, tmp_path_factory.mktemp("whole") / "run", stop)
    LOOKS["whole"] = stop.looks
    return path


def base():
    return huggingface.load(MODEL, dtype="float32")[1]


def distance(one, two):
    return max(np.abs(a - b).max() for a, b in zip(leaves(one), leaves(two), strict=True))


# ---- a run -----------------------------------------------------------------------------------------------------------


def test_both_policies_are_written_and_each_has_moved(whole):
    solver, challenger = weights(whole), weights(whole, "challenger_policy")
    assert distance(solver, base()) > 1e-4
    assert distance(challenger, base()) > 1e-4
    assert distance(solver, challenger) > 1e-4
    for folder in ("adapter", "challenger_adapter"):
        assert json.loads((whole / folder / "adapter_config.json").read_text(encoding="utf-8"))["r"] == 2


def test_each_role_samples_from_its_own_adapter(whole):
    """What the engine says of a sampled token is what the trainer computes of it with the role's adapter."""
    for line in untimed(whole, "metrics"):
        for role in ("solver", "challenger"):
            assert line["metrics"][f"{role}/sampler_gap/max"] < 1e-3
    # Before the first step no adapter does anything, so both policies are the reference; then they leave it.
    first, *_, last = (line["metrics"] for line in untimed(whole, "metrics"))
    for role in ("solver", "challenger"):
        assert abs(first[f"{role}/log_ratio"]) < 1e-6
        assert abs(last[f"{role}/log_ratio"]) > 1e-5


def test_the_first_iteration_is_that_of_shared_weights_and_the_others_are_not(whole, tmp_path):
    shared = run(dataclasses.replace(ROLES, adapter_per_role=False), tmp_path / "shared")
    own, other = (
        [[r["replies"] for r in untimed(path, "episodes") if r["iteration"] == n] for n in (1, 2, 3)]
        for path in (whole, shared)
    )
    assert own[0] == other[0]
    assert own[1:] != other[1:]
    losses = [untimed(path, "metrics")[0]["metrics"]["loss"] for path in (whole, shared)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("changes", [{"method": "untrained_challenger"}, {"challenger": 0.0}])
def test_a_challenger_that_does_not_learn_stays_the_model_it_was(tmp_path, changes):
    if "challenger" in changes:
        changes = {"challenger": dataclasses.replace(BASE.challenger, coefficient=changes["challenger"])}
    path = run(dataclasses.replace(ROLES, **changes), tmp_path / "run")
    assert distance(weights(path, "challenger_policy"), base()) == 0
    assert distance(weights(path), base()) > 1e-4


def test_a_killed_run_resumes_bit_for_bit(whole, tmp_path):
    path, looks = tmp_path / "run", LOOKS["whole"]
    with pytest.raises(Killed):
        run(ROLES, path, Counting(looks // 2, Killed))
    with pytest.raises(Interrupted):
        run(ROLES, path, Counting(looks // 2))
    run(ROLES, path)
    same(whole, path)
    for one, two in zip(*(leaves(weights(p, "challenger_policy")) for p in (path, whole)), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_stop_between_the_two_steps_saves_what_was_before_both(whole, tmp_path, monkeypatch):
    """The step of the second role is interrupted in the second iteration; nothing of the first role's is kept."""
    update, steps = Trainer.update, []

    def interrupted(self, params, state, parts, *given, **more):
        steps.append(parts[0].name)
        if len(steps) == 4:
            raise Interrupted(15)
        return update(self, params, state, parts, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", interrupted)
        with pytest.raises(Interrupted):
            run(ROLES, tmp_path / "run")
    assert steps == ["solver", "challenger"] * 2
    assert max(int(p.name.removeprefix("step_")) for p in (tmp_path / "run" / "checkpoints").glob("step_*")) == 1
    same(whole, run(ROLES, tmp_path / "run"))


def test_a_run_that_diverges_leaves_the_policies_of_both_roles(tmp_path, monkeypatch):
    update, calls = Trainer.update, []

    def refused(self, params, state, parts, *given, **more):
        calls.append(parts[0].name)
        if len(calls) == 6:  # the Challenger's of the third iteration
            raise DivergenceError("the update is refused")
        return update(self, params, state, parts, *given, **more)

    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", refused)
        with pytest.raises(
            TrainingError, match=r"iteration 3: the update is refused.*--config\.model\.path=.*last_good"
        ):
            run(ROLES, path)
    shorter = run(dataclasses.replace(ROLES, iterations=2), tmp_path / "shorter")
    for left, of_shorter in (("last_good", "policy"), ("challenger_last_good", "challenger_policy")):
        assert distance(weights(path, left), weights(shorter, of_shorter)) == 0
    for adapter in ("last_good_adapter", "challenger_last_good_adapter"):
        assert json.loads((path / adapter / "adapter_config.json").read_text(encoding="utf-8"))["r"] == 2
    assert not (path / "policy").exists()
    assert not (path / "challenger_policy").exists()


def test_the_engine_keeps_the_policy_of_neither_role_while_they_learn():
    """What the trainer makes of them would lie beside them."""
    held = {}
    engine = types.SimpleNamespace(
        counts=types.SimpleNamespace(prompt_tokens=0),
        version=lambda *_: 0,
        set_params=lambda params, _, adapters=None, *, policy="policy": held.update({policy: (params, adapters)}),
        forget_copies=lambda: None,
    )
    roles = Roles(engine, None)
    roles.seat(PolicyWeights("base", "Solver's"), None, PolicyWeights("base", "Challenger's"))
    assert [adapters for _, adapters in held.values()] == ["Solver's", "Challenger's"]
    roles.leave("base")
    assert [adapters for _, adapters in held.values()] == [None, None]


# ---- a step ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parted():
    """A trainer of adapters, the two parts of an iteration, and adapters that do something."""
    params = random_weights(0)
    trainer = Trainer(
        CONFIG, learning.make_losses(RUN), optax.sgd(RATE), lora=LoraConfig(rank=2, alpha=2.0, targets=ALL_LINEAR)
    )
    advantages = role_advantages(REWARDS, MARKS, MASK, np.zeros(3, bool), weight=0.5)
    given = learning.parts(RUN, ANSWERS, QUERIES, advantages)
    frozen = trainer.frozen_params(params)
    given = learning.with_reference(trainer, frozen, given, lambda: None)
    rng = np.random.default_rng(5)
    moved = {
        role: jax.tree.map(
            lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), trainer.initial_params(params)
        )
        for role in learning.ROLES
    }
    return trainer, given, frozen, moved


def stepped(trainer, given, frozen, params):
    state = (
        {role: trainer.initial_state(own) for role, own in params.items()}
        if learning.has_roles(params)
        else trainer.initial_state(params)
    )
    made = learning.step(trainer, params, state, given, base_params=frozen, donate=False, check_stop=lambda: None)
    return made.params, made.optimizer, made.metrics


def change(after, before):
    return [np.asarray(a) - np.asarray(b) for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True)]


def close(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-4)


@pytest.mark.usefixtures("optax_promotion")
def test_the_gradient_of_each_role_is_that_of_an_update_of_its_own(parted):
    trainer, given, frozen, moved = parted
    together, _, metrics = stepped(trainer, given, frozen, moved)
    norms = []
    for part in given:
        alone, _, own = stepped(trainer, [part], frozen, moved[part.name])
        assert max(np.abs(x).max() for x in change(alone, moved[part.name])) > 1e-5
        close(change(together[part.name], moved[part.name]), change(alone, moved[part.name]))
        norms.append(own["gradient_norm"])
        assert metrics[f"{part.name}/gradient_norm"] == pytest.approx(own["gradient_norm"], rel=1e-5)
    assert metrics["gradient_norm"] == pytest.approx(np.hypot(*norms), rel=1e-5)
    solver, challenger = metrics["solver/loss"], metrics["challenger/loss"]
    assert metrics["loss"] == pytest.approx(solver + ALPHA * challenger, rel=1e-5)


@pytest.mark.usefixtures("optax_promotion")
def test_from_equal_adapters_both_steps_add_up_to_that_of_shared_weights(parted):
    trainer, given, frozen, moved = parted
    same_ = moved["solver"]
    together, _, _ = stepped(trainer, given, frozen, dict.fromkeys(learning.ROLES, same_))
    shared, _, _ = stepped(trainer, given, frozen, same_)
    total = [a + b for a, b in zip(*(change(together[role], same_) for role in learning.ROLES), strict=True)]
    close(total, change(shared, same_))


@pytest.mark.usefixtures("optax_promotion")
def test_a_role_without_a_part_keeps_its_adapter(parted):
    trainer, (solver, _), frozen, moved = parted
    after, _, metrics = stepped(trainer, [solver], frozen, moved)
    assert after["challenger"] is moved["challenger"]
    assert not any(name.startswith("challenger") for name in metrics)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"adapter": AdapterConfig()}, "adapter_per_role=True: needs adapters; set adapter.rank above 0"),
        ({"method": "data", "data": "f.txt", "tasks": {}}, "with method='data' there is no Challenger"),
    ],
)
def test_roles_without_adapters_or_without_a_challenger_are_refused(changes, said):
    (found,) = validation.problems(dataclasses.replace(ROLES, **changes))
    assert said in found
    assert validation.problems(dataclasses.replace(ROLES, challenger=ChallengerConfig())) == []

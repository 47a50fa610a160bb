"""What a method keeps: the replay buffer of docs/add_a_method.md, killed in every iteration; two policies in a run."""

import dataclasses
import hashlib
import json
import re
import signal
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from self_play_runs import MODEL, make_model
from test_own_method import SMALL

import dfc
from dfc.config import Grpo, MatchesConfig
from dfc.configs import smoke
from dfc.errors import TrainingError
from dfc.games import functions
from dfc.methods import grpo
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Interrupted, Stop
from dfc.training import rl
from dfc.training.games_run import Memory
from dfc.training.method import Played
from dfc.training.run import Updated

PAGE = Path(__file__).parent.parent / "docs" / "add_a_method.md"
GUESSES = {"GuessTheNumber-v0": {"max_number": 9}}
REPLAYED = {**SMALL, "iterations": 3, "kept": 9, "checkpoint.every": 2, "games": GUESSES}


@pytest.fixture
def replay(tmp_path, monkeypatch):
    """The configuration of the page's replay buffer, and what it trained on, by iteration."""
    (code,) = re.findall(r"```python\n(\"\"\"GRPO with a replay.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "replay.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    make_model()
    return dfc.load_config("replay.py", REPLAYED)


class MeanAndCount(NamedTuple):
    mean: np.ndarray
    count: np.ndarray


class StopsInIteration(Stop):
    """Asks for a stop before the n-th iteration has ended."""

    def __init__(self, iteration, looks):
        super().__init__()
        self.iteration, self.left = iteration, looks

    def check_stop(self):
        if self.iteration():
            self.left -= 1
            if self.left == 0:
                self._noted = signal.SIGTERM
        super().check_stop()


def run(config, path, stop=None):
    method = functions.named("replay.py:run")
    with RunFolder.open(path, config, command="test") as folder, jax.numpy_dtype_promotion("standard"):
        method(config, folder, stop or Stop())


def left_by(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    metrics = [{name: value for name, value in line.items() if name != "clock"} for line in lines]
    return metrics, hashlib.sha256((path / "policy" / "model.safetensors").read_bytes()).hexdigest()


def done(path):
    file = path / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_buffer_that_is_killed_after_every_iteration_goes_on_to_the_bit(replay, tmp_path):
    whole = tmp_path / "whole"
    run(replay, whole)
    metrics, policy = left_by(whole)
    buffered = Checkpointer(whole / "checkpoints", keep=None).restore().arrays["memory"]["buffer"]
    assert 0 < len(buffered) <= 9
    first = metrics[0]["metrics"]
    assert any(line["metrics"]["trained_tokens"] > first["trained_tokens"] for line in metrics[1:])  # it is trained on

    killed = tmp_path / "killed"
    for number in range(3):  # before it is saved: iterations 1 and 3 are saved by the stop alone
        with pytest.raises(Interrupted):
            run(replay, killed, StopsInIteration(lambda number=number: done(killed) == number, 2))
    run(replay, killed)
    assert left_by(killed) == (metrics, policy)


def test_a_method_gets_containers_of_its_own_and_the_same_arrays():
    array = np.arange(3)
    memory = Memory({"list": [{"a": array}], "tuple": (array,)}, {"count": [1]})
    copied = memory.copy()
    copied.arrays["list"].append(1)
    copied.arrays["list"][0]["b"] = 2
    copied.values["count"].append(2)
    assert memory.arrays["list"] == [{"a": array}]
    assert memory.values == {"count": [1]}
    assert copied.arrays["tuple"][0] is array


def replaced(config, path, **functions_of_the_method):
    """Runs GRPO with other functions."""
    method = dataclasses.replace(rl.grpo(config), **functions_of_the_method)
    with RunFolder.open(path, config, command="test") as folder, jax.numpy_dtype_promotion("standard"):
        grpo.learn(method, config, folder, Stop())


def test_an_accept_of_ones_own_may_drop_updates_after_kept_ones(replay, tmp_path):
    def accept(now, played, made):
        verdict = rl.keep_or_drop(now, played, made)
        return dataclasses.replace(verdict, kept=now.state.iteration != 1)

    replaced(replay, tmp_path / "run", accept=accept)
    metrics, _ = left_by(tmp_path / "run")
    assert [line["metrics"]["accepted"] for line in metrics] == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("values", {"baseline": np.float64(1.0)}, r"memory\.values\['baseline'\]: must be JSON-ready"),
        ("values", {"pair": (1, 2)}, r"memory\.values\['pair'\]: must be JSON-ready"),
        ("arrays", {"count": 3}, r"memory\.arrays\['count'\]: must be a jax or numpy array"),
        (
            "arrays",
            {"named": Played([], [], [], [], {}, "", {})},
            r"memory\.arrays\['named'\]: must be a jax or numpy array",
        ),
        ("arrays", {"named": MeanAndCount(np.ones(1), np.ones(1))}, r"memory\.arrays\['named'\] is a named tuple"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused_in_the_iteration_that_puts_it_there(
    replay, tmp_path, name, value, place
):
    def advantages(now, episodes, values):
        getattr(now.memory, name).update(value)
        return rl.group_advantages(now, episodes, values)

    with pytest.raises(TrainingError, match=place):
        replaced(replay, tmp_path / "run", advantages=advantages)
    assert done(tmp_path / "run") == 0


# ---- two policies ----------------------------------------------------------------------------------------------------

NAMES = ("first", "second")


def play_each_other(now):
    """Each policy plays the iteration's games against the other one; groups of the second follow the first's."""
    found = []
    for offset, (name, other) in enumerate((NAMES, NAMES[::-1])):
        groups, specs = rl.game_plan.planned(now.games, now.state.win_rates, now.config, now.stage, now.state.iteration)
        specs = [dataclasses.replace(spec, group=2 * spec.group + offset, seed=spec.seed + offset) for spec in specs]
        player, opponent = now.run.policy(now.state.best, name), now.run.policy(now.state.best, other)
        found += now.run.workers.play(specs, player, opponent, name=other)
    return Played(found, found, list(range(len(found))), [{} for _ in found], groups, "each other", {})


def by_policy(now, episodes, values):
    half = len(episodes) // 2
    parts = {"first": slice(0, half), "second": slice(half, None)}
    return {name: rl.group_advantages(now, episodes[part], values[part]) for name, part in parts.items()}


def update_each(now, shares):
    made = {
        name: rl.update(now.run, shares[name], now.state.best[name], now.state.optimizer[name], donate=False)
        for name in NAMES
    }
    metrics = {f"{name}/updates": one.metrics["updates"] for name, one in made.items()}
    return Updated({n: one.params for n, one in made.items()}, {n: one.optimizer for n, one in made.items()}, metrics)


def test_two_policies_that_play_each_other_are_trained_saved_and_resumed(tmp_path):
    make_model()
    base = smoke.get_config()
    config = Grpo(
        name="two",
        games={"TicTacToe-v0": {}},
        model=dataclasses.replace(base.model, path=str(MODEL), dtype="float32"),
        rollout=dataclasses.replace(base.rollout, slots=4, max_length=160, prefill_buckets=(64,), legal_only=True),
        batch=dataclasses.replace(base.batch, row_length=160),
        training=base.training,
        evaluation=MatchesConfig(games=2),
        iterations=2,
        groups_per_game=2,
        group_size=4,
    )
    method = dataclasses.replace(
        rl.grpo(config), policies=NAMES, play=play_each_other, advantages=by_policy, update=update_each
    )

    def learn(path, stop=None):
        with RunFolder.open(path, config, command="test") as folder, jax.numpy_dtype_promotion("standard"):
            grpo.learn(method, config, folder, stop or Stop())

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    learn(whole)
    arrays = Checkpointer(whole / "checkpoints", keep=None).restore().arrays["best"]
    assert set(arrays) == set(NAMES)
    assert (whole / "policy_second" / "model.safetensors").exists()
    pairs = zip(*(jax.tree.leaves(arrays[name]) for name in NAMES), strict=True)
    assert any(not np.array_equal(one, two) for one, two in pairs)
    with pytest.raises(Interrupted):
        learn(killed, StopsInIteration(lambda: done(killed) == 1, 2))
    learn(killed)
    assert left_by(killed) == left_by(whole)

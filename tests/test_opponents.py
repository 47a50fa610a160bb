"""Opponents from the past: how one is drawn, when the policy joins them, and what is remembered."""

import shutil
import types

import numpy as np
import pytest

from dfc.config import DivideFuseConquer, Grpo, OpponentPoolConfig, RolloutConfig
from dfc.errors import RunFolderError
from dfc.models import huggingface
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import game_plan, rl
from dfc.training.games_run import GamesRun, State


class Met:
    """An episode of which only the result counts."""

    failed = overran = ran_out = left_out = False
    forfeited_by = None
    illegal_tries = malformed_tries = 0
    malformed = False
    steps = 3
    replies = ()
    game = "TicTacToe-v0"
    seat = 0

    def __init__(self, outcome, opponent):
        self.outcome = outcome
        self.counted = outcome != "truncated"
        self.opponent = opponent


def run_with(opponent="pool", **pool):
    config = DivideFuseConquer(opponent=opponent, pool=OpponentPoolConfig(**pool))
    return types.SimpleNamespace(config=config, policy=lambda params: ("policy", params))


@pytest.mark.parametrize(
    ("choice", "weights"),
    [("hardest", [0.25, 1.0, 0.04]), ("even", [0.25, 0.0, 0.16]), ("uniform", [1.0, 1.0, 1.0])],
)
def test_opponents_are_drawn_by_how_the_policy_fared(choice, weights):
    found = game_plan.choice_probabilities([0.5, 0.0, 0.8], OpponentPoolConfig(choice=choice))
    expected = np.asarray(weights) + 0.01
    np.testing.assert_allclose(found, expected / expected.sum())


def test_draws_follow_the_probabilities_and_only_the_seed():
    run = run_with()
    state = State(pool={"iteration 1": 1.0, "iteration 2": 2.0}, met={"initial": 1.0, "iteration 1": 0.0})
    sampled = [game_plan.choose_opponent(run, state, seed) for seed in range(4000)]
    assert sampled == [game_plan.choose_opponent(run, state, seed) for seed in range(4000)]
    weights = np.asarray([0.0, 1.0, 0.25]) + 0.01
    for name, share in zip(("initial", "iteration 1", "iteration 2"), weights / weights.sum(), strict=True):
        count = sum(who == f"pool {name}" for _, who in sampled)
        assert abs(count / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5 + 1e-9
    assert {who: past for past, who in sampled} == {
        "pool initial": "initial",
        "pool iteration 1": ("policy", 1.0),
        "pool iteration 2": ("policy", 2.0),
    }


def test_without_a_pool_the_setting_is_the_opponent():
    for name in ("initial", "itself", "random_legal"):
        assert game_plan.choose_opponent(run_with(name), State(), 0) == (name, name)


def test_the_policy_joins_every_few_iterations_and_the_oldest_leaves():
    run, state = run_with(size=2, every=3), State()
    for iteration in range(12):
        state.iteration, state.best = iteration, float(iteration)
        game_plan.remember_opponent(run, state, "pool initial", [])
    assert state.pool == {"iteration 9": 8.0, "iteration 12": 11.0}


def test_the_result_of_the_last_meeting_is_remembered_and_one_seat_games_say_nothing():
    run, state = run_with(every=100), State(pool={"iteration 1": 1.0})
    games = [Met("win", "pool iteration 1")] * 3 + [Met("loss", "pool iteration 1"), Met("win", "none")]
    game_plan.remember_opponent(run, state, "pool iteration 1", games)
    assert state.met == {"iteration 1": 0.75}
    game_plan.remember_opponent(run, state, "pool initial", [Met("win", "none")])
    assert state.met == {"iteration 1": 0.75}


def test_a_meeting_that_no_rule_decided_leaves_the_next_choice_as_it_was():
    run, state = run_with(every=100), State(pool={"iteration 1": 1.0}, met={"iteration 1": 0.75})
    game_plan.remember_opponent(run, state, "pool iteration 1", [Met("truncated", "pool iteration 1")] * 3)
    assert state.met == {"iteration 1": 0.75}
    other = Met("truncated", "pool iteration 1")
    other.game = "Nim-v0"
    game_plan.remember_opponent(run, state, "pool iteration 1", [Met("loss", "pool iteration 1"), other])
    assert state.met == {"iteration 1": 0.0}


def test_who_has_left_the_pool_is_forgotten():
    run, state = run_with(size=1, every=1), State(pool={"iteration 1": 1.0}, met={"iteration 1": 0.2, "initial": 0.9})
    state.iteration, state.best = 1, 2.0
    game_plan.remember_opponent(run, state, "pool initial", [])
    assert (state.pool, state.met) == ({"iteration 2": 2.0}, {"initial": 0.9})


def test_a_run_goes_on_against_the_opponent_it_began_with(tmp_path):
    rival = shutil.copytree(huggingface.resolve("tiny_player"), tmp_path / "rival")
    rollout = RolloutConfig(slots=1, max_length=64, max_reply_length=4)
    config = Grpo(games={"TicTacToe-v0": {}}, opponent=str(rival), rollout=rollout)

    def opened():
        with RunFolder.open(tmp_path / "run", config, command="") as folder, Stop() as stop:
            GamesRun.open(config, folder, stop, rl.grpo(config).loss, reads_reference=False).close()

    opened()
    opened()
    weights = rival / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(RunFolderError, match="opponent is not the policy that played the games on record"):
        opened()

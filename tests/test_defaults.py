"""Defaults fit the default model: a name and games alone are a run of a few minutes on two CPU cores."""

import pytest

from dfc import validation
from dfc.config import Collect, DivideFuseConquer, Evaluate, EvaluateTasks, Grpo, Paprika, TaskCurriculum
from dfc.launch import command_line
from dfc.recipes.divide_fuse_conquer import Group, games_between, plan, turns
from dfc.training import rl

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {}}
TASKS = {"wordle": {}, "bandit": {}}
MOST = 10_000  # games; two cores play 100 a second, whole iterations included


@pytest.mark.parametrize(
    "config",
    [
        Grpo(name="x", games=GAMES),
        DivideFuseConquer(name="x", games=GAMES),
        Evaluate(name="x", games=GAMES, policies=("tiny_player", "strong")),
        Collect(name="x", games=TASKS),
        EvaluateTasks(name="x", games=TASKS, policies=("strong",)),
        Paprika(name="x", games=TASKS),
        TaskCurriculum(name="x", games=TASKS),
    ],
    ids=lambda config: config.recipe,
)
def test_a_name_and_games_are_a_valid_configuration(config):
    assert validation.problems(config) == []


def test_training_on_two_games_plays_few_enough_of_them():
    config = Grpo(name="x", games=GAMES)
    assert sum(rl.games_played(config, config.iterations * len(GAMES))) < MOST
    method = DivideFuseConquer(name="x", games=GAMES)
    stages = plan([Group(f"g{n}", (game,)) for n, game in enumerate(GAMES)], list(GAMES), method)
    played = sum(rl.games_played(method, turns(stages, method))) + games_between(stages, method)
    assert len(stages) == 3
    assert played + 4 * method.evaluation.games + len(GAMES) * method.grouping.trials < MOST


def test_tasks_are_few_enough():
    assert Collect(games=TASKS).tasks * Collect().samples * len(TASKS) < MOST
    evaluation = EvaluateTasks()
    assert 0 < evaluation.tasks * evaluation.trajectories * len(evaluation.temperatures) * 10 < MOST
    curriculum = TaskCurriculum()
    assert curriculum.rounds * curriculum.steps * curriculum.samples < MOST


def test_paprikas_run_has_the_papers_values():
    config = command_line.load("configs/paprika_llama3_1_8b.py")
    collect, build, evaluate = config.collect, config.build_data, config.evaluate_tasks
    assert (collect.tasks, collect.samples, collect.samples_of) == (0, 20, {"mastermind": 100})
    assert (build.sft_tokens, build.pair_tokens) == (12_000, 8_192)
    assert (config.sft.optimizer.learning_rate, config.rpo.optimizer.learning_rate) == (1e-6, 2e-7)
    assert (evaluate.tasks, evaluate.tasks_of, evaluate.trajectories) == (0, {"bandit": 100}, 4)

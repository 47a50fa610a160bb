"""Defaults fit the default model: a name and games alone are a run of a few minutes on two CPU cores."""

from pathlib import Path

import pytest
from rl_episodes import groups_of

import dfc
from dfc import validation
from dfc.config import (
    AcceptanceConfig,
    Collect,
    DivideFuseConquer,
    Evaluate,
    EvaluateTasks,
    Grpo,
    GrpoConfig,
    MixedPriorityConfig,
    Paprika,
    RlRunConfig,
    TaskCurriculum,
)
from dfc.launch import command_line
from dfc.methods.divide_fuse_conquer import Group, games_between, plan, turns
from dfc.training import game_plan, rl

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


def techniques(config):
    """The settings of Divide-Fuse-Conquer's techniques around the update."""
    kept, priority = config.acceptance.rule, config.mixed_priority.enabled
    return config.random_action_rate, config.half_negative, priority, kept


def test_grpo_by_default_is_grpo_and_nothing_of_divide_fuse_conquer():
    assert techniques(Grpo(games=GAMES)) == (0.0, False, False, "always")
    assert techniques(DivideFuseConquer(games=GAMES)) == (0.05, True, True, "previous")


def test_a_method_of_ones_own_inherits_grpo_alone():
    class Mine(RlRunConfig):
        pass

    class Other(Grpo):
        pass

    assert techniques(Mine(games=GAMES)) == techniques(Other(games=GAMES)) == (0.0, False, False, "always")


def test_a_section_of_a_technique_that_is_written_out_turns_it_on():
    config = Grpo(games=GAMES, mixed_priority=MixedPriorityConfig(a=0.5), acceptance=AcceptanceConfig(games=8))
    assert techniques(config) == (0.0, False, True, "previous")


def test_plain_grpo_trains_on_every_action_and_episode_of_as_many_seeds_a_game():
    config = Grpo(games=GAMES, groups_per_game=4, group_size=4, grpo=GrpoConfig(updates_per_iteration=1))
    seeds, specs = game_plan.planned(
        list(GAMES), {"TicTacToe-v0": 1.0, "GuessTheNumber-v0": 0.0}, config, "all games", 0
    )
    assert seeds == dict.fromkeys(GAMES, 4)
    assert not any(spec.random_action_rate for spec in specs)
    played, values = groups_of([1.0, -1.0, -1.0, -1.0], [1.0, 1.0, -1.0, -1.0])
    (trained,) = rl.sequences(played, values, config, 0)
    assert len(trained) == len(played)
    assert game_plan.games_played(config, 2)[1] == 0
    assert rl.accepted(0.0, 0.9, 1.0, config)


# Of every shipped run that learns from games: random actions, half-negative, mixed priority, which updates are kept.
SHIPPED = {
    "quickstart": (0.02, True, True, "previous"),
    "smoke": (0.05, True, True, "previous"),
    "lora_one_gpu": (0.05, True, True, "previous"),
    "dfc_textarena_qwen2_5_32b": (0.05, True, True, "previous"),
    "study_dfc": (0.02, True, True, "previous"),
    "study_imitation": (0.02, True, True, "previous"),
    "study_naive_multi": (0.02, True, True, "previous"),
    "study_naive_single": (0.02, True, True, "previous"),
    "smollm2": (0.0, True, True, "always"),
    "smollm2_free": (0.0, True, True, "always"),
    "paprika_grpo_tiny": (0.0, True, True, "always"),
}


def test_shipped_runs_have_the_techniques_that_their_results_were_measured_with():
    found = {name: command_line.load(f"configs/{name}.py") for name in shipped_names()}
    assert {name: techniques(run) for name, run in found.items() if isinstance(run, RlRunConfig)} == SHIPPED


def shipped_names():
    return [path.stem for path in Path(dfc.__file__).parent.joinpath("configs").glob("*.py")]


def test_training_on_two_games_plays_few_enough_of_them():
    config = Grpo(name="x", games=GAMES)
    assert sum(game_plan.games_played(config, config.iterations * len(GAMES))) < MOST
    method = DivideFuseConquer(name="x", games=GAMES)
    stages = plan([Group(f"g{n}", (game,)) for n, game in enumerate(GAMES)], list(GAMES), method)
    played = sum(game_plan.games_played(method, turns(stages, method))) + games_between(stages, method)
    assert len(stages) == 3
    assert played + 4 * method.evaluation.games + len(GAMES) * method.grouping.trials < MOST


def test_tasks_are_few_enough():
    assert Collect(games=TASKS).tasks * Collect().samples * len(TASKS) < MOST
    evaluation = EvaluateTasks()
    assert 0 < evaluation.tasks * evaluation.trajectories * len(evaluation.every_temperature) * 10 < MOST
    curriculum = TaskCurriculum()
    assert curriculum.rounds * curriculum.steps * curriculum.samples < MOST


def test_paprikas_run_has_the_papers_values():
    config = command_line.load("configs/paprika_llama3_1_8b.py")
    collect, build, evaluate = config.collect, config.build_data, config.evaluate_tasks
    assert (collect.tasks, collect.samples, collect.samples_of) == (0, 20, {"mastermind": 100})
    assert (build.sft_tokens, build.pair_tokens) == (12_000, 8_192)
    assert (config.sft.optimizer.learning_rate, config.rpo.optimizer.learning_rate) == (1e-6, 2e-7)
    assert (evaluate.tasks, evaluate.tasks_of, evaluate.trajectories) == (0, {"bandit": 100}, 4)

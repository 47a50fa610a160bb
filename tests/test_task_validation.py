"""What is said before a run about tasks begins: what a later stage would find out, and what has no effect."""

import dataclasses
import subprocess
import sys

import pytest

from dfc import validation
from dfc.config import AdapterConfig, BatchConfig, ModelConfig, RolloutConfig, RunConfig, SamplingConfig
from dfc.task_config import (
    BuildDataConfig,
    CollectConfig,
    EvaluateTasksConfig,
    OfflineConfig,
    PaprikaConfig,
    TaskCurriculumConfig,
)

GAMES = {"minesweeper": {}, "mastermind": {}}
RECIPES = ("paprika", "task_curriculum", "collect", "evaluate_tasks", "build_data", "offline")


def config(recipe, **changes):
    """A valid configuration, with other values."""
    sound = RunConfig(
        recipe=recipe,
        games=GAMES,
        policies=("simple",) if recipe == "evaluate_tasks" else (),
        batch=BatchConfig(row_length=16_384),
        rollout=RolloutConfig(max_length=16_384),
    )
    return dataclasses.replace(sound, **changes)


def collect(**values):
    return {"collect": CollectConfig(**values)}


def build(**values):
    return {"build_data": BuildDataConfig(**values)}


def offline(**values):
    return {"offline": OfflineConfig(**values)}


def tasks(**values):
    return {"evaluate_tasks": EvaluateTasksConfig(**values)}


def stages(*names, **values):
    return {"paprika": PaprikaConfig(stages=names, **values)}


def sampling(**values):
    return {"rollout": RolloutConfig(max_length=16_384, sampling=SamplingConfig(**values))}


TWO, DEALS = {"games": {"Nim-v0": {}}}, {"games": {"TowerOfHanoi-v0": {}}}
LABELS = "build_data.rejected_failures: 'failed' must be one of malformed, illegal, truncated"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_rest_of_each_configuration_is_sound(recipe):
    assert validation.problems(config(recipe)) == []


@pytest.mark.parametrize(
    ("recipe", "changes", "words"),
    [
        ("paprika", stages("collect", "sft"), "sft read what build_data writes; add it, or name data"),
        ("paprika", stages("rpo"), "rpo read what build_data writes"),
        ("paprika", stages("evaluate_tasks"), "trains nothing; evaluate policies with the recipe evaluate_tasks"),
        ("task_curriculum", tasks(split="eval"), "evaluate_tasks.split='eval': minesweeper has"),
        ("task_curriculum", tasks(tasks_of=("wordl=3",)), "evaluate_tasks.tasks_of: 'wordl=3' must be GAME=NUMBER"),
        ("task_curriculum", tasks(temperatures=()), "evaluate_tasks.temperatures is empty"),
        ("task_curriculum", tasks(temperatures=(-1.0,)), "must be 0 or more each"),
        ("paprika", TWO | collect(tasks=2), "games.Nim-v0: is for two players and has no tasks to solve"),
        ("task_curriculum", TWO | collect(tasks=2), "games.Nim-v0: is for two players"),
        ("evaluate_tasks", TWO | {"policies": ("simple",)}, "which are for one player; use the recipe evaluate"),
        ("paprika", DEALS | collect(tasks=2), "evaluate_tasks.tasks=0: TowerOfHanoi-v0 has no splits"),
        ("task_curriculum", DEALS | collect(tasks=2), "evaluate_tasks.tasks=0: TowerOfHanoi-v0 has no splits"),
        ("paprika", build(groups=("wordle",)), "build_data.groups=('wordle',): wordle must be among this run's games"),
        ("task_curriculum", build(leave_out=("wordle",)), "wordle must be among this run's games"),
        ("paprika", build(leave_out=("minesweeper", "mastermind")), "leaves no game to train on"),
        ("task_curriculum", build(groups=("mastermind",)), "a round may have chosen none of them"),
        ("build_data", build(rejected_failures=("malformed", "failed")), LABELS),
        ("paprika", build(rejected_failures=("failed",)), LABELS),
        ("paprika", collect(samples=1, samples_of=()), "one sample of a task makes no pair"),
        ("collect", collect(temperature=0.0), "all samples of a task are the same (minesweeper, mastermind)"),
        ("task_curriculum", collect(temperature=0.0, samples_of=()), "collect.temperature=0: must be above 0"),
        ("paprika", tasks(split="train"), "tasks that were trained on would be evaluated (minesweeper, mastermind)"),
        ("task_curriculum", tasks(split="train"), "evaluate_tasks.split='train': is collect.split as well"),
        ("paprika", tasks(split="train", first=3) | collect(tasks=4), "is collect.split as well"),
        ("evaluate_tasks", tasks(first=10**6), "evaluate_tasks.first=1000000: must be below"),
        ("paprika", offline(epochs=2), "offline.epochs: paprika ignores it; set paprika.sft_epochs"),
        ("task_curriculum", offline(epochs=2), "offline.epochs: task_curriculum ignores it"),
        ("paprika", offline(objective="preference"), "offline.objective: paprika ignores it"),
        ("task_curriculum", offline(objective="preference"), "choose with task_curriculum.objective"),
        ("paprika", offline(data="runs/x"), "offline.data: paprika ignores it where build_data is a stage"),
        ("task_curriculum", offline(data="runs/x"), "offline.data: task_curriculum ignores it"),
        ("paprika", build(trajectories="runs/x"), "build_data.trajectories: paprika ignores it; set paprika.collected"),
        ("paprika", {"paprika": PaprikaConfig(collected="runs/x")}, "(build_data,sft,rpo,evaluate_tasks), or this out"),
        ("task_curriculum", build(trajectories="runs/x"), "every round builds from what it collects"),
        ("paprika", {"policies": ("simple",)}, "policies: paprika ignores it"),
        ("task_curriculum", {"policies": ("simple",)}, "policies: task_curriculum ignores it"),
        (
            "task_curriculum",
            collect(samples=5),
            "collect.samples: task_curriculum ignores it; set task_curriculum.samp",
        ),
        ("task_curriculum", collect(samples_of=("mastermind=5",)), "collect.samples_of: task_curriculum ignores it"),
        ("collect", sampling(temperature=0.7), "rollout.sampling.temperature: collect ignores it; set collect.temp"),
        ("evaluate_tasks", sampling(min_p=0.1), "rollout.sampling.min_p: evaluate_tasks ignores it"),
        ("paprika", sampling(top_k=5), "rollout.sampling.top_k: paprika ignores it"),
        ("collect", {"adapter": AdapterConfig(base="nf4")}, "must be 'full'; collect plays at full precision"),
        ("task_curriculum", {"batch": BatchConfig(row_length=8192)}, "the longest trajectory that may be imitated"),
    ],
)
def test_what_would_fail_or_do_nothing_later_is_said_now(recipe, changes, words):
    found = validation.problems(config(recipe, **changes))
    assert any(words in problem for problem in found), found


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("paprika", stages("sft") | offline(data="runs/rows")),
        ("paprika", TWO | collect(tasks=2) | stages("collect", "build_data", "sft", "rpo")),
        ("paprika", build(leave_out=("mastermind",))),
        ("paprika", collect(samples=1, samples_of=("mastermind=2",))),
        ("paprika", collect(samples=1, samples_of=()) | stages("collect", "build_data", "sft")),
        ("paprika", tasks(split="train", first=4) | collect(tasks=4)),
        ("collect", collect(samples=1, samples_of=(), temperature=0.0)),
        ("collect", TWO | collect(tasks=2)),
        ("paprika", {"adapter": AdapterConfig(rank=4, base="nf4")}),
        ("evaluate_tasks", sampling(top_k=5)),
        (
            "task_curriculum",
            {"batch": BatchConfig(row_length=8192), "task_curriculum": TaskCurriculumConfig(objective="rpo")}
            | build(pair_tokens=4096),
        ),
        ("paprika", {"batch": BatchConfig(row_length=64)} | stages("sft") | offline(data="runs/rows")),
    ],
)
def test_what_would_work_is_not_refused(recipe, changes):
    assert validation.problems(config(recipe, **changes)) == []


def test_rows_to_train_on_must_be_there(tmp_path):
    def missing(*names, **values):
        return " ".join(validation.path_problems(config("paprika", **stages(*names), **offline(**values))))

    assert "paprika.collected is empty" in missing("build_data", "sft")
    assert "paprika.collected" not in missing("collect", "evaluate_tasks")
    assert "offline.data='runs/none': there is no such place" in missing("sft", data="runs/none")
    assert "offline.data" not in missing("sft", "rpo", data=str(tmp_path))
    file = tmp_path / "c.jsonl"
    file.touch()
    assert "is one file, but sft reads trajectories and rpo reads pairs" in missing("sft", "rpo", data=str(file))
    assert "offline.data" not in missing("rpo", data=str(file))


def test_a_run_in_place_of_its_weights_is_told_where_they_are(tmp_path):
    (tmp_path / "run" / "policy").mkdir(parents=True)
    for path, told in ((tmp_path / "run", True), (tmp_path / "run" / "policy", False)):
        found = validation.path_problems(config("collect", model=ModelConfig(path=str(path))))
        assert any("is a run; name its weights" in problem for problem in found) == told


def test_checking_loads_no_jax():
    script = (
        "import sys; from dfc import validation; from dfc.config import RunConfig; from dfc.task_config import *; "
        "validation.problems(RunConfig(recipe='paprika', games={'wordle': {}}, "
        "build_data=BuildDataConfig(rejected_failures=('malformed',)))); print('jax' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)  # noqa: S603 - our own interpreter and text
    assert found.stdout.strip() == "False"


def test_a_run_of_several_stages_is_not_taken_for_one_of_them(tmp_path):
    (tmp_path / "run" / "collect").mkdir(parents=True)
    config = RunConfig(recipe="build_data", build_data=BuildDataConfig(trajectories=str(tmp_path / "run")))
    (found,) = validation.path_problems(config)
    assert found.endswith(f"is a run of several stages; name {tmp_path / 'run' / 'collect'}")

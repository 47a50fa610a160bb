"""What is said before a run about tasks begins: what a later stage would find out, and what has no effect."""

import subprocess
import sys

import pytest

from dfc import validation
from dfc.config import (
    RECIPES,
    BatchConfig,
    BuildData,
    BuildDataConfig,
    CollectConfig,
    EvaluateTasksConfig,
    GamesRunConfig,
    ModelConfig,
    PreferenceConfig,
    RolloutConfig,
    RowsAdapterConfig,
    SamplingConfig,
    SelectionLimits,
    TaskCollectionConfig,
    TrainingRunConfig,
)

GAMES = {"minesweeper": {}, "mastermind": {}}
NAMES = ("paprika", "task_curriculum", "collect", "evaluate_tasks", "build_data", "sft", "preference")
COLD = SamplingConfig(temperature=0.0)


def config(recipe, **changes):
    """A valid configuration, with other values."""
    kind, values = RECIPES[recipe], {}
    if issubclass(kind, GamesRunConfig):
        values |= {"games": GAMES, "rollout": RolloutConfig(max_length=16_384)}
    if issubclass(kind, TrainingRunConfig):
        values["batch"] = BatchConfig(row_length=16_384)
    if recipe == "evaluate_tasks":
        values["policies"] = ("simple",)
    return kind(**(values | changes))


def collect(**values):
    return {"collect": CollectConfig(**values)}


def build(**values):
    return {"build_data": BuildDataConfig(**values)}


def tasks(**values):
    return {"evaluate_tasks": EvaluateTasksConfig(**values)}


def stages(*names, **values):
    return {"stages": names, **values}


def rpo(**values):
    return {"rpo": PreferenceConfig(**values)}


TWO, DEALS = {"games": {"Nim-v0": {}}}, {"games": {"TowerOfHanoi-v0": {}}}
FEW = {"collect": TaskCollectionConfig(tasks=2)}  # of a curriculum
LABELS = "rejected_failures: 'failed' must be one of malformed, illegal, aborted, truncated"


@pytest.mark.parametrize("recipe", NAMES)
def test_the_rest_of_each_configuration_is_sound(recipe):
    assert validation.problems(config(recipe)) == []


@pytest.mark.parametrize(
    ("recipe", "changes", "words"),
    [
        ("paprika", stages("collect", "sft"), "sft read what build_data writes; add it, or name data"),
        ("paprika", stages("rpo"), "rpo read what build_data writes"),
        ("paprika", stages("rpo", "sft"), "must be some of collect, build_data, sft, rpo, evaluate_tasks, each once"),
        ("paprika", stages("sft", "sft", data="x"), "each once, in this order"),
        ("paprika", stages(), "stages=(): must be some of collect,"),
        ("paprika", stages("evaluate_tasks"), "trains nothing; evaluate policies with the recipe evaluate_tasks"),
        ("task_curriculum", tasks(split="eval"), "evaluate_tasks.split='eval': minesweeper has"),
        ("task_curriculum", tasks(tasks_of={"wordl": 3}), "evaluate_tasks.tasks_of: there is no game 'wordl'"),
        ("paprika", collect(samples_of={"wordl": 3}), "collect.samples_of: there is no game 'wordl'"),
        ("collect", {"samples_of": {"wordl": 3}}, "samples_of: there is no game 'wordl'"),
        ("collect", {"samples_of": {"wordle": 0}}, "samples_of={'wordle': 0}: must be at least 1"),
        ("collect", {"samples_of": ("wordle=3",)}, "samples_of=('wordle=3',) (tuple): must be a mapping such as"),
        ("task_curriculum", {"join_groups": ("a=b+c",)}, "join_groups=('a=b+c',) (tuple): must be a mapping such as"),
        ("task_curriculum", {"join_groups": {"codes": ("a", "b")}}, "join_groups: 'codes': ('a', 'b') must be groups"),
        (
            "task_curriculum",
            tasks(temperatures=(0.5,)),
            "evaluate_tasks.temperatures=(0.5,): must be two or more; write ",
        ),
        ("task_curriculum", tasks(temperatures=(-1.0,)), "temperatures=(-1.0,): must be at least 0 each"),
        ("evaluate_tasks", {"temperatures": (0.7, -1)}, "temperatures=(0.7, -1): must be at least 0 each"),
        ("evaluate_tasks", {"tasks_of": {"bandit": -1}}, "tasks_of={'bandit': -1}: must be at least 1"),
        ("paprika", TWO | collect(tasks=2), "games.Nim-v0: is for two players against each other and has no tasks"),
        ("task_curriculum", TWO | FEW, "games.Nim-v0: is for two players"),
        ("evaluate_tasks", TWO | {"policies": ("simple",)}, "has no tasks to solve; use the recipe evaluate"),
        ("paprika", DEALS | collect(tasks=2) | tasks(tasks=0), "evaluate_tasks.tasks=0: TowerOfHanoi-v0 has no splits"),
        ("task_curriculum", DEALS | FEW | tasks(tasks=0), "evaluate_tasks.tasks=0: TowerOfHanoi-v0 has no splits"),
        (
            "paprika",
            build(game_groups=("wordle",)),
            "build_data.game_groups=('wordle',): wordle must be among this run's games",
        ),
        ("task_curriculum", {"build_data": SelectionLimits(leave_out=("wordle",))}, "must be among this run's games"),
        ("paprika", build(leave_out=("minesweeper", "mastermind")), "leaves no game to train on"),
        ("build_data", {"rejected_failures": ("malformed", "failed")}, LABELS),
        ("paprika", build(rejected_failures=("failed",)), f"build_data.{LABELS}"),
        ("paprika", collect(samples=1, samples_of={}), "one sample of a task makes no pair"),
        ("collect", {"sampling": COLD}, "sampling.temperature=0: must be above 0; without chance all samples of a"),
        ("collect", {"sampling": COLD}, "all samples of a task are the same (minesweeper, mastermind)"),
        (
            "task_curriculum",
            {"collect": TaskCollectionConfig(sampling=COLD)},
            "collect.sampling.temperature=0: must be",
        ),
        ("task_curriculum", {"samples": 1}, "samples=1: must be at least 2"),
        ("paprika", tasks(split="train"), "tasks that were trained on would be evaluated (minesweeper, mastermind)"),
        ("task_curriculum", tasks(split="train"), "evaluate_tasks.split='train': is collect.split as well"),
        ("paprika", tasks(split="train", first=3) | collect(tasks=4), "is collect.split as well"),
        ("evaluate_tasks", {"first": 10**6}, "first=1000000: must be below"),
        ("paprika", {"data": "runs/x"}, "data: is not read where build_data is a stage; take one of the two out"),
        ("paprika", {"collected": "runs/x"}, "(build_data,sft,rpo,evaluate_tasks), or this out"),
        ("paprika", rpo(preference_weight=0, alpha=0), "rpo.preference_weight and .alpha are both 0"),
        ("preference", {"preference_weight": 0, "alpha": 0}, "preference_weight and .alpha are both 0"),
        ("paprika", rpo(beta=0), "rpo.beta=0: must be above 0"),
        ("task_curriculum", {"batch": BatchConfig(row_length=256)}, "the longest trajectory that may be imitated"),
    ],
)
def test_what_would_fail_or_do_nothing_later_is_said_now(recipe, changes, words):
    found = validation.problems(config(recipe, **changes))
    assert any(words in problem for problem in found), found


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("paprika", stages("sft", data="runs/rows")),
        ("paprika", TWO | collect(tasks=2) | stages("collect", "build_data", "sft", "rpo")),
        ("paprika", build(leave_out=("mastermind",))),
        ("paprika", collect(samples=1, samples_of={"mastermind": 2})),
        ("paprika", collect(samples=1, samples_of={}) | stages("collect", "build_data", "sft")),
        ("paprika", tasks(split="train", first=4) | collect(tasks=4)),
        ("collect", {"samples": 1, "samples_of": {}, "sampling": COLD}),
        ("collect", TWO | {"tasks": 2}),
        ("paprika", {"adapter": RowsAdapterConfig(rank=4, base="nf4", dropout=0.1)}),
        ("evaluate_tasks", {"sampling": SamplingConfig(top_k=5)}),
        ("evaluate_tasks", {"sampling": COLD, "tasks_of": {"bandit": 300}}),
        (
            "task_curriculum",
            {
                "batch": BatchConfig(row_length=512),
                "objective": "rpo",
                "build_data": SelectionLimits(pair_tokens=256),
            },
        ),
        ("paprika", {"batch": BatchConfig(row_length=64)} | stages("sft", data="runs/rows")),
    ],
)
def test_what_would_work_is_not_refused(recipe, changes):
    assert validation.problems(config(recipe, **changes)) == []


def test_rows_to_train_on_must_be_there(tmp_path):
    def missing(*names, **values):
        return " ".join(validation.path_problems(config("paprika", **stages(*names, **values))))

    assert "collected is empty" in missing("build_data", "sft")
    assert "collected" not in missing("collect", "evaluate_tasks")
    assert "data='runs/none': there is no such place" in missing("sft", data="runs/none")
    assert "data" not in missing("sft", "rpo", data=str(tmp_path))
    file = tmp_path / "c.jsonl"
    file.touch()
    assert "is one file, but sft reads trajectories and rpo reads pairs" in missing("sft", "rpo", data=str(file))
    assert "data" not in missing("rpo", data=str(file))


def test_a_run_in_place_of_its_weights_is_told_where_they_are(tmp_path):
    (tmp_path / "run" / "policy").mkdir(parents=True)
    for path, told in ((tmp_path / "run", True), (tmp_path / "run" / "policy", False)):
        found = validation.path_problems(config("collect", model=ModelConfig(path=str(path))))
        assert any("is a run; name its weights" in problem for problem in found) == told


def test_checking_loads_no_jax():
    script = (
        "import sys; from dfc import validation; from dfc.config import *; "
        "validation.problems(Paprika(games={'wordle': {}}, "
        "build_data=BuildDataConfig(rejected_failures=('malformed',)))); print('jax' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)  # noqa: S603 - our own interpreter and text
    assert found.stdout.strip() == "False"


def test_a_run_of_several_stages_is_not_taken_for_one_of_them(tmp_path):
    (tmp_path / "run" / "collect").mkdir(parents=True)
    config = BuildData(trajectories=str(tmp_path / "run"))
    (found,) = validation.path_problems(config)
    assert found.endswith(f"is a run of several stages; name {tmp_path / 'run' / 'collect'}")

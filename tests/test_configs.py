import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest

import dfc
from dfc import validation
from dfc.config import RECIPES
from dfc.games import registry
from dfc.launch import command_line
from dfc.launch.overrides import override
from dfc.runs.run_folder import config_json

FOLDER = Path(__file__).resolve().parents[1] / "configs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name):
    return command_line.load(str(FOLDER / f"{name}.py"))


def test_the_shipped_files_are_all_here():
    assert {"smoke", "quickstart", "tiny_player", "dfc_textarena_qwen2_5_32b"} <= set(NAMES)
    shipped = Path(dfc.__file__).parent / "configs"
    assert sorted(path.stem for path in shipped.glob("*.py")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_file_is_valid_and_named_like_its_run(name):
    config = load(name)
    assert validation.problems(config) == []
    assert config.name == name
    assert json.loads(json.dumps(config_json(config)))["name"] == name
    assert override(config, []) == (config, [])
    assert type(config) is RECIPES[config.recipe]


@pytest.mark.parametrize("name", NAMES)
def test_the_head_of_a_file_says_what_one_needs_and_its_command_and_variant_are_right(name):
    head = (FOLDER / f"{name}.py").read_text().split('"""')[1]
    for label in ("Paper:", "Command:", "Hardware:", "Time:", "Score:", "Variant:"):
        assert f"\n{label} " in head
    (command,) = [line for line in head.splitlines() if line.startswith("Command:")]
    words = shlex.split(command.removeprefix("Command: "))
    assert words[:4] == ["python", "-m", "dfc.launch", f"--config=configs/{name}.py"]
    for command in re.findall(r"python -m dfc\.launch((?:\s+--\S+)+)", head):  # those that go before or after it, too
        file, *words = command.split()
        words = [word for word in words if word.startswith("--config.")]
        changed, found = override(load(Path(file).stem), words)
        assert found + validation.problems(changed) == []
    variant = head.split("\nVariant: ")[1].split()
    changed, found = override(load(name), [word for word in variant if word.startswith("--")])
    assert found == []
    assert changed != load(name)
    assert validation.problems(changed) == []


def test_the_paper_run_has_the_values_of_section_4_2():
    config = load("dfc_textarena_qwen2_5_32b")
    assert (config.divide_iterations, config.conquer_iterations) == (100, 100)
    assert (config.groups_per_game, config.group_size) == (50, 8)
    assert (config.optimizer.learning_rate, config.sampling.temperature) == (2e-6, 1.0)
    rollout = config.rollout
    assert (rollout.max_prompt_length, rollout.max_reply_length, rollout.max_actions) == (8192, 4096, 120)  # of a call
    assert rollout.max_length == config.batch.row_length == 8192 + 4096  # so that the last reply has its room, too
    assert dataclasses.astuple(config.mixed_priority) == (True, 0.2, 0.8, 0.1)
    assert (config.grpo.clip_ratio, config.grpo.kl_coefficient, config.evaluation.games) == (0.1, 0.1, 20)
    assert (config.opponent, config.acceptance.tolerance, config.grpo.updates_per_iteration) == ("itself", 0.0, 1)
    assert config.rollout.prompt == "think"
    assert len(config.games) == 18
    assert validation.device_problems(config, 64) == []


def test_a_limit_below_a_games_longest_play_is_named_and_no_other_shipped_file_has_one():
    (notice,) = validation.notices(load("dfc_textarena_qwen2_5_32b"))
    assert notice.startswith("rollout.max_actions=120 is below the longest play of ConnectFour-v0-large 180: longer ga")
    assert {name: validation.notices(load(name)) for name in NAMES if name != "dfc_textarena_qwen2_5_32b"} == {
        name: [] for name in NAMES if name != "dfc_textarena_qwen2_5_32b"
    }


def test_the_smoke_run_is_small():
    config = load("smoke")
    assert len(config.games) == 2
    assert max(config.divide_iterations, config.conquer_iterations) <= 2


def test_the_tiny_player_is_made_from_games_that_can_list_every_action():
    games = load("tiny_player").games
    assert set(games) <= set(registry.game_ids())
    assert not any(registry.make(game).info.open_actions for game in games)

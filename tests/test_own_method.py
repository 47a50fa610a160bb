"""The reward and the method of docs/add_a_method.md, as the page shows them; files of one's own that are no recipe."""

import json
import re
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from self_play_runs import MODEL, make_model

import dfc
import dfc.samples
from dfc.config import is_recipe
from dfc.errors import ConfigError
from dfc.games import functions

PAGE = Path(__file__).parent.parent / "docs" / "add_a_method.md"
SMALL = {
    "model.path": str(MODEL),  # of one layer
    "iterations": 2,
    "groups_per_game": 4,
    "group_size": 4,
    "rollout.slots": 8,
    "rollout.workers": 1,
    "rollout.max_length": 192,
    "rollout.prefill_buckets": (64,),
    "rollout.legal_only": True,
    "batch.row_length": 192,
    "evaluation.games": 2,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the two files of the page that are one's own, the first of them shown in three pieces."""
    _, *rewards, method, _ = re.findall(r"```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "rewards.py").write_text("\n\n".join(rewards))
    (tmp_path / "raft.py").write_text(method)
    monkeypatch.chdir(tmp_path)
    make_model()
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_method_of_the_page_trains_by_its_own_class_and_resumes():
    values = {**SMALL, "kept": 0.5, "reward.function": "rewards.py:quiet"}
    with jax.numpy_dtype_promotion("standard"):  # as optax wants it
        path = dfc.run(dfc.load_config("raft.py", values), workdir="run")
    assert (path / "policy" / "model.safetensors").exists()
    assert (path / "report.html").exists()
    stored = json.loads((path / "config.json").read_text())
    assert (stored["recipe"], stored["kept"]) == ("raft", 0.5)
    page = (path / "report.html").read_text()
    assert "raft is a recipe of a file of its own, whose defaults are not known here" in page
    assert "Settings that differ from the defaults" not in page
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["metrics"]
    assert "clip_fraction" not in last  # of GRPO's loss
    assert last["updates"] > 0
    assert dfc.run(dfc.load_config("raft.py", values), workdir="run") == path


@pytest.mark.usefixtures("folder")
def test_the_method_of_the_page_has_nothing_of_divide_fuse_conquer():
    config = dfc.load_config("raft.py")
    assert (config.random_action_rate, config.half_negative) == (0.0, False)
    assert (config.acceptance.rule, config.mixed_priority.enabled) == ("always", False)


@pytest.mark.usefixtures("folder")
def test_only_the_best_of_a_group_are_imitated():
    best_games = functions.named("raft.py:best_games")
    config = dfc.load_config("raft.py", {"kept": 0.5, "grpo.updates_per_iteration": 1})

    class Played:
        seat, counted = 0, True

        def __init__(self, number):
            self.group = number // 4
            self.sample = dfc.samples.Sample(
                np.full(3, number, np.int32), np.asarray([False, True, True]), np.zeros(3, np.float32)
            )

    played = [Played(number) for number in range(12)]
    played[0].counted = False
    values = [9.0, 1.0, 0.0, -1.0, *[0.5] * 4, 0.0, 0.0, 0.0, 1.0]
    now = types.SimpleNamespace(config=config, seed=lambda _: 0)
    shares = best_games(now, played, values)
    assert sorted(int(one.token_ids[0]) for share in shares for one in share) == [1, 11]


@pytest.mark.usefixtures("folder")
def test_the_reward_of_the_page_asks_for_what_it_says():
    quiet = functions.named("rewards.py:quiet")

    class Reply:
        def __init__(self, seat, text):
            self.seat, self.text = seat, text

    class Played:
        seat, outcome, steps = 0, "win", 2
        replies = (Reply(0, "[1 1]"), Reply(1, "LOUD"))

    assert quiet(Played) == pytest.approx(0.96)
    Played.replies = (Reply(0, "One"),)
    assert quiet(Played) == pytest.approx(0.46)
    Played.replies = (Reply(0, "[1 1]"), Reply(1, "LOUD"), Reply(0, "[2]"))
    np.testing.assert_allclose(functions.named("rewards.py:shorter_each_time")(Played), [-0.05, 0.97])
    no_shouting = functions.named("rewards.py:no_shouting")
    assert (no_shouting("TAKE [1 1]"), no_shouting("[1 1]")) == (-0.2, 0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("def run(", "def runs(", "has no function 'run'"),
        ('recipe="raft"', 'recipe="grpo"', "a name that no recipe has"),
        (', recipe="raft", module=__file__', "", "a name that no recipe has"),
        ("module=__file__", 'module="nowhere.py"', "nowhere.py cannot be read"),
        ("kept: ShareAboveZero = 0.25", "kept: ShareAboveZero = 0.0", "kept=0.0"),
    ],
)
def test_a_file_that_is_no_recipe_is_a_sentence(folder, old, new, says):
    code = (folder / "raft.py").read_text()
    assert old in code
    (folder / "wrong.py").write_text(code.replace(old, new, 1))
    with pytest.raises(ConfigError, match=says):
        dfc.run(dfc.load_config("wrong.py", SMALL), workdir="run")
    assert not (folder / "run").exists()


def test_a_class_without_a_file_of_its_own_is_no_recipe():
    assert not is_recipe(dict)
    assert not is_recipe(dfc.config.RunConfig)

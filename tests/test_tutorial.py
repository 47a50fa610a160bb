"""The tutorial's game and configuration, as the page shows them: checked, and trained for a moment."""

import json
import re
from pathlib import Path

import jax
import pytest

import dfc
from dfc.games import __main__ as games
from dfc.games import registry

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
GAME = "skittles.py:Skittles"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with the two files of the page."""
    shown = re.findall(r"`([\w.]+)`:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert [name for name, _ in shown] == ["skittles.py", "skittles_run.py"]
    for name, code in shown:
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def winning(standing):
    """Whether whoever moves wins, by trying everything."""
    pins = sorted(standing)
    moves = [{pin} for pin in pins] + [{pin, pin + 1} for pin in pins if pin + 1 in standing]
    return any(not winning(standing - move) for move in moves)


@pytest.mark.usefixtures("folder")
def test_the_game_is_what_the_page_says(capsys):
    assert games.main(["--check", GAME]) == 0
    assert "every property holds" in capsys.readouterr().out
    game = registry.make(GAME)

    def left(action):
        return frozenset(game.standing_pins) - set(map(int, action[1:-1].split()))

    for seed in range(12):
        game.reset(seed)
        wins = winning(frozenset(game.standing_pins))
        while game.to_move is not None:
            actions = game.legal_actions()
            game.step(next((action for action in actions if not winning(left(action))), actions[0]))
        assert (str(game.outcomes[0]) == "win") == wins


@pytest.mark.usefixtures("folder")
def test_its_configuration_trains_from_python():
    small = {"rollout.slots": 8, "rollout.workers": 1, "rollout.max_length": 192, "rollout.prefill_buckets": (64,)}
    small |= {"iterations": 2, "groups_per_game": 4, "group_size": 4, "batch.row_length": 192}
    small |= {"evaluation.games": 2}
    with jax.numpy_dtype_promotion("standard"):  # as optax wants it
        path = dfc.run(dfc.load_config("skittles_run.py", small), workdir="run")
    assert (path / "policy" / "model.safetensors").exists()
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["metrics"]
    assert last[f"games/{GAME}/format_rate"] == 1
    assert last["sampler_gap/max"] < 1e-3

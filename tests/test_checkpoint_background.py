"""Checkpoints that are written while training goes on; every moment is an event, none a time."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint._src.serialization import serialization
from processes import python

from dfc.config import Grpo
from dfc.errors import CheckpointError, Interrupted, RunFolderError
from dfc.runs import checkpoint
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training.run import ParamsState, TrainingRun, loop


@pytest.fixture(autouse=True)
def _pack_only_what_is_tiny(monkeypatch):
    monkeypatch.setattr(checkpoint, "_PACKED_UP_TO", 1000)


@pytest.fixture
def held(monkeypatch):
    """Nothing of an array reaches the disk before this is set."""
    event, write = threading.Event(), serialization.async_serialize_from_host

    async def held_write(*given, **more):
        assert event.wait(60)
        return await write(*given, **more)

    monkeypatch.setattr(serialization, "async_serialize_from_host", held_write)
    yield event
    event.set()


def arrays(number):
    return {"large": jnp.full((60, 50), number, jnp.float32), "small": jnp.full((3,), number, jnp.float32)}


def test_training_goes_on_while_it_is_written_and_may_reuse_the_memory(tmp_path, held):
    """The update takes the memory of what is being saved, as a trainer's does; numpy arrays are written over."""
    update = jax.jit(lambda tree: jax.tree.map(lambda x: x * 2 + 1, tree), donate_argnums=0)
    checkpointer = Checkpointer(tmp_path, keep=2)
    buffer = np.full((60, 50), 7.0)
    for step in (1, 2):
        held.clear()
        params = arrays(step)
        checkpointer.save(step, {"params": params, "buffer": buffer}, {"step": step}, wait=False)
        for _ in range(5):
            params = update(params)
            buffer += 1
        assert float(params["large"][0, 0]) == 32 * step + 31
        assert checkpointer.steps() == list(range(1, step))
        held.set()
        checkpointer.wait()
        assert checkpointer.steps() == list(range(1, step + 1))
        restored = checkpointer.restore()
        assert (restored.step, restored.progress) == (step, {"step": step})
        assert (restored.arrays["params"]["large"] == step).all()
        assert (restored.arrays["params"]["small"] == step).all()
        assert (restored.arrays["buffer"] == 7 + 5 * (step - 1)).all()


def test_the_next_save_and_a_restore_wait_for_the_one_under_way(tmp_path, held):
    checkpointer = Checkpointer(tmp_path, keep=2)
    checkpointer.save(1, arrays(1), {}, wait=False)
    order = []

    def release():
        order.append("released")
        held.set()

    threading.Timer(0, release).start()
    checkpointer.save(2, arrays(2), {}, wait=False)
    order.append("begun")
    assert order == ["released", "begun"]
    assert checkpointer.restore().step == 2


def full(*_):
    raise OSError(28, "No space left on device")


def test_what_goes_wrong_behind_is_raised_once_at_the_next_call(tmp_path, monkeypatch):
    checkpointer = Checkpointer(tmp_path, keep=3)
    checkpointer.save(1, arrays(1), {})
    said = r"cannot save the checkpoint .*step_000000002: .*No space left on device(.|\n)*the same command resumes"
    for call in (
        checkpointer.wait,
        checkpointer.restore,
        lambda: checkpointer.save(3, arrays(3), {}),
        lambda: checkpointer.keep_only([1]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "_checksum", full)
            checkpointer.save(2, arrays(2), {}, wait=False)
            with pytest.raises(CheckpointError, match=said):
                call()
        assert checkpointer.restore().step == 1  # and nothing is raised again
        assert [path.name for path in tmp_path.iterdir()] == ["step_000000001"]
    checkpointer.save(3, arrays(3), {})
    assert checkpointer.restore().step == 3


def test_an_array_that_cannot_be_written_is_named_without_a_trace(tmp_path, monkeypatch, caplog):
    async def refuses(*_, **__):
        raise ValueError("RESOURCE_EXHAUSTED: quota")

    monkeypatch.setattr(serialization, "async_serialize_from_host", refuses)
    checkpointer = Checkpointer(tmp_path, keep=3)
    checkpointer.save(1, arrays(1), {}, wait=False)
    with pytest.raises(CheckpointError, match="step_000000001: RESOURCE_EXHAUSTED: quota"):
        checkpointer.wait()
    assert not checkpointer.steps()
    assert not [record.message for record in caplog.records if record.exc_info]


KILLED = """
import os, signal, sys
from pathlib import Path
import jax.numpy as jnp
from orbax.checkpoint._src.serialization import serialization
from dfc.runs import checkpoint

checkpoint._PACKED_UP_TO = 1000
checkpointer = checkpoint.Checkpointer(Path(sys.argv[1]), keep=2)
checkpointer.save(1, {"w": jnp.full((60, 50), 1.0)}, {})
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

async def killed(*_, **__):
    kill()

match sys.argv[2]:
    case "before an array": serialization.async_serialize_from_host = killed
    case "before the manifest": checkpoint._files = kill
    case "before the rename": Path.rename = kill
checkpointer.save(2, {"w": jnp.full((60, 50), 2.0)}, {}, wait=False)
checkpointer.wait()
"""


@pytest.mark.parametrize("moment", ["before an array", "before the manifest", "before the rename"])
def test_a_kill_while_it_is_written_leaves_the_one_before(tmp_path, moment):
    process = python(KILLED, tmp_path, moment)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -9, errors
    checkpointer = Checkpointer(tmp_path, keep=2)
    assert checkpointer.steps() == [1]
    assert (checkpointer.restore().arrays["w"] == 1).all()
    checkpointer.save(3, arrays(3), {})
    assert not list(tmp_path.glob(".partial*"))


# ---- a run -----------------------------------------------------------------------------------------------------------


class Run(TrainingRun):
    """Adds one in an iteration."""

    def begin(self):
        return ParamsState(0, jnp.zeros((60, 50)), None)

    def template(self, saved):
        return saved

    def state_of(self, restored):
        return ParamsState(restored.step, restored.arrays["params"], None)

    def diverged(self, state, why):
        raise AssertionError(state, why)


def opened(tmp_path, stop):
    folder = RunFolder.open(tmp_path / "run", Grpo(games={"TicTacToe-v0": {}}), command="")
    return folder, Run(folder, stop, Checkpointer(folder.checkpoints, keep=2))


def trained(run, stop=None, last=3):
    """Runs to the last iteration; asks to stop within the iteration `stop`."""
    state = run.restore() or run.begin()

    def once(state):
        state.params, state.done = state.params + 1, state.done + 1
        if state.done == stop:
            run.stop._noted = 15

    loop(run, state, once, lambda _: None, left=lambda: state.done < last, due=lambda: True)
    return state


def test_a_run_that_stops_or_ends_has_its_last_checkpoint_whole(tmp_path, capsys):
    folder, run = opened(tmp_path, Stop())
    with folder, pytest.raises(Interrupted):
        trained(run, stop=2)
    assert run.checkpointer.steps() == [1, 2]
    folder, run = opened(tmp_path, Stop())
    with folder:
        assert (trained(run).params == 3).all()
        assert run.checkpointer.steps() == [2, 3]
    assert "resuming after iteration 2;" in capsys.readouterr().out


@pytest.mark.parametrize("stop", [None, 3])
def test_a_failed_write_ends_the_run_whether_it_was_to_stop_or_not(tmp_path, monkeypatch, stop):
    """A stop does not hide it: the state that it promises to have saved is not there."""
    folder, run = opened(tmp_path, Stop())
    checksum = checkpoint._checksum

    def third_fails(path):
        return full() if "000000003" in str(path) else checksum(path)

    monkeypatch.setattr(checkpoint, "_checksum", third_fails)
    with folder, pytest.raises(CheckpointError, match=r"step_000000003: .*No space left"):
        trained(run, stop=stop)
    assert run.checkpointer.steps() == [1, 2]


def test_a_folder_stays_locked_until_nothing_is_written_in_it(tmp_path, held):
    """An error ends the run while its checkpoint is being written; another start would write to the same place."""
    folder, run = opened(tmp_path, Stop())
    state = run.begin()
    state.done = 1
    refused = []

    def look():
        try:
            opened(tmp_path, Stop())
        except RunFolderError as error:
            refused.append(str(error))
        held.set()

    def fails():
        with folder:
            run.save(state)
            threading.Timer(0, look).start()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert "in use" in refused[0]
    folder, run = opened(tmp_path, Stop())
    with folder:
        assert run.restore().done == 1

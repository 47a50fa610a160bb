import io
import math

import pytest
from processes import outcome, python
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from dfc.config import DivideFuseConquer
from dfc.runs.metrics import MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder


def points(folder):
    """Reads TensorBoard's record format: length, its checksum, an Event message, its checksum."""
    found = []
    for path in sorted(folder.tensorboard.iterdir()):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            body = data[12 : 12 + length]
            assert int.from_bytes(data[12 + length : 16 + length], "little") == masked_crc32c(body)
            event = event_pb2.Event.FromString(body)
            found += [(value.tag, event.step, event.wall_time, value.simple_value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def write(writer, steps):
    for step in steps:
        writer.write(
            step=step,
            stage="divide",
            iteration=step,
            metrics={"loss": step / 4, "kl": math.nan if step == 1 else 0.0},
            clock={"time": 1000.0 + step, "seconds": 0.5},
        )


def test_a_resumed_run_shows_every_point_once(tmp_path):
    config = DivideFuseConquer()
    with RunFolder.open(tmp_path, config, command="") as folder, MetricsWriter(folder) as writer:
        write(writer, range(3))
        positions = folder.positions()
        write(writer, range(3, 5))
    for path in folder.tensorboard.iterdir():
        path.rename(path.with_name(f"{path.name}.earlier"))  # a later second would have given it another name
    with RunFolder.open(tmp_path, config, command="") as folder:
        folder.rewind(positions)
        with MetricsWriter(folder) as writer:
            write(writer, range(3, 6))
        records = folder.records("metrics")
    shown = points(folder)
    assert [(step, time, value) for tag, step, time, value in shown if tag == "loss"] == [
        (step, 1000.0 + step, step / 4) for step in range(6)
    ]
    assert [step for tag, step, _, value in shown if tag == "kl" and math.isnan(value)] == [1]
    assert {tag for tag, *_ in shown} == {"loss", "kl", "clock/seconds"}
    assert records[1] == {
        "step": 1,
        "stage": "divide",
        "iteration": 1,
        "metrics": {"loss": 0.25, "kl": "nan"},
        "clock": {"time": 1001.0, "seconds": 0.5},
    }


# ---- progress -----------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def update(progress, step, **changes):
    values = {
        "stage": "divide 1",
        "iteration": step,
        "iterations": 8,
        "step": step,
        "episodes_per_second": 12.34,
        "tokens_per_second": 5678.0,
        "win_rates": {"Nim-v0": 0.5, "TicTacToe-v0": 0.25},
    }
    progress.update(**values | changes)


def test_torch_is_not_loaded_for_it_and_can_be_later(tmp_path):
    script = """
        import importlib.util, pathlib, sys
        from dfc.config import DivideFuseConquer
        from dfc.runs.metrics import MetricsWriter
        from dfc.runs.run_folder import RunFolder

        folder = pathlib.Path(sys.argv[1])
        with RunFolder.open(folder, DivideFuseConquer(), command="") as folder, MetricsWriter(folder) as writer:
            writer.write(step=1, stage="one", iteration=1, metrics={"loss": 0.5}, clock={"time": 1.0})
        print("torch" in sys.modules, importlib.util.find_spec("torch") is not None)
    """
    assert outcome(python(script, tmp_path)) == "False True\n"
    with RunFolder.open(tmp_path, DivideFuseConquer(), command="") as folder:
        assert points(folder) == [("loss", 1, 1.0, 0.5)]


def test_without_a_terminal_there_are_plain_lines_a_few_seconds_apart():
    now = [0.0]
    output = io.StringIO()
    with Progress(20, start_step=4, output=output, clock=lambda: now[0]) as progress:
        for step in range(5, 9):
            now[0] += 3.0
            update(progress, step, stage="divide\x1b[31m 1")
    lines = output.getvalue().splitlines()
    assert [line.split("]")[0] for line in lines] == ["[5/20", "[7/20", "[8/20"]  # the last one comes with the end
    assert "iteration 7/8, 12.3 episodes/s, 5,678 tokens/s" in lines[1]
    assert "0:00:09 elapsed, 0:00:39 left" in lines[1]  # 3 steps in 9 s, 13 to go
    assert lines[1].endswith("won: Nim-v0 50% TicTacToe-v0 25%")
    assert all(character.isprintable() for line in lines for character in line)


def test_the_time_left_counts_only_steps_of_this_process():
    now = [100.0]
    progress = Progress(110, start_step=100, output=io.StringIO(), clock=lambda: now[0])
    assert progress.seconds_left() is None
    now[0] += 8.0
    update(progress, 104)
    assert progress.seconds_left() == pytest.approx(6 * 8 / 4)


def test_a_terminal_shows_a_panel_with_everything():
    output = Terminal()
    with Progress(20, output=output) as progress:
        update(progress, 3)
    for text in ("divide 1: iteration 3/8", "episodes/s", "step 3/20", "Nim-v0", "25% won", "left"):
        assert text in output.getvalue()

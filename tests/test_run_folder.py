import dataclasses
import json
import os
import re
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from dfc import files
from dfc.config import (
    DivideFuseConquer,
    Evaluate,
    OptimizerConfig,
    Sft,
)
from dfc.errors import CheckpointError, RunFolderError
from dfc.runs.metrics import MetricsWriter
from dfc.runs.run_folder import RunFolder, json_line
from dfc.runs.stop_signals import Interrupted, Stop

CONFIG = DivideFuseConquer(name="a", seed=3, games={"Nim-v0": {"piles": (1, 2)}})


def opened(path, config=CONFIG):
    return RunFolder.open(path, config, command="the command")


def test_a_new_folder_holds_the_resolved_configuration_and_versions(tmp_path):
    with opened(tmp_path / "deep" / "run") as folder:
        assert not folder.existed
        folder.note_device("8 x CPU")
    config = json.loads((folder.path / "config.json").read_text())
    assert config["recipe"] == "divide_fuse_conquer"
    assert set(config) == {"recipe", *(field.name for field in dataclasses.fields(CONFIG))}
    assert config["games"] == {"Nim-v0": {"piles": [1, 2]}}
    assert config["optimizer"]["learning_rate"] == OptimizerConfig().learning_rate
    assert list(config) == sorted(config)
    (start,) = json.loads((folder.path / "versions.json").read_text())["starts"]
    assert start["command"] == "the command"
    assert start["device"] == "8 x CPU"
    assert start["packages"]["numpy"] == np.__version__


def test_the_same_configuration_opens_a_folder_again_whatever_its_name(tmp_path):
    opened(tmp_path / "run").close()
    with opened(tmp_path / "run", dataclasses.replace(CONFIG, name="other")) as folder:
        assert folder.existed
    assert len(json.loads((folder.path / "versions.json").read_text())["starts"]) == 2


def test_a_folder_whose_run_recorded_nothing_takes_corrected_settings(tmp_path):
    with opened(tmp_path / "run") as folder:
        with MetricsWriter(folder):
            pass
        (folder.path / "trajectories").mkdir()
        (folder.path / ".versions.json.partial").write_text("{")
        (folder.path / "trajectories" / ".lock").write_text("1")
        folder.report.write_text("<html>")
    other = dataclasses.replace(CONFIG, seed=4)
    with opened(tmp_path / "run", other) as folder:
        assert not folder.existed
        assert json.loads((folder.path / "config.json").read_text())["seed"] == 4
    with opened(tmp_path / "run", other) as folder:
        assert folder.existed
        (folder.path / "trajectories" / "part-0.parquet").write_text("rows")
    with pytest.raises(RunFolderError, match="seed: the folder has 4, this run has 3"):
        opened(tmp_path / "run")


def test_settings_that_are_not_a_runs_own_or_whose_rows_lie_elsewhere_are_not_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(RunFolderError, match="model_type: the folder has 'llama'"):
        opened(tmp_path / "model")
    opened(tmp_path / "run").close()
    (tmp_path / "rows").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "rows")
    with pytest.raises(RunFolderError, match="seed: the folder has 3, this run has 4"):
        opened(tmp_path / "run", dataclasses.replace(CONFIG, seed=4))


def test_a_run_of_another_version_is_named_as_such_with_what_to_do(tmp_path):
    with opened(tmp_path / "run") as folder:
        folder.append("metrics", [{"step": 1}])
    path = tmp_path / "run" / "config.json"
    stored = json.loads(path.read_text())
    stored["staff"] = stored.pop("simulators")
    stored["rollout"]["widths"] = stored["rollout"].pop("prefill_buckets")
    path.write_text(json.dumps(stored))
    with pytest.raises(RunFolderError, match=r"another version of dfc: its config\.json has .*staff") as caught:
        opened(tmp_path / "run")
    assert "rollout.widths" in str(caught.value)
    assert "Continue it with the version that versions.json names, or give another --workdir" in str(caught.value)


@pytest.mark.parametrize("config", [CONFIG, Sft(name="a", data="rows"), Evaluate(name="a", policies=("strong",))])
def test_a_run_of_before_chat_templates_were_told_anything_goes_on_as_it_was(tmp_path, config):
    with opened(tmp_path / "run", config) as folder:
        folder.append("metrics", [{"step": 1}])
    path = tmp_path / "run" / "config.json"
    stored = json.loads(path.read_text())
    section = stored.get("model", stored)
    assert section.pop("enable_thinking") in (None, {})
    path.write_text(json.dumps(stored))
    with opened(tmp_path / "run", config) as folder:
        assert folder.existed
    told = {"enable_thinking": {"strong": False}}
    if not isinstance(config, Evaluate):
        told = {"model": dataclasses.replace(config.model, enable_thinking=False)}
    with pytest.raises(RunFolderError, match="enable_thinking: the folder has 'absent', this run has "):
        opened(tmp_path / "run", dataclasses.replace(config, **told))
    section.pop("path" if "path" in section else "seed")  # any other setting is not passed over
    path.write_text(json.dumps(stored))
    with pytest.raises(RunFolderError, match=r"(path|seed): the folder has 'absent'"):
        opened(tmp_path / "run", config)


def test_another_configuration_is_refused_with_every_difference_named(tmp_path):
    with opened(tmp_path / "run") as folder:
        folder.append("metrics", [{"step": 1}])
    other = dataclasses.replace(CONFIG, seed=4, games={"Nim-v0": {}}, optimizer=OptimizerConfig(b2=0.5))
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(RunFolderError, match="holds the run of another configuration") as caught:
        opened(tmp_path / "run", other)
    text = str(caught.value)
    assert "seed: the folder has 3, this run has 4" in text
    assert "games.Nim-v0.piles: the folder has [1, 2], this run has 'absent'" in text
    assert "optimizer.b2: the folder has 0.95, this run has 0.5" in text
    assert text.count("  - ") == 3
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    opened(tmp_path / "run").close()  # the refusal has given the lock back


def test_the_folder_of_another_recipe_is_refused(tmp_path):
    with opened(tmp_path / "run") as folder:
        folder.append("metrics", [{"step": 1}])
    with pytest.raises(RunFolderError, match="recipe: the folder has 'divide_fuse_conquer', this run has 'sft'"):
        opened(tmp_path / "run", Sft(name="a", seed=3))


def test_a_folder_with_foreign_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"is no run folder: it has no config\.json, but holds thesis\.txt"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(RunFolderError, match="is a file"):
        opened(tmp_path / "thesis.txt")


def test_an_empty_folder_and_one_whose_start_was_cut_short_are_taken(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.json.partial").write_text("{")
    with opened(tmp_path) as folder:
        assert not folder.existed


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match=r"cannot write to .*file/run"):
        opened(tmp_path / "file" / "run")
    folder = opened(tmp_path / "run")
    folder.stream("metrics").mkdir()
    with pytest.raises(RunFolderError, match=r"cannot write to .*metrics\.jsonl: Is a directory"):
        folder.append("metrics", [{}])
    folder.close()


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    folder = opened(tmp_path)
    real = files.open_to_append
    monkeypatch.setattr(files, "open_to_append", lambda _: real(Path("/dev/full")))
    folder.append("episodes", [{"text": "x"}])
    with pytest.raises(RunFolderError, match=r"cannot write to .*episodes\.jsonl: No space left on device"):
        folder.flush()
    with pytest.raises(RunFolderError, match="No space left"):
        folder.close()


def test_two_runs_cannot_share_a_folder(tmp_path):
    with opened(tmp_path / "run"), pytest.raises(RunFolderError, match="in use by another running process"):
        opened(tmp_path / "run")
    opened(tmp_path / "run").close()


def test_rewinding_makes_a_resumed_run_write_the_same_bytes(tmp_path):
    def write(folder, first, last):
        for index in range(first, last):
            folder.append("metrics", [{"step": index, "metrics": {"loss": 0.1 * index}}])
            folder.append("episodes", ({"text": "ü" * index, "seat": seat} for seat in (0, 1)))

    with opened(tmp_path / "whole") as whole:
        write(whole, 0, 9)
    with opened(tmp_path / "cut") as cut:
        write(cut, 0, 5)
        positions = json.loads(json.dumps(cut.positions()))
        write(cut, 5, 7)
        cut.append("evaluations", [{"won": 1}])
    with opened(tmp_path / "cut") as cut:
        cut.rewind(positions)
        assert cut.records("evaluations") == []
        write(cut, 5, 9)
    for stream in ("metrics", "episodes"):
        assert cut.stream(stream).read_bytes() == whole.stream(stream).read_bytes()
    with opened(tmp_path / "cut") as cut:
        cut.rewind({})
        assert cut.positions() == {"metrics": 0, "evaluations": 0, "episodes": 0}


def test_rewinding_in_the_same_process_drops_what_was_buffered(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("metrics", [{"a": 1}])
        positions = folder.positions()
        folder.append("metrics", [{"a": 2}])
        folder.rewind(positions)
        folder.append("metrics", [{"a": 3}])
        assert folder.records("metrics") == [{"a": 1}, {"a": 3}]


def test_a_stream_shorter_than_its_checkpoint_says_is_named_and_nothing_is_cut(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("metrics", [{"a": 1}])
        folder.append("episodes", [{"a": 1}])
        size = folder.positions()["metrics"]
        with pytest.raises(CheckpointError, match=rf"episodes\.jsonl has {size} bytes, .* had 99"):
            folder.rewind({"metrics": 0, "episodes": 99})
        assert folder.positions()["metrics"] == size


def test_a_record_is_valid_json_whatever_its_numbers():
    record = {
        "a": float("nan"),
        "b": [np.float32("inf"), {"c": -np.inf}],
        "d": np.int64(3),
        "e": np.arange(2),
        "f": None,
    }
    line = json_line(record)
    assert line.endswith(b"\n")

    def fail(constant):
        raise AssertionError(constant)

    expected = {"a": "nan", "b": ["inf", {"c": "-inf"}], "d": 3, "e": [0, 1], "f": None}
    assert json.loads(line, parse_constant=fail) == expected
    assert json_line({"d": np.int64(3), "x": 0.1}) == b'{"d":3,"x":0.1}\n'
    with pytest.raises(TypeError, match="a record can hold"):
        json_line({"a": object()})


def test_a_damaged_line_is_named(tmp_path):
    with opened(tmp_path) as folder:
        folder.stream("metrics").write_text('{"a":1}\n{"a":')
        with pytest.raises(RunFolderError, match=r"metrics\.jsonl, line 2"):
            folder.records("metrics")


# ---- stopping -----------------------------------------------------------------------------------------------------


def test_a_signal_is_noted_and_the_handlers_of_before_come_back():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        stop.check()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # schedulers repeat it; the saving goes on
        with pytest.raises(Interrupted, match="stopped by SIGTERM") as caught:
            stop.check()
        assert caught.value.signal_number == signal.SIGTERM
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_the_second_ctrl_c_stops_at_once():
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize("filler", [1, 1 << 16, 200_000])
def test_mending_cuts_half_a_line_off_every_stream_and_leaves_whole_ones(tmp_path, filler):
    with RunFolder.open(tmp_path, CONFIG, command="") as folder:
        folder.append("metrics", [{"n": 1}, {"text": "x" * filler}])
        folder.append("episodes", [{"n": 2}])
        folder.flush()
        whole = {name: folder.stream(name).read_bytes() for name in ("metrics", "episodes")}
        for name, half in (("metrics", b'{"n":' + b"1" * filler), ("evaluations", b'{"a'), ("episodes", b"")):
            with folder.stream(name).open("ab") as file:
                file.write(half)
        folder.mend()
        assert {name: folder.stream(name).read_bytes() for name in whole} == whole
        assert folder.stream("evaluations").read_bytes() == b""
        folder.append("metrics", [{"n": 3}])
        assert [record.get("n") for record in folder.records("metrics")] == [1, None, 3]


LINKED = [
    *("metrics.jsonl", "evaluations.jsonl", "episodes.jsonl", "versions.json", ".versions.json.partial", ".lock"),
    *(".config.json.partial", "report.html", "tensorboard", "policy", "trajectories", "data"),
]


@pytest.mark.parametrize("name", LINKED)
def test_a_run_folder_with_a_link_is_refused_by_name_before_anything_is_changed(tmp_path, name):
    with opened(tmp_path / "run") as folder:
        folder.append("metrics", [{"step": 1}])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    victim = outside if "." not in name else outside / "file"
    (folder.path / name).unlink(missing_ok=True)
    (folder.path / name).symlink_to(victim)

    def state():
        return {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}

    before = state()
    with pytest.raises(RunFolderError, match=re.escape(f"{folder.path / name} -> {victim}\nRemove them")):
        opened(folder.path)
    assert state() == before
    assert (outside / "file").read_text() == "mine"


def test_checkpoints_may_lead_to_a_folder_but_none_of_them_be_a_link(tmp_path):
    opened(tmp_path / "run").close()
    large = tmp_path / "large"
    (tmp_path / "run" / "checkpoints").symlink_to(large)
    with pytest.raises(RunFolderError, match="checkpoints -> "):
        opened(tmp_path / "run")
    large.mkdir()
    (large / "latest").symlink_to("step_000000001")  # the owner's own
    opened(tmp_path / "run").close()
    (large / "attempt_1").symlink_to(tmp_path)
    with pytest.raises(RunFolderError, match="attempt_1 -> "):
        opened(tmp_path / "run")


def test_a_link_that_comes_while_the_run_goes_on_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine\nmore\n")
    with opened(tmp_path / "run") as folder:
        folder.stream("metrics").symlink_to(victim)
        for change in (lambda: folder.append("metrics", [{"step": 1}]), lambda: folder.rewind({})):
            with pytest.raises(RunFolderError, match=r"metrics.jsonl: is a symbolic link, and nothing is written") as e:
                change()
            assert "free space" not in str(e.value)
    assert victim.read_text() == "mine\nmore\n"


def test_a_new_run_folder_is_its_owners_and_one_that_was_there_keeps_its_mode(tmp_path):
    def mode(path):
        return path.stat().st_mode & 0o777

    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    before = os.umask(0o002)
    try:
        opened(shared).close()
        opened(tmp_path / "runs" / "new").close()
        RunFolder.open(shared / "sft", CONFIG, command="", within=shared).close()
    finally:
        os.umask(before)
    assert [mode(shared), mode(tmp_path / "runs"), mode(tmp_path / "runs" / "new")] == [0o775, 0o775, 0o700]
    assert mode(shared / "sft") == 0o775  # whoever may look into the whole run may look into its stages


def test_a_run_folder_may_be_named_by_a_link_and_no_folder_of_a_stage_be_one(tmp_path):
    whole, elsewhere = tmp_path / "whole", tmp_path / "elsewhere"
    for path in (whole, elsewhere):
        path.mkdir()
    (tmp_path / "link").symlink_to(whole)
    opened(tmp_path / "link").close()
    (whole / "skills").mkdir()
    (whole / "skills" / "sft").symlink_to(elsewhere)
    (whole / "base").symlink_to(elsewhere)
    for stage, named in (("skills/sft", "skills/sft"), ("base/deeper", "base")):
        with pytest.raises(RunFolderError, match=f"{named}: is a symbolic link"):
            RunFolder.open(whole / stage, CONFIG, command="", within=whole)
    assert not list(elsewhere.iterdir())

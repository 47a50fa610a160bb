"""Log-probabilities of the reference: computed once, kept beside the data, completed after a stop, repaired."""

import errno

import numpy as np
import offline_runs
import pyarrow as pa
import pyarrow.parquet
import pytest
from offline_rows import pairs, write_pairs
from offline_runs import ROWS, StopsAfter, configured, run
from recipe_runs import lines, untimed

from dfc import files
from dfc.config import Preference
from dfc.records.trajectory_files import write_atomically
from dfc.rows.training_rows import TrainingRows
from dfc.runs.stop_signals import Interrupted
from dfc.training import reference_logprobs
from dfc.training.trainer import Trainer

model, data = offline_runs.model, offline_runs.data  # the fixtures


@pytest.fixture
def counted(monkeypatch):
    """Counts micro-batches whose reference is computed; parts are small."""
    monkeypatch.setattr(reference_logprobs, "_TOKENS_PER_PART", 250)
    computed, found = [], Trainer.logprobs

    def noted(self, params, batches, **options):
        computed.append(len(batches))
        return found(self, params, batches, **options)

    monkeypatch.setattr(Trainer, "logprobs", noted)
    return computed


def cache(data):
    (folder,) = data.glob("reference-*")
    return folder, sorted(folder.glob("part-*.parquet"))


def test_the_reference_is_computed_once_and_read_by_the_next_run(tmp_path, model, data, counted, capsys):
    config = configured(model, data, Preference)
    first = run(tmp_path / "first", config)
    folder, parts = cache(data)
    assert len(parts) == len(counted) > 3
    stored = [part.read_bytes() for part in parts]
    capsys.readouterr()
    second = run(tmp_path / "second", config)
    assert len(counted) == len(parts)
    assert f"read from {folder}" in capsys.readouterr().out
    assert untimed(second) == untimed(first)
    assert [part.read_bytes() for part in cache(data)[1]] == stored
    # Other weights, other data: other folders.
    run(tmp_path / "other", configured(first / "policy", data, Preference, epochs=1))
    write_pairs(data / "pairs.parquet", pairs(ROWS, seed=9))
    run(tmp_path / "data", config)
    assert len(list(data.glob("reference-*"))) == 3


def test_a_stopped_reference_goes_on_with_what_is_missing(tmp_path, model, data, counted):
    whole = run(tmp_path / "whole", configured(model, data, Preference))
    folder, parts = cache(data)
    stored = [part.read_bytes() for part in parts]
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", configured(model, data, Preference), StopsAfter(2))
    assert len(cache(data)[1]) == 2
    counted.clear()
    resumed = run(tmp_path / "parts", configured(model, data, Preference))
    assert len(counted) == len(parts) - 2
    assert [part.read_bytes() for part in cache(data)[1]] == stored
    assert untimed(resumed) == untimed(whole)


def test_a_damaged_part_is_computed_again(tmp_path, model, data, counted, capsys):
    whole = run(tmp_path / "whole", configured(model, data, Preference))
    _, parts = cache(data)
    stored = parts[1].read_bytes()
    for broken in (stored[:-30], stored[:60] + bytes(b ^ 255 for b in stored[60:90]) + stored[90:]):
        parts[1].write_bytes(broken)
        counted.clear()
        capsys.readouterr()
        again = run(tmp_path / f"again {len(broken)}", configured(model, data, Preference))
        assert len(counted) == 1
        assert f"{parts[1]} is damaged" in capsys.readouterr().out
        assert parts[1].read_bytes() == stored
        assert untimed(again) == untimed(whole)
    table = pa.parquet.read_table(parts[0])
    write_atomically(table.set_column(0, "row", pa.array([n + 1 for n in table["row"].to_pylist()])), parts[0])
    run(tmp_path / "other rows", configured(model, data, Preference))
    assert f"{parts[0]} is of other rows" in capsys.readouterr().out


def test_where_the_data_cannot_be_written_beside_the_run_folder_keeps_the_reference(
    tmp_path, model, data, monkeypatch, capsys
):
    monkeypatch.setattr(reference_logprobs, "key", lambda *_, **__: "k")
    (data / "reference-k").write_text("a file where the folder would be")
    path = run(tmp_path / "run", configured(model, data, Preference))
    assert len(list((path / "reference-k").glob("part-*"))) == 1
    assert f"log-probabilities of the reference go to {path}" in capsys.readouterr().out


def test_without_reference_none_is_computed(tmp_path, model, data, counted):
    settings = {"reference": False, "normalize_length": True, "alpha": 0.0, "margin": 0.5}
    path = run(tmp_path / "run", configured(model, data, Preference, **settings))
    assert not counted
    assert not list(data.glob("reference-*"))
    assert not any("drift" in name for name in lines(path)[0]["metrics"])


def test_supervised_training_on_the_chosen_sides_computes_no_reference(tmp_path, model, data, counted):
    path = run(tmp_path / "run", configured(model, data, Preference, preference_weight=0.0))
    assert not counted
    first, last = (lines(path)[n]["metrics"] for n in (0, -1))
    assert last["sft"] < first["sft"]
    assert not any("drift" in name for name in first)


def test_a_file_system_without_locks_is_told_and_does_not_stop_a_run(tmp_path, model, data, monkeypatch, capsys):
    lock = files.lock

    def only_of_runs(path):
        if path.parent.name.startswith("reference-"):
            raise OSError(errno.ENOLCK, "No locks available")
        return lock(path)

    monkeypatch.setattr(files, "lock", only_of_runs)
    run(tmp_path / "run", configured(model, data, Preference, epochs=1))
    assert capsys.readouterr().out.count("the file system has no locks") == 1


def test_parts_of_the_reference_depend_on_the_data_alone():
    lengths = np.asarray([600_000, 500_000, 1, 2_000_000, 5])
    assert reference_logprobs.part_rows(lengths) == [range(2), range(2, 4), range(4, 5)]


def test_two_runs_that_begin_at_once_choose_the_same_folder(data, tmp_path, monkeypatch):
    rows = TrainingRows(data / "sft.parquet", ())
    beside = rows.path.parent / "reference-abc"
    chosen, replace = [], type(beside).replace

    def another_run_chooses_first(self, target):
        monkeypatch.undo()
        chosen.append(reference_logprobs.choose_folder(rows, "abc", tmp_path / "another"))
        return replace(self, target)

    monkeypatch.setattr(type(beside), "replace", another_run_chooses_first)
    chosen.append(reference_logprobs.choose_folder(rows, "abc", tmp_path / "run"))
    assert chosen == [beside, beside]


def test_links_beside_the_data_are_not_written_through(data, tmp_path, capsys):
    victim, outside = tmp_path / "victim", tmp_path / "outside"
    victim.write_text("mine")
    outside.mkdir()
    rows = TrainingRows(data / "sft.parquet", ())
    beside = rows.path.parent / "reference-abc"
    beside.mkdir()
    (beside / ".writable").symlink_to(victim)
    assert reference_logprobs.choose_folder(rows, "abc", tmp_path) == beside
    assert victim.read_text() == "mine"
    beside.rmdir()
    beside.symlink_to(outside)
    assert reference_logprobs.choose_folder(rows, "abc", tmp_path) == tmp_path / "reference-abc"
    assert f"{beside}: is a symbolic link" in capsys.readouterr().out
    assert not list(outside.iterdir())

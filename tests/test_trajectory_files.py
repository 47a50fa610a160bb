"""Files of trajectories: written part by part, gone on with after a kill, read back; what is broken is named."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trajectory_rows import PROVENANCE, played, row, same, trajectory

from dfc.records import trajectory_files
from dfc.records.trajectories import COLUMNS, SCHEMA, TrajectoryKey, to_table, to_trajectories
from dfc.records.trajectory_files import (
    DatasetError,
    TrajectoryWriter,
    parts,
    read_columns,
    read_part,
    read_rows,
    read_trajectories,
)

ROOT = Path(__file__).resolve().parents[1]


def written(folder, rows, **options):
    with TrajectoryWriter(folder, PROVENANCE, **options) as writer:
        for one in rows:
            writer.write(one)
    return folder


def test_what_was_written_is_read_back(tmp_path):
    games = ("wordle", "TicTacToe-v0", "minesweeper", "bandit")
    rows = [trajectory(played(g, n, rng_seed=n), n, keep_logprobs=n % 2 == 0) for g in games for n in range(3)]
    written(tmp_path, rows, rows_per_part=5)
    assert [read_part(path).num_rows for path in parts(tmp_path)] == [5, 5, 2]
    back = list(read_trajectories(tmp_path))
    assert len(back) == len(rows)
    assert all(map(same, rows, back))
    (name,) = {path.name[:-15] for path in parts(tmp_path)}
    assert name == "part-00000-of-00001"


def test_a_writer_says_what_is_there_already_and_goes_on(tmp_path):
    written(tmp_path, [row(task=0), row(task=1)])
    with TrajectoryWriter(tmp_path, PROVENANCE) as writer:
        assert writer.keys == {TrajectoryKey("wordle", "{}", task, 0, "none", 0) for task in (0, 1)}
        with pytest.raises(ValueError, match="is there already"):
            writer.write(row(task=1))
        writer.write(row(task=1, sample=1))
        with pytest.raises(ValueError, match="is there already"):
            writer.write(row(task=1, sample=1))
    assert len(parts(tmp_path)) == 2
    assert read_columns(tmp_path, ("sample",)).table["sample"].to_pylist() == [0, 0, 1]


def test_hosts_write_parts_of_their_own_and_see_each_others(tmp_path):
    for host in range(3):
        written(tmp_path, [row(task=task) for task in range(host, 9, 3)], host=host, hosts=3)
    with TrajectoryWriter(tmp_path, PROVENANCE) as writer:
        assert {key.task for key in writer.keys} == set(range(9))
    assert [path.name for path in parts(tmp_path)] == [f"part-0000{n}-of-00003-000000.parquet" for n in range(3)]


def test_only_one_process_writes_as_a_host(tmp_path):
    with TrajectoryWriter(tmp_path, PROVENANCE):
        with pytest.raises(DatasetError, match="another process writes as host 0 of 1"):
            TrajectoryWriter(tmp_path, PROVENANCE)
        TrajectoryWriter(tmp_path, PROVENANCE, host=1, hosts=2).close()
    TrajectoryWriter(tmp_path, PROVENANCE).close()


@pytest.mark.parametrize(
    "changes", [{"model_hash": "def"}, {"model": "other"}, {"seed": 9}, {"sampling": {"temperature": 1.0}}]
)
def test_a_folder_has_rows_of_one_collection(tmp_path, changes):
    written(tmp_path, [row(task=0), row(task=1)])
    (name,) = changes
    with pytest.raises(DatasetError, match=rf"part-.*parquet, row 0: {name} is .*collect into another folder"):
        TrajectoryWriter(tmp_path, dataclasses.replace(PROVENANCE, **changes))
    TrajectoryWriter(tmp_path, dataclasses.replace(PROVENANCE, commit="later")).close()  # a newer dfc may go on
    with TrajectoryWriter(tmp_path, PROVENANCE) as writer, pytest.raises(ValueError, match="expected rows of"):
        writer.write(dataclasses.replace(row(task=5), provenance=dataclasses.replace(PROVENANCE, seed=8)))


_COLLECT = """
import sys
from pathlib import Path
from trajectory_rows import PROVENANCE, row
from dfc.records.trajectory_files import TrajectoryWriter
with TrajectoryWriter(Path(sys.argv[1]), PROVENANCE, rows_per_part=7) as writer:
    todo = [(t, s) for t in range(2000) for s in range(3)]
    for task, sample in todo:
        new = row(task=task, sample=sample)
        if new.key not in writer.keys:
            writer.write(new)
"""


def test_a_killed_collection_goes_on_with_exactly_what_is_missing(tmp_path):
    folder = tmp_path / "set"
    script = [sys.executable, "-c", _COLLECT, str(folder)]
    where = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    process = subprocess.Popen(script, env=where, cwd=ROOT)  # noqa: S603 - our own interpreter and text
    try:
        until = time.monotonic() + 60
        while len(parts(folder)) < 20 and time.monotonic() < until:
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    there = read_columns(folder, ("task", "sample")).table.num_rows
    assert there % 7 == 0
    assert 140 <= there < 6000
    before = {path.name: path.read_bytes() for path in parts(folder)}
    (folder / ".part-00000-of-00001-000999.parquet.partial").write_bytes(b"PAR1 half")
    assert len(parts(folder)) == len(before)
    kept = there + 300
    with TrajectoryWriter(folder, PROVENANCE, rows_per_part=100) as writer:
        assert len(writer.keys) == there
        for number in range(kept):
            new = row(task=number // 3, sample=number % 3)
            if new.key not in writer.keys:
                writer.write(new)
    assert not list(folder.glob(".*.partial"))
    table = read_columns(folder, ("task", "sample")).table
    found = sorted(zip(table["task"].to_pylist(), table["sample"].to_pylist(), strict=True))
    assert found == [(number // 3, number % 3) for number in range(kept)]
    assert all((folder / name).read_bytes() == old for name, old in before.items())


@pytest.mark.parametrize("at_once", [2**20, 1000, 1])
def test_chosen_rows_come_in_the_order_asked_for_and_only_their_row_groups_are_read_once(
    tmp_path, monkeypatch, at_once
):
    rows = [row(task=n, tokens=1 + n) for n in range(40)]
    for start in (0, 20):
        pq.write_table(to_table(rows[start : start + 20]), tmp_path / f"part-{start:03d}.parquet", row_group_size=4)
    read = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda file, n, *a, **k: read.append(n) or original(file, n, *a, **k)
    )
    monkeypatch.setattr(trajectory_files, "_BYTES_AT_ONCE", at_once)  # one run, a few, one per row group
    columns = read_columns(tmp_path, ("task",))
    wanted = [np.asarray(numbers, np.int64) for numbers in ([39, 0, 21, 3, 0], [], [20, 38, 1], [2])]
    (tmp_path / "spill").mkdir()
    tables = list(read_rows(columns, wanted, spill=tmp_path / "spill"))
    for table, chunk in zip(tables, wanted, strict=True):
        assert all(map(same, to_trajectories(table), [rows[n] for n in chunk]))
        assert table.num_rows == len(chunk)
        assert table.schema.equals(SCHEMA, check_metadata=True)
    assert read == [0, 0, 4]
    assert not list((tmp_path / "spill").iterdir())
    assert list(read_rows(columns, [])) == []
    gone = columns._replace(row=columns.row + 16)
    with pytest.raises(DatasetError, match=r"part-020.parquet: no row 20"):
        next(read_rows(gone, [np.asarray([24])]))


def test_chosen_rows_of_files_whose_texts_are_dictionaries_stand_beside_others(tmp_path):
    rows = [row(task=n) for n in range(4)]
    pq.write_table(to_table(rows[:2]), tmp_path / "part-0.parquet")
    other = to_table(rows[2:])
    pq.write_table(other.set_column(0, "game", other["game"].dictionary_encode()), tmp_path / "part-1.parquet")
    (table,) = read_rows(read_columns(tmp_path, ("task",)), [np.asarray([3, 0, 2])])
    assert all(map(same, to_trajectories(table), [rows[3], rows[0], rows[2]]))


# ---- broken input ---------------------------------------------------------------------------------------------------


def test_a_cut_file_is_named(tmp_path):
    (path,) = parts(written(tmp_path, [row()]))
    path.write_bytes(path.read_bytes()[:-20])
    for read in (lambda: read_columns(tmp_path, ("turns",)), lambda: list(read_trajectories(tmp_path))):
        with pytest.raises(DatasetError, match=rf"{path.name}: cannot be read: .*copy it again, or delete it"):
            read()


def test_a_flipped_byte_is_noticed(tmp_path):
    # Random ids are stored as they are: a wrong one decompresses as well as a right one.
    noise = np.random.default_rng(0).integers(0, 2**31, (50, 400)).astype(np.int32)
    rows = [dataclasses.replace(row(task=n, tokens=400), token_ids=token_ids) for n, token_ids in enumerate(noise)]
    (path,) = parts(written(tmp_path, rows))
    data = bytearray(path.read_bytes())
    with pq.ParquetFile(path) as file:
        token_ids = file.metadata.row_group(0).column(
            next(n for n in range(file.metadata.num_columns) if file.schema.column(n).path.startswith("token_ids."))
        )
        start = token_ids.dictionary_page_offset + token_ids.total_compressed_size // 2
    data[start] ^= 1
    path.write_bytes(data)
    assert read_columns(tmp_path, ("turns",)).table.num_rows == 50  # other columns are whole
    with pytest.raises(DatasetError, match=path.name):
        list(read_trajectories(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["turns"]), "no column turns, it has game"),
        (lambda t: t.set_column(11, "turns", pa.array(["3"])), "column turns is string, expected int32"),
        (lambda t: t.replace_schema_metadata(None), "no trajectories of dfc, expected version 2"),
        (lambda t: t.replace_schema_metadata({b"dfc.trajectories": b"1"}), "trajectories of schema version 1"),
    ],
)
def test_a_file_of_another_layout_is_named(tmp_path, change, message):
    assert COLUMNS[11] == "turns"
    pq.write_table(change(to_table([row()])), tmp_path / "part-x.parquet")
    with pytest.raises(DatasetError, match=rf"part-x.parquet: {message}"):
        read_columns(tmp_path, ("turns",))
    with pytest.raises(DatasetError, match=rf"part-x.parquet: {message}"):
        list(read_trajectories(tmp_path))


def test_a_row_that_contradicts_itself_is_named(tmp_path):
    table = to_table([row(task=n) for n in range(10)])
    turns = pa.array([3] * 7 + [-1] + [3] * 2, pa.int32())
    pq.write_table(table.set_column(11, "turns", turns), tmp_path / "part-x.parquet", row_group_size=4)
    with pytest.raises(DatasetError, match=r"part-x.parquet, row 7: .*turns must be 0 or more.*delete the part"):
        list(read_trajectories(tmp_path))


def test_a_folder_without_rows_is_named(tmp_path):
    with pytest.raises(DatasetError, match="no trajectory in 0 parts"):
        read_columns(tmp_path, ("turns",))

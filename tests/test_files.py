"""A file is there whole or as it was; a lock has one holder, across processes."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dfc import files


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "results.json"
    files.write_json(path, {"b": 1, "a": [2]}, sort_keys=True)
    before = path.read_bytes()
    assert json.loads(before) == {"a": [2], "b": 1}

    def dies():
        with files.replacing(path, "wb") as file:
            file.write(b"half")
            assert path.read_bytes() == before
            raise KeyError

    with pytest.raises(KeyError):
        dies()
    assert path.read_bytes() == before
    with files.replacing(path, "wb") as file:
        file.write(b"\xff whole")
    assert path.read_bytes() == b"\xff whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    files.write_text(path, "before \ud83d")  # half of a pair
    assert path.read_text(encoding="utf-8") == "before ?"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "after")
    assert path.read_text(encoding="utf-8") == "before ?"


@pytest.mark.parametrize(("number", "raises"), [(22, False), (13, False), (5, True)])
def test_a_file_system_that_syncs_no_folders_is_no_error_and_a_broken_disk_is_one(
    tmp_path, monkeypatch, number, raises
):
    path, real, calls = tmp_path / "results.json", files.os.fsync, []

    def only_files(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:  # the first one is the file's
            raise OSError(number, "of the folder")
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", only_files)
    with pytest.raises(OSError, match="of the folder") if raises else contextlib.nullcontext():
        files.write_text(path, "whole")
    assert path.read_text() == "whole"
    assert len(calls) == 2


def test_half_a_pair_is_an_error_where_it_is_asked_for(tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UnicodeError), files.replacing(path, errors="strict") as file:
        file.write("half \ud83d")
    assert not list(tmp_path.iterdir())


def test_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "reply.json"
    with files.replacing(path, many_writers=True) as first, files.replacing(path, many_writers=True) as second:
        first.write("first")
        second.write("second")
    assert path.read_text() == "first"  # its block ended last
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_has_one_holder_until_it_ends(tmp_path):
    path = tmp_path / ".lock"
    script = "import sys, pathlib; from dfc import files; print(files.lock(pathlib.Path(sys.argv[1])) is None)"

    def refused_elsewhere():
        command = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)  # noqa: S603 - our own text
        return {"True\n": True, "False\n": False}[done.stdout]

    held = files.lock(path)
    assert held is not None
    assert refused_elsewhere()
    held.close()
    assert not refused_elsewhere()


@pytest.mark.parametrize("path", ["gs://bucket/run", "s3://b", "file:///tmp/x", Path("gs://bucket/run")])
def test_an_address_is_refused_with_what_to_do(path):
    assert "name a folder, or mount the bucket" in files.address_problem(path)


@pytest.mark.parametrize("path", ["runs/quickstart", "/mnt/runs", "C:/runs", "a:b", "gs", "runs/gs://x", ""])
def test_a_path_is_no_address(path):
    assert files.address_problem(path) is None


def partial_of(path):
    return path.with_name(f".{path.name}.partial")


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_link_in_the_place_of_the_partial_file_goes_and_what_it_leads_to_stays(tmp_path, mode):
    victim, path = tmp_path / "victim", tmp_path / "versions.json"
    victim.write_text("mine")
    partial_of(path).symlink_to(victim)
    with files.replacing(path, mode) as file:
        file.write("new" if mode == "w" else b"new")
    assert victim.read_text() == "mine"
    assert path.read_text() == "new"
    assert not path.is_symlink()


def test_a_partial_file_that_another_process_put_there_meanwhile_is_not_written_to(tmp_path, monkeypatch):
    victim, path = tmp_path / "victim", tmp_path / "versions.json"
    victim.write_text("mine")
    unlink = type(path).unlink

    def puts_a_link(self, **options):
        unlink(self, **options)
        monkeypatch.undo()
        self.symlink_to(victim)

    monkeypatch.setattr(type(path), "unlink", puts_a_link)
    with pytest.raises(OSError, match="is a symbolic link, and nothing is written through one"):
        files.write_text(path, "new")
    assert victim.read_text() == "mine"


def test_a_leftover_of_a_killed_process_does_not_stand_in_the_way(tmp_path):
    path = tmp_path / "versions.json"
    partial_of(path).write_text("a longer half of what was to come")
    files.write_text(path, "whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "opens",
    [
        lambda path: files.open_to_append(path).close(),
        lambda path: files.truncate(path, 1),
        files.lock,
        files.lock_file,
        files.make_folder,
    ],
)
@pytest.mark.parametrize("leads_to", ["file", "folder", "nothing"])
def test_nothing_is_opened_to_be_written_through_a_link(tmp_path, opens, leads_to):
    victim, link = tmp_path / "victim", tmp_path / "metrics.jsonl"
    if leads_to == "file":
        victim.write_text("mine")
    elif leads_to == "folder":
        victim.mkdir()
    link.symlink_to(victim)
    with pytest.raises(OSError, match="is a symbolic link, and nothing is written through one; remove it") as caught:
        opens(link)
    assert caught.value.filename == str(link)
    assert victim.exists() == (leads_to != "nothing")
    assert leads_to != "file" or victim.read_text() == "mine"


def test_files_are_added_to_and_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for part in (b"one", b"two"):
        with files.open_to_append(path) as file:
            file.write(part)
    assert path.read_bytes() == b"onetwo"
    files.truncate(path, 4)
    assert path.read_bytes() == b"onet"
    with pytest.raises(FileNotFoundError):
        files.truncate(tmp_path / "absent", 0)
    assert not (tmp_path / "absent").exists()

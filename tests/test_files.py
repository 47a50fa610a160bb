"""A file is there whole or as it was; a lock has one holder, across processes."""

import json
import subprocess
import sys

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

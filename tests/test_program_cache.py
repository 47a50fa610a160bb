"""Compiled programs are kept between runs where that works, and nowhere else."""

import json
import os
import subprocess
import sys

import jax
import pytest

from dfc.launch import program_cache

COUNTED = """
import sys
from jax import monitoring
from dfc.launch import program_cache
found = []
monitoring.register_event_listener(lambda name, **_: found.append(name.rpartition("/")[2]))
assert program_cache.enable(sys.argv[1]) is None
import jax
jax.jit(lambda x: x * 3 + 1)(jax.numpy.ones(5)).block_until_ready()
print(found.count("cache_hits"), found.count("cache_misses"))
"""


def started(folder, **environment):
    words = [sys.executable, "-c", COUNTED, str(folder)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=kept | environment)  # noqa: S603 - ours
    return [int(word) for word in done.stdout.split()], done.stderr


def test_a_second_process_compiles_nothing(tmp_path):
    (hits, misses), _ = started(tmp_path / "programs")
    assert misses > 0
    (hits_again, misses_again), _ = started(tmp_path / "programs")
    assert (hits_again, misses_again) == (hits + misses, 0)
    assert json.loads((tmp_path / "programs" / "usable.json").read_bytes()) == {"usable": True}
    assert (tmp_path / "programs").stat().st_mode & 0o077 == 0


def test_where_xla_rejects_what_it_has_stored_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(program_cache, "_TRIAL", "import sys; sys.stderr.write('E0000 cpu_aot_loader.cc:210] no')")
    before = program_cache_dir()
    assert "XLA rejects on this CPU" in program_cache.enable(str(tmp_path))
    monkeypatch.setattr(program_cache, "_TRIAL", "raise SystemExit('is not tried again')")
    assert "XLA rejects on this CPU" in program_cache.enable(str(tmp_path))
    assert program_cache_dir() == before


def test_a_trial_that_fails_is_made_again_the_next_time(tmp_path, monkeypatch):
    monkeypatch.setattr(program_cache, "_TRIAL", "raise SystemExit(3)")
    assert "did not end" in program_cache.enable(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_processes_that_try_at_once_all_note_it(tmp_path, monkeypatch):
    monkeypatch.setattr(program_cache, "_TRIAL", "pass")
    found, replace = [], type(tmp_path).replace

    def another_one_ends_first(self, target):
        monkeypatch.setattr(type(tmp_path), "replace", replace)
        found.append(program_cache._usable(tmp_path))
        return replace(self, target)

    monkeypatch.setattr(type(tmp_path), "replace", another_one_ends_first)
    found.append(program_cache._usable(tmp_path))
    assert found == [True, True]


def test_without_a_home_folder_nothing_is_kept(monkeypatch):
    def none():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(program_cache.Path, "home", none)
    before = program_cache_dir()
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        assert "Could not determine home directory" in program_cache.enable(None)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    assert "are not kept" in program_cache.enable(str(tmp_path / "file" / "programs"))


@pytest.mark.parametrize(("folder", "after"), [("off", None), (None, "elsewhere")])
def test_off_is_off_and_jaxs_own_setting_is_left(folder, after, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = program_cache_dir()
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    try:
        assert program_cache.enable(folder) is None
        assert program_cache_dir() == after
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert not list(tmp_path.iterdir())


def test_the_folder_is_one_per_version_and_cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = program_cache.default_folder()
    assert first.parent == tmp_path / "dfc" / "programs"
    monkeypatch.setattr(program_cache.importlib.metadata, "version", lambda _: "9.9")
    assert program_cache.default_folder().name.startswith("jaxlib-9.9-")
    monkeypatch.setattr(program_cache.platform, "machine", lambda: "other")
    monkeypatch.setattr(program_cache.Path, "read_text", lambda *_, **__: "flags: none")
    assert program_cache.default_folder().name.rpartition("-")[2] != first.name.rpartition("-")[2]


def program_cache_dir():
    return jax.config.jax_compilation_cache_dir

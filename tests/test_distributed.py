import dataclasses

import jax
import numpy as np
import pytest

from dfc import multihost
from dfc.config import BatchConfig, DivideFuseConquer, RolloutConfig, TinyPlayer
from dfc.errors import ConfigError, RunFolderError, TrainingError
from dfc.launch import command_line, distributed
from dfc.launch.distributed import Processes
from dfc.runs.metrics import MetricsWriter
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Interrupted, Stop

SMOKE = "--config=configs/smoke.py"
THREE = {"coordinator": "10.0.0.2:9000", "processes": "4", "process": "3"}
CONFIG = DivideFuseConquer(games={"Nim-v0": {}})


def read(given, environment=None):
    return distributed.read({"distributed": "auto"} | given, environment or {})


def test_a_process_is_alone_unless_told_otherwise():
    environment = {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}
    assert distributed.read({}, environment) == (Processes("off"), [])
    assert command_line.parse([SMOKE]).processes == Processes("off")


def test_auto_alone_leaves_it_to_jax_and_flags_come_before_the_environment():
    assert read({}) == (Processes("auto"), [])
    assert read(THREE) == (Processes("auto", "10.0.0.2:9000", 4, 3), [])
    environment = {"JAX_COORDINATOR_ADDRESS": "[::1]:80", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "0"}
    assert read({"process": "2"}, environment) == (Processes("auto", "[::1]:80", 4, 2), [])
    words = ["--distributed=auto", *(f"--{name}={value}" for name, value in THREE.items())]
    assert command_line.parse([SMOKE, *words]).processes == Processes("auto", "10.0.0.2:9000", 4, 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"distributed": "on"}, "--distributed=on: must be off (this process alone) or auto (one of several)"),
        ({"distributed": "off", "process": "1"}, "--process: only with --distributed=auto"),
        ({"process": "1"}, "--coordinator (or JAX_COORDINATOR_ADDRESS), --processes (or JAX_NUM_PROCESSES) missing"),
        (THREE | {"coordinator": "10.0.0.2"}, "--coordinator=10.0.0.2: must be HOST:PORT"),
        (THREE | {"coordinator": "a:70000"}, "--coordinator=a:70000: must be HOST:PORT"),
        (THREE | {"processes": "0"}, "--processes=0: must be a whole number of processes, 1 or more"),
        (THREE | {"process": "4"}, "--process=4: must be a whole number from 0 to 3"),
        (THREE | {"process": "-1"}, "--process=-1: must be a whole number from 0 to 3"),
    ],
)
def test_a_wrong_value_is_named_with_the_cure(given, text):
    (problem,) = read(given)[1]
    assert text in problem
    with pytest.raises(ConfigError) as caught:
        command_line.parse([SMOKE, *(f"--{name}={value}" for name, value in ({"distributed": "auto"} | given).items())])
    assert text in str(caught.value)


def test_threads_and_the_making_of_the_tiny_player_need_one_process():
    threads = RolloutConfig(workers=2)
    config = dataclasses.replace(CONFIG, rollout=threads, batch=BatchConfig(workers=3))
    tiny = TinyPlayer(rollout=threads)
    assert distributed.problems(config, 1) == distributed.problems(tiny, 1) == distributed.problems(CONFIG, 2) == []
    found = distributed.problems(config, 2) + distributed.problems(tiny, 2)
    assert [problem.split(":")[0] for problem in found] == [
        "rollout.workers=2",
        "batch.workers=3",
        "rollout.workers=2",
        "recipe='tiny_player'",
    ]


def test_without_a_cluster_auto_says_what_to_give(monkeypatch):
    import jax

    def refuse(*_, **__):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", refuse)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    with pytest.raises(ConfigError, match="give --coordinator=HOST:PORT --processes=N --process=I"):
        distributed.connect(Processes("auto"))
    with pytest.raises(ConfigError, match="process 1 of 2 could not join the others at a:1"):
        distributed.connect(Processes("auto", "a:1", 2, 1))
    distributed.connect(Processes("off"))


def test_one_process_agrees_with_itself():
    assert multihost.is_primary()
    assert multihost.broadcast({"a": [1, None]}) == {"a": [1, None]}
    assert multihost.all_max(15) == 15
    assert multihost.all_problems("full") == ["full"]
    assert multihost.all_problems(None) == []


def test_a_stop_that_another_process_was_asked_for_stops_this_one():
    noted = []

    def agree(number):
        noted.append(number)
        return 15

    with Stop(agree) as stop:
        assert stop.requested == 15
        with pytest.raises(Interrupted, match="SIGTERM"):
            stop.check()
    assert noted == [0, 0]


def test_a_folder_that_follows_touches_no_disk_and_drops_what_it_is_asked_to_record(tmp_path):
    folder = RunFolder.follow(tmp_path / "run", CONFIG, existed=True)
    with folder, MetricsWriter(folder) as writer:
        writer.write(step=1, stage="a", iteration=1, metrics={"loss": 1.0}, clock={})
        folder.append("episodes", [{"a": 1}])
        folder.note_device("TPU")
        folder.rewind({"episodes": 5})
        folder.flush()
        assert set(folder.positions().values()) == {0}
        assert folder.existed
        assert not folder.writes
        with pytest.raises(RunFolderError, match="only the process that writes"):
            folder.records("metrics")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_computed_something_else_is_named(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 3)

    def gather(change):
        return lambda digest: np.asarray([[digest], [digest], [digest + np.uint32(change)]])

    arrays = [(np.arange(3), np.ones(2))]
    monkeypatch.setattr(multihost.multihost_utils, "process_allgather", gather(0))
    multihost.require_equal("episodes", arrays)
    monkeypatch.setattr(multihost.multihost_utils, "process_allgather", gather(1))
    with pytest.raises(TrainingError, match="episodes: process 2 has others"):
        multihost.require_equal("episodes", arrays)

"""Two processes of two devices each train on rows like one process of four: each fills in its own rows only."""

import numpy as np
import pytest
from offline_rows import pairs, save_model, sequences, write_pairs, write_sft
from processes import ended, free_port, joining, started
from recipe_runs import lines

from dfc.models import huggingface

CONFIG = """
from dfc import config as c


def get_config():
    return c.Preference(
        model=c.ModelConfig(path="model"),
        mesh=c.MeshConfig(data=2, fsdp=2),
        data="data",
        epochs=2,
        batch_size=8,
        optimizer=c.ScheduledOptimizerConfig(learning_rate=1e-2),
        batch=c.BatchConfig(row_length=128, micro_batch_rows=4),
        training=c.TrainingConfig(scan_layers=False, remat="none"),
    )
"""


def launched(name):
    return ["-m", "dfc.launch", "--config=config.py", f"--workdir={name}"]


def together(place, name, other=None):
    port, places = free_port(), (place, other or place)
    return ended(started(where, *launched(name), *joining(port, n), devices=2) for n, where in enumerate(places))


def metrics(path):
    return [line["metrics"] for line in lines(path)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    save_model(folder / "model")
    (folder / "config.py").write_text(CONFIG)
    (folder / "data").mkdir()
    write_pairs(folder / "data" / "pairs.parquet", pairs(20))
    write_sft(folder / "data" / "sft.parquet", sequences(20))
    return folder


def test_two_processes_train_like_one(place):
    for process, _, errors in together(place, "two"):
        assert process.returncode == 0, errors
    (folder,) = (place / "data").glob("reference-*")
    stored = [part.read_bytes() for part in sorted(folder.glob("part-*"))]
    assert len(stored) == 1
    process = started(place, *launched("one"), devices=4)
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    assert f"read from {folder.relative_to(place)}" in output  # the key is the same
    for one, other in zip(metrics(place / "one"), metrics(place / "two"), strict=True):
        assert one == pytest.approx(other, abs=1e-4)  # later updates start from weights whose last bits differ
    assert metrics(place / "one")[0] == pytest.approx(metrics(place / "two")[0], rel=1e-6, abs=1e-6)
    assert metrics(place / "two")[-1]["dpo"] < metrics(place / "two")[0]["dpo"]
    trees = [huggingface.load(place / name / "policy", dtype="float32")[1] for name in ("one", "two")]
    names = [tree["embed"]["embedding"] for tree in trees]
    np.testing.assert_allclose(*map(np.asarray, names), atol=1e-3)


def test_hosts_whose_data_differ_in_one_id_stop(place, tmp_path):
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "model").symlink_to(place / "model")
    (tmp_path / "data").mkdir()
    found = pairs(20)
    found[7][1][0][-1] += 1
    found[7][1][1][-1] = True  # so that the id is read
    for folder in (place, tmp_path):
        write_pairs(folder / "data" / "pairs.parquet", found)
        found[7][1][0][-1] += 1
    for process, _, errors in together(place, str(tmp_path / "differ"), tmp_path):
        assert process.returncode == 1
        assert "rows of the data: process 1 has others than the first one" in errors


def test_what_one_process_cannot_read_stops_both(place):
    (place / "data" / "pairs.parquet").write_bytes(b"PAR1")
    for process, _, errors in together(place, "broken"):
        assert process.returncode == 1
        assert "data/pairs.parquet: cannot be read" in errors

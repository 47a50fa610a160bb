"""Whole runs of offline training: what comes out, what a stop or a kill changes (nothing), what is refused."""

import dataclasses
import json
import re

import numpy as np
import offline_runs
import pytest
from offline_rows import sequences, write_sft
from offline_runs import ROWS, StopsAfter, configured, run
from recipe_runs import lines, untimed
from trajectory_rows import PROVENANCE, row

from dfc.config import (
    BatchConfig,
    CheckpointConfig,
    Preference,
    RowsAdapterConfig,
    ScheduledOptimizerConfig,
    Sft,
    TrainingConfig,
)
from dfc.errors import CheckpointError, TrainingError
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.records.trajectory_files import DatasetError, TrajectoryWriter
from dfc.rows import conversations, preference_pairs
from dfc.runs.stop_signals import Interrupted, Stop
from dfc.training.trainer import Trainer

model, data = offline_runs.model, offline_runs.data  # the fixtures


def weights(path):
    return (path / "policy" / "model.safetensors").read_bytes()


def test_supervised_training_runs_to_its_end(tmp_path, model, data, capsys):
    path = run(tmp_path / "run", configured(model, data))
    said = capsys.readouterr().out
    assert "20 trajectories" in said
    assert f"policy: {path / 'policy'}" in said
    records = lines(path)
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record["metrics"]["rows"] for record in records] == [8, 8, 4] * 2
    rates = [record["metrics"]["learning_rate"] for record in records]
    assert rates[:2] == pytest.approx([0.005, 0.01])  # ceil(0.2 * 6) = 2 updates of warm-up
    assert rates[2:] == pytest.approx([0.01 * (1 + np.cos(np.pi * n / 5)) / 2 for n in (1, 2, 3, 4)], rel=1e-5)
    assert records[-1]["metrics"]["loss"] < records[0]["metrics"]["loss"]
    assert not any("gap" in name or "drift" in name for name in records[0]["metrics"])
    summary = json.loads((path / "summary.json").read_text())
    assert summary["trained_tokens"] == 2 * sum(int(mask.sum()) for _, mask in sequences(ROWS))
    assert summary["loss"]["last"] < summary["loss"]["first"]
    config, _ = huggingface.load(path / "policy", dtype="float32")
    assert config == huggingface.load(model, dtype="float32")[0]
    before = untimed(path), weights(path)
    run(path, configured(model, data))
    assert "finished" in capsys.readouterr().out
    assert (untimed(path), weights(path)) == before


def test_preferences_are_learned(tmp_path, model, data, capsys):
    path = run(tmp_path / "run", configured(model, data, Preference, epochs=4))
    first, last = (untimed(path)[n]["metrics"] for n in (0, -1))
    assert first["margin"] == pytest.approx(0, abs=1e-4)  # the policy is the reference
    assert first["drift/max"] == pytest.approx(0, abs=1e-4)
    assert last["drift/mean"] > 0.1
    assert first["dpo"] == pytest.approx(np.log(2), abs=1e-4)
    assert last["dpo"] < first["dpo"]
    assert last["accuracy"] > 0.8
    assert "accuracy:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "adapter"),
    [
        (Sft, RowsAdapterConfig()),
        (Preference, RowsAdapterConfig(rank=4, dropout=0.1)),
        (Preference, RowsAdapterConfig(rank=4, base="nf4")),
    ],
    ids=["supervised", "lora", "qlora"],
)
def test_a_stop_or_a_kill_changes_nothing(tmp_path, model, data, monkeypatch, kind, adapter):
    config = configured(model, data, kind, adapter=adapter)
    whole = run(tmp_path / "whole", config)
    parts = tmp_path / "parts"
    with pytest.raises(Interrupted):
        run(parts, config, StopsAfter(1))  # behind the first update; a reference is there already
    assert len(lines(parts)) == 1
    update, left = Trainer.update, [3]

    def dies(self, *arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return update(self, *arguments, **options)

    monkeypatch.setattr(Trainer, "update", dies)
    with pytest.raises(KeyboardInterrupt):
        run(parts, config)  # updates 2 to 4 are done and the checkpoint is of update 4: nothing more is saved
    left[0] = 1
    with pytest.raises(KeyboardInterrupt):
        run(parts, config)  # update 5 is done and lost
    assert len(lines(parts)) == 5
    monkeypatch.setattr(Trainer, "update", update)
    run(parts, config)
    assert untimed(parts) == untimed(whole)
    assert weights(parts) == weights(whole)
    if adapter.rank:
        names = ("adapter_model.safetensors", "adapter_config.json")
        assert all((parts / "adapter" / n).read_bytes() == (whole / "adapter" / n).read_bytes() for n in names)


def test_layers_in_a_loop_give_the_same_policy(tmp_path, model, data):
    plain = run(tmp_path / "plain", configured(model, data, Preference))
    looped = run(tmp_path / "looped", configured(model, data, Preference, training=TrainingConfig()))
    for one, other in zip(untimed(plain), untimed(looped), strict=True):
        assert one["metrics"]["loss"] == pytest.approx(other["metrics"]["loss"], abs=1e-4)


def told(trajectory):
    """A row with the ids that the bundled model makes of its messages."""
    token_ids, mask = conversations.encode(trajectory.messages, ChatTokenizer.load(huggingface.resolve("tiny_player")))
    return dataclasses.replace(trajectory, token_ids=token_ids, mask=mask)


def test_data_that_was_built_is_trained_on(tmp_path):
    with TrajectoryWriter(tmp_path / "set", PROVENANCE) as writer:
        for task in range(6):
            for sample, turns in ((0, 3), (1, 9)):
                writer.write(told(row(task=task, sample=sample, turns=turns)))
    preference_pairs.build(tmp_path / "set", tmp_path / "run of build_data" / "data")
    changes = {"epochs": 1, "batch_size": 3, "batch": BatchConfig(row_length=256, micro_batch_rows=8)}
    for kind, count in ((Sft, 12), (Preference, 6)):
        config = configured("tiny_player", tmp_path / "run of build_data", kind, **changes)
        path = run(tmp_path / kind.recipe, config)
        assert len(lines(path)) == count // 3
    assert list((tmp_path / "run of build_data" / "data").glob("reference-*"))


def test_a_file_of_conversations_is_trained_on(tmp_path, model):
    told = [
        tuple(conversations.Message(role, text) for role, text in (("user", "guess"), ("assistant", f"[{n}]")))
        for n in range(6)
    ]
    conversations.write_pairs(
        tmp_path / "p.jsonl", [conversations.ConversationPair(told[n], told[n + 1]) for n in range(5)]
    )
    path = run(tmp_path / "run", configured(model, tmp_path / "p.jsonl", Preference, epochs=1))
    assert len(lines(path)) == 1
    assert len(list(tmp_path.glob("reference-*"))) == 1


def test_broken_input_is_refused_before_weights_are_loaded(tmp_path, model, data, monkeypatch):
    found = sequences(ROWS)
    found[7][1][:] = False
    write_sft(data / "sft.parquet", found)
    monkeypatch.setattr(huggingface, "load", None)
    with pytest.raises(DatasetError, match="row 7: no action token"):
        run(tmp_path / "run", configured(model, data))


def test_data_that_changed_under_a_run_is_refused(tmp_path, model, data):
    with pytest.raises(Interrupted):
        run(tmp_path / "run", configured(model, data), StopsAfter(2))
    write_sft(data / "sft.parquet", sequences(ROWS, seed=8))
    with pytest.raises(CheckpointError, match=r"sft\.parquet has changed since the checkpoint of update 2"):
        run(tmp_path / "run", configured(model, data))


@pytest.mark.parametrize("rate", [10.0, 1e38])
def test_a_rate_that_explodes_stops_at_the_first_update_and_nothing_of_it_is_saved(tmp_path, model, data, rate):
    config = configured(model, data, optimizer=ScheduledOptimizerConfig(learning_rate=rate))
    with pytest.raises(TrainingError) as found:
        run(tmp_path / "run", config)
    message = str(found.value)
    assert message.startswith("update 1: the update is refused: the largest weight of ")
    key = "optimizer.learning_rate (of a stage: sft.optimizer.learning_rate)"
    again = f"the same command with {key} lower than {rate:g}"
    assert f"Begin again: {again}" in message
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "last_good").exists()


def test_the_policy_before_a_refused_update_can_be_gone_on_from(tmp_path, model, data):
    config = configured(
        model,
        data,
        epochs=3,
        optimizer=ScheduledOptimizerConfig(learning_rate=0.3),
        training=TrainingConfig(scan_layers=False, remat="none", max_growth=1.5, max_update=1e30),
        checkpoint=CheckpointConfig(every=1, keep=2),
    )
    path = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"max_growth.*Up to step \d every update was finite") as found:
        run(path, config)
    step = int(re.search(r"Up to step (\d)", str(found.value))[1])
    assert f"update {step + 1}: " in str(found.value)
    assert f"--config.model.path={path / 'last_good'}" in str(found.value)
    assert [record["step"] for record in lines(path)] == list(range(1, step + 1))
    with pytest.raises(TrainingError) as again:  # the same command ends in the same way
        run(path, config)
    assert str(again.value) == str(found.value)
    # What the message says to do.
    run(
        tmp_path / "other", configured(path / "last_good", data, optimizer=ScheduledOptimizerConfig(learning_rate=1e-3))
    )
    assert (tmp_path / "other" / "policy" / "model.safetensors").exists()


def test_a_stop_within_an_update_saves_those_before_it(tmp_path, model, data):
    config = configured(model, data, checkpoint=CheckpointConfig(every=10, keep=2))

    class Stops(Stop):
        def __init__(self):
            super().__init__()
            self.records = tmp_path / "run" / "metrics.jsonl"

        def check_stop(self):
            if self.records.exists() and len(self.records.read_bytes().splitlines()) == 3:
                raise Interrupted(15)

    with pytest.raises(Interrupted):
        run(tmp_path / "run", config, Stops())
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert checkpoint.name == "step_000000003"
    run(tmp_path / "run", config)
    run(tmp_path / "whole", config)
    for name in ("run", "whole"):
        for record in (found := lines(tmp_path / name)):
            del record["clock"]
        (tmp_path / name / "metrics").write_text(json.dumps(found))
    assert (tmp_path / "run" / "metrics").read_text() == (tmp_path / "whole" / "metrics").read_text()
    files = [(tmp_path / name / "policy" / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert files[0] == files[1]

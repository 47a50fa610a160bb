"""First the adapter is merged at full precision, then the merged weights are quantised (Playpen, Table 6), by numpy."""

import numpy as np
import pytest
from offline_rows import save_model
from offline_runs import configured, run, write_data
from safetensors.numpy import load_file

from dfc import validation
from dfc.config import Preference, RowsAdapterConfig, ScheduledOptimizerConfig
from dfc.models import huggingface

RANK, ALPHA = 4, 16.0
# QLoRA (arXiv 2305.14314), appendix E, to the digits printed there.
_BELOW = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635)
_MIDDLE = (-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725)
_ABOVE = (0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
LEVELS = np.asarray((*_BELOW, *_MIDDLE, *_ABOVE))
KERNELS = {
    **{f"self_attn.{name[0]}_proj": ("attention", name) for name in ("query", "key", "value")},
    "self_attn.o_proj": ("attention", "output"),
    **{f"mlp.{name}_proj": ("mlp", name) for name in ("up", "gate", "down")},
}


def of_layer(folder, form):
    """Every kernel [out, in] of the only layer, float64, by the name that files give it."""
    tensors = load_file(next(folder.glob("*.safetensors")))
    return {name: tensors[form.format(name)].astype(np.float64) for name in KERNELS}


def weights(folder):
    return of_layer(folder, "model.layers.0.{}.weight")


def in_four_bits(kernel):
    """The nearest of the 16 levels for each weight of each block of 64 inputs, times the block's largest."""
    blocks = kernel.reshape(-1, 64)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    nearest = np.abs(blocks[:, :, None] / largest[:, :, None] - LEVELS).argmin(axis=2)
    return (LEVELS[nearest] * largest).reshape(kernel.shape)


def change(run_folder):
    """What the adapters add to each kernel: alpha / rank x B A."""
    prefix = "base_model.model.model.layers.0."
    down, up = (of_layer(run_folder / "adapter", f"{prefix}{{}}.lora_{part}.weight") for part in "AB")
    return {name: ALPHA / RANK * up[name] @ down[name] for name in KERNELS}


def distance(one, other):
    return max(np.abs(one[name] - other[name]).max() for name in KERNELS)


def test_merge_before_quantising(tmp_path, monkeypatch):
    model, data = save_model(tmp_path / "model"), write_data(tmp_path / "built")
    # All linear layers in four bits beside adapters with dropout, a rate that falls in a line.
    qlora = {
        "adapter": RowsAdapterConfig(rank=RANK, alpha=ALPHA, dropout=0.05, targets="all_linear", base="nf4"),
        "optimizer": ScheduledOptimizerConfig(learning_rate=0.02, schedule="linear", weight_decay=0.01),
        "batch_size": 4,
        "epochs": 1,
    }
    sft = run(tmp_path / "sft", configured(model, data, **qlora))
    base, added = weights(model), change(sft)
    merged = {name: base[name] + added[name] for name in KERNELS}
    lost = distance(base, {name: in_four_bits(base[name]) for name in KERNELS})
    assert lost > 0.005  # what four bits lose would be seen
    assert distance(added, {name: np.zeros(1) for name in KERNELS}) > 0.005  # and so would an adapter that is missing
    assert distance(weights(sft / "policy"), merged) < 1e-6

    read, load = [], huggingface.load

    def noted(source, *, mesh=None, dtype, nf4=False):
        found = load(source, mesh=mesh, dtype=dtype, nf4=nf4)
        if nf4:
            read.append(found[1]["layers"][0])
        return found

    monkeypatch.setattr(huggingface, "load", noted)
    dpo = run(tmp_path / "dpo", configured(sft / "policy", data, Preference, **qlora))
    (quantised,) = read
    beside = {
        name: np.asarray(quantised[part][kernel]["kernel"].dequantize(np.float32), np.float64).T
        for name, (part, kernel) in KERNELS.items()
    }
    assert distance(beside, {name: in_four_bits(merged[name]) for name in KERNELS}) < 1e-5
    # Quantised before the merge it would be something else.
    assert distance(beside, {name: in_four_bits(base[name]) + added[name] for name in KERNELS}) > 0.005
    again = change(dpo)
    assert distance(weights(dpo / "policy"), {name: merged[name] + again[name] for name in KERNELS}) < 1e-6


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("sft", {"alpha": 32.0, "dropout": 0.05}), ("preference", {"alpha": 64.0, "dropout": 0.0})],
)
def test_the_paper_s_settings_can_be_said(kind, settings):
    optimizer = {
        "sft": ScheduledOptimizerConfig(learning_rate=2e-4, schedule="linear", weight_decay=0.01, b2=0.999),
        "preference": ScheduledOptimizerConfig(learning_rate=5e-6, schedule="linear", b2=0.999),
    }[kind]
    config = configured(
        "ORG/NAME",
        "rows.jsonl",
        *([Preference] if kind == "preference" else []),
        adapter=RowsAdapterConfig(rank=64, targets="all_linear", base="nf4", **settings),
        optimizer=optimizer,
        batch_size={"sft": 4, "preference": 6}[kind],
    )
    assert validation.problems(config) == []

"""The nearest setting that fits, where the one that is asked for does not."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

from dfc.config import MeshConfig, RolloutConfig
from dfc.tools.fit.analytic import MARGIN, memory
from dfc.tools.fit.workload import Workload, decided

_RANK = 64  # of adapters, where they are suggested


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A setting that fits, and how it differs: words of the command line with their new values."""

    workload: Workload
    changes: dict[str, int | str]


def nearest_fitting(workload: Workload, available: float, margin: float = MARGIN) -> Suggestion | None:
    """Returns the setting closest to the given one that fits, or None.

    Distance counts halvings of the rows of a micro-batch and of the slots, steps of `remat`, and factors of two by
    which the split over tensor devices changes; playing as training splits counts as half of one. What changes the
    result is tried after what changes only the speed: trained weights kept in bfloat16, then a shorter context, then
    adapters instead of all weights.
    """
    best: tuple[float, Suggestion] | None = None
    for distance, candidate in _candidates(workload):
        if (best is None or distance < best[0]) and memory(candidate).fits(available, margin):
            best = distance, Suggestion(candidate, _changes(workload, candidate))
    return None if best is None else best[1]


def _halvings(value: int, least: int) -> list[int]:
    found = [value]
    while found[-1] % 2 == 0 and found[-1] // 2 >= least and (found[-1] // 2) % least == 0:
        found.append(found[-1] // 2)
    return found


def _fewer(value: int, shards: int) -> list[int]:
    """Halvings that can be split; one for each of the shards, where the value itself cannot."""
    return _halvings(value, shards) if value % shards == 0 else [shards]


def _kinds(s: Workload) -> list[tuple[float, Workload]]:
    """What is trained, in which type: as asked, in bfloat16, adapters only."""
    found = [(0.0, s)]
    if s.trains and s.lora is None and not s.soft:
        if s.weight_bytes == 2 and s.master_bytes == 4:
            bfloat16 = dataclasses.replace(s.training, master_dtype="bfloat16")
            found.append((3.0, dataclasses.replace(s, training=bfloat16)))
        found.append((12.0, dataclasses.replace(s, adapter=dataclasses.replace(s.adapter, rank=_RANK))))
    return found


def _shorter(rollout: RolloutConfig, length: int) -> RolloutConfig:
    """Returns contexts of at most `length`: a reply must fit its context, and so must what comes before it."""
    if length >= rollout.max_length:
        return rollout
    prompt = rollout.max_prompt_length if rollout.max_prompt_length <= length else length // 2
    reply = min(rollout.max_reply_length, length // 2)
    return dataclasses.replace(rollout, max_length=length, max_reply_length=reply, max_prompt_length=prompt)


def _candidates(asked: Workload) -> Iterator[tuple[float, Workload]]:
    """Yields settings with their distance."""
    order: list[Any] = ["none", "dots", "layer"]
    remat = asked.training.remat
    remats = order[order.index(remat) :] if asked.trains and remat in order and not asked.soft else [remat]
    base = _trained_mesh(asked)
    # Weights split for playing are held beside those of training.
    shardings: list[Any] = [asked.rollout.sharding, *(["training"] if asked.played is not asked else [])]
    splits = [t for t in range(1, asked.devices + 1) if asked.devices % t == 0 and asked.model.heads % t == 0]
    for (kind, s), tensor, playing in itertools.product(_kinds(asked), splits, shardings):
        shards = s.devices // tensor
        data = base.data if tensor == base.tensor else 1
        mesh = MeshConfig(data, shards // data, tensor)
        rows, slots = s.batch.micro_batch_rows, s.rollout.slots
        row = s.batch.row_length if s.trains else s.rollout.max_length
        shapes = itertools.product(
            _fewer(rows, shards) if s.trains else [rows],
            _fewer(slots, shards) if s.plays else [slots],
            _halvings(row, 1024),
            enumerate(remats),
        )
        for fewer_rows, fewer_slots, length, (stricter, remat) in shapes:
            candidate = dataclasses.replace(s, mesh=mesh, training=dataclasses.replace(s.training, remat=remat))
            if s.trains:
                batch = dataclasses.replace(s.batch, micro_batch_rows=fewer_rows, row_length=length)
                candidate = dataclasses.replace(candidate, batch=batch)
            if s.plays:
                rollout = dataclasses.replace(s.rollout, slots=fewer_slots, sharding=playing)
                candidate = dataclasses.replace(candidate, rollout=_shorter(rollout, length))
                candidate = candidate if s.decoding is None else decided(candidate, mesh)
            distance = kind + 0.5 * stricter + 1.6 * abs(math.log2(tensor / base.tensor))
            distance += 0.5 * (playing != asked.rollout.sharding)
            for old, new in ((rows, fewer_rows), (slots, fewer_slots)):
                halved = math.log2(old / new)
                distance += halved if halved >= 0 else -4 * halved  # more than was asked for is no remedy
            yield distance + 5 * math.log2(row / length), candidate


def _trained_mesh(s: Workload) -> MeshConfig:
    """Returns the mesh that the configuration says."""
    return s.mesh if s.decoding is None else s.decoding.trained


def _changes(old: Workload, new: Workload) -> dict[str, int | str]:
    """Returns the words of the command line that lead from one setting to another."""
    changed = {}
    for section in ("mesh", "batch", "rollout", "training", "adapter"):
        before, after = (_trained_mesh(s) if section == "mesh" else getattr(s, section) for s in (old, new))
        for name, value in vars(after).items():
            if value != getattr(before, name):
                changed[f"--config.{section}.{name}"] = value
    return changed

"""Data sets and a model for the tests of training on rows that lie there."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa

from dfc.models import huggingface
from dfc.models.transformer import initialize
from dfc.records.trajectory_files import write_atomically

TOKEN_IDS, MASK = pa.list_(pa.int32()), pa.list_(pa.bool_())


def sequences(count, *, seed=0, longest=60, vocabulary=700):
    """Random ids and masks whose first id is no action and which have one action at least."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        length = int(rng.integers(4, longest + 1))
        mask = rng.random(length) < 0.4
        mask[:2], mask[rng.integers(2, length)] = False, True
        found.append((rng.integers(0, vocabulary, length).astype(np.int32), mask))
    return found


def pairs(count, *, seed=0, longest=60):
    """Two sequences each that begin with the same two ids and then act."""
    chosen, rejected = (sequences(count, seed=seed + n, longest=longest) for n in (1, 2))
    for (token_ids, mask), (others, its) in zip(chosen, rejected, strict=True):
        others[:2] = token_ids[:2]
        mask[2] = its[2] = True
    return list(zip(chosen, rejected, strict=True))


def write_sft(path, found, **group):
    columns = {"token_ids": pa.array([i for i, _ in found], TOKEN_IDS), "mask": pa.array([m for _, m in found], MASK)}
    write_atomically(pa.table(columns), path, **group)
    return path


def write_pairs(path, found, **group):
    columns = {}
    for number, side in enumerate(("chosen", "rejected")):
        columns[f"{side}_token_ids"] = pa.array([pair[number][0] for pair in found], TOKEN_IDS)
        columns[f"{side}_mask"] = pa.array([pair[number][1] for pair in found], MASK)
    write_atomically(pa.table(columns), path, **group)
    return path


def trimmed(token_ids, mask):
    """What training reads of a sequence, as plain lists."""
    end = max(place for place, action in enumerate(mask) if action) + 1
    return [int(i) for i in token_ids[:end]], [bool(m) for m in mask[:end]]


def segments_of(batch):
    """Every segment of a micro-batch in order, place by place: ids, mask and old log-probabilities, by row."""
    rows = []
    for row in range(len(batch.tokens)):
        parts = []
        for segment, group in itertools.groupby(
            range(batch.tokens.shape[1]), key=lambda t, r=row: batch.segments[r, t]
        ):
            places = list(group)
            if segment:
                assert segment == len(parts) + 1
                assert batch.positions[row, places].tolist() == list(range(len(places)))
                reference = batch.sampled_logprobs if batch.reference_logprobs is None else batch.reference_logprobs
                arrays = (batch.tokens, batch.mask, reference)
                parts.append(tuple(array[row, places].tolist() for array in arrays))
            else:
                assert not any(array[row, places].any() for array in batch if array is not None)
        rows.append(parts)
    return rows


def save_model(folder):
    """A model of one small layer with the tokenizer of the bundled model."""
    player = huggingface.resolve("tiny_player")
    config, _ = huggingface.load(player, dtype="float32")
    config = dataclasses.replace(config, width=64, heads=2, kv_heads=2, head_dim=32, feed_forward=64, layers=1)
    huggingface.save(folder, config, initialize(config, 0), copy_from=player)
    return folder


class RandomReference:
    """Reference log-probabilities drawn at random."""

    def __init__(self, data):
        rng = np.random.default_rng(5)
        self.values = [[-rng.uniform(1, 3, n).astype(np.float32) for n in side.actions] for side in data.sides]

    def side(self, row, side):
        return self.values[side][row]

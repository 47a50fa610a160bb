"""A small model, sections of configurations and what fit counts of them, for the tests of recipes."""

import dataclasses

import jax
import tiny_models

from dfc.config import BatchConfig, MeshConfig, RolloutConfig, TrainingConfig
from dfc.tools.fit import analytic, holdings
from dfc.tools.fit.hardware import parse_topology
from dfc.tools.fit.iteration import ProgramCalls, lengths_of

MODEL = tiny_models.tiny(vocabulary=64, width=64, head_dim=16, feed_forward=128, qkv_bias=False, dtype="bfloat16")
EIGHT, ONE = parse_topology("h100:8"), parse_topology("h100:1")
MESH = MeshConfig(1, 4, 2)
LORA = {"rank": 4}
ONCE = ProgramCalls("one update", 1, decode=1, prefill=1, micro_batches=1, updates=1, scored=1)
TRAINING = TrainingConfig(attention="xla")
ROWS = {"mesh": MESH, "batch": BatchConfig(row_length=32, micro_batch_rows=8), "training": TRAINING}
SIZES = {"slots": 8, "max_length": 64, "max_reply_length": 8, "prefill_buckets": (8,), "decode_steps": 4}
ROLLOUT = RolloutConfig(**SIZES, sharding="training")
PLAYS = {"mesh": MESH, "rollout": ROLLOUT}


def workload_of(config, decoder=MODEL, topology=EIGHT):
    """A workload of described devices, but with a cache as on the CPUs where the tests' engines run."""
    found = holdings.workload_of(config, decoder, topology, lengths_of(config))
    return dataclasses.replace(found, platform="cpu")


def phases(config, **more):
    return analytic.memory(workload_of(config, **more)).phases


def really_local(arrays):
    return sum(a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(arrays))

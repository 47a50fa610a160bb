"""Engines as a run makes them, of any weights and on any mesh."""

import types

from dfc.rollout.host import ModelHost
from dfc.rollout.workers import RolloutWorkers, conversations


def engine_of(config, model, weights, mesh, sampling):
    """The engine that `RolloutWorkers` makes where the model of a configuration is this one; nothing ends a reply."""
    host = object.__new__(ModelHost)  # which would read a folder
    vars(host).update(
        _rollout=config.rollout,
        _slots=conversations(config) * config.rollout.slots,
        model=model,
        tokenizer=types.SimpleNamespace(stop_token_ids=lambda _: frozenset()),
        playing_mesh=mesh,
        apart=False,
    )
    workers = types.SimpleNamespace(_config=config, _sampling=sampling, host=host, initial_params=weights)
    return RolloutWorkers._engine(workers)

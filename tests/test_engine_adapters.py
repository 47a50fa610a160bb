"""Several adapters in one batch of the engine: each answers as it would alone, an absent one is refused."""

import dataclasses

import engine_talks
import jax
import numpy as np
import pytest
from engine_talks import CONFIG, make, run, talks

from dfc.models.lora import ALL_LINEAR, LoraConfig, abstract_adapters, merge, pool
from dfc.models.transformer import Adapters

params = engine_talks.params  # the fixture


def test_adapters_of_one_batch_answer_as_each_would_alone(params):
    """Two adapters in a pool, conversations of both in flight together; merged weights are the oracle."""
    lora = LoraConfig(rank=2, alpha=2.0, targets=ALL_LINEAR)
    rng = np.random.default_rng(4)
    adapters = [
        jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) * 0.3, abstract_adapters(CONFIG, lora))
        for _ in range(2)
    ]
    together = [dataclasses.replace(talk, adapter=index % 2) for index, talk in enumerate(talks(6, seed=7))]
    engine = make(params)
    engine.set_params(params, 1, Adapters(pool(adapters), lora.scale))
    run(engine, together)
    for number, tree in enumerate(adapters):
        expected = [dataclasses.replace(talk.fresh(), adapter=0) for talk in together if talk.adapter == number]
        single = make(params)
        single.set_params(params, 1, Adapters(tree, lora.scale))
        alone = [talk.fresh() for talk in expected]
        run(single, alone)
        merged = [talk.fresh() for talk in expected]
        run(make(merge(params, tree, lora.scale)), merged)
        for talk, one, plain in zip([t for t in together if t.adapter == number], alone, merged, strict=True):
            talk.same(one)
            talk.same(plain)
    first, second = (next(t for t in together if t.adapter == number) for number in (0, 1))
    assert first.token_ids != second.token_ids


def test_an_adapter_that_is_not_there_is_refused(params):
    lora = LoraConfig(rank=2, targets=ALL_LINEAR)
    one = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), abstract_adapters(CONFIG, lora))
    engine = make(params)
    with pytest.raises(ValueError, match="adapter 1: expected one of 0 to 0"):
        engine.open(0, adapter=1)
    engine.set_params(params, 1, Adapters(pool([one, one]), lora.scale))
    slot = engine.open(0, adapter=1)
    with pytest.raises(ValueError, match=r"use adapters \[1\]"):
        engine.set_params(params, 2, Adapters(one, lora.scale))
    engine.close(slot)
    engine.set_params(params, 2, Adapters(one, lora.scale))

"""What was sampled among few tokens is trained on among the same few: rollouts, packed rows and several devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tiny_models import random_params, tiny

from dfc import logprobs
from dfc.config import RolloutConfig, SamplingConfig
from dfc.episodes import from_bytes, to_bytes
from dfc.inference.constraints import ActionTrie, Position
from dfc.inference.engine import Engine
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.models.execution import Execution
from dfc.models.sharding import make_mesh
from dfc.packing import Segment, pack, segment
from dfc.rollout.runner import EpisodeSpec, RolloutRunner
from dfc.samples import Choices
from dfc.training.batch_logprobs import action_capacity, batch_logprobs

CONFIG = tiny(vocabulary=12, layers=1)
PROMPT = [3, 1, 4]
REPLIES = [[5, 9], [5, 2, 9], [7, 9], [7, 2, 9], [7, 3, 1, 9], [2, 9]]
ROW = 16


def written(reply):
    """A context with a reply that was sampled under the constraint to all of them."""
    place, sets = Position(ActionTrie.build(REPLIES), 0), [()] * len(PROMPT)
    for token_id in reply:
        sets.append(place.choices)
        place = place.after([token_id])
    mask = np.arange(len(sets)) >= len(PROMPT)
    return Segment(np.asarray([*PROMPT, *reply], np.int32), mask, 1.0, None, Choices.of(sets))


def free(seed):
    rng = np.random.default_rng(seed)
    return Segment(rng.integers(0, 12, 9).astype(np.int32), np.arange(9) > 4, 1.0)


@functools.cache
def scored(*segments, capacity="picked", mesh=None):
    batch = pack(list(map({"free": free(0), "other": free(1)}.get, segments)) + list(map(written, REPLIES)), ROW, 4)
    params = random_params(CONFIG)
    size = action_capacity(batch) if capacity == "picked" else None
    execution = Execution() if mesh is None else Execution(mesh=make_mesh(*mesh, devices=jax.devices()[:4]))
    found = jax.jit(lambda params: batch_logprobs(CONFIG, params, batch, size, 0.7, execution=execution))(params)
    return batch, np.asarray(found)


def by_reply(batch, values):
    found = {}
    for row in range(len(values)):
        for number in range(1, batch.segments[row].max() + 1):
            here = (batch.segments[row] == number) & (batch.mask[row] > 0)
            found[tuple(batch.tokens[row, here].tolist())] = values[row, here].sum()
    return found


@pytest.mark.parametrize(
    ("segments", "capacity", "mesh"),
    [
        ((), "picked", None),
        (("free", "other"), "picked", None),
        (("free",), "all", None),
        (("free",), "all", (2, 2, 1)),
    ],
    ids=["constrained alone", "and free ones", "all positions", "on four devices"],
)
def test_the_replies_that_are_allowed_have_probability_1_together(segments, capacity, mesh):
    batch, values = scored(*segments, capacity=capacity, mesh=mesh)
    found = by_reply(batch, values)
    assert sum(np.exp(found[tuple(reply)]) for reply in REPLIES) == pytest.approx(1, abs=1e-5)
    assert values[batch.mask == 0].tolist() == [0] * int((batch.mask == 0).sum())
    plain = pack([free(0)], ROW, 4)
    alone = jax.jit(lambda params: batch_logprobs(CONFIG, params, plain, plain.mask.size, 0.7))(random_params(CONFIG))
    key = tuple(free(0).token_ids[free(0).mask].tolist())
    if segments:
        assert found[key] == pytest.approx(float(np.asarray(alone).sum()), rel=1e-5)


@pytest.mark.parametrize("whole", [1 << 24, 0])  # with the rows of all choices at once, in a loop
@pytest.mark.parametrize(("temperature", "soft_cap"), [(1.0, None), (1.7, 2.0)])
def test_values_and_gradients_agree_with_torch(monkeypatch, whole, temperature, soft_cap):
    monkeypatch.setattr(logprobs.choices, "_WHOLE", whole)
    rng = np.random.default_rng(0)
    hidden, embedding = rng.normal(size=(10, 8)).astype(np.float32), rng.normal(size=(29, 8)).astype(np.float32)
    choices = np.stack([rng.choice(29, 3, replace=False) for _ in range(10)])
    choices[3, 2], choices[5, 1:], choices[7] = -1, -1, -1
    targets, weights = np.maximum(choices[:, 0], 0), rng.normal(size=10) * (choices[:, 0] >= 0)

    def ours(hidden, embedding):
        found = logprobs.constrained_logprobs(
            hidden, embedding, jnp.asarray(targets), jnp.asarray(choices), temperature=temperature, soft_cap=soft_cap
        )
        return jnp.sum(weights.astype(np.float32) * found)

    value, gradients = jax.jit(jax.value_and_grad(ours, argnums=(0, 1)))(hidden, embedding)
    theirs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (hidden, embedding)]
    logits = theirs[0] @ theirs[1].T
    logits = (logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)) / temperature
    total = torch.tensor(0.0, dtype=torch.float64)
    for n in np.flatnonzero(choices[:, 0] >= 0):
        allowed = choices[n][choices[n] >= 0].tolist()
        total = total + weights[n] * torch.log_softmax(logits[n, allowed], dim=0)[0]
    total.backward()
    np.testing.assert_allclose(value, total.detach(), rtol=1e-5)
    for mine, other in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(mine, other.grad, rtol=1e-4, atol=1e-6)


def test_the_trainer_finds_the_log_probabilities_of_a_rollout_among_legal_actions():
    config, params = huggingface.load("tiny_player", dtype="float32")
    tokenizer = ChatTokenizer.load(huggingface.resolve("tiny_player"))
    rollout = RolloutConfig(slots=4, max_length=256, max_reply_length=8, legal_only=True)
    engine = Engine(
        config,
        params,
        slots=4,
        max_length=256,
        stop_token_ids=tokenizer.stop_token_ids(()),
        sampling=SamplingConfig(temperature=4.0),  # at which the model alone would write anything
    )
    runner = RolloutRunner(rollout, tokenizer, engine, opponent="policy", opponent_name="itself")
    episodes = runner.play([EpisodeSpec("TicTacToe-v0", {}, n, n % 2, n, n) for n in range(4)])
    (told,) = from_bytes(to_bytes(episodes[:1]))
    np.testing.assert_array_equal(told.sample.choices.table(), episodes[0].sample.choices.table())
    batch = pack([segment(e.sample, 1.0) for e in episodes], 256, 4)
    assert ((batch.choices[:, :, 0] >= 0) == (batch.mask > 0)).all()
    among, everything = (
        jax.jit(lambda params, batch=b: batch_logprobs(config, params, batch, batch.mask.size, 4.0))(params)
        for b in (batch, batch._replace(choices=None))
    )
    np.testing.assert_allclose(among, batch.sampled_logprobs, atol=1e-4, rtol=0)
    assert np.abs(everything - batch.sampled_logprobs).max() > 0.01

"""REINFORCE++ (arXiv 2501.03262) as a method of one's own, with a KL price in the reward of every token."""

import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers
from self_play_runs import MODEL, make_model

from dfc.config import Grpo, GrpoConfig, MatchesConfig
from dfc.configs import smoke
from dfc.errors import TrainingError
from dfc.methods import grpo
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.training import rl
from dfc.training.games_run import Memory
from dfc.training.method import Iteration

PRICE = 0.5  # beta


def with_kl_in_the_reward(now, episodes, values):
    """A[t] = R - beta sum_{k >= t} (log pi[k] - log pi_ref[k]), normalised over all sampled tokens of the batch."""
    samples = [episode.sample for episode in episodes]
    pairs = zip(now.logprobs(samples), now.reference_logprobs(samples), strict=True)
    returns = [
        value - PRICE * np.cumsum((own - reference)[::-1])[::-1]
        for value, (own, reference) in zip(values, pairs, strict=True)
    ]
    every = np.concatenate([one[sample.mask] for one, sample in zip(returns, samples, strict=True)])
    advantages = [((one - every.mean()) / (every.std() + 1e-8)).astype(np.float32) for one in returns]
    members = np.arange(len(episodes))[:, None]  # each a group of its own
    return rl.share_out(samples, advantages, members, now.config.grpo.updates_per_iteration, now.seed("reinforce"))


def configured(**settings):
    base = smoke.get_config()
    return Grpo(
        name="reinforce",
        games={"GuessTheNumber-v0": {"max_number": 9}},
        model=dataclasses.replace(base.model, path=str(MODEL), dtype="float32"),
        rollout=dataclasses.replace(base.rollout, slots=4, max_length=160, prefill_buckets=(64,)),
        batch=dataclasses.replace(base.batch, row_length=160),
        training=base.training,
        grpo=GrpoConfig(updates_per_iteration=1, kl_coefficient=0.0),
        evaluation=MatchesConfig(games=2),
        groups_per_game=2,
        group_size=3,
        **{"iterations": 2, **settings},
    )


def method_of(config):
    return dataclasses.replace(rl.grpo(config), advantages=with_kl_in_the_reward, asks_reference=True)


def torch_logprobs(folder, token_ids):
    """log p(token t | tokens before it) under a saved model, float64, 0 at the first token; by transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        logits = model(torch.tensor(np.asarray(token_ids)[None].tolist())).logits[0]
    found = torch.log_softmax(logits[:-1], -1).numpy()
    return [0.0, *(found[t, token] for t, token in enumerate(np.asarray(token_ids)[1:].tolist()))]


def by_hand(folders, episodes, values):
    """The formula of the paper, token by token, in plain Python: [(episode, place)] -> its advantage."""
    returns = {}
    for number, (episode, value) in enumerate(zip(episodes, values, strict=True)):
        sample = episode.sample
        own, reference = (torch_logprobs(folder, sample.token_ids) for folder in folders)
        sampled = [place for place, mine in enumerate(sample.mask.tolist()) if mine]
        for place in sampled:
            kl_to_go = sum(own[later] - reference[later] for later in sampled if later >= place)
            returns[number, place] = value - PRICE * kl_to_go
    mean = sum(returns.values()) / len(returns)
    deviation = (sum((one - mean) ** 2 for one in returns.values()) / len(returns)) ** 0.5
    return {key: (one - mean) / deviation for key, one in returns.items()}


@pytest.fixture(scope="module", autouse=True)
def model():
    make_model()


def test_advantages_are_those_of_the_paper_computed_by_transformers_and_by_hand(tmp_path):
    config = configured()
    method = method_of(config)
    with (
        RunFolder.open(tmp_path / "run", config, command="test") as folder,
        jax.numpy_dtype_promotion("standard"),
    ):
        run = method.open(config, folder, Stop())
        state = run.restore() or run.begin()
        # Another policy than the reference: its weights are moved a little, each at random.
        moved = jax.tree.map(
            lambda x: x + 0.3 * x.std() * jax.random.normal(jax.random.key(1), x.shape, x.dtype), state.best
        )
        state.best = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), moved, state.best)
        state.win_rates = dict.fromkeys(config.games, 0.0)
        now = Iteration(run, state, "stage", list(config.games), Memory())
        episodes = method.play(now).trained
        values = [float(number % 3) for number in range(len(episodes))]
        shares = method.advantages(now, episodes, values)
        run.write_policy(state.best, tmp_path / "moved", tmp_path / "adapter")
        run.close()
    expected = by_hand((tmp_path / "moved", MODEL), episodes, values)
    found = {bytes(one.token_ids): np.asarray(one.advantage)[one.mask] for share in shares for one in share}
    for number, episode in enumerate(episodes):
        sample = episode.sample
        sampled = np.flatnonzero(sample.mask)
        own = found[bytes(sample.token_ids[: sampled[-1] + 1])]
        np.testing.assert_allclose(own, [expected[number, place] for place in sampled], atol=2e-3)
    spread = np.concatenate(list(found.values()))
    assert spread.std() > 0.5


def test_a_run_of_it_trains(tmp_path):
    config = configured()
    with RunFolder.open(tmp_path, config, command="test") as folder, jax.numpy_dtype_promotion("standard"):
        grpo.learn(method_of(config), config, folder, Stop())
    assert (tmp_path / "policy" / "model.safetensors").exists()


def test_a_method_that_does_not_ask_for_the_reference_is_told_how(tmp_path):
    config = configured(iterations=1)
    method = dataclasses.replace(method_of(config), asks_reference=False)
    with (
        RunFolder.open(tmp_path, config, command="test") as folder,
        jax.numpy_dtype_promotion("standard"),
        pytest.raises(TrainingError, match="make it with asks_reference=True"),
    ):
        grpo.learn(method, config, folder, Stop())

"""GRPO on a real game, the whole loop to read: play, reward, advantage, pack, update.

The bundled model learns tic-tac-toe against the model it began as: `python -m dfc.methods.loop`, one line an iteration.
Every name is public; nothing is saved. The recipe `grpo` adds checkpoints, resume, evaluation and the report.
"""

from collections.abc import Iterator

import jax
import numpy as np

from dfc.advantages import group_relative
from dfc.config import OptimizerConfig, RolloutConfig, SamplingConfig
from dfc.games.rng import derive_seed
from dfc.inference.engine import Engine
from dfc.losses import Loss, grpo_loss
from dfc.models.chat import ChatTokenizer
from dfc.models.huggingface import load, resolve
from dfc.packing import packed, segment
from dfc.rewards import outcome_reward
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.runner import RolloutRunner
from dfc.samples import TokenBatch
from dfc.training.optimizer import make_optimizer
from dfc.training.trainer import Trainer, Update

# Groups of games that begin alike; tokens of a game at most, and of a row of training.
GAME, GROUPS, GROUP_SIZE, ROW_LENGTH = "TicTacToe-v0", 8, 8, 256


def loss(logprobs: jax.Array, batch: TokenBatch, _reference_logprobs: jax.Array | None) -> Loss:
    """Returns GRPO's loss without a reference policy; any function of these arrays may stand here."""
    return grpo_loss(logprobs, batch.sampled_logprobs, batch.advantages, batch.mask)


def train(iterations: int, seed: int = 0) -> Iterator[tuple[float, Update]]:
    """Yields of every iteration the mean reward and the update."""
    model, initial = load("tiny_player", dtype="float32")
    tokenizer = ChatTokenizer.load(resolve("tiny_player"), enable_thinking=None)
    rollout = RolloutConfig(slots=32, max_length=ROW_LENGTH, max_reply_length=4, stop=("]",), legal_only=True)
    ends, sampling = tokenizer.stop_token_ids(rollout.stop), SamplingConfig(temperature=1.0)
    engine = Engine(model, initial, slots=64, max_length=ROW_LENGTH, stop_token_ids=ends, sampling=sampling)
    engine.set_params(initial, 0, policy="opponent")
    runner = RolloutRunner(rollout, tokenizer, engine, opponent="opponent", opponent_name="initial")
    trainer = Trainer(model, loss, make_optimizer(OptimizerConfig(learning_rate=1e-3)))
    optimizer_state = trainer.initial_state(params := trainer.initial_params(initial))

    for iteration in range(iterations):
        # Play: the games of a group share the deal and the seat, and differ in what is sampled.
        engine.set_params(trainer.policy(params), iteration + 1)
        specs = []
        for group in range(GROUPS):
            deal = derive_seed("deal", seed, iteration, group)
            draws = [derive_seed("draws", seed, iteration, group, member) for member in range(GROUP_SIZE)]
            specs += [EpisodeSpec(GAME, {}, deal, group % 2, group, draw) for draw in draws]
        episodes = runner.play(specs)

        # Reward, and advantage: how much better than its group's mean a game went.
        rewards = np.asarray([outcome_reward(episode.outcome) for episode in episodes], np.float32)
        advantages = group_relative(rewards.reshape(GROUPS, GROUP_SIZE)).ravel()

        # Pack: several games to a row, 16 rows at a time. Update: one step of the optimizer on all of them.
        segments = [segment(episode.sample, float(one)) for episode, one in zip(episodes, advantages, strict=True)]
        update = trainer.update(params, optimizer_state, packed(segments, ROW_LENGTH, 16, trainer.halves))
        params, optimizer_state = update.params, update.optimizer_state
        yield float(rewards.mean()), update


def main(iterations: int = 20) -> None:
    """Trains and prints."""
    for number, (reward, update) in enumerate(train(iterations), start=1):
        print(f"{number:2}  reward {reward:+.3f}  loss {update.loss:+.3f}", flush=True)  # noqa: T201 - progress


if __name__ == "__main__":
    main()

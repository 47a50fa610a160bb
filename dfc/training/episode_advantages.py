"""Advantages of episodes and of their turns: how much better they did than those that share their baseline."""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from dfc import advantages
from dfc.config import GrpoConfig
from dfc.episodes import Episode
from dfc.errors import TrainingError
from dfc.samples import Sample
from dfc.scoring import episode_rewards
from dfc.scoring.episode_rewards import Reward, total


def group_members(episodes: Sequence[Episode]) -> np.ndarray:
    """Returns which episodes form a group, int [groups, size]: same game, same deal, same seat."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)  # the seats of one group see different games
    for index, episode in enumerate(episodes):
        groups[episode.group, episode.seat].append(index)
    return np.asarray(list(groups.values()))


def relative(
    episodes: Sequence[Episode], values: Sequence[Reward], members: np.ndarray, config: GrpoConfig
) -> np.ndarray:
    """Returns `of_turns`, float32 [episodes, turns], where any reward is one of turns, else `of_episodes`."""
    if any(isinstance(value, list) for value in values):
        return of_turns(episodes, values, members, config)
    return of_episodes(episodes, [total(value) for value in values], members, config)


def of_episodes(
    episodes: Sequence[Episode], values: Sequence[float] | np.ndarray, members: np.ndarray, config: GrpoConfig
) -> np.ndarray:
    """Returns each episode's advantage, float32 [episodes]; 0 for those that do not count, whose rewards are not read.

    `members`, int [groups, size], says which episodes form a group.
    """
    counted = np.asarray([episode.counted for episode in episodes])
    rewards_ = np.asarray(values, np.float32)
    if config.baseline == "role":
        roles = {role: number for number, role in enumerate(dict.fromkeys((e.game, e.seat) for e in episodes))}
        numbers = np.asarray([roles[e.game, e.seat] for e in episodes])
        return advantages.role_relative(
            rewards_, numbers, num_roles=len(roles), normalize_std=config.normalize_std, mask=counted
        )
    relative = np.zeros(len(episodes), np.float32)
    table, mask = rewards_[members], counted[members]
    if config.baseline == "leave_one_out":
        relative[members] = advantages.leave_one_out(table, mask=mask)
    else:
        relative[members] = advantages.group_relative(table, normalize_std=config.normalize_std, mask=mask)
    return relative


def of_turns(
    episodes: Sequence[Episode], values: Sequence[Reward], members: np.ndarray, config: GrpoConfig
) -> np.ndarray:
    """Returns the advantage of every turn of every episode, float32 [episodes, turns], 0 after an episode's last turn.

    The return of a turn (`dfc.scoring.episode_rewards.returns`) is compared with the same turn of
    the episodes that share its baseline; those that were over by then count with the return of their last turn. So a
    reward that is paid at the last turn alone gives every turn the advantage that `of_episodes` gives the
    episode.

    Source: none of the papers; the returns are those of REINFORCE, the baseline that of GRPO (arXiv 2402.03300, section
    4.1.2), whose process supervision (4.1.3) subtracts one mean from the rewards of all steps instead, so that longer
    episodes gain or lose by their length.
    """
    table = episode_rewards.returns(values)
    relative = np.stack([of_episodes(episodes, column, members, config) for column in table.T], axis=1)
    taken = np.asarray([len(episode_rewards.turns(episode)) for episode in episodes])
    return np.where(np.arange(table.shape[1]) < taken[:, None], relative, 0)


def of_tokens(episode: Episode, of_turns: np.ndarray) -> np.ndarray:
    """Returns advantages of turns as those of the tokens that were sampled in them, float32 [n], 0 elsewhere.

    A random action played instead of the policy's own has a turn and no sampled token.

    Raises:
      TrainingError: the tokens show another number of replies than the record.
    """
    own = np.flatnonzero(episode_rewards.turns(episode))
    mask, begins = episode.sample.mask, episode.sample.begins
    if int(begins.sum()) != len(own):
        raise TrainingError(
            f"a game of {episode.game} has {len(own)} replies of the policy on record and {int(begins.sum())} in its "
            "tokens; rewards of turns cannot be told apart"
        )
    found = np.zeros(len(mask), np.float32)
    found[mask] = of_turns[own][np.cumsum(begins)[mask] - 1]
    return found


def by_token(
    episodes: Sequence[Episode], advantages: np.ndarray, dropped: np.ndarray
) -> tuple[list[Sample], list[float | np.ndarray]]:
    """Returns samples without the turns that are dropped, and advantages of turns as those of tokens.

    `advantages` are of every turn, float32 [episodes, turns]; `dropped` is bool of this shape: the tokens of these
    turns leave the masks of their samples.

    Returns:
      Of every episode its sample, and float32 [n]; 0 where all of its turns have advantage 0.
    """
    samples: list[Sample] = []
    found: list[float | np.ndarray] = []
    for episode, row, without in zip(episodes, advantages, dropped, strict=True):
        sample = episode.sample
        if without.any():
            lost = of_tokens(episode, without) > 0
            sample = dataclasses.replace(sample, mask=sample.mask & ~lost)
        samples.append(sample)
        # A game that failed, whose tokens and record may differ, has advantage 0: nothing is learned from it.
        found.append(of_tokens(episode, row) if row.any() else 0.0)
    return samples, found

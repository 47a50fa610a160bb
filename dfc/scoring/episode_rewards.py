"""The reward of an episode: Table 1 of Divide-Fuse-Conquer, Table 5 of Playpen, quality, or custom functions.

Sources: arXiv 2505.16401 (Table 1), arXiv 2504.08590 (Table 5 and appendix D.4).

A number for the whole episode, or one for each of the policy's turns. A turn is a reply of the policy's seat, a random
one played in its place included, and, where a reply filled the policy's context, this one, which no record has.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dfc import multihost, own_code, rewards
from dfc.config import RewardConfig
from dfc.episodes import Episode
from dfc.errors import ExitError, TrainingError
from dfc.games import functions

_SHOWN = 80  # characters of a value in an error
_MOST_ROUNDS = 3  # of taboo in which Table 5 pays a guess
_ALL_OR_NOTHING = frozenset({"clem_wordle", "clem_wordle_withclue", "clem_wordle_withcritic", "clem_referencegame"})
Reward = float | list[float]
"""A reward of a whole episode, or of every turn of it."""


def reward(episode: Episode, config: RewardConfig) -> float:
    """Returns an episode's reward: Table 1 or quality, or an overrun's price, less what retried replies cost.

    A reply that forfeits, illegal or malformed, is answered with none: the format reward is its price. `table_5` has no
    prices: there a game that a reply ended has the reward 0.
    """
    if config.measure == "table_5":
        return table_5(episode)
    invalid = episode.outcome == "invalid" and not episode.broken_off
    form = rewards.format_reward(not invalid, invalid=config.invalid) if config.format else 0.0
    outcome = rewards.outcome_reward("loss" if episode.ran_out else episode.outcome)
    steps = max(1, episode.steps) if config.hasty_action_penalty else 1
    forgiven = max(0, episode.illegal_tries - int(invalid and not episode.malformed))
    forgiven += max(0, episode.malformed_tries - int(invalid and episode.malformed))
    value = rewards.step_reward(form, outcome, steps)
    if config.measure == "quality":
        value = (episode.quality or 0.0) / 100
    if episode.overran:
        value = config.overrun
    return value - config.illegal_try * forgiven


def table_5(episode: Episode) -> float:
    """Returns the reward of an episode of a dialogue game, from 0 to 1.

    ::

        taboo                                 1 / n for the right guess in round n <= 3, else 0
        wordle, with clue, with critic        1 for the right word, else 0
        reference game                        1 for the right grid, else 0
        image game                            F1 of the drawn grid and the target
        private and shared                    share of slots that were filled; what was asked aside does not count
        any other game                        its quality / 100

    A game that was broken off, by any seat, and one whose context was full has the reward 0.

    Source: Playpen (arXiv 2504.08590), Table 5. Departures: of games that the table does not name the quality is paid;
    the table gives no reward to a game that the teacher broke off, since that is played again
    (`dfc.training.teacher_errors`).
    """
    if episode.failed or episode.abort_reason is not None or episode.outcome not in ("win", "draw", "loss"):
        return 0.0
    won = episode.outcome == "win"
    if episode.game == "clem_taboo":
        rounds = episode.measures["rounds"]
        return 1 / rounds if won and rounds <= _MOST_ROUNDS else 0.0
    if episode.game in _ALL_OR_NOTHING:
        return float(won)
    if episode.game == "clem_privateshared":
        return float(episode.measures["slot_accuracy"])
    return (episode.quality or 0.0) / 100


def rewards_of(episodes: Sequence[Episode], config: RewardConfig) -> list[Reward]:
    """Returns the rewards of episodes: `reward`, or what the configured functions return; 0 of one that does not count.

    A function of episodes may return a number for each of the policy's replies. The mean of what `config.text` says of
    its replies is added.

    Raises:
      TrainingError: a function raises, returns no finite number, one above `dfc.rewards.LARGEST` in size, or not one
        for each reply.
      ExitError: it calls ``sys.exit``.
    """
    of_episode, of_text = functions.named(config.function), functions.named(config.text)
    found: list[Reward] = []
    for episode in episodes:
        if not episode.counted:  # nothing reads it
            found.append(0.0)
            continue
        if of_episode is None:
            value: Reward = reward(episode, config)
        else:
            value = _asked(of_episode, episode, f"reward.function={config.function!r}", episode)
            if isinstance(value, list):
                value = _of_every_turn(value, episode, config)
        if of_text is not None:
            value = _with_texts(value, episode, of_text, f"reward.text={config.text!r}")
        found.append(value)
    return found


def agreed_rewards(episodes: Sequence[Episode], config: RewardConfig) -> list[Reward]:
    """Returns the rewards of episodes, the same on every host; they are those of `rewards_of`.

    A custom function is called on one host: hosts that disagree would train apart.

    Raises:
      TrainingError: as `rewards_of`; DfcError on the other hosts.
    """
    own = bool(config.function or config.text)
    asked = not own or multihost.is_primary()
    values = multihost.on_all_hosts(lambda: rewards_of(episodes, config) if asked else [])
    found: list[Reward] = multihost.broadcast(values) if own else values
    return found


def total(value: Reward) -> float:
    """Returns the reward of the whole episode."""
    return sum(value) if isinstance(value, list) else value


def turns(episode: Episode) -> list[bool]:
    """Returns of every turn of the policy's seat whether the policy sampled it; a reply that was cut off is the last.

    A context is filled by a reply, which is cut off, or by what the seat is shown after one.
    """
    own = (reply for reply in episode.replies if reply.seat == episode.seat and not reply.aside)
    said = [reply.speaker == "policy" for reply in own]
    cut = episode.overran and int(episode.sample.begins.sum()) > sum(said)
    return [*said, True] if cut else said


def returns(values: Sequence[Reward]) -> np.ndarray:
    """Returns the return of every turn, the sum of its reward and of those after it, float32 [episodes, turns].

    ::

        G[i, t] = sum_{k >= t} r[i, k],    t below the turns of episode i; after its last turn, the reward of that turn

    A number for a whole episode is the same at every turn, as if it were paid at the last one.
    """
    longest = max((len(value) for value in values if isinstance(value, list)), default=1)
    table = np.zeros((len(values), max(1, longest)), np.float32)
    for row, value in enumerate(values):
        to_go = np.cumsum(value[::-1])[::-1] if isinstance(value, list) and value else np.asarray([total(value)])
        table[row] = np.concatenate([to_go, np.full(table.shape[1] - len(to_go), to_go[-1])])
    return table


def _asked(function: Callable[..., Any], about: Episode | str, name: str, episode: Episode) -> Reward:
    """Returns the result of a custom function."""
    try:
        with own_code.no_exit(name):
            value = function(about)
    except ExitError:
        raise
    except Exception as error:  # custom code may raise anything
        raise TrainingError(f"{name} {own_code.told(error)}") from error
    try:
        several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim)
        found: Reward = [float(each) for each in value] if several else float(value)
    except Exception as error:  # float() of a custom object may raise anything
        what = f"{type(value).__name__} {str(value)[:_SHOWN]}"
        raise TrainingError(f"{name} returned {what}; expected a number, or one for each reply") from error
    wrong = [each for each in (found if isinstance(found, list) else [found]) if not math.isfinite(each)]
    if wrong:
        raise TrainingError(f"{name} returned {wrong[0]} for a game of {episode.game}")
    largest = max(map(abs, found if isinstance(found, list) else [found]), default=0.0)
    if largest > rewards.LARGEST:
        raise TrainingError(
            f"{name} returned a number of size {largest:.4g} for a game of {episode.game}; one above "
            f"{rewards.LARGEST:g} cannot be learned from, as squares of its gradients come near the largest float32: "
            "return smaller ones"
        )
    return found


def _of_every_turn(value: list[float], episode: Episode, config: RewardConfig) -> list[float]:
    """Returns the rewards of replies as those of turns; where the context was filled, the last turn costs that."""
    if len(value) != episode.steps:
        raise TrainingError(
            f"reward.function={config.function!r} returned {len(value)} numbers for a game of {episode.game} in which "
            f"the policy's seat replied {episode.steps} times; return one for each reply, or one number"
        )
    found = [*value, *[0.0] * (len(turns(episode)) - len(value))]
    if episode.overran and found:
        found[-1] += config.overrun
    return found


def _with_texts(value: Reward, episode: Episode, function: Callable[..., Any], name: str) -> Reward:
    """Returns rewards with the mean of what a function says of the policy's own replies, paid at the end.

    Paid reply by reply, a turn with more of them to come would pay more than one that ends the game.
    """
    mine = (r for r in episode.replies if r.seat == episode.seat and r.speaker == "policy" and not r.aside)
    own = [reply.text for reply in mine]
    said = [_asked(function, text, name, episode) for text in own]
    for one in said:
        if isinstance(one, list):
            raise TrainingError(f"{name} returned {len(one)} numbers for one reply of {episode.game}; return one")
    mean = float(np.mean(said)) if said else 0.0
    if isinstance(value, list):
        return [*value[:-1], value[-1] + mean] if value else value
    return value + mean

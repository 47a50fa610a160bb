"""What an episode is worth: by Table 1 of Divide-Fuse-Conquer (arXiv 2505.16401), or by a function of one's own."""

import math
from collections.abc import Sequence

from dfc import rewards
from dfc.config import RewardConfig
from dfc.episodes import Episode
from dfc.errors import TrainingError
from dfc.games import functions, loading


def reward(episode: Episode, config: RewardConfig) -> float:
    """Returns what an episode is worth: Table 1, or an overrun's price in its place, less what retried replies cost.

    A reply that forfeits, illegal or malformed, is answered with none: the format reward is its price.
    """
    invalid = episode.outcome == "invalid"
    form = rewards.format_reward(not invalid, invalid=config.invalid) if config.format else 0.0
    outcome = rewards.outcome_reward("loss" if episode.ran_out else episode.outcome)
    steps = max(1, episode.steps) if config.hasty_action_penalty else 1
    forgiven = episode.illegal_tries - int(invalid and not episode.malformed)
    forgiven += max(0, episode.malformed_tries - int(invalid and episode.malformed))
    worth = config.overrun if episode.overran else rewards.step_reward(form, outcome, steps)
    return worth - config.illegal_try * forgiven


def rewards_of(episodes: Sequence[Episode], config: RewardConfig) -> list[float]:
    """Returns what episodes are worth: `reward`, or what the configured function returns; 0 where that does not count.

    Raises:
      TrainingError: the function raises, or returns no finite number.
    """
    function = functions.named(config.function)
    if function is None:
        return [reward(episode, config) for episode in episodes]
    found = []
    for episode in episodes:
        if not episode.counted:  # nothing reads it
            found.append(0.0)
            continue
        try:
            value = float(function(episode))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # code of one's own may raise anything, or call sys.exit
            raise TrainingError(f"reward.function={config.function!r} raised {loading.error_text(error)}") from error
        if not math.isfinite(value):
            raise TrainingError(f"reward.function={config.function!r} returned {value} for a game of {episode.game}")
        found.append(value)
    return found

"""How far below the usable queries a penalised one is put: a share of the range of rewards, or their deviation so far.

The Challenger's reward is r = -V + w V_Q, so its range is that of R and w times that of the marks, together. A fixed
margin would be nothing beside a preference model's scores of ±20, and would dominate rewards in [0, 1].
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from dfc.methods.language_self_play.self_reward import POINTS

SHARE = 0.25  # of the range
_UNIT = {"families", "formats", "references"}  # sources whose values are in [0, 1]


@dataclasses.dataclass(frozen=True)
class Scored:
    """Count, mean and squared differences of the rewards R that a run has scored so far; it goes into a checkpoint.

    Attributes:
      count: of rewards. mean: of them. squares: the sum of squared differences to the mean.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def with_(self, rewards: np.ndarray) -> "Scored":
        """Returns this with further rewards, floating [n], taken in (Chan, Golub and LeVeque, 1979)."""
        if not len(rewards):
            return self
        values = np.asarray(rewards, np.float64)
        mean, count = float(values.mean()), self.count + len(values)
        apart = mean - self.mean
        squares = self.squares + float(np.square(values - mean).sum()) + apart**2 * self.count * len(values) / count
        return Scored(count, self.mean + apart * len(values) / count, squares)

    @property
    def deviation(self) -> float:
        """The standard deviation of the rewards; 0 without."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


def reward_range(sources: Mapping[str, float]) -> float | None:
    """Returns the length of the interval that holds R; None if a source has none that is known.

    ``families``, ``formats`` and ``references`` lie in [0, 1]; a custom function and a preference model may give any
    number. `sources` are those of R, name -> weight in the sum (`dfc.config.AnswerRewardConfig.weights`).

    >>> reward_range({"families": 1.0, "formats": 0.5})
    1.5
    """
    return math.fsum(sources.values()) if sources.keys() <= _UNIT else None


def margin(sources: Mapping[str, float], scored: Scored, weight: float) -> float:
    """Returns the margin of `roles.role_advantages`, above 0, in units of the Challenger's reward.

    A quarter of the range of R, or, where it has none that is known, one standard deviation of the run's rewards so
    far; and a quarter of the range of w R_Q. Rewards that are all equal so far have no scale: 1 then, or their size if
    it is greater, so that a function that returns 0 at first does not make bad queries free. `scored` are the run's
    rewards so far, with those of this iteration; the weight w is 0 where no judge is asked.

    >>> margin({"families": 1.0}, Scored(), weight=1.0)
    2.0
    """
    known = reward_range(sources)
    of_rewards = SHARE * known if known is not None else scored.deviation or max(1.0, abs(scored.mean))
    return of_rewards + SHARE * weight * POINTS

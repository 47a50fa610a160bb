"""clemscore: how often dialogue games are played to their end, and how well those that were; pure functions.

Source: Chalamalasetti et al., clembench, EMNLP 2023, section 3.3; "Playpen", sections 3.4 and 5; the order of its
roundings is that of clemcore 3.7.2.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

_DIGITS = 2


@dataclasses.dataclass(frozen=True)
class GameScore:
    """The score of the instances of one game.

    Attributes:
      played: 100 x the share of instances that were played to their end, rounded to two digits.
      quality: mean of those that were, 0 to 100, rounded likewise; None where none was.
      instances: how many there are.
    """

    played: float
    quality: float | None
    instances: int


@dataclasses.dataclass(frozen=True)
class Clemscore:
    """A whole benchmark in three numbers, each rounded to two digits.

    Attributes:
      clemscore: (played / 100) x quality; 0 where nothing was played.
      played: mean over all games of their `played`.
      quality: mean over the games of which an instance was played; None where none was.
    """

    clemscore: float
    played: float
    quality: float | None


def game_score(qualities: Iterable[float | None]) -> GameScore:
    """Returns the score of one game, from the qualities of its instances, 0 to 100.

    A quality is None for an instance that was not played to its end (aborted, failed, or out of context).

    Raises:
      ValueError: there is no instance, or a quality is out of range.
    """
    found = list(qualities)
    if not found:
        raise ValueError("a game's score needs at least one instance, got none")
    played = [float(quality) for quality in found if quality is not None]
    wrong = [quality for quality in played if not 0 <= quality <= 100]
    if wrong:
        raise ValueError(f"a quality must be from 0 to 100, or None if it was not played, got {wrong[0]}")
    return GameScore(
        played=_rounded(len(played) / len(found) * 100),
        quality=_rounded(_mean(played)) if played else None,
        instances=len(found),
    )


def clemscore(scores: Mapping[str, GameScore] | Iterable[GameScore]) -> Clemscore:
    """Returns the score of several games, each weighing the same: means of what is rounded already, rounded again.

    A game of which nothing was played counts in `played` and drops out of `quality`.

    Raises:
      ValueError: there is no game.
    """
    # By name, as a table of all games lists them: where a half unit hangs on the order of a sum, it is that order.
    found = [scores[name] for name in sorted(scores)] if isinstance(scores, Mapping) else list(scores)
    if not found:
        raise ValueError("a clemscore needs at least one game, got none")
    qualities = [score.quality for score in found if score.quality is not None]
    played = _rounded(_mean([score.played for score in found]))
    quality = _rounded(_mean(qualities)) if qualities else None
    return Clemscore(_rounded(played / 100 * (quality or 0.0)), played, quality)


def _mean(values: Sequence[float]) -> float:
    """Returns the mean of a sum that compensates its rounding (Kahan), as pandas' means by group are.

    Half units occur often here, since what is averaged has two digits, and another sum rounds some of them differently.
    """
    total = lost = 0.0
    for value in values:
        following = total + (value - lost)
        lost = following - total - (value - lost)
        total = following
    return total / len(values)


def _rounded(value: float) -> float:
    """Returns a value rounded as numpy and pandas do, which is not always what Python's `round` gives."""
    return float(np.round(value, _DIGITS))

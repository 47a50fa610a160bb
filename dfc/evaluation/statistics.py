"""Counts of finished games and what they support: scores, intervals, differences.

A win is worth 1, a draw 1/2, a loss 0. A truncated game was decided by no rule: it is counted apart and enters no
score. A one-player game is judged by the share solved instead, of the decided games. Every interval treats games as
independent and covers about 95 % unless `z` says otherwise. An interval that no game supports is (nan, lowest,
highest) rather than an error: an unfinished run has such cells.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeVar

from dfc.errors import RunFolderError

K = TypeVar("K", bound=Hashable)

Z_95 = 1.96  # two-sided 95 % of the normal distribution


class Interval(NamedTuple):
    """An estimate and the interval around it.

    Attributes:
      estimate: the point estimate; nan if nothing was counted.
      low: lower bound.
      high: upper bound.
    """

    estimate: float
    low: float
    high: float


def mean_or_nan(values: Sequence[float]) -> float:
    """Returns the mean of values, by their exact sum; nan of none."""
    return math.fsum(values) / len(values) if values else math.nan


def wilson_interval(successes: float, trials: float, z: float = Z_95) -> Interval:
    """Returns a proportion with Wilson's score interval.

    With p = successes / trials and n = trials, the bounds are
    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n). Source: Wilson, JASA 22 (1927), 209-212.
    Without trials it is (nan, 0, 1). z is a normal quantile.

    Raises:
      ValueError: successes is not within 0 to trials, or z is not above 0.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must be within 0 to trials ({trials}), got {successes}")
    _check_z(z)
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0)
    p = successes / trials
    shrink = 1 + z * z / trials
    centre = (p + z * z / (2 * trials)) / shrink
    half = z * math.sqrt(p * (1 - p) / trials + (z / (2 * trials)) ** 2) / shrink
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Interval(p, low, high)


def score_interval(wins: int, draws: int, losses: int, z: float = Z_95) -> Interval:
    """Returns the mean score (win 1, draw 1/2, loss 0) with the score interval of a trinomial.

    The interval holds every delta = P(win) - P(loss) that the score test does not reject:
    |wins - losses - n delta| <= z sqrt(n (2 q + delta (1 - delta))), where q is the maximum-likelihood P(loss) under
    P(win) - P(loss) = delta; the score is (1 + delta) / 2. Without draws it equals Wilson's interval; with nothing
    but draws it keeps a width. Source: Tango, Statistics in Medicine 17 (1998), 891-908, whose discordant pairs are
    wins and losses here and whose concordant pairs are draws. z is a normal quantile.

    Raises:
      ValueError: a count is negative, or z is not above 0.
    """
    if min(wins, draws, losses) < 0:
        raise ValueError(f"counts must be 0 or more, got {wins} wins, {draws} draws, {losses} losses")
    _check_z(z)
    games = wins + draws + losses
    if games == 0:
        return Interval(math.nan, 0.0, 1.0)

    def excess(delta: float) -> float:
        """Squared distance of the counts from delta less the squared distance that is still accepted."""
        a, b, c = 2 * games, (2 * games - wins + losses) * delta - wins - losses, -losses * delta * (1 - delta)
        root = math.sqrt(max(0.0, b * b - 4 * a * c))
        # The larger root of a q^2 + b q + c; for b > 0 the usual formula would subtract nearly equal numbers.
        q = -2 * c / (b + root) if b > 0 and b + root > 0 else (root - b) / (2 * a)
        variance = games * max(0.0, 2 * q + delta * (1 - delta))
        return (wins - losses - games * delta) ** 2 - z * z * variance

    estimate = (wins - losses) / games
    low = -1.0 if losses == games else _boundary(excess, estimate, -1.0)
    high = 1.0 if wins == games else _boundary(excess, estimate, 1.0)
    return Interval((wins + draws / 2) / games, (1 + low) / 2, (1 + high) / 2)


def interval_of_difference(first: Interval, second: Interval) -> Interval:
    """Returns first - second for two independent estimates, from their own intervals.

    The lower bound is d - sqrt((e1 - l1)^2 + (u2 - e2)^2) and the upper bound d + sqrt((u1 - e1)^2 + (e2 - l2)^2),
    clipped to [-1, 1]. Source: Newcombe, Statistics in Medicine 17 (1998), 873-890, method 10, which uses Wilson
    intervals; other intervals may stand in their place. An estimate that is nan gives (nan, -1, 1).
    """
    if math.isnan(first.estimate) or math.isnan(second.estimate):
        return Interval(math.nan, -1.0, 1.0)
    d = first.estimate - second.estimate
    low = d - math.hypot(first.estimate - first.low, second.high - second.estimate)
    high = d + math.hypot(first.high - first.estimate, second.estimate - second.low)
    return Interval(d, max(-1.0, low), min(1.0, high))


def difference_interval(
    first_successes: float, first_trials: float, second_successes: float, second_trials: float, z: float = Z_95
) -> Interval:
    """Returns the difference of two independent proportions, first - second, with Newcombe's hybrid score interval.

    Source: Newcombe (1998), method 10; see `interval_of_difference` for the formula and `wilson_interval` for the
    errors raised.
    """
    first = wilson_interval(first_successes, first_trials, z)
    return interval_of_difference(first, wilson_interval(second_successes, second_trials, z))


def sign_test(better: int, worse: int) -> float:
    """Returns the two-sided p-value of the exact sign test on pairs; for yes-or-no outcomes it is McNemar's exact test.

    With n = better + worse pairs that are no tie, and k the smaller of the two: min(1, 2 P(X <= k)) for X binomial with
    n trials of probability 1/2; 1 without any pair, and 0 only where it is below what a float holds. Ties are
    inconclusive and are left out before. Source: McNemar, Psychometrika 12 (1947), 153-157, with the binomial tail in
    place of its normal limit.

    Raises:
      ValueError: a count is negative.
    """
    if min(better, worse) < 0:
        raise ValueError(f"counts must be 0 or more, got {better} better and {worse} worse")
    from scipy.stats import binomtest  # noqa: PLC0415 - half a second that only a tournament's tests should pay

    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0


@dataclasses.dataclass(frozen=True)
class Record:
    """Counts of finished games of one player; records can be summed.

    Attributes:
      win: games won, `won_by_forfeit` among them.
      draw: games drawn.
      loss: games lost, `lost_by_forfeit` and `lost_by_overrun` among them.
      truncated: games stopped from outside; not among the three above.
      won_by_forfeit: games the other seat ended by an invalid reply.
      lost_by_forfeit: games this player ended by an invalid reply.
      replies: replies this player gave.
      illegal_replies: of these, readable but against the rules.
      malformed_replies: of these, without one readable action, or not of the form asked for.
      steps: own turns.
      lost_by_overrun: games this player ended by filling its own context.
    """

    win: int = 0
    draw: int = 0
    loss: int = 0
    truncated: int = 0
    won_by_forfeit: int = 0
    lost_by_forfeit: int = 0
    replies: int = 0
    illegal_replies: int = 0
    malformed_replies: int = 0
    steps: int = 0
    lost_by_overrun: int = 0

    def __post_init__(self) -> None:
        negative = [f"{name} {count}" for name, count in vars(self).items() if count < 0]
        if negative:
            raise ValueError(f"counts must be 0 or more, got {', '.join(negative)}")
        for part, whole in (
            ("won_by_forfeit", "win"),
            ("lost_by_forfeit", "loss"),
            ("illegal_replies", "replies"),
            ("malformed_replies", "replies"),
        ):
            if getattr(self, part) > getattr(self, whole):
                raise ValueError(f"{part} ({getattr(self, part)}) cannot exceed {whole} ({getattr(self, whole)})")
        if self.lost_by_forfeit + self.lost_by_overrun > self.loss:
            both = f"lost_by_forfeit ({self.lost_by_forfeit}) and lost_by_overrun ({self.lost_by_overrun})"
            raise ValueError(f"{both} cannot exceed loss ({self.loss})")

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: count + getattr(other, name) for name, count in vars(self).items()})

    @classmethod
    def of_game(
        cls, outcome: str, *, seat: int, forfeited_by: int | None, overran: bool, ran_out: bool, **counts: int
    ) -> Self:
        """Returns one finished game as counts of one seat.

        An invalid end is a loss, of the other seat a win, or in a team a loss too; an own overrun is a loss, one of the
        other seat a truncated game. A one-player game that a limit of actions stopped is a loss. `overran` says that
        this seat's own context had no room left; `counts` are of replies and steps, by name.
        """
        stopped = overran or ran_out
        return cls(
            win=int(outcome == "win"),
            draw=int(outcome == "draw"),
            loss=int(outcome in ("loss", "invalid") or stopped),
            truncated=int(outcome == "truncated" and not stopped),
            won_by_forfeit=int(outcome == "win" and forfeited_by not in (None, seat)),
            lost_by_forfeit=int(outcome == "invalid" or forfeited_by == seat),
            lost_by_overrun=int(overran),
            **counts,
        )

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Returns the counts of one line of evaluations.jsonl; other keys of the line are ignored.

        Raises:
          RunFolderError: a count is absent, is no whole number or contradicts another one.
        """
        names = [f.name for f in dataclasses.fields(cls)]
        row = {"lost_by_overrun": 0, **row}  # which earlier versions counted as truncated
        wrong = [f"{n} = {row.get(n, 'absent')!r}" for n in names if type(row.get(n)) is not int]
        if wrong:
            raise RunFolderError(f"evaluations.jsonl: expected whole numbers, got {', '.join(wrong)}")
        try:
            record = cls(*(row[n] for n in names))
        except ValueError as error:
            raise RunFolderError(f"evaluations.jsonl: {error}") from error
        if row.get("games", record.games) != record.games:
            raise RunFolderError(
                f"evaluations.jsonl: win + draw + loss + truncated is {record.games}, but games is {row['games']}"
            )
        return record

    @property
    def games(self) -> int:
        """All games: win + draw + loss + truncated."""
        return self.win + self.draw + self.loss + self.truncated

    @property
    def decided(self) -> int:
        """Games that are conclusive about the player: win + draw + loss."""
        return self.win + self.draw + self.loss

    @property
    def score(self) -> Interval:
        """Mean score with its interval, over the games that were decided; truncated ones are left out."""
        return score_interval(self.win, self.draw, self.loss)

    @property
    def without_forfeits(self) -> Self:
        """The counts without the games that an invalid reply of either seat decided."""
        wins, losses = self.win - self.won_by_forfeit, self.loss - self.lost_by_forfeit
        return dataclasses.replace(self, win=wins, loss=losses, won_by_forfeit=0, lost_by_forfeit=0)

    @property
    def score_without_forfeits(self) -> Interval:
        """Mean score over the games that no invalid reply decided: skill apart from format."""
        return self.without_forfeits.score

    @property
    def win_rate(self) -> Interval:
        """Share of the decided games that were won, with Wilson's interval."""
        return wilson_interval(self.win, self.decided)

    def measured(self, *, alone: bool) -> Interval:
        """Returns what a game for so many is judged by: for one player the share solved, for two the score."""
        return self.win_rate if alone else self.score

    @property
    def illegal_share(self) -> float:
        """Illegal replies / replies; nan without replies."""
        return self.illegal_replies / self.replies if self.replies else math.nan

    @property
    def malformed_share(self) -> float:
        """Malformed replies / replies; nan without replies."""
        return self.malformed_replies / self.replies if self.replies else math.nan

    @property
    def steps_per_game(self) -> float:
        """Own turns / games; nan without games."""
        return self.steps / self.games if self.games else math.nan


def pooled(records: Iterable[Record]) -> Record:
    """Returns the sum of several records; no record at all gives the empty one."""
    return sum(records, Record())


def pooled_by(records: Iterable[tuple[K, Record]]) -> dict[K, Record]:
    """Returns the sums of records that have the same key, in order of first appearance."""
    found: dict[K, Record] = {}
    for key, record in records:
        found[key] = found[key] + record if key in found else record
    return found


def pooled_score(records: Iterable[Record], z: float = Z_95) -> Interval:
    """Returns the score over several ids: all games are pooled, each weighing the same.

    With equally many games per id, as in a run's own evaluation, this is the mean of the ids' scores. The interval
    is that of one trinomial; because the number of games per id is fixed and not sampled, it is a little too wide
    where the ids' scores differ, never too narrow by it.
    """
    total = pooled(records)
    return score_interval(total.win, total.draw, total.loss, z)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two independent records in the same seats.

    Attributes:
      before: the reference.
      after: what is compared with it.
      alone: whether of one-player games, of which the share solved is compared, not the score: a game that ran out of
        turns is unsolved, not half solved.
    """

    before: Record
    after: Record
    alone: bool = False

    @property
    def difference(self) -> Interval:
        """Score, or share solved, of `after` less that of `before`."""
        return interval_of_difference(self.after.measured(alone=self.alone), self.before.measured(alone=self.alone))

    @property
    def difference_without_forfeits(self) -> Interval:
        """The same over the games that no invalid reply decided."""
        return Comparison(self.before.without_forfeits, self.after.without_forfeits, self.alone).difference

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        """``better`` if the whole interval of the difference is above 0, ``worse`` if below, else ``unclear``."""
        difference = self.difference
        return "better" if difference.low > 0 else "worse" if difference.high < 0 else "unclear"


def _check_z(z: float) -> None:
    if not z > 0:
        raise ValueError(f"z must be above 0 (1.96 for 95 %), got {z}")


def _boundary(excess: Callable[[float], float], inside: float, end: float) -> float:
    """Bisects between an accepted value and the end of the range for where `excess` turns positive."""
    outside = end
    if excess(outside) <= 0:
        return end
    for _ in range(60):
        middle = (inside + outside) / 2
        if excess(middle) > 0:
            outside = middle
        else:
            inside = middle
    return (inside + outside) / 2

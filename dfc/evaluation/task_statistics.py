"""Statistics of figures that come by task: means with their errors, pass@k, a paired test.

The unit is the task. Several games of one task share what makes it easy or hard, so games are first averaged within
their task, and every standard error is over tasks. An error of 0 says that all tasks have the same result, not that the
figure is exact.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dfc.evaluation.statistics import Z_95, Interval

_EXACT_BITS = 1 << 24  # of the table of all sums of an exact test; beyond it, signs are sampled
_SAMPLES = 20_000
_FREEDOMS = (*range(1, 31), 40, 60, 120)  # for which tables print Student's t


class Estimate(NamedTuple):
    """A mean over tasks, or over groups.

    Attributes:
      mean: nan where there is nothing to average.
      error: standard error; nan where fewer than two tasks support it.
      over: how many tasks, or groups.
      freedom: degrees of freedom of the error; infinite where it is 0 or nan.
    """

    mean: float
    error: float
    over: int
    freedom: float = math.inf

    @property
    def interval(self) -> Interval:
        """Student's interval of 95 %, mean +- t errors; t of the next lower degrees of freedom that tables print."""
        from scipy.special import stdtrit  # noqa: PLC0415 - a sixth of a second that only a page's intervals should pay

        lower = [freedom for freedom in _FREEDOMS if freedom <= self.freedom] or [1]
        # A little too wide, never too narrow; three decimals, as tables print it: results are compared with older ones.
        quantile = Z_95 if self.freedom == math.inf else round(float(stdtrit(lower[-1], 0.975)), 3)
        return Interval(self.mean, self.mean - quantile * self.error, self.mean + quantile * self.error)


def as_json(value: object) -> Any:  # noqa: ANN401 - JSON values
    """Returns figures ready for JSON; nan and infinities become None.

    Data classes become objects; an `Interval` is [estimate, low, high] and an `Estimate` [mean, standard error, over].
    """
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: as_json(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(one) for one in (value[:3] if isinstance(value, Estimate) else value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pass_at_k(games: int, successes: int, k: int) -> float:
    """Returns the probability that at least one of k games solves a task, unbiased: 1 - C(n - c, k) / C(n, k).

    Source: Chen et al., arXiv 2107.03374, equation 1.

    Args:
      games: n, that were played at the task.
      successes: c, of these.
      k: 1 to n.

    Raises:
      ValueError: k or the successes are out of range.
    """
    if not 1 <= k <= games or not 0 <= successes <= games:
        raise ValueError(f"expected 1 <= k <= games and successes within games, got {k=}, {games=}, {successes=}")
    return float(1 - Fraction(math.comb(games - successes, k), math.comb(games, k)))


def pass_at(solved: Sequence[tuple[int, int]], most: int) -> tuple[Estimate, ...]:
    """Returns pass@k for every k up to the most, over tasks with at least k games, of (games, successes) by task."""
    return tuple(estimate(pass_at_k(n, c, k) for n, c in solved if n >= k) for k in range(1, most + 1))


def estimate(values: Iterable[float | Fraction]) -> Estimate:
    """Returns the mean of T values, one per task, and s / sqrt(T), where s^2 = sum (x - mean)^2 / (T - 1).

    The error has T - 1 degrees of freedom.
    """
    found = [float(value) for value in values]
    count = len(found)
    if not count:
        return Estimate(math.nan, math.nan, 0)
    mean = math.fsum(found) / count
    if count == 1:
        return Estimate(mean, math.nan, 1)
    error = math.sqrt(math.fsum((x - mean) ** 2 for x in found) / (count - 1) / count)
    return Estimate(mean, error, count, count - 1 if error else math.inf)


def over_groups(estimates: Sequence[Estimate]) -> Estimate:
    """Returns the mean over G groups, each weighing the same, and sqrt(sum of squared errors) / G.

    The groups are those there are, no sample of groups; nan in one of them gives nan. The degrees of freedom are
    (sum e_g^2)^2 / sum(e_g^4 / f_g) of the groups' errors e_g and degrees f_g: Satterthwaite, Biometrics Bulletin 2
    (1946), 110-114.
    """
    if not estimates:
        return Estimate(math.nan, math.nan, 0)
    count = len(estimates)
    mean = math.fsum(e.mean for e in estimates) / count
    variance = math.fsum(e.error**2 for e in estimates)
    spread = math.fsum(e.error**4 / e.freedom for e in estimates)
    return Estimate(mean, math.sqrt(variance) / count, count, variance**2 / spread if spread > 0 else math.inf)


def sign_flip_p(differences: Iterable[Fraction]) -> float:
    """Returns the two-sided p-value of the sign-flip (paired permutation) test of a mean difference of 0.

    p = P(|sum of s_t d_t| >= |sum of d_t|) over all signs s_t = +1 or -1, each equally likely: if two settings are
    alike, every difference is as likely with the other sign. All signs are counted, where the differences are whole
    multiples of something not too small; otherwise (1 + hits) / (1 + samples) of 20 000 samples of a fixed seed.
    Source: Fisher, The Design of Experiments (1935), section 21. Differences are exact, one per task, such as 1/4 for
    one more success in four games.

    Returns:
      Above 0, at most 1; 1 where all differences are 0 or there are none.
    """
    given = [difference for difference in differences if difference]
    if not given:
        return 1.0
    scale = math.lcm(*(difference.denominator for difference in given))
    whole = [int(difference * scale) for difference in given]
    unit = math.gcd(*whole)
    whole = [number // unit for number in whole]
    field = (len(whole) + 8) // 8  # bytes that hold every count up to 2 ** len(whole)
    if sum(map(abs, whole)) * field * 8 <= _EXACT_BITS:
        return _all_signs(whole, field)
    return _sampled_signs(np.asarray([float(difference) for difference in given]))


def _all_signs(whole: Sequence[int], field: int) -> float:
    sizes, observed = [abs(number) for number in whole], abs(sum(whole))
    if observed == 0:
        return 1.0
    # The generating function of the sums of subsets, product of 1 + x^size, as one number with a field per power.
    counts = 1
    for size in sizes:
        counts += counts << (8 * field * size)
    # With the subset as the positive ones the sum is 2 s - total; both tails hold as many signs.
    last = (sum(sizes) - observed) // 2
    tail = (counts & ((1 << (8 * field * (last + 1))) - 1)).to_bytes(field * (last + 1), "little")
    hits = sum(int.from_bytes(tail[at : at + field], "little") for at in range(0, len(tail), field))
    return float(Fraction(2 * hits, 2 ** len(sizes)))


def _sampled_signs(differences: np.ndarray) -> float:
    rng = np.random.default_rng(0)
    sums = np.zeros(_SAMPLES)
    for difference in differences:
        sums += difference * (2 * rng.integers(0, 2, _SAMPLES) - 1)
    # Sums that are equal but for their rounding are hits.
    hits = int(np.sum(np.abs(sums) >= abs(math.fsum(differences)) - 1e-9 * float(np.abs(differences).sum())))
    return (1 + hits) / (1 + _SAMPLES)

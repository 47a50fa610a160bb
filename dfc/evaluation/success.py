"""How often tasks are solved: rates, pass@k, turns and paired differences, with errors that are clustered by task.

The unit is the task. Several games of one task share what makes it easy or hard, so games are first averaged within
their task, and every standard error is over tasks. An error of 0 says that all tasks came out alike, not that the
figure is exact. Games that failed (something outside the rules broke down) are in no figure; a game that ended by an
invalid reply, or by a limit outside the rules, is a game that was not solved.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dfc.evaluation.statistics import Z_95, Interval

ALL_GROUPS = "mean over groups"
SUCCESS, TURNS = "success", "turns"
_EXACT_BITS = 1 << 24  # of the table of all sums of an exact test; beyond it, signs are drawn
_DRAWS = 20_000
# Student's t, two-sided 95 %, of 1 to 28 degrees of freedom: Fisher and Yates, Statistical Tables, table III.
_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145),
    *(2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048),
)


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
        """Student's interval of 95 %, mean +- t errors; from 29 degrees of freedom, 30 tasks, with t = 1.96."""
        # A table for whole numbers, rounded down: a little too wide, never too narrow.
        quantile = _T_95[max(1, int(self.freedom)) - 1] if self.freedom < len(_T_95) + 1 else Z_95
        return Interval(self.mean, self.mean - quantile * self.error, self.mean + quantile * self.error)


class Arm(NamedTuple):
    """Who played, and at which sampling temperature; None for a program, which samples nothing."""

    policy: str
    temperature: float | None

    def __str__(self) -> str:
        return self.policy if self.temperature is None else f"{self.policy}, temperature {self.temperature:g}"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One game at a task that did not fail.

    Attributes:
      outcome: as `dfc.games.game.Outcome`; only a win solves the task.
      turns: replies of the policy.
      measures: figures of the game beside its outcome.
    """

    outcome: str
    turns: int
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether the task was solved."""
        return self.outcome == "win"


Trials = Mapping[int, Sequence[Trial]]
"""The games of a group by task."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """What the games of one group say.

    Attributes:
      tasks: with at least one game. games: at them.
      success: rate of success.
      pass_at: entry k - 1 is pass@k, over the tasks with at least k games.
      turns: of all games; one that was not solved counts as the turn limit.
      turns_of_successes: of solved games only, over the tasks solved at least once.
      invalid: share of games ended by an invalid reply. truncated: share stopped by a limit outside the rules.
      measures: by name.
    """

    tasks: int
    games: int
    success: Estimate
    pass_at: tuple[Estimate, ...]
    turns: Estimate
    turns_of_successes: Estimate
    invalid: Estimate
    truncated: Estimate
    measures: Mapping[str, Estimate]


@dataclasses.dataclass(frozen=True)
class Difference:
    """One arm less another, task by task.

    Attributes:
      arm: compared. base: with this one.
      group: a game's id, or `ALL_GROUPS`.
      metric: `SUCCESS`, `TURNS` or the name of a measure.
      value: the mean difference with its standard error.
      p: of the two-sided sign-flip test.
    """

    arm: Arm
    base: Arm
    group: str
    metric: str
    value: Estimate
    p: float


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

    p = P(|sum of s_t d_t| >= |sum of d_t|) over all signs s_t = +1 or -1, each equally likely: if two arms are alike,
    every difference is as likely with the other sign. All signs are counted, where the differences are whole multiples
    of something not too small; otherwise (1 + hits) / (1 + draws) of 20 000 draws of a fixed seed. Source: Fisher, The
    Design of Experiments (1935), section 21.

    Args:
      differences: one per task; exact, such as 1/4 for one more success in four games.

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
    return _drawn_signs(np.asarray([float(difference) for difference in given]))


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


def _drawn_signs(differences: np.ndarray) -> float:
    rng = np.random.default_rng(0)
    sums = np.zeros(_DRAWS)
    for difference in differences:
        sums += difference * (2 * rng.integers(0, 2, _DRAWS) - 1)
    # Sums that are equal but for their rounding are hits.
    hits = int(np.sum(np.abs(sums) >= abs(math.fsum(differences)) - 1e-9 * float(np.abs(differences).sum())))
    return (1 + hits) / (1 + _DRAWS)


def means(trials: Trials, value: Callable[[Trial], float | None]) -> dict[int, Fraction]:
    """Returns the mean of a figure within each task; games of which it is None do not count."""
    found = {}
    for task, games in trials.items():
        values = [Fraction(v) for v in map(value, games) if v is not None]
        if values:
            found[task] = sum(values, Fraction(0)) / len(values)
    return found


def figures(limit: int, measures: Iterable[str]) -> dict[str, Callable[[Trial], float | None]]:
    """Returns what is compared between arms, by name: success, turns, and each measure.

    Args:
      limit: turns that a game counts as that was not solved.
      measures: names.
    """
    found: dict[str, Callable[[Trial], float | None]] = {
        SUCCESS: lambda trial: float(trial.success),
        TURNS: lambda trial: trial.turns if trial.success else limit,
    }
    return found | {name: lambda trial, name=name: trial.measures.get(name) for name in measures}


def summary(trials: Trials, *, limit: int, trajectories: int) -> Summary:
    """Returns the figures of a group.

    Args:
      trials: its games by task.
      limit: turns that a game counts as that was not solved.
      trajectories: games that were wanted of each task; pass@k goes up to it.
    """
    names = list(dict.fromkeys(name for games in trials.values() for trial in games for name in trial.measures))
    by_task = {name: estimate(means(trials, value).values()) for name, value in figures(limit, names).items()}
    solved = [(len(games), sum(trial.success for trial in games)) for games in trials.values() if games]
    return Summary(
        tasks=len(solved),
        games=sum(games for games, _ in solved),
        success=by_task[SUCCESS],
        pass_at=tuple(
            estimate(pass_at_k(games, successes, k) for games, successes in solved if games >= k)
            for k in range(1, trajectories + 1)
        ),
        turns=by_task[TURNS],
        turns_of_successes=estimate(means(trials, lambda t: t.turns if t.success else None).values()),
        invalid=estimate(means(trials, lambda t: float(t.outcome == "invalid")).values()),
        truncated=estimate(means(trials, lambda t: float(t.outcome == "truncated")).values()),
        measures={name: by_task[name] for name in names},
    )


def differences(
    arm: Arm, base: Arm, groups: Mapping[str, tuple[Trials, Trials]], limits: Mapping[str, int]
) -> list[Difference]:
    """Returns an arm less another one: per group and, for success and turns, over all groups.

    Of each task the mean of the arm's games less the mean of the base's; tasks that one of them lacks are left out.
    The p-value over groups flips the signs of all groups' tasks together, each weighing 1 / (G T).

    Args:
      arm: compared.
      base: with this one.
      groups: by game, the games of both.
      limits: by game, the turns of a game that was not solved.
    """
    found = []
    per_group: dict[str, list[Estimate]] = collections.defaultdict(list)
    weighted: dict[str, list[Fraction]] = collections.defaultdict(list)
    for group, (mine, theirs) in groups.items():
        names = dict.fromkeys(name for games in mine.values() for trial in games for name in trial.measures)
        for metric, value in figures(limits[group], names).items():
            ours, base_means = means(mine, value), means(theirs, value)
            each = [ours[task] - base_means[task] for task in sorted(ours.keys() & base_means.keys())]
            if not each:
                continue
            found.append(Difference(arm, base, group, metric, estimate(each), sign_flip_p(each)))
            per_group[metric].append(found[-1].value)
            weighted[metric] += [difference / (len(groups) * len(each)) for difference in each]
    if len(groups) > 1:
        found += [
            Difference(arm, base, ALL_GROUPS, metric, over_groups(per_group[metric]), sign_flip_p(weighted[metric]))
            for metric in (SUCCESS, TURNS)
            if len(per_group[metric]) == len(groups)
        ]
    return found


# ---- of records ------------------------------------------------------------------------------------------------------


Key = tuple[str, float | None, str, int, int]


def key(record: Mapping[str, Any]) -> Key:
    """Returns what names a game: policy, temperature, game, task, trajectory."""
    return record["policy"], record["temperature"], record["game"], record["task"], record["trajectory"]


@dataclasses.dataclass(frozen=True)
class Successes:
    """Every figure of an evaluation.

    Attributes:
      arms: in the order of the policies. groups: games, in their order.
      trajectories: games wanted of each task.
      summaries: by arm and group.
      differences: of every other policy's arms from the first policy's.
      failed: records of games that something outside the rules ended.
    """

    arms: tuple[Arm, ...]
    groups: tuple[str, ...]
    trajectories: int
    summaries: Mapping[tuple[Arm, str], Summary]
    differences: tuple[Difference, ...]
    failed: tuple[Mapping[str, Any], ...]

    def over_groups(self, arm: Arm, figure: Callable[[Summary], Estimate]) -> Estimate:
        """Returns the mean of a figure over all groups."""
        return over_groups([figure(self.summaries[arm, group]) for group in self.groups])

    def pass_at(self, arm: Arm, k: int) -> Estimate:
        """Returns the mean of pass@k over all groups; k is 1 to `trajectories`."""
        return self.over_groups(arm, lambda summary: summary.pass_at[k - 1])


def of_records(
    arms: Sequence[Arm], limits: Mapping[str, int], trajectories: int, records: Iterable[Mapping[str, Any]]
) -> Successes:
    """Returns what records say; of several of one game the last one counts.

    Args:
      arms: those of the first policy come first.
      limits: by game, in the order of the groups, the turns of a game that was not solved.
      trajectories: games wanted of each task.
      records: lines of episodes.jsonl, as `dfc.recipes.evaluate_tasks` writes them.
    """
    played: dict[tuple[Arm, str], dict[int, list[Trial]]] = {
        (arm, group): collections.defaultdict(list) for arm in arms for group in limits
    }
    failed = []
    for record in {key(record): record for record in records}.values():
        if "failure" in record:
            failed.append(record)
            continue
        trial = Trial(record["outcomes"][record["seat"]], record["turns"], record.get("measures", {}))
        played[Arm(record["policy"], record["temperature"]), record["game"]][record["task"]].append(trial)
    found = []
    for arm in arms:
        for base in (a for a in arms if a.policy == arms[0].policy != arm.policy):
            if None in (arm.temperature, base.temperature) or arm.temperature == base.temperature:
                pairs = {group: (played[arm, group], played[base, group]) for group in limits}
                found += differences(arm, base, pairs, limits)
    return Successes(
        arms=tuple(arms),
        groups=tuple(limits),
        trajectories=trajectories,
        summaries={
            (arm, group): summary(trials, limit=limits[group], trajectories=trajectories)
            for (arm, group), trials in played.items()
        },
        differences=tuple(found),
        failed=tuple(failed),
    )

"""How often tasks are solved: rates, pass@k, turns and paired differences, with errors that are clustered by task.

Games that failed (something outside the rules broke down) are in no figure; a game that ended by an invalid reply, or
by a limit outside the rules, is a game that was not solved. The statistics: `dfc.evaluation.task_statistics`.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from dfc.evaluation.task_statistics import Estimate, estimate, over_groups, pass_at, sign_flip_p

ALL_GROUPS = "mean over groups"
SUCCESS, TURNS = "success", "turns"


class EvalSetting(NamedTuple):
    """The player and its sampling temperature; None for a scripted player, which samples nothing."""

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
    """The figures of the games of one group.

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
    """One setting less another, task by task.

    Attributes:
      setting: compared. base: with this one.
      group: a game's id, or `ALL_GROUPS`.
      metric: `SUCCESS`, `TURNS` or the name of a measure.
      value: the mean difference with its standard error.
      p: of the two-sided sign-flip test.
    """

    setting: EvalSetting
    base: EvalSetting
    group: str
    metric: str
    value: Estimate
    p: float


def means(trials: Trials, value: Callable[[Trial], float | None]) -> dict[int, Fraction]:
    """Returns the mean of a figure within each task; games of which it is None do not count."""
    found = {}
    for task, games in trials.items():
        values = [Fraction(v) for v in map(value, games) if v is not None]
        if values:
            found[task] = sum(values, Fraction(0)) / len(values)
    return found


def figures(limit: int, measures: Iterable[str]) -> dict[str, Callable[[Trial], float | None]]:
    """Returns what is compared between settings, by name: success, turns, and each measure.

    A game that was not solved counts as `limit` turns.
    """
    found: dict[str, Callable[[Trial], float | None]] = {
        SUCCESS: lambda trial: float(trial.success),
        TURNS: lambda trial: trial.turns if trial.success else limit,
    }
    return found | {name: lambda trial, name=name: trial.measures.get(name) for name in measures}


def summary(trials: Trials, *, limit: int, trajectories: int) -> Summary:
    """Returns the figures of a group.

    A game that was not solved counts as `limit` turns; pass@k goes up to the `trajectories` that were wanted of each
    task.
    """
    names = list(dict.fromkeys(name for games in trials.values() for trial in games for name in trial.measures))
    by_task = {name: estimate(means(trials, value).values()) for name, value in figures(limit, names).items()}
    solved = [(len(games), sum(trial.success for trial in games)) for games in trials.values() if games]
    return Summary(
        tasks=len(solved),
        games=sum(games for games, _ in solved),
        success=by_task[SUCCESS],
        pass_at=pass_at(solved, trajectories),
        turns=by_task[TURNS],
        turns_of_successes=estimate(means(trials, lambda t: t.turns if t.success else None).values()),
        invalid=estimate(means(trials, lambda t: float(t.outcome == "invalid")).values()),
        truncated=estimate(means(trials, lambda t: float(t.outcome == "truncated")).values()),
        measures={name: by_task[name] for name in names},
    )


def differences(
    setting: EvalSetting, base: EvalSetting, groups: Mapping[str, tuple[Trials, Trials]], limits: Mapping[str, int]
) -> list[Difference]:
    """Returns a setting less another one: per group and, for success and turns, over all groups.

    Of each task the mean of the setting's games less the mean of the base's; tasks that one of them lacks are left out.
    The p-value over groups flips the signs of all groups' tasks together, each weighing 1 / (G T). `limits` has by game
    the turns of a game that was not solved.
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
            found.append(Difference(setting, base, group, metric, estimate(each), sign_flip_p(each)))
            per_group[metric].append(found[-1].value)
            weighted[metric] += [difference / (len(groups) * len(each)) for difference in each]
    if len(groups) > 1:
        found += [
            Difference(setting, base, ALL_GROUPS, metric, over_groups(per_group[metric]), sign_flip_p(weighted[metric]))
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
      settings: in the order of the policies. groups: games, in their order.
      trajectories: games wanted of each task.
      summaries: by setting and group.
      differences: of every other policy's settings from the first policy's.
      failed: records of games that something outside the rules ended.
    """

    settings: tuple[EvalSetting, ...]
    groups: tuple[str, ...]
    trajectories: int
    summaries: Mapping[tuple[EvalSetting, str], Summary]
    differences: tuple[Difference, ...]
    failed: tuple[Mapping[str, Any], ...]

    def over_groups(self, setting: EvalSetting, figure: Callable[[Summary], Estimate]) -> Estimate:
        """Returns the mean of a figure over all groups."""
        return over_groups([figure(self.summaries[setting, group]) for group in self.groups])

    def pass_at(self, setting: EvalSetting, k: int) -> Estimate:
        """Returns the mean of pass@k over all groups; k is 1 to `trajectories`."""
        return self.over_groups(setting, lambda summary: summary.pass_at[k - 1])


def of_records(
    settings: Sequence[EvalSetting], limits: Mapping[str, int], trajectories: int, records: Iterable[Mapping[str, Any]]
) -> Successes:
    """Returns the results of records; of several of one game the last one counts.

    Settings of the first policy come first. `limits` has by game, in the order of the groups, the turns of a game that
    was not solved; `trajectories` were wanted of each task. Records are lines of episodes.jsonl, as
    `dfc.stages.evaluate_tasks` writes them.
    """
    played: dict[tuple[EvalSetting, str], dict[int, list[Trial]]] = {
        (setting, group): collections.defaultdict(list) for setting in settings for group in limits
    }
    failed = []
    for record in {key(record): record for record in records}.values():
        if "failure" in record:
            failed.append(record)
            continue
        trial = Trial(record["outcomes"][record["seat"]], record["turns"], record.get("measures", {}))
        played[EvalSetting(record["policy"], record["temperature"]), record["game"]][record["task"]].append(trial)
    found = []
    for setting in settings:
        for base in (a for a in settings if a.policy == settings[0].policy != setting.policy):
            if None in (setting.temperature, base.temperature) or setting.temperature == base.temperature:
                pairs = {group: (played[setting, group], played[base, group]) for group in limits}
                found += differences(setting, base, pairs, limits)
    return Successes(
        settings=tuple(settings),
        groups=tuple(limits),
        trajectories=trajectories,
        summaries={
            (setting, group): summary(trials, limit=limits[group], trajectories=trajectories)
            for (setting, group), trials in played.items()
        },
        differences=tuple(found),
        failed=tuple(failed),
    )

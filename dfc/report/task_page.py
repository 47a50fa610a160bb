"""Success rates for people: lines of a terminal, Markdown, a page of HTML; and for programs: JSON."""

import collections
import itertools
import math
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from dfc.config import EvaluateTasks
from dfc.evaluation.dialogue_results import DialogueResults
from dfc.evaluation.task_statistics import Estimate, as_json
from dfc.evaluation.tasks import ALL_GROUPS, SUCCESS, TURNS, Difference, EvalSetting, Successes
from dfc.games.task import count_of
from dfc.players import player_specs
from dfc.report import dialogue_tables, page
from dfc.report.page import Results, Section
from dfc.report.tables import Table, percent, plus_minus
from dfc.runs.costs import in_words

_FEW = 8  # pass@k is shown for every k up to this, then where k doubles, and for all trajectories
_SHOWN_FAILURES = 50
_SHOWN_REASON = 160  # characters

_COUNTED = (
    "A game counts as solved where it is won. A reply that cannot be used ends a game as not solved, and so does a "
    "limit outside the rules (context, replies). Games that failed, because something outside the rules broke down, "
    "are in no figure and are named below; without the file finished.json the same command plays them again."
)
_ERRORS = (
    "Figures are mean ± standard error over tasks: games are averaged within their task first, and the error is "
    "s / sqrt(tasks), s the standard deviation of the tasks' means. Mean over groups: every group weighs the same, and "
    "the error is sqrt(sum of squared errors) / groups. An error of 0 says that all tasks have the same result."
)
_AT_LEAST_ONE = (
    "pass@k: the chance that at least one of k games solves a task, 1 - C(n - c, k) / C(n, k) for c of n games "
    "(arXiv 2107.03374), averaged over tasks."
)
_FIGURES = (
    f"{_AT_LEAST_ONE} Turns: a game that was not solved counts as the turn limit. Turns solved: of solved games, "
    "averaged within the tasks that have any."
)
_PAIRED = (
    "Per task, the mean of a policy's games less that of the first policy's, on the same deals and sampling seeds; "
    "± standard error over tasks and the interval of 95 %, cut where no rate can be: Student's t; "
    "over groups with Satterthwaite's degrees of freedom. p: two-sided sign-flip test over "
    "tasks, exact where all signs can be counted, else of 20 000 sampled ones, where it is 5e-05 at least. Fewer turns "
    "are better."
)

_RATE = Markup(
    '<div class="rate"><span>{}</span><div class="axis{}"><i style="left:{}%;right:{}%"></i>'
    '<b style="left:{}%"></b></div><span>{}</span></div>\n'
)


def tables(found: Successes, dialogues: DialogueResults | None = None) -> list[Table]:
    """Returns every table of an evaluation, the shortest summary first."""
    scores = [] if dialogues is None else dialogue_tables.tables(dialogues)
    summaries = [*scores, _rates(found), _pass_at(found), _comparison(found)]
    details = [*(_details(found, setting) for setting in found.settings), _measures(found), _measures_compared(found)]
    return [table for table in [*summaries, *details, _failures(found)] if table.rows]


def console(found: Successes, dialogues: DialogueResults | None = None) -> list[str]:
    """Returns a compact summary: clemscores of dialogue games, the success rates, of a single group its other figures.

    And failed games.
    """
    shown = [_rates(found), *([_measures(found)] if len(found.groups) == 1 else [])]
    shown = [*([] if dialogues is None else dialogue_tables.tables(dialogues)[:1]), *shown]
    failed = [f"{len(found.failed)} games failed and are in no figure"] if found.failed else []
    return [*(line for table in shown if table.rows for line in ("", *table.lines())), *failed]


def to_json(found: Successes, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    """Returns it ready for JSON, estimates as [mean, standard error, count], pass@k by k; nan becomes None."""

    def by_k(figures: Mapping[str, Any]) -> dict[str, Any]:
        return {**figures, "pass_at": {str(k): each for k, each in enumerate(figures["pass_at"], start=1)}}

    data = {
        **more,
        "groups": found.groups,
        "trajectories": found.trajectories,
        "arms": [
            {
                **setting._asdict(),
                "groups": {group: by_k(vars(found.summaries[setting, group])) for group in found.groups},
                "mean_over_groups": by_k(_means(found, setting)),
            }
            for setting in found.settings
        ],
        "differences": [
            {
                **difference.setting._asdict(),
                "base": difference.base._asdict(),
                "group": difference.group,
                "metric": difference.metric,
                "difference": difference.value,
                "interval": difference.value.interval,
                "p": difference.p,
            }
            for difference in found.differences
        ],
        "failed": [
            {name: record[name] for name in ("policy", "temperature", "game", "task", "trajectory", "failure")}
            for record in found.failed
        ],
    }
    return dict(as_json(data))


def results(
    config: EvaluateTasks,
    found: Successes,
    dialogues: DialogueResults | None = None,
    cost: Mapping[str, float] = MappingProxyType({}),
) -> Results:
    """Returns the results to publish; the cost of chat endpoints is by ``measure/endpoint``."""
    conditions = {
        "name": config.name,
        "seed": config.seed,
        "split": config.split,
        **{name: getattr(config.sampling, name) for name in ("top_k", "top_p", "min_p")},
        "simulators": config.simulators,
        "who": {spec.name: spec.who for spec in player_specs.policies(config)},
        "cost": dict(cost),
    }
    of_dialogues = {} if dialogues is None else {"dialogues": dialogue_tables.to_json(dialogues)}
    plots = [_plot(found, group) for group in _places(found)]
    rates = Markup('<div class="rates">{}</div>').format(Markup("\n").join(plots))
    said = page.note("Lines are intervals of 95 % over tasks (Student's); the numbers are mean ± standard error.")
    return Results(
        "Success rates",
        config.name,
        _introduction(config, found),
        tables(found, dialogues),
        to_json(found, **conditions, **of_dialogues),
        [*console(found, dialogues), *([f"cost: {spent}"] if (spent := in_words(cost)) else [])],
        [Section("Tasks solved, from 0 to 100 %", [rates, said])],
        first=0 if dialogues is None else 1,  # the clemscore
    )


def _introduction(config: EvaluateTasks, found: Successes) -> list[str]:
    specs = player_specs.policies(config)
    who = "; ".join(spec.name if spec.name == spec.who else f"{spec.name}: {spec.who}" for spec in specs)
    how = (
        f"{count_of(found.trajectories, 'game')} of every task; split {config.split} where a game has splits, "
        f"elsewhere every task is a deal of its own. Sampling with min-p {config.sampling.min_p:g}; in a game it has "
        f"the same seed for every policy, from run seed {config.seed}. Worlds and judges: {config.simulators}."
    )
    return [f"Policies: {who}.", how, _COUNTED]


# ---- tables ----------------------------------------------------------------------------------------------------------


def _means(found: Successes, setting: EvalSetting) -> dict[str, Any]:
    """Returns the means over groups, under the names of a `Summary`."""
    names = (SUCCESS, TURNS, "turns_of_successes", "invalid", "truncated")
    means = {name: found.over_groups(setting, operator.attrgetter(name)) for name in names}
    return {**means, "pass_at": tuple(found.pass_at(setting, k) for k in range(1, found.trajectories + 1))}


def _success(found: Successes, setting: EvalSetting, group: str) -> Estimate:
    """Returns the rate of success in a group or, for `ALL_GROUPS`, its mean over groups."""
    if group == ALL_GROUPS:
        return found.over_groups(setting, operator.attrgetter(SUCCESS))
    return found.summaries[setting, group].success


def _places(found: Successes) -> tuple[str, ...]:
    """Returns the groups and, where there are several, the mean over them."""
    return (*found.groups, ALL_GROUPS) if len(found.groups) > 1 else found.groups


def _rates(found: Successes) -> Table:
    rows = tuple(
        (group, *(percent(_success(found, setting, group)) for setting in found.settings)) for group in _places(found)
    )
    return Table("Tasks solved, in percent", ("group", *map(str, found.settings)), rows, (_ERRORS,))


def _pass_at(found: Successes) -> Table:
    """Returns pass@k by setting, over groups; nothing where k can only be 1."""
    ks = _ks(found.trajectories) if found.trajectories > 1 else []
    rows = [(str(setting), *(percent(found.pass_at(setting, k)) for k in ks)) for setting in found.settings if ks]
    header = ("policy", *(f"pass@{k} %" for k in ks))
    return Table(f"Tasks solved within k games, {ALL_GROUPS}", header, tuple(rows), (_AT_LEAST_ONE,))


def _ks(trajectories: int) -> list[int]:
    doubled = [2**n for n in range(3, trajectories.bit_length()) if _FEW < 2**n < trajectories]
    return sorted({*range(1, min(_FEW, trajectories) + 1), *doubled, trajectories})


def _details(found: Successes, setting: EvalSetting) -> Table:
    ks = _ks(found.trajectories)

    def row(group: str, figures: Mapping[str, Any], *counts: object, failed: object = "") -> tuple[str, ...]:
        turns = (plus_minus(figures[TURNS]), plus_minus(figures["turns_of_successes"]))
        shares = (percent(figures["invalid"]), percent(figures["truncated"]))
        solved = (percent(figures["pass_at"][k - 1]) for k in ks)
        return (group, *map(str, counts), *solved, *turns, *shares, str(failed))

    of_records = collections.Counter(
        record["game"] for record in found.failed if (record["policy"], record["temperature"]) == setting
    )
    every = {group: found.summaries[setting, group] for group in found.groups}
    rows = [row(group, vars(s), s.tasks, s.games, failed=of_records[group]) for group, s in every.items()]
    if len(found.groups) > 1:
        rows.append(row(ALL_GROUPS, _means(found, setting), "", ""))
    header = ("group", "tasks", "games", *(f"pass@{k} %" for k in ks), "turns", "turns solved")
    return Table(str(setting), (*header, "invalid %", "truncated %", "failed"), tuple(rows), (_FIGURES,))


def _comparison(found: Successes) -> Table:
    by_place = {(d.setting, d.base, d.group, d.metric): d for d in found.differences}
    rows = []
    for (setting, base, group, metric), success in by_place.items():
        if metric == SUCCESS:
            turns = _compared(by_place[setting, base, group, TURNS], 1, 2)
            solved = _compared(success, 100, 1, bound=100)
            rows.append((str(setting), str(base), group, str(success.value.over), *solved, *turns))
    header = ("policy", "less", "group", "tasks", "solved, points", "95 %", "p", "turns", "turns 95 %", "turns p")
    note = "The row of the mean counts groups instead of tasks."
    return Table("Against the first policy", header, tuple(rows), (_PAIRED, note, _tests(found, 2 * len(rows))))


def _tests(found: Successes, here: int) -> str:
    """Returns how many tests there are, in this table and in all."""
    every = len(found.differences)
    return (
        f"This table holds {here} tests, the whole evaluation {every}. The p values are those of single tests and not "
        f"corrected for their number: with {every} of them, {0.05 * every:.1f} are expected below 0.05 where nothing "
        "differs."
    )


def _compared(difference: Difference, scale: float, digits: int, bound: float = math.inf) -> tuple[str, str, str]:
    value, bounds = difference.value, difference.value.interval
    low, high = max(-bound, scale * bounds.low), min(bound, scale * bounds.high)
    interval = f"[{low:+.{digits}f}, {high:+.{digits}f}]"
    shown = interval if value.error > 0 else "-"  # few tasks that differ alike: 0 width would overstate
    return plus_minus(value, scale, digits, sign=True), shown, f"{difference.p:.2g}"


def _measures(found: Successes) -> Table:
    by_group = {
        group: [found.summaries[setting, group].measures for setting in found.settings] for group in found.groups
    }
    rows = [
        (group, name, *(plus_minus(each[name]) if name in each else "-" for each in measures))
        for group, measures in by_group.items()
        for name in dict.fromkeys(itertools.chain.from_iterable(measures))
    ]
    return Table("Other figures of the games", ("group", "figure", *map(str, found.settings)), tuple(rows), (_ERRORS,))


def _measures_compared(found: Successes) -> Table:
    rows = tuple(
        (str(d.setting), str(d.base), d.group, d.metric, str(d.value.over), *_compared(d, 1, 2))
        for d in found.differences
        if d.metric not in (SUCCESS, TURNS) and (d.value.mean or d.value.error)
    )
    header = ("policy", "less", "group", "figure", "tasks", "difference", "95 %", "p")
    alike = "Figures in which no task differs are left out."
    notes = (_PAIRED, alike, _tests(found, len(rows)))
    return Table("Other figures, against the first policy", header, rows, notes)


def _failures(found: Successes) -> Table:
    rows = tuple(
        (
            str(EvalSetting(r["policy"], r["temperature"])),
            r["game"],
            str(r["task"]),
            str(r["trajectory"]),
            " ".join(r["failure"].split())[:_SHOWN_REASON],
        )
        for r in found.failed[:_SHOWN_FAILURES]
    )
    more = len(found.failed) - len(rows)
    notes = (f"And {more} more; results.json names them all.",) if more else ()
    return Table("Games that failed", ("policy", "group", "task", "trajectory", "why"), rows, notes)


# ---- positions -------------------------------------------------------------------------------------------------------


def _plot(found: Successes, group: str) -> Markup:
    """Returns the rates of a group, or over groups, as dots on lines from 0 to 100 %, with their intervals."""
    rows = []
    for setting in found.settings:
        value = _success(found, setting, group)
        if not math.isnan(value.mean):
            bounds = value._replace(error=0.0 if math.isnan(value.error) else value.error).interval
            at, low, high = (round(100 * min(1.0, max(0.0, x)), 2) for x in bounds)
            other = "" if setting == found.settings[0] else " other"
            rows.append(_RATE.format(setting, other, low, 100 - high, at, percent(value)))
    return Markup("<article>\n<h3>{}</h3>\n{}</article>").format(group, Markup("").join(rows))

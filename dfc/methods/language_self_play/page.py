"""A self-play run's part of the report, in place of matches: figures, charts, seconds of phases, queries and answers.

Queries, answers and a judge's replies are hostile text of a model: cut, with invisible characters escaped, and escaped
where they are shown.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dfc.errors import cut
from dfc.games.printable import printable
from dfc.methods.language_self_play import watch
from dfc.report import page
from dfc.report.method_page import MetricCharts, Row
from dfc.report.page import Section, empty, note
from dfc.report.reader import Json, RunRecords, read
from dfc.report.tables import NOTHING, Table, duration, number, text
from dfc.report.warnings import of_run

__all__ = ["CHARTS", "alarms", "lines", "queries", "results", "sections"]

_AROUND = 5  # iterations of a mean at either end
_LONGEST_QUERY, _LONGEST_ANSWER, _LONGEST_TITLE = 2000, 800, 90  # characters that are shown


_CHARTS = {
    "Queries": (
        "template",
        "usable",
        "unsolved_",
        "live",
        "difficulty",
        "query_length",
        "distinct_",
        "bad_queries/",
        "duplicates/",
    ),
    "Answers": (
        "reward",
        "unscored_answers",
        "probe_reward",
        "self_reward",
        "code_like",
        "repeated_answers",
        "answer_length",
    ),
    "Learning": ("challenger/", "solver/", "loss", "gradient_norm"),
    "Machinery": ("",),
}
_COUNTS = ("bad_queries/", "duplicates/", "unsolved_queries", "unscored_answers")  # drawn where there is one
_SHARES = (
    "template",
    "usable",
    "live",
    "challenger/taught",
    "solver/taught",
    "distinct_",
    "code_like",
    "repeated_answers",
    "self_reward_failures",
)
_METRIC_TITLES = {
    "template": "template kept",
    "usable": "usable queries",
    "live": "live queries",
    "challenger/taught": "iterations that taught the Challenger",
    "solver/taught": "iterations that taught the Solver",
    "query_length": "length of queries, characters",
    "answer_length": "length of answers, tokens",
    "code_like": "answers that look like code",
    "repeated_answers": "answers repeated elsewhere",
    "reward": "reward R",
    "unscored_answers": "answers without a reward",
    "probe_reward": "reward of fixed queries",
    "self_reward": "marks R_Q, 0 to 7",
    "self_reward_failures": "answers without a mark",
    "self_reward_asked_again": "judge asked again",
    "self_reward_without_room": "too long for the judge",
    **{
        f"{role}/{name}": f"{role}: {title}"
        for role in ("challenger", "solver")
        for name, title in (("log_ratio", "KL to the start (estimate)"), ("entropy", "entropy of a token (estimate)"))
    },
}
CHARTS = MetricCharts(_CHARTS, _METRIC_TITLES, _SHARES, _COUNTS)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _plain(value: float) -> str:
    return number(value, 3)


_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "reward": ("Reward R", _plain),
    "unscored_answers": ("Answers without a reward", _plain),
    "probe_reward": ("Reward of fixed queries", _plain),
    "self_reward": ("Marks R_Q", _plain),
    "self_reward_failures": ("Answers without a mark", _share),
    "usable": ("Usable queries", _share),
    "live": ("Live queries", _share),
    "challenger/taught": ("Iterations that taught the Challenger", _share),
    "solver/taught": ("Iterations that taught the Solver", _share),
    "template": ("Template kept", _share),
    "difficulty": ("Difficulty of queries", _plain),
    "query_length": ("Query, characters", _plain),
    "answer_length": ("Answer, tokens", _plain),
    "distinct_2": ("Distinct-2 of queries", _plain),
    "code_like": ("Code-like answers", _share),
    "repeated_answers": ("Repeated answers", _share),
    "solver/log_ratio": ("KL of answers", _plain),
    "challenger/log_ratio": ("KL of queries", _plain),
    "solver/entropy": ("Entropy of answers", _plain),
    "challenger/entropy": ("Entropy of queries", _plain),
}
_PHASES = {
    "queries": "Queries",
    "answers": "Answers",
    "reward": "Reward",
    "self_reward": "Self-reward",
    "reference": "Reference",
    "update": "Update",
}


def results(run: RunRecords) -> list[str | Table]:
    """Returns the figures at both ends of a run, and where its time went."""
    if not run.metrics:
        return [empty("No iteration has been recorded yet (no metrics.jsonl).")]
    alarmed = {metric for warning in of_run(run) for metric in warning.metrics}
    mark = Markup('{} <span class="mark" role="img" aria-label="warning">⚠</span>')
    rows = tuple(
        (mark.format(title) if name in alarmed else title, *map(write, ends), write(statistics.fmean(values)))
        for name, title, write, ends, values in _ends(run)
    )
    many = _around(run)
    header = ("Figure", f"First {many}", f"Last {many}", "All")
    said = (
        "Means over iterations. Usable: scored, and not penalised as bad or unsolved. Live: answers differ in reward, "
        "so that there is something for the Solver to learn. Repeated: given "
        "to another query too. KL to the policy at the start, and entropy: estimates per token. ⚠: an alarm was raised."
    )
    live = [line["metrics"]["live"] for line in run.metrics if "live" in line["metrics"]]
    missing = sum(line["metrics"].get("unscored_answers", 0.0) for line in run.metrics)
    why = "no two of its answers were scored differently" if missing else "all its answers earned the same"
    nothing = f"No query was live in any iteration: {why}, and nothing was learned."
    notes = (said,) if any(live) or not live else (nothing, said)
    if missing:
        notes = (f"{missing:.0f} answers had no reward (no finite number in R), left out of means and losses.", *notes)
    taught = [line["metrics"].get("challenger/taught", 1.0) for line in run.metrics]
    if untaught := taught.count(0.0):
        which = f"{untaught} of {len(taught)} iterations taught" if len(taught) > 1 else "The iteration taught"
        why = "no query was usable, or all that count earned it the same"
        notes = (f"{which} the Challenger nothing: {why}.", *notes)
    return [Table("Figures", header, rows, notes), _phases(run)]


def sections(run: RunRecords) -> list[Section]:
    """Returns the section of queries with their answers."""
    return [Section("Queries and answers", queries(run), "Queries")]


def alarms(rows: Sequence[Row]) -> Iterator[tuple[Row, watch.Alarm]]:
    """Yields what `watch` calls an alarm, with the row of metrics.jsonl that raised it."""
    watched = watch.Watch()
    for row in rows:
        figures = {name: value for name, value in row["metrics"].items() if math.isfinite(value)}
        for alarm in watched.take(figures):
            yield row, alarm


def _around(run: RunRecords) -> int:
    """Returns how many iterations are an end of the run; both ends share none, if there are two."""
    return max(1, min(_AROUND, len(run.metrics) // 2))


def _ends(run: RunRecords) -> list[tuple[str, str, Callable[[float], str], tuple[float, float], list[float]]]:
    found, many = [], _around(run)
    for name, (title, write) in _FIGURES.items():
        values = [v for line in run.metrics if math.isfinite(v := line["metrics"].get(name, math.nan))]
        if values and (any(values) or name != "unscored_answers"):
            ends = (statistics.fmean(values[:many]), statistics.fmean(values[-many:]))
            found.append((name, title, write, ends, values))
    return found


def _phases(run: RunRecords) -> Table:
    clocks = [line.get("clock") or {} for line in run.metrics]
    seconds = {name: [float(clock.get(f"{name}_seconds") or 0) for clock in clocks] for name in _PHASES}
    total = sum(map(sum, seconds.values())) or 1.0
    rows = tuple(
        (
            _PHASES[name],
            number(values[0]),
            number(statistics.fmean(values[1:])) if values[1:] else NOTHING,
            duration(sum(values)),
            _share(sum(values) / total),
        )
        for name, values in seconds.items()
    )
    header = ("Phase", "First, s", "Later mean, s", "Total", "Share")
    said = "First: the first iteration, which compiles programs; later: the mean of the others."
    return Table("Where the time went", header, rows, (said,))


def queries(run: RunRecords) -> list[str | Table]:
    """Returns queries of some iterations with answers to them: one of each task and of each kind of bad query."""
    if not run.queries:
        return [empty("No query has been recorded yet (no episodes.jsonl).")]
    said = (
        "Of iterations evenly over the run: a query of each task, and of each thing that is wrong with one, with the "
        "answers of highest and of lowest reward. A choice to look at, not a sample to count."
    )
    last = max(run.queries)
    iterations = [
        {"number": iteration, "opened": iteration == last, "queries": list(map(_query, records))}
        for iteration, records in run.queries.items()
    ]
    return [note(said), page.fragments("queries.html.jinja", Path(__file__).parent).queries(iterations)]


def _query(record: Json) -> Json:
    said = _texts(record)
    rewards, counted = (_list(record, name) for name in ("rewards", "scored"))
    every = range(min(len(said), len(rewards)))
    known = [place for place in every if place < len(counted) and counted[place]] or every
    order = sorted(known, key=lambda place: -_number(rewards[place]))
    chosen = dict.fromkeys([order[0], order[-1]]) if order else {}
    query = str(record.get("query", ""))
    return {
        "title": _shown(" ".join(query.split()), _LONGEST_TITLE) or "(nothing)",
        "task": _shown(str(record.get("task") or ""), _LONGEST_TITLE),
        "wrong": str(record["wrong"]).replace("_", " ") if record.get("wrong") else "",
        "summary": f"{len(said)} answers, mean reward {_reward_text(record.get('reward'))}" if said else "not answered",
        "who": "Challenger" if record.get("kind") == "query" else "Query of the file",
        "earned": f"advantage {_reward_text(record.get('advantage'))}" if record.get("kind") == "query" else "",
        "text": _shown(query, _LONGEST_QUERY),
        "answers": [_answer(record, said, place, rewards, counted) for place in chosen],
    }


def _answer(record: Json, said: Sequence[str], place: int, rewards: Sequence[Any], counted: Sequence[Any]) -> Json:
    marks, judge = (_list(record, name) for name in ("marks", "judge"))
    parts = [f"R {_reward_text(rewards[place])}"]
    if place < len(marks):
        replied = _list({"said": judge[place]}, "said") if place < len(judge) else []
        known = place < len(counted) and counted[place]
        parts.append(f"mark {text(marks[place])}" if known else "no mark")
    else:
        replied = []
    if place < len(counted) and not counted[place]:
        parts.append("excluded from means and losses")
    return {
        "who": f"Solver, answer {place + 1} of {len(said)}",
        "earned": ", ".join(parts),
        "text": _shown(said[place], _LONGEST_ANSWER),
        "judge": _shown(f"The judge: {replied[-1]}", _LONGEST_ANSWER) if replied else "",
    }


def _texts(record: Json) -> list[str]:
    """The answers of a record; its first reply is the query."""
    replies = _list(record, "replies")[1:]
    return [str(one[1]) if isinstance(one, list) and len(one) > 1 else str(one) for one in replies]


def _list(record: Json, name: str) -> list[Any]:
    found = record.get(name)
    return found if isinstance(found, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _reward_text(value: object) -> str:
    return f"{_number(value):.3g}"


def _shown(value: str, longest: int) -> str:
    return printable(cut(value, longest))


def lines(folder: Path) -> list[str]:
    """Returns the figures of a run at both its ends for the console."""
    run = read(folder)
    rows = tuple((title, *map(write, ends)) for _, title, write, ends, _ in _ends(run))
    many = _around(run)
    return ["", *Table("", ("mean over iterations", f"first {many}", f"last {many}"), rows).lines()[1:]] if rows else []

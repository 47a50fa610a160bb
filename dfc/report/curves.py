"""The curves of the report: the geometry of small charts, one panel per game and metric."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

from dfc.report import method_page
from dfc.report.method_page import MetricCharts
from dfc.report.reader import Json, RunRecords, game_metrics
from dfc.report.warnings import RunWarning

PANEL = {"width": 300, "height": 140, "left": 38, "right": 6, "top": 8, "bottom": 20}

_MAX_POINTS = 240  # of one curve; longer ones are averaged in bins
_TITLES = {"negative_logprob": "entropy (estimate)"}  # of a token: the mean of -log p of what was sampled estimates it
_GAME_METRICS = ("win_rate", "format_rate", "response_length", "steps", "seeds")  # shown first, in this order

Point = tuple[float, int, object, float]  # step, number of the stage, iteration, value


def curves(run: RunRecords, warnings: Sequence[RunWarning]) -> list[Json]:
    """Returns one chart per metric, in each one panel per game; then one chart with the metrics of the whole run.

    Each has a `title`, its `panels` and whether one of them is `warned`. Warnings are marked in the panels of the
    metrics they show in.
    """
    if not run.metrics:
        return []
    drawing = _drawing(run, warnings)
    if (method := method_page.of(run)) is not None:
        return _of_method(run, drawing, method.CHARTS)
    found = dict.fromkeys(metric for _, metric in game_metrics(run.metric_names))
    names = [m for m in _GAME_METRICS if m in found] + [m for m in found if m not in _GAME_METRICS]
    games = run.games
    charts = []
    for metric in names:
        share = metric.endswith("rate") or metric == "dead_groups"
        panels = [drawing.panel(game, f"games/{game}/{metric}", share=share) for game in games]
        if metric == "win_rate":
            panels.insert(0, drawing.panel("All games in training", "win_rate", share=True, accepted=True))
        charts.append(_chart(metric.replace("_", " ").capitalize(), panels))
    whole = [m for m in run.metric_names if not m.startswith("games/")]
    shown = [m for m in whole if m not in ("win_rate", "accepted") or (m == "win_rate" and "win_rate" not in found)]
    if shown:
        charts.append(
            _chart("Optimization", [drawing.panel(_TITLES.get(m, m), m, share=m.endswith("rate")) for m in shown])
        )
    return charts


def _of_method(run: RunRecords, drawing: "_Drawing", wanted: MetricCharts) -> list[Json]:
    charts = []
    for title, names in method_page.of_metrics(wanted, run.metric_names):
        panels = [
            drawing.panel(
                wanted.titles.get(name, name.replace("_", " ").replace("/", ": ")),
                name,
                share=name.startswith(wanted.shares),
            )
            for name in names
            if not name.startswith(wanted.counts) or any(line["metrics"].get(name) for line in run.metrics)
        ]
        charts.append(_chart(title, panels))
    return [chart for chart in charts if chart["panels"]]


def _chart(title: str, panels: list[Json | None]) -> Json:
    there = [panel for panel in panels if panel]
    return {"title": title, "panels": there, "warned": any(panel["warned"] for panel in there)}


@dataclasses.dataclass(frozen=True)
class _Drawing:
    """What all panels share: the horizontal axis and its marks."""

    run: RunRecords
    stages: dict[str, int]
    x: Callable[[float], float]
    marks: list[Json]
    warned: dict[str, list[Json]]  # by metric

    def panel(self, title: str, metric: str, *, share: bool, accepted: bool = False) -> Json | None:
        """Geometry of a small chart; the axis of a `share` is 0 to 1, and `accepted` marks updates that were kept."""
        points: list[Point] = [
            (float(line["step"]), self.stages[line["stage"]], line["iteration"], value)
            for line in self.run.metrics
            if math.isfinite(value := line["metrics"].get(metric, math.nan))
        ]
        if not points:
            return None
        values = [point[3] for point in points]
        low, high = (0.0, 1.0) if share else _nice_range(min(0.0, *values), max(0.0, *values))
        y = _scale(low, high, PANEL["height"] - PANEL["bottom"], PANEL["top"])
        path, dots, read_off = [], [], []
        for _, group in itertools.groupby(_thin(points), key=lambda point: point[1]):
            segment = list(group)
            corners = [f"{self.x(step):.1f} {y(value):.1f}" for step, _, _, value in segment]
            if len(segment) == 1:
                dots.append(corners[0].split(" "))
            else:
                path.append("M" + "L".join(corners))
            read_off += [f"{c} {s} {i} {v:.4g}" for c, (_, s, i, v) in zip(corners, segment, strict=True)]
        return {
            "title": title,
            "metric": metric,
            "first": values[0],
            "last": values[-1],
            "count": len(values),
            "ticks": [{"y": y(v), "label": f"{v:.4g}"} for v in (low, (low + high) / 2, high)],
            "path": "".join(path),
            "dots": dots,
            "points": ";".join(read_off),
            "marks": self.marks if accepted else [],
            "warned": self.warned.get(metric, []),
        }


def _drawing(run: RunRecords, warnings: Sequence[RunWarning]) -> _Drawing:
    number = {stage: n for n, stage in enumerate(run.stages)}
    x = _steps(run)
    marks = [
        {"x": round(x(float(line["step"])), 1), "accepted": line["metrics"]["accepted"] > 0}
        for line in run.metrics
        if "accepted" in line["metrics"]
    ]
    warned: dict[str, list[Json]] = {}
    for warning in warnings:
        left, right = x(warning.first_step - 0.5), x(warning.step + 0.5)
        band = {"x": left, "width": max(right - left, 2.0), "text": f"{warning.title}: {warning.iterations}"}
        for metric in warning.metrics:
            warned.setdefault(metric, []).append(band)
    return _Drawing(run, number, x, marks, warned)


def bands(run: RunRecords) -> list[Json]:
    """Returns the position of each stage in a panel, the same in all: kind, number, left end and width."""
    x, number, found = _steps(run), {stage: n for n, stage in enumerate(run.stages, 1)}, []
    for stage, lines in itertools.groupby(run.metrics, key=lambda line: str(line["stage"])):
        ends = [float(line["step"]) for line in lines]
        left, right = x(min(ends) - 0.5), x(max(ends) + 0.5)
        found.append({"kind": stage.split(" ")[0], "number": number[stage], "x": left, "width": right - left})
    return found


def _steps(run: RunRecords) -> Callable[[float], float]:
    steps = [float(line["step"]) for line in run.metrics] or [0.0]
    return _scale(min(steps) - 0.5, max(steps) + 0.5, PANEL["left"], PANEL["width"] - PANEL["right"])


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _nice_range(low: float, high: float) -> tuple[float, float]:
    """Widens a range to multiples of 1, 2 or 5 times a power of ten, so that both ends and the middle are short."""
    if low == high:
        return low, low + 1.0
    unit = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next(unit * f for f in (1, 2, 5, 10) if unit * f >= (high - low) / 2 * (1 - 1e-9))
    bottom = math.floor(low / step + 1e-9) * step
    top = math.ceil(high / step - 1e-9) * step
    return bottom, top


def _thin(points: list[Point]) -> list[Point]:
    """Averages consecutive points of one stage so that at most about `_MAX_POINTS` remain."""
    width = math.ceil(len(points) / _MAX_POINTS)
    if width == 1:
        return points
    thinned: list[Point] = []
    for _, group in itertools.groupby(points, key=lambda point: point[1]):
        stage = list(group)
        for bunch in (stage[i : i + width] for i in range(0, len(stage), width)):
            step, number, iteration, _ = bunch[-1]
            thinned.append((step, number, iteration, sum(point[3] for point in bunch) / len(bunch)))
    return thinned

"""The report of a run: one self-contained HTML file made from the files of the run folder and from nothing else.

``python -m dfc.evaluation.report RUN_FOLDER`` writes ``report.html`` into the folder. Every file may be missing or end
in half a line, as in a run that is still going on; the section that needs it says so. The template, the style and the
script lie beside this module and are inlined. All text of the folder is escaped; games are shown as
`dfc.evaluation.replay` plays them again, so a shown game is a proven one.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dfc.config import RunConfig
from dfc.errors import RunFolderError
from dfc.evaluation.replay import ReplayError, replay
from dfc.evaluation.statistics import Comparison, Interval, Record, pooled
from dfc.games import registry

Json = dict[str, Any]

_HERE = Path(__file__).parent
_MAX_POINTS = 240  # of one curve; longer ones are averaged in bins
_EPISODES_PER_END = 3  # shown per stage, id and kind, from the first and again from the last iteration
_EPISODE_BYTES = 1_000_000  # of shown games, text and markup together
_PANEL = {"width": 300, "height": 140, "left": 38, "right": 6, "top": 8, "bottom": 20}
_GAME_METRICS = ("win_rate", "format_rate", "response_length", "steps", "seeds")  # shown first, in this order


@dataclasses.dataclass
class RunFolder:
    """What was found in a run folder.

    Attributes:
      path: the folder.
      config: config.json, or None.
      versions: versions.json, or None; under `starts` one entry for each time the run was started.
      groups: groups.json, or None.
      metrics: lines of metrics.jsonl by step, the last one of each (stage, iteration).
      evaluations: (line, its counts) of evaluations.jsonl, the last one of each match.
      episodes: a small sample of episodes.jsonl.
      problems: one sentence for each thing that could not be read.
    """

    path: Path
    config: Json | None = None
    versions: Json | None = None
    groups: Json | None = None
    metrics: list[Json] = dataclasses.field(default_factory=list)
    evaluations: list[tuple[Json, Record]] = dataclasses.field(default_factory=list)
    episodes: list[Json] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def stages(self) -> list[str]:
        """The stages met so far, ``base`` first and ``final`` last."""
        lines = itertools.chain(self.metrics, (row for row, _ in self.evaluations), self.episodes)
        names = dict.fromkeys(str(line["stage"]) for line in lines)
        return sorted(names, key=lambda name: {"base": 0, "final": 2}.get(name, 1))

    @property
    def games(self) -> list[str]:
        """The ids: those of the configuration, then any other one met."""
        metric_ids = (game for line in self.metrics for game, _ in _game_metrics(line["metrics"]))
        configured = (self.config or {}).get("games", {})
        played = (row["game"] for row, _ in self.evaluations)
        return list(dict.fromkeys(map(str, itertools.chain(configured, played, metric_ids))))


def build(folder: Path) -> Path:
    """Writes the report of a run into its folder and returns its path.

    The file appears at once and whole: it is written under another name and then moved into place.

    Raises:
      RunFolderError: the folder does not exist.
    """
    run = read(folder)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, interval=_interval, signed=_signed, duration=_duration, text=_text)
    page = environment.get_template("report.html.jinja").render(
        **view(run),
        css=Markup((_HERE / "report.css").read_text(encoding="utf-8")),  # noqa: S704  (our own file)
        js=Markup((_HERE / "report.js").read_text(encoding="utf-8")),  # noqa: S704  (our own file)
    )
    target = Path(folder) / "report.html"
    descriptor, temporary = tempfile.mkstemp(prefix=".report-", suffix=".html", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(page.encode("utf-8", "replace"))  # a reply may hold half a surrogate pair
        Path(temporary).chmod(0o644)  # mkstemp allows its owner only
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


def read(folder: Path) -> RunFolder:
    """Returns what a run folder holds; what cannot be read is named in `problems`.

    Raises:
      RunFolderError: the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is no folder; expected a run folder such as runs/quickstart")
    run = RunFolder(folder)
    run.config, run.versions, run.groups = (
        _read_json(folder / name, run.problems) for name in ("config.json", "versions.json", "groups.json")
    )
    metrics = {
        (line["stage"], line["iteration"]): line
        for line in _lines(folder / "metrics.jsonl", ("step", "stage", "iteration", "metrics"), run.problems)
    }
    run.metrics = sorted(metrics.values(), key=lambda line: float(line["step"]))
    for line in run.metrics:  # numbers that are not finite are written as text
        line["metrics"] = {name: float(value) for name, value in line["metrics"].items()}
    keys = ("stage", "policy", "opponent", "game", "seat")
    matches: dict[tuple[Any, ...], tuple[Json, Record]] = {}
    for line in _lines(folder / "evaluations.jsonl", keys, run.problems):
        try:
            matches[tuple(line[key] for key in keys)] = (line, Record.from_json(line))
        except RunFolderError as error:
            run.problems.append(str(error))
    run.evaluations = list(matches.values())
    run.episodes = _sample(_lines(folder / "episodes.jsonl", ("game", "stage", "replies", "outcomes"), run.problems))
    return run


def _read_json(path: Path, problems: list[str]) -> Json | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        problems.append(f"{path.name}: expected a JSON object")
        return None
    return value


def _lines(path: Path, keys: tuple[str, ...], problems: list[str]) -> Iterator[Json]:
    """Yields the objects of a file of JSON lines one by one; a half-written last line is passed over silently."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
            except ValueError:
                if text.endswith("\n"):
                    problems.append(f"{path.name}, line {number}: no JSON")
                continue
            if isinstance(line, dict) and all(key in line for key in keys):
                yield line
            else:
                problems.append(f"{path.name}, line {number}: expected an object with {', '.join(keys)}")


def _sample(episodes: Iterable[Json]) -> list[Json]:
    """Keeps, per stage, id and kind, the first game of each outcome in the first and in the last iteration.

    One pass that holds the kept games only. One game of every stage, id and kind comes before the second of any.
    """
    ends: dict[tuple[str, ...], tuple[float, dict[str, tuple[int, Json]]]] = {}
    for number, line in enumerate(episodes):
        iteration = float(line.get("iteration") or 0)
        for end, sign in (("last", 1), ("first", -1)):
            key = (end, str(line["stage"]), str(line["game"]), str(line.get("kind")))
            if key not in ends or sign * (iteration - ends[key][0]) > 0:
                ends[key] = (iteration, {})
            at, games = ends[key]
            if iteration == at and len(games) < _EPISODES_PER_END:
                games.setdefault(_policy_outcome(line), (number, line))
    ranked: dict[int, tuple[int, Json]] = {}
    for _, games in ends.values():
        for rank, (number, line) in enumerate(games.values()):
            ranked.setdefault(number, (rank, line))
    return [line for _, line in sorted(ranked.values(), key=lambda pair: pair[0])]


def _policy_outcome(episode: Json) -> str:
    outcomes, seat = episode["outcomes"], episode.get("seat")
    known = isinstance(outcomes, list) and isinstance(seat, int) and 0 <= seat < len(outcomes)
    return str(outcomes[seat]) if known else "unknown"


def _game_metrics(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (id, metric) of every name ``games/<id>/<metric>``."""
    for name in metrics:
        parts = name.split("/")
        if len(parts) == 3 and parts[0] == "games":
            yield parts[1], parts[2]


# ---- what the page says -------------------------------------------------------------------------------------------


def view(run: RunFolder) -> Json:
    """Returns everything the template shows, as plain data."""
    return {
        "name": (run.config or {}).get("name") or run.path.resolve().name,
        "problems": run.problems,
        "config": _config_view(run),
        "recipe": (run.config or {}).get("recipe", "divide_fuse_conquer"),
        "starts": [_flat(start) for start in (run.versions or {}).get("starts", [])],
        "verdict": _verdict(run),
        "comparisons": _comparisons(run),
        "matches": _matches(run),
        "stages": _stages(run),
        "stage_table": _stage_table(run),
        "groups": _groups(run),
        "curves": _curves(run),
        "panel": _PANEL,
        "episodes": _episodes_json(run),
        "clock": _clock(run.metrics),
    }


def _config_view(run: RunFolder) -> Json | None:
    if run.config is None:
        return None
    values, defaults = _flat(run.config), _flat(dataclasses.asdict(RunConfig()))
    rows = [
        {"key": key, "value": _text(value), "default": _text(defaults.get(key, value))}
        for key, value in values.items()
        if not key.startswith("games.")
    ]
    games = run.config.get("games") or {}
    return {
        "rows": rows,
        "games": [{"id": game, "options": _options_view(game, options or {})} for game, options in games.items()],
        "values": values,
    }


def _options_view(game: str, options: Json) -> list[Json]:
    known = registry.defaults(game) if game in registry.ids() else {}
    return [
        {"name": name, "value": _text(value), "default": _text(known[name]) if name in known else None}
        for name, value in options.items()
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Json:
    flat: Json = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _final(run: RunFolder, policy: str, opponents: tuple[str, ...]) -> dict[str, Record]:
    """The counts of a policy's matches at the end of the run per id, both seats together."""
    counts: dict[str, Record] = collections.defaultdict(Record)
    for row, record in run.evaluations:
        if row["stage"] == "final" and row["policy"] == policy and row["opponent"] in opponents:
            counts[row["game"]] += record
    return {game: counts[game] for game in run.games if game in counts}


def _comparisons(run: RunFolder) -> list[Json]:
    """Initial and final policy in the same seats, per opponent: one row per id and one for all together."""
    tables = []
    for opponent in ("initial", "none", "random_legal"):
        before, after = _final(run, "initial", (opponent,)), _final(run, "final", (opponent,))
        ids = [game for game in run.games if game in before or game in after]
        # Together: the ids both played, or all if only one of the two has played.
        both = [game for game in ids if game in before and game in after] or ids
        if ids:
            rows = [(game, Comparison(before.get(game, Record()), after.get(game, Record()))) for game in ids]
            total = Comparison(*(pooled(side[g] for g in both if g in side) for side in (before, after)))
            tables.append({"opponent": opponent, "rows": rows, "total": total, "ids": len(both)})
    return tables


def _verdict(run: RunFolder) -> Json:
    """Whether the policy got better: final less initial score, all ids played by both, games pooled."""
    before, after = (_final(run, policy, ("initial", "none")) for policy in ("initial", "final"))
    both = [game for game in after if game in before]
    if not both:
        return {"kind": "unfinished", "last": run.metrics[-1] if run.metrics else None}
    total = Comparison(pooled(before[g] for g in both), pooled(after[g] for g in both))
    each = [Comparison(before[g], after[g]).verdict for g in both]
    return {
        "kind": total.verdict,
        "total": total,
        "ids": len(both),
        "ids_better": each.count("better"),
        "ids_worse": each.count("worse"),
        "alone": any(game in _final(run, "final", ("none",)) for game in both),
    }


def _matches(run: RunFolder) -> list[Json]:
    """Every match of the run by stage, the end of the run first."""
    order = {game: number for number, game in enumerate(run.games)}
    rows = sorted(
        run.evaluations,
        key=lambda r: (order[r[0]["game"]], r[0]["opponent"], r[0]["policy"] != "initial", r[0]["seat"]),
    )
    tables = [{"stage": s, "rows": [r for r in rows if r[0]["stage"] == s]} for s in reversed(run.stages)]
    return [table for table in tables if table["rows"]]


def _stages(run: RunFolder) -> list[Json]:
    """One row per stage: kind, iterations, accepted and rejected updates, first and last win rate, time."""
    rows = []
    for number, name in enumerate(run.stages, 1):
        lines = [line for line in run.metrics if line["stage"] == name]
        accepted = [line["metrics"]["accepted"] for line in lines if "accepted" in line["metrics"]]
        rates = [line["metrics"]["win_rate"] for line in lines if "win_rate" in line["metrics"]]
        rows.append(
            {
                "number": number,
                "name": name,
                "kind": name.split(" ")[0],
                "iterations": len(lines),
                "accepted": [a > 0 for a in accepted],
                "first": rates[0] if rates else None,
                "last": rates[-1] if rates else None,
                "clock": _clock(lines),
            }
        )
    return rows


def _stage_table(run: RunFolder) -> Json | None:
    """Scores of id x stage against the initial policy (alone where there is one seat), as in the paper's Table 3."""
    cells: dict[tuple[str, str], Record] = collections.defaultdict(Record)
    has_base = any(row["stage"] == "base" for row, _ in run.evaluations)
    for row, record in run.evaluations:
        initial = row["policy"] == "initial"
        # The initial policy's matches at the end of a run stand in for a stage that was not measured.
        stage = "base" if initial and not has_base else str(row["stage"])
        if row["opponent"] in ("initial", "none") and (stage == "base" or not initial):
            cells[row["game"], stage] += record
    stages = [stage for stage in dict.fromkeys(("base", *run.stages)) if any(stage == s for _, s in cells)]
    games = [game for game in run.games if any((game, stage) in cells for stage in stages)]
    if not games:
        return None
    members = {g["name"]: set(g["games"]) for g in (run.groups or {}).get("groups", [])}
    trained = {s: set().union(*(members.get(m, set()) for m in _group_names(s))) for s in stages}
    rows = [{"game": game, "cells": [(cells.get((game, s)), game in trained[s]) for s in stages]} for game in games]
    means = []
    for stage in stages:
        scores = [cells[g, stage].score.estimate for g in games if (g, stage) in cells]
        means.append({"mean": sum(scores) / len(scores), "ids": len(scores)})
    return {"stages": stages, "rows": rows, "means": means}


def _group_names(stage: str) -> list[str]:
    """The groups a stage trains or fuses: ``conquer g1+g2`` names g1 and g2."""
    return stage.partition(" ")[2].split("+")


def _groups(run: RunFolder) -> Json | None:
    if run.groups is None:
        return None
    measured = {
        game: m | {"interval": Record(win=m["wins"], loss=m["trials"] - m["wins"]).win_rate}
        for game, m in run.groups.get("measured", {}).items()
    }
    return {"groups": run.groups.get("groups", []), "measured": measured}


def _clock(lines: Iterable[Json]) -> Json:
    """Sums of the time, episodes and tokens that lines of metrics.jsonl report."""
    clocks = [line.get("clock") or {} for line in lines]
    seconds = [float(clock.get("seconds") or 0) for clock in clocks]

    def total(rate: str) -> float:
        return sum(s * float(clock.get(rate) or 0) for s, clock in zip(seconds, clocks, strict=True))

    return {
        "seconds": sum(seconds),
        "iterations": len(clocks),
        "episodes": total("episodes_per_second"),
        "tokens": total("tokens_per_second"),
    }


def _curves(run: RunFolder) -> list[Json]:
    """One chart per metric, in each one panel per id; then one chart with the metrics of the whole run."""
    if not run.metrics:
        return []
    found = dict.fromkeys(metric for line in run.metrics for _, metric in _game_metrics(line["metrics"]))
    names = [m for m in _GAME_METRICS if m in found] + [m for m in found if m not in _GAME_METRICS]
    charts = []
    for metric in names:
        panels = [_panel(run, game, f"games/{game}/{metric}", rate=metric.endswith("rate")) for game in run.games]
        if metric == "win_rate":
            panels.insert(0, _panel(run, "All ids in training", "win_rate", rate=True, accepted=True))
        charts.append({"title": metric.replace("_", " ").capitalize(), "panels": [p for p in panels if p]})
    whole = dict.fromkeys(m for line in run.metrics for m in line["metrics"] if not m.startswith("games/"))
    shown = [m for m in whole if m not in ("win_rate", "accepted") or (m == "win_rate" and "win_rate" not in found)]
    if shown:
        panels = [_panel(run, m, m, rate=m.endswith("rate")) for m in shown]
        charts.append({"title": "Optimization", "panels": [p for p in panels if p]})
    return charts


def _panel(run: RunFolder, title: str, metric: str, *, rate: bool, accepted: bool = False) -> Json | None:
    """Geometry of one small chart: bands of stages, axis marks, one path and the points to read off."""
    number = {stage: n for n, stage in enumerate(run.stages)}
    points = [
        (float(line["step"]), number[line["stage"]], line["iteration"], value)
        for line in run.metrics
        if math.isfinite(value := line["metrics"].get(metric, math.nan))
    ]
    if not points:
        return None
    steps = [float(line["step"]) for line in run.metrics]
    x = _scale(min(steps) - 0.5, max(steps) + 0.5, _PANEL["left"], _PANEL["width"] - _PANEL["right"])
    values = [point[3] for point in points]
    low, high = (0.0, 1.0) if rate else _nice_range(min(0.0, *values), max(0.0, *values))
    y = _scale(low, high, _PANEL["height"] - _PANEL["bottom"], _PANEL["top"])
    bands = []
    for stage, lines in itertools.groupby(run.metrics, key=lambda line: str(line["stage"])):
        ends = [float(line["step"]) for line in lines]
        left, right = x(min(ends) - 0.5), x(max(ends) + 0.5)
        bands.append({"kind": stage.split(" ")[0], "number": number[stage] + 1, "x": left, "width": right - left})
    path, dots, read_off = [], [], []
    for _, group in itertools.groupby(_thin(points), key=lambda point: point[1]):
        segment = list(group)
        corners = [f"{x(step):.1f} {y(value):.1f}" for step, _, _, value in segment]
        if len(segment) == 1:
            dots.append(corners[0].split(" "))
        else:
            path.append("M" + "L".join(corners))
        read_off += [f"{c} {s} {i} {v:.4g}" for c, (_, s, i, v) in zip(corners, segment, strict=True)]
    marks = [
        {"x": round(x(float(line["step"])), 1), "accepted": line["metrics"]["accepted"] > 0}
        for line in run.metrics
        if accepted and "accepted" in line["metrics"]
    ]
    return {
        "title": title,
        "first": values[0],
        "last": values[-1],
        "count": len(values),
        "bands": bands,
        "ticks": [{"y": y(v), "label": f"{v:.4g}"} for v in (low, (low + high) / 2, high)],
        "path": "".join(path),
        "dots": dots,
        "points": ";".join(read_off),
        "marks": marks,
    }


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


def _thin(points: list[tuple[float, int, Any, float]]) -> list[tuple[float, int, Any, float]]:
    """Averages consecutive points of one stage so that at most about `_MAX_POINTS` remain."""
    width = math.ceil(len(points) / _MAX_POINTS)
    thinned = []
    for _, group in itertools.groupby(points, key=lambda point: point[1]):
        stage = list(group)
        for bunch in (stage[i : i + width] for i in range(0, len(stage), width)):
            step, number, iteration, _ = bunch[-1]
            thinned.append((step, number, iteration, sum(point[3] for point in bunch) / len(bunch)))
    return thinned


def _episodes_json(run: RunFolder) -> Markup | None:
    """The shown games as JSON that is safe inside a script element; texts that recur are stored once."""
    if not run.episodes:
        return None
    texts: dict[str, int] = {}
    games: list[Json] = []
    size = 0
    for record in run.episodes:
        known = len(texts)
        game = _episode(record, texts)
        size += len(json.dumps([game, list(itertools.islice(texts, known, None))]))
        if games and size > _EPISODE_BYTES:
            break
        games.append(game)
    order = {stage: number for number, stage in enumerate(run.stages)}
    games.sort(key=lambda g: (-order[g["stage"]], g["game"], g["kind"], -g["iteration"]))
    data = json.dumps({"texts": list(texts), "games": games, "stages": run.stages}, separators=(",", ":"))
    # Inside <script> only "<" can end the element or open a comment; as an escape it is the same JSON.
    return Markup(data.replace("<", "\\u003c"))  # noqa: S704  (escaped for its place on the line itself)


def _episode(record: Json, texts: dict[str, int]) -> Json:
    """One game for the browser: its turns with observations as far as the replay proves them."""

    def stored(text: str) -> int:
        return texts.setdefault(text, len(texts))

    turns: list[list[Any]] = []
    error = None
    try:
        turns.extend([t.seat, stored(t.observation), stored(t.reply), t.status, t.verdict] for t in replay(record))
    except ReplayError as difference:
        error = str(difference)  # the rest is shown as it is recorded
        recorded = record["replies"] if isinstance(record["replies"], list) else []
        turns += [[None, None, stored(_text(entry)), "unproven", None] for entry in recorded[len(turns) :]]
    options = {name: _text(value) for name, value in (record.get("options") or {}).items()}
    reward = record.get("reward")
    return {
        "game": str(record["game"]),
        "stage": str(record["stage"]),
        "kind": str(record.get("kind", "")),
        "iteration": int(record.get("iteration") or 0),
        "seat": record.get("seat"),
        "opponent": str(record.get("opponent", "")),
        "seed": str(record.get("seed", "")),  # text: 63-bit seeds exceed what JavaScript keeps exactly
        "options": options,
        "outcome": _policy_outcome(record),
        "forfeited_by": record.get("forfeited_by"),
        "reward": reward if isinstance(reward, int | float) and math.isfinite(reward) else None,
        "turns": turns,
        "error": error,
    }


def _number(value: float | None, digits: int = 2) -> str:
    if value is None or math.isnan(value):
        return "–"  # noqa: RUF001  (a dash where no number is)
    return f"{value:,.{digits}f}"


def _interval(value: Interval, digits: int = 2) -> str:
    return "–" if math.isnan(value.estimate) else f"{value.low:.{digits}f} to {value.high:.{digits}f}"  # noqa: RUF001 - the dash and quotes the page shows


def _signed(value: float, digits: int = 2) -> str:
    if math.isnan(value):
        return "–"  # noqa: RUF001 - the dash and quotes the page shows
    text = f"{value:+.{digits}f}"
    return text.replace("-", "\u2212") if float(text) else f"{0:.{digits}f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None or value == "" else str(value)  # noqa: RUF001 - the dash and quotes the page shows


def main(arguments: list[str] | None = None) -> None:
    """Builds the report of the run folder named on the command line and prints where it lies."""
    parser = argparse.ArgumentParser(prog="python -m dfc.evaluation.report", description="Build report.html of a run.")
    parser.add_argument("folder", type=Path, help="the run folder, e.g. runs/quickstart")
    try:
        path = build(parser.parse_args(arguments).folder)
    except RunFolderError as error:
        parser.error(str(error))
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()

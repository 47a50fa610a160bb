"""What the page says: everything the template shows, as plain data made from what was found in a run folder."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dfc.config import RECIPES
from dfc.evaluation.statistics import Comparison, Record, pooled
from dfc.games import registry
from dfc.report import warnings
from dfc.report.curves import PANEL, bands, curves
from dfc.report.formats import measured, text
from dfc.report.game_replays import ShownGames
from dfc.report.reader import Json, RunData, game_metrics
from dfc.report.warnings import RunWarning

_WARNINGS_SHOWN = 3  # at once; the rest can be unfolded


def view(run: RunData, games: ShownGames | None = None, found: Sequence[RunWarning] | None = None) -> Json:
    """Returns everything the template shows, as plain data.

    Args:
      run: what was found in the run folder.
      games: makes the shown games; it remembers them from call to call.
      found: the warnings of the run, if they are known already.
    """
    found = warnings_of(run) if found is None else found
    return {
        "name": (run.config or {}).get("name") or run.path.resolve().name,
        "problems": run.problems,
        "config": _config_view(run),
        "recipe": (run.config or {}).get("recipe", "divide_fuse_conquer"),
        "starts": [_flat(start) for start in (run.versions or {}).get("starts", [])],
        "last": run.metrics[-1] if run.metrics else None,
        "verdict": _verdict(run),
        "collected": _collected(run),
        "comparisons": _comparisons(run),
        "matches": _matches(run),
        "stages": _stages(run),
        "stage_table": _stage_table(run),
        "groups": _groups(run),
        "warnings": _warnings(run, found),
        "curves": curves(run, found),
        "bands": bands(run),
        "panel": PANEL,
        "episodes": (games or ShownGames()).to_json(run),
        "clock": _clock(run.metrics),
    }


def _collected(run: RunData) -> list[Json]:
    """What a collection has of every game so far; empty for any other run."""
    if (run.config or {}).get("recipe") != "collect":
        return []
    found: dict[str, Json] = dict((run.collection or {}).get("games", {}))
    if not found:  # every line has the figures of all before it
        for game, name in game_metrics(run.metrics[-1]["metrics"] if run.metrics else ()):
            found.setdefault(game, {})[name] = run.metrics[-1]["metrics"][f"games/{game}/{name}"]
    return [
        {
            "game": game,
            "trajectories": int(row.get("trajectories", 0)),
            "success": row.get("success_rate"),
            "turns": row.get("turns_played"),
            "generated_tokens": int(row.get("generated_tokens", 0)),
        }
        for game, row in found.items()
    ]


def warnings_of(run: RunData) -> list[RunWarning]:
    """Returns the warnings of a run; its configuration says how many games are counted in a win rate."""
    method = run.config or {}
    acceptance = method.get("acceptance", {})
    games = acceptance.get("games") if acceptance.get("rule") != "always" else None
    return warnings.find(run.metrics, run.groups, games=games, imitates=method.get("method") == "imitate_wins")


def _warnings(run: RunData, found: Sequence[RunWarning]) -> Json:
    """The newest warnings first: those that are always visible, and the rest."""
    last = run.metrics[-1]["step"] if run.metrics else 0
    rows = [{"warning": warning, "now": warning.step == last} for warning in reversed(found)]
    return {"shown": rows[:_WARNINGS_SHOWN], "more": rows[_WARNINGS_SHOWN:], "now": sum(row["now"] for row in rows)}


def _config_view(run: RunData) -> Json | None:
    if run.config is None:
        return None
    kind = RECIPES.get(str(run.config.get("recipe")))
    values, defaults = _flat(run.config), _flat(dataclasses.asdict(kind()) if kind is not None else {})
    rows = [
        {"key": key, "value": text(value), "default": text(defaults.get(key, value))}
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
    known = registry.defaults(game) if game in registry.game_ids() else {}
    return [
        {"name": name, "value": text(value), "default": text(known[name]) if name in known else None}
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


def _final(run: RunData, policy: str, opponents: tuple[str, ...]) -> dict[str, Record]:
    """The counts of a policy's matches at the end of the run per game, both seats together."""
    counts: dict[str, Record] = collections.defaultdict(Record)
    for row, record in run.evaluations:
        if row["stage"] == "final" and row["policy"] == policy and row["opponent"] in opponents:
            counts[row["game"]] += record
    return {game: counts[game] for game in run.games if game in counts}


def _comparisons(run: RunData) -> list[Json]:
    """Initial and final policy in the same seats, per opponent: one row per game and one for all together."""
    tables = []
    for opponent in ("initial", "none", "random_legal"):
        before, after = _final(run, "initial", (opponent,)), _final(run, "final", (opponent,))
        game_ids = [game for game in run.games if game in before or game in after]
        # Together: the games both played, or all if only one of the two has played.
        both = [game for game in game_ids if game in before and game in after] or game_ids
        if game_ids:
            alone = opponent == "none"
            rows = [
                (game, Comparison(before.get(game, Record()), after.get(game, Record()), alone)) for game in game_ids
            ]
            first, last = (pooled(side[g] for g in both if g in side) for side in (before, after))
            total = Comparison(first, last, alone)
            tables.append({"opponent": opponent, "rows": rows, "total": total, "num_games": len(both)})
    return tables


def _verdict(run: RunData) -> Json:
    """Whether the policy got better: what both policies played, two-player games pooled, one-player games apart.

    The two-player games are pooled into a score against the initial policy, which is what the console prints as well;
    of every one-player game there is the share solved. Better is what got better in one of the two and worse in
    neither.
    """
    found: dict[str, list[tuple[str, Comparison]]] = {}
    for opponent in ("initial", "none"):
        before, after = (_final(run, policy, (opponent,)) for policy in ("initial", "final"))
        both = [game for game in after if game in before]
        found[opponent] = [(game, Comparison(before[game], after[game], opponent == "none")) for game in both]
    paired, alone = found["initial"], found["none"]
    if not paired and not alone:
        return {"kind": "unfinished", "last": run.metrics[-1] if run.metrics else None}
    totals = [_total([pair for _, pair in pairs]) for pairs in (paired, alone) if pairs]
    verdicts = {total.verdict for total in totals}
    each = [pair.verdict for _, pair in (*paired, *alone)]
    return {
        "kind": "mixed" if verdicts >= {"better", "worse"} else min(verdicts, key=("better", "worse", "unclear").index),
        "paired": totals[0] if paired else None,
        "paired_games": len(paired),
        "alone": alone,
        "num_games": len(each),
        "games_better": each.count("better"),
        "games_worse": each.count("worse"),
    }


def _total(pairs: Sequence[Comparison]) -> Comparison:
    return Comparison(pooled(p.before for p in pairs), pooled(p.after for p in pairs), pairs[0].alone)


def _matches(run: RunData) -> list[Json]:
    """Every match of the run by stage, the end of the run first."""
    order = {game: number for number, game in enumerate(run.games)}
    rows = sorted(
        run.evaluations,
        key=lambda r: (order[r[0]["game"]], r[0]["opponent"], r[0]["policy"] != "initial", r[0]["seat"]),
    )
    tables = [{"stage": s, "rows": [r for r in rows if r[0]["stage"] == s]} for s in reversed(run.stages)]
    return [table for table in tables if table["rows"]]


def _stages(run: RunData) -> list[Json]:
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


def _stage_table(run: RunData) -> Json | None:
    """Scores of game x stage against the initial policy, as in the paper's Table 3; for one player the share solved."""
    cells: dict[tuple[str, str], Record] = collections.defaultdict(Record)
    alone = {row["game"] for row, _ in run.evaluations if row["opponent"] == "none"}
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
    rows = [
        {"game": game, "alone": game in alone, "cells": [(cells.get((game, s)), game in trained[s]) for s in stages]}
        for game in games
    ]
    means = []
    for kind in (False, True):  # a score and a share have no mean
        values = [
            [measured(cells[g, stage], kind).estimate for g in games if (g in alone) == kind and (g, stage) in cells]
            for stage in stages
        ]
        if any(values):
            means.append({"alone": kind, "means": [sum(v) / len(v) if v else None for v in values]})
    return {"stages": stages, "rows": rows, "means": means}


def _group_names(stage: str) -> list[str]:
    """The groups a stage trains or fuses: ``conquer g1+g2`` names g1 and g2."""
    return stage.partition(" ")[2].split("+")


def _groups(run: RunData) -> Json | None:
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
        "slowest": max(seconds, default=0.0),
        "iterations": len(clocks),
        "episodes": total("episodes_per_second"),
        "tokens": total("tokens_per_second"),
    }

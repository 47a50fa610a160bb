"""The result of a run as text: who won how often before and after, from the run folder's own files."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from dfc.evaluation.statistics import Interval, Record, difference_interval, pooled, pooled_score
from dfc.runs.run_folder import RunFolder

_ROW = "{:28} {:13} {:8} {:>5} {:>5} {:>5} {:>5}  {:20} {:>8} {:>9}"
_HEADER = _ROW.format("game", "against", "policy", "W", "D", "L", "T", "score (95 %)", "illegal", "forfeits")
_BOTH = ("initial", "final")
_NOTES = (
    "T: truncated, in no score; forfeits: won by the other seat's invalid reply + lost by an own one",
    "against none: one player, the share of games solved instead of a score",
)


def final_records(folder: Path) -> dict[tuple[str, str, str], Record]:
    """Returns the final matches' counts, summed over seats, by (game, opponent, policy)."""
    records: dict[tuple[str, str, str], Record] = defaultdict(Record)
    with (folder / "evaluations.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["stage"] == "final":
                records[row["game"], row["opponent"], row["policy"]] += Record.from_json(row)
    return dict(records)


def lines(folder: Path) -> list[str]:
    """Returns the table of final matches and what follows from it, one line each.

    Two-player games are pooled into a score (win 1, draw 1/2) with and without the games an invalid reply decided,
    those that both policies have played; single-player games get the difference of solved rates with its interval. What
    no game supports is left out.
    """
    records = final_records(folder)
    out = ["", _HEADER]
    for (game, opponent, policy), r in sorted(
        records.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] != "initial")
    ):
        wrong = (r.illegal_replies + r.malformed_replies) / max(1, r.replies)
        forfeits = f"{r.won_by_forfeit}+{r.lost_by_forfeit}"
        score, counts = _shown(r.measured(alone=opponent == "none")), (r.win, r.draw, r.loss, r.truncated)
        out.append(_ROW.format(game, opponent, policy, *counts, score, f"{wrong:.1%}", forfeits))
    out += _NOTES if any(opponent == "none" for _, opponent, _ in records) else _NOTES[:1]
    out += _failures(folder)
    for opponent in ("initial", "random_legal"):
        before, after = ({g: r for (g, o, p), r in records.items() if (o, p) == (opponent, policy)} for policy in _BOTH)
        game_ids = [game for game in after if game in before] or list(
            after
        )  # one policy alone is compared with nothing
        if after:
            sides = [[side[game] for game in game_ids if game in side] for side in (before, after)]
            line = f"two-player games pooled against {opponent}: {_change([pooled_score(side) for side in sides])}"
            without = [pooled(side).score_without_forfeits for side in sides]
            if not math.isnan(without[1].estimate):
                line += f"; without games decided by an invalid reply {_change(without)}"
            out.append(line)
    for game in dict.fromkeys(g for g, o, _ in records if o == "none"):
        old, new = (records.get((game, "none", policy), Record()) for policy in _BOTH)
        if old.decided and new.decided:
            change = difference_interval(new.win, new.decided, old.win, old.decided)
            both = f"from {old.win}/{old.decided} to {new.win}/{new.decided}, difference {_shown(change)}"
        else:
            both = ", ".join(f"{p} {r.win}/{r.decided}" for p, r in zip(_BOTH, (old, new), strict=True) if r.decided)
        out.append(f"{game} solved: {both}")
    return out


def _failures(folder: Path) -> list[str]:
    """Returns a line for every id of the final matches of which games failed."""
    counts: dict[str, int] = defaultdict(int)
    causes: dict[str, str] = {}
    with (folder / "evaluations.jsonl").open(encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            if row["stage"] == "final" and row.get("failed"):
                counts[row["game"]] += row["failed"]
                causes.setdefault(row["game"], row["first_failure"])
    return [
        f"{game}: {count} games failed and count nowhere, the first: {causes[game]}" for game, count in counts.items()
    ]


def _change(sides: Sequence[Interval]) -> str:
    """Returns the interval before and after, or only the one after."""
    before, after = sides
    return _shown(after) if math.isnan(before.estimate) else f"from {_shown(before)} to {_shown(after)}"


def _shown(interval: Interval) -> str:
    return f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def show(folder: RunFolder) -> None:
    """Prints the result of a run and where to look."""
    if not folder.writes:
        return
    for line in lines(folder.path):
        print(line)  # noqa: T201 - the result
    if folder.adapter.exists():
        print(f"adapter: {folder.adapter}")  # noqa: T201 - where to look
    print(f"policy: {folder.policy}\nreport: {folder.report}", flush=True)  # noqa: T201 - where to look

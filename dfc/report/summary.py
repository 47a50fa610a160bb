"""The result of a run's final matches: the policy before and after, one headline for the page and for the console."""

import collections
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dfc.evaluation.statistics import Comparison, Interval, Record, pooled, pooled_by, pooled_score
from dfc.report.reader import Json, RunRecords, read_evaluations
from dfc.report.tables import Table, estimate

_POLICIES = ("initial", "final")
_HEADER = ("game", "against", "policy", "W", "D", "L", "T", "score (95 %)", "illegal", "forfeits")
_NOTES = (
    "T: truncated, in no score; forfeits: won by the other seat's invalid reply + lost by an own one",
    "against none: one player, the share of games solved instead of a score",
)


class Compared(NamedTuple):
    """Initial and final policy in the same seats against one opponent (``none``: games for one).

    Attributes:
      opponent: its name.
      games: by game.
      both: the games that both have played.
      total: those pooled, or all games where there is none.
    """

    opponent: str
    games: dict[str, Comparison]
    both: list[str]
    total: Comparison


def final_records(evaluations: Iterable[tuple[Json, Record]]) -> dict[tuple[str, str, str], Record]:
    """Returns the final matches' counts, summed over seats, by (game, opponent, policy)."""
    final = ((row, record) for row, record in evaluations if row["stage"] == "final")
    return pooled_by(((row["game"], row["opponent"], row["policy"]), record) for row, record in final)


def comparisons(run: RunRecords) -> list[Compared]:
    """Returns initial and final policy side by side, for every opponent that one of them has met."""
    records = final_records(run.evaluations)
    found = []
    for opponent in ("initial", "none", "random_legal"):
        before, after = _sides(records, opponent)
        games = [game for game in run.games if game in before or game in after]
        if not games:
            continue
        alone = opponent == "none"
        both = [game for game in games if game in before and game in after]
        first, last = (pooled(side[game] for game in both or games if game in side) for side in (before, after))
        each = {game: Comparison(before.get(game, Record()), after.get(game, Record()), alone) for game in games}
        found.append(Compared(opponent, each, both, Comparison(first, last, alone)))
    return found


def verdict(compared: Iterable[Compared]) -> Json:
    """Returns whether the policy got better at what both policies played, one-player games apart.

    The two-player games are pooled into a score against the initial policy, which is what the console prints as well;
    of every one-player game there is the share solved. Better is what got better in one of the two and worse in
    neither. Its `kind` is ``unfinished`` where the policies have no match in common.
    """
    kinds = {each.opponent: each for each in compared if each.both and each.opponent != "random_legal"}
    paired, alone = kinds.get("initial"), kinds.get("none")
    verdicts = {each.total.verdict for each in kinds.values()}
    every = [each.games[game].verdict for each in kinds.values() for game in each.both]
    if not every:
        return {"kind": "unfinished"}
    return {
        "kind": "mixed" if verdicts >= {"better", "worse"} else min(verdicts, key=("better", "worse", "unclear").index),
        "paired": paired and paired.total,
        "paired_games": len(paired.both) if paired else 0,
        "alone": [(game, alone.games[game]) for game in alone.both] if alone else [],
        "num_games": len(every),
        "games_better": every.count("better"),
        "games_worse": every.count("worse"),
    }


def lines(folder: Path) -> list[str]:
    """Returns the table of a run's final matches for the console and what follows from it, one line each.

    Two-player games are pooled into a score (win 1, draw 1/2) with and without the games an invalid reply decided,
    those that both policies have played; single-player games get the difference of solved rates with its interval.
    Figures without a game are left out.
    """
    evaluations, problems = read_evaluations(folder)
    records = final_records(evaluations)
    rows = [
        _row(place, records[place])
        for place in sorted(records, key=lambda place: (place[0], place[1], place[2] != "initial"))
    ]
    out = ["", *Table("", _HEADER, tuple(rows)).lines()[1:]]
    out += _NOTES if any(opponent == "none" for _, opponent, _ in records) else _NOTES[:1]
    out += [*problems, *_failures(evaluations)]
    for opponent in ("initial", "random_legal"):
        before, after = _sides(records, opponent)
        if after:
            games = [game for game in after if game in before] or list(after)  # one alone has no comparison
            sides = [[side[game] for game in games if game in side] for side in (before, after)]
            line = f"two-player games pooled against {opponent}: {_change([pooled_score(side) for side in sides])}"
            without = [pooled(side).score_without_forfeits for side in sides]
            if not math.isnan(without[1].estimate):
                line += f"; without games decided by an invalid reply {_change(without)}"
            out.append(line)
    for game in dict.fromkeys(g for g, opponent, _ in records if opponent == "none"):
        found = {policy: records.get((game, "none", policy), Record()) for policy in _POLICIES}
        solved = {policy: f"{one.win}/{one.decided}" for policy, one in found.items() if one.decided}
        if len(solved) == 2:
            initial, final = found.values()
            change = estimate(Comparison(initial, final, alone=True).difference, 3)
            both = f"from {' to '.join(solved.values())}, difference {change}"
        else:
            both = ", ".join(f"{policy} {share}" for policy, share in solved.items())
        out.append(f"{game} solved: {both}")
    return out


def _sides(records: dict[tuple[str, str, str], Record], opponent: str) -> list[dict[str, Record]]:
    """Returns the counts of the initial and of the final policy by game."""
    return [{g: r for (g, o, p), r in records.items() if (o, p) == (opponent, policy)} for policy in _POLICIES]


def _row(place: tuple[str, str, str], r: Record) -> tuple[str, ...]:
    wrong = (r.illegal_replies + r.malformed_replies) / max(1, r.replies)
    score = estimate(r.measured(alone=place[1] == "none"), 3)
    counts = map(str, (r.win, r.draw, r.loss, r.truncated))
    return (*place, *counts, score, f"{wrong:.1%}", f"{r.won_by_forfeit}+{r.lost_by_forfeit}")


def _failures(evaluations: Iterable[tuple[Json, Record]]) -> list[str]:
    """Returns a line for every game of the final matches of which some failed."""
    failed: dict[str, list[Json]] = collections.defaultdict(list)
    for row, _ in evaluations:
        if row["stage"] == "final" and row.get("failed"):
            failed[row["game"]].append(row)
    return [
        f"{game}: {sum(row['failed'] for row in rows)} games failed (in no figure), "
        f"the first: {rows[0]['first_failure']}"
        for game, rows in failed.items()
    ]


def _change(sides: Sequence[Interval]) -> str:
    """Returns the interval before and after, or only the one after."""
    before, after = sides
    return estimate(after, 3) if math.isnan(before.estimate) else f"from {estimate(before, 3)} to {estimate(after, 3)}"

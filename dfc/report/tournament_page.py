"""The results of a tournament for people: lines of a terminal, Markdown, a page of HTML; and for programs: JSON."""

import math
from collections.abc import Mapping
from pathlib import Path

from dfc.config import Evaluate
from dfc.evaluation.tournament import Cell, Tournament, to_json
from dfc.players import player_specs
from dfc.report import paper_tables
from dfc.report.page import Results
from dfc.report.tables import Table, estimate

_MEASURES = (
    ("seconds", "seconds"),
    ("generated_tokens", "generated tokens"),
    ("requests", "requests"),
    ("input_tokens", "tokens sent"),
    ("output_tokens", "tokens received"),
    ("money", "money"),
)

_COUNTED = (
    "A win by the other side's invalid reply is a win. An own invalid end, an own overrun (the policy filled its own "
    "context), a truncated game (stopped by the other side's context or another limit) and a failed one (a player "
    "outside the rules broke down) are counted apart and never among the losses. In scores and tests an own invalid "
    "end and an own overrun are worth 0, truncated and failed games do not enter. Ratings take games that a rule ended."
)
_REPLAYED = "Every game is in episodes.jsonl and was played again from its record before it was counted."
_RATED = (
    "Bradley-Terry by maximum likelihood over all games for two opponents, those of teams are only counted; a draw "
    "counts as half a win for each side. To every pair that met, half a win is added for each side, which keeps "
    "undefeated policies finite. By rule: without the games that an invalid reply decided."
)
_INTERVALS = (
    "Intervals are of 95 %, from the Hessian at the maximum; they treat games as independent, which games of one deal "
    "and of a fixed start are not quite."
)
_PAIRED = (
    "Exact two-sided sign test (McNemar's, where a game is won or not); ties are left out. Pairs: head to head, the "
    "two games of one deal against each other with seats swapped, better where both together give more than one point; "
    "alone, the same deal of a game for one; same opponents, the same deal in the same seat against a third policy."
)
_CELLS = (
    "Won: share of games won, without truncated ones, with Wilson's interval of 95 %. Score: win 1, draw 1/2, with "
    "Tango's interval; alone a game is solved or it is not, and has none. Replies: illegal + unreadable, of all. A "
    "fixed start deals the same game every time: only what is sampled differs."
)
_LEVEL = 0.05  # of a test; that of an exact test on few pairs is lower
_SPENT = (
    "Seconds of the games a policy took part in, its opponents' thinking included. Money: tokens x prices per million. "
    "What a process that was killed had spent on games not yet on record is not in it."
)


def tables(config: Evaluate, found: Tournament, starts: Mapping[str, str]) -> list[Table]:
    """Returns every table of a tournament, the shortest summary first.

    Of each game id `starts` has ``fixed`` or ``random``.
    """
    trained, base, reference = (player_specs.role(config, r) for r in ("trained", "base", "reference"))
    every = [_ratings(config, found), _tests(found), *paper_tables.table_2(found, trained, base, reference)]
    for spec in player_specs.policies(config):
        if spec.kind == "model" and player_specs.run_config(spec.who) is not None:
            third = paper_tables.table_3(Path(spec.who).expanduser())
            every += [] if third is None else [third]
    every += [paper_tables.table_8(found, trained, base), _by_seat(found, starts), _costs(config, found)]
    return [table for table in every if table.rows]


def console(found: Tournament) -> list[str]:
    """Returns a compact summary: one line per policy."""
    header = ("policy", "games", "W/D/L", "invalid", "overrun", "truncated", "failed", "solved alone", "Elo (95 %)")
    rows = []
    for name in found.policies:
        paired, alone = _total(found, name, alone=False), _total(found, name, alone=True)
        solved = f"{alone.record.win}/{alone.record.decided}" if alone.record.decided else "-"
        both = paired + alone
        wdl = "/".join(_counts(paired)[:3]) if paired.record.games else "-"
        elo = estimate(found.ratings[name].elo, 0) if paired.record.games else "-"
        rows.append((name, str(both.record.games), wdl, *_counts(both)[4:], solved, elo))
    return ["", *Table("W/D/L of games for two; the next four counts of all games", header, tuple(rows)).lines()]


def results(config: Evaluate, found: Tournament, starts: Mapping[str, str]) -> Results:
    """Returns the results to publish; `starts` as `tables`."""
    conditions = {
        "name": config.name,
        "seed": config.seed,
        "deals_per_id": config.seeds,
        "who": {spec.name: spec.who for spec in player_specs.policies(config)},
    }
    data, every = to_json(found, conditions=conditions), tables(config, found, starts)
    return Results("Tournament", config.name, _introduction(config), every, data, console(found))


def _introduction(config: Evaluate) -> list[str]:
    who = "; ".join(f"{spec.name}: {spec.who}" for spec in player_specs.policies(config))
    deals = (
        f"{config.seeds} deals per game, the same for every policy, from run seed {config.seed}; their seeds "
        "have a purpose of their own and are no training game's. Every pair plays each deal twice, with seats swapped."
    )
    return [f"Policies: {who}.", deals, _COUNTED, _REPLAYED]


def _total(found: Tournament, name: str, *, alone: bool) -> Cell:
    fitting = (cell for (p, o, _, _), cell in found.cells.items() if p == name and (o is None) == alone)
    return sum(fitting, Cell())


def _ratings(config: Evaluate, found: Tournament) -> Table:
    anchor = config.anchor
    zero = f"{anchor} is rated 0" if anchor else "the mean of all is 0"
    notes = (f"{_RATED} Here {zero}.", _INTERVALS)
    rows = []
    ranked = sorted(found.policies, key=lambda name: -_order(found.ratings[name].elo.estimate))
    for name in ranked if found.games(alone=False) else ():
        total, by_rule = _total(found, name, alone=False), found.ratings_by_rule[name]
        elo = (estimate(found.ratings[name].elo, 0), estimate(by_rule.elo, 0))
        rows.append((name, *elo, *_counts(total), estimate(total.record.score)))
    header = ("policy", "Elo", "Elo by rule", "W", "D", "L", *_APART, "score")
    return Table("Ratings", header, tuple(rows), notes)


_APART = ("W by the other's invalid", "own invalid", "own overrun", "truncated", "failed")


def _counts(cell: Cell) -> tuple[str, ...]:
    """Returns W, D and L, then what is counted apart."""
    r = cell.record
    apart = (r.won_by_forfeit, r.lost_by_forfeit, r.lost_by_overrun, r.truncated, cell.failed)
    return tuple(map(str, (r.win, r.draw, cell.losses, *apart)))


def _order(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _tests(found: Tournament) -> Table:
    rows = tuple(
        (t.first, t.second, t.pairing, str(t.better), str(t.worse), str(t.ties), f"{t.p:.2g}") for t in found.tests
    )
    by_chance = f"{_LEVEL * len(rows):.2g} of them, on average, would have a p below {_LEVEL} between equals"
    chance = f"Number of tests: {len(rows)}; {by_chance}."
    header = ("first", "second", "pairs", "first better", "second better", "ties", "p")
    return Table("Paired tests", header, rows, (_PAIRED, chance))


def _by_seat(found: Tournament, starts: Mapping[str, str]) -> Table:
    rows = []
    for (policy, opponent, game, seat), cell in found.cells.items():
        record = cell.record
        won = estimate(record.win_rate)
        wrong = f"{record.illegal_replies} + {record.malformed_replies} of {record.replies}"
        start, score = starts.get(game, ""), "-" if opponent is None else estimate(record.score)
        rows.append((policy, opponent or "alone", game, start, str(seat), *_counts(cell), won, score, wrong))
    header = ("policy", "against", "game", "start", "seat", "W", "D", "L", *_APART, "won (Wilson)", "score", "replies")
    return Table("By game and seat", header, tuple(rows), (_CELLS,), css="dense")


def _costs(config: Evaluate, found: Tournament) -> Table:
    rows = []
    for name, costs in found.costs.items():
        values = [f"{costs[m]:{'.1f' if m == 'seconds' else '.10g'}}" if m in costs else "-" for m, _ in _MEASURES]
        rows.append((name, *(f"{costs.get(m, 0):g}" for m in ("games", "replies")), *values))
    asked = {name: entry for name, entry in config.endpoints.items() if entry.input_price or entry.output_price}
    prices = (f"{name}={entry.input_price:g}/{entry.output_price:g}" for name, entry in asked.items())
    priced = "; ".join(prices) or "none given"
    header = ("policy", "games", "replies", *(words for _, words in _MEASURES))
    return Table("Cost", header, tuple(rows), (f"{_SPENT} Prices: {priced}.",))

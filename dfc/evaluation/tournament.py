"""A tournament's results from its records: counts by policy, opponent, game, seat; ratings; paired tests; cost.

Everything is computed from the lines of the run folder and from nothing else. A win by the other side's invalid reply
counts as a win and is also counted apart; an own invalid end, an own overrun of the context, a truncated game and a
game that failed (a player outside the rules broke down) have counts of their own and are never among the losses that
the rules decided. Ratings are of games that a rule ended: neither failed nor truncated. For its own score, and where it
is compared with another policy in the same place, an overrun is a loss of the policy that overran.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from dfc.evaluation.pairing import key
from dfc.evaluation.ratings import Rating, bradley_terry
from dfc.evaluation.statistics import Record, sign_test
from dfc.evaluation.task_statistics import as_json
from dfc.games.game import Verdict
from dfc.games.replay import replay

Json = dict[str, Any]
Pairing = Literal["head to head", "alone", "same opponents"]

_ILLEGAL = (Verdict.ILLEGAL, Verdict.FORFEIT_ILLEGAL)
_MALFORMED = (Verdict.MALFORMED, Verdict.FORFEIT_MALFORMED)


@dataclasses.dataclass(frozen=True)
class Cell:
    """Finished games of one policy against one opponent.

    Attributes:
      record: the counts; games that failed are not among them.
      failed: games that something outside the rules ended; they are inconclusive about the policies.
    """

    record: Record = Record()  # noqa: RUF009 - frozen
    failed: int = 0

    def __add__(self, other: "Cell") -> "Cell":
        return Cell(self.record + other.record, self.failed + other.failed)

    @property
    def losses(self) -> int:
        """Games lost by the rules, own invalid ends and overruns apart."""
        return self.record.loss - self.record.lost_by_forfeit - self.record.lost_by_overrun

    @property
    def text(self) -> str:
        """W/D/L as the paper writes it, then what is counted apart."""
        apart = [
            ("invalid", self.record.lost_by_forfeit),
            ("overrun", self.record.lost_by_overrun),
            ("truncated", self.record.truncated),
            ("failed", self.failed),
        ]
        wdl = f"{self.record.win}/{self.record.draw}/{self.losses}"
        return ", ".join([wdl, *(f"{count} {name}" for name, count in apart if count)])


Place = tuple[str, str | None, str, int]
"""(policy, opponent or None, game id, the policy's seat)."""


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """Two policies compared on pairs of games of the same deal.

    Attributes:
      first, second: policies.
      pairing: what a pair is. ``head to head``: the two games of one deal against each other, seats swapped; better
        means more points than the other from both; partners in a team have no such pair. ``alone``: the two games of
        one deal of a game for one. ``same opponents``: the two games of one deal in the same seat against, or in a team
        beside, the same third policy.
      better: pairs in which the first did better. worse: in which the second did. ties: neither.
      p: two-sided, exact (`dfc.evaluation.statistics.sign_test`).
    """

    first: str
    second: str
    pairing: Pairing
    better: int
    worse: int
    ties: int

    @property
    def p(self) -> float:
        """The two-sided p-value."""
        return sign_test(self.better, self.worse)


@dataclasses.dataclass(frozen=True)
class Tournament:
    """The results of a tournament.

    Attributes:
      policies: names, in the order of the configuration.
      cells: counts by policy, opponent, game and seat.
      ratings: of all games for two that a rule ended, but for those of teams, whose partners are no opponents.
      ratings_by_rule: of those that no invalid reply decided.
      tests: paired tests.
      costs: policy -> measure -> sum.
    """

    policies: tuple[str, ...]
    cells: Mapping[Place, Cell]
    ratings: Mapping[str, Rating]
    ratings_by_rule: Mapping[str, Rating]
    tests: Sequence[PairedTest]
    costs: Mapping[str, Mapping[str, float]]

    def cell(self, policy: str, opponent: str | None, game: str | None = None, seat: int | None = None) -> Cell:
        """Returns the sum over the cells that fit; None stands for every game or seat."""
        fitting = (
            cell
            for (p, o, g, s), cell in self.cells.items()
            if (p, o) == (policy, opponent) and game in (None, g) and seat in (None, s)
        )
        return sum(fitting, Cell())

    def games(self, *, alone: bool) -> list[str]:
        """Returns the games that were played, those for one or those for two, in order of appearance."""
        return list(dict.fromkeys(g for _, opponent, g, _ in self.cells if (opponent is None) == alone))


def checked(record: Mapping[str, Any]) -> list[Json]:
    """Plays a record again, which proves it, and returns each seat's counts: replies, illegal, malformed.

    Raises:
      ReplayError: the rules contradict it.
    """
    counts = [{"replies": 0, "illegal": 0, "malformed": 0} for _ in record["outcomes"]]
    for turn in replay(record):
        if turn.seat < len(counts):
            counts[turn.seat]["replies"] += 1
            counts[turn.seat]["illegal"] += turn.verdict in _ILLEGAL
            counts[turn.seat]["malformed"] += turn.verdict in _MALFORMED
    return counts


def of_records(
    policies: Sequence[str], records: Iterable[Json], costs: Iterable[Json] = (), *, anchor: str | None = None
) -> Tournament:
    """Returns the results of a tournament, from lines of its episodes.jsonl and, for the cost, of its metrics.jsonl.

    Of several records of one game the last one counts: one that failed is played again by a later start.
    The anchor is the policy rated 0; None: the mean of all is 0.
    """
    played = list({key(r["game"], r["deal"], r["players"]): r for r in records}.values())
    order = {game: number for number, game in enumerate(dict.fromkeys(r["game"] for r in played))}
    cells: dict[Place, Cell] = collections.defaultdict(Cell)
    for record, seat, policy, opponent in _seated(played):
        cells[policy, opponent, record["game"], seat] += cell_of(record, seat)
    place = {name: number for number, name in enumerate(policies)}
    ordered = sorted(cells, key=lambda c: (place[c[0]], -1 if c[1] is None else place[c[1]], order[c[2]], c[3]))
    decided = [r for r in played if _decided(r)]
    contests = [r for r in decided if not r.get("team")]
    by_rule = [r for r in contests if r["forfeited_by"] is None]
    return Tournament(
        tuple(policies),
        {where: cells[where] for where in ordered},
        bradley_terry(policies, _points(contests), anchor=anchor),
        bradley_terry(policies, _points(by_rule), anchor=anchor),
        paired_tests(policies, played),
        _costs(policies, played, costs),
    )


def cell_of(record: Mapping[str, Any], seat: int) -> Cell:
    """Returns one game as counts of the policy on a seat."""
    if "failure" in record:
        return Cell(failed=1)
    outcome, counts = record["outcomes"][seat], record["counts"][seat]
    overran = record.get("overrun_by") == seat
    return Cell(
        Record.of_game(
            outcome,
            seat=seat,
            forfeited_by=record["forfeited_by"],
            overran=overran,
            ran_out=len(record["outcomes"]) == 1 and outcome == "truncated" and not overran,  # no other seat delayed it
            replies=counts["replies"],
            illegal_replies=counts["illegal"],
            malformed_replies=counts["malformed"],
            steps=counts["replies"],
        )
    )


def points(record: Mapping[str, Any], seat: int) -> float:
    """Returns what a game that ended by a rule is worth for a seat: a win 1, a draw 1/2, a loss 0."""
    return {"win": 1.0, "draw": 0.5}.get(record["outcomes"][seat], 0.0)


def _seated(records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int, str, str | None]]:
    """Yields every seat of every game: record, seat, its player, and the opposite one (None: no one)."""
    for record in records:
        for seat, policy in enumerate(record["players"]):
            yield record, seat, policy, None if len(record["players"]) == 1 else record["players"][1 - seat]


def _decided(record: Mapping[str, Any]) -> bool:
    """Whether a rule ended the game: it neither failed nor was it truncated."""
    return "failure" not in record and "truncated" not in record["outcomes"]


def _points(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    sums: dict[tuple[str, str], float] = collections.defaultdict(float)
    for record, seat, policy, opponent in _seated(records):
        if opponent is not None:
            sums[policy, opponent] += points(record, seat)
    return dict(sums)


def paired_tests(policies: Sequence[str], records: Sequence[Mapping[str, Any]]) -> list[PairedTest]:
    """Returns the tests of every pair of policies; a pair with a game that failed or was truncated is left out.

    An overrun is worth 0 for the policy that overran, and does not count for the one against it.
    """
    scores: dict[str, dict[_Seating, float]] = {name: {} for name in policies}
    teams = {record["game"] for record in records if record.get("team")}
    for record, seat, policy, opponent in _seated(records):
        if _decided(record) or ("failure" not in record and record.get("overrun_by") == seat):
            won = float(record["outcomes"][seat] == "win")  # alone a game is solved or it is not
            scores[policy][opponent, record["game"], record["deal"], seat] = (
                won if opponent is None else points(record, seat)
            )
    tests = []
    for first, second in itertools.combinations(policies, 2):
        differences: dict[Pairing, list[float]] = {
            "head to head": [
                mine + scores[first][second, game, deal, 1] - 1
                for (opponent, game, deal, seat), mine in scores[first].items()
                if opponent == second
                and game not in teams
                and seat == 0
                and (second, game, deal, 1) in scores[first]
                and all((first, game, deal, side) in scores[second] for side in (0, 1))  # results of both sides
            ],
            "alone": _differences(scores[first], scores[second], alone=True),
            "same opponents": _differences(scores[first], scores[second], alone=False),
        }
        tests += [
            PairedTest(first, second, kind, sum(d > 0 for d in ds), sum(d < 0 for d in ds), sum(d == 0 for d in ds))
            for kind, ds in differences.items()
            if ds
        ]
    return tests


_Seating = tuple[str | None, str, int, int]  # opponent, game id, deal, seat


def _differences(first: Mapping[_Seating, float], second: Mapping[_Seating, float], *, alone: bool) -> list[float]:
    """Returns the first's surplus where both played the same seat, on the same deal, against the same opponent."""
    both = [place for place in first if place in second and (place[0] is None) == alone]
    return [first[place] - second[place] for place in both]


def _costs(policies: Sequence[str], records: Sequence[Json], costs: Iterable[Json]) -> dict[str, dict[str, float]]:
    sums: dict[str, dict[str, float]] = {name: collections.defaultdict(float) for name in policies}
    for record, seat, policy, _ in _seated(records):
        sums[policy]["games"] += 1
        sums[policy]["replies"] += record["counts"][seat]["replies"]
    for line in costs:
        for name in line["policies"]:
            sums[name]["seconds"] += line["clock"]["seconds"]
        for measure, value in line["metrics"].items():
            what, _, name = measure.partition("/")
            sums.setdefault(name, collections.defaultdict(float))[what] += value
    return {name: dict(found) for name, found in sums.items()}


def to_json(found: Tournament, **more: Any) -> Json:  # noqa: ANN401 - JSON values
    """Returns it ready for JSON, intervals as [estimate, low, high]; nan and infinities become None."""
    data = {
        **more,
        "policies": found.policies,
        "games": [
            {
                "policy": policy,
                "opponent": opponent,
                "game": game,
                "seat": seat,
                "games": cell.record.games,
                **vars(cell.record),
                "loss_by_rule": cell.losses,
                "failed": cell.failed,
                "win_rate": cell.record.win_rate,
                "score": cell.record.score,
            }
            for (policy, opponent, game, seat), cell in found.cells.items()
        ],
        "ratings": [
            {"policy": name, **vars(rating), "elo_by_rule": found.ratings_by_rule[name].elo}
            for name, rating in found.ratings.items()
        ],
        "paired_tests": [{**vars(test), "p": test.p} for test in found.tests],
        "costs": found.costs,
    }
    return dict(as_json(data))

"""Answers to instructions as a judge compares them: the schedule of pairs, what is asked, and what a record holds."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dfc import multihost
from dfc.config import EvaluateAnswers
from dfc.errors import cut
from dfc.games.printable import printable
from dfc.players.endpoint import Endpoint
from dfc.players.endpoint_config import split_name
from dfc.players.remote import PlayerError
from dfc.records.episode_store import Part, Played, Players
from dfc.rows.instructions import Instruction
from dfc.scoring.judge import NO_REPLY, Comparison, compare
from dfc.scoring.scorer import PATIENCE

_AT_ONCE = 64  # pairs between two writes
JUDGE = "judge"  # its name in costs and messages


class Pair(NamedTuple):
    """One comparison of the schedule.

    Attributes:
      compared: whose answer. baseline: whose it is compared with.
      number: of the instruction.
    """

    compared: str
    baseline: str
    number: int


def compared(config: EvaluateAnswers, policies: Sequence[str]) -> list[str]:
    """Returns who of the run's policies is compared with the baseline, in the order of the tables."""
    own = config.pairwise
    if not own.instructions:
        return []
    again = [own.second_answers] if own.baseline_again and own.baseline in policies else []
    return again + [name for name in (*policies, *own.outputs) if name != own.baseline]


class Comparisons(Players[Pair]):
    """Asks the judge about pairs; the endpoint is opened at the first pair without a verdict.

    `answers` has by name one answer to every instruction; `before` are records of earlier starts, of which those of the
    first process are used. `check_stop` is called while replies are waited for.
    """

    what = "comparisons"

    def __init__(
        self,
        config: EvaluateAnswers,
        instructions: Sequence[Instruction],
        answers: Mapping[str, Sequence[str]],
        before: Sequence[Mapping[str, Any]],
        check_stop: Callable[[], None],
    ) -> None:
        self._config, self._instructions, self._answers, self._check_stop = config, instructions, answers, check_stop
        judged = [record for record in before if "compared" in record and not record["identical"]]
        self._verdicts: int = multihost.broadcast(sum(record["outcome"] is not None for record in judged))
        self._silent = 0  # pairs of this start without a verdict, while there is none at all

    @functools.cached_property
    def _judge(self) -> Endpoint:
        own = self._config.pairwise
        return Endpoint(*split_name(own.judge), own.endpoint, name=JUDGE)

    @property
    def endpoints(self) -> list[Endpoint]:
        """The judge, if it has been asked by this process."""
        return [self._judge] if "_judge" in vars(self) else []

    def close(self) -> None:
        """Ends the connection, if there is one."""
        for endpoint in self.endpoints:
            endpoint.close()

    def tells(self, record: Mapping[str, Any]) -> bool:
        """Returns whether a record is evidence about the judge: not if it has judged others and fails here."""
        return not (self._verdicts and (record.get("refused") or record.get("unanswered")))

    def begin(self, part: Part[Any, Pair]) -> int:
        """Returns how many pairs are asked about between two writes."""
        del part
        return _AT_ONCE

    def play(self, part: Part[Any, Pair], some: list[Pair]) -> Played:
        """Asks about some pairs, as `records`."""
        del part
        return Played(self.records(some), {})

    def wins(self, record: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
        """Returns whether the compared answer won, by data set."""
        return [(record["dataset"], record["outcome"] == "win")]

    def records(self, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
        """Returns a record of each pair, or of fewer after a stop was requested; one process asks, and all know.

        Raises:
          PlayerError: the judge has not given one verdict in the first 64 pairs, or is down: none of several that it
            was asked about has a reply.
        """
        made = multihost.on_all_hosts(lambda: self._asked(pairs) if multihost.is_primary() else None)
        found = [dict(record) for record in multihost.broadcast(made)]
        self._verdicts += sum(record["outcome"] is not None and not record["identical"] for record in found)
        return found

    def _asked(self, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
        rows = [
            (
                self._instructions[p.number].text,
                self._answers[p.compared][p.number],
                self._answers[p.baseline][p.number],
            )
            for p in pairs
        ]
        different = [row for row in rows if row[1] != row[2]]
        verdicts = iter(compare(self._judge, different, self._check_stop) if different else ())
        every = [Comparison("tie", "tie") if row[1] == row[2] else next(verdicts) for row in rows]
        found = [(pair, row, one) for pair, row, one in zip(pairs, rows, every, strict=True) if one is not None]
        differing = [one for _, row, one in found if row[1] != row[2]]
        if len(found) == len(pairs):  # else a stop has cut replies off
            self._refuse_down(differing)
        self._refuse_silent(differing)
        return [self._record(pair, row, one) for pair, row, one in found]

    def _refuse_down(self, found: Sequence[Comparison]) -> None:
        # One pair alone may be one that the server always fails at, where it has judged others.
        if (len(found) > 1 or (found and not self._verdicts)) and all(map(_without_reply, found)):
            said = next(reply for reply in found[0].replies if reply.startswith(NO_REPLY))
            raise PlayerError(
                f"pairwise.judge={self._config.pairwise.judge!r}: no reply on any of the last {len(found)} pairs, on "
                f"the first one so: {cut(printable(said), 600)}. Everything else is on record; the same command "
                "resumes and asks about these again"
            )

    def _refuse_silent(self, found: Sequence[Comparison]) -> None:
        if self._verdicts or any(one.outcome for one in found):
            return
        self._silent += len(found)
        if self._silent >= PATIENCE:
            said = next((reply for one in reversed(found) for reply in one.replies), "nothing: an answer is too long")
            raise PlayerError(
                f"pairwise.judge={self._config.pairwise.judge!r}: not one verdict on the first {self._silent} pairs. "
                f"Expected a last line 'Verdict: A', 'Verdict: B' or 'Verdict: tie'; its last reply ends so: "
                f"{said[-300:]!r}. Name another judge, or raise pairwise.endpoint.max_tokens if replies are cut; the "
                "answers are on record, and the same command resumes"
            )

    def _record(self, pair: Pair, row: tuple[str, str, str], found: Comparison) -> dict[str, Any]:
        _, answer, other = row
        missing: dict[str, object] = {}
        if not found.outcome:
            missing["failure"] = printable(" / ".join(found.replies))[:1000] or "an answer is too long"
            missing["unanswered"] = found.unanswered
        if found.refused:
            missing["refused"] = printable(found.refused)[:1000]
        return {
            "compared": pair.compared,
            "baseline": pair.baseline,
            "instruction": pair.number,
            "dataset": self._instructions[pair.number].dataset,
            "outcome": found.outcome,
            "forward": found.forward,
            "backward": found.backward,
            "identical": answer == other,
            "characters": len(answer),
            "baseline_characters": len(other),
            "replies": list(found.replies),
            **missing,
        }


def _without_reply(found: Comparison) -> bool:
    """Whether no reply came in either order, and one may come yet."""
    return found.unanswered and all(reply.startswith(NO_REPLY) for reply in found.replies)

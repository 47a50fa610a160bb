"""Cellular Automata: one player infers the rule of a one-dimensional automaton from strings before and after a step."""

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Unpack

from dfc.games.game import Common
from dfc.games.paprika.task import AnswerGame
from dfc.games.rng import GameRng
from dfc.games.task import distinct_tasks

NEIGHBOURHOODS = tuple(f"{number:03b}" for number in range(8))
_SHORTEST, _LONGEST = 3, 10  # cells of an input
_TEST_PAIRS = 3
_ENTRY = re.compile(r"(?<!\S)([01]{3})\s*:\s*([01])(?!\S)")
_SEPARATORS = re.compile(r"</?rule>|,", re.IGNORECASE)
_SPLITS = MappingProxyType({"train": 1000, "test": 500})

Pairs = tuple[tuple[str, str], ...]
"""Inputs and the outputs that the hidden rule gives for them, in digits 0 and 1."""


def _table(rule: int) -> dict[str, str]:
    return {around: str(rule >> number & 1) for number, around in enumerate(NEIGHBOURHOODS)}


def spelled(table: Mapping[str, str]) -> str:
    """Returns next states, 0 or 1, by neighbourhood as a player writes them: ``000: 0, 001: 1, ...`` up to ``111``."""
    return ", ".join(f"{around}: {table[around]}" for around in NEIGHBOURHOODS)


_TABLES = {spelled(table): table for table in map(_table, range(256))}
RULES = tuple(_TABLES)
"""The 256 rules as a player writes them, by Wolfram's number."""


def evolve(table: Mapping[str, str], cells: str) -> str:
    """Returns the cells after one step; the first and the last cell are neighbours.

    >>> evolve(dict(zip(NEIGHBOURHOODS, "01110110")), "10110")
    '11111'
    """
    ring = cells[-1] + cells + cells[0]
    return "".join([table[ring[left : left + 3]] for left in range(len(cells))])


class CellularAutomata(AnswerGame):
    """Cellular Automata.

    Rules: a state is a string of cells 0 and 1. A rule gives the next state of a cell from its left neighbour, itself
    and its right neighbour; the string is closed to a ring. A task has one of the 256 rules and one to three inputs (in
    the test split always three) of 3 to 10 cells; the player sees them with the outputs of one step. A stated rule that
    reproduces all outputs succeeds, even if it is another rule than the hidden one where the inputs do not tell them
    apart. Otherwise the player sees what the stated rule gives. After `max_turns` wrong rules the task has failed.

    Action: ``<Answer>000: 0, 001: 1, ..., 111: 0</Answer>``, all eight neighbourhoods in any order, separated by
    commas, blanks or new lines, each also as ``<rule> 111: 0 </rule>``. Of a neighbourhood that comes twice the last
    entry counts. Anything else between the tags cannot be read.

    Differs from the paper: the number of pairs is from one to three only in the training split.

    Differs from the paper's code:
      - The player reads how many pairs there are (there the text says three, also where there are fewer).
      - No two tasks have the same pairs, within a split or between them (there 22 of the training tasks repeat others),
        and no input comes twice in a task.
      - The feedback names inputs by number and marks wrong outputs (there it repeats inputs and true outputs).
      - A reply that cannot be read fails (there it is sampled again up to ten times, then dropped).
      - Other text inside the tags cannot be read (there it is skipped, and a next state can be any character).

    Attributes:
      pairs: the inputs and their outputs, which the player sees.
      answers: how often a rule was stated.
      reproduced: pairs of which the last stated rule reproduces the output.
    """

    splits: ClassVar[Mapping[str, int]] = _SPLITS
    grammar: ClassVar[str] = "<Answer>000: 0, 001: 1, 010: 1, 011: 0, 100: 1, 101: 0, 110: 0, 111: 1</Answer>"

    def __init__(self, *, split: str = "train", max_turns: int = 6, **common: Unpack[Common]) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        self.pairs: Pairs = ()
        self.answers = 0
        self.reproduced = 0

    def measures(self) -> dict[str, float]:
        """Returns `pairs` (how many), `pairs_reproduced` (by the last answer) and `answers`."""
        return {
            "pairs": float(len(self.pairs)),
            "pairs_reproduced": float(self.reproduced),
            "answers": float(self.answers),
        }

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the table of all tasks, which must differ from each other, has a stream of its own
        self.pairs = _tasks()[self.split][self.task]
        self.answers = self.reproduced = 0
        for number, (before, after) in enumerate(self.pairs, start=1):
            self._tell(0, f"Input {number}: {' '.join(before)}. Output {number}: {' '.join(after)}.")

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        count = len(self.pairs)
        shown = "1 input and its output" if count == 1 else f"{count} inputs and their outputs"
        return (
            "Cellular Automata. A hidden rule gives the next state (0 or 1) of each cell of a string from its left "
            "neighbour, itself and its right neighbour, in this order; the first and the last cell are neighbours. You "
            f"see {shown} after one step. State a rule that reproduces every output; after a wrong one you are "
            f"told what it gives. You have {self.max_turns} turns. Reply with the next states of all 8 neighbourhoods: "
            "<Think>your thoughts, optional</Think> "
            "<Answer>000: 0, 001: 1, 010: 1, 011: 0, 100: 1, 101: 0, 110: 0, 111: 1</Answer>"
        )

    def _read_answer(self, answer: str) -> str | None:
        if answer in _TABLES:
            return answer
        text = _SEPARATORS.sub(" ", answer)
        table = dict(_ENTRY.findall(text))
        if len(table) < len(NEIGHBOURHOODS) or _ENTRY.sub("", text).strip():
            return None
        return spelled(table)

    def _take(self, answer: str) -> bool | None:
        table = _TABLES[answer]
        self.answers += 1
        given = [evolve(table, before) for before, _ in self.pairs]
        right = [output == after for output, (_, after) in zip(given, self.pairs, strict=True)]
        self.reproduced = sum(right)
        if all(right):
            self._tell(0, "Your rule reproduces every output.")
            return True
        for number, output in enumerate(given, start=1):
            verdict = "right" if right[number - 1] else "wrong"
            self._tell(0, f"Your rule gives for input {number}: {' '.join(output)} ({verdict}).")
        return None

    def legal_answers(self) -> list[str]:
        """Returns the 256 rules by Wolfram's number."""
        return list(RULES)

    def _position(self) -> dict[str, Any]:
        return {
            "pairs": [list(pair) for pair in self.pairs],
            "answers": self.answers,
            "reproduced": self.reproduced,
        }

    def _set_position(self, position: dict[str, Any]) -> None:
        self.pairs = tuple((before, after) for before, after in position["pairs"])
        self.answers, self.reproduced = position["answers"], position["reproduced"]


@functools.cache
def _tasks() -> dict[str, tuple[Pairs, ...]]:
    """Returns the tasks of all splits; two are alike if they have the same pairs, in any order."""
    return distinct_tasks(CellularAutomata.__name__, _SPLITS, _sample)


def _sample(rng: GameRng, split: str, _task: int) -> tuple[Pairs, frozenset[tuple[str, str]] | None]:
    count = _TEST_PAIRS if split == "test" else 1 + rng.randrange(_TEST_PAIRS)
    table = _TABLES[RULES[rng.randrange(len(RULES))]]
    lengths = [_SHORTEST + rng.randrange(_LONGEST - _SHORTEST + 1) for _ in range(count)]
    inputs = [f"{rng.randrange(2**length):0{length}b}" for length in lengths]
    pairs = tuple((before, evolve(table, before)) for before in inputs)
    return pairs, frozenset(pairs) if len(set(pairs)) == count else None

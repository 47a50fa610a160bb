"""Reference game: one says which of three grids is meant, the other one finds it among them; from clembench."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.dialogue_game import LONGEST, DialogueGame, are_strict, one_line, tagged
from dfc.games.dialogue.grid_copies import COPYING, copied
from dfc.games.dialogue.grids import EMPTY, SIZE, Grid, agreeing, draw_of, text_of
from dfc.games.game import Common, Outcome
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng
from dfc.games.task import DistinctTasks, distinct_tasks

GIVER, FOLLOWER = 0, 1
EXPERIMENTS = ("rows", "columns", "diagonals", "letters", "shapes")
NAMES = ("first", "second", "third")
_NUMBERED = dict(zip("123", NAMES, strict=True))
_EXPRESSION = re.compile(r"expression:\s*(\S.*)", re.IGNORECASE | re.ASCII)  # these two are clembench's patterns
_ANSWER = re.compile(rf"answer:\s*({'|'.join((*NAMES, *_NUMBERED))}).*", re.IGNORECASE | re.ASCII)
_SIZES = {"train": 256, "validation": 60, "test": 90}
_CANDIDATES = 8  # grids of which the two most like the target stand beside it


@dataclasses.dataclass(frozen=True)
class Triple:
    """A task.

    Attributes:
      grids: the target, then two others of its kind and split, as the giver sees them.
      order: which of them the follower sees first, second and third.
    """

    grids: tuple[Grid, ...]
    order: tuple[int, ...]


@functools.cache
def triples() -> DistinctTasks[Triple]:
    """Returns the tasks of all splits; the experiments take turns, and no two tasks have the same target."""
    orders = tuple(itertools.permutations(range(len(NAMES))))

    def sample(rng: GameRng, split: str, number: int) -> tuple[Triple, Hashable]:
        kind = EXPERIMENTS[number % len(EXPERIMENTS)]
        target = draw_of(split, kind, rng)
        others = {grid: None for _ in range(_CANDIDATES) if (grid := draw_of(split, kind, rng)) != target}
        nearest = sorted(others, key=lambda grid: -agreeing(target, grid))[: len(NAMES) - 1]
        triple = Triple((target, *nearest), orders[rng.randrange(len(orders))])
        return triple, target if len(nearest) == len(NAMES) - 1 else None

    return distinct_tasks("ReferenceGame", _SIZES, sample)


@functools.cache
def _expressions() -> tuple[str, ...]:
    numbers = range(1, SIZE + 1)
    lines = [f"{kind} {number}" for kind in ("row", "column") for number in numbers]
    cells = [f"row {row}, column {column}" for row in numbers for column in numbers]
    return tuple(f"Expression: X in {place}" for place in (*lines, *cells))


_ANSWERS = tuple(f"Answer: {name}" for name in NAMES)


class ReferenceGame(DialogueGame):
    """Reference game.

    Rules: seat 0, the giver, is shown three grids of 5 rows and 5 columns, of which the first is the target; seat 1,
    the follower, is shown the same three in an order of its own, and does not know which one is meant. The giver
    describes the target once, and the follower answers once. The right answer wins for both, ``quality`` 100; a wrong
    one loses, 0, and so does an expression that holds two rows or columns of the target cell by cell
    (`dfc.games.dialogue.grid_copies`), unless `rules` are those of the source. A reply without its tag, of more than
    one line, or an answer that does not begin with one of the three breaks the game off.

    Action: ``Expression: X in row 1`` of the giver, ``Answer: second`` of the follower; the tag in any case, and behind
    it blanks and line breaks, or none. The answer is what follows the tag, ``first``, ``second``, ``third``, ``1``,
    ``2`` or ``3``, in any case; the rest of its line does not count, whatever it says: ``first grid.``, ``2nd``, and
    ``first or second``, which is the first. `legal_actions` is a selection for the giver, rows, columns and single
    cells of any grid; the three answers for the follower.

    Differs from clembench:
      - Grids of our own generators: 256, 60 and 90 targets in three splits, which share no grid at all; `experiment`
        is their kind: rows, columns, diagonals, letters, shapes. In English only; there 11 languages.
      - A grid that is copied into the expression loses, with grids of our own: what is trained shall pay for
        describing. With a file of `instances` it does not, as there; ``rules="strict"`` or ``"source"`` says otherwise
        for either.
      - An answer with further lines breaks the game off; there it is neither taken nor broken off, and the giver is
        asked once more.
      - Thoughts before ``</think>`` are removed; only the first 2,000 characters are read.

    Attributes:
      grids: of the task, the target first; only seat 0 may know which that is.
      order: which of them seat 1 sees first, second and third.
      expression: what the giver said, without its tag; empty before.
      answer: what the follower said: ``first``, ``second``, ``third``, or empty before.
    """

    player_roles: ClassVar[tuple[str, ...]] = ("giver", "follower")
    tags: ClassVar[tuple[str, ...]] = ("Expression:", "Answer:")
    grammar: ClassVar[str] = "Expression: ... or Answer: first, second or third"
    splits: ClassVar[Mapping[str, int]] = _SIZES

    def __init__(self, *, split: str = "train", instances: str = "", rules: str = "", **common: Unpack[Common]) -> None:
        """Makes a game.

        `instances` is a file of clembench's instances of this game; empty for ours. `rules` are ``strict``: a copied
        grid loses; ``source``: as in clembench; empty: ``source`` with a file of `instances`, ``strict`` without.

        Raises:
          ValueError: a value is out of range, or the file is none of this game.
        """
        self._strict = are_strict(rules, instances)
        super().__init__(split=split, rounds=1, instances=instances, **common)
        self.grids: tuple[Grid, ...] = ()
        self.order: tuple[int, ...] = ()
        self.expression = ""
        self.answer = ""

    def _experiment(self) -> str:
        """Returns of what kind the grids are."""
        return EXPERIMENTS[self.task % len(EXPERIMENTS)]

    @property
    def seen(self) -> tuple[Grid, ...]:
        """The grids as the follower sees them."""
        return tuple(self.grids[number] for number in self.order)

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        triple = triples().of(self.split, self.task) if found is None else Triple(**found.fields)
        self.grids, self.order = triple.grids, triple.order
        self.expression = self.answer = ""

    def _rules(self, seat: int) -> str:
        size = f"{SIZE} rows and {SIZE} columns, in which each cell holds an X or is empty ({EMPTY})"
        if seat == GIVER:
            names = ("The target grid", "Another grid", "Another grid")
            grids = "\n".join(f"{name}:\n{text_of(grid)}" for name, grid in zip(names, self.grids, strict=True))
            return (
                f"You see three grids of {size}. Your partner sees the same three in another order and has to find the "
                "target grid by what you say of it; you speak once only, and the order in which you see them tells "
                "your partner nothing.\n"
                f"{grids}\n"
                "Begin your reply with Expression: and describe the target grid in one line behind it, so that it fits "
                f"none of the others.{COPYING if self._strict else ''} For example\n"
                "Expression: only the lower half is filled, and its corners are empty"
            )
        grids = "\n".join(f"The {name} grid:\n{text_of(grid)}" for name, grid in zip(NAMES, self.seen, strict=True))
        return (
            f"You see three grids of {size}. Your partner describes one of them, once, and you have to find out which "
            "one is meant.\n"
            f"{grids}\n"
            "Reply with Answer: and one of the words first, second or third behind it, and nothing else, for example\n"
            "Answer: second"
        )

    # ---- replies ----------------------------------------------------------------------------------------------------

    def extract(self, reply: str) -> str | None:
        """Returns all that is said aloud, or None if that is nothing."""
        return (spoken(reply) or "")[:LONGEST].strip() or None

    def _read(self, action: str) -> str | None:
        answers = self.to_move == FOLLOWER
        found = (_ANSWER if answers else _EXPRESSION).fullmatch(action)
        if found is None:
            return None
        said = found[1].lower() if answers else one_line(found[1])
        return tagged(self.tags[self.to_move or 0], _NUMBERED.get(said, said))

    def _objection(self, action: str) -> str | None:
        del action  # a wrong answer is played, and loses
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        if self._mover() == GIVER:
            self.expression = self._said(action)
            if self._strict and copied(self.expression, self.grids[0]):
                return self._lost(GIVER, "The grid was copied.")
            self._tell(FOLLOWER, action)
            return FOLLOWER
        self.answer = self._said(action)
        return self._team(Outcome.WIN if self._quality() else Outcome.LOSS)

    def legal_actions(self) -> list[str]:
        """Returns some expressions, the same in every game, or the three answers; any other words describe as well."""
        if self.to_move is None:
            return []
        return list(_ANSWERS if self.to_move == FOLLOWER else _expressions())

    def _quality(self) -> float:
        return 100.0 if self.answer and self.order[NAMES.index(self.answer)] == 0 else 0.0

    def _position(self) -> dict[str, Any]:
        return {
            "grids": [list(grid) for grid in self.grids],
            "order": list(self.order),
            "expression": self.expression,
            "answer": self.answer,
        }

    def _set_position(self, position: dict[str, Any]) -> None:
        self.grids, self.order = tuple(map(tuple, position["grids"])), tuple(position["order"])
        self.expression, self.answer = position["expression"], position["answer"]

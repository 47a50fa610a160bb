"""Image game: one says a grid of letters command by command, the other one draws it; from clembench."""

import functools
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.dialogue_game import LONGEST, DialogueGame, are_strict, one_line, tagged
from dfc.games.dialogue.grid_copies import COPYING, copied
from dfc.games.dialogue.grids import BLANK, CELLS, EMPTY, Grid, draw_of, f1, read_grid, text_of, with_cells
from dfc.games.game import Common, Outcome
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng
from dfc.games.task import DistinctTasks, distinct_tasks

GIVER, FOLLOWER = 0, 1
EXPERIMENTS = ("compact", "random")
DONE = "Command: DONE"
_SIZES = {"train": 80, "validation": 60, "test": 59}
_COMMAND = re.compile(r"command: (.*\S.*)", re.IGNORECASE | re.ASCII)  # a line; clembench's pattern
_DONE = re.compile(r"command\s*:\s*done", re.IGNORECASE | re.ASCII)  # as there: nothing may follow
_WON = 99.0  # of 100, from which on a drawing has succeeded


@functools.cache
def targets() -> DistinctTasks[Grid]:
    """Returns the grids of all splits by task number; the experiments take turns."""

    def sample(rng: GameRng, split: str, number: int) -> tuple[Grid, Grid]:
        grid = draw_of(split, EXPERIMENTS[number % len(EXPERIMENTS)], rng)
        return grid, grid

    return distinct_tasks("ImageGame", _SIZES, sample)


@functools.lru_cache(maxsize=4096)
def _listed_commands(target: Grid) -> tuple[str, ...]:
    letters = sorted({*"".join(target)} - {EMPTY}) or ["X"]
    cells = (f"row {row + 1}, column {column + 1}" for row, column in CELLS)
    return (DONE, *(f"Command: Put {letter} in {cell}" for cell in cells for letter in letters))


def _listed_grids(drawn: Grid, letter: str) -> list[str]:
    text = text_of(drawn)  # cells stand at the even places
    places = range(0, len(text), 2)
    return [text, *(text[:i] + (EMPTY if text[i] == letter else letter) + text[i + 1 :] for i in places)]


class ImageGame(DialogueGame):
    """Image game.

    Rules: seat 0, the giver, is shown a grid of 5 rows and 5 columns, of capital letters and empty cells; seat 1, the
    follower, knows its size only. In each of at most `rounds` rounds the giver sends a command and the follower answers
    with the whole grid as it then is. The giver sees no grid of the follower's. The command DONE ends the game, and so
    does the follower's grid of the last round. ``quality`` is 100 times the F1 score of the cells with a letter in the
    follower's last grid (`dfc.games.dialogue.grids.f1`); 0 where that grid has another size or was never drawn. Both
    win from 99 on, and lose below. Both lose, ``quality`` 0, when a command holds two rows or columns of the target
    cell by cell (`dfc.games.dialogue.grid_copies`), unless `rules` are those of the source. A command without its tag,
    or an answer that is no grid, breaks the game off.

    Action: ``Command: Put A in row 1`` of the giver on one line, the tag in any case and a blank behind it; with a
    second line or without the blank it breaks the game off, as there. ``Command: DONE`` in any case, with or without
    blanks around the colon, ends; with a full stop or words behind it on its line it is a command like any other, as
    there. Of the follower rows of cells, a row a line, blanks between the cells: capital letters, and ``▢`` for an
    empty one (``□``, ``.`` and ``_`` as well). `legal_actions` is a selection: a letter of the target in any cell,
    and DONE, for the giver; for the follower its last grid, and those that differ from it in one cell.

    Differs from clembench:
      - Its `outcome` is a success for any DONE, and its default reward 1; here both are by the quality, as its scorer
        has them.
      - Quality is not rounded; there to whole numbers.
      - DONE as the first command ends the game with quality 0; there the environment raises an error.
      - Grids of another size, with ``□``, ``.`` or ``_``, several blanks or blank lines are read; there they break the
        game off.
      - A grid that is copied into a command loses, with grids of our own: what is trained shall pay for describing.
        With a file of `instances` it does not, as there; ``rules="strict"`` or ``"source"`` says otherwise for either.
      - 80, 60 and 59 grids of our own generators in three disjoint splits (`experiment`: compact, random).
      - Thoughts before ``</think>`` are removed; only the first 2,000 characters are read.

    Attributes:
      target: of the task; only seat 0 may know it.
      commands: so far, without their tags and without DONE.
      drawn: the follower's last grid, or None before the first one.
    """

    player_roles: ClassVar[tuple[str, ...]] = ("giver", "follower")
    tags: ClassVar[tuple[str, ...]] = ("Command:", "")
    grammar: ClassVar[str] = "Command: ... or a grid"
    splits: ClassVar[Mapping[str, int]] = _SIZES

    def __init__(
        self,
        *,
        split: str = "train",
        rounds: int = 50,
        instances: str = "",
        rules: str = "",
        **common: Unpack[Common],
    ) -> None:
        """Makes a game.

        `instances` is a file of clembench's instances of this game; empty for ours. `rules` are ``strict``: a copied
        grid loses; ``source``: as in clembench; empty: ``source`` with a file of `instances`, ``strict`` without.

        Raises:
          ValueError: a value is out of range, or the file is none of this game.
        """
        self._strict = are_strict(rules, instances)
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        self.target: Grid = ()
        self.commands: list[str] = []
        self.drawn: Grid | None = None

    def _experiment(self) -> str:
        """Returns of what kind the target is: ``compact``, some strokes, or ``random``, single cells."""
        return EXPERIMENTS[self.task % len(EXPERIMENTS)]

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        self.target = targets().of(self.split, self.task) if found is None else found.fields["target"]
        self.commands, self.drawn = [], None

    def _rules(self, seat: int) -> str:
        size = f"{len(self.target)} rows and {len(self.target[0])} columns"
        if seat == GIVER:
            return (
                f"You know a grid of {size} that your partner has to draw without seeing it. Each cell holds a capital "
                f"letter or is empty ({EMPTY}). This is your grid:\n"
                f"{text_of(self.target)}\n"
                "Say it command by command. Your partner begins with an empty grid and draws what each command says; "
                "you do not see the drawing. The more letters stand in their right cells at the end, and none in "
                f"others, the better for you both. There are at most {self.rounds} commands, and one may fill many "
                f"cells.{COPYING if self._strict else ''}\n"
                "Always begin your reply with Command: and write one command in one line behind it, for example\n"
                "Command: Put W in all cells of column 2\n"
                "When all is said, reply with\n"
                f"{DONE}"
            )
        return (
            f"You draw a grid of {size} that only your partner knows. At the start all cells are empty:\n"
            f"{text_of(BLANK)}\n"
            "Your partner sends commands. Answer each of them with the whole grid as it is after the command, and with "
            "nothing else: a line for every row, a blank between cells, a capital letter or "
            f"{EMPTY} in each cell. For example, after the command to put W in all cells of column 2:\n"
            f"{text_of(with_cells(BLANK, [(row, 1) for row in range(5)], 'W'))}"
        )

    # ---- replies ----------------------------------------------------------------------------------------------------

    def extract(self, reply: str) -> str | None:
        """Returns all that is said aloud, or None if that is nothing."""
        return (spoken(reply) or "")[:LONGEST].strip() or None

    def _form(self) -> str:
        return "of a grid, a line for each row" if self.to_move == FOLLOWER else super()._form()

    def _read(self, action: str) -> str | None:
        if self.to_move == FOLLOWER:
            grid = read_grid(action)
            return None if grid is None else text_of(grid)
        if _DONE.fullmatch(action):
            return DONE
        found = _COMMAND.fullmatch(action)
        return None if found is None else tagged(self.tags[GIVER], one_line(found[1]))

    def _objection(self, action: str) -> str | None:
        del action
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        if self._mover() == GIVER:
            if action == DONE:
                return self._ended()
            self.commands.append(self._said(action))
            if self._strict and copied(self.commands[-1], self.target):
                self.drawn = None  # what was drawn before is worth nothing either
                return self._lost(GIVER, "The grid was copied.")
            self._tell(FOLLOWER, action)
            return FOLLOWER
        self.drawn = read_grid(action)
        if not self._next_round():
            return self._ended()
        self._tell(GIVER, "What is your next command?")
        return GIVER

    def _ended(self) -> tuple[Outcome, ...]:
        return self._team(Outcome.WIN if self._quality() >= _WON else Outcome.LOSS)

    def legal_actions(self) -> list[str]:
        """Returns commands for single cells and DONE, or grids that differ in one cell; others count as well."""
        if self.to_move is None:
            return []
        if self.to_move == GIVER:
            return list(_listed_commands(self.target))
        known = self.drawn if self.drawn and [len(row) for row in self.drawn] == [5] * 5 else BLANK
        letters = [word for word in self.commands[-1].split() if len(word) == 1 and "A" <= word <= "Z"]
        return _listed_grids(known, letters[0] if letters else "X")

    def _quality(self) -> float:
        return 100.0 * f1(self.target, self.drawn or ())

    def _position(self) -> dict[str, Any]:
        drawn = None if self.drawn is None else list(self.drawn)
        return {"target": list(self.target), "commands": list(self.commands), "drawn": drawn}

    def _set_position(self, position: dict[str, Any]) -> None:
        self.target = tuple(position["target"])
        self.commands = list(position["commands"])
        self.drawn = None if position["drawn"] is None else tuple(position["drawn"])

"""MatchIt in ASCII: two see a grid each and find out by questions whether it is the same one; from clembench."""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.dialogue_game import DialogueGame
from dfc.games.dialogue.grids import GENERATORS, SIZE, Grid, agreeing, changed, draw_of, text_of
from dfc.games.game import UNREADABLE, Common, Outcome
from dfc.games.rng import GameRng
from dfc.games.task import DistinctTasks, count_of, distinct_tasks

DESCRIPTION, QUESTION, ANSWER, DECISION = "DESCRIPTION:", "QUESTION:", "ANSWER:", "DECISION:"
SAME, DIFFERENT = "same grid", "different grids"
_DECISIONS = tuple(f"{DECISION} {words}".lower() for words in (SAME, DIFFERENT))
_CYCLE = ("same_grid", "similar_grid_1", "same_grid", "similar_grid_2", "same_grid", "different_grid")
_CHANGES = {"similar_grid_1": 1, "similar_grid_2": 2}  # cells in which the grids differ
_APART = 10  # cells, at least, in which grids of the experiment different_grid differ
_SIZES = {"train": 40, "validation": 40, "test": 40}
_KINDS = tuple(kind for kind in GENERATORS if kind not in ("compact", "random"))


@functools.cache
def pairs() -> DistinctTasks[tuple[Grid, Grid]]:
    """Returns the pairs of grids of all splits by task number; no two tasks have the same first grid."""

    def sample(rng: GameRng, split: str, number: int) -> tuple[tuple[Grid, Grid], Grid | None]:
        first = draw_of(split, _KINDS[rng.randrange(len(_KINDS))], rng)
        experiment = _CYCLE[number % len(_CYCLE)]
        second: Grid | None = first
        if experiment in _CHANGES:
            second = changed(first, _CHANGES[experiment], split, rng)
        elif experiment == "different_grid":
            second = draw_of(split, _KINDS[rng.randrange(len(_KINDS))], rng)
            second = second if SIZE * SIZE - agreeing(first, second) >= _APART else None
        return (first, second or first), first if second else None

    return distinct_tasks("MatchIt", _SIZES, sample)


@functools.cache
def _listed() -> dict[str, list[str]]:
    numbers = range(1, SIZE + 1)
    lines = [f"{kind} {number}" for kind in ("row", "column") for number in numbers]
    return {
        DESCRIPTION: [f"{DESCRIPTION} X in {line}" for line in lines],
        QUESTION: [f"{QUESTION} Where is an X in {line}?" for line in lines],
        ANSWER: [f"{ANSWER} {answer}" for answer in ("yes", "no", *(f"X in {line}" for line in lines))],
        DECISION: [f"{DECISION} {SAME}", f"{DECISION} {DIFFERENT}"],
    }


class MatchIt(DialogueGame):
    """MatchIt (ASCII).

    Rules: each of two players is shown a grid of 5 rows and 5 columns. Both describe theirs, the second one before it
    reads the other's description. Then, in each of `rounds` rounds, the second asks, the first answers and asks, and
    the second answers. At last the second decides whether both grids are the same, then the first, who does not hear
    the other's decision. Both win, ``quality`` 100, if both are right, and lose, 0, otherwise. A reply without its tag,
    or a decision in other words, loses for both at once (`lost_by`): the game counts as played, as by clembench's
    scorer, although its game master calls it aborted.

    Action: ``DESCRIPTION: ...``, ``QUESTION: ...``, ``ANSWER: ...``, tags in capitals with a blank behind them, or
    nothing, and ``DECISION: same grid`` or ``DECISION: different grids``, the words in any case, with or without full
    stops. `legal_actions` is a selection of lines of the grid, the same in every game, and both decisions.

    Differs from clembench:
      - Grids of our own generators, 40 pairs in each of three splits that share no grid. Half of the pairs are the same
        grid; there a quarter, so that always to decide for different ones was worth 75. `experiment`: same_grid;
        similar_grid_1 and similar_grid_2, one and two cells changed; different_grid, ten cells or more.
      - Players are told how many questions there are; there they are not.
      - A reply that says nothing breaks the game off, as in every game here; there it loses like one without its tag.
        So `malformed_allowance` is for such replies only.
      - Thoughts before ``</think>`` are removed; line breaks and several blanks become one blank; only the first 2,000
        characters are read.

    For evaluation only.

    Attributes:
      grids: one of each seat; it alone may know it.
      said: all replies so far, (seat, tag, words).
    """

    evaluation_only: ClassVar[bool] = True
    player_roles: ClassVar[tuple[str, ...]] = ("first", "second")
    tags: ClassVar[tuple[str, ...]] = (DESCRIPTION, DESCRIPTION)
    grammar: ClassVar[str] = "DESCRIPTION: ..., QUESTION: ..., ANSWER: ... or DECISION: same grid"
    splits: ClassVar[Mapping[str, int]] = _SIZES

    def __init__(self, *, split: str = "train", rounds: int = 3, instances: str = "", **common: Unpack[Common]) -> None:
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        round_ = ((1, QUESTION), (0, ANSWER), (0, QUESTION), (1, ANSWER))
        self._turns = ((0, DESCRIPTION), (1, DESCRIPTION), *round_ * rounds, (1, DECISION), (0, DECISION))
        self.max_turns = len(self._turns)
        self.grids: tuple[Grid, Grid] = ((), ())
        self.said: list[tuple[int, str, str]] = []

    def _experiment(self) -> str:
        """Returns how the two grids differ."""
        return _CYCLE[self.task % len(_CYCLE)]

    def tag(self, seat: int) -> str:
        """Returns what a reply of the seat to move must begin with; of another seat, its last one."""
        del seat
        return self._turns[min(len(self.said), len(self._turns) - 1)][1]

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        self.grids = pairs().of(self.split, self.task) if found is None else found.fields["grids"]
        self.said = []

    def _rules(self, seat: int) -> str:
        return (
            f"You and your partner see a grid of {SIZE} rows and {SIZE} columns each. The two grids are the same, or "
            "they differ in some cells. Find out together which it is, without showing them: you both describe your "
            f"grid, then you ask each other {count_of(self.rounds, 'question')} each, and at the end each of you "
            "decides. Only if both decisions are right you have both won.\n"
            "This is your grid:\n"
            f"{text_of(self.grids[seat])}\n"
            f"Begin your reply with {DESCRIPTION} and describe your grid behind it, for example\n"
            f"{DESCRIPTION} the upper half is filled, the lower one empty but for a cell in the last column"
        )

    def _read(self, action: str) -> str | None:
        """Returns the reply itself where it has not the form: it is played, and loses."""
        if not self._has_form(action) or self.tag(0) != DECISION:
            return action
        return f"{DECISION} {action.removeprefix(DECISION).lower().rstrip('.').strip()}"

    def _has_form(self, line: str) -> bool:
        """Returns whether a reply on one line has the form that its phase asks for."""
        tag = self.tag(0)
        if tag != DECISION:
            return line.partition(" ")[0] == tag
        return line.startswith(DECISION) and line.lower().rstrip(".") in _DECISIONS

    def is_action(self, said: str) -> bool:
        """Returns whether a reply has the form that its phase asks for: one without it can be played as well."""
        line = self.extract(said)
        return line is not None and self._has_form(line)

    def _form(self) -> str:
        return f"{DECISION} {SAME} or {DECISION} {DIFFERENT}" if self.tag(0) == DECISION else super()._form()

    def _objection(self, action: str) -> str | None:
        del action
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat, tag = self._turns[len(self.said)]
        if not self._has_form(action):
            return self._lost(seat, f"{UNREADABLE} Reply in the form {self._form()}.")
        words = self._said(action)
        self.said.append((seat, tag, words))
        if tag in (QUESTION, ANSWER):
            self._tell(1 - seat, action)
        if len(self.said) == len(self._turns):
            return self._team(Outcome.WIN if self._quality() else Outcome.LOSS)
        mover, wanted = self._turns[len(self.said)]
        if tag == DESCRIPTION and seat == 1:
            for each in (0, 1):
                self._tell(1 - each, f"Your partner's description: {self.said[each][2]}")
        if wanted == QUESTION and len(self.said) > 2 and seat == 1:
            self._next_round()
        self._ask(mover, wanted)
        return mover

    def _ask(self, seat: int, tag: str) -> None:
        """Tells a seat what to reply now; a description is asked for in the rules."""
        if tag == QUESTION:
            self._tell(seat, f"Ask a question about your partner's grid. Begin your reply with {QUESTION}")
        elif tag == ANSWER:
            self._tell(seat, f"Answer the question. Begin your reply with {ANSWER}")
        elif tag == DECISION:
            self._tell(
                seat, f"Decide now. Reply with {DECISION} {SAME} or with {DECISION} {DIFFERENT}, and with nothing else."
            )

    def legal_actions(self) -> list[str]:
        """Returns some replies for the phase, the same in every game; others count as well, but for decisions."""
        return [] if self.to_move is None else list(_listed()[self.tag(self.to_move)])

    def heard(self, seat: int, tag: str) -> list[str]:
        """Returns what a seat has said behind a tag so far."""
        return [words for by, said_tag, words in self.said if (by, said_tag) == (seat, tag)]

    def _quality(self) -> float:
        right = SAME if self.grids[0] == self.grids[1] else DIFFERENT
        return 100.0 if [words for _, tag, words in self.said if tag == DECISION] == [right, right] else 0.0

    def _position(self) -> dict[str, Any]:
        return {"grids": [list(grid) for grid in self.grids], "said": [list(entry) for entry in self.said]}

    def _set_position(self, position: dict[str, Any]) -> None:
        first, second = position["grids"]
        self.grids = (tuple(first), tuple(second))
        self.said = [(seat, tag, words) for seat, tag, words in position["said"]]

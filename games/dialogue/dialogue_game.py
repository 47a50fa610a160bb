"""What dialogue games share: a team, rounds, replies of one line behind a tag, a quality from 0 to 100.

Source: Playpen (arXiv 2504.08590) and clembench, whose game masters these games follow in their rules; what each
departs from stands in its own file. Prompts and word lists are ours.
"""

import abc
import dataclasses
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue import original
from dfc.games.game import Common, GameInfo, Outcome
from dfc.games.parsing import spoken
from dfc.games.task import Task

LONGEST = 2_000  # characters of a reply that are read
_RULES = ("", "strict", "source")
NOT_THERE = "is not among"  # stands in every objection and reason to a reply that names what the game does not have


def one_line(said: str) -> str:
    r"""Returns the first `LONGEST` characters of a text on one line, with single blanks.

    >>> one_line(" CLUE:  something\nwet ")
    'CLUE: something wet'
    """
    return " ".join(said[:LONGEST].split())


def after_tag(line: str, tag: str) -> str | None:
    """Returns what stands behind a tag with which a line begins, letter case included; None without it, or if empty.

    >>> after_tag("CLUE: something wet", "CLUE:"), after_tag("Clue: wet", "CLUE:"), after_tag("CLUE:", "CLUE:")
    ('something wet', None, None)
    """
    return line.removeprefix(tag).strip() or None if line.startswith(tag) else None


def tagged(tag: str, said: str) -> str:
    """Returns a canonical action: a tag and what stands behind it, no longer than what is read of a reply.

    >>> tagged("CLUE:", "something wet")
    'CLUE: something wet'
    """
    return f"{tag} {said}".strip()[:LONGEST].rstrip()


def are_strict(rules: str, instances: str) -> bool:
    """Returns whether the rules that this package adds to those of the source hold in a game.

    Empty `rules` are ``source`` with a file of original `instances` and ``strict`` without, that is for our own.

    Raises:
      ValueError: `rules` is none of these.
    """
    if rules not in _RULES:
        raise ValueError(f"rules must be one of {', '.join(map(repr, _RULES))}, got {rules[:80]!r}")
    return rules == "strict" or (not rules and not instances)


class DialogueGame(Task):
    """A task for a team whose replies are one line each, behind the tag of the seat's role.

    A reply without its tag cannot be read: with the allowances of the source, 0, that breaks the game off for both
    (`Outcome.INVALID`, `forfeited_by`, `abort_reason`). What is readable and against the rules is up to a subclass: an
    `_objection`, a loss that `_play` returns, or an abort (`_abort`).

    A file of instances (`instances`) takes the place of this package's own ones: they are the tasks of `split`,
    whichever that is, in the file's order.

    ``split="fresh"`` deals every seed a task of its own (`dfc.games.task.FRESH`), for players that shall know the rules
    and words of a game and none of its tasks.

    A subclass sets `tags` and `player_roles`, and implements `_set_up`, `_rules`, `_play`, `legal_actions`, `_quality`,
    `_position` and `_set_position`; `_from_file` gives it the task's instance of the file. `_play` counts rounds with
    `_next_round`. For a single player it sets `seats = 1` and `team = False`; where a role replies otherwise in another
    phase it overrides `tag`, or `extract` and `_read`.

    Attributes:
      rounds: how many there are; `max_turns` is as many times `turns_per_round`.
      round: of the present turn, from 1.
    """

    seats: ClassVar[int] = 2
    team: ClassVar[bool] = True
    open_actions: ClassVar[bool] = True
    has_quality: ClassVar[bool] = True
    has_fresh: ClassVar[bool] = True
    free_layout: ClassVar[bool] = True
    default_allowances: ClassVar[tuple[int, int]] = (0, 0)
    # What a reply of each seat begins with, e.g. ("CLUE:", "GUESS:").
    tags: ClassVar[tuple[str, ...]]
    # Replies that a round has.
    turns_per_round: ClassVar[int] = 2

    def __init__(self, *, split: str, rounds: int, instances: str = "", **common: Unpack[Common]) -> None:
        """Makes a game.

        `instances` is a file of clembench's instances of this game (see `dfc.games.dialogue.original`); empty for ours.

        Raises:
          ValueError: a value is out of range, or the file is none of this game.
        """
        if rounds < 1:
            raise ValueError(f"rounds must be 1 or more, got {rounds}")
        self._loaded = original.load(instances, original.group_of(type(self))) if instances else ()
        other = next((each for each in self._loaded if each.rounds not in (None, rounds)), None)
        if other is not None:
            raise ValueError(
                f"{instances!r}: experiment {other.experiment!r} has {other.rounds} rounds, and the game {rounds}; set "
                f"rounds={other.rounds}"
            )
        super().__init__(split=split, max_turns=rounds * self.turns_per_round, **common)
        self.rounds = rounds
        self.round = 1

    @property
    def info(self) -> GameInfo:
        """What is known before the start; `splits` is the size of the file where one was loaded."""
        found = super().info
        return dataclasses.replace(found, splits={self.split: len(self._loaded)}) if self._loaded else found

    @property
    def number_of_tasks(self) -> int:
        """How many tasks the split, or the file, has."""
        return len(self._loaded) or super().number_of_tasks

    @property
    def experiment(self) -> str:
        """The group of the task within its split; of a task from a file the name of its experiment there."""
        if self.task < 0:
            return ""
        found = self._from_file()
        return self._experiment() if found is None else found.experiment

    def _experiment(self) -> str:
        """Returns the group of a task of our own, such as how rare its word is; empty where tasks have no groups."""
        return ""

    @abc.abstractmethod
    def _quality(self) -> float:
        """Returns how good the game was that has ended in a win or a loss, from 0 to 100."""

    def _from_file(self) -> original.Instance | None:
        """Returns the present task of the file (the first one before a start), or None where there is no file."""
        return self._loaded[max(0, self.task)] if self._loaded else None

    def tag(self, seat: int) -> str:
        """Returns what a reply of a seat must begin with now."""
        return self.tags[seat]

    def measures(self) -> dict[str, float]:
        """Returns the rounds begun, and the quality of a game that came to its end."""
        ended = self.outcomes is not None and self.outcomes[0] in (Outcome.WIN, Outcome.LOSS)
        return {"rounds": float(self.round), **({"quality": float(self._quality())} if ended else {})}

    def extract(self, reply: str) -> str | None:
        """Returns all that is said aloud, on one line, or None if that is nothing."""
        return one_line(spoken(reply) or "") or None

    def is_action(self, said: str) -> bool:
        """Returns whether anything can be read: words are free behind the tag."""
        line = self.extract(said)
        return line is not None and self._read(line) is not None

    def _next_round(self) -> bool:
        """Begins the next round; returns False where there is none."""
        if self.round == self.rounds:
            return False
        self.round += 1
        return True

    # ---- the protocol ---------------------------------------------------------------------------------------------

    def _begin(self) -> int:
        self.round = 1
        return super()._begin()

    def _form(self) -> str:
        return self.grammar if self.to_move is None else f"{self.tag(self.to_move)} ..."

    def _read(self, action: str) -> str | None:
        tag = "" if self.to_move is None else self.tag(self.to_move)
        said = after_tag(action, tag)
        return None if said is None else tagged(tag, said)

    def _said(self, action: str) -> str:
        """Returns what a canonical action of the seat to move says behind its tag."""
        return action.removeprefix(self.tag(self._mover())).strip()

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "round": self.round}

    def _restore(self, state: dict[str, Any]) -> None:
        self.round = state["round"]
        super()._restore(state)

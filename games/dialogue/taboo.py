"""Taboo: one describes a word without naming it or its neighbours, the other one guesses; from clembench."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.dialogue_game import DialogueGame, are_strict
from dfc.games.dialogue.disguises import disguises
from dfc.games.dialogue.words import bare, stem, stems
from dfc.games.game import Common, Outcome
from dfc.games.rng import GameRng, derive_seed
from dfc.games.task import FRESH, dealt

DESCRIBER, GUESSER = 0, 1
EXPERIMENTS = ("high", "medium", "low")
_SIZES = {"train": 30, "validation": 20, "test": 20}  # of each experiment
_FILE = pathlib.Path(__file__).parent / "data" / "taboo.json"
_OTHERS = 9  # words whose hints the describer's selection of clues holds beside its own


@dataclasses.dataclass(frozen=True)
class Entry:
    """A word of the table.

    Attributes:
      target: the word to be guessed.
      taboo: three words that the describer must not use either.
      hints: three words that point at it and may be used; the rules do not know them, clues that are listed do.
      experiment: how common the word is: ``high``, ``medium`` or ``low``.
    """

    target: str
    taboo: tuple[str, ...]
    hints: tuple[str, ...]
    experiment: str


@functools.cache
def table() -> tuple[Entry, ...]:
    """Returns all words, the common ones first."""
    found = json.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        Entry(target, tuple(words["taboo"]), tuple(words["hints"]), experiment)
        for experiment in EXPERIMENTS
        for target, words in found[experiment].items()
    )


@functools.cache
def entries(split: str) -> tuple[Entry, ...]:
    """Returns the words of a split by task number; the experiments take turns."""
    named = {entry.target: entry for entry in table()}
    lists = [
        dealt("Taboo", (e.target for e in table() if e.experiment == experiment), _SIZES, split)
        for experiment in EXPERIMENTS
    ]
    return tuple(named[target] for targets in zip(*lists, strict=True) for target in targets)


def _fresh_entry(number: int) -> Entry:
    """Returns a word of any split with three other taboo words, drawn from the six that the table has beside it.

    A guess needs words, and there is one table of them: fresh are the words that must not be used, not the target.
    """
    experiment = EXPERIMENTS[number % len(EXPERIMENTS)]
    rng = GameRng(derive_seed("fresh task", "Taboo", number))
    known = [entry for entry in table() if entry.experiment == experiment]
    entry = known[rng.randrange(len(known))]
    while True:
        beside = [*entry.taboo, *entry.hints]
        taboo = tuple(beside.pop(rng.randrange(len(beside))) for _ in entry.taboo)
        if set(taboo) not in (set(entry.taboo), set(entry.hints)):  # of the hints one at least can still be said
            return Entry(entry.target, taboo, tuple(beside), experiment)


@functools.cache
def forbidden(target: str, taboo: tuple[str, ...]) -> frozenset[str]:
    """Returns the stems that a clue must not hold; of several words, as a file may have, those of each part."""
    return frozenset((*map(stem, (target, *taboo)), *(part for word in (target, *taboo) for part in stems(word))))


@functools.cache
def _clues(target: str, taboo: tuple[str, ...], *, strict: bool) -> tuple[str, ...]:
    """Returns clues of one word: the target's own hints first, then those of words beside it in the table."""
    known = table()
    place = next((number for number, entry in enumerate(known) if entry.target == target), 0)
    hints = (hint for step in range(_OTHERS + 1) for hint in known[(place + step) % len(known)].hints)
    return tuple(f"CLUE: {hint}" for hint in dict.fromkeys(hints) if may_be_said(hint, target, taboo, strict=strict))


def may_be_said(clue: str, target: str, taboo: tuple[str, ...], *, strict: bool) -> bool:
    """Returns whether a clue holds neither the target nor a taboo word: no form of it and, if strict, no disguise."""
    if not forbidden(target, taboo).isdisjoint(stems(clue)):
        return False
    return not (strict and disguises(clue, target, taboo))


@functools.cache
def _guesses() -> tuple[str, ...]:
    return tuple(f"GUESS: {target}" for target in sorted(entry.target for entry in table()))


class Taboo(DialogueGame):
    """Taboo.

    Rules: seat 0, the describer, is shown a target word and three taboo words; seat 1, the guesser, none of them. In
    each of at most `rounds` rounds the describer gives a clue and the guesser guesses once. The guess that is the
    target wins for both, ``quality`` 100 / round. Both lose, ``quality`` 0, after the last wrong guess, and at once
    when a clue holds the target or a taboo word: a word with the same stem (`dfc.games.dialogue.words.stems`), stop
    words and punctuation apart. So it is with a word in disguise, split, backwards or with digits, and with the target
    inside another word (`dfc.games.dialogue.disguises`), unless `rules` are those of the source. A reply without
    its tag breaks the game off.

    Action: ``CLUE: something you drink`` of the describer, ``GUESS: water`` of the guesser, tags in capitals; all that
    follows the tag is the clue or the guess. A guess is compared in lower case without punctuation. `legal_actions` is
    a selection: clues of one word for the describer, the words of the table for the guesser.

    Differs from clembench:
      - Words of our own table (`experiment`: high, medium, low), in three disjoint splits instead of one list of 60.
      - A correct guess in the last round wins there too; the default environment of clemcore calls it a failure, its
        scorer pays it as here.
      - A tag with nothing behind it breaks the game off; there it is an empty clue.
      - Words in disguise lose as well (``waterlike``, ``w4ter``, ``retaw``), with words of our own: what is trained
        shall pay for describing. With a file of `instances` they do not, as there; ``rules="strict"`` or
        ``"source"`` says otherwise for either.
      - Words are compared folded (`dfc.games.folding.fold`): accents, letters of other scripts that look like Latin
        ones, and invisible characters hide nothing, in a clue or a guess.
      - Words that punctuation joins are compared together and each for itself (there together: ``water/ice`` passes),
        and letters that are spelled one by one are a word (``w a t e r`` passes there).
      - Thoughts before ``</think>`` are removed; line breaks become blanks; only the first 2,000 characters are read.

    Attributes:
      target, taboo: of the task; only seat 0 may know them.
      clues, guesses: so far, without their tags.
    """

    player_roles: ClassVar[tuple[str, ...]] = ("describer", "guesser")
    tags: ClassVar[tuple[str, ...]] = ("CLUE:", "GUESS:")
    grammar: ClassVar[str] = "CLUE: ... or GUESS: ..."
    splits: ClassVar[Mapping[str, int]] = {name: size * len(EXPERIMENTS) for name, size in _SIZES.items()}

    def __init__(
        self,
        *,
        split: str = "train",
        rounds: int = 3,
        instances: str = "",
        rules: str = "",
        **common: Unpack[Common],
    ) -> None:
        """Makes a game.

        `instances` is a file of clembench's instances of this game; empty for ours. `rules` are ``strict``: words in
        disguise lose; ``source``: as in clembench; empty: ``source`` with a file of `instances`, ``strict`` without.

        Raises:
          ValueError: a value is out of range, or the file is none of this game.
        """
        self._strict = are_strict(rules, instances)
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        self.target = ""
        self.taboo: tuple[str, ...] = ()
        self.clues: list[str] = []
        self.guesses: list[str] = []

    def _experiment(self) -> str:
        """Returns how common the target is: ``high``, ``medium`` or ``low``."""
        return EXPERIMENTS[self.task % len(EXPERIMENTS)]

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        if found is None:
            entry = _fresh_entry(self.task) if self.split == FRESH else entries(self.split)[self.task]
            self.target, self.taboo = entry.target, entry.taboo
        else:
            self.target, self.taboo = found.fields["target"], found.fields["taboo"]
        self.clues, self.guesses = [], []

    def _rules(self, seat: int) -> str:
        turns = f"In each of at most {self.rounds} rounds one clue is given and one guess is made"
        if seat == DESCRIBER:
            others = "Other forms of them count as well"
            if self._strict:
                others = "Other forms and spellings of them count as well, words made of the first one too"
            return (
                "You are the describer in a word game; your partner has to guess a word that only you know. "
                f"{turns}; the sooner it is right, the better for you both.\n"
                f"The word: {self.target}\n"
                f"You must not use this word, nor these: {', '.join(self.taboo)}\n"
                f"{others}, and using one loses the game for both of you.\n"
                "Always begin your reply with CLUE: and write the clue behind it, and nothing else, for example\n"
                "CLUE: it keeps you dry when you walk home"
            )
        return (
            "You are the guesser in a word game; your partner describes a word that you have to find. "
            f"{turns}; the sooner it is right, the better for you both.\n"
            "Always begin your reply with GUESS: and write one word behind it, and nothing else, for example\n"
            "GUESS: umbrella"
        )

    def _objection(self, action: str) -> str | None:
        del action  # a clue with a taboo word is played, and loses
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        said = self._said(action)
        if self._mover() == DESCRIBER:
            self.clues.append(said)
            if not may_be_said(said, self.target, self.taboo, strict=self._strict):
                return self._lost(DESCRIBER, "The clue holds the word or a taboo word.")
            self._tell(GUESSER, action)
            return GUESSER
        self.guesses.append(said)
        if bare(said) == bare(self.target):
            return self._team(Outcome.WIN)
        if not self._next_round():
            return self._team(Outcome.LOSS)
        self._tell(DESCRIBER, f"{action}\nThat is not the word. Give another clue.")
        return DESCRIBER

    def may_be_said(self, clue: str) -> bool:
        """Returns whether a clue does not lose; only seat 0 may ask."""
        return may_be_said(clue, self.target, self.taboo, strict=self._strict)

    def legal_actions(self) -> list[str]:
        """Returns clues of one word that are no loss, or the words of the table as guesses; any other words count."""
        if self.to_move is None:
            return []
        return list(_clues(self.target, self.taboo, strict=self._strict) if self.to_move == DESCRIBER else _guesses())

    def _quality(self) -> float:
        return 100.0 / self.round if self.outcomes is not None and self.outcomes[0] is Outcome.WIN else 0.0

    def _position(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "taboo": list(self.taboo),
            "clues": list(self.clues),
            "guesses": list(self.guesses),
        }

    def _set_position(self, position: dict[str, Any]) -> None:
        self.target, self.taboo = position["target"], tuple(position["taboo"])
        self.clues, self.guesses = list(position["clues"]), list(position["guesses"])

"""Codenames: one gives a word for some of the team's words on a board, the other one finds them; from clembench."""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.dialogue_game import LONGEST, NOT_THERE, DialogueGame, are_strict
from dfc.games.dialogue.disguises import is_a_word
from dfc.games.dialogue.words import stem
from dfc.games.folding import fold
from dfc.games.game import Common, Outcome
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng
from dfc.games.task import DistinctTasks, count_of, distinct_tasks

GIVER, GUESSER = 0, 1
OWN, OPPONENT, NEUTRAL, ASSASSIN = "own", "opponent", "neutral", "assassin"
KINDS = (OWN, OPPONENT, NEUTRAL, ASSASSIN)
_SAID = {OWN: "your team's", OPPONENT: "an opponent's", NEUTRAL: "a neutral", ASSASSIN: "the assassin's"}
_SIZES = {"train": 5, "validation": 5, "test": 10}  # of each experiment
_BOARD = 25
_LONGEST_CLUE = 30
_STRIPPED = " .,<>\"'"
_FILE = pathlib.Path(__file__).parent / "data" / "codenames.json"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What one of the 13 experiments varies.

    Attributes:
      words: how many of each of `KINDS`.
      difficulty: words that the opponents reveal after each round.
      pool: which words: ``all``, ``rare``, ``common``, ``ambiguous``, ``unambiguous``, ``abstract`` or ``concrete``.
      mixed: how the words of a group are dealt: None at random, False the team's apart from the others', True a group
        to the team, the opponents and the neutral words alike.
    """

    words: tuple[int, int, int, int] = (9, 8, 7, 1)
    difficulty: int = 1
    pool: str = "all"
    mixed: bool | None = None


EXPERIMENTS: Mapping[str, Experiment] = {
    "risk low": Experiment(words=(9, 8, 8, 0)),
    "risk high": Experiment(words=(9, 8, 3, 5)),
    "assignment easy": Experiment(mixed=False),
    "assignment difficult": Experiment(mixed=True),
    "opponent none": Experiment(difficulty=0),
    "opponent easy": Experiment(),
    "opponent difficult": Experiment(difficulty=2),
    "frequency low": Experiment(pool="rare"),
    "frequency high": Experiment(pool="common"),
    "unambiguous": Experiment(pool="unambiguous"),
    "ambiguous": Experiment(pool="ambiguous"),
    "concrete": Experiment(pool="concrete"),
    "abstract": Experiment(pool="abstract"),
}


@functools.cache
def groups() -> dict[str, tuple[str, ...]]:
    """Returns words that belong together, by a word that says how; the more typical ones first."""
    return {name: tuple(words) for name, words in _table()["groups"].items()}


@functools.cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


@functools.cache
def pool(name: str) -> frozenset[str]:
    """Returns the words that an experiment draws from."""
    every = frozenset(word for words in groups().values() for word in words)
    other = {"common": "rare", "unambiguous": "ambiguous", "concrete": "abstract"}.get(name)
    if other is not None:
        return every - pool(other)
    return every if name == "all" else frozenset(_table()[name])


@functools.cache
def _groups_of(word: str) -> tuple[str, ...]:
    return tuple(name for name, words in groups().items() if word in words)


@functools.cache
def _boards() -> DistinctTasks[tuple[tuple[str, str], ...]]:
    sizes = {split: size * len(EXPERIMENTS) for split, size in _SIZES.items()}
    return distinct_tasks("Codenames", sizes, _board_of)


def _board_of(rng: GameRng, split: str, number: int) -> tuple[tuple[tuple[str, str], ...], frozenset[str]]:
    """Draws a board, words with their kinds in the order shown; boards of the same words are alike."""
    del split
    experiment = list(EXPERIMENTS.values())[number % len(EXPERIMENTS)]
    words: list[str] = []
    for name in _shuffled(list(groups()), rng):
        known = [word for word in groups()[name] if word in pool(experiment.pool) and word not in words]
        words += _shuffled(known, rng)[:3]
    words = words[:_BOARD]
    kinds = [kind for kind, count in zip(KINDS, experiment.words, strict=True) for _ in range(count)]
    if experiment.mixed is None:
        kinds = _shuffled(kinds, rng)
    elif experiment.mixed:  # neighbours in `words` are of one group
        places = sorted(range(_BOARD), key=lambda place: place % 3)
        kinds = [kind for _, kind in sorted(zip(places, kinds, strict=True))]
    return tuple(_shuffled(list(zip(words, kinds, strict=True)), rng)), frozenset(words)


def _shuffled(items: list[Any], rng: GameRng) -> list[Any]:
    return [items.pop(rng.randrange(len(items))) for _ in range(len(items))]


class Codenames(DialogueGame):
    """Codenames.

    Rules: 25 words lie open: 9 of the team, 8 of the opponents, 7 neutral, 1 of the assassin (`EXPERIMENTS` vary it).
    Only seat 0, the cluegiver, knows which is which. In each round it names a clue of one word and the words it is
    meant for; seat 1, the guesser, is told the clue and their number, and guesses at most so many words. They are
    revealed in its order up to the first that is not the team's. Then the opponents, a program, reveal some of their
    words at random. The team wins, ``quality`` 100, when all its words are revealed; it loses, 0, with the assassin's
    word or when all words of the opponents are revealed, by whomever. After the opponents' own turn that shows only
    when the cluegiver has given one more clue, as there: a clue against the rules still breaks the game off. The game
    is broken off by a reply without its tags or with further lines, a clue that is several words or a form of a word on
    the board, a target or guess that does not lie open or is named twice, and by too many guesses.

    Action: ``CLUE: sea`` and on a second line ``TARGETS: whale, wave`` of the cluegiver; ``GUESS: whale, wave`` of the
    guesser, each tag in capitals with a blank behind it. Case does not matter behind the tags; blanks, full stops,
    commas, quotes and angle brackets around a word are removed. `legal_actions` is a selection: clues from the table of
    groups, guesses of neighbours on the board.

    Differs from clembench:
      - A table of our own; boards hold up to three words of each of their groups, in three disjoint splits. The 13
        experiments are those of clembench, with word lists of our own by frequency, ambiguity and concreteness.
      - Nothing is asked again, as in the experiments there whose flag for it is off; `illegal_allowance=2` and
        `malformed_allowance=2` are the rule with the flag on.
      - A form of a word is one with the same stem (`dfc.games.dialogue.words.stem`); there the same lemma of WordNet.
      - A clue is made of letters and hyphens, at most 30, and holds no two words of the board; there nothing is said.
        With boards of our own it is one English word (`dfc.games.dialogue.english`) as well, for beginnings of the
        targets joined to one clue say all of them; with a file of `instances` it need not be (`rules`). Clue and
        words are compared folded (`dfc.games.folding.fold`).
      - The guesser is told which words the opponents revealed; there they are only missing from the list.
      - Thoughts before ``</think>`` are removed; only the first 2,000 characters are read.

    Attributes:
      kinds: of the words in the order of the board; only seat 0 may know them.
      revealed: words that no longer lie open.
      clue, targets: of this round; only seat 0 may know the targets.
    """

    evaluation_only: ClassVar[bool] = True
    player_roles: ClassVar[tuple[str, ...]] = ("cluegiver", "guesser")
    tags: ClassVar[tuple[str, ...]] = ("CLUE:", "GUESS:")
    grammar: ClassVar[str] = "CLUE: ... with a second line TARGETS: ..., or GUESS: ..."
    splits: ClassVar[Mapping[str, int]] = {name: size * len(EXPERIMENTS) for name, size in _SIZES.items()}

    def __init__(self, *, split: str = "test", instances: str = "", rules: str = "", **common: Unpack[Common]) -> None:
        """Makes a game.

        `instances` is a file of clembench's instances of this game; empty for ours. `rules` are ``strict``: a clue is
        one English word; ``source``: as in clembench, any letters; empty: ``source`` with a file of `instances`,
        ``strict`` without.

        Raises:
          ValueError: a value is out of range, or the file is none of this game.
        """
        self._strict = are_strict(rules, instances)
        # Each round reveals a word at least.
        super().__init__(split=split, rounds=_BOARD, instances=instances, **common)
        self.kinds: dict[str, str] = {}
        self.revealed: list[str] = []
        self.clue = ""
        self.targets: list[str] = []

    def _experiment(self) -> str:
        """Returns what is varied: a key of `EXPERIMENTS`."""
        return list(EXPERIMENTS)[self.task % len(EXPERIMENTS)]

    def difficulty(self) -> int:
        """Returns how many words the opponents reveal after each round."""
        found = self._from_file()
        if found is None:
            return EXPERIMENTS[self.experiment].difficulty
        revealed: int = found.fields["difficulty"]
        return revealed

    def hidden(self, *kinds: str) -> list[str]:
        """Returns the words that lie open, those of some kinds or all, in the order of the board."""
        gone = set(self.revealed)
        if not kinds:
            return [word for word in self.kinds if word not in gone]
        return [word for word, kind in self.kinds.items() if kind in kinds and word not in gone]

    def extract(self, reply: str) -> str | None:
        """Returns all that is said aloud, or None if that is nothing."""
        return (spoken(reply) or "")[:LONGEST].strip() or None

    def _form(self) -> str:
        return "CLUE: a word, and on a second line TARGETS: words" if self.to_move == GIVER else "GUESS: words"

    def _read(self, action: str) -> str | None:
        lines = action.split("\n")
        if self.to_move == GUESSER:
            words = _listed(_behind("GUESS: ", lines))
            found = f"GUESS: {', '.join(words)}" if words and len(lines) == 1 else ""
        else:
            clue, words = " ".join(_bare(_behind("CLUE: ", lines)).split()), _listed(_behind("TARGETS: ", lines))
            found = f"CLUE: {clue}\nTARGETS: {', '.join(words)}" if clue and words and len(lines) == _LINES else ""
        return found if 0 < len(found) <= LONGEST else None

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        self.kinds = dict(_boards().of(self.split, self.task) if found is None else found.fields["kinds"])
        self.revealed, self.clue, self.targets = [], "", []
        self._tell(GIVER, self._words())

    def _words(self) -> str:
        said = {OWN: "your team's", OPPONENT: "the opponents'", NEUTRAL: "neutral", ASSASSIN: "the assassin's"}
        words: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for word in self.hidden():
            words[self.kinds[word]].append(word)
        return "\n".join(f"Open words, {said[kind]}: {', '.join(words[kind]) or 'none'}" for kind in KINDS)

    def _rules(self, seat: int) -> str:
        if seat == GIVER:
            return (
                "You are the cluegiver of a team of two in a game of words. Your partner sees the open words and does "
                "not know whose they are. All words of your team must be revealed before all words of the opponents. "
                "In each round you name one word as a clue, and the words of your team that it is meant for; your "
                "partner learns the clue and how many words there are. Guesses end with the first word that is not "
                "your team's, then the opponents reveal words of theirs. A word of the assassin loses at once.\n"
                "The clue is a single word that goes with its targets by its meaning. It is none of the open words and "
                "no form of one.\n"
                "Always reply with two lines and nothing else, for example\n"
                "CLUE: toy\nTARGETS: kite, doll"
            )
        return (
            "You are the guesser of a team of two in a game of words. Your partner knows which of the open words are "
            "your team's, and gives you a clue of one word for some of them. All must be revealed before all words of "
            "the opponents. Your guesses are revealed in your order until one is not your team's; a word of the "
            "assassin loses at once.\n"
            "Always reply with one line and nothing else, the likeliest word first, for example\n"
            "GUESS: kite, doll"
        )

    def clue_problem(self, clue: str) -> str | None:
        """Returns what is wrong with a clue in lower case, as shown to the cluegiver, or None."""
        return _clue_problem(clue, tuple(self.hidden())) or (_NO_WORD if self._strict and not _is_known(clue) else None)

    def _objection(self, action: str) -> str | None:
        giver = self._mover() == GIVER
        clue, words = _parts(action)
        problem = self.clue_problem(clue) if giver else None
        if problem is None and not all(word in self.kinds and word not in self.revealed for word in words):
            problem = f"A word named {NOT_THERE} the open words."
        if problem is None and len(set(words)) < len(words):
            problem = "A word is named twice."
        if problem is None and not giver and len(words) > len(self.targets):
            problem = f"There may be at most {count_of(len(self.targets), 'guess', 'guesses')}."
        return None if problem is None else f"{problem} Try again."

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        clue, words = _parts(action)
        if self._mover() == GIVER:
            end = self._ended()  # the opponents have revealed their last word since the last guess
            if end is not None:
                return end
            self.clue, self.targets = clue, words
            number = count_of(len(words), "word")
            self._tell(GUESSER, f"The clue is {clue}, for {number}. Guess at most {number} of the open words:")
            self._tell(GUESSER, ", ".join(self.hidden()))
            return GUESSER
        for word in words:
            self.revealed.append(word)
            self._tell_all(f"Guessed: {word}, {_SAID[self.kinds[word]]} word.")
            if self.kinds[word] != OWN:
                break
        end = self._ended()
        if end is not None:
            return end
        open_words = self.hidden(OPPONENT)
        for _ in range(min(self.difficulty(), len(open_words))):
            word = open_words.pop(self.rng.randrange(len(open_words)))
            self.revealed.append(word)
            self._tell_all(f"The opponents reveal {word}.")
        self._next_round()
        self._tell(GIVER, self._words())
        return GIVER

    def _ended(self) -> tuple[Outcome, ...] | None:
        left = {self.kinds[word] for word in self.hidden()}
        if OWN not in left:
            return self._team(Outcome.WIN)
        lost = OPPONENT not in left or any(self.kinds[word] == ASSASSIN for word in self.revealed)
        return self._team(Outcome.LOSS) if lost else None

    def legal_actions(self) -> list[str]:
        """Returns clues of the table for words of the team, or guesses; any other clue may do as well."""
        if self.to_move is None:
            return []
        if self.to_move == GUESSER:
            words = self.hidden()
            sizes = sorted({1, min(len(self.targets), len(words))})
            return [
                f"GUESS: {', '.join(words[at : at + size])}" for size in sizes for at in range(len(words) - size + 1)
            ]
        own = self.hidden(OWN)
        meant: dict[str, list[str]] = {}
        for word in own:
            for name in _groups_of(word):
                meant.setdefault(name, []).append(word)
        open_words = tuple(self.hidden())
        allowed = (name for name in meant if _clue_problem(name, open_words) is None)
        listed = [f"CLUE: {name}\nTARGETS: {', '.join(meant[name])}" for name in allowed]
        if listed:
            return listed
        fallback = next(name for name in ("thing", *groups()) if _clue_problem(name, open_words) is None)
        return [f"CLUE: {fallback}\nTARGETS: {own[0]}"]

    def _quality(self) -> float:
        return 100.0 if self.outcomes is not None and self.outcomes[0] is Outcome.WIN else 0.0

    def _position(self) -> dict[str, Any]:
        return {
            "kinds": dict(self.kinds),
            "revealed": list(self.revealed),
            "clue": self.clue,
            "targets": list(self.targets),
        }

    def _set_position(self, position: dict[str, Any]) -> None:
        self.kinds, self.revealed = dict(position["kinds"]), list(position["revealed"])
        self.clue, self.targets = position["clue"], list(position["targets"])


_LINES = 2  # of a clue
_NO_WORD = "The clue must be one word of English, without a hyphen."


def _is_known(clue: str) -> bool:
    return is_a_word(clue) or clue in pool("all") or clue in groups()


def _clue_problem(clue: str, words: tuple[str, ...]) -> str | None:
    if not clue.replace("-", "").isalpha() or len(clue) > _LONGEST_CLUE:
        return f"The clue must be a single word of letters, at most {_LONGEST_CLUE}."
    folded = fold(clue).replace("-", "")
    if clue in words or not _stems_of(words).isdisjoint((stem(clue), stem(folded))):
        return "The clue must not be a word on the board, or a form of one."
    if sum(word in folded for word in words) > 1:
        return "The clue must not be made of words on the board."
    return None


@functools.lru_cache(maxsize=64)
def _stems_of(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(stem, words))


def _behind(tag: str, lines: list[str]) -> str:
    """Returns what stands behind a tag, which ends in a blank, on the first line that begins with it, or nothing."""
    return next((line.removeprefix(tag) for line in lines if line.startswith(tag)), "")


def _bare(text: str) -> str:
    return text.lower().strip(_STRIPPED)


def _listed(text: str) -> list[str]:
    """Returns the words of a list, parted by commas with or without a blank behind; none if one of them is empty."""
    words = [" ".join(_bare(part).split()) for part in re.sub(r",(?=\S)", ", ", text).split(", ")]
    return words if all(words) else []


def _parts(action: str) -> tuple[str, list[str]]:
    """Returns the clue, or nothing, and the words of a canonical action."""
    first, _, second = action.partition("\n")
    if not second:
        return "", first.removeprefix("GUESS: ").split(", ")
    return first.removeprefix("CLUE: "), second.removeprefix("TARGETS: ").split(", ")

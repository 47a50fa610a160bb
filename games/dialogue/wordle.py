"""Wordle in dialogue: alone, with a clue, and with a partner who criticizes each guess; from clembench."""

import functools
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack, get_args

from dfc.games.dialogue.dialogue_game import LONGEST, DialogueGame
from dfc.games.dialogue.original import short
from dfc.games.game import Common, Outcome
from dfc.games.paprika.wordle import ABSENT, ELSEWHERE, IN_PLACE, marks, words
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng, derive_seed
from dfc.games.task import FRESH, count_of, dealt

GUESSER, CRITIC = 0, 1
LENGTH = 5
EXPERIMENTS = ("high", "medium")
EXPLANATION, GUESS, OPINION = "explanation:", "guess:", "agreement:"
OPINIONS = ("yes", "no")
ReplyRule = Literal["clembench", "paper"]
_ROTATION = ("high", "medium", "medium")  # of three tasks in a row
_SIZES = {"train": 60, "validation": 60, "test": 30}
_COLOURS = {IN_PLACE: "green", ELSEWHERE: "yellow", ABSENT: "red"}
_VALUE_OF = (100.0, 100.0, 100.0, 50.0, 30.0, 20.0)  # of a success by round, without a clue
_REASON = 1_000  # characters of an explanation that are kept
_KEYWORDS = {word: re.compile(word, re.IGNORECASE | re.ASCII) for word in (EXPLANATION, GUESS, OPINION)}
_ALSO = ("black", "crane")  # common words that the list of the other Wordle keeps for its examples, or lacks
_FILE = pathlib.Path(__file__).parent / "data" / "wordle.json"


@functools.cache
def clues() -> dict[str, dict[str, str]]:
    """Returns all targets by experiment, each with its clue."""
    found: dict[str, dict[str, str]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


@functools.cache
def targets(split: str) -> tuple[str, ...]:
    """Returns the hidden words of a split by task number; of three in a row one is ``high``, two are ``medium``."""
    lists = {
        experiment: iter(
            dealt(
                "ClemWordle",
                clues()[experiment],
                {name: size * _ROTATION.count(experiment) // len(_ROTATION) for name, size in _SIZES.items()},
                split,
            )
        )
        for experiment in EXPERIMENTS
    }
    return tuple(next(lists[_ROTATION[task % len(_ROTATION)]]) for task in range(_SIZES[split]))


@functools.cache
def _other_words() -> tuple[str, ...]:
    known = {word for table in clues().values() for word in table}
    return tuple(sorted(allowed() - known))


def _fresh_target(number: int) -> str:
    """Returns a word that may be guessed and is a task of no split."""
    return _other_words()[GameRng(derive_seed("fresh task", "ClemWordle", number)).randrange(len(_other_words()))]


@functools.cache
def allowed() -> frozenset[str]:
    """Returns the words that may be guessed."""
    return frozenset((*words(LENGTH), *_ALSO))


def two_parts(said: str, keyword: str, rule: ReplyRule = "clembench") -> tuple[str, str] | None:
    r"""Returns the explanation and what stands behind a keyword, in lower case; None without just one of these.

    The text must begin with ``explanation:``, and of what follows the keyword the rest of its line counts. Keywords in
    any case. The keyword is ``guess:`` or ``agreement:``; `rule` says where it is looked for, and must come once: below
    the line of ``explanation:`` only (clembench), or in all that follows that word (paper).

    >>> two_parts("Explanation: Two\nvowels.\nGuess: Adieu\nDone.", GUESS)
    ('Two vowels.', 'adieu')
    >>> two_parts("Guess: adieu", GUESS), two_parts("Explanation: Vowels. Guess: adieu", GUESS)
    (None, None)
    >>> two_parts("Explanation: Vowels. Guess: adieu", GUESS, "paper")
    ('Vowels.', 'adieu')
    """
    begun = _KEYWORDS[EXPLANATION].match(said)
    if begun is None:
        return None
    first, rest = "", said[begun.end() :]
    if rule == "clembench":
        first, _, rest = rest.partition("\n")
    parts = _KEYWORDS[keyword].split(rest)
    if len(parts) != 2:
        return None
    why = " ".join(f"{first} {parts[0]}".split())
    return why[:_REASON].rstrip(), parts[1].partition("\n")[0].strip().lower()


def coloured(guess: str, found: str) -> str:
    """Returns the feedback on a guess in words.

    >>> coloured("toast", "-+-++")
    't<red> o<green> a<red> s<green> t<green>'
    """
    return " ".join(f"{letter}<{_COLOURS[mark]}>" for letter, mark in zip(guess, found, strict=True))


def reply_of(keyword: str, answer: str, why: str) -> str:
    r"""Returns a reply in its canonical spelling, which is two lines, as both rules read it.

    >>> reply_of(GUESS, "adieu", "It has four vowels.")
    'explanation: It has four vowels.\nguess: adieu'
    """
    return f"{EXPLANATION} {why}".rstrip() + f"\n{keyword} {answer}"


@functools.lru_cache(maxsize=64)
def _guesses(may_be_guessed: frozenset[str]) -> tuple[str, ...]:
    listed = [word for word in words(LENGTH) if word in may_be_guessed] or sorted(may_be_guessed)
    return tuple(reply_of(GUESS, word, "I try this word.") for word in listed)


class ClemWordle(DialogueGame):
    """Wordle of clembench.

    Rules: a word of five letters is hidden; of each guess it is told which letters are in place (green), elsewhere in
    the word (yellow), or neither (red). Repeated letters are counted: greens first, then yellows from left to right, as
    many as the word has left. The guess that is the word wins; `rounds` guesses without it lose. ``quality`` of a
    success is 100 in rounds 1 to 3, then 50, 30 and 20 (20 in later rounds too), of a loss 0. Five letters that are not
    in the word list are asked again, five times in a row, at no cost; the sixth breaks the game off. So does at once a
    guess that is not five letters a to z, and a reply that is not of the form.

    Action: two lines, ``explanation: ...`` and ``guess: adieu``; keywords in any case. The guess is the rest of its
    line; what follows is not read. Lines between the two belong to the explanation. Canonical actions are two lines, in
    lower case but for the explanation. `legal_actions` lists words that may be guessed, with one explanation.

    `reply_rule` says where ``guess:`` is looked for, and must come once. ``clembench``, the rule of its code since
    April 2026: below the explanation's line only, so that a reply on one line breaks the game off, and a ``guess:``
    within the explanation does not count. ``paper``, the rule before: in all that follows ``explanation:``, on the same
    or a later line. Whichever it is, players are told to write two lines, and what this package writes is two lines.

    Differs from clembench:
      - 150 targets of our own in three disjoint splits (`experiment`: high, medium) instead of one list of 30. Allowed
        are the 2,491 public words of five letters of `dfc.games.paprika.wordle` and two more, there 12,953.
      - Only the first 2,000 characters of a reply are read, and 1,000 of the explanation are kept; thoughts before
        ``</think>`` are removed.

    Attributes:
      reply_rule: as above.
      target: of the task; nobody may know it.
      turns: the guesses so far with their `marks`, of every round one.
    """

    seats: ClassVar[int] = 1
    team: ClassVar[bool] = False
    player_roles: ClassVar[tuple[str, ...]] = ("guesser",)
    tags: ClassVar[tuple[str, ...]] = (EXPLANATION,)
    turns_per_round: ClassVar[int] = 1
    grammar: ClassVar[str] = f"{EXPLANATION} ..., and on the next line {GUESS} adieu"
    default_allowances: ClassVar[tuple[int, int]] = (5, 0)
    splits: ClassVar[Mapping[str, int]] = _SIZES

    def __init__(
        self,
        *,
        split: str = "train",
        rounds: int = 6,
        instances: str = "",
        reply_rule: ReplyRule = "clembench",
        **common: Unpack[Common],
    ) -> None:
        if reply_rule not in get_args(ReplyRule):
            raise ValueError(f"reply_rule must be one of {', '.join(get_args(ReplyRule))}, got {short(reply_rule)}")
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        self.reply_rule = reply_rule
        self.target = ""
        self.turns: list[tuple[str, str]] = []

    def _experiment(self) -> str:
        """Returns how common the target is: ``high`` or ``medium``."""
        return _ROTATION[self.task % len(_ROTATION)]

    def keyword(self, seat: int) -> str:
        """Returns the keyword behind which the answer of a seat stands."""
        del seat  # there is one only
        return GUESS

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        if found is None:
            self.target = _fresh_target(self.task) if self.split == FRESH else targets(self.split)[self.task]
        else:
            self.target = found.fields["target"]
        self.turns = []

    # ---- texts ----------------------------------------------------------------------------------------------------

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        return "\n".join((self._goal(), self._colours(), *self._given(), self._guess_form()))

    def _goal(self) -> str:
        return (
            f"Find a hidden English word of {LENGTH} letters. You have {count_of(self.rounds, 'guess', 'guesses')}; "
            "the sooner one is right, the better. Only words of the game's list count as guesses: you are asked again "
            "if a word is not in it, but too many such words in a row, or a guess that is not one word of "
            f"{LENGTH} letters, end the game."
        )

    def _colours(self) -> str:
        return (
            "After each guess you are told the colour of every letter: green if it is in the right place, yellow if "
            "the word has it at another place, red if the word does not have it. Each letter of the word colours one "
            "letter of the guess at most, so a letter that you guess twice can be green or yellow once and red once."
        )

    def _given(self) -> tuple[str, ...]:
        """Returns lines about what the players are given beside the rules."""
        return ()

    def _guess_form(self) -> str:
        return (
            "Always reply with these two lines and nothing else: first why you choose the word, then the word; for "
            f"example\n{EXPLANATION} It tries four vowels at once.\n{GUESS} adieu"
        )

    def _form(self) -> str:
        answer = "..." if self.to_move is None else self.keyword(self.to_move)
        return self.grammar if self.to_move is None else f"{EXPLANATION} ..., and on the next line {answer} ..."

    # ---- the protocol ---------------------------------------------------------------------------------------------

    def extract(self, reply: str) -> str | None:
        """Returns what can be read of a reply, in its canonical spelling, or None if it is not of the form."""
        said = spoken(reply)
        return None if said is None else self._read(said[:LONGEST])

    def _read(self, action: str) -> str | None:
        keyword = self.keyword(self.to_move or GUESSER)
        found = two_parts(action, keyword, self.reply_rule)
        if found is None or not self._readable(keyword, found[1]):
            return None
        return reply_of(keyword, found[1], found[0])

    @staticmethod
    def _readable(keyword: str, answer: str) -> bool:
        if keyword == OPINION:
            return answer in OPINIONS
        return len(answer) == LENGTH and answer.isascii() and answer.isalpha()

    def _answer(self, action: str) -> str:
        """Returns the answer of a canonical action of the seat to move."""
        return action.rpartition(self.keyword(self._mover()))[2].strip()

    def allowed(self) -> frozenset[str]:
        """Returns the words that may be guessed: those that a file lists, or else this package's; and the target."""
        found = self._from_file()
        listed: frozenset[str] | None = None if found is None else found.fields["words"]
        return allowed() if listed is None else listed

    def _objection(self, action: str) -> str | None:
        word = self._answer(action)
        if self.keyword(self._mover()) != GUESS or word in self.allowed() or word == self.target:
            return None
        return f"{word} is not in the word list of this game; guess another word. Try again."

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        return self._guessed(self._answer(action))

    def _guessed(self, word: str) -> int | tuple[Outcome, ...]:
        """Judges the guess of a round."""
        found = marks(word, self.target, standard=True)
        self.turns.append((word, found))
        if word == self.target:
            return self._team(Outcome.WIN)
        if not self._next_round():
            return self._team(Outcome.LOSS)
        left = self.rounds - self.round + 1
        self._tell_all(f"Feedback: {coloured(word, found)}. {count_of(left, 'guess', 'guesses')} left.")
        return GUESSER

    def legal_actions(self) -> list[str]:
        """Returns words that may be guessed, by alphabet, with one explanation; any other explanation counts."""
        return [] if self.to_move is None else list(_guesses(self.allowed()))

    def _won(self) -> bool:
        return self.outcomes is not None and self.outcomes[0] is Outcome.WIN

    def _quality(self) -> float:
        return _VALUE_OF[min(self.round, len(_VALUE_OF)) - 1] if self._won() else 0.0

    def _position(self) -> dict[str, Any]:
        return {"target": self.target, "turns": [list(turn) for turn in self.turns]}

    def _set_position(self, position: dict[str, Any]) -> None:
        self.target = position["target"]
        self.turns = [(guess, found) for guess, found in position["turns"]]


class ClemWordleWithClue(ClemWordle):
    """Wordle of clembench with a clue.

    Rules: those of `ClemWordle`, and a clue to the word is told at the start. ``quality`` of a success is 100 / round.

    Action: as in `ClemWordle`.

    Differs from clembench: as `ClemWordle`; the clues are ours, there a newspaper's.

    Attributes:
      clue: to the target; everybody knows it.
    """

    def __init__(
        self,
        *,
        split: str = "train",
        rounds: int = 6,
        instances: str = "",
        reply_rule: ReplyRule = "clembench",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(split=split, rounds=rounds, instances=instances, reply_rule=reply_rule, **common)
        self.clue = ""

    def _set_up(self, rng: GameRng) -> None:
        super()._set_up(rng)
        found = self._from_file()
        if found is not None:
            self.clue = found.fields["clue"]
        elif self.split == FRESH:  # the table has clues to the words of the splits only
            self.clue = f"Between {self.target[0]} and {self.target[-1]}"
        else:
            self.clue = clues()[self.experiment][self.target]

    def _given(self) -> tuple[str, ...]:
        return (f"A clue to the word: {self.clue}",)

    def _quality(self) -> float:
        return 100.0 / self.round if self._won() else 0.0

    def _position(self) -> dict[str, Any]:
        return {**super()._position(), "clue": self.clue}

    def _set_position(self, position: dict[str, Any]) -> None:
        super()._set_position(position)
        self.clue = position["clue"]


class ClemWordleWithCritic(ClemWordleWithClue):
    """Wordle of clembench with a clue and a critic.

    Rules: those of `ClemWordleWithClue` for a team. In each round seat 0, the guesser, proposes a guess; seat 1, the
    critic, who knows the clue and the feedback as well, says whether it agrees, and why; then the guesser makes its
    guess, the same or another one. Only this second one is judged. A reply of the critic that is not of the form breaks
    the game off at once; unknown words are asked again of proposals as well.

    Action: of the guesser as in `ClemWordle`; of the critic two lines likewise, ``explanation: ...`` and
    ``agreement: yes`` or ``agreement: no``. `legal_actions` of the critic: both, with one explanation each.

    Differs from clembench: as `ClemWordleWithClue`. Explanations pass to the other seat on one line.

    Attributes:
      proposal: of this round, or an empty text where there is none yet.
      opinion: ``yes`` or ``no`` of the critic to it, or an empty text.
    """

    seats: ClassVar[int] = 2
    team: ClassVar[bool] = True
    player_roles: ClassVar[tuple[str, ...]] = ("guesser", "critic")
    tags: ClassVar[tuple[str, ...]] = (EXPLANATION, EXPLANATION)
    turns_per_round: ClassVar[int] = 3
    grammar: ClassVar[str] = f"{EXPLANATION} ..., and on the next line {GUESS} adieu or {OPINION} yes"

    def __init__(
        self,
        *,
        split: str = "train",
        rounds: int = 6,
        instances: str = "",
        reply_rule: ReplyRule = "clembench",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(split=split, rounds=rounds, instances=instances, reply_rule=reply_rule, **common)
        self.proposal = ""
        self.opinion = ""

    def keyword(self, seat: int) -> str:
        """Returns the keyword behind which the answer of a seat stands."""
        return OPINION if seat == CRITIC else GUESS

    def _set_up(self, rng: GameRng) -> None:
        super()._set_up(rng)
        self.proposal = self.opinion = ""

    def _rules(self, seat: int) -> str:
        if seat == GUESSER:
            return "\n".join((self._goal(), self._colours(), *self._given(), self._partner(), self._guess_form()))
        colours = self._colours().replace("you are told", "both of you are told").replace("you guess", "is guessed")
        return "\n".join((self._critic_goal(), colours, *self._given(), self._critic_form()))

    def _critic_goal(self) -> str:
        return (
            f"Help your partner to find a hidden English word of {LENGTH} letters. There are "
            f"{count_of(self.rounds, 'guess', 'guesses')}; the sooner one is right, the better for you both. "
            "Before each guess your partner proposes a word and says why. Decide whether you agree: does the word fit "
            "the clue and the feedback on earlier guesses? Your partner then makes the guess, the same word or another "
            "one."
        )

    def _critic_form(self) -> str:
        return (
            "Always reply with these two lines and nothing else: first why, then yes or no; for example\n"
            f"{EXPLANATION} The clue asks for an animal, and this is none.\n{OPINION} no"
        )

    def _partner(self) -> str:
        return (
            "Before each guess you propose a word, in the form of a guess; a partner, who knows the clue and the "
            "feedback, says whether to agree with it and why. Then you guess, the same word or another one; only this "
            "second word is judged."
        )

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        word = self._answer(action)
        if self._mover() == CRITIC:
            self.opinion = word
            self._tell(GUESSER, f"Your partner says: {action}\nNow make your guess, the same word or another one.")
            return GUESSER
        if not self.proposal:
            self.proposal = word
            self._tell(CRITIC, f"Your partner proposes: {action}")
            return CRITIC
        self.proposal = self.opinion = ""
        result = self._guessed(word)
        if isinstance(result, int):
            self._tell(GUESSER, "Propose your next word.")
        return result

    def legal_actions(self) -> list[str]:
        """Returns what the seat to move may say, with one explanation; any other explanation counts."""
        if self.to_move == CRITIC:
            return [
                reply_of(OPINION, OPINIONS[0], "It fits what we know."),
                reply_of(OPINION, OPINIONS[1], "It does not fit what we know."),
            ]
        return super().legal_actions()

    def _position(self) -> dict[str, Any]:
        return {**super()._position(), "proposal": self.proposal, "opinion": self.opinion}

    def _set_position(self, position: dict[str, Any]) -> None:
        super()._set_position(position)
        self.proposal, self.opinion = position["proposal"], position["opinion"]

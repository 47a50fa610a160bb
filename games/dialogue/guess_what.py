"""Guess what: one finds a word among eight by questions that the other one answers with yes or no; from clembench."""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.dialogue_game import DialogueGame, after_tag, tagged
from dfc.games.dialogue.words import STOP_WORDS, bare, stem
from dfc.games.folding import fold
from dfc.games.game import Common, Outcome
from dfc.games.rng import GameRng, derive_seed
from dfc.games.task import FRESH, dealt

GUESSER, ANSWERER = 0, 1
QUESTION, GUESS, ANSWER = "QUESTION:", "GUESS:", "ANSWER:"
KINDS = ("concrete", "abstract")
LEVELS = (1, 2, 3)
BOUNDS: Mapping[int, int] = {1: 5, 2: 4, 3: 5}
"""By level: requests, the guess included, up to which a right guess is worth 100."""
EXPERIMENTS = tuple(f"{kind}_level_{level}" for kind in KINDS for level in LEVELS)
_CATEGORIES = {1: 4, 2: 2, 3: 1}  # by level: among how many categories the candidates are divided
_CANDIDATES = 8
_SIZES = {"train": 30, "validation": 30, "test": 30}  # of each kind: ten targets of each level
_FILE = pathlib.Path(__file__).parent / "data" / "guess_what.json"

_ANSWERS = {form: form.strip(".").lower() for form in ("yes", "no", "Yes", "No", "Yes.", "No.")}  # those of the source
# A letter that stands alone: as in "start with an 'e'?"; "a" only where nothing follows that it could belong to.
_LONE = r"(?:an?\s+|the\s+)?[\"'(]?[a-z][\"')]?\s*(?=$|[?.,!]|\bor\b|\band\b)"
_WORD = r"(?:the|its|this)\s+(?:\w+\s+)?(?:word|name)"
_FORBIDDEN = {
    "the letters, the sound or the spelling of the word": re.compile(
        r"\b(?:letters?|vowels?|consonants?|alphabet\w*|spell(?:ed|ings?)|spelt|rhymes? with|prefix\w*|suffix\w*|"
        r"anagrams?|palindromes?)\b|[\"'][a-z][\"']|"
        rf"\b(?:starts?|begins?|ends?|contains?|includes?|has|have)\s+(?:with\s+|in\s+)?{_LONE}"
    ),
    "the length of the word": re.compile(
        rf"\b(?:length of|how long is)\s+{_WORD}\b|\bcharacters?\s+(?:long|in\s+{_WORD})\b|"
        r"\b(?:\d+|two|three|four|five|six|seven|eight|nine|ten|many|number of|than)\s+characters\b|"
        r"\b(?:long|short|longer|shorter)\s+(?:word|name)\b|"
        r"\b(?:word|name)\s+(?:(?:very|rather|quite|is|a)\s+)*(?:long|short|longer|shorter)\s*(?:$|[?.,]|than\b)"
    ),
    "the syllables of the word": re.compile(r"\bsyllab\w*"),
    "the part of speech of the word": re.compile(
        r"\bparts? of speech\b|\b(?:nouns?|verbs?|adjectives?|adverbs?|pronouns?|prepositions?|conjunctions?)\b"
    ),
}
# What a question may hold besides a candidate and still be nothing but a guess.
_FILLING = frozenset({"word", "target", "answer", "secret", "hidden", "thing", "item", "called", "named", "maybe"})


@dataclasses.dataclass(frozen=True)
class Instance:
    """One task.

    Attributes:
      candidates: the eight words, in the order in which they are shown.
      target: one of them.
      experiment: kind and level, one of `EXPERIMENTS`.
    """

    candidates: tuple[str, ...]
    target: str
    experiment: str

    @property
    def level(self) -> int:
        """1: four categories of two words; 2: two of four; 3: one of eight."""
        return int(self.experiment[-1])


@functools.cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


@functools.cache
def categories(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Returns the words of a kind by category."""
    return {name: tuple(about["words"]) for name, about in _table()[kind]["categories"].items()}


@functools.cache
def questions() -> Mapping[str, frozenset[str]]:
    """Returns the table's questions, those about several categories first, and for which words the answer is yes."""
    found: dict[str, frozenset[str]] = {}
    for kind in KINDS:
        for question, names in _table()[kind]["groups"].items():
            found[question] = frozenset(word for name in names for word in categories(kind)[name])
        for about in _table()[kind]["categories"].values():
            found[f"{about['question']}?"] = frozenset(about["words"])
            for attribute, clause in about["attributes"].items():
                words = (word for word, attributes in about["words"].items() if attribute in attributes.split())
                found[f"{about['question']} {clause}?"] = frozenset(words)
    return found


@functools.lru_cache(maxsize=4096)
def splitting(words: frozenset[str]) -> Mapping[str, frozenset[str]]:
    """Returns the questions whose answer is yes for some of the words and not for all, with those words."""
    return {question: some for question, yes in questions().items() if (some := yes & words) and some != words}


@functools.lru_cache(maxsize=65536)
def questions_needed(words: frozenset[str]) -> int:
    """Returns how many questions of the table single out any of the words at worst, if they are chosen well.

    Words that no question divides, as a file may have, count as their number.
    """
    if len(words) < 2:
        return 0
    splits = {min(some, words - some, key=sorted) for some in splitting(words).values()}
    worst = (max(questions_needed(some), questions_needed(words - some)) for some in splits)
    return min((1 + number for number in worst), default=len(words))


@functools.cache
def instances(split: str) -> tuple[Instance, ...]:
    """Returns the tasks of a split by number; the experiments take turns. No two tasks of any split share a target.

    Candidates are drawn again until the bound of the level can be kept: the table's questions single out every one.
    """
    targets = {
        kind: dealt(f"GuessWhat {kind}", (w for words in categories(kind).values() for w in words), _SIZES, split)
        for kind in KINDS
    }
    found = []
    for number in range(sum(map(len, targets.values()))):
        turn, which = divmod(number, len(EXPERIMENTS))
        kind, level = KINDS[which // len(LEVELS)], LEVELS[which % len(LEVELS)]
        target = targets[kind][turn * len(LEVELS) + level - 1]
        rng = GameRng(derive_seed("GuessWhat", split, number))
        candidates = _candidates(kind, level, target, rng)
        while questions_needed(frozenset(candidates)) > BOUNDS[level] - 1:
            candidates = _candidates(kind, level, target, rng)
        found.append(Instance(candidates, target, EXPERIMENTS[which]))
    return tuple(found)


@functools.cache
def _candidates_of_splits() -> frozenset[frozenset[str]]:
    return frozenset(frozenset(task.candidates) for split in _SIZES for task in instances(split))


def _fresh_instance(number: int) -> Instance:
    """Returns any word of the table among candidates that no task of a split has; bounds are kept as there."""
    which = number % len(EXPERIMENTS)
    kind, level = KINDS[which // len(LEVELS)], LEVELS[which % len(LEVELS)]
    rng = GameRng(derive_seed("fresh task", "GuessWhat", number))
    words = [word for words in categories(kind).values() for word in words]
    while True:
        target = words[rng.randrange(len(words))]
        candidates = _candidates(kind, level, target, rng)
        shown = frozenset(candidates)
        if shown not in _candidates_of_splits() and questions_needed(shown) < BOUNDS[level]:
            return Instance(candidates, target, EXPERIMENTS[which])


def _candidates(kind: str, level: int, target: str, rng: GameRng) -> tuple[str, ...]:
    own = next(name for name, words in categories(kind).items() if target in words)
    names = [own, *_some([name for name in categories(kind) if name != own], _CATEGORIES[level] - 1, rng)]
    each = _CANDIDATES // len(names)
    drawn = [target, *_some([word for word in categories(kind)[own] if word != target], each - 1, rng)]
    for name in names[1:]:
        drawn += _some(list(categories(kind)[name]), each, rng)
    return tuple(_some(drawn, len(drawn), rng))


def _some(items: list[str], number: int, rng: GameRng) -> list[str]:
    rest = list(items)
    return [rest.pop(rng.randrange(len(rest))) for _ in range(number)]


@functools.lru_cache(maxsize=4096)
def objection_to(question: str, candidates: tuple[str, ...]) -> str | None:
    """Returns why a question is against the rules, or None: about the form of the word, or a guess in disguise."""
    text = fold(question).lower()
    for what, pattern in _FORBIDDEN.items():
        if pattern.search(text):
            return f"A question must not be about {what}."
    said = {stem(word) for word in bare(re.sub(r"[-/,;&]", " ", text)).split() if word not in STOP_WORDS | _FILLING}
    named = said & {stem(word) for word in candidates}
    if named and named == said:
        return f"A question must not be a guess; guess with {GUESS}"
    return "A question must not list candidates." if len(named) > 1 else None


@functools.lru_cache(maxsize=1024)
def _requests(candidates: tuple[str, ...]) -> tuple[str, ...]:
    words = frozenset(candidates)
    asked = [f"{QUESTION} {question}" for question in splitting(words)]
    return (*asked, *(f"{GUESS} {bare(word)}" for word in candidates))


class GuessWhat(DialogueGame):
    """Guess what.

    Rules: seat 0, the guesser, is shown eight candidates; seat 1, the answerer, one of them, the target, and no other
    one. In each of at most `rounds` rounds the guesser makes one request: a question, which the answerer answers with
    yes or no, or a guess. The only guess decides: the target wins for both, another word loses for both, and so do as
    many questions as there are rounds.

    Quality: 0 for a loss. A right guess with at most b requests, the guess included, is worth 100, and from there less
    in equal steps to 0 with `rounds` requests: 100 (rounds - requests) / (rounds - b). The bound b depends on the level
    (`BOUNDS`): 5 for level 1 (four categories of two words), 4 for level 2 (two of four: the logarithm of eight to the
    base of two, and the guess), 5 for level 3 (eight words of one category).

    A reply without its tag breaks the game off; so does a guess of several words, a second question, text behind the
    question mark, and an answer that is not yes or no. A question that can be read and is not allowed breaks it off as
    well (`_objection`): about letters, sound, length, syllables or part of speech of the word; a candidate and nothing
    else, which would be a guess; or with several candidates, which would be several.

    Action: ``QUESTION: Is it alive?`` or ``GUESS: horse`` of the guesser, ``ANSWER: yes`` or ``ANSWER: no`` of the
    answerer; tags in capitals, yes and no also as ``Yes`` and ``No.``. A guess is compared in lower case without
    punctuation. `legal_actions` lists the questions of our table that divide the candidates, and the candidates.

    Differs from clembench:
      - The bound is that of the level; its scorer takes 5 for each level, by a test that is always true.
      - Words, categories and attributes of our own, in three disjoint splits; no two tasks share a target. Candidates
        are such that questions of the table can keep the bound, whichever is the target.
      - What questions may not be about is found by patterns of our own; questions that list candidates are ours too.
      - Blanks around an answer are free; there it is one blank.
      - Questions and guesses are compared folded (`dfc.games.folding.fold`).
      - A tag with nothing behind it breaks the game off; thoughts before ``</think>`` are removed; line breaks become
        blanks; only the first 2,000 characters are read.

    Attributes:
      instance: the task; only seat 1 may know the target, only seat 0 the candidates.
      questions, answers: so far, without their tags.
      guess: the guess, or empty.
    """

    evaluation_only: ClassVar[bool] = True
    player_roles: ClassVar[tuple[str, ...]] = ("guesser", "answerer")
    tags: ClassVar[tuple[str, ...]] = (QUESTION, ANSWER)
    grammar: ClassVar[str] = "QUESTION: ... or GUESS: ... or ANSWER: yes or ANSWER: no"
    splits: ClassVar[Mapping[str, int]] = {name: size * len(KINDS) for name, size in _SIZES.items()}

    def __init__(self, *, split: str = "train", rounds: int = 8, instances: str = "", **common: Unpack[Common]) -> None:
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        self.instance = Instance((), "", EXPERIMENTS[0])
        self.questions: list[str] = []
        self.answers: list[str] = []
        self.guess = ""

    def _experiment(self) -> str:
        """Returns kind and level of the task, such as ``abstract_level_2``."""
        return EXPERIMENTS[self.task % len(EXPERIMENTS)]

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        found = self._from_file()
        if found is None:
            self.instance = _fresh_instance(self.task) if self.split == FRESH else instances(self.split)[self.task]
        else:  # the name of an experiment ends in its level there as well
            self.instance = Instance(experiment=found.experiment, **found.fields)
        self.questions, self.answers, self.guess = [], [], ""

    def _rules(self, seat: int) -> str:
        if seat == ANSWERER:
            return (
                "You are the answerer in a word game; your partner has to find a word that only you know, and asks "
                "questions about it that can be answered with yes or no.\n"
                f"The word: {self.instance.target}\n"
                "Answer each question truthfully, and say nothing else: your whole reply is one of these two\n"
                f"{ANSWER} yes\n{ANSWER} no"
            )
        return (
            f"You are the guesser in a word game; your partner knows which of these {len(self.instance.candidates)} "
            f"words is the right one: {', '.join(self.instance.candidates)}\n"
            "Find it with as few requests as possible. A request is a question, which your partner answers with yes or "
            f"no, or your guess. You have {self.rounds} requests, and only one guess: a wrong one loses the game for "
            "you both, and so does no guess at all.\n"
            "A question must be about what the word means. It must not be about its letters, its sound, its length, "
            "its syllables or its part of speech, and it must neither be a guess nor list several of the words.\n"
            f"Begin your reply with {QUESTION} and write one question behind it, or with {GUESS} and write one word "
            f"behind it, and nothing else, for example\n{QUESTION} Can it be eaten?\nor\n{GUESS} umbrella"
        )

    def _form(self) -> str:
        return f"{ANSWER} yes or {ANSWER} no" if self.to_move == ANSWERER else f"{QUESTION} ... or {GUESS} ..."

    def _read(self, action: str) -> str | None:
        if self.to_move == ANSWERER:
            answer = _ANSWERS.get((after_tag(action, ANSWER) or "").strip())
            return None if answer is None else f"{ANSWER} {answer}"
        question = after_tag(action, QUESTION)
        if question is not None:
            one = QUESTION not in question and not question.partition("?")[2]
            return tagged(QUESTION, question) if one else None
        guess = bare(after_tag(action, GUESS) or "")
        return tagged(GUESS, guess) if len(guess.split()) == 1 else None

    def _objection(self, action: str) -> str | None:
        question = after_tag(action, QUESTION)
        return None if question is None else objection_to(question, self.instance.candidates)

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        if self._mover() == ANSWERER:
            self.answers.append(action.removeprefix(ANSWER).strip())
            if not self._next_round():
                return self._team(Outcome.LOSS)
            self._tell(GUESSER, action)
            return GUESSER
        if action.startswith(GUESS):
            self.guess = action.removeprefix(GUESS).strip()
            return self._team(Outcome.WIN if self.guess == bare(self.instance.target) else Outcome.LOSS)
        self.questions.append(action.removeprefix(QUESTION).strip())
        self._tell(ANSWERER, action)
        return ANSWERER

    def legal_actions(self) -> list[str]:
        """Returns the table's questions that divide the candidates and all guesses, or both answers."""
        if self.to_move is None:
            return []
        return [f"{ANSWER} yes", f"{ANSWER} no"] if self.to_move == ANSWERER else [*_requests(self.instance.candidates)]

    def _quality(self) -> float:
        bound = BOUNDS[self.instance.level]
        if self.outcomes is None or self.outcomes[0] is not Outcome.WIN:
            return 0.0
        return 100.0 if self.round <= bound else 100.0 * (self.rounds - self.round) / (self.rounds - bound)

    def _position(self) -> dict[str, Any]:
        about = {"questions": list(self.questions), "answers": list(self.answers), "guess": self.guess}
        instance = {**dataclasses.asdict(self.instance), "candidates": list(self.instance.candidates)}
        return {"instance": instance, **about}

    def _set_position(self, position: dict[str, Any]) -> None:
        instance = position["instance"]
        self.instance = Instance(tuple(instance["candidates"]), instance["target"], instance["experiment"])
        self.questions, self.answers = list(position["questions"]), list(position["answers"])
        self.guess = position["guess"]

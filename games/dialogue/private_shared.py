"""Private and shared: who fills in a form by conversation keeps count of what the other one knows; from clembench."""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue import original
from dfc.games.dialogue.dialogue_game import DialogueGame, after_tag
from dfc.games.folding import fold
from dfc.games.game import Common, Outcome
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng
from dfc.games.task import DistinctTasks, distinct_tasks

ANSWERER = 0
SLOTS = 5  # of a form: as many questions, and as many probes before the first and after every one
ANSWER, ASIDE = "ANSWER:", "ASIDE:"
_TRIES = 5  # of a probe
_SIZES = {"train": 16, "validation": 12, "test": 10}  # of each experiment
_FILE = pathlib.Path(__file__).parent / "data" / "private_shared.json"
_NO_WORD = re.compile(r"[\W_]+")
_YES_OR_NO = re.compile(r"(yes|no)\b", re.IGNORECASE | re.ASCII)


@dataclasses.dataclass(frozen=True)
class Form:
    """A task: what the answerer knows, and what it will be asked. Slots are numbered in the order of the questions.

    Attributes:
      experiment: where it takes place, e.g. ``travel``.
      questioner: what its questions begin with, e.g. ``WAITER``.
      setting: what the rules begin with.
      values: by slot, e.g. ``Oslo``.
      lines: the form as the answerer sees it, in the order of the table, e.g. ``Destination: Oslo``.
      questions: of the questioner, by slot.
      probes: blocks of (slot, question put aside), one before the first question and one after every question.
      pool: values that the slots could have, those of the form among them; of a file these alone.
    """

    experiment: str
    questioner: str
    setting: str
    values: tuple[str, ...]
    lines: tuple[str, ...]
    questions: tuple[str, ...]
    probes: tuple[tuple[tuple[int, str], ...], ...]
    pool: tuple[str, ...]


@functools.cache
def table() -> dict[str, Any]:
    """Returns the settings by experiment: ``questioner``, ``setting``, and ``slots`` with values and wordings."""
    found: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


@functools.cache
def _forms() -> DistinctTasks[Form]:
    sizes = {split: size * len(table()) for split, size in _SIZES.items()}
    return distinct_tasks("PrivateShared", sizes, _form_of)


def _form_of(rng: GameRng, split: str, number: int) -> tuple[Form, frozenset[str]]:
    """Draws a form; the experiments take turns. Forms with the same values are alike, whatever the order."""
    del split
    experiment = list(table())[number % len(table())]
    setting = table()[experiment]
    slots = setting["slots"]
    filled = {name: _any(slot["values"], rng) for name, slot in slots.items()}
    order = _shuffled(list(slots), rng)
    probes = [
        tuple((order.index(name), _any(slots[name]["probes"], rng)) for name in _shuffled(list(slots), rng))
        for _ in range(SLOTS + 1)
    ]
    form = Form(
        experiment=experiment,
        questioner=setting["questioner"],
        setting=setting["setting"],
        values=tuple(filled[name] for name in order),
        lines=tuple(f"{slot['label']}: {filled[name]}" for name, slot in slots.items()),
        questions=tuple(_any(slots[name]["questions"], rng) for name in order),
        probes=tuple(probes),
        pool=tuple(value for slot in slots.values() for value in slot["values"]),
    )
    return form, frozenset(filled.values())


def _form_of_file(found: original.Instance) -> Form:
    """Returns the form of an instance of a file, in general words: it numbers wordings of a list that it lacks."""
    slots, order, tag = found.fields["slots"], found.fields["order"], found.fields["tag"]
    labels = {name: name.replace("-", " ") for name in slots}
    who = tag.replace("-", " ")
    return Form(
        experiment=found.experiment,
        questioner=who,
        setting=f"The {who.lower()} has to fill in a form with you.",
        values=tuple(slots[name] for name in order),
        lines=tuple(f"{labels[name].capitalize()}: {value}" for name, value in slots.items()),
        questions=tuple(f'What is to be written under "{labels[name]}"?' for name in order),
        probes=tuple(
            tuple((slot, f'Does the {who.lower()} know what belongs under "{labels[order[slot]]}"?') for slot in block)
            for block in found.fields["probes"]
        ),
        pool=tuple(slots.values()),
    )


def _any(items: Sequence[str], rng: GameRng) -> str:
    return items[rng.randrange(len(items))]


def _shuffled(items: list[str], rng: GameRng) -> list[str]:
    return [items.pop(rng.randrange(len(items))) for _ in range(len(items))]


def mentioned(value: str, text: str) -> bool:
    """Returns whether a text holds a value word by word, in any case and punctuation, folded (`dfc.games.folding`).

    >>> mentioned("red wine", "Red wine, please!"), mentioned("train", "a trainer")
    (True, False)
    """
    return _spaced(value) in _spaced(text)


def named(values: Sequence[str], text: str) -> int:
    """Returns how many of some values a text holds, one that stands within a longer one of them not counted.

    >>> named(("wine", "red wine", "tea"), "Red wine!"), named(("wine", "red wine", "tea"), "Red wine or wine or tea")
    (1, 3)
    """
    left, number = _spaced(text), 0
    for value in sorted(set(map(_spaced, values)), key=len, reverse=True):
        number += value in left
        left = left.replace(value, " / ")
    return number


@functools.lru_cache(maxsize=4096)
def _spaced(text: str) -> str:
    return f" {_NO_WORD.sub(' ', fold(text).lower()).strip()} "


def cohen_kappa(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Returns Cohen's kappa of two judgements of the same cases; 0 where both say the same of every case.

    (p_o - p_e) / (1 - p_e): p_o is the share of cases in which they agree, p_e the one to be expected of two judges
    who say yes as often as these, independently of each other.
    """
    cases, yes, also = len(first), sum(first), sum(second)
    agreed = cases * sum(a == b for a, b in zip(first, second, strict=True))
    chance = yes * also + (cases - yes) * (cases - also)
    return (agreed - chance) / (cases * cases - chance) if chance < cases * cases else 0.0


class PrivateShared(DialogueGame):
    """Private and shared.

    Rules: the only player, the answerer, has a form of five values. The questioner, a program, asks for each of them
    once, in an order that the player does not know. Before the first and after every question the player is asked
    aside, slot by slot, whether the questioner knows the value by now; an aside leaves no trace in the conversation.
    True is yes from the question for a slot on, or from an earlier answer on that held its value. A slot is filled if
    the answer to its question holds its value (`mentioned`). With a = filled slots / 5 and k = max(0, Cohen's kappa of
    the 30 asides and the truth), ``quality`` is 100 x 2 a k / (a + k). All slots filled and all asides true wins,
    anything else loses. An answer without its tag or of several lines breaks the game off, and so does the fifth reply
    to an aside that is neither yes nor no.

    Action: ``ANSWER: I want to see Oslo`` in the conversation, ``ASIDE: yes`` or ``ASIDE: no`` aside, where the first
    word counts and the tag ``ANSWER:`` will do as well. `legal_actions` is a selection: the values, and no answer.

    Differs from clembench:
      - Forms of our own tables (`experiment`: five settings), in three disjoint splits.
      - An answer that names more than `values_per_answer` values fills no slot, whether they are those of the form or
        others of our tables: the whole form in every answer would fill all, and any two of its values two slots of
        five. The truth of the asides moves all the same. 0, any number, is the rule of clembench.
      - An answer without its tag breaks the game off, as in the paper; in the code of April 2026 the game goes on.
      - Values are compared as whole words, in any punctuation; there as any part of the answer (7 is in 17).
      - The first word of a reply to an aside must be yes or no, behind either tag;
        there its first letters count (``nothing`` is no), behind ``ASIDE:`` only.
      - The conversation begins with the rules; there a reply ``Ok.`` is put into the player's mouth.
      - Thoughts before ``</think>`` are removed; only the first 2,000 characters are read.

    Attributes:
      values_per_answer: how many values an answer may name and fill its slot; 0: any number.
      form: of the task.
      filled: whether each slot asked for so far was filled.
      shared_from: by slot, the number of the question with whose answer its value is shared.
      probed: the replies to the asides so far, True for yes.
    """

    seats: ClassVar[int] = 1
    team: ClassVar[bool] = False
    player_roles: ClassVar[tuple[str, ...]] = ("answerer",)
    tags: ClassVar[tuple[str, ...]] = (ANSWER,)
    grammar: ClassVar[str] = "ANSWER: ... or ASIDE: yes or ASIDE: no"
    splits: ClassVar[Mapping[str, int]] = {name: SLOTS * size for name, size in _SIZES.items()}
    # An answer and five asides, and one of the five asides before the first question.
    turns_per_round: ClassVar[int] = SLOTS + 2

    def __init__(
        self, *, split: str = "train", values_per_answer: int = 1, instances: str = "", **common: Unpack[Common]
    ) -> None:
        super().__init__(split=split, rounds=SLOTS, instances=instances, **common)
        most = max((len(each.fields["order"]) for each in self._loaded), default=SLOTS)
        if not 0 <= values_per_answer <= most:
            raise ValueError(f"values_per_answer must be from 0 to {most}, got {values_per_answer}")
        self.values_per_answer = values_per_answer
        self.rounds = most
        self.max_turns = most + most * (most + 1)  # answers, and asides before the first and after every one
        self.form = self._task_form()
        self.filled: list[bool] = []
        self.shared_from = list(range(self.slots))
        self.probed: list[bool] = []

    def _experiment(self) -> str:
        """Returns where the conversation takes place, such as ``travel``."""
        return self.form.experiment

    @property
    def slots(self) -> int:
        """How many values the form has."""
        return len(self.form.values)

    @property
    def probe(self) -> tuple[int, str]:
        """The aside to be answered now, or next: its slot, and the question."""
        block, place = divmod(len(self.probed), self.slots)
        return self.form.probes[block][place]

    def allowances(self, seat: int) -> tuple[int, int]:
        """Returns none in the conversation, unless the constructor was given some; asides have five tries."""
        return (0, _TRIES - 1) if self.aside else super().allowances(seat)

    def tag(self, seat: int) -> str:
        """Returns ``ASIDE:`` where the seat is asked aside, else ``ANSWER:``."""
        return ASIDE if self.aside else self.tags[seat]

    def _form(self) -> str:
        return "ASIDE: yes or ASIDE: no" if self.aside else super()._form()

    def extract(self, reply: str) -> str | None:
        """Returns what is said aloud, or None if that is nothing or has several lines."""
        return None if "\n" in (spoken(reply) or "") else super().extract(reply)

    def _read(self, action: str) -> str | None:
        if not self.aside:
            return super()._read(action)
        said = _YES_OR_NO.match(after_tag(action, ASIDE) or after_tag(action, ANSWER) or "")
        return None if said is None else f"{ASIDE} {said[1].lower()}"

    # ---- the rules ------------------------------------------------------------------------------------------------

    def _task_form(self) -> Form:
        found = self._from_file()
        return _forms().of(self.split, max(0, self.task)) if found is None else _form_of_file(found)

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        self.form = self._task_form()
        self.filled, self.shared_from, self.probed = [], list(range(self.slots)), []

    def _begin(self) -> int:
        return self._ask_aside(super()._begin(), self._aside_question())

    def _rules(self, seat: int) -> str:
        del seat
        tag, who = self.form.questioner, self.form.questioner.lower()
        lines = "\n".join(self.form.lines)
        return (
            f"{self.form.setting} At first only you know this:\n{lines}\n"
            f"The {who} will ask you for these things, one after the other. The questions begin with {tag}:\n"
            "Reply to each with one short sentence that holds what was asked for and no more. Always begin it with "
            "ANSWER: and write one line only, for example\n"
            "ANSWER: It is a quarter past ten\n"
            f"In between you are asked aside what the {who} knows by now. These questions begin with ASIDE: and the "
            f"{who} hears neither them nor your reply, which is one of\n"
            "ASIDE: yes\nASIDE: no\n"
            "What counts is that every question gets what was asked for, and that every reply aside is true."
        )

    def _aside_question(self) -> str:
        return f"ASIDE: {self.probe[1]} Reply with ASIDE: yes or ASIDE: no"

    def _objection(self, action: str) -> str | None:
        del action  # what is wrong costs quality
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        if self.aside:
            self.probed.append(self._said(action) == "yes")
        else:
            self._answer(self._said(action))
        if len(self.probed) < self.slots * (len(self.filled) + 1):
            return self._ask_aside(ANSWERER, self._aside_question())
        if len(self.filled) == self.slots:
            won = all(self.filled) and self.truth() == self.probed
            return self._team(Outcome.WIN if won else Outcome.LOSS)
        if self.filled:
            self._next_round()
        self._tell(ANSWERER, f"{self.form.questioner}: {self.form.questions[len(self.filled)]}")
        return ANSWERER

    def _answer(self, said: str) -> None:
        question = len(self.filled)
        held = [slot for slot, value in enumerate(self.form.values) if mentioned(value, said)]
        clear = not self.values_per_answer or named(self.form.pool, said) <= self.values_per_answer
        self.filled.append(question in held and clear)
        for slot in held:
            self.shared_from[slot] = min(self.shared_from[slot], question)

    def truth(self) -> list[bool]:
        """Returns the true replies to the asides so far."""
        return [
            number // self.slots > self.shared_from[self.form.probes[number // self.slots][number % self.slots][0]]
            for number in range(len(self.probed))
        ]

    def legal_actions(self) -> list[str]:
        """Returns yes and no aside; in the conversation the values, and an answer without any."""
        if self.to_move is None:
            return []
        if self.aside:
            return [f"{ASIDE} yes", f"{ASIDE} no"]
        return [*(f"{ANSWER} {value}" for value in sorted(self.form.values)), f"{ANSWER} I would rather not say"]

    # ---- figures and copies -----------------------------------------------------------------------------------------

    def _quality(self) -> float:
        accuracy = sum(self.filled) / self.slots
        kappa = max(0.0, cohen_kappa(self.truth(), self.probed))
        return 200.0 * accuracy * kappa / (accuracy + kappa) if accuracy + kappa else 0.0

    def measures(self) -> dict[str, float]:
        """Returns the rounds begun; of a game that came to its end also quality, slot accuracy and kappa.

        ``slot_accuracy``, from 0 to 1, is the reward of Playpen's GRPO (Table 5), which leaves the asides out, and 0
        where the player broke the game off.
        """
        found = super().measures()
        if "quality" in found:
            found |= {
                "slot_accuracy": sum(self.filled) / self.slots,
                "kappa": cohen_kappa(self.truth(), self.probed),
            }
        elif self.outcomes is not None and self.outcomes[0] is Outcome.INVALID:
            found["slot_accuracy"] = 0.0
        return found

    def _position(self) -> dict[str, Any]:
        return {
            "filled": list(self.filled),
            "shared_from": list(self.shared_from),
            "probed": list(self.probed),
        }

    def _set_position(self, position: dict[str, Any]) -> None:
        self.form = self._task_form()
        self.filled, self.shared_from = list(position["filled"]), list(position["shared_from"])
        self.probed = list(position["probed"])

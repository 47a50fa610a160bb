"""Self-reward R_Q: a frozen model's marks for a query and its answer, read strictly; what has no mark is masked out.

Source: Language Self-Play (arXiv 2509.07414), section 3 and Box 3. Departures, where the paper says nothing: a reply
that cannot be read is asked for once more with another seed; then its answer is excluded from all means and losses.
Texts so long that the
judge has no room to reply have mark 0: their writer caused it, and if they were excluded, a policy with low marks
would learn to write them.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np

from dfc.errors import TrainingError, cut
from dfc.games.printable import printable
from dfc.scoring.scorer import PATIENCE

POINTS = 7
MOST_FAILURES = 0.2  # share of answers without a mark above which a run warns

_CALCULATION = re.compile(r"<calculation>\s*([01](?:\s*\+\s*[01]){6})\s*=\s*([0-9])\s*</calculation>", re.IGNORECASE)
_SCORE = re.compile(r"<score>\s*([0-9])\s*</score>", re.IGNORECASE)
_TAG = re.compile(r"</?(calculation|score)>", re.IGNORECASE)
_ORDER = ["<calculation>", "</calculation>", "<score>", "</score>"]

Ask = Callable[[Sequence[int], int], list[str]]  # (which answers, try) -> the judge's replies, in this order


@dataclasses.dataclass(frozen=True)
class Judged:
    """A judge's marks of n answers.

    Attributes:
      marks: float64 [n], 0 to 7; 0 where `mask` is False.
      mask: bool [n], which answers have a mark.
      replies: of each answer all the judge's replies, first to last try; none where it had no room.
    """

    marks: np.ndarray
    mask: np.ndarray
    replies: list[list[str]]

    @property
    def asked_again(self) -> int:
        """Answers whose first reply could not be read."""
        return sum(len(replies) > 1 for replies in self.replies)

    @property
    def read(self) -> int:
        """Answers whose mark the judge gave."""
        return int(self.mask.sum()) - self.without_room

    @property
    def without_room(self) -> int:
        """Answers that it was not asked about, as there was no room for its reply."""
        return sum(not replies for replies in self.replies)

    @property
    def failures(self) -> float:
        """Share of the answers without a mark."""
        return 1 - float(self.mask.mean()) if len(self.mask) else 0.0


def read_marks(reply: str) -> int | None:
    """Returns the score of a judge's reply; None unless all of it is in order.

    In order are: one calculation of seven points of 0 or 1 with their right sum, then one score, the same number; each
    pair of tags once, whatever surrounds them. Upper and lower case of tags do not matter.

    >>> read_marks("It helps. <calculation>1+1+0+1+0+1+0=4</calculation> <score>4</score>")
    4
    >>> read_marks("<calculation>1+1+0+1+0+1+0=5</calculation> <score>5</score>") is None
    True
    """
    if [tag[0].lower() for tag in _TAG.finditer(reply)] != _ORDER:
        return None
    calculation, score = _CALCULATION.search(reply), _SCORE.search(reply)
    if calculation is None or score is None:
        return None
    total = sum(int(point) for point in calculation[1].split("+"))
    return total if total == int(calculation[2]) == int(score[1]) else None


def judge(room: Sequence[bool], ask: Ask) -> Judged:
    """Returns a judge's marks of answers; those whose reply cannot be read are asked about once more.

    There is one `room` an answer: whether the judge's reply fits. `ask` returns the judge's replies to some answers, by
    number from 0; its second argument, 0 or 1, is to change the seed.
    """
    replies: list[list[str]] = [[] for _ in room]
    marks: list[int | None] = [None if fits else 0 for fits in room]
    for attempt in (0, 1):
        open_ = [number for number, mark in enumerate(marks) if mark is None]
        for number, reply in zip(open_, ask(open_, attempt) if open_ else [], strict=True):
            replies[number].append(reply)
            marks[number] = read_marks(reply)
    values = np.asarray([0 if mark is None else mark for mark in marks], np.float64)
    return Judged(values, np.asarray([mark is not None for mark in marks], bool), replies)


def refuse_silent(judged: int, marked: int, judgement: Judged) -> None:
    """Stops a run whose judge has never given a mark.

    Of the answers `judged` so far in the run it gave `marked` a mark; one of the newest replies is shown.

    Raises:
      TrainingError: `PATIENCE` answers or more, and no mark.
    """
    if marked or judged < PATIENCE:
        return
    example = next((replies[-1] for replies in judgement.replies if replies and replies[-1]), "")
    longer = "allow longer replies (rollout.max_judgement_length)" if example else "raise rollout.max_length"
    raise TrainingError(
        f"self-reward: the judge has given no mark in {judged} answers; its reply must hold seven points and their sum "
        f"between <calculation> tags and the sum between <score> tags, but was, for example: "
        f"{cut(printable(example), 400)!r}. Use a model that follows the prompt, {longer}, or "
        "train without self-reward: method='lsp_zero'"
    )

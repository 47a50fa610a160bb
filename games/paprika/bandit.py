"""Bandit: find the best of a few arms by trying them. Source: Paprika, appendix B.4.10."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.game import Common
from dfc.games.paprika.task import USELESS, AnswerGame, tagged
from dfc.games.rng import GameRng, derive_seed
from dfc.games.task import count_of

GAPS = (0.1, 0.2)  # the best arm's mean is this much above one half, the others' at least as much below
_FILE = pathlib.Path(__file__).parent / "data" / "bandit_scenarios.json"


@dataclasses.dataclass(frozen=True)
class BanditScenario:
    """What a scenario looks like.

    Attributes:
      text: where the player is and what counts as a reward.
      arms: the names of the choices, in lower case.
    """

    text: str
    arms: tuple[str, ...]


@functools.cache
def scenarios(split: str) -> tuple[BanditScenario, ...]:
    """Returns the scenarios of a split by task number; raises KeyError for another one."""
    found = json.loads(_FILE.read_text(encoding="utf-8"))[split]
    return tuple(BanditScenario(entry["setting"], tuple(entry["arms"])) for entry in found)


def sample_means(arms: int, rng: GameRng) -> tuple[int, list[float]]:
    """Returns the best arm's number and every arm's probability of a reward.

    gap ~ U(0.1, 0.2); the best arm, each equally likely, has 0.5 + gap; the others ~ U(0, 0.5 - gap) independently.
    """
    gap = GAPS[0] + (GAPS[1] - GAPS[0]) * rng.uniform()
    best = rng.randrange(arms)
    return best, [0.5 + gap if arm == best else (0.5 - gap) * rng.uniform() for arm in range(arms)]


class ArmGame(AnswerGame):
    """A game whose answers are the names of arms; any other one is taken and wastes a turn."""

    open_actions: ClassVar[bool] = True
    arms: tuple[str, ...]

    def _read_answer(self, answer: str) -> str | None:
        name = " ".join(answer.lower().split())
        if name in self.arms:
            return name
        return USELESS if name else None

    def legal_answers(self) -> list[str]:
        """Returns the names of the arms."""
        return list(self.arms)


class Bandit(ArmGame):
    """Best-arm identification.

    Rules: each of 3 to 7 arms pays a reward of 1 with a probability of its own, else 0. The player tries arms for
    `max_turns` - 1 turns and is told each reward; with the last turn it names the arm with the highest probability.
    That answer alone decides: right is a success. Each game takes exactly `max_turns` turns.

    Action: an arm's name, ``<Answer>blue</Answer>``; any case, runs of blanks count as one. Any other answer is
    the action ``<Answer>?</Answer>``: it costs a turn, with a message, and fails as the last one.

    Tasks: a task is a scenario, that is a text and its arms (81 for training, 1 for the test). The means are no part
    of it, as in the paper, which samples them again for each trial: they depend on split and whole seed, the rewards on
    the whole seed and the pulls before. So seed ``task + k * number_of_tasks`` is trial k of a scenario with means
    of its own, and equal seeds give equal means. A test over n trials takes the seeds 0 to n - 1.

    Differs from the paper / its code:
      - Texts of our own; as many scenarios of 3, 4, 5, 6 and 7 arms as there (47, 9, 11, 8, 6).
      - The call for a decision comes after the last try whatever was answered (there it is missing if that answer
        names no arm).
      - One test scenario and its trials (there a list of 100 equal copies of it).
      - The player is told how many tries are left.
      - Two different answers in a reply are no answer (there the first one counts), nor is an empty one.

    Attributes:
      scenario: the scenario, or None before the first `reset`.
      arms: the names of its arms, () before the first `reset`.
      pulls: tries so far as (number of the arm, reward); answers that name no arm are not among them.
    """

    splits: ClassVar[Mapping[str, int]] = {"train": 81, "test": 1}

    def __init__(self, *, split: str = "train", max_turns: int = 21, **common: Unpack[Common]) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        if max_turns < 2:
            raise ValueError(f"max_turns must be 2 or more, a try and the decision, got {max_turns}")
        self.scenario: BanditScenario | None = None
        self.arms = ()
        self.pulls: list[tuple[int, int]] = []
        self._best = -1
        self._means: list[float] = []

    def measures(self) -> dict[str, float]:
        """Returns figures of the tries so far.

        ``pulls``: their number; ``reward_sum``; ``regret``: sum over tries of the best arm's mean minus the arm's.
        """
        return {
            "pulls": float(len(self.pulls)),
            "reward_sum": float(sum(reward for _, reward in self.pulls)),
            "regret": sum((self._means[self._best] - self._means[arm] for arm, _ in self.pulls), 0.0),
        }

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the means belong to the trial, not to the task
        self.scenario = scenarios(self.split)[self.task]
        self.arms = self.scenario.arms
        self.pulls = []
        trial = GameRng(derive_seed("Bandit", self.split, self.rng.seed))
        self._best, self._means = sample_means(len(self.scenario.arms), trial)

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        text = "" if self.scenario is None else self.scenario.text
        tries = self.max_turns - 1
        return (
            f"{text} Your choices: {', '.join(self.arms)}. Each choice gives reward 1 with a fixed probability of its "
            f"own, which you do not know, else reward 0. Try choices for {count_of(tries, 'turn')}, then name the "
            "choice with the highest probability; only that last answer decides. An answer that is none of the choices "
            "wastes a turn. Reply with <Think>your thoughts, if any</Think> and one choice in tags, for example "
            f"{tagged(self.arms[0] if self.arms else '...')}."
        )

    def _take(self, answer: str) -> bool | None:
        left = self.max_turns - 1 - self.actions_played
        if left < 0:
            return answer == self.arms[self._best]
        if answer == USELESS:
            told = "That is none of the choices, no reward."
        else:
            arm = self.arms.index(answer)
            reward = int(self.rng.uniform() < self._means[arm])
            self.pulls.append((arm, reward))
            told = f"{answer}: reward {reward}."
        self._tell(0, f"{told} {count_of(left, 'try', 'tries')} left." if left else told)
        if not left:
            self._tell(0, "No tries left. Decide now: answer with the choice that has the highest probability.")
        return None

    def _position(self) -> dict[str, Any]:
        return {"best": self._best, "means": list(self._means), "pulls": [list(pull) for pull in self.pulls]}

    def _set_position(self, position: dict[str, Any]) -> None:
        self.scenario = scenarios(self.split)[self.task] if self.task >= 0 else None
        self.arms = () if self.scenario is None else self.scenario.arms
        self._best = position["best"]
        self._means = list(position["means"])
        self.pulls = [(arm, reward) for arm, reward in position["pulls"]]

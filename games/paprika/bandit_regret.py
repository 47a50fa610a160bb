"""Bandit with regret: earn as much as possible, each turn a conversation of its own. Source: Paprika, appendix J.

The task is that of Krishnamurthy et al., "Can large language models explore in-context?" (arXiv 2403.15371).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.game import Common
from dfc.games.paprika.bandit import ArmGame
from dfc.games.paprika.task import USELESS, tagged
from dfc.games.rng import GameRng
from dfc.games.task import count_of

BUTTONS = ("blue", "green", "red", "yellow", "purple", "orange", "white", "black", "pink", "gray")
_WASTED = -1  # in `choices`: the answer named no button


class BanditRegret(ArmGame):
    """The multi-armed bandit over a long horizon, where rewards count and not a final answer.

    Rules: one of `arms` buttons, each equally likely, pays a reward of 1 with probability 1/2 + `gap` / 200, the others
    with 1/2 - `gap` / 200, else 0. The player presses one button in each of `max_turns` turns. It has no memory
    (`stateless_roles`): each turn it is shown the whole problem again, with the number of presses and the mean reward
    of every button so far.

    Outcome: success if the best button is pressed at least once in the second half of the turns; the share of failures
    is the source's frequency of suffix failures at T/2. Pressing every button in turn succeeds always, so the outcome
    rewards no skill and the game is for evaluation only; what counts are the `measures`.

    Action: a button's name, ``<Answer>blue</Answer>``; any case, runs of blanks count as one. Any other answer is the
    action ``<Answer>?</Answer>``: it costs a turn and earns nothing.

    Tasks: a task is a draw of the best button, 100 of them as in the paper's 100 trials; the rewards depend on the
    whole seed and the presses before.

    Differs from the papers / their code:
      - Texts of our own, in the style of the source's buttons with a summarized history.
      - Regret is computed from the buttons' probabilities, not from the rewards that were drawn; a turn that was wasted
        or never came, because an unreadable reply ended the game, costs as much as the best button earns.
      - The paper's number of buttons, 5 at a gap of 0.2, is the source's hard instance; its easy one is ``arms=4,
        gap=50``.

    Attributes:
      arms: the names of the buttons.
      gap: how much the best button's probability of a reward is above the others', in percent.
      choices: turns so far as (number of the button, or -1 for an answer that named none; reward).
    """

    splits: ClassVar[Mapping[str, int]] = {"test": 100}
    stateless_roles: ClassVar[frozenset[str]] = frozenset({"player"})
    evaluation_only: ClassVar[bool] = True  # whoever presses every button in turn wins

    def __init__(
        self, *, split: str = "test", arms: int = 5, gap: int = 20, max_turns: int = 100, **common: Unpack[Common]
    ) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        if not 2 <= arms <= len(BUTTONS):
            raise ValueError(f"arms must be from 2 to {len(BUTTONS)}, got {arms}")
        if not 1 <= gap <= 100:
            raise ValueError(f"gap must be from 1 to 100 percent, got {gap}")
        self.arms = BUTTONS[:arms]
        self.gap = gap
        self.choices: list[tuple[int, int]] = []
        self._best = -1

    def mean(self, arm: int) -> float:
        """Returns the probability that a button pays."""
        return 0.5 + self.gap / 200 * (1 if arm == self._best else -1)

    def counts(self) -> list[tuple[int, int]]:
        """Returns for every button how often it was pressed and how often it paid."""
        rewards = [[reward for arm, reward in self.choices if arm == number] for number in range(len(self.arms))]
        return [(len(paid), sum(paid)) for paid in rewards]

    def measures(self) -> dict[str, float]:
        """Returns the figures of the game so far.

        ``regret``: T times the best button's mean, less the means of the buttons that were pressed, T = `max_turns`.
        ``reward_sum``: of all turns. ``best_arm_share``: of T turns, how many pressed the best button.
        """
        pressed = [arm for arm, _ in self.choices if arm != _WASTED]
        return {
            "regret": self.max_turns * self.mean(self._best) - sum((self.mean(arm) for arm in pressed), 0.0),
            "reward_sum": float(sum(reward for _, reward in self.choices)),
            "best_arm_share": pressed.count(self._best) / self.max_turns,
        }

    def _set_up(self, rng: GameRng) -> None:
        self._best = rng.randrange(len(self.arms))
        self.choices = []

    def _rules(self, seat: int) -> str:
        del seat  # there is one only
        seen = [
            f"{name} pressed {count_of(pressed, 'time')}, mean reward {paid / pressed:.2f}"
            if pressed
            else f"{name} never pressed"
            for name, (pressed, paid) in zip(self.arms, self.counts(), strict=True)
        ]
        turn = min(len(self.choices) + 1, self.max_turns)
        return (
            f"You are in a room with {len(self.arms)} buttons: {', '.join(self.arms)}. Each button gives reward 1 with "
            "a fixed probability of its own, which you do not know, else reward 0. You press one button in each of "
            f"{count_of(self.max_turns, 'turn')} and want the largest sum of rewards. So far: {'; '.join(seen)}. This "
            f"is turn {turn}. Reply with <Think>your thoughts, if any</Think> and one button in tags, for example "
            f"{tagged(self.arms[0])}."
        )

    def _take(self, answer: str) -> bool | None:
        if answer == USELESS:
            self.choices.append((_WASTED, 0))
        else:
            arm = self.arms.index(answer)
            self.choices.append((arm, int(self.rng.uniform() < self.mean(arm))))
        if len(self.choices) < self.max_turns:
            return None
        return any(arm == self._best for arm, _ in self.choices[self.max_turns // 2 :])

    def _position(self) -> dict[str, Any]:
        return {"best": self._best, "choices": [list(choice) for choice in self.choices]}

    def _set_position(self, position: dict[str, Any]) -> None:
        self._best = position["best"]
        self.choices = [(arm, reward) for arm, reward in position["choices"]]

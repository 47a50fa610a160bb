"""A game that another package plays: what its errors do to it, and the replies that it is made from again."""

from typing import Any, ClassVar

from dfc.games import loading
from dfc.games.game import Game, Outcome, Verdict


class Foreign(Game):
    """A game of another package, the base of its adapters; it comes before `Task` among the bases of a game of tasks.

    The state is (seed, replies): the package's own game is made from them again whenever it is needed and not there. An
    error raised inside the package ends the game as discarded, not as lost, and every seat's outcome is TRUNCATED; one
    that is raised while it begins leaves a game that is over at once.

    `legal_actions` is always []: nobody knows what is legal but by trying.

    Attributes:
      package: the other package, as messages name it.
      upstream: the game's name there.
    """

    open_actions: ClassVar[bool] = True
    lists_actions: ClassVar[bool] = False
    package: ClassVar[str] = ""
    upstream: ClassVar[str] = ""
    _replies: tuple[str, ...] = ()
    _session: Any = None  # the package's own game; None: to be made from the replies when it is needed

    def reset(self, seed: int) -> None:
        """Starts a new game, as in `Game`; where the package cannot begin it, it is over at once, and discarded."""
        try:
            super().reset(seed)
        except Exception as error:  # noqa: BLE001 (whatever the package raises ends its game and no other)
            self._end(self._discarded(error))

    def step(self, reply: str, *, well_formed: bool = True) -> Verdict:
        """Takes the reply of the seat to move, as in `Game`; DISCARDED where the package itself failed.

        Raises:
          ValueError: the game has not begun or is over.
        """
        verdict = super().step(reply, well_formed=well_formed)
        return verdict if self.discarded is None else Verdict.DISCARDED

    def legal_actions(self) -> list[str]:
        """Returns []: the package has no list of its actions."""
        return []

    def _discarded(self, error: Exception) -> tuple[Outcome, ...]:
        """Returns the outcomes of a game in which the package raised, and notes why it is discarded."""
        self.discarded = f"{self.upstream} of {self.package} raised {self._error_text(error)}"
        self._session = None
        return (Outcome.TRUNCATED,) * self.seats

    @staticmethod
    def _error_text(error: Exception) -> str:
        """Returns what an error of the package is called in a record, on one line."""
        return loading.error_text(error)

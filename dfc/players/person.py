"""A person at a terminal as a player."""

import sys
from typing import TextIO

from dfc.games.chance import Chance
from dfc.games.game import Game

_MOST_SHOWN = 40  # legal actions in a list
_HELP = "Type your reply; ? lists what you can play, quit ends the game."


class Quit(Exception):  # noqa: N818 - a wish, no error
    """The person wants no more."""


class Person:
    """Shows what a seat is to see and reads one line as its reply."""

    def __init__(self, read: TextIO | None = None, write: TextIO | None = None) -> None:
        """Sits down.

        Args:
          read: where lines come from; standard input if None.
          write: where text goes; standard output if None.
        """
        self._read = sys.stdin if read is None else read
        self._write = sys.stdout if write is None else write
        self._greeted = False

    def act(self, game: Game, chance: Chance) -> str:
        """Returns what the person writes.

        Raises:
          Quit: the person wrote ``quit``, or the input has ended.
        """
        del chance
        seat = game.to_move
        assert seat is not None  # noqa: S101 - only whoever is to move is asked
        if not self._greeted:
            self._show(f"{_HELP}\n")
            self._greeted = True
        for line in game.observation(seat).split("\n"):
            self._show(f"  | {line}")
        while True:
            self._write.write(f"{game.role(seat)} {seat}> ")
            self._write.flush()
            line = self._read.readline()
            reply = line.strip()
            if not line or reply.lower() in {"quit", "exit"}:
                raise Quit
            if reply == "?":
                self._list(game)
            elif reply:
                return reply

    def _list(self, game: Game) -> None:
        actions = game.legal_actions()
        for action in actions[:_MOST_SHOWN]:
            self._show(f"    {action}")
        if len(actions) > _MOST_SHOWN:
            self._show(f"    ... and {len(actions) - _MOST_SHOWN} more")
        if game.open_actions or not actions:
            self._show("    These are examples, more can be said." if actions else "    Say anything.")

    def _show(self, text: str) -> None:
        self._write.write(f"{text}\n")

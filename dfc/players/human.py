"""A person at a terminal as a player."""

import shutil
import textwrap
from typing import TextIO

from dfc.games.game import Game
from dfc.games.printable import printable
from dfc.games.rng import GameRng
from dfc.players.sequential import refusal

_ROWS_SHOWN = 20  # of legal actions in a list
_HELP = "Type your reply; ? lists what you can play, quit ends the game."
_INDENT = 4
_FORMS = {"[": "[{}]", "<Answer>": "<Answer>{}</Answer>"}  # what a grammar shows, and how it is put around an action


class Quit(Exception):  # noqa: N818 - a request, no error
    """The person quits."""


class Person:
    """Shows what a seat is to see and reads one line as its reply.

    Attributes:
      asks: whether it waits for a line at this moment.
    """

    def __init__(self, read: TextIO | None = None, write: TextIO | None = None, *, patient: bool = True) -> None:
        """Makes the player; by default it reads from the terminal and writes to standard output.

        Where `patient`, a line that cannot be played is refused with the reason before it reaches the game, so that no
        typing error costs a try; else it costs what the game's allowances say.
        """
        self._read = read
        self._write = write
        self._patient = patient
        self._greeted = False
        self.asks = False
        if read is None:
            _import_line_editing()

    def act(self, game: Game, rng: GameRng) -> str:
        """Returns what the person writes; brackets or tags that are left out are added.

        Raises:
          Quit: the person wrote ``quit``, or the input has ended.
        """
        del rng
        seat = game.to_move
        assert seat is not None  # noqa: S101 - only the seat to move is asked
        if not self._greeted:
            self._show(f"{_HELP}\n")
            self._greeted = True
        self._show(framed(game.observation(seat)))
        if board := game.board_text():
            self._show(framed(board))
        while True:
            typed = self._line(f"{seat_name(game, seat)}> ")
            if typed.lower() in {"quit", "exit"}:
                raise Quit
            if typed == "?":
                self._list(game)
            elif typed:
                reply, why = _read_as(game, seat, typed)
                if why is None or not self._patient:
                    return reply
                self._show(framed(why))

    def agrees(self, question: str) -> bool:
        """Returns whether the person says yes; the end of the input says no."""
        while True:
            try:
                typed = self._line(f"{question} (yes or no) ").lower()
            except Quit:
                return False
            if typed in {"y", "yes"}:
                return True
            if typed in {"n", "no", "quit", "exit"}:
                return False

    def _line(self, prompt: str) -> str:
        """Returns the next line, stripped; "" for one with control characters, which is reported. Quit: input ended."""
        self.asks = True
        try:
            if self._read is None:
                line = input(printable(prompt))  # unlike a file's readline it knows the keys that edit a line
            else:
                self._show(prompt, end="")
                line = self._read.readline()
                if not line:
                    raise Quit
        except EOFError:
            raise Quit from None
        finally:
            self.asks = False
        typed = " ".join(line.split())
        if typed.isprintable():
            return typed
        self._show("    A key sent no text (an arrow key?). Type the line again.")
        return ""

    def _list(self, game: Game) -> None:
        actions = game.legal_actions()
        rows = _rows(actions)
        self._show("".join(f"{row}\n" for row in rows[:_ROWS_SHOWN]), end="")
        left = len(actions) - sum(_per_row(actions) for _ in rows[:_ROWS_SHOWN])
        if left > 0:
            self._show(f"    ... and {left} more")
        if game.open_actions and actions:
            self._show("    These are examples, more can be said.")
        elif not actions:
            self._show("    There is no list; the rules say what can be played.")

    def _show(self, text: str, end: str = "\n") -> None:
        print(printable(text), end=end, file=self._write, flush=True)


def _import_line_editing() -> None:
    """Lets `input` edit lines and recall earlier ones, where Python has readline."""
    try:
        import readline  # noqa: F401, PLC0415 - importing it is all; some systems lack it
    except ImportError:
        return


def seat_name(game: Game, seat: int) -> str:
    """Returns what a seat is called: a role of its own, or that of all players with a number."""
    return game.player_role(seat) if seat >= game.seats or game.player_roles else f"{game.role(seat)} {seat}"


def framed(text: str) -> str:
    """Returns lines behind a bar, those too long for the terminal broken between words."""
    shown: list[str] = []
    for line in text.split("\n"):
        prefix = "  | " if line else ""
        whole = prefix + line
        if len(whole) > _columns():
            shown += textwrap.wrap(
                line,
                _columns(),
                initial_indent=prefix,
                subsequent_indent=prefix,
                break_long_words=False,
                break_on_hyphens=False,
                replace_whitespace=False,
            )
        else:
            shown.append(whole or "  |")
    return "\n".join(shown)


def _columns() -> int:
    return max(40, shutil.get_terminal_size().columns)


def _read_as(game: Game, seat: int, typed: str) -> tuple[str, str | None]:
    """Returns a line as the reply it stands for, and why it cannot be played, if so.

    What is readable as it stands is left alone. A bare action, ``4`` or ``crane``, gets the brackets or the tags that
    the grammar shows.
    """
    why = refusal(game, seat, typed)
    if why is None or seat >= game.seats or game.extract(typed) is not None:
        return typed, why
    bare = not set("[]<>") & set(typed)  # else the player meant another form, and an answer in tags may cost a turn
    forms = [form for mark, form in _FORMS.items() if bare and mark in game.grammar]
    for reply in (form.format(typed) for form in forms):
        told = refusal(game, seat, reply)
        if told is None or told != why:  # another reason: it could be read
            return reply, told
    return typed, why


def _per_row(actions: list[str]) -> int:
    widest = max(map(len, actions), default=0) + 2
    return max(1, (_columns() - _INDENT) // widest)


def _rows(actions: list[str]) -> list[str]:
    widest = max(map(len, actions), default=0) + 2
    size = _per_row(actions)
    groups = (actions[start : start + size] for start in range(0, len(actions), size))
    return [" " * _INDENT + "".join(action.ljust(widest) for action in group).rstrip() for group in groups]

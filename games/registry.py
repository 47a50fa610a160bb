"""The games by id: what there is, how a game is made, and what is wrong with a wish before it is made."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dfc.games.connect_four import ConnectFour
from dfc.games.game import Game
from dfc.games.guess_the_number import GuessTheNumber
from dfc.games.liars_dice import LiarsDice
from dfc.games.nim import Nim
from dfc.games.tic_tac_toe import TicTacToe
from dfc.games.tower_of_hanoi import TowerOfHanoi

# id -> class and the constructor values that differ from the class's own. Ids and values are those of TextArena 0.6.4.
_GAMES: dict[str, tuple[Callable[..., Game], dict[str, Any]]] = {
    "TicTacToe-v0": (TicTacToe, {}),
    "ConnectFour-v0": (ConnectFour, {}),
    "ConnectFour-v0-blind": (ConnectFour, {"is_open": False}),
    "TowerOfHanoi-v0": (TowerOfHanoi, {"num_disks": 3, "max_turns": 100}),
    "TowerOfHanoi-v0-medium": (TowerOfHanoi, {"num_disks": 4, "max_turns": 100}),
    "GuessTheNumber-v0": (GuessTheNumber, {"min_number": 1, "max_number": 20, "max_turns": 10}),
    "GuessTheNumber-v0-hardcore": (GuessTheNumber, {"min_number": 1, "max_number": 50, "max_turns": 7}),
    "LiarsDice-v0": (LiarsDice, {"num_dice": 5}),
    "Nim-v0": (Nim, {"piles": (3, 4, 5)}),
}


def ids() -> tuple[str, ...]:
    """Returns every registered id."""
    return tuple(_GAMES)


def make(game_id: str, /, **options: Any) -> Game:  # noqa: ANN401 (what is allowed depends on the game)
    """Returns a game with its `id` set, not yet reset.

    Args:
      game_id: a registered id.
      **options: constructor values that differ from `defaults(game_id)`.

    Raises:
      ValueError: the id or an option is wrong; the text lists everything that `problems` finds.
    """
    # Every episode makes a game, and nearly every wish is right: `problems`, which makes it once more, is for the rest.
    if not _right_types(game_id, options):
        raise ValueError("\n".join(problems(game_id, options)))
    try:
        game = _construct(game_id, options)
    except ValueError as error:
        raise ValueError("\n".join(problems(game_id, options))) from error
    game.id = game_id
    return game


def defaults(game_id: str) -> dict[str, Any]:
    """Returns all constructor values of a registered id, by name.

    Raises:
      ValueError: there is no such id.
    """
    if game_id not in _GAMES:
        raise ValueError(_unknown("there is no game id", game_id, _GAMES))
    kind, own = _GAMES[game_id]
    return _class_defaults(kind) | own


@functools.cache
def _class_defaults(kind: Callable[..., Game]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}


def problems(game_id: str, options: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with an id and its options, one sentence each; [] if the game can be made.

    Found are an unknown id, unknown options, values of a wrong type and values out of range; each sentence names what
    came and what is allowed. Never raises.
    """
    if not isinstance(game_id, str) or game_id not in _GAMES:
        return [_unknown("there is no game id", game_id, _GAMES)]
    known = defaults(game_id)
    found = []
    usable = {}
    for name, value in options.items():
        if name not in known:
            found.append(_unknown(f"{game_id} has no option", name, known))
        elif not _same_type(value, known[name]):
            wanted = "a tuple of int" if isinstance(known[name], tuple) else f"of type {type(known[name]).__name__}"
            found.append(f"{game_id}: {name} must be {wanted}, got {value!r} of type {type(value).__name__}")
        else:
            usable[name] = value
    return found + _range_problems(game_id, usable)


def _right_types(game_id: str, options: Mapping[str, Any]) -> bool:
    if not isinstance(game_id, str) or game_id not in _GAMES:
        return False
    known = defaults(game_id) if options else {}
    return all(name in known and _same_type(value, known[name]) for name, value in options.items())


def _construct(game_id: str, options: Mapping[str, Any]) -> Game:
    kind, own = _GAMES[game_id]
    values = {**own, **options}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _range_problems(game_id: str, options: dict[str, Any]) -> list[str]:
    """Returns the complaints of the constructor, which alone knows the ranges, about options of right types.

    Options are added one by one to those accepted so far. One that fails is tried again after the others, since a
    minimum above the usual maximum is right beside a larger maximum; what still fails then is wrong.
    """
    accepted: dict[str, Any] = {}
    waiting = options
    while True:
        refused = {}
        complaints = []
        for name, value in waiting.items():
            try:
                _construct(game_id, accepted | {name: value})
            except ValueError as error:
                refused[name] = value
                complaints.append(f"{game_id}: {error}")
            else:
                accepted[name] = value
        if len(refused) == len(waiting):
            return complaints
        waiting = refused


def _same_type(value: object, default: object) -> bool:
    # bool is a subclass of int, yet True is no number of disks: types are compared exactly.
    if isinstance(default, tuple):
        return isinstance(value, (tuple, list)) and all(type(item) is int for item in value)
    return type(value) is type(default)


def _unknown(lead: str, name: object, known: Iterable[str]) -> str:
    names = list(known)
    folded = {candidate.lower(): candidate for candidate in names}
    nearest = folded[difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=0.0)[0]]
    return f"{lead} {name!r}; did you mean {nearest!r}? Known are {', '.join(names)}"

"""Scripted players for every game: random legal play, simple play, strong play, and simulators that follow a script.

A scripted player looks into the game instead of reading its text, but only at what the seat to move may know: its own
dice, the hints, the public position. It never looks at the opponent's dice or at the hidden number. (Simulators reply
for the game's world and know what is hidden.)
"""

import dataclasses
import functools
import importlib
import pkgutil
import sys
from typing import Literal, Protocol

from dfc.games import bots, registry
from dfc.games.bots.bot import Choose, GameBots
from dfc.games.game import Game
from dfc.games.rng import GameRng

Strength = Literal["random_legal", "simple", "strong"]
STRENGTHS: tuple[Strength, ...] = ("random_legal", "simple", "strong")


class Player(Protocol):
    """A player that chooses the action of the seat to move."""

    def act(self, game: Game, rng: GameRng) -> str:
        """Returns a legal action for the seat to move.

        The game is in progress and is not changed; `rng` is the player's own, never the stream of the game.
        """
        ...


@dataclasses.dataclass(frozen=True)
class RandomLegal:
    """Chooses among the legal actions, each with the same probability; plays every game."""

    def act(self, game: Game, rng: GameRng) -> str:
        """Returns one of `game.legal_actions()`.

        Raises:
          ValueError: the game has not begun or is over, or a simulator is to move.
        """
        actions = game.legal_actions()
        if not actions and not game.lists_actions:
            raise ValueError(f"{game.id}: it lists no legal actions, so nobody can choose one of them at random")
        if not actions and game.to_move is not None:
            raise ValueError(f"{game.id}: the {game.role(game.to_move)} is to move, who has no list; see `simulators`")
        if not actions:
            raise ValueError(f"{game.id}: no action is legal after the end or before reset(); check `over` first")
        return actions[rng.randrange(len(actions))]


@dataclasses.dataclass(frozen=True)
class Scripted:
    """Plays one kind of game by a fixed method; `choose` is (game, seat to move, rng) -> action."""

    kind: type[Game]
    choose: Choose

    def act(self, game: Game, rng: GameRng) -> str:
        """Returns the chosen action.

        Raises:
          TypeError: the game is of another kind.
          ValueError: the game has not begun or is over.
        """
        if not isinstance(game, self.kind):
            raise TypeError(f"this player plays {self.kind.__name__}, got a game of {type(game).__name__}")
        if game.to_move is None:
            raise ValueError(f"{game.id}: no action is legal after the end or before reset(); check `over` first")
        return self.choose(game, game.to_move, rng)


def player(game: str | Game, strength: Strength) -> Player:
    """Returns a player of a strength; the docstring of each bot says what it does.

    Args:
      game: a game or its id; options do not matter. Of a class outside this package the module that defines it, or the
        one that its entry point names, brings the players in ``BOTS``, a tuple of
        `dfc.games.bots.bot.GameBots`.
      strength: ``random_legal``, ``simple`` or ``strong``.

    Raises:
      ValueError: there is no such player for it.
    """
    if strength == "random_legal":
        kind = _kind(game)
        if not kind.lists_actions:
            raise ValueError(f"no random_legal player for {kind.__name__!r}: it lists no legal actions")
        return RandomLegal()
    if strength not in STRENGTHS:
        raise ValueError(f"strength must be one of {', '.join(STRENGTHS)}, got {strength!r}")
    found = _bots(game, f"{strength} player")
    return Scripted(found.kind, found.strong if strength == "strong" else found.simple)


def strong(game: str | Game) -> Player:
    """Returns the strong player of a game or of its id; options do not matter.

    Raises:
      ValueError: there is no strong player for it.
    """
    return player(game, "strong")


def simulators(game: str | Game) -> dict[str, Player]:
    """Returns scripted simulators by role, {} for a game without.

    Raises:
      ValueError: the game has simulators and no scripts for them.
    """
    kind = _kind(game)
    if not kind.simulators:
        return {}
    found = _bots(game, "simulators")
    return {role: Scripted(found.kind, choose) for role, choose in found.simulators.items()}


def _kind(game: str | Game) -> type[Game]:
    if isinstance(game, Game):
        return type(game)
    kind = registry.kind(game)
    return kind if isinstance(kind, type) else type(registry.make(game))


def _bots(game: str | Game, wanted: str) -> GameBots:
    known = _all()
    kind = _kind(game)
    found = known.get(kind) or _brought(kind)
    if found is None:
        names = ", ".join(sorted(k.__name__ for k in known))
        raise ValueError(
            f"no {wanted} for {kind.__name__!r}; there is one for {names}; a game outside this package brings its own "
            "in BOTS of its module"
        )
    return found


def _brought(kind: type[Game]) -> GameBots | None:
    """Returns how a game outside this package is played, from the modules that define and name it."""
    for name in dict.fromkeys((kind.__module__, *registry.installed_modules())):
        brought: object = getattr(sys.modules.get(name), "BOTS", ())
        if not isinstance(brought, (tuple, list)) or not all(isinstance(found, GameBots) for found in brought):
            raise ValueError(f"{name}.BOTS must be a tuple of dfc.games.bots.bot.GameBots, got {brought!r}")
        mine: list[GameBots] = [found for found in brought if found.kind is kind]
        if mine:
            return mine[0]
    return None


@functools.cache
def _all() -> dict[type[Game], GameBots]:
    names = (module.name for module in pkgutil.iter_modules(bots.__path__, f"{bots.__name__}."))
    modules = [importlib.import_module(name) for name in names]
    return {found.kind: found for module in modules for found in getattr(module, "BOTS", ())}

"""Makes players from what `dfc.players.player_specs` reads; models are made where there is an engine."""

from typing import Any

from dfc.config import EndpointConfig
from dfc.games import scripted
from dfc.games.game import Game
from dfc.games.rng import GameRng
from dfc.games.scripted import Player, Strength
from dfc.players.endpoint_config import split_name
from dfc.players.player_specs import PlayerSpec
from dfc.players.remote import Remote


class AnyGameBot:
    """A scripted player of one strength that plays whatever game it is shown."""

    def __init__(self, strength: Strength) -> None:
        self._strength = strength
        self._players: dict[type[Game], Player] = {}

    def act(self, game: Game, rng: GameRng) -> str:
        """Returns the action of the game's own scripted player.

        Raises:
          ValueError: there is no scripted player of this strength for the game.
        """
        kind = type(game)
        if kind not in self._players:
            self._players[kind] = scripted.player(game, self._strength)
        return self._players[kind].act(game, rng)


def player(spec: PlayerSpec, config: EndpointConfig | None = None) -> Player | Remote:
    """Returns a scripted player, or a chat endpoint that is asked as `config` says; None: as by default.

    Raises:
      ConfigError: the endpoint cannot be asked so. ValueError: it is a model.
    """
    if spec.kind == "model":
        raise ValueError(f"{spec.who}: is a model, which plays in an engine")
    if spec.kind == "scripted":
        strength: Any = spec.who
        return AnyGameBot(strength)
    from dfc.players.endpoint import Endpoint  # noqa: PLC0415 - imports a network client

    return Endpoint(*split_name(spec.who), config or EndpointConfig(), name=spec.name)

"""Players by name: what a configuration or a command line can call somebody who is no policy of the run."""

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dfc.errors import ConfigError
from dfc.games import scripted
from dfc.games.game import Game
from dfc.games.rng import GameRng
from dfc.games.scripted import STRENGTHS, Player, Strength
from dfc.players.endpoint_config import EndpointConfig, check, split_name
from dfc.players.remote import Remote

EXAMPLE = "http://127.0.0.1:8000/v1#my-model"
_OWN = ("base_url", "model", "key_variable")  # of an endpoint, what its name and the key's flag say
# A host with a port, a path or a model after it, and no http:// before it.
_BARE_ADDRESS = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+)(:\d+)?(/[^\s#]*)?#.*|(localhost|[\w.-]+):\d+(/\S*)?")


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


def is_endpoint(name: str) -> bool:
    """Returns whether a name is a chat endpoint's, ``http://HOST/v1#MODEL``."""
    return "://" in name


def problem(name: str, known: Sequence[str] = STRENGTHS) -> str | None:
    """Returns what is wrong with a name, or None; the sentence says what it can be.

    Args:
      name: as for `player`.
      known: names that are right where this one was given, apart from those of endpoints.
    """
    if is_endpoint(name):
        return None if name.partition("#")[2] else f"name the model after a #, as in {EXAMPLE}"
    if name in known:
        return None
    if _BARE_ADDRESS.fullmatch(name):
        host, _, model = name.partition("#")
        return f"an address begins with http:// or https://; did you mean 'http://{host}#{model or 'MODEL'}'?"
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? It " if near else ""
    return f"{hint}must be {', '.join(known)}, or a chat endpoint such as {EXAMPLE}"


def player(name: str, key_variable: str = "", settings: Mapping[str, Any] | None = None) -> Player | Remote:
    """Returns a scripted player or a chat endpoint.

    Args:
      name: ``random_legal``, ``simple``, ``strong``, or an endpoint's address, then # and the model's name.
      key_variable: the environment variable that holds an endpoint's key.
      settings: of an endpoint, fields of `dfc.players.endpoint_config.EndpointConfig` such as ``{"timeout": 30}``.

    Raises:
      ConfigError: the name fits neither, or the settings no endpoint.
    """
    wrong = problem(name)
    if wrong is not None:
        raise ConfigError([f"{name}: {wrong}"])
    if not is_endpoint(name):
        strength: Any = name
        return AnyGameBot(strength)
    from dfc.players.endpoint import Endpoint  # noqa: PLC0415 - imports a network client

    return Endpoint(*split_name(name), endpoint_config(name, key_variable, settings))


def endpoint_config(name: str, key_variable: str = "", settings: Mapping[str, Any] | None = None) -> EndpointConfig:
    """Returns how the endpoint that a name means is asked; the arguments are those of `player`.

    Raises:
      ConfigError: the name or the settings fit no endpoint; lists every problem.
    """
    known = [field.name for field in dataclasses.fields(EndpointConfig) if field.name not in _OWN]
    unknown = [setting for setting in settings or () if setting not in known]
    if unknown:
        raise ConfigError([f"endpoint.{setting}: {_no_setting(setting, known)}" for setting in unknown])
    config = EndpointConfig(key_variable=key_variable, **(settings or {}))
    check(*split_name(name), config)
    return config


def _no_setting(name: str, known: Sequence[str]) -> str:
    if name in _OWN:
        return "the endpoint's name says where it is and what model, http://HOST/v1#MODEL; the key has its own flag"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"there is no such setting; {f'did you mean {near[0]!r}? ' if near else ''}Known are {', '.join(known)}"

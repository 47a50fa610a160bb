"""``python -m dfc.launch.play --game=ID``: play a game in the terminal, against a program, a model or an endpoint."""

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from typing import Any, TextIO, get_args

from dfc.errors import ConfigError, DfcError
from dfc.games import registry, scripted
from dfc.games.chance import Chance, derive_seed
from dfc.games.game import Game
from dfc.games.scripted import Player, Strength
from dfc.players import rounds
from dfc.players.person import Person, Quit
from dfc.players.remote import Remote

_EPILOGUE = """\
opponents and staff:
  random_legal, simple, strong    a program (staff: script, the program that knows the game's world)
  person                          you, too
  http://HOST/v1#MODEL            a server with OpenAI's chat interface; --key_variable names where its key stands
  FOLDER or NAME                  a model that plays with dfc's engine, e.g. tiny_player, the one in the box (opponent)
examples:
  python -m dfc.launch.play --game=ConnectFour-v0 --opponent=strong
  python -m dfc.launch.play --game=TicTacToe-v0 --opponent=tiny_player --seat=1
  python -m dfc.launch.play --game=twenty_questions --split=test --seed=3
"""
_SCRIPT = "script"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dfc.launch.play",
        description="Plays one game with you in the terminal. python -m dfc.games lists the games.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--game", required=True, help="its id", metavar="ID")
    add("--options", default="{}", help='constructor values as JSON, e.g. {"num_disks": 5}', metavar="JSON")
    add("--split", help="short for the option split, where a game has tasks", metavar="NAME")
    add("--seed", type=int, help="of the deal, or the number of a task; drawn if absent")
    add("--seat", type=int, default=0, help="yours (0)")
    add("--opponent", default="strong", help="who sits opposite (strong)", metavar="WHO")
    add("--player", default="person", help="who sits on your seat (person)", metavar="WHO")
    add("--world", default=_SCRIPT, help="who answers for the game's world (script)", metavar="WHO")
    add("--key_variable", default="", help="environment variable with the key of an endpoint", metavar="NAME")
    add("--judge", default=_SCRIPT, help="who judges (script)", metavar="WHO")
    return parser


def main(arguments: Sequence[str], read: TextIO | None = None, write: TextIO | None = None) -> int:
    """Runs what the words after ``python -m dfc.launch.play`` ask for.

    Returns:
      The exit code: 0 the game was played or left, 1 a player failed, 2 wrong command line.
    """
    known = _parser().parse_args(list(arguments))
    out = sys.stdout if write is None else write
    try:
        game = _make(known)
        players = _seated(known, game, Person(read, out))
    except (DfcError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    seed = secrets.randbelow(1 << 31) if known.seed is None else known.seed
    game.reset(seed)
    out.write(f"{game.id}, seed {seed}\n")
    try:
        said = rounds.play_out(game, players, Chance(derive_seed("play", seed)))
    except Quit:
        out.write("\nLeft.\n")
        return 0
    except DfcError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        for player in players:
            if hasattr(player, "close"):
                player.close()
    if not any(isinstance(player, Person) for player in players):  # nobody has seen it
        out.writelines(f"{game.role(reply.seat)} {reply.seat}: {reply.text}\n" for reply in said)
    _tell_end(game, said, known.seat, out)
    return 0


def _make(known: argparse.Namespace) -> Game:
    try:
        options: Any = json.loads(known.options)
    except ValueError as error:
        raise ConfigError([f"--options={known.options}: no JSON: {error}"]) from error
    if not isinstance(options, dict):
        raise ConfigError([f"--options={known.options}: expected an object"])
    if known.split is not None:
        options["split"] = known.split
    game = registry.make(known.game, **options)
    if not 0 <= known.seat < game.seats:
        raise ConfigError([f"--seat={known.seat}: {game.id} has seats 0 to {game.seats - 1}"])
    if known.seed is not None and not 0 <= known.seed < 1 << 63:
        raise ConfigError([f"--seed={known.seed}: expected a number from 0 to 2 ** 63 - 1"])
    return game


def _seated(known: argparse.Namespace, game: Game, person: Person) -> list[Player | Remote]:
    """Returns who sits on each seat."""
    wanted = [known.player if seat == known.seat else known.opponent for seat in range(game.seats)]
    players = [_player(who, game, person, known.key_variable) for who in wanted]
    for role in game.staff:
        who = {"world": known.world, "judge": known.judge}.get(role, _SCRIPT)
        players.append(scripted.staff(game)[role] if who == _SCRIPT else _player(who, game, person, known.key_variable))
    return players


def _player(who: str, game: Game, person: Person, key_variable: str) -> Player | Remote:
    if who == "person":
        return person
    if who in get_args(Strength):
        strength: Any = who
        return scripted.player(game, strength)
    if "://" in who:
        from dfc.players.endpoint import Endpoint  # noqa: PLC0415 - imports a network client
        from dfc.players.endpoint_config import EndpointConfig  # noqa: PLC0415 - same

        url, _, model = who.partition("#")
        if not model:
            raise ConfigError([f"{who}: name the model behind a #, as in http://127.0.0.1:8000/v1#my-model"])
        return Endpoint(EndpointConfig(base_url=url, model=model, key_variable=key_variable))
    from dfc.rollout.local import LocalPlayer  # noqa: PLC0415 - imports jax and reads a checkpoint

    # Every grammar of the games ends with one of these; a reply that goes on behind it would only take time.
    return LocalPlayer(who, stop=("]",) if game.grammar.endswith("]") else ())


def _tell_end(game: Game, said: Sequence[rounds.Said], seat: int, out: TextIO) -> None:
    out.writelines(f"  | {line}\n" if line else "" for line in game.observation(seat).split("\n"))
    outcomes = ", ".join(f"seat {number} {outcome}" for number, outcome in enumerate(game.outcomes or ()))
    out.write(f"Over after {len(said)} replies: {outcomes}.\n")
    if game.discarded is not None:
        out.write(f"The game was discarded: {game.discarded}.\n")
    out.writelines(f"  {name}: {value:g}\n" for name, value in game.measures().items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

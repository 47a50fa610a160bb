"""``python -m dfc.launch.play --game=ID``: a game in the terminal, against a bot, a model or an endpoint."""

import argparse
import concurrent.futures
import contextlib
import functools
import json
import os
import secrets
import signal
import sys
import time
import urllib.parse
from collections.abc import Sequence
from types import FrameType
from typing import Any, TextIO

from dfc import own_code
from dfc.commands import shell_line
from dfc.config import EndpointConfig, fields
from dfc.errors import ConfigError, DfcError, ExitError
from dfc.games import registry, scripted
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import STRENGTHS, Player, Strength
from dfc.launch import devices
from dfc.launch.help_text import truth
from dfc.players import factory, key_search, player_specs, sequential
from dfc.players.human import Person, Quit, framed, seat_name
from dfc.players.remote import ChatMessage, PlayerError, Remote
from dfc.runs.printing import Printed, guarded

_HERE = shell_line("dfc.launch.play")
_EPILOGUE = f"""\
opponents and simulators:
  random_legal, simple, strong    a scripted player (simulators: script, which knows the game's world)
  person                          you, too
  http://HOST/v1#MODEL            a server with OpenAI's chat interface; --key_variable names where its key stands
  FOLDER or tiny_player           a model, or a run's policy, that plays with dfc's engine; tiny_player is bundled
examples:
  {_HERE} --game=ConnectFour-v0 --opponent=strong
  {_HERE} --game=TicTacToe-v0 --opponent=tiny_player --seat=1
  {_HERE} --game=twenty_questions --split=test --seed=3
  {_HERE} --game=race.py:Race --opponent=http://localhost:8000/v1#m --endpoint='{{"timeout": 30}}'
exit code: 0 the game was played or left, 1 a player failed or the game was discarded, 2 wrong command line, 130 Ctrl-C
"""
_SCRIPT = "script"
_PERSON = "person"
_FOLDERS = f"{player_specs.BUNDLED}, a folder with weights or a run"
_OWN = ("base_url", "model", "key_variable")  # of an endpoint, what its name and the key's flag say
_STRONGEST_FIRST: tuple[Strength, ...] = ("strong", "simple", "random_legal")
_FIRST_WAIT, _NEXT_WAIT = 2.0, 30.0  # seconds until a line names the player that is waited for, and between such lines
_SHOWN = 200  # characters of a reply


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dfc.launch.play",
        description=f"Plays one game with you in the terminal. {shell_line('dfc.games')} lists the games.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--game", required=True, help="its id, or FILE.py:CLASS for one of your own", metavar="ID")
    add("--options", default="{}", help='constructor values as JSON, e.g. {"num_disks": 5}', metavar="JSON")
    add("--split", help="short for the option split, where a game has tasks", metavar="NAME")
    add("--seed", type=int, help="of the deal, or the number of a task; random if absent")
    add("--seat", default="0", help="yours: its number (0), or its role, e.g. guesser", metavar="SEAT")
    add("--opponent", help="the opposite player (strong; random_legal where there is none)", metavar="PLAYER")
    add("--player", default=_PERSON, help="the player of your seat (person)", metavar="PLAYER")
    add("--world", help="the player of the game's world (script)", metavar="PLAYER")
    add("--judge", help="the judge (script)", metavar="PLAYER")
    add("--key_variable", default="", help="environment variable with the key of an endpoint", metavar="NAME")
    add("--endpoint", help='settings of endpoints as JSON (docs/endpoints.md), e.g. {"timeout": 30}', metavar="JSON")
    add("--enable_thinking", type=truth, help="true or false: passed to chat templates of models", metavar="BOOL")
    return parser


def main(
    arguments: Sequence[str],
    read: TextIO | None = None,
    write: TextIO | None = None,
    players: list[Player | Remote] | None = None,
) -> int:
    """Runs what the words after ``python -m dfc.launch.play`` ask for.

    By default a person's lines come from the terminal, and text goes to standard output. `players` is an empty list
    that gets all players, for a handler of signals.

    Returns:
      The exit code: 0 the game was played or left, 1 a player failed or the game was discarded, 2 wrong command line,
      130 interrupted.
    """
    with guarded():
        args = _parser().parse_args(list(arguments))
        out: Any = sys.stdout if write is None else Printed(write)
        return _main(args, arguments, read, out, [] if players is None else players)


def _main(
    args: argparse.Namespace,
    words: Sequence[str],
    read: TextIO | None,
    out: TextIO,
    players: list[Player | Remote],
) -> int:
    try:
        with own_code.no_exit(f"--game={args.game}"):
            try:
                _refuse_keys(args, words)
                game = _make(args)
                args.seat = _seat(args.seat, game)
                _check(args, game)
                patient = not {"illegal_allowance", "malformed_allowance"} & _object("options", args.options).keys()
                person = Person(read, out, patient=patient)
                _seat_players(args, game, person, players, out)
            except (DfcError, ValueError, OSError) as error:
                sys.stderr.write(f"{error}\n")
                return 2
            return _play(args, game, players, out)
    except ExitError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except Quit:
        out.write("\nLeft.\n")
        return 0
    except KeyboardInterrupt:
        out.write("\nLeft.\n")
        out.flush()  # closing an endpoint may take seconds
        return 130
    finally:
        _close(players)


def _close(players: Sequence[Player | Remote]) -> None:
    for player in players:
        try:
            if hasattr(player, "close"):
                player.close()
        except KeyboardInterrupt:  # a second interrupt: what it waits for is given up
            continue


def _interrupted(players: Sequence[Player | Remote], _number: int, _frame: FrameType | None) -> None:
    """Leaves at Ctrl-C: by an exception at a prompt, else at once.

    An exception raised while libraries are loaded or a model computes is lost in a callback, or ends in a crash. At a
    prompt nothing of that runs, and the terminal must be given back as it was.
    """
    if any(isinstance(player, Person) and player.asks for player in players):
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with contextlib.suppress(RuntimeError, OSError):  # this may be in the middle of another write
        sys.stdout.flush()
    os.write(1, b"\nLeft.\n")
    _close([player for player in players if isinstance(player, Remote)])  # replies under way are paid for
    os._exit(130)


def _play(args: argparse.Namespace, game: Game, players: Sequence[Player | Remote], out: TextIO) -> int:
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    game.reset(seed)
    out.write(f"{game.id}, seed {seed}{_task(game)}\n")
    person = next((player for player in players if isinstance(player, Person)), None)

    def ask(remote: Remote, chat: list[ChatMessage]) -> str:
        while True:
            try:
                return _ask_with_notices(remote, chat, out)
            except PlayerError as error:
                if person is None or not person.agrees(f"{error}\nTry again?"):
                    raise

    try:
        sequential_replies = sequential.play_sequentially(game, players, GameRng(derive_seed("play", seed)), ask=ask)
    except DfcError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if person is None:  # no player has seen it
        out.writelines(f"{seat_name(game, reply.seat)}: {reply.text}\n" for reply in sequential_replies)
    _print_end(game, sequential_replies, args.seat, out)
    out.write(_result(game, players))
    return 0 if game.discarded is None else 1


def _ask_with_notices(remote: Remote, chat: list[ChatMessage], out: TextIO) -> str:
    """Returns a remote player's reply; prints now and then that it is waited for."""
    call = remote.ask(chat)
    next_notice = time.monotonic() + _FIRST_WAIT
    while not call.done():
        concurrent.futures.wait([call], max(0.0, next_notice - time.monotonic()))
        if not call.done() and time.monotonic() >= next_notice:
            out.write(f"waiting for {remote.name} ...\n")
            out.flush()
            next_notice += _NEXT_WAIT
    return call.result()


# ---- the command line -----------------------------------------------------------------------------------------------


def _object(flag: str, text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"--{flag}={text}: no JSON: {error}"]) from error
    if not isinstance(found, dict):
        raise ConfigError([f"--{flag}={text}: expected an object"])
    return found


def _refuse_keys(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Refuses a key or a password in the place of anything else, before a message repeats it (ConfigError)."""
    wrong = key_search.word_problems([*words, f"--key_variable={args.key_variable}"], [args.key_variable])
    if wrong:
        raise ConfigError(wrong)


def _make(args: argparse.Namespace) -> Game:
    options = _object("options", args.options)
    if args.split is not None:
        options["split"] = args.split
    return registry.make(args.game, **options)


def _check(args: argparse.Namespace, game: Game) -> None:
    """Refuses what cannot be, and what would be ignored; ConfigError: lists every problem."""
    found = _seat_problems(args, game)
    wanted = {name: getattr(args, name) for name in ("player", "opponent", "world", "judge")}
    wanted = {name: who for name, who in wanted.items() if who is not None}
    for name, who in wanted.items():
        wrong = _player_problem(who, simulator=name in ("world", "judge"))
        if wrong is not None:
            found.append(f"--{name}={who}: {wrong}")
    endpoints = [who for who in wanted.values() if player_specs.is_endpoint(who)]
    hosts = sorted({urllib.parse.urlsplit(who).netloc.lower() for who in endpoints})
    if args.key_variable and len(hosts) > 1:  # each would learn the key of the others
        found.append(f"--key_variable={args.key_variable}: a key is for one server, but there are {hosts}")
    idle = [flag for flag in ("key_variable", "endpoint") if getattr(args, flag) and not endpoints]
    found += [f"--{flag}: no endpoint plays; name one, e.g. --opponent={player_specs.EXAMPLE}" for flag in idle]
    if found:
        raise ConfigError(found)


def _seat(named: str, game: Game) -> int:
    """Returns a seat by number, which may be none of the game's, or by its player's role; ValueError: neither."""
    return int(named) if named.removeprefix("-").isdecimal() and len(named) < 5 else game.seat_of(named)


def _seat_problems(args: argparse.Namespace, game: Game) -> list[str]:
    """Returns what this game has no use for."""
    found = []
    if not 0 <= args.seat < game.seats:
        found.append(f"--seat={args.seat}: {game.id} has seats 0 to {game.seats - 1}")
    if args.seed is not None and not 0 <= args.seed < 1 << 63:
        found.append(f"--seed={args.seed}: expected a number from 0 to 2 ** 63 - 1")
    if args.opponent is not None and game.seats == 1:
        found.append(f"--opponent={args.opponent}: {game.id} has one player and no opposite seat")
    for role in ("world", "judge"):
        if getattr(args, role) is not None and role not in game.simulators:
            names = " and ".join(game.simulators)
            simulators = f"its simulators: {names}" if names else "no simulator answers for its world"
            found.append(f"--{role}={getattr(args, role)}: {game.id} has no {role}; {simulators}")
    seated = [
        who for who in (args.player, args.opponent, args.world, args.judge) if who not in (None, _PERSON, _SCRIPT)
    ]
    if args.enable_thinking is not None and not any(player_specs.is_model(who) for who in seated):
        found.append(
            f"--enable_thinking={str(args.enable_thinking).lower()}: no local model plays; an endpoint takes it "
            """by --endpoint='{"extra_body": {"chat_template_kwargs": {"enable_thinking": false}}}'"""
        )
    return found


def _player_problem(who: str, *, simulator: bool) -> str | None:
    """Returns why no player has this name, or None."""
    strengths = (_SCRIPT,) if simulator else STRENGTHS  # scripted players of a strength sit on players' seats
    words = (*strengths, _PERSON)
    if who in words:
        return None
    if simulator and who in STRENGTHS:
        return f"must be {', '.join(words)}, {_FOLDERS}, or a chat endpoint such as {player_specs.EXAMPLE}"
    try:
        return player_specs.problem(player_specs.parse(who), words)
    except ConfigError as error:
        return "; ".join(error.problems)


def _endpoint_config(args: argparse.Namespace) -> EndpointConfig:
    """Returns how endpoints are asked; their making checks the values. ConfigError: lists every setting not known."""
    settings = {} if args.endpoint is None else _object("endpoint", args.endpoint)
    known = [name for name in fields.fields_of(EndpointConfig) if name != "key_variable"]
    elsewhere = "the endpoint's name says where it is and what model, http://HOST/v1#MODEL; the key has its own flag"
    unknown = [
        f"endpoint.{name}: " + (elsewhere if name in _OWN else f"there is no such setting{fields.nearest(name, known)}")
        for name in settings
        if name not in known
    ]
    if unknown:
        raise ConfigError(unknown)
    return EndpointConfig(key_variable=args.key_variable, **settings)


# ---- players --------------------------------------------------------------------------------------------------------


def _seat_players(
    args: argparse.Namespace,
    game: Game,
    person: Person,
    players: list[Player | Remote],
    out: TextIO,
) -> None:
    """Makes all players, `players` growing one by one, so that all can be closed; ConfigError: one cannot play."""
    config = _endpoint_config(args)
    named = (args.player, args.opponent, args.world, args.judge)
    if any(player_specs.is_model(who) for who in named if who not in (None, _PERSON, _SCRIPT)):
        out.writelines(f"{line}\n" for line in devices.lines())
        out.flush()
    for seat in range(game.seats):
        flag, who = ("player", args.player) if seat == args.seat else ("opponent", args.opponent)
        if who is None or who in STRENGTHS:
            _refuse_without_list(game, flag, who)
        if who is None:
            who = _default_opponent(game)
            if who != _STRONGEST_FIRST[0]:
                out.write(f"No scripted player plays {game.id} better than {who}, so that is the opposite player.\n")
        players.append(_player(who, game, person, config, out, enable_thinking=args.enable_thinking))
    for role in game.simulators:
        who = {"world": args.world, "judge": args.judge}.get(role) or _SCRIPT
        if who == _SCRIPT:
            players.append(scripted.simulators(game)[role])
        else:
            thinking = args.enable_thinking
            players.append(_player(who, game, person, config, out, simulator=True, enable_thinking=thinking))


def _default_opponent(game: Game) -> Strength:
    for strength in _STRONGEST_FIRST[:-1]:
        try:
            scripted.player(game, strength)
        except ValueError:
            continue
        return strength
    return _STRONGEST_FIRST[-1]


def _refuse_without_list(game: Game, flag: str, who: str | None) -> None:
    """Refuses a scripted player, by a ConfigError, for a game that does not say what can be played."""
    if game.lists_actions:
        return
    name = f"--{flag}={who}" if who else f"--{flag}"
    choice = f"{_PERSON}, {_FOLDERS}, or a chat endpoint such as {player_specs.EXAMPLE}"
    raise ConfigError([f"{name}: {game.id} lists no legal actions, so no scripted player can play it; choose {choice}"])


def _player(
    who: str,
    game: Game,
    person: Person,
    config: EndpointConfig | None = None,
    out: TextIO | None = None,
    *,
    simulator: bool = False,
    enable_thinking: bool | None = None,
) -> Player | Remote:
    if who == _PERSON:
        return person
    spec = player_specs.parse(who)
    if spec.kind != "model":
        return factory.player(spec, config)
    print(f"loading {who} ...", file=out, flush=True)
    from dfc.rollout import model_player  # noqa: PLC0415 - imports jax

    if simulator:  # answers as text, which may hold a bracket
        player = model_player.load_player(who, enable_thinking=enable_thinking)
    else:
        # A reply that continues after the end of an action would only take time.
        stop = ("]",) if game.grammar.endswith("]") else ()
        most = game.max_reply_tokens or model_player.MAX_REPLY_TOKENS
        player = model_player.load_player(who, stop=stop, max_reply_length=most, enable_thinking=enable_thinking)
    if player.legal_only:
        print(f"{who}: plays legal actions only, as in its run (rollout.legal_only)", file=out, flush=True)
    return player


# ---- what is shown --------------------------------------------------------------------------------------------------


def _task(game: Game) -> str:
    """Returns which task is played, where the game has any: seeds beyond their number start again."""
    task, split = getattr(game, "task", None), getattr(game, "split", None)
    size = game.info.splits.get(str(split))
    return "" if task is None or size is None else f" (task {task} of the {size} in {split}, counted from 0)"


def _result(game: Game, players: Sequence[Player | Remote]) -> str:
    """Returns a text of who won; empty for a game without a result."""
    outcomes = [] if game.discarded is not None else list(game.outcomes or ())
    if Outcome.TRUNCATED in outcomes or not outcomes:
        return ""
    persons = [seat for seat in range(game.seats) if isinstance(players[seat], Person)]
    if Outcome.DRAW in outcomes:
        return "Nobody won.\n" if game.seats == 1 else "It is a draw.\n"
    if len(persons) == 1:
        who = "You and your partner" if game.team else "You"
        return f"{who} won.\n" if outcomes[persons[0]] == Outcome.WIN else f"{who} lost.\n"
    winners = [seat_name(game, seat) for seat, outcome in enumerate(outcomes) if outcome == Outcome.WIN]
    return f"{' and '.join(winners)} won.\n" if winners else "Nobody won.\n"


def _print_end(game: Game, sequential_replies: Sequence[sequential.SequentialReply], seat: int, out: TextIO) -> None:
    news = game.observation(seat)
    if news:
        out.write(f"{framed(news)}\n")
    if board := game.board_text():
        out.write(f"{framed(board)}\n")
    last = sequential_replies[-1] if sequential_replies else None
    if game.abort_reason is not None:
        by = "" if game.forfeited_by is None else f", by {seat_name(game, game.forfeited_by)}"
        out.write(f"The game is broken off{by}: {game.abort_reason.rstrip('.')}.\n")
    elif last is not None and game.forfeited_by is not None:
        kind = "malformed" if last.verdict is Verdict.FORFEIT_MALFORMED else "illegal"
        why = (sequential.refusal(game, last.seat, last.text) or "").removesuffix(" Try again.")
        out.write(f"{seat_name(game, last.seat)} forfeits by a reply that is {kind}: {_shown(last.text)}\n  {why}\n")
    replies = sum(reply.seat < game.seats for reply in sequential_replies)
    each = [f"seat {number} {outcome}" for number, outcome in enumerate(game.outcomes or ())]
    outcomes = f"{game.outcomes[0]} for both" if game.outcomes and game.team else ", ".join(each)
    out.write(f"Over after {replies} {'reply' if replies == 1 else 'replies'}: {outcomes}.\n")
    if game.discarded is not None:
        out.write(f"The game was discarded: {game.discarded.rstrip('.')}.\n")
        if last is not None and last.seat >= game.seats:
            out.write(f"  The {game.role(last.seat)}'s last reply: {_shown(last.text)}\n")
    out.writelines(f"  {name}: {value:g}\n" for name, value in game.measures().items())


def _shown(text: str) -> str:
    return f"{text[:_SHOWN]!r}{'...' if len(text) > _SHOWN else ''}"


if __name__ == "__main__":
    seated_players: list[Player | Remote] = []
    signal.signal(signal.SIGINT, functools.partial(_interrupted, seated_players))
    sys.exit(main(sys.argv[1:], players=seated_players))

"""What every game costs on one core, beside TextArena's own environments in the same run.

    python benchmarks/games.py [--repeats=5] [--only=ID,...] [--quick]

Steps per second: whole games in which the player to move is shown its observation, the legal actions are listed and
one of them, chosen at random beforehand, is played; made and begun again for every game. Simulators follow their
scripts, whose own time is left out.

Alike and TextArena: the same games without the list, which TextArena's environments do not have, and without making
them; beside it TextArena's environment of the same id, without wrappers: reset, then its observation joined to one
text and our action passed to it, step by step. Its secrets are set to ours, so that both games take the same course.
Poker has another order of play there and is given a check or a call, to its own end. All sides take turns, repeat by
repeat.

Also: the memory of one more game in its middle (tracemalloc over 1000 live games; 40 with --quick), and the time of
`clone` and of `to_json` there.

Clock: the processor time of this process (time.process_time), so that a busy machine matters less; it still does, by
shared caches and clock rates. Figures are medians, smallest and largest in brackets.

Aims, flagged where missed: 20,000 steps/s (10,000 for Poker and negotiation), at most 50 KB a game, alike never slower
than TextArena. Expected, from an idle machine elsewhere: TextArena 11,000 (Poker, negotiation) to 69,000 steps/s.

Prints a table and one JSON line.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dfc.games import registry, scripted
from dfc.games.game import Game
from dfc.games.rng import GameRng, derive_seed

STEPS, STEPS_OF_LONG = 20_000, 10_000  # aims, per second
LONG = ("Poker", "SimpleNegotiation")
BYTES = 50_000  # aim, per game; a KB is 1000 bytes
Row = dict[str, Any]


def started(game_id: str, seed: int) -> Game:
    """Returns a game that has just begun."""
    game = registry.make(game_id)
    game.reset(seed)
    return game


def reply(game: Game, simulators: Mapping[str, scripted.Player], rng: GameRng) -> str:
    """Returns a random legal action, or what a simulator says."""
    seat = game.to_move
    if seat is not None and seat >= game.seats:
        return simulators[game.role(seat)].act(game, rng)
    actions = game.legal_actions()
    return actions[rng.randrange(len(actions))]


def scripts(game_id: str, games: int) -> list[list[str]]:
    """Returns the replies of whole games with seeds 0, 1, ...: random legal actions and what simulators say."""
    simulators = scripted.simulators(game_id)
    found = []
    for seed in range(games):
        game, rng, said = started(game_id, seed), GameRng(derive_seed("games", game_id, seed)), []
        while not game.over:
            said.append(reply(game, simulators, rng))
            game.step(said[-1])
        found.append(said)
    return found


def ours(game_id: str, said: list[list[str]]) -> float:
    """Returns steps per second of our game, with making it and with the list of legal actions before every step."""
    begun = time.process_time()
    for seed, replies in enumerate(said):
        game = started(game_id, seed)
        for text in replies:
            game.observation(game.to_move or 0)
            game.legal_actions()
            game.step(text)
    return sum(map(len, said)) / (time.process_time() - begun)


def ours_alike(game_id: str, said: list[list[str]]) -> float:
    """Returns steps per second of our game for the work that TextArena's side has: reset, observations, steps."""
    games = [registry.make(game_id) for _ in said]
    begun = time.process_time()
    for seed, (game, replies) in enumerate(zip(games, said, strict=True)):
        game.reset(seed)
        for text in replies:
            game.observation(game.to_move or 0)
            game.step(text)
    return sum(map(len, said)) / (time.process_time() - begun)


def theirs(game_id: str, said: list[list[str]]) -> tuple[float, int]:
    """Returns steps per second of TextArena's environment, and how many games it did not play to our end."""
    import textarena  # noqa: PLC0415 (optional)

    name = f"{game_id}-raw" if f"{game_id}-raw" in textarena.envs.registration.ENV_REGISTRY else game_id
    games = [started(game_id, seed) for seed in range(len(said))]
    short, steps, spent = 0, 0, 0.0
    for game, replies in zip(games, said, strict=True):
        env = textarena.make(name)  # not counted: one could be reset again and again
        begun = time.process_time()
        env.reset(num_players=game.seats)
        spent += time.process_time() - begun
        put: Callable[[Any, Any], None] = SECRETS.get(game_id.partition("-")[0], nothing)
        put(env, game)
        done = False
        for text in check_or_call(env) if game_id.startswith("Poker") else replies:
            begun = time.process_time()
            _, messages = env.get_observation()
            "\n".join([message[1] for message in messages])
            done, _ = env.step(text)
            spent += time.process_time() - begun
            steps += 1
            if done:
                break
            if put is not nothing:
                game.step(text)
                put(env, game)
        short += not done
    return steps / spent, short


def check_or_call(env: Any) -> Iterator[str]:  # noqa: ANN401 (TextArena has no types)
    """Yields a check or a call, whatever is legal in TextArena's poker, again and again."""
    while True:
        state = env.state.game_state
        due = state["current_bet"] - state["player_bets"][env.state.current_player_id]
        yield "[Call]" if due > 0 else "[Check]"


def nothing(env: Any, game: Game) -> None:  # noqa: ANN401 (as above)
    """Sets nothing: a game without secrets."""
    del env, game


def put_number(env: Any, game: Any) -> None:  # noqa: ANN401 (as above)
    """Sets the hidden number."""
    env.game_number = game._target  # noqa: SLF001 (the same secret for both)
    env.state.game_state["game_number"] = game._target  # noqa: SLF001 (as above)


def put_dice(env: Any, game: Any) -> None:  # noqa: ANN401 (as above)
    """Sets the dice."""
    env.state.game_state["dice_rolls"] = {seat: list(game.hand(seat)) for seat in range(2)}


def put_goods(env: Any, game: Any) -> None:  # noqa: ANN401 (as above)
    """Sets the goods, at the start only: later they follow from the trades."""
    if game.actions_played == 0:
        for seat in range(2):
            names = env.state.game_state["player_resources"][seat]
            env.state.game_state["player_resources"][seat] = dict(zip(names, game.stock[seat], strict=True))


SECRETS: dict[str, Callable[[Any, Any], None]] = {
    "GuessTheNumber": put_number,
    "LiarsDice": put_dice,
    "SimpleNegotiation": put_goods,
}


def live(game_id: str, seed: int) -> Game:
    """Returns a game in its middle: after half of the replies of a random one, at most 20."""
    simulators, rng = scripted.simulators(game_id), GameRng(derive_seed("live", game_id, seed))
    game = started(game_id, seed)
    for _ in range(min(game.max_game_length // 2, 20)):
        after = game.clone()
        after.step(reply(after, simulators, rng))
        if after.over:
            break
        game = after
    return game


def size(game_id: str, games: int) -> int:
    """Returns the bytes of one more live game; tables that games of a class share are there before."""
    warm = [live(game_id, seed) for seed in range(20)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    held = [live(game_id, 20 + seed) for seed in range(games)]
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del warm
    return taken // len(held)


def microseconds(calls: list[Callable[[], object]]) -> float:
    """Returns the processor time of one call on average."""
    begun = time.process_time()
    for call in calls:
        call()
    return 1e6 * (time.process_time() - begun) / len(calls)


def spread(values: list[float]) -> Row:
    """Returns the median, the smallest and the largest value."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def measured(game_id: str, repeats: int, *, quick: bool) -> Row:
    """Returns all figures of a game and which aims it misses."""
    said = scripts(game_id, 5)
    steps = sum(map(len, said)) / len(said)
    said = scripts(game_id, max(5, int((200 if quick else 5000) / steps)))  # about as many steps for every game
    baseline = has_baseline(game_id)
    ours(game_id, said[:5])  # tables and caches are filled
    rates: list[float] = []
    alike: list[float] = []
    baseline_rates: list[float] = []
    short = 0
    for _ in range(repeats):
        rates.append(ours(game_id, said))
        if baseline:
            alike.append(ours_alike(game_id, said))
            rate, short = theirs(game_id, said)
            baseline_rates.append(rate)
    games = [live(game_id, seed) for seed in range(40 if quick else 200)]
    row: Row = {
        "game": game_id,
        "steps_per_game": steps,
        "steps_per_second": spread(rates),
        "alike": spread(alike) if baseline else None,
        "textarena": spread(baseline_rates) if baseline else None,
        "textarena_unfinished": short / len(said) if baseline else None,
        "bytes": size(game_id, 40 if quick else 1000),
        "clone_us": spread([microseconds([game.clone for game in games]) for _ in range(repeats)]),
        "to_json_us": spread([microseconds([game.to_json for game in games]) for _ in range(repeats)]),
    }
    aim = STEPS_OF_LONG if game_id.startswith(LONG) else STEPS
    row["missed"] = [
        name
        for name, missed in (
            (f"{aim} steps/s", row["steps_per_second"]["median"] < aim),
            (f"{BYTES} bytes", row["bytes"] > BYTES),
            ("TextArena", baseline and row["alike"]["median"] < row["textarena"]["median"]),
        )
        if missed
    ]
    return row


def has_baseline(game_id: str) -> bool:
    """Returns whether the installed TextArena has a game of this id."""
    if importlib.util.find_spec("textarena") is None:
        return False
    import textarena  # noqa: PLC0415 (optional)

    return game_id in textarena.envs.registration.ENV_REGISTRY


def shown(row: Row) -> str:
    """Returns a line of the table."""

    def cell(values: Row | None, form: str) -> str:
        return (
            f"{values['median']:{form}} ({values['min']:{form}}-{values['max']:{form}})" if values is not None else "-"
        )

    rates = "".join(f"{cell(row[name], ',.0f'):>28}" for name in ("steps_per_second", "alike", "textarena"))
    times = "".join(f"{cell(row[name], '.1f'):>20}" for name in ("clone_us", "to_json_us"))
    missed = ", ".join(f"misses {name}" for name in row["missed"])
    return f"{row['game']:28}{rates}{row['bytes'] / 1000:9.1f}{times}  {missed}"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="ids, separated by commas; all of this package if empty")
    parser.add_argument("--quick", action="store_true", help="one repeat, few steps and games, to see that it runs")
    options = parser.parse_args()
    options.repeats = 1 if options.quick else options.repeats
    game_ids = tuple(options.only.split(",")) if options.only else registry.own_game_ids()
    version = importlib.metadata.version("textarena") if importlib.util.find_spec("textarena") else "not installed"
    rates = "".join(f"{title:>28}" for title in ("steps/s", "alike, steps/s", f"TextArena {version}"))
    print(f"{'game':28}{rates}{'KB/game':>9}{'clone us':>20}{'to_json us':>20}")
    rows = []
    for game_id in game_ids:
        rows.append(measured(game_id, options.repeats, quick=options.quick))
        print(shown(rows[-1]), flush=True)
    missed = {row["game"]: row["missed"] for row in rows if row["missed"]}
    sys.stderr.write(f"{len(missed)} of {len(rows)} games miss an aim\n")
    print(json.dumps({"benchmark": "games", "textarena": version, "repeats": options.repeats, "rows": rows}))


if __name__ == "__main__":
    main()

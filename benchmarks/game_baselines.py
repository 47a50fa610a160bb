"""What scripted players of three strengths achieve in every game: the bounds of a model's results.

    python benchmarks/game_baselines.py [--games=200] [--only=ID,...] [--split=test] [--markdown] [--quick]

Random-legal, simple and strong players (`dfc.games.scripted`). One player: share of solved games and turns of the
solved ones. Two players: wins / draws / losses of the first-named on either seat against random-legal play, and strong
against simple. Simulators follow their scripts. Seeds 0, 1, ... of `--split` where a game has tasks: its first tasks.

Expected (known from elsewhere, random-legal play): TicTacToe 58 / 13 / 29 and ConnectFour 56 / 0 / 44 for whoever
begins, LiarsDice and Poker 50 / 0 / 50, GuessTheNumber 55 %, -hardcore 21 % (in 10 guesses), bisection 5 guesses of 20.

Prints a table and one JSON line, or tables in Markdown.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from dfc.evaluation.statistics import wilson_interval
from dfc.games import registry, scripted
from dfc.games.game import Game, Outcome
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import STRENGTHS, Player, Strength
from dfc.players.sequential import play_sequentially

PAIRS: tuple[tuple[Strength, Strength], ...] = (
    ("random_legal", "random_legal"),
    ("simple", "random_legal"),
    ("strong", "random_legal"),
    ("strong", "simple"),
)
Row = dict[str, Any]


def make(game_id: str, split: str) -> Game:
    """Returns a game; of a split where it has tasks."""
    splits = registry.make(game_id).splits
    return registry.make(game_id, **({"split": split if split in splits else list(splits)[-1]} if splits else {}))


def played(game_id: str, split: str, players: Sequence[Strength], games: int) -> list[Game]:
    """Returns games that players, by seat, have played."""
    seated: list[Player] = [scripted.player(game_id, strength) for strength in players]
    seated += scripted.simulators(game_id).values()
    found = []
    for number in range(games):
        game = make(game_id, split)
        game.reset(number)
        play_sequentially(game, seated, GameRng(derive_seed("baselines", game_id, *players, number)))
        found.append(game)
    return found


def means(games: Sequence[Game]) -> dict[str, float]:
    """Returns the mean of every measure."""
    names = {name for game in games for name in game.measures()}
    return {n: statistics.fmean(game.measures().get(n, 0.0) for game in games) for n in sorted(names)}


def single(game_id: str, split: str, games: int) -> list[Row]:
    """Returns a one-player game's rows, one for each strength."""
    rows = []
    for strength in STRENGTHS:
        found = played(game_id, split, [strength], games)
        solved = [game for game in found if game.outcomes == (Outcome.WIN,)]
        turns = statistics.fmean(game.actions_played for game in solved) if solved else None
        rows.append(
            {
                "game": game_id,
                "player": strength,
                "games": games,
                "solved": len(solved),
                "interval": list(wilson_interval(len(solved), games)),
                "turns": turns,
                "discarded": sum(game.discarded is not None for game in found),
                "measures": means(found),
            }
        )
    return rows


def double(game_id: str, split: str, games: int) -> list[Row]:
    """Returns a two-player game's rows, two for each pair of strengths: on seat 0 and on seat 1."""
    rows = []
    for first, second in PAIRS:
        for seat in (0,) if first == second else (0, 1):
            found = played(game_id, split, (first, second) if seat == 0 else (second, first), games)
            ends = [game.outcomes[seat] for game in found if game.outcomes is not None]
            rows.append(
                {
                    "game": game_id,
                    "player": first,
                    "opponent": second,
                    "seat": seat,
                    "games": games,
                    **{str(end): ends.count(end) for end in (Outcome.WIN, Outcome.DRAW, Outcome.LOSS)},
                    "actions": statistics.fmean(game.actions_played for game in found),
                    "measures": means(found),
                }
            )
    return rows


def share(row: Row) -> str:
    """Returns what was achieved: the share solved with its interval and turns, or wins / draws / losses in percent."""
    games = row["games"]
    if "solved" not in row:
        return " / ".join(f"{100 * row[end] / games:.0f}" for end in ("win", "draw", "loss"))
    _, low, high = row["interval"]
    turns = f", {row['turns']:.1f}" if row["solved"] else ""
    return f"{100 * row['solved'] / games:.1f} ({100 * low:.0f} to {100 * high:.0f}){turns}"


def line(row: Row) -> str:
    """Returns a row of the plain table."""
    who = row["player"] if "solved" in row else f"{row['player']} on seat {row['seat']} v {row['opponent']}"
    return f"{row['game']:28}{who:40}{share(row):28}"


def markdown(rows: Sequence[Row]) -> str:
    """Returns three tables: games of one player, of two players, and the measures of the latter."""
    one = [row for row in rows if "solved" in row]
    two = [row for row in rows if "solved" not in row]
    lines: list[str] = []
    if one:
        lines += table(("game", *STRENGTHS), by_game(one))
    if two:
        pairs = [
            f"{row['player']} on {row['seat']} v {row['opponent']}" for row in two if row["game"] == two[0]["game"]
        ]
        lines += ["", *table(("game", *pairs), by_game(two))]
    measured = [row for row in two if row["measures"]]
    if measured:
        cells = [
            [
                row["game"],
                f"{row['player']} on {row['seat']} v {row['opponent']}",
                ", ".join(f"{name} {value:.2f}" for name, value in row["measures"].items()),
            ]
            for row in measured
        ]
        lines += ["", *table(("game", "players", "means"), cells)]
    return "\n".join(lines)


def by_game(rows: Sequence[Row]) -> list[list[str]]:
    """Returns a row of cells for every game."""
    return [
        [name, *(share(row) for row in rows if row["game"] == name)] for name in dict.fromkeys(r["game"] for r in rows)
    ]


def table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *cells)]


def main() -> None:
    """Plays and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=200, help="of every row")
    parser.add_argument("--only", default="", help="ids, separated by commas; all if empty")
    parser.add_argument("--split", default="test", help="of games with tasks; their last one where they have none so")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown instead")
    parser.add_argument("--quick", action="store_true", help="two games of every row, to see that it runs")
    options = parser.parse_args()
    options.games = 2 if options.quick else options.games
    game_ids = tuple(options.only.split(",")) if options.only else registry.own_game_ids()
    rows: list[Row] = []
    for game_id in game_ids:
        begun = time.perf_counter()
        kind = single if registry.make(game_id).seats == 1 else double
        for row in kind(game_id, options.split, options.games):
            rows.append(row)
            if not options.markdown:
                print(line(row), flush=True)
        sys.stderr.write(f"{game_id}: {time.perf_counter() - begun:.1f} s\n")
    if options.markdown:
        print(markdown(rows))
    else:
        print(json.dumps({"benchmark": "game_baselines", "rows": rows}))


if __name__ == "__main__":
    main()

"""``python -m dfc.launch.clembench COMMAND``: policies for clembench, and its results."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dfc import files
from dfc.commands import shell_line
from dfc.config import ServingConfig
from dfc.errors import ConfigError, DfcError
from dfc.evaluation.clemscore import clemscore
from dfc.launch.help_text import meanings_of
from dfc.players import player_specs
from dfc.rows.dialogues import from_trajectory
from dfc.runs.printing import guarded
from dfc.tools.clembench import register
from dfc.tools.clembench.read_results import read_results, read_scores
from dfc.tools.clembench.rows import write_rows
from dfc.tools.clembench.write_results import trajectories_in, write_results

_HERE = shell_line("dfc.launch.clembench")
_EPILOGUE = f"""\
examples:
  {_HERE} register --policy=runs/quickstart --name=mine
  clem run -g taboo -m mine -b 32 && clem score && clem eval
  {_HERE} results --games=runs/collected --results=results
  {_HERE} scores --results=results
  {_HERE} rows --results=results --file=rows.jsonl
exit code: 0 done, 2 what was asked for cannot be done
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dfc.launch.clembench",
        description="Policies for clembench's own framework, and its results.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("register", help="let clem run find a policy", allow_abbrev=False).add_argument
    add("--policy", required=True, help="a folder with weights or a run, or tiny_player", metavar="DIR_OR_RUN")
    add("--name", default="dfc", help="of the model, for clem run -m and in results (dfc)")
    add("--folder", type=Path, default=Path(), help="from which clem is run (.)")
    add("--seed", type=int, default=0, help="of what is sampled (0)")
    meanings, defaults = meanings_of(ServingConfig), dataclasses.asdict(ServingConfig())
    for name in register.SETTINGS:
        shown = f"{meanings[name]} ({defaults[name]})"
        add(f"--{name}", type=int, default=defaults[name], help=shown, metavar=name.upper())
    add = commands.add_parser("results", help="write dfc's games as results", allow_abbrev=False).add_argument
    games = "a run of evaluate_tasks, or a folder of trajectories"
    add("--games", required=True, type=Path, help=games, metavar="DIR")
    add("--results", required=True, type=Path, help="the folder to write to", metavar="DIR")
    add = commands.add_parser("scores", help="the clemscore of results", allow_abbrev=False).add_argument
    add("--results", required=True, type=Path, help="a folder of clem run -r, or of `results`", metavar="DIR")
    found = commands.add_parser("rows", help="write dialogues as rows of playpen-data", allow_abbrev=False)
    source = found.add_mutually_exclusive_group(required=True)
    source.add_argument("--results", type=Path, help="a folder of clem run -r, or of `results`", metavar="DIR")
    source.add_argument("--games", type=Path, help=games, metavar="DIR")
    found.add_argument("--file", required=True, type=Path, help="to write: .jsonl or .parquet", metavar="FILE")
    return parser


def _refuse_addresses(args: argparse.Namespace) -> None:
    """Raises a ConfigError for an address in the place of a folder or file on a disk."""
    places = {name: getattr(args, name, None) for name in ("folder", "results", "file")}
    found = [
        f"--{name}={place}: {files.address_problem(place)}"
        for name, place in places.items()
        if place is not None and files.address_problem(place)
    ]
    if found:
        raise ConfigError(found)


def _register(args: argparse.Namespace) -> None:
    if player_specs.is_endpoint(args.policy):
        raise ConfigError(
            [f"--policy={args.policy}: an endpoint is asked by clemcore itself, with its backend openai_compatible"]
        )
    player_specs.weights_in(args.policy, (), endpoints=False)
    settings = {name: getattr(args, name) for name in (*register.SETTINGS, "seed")}
    register.register(args.folder, args.name, args.policy, settings)
    _say(f"{args.folder / register.REGISTRY_FILE}: {args.name} is {args.policy}; clem run -g GAME -m {args.name} -b 32")


def _results(args: argparse.Namespace) -> None:
    written = write_results(trajectories_in(args.games), args.results)
    _say(f"{args.results}: {written} games; clem eval -r {args.results}")


def _scores(args: argparse.Namespace) -> None:
    for model, games in sorted(read_scores(args.results).items()):
        total = clemscore(games)
        _say(f"{model}: clemscore {total.clemscore}, {total.played} % played, quality {_shown(total.quality)}")
        for game, score in sorted(games.items()):
            _say(f"  {game}: {score.played} % of {score.instances} played, quality {_shown(score.quality)}")


def _shown(quality: float | None) -> str:
    return "-" if quality is None else str(quality)


def _rows(args: argparse.Namespace) -> None:
    if args.results is not None:
        found = read_results(args.results).dialogues
    else:
        found = tuple(one for row in trajectories_in(args.games) for one in from_trajectory(row))
    _say(f"{args.file}: {write_rows(args.file, found)} rows")


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "register": _register,
    "results": _results,
    "scores": _scores,
    "rows": _rows,
}


def main(words: Sequence[str]) -> int:
    """Runs what the words after ``python -m dfc.launch.clembench`` ask for; returns the exit code."""
    with guarded():
        args = _parser().parse_args(list(words))
        try:
            _refuse_addresses(args)
            _COMMANDS[args.command](args)
        except (DfcError, ImportError, OSError, ValueError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

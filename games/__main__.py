"""Lists the games, or checks some.

python -m dfc.games
python -m dfc.games --check Nim-v0 my_game.py:MyGame
python -m dfc.games --textarena
python -m dfc.games --clembench
"""

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from dfc.games import registry, scripted
from dfc.games.conformance import check, processes
from dfc.games.conformance.protocol import Subject
from dfc.games.printable import printable


class _Parser(argparse.ArgumentParser):
    """Repeats a wrong word in a form that moves no cursor."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status: 1 if a check found a fault, else 0."""
    parser = _Parser(prog="python -m dfc.games", description="Lists the games, or checks some.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--check", nargs="+", metavar="GAME", help="ids, FILE.py:CLASS or module:CLASS; 'all' is every registered id"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="games played per property (3)")
    parser.add_argument("--textarena", action="store_true", help="list the ids of the installed textarena package")
    parser.add_argument("--clembench", action="store_true", help="list the ids of the games below CLEMBENCH_HOME")
    wanted = parser.parse_args(arguments)
    if wanted.seeds < 1:
        parser.error(f"--seeds must be 1 or more, got {wanted.seeds}")
    status = 0
    with contextlib.redirect_stdout(sys.stderr):  # what games and packages print while they are imported or played
        for conflict in registry.conflicts():
            _warn(conflict)
        try:
            if wanted.textarena or wanted.clembench:
                prefix = "textarena" if wanted.textarena else "clembench"
                rows: list[Any] = [f"{prefix}:{name}" for name in registry.adapter_names(prefix)]
                text = "\n".join(rows)
            elif wanted.check is None:
                rows = _rows()
                text = _table(rows)
            else:
                every = wanted.check == ["all"]
                rows = _reports(registry.game_ids() if every else wanted.check, every=every, seeds=range(wanted.seeds))
                text = "\n".join(map(_report_text, rows))
                status = int(any(report["findings"] for report in rows))
        except ValueError as error:
            parser.error(str(error))
    sys.stdout.write((json.dumps(rows, indent=2) if wanted.json else printable(text)) + "\n")
    return status


def _rows() -> list[dict[str, Any]]:
    rows = []
    for game_id in registry.game_ids():
        try:
            rows.append(_row(game_id))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a package that cannot be used must not hide the others)
            _warn(" ".join(f"{game_id} is left out: {error}".split()))
    return rows


def _row(game_id: str) -> dict[str, Any]:
    info = registry.make(game_id).info
    return {
        "id": game_id,
        "family": registry.family(game_id),
        "seats": info.seats,
        "start": info.start,
        "max_game_length": info.max_game_length,
        "grammar": info.grammar,
        "open_actions": info.open_actions,
        "lists_actions": info.lists_actions,
        "evaluation_only": info.evaluation_only,
        "splits": dict(info.splits),
        "simulators": list(info.simulators),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("id", "family", "seats", "start", "max_game_length", "action", "tasks", "simulators")
    cells = [head]
    for row in rows:
        splits = ", ".join(f"{size} {split}" for split, size in row["splits"].items())
        simulators = ", ".join(row["simulators"])
        told = (row["id"], row["family"], str(row["seats"]), row["start"], str(row["max_game_length"]), row["grammar"])
        cells.append((*told, splits, simulators))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join(lines)


def _reports(names: Sequence[str], *, every: bool, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Returns what the check says of each game.

    Raises:
      ValueError: a name is wrong; with `every` a package that cannot be imported is a fault of its game.
    """
    reports: dict[str, dict[str, Any]] = {name: {"game": name, "findings": []} for name in names}
    for name, report in reports.items():
        try:
            registry.kind(name)
        except ValueError as error:
            if not every:
                raise
            report["findings"] = [f"it can be imported: {error}"]
    for name in _clean(reports):
        if len(names) > 1:
            sys.stderr.write(printable(f"checking {name}\n"))
        reports[name]["findings"] = check.check(functools.partial(registry.make, name), seeds)
    for name, difference in processes.differences(_clean(reports), seeds[:2]).items():
        reports[name]["findings"] = [f"processes play alike: {difference}"]
    for name in _clean(reports):
        make = functools.partial(registry.make, name)
        figures = check.measure(Subject(make, seeds, scripted.simulators(name)))
        reports[name] |= {
            "steps_per_second": round(figures.steps_per_second),
            "bytes_per_game": figures.bytes_per_game,
            "longest_seen": figures.longest_seen,
            "max_game_length": make().max_game_length,
        }
    return [reports[name] for name in names]


def _clean(reports: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, report in reports.items() if not report["findings"]]


def _report_text(report: dict[str, Any]) -> str:
    if not report["findings"]:
        speed, size = report["steps_per_second"], report["bytes_per_game"] / 1024
        return (
            f"{report['game']}: every property holds; {speed:,} steps/s, {size:.1f} KiB per game in progress; the "
            f"longest random game took {report['longest_seen']} actions of "
            f"`max_game_length` = {report['max_game_length']}"
        )
    count = len(report["findings"])
    lines = [f"{report['game']}: {count} fault{'s' * (count > 1)}", *(f"  {f}" for f in report["findings"])]
    if any(finding.partition(": ")[0] in check.FIRST for finding in report["findings"]):
        lines.append("  What comes after this was not tried; fix it and check again.")
    return "\n".join(lines)


def _warn(text: str) -> None:
    sys.stderr.write(printable(f"warning: {text}\n"))


if __name__ == "__main__":
    sys.exit(main())

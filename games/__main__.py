"""Lists the games, or checks some.

python -m dfc.games
python -m dfc.games --check Nim-v0 my_game.py:MyGame
"""

import argparse
import importlib.util
import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dfc.games import check, registry, scripted
from dfc.games.game import Game
from dfc.games.properties import Subject


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status: 1 if a check found a fault, else 0."""
    parser = argparse.ArgumentParser(prog="python -m dfc.games", description="Lists the games, or checks some.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", nargs="+", metavar="GAME", help="ids or FILE.py:CLASS; 'all' is every registered id")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="games played per property (3)")
    wanted = parser.parse_args(arguments)
    if wanted.seeds < 1:
        parser.error(f"--seeds must be 1 or more, got {wanted.seeds}")
    if wanted.check is None:
        rows = [_row(game_id) for game_id in registry.ids()]
        _print(json.dumps(rows, indent=2) if wanted.json else _table(rows))
        return 0
    names = list(registry.ids()) if wanted.check == ["all"] else wanted.check
    try:
        found = {name: _found(name) for name in names}
    except (ValueError, OSError) as error:
        parser.error(str(error))
    reports = []
    for name, (make, staff) in found.items():
        report = _report(name, make, staff, range(wanted.seeds))
        reports.append(report)
        if not wanted.json:
            _print(_told(report))
    if wanted.json:
        _print(json.dumps(reports, indent=2))
    return int(any(report["findings"] for report in reports))


def _row(game_id: str) -> dict[str, Any]:
    facts = registry.make(game_id).facts
    return {
        "id": game_id,
        "seats": facts.seats,
        "start": facts.start,
        "longest": facts.longest,
        "grammar": facts.grammar,
        "open_actions": facts.open_actions,
        "splits": dict(facts.splits),
        "staff": list(facts.staff),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("id", "seats", "start", "longest", "action", "tasks", "staff")
    cells = [head]
    for row in rows:
        splits = ", ".join(f"{size} {split}" for split, size in row["splits"].items())
        staff = ", ".join(row["staff"])
        cells.append((row["id"], str(row["seats"]), row["start"], str(row["longest"]), row["grammar"], splits, staff))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join(lines)


def _found(name: str) -> tuple[Callable[[], Game], Mapping[str, scripted.Player] | None]:
    """Returns what makes a game, and its staff if a file brings any.

    Raises:
      ValueError: there is no such id, or the file holds no such game.
      OSError: the file cannot be read.
    """
    file, colon, kind_name = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        registry.entry(name)
        return lambda: registry.make(name), None
    path = pathlib.Path(file)
    path.read_bytes()  # says better than the import what is wrong with a path
    module_name = f"checked_{path.stem}"  # a file may be called like a module that is in use
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} cannot be imported as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    kind = getattr(module, kind_name, None)
    if not (isinstance(kind, type) and issubclass(kind, Game)):
        games = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Game) and v is not Game]
        raise ValueError(  # noqa: TRY004 (the argument has the right type; what it names is missing)
            f"{file} holds no game {kind_name!r}; its subclasses of Game are {', '.join(games) or 'none'}"
        )
    strategies = [found for found in getattr(module, "STRATEGIES", ()) if found.kind is kind]
    staff = {role: scripted.Scripted(kind, choose) for found in strategies for role, choose in found.staff.items()}
    return kind, staff or None if kind.staff else {}


def _report(
    name: str, make: Callable[[], Game], staff: Mapping[str, scripted.Player] | None, seeds: Sequence[int]
) -> dict[str, Any]:
    findings = check.check(make, seeds, staff)
    report: dict[str, Any] = {"game": name, "findings": findings}
    if not findings:
        figures = check.measure(Subject(make, seeds, scripted.staff(make()) if staff is None else staff))
        report["steps_per_second"] = round(figures.steps_per_second)
        report["bytes_per_game"] = figures.bytes_per_game
    return report


def _told(report: dict[str, Any]) -> str:
    if not report["findings"]:
        speed, size = report["steps_per_second"], report["bytes_per_game"] / 1024
        return f"{report['game']}: every property holds; {speed:,} steps/s, {size:.1f} KiB per game in progress"
    count = len(report["findings"])
    return "\n".join([f"{report['game']}: {count} fault{'s' * (count > 1)}", *(f"  {f}" for f in report["findings"])])


def _print(text: str) -> None:
    print(text)  # noqa: T201 (the output of a command)


if __name__ == "__main__":
    sys.exit(main())

"""Tables 2, 3 and 8 of Divide-Fuse-Conquer (arXiv 2505.16401) in their shape: measured figures beside the printed ones.

Only games that were played have a row. The paper played 20 games per id; it does not say how they fell on seats, nor
whether a game lost by an unreadable reply is a loss there. Here such games, and truncated ones, stand after W/D/L.
Where printed figures do not sum to 20, they are given as printed.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dfc.errors import RunFolderError
from dfc.evaluation.statistics import Record, pooled_by
from dfc.evaluation.tournament import Cell, Tournament
from dfc.report.tables import Table

NONE = "-"  # no game was played, or the paper has no such figure
BASE, REFERENCE, TRAINED = "Qwen2.5", "Claude3.5", "Qwen2.5 (DFC-MSRL)"

# W/D/L of each alone: Qwen2.5, Claude3.5, Qwen2.5 (DFC-MSRL).
TABLE_2_ALONE: dict[str, tuple[str, ...]] = {
    "GuessTheNumber-v0": ("20/0/0", "20/0/0", "20/0/0"),
    "GuessTheNumber-v0-hardcore": ("16/4/0", "20/0/0", "20/0/0"),
    "TowerOfHanoi-v0": ("0/0/20", "17/0/3", "20/0/0"),
    "TowerOfHanoi-v0-medium": ("0/0/20", "2/0/18", "20/0/0"),
}
# W/D/L of the first: Qwen2.5 v.s. Claude3.5, Qwen2.5 (DFC-MSRL) v.s. Claude3.5, Qwen2.5 (DFC-MSRL) v.s. Qwen2.5.
TABLE_2_PAIRS: dict[str, tuple[str, ...]] = {
    "ConnectFour-v0": ("4/2/14", "13/1/6", "15/0/5"),
    "ConnectFour-v0-blind": ("0/0/20", "5/1/14", "19/0/1"),
    "ConnectFour-v0-large": ("0/0/20", "4/0/16", "15/0/5"),
    "Poker-v0": ("6/0/14", "7/1/12", "15/0/5"),
    "Poker-v0-long": ("8/8/4", "9/8/3", "11/0/9"),
    "Poker-v0-extreme": ("10/0/10", "10/0/10", "10/0/10"),
    "LiarsDice-v0": ("1/1/18", "8/1/11", "8/11/1"),
    "SimpleNegotiation-v0": ("8/4/8", "9/3/8", "12/4/4"),
    "SimpleNegotiation-v0-short": ("4/8/8", "8/4/8", "9/6/5"),
    "SimpleNegotiation-v0-long": ("4/0/16", "5/0/15", "7/6/7"),
    "TruthAndDeception-v0": ("0/0/20", "4/0/16", "6/8/6"),
    "TruthAndDeception-v0-long": ("0/0/20", "3/0/17", "4/12/4"),
    "TruthAndDeception-v0-extreme": ("0/0/20", "3/0/16", "3/14/3"),
    "TicTacToe-v0": ("0/4/16", "11/0/9", "19/1/0"),
}
# The paper's groups, and the columns of Table 3 as the stages of a run are called here.
TABLE_3_STAGES = (
    "base",
    "fuse g1+g2",
    "conquer g1+g2",
    "fuse g1+g2+g3",
    "conquer g1+g2+g3",
    "fuse g1+g2+g3+g4",
    "conquer g1+g2+g3+g4",
)
TABLE_3: dict[str, dict[str, tuple[str, ...]]] = {
    "g1": {
        "TowerOfHanoi-v0": ("0/0/20", "2/0/18", "20/0/0", "15/0/5", "20/0/0", "16/0/4", "20/0/0"),
        "TowerOfHanoi-v0-medium": ("0/0/20", "4/0/16", "20/0/0", "11/0/9", "19/0/1", "15/1/4", "20/0/0"),
    },
    "g2": {
        "ConnectFour-v0": ("9/0/11", "16/0/4", "16/0/4", "12/1/7", "14/1/5", "18/1/1", "20/0/0"),
        "ConnectFour-v0-blind": ("11/0/9", "17/0/3", "18/1/1", "19/0/1", "20/0/0", "17/1/2", "19/1/0"),
        "ConnectFour-v0-large": ("10/0/10", "18/0/2", "15/0/5", "16/0/4", "17/0/3", "17/0/3", "19/0/1"),
        "TicTacToe-v0": ("8/2/10", "16/1/3", "20/0/0", "13/1/6", "16/0/4", "15/1/4", "17/3/0"),
    },
    "g3": {
        "LiarsDice-v0": ("0/12/8", "0/9/11", "0/16/4", "14/6/0", "18/0/2", "16/1/3", "19/0/1"),
    },
    "g4": {
        "GuessTheNumber-v0": ("19/0/1", "19/0/1", "19/0/1", "20/0/0", "19/1/0", "19/0/1", "20/0/0"),
        "GuessTheNumber-v0-hardcore": ("10/8/2", "17/3/0", "16/4/0", "13/6/1", "16/4/0", "15/5/0", "18/2/0"),
        "Poker-v0": ("11/1/8", "6/0/14", "6/3/11", "13/2/5", "12/1/7", "10/1/9", "12/0/8"),
        "Poker-v0-long": ("10/0/10", "9/0/11", "14/0/6", "9/1/10", "8/1/10", "10/1/9", "11/0/8"),
        "Poker-v0-extreme": ("10/0/9", "10/0/8", "11/1/6", "11/0/5", "9/0/7", "11/1/5", "12/0/6"),
        "SimpleNegotiation-v0": ("9/5/6", "8/5/7", "6/8/6", "7/10/3", "6/9/5", "6/13/1", "8/2/10"),
        "SimpleNegotiation-v0-short": ("6/8/6", "4/5/11", "7/8/5", "5/12/3", "8/7/5", "6/1/3", "8/7/5"),
        "SimpleNegotiation-v0-long": ("7/5/8", "6/8/6", "8/8/4", "2/4/14", "6/6/8", "5/6/9", "6/5/9"),
        "TruthAndDeception-v0": ("9/0/11", "10/0/10", "8/0/12", "3/0/17", "8/0/12", "4/1/15", "10/0/10"),
        "TruthAndDeception-v0-long": ("9/0/11", "9/0/11", "7/0/13", "6/0/14", "9/0/11", "4/0/16", "7/0/13"),
        "TruthAndDeception-v0-extreme": ("10/1/9", "9/1/10", "7/0/13", "7/1/12", "7/2/11", "6/3/11", "11/0/9"),
    },
}
# Qwen2.5 (DFC-MSRL) as player 0, Qwen2.5 as player 0.
TABLE_8: dict[str, tuple[str, ...]] = {
    "ConnectFour-v0": ("14/1/5", "17/1/2"),
    "ConnectFour-v0-blind": ("20/0/0", "11/3/6"),
    "ConnectFour-v0-large": ("17/0/3", "9/0/11"),
    "TicTacToe-v0": ("16/0/4", "15/0/5"),
    "LiarsDice-v0": ("18/0/2", "2/18/0"),
    "Poker-v0": ("12/1/7", "12/0/8"),
    "Poker-v0-long": ("8/1/10", "8/0/11"),
    "Poker-v0-extreme": ("9/0/7", "9/1/7"),
    "SimpleNegotiation-v0": ("6/9/5", "6/4/10"),
    "SimpleNegotiation-v0-short": ("8/7/5", "9/3/8"),
    "SimpleNegotiation-v0-long": ("6/6/8", "5/8/7"),
    "TruthAndDeception-v0": ("3/0/17", "16/0/4"),
    "TruthAndDeception-v0-long": ("5/0/15", "14/0/6"),
    "TruthAndDeception-v0-extreme": ("7/2/11", "17/0/3"),
}

_WDL = (
    "W/D/L; games lost by an own invalid reply or an own overrun of the context, truncated and failed ones follow and"
    " are not in L. The paper's column has its printed figures, of 20 games."
)


def table_2(found: Tournament, trained: str | None, base: str | None, reference: str | None) -> list[Table]:
    """Returns both halves of Table 2, without rows where nothing was played.

    In the place of Qwen2.5 (DFC-MSRL) is the policy `trained`, of Qwen2.5 `base`, of Claude3.5 `reference`; None: none.
    """
    alone = [(base, None, BASE, None), (reference, None, REFERENCE, None), (trained, None, TRAINED, None)]
    pairs = [
        (base, reference, f"{BASE} v.s. {REFERENCE}", None),
        (trained, reference, f"{TRAINED} v.s. {REFERENCE}", None),
        (trained, base, f"{TRAINED} v.s. {BASE}", None),
    ]
    both = "Both seats together: every deal is played twice."
    return [
        _measured(found, "Table 2, single-players", alone, TABLE_2_ALONE, (_WDL,), alone=True),
        _measured(found, "Table 2, two-players", pairs, TABLE_2_PAIRS, (_WDL, both)),
    ]


def table_8(found: Tournament, trained: str | None, base: str | None) -> Table:
    """Returns Table 8: the trained policy (DFC-MSRL) against the base (Qwen2.5), by who is player 0."""
    columns = [(trained, base, f"{name} (Player 0)", seat) for seat, name in enumerate((TRAINED, BASE))]
    side = "W/D/L of the trained policy in both columns. Whose the paper's second column is, it does not say."
    return _measured(found, "Table 8", columns, TABLE_8, (_WDL, side))


def table_3(run: Path) -> Table | None:
    """Returns Table 3 of a run of Divide-Fuse-Conquer, by its own groups; None if it has measured no stage.

    It is read from ``evaluations.jsonl`` and ``groups.json``.

    Raises:
      RunFolderError: a file cannot be read.
    """
    shown = ("base", "fuse", "conquer")
    rows = [row for row in _lines(run / "evaluations.jsonl") if str(row.get("stage", "")).split(" ")[0] in shown]
    if not rows:
        return None
    counts = pooled_by(((str(row["stage"]), str(row["game"])), Record.from_json(row)) for row in rows)
    stages = list(dict.fromkeys(stage for stage, _ in counts))
    groups = _groups(run)
    printed = {game: (group, cells) for group, games in TABLE_3.items() for game, cells in games.items()}
    lines = []
    for game in sorted(dict.fromkeys(game for _, game in counts), key=lambda g: groups.get(g, "~")):
        paper_group, cells = printed.get(game, (NONE, ()))
        line = [groups.get(game, NONE), paper_group, game]
        for stage in stages:
            record = counts.get((stage, game))
            line.append(NONE if record is None else Cell(record).text)
            if stage in TABLE_3_STAGES:
                line.append(cells[TABLE_3_STAGES.index(stage)] if cells else NONE)
        lines.append(tuple(line))
    header = ["group", "paper's group", "game"]
    for stage in stages:
        header += [stage, f"paper: {stage}"] if stage in TABLE_3_STAGES else [stage]
    groups_differ = (
        "Against the initial policy; games for one alone. A stage's groups are the run's own (first column); the "
        "paper's figure stands beside the stage of the same name, whatever its groups were."
    )
    return Table(f"Table 3, {run.name}", tuple(header), tuple(lines), (_WDL, groups_differ))


Column = tuple[str | None, str | None, str, int | None]
"""Whose counts, against whom (None: alone), the paper's name for it, in which seat (None: in both)."""


def _measured(
    found: Tournament,
    title: str,
    columns: Sequence[Column],
    printed: Mapping[str, tuple[str, ...]],
    notes: tuple[str, ...],
    *,
    alone: bool = False,
) -> Table:
    """Returns two columns for each of the paper's: what was measured and what it printed."""
    games, header, cells = found.games(alone=alone), ["game"], []
    for number, (policy, opponent, words, seat) in enumerate(columns):
        if policy is None or (opponent is None and not alone):
            who, counts = "nobody in this place", [Cell()] * len(games)
        else:
            who = policy if alone else f"{policy} v.s. {opponent}"
            who += "" if seat is None else f", {(policy, opponent)[seat]} as Player 0"
            counts = [found.cell(policy, opponent, game, seat) for game in games]
        header += [who, f"paper: {words}"]
        cells.append([cell.text if cell.record.games or cell.failed else NONE for cell in counts])
        cells.append([printed[game][number] if game in printed else NONE for game in games])
    return Table(title, tuple(header), tuple(zip(games, *cells, strict=True)), notes)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error}); expected one JSON object per line") from error


def _groups(run: Path) -> dict[str, str]:
    """Returns game id -> name of its group."""
    path = run / "groups.json"
    try:
        found = json.loads(path.read_bytes())["groups"] if path.exists() else []
        return {game: group["name"] for group in found for game in group["games"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error}); expected the groups of a run") from error

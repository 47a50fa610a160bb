"""Tables of collected trajectories and of the rows built from them."""

from collections.abc import Mapping, Sequence
from typing import Any

from dfc.report.tables import Table

_MENDED = {
    "replies_cut": "replies cut short",
    "replies_asked_again": "replies asked again, out",
    "rows_invalid_format": "with INVALID_FORMAT, out",
    "rows_with_examples": "with examples, out",
}


def collected(games: Mapping[str, Mapping[str, Any]]) -> Table:
    """Returns the figures of a collection, by game the rows of `dfc.records.attempts.CollectionStatistics`."""
    labels = _labels(games.values())
    rows = [
        (
            game,
            f"{figures['tasks']:,}",
            f"{figures['trajectories']:,}",
            _rate(figures["success_rate"]),
            _rate(figures["best_of_k"]),
            "-" if figures["turns_played"] is None else f"{figures['turns_played']:.1f}",
            *(f"{figures['failures'].get(label, 0):,}" for label in labels),
            f"{figures['generated_tokens']:,}",
        )
        for game, figures in games.items()
    ]
    head = ("game", "tasks", "trajectories", "success", "best of k", "turns played", *labels, "generated tokens")
    return Table("Collected trajectories", head, tuple(rows))


def training_data(groups: Sequence[Mapping[str, Any]], note: str = "") -> Table:
    """Returns the statistics of rows as Paprika's Table 4 (arXiv 2502.17543), with what was left out and why.

    Groups are fields of `dfc.rows.selection.GroupStatistics`, as ``statistics.json`` has them.
    """
    labels = _labels(groups)
    counted = ("sft", "pairs", "tasks", "trajectories", "successes")
    left_out = ("too_long_sft", "too_long_pairs", "without_rejected")
    rows = [
        (
            group["game"],
            _rate(group["solved"] / group["tasks"] if group["tasks"] else None),
            *(group[name] for name in counted),
            *(group["failures"].get(name, 0) for name in labels),
            *(group[name] for name in left_out),
        )
        for group in groups
    ]
    header = (
        *("task group", "best-of-K accuracy", "SFT trajectories", "preference pairs"),
        *("tasks", "trajectories", "successes", *labels),
        *("SFT too long", "pairs too long", "no worse one"),
    )
    said = "Best-of-K accuracy: share of tasks with a success, of those with a trajectory that could be used."
    return _summed("Training data by task group", header, rows, (said, *([note] if note else [])))


def dialogue_data(groups: Sequence[Mapping[str, Any]], players: Sequence[str]) -> list[Table]:
    """Returns the statistics of rows made of dialogues as Playpen's Tables 3 and 4, with what explains them.

    Groups are fields of `dfc.rows.dialogue_rows.DialogueStatistics`, as ``statistics.json`` has them; players the best
    ones, best first.
    """

    def table(title: str, columns: Mapping[str, str], notes: tuple[str, ...] = ()) -> Table:
        rows = [
            (group["game"], *(f"{group[name]:,}" if name == "players" else group[name] for name in columns))
            for group in groups
        ]
        return _summed(title, ("game", *columns.values()), rows, notes)

    mended = any(group[name] for group in groups for name in _MENDED)
    apart = {"": "", "_held_out": " held out"}
    chosen = {"chosen": "dialogues", "sft": "rows"}
    pairs = {"pairs_dialogue": "dialogue pairs", "pairs_turn": "turn pairs"}
    return [
        table(
            "Dialogues",
            {
                **{name: name for name in ("dialogues", "players", "won", "lost", "aborted", "unfinished")},
                "instances": "instances",
                "instances_held_out": "held out",
            },
            (f"Players, those with the most won dialogues first: {', '.join(players)}.",),
        ),
        table(
            "Supervised rows, before and after splitting",
            {f"{name}{end}": f"{words}{also}" for name, words in chosen.items() for end, also in apart.items()},
        ),
        table(
            "Preference pairs",
            {
                **{f"{name}{end}": f"{words}{also}" for name, words in pairs.items() for end, also in apart.items()},
                "without_negative": "won without a worse one",
                "too_long": "rows and pairs too long",
            },
        ),
        *([table("Published dialogues, repaired", _MENDED)] if mended else []),
    ]


def _labels(figures: Any) -> list[str]:  # noqa: ANN401 - mappings, one after another
    """Returns the labels of failures; one that only teams have is there if any of the figures has it."""
    return max((list(figure["failures"]) for figure in figures), key=len, default=[])


def _summed(
    title: str, header: tuple[str, ...], rows: Sequence[tuple[str | int, ...]], notes: tuple[str, ...] = ()
) -> Table:
    """Returns a table whose last row has the sums of the columns of numbers."""
    sums = ("" if isinstance(column[0], str) else sum(map(int, column)) for column in list(zip(*rows, strict=True))[1:])
    every = [*rows, ("total", *sums)] if rows else []
    cells = tuple(tuple(cell if isinstance(cell, str) else f"{cell:,}" for cell in row) for row in every)
    return Table(title, header, cells, notes)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"

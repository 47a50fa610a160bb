"""Tables of collected trajectories and of the rows built from them."""

from collections.abc import Iterable, Mapping, Sequence
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
    groups = [
        {
            "game": game,
            **figures,
            **_failures(figures, labels),
            "success": _rate(figures["success_rate"]),
            "best of k": _rate(figures["best_of_k"]),
            "turns played": "-" if figures["turns_played"] is None else f"{figures['turns_played']:.1f}",
        }
        for game, figures in games.items()
    ]
    columns = _named("tasks", "trajectories", "success", "best of k", "turns played", *labels)
    return _table("Collected trajectories", groups, columns | {"generated_tokens": "generated tokens"}, total=False)


def training_data(groups: Sequence[Mapping[str, Any]], note: str = "") -> Table:
    """Returns the statistics of rows as Paprika's Table 4 (arXiv 2502.17543), with what was left out and why.

    Groups are fields of `dfc.rows.selection.GroupStatistics`, as ``statistics.json`` has them.
    """
    labels = _labels(groups)
    made = {"best_of_k": "best-of-K accuracy", "sft": "SFT trajectories", "pairs": "preference pairs"}
    left_out = {"too_long_sft": "SFT too long", "too_long_pairs": "pairs too long", "without_rejected": "no worse one"}
    best = [_rate(group["solved"] / group["tasks"] if group["tasks"] else None) for group in groups]
    return _table(
        "Training data by task group",
        [{**g, **_failures(g, labels), "best_of_k": share} for g, share in zip(groups, best, strict=True)],
        made | _named("tasks", "trajectories", "successes", *labels) | left_out,
        ("Best-of-K accuracy: share of tasks with a success, of those with a trajectory that could be used.", note),
        first="task group",
    )


def dialogue_data(groups: Sequence[Mapping[str, Any]], players: Sequence[str]) -> list[Table]:
    """Returns the statistics of rows made of dialogues as Playpen's Tables 3 and 4, with what explains them.

    Groups are fields of `dfc.rows.dialogue_rows.DialogueStatistics`, as ``statistics.json`` has them; players the best
    ones, best first.
    """
    groups = [group | {"players": f"{group['players']:,}"} for group in map(dict, groups)]  # no sum of players

    def apart(**kinds: str) -> dict[str, str]:
        ends = {"": "", "_held_out": " held out"}
        return {f"{kind}{end}": f"{words}{also}" for kind, words in kinds.items() for end, also in ends.items()}

    own = _named("dialogues", "players", "won", "lost", "aborted", "unfinished", "instances")
    pairs = apart(pairs_dialogue="dialogue pairs", pairs_turn="turn pairs")
    why = {"without_negative": "won without a worse one", "too_long": "rows and pairs too long"}
    mended = any(group[name] for group in groups for name in _MENDED)
    ranking = f"Players, those with the most won dialogues first: {', '.join(players)}."
    return [
        _table("Dialogues", groups, own | {"instances_held_out": "held out"}, (ranking,)),
        _table("Supervised rows, before and after splitting", groups, apart(chosen="dialogues", sft="rows")),
        _table("Preference pairs", groups, pairs | why),
        *([_table("Published dialogues, repaired", groups, _MENDED)] if mended else []),
    ]


def _table(
    title: str,
    groups: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    notes: Iterable[str] = (),
    *,
    first: str = "game",
    total: bool = True,
) -> Table:
    """Returns values of groups, by name and head of each column; numbers are summed below, texts are not."""
    values = [[group[name] for name in columns] for group in groups]
    rows = [
        (group["game"], *(value if isinstance(value, str) else f"{value:,}" for value in row))
        for group, row in zip(groups, values, strict=True)
    ]
    if total and rows:
        sums = ("" if isinstance(column[0], str) else f"{sum(column):,}" for column in zip(*values, strict=True))
        rows.append(("total", *sums))
    return Table(title, (first, *columns.values()), tuple(rows), tuple(filter(None, notes)))


def _named(*columns: str) -> dict[str, str]:
    return {name: name for name in columns}


def _labels(figures: Any) -> list[str]:  # noqa: ANN401 - mappings, one after another
    """Returns the labels of failures; one that only teams have is there if any of the figures has it."""
    return max((list(figure["failures"]) for figure in figures), key=len, default=[])


def _failures(figures: Mapping[str, Any], labels: Iterable[str]) -> dict[str, int]:
    return {label: figures["failures"].get(label, 0) for label in labels}


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"

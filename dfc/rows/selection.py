"""Which trajectories to train on: successes for supervised training, pairs of a better and a worse one.

Decided on columns of a few bytes per row; no message and no token is read. A choice among equals is made by a hash of
seed, task and sample number, so it does not depend on the order of rows, on the files, or on how many hosts wrote them.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dfc.games.rng import derive_seed
from dfc.records.trajectories import FAILURES, INCONCLUSIVE, failure_counts
from dfc.records.trajectory_files import KEPT, Columns, DatasetError, read_columns

_TEXTS = ("game", "options", "opponent", "world", "failure")
_NUMBERS = ("seat", "task", "sample", "turns", "tokens")
_NEEDED = (*_TEXTS, "success", *_NUMBERS)
_SETTING = ("game", "options", "opponent", "seat")
_NONE = -1  # a chosen row where there is none


@dataclasses.dataclass(frozen=True)
class SelectionConfig:
    """What is trained on; the paper's values where it states them.

    Attributes:
      sft_tokens: tokens of a trajectory above which supervised training leaves it out; appendix C.
      pair_tokens: the same for either side of a pair.
      turn_ratio: a success is worse than the best one if it took at least this many times as many turns; above 1. The
        paper says "substantially more"; infinity, failures only, is what its code does.
      rejected_failures: labels of `dfc.records.trajectories.FAILURES` that may be the worse side, beside failures that
        the rules decided. The paper filters replies in a wrong format away, so none by default.
      seed: of every random choice.

    Raises:
      ValueError: a value outside its range.
    """

    sft_tokens: int = 12_000
    pair_tokens: int = 8_192
    turn_ratio: float = 2.0
    rejected_failures: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sft_tokens < 1 or self.pair_tokens < 1:
            raise ValueError(f"token limits must be 1 or more, got {self.sft_tokens} and {self.pair_tokens}")
        if not self.turn_ratio > 1:
            raise ValueError(f"turn_ratio must be above 1, got {self.turn_ratio}")
        allowed = [label for label in FAILURES if label not in INCONCLUSIVE]
        if wrong := [label for label in self.rejected_failures if label not in allowed]:
            raise ValueError(f"rejected_failures must be among {', '.join(allowed)}, got {', '.join(wrong)}")


@dataclasses.dataclass(frozen=True)
class GroupStatistics:
    """One line of the paper's Table 4, and what explains it.

    Attributes:
      game: the task group.
      tasks: with at least one trajectory that is conclusive about the policy. trajectories: all of them.
      solved: tasks with a success. successes: trajectories.
      sft: trajectories for supervised training. pairs: preference pairs.
      failures: trajectories by label; those that the rules decided are not among them.
      too_long_sft: successes over the limit. too_long_pairs: trajectories over the limit.
      without_rejected: solved tasks, within the limit, none of whose trajectories is clearly worse than the best.
    """

    game: str
    tasks: int
    trajectories: int
    solved: int
    successes: int
    sft: int
    pairs: int
    failures: dict[str, int]
    too_long_sft: int
    too_long_pairs: int
    without_rejected: int

    @property
    def best_of_k(self) -> float:
        """Share of tasks that some trajectory solved; NaN without tasks."""
        return self.solved / self.tasks if self.tasks else math.nan


@dataclasses.dataclass(frozen=True)
class Selection:
    """What was chosen, as numbers of rows of `columns`, ordered by task.

    Attributes:
      columns: of the data set.
      sft: rows for supervised training, int64 [n].
      chosen: the better row of each pair, int64 [pairs]. rejected: the worse one.
      statistics: by task group, in the order of their names.
    """

    columns: Columns
    sft: np.ndarray
    chosen: np.ndarray
    rejected: np.ndarray
    statistics: tuple[GroupStatistics, ...]


def select(folder: Path, config: SelectionConfig | None = None, *, groups: Sequence[str] | None = None) -> Selection:
    """Chooses rows for supervised training and preference pairs from a folder of trajectories.

    A task is a game with its options, played from one seat against one opponent, and its number.

    Supervised rows: of every task, for each number of turns in which it was solved, one success.

    Pairs, one per task: the chosen side is a success in the fewest turns, drawn among equals that have a worse one; the
    rejected side is drawn from all worse ones: failures, and successes with at least `turn_ratio` times its turns. Both
    sides have the same `world`: in minesweeper the same first reveal. Trajectories over a limit are left out before
    anything is chosen. `groups` are the games to choose from; None for all.

    Raises:
      DatasetError: a part cannot be read, a group has no trajectory, one key occurs twice, or not all rows are of one
        model, one sampling and one seed.

    Source: Paprika (arXiv 2502.17543), section 3.2 and appendix C.
    """
    config = config or SelectionConfig()
    columns = _of_groups(_of_one_collection(read_columns(folder, (*_NEEDED, *KEPT))), folder, groups)
    rows = _TrajectoryArrays.of(columns, config.seed)
    sft = _supervised(rows, config)
    chosen, rejected, without = _pairs(rows, config)
    statistics = _statistics(rows, config, sft, chosen, without)
    place = rows.order
    return Selection(columns, place[sft], place[chosen], place[rejected], statistics)


def _of_one_collection(columns: Columns) -> Columns:
    """Returns the columns without those of the collection, of which every row must have the same."""
    for name in KEPT:
        column = columns.table[name]
        codes, _ = _coded(column)
        if len(others := np.flatnonzero(codes != codes[0])):
            other = int(others[0])
            raise DatasetError(
                f"{columns.place(other)}: {name} is {column[other].as_py()!r}, but {column[0].as_py()!r} in "
                f"{columns.place(0)}; a folder holds one collection: move the parts of the other one into a folder of "
                "their own, and build from each"
            )
    return columns._replace(table=columns.table.drop_columns(list(KEPT)))


def _of_groups(columns: Columns, folder: Path, groups: Sequence[str] | None) -> Columns:
    if groups is None:
        return columns
    game = columns.table["game"]
    there = set(pc.unique(game).to_pylist())
    if absent := [name for name in groups if name not in there]:
        raise DatasetError(
            f"{folder}: no trajectory of {', '.join(absent)}, there are {', '.join(sorted(there))}; collect the group, "
            "or leave it out"
        )
    kept = pc.is_in(pc.cast(game, pa.string()), value_set=pa.array(list(groups))).to_numpy()
    return Columns(columns.parts, columns.table.filter(pa.array(kept)), columns.part[kept], columns.row[kept])


@dataclasses.dataclass(frozen=True)
class _TrajectoryArrays:
    """Columns as arrays, sorted by task and sample, all [n].

    `order` leads back to the rows of the data set; `group` numbers the tasks; `game` and `failure` are indices into
    `games` and `FAILURES` (-1: the rules decided); `world` is a number per text; `priority` is the random choice.
    """

    order: np.ndarray
    group: np.ndarray
    game: np.ndarray
    games: list[str]
    world: np.ndarray
    failure: np.ndarray
    success: np.ndarray
    turns: np.ndarray
    tokens: np.ndarray
    priority: np.ndarray

    @classmethod
    def of(cls, columns: Columns, seed: int) -> "_TrajectoryArrays":
        table = columns.table
        for name in ("game", "options", "opponent", "success", *_NUMBERS):
            if table[name].null_count:
                empty = int(np.flatnonzero(table[name].is_null().to_numpy())[0])
                raise DatasetError(
                    f"{columns.place(empty)}: {name} is empty; delete the file, and its tasks are collected again"
                )
        texts = {name: _coded(table[name]) for name in _TEXTS}
        numbers = {name: table[name].to_numpy() for name in _NUMBERS}
        setting, words = _settings(texts, numbers["seat"])
        order = np.lexsort((numbers["sample"], numbers["task"], setting))
        setting, task, sample = setting[order], numbers["task"][order], numbers["sample"][order]
        new = np.ones(len(order), bool)
        new[1:] = (setting[1:] != setting[:-1]) | (task[1:] != task[:-1])
        twice = np.flatnonzero(~new[1:] & (sample[1:] == sample[:-1]))
        if len(twice):
            one, other = columns.place(order[twice[0]]), columns.place(order[twice[0] + 1])
            raise DatasetError(
                f"{other}: sample {sample[twice[0]]} of task {task[twice[0]]} of {words[setting[twice[0]]][0]} stands "
                f"in {one} as well; delete one of the two files"
            )
        streams = np.asarray([derive_seed("selection", seed, *word) for word in words], np.uint64)
        game_codes, games = texts["game"]
        failure_codes, labels = texts["failure"]
        known = np.asarray([FAILURES.index(label) if label in FAILURES else len(FAILURES) for label in labels] + [-1])
        if (known == len(FAILURES)).any():
            first = int(np.flatnonzero(known[failure_codes] == len(FAILURES))[0])
            raise DatasetError(
                f"{columns.place(first)}: failure is {labels[failure_codes[first]]!r}, expected none or one of "
                f"{', '.join(FAILURES)}; correct it, or delete the file"
            )
        return cls(
            order=order,
            group=np.cumsum(new) - 1,
            game=game_codes[order],
            games=games,
            world=texts["world"][0][order] + 1,
            failure=known[failure_codes][order],
            success=table["success"].to_numpy()[order],
            turns=numbers["turns"][order],
            tokens=numbers["tokens"][order],
            priority=_mixed(_mixed(streams[setting] + task.astype(np.uint64)) + sample.astype(np.uint64)),
        )


def _coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Returns numbers of texts, -1 for none, and the texts."""
    array = column.combine_chunks()
    array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = array.indices.fill_null(_NONE).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), array.dictionary.to_pylist()


def _settings(
    texts: dict[str, tuple[np.ndarray, list[str]]], seat: np.ndarray
) -> tuple[np.ndarray, list[tuple[str, str, str, int]]]:
    """Returns per row the number of its setting, and the settings, in the order of their texts."""
    codes = [texts[name][0] for name in _SETTING[:-1]]
    combined = np.stack([*codes, seat.astype(np.int64)])
    different, inverse = np.unique(combined, axis=1, return_inverse=True)
    words = [
        (*(texts[name][1][code] for name, code in zip(_SETTING[:-1], column, strict=False)), int(column[-1]))
        for column in different.T
    ]
    by_words = sorted(range(len(words)), key=words.__getitem__)
    rank = np.empty(len(words), np.int64)
    rank[by_words] = np.arange(len(words))
    return rank[inverse.ravel()], [words[number] for number in by_words]


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele et al. 2014): a bijection of 64 bits without visible structure."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def _first_by(priority: np.ndarray, kept: np.ndarray, *classes: np.ndarray) -> np.ndarray:
    """Returns, of the kept rows, the one with the smallest priority of every class, ordered by class."""
    rows = np.flatnonzero(kept)
    keys = [values[rows] for values in classes]
    order = np.lexsort((rows, priority[rows], *reversed(keys)))
    new = np.ones(len(rows), bool)
    new[1:] = np.logical_or.reduce([values[order][1:] != values[order][:-1] for values in keys])
    return rows[order[new]]


def _supervised(rows: _TrajectoryArrays, config: SelectionConfig) -> np.ndarray:
    return _first_by(rows.priority, rows.success & (rows.tokens <= config.sft_tokens), rows.group, rows.turns)


def _pairs(rows: _TrajectoryArrays, config: SelectionConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the chosen and the rejected row of every pair, and the tasks whose best has nothing worse beside it."""
    short = rows.tokens <= config.pair_tokens
    solved = rows.success & short
    best = np.full(int(rows.group[-1]) + 1, np.iinfo(np.int64).max)
    np.minimum.at(best, rows.group[solved], rows.turns[solved])
    fewest = best[rows.group].astype(np.float64)
    top = solved & (rows.turns == fewest)
    allowed = np.asarray([label in config.rejected_failures for label in FAILURES] + [True])
    worse = short & np.where(
        rows.success, (rows.turns >= config.turn_ratio * fewest) & (rows.turns > fewest), allowed[rows.failure]
    )
    # Numbers of (task, world): a pair's sides share both.
    _, cell = np.unique(rows.group * (rows.world.max() + 1) + rows.world, return_inverse=True)
    has_worse = np.zeros(int(cell.max()) + 1, bool)
    has_worse[cell[worse]] = True
    chosen = _first_by(rows.priority, top & has_worse[cell], rows.group)
    of_pair = np.zeros(len(has_worse), bool)
    of_pair[cell[chosen]] = True
    # No row is both best and worse, so the two random choices have nothing in common.
    rejected = _first_by(rows.priority, worse & of_pair[cell], rows.group)
    without = np.setdiff1d(rows.group[top], rows.group[chosen])
    return chosen, rejected, without


def _statistics(
    rows: _TrajectoryArrays, config: SelectionConfig, sft: np.ndarray, chosen: np.ndarray, without: np.ndarray
) -> tuple[GroupStatistics, ...]:
    inconclusive = np.asarray([label in INCONCLUSIVE for label in FAILURES] + [False])[rows.failure]
    game_of_task = np.empty(int(rows.group[-1]) + 1, np.int64)
    game_of_task[rows.group] = rows.game

    def count(kept: np.ndarray) -> np.ndarray:
        return np.bincount(rows.game[kept], minlength=len(rows.games))

    def tasks(kept: np.ndarray) -> np.ndarray:
        return np.bincount(game_of_task[np.unique(rows.group[kept])], minlength=len(rows.games))

    by_label = [count(rows.failure == number) for number in range(len(FAILURES))]
    figures = {
        "tasks": tasks(~inconclusive),
        "trajectories": count(np.ones(len(rows.game), bool)),
        "solved": tasks(rows.success),
        "successes": count(rows.success),
        "sft": count(sft),
        "pairs": count(chosen),
        "too_long_sft": count(rows.success & (rows.tokens > config.sft_tokens)),
        "too_long_pairs": count(rows.tokens > config.pair_tokens),
        "without_rejected": np.bincount(game_of_task[without], minlength=len(rows.games)),
    }
    found = []
    for number, game in sorted(enumerate(rows.games), key=lambda pair: pair[1]):
        if not figures["trajectories"][number]:
            continue  # a name in the dictionary of a column whose rows were left out
        failures = failure_counts(
            {label: int(counts[number]) for label, counts in zip(FAILURES, by_label, strict=True)}
        )
        values = {name: int(counts[number]) for name, counts in figures.items()}
        found.append(GroupStatistics(game=game, failures=failures, **values))
    return tuple(found)

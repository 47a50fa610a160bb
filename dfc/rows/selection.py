"""Which trajectories to train on: successes for supervised training, pairs of a better and a worse one.

Decided on columns of a few bytes per row; no message and no token is read. A choice among equals is made by a hash of
seed, task and sample number, so it does not depend on the order of rows, on the files, or on how many hosts wrote them.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dfc.errors import ConfigError
from dfc.games.rng import derive_seed
from dfc.records.trajectories import FAILURES, INCONCLUSIVE, failure_counts
from dfc.records.trajectory_files import KEPT, Columns, DatasetError, read_columns

_SETTING = ("game", "options", "opponent")  # and the seat
_TEXTS = (*_SETTING, "world", "failure")
_NUMBERS = ("seat", "task", "sample", "turns", "tokens")
_NEEDED = (*_TEXTS, "success", *_NUMBERS)
_NONE = -1  # in the place of a text that is not there


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
      ConfigError: a value outside its range.
    """

    sft_tokens: int = 12_000
    pair_tokens: int = 8_192
    turn_ratio: float = 2.0
    rejected_failures: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []
        if self.sft_tokens < 1 or self.pair_tokens < 1:
            problems.append(f"token limits must be 1 or more, got {self.sft_tokens} and {self.pair_tokens}")
        if not self.turn_ratio > 1:
            problems.append(f"turn_ratio must be above 1, got {self.turn_ratio}")
        allowed = [label for label in FAILURES if label not in INCONCLUSIVE]
        if wrong := [label for label in self.rejected_failures if label not in allowed]:
            problems.append(f"rejected_failures must be among {', '.join(allowed)}, got {', '.join(wrong)}")
        if problems:
            raise ConfigError(problems)


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
      config: by which it was chosen.
    """

    columns: Columns
    sft: np.ndarray
    chosen: np.ndarray
    rejected: np.ndarray
    statistics: tuple[GroupStatistics, ...]
    config: SelectionConfig

    def record(self) -> dict[str, Any]:
        """Returns settings and statistics as ``statistics.json`` has them."""
        settings = dataclasses.asdict(self.config) | {"turn_ratio": str(self.config.turn_ratio)}  # JSON has no infinity
        return {"settings": settings, "groups": [dataclasses.asdict(group) for group in self.statistics]}


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
    sft: list[int] = []
    pairs: list[tuple[int, int]] = []
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for game, task in _tasks(columns, config.seed):
        won = [one for one in task if one.success]
        chosen, both = imitated(task, config), pair(task, config)
        sft += chosen
        pairs += both
        own = counts[game]
        own.update(one.failure or "" for one in task)
        own["tasks"] += any(one.failure not in INCONCLUSIVE for one in task)
        own["trajectories"] += len(task)
        own["solved"] += bool(won)
        own["successes"] += len(won)
        own["sft"] += len(chosen)
        own["pairs"] += len(both)
        own["too_long_sft"] += sum(one.tokens > config.sft_tokens for one in won)
        own["too_long_pairs"] += sum(one.tokens > config.pair_tokens for one in task)
        own["without_rejected"] += not both and any(one.tokens <= config.pair_tokens for one in won)
    names = [field.name for field in dataclasses.fields(GroupStatistics) if field.name not in ("game", "failures")]
    statistics = tuple(
        GroupStatistics(
            game=game, failures=failure_counts(counts[game]), **{name: counts[game][name] for name in names}
        )
        for game in sorted(counts)
    )
    rows = np.asarray(pairs, np.int64).reshape(-1, 2)
    return Selection(columns, np.asarray(sft, np.int64), rows[:, 0], rows[:, 1], statistics, config)


# ---- the choice within one task -------------------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A trajectory of a task as the choice sees it.

    Attributes:
      row: number in the columns.
      world: a number per text.
      failure: label; None: the rules decided.
      success: whether it is one. turns: of the policy. tokens: all.
      priority: the random choice: the smallest one is taken.
    """

    row: int
    world: int
    failure: str | None
    success: bool
    turns: int
    tokens: int
    priority: int


def imitated(task: Sequence[Candidate], config: SelectionConfig) -> list[int]:
    """Returns the rows for supervised training of one task, those of fewer turns first."""
    short = [one for one in task if one.success and one.tokens <= config.sft_tokens]
    short.sort(key=lambda one: (one.turns, one.priority))
    return [next(same).row for _, same in itertools.groupby(short, key=lambda one: one.turns)]


def pair(task: Sequence[Candidate], config: SelectionConfig) -> list[tuple[int, int]]:
    """Returns the chosen and the rejected row of one task as a list of one; empty where there is no pair."""
    short = [one for one in task if one.tokens <= config.pair_tokens]
    fewest = min((one.turns for one in short if one.success), default=math.inf)

    def is_worse(one: Candidate) -> bool:
        if one.success:
            return one.turns >= config.turn_ratio * fewest and one.turns > fewest
        return one.failure is None or one.failure in config.rejected_failures

    worse = [one for one in short if is_worse(one)]
    worlds = {one.world for one in worse}
    best = [one for one in short if one.success and one.turns == fewest and one.world in worlds]
    if not best:
        return []
    # No row is both best and worse, so the two random choices have nothing in common.
    chosen = min(best, key=_priority)
    return [(chosen.row, min((one for one in worse if one.world == chosen.world), key=_priority).row)]


def _priority(one: Candidate) -> int:
    return one.priority


# ---- columns --------------------------------------------------------------------------------------------------------


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


def _tasks(columns: Columns, seed: int) -> Iterator[tuple[str, list[Candidate]]]:
    """Yields the game and the trajectories of every task, those of one sample after another, in the order of texts."""
    table = columns.table
    for name in (*_SETTING, "success", *_NUMBERS):
        if table[name].null_count:
            empty = int(np.flatnonzero(table[name].is_null().to_numpy())[0])
            raise DatasetError(
                f"{columns.place(empty)}: {name} is empty; delete the file, and its tasks are collected again"
            )
    codes, texts = zip(*(_coded(table[name]) for name in _TEXTS), strict=True)
    seat, task, sample, turns, tokens = (table[name].to_numpy() for name in _NUMBERS)
    order = np.lexsort((sample, task, seat, *reversed(codes[:3])))
    setting = np.stack([*codes[:3], seat])[:, order]
    task, sample = task[order], sample[order]
    other = np.append(True, (setting[:, 1:] != setting[:, :-1]).any(axis=0))  # the first row of a setting
    new = other | np.append(True, task[1:] != task[:-1])  # and of a task
    words = [
        (*(texts[place][code] for place, code in enumerate(column[:3])), column[3])
        for column in setting[:, other].T.tolist()
    ]
    number = np.cumsum(other) - 1
    twice = np.flatnonzero(~new[1:] & (sample[1:] == sample[:-1]))
    if len(twice):
        first = twice[0]
        one, another = columns.place(order[first]), columns.place(order[first + 1])
        raise DatasetError(
            f"{another}: sample {sample[first]} of task {task[first]} of {words[number[first]][0]} stands in {one} as "
            "well; delete one of the two files"
        )
    world, failure = codes[3:]
    for code, label in enumerate(texts[4]):
        if label not in FAILURES and (failure == code).any():
            raise DatasetError(
                f"{columns.place(int((failure == code).argmax()))}: failure is {label!r}, expected none or one of "
                f"{', '.join(FAILURES)}; correct it, or delete the file"
            )
    streams = np.asarray([derive_seed("selection", seed, *word) for word in words], np.uint64)[number]
    arrays = (
        order,
        world[order],
        np.asarray([*texts[4], None], object)[failure[order]],
        table["success"].to_numpy()[order],
        turns[order],
        tokens[order],
        _mixed(_mixed(streams + task.astype(np.uint64)) + sample.astype(np.uint64)),
    )
    for start, end in itertools.pairwise([*np.flatnonzero(new).tolist(), len(new)]):
        values = zip(*(array[start:end].tolist() for array in arrays), strict=True)
        yield words[number[start]][0], list(map(Candidate._make, values))


def _coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Returns numbers of texts in the order of the texts, -1 for none, and the texts."""
    array = column.combine_chunks()
    array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    words = array.dictionary.to_pylist()
    order = sorted(range(len(words)), key=words.__getitem__)
    rank = np.append(np.argsort(order), _NONE).astype(np.int64)
    return rank[array.indices.fill_null(_NONE).to_numpy(zero_copy_only=False)], [words[place] for place in order]


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele et al. 2014): a bijection of 64 bits without visible structure."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed

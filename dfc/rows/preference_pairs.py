"""Files to train on, made from a folder of trajectories: supervised rows, preference pairs, their statistics.

Supervised rows have the columns of trajectories. A pair has the columns of its task once and all others twice, as
``chosen_...`` and ``rejected_...``. Only rows that were selected are read, a bounded number of tokens at a time.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from dfc.files import write_json
from dfc.records.trajectories import COLUMNS
from dfc.records.trajectory_files import read_rows, write_atomically
from dfc.rows.selection import GroupStatistics, Selection, SelectionConfig, select

PAIRS_NAME, PAIRS_VERSION = b"dfc.pairs", 2
TASK_COLUMNS = ("game", "options", "split", "task", "seat", "opponent", "world")
SIDE_COLUMNS = tuple(name for name in COLUMNS if name not in TASK_COLUMNS)
SFT_FILE, PAIRS_FILE, STATISTICS_FILE = "sft.parquet", "pairs.parquet", "statistics.json"
_TOKENS_AT_ONCE = 4_000_000


def build(
    trajectories: Path, folder: Path, config: SelectionConfig | None = None, *, groups: Sequence[str] | None = None
) -> tuple[GroupStatistics, ...]:
    """Writes ``sft.parquet``, ``pairs.parquet`` and ``statistics.json`` into a folder; returns the statistics.

    The same trajectories, settings and seed give the same rows in the same order, whichever host wrote the parts. The
    folder is created if missing; files of these names are replaced. `groups` are the games to choose from; None for
    all.

    Raises:
      DatasetError: see `dfc.rows.selection.select`.
    """
    selection = select(trajectories, config, groups=groups)
    folder.mkdir(parents=True, exist_ok=True)
    write_files(selection, folder)
    write_json(folder / STATISTICS_FILE, selection.record())
    return selection.statistics


def write_files(selection: Selection, folder: Path) -> None:
    """Writes ``sft.parquet`` and ``pairs.parquet`` of what was chosen into a folder that is there."""
    note = {b"dfc.selection": json.dumps(selection.record()["settings"]).encode()}
    sft = list(_chunks(selection, selection.sft))
    pairs = list(_chunks(selection, selection.chosen, selection.rejected))
    # One pass over the files for both: decompressing messages is most of the work.
    tables = _read(selection, [*sft, *pairs], spill=folder)
    write_atomically(_noted(itertools.islice(tables, len(sft)), note), folder / SFT_FILE)
    write_atomically(_noted(_side_by_side(tables), note), folder / PAIRS_FILE)


def _noted(tables: Iterator[pa.Table], note: dict[bytes, bytes]) -> Iterator[pa.Table]:
    for table in tables:
        yield table.replace_schema_metadata((table.schema.metadata or {}) | note)


def sft_tables(selection: Selection) -> Iterator[pa.Table]:
    """Yields the rows for supervised training as pyarrow tables of `dfc.records.trajectories.SCHEMA`; at least one."""
    return _read(selection, list(_chunks(selection, selection.sft)))


def pair_tables(selection: Selection) -> Iterator[pa.Table]:
    """Yields the preference pairs as pyarrow tables: `TASK_COLUMNS`, then both sides' `SIDE_COLUMNS`; at least one."""
    return _side_by_side(_read(selection, list(_chunks(selection, selection.chosen, selection.rejected))))


def _side_by_side(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yields pairs of tables whose first half are the chosen and whose second half the rejected sides."""
    for both in tables:
        half = both.num_rows // 2
        sides = {"chosen": both.slice(0, half), "rejected": both.slice(half)}
        columns = {name: sides["chosen"][name] for name in TASK_COLUMNS}
        columns |= {f"{side}_{name}": rows[name] for side, rows in sides.items() for name in SIDE_COLUMNS}
        yield pa.table(columns).replace_schema_metadata({PAIRS_NAME: str(PAIRS_VERSION)})


def _read(
    selection: Selection, chunks: Sequence[tuple[np.ndarray, ...]], spill: Path | None = None
) -> Iterator[pa.Table]:
    return read_rows(selection.columns, [np.concatenate(sides) for sides in chunks], spill=spill)


def _chunks(selection: Selection, *sides: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields the next rows of each side, as many as hold a bounded number of tokens; once if there are none."""
    tokens = selection.columns.table["tokens"].to_numpy()
    total = np.cumsum(np.sum([tokens[side] for side in sides], axis=0, dtype=np.int64))
    if not len(total):
        yield sides
        return
    for number in np.unique(total // _TOKENS_AT_ONCE):
        own = total // _TOKENS_AT_ONCE == number
        yield tuple(side[own] for side in sides)

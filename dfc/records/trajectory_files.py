"""A folder of trajectories as Parquet files: written part by part, read whole or by column.

A part appears under its name when it is complete and is never changed again, so a reader sees whole parts only, and a
collection that was killed resumes with the tasks of which no row is there. Hosts write parts of their own names into
one folder. Checksums are written with every page and compared when it is read.
"""

import contextlib
import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dfc import files
from dfc.errors import DfcError
from dfc.files import replacing
from dfc.records.trajectories import (
    BRANCH_COLUMNS,
    COLUMNS,
    OLDER,
    SCHEMA,
    SCHEMA_NAME,
    SCHEMA_VERSION,
    Provenance,
    Trajectory,
    TrajectoryKey,
    canonical_json,
    to_table,
    to_trajectories,
)

_SUFFIX = ".parquet"
KEPT = ("model", "model_hash", "sampling", "seed")  # of a provenance: what one data set has one of
_COMPRESSION = "zstd"
_BYTES_AT_ONCE = 64 * 2**20  # of chosen rows, before they are put in order
_INFLATED, _MOST_RATIO = 16 * 2**20, 500  # bytes that any row group may unpack to; times its packed size beyond that
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}  # bytes of a value in memory, at least; of others 8
_CODED = frozenset(
    ("game", "options", "split", "opponent", "world", "outcome", "failure", *KEPT, "dfc_version", "commit")
) - {"seed"}


class DatasetError(DfcError, ValueError):
    """A data set that cannot be used as it stands; names file, row and fix."""


class Columns(NamedTuple):
    """Columns of every row of a folder.

    Attributes:
      parts: the files, by name.
      table: the columns asked for, texts with few values as dictionaries; a pyarrow.Table of one chunk per column.
      part: number of each row's file, int32 [rows].
      row: number of each row in its file, int32 [rows].
    """

    parts: list[Path]
    table: pa.Table
    part: np.ndarray
    row: np.ndarray

    def place(self, index: int) -> str:
        """Returns where a row stands, for a message."""
        return f"{self.parts[int(self.part[index])]}, row {int(self.row[index])}"


# ---- writing --------------------------------------------------------------------------------------------------------


def write_atomically(table: pa.Table | Iterator[pa.Table], path: Path, *, row_group_rows: int = 1024) -> None:
    """Writes a table, or tables of one schema one after another, as one Parquet file, atomically, on the disk.

    An existing file is replaced; `row_group_rows` rows are read together.
    """
    tables = iter([table] if isinstance(table, pa.Table) else table)
    first = next(tables)
    with replacing(path, "wb") as file:
        options = {"compression": _COMPRESSION, "write_page_checksum": True, "store_schema": True}
        with pq.ParquetWriter(file, first.schema, **options) as writer:
            writer.write_table(first, row_group_rows)
            for more in tables:
                writer.write_table(more, row_group_rows)


class TrajectoryWriter:
    """Adds trajectories to a folder, one part after another; use it as a context manager.

    Rows wait in memory until `rows_per_part` are there, or until `flush` or `close`. A process that is killed loses
    those, and nothing else: `keys` of the next writer does not name them.

    Attributes:
      folder: of the parts.
      keys: what is stored already, of every host, as of the opening; rows written since are added.

    Args:
      folder: created if missing.
      provenance: where all rows come from; a folder has one model, one sampling and one seed.
      host: number of this host, from 0. hosts: how many there are.
      rows_per_part: rows after which a part is written.

    Raises:
      DatasetError: the folder holds rows of another provenance or a part that cannot be read, or another process
        writes as this host.
      ValueError: host or rows_per_part make no sense.
    """

    def __init__(
        self, folder: Path, provenance: Provenance, *, host: int = 0, hosts: int = 1, rows_per_part: int = 1024
    ) -> None:
        if not 0 <= host < hosts or rows_per_part < 1:
            raise ValueError(
                f"expected 0 <= host < hosts and rows_per_part of 1 or more, got {host=}, {hosts=}, {rows_per_part=}"
            )
        self.folder = folder
        self._provenance = provenance
        self._rows_per_part = rows_per_part
        self._waiting: list[Trajectory] = []
        self._prefix = f"part-{host:05d}-of-{hosts:05d}-"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder, host, hosts)
        try:
            for leftover in folder.glob(f".{self._prefix}*{files.PARTIAL}"):
                leftover.unlink()
            self.keys = _keys(folder, provenance)
            own = [int(path.stem.removeprefix(self._prefix)) for path in folder.glob(f"{self._prefix}*{_SUFFIX}")]
        except BaseException:
            self._lock.close()
            raise
        self._next = max(own, default=-1) + 1

    def write(self, row: Trajectory) -> None:
        """Adds a row.

        Raises:
          ValueError: a row of its key is there already, or it is of another provenance.
        """
        if row.key in self.keys:
            raise ValueError(f"{self.folder}: {tuple(row.key)} is there already; look into `keys` before playing it")
        if row.provenance != self._provenance:
            raise ValueError(f"{self.folder}: expected rows of {self._provenance}, got one of {row.provenance}")
        self.keys.add(row.key)
        self._waiting.append(row)
        if len(self._waiting) >= self._rows_per_part:
            self.flush()

    def flush(self) -> None:
        """Writes the rows that wait as a part; they are safe when this returns."""
        if self._waiting:
            table = to_table(self._waiting)
            write_atomically(table, self.folder / f"{self._prefix}{self._next:06d}{_SUFFIX}")
            self._next += 1
            self._waiting = []

    def close(self) -> None:
        """Writes the rows that wait and lets others write as this host."""
        try:
            self.flush()
        finally:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _locked(folder: Path, host: int, hosts: int) -> io.FileIO:
    try:
        lock = files.lock(folder / f".lock-{host:05d}-of-{hosts:05d}")
    except OSError as error:
        raise DatasetError(
            f"{folder}: no lock to write as host {host} of {hosts}: {error.strerror or error}"
        ) from error
    if lock is None:
        raise DatasetError(
            f"{folder}: another process writes as host {host} of {hosts}; stop it, or give each process its own host"
        )
    return lock


def _keys(folder: Path, provenance: Provenance) -> set[TrajectoryKey]:
    wanted = {name: getattr(provenance, name) for name in KEPT} | {"sampling": canonical_json(provenance.sampling)}
    found: set[TrajectoryKey] = set()
    for path in parts(folder):
        table = read_part(path, (*TrajectoryKey._fields, *KEPT))
        for name in KEPT:
            other = next((v for v in table[name].unique().to_pylist() if v != wanted[name]), None)
            if other is not None:
                row = table[name].to_pylist().index(other)
                raise DatasetError(
                    f"{path}, row {row}: {name} is {other!r}, but this collection has {wanted[name]!r}; "
                    "collect into another folder, or resume with the settings of this one"
                )
        found.update(map(TrajectoryKey._make, zip(*(table[n].to_pylist() for n in TrajectoryKey._fields), strict=True)))
    return found


# ---- reading --------------------------------------------------------------------------------------------------------


def parts(folder: Path) -> list[Path]:
    """Returns the parts of a folder by name; what is being written is not among them."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


def read_part(path: Path, columns: Sequence[str] = COLUMNS, *, coded: bool = False) -> pa.Table:
    """Returns columns of one part as a pyarrow.Table; with `coded`, texts of few values come as dictionaries.

    Raises:
      DatasetError: the file is cut, damaged, of another schema version, or lacks a column.
    """
    with open_part(path, columns, coded=coded) as file, damage(path):
        return file.read(list(columns))


def refuse_inflated(path: Path, metadata: pq.FileMetaData) -> None:
    """Raises where a file of some kilobytes says that it unpacks to gigabytes; nothing of it is unpacked for that.

    Text and tokens in Parquet become 3 to 30 times as large, and rows that repeat themselves 100 times.

    Raises:
      DatasetError: a row group is larger than 16 MiB and 500 times what is stored of it.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        packed = sum(column.total_compressed_size for column in columns)
        # A dictionary of few values, repeated, takes next to nothing before it is unpacked.
        unpacked = sum(
            max(column.total_uncompressed_size, column.num_values * _WIDTHS.get(column.physical_type, 8))
            for column in columns
        )
        if unpacked > max(_INFLATED, _MOST_RATIO * packed):
            raise DatasetError(
                f"{path}: its row group {number} holds {packed:,} bytes that unpack to {unpacked:,}, more than "
                f"{_MOST_RATIO} times as much, as no data does that is worth training on; if it is meant, write the "
                "file again without compression"
            )


@contextlib.contextmanager
def open_part(path: Path, columns: Sequence[str] = COLUMNS, *, coded: bool = False) -> Iterator[pq.ParquetFile]:
    """Opens a part as a pyarrow ParquetFile whose columns are what they should be; arguments as for `read_part`."""
    dictionaries = [name for name in columns if coded and name in _CODED]
    with damage(path):
        file = pq.ParquetFile(path, read_dictionary=dictionaries, page_checksum_verification=True)
    with file:
        refuse_inflated(path, file.metadata)
        _check_schema(path, file, columns)
        yield file


@contextlib.contextmanager
def damage(path: Path, hint: str = "copy it again, or delete it, and its tasks are collected again") -> Iterator[None]:
    """Raises what the reader of Parquet raises in the block as DatasetError, with what to do about the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        raise DatasetError(f"{path}: cannot be read: {said}; the file is cut or damaged: {hint}") from error


def _check_schema(path: Path, file: pq.ParquetFile, columns: Sequence[str]) -> None:
    schema = file.schema_arrow
    version = (schema.metadata or {}).get(SCHEMA_NAME)
    if version != str(SCHEMA_VERSION).encode():
        what = "no trajectories of dfc" if version is None else f"trajectories of schema version {version.decode()}"
        raise DatasetError(
            f"{path}: {what}, expected version {SCHEMA_VERSION}; read it with the dfc that wrote it, or take it out of "
            "the folder (conversations of others are for dfc.rows.conversations)"
        )
    for name in columns:
        if name not in schema.names:
            raise DatasetError(f"{path}: no column {name}, it has {', '.join(schema.names)}; take the file out")
        found = schema.field(name).type
        found = found.value_type if pa.types.is_dictionary(found) else found
        if not _alike(found, SCHEMA.field(name).type) and not _alike(found, OLDER.get(name, pa.null())):
            raise DatasetError(
                f"{path}: column {name} is {found}, expected {SCHEMA.field(name).type}; collect it again, or rewrite "
                "the file with that type"
            )


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are equal but for the names Parquet gives to the items of lists."""
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _alike(one.value_type, other.value_type)
    return bool(one.equals(other))


def read_columns(folder: Path, columns: Sequence[str]) -> Columns:
    """Returns some columns of every row of a folder, in the order of the files' names.

    Raises:
      DatasetError: the folder holds no row, or a part cannot be read.
    """
    paths = parts(folder)
    tables = [read_part(path, columns, coded=True) for path in paths]
    sizes = np.asarray([table.num_rows for table in tables], np.int64)
    if not sizes.sum():
        raise DatasetError(f"{folder}: no trajectory in {len(paths)} parts; collect some first, or name their folder")
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    part = np.repeat(np.arange(len(paths), dtype=np.int32), sizes)
    return Columns(paths, table, part, (np.arange(len(part)) - starts).astype(np.int32))


def read_rows(
    columns: Columns, chunks: Sequence[np.ndarray], names: Sequence[str] = COLUMNS, *, spill: Path | None = None
) -> Iterator[pa.Table]:
    """Yields chosen rows, one pyarrow.Table per chunk, in the order asked for.

    Every row group that holds a chosen row is read once, whatever the order; others are not read. Memory holds
    `_BYTES_AT_ONCE` of rows, a few copies of them, and one chunk; more rows than that wait in a temporary file, which
    takes the uncompressed size of the rows and is gone when the process ends, however it ends. `chunks` are row numbers
    of `columns`, int [n] each; a row may be asked for more than once. `spill` is the folder of the temporary file; None
    for the system's.

    Raises:
      DatasetError: a part cannot be read or has fewer rows.
    """
    schema = pa.schema([SCHEMA.field(name) for name in names], SCHEMA.metadata)
    wanted = np.concatenate([*chunks, np.empty(0, np.int64)]).astype(np.int64)
    ends = np.cumsum([len(chunk) for chunk in chunks])
    # The positions in the result, by where their rows lie.
    by_file = np.lexsort((columns.row[wanted], columns.part[wanted]))
    found: list[list[tuple[np.ndarray, int]]] = [[] for _ in chunks]  # per chunk: positions and number of their batch
    with tempfile.TemporaryFile(dir=spill) as file:
        with pa.ipc.new_file(file, schema) as writer:
            written = 0
            for unsorted, table in _runs(columns, wanted, by_file, names, schema):
                order = np.argsort(unsorted)
                batch, places = table.take(pa.array(order)).to_batches()[0], unsorted[order]
                for number, start, stop in _spans(places, ends):
                    writer.write_batch(batch.slice(start, stop - start))
                    found[number].append((places[start:stop], written))
                    written += 1
        batches = pa.ipc.open_file(file)
        for pieces in found:
            if not pieces:
                yield schema.empty_table()
                continue
            table = pa.Table.from_batches([batches.get_batch(number) for _, number in pieces]).combine_chunks()
            yield table.take(pa.array(np.argsort(np.concatenate([places for places, _ in pieces]))))


def _spans(places: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yields the chunks that sorted positions touch, and from where to where."""
    stops = np.searchsorted(places, ends)
    starts = np.concatenate([[0], stops[:-1]])
    for number in np.flatnonzero(stops > starts):
        yield int(number), int(starts[number]), int(stops[number])


def _runs(
    columns: Columns, wanted: np.ndarray, by_file: np.ndarray, names: Sequence[str], schema: pa.Schema
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Yields positions in the result and their rows, a bounded number of bytes at a time, in the order of the files."""
    part = columns.part[wanted[by_file]]
    pieces: list[pa.Table] = []
    size = start = stop = 0
    for number in np.unique(part):
        path, last = columns.parts[number], int(np.searchsorted(part, number, side="right"))
        with open_part(path, names) as file, damage(path):
            for piece in _taken(path, file, columns.row[wanted[by_file[stop:last]]], names):
                pieces.append(piece if piece.schema.equals(schema) else piece.cast(schema))
                size, stop = size + piece.nbytes, stop + piece.num_rows
                if size >= _BYTES_AT_ONCE:
                    yield by_file[start:stop], pa.concat_tables(pieces).combine_chunks()
                    pieces, size, start = [], 0, stop
    if pieces:
        yield by_file[start:stop], pa.concat_tables(pieces).combine_chunks()


def _taken(path: Path, file: pq.ParquetFile, wanted: np.ndarray, names: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the rows of one file that are wanted, sorted, row group by row group."""
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    ends = np.cumsum(sizes)
    if wanted[-1] >= (ends[-1] if len(ends) else 0):
        raise DatasetError(f"{path}: no row {wanted[-1]}; it has changed since its columns were read: begin again")
    group = np.searchsorted(ends, wanted, side="right")
    for number in np.unique(group):
        own = wanted[group == number] - (ends[number] - sizes[number])
        yield file.read_row_group(int(number), list(names)).take(pa.array(own))


def read_trajectories(folder: Path) -> Iterator[Trajectory]:
    """Yields every row of a folder, one row group of a part in memory at a time.

    Raises:
      DatasetError: a part cannot be read, or a row contradicts itself.
    """
    for path in parts(folder):
        yield from part_trajectories(path)


def part_trajectories(path: Path) -> Iterator[Trajectory]:
    """Yields every row of one part, in its order; see `read_trajectories`."""
    with open_part(path) as file:
        start = 0
        names = [*COLUMNS, *(name for name in BRANCH_COLUMNS if name in file.schema_arrow.names)]
        for number in range(file.metadata.num_row_groups):
            with damage(path):
                table = file.read_row_group(number, names)
            yield from _rows(path, start, table)
            start += table.num_rows


def _rows(path: Path, start: int, table: pa.Table) -> list[Trajectory]:
    try:
        return to_trajectories(table)
    except (ValueError, TypeError) as error:
        row = start + next(n for n in range(table.num_rows) if not _is_row(table.slice(n, 1)))
        raise DatasetError(f"{path}, row {row}: {error}; delete the part, and its tasks are collected again") from error


def _is_row(table: pa.Table) -> bool:
    try:
        to_trajectories(table)
    except (ValueError, TypeError):
        return False
    return True

"""Rows of third-party files, unchanged: JSON lines, one JSON array, or Parquet, within bounds of memory.

What a file holds is not known here. Nothing of it is dropped: a name that stands twice in one object is refused, where
JSON's reader takes the last one, and so are two columns of one name.
"""

import collections
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from dfc.records.trajectory_files import DatasetError, damage, refuse_inflated
from dfc.rows.conversation_fields import BadRow, listed

_T = TypeVar("_T")
SUFFIXES = (".jsonl", ".json", ".parquet")
MAX_ROW_BYTES = 16 * 2**20  # of a row, unless the caller says otherwise
_LARGEST_ARRAY = 2**30  # bytes of a file that is one JSON array, which is read whole
_ROWS_AT_ONCE = 16  # of Parquet: as many times the largest row may be in memory


def row_place(path: Path, number: int) -> str:
    """Returns where a row is, as messages name it: rows count from 0, and the lines of an editor from 1."""
    return f"{path}, row {number}" + (f" (line {number + 1})" if path.suffix == ".jsonl" else "")


def file_rows(path: Path, largest: int = MAX_ROW_BYTES) -> Iterator[tuple[int, Any]]:
    """Yields the rows of a file with their numbers, unchanged: whatever JSON or Parquet holds.

    A path ends with ``.jsonl``, ``.json`` (one array, or lines) or ``.parquet``; a row of more bytes than `largest` is
    refused.

    Raises:
      DatasetError: the file is missing, cut, empty or too large, or a row cannot be read.
    """
    if path.suffix not in SUFFIXES:
        raise DatasetError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}; convert it, or rename it")
    if not path.is_file():
        raise DatasetError(f"{path}: there is no such file; name one that was downloaded or exported")
    number = -1
    rows = _parquet_rows(path, largest) if path.suffix == ".parquet" else _json_rows(path, largest)
    for number, row in enumerate(rows):
        yield number, row
    if number < 0:
        raise DatasetError(f"{path}: no row; export it again, or leave this group out")


def parsed_rows(
    path: Path, parse: Callable[[Mapping[str, Any]], _T], largest: int = MAX_ROW_BYTES, *, most: int = 0
) -> list[_T]:
    """Returns the rows of a file, each an object, as `parse` reads them; of the first `most` rows, 0: of all.

    Raises:
      DatasetError: as for `file_rows`, or what `parse` raises as BadRow, with file and row.
    """
    found = []
    for number, row in file_rows(path, largest):
        if most and number >= most:
            break
        if not isinstance(row, Mapping):
            what = f"expected an object with named columns, got {type(row).__name__}; write one per line"
            raise DatasetError(f"{row_place(path, number)}: {what}")
        try:
            found.append(parse(row))
        except BadRow as bad:
            raise DatasetError(f"{row_place(path, number)}: {bad}") from None
    return found


def _parquet_rows(path: Path, largest: int) -> Iterator[Any]:
    with damage(path, "download or export it again"), pq.ParquetFile(path, page_checksum_verification=True) as file:
        refuse_inflated(path, file.metadata)
        names = file.schema_arrow.names
        if len(set(names)) != len(names):
            twice = listed(name for name, times in collections.Counter(names).items() if times > 1)
            raise DatasetError(f"{path}: two columns are called {twice}, and one would be dropped; rename one")
        start = 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            yield from _values(path, start, batch, largest)
            start += batch.num_rows


def _values(path: Path, start: int, batch: pa.RecordBatch, largest: int) -> list[Any]:
    """Returns the rows of a batch from number `start`; DatasetError if one is too large or cannot be read."""
    if batch.nbytes > largest:
        for place in range(batch.num_rows):
            if batch.slice(place, 1).nbytes > largest:
                raise _too_large(path, start + place, largest)
    try:
        return list(batch.to_pylist())
    # The zones of times are looked up when a value is read, which raises whatever the library of zones does.
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        names = [f"{field.name} ({field.type})" for field in batch.schema if not _readable(batch.column(field.name))]
        what = " ".join(str(error).split())[:200]
        raise DatasetError(
            f"{path}: column {', '.join(names)}, rows {start} to {start + batch.num_rows - 1}: holds what cannot be "
            f"read ({type(error).__name__}: {what}); write that column as text in UTF-8, or leave it out"
        ) from error


def _readable(column: pa.Array) -> bool:
    try:
        column.to_pylist()
    except (pa.ArrowException, ValueError, KeyError, OSError):
        return False
    return True


def _too_large(path: Path, number: int, largest: int) -> DatasetError:
    return DatasetError(
        f"{row_place(path, number)}: takes more than {largest} bytes; leave the row out, or raise the limit "
        "(max_row_bytes) if it is meant"
    )


def _json_rows(path: Path, largest: int) -> Iterator[Any]:
    with path.open("rb") as file:
        # Files named .json hold one array, or one object per line.
        if path.suffix == ".json" and file.read(1) == b"[":
            if (size := path.stat().st_size) > _LARGEST_ARRAY:
                raise DatasetError(
                    f"{path}: one JSON array of {size} bytes, more than the {_LARGEST_ARRAY} that are read at once; "
                    "write one object per line into a .jsonl file"
                )
            try:
                yield from _decoded(path.read_bytes())
            except _TwiceError as error:
                raise DatasetError(f"{path}: {_twice(error)}") from None
            except (ValueError, RecursionError) as error:
                raise DatasetError(f"{path}: {error}; the file is cut or damaged: download it again") from error
            return
        file.seek(0)
        number = 0
        while line := file.readline(largest + 1):
            if len(line) > largest:
                raise _too_large(path, number, largest)
            yield _row(path, number, line)
            number += 1


class _TwiceError(ValueError):
    """A field that stands twice in one object, of which JSON's reader would take the last."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = collections.Counter(name for name, _ in pairs)
        raise _TwiceError(next(name for name, times in seen.items() if times > 1))
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_once)  # made once: a reader that is made per line takes twice the time


def _decoded(text: bytes) -> Any:  # noqa: ANN401 - of JSON
    return _DECODER.decode(text.decode(json.detect_encoding(text), "surrogatepass"))


def _row(path: Path, number: int, line: bytes) -> Any:  # noqa: ANN401 - of JSON
    try:
        return _decoded(line)
    except _TwiceError as error:
        raise DatasetError(f"{row_place(path, number)}: {_twice(error)}") from None
    except (ValueError, RecursionError) as error:
        # Its own text counts lines from this one.
        why = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DatasetError(
            f"{row_place(path, number)}: no JSON: {why}; the file is cut or damaged there: download or export "
            "it again, or delete the line"
        ) from error


def _twice(error: _TwiceError) -> str:
    return f"{listed(error.args)} stands twice in one object, and one of the two would be dropped; delete one"

"""Log-probabilities under the model before training, computed once and kept beside the data.

They are stored in ``reference-<key>`` as parts of many rows. The key is made of the weights, the type they are computed
in and the tokens of the data, so another model or other data never read them. A part appears whole or not at all; a run
that was stopped resumes with the missing parts, a run with the same model and data reads them. With several hosts all
compute together, the first one writes, and all read.
"""

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dfc import files, multihost
from dfc.models import model_folders
from dfc.models.safetensors_format import Location
from dfc.packing import Halves, Segment, fill, lay_out, taken_out
from dfc.records.trajectory_files import DatasetError, write_atomically
from dfc.rows.training_rows import TrainingRows
from dfc.runs.progress import Progress
from dfc.runs.stop_signals import Stop
from dfc.samples import TokenBatch
from dfc.training.batches import sides_of

Compute = Callable[[Sequence[TokenBatch]], Sequence[np.ndarray]]  # micro-batches -> float32 [B, T] of each, whole
_FORMAT = 1
_TOKENS_PER_PART = 1 << 20
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclasses.dataclass(frozen=True)
class ReferenceLogprobs:
    """Log-probabilities of all action tokens.

    Attributes:
      folder: where they are stored.
      values: float32, those of all rows one after another, per side.
      ends: where those of each row end, int64 [rows], per side.
    """

    folder: Path
    values: tuple[np.ndarray, ...]
    ends: tuple[np.ndarray, ...]

    def side(self, row: int, side: int) -> np.ndarray:
        """Returns those of one side of a row, float32 [action tokens]."""
        start = self.ends[side][row - 1] if row else 0
        return self.values[side][start : self.ends[side][row]]


def key(source: Location, rows: TrainingRows, *, dtype: str, base: str) -> str:
    """Returns a key that differs for other weights, other data or another type of computation.

    `source` is the model's folder, whose weights are read to the last byte; `dtype` the type computed with, `base` how
    the weights are stored.
    """
    shape = hashlib.blake2b((source / model_folders.CONFIG).read_bytes(), digest_size=16).hexdigest()
    weights = model_folders.weights_hash(source)
    facts = {"format": _FORMAT, "weights": weights, "model": shape, "dtype": dtype, "base": base, "rows": rows.digest}
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()


def part_rows(lengths: np.ndarray) -> list[range]:
    """Returns which rows each part holds, from the tokens of each row."""
    numbers = (np.cumsum(lengths) - lengths) // _TOKENS_PER_PART
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def choose_folder(rows: TrainingRows, name: str, otherwise: Path) -> Path:
    """Returns the folder of a key: beside the data, or, where nothing can be written, in the run folder."""
    for place in (rows.path.parent, otherwise):
        folder = place / f"reference-{name}"
        try:
            files.make_folder(folder)
            with files.replacing(folder / ".writable", many_writers=True):  # of every run that begins on this data
                pass
            (folder / ".writable").unlink(missing_ok=True)
        except OSError as error:
            if place == otherwise:
                raise
            why = error.strerror or error
            print(f"log-probabilities of the reference go to {otherwise}: {folder}: {why}", flush=True)  # noqa: T201 - where to look
        else:
            return folder
    raise AssertionError


def obtain(
    rows: TrainingRows,
    name: str,
    compute: Compute,
    *,
    run_folder: Path,
    row_length: int,
    micro_batch_rows: int,
    own: Callable[[tuple[int, int]], Collection[int] | None],
    stop: Stop,
    halves: Halves = Halves(),  # noqa: B008 - frozen
) -> ReferenceLogprobs:
    """Returns the log-probabilities, those that are missing or damaged computed first.

    `name` is that of `key`; `run_folder` is used where nothing can be written beside the data; `own` is as for
    `dfc.training.batches.Batches`. A stop is asked for after every part.

    Raises:
      DatasetError: a part cannot be read where it was just found or written.
      Interrupted: a stop was asked for; what is computed is kept.
    """
    parts = part_rows(rows.lengths)
    text = multihost.broadcast(str(choose_folder(rows, name, run_folder)) if multihost.is_primary() else "")
    folder = Path(text)
    with _only_writer(folder, stop):
        todo = multihost.broadcast(_missing(folder, rows, parts) if multihost.is_primary() else None)
        if not todo:
            print(f"log-probabilities of the reference: read from {folder}", flush=True)  # noqa: T201 - why nothing is computed
        else:
            done = len(parts) - len(todo)
            print(f"log-probabilities of the reference: {done} of {len(parts)} parts are in {folder}", flush=True)  # noqa: T201 - progress
            with Progress(len(parts), start_step=done) as progress:
                for count, part in enumerate(todo, start=done + 1):
                    begun = time.perf_counter()
                    found = _computed(rows, parts[part], compute, (row_length, micro_batch_rows, halves), own)
                    _write(folder, part, rows, parts[part], found)
                    seconds = time.perf_counter() - begun
                    progress.update(
                        stage="reference",
                        iteration=count,
                        iterations=len(parts),
                        step=count,
                        episodes_per_second=len(parts[part]) * len(rows.sides) / seconds,
                        tokens_per_second=int(rows.lengths[parts[part]].sum()) / seconds,
                        win_rates={},
                    )
                    stop.check()
    return _read(folder, rows, parts)


def _computed(
    rows: TrainingRows,
    part: range,
    compute: Compute,
    shape: tuple[int, int, Halves],
    own: Callable[[tuple[int, int]], Collection[int] | None],
) -> dict[int, tuple[np.ndarray, ...]]:
    """Returns the values of a part's rows, by row."""
    of_row = sides_of(rows, None)

    def sides(unit: int) -> list[Segment]:
        return of_row(part[unit])

    layouts = lay_out(rows.lengths[part].tolist(), *shape)
    filled = [fill(x, sides, own=own((len(x.rows), x.row_length))) for x in layouts]
    found = {}
    for layout, values in zip(layouts, compute(filled), strict=True):
        found.update({part[unit]: values_ for unit, values_ in taken_out(layout, values, sides).items()})
    return found


# ---- files ----------------------------------------------------------------------------------------------------------


def _name(part: int) -> str:
    return f"part-{part:06d}.parquet"


def _write(
    folder: Path, part: int, rows: TrainingRows, numbers: range, found: dict[int, tuple[np.ndarray, ...]]
) -> None:
    """Writes a part in the first process; raises on every process if that fails."""

    def write() -> None:
        kind = pa.list_(pa.float32())
        columns = {
            f"side_{side}": pa.array([found[row][side] for row in numbers], kind) for side in range(len(rows.sides))
        }
        try:
            write_atomically(pa.table({"row": pa.array(numbers, pa.int64()), **columns}), folder / _name(part))
        except OSError as error:
            why = error.strerror or error
            raise DatasetError(f"{folder / _name(part)}: cannot be written: {why}; free space is needed") from error

    multihost.on_all_hosts(lambda: write() if multihost.is_primary() else None)


def _missing(folder: Path, rows: TrainingRows, parts: Sequence[range]) -> list[int]:
    """Returns the parts that are not there, and those that are damaged, which are reported and computed again."""
    found = []
    for number, part in enumerate(parts):
        path = folder / _name(number)
        if path.is_file():
            try:
                _values(path, rows, part)
                continue
            except DatasetError as error:
                print(f"{error}: it is computed again", flush=True)  # noqa: T201 - why it takes longer
        found.append(number)
    return found


def _values(path: Path, rows: TrainingRows, part: range) -> list[np.ndarray]:
    """Returns the values of a part, one after another, per side."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        columns = [table[f"side_{side}"].combine_chunks() for side in range(len(rows.sides))]
        numbers = table["row"].to_numpy()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DatasetError(f"{path} is damaged ({' '.join(str(error).split())})") from error
    lengths = [column.value_lengths().to_numpy(zero_copy_only=False) for column in columns]
    if not np.array_equal(numbers, part) or any(
        not np.array_equal(found, side.actions[part]) for found, side in zip(lengths, rows.sides, strict=True)
    ):
        raise DatasetError(f"{path} is of other rows")
    return [column.flatten().to_numpy(zero_copy_only=False).astype(np.float32) for column in columns]


def _read(folder: Path, rows: TrainingRows, parts: Sequence[range]) -> ReferenceLogprobs:
    def read() -> list[list[np.ndarray]]:
        try:
            return [_values(folder / _name(number), rows, part) for number, part in enumerate(parts)]
        except DatasetError as error:
            hint = "every host must see this folder: use a shared disk, or delete it to compute it again"
            raise DatasetError(f"{error}; {hint}") from error

    found = multihost.on_all_hosts(read)
    values = tuple(np.concatenate([part[side] for part in found]) for side in range(len(rows.sides)))
    return ReferenceLogprobs(folder, values, tuple(np.cumsum(s.actions, dtype=np.int64) for s in rows.sides))


@contextlib.contextmanager
def _only_writer(folder: Path, stop: Stop) -> Iterator[None]:
    """Waits until no other run writes here; its parts are then read instead of computed."""
    lock: io.FileIO | None = None
    reported = False
    try:
        while True:
            refusal = ""
            if multihost.is_primary():
                try:
                    lock = _locked(folder / ".lock")
                except OSError as error:
                    refusal = f"{folder}: cannot be locked: {error.strerror or error}"
            free, refusal = multihost.broadcast([lock is not None, refusal])
            if refusal:  # on every host: no host waits for one that has failed
                raise DatasetError(refusal)
            if free:
                break
            if not reported:
                print(f"{folder}: another run writes here; waiting for it", flush=True)  # noqa: T201 - why nothing happens
                reported = True
            stop.check()
            time.sleep(1)
        yield
    finally:
        if lock is not None:
            lock.close()


def _locked(path: Path) -> io.FileIO | None:
    """Returns a lock, None while another run writes; a file system without locks cannot tell, which is reported."""
    try:
        return files.lock(path)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        print(f"{path}: the file system has no locks; start no other run on this data meanwhile", flush=True)  # noqa: T201 - what could go wrong
        return files.lock_file(path)

"""The safetensors format: tensors of one file read piece by piece and written one after another.

A file is 8 bytes with the header's length (little-endian), the header (JSON: name -> dtype, shape, range of bytes),
then the tensors' bytes without gaps. Reading goes through plain reads at a place in the file rather than through a
memory map: the same code then serves local files and objects in a bucket, no mapped page counts as the process's
memory, and a file that shrinks while it is read gives an error instead of killing the process. The format's own
library opens paths on a disk only, and writes a file from tensors that are all in memory; the tests compare with it.
Its slices turned by numpy, as projections are, took twice as long as `dfc.models.shard_reading` (1.07 GB of bfloat16
and float32 on 2 busy cores, [out, in] to eight devices: 3.7 to 4.0 seconds for 1.9 to 2.1), with up to 1.5 GB of
mapped pages. As stored they took 3.4 seconds for 0.9 (whole) to 1.3 for 2.0 (columns, where the library is faster).

Source: the format's description in https://github.com/huggingface/safetensors, "Format".
"""

import collections
import contextlib
import dataclasses
import io
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeAlias

import ml_dtypes
import numpy as np
from etils import epath  # type: ignore[import-untyped]  # the package carries no types

from dfc.errors import cut

Location: TypeAlias = pathlib.Path | epath.Path  # a file or folder here, or in a bucket (gs://, s3://)

NUMPY_DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
_BITS = {"BOOL": 8, "BF16": 16} | {
    kind + str(bits): bits for kind, sizes in {"F": (16, 32, 64), "I": (8, 16, 32, 64), "U": (8, 16, 32, 64)}.items()
    for bits in sizes
}  # fmt: skip
_LONGEST_HEADER = 100 * 2**20  # as the library of the format has it: a broken length must not ask for all memory
PIECE_BYTES = 2**20  # one read from a disk; what is then done with it finds it in the processor's cache
REMOTE_PIECE_BYTES = 8 * 2**20  # one read from a bucket, where every read waits for an answer


class BrokenFileError(ValueError):
    """A file that is not a whole safetensors file; names the problem."""


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Returns the value of untrusted JSON.

    Raises:
      ValueError: it is no JSON, is nested too deeply to be read, or names a key twice in one object, of which readers
        take different ones.
    """
    try:
        return json.loads(data, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        raise ValueError(f"the key {cut(repr(counts.most_common(1)[0][0]))} occurs twice in one object")
    return found


def refuse_special(file: Location) -> None:
    """Refuses what is there under the name of a file and is none: a pipe, whose reader would wait, a socket, a folder.

    Raises:
      BrokenFileError: it is there and no regular file.
    """
    if isinstance(file, pathlib.Path) and file.exists() and not file.is_file():
        raise BrokenFileError("expected a regular file, it is a folder, pipe, socket or device")


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file; `dtype` is the format's name of it: ``F32``, ``BF16``, ...

    `begin` is its first byte, counted from the start of the file.
    """

    name: str
    file: Location
    dtype: str
    shape: tuple[int, ...]
    begin: int

    def pieces(self, start: int, stop: int, *, multiple: int = 1) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the rows start .. stop - 1 in turn, as (first row, array [rows, ...]) of a few megabytes each.

        The array is used again for the next piece: copy what must stay. Pieces have a multiple of `multiple` rows where
        they can.

        Raises:
          BrokenFileError: if the file ends early.
          OSError: if it cannot be read.
        """
        if not math.prod(self.shape[1:]) or stop <= start:
            return
        rows = self.piece_rows(multiple)
        buffer = np.empty((min(rows, stop - start), *self.shape[1:]), NUMPY_DTYPES[self.dtype])
        with self._open_at(start) as handle:
            for first in range(start, stop, rows):
                piece = buffer[: min(rows, stop - first)]
                _read_into(handle, piece, self.file)
                yield first, piece

    def piece_rows(self, multiple: int = 1) -> int:
        """Returns how many rows a piece has: what one read should bring, but `multiple` at least."""
        target = PIECE_BYTES if isinstance(self.file, pathlib.Path) else REMOTE_PIECE_BYTES
        return max(1, target // self.row_bytes // multiple) * multiple

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry of the first axis, at least 1."""
        size: int = NUMPY_DTYPES[self.dtype].itemsize
        return max(1, math.prod(self.shape[1:]) * size)

    def read_into(self, rows: np.ndarray, start: int) -> None:
        """Reads as many rows as `rows` has, from row `start` on; `rows` is contiguous and of the stored dtype.

        Raises:
          BrokenFileError: if the file ends early.
          OSError: if it cannot be read.
        """
        with self._open_at(start) as handle:
            _read_into(handle, rows, self.file)

    def _open_at(self, row: int) -> IO[bytes]:
        handle = _open(self.file)
        handle.seek(self.begin + row * self.row_bytes)
        return handle


def _open(file: Location) -> IO[bytes]:
    # Unbuffered: pieces are large, and a buffer would be one copy more.
    return file.open("rb", buffering=0) if isinstance(file, pathlib.Path) else file.open("rb")


def _read_into(handle: IO[bytes], array: np.ndarray, file: Location) -> None:
    view = array.reshape(-1).view(np.uint8).data
    while view:
        if isinstance(handle, io.RawIOBase):
            count = handle.readinto(view[:REMOTE_PIECE_BYTES]) or 0
        else:  # a bucket's file object need not know readinto
            data = handle.read(min(len(view), REMOTE_PIECE_BYTES))
            count = len(data)
            view[:count] = data
        if not count:
            raise BrokenFileError(f"{file.name} ended {len(view)} bytes early while it was read")
        view = view[count:]


def read_header(file: Location) -> dict[str, StoredTensor]:
    """Returns the tensors of a file by name; reads its header only.

    Raises:
      BrokenFileError: if the file is not whole: the header or bytes are missing, or do not agree.
      OSError: if it cannot be read.
    """
    refuse_special(file)
    with _open(file) as handle:
        size = handle.seek(0, os.SEEK_END) or handle.tell()
        handle.seek(0)
        opening = handle.read(8)
        if opening == b"version ":
            raise BrokenFileError("it is a pointer of git-lfs, not the file; run git lfs pull in its repository")
        length = int.from_bytes(opening, "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise BrokenFileError(f"its {size} bytes do not hold the header")
        text = np.empty(length, np.uint8)
        _read_into(handle, text, file)
    try:
        header = parse_json(text.tobytes())
    except ValueError as error:
        raise BrokenFileError(f"its header cannot be read: {cut(str(error))}") from error
    if not isinstance(header, dict):
        raise BrokenFileError("its header is no JSON object")
    header.pop("__metadata__", None)
    tensors: dict[str, StoredTensor] = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: _offsets(*item)):
        begin, stop = _offsets(name, entry)
        if begin != end or stop < begin:
            raise BrokenFileError(f"the bytes of {name} do not begin where the tensor before ends")
        shape, dtype = entry.get("shape"), entry.get("dtype")
        if not isinstance(dtype, str) or not isinstance(shape, list) or not all(_is_count(n) for n in shape):
            raise BrokenFileError(f"its header gives no dtype and shape of {name}")
        if dtype in _BITS and (stop - begin) * 8 != math.prod(shape) * _BITS[dtype]:
            raise BrokenFileError(f"{name} has {stop - begin} bytes, which is not {dtype} {shape}")
        tensors[name] = StoredTensor(name, file, dtype, tuple(shape), 8 + length + begin)
        end = stop
    if size != 8 + length + end:
        raise BrokenFileError(f"it has {size} bytes where its header promises {8 + length + end}")
    return tensors


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _offsets(name: str, entry: object) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(n) for n in offsets):
        raise BrokenFileError(f"its header gives no range of bytes for {name}")
    return offsets[0], offsets[1]


@dataclasses.dataclass(frozen=True)
class TensorToWrite:
    """One tensor of a file to be written; its dtype is one of `NUMPY_DTYPES`.

    `fetch` returns its values when its turn comes, so that one tensor at a time is in memory.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fetch: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_file(
    file: Location | None, tensors: Sequence[TensorToWrite], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes one file, tensor by tensor, in the order given.

    `file` None fetches every tensor in the same order and writes nothing, which is what the other hosts of a run do
    when fetching takes part in a gather. `metadata` are strings for the header.

    Raises:
      ValueError: if a fetched tensor is not of the promised dtype and shape.
      OSError: if the file cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for tensor in tensors:
        entry = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + tensor.nbytes]}
        header[tensor.name] = entry
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes
    with contextlib.nullcontext() if file is None else file.open("wb") as handle:
        if handle is not None:
            handle.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            values = tensor.fetch()
            if handle is None:
                continue
            if (values.shape, values.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(
                    f"{tensor.name}: expected {tensor.dtype} {list(tensor.shape)}, got {values.dtype} "
                    f"{list(values.shape)}"
                )
            handle.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            del values  # before the next one is fetched
        if handle is not None and isinstance(file, pathlib.Path):
            handle.flush()
            os.fsync(handle.fileno())  # a rename must not become durable before what it names

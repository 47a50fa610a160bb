"""From tensors in files to arrays on devices: each device's shard is filled as the bytes come in.

A tensor's bytes are read once, in pieces of a few megabytes, and each piece goes straight to the shards that need it:
converted to the wanted dtype, and transposed where the file holds [out, in]. Several tensors are read at once, in
threads, as long as what they hold on the host together is no more than the largest of them; with one piece per
thread on top, host memory beside the finished arrays stays below twice the largest tensor.

Transposing is what costs time. Rows of a weight are a multiple of the processor's cache size apart, so that a plain
transposed copy evicts each cache line before its next element is needed. Tiles therefore go through two small scratch
arrays whose rows are not.
"""

import concurrent.futures
import contextlib
import dataclasses
import math
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from dfc import multihost
from dfc.errors import WeightsError
from dfc.models.safetensors_format import NUMPY_DTYPES, BrokenFileError, StoredTensor

_TILE_ROWS, _TILE_COLUMNS, _STRIP = 256, 512, 32
_PADDING = 32  # elements between scratch rows: they must not be a power of two apart
_CHECKED_AT_ONCE = 2**18  # bytes; both they and what is computed from them stay in the processor's cache
_ALIGNMENT = 64  # bytes; an array that begins there becomes a device array on the CPU without a copy
_LOCAL_THREADS, _REMOTE_THREADS = 16, 32  # the first is also bound by the processors; a bucket answers slowly
_Index: TypeAlias = tuple[slice, ...]
_Key: TypeAlias = tuple[tuple[int, int], ...]


class NotFiniteError(ValueError):
    """A tensor that holds a NaN or an infinite number; names which."""


@dataclasses.dataclass(frozen=True)
class WantedArray:
    """One array to be made of a stored tensor, its values rounded to `dtype`, its parts placed by `sharding`.

    `transpose`: the file holds it transposed; both are matrices then.
    """

    stored: StoredTensor
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: jax.sharding.Sharding
    transpose: bool

    def parts(self) -> list[_Key]:
        """Returns which parts of the array the devices of this host hold, each once: start and stop per dimension."""
        indices = self.sharding.addressable_devices_indices_map(self.shape).values()
        return sorted({_key(index, self.shape) for index in indices if index is not None})

    @property
    def host_bytes(self) -> int:
        """Bytes of those parts together."""
        elements = sum(math.prod(stop - start for start, stop in part) for part in self.parts())
        return elements * self.dtype.itemsize

    @property
    def piece_bytes(self) -> int:
        """Bytes read ahead of the parts."""
        return min(self.stored.piece_rows(_TILE_ROWS), self.stored.shape[0]) * self.stored.row_bytes


def _key(index: _Index, shape: tuple[int, ...]) -> _Key:
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def load_arrays(
    wanted: Sequence[WantedArray],
    mesh: jax.sharding.Mesh | None,
    where: object,
    what: str,
    *,
    check: Callable[[], None] | None = None,
) -> list[jax.Array]:
    """Returns the arrays, on every host of a mesh or on none: one may read what no other does.

    `mesh` None is one device of this host. `check` looks at the files before; it raises as `read_arrays` does, or a
    WeightsError. Messages name `where`, folder or file, and `what` is read ("the weights").

    Raises:
      WeightsError: a number is not finite, or a file could not be read to its end.
    """

    def read() -> list[jax.Array]:
        try:
            if check is not None:
                check()
            return read_arrays(wanted)
        except NotFiniteError as error:
            raise WeightsError(f"{where}: {what} cannot be used: {error}") from error
        except (BrokenFileError, OSError) as error:
            raise WeightsError(f"{where}: {what} could not be read to the end: {error}") from error

    # The others must not wait for a host whose reading ends here.
    several = mesh is not None and len({device.process_index for device in mesh.devices.flat}) > 1
    return multihost.on_all_hosts(read) if several else read()


def read_arrays(wanted: Sequence[WantedArray]) -> list[jax.Array]:
    """Returns the arrays, in the order asked for.

    Raises:
      NotFiniteError: a number is NaN, or infinite in the wanted dtype.
      BrokenFileError: if a file ends early.
      OSError: if a file cannot be read.
    """
    largest = max((array.host_bytes for array in wanted), default=0)
    piece = max((array.piece_bytes for array in wanted), default=1)
    remote = any(not isinstance(array.stored.file, pathlib.Path) for array in wanted)
    threads = _REMOTE_THREADS if remote else min(_LOCAL_THREADS, os.cpu_count() or 1)
    threads = max(1, min(threads, largest // (2 * piece)))  # a piece per thread stays below half a tensor
    budget = _Budget(largest)
    # In the order of the files: a disk reads in one run.
    order = sorted(range(len(wanted)), key=lambda i: (str(wanted[i].stored.file), wanted[i].stored.begin))
    pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="weights")
    try:
        futures = {i: pool.submit(_read_one, wanted[i], budget) for i in order}
        for future in concurrent.futures.as_completed(futures.values()):
            future.result()  # the first error ends it
        return [futures[i].result() for i in range(len(wanted))]
    finally:
        pool.shutdown(cancel_futures=True)


class _Budget:
    """Bytes that may be held at once; a read that needs more than is left waits."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._held + amount <= self._limit)
            self._held += amount
        try:
            yield
        finally:
            with self._changed:
                self._held -= amount
                self._changed.notify_all()


def _read_one(wanted: WantedArray, budget: _Budget) -> jax.Array:
    with budget.hold(wanted.host_bytes):
        parts = {key: _aligned(tuple(stop - start for start, stop in key), wanted.dtype) for key in wanted.parts()}
        _fill(parts, wanted)
        if not all(map(_finite, parts.values())):
            raise NotFiniteError(
                f"{wanted.stored.name}: expected finite numbers, but some are NaN, or infinite in {wanted.dtype}; take "
                "an earlier state of the model, or another dtype if they are beyond the range of this one"
            )

        def part(index: _Index | None) -> np.ndarray:
            assert index is not None  # noqa: S101 - only asked for devices of this host
            return parts[_key(index, wanted.shape)]

        array: jax.Array = jax.make_array_from_callback(wanted.shape, wanted.sharding, part)
        array.block_until_ready()  # until then the transfer reads the host's memory
        return array


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns an uninitialised array whose first byte is at a multiple of `_ALIGNMENT`."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % _ALIGNMENT
    return memory[offset : offset + size].view(dtype).reshape(shape)


def _fill(parts: dict[_Key, np.ndarray], wanted: WantedArray) -> None:
    """Reads the rows that any part needs, once, and writes each part's share of them."""
    stored, flip = wanted.stored, slice(None, None, -1 if wanted.transpose else 1)
    same = NUMPY_DTYPES[stored.dtype] == wanted.dtype
    in_file = {key: key[flip] for key in parts}  # the part's place in the file's layout
    whole_rows = tuple((0, size) for size in stored.shape[1:])
    if same and not wanted.transpose and all(place[1:] == whole_rows for place in in_file.values()):
        for key, part in parts.items():
            stored.read_into(part, key[0][0])
        return
    scratch = _Scratch(wanted.dtype)
    start, stop = min(place[0][0] for place in in_file.values()), max(place[0][1] for place in in_file.values())
    for first, piece in stored.pieces(start, stop, multiple=_TILE_ROWS):
        for key, part in parts.items():
            (top, bottom), *columns = in_file[key]
            low, high = max(first, top), min(first + len(piece), bottom)
            if low >= high:
                continue
            source = piece[(slice(low - first, high - first), *(slice(*column) for column in columns))]
            if wanted.transpose:
                scratch.transpose(source, part[:, low - top : high - top])
            else:
                _convert(source, part[low - top : high - top])


def _convert(source: np.ndarray, target: np.ndarray) -> None:
    """Writes source to target, rounded to its dtype."""
    if source.dtype == target.dtype:  # as plain integers, which numpy moves in blocks; it calls a function per bfloat16
        kind = f"u{target.dtype.itemsize}"
        np.copyto(target.view(kind), source.view(kind))
        return
    with np.errstate(over="ignore", invalid="ignore"):  # a number too large becomes infinite, a NaN stays one
        np.copyto(target, source, casting="unsafe")


# Of bfloat16 and float32, by their bytes: the bits of the exponent, all of them ones in a number that is not finite.
_EXPONENT: dict[int, tuple[np.dtype[Any], int]] = {
    2: (np.dtype(np.uint16), 0x7F80),
    4: (np.dtype(np.uint32), 0x7F800000),
}


def _finite(part: np.ndarray) -> bool:
    """Returns whether all numbers are finite; as plain integers, since numpy calls a function per bfloat16."""
    if not part.size:
        return True
    kind, exponent = _EXPONENT[part.dtype.itemsize]
    bits = part.reshape(-1).view(kind)
    scratch = np.empty(min(_CHECKED_AT_ONCE // kind.itemsize, bits.size), kind)
    for start in range(0, bits.size, scratch.size):
        piece = bits[start : start + scratch.size]
        masked = scratch[: piece.size]
        np.bitwise_and(piece, exponent, out=masked)
        if masked.max() == exponent:
            return False
    return True


class _Scratch:
    """Two tiles of memory for transposing."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._rows = np.empty((_TILE_ROWS, _TILE_COLUMNS + _PADDING), dtype)[:, :_TILE_COLUMNS]
        turned = np.empty((_TILE_COLUMNS, _TILE_ROWS), dtype)
        # Strip by strip of columns: one strip of all rows fits into the first-level cache.
        kind = f"u{dtype.itemsize}"
        strips = self._rows.view(kind).reshape(_TILE_ROWS, _TILE_COLUMNS // _STRIP, _STRIP)
        self._from = strips.transpose(1, 2, 0)
        self._to = turned.view(kind).reshape(_TILE_COLUMNS // _STRIP, _STRIP, _TILE_ROWS)
        self._turned = turned

    def transpose(self, source: np.ndarray, target: np.ndarray) -> None:
        """Writes source [r, c] to target [c, r], rounded to the scratch's dtype, which is the target's."""
        for row in range(0, source.shape[0], _TILE_ROWS):
            for column in range(0, source.shape[1], _TILE_COLUMNS):
                tile = source[row : row + _TILE_ROWS, column : column + _TILE_COLUMNS]
                rows, columns = tile.shape
                _convert(tile, self._rows[:rows, :columns])
                np.copyto(self._to, self._from)
                _convert(self._turned[:columns, :rows], target[column : column + columns, row : row + rows])

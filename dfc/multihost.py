"""What the processes of one run agree on before they act on it.

A run on several hosts is one program: every process runs the same Python and calls the same device programs in the
same order. Whatever one process alone knows (a file, a signal, an error) and what then decides a branch or a loop has
to reach all of them first, or they wait for each other forever. These functions carry it; every process calls them,
at the same place. With one process they return what they were given and touch no device.
"""

import json
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from dfc.errors import DfcError, TrainingError

_T = TypeVar("_T")
_LONGEST_PROBLEM = 2000  # bytes of one process's message; the rest is cut


def is_primary() -> bool:
    """Returns whether this process is the one that writes files and prints."""
    return jax.process_index() == 0


def device_text() -> str:
    """Returns the hardware of all processes, and the version of jax, for records."""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}"


def broadcast(value: Any) -> Any:  # noqa: ANN401 - JSON-ready data
    """Returns, on every process, the JSON-ready `value` of the first one; what the others pass is ignored."""
    if jax.process_count() == 1:
        return value
    text = json.dumps(value).encode() if is_primary() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    # Sizes in powers of two: each is a program of its own.
    buffer = np.zeros(1 << max(8, (size - 1).bit_length()), np.uint8)
    buffer[: len(text)] = np.frombuffer(text, np.uint8)
    return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(buffer))[:size].tobytes())


def all_max(number: int) -> int:
    """Returns, on every process, the largest of the numbers they pass, each an int32."""
    if jax.process_count() == 1:
        return number
    return int(np.max(multihost_utils.process_allgather(np.int32(number))))


def require_equal(what: str, arrays: Iterable[tuple[np.ndarray, ...]]) -> None:
    """Compares what every process computed by itself and is about to treat as one; with one process does nothing.

    Raises:
      TrainingError: a process has other numbers; names it.
    """
    if jax.process_count() == 1:
        return
    digest = 0
    for group in arrays:
        for array in group:
            digest = zlib.crc32(np.ascontiguousarray(array).tobytes(), digest)
    found = multihost_utils.process_allgather(np.uint32(digest)).ravel()
    others = [index for index, value in enumerate(found) if value != found[0]]
    if others:
        raise TrainingError(
            f"{what}: process {', '.join(map(str, others))} has others than the first one; every host needs the same "
            "versions of packages, the same model folder and the same configuration. The last checkpoint is untouched"
        )


def all_problems(problem: str | None) -> list[str]:
    """Returns what went wrong anywhere, the same list on every process; empty if all pass None.

    It returns when every process has called it, so what each of them did before is done. There is one text per process
    with a problem; with several processes each begins with ``process <index>:``.
    """
    if jax.process_count() == 1:
        return [] if problem is None else [problem]
    mine = np.zeros(_LONGEST_PROBLEM, np.uint8)
    text = (problem or "").encode()[:_LONGEST_PROBLEM]
    mine[: len(text)] = np.frombuffer(text, np.uint8)
    flags = multihost_utils.process_allgather(np.int32(problem is not None))
    if not flags.any():
        return []
    texts = multihost_utils.process_allgather(mine)
    return [
        f"process {index}: {bytes(row[row != 0]).decode(errors='replace')}"
        for index, (row, failed) in enumerate(zip(texts, flags, strict=True))
        if failed
    ]


def on_all_hosts(work: Callable[[], _T]) -> _T:
    """Returns what this process's part of some work makes, once every process has done its own.

    The `work` calls nothing that waits for another process.

    Raises:
      DfcError, OSError: as `work` raised it.
      DfcError: only another process's did; with its text.
    """
    result: _T | None = None
    cause: DfcError | OSError | None = None
    try:
        result = work()
    except (DfcError, OSError) as error:
        cause = error
    if found := all_problems(None if cause is None else str(cause)):
        raise cause or DfcError("\n".join(found))
    return result  # type: ignore[return-value]  # no problem anywhere: it was made


def all_gather_numbers(numbers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the int32 numbers of every process, in their order; all pass as many."""
    if jax.process_count() == 1:
        return [numbers]
    found = multihost_utils.process_allgather(np.asarray(numbers, np.int32))
    return [tuple(row) for row in found.tolist()]


def all_gather(array: np.ndarray) -> np.ndarray:
    """Returns the arrays of every process, of one shape, stacked on a new first axis."""
    if jax.process_count() == 1:
        return array[None]
    return np.asarray(multihost_utils.process_allgather(array))


def all_gather_bytes(data: bytes) -> list[bytes]:
    """Returns the bytes of every process, in their order."""
    if jax.process_count() == 1:
        return [data]
    sizes = [size for (size,) in all_gather_numbers((len(data),))]
    buffer = np.zeros(1 << max(8, (max(sizes) - 1).bit_length()), np.uint8)  # sizes in powers of two: each is a program
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    found = multihost_utils.process_allgather(buffer)
    return [row[:size].tobytes() for row, size in zip(found, sizes, strict=True)]


def to_host(x: jax.Array) -> np.ndarray:
    """Returns a whole array, on every process, also one whose parts are on the devices of several."""
    if x.is_fully_addressable:
        return np.asarray(x)
    return np.asarray(multihost_utils.process_allgather(x, tiled=True))

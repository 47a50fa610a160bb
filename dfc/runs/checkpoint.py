"""Checkpoints: arrays by Orbax, a small JSON state beside them, and checksums over all of it.

A checkpoint is a folder ``step_<number>``: ``arrays/`` (Orbax), ``state.json`` (the tree of the arrays and the
caller's progress) and ``manifest.json`` (size and BLAKE2b of every file). It is built under another name and renamed
when it is complete, so a folder of that name was complete once; later damage shows in the checksums.

Small arrays go into one buffer: Orbax needs 17 ms for one array of 5 MB and 65 ms for 64 arrays of the same size
together (one x86 core, local disk), because each array costs it a file and several thread switches.

A save that is not waited for copies the arrays to the host's memory and returns; a thread writes the copy, checks it
and renames the folder while training goes on. Until then the host holds one copy more of what this process saves.
"""

import dataclasses
import functools
import hashlib
import json
import logging
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from dfc import multihost
from dfc.errors import CheckpointError

Tree = Any  # dict, list, tuple (also a named one) or None of arrays, nested

_PACKED_UP_TO = 4 * 2**20  # bytes; larger arrays are worth their own files, which Orbax writes at the same time
_LONGEST = 3600  # seconds for a write, which may be over a network; and until a host misses one whose write failed
_FOLDER = re.compile(r"step_(\d{9})")
_DTYPES = {np.dtype(name).name: np.dtype(name) for name in ("bool", "int8", "int16", "int32", "int64")}
_DTYPES |= {np.dtype(name).name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")}
_DTYPES |= {np.dtype(name).name: np.dtype(name) for name in ("float16", "float32", "float64")}
_DTYPES |= {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
# Orbax prints the trace of an error that it raises as well, also from its own threads.
logging.getLogger("absl").addFilter(lambda record: not (record.exc_info and "orbax" in Path(record.pathname).parts))


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a checkpoint held: its step, the tree of arrays, bit for bit what was saved, and the JSON-ready progress."""

    step: int
    arrays: Tree
    progress: dict[str, Any]


class Checkpointer:
    """Saves and restores the state of a run, on a local or shared disk.

    With several hosts every process calls every method with the same arguments on a shared disk. The first one
    decides which checkpoint is restored and writes all but the arrays; its `progress` is the one that is kept. `close`
    waits for the calling process alone.

    Args:
      directory: where the checkpoints are; created by the first save.
      keep: how many to keep; older ones are deleted after a save. The one before the newest always stays: a run that
        has resumed from a checkpoint and saved the next has shown that its weights can be used. None: all that
        `keep_only` leaves.
    """

    def __init__(self, directory: Path, *, keep: int | None) -> None:
        self._directory = directory.absolute()  # Orbax refuses relative paths
        self._keep = None if keep is None else max(2, keep)
        self._orbax = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler(use_compression=False), _LONGEST)
        self._worker = ThreadPoolExecutor(1, "dfc-checkpoint")
        self._end = _nothing_under_way  # of the last save

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, whole or damaged, oldest first."""
        if not self._directory.is_dir():
            return []
        matches = (_FOLDER.fullmatch(entry.name) for entry in self._directory.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def save(self, step: int, arrays: Tree, progress: Mapping[str, Any], *, wait: bool = True) -> None:
        """Writes a checkpoint; it is complete when this returns, and absent if the process dies before.

        Without `wait` it is complete when `wait()` returns, and this returns once the arrays are copied: their memory
        may be used again. One save is under way at a time; the next one waits for it.

        Checkpoints of later steps are deleted: they belong to a run that was abandoned by restoring an older one.

        An existing checkpoint of the step, 0 or more, is replaced. `arrays` are dicts, lists, tuples and None of jax or
        numpy arrays, nested; dict keys are texts or ints. `progress` is JSON-ready data (text keys, lists instead of
        tuples).

        Raises:
          TypeError: `arrays` or `progress` holds something else; the place is named.
          CheckpointError: the disk is full or cannot be written to, now or in the save before.
        """
        self.wait()
        _require_json(progress, "progress")
        leaves: list[Any] = []
        structure = _encode(arrays, leaves, "arrays")
        specifications, stored = _pack(leaves)
        state = {"step": step, "structure": structure, "leaves": specifications, "progress": progress}
        final, partial = self._folder(step), self._directory / f".partial_{step:09d}"

        def begin() -> None:
            for leftover in self._directory.glob(".partial_*"):
                shutil.rmtree(leftover)
            partial.mkdir(parents=True)
            (partial / "state.json").write_text(json.dumps(state), encoding="utf-8")

        def store() -> None:
            if stored:
                self._orbax.save(partial / "arrays", args=ocp.args.PyTreeSave(stored))

        for part in (begin if multihost.is_primary() else None, store):
            self._together(part, final, partial)
        written = self._worker.submit(self._finish, step, final, partial)
        self._end = functools.partial(self._together, written.result, final, partial)
        if wait:
            self.wait()

    def _finish(self, step: int, final: Path, partial: Path) -> None:
        """Waits for the arrays of every process; the first one then makes them a checkpoint and removes old ones."""
        self._orbax.wait_until_finished()
        if not multihost.is_primary():
            return
        manifest = {"files": {name: _checksum(partial / name) for name in _files(partial)}}
        (partial / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        for other in self.steps():
            if other > step or (self._keep is not None and other not in self.steps()[-self._keep :]):
                shutil.rmtree(self._folder(other))

    def wait(self) -> None:
        """Returns once the save that is under way is complete; at once if none is.

        Raises:
          CheckpointError: the disk is full or cannot be written to. It is raised once.
        """
        end, self._end = self._end, _nothing_under_way
        end()

    def close(self) -> None:
        """Waits until this process writes nothing more, for a run that ends by an error; nothing can be saved then."""
        self._worker.shutdown()

    def keep_only(self, steps: Collection[int]) -> None:
        """Deletes the checkpoints of all other steps."""
        self.wait()
        if multihost.is_primary():
            for other in set(self.steps()) - set(steps):
                shutil.rmtree(self._folder(other))

    def restore(self, like: Callable[[Tree], Tree] | Tree | None = None, *, step: int | None = None) -> Restored | None:
        """Reads the newest checkpoint that is whole; None if there is none at all. It waits for a save under way.

        A damaged one is skipped with one line on standard error that names it and the one used instead.

        Args:
          like: a tree of `jax.ShapeDtypeStruct` with shardings (or of arrays) of the saved structure, or a function
            that makes it from the saved tree of `jax.ShapeDtypeStruct` without shardings. Arrays come back as jax
            arrays placed so. Without it they come back as numpy arrays, named tuples as plain ones.
          step: only the checkpoint of this step is read.

        Raises:
          CheckpointError: every checkpoint, or that of the step, is damaged, or the one to restore has another
            structure than `like`.
        """
        self.wait()
        steps = self.steps() if step is None else [found for found in self.steps() if found == step]
        chosen = multihost.broadcast(self._newest(steps) if multihost.is_primary() else None)
        if chosen["problem"] is not None:
            raise CheckpointError(chosen["problem"])
        return None if chosen["step"] is None else self._read(self._folder(chosen["step"]), like)

    def _newest(self, steps: list[int]) -> dict[str, Any]:
        """Returns the step of the newest checkpoint that is whole, None without any; or the problem with all."""
        damaged: list[tuple[Path, str]] = []
        for step in reversed(steps):
            folder = self._folder(step)
            reason = _damage(folder)
            if reason is None:
                for other, why in damaged:
                    sys.stderr.write(f"warning: checkpoint {other} is damaged ({why}); using {folder} instead\n")
                return {"step": step, "problem": None}
            damaged.append((folder, reason))
        if not damaged:
            return {"step": None, "problem": None}
        listed = "\n".join(f"  - {folder}: {reason}" for folder, reason in damaged)
        hint = f"Put a whole copy of one back to resume from it, or delete {self._directory} to start this run from its"
        return {"step": None, "problem": f"every checkpoint is damaged:\n{listed}\n{hint} beginning"}

    def _together(self, part: Callable[[], None] | None, final: Path, partial: Path) -> None:
        """Does this process's part of a save; returns when every process has done its own, raises if one failed."""
        problem, cause = None, None
        try:
            if part is not None:
                part()
        except (OSError, ValueError, RuntimeError) as error:  # tensorstore reports a full disk as ValueError
            problem, cause = str(error), error
        found = multihost.all_problems(problem)
        if found:
            if multihost.is_primary():
                shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"cannot save the checkpoint {final}: {'; '.join(found)}\nFree space or permissions are needed there;"
                " the checkpoints saved before are untouched, the same command resumes from the newest of them"
            ) from cause

    def _folder(self, step: int) -> Path:
        return self._directory / f"step_{step:09d}"

    def _read(self, folder: Path, like: Callable[[Tree], Tree] | Tree | None) -> Restored:
        state = json.loads((folder / "state.json").read_bytes())
        specifications = state["leaves"]
        abstract = [_abstract(specification) for specification in specifications]
        template = like(_decode(state["structure"], abstract)) if callable(like) else like
        wanted: list[Any] = [None] * len(abstract)
        if template is not None:
            wanted = []
            structure = _encode(template, wanted, "like", check_leaves=False)
            _require_same(folder, state["structure"], abstract, structure, wanted)
        stored = self._read_stored(folder, specifications, wanted)
        leaves = [
            _place(_unpack(specification, stored) if "offset" in specification else stored[specification["name"]], want)
            for specification, want in zip(specifications, wanted, strict=True)
        ]
        arrays = _decode(state["structure"], leaves) if template is None else _fill(template, iter(leaves))
        return Restored(state["step"], arrays, state["progress"])

    def _read_stored(self, folder: Path, specifications: list[dict[str, Any]], wanted: list[Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for specification, want in zip(specifications, wanted, strict=True):
            if "offset" in specification:
                arguments["packed"] = ocp.RestoreArgs(restore_type=np.ndarray)
            elif getattr(want, "sharding", None) is None:
                arguments[specification["name"]] = ocp.RestoreArgs(restore_type=np.ndarray)
            else:
                arguments[specification["name"]] = ocp.ArrayRestoreArgs(sharding=want.sharding)
        if not arguments:
            return {}
        try:
            stored: dict[str, Any] = self._orbax.restore(
                folder / "arrays", args=ocp.args.PyTreeRestore(restore_args=arguments)
            )
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"the checkpoint {folder} has its right checksums, but this Orbax cannot read it: {error}. Use the"
                " package versions of the run (versions.json in its folder)"
            ) from error
        return stored


# ---- trees ----------------------------------------------------------------------------------------------------


def _encode(tree: Tree, leaves: list[Any], path: str, *, check_leaves: bool = True) -> Any:  # noqa: ANN401 - JSON
    """Appends a tree's leaves to `leaves` and returns its shape as JSON-ready data; a leaf is its index."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        for key in tree:
            if not isinstance(key, str | int):
                raise TypeError(f"{path}: a key must be a text or an int, got {key!r}")
        # Sorted, so that two dicts that are equal have one encoding; ints and texts cannot be compared.
        keys = sorted(tree, key=lambda key: (isinstance(key, str), key))
        children = [[key, _encode(tree[key], leaves, f"{path}[{key!r}]", check_leaves=check_leaves)] for key in keys]
        return {"dict": children}
    if isinstance(tree, list | tuple):
        items = [
            _encode(item, leaves, f"{path}[{index}]", check_leaves=check_leaves) for index, item in enumerate(tree)
        ]
        return {"list" if isinstance(tree, list) else "tuple": items}
    if check_leaves and not isinstance(tree, jax.Array | np.ndarray | np.generic):
        raise TypeError(f"{path}: must be a jax or numpy array, dict, list, tuple or None, got {type(tree).__name__}")
    if str(getattr(tree, "dtype", None)) not in _DTYPES:
        hint = "; save a random key as jax.random.key_data(key)" if check_leaves else ""
        raise TypeError(f"{path}: {type(tree).__name__} of dtype {getattr(tree, 'dtype', None)} cannot be saved{hint}")
    leaves.append(tree)
    return len(leaves) - 1


def _decode(structure: Any, leaves: list[Any]) -> Tree:  # noqa: ANN401 - JSON
    if structure is None:
        return None
    if isinstance(structure, int):
        return leaves[structure]
    if "dict" in structure:
        return {key: _decode(child, leaves) for key, child in structure["dict"]}
    items = [_decode(child, leaves) for child in structure.get("list", structure.get("tuple"))]
    return items if "list" in structure else tuple(items)


def _fill(template: Tree, leaves: Iterator[Any]) -> Tree:
    """Returns the template with its leaves replaced, in `_encode`'s order, its own container types kept."""
    if template is None:
        return None
    if isinstance(template, dict):
        keys = sorted(template, key=lambda key: (isinstance(key, str), key))
        filled = {key: _fill(template[key], leaves) for key in keys}
        return {key: filled[key] for key in template}
    if isinstance(template, list):
        return [_fill(item, leaves) for item in template]
    if isinstance(template, tuple):
        items = [_fill(item, leaves) for item in template]
        return type(template)(*items) if hasattr(template, "_fields") else tuple(items)
    return next(leaves)


def _places(structure: Any, path: str = "") -> Iterator[tuple[str, int]]:  # noqa: ANN401 - JSON
    """Yields the dotted path and index of every leaf."""
    if isinstance(structure, int):
        yield path, structure
    elif structure is not None:
        for key, child in structure.get("dict", []):
            yield from _places(child, f"{path}.{key}" if path else str(key))
        for index, child in enumerate(structure.get("list", structure.get("tuple", []))):
            yield from _places(child, f"{path}[{index}]")


def _require_same(folder: Path, saved: Any, abstract: list[Any], asked: Any, wanted: list[Any]) -> None:  # noqa: ANN401 - JSON
    in_folder = {path: f"{abstract[i].dtype}{list(abstract[i].shape)}" for path, i in _places(saved)}
    in_like = {path: f"{wanted[i].dtype}{list(wanted[i].shape)}" for path, i in _places(asked)}
    found = [
        f"{path}: the checkpoint has {in_folder.get(path, 'nothing')}, asked for is {in_like.get(path, 'nothing')}"
        for path in sorted(in_folder.keys() | in_like.keys())
        if in_folder.get(path) != in_like.get(path)
    ]
    if not found and saved != asked:
        found = ["lists, tuples or empty containers differ"]
    if found:
        more = [f"and {len(found) - 10} more"] if len(found) > 10 else []
        listed = "\n".join(f"  - {line}" for line in found[:10] + more)
        raise CheckpointError(f"the checkpoint {folder} does not have the arrays asked for:\n{listed}")


def check(arrays: Tree, progress: Mapping[str, Any], name: str) -> None:
    """Raises a `TypeError` that names the place of what `Checkpointer.save` does not take; `name` stands before it."""
    _encode(arrays, [], f"{name}.arrays")
    _require_json(progress, f"{name}.values")


def _require_json(value: object, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: a key must be a text, got {key!r}; JSON would turn it into one")
            _require_json(item, f"{path}[{key!r}]")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _require_json(item, f"{path}[{index}]")
    elif not (value is None or type(value) in {bool, int, float, str}):
        raise TypeError(f"{path}: must be JSON-ready (None, bool, int, float, str, list, dict), got {type(value)}")


# ---- arrays ---------------------------------------------------------------------------------------------------


def _pack(leaves: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns what is needed to locate each leaf, and the arrays to store by name."""
    small = [index for index, leaf in enumerate(leaves) if leaf.nbytes <= _PACKED_UP_TO]
    on_host = dict(zip(small, _on_host([leaves[index] for index in small]), strict=True))
    specifications: list[dict[str, Any]] = []
    stored: dict[str, Any] = {}
    buffers: list[bytes] = []
    offset = 0
    for index, leaf in enumerate(leaves):
        specification: dict[str, Any] = {"dtype": str(leaf.dtype), "shape": list(leaf.shape)}
        if index in on_host:
            data = np.asarray(on_host[index]).tobytes()
            specification["offset"] = offset
            buffers.append(data)
            offset += len(data)
        else:
            name = f"leaf_{index}"
            specification["name"] = name
            stored[name] = leaf
        specifications.append(specification)
    if buffers:
        # Orbax stores no empty array, and a tree may hold only empty ones.
        stored["packed"] = np.frombuffer(b"".join(buffers) + b"\0", np.uint8)
    return specifications, stored


def _on_host(leaves: list[Any]) -> list[Any]:
    """Returns whole arrays in this process's memory; what is spread over processes is gathered by all of them."""
    gathered = [
        multihost_utils.process_allgather(leaf, tiled=True)
        if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated)
        else leaf
        for leaf in leaves
    ]
    found: list[Any] = jax.device_get(gathered)
    return found


def _abstract(specification: dict[str, Any]) -> Any:  # noqa: ANN401 - jax leaves ShapeDtypeStruct untyped
    kind: Any = jax.ShapeDtypeStruct
    return kind(tuple(specification["shape"]), _DTYPES[specification["dtype"]])


def _unpack(specification: dict[str, Any], stored: dict[str, Any]) -> np.ndarray[Any, Any]:
    dtype, shape = _DTYPES[specification["dtype"]], tuple(specification["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    begin = specification["offset"]
    data: np.ndarray[Any, Any] = stored["packed"][begin : begin + count * dtype.itemsize]
    return np.frombuffer(data.tobytes(), dtype).reshape(shape).copy()  # a copy, because bytes are read-only


def _place(leaf: Any, want: Any) -> Any:  # noqa: ANN401 - jax or numpy, as asked
    if want is None or isinstance(want, np.ndarray | np.generic) or isinstance(leaf, jax.Array):
        return leaf
    sharding = getattr(want, "sharding", None)
    if sharding is not None and not sharding.is_fully_addressable:
        return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])
    return jax.device_put(leaf, sharding)


# ---- files ----------------------------------------------------------------------------------------------------


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "blake2b": hashlib.file_digest(file, "blake2b").hexdigest()}


def _damage(folder: Path) -> str | None:
    """Returns what is wrong with a checkpoint's files, None if they are as they were saved."""
    try:
        files = json.loads((folder / "manifest.json").read_bytes())["files"]
        reasons = [_file_damage(folder, name, expected) for name, expected in files.items()]
    except FileNotFoundError:
        return "manifest.json is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"manifest.json cannot be used: {error}"
    if "state.json" not in files:
        return "manifest.json does not name state.json"
    return next((reason for reason in reasons if reason), None)


def _file_damage(folder: Path, name: str, expected: dict[str, Any]) -> str | None:
    path = folder / name
    if not path.is_file():
        return f"{name} is missing"
    if path.stat().st_size != expected["bytes"]:
        return f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}"
    return None if _checksum(path) == expected else f"the checksum of {name} is wrong"


def _nothing_under_way() -> None:
    """Ends no save."""

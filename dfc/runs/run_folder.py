"""The folder of one run: its configuration, its records, its lock; nothing else writes there.

Records are JSON lines in three streams. Whatever reads a clock is stored under the key ``clock`` of a record, so that
all else is the same bit for bit whether a run was interrupted or not.
"""

import dataclasses
import errno
import importlib.metadata
import io
import json
import math
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

import dfc
from dfc import files
from dfc.config import RECIPES, RunConfig, renamed
from dfc.errors import CheckpointError, RunFolderError
from dfc.players import key_search
from dfc.template_day import DAY

Stream = Literal["metrics", "evaluations", "episodes"]
STREAMS: tuple[Stream, ...] = get_args(Stream)

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "transformers", "tokenizers", "safetensors")
_BLOCK = 1 << 16  # bytes read at a time
_WRITTEN_AT_ONCE = ("config.json", "versions.json", "report.html")  # by every start, even one that fails
_LATER = {"enable_thinking"}  # settings of sections that folders of earlier versions lack, and what they ran with
_UNSET: tuple[object, ...] = (None, {})
_CHECKPOINT = re.compile(r"step_|attempt_|\.partial_")  # what `dfc.runs.checkpoint` and recipes name in checkpoints/
_OURS_BEFORE_CONFIG = {".lock", ".config.json.partial"}  # what an opening that was cut short can leave


def config_json(config: RunConfig) -> dict[str, Any]:
    """Returns a configuration as JSON-ready data: its recipe's name, and every setting with defaults filled in."""
    data: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return {"recipe": config.recipe, **data}


def differences(stored: Mapping[str, Any], given: Mapping[str, Any], path: str = "") -> list[str]:
    """Returns one line per dotted key that differs between two `config_json`s, with both values."""
    found = []
    for key in sorted(stored.keys() | given.keys()):
        if key in _LATER and key not in stored and given[key] in _UNSET:
            continue
        old, new = stored.get(key, "absent"), given.get(key, "absent")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{path}{key}.")
        elif old != new:
            found.append(f"{path}{key}: the folder has {old!r}, this run has {new!r}")
    return found


def json_line(record: Mapping[str, Any]) -> bytes:
    """Returns a record as one compact line of valid JSON; NaN and infinities become ``"nan"``, ``"inf"``, ``"-inf"``.

    Numpy numbers and arrays are written as plain numbers and lists.
    """
    try:
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_finite(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def _plain(value: object) -> object:
    if hasattr(value, "tolist"):  # numpy scalars and arrays, without importing numpy here
        return value.tolist()
    raise TypeError(f"a record can hold numbers, texts, lists and mappings, not {type(value).__name__}: {value!r}")


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value if value is None or isinstance(value, str | int) else _finite(_plain(value))


class RunFolder:
    """An open run folder; make one with `open`. Close it, or use it as a context manager.

    With several processes one of them opens the folder and writes. The others `follow`: they know its paths, and what
    they are asked to record is dropped, because all of them have the same.

    Attributes:
      path: the folder.
      config: the run's configuration.
      existed: whether the folder held this run's configuration already.
      writes: whether this process writes; check it before writing a file of the folder by other means.
    """

    def __init__(self, path: Path, config: RunConfig, *, existed: bool, lock: io.FileIO | None) -> None:
        self.path = path
        self.config = config
        self.existed = existed
        self.writes = lock is not None
        self._lock = lock
        self._files: dict[Stream, io.BufferedWriter] = {}
        self._before_close: list[Callable[[], None]] = []

    @classmethod
    def open(cls, path: Path, config: RunConfig, *, command: str, within: Path | None = None) -> "RunFolder":
        """Creates the folder of a run, for its owner alone (mode 0700), or opens it again to resume.

        Args:
          path: the folder; its parents are created. It may be a link; in it only ``checkpoints`` may be one.
          config: a checked configuration; only `name` may differ from the one stored, unless that one's run failed
            before anything was recorded: then the folder is this one's from now on.
          command: the command line, kept in ``versions.json`` without the keys and passwords that are recognised.
          within: the run folder of which this is a stage's: it decides who may read it, and no folder from there to
            `path` may be a link.

        Raises:
          RunFolderError: the folder belongs to another configuration, holds other files or symbolic links, is in use
            by another process or cannot be written to.
        """
        given = config_json(config)
        try:
            if within is not None:
                for folder_on_the_way in (path, *path.parents)[: len(path.relative_to(within).parts)]:
                    files.refuse_link(folder_on_the_way)
            existed = _holds_run(path)
            _refuse_links(path)
            path.mkdir(mode=0o700 if within is None else 0o777, parents=True, exist_ok=True)
            lock = _locked(path)
            try:
                existed = existed and not _takes_over(path, config)
                if not existed:
                    files.write_json(path / "config.json", given, indent=2, sort_keys=True)
                folder = cls(path, config, existed=existed, lock=lock)
                folder._note_start(command)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise RunFolderError(_cannot_write(error.filename or path, error)) from error
        return folder

    @classmethod
    def follow(cls, path: Path, config: RunConfig, *, existed: bool) -> "RunFolder":
        """Returns the folder for a process that does not write; the disk is not touched.

        All processes see the disk; `config` is the same as in the process that opened it, `existed` as that one found
        it.
        """
        return cls(path, config, existed=existed, lock=None)

    # ---- paths ------------------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        """Where `dfc.runs.checkpoint` saves."""
        return self.path / "checkpoints"

    @property
    def policy(self) -> Path:
        """The trained weights in the Hugging Face layout."""
        return self.path / "policy"

    @property
    def adapter(self) -> Path:
        """The trained adapter as PEFT has it, if one was trained."""
        return self.path / "adapter"

    @property
    def last_good(self) -> Path:
        """The policy before an update that was refused, in the Hugging Face layout; there only after such an end."""
        return self.path / "last_good"

    @property
    def last_good_adapter(self) -> Path:
        """The adapter of `last_good`, if one was trained."""
        return self.path / "last_good_adapter"

    def of_challenger(self, path: Path) -> Path:
        """Returns where self-play with an adapter for each role has the Challenger's own.

        `path` is the Solver's: `policy`, `adapter`, `last_good` or `last_good_adapter`.
        """
        return self.path / f"challenger_{path.name}"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def groups(self) -> Path:
        """The groups of the divide step."""
        return self.path / "groups.json"

    @property
    def report(self) -> Path:
        """The report; brought up to date while the run is running."""
        return self.path / "report.html"

    @property
    def finished(self) -> Path:
        """Exists once everything of the run has been written."""
        return self.path / "finished.json"

    def finish(self) -> None:
        """Notes that everything has been written."""
        self.flush()
        if self.writes:
            files.write_json(self.finished, {"time": time.time()}, indent=2, sort_keys=True)

    def stream(self, stream: Stream) -> Path:
        """Returns the file of a stream."""
        return self.path / f"{stream}.jsonl"

    # ---- records ----------------------------------------------------------------------------------------------

    def append(self, stream: Stream, records: Iterable[Mapping[str, Any]]) -> None:
        """Adds records to a stream, one JSON line each (`json_line`); buffered until `flush`.

        Raises:
          RunFolderError: the file cannot be written to.
        """
        if not self.writes:
            return
        path = self.stream(stream)
        try:
            if stream not in self._files:
                self._files[stream] = files.open_to_append(path)
            self._files[stream].writelines(map(json_line, records))
        except OSError as error:
            raise RunFolderError(_cannot_write(path, error)) from error

    def records(self, stream: Stream) -> list[dict[str, Any]]:
        """Returns every record of a stream so far.

        Raises:
          RunFolderError: a line is no JSON, or this process does not write and so cannot know what is on its way.
        """
        if not self.writes:
            raise RunFolderError(
                f"{self.stream(stream)}: only the process that writes the run folder can read what was recorded"
            )
        self.flush()
        path = self.stream(stream)
        if not path.exists():
            return []
        found = []
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise RunFolderError(f"{path}, line {number}: no valid JSON ({error}); remove this line") from error
        return found

    def flush(self) -> None:
        """Hands buffered lines to the operating system, so that other processes can read them.

        Raises:
          RunFolderError: a file cannot be written to.
        """
        for stream, file in self._files.items():
            try:
                file.flush()
            except OSError as error:
                raise RunFolderError(_cannot_write(self.stream(stream), error)) from error

    def positions(self) -> dict[str, int]:
        """Returns the size of each stream in bytes, after all of it has reached the disk; a checkpoint keeps them.

        Where this process does not write, all are 0; a checkpoint keeps those of the process that does.
        """
        if not self.writes:
            return self.sizes()
        self.flush()
        for stream, file in self._files.items():
            try:
                os.fsync(file.fileno())
            except OSError as error:
                raise RunFolderError(_cannot_write(self.stream(stream), error)) from error
        return self.sizes()

    def sizes(self) -> dict[str, int]:
        """Returns the size of each stream in bytes, which `rewind` takes; unlike `positions` it waits for no disk.

        Where this process does not write, all are 0.
        """
        if not self.writes:
            return dict.fromkeys(STREAMS, 0)
        self.flush()
        return {stream: _size(self.stream(stream)) for stream in STREAMS}

    def rewind(self, positions: Mapping[str, int]) -> None:
        """Cuts the streams back to a checkpoint's `positions`; a stream it does not name is emptied.

        The lines written after that checkpoint vanish, and the resumed run writes the same ones again. Nothing happens
        where this process does not write.

        Raises:
          CheckpointError: a stream is shorter than the checkpoint says, so records are missing.
          RunFolderError: a file cannot be written to.
        """
        if not self.writes:
            return
        self._close_streams()
        for stream in STREAMS:
            size, wanted = _size(self.stream(stream)), positions.get(stream, 0)
            if size < wanted:
                raise CheckpointError(
                    f"{self.stream(stream)} has {size} bytes, but the checkpoint was saved when it had {wanted}: it was"
                    " cut or replaced afterwards. Restore the file, or start again in a new --workdir"
                )
        for stream in STREAMS:
            path, wanted = self.stream(stream), positions.get(stream, 0)
            if _size(path) > wanted:
                try:
                    files.truncate(path, wanted)
                except OSError as error:
                    raise RunFolderError(_cannot_write(path, error)) from error

    def mend(self) -> None:
        """Cuts every stream after its last whole line: a process that was killed may have written half of one.

        Nothing happens where this process does not write.

        Raises:
          RunFolderError: a file cannot be written to.
        """
        if self.writes:
            self._close_streams()
            self.rewind({stream: _size_of_lines(self.stream(stream)) for stream in STREAMS})

    # ---- start and end ----------------------------------------------------------------------------------------

    def note_device(self, text: str) -> None:
        """Adds what this start runs on, e.g. ``8 x NVIDIA H100``, to ``versions.json``."""
        self._note("device", text)

    def note_model(self, name: str, commit: str) -> None:
        """Adds which commit of a model on the Hub this start runs from, to ``versions.json``."""
        self._note("model", {"name": name, "commit": commit})

    def model_commit(self, name: str) -> str | None:
        """Returns the commit that the first start which noted one ran from; None: none did."""
        models = [start["model"] for start in self._starts() if "model" in start]
        return next((str(model["commit"]) for model in models if model["name"] == name), None)

    def _note(self, key: str, value: object) -> None:
        if self.writes:
            starts = self._starts()
            starts[-1][key] = value
            self._write_starts(starts)

    def before_close(self, end: Callable[[], None]) -> None:
        """Lets `close` first call `end`, which waits for what a thread still writes here."""
        self._before_close.append(end)

    def close(self) -> None:
        """Writes what is buffered and releases the folder."""
        try:
            for end in self._before_close:
                end()
            self._close_streams()
        finally:
            if self._lock is not None:
                self._lock.close()  # closing drops the lock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_streams(self) -> None:
        files, self._files = self._files, {}
        for stream, file in files.items():
            try:
                file.close()
            except OSError as error:
                raise RunFolderError(_cannot_write(self.stream(stream), error)) from error

    def _starts(self) -> list[dict[str, Any]]:
        path = self.path / "versions.json"
        if not path.exists():
            return []
        try:
            starts: list[dict[str, Any]] = json.loads(path.read_bytes())["starts"]
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{path} cannot be read ({error}); remove it, the run does not need it") from error
        return starts

    def _write_starts(self, starts: list[dict[str, Any]]) -> None:
        try:
            files.write_json(self.path / "versions.json", {"starts": starts}, indent=2, sort_keys=True)
        except OSError as error:
            raise RunFolderError(_cannot_write(self.path / "versions.json", error)) from error

    def _note_start(self, command: str) -> None:
        kept = key_search.redacted(command, self.config)  # the command line refuses keys; other callers may not
        self._write_starts([*self._starts(), {"command": kept, **versions(), "git_commit": git_commit()}])


def _holds_run(path: Path) -> bool:
    if not path.exists():
        return False
    if not path.is_dir():
        raise RunFolderError(f"{path} is a file, but a run needs a folder; give another --workdir")
    if (path / "config.json").exists():
        return True
    foreign = sorted({entry.name for entry in path.iterdir()} - _OURS_BEFORE_CONFIG)
    if foreign:
        raise RunFolderError(
            f"{path} is no run folder: it has no config.json, but holds {', '.join(foreign[:5])}"
            f"{' and more' if len(foreign) > 5 else ''}; give a new or an empty folder as --workdir"
        )
    return False


def _locked(path: Path) -> io.FileIO:
    lock = files.lock(path / ".lock")
    if lock is None:
        raise RunFolderError(
            f"{path} is in use by another running process; wait for it, stop it, or give another --workdir"
        )
    return lock


def _takes_over(path: Path, config: RunConfig) -> bool:
    """Returns whether the folder is of another configuration whose run failed before it recorded anything.

    Raises:
      RunFolderError: the other configuration's run has begun, or the stored one cannot be read.
    """
    try:
        stored = json.loads((path / "config.json").read_bytes())
    except ValueError as error:
        raise RunFolderError(f"{path / 'config.json'} is no valid JSON ({error}); give another --workdir") from error
    if not isinstance(stored, dict):
        raise RunFolderError(f"{path / 'config.json'} holds no configuration; give another --workdir")
    # A stage may be of a recipe that no configuration file names.
    kind = {**RECIPES, config.recipe: type(config)}.get(str(stored.get("recipe")))
    if kind is not None:
        stored = renamed.with_new_names(stored, kind)
    unknown = ["recipe"] if kind is None else list(_unknown(stored, kind()))
    if unknown and (path / "versions.json").is_file() and _has_begun(path):
        raise RunFolderError(
            f"{path} is a run of another version of dfc: its config.json has {', '.join(unknown[:5])}"
            f"{' and more' if len(unknown) > 5 else ''}, which this one does not know. Continue it with the version "
            "that versions.json names, or give another --workdir; its policy/ can be the model.path of a new run"
        )
    found = [line for line in differences(stored, config_json(config)) if not line.startswith("name:")]
    ours = kind is not None and stored.keys() == config_json(kind()).keys() and (path / "versions.json").is_file()
    if found and (not ours or _has_begun(path)):
        raise RunFolderError(
            f"{path} holds the run of another configuration:\n"
            + "\n".join(f"  - {line}" for line in found)
            + "\nGive another --workdir, or the values the folder has to resume that run."
        )
    return bool(found)


def _unknown(stored: Mapping[str, Any], config: object, section: str = "") -> Iterator[str]:
    """Yields the dotted settings of a stored configuration that a configuration of today does not have."""
    for name, value in stored.items():
        if not hasattr(config, name):
            yield f"{section}{name}"
        elif isinstance(value, dict) and dataclasses.is_dataclass(inner := getattr(config, name)):
            yield from _unknown(value, inner, f"{section}{name}.")


def _has_begun(path: Path) -> bool:
    """Returns whether a run folder, or one within it, holds any result."""
    for entry in path.iterdir():
        if entry.is_symlink():  # where large files are stored elsewhere
            return True
        if entry.is_dir():
            if entry.name != "tensorboard" and _has_begun(entry):
                return True
        elif entry.stat().st_size and entry.name[0] != "." and not entry.name.startswith(_WRITTEN_AT_ONCE):
            return True
    return False


def _refuse_links(path: Path) -> None:
    """Raises an error that names every symbolic link in a run folder but that of ``checkpoints`` to a folder.

    Folders in it are not searched: what is written into them is opened by `dfc.files`, which follows no link.
    """
    found = [entry for entry in path.iterdir() if entry.is_symlink()] if path.exists() else []
    if (checkpoints := path / "checkpoints").is_dir():
        found = [entry for entry in found if entry != checkpoints]
        found += [entry for entry in checkpoints.iterdir() if _CHECKPOINT.match(entry.name) and entry.is_symlink()]
    if found:
        shown = [f"  - {entry} -> {entry.readlink()}" for entry in sorted(found)]
        raise RunFolderError(
            f"{path} holds symbolic links, and a run writes through none but checkpoints, which may lead to a folder:\n"
            + "\n".join(shown[:10] + ([f"  - and {len(shown) - 10} more"] if len(shown) > 10 else []))
            + "\nRemove them, or put what they lead to in their place; nothing was changed"
        )


def _cannot_write(path: object, error: OSError) -> str:
    if error.errno == errno.ELOOP:  # as `dfc.files` says it
        return f"{error.filename or path}: {error.strerror}"
    return f"cannot write to {path}: {error.strerror or error}; free space or permissions are needed there"


def _size_of_lines(path: Path) -> int:
    """Returns the size of a file up to the end of its last whole line."""
    size = _size(path)
    if not size:
        return 0
    with path.open("rb") as file:
        while size:
            first = max(0, size - _BLOCK)
            file.seek(first)
            end = file.read(size - first).rfind(b"\n") + 1
            if end:
                return first + end
            size = first
    return 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def versions() -> dict[str, Any]:
    """Returns what results depend on: the versions of dfc, of Python and of the packages that compute."""
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES if _installed(name)}
    told = {"day": DAY.isoformat()}  # to chat templates, beside the messages; what is configured is in config.json
    return {"dfc": dfc.__version__, "python": platform.python_version(), "packages": packages, "chat_template": told}


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def git_commit() -> str | None:
    """Returns the commit of the checkout dfc runs from, ``-dirty`` if files differ from it, None outside of one."""
    checkout = Path(dfc.__file__).resolve().parents[1]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)  # noqa: S603 - fixed words
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None

"""Model folders: which files make one, and how one is replaced as a whole.

A folder is on a disk, or in a bucket under an address such as ``gs://bucket/model`` (whatever `etils.epath` opens).
``config.json`` is written last and removed first: a folder without it is no model, to us as to transformers.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from etils import epath  # type: ignore[import-untyped]  # the package carries no types

from dfc import multihost
from dfc.commands import shell_line
from dfc.errors import DfcError, WeightsError, cut, shown
from dfc.models import safetensors_format
from dfc.models.safetensors_format import (
    NUMPY_DTYPES,
    BrokenFileError,
    Location,
    StoredTensor,
    TensorToWrite,
    parse_json,
    read_header,
    refuse_special,
)

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
_HASHED_AT_ONCE = 1 << 22  # bytes
_LONGEST_JSON = 100 * 2**20  # bytes; the index of a very large model has a few megabytes
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def location(path: str | os.PathLike[str]) -> Location:
    """Returns a path on this machine as `pathlib.Path`, ``~`` expanded, and an address (``gs://``) as `epath.Path`."""
    text = os.fspath(path)
    return epath.Path(text) if "://" in text else pathlib.Path(text).expanduser()


def in_bucket(folder: Location) -> bool:
    """Returns whether a folder is in a bucket, where nothing can be renamed as a whole or mapped."""
    return not isinstance(folder, pathlib.Path)


def read_json(path: Location) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
      WeightsError: if it cannot be read, is something else, is nested too deeply or names a key twice.
    """
    try:
        value = parse_json(_bounded(path))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: expected a JSON file, cannot read it ({cut(str(error))})") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: expected a JSON object, got a {type(value).__name__}")
    return value


def _bounded(path: Location) -> bytes:
    refuse_special(path)
    with path.open("rb") as handle:
        data = bytes(handle.read(_LONGEST_JSON + 1))
    if len(data) > _LONGEST_JSON:
        raise ValueError(f"it has more than {_LONGEST_JSON} bytes")
    return data


def listed(problems: Sequence[str], most: int = 40) -> str:
    """Returns problems as the lines of a message, the first `most` of many, none of them very long."""
    lines = [f"\n  - {cut(problem, 1000)}" for problem in problems[:most]]
    more = len(problems) - len(lines)
    return "".join(lines) + (f"\n  - and {more:,} more" if more else "")


def write_json(path: Location, value: Mapping[str, Any]) -> None:
    """Writes a JSON object, indented, keys in order; on a disk it is there for good when this returns."""
    with path.open("wb") as handle:
        handle.write((json.dumps(value, indent=2, sort_keys=True) + "\n").encode())
        if not in_bucket(path):
            handle.flush()
            os.fsync(handle.fileno())


def weight_files(folder: Location) -> dict[str, set[str] | None]:
    """Returns the safetensors files of a folder and what an index expects in each (None: there is no index).

    Raises:
      WeightsError: the folder has neither, or an index that cannot be used: names that lead out of the folder.
    """
    if (folder / SINGLE).exists():
        return {SINGLE: None}
    if not (folder / INDEX).exists():
        pickled = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLED)
        came = f"; it holds {', '.join(pickled)}, and pickled files are never loaded" if pickled else ""
        if converted := sorted(file.name for file in folder.iterdir() if file.suffix == ".gguf"):
            fetch = shell_line("dfc.models.fetch")
            came += f"; it holds {shown(converted[0])}, and `{fetch} --from=FILE.gguf --to=DIR` converts what is "
            came += "Llama's or Qwen 2's"
        if others := sorted(file.name for file in folder.iterdir() if file.suffix == ".safetensors"):
            came += f"; it holds {shown(others[0])}, which no index names"
        raise WeightsError(
            f"{folder}: expected {SINGLE} or {INDEX}{came}. Save the model as safetensors, for example with "
            "transformers' save_pretrained."
        )
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise WeightsError(f"{folder / INDEX}: expected an object 'weight_map' from tensor names to file names")
    names = sorted(set(weight_map.values()))
    # A NUL, or half of a pair of surrogates, is in no file's name; other unprintable ones have no business there.
    _refuse_names(folder, "file names must be printable", [name for name in names if not name.isprintable()])
    outside = [name for name in names if pathlib.PurePath(name).name != name or "\\" in name]
    _refuse_names(folder, "file names must not lead out of the folder", outside)
    other = [name for name in names if not name.endswith(".safetensors")]
    _refuse_names(folder, "only safetensors files are ever read", other)
    expected: dict[str, set[str]] = {name: set() for name in names}
    for tensor, name in weight_map.items():
        expected[name].add(tensor)
    return {**expected}


def _refuse_names(folder: Location, expected: str, names: Sequence[str]) -> None:
    if names:
        came = cut(", ".join(name if name.isprintable() else ascii(name) for name in names))
        raise WeightsError(f"{folder / INDEX}: {expected}, got {came}")


def weights_hash(folder: Location) -> str:
    """Returns what identifies the weights of a folder: a blake2b digest, 32 hexadecimal digits.

    Names, sizes and bytes of the safetensors files that make the model go in, in the order of their names.

    Raises:
      WeightsError: the folder has no safetensors.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(weight_files(folder)):
        try:
            refuse_special(folder / name)
        except BrokenFileError as error:
            raise WeightsError(f"{folder / name}: {error}") from error
        with (folder / name).open("rb") as file:
            digest.update(f"{name} {file.seek(0, os.SEEK_END)}\n".encode())
            file.seek(0)
            while data := file.read(_HASHED_AT_ONCE):
                digest.update(data)
    return digest.hexdigest()


class FolderTensors:
    """The tensors of a folder's files; only headers are read.

    Attributes:
      folder: where they are.
      stored: what can be read, by name.
      problems: one sentence per file or tensor that an index names and that is not where it should be.
      reported: tensors that `problems` already covers.
      notes: one sentence per tensor that is in two files: from which it is read.

    Raises:
      WeightsError: if the folder has no safetensors, or an index that cannot be used.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        self.stored: dict[str, StoredTensor] = {}
        self.problems: list[str] = []
        self.reported: set[str] = set()
        self.notes: list[str] = []
        files = weight_files(folder)
        place = {tensor: file for file, indexed in files.items() for tensor in indexed or ()}
        for file, indexed in files.items():
            try:
                held = read_header(folder / file)
            except FileNotFoundError:
                self.problems.append(f"{file}: {INDEX} names this file, but it is not there")
            except (BrokenFileError, OSError) as error:
                self.problems.append(f"{file}: not a whole safetensors file ({error}); download or save it again")
            else:
                self._add(file, held, place)
                missing = (indexed or set()) - held.keys()
                self.problems += [
                    f"{tensor}: {INDEX} expects it in {file}, which does not hold it" for tensor in sorted(missing)
                ]
                self.reported |= missing
                continue
            self.reported |= indexed or set()

    def _add(self, file: str, held: Mapping[str, StoredTensor], place: Mapping[str, str]) -> None:
        """Takes the tensors of a file; of one that is in two files, that of the file the index names for it."""
        for name, tensor in held.items():
            before = self.stored.get(name)
            if before is not None:
                keep = place.get(name) == before.file.name
                taken = before.file.name if keep else file
                why = f"as {INDEX} says" if place.get(name) == taken else f"{INDEX} names neither"
                self.notes.append(f"{name}: is in {before.file.name} and in {file}; {taken} is read, {why}")
                if keep:
                    continue
            self.stored[name] = tensor


def misfits(
    stored: Mapping[str, StoredTensor],
    expected: Mapping[str, tuple[int, ...]],
    *,
    missing: str,
    extra: str,
    source: str = "",
    reported: Collection[str] = (),
    ignorable: Callable[[str], bool] = lambda _: False,
) -> list[str]:
    """Returns what is missing, misshapen, of another dtype or extra: one sentence per tensor.

    `missing` and `extra` are the texts about an absent tensor and about one that is not expected; `source`, where the
    expected shape is from, follows "expected shape ...". The absence of `reported` tensors has been reported otherwise;
    extra ones that are `ignorable` are left out silently.
    """
    problems = []
    for name, shape in expected.items():
        found = stored.get(name)
        if found is None:
            problems += [] if name in reported else [f"{name}: {missing}"]
            continue
        if found.shape != shape:
            problems.append(f"{name}: expected shape {list(shape)}{source}, got {list(found.shape)}")
        if found.dtype not in NUMPY_DTYPES:
            problems.append(f"{name}: expected one of {', '.join(NUMPY_DTYPES)}, got {found.dtype}")
    return problems + [f"{name}: {extra}" for name in sorted(stored.keys() - expected.keys()) if not ignorable(name)]


def check_target(folder: Location, is_ours: Callable[[str], bool], what: str) -> None:
    """Refuses to replace a folder by `what` (for the message) if that would lose something.

    `is_ours` says whether a file of this name is part of what is written.

    Raises:
      WeightsError: if the folder holds anything else, or is a file.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise WeightsError(f"{folder}: expected a folder to write to, found a file")
    foreign = [entry.name for entry in sorted(folder.iterdir()) if not is_ours(entry.name)]
    if foreign:
        raise WeightsError(
            f"{folder}: is replaced as a whole, but holds {', '.join(foreign)}, which is no part of {what}; "
            "move it away or choose another folder"
        )


def replacing(folder: Location, *, last: str) -> contextlib.AbstractContextManager[Location]:
    """Gives the empty folder to write to so that `folder` is at every moment the old one, the new one, or not whole.

    On a disk that is a sibling which takes the folder's place if the block succeeds and vanishes otherwise. A bucket
    cannot rename: there it is the place itself, without the file `last` until the block writes it, as it must at its
    end. Without the file `last` a folder is not taken for whole.
    """
    return _exchanging(folder) if isinstance(folder, pathlib.Path) else _emptying(folder, last)


@contextlib.contextmanager
def _exchanging(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        new, old = pathlib.Path(scratch) / "new", pathlib.Path(scratch) / "old"
        new.mkdir()
        yield new
        try:
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        finally:
            if old.exists() and not folder.exists():  # interrupted between the two: the earlier model comes back
                old.rename(folder)


@contextlib.contextmanager
def _emptying(folder: Location, last: str) -> Iterator[Location]:
    if folder.exists():
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name != last)
        for entry in entries:  # `last` first
            entry.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def write_folder(
    folder: Location,
    files: Mapping[str, Sequence[TensorToWrite]],
    finish: Callable[[Location], None],
    *,
    check_stop: Callable[[], None],
    last: str,
    beside: Callable[[], None] = lambda: None,
) -> None:
    """Writes a folder whole, from the first host; every host calls this and takes part in fetching the tensors.

    The first host calls `check_stop` before anything is fetched or written; `finish` writes all other files into the
    folder it is given, at the end `last`, without which a folder is not taken for whole. `beside` is what the other
    hosts compute with the first one in `finish`.

    Raises:
      WeightsError: on every host, if `check_stop`, `finish` or the file system refused.
    """

    def write() -> None:
        with replacing(folder, last=last) as new:
            for name, tensors in files.items():
                safetensors_format.write_file(new / name, tensors, metadata={"format": "pt"})
            finish(new)

    def fetch() -> None:
        for tensors in files.values():
            safetensors_format.write_file(None, tensors)
        beside()

    for mine in (check_stop, write) if multihost.is_primary() else (lambda: None, fetch):
        try:
            multihost.on_all_hosts(mine)
        except (WeightsError, OSError):
            raise
        except DfcError as error:  # another host's
            raise WeightsError(str(error)) from error

"""Files that are replaced atomically, and locks of writers.

A reader of such a file, however the process that wrote it ended, sees either the old content or all of the new, never
a part.

Nothing here writes through a symbolic link: a folder that came from elsewhere may hold links to files outside it.
"""

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

PARTIAL = ".partial"
"""Ending of what is being written: ``.NAME.partial`` beside the file."""

# An address, also as `pathlib` has it, which takes one of the slashes; a single letter is a drive.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

# Error numbers of file systems that cannot sync folders, such as some mounts of buckets and shares.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF)

_LINK = "is a symbolic link, and nothing is written through one; remove it, or put its target in its place"


def refuse_link(path: Path) -> None:
    """Raises an OSError (ELOOP) that says what to do if a path itself is a symbolic link.

    Folders that lead to it may be links: the caller that names a path decides about those.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, _LINK, str(path))


def make_folder(path: Path) -> None:
    """Makes a folder, with its parents, unless it is there.

    Raises:
      OSError: it cannot be made, or a symbolic link is in its place.
    """
    refuse_link(path)
    path.mkdir(parents=True, exist_ok=True)


def open_to_append(path: Path) -> io.BufferedWriter:
    """Opens a file of bytes to add to its end, made if it is not there.

    Raises:
      OSError: it cannot be opened, or is a symbolic link.
    """
    return open(path, "ab", opener=_not_through_a_link)


def truncate(path: Path, size: int) -> None:
    """Cuts a file after its first `size` bytes.

    Raises:
      OSError: it cannot be written to, or is a symbolic link.
    """
    with open(path, "r+b", opener=_not_through_a_link) as file:
        file.truncate(size)


def _not_through_a_link(path: str, flags: int) -> int:
    """Opens a file as `open` does, unless its last name is a link; for the `opener` of `open`."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError:
        refuse_link(Path(path))  # systems differ in the number of this error: ELOOP, EMLINK, EEXIST
        raise


def address_problem(path: str | Path) -> str | None:
    """Returns why nothing can be written to what is an address such as ``gs://bucket/folder``; None for other paths."""
    if not _ADDRESS.match(str(path)):
        return None
    return (
        "is an address, and what is written here needs a disk, whose folders can be renamed and locked; name a folder, "
        "or mount the bucket and name the folder it is mounted at (gcsfuse, for gs:// with a hierarchical namespace)"
    )


@contextlib.contextmanager
def replacing(
    path: Path,
    mode: Literal["w", "wb"] = "w",
    *,
    many_writers: bool = False,
    errors: Literal["replace", "strict"] = "replace",
) -> Iterator[IO[Any]]:
    """Opens a file that takes the place of `path` at the end of the block; an error leaves `path` as it was.

    The folder exists; text is in UTF-8. With `many_writers` several processes may write this file at once; the last one
    to end wins. Such files are not forced to the disk: one that is lost with the machine is made again. One that is
    killed leaves its partial file, which is never read. For half a surrogate pair in a text, as a reply may hold,
    `errors` writes a question mark or raises UnicodeError.

    Raises:
      OSError: it cannot be written.
      UnicodeError: see `errors`.
    """
    text = None if mode == "wb" else "utf-8"
    partial = path.with_name(f".{path.name}{f'.{uuid.uuid4().hex}' if many_writers else ''}{PARTIAL}")
    partial.unlink(missing_ok=True)  # of a process that was killed; a link in its place is removed, not its target
    try:
        with open(
            partial, mode.replace("w", "x"), encoding=text, errors=text and errors, opener=_not_through_a_link
        ) as file:
            yield file
            if not many_writers:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if not many_writers:
        _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole; see `replacing`."""
    with replacing(path) as file:
        file.write(text)


def write_json(path: Path, data: object, **options: Any) -> None:  # noqa: ANN401 - those of json.dumps
    """Writes a JSON file whole, by default indented by 1; see `replacing`."""
    write_text(path, json.dumps(data, **{"indent": 1, **options}) + "\n")


def lock(path: Path) -> io.FileIO | None:
    """Returns a lock that lasts until it is closed or the process ends, None while another process has it.

    Raises:
      OSError: the file cannot be opened or is a symbolic link, or its file system has no locks.
    """
    file = lock_file(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except BaseException:
        file.close()
        raise
    return file


def lock_file(path: Path) -> io.FileIO:
    """Opens the file of a lock without locking it, made if it is not there.

    Raises:
      OSError: it cannot be opened, or is a symbolic link.
    """
    return io.FileIO(path, "a", opener=_not_through_a_link)


def half_a_pair(text: str) -> bool:
    r"""Returns whether a text holds half a surrogate pair, as JSON can encode: no file, tokenizer or server takes it.

    >>> half_a_pair("\ud83d"), half_a_pair("\U0001f600")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(number)

"""Rows that a recipe builds without a model: once, on the first host; later starts only show them."""

from collections.abc import Callable

from dfc import multihost
from dfc.records.trajectory_files import DatasetError
from dfc.rows.training_rows import DATA_FOLDER, TABLES
from dfc.runs.run_folder import RunFolder


def build_once(folder: RunFolder, build: Callable[[], None]) -> None:
    """Builds the rows of a run unless it is finished, and prints its tables, if it has any, and where the rows are.

    What `build` raises on the first host, where alone it is called, is raised on all.

    Raises:
      DatasetError: the folder cannot be written to.
    """

    def guarded() -> None:
        try:
            build()
        except OSError as error:
            why = error.strerror or error
            raise DatasetError(f"{folder.path}: cannot be written to: {why}; free space is needed there") from error

    if multihost.broadcast(folder.finished.exists()):
        print(f"{folder.path} holds this run, finished", flush=True)  # noqa: T201 - why nothing happens
    else:
        multihost.on_all_hosts(lambda: guarded() if folder.writes else None)
        folder.finish()
    if not folder.writes:
        return
    tables = folder.path / TABLES
    if tables.exists():
        print(tables.read_text(encoding="utf-8"))  # noqa: T201 - the result
    print(f"rows: {folder.path / DATA_FOLDER}", flush=True)  # noqa: T201 - where to look

"""``python -m dfc.report FOLDER``: builds report.html of a run folder."""

import argparse
import sys
from pathlib import Path

from dfc.errors import RunFolderError
from dfc.games.printable import printable
from dfc.report.run_page import build


def main(arguments: list[str] | None = None) -> None:
    """Builds the report of the run folder named on the command line and prints its path."""
    parser = argparse.ArgumentParser(prog="python -m dfc.report", description="Build report.html of a run.")
    parser.add_argument("folder", type=Path, help="the run folder, e.g. runs/quickstart")
    try:
        path = build(parser.parse_args(arguments).folder)
    except RunFolderError as error:
        parser.error(printable(str(error)))
    sys.stdout.write(printable(f"{path}\n"))


if __name__ == "__main__":
    main()

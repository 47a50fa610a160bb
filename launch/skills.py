"""``python -m dfc.launch.skills --out=DIR BASE=FILE NAME=FILE ...``: lm-eval's results before and after, on a page."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dfc import files
from dfc.commands import shell_line
from dfc.errors import ConfigError, DfcError
from dfc.evaluation.skills import Skill, read_skills
from dfc.report import page, skills_page
from dfc.runs.printing import guarded


def main(words: Sequence[str]) -> int:
    """Runs what the words after ``python -m dfc.launch.skills`` ask for; returns the exit code."""
    with guarded():
        parser = argparse.ArgumentParser(
            prog="python -m dfc.launch.skills",
            description="Skills before and after a training, from what lm-eval wrote: a page and tables.",
            epilog="example: "
            f"{shell_line('dfc.launch.skills')} --out=skills base=base/results_1.json sft=sft/results_2.json",
            allow_abbrev=False,
        )
        parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write to")
        parser.add_argument(
            "results", nargs="+", metavar="NAME=FILE", help="a policy and its results_*.json, base first"
        )
        args = parser.parse_args(list(words))
        try:
            if address := files.address_problem(args.out):
                raise ConfigError([f"--out={args.out}: {address}"])
            found = _found(args.results)
            results = skills_page.results(found)
            args.out.mkdir(parents=True, exist_ok=True)
            page.publish(args.out, results)
        except (DfcError, OSError, ValueError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        return 0


def _found(results: Sequence[str]) -> dict[str, dict[str, Skill]]:
    found: dict[str, dict[str, Skill]] = {}
    for words in results:
        name, equals, file = words.partition("=")
        if not equals or not name or not file or name in found:
            raise ValueError(f"{words!r}: expected NAME=FILE, every name once")
        found[name] = read_skills(Path(file))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

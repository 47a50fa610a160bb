"""Prints the verdict of every claim on the results pages, from the differences by seed that stand there.

    python benchmarks/study_verdicts.py [--write]

Margins, half-widths foreseen and clauses are those of the studies' scripts, the rule is
`dfc.evaluation.claims.verdict`: runs are not needed. With `--write` the pages' cells become what is printed; a test
holds them to it.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import dfc_study_results as dfc_study
import kept_sets_study as kept_sets
import lsp_study_results as lsp
import paprika_study_results as paprika
import playpen_study_results as playpen
from paprika_study import LEFT_OUT
from study_tables import Printed, Row, judged, printed

PAGES = Path(__file__).resolve().parents[1] / "docs" / "results"
# Page -> heading above a table -> its claims, in their order.
STUDIES: Mapping[str, Mapping[str, Sequence[Row]]] = {
    "divide_fuse_conquer": {"What holds": dfc_study.CLAIMS, "Without any price on the form": dfc_study.FORM},
    "paprika": {
        "Claims": paprika.CLAIMS,
        "The earlier study": paprika.EARLIER_CLAIMS,
        "Groups left out": [paprika.transfer_of(group) for group in LEFT_OUT],
    },
    "playpen": {"Claims": [claim.row for claim in playpen.CLAIMS]},
    "language_self_play": {
        "Results of the second round": lsp.CLAIMS,
        "Seen afterwards": lsp.AFTERWARDS,
        "Results of the first round": lsp.FIRST_CLAIMS,
    },
    "kept_sets": {"Claims": kept_sets.CLAIMS},
}


def verdicts(page: str, study: Mapping[str, Sequence[Row]]) -> list[tuple[Printed, str]]:
    """Returns every claim's row of a page, in its order, with the verdict by the rule.

    Raises:
      ValueError: the page's claims are not those of the scripts.
    """
    rows = printed(page)
    known = [(heading, row.claim.text) for heading, claims in study.items() for row in claims]
    there = [(row.heading, row.text) for row in rows]
    if there != known:
        raise ValueError(f"expected the script's claims in their order; not on both sides: {set(known) ^ set(there)}")
    claims = [row for group in study.values() for row in group]
    return [(row, judged(claim, row.differences)) for row, claim in zip(rows, claims, strict=True)]


def main() -> None:
    """Prints, and writes where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for name, study in STUDIES.items():
        path = PAGES / f"{name}.md"
        lines = path.read_text(encoding="utf-8").splitlines()
        print(f"\n{name}")
        for row, here in verdicts("\n".join(lines), study):
            print(f"  {row.text}: {here}" + ("" if row.verdict == here else f"   (the page: {row.verdict})"))
            before, _, after = lines[row.line].rpartition(f"| {row.verdict} |")
            lines[row.line] = f"{before}| {here} |{after}"
        if write:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

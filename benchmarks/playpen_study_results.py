"""Makes the tables of the Playpen study from its run folders; `benchmarks/playpen_study.py` makes those.

    python benchmarks/playpen_study_results.py [--out=runs/playpen]

Prints Markdown. A seed is a collection, its trainings and its games; figures are given by seed and as mean with
Student's interval of 95 % over seeds. Verdicts follow the rule of `docs/results/verdicts.md`. Beside them stands the
interval of instances drawn again within each game, which says how a seed would come out on other instances, and nothing
of other seeds.
"""

import argparse
import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from paprika_study_results import seeds
from playpen_study import ARMS, KNOWN
from study_tables import DIFFERENCE, VERDICT, Row, cells, table

from dfc.configs.playpen_llama3_1_8b import TRAINED
from dfc.evaluation.claims import Claim, Clause
from dfc.evaluation.clemscore import clemscore, game_score
from dfc.evaluation.dialogue_results import IN_DOMAIN, OUT_OF_DOMAIN, ending
from dfc.evaluation.task_statistics import Estimate

NAMES = {
    "base": "base",
    "sft": "SFT (CS)",
    "dpo_dialogue": "SFT, DPO (dialogue)",
    "dpo_turn": "SFT, DPO (turn)",
    "grpo": "GRPO",
    "sft_grpo": "SFT, GRPO",
}
FIGURES = ("played", "quality", "clemscore")
# Playpen's Table 1 (Llama-3.1-8B-Instruct) as printed: % played, quality, clemscore in domain and out of domain.
PRINTED: Mapping[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "base": ((58.50, 33.15, 19.39), (54.53, 45.08, 24.58)),
    "sft": ((70.48, 56.91, 40.11), (50.55, 44.58, 22.53)),
    "dpo_dialogue": ((63.54, 50.89, 32.33), (51.67, 37.74, 19.50)),
    "dpo_turn": ((71.28, 48.90, 39.65), (43.03, 54.76, 23.81)),
    "grpo": ((57.55, 43.25, 24.89), (67.38, 50.34, 33.92)),
    "sft_grpo": ((63.22, 38.44, 24.30), (67.26, 47.29, 31.81)),
}
RESAMPLES = 2000


class Compared(NamedTuple):
    """A claim of the paper about the clemscore of two arms in a domain.

    Attributes:
      row: what is claimed of their difference, in points.
      arm: whose clemscore is compared,
      other: and with whose.
      domain: of the games.
    """

    row: Row
    arm: str
    other: str
    domain: str


# Half-widths foreseen from the initial model's spread over validation instances; there were no pilot seeds.
FORESEEN = {IN_DOMAIN: 4.4, OUT_OF_DOMAIN: 3.5}
UNPLAYED = Clause("floor or ceiling", "what moved is % played of two games, of quality 0 and 3")


def _compared(
    text: str, arm: str, other: str, domain: str, sign: Literal[1, -1], *clauses: Clause, earlier: str = ""
) -> Compared:
    claim = Claim(text, sign, foreseen=FORESEEN[domain], clauses=clauses)
    return Compared(Row(claim, digits=2, earlier=earlier), arm, other, domain)


CLAIMS = (
    _compared("SFT lifts in domain", "sft", "base", IN_DOMAIN, 1),
    _compared("SFT lowers out of domain", "sft", "base", OUT_OF_DOMAIN, -1),
    _compared("GRPO raises in domain", "grpo", "base", IN_DOMAIN, 1),
    _compared("GRPO raises out of domain", "grpo", "base", OUT_OF_DOMAIN, 1, UNPLAYED, earlier="held"),
    _compared("DPO on dialogues is below SFT in domain", "dpo_dialogue", "sft", IN_DOMAIN, -1),
    _compared("DPO on turns is below SFT in domain", "dpo_turn", "sft", IN_DOMAIN, -1),
    _compared("GRPO after SFT is below SFT in domain", "sft_grpo", "sft", IN_DOMAIN, -1),
    _compared("GRPO after SFT is above SFT out of domain", "sft_grpo", "sft", OUT_OF_DOMAIN, 1),
)


def arm_of(results: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the scores of an arm in an evaluation."""
    found: dict[str, Any] = next(arm for arm in results["dialogues"]["arms"] if arm["policy"] == name)
    return found


def score(results: Mapping[str, Any], name: str, domain: str, figure: str) -> float:
    """Returns a figure of an arm in a domain; nan where no game was played."""
    value = arm_of(results, name)["domains"][domain][figure][0]
    return math.nan if value is None else float(value)


def mean_of(values: list[float]) -> str:
    """Returns a mean, and the values by seed where there are several."""
    each = f" ({', '.join(f'{value:.1f}' for value in values)})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{each}"


def main_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns Table 1's shape: ours, and the printed figures behind it."""
    rows = []
    for arm in ARMS:
        row = [NAMES[arm]]
        for place, domain in enumerate((IN_DOMAIN, OUT_OF_DOMAIN)):
            row += [mean_of([score(results, arm, domain, figure) for results in found.values()]) for figure in FIGURES]
            row.append(" / ".join(f"{value:.2f}" for value in PRINTED[arm][place]))
        rows.append(row)
    head = ("% played", "quality", "clemscore", "printed")
    return table(["policy", *(f"{name}, {where}" for where in ("in", "out") for name in head)], rows)


def by_game(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns % played / quality of every arm by game, means over seeds."""
    first = next(iter(found.values()))["dialogues"]
    rows = []
    for game in first["games"]:
        row = [game]
        for arm in ARMS:
            cells = [arm_of(results, arm)["games"][game] for results in found.values()]
            played = statistics.fmean([cell["played"][0] for cell in cells])
            quality = [cell["quality"][0] for cell in cells if cell["quality"][0] is not None]
            row.append(f"{played:.0f} / {statistics.fmean(quality):.0f}" if quality else f"{played:.0f} / -")
        rows.append(row)
    return table(["game", *(NAMES[arm] for arm in ARMS)], rows)


def qualities(path: Path) -> dict[tuple[str, str], dict[int, float | None]]:
    """Returns (arm, game) -> quality by instance, None where it was not played to its end."""
    found: dict[tuple[str, str], dict[int, float | None]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        value = record["measures"]["quality"] if ending(record) is None else None
        found.setdefault((record["policy"], record["game"]), {})[record["task"]] = value
    return found


def drawn_again(path: Path, claim: Compared, games: list[str]) -> np.ndarray:
    """Returns the claim's difference of clemscores with instances drawn again within each game, float64 [RESAMPLES].

    Both arms have the same instances in each draw.
    """
    known = qualities(path)
    rng = np.random.default_rng(0)
    found = np.empty(RESAMPLES)
    for number in range(RESAMPLES):
        scores: dict[str, dict[str, Any]] = {claim.arm: {}, claim.other: {}}
        for game in games:
            tasks = sorted(known[claim.arm, game])
            some = [tasks[place] for place in rng.integers(0, len(tasks), len(tasks))]
            for arm, of_games in scores.items():
                of_games[game] = game_score([known[arm, game][task] for task in some])
        found[number] = clemscore(scores[claim.arm]).clemscore - clemscore(scores[claim.other]).clemscore
    return found


def by_seed(found: Mapping[str, Mapping[str, Any]], claim: Compared) -> list[float]:
    """Returns the differences of the clemscores that a claim compares."""
    return [
        score(results, claim.arm, claim.domain, "clemscore") - score(results, claim.other, claim.domain, "clemscore")
        for results in found.values()
    ]


def claims(out: Path, found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the paper's claims with what was found."""
    rows = []
    for claim in CLAIMS:
        first, results = next(iter(found.items()))
        games = list(arm_of(results, claim.arm)["games"])
        inside = [game for game in games if (game in TRAINED) == (claim.domain == IN_DOMAIN)]
        again = np.percentile(drawn_again(out / first / "evaluated" / "episodes.jsonl", claim, inside), (2.5, 97.5))
        *said, word = cells(claim.row, by_seed(found, claim))
        rows.append([*said, f"[{again[0]:+.2f}, {again[1]:+.2f}]", word])
    return table(["claim", DIFFERENCE, f"instances, seed {first}", VERDICT], rows)


def beside(found: Mapping[str, Mapping[str, Any]], alone: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns every arm beside the teacher and with itself in the same games: mean quality and % played by game."""
    rows = []
    for arm in ARMS:
        row = [NAMES[arm]]
        for place in (alone, found):
            cells = [arm_of(results, arm)["games"] for seed, results in place.items() if seed in found]
            games = arm_of(next(iter(found.values())), arm)["games"]
            for figure in ("played", "quality"):
                values = [statistics.fmean([of[game][figure][0] or 0.0 for game in games]) for of in cells]
                row.append(mean_of(values))
        rows.append(row)
    head = ["policy", "with itself: % played", "quality", "with the teacher: % played", "quality"]
    return table(head, rows)


def kept(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns what every arm still can in games that none was trained on: usable replies, games alone, rating."""
    rows = []
    for arm in ARMS:
        usable, solved, elo = [], [], []
        for results in found.values():
            own = [row for row in results["games"] if row["policy"] == arm]
            wrong = sum(row["illegal_replies"] + row["malformed_replies"] for row in own)
            usable.append(100.0 * (1.0 - wrong / sum(row["replies"] for row in own)))
            alone = [row for row in own if row["opponent"] is None]
            solved.append(100.0 * sum(row["win"] for row in alone) / sum(row["games"] for row in alone))
            elo.append(next(row["elo"][0] for row in results["ratings"] if row["policy"] == arm))
        rows.append([NAMES[arm], mean_of(usable), mean_of(solved), mean_of(elo)])
    return table(["policy", "usable replies, %", "solved alone, %", "Elo among the arms"], rows)


def pilot(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the difference that three seeds decide, by the spread of the first two, claim by claim."""
    rows = []
    pair = dict(list(found.items())[:2])
    for claim in CLAIMS if len(pair) == 2 else ():
        half = Estimate(0.0, statistics.stdev(by_seed(pair, claim)) / math.sqrt(3), 3, 2).interval.high
        rows.append([claim.row.claim.text, f"{half:.2f}"])
    return table(["claim", "decided by three seeds from a mean difference of"], rows)


def known(out: Path) -> str:
    """Returns what the initial model can on the validation split."""
    results = json.loads((out / KNOWN / "results.json").read_text())
    arm = arm_of(results, "base")
    rows = [
        [domain, *(f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in (scores[f] for f in FIGURES))]
        for domain, scores in arm["domains"].items()
    ]
    games = [
        [game, f"{cell['played'][0]:.0f} / {'-' if cell['quality'][0] is None else format(cell['quality'][0], '.0f')}"]
        for game, cell in arm["games"].items()
    ]
    return table(["games", *FIGURES], rows) + "\n" + table(["game", "% played / quality"], games)


def main() -> None:
    """Prints the tables of all seeds that have been evaluated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/playpen"))
    out = parser.parse_args().out
    print("## The initial model\n\n" + known(out))
    found = seeds(out, "evaluated")
    if not found:
        raise SystemExit(f"{out}: no seed has been evaluated")
    print(f"Seeds {', '.join(found)}\n\n## Table 1\n\n{main_table(found)}\n## Claims\n\n{claims(out, found)}")
    print("## Pilot\n\n" + (pilot(found) if len(found) > 1 else "One seed has no spread.\n"))
    print("## By game, % played / quality\n\n" + by_game(found))
    if with_teacher := seeds(out, "beside_teacher"):
        print("## Beside the teacher\n\n" + beside(with_teacher, found))
    if others := seeds(out, "other_games"):
        print("## Ten other games\n\n" + kept(others))


if __name__ == "__main__":
    main()

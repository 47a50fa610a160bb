"""Measures what the study of Language Self-Play has made and prints its tables; `benchmarks/lsp_study.py` runs it.

    python benchmarks/lsp_study_results.py [--out=runs/lsp] [--seeds=20,21,22,23,24]
        [--base=runs/lsp_base/policy] [--figure=FILE.svg]

Every policy answers the same 1,000 queries greedily, 25 of each family and difficulty; what is measured is kept in
``accuracy.json`` of each seed with a digest of test queries and initial model; figures of others are refused. Prints
Markdown. Every figure is given by seed, then as the mean over seeds with Student's interval of 95 %. Verdicts follow
the rule of `docs/results/verdicts.md`. Needs matplotlib for `--figure`.
"""

import argparse
import collections
import dataclasses
import hashlib
import itertools
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lsp_study import ARMS, SEEDS, names, test_queries
from study_tables import Row, claims_table, spread, table

from dfc.config import ModelConfig, RolloutConfig, SamplingConfig
from dfc.configs import lsp_study
from dfc.evaluation.claims import Claim, Clause
from dfc.methods.language_self_play import families
from dfc.methods.language_self_play.sampling import Roles
from dfc.models import huggingface
from dfc.rollout.host import ModelHost, PolicyWeights
from dfc.tools.small_models import family_answers

LAST = 10  # iterations at the end of a run whose mean is compared
DEAD = 0.1  # share of live queries below which self-play teaches nothing
BASE = "base"
PARTED = "encode_letters"  # the family whose difficulties share little skill
# Figures over time, what they are multiplied by, and digits after the point.
COURSES = (("live", 100, 0), ("template", 100, 0), ("difficulty", 1, 1), ("reward", 1, 2), ("probe_reward", 1, 2))
QUERIES = lsp_study.get_config().groups_per_iteration
BROKEN = ("empty", "cut", "tags", "template")  # kinds of `dfc.methods.language_self_play.hygiene`
_SLOTS = 256

Figures = dict[str, dict[str, dict[str, Any]]]  # seed -> arm -> what was measured


def digest(base: Path) -> str:
    """Returns what names the test queries and the initial model together."""
    read = hashlib.sha256("\n".join(test_queries()).encode())
    for file in sorted(base.glob("*.safetensors")):
        read.update(file.read_bytes())
    return read.hexdigest()


def measure(out: Path, base: Path, seeds: Sequence[str]) -> Figures:
    """Returns greedy accuracies of every finished policy of these seeds, measuring those that are not on record."""
    found: Figures = {}
    ask, of = None, digest(base)
    for seed in (out / name for name in seeds if (out / name).is_dir()):
        record = seed / "accuracy.json"
        kept: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {"of": of, "policies": {}}
        if kept.get("of") != of:
            raise SystemExit(
                f"{record}: measured on other test queries or beside another model; delete it, or give --base"
            )
        known: dict[str, dict[str, Any]] = kept["policies"]
        places = {BASE: base} | {arm.name: seed / arm.name / "policy" for arm in ARMS}
        for name, place in places.items():
            if name in known or not (name == BASE or (place.parent / "finished.json").exists()):
                continue
            ask = ask or asker(base)
            known[name] = ask(place)
            record.write_text(json.dumps(kept, indent=1))
        found[seed.name] = known
    return found


def asker(base: Path) -> Callable[[Path], dict[str, Any]]:
    """Returns a function that answers the test queries by the policy of a folder, with one engine for all."""
    own = lsp_study.get_config().rollout
    rollout = RolloutConfig(slots=_SLOTS, max_length=own.max_length, max_reply_length=own.max_answer_length)
    host = ModelHost(ModelConfig(str(base)), rollout, slots=_SLOTS)
    roles = Roles(host.engine(host.initial_params(), sampling=SamplingConfig()), host.tokenizer)

    def ask(place: Path) -> dict[str, Any]:
        roles.seat(PolicyWeights(huggingface.load(place, mesh=host.mesh, dtype="float32")[1]), None)
        answered = family_answers.answer(roles, test_queries(), longest=own.max_answer_length)
        levels: dict[int, list[bool]] = collections.defaultdict(list)
        for one in answered:
            levels[one.difficulty].append(one.greedy)
        return {
            "accuracy": statistics.fmean(one.greedy for one in answered),
            "families": {name: accuracy for name, (accuracy, _) in family_answers.by_family(answered).items()},
            "difficulties": {str(level): statistics.fmean(right) for level, right in sorted(levels.items())},
        }

    return ask


def course(out: Path, seed: str, arm: str) -> list[dict[str, float]]:
    """Returns the figures of every iteration of a run."""
    lines = (out / seed / arm / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def at_the_end(out: Path, seed: str, arm: str, figure: str) -> float:
    """Returns the mean of a figure over the last iterations of a run in which it has a value; NaN without."""
    values = [row[figure] for row in course(out, seed, arm)[-LAST:] if figure in row]
    return statistics.fmean(values) if values else math.nan


# ---- claims ----------------------------------------------------------------------------------------------------------

BySeed = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What claims are read off: figures by seed of the seeds that have the runs.

    Attributes:
      out: the study's folder.
      found: what was measured of each policy.
    """

    out: Path
    found: Figures

    def accuracy(self, arm: str) -> BySeed:
        """Returns greedy accuracies, points."""
        return {seed: 100 * arms[arm]["accuracy"] for seed, arms in self.found.items() if arm in arms}

    def parted(self, arm: str) -> BySeed:
        """Returns greedy accuracies in the family whose difficulties share little skill, points."""
        return {seed: 100 * arms[arm]["families"][PARTED] for seed, arms in self.found.items() if arm in arms}

    def end(self, arm: str, figure: str, scale: float = 1.0) -> BySeed:
        """Returns a figure's mean over the last iterations, of the seeds in which it has a value."""
        ends = {seed: at_the_end(self.out, seed, arm, figure) for seed, arms in self.found.items() if arm in arms}
        return {seed: scale * value for seed, value in ends.items() if not math.isnan(value)}

    def gain(self, arm: str) -> BySeed:
        """Returns what an arm gains over the base, points."""
        return less(self.accuracy(arm), self.accuracy(BASE))


By = Callable[[Measured], BySeed]


def less(one: BySeed, other: BySeed, share: float = 1.0) -> BySeed:
    """Returns the differences of the seeds that both have."""
    return {seed: value - share * other[seed] for seed, value in one.items() if seed in other}


def above(one: str, other: str) -> By:
    """Returns what reads by how much one arm's accuracy is above another's."""
    return lambda m: less(m.accuracy(one), m.accuracy(other))


def half_of_data(arm: str) -> By:
    """Returns what reads by how much an arm's gain is above half of that of data-backed reinforcement."""
    return lambda m: less(m.gain(arm), m.gain("data"), 0.5)


def livelier(arm: str) -> By:
    """Returns what reads how many more of an arm's last queries are live than of `lsp_zero`'s."""
    return lambda m: less(m.end(arm, "live", 100.0), m.end("lsp_zero", "live", 100.0))


def _row(
    text: str,
    read: By,
    *clauses: Clause,
    foreseen: float | None = None,
    earlier: str = "",
    **shown: Any,  # noqa: ANN401 - unit and digits
) -> Row:
    return Row(Claim(text, foreseen=foreseen, clauses=clauses), lambda m: [*read(m).values()], earlier=earlier, **shown)


def rows(to_base: float, of_arms: float, of_five: float, *marks: Clause, earlier: dict[str, str]) -> tuple[Row, ...]:
    """Returns the claims of a round.

    Args:
      to_base: half-width foreseen of differences of accuracy to the base, points.
      of_arms: of those between two arms.
      of_five: the same of the two arms with five seeds.
      *marks: clauses of the arms with self-reward.
      earlier: the first words of a claim -> its verdict before, where it was another one.
    """
    base: dict[str, Any] = {"foreseen": to_base}
    arms: dict[str, Any] = {"foreseen": of_arms}
    five: dict[str, Any] = {"foreseen": of_five}
    levels: dict[str, Any] = {"unit": "levels", "digits": 2}
    found = (
        _row("data-backed RL beats the base", lambda m: m.gain("data"), **base),
        _row("self-play (lsp) beats the base", lambda m: m.gain("lsp"), *marks, **base),
        _row("it recovers more than half of what data-backed RL gains", half_of_data("lsp"), *marks, **arms),
        _row("self-play without self-reward (lsp_zero) beats the base", lambda m: m.gain("lsp_zero"), **base),
        _row(
            "it degenerates: less than 10 % of queries live at the end",
            lambda m: less(dict.fromkeys(m.found, 100 * DEAD), m.end("lsp_zero", "live", 100.0)),
        ),
        _row("self-reward prevents it: more live queries than without", livelier("lsp"), *marks),
        _row("`worst` prevents it: the same", livelier("lsp_zero_worst")),
        _row("both do: the same", livelier("lsp_worst"), *marks),
        _row("self-reward gains accuracy: lsp above lsp_zero", above("lsp", "lsp_zero"), *marks, **arms),
        _row("`worst` does: lsp_zero_worst above lsp_zero", above("lsp_zero_worst", "lsp_zero"), **arms),
        _row(
            "training the Challenger adds: lsp above untrained_challenger",
            above("lsp", "untrained_challenger"),
            *marks,
            **arms,
        ),
        _row(
            "the same with `worst`: lsp_zero_worst above untrained_challenger",
            above("lsp_zero_worst", "untrained_challenger"),
            **five,
        ),
        _row(
            f"the same, in {PARTED} alone, whose difficulties share little skill",
            lambda m: less(m.parted("lsp_zero_worst"), m.parted("untrained_challenger")),
        ),
        _row(
            "self-reward adds to `worst`: lsp_worst above lsp_zero_worst",
            above("lsp_worst", "lsp_zero_worst"),
            *marks,
            **arms,
        ),
        _row("RL after LSP adds: lsp_then_data above lsp", above("lsp_then_data", "lsp"), *marks, **arms),
        _row("and is above data alone, which has half the iterations", above("lsp_then_data", "data"), *marks, **arms),
        _row("the KL term that holds is better than the published one", above("lsp", "lsp_published"), *marks, **arms),
        _row(
            "w = 1 makes easier queries than w = 1/7",
            lambda m: less(m.end("lsp", "difficulty"), m.end("lsp_w1", "difficulty")),
            *marks,
            **levels,
        ),
    )
    return tuple(
        dataclasses.replace(row, earlier=word) if (word := earlier.get(row.claim.text.partition(":")[0])) else row
        for row in found
    )


_MARKS = Clause("chosen on result seeds", "the mark of answers that leave the judge no room")
_AFTERWARDS = Clause("seen afterwards", "a question for new seeds")
# Half-widths foreseen from the two pilot seeds of each round, in points of accuracy.
CLAIMS = rows(
    5.4,
    7.7,
    3.9,
    _MARKS,
    earlier={"self-play (lsp) beats the base": "held", "self-reward prevents it": "held", "both do": "held"},
)
_GAINS, _ABOVE = "recovers more than half of what data-backed RL gains", "is above data-backed RL"
AFTERWARDS = (
    _row(f"lsp_zero_worst {_GAINS}", half_of_data("lsp_zero_worst"), _AFTERWARDS),
    _row(f"lsp_worst {_GAINS}", half_of_data("lsp_worst"), _AFTERWARDS, _MARKS),
    _row(f"lsp {_ABOVE}", above("lsp", "data"), _AFTERWARDS, _MARKS),
    _row(f"lsp_zero_worst {_ABOVE}", above("lsp_zero_worst", "data"), _AFTERWARDS),
    _row(f"lsp_worst {_ABOVE}", above("lsp_worst", "data"), _AFTERWARDS, _MARKS),
    _row(f"untrained_challenger {_ABOVE}", above("untrained_challenger", "data"), _AFTERWARDS),
)
# Four families, 60 iterations, seeds 10 to 12: its runs are read by the script of commit 6e473f7.
FIRST_CLAIMS = tuple(
    row
    for row in rows(6.3, 9.0, 9.0, earlier={"the KL term that holds is better than the published one": "held"})
    if not row.claim.text.startswith(("both do", f"the same, in {PARTED}", "self-reward adds"))
)


# ---- tables ----------------------------------------------------------------------------------------------------------


def accuracies(found: Figures) -> str:
    """Returns the greedy accuracy of every arm, percent, then by family as means over seeds."""
    rows = []
    for arm in (BASE, *(arm.name for arm in ARMS)):
        every = [arms[arm] for arms in found.values() if arm in arms]
        by_family = [f"{100 * statistics.fmean(one['families'][name] for one in every):.1f}" for name in names()]
        rows.append([arm, spread([one["accuracy"] for one in every]), *by_family])
    return table(["arm", "all", *names()], rows)


def difficulties(found: Figures) -> str:
    """Returns the greedy accuracy by difficulty, percent, means over seeds."""
    rows = [
        [
            arm,
            *(
                f"{100 * statistics.fmean(a[arm]['difficulties'][str(level)] for a in found.values() if arm in a):.0f}"
                for level in families.LEVELS
            ),
        ]
        for arm in (BASE, *(arm.name for arm in ARMS))
    ]
    return table(["arm", *map(str, families.LEVELS)], rows)


def courses(out: Path, found: Figures, figure: str, scale: float, digits: int) -> str:
    """Returns a figure over time: means over seeds of the sixths of a run."""
    rows, head = [], [""]
    for arm in (arm.name for arm in ARMS):
        runs = [course(out, seed, arm) for seed, arms in found.items() if arm in arms]
        cuts = [round(part * len(runs[0]) / 6) for part in range(7)]
        head = ["arm", *(f"{first + 1} to {last}" for first, last in itertools.pairwise(cuts))]
        cells = []
        for first, last in itertools.pairwise(cuts):
            values = [row[figure] for run in runs for row in run[first:last] if figure in row]
            cells.append(f"{scale * statistics.fmean(values):.{digits}f}" if values else "-")
        rows.append([arm, *cells])
    return table(head, rows)


def endings(out: Path, found: Figures) -> str:
    """Returns what the queries of the last iterations are: percent, means over seeds."""
    rows = []
    for arm in (arm.name for arm in ARMS if "--config.method=data" not in arm.changes):
        shares: dict[str, list[float]] = collections.defaultdict(list)
        for seed in (seed for seed, arms in found.items() if arm in arms):
            lines = (out / seed / arm / "episodes.jsonl").read_text().splitlines()[-LAST * QUERIES :]
            records = [json.loads(line) for line in lines]
            problems = [families.read(record["replies"][0][1]) for record in records]
            none = [record["wrong"] for record, problem in zip(records, problems, strict=True) if problem is None]
            broken = sum(wrong in BROKEN for wrong in none)
            for name in names():
                shares[name].append(sum(p is not None and p.family == name for p in problems) / len(records))
            shares["template kept, of no family"].append((len(none) - broken) / len(records))
            shares["template broken"].append(broken / len(records))
        rows.append([arm, *(f"{100 * statistics.fmean(values):.0f}" for values in shares.values())])
    return table(["arm", *names(), "template kept, of no family", "template broken"], rows)


def draw(out: Path, found: Figures, file: Path) -> None:
    """Draws difficulty, template, live share and reward of probe queries over time, means over seeds."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra of the package

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "lsp", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt  # noqa: PLC0415 - after the backend

    titles = {"live": "live queries", "template": "queries that keep the template", "difficulty": "difficulty"}
    titles["probe_reward"] = "mean reward of probe queries"
    figure, axes = plt.subplots(2, 2, figsize=(9, 5.4), layout="constrained")
    for (name, title), axis in zip(titles.items(), axes.flat, strict=True):
        for arm in (arm.name for arm in ARMS):
            sums: dict[int, list[float]] = collections.defaultdict(list)
            for seed in (seed for seed, arms in found.items() if arm in arms):
                for number, row in enumerate(course(out, seed, arm)):
                    if name in row:
                        sums[number + 1 if name == "probe_reward" else 5 * (number // 5) + 3].append(row[name])
            if sums:
                places = sorted(sums)  # not every seed has a value everywhere
                axis.plot(places, [statistics.fmean(sums[place]) for place in places], label=arm, linewidth=1.2)
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=8)
    axes[1][0].set_xlabel("iteration", fontsize=8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=4)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/lsp"))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--base", type=Path, default=Path("runs/lsp_base/policy"))
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found = measure(options.out, options.base, options.seeds.split(","))
    for seed, arms in found.items():
        print(seed, {name: round(figures["accuracy"], 3) for name, figures in arms.items()})
    if any(arm.name not in arms for arm in ARMS for arms in [*found.values()][:1]):
        return  # not even the first seed is whole
    measured = Measured(options.out, found)
    print(f"\n{claims_table(CLAIMS, measured)}\n{claims_table(AFTERWARDS, measured)}")
    print(f"{accuracies(found)}\n{difficulties(found)}")
    print(endings(options.out, found))
    for figure, scale, digits in COURSES:
        print(f"{figure}\n\n{courses(options.out, found, figure, scale, digits)}")
    if options.figure:
        draw(options.out, found, options.figure)


if __name__ == "__main__":
    main()

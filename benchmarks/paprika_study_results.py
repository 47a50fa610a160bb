"""Makes the tables and figures of the Paprika study from its run folders; `benchmarks/paprika_study.py` makes those.

    python benchmarks/paprika_study_results.py [--out=runs/paprika] [--figures=FOLDER]

Prints Markdown. A seed is a collection, its trainings and its games; every figure is given by seed, then as the mean
over seeds with Student's interval of 95 % (three seeds: 4.30 standard errors), which is wide and does not hide how few
they are. Verdicts follow the rule of `docs/results/verdicts.md`; that something does not help is held if the interval
ends below 2 points. Needs matplotlib for `--figures`.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paprika_study import LEFT_OUT, MAIN, SINGLE
from study_tables import Row, claims_table, judged, spread, table

from dfc.evaluation.claims import Claim, Clause
from dfc.evaluation.statistics import Z_95

NO_HELP = 2.0  # points of success: a smaller gain is none
MEAN = "mean over groups"
NAMES = {"base": "base", "sft": "SFT", "rpo": "SFT, RPO", "chat": "SFT on chat", "grpo": "GRPO"}


def read(path: Path) -> dict[str, Any] | None:
    """Returns the results of an evaluation, None if there are none yet."""
    return json.loads(path.read_text()) if path.exists() else None


def seeds(out: Path, place: str) -> dict[str, dict[str, Any]]:
    """Returns the results at a place of every seed that has them."""
    found = {path.name: read(path / place / "results.json") for path in sorted(out.iterdir()) if path.is_dir()}
    return {seed: results for seed, results in found.items() if results is not None}


def figure(results: dict[str, Any], policy: str, group: str, metric: str, temperature: float = 0.7) -> float:
    """Returns a mean of a policy: ``success``, ``turns`` or ``pass_at/4``."""
    setting = next(a for a in results["arms"] if a["policy"] == policy and a["temperature"] == temperature)
    values = setting["mean_over_groups"] if group == MEAN else setting["groups"][group]
    for key in metric.split("/"):
        values = values[key]
    return float(values[0])


def main_table(found: dict[str, dict[str, Any]], metric: str, scale: float, digits: int) -> str:
    """Returns a figure of every policy by group, as means over seeds; the last row has the intervals."""
    first = next(iter(found.values()))
    policies = [name for name in NAMES if name in {setting["policy"] for setting in first["arms"]}]
    rows = []
    for group in [*first["groups"], MEAN]:
        by_policy = [[figure(results, name, group, metric) for results in found.values()] for name in policies]
        form = spread if group == MEAN else lambda v, s, d: f"{s * statistics.fmean(v):.{d}f}"
        rows.append([group, *(form(values, scale, digits) for values in by_policy)])
    return table(["group", *(NAMES[name] for name in policies)], rows)


def differences(found: dict[str, dict[str, Any]], one: str, other: str, group: str, metric: str) -> list[float]:
    """Returns by how much one policy's figure is above another's, by seed."""
    return [figure(r, one, group, metric) - figure(r, other, group, metric) for r in found.values()]


# ---- claims ----------------------------------------------------------------------------------------------------------

RATES = Clause("chosen on result seeds", "rates of SFT and RPO")
KNOWN_TASKS = Clause("confounded", "the base model was shown the test tasks")
UNTUNED = Clause("confounded", "20 updates at a rate never tuned")
DRAWS = Clause("confounded", "40 draws a round, with replacement, from 40 topics")
By = Callable[[Path], list[float]]


def above(one: str, other: str, metric: str = "success", place: str = "evaluated", scale: float = 100.0) -> By:
    """Returns what reads by how much one policy's mean over groups is above another's, by seed."""
    return lambda out: [scale * value for value in differences(seeds(out, place), one, other, MEAN, metric)]


def transfer(out: Path) -> list[float]:
    """Returns what groups gain by training on the others, the mean over those left out, in points by seed."""
    return [
        100 * statistics.fmean([differences({seed: r}, f"without_{g}", "base", g, "success")[0] for g in LEFT_OUT])
        for seed, r in seeds(out, "evaluated").items()
    ]


def curriculum(metric: str) -> By:
    """Returns what reads by how much the curriculum's last round is above uniform's, in points by seed."""

    def read(out: Path) -> list[float]:
        ucb, uniform = (seeds(out, f"{name}/evaluate_tasks") for name in ("ucb", "uniform"))
        return [
            100 * (figure(ucb[seed], "round_3", MEAN, metric) - figure(uniform[seed], "round_3", MEAN, metric))
            for seed in ucb
            if seed in uniform
        ]

    return read


def _row(text: str, read: By | None, *clauses: Clause, earlier: str = "", **claim: Any) -> Row:  # noqa: ANN401 - fields of Claim
    return Row(Claim(text, clauses=clauses, **claim), read, earlier=earlier)


def _turns(text: str, read: By | None, *clauses: Clause, earlier: str = "") -> Row:
    return Row(Claim(text, -1, clauses=clauses), read, "turns", 2, earlier)


_NO_HELP: dict[str, Any] = {"sign": -1, "margin": -NO_HELP}
_UCB = "UCB beats uniform at equal trajectories, last round, "
CLAIMS = (
    _row("SFT then RPO beats the base model, mean over groups", above("rpo", "base"), RATES, KNOWN_TASKS),
    _row("RPO beats SFT alone", above("rpo", "sft"), RATES, KNOWN_TASKS),
    _row("the same for pass@4", above("rpo", "sft", "pass_at/4"), RATES, KNOWN_TASKS),
    _turns("fewer turns than the base model", above("rpo", "base", "turns", scale=1.0), RATES, KNOWN_TASKS),
    _row("SFT on ordinary chat does not help", above("chat", "base"), RATES, KNOWN_TASKS, earlier="held", **_NO_HELP),
    _row(
        "GRPO on the groups beats SFT then RPO (future work)",
        above("grpo", "rpo"),
        RATES,
        KNOWN_TASKS,
        UNTUNED,
        earlier="not held",
    ),
    _row(
        "SFT then RPO beats the base model on the tasks trained on",
        above("rpo", "base", place="trained_tasks"),
        RATES,
        earlier="held",
    ),
    _row("RPO beats SFT alone there", above("rpo", "sft", place="trained_tasks"), RATES),
    _row("GRPO beats SFT then RPO there", above("grpo", "rpo", place="trained_tasks"), RATES, UNTUNED),
    _turns(
        "fewer turns than the base model there",
        above("rpo", "base", "turns", "trained_tasks", 1.0),
        RATES,
        earlier="held",
    ),
    _row(f"transfer to groups left out, mean of {len(LEFT_OUT)}", transfer, RATES, KNOWN_TASKS, earlier="not held"),
    _row(f"{_UCB}success", curriculum("success"), RATES, DRAWS),
    _row(f"{_UCB}pass@4", curriculum("pass_at/4"), RATES, DRAWS),
)
# Commit 46f62c8: six groups, another initial model, rates fixed beforehand. Its runs are read by that commit's script.
EARLIER_CLAIMS = (
    _row("SFT then RPO beats the base model, mean over groups", None),
    _row("RPO beats SFT alone", None),
    _row("the same for pass@4", None),
    _turns("fewer turns than the base model", None),
    _row("SFT on ordinary chat does not help", None, **_NO_HELP),
    _row("GRPO on the groups, 20 updates, beats SFT then RPO (future work)", None),
    _row("transfer to groups left out, mean of 4", None),
    _row(f"{_UCB}success", None),
    _row(f"{_UCB}pass@4", None),
)


def transfer_of(group: str) -> Row:
    """Returns the claim that a group gains by training on the others."""
    return _row(f"{group} gains by training on the others", None, RATES, KNOWN_TASKS)


def left_out(found: dict[str, dict[str, Any]]) -> str:
    """Returns what a group gains without having been trained on."""
    rows = []
    for group in LEFT_OUT:
        own = [figure(r, f"without_{group}", group, "success") for r in found.values()]
        base, full = ([figure(r, name, group, "success") for r in found.values()] for name in ("base", "rpo"))
        gain = differences(found, f"without_{group}", "base", group, "success")
        means = [f"{100 * statistics.fmean(values):.1f}" for values in (base, own, full)]
        row = transfer_of(group)
        rows.append([row.claim.text, *means, spread(gain, sign=True), judged(row, [100 * value for value in gain])])
    head = ["base", "trained without it", "trained on all", "difference: mean, interval (by seed)", "verdict"]
    return table(["claim", *head], rows)


def single(found: dict[str, dict[str, Any]]) -> str:
    """Returns what training on one group alone does to it, and to the mean of the others."""
    rows = []
    for name in ("base", "rpo", f"only_{SINGLE}"):
        others = [
            statistics.fmean([figure(r, name, group, "success") for group in r["groups"] if group != SINGLE])
            for r in found.values()
        ]
        own = [figure(r, name, SINGLE, "success") for r in found.values()]
        rows.append([NAMES.get(name, "on it alone"), spread(own), spread(others)])
    return table(["policy", f"{SINGLE}, %", "mean over the others, %"], rows)


def rounds(out: Path) -> str:
    """Returns success after every round of the curriculum and of its baseline."""
    rows = []
    for name in ("ucb", "uniform"):
        found = seeds(out, f"{name}/evaluate_tasks")
        for policy in ("base", "round_1", "round_2", "round_3") if found else ():
            values = [[figure(r, policy, MEAN, metric) for r in found.values()] for metric in ("success", "pass_at/4")]
            rows.append([name, policy, *(spread(v) for v in values)])
    return table(["strategy", "policy", "success %", "pass@4 %"], rows)


def temperatures(found: dict[str, dict[str, Any]], hot: dict[str, dict[str, Any]]) -> str:
    """Returns the mean over groups at every temperature."""
    rows = []
    for name in MAIN:
        row = [NAMES[name]]
        for results, temperature in ((hot, 0.3), (found, 0.7), (hot, 1.0)):
            row.append(spread([figure(r, name, MEAN, "success", temperature) for r in results.values()]))
        rows.append(row)
    return table(["policy", "0.3", "0.7", "1.0"], rows)


def by_place(out: Path, found: dict[str, dict[str, Any]]) -> str:
    """Returns success on the tasks that were trained on beside that on test tasks, mean over groups."""
    trained = seeds(out, "trained_tasks")
    both = {seed: results for seed, results in found.items() if seed in trained}
    rows = []
    for name in (*MAIN, "grpo"):
        row = [NAMES[name]]
        for place in (trained, both):
            row.append(spread([figure(place[seed], name, MEAN, "success") for seed in both]))
            if name != "base":
                gain = [differences({seed: place[seed]}, name, "base", MEAN, "success")[0] for seed in both]
                row[-1] += f"; less base {spread(gain, sign=True)}"
        rows.append(row)
    return table(["policy", "tasks trained on, %", "test tasks, %"], rows)


def appendices(out: Path) -> str:
    """Returns words of another length, and the bandit with regret."""
    four, regret = seeds(out, "four_letters"), seeds(out, "regret")
    rows = []
    for name in MAIN:
        solved = [figure(r, name, "wordle", "success") for r in four.values()]
        lost = [figure(r, name, "bandit_regret", "measures/regret") for r in regret.values()]
        best = [figure(r, name, "bandit_regret", "measures/best_arm_share") for r in regret.values()]
        rows.append([NAMES[name], spread(solved), spread(lost, 1, 1), spread(best)])
    return table(["policy", "words of four letters, %", "regret", "best button, % of turns"], rows)


def passes(found: dict[str, dict[str, Any]]) -> str:
    """Returns pass@k of the main policies, mean over groups."""
    rows = [
        [NAMES[name], *(spread([figure(r, name, MEAN, f"pass_at/{k}") for r in found.values()]) for k in range(1, 5))]
        for name in ("base", "sft", "rpo", "grpo")
    ]
    return table(["policy", "pass@1", "pass@2", "pass@3", "pass@4"], rows)


def draw(out: Path, figures: Path, found: dict[str, dict[str, Any]]) -> None:
    """Draws success by group, and groups that were left out."""
    import matplotlib as mpl  # noqa: PLC0415 - not needed for tables

    mpl.use("svg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - same

    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "dfc"})
    groups = next(iter(found.values()))["groups"]
    colors = {"base": "#b8b8b8", "sft": "#3d5a80", "rpo": "#0b6e4f", "grpo": "#c8553d", "without": "#8d6a9f"}

    def bars(axes: Any, names: list[str], series: dict[str, Callable[[dict[str, Any], str], float]]) -> None:  # noqa: ANN401 - matplotlib's types are no part of the project
        for place, (name, value) in enumerate(series.items()):
            shift = (place - (len(series) - 1) / 2) * 0.8 / len(series)
            by_seed = [[100 * value(r, group) for r in found.values()] for group in names]
            at = [i + shift for i in range(len(names))]
            axes.bar(at, [statistics.fmean(v) for v in by_seed], 0.8 / len(series), color=colors[name], label=name)
            for x, values in zip(at, by_seed, strict=True):
                axes.plot([x] * len(values), values, ".", color="black", markersize=2.5)
        axes.set_xticks(range(len(names)), [name.replace("_", "\n") for name in names])
        axes.set_ylabel("solved, %")
        axes.legend(frameon=False, ncols=len(series))

    def of(name: str) -> Callable[[dict[str, Any], str], float]:
        return lambda results, group: figure(results, name, group, "success")

    figures.mkdir(parents=True, exist_ok=True)
    for name, size, names, series in (
        ("groups", (9, 2.8), groups, {key: of(key) for key in ("base", "sft", "rpo", "grpo")}),
        (
            "left_out",
            (6, 2.6),
            list(LEFT_OUT),
            {
                "base": of("base"),
                "without": lambda r, group: figure(r, f"without_{group}", group, "success"),
                "rpo": of("rpo"),
            },
        ),
    ):
        drawing, axes = plt.subplots(figsize=size)
        bars(axes, names, series)
        drawing.tight_layout()
        drawing.savefig(figures / f"paprika_{name}.svg", metadata={"Date": None})
    curves(out, figures, plt)


def curves(out: Path, figures: Path, plt: Any) -> None:  # noqa: ANN401 - matplotlib's types are no part of the project
    """Draws success after every round of the curriculum and of its baseline."""
    drawing, axes = plt.subplots(figsize=(4, 2.6))
    for name, color in (("ucb", "#0b6e4f"), ("uniform", "#c8553d")):
        found = seeds(out, f"{name}/evaluate_tasks")
        if not found:
            return
        policies = ("base", "round_1", "round_2", "round_3")
        values = [[100 * figure(r, policy, MEAN, "success") for r in found.values()] for policy in policies]
        axes.plot(range(4), [statistics.fmean(v) for v in values], color=color, label=name)
        for x, of_round in enumerate(values):
            axes.plot([x] * len(of_round), of_round, ".", color=color, markersize=3)
    axes.set_xticks(range(4), ["base", "1", "2", "3"])
    axes.set_xlabel("round")
    axes.set_ylabel("solved, %")
    axes.legend(frameon=False)
    drawing.tight_layout()
    drawing.savefig(figures / "paprika_curriculum.svg", metadata={"Date": None})


def main() -> None:
    """Prints the tables; draws the figures where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/paprika"))
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args()
    found, hot = seeds(options.out, "evaluated"), seeds(options.out, "cold_and_hot")
    print(f"Seeds {', '.join(found)}; interval of one evaluation: {Z_95:.2f} errors over tasks.\n")
    print("## Claims\n\n" + claims_table(CLAIMS, options.out))
    print("## Success by group, percent\n\n" + main_table(found, "success", 100.0, 1))
    print("## Turns, failures counted as the limit\n\n" + main_table(found, "turns", 1.0, 2))
    print("## Groups left out\n\n" + left_out(found))
    print("## A single group\n\n" + single(found))
    print("## pass@k, percent\n\n" + passes(found))
    if hot:
        print("## Temperatures, percent\n\n" + temperatures(found, hot))
    if seeds(options.out, "trained_tasks"):
        print("## Tasks that were trained on\n\n" + by_place(options.out, found))
    if seeds(options.out, "regret"):
        print("## Other lengths of words, and regret\n\n" + appendices(options.out))
    if seeds(options.out, "ucb/evaluate_tasks"):
        print("## Curriculum\n\n" + rounds(options.out))
    if options.figures:
        draw(options.out, options.figures, found)


if __name__ == "__main__":
    main()

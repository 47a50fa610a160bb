"""Tables and figures of the Divide-Fuse-Conquer study, from the run folders of `benchmarks/dfc_study.py`.

    python benchmarks/dfc_study_results.py RUNS [--figures=docs/results]

Prints Markdown: the paper's claims with their verdicts (`docs/results/verdicts.md`), final scores of every method,
scores after every fuse and conquer, ablations, what the runs cost. Draws what the paper's Figures 1 to 4 show, where
matplotlib is installed. Runs that are not finished are left out of the tables of final scores and named. But for those
of claims, intervals treat games as independent; seeds are shown one by one beside them, since the spread between runs
of one method is more than that between games.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dfc_study import ABLATIONS, ARMS, FUSIONS, LONG, SWEEPS
from dfc_study_runs import TITLES, curve, final_records, lines, runs_of
from study_command import seconds
from study_tables import Row, claims_table, table

from dfc.evaluation.claims import Claim, Clause
from dfc.evaluation.statistics import Comparison, Interval, Record, pooled
from dfc.games import registry

LAST = 10  # iterations whose mean stands for the end of a curve


def two_seats(records: Mapping[str, Record]) -> Record:
    """Returns the sum over the games of two seats."""
    return pooled(record for game, record in records.items() if registry.make(game).seats > 1)


def shown(interval: Interval) -> str:
    """Returns an interval in words."""
    return f"{interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def arms_table(out: Path, names: Sequence[str], opponent: str) -> str:
    """Returns pooled scores of methods against an opponent, with each seed's and the difference to the first method.

    The interval of a difference is that of games alone; differences of both signs among the seeds outweigh it.
    """
    rows = []
    first: dict[int, Record] = {}
    for name in names:
        source = "dfc" if name == "initial" else name
        policy = "initial" if name == "initial" else "final"
        by_seed = {seed: two_seats(final_records(p, policy, opponent)) for seed, p in runs_of(out, source).items()}
        if not by_seed:
            continue
        total = pooled(by_seed.values())
        scores = {seed: record.score.estimate for seed, record in by_seed.items()}
        row = [TITLES[name], shown(total.score), ", ".join(f"{score:.3f}" for score in scores.values())]
        differences = ["", ""]
        if first:
            each = [first[seed].score.estimate - score for seed, score in scores.items() if seed in first]
            pair = Comparison(total, pooled(first.values()))
            differences = [shown(pair.difference), ", ".join(f"{value:+.3f}" for value in each)]
        first = first or by_seed
        rows.append([*row, f"{total.truncated}", *differences])
    less = f"{TITLES[names[0]]} minus it"
    return table(["arm", "score (95 %)", "each seed", "truncated", f"{less}, all games", f"{less}, each seed"], rows)


def games_table(out: Path, names: Sequence[str]) -> str:
    """Returns each game's score by method against the initial policy, alone in games of one seat (share solved)."""
    columns, header = [], []
    for name in names:
        source, policy = ("dfc", "initial") if name == "initial" else (name, "final")
        counts: dict[str, Record] = defaultdict(Record)
        for path in runs_of(out, source).values():
            for game, record in final_records(path, policy, "initial").items():
                counts[game] += record
        if counts:
            columns.append(counts)
            header.append(TITLES[name])
    games = list(columns[0]) if columns else []
    rows = []
    for game in games:
        alone = registry.make(game).seats == 1
        values = [column[game].win_rate if alone else column[game].score for column in columns]
        rows.append([f"{game}{' (solved)' if alone else ''}", *(shown(value) for value in values)])
    return table(["game", *header], rows)


def stages_table(out: Path) -> str:
    """Returns the score against the initial policy of every group after every stage, as the paper's Table 3."""
    counts: dict[tuple[str, str], Record] = defaultdict(Record)
    order: dict[str, None] = {}
    groups: dict[str, str] = {}
    for path in runs_of(out, "dfc").values():
        stored = json.loads((path / "groups.json").read_text())
        groups |= {game: group["name"] for group in stored["groups"] for game in group["games"]}
        for row in lines(path, "evaluations"):
            if row["stage"] != "final":
                order.setdefault(row["stage"])
                counts[row["game"], row["stage"]] += Record.from_json(row)
    rows = []
    for game in sorted(groups, key=lambda game: (groups[game], game)):
        cells = [counts[game, stage] for stage in order]
        texts = [f"{c.win}/{c.draw}/{c.loss}" + (f" +{c.truncated}" if c.truncated else "") for c in cells]
        rows.append([groups[game], game, *texts])
    return table(["group", "game", *order], rows)


def end_of(path: Path, metric: str) -> float:
    """Returns the mean of a metric's last iterations."""
    values = curve(path, metric)[-LAST:]
    return statistics.fmean(values) if values else float("nan")


def mean_over_games(path: Path, name: str) -> float:
    """Returns the mean over games of the end of a metric."""
    games = json.loads((path / "config.json").read_text())["games"]
    return statistics.fmean(end_of(path, f"games/{game}/{name}") for game in games)


def final_win_rate(path: Path) -> float:
    """Returns the mean over games of the share of final matches won against the initial policy (alone: solved)."""
    return statistics.fmean(record.win_rate.estimate for record in final_records(path, "final", "initial").values())


def steps_per_won_game(path: Path) -> float:
    """Returns the mean number of own turns in the final matches that were won; lost games would hide it."""
    final = (line for line in lines(path, "episodes") if line["stage"] == "final" and line["policy"] == "final")
    won = (
        line for line in final if line["opponent"] in ("initial", "none") and line["outcomes"][line["seat"]] == "win"
    )
    steps = [sum(seat == line["seat"] for seat, *_ in line["replies"]) for line in won]
    return statistics.fmean(steps) if steps else float("nan")


def reached(path: Path, metric: str, level: float) -> float:
    """Returns the first iteration from which the mean of five is at least a level; infinity if none."""
    values = curve(path, metric)
    for start in range(len(values) - 4):
        if statistics.fmean(values[start : start + 5]) >= level:
            return start + 1
    return float("inf")


HANOI = "games/TowerOfHanoi-v0"
MEASURES: tuple[tuple[str, str, str, Callable[[Path], float]], ...] = (
    ("six_games", "-no_format_reward", "format rate", lambda p: mean_over_games(p, "format_rate")),
    ("six_games", "-no_format_reward", "win rate", lambda p: mean_over_games(p, "win_rate")),
    ("six_games", "-no_price", "format rate", lambda p: mean_over_games(p, "format_rate")),
    ("six_games", "-no_price_no_format_reward", "format rate", lambda p: mean_over_games(p, "format_rate")),
    ("six_games", "-no_mixed_priority", "iteration with 90 % of Hanoi", lambda p: reached(p, f"{HANOI}/win_rate", 0.9)),
    ("six_games", "-no_mixed_priority", "win rate", lambda p: mean_over_games(p, "win_rate")),
    ("six_games", "-all_negatives", "win rate", lambda p: mean_over_games(p, "win_rate")),
    ("six_games", "-all_negatives", "format rate", lambda p: mean_over_games(p, "format_rate")),
    ("connect_four", "-no_epsilon", "win rate", lambda p: mean_over_games(p, "win_rate")),
    ("liars_dice", "-same_seeds", "win rate", lambda p: mean_over_games(p, "win_rate")),
    ("hanoi", "-no_step_penalty", "steps per won game, final", steps_per_won_game),
    ("hanoi", "-no_step_penalty", "win rate", lambda p: mean_over_games(p, "win_rate")),
    *(
        (base, f"-{change}", "win rate, final", final_win_rate)
        for base, _, change in (run.name.partition("-") for run in (*ABLATIONS, *SWEEPS))
        if change
    ),
    *(
        (
            "six_games",
            run.name.removeprefix("six_games"),
            name,
            lambda p, n=name: mean_over_games(p, n.replace(" ", "_")),
        )
        for run in SWEEPS
        for name in ("win rate", "format rate")
    ),
)


def ablations_table(out: Path) -> str:
    """Returns what every change does to the measure it should show in, seed by seed."""
    rows = []
    for base, change, what, measure in MEASURES:
        with_it, without = runs_of(out, base), runs_of(out, f"{base}{change}")
        seeds = sorted(with_it.keys() & without.keys())
        if not seeds:
            continue
        pairs = [(measure(with_it[seed]), measure(without[seed])) for seed in seeds]
        cells = [", ".join(f"{value:.3g}" for value in column) for column in zip(*pairs, strict=True)]
        better = sum(after > before for before, after in pairs)
        rows.append([base, change.lstrip("-"), what, *cells, f"{better} of {len(pairs)}"])
    return table(["games", "change", f"last {LAST} iterations, or as said", "base", "changed", "changed higher"], rows)


# ---- claims ----------------------------------------------------------------------------------------------------------

By = Callable[[Path], Sequence[float]]
_LEGAL = Clause(
    "floor or ceiling",
    "illegal tries kept their price in both arms, and replies of the base model are 91 to 100 % legal",
)
_NO_LENGTH = Clause("floor or ceiling", "the bundled model acts without thinking, its replies have no length to change")


def score_above(other: str) -> By:
    """Returns what reads by how much Divide-Fuse-Conquer's final score is above an arm's, by seed."""

    def scores(out: Path, name: str) -> dict[int, float]:
        source, policy = ("dfc", "initial") if name == "initial" else (name, "final")
        found = runs_of(out, source).items()
        return {seed: two_seats(final_records(path, policy, "initial")).score.estimate for seed, path in found}

    return lambda out: differences(scores(out, "dfc"), scores(out, other))


def measured_above(one: str, other: str, measure: Callable[[Path], float]) -> By:
    """Returns what reads by how much a measure of one run is above that of another, by seed."""
    return lambda out: differences(
        *({seed: measure(path) for seed, path in runs_of(out, name).items()} for name in (one, other))
    )


def differences(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """Returns the differences of the seeds that both have."""
    return [value - other[seed] for seed, value in one.items() if seed in other]


def format_rate(path: Path) -> float:
    """Returns the mean over games of the share of legal replies at the end."""
    return mean_over_games(path, "format_rate")


def _row(text: str, read: By | None, *clauses: Clause, unit: str = "", digits: int = 3) -> Row:
    return Row(Claim(text, clauses=clauses), read, unit, digits)


CLAIMS = (
    _row("Divide-Fuse-Conquer beats the base model, final score", score_above("initial")),
    _row("it beats Naive-MSRL (GRPO over all games with its sampling and acceptance)", score_above("naive_multi")),
    _row("it beats Naive-SSRL (a policy for each game)", score_above("naive_single")),
    _row("it beats SFT on wins", score_above("imitation")),
    _row("conquering regains what fusing costs, and more", None),  # counts of the stages were pooled over seeds
    _row(
        "the format reward keeps the format (format rate with, less without)",
        measured_above("six_games", "six_games-no_format_reward", format_rate),
        _LEGAL,
    ),
    _row(
        "half-negative training wins more (final win rate with, less all negatives)",
        measured_above("six_games", "six_games-all_negatives", final_win_rate),
    ),
    _row(
        "mixed priority learns TowerOfHanoi sooner (iterations to 90 %, without less with)",
        measured_above("six_games-no_mixed_priority", "six_games", lambda p: reached(p, f"{HANOI}/win_rate", 0.9)),
        unit="iterations",
        digits=1,
    ),
    _row(
        "epsilon-greedy makes ConnectFour stronger (final win rate with, less without)",
        measured_above("connect_four", "connect_four-no_epsilon", final_win_rate),
    ),
    _row(
        "fresh seeds make LiarsDice stronger (final win rate with, less the same seeds)",
        measured_above("liars_dice", "liars_dice-same_seeds", final_win_rate),
    ),
    _row(
        "the step penalty shortens won games (TowerOfHanoi, steps without, less with)",
        measured_above("hanoi-no_step_penalty", "hanoi", steps_per_won_game),
        unit="steps",
        digits=2,
    ),
    _row("replies grow longer with the step penalty", None, _NO_LENGTH),
    _row(
        "the clip ratio decides much (appendix F; final win rate with 0.2, less with 0.05)",
        measured_above("six_games", "six_games-clip_ratio=0.05", final_win_rate),
    ),
    _row(
        "the KL coefficient decides much (appendix F; final win rate with 0.02, less with 0.1)",
        measured_above("six_games", "six_games-kl_coefficient=0.1", final_win_rate),
    ),
)
FORM = (
    _row(
        "the format reward raises the format rate where illegal tries are free",
        measured_above("six_games-no_price", "six_games-no_price_no_format_reward", format_rate),
    ),
    _row(
        "the price of illegal tries raises it, with the format reward",
        measured_above("six_games", "six_games-no_price", format_rate),
    ),
    _row(
        "the price of illegal tries raises it, without the format reward",
        measured_above("six_games-no_format_reward", "six_games-no_price_no_format_reward", format_rate),
    ),
)


def cost_table(out: Path) -> str:
    """Returns what the runs took, and into how many updates their games went: equal games are not equal updates."""
    rows = []
    for run in (*ARMS, *FUSIONS, *ABLATIONS, *SWEEPS, LONG):
        paths = list(runs_of(out, run.name, finished=False).values())
        if not paths:
            continue
        minutes = ", ".join(f"{seconds(path) / 60:.1f}" for path in paths)
        metrics = [lines(path, "metrics") for path in paths]
        games = ", ".join(f"{sum(m['metrics']['episodes'] for m in found):,.0f}" for found in metrics)
        updates = ", ".join(f"{sum(m['metrics']['updates'] for m in found):,.0f}" for found in metrics)
        kept = ", ".join(f"{sum(m['metrics']['accepted'] for m in found):.0f} of {len(found)}" for found in metrics)
        unfinished = [path.name for path in paths if not (path / "finished.json").exists()]
        rows.append([run.name, minutes, games, updates, kept, ", ".join(unfinished) or "all"])
    header = ["run", "minutes of iterations, each seed", "games trained on", "updates", "iterations kept"]
    return table([*header, "finished, or which not"], rows)


def main() -> None:
    """Prints the tables and draws the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--figures", type=Path, default=None, help="folder for the figures; none are drawn if absent")
    options = parser.parse_args()
    print(f"\n### What holds\n\n{claims_table(CLAIMS, options.runs)}")
    print(f"\n### Without any price on the form\n\n{claims_table(FORM, options.runs)}")
    arms = ("dfc", "naive_multi", "naive_single", "imitation", "initial")
    for opponent in ("initial", "random_legal"):
        print(f"\n### Two-player games against {opponent}\n\n{arms_table(options.runs, arms, opponent)}")
    print(f"\n### Each game\n\n{games_table(options.runs, arms)}")
    print(f"\n### Ways to fuse\n\n{arms_table(options.runs, ('dfc', 'dfc_at_once', 'dfc_ties'), 'initial')}")
    print(f"\n### After every stage, W/D/L against the initial policy\n\n{stages_table(options.runs)}")
    print(f"\n### Ablations\n\n{ablations_table(options.runs)}")
    print(f"\n### Cost\n\n{cost_table(options.runs)}")
    if options.figures is not None:
        from dfc_study_figures import draw  # noqa: PLC0415 - needs matplotlib

        for path in draw(options.runs, options.figures):
            print(path)


if __name__ == "__main__":
    main()

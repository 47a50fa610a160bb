"""Draws the study as the paper's Figures 1 to 4; used by `benchmarks/dfc_study_results.py`. Needs matplotlib."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from dfc_study_runs import TITLES, curve, final_records, lines, runs_of

from dfc.evaluation.statistics import Record, pooled

mpl.use("svg")
import matplotlib.pyplot as plt

COLORS = {"dfc": "#0b6e4f", "naive_multi": "#c8553d", "naive_single": "#3d5a80", "imitation": "#8d6a9f"}
PANELS = (
    ("format reward", "six_games", "-no_format_reward", "format_rate", None),
    ("mixed priority", "six_games", "-no_mixed_priority", "win_rate", "TowerOfHanoi-v0"),
    ("half-negative", "six_games", "-all_negatives", "win_rate", None),
    ("half-negative", "six_games", "-all_negatives", "format_rate", None),
    ("epsilon-greedy", "connect_four", "-no_epsilon", "win_rate", None),
    ("fresh seeds", "liars_dice", "-same_seeds", "win_rate", None),
    ("step penalty", "hanoi", "-no_step_penalty", "win_rate", None),
    ("step penalty", "hanoi", "-no_step_penalty", "steps", None),
)


def smoothed(values: Sequence[float], width: int = 5) -> list[float]:
    """Returns means of each value and those before it."""
    return [statistics.fmean(values[max(0, i - width + 1) : i + 1]) for i in range(len(values))]


def games_of(path: Path) -> list[str]:
    """Returns a run's games."""
    return list(json.loads((path / "config.json").read_text())["games"])


def draw(out: Path, figures: Path) -> list[Path]:
    """Draws the figures whose runs are there; returns their paths."""
    figures.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "dfc"})
    drawn = []
    for name, figure in (
        ("final", final_bars(out)),
        ("curves", curves(out)),
        ("ablations", ablations(out)),
        ("long_run", long_run(out)),
    ):
        if figure is not None:
            path = figures / f"divide_fuse_conquer_{name}.svg"
            figure.tight_layout()
            figure.savefig(path, metadata={"Date": None})
            plt.close(figure)
            drawn.append(path)
    return drawn


def final_bars(out: Path) -> Any:  # noqa: ANN401 (matplotlib's types are no part of the project)
    """Returns win rates of base and trained model per game, as the paper's Figure 1."""
    paths = list(runs_of(out, "dfc").values())
    if not paths:
        return None
    games = games_of(paths[0])
    figure, axes = plt.subplots(figsize=(7, 2.6))
    for shift, (policy, color) in enumerate((("initial", "#b8b8b8"), ("final", COLORS["dfc"]))):
        records = [pooled(final_records(p, policy, "initial").get(g, Record()) for p in paths) for g in games]
        rates = [record.win_rate for record in records]
        errors = [[r.estimate - r.low for r in rates], [r.high - r.estimate for r in rates]]
        places = [n + 0.4 * shift - 0.2 for n in range(len(games))]
        label = TITLES["initial" if policy == "initial" else "dfc"]
        axes.bar(places, [r.estimate for r in rates], 0.38, yerr=errors, color=color, label=label, capsize=2)
    axes.set_xticks(range(len(games)), [game.removesuffix("-v0") for game in games])
    axes.set_ylabel("win rate against the base model")
    axes.legend(frameon=False)
    return figure


def played(path: Path, game: str) -> tuple[list[float], list[float]]:
    """Returns (games of this run so far in thousands, win rate) of the iterations in which a game was trained.

    Runs of one game each count as if they ran side by side: which comes first means nothing.
    """
    total, own, places, rates = 0.0, 0.0, [], []
    num_games = len(games_of(path))
    for line in lines(path, "metrics"):
        games = line["metrics"]["episodes"] / 1000
        total += games
        rate = line["metrics"].get(f"games/{game}/win_rate")
        if rate is not None:
            own += games
            places.append(num_games * own if line["stage"].startswith("only ") else total)
            rates.append(rate)
    return places, smoothed(rates)


def curves(out: Path) -> Any:  # noqa: ANN401 (as above)
    """Returns win rates over the games trained on, per game and method, as the paper's Figure 2."""
    arms = {name: list(runs_of(out, name, finished=False).values()) for name in COLORS}
    paths = arms["dfc"]
    if not paths:
        return None
    figure, panels = plt.subplots(2, 3, figsize=(7, 4), sharex=True, sharey=True)
    for axes, game in zip(panels.flat, games_of(paths[0]), strict=True):
        for name, found in arms.items():
            for number, path in enumerate(found):
                label = TITLES[name] if number == 0 else None
                axes.plot(*played(path, game), color=COLORS[name], linewidth=0.9, alpha=0.8, label=label)
        axes.set_title(game.removesuffix("-v0"))
    panels[0, 0].set_ylabel("win rate")
    panels[1, 0].set_ylabel("win rate")
    for axes in panels[1]:
        axes.set_xlabel("games trained on, thousands")
    panels[0, 0].legend(frameon=False, fontsize=6)
    return figure


def mean_curve(path: Path, metric: str, game: str | None) -> list[float]:
    """Returns the mean of a metric over one game or all of a run's, per iteration."""
    columns = [curve(path, f"games/{name}/{metric}") for name in ([game] if game else games_of(path))]
    return smoothed([statistics.fmean(values) for values in zip(*columns, strict=False)])


def ablations(out: Path) -> Any:  # noqa: ANN401 (as above)
    """Returns curves with and without each technique, as the paper's Figure 3."""
    if not runs_of(out, "six_games", finished=False):
        return None
    figure, panels = plt.subplots(2, 4, figsize=(9, 4))
    for axes, (title, base, change, metric, game) in zip(panels.flat, PANELS, strict=True):
        for suffix, color, label in (("", COLORS["dfc"], "with"), (change, "#c8553d", "without")):
            for number, path in enumerate(runs_of(out, base + suffix, finished=False).values()):
                values = mean_curve(path, metric, game)
                axes.plot(values, color=color, linewidth=0.9, alpha=0.8, label=label if number == 0 else None)
        axes.set_title(title)
        axes.set_ylabel(f"{metric.replace('_', ' ')}{f' of {game}' if game else ''}")
        axes.set_xlabel("iteration")
    panels[0, 0].legend(frameon=False)
    return figure


def long_run(out: Path) -> Any:  # noqa: ANN401 (as above)
    """Returns win rate, reply length and steps per iteration of the long run, as the paper's Figure 4."""
    paths = list(runs_of(out, "long", finished=False).values())
    if not paths:
        return None
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.6))
    for axes, metric in zip(panels, ("win_rate", "response_length", "steps"), strict=True):
        for game in games_of(paths[0]):
            values = smoothed(curve(paths[0], f"games/{game}/{metric}"), 20)
            axes.plot(values, linewidth=0.9, label=game.removesuffix("-v0"))
        axes.set_title(metric.replace("_", " "))
        axes.set_xlabel("iteration")
    panels[0].legend(frameon=False, fontsize=6)
    return figure

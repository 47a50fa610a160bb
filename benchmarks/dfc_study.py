"""Runs the Divide-Fuse-Conquer study: every comparison of the paper with the bundled model, each run by itself.

    python benchmarks/dfc_study.py [--out=runs/study] [--seeds=10,11,12] [--parallel=2] [--only=TEXT] [--list]

Methods: Divide-Fuse-Conquer and its baselines (`configs/study_*.py`), all with as many games to learn from. Ablations:
one setting changed, on the games where the paper shows its effect, beside the same run without the change. One long
run. Seeds 10, 11, 12 were not looked at when the settings were chosen.

Every run is a process of one thread, `--parallel` at a time. A run that was stopped resumes where it was when this is
called again; a finished one is left alone. `--list` prints the runs and what each has cost so far.
`benchmarks/dfc_study_results.py` makes the tables and figures.
"""

import argparse
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from study_command import launch, seconds

SHORT = "--config.iterations=40"


def only(*games: str) -> str:
    """Returns the override that leaves these of the study's games."""
    options = {"LiarsDice-v0": {"num_dice": 2}, "TowerOfHanoi-v0": {"max_turns": 14}}
    return f"--config.games={ ({game: options.get(game, {}) for game in games})!r}"


CONNECT_FOUR, LIARS_DICE, HANOI = only("ConnectFour-v0"), only("LiarsDice-v0"), only("TowerOfHanoi-v0")


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run: its folder's name without the seed, its configuration, what is changed in it."""

    name: str
    config: str
    changes: tuple[str, ...] = ()


ARMS = tuple(StudyRun(name, f"study_{name}") for name in ("dfc", "naive_multi", "naive_single", "imitation"))
FUSIONS = (
    StudyRun("dfc_at_once", "study_dfc", ("--config.fusion.at_once=true",)),
    StudyRun("dfc_ties", "study_dfc", ("--config.fusion.method=ties", "--config.fusion.density=0.5")),
)
ABLATIONS = (
    StudyRun("six_games", "study_naive_multi", (SHORT,)),
    StudyRun("six_games-no_format_reward", "study_naive_multi", (SHORT, "--config.reward.format=false")),
    StudyRun("six_games-no_price", "study_naive_multi", (SHORT, "--config.reward.illegal_try=0.0")),
    StudyRun(
        "six_games-no_price_no_format_reward",
        "study_naive_multi",
        (SHORT, "--config.reward.illegal_try=0.0", "--config.reward.format=false"),
    ),
    StudyRun("six_games-no_mixed_priority", "study_naive_multi", (SHORT, "--config.mixed_priority.enabled=false")),
    StudyRun("six_games-all_negatives", "study_naive_multi", (SHORT, "--config.half_negative=false")),
    StudyRun("connect_four", "study_naive_multi", (SHORT, CONNECT_FOUR)),
    StudyRun("connect_four-no_epsilon", "study_naive_multi", (SHORT, CONNECT_FOUR, "--config.random_action_rate=0.0")),
    StudyRun("liars_dice", "study_naive_multi", (SHORT, LIARS_DICE)),
    StudyRun("liars_dice-same_seeds", "study_naive_multi", (SHORT, LIARS_DICE, "--config.randomize_seeds=false")),
    StudyRun("hanoi", "study_naive_multi", (SHORT, HANOI)),
    StudyRun(
        "hanoi-no_step_penalty", "study_naive_multi", (SHORT, HANOI, "--config.reward.hasty_action_penalty=false")
    ),
)
SWEEPS = tuple(
    StudyRun(f"six_games-{name}={value}", "study_naive_multi", (SHORT, f"--config.grpo.{name}={value}"))
    for name, values in (("clip_ratio", (0.05, 0.5)), ("kl_coefficient", (0.0, 0.1)))
    for value in values
)
LONG = StudyRun("long", "study_naive_multi", ("--config.iterations=700",))


def plan(seeds: list[int]) -> list[tuple[StudyRun, int]]:
    """Returns runs with their seeds, the comparisons that matter most first; the long run has one seed."""
    order = [(LONG, seeds[0])]
    for group in (ARMS, ABLATIONS, SWEEPS, FUSIONS):
        order += [(run, seed) for seed in seeds for run in group]
    return order


def folder(out: Path, run: StudyRun, seed: int) -> Path:
    """Returns a run's folder."""
    return out / f"{run.name}-{seed}"


def carry_out(out: Path, run: StudyRun, seed: int) -> str:
    """Runs or continues a run; returns a line about it."""
    path = folder(out, run, seed)
    if (path / "finished.json").exists():
        return f"{path.name}: finished before"
    state, _ = launch(path, run.config, (f"--config.seed={seed}", *run.changes))
    return f"{path.name}: {state}"


def main() -> None:
    """Carries out the runs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/study"))
    parser.add_argument("--seeds", default="10,11,12")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--only", default="", help="runs whose folder's name holds this text")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    runs = plan([int(seed) for seed in options.seeds.split(",")])
    runs = [(run, seed) for run, seed in runs if options.only in f"{run.name}-{seed}"]
    if options.list:
        for run, seed in runs:
            path = folder(options.out, run, seed)
            state = "finished" if (path / "finished.json").exists() else "begun" if path.exists() else ""
            print(f"{path.name:40}{state:10}{seconds(path) / 60:8.1f} min  {' '.join(run.changes)}")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.parallel) as pool:
        for number, line in enumerate(pool.map(lambda item: carry_out(options.out, *item), runs), start=1):
            print(f"[{number}/{len(runs)}] {line}", flush=True)


if __name__ == "__main__":
    main()

"""Runs the Paprika study: every comparison with a small model, each run by itself, each resumed if stopped.

    python benchmarks/paprika_study.py [--out=runs/paprika] [--seeds=20,21,22] [--parallel=3] [--only=TEXT] [--list]
        [--player=runs/paprika_player/policy]

Of every seed: one collection of the initial model's trajectories at the ten task groups; SFT and RPO on all of them;
the same without one group, for four groups, and on a single one; SFT on as many ordinary conversations; GRPO on the
ten groups with as many games; then all of them on the same test tasks; the curriculum over the difficulties of twenty
questions with its baseline, uniform; the tasks that were trained on; test tasks at other temperatures, words of another
length, and the bandit with regret. `configs/paprika_player.py` makes the model first. The rates of SFT and RPO were
chosen after an earlier study's results on these seeds were known; docs/results/paprika.md says which.

Every run is a process of one thread, `--parallel` seeds side by side. `--list` prints the runs and the minutes each has
taken. `benchmarks/paprika_study_results.py` makes the tables and figures.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from study_command import StudyRun, main

LEFT_OUT = ("twenty_questions", "wordle", "murder_mystery", "minesweeper")
SINGLE = "twenty_questions"
MAIN = ("base", "sft", "rpo")
TRAINING = "--config.stages=build_data,sft,rpo"
PLAYING = (  # as paprika_tiny.py plays
    "--config.rollout.slots=64",
    "--config.rollout.max_length=640",
    "--config.rollout.max_reply_length=40",
    "--config.rollout.decode_steps=16",
    "--config.tasks=40",
    "--config.tasks_of.bandit=40",
)
TEN_GROUPS = "--config.games.battleship.show_board=false"


def evaluated() -> tuple[str, ...]:
    """Returns the names of the policies that play the test tasks, the initial model first."""
    return (*MAIN, *(f"without_{group}" for group in LEFT_OUT), f"only_{SINGLE}", "chat", "grpo")


def where(out: Path, name: str, player: str) -> str:
    """Returns the folder of a policy of a seed."""
    if name == "base":
        return player
    if name in ("sft", "rpo"):
        return str(out / "paprika" / name)
    if name == "chat":
        return str(out / "chat" / "sft")
    return str(out / name / "rpo" if name.startswith(("without_", "only_")) else out / name)


def plan(out: Path, player: str) -> list[StudyRun]:
    """Returns the runs of one seed in their order; later ones read what earlier ones wrote.

    Args:
      out: the seed's folder.
      player: the initial model.
    """
    collected = f"--config.collected={out / 'collected' / 'collect'}"
    trained = [
        ("paprika", ()),
        *((f"without_{group}", (f"--config.build_data.leave_out={group}",)) for group in LEFT_OUT),
        (f"only_{SINGLE}", (f"--config.build_data.game_groups={SINGLE}",)),
    ]
    chat = ("--config.stages=sft", f"--config.data={out / 'chat.jsonl'}")
    return [
        StudyRun("collected", "paprika_tiny", ("--config.stages=collect",)),
        *(StudyRun(name, "paprika_tiny", (TRAINING, collected, *changes)) for name, changes in trained),
        StudyRun("chat", "paprika_tiny", chat, prepare=write_chat),
        StudyRun("grpo", "paprika_grpo_tiny"),
        _evaluation("evaluated", out, player, evaluated(), TEN_GROUPS),
        *(
            StudyRun(strategy, "paprika_curriculum_tiny", (f"--config.strategy={strategy}",))
            for strategy in ("ucb", "uniform")
        ),
        _evaluation("trained_tasks", out, player, (*MAIN, "grpo"), TEN_GROUPS, "--config.split=train"),
        _evaluation("cold_and_hot", out, player, MAIN, TEN_GROUPS, "--config.temperatures=(0.3, 1.0)"),
        _evaluation("four_letters", out, player, MAIN, "--config.games={'wordle': {'length': 4, 'max_turns': 10}}"),
        _evaluation("regret", out, player, MAIN, "--config.games={'bandit_regret': {}}"),
    ]


def _evaluation(name: str, out: Path, player: str, policies: Sequence[str], *changes: str) -> StudyRun:
    listed = ",".join(f"{policy}={where(out, policy, player)}" for policy in policies)
    return StudyRun(name, "evaluate_tasks", (f"--config.policies={listed}", *PLAYING, *changes))


def write_chat(out: Path, seed: int) -> None:
    """Writes as many ordinary conversations as the seed's collection has trajectories to imitate, unless they exist."""
    if (out / "chat.jsonl").exists():
        return
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

    rows = pq.ParquetFile(out / "paprika" / "build_data" / "data" / "sft.parquet").metadata.num_rows
    script = Path(__file__).parent / "scripted_chat.py"
    words = [str(script), f"--conversations={rows}", f"--seed={seed}", f"--out={out / 'chat.jsonl'}"]
    subprocess.run([sys.executable, *words], check=True)  # noqa: S603 - our own command


if __name__ == "__main__":
    main(__doc__, "paprika", plan, parallel=3)

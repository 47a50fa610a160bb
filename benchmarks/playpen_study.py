"""Runs the Playpen study: every arm with a small model, each run by itself, each resumed if stopped.

    python benchmarks/playpen_study.py [--out=runs/playpen] [--seeds=20,21,22] [--parallel=1] [--only=TEXT] [--list]
        [--player=runs/playpen_player/policy]

Of every seed: dialogues of three players, SFT on the won ones, DPO on pairs of dialogues and on pairs of turns; GRPO
beside the strong scripted player, from the initial model and from the one after SFT; then all of them on the same test
instances in all seats, in the learner's roles beside the teacher, and in ten games that none of them was trained on.
`configs/playpen_player.py` makes the model first; ``known``, before all seeds, says what it can on the validation
split.

A run is a process of one thread; runs that do not read each other can be started side by side with `--only`.
`--list` prints the runs and the minutes each has taken. `benchmarks/playpen_study_results.py` makes the tables.
"""

from pathlib import Path

from study_command import StudyRun, main

from dfc.config.playpen import LEARNER_ROLES
from dfc.configs.playpen_player import OTHER_GAMES

ARMS = ("base", "sft", "dpo_dialogue", "dpo_turn", "grpo", "sft_grpo")
KNOWN = "known"
TASKS, KNOWN_TASKS = 30, 20  # instances of a game at most
OTHER_SEEDS = 10  # deals of a game that none was trained on
PLAYING = (  # as playpen_tiny.py plays
    "--config.rollout.slots=32",
    "--config.rollout.max_length=1024",
    "--config.rollout.max_reply_length=160",
    "--config.rollout.decode_steps=16",
)
# The rules of pairs that the published results were made with; today's defaults are nearer to the paper.
_PAIRS = (
    "--config.build_dialogues.turn_rejected=lower_quality",
    "--config.build_dialogues.turn_negatives=1",
    "--config.build_dialogues.aborted_count=together",
)
_FOR_TWO: dict[str, dict[str, object]] = {game: {} for game in LEARNER_ROLES}
BESIDE = (  # games for two, in the roles that GRPO learns
    "--config.opponent=strong",
    f"--config.games={_FOR_TWO}",
    f"--config.learner_roles={LEARNER_ROLES}",
)


def where(out: Path, arm: str, player: str) -> str:
    """Returns the folder of an arm's policy."""
    if arm == "base":
        return player
    return str(out / "offline" / arm if arm in ("sft", "dpo_dialogue", "dpo_turn") else out / arm / "grpo")


def plan(out: Path, player: str) -> list[StudyRun]:
    """Returns the runs of one seed in their order; later ones read what earlier ones wrote.

    Args:
      out: the seed's folder.
      player: the initial model.
    """
    after_sft = f"--config.model.path={out / 'offline' / 'sft' / 'policy'}"
    only_grpo = "--config.stages=grpo"
    return [
        StudyRun(
            "offline", "playpen_tiny", ("--config.stages=collect,build_dialogues,sft,dpo_dialogue,dpo_turn", *_PAIRS)
        ),
        StudyRun("grpo", "playpen_tiny", (only_grpo,)),
        StudyRun("sft_grpo", "playpen_tiny", (only_grpo, after_sft)),
        _evaluation("evaluated", out, player, ARMS, TASKS),
        _evaluation("beside_teacher", out, player, ARMS, TASKS, *BESIDE),
        StudyRun(
            "other_games",
            "evaluate",
            (
                _policies(out, player, ARMS),
                f"--config.games={OTHER_GAMES}",
                f"--config.seeds={OTHER_SEEDS}",
                "--config.anchor=base",
                "--config.sampling.temperature=0.5",
                "--config.rollout.stop=",
                "--config.rollout.workers=1",
                *PLAYING,
            ),
            model=False,
        ),
    ]


def known(out: Path, player: str) -> StudyRun:
    """Returns the run that says what the initial model can, on instances that no other run looks at."""
    return _evaluation(KNOWN, out, player, ("base",), KNOWN_TASKS, "--config.split=validation")


def _evaluation(name: str, out: Path, player: str, arms: tuple[str, ...], tasks: int, *changes: str) -> StudyRun:
    own = (_policies(out, player, arms), f"--config.tasks={tasks}")
    return StudyRun(name, "evaluate_clem", (*own, *PLAYING, *changes))


def _policies(out: Path, player: str, arms: tuple[str, ...]) -> str:
    return "--config.policies=" + ",".join(f"{arm}={where(out, arm, player)}" for arm in arms)


if __name__ == "__main__":
    main(__doc__, "playpen", plan, parallel=1, first=known)

"""Every benchmark once, in miniature, to see that it runs: `make benchmarks-quick`; its figures mean nothing.

    python benchmarks/quick.py [--only=TEXT]

Benchmarks run with ``--quick``; studies say with ``--list`` what they would run. One after another, each a process of
its own in a folder of its own, so that nothing is left behind. What needs more than `make test` installs is left out
and named, with what it needs. Prints the seconds of each; where one fails, the end of what it wrote and, after all have
run, exit code 1.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("dfc_study.py", "lsp_study.py", "paprika_study.py", "playpen_study.py"), ("--list",)),
    "kept_sets_study.py": ("--list",),
    **dict.fromkeys(
        (
            "schedules.py",
            "game_exploits.py",
            "game_baselines.py",
            "dialogue_games.py",
            "games.py",
            "preference_pairs.py",
            "loading.py",
            "memory.py",
            "models.py",
            "cold_start.py",
            "serving.py",
            "decode_bytes.py",
            "kept_sets_cost.py",
            "rollouts.py",
            "rollout_growth.py",
            "quickstart.py",
        ),
        ("--quick",),
    ),
    "scripted_chat.py": ("--conversations=20", "--out=chat.jsonl"),
    "structure.py": ("--no-trace",),
    "study_verdicts.py": (),
}
# What some of them need beyond the test extra: a module, and how it is said.
EXTRAS = {"decode_bytes.py": ("jax_cuda13_plugin", "the extra aot (pip install -e '.[aot]')")}
LEFT_OUT = {
    "gate_mutants.py": "hours, a clone of its own and what gate_record.py has recorded",
    "gate_record.py": "coverage.py, half an hour and a clone of its own",
    "gpu_columns.py": "a GPU (make benchmark-gpu ARGS=--quick)",
    "grpo_iteration.py": "an interpreter with TRL (--trl-python=PATH --quick)",
    "grpo_iteration_trl.py": "TRL; it is the other side of grpo_iteration.py",
    "held_constant.py": "ten minutes, and hashes of before a change to compare with (--write, --compare)",
    "offline_training.py": "an interpreter with TRL (--trl-python=PATH --quick)",
    "offline_training_trl.py": "TRL; it is the other side of offline_training.py",
    "serving_chat.py": "a server, and a user who types",
    **dict.fromkeys(
        ("dfc_study_results.py", "lsp_study_results.py", "paprika_study_results.py", "playpen_study_results.py"),
        "the runs of its study",
    ),
}
LIBRARIES = (
    "dfc_study_figures.py",
    "dfc_study_runs.py",
    "gate_mutations.py",
    "quick.py",
    "rollout_workloads.py",
    "study_command.py",
    "study_tables.py",
)


def missing(script: str) -> str | None:
    """Returns what a script needs and is not there, or None."""
    module, extra = EXTRAS.get(script, ("", ""))
    return extra if module and importlib.util.find_spec(module) is None else None


def run(script: str) -> int:
    """Runs a script in a new folder, with what dfc's files are found by; shows the end of its output if it fails."""
    begun = time.perf_counter()
    paths = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / script), *COMMANDS[script]]
        done = subprocess.run(  # noqa: S603 - of this folder
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    seconds = time.perf_counter() - begun
    end = f"FAILED with {done.returncode}:\n{done.stdout[-3000:]}" if done.returncode else f"{seconds:.0f} s"
    print(f"{script} {' '.join(COMMANDS[script])}: {end}", flush=True)
    return done.returncode


def main() -> None:
    """Runs everything that can be run here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="scripts whose name holds this text")
    options = parser.parse_args()
    failed = []
    for script in (name for name in COMMANDS if options.only in name):
        if need := missing(script):
            print(f"{script}: left out, it needs {need}", flush=True)
        elif run(script):
            failed.append(script)
    for script, need in LEFT_OUT.items():
        if options.only in script:
            print(f"{script}: left out, it needs {need}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

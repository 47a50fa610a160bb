"""How much processor time an iteration of GRPO takes beside TRL's `GRPOTrainer`: same model, prompts, reward, sizes.

    taskset -c 0 python benchmarks/grpo_iteration.py --trl-python=PATH [--alternations=3] [--iterations=6]
                                                     [--length=256] [--rows=8] [--quick]

PATH is an interpreter with trl and its torch (`make agreement-trl` makes .venv-trl). Both sides run in processes of
their own, one after another, on the cores that this one may use, and take turns.

An iteration: 8 prompts, 8 replies of at most 48 tokens to each, sampled at temperature 1, the share of the letter e as
the reward, one update of AdamW after a clip on all 64, no reference policy. The model is a Llama of 2.8M random weights
with the bundled tokenizer, float32; nearly all replies reach 48 tokens. Ours is the recipe `grpo` with rows and
contexts of `--length` tokens and `--rows` rows a micro-batch at most, 64 slots, a game of one turn. The baseline
generates with transformers (64 at once) and makes one backward pass of 64 (see `grpo_iteration_trl.py`).

Measured: processor seconds of an iteration, all threads of the process, without the first three of a process, which
compile; ours also apart for playing and for the update. Medians over all iterations of all processes, with the smallest
and largest. On a machine that others use too, processor time of one core is what compares. Goal: TRL's over ours at
least 1. Prints a table and one JSON line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

from dfc.episodes import Episode
from dfc.games.game import Common, Game, Outcome

BASELINE = Path(__file__).with_name("grpo_iteration_trl.py")
PROMPTS, COPIES, REPLY = 8, 8, 48
COMPILING = 3  # iterations of a process that are not counted
SHAPE = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 768}


class Speech(Game):
    """One reply of any words, which ends the game; a game of the benchmark alone."""

    seats: ClassVar[int] = 1
    start: ClassVar[Literal["fixed", "random"]] = "random"
    grammar: ClassVar[str] = "[words]"

    def __init__(self, **common: Unpack[Common]) -> None:
        common.setdefault("malformed_allowance", 0)
        super().__init__(**common)
        self.topic = 0

    @property
    def max_game_length(self) -> int:
        """One reply."""
        return 1

    def _begin(self) -> int:
        self.topic = self.rng.randrange(10)
        return 0

    def _rules(self, seat: int) -> str:  # noqa: ARG002 - one seat
        return f"Say it: {self.topic}."

    def _read(self, action: str) -> str | None:
        return action

    def _objection(self, action: str) -> str | None:  # noqa: ARG002 - anything goes
        return None

    def _play(self, action: str) -> tuple[Outcome, ...]:  # noqa: ARG002 - the reward reads it
        return self._won_by(0)

    def legal_actions(self) -> list[str]:
        """One of all that may be said."""
        return [] if self.to_move is None else ["[words]"]

    def _state(self) -> dict[str, Any]:
        return {"topic": self.topic}

    def _restore(self, state: dict[str, Any]) -> None:
        self.topic = state["topic"]


def reward(episode: Episode) -> float:
    """Returns the share of the letter e in what the policy said."""
    said = "".join(reply.text for reply in episode.replies)
    return said.count("e") / max(1, len(said))


def our_side(model: Path, length: int, rows: int, iterations: int) -> dict[str, Any]:
    """Returns processor seconds of the recipe's iterations, and how many tokens they sampled."""
    import dfc  # noqa: PLC0415 - the process that compares needs none of it
    from dfc import config as c  # noqa: PLC0415 - the same
    from dfc.training import rl  # noqa: PLC0415 - the same

    spent: dict[str, list[float]] = {"iteration": [], "update": []}

    def clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - what the function takes and returns
            begun = time.process_time()
            found = function(*given, **named)
            spent[name].append(time.process_time() - begun)
            return found

        return call

    rl.iterate, rl.update = clocked("iteration", rl.iterate), clocked("update", rl.update)
    config = c.Grpo(
        name="benchmark",
        games={f"{__file__}:Speech": {}},
        model=c.ModelConfig(path=str(model), dtype="float32"),
        rollout=c.RolloutConfig(slots=PROMPTS * COPIES, workers=1, max_length=length, max_reply_length=REPLY, stop=()),
        optimizer=c.OptimizerConfig(learning_rate=1e-5),
        batch=c.BatchConfig(row_length=length, micro_batch_rows=rows),
        training=c.TrainingConfig(scan_layers=False, remat="none"),
        iterations=iterations + COMPILING,
        groups_per_game=PROMPTS,
        group_size=COPIES,
        grpo=c.GrpoConfig(kl_coefficient=0.0, updates_per_iteration=1),
        reward=c.RewardConfig(function=f"{__file__}:reward"),
        evaluation=c.MatchesConfig(games=2),
        checkpoint=c.CheckpointConfig(every=1000),
    )
    with tempfile.TemporaryDirectory() as folder:
        dfc.run(config, workdir=folder)
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    sampled = [json.loads(line)["metrics"]["generated_tokens"] for line in lines]
    counted = {name: seconds[COMPILING:] for name, seconds in spent.items()}
    return {**counted, "first": spent["iteration"][0], "sampled": sampled[-1]}


def make_model(folder: Path, python: str) -> None:
    """Writes the model and its tokenizer; the interpreter is the one that has torch."""
    subprocess.run(  # noqa: S603 - this repository's file
        [python, str(BASELINE), f"--make={folder}", f"--shape={json.dumps(SHAPE)}"], check=True
    )


def in_process(command: list[str]) -> dict[str, Any]:
    """Returns the figures of one process, its last line."""
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - files of this repository
    if made.returncode:
        raise SystemExit(f"{command} failed with {made.returncode}:\n{made.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Compares, or runs one process of dfc."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", default=".venv-trl/bin/python")
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="one iteration of each side: does it run?")
    parser.add_argument("--ours", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    iterations = 1 if options.quick else options.iterations
    if options.ours is not None:
        print(json.dumps(our_side(options.ours, options.length, options.rows, iterations)))
        return
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "trl": []}
    with tempfile.TemporaryDirectory() as work:
        model = Path(work) / "model"
        make_model(model, options.trl_python)
        sizes = [f"--length={options.length}", f"--rows={options.rows}", f"--iterations={iterations}"]
        ours = [sys.executable, __file__, f"--ours={model}", *sizes]
        trl = [options.trl_python, str(BASELINE), f"--model={model}", f"--iterations={iterations + COMPILING}"]
        trl += [f"--prompts={PROMPTS}", f"--copies={COPIES}", f"--reply={REPLY}"]
        for _ in range(1 if options.quick else options.alternations):
            found["ours"].append(in_process(ours))
            found["trl"].append(in_process(trl))
    print(f"{'side':6}{'iteration':>24}{'update':>24}{'first':>8}{'sampled':>9}   processor seconds")
    middle = {}
    for side, runs in found.items():
        columns = []
        for name in ("iteration", "update"):
            values = [s for run in runs for s in (run[name] if side == "ours" else run[name][COMPILING:])]
            middle[side, name] = statistics.median(values)
            columns.append(f"{middle[side, name]:.2f} ({min(values):.2f}..{max(values):.2f})")
        print(f"{side:6}{columns[0]:>24}{columns[1]:>24}{runs[0]['first']:8.1f}{runs[0]['sampled']:9,.0f}")
    ratio = middle["trl", "iteration"] / middle["ours", "iteration"]
    cores = len(os.sched_getaffinity(0))
    print(f"TRL / ours: {ratio:.2f}; {cores} cores, load {os.getloadavg()[0]:.1f}")
    print(json.dumps({"ratio": ratio, "cores": cores, "length": options.length, "rows": options.rows, **found}))


if __name__ == "__main__":
    main()

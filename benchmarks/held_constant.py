"""Short runs of every recipe, and hashes of what they leave: a change of structure must change none of them.

    python benchmarks/held_constant.py --write=FILE [--only=TEXT] [--keep=FOLDER]
    python benchmarks/held_constant.py --compare=FILE [--only=TEXT] [--keep=FOLDER]

``--write`` before a change, ``--compare`` after it. Every run is a process of its own on one seed and a CPU. Hashed are
the weights byte for byte, rows and trajectories byte for byte, every file of records without its clock readings, the
tables of ``dfc.launch.fit`` (sums alone) and the pages of two finished runs, made again with fixed clocks. One run of
each way to train is killed after its first iteration and started again, and must leave what the whole one left.

Left out on purpose: config.json, whose keys may be renamed, versions.json and logs of TensorBoard. Hashes are of one
machine and one set of packages. ``--keep`` keeps the runs; without it they are in a temporary folder. Ends with 1 where
something differs, naming the files.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_DIALOGUES = "{'clem_wordle': {}, 'clem_taboo': {}}"
_SMALL_GAMES = "{'TicTacToe-v0': {}, 'GuessTheNumber-v0': {}}"
_SHORT_QUICKSTART = (
    f"games={_SMALL_GAMES}",
    "divide_iterations=2",
    "conquer_iterations=1",
    "grpo.updates_per_iteration=2",
    "groups_per_game=2",
    "group_size=4",
    "grouping.trials=8",
    "acceptance.games=4",
    "evaluation.games=4",
    "evaluation.stage_games=2",
)
# The configuration of each run and its overrides.
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "smoke": ("configs/smoke.py", ()),
    "quickstart": ("configs/quickstart.py", _SHORT_QUICKSTART),
    "adapters": ("configs/smoke.py", ("adapter.rank=4", "optimizer.learning_rate=1e-2")),
    "imitation": ("configs/study_imitation.py", (*_SHORT_QUICKSTART[:-5], "evaluation.games=4")),
    "lsp": ("configs/lsp_tiny.py", ("iterations=2",)),
    "paprika": (
        "configs/paprika_tiny.py",
        (
            "games={'GuessTheNumber-v0': {}, 'TowerOfHanoi-v0': {'max_turns': 14}}",
            "model.path=tiny_player",
            "rollout.max_length=256",
            "rollout.max_reply_length=4",
            "collect.tasks=8",
            "collect.samples=8",
            "build_data.sft_tokens=256",
            "build_data.pair_tokens=256",
            "batch.row_length=512",
            "build_data.rejected_failures=('malformed', 'illegal', 'truncated')",
            "sft.epochs=1",
            "rpo.epochs=1",
            "sft.batch_size=8",
            "rpo.batch_size=8",
            "evaluate_tasks.tasks=2",
            "evaluate_tasks.tasks_of={}",
            "checkpoint.every=1",
        ),
    ),
    "playpen": (
        "configs/playpen_tiny.py",
        (
            f"games={_DIALOGUES}",
            f"measured_games={_DIALOGUES}",
            "model.path=tiny_player",
            "rollout.max_reply_length=16",
            "collect.tasks=2",
            "collect.players=('strong', 'simple', 'initial')",
            "build_dialogues.held_out=0.5",
            "batch.row_length=2048",
            "sft.max_updates=2",
            "dpo_dialogue.max_updates=2",
            "dpo_turn.max_updates=2",
            "grpo.iterations=1",
            "grpo.evaluation.games=2",
            "grpo.groups_per_iteration=2",
            "grpo.group_size=2",
            "stages=collect,build_dialogues,sft,dpo_dialogue,sft_grpo",
        ),
    ),
}
# Killed when the file has its first line, and started again: each has a loop of its own.
KILLED = {
    "smoke": "metrics.jsonl",
    "imitation": "metrics.jsonl",
    "lsp": "metrics.jsonl",
    "paprika": "sft/metrics.jsonl",
}
PAGES = ("smoke", "lsp")
FITS: dict[str, tuple[str, ...]] = {
    "fit_32b": ("--config=configs/dfc_textarena_qwen2_5_32b.py", "--model=qwen2.5-32b", "--topology=h100:64"),
    "fit_lsp": ("--config=configs/lsp_llama3_2_3b.py", "--model=llama-3.2-3b", "--topology=v5e:4x4"),
    "fit_playpen": ("--config=configs/playpen_llama3_1_8b.py", "--model=llama-3.1-8b", "--topology=h100:8"),
}
_RECORDS = {".json", ".jsonl", ".csv", ".md"}
_LEFT_OUT = re.compile(
    r"(^|/)((?<!policy/)config\.json|versions\.json|.*tfevents.*|report\.html|checkpoints/.*|.*\.lock|\..*)$"
)
_WRITTEN = re.compile(r'data-written="[^"]*"|<time .*?</time>')
_CLOCK = re.compile(r"(seconds|_per_second|^time$|^date$|^began$|^ended$|^started$|^finished$)")


def main() -> int:
    """Runs what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--write", type=Path, help="where the hashes go")
    way.add_argument("--compare", type=Path, help="hashes of before")
    parser.add_argument("--only", default="", help="names that hold this text")
    parser.add_argument("--keep", type=Path, help="a folder for the runs, which stay")
    arguments = parser.parse_args()
    before = json.loads(arguments.compare.read_text()) if arguments.compare else None
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(arguments.keep or Path(temporary), arguments.only)
    if before is None:
        arguments.write.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        print(f"{len(found)} hashes in {arguments.write}")
        return 0
    wanted = {name: value for name, value in before.items() if arguments.only in name.split("/")[0]}
    differing = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    for name in differing:
        kind = "gone" if name not in found else "new" if name not in wanted else "differs"
        print(f"{kind}: {name}")
    print(f"{len(wanted)} hashes compared, {len(differing)} differ")
    return bool(differing)


def measure(folder: Path, only: str) -> dict[str, str]:
    """Runs everything whose name holds a text; returns hashes by run and file."""
    found: dict[str, str] = {}
    for name, (config, overrides) in RUNS.items():
        if only not in name:
            continue
        run = folder / name
        _timed(name, [*_launch(config, overrides), f"--workdir={run}"])
        hashes = dict(hashed(run))
        found |= {f"{name}/{file}": value for file, value in hashes.items()}
        if name in PAGES:
            found[f"{name}/page"] = page(run, folder / "page")
        if name in KILLED:
            again = folder / f"{name}_killed"
            killed = [*_launch(config, overrides), f"--workdir={again}"]
            _kill(killed, again / KILLED[name])
            _timed(f"{name}, killed and started again", killed)
            other = dict(hashed(again))
            for file in sorted(hashes.keys() | other.keys()):
                if hashes.get(file) != other.get(file):
                    raise SystemExit(
                        f"{name}: {file} of the run that was killed and resumed differs from the whole one's"
                    )
    if not only:
        found["seed purposes"] = _digest("\n".join(sorted(purposes())).encode())
    for name, words in FITS.items():
        if only in name:
            said = _timed(name, [sys.executable, "-m", "dfc.launch.fit", *words], fails=True)
            found[f"{name}/table"] = _digest(said.encode())
    return found


def purposes() -> set[str]:
    """Returns what seeds are derived for: the first argument of `derive_seed` and `now.seed`, where it is a text."""
    found = set()
    for path in (ROOT / "dfc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="derive_seed") | ast.Attribute(attr="seed", value=ast.Name(id="now")),
                    args=[ast.Constant(value=str(purpose)), *_],
                ):
                    found.add(purpose)
    return found


def hashed(run: Path) -> Iterator[tuple[str, str]]:
    """Yields every file of a run that is held constant with the hash of what counts of it."""
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if not path.is_file() or _LEFT_OUT.search(name):
            continue
        data = path.read_bytes()
        if path.suffix in _RECORDS and "policy/" not in name:
            data = timeless(path, run).encode("utf-8", "surrogateescape")
        yield name, _digest(data)


def timeless(path: Path, run: Path) -> str:
    """Returns a file of records, or another text, without clock readings and without the name of the run's folder."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape").replace(str(run), "RUN")
    if path.suffix == ".json":
        return json.dumps(_timeless(json.loads(text)), sort_keys=True)
    if path.suffix == ".jsonl":
        return "".join(json.dumps(_timeless(json.loads(line)), sort_keys=True) + "\n" for line in text.splitlines())
    return text


def _timeless(value: object, key: str = "") -> object:
    """Returns JSON with every reading of a clock at 1."""
    match value:
        case dict():
            return {name: _timeless(entry, name) for name, entry in value.items()}
        case list():
            return [_timeless(entry) for entry in value]
        case _:
            return 1 if _CLOCK.search(key) else value


def page(run: Path, folder: Path) -> str:
    """Returns the hash of a run's report, made of a copy whose clocks stand still, always in the same folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in run.rglob("*"):
        if path.suffix in (".json", ".jsonl") and "policy" not in path.parts:
            copy = folder / path.relative_to(run)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(timeless(path, run), encoding="utf-8")
    versions = {"starts": [{"dfc": "0", "packages": {}, "device": "a CPU", "command": "a command"}]}
    (folder / "versions.json").write_text(json.dumps(versions))
    _timed(f"page of {run.name}", [sys.executable, "-m", "dfc.report", str(folder)])
    text = (folder / "report.html").read_text(encoding="utf-8")
    return _digest(_WRITTEN.sub("", text).encode())


def _launch(config: str, overrides: tuple[str, ...]) -> list[str]:
    """Returns the command of a run but for its folder."""
    return [sys.executable, "-m", "dfc.launch", f"--config={config}", *(f"--config.{one}" for one in overrides)]


def _timed(name: str, command: list[str], *, fails: bool = False) -> str:
    """Runs a command of dfc to its end, prints how long it took and returns its output."""
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)  # noqa: S603 - ours
    print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
    if done.returncode and not fails:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


def _kill(command: list[str], metrics: Path) -> None:
    """Starts a run and kills it as soon as the first line of a file is there."""
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=nowhere, stderr=nowhere)  # noqa: S603 - ours
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _environment() -> dict[str, str]:
    # Without a git folder: every trajectory says from which commit it is.
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "GIT_DIR": os.devnull}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())

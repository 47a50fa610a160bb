"""How long a run takes from its process's start to its first sampled token, and what it compiles until then.

    python benchmarks/cold_start.py [--config=configs/smollm2.py] [--starts=off,first,second] [--quick]
        [FLAG OF dfc.launch ...]

Every start is a process of its own with a new run folder, ended at its first token: ``off`` keeps no compiled programs,
``first`` keeps them in a new folder, ``second`` finds them there (aim: it compiles none). The first token is where the
engine has taken over the first one; loading libraries and the model, and opening the run folder, are in the seconds.

Seconds by the wall, and of the processor, all threads: on a machine that does other work only the latter compare.
Prints a table and one JSON line.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_MARK = "first token: "
_NUMBERS = ("programs", "from the folder", "compiled")


def run_to_first_token(arguments: list[str]) -> None:
    """Runs `python -m dfc.launch` in this process, and ends the process at the first token."""
    import jax.monitoring  # noqa: PLC0415 - what the child of a start loads is part of what is measured

    from dfc.inference.engine import Engine  # noqa: PLC0415 - see above
    from dfc.inference.protocol import EngineReply  # noqa: PLC0415 - see above

    counts = {"programs": 0, "from the folder": 0}

    def compiled(event: str, duration_secs: float, **_: object) -> None:  # noqa: ARG001 - JAX names it
        counts["programs"] += event == "/jax/core/compile/backend_compile_duration"

    def found(event: str, **_: object) -> None:
        counts["from the folder"] += event == "/jax/compilation_cache/cache_hits"

    jax.monitoring.register_event_duration_secs_listener(compiled)
    jax.monitoring.register_event_listener(found)
    collect = Engine.collect

    def collected(self: Engine) -> list[EngineReply]:
        replies = collect(self)
        if self.counts.generated_tokens:
            spent = sum(os.times()[:2])
            print(_MARK + json.dumps({"cpu": spent, **counts}), flush=True)
            os._exit(0)
        return replies

    Engine.collect = collected  # type: ignore[method-assign]
    main = runpy.run_module("dfc.launch.__main__", run_name="launch")["main"]
    raise SystemExit(f"the run ended with {main(arguments)} before its first token")


def start(arguments: list[str]) -> dict[str, float]:
    """Returns wall and processor seconds of one start, and its programs: all, taken from the folder, compiled."""
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--child", *arguments]
    child = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this file
    wall = time.perf_counter() - begun
    line = next((line for line in child.stdout.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        raise SystemExit(f"no token: {' '.join(command)}\n{child.stdout[-2000:]}{child.stderr[-2000:]}")
    found: dict[str, float] = {"wall": wall, **json.loads(line.removeprefix(_MARK))}
    return {**found, "compiled": found["programs"] - found["from the folder"]}


def main() -> None:
    """Measures and prints."""
    if sys.argv[1:2] == ["--child"]:
        run_to_first_token(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/smollm2.py")
    parser.add_argument("--starts", default="off,first,second")
    parser.add_argument("--quick", action="store_true", help="one start of configs/smoke.py, to see that it runs")
    options, more = parser.parse_known_args()
    if options.quick:
        options.config, options.starts = "configs/smoke.py", "off"
    rows = {}
    print(f"{'start':8}{'wall s':>9}{'cpu s':>9}" + "".join(f"{name:>17}" for name in _NUMBERS))
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(options.starts.split(",")):
            programs = "off" if name == "off" else str(Path(folder) / "programs")
            flags = [f"--config={options.config}", f"--programs={programs}", f"--workdir={folder}/run{number}"]
            row = rows[name] = start([*flags, *more])
            numbers = "".join(f"{row[key]:17.0f}" for key in _NUMBERS)
            print(f"{name:8}{row['wall']:9.1f}{row['cpu']:9.1f}{numbers}", flush=True)
    print(json.dumps({"benchmark": "cold_start", "config": options.config, "starts": rows}))


if __name__ == "__main__":
    main()

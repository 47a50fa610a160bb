"""Records which lines of dfc/, games/, models/ and launch/ each test of the first gate reaches, for gate_mutants.py.

    python benchmarks/gate_record.py FOLDER

Needs coverage.py, which is no dependency of the tests: ``pip install --target=DIRECTORY coverage``, and DIRECTORY first
in PYTHONPATH. Run it from the root of a clone that nobody edits meanwhile. Files of tests are run in parts, each part
in a process of its own; a part that is recorded already is not run again, so that the command may be stopped and
started again.

Processes that a test starts are recorded too, under the test that started them, where they take over its environment:
pytest names the test in PYTEST_CURRENT_TEST, which the configuration of coverage reads.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path.cwd()
FILES_OF_PART = 20  # so that a stop loses little, and a process does not grow
CONFIGURATION = """[run]
source = {root}/dfc,{root}/games,{root}/models,{root}/launch
data_file = {folder}/parts/{part}
parallel = true
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected,module-not-imported,module-not-measured,couldnt-parse,already-imported
"""


def cpu_seconds() -> float:
    """Returns the processor's seconds of this process and of those that it waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Recorder:
    """A plugin of pytest: a context of coverage for every test, its outcome and its seconds of processor."""

    def __init__(self, coverage: Any) -> None:  # noqa: ANN401 - of no dependency
        """Takes a coverage that has been started."""
        self.coverage = coverage
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Records a test."""
        self.coverage.switch_context(item.nodeid)
        begun = cpu_seconds()
        entry = self.tests.setdefault(item.nodeid, {"outcome": "passed"})
        try:
            return (yield)
        finally:
            entry["seconds"] = round(cpu_seconds() - begun, 3)
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes what did not pass."""
        if report.outcome != "passed":
            self.tests[report.nodeid]["outcome"] = report.outcome


def record_part(folder: Path, part: str, files: list[str]) -> None:
    """Records some files of tests in this process, which ends."""
    coverage: Any = importlib.import_module("coverage")  # no dependency of the tests
    ini = str(folder / f"{part}.ini")
    cov = coverage.Coverage(config_file=ini)
    os.environ["COVERAGE_PROCESS_START"] = ini  # of processes that tests start; this one has its own
    recorder = Recorder(cov)
    cov.start()
    pytest.main(["-q", "--gate=first", "-o", "timeout=3000", *files], plugins=[recorder])
    cov.stop()
    cov.save()
    (folder / f"{part}.json").write_text(json.dumps(recorder.tests, indent=0), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def parts() -> dict[str, list[str]]:
    """Returns files of tests by the name of their part; the doctests of the product are one part."""
    sys.path.insert(0, str(ROOT / "tests"))
    gates: Any = importlib.import_module("gates")
    files = sorted(
        p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").glob("test_*.py") if p.stem not in gates.SECOND
    )
    found = {f"part{i // FILES_OF_PART:02}": files[i : i + FILES_OF_PART] for i in range(0, len(files), FILES_OF_PART)}
    return {
        "doctests": [
            "tests/gates.py",
            "dfc/losses",
            *(f"dfc/{m}.py" for m in ("advantages", "rewards", "curriculum", "fusion")),
        ],
        **found,
    }


def main() -> None:
    """Records what is not recorded yet."""
    folder = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        record_part(folder, sys.argv[2], sys.argv[3:])
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n", encoding="utf-8")
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    for part, files in parts().items():
        if (folder / f"{part}.json").exists():
            continue
        for left in (folder / "parts").glob(f"{part}.*"):
            left.unlink()
        ini = folder / f"{part}.ini"
        ini.write_text(CONFIGURATION.format(root=ROOT, folder=folder, part=part), encoding="utf-8")
        begun = time.monotonic()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "site"), *places])}
        command = [sys.executable, __file__, str(folder), part, *files]
        with (folder / f"{part}.log").open("w") as log:
            subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)  # noqa: S603
        print(
            part,
            "recorded" if (folder / f"{part}.json").exists() else "FAILED",
            f"{time.monotonic() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()

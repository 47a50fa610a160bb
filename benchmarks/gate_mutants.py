"""Tries whether the first gate of the tests guards: mutants of the product, each run against the tests that reach it.

    python benchmarks/gate_record.py RECORD
    python benchmarks/gate_mutants.py RECORD RESULTS [--seed=0] [--killed=30] [--seconds=240]

Run it from the root of a clone of its own, as it changes files there and puts them back; it may be stopped and started
again, and continues with what RESULTS (a JSON file) does not have. Mutants are drawn as `gate_mutations` says, until
``--killed`` of them are killed by all tests together. What is wanted: of 30 such the first gate kills at least 25.

The first gate. Of each file with a test that reaches the mutant's statement, and that is recorded, all tests that take
up to `WHOLE` seconds together, and of others the tests that reach it; what a whole file shares (compiled programs, a
run that many tests look at) is recorded under its first test only. Files that import the mutant's module come first,
then the cheapest; in one process after another, until a test fails, or until `--seconds` of tests have run. What runs
at import, such as a constant of a module or a default, has as its tests those that reach any line of its file.

The second gate, for what is left: its functions in files of tests that import the module, then in those with a test of
the first gate that reaches the module, cheapest first, within the same limit; with ``--against`` those that a person
names, such as runs of two processes for what is done with two processes only.

A mutant on which tests use more than ten times the processor that they need counts as killed.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gate_record
import pytest
from gate_mutations import Mutant, drawn

ROOT = Path.cwd()
WHOLE = 8.0  # seconds of a file of tests that is run whole
BATCHES = (15.0, 60.0)  # seconds of tests in the first processes of a mutant; later ones take as much as the last
START = 60  # seconds of processor that a process may need beside its tests


class Chosen:
    """A plugin of pytest: runs some tests, and remembers the first that failed."""

    def __init__(self, names: Iterable[str]) -> None:
        """Takes names of tests, or of whole files, or of functions with all their cases."""
        self.names = frozenset(names)
        self.failed = self.message = ""
        self.ran = 0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out the others."""
        kept = [i for i in items if {i.nodeid, i.nodeid.partition("[")[0], i.nodeid.partition("::")[0]} & self.names]
        chosen = set(map(id, kept))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes a file that cannot be imported."""
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a test that failed."""
        self.ran += report.when == "call"
        self._note(report)

    def _note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
            self.message = " ".join(str(report.longreprtext).split())[-200:]


def run_chosen(request: Path) -> None:
    """Runs the tests of a request in this process, which ends."""
    del sys.path[0]  # where this script lies
    asked = json.loads(request.read_text(encoding="utf-8"))
    chosen = Chosen(asked["names"])
    files = sorted({name.partition("::")[0] for name in asked["names"]})
    known = [file for file in files if file.startswith("tests/")] or ["tests/gates.py"]  # so that --gate is known
    options = ["-x", "-q", f"--gate={asked['gate']}", "-o", "timeout=1500"]
    try:
        pytest.main([*options, *known, *(file for file in files if file not in known)], plugins=[chosen])
    finally:  # after a test that failed, pytest may end with an error about what that left open
        found = {"failed": chosen.failed, "message": chosen.message, "ran": chosen.ran}
        request.with_suffix(".answer").write_text(json.dumps(found), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def run_tests(names: Sequence[str], gate: str, seconds: float) -> dict[str, Any]:
    """Returns the first test that failed, "" if none did, and how many ran.

    Args:
      names: of tests, functions or files.
      gate: "first" or "all".
      seconds: what they take.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = Path(folder, "request.json")
        request.write_text(json.dumps({"names": list(names), "gate": gate}), encoding="utf-8")
        most = int(START + 10 * seconds)
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(  # noqa: S603 - this script
            [sys.executable, __file__, "--chosen", str(request)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (most, most + 5)),
            check=False,
        )
        answer = request.with_suffix(".answer")
        if answer.exists():
            found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return found
        tail = run.stdout.decode(errors="replace")[-200:]
        return {"failed": "the process", "message": f"ended with {run.returncode}: {tail}", "ran": 0}


# ---- which tests -----------------------------------------------------------------------------------------------------


class Record:
    """What `gate_record` has recorded so far."""

    def __init__(self, folder: Path) -> None:
        """Reads it."""
        coverage = importlib.import_module("coverage")  # no dependency of the tests
        self.parts = sorted(folder.glob("*.json"))
        self.tests: dict[str, dict[str, Any]] = {}
        for part in self.parts:
            self.tests |= json.loads(part.read_text(encoding="utf-8"))
        names = {part.stem for part in self.parts}
        self._data = []
        for file in sorted((folder / "parts").iterdir()):
            if file.name.partition(".")[0] in names:
                self._data.append(coverage.CoverageData(basename=str(file)))
                self._data[-1].read()

    def reaching(self, file: str, lines: tuple[int, int] | None) -> set[str]:
        """Returns the tests that reach a line of a range, or any line, of a file; "" where no test runs."""
        found: set[str] = set()
        for data in self._data:
            for path in data.measured_files():
                if path.endswith(f"/{file}"):
                    for line, contexts in data.contexts_by_lineno(path).items():
                        if lines is None or lines[0] <= line <= lines[1]:
                            found |= {
                                context.rpartition(" (")[0] if context.endswith(")") and " (" in context else context
                                for context in contexts
                            }
        return {name if name in self.tests else "" for name in found}

    def seconds(self, name: str) -> float:
        """Returns the seconds of a test, or of all recorded ones of a file."""
        if name in self.tests:
            return float(self.tests[name]["seconds"])
        return sum(float(entry["seconds"]) for test, entry in self.tests.items() if test.startswith(f"{name}::"))


@functools.cache
def _imports(file: str) -> frozenset[str]:
    """Returns the modules that a file of tests imports."""
    sys.path.append(str(ROOT / "tests"))
    rules: Any = importlib.import_module("test_import_direction")
    path = ROOT / file
    return (
        frozenset(rules.imported(f"tests.{path.stem}", path.read_text(encoding="utf-8")))
        if path.exists()
        else frozenset()
    )


def imports_module(file: str, mutated: str) -> bool:
    """Returns whether a file of tests imports the module of a file of the product by name."""
    inner = mutated if mutated.startswith("dfc/") else f"dfc/{mutated}"
    module = inner.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return any(name == module or name.startswith(f"{module}.") for name in _imports(file))


def batches(places: Sequence[tuple[str, Sequence[str], float]], limit: float) -> Iterator[tuple[list[str], float]]:
    """Yields names of tests and their seconds, process by process, in the order given, up to a limit.

    Args:
      places: (file, names of tests, seconds).
      limit: of seconds in all; what is beyond it is left out, but for the first.
    """
    number, spent, names, seconds = 0, 0.0, list[str](), 0.0
    for _, some, needed in places:
        if spent + seconds + needed > limit and (spent or seconds):
            continue
        if names and seconds + needed > BATCHES[min(number, len(BATCHES) - 1)]:
            yield names, seconds
            number, spent, names, seconds = number + 1, spent + seconds, [], 0.0
        names, seconds = [*names, *some], seconds + needed
    if names:
        yield names, seconds


def of_first_gate(record: Record, mutant: Mutant) -> tuple[str, list[tuple[str, Sequence[str], float]]]:
    """Returns how a mutant is reached, and the places of tests to run, in order."""
    reached = record.reaching(mutant.file, None if mutant.at_import else mutant.lines)
    how = "nothing" if not reached - {""} else "import" if mutant.at_import else "tests"
    by_file = defaultdict(list)
    for name in sorted(reached - {""}):
        by_file[name.partition("::")[0]].append(name)
    places = []
    for file, names in by_file.items():
        whole = record.seconds(file)
        some, seconds = ([file], whole) if whole <= WHOLE else (names, sum(map(record.seconds, names)))
        places.append((file, some, seconds))
    return how, sorted(places, key=lambda place: (not imports_module(place[0], mutant.file), place[2]))


def of_second_gate(record: Record, mutant: Mutant) -> list[tuple[str, Sequence[str], float]]:
    """Returns the places of tests of the second gate to run, in order."""
    gates: Any = importlib.import_module("gates")
    taken: dict[str, float] = gates.measured()
    reached = {name.partition("::")[0] for name in record.reaching(mutant.file, None)}
    places = []
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        file = f"tests/{path.name}"
        functions = [
            name
            for name in taken
            if name.startswith(f"{path.stem}::") and gates.is_second(path.stem, name.split("::")[1], taken)
        ]
        names: list[str] = [f"tests/{name.replace('::', '.py::')}" for name in functions]
        seconds = sum(taken[name] for name in functions)
        near = imports_module(file, mutant.file) or any(helper in _helpers(mutant.file) for helper in _imports(file))
        if path.stem in gates.SECOND:
            names, seconds = [file], sum(value for name, value in taken.items() if name.startswith(f"{path.stem}::"))
        if names and (near or file in reached):
            places.append((near, file, names, max(1.0, seconds)))
    places.sort(key=lambda place: (not place[0], place[3]))
    return [(file, names, seconds) for _, file, names, seconds in places]


@functools.cache
def _helpers(mutated: str) -> frozenset[str]:
    """Returns the modules beside the tests that import the module of a file of the product."""
    return frozenset(
        path.stem for path in (ROOT / "tests").glob("*.py") if imports_module(f"tests/{path.name}", mutated)
    )


# ---- mutants ---------------------------------------------------------------------------------------------------------


def tried(record: Record, mutant: Mutant, limit: float, known: dict[str, Any], *, complete: bool) -> dict[str, Any]:
    """Returns the result of a mutant: "killed" by which gate and test, or "survived".

    Args:
      record: which tests reach what.
      mutant: the change.
      limit: seconds of tests of each gate.
      known: what a former call returned, with fewer parts recorded; tests that it ran are not run again.
      complete: whether all parts are recorded; if not, a mutant that the first gate does not kill waits.
    """
    how, places = of_first_gate(record, mutant)
    done = set(known.get("ran_first", ()))
    places = [(file, names, seconds) for file, names, seconds in places if file not in done]
    with put_in(mutant):
        entry: dict[str, Any] = {"reached_by": how, "parts": len(record.parts), "ran_first": sorted(done)}
        for gate, option in (("first", "first"), ("second", "all")):
            if gate == "second":
                places = of_second_gate(record, mutant)
            ran: set[str] = set(entry.get(f"ran_{gate}", ()))
            for names, seconds in batches(places, limit):
                found = run_tests(names, option, seconds)
                ran |= {name.partition("::")[0] for name in names}
                said = found["failed"] or "none failed"
                print(f"  {gate} gate, {len(names)} names, {seconds:.0f} s: {said}", flush=True)
                if found["failed"]:
                    return entry | {"outcome": "killed", "gate": gate, "test": said, "message": found["message"]}
            entry[f"ran_{gate}"] = sorted(ran)
            entry[f"left_out_{gate}"] = sorted({file for file, *_ in places} - ran)  # beyond the limit
            if gate == "first" and not complete:
                return entry | {"outcome": "waits for the record"}
        return entry | {"outcome": "survived"}


def tried_against(mutant: Mutant, names: Sequence[str]) -> dict[str, Any]:
    """Returns the result of a mutant when tests of the second gate that a person chose were run."""
    with put_in(mutant):
        found = run_tests(names, "all", 600)
    if not found["failed"]:
        return {"also_ran": sorted(names)}
    return {"outcome": "killed", "gate": "second", "test": found["failed"], "message": found["message"]}


@contextlib.contextmanager
def put_in(mutant: Mutant) -> Iterator[None]:
    """Changes the file of a mutant; puts it back afterwards."""
    path = ROOT / mutant.file
    source, times = path.read_bytes(), path.stat()
    path.write_bytes(mutant.applied(source))
    try:
        yield
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def main() -> None:
    """Tries mutants until enough are killed; writes each when it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="folder of gate_record.py")
    parser.add_argument("results", type=Path, help="JSON file")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--killed", type=int, default=30, help="how many mutants that all tests kill")
    parser.add_argument("--seconds", type=float, default=240, help="of tests of each gate that a mutant may take")
    parser.add_argument("--drawn", type=int, default=60, help="how many mutants are drawn at most")
    parser.add_argument("--against", help="one mutant alone, tests of the second gate", metavar="NUMBER=TEST,TEST")
    args = parser.parse_args()
    results = {"seed": args.seed, "mutants": []}
    if args.results.exists():
        results = json.loads(args.results.read_text(encoding="utf-8"))
    entries: list[dict[str, Any]] = results["mutants"]
    if args.against:
        number, names = args.against.split("=", 1)
        mutant = next(itertools.islice(drawn(ROOT, args.seed), int(number), None))
        entries[int(number)] |= tried_against(mutant, names.split(","))
        print(number, mutant.file, mutant.line, entries[int(number)])
        args.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        return
    record = Record(args.record)
    complete = {part.stem for part in record.parts} >= gate_record.parts().keys()
    for number, mutant in enumerate(itertools.islice(drawn(ROOT, args.seed), args.drawn)):
        if sum(entry["outcome"] == "killed" for entry in entries) >= args.killed:
            break
        known = entries[number] if number < len(entries) else {}
        if known.get("outcome") in {"killed", "survived"}:
            continue
        print(f"{number} {mutant.file}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}", flush=True)
        told = {name: value for name, value in dataclasses.asdict(mutant).items() if name not in {"start", "end"}}
        entries[number : number + 1] = [told | tried(record, mutant, args.seconds, known, complete=complete)]
        args.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    ends = Counter(entry.get("gate", entry["outcome"]) for entry in entries)
    print(f"{len(entries)} drawn; killed by the first gate {ends['first']}, by the second {ends['second']}")
    for entry in entries:
        if entry.get("gate") != "first":
            change = f"{entry['before']} -> {entry['after']}"
            print(f"{entry['file']}:{entry['line']}: {change}: {entry.get('test') or entry['outcome']}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--chosen"]:
        run_chosen(Path(sys.argv[2]))
    main()

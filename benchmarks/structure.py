"""Counts what the structure of the source is to show: lines, circles, and the files of one step of a method.

    python benchmarks/structure.py [--json] [--no-trace] [--method=FILE]

Run it before and after a change of structure: all figures follow from rules, none from a list of files.

Lines. Of every Python file under dfc/, games/, models/, launch/ and configs/, links left out; tests/ beside them. Each
line has one kind: *docstring*, *import* (all lines of the statement), *comment* (nothing else on it), *blank*, or
*code*. A comment behind code is code, a blank line inside a docstring is docstring, inside another text it is blank.

Imports. Modules that import each other in a circle, by imports anywhere in a file but under ``if TYPE_CHECKING``, and
but for the surface of ``import dfc``, which imports inside functions; imports upward as
``tests/test_import_direction.py`` defines them: those it objects to, and those it lets pass by name.

One step. Two runs of two iterations, of GRPO and of Language Self-Play, on the bundled model. Recorded is every
function of dfc that begins between the record of the first iteration's metrics and that of the second's, and those
that are running then; compiled programs are forgotten before, so that what is inside them runs, too. A person who
changes a step of the method opens the files of those functions that handle a value of the step: one of their names has
one of the words `WORDS` in it. To these come the files of their arguments' data classes and named tuples: what holds
such values, and settings. Left out are the rooms `GIVEN`: games, models and the sampler, which a method takes as they
are, and reports, which only show it. The rule knows words and no meaning: a game that was lost is a `loss` to it, too.
Beside the lines of the files stand the lines of the functions that ran and were counted.

An action's tokens. Files, of those that ran in the step of GRPO, all rooms but reports, that read, write or carry the
log-probabilities of the tokens from the sampler to the loss: they name the field `FIELD`, or a class that has it.

A method of your own. Lines of the file that ``--method`` names; 0 without one.
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("dfc", "games", "models", "launch", "configs")
KINDS = ("code", "docstring", "import", "comment", "blank")
LONGEST = 600  # lines of a file

WORDS = frozenset({"episode", "sample", "reward", "advantage", "logprob", "loss", "gradient"})
GIVEN = ("games", "models", "dfc/inference", "dfc/report")
FIELD = "sampled_logprobs"
# Configuration and overrides of the runs that are recorded.
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "GRPO": (
        "configs/paprika_grpo_tiny.py",
        (
            "iterations=2",
            "games={'TicTacToe-v0': {}, 'GuessTheNumber-v0': {}}",
            "tasks=0",
            "model.path=tiny_player",
            "rollout.max_length=256",
            "rollout.max_reply_length=4",
            "groups_per_game=2",
            "group_size=4",
            "evaluation.games=4",
        ),
    ),
    "Language Self-Play": ("configs/lsp_tiny.py", ("iterations=2",)),
}


# ---- lines -----------------------------------------------------------------------------------------------------------


def python_files(*folders: str) -> list[Path]:
    """Returns the files of some folders, relative to the repository; links are not followed."""
    found = []
    for folder in folders:
        for directory, _, names in os.walk(ROOT / folder):
            found += [Path(directory, name).relative_to(ROOT) for name in names if name.endswith(".py")]
    return sorted(found)


def kinds_of_lines(source: str) -> Counter[str]:
    """Returns how many lines a source has of each of `KINDS`."""
    lines = source.splitlines()
    kinds = ["blank" if not line.strip() else "code" for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            kinds[token.start[0] - 1] = "comment"
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom():
                kind, first, last = "import", node.lineno, node.end_lineno
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
            ):
                kind, first, last = "docstring", text.lineno, text.end_lineno
            case (
                ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
            ):
                kind, first, last = "docstring", text.lineno, text.end_lineno
            case _:
                continue
        kinds[first - 1 : last] = [kind] * ((last or first) - first + 1)
    return Counter(kinds)


def lines_of(files: Iterable[Path]) -> dict[str, int]:
    """Returns files, lines and lines of each kind."""
    files = list(files)
    kinds = sum((kinds_of_lines((ROOT / file).read_text(encoding="utf-8")) for file in files), Counter[str]())
    return {"files": len(files), "lines": kinds.total(), **{kind: kinds[kind] for kind in KINDS}}


def length(file: Path) -> int:
    """Returns the lines of a file."""
    return len((ROOT / file).read_text(encoding="utf-8").splitlines())


# ---- imports ---------------------------------------------------------------------------------------------------------


def _directions() -> Any:  # noqa: ANN401 - a module of the tests
    """Returns the test that knows the layers, as a module."""
    sys.path.append(str(ROOT / "tests"))
    try:
        return importlib.import_module("test_import_direction")
    finally:
        sys.path.remove(str(ROOT / "tests"))


def without_types(source: str) -> str:
    """Returns a source without what stands under ``if TYPE_CHECKING``, which never runs."""
    if "TYPE_CHECKING" not in source:
        return source

    class Remover(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST:
            self.generic_visit(node)
            if ast.unparse(node.test).endswith("TYPE_CHECKING"):
                node.body = [ast.Pass()]
            return node

    return ast.unparse(Remover().visit(ast.parse(source)))


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Returns the circles of a graph: its strongly connected components of more than one node.

    Args:
      arrows: node -> nodes it points to.
    """
    reached = {start: _reached(start, arrows) for start in arrows}
    found = {
        frozenset({start, *(other for other in beyond if start in reached.get(other, ()))})
        for start, beyond in reached.items()
        if start in beyond
    }
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def _reached(start: str, arrows: Mapping[str, Iterable[str]]) -> set[str]:
    """Returns what is reached by one arrow or more."""
    found: set[str] = set()
    left = [start]
    while left:
        new = set(arrows.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def imports() -> dict[str, Any]:
    """Returns circles of modules, imports that are objected to, and upward ones that are allowed by name."""
    rules = _directions()
    product = {name: path for name, path in rules.sources() if not name.startswith(("tests", "benchmarks"))}
    arrows, refused, allowed = {}, [], []
    for name, path in product.items():
        source, package = path.read_text(encoding="utf-8"), path.name == "__init__.py"
        every = set(rules.imported(name, source, is_package=package))
        running, bare = every, without_types(source)
        if bare != source:
            running = set(rules.imported(name, bare, is_package=package))
        others = {_module(target, product) for target in running if (name, target) != rules.SURFACE}
        arrows[name] = others - {name, ""}
        refused += [f"{name} -> {target}" for target in sorted(every) if rules.objection(name, target)]
        allowed += [f"{name} -> {target}" for target in sorted(every) if _by_name(name, target, rules)]
    return {"circles": circles(arrows), "upward": refused, "upward_by_name": allowed}


def _module(target: str, modules: Mapping[str, Any]) -> str:
    """Returns the module that an import of ``a.b`` runs: ``a.b`` or, where that is a name in it, ``a``."""
    return target if target in modules else parent if (parent := target.rpartition(".")[0]) in modules else ""


def _by_name(name: str, target: str, rules: Any) -> bool:  # noqa: ANN401 - a module
    """Returns whether a rule of layers forbids an import and names it as an exception."""
    return any(
        why.startswith("is above")
        and rules.within(name, *importers)
        and rules.within(target, *forbidden)
        and rules.within(target, *exceptions)
        for importers, forbidden, exceptions, why in rules.RULES
    )


# ---- one step --------------------------------------------------------------------------------------------------------


class Recorder:
    """Records the functions of dfc that begin between the metrics of a run's first and second iteration."""

    def __init__(self) -> None:
        """Waits for the first record of metrics."""
        self.functions: dict[CodeType, dict[str, Any]] = {}
        self._files: dict[str, str] = {}
        self._records = 0

    def __call__(self, frame: FrameType, _event: str, _argument: object) -> None:
        """Is told of every function that begins, by ``sys.settrace``."""
        if self._records == 1:
            self._add(frame)

    def metrics(self) -> None:
        """Is told that an iteration's metrics are recorded."""
        import jax  # noqa: PLC0415 - in the process that runs a recipe only

        self._records += 1
        if self._records > 1:
            return
        jax.clear_caches()  # type: ignore[no-untyped-call]  # jax leaves it untyped
        frame = inspect.currentframe()
        while frame is not None:
            self._add(frame)
            frame = frame.f_back

    def _add(self, frame: FrameType) -> None:
        code = frame.f_code
        if code in self.functions or not (file := self._file(code.co_filename)):
            return
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        kinds = [kind for name in given if _is_record(kind := type(frame.f_locals.get(name)))]
        sources = [self._file(getattr(sys.modules.get(kind.__module__), "__file__", None) or "") for kind in kinds]
        self.functions[code] = {
            "file": file,
            "function": code.co_qualname,
            "lines": sorted({line for *_, line in _all_lines(code) if line}),
            "names": sorted({*code.co_varnames, *code.co_names, *code.co_freevars, *code.co_cellvars}),
            "containers": sorted({source for source in sources if source}),
        }

    def _file(self, name: str) -> str:
        """Returns a file of the product relative to the repository, and "" of others."""
        if name not in self._files:
            path = Path(os.path.realpath(name))
            inner = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path()
            ours = inner.parts[:1] and inner.parts[0] in PRODUCT and path.suffix == ".py" and path.exists()
            self._files[name] = inner.as_posix() if ours else ""
        return self._files[name]


def _is_record(kind: type) -> bool:
    """Returns whether a class is a data class or a named tuple."""
    return dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")


def _all_lines(code: CodeType) -> Iterator[tuple[int, int, int | None]]:
    """Yields lines of a function and of those inside it."""
    yield from code.co_lines()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _all_lines(inner)


def record(configuration: str, overrides: Iterable[str], folder: str, answer: Path) -> None:
    """Runs a configuration in this process and writes the functions of its second iteration."""
    from dfc.runs.run_folder import RunFolder  # noqa: PLC0415 - in the process that runs a recipe only

    recorder, append = Recorder(), RunFolder.append

    def noted(self: RunFolder, stream: Any, records: Iterable[Mapping[str, Any]]) -> None:  # noqa: ANN401 - a name
        if stream == "metrics":
            recorder.metrics()
        append(self, stream, records)

    RunFolder.append = noted  # type: ignore[method-assign]  # for this process
    threading.settrace(recorder)
    sys.settrace(recorder)
    sys.argv = ["dfc.launch", f"--config={configuration}", f"--workdir={folder}"]
    sys.argv += [f"--config.{override}" for override in overrides]
    try:
        runpy.run_module("dfc.launch", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    sys.settrace(None)
    answer.write_text(json.dumps(list(recorder.functions.values())), encoding="utf-8")


def recorded(name: str) -> list[dict[str, Any]]:
    """Returns the functions of one step of a run of `RUNS`, recorded in a process of its own.

    Raises:
      SystemExit: the run failed; with what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "functions.json")
        words = [sys.executable, __file__, f"--record={name}", f"--folder={folder}"]
        python_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": python_path, "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
        run = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if not answer.exists():
            raise SystemExit(f"{name}: the run ended with {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-4000:]}")
        functions: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
        return functions


def words_of(name: str) -> set[str]:
    """Returns the words of an identifier in small letters, of plurals the singular, too."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return words | {word.removesuffix("s") for word in words}


def given(file: str) -> bool:
    """Returns whether a file lies in one of the rooms `GIVEN`."""
    return any(file.startswith(f"{room}/") for room in GIVEN)


def step_files(functions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the files that one opens to change a step, and how many of their lines are in functions that ran.

    Args:
      functions: of a step, as `Recorder.functions` has them.
    """
    ran: dict[str, set[int]] = defaultdict(set)
    for function in functions:
        if not given(function["file"]) and any(words_of(name) & WORDS for name in function["names"]):
            ran[function["file"]].update(function["lines"])
            for container in function["containers"]:
                if not given(container):
                    ran.setdefault(container, set())
    return {file: len(ran[file]) for file in sorted(ran)}


def token_files(functions: Iterable[Mapping[str, Any]], every: Iterable[Path]) -> list[str]:
    """Returns the files of a step that an action's tokens pass, from the sampler to the loss.

    Args:
      functions: of a step, as `Recorder.functions` has them.
      every: the files of the product, among which those are that declare the classes.
    """
    trees = {file.as_posix(): ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in every}
    names = {FIELD} | {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and FIELD in _fields(node)
    }
    ran = {file for function in functions for file in (function["file"], *function["containers"])}
    return sorted(file for file in ran if not file.startswith("dfc/report/") and names & set(_identifiers(trees[file])))


def _fields(node: ast.ClassDef) -> set[str]:
    """Returns the attributes that a class declares, in its body or by assignments to ``self``."""
    declared = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    stored = {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self"
    }
    return declared | stored


def _identifiers(tree: ast.AST) -> Iterator[str]:
    """Yields what a file names, annotations too, as what is handed on has its class there; not imports alone."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


# ---- the answer ------------------------------------------------------------------------------------------------------


def figures(*, trace: bool, method: str) -> dict[str, Any]:
    """Returns all figures.

    Args:
      trace: whether steps of methods are recorded, which takes two minutes.
      method: the file of a method of your own; may be empty, or not exist yet.
    """
    product = python_files(*PRODUCT)
    found: dict[str, Any] = {
        "product": lines_of(product),
        "tests": lines_of(python_files("tests")),
        "long_files": {file.as_posix(): length(file) for file in product if length(file) > LONGEST},
        **imports(),
        "method_lines": length(Path(method).resolve()) if method and Path(method).is_file() else 0,
    }
    if trace:
        functions = {name: recorded(name) for name in RUNS}
        found["steps"] = {name: _step(step_files(ran)) for name, ran in functions.items()}
        passed = token_files(functions["GRPO"], product)
        found["token_files"] = {file: length(Path(file)) for file in passed}
    return found


def _step(files: Mapping[str, int]) -> dict[str, Any]:
    lengths = {file: length(Path(file)) for file in files}
    return {
        "files": len(files),
        "lines": sum(lengths.values()),
        "lines_of_functions": sum(files.values()),
        "folders": len({str(Path(file).parent) for file in files}),
        "names": lengths,
    }


def table(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the figures as rows of a table."""
    rows = []
    for part in ("product", "tests"):
        counts = found[part]
        kinds = ", ".join(f"{kind} {counts[kind]:,}" for kind in KINDS)
        rows.append((f"{part}: lines in files", f"{counts['lines']:,} in {counts['files']}: {kinds}"))
    long = ", ".join(f"{file} {lines}" for file, lines in found["long_files"].items())
    rows += [
        (f"files above {LONGEST} lines", f"{len(found['long_files'])}  {long}".rstrip()),
        ("circles of imports", f"{len(found['circles'])}  {found['circles'] or ''}".rstrip()),
        ("imports upward", f"{len(found['upward'])}, and {len(found['upward_by_name'])} allowed by name"),
    ]
    for name, step in found.get("steps", {}).items():
        ran = f"{step['lines_of_functions']:,} of them in functions that ran"
        value = f"{step['files']} files in {step['folders']} folders, {step['lines']:,} lines, {ran}"
        rows.append((f"one step of {name}", value))
    if "token_files" in found:
        rows.append(("an action's tokens pass", f"{len(found['token_files'])} files"))
    return [*rows, ("a method of your own", f"{found['method_lines']} lines")]


def main() -> None:
    """Prints the table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="everything, with the names of files")
    parser.add_argument("--no-trace", action="store_true", help="without the steps, which take two minutes")
    parser.add_argument("--method", default="", help="file of a method of your own", metavar="FILE")
    parser.add_argument("--record", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record:
        record(*RUNS[args.record], f"{args.folder}/run", Path(args.folder, "functions.json"))
        return
    found = figures(trace=not args.no_trace, method=args.method)
    if args.json:
        print(json.dumps(found, indent=1))
        return
    rows = table(found)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


if __name__ == "__main__":
    main()

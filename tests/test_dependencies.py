"""What is imported is declared in pyproject.toml, and what is declared is used."""

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ("dfc", "models", "games", "launch", "configs")  # what the wheel holds
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

# Extra -> the only files that may import its packages at their top: whoever imports those does so inside a function.
ROOMS = {
    "clembench": ("dfc/tools/clembench/", "games/adapters/clembench_session.py"),
    "gguf": ("models/gguf_files.py",),
    "math": (),
    "serve": ("dfc/tools/serving/",),
    "textarena": (),
}
# Imported without being declared, and why.
UNDECLARED = {
    ("models/verification.py", "torch"): "compares with transformers' own model where the user has torch",
    **{
        (
            f"benchmarks/{file}.py",
            "coverage",
        ): "records which tests reach a line; installed as its docstring says"
        for file in ("gate_mutants", "gate_record")
    },
    **{
        (f"benchmarks/{file}.py", name): "a file of tests, which the script puts on its path"
        for file, name in (
            ("gate_mutants", "gates"),
            ("gate_mutants", "test_import_direction"),
            ("gate_record", "gates"),
            ("structure", "test_import_direction"),
        )
    },
    **{
        (file, name): "the target that makes its environment names it: make agreement-trl"
        for file in (
            "tests/agreement_trl.py",
            "benchmarks/grpo_iteration_trl.py",
            "benchmarks/offline_training_trl.py",
        )
        for name in ("datasets", "trl")
    },
    **{
        (file, "matplotlib"): "draws the figures of a results page, where matplotlib is installed"
        for file in (
            "benchmarks/dfc_study_figures.py",
            "benchmarks/lsp_study_results.py",
            "benchmarks/paprika_study_results.py",
            "benchmarks/rollout_growth.py",
        )
    },
}
# Declared without being imported, and why.
NOT_IMPORTED = {
    "pyspellchecker": "importlib.resources reads its list of English words",
    "protobuf": "sentencepiece's sentencepiece_model_pb2 imports it, and sentencepiece does not declare it",
    "build": "run as a command when a change lands",
    "mypy": "make types",
    "pytest-timeout": "pytest's plugin: timeout in pyproject.toml",
    "pytest-xdist": "pytest's plugin: --numprocesses in the Makefile",
    "ruff": "make lint",
}


def imports(source):
    """The top-level names that a file imports, each with whether only a function does so."""
    found = []

    def check_stop(node, inside):
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Import(names=aliases):
                    found.extend((alias.name, inside) for alias in aliases)
                case ast.ImportFrom(module=str(module), level=0):
                    found.append((module, inside))
                case ast.Call(
                    func=ast.Attribute(attr="import_module" | "importorskip") | ast.Name(id="__import__"),
                    args=[ast.Constant(value=str(module)), *_],
                ):
                    found.append((module, inside))
            check_stop(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    check_stop(ast.parse(source), inside=False)
    return {(name.split(".")[0], inside) for name, inside in found}


def files(*folders):
    """Every file of some folders by its name from the root; dfc/games and its like are links, and are left out."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path.relative_to(ROOT).as_posix(), path


@functools.cache
def imports_of_files():
    """(file, name, whether only inside a function) of all that is neither Python's own nor of this repository."""
    found = []
    for file, path in files(*PACKAGE, "tests", "benchmarks"):
        for name, inside in imports(path.read_text()):
            beside = [path.parent, *([ROOT / "benchmarks"] if file.startswith("tests/") else [])]  # tests import both
            ours = name == "dfc" or any((folder / f"{name}.py").exists() for folder in beside)
            if name not in sys.stdlib_module_names and not ours:
                found.append((file, name, inside))
    return tuple(found)


def foreign(*folders):
    return [found for found in imports_of_files() if found[0].split("/")[0] in folders]


def distributions(requirements):
    """The canonical names of requirements."""
    return {canonicalize_name(Requirement(text).name) for text in requirements}


@functools.cache
def provided():
    """Distribution -> the names under which it is imported, as installed here; its own name where it is not."""
    found = {}
    for name, providers in importlib.metadata.packages_distributions().items():
        for provider in providers:
            found.setdefault(canonicalize_name(provider), set()).add(name)
    declared = distributions([*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)])
    return {name: found.get(name, {name.replace("-", "_")}) for name in declared}


def names(requirements):
    """What some requirements let one import."""
    return {name for wanted in distributions(requirements) for name in provided()[wanted]}


def undeclared(found):
    """What is wrong with imports (file, name, only inside a function) of the package."""
    core = names(PROJECT["dependencies"])
    extras = {extra: names(EXTRAS[extra]) for extra in ROOMS}
    for file, name, inside in found:
        if name in core or (file, name) in UNDECLARED:
            continue
        holders = [extra for extra in ROOMS if name in extras[extra]]
        if not holders:
            yield f"{file} imports {name}, which pyproject.toml does not declare"
        elif not inside and not any(file.startswith(room) for extra in holders for room in ROOMS[extra]):
            yield f"{file} imports {name} of the extra {holders[0]} at its top: import it inside a function"


def test_the_package_imports_what_it_declares_and_extras_only_where_they_are_wanted():
    assert list(undeclared(foreign(*PACKAGE))) == []


def test_tests_and_benchmarks_import_what_is_declared():
    known = names([*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)])
    wanted = {(file, name) for file, name, _ in foreign("tests", "benchmarks")} - UNDECLARED.keys()
    beside = {"helpers"}  # of the folder of a game of one's own
    assert sorted(f"{file}: {name}" for file, name in wanted if name not in known | beside) == []


def test_what_is_declared_is_imported_or_says_why_not():
    imported = {name for _, name, _ in foreign(*PACKAGE)}
    used = imported | {name for _, name, _ in foreign("tests", "benchmarks")}
    of = provided()
    for requirements, where in ((PROJECT["dependencies"], imported), (EXTRAS["test"], used)):
        idle = {name for name in distributions(requirements) if not of[name] & where}
        assert idle - NOT_IMPORTED.keys() == set()
    assert {name for name in NOT_IMPORTED if of[name] & used} == set(), "imported after all"


def test_every_exception_is_one():
    """A reason that nothing needs any more goes."""
    found = {(file, name) for file, name, _ in foreign(*PACKAGE, "tests", "benchmarks")}
    assert UNDECLARED.keys() <= found
    assert NOT_IMPORTED.keys() <= provided().keys()


def test_every_dependency_has_its_reason_in_the_build_notes():
    section = (ROOT / "BUILD_NOTES.md").read_text().partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    reasoned = {canonicalize_name(name) for name in re.findall(r"\*\*([\w-]+)\*\*", section)}
    declared = distributions([*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)])
    assert reasoned == declared - {"dfc"}  # an extra may ask for another one of dfc's


def test_test_packages_of_a_target_of_its_own_are_in_its_recipe():
    recipe = re.search(r"^agreement-trl:\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert {"trl", "datasets"} <= {name.split("=")[0].rstrip(">") for name in re.findall(r"'([^']+)'", recipe)}


# ---- the checks see what they are for ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (("dfc/a.py", "filelock", True), "does not declare"),  # comes with others, and is there
        (("dfc/a.py", "starlette", False), "of the extra serve at its top"),
        (("dfc/a.py", "starlette", True), None),
        (("dfc/tools/serving/a.py", "starlette", False), None),
        (("models/hub.py", "torch", True), "does not declare"),
    ],
)
def test_a_wrong_import_is_seen(found, expected):
    said = list(undeclared([found]))
    assert said == [] if expected is None else expected in said[0]


def test_imports_are_found_wherever_they_stand():
    source = "import a.b\ndef f():\n    from c.d import e\n    import_module('x')\n    importlib.import_module('g.h')\n"
    assert imports(source) == {("a", False), ("c", True), ("g", True)}
    assert imports("from . import sibling\nif x:\n    import y") == {("y", False)}

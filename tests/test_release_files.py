"""What is released: constraints.txt and the make target that writes it, the packages of the wheel."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def pinned():
    """Name -> version of constraints.txt, whose other lines are comments."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def test_constraints_hold_every_dependency_within_its_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = pinned()
    for text in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        requirement = Requirement(text)
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), text


def test_constraints_name_nothing_of_this_machine():
    assert "dfc" not in pinned()
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pinned().values())


def test_the_wheel_has_every_package_folder():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    places = {name: ROOT / folder for name, folder in setuptools["package-dir"].items()}
    listed = {places.get(name, ROOT / name.replace(".", "/")).resolve() for name in setuptools["packages"]}
    there = {
        file.parent.resolve()
        for room in ("dfc", "configs", "games", "launch", "models")
        for file in (ROOT / room).rglob("*.py")
    }
    assert there == listed

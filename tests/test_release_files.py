"""What is released: constraints.txt and the environment that the Makefile makes of it, the packages of the wheel."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


TOO_OLD = "#!/bin/sh\nexit 1\n"  # a Python that answers no to whether it is new enough


def pinned(text=None):
    """Name -> version of constraints.txt, or of such a text, whose other lines are comments."""
    text = (ROOT / "constraints.txt").read_text() if text is None else text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def other_versions(versions):
    """What of some pinned versions is not what is installed; `+cpu` and the like name a build of a version."""
    installed = {canonicalize_name(found.name): found.version for found in importlib.metadata.distributions()}
    return sorted(
        f"{name} {installed.get(name, 'is missing')}, pinned {version}"
        for name, version in versions.items()
        if installed.get(name, "").split("+")[0] != version
    )


def test_constraints_hold_every_dependency_within_its_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = pinned()
    for text in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        requirement = Requirement(text)
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), text


def test_constraints_name_nothing_of_this_machine():
    assert "dfc" not in pinned()
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pinned().values())


def test_the_tests_run_with_the_versions_of_constraints():
    made_with = Path(sys.prefix) / ".test"  # `make test` leaves the file there that it has installed by
    if not made_with.is_file() or not made_with.read_text():
        pytest.skip("not an environment that `make test` has made with constraints.txt: whatever is here is used")
    if made_with.read_text() != (ROOT / "constraints.txt").read_text():
        pytest.skip("constraints.txt has changed since this environment was made; `make test` installs what it says")
    assert other_versions(pinned()) == [], "rm .venv/.test; make test  # or, for newer ones: make constraints test"


def test_another_version_than_the_pinned_one_is_seen():
    here = importlib.metadata.version("pytest")
    assert other_versions({"pytest": here}) == []
    found = other_versions({"pytest": "0.1", "no-such-package": "1.0"})
    assert found == ["no-such-package is missing, pinned 1.0", f"pytest {here}, pinned 0.1"]


@pytest.fixture
def checkout(tmp_path):
    """A folder with the Makefile and what its first two targets look at; python and pip write down what they are told.

    Returns a function that runs a target and gives its exit code and what was told.
    """
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    told = tmp_path / "told"
    python = tmp_path / "python"
    # Answers questions as this Python does, but makes no environment other than a copy of itself and installs nothing.
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        f'echo "$@" >> {told}\n[ "$2" = venv ] || exit 0\nfor last; do :; done\n'
        f"mkdir -p $last/bin && cp {python} $last/bin/python\n"
    )
    python.chmod(0o755)

    def made(target, python=python):
        told.write_text("")
        command = ["make", target, f"PYTHON={python}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - make
        return done.returncode, told.read_text().splitlines(), done.stdout + done.stderr

    return made


def test_the_tests_environment_is_installed_by_constraints_and_says_so(checkout, tmp_path):
    code, told, _ = checkout(".venv/.test")
    pinned_here = (sys.platform, *sys.version_info[:2]) == ("linux", 3, 11)
    file = "constraints.txt" if pinned_here else "/dev/null"
    assert code == 0
    assert re.fullmatch(rf"launch/install.py about .* --constraint {file} --editable .\[test\]", told[-1])
    expected = (ROOT / "constraints.txt").read_text() if pinned_here else ""
    assert (tmp_path / ".venv" / ".test").read_text() == expected
    assert checkout(".venv/.test")[1] == []  # nothing has changed
    (tmp_path / "constraints.txt").write_text("numpy==2.0\n")
    assert len(checkout(".venv/.test")[1]) == 1  # installed anew


ENVIRONMENTS = {  # of every target that makes one
    "newest-jax": ".venv-newest-jax",
    "constraints": ".venv-constraints",
    "aot": ".venv-aot",
    "agreement": ".venv-agreement",
    "agreement-trl": ".venv-trl",
    "agreement-clembench": ".venv-clembench",
    "agreement-lm-eval": ".venv-lm-eval",
}


def test_every_target_that_makes_an_environment_is_known_here():
    made = re.findall(r"^\t\$\(call environment,(\S+?),", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(made) == sorted(["$(VENV)", *ENVIRONMENTS.values()])
    assert (ROOT / "Makefile").read_text().count("-m venv ") == 1  # of the one rule


@pytest.mark.parametrize(("target", "folder"), ENVIRONMENTS.items())
def test_every_environment_asks_for_a_python_that_can_be_used_before_it_is_made(checkout, tmp_path, target, folder):
    (tmp_path / "old").write_text(TOO_OLD)
    (tmp_path / "old").chmod(0o755)
    code, told, said = checkout(target, tmp_path / "old")
    assert (code, told) == (2, [])
    assert re.search(rf" Python 3\.\d+ .*, which {tmp_path / 'old'} is not; name one: make {target} PYTHON=", said)
    assert not (tmp_path / folder).exists()


def test_an_environment_of_another_version_of_python_is_made_anew(checkout, tmp_path):
    for number, start in enumerate(("--clear ", "", "--clear ")):
        if number == 2:
            (tmp_path / ".venv-aot" / "bin" / "python").write_text("#!/bin/sh\necho '(3, 9)'\n")
        assert checkout("aot")[1][0] == f"-m venv {start}.venv-aot"


def test_the_installation_says_first_what_comes_and_how_far_it_is(tmp_path):
    pip = "Collecting a\n  Downloading a-1-py3-none-any.whl.metadata (2 kB)\n"
    pip += "".join(f"  Downloading p{i}-1-py3-none-any.whl (2.1 MB)\n" for i in range(11))
    pip += "  Using cached q-1-py3-none-any.whl (1 kB)\nProcessing /x/r-1-py3-none-any.whl\n"
    pip += "Installing collected packages: a, b, c\nSuccessfully installed a-1 b-1 c-1\n"
    code = "import sys; sys.stdout.write(open('said').read()); sys.exit(int(open('code').read()))"
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(code)
    command = [sys.executable, str(ROOT / "launch" / "install.py"), "3 packages, 1 GB, 2 minutes", "--editable", "."]

    def said(status):
        (tmp_path / "said").write_text(pip)
        (tmp_path / "code").write_text(str(status))
        environment = {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - ours
        assert done.returncode == status
        return done.stdout

    lines = said(0).splitlines()
    assert lines == [
        f"installing into {sys.prefix}: 3 packages, 1 GB, 2 minutes",
        "  10 packages fetched",
        "  13 packages fetched; unpacking and installing 3 ...",
        "  installed",
    ]
    assert said(1).endswith("Installing collected packages: a, b, c\nSuccessfully installed a-1 b-1 c-1\n")


def test_an_environment_of_a_python_that_is_too_old_is_made_anew(checkout, tmp_path):
    assert checkout(".venv/.install")[1][0] == "-m venv --clear .venv"  # nothing there to clear
    (tmp_path / ".venv" / ".install").unlink()
    assert checkout(".venv/.install")[1][0] == "-m venv .venv"  # what the user has installed there stays
    (tmp_path / ".venv" / ".install").unlink()
    (tmp_path / ".venv" / "bin" / "python").write_text(TOO_OLD)
    assert checkout(".venv/.install")[1][0] == "-m venv --clear .venv"


def test_a_python_that_is_too_old_makes_no_environment(checkout, tmp_path):
    (tmp_path / "old").write_text(TOO_OLD)
    (tmp_path / "old").chmod(0o755)
    code, told, said = checkout("quickstart", tmp_path / "old")
    assert (code, told) == (2, [])
    assert f"needs Python 3.11 or newer, which {tmp_path / 'old'} is not; name one: make quickstart PYTHON=" in said
    assert not (tmp_path / ".venv").exists()


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

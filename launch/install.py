"""Installs with pip, and prints its progress on few lines: ``python launch/install.py "about 65 packages, ..." WORDS``.

For the Makefile, before anything of dfc can be imported: standard library only.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence

_EVERY = 10  # packages between two lines
# A package on the network, in pip's cache, or on this disk; its description alone (.whl.metadata) is none.
_FETCHED = re.compile(r"\s*(?:Downloading|Using cached|Processing) \S+\.(?:whl|tar\.gz)(?= |$)")
_LAST = 15  # lines of pip shown where it fails


def progress(lines: Iterable[str]) -> Iterator[str]:
    """Yields a line now and then for what pip prints: after every tenth package, and when it begins to install."""
    packages = 0
    for line in lines:
        if _FETCHED.match(line):
            packages += 1
            if packages % _EVERY == 0:
                yield f"  {packages} packages fetched"
        elif line.startswith("Installing collected packages: "):
            yield f"  {packages} packages fetched; unpacking and installing {line.count(',') + 1} ..."
        elif line.startswith("Successfully installed "):
            yield "  installed"


def main(words: Sequence[str]) -> int:
    """Runs ``pip install`` with the words after the first, which is the announcement; returns pip's exit code."""
    what, *rest = words
    sys.stdout.write(f"installing into {sys.prefix}: {what}\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", *rest]
    said: list[str] = []
    # What it complains about passes on standard error.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as pip:  # noqa: S603 - pip
        for line in progress(_noted(pip.stdout or (), said)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    if pip.returncode:
        sys.stdout.writelines(said[-_LAST:])
    return pip.returncode


def _noted(lines: Iterable[str], said: list[str]) -> Iterator[str]:
    for line in lines:
        said.append(line)
        yield line


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

"""Commands that are printed to be pasted: they name the Python that runs now, which need not be on the PATH."""

import shlex
import sys


def shell_line(module: str, *words: str) -> str:
    """Returns the line for a shell that runs a module with this Python: ``/PATH/TO/python -m MODULE WORDS``.

    Each of the words is quoted where a shell needs that.
    """
    return shlex.join([sys.executable or "python", "-m", module, *words])

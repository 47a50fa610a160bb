"""Commands that are printed to be pasted: they name the Python that runs now, which need not be on the PATH."""

import shlex
import sys


def shell_line(module: str, *words: str) -> str:
    """Returns the line for a shell that runs a module of dfc with this Python: ``/PATH/TO/python -m MODULE WORDS``.

    Args:
      module: such as ``dfc.launch``.
      *words: what follows it, each quoted where a shell needs that.
    """
    return shlex.join([sys.executable or "python", "-m", module, *words])

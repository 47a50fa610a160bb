"""Custom code that a run calls (rewards, games, players, methods): how its errors are reported; it ends no process.

``sys.exit`` raises SystemExit, which is no `Exception`: unless it is handled as an error, a process ends with the
exit code that it names, 0 by default, as if all were done.
"""

import contextlib
from collections.abc import Iterator

from dfc.errors import ExitError, cut, error_text
from dfc.games import loading
from dfc.players import key_search

_HINT = "a run ends when its work is done: return a value, or raise an error that says what is wrong"
_LONGEST = 4000  # characters of an error's text; what is to be done about an endpoint takes a thousand


def told(error: BaseException) -> str:
    """Returns the kind, the text and the place of an error that custom code raised, on one line, without keys."""
    if isinstance(error, SystemExit):
        what = f"called sys.exit({'' if error.code is None else repr(error.code)})"
    else:
        text = cut(" ".join(error_text(error).split()), _LONGEST)
        what = f"raised {type(error).__name__}{': ' if text else ''}{text}"
    return key_search.redacted_by_environment(f"{what}{loading.error_place(error)}")


@contextlib.contextmanager
def no_exit(name: str) -> Iterator[None]:
    """Raises an `ExitError` where what is called inside the block calls ``sys.exit``.

    The name is that of the setting or player that names the code, and begins the error; inner blocks are the more
    special.

    Raises:
      ExitError: names the setting, the code of the exit, the file and the line.
    """
    try:
        yield
    except SystemExit as error:
        raise ExitError(f"{name} {told(error)}; {_HINT}") from error

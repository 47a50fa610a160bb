"""Custom functions, named by their place: ``FILE.py:NAME`` or ``module:NAME``."""

import functools
from collections.abc import Callable
from typing import Any

from dfc.games import loading

_LISTED = 20  # functions of a file in a message


@functools.cache
def named(name: str) -> Callable[..., Any] | None:
    """Returns the function that a name means, the same as long as the process lives; None for the empty name.

    A file that is edited while a run trains would change its rewards from one iteration to the next.

    Raises:
      ValueError: there is none; says what was expected.
    """
    if not name:
        return None
    place = loading.place_of(name)
    if place is None:
        raise ValueError("must be FILE.py:NAME or module:NAME")
    module = loading.module_at(place[0], "name an existing file or module")
    found = getattr(module, place[1], None)
    if not callable(found):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        ]
        listed = f"; it has {', '.join(own[:_LISTED])}" if own else ""
        raise ValueError(f"{place[0]} has no function {place[1]!r}{listed}")  # noqa: TRY004 - of a name, not of a value
    function: Callable[..., Any] = found
    return function

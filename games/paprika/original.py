"""Reads scenarios that a user has of the original releases: Paprika's task files and LMRL-Gym's lists.

Nothing of those releases is part of this package. Paprika keeps one JSON object per group: prompts (not used here) and
the lists ``train``, ``eval`` and ``LMRL-Gym`` of ``{"agent": ..., "env": ...}``. LMRL-Gym keeps one object per line
with its spellings between semicolons, and cities as ``rank; city; country; population`` below a header.
"""

import functools
import json
import pathlib
import re
from collections.abc import Mapping

from dfc.games.paprika.scenario import Scenario

_SPLITS = {"train": "train", "eval": "test", "LMRL-Gym": "lmrl_gym"}  # theirs -> ours
GROUPS = ("TwentyQuestions", "GuessMyCity", "CustomerService", "MurderMystery")
_LISTS = GROUPS[:2]  # groups of which LMRL-Gym has a list
_CITY_COLUMNS = 4


def load(path: str, group: str) -> Mapping[str, tuple[Scenario, ...]]:
    """Returns the scenarios of a file by split, in the file's order; a file that did not change is read once.

    A JSON object is read as Paprika's file (splits ``train``, ``test`` for its ``eval``, ``lmrl_gym``), anything else
    as a list of LMRL-Gym (split ``lmrl_gym``). These scenarios hold no facts: a script cannot answer for their world.
    The file is UTF-8; `group` is the name of the game's class, one of `GROUPS`.

    Raises:
      ValueError: there is no such file or it has another layout; the message says what was expected and what came.

    Differs from LMRL-Gym's loader: the first city of the list is kept (there it is skipped along with the header).
    """
    if group not in GROUPS:
        raise ValueError(f"scenario files exist for {', '.join(GROUPS)}, got {group!r}")
    try:
        state = pathlib.Path(path).stat()
    except (OSError, ValueError) as error:  # ValueError: a name no system takes, with a null character
        raise ValueError(
            f"scenarios must name a file of {group} as Paprika or LMRL-Gym released it, got {path!r}: {error}; "
            "leave it empty to play this package's own scenarios"
        ) from error
    return _load(path, group, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=16)
def _load(path: str, group: str, _changed: int, _size: int) -> Mapping[str, tuple[Scenario, ...]]:
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, group, f"it cannot be read as UTF-8 text ({type(error).__name__}: {error})") from error
    if text.lstrip().startswith(("{", "[")):
        return _paprika(path, group, text)
    if group not in _LISTS:
        raise _wrong(path, group, "it does not begin with a brace")
    scenarios = _objects(text) if group == "TwentyQuestions" else _cities(path, text)
    if not scenarios:
        raise _wrong(path, group, "it holds no line")
    return {"lmrl_gym": scenarios}


def _wrong(path: str, group: str, came: str) -> ValueError:
    expected = 'a JSON object with lists "train", "eval" or "LMRL-Gym" of {"agent": text, "env": text}'
    if group == "TwentyQuestions":
        expected += ", or lines of LMRL-Gym such as 'pan;frying pan'"
    elif group == "GuessMyCity":
        expected += ", or lines of LMRL-Gym such as '1; Tokyo; Japan; 37,000,000' below a header"
    return ValueError(
        f"{path}: expected {expected} for {group}, but {came}; name another file in `scenarios`, or leave it empty to "
        "play this package's own"
    )


def _paprika(path: str, group: str, text: str) -> dict[str, tuple[Scenario, ...]]:
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _wrong(path, group, f"it is no JSON ({error})") from error
    if not isinstance(data, dict):
        raise _wrong(path, group, f"it holds a JSON {type(data).__name__}")
    found = {}
    for theirs, ours in _SPLITS.items():
        rows = data.get(theirs) or []
        if not isinstance(rows, list):
            raise _wrong(path, group, f"{theirs!r} is a {type(rows).__name__}")
        made = []
        for number, row in enumerate(rows):
            texts = [row.get(key) if isinstance(row, dict) else None for key in ("agent", "env")]
            agent, env = (" ".join(text.split()) if isinstance(text, str) else None for text in texts)
            if agent is None or not env:
                raise _wrong(path, group, f"entry {number} of {theirs!r} is {str(row)[:80]!r}")
            made.append(_scenario(group, f"{ours} {number}", agent, env))
        if made:
            found[ours] = tuple(made)
    if not found:
        raise _wrong(path, group, f"it has only the keys {', '.join(map(repr, data)) or '(none)'}")
    return found


def _scenario(group: str, number: str, agent: str, env: str) -> Scenario:
    if group == "TwentyQuestions":
        return Scenario(env, agent, env, (env,), group=agent)
    if group == "GuessMyCity":
        city = env.partition(",")[0].strip()
        return Scenario(env, agent, env, (city or env,))
    return Scenario(number, agent, env)


def _objects(text: str) -> tuple[Scenario, ...]:
    rows = ([" ".join(name.split()) for name in line.split(";")] for line in text.splitlines())
    spellings = [tuple(name for name in row if name) for row in rows]
    return tuple(Scenario(names[0], "object", names[0], names, group="object") for names in spellings if names)


def _cities(path: str, text: str) -> tuple[Scenario, ...]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = [" ".join(cell.split()) for cell in line.split(";")]
        if not any(cells) or (number == 1 and not re.match(r"\d", cells[0])):  # the header
            continue
        if len(cells) != _CITY_COLUMNS or not cells[1] or not cells[2]:
            raise _wrong(path, "GuessMyCity", f"line {number} is {line[:80]!r}")
        city, country = cells[1:3]
        found.append(Scenario(f"{city}, {country}", "", f"{city}, {country}", (city,), group=country))
    return tuple(found)

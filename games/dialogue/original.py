"""Reads instances that a user has of the original release: a game's ``instances.json`` of clembench.

Nothing of that release is part of this package. Such a file is one JSON object with the list ``experiments``; each
experiment has a ``name``, parameters, and the list ``game_instances``. Read is what a game hides or shows of its task;
prompts and patterns of replies are not used, since rules and texts are the game's own. What an experiment says of
rounds must agree with the game's option. An instance that brings rules of its own is left out (`_LEFT_OUT`).
"""

import dataclasses
import functools
import json
import pathlib
import stat
import string
from collections.abc import Callable, Mapping
from typing import Any

from dfc.games.dialogue import original_maps
from dfc.games.dialogue.grids import SIZE, read_grid

MAX_BYTES = 16 << 20  # the largest file of the release has 1 MB
MAX_INSTANCES = 10_000
_TEXT = 300  # characters of a word, a value, a clue
_MANY = 64  # items of a list within an instance
_LETTERS = 5  # of a word of Wordle
_KINDS = {"team": "own", "opponent": "opponent", "innocent": "neutral", "assassin": "assassin"}  # theirs -> ours
_LEVELS = (1, 2, 3)
_NAMES = ("first", "second", "third")
_REPROMPTS = "REPROMPT ON ERROR"


@dataclasses.dataclass(frozen=True)
class Instance:
    """One task of a file.

    Attributes:
      experiment: its name in the file.
      rounds: how many the file gives it; None where it says nothing.
      fields: what the game needs, by name; see `FIELDS`.
    """

    experiment: str
    rounds: int | None
    fields: Mapping[str, Any]


class WrongError(ValueError):
    """What is wrong within an instance, without file and place."""


class Row:
    """One instance: its own fields, and those of its experiment."""

    def __init__(self, experiment: Mapping[str, Any], own: Mapping[str, Any], words: frozenset[str] | None) -> None:
        self.experiment, self.own, self.words = experiment, own, words

    def get(self, key: str, kind: type, where: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 (as in the file)
        """Returns a field of a type, of the instance unless `where` is another object.

        Raises:
          WrongError: it is missing, or of another type.
        """
        found = self.own if where is None else where
        if key not in found:
            raise WrongError(f"has no field {key!r}")
        if type(found[key]) is not kind:
            raise WrongError(f"field {key!r} must be a {_JSON[kind]}, got {short(found[key])}")
        return found[key]

    def text(self, key: str) -> str:
        """Returns a field of one line."""
        return one_line(self.get(key, str), key)

    def texts(self, key: str, where: Mapping[str, Any] | None = None) -> list[str]:
        """Returns a list of different texts of one line, in the file's order."""
        found = [one_line(item, key) for item in self.get(key, list, where)]
        if len(set(found)) < len(found) or len(found) > _MANY:
            raise WrongError(f"field {key!r} must be at most {_MANY} different texts, got {short(found)}")
        return found

    def grid(self, key: str) -> tuple[str, ...]:
        """Returns a grid of `SIZE` rows and columns."""
        found = read_grid(self.get(key, str)[: 100 * SIZE])
        if found is None or [len(row) for row in found] != [SIZE] * SIZE:
            raise WrongError(f"field {key!r} must be a grid of {SIZE} rows and columns, got {short(self.own[key])}")
        return found


_JSON: Mapping[type, str] = {str: "text", list: "list", dict: "JSON object", int: "whole number", bool: "true or false"}


def short(found: object) -> str:
    """Returns the value found, in few characters."""
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:80]}..."


def one_line(found: object, key: str) -> str:
    """Returns a text of one line with single blanks.

    Raises:
      WrongError: it is no text, empty, too long, or holds what cannot be printed.
    """
    line = " ".join(found.split()) if isinstance(found, str) and len(found) <= _TEXT else ""
    if not line or not line.isprintable():
        raise WrongError(
            f"field {key!r} must be text of at most {_TEXT} characters that can be printed, got {short(found)}"
        )
    return line


# ---- the fields of each game ---------------------------------------------------------------------------------------


def _taboo(row: Row) -> dict[str, Any]:
    return {"target": row.text("target_word"), "taboo": tuple(row.texts("related_word"))}


def _wordle(row: Row) -> dict[str, Any]:
    target = row.text("target_word").lower()
    if len(target) != _LETTERS or not set(target) <= set(string.ascii_lowercase):
        raise WrongError(f"field 'target_word' must be a word of {_LETTERS} letters, got {target!r}")
    return {"target": target, "words": row.words}


def _word_list(experiment: Mapping[str, Any]) -> frozenset[str] | None:
    """Returns the words that an experiment of Wordle allows as guesses, or None where it lists none."""
    keywords = experiment.get("lang_keywords")
    listed = keywords.get("official_words_list") if isinstance(keywords, dict) else None
    listed = listed or experiment.get("english_words")
    if not isinstance(listed, list):
        return None
    return frozenset(word.lower() for word in listed if isinstance(word, str) and len(word) == _LETTERS)


def _wordle_alone(row: Row) -> dict[str, Any]:
    return {**_wordle(row), **_of_kind(row, "use_clue", wanted=False), **_of_kind(row, "use_critic", wanted=False)}


def _wordle_with_clue(row: Row) -> dict[str, Any]:
    return {**_clued(row), **_of_kind(row, "use_critic", wanted=False)}


def _wordle_with_critic(row: Row) -> dict[str, Any]:
    return {**_clued(row), **_of_kind(row, "use_critic", wanted=True)}


def _clued(row: Row) -> dict[str, Any]:
    return {**_wordle(row), "clue": row.text("target_word_clue"), **_of_kind(row, "use_clue", wanted=True)}


def _of_kind(row: Row, flag: str, *, wanted: bool) -> dict[str, Any]:
    """Returns nothing; the Wordles differ in two flags of the experiment only. WrongError: it is of another one."""
    if row.get(flag, bool, row.experiment) is not wanted:
        raise WrongError(f"has {flag!r} {str(not wanted).lower()} in its experiment, so it is of another Wordle")
    return {}


def _private_shared(row: Row) -> dict[str, Any]:
    slots = {one_line(name, "slots"): one_line(value, "slots") for name, value in row.get("slots", dict).items()}
    order, probes = row.texts("request_order"), row.get("probes", dict)
    if not 1 < len(slots) <= _MANY or sorted(order) != sorted(slots):
        raise WrongError(f"field 'request_order' must name each slot once, got {short(order)} for {short(list(slots))}")
    blocks = []
    for number in range(len(slots) + 1):
        block = row.get(str(number), dict, probes)
        if sorted(block) != sorted(slots):
            raise WrongError(f"field 'probes' must have each slot once in block {number}, got {short(list(block))}")
        blocks.append(tuple(order.index(name) for name in block))
    return {"tag": row.text("tag"), "slots": slots, "order": tuple(order), "probes": tuple(blocks)}


def _image_game(row: Row) -> dict[str, Any]:
    return {"target": row.grid("target_grid")}


def _reference_game(row: Row) -> dict[str, Any]:
    grids = [row.grid(f"player_1_{name}_grid") for name in ("target", "second", "third")]
    seen = [row.grid(f"player_2_{name}_grid") for name in _NAMES]
    named = row.own.get("target_grid_name")
    name = named[0] if isinstance(named, list) and named else named
    if name not in _NAMES or seen[_NAMES.index(name)] != grids[0]:
        raise WrongError(f"field 'target_grid_name' must say where player 2 sees the target, got {short(named)}")
    if len(set(grids)) < len(grids) or set(seen) != set(grids):
        raise WrongError("must show both players the same three grids, no two alike")
    return {"grids": tuple(grids), "order": tuple(grids.index(grid) for grid in seen)}


def _codenames(row: Row) -> dict[str, Any]:
    board = [word.lower() for word in row.texts("board")]
    assigned = row.get("assignments", dict)
    kinds = {
        word.lower(): ours for theirs, ours in _KINDS.items() for word in row.texts(theirs, assigned)
    }  # a word that is assigned twice makes the sum below too large
    if sum(len(assigned[theirs]) for theirs in _KINDS) != len(set(board)) or set(kinds) != set(board):
        raise WrongError("field 'assignments' must assign each word of the board once")
    if any(word.strip(" .,<>\"'") != word or "," in word for word in board) or "own" not in kinds.values():
        raise WrongError(
            f"field 'board' must be words without punctuation, some of them the team's, got {short(board)}"
        )
    difficulty = row.get("opponent difficulty", int, row.experiment)
    flags = row.experiment.get("flags")
    if not 0 <= difficulty <= len(board):
        raise WrongError(f"has 'opponent difficulty' {difficulty} in its experiment")
    if isinstance(flags, dict) and flags.get(_REPROMPTS):
        raise WrongError(f"has the flag {_REPROMPTS!r} in its experiment, which the game has as illegal_allowance=2")
    return {"kinds": tuple((word, kinds[word]) for word in board), "difficulty": difficulty}


def _guess_what(row: Row) -> dict[str, Any]:
    target, candidates = row.text("target_word").lower(), [word.lower() for word in row.texts("candidate_list")]
    if target not in candidates or len(set(candidates)) < len(candidates) or any(" " in word for word in candidates):
        raise WrongError(
            f"field 'candidate_list' must be different words, one of them {target!r}, got {short(candidates)}"
        )
    level = str(row.experiment["name"])[-1:]
    if level not in map(str, _LEVELS):
        raise WrongError("is of an experiment whose name does not end in level 1, 2 or 3")
    return {"candidates": tuple(candidates), "target": target}


def _match_it(row: Row) -> dict[str, Any]:
    return {"grids": (row.grid("grid_a"), row.grid("grid_b"))}


def _adventure(row: Row) -> dict[str, Any]:
    keys = ("initial_state", "goal_state", "variant")
    actions = row.get("action_definitions", list) if "action_definitions" in row.own else []
    return {
        **_read_by(original_maps.adventure, *keys)(row),
        **_read_by(lambda _: {"vocabulary": original_maps.vocabulary(actions)})(row),
    }


def _read_by(part: Callable[..., dict[str, Any]], *keys: str) -> Callable[[Row], dict[str, Any]]:
    """Returns what reads a map or an adventure, whose texts and facts have a module of their own."""

    def read(row: Row) -> dict[str, Any]:
        try:
            return part(
                *(row.get(key, list if key.endswith("_state") else str) for key in keys), row.experiment["name"]
            )
        except original_maps.NoMapError as error:
            raise WrongError(str(error)) from error

    return read


_MAP = ("Graph_Nodes", "Moves", "Current_Position")


def _other_map(row: Row, *keys: str) -> None:
    """Checks that an instance has none of the fields of the other map games."""
    for key in keys:
        if key in row.own:
            raise WrongError(f"has a field {key!r}, so it is of another map game")


def _text_map(row: Row) -> dict[str, Any]:
    _other_map(row, "Specific_Room", "Response_Construction")
    return _read_by(original_maps.room_map, *_MAP)(row)


def _text_map_graph(row: Row) -> dict[str, Any]:
    row.get("Response_Construction", str)
    return _read_by(original_maps.room_map, *_MAP)(row)


FIELDS: Mapping[str, Callable[[Row], dict[str, Any]]] = {
    "Taboo": _taboo,
    "PrivateShared": _private_shared,
    "ImageGame": _image_game,
    "ReferenceGame": _reference_game,
    "ClemWordle": _wordle_alone,
    "ClemWordleWithClue": _wordle_with_clue,
    "ClemWordleWithCritic": _wordle_with_critic,
    "Codenames": _codenames,
    "AdventureGame": _adventure,
    "GuessWhat": _guess_what,
    "MatchIt": _match_it,
    "TextMap": _text_map,
    "TextMapRoom": _read_by(original_maps.room_map, *_MAP, "Specific_Room"),
    "TextMapGraph": _text_map_graph,
}
"""By the name of a game's class, what reads the fields that it needs."""

_LEFT_OUT: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {"AdventureGame": original_maps.has_other_rules}
"""By the name of a game's class, whether an instance has rules that the game here has not."""

_ROUNDS: Mapping[str, tuple[str, ...]] = {
    "Taboo": ("max_turns",),
    "GuessWhat": ("max_turns",),
    "ClemWordle": ("common_config", "n_turns"),
    "ClemWordleWithClue": ("common_config", "n_turns"),
    "ClemWordleWithCritic": ("common_config", "n_turns"),
    "MatchIt": ("decision_turn",),
    "AdventureGame": ("max_turns",),
}
"""Where an instance, or its experiment, says how many rounds it has."""


def _rounds(row: Row, group: str) -> int | None:
    found: Any = {**row.experiment, **row.own}
    for key in _ROUNDS.get(group, ("",)):
        found = found.get(key) if isinstance(found, dict) else None
    if found is not None and (type(found) is not int or found < 1):
        raise WrongError(f"field {_ROUNDS[group][-1]!r} must be a number of rounds, got {short(found)}")
    return found


# ---- files ---------------------------------------------------------------------------------------------------------


def group_of(kind: type) -> str:
    """Returns the name in `FIELDS` that belongs to a game's class, or the class that it is derived from."""
    return next(parent.__name__ for parent in kind.__mro__ if parent.__name__ in FIELDS or parent is object)


def load(path: str, group: str) -> tuple[Instance, ...]:
    """Returns the instances of a UTF-8 file in its order; a file that did not change is read once.

    `group` says whose instances, a key of `FIELDS`.

    Raises:
      ValueError: there is no such file, it is too large, or not of this game; the message names file, place and cure.
    """
    if group not in FIELDS:
        raise ValueError(f"files of instances exist for {', '.join(FIELDS)}, and {group} is none of them")
    try:
        state = pathlib.Path(path).stat()
    except (OSError, ValueError) as error:  # ValueError: a name no system takes, with a null character
        raise _error(path, group, f"cannot be read: {error}") from error
    if not stat.S_ISREG(state.st_mode):
        raise _error(path, group, "is no file")
    if state.st_size > MAX_BYTES:
        raise _error(path, group, f"has {state.st_size} bytes, more than {MAX_BYTES}")
    return _load(path, group, state.st_mtime_ns, state.st_size)


def _error(path: str, group: str, came: str) -> ValueError:
    return ValueError(
        f"{path!r} {came}; `instances` must name a file of clembench for {group}, such as its in/instances.json; leave "
        "it empty to play this package's own instances"
    )


@functools.lru_cache(maxsize=32)
def _load(path: str, group: str, _changed: int, _size: int) -> tuple[Instance, ...]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (read_bytes would read whatever was appended meanwhile)
            data = json.loads(file.read(MAX_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise _error(path, group, f"cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or numbers and nesting beyond all bounds
        raise _error(path, group, f"is no JSON ({type(error).__name__}: {str(error)[:200]})") from error
    if not isinstance(data, dict) or not isinstance(data.get("experiments"), list):
        raise _error(path, group, "has no list 'experiments'")
    found: list[Instance] = []
    for number, experiment in enumerate(data["experiments"]):
        rows = experiment.get("game_instances") if isinstance(experiment, dict) else None
        name = experiment.get("name") if isinstance(experiment, dict) else None
        if not isinstance(rows, list) or not isinstance(name, str):
            raise _error(path, group, f"has an experiment {number} without 'name' or without list 'game_instances'")
        if len(found) + len(rows) > MAX_INSTANCES:
            raise _error(path, group, f"has more than {MAX_INSTANCES} instances")
        words = _word_list(experiment)
        left_out = _LEFT_OUT.get(group)
        found += [
            _instance(path, group, Row(experiment, own, words), place)
            for place, own in enumerate(rows)
            if left_out is None or not isinstance(own, dict) or not left_out(own)
        ]
    if not found:
        left = any(experiment["game_instances"] for experiment in data["experiments"])
        raise _error(path, group, f"has no instance{' whose actions and events the game here has' if left else ''}")
    return tuple(found)


def _instance(path: str, group: str, row: Row, place: int) -> Instance:
    where = f"experiment {short(row.experiment['name'])}, instance {place}"
    if not isinstance(row.own, dict):
        raise _error(path, group, f"is not of this game: {where} must be a JSON object, got {short(row.own)}")
    try:
        name = one_line(row.experiment["name"], "name")
        return Instance(name, _rounds(row, group), FIELDS[group](row))
    except WrongError as error:
        raise _error(path, group, f"is not of this game: {where} {error}") from error

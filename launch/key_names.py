"""The dotted keys of configurations: which there are, and which one is meant by a key that is not there.

What is suggested is always a key that the configuration at hand has, written as it is to be typed.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from dfc.config import RECIPES, RunConfig, fields, renamed
from dfc.launch import foreign_names
from dfc.launch.foreign_names import ForeignName

_SHOWN = 3  # keys, or groups of recipes, in one sentence
_LONGEST_VALUE = 60  # characters of a value that is repeated in a suggestion
_OFF = {"false", "f", "no", "off", "0", "none", "null"}  # a switch of another library that is turned off
_KEYS: dict[type[RunConfig], tuple[str, ...]] = {}  # of recipes that were asked for


def all_keys(section: object, path: str = "") -> list[str]:
    """Returns the dotted keys of a configuration, of its class, or of a section; NAME is that of an entry's choice."""
    keys = []
    for name, kind in fields.fields_of(section).items():
        if (entry := fields.section_of(kind)) is not None:
            keys += all_keys(entry, f"{path}{name}.NAME.")
        else:
            keys += all_keys(kind, f"{path}{name}.") if dataclasses.is_dataclass(kind) else [f"{path}{name}"]
    return keys


def is_switch(key: str) -> bool:
    """Returns whether a key is true or false, in a recipe that has it, and so takes no word after it as its value."""
    return any(type_of(kind, key.split(".")) is bool for kind in RECIPES.values())


def type_of(kind: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    """Returns the schema's type of a key; None if there is no such key or it is inside a mapping."""
    for place, name in enumerate(names):
        if (entry := fields.section_of(kind)) is not None:
            return type_of(entry, entry_and_key(names[place:], entry)[1])
        kind = fields.fields_of(kind).get(name) if dataclasses.is_dataclass(kind) else None
    return kind


def entry_and_key(names: Sequence[str], kind: type) -> tuple[str, Sequence[str]]:
    """Returns the name of an entry, in which there may be dots, and the key within it, empty where there is none."""
    known = fields.fields_of(kind)
    place = next((place for place, name in enumerate(names) if place and name in known), min(1, len(names)))
    return ".".join(names[:place]), names[place:]


# ---- suggestions -----------------------------------------------------------------------------------------------------


def suggestion(kind: object, key: str, value: str | None = None) -> str:
    """Returns what a key may mean that a configuration does not have, to follow the sentence that says so.

    `kind` is the class of a configuration or of a section, or one of them; None: no configuration is known. `key` is
    dotted, as it was written; `value` was to be set, and is to be repeated with the right key.

    Returns:
      A text such as ``; write --config.optimizer.learning_rate=1e-5``, in which a key is always one that `kind` has; or
      ``""`` if nothing is like the key.
    """
    if len(key) > foreign_names.LONGEST:
        return ""
    kind = kind if kind is None or isinstance(kind, type) else type(kind)
    return next(filter(None, _readings(kind, key, value)), "")


def _readings(kind: type | None, key: str, value: str | None) -> Iterator[str]:
    """Yields what a key may mean, most likely first; see `suggestion`. Empty texts are among them."""
    keys = () if kind is None else _keys_of(kind)
    last = key.rsplit(".", 1)[-1]
    before = {} if kind is None else renamed.keys_of(kind)
    if "." in key and key in before:  # a former name in its section is not another library's
        yield _now(last, [before[key]], value)
    foreign = foreign_names.find(key)
    if foreign is not None:
        name, entry = foreign
        in_section = kind is not None and not issubclass(kind, RunConfig)
        yield _of_foreign_name(name, entry, keys, key, value, in_section=in_section)
        if "." not in name:  # the same word at the end of another path, or of a chat endpoint's, is another thing
            yield _write([same for same in _same_name(keys, key) if ".NAME." not in same], value)
        yield _elsewhere(kind, entry.called(name), entry.keys, lambda other: entry.keys_among(_keys_of(other)))
    today = renamed.names_of_today(last)
    if kind is not None:
        yield _now(last, _of_today(kind, key) or [same for name in today for same in _same_name(keys, name)], value)
        yield _did_you_mean(_slip(kind, key))
        yield _write(_same_name(keys, key), value)
    if today:
        yield _elsewhere(kind, f"{last} was renamed", today, lambda other: _of_today(other, key))
    yield _did_you_mean(_near_keys(keys, key))
    yield _elsewhere(kind, last, (key, last), lambda other: _same_name(_keys_of(other), key))
    if (near := fields.near(last, foreign_names.NAMES)) is not None and foreign is None:
        yield suggestion(kind, near, value)


def flag_suggestion(kind: type[RunConfig] | None, name: str, value: str | None) -> str:
    """Returns which key of a configuration a word is meant to set that is no flag, as `suggestion` does.

    `name` is without its dashes in front; `kind` None: no configuration is known, so that those of all recipes count.
    """
    if len(name) > foreign_names.LONGEST:
        return ""
    key = name.replace("-", "_").removeprefix("config.")
    kinds = RECIPES.values() if kind is None else [kind]
    for no, own in (("", key), ("no", key.removeprefix("no"))):
        types = [hint for one in kinds if (hint := type_of(one, own.split("."))) is not None]
        if types and not all(map(dataclasses.is_dataclass, types)) and (not no or (own != key and bool in types)):
            return f"; write --{no}config.{own}{'' if no or (value is None and bool in types) else _valued(value)}"
    if foreign_names.find(key) is None and (off := foreign_names.find(key.removeprefix("no"))) is not None:
        name, entry = off
        return suggestion(kind, name, "false" if entry.value else None)
    return suggestion(kind, key, value)


def stand_for(kind: type[RunConfig], wanted: str) -> tuple[str, list[str]]:
    """Returns what stands for another library's setting, or for a former name, in a recipe: a sentence, and keys.

    Both are empty if nothing does.
    """
    foreign = foreign_names.find(wanted)
    if foreign is None:
        today = _of_today(kind, wanted)
        return _now(wanted, today, None).removeprefix("; "), today
    keys = _keys_of(kind)
    return suggestion(kind, wanted).removeprefix("; "), foreign[1].keys_among(keys) or foreign[1].near_keys_among(keys)


def constructed(kind: type, text: str) -> str:
    """Returns a text with every key of a configuration as in Python: ``grpo=GrpoConfig(kl_coefficient=...)``."""

    def written(match: re.Match[str]) -> str:
        names, inner = match["key"].split("."), kind
        opened = ""
        for name in names[:-1]:
            inner = fields.fields_of(inner).get(name)  # type: ignore[assignment] # a class wherever the key is one
            if not dataclasses.is_dataclass(inner):
                return match["key"]
            opened += f"{name}={inner.__name__}("
        value = match["value"] or "..."
        return f"{opened}{names[-1]}={repr(value) if value.isidentifier() else value}{')' * (len(names) - 1)}"

    return re.sub(r"--config\.(?P<key>[\w.]*\w)(?:=(?P<value>\w+))?", written, text)


def _keys_of(kind: type[RunConfig]) -> tuple[str, ...]:
    """The keys of a recipe, looked up once."""
    if kind not in _KEYS:
        _KEYS[kind] = tuple(all_keys(kind))
    return _KEYS[kind]


def _of_foreign_name(
    name: str, entry: ForeignName, keys: Sequence[str], key: str, value: str | None, *, in_section: bool
) -> str:
    """Returns what stands for another library's setting here; empty where nothing does.

    `keys` are those of the configuration, or of a section whose place in a configuration is not known (`in_section`);
    `key` is as it was written; about `value` see `suggestion`.
    """
    found = _closest(entry.keys_among(keys) or (_within_section(entry.keys, keys) if in_section else []), key)
    near = _closest(entry.near_keys_among(keys), key)
    note = f" ({text})" if (text := entry.note_for(keys)) else ""
    is_off = entry.value is not None and value is not None and value.lower() in _OFF
    if found and entry.value != "" and not is_off:  # the table's value turns it on
        value = value if entry.value is None else entry.value
        if {one.rsplit(".", 1)[-1] for one in found} == {name}:
            return f"; write {_written(found, value)}{note}"
        return f"; {entry.called(name)} is {_written(found, value)}{note}"
    if found or near:
        return f"; for {entry.called(name)} see {_written(found or near, None)}{note if found else ''}"
    if entry.flag and entry.value is None:
        return f"; {entry.called(name)} is --{entry.flag}{_valued(value)}{note}"
    if entry.flag:
        return f"; for {entry.called(name)} see --{entry.flag}{note}"
    return "" if entry.keys else f"; {entry.called(name)}: {entry.note}"


def _of_today(kind: type, key: str) -> list[str]:
    """Returns the keys of a recipe, or of a section, that replace a former key; none where there was no such key."""
    before = renamed.keys_of(kind)
    return [before[old] for old in _same_name(list(before), key)]


def _now(name: str, keys: Sequence[str], value: str | None) -> str:
    return f"; {name} is now {_written(keys, value)}" if keys else ""


def _within_section(wanted: Iterable[str], keys: Collection[str]) -> list[str]:
    """Returns the keys of a section, known by its class alone, that keys of a configuration end with."""
    ends = (key.partition(".")[2] for key in wanted)
    return [end for end in ends if end in keys]


def _closest(keys: Sequence[str], key: str) -> list[str]:
    """Returns the keys of the section that a key was written in, or of the one around it, if any are, else all."""
    sections = key.split(".")[:-1]
    for length in range(len(sections), 0, -1):
        if inside := [one for one in keys if one.startswith(".".join(sections[:length]) + ".")]:
            return inside
    return list(keys)


def _slip(kind: type, key: str) -> list[str]:
    """Returns a key with the part that no section has replaced by the one most like it; nothing where none is."""
    parts = key.split(".")
    for place, part in enumerate(parts):
        inner = type_of(kind, parts[:place])
        if not dataclasses.is_dataclass(inner):  # the next part is an entry's name, which may be any
            continue
        known = fields.fields_of(inner)
        if part not in known:
            right = fields.near(part, known)
            if right is None:
                return []
            whole = [*parts[:place], right, *parts[place + 1 :]]
            exists = type_of(kind, whole) is not None
            return [".".join(whole if exists else whole[: place + 1])]
    return []


def _same_name(keys: Sequence[str], key: str) -> list[str]:
    """Returns the keys with the longest end in common with a key; an entry's only where there is no other."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        end = ".".join(parts[-length:])
        found = [one for one in keys if one == end or one.endswith(f".{end}")]
        if found := [one for one in found if ".NAME." not in one] or found:
            return _closest(found, key)
    return []


def _near_keys(keys: Sequence[str], key: str) -> list[str]:
    """Returns the keys whose last part is most like that of a key, of any section; none where no part is like it."""
    near = fields.near(key.rsplit(".", 1)[-1], _lasts(keys), cutoff=0.8)
    return [] if near is None else _same_name(keys, ".".join([*key.split(".")[:-1], near]))


def _lasts(keys: Iterable[str]) -> set[str]:
    return {key.rsplit(".", 1)[-1] for key in keys}


def _elsewhere(kind: type | None, what: str, best: Sequence[str], find: Callable[[type[RunConfig]], list[str]]) -> str:
    """Returns which recipes have a setting that this one does not have.

    `what` is the setting, where there is no recipe that could lack it; `best` are the keys to be shown first; `find`
    finds the keys of the setting in a recipe.
    """
    groups: dict[str, list[str]] = {}
    for recipe, other in RECIPES.items():
        for key in find(other)[:1]:
            groups.setdefault(key, []).append(recipe)
    first = sorted(groups.items(), key=lambda group: (group[0] not in best, -len(group[1])))[:_SHOWN]
    told = "; ".join(f"{_recipes(recipes)} {'have' if len(recipes) > 1 else 'has'} {key}" for key, recipes in first)
    here = getattr(kind, "recipe", None)
    return f"; {f'recipe {here} has no such setting' if here else what}: {told}" if told else ""


def _recipes(names: Sequence[str]) -> str:
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} other recipes"


def _did_you_mean(keys: Sequence[str]) -> str:
    return f"; did you mean {_written(keys, None)}?" if keys else ""


def _write(keys: Sequence[str], value: str | None) -> str:
    return f"; write {_written(keys, value)}" if keys else ""


def _written(keys: Sequence[str], value: str | None) -> str:
    """Returns keys as they are typed, with a value if one is to be repeated."""
    shown = [f"--config.{key}{'' if value is None else _valued(value)}" for key in keys[:_SHOWN]]
    more = f" ({len(keys) - _SHOWN} more)" if len(keys) > _SHOWN else ""
    return " or ".join(shown) + more


def _valued(value: str | None) -> str:
    """Returns a value behind an equals sign; what is long, or no plain text, is only stood for."""
    return f"={value}" if value is not None and len(value) <= _LONGEST_VALUE and value.isprintable() else "=VALUE"

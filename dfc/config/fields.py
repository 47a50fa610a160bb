"""The fields of configuration classes: their types and ranges, which values fit them, and texts for both."""

import dataclasses
import difflib
import functools
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dfc.config.ranges import Range
from dfc.config.sections import Games
from dfc.errors import cut, shown

_LARGEST = sys.float_info.max
_LONGEST_NAME = 200  # characters of a name that others are compared with, which takes the square of its length
_SHORT = 60  # characters of a value of the wrong kind
_SHORTEST_BEGINNING = 4  # characters: `temp` is temperature


def fields_of(section: object) -> dict[str, Any]:
    """Returns the field types of a configuration class (or instance) by name, in the order of the class."""
    return {name: _bare(hint) for name, hint in annotated_fields(section).items()}


def annotated_fields(section: object) -> dict[str, Any]:
    """Returns the field types of a configuration class (or instance) with the ranges that stand beside them."""
    return dict(_fields_of_class(section if isinstance(section, type) else type(section)))


@functools.cache
def _fields_of_class(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of the schema
    hints = typing.get_type_hints(section, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(section)}


def without_none(hint: Any) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    """Returns a type as it is for values that are not None, such as int for ``int | None``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    return hint


def section_of(hint: Any) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    """Returns the class of the sections that a mapping from names to sections holds; None for any other type."""
    kind = typing.get_args(hint)[1] if typing.get_origin(hint) is Mapping else None
    return kind if dataclasses.is_dataclass(kind) else None


def _bare(hint: Any) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    hint = without_none(hint)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def range_of(hint: object) -> Range | None:
    """Returns the range that an annotated type names, if it names one."""
    hint = without_none(hint)
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    return next((extra for extra in typing.get_args(hint)[1:] if isinstance(extra, Range)), None)


def describe_type(hint: object) -> str:
    """Returns a text of what a field of this type accepts, e.g. ``a number, at least 0``."""
    if (kind := without_none(hint)) is not hint:
        return f"{describe_type(kind)}, or None"
    allowed, hint = range_of(hint), _bare(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in arguments)
    if origin is tuple:
        return f"a tuple such as {_example(arguments[0])}{_of_each(arguments[0])}"
    if origin is Mapping:
        return f"a mapping {_entries(hint)}"
    names: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    described = names.get(hint, f"a section ({getattr(hint, '__name__', hint)})")
    return described if allowed is None else f"{described}, {allowed}"


def _entries(hint: Any) -> str:  # noqa: ANN401 - a type or a form of `typing`
    """Returns what a mapping of this type holds."""
    if hint == Games:
        return "from ids to options such as {'TicTacToe-v0': {}}"
    if (kind := section_of(hint)) is not None:
        return f"from names to sections ({kind.__name__})"
    inner = typing.get_args(hint)[1]
    example = {
        bool: "{'base': False}",
        int: "{'mastermind': 100}",
        float: "{'rows.jsonl': 0.25}",
        Any: "{'top_k': 20}",
    }.get(_bare(inner), "{'name': ('a', 'b')}")
    return f"such as {example}{_of_each(inner)}"


def _of_each(hint: object) -> str:
    """Returns what each entry of a tuple or a mapping must be, beside its type."""
    if typing.get_origin(hint) is typing.Literal:
        return f", each {describe_type(hint)}"
    return "" if (allowed := range_of(hint)) is None else f", {allowed} each"


def _example(hint: Any) -> str:  # noqa: ANN401 - a type or a form of `typing`
    hint = _bare(hint)
    if typing.get_origin(hint) is typing.Literal:
        return repr(typing.get_args(hint)[:2])
    return {int: "(1, 2)", float: "(0.3, 0.7)", str: "('a', 'b')"}.get(hint, "('a', 'b')")


def near(name: str, allowed: Iterable[str], *, cutoff: float = 0.75) -> str | None:
    """Returns the allowed name that a name is most like: a typing error, or a prefix of it; None if none is.

    Args:
      name: what was written.
      allowed: the names that there are.
      cutoff: how like it must be, of 1 (`difflib.SequenceMatcher.ratio`): at 0.65 ``sampling`` is ``sharding``.
    """
    allowed, name = list(allowed), name[:_LONGEST_NAME]
    match = difflib.get_close_matches(name, allowed, n=1, cutoff=cutoff)
    begun = [other for other in allowed if len(name) >= _SHORTEST_BEGINNING and other.startswith(name)]
    return next(iter([*match, *sorted(begun, key=len)]), None)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Returns ``; did you mean 'x'?`` for the allowed name most like `name`, or what is allowed if none is like it."""
    allowed = list(allowed)
    match = near(name, allowed)
    return f"; did you mean '{match}'?" if match is not None else f"; allowed: {', '.join(allowed) or 'nothing'}"


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type or a form of `typing`
    if (kind := without_none(hint)) is not hint:
        return value is None or _fits(value, kind)
    hint = _bare(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            isinstance(key, str) and _fits(item, arguments[1]) for key, item in value.items()
        )
    if hint in (float, int):
        return _is_number(value, hint)
    return hint is Any or (isinstance(hint, type) and isinstance(value, hint))


def _is_number(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and abs(value) < 2**63
    return isinstance(value, int | float) and bool(-_LARGEST <= value <= _LARGEST)  # neither infinite nor NaN


def type_problems(section: object, path: str = "", recipe: str = "") -> list[str]:
    """Returns which values of a configuration are not of their field's type; games are checked elsewhere.

    Args:
      section: the configuration, or a section of it.
      path: what leads to the section, with a dot behind it.
      recipe: the configuration's, for the message; by default the one that `section` itself names.
    """
    found = []
    recipe = recipe or getattr(section, "recipe", "")
    for name, hint in annotated_fields(section).items():
        key, value = f"{path}{name}", getattr(section, name)
        if hint == Games:
            continue
        inside = _sections(key, value, hint)
        if inside is not None and all(is_section(inner, kind) for _, inner, kind in inside):
            found += [problem for place, inner, _ in inside for problem in type_problems(inner, f"{place}.", recipe)]
        elif inside is not None:
            found += [
                _section_problem(place, inner, kind, recipe, entry_of=name if section_of(hint) else "")
                for place, inner, kind in inside
                if not is_section(inner, kind)
            ]
        elif not _fits(value, hint):
            found.append(f"{key}={shown(value)} ({type(value).__name__}): must be {describe_type(hint)}")
    return found


def _section_problem(place: str, value: object, kind: type, recipe: str, *, entry_of: str) -> str:
    """Returns the message about a value that is no section of the class that a field has."""
    made, where = f"{kind.__name__}(...)", f" for recipe {recipe}" if recipe else ""
    name = place.rsplit(".", 1)[-1]
    written = f"{entry_of}={{{place.rpartition(f'{entry_of}.')[2]!r}: {made}}}" if entry_of else f"{name}={made}"
    source = f" (from dfc.config import {kind.__name__})" if kind.__module__.startswith("dfc.config.") else ""
    return f"{place}: expected {made}{where}, got {_came(value, kind)}; write {written}{source}"


def _came(value: object, kind: type) -> str:
    """Returns a short text of the value given instead of a section."""
    if isinstance(value, type):
        return f"the class {_class_name(value)} itself"
    name = _class_name(type(value))
    if name == kind.__name__:
        return f"another class of the name {name}"
    if dataclasses.is_dataclass(value):  # its values are no help, and take a line or more
        return name
    return f"{cut(' '.join(shown(value).split()), _SHORT)} ({name})"


def _class_name(kind: type) -> str:
    """Returns the name of a class, which may be any text."""
    return kind.__name__ if kind.__name__.isidentifier() and len(kind.__name__) <= _SHORT else cut(repr(kind.__name__))


def range_problems(section: object, path: str = "") -> list[str]:
    """Returns which numbers of a configuration are out of their field's range; other types are passed over."""
    found = []
    for name, hint in annotated_fields(section).items():
        key, value = f"{path}{name}", getattr(section, name)
        if (inside := _sections(key, value, hint)) is not None:
            found += [problem for place, inner, _ in inside for problem in range_problems(inner, f"{place}.")]
            continue
        if hint == Games or not _fits(value, hint):
            continue
        problems = dict.fromkeys(
            problem for number, allowed in _ranged(value, hint) if (problem := allowed.problem(number)) is not None
        )
        each = "" if range_of(hint) is not None else " each"
        found += [f"{key}={shown(value)}: {problem}{each}" for problem in problems]
    return found


def _sections(key: str, value: object, hint: Any) -> list[tuple[str, object, type]] | None:  # noqa: ANN401 - a type
    """Returns (key, value, class) of the section, or of the sections by name, that a field holds; None: of neither."""
    section = without_none(hint)
    if isinstance(section, type) and dataclasses.is_dataclass(section):
        return [] if value is None and section is not hint else [(key, value, section)]
    kind = section_of(hint)
    if kind is None or not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return None
    return [(f"{key}.{name}", inner, kind) for name, inner in value.items()]


def _ranged(value: Any, hint: Any) -> Iterator[tuple[float, Range]]:  # noqa: ANN401 - any value of the schema
    """Yields the numbers of a value that have a range, those in tuples and mappings too."""
    if value is None:
        return
    if (allowed := range_of(hint)) is not None:
        yield value, allowed
    elif typing.get_origin(hint) is tuple:
        for item in value:
            yield from _ranged(item, typing.get_args(hint)[0])
    elif typing.get_origin(hint) is Mapping and hint != Games:
        for item in value.values():
            yield from _ranged(item, typing.get_args(hint)[1])


def has_sections(config: object) -> bool:
    """Returns whether every section of a configuration is one of its class; what is in it may be anything."""
    for name, hint in annotated_fields(config).items():
        inside = _sections(name, getattr(config, name), hint)
        if inside is None and section_of(hint) is not None:
            return False
        if not all(is_section(value, kind) and has_sections(value) for _, value, kind in inside or ()):
            return False
    return True


def is_section(value: object, kind: type) -> bool:
    """Returns whether a value is a section of a configuration with the fields of its class, none less and none more."""
    return isinstance(value, kind) and fields_of(value).keys() == fields_of(kind).keys()

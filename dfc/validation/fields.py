"""The fields of configuration classes: their types and ranges, what fits them, and words for both."""

import dataclasses
import difflib
import functools
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dfc.config import Games, Range
from dfc.errors import shown

_LARGEST = sys.float_info.max


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


def _bare(hint: Any) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def range_of(hint: object) -> Range | None:
    """Returns the range that an annotated type names, if it names one."""
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    return next((extra for extra in typing.get_args(hint)[1:] if isinstance(extra, Range)), None)


def describe_type(hint: object) -> str:
    """Returns in plain words what a field of this type accepts, e.g. ``a number of at least 0``."""
    allowed, hint = range_of(hint), _bare(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in arguments)
    if origin is tuple:
        return f"a tuple such as {_example(arguments[0])}{_of_each(arguments[0])}"
    if hint == Games:
        return "a mapping from ids to options such as {'TicTacToe-v0': {}}"
    if origin is Mapping:
        example = "{'mastermind': 100}" if _bare(arguments[1]) is int else "{'name': ('a', 'b')}"
        return f"a mapping such as {example}{_of_each(arguments[1])}"
    names: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    described = names.get(hint, f"a section ({getattr(hint, '__name__', hint)})")
    return described if allowed is None else f"{described}, {allowed}"


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


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Returns ``; did you mean 'x'?`` for the allowed name most like `name`, or what is allowed if none is like it."""
    allowed = list(allowed)
    match = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    return f"; did you mean '{match[0]}'?" if match else f"; allowed: {', '.join(allowed) or 'nothing'}"


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type or a form of `typing`
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
    if hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return fits and bool(-_LARGEST <= typing.cast("float", value) <= _LARGEST)  # neither infinite nor NaN
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(hint, type) and isinstance(value, hint)


def type_problems(section: object, path: str = "") -> list[str]:
    """Returns which values of a configuration are not of their field's type; games are checked elsewhere."""
    found = []
    for name, hint in fields_of(section).items():
        key, value = f"{path}{name}", getattr(section, name)
        if dataclasses.is_dataclass(hint):
            if isinstance(hint, type) and is_section(value, hint):
                found += type_problems(value, f"{key}.")
            else:
                found.append(f"{key}={shown(value)}: must be {describe_type(hint)}")
        elif hint != Games and not _fits(value, hint):
            found.append(f"{key}={shown(value)} ({type(value).__name__}): must be {describe_type(hint)}")
    return found


def range_problems(section: object, path: str = "") -> list[str]:
    """Returns which numbers of a configuration with values of the right types are out of their field's range."""
    found = []
    for name, hint in annotated_fields(section).items():
        key, value = f"{path}{name}", getattr(section, name)
        if dataclasses.is_dataclass(_bare(hint)):
            found += range_problems(value, f"{key}.")
            continue
        problems = dict.fromkeys(
            problem for number, allowed in _ranged(value, hint) if (problem := allowed.problem(number)) is not None
        )
        each = "" if range_of(hint) is not None else " each"
        found += [f"{key}={shown(value)}: {problem}{each}" for problem in problems]
    return found


def _ranged(value: Any, hint: Any) -> Iterator[tuple[float, Range]]:  # noqa: ANN401 - any value of the schema
    """Yields the numbers of a value that have a range, those in tuples and mappings too."""
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
    sections = (
        (hint, getattr(config, name)) for name, hint in fields_of(config).items() if dataclasses.is_dataclass(hint)
    )
    return all(isinstance(hint, type) and is_section(value, hint) and has_sections(value) for hint, value in sections)


def is_section(value: object, kind: type) -> bool:
    """Returns whether a value is a section of a configuration with the fields of its class, none less and none more."""
    return isinstance(value, kind) and fields_of(value).keys() == fields_of(kind).keys()

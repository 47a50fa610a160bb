"""Every setting of every recipe is read: with another valid value the run that it configures does something else.

`observed.tape_of` says what a run does; for a setting that only some runs read, `observed.instead` makes such a run.
"""

import dataclasses
import typing

import pytest
from observed import KINDS, bases, instead, record, tape_of, values, workdir

from dfc import validation
from dfc.config import fields
from dfc.errors import DfcError
from dfc.launch.key_names import all_keys

# Settings of which one value lets a run end with an error: when an update, a row or a lack of rows is refused.
REFUSALS = {"max_growth", "max_update", "max_row_bytes", "needed", "cut_unanswered"}


def get(section, key):
    """The value at a key; NAME is the only entry of a mapping."""
    for name in key.split("."):
        section = next(iter(section.values()), None) if name == "NAME" else getattr(section, name)
    return section


def put(section, key, value):
    name, _, rest = key.partition(".")
    if name == "NAME":
        return {entry: put(inner, rest, value) for entry, inner in section.items()}
    value = put(getattr(section, name), rest, value) if rest else value
    return dataclasses.replace(section, **{name: value})


def hint_of(kind, key):
    *path, name = key.split(".")
    for part in path:
        kind = fields.section_of(kind) if part == "NAME" else fields.fields_of(kind)[part]
    return fields.annotated_fields(kind)[name]


def other_values(kind, key, value):
    """Values of the field's type other than its own; those out of its range are found by `validation.problems`."""
    hint = hint_of(kind, key)
    bare = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    if bare is bool:
        found = [not value]
    elif known := values().get(key) or values().get("*" + key.rsplit(".", 1)[-1]):
        found = list(known)
    elif bool in typing.get_args(bare):
        found = [True, False]
    elif type(None) in typing.get_args(bare):
        found = [0.5, 7]
    elif typing.get_origin(bare) is typing.Literal:
        found = typing.get_args(bare)
    else:
        found = [value + 1, 2 * value + 2, value // 2, 2, 50] if bare is int else [value / 2, 2 * value, 0.3, 0.9, 1.5]
    return [new for new in found if new != value]


def outcome(config, key):
    """What comes of a run; None if it refuses the configuration."""
    if key == "name":
        return workdir(config)
    try:
        return tape_of(config)
    except DfcError as error:
        return str(error) if key.rsplit(".", 1)[-1] in REFUSALS else None


def runs(recipe, key):
    """Configurations in which the field is to be read, those made for it first."""
    base = bases()[recipe]
    for prefixes, change in instead():
        if key.startswith(prefixes):
            yield from (made for made in [change(base)] if made is not None)
    if ".NAME." not in key:  # nobody is asked in the base
        yield base


def is_read(recipe, key):
    for base in runs(recipe, key):
        assert validation.problems(base) == [], (key, base)
        before = outcome(base, key)
        assert before is not None, (key, base)
        for value in other_values(type(base), key, get(base, key)):
            changed = put(base, key, value)
            if not validation.problems(changed) and outcome(changed, key) not in (None, before):
                return True
    return False


@pytest.mark.parametrize("recipe", KINDS)
def test_every_field_is_read(recipe):
    assert [key for key in all_keys(KINDS[recipe]) if not is_read(recipe, key)] == []


@pytest.mark.parametrize("recipe", KINDS)
def test_the_same_configuration_does_the_same(recipe):
    assert record(bases()[recipe]) == tape_of(bases()[recipe])

"""What stands in the place of a section: which class is expected there, and how it is written."""

import dataclasses

import pytest

import dfc.config
from dfc import validation
from dfc.config import (
    RECIPES,
    Collect,
    EndpointConfig,
    EvaluationConfig,
    Grpo,
    MatchesConfig,
    MeshConfig,
    Playpen,
    fields,
)
from dfc.errors import ConfigError


class Rude:
    def __repr__(self):
        raise ValueError


class Wordy:
    def __repr__(self):
        return "two\nlines " * 100_000


def sections_of(kind, path=()):
    """Yields the path and the class of every section of a recipe, of those within sections too."""
    for name, hint in fields.fields_of(kind).items():
        if dataclasses.is_dataclass(hint):
            yield (*path, name), hint
            yield from sections_of(hint, (*path, name))


def is_optional(kind, path):
    """Whether None may stand in the place of a section."""
    *sections, name = path
    for section in sections:
        kind = fields.fields_of(kind)[section]
    hint = fields.annotated_fields(kind)[name]
    return fields.without_none(hint) is not hint


def with_value(section, path, value):
    name, *rest = path
    return dataclasses.replace(section, **{name: with_value(getattr(section, name), rest, value) if rest else value})


SECTIONS = [
    pytest.param(kind, path, expected, id=f"{recipe}.{'.'.join(path)}")
    for recipe, kind in RECIPES.items()
    for path, expected in sections_of(kind)
]


@pytest.mark.parametrize(("kind", "path", "expected"), SECTIONS)
def test_every_section_of_every_recipe_says_its_class_and_how_it_is_written(kind, path, expected):
    name = expected.__name__
    assert getattr(dfc.config, name) is expected  # so that the import that is told can be made
    wrong = EndpointConfig() if expected is MeshConfig else MeshConfig()
    if optional := is_optional(kind, path):
        assert fields.type_problems(with_value(kind(), path, None)) == []
    for value, came in (
        (wrong, type(wrong).__name__),
        ({"a": 1}, "{'a': 1} (dict)"),
        (3, "3 (int)"),
        (None, "None (NoneType)"),
        (expected, f"the class {name} itself"),
        (Rude(), "<a value of type Rude> (Rude)"),
    ):
        if value is None and optional:
            continue
        key = ".".join(path)
        told = f"{key}: expected {name}(...) for recipe {kind.recipe}, got {came}; write {path[-1]}={name}(...) "
        assert f"{told}(from dfc.config import {name})" in fields.type_problems(with_value(kind(), path, value))


def test_the_usual_mistake_is_told_as_it_is_mended():
    config = Grpo(games={"Nim-v0": {}}, evaluation=EvaluationConfig())
    (problem,) = validation.problems(config)
    assert problem == (
        "evaluation: expected MatchesConfig(...) for recipe grpo, got EvaluationConfig;"
        " write evaluation=MatchesConfig(...) (from dfc.config import MatchesConfig)"
    )
    assert validation.problems(dataclasses.replace(config, evaluation=MatchesConfig())) == []


def test_an_entry_of_a_mapping_of_sections_is_told_with_its_name():
    (problem,) = validation.problems(Collect(games={"wordle": {}}, endpoints={"gpt-4.1": {"timeout": 3}}))
    assert problem == (
        "endpoints.gpt-4.1: expected EndpointConfig(...) for recipe collect, got {'timeout': 3} (dict);"
        " write endpoints={'gpt-4.1': EndpointConfig(...)} (from dfc.config import EndpointConfig)"
    )


def test_a_class_of_the_same_name_is_told_apart():
    same = dataclasses.make_dataclass("MatchesConfig", [("more", int, 1)], bases=(MatchesConfig,), frozen=True)
    (problem,) = validation.problems(Grpo(games={"Nim-v0": {}}, evaluation=same()))
    assert "got another class of the name MatchesConfig; write " in problem


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        10**5000,
        {"a": ["y"] * 100_000},
        Wordy(),
        type("z" * 10_000, (), {})(),
        type("line\nbreak\x1b[31m", (), {})(),
        type("line\nbreak", (), {}),
        [EndpointConfig()] * 1000,
    ],
    ids=range(8),
)
def test_whatever_stands_there_is_told_in_one_short_line(value):
    config = Playpen(sft=value)
    (problem,) = (one for one in validation.problems(config) if one.startswith("sft"))
    assert problem.startswith("sft: expected AdaptedSftConfig(...) for recipe playpen, got ")
    assert len(problem) < 500
    assert problem.isprintable()
    assert ConfigError([problem]).problems == (problem,)

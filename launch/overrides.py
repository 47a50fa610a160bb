"""Words such as ``--config.optimizer.b2=0.98`` applied to a configuration; every mistake is one sentence.

The dataclasses of `dfc.config` are the only schema: a value is read by its field's type, and what it is
replaced in is a new configuration. Nothing here imports JAX, so that a mistake is reported immediately.
"""

import ast
import dataclasses
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dfc.config import RECIPES, Games, GamesRunConfig, RunConfig, fields
from dfc.errors import ConfigError
from dfc.games import registry
from dfc.launch.key_names import entry_and_key, suggestion

OVERRIDE = re.compile(r"--?(?P<no>no)?config\.(?P<key>[^=]+)(?P<given>=(?P<value>.*))?", re.DOTALL)
_TRUE, _FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")
# An id, or the place of a class: race.py:Race, package.module:Race; then an option.
_GAME_KEY = re.compile(r"(?P<game>[^:]*:[A-Za-z_]\w*|[^.]+)(?:\.(?P<option>.*))?")
_LITERAL_ERRORS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)  # as the page of literal_eval says


def override(config: RunConfig, words: Sequence[str]) -> tuple[RunConfig, list[str]]:
    """Applies words in their order; the last one of a key holds.

    Returns:
      The configuration with every override that could be applied, as it is run (`canonical`), and one problem for each
      that could not.
    """
    found: list[str] = []
    if not fields.has_sections(config):  # nothing can be set in it; problems of the words are reported nevertheless
        return config, override(_sound(config), words)[1]
    for word in words:
        match = OVERRIDE.fullmatch(word)
        assert match is not None, word  # noqa: S101 - the caller has matched it
        try:
            config = _applied(config, match)
        except _BadOverride as error:
            means = _meant(config, match["key"], error, match["value"])
            found.append(f"--{match['no'] or ''}config.{match['key']}{error}{means}")
    return canonical(config), found


def unknown_keys(words: Sequence[str]) -> list[str]:
    """Returns one problem for each word whose key no recipe has: all that is known of them without a configuration."""
    known = {name: None for kind in RECIPES.values() for name in fields.fields_of(kind)}
    matches = [match for word in words if (match := OVERRIDE.fullmatch(word))]
    found = [(match, name) for match in matches if (name := match["key"].split(".")[0]) not in known]
    return [
        f"--config.{name}: there is no '{name}' in any configuration"
        f"{suggestion(None, match['key'], match['value']) or _nearest_top(name, known)}"
        for match, name in found
    ]


def _nearest_top(name: str, known: Collection[str]) -> str:
    near = fields.near(name, known)
    return fields.nearest(name, known) if near is None else f"; did you mean --config.{near}?"


def replaced(config: RunConfig, key: str, value: object) -> RunConfig:
    """Returns a configuration with another value at a dotted key; validation says whether it fits.

    Raises:
      ConfigError: there is no such key.
    """
    try:
        changed: RunConfig = canonical(_replaced(config, key.split("."), value))
    except _BadOverride as error:
        problem = f"{error}{_meant(config, key, error)}".replace("--config.", "")  # which is of command lines
        raise ConfigError([f"{key}{problem}"]) from None
    return changed


def _replaced(section: Any, names: Sequence[str], value: object, path: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 - any dataclass of the schema
    name, rest = names[0], names[1:]
    _require(section, name, path)
    if rest:
        before = getattr(section, name)
        hint = fields.fields_of(section)[name]
        kind = fields.section_of(hint)
        if hint == Games:
            game, option = _game_and_option(before, ".".join(rest))
            options = {**before[game], option: value} if option else value
            return dataclasses.replace(section, games={**before, game: options})
        entry, key = entry_and_key(rest, kind) if kind is not None else (".".join(rest), [])
        if isinstance(before, Mapping):
            inner = _replaced(before.get(entry, kind()), key, value, (*path, name, entry)) if kind and key else value
            value = {**before, entry: inner}
        elif dataclasses.is_dataclass(before) or (before is None and dataclasses.is_dataclass(hint)):
            value = _replaced(hint() if before is None else before, rest, value, (*path, name))
        else:
            raise _UnknownKey(f": {'.'.join((*path, name))} is no section", rest[0], {})
    return dataclasses.replace(section, **{name: value})


def _require(section: object, name: str, path: tuple[str, ...]) -> None:
    """Raises an _UnknownKey unless a section, to which the path leads, has a field."""
    known = fields.fields_of(section)
    if name not in known:
        where = ".".join(path) or f"the configuration of {_root(section, path)}"
        raise _UnknownKey(f": there is no '{name}' in {where}", name, known)


def _meant(config: RunConfig, key: str, error: "_BadOverride", value: str | None = None) -> str:
    """Returns what a key may mean that is not there, of the whole configuration; empty after any other error."""
    if not isinstance(error, _UnknownKey):
        return ""
    return suggestion(config, key, value) or (fields.nearest(error.name, error.known) if error.known else "")


def _sound(config: RunConfig) -> RunConfig:
    """Returns a configuration of the same class and games, all else as by default."""
    return type(config)(games=config.games) if isinstance(config, GamesRunConfig) else type(config)()


class _BadOverride(Exception):  # noqa: N818 - no error that a caller sees
    """What is wrong with a word, to follow its key."""


class _UnknownKey(_BadOverride):
    """A part of a key that is not among those that its section has; nothing has parts but a section."""

    def __init__(self, text: str, name: str, known: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.name, self.known = name, known


def _applied(section: Any, match: re.Match[str], path: tuple[str, ...] = (), names: Sequence[str] = ()) -> Any:  # noqa: ANN401 - any dataclass of the schema
    """Returns a section with the value that a word gives; `path` leads to the section, `names` from there on."""
    names = names or match["key"].split(".")
    name, rest, known = names[0], names[1:], fields.annotated_fields(section)
    _require(section, name, path)
    hint = fields.fields_of(section)[name]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        optional = fields.without_none(known[name]) is not known[name]
        if not rest and optional and not match["no"] and (match["value"] or "").lower() == "none":
            return dataclasses.replace(section, **{name: None})
        if not rest:
            none = ", or all of it to None" if optional else ""
            raise _BadOverride(f": a section; set its values one by one: {', '.join(fields.fields_of(hint))}{none}")
        before = getattr(section, name)
        inner = _applied(hint() if before is None else before, match, (*path, name), rest)
        return dataclasses.replace(section, **{name: inner})
    before = getattr(section, name)
    if hint == Games:
        return dataclasses.replace(section, games=_games(before, ".".join(rest), match))
    if (kind := fields.section_of(hint)) is not None:
        entry, key = entry_and_key(rest, kind)
        if not key:
            example = f"--config.{'.'.join((*path, name))}.{entry or 'NAME'}.{next(iter(fields.fields_of(kind)))}=VALUE"
            raise _BadOverride(f": {fields.describe_type(hint)}; set their values one by one: {example}")
        changed = _applied(before.get(entry, kind()), match, (*path, name, entry), key)
        return dataclasses.replace(section, **{name: {**before, entry: changed}})
    if rest and typing.get_origin(hint) is Mapping and isinstance(before, Mapping):
        value = {**before, ".".join(rest): _value(match, typing.get_args(hint)[1])}
    elif rest:
        text = f": {'.'.join((*path, name))} is {fields.describe_type(known[name])}, not a section"
        raise _UnknownKey(text, rest[0], {})
    else:
        value = _value(match, known[name])
    return dataclasses.replace(section, **{name: value})


def _root(section: object, path: tuple[str, ...]) -> str:
    return section.recipe if not path and isinstance(section, RunConfig) else type(section).__name__


# ---- values ----------------------------------------------------------------------------------------------------------


def _value(match: re.Match[str], hint: Any) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    """Returns the value of a word, read by a field's type."""
    switch = next((kind for kind in (hint, *typing.get_args(hint)[:1]) if kind is bool), None)
    if match["no"] and switch is None:
        raise _BadOverride(": only what is true or false can be turned off by --no")
    if not match["given"]:
        if switch is None:
            raise _BadOverride(f": a value is missing; write --config.{match['key']}=VALUE")
        return not match["no"]
    try:
        return _read(match["value"], hint)
    except _LITERAL_ERRORS:
        raise _BadOverride(f"={match['value']}: must be {fields.describe_type(hint)}") from None


def _read(text: str, hint: Any) -> Any:  # noqa: ANN401 - a type or a form of `typing`
    """Returns the value of a type that a text stands for; ValueError or one of `_LITERAL_ERRORS`: for none."""
    if (kind := fields.without_none(hint)) is not hint:
        return None if text.lower() == "none" else _read(text, kind)
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and not text.lstrip().startswith(("(", "[")):
        return tuple(_read(part.strip(), arguments[0]) for part in text.split(",") if part.strip())
    if origin in (tuple, Mapping):
        return _tuples(ast.literal_eval(text))  # validation reports what does not fit
    if origin is typing.Literal or hint is bool:
        words = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
        words = {word: word for word in arguments} if arguments else words
        if text not in words and text.lower() not in words:
            raise ValueError(text)
        return words[text if text in words else text.lower()]
    return _any(text) if hint is Any else hint(text)


def _any(text: str) -> Any:  # noqa: ANN401 - any literal
    """Returns a text read as a literal; itself where it is none."""
    try:
        return _tuples(ast.literal_eval(text))
    except _LITERAL_ERRORS:
        return text


def _tuples(value: Any) -> Any:  # noqa: ANN401 - any literal
    """Returns a literal with tuples in the place of lists."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def _games(games: Games, key: str, match: re.Match[str]) -> dict[str, Any]:
    """Returns the games of a run after a word that replaces all of them, all options of one, or one option."""
    given: Any = None
    game, option = _game_and_option(games, key)
    if option:
        kind = type(registry.defaults(game)[option])
        hint = tuple[int, ...] if kind is tuple else kind
        return {**games, game: {**games[game], option: _value(match, hint)}}
    try:
        given = _tuples(ast.literal_eval(match["value"] or ""))
    except _LITERAL_ERRORS:
        given = None
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        example = "{'max_turns': 14}" if game else "{'Nim-v0': {}, 'TowerOfHanoi-v0': {'max_turns': 14}}"
        raise _BadOverride(f'={match["value"]}: must be a mapping such as "{example}"')
    return {**games, game: given} if game else given


def _game_and_option(games: Games, key: str) -> tuple[str, str]:
    """Returns the game and the option that the part of a key after ``games.`` names, "" where it names none."""
    if not key:
        return "", ""
    if not isinstance(games, Mapping):
        raise _BadOverride(": the games of the file are no mapping")
    match = _GAME_KEY.fullmatch(key)
    game, option = (match["game"], match["option"] or "") if match else (key, "")
    try:
        options = registry.defaults(game)
    except ValueError as error:
        if game in registry.game_ids() or match is None or ":" in game:
            raise _BadOverride(f": {error}") from None
        raise _BadOverride(f": there is no game '{game}'{fields.nearest(game, registry.game_ids())}") from None
    if option and option.partition(".")[0] not in options:
        raise _BadOverride(f": {game} has no option '{option}'{fields.nearest(option, options)}")
    if "." in option:
        raise _BadOverride(": an option has no parts")
    if option and not isinstance(games.get(game), Mapping):
        raise _BadOverride(f": {game} is not among this run's games; add it: --config.games.{game}={{}}")
    return game, option


def canonical(config: RunConfig) -> RunConfig:
    """Returns a configuration as it is run: games in the order of their names, floats where the schema has them.

    A run does not depend on the order in which its games are written, nor on whether ``1`` or ``1.0`` is.
    """
    if not fields.has_sections(config):  # validation reports what is wrong
        return config
    config = _with_floats(config)
    return dataclasses.replace(config, games=_sorted(config.games)) if isinstance(config, GamesRunConfig) else config


def _sorted(games: Any) -> Any:  # noqa: ANN401 - games, or what a file has in their place
    """Returns a mapping, and those in it, in the order of its keys; validation reports what is none."""
    if not isinstance(games, Mapping) or not all(isinstance(name, str) for name in games):
        return games
    return {name: _sorted(games[name]) for name in sorted(games)}


def _with_floats(section: Any) -> Any:  # noqa: ANN401 - any dataclass of the schema
    """Returns a section with floats where the schema has them and whole numbers are given."""
    changed: dict[str, Any] = {}
    for name, kind in fields.fields_of(section).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(kind):
            if value is not None and (inner := _with_floats(value)) is not value:
                changed[name] = inner
        elif fields.section_of(kind) is not None:
            changed[name] = {entry: _with_floats(inner) for entry, inner in value.items()}
        elif kind is float and type(value) is int and abs(value) < 2**1000:  # else validation reports it
            changed[name] = float(value)
    return dataclasses.replace(section, **changed) if changed else section

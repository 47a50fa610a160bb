"""The games by name: what there is, how a game is made, and what is wrong with a request before it is made.

Four sources: the games of this package; games of other packages, which name themselves in the entry point group
``dfc.games`` (docs/add_a_game.md); adapters, whose ids carry a prefix, such as ``textarena:Chess-v0``; and classes that
are named by their place, ``FILE.py:CLASS`` or ``module:CLASS``. Wherever a game is named, each of these is accepted.
"""

import dataclasses
import difflib
import functools
import importlib
import importlib.metadata
import inspect
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dfc.games import loading
from dfc.games.game import Game

PROFILES = ("0.6.4", "0.7.4")  # versions of TextArena whose constructor values an id can have
_ENTRY_POINTS = "dfc.games"
_ADAPTERS = {  # prefix -> module with `entry(name)` and `names()`
    "clembench": "dfc.games.adapters.clembench",
    "textarena": "dfc.games.adapters.textarena",
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """How a game is made.

    Attributes:
      kind: makes one from keyword-only values: a class, or ``module:Class``, which is imported when it is needed.
      values: those that differ from the class's own.
      newer: those that differ in profile 0.7.4 from `values`; None where an id knows no profiles.
      family: where the game comes from, see `family`; empty for the name of the package that brings it.
    """

    kind: Callable[..., Game] | str
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    newer: Mapping[str, Any] | None = None
    family: str = ""


def _textarena(kind: str, newer: Mapping[str, Any] | None = None, /, **values: Any) -> Entry:  # noqa: ANN401 (any value)
    """An id of TextArena in Divide-Fuse-Conquer, with the constructor values of 0.6.4 and what 0.7.4 changed."""
    return Entry(f"dfc.games.textarena.{kind}", values, newer or {}, "Divide-Fuse-Conquer")


def _paprika(kind: str) -> Entry:
    return Entry(f"dfc.games.paprika.{kind}", family="Paprika")


def _dialogue(kind: str) -> Entry:
    return Entry(f"dfc.games.dialogue.{kind}", family="Playpen")


_GAMES: dict[str, Entry] = {
    "TicTacToe-v0": _textarena("tic_tac_toe:TicTacToe"),
    "ConnectFour-v0": _textarena("connect_four:ConnectFour"),
    "ConnectFour-v0-blind": _textarena("connect_four:ConnectFour", is_open=False),
    "ConnectFour-v0-large": _textarena("connect_four:ConnectFour", num_rows=12, num_cols=15),
    "TowerOfHanoi-v0": _textarena("tower_of_hanoi:TowerOfHanoi", {"max_turns": 14}, num_disks=3, max_turns=100),
    "TowerOfHanoi-v0-medium": _textarena("tower_of_hanoi:TowerOfHanoi", {"max_turns": 30}, num_disks=4, max_turns=100),
    "GuessTheNumber-v0": _textarena("guess_the_number:GuessTheNumber", min_number=1, max_number=20, max_turns=10),
    "GuessTheNumber-v0-hardcore": _textarena(
        "guess_the_number:GuessTheNumber", {"max_turns": 10}, min_number=1, max_number=50, max_turns=7
    ),
    "LiarsDice-v0": _textarena("liars_dice:LiarsDice", num_dice=5),
    "Nim-v0": Entry("dfc.games.textarena.nim:Nim", {"piles": (3, 4, 5)}, {}, "TextArena"),
    "Poker-v0": _textarena("poker:Poker", num_rounds=10, starting_chips=1000, small_blind=10, big_blind=20),
    "Poker-v0-long": _textarena(
        "poker:Poker", num_rounds=15, starting_chips=1000, small_blind=10, big_blind=20, max_actions=300
    ),
    "Poker-v0-extreme": _textarena(
        "poker:Poker", num_rounds=50, starting_chips=1000, small_blind=10, big_blind=20, max_actions=1000
    ),
    "SimpleNegotiation-v0": _textarena("simple_negotiation:SimpleNegotiation", max_turns=10),
    "SimpleNegotiation-v0-short": _textarena("simple_negotiation:SimpleNegotiation", max_turns=6),
    "SimpleNegotiation-v0-long": _textarena("simple_negotiation:SimpleNegotiation", max_turns=30),
    "TruthAndDeception-v0": _textarena("truth_and_deception:TruthAndDeception", max_turns=6),
    "TruthAndDeception-v0-long": _textarena("truth_and_deception:TruthAndDeception", max_turns=12),
    "TruthAndDeception-v0-extreme": _textarena("truth_and_deception:TruthAndDeception", max_turns=50),
    "wordle": _paprika("wordle:Wordle"),
    "mastermind": _paprika("mastermind:Mastermind"),
    "bandit": _paprika("bandit:Bandit"),
    "bandit_regret": _paprika("bandit_regret:BanditRegret"),
    "cellular_automata": _paprika("cellular_automata:CellularAutomata"),
    "battleship": _paprika("battleship:Battleship"),
    "minesweeper": _paprika("minesweeper:Minesweeper"),
    "twenty_questions": _paprika("twenty_questions:TwentyQuestions"),
    "guess_my_city": _paprika("guess_my_city:GuessMyCity"),
    "customer_service": _paprika("customer_service:CustomerService"),
    "murder_mystery": _paprika("murder_mystery:MurderMystery"),
    "clem_taboo": _dialogue("taboo:Taboo"),
    "clem_guesswhat": _dialogue("guess_what:GuessWhat"),
    "clem_textmapworld": _dialogue("text_map:TextMap"),
    "clem_textmapworld_specificroom": _dialogue("text_map:TextMapRoom"),
    "clem_textmapworld_graphreasoning": _dialogue("text_map:TextMapGraph"),
    "clem_wordle": _dialogue("wordle:ClemWordle"),
    "clem_wordle_withclue": _dialogue("wordle:ClemWordleWithClue"),
    "clem_wordle_withcritic": _dialogue("wordle:ClemWordleWithCritic"),
    "clem_privateshared": _dialogue("private_shared:PrivateShared"),
    "clem_codenames": _dialogue("codenames:Codenames"),
    "clem_imagegame": _dialogue("image_game:ImageGame"),
    "clem_referencegame": _dialogue("reference_game:ReferenceGame"),
    "clem_matchit_ascii": _dialogue("match_it:MatchIt"),
    "clem_adventuregame": _dialogue("adventure:AdventureGame"),
}


def game_ids() -> tuple[str, ...]:
    """Returns every id: this package's own, then those of installed packages; without those of adapters."""
    return (*_GAMES, *(name for name in _installed() if name not in _GAMES))


def own_game_ids() -> tuple[str, ...]:
    """Returns the ids of this package."""
    return tuple(_GAMES)


def entry(game_id: str) -> Entry:
    """Returns how a game is made.

    It is an id, ``FILE.py:CLASS`` or ``module:CLASS``; an id goes before a module of the same name.

    Raises:
      ValueError: there is no such id, file, module or class, or what brings it cannot be imported.
    """
    if game_id in _GAMES:
        return _GAMES[game_id]
    prefix, colon, name = game_id.partition(":")
    if colon and prefix in _ADAPTERS:
        return _adapted(prefix, name)
    if game_id in _installed():
        return _load(game_id)
    place = _place(game_id)
    if place is not None:
        return _placed(*place)
    raise ValueError(_unknown("there is no game id", game_id, game_ids()))


def is_code(game_id: object) -> bool:
    """Returns whether a name makes this process import a file or a module that it has not imported yet.

    Who reads names that others wrote, as in a record of a game, refuses these: their code would run.
    """
    place = _place(game_id) if isinstance(game_id, str) else None
    return place is not None and not loading.is_loaded(place[0])


def _place(game_id: str) -> tuple[str, str] | None:
    """Returns the file or module and the class that a name consists of; None if it is, or could be, an id."""
    if game_id in _GAMES or game_id.partition(":")[0] in _ADAPTERS or game_id in _installed():
        return None
    return loading.place_of(game_id)


def _placed(place: str, member: str) -> Entry:
    module = loading.module_at(place)
    found = _checked(getattr(module, member, None))
    if found is None:
        games = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Game) and v is not Game]
        raise ValueError(f"{place} holds no game {member!r}; its subclasses of Game are {', '.join(games) or 'none'}")
    # No folder stands in the family: records of two machines agree.
    return found if found.family else dataclasses.replace(found, family=pathlib.PurePath(place).name)


def _checked(found: object) -> Entry | None:
    """Returns what an entry point or a place names as an entry; None if it is no game."""
    if isinstance(found, Entry):
        return found
    return Entry(found) if isinstance(found, type) and issubclass(found, Game) and found is not Game else None


def adapter_names(prefix: str) -> tuple[str, ...]:
    """Returns the names behind a prefix, such as ``textarena``; not every one of them can be begun.

    Raises:
      ValueError: there is no such prefix, or the package is missing.
    """
    if prefix not in _ADAPTERS:
        raise ValueError(_unknown("there is no adapter", prefix, _ADAPTERS))
    found: tuple[str, ...] = _adapter(prefix, f"{prefix}:").names()
    return found


def _adapted(prefix: str, name: str) -> Entry:
    found: Entry = _adapter(prefix, f"game id '{prefix}:{name}'").entry(name)
    return found if found.family else dataclasses.replace(found, family=prefix)


def _adapter(prefix: str, wanted: str) -> Any:  # noqa: ANN401 (a module)
    try:
        return importlib.import_module(_ADAPTERS[prefix])
    except ImportError as error:
        raise ValueError(f"{wanted}: its adapter cannot be imported: {error}") from error


def kind(game_id: str) -> Callable[..., Game]:
    """Returns what makes a game: its class.

    Raises:
      ValueError: as `entry`.
    """
    return _kind(entry(game_id).kind)


@functools.cache
def _kind(named: Callable[..., Game] | str) -> Callable[..., Game]:
    if not isinstance(named, str):
        return named
    module, _, name = named.partition(":")
    try:
        found: Callable[..., Game] = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # as in `_load`
        raise ValueError(f"importing {named!r} raised {loading.error_text(error)}") from error
    return found


def family(game_id: str) -> str:
    """Returns where a game comes from.

    ``Divide-Fuse-Conquer`` for the ids of TextArena in that paper, ``TextArena`` for others of TextArena, ``Paprika``,
    ``Playpen`` for its dialogue games, the prefix of an adapter, the name of the installed package that brings the id,
    or the file or module of a class.

    Raises:
      ValueError: as `entry`.
    """
    found = entry(game_id)
    if found.family or game_id not in _installed():
        return found.family
    return _package_of(_installed()[game_id][0])


def conflicts() -> list[str]:
    """Returns what is wrong with the ids that installed packages name, one sentence each; nothing is imported.

    An id of this package is not replaced; an id that two packages name for different things makes neither's game.
    """
    found = []
    for game_id, points in _installed().items():
        if game_id in _GAMES:
            names = ", ".join(map(_package_of, points))
            found.append(
                f"game {game_id!r}: the installed package {names} names this id in the entry points "
                f"{_ENTRY_POINTS!r}, but it is an id of dfc, which is never replaced; give the game another id"
            )
        elif len(points) > 1:
            found.append(_twice(game_id, points))
    return found


def installed_modules() -> tuple[str, ...]:
    """Returns the modules that installed packages name for their games; imports none."""
    return tuple(dict.fromkeys(point.module for points in _installed().values() for point in points))


@functools.cache
def _installed() -> dict[str, tuple[importlib.metadata.EntryPoint, ...]]:
    """Returns what installed packages name, by id; more than one where they do not agree on what an id is."""
    found: dict[str, dict[str, importlib.metadata.EntryPoint]] = {}
    for point in importlib.metadata.entry_points(group=_ENTRY_POINTS):
        found.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: tuple(points.values()) for name, points in found.items()}


def _package_of(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module.partition(".")[0]


def _twice(game_id: str, points: tuple[importlib.metadata.EntryPoint, ...]) -> str:
    named = " and ".join(f"{_package_of(point)} ({point.value})" for point in points)
    return f"game {game_id!r}: the installed packages {named} both name this id; uninstall one, or rename its id"


@functools.cache
def _load(game_id: str) -> Entry:
    point, *others = _installed()[game_id]
    if others:
        raise ValueError(_twice(game_id, (point, *others)))
    try:
        found = point.load()
    except (Exception, SystemExit) as error:  # whatever another package raises is reported with its name
        raise ValueError(
            f"game {game_id!r}: its package names {point.value!r} in the entry points {_ENTRY_POINTS!r}, and importing "
            f"that raised {loading.error_text(error)}"
        ) from error
    checked = _checked(found)
    if checked is None:
        raise ValueError(
            f"game {game_id!r}: {point.value!r} must be a subclass of dfc.games.game.Game or a "
            f"dfc.games.registry.Entry, got {type(found).__name__}"
        )
    return checked


def make(game_id: str, /, **options: Any) -> Game:  # noqa: ANN401 (what is allowed depends on the game)
    """Returns a game with its `id` set, not yet reset.

    A class that is named by its place has its own name as `id`, which is the same on every machine.

    Args:
      game_id: an id, ``FILE.py:CLASS`` or ``module:CLASS``.
      **options: constructor values that differ from `defaults(game_id)`; `profile` names the version of TextArena
        whose values the others have (one of `PROFILES`).

    Raises:
      ValueError: the id or an option is wrong; the text lists everything that `problems` finds.
    """
    # Every episode makes a game, and nearly all are right: `problems`, which makes it once more, is for the rest.
    if not isinstance(game_id, str) or (options and _of_right_types(game_id, options)[0]):
        raise ValueError("\n".join(problems(game_id, options)))
    try:
        game = _made(game_id, options)
    except ValueError as error:
        raise ValueError("\n".join(problems(game_id, options)) or str(error)) from error
    if _place(game_id) is None:
        game.id = game_id
    return game


def defaults(game_id: str, profile: str = PROFILES[0]) -> dict[str, Any]:
    """Returns all constructor values of an id, by name, and its `profile` if it knows any.

    Args:
      game_id: as `make`.
      profile: the version of TextArena, one of `PROFILES`; of no effect on an id that knows no profiles.

    Raises:
      ValueError: there is no such id or profile.
    """
    if profile not in PROFILES:
        raise ValueError(_unknown(f"{game_id} has no profile", profile, PROFILES))
    found = entry(game_id)
    values = _class_defaults(_kind(found.kind)) | dict(found.values)
    if found.newer is not None:
        values |= {"profile": profile, **(found.newer if profile == PROFILES[1] else {})}
    return values


@functools.cache
def _class_defaults(made_by: Callable[..., Game]) -> dict[str, Any]:
    found = {}
    for name, parameter in inspect.signature(made_by).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            found[name] = parameter.default
    common = inspect.signature(Game.__init__).parameters.items()
    found |= {name: p.default for name, p in common if name not in found and name != "self"}
    allowances = getattr(made_by, "default_allowances", Game.default_allowances)
    for name, value in zip(("illegal_allowance", "malformed_allowance"), allowances, strict=True):
        found[name] = value if found[name] is None else found[name]
    return found


def problems(game_id: object, options: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with an id and its options, one sentence each; [] if the game can be made.

    Found are an unknown id, a file, module or class that cannot be used, unknown options, values of a wrong type and
    values out of range; each sentence names what came and what is allowed. Never raises, of whatever type the values
    are.
    """
    found, usable = _of_right_types(game_id, options)
    return found if usable is None or not isinstance(game_id, str) else found + _range_problems(game_id, usable)


def _of_right_types(game_id: object, options: Mapping[str, Any]) -> tuple[list[str], dict[str, Any] | None]:
    """Returns the problems of a request before a game is made, and the options that may be right.

    None for these if there is no such game.
    """
    if not isinstance(game_id, str):
        return [f"a game id must be text, got {game_id!r} of type {type(game_id).__name__}"], None
    try:
        known = defaults(game_id)
    except ValueError as error:
        return [str(error)], None
    found = []
    usable = {}
    for name, value in options.items():
        if name not in known:
            found.append(_unknown(f"{game_id} has no option", name, known))
        elif not _same_type(value, known[name]):
            wanted = _type_of(known[name])
            found.append(f"{game_id}: {name} must be {wanted}, got {value!r} of type {type(value).__name__}")
        elif name == "profile" and value not in PROFILES:
            found.append(_unknown(f"{game_id} has no profile", value, PROFILES))
        else:
            usable[name] = value
    return found, usable


def _made(game_id: str, options: Mapping[str, Any]) -> Game:
    try:
        return _construct(game_id, options)
    except ValueError:
        raise
    except (Exception, SystemExit) as error:  # of a custom class: it may be abstract, or take no `**common`
        raise ValueError(f"making it raised {loading.error_text(error)}") from error


def _construct(game_id: str, options: Mapping[str, Any]) -> Game:
    found = entry(game_id)
    values = {**found.values, **options}
    if found.newer is not None:
        profile = values.pop("profile", PROFILES[0])
        if profile not in PROFILES:
            raise ValueError(_unknown("there is no profile", profile, PROFILES))
        if profile == PROFILES[1]:
            values = {**found.values, **found.newer, **{k: v for k, v in options.items() if k != "profile"}}
    return _kind(found.kind)(**{k: tuple(value) if isinstance(value, list) else value for k, value in values.items()})


def _range_problems(game_id: str, options: dict[str, Any]) -> list[str]:
    """Returns the complaints of the constructor, which alone knows the ranges, about options of right types.

    Options are added one by one to those accepted so far. One that fails is tried again after the others, since a
    minimum above the usual maximum is right beside a larger maximum; what still fails then is wrong.
    """
    if not options and _place(game_id) is not None:  # whether a class can be made at all is known of the others
        try:
            _made(game_id, {})
        except ValueError as error:
            return [f"{game_id}: {error}"]
    accepted: dict[str, Any] = {}
    waiting = options
    while True:
        refused = {}
        complaints = []
        for name, value in waiting.items():
            try:
                _made(game_id, accepted | {name: value})
            except ValueError as error:
                refused[name] = value
                complaints.append(f"{game_id}: {error}")
            else:
                accepted[name] = value
        if len(refused) == len(waiting):
            return complaints
        waiting = refused


def _same_type(value: object, default: object) -> bool:
    # bool is a subclass of int, yet True is no number of disks: types are compared exactly.
    if isinstance(default, tuple):
        return isinstance(value, (tuple, list)) and all(type(item) is _item_type(default) for item in value)
    return type(value) is type(default) or (type(default) is float and type(value) is int)


def _item_type(default: tuple[object, ...]) -> type:
    return type(default[0]) if default else int


def _type_of(default: object) -> str:
    if isinstance(default, tuple):
        return f"a tuple of {_item_type(default).__name__}"
    return f"of type {type(default).__name__}"


def _unknown(lead: str, name: object, known: Iterable[str]) -> str:
    names = list(known)
    folded = {candidate.lower(): candidate for candidate in names}
    nearest = folded[difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=0.0)[0]]
    return f"{lead} {name!r}; did you mean {nearest!r}? Known are {', '.join(names)}"

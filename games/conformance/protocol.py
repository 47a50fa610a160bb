"""What a game must keep, as functions of a `Subject` that yield one sentence per fault; `check` runs them.

Here is what a game declares and how it is played; copies are in `dfc.games.conformance.copies`, texts in
`dfc.games.conformance.texts`, replies that cannot be used in `dfc.games.conformance.replies`.
"""

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from dfc.games.game import Game, Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import Player

MIDGAME = 40  # replies after which the costly properties leave a game
_TRIED = 15  # actions tried per position
_RESPELLED = 10  # positions per seed in which actions are spelled otherwise
_ENDS_OF_TWO = ([Outcome.DRAW, Outcome.DRAW], [Outcome.LOSS, Outcome.WIN])
_ENDS_OF_ONE = (Outcome.WIN, Outcome.DRAW, Outcome.LOSS)
_ENDS_OF_A_TEAM = (Outcome.WIN, Outcome.LOSS)


@dataclasses.dataclass(frozen=True)
class Subject:
    """The game under test; `make` returns a new one, not yet begun; simulators are by role."""

    make: Callable[[], Game]
    seeds: Sequence[int]
    simulators: Mapping[str, Player]

    def started(self, seed: int, *, malformed_allowance: int = 0, history: bool = False) -> Game:
        """Returns a game that has just begun."""
        game = self.make()
        game.malformed_allowance = malformed_allowance
        game.history = history
        game.reset(seed)
        return game

    def reply(self, game: Game, rng: GameRng) -> str:
        """Returns what the seat to move says: a player one of the listed actions, a simulator what its script says."""
        seat = game.to_move
        if seat is None or seat < game.seats:
            actions = game.legal_actions()
            return actions[rng.randrange(len(actions))]
        return self.simulators[game.role(seat)].act(game, rng)


def walk(subject: Subject, purpose: str, most: int) -> Iterator[tuple[int, Game, GameRng]]:
    """Plays every seed for so many replies; yields before each its seed, the game and the stream of the replies."""
    for seed in subject.seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed(purpose, seed))
        for _ in range(most):
            if game.over:
                break
            yield seed, game, rng
            game.step(subject.reply(game, rng))


def midgame(subject: Subject, seed: int, *, malformed_allowance: int = 0) -> Game:
    """Returns a game some replies after its start, not over."""
    game = subject.started(seed, malformed_allowance=malformed_allowance)
    rng = GameRng(derive_seed("midgame", seed))
    for _ in range(min(game.max_game_length // 2, 20)):
        after = game.clone()
        after.step(subject.reply(after, rng))
        if after.over:
            break
        game = after
    return game


def everyone(game: Game) -> range:
    """Returns all seats, those of simulators included."""
    return range(game.seats + len(game.simulators))


def seen(game: Game) -> str:
    """Returns all that can be seen of a game as one text."""
    shown = [game.observation(seat) for seat in everyone(game)]
    return json.dumps([game.legal_actions(), shown, game.measures(), game.to_json()])


def play(subject: Subject, game: Game, seed: object) -> Iterator[str]:
    """Plays to the end; yields all that can be seen before every reply and at the end."""
    rng = GameRng(derive_seed("check", seed))
    yield seen(game)
    while not game.over:
        game.step(subject.reply(game, rng))
        yield seen(game)


# ---- what a game declares -----------------------------------------------------------------------------------------


def declared(subject: Subject) -> Iterator[str]:
    """The class variables are usable, and a game has not begun before `reset`."""
    game = subject.make()
    if game.seats not in {1, 2}:
        yield f"`seats` must be 1 or 2, got {game.seats!r}"
    if game.start not in {"fixed", "random"}:
        yield f"`start` must be 'fixed' or 'random', got {game.start!r}"
    if not game.grammar:
        yield "`grammar` is empty; a player whose reply cannot be read is shown it"
    example = type(game).extract is Game.extract and re.fullmatch(r"\[[^\[\]]*\]", game.grammar)
    if example and subject.started(subject.seeds[0])._read(game.grammar) is None:  # noqa: SLF001 (a hook of every game)
        yield f"`grammar` is {game.grammar!r}, which `_read` cannot read; give an action that can be read"
    if type(game.max_game_length) is not int or game.max_game_length < 1:
        yield f"`max_game_length` must be a whole number of 1 or more, got {game.max_game_length!r}"
    if not game.stateless_roles <= {"player", *game.simulators}:
        named = sorted(game.stateless_roles)
        yield f"`stateless_roles` must name roles of `simulators`, or player, got {named} and {game.simulators}"
    if game.evaluation_only not in (True, False):
        yield f"`evaluation_only` must be True or False, got {game.evaluation_only!r}"
    yield from _declared_of_players(game)
    if any(type(size) is not int or size < 1 for size in game.splits.values()):
        yield f"`splits` must hold numbers of tasks, got {dict(game.splits)}"
    if game.to_move is not None or game.legal_actions():
        yield "before `reset`, `to_move` must be None and `legal_actions` []"


def _declared_of_players(game: Game) -> Iterator[str]:
    for name in ("team", "has_quality", "free_layout"):
        if getattr(game, name) not in (True, False):
            yield f"`{name}` must be True or False, got {getattr(game, name)!r}"
    if game.team and game.seats < 2:
        yield f"`team` is for two seats or more, got seats={game.seats}; a single player wins or loses alone anyway"
    roles = game.player_roles
    if roles and (len(set(roles)) != game.seats or len(roles) != game.seats or not all(map(str.isidentifier, roles))):
        yield f"`player_roles` must be () or a name of its own for each of {game.seats} seats, got {roles!r}"
    if {*roles} & {"player", *game.simulators}:
        yield f"`player_roles` must not name 'player' or a simulator, got {roles!r}"
    allowed = game.default_allowances
    if len(allowed) != 2 or any(type(number) is not int or number < 0 for number in allowed):
        yield f"`default_allowances` must be two whole numbers of 0 or more, got {allowed!r}"


def constructed(subject: Subject) -> Iterator[str]:
    """Constructor values are keyword-only, have defaults, and those of every game reach the base class."""
    kind = type(subject.make())
    parameters = inspect.signature(kind).parameters.values()
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            yield f"constructor value {parameter.name!r} must be keyword-only"
        if parameter.default is parameter.empty or parameter.default is None:
            yield f"constructor value {parameter.name!r} needs a default of its type: options are checked against it"
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
        yield "the constructor must take `**common: Unpack[Common]` and hand it to `super().__init__`"
    else:
        made = kind(illegal_allowance=3, malformed_allowance=4, history=True)
        if (made.illegal_allowance, made.malformed_allowance, made.history) != (3, 4, True):
            yield "the constructor does not hand `**common` to `super().__init__`"


def measured(subject: Subject) -> Iterator[str]:
    """`measures` gives floats, under the same names after every game."""
    names = set()
    for seed in subject.seeds:
        game = subject.started(seed)
        for _ in play(subject, game, seed):
            wrong = {n: v for n, v in game.measures().items() if type(n) is not str or type(v) is not float}
            if wrong:
                yield f"`measures` must be floats by name, got {wrong}"
                return
            fault = _wrong_quality(game)
            if fault:
                yield f"seed {seed}: {fault}"
                return
        names.add(tuple(sorted({*game.measures()} - {"quality"})))
    yield from _quality_without_end(subject)
    if len(names) > 1:
        yield f"`measures` has different names after different games: {sorted(names)}"


def _wrong_quality(game: Game) -> str | None:
    """Returns what is wrong with the measure `quality` now."""
    ended = game.outcomes is not None and not {Outcome.INVALID, Outcome.TRUNCATED} & set(game.outcomes)
    found = game.measures().get("quality")
    if not game.has_quality:
        return None if found is None else "`measures` has 'quality'; set `has_quality = True`"
    if ended and found is None:
        return f"the game ended with {', '.join(game.outcomes or ())} and `measures` has no 'quality'"
    if not ended and found is not None:
        how = f"ended with {', '.join(game.outcomes)}" if game.outcomes else "is not over"
        return f"the game {how} and `measures` has 'quality'; a game that did not come to its end has none"
    return None if found is None or 0 <= found <= 100 else f"'quality' must be from 0 to 100, got {found}"


def _quality_without_end(subject: Subject) -> Iterator[str]:
    """Games that are stopped, or forfeited, have no quality."""
    for seed, game, _ in walk(subject, "quality", MIDGAME if subject.make().has_quality else 0):
        stopped, forfeited = game.clone(), game.clone()
        stopped.truncate()
        while game.to_move in range(game.seats) and forfeited.step("") is Verdict.MALFORMED:
            pass
        for ended in (stopped, forfeited):
            fault = _wrong_quality(ended)
            if fault:
                yield f"seed {seed}: {fault}"
                return


# ---- how it is played ---------------------------------------------------------------------------------------------


def ends(subject: Subject) -> Iterator[str]:
    """Random play ends within `max_game_length` legal actions, with outcomes of the rules."""
    for seed in subject.seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("ends", seed))
        patience = 100 + 10 * game.max_game_length * (1 + len(game.simulators))
        for _ in range(patience):
            if game.over:
                break
            if type(game.to_move) is not int or game.to_move not in everyone(game):
                yield (
                    f"seed {seed}: `to_move` is {game.to_move!r}, which is no seat; `_begin` returns who moves, "
                    "`_play` who moves next, or the outcomes"
                )
                break
            if game.to_move < game.seats and not game.legal_actions():
                yield f"seed {seed}: seat {game.to_move} is to move and `legal_actions` is empty"
                break
            reply = subject.reply(game, rng)
            verdict = game.step(reply)
            if verdict is not Verdict.PLAYED:
                yield f"seed {seed}: the listed action {reply!r} got the verdict {verdict}"
                break
            if game.actions_played > game.max_game_length:
                played = f"{game.actions_played} actions were played"
                yield f"seed {seed}: {played} and `max_game_length` is {game.max_game_length}"
                break
        else:
            yield f"seed {seed}: the game is not over after {patience} replies"
        if game.over:
            yield from (f"seed {seed}: {fault}" for fault in _bad_end(game))


def _bad_end(game: Game) -> Iterator[str]:
    outcomes = game.outcomes or ()
    right = isinstance(outcomes, tuple) and all(isinstance(outcome, Outcome) for outcome in outcomes)
    if not right or len(outcomes) != game.seats:
        usual = "`self._won_by(seat)`, `self._drawn()`" if game.seats > 1 else "`(Outcome.WIN,)`, `(Outcome.LOSS,)`"
        yield (
            f"the outcomes must be {game.seats} of Outcome, got {outcomes!r}; let `_play` return {usual} or a tuple "
            "with one of Outcome.WIN, Outcome.DRAW, Outcome.LOSS for each player"
        )
    elif game.abort_reason is not None or (set(outcomes) == {Outcome.INVALID} and (game.team or game.seats == 1)):
        if not game.abort_reason or set(outcomes) != {Outcome.INVALID}:
            yield (
                f"a game that is broken off is invalid for all and says why, got {', '.join(outcomes)} and "
                f"{game.abort_reason!r}; let `_play` return `self._abort(why, by=seat)`"
            )
    elif game.seats == 1 and outcomes[0] not in _ENDS_OF_ONE:
        yield f"a game of legal actions ends in a win, draw or loss, got {outcomes[0]}"
    elif game.team and (len(set(outcomes)) > 1 or outcomes[0] not in _ENDS_OF_A_TEAM):
        yield (
            "a game of a team ends for all seats alike in a win or a loss, or is broken off by `self._abort(why)`, "
            f"got {', '.join(outcomes)}; let `_play` return `self._team(Outcome.WIN)`"
        )
    elif game.seats == 2 and not game.team and sorted(outcomes) not in _ENDS_OF_TWO:
        yield f"a game of two ends with one winner and one loser or in two draws, got {', '.join(outcomes)}"
    if game.lost_by is not None and set(outcomes) != {Outcome.LOSS}:
        yield (
            f"a game that seat {game.lost_by} lost is a loss for all, got {', '.join(outcomes)}; let `_play` return "
            "what `self._lost(by, why)` returns"
        )
    if game.legal_actions():
        yield f"`legal_actions` must be [] after the end, got {game.legal_actions()[:3]}"


def listed(subject: Subject) -> Iterator[str]:
    """An action is played if it is listed as legal and, unless `open_actions`, only then."""
    pool: dict[str, None] = {}
    for seed in subject.seeds:
        game = subject.started(seed)
        pool |= dict.fromkeys(action for _ in play(subject, game, seed) for action in game.legal_actions()[:20])
    candidates = list(pool)
    for _, game, rng in walk(subject, "listed", MIDGAME):
        yield from _listed_now(game, candidates, rng)


def _listed_now(game: Game, pool: list[str], rng: GameRng) -> Iterator[str]:
    legal = game.legal_actions()
    seat = game.to_move or 0
    if seat >= game.seats:
        if legal:
            yield f"`legal_actions` must be [] while a simulator is to move, got {legal[:3]}"
        return
    if len(set(legal)) < len(legal):
        yield f"`legal_actions` lists an action twice: {legal[:10]}"
    if game.legal_actions() != legal:
        yield "`legal_actions` gives another list when it is asked again"
    for action in _some(legal, rng):
        if game.extract(action) != action or game._read(action) != action:  # noqa: SLF001 (a hook of every game)
            yield f"the listed action {action!r} is not canonical: `extract` and `_read` must return it as it is"
        elif game.clone().step(action) is not Verdict.PLAYED:
            yield f"the listed action {action!r} got the verdict {game.clone().step(action)}"
    for action in () if game.open_actions else _some(pool, rng):
        if action not in legal and game.clone().step(action) is Verdict.PLAYED:
            yield f"{action!r} was played and is not listed in `legal_actions` (or set `open_actions`)"


def spelled(subject: Subject) -> Iterator[str]:
    """Other spellings of an action (more zeros, blanks, other case) are turned into the listed one, or cannot be read.

    With `open_actions` whatever they are turned into must be its own spelling.
    """
    for _, game, rng in walk(subject, "spelled", _RESPELLED):
        legal = game.legal_actions()
        for action in _some(legal, rng, 5):
            for other in _respelled(action):
                yield from _accepted(game, legal, action, other)


def _respelled(action: str) -> list[str]:
    """Returns other spellings of an action, tags untouched."""
    match = re.fullmatch(r"(<Answer>|\[)(.*)(</Answer>|\])", action, re.DOTALL)
    opening, middle, closing = match.groups() if match else ("", action, "")
    found = [re.sub(r"[0-9]+", "0\\g<0>", middle), f" {middle} ", middle.replace(" ", "  ")]
    found += [middle.replace(" ", ""), middle.upper(), middle.lower()]
    return [opening + other + closing for other in dict.fromkeys(found) if other != middle]


def _accepted(game: Game, legal: list[str], action: str, other: str) -> Iterator[str]:
    extracted = game.extract(other)
    read = None if extracted is None else game._read(extracted)  # noqa: SLF001 (a hook of every game)
    if read is None or read in legal:
        return
    again = game.extract(read)
    if again is None or game._read(again) != read:  # noqa: SLF001 (as above)
        yield f"{other!r} is read as {read!r}, which is not read as itself: `_read` must give the canonical spelling"
    elif not game.open_actions and game.clone().step(other) is Verdict.PLAYED:
        yield (
            f"{other!r} is played beside {action!r} and is read as {read!r}, which is not listed; let `_read` return "
            "the one canonical spelling (`read_number` drops leading zeros), or None"
        )


def _some(actions: list[str], rng: GameRng, most: int = _TRIED) -> list[str]:
    if len(actions) <= most:
        return actions
    return [actions[rng.randrange(len(actions))] for _ in range(most)]


def refused(subject: Subject) -> Iterator[str]:
    """An illegal reply changes nothing but the tries, and its reason is reported to the offender, without numbers."""
    pool: dict[str, None] = {}
    for _, game, rng in walk(subject, "refused", MIDGAME):
        legal = game.legal_actions()
        for action in _some(list(pool), rng):
            if action not in legal:
                yield from _refused_now(game, action)
        pool |= dict.fromkeys(legal[:5])


def _refused_now(game: Game, action: str) -> Iterator[str]:
    after = game.clone()
    if after.to_move is None or after.to_move >= after.seats or after.step(action) is not Verdict.ILLEGAL:
        return
    seat = game.to_move or 0
    if after.to_move != seat or after.legal_actions() != game.legal_actions():
        yield f"the illegal action {action!r} changed whose turn it is or what is legal"
    if after.to_json()["state"] != game.to_json()["state"] or after.rng.draws != game.rng.draws:
        yield f"the illegal action {action!r} changed the position"
    if any(after.observation(s) != game.observation(s) for s in everyone(game) if s != seat):
        yield f"another seat was shown the illegal action {action!r}"
    said = after.observation(seat)
    if game.free_layout:
        return
    if not said.endswith(" Try again.") or "\n" in said or any(c.isdigit() for c in said):
        yield f"the objection to {action!r} must be one line without digits that ends in ' Try again.', got {said!r}"

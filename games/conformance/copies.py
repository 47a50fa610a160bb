"""What a game must keep when it is copied, written and played again, as functions of a `Subject`."""

import itertools
import json
import random
from collections.abc import Iterator

from dfc.games.conformance.protocol import MIDGAME, Subject, play, seen
from dfc.games.game import Game, Verdict
from dfc.games.rng import GameRng, derive_seed


def written(subject: Subject) -> Iterator[str]:
    """`_state` holds only what JSON holds: dictionaries, lists, texts, numbers, truth values and None."""
    for seed in subject.seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("written", seed))
        for _ in range(MIDGAME):
            state: object = game._state()  # noqa: SLF001 (a hook of every game)
            if not isinstance(state, dict):
                yield f"`_state` must return a dictionary, got {state!r} of type {type(state).__name__}"
                return
            foreign = next(_foreign(state, ""), None)
            if foreign is not None:
                yield f"seed {seed}: {foreign}"
                break
            if game.over:
                break
            game.step(subject.reply(game, rng))


def _foreign(value: object, where: str) -> Iterator[str]:
    """Yields what JSON cannot hold, with the keys that lead there."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(key, (str, int, float)) or key is None:
                yield from _foreign(inner, f"{where}[{key!r}]")
            else:
                yield f"`_state(){where}` has the key {key!r} of type {type(key).__name__}, which JSON does not have"
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            yield from _foreign(inner, f"{where}[{place}]")
    elif not (isinstance(value, (str, int, float)) or value is None):
        hint = "return `sorted(...)` of it, and make it a set again in `_restore`"
        yield (
            f"`_state(){where}` is {value!r} of type {type(value).__name__}, which JSON does not have; "
            + (hint if isinstance(value, (set, frozenset)) else "return lists, texts and numbers")
        )


def apart(subject: Subject) -> Iterator[str]:
    """Two games at the same time do not touch each other."""
    for seed in subject.seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("apart", seed))
        game.step(subject.reply(game, rng))
        before = seen(game)
        other = subject.started(seed + 1)
        for _ in range(MIDGAME):
            if other.over:
                break
            other.step(subject.reply(other, rng))
        if seen(game) != before:
            yield f"two games share state: one changed while another was played{_shared(game)}"
            return


def _shared(game: Game) -> str:
    kinds = itertools.takewhile(lambda kind: kind is not Game, type(game).__mro__)
    names = {name: v for kind in kinds for name, v in vars(kind).items() if isinstance(v, (list, dict, set))}
    found = [name for name in names if name not in vars(game) and not name.startswith("__")]
    which = f" (the class has {', '.join(found)})" if found else ""
    return f"; set the position in `__init__` and `_begin` as `self.name = ...`, not on the class or module{which}"


def copied(subject: Subject) -> Iterator[str]:
    """A game that is cloned, or written and read, at every step plays on like one that never was."""
    for seed in subject.seeds:
        game, cloned, restored = (subject.started(seed) for _ in range(3))
        rng = GameRng(derive_seed("copied", seed))
        last = ""
        while not game.over:
            cloned = cloned.clone()
            record = json.dumps(restored.to_json())
            restored = subject.make()
            restored.from_json(json.loads(record))
            if json.dumps(restored.to_json()) != record:
                yield f"seed {seed}: `from_json` does not restore what `to_json` wrote"
            reply = subject.reply(game, rng)
            # An illegal reply in between: what was played last often is one.
            if last and rng.randrange(4) == 0 and game.clone().step(last) is Verdict.ILLEGAL:
                reply = last
            last = reply
            for twin in (game, cloned, restored):
                twin.step(reply)
            if seen(cloned) != seen(game):
                yield f"seed {seed}: after {reply!r} a clone differs from the game itself"
                break
            if seen(restored) != seen(game):
                yield f"seed {seed}: after {reply!r} a game restored from JSON differs from the game itself"
                break


def independent(subject: Subject) -> Iterator[str]:
    """Clones and records share nothing that changes with the game."""
    for seed in subject.seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("independent", seed))
        for _ in range(MIDGAME):
            if game.over:
                break
            clone, record = game.clone(), game.to_json()
            before = json.dumps(record)
            reader = subject.make()
            reader.from_json(record)
            reader.step(subject.reply(game, rng))
            if json.dumps(record) != before:
                yield f"seed {seed}: a game made by `from_json` changes the record it was read from"
                break
            game.step(subject.reply(game, rng))
            if json.dumps(record) != before:
                yield f"seed {seed}: what `to_json` returned changes with the game"
                break
            if json.dumps(clone.to_json()) != before:
                yield f"seed {seed}: a clone changes with the game it was made from"
                break


def seeded(subject: Subject) -> Iterator[str]:
    """The seed alone decides, whatever was played before; `start` says whether games begin alike."""
    for seed in subject.seeds:
        random.seed(seed)
        first = list(play(subject, subject.started(seed), seed))
        random.seed(seed + 1)
        used = subject.started(seed + 1)
        used.step(subject.reply(used, GameRng(seed)))
        if not used.over:
            used.step("")
        used.reset(seed)
        if list(play(subject, used, seed)) != first:
            yield f"seed {seed} leads to another game when it is played again on a used game"
            return
    starts = {seen(subject.started(seed)) for seed in range(20)}
    positions = set()
    for text in starts:
        legal, shown, _, record = json.loads(text)
        positions.add(json.dumps([legal, shown, record["state"], record["to_move"]]))
    if subject.make().start == "fixed" and len(positions) > 1:
        yield f"`start` is 'fixed' and 20 seeds begin in {len(positions)} ways"
    if subject.make().start == "random" and len(positions) == 1:
        yield "`start` is 'random' and 20 seeds begin alike"


def alone(subject: Subject) -> Iterator[str]:
    """Games neither draw from nor seed Python's global generator."""
    before = random.getstate()
    for seed in subject.seeds:
        for _ in play(subject, subject.started(seed), seed):
            pass
    if random.getstate() != before:
        yield "the global generator of `random` was used; draw from `self.rng`"

"""What the texts of a game must keep, as functions of a `Subject`."""

import json
import re
from collections.abc import Iterator

from dfc.games.conformance.protocol import MIDGAME, Subject, everyone, walk
from dfc.games.game import Game
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng, derive_seed

_ANSWERS = 5  # to one question aside, that are compared


def shown(subject: Subject) -> Iterator[str]:
    """Observations are well-formed: the rules once and first, then news, in ASCII lines."""
    for seed in subject.seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("shown", seed))
        replied: set[int] = set()
        while not game.over:
            seat = game.to_move or 0
            before = json.dumps(game.to_json())
            text = game.observation(seat)
            game.legal_actions()
            if json.dumps(game.to_json()) != before:
                yield "`observation` or `legal_actions` changes the game"
            if seat < game.seats:
                told = seat in replied and game.role(seat) not in game.stateless_roles
                faults = [] if game.free_layout and text else _badly_shown(game, seat, told)
                yield from (f"seat {seat}: {fault} in {text!r}" for fault in faults)
            elif not text:
                yield f"the {game.role(seat)} is to move and is shown nothing"
            if not game.aside:
                replied.add(seat)
            game.step(subject.reply(game, rng))


def _badly_shown(game: Game, seat: int, replied: bool) -> Iterator[str]:
    text = game.observation(seat)
    if not text:
        yield "the seat to move is shown nothing"
        return
    if not text.isascii():
        yield "a character that is not ASCII"
    lines = text.split("\n")
    if any(not line or line != line.strip() for line in lines):
        yield "an empty line or blanks at an end of a line"
    rules = [line for line in lines if "Reply with" in line]
    if len(rules) != (not replied) or rules[:1] != lines[: len(rules)]:
        yield "the rules must be one line, shown first and once, that says 'Reply with'"
    elif rules and game.seats == 2 and f"You are Player {seat}" not in rules[0]:
        yield f"the rules of a game of two must say 'You are Player {seat}'"
    news = [line for line in lines[not replied :] if line not in rules]  # the first line ever is meant to be the rules
    if re.search("Player [0-9]", "\n".join(news)):
        yield "news must say 'Opponent', never a player's number"


def asides(subject: Subject) -> Iterator[str]:
    """An aside leaves no trace: whatever is answered, the same seat moves and everybody is shown the same."""
    for seed, game, _ in walk(subject, "asides", MIDGAME):
        if not game.aside:
            continue
        seat = game.to_move or 0
        answers = game.legal_actions()[:_ANSWERS]
        first, *others = [_after(game, answer) for answer in answers]
        for answer, shown_after in zip(answers[1:], others, strict=True):
            if shown_after != first:
                yield (
                    f"seed {seed}: seat {seat} is asked aside, and what follows depends on its answer: "
                    f"{first} after {answers[0]!r}, {shown_after} after {answer!r}"
                )
                return


def _after(game: Game, answer: str) -> list[str]:
    """Returns what follows an answer: who moves, and what everybody is shown."""
    after = game.clone()
    after.step(answer)
    return [f"seat {after.to_move} moves", *(after.observation(seat) for seat in everyone(after))]


def remembered(subject: Subject) -> Iterator[str]:
    """With `history` an observation is all that its seat was shown and said, and nothing else."""
    for seed in subject.seeds:
        plain, whole = subject.started(seed), subject.started(seed, history=True)
        rng = GameRng(derive_seed("remembered", seed))
        told: list[list[str]] = [[] for _ in everyone(plain)]
        while not plain.over:
            seat = plain.to_move or 0
            reply = subject.reply(plain, rng)
            if plain.role(seat) not in plain.stateless_roles and not plain.aside:
                said = reply if seat < plain.seats else " ".join((spoken(reply) or "").split())
                told[seat] += [line for line in [plain.observation(seat)] if line] + [f"You: {said}"]
            plain.step(reply)
            whole.step(reply)
            for s in everyone(plain):
                news = plain.observation(s)
                wanted = "\n".join(told[s] + ([news] if news else []))
                if whole.observation(s) != wanted:
                    yield f"seed {seed}, seat {s}: shown and said was {wanted!r}, history is {whole.observation(s)!r}"
                    return

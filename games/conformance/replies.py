"""What a game must do with replies that cannot be used: malformed and huge ones, unseen characters, and simulators'."""

import json
import re
import time
from collections.abc import Iterator

from dfc.games.conformance.protocol import MIDGAME, Subject, everyone, midgame
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed

# One of each kind that `printable.without_unseen` removes: control, zero-width, bidirectional, tag, surrogate, private,
# unassigned, variation selector, filler.
UNSEEN = "\0\x1b\x7f\x9b\xad\u200b\u200d\u202e\u2066\ufeff\U000e0041\ud800\ue000\uffff\ufe0f\U000e0100\u3164"
_SECONDS = 0.2  # of CPU that reading one reply may take
_HUGE = "9" * 5000  # more digits than int() takes


def malformed_replies(game: Game) -> list[str]:
    """Returns replies to a game at a player's turn in which no single action can be read."""
    first, *others = game.legal_actions()
    found = ["", " \n", "<think>", f"<think>{first}", f"<think>{first}</think>", f"<think>hm</think><think>{first}"]
    if first.startswith("<Answer>"):
        middle = first.removeprefix("<Answer>").removesuffix("</Answer>")
        found += ["hello", "<Answer>", "</Answer>", "<Answer></Answer>", middle, f"<Answer>{middle}"]
        found += [f"{middle}</Answer>", f"</Answer>{middle}<Answer>", f"{first} or <Answer>\u20ac</Answer>"]
    elif type(game).extract is Game.extract:
        found += ["hello", "[", "[]", "[ ]", "[\u20ac]", first.strip("[]"), first[:-1], f"{first} or [something else]"]
    else:
        return found
    return found + [f"{first} {second}" for second in others[:1]]


def malformed(subject: Subject) -> Iterator[str]:
    """A reply without one action is answered as `malformed_allowance` says and plays nothing."""
    for seed in subject.seeds:
        game = subject.started(seed)
        seat = game.to_move or 0
        lost = tuple(Outcome.INVALID if s == seat or game.team else Outcome.WIN for s in range(game.seats))
        for reply in malformed_replies(game):
            after = game.clone()
            verdict = after.step(reply)
            if game.allowances(seat)[1]:  # whatever its constructor was told
                if verdict is not Verdict.MALFORMED or after.actions_played:
                    yield f"{reply!r} holds no single action and got the verdict {verdict}"
                continue
            if verdict is not Verdict.FORFEIT_MALFORMED or after.outcomes != lost or after.actions_played:
                yield f"{reply!r} holds no single action and got the verdict {verdict}, outcomes {after.outcomes}"
        patient = subject.started(seed, malformed_allowance=1)
        if not patient.allowances(seat)[1]:
            continue
        verdict = patient.step("")
        if verdict is not Verdict.MALFORMED or patient.to_move != seat:
            yield f"with malformed_allowance=1 an empty reply got the verdict {verdict}"
        elif not patient.observation(seat).endswith(" Try again."):
            yield f"after a malformed reply the seat reads {patient.observation(seat)!r}"


def unseen(subject: Subject) -> Iterator[str]:
    """Characters that are not seen do not pass from the reply of one seat to another one."""
    for seed in subject.seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("unseen", seed))
        for _ in range(MIDGAME):
            if game.over:
                break
            reply = subject.reply(game, rng)
            seat = game.to_move or 0
            for hidden in (UNSEEN.join(reply), f"{reply[:1]}{UNSEEN}{reply[1:]}{UNSEEN}"):
                after = game.clone()
                after.step(hidden)
                for other in everyone(game):
                    held = sorted(set(UNSEEN) & set(after.observation(other))) if other != seat else []
                    if held:
                        yield f"seat {other} is shown {held[0]!r}, which the {game.role(seat)} on seat {seat} wrote"
                        return
            game.step(reply)


def huge_replies(action: str, size: int) -> Iterator[str]:
    """Yields long replies: blanks, brackets, tags, digits by the thousand, and an action blown up at every place."""
    for piece in (
        "[",
        "]",
        "[]",
        "<Answer>",
        "</Answer>",
        "<think>",
        "</think>",
        " ",
        "\n",
        "9",
        ",",
        "a ",
        "\u20ac",
        "\0",
    ):
        yield piece * (size // len(piece))
        yield f"[{piece * (size // len(piece))}]"
        yield f"<Answer>{piece * (size // len(piece))}</Answer>"
    yield (action + " ") * (size // len(action))
    for place in _places(action):
        for piece in (" ", "9", ","):
            yield action[:place] + piece * size + action[place:]
            yield action[:place] + piece * size + "\u20ac" + action[place:]
            yield action[:place] + piece * size + "\u20ac" + action[-1:]
    yield re.sub("[0-9]+", _HUGE, action)


def _places(action: str) -> list[int]:
    """Returns places inside an action, one for each pair of kinds of characters around them."""
    kinds = ["0" if c.isdigit() else "a" if c.isalpha() else c for c in action]
    return list({kinds[place - 1] + kinds[place]: place for place in range(1, len(action))}.values())


def huge(subject: Subject) -> Iterator[str]:
    """Any reply gets a verdict soon, plays one action at most and leaves a game that can be written as JSON."""
    for game in (subject.started(0, malformed_allowance=1), midgame(subject, 1, malformed_allowance=1)):
        legal = game.legal_actions() or ["yes"]
        for size in (1_000, 10_000, 100_000):
            for reply in huge_replies(min(legal, key=len), size):
                after = game.clone()
                begun = time.thread_time()
                verdict = after.step(reply)
                spent = time.thread_time() - begun
                what = f"a reply of {len(reply)} characters, {reply[:30]!r}..."
                if spent > _SECONDS:
                    yield f"{what}, took {spent:.2f} s to read"
                    return  # longer ones may take hours
                if verdict not in set(Verdict) or after.actions_played > game.actions_played + 1:
                    yield f"{what}, played {after.actions_played - game.actions_played} actions, verdict {verdict}"
                if size == 1_000:
                    json.dumps(after.to_json())


def simulators_can_fail(subject: Subject) -> Iterator[str]:
    """A simulator whose replies are of no use is asked again, then the game is discarded."""
    for seed in subject.seeds if subject.make().simulators else ():
        game = subject.started(seed)
        rng = GameRng(derive_seed("staffed", seed))
        for _ in range(MIDGAME):
            if game.over:
                break
            seat = game.to_move or 0
            if seat >= game.seats:
                state = game.to_json()["state"]
                twin = game.clone()
                role = game.role(seat)
                verdicts: list[Verdict] = []
                while len(verdicts) < game.simulator_tries - 1 and twin.to_move == seat:
                    verdicts.append(twin.step(""))
                if set(verdicts) - {Verdict.REFUSED}:
                    yield f"empty replies of the {role} got the verdicts {', '.join(verdicts)}"
                    return
                if twin.to_json()["state"] != state or twin.to_move != seat:
                    yield f"a refused reply of the {role} changed the position"
                elif twin.step("") is not Verdict.DISCARDED or twin.outcomes != (Outcome.TRUNCATED,) * game.seats:
                    yield f"after {game.simulator_tries} refused replies of the {role} the game must be discarded"
            if game.step(subject.reply(game, rng)) is not Verdict.PLAYED:
                yield f"seed {seed}: the script of the {game.role(seat)} was refused"
                return

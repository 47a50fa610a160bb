"""Hostile replies to every dialogue game, at every point of a game; DFC_HOSTILE_REPLIES says how many to each."""

import collections
import json
import os
import random

import pytest

from dfc.games import registry
from dfc.games.game import Outcome, Verdict

GAMES = [game for game in registry.own_game_ids() if game.startswith("clem_")]
REPLIES = int(os.environ.get("DFC_HOSTILE_REPLIES", "1500"))  # to each game
STEPS = 40  # of one game, legal ones included
LONGEST = 12_000  # characters of an observation and of an action that is kept

# What is in no grammar, or has a meaning elsewhere: thoughts, broken surrogates, letters that change their length in
# lower case, line ends of other systems, fences, JSON that is none.
ANYWHERE = [
    "",
    " ",
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b[2J",
    "\u2028",
    "\u0130",
    "gue\u017f\u017f:",
    "\u00df",
    "\u00e9",
    "\ud800",
]
ANYWHERE += [
    "<think>",
    "</think>",
    "<|im_end|>",
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    ",",
    ".",
    "?",
    ":",
    ">",
    "```",
    "```json",
]
ANYWHERE += ["x" * 3000, "A " * 2500, "[" * 3000, "9" * 5000, "1e999", "NaN", "null", "\\ud800", "\u202e", "a\u0301"]
# What has a meaning in one of the games, and is out of place in the others.
TAGS = ["CLUE:", "GUESS:", "guess:", "explanation:", "agreement: yes", "TARGETS:", "Command:", "DONE", "Command: DONE"]
TAGS += ["Expression:", "Answer: first", "ANSWER:", "ASIDE: yes", "ASIDE: no", "QUESTION:", "DESCRIPTION:", "GO: north"]
TAGS += [
    "DECISION: same grid",
    "> take",
    "> done",
    "Next actions:",
    "put it in",
    "on the",
    '"action"',
    '"graph": {"nodes":',
]
TAGS += ['{"action": "GO: west", "graph": {"nodes": [', '], "edges": {"north": [["a", "b"]]}}}', '"\\ud800"']


FORMLESS = "lost by its form"  # what matchit makes of a reply that others cannot read: it is played, and loses


def hostile(game, rng):
    """Returns a reply: pieces, or a legal action that was cut, repeated, joined to another one or put among pieces."""
    pieces = rng.choices(ANYWHERE + TAGS + [game.tag(game.to_move)] * 8, k=rng.randrange(7))
    if rng.randrange(3) == 0:
        return "".join(pieces)
    action = rng.choice(game.legal_actions())
    place = rng.randrange(len(action) + 1)
    return rng.choice(
        [
            action[:place],
            action[:place] + "".join(pieces[:1]) + action[place:],
            action + "".join(pieces),
            "".join(pieces) + action,
            action + "\n" + action,
            action + " " + rng.choice(game.legal_actions()),
            action.upper(),
            action.lower(),
            action.replace(" ", ""),
            action.replace(":", "\uff1a"),
            f"<think>{action}</think>{''.join(pieces)}",
        ]
    )


def answered(game, rng):
    """Gives a copy of a game a hostile reply, and holds it to what holds after any reply; returns the verdict."""
    twin, reply = game.clone(), hostile(game, rng)
    said = twin.extract(reply)
    action = None if said is None else twin._read(said)
    assert action is None or (len(action) <= LONGEST and twin._read(twin.extract(action)) == action), reply
    seat, played = twin.to_move, twin.actions_played
    verdict = twin.step(reply)
    assert twin.actions_played - played == (verdict is Verdict.PLAYED), reply
    assert all(len(twin.observation(seat)) < LONGEST for seat in range(twin.seats)), reply
    assert json.loads(json.dumps(twin.to_json())) == twin.to_json(), reply
    if verdict in (Verdict.FORFEIT_MALFORMED, Verdict.FORFEIT_ILLEGAL):
        assert set(twin.outcomes) == {Outcome.INVALID}
        assert twin.forfeited_by == seat
        assert twin.abort_reason
        assert "quality" not in twin.measures()
    elif twin.over and set(twin.outcomes) <= {Outcome.WIN, Outcome.LOSS}:
        assert 0.0 <= twin.measures()["quality"] <= 100.0
    if verdict is Verdict.PLAYED and twin.lost_by is not None and not game.is_action(reply):
        return FORMLESS, twin
    return verdict, twin


def fuzz(game_id, number, seed=0):
    """Returns how often each verdict came of so many replies, to games that are played on by legal actions."""
    rng, seen = random.Random(f"{game_id} {seed}"), collections.Counter()
    while seen.total() < number:
        game = registry.make(game_id)
        game.reset(rng.randrange(1 << 40))
        for _ in range(STEPS):
            if game.over or seen.total() >= number:
                break
            verdict, twin = answered(game, rng)
            seen[verdict] += 1
            if twin.over or rng.randrange(2):
                game.step(rng.choice(game.legal_actions()))
            else:
                game = twin
    return seen


@pytest.mark.parametrize("game_id", GAMES)
def test_any_reply_gets_a_verdict_and_leaves_a_game_that_can_be_shown_and_kept(game_id):
    seen = fuzz(game_id, REPLIES)
    assert seen.total() == REPLIES
    assert set(seen) <= {*Verdict, FORMLESS}
    assert (seen[FORMLESS] > 0) == (game_id == "clem_matchit_ascii")
    assert seen[Verdict.PLAYED] > REPLIES / 20
    assert seen.total() - seen[Verdict.PLAYED] > REPLIES / 4

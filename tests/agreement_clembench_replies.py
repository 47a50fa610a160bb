"""Our games of dialogue beside clembench's own game masters, with the same replies: `make agreement-clembench`.

Not collected by default; needs CLEMBENCH_HOME, a clone of clembench. The oracle: the game master and the scorer of the
clone under clemcore, on its own file of instances, which our game reads as well (`instances`). Both are given the same
replies, those of our scripted players, and must come to the same outcome and quality; in every second episode some
replies are changed first (`CHANGES`). An episode in which one of both ends before the other one differs.
"""

import collections
import os
import random
import re
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest

from dfc.games import registry, scripted
from dfc.games.game import Outcome
from dfc.games.rng import GameRng, derive_seed

HOME = os.environ.get("CLEMBENCH_HOME")
EPISODES = int(os.environ.get("DFC_AGREEMENT_EPISODES", "50"))
LEAST = 0.97
MOST_REPLIES = 300
# Ours: theirs, the folder there, and its file of instances.
GAMES = {
    "clem_wordle": ("wordle", "wordle", "instances_v2.0"),
    "clem_wordle_withclue": ("wordle_withclue", "wordle", "instances_withclue_v2.0"),
    "clem_wordle_withcritic": ("wordle_withcritic", "wordle", "instances_withcritic_v2.0"),
    "clem_taboo": ("taboo", "taboo", "instances_v2.0"),
    "clem_privateshared": ("privateshared", "privateshared", "instances_v2.0"),
    "clem_imagegame": ("imagegame", "imagegame", "instances"),
    "clem_referencegame": ("referencegame", "referencegame", "instances_v2.0_en"),
    "clem_codenames": ("codenames", "codenames", "instances_v2.0"),
    "clem_guesswhat": ("guesswhat", "guesswhat", "instances_v2.0"),
    "clem_matchit_ascii": ("matchit_ascii", "matchit_ascii", "instances_v2.0"),
    "clem_textmapworld": ("textmapworld", "textmapworld/textmapworld_main", "instances_v2.0"),
    "clem_textmapworld_graphreasoning": (
        "textmapworld_graphreasoning",
        "textmapworld/textmapworld_graphreasoning",
        "instances_v2.0",
    ),
    "clem_textmapworld_specificroom": (
        "textmapworld_specificroom",
        "textmapworld/textmapworld_specificroom",
        "instances_v2.0",
    ),
    "clem_adventuregame": ("adventuregame", "adventuregame", "instances_v2.0"),
}


# ---- changes to replies ---------------------------------------------------------------------------------------------


def _head(reply):
    """The tag of a reply, and what follows it."""
    tag, mark, rest = reply.partition(":")
    return (tag + mark, rest) if mark else ("", reply)


CHANGES = {
    "without its tag": lambda reply: _head(reply)[1].strip() or reply,
    "tag in small letters": lambda reply: _head(reply)[0].lower() + _head(reply)[1],
    "tag in capitals": lambda reply: _head(reply)[0].upper() + _head(reply)[1],
    "no blank behind the tag": lambda reply: _head(reply)[0] + _head(reply)[1].lstrip(" "),
    "another tag": lambda reply: "SAY:" + _head(reply)[1],
    "nothing behind the tag": lambda reply: _head(reply)[0] or "...",
    "a further line": lambda reply: reply + "\nI hope this helps.",
    "a line before": lambda reply: "Let me think.\n" + reply,
    "words before": lambda reply: "Well, " + reply,
    "a full stop": lambda reply: reply + ".",
    "quotes": lambda reply: f'{_head(reply)[0]} "{_head(reply)[1].strip()}"',
    "blanks around": lambda reply: f"  {reply}  ",
    "capitals": str.upper,
    "small letters": str.lower,
    "twice": lambda reply: f"{reply}\n{reply}",
    "other words": lambda reply: _head(reply)[0] + " zebra crossing",
    "reversed": lambda reply: f"{_head(reply)[0]} {_head(reply)[1].strip()[::-1]}",
    "one line": lambda reply: reply.replace("\n", " "),
}


# What a game's documentation lists under "Differs from clembench", as far as it shows in these episodes.
GAMES_OF_WALKS = ("clem_textmapworld", "clem_textmapworld_graphreasoning")


def documented(ours, changed, here, there):
    """Whether a difference is one that the documentation of our game lists."""
    name, played = ours.id, all(found[0] in ("win", "loss") for found in (here, there))
    if there[0] == "discarded":  # the original raised an error
        return True
    if name == "clem_imagegame":  # quality is not rounded; grids of another size and with blanks of any kind are read
        rounded = played and here[0] == there[0] and abs(here[1] - there[1]) <= 0.5
        return rounded or any(change in ("one line", "twice") and "ommand" not in reply for change, reply, _ in changed)
    if name == "clem_privateshared":  # an answer that is broken off here, and where the game goes on there
        return any(not aside and not re.fullmatch("ANSWER:.*[^\\s].*", reply.strip()) for _, reply, aside in changed)
    if name in GAMES_OF_WALKS:  # other walks to compare with; done too early is a success here
        return played and (there[0] == "win") == (ours.measures()["exploration"] == 100.0)
    told = {  # a tag with nothing behind it; no plan is asked for there where the reply has the letters "done"
        **dict.fromkeys(("clem_taboo", "clem_guesswhat"), "[A-Z]+:"),
        "clem_adventuregame": "(?is).*done.*",
    }
    return any(re.fullmatch(told.get(name, "(?!)"), reply.strip()) for _, reply, _ in changed)


class Knowing:
    """Looks at what is hidden and wins now and then, where the words of a file are in no table of the scripted ones."""

    def act(self, game, rng):
        own = game.hidden("own")
        if game.to_move == 0:
            return f"CLUE: xylograph\nTARGETS: {', '.join(own[: 1 + rng.randrange(4)])}"
        return f"GUESS: {', '.join(game.targets if rng.randrange(6) else game.hidden()[:1])}"


class KnowingTaboo:
    """The same of taboo."""

    def act(self, game, rng):
        if game.to_move == 0:
            return "CLUE: xylograph"
        return f"GUESS: {'zebra' if rng.randrange(2) else game.target}"


KNOWING = {"clem_codenames": Knowing(), "clem_taboo": KnowingTaboo()}


# ---- one episode ----------------------------------------------------------------------------------------------------


class _InOrder:
    """In place of chance on both sides: the opponents of codenames reveal the open words in the board's order."""

    def __init__(self, board):
        self.board = board

    def randrange(self, _):
        return 0

    def sample(self, words, count):
        return sorted(words, key=self.board.index)[:count]


def begin(name, number):
    """Begins both on the same instance; returns ours and theirs."""
    upstream, folder, file = GAMES[name]
    path = Path(HOME) / folder / "in" / f"{file}.json"
    ours = registry.make(name, split="test", instances=str(path))
    theirs = registry.make(f"clembench:{upstream}", instances=file, max_turns=MOST_REPLIES)
    task = random.Random(derive_seed("agreement task", name, number)).randrange(ours.number_of_tasks)
    ours.reset(task)
    theirs.reset(task)
    assert ours.experiment == theirs.experiment
    if name == "clem_codenames":
        chance = _InOrder(theirs._rows[task]["game_instance"]["board"])
        ours.rng = chance
        type(theirs._loaded().benchmark).create_game_master.__globals__["random"] = chance
    return ours, theirs


def episode(name, number):
    """Plays an episode on both sides; returns our game, what was changed, our end, and theirs."""
    ours, theirs = begin(name, number)
    draw = random.Random(derive_seed("agreement", name, number))
    rng = GameRng(derive_seed("agreement player", name, number))
    player = scripted.player(ours, ("strong", "strong", "simple", "random_legal")[number // 2 % 4])
    if number // 2 % 4 == 0:
        player = KNOWING.get(name, player)
    changed = []
    while not (ours.over or theirs.over):
        if (ours.to_move, ours.aside) != (theirs.to_move, theirs.aside):
            return ours, changed, ("asks", ours.to_move, ours.aside), ("asks", theirs.to_move, theirs.aside)
        reply = player.act(ours, rng)
        if number % 2 and draw.random() < 0.25:
            change = draw.choice(sorted(CHANGES))
            if CHANGES[change](reply) != reply:
                reply = CHANGES[change](reply)
                changed.append((change, reply, ours.aside))
        ours.step(reply)
        theirs.step(reply)
    return ours, changed, end(ours), end(theirs)


def end(game):
    """How a game ended: outcome and quality, or that it goes on."""
    if not game.over:
        return ("goes on", game.to_move, game.aside)
    if game.discarded:
        return ("discarded", game.discarded)
    outcome = game.outcomes[0]
    return str(outcome), None if outcome is Outcome.INVALID else round(game.measures()["quality"], 2)


@pytest.mark.skipif(HOME is None, reason="CLEMBENCH_HOME names no clone of clembench")
@pytest.mark.parametrize("name", GAMES)
def test_the_same_replies_come_to_the_same_end(name):
    same, known, others, ends = 0, 0, [], collections.Counter()
    for number in range(EPISODES):
        ours, changed, here, there = episode(name, number)
        ends[there[0]] += 1
        if here == there:
            same += 1
        elif documented(ours, changed, here, there):
            known += 1
        else:
            others.append((number, changed, here, there))
    sys.stdout.write(f"\n| {name} | {same} | {known} | {len(others)} | {dict(ends)}\n")
    for number, changed, here, there in others:
        sys.stdout.write(f"  {number}: {here} here, {there} there; {changed}\n")
    assert len(ends) > 1
    assert same >= LEAST * (EPISODES - known)

"""Dialogues for the tests of rows made of them: small ones drawn at random, games of taboo, published rows."""

import dataclasses
import json
import random

from trajectory_rows import PROVENANCE, played

from dfc.config import DialogueRowsConfig
from dfc.games import registry
from dfc.records.trajectories import Message, from_episode
from dfc.records.trajectory_files import TrajectoryWriter
from dfc.rows.dialogues import Aside, Dialogue

# Everything may be in pairs, whoever played it: what a test is not about is out of its way.
OPEN = DialogueRowsConfig(
    held_out=0.0, players=0, balance=False, pairs_without=(), first_turn_pairs={}, thresholds={}, negatives=10**6
)


def settings(**changes):
    return dataclasses.replace(OPEN, **changes)


def replies(messages):
    return [message.content for message in messages if message.role == "assistant"]


def won(one, limit=0.0):
    return one.quality is not None and one.quality > limit


def talk(*texts, system=None):
    """Messages in turns, the user first."""
    own = [] if system is None else [Message("system", system)]
    return (*own, *(Message(("user", "assistant")[place % 2], text) for place, text in enumerate(texts)))


def dialogue(*texts, game="clem_taboo", instance="1", seat="guesser", player="p0", quality=100.0, **values):
    """A dialogue; a quality of None means that it was aborted."""
    outcome = "aborted" if quality is None else "success" if quality > 0 else "failure"
    system = values.pop("system", None)
    return Dialogue(talk(*texts, system=system), game, instance, seat, player, outcome, quality, **values)


def drawn(seed, count=120, *, games=("clem_taboo", "clem_wordle", "clem_privateshared"), players=5, instances=6):
    """Random dialogues with few different replies, so that many share a history; whoever plays more, wins more."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        game, instance = rng.choice(games), str(rng.randrange(instances))
        texts = []
        for turn in range(rng.randint(1, 3)):
            told = f"{game} {instance}" if turn == 0 else f"{turn} {rng.randrange(2)}"
            texts += [told, f"reply {rng.randrange(3)}"]
        asides = ()
        if game == "clem_privateshared":
            asides = tuple(
                Aside(
                    after, ("" if after else "rules\n") + f"ASIDE: {after}{n}?", rng.choice(("ASIDE: yes", "ASIDE: no"))
                )
                for after in range(0, len(texts), 2)
                for n in range(2)
            )
        found.append(
            dialogue(
                *texts,
                game=game,
                instance=instance,
                seat=rng.choice(("guesser", "describer")),
                player=f"p{min(rng.randrange(players), rng.randrange(players))}",
                quality=rng.choice((None, 0.0, 0.0, 50.0, 100.0, 100.0)),
                to_blame=rng.random() < 0.7,
                asides=asides,
            )
        )
    return found


# ---- games ----------------------------------------------------------------------------------------------------------


def taboo(task, guesses, *, opponent="itself", provenance=PROVENANCE, sample=0, cut_after=None):
    """A game of taboo as a trajectory; True among the guesses is the right one, None a guess that cannot be read."""
    game = registry.make("clem_taboo")
    game.reset(task)
    replies = []
    for round_, guess in enumerate(guesses):
        said = game.target if guess is True else guess
        replies += [f"CLUE: it is number {round_}", "oh" if guess is None else f"GUESS: {said}"]
    episode = played("clem_taboo", task, replies, cut_after=cut_after, rng_seed=sample)
    return from_episode(dataclasses.replace(episode, opponent=opponent), sample=sample, provenance=provenance)


def collection(folder, rows, **provenance):
    """Trajectories written as one collection; returns the folder."""
    origin = dataclasses.replace(PROVENANCE, **provenance)
    with TrajectoryWriter(folder, origin) as writer:
        for number, row in enumerate(rows):
            writer.write(dataclasses.replace(row, provenance=origin, sample=number))
    return folder


# ---- published rows -------------------------------------------------------------------------------------------------


def published(*texts, game="taboo", role="WordGuesser", model="gpt", outcome="success", task=1, **meta):
    """A row as playpen-data has it."""
    described = {"game": game, "experiment": "0_high_en", "task_id": task, "game_role": role, "player_name": "Player 2"}
    messages = [message._asdict() for message in talk(*texts)]
    return {"messages": messages, "meta": {**described, "model": model, "outcome": outcome, **meta}}


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path

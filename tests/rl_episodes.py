"""Episodes with a given end, groups of them and a small configuration, for the tests of one iteration of learning."""

import dataclasses

import numpy as np

from dfc.config import AcceptanceConfig, DivideFuseConquer, GrpoConfig
from dfc.episodes import Episode, PlayedReply
from dfc.samples import Choices, Sample

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 4}, "Nim-v0": {}}
CONFIG = DivideFuseConquer(
    games=GAMES,
    groups_per_game=6,
    group_size=4,
    random_action_rate=0.25,
    opponent="itself",
    acceptance=AcceptanceConfig(tolerance=0.0),
    grpo=GrpoConfig(updates_per_iteration=1),
)


def episode(
    outcome="win",
    steps=1,
    seat=0,
    *,
    illegal=0,
    malformed=False,
    group=0,
    game="TicTacToe-v0",
    generated_tokens=3,
    by=None,
):
    other = {"win": "loss", "loss": "win", "invalid": "win"}.get(outcome, outcome)
    n = generated_tokens + 2
    return Episode(
        game=game,
        options={},
        game_seed=0,
        seat=seat,
        opponent="itself",
        group=group,
        replies=[PlayedReply(seat, "[1]", "policy")] * steps + [PlayedReply(1 - seat, "[2]", "opponent")] * 3,
        outcomes=(outcome, other) if seat == 0 else (other, outcome),
        forfeited_by=seat if outcome == "invalid" else None,
        illegal_tries=illegal,
        malformed=malformed,
        sample=Sample(
            np.arange(n, dtype=np.int32) + 100 * group,
            np.arange(n) >= 2,
            np.linspace(-1, -2, n, dtype=np.float32),
            choices=Choices.of([[2 * i, 2 * i + 1] for i in range(n)]),
        ),
        policy_version=0,
        overrun_by=by,
    )


def overrun(steps=1, seat=0, **more):
    """A game that the policy ended by filling its own context."""
    return episode("truncated", steps, seat, by=seat, **more)


PLAIN = dataclasses.replace(CONFIG, half_negative=False)


def groups_of(*rewards):
    """Episodes of groups with these rewards, interleaved as games end: member 0 of each group, then member 1..."""
    episodes, values = [], []
    for member in zip(*rewards, strict=True):
        for group, value in enumerate(member):
            episodes.append(episode(group=group))
            values.append(value)
    return episodes, values

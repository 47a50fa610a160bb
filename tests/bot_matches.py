"""Matches between bots, for the tests of the bots."""

from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed


def play(game, players, seed):
    """Plays one game; every action must be played at once. Returns the outcomes."""
    game.reset(seed)
    streams = [GameRng(derive_seed("player", seat, seed)) for seat in range(game.seats)]
    while not game.over:
        seat = game.to_move
        assert game.step(players[seat].act(game, streams[seat])) is Verdict.PLAYED
    return game.outcomes


def score(game, player, opponent, games, draw=0.0):
    """Wins of `player` from both seats in turn, and so much for a draw, as a share."""
    total = 0.0
    for seed in range(games):
        seat = seed % 2
        outcome = play(game, [player, opponent] if seat == 0 else [opponent, player], seed)[seat]
        total += {Outcome.WIN: 1.0, Outcome.DRAW: draw}.get(outcome, 0.0)
    return total / games

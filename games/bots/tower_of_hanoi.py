"""Bots for the Tower of Hanoi."""

from dfc.games.bots.bot import GameBots, any_of
from dfc.games.rng import GameRng
from dfc.games.textarena.tower_of_hanoi import TowerOfHanoi


def _simple(game: TowerOfHanoi, _seat: int, rng: GameRng) -> str:
    """Moves the smallest disk anywhere and another one in turn, so that no move undoes the last.

    Where all disks lie on one tower the smallest moves out of turn.
    """
    actions = game.legal_actions()
    smallest = next("ABC"[tower] for tower, disks in enumerate(game.towers) if disks and disks[-1] == 1)
    turn = game.actions_played % 2
    wanted = [action for action in actions if (action[1] == smallest) == (turn == 0)]
    return any_of(wanted or actions, rng)


def _strong(game: TowerOfHanoi, _seat: int, _chance: GameRng) -> str:
    """Shortest from every position."""
    # To bring the largest misplaced disk to its target, all smaller ones must lie on the third tower; so the task
    # repeats with the next smaller disk and that tower. The last disk found misplaced moves first.
    tower_of = {disk: tower for tower, disks in enumerate(game.towers) for disk in disks}
    target = 2
    move = (0, 0)
    for disk in sorted(tower_of, reverse=True):
        source = tower_of[disk]
        if source != target:
            move = (source, target)
            target = 3 - source - target
    return f"[{'ABC'[move[0]]} {'ABC'[move[1]]}]"


BOTS = (GameBots(TowerOfHanoi, _simple, _strong),)

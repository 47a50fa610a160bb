"""Bots for Cellular Automata."""

from dfc.games.bots.bot import GameBots
from dfc.games.paprika.cellular_automata import NEIGHBOURHOODS, CellularAutomata, Pairs, spelled
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng


def _simple(game: CellularAutomata, _seat: int, rng: GameRng) -> str:
    """Reads the first pair only and guesses what it does not show, again each turn."""
    guessed = {around: str(rng.randrange(2)) for around in NEIGHBOURHOODS}
    return tagged(spelled(guessed | _shown(game.pairs[:1])))


def _strong(game: CellularAutomata, _seat: int, _chance: GameRng) -> str:
    """Reads every pair, which succeeds at once: a neighbourhood that no pair shows changes no output."""
    return tagged(spelled(dict.fromkeys(NEIGHBOURHOODS, "0") | _shown(game.pairs)))


def _shown(pairs: Pairs) -> dict[str, str]:
    """Returns the next state by neighbourhood, of those that the pairs show."""
    return {
        before[cell - 1] + before[cell] + before[(cell + 1) % len(before)]: after[cell]
        for before, after in pairs
        for cell in range(len(before))
    }


BOTS = (GameBots(CellularAutomata, _simple, _strong),)

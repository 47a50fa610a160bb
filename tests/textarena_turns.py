"""Games played through the textarena package, for the tests of the adapter."""

import importlib.metadata

from dfc.games import registry
from dfc.games.adapters import textarena as adapter
from dfc.games.rng import GameRng, derive_seed

OLD = importlib.metadata.version("textarena") < "0.6.9"
PAPER = [name for name in registry.own_game_ids() if "-v0" in name and name != "Nim-v0"]


def started(name, seed=0, **options):
    game = registry.make(f"textarena:{name}", **options)
    game.reset(seed)
    return game


def live(game):
    """The package's environment, made anew where the game has dropped it."""
    if game._session is None:
        with adapter._alone():
            game._session = game._rebuilt()
    return game._session


def guesses(env):
    return [f"[{n}]" for n in range(1, 21) if n not in env.guessed_numbers]


def columns(env):
    return [f"[col {c}]" for c, cell in enumerate(env.state.game_state["board"][0]) if cell == "."]


def cells(env):
    board = [cell for row in env.state.game_state["board"] for cell in row]
    return [f"[{n}]" for n, cell in enumerate(board) if not cell]


def bids(env):
    state = env.state.game_state
    quantity, face = state["current_bid"].values()
    higher = [f"[Bid: {quantity + 1}, {max(face, 1)}]"] if quantity < sum(state["remaining_dice"].values()) else []
    return higher + ["[Call]"] * bool(quantity)


REPLIES = {  # what a random player could say, from the package's own position; some of it illegal
    "GuessTheNumber": guesses,
    "TowerOfHanoi": lambda _: [f"[{a} {b}]" for a, b in ("AB", "AC", "BA", "BC", "CA", "CB")],
    "ConnectFour": columns,
    "TicTacToe": cells,
    "LiarsDice": bids,
    "Poker": lambda _: ["[Call]", "[Call]", "[Call]", "[Check]", "[Fold]", "[Raise 20]"],
    "SimpleNegotiation": lambda _: ["I listen.", "[Offer: 1 Wheat -> 1 Ore] is good for both", "[Deny]", "[Accept]"],
    "TruthAndDeception": lambda _: ["I tell the truth: [Fact 1]", "It is [Fact 2], surely."],
}


def reply_for(game, rng):
    replies = REPLIES[game.upstream.partition("-")[0]](live(game))
    return replies[rng.randrange(len(replies))]


def finished(name, seed, **options):
    """Plays a whole game; returns it, every verdict and all that was shown."""
    game = started(name, seed, **options)
    rng = GameRng(derive_seed("adapter", name, seed))
    verdicts, shown = [], []
    while not game.over:
        shown.append(game.observation(game.to_move))
        verdicts.append(game.step(reply_for(game, rng)))
    return game, verdicts, shown

"""Randomness that belongs to one game: a counter and a hash, so its whole state is two integers."""

import hashlib


def derive_seed(*parts: object) -> int:
    """Returns a 63-bit seed that depends on every part and on nothing else.

    Seeds of different purposes (the deal, a scripted opponent, the sampler) must never be equal: a random
    player that shares its generator with the game it plays guesses every secret. Name the purpose as a part:
    ``derive_seed("deal", game_id, 7)``.
    """
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class GameRng:
    """A stream of random integers given by (seed, number of integers taken so far).

    Attributes:
      seed: names the stream.
      draws: how many integers were taken; with the seed it is the whole state.
    """

    __slots__ = ("draws", "seed")

    def __init__(self, seed: int, draws: int = 0) -> None:
        self.seed = seed
        self.draws = draws

    def randrange(self, bound: int) -> int:
        """Returns the next integer in [0, bound); its bias is below bound / 2**64."""
        digest = hashlib.blake2b(b"%d/%d" % (self.seed, self.draws), digest_size=8).digest()
        self.draws += 1
        return int.from_bytes(digest, "little") % bound

    def uniform(self) -> float:
        """Returns the next number in [0, 1), a multiple of 2**-53."""
        return self.randrange(1 << 53) / (1 << 53)

"""Which policies meet in a tournament, on which deals.

Every pair plays every deal twice, with seats swapped, in games of teams as partners; what has one seat is played by
each policy alone. All policies get the same deals. The seeds carry a purpose of their own, so that no game of a
training run, of its measurements or of its final matches (`dfc.evaluation.matches`) is dealt alike, whatever that run's
seed.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from dfc.config import GameOptions
from dfc.games import registry
from dfc.games.rng import derive_seed
from dfc.rollout.runner import EpisodeSpec


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Two policies at the games for two, or one alone at the games for one.

    Attributes:
      first: a policy's name.
      second: another one's; None: `first` plays alone.
      games: id -> constructor values.
    """

    first: str
    second: str | None
    games: Mapping[str, GameOptions]

    @property
    def title(self) -> str:
        """In words."""
        return f"{self.first} alone" if self.second is None else f"{self.first} v.s. {self.second}"


def meetings(names: Sequence[str], games: Mapping[str, GameOptions]) -> list[Meeting]:
    """Returns every meeting: each policy alone, then every pair, in the order of the names."""
    alone = {game: options for game, options in games.items() if registry.make(game, **options).seats == 1}
    paired = {game: options for game, options in games.items() if game not in alone}
    singles = [Meeting(name, None, alone) for name in names] if alone else []
    return singles + ([Meeting(a, b, paired) for a, b in itertools.combinations(names, 2)] if paired else [])


def episode_specs(meeting: Meeting, seeds: int, seed: int) -> list[EpisodeSpec]:
    """Returns the games of a meeting; a spec's `seat` is that of its first policy, its `group` the deal's number.

    Of each game `seeds` deals are played.
    """
    found = []
    for game, options in meeting.games.items():
        for number in range(seeds):
            deal = derive_seed("tournament deal", seed, game, number)
            for seat in range(1 if meeting.second is None else 2):
                sampling_seed = derive_seed("tournament draws", seed, game, number, seat)
                found.append(EpisodeSpec(game, options, deal, seat, number, sampling_seed))
    return found


def key(game: str, deal: int, players: Sequence[str]) -> tuple[str, int, tuple[str, ...]]:
    """Returns what names a game of a tournament: game id, number of the deal, who plays each seat."""
    return game, deal, tuple(players)


def players(meeting: Meeting, episode_spec: EpisodeSpec) -> tuple[str, ...]:
    """Returns who plays each seat of a spec."""
    if meeting.second is None:
        return (meeting.first,)
    return (meeting.first, meeting.second) if episode_spec.seat == 0 else (meeting.second, meeting.first)

"""Further groups in the place of those that teach nothing (`RlRunConfig.refill`).

A group whose rewards are all equal has advantage 0 for every member (`dfc.advantages.group_relative`); so has one with
fewer than two games that count. `refilled` plays, round by round, as many further groups of each game as teach nothing
yet, and lets those that do teach take the places of those that do not:

    round     1 to `RlRunConfig.refill`, and none once every group teaches
    further   groups of the same games on deals drawn for them, whose seeds depend on the run, the stage, the iteration
              and the round; against the same opponent, by the same policy
    place     the first further group of a game that teaches takes the place of its first group that does not
    left      a group whose place nobody took stays, and has the KL term that it has without refilling

Counts and seeds decide and no clock does, and every process reads the same rewards: a resumed run, and every host,
plays the same.

A group is here a deal with all of its seats. Where both seats learn (`RlRunConfig.train_both_seats`) it teaches if one
of them does, and its seats leave together.

Source: dynamic sampling of DAPO (arXiv 2503.14476), section 3.2, which samples prompts until the batch is full of
groups that teach. Departures: the number of rounds is bounded, a game keeps its share of the groups, and what is not
replaced stays in the batch.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dfc.config import GrpoConfig
from dfc.episodes import Episode
from dfc.scoring.episode_rewards import Reward
from dfc.training import episode_advantages
from dfc.training.method import Played

PlayFurther = Callable[[Mapping[str, int], int], tuple[Played, Sequence[Reward]]]
"""Plays so many groups of each game in a round, from 1; returns them and the rewards of their episodes."""


def teach_nothing(episodes: Sequence[Episode], values: Sequence[Reward], config: GrpoConfig) -> dict[int, str]:
    """Returns the groups of which every advantage is 0, each with its game, in the order of the episodes.

    `values` are rewards of the episodes; those of turns are compared turn by turn. `config.baseline` is not ``role``.
    """
    if not episodes:
        return {}
    members = episode_advantages.group_members(episodes)
    relative = episode_advantages.relative(episodes, values, members, config)
    teaching = {episode.group for episode, own in zip(episodes, relative, strict=True) if np.any(own)}
    return {episode.group: episode.game for episode in episodes if episode.group not in teaching}


def refilled(
    played: Played, values: Sequence[Reward], rounds: int, config: GrpoConfig, play: PlayFurther
) -> tuple[Played, list[Reward]]:
    """Returns an iteration's games with further ones, and the rewards of all its episodes.

    `values` are the rewards of `played.episodes`; there are `rounds` rounds at most. Records say ``refill``, the round,
    of further games; ``replaced_by_refill`` of those whose group lost its place; ``unused`` of further ones whose group
    got none. Metrics: ``refill/dead`` and ``refill/left``, groups that teach nothing before and after;
    ``refill/groups``, those that were played further, in ``refill/rounds`` rounds.
    """
    filling = _Filling(played, list(values))
    dead = filling.dead(played, values, config)
    first, number, groups = len(dead), 0, 0
    while dead and number < rounds:
        number += 1
        wanted = collections.Counter(dead.values())
        further, its_values = play(wanted, number)
        groups += sum(further.groups.values())
        dead = filling.add(further, its_values, number, dead, config)
    metrics = {"rounds": number, "groups": groups, "dead": first, "left": len(dead)}
    return filling.done({f"refill/{name}": float(value) for name, value in metrics.items()})


class _Filling:
    """The games of an iteration while further ones are played."""

    def __init__(self, played: Played, values: list[Reward]) -> None:
        self.played, self.values, self.first = played, values, len(played.episodes)
        self.uses = collections.Counter(played.sources)  # of every game, had no group lost its place

    @staticmethod
    def dead(played: Played, values: Sequence[Reward], config: GrpoConfig) -> dict[int, str]:
        return teach_nothing(played.trained, [values[source] for source in played.sources], config)

    def add(
        self, further: Played, values: Sequence[Reward], number: int, dead: dict[int, str], config: GrpoConfig
    ) -> dict[int, str]:
        """Adds the games of a round; returns those of the groups in `dead` that have their places still."""
        now = self.played
        further = _numbered_from(further, 1 + max(e.group for e in [*now.episodes, *now.trained]))
        useless = self.dead(further, values, config)
        fresh: dict[str, list[int]] = collections.defaultdict(list)
        for group, game in dict.fromkeys((e.group, e.game) for e in further.trained):
            if group not in useless:
                fresh[game].append(group)
        heirs = {group: fresh[game].pop(0) for group, game in dead.items() if fresh[game]}
        start = len(now.episodes)
        shifted = [start + source for source in further.sources]
        pairs = _in_their_places(
            list(zip(now.trained, now.sources, strict=True)), list(zip(further.trained, shifted, strict=True)), heirs
        )
        self.uses.update(shifted)
        self.values += values
        self.played = dataclasses.replace(
            now,
            episodes=[*now.episodes, *further.episodes],
            trained=[episode for episode, _ in pairs],
            sources=[source for _, source in pairs],
            notes=[*now.notes, *({"refill": number, **note} for note in further.notes)],
            groups=_sums(now.groups, further.groups),
            metrics=_sums(now.metrics, further.metrics),
        )
        return {group: game for group, game in dead.items() if group not in heirs}

    def done(self, metrics: Mapping[str, float]) -> tuple[Played, list[Reward]]:
        """Returns all games with their final notes, and the rewards of all of them."""
        notes, times = [dict(note) for note in self.played.notes], collections.Counter(self.played.sources)
        for source, before in self.uses.items():
            if times[source] == before:
                continue
            note = notes[source]
            note.pop("trained", None)
            if times[source] > 1:  # it stood in for games of several groups
                note["trained"] = times[source]
            elif not times[source]:
                note["replaced_by_refill" if source < self.first else "unused"] = True
        return dataclasses.replace(self.played, notes=notes, metrics={**self.played.metrics, **metrics}), self.values


def _numbered_from(played: Played, start: int) -> Played:
    """Returns the same with other numbers of its groups."""

    def moved(episodes: Sequence[Episode]) -> list[Episode]:
        return [dataclasses.replace(episode, group=start + episode.group) for episode in episodes]

    return dataclasses.replace(played, episodes=moved(played.episodes), trained=moved(played.trained))


def _in_their_places(
    trained: Sequence[tuple[Episode, int]], further: Sequence[tuple[Episode, int]], heirs: Mapping[int, int]
) -> list[tuple[Episode, int]]:
    """Returns what is learned from, with its sources: the members of an heir where the first of its group was."""
    found, come = [], set()
    for one in trained:
        group = one[0].group
        if group not in heirs:
            found.append(one)
        elif group not in come:
            come.add(group)
            found += [other for other in further if other[0].group == heirs[group]]
    return found


def _sums(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in dict.fromkeys([*first, *second])}

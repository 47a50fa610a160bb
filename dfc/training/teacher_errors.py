"""Games that the other seat's error ended: played again, replaced, or left out of training.

Where the policy takes one role of a team's game and a frozen partner, its teacher, the other one, a game may end by
what the teacher did. `settle` decides what is learned from instead, so that the policy does not learn from the
teacher's errors.

    again      up to `teacher_replays` times with other sampling seeds, all that are to be played again together
    member     then another game of the same group stands in, chosen at random among those that went well
    group      a group in which none did is replaced by another group of the iteration, whatever game that plays
    stop       if there is no such group, the run stops and says which rules were broken how often

Source: Playpen (arXiv 2504.08590), appendix D.4, "Teacher-Aborted Episodes". Departures: the paper does not say which
errors of the teacher's count (`error_of`), nor what happens without any good group; a game that failed (an endpoint
that did not reply) is treated alike.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from dfc import multihost
from dfc.episodes import Episode
from dfc.errors import TrainingError
from dfc.games.rng import derive_seed
from dfc.rollout.runner import EpisodeSpec

Handling = Literal["replace", "leave_out", "count"]
PlayAgain = Callable[[list[EpisodeSpec]], list[Episode]]
"""Plays games as those of the iteration were played; returns their episodes in the same order."""
_NAMED = 5  # reasons in the error that stops a run


@dataclasses.dataclass(frozen=True)
class Settled:
    """How the games of an iteration are used.

    Attributes:
      played: every game that was played, each once: those of the iteration's specs, then those played again. Those that
        are the teacher's errors are `Episode.left_out`.
      notes: of each of them, what its record says beside: ``teacher_error`` (``replayed``, ``replaced``,
        ``group_replaced`` or ``left_out``), ``replay``, the number of the try, and ``trained``, how often it is learned
        from, where that is more than once.
      sources: for every spec, the number in `played` of the game that is learned from.
      trained: those games, each with the group of its spec.
      metrics: how many games were the teacher's errors, were played again, replaced or left out; none with ``count``.
    """

    played: list[Episode]
    notes: list[dict[str, Any]]
    sources: list[int]
    trained: list[Episode]
    metrics: dict[str, float]


def error_of(episode: Episode) -> str | None:
    """Returns the error of the other seat that ended a game, as text; None if there is none.

    It is one of: the game of a team was broken off for the other seat's reply, or lost by one against the rules
    (`Episode.lost_by`: a clue with the word or a taboo word in it); the other seat's context was full; the game failed.
    A game that its own limit of turns broke off, and whatever the learner's reply ended, is none.
    """
    if episode.failed:
        return f"failed: {episode.failure}"
    if episode.overrun_by not in (None, episode.seat):
        return "the other seat's context was full"
    if not episode.team:
        return None
    if episode.broken_off:
        return episode.abort_reason if episode.forfeited_by is not None else None
    return episode.loss_reason if episode.lost_by not in (None, episode.seat) else None


def settle(
    specs: Sequence[EpisodeSpec],
    episodes: Sequence[Episode],
    handling: Handling,
    *,
    replays: int,
    seed: int,
    play: PlayAgain,
    further: bool = False,
) -> Settled:
    """Returns what to learn from instead of games that the other seat's error ended.

    All processes return the same: they agree on what is an error, and the random choices depend on the seed only. With
    ``leave_out`` nothing is played again, ``count`` changes nothing and there may be several episodes for each of
    `specs`, of which those of one group have the same `group` and seat. One game is played again `replays` times at
    most. `further` games are those of `dfc.training.refill`, which nothing depends on: a group of them without any good
    game is left out, and no other one is learned from twice.

    Raises:
      TrainingError: no group has a game that is no error of the other seat; with ``leave_out``, no game at all. Not of
        `further` games.
    """
    if handling == "count":
        played = list(episodes)
        return Settled(played, [{} for _ in played], list(range(len(played))), played, {})
    settling = _Settling(specs, list(episodes))
    errors = len(settling.bad())
    if handling == "replace":
        for attempt in range(1, replays + 1):
            settling.play_again(attempt, play)
        settling.replace(seed, further=further)
    else:
        settling.leave_out(further=further)
    settling.metrics["teacher/errors"] = float(errors)
    return settling.done()


class _Settling:
    """The games of an iteration while it is decided what is learned from."""

    def __init__(self, specs: Sequence[EpisodeSpec], episodes: list[Episode]) -> None:
        self.specs, self.played = specs, episodes
        self.notes: list[dict[str, Any]] = [{} for _ in episodes]
        self.sources = list(range(len(episodes)))
        self.errors = _agreed(episodes)
        names = ("errors", "replayed", "replaced", "replaced_groups", "left_out")
        self.metrics = {f"teacher/{name}": 0.0 for name in names}

    def bad(self) -> list[int]:
        """Returns the specs of which the last game played is an error of the other seat."""
        return [number for number, source in enumerate(self.sources) if self.errors[source] is not None]

    def play_again(self, attempt: int, play: PlayAgain) -> None:
        bad = self.bad()
        if not bad:
            return
        again = [
            dataclasses.replace(spec, seed=derive_seed("teacher replay", spec.seed, attempt))
            for spec in (self.specs[number] for number in bad)
        ]
        found = play(again)
        for number, episode in zip(bad, found, strict=True):
            self.notes[self.sources[number]]["teacher_error"] = "replayed"
            self.sources[number] = len(self.played)
            self.played.append(episode)
            self.notes.append({"replay": attempt})
        self.errors += _agreed(found)
        self.metrics["teacher/replayed"] += len(bad)

    def replace(self, seed: int, *, further: bool) -> None:
        """Lets other games stand in for those that are errors still."""
        bad = set(self.bad())
        groups: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
        for number, spec in enumerate(self.specs):
            groups[spec.group, spec.seat].append(number)
        good = [members for members in groups.values() if not bad.issuperset(members)]
        if not good and not further:
            raise self._nothing_left()
        rng = np.random.Generator(np.random.Philox(seed))
        sources = list(self.sources)
        for members in good:
            fine = [self.sources[number] for number in members if number not in bad]
            for number in members:
                if number in bad:
                    self._note(number, "replaced")
                    sources[number] = fine[int(rng.integers(len(fine)))]
        spoiled = [members for members in groups.values() if bad.issuperset(members)]
        for members in spoiled:
            if further:
                for number in members:
                    self._note(number, "left_out")
            else:
                stands_in = good[int(rng.integers(len(good)))]
                for number, other in zip(members, stands_in, strict=True):
                    self._note(number, "group_replaced")
                    sources[number] = sources[other]
        lost = sum(map(len, spoiled)) if further else 0
        self.metrics["teacher/replaced"] = float(len(bad) - lost)
        self.metrics["teacher/replaced_groups"] = float(0 if further else len(spoiled))
        self.metrics["teacher/left_out"] = float(lost)
        self.sources = sources

    def leave_out(self, *, further: bool) -> None:
        bad = self.bad()
        if len(bad) == len(self.specs) and not further:
            raise self._nothing_left()
        for number in bad:
            self._note(number, "left_out")
        self.metrics["teacher/left_out"] = float(len(bad))

    def done(self) -> Settled:
        """Returns the result."""
        played = [
            episode if error is None else dataclasses.replace(episode, left_out=True)
            for episode, error in zip(self.played, self.errors, strict=True)
        ]
        for source, times in collections.Counter(self.sources).items():
            if times > 1:
                self.notes[source]["trained"] = times
        trained = [
            played[source]
            if played[source].group == spec.group
            else dataclasses.replace(played[source], group=spec.group)
            for spec, source in zip(self.specs, self.sources, strict=True)
        ]
        return Settled(played, self.notes, self.sources, trained, self.metrics)

    def _note(self, number: int, what: str) -> None:
        self.notes[self.sources[number]]["teacher_error"] = what

    def _nothing_left(self) -> TrainingError:
        who = ", ".join(dict.fromkeys(episode.opponent for episode in self.played if episode.opponent != "none"))
        broken = collections.Counter(
            (episode.game, error) for episode, error in zip(self.played, self.errors, strict=True) if error is not None
        )
        named = [f"{game}, {times} times: {error}" for (game, error), times in broken.most_common(_NAMED)]
        more = f" (and {len(broken) - _NAMED} other reasons)" if len(broken) > _NAMED else ""
        return TrainingError(
            f"all {broken.total()} games of an iteration ended by an error of the other seat ({who or 'none'}), so "
            f"there is nothing to learn from: {'; '.join(named)}{more}. Name another opponent, give it more room "
            "(opponent_reply, endpoints.opponent.max_tokens), or leave the game out"
        )


def _agreed(episodes: Sequence[Episode]) -> list[str | None]:
    """Returns the errors of games as the first process sees them: what is played again, all processes play."""
    found: list[str | None] = multihost.broadcast([error_of(episode) for episode in episodes])
    return found

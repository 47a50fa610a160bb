"""Games on record: what is missing, played in chunks, written, shown; and how all of that resumes.

Resume order: 1. half a last line is cut off; 2. games on record are not played again, except those that failed; 3. the
rest is played. What a game is depends on its key, its players and the sampling only, not on where a stop fell.
"""

import abc
import collections
import dataclasses
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

from dfc import multihost
from dfc.players.endpoint import Endpoint
from dfc.players.remote import PlayerError
from dfc.rollout.runner import all_failed
from dfc.runs.costs import Costs
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

ROUNDS = 4  # of games as many as are in flight, between two writes

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")


def in_chunks(
    wanted: Sequence[S], size: int, missing: Callable[[Sequence[S]], list[S]], stop: Stop
) -> Iterator[list[S]]:
    """Yields what is missing of every chunk of what is wanted; asks for a stop before each.

    Given everything that is wanted, a resumed run plays the chunks that it would have played without the stop.

    Raises:
      Interrupted: a stop was asked for.
    """
    for start in range(0, len(wanted), size):
        if chunk := missing(wanted[start : start + size]):
            stop.check()
            yield chunk


class Played(NamedTuple):
    """The results of a chunk of games.

    Attributes:
      records: of the games that ended, in their order; one of a game that failed has its ``failure``.
      metrics: for the line of the chunk, such as ``generated_tokens/POLICY``.
    """

    records: list[dict[str, Any]]
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Part(Generic[K, S]):
    """Games of an evaluation that belong together.

    Attributes:
      title: what progress and records call them.
      policies: who plays.
      wanted: what is to be played, by the keys of its records.
      subject: what `Players` need to know of all of them.
    """

    title: str
    policies: Sequence[str]
    wanted: Mapping[K, S]
    subject: Any = None


class Players(abc.ABC, Generic[S]):
    """Who plays an evaluation; a context manager, whose end calls `close`.

    Attributes:
      what: the word for the games in an error message.
      failed_before: games that have failed in an earlier start may all fail again: those that always fail would never
        let a run end that marks itself as finished. Failures that pass (`EpisodeStore.passing`) do not count.
    """

    what = "games"
    failed_before = True

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Those that were asked."""
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends connections and processes."""

    @abc.abstractmethod
    def begin(self, part: Part[Any, S]) -> int:
        """Prepares for the games of a part; returns how many are played between two writes."""

    @abc.abstractmethod
    def play(self, part: Part[Any, S], some: list[S]) -> Played:
        """Plays some games of a part; fewer records than games: a stop was asked for."""

    @abc.abstractmethod
    def wins(self, record: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
        """Returns (name, won) of a record, for what is shown."""

    def tells(self, record: Mapping[str, Any]) -> bool:
        """Returns whether a record is evidence about the player that is asked: games fail for good if all those do."""
        del record
        return True


class EpisodeStore(Generic[K]):
    """The games of a run that are on record, by their keys; all processes know the same ones.

    `key` names the game of a record; the failure of a record is no fault of its game if it is `passing`, such as that
    of a server that was down.
    """

    def __init__(
        self,
        folder: RunFolder,
        key: Callable[[Mapping[str, Any]], K],
        passing: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    ) -> None:
        self._folder, self._key, self._is_passing = folder, key, passing
        found = None
        if folder.writes:
            folder.mend()
            found = [
                [_listed(key(record)), "failure" in record, passing(record)] for record in folder.records("episodes")
            ]
        known = [(_tupled(name), failed, may_pass) for name, failed, may_pass in multihost.broadcast(found)]
        self._failed: dict[Any, bool] = {name: failed for name, failed, _ in known}
        self._passing: dict[Any, bool] = {name: may_pass for name, _, may_pass in known}
        self.costs = Costs(folder)

    def missing(self, keys: Iterable[K]) -> list[K]:
        """Returns the keys of which no game is on record, or one that failed."""
        return [key for key in keys if self._failed.get(key, True)]

    def passing(self, keys: Iterable[K]) -> list[K]:
        """Returns those of `missing` whose last failure was no fault of the game: worth another start."""
        return [key for key in self.missing(keys) if self._passing.get(key, False)]

    def play(self, part: Part[K, S], players: Players[S], step: int, stop: Stop, progress: Progress) -> int:
        """Plays what is missing, some at a time, and records it; returns how many games are on record now.

        `step` games of the run are on record before these.

        Raises:
          Interrupted: a stop was asked for. PlayerError: all games of a chunk failed.
        """
        won: dict[str, list[bool]] = collections.defaultdict(list)
        todo, done, size = self.missing(part.wanted), 0, players.begin(part)
        for keys in in_chunks(todo, size, list, stop):
            begun = time.perf_counter()
            try:
                records, metrics = players.play(part, [part.wanted[key] for key in keys])
            finally:  # whatever their results, these games may have cost money
                self.costs.note(players.endpoints)
            seconds = time.perf_counter() - begun
            if not records:  # stopped before a game had ended
                break
            done += len(records)
            self._write(part, records, metrics, step + done, done, seconds)
            for record in records:
                if "failure" not in record:
                    for name, has_won in players.wins(record):
                        won[name].append(has_won)
            progress.update(
                stage=part.title,
                iteration=done,
                iterations=len(todo),
                step=step + done,
                episodes_per_second=len(records) / seconds,
                tokens_per_second=sum(v for n, v in metrics.items() if n.startswith("generated_tokens/")) / seconds,
                win_rates={name: sum(games) / len(games) for name, games in won.items()},
                cost=str(self.costs),
            )
            self._refuse_all_failed(part.title, records, players)
        stop.check()
        return step + done

    def _write(
        self,
        part: Part[K, Any],
        records: list[dict[str, Any]],
        metrics: Mapping[str, float],
        step: int,
        iteration: int,
        seconds: float,
    ) -> None:
        spent = {name: value for name, value in self.costs.unreported().items() if value}
        line = {
            "step": step,
            "stage": part.title,
            "iteration": iteration,
            "policies": list(part.policies),
            "metrics": {name: value for name, value in metrics.items() if value} | spent,
            "clock": {"time": time.time(), "seconds": seconds},
        }
        self._folder.append("episodes", records)
        self._folder.append("metrics", [line])
        self._folder.positions()  # and so on disk

    def _refuse_all_failed(self, title: str, records: Sequence[Mapping[str, Any]], players: Players[Any]) -> None:
        """Raises PlayerError if all games failed: an endpoint that is down, a key that is not valid."""
        telling = list(filter(players.tells, records))
        failed = all_failed((title, record.get("failure")) for record in telling)
        keys = [self._key(record) for record in telling]
        before = players.failed_before and all(key in self._failed and not self._passing[key] for key in keys)
        before = before and not any(map(self._is_passing, telling))
        for record in records:
            key = self._key(record)
            self._failed[key], self._passing[key] = "failure" in record, self._is_passing(record)
        if failed and not before:
            raise PlayerError(
                f"{title}: all of the last {len(telling)} {players.what} failed, the first one so: {failed[title]}. "
                "Everything else is on record; the same command resumes and plays these again"
            )


def _listed(key: Any) -> Any:  # noqa: ANN401 - a key of any kind
    return [_listed(part) for part in key] if isinstance(key, tuple) else key


def _tupled(key: Any) -> Any:  # noqa: ANN401 - a key of any kind
    """Returns a key that went from one process to others as JSON, which knows no tuples."""
    return tuple(_tupled(part) for part in key) if isinstance(key, list) else key

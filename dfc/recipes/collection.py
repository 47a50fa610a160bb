"""Several trajectories of every task into a folder: what is there already, and how it goes on.

What a trajectory is depends on its attempt (`dfc.recipes.attempts`), the weights and the settings only, so a collection
that was stopped plays exactly what is missing and ends with the same ids. With several processes all play, and each
writes the rows of its own tasks.
"""

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax

from dfc import agreement
from dfc.config import RunConfig
from dfc.data.trajectories import Provenance, Trajectory, canonical_json, from_episode
from dfc.data.trajectory_files import DatasetError, TrajectoryWriter, parts, read_columns
from dfc.episodes import Episode
from dfc.errors import DfcError
from dfc.games import registry
from dfc.games.chance import derive_seed
from dfc.interruption import Interrupted, Stop
from dfc.models import folders
from dfc.models.safetensors_files import Location
from dfc.recipes.attempts import Attempt, AttemptResult
from dfc.recipes.table import Policy, Table
from dfc.rollout.play import Job, system_prompt
from dfc.run_folder import git_commit
from dfc.task_groups import playing

FOLDER = "trajectories"  # of a run
_ROUNDS = 4  # of games as many as are in flight, between two writes
_COLUMNS = ("game", "options", "task", "seat", "opponent", "sample", "turns", "success", "failure", "action_tokens")
# Settings beside those of sampling that decide what a trajectory is; they stand in every row with them.
_LIMITS = ("max_length", "max_prompt_length", "max_reply_length", "staff_reply_length", "max_actions")
_SHAPING = (*_LIMITS, "legal_only", "prompt", "think_language")
_LOOKS, _PAUSE = 30, 2.0  # at a shared disk that shows a file to one host later than to another; seconds between them


def make_provenance(config: RunConfig, source: Location) -> Provenance:
    """Returns where the trajectories of a run come from; the first process reads the weights for it.

    Args:
      config: of the run.
      source: the folder of the weights.
    """
    found = [folders.weights_hash(source), git_commit()] if agreement.is_first() else None
    model_hash, commit = agreement.from_first(found)
    rollout = playing(config).rollout
    limits = {name: getattr(rollout, name) for name in _SHAPING}
    sampling = {**dataclasses.asdict(rollout.sampling), **limits, "staff": config.staff.who}
    return Provenance(source.name, model_hash, sampling, config.seed, commit)


class Collection:
    """A folder of trajectories that grows; use it as a context manager.

    Every process makes one, with the same arguments, and calls its methods at the same places. All of them know the
    same attempts: what lies in the folder counts once every process sees all that the first one sees.

    Args:
      config: of the run; its games, `collect`, `rollout` and `seed` decide what an attempt is.
      table: plays.
      folder: of the parts; created if it is not there.
      provenance: where all rows come from, see `make_provenance`.
      purpose: a name for the draws; collections with different ones draw different ids for one attempt.
      policy_version: of the weights, written to every row.

    Raises:
      DatasetError: the folder holds rows of another model, sampling or seed, or a part that cannot be read, or another
        process writes there, or the processes see different files. A process that only hears of it raises DfcError.
    """

    def __init__(
        self,
        config: RunConfig,
        table: Table,
        folder: Path,
        provenance: Provenance,
        *,
        purpose: str = "collect",
        policy_version: int = 0,
    ) -> None:
        self._config, self._table, self._folder = playing(config), table, folder
        self._provenance, self._purpose, self._version = provenance, purpose, policy_version
        self._options = {game: canonical_json(options) for game, options in self._config.games.items()}
        self._facts = {game: registry.make(game, **options).facts for game, options in self._config.games.items()}
        self._host: int = jax.process_index()
        self._hosts: int = jax.process_count()
        self._writer: TrajectoryWriter | None = None
        self._done: dict[Attempt, AttemptResult] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A disk that refused a part refuses it again; what was raised first says so.
        with contextlib.nullcontext() if error is None else contextlib.suppress(OSError):
            self.close()

    def close(self) -> None:
        """Lets others write to the folder."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def missing(self, wanted: Iterable[Attempt]) -> list[Attempt]:
        """Returns the attempts of which no trajectory is in the folder."""
        return [attempt for attempt in wanted if attempt not in self._done]

    def summaries(self, wanted: Iterable[Attempt]) -> list[AttemptResult]:
        """Returns what came of attempts whose trajectories are in the folder; others are left out."""
        return [self._done[attempt] for attempt in wanted if attempt in self._done]

    def play(
        self,
        wanted: Sequence[Attempt],
        policy: Policy,
        *,
        stop: Stop,
        on_chunk: Callable[[list[AttemptResult], float], None] | None = None,
    ) -> list[AttemptResult]:
        """Plays and writes what is missing; returns what came of every attempt, in their order.

        Args:
          wanted: attempts; one that is named twice is played once.
          policy: the weights to play with.
          stop: asked before every chunk of games; all trajectories before it are on the disk then. Made with its
            `look`, the table ends a chunk under way, of which nothing is kept.
          on_chunk: called after every chunk with what came of it, nothing after a stop within it, and the seconds that
            playing it took.

        Raises:
          Interrupted: a stop was asked for.
          DfcError: every game of some id in a chunk raised, such as with an endpoint that is down. The other games of
            the chunk are written and these are not, so that the same call plays them again.
          DatasetError: the disk cannot be written to. A process that only hears of it raises DfcError.
        """
        # The chunks are those of all attempts, so that a run that goes on plays the same ones as without a stop.
        size = self._config.collect.jobs_at_once or self._in_flight * _ROUNDS
        for start in range(0, len(wanted), size):
            chunk = list(dict.fromkeys(self.missing(wanted[start : start + size])))
            if not chunk:
                continue
            stop.check()
            begun = time.perf_counter()
            try:
                episodes = self._table.play(
                    [self._job(attempt) for attempt in chunk],
                    policy,
                    self._config.collect.opponent,
                    sampling=self._config.rollout.sampling,
                )
            except Interrupted:  # nothing came of the chunk, but it may have cost money
                if on_chunk is not None:
                    on_chunk([], time.perf_counter() - begun)
                raise
            seconds = time.perf_counter() - begun
            found, down = self._record(chunk, episodes)
            if on_chunk is not None:
                on_chunk(found, seconds)
            if down:
                raise DfcError(
                    f"every game of {', '.join(down)} failed, the first one so: {next(iter(down.values()))}. They are "
                    "not recorded, everything else is; the same command goes on and plays these again"
                )
        return self.summaries(wanted)

    @property
    def _in_flight(self) -> int:
        rollout = self._config.rollout
        return rollout.slots * rollout.workers * self._hosts

    def _seat(self, game: str, task: int) -> int:
        return task % 2 if self._facts[game].seats > 1 else 0

    def _job(self, attempt: Attempt) -> Job:
        game, task, sample = attempt
        return Job(
            game=game,
            options=self._config.games[game],
            game_seed=task,
            seat=self._seat(game, task),
            group=task,
            seed=derive_seed(self._purpose, self._config.seed, game, task, sample),
        )

    def _record(self, chunk: list[Attempt], episodes: list[Episode]) -> tuple[list[AttemptResult], dict[str, str]]:
        """Writes the trajectories of a chunk; returns what came of those written, and the games that all raised."""
        rows = agreement.together(lambda: self._rows(chunk, episodes))
        labels = self._labels(rows)
        down = _all_raised(chunk, episodes, labels)
        kept = [place for place, attempt in enumerate(chunk) if attempt.game not in down]
        agreement.together(lambda: self._write([rows[place] for place in kept if place in rows]))
        found = []
        for place in kept:
            attempt, episode = chunk[place], episodes[place]
            success = not episode.failed and episode.outcome == "win"
            found.append(self._summary(attempt, episode.steps, success, labels.get(place), episode.drawn))
        self._done |= {summary.attempt: summary for summary in found}
        return found, down

    def _rows(self, chunk: list[Attempt], episodes: list[Episode]) -> dict[int, Trajectory]:
        """Returns this process's trajectories of a chunk by place."""
        rows = {}
        for place, (attempt, episode) in enumerate(zip(chunk, episodes, strict=True)):
            if attempt.task % self._hosts != self._host:
                continue
            # The engine's count of weights depends on how often the run was started.
            played = dataclasses.replace(episode, policy_version=self._version)
            system = system_prompt(self._config.rollout)
            try:
                rows[place] = from_episode(played, sample=attempt.sample, provenance=self._provenance, system=system)
            except DfcError as error:
                what = f"{self._folder}: a game cannot be played again from its record: {error}"
                raise DatasetError(what) from error
        return rows

    def _labels(self, rows: dict[int, Trajectory]) -> dict[int, str]:
        """Returns the failures of a chunk by place; each process knows those of the rows it made."""
        mine = [(place, row.failure) for place, row in rows.items() if row.failure is not None]
        every: list[tuple[int, str]] = []
        for data in agreement.gathered_bytes(json.dumps(mine).encode()):
            every += json.loads(data)
        return dict(every)

    def _write(self, rows: list[Trajectory]) -> None:
        assert self._writer is not None  # noqa: S101 - it is open
        try:
            for row in rows:
                self._writer.write(row)
            self._writer.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> DatasetError:
        why = error.strerror or error
        return DatasetError(f"{self._folder}: cannot be written to: {why}; free space or permissions are needed there")

    def _summary(self, attempt: Attempt, turns: int, success: bool, failure: str | None, drawn: int) -> AttemptResult:
        return AttemptResult(attempt, turns, self._facts[attempt.game].longest, success, failure, drawn)

    # ---- what is there already ----------------------------------------------------------------------------------

    def _open(self) -> None:
        agreement.together(self._open_own)  # so no process reads before all have let go of what they left behind
        for _ in range(_LOOKS):
            # The first process decides for all; one that sees other files would write rows twice, or never.
            told, differs = self._look()
            if not agreement.largest(int(differs)):
                break
            time.sleep(_PAUSE)
        else:
            agreement.together(functools.partial(self._refuse_other_sight, differs))
        for game, task, sample, turns, success, failure, drawn in told:
            attempt = Attempt(game, task, sample)
            self._done[attempt] = self._summary(attempt, turns, success, failure, drawn)

    def _open_own(self) -> None:
        try:
            self._writer = TrajectoryWriter(self._folder, self._provenance, host=self._host, hosts=self._hosts)
        except OSError as error:
            raise self._unwritable(error) from error

    def _refuse_other_sight(self, differs: bool) -> None:
        if differs:
            what = "sees other trajectories than the first process; put the folder on a shared disk"
            raise DatasetError(f"{self._folder}: {what}")

    def _look(self) -> tuple[list[list[Any]], bool]:
        """Returns what the first process finds in the folder, and whether this one finds anything else."""
        mine = agreement.together(self._stored)
        told = agreement.from_first(mine)
        return told, mine != told

    def _stored(self) -> list[list[Any]]:
        """Returns what the folder holds of this configuration, in a fixed order, ready for JSON."""
        if not parts(self._folder):
            return []
        table = read_columns(self._folder, _COLUMNS).table
        columns = (table[name].to_pylist() for name in _COLUMNS)
        found = []
        for game, options, task, seat, opponent, *rest in zip(*columns, strict=True):
            if self._options.get(game) != options:
                continue
            if (seat, opponent) == (self._seat(game, task), self._opponent(game)):
                found.append([game, task, *rest])
        return sorted(found, key=lambda row: tuple(row[:3]))

    def _opponent(self, game: str) -> str:
        return self._config.collect.opponent if self._facts[game].seats > 1 else "none"


def _all_raised(chunk: list[Attempt], episodes: list[Episode], labels: dict[int, str]) -> dict[str, str]:
    """Returns what the first game raised, for games of which every one of a chunk did."""
    raised: dict[str, str] = {}
    fine = set()
    for place, (attempt, episode) in enumerate(zip(chunk, episodes, strict=True)):
        if labels.get(place) == "failed":
            raised.setdefault(attempt.game, str(episode.failure))
        else:
            fine.add(attempt.game)
    return {game: what for game, what in raised.items() if game not in fine}

"""Several trajectories of every task into a folder: what is stored already, and how it resumes.

What a trajectory is depends on its attempt (`dfc.records.attempts`), the weights and the settings only, so a collection
that was stopped plays exactly what is missing and ends with the same tokens. With several processes all play, and each
writes the rows of its own tasks.
"""

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax

from dfc import multihost
from dfc.config import Branch, Collect, CollectingRunConfig
from dfc.episodes import Episode
from dfc.errors import DfcError, Interrupted
from dfc.games import registry
from dfc.games.replay import ReplayError
from dfc.games.rng import derive_seed
from dfc.models import model_folders
from dfc.models.safetensors_format import Location
from dfc.players import player_specs
from dfc.records.attempts import TaskSample, TrajectorySummary
from dfc.records.episode_store import ROUNDS, in_chunks
from dfc.records.task_groups import playing
from dfc.records.trajectories import BranchPoint, Provenance, Trajectory, canonical_json, from_episode
from dfc.records.trajectory_files import DatasetError, TrajectoryWriter, parts, read_columns, read_part
from dfc.rollout import trained_weights
from dfc.rollout.openings import Opening
from dfc.rollout.runner import EpisodeSpec, all_failed, system_prompt
from dfc.runs.run_folder import git_commit
from dfc.runs.stop_signals import Stop

FOLDER = "trajectories"  # of a run
_COLUMNS = ("game", "options", "task", "seat", "opponent", "sample", "turns", "success", "failure", "action_tokens")
# Settings besides those of sampling that determine a trajectory; every row stores both.
_LIMITS = ("max_length", "max_prompt_length", "max_reply_length", "simulator_reply_length", "max_actions")
_SHAPING = (*_LIMITS, "legal_only", "prompt", "think_language")
PlayGames = Callable[[Sequence[EpisodeSpec]], list[Episode]]
"""Plays games with fixed weights and a fixed opponent; returns their episodes in the same order."""
_LOOKS, _PAUSE = 30, 2.0  # at a shared disk that shows a file to one host later than to another; seconds between them


def make_provenance(config: CollectingRunConfig, source: Location) -> Provenance:
    """Returns where the trajectories of a run come from; the first process reads the weights for it.

    `source` is the folder of the weights, or of the tokenizer that encodes a demonstrator's games.
    """
    limits = {name: getattr(config.rollout, name) for name in _SHAPING}
    if config.model.enable_thinking is not None:
        limits["enable_thinking"] = config.model.enable_thinking
    demonstrator = config.demonstrator if isinstance(config, Collect) else ""
    if demonstrator:
        commit = multihost.broadcast(git_commit() if multihost.is_primary() else None)
        settings = {**limits, "simulators": config.simulators, "tokenizer": trained_weights.kind_of(str(source))[1]}
        return Provenance(player_specs.parse(demonstrator).name, demonstrator, settings, config.seed, commit)
    found = [model_folders.weights_hash(source), git_commit()] if multihost.is_primary() else None
    model_hash, commit = multihost.broadcast(found)
    sampling = {**dataclasses.asdict(config.sampling), **limits, "simulators": config.simulators}
    return Provenance(source.name, model_hash, sampling, config.seed, commit)


def parts_folder(named: Path) -> Path:
    """Returns the folder of parts that a place means: that of a finished run that collected them, or the one named.

    Raises:
      DatasetError: a run is meant that has not collected everything; its folder of parts may be named instead.
    """
    folder = named / FOLDER
    if not folder.is_dir():
        return named
    if (named / "config.json").is_file() and not (named / "finished.json").exists():
        there = sum(read_part(path, ("sample",)).num_rows for path in parts(folder))
        raise DatasetError(
            f"{named}: is not finished, {there} trajectories are there; start its command again, which collects the "
            f"rest, or name {folder} to build from what is there"
        )
    return folder


@dataclasses.dataclass(frozen=True, eq=False)
class Branched:
    """Where an attempt begins that plays on from a turn of a recorded game.

    Attributes:
      seat: the policy's.
      game_seed: the deal of that game.
      opening: its replies and tokens up to the turn.
      branch: which row and turn.
    """

    seat: int
    game_seed: int
    opening: Opening
    branch: BranchPoint


class Collection:
    """A folder of trajectories that grows; use it as a context manager.

    Every process makes one, with the same arguments, and calls its methods at the same places. All of them know the
    same attempts: a file counts once every process sees all the files that the first one sees. The run's games, split,
    sampling, `rollout` and `seed` decide what an attempt is. Collections of different `purpose` sample different tokens
    for one attempt. `branched` says where attempts begin that play on from recorded games, of all attempts or of none.

    Raises:
      DatasetError: the folder holds rows of another model, sampling or seed, or a part that cannot be read, or another
        process writes there, or the processes see different files. The other processes raise DfcError.
    """

    def __init__(
        self,
        config: CollectingRunConfig,
        play: PlayGames,
        folder: Path,
        provenance: Provenance,
        *,
        purpose: str = "collect",
        policy_version: int = 0,
        branched: Mapping[TaskSample, Branched] | None = None,
    ) -> None:
        self._config, self._play_games, self._folder = playing(config), play, folder
        self._provenance, self._purpose, self._version = provenance, purpose, policy_version
        self._against = config.opponent if isinstance(config, Collect | Branch) else "itself"
        self._branched = branched or {}
        self._seats = {task_sample[:2]: begin.seat for task_sample, begin in self._branched.items()}
        self._sampled = not (isinstance(config, Collect) and config.demonstrator)
        self._options = {game: canonical_json(options) for game, options in self._config.games.items()}
        self._info = {game: registry.make(game, **options).info for game, options in self._config.games.items()}
        self._host: int = jax.process_index()
        self._hosts: int = jax.process_count()
        self._writer: TrajectoryWriter | None = None
        self._done: dict[TaskSample, TrajectorySummary] = {}
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

    def missing(self, wanted: Iterable[TaskSample]) -> list[TaskSample]:
        """Returns the attempts of which no trajectory is in the folder."""
        return [task_sample for task_sample in wanted if task_sample not in self._done]

    def summaries(self, wanted: Iterable[TaskSample]) -> list[TrajectorySummary]:
        """Returns the outcomes of attempts whose trajectories are in the folder; others are left out."""
        return [self._done[task_sample] for task_sample in wanted if task_sample in self._done]

    def play(
        self,
        wanted: Sequence[TaskSample],
        *,
        stop: Stop,
        on_chunk: Callable[[list[TrajectorySummary], float], None] | None = None,
    ) -> list[TrajectorySummary]:
        """Plays and writes what is missing; returns the outcome of every attempt, in order.

        An attempt that is named twice is played once. A stop is asked for before every chunk of games; all trajectories
        before it are on the disk then. Players that were made with its `check_stop` abort a chunk under way, of which
        nothing is kept. `on_chunk` is called after every chunk, none after a stop within it, with its outcomes and the
        seconds that playing it took.

        Raises:
          Interrupted: a stop was asked for.
          DfcError: every episode of some game in a chunk raised, such as with an endpoint that is down. The other games
            of the chunk are written and these are not, so the same call plays them again.
          DatasetError: the disk cannot be written to. The other processes raise DfcError.
        """
        size = self._config.episodes_per_chunk or self._in_flight * ROUNDS
        for chunk in in_chunks(wanted, size, lambda some: list(dict.fromkeys(self.missing(some))), stop):
            begun = time.perf_counter()
            try:
                episodes = self._play_games([self._spec(task_sample) for task_sample in chunk])
            except Interrupted:  # the chunk has no outcome, but may have cost money
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
                    "not recorded, everything else is; the same command resumes and plays these again"
                )
        return self.summaries(wanted)

    @property
    def _in_flight(self) -> int:
        rollout = self._config.rollout
        return rollout.slots * rollout.workers * self._hosts

    def _seat(self, game: str, task: int) -> int:
        if (seat := self._seats.get((game, task))) is not None:
            return seat
        role = self._config.learner_roles.get(game) if isinstance(self._config, Collect) else None
        if role is not None:
            return self._info[game].player_roles.index(role)
        return task % 2 if self._info[game].seats > 1 else 0

    def _spec(self, task_sample: TaskSample) -> EpisodeSpec:
        game, task, sample = task_sample
        begin = self._branched.get(task_sample)
        return EpisodeSpec(
            game=game,
            options=self._config.games[game],
            game_seed=task if begin is None else begin.game_seed,
            opening=None if begin is None else begin.opening,
            seat=self._seat(game, task),
            group=task,
            seed=derive_seed(self._purpose, self._config.seed, game, task, sample),
        )

    def _record(
        self, chunk: list[TaskSample], episodes: list[Episode]
    ) -> tuple[list[TrajectorySummary], dict[str, str]]:
        """Writes the trajectories of a chunk; returns the outcomes of those written, and the games that all raised."""
        rows = multihost.on_all_hosts(lambda: self._rows(chunk, episodes))
        labels = self._labels(rows)
        raised = (e.failure if labels.get(place) == "failed" else None for place, e in enumerate(episodes))
        down = all_failed(zip((task_sample.game for task_sample in chunk), raised, strict=True))
        kept = [place for place, task_sample in enumerate(chunk) if task_sample.game not in down]
        multihost.on_all_hosts(lambda: self._write([rows[place] for place in kept if place in rows]))
        found = []
        for place in kept:
            task_sample, episode = chunk[place], episodes[place]
            success = not episode.failed and episode.outcome == "win"
            found.append(
                self._summary(task_sample, episode.steps, success, labels.get(place), episode.generated_tokens)
            )
        self._done |= {summary.task_sample: summary for summary in found}
        return found, down

    def _rows(self, chunk: list[TaskSample], episodes: list[Episode]) -> dict[int, Trajectory]:
        """Returns this process's trajectories of a chunk by index."""
        rows = {}
        for place, (task_sample, episode) in enumerate(zip(chunk, episodes, strict=True)):
            if task_sample.task % self._hosts != self._host:
                continue
            # The engine's count of weights depends on how often the run was started.
            played = dataclasses.replace(episode, policy_version=self._version)
            system = system_prompt(self._config.rollout)
            try:
                rows[place] = from_episode(
                    played,
                    sample=task_sample.sample,
                    provenance=self._provenance,
                    system=system,
                    keep_logprobs=self._sampled,
                    branch=begin.branch if (begin := self._branched.get(task_sample)) is not None else None,
                )
            except ReplayError as error:
                what = f"{self._folder}: a game cannot be played again from its record: {error}"
                raise DatasetError(what) from error
        return rows

    def _labels(self, rows: dict[int, Trajectory]) -> dict[int, str]:
        """Returns the failures of a chunk by index; each process knows those of the rows it made."""
        mine = [(place, row.failure) for place, row in rows.items() if row.failure is not None]
        every: list[tuple[int, str]] = []
        for data in multihost.all_gather_bytes(json.dumps(mine).encode()):
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

    def _summary(
        self, task_sample: TaskSample, turns: int, success: bool, failure: str | None, generated_tokens: int
    ) -> TrajectorySummary:
        return TrajectorySummary(
            task_sample, turns, self._info[task_sample.game].max_game_length, success, failure, generated_tokens
        )

    # ---- what is there already ----------------------------------------------------------------------------------

    def _open(self) -> None:
        multihost.on_all_hosts(self._open_own)  # so that no process reads before all have opened the folder
        for _ in range(_LOOKS):
            # The first process decides for all; one that sees other files would write rows twice, or never.
            reported, differs = self._check_stop()
            if not multihost.all_max(int(differs)):
                break
            time.sleep(_PAUSE)
        else:
            multihost.on_all_hosts(functools.partial(self._refuse_other_sight, differs))
        for game, task, sample, turns, success, failure, generated_tokens in reported:
            task_sample = TaskSample(game, task, sample)
            self._done[task_sample] = self._summary(task_sample, turns, success, failure, generated_tokens)

    def _open_own(self) -> None:
        try:
            self._writer = TrajectoryWriter(self._folder, self._provenance, host=self._host, hosts=self._hosts)
        except OSError as error:
            raise self._unwritable(error) from error

    def _refuse_other_sight(self, differs: bool) -> None:
        if differs:
            what = "sees other trajectories than the first process; put the folder on a shared disk"
            raise DatasetError(f"{self._folder}: {what}")

    def _check_stop(self) -> tuple[list[list[Any]], bool]:
        """Returns what the first process finds in the folder, and whether this one finds anything else."""
        mine = multihost.on_all_hosts(self._stored)
        reported = multihost.broadcast(mine)
        return reported, mine != reported

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
        return self._against if self._info[game].seats > 1 else "none"

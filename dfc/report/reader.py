"""Reading a run folder, whole or incrementally while the run is running.

Every file may be missing or end in half a line; what cannot be read is named, never raised. A `RunReader` keeps what it
has read and takes only what was added since, so that following a run costs what the run adds.
"""

import collections
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dfc.errors import RunFolderError
from dfc.evaluation.statistics import Record

Json = dict[str, Any]

_EPISODES_PER_END = 3  # kept per stage, game and kind, from the first and again from the last iteration
_QUERY_ITERATIONS, _QUERIES = 8, 6  # of self-play: iterations that are kept, and queries of each
_METRICS = ("step", "stage", "iteration", "metrics")
_MATCH = ("stage", "policy", "opponent", "game", "seat")
_EPISODE = ("game", "stage", "replies", "outcomes")


@dataclasses.dataclass
class RunRecords:
    """What was found in a run folder.

    Attributes:
      path: the folder.
      config: config.json, or None.
      versions: versions.json, or None; under `starts` one entry for each time the run was started.
      groups: groups.json, or None.
      collection: collection.json, or of a curriculum's round choices.json, or None.
      metrics: lines of metrics.jsonl by step, the last one of each (stage, iteration).
      evaluations: (line, its counts) of evaluations.jsonl, the last one of each match.
      episodes: (line number, line) of a small sample of episodes.jsonl.
      queries: of self-play, lines of episodes.jsonl by their iteration, a small sample of iterations and queries.
      problems: one sentence for each thing that could not be read.
    """

    path: Path
    config: Json | None = None
    versions: Json | None = None
    groups: Json | None = None
    collection: Json | None = None
    metrics: list[Json] = dataclasses.field(default_factory=list)
    evaluations: list[tuple[Json, Record]] = dataclasses.field(default_factory=list)
    episodes: list[tuple[int, Json]] = dataclasses.field(default_factory=list)
    queries: dict[int, list[Json]] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def self_play(self) -> bool:
        """Whether the run is one of self-play: its episodes are queries with their answers, and no games."""
        return (self.config or {}).get("recipe") == "language_self_play"

    @functools.cached_property
    def stages(self) -> list[str]:
        """The stages found so far in the order in which they ran, ``base`` first and ``final`` last.

        Every file has its lines in that order, but none has all stages: a fuse has no metrics, a stage that is under
        way no evaluations.
        """
        games = (line for _, line in sorted(self.episodes, key=lambda pair: pair[0]))
        names = _merged(_names(row for row, _ in self.evaluations), _names(self.metrics))
        return sorted(_merged(names, _names(games)), key=lambda name: {"base": 0, "final": 2}.get(name, 1))

    @functools.cached_property
    def metric_names(self) -> list[str]:
        """The names of all metrics, in order of appearance."""
        return list(dict.fromkeys(itertools.chain.from_iterable(line["metrics"] for line in self.metrics)))

    @functools.cached_property
    def games(self) -> list[str]:
        """The games: those of the configuration, then any other one found."""
        metric_games = (game for game, _ in game_metrics(self.metric_names))
        configured = (self.config or {}).get("games", {})
        played = (row["game"] for row, _ in self.evaluations)
        return list(dict.fromkeys(map(str, itertools.chain(configured, played, metric_games))))

    @property
    def finished(self) -> bool:
        """Whether the run noted that everything of it has been written."""
        return (self.path / "finished.json").is_file()


class RunReader:
    """Reads a run folder again and again.

    Raises:
      RunFolderError: the folder does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise RunFolderError(f"{self._folder} is no folder; expected a run folder such as runs/quickstart")
        self._forget()

    def update(self) -> RunRecords:
        """Returns what the folder holds now; reads only what was added since the last call.

        A file of lines that became shorter, as when a run goes back to its checkpoint, makes everything be read again.
        """
        if any(stream.was_cut for stream in self._streams):
            self._forget()
        run = RunRecords(self._folder)
        run.config, run.versions, run.groups, collection, choices = (
            _read_json(self._folder / f"{name}.json", run.problems)
            for name in ("config", "versions", "groups", "collection", "choices")
        )
        run.collection = collection or choices
        metrics, matches, episodes = self._streams
        for _, line in metrics.new():
            values = {name: float(value) for name, value in line["metrics"].items()}  # not finite: written as text
            self._metrics[line["stage"], line["iteration"]] = line | {"metrics": values}
        self._matches |= _matches(matches)
        for number, line in episodes.new():
            if "query" in line:
                self._queries.add(line)
            else:
                self._sample.add(number, line)
        run.metrics = sorted(self._metrics.values(), key=lambda line: float(line["step"]))
        run.evaluations = list(self._matches.values())
        run.episodes, run.queries = self._sample.kept(), self._queries.kept()
        run.problems += [problem for stream in self._streams for problem in stream.problems]
        return run

    def _forget(self) -> None:
        names = (("metrics", _METRICS), ("evaluations", _MATCH), ("episodes", _EPISODE))
        self._streams = [_Stream(self._folder / f"{name}.jsonl", keys) for name, keys in names]
        self._metrics: dict[tuple[Any, Any], Json] = {}
        self._matches: dict[tuple[Any, ...], tuple[Json, Record]] = {}
        self._sample, self._queries = _Sample(), _QuerySample()


def read(folder: Path) -> RunRecords:
    """Returns what a run folder holds; what cannot be read is named in `problems`.

    Raises:
      RunFolderError: the folder does not exist.
    """
    return RunReader(folder).update()


def read_evaluations(folder: Path) -> tuple[list[tuple[Json, Record]], list[str]]:
    """Returns the `evaluations` and `problems` of a run folder without reading anything else of it."""
    stream = _Stream(folder / "evaluations.jsonl", _MATCH)
    found = list(_matches(stream).values())
    return found, stream.problems


def game_metrics(metrics: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields (game id, metric) of every name ``games/<id>/<metric>``."""
    for name in metrics:
        parts = _game_metric(name)
        if parts is not None:
            yield parts


@functools.lru_cache(10_000)  # asked again for every line of metrics.jsonl
def _game_metric(name: str) -> tuple[str, str] | None:
    parts = name.split("/")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "games" else None


def policy_outcome(episode: Mapping[str, Any]) -> str:
    """Returns how a line of episodes.jsonl ended for the policy's seat, or ``unknown``."""
    outcomes, seat = episode["outcomes"], episode.get("seat")
    known = isinstance(outcomes, list) and isinstance(seat, int) and 0 <= seat < len(outcomes)
    return str(outcomes[seat]) if known else "unknown"


def _matches(stream: "_Stream") -> dict[tuple[Any, ...], tuple[Json, Record]]:
    """Returns what was added to evaluations.jsonl: each line with its counts, the last one of every match."""
    found = {}
    for _, line in stream.new():
        try:
            found[tuple(line[key] for key in _MATCH)] = (line, Record.from_json(line))
        except RunFolderError as error:
            stream.problems.append(str(error))
    return found


def _names(lines: Iterable[Json]) -> list[str]:
    return list(dict.fromkeys(str(line["stage"]) for line in lines))


def _merged(first: list[str], second: list[str]) -> list[str]:
    """Returns two orders as one; where they leave it open, the names that only the first one has come first."""
    merged: list[str] = []
    while first or second:
        take = first[0] if first and (first[0] not in second or first[0] == second[0]) else second[0]
        merged.append(take)
        first, second = ([name for name in names if name != take] for names in (first, second))
    return merged


def _read_json(path: Path, problems: list[str]) -> Json | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        problems.append(f"{path.name}: expected a JSON object")
        return None
    return value


class _Stream:
    """A file of JSON lines that grows; a half-written last line is left for the next time, silently."""

    def __init__(self, path: Path, keys: tuple[str, ...]) -> None:
        self._path, self._keys = path, keys
        self._read = self._number = 0  # bytes and lines taken so far
        self._ended = True  # whether the last line taken had its newline
        self.problems: list[str] = []

    @property
    def was_cut(self) -> bool:
        """Whether the file is shorter than what was read of it."""
        return self._read > 0 and (not self._path.is_file() or self._path.stat().st_size < self._read)

    def new(self) -> Iterator[tuple[int, Json]]:
        """Yields (line number, object) of what was added, one by one."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            for raw in file:
                whole, problem = raw.endswith(b"\n"), f"expected an object with {', '.join(self._keys)}"
                try:
                    line = json.loads(raw.decode("utf-8", "replace"))
                except ValueError:
                    if not whole:
                        return
                    line, problem = None, "no JSON"
                self._read += len(raw)
                if raw == b"\n" and not self._ended:  # the newline of a line that was taken before it came
                    self._ended = True
                    continue
                self._number, self._ended = self._number + 1, whole
                if isinstance(line, dict) and all(key in line for key in self._keys):
                    yield self._number, line
                else:
                    self.problems.append(f"{self._path.name}, line {self._number}: {problem}")


class _Sample:
    """Keeps, per stage, game and kind, the first game of each outcome in the first and in the last iteration."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, ...], tuple[float, dict[str, tuple[int, Json]]]] = {}

    def add(self, number: int, line: Json) -> None:
        """Takes the next game; only those that are kept stay in memory."""
        iteration = float(line.get("iteration") or 0)
        for end, sign in (("last", 1), ("first", -1)):
            key = (end, str(line["stage"]), str(line["game"]), str(line.get("kind")))
            if key not in self._ends or sign * (iteration - self._ends[key][0]) > 0:
                self._ends[key] = (iteration, {})
            at, games = self._ends[key]
            if iteration == at and len(games) < _EPISODES_PER_END:
                games.setdefault(policy_outcome(line), (number, line))

    def kept(self) -> list[tuple[int, Json]]:
        """Returns the games; one of every stage, game and kind comes before the second of any."""
        ranks: collections.defaultdict[int, list[tuple[int, Json]]] = collections.defaultdict(list)
        seen: set[int] = set()
        for _, games in self._ends.values():
            for rank, (number, line) in enumerate(games.values()):
                if number not in seen:
                    seen.add(number)
                    ranks[rank].append((number, line))
        return [pair for rank in sorted(ranks) for pair in ranks[rank]]


class _QuerySample:
    """Keeps queries of few iterations, evenly over the run so far, and of the last one: different ones of each."""

    def __init__(self) -> None:
        self._every = 1  # iterations between two that are kept
        self._found: dict[int, dict[tuple[str, str], Json]] = {}

    def add(self, line: Json) -> None:
        """Takes the next query; one of each task, and of each kind of bad query, is kept of an iteration."""
        iteration = int(line.get("iteration") or 0)
        if self._found and iteration > (newest := max(self._found)):
            if (newest - 1) % self._every:
                del self._found[newest]
            if len(self._found) >= _QUERY_ITERATIONS:
                self._every *= 2
                self._found = {one: found for one, found in self._found.items() if (one - 1) % self._every == 0}
        queries = self._found.setdefault(iteration, {})
        if len(queries) < _QUERIES:
            queries.setdefault((str(line.get("task")), str(line.get("wrong"))), line)

    def kept(self) -> dict[int, list[Json]]:
        """Returns the queries by iteration."""
        return {iteration: list(self._found[iteration].values()) for iteration in sorted(self._found)}

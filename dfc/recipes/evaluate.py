"""A tournament: every policy alone and against every other one, on the same fresh deals; read from top to bottom.

    meetings  each policy at the games for one, each pair at the games for two, every deal with seats swapped
    records   every finished game is played again from its record before it is written
    results   results.json, tables.md, tournament.html

Resume order: 1. half a last line is cut off; 2. games on record are not played again, except those that failed; 3. the
rest is played. What a game is depends on its spec and its players only (`dfc.rollout.runner`), not on where a stop
fell.
"""

import collections
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import jax

from dfc.config import Evaluate
from dfc.episodes import Episode
from dfc.errors import DfcError, RunFolderError
from dfc.evaluation import pairing, tournament
from dfc.evaluation.pairing import Meeting
from dfc.files import write_json
from dfc.games import registry
from dfc.players import player_specs
from dfc.players.remote import PlayerError
from dfc.recipes.contestants import TournamentPlayers
from dfc.report import tournament_page
from dfc.rollout.runner import EpisodeSpec
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

_ROUNDS = 4  # of games as many as are in flight, between two writes
_POLICIES = "policies.json"

Key = tuple[str, int, tuple[str, ...]]


def run(config: Evaluate, folder: RunFolder, stop: Stop) -> None:
    """Plays what is not on record yet, and writes the results."""
    if jax.process_count() > 1:
        raise DfcError("a tournament runs in one process, over all devices of its machine; start it without several")
    folder.mend()
    records = {_key(record): record for record in folder.records("episodes")}
    schedule = _schedule(config)
    wanted = sum(len(episode_specs) for _, episode_specs in schedule)
    todo = [(meeting, left) for meeting, episode_specs in schedule if (left := _left(meeting, episode_specs, records))]
    done = wanted - sum(len(episode_specs) for _, episode_specs in todo)
    print(f"{wanted} games, {done} of them on record", flush=True)  # noqa: T201 - what a person wants to know
    if todo:
        with TournamentPlayers(config) as contestants:
            _refuse_others(folder, contestants.fingerprints())
            folder.note_device(contestants.device)
            with Progress(wanted, start_step=done) as progress:
                for meeting, left in todo:
                    for episode_specs in [left] if config.rollout.mix_games else _by_game(left):
                        _play(folder, stop, contestants, meeting, episode_specs, progress, done)
                        done += len(episode_specs)
    _finish(config, folder)


def _schedule(config: Evaluate) -> list[tuple[Meeting, list[EpisodeSpec]]]:
    names = [spec.name for spec in player_specs.policies(config)]
    return [
        (meeting, pairing.episode_specs(meeting, config.seeds, config.seed))
        for meeting in pairing.meetings(names, config.games)
    ]


def _left(meeting: Meeting, episode_specs: list[EpisodeSpec], records: dict[Key, dict[str, Any]]) -> list[EpisodeSpec]:
    """Returns the specs that are not on record, or whose game failed."""

    def done(episode_spec: EpisodeSpec) -> bool:
        record = records.get(pairing.key(episode_spec.game, episode_spec.group, pairing.players(meeting, episode_spec)))
        return record is not None and "failure" not in record

    return [episode_spec for episode_spec in episode_specs if not done(episode_spec)]


def _by_game(episode_specs: list[EpisodeSpec]) -> list[list[EpisodeSpec]]:
    games = dict.fromkeys(spec.game for spec in episode_specs)
    return [[spec for spec in episode_specs if spec.game == game] for game in games]


def _key(record: dict[str, Any]) -> Key:
    return pairing.key(record["game"], record["deal"], record["players"])


def _refuse_others(folder: RunFolder, found: dict[str, str]) -> None:
    """Notes who plays, or compares: games of two different players must not be counted as one's.

    Raises:
      RunFolderError: a policy is not the one that played the games on record.
    """
    path = folder.path / _POLICIES
    if not path.exists():
        write_json(path, found, indent=2)
        return
    stored = json.loads(path.read_bytes())
    changed = [name for name in found if stored.get(name) != found[name]]
    if changed:
        raise RunFolderError(
            f"{path}: {', '.join(changed)} is not the policy that played the games on record, its weights have changed;"
            " put the old ones back, or give another --workdir"
        )


# ---- one meeting ---------------------------------------------------------------------------------------------------


def _play(
    folder: RunFolder,
    stop: Stop,
    contestants: TournamentPlayers,
    meeting: Meeting,
    episode_specs: list[EpisodeSpec],
    progress: Progress,
    before: int,
) -> None:
    """Plays the games of a meeting, some at a time, and records them; `before` games of the tournament are done."""
    if contestants.slow(meeting):
        print(f"{meeting.title}: two kinds of models; one of them replies one game at a time")  # noqa: T201 - why slow
    won: dict[str, list[float]] = collections.defaultdict(list)
    done = 0
    for some in _batched(episode_specs, _ROUNDS * contestants.concurrency(meeting)):
        stop.check()  # everything so far is on disk
        begun, spent_before = time.perf_counter(), contestants.spent()
        played = contestants.play(meeting, some, stop.look)
        seconds = time.perf_counter() - begun
        if not played:  # stopped before a game had ended
            break
        records = [_record(meeting, episode_spec, episode) for episode_spec, episode in played]
        spent = {name: value - spent_before.get(name, 0.0) for name, value in contestants.spent().items()}
        spent = {name: value for name, value in spent.items() if value}
        done += len(played)
        line = {
            "step": before + done,
            "stage": meeting.title,
            "iteration": done,
            "policies": [name for name in (meeting.first, meeting.second) if name is not None],
            "metrics": spent,
            "clock": {"time": time.time(), "seconds": seconds},
        }
        folder.append("episodes", records)
        folder.append("metrics", [line])
        folder.positions()  # and so on disk
        for record in records:
            for seat, name in enumerate(record["players"]):
                won[name].append(float(record["outcomes"][seat] == "win"))
        progress.update(
            stage=meeting.title,
            iteration=done,
            iterations=len(episode_specs),
            step=before + done,
            episodes_per_second=len(played) / seconds,
            tokens_per_second=sum(v for n, v in spent.items() if n.startswith("generated_tokens/")) / seconds,
            win_rates={name: sum(games) / len(games) for name, games in won.items()},
        )
        _refuse_all_failed(meeting, records)
    stop.check()


def _batched(episode_specs: list[EpisodeSpec], size: int) -> Iterator[list[EpisodeSpec]]:
    rest = iter(episode_specs)
    while some := list(itertools.islice(rest, size)):
        yield some


def _record(meeting: Meeting, episode_spec: EpisodeSpec, episode: Episode) -> dict[str, Any]:
    """Returns the line of a finished game, after playing it again."""
    players = pairing.players(meeting, episode_spec)
    record = episode.record(
        stage="tournament",
        iteration=0,
        kind="evaluate",
        reward=None,
        deal=episode_spec.group,
        players=list(players),
        policy=players[episode.seat],
    )
    return record | {"counts": tournament.checked(record)}


def _refuse_all_failed(meeting: Meeting, records: list[dict[str, Any]]) -> None:
    """Stops where continuing would only spend time: an endpoint that is down, a key that is not valid.

    Raises:
      PlayerError: all of these games failed.
    """
    failures = [record["failure"] for record in records if "failure" in record]
    if failures and len(failures) == len(records):
        raise PlayerError(
            f"{meeting.title}: all of the last {len(failures)} games failed, the first one so: {failures[0]}. "
            "Everything else is on record; the same command resumes and plays these again"
        )


# ---- results -------------------------------------------------------------------------------------------------------


def _finish(config: Evaluate, folder: RunFolder) -> None:
    """Writes and shows the results."""
    names = [spec.name for spec in player_specs.policies(config)]
    records = tournament.latest(folder.records("episodes"))
    found = tournament.of_records(names, records, folder.records("metrics"), anchor=config.anchor or None)
    starts = {game: registry.make(game, **options).start for game, options in config.games.items()}
    tables = tournament_page.tables(config, found, starts)
    tournament_page.write(folder.path, config, found, tables)
    for line in tournament_page.console(found):
        print(line)  # noqa: T201 - the result
    print(f"tables: {folder.path / 'tables.md'}\nreport: {folder.path / 'tournament.html'}", flush=True)  # noqa: T201

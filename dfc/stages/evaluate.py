"""A tournament: every policy alone and against every other one, on the same fresh deals; read from top to bottom.

    meetings  each policy at the games for one, each pair at the games for two, every deal with seats swapped
    records   every finished game is played again from its record before it is written
    results   results.json, tables.md, report.html

What is common to evaluations, and resume: `dfc.stages.evaluation_run`.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from dfc.config import Evaluate
from dfc.episodes import Episode
from dfc.errors import DfcError
from dfc.evaluation import pairing, tournament
from dfc.evaluation.pairing import Meeting
from dfc.evaluation.tournament_players import TournamentPlayers
from dfc.games import registry
from dfc.players import player_specs
from dfc.players.endpoint import Endpoint
from dfc.records.episode_store import ROUNDS, Part, Played, Players
from dfc.report import tournament_page
from dfc.report.page import Results
from dfc.rollout.runner import EpisodeSpec
from dfc.runs import players_on_record
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.stages import evaluation_run

Key = tuple[str, int, tuple[str, ...]]


def run(config: Evaluate, folder: RunFolder, stop: Stop) -> None:
    """Plays what is not on record yet, and writes the results."""
    if jax.process_count() > 1:
        raise DfcError("a tournament runs in one process, over all devices of its machine; start it without several")

    @contextlib.contextmanager
    def players() -> Iterator[_Players]:
        with TournamentPlayers(config) as contestants:
            players_on_record.refuse_others(folder, contestants.fingerprints())
            folder.note_device(contestants.device)
            yield _Players(contestants, stop)

    phases = [(_schedule(config), players)]
    evaluation_run.evaluate(config, folder, stop, phases, _key, lambda: _results(config, folder), finishes=False)


def _schedule(config: Evaluate) -> list[Part[Key, EpisodeSpec]]:
    """Returns the games of every meeting by their keys; those of every game id apart where games are not mixed."""
    names, schedule = [spec.name for spec in player_specs.policies(config)], []
    for meeting in pairing.meetings(names, config.games):
        specs = pairing.episode_specs(meeting, config.seeds, config.seed)
        games = {pairing.key(s.game, s.group, pairing.players(meeting, s)): s for s in specs}
        policies = [name for name in (meeting.first, meeting.second) if name is not None]
        for part in [None] if config.rollout.mix_games else list(meeting.games):
            wanted = {k: s for k, s in games.items() if part in (None, s.game)}
            schedule.append(Part(meeting.title, policies, wanted, meeting))
    return schedule


def _key(record: Mapping[str, Any]) -> Key:
    return pairing.key(record["game"], record["deal"], record["players"])


class _Players(Players[EpisodeSpec]):
    """Plays the games of meetings."""

    failed_before = False

    def __init__(self, contestants: TournamentPlayers, stop: Stop) -> None:
        self._contestants, self._stop = contestants, stop

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return self._contestants.endpoints()

    def begin(self, part: Part[Any, EpisodeSpec]) -> int:
        if self._contestants.slow(part.subject):
            evaluation_run.say(f"{part.title}: two kinds of models; one of them replies one game at a time")
        return ROUNDS * self._contestants.concurrency(part.subject)

    def play(self, part: Part[Any, EpisodeSpec], some: list[EpisodeSpec]) -> Played:
        before = self._contestants.generated_tokens()
        played = self._contestants.play(part.subject, some, self._stop.check_stop)
        tokens = {name: n - before.get(name, 0.0) for name, n in self._contestants.generated_tokens().items()}
        return Played([_record(part.subject, spec, episode) for spec, episode in played], tokens)

    def wins(self, record: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
        return [(name, record["outcomes"][seat] == "win") for seat, name in enumerate(record["players"])]


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


def _results(config: Evaluate, folder: RunFolder) -> Results:
    names = [spec.name for spec in player_specs.policies(config)]
    records = folder.records("episodes")
    found = tournament.of_records(names, records, folder.records("metrics"), anchor=config.anchor or None)
    starts = {game: registry.make(game, **options).start for game, options in config.games.items()}
    return tournament_page.results(config, found, starts)

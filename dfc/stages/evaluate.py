"""A tournament: every policy alone and against every other one, on the same fresh deals; read from top to bottom.

    meetings  each policy at the games for one, each pair at the games for two, every deal with seats swapped
    records   every finished game is played again from its record before it is written
    results   results.json, tables.md, tournament.html

Resume: `dfc.records.episode_store`.
"""

from collections.abc import Mapping
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
from dfc.records.episode_store import ROUNDS, EpisodeStore, Played
from dfc.report import tournament_page
from dfc.rollout.runner import EpisodeSpec
from dfc.runs import players_on_record
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

Key = tuple[str, int, tuple[str, ...]]


def run(config: Evaluate, folder: RunFolder, stop: Stop) -> None:
    """Plays what is not on record yet, and writes the results."""
    if jax.process_count() > 1:
        raise DfcError("a tournament runs in one process, over all devices of its machine; start it without several")
    store = EpisodeStore(folder, _key)
    schedule = _schedule(config)
    total = sum(len(games) for _, games in schedule)
    done = total - sum(len(store.missing(games)) for _, games in schedule)
    print(f"{total} games, {done} of them on record", flush=True)  # noqa: T201 - progress
    if done < total:
        with TournamentPlayers(config) as contestants:
            players_on_record.refuse_others(folder, contestants.fingerprints())
            folder.note_device(contestants.device)
            with Progress(total, start_step=done, shorter=config.shorter) as progress:
                for meeting, games in schedule:
                    if store.missing(games):
                        done = _play(store, contestants, meeting, games, done, stop, progress)
    _finish(config, folder)


def _schedule(config: Evaluate) -> list[tuple[Meeting, dict[Key, EpisodeSpec]]]:
    """Returns the games of every meeting by their keys; those of every game id apart where games are not mixed."""
    names, schedule = [spec.name for spec in player_specs.policies(config)], []
    for meeting in pairing.meetings(names, config.games):
        specs = pairing.episode_specs(meeting, config.seeds, config.seed)
        games = {pairing.key(s.game, s.group, pairing.players(meeting, s)): s for s in specs}
        parts = [None] if config.rollout.mix_games else list(meeting.games)
        schedule += [(meeting, {k: s for k, s in games.items() if part in (None, s.game)}) for part in parts]
    return schedule


def _key(record: Mapping[str, Any]) -> Key:
    return pairing.key(record["game"], record["deal"], record["players"])


def _play(
    store: EpisodeStore[Key],
    contestants: TournamentPlayers,
    meeting: Meeting,
    games: Mapping[Key, EpisodeSpec],
    done: int,
    stop: Stop,
    progress: Progress,
) -> int:
    """Plays the games of a meeting; returns how many of the tournament are on record then."""
    if contestants.slow(meeting):
        print(f"{meeting.title}: two kinds of models; one of them replies one game at a time")  # noqa: T201 - why slow
    names = [name for name in (meeting.first, meeting.second) if name is not None]

    def play(episode_specs: list[EpisodeSpec]) -> Played:
        before = contestants.generated_tokens()
        played = contestants.play(meeting, episode_specs, stop.check_stop)
        tokens = {name: count - before.get(name, 0.0) for name, count in contestants.generated_tokens().items()}
        return Played([_record(meeting, spec, episode) for spec, episode in played], tokens)

    return store.play(
        meeting.title,
        names,
        games,
        play,
        size=ROUNDS * contestants.concurrency(meeting),
        step=done,
        wins=lambda record: [(n, record["outcomes"][seat] == "win") for seat, n in enumerate(record["players"])],
        endpoints=contestants.endpoints,
        stop=stop,
        progress=progress,
    )


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

"""Matches: which games are played, how many and on which seeds, and the resulting counts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dfc.config import GameOptions
from dfc.episodes import Episode
from dfc.evaluation.statistics import Record, pooled_by
from dfc.games import registry
from dfc.games.game import Game
from dfc.games.rng import derive_seed
from dfc.rollout.runner import EpisodeSpec


def policy_seat(game_id: str, game: Game, number: int, learner_roles: Mapping[str, str]) -> int:
    """Returns the policy's seat in the game of a number: that of its role, or alternating where it has none.

    Roles are by game id; the number is that of the game among those that are played.

    Raises:
      ValueError: the game has no such role.
    """
    role = learner_roles.get(game_id)
    return number % game.seats if role is None else game.seat_of(role)


def match_specs(
    games: Mapping[str, GameOptions],
    count: int,
    seed: int,
    purpose: str,
    learner_roles: Mapping[str, str] | None = None,
) -> list[EpisodeSpec]:
    """Returns `count` episodes of each game, seats alternating where there are two.

    Matches of different purposes share no game seed. `games` has by id the constructor values that differ from the id's
    own, `learner_roles` the role that the policy always takes.
    """
    specs = []
    for game, options in games.items():
        made = registry.make(game, **options)
        for index in range(count):
            deal = derive_seed("match deal", purpose, seed, game, index)
            sampling_seed = derive_seed("match draws", purpose, seed, game, index)
            seat = policy_seat(game, made, index, learner_roles or {})
            specs.append(EpisodeSpec(game, options, deal, seat, index, sampling_seed))
    return specs


def record_of(episode: Episode) -> Record:
    """Returns one episode as counts of its policy's seat; `Record.of_game` says which end counts as what."""
    return Record.of_game(
        episode.outcome,
        seat=episode.seat,
        forfeited_by=episode.forfeited_by,
        overran=episode.overran,
        ran_out=episode.ran_out,
        replies=sum(reply.speaker == "policy" for reply in episode.replies),
        illegal_replies=episode.illegal_tries,
        malformed_replies=max(episode.malformed_tries, int(episode.malformed)),  # older records have no count
        steps=episode.steps,
    )


def tally(episodes: Iterable[Episode]) -> dict[tuple[str, int], Record]:
    """Returns the counts per (game id, policy's seat); failed games are inconclusive and are left out."""
    counted = (episode for episode in episodes if not (episode.failed or episode.left_out))
    return pooled_by(((episode.game, episode.seat), record_of(episode)) for episode in counted)


def by_game(counts: Mapping[tuple[str, int], Record]) -> dict[str, Record]:
    """Returns the counts per game id, summed over seats, in order of first appearance."""
    return pooled_by((game, record) for (game, _), record in counts.items())


def evaluation_rows(episodes: Sequence[Episode], **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON values
    """Returns one JSON-ready row per (game, seat) with its counts, failed games apart; `more` is added to each."""
    counts = tally(episodes)
    failed: dict[tuple[str, int], list[str]] = defaultdict(list)
    for episode in episodes:
        if episode.failed:
            failed[episode.game, episode.seat].append(str(episode.failure))
    rows = []
    for game, seat in sorted({*counts, *failed}):
        record, causes = counts.get((game, seat), Record()), failed[game, seat]
        row = {**more, "game": game, "seat": seat, "games": record.games, **vars(record), "failed": len(causes)}
        rows.append(row | ({"first_failure": causes[0]} if causes else {}))
    return rows

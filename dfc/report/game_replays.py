"""The games that the report shows turn by turn, each played again by the rules."""

import itertools
import json
import math

from markupsafe import Markup

from dfc.games.replay import ReplayError, replay
from dfc.report.page import embedded
from dfc.report.reader import Json, RunRecords, policy_outcome
from dfc.report.tables import text

GAME_BYTES = 1_000_000  # of shown games, text and markup together

_RESULTS = {
    "win": "The policy won.",
    "draw": "Nobody won.",
    "loss": "The policy lost.",
    "invalid": "The policy lost by a reply that is no legal action.",
    "truncated": "The game was stopped and has no result.",
}


class ShownGames:
    """Makes the shown games ready for the browser; a game that was shown before is not played again.

    The games that come first in the sample are shown, `most_bytes` of JSON at most.
    """

    def __init__(self, most_bytes: int = GAME_BYTES) -> None:
        self._most = most_bytes
        self._known: dict[int, Json] = {}  # by line of episodes.jsonl; texts still in full

    def embedded(self, run: RunRecords) -> Markup:
        """Returns the games as data for the page's script; texts that recur are stored once."""
        texts: dict[str, int] = {}
        games: list[Json] = []
        size = 0
        shown: dict[int, Json] = {}
        for number, record in run.episodes:
            game = self._known.get(number) or _game(record)
            known = len(texts)
            turns = [
                [
                    seat,
                    None if seen is None else texts.setdefault(seen, len(texts)),
                    texts.setdefault(said, len(texts)),
                    status,
                    verdict,
                    None if board is None else texts.setdefault(board, len(texts)),
                ]
                for seat, seen, said, status, verdict, board in game["turns"]
            ]
            size += len(json.dumps([game | {"turns": turns}, list(itertools.islice(texts, known, None))]))
            if games and size > self._most:
                break
            shown[number] = game
            games.append(game | {"turns": turns})
        self._known = shown  # games no longer in the sample are dropped
        order = {stage: number for number, stage in enumerate(run.stages)}
        games.sort(key=lambda g: (-order[g["stage"]], g["game"], g["kind"], -g["iteration"]))
        return embedded("episode-data", {"texts": list(texts), "games": games, "stages": run.stages})


def _game(record: Json) -> Json:
    """One game: [seat, observation, reply, status, verdict, board] of each turn, as far as the replay proves them."""
    turns: list[list[object]] = []
    error = None
    try:
        turns.extend([t.seat, t.observation, t.reply, t.status, t.verdict, t.board] for t in replay(record))
    except ReplayError as difference:
        error = str(difference)  # the rest is shown as it is recorded
        recorded = record["replies"] if isinstance(record["replies"], list) else []
        turns += [[None, None, text(entry), "unproven", None, None] for entry in recorded[len(turns) :]]
    options = {name: text(value) for name, value in (record.get("options") or {}).items()}
    reward = record.get("reward")
    return {
        "game": str(record["game"]),
        "stage": str(record["stage"]),
        "kind": str(record.get("kind", "")),
        "iteration": int(record.get("iteration") or 0),
        "seat": record.get("seat"),
        "opponent": str(record.get("opponent", "")),
        "seed": str(record.get("seed", "")),  # text: 63-bit seeds exceed what JavaScript keeps exactly
        "options": options,
        "outcome": policy_outcome(record),
        "result": _RESULTS.get(policy_outcome(record), ""),
        "forfeited_by": record.get("forfeited_by"),
        "reward": reward if isinstance(reward, int | float) and math.isfinite(reward) else None,
        "turns": turns,
        "error": error,
    }

"""Pairs of a better and a worse side, from dialogues of one instance: whole dialogues, or one reply to one history.

The rules, and where the source is silent about them, stand in `dfc.rows.dialogue_rows`.
"""

import collections
import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dfc.config import DialogueRowsConfig
from dfc.games.rng import derive_seed
from dfc.records.trajectories import Message
from dfc.rows.conversations import ConversationPair, Scalar
from dfc.rows.dialogues import Dialogue

_ABORTED = -1.0  # its quality in comparisons: below all


def is_won(dialogue: Dialogue, settings: DialogueRowsConfig) -> bool:
    """Returns whether a dialogue's quality is above the threshold of its game."""
    threshold = settings.thresholds.get(dialogue.game, settings.threshold)
    return dialogue.quality is not None and dialogue.quality > threshold


def dialogue_pairs(
    dialogues: Iterable[Dialogue], best: Sequence[str], settings: DialogueRowsConfig, seed: int
) -> tuple[list[ConversationPair], collections.Counter[str]]:
    """Returns won dialogues beside lost ones that begin alike, shuffled; and by game the won ones that have none.

    Dialogues are all different; those of the players `best` may be the worse side.
    """
    groups: dict[object, list[Dialogue]] = collections.defaultdict(list)
    for dialogue in _paired(dialogues, settings):
        groups[_dealt(dialogue), dialogue.messages[: dialogue.start]].append(dialogue)
    found: list[tuple[int, ConversationPair]] = []
    without: collections.Counter[str] = collections.Counter()
    for group in groups.values():
        lost = [other for other in group if not is_won(other, settings) and _may_lose(other, best, settings)]
        for won in group:
            if not is_won(won, settings):
                continue
            drawn = sorted(
                (derive_seed("dialogue pair", seed, won.key, other.key), n)
                for n, other in enumerate(lost)
                if other.messages != won.messages  # another seat may have made the difference
            )
            if not drawn:
                without[won.game] += 1
            taken: collections.Counter[bool] = collections.Counter()
            for number, n in drawn:
                # Lost and aborted ones are counted apart, or all as one kind.
                kind = settings.aborted_count == "apart" and lost[n].quality is None
                taken[kind] += 1
                if taken[kind] <= settings.negatives:
                    found.append((number, ConversationPair(won.messages, lost[n].messages, _meta(won, lost[n]))))
    return [pair for _, pair in sorted(found, key=lambda item: item[0])], without


class _TurnPair(NamedTuple):
    """Two replies to one history with their random draw; those that are kept become a `ConversationPair`."""

    number: int
    won: Dialogue
    other: Dialogue
    place: int

    @property
    def turn(self) -> int:
        """How many replies stand before."""
        return (self.place - self.won.start) // 2

    def rows(self) -> ConversationPair:
        """Returns it as it is written."""
        end = self.place + 1
        meta = {**_meta(self.won, self.other), "turn": self.turn}
        return ConversationPair(self.won.messages[:end], self.other.messages[:end], meta, context_replies=self.turn)


def turn_pairs(
    dialogues: Iterable[Dialogue], best: Sequence[str], settings: DialogueRowsConfig, seed: int
) -> list[ConversationPair]:
    """Returns pairs of two replies to one history, the better one of a won dialogue, shuffled; arguments as above.

    Of pairs that `first_turn_pairs` leaves out, no more are held at a time than it lets stay.
    """
    nodes: dict[tuple[object, tuple[Message, ...]], list[Dialogue]] = collections.defaultdict(list)
    for dialogue in _paired(dialogues, settings):
        for end in range(dialogue.start, len(dialogue.messages), 2):
            nodes[_dealt(dialogue), dialogue.messages[:end]].append(dialogue)
    every = itertools.chain.from_iterable(
        _pairs_of_node(group, len(history), best, settings, seed) for (_, history), group in nodes.items()
    )
    kept = sorted(_capped(every, settings.first_turn_pairs), key=lambda pair: pair.number)
    return [pair.rows() for pair in kept]


def _pairs_of_node(
    group: Sequence[Dialogue], place: int, best: Sequence[str], settings: DialogueRowsConfig, seed: int
) -> Iterator[_TurnPair]:
    """Yields the pairs of dialogues with one history, each two replies once, with the smallest number drawn."""
    by_reply: dict[str, list[Dialogue]] = collections.defaultdict(list)
    for won in group:
        if is_won(won, settings):
            by_reply[won.messages[place].content].append(won)
    losers = [other for other in group if _may_lose(other, best, settings)] if by_reply else []
    for same in by_reply.values():
        yield from _drawn(pair for won in same for pair in _worse_replies(won, place, losers, settings, seed))


def _worse_replies(
    won: Dialogue, place: int, losers: Sequence[Dialogue], settings: DialogueRowsConfig, seed: int
) -> list[_TurnPair]:
    """Returns a won dialogue beside worse ones with other replies at a place, each reply once."""
    pairs = (
        _TurnPair(derive_seed("turn pair", seed, won.key, place, other.key), won, other, place)
        for other in losers
        if other.messages[place] != won.messages[place] and _is_worse(other, won, settings)
    )
    return _drawn(pairs)[: settings.turn_negatives or None]


def _drawn(pairs: Iterable[_TurnPair]) -> list[_TurnPair]:
    """Returns the pairs in the order of their numbers, of those with one worse reply the first."""
    found: dict[str, _TurnPair] = {}
    for pair in sorted(pairs, key=lambda pair: pair.number):
        found.setdefault(pair.other.messages[pair.place].content, pair)
    return list(found.values())


def _is_worse(other: Dialogue, won: Dialogue, settings: DialogueRowsConfig) -> bool:
    if settings.turn_rejected == "unsuccessful":
        return not is_won(other, settings)
    return _value(other) < _value(won)


def _capped(pairs: Iterable[_TurnPair], limits: Mapping[str, int]) -> list[_TurnPair]:
    """Returns the pairs; of the first reply in a game with a limit, so many with the smallest numbers."""
    kept: list[_TurnPair] = []
    first: dict[str, list[tuple[int, int, _TurnPair]]] = {game: [] for game in limits}  # heaps, the last to stay first
    for place, pair in enumerate(pairs):
        heap = first.get(pair.won.game) if pair.turn == 0 else None
        if heap is None:
            kept.append(pair)
            continue
        heapq.heappush(heap, (-pair.number, -place, pair))
        if len(heap) > limits[pair.won.game]:
            heapq.heappop(heap)
    return kept + [pair for heap in first.values() for _, _, pair in heap]


def _paired(dialogues: Iterable[Dialogue], settings: DialogueRowsConfig) -> Iterable[Dialogue]:
    return (dialogue for dialogue in dialogues if dialogue.game not in settings.pairs_without)


def _dealt(dialogue: Dialogue) -> tuple[str, str, str, str | None]:
    return dialogue.game, dialogue.instance, dialogue.seat, dialogue.world


def _value(dialogue: Dialogue) -> float:
    return _ABORTED if dialogue.quality is None else dialogue.quality


def _may_lose(dialogue: Dialogue, best: Sequence[str], settings: DialogueRowsConfig) -> bool:
    """Returns whether a dialogue may be the worse side, if it is worse."""
    fair = dialogue.quality is not None or (dialogue.game in settings.aborted_negatives and dialogue.to_blame)
    return fair and dialogue.player in best


def _meta(won: Dialogue, other: Dialogue) -> dict[str, Scalar]:
    return {
        "game": won.game,
        "instance": won.instance,
        "seat": won.seat,
        "chosen_player": won.player,
        "rejected_player": other.player,
        "chosen_quality": won.quality,
        "rejected_quality": other.quality,
    }

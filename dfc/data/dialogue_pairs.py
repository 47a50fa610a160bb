"""Pairs of a better and a worse side, from dialogues of one instance: whole dialogues, or one reply to one history.

The rules, and where the source is silent about them, stand in `dfc.data.dialogue_rows`.
"""

import collections
from collections.abc import Iterable, Sequence

from dfc.config import DialogueRowsConfig
from dfc.data.conversations import ConversationPair, Scalar
from dfc.data.dialogues import Dialogue
from dfc.data.trajectories import Message
from dfc.games.rng import derive_seed

_ABORTED = -1.0  # its quality in comparisons: below all


def is_won(dialogue: Dialogue, settings: DialogueRowsConfig) -> bool:
    """Returns whether a dialogue's quality is above the threshold of its game."""
    threshold = settings.thresholds.get(dialogue.game, settings.threshold)
    return dialogue.quality is not None and dialogue.quality > threshold


def dialogue_pairs(
    dialogues: Iterable[Dialogue], best: Sequence[str], settings: DialogueRowsConfig, seed: int
) -> tuple[list[ConversationPair], collections.Counter[str]]:
    """Returns won dialogues beside lost ones that begin alike, shuffled; and by game the won ones that have none.

    Args:
      dialogues: different ones.
      best: the players whose dialogues may be the worse side.
      settings: which games, thresholds, how many.
      seed: of the choice and the order.
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
            order = sorted(
                (derive_seed("dialogue pair", seed, won.key, other.key), n)
                for n, other in enumerate(lost)
                if other.messages != won.messages  # another seat may have made the difference
            )
            if not order:
                without[won.game] += 1
            for number, n in order[: settings.negatives]:
                found.append((number, ConversationPair(won.messages, lost[n].messages, _meta(won, lost[n]))))
    return [pair for _, pair in sorted(found, key=lambda item: item[0])], without


def turn_pairs(
    dialogues: Iterable[Dialogue], best: Sequence[str], settings: DialogueRowsConfig, seed: int
) -> list[ConversationPair]:
    """Returns pairs of two replies to one history, the better one of a won dialogue, shuffled; arguments as above."""
    nodes: dict[tuple[object, tuple[Message, ...]], list[Dialogue]] = collections.defaultdict(list)
    for dialogue in _paired(dialogues, settings):
        for end in range(dialogue.start, len(dialogue.messages), 2):
            nodes[_dealt(dialogue), dialogue.messages[:end]].append(dialogue)
    # One pair of replies once: it has the smallest of the numbers that it was drawn with.
    found: dict[object, tuple[int, ConversationPair]] = {}
    for (dealt, history), group in nodes.items():
        for won in group:
            if not is_won(won, settings):
                continue
            for number, other in _worse_replies(won, len(history), group, best, settings, seed):
                sides = won.messages[: len(history) + 1], other.messages[: len(history) + 1]
                turn = (len(history) - won.start) // 2
                pair = ConversationPair(*sides, {**_meta(won, other), "turn": turn}, context_replies=turn)
                key = (dealt, sides)
                found[key] = min(found.get(key, (number, pair)), (number, pair), key=lambda item: item[0])
    taken: collections.Counter[str] = collections.Counter()
    kept = []
    for _, pair in sorted(found.values(), key=lambda item: item[0]):
        game = str(pair.meta["game"])
        if pair.meta["turn"] == 0 and game in settings.first_turn_pairs:
            if taken[game] == settings.first_turn_pairs[game]:
                continue
            taken[game] += 1
        kept.append(pair)
    return kept


def _worse_replies(
    won: Dialogue, place: int, group: Sequence[Dialogue], best: Sequence[str], settings: DialogueRowsConfig, seed: int
) -> list[tuple[int, Dialogue]]:
    """Returns dialogues of a lower quality with other replies at a place, each reply once, and the numbers drawn."""
    by_reply: dict[str, tuple[int, Dialogue]] = {}
    for other in group:
        reply = other.messages[place].content
        if reply == won.messages[place].content or _value(other) >= _value(won):
            continue
        if _may_lose(other, best, settings):
            drawn = (derive_seed("turn pair", seed, won.key, place, other.key), other)
            by_reply[reply] = min(by_reply.get(reply, drawn), drawn, key=lambda item: item[0])
    return sorted(by_reply.values(), key=lambda item: item[0])[: settings.negatives]


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

"""Rows to train on, chosen from dialogues: what to imitate, pairs of whole dialogues, pairs of one reply.

Source: "Playpen" (arXiv 2504.08590), sections 4.3.1 and 4.3.2, appendices D.1 (D1 to D6) and D.3, Tables 3 and 4. What
is done, and where the source is silent:

  Identical dialogues count once. The source does not say.
  Won (D1): the quality is above the game's threshold. The source has a threshold per game and prints none.
  Players (D2): the k = 10 with the most won dialogues, all games and seats together; the source counts "successful
    episodes" and says no more. Players with as many are in the order of their names.
  Balance (D4): before cutting into prefixes, each game is cut to the number of won dialogues of the game with the
    fewest, without repeating any; those of the best player stay first, of one player a random choice. The source's
    Table 3 has 214 to 434 of a game "after balancing", so its rule was another one that is not stated:
    `most_per_game` without `balance` is a limit in its place.
  Held out: a share of the instances of each game, the same ones for every kind of row, player and
    seat; so what is trained on in one stage is not held out in the next. The source does not say how it cut.
  Prefixes (D3): a dialogue of n replies gives n rows, each ending with a reply, in order one after another; the
    dialogues are shuffled before. Which replies of a prefix count, the source does not say: `replies`.
  Asides (D.1): the questions of one round and their replies are merged into one row, whose context is the dialogue up
    to there. In later rows nothing of them stands.
  DPO dialogue (D.3): for every won dialogue, of any player, `negatives` = 1 lost one of the best players with the
    same instance, seat, world and beginning (all that stands before the first reply; two dialogues of a seat that
    replies second begin alike only if the other seat said the same); in the games of `aborted_negatives` as many
    aborted ones beside them (`aborted_count`), and only such as this seat's reply aborted, which the source does not
    ask for.
  DPO turn (D.3): for every turn of a won dialogue, the other replies to the same history that lost and aborted
    dialogues gave (`turn_rejected`), all different ones (`turn_negatives`: the source states no number, see there). Of
    the same games as above, and of the same players: the source tried out whose negatives are best for whole dialogues
    only, and says of turns nothing else. One pair of replies stands once. Pairs of the first reply: `first_turn_pairs`
    of a game at most, which the source has for two of the Wordles; "2k samples" may be of each or of both.
  No pairs are made of the games of `pairs_without`.

Everything random is a hash of the seed and of the dialogues' contents: neither the order of files nor that of rows
matters, nor whether a file is read twice.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from dfc.config import DialogueRowsConfig
from dfc.games.rng import derive_seed
from dfc.records.trajectories import Message
from dfc.rows.conversations import Conversation, ConversationPair
from dfc.rows.dialogue_pairs import dialogue_pairs, is_won, turn_pairs
from dfc.rows.dialogues import Aside, Dialogue

_Row = TypeVar("_Row", Conversation, ConversationPair)
_Counts = collections.Counter[tuple[str, str]]  # of a game and a field of its statistics


class Split(NamedTuple, Generic[_Row]):
    """Rows of one kind.

    Attributes:
      train: to train on.
      held_out: of the held-out instances.
    """

    train: tuple[_Row, ...]
    held_out: tuple[_Row, ...]


@dataclasses.dataclass(frozen=True)
class DialogueStatistics:
    """Statistics of the dialogues of one game; Tables 3 and 4 of the paper with what explains them.

    Attributes:
      game: id.
      dialogues: different ones. players: different ones who played it.
      won: above the threshold. lost: played to the end and not won. aborted: by a reply.
      unfinished: games that were stopped from outside, which are no dialogues.
      instances: different ones. instances_held_out: whose rows are held out.
      chosen: dialogues to imitate, before they are cut into rows. sft: supervised rows. pairs_dialogue: pairs of whole
        dialogues. pairs_turn: pairs of one reply. Each with the held-out ones beside it.
      without_negative: won dialogues beside which no worse one begins alike.
      too_long: rows and pairs left out as longer than `max_characters`.
      replies_cut: of published dialogues, replies that were shortened. replies_asked_again: those taken out.
        rows_invalid_format, rows_with_examples: published dialogues that were left out, which no other number counts
        (`dfc.rows.dialogue_repairs`). All of them as often as they were read.
    """

    game: str
    dialogues: int
    players: int
    won: int
    lost: int
    aborted: int
    unfinished: int
    instances: int
    instances_held_out: int
    chosen: int
    chosen_held_out: int
    sft: int
    sft_held_out: int
    pairs_dialogue: int
    pairs_dialogue_held_out: int
    pairs_turn: int
    pairs_turn_held_out: int
    without_negative: int
    too_long: int
    replies_cut: int
    replies_asked_again: int
    rows_invalid_format: int
    rows_with_examples: int


@dataclasses.dataclass(frozen=True)
class DialogueRows:
    """What was chosen; a kind that was not wanted is empty.

    Attributes:
      sft: rows to imitate.
      pairs_dialogue: pairs of whole dialogues.
      pairs_turn: pairs of one reply.
      players: the best ones, best first.
      statistics: by game, in the order of their names.
    """

    sft: Split[Conversation]
    pairs_dialogue: Split[ConversationPair]
    pairs_turn: Split[ConversationPair]
    players: tuple[str, ...]
    statistics: tuple[DialogueStatistics, ...]


def choose(
    dialogues: Iterable[Dialogue],
    settings: DialogueRowsConfig,
    *,
    seed: int = 0,
    unfinished: Mapping[str, int] | None = None,
    repaired: Mapping[tuple[str, str], int] | None = None,
) -> DialogueRows:
    """Returns the rows that are made of dialogues; the head of this file says by which rules.

    Dialogues are of any number of collections and files, in any order; `unfinished` games are no dialogues. The
    statistics have these by id, and the repairs made before by id and field.
    """
    pool = {dialogue.key: dialogue for dialogue in dialogues if is_wanted(dialogue.game, settings)}
    every = [pool[key] for key in sorted(pool)]
    best = player_ranking(every, settings)[: settings.players or None]
    held_out = held_out_instances(every, settings.held_out, seed)
    counts: _Counts = collections.Counter(repaired or {})
    rows: list[Conversation] = []
    whole: list[ConversationPair] = []
    turns: list[ConversationPair] = []
    if "sft" in settings.wanted:
        for dialogue in imitated(every, best, settings, seed):
            counts[dialogue.game, "chosen" + _suffix((dialogue.game, dialogue.instance) in held_out)] += 1
            rows += rows_of(dialogue, settings)
    if "pairs_dialogue" in settings.wanted:
        whole, without = dialogue_pairs(every, best, settings, seed)
        counts.update({(game, "without_negative"): number for game, number in without.items()})
    if "pairs_turn" in settings.wanted:
        turns = turn_pairs(every, best, settings, seed)
    longest = settings.max_characters
    return DialogueRows(
        sft=_split("sft", rows, held_out, longest, counts),
        pairs_dialogue=_split("pairs_dialogue", whole, held_out, longest, counts),
        pairs_turn=_split("pairs_turn", turns, held_out, longest, counts),
        players=tuple(best),
        statistics=_statistics(every, settings, held_out, counts, unfinished or {}),
    )


def is_wanted(game: str, settings: DialogueRowsConfig) -> bool:
    """Returns whether rows are made of a game."""
    return game not in settings.leave_out and (not settings.game_groups or game in settings.game_groups)


def player_ranking(dialogues: Iterable[Dialogue], settings: DialogueRowsConfig) -> list[str]:
    """Returns all players, those with the most won dialogues first, then by name."""
    won = collections.Counter({dialogue.player: 0 for dialogue in dialogues})
    won.update(dialogue.player for dialogue in dialogues if is_won(dialogue, settings))
    return sorted(won, key=lambda player: (-won[player], player))


def held_out_instances(dialogues: Iterable[Dialogue], share: float, seed: int) -> frozenset[tuple[str, str]]:
    """Returns the held-out instances as (game, instance): of each game its share, rounded, a half upwards."""
    instances: dict[str, set[str]] = collections.defaultdict(set)
    for dialogue in dialogues:
        instances[dialogue.game].add(dialogue.instance)
    found = set()
    for game, names in instances.items():
        order = sorted(names, key=lambda name: derive_seed("held out", seed, game, name))
        found |= {(game, name) for name in order[: int(share * len(order) + 0.5)]}
    return frozenset(found)


# ---- rows to imitate ------------------------------------------------------------------------------------------------


def imitated(
    dialogues: Iterable[Dialogue], best: Sequence[str], settings: DialogueRowsConfig, seed: int
) -> list[Dialogue]:
    """Returns the won dialogues of the players `best`, best first, the games balanced, shuffled.

    Dialogues are all different.
    """
    rank = {player: place for place, player in enumerate(best)}
    by_game: dict[str, list[Dialogue]] = collections.defaultdict(list)
    for dialogue in dialogues:
        if dialogue.player in rank and is_won(dialogue, settings):
            by_game[dialogue.game].append(dialogue)
    limits = [min(map(len, by_game.values()))] if settings.balance and by_game else []
    limits += [settings.most_per_game] if settings.most_per_game else []
    found = []
    for some in by_game.values():
        some.sort(key=lambda dialogue: (rank[dialogue.player], derive_seed("balance", seed, dialogue.key)))
        found += some[: min(limits, default=None)]
    return sorted(found, key=lambda dialogue: derive_seed("order", seed, dialogue.key))


def rows_of(dialogue: Dialogue, settings: DialogueRowsConfig) -> list[Conversation]:
    """Returns the rows of one dialogue, shorter ones first; what was asked aside stands where it was asked."""
    ends = range(dialogue.start + 1, len(dialogue.messages) + 1, 2)
    if settings.rows == "dialogues":
        ends = ends[-1:]
    found = [(end, 0, dialogue.messages[:end]) for end in ends]
    for after, block in itertools.groupby(dialogue.asides, key=lambda aside: aside.after):
        for question, reply in _asked(list(block), settings):
            asked = (*dialogue.messages[:after], Message("user", question), Message("assistant", reply))
            found.append((after, 1, asked))
    found.sort(key=lambda row: row[:2])  # stable: asides of one place stay in their order
    meta = {name: getattr(dialogue, name) for name in ("game", "instance", "seat", "player", "quality")}
    return [Conversation(messages, meta, _context(messages, settings)) for _, _, messages in found]


def _context(messages: Sequence[Message], settings: DialogueRowsConfig) -> int:
    """Returns how many replies of a row do not count."""
    return sum(message.role == "assistant" for message in messages) - 1 if settings.replies == "last" else 0


def _asked(block: Sequence[Aside], settings: DialogueRowsConfig) -> list[tuple[str, str]]:
    """Returns questions and replies of the asides of one place."""
    if settings.asides == "single":
        return [(aside.question, aside.reply) for aside in block]
    return [merged(block)] if settings.asides == "merged" else []


def merged(block: Sequence[Aside]) -> tuple[str, str]:
    r"""Returns several asides as one: lines with which all questions begin once, then the questions; the replies.

    >>> merged([Aside(0, "Rules.\nASIDE: A?", "ASIDE: no"), Aside(0, "Rules.\nASIDE: B?", "ASIDE: yes")])
    ('Rules.\nASIDE: A?\nASIDE: B?', 'ASIDE: no\nASIDE: yes')
    """
    questions = [aside.question.split("\n") for aside in block]
    alike = (len(set(lines)) == 1 for lines in zip(*(lines[:-1] for lines in questions), strict=False))
    shared = sum(itertools.takewhile(bool, alike))
    lines = [*questions[0][:shared], *itertools.chain.from_iterable(lines[shared:] for lines in questions)]
    return "\n".join(lines), "\n".join(aside.reply for aside in block)


# ---- held out, and counted ------------------------------------------------------------------------------------------


def _suffix(held_out: bool) -> str:
    return "_held_out" if held_out else ""


def _split(
    kind: str, rows: Sequence[_Row], held_out: frozenset[tuple[str, str]], longest: int, counts: _Counts
) -> Split[_Row]:
    """Returns rows apart; those that are too long are counted and left out."""
    train: list[_Row] = []
    apart: list[_Row] = []
    for row in rows:
        game, instance = str(row.meta["game"]), str(row.meta["instance"])
        if longest and _characters(row) > longest:
            counts[game, "too_long"] += 1
            continue
        held = (game, instance) in held_out
        counts[game, kind + _suffix(held)] += 1
        (apart if held else train).append(row)
    return Split(tuple(train), tuple(apart))


def _characters(row: Conversation | ConversationPair) -> int:
    sides = (row.messages,) if isinstance(row, Conversation) else (row.chosen, row.rejected)
    return max(sum(len(message.content) for message in side) for side in sides)


def _statistics(
    dialogues: Sequence[Dialogue],
    settings: DialogueRowsConfig,
    held_out: frozenset[tuple[str, str]],
    counts: _Counts,
    unfinished: Mapping[str, int],
) -> tuple[DialogueStatistics, ...]:
    """Returns the statistics from what is counted already, by game and field, and the dialogues."""
    # Of some games there may be no dialogue.
    games = {game for game in (*unfinished, *(game for game, _ in counts)) if is_wanted(game, settings)}
    counts.update({(game, "unfinished"): number for game, number in unfinished.items()})
    different: dict[tuple[str, str], set[object]] = collections.defaultdict(set)
    for dialogue in dialogues:
        game, instance = dialogue.game, (dialogue.game, dialogue.instance)
        games.add(game)
        ended = "aborted" if dialogue.outcome == "aborted" else "won" if is_won(dialogue, settings) else "lost"
        counts.update([(game, "dialogues"), (game, ended)])
        different[game, "players"].add(dialogue.player)
        different[game, "instances"].add(instance)
        different[game, "instances_held_out"] |= {instance} & held_out
    counts.update({name: len(some) for name, some in different.items()})
    names = [field.name for field in dataclasses.fields(DialogueStatistics) if field.name != "game"]
    return tuple(DialogueStatistics(game, *(counts[game, name] for name in names)) for game in sorted(games))

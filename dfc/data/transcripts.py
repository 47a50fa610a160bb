"""Transcripts of scripted players: conversations for supervised training, as text and as ids."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dfc.games import registry
from dfc.games.chance import Chance, derive_seed
from dfc.games.game import Verdict
from dfc.models.chat import ChatTokenizer
from dfc.training.packing import Sequence1D


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One turn: what a seat was shown, what it answered, and what it could have answered.

    Attributes:
      observation: what was new.
      reply: the action.
      legal: all actions the player chose from with equal probability; empty for a reply not worth imitating.
    """

    observation: str
    reply: str
    legal: tuple[str, ...]

    @property
    def imitate(self) -> bool:
        """Whether the reply is worth imitating."""
        return bool(self.legal)


@dataclasses.dataclass(frozen=True)
class Transcript:
    """One seat's view of one game."""

    game: str
    seat: int
    exchanges: tuple[Exchange, ...]


def random_legal(game_id: str, options: Mapping[str, Any], seed: int, *, illegal_share: float) -> list[Transcript]:
    """Plays one game of random legal moves; returns one transcript per seat.

    A share of the turns is preceded by an illegal try, so that being asked again is seen, too; illegal tries are
    not to be imitated. They are drawn from what was legal at the start or earlier in the game.

    Args:
      game_id: registered id.
      options: constructor values that differ from the id's own.
      seed: of the deal and of every choice.
      illegal_share: probability of an illegal try before a turn, where one exists.
    """
    game = registry.make(game_id, **options)
    game.reset(derive_seed("transcript deal", game_id, seed))
    chance = Chance(derive_seed("transcript moves", game_id, seed))
    exchanges: list[list[Exchange]] = [[] for _ in range(game.seats)]
    seen: dict[str, None] = {}
    while game.to_move is not None:
        seat, legal = game.to_move, game.legal_actions()
        seen.update(dict.fromkeys(legal))
        if game.illegal_allowance > 0 and chance.uniform() < illegal_share:
            wrong = [action for action in seen if action not in legal]
            if wrong:
                action = wrong[chance.below(len(wrong))]
                exchanges[seat].append(Exchange(game.observation(seat), action, ()))
                if game.step(action) is not Verdict.ILLEGAL:
                    raise AssertionError(f"{game_id}: {action} is not among the legal actions but was played")
        action = legal[chance.below(len(legal))]
        exchanges[seat].append(Exchange(game.observation(seat), action, tuple(legal)))
        game.step(action)
    return [Transcript(game_id, seat, tuple(turns)) for seat, turns in enumerate(exchanges) if turns]


def texts(transcripts: Iterator[Transcript]) -> Iterator[str]:
    """Returns every message of the transcripts, one by one: what a tokenizer is built from."""
    for transcript in transcripts:
        for exchange in transcript.exchanges:
            yield exchange.observation
            yield exchange.reply


def choices(exchange: Exchange, tokenizer: ChatTokenizer) -> list[dict[int, float]]:
    """Returns, for each id of an imitated reply (its end-of-turn id included), the distribution of that id.

    The player chose among the legal actions with equal probability; given the ids before it, an id has the share of
    the legal actions that go on with it. Training on these shares instead of the one action that was drawn has the
    same expected gradient and much less noise.
    """
    end = tokenizer.end_ids[0]
    spelled = [(*tokenizer.encode_reply(action), end) for action in exchange.legal]
    found: list[dict[int, float]] = []
    for place, own in enumerate((*tokenizer.encode_reply(exchange.reply), end)):
        shares: dict[int, float] = {}
        for ids in spelled:
            shares[ids[place]] = shares.get(ids[place], 0.0) + 1.0 / len(spelled)
        found.append(shares)
        spelled = [ids for ids in spelled if ids[place] == own]
    return found


def encode(transcript: Transcript, tokenizer: ChatTokenizer) -> Sequence1D:
    """Returns the ids of a transcript as a rollout would have produced them; the mask is 1 on imitated replies.

    The end-of-turn id after an imitated reply counts as part of it.
    """
    ids: list[int] = []
    mask: list[bool] = []
    end = tokenizer.end_ids[0]
    for exchange in transcript.exchanges:
        if ids:
            context = tokenizer.next_turn(exchange.observation, closed=True)
        else:
            context = tokenizer.first_turn(exchange.observation)
        reply = [*tokenizer.encode_reply(exchange.reply), end]
        ids += [*context, *reply]
        mask += [False] * len(context) + [exchange.imitate] * len(reply)
    return Sequence1D(np.asarray(ids, np.int32), np.asarray(mask, bool), np.zeros(len(ids), np.float32), 0.0)

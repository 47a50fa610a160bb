"""Transcripts of scripted players: conversations for supervised training, as text and as tokens."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dfc.games import registry, scripted
from dfc.games.game import Game, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.task import Task, task_seed
from dfc.models.chat import ChatTokenizer
from dfc.packing import Segment

_ASIDES = 0.1  # share of the questions put aside that have a transcript
MOST_CHOICES = 64  # of more legal actions (words, codes, questions) only the one that was said is the target


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One turn: what a seat was shown, what it answered, and what it could have answered.

    Attributes:
      observation: what was new.
      reply: the action.
      legal: all actions the player chose from with equal probability; empty for a reply not worth imitating.
      skilled: one of them that it took with the probability `skill` instead of choosing at random.
      skill: that probability.
    """

    observation: str
    reply: str
    legal: tuple[str, ...]
    skilled: str = ""
    skill: float = 0.0

    @property
    def imitate(self) -> bool:
        """Whether the reply is worth imitating."""
        return bool(self.legal)

    def share(self, action: str) -> float:
        """Returns the probability of one of the legal actions."""
        return (1.0 - self.skill) / len(self.legal) + self.skill * (action == self.skilled)


@dataclasses.dataclass(frozen=True)
class Transcript:
    """One seat's view of one game."""

    game: str
    seat: int
    exchanges: tuple[Exchange, ...]


def random_legal(game_id: str, options: Mapping[str, Any], seed: int, *, illegal_share: float) -> list[Transcript]:
    """Plays one game of random legal moves; returns one transcript per seat.

    A share of the turns is preceded by an illegal try, so that being asked again is seen, too; illegal tries are
    not to be imitated. They are chosen from what was legal at the start or earlier in the game. Options are constructor
    values that differ from the id's own.
    """
    return mixed_skill(game_id, options, seed, skill=(0.0, 0.0), illegal_share=illegal_share)


def mixed_skill(
    game_id: str,
    options: Mapping[str, Any],
    seed: int,
    *,
    skill: tuple[float, float],
    illegal_share: float,
    task: int | None = None,
) -> list[Transcript]:
    """Plays one game of a player who is as skilful as the seed wants; returns one transcript per seat.

    The player's skill q is uniform between the bounds, the same for all turns and seats of the game. On every turn the
    `strong` scripted player acts with probability q, else a legal action is chosen, each with the same probability;
    where more than `MOST_CHOICES` are legal, such a random one is not to be imitated. Illegal tries are those of
    `random_legal`. Simulators follow their scripts and have no transcript. What a player is asked aside leaves no trace
    in its conversation; of one in ten of these questions there is a transcript of its own, the conversation up to there
    and the question, of which the reply to it alone is to be imitated. Bounds (0, 0) of q are random legal play, of
    games without a scripted player, too. Without a number in `task` it is the one that the seed deals.
    """
    game = _begun(game_id, options, seed, task)
    rng = GameRng(derive_seed("transcript moves", game_id, seed))
    mixed = _Mixed(game, skill, GameRng(derive_seed("transcript skill", game_id, seed)))
    simulators, answers = scripted.simulators(game), GameRng(derive_seed("transcript staff", game_id, seed))
    chance = GameRng(derive_seed("transcript asides", game_id, seed))
    exchanges: list[list[Exchange]] = [[] for _ in range(game.seats)]
    asides: list[Transcript] = []
    seen: dict[str, None] = {}
    while game.to_move is not None:
        seat = game.to_move
        if seat >= game.seats:
            game.step(simulators[game.role(seat)].act(game, answers))
            continue
        legal = game.legal_actions()
        if game.allowances(seat)[0] > 0 and not game.open_actions and not game.aside:
            seen.update(dict.fromkeys(legal))
            if rng.uniform() < illegal_share:
                wrong = [action for action in seen if action not in legal]
                if wrong:
                    action = wrong[rng.randrange(len(wrong))]
                    exchanges[seat].append(Exchange(game.observation(seat), action, ()))
                    if game.step(action) is not Verdict.ILLEGAL:
                        raise AssertionError(f"{game_id}: {action} is not among the legal actions but was played")
        exchange = mixed.exchange(game, legal, rng)
        if not game.aside:
            exchanges[seat].append(exchange)
        elif chance.uniform() < _ASIDES:
            said = (dataclasses.replace(turn, legal=()) for turn in exchanges[seat])
            asides.append(Transcript(game_id, seat, (*said, exchange)))
        game.step(exchange.reply)
    return [Transcript(game_id, seat, tuple(turns)) for seat, turns in enumerate(exchanges) if turns] + asides


def _begun(game_id: str, options: Mapping[str, Any], seed: int, task: int | None) -> Game:
    game = registry.make(game_id, **options)
    deal = derive_seed("transcript deal", game_id, seed)
    if task is not None:
        number = game.info.splits[game.split] if isinstance(game, Task) else 0
        if not 0 <= task < number:
            raise ValueError(f"{game_id}: task {task} is none of its {number}")
        deal = task_seed(deal, task, number)
    game.reset(deal)
    return game


class _Mixed:
    """Acts as the strong scripted player with a probability, else at random."""

    def __init__(self, game: Game, skill: tuple[float, float], rng: GameRng) -> None:
        low, high = skill
        self._q = low + (high - low) * rng.uniform()
        self._bot = scripted.strong(game) if high > 0 else None
        self._chance = rng

    def exchange(self, game: Game, legal: list[str], rng: GameRng) -> Exchange:
        """Returns the turn of the seat to move, with a stream for random moves; the game is not changed."""
        observation = game.observation(game.to_move or 0)
        action = legal[rng.randrange(len(legal))]
        skilled, acts, many = action, self._chance.uniform() < self._q, len(legal) > MOST_CHOICES
        if self._bot is not None and (acts or not many):
            skilled = self._bot.act(game, self._chance)
        if acts:
            action = skilled
        if many and self._bot is not None and not acts:
            return Exchange(observation, action, ())
        if many or action not in legal:
            return Exchange(observation, action, (action,))
        if self._bot is None:
            return Exchange(observation, action, tuple(legal))
        return Exchange(observation, action, tuple(legal), skilled, self._q)


def texts(transcripts: Iterator[Transcript]) -> Iterator[str]:
    """Returns every message of the transcripts, one by one: what a tokenizer is built from."""
    for transcript in transcripts:
        for exchange in transcript.exchanges:
            yield exchange.observation
            yield exchange.reply


def choices(exchange: Exchange, tokenizer: ChatTokenizer) -> list[dict[int, float]]:
    """Returns, for each token of an imitated reply (its end-of-turn token included), the distribution of that token.

    The player chose among the legal actions with known probabilities; given the tokens before it, a token has the share
    of the legal actions that continue with it. Training on these shares instead of the one action that was chosen has
    the same expected gradient and much less noise.
    """
    end = tokenizer.end_token_ids[0]
    weighed = ((action, exchange.share(action)) for action in exchange.legal)
    spelled = [((*tokenizer.encode_reply(action), end), weight) for action, weight in weighed if weight > 0]
    found: list[dict[int, float]] = []
    for place, own in enumerate((*tokenizer.encode_reply(exchange.reply), end)):
        total = sum(weight for _, weight in spelled)
        shares: dict[int, float] = {}
        for token_ids, weight in spelled:
            shares[token_ids[place]] = shares.get(token_ids[place], 0.0) + weight / total
        found.append(shares)
        spelled = [(token_ids, weight) for token_ids, weight in spelled if token_ids[place] == own]
    return found


def encode(transcript: Transcript, tokenizer: ChatTokenizer) -> Segment:
    """Returns the tokens of a transcript as a rollout would have produced them; the mask is 1 on imitated replies.

    The end-of-turn token after an imitated reply counts as part of it.
    """
    token_ids: list[int] = []
    mask: list[bool] = []
    end = tokenizer.end_token_ids[0]
    for exchange in transcript.exchanges:
        if token_ids:
            context = tokenizer.next_turn(exchange.observation, closed=True)
        else:
            context = tokenizer.first_turn(exchange.observation)
        reply = [*tokenizer.encode_reply(exchange.reply), end]
        token_ids += [*context, *reply]
        mask += [False] * len(context) + [exchange.imitate] * len(reply)
    return Segment(np.asarray(token_ids, np.int32), np.asarray(mask, bool))

"""A model as a player of another engine's games: for two models that cannot share an engine.

It is the slow way: while it replies, one conversation at a time, the games of the other engine stand still.
"""

import functools
import weakref

from dfc.config import RolloutConfig, SamplingConfig
from dfc.errors import DfcError
from dfc.games.chance import Chance
from dfc.games.game import Game
from dfc.models.chat import ChatTokenizer
from dfc.rollout.constraints import ActionTrie, action_replies, cut_reply
from dfc.rollout.conversation import Voice
from dfc.rollout.engine import Engine
from dfc.rollout.play import MOST_ACTIONS, system_prompt

_GREEDY = SamplingConfig(temperature=0.0)  # of staff


class OutOfContextError(DfcError):
    """A game holds more than the model may read; it ends truncated, as a game of the engine's own policy would."""


class SeatedModel:
    """Plays any number of games at a time with weights of an engine; keeps every conversation in a slot of its own.

    Not to be shared between threads.

    Attributes:
      drawn: ids so far.
      thought: what the model's template writes of a block of thought where a reply begins; see `ChatTokenizer`.
    """

    def __init__(self, config: RolloutConfig, tokenizer: ChatTokenizer, engine: Engine, policy: str = "policy") -> None:
        """Sits down.

        Args:
          config: limits, prompt and constraint, as in an arena.
          tokenizer: of the model.
          engine: with as many slots as there may be seats of games in flight.
          policy: the name of the weights in the engine.
        """
        self._config, self._tokenizer, self._engine, self._policy = config, tokenizer, engine, policy
        self.drawn = 0
        self.thought = tokenizer.thought
        self._games: list[tuple[weakref.ref[Game], dict[int, Voice]]] = []

    def act(self, game: Game, chance: Chance) -> str:
        """Returns the model's reply for the seat to move.

        Raises:
          OutOfContextError: the conversation leaves no room for it.
        """
        seat = game.to_move
        assert seat is not None  # noqa: S101 - only whoever is to move is asked
        voices, config, tokenizer = self._voices(game), self._config, self._tokenizer
        player = seat < game.seats
        if game.role(seat) in game.forgetful and seat in voices:
            voices.pop(seat).close()
        voice = voices.get(seat)
        if voice is None:
            sampling = None if player else _GREEDY
            voice = voices[seat] = Voice(self._engine, self._policy, chance.below(1 << 63), sampling=sampling)
            system = system_prompt(config) if player else None
            voice.hear(tokenizer.first_turn(game.observation(seat), system=system))
        else:
            voice.hear(tokenizer.next_turn(game.observation(seat), closed=voice.closed))
        if voice.full or (player and 0 < config.max_prompt_length < len(voice.ids)):
            raise self._full(game)
        most = config.max_reply_length
        limit = min(most, game.reply_ids or most) if player else config.staff_reply_length
        voice.ask(limit, self._constraint(game, limit) if player and config.legal_only else None)
        while True:
            for reply in self._engine.step():
                voice.said(reply)
                self.drawn += len(reply.ids)
                voice.closed = bool(reply.ids) and reply.ids[-1] in tokenizer.end_ids
                if not reply.stopped and len(reply.ids) < limit and voice.full:
                    raise self._full(game)
                return tokenizer.decode(reply.ids[:-1] if voice.closed else reply.ids)

    def close(self) -> None:
        """Forgets every game."""
        for _, voices in self._games:
            for voice in voices.values():
                voice.close()
        self._games = []

    def _voices(self, game: Game) -> dict[int, Voice]:
        """Returns the conversations of a game, after giving back those of games that are over or gone."""
        held = self._games
        self._games = []
        for reference, voices in held:
            known = reference()
            if known is None or known.over:
                for voice in voices.values():
                    voice.close()
            else:
                self._games.append((reference, voices))
        for reference, voices in self._games:
            if reference() is game:
                return voices
        fresh: dict[int, Voice] = {}
        self._games.append((weakref.ref(game), fresh))
        return fresh

    def _full(self, game: Game) -> OutOfContextError:
        most = f"{self._engine.max_length} ids that are read"
        if self._config.max_prompt_length:
            most += f", or {self._config.max_prompt_length} before a reply"
        return OutOfContextError(f"{game.id} needs more than the {most}")

    def _constraint(self, game: Game, limit: int) -> ActionTrie | None:
        actions = game.legal_actions()
        return self._trie(tuple(actions), limit) if 0 < len(actions) <= MOST_ACTIONS else None

    @functools.cached_property
    def _trie(self) -> "functools._lru_cache_wrapper[ActionTrie]":
        tokenizer, stop = self._tokenizer, self._config.stop

        @functools.lru_cache(maxsize=4096)
        def build(actions: tuple[str, ...], limit: int) -> ActionTrie:
            cut = cut_reply(actions, tokenizer.encode_reply, tokenizer.decode, limit=limit, stop=stop)
            if cut is not None:
                raise ValueError(f"{cut}; with rollout.legal_only every action must fit")
            return ActionTrie.build(action_replies(actions, tokenizer.encode_reply, tokenizer.end_ids[:1]))

        return build

"""A model as a player of games that its engine does not run: of another engine's, or of a person's in the terminal.

It is slow: while it replies, one conversation at a time, the games of the other engine stand still.
"""

import functools
import weakref

from dfc.config import ModelConfig, RolloutConfig, SamplingConfig
from dfc.errors import DfcError
from dfc.games.game import Game
from dfc.games.rng import GameRng
from dfc.inference.constraints import ActionTrie, action_replies, cut_reply
from dfc.inference.protocol import RolloutEngine
from dfc.models.chat import ChatTokenizer
from dfc.players import player_specs
from dfc.rollout.host import ModelHost
from dfc.rollout.runner import MOST_ACTIONS, system_prompt
from dfc.rollout.transcript import SeatTranscript

MAX_REPLY_TOKENS = 1024  # of one reply in the terminal
_MAX_LENGTH = 8192  # tokens of a game there
_GREEDY = SamplingConfig(temperature=0.0)  # of simulators


class OutOfContextError(DfcError):
    """A game holds more than the model may read; it ends truncated, as a game of the engine's own policy would."""


class ModelPlayer:
    """Plays any number of games at a time with weights of an engine; keeps every conversation in a slot of its own.

    Not to be shared between threads.

    Attributes:
      generated_tokens: so far.
      thought: what the model's template writes of a block of thought where a reply begins; see `ChatTokenizer`.
    """

    def __init__(
        self, config: RolloutConfig, tokenizer: ChatTokenizer, engine: RolloutEngine, policy: str = "policy"
    ) -> None:
        """Makes the player.

        Limits, prompt and constraint are as in a rollout runner; the engine has as many slots as there may be seats of
        games in flight.
        """
        self._config, self._tokenizer, self._engine, self._policy = config, tokenizer, engine, policy
        self.generated_tokens = 0
        self.thought = tokenizer.thought
        self._games: list[tuple[weakref.ref[Game], GameRng, dict[int, SeatTranscript]]] = []

    def act(self, game: Game, rng: GameRng) -> str:
        """Returns the model's reply for the seat to move.

        Raises:
          OutOfContextError: the conversation leaves no room for it.
        """
        seat = game.to_move
        assert seat is not None  # noqa: S101 - only the seat to move is asked
        transcripts, config, tokenizer = self._transcripts(game), self._config, self._tokenizer
        player = seat < game.seats
        if game.role(seat) in game.stateless_roles and seat in transcripts:
            transcripts.pop(seat).close()
        transcript = transcripts.get(seat)
        if transcript is None:
            sampling = None if player else _GREEDY
            transcript = transcripts[seat] = SeatTranscript(
                self._engine, self._policy, rng.randrange(1 << 63), sampling=sampling
            )
        before = len(transcript.token_ids), transcript.closed
        if transcript.token_ids:
            transcript.add_context(tokenizer.next_turn(game.observation(seat), closed=transcript.closed))
        else:
            system = system_prompt(config) if player else None
            transcript.add_context(tokenizer.first_turn(game.observation(seat), system=system))
        if transcript.full or (player and 0 < config.max_prompt_length < len(transcript.token_ids)):
            raise self._full(game)
        most = config.max_reply_length
        limit = min(most, game.max_reply_tokens or most) if player else config.simulator_reply_length
        transcript.ask(limit, self._constraint(game, limit) if player and config.legal_only else None)
        while True:
            for reply in self._engine.step():
                transcript.add_reply(reply)
                self.generated_tokens += len(reply.token_ids)
                transcript.closed = bool(reply.token_ids) and reply.token_ids[-1] in tokenizer.end_token_ids
                if not reply.stopped and len(reply.token_ids) < limit and transcript.full:
                    raise self._full(game)
                said = reply.token_ids[:-1] if transcript.closed else reply.token_ids
                if game.aside:
                    transcript.roll_back(before[0], closed=before[1])
                return tokenizer.decode(said)

    def close(self) -> None:
        """Forgets every game."""
        for *_, transcripts in self._games:
            for transcript in transcripts.values():
                transcript.close()
        self._games = []

    def _transcripts(self, game: Game) -> dict[int, SeatTranscript]:
        """Returns the conversations of a game, after giving back those of games that are over or abandoned."""
        held = self._games
        self._games = []
        for reference, deal, transcripts in held:
            known = reference()
            if known is None or known.over or known.rng is not deal:  # every reset makes a new one
                for transcript in transcripts.values():
                    transcript.close()
            else:
                self._games.append((reference, deal, transcripts))
        for reference, _, transcripts in self._games:
            if reference() is game:
                return transcripts
        fresh: dict[int, SeatTranscript] = {}
        self._games.append((weakref.ref(game), game.rng, fresh))
        return fresh

    def _full(self, game: Game) -> OutOfContextError:
        most = f"{self._engine.max_length} tokens that are read"
        if self._config.max_prompt_length:
            most += f", or {self._config.max_prompt_length} before a reply"
        return OutOfContextError(f"{game.id} needs more than the {most}")

    def _constraint(self, game: Game, limit: int) -> ActionTrie | None:
        actions = game.legal_actions()
        return self._trie(tuple(actions), limit) if 0 < len(actions) <= MOST_ACTIONS else None

    @property
    def legal_only(self) -> bool:
        """Whether its replies are restricted to legal actions."""
        return self._config.legal_only

    @functools.cached_property
    def _trie(self) -> "functools._lru_cache_wrapper[ActionTrie]":
        tokenizer, stop = self._tokenizer, self._config.stop

        @functools.lru_cache(maxsize=4096)
        def build(actions: tuple[str, ...], limit: int) -> ActionTrie:
            cut = cut_reply(actions, tokenizer.encode_reply, tokenizer.decode, limit=limit, stop=stop)
            if cut is not None:
                raise ValueError(f"{cut}; with rollout.legal_only every action must fit")
            return ActionTrie.build(action_replies(actions, tokenizer.encode_reply, tokenizer.end_token_ids[:1]))

        return build


def load_player(
    path: str,
    *,
    stop: tuple[str, ...] = (),
    max_reply_length: int = MAX_REPLY_TOKENS,
    enable_thinking: bool | None = None,
) -> ModelPlayer:
    """Returns a model that plays in float32 in an engine of its own, one game at a time: for playing in a terminal.

    A run's policy is restricted to legal actions if the run was (`rollout.legal_only`). `path` is a folder with weights
    or a run, or the name of a bundled model. Texts of `stop`, each of one token, end a reply. `enable_thinking` None:
    what the path's run was trained with, or the template's default.

    Raises:
      ConfigError: the path means no model. WeightsError, CheckpointError: its weights cannot be read.
    """
    weights = player_specs.weights_in(path)
    if enable_thinking is None:
        enable_thinking = weights.enable_thinking
    run = player_specs.run_config(path) or {}
    rollout = RolloutConfig(
        max_length=_MAX_LENGTH,
        max_reply_length=max_reply_length,
        simulator_reply_length=MAX_REPLY_TOKENS,
        stop=stop,
        legal_only=bool(run.get("rollout", {}).get("legal_only", False)),
    )
    model = ModelConfig(weights.folder, enable_thinking=enable_thinking)
    host = ModelHost(model, rollout, slots=3)  # as many seats as a game with simulators has
    engine = host.engine(host.policy_params(weights), sampling=SamplingConfig())
    return ModelPlayer(rollout, host.tokenizer, engine)

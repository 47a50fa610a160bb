"""A checkpoint as a player of one game at a time: for playing in a terminal, not for training."""

from dfc.config import SamplingConfig
from dfc.errors import DfcError
from dfc.games.game import Game
from dfc.games.rng import GameRng
from dfc.inference.engine import Engine
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.rollout.transcript import SeatTranscript

_MAX_LENGTH = 8192  # tokens of a game
MAX_REPLY_TOKENS = 1024  # of one reply


class LocalPlayer:
    """Plays with a model; one game at a time, the whole conversation in the engine's cache.

    Attributes:
      departure: one sentence on where the chat template would change earlier turns; None if it never does.
    """

    def __init__(
        self,
        path: str,
        *,
        max_length: int = _MAX_LENGTH,
        max_reply_length: int = MAX_REPLY_TOKENS,
        stop: tuple[str, ...] = (),
        sampling: SamplingConfig | None = None,
    ) -> None:
        """Loads the checkpoint in float32.

        Args:
          path: a folder in the Hugging Face layout, or the name of a bundled model.
          max_length: tokens of a conversation.
          max_reply_length: tokens of a reply.
          stop: texts that end a reply, each of one token.
          sampling: how replies are sampled; temperature 1 if None.
        """
        source = huggingface.resolve(path)
        model, params = huggingface.load(source, dtype="float32")
        self._tokenizer = ChatTokenizer.load(source)
        self.departure = self._tokenizer.departure
        self._max_reply_length = max_reply_length
        self._engine = Engine(
            model,
            params,
            slots=3,  # as many seats as a game with simulators has
            max_length=max_length,
            stop_token_ids=self._tokenizer.stop_token_ids(stop),
            sampling=sampling or SamplingConfig(),
        )
        self._transcripts: dict[int, SeatTranscript] = {}
        self._deal: GameRng | None = None  # of the game in progress; every reset makes a new one

    def act(self, game: Game, rng: GameRng) -> str:
        """Returns the model's reply.

        Raises:
          DfcError: the conversation is longer than the model may read.
        """
        seat = game.to_move
        assert seat is not None  # noqa: S101 - only whoever is to move is asked
        if game.rng is not self._deal:
            self.close()
            self._deal = game.rng
        if game.role(seat) in game.stateless_roles and seat in self._transcripts:
            self._transcripts.pop(seat).close()
        transcript = self._transcripts.get(seat)
        tokenizer = self._tokenizer
        if transcript is None:
            transcript = self._transcripts[seat] = SeatTranscript(self._engine, "policy", rng.randrange(1 << 63))
            transcript.add_context(tokenizer.first_turn(game.observation(seat)))
        else:
            transcript.add_context(tokenizer.next_turn(game.observation(seat), closed=transcript.closed))
        if transcript.full:
            raise DfcError(f"the game has more than the {self._engine.max_length} tokens this player reads")
        transcript.ask(self._max_reply_length, None)
        while True:
            for reply in self._engine.step():
                transcript.add_reply(reply)
                transcript.closed = bool(reply.token_ids) and reply.token_ids[-1] in tokenizer.end_token_ids
                return tokenizer.decode(reply.token_ids[:-1] if transcript.closed else reply.token_ids)

    def close(self) -> None:
        """Forgets the game in progress and frees its slots."""
        for transcript in self._transcripts.values():
            transcript.close()
        self._transcripts.clear()

"""A checkpoint as a player of one game at a time: for playing in a terminal, not for training."""

from dfc.config import SamplingConfig
from dfc.errors import DfcError
from dfc.games.chance import Chance
from dfc.games.game import Game
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.rollout.conversation import Voice
from dfc.rollout.engine import Engine

_MAX_LENGTH = 8192  # ids of a game
REPLY_IDS = 1024  # of one reply


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
        max_reply_length: int = REPLY_IDS,
        stop: tuple[str, ...] = (),
        sampling: SamplingConfig | None = None,
    ) -> None:
        """Loads the checkpoint in float32.

        Args:
          path: a folder in the Hugging Face layout, or the name of a model in the box.
          max_length: ids of a conversation.
          max_reply_length: ids of a reply.
          stop: texts that end a reply, each of one id.
          sampling: how replies are drawn; temperature 1 if None.
        """
        source = huggingface.resolve(path)
        model, params = huggingface.load(source, dtype="float32")
        self._tokenizer = ChatTokenizer.load(source)
        self.departure = self._tokenizer.departure
        self._max_reply_length = max_reply_length
        self._engine = Engine(
            model,
            params,
            slots=3,  # as many seats as a game with staff has
            max_length=max_length,
            stop_ids=self._tokenizer.stop_ids(stop),
            sampling=sampling or SamplingConfig(),
        )
        self._voices: dict[int, Voice] = {}
        self._deal: Chance | None = None  # of the game in progress; every reset makes a new one

    def act(self, game: Game, chance: Chance) -> str:
        """Returns the model's reply.

        Raises:
          DfcError: the conversation is longer than the model may read.
        """
        seat = game.to_move
        assert seat is not None  # noqa: S101 - only whoever is to move is asked
        if game.chance is not self._deal:
            self.close()
            self._deal = game.chance
        if game.role(seat) in game.forgetful and seat in self._voices:
            self._voices.pop(seat).close()
        voice = self._voices.get(seat)
        tokenizer = self._tokenizer
        if voice is None:
            voice = self._voices[seat] = Voice(self._engine, "policy", chance.below(1 << 63))
            voice.hear(tokenizer.first_turn(game.observation(seat)))
        else:
            voice.hear(tokenizer.next_turn(game.observation(seat), closed=voice.closed))
        if voice.full:
            raise DfcError(f"the game has more than the {self._engine.max_length} ids this player reads")
        voice.ask(self._max_reply_length, None)
        while True:
            for reply in self._engine.step():
                voice.said(reply)
                voice.closed = bool(reply.ids) and reply.ids[-1] in tokenizer.end_ids
                return tokenizer.decode(reply.ids[:-1] if voice.closed else reply.ids)

    def close(self) -> None:
        """Forgets the game in progress and frees its slots."""
        for voice in self._voices.values():
            voice.close()
        self._voices.clear()

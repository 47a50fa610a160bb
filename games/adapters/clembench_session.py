"""A game of clembench in progress: the next question, and how it ended; imported where clemcore is.

Source: clemcore 3.7.2, `clemgame.runners.batchwise` (the loop), `clemgame.callbacks.files` (the record), and
`clemgame.benchmark` (the score).

Some games ask a player in the middle of a step, by calling it. Such a question is handed out like any other: the step
is given up, and when the reply is there the game is played again from its beginning with all replies so far.
"""

import collections
import copy
import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from clemcore.backends import Model, ModelSpec
from clemcore.clemgame.envs.pettingzoo import GameMasterEnv
from clemcore.clemgame.recorder import GameInteractionsRecorder

from dfc.games.adapters.clembench_folder import LoadedGame
from dfc.games.rng import derive_seed

LONGEST = 200_000
"""Characters that a player is told at once."""
_MOST_STEPS = 10_000  # of a game without a reply of a player


class Question(NamedTuple):
    """What a player is asked.

    Attributes:
      seat: whose turn it is.
      opening: what the game has put into the player's dialogue without asking; often empty.
      text: the question.
      aside: whether it leaves no trace in the player's dialogue.
    """

    seat: int
    opening: str
    text: str
    aside: bool

    @property
    def whole(self) -> str:
        """Opening and question."""
        return "\n\n".join(text for text in (self.opening, self.text) if text)


class End(NamedTuple):
    """How a game ended, by its own score. Attributes: outcome; quality, None if aborted; why, as text; by, a seat."""

    outcome: str
    quality: float | None
    why: str
    by: int | None


class _Asked(BaseException):
    """A player was called and no reply is there; no `Exception`, which a game may catch."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


class _Seat(Model):  # type: ignore[misc]  # clemcore has no types
    """The model of a player that sits on a seat here."""

    def __init__(self, session: "Session", number: int) -> None:
        super().__init__(ModelSpec(model_name=f"seat {number}"))
        self.set_gen_args(temperature=0.0, max_tokens=300)
        self._session = session

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Seat":
        return self

    def generate_response(self, messages: Sequence[Mapping[str, Any]]) -> tuple[Any, Any, str]:
        return messages, {}, self._session.called(self, messages)


class _Record:
    """What clemcore calls back: registers the recorder between the set-up of a game and its first step."""

    def __init__(self, game: LoadedGame) -> None:
        self._game = game
        self.recorder: Any = None

    def on_game_start(self, master: Any, instance: Mapping[str, Any]) -> None:  # noqa: ANN401 (no types)
        self.recorder = GameInteractionsRecorder(
            self._game.name, master.experiment["name"], instance["game_id"], "dfc", {}
        )
        for player in master.get_players():
            self.recorder.log_player(player.name, player.game_role, player.model.name)
        master.register(self.recorder)

    def on_game_step(self, *_: object) -> None:
        """Nothing."""

    def on_game_end(self, *_: object, **__: object) -> None:
        """Nothing."""


class Session:
    """One game in progress: `question` is what is asked next, None at the end; `end` is how it ended, None before."""

    def __init__(self, game: LoadedGame, row: Mapping[str, Any], seed: int, replies: Sequence[str] = ()) -> None:
        """Begins the game of a row (experiment and instance), replies included; call it in `clembench_folder.alone`."""
        self._game, self._row, self._seed = game, row, seed
        self._replies = list(replies)
        self.question: Question | None = None
        self.end: End | None = None
        self._again()

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the players on the seats."""
        return tuple(player.game_role for player in self._seats())

    def reply(self, text: str) -> None:
        """Takes the reply to the question; sets the next one, or the end."""
        self._replies.append(text)
        if self._inside:
            self._again()
        else:
            self._left.append(text)
            self._play(begin=False)

    def _again(self) -> None:
        self._left = collections.deque(self._replies)
        self._told: dict[str, int] = {}
        self._record = _Record(self._game)
        self._env = GameMasterEnv(self._game.benchmark, callbacks=self._record)
        self._play(begin=True)

    def _play(self, *, begin: bool) -> None:
        self.question, self._inside = None, False
        try:
            if begin:
                self._draw("start")
                row = copy.deepcopy(self._row)  # games change what they are given
                models = [_Seat(self, number) for number in range(self._game.benchmark.game_spec.players)]
                self._env.reset(options={**row, "player_models": models})
            for _ in range(_MOST_STEPS):
                if all(self._env.terminations.values()):
                    self._finish()
                    return
                if not self._step():
                    return
        except _Asked as asked:
            self.question, self._inside = asked.question, True
            return
        raise ValueError(f"{_MOST_STEPS} steps without a question to a player")

    def _step(self) -> bool:
        """Lets the seat to move reply; returns False if that is a player whose reply is not there."""
        master = self._env.game_master
        player = master.current_player
        context = master.get_context_for(player)
        if context is None:
            raise ValueError(f"{player.name} is to move, and the game tells it nothing")
        if not isinstance(player.model, _Seat):
            self._env.step(player(context))
            return True
        if not self._left:
            self.question = self._asked(player, [*player.get_perspective(), context], aside=False)
            return False
        text = self._next()
        player.perceive_context(context)
        self._told[player.name] = len(player.perceive_response(text))
        self._env.step(text)
        return True

    def called(self, model: _Seat, messages: Sequence[Mapping[str, Any]]) -> str:
        """Returns the reply to a question that a game put by calling the player.

        Raises:
          _Asked: it is not there.
        """
        before = list(messages[:-1])
        player = next(
            (p for p in self._seats() if p.model is model and p.get_perspective()[: len(before)] == before), None
        )
        if player is None:
            raise ValueError("a model was asked that is none of the game's players")
        kept = len(player.get_perspective()) == len(messages)  # memorised before the model is asked
        if not self._left:
            raise _Asked(self._asked(player, messages, aside=not kept))
        if kept:
            self._told[player.name] = len(messages) + 1
        return self._next()

    def _asked(self, player: Any, messages: Sequence[Mapping[str, Any]], *, aside: bool) -> Question:  # noqa: ANN401
        *opening, last = messages[self._told.get(player.name, 0) :]
        texts = [("You: " if message["role"] == "assistant" else "") + _text(message) for message in opening]
        found = Question(self._seats().index(player), "\n\n".join(texts), _text(last), aside)
        if len(found.whole) > LONGEST:
            raise ValueError(f"{player.name} is told {len(found.whole)} characters at once; more than {LONGEST}")
        if not found.text.strip():
            raise ValueError(f"{player.name} is to move, and the game tells it nothing")
        return found

    def _next(self) -> str:
        self._draw(len(self._replies) - len(self._left))
        return self._left.popleft()

    def _draw(self, place: object) -> None:
        """Sets the global generators, from which games draw: a seed for each reply, as nothing else can be stored."""
        seed = derive_seed("clembench game", self._game.name, self._seed, place)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (as above)

    def _seats(self) -> list[Any]:
        return [player for player in self._env.game_master.get_players() if isinstance(player.model, _Seat)]

    def _finish(self) -> None:
        interactions = json.loads(json.dumps(self._record.recorder.interactions))  # as a scorer reads it from a file
        row = copy.deepcopy(self._row)
        scorer = self._game.benchmark.create_game_scorer(row["experiment"], row["game_instance"])
        scorer.compute_scores(interactions)
        self.end = end_of(scorer.scores["episode scores"], interactions, [player.name for player in self._seats()])


def end_of(scores: Mapping[str, Any], interactions: Mapping[str, Any], names: Sequence[str]) -> End:
    """Returns how a game ended, by the score that its own scorer gave it.

    `interactions` are the record, which says why; `names` are by seat.

    Raises:
      ValueError: a game that was played has no Main Score from 0 to 100.
    """
    events = [event for turn in interactions["turns"] for event in turn]
    if scores.get("Aborted"):
        notes = [event["action"] for event in events if event["from"] == event["to"]]
        why = f"{notes[-1]['type']}: {notes[-1]['content']}" if notes else "the game was aborted"
        speakers = [event["from"] for event in events if event["from"] in names]
        return End("aborted", None, why[:500], names.index(speakers[-1]) if speakers else None)
    main = scores.get("Main Score")
    if isinstance(main, bool) or not isinstance(main, int | float) or not math.isfinite(main) or not 0 <= main <= 100:
        raise ValueError(f"its scorer gave it the Main Score {main!r}; expected a number from 0 to 100")
    return End("success" if scores.get("Success") else "failure", float(main), "", None)


def _text(message: Mapping[str, Any]) -> str:
    if message.get("image"):
        raise ValueError("a message has an image, and only texts are played here")
    return str(message["content"])

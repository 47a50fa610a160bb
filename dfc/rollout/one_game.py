"""One game: who answers for each seat, what it is shown, what becomes of its replies; every id is kept.

A seat belongs to a policy of the engine, to a program, which answers at once, or to a remote player, which is asked in
a thread of its own. So do the seats of a game's staff, which answers for the world that the game is about.

What goes wrong in here stays here: whatever a game or player raises ends its episode as failed.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, ParamSpec, Self, TypeVar

from dfc.config import RolloutConfig, SamplingConfig
from dfc.episodes import Episode, Speaker
from dfc.episodes import Reply as SaidReply
from dfc.games import registry, scripted
from dfc.games.chance import Chance, derive_seed
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.scripted import Player
from dfc.models.chat import ChatTokenizer
from dfc.players.remote import Call, Message, Remote
from dfc.rollout.constraints import ActionTrie, action_replies, cut_reply
from dfc.rollout.conversation import NO_VERSION, Voice
from dfc.rollout.engine import Engine
from dfc.rollout.slots import Reply

THINK_PROMPT = (
    "You play a game and follow its rules. Think first, then act. Think in the first person, step by step, inside "
    "<think> and </think>: explore, try, notice mistakes, correct them, check the result. Write that block once. "
    "Directly after </think> write one legal action in square brackets and nothing else, like this: "
    "<think>your thoughts</think>[action]"
)
MOST_ACTIONS = 512  # a position with more legal actions is played without a constraint
_CACHED_TRIES = 4096
_SHOWN = 200  # characters of a reply in an error
_GREEDY = SamplingConfig(temperature=0.0)  # of policies that answer for a game's world

Answerer = str | Player | Remote
"""Who answers for a seat: a policy of the engine by name, a program, or a remote player."""

Waits = Literal["engine", "remote"]
"""Whom a game in progress waits for: the engine is to be asked, or a remote player was asked."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def system_prompt(config: RolloutConfig) -> str | None:
    """Returns what players are told before the first observation, the language of thought included; None: nothing."""
    if config.prompt != "think":
        return None
    return f"{THINK_PROMPT}. Think in {config.think_language}." if config.think_language else THINK_PROMPT


@dataclasses.dataclass(frozen=True)
class Job:
    """One game to play.

    Attributes:
      game: registered id. options: constructor values that differ from the id's own. game_seed: its deal.
      seat: the policy's.
      group: copied to the episode.
      seed: of everything drawn in this episode: ids of both seats, disturbances, a scripted opponent's choices.
      epsilon: probability that an action of the policy is replaced by a random legal one.
    """

    game: str
    options: Mapping[str, Any]
    game_seed: int
    seat: int
    group: int
    seed: int
    epsilon: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """What stays the same for all games of an arena; see `dfc.rollout.play.Arena`."""

    config: RolloutConfig
    tokenizer: ChatTokenizer
    engine: Engine
    policy: str
    opponent: Answerer | None
    opponent_name: str
    staff: Mapping[str, Answerer]
    park_after: float
    most_parked: int
    sampling: SamplingConfig | None = None

    def players(self, game: Game, own: int) -> list[Answerer]:
        """Returns who answers for each seat of a game, the policy for its `own`."""
        if game.seats > 1 and self.opponent is None:
            raise ValueError(f"{game.id} has two seats and no opponent was given")
        seated = [self.policy if seat == own or self.opponent is None else self.opponent for seat in range(game.seats)]
        missing = [role for role in game.staff if role not in self.staff]
        scripts = scripted.staff(game) if missing else {}
        return [*seated, *(self.staff[role] if role in self.staff else scripts[role] for role in game.staff)]

    @functools.cached_property
    def remotes(self) -> list[Remote]:
        """Every remote player there is, each once."""
        found = [player for player in (self.opponent, *self.staff.values()) if isinstance(player, Remote)]
        return list(dict.fromkeys(found))

    @functools.cached_property
    def voices(self) -> int:
        """How many conversations with the engine one game may keep."""
        return 1 + sum(isinstance(player, str) for player in (self.opponent, *self.staff.values()))

    @functools.cached_property
    def system(self) -> str | None:
        """What players are told before the first observation; None: nothing."""
        return system_prompt(self.config)

    @functools.cached_property
    def trie(self) -> Callable[[tuple[str, ...], int], ActionTrie]:
        """Returns the constraint to a set of actions that fit into a reply; positions come back, so each is built once.

        It raises ValueError for an action that would be cut: half an action is none, and would forfeit the game.
        """

        @functools.lru_cache(maxsize=_CACHED_TRIES)
        def build(actions: tuple[str, ...], limit: int) -> ActionTrie:
            tokenizer = self.tokenizer
            cut = cut_reply(actions, tokenizer.encode_reply, tokenizer.decode, limit=limit, stop=self.config.stop)
            if cut is not None:
                raise ValueError(f"{cut}; with rollout.legal_only every action must fit")
            return ActionTrie.build(action_replies(actions, tokenizer.encode_reply, tokenizer.end_ids[:1]))

        return build


class _Failed(Exception):  # noqa: N818 - it ends a game, not the play
    """Something outside the engine raised; the text names the boundary and the error."""


@dataclasses.dataclass(eq=False)
class Table:
    """One game in progress: who answers for each seat, and what was said to them.

    The conversation with a seat is a voice where the engine answers, messages where a remote player does. Every event
    (`begin`, `heard`, `called_back`) moves the game on until it waits for somebody or is over.

    Attributes:
      setting: of all games of an arena.
      index: of the job.
      job: what is played.
      game: the rules.
      chance: of disturbances and scripted players.
      players: by seat, staff included.
      voices: by seat, conversations with the engine.
      messages: by seat, conversations with remote players.
      replies: so far.
      malformed_by: the seat that forfeited by a reply that could not be read.
      overrun_by: the seat whose context had no room left after it had said something.
      constraint: of the reply the engine is asked for.
      call: of the remote player that is waited for.
      called_at: since when, in seconds of the monotonic clock.
      aside: whether it gave its slots away while a remote player thinks.
      failure: what was raised.
      measures: of the game, after its end.
    """

    setting: Setting
    index: int
    job: Job
    game: Game
    chance: Chance
    players: list[Answerer]
    voices: dict[int, Voice] = dataclasses.field(default_factory=dict)
    messages: dict[int, list[Message]] = dataclasses.field(default_factory=dict)
    replies: list[SaidReply] = dataclasses.field(default_factory=list)
    _played: int = 0  # replies of players
    malformed_by: int | None = None
    overrun_by: int | None = None
    constraint: ActionTrie | None = None
    call: Call | None = None
    called_at: float = 0.0
    aside: bool = False
    failure: str | None = None
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def laid(cls, setting: Setting, index: int, job: Job) -> Self:
        """Makes the game of a job and seats its players; takes no slot yet.

        Raises:
          ValueError: no such game or option, or two seats and no opponent.
        """
        game = registry.make(job.game, **job.options)
        chance = Chance(derive_seed("table", job.seed))
        table = cls(setting, index, job, game, chance, setting.players(game, job.seat))
        for seat in range(len(table.players)):
            table._converse(seat)
        return table

    # ---- events -----------------------------------------------------------------------------------------------------

    def begin(self) -> Waits | None:
        """Starts the game; returns whom it waits for, None if it is over."""
        return self._move(lambda: self._guard("game.reset", None, self.game.reset, self.job.game_seed))

    def heard(self, reply: Reply) -> Waits | None:
        """Takes the engine's reply; returns whom the game waits for, None if it is over."""
        return self._move(functools.partial(self._heard, reply))

    def called_back(self) -> Waits | None:
        """Takes the reply of a call that is done; returns whom the game waits for, None if it is over."""
        return self._move(self._called_back)

    # ---- slots ------------------------------------------------------------------------------------------------------

    def ask(self) -> int:
        """Asks the engine for the reply that the game waits for; returns the slot."""
        return self.voices[self._mover].ask(self._limit, self.constraint)

    def park(self) -> None:
        """Gives its slots away; the caches wait in the host's memory."""
        for voice in self.voices.values():
            voice.park()

    def close(self) -> None:
        """Gives its slots away for ever; the ids stay."""
        for voice in self.voices.values():
            voice.close()

    # ---- limits -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _most_actions(self) -> int:
        """Legal actions of players after which the game is stopped."""
        return self.setting.config.max_actions or self.game.longest

    @property
    def _most_replies(self) -> int:
        """Replies of players after which it is stopped; no game of `_most_actions` that keeps its allowances has more.

        Before each legal action there are at most `illegal_allowance` illegal replies in a row, and before each of
        those and of the legal one at most `malformed_allowance` that cannot be read.
        """
        return self._most_actions * (1 + self.game.illegal_allowance) * (1 + self.game.malformed_allowance)

    def _stopped(self) -> bool:
        """Stops a game that is at a limit of actions; returns whether it was."""
        game = self.game
        if game.actions_played < self._most_actions and self._played < self._most_replies:
            return False
        game.stop()
        return True

    @property
    def _limit(self) -> int:
        """Tokens of the reply of the seat to move."""
        config, own = self.setting.config, self.game.reply_ids
        if self._mover >= self.game.seats:
            return config.staff_reply_length
        return min(config.max_reply_length, own or config.max_reply_length)

    def _overrun(self, seat: int) -> bool:
        """Whether a seat's context is too long for another reply."""
        voice, most = self.voices[seat], self.setting.config.max_prompt_length
        return voice.full or (seat < self.game.seats and 0 < most < len(voice.ids))

    # ---- its course -------------------------------------------------------------------------------------------------

    @property
    def _mover(self) -> int:
        seat = self.game.to_move
        assert seat is not None  # noqa: S101 - only a game in progress waits for somebody
        return seat

    def _guard(
        self, what: str, seat: int | None, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Calls what a game or player brings; what it raises becomes this episode's failure."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            who = "" if seat is None else f" for seat {seat}, reply {len(self.replies) + 1} of the game,"
            raise _Failed(f"{what}{who} raised {type(error).__name__}: {error}") from error

    def _move(self, event: Callable[[], None]) -> Waits | None:
        try:
            event()
            return self._advance()
        except _Failed as failure:
            self.failure = str(failure)
            return None

    def _advance(self) -> Waits | None:
        """Moves the game on; returns whom it waits for, None if it is over."""
        game, job, config = self.game, self.job, self.setting.config
        while (seat := game.to_move) is not None:
            if seat < game.seats and self._guard("the end at rollout.max_actions", None, self._stopped):
                if Outcome.TRUNCATED in (game.outcomes or ()):
                    return None
                break
            voice = self.voices.get(seat)
            if voice is None:
                if self._answer_outside(seat):
                    return "remote"
                continue
            voice.hear(self._guard("game.observation", seat, self._render, voice, seat))
            if self._overrun(seat):
                self._out_of_context(seat)
                return None
            if seat == job.seat and job.epsilon > 0 and self.chance.uniform() < job.epsilon:
                action = self._disturbance(seat)
                voice.hear(self._guard("game.legal_actions", seat, self.setting.tokenizer.encode_reply, action))
                voice.closed = False
                if len(voice.ids) > self.setting.engine.max_length:
                    self._out_of_context(seat)
                    return None
                self._step(seat, action, "replaced")
                continue
            self.constraint = self._constrained(seat) if config.legal_only and seat < game.seats else None
            return "engine"
        if game.discarded is not None:
            raise _Failed(game.discarded)
        self.measures = self._guard("game.measures", None, game.measures)
        return None

    def _converse(self, seat: int) -> None:
        """Begins the conversation with a seat."""
        setting, player = self.setting, self.players[seat]
        staff = seat >= self.game.seats
        several = staff or self.game.role(seat) in self.game.forgetful
        if isinstance(player, str):
            # The number of replies tells apart the conversations of whoever begins anew with every reply.
            seed = derive_seed("ids", self.job.seed, seat, *([len(self.replies)] if several else []))
            self.voices[seat] = Voice(setting.engine, player, seed, sampling=_GREEDY if staff else setting.sampling)
        elif isinstance(player, Remote):
            system = None if staff else setting.system
            self.messages[seat] = [] if system is None else [Message(role="system", content=system)]

    def _render(self, voice: Voice, seat: int) -> list[int]:
        tokenizer, game = self.setting.tokenizer, self.game
        observation = game.observation(seat)
        if not isinstance(observation, str):
            raise TypeError(f"an observation must be text, got {type(observation).__name__}")
        if not voice.ids:
            return tokenizer.first_turn(observation, system=self.setting.system if seat < game.seats else None)
        return tokenizer.next_turn(observation, closed=voice.closed)

    def _disturbance(self, seat: int) -> str:
        actions = self._guard("game.legal_actions", seat, self.game.legal_actions)
        if not actions:
            raise _Failed(f"game.legal_actions for seat {seat} is empty, but an epsilon asks for one of them")
        return actions[self.chance.below(len(actions))]

    def _constrained(self, seat: int) -> ActionTrie | None:
        actions = self._guard("game.legal_actions", seat, self.game.legal_actions)
        if not actions or len(actions) > MOST_ACTIONS:  # a game may have none to list
            return None
        return self._guard("the constraint to game.legal_actions", seat, self.setting.trie, tuple(actions), self._limit)

    # ---- players outside the engine ---------------------------------------------------------------------------------

    def _answer_outside(self, seat: int) -> bool:
        """Lets a program play, or asks a remote player; returns whether it has to be waited for."""
        if not 0 <= seat < len(self.players):
            raise _Failed(f"game.to_move is {seat}, expected a seat from 0 to {len(self.players) - 1}")
        player = self.players[seat]
        if isinstance(player, Remote):
            self._call(seat, player)
            return True
        assert not isinstance(player, str)  # noqa: S101 - policies have a voice
        self._step(seat, self._scripted(seat, player))
        return False

    def _scripted(self, seat: int, player: Player) -> str:
        who = self._who(seat)
        action = self._guard(who, seat, player.act, self.game, self.chance)
        if not isinstance(action, str):
            raise _Failed(f"{who} for seat {seat} must return an action as str, got {type(action).__name__}")
        return action

    def _who(self, seat: int) -> str:
        game = self.game
        return f"opponent {self.setting.opponent_name}" if seat < game.seats else f"the {game.role(seat)}"

    def _call(self, seat: int, remote: Remote) -> None:
        content = self._guard("game.observation", seat, self.game.observation, seat)
        self.messages[seat].append(Message(role="user", content=content))
        self.call = self._guard(self._who(seat), seat, remote.ask, self.messages[seat])
        self.called_at = time.monotonic()

    # ---- what comes back --------------------------------------------------------------------------------------------

    def _called_back(self) -> None:
        call, seat = self.call, self._mover
        assert call is not None  # noqa: S101 - only tables with a call are listened to
        self.call = None
        text = self._guard(self._who(seat), seat, call.result)
        self.messages[seat].append(Message(role="assistant", content=text))
        self._step(seat, text)

    def _heard(self, reply: Reply) -> None:
        seat, tokenizer = self._mover, self.setting.tokenizer
        voice = self.voices[seat]
        voice.said(reply)
        voice.closed = bool(reply.ids) and reply.ids[-1] in tokenizer.end_ids
        text = tokenizer.decode(reply.ids[:-1] if voice.closed else reply.ids)
        # A reply that had all the room a reply may have is taken as it is, like any other that is cut there.
        if not reply.stopped and voice.full and len(reply.ids) < self._limit:
            self._out_of_context(seat)
            return
        self._step(seat, text)

    def _out_of_context(self, seat: int) -> None:
        """Ends a game that no rule decided: full of a player's words it is truncated, of staff's it has failed.

        A player that has said nothing was not the one who filled its context.
        """
        if seat >= self.game.seats:
            limit = self.setting.engine.max_length
            raise _Failed(f"{self._who(seat)} for seat {seat} needs more than {limit} ids")
        if any(self.voices[seat].mask) or any(reply.seat == seat for reply in self.replies):
            self.overrun_by = seat
        self.game.truncate()

    def _step(self, seat: int, text: str, speaker: Speaker | None = None) -> None:
        game = self.game
        if speaker is None:
            speaker = "policy" if seat == self.job.seat else "opponent" if seat < game.seats else "staff"
        formed = speaker in ("replaced", "staff") or self._well_formed(seat, text)
        try:
            verdict = game.step(text) if formed else game.step(text, well_formed=False)
        except Exception as error:
            raise _Failed(
                f"game.step for seat {seat}, reply {len(self.replies) + 1} of the game, raised "
                f"{type(error).__name__}: {error}; the reply was {text[:_SHOWN]!r}"
            ) from error
        self.replies.append(SaidReply(seat, text, speaker, formed))
        self._played += speaker != "staff"
        if verdict is Verdict.FORFEIT_MALFORMED:
            self.malformed_by = seat
        # The last conversation of a game stays: its ids are the episode's.
        if game.role(seat) in game.forgetful and not (speaker != "staff" and game.over):
            if seat in self.voices:
                self.voices[seat].close()
            self._converse(seat)

    def _well_formed(self, seat: int, text: str) -> bool:
        """Whether a player's reply has the form that the prompt asks for; only models are asked for one."""
        setting, player = self.setting, self.players[seat]
        restricted = isinstance(player, str) and self.constraint is not None  # to bare actions: it could not think
        if setting.config.prompt != "think" or restricted:
            return True
        # Where the template has opened the block, the reply begins inside it. Scripted players have no such thing.
        outside = "" if isinstance(player, Remote) else getattr(player, "thought", None)
        begun = setting.tokenizer.thought if isinstance(player, str) else outside
        return begun is None or self._guard("game.well_formed", seat, self.game.well_formed, begun + text)

    def episodes(self, *, both_seats: bool = False) -> list[Episode]:
        """Returns the records of a game that is over: of the job's seat, then if wanted of the other one."""
        seats = [self.job.seat]
        if both_seats and self.game.seats > 1:
            seats.append(1 - self.job.seat)
        return [self._episode(seat) for seat in seats]

    def _episode(self, seat: int) -> Episode:
        game, job, setting = self.game, self.job, self.setting
        voice = self.voices[seat]
        # A game that failed has no outcome that could be relied on, even if it names one.
        outcomes = game.outcomes if self.failure is None else None
        drawn = next((v for v in voice.versions if v != NO_VERSION), None)
        return Episode(
            game=job.game,
            options=job.options,
            game_seed=job.game_seed,
            seat=seat,
            opponent=setting.opponent_name if game.seats > 1 else "none",
            group=job.group,
            replies=self.replies if seat == job.seat else [_seen_from(seat, reply) for reply in self.replies],
            outcomes=tuple(str(outcome) for outcome in outcomes or (Outcome.TRUNCATED,) * game.seats),
            forfeited_by=game.forfeited_by if self.failure is None else None,
            illegal_tries=game.illegal_tries[seat],
            malformed=self.malformed_by == seat,
            malformed_tries=game.malformed_tries[seat],
            policy_version=setting.engine.version(setting.policy) if drawn is None else drawn,
            failure=self.failure,
            measures=self.measures if self.failure is None else {},
            overrun_by=self.overrun_by if self.failure is None else None,
            **voice.arrays(),
        )


def _seen_from(seat: int, reply: SaidReply) -> SaidReply:
    """Returns a reply of a player as another seat's record names it: its own seat's are the policy's."""
    if reply.speaker == "staff":
        return reply
    return dataclasses.replace(reply, speaker="policy" if reply.seat == seat else "opponent")

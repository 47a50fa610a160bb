"""One game: who answers for each seat, what it is shown, how its replies are played; every token is kept.

A seat belongs to a policy of the engine, to a scripted player, which answers at once, or to a remote player, which is
asked in a thread of its own. So do the seats of a game's simulators, which answer for the world that the game is about.

Whatever a game or player raises ends its episode as failed, and no other; only ``sys.exit`` ends the call, as an error.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal, ParamSpec, Self, TypeVar

from dfc import own_code
from dfc.config import OpponentReplyConfig, PlayerRolloutConfig, RolloutConfig, SamplingConfig
from dfc.episodes import Episode, PlayedReply, Speaker
from dfc.errors import shown
from dfc.games import registry, scripted
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import Player
from dfc.inference.constraints import ActionTrie, action_replies, cut_reply
from dfc.inference.protocol import EngineReply, RolloutEngine
from dfc.models.chat import ChatTokenizer
from dfc.players.remote import ChatMessage, Remote
from dfc.rollout.openings import Opening
from dfc.rollout.transcript import NO_VERSION, SeatTranscript

THINK_PROMPT = (
    "You play a game and follow its rules. Think first, then act. Think in the first person, step by step, inside "
    "<think> and </think>: explore, try, notice mistakes, correct them, check the result. Write that block once. "
    "Directly after </think> write one legal action in square brackets and nothing else, like this: "
    "<think>your thoughts</think>[action]"
)
MOST_ACTIONS = 512  # a position with more legal actions is played without a constraint
_CACHED_TRIES = 4096
_SHOWN = 200  # characters of a reply in an error
_GREEDY = SamplingConfig(temperature=0.0)  # of policies that are simulators

SeatPlayer = str | Player | Remote
"""Who answers for a seat: a policy of the engine by name, a scripted player, or a remote player."""

Waits = Literal["engine", "remote"]
"""What a game in progress waits for: the engine is to be asked, or a remote player was asked."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def system_prompt(config: PlayerRolloutConfig) -> str | None:
    """Returns what players read before the first observation, the language of thought included; None: nothing."""
    if config.prompt != "think":
        return None
    return f"{THINK_PROMPT}. Think in {config.think_language}." if config.think_language else THINK_PROMPT


@dataclasses.dataclass(frozen=True)
class EpisodeSpec:
    """One game to play.

    Attributes:
      game: registered id. options: constructor values that differ from the id's own. game_seed: its deal.
      seat: the policy's.
      group: copied to the episode.
      seed: of everything random in this episode: tokens of both seats, disturbances, a scripted opponent's choices.
      random_action_rate: probability that an action of the policy is replaced by a random legal one; 0 to 1.
      opening: what was played before, if the game does not begin at its beginning.
    """

    game: str
    options: Mapping[str, Any]
    game_seed: int
    seat: int
    group: int
    seed: int
    random_action_rate: float = 0.0
    opening: Opening | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class MatchContext:
    """What stays the same for all games of a rollout runner; see `dfc.rollout.runner.RolloutRunner`."""

    config: RolloutConfig
    tokenizer: ChatTokenizer
    engine: RolloutEngine
    policy: str
    opponent: SeatPlayer | None
    opponent_name: str
    simulators: Mapping[str, SeatPlayer]
    park_after: float
    most_parked: int
    sampling: SamplingConfig | None = None
    opponent_reply: OpponentReplyConfig = dataclasses.field(default_factory=OpponentReplyConfig)

    def players(self, game: Game, own: int) -> list[SeatPlayer]:
        """Returns who answers for each seat of a game, the policy for its `own`."""
        if own not in range(game.seats):
            seats = list(range(game.seats))
            raise ValueError(f"EpisodeSpec.seat={shown(own)}: must be one of {seats}, {game.id}'s seats")
        if game.seats > 1 and self.opponent is None:
            raise ValueError(f"{game.id} has two seats and no opponent was given")
        seated = [self.policy if seat == own or self.opponent is None else self.opponent for seat in range(game.seats)]
        missing = [role for role in game.simulators if role not in self.simulators]
        scripts = scripted.simulators(game) if missing else {}
        return [
            *seated,
            *(self.simulators[role] if role in self.simulators else scripts[role] for role in game.simulators),
        ]

    def seated(self, spec: EpisodeSpec) -> tuple[Game, list[SeatPlayer]]:
        """Returns the game of a spec, which has not begun, and who answers for each of its seats.

        Raises:
          ValueError: no such game, option or seat, two seats and no opponent, or a rate that is no share.
        """
        if not 0 <= spec.random_action_rate <= 1:
            raise ValueError(
                f"EpisodeSpec.random_action_rate={shown(spec.random_action_rate)}: must be at least 0 and at most 1"
            )
        game = registry.make(spec.game, **spec.options)
        return game, self.players(game, spec.seat)

    @functools.cached_property
    def remotes(self) -> list[Remote]:
        """Every remote player there is, each once."""
        found = [player for player in (self.opponent, *self.simulators.values()) if isinstance(player, Remote)]
        return list(dict.fromkeys(found))

    @functools.cached_property
    def transcripts_per_match(self) -> int:
        """How many conversations with the engine one game may keep."""
        return 1 + sum(isinstance(player, str) for player in (self.opponent, *self.simulators.values()))

    @functools.cached_property
    def system(self) -> str | None:
        """What players read before the first observation; None: nothing."""
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
            return ActionTrie.build(action_replies(actions, tokenizer.encode_reply, tokenizer.end_token_ids[:1]))

        return build


class _Failed(Exception):  # noqa: N818 - it ends a game, not the play
    """Something outside the engine raised; the text names the boundary and the error."""


@dataclasses.dataclass(eq=False)
class Match:
    """One game in progress: who answers for each seat, and the conversations with them.

    The conversation with a seat is a transcript where the engine answers, messages where a remote player does. Every
    event (`start`, `on_engine_reply`, `on_remote_reply`) advances the game until it waits for a reply or is over.

    Attributes:
      context: of all games of a rollout runner.
      index: of the spec.
      spec: what is played.
      game: the rules.
      rng: of disturbances and scripted players.
      players: by seat, simulators included.
      transcripts: by seat, conversations with the engine.
      messages: by seat, conversations with remote players.
      replies: so far.
      malformed_by: the seat that forfeited by a reply that could not be read.
      overrun_by: the seat whose context had no room left after it had said something.
      aside_from: what the conversation of the seat to move is restored to after it was asked aside: tokens or messages,
        and whether the last turn was closed; None where it is not.
      constraint: of the reply the engine is asked for.
      call: of the remote player that is waited for.
      called_at: since when, in seconds of the monotonic clock.
      parked: whether it released its slots while a remote player thinks.
      failure: what was raised.
      measures: of the game, after its end.
    """

    context: MatchContext
    index: int
    spec: EpisodeSpec
    game: Game
    rng: GameRng
    players: list[SeatPlayer]
    transcripts: dict[int, SeatTranscript] = dataclasses.field(default_factory=dict)
    messages: dict[int, list[ChatMessage]] = dataclasses.field(default_factory=dict)
    replies: list[PlayedReply] = dataclasses.field(default_factory=list)
    _num_player_replies: int = 0  # replies of players
    malformed_by: int | None = None
    overrun_by: int | None = None
    aside_from: tuple[int, bool] | None = None
    _most_allowed: tuple[int, int] = (0, 0)  # illegal and malformed replies in a row, of any seat in any phase so far
    constraint: ActionTrie | None = None
    call: Future[str] | None = None
    called_at: float = 0.0
    parked: bool = False
    failure: str | None = None
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def create(cls, context: MatchContext, index: int, spec: EpisodeSpec) -> Self:
        """Makes the game of a spec and seats its players; takes no slot yet.

        Raises:
          ValueError: the spec is wrong, as `MatchContext.seated` says.
        """
        game, players = context.seated(spec)
        rng = GameRng(derive_seed("table", spec.seed))
        match = cls(context, index, spec, game, rng, players)
        for seat in range(len(match.players)):
            match._start_conversation(seat)
        return match

    # ---- events -----------------------------------------------------------------------------------------------------

    def start(self) -> Waits | None:
        """Starts the game; returns what it waits for, None if it is over."""
        return self._move(self._begin)

    def on_engine_reply(self, reply: EngineReply) -> Waits | None:
        """Takes the engine's reply; returns what the game waits for, None if it is over."""
        return self._move(functools.partial(self._take_engine_reply, reply))

    def on_remote_reply(self) -> Waits | None:
        """Takes the reply of a call that is done; returns what the game waits for, None if it is over."""
        return self._move(self._take_remote_reply)

    def _begin(self) -> None:
        self._guard("game.reset", None, self.game.reset, self.spec.game_seed)
        if self.spec.opening is not None:
            self._replay(self.spec.opening)

    def _replay(self, opening: Opening) -> None:
        """Plays the replies of an opening; every conversation is then what it was when they were played."""
        recorded, own = opening.sample, self.spec.seat
        for number, reply in enumerate(opening.replies):
            seat = self.game.to_move
            if seat != reply.seat:
                raise _Failed(f"reply {number} of the opening is of seat {reply.seat}, but seat {seat} moves")
            self._note_aside(seat)
            transcript = self.transcripts.get(seat)
            if transcript is not None and not (seat == own and recorded is not None):
                self._observe(transcript, seat)
                transcript.add_context(self.context.tokenizer.encode_reply(reply.text))
                transcript.closed = False
            elif seat in self.messages:
                content = self._guard("game.observation", seat, self.game.observation, seat)
                said = ChatMessage(role="assistant", content=reply.text)
                self.messages[seat] += [ChatMessage(role="user", content=content), said]
            self._step(seat, reply.text, reply.speaker, formed=reply.well_formed)
        if self.game.to_move != own or self.game.aside:
            raise _Failed(f"the opening must end before a turn of seat {own} that is no aside")
        if recorded is not None:
            self.transcripts[own].begin_with(recorded)

    # ---- slots ------------------------------------------------------------------------------------------------------

    def ask(self) -> int:
        """Asks the engine for the reply that the game waits for; returns the slot."""
        return self.transcripts[self._seat_to_move].ask(self._limit, self.constraint)

    def park(self) -> None:
        """Releases its slots; the caches are kept in the host's memory."""
        for transcript in self.transcripts.values():
            transcript.park()

    def close(self) -> None:
        """Releases its slots for good; the tokens stay."""
        for transcript in self.transcripts.values():
            transcript.close()

    # ---- limits -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _most_actions(self) -> int:
        """Legal actions of players after which the game is stopped."""
        return self.context.config.max_actions or self.game.max_game_length

    @property
    def _most_replies(self) -> int:
        """Replies of players after which it is stopped; no game of `_most_actions` that keeps its allowances has more.

        Before each legal action there are at most as many illegal replies in a row as `Game.allowances` says, and
        before each of those and of the legal one as many malformed ones. Where allowances change on the way, the
        largest so far bound all replies so far.
        """
        allowed = [self._most_allowed, *(self.game.allowances(seat) for seat in range(self.game.seats))]
        self._most_allowed = max(i for i, _ in allowed), max(m for _, m in allowed)
        return self._most_actions * (1 + self._most_allowed[0]) * (1 + self._most_allowed[1])

    def _stopped(self) -> bool:
        """Stops a game that is at a limit of actions; returns whether it was."""
        game = self.game
        if game.actions_played < self._most_actions and self._num_player_replies < self._most_replies:
            return False
        game.stop()
        return True

    @property
    def _limit(self) -> int:
        """Tokens of the reply of the seat to move."""
        config, own = self.context.config, self.game.max_reply_tokens
        seat = self._seat_to_move
        if seat >= self.game.seats:
            return config.simulator_reply_length
        most = config.max_reply_length
        if seat != self.spec.seat:
            most = self.context.opponent_reply.max_length or most
        return min(most, own or most)

    def _overrun(self, seat: int) -> bool:
        """Whether a seat's context is too long for another reply."""
        transcript, most = self.transcripts[seat], self.context.config.max_prompt_length
        return transcript.full or (seat < self.game.seats and 0 < most < len(transcript.token_ids))

    # ---- its course -------------------------------------------------------------------------------------------------

    @property
    def _seat_to_move(self) -> int:
        seat = self.game.to_move
        assert seat is not None  # noqa: S101 - only a game in progress waits for a reply
        return seat

    def _guard(
        self, what: str, seat: int | None, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Calls code of a game or player; its exception becomes this episode's failure."""
        who = "" if seat is None else f" for seat {seat}, reply {len(self.replies) + 1} of the game,"
        with own_code.no_exit(f"games {self.spec.game!r}: {what}{who}"):
            try:
                return function(*args, **kwargs)
            except Exception as error:
                raise _Failed(f"{what}{who} {own_code.told(error)}") from error

    def _move(self, event: Callable[[], None]) -> Waits | None:
        try:
            with own_code.no_exit(f"games {self.spec.game!r}"):
                event()
                return self._advance()
        except _Failed as failure:
            self.failure = str(failure)
            return None

    def _advance(self) -> Waits | None:
        """Advances the game; returns what it waits for, None if it is over."""
        game, spec, config = self.game, self.spec, self.context.config
        while (seat := game.to_move) is not None:
            if seat < game.seats and self._guard("the end at rollout.max_actions", None, self._stopped):
                if Outcome.TRUNCATED in (game.outcomes or ()):
                    return None
                break
            transcript = self.transcripts.get(seat)
            self._note_aside(seat)
            if transcript is None:
                if self._play_outside_engine(seat):
                    return "remote"
                continue
            self._observe(transcript, seat)
            if self._overrun(seat):
                self._out_of_context(seat)
                return None
            if seat == spec.seat and spec.random_action_rate > 0 and self.rng.uniform() < spec.random_action_rate:
                action = self._disturbance(seat)
                transcript.add_context(
                    self._guard("game.legal_actions", seat, self.context.tokenizer.encode_reply, action)
                )
                transcript.closed = False
                if len(transcript.token_ids) > self.context.engine.max_length:
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

    def _note_aside(self, seat: int) -> None:
        """Stores what the conversation with a seat is restored to if it is asked aside now."""
        if not self.game.aside:
            return
        if (transcript := self.transcripts.get(seat)) is not None:
            self.aside_from = len(transcript.token_ids), transcript.closed
        else:
            self.aside_from = len(self.messages.get(seat, ())), False

    def _end_aside(self, seat: int) -> bool:
        """Removes from the conversation with a seat what it was asked aside; returns whether it was."""
        if self.aside_from is None:
            return False
        length, closed = self.aside_from
        self.aside_from = None
        if (transcript := self.transcripts.get(seat)) is not None:
            transcript.roll_back(length, closed=closed)
        elif seat in self.messages:
            del self.messages[seat][length:]
        return True

    def _start_conversation(self, seat: int) -> None:
        context, player = self.context, self.players[seat]
        simulator = seat >= self.game.seats
        several = simulator or self.game.role(seat) in self.game.stateless_roles
        if isinstance(player, str):
            # The number of replies tells apart the conversations of a stateless role, which begins again with every
            # reply.
            seed = derive_seed("ids", self.spec.seed, seat, *([len(self.replies)] if several else []))
            sampling = _GREEDY if simulator else context.sampling
            if not simulator and seat != self.spec.seat and context.opponent_reply.sampling is not None:
                sampling = context.opponent_reply.sampling
            self.transcripts[seat] = SeatTranscript(context.engine, player, seed, sampling=sampling)
        elif isinstance(player, Remote):
            system = None if simulator else context.system
            self.messages[seat] = [] if system is None else [ChatMessage(role="system", content=system)]

    def _observe(self, transcript: SeatTranscript, seat: int) -> None:
        """Adds what a seat is shown now, unless the end of its recorded conversation is that already."""
        if not transcript.observed:
            transcript.add_context(self._guard("game.observation", seat, self._render, transcript, seat))
        transcript.observed = False

    def _render(self, transcript: SeatTranscript, seat: int) -> list[int]:
        tokenizer, game = self.context.tokenizer, self.game
        observation = game.observation(seat)
        if not isinstance(observation, str):
            raise TypeError(f"an observation must be text, got {type(observation).__name__}")
        if not transcript.token_ids:
            return tokenizer.first_turn(observation, system=self.context.system if seat < game.seats else None)
        return tokenizer.next_turn(observation, closed=transcript.closed)

    def _disturbance(self, seat: int) -> str:
        actions = self._guard("game.legal_actions", seat, self.game.legal_actions)
        if not actions:
            raise _Failed(f"game.legal_actions for seat {seat} is empty, but random_action_rate asks for one of them")
        return actions[self.rng.randrange(len(actions))]

    def _constrained(self, seat: int) -> ActionTrie | None:
        actions = self._guard("game.legal_actions", seat, self.game.legal_actions)
        if not actions or len(actions) > MOST_ACTIONS:  # a game may have none to list
            return None
        return self._guard("the constraint to game.legal_actions", seat, self.context.trie, tuple(actions), self._limit)

    # ---- players outside the engine ---------------------------------------------------------------------------------

    def _play_outside_engine(self, seat: int) -> bool:
        """Lets a scripted player play, or asks a remote player; returns whether it has to be waited for."""
        if not 0 <= seat < len(self.players):
            raise _Failed(f"game.to_move is {seat}, expected a seat from 0 to {len(self.players) - 1}")
        player = self.players[seat]
        if isinstance(player, Remote):
            self._call(seat, player)
            return True
        assert not isinstance(player, str)  # noqa: S101 - policies have a transcript
        self._step(seat, self._scripted(seat, player))
        return False

    def _scripted(self, seat: int, player: Player) -> str:
        who = self._who(seat)
        action = self._guard(who, seat, player.act, self.game, self.rng)
        if not isinstance(action, str):
            raise _Failed(f"{who} for seat {seat} must return an action as str, got {type(action).__name__}")
        return action

    def _who(self, seat: int) -> str:
        game = self.game
        return f"opponent {self.context.opponent_name}" if seat < game.seats else f"the {game.role(seat)}"

    def _call(self, seat: int, remote: Remote) -> None:
        content = self._guard("game.observation", seat, self.game.observation, seat)
        self.messages[seat].append(ChatMessage(role="user", content=content))
        self.call = self._guard(self._who(seat), seat, remote.ask, self.messages[seat])
        self.called_at = time.monotonic()

    # ---- replies --------------------------------------------------------------------------------------------

    def _take_remote_reply(self) -> None:
        call, seat = self.call, self._seat_to_move
        assert call is not None  # noqa: S101 - only matches with a call get replies
        self.call = None
        text = self._guard(self._who(seat), seat, call.result)
        self.messages[seat].append(ChatMessage(role="assistant", content=text))
        self._step(seat, text)

    def _take_engine_reply(self, reply: EngineReply) -> None:
        seat, tokenizer = self._seat_to_move, self.context.tokenizer
        transcript = self.transcripts[seat]
        transcript.add_reply(reply)
        transcript.closed = bool(reply.token_ids) and reply.token_ids[-1] in tokenizer.end_token_ids
        text = tokenizer.decode(reply.token_ids[:-1] if transcript.closed else reply.token_ids)
        # A reply that had all the room a reply may have is taken as it is, like any other that is cut there.
        if not reply.stopped and transcript.full and len(reply.token_ids) < self._limit:
            self._out_of_context(seat)
            return
        self._step(seat, text)

    def _out_of_context(self, seat: int) -> None:
        """Ends a game that no rule decided: full of a player's words it is truncated, of a simulator's it has failed.

        A player that has said nothing was not the one who filled its context.
        """
        if seat >= self.game.seats:
            limit = self.context.engine.max_length
            raise _Failed(f"{self._who(seat)} for seat {seat} needs more than {limit} tokens")
        if any(self.transcripts[seat].mask) or any(reply.seat == seat for reply in self.replies):
            self.overrun_by = seat
        self._end_aside(seat)
        self.game.truncate()

    def _step(self, seat: int, text: str, speaker: Speaker | None = None, *, formed: bool | None = None) -> None:
        game = self.game
        if speaker is None:
            speaker = "policy" if seat == self.spec.seat else "opponent" if seat < game.seats else "simulator"
        if formed is None:
            formed = speaker in ("replaced", "simulator") or self._well_formed(seat, text)
        try:
            verdict = game.step(text) if formed else game.step(text, well_formed=False)
        except Exception as error:
            who = f"game.step for seat {seat}, reply {len(self.replies) + 1} of the game,"
            raise _Failed(f"{who} {own_code.told(error)}; the reply was {text[:_SHOWN]!r}") from error
        self.replies.append(PlayedReply(seat, text, speaker, formed, self._end_aside(seat)))
        self._num_player_replies += speaker != "simulator"
        if verdict is Verdict.FORFEIT_MALFORMED:
            self.malformed_by = seat
        # The last conversation of a game stays: its tokens are the episode's.
        if game.role(seat) in game.stateless_roles and not (speaker != "simulator" and game.over):
            if seat in self.transcripts:
                self.transcripts[seat].close()
            self._start_conversation(seat)

    def _well_formed(self, seat: int, text: str) -> bool:
        """Whether a player's reply has the form that the prompt asks for; only models are asked for one."""
        context, player = self.context, self.players[seat]
        restricted = isinstance(player, str) and self.constraint is not None  # to bare actions: it could not think
        if context.config.prompt != "think" or restricted:
            return True
        # Where the template has opened the block, the reply begins inside it. Scripted players have no such thing.
        outside = "" if isinstance(player, Remote) else getattr(player, "thought", None)
        begun = context.tokenizer.thought if isinstance(player, str) else outside
        return begun is None or self._guard("game.well_formed", seat, self.game.well_formed, begun + text)

    def episodes(self, *, both_seats: bool = False) -> list[Episode]:
        """Returns the records of a game that is over: of the spec's seat, then if wanted of the other one."""
        seats = [self.spec.seat]
        if both_seats and self.game.seats > 1:
            seats.append(1 - self.spec.seat)
        return [self._episode(seat) for seat in seats]

    def _episode(self, seat: int) -> Episode:
        game, spec, context = self.game, self.spec, self.context
        transcript = self.transcripts[seat]
        # A game that failed has no outcome that could be relied on, even if it names one.
        outcomes = game.outcomes if self.failure is None else None
        first_version = next((v for v in transcript.versions if v != NO_VERSION), None)
        return Episode(
            game=spec.game,
            options=spec.options,
            game_seed=spec.game_seed,
            seat=seat,
            opponent=context.opponent_name if game.seats > 1 else "none",
            group=spec.group,
            replies=self.replies if seat == spec.seat else [_seen_from(seat, reply) for reply in self.replies],
            outcomes=tuple(str(outcome) for outcome in outcomes or (Outcome.TRUNCATED,) * game.seats),
            forfeited_by=game.forfeited_by if self.failure is None else None,
            illegal_tries=game.illegal_tries[seat],
            malformed=self.malformed_by == seat,
            malformed_tries=game.malformed_tries[seat],
            policy_version=context.engine.version(context.policy) if first_version is None else first_version,
            failure=self.failure,
            measures=self.measures if self.failure is None else {},
            overrun_by=self.overrun_by if self.failure is None else None,
            team=game.team,
            abort_reason=game.abort_reason if self.failure is None else None,
            lost_by=game.lost_by if self.failure is None else None,
            loss_reason=game.loss_reason if self.failure is None else None,
            sample=transcript.sample(),
        )


def _seen_from(seat: int, reply: PlayedReply) -> PlayedReply:
    """Returns a reply of a player as another seat's record names it: its own seat's are the policy's."""
    if reply.speaker == "simulator":
        return reply
    return dataclasses.replace(reply, speaker="policy" if reply.seat == seat else "opponent")

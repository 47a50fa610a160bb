"""Plays games: renders what a seat is to see, lets its player answer, steps the game, keeps every id.

One engine answers for every seat that a model plays, whatever weights it plays with. Two of its calls are under way
at a time: while the device works on one, the games of the other move on. A seat may also belong to a program, which
answers at once, or to a remote player, which is asked in a thread of its own and waited for by its own game only. So
may the seats of a game's staff, which answers for the world that the game is about.

What goes wrong inside one game stays there: a game or player that raises ends its episode as failed, and all others
go on. Errors of the engine and interrupts end the play.
"""

import collections
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import jax

from dfc.config import RolloutConfig, SamplingConfig
from dfc.episodes import Episode, Speaker
from dfc.episodes import Reply as SaidReply
from dfc.games import registry, scripted
from dfc.games.chance import Chance, derive_seed
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.scripted import Player
from dfc.models.chat import ChatTokenizer
from dfc.players.remote import Call, Message, Remote
from dfc.rollout.constraints import ActionTrie, action_replies
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
_PAUSE = 0.01  # seconds; the least between two looks for a game to set aside, or at several remote players
_SHOWN = 200  # characters of a reply in an error
_GREEDY = SamplingConfig(temperature=0.0)  # of policies that answer for a game's world
_IN_FLIGHT = 2  # calls of the engine: one computes while the games of the other move on

Answerer = str | Player | Remote
"""Who answers for a seat: a policy of the engine by name, a program, or a remote player."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


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


class _Failed(Exception):  # noqa: N818 - it ends a game, not the play
    """Something outside the engine raised; the text names the boundary and the error."""


@dataclasses.dataclass(eq=False)
class _Table:
    """One game in progress: who answers for each seat, and what was said to them.

    The conversation with a seat is a voice where the engine answers, messages where a remote player does.
    """

    index: int
    job: Job
    game: Game
    chance: Chance
    players: list[Answerer]  # by seat
    voices: dict[int, Voice]
    messages: dict[int, list[Message]]
    replies: list[SaidReply] = dataclasses.field(default_factory=list)
    malformed_by: int | None = None
    constraint: ActionTrie | None = None  # of the reply the engine is asked for
    call: Call | None = None  # of a remote player
    called_at: float = 0.0  # seconds of the monotonic clock
    aside: bool = False  # gave its slot away while a remote player thinks
    failure: str | None = None
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def guard(self, what: str, seat: int | None, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Calls what a game or player brings; what it raises becomes this episode's failure."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            who = "" if seat is None else f" for seat {seat}, reply {len(self.replies) + 1} of the game,"
            raise _Failed(f"{what}{who} raised {type(error).__name__}: {error}") from error


@dataclasses.dataclass(frozen=True, eq=False)
class _Setting:
    """What stays the same for all games of an arena; see `Arena`."""

    config: RolloutConfig
    tokenizer: ChatTokenizer
    engine: Engine
    policy: str
    opponent: Answerer | None
    opponent_name: str
    staff: Mapping[str, Answerer]
    park_after: float
    most_parked: int

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
        return THINK_PROMPT if self.config.prompt == "think" else None

    @functools.cached_property
    def trie(self) -> Callable[[tuple[str, ...]], ActionTrie]:
        """Returns the constraint to a set of actions; positions come back, so each is built once."""

        @functools.lru_cache(maxsize=_CACHED_TRIES)
        def build(actions: tuple[str, ...]) -> ActionTrie:
            tokenizer = self.tokenizer
            return ActionTrie.build(action_replies(actions, tokenizer.encode_reply, tokenizer.end_ids[:1]))

        return build


class Arena:
    """Games between a policy and one kind of opponent, many at once, on one engine."""

    def __init__(
        self,
        config: RolloutConfig,
        tokenizer: ChatTokenizer,
        engine: Engine,
        *,
        policy: str = "policy",
        opponent: Answerer | None = None,
        opponent_name: str,
        staff: Mapping[str, Answerer] | None = None,
        park_after: float = 1.0,
        most_parked: int | None = None,
    ) -> None:
        """Sets the table.

        Args:
          config: limits and prompt; `slots` games are in flight at once, or as many as the engine has slots for.
          tokenizer: renders observations and reads replies.
          engine: answers for `Job.seat`. Two conversations of each game keep a slot where the opponent is a policy,
            so it needs twice `config.slots` of them, and one more for each role of staff that is; fewer mean fewer
            games at once.
          policy: whose weights, among those the engine knows by name, play `Job.seat`.
          opponent: the other seat: the name of a policy the engine knows, a scripted player, or a remote one; None
            where only single-player games come.
          opponent_name: written to each episode.
          staff: who answers for a game's world, by role, e.g. ``{"world": endpoint, "judge": endpoint}``, where games
            have staff (`Facts.staff`); for a role that is not named, the game's script. Policies among them draw
            greedily.
          park_after: seconds. A game that has waited longer for a remote player gives its slot to the next job, if
            there is one; its cache waits in the host's memory.
          most_parked: games that may wait so; by default `config.slots`.

        Raises:
          ValueError: a remote player in a run of several processes, which must all do the same in the same order.
        """
        setting = _Setting(
            config,
            tokenizer,
            engine,
            policy,
            opponent,
            opponent_name,
            dict(staff or {}),
            park_after,
            config.slots if most_parked is None else most_parked,
        )
        if setting.remotes and jax.process_count() > 1:
            raise ValueError(
                f"the remote player {setting.remotes[0].name!r} cannot play in a run of {jax.process_count()} "
                "processes: its replies reach each at another time; use one process, or an opponent in the engine"
            )
        self._setting = setting

    def play(self, jobs: Iterable[Job]) -> list[Episode]:
        """Plays every job; returns the episodes in the order of the jobs.

        An episode depends on its job, the weights and a remote player's replies only: not on the other jobs, their
        number or their order (up to rounding: the same ids on one machine, log-probabilities within 1e-5 in float32).

        A game or opponent that raises ends its episode with `Episode.failure` set and every outcome truncated; the
        caller decides what failed episodes mean (they are nothing to train on).

        Args:
          jobs: drawn from lazily, whenever there is room for a game.

        Raises:
          ValueError: the engine has too few free slots for a single game, or a job is wrong: no such game or option,
            or two seats and no opponent.
        """
        return _Round(self._setting, jobs).play()


class _Round:
    """One call of `Arena.play`: the games in flight and what each of them waits for."""

    def __init__(self, setting: _Setting, jobs: Iterable[Job]) -> None:
        self._setting = setting
        self._config = setting.config
        self._engine = setting.engine
        self._most_seats = setting.voices  # that one game keeps in the engine
        self._capacity = setting.engine.free
        self._jobs = enumerate(jobs)
        self._exhausted = False
        self._done: dict[int, Episode] = {}
        self._answering: dict[int, _Table] = {}  # by slot: the engine answers
        self._called: list[_Table] = []  # a remote player answers, the longest wait first
        self._returning: collections.deque[_Table] = collections.deque()  # were set aside and want a slot again
        self._tables: set[_Table] = set()  # every game in flight
        self._games = 0  # holding slots, or about to
        self._taken = 0  # slots these games hold or may come to hold
        self._aside = 0  # games that gave their slot away

    def play(self) -> list[Episode]:
        if self._capacity < self._most_seats:
            raise ValueError(
                f"a game keeps {self._most_seats} conversations in the engine, which has {self._capacity} free slots; "
                "make an engine with more slots"
            )
        try:
            while self._turn():
                pass
        except BaseException:
            self._release()  # the engine is the caller's and plays on if it can
            raise
        return [self._done[index] for index in range(len(self._done))]

    def _turn(self) -> bool:
        """Lets games begin, keeps the device busy, moves on the games that were answered; False at the end."""
        self._admit()
        while self._engine.in_flight < _IN_FLIGHT and self._engine.launch():
            pass
        if self._engine.in_flight:
            for reply in self._engine.collect():
                table = self._answering.pop(reply.slot)
                self._move(table, functools.partial(self._heard, table, reply))
        elif self._called:
            self._wait(None if self._exhausted and not self._returning else max(self._setting.park_after, _PAUSE))
        elif self._answering:
            raise AssertionError(f"the engine has nothing to launch, but {len(self._answering)} slots were asked")
        else:
            return self._engine.anyone(bool(self._returning) or not self._exhausted)
        self._take_calls()
        return True

    def _wait(self, limit: float | None) -> None:
        """Waits until a remote player may have answered, `limit` seconds at most."""
        calls = [table.call for table in self._called if table.call is not None]
        remotes = self._setting.remotes
        if len(remotes) > 1:  # none of them knows of the others: a look at each in turn
            limit = _PAUSE
        for remote in remotes:
            mine = [call for call in calls if call.remote is remote]
            if mine:
                remote.wait(mine, limit)

    def _take_calls(self) -> None:
        """Moves on the games whose remote player has answered or failed."""
        waiting: list[_Table] = []
        answered: list[_Table] = []
        for table in self._called:
            (answered if table.call is not None and table.call.done else waiting).append(table)
        self._called = waiting
        for table in answered:
            self._move(table, functools.partial(self._called_back, table))

    def _release(self) -> None:
        """Frees every slot of the games in flight; what calls still bring for them is dropped by the engine."""
        for table in self._tables:
            for voice in table.voices.values():
                voice.close()

    # ---- room -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Lets games in: first those that were set aside, then new ones."""
        while True:
            if self._returning:
                table = self._returning[0]
                if not self._room(len(table.voices)) and not self._set_one_aside(self._setting.most_parked + 1):
                    return  # one goes and one comes: no more are parked than before
                self._returning.popleft()
                table.aside = False
                self._aside -= 1
                self._enter(table)
                self._ask(table, table.voices[table.job.seat])
                continue
            if self._exhausted or not (
                self._room(self._most_seats) or self._longest_wait(self._setting.most_parked) is not None
            ):
                return
            item = next(self._jobs, None)
            if item is None:
                self._exhausted = True
                return
            table = self._seat(*item)
            if not self._room(self._most_seats):
                self._set_one_aside(self._setting.most_parked)
            self._tables.add(table)
            self._enter(table)
            self._begin(table)

    def _room(self, seats: int) -> bool:
        return self._games < self._config.slots and self._taken + seats <= self._capacity

    def _enter(self, table: _Table) -> None:
        self._games += 1
        self._taken += len(table.voices)

    def _leave(self, table: _Table) -> None:
        self._games -= 1
        self._taken -= len(table.voices)

    def _longest_wait(self, most: int) -> _Table | None:
        """Returns the game whose slot a remote player has kept idle for longest, if that is too long.

        Args:
          most: games that may be aside afterwards.
        """
        if not self._called or self._aside >= most:
            return None
        before = time.monotonic() - self._setting.park_after
        return next((t for t in self._called if not t.aside and t.called_at <= before), None)

    def _set_one_aside(self, most: int) -> bool:
        table = self._longest_wait(most)
        if table is None:
            return False
        for voice in table.voices.values():
            voice.park()
        table.aside = True
        self._aside += 1
        self._leave(table)
        return True

    # ---- one game -------------------------------------------------------------------------------------------------

    def _seat(self, index: int, job: Job) -> _Table:
        setting = self._setting
        game = registry.make(job.game, **job.options)
        players = setting.players(game, job.seat)
        table = _Table(index, job, game, Chance(derive_seed("table", job.seed)), players, {}, {})
        for seat in range(len(players)):
            self._converse(table, seat)
        return table

    def _converse(self, table: _Table, seat: int) -> None:
        """Begins the conversation with a seat."""
        setting, player = self._setting, table.players[seat]
        staff = seat >= table.game.seats
        if isinstance(player, str):
            # The number of replies tells apart the conversations of staff that begins anew with every question.
            seed = derive_seed("ids", table.job.seed, seat, *([len(table.replies)] if staff else []))
            table.voices[seat] = Voice(setting.engine, player, seed, sampling=_GREEDY if staff else None)
        elif isinstance(player, Remote):
            system = None if staff else setting.system
            table.messages[seat] = [] if system is None else [Message(role="system", content=system)]

    def _begin(self, table: _Table) -> None:
        self._move(table, lambda: table.guard("game.reset", None, table.game.reset, table.job.game_seed))

    def _move(self, table: _Table, event: Callable[[], None]) -> None:
        """Lets an event reach a game and moves it on until it waits for somebody or is over."""
        try:
            event()
            if self._advance(table):
                return
        except _Failed as failure:
            table.failure = str(failure)
        for voice in table.voices.values():
            voice.close()
        if table.aside:
            self._aside -= 1
        else:
            self._leave(table)
        self._tables.discard(table)
        self._done[table.index] = self._episode(table)

    def _advance(self, table: _Table) -> bool:
        """Moves a game on; returns whether it waits for somebody."""
        game, job = table.game, table.job
        while (seat := game.to_move) is not None:
            if len(table.replies) >= self._config.max_replies:
                game.truncate()
                return False
            voice = table.voices.get(seat)
            if voice is None:
                if self._answer_outside(table, seat):
                    return True
                continue
            voice.hear(table.guard("game.observation", seat, self._render, voice, game, seat))
            if seat == job.seat and job.epsilon > 0 and table.chance.uniform() < job.epsilon:
                action = self._disturbance(table, seat)
                voice.hear(table.guard("game.legal_actions", seat, self._setting.tokenizer.encode_reply, action))
                voice.closed = False
                if len(voice.ids) > self._engine.max_length:
                    game.truncate()
                    return False
                self._step(table, seat, action, "replaced")
                continue
            if voice.full:
                self._out_of_context(table, seat)
                return False
            restrict = self._config.legal_only and seat < game.seats
            table.constraint = self._constraint(table, seat) if restrict else None
            if table.aside:
                self._returning.append(table)
            else:
                self._ask(table, voice)
            return True
        if game.discarded is not None:
            raise _Failed(game.discarded)
        table.measures = table.guard("game.measures", None, game.measures)
        return False

    def _answer_outside(self, table: _Table, seat: int) -> bool:
        """Lets a program play, or asks a remote player; returns whether it has to be waited for."""
        if not 0 <= seat < len(table.players):
            raise _Failed(f"game.to_move is {seat}, expected a seat from 0 to {len(table.players) - 1}")
        player = table.players[seat]
        if isinstance(player, Remote):
            self._call(table, seat, player)
            return True
        assert not isinstance(player, str)  # noqa: S101 - policies have a voice
        self._step(table, seat, self._scripted(table, seat, player))
        return False

    def _render(self, voice: Voice, game: Game, seat: int) -> list[int]:
        tokenizer, observation = self._setting.tokenizer, game.observation(seat)
        if not isinstance(observation, str):
            raise TypeError(f"an observation must be text, got {type(observation).__name__}")
        if not voice.ids:
            return tokenizer.first_turn(observation, system=self._setting.system if seat < game.seats else None)
        return tokenizer.next_turn(observation, closed=voice.closed)

    def _disturbance(self, table: _Table, seat: int) -> str:
        actions = table.guard("game.legal_actions", seat, table.game.legal_actions)
        if not actions:
            raise _Failed(f"game.legal_actions for seat {seat} is empty, but an epsilon asks for one of them")
        return actions[table.chance.below(len(actions))]

    def _constraint(self, table: _Table, seat: int) -> ActionTrie | None:
        actions = table.guard("game.legal_actions", seat, table.game.legal_actions)
        if not actions or len(actions) > MOST_ACTIONS:  # a game may have none to list
            return None
        return table.guard("the constraint to game.legal_actions", seat, self._setting.trie, tuple(actions))

    def _ask(self, table: _Table, voice: Voice) -> None:
        game, seat = table.game, table.game.to_move
        player = seat is not None and seat < game.seats
        most = self._config.max_reply_length
        limit = min(most, game.reply_ids or most) if player else self._config.staff_reply_length
        self._answering[voice.ask(limit, table.constraint)] = table

    def _scripted(self, table: _Table, seat: int, player: Player) -> str:
        who = self._who(table, seat)
        action = table.guard(who, seat, player.act, table.game, table.chance)
        if not isinstance(action, str):
            raise _Failed(f"{who} for seat {seat} must return an action as str, got {type(action).__name__}")
        return action

    def _who(self, table: _Table, seat: int) -> str:
        game = table.game
        return f"opponent {self._setting.opponent_name}" if seat < game.seats else f"the {game.role(seat)}"

    def _call(self, table: _Table, seat: int, remote: Remote) -> None:
        content = table.guard("game.observation", seat, table.game.observation, seat)
        table.messages[seat].append(Message(role="user", content=content))
        table.call = remote.ask(table.messages[seat])
        table.called_at = time.monotonic()
        self._called.append(table)

    # ---- what comes back ------------------------------------------------------------------------------------------

    def _called_back(self, table: _Table) -> None:
        call, seat = table.call, table.game.to_move
        assert call is not None  # noqa: S101 - only tables with a call are listened to
        assert seat is not None  # noqa: S101 - only a game in progress calls
        table.call = None
        text = table.guard(self._who(table, seat), seat, call.result)
        table.messages[seat].append(Message(role="assistant", content=text))
        self._step(table, seat, text)

    def _heard(self, table: _Table, reply: Reply) -> None:
        seat = table.game.to_move
        assert seat is not None  # noqa: S101 - only a game in progress asks
        voice, tokenizer = table.voices[seat], self._setting.tokenizer
        voice.said(reply)
        voice.closed = bool(reply.ids) and reply.ids[-1] in tokenizer.end_ids
        text = tokenizer.decode(reply.ids[:-1] if voice.closed else reply.ids)
        if not reply.stopped and voice.full:
            self._out_of_context(table, seat)
            return
        self._step(table, seat, text)

    def _out_of_context(self, table: _Table, seat: int) -> None:
        """Ends a game that no rule decided: full of a player's words it is truncated, of staff's it has failed."""
        if seat >= table.game.seats:
            raise _Failed(f"{self._who(table, seat)} for seat {seat} needs more than {self._engine.max_length} ids")
        table.game.truncate()

    def _step(self, table: _Table, seat: int, text: str, speaker: Speaker | None = None) -> None:
        game = table.game
        if speaker is None:
            speaker = "policy" if seat == table.job.seat else "opponent" if seat < game.seats else "staff"
        try:
            verdict = game.step(text)
        except Exception as error:
            raise _Failed(
                f"game.step for seat {seat}, reply {len(table.replies) + 1} of the game, raised "
                f"{type(error).__name__}: {error}; the reply was {text[:_SHOWN]!r}"
            ) from error
        table.replies.append(SaidReply(seat, text, speaker))
        if verdict is Verdict.FORFEIT_MALFORMED:
            table.malformed_by = seat
        if speaker == "staff" and game.role(seat) in game.forgetful:
            if seat in table.voices:
                table.voices[seat].close()
            self._converse(table, seat)

    def _episode(self, table: _Table) -> Episode:
        game, job = table.game, table.job
        voice = table.voices[job.seat]
        # A game that failed has no outcome that could be relied on, even if it names one.
        outcomes = game.outcomes if table.failure is None else None
        drawn = next((v for v in voice.versions if v != NO_VERSION), None)
        return Episode(
            game=job.game,
            options=job.options,
            game_seed=job.game_seed,
            seat=job.seat,
            opponent=self._setting.opponent_name if game.seats > 1 else "none",
            group=job.group,
            replies=table.replies,
            outcomes=tuple(str(outcome) for outcome in outcomes or (Outcome.TRUNCATED,) * game.seats),
            forfeited_by=game.forfeited_by if table.failure is None else None,
            illegal_tries=game.illegal_tries[job.seat],
            malformed=table.malformed_by == job.seat,
            policy_version=self._engine.version(self._setting.policy) if drawn is None else drawn,
            failure=table.failure,
            measures=table.measures if table.failure is None else {},
            **voice.arrays(),
        )

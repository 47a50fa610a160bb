"""Plays games: renders what a seat is to see, lets the engine answer, steps the game, keeps every id."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from dfc.config import RolloutConfig
from dfc.episodes import Episode, Speaker
from dfc.episodes import Reply as SaidReply
from dfc.games import registry
from dfc.games.chance import Chance, derive_seed
from dfc.games.game import Game, Verdict
from dfc.models.chat import ChatTokenizer
from dfc.rollout.engine import Engine, Reply

THINK_PROMPT = (
    "You play a game and follow its rules. Think first, then act. Think in the first person, step by step, inside "
    "<think> and </think>: explore, try, notice mistakes, correct them, check the result. Write that block once. "
    "Directly after </think> write one legal action in square brackets and nothing else, like this: "
    "<think>your thoughts</think>[action]"
)


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


class Scripted(Protocol):
    """An opponent that is a program."""

    def act(self, game: Game, chance: Chance) -> str:
        """Returns the action of the seat to move."""
        ...


@dataclasses.dataclass
class _Voice:
    """One seat's conversation with an engine: the ids so far and which of them were drawn."""

    engine: Engine
    slot: int
    ids: list[int] = dataclasses.field(default_factory=list)
    mask: list[bool] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    plain: list[float] = dataclasses.field(default_factory=list)
    closed: bool = False  # the last reply ended with an end-of-turn id

    def hear(self, ids: Sequence[int]) -> None:
        self.engine.append(self.slot, ids)
        self.ids.extend(ids)
        zeros = [0.0] * len(ids)
        self.mask.extend([False] * len(ids))
        self.logprobs.extend(zeros)
        self.plain.extend(zeros)

    def said(self, reply: Reply) -> None:
        self.ids.extend(reply.ids)
        self.mask.extend([True] * len(reply.ids))
        self.logprobs.extend(reply.logprobs)
        self.plain.extend(reply.plain_logprobs)


@dataclasses.dataclass
class _Table:
    """One game in progress."""

    index: int
    job: Job
    game: Game
    chance: Chance
    voices: dict[int, _Voice]
    replies: list[SaidReply] = dataclasses.field(default_factory=list)
    malformed_by: int | None = None


class Arena:
    """Games between a policy and one kind of opponent, many at once.

    The policy and a model opponent each have an engine; a table holds one slot in each, so a conversation's cache
    lives as long as its game. Calls alternate between the two engines: most tables answer in one call, so both
    engines stay full.
    """

    def __init__(
        self,
        config: RolloutConfig,
        tokenizer: ChatTokenizer,
        policy: Engine,
        opponent: Engine | Scripted | None,
        *,
        opponent_name: str,
    ) -> None:
        """Sets the table.

        Args:
          config: limits and prompt.
          tokenizer: renders observations and reads replies.
          policy: plays `Job.seat`.
          opponent: plays the other seat; None where only single-player games come.
          opponent_name: written to each episode.
        """
        self._config = config
        self._tokenizer = tokenizer
        self._policy = policy
        self._opponent = opponent
        self._name = opponent_name
        self._system = THINK_PROMPT if config.prompt == "think" else None

    def play(self, jobs: Iterable[Job]) -> list[Episode]:
        """Plays every job; returns the episodes in the order of the jobs.

        An episode depends on its job and the weights only: not on the other jobs, their number or their order
        (up to rounding: the same ids on one machine, log-probabilities within 1e-5 in float32).

        Args:
          jobs: drawn from lazily, whenever a table is free.

        Raises:
          ValueError: an engine has too few free slots for a single game.
        """
        if not self._room():
            needed = "two slots" if self._opponent is self._policy else "one slot of each engine"
            raise ValueError(f"a game takes {needed}, but no game finds room; make engines with more slots")
        queue = enumerate(jobs)
        done: dict[int, Episode] = {}
        tables: dict[tuple[int, int], _Table] = {}  # (engine's identity, slot) -> who waits there
        exhausted = False
        while True:
            while not exhausted and self._room():
                item = next(queue, None)
                if item is None:
                    exhausted = True
                    break
                table = self._seat(*item)
                self._advance(table, tables, done)
            if not tables:
                if exhausted:
                    return [done[i] for i in range(len(done))]
                continue
            for engine in self._engines():
                for reply in engine.step():
                    table = tables.pop((id(engine), reply.slot))
                    self._hear(table, reply)
                    self._advance(table, tables, done)

    # ---- one table ----------------------------------------------------------------------------------------------

    def _engines(self) -> Iterator[Engine]:
        yield self._policy
        if isinstance(self._opponent, Engine):
            yield self._opponent

    def _scripted(self) -> Scripted:
        if self._opponent is None or isinstance(self._opponent, Engine):
            raise AssertionError("a seat without a conversation belongs to a scripted opponent")
        return self._opponent

    def _room(self) -> bool:
        # A conversation with itself needs two slots of one engine.
        needed = 2 if self._opponent is self._policy else 1
        return all(engine.free >= needed for engine in self._engines())

    def _seat(self, index: int, job: Job) -> _Table:
        game = registry.make(job.game, **job.options)
        game.reset(job.game_seed)
        voices = {}
        for seat in range(game.seats):
            engine = self._policy if seat == job.seat else self._opponent
            if isinstance(engine, Engine):
                voices[seat] = _Voice(engine, engine.open(derive_seed("ids", job.seed, seat)))
            elif engine is None:
                raise ValueError(f"{job.game} has two seats and no opponent was given")
        return _Table(index, job, game, Chance(derive_seed("table", job.seed)), voices)

    def _advance(
        self,
        table: _Table,
        tables: dict[tuple[int, int], _Table],
        done: dict[int, Episode],
    ) -> None:
        """Moves a game on until an engine has to answer or the game is over."""
        game, job = table.game, table.job
        while game.to_move is not None:
            if len(table.replies) >= self._config.max_replies:
                game.truncate()
                break
            seat = game.to_move
            voice = table.voices.get(seat)
            if voice is None:
                self._step(table, seat, self._scripted().act(game, table.chance), "opponent")
                continue
            voice.hear(self._render(voice, game.observation(seat)))
            if seat == job.seat and job.epsilon > 0 and table.chance.uniform() < job.epsilon:
                actions = game.legal_actions()
                action = actions[table.chance.below(len(actions))]
                voice.hear(self._tokenizer.encode_reply(action))
                voice.closed = False
                if voice.engine.length(voice.slot) > voice.engine.max_length:
                    game.truncate()
                    break
                self._step(table, seat, action, "replaced")
                continue
            if not voice.engine.ask(voice.slot, self._config.max_reply_length):
                game.truncate()
                break
            tables[id(voice.engine), voice.slot] = table
            return
        for voice in table.voices.values():
            voice.engine.close(voice.slot)
        episode = self._episode(table)
        done[table.index] = episode

    def _render(self, voice: _Voice, observation: str) -> list[int]:
        if not voice.ids:
            return self._tokenizer.first_turn(observation, system=self._system)
        return self._tokenizer.next_turn(observation, closed=voice.closed)

    def _hear(self, table: _Table, reply: Reply) -> None:
        seat = table.game.to_move
        assert seat is not None  # noqa: S101 - only a game in progress asks
        voice = table.voices[seat]
        voice.said(reply)
        voice.closed = reply.ids[-1] in self._tokenizer.end_ids
        text = self._tokenizer.decode(reply.ids[:-1] if voice.closed else reply.ids)
        if not reply.stopped and voice.engine.length(voice.slot) >= voice.engine.max_length:
            table.game.truncate()  # the context is full: no rule decided this game
            return
        self._step(table, seat, text, "policy" if seat == table.job.seat else "opponent")

    def _step(self, table: _Table, seat: int, text: str, speaker: Speaker) -> None:
        table.replies.append(SaidReply(seat, text, speaker))
        if table.game.step(text) is Verdict.FORFEIT_MALFORMED:
            table.malformed_by = seat

    def _episode(self, table: _Table) -> Episode:
        game, job = table.game, table.job
        voice = table.voices[job.seat]
        assert game.outcomes is not None  # noqa: S101 - called at the end only
        return Episode(
            game=job.game,
            options=job.options,
            game_seed=job.game_seed,
            seat=job.seat,
            opponent=self._name if game.seats > 1 else "none",
            group=job.group,
            replies=table.replies,
            outcomes=tuple(str(outcome) for outcome in game.outcomes),
            forfeited_by=game.forfeited_by,
            illegal_tries=game.illegal_tries[job.seat],
            malformed=table.malformed_by == job.seat,
            ids=np.asarray(voice.ids, np.int32),
            mask=np.asarray(voice.mask, bool),
            logprobs=np.asarray(voice.logprobs, np.float32),
            plain_logprobs=np.asarray(voice.plain, np.float32),
            policy_version=voice.engine.version,
        )

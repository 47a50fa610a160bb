"""Plays many games at once on one engine: who may begin, who waits for whom, who gives a slot away meanwhile.

One engine answers for every seat that a model plays, whatever weights it plays with. Two of its calls are under way
at a time: while the device works on one, the games of the other move on. A remote player is waited for by its own game
only. What happens within a game is in `dfc.rollout.one_game`.

A game that fails ends its own episode, and all others go on. Errors of the engine and interrupts end the play, as does
whoever asks for a stop between two calls of the engine.
"""

import collections
import time
from collections.abc import Callable, Iterable, Mapping

import jax

from dfc.config import RolloutConfig, SamplingConfig
from dfc.episodes import Episode
from dfc.models.chat import ChatTokenizer
from dfc.players.remote import Remote
from dfc.rollout.engine import Engine
from dfc.rollout.one_game import MOST_ACTIONS, THINK_PROMPT, Answerer, Job, Setting, Table, Waits, system_prompt

__all__ = ["MOST_ACTIONS", "THINK_PROMPT", "Answerer", "Arena", "Job", "system_prompt"]

_PAUSE = 0.01  # seconds; the least between two looks for a game to set aside, or at several remote players
_LONGEST_WAIT = 1.0  # seconds for remote players, between two looks whether to stop
_IN_FLIGHT = 2  # calls of the engine: one computes while the games of the other move on


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
        both_seats: bool = False,
        sampling: SamplingConfig | None = None,
        park_after: float = 1.0,
        most_parked: int | None = None,
        look: Callable[[], None] | None = None,
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
          both_seats: where the opponent is the policy itself, a game of two seats gives an episode for each of them;
            disturbances (`Job.epsilon`) are of the job's seat only.
          sampling: how players that are policies draw ids; None: as the engine does by default.
          park_after: seconds. A game that has waited longer for a remote player gives its slot to the next job, if
            there is one; its cache waits in the host's memory.
          most_parked: games that may wait so; by default `config.slots`.
          look: called before every call of the engine, and at least once a second while remote players are waited for;
            what it raises ends the play (`dfc.interruption.Stop.look`). All processes of a run call it equally often.

        Raises:
          ValueError: a remote player in a run of several processes, which must all do the same in the same order.
        """
        setting = Setting(
            config,
            tokenizer,
            engine,
            policy,
            opponent,
            opponent_name,
            dict(staff or {}),
            park_after,
            config.slots if most_parked is None else most_parked,
            sampling,
        )
        if setting.remotes and jax.process_count() > 1:
            raise ValueError(
                f"the remote player {setting.remotes[0].name!r} cannot play in a run of {jax.process_count()} "
                "processes: its replies reach each at another time; use one process, or an opponent in the engine"
            )
        for who in (opponent, *(staff or {}).values()):
            if not (who is None or isinstance(who, str | Remote) or hasattr(who, "act")):
                raise TypeError(
                    f"whoever answers must be a policy's name, a program with act(game, chance) or a remote player, got"
                    f" {type(who).__name__}; wrap a function: dfc.players.remote.Remote(function)"
                )
        if both_seats and opponent != policy:
            raise ValueError(f"both_seats needs the policy {policy!r} as its own opponent, got {opponent_name!r}")
        self._setting = setting
        self._both_seats = both_seats
        self._look = look or _nobody

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
        return [episodes[0] for episodes in self.play_all(jobs)]

    def play_all(self, jobs: Iterable[Job], *, ended: dict[int, list[Episode]] | None = None) -> list[list[Episode]]:
        """Plays every job, as `play` does; returns each job's episodes: one, or with `both_seats` one for each seat.

        Args:
          jobs: as for `play`.
          ended: filled with the episodes of every game that ended, by the number of its job: what there is of a play
            that was stopped.
        """
        return _Round(self._setting, jobs, self._look, ended, both_seats=self._both_seats).play()


def _nobody() -> None:
    """Nobody asks for a stop."""


class _Round:
    """One call of `Arena.play`: the games in flight and what each of them waits for."""

    def __init__(
        self,
        setting: Setting,
        jobs: Iterable[Job],
        look: Callable[[], None],
        ended: dict[int, list[Episode]] | None,
        *,
        both_seats: bool,
    ) -> None:
        self._setting = setting
        self._look = look
        # Hosts take the same number of turns, since they agree on every call; within a turn each has games of its own.
        self._look_within = look if jax.process_count() == 1 else _nobody
        self._both_seats = both_seats
        self._engine = setting.engine
        self._most_seats = setting.voices  # that one game keeps in the engine
        self._capacity = setting.engine.free
        self._jobs = enumerate(jobs)
        self._exhausted = False
        self._done: dict[int, list[Episode]] = {} if ended is None else ended
        self._answering: dict[int, Table] = {}  # by slot: the engine answers
        self._called: list[Table] = []  # a remote player answers, the longest wait first
        self._returning: collections.deque[Table] = collections.deque()  # were set aside and want a slot again
        self._tables: set[Table] = set()  # every game in flight
        self._games = 0  # holding slots, or about to
        self._taken = 0  # slots these games hold or may come to hold
        self._aside = 0  # games that gave their slot away

    def play(self) -> list[list[Episode]]:
        if self._capacity < self._most_seats:
            raise ValueError(
                f"a game keeps {self._most_seats} conversations in the engine, which has {self._capacity} free slots; "
                "make an engine with more slots"
            )
        try:
            while self._turn():
                pass
        except BaseException:
            for table in self._tables:  # the engine is the caller's and plays on if it can
                table.close()
            raise
        return [self._done[index] for index in range(len(self._done))]

    def _turn(self) -> bool:
        """Lets games begin, keeps the device busy, moves on the games that were answered; False at the end."""
        self._look()
        self._admit()
        while self._engine.in_flight < _IN_FLIGHT and self._engine.launch():
            pass
        if self._engine.in_flight:
            for reply in self._engine.collect():
                self._look_within()  # a player of another engine may take as long as a call for each reply
                table = self._answering.pop(reply.slot)
                self._go_on(table, table.heard(reply))
        elif self._called:
            self._wait(None if self._exhausted and not self._returning else max(self._setting.park_after, _PAUSE))
        elif self._answering:
            raise AssertionError(f"the engine has nothing to launch, but {len(self._answering)} slots were asked")
        else:
            return self._engine.anyone(bool(self._returning) or not self._exhausted)
        self._take_calls()
        return True

    def _go_on(self, table: Table, waits: Waits | None) -> None:
        """Notes whom a game waits for now, or that it is over."""
        if waits == "remote":
            self._called.append(table)
        elif waits == "engine" and table.aside:
            self._returning.append(table)
        elif waits == "engine":
            self._answering[table.ask()] = table
        else:
            table.close()
            if table.aside:
                self._aside -= 1
            else:
                self._leave(table)
            self._tables.discard(table)
            self._done[table.index] = table.episodes(both_seats=self._both_seats)

    # ---- remote players ---------------------------------------------------------------------------------------------

    def _wait(self, limit: float | None) -> None:
        """Waits until a remote player may have answered, `limit` seconds and `_LONGEST_WAIT` at most."""
        limit = _LONGEST_WAIT if limit is None else min(limit, _LONGEST_WAIT)
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
        waiting: list[Table] = []
        answered: list[Table] = []
        for table in self._called:
            (answered if table.call is not None and table.call.done else waiting).append(table)
        self._called = waiting
        for table in answered:
            self._go_on(table, table.called_back())

    # ---- room -------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Lets games in: first those that were set aside, then new ones."""
        while self._returning or not self._exhausted:
            back = self._returning[0] if self._returning else None
            seats = self._most_seats if back is None else len(back.voices)
            goes = None
            if not self._room(seats):
                # Where one comes back and another goes, no more are parked than before.
                goes = self._longest_wait(seats, self._setting.most_parked + (back is not None))
                if goes is None:
                    return
            if back is None:
                item = next(self._jobs, None)
                if item is None:
                    self._exhausted = True
                    return
                table = Table.laid(self._setting, *item)
            if goes is not None:
                self._set_aside(goes)
            if back is None:
                self._tables.add(table)
                self._enter(table)
                self._go_on(table, table.begin())
            else:
                self._returning.popleft()
                back.aside = False
                self._aside -= 1
                self._enter(back)
                self._go_on(back, "engine")

    def _room(self, seats: int, without: Table | None = None) -> bool:
        """Whether a game with so many conversations may come, now or once another one has gone."""
        gone, freed = (0, 0) if without is None else (1, len(without.voices))
        return self._games - gone < self._setting.config.slots and self._taken - freed + seats <= self._capacity

    def _enter(self, table: Table) -> None:
        self._games += 1
        self._taken += len(table.voices)

    def _leave(self, table: Table) -> None:
        self._games -= 1
        self._taken -= len(table.voices)

    def _longest_wait(self, seats: int, most: int) -> Table | None:
        """Returns the game whose slots a remote player has kept idle for longest, if that is too long.

        Args:
          seats: conversations that there must be room for afterwards.
          most: games that may be aside afterwards.
        """
        if self._aside >= most:
            return None
        before = time.monotonic() - self._setting.park_after
        overdue = (table for table in self._called if not table.aside and table.called_at <= before)
        return next((table for table in overdue if self._room(seats, without=table)), None)

    def _set_aside(self, table: Table) -> None:
        table.park()
        table.aside = True
        self._aside += 1
        self._leave(table)

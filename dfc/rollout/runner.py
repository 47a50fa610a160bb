"""Plays many games at once on one engine: which games begin, what each waits for, which release their slots meanwhile.

One engine answers for every seat that a model plays, whatever weights it plays with. Two of its calls are under way
at a time: while the device works on one, the games of the other advance. A remote player is waited for by its own game
only. What happens within a game is in `dfc.rollout.match`.

A game that fails ends its own episode, and all others continue. Errors of the engine and interrupts end the play, as
does a stop requested between two calls of the engine.
"""

import collections
import concurrent.futures
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax

from dfc.config import OpponentReplyConfig, RolloutConfig, SamplingConfig
from dfc.episodes import Episode
from dfc.inference.protocol import RolloutEngine
from dfc.models.chat import ChatTokenizer
from dfc.players.remote import Remote
from dfc.rollout.match import (
    MOST_ACTIONS,
    THINK_PROMPT,
    EpisodeSpec,
    Match,
    MatchContext,
    SeatPlayer,
    Waits,
    system_prompt,
)

__all__ = ["MOST_ACTIONS", "THINK_PROMPT", "EpisodeSpec", "RolloutRunner", "SeatPlayer", "all_failed", "system_prompt"]

_PAUSE = 0.01  # seconds; the least between two searches for a game to set aside
_LONGEST_WAIT = 1.0  # seconds for remote players, between two checks whether to stop
_IN_FLIGHT = 2  # calls of the engine: one computes while the games of the other move on


def all_failed(games: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Returns the names of which every game failed, each with its first failure: continuing would only spend time."""
    fine: set[str] = set()
    found: dict[str, str] = {}
    for name, failure in games:
        if failure is None:
            fine.add(name)
        else:
            found.setdefault(name, failure)
    return {name: failure for name, failure in found.items() if name not in fine}


class RolloutRunner:
    """Games between a policy and one kind of opponent, many at once, on one engine."""

    def __init__(
        self,
        config: RolloutConfig,
        tokenizer: ChatTokenizer,
        engine: RolloutEngine,
        *,
        policy: str = "policy",
        opponent: SeatPlayer | None = None,
        opponent_name: str,
        simulators: Mapping[str, SeatPlayer] | None = None,
        both_seats: bool = False,
        sampling: SamplingConfig | None = None,
        opponent_reply: OpponentReplyConfig | None = None,
        park_after: float = 1.0,
        most_parked: int | None = None,
        check_stop: Callable[[], None] | None = None,
    ) -> None:
        """Prepares the play.

        Args:
          config: limits and prompt; `slots` games are in flight at once, or as many as the engine has slots for.
          tokenizer: renders observations and reads replies.
          engine: answers for `EpisodeSpec.seat`. Two conversations of each game keep a slot where the opponent is a
            policy, so it needs twice `config.slots` of them, and one more for each simulator that is one; fewer mean
            fewer games at once.
          policy: whose weights, among those the engine knows by name, play `EpisodeSpec.seat`.
          opponent: the other seat: the name of a policy the engine knows, a scripted player, or a remote one; None
            where only single-player games come.
          opponent_name: written to each episode.
          simulators: who plays a game's simulators, by role, e.g. ``{"world": endpoint, "judge": endpoint}``, where
            games have any (`GameInfo.simulators`); for a role that is not named, the game's script. Policies among
            them are sampled greedily.
          both_seats: where the opponent is the policy itself, a game of two seats gives an episode for each of them;
            disturbances (`EpisodeSpec.random_action_rate`) are of the spec's seat only.
          sampling: how tokens of players that are policies are sampled; None: as the engine does by default.
          opponent_reply: how the opponent replies where it is a policy; None: as the learner.
          park_after: seconds. A game that has waited longer for a remote player gives its slot to the next spec, if
            there is one; its cache waits in the host's memory.
          most_parked: games that may wait so; by default `config.slots`.
          check_stop: called before every call of the engine, and at least once a second while remote players are waited
            for; its exception aborts the play (`dfc.runs.stop_signals.Stop.check_stop`). All processes of a run call it
            equally often.

        Raises:
          ValueError: a remote player in a run of several processes, which must all do the same in the same order.
        """
        context = MatchContext(
            config,
            tokenizer,
            engine,
            policy,
            opponent,
            opponent_name,
            dict(simulators or {}),
            park_after,
            config.slots if most_parked is None else most_parked,
            sampling,
            opponent_reply or OpponentReplyConfig(),
        )
        if context.remotes and jax.process_count() > 1:
            raise ValueError(
                f"the remote player {context.remotes[0].name!r} cannot play in a run of {jax.process_count()} "
                "processes: its replies reach each at another time; use one process, or an opponent in the engine"
            )
        for who in (opponent, *(simulators or {}).values()):
            if not (who is None or isinstance(who, str | Remote) or hasattr(who, "act")):
                raise TypeError(
                    f"a player must be a policy's name, a scripted player with act(game, rng) or a remote "
                    f"player, got {type(who).__name__}; wrap a function: dfc.players.remote.FunctionPlayer(function)"
                )
        if both_seats and opponent != policy:
            raise ValueError(f"both_seats needs the policy {policy!r} as its own opponent, got {opponent_name!r}")
        self._context = context
        self._both_seats = both_seats
        self._check_stop = check_stop or _no_stop

    def play(self, specs: Iterable[EpisodeSpec]) -> list[Episode]:
        """Plays every episode spec; returns the episodes in the order of the specs.

        An episode depends on its spec, the weights and a remote player's replies only: not on the other specs, their
        number or their order (up to rounding: the same tokens on one machine, log-probabilities within 1e-5 in
        float32).

        A game or opponent that raises ends its episode with `Episode.failure` set and every outcome truncated; the
        caller decides what failed episodes mean (they are nothing to train on). Specs of a list or tuple are all
        checked before a game begins; of anything else each is read, and checked, once there is room for its game.

        Raises:
          ValueError: the engine has too few free slots for a single game, or a spec is wrong: no such game, option or
            seat, two seats and no opponent, or a `random_action_rate` that is no share.
        """
        return [episodes[0] for episodes in self.play_all(specs)]

    def play_all(
        self, specs: Iterable[EpisodeSpec], *, ended: dict[int, list[Episode]] | None = None
    ) -> list[list[Episode]]:
        """Plays every spec, as `play` does; returns each spec's episodes: one, or with `both_seats` one for each seat.

        `ended` is filled with the episodes of every game that ended, by the number of its spec: what there is of a play
        that was stopped.
        """
        if isinstance(specs, list | tuple):
            self._check(specs)
        return _RolloutRun(self._context, specs, self._check_stop, ended, both_seats=self._both_seats).play()

    def _check(self, specs: Sequence[EpisodeSpec]) -> None:
        """Raises the ValueError of a wrong spec; those that only differ in their seeds are alike."""
        alike = {(spec.game, id(spec.options), spec.seat, spec.random_action_rate): spec for spec in specs}
        for spec in alike.values():
            self._context.seated(spec)


def _no_stop() -> None:
    """The default: never stops."""


class _RolloutRun:
    """One call of `RolloutRunner.play`: the games in flight and what each of them waits for."""

    def __init__(
        self,
        context: MatchContext,
        specs: Iterable[EpisodeSpec],
        check_stop: Callable[[], None],
        ended: dict[int, list[Episode]] | None,
        *,
        both_seats: bool,
    ) -> None:
        self._context = context
        self._check_stop = check_stop
        # Hosts take the same number of turns, since they agree on every call; within a turn each has games of its own.
        self._check_stop_within = check_stop if jax.process_count() == 1 else _no_stop
        self._both_seats = both_seats
        self._engine = context.engine
        self._most_seats = context.transcripts_per_match  # that one game keeps in the engine
        self._capacity = context.engine.free
        self._specs = enumerate(specs)
        self._exhausted = False
        self._done: dict[int, list[Episode]] = {} if ended is None else ended
        self._waiting_for_engine: dict[int, Match] = {}  # by slot: the engine answers
        self._waiting_for_remote: list[Match] = []  # a remote player answers, the longest wait first
        self._waiting_for_slots: collections.deque[Match] = collections.deque()  # were set aside and need a slot again
        self._matches: set[Match] = set()  # every game in flight
        self._num_active = 0  # holding slots, or about to
        self._slots_taken = 0  # slots these games hold or may come to hold
        self._num_parked = 0  # games that released their slot

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
            for match in self._matches:  # the engine is the caller's and plays on if it can
                match.close()
            raise
        return [self._done[index] for index in range(len(self._done))]

    def _turn(self) -> bool:
        """Starts games, keeps the device busy, advances the games that were answered; False at the end."""
        self._check_stop()
        self._admit()
        while self._engine.in_flight < _IN_FLIGHT and self._engine.launch():
            pass
        if self._engine.in_flight:
            for reply in self._engine.collect():
                self._check_stop_within()  # a player of another engine may take as long as a call for each reply
                match = self._waiting_for_engine.pop(reply.slot)
                self._dispatch(match, match.on_engine_reply(reply))
        elif self._waiting_for_remote:
            self._wait(
                None if self._exhausted and not self._waiting_for_slots else max(self._context.park_after, _PAUSE)
            )
        elif self._waiting_for_engine:
            raise AssertionError(
                f"the engine has nothing to launch, but {len(self._waiting_for_engine)} slots were asked"
            )
        else:
            return self._engine.anyone(bool(self._waiting_for_slots) or not self._exhausted)
        self._take_calls()
        return True

    def _dispatch(self, match: Match, waits: Waits | None) -> None:
        """Records what a game waits for now, or that it is over."""
        if waits == "remote":
            self._waiting_for_remote.append(match)
        elif waits == "engine" and match.parked:
            self._waiting_for_slots.append(match)
        elif waits == "engine":
            self._waiting_for_engine[match.ask()] = match
        else:
            match.close()
            if match.parked:
                self._num_parked -= 1
            else:
                self._leave(match)
            self._matches.discard(match)
            self._done[match.index] = match.episodes(both_seats=self._both_seats)

    # ---- remote players ---------------------------------------------------------------------------------------------

    def _wait(self, limit: float | None) -> None:
        """Waits until a remote player may have answered, `limit` seconds and `_LONGEST_WAIT` at most."""
        limit = _LONGEST_WAIT if limit is None else min(limit, _LONGEST_WAIT)
        calls = [match.call for match in self._waiting_for_remote if match.call is not None]
        concurrent.futures.wait(calls, limit, return_when=concurrent.futures.FIRST_COMPLETED)

    def _take_calls(self) -> None:
        """Advances the games whose remote player has answered or failed."""
        waiting: list[Match] = []
        answered: list[Match] = []
        for match in self._waiting_for_remote:
            (answered if match.call is not None and match.call.done() else waiting).append(match)
        self._waiting_for_remote = waiting
        for match in answered:
            self._dispatch(match, match.on_remote_reply())

    # ---- room -------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Starts or resumes games: first those that were set aside, then new ones."""
        while self._waiting_for_slots or not self._exhausted:
            returning = self._waiting_for_slots[0] if self._waiting_for_slots else None
            seats = self._most_seats if returning is None else len(returning.transcripts)
            evicted = None
            if not self._room(seats):
                # Where one comes back and another goes, no more are parked than before.
                evicted = self._longest_wait(seats, self._context.most_parked + (returning is not None))
                if evicted is None:
                    return
            if returning is None:
                item = next(self._specs, None)
                if item is None:
                    self._exhausted = True
                    return
                match = Match.create(self._context, *item)
            if evicted is not None:
                self._park(evicted)
            if returning is None:
                self._matches.add(match)
                self._enter(match)
                self._dispatch(match, match.start())
            else:
                self._waiting_for_slots.popleft()
                returning.parked = False
                self._num_parked -= 1
                self._enter(returning)
                self._dispatch(returning, "engine")

    def _room(self, seats: int, without: Match | None = None) -> bool:
        """Whether a game with so many conversations may come, now or once another one has gone."""
        gone, freed = (0, 0) if without is None else (1, len(without.transcripts))
        return (
            self._num_active - gone < self._context.config.slots and self._slots_taken - freed + seats <= self._capacity
        )

    def _enter(self, match: Match) -> None:
        self._num_active += 1
        self._slots_taken += len(match.transcripts)

    def _leave(self, match: Match) -> None:
        self._num_active -= 1
        self._slots_taken -= len(match.transcripts)

    def _longest_wait(self, seats: int, most: int) -> Match | None:
        """Returns the game whose slots a remote player has kept idle for longest, if that is too long.

        Afterwards there must be room for `seats` conversations, and at most `most` games may be set aside.
        """
        if self._num_parked >= most:
            return None
        before = time.monotonic() - self._context.park_after
        overdue = (match for match in self._waiting_for_remote if not match.parked and match.called_at <= before)
        return next((match for match in overdue if self._room(seats, without=match)), None)

    def _park(self, match: Match) -> None:
        match.park()
        match.parked = True
        self._num_parked += 1
        self._leave(match)

"""The protocol every game keeps: seats, turns, observations, legal actions, outcomes.

The rules never call a model and never see a token. A driver shows `observation(seat)` to the seat to move and hands
the reply to `step`, which extracts one action from it (`dfc.games.parsing`).

Conventions: players sit on seats 0 and 1; an action is what a player writes in the game's grammar, such as
``[col 3]``; exactly one action is played per turn. A game whose world cannot be computed has simulators as well: they
sit on the seats after the players', answer in words (a chat model, a script), and win or lose nothing.
"""

import abc
import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypedDict

from dfc.games.outcomes import NOT_OF_FORM, UNREADABLE, GameInfo, Outcome, Verdict
from dfc.games.parsing import THOUGHT, extract_action, spoken, text_after_thought
from dfc.games.rng import GameRng

__all__ = ["NOT_OF_FORM", "UNREADABLE", "Common", "Game", "GameInfo", "Outcome", "Verdict"]


class Common(TypedDict, total=False):
    """Constructor values that every game has; a game takes them as ``**common: Unpack[Common]`` and hands them on."""

    illegal_allowance: int
    malformed_allowance: int
    history: bool


class Game(abc.ABC):
    """One game in progress. Subclasses hold the rules; this class holds turns, news, tries and outcomes.

    A subclass sets the class variables `seats`, `start` and `grammar`, defines keyword-only constructor values with
    defaults, and implements `max_game_length`, `_begin`, `_rules`, `_read`, `_objection`, `_play`, `legal_actions`,
    `_state` and `_restore`. Where actions are no single bracketed group it also sets `extract`, and `is_action` if
    words are free; where more can be said than can be listed, `open_actions`; where simulators answer, `simulators` and
    `_answered`; where the players are one team, `team` and `player_roles`.

    Attributes:
      id: the registered id.
      illegal_allowance: how many illegal replies in a row are answered with another try; the next one forfeits.
      malformed_allowance: the same for replies in which no action could be read, or that are not of the form asked for.
      history: whether an observation repeats everything since the start, the seat's own actions included, instead of
        what is new since its last reply; for players without a memory.
      to_move: the seat to move, or None before `reset` and after the end.
      outcomes: one per player after the end, else None.
      illegal_tries: per seat, illegal replies so far (a legal move does not clear this count).
      malformed_tries: the same of malformed replies; as there, one that forfeits counts.
      forfeited_by: the seat whose invalid reply ended the game, or None.
      abort_reason: why the rules broke the game off (`_abort`), or how a team's player forfeited, as text, or None.
      lost_by: the seat of a team whose reply against the rules lost the game for all (`_lost`), or None.
      loss_reason: what was wrong with it, as text, or None.
      discarded: why a simulator could not be used, which ended the game, or None.
      actions_played: number of legal actions of players so far.
    """

    seats: ClassVar[int]
    start: ClassVar[Literal["fixed", "random"]]
    grammar: ClassVar[str] = ""
    open_actions: ClassVar[bool] = False
    # False only where nobody knows what is legal but by trying: `legal_actions` is then always [].
    lists_actions: ClassVar[bool] = True
    # True where training would be worth nothing: a win needs no skill, or the game is kept to measure what was learned
    # elsewhere. Recipes that train on what they play, or collect data to train on, refuse it.
    evaluation_only: ClassVar[bool] = False
    simulators: ClassVar[tuple[str, ...]] = ()
    splits: ClassVar[Mapping[str, int]] = {}
    # True where the players win and lose together: every end is the same for all seats, a win, a loss, or INVALID.
    team: ClassVar[bool] = False
    # What the players are called, one for each seat, such as ("describer", "guesser"); () where they are alike.
    player_roles: ClassVar[tuple[str, ...]] = ()
    # True where `measures` has "quality", from 0 to 100, after every game that was neither broken off nor truncated.
    has_quality: ClassVar[bool] = False
    # True where texts for players have several lines, or letters beyond ASCII, or words of another's source: the check
    # then says nothing about their layout.
    free_layout: ClassVar[bool] = False
    # (illegal, malformed): the allowances where a constructor value does not say otherwise.
    default_allowances: ClassVar[tuple[int, int]] = (1, 0)
    # Roles (of simulators, or ``player``) without a memory: each of their replies belongs to a conversation of its own,
    # and begins with the rules again.
    stateless_roles: ClassVar[frozenset[str]] = frozenset()
    # Tokens of one reply of a player that the game's source allows; None: as many as the driver does.
    max_reply_tokens: ClassVar[int | None] = None
    # Replies of a simulator to one question of which one must be usable, or the game is discarded.
    simulator_tries: ClassVar[int] = 5

    def __init__(
        self, *, illegal_allowance: int | None = None, malformed_allowance: int | None = None, history: bool = False
    ) -> None:
        illegal_allowance = self.default_allowances[0] if illegal_allowance is None else illegal_allowance
        malformed_allowance = self.default_allowances[1] if malformed_allowance is None else malformed_allowance
        if illegal_allowance < 0:
            raise ValueError(f"illegal_allowance must be 0 or more, got {illegal_allowance}")
        if malformed_allowance < 0:
            raise ValueError(f"malformed_allowance must be 0 or more, got {malformed_allowance}")
        self.id = type(self).__name__
        self.illegal_allowance = illegal_allowance
        self.malformed_allowance = malformed_allowance
        self.history = history
        self.rng = GameRng(0)
        self.to_move: int | None = None
        self._clear()

    def _clear(self) -> None:
        everyone = range(self.seats + len(self.simulators))
        self.outcomes: tuple[Outcome, ...] | None = None
        self.illegal_tries = [0] * self.seats
        self.malformed_tries = [0] * self.seats
        self.forfeited_by: int | None = None
        self.abort_reason: str | None = None
        self.lost_by: int | None = None
        self.loss_reason: str | None = None
        self.discarded: str | None = None
        self.actions_played = 0
        self._illegal_in_a_row = 0
        self._malformed_in_a_row = 0
        self._refused_in_a_row = 0
        self._news: list[list[str]] = [[] for _ in everyone]
        self._past: list[list[str]] = [[] for _ in everyone]  # news already replied to and replies; with history only
        self._rules_pending = [True for _ in everyone]
        self._aside: tuple[int, str, str] | None = None  # seat, question, and why its last reply was refused, or ""

    # ---- the rules, by subclass -------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def max_game_length(self) -> int:
        """Largest number of legal actions a game can take."""

    @abc.abstractmethod
    def _begin(self) -> int:
        """Sets up the first position (draws from `self.rng`), tells seats their news; returns who moves first."""

    @abc.abstractmethod
    def _rules(self, seat: int) -> str:
        """What a seat is told once, before its first turn."""

    @abc.abstractmethod
    def _read(self, action: str) -> str | None:
        """Returns the action in its canonical spelling, or None if it is no action of this game's grammar."""

    @abc.abstractmethod
    def _objection(self, action: str) -> str | None:
        """Returns why a canonical action is against the rules now, as shown to the player, or None if it is legal."""

    @abc.abstractmethod
    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        """Plays a legal canonical action, tells seats the news; returns who moves next, or the outcomes.

        `_ask_aside` and `_abort` return what it may return. While it plays the reply to an aside, `aside` is True.
        """

    @abc.abstractmethod
    def legal_actions(self) -> list[str]:
        """Returns the legal actions of the player to move, canonical, in a fixed order; [] after the end.

        Every one of them, unless `open_actions`: then a selection, e.g. words from a list or sentences for free talk.
        [] also while a simulator is to move, and always where `lists_actions` is False.
        """

    @abc.abstractmethod
    def _state(self) -> dict[str, Any]:
        """Returns the position as JSON-ready data that shares no list with the game; `_restore` inverts it."""

    @abc.abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Sets the position from `_state`'s data, keeping none of its lists."""

    def _answered(self, seat: int, reply: str) -> str | int | tuple[Outcome, ...]:
        """Takes a simulator's reply: returns why it cannot be used, as a text for the simulator; or, like `_play`.

        A reply that is refused must leave the position as it was.
        """
        what = f"{self.id} has simulators {self.simulators} and does not define how their replies are used"
        raise NotImplementedError(what)

    def extract(self, reply: str) -> str | None:
        """Returns the one action written in a reply, as `_read` takes it, or None; the only bracketed group here."""
        return extract_action(reply)

    def is_action(self, said: str) -> bool:
        """Returns whether a text is, as a whole, what this game's grammar calls one action: nothing stands beside it.

        Here: it is what `extract` finds in it, white space aside. Games of free words override this.
        """
        found = self.extract(said)
        return found is not None and "".join(found.split()) == "".join(said.split())

    def _form(self) -> str:
        """Returns what the seat to move is told that a reply looks like; here the `grammar`, whoever it is."""
        return self.grammar

    def well_formed(self, reply: str) -> bool:
        """Returns whether a reply is one block of thought, ``<think>...</think>``, and after it one action alone.

        A player that was told to think first is held to it by the driver (`step`); the rules know of no prompt.
        """
        said = text_after_thought(reply)
        return said is not None and self.is_action(said)

    def measures(self) -> dict[str, float]:
        """Returns figures of this game beside its outcome, such as the number of trades; {} where there are none.

        With `has_quality` one of them is ``quality``, from 0 to 100, exactly where the game came to its end: it is
        absent before, and where the outcome is INVALID or TRUNCATED.
        """
        return {}

    def allowances(self, seat: int) -> tuple[int, int]:
        """Returns how many illegal and how many malformed replies in a row of a seat are answered with another try.

        Here: `illegal_allowance` and `malformed_allowance`. A game in which they depend on role or phase overrides it.
        """
        del seat
        return self.illegal_allowance, self.malformed_allowance

    def standing(self) -> tuple[Outcome, ...] | None:
        """Returns the standing of an unfinished game by its own measure, such as chips; None where it has none.

        WIN and LOSS, or DRAW for all, one per player. It changes nothing.
        """
        return None

    def board_text(self) -> str | None:
        """Returns the board for a person to see; None where there is none, where it is hidden, or told anyway."""
        return None

    # ---- playing ----------------------------------------------------------------------------------------------

    @property
    def info(self) -> GameInfo:
        """What is known before the start."""
        return GameInfo(
            id=self.id,
            seats=self.seats,
            start=self.start,
            max_game_length=self.max_game_length,
            grammar=self.grammar,
            open_actions=self.open_actions,
            simulators=self.simulators,
            splits=self.splits,
            lists_actions=self.lists_actions,
            evaluation_only=self.evaluation_only,
            team=self.team,
            player_roles=self.player_roles,
            has_quality=self.has_quality,
        )

    def role(self, seat: int) -> str:
        """Returns the role of a seat: ``player``, or the role of a simulator."""
        return "player" if seat < self.seats else self.simulators[seat - self.seats]

    def player_role(self, seat: int) -> str:
        """Returns the name of a seat's role: the player's role of `player_roles`, where there are any, or `role`."""
        return self.player_roles[seat] if seat < len(self.player_roles) else self.role(seat)

    def seat_of(self, player_role: str) -> int:
        """Returns the seat of a role of `player_roles`.

        Raises:
          ValueError: the game has no such role.
        """
        if player_role not in self.player_roles:
            known = (
                f"its roles are {', '.join(self.player_roles)}" if self.player_roles else "its players have no roles"
            )
            raise ValueError(f"{self.id}: there is no role {player_role!r} of a player; {known}")
        return self.player_roles.index(player_role)

    @property
    def aside(self) -> bool:
        """Whether what the seat to move is asked now stays out of its conversation, the question and the reply."""
        return self._aside is not None

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return self.outcomes is not None

    def reset(self, seed: int) -> None:
        """Starts a new game; the seed alone determines every deal and roll of it."""
        self.rng = GameRng(seed)
        self._clear()
        self.to_move = self._begin()

    def observation(self, seat: int) -> str:
        """Returns what is new for a seat since its last reply: the rules first, then the news, one item a line.

        With `history` everything since the start, again. For a seat that is asked aside it is the question instead of
        the news, which wait for the next ordinary turn; so do the rules, which are shown before it if they are new.

        Raises:
          ValueError: the game has no such seat (a negative one would show another seat's secrets).
        """
        if not 0 <= seat < len(self._news):
            raise ValueError(f"{self.id}: seat must be from 0 to {len(self._news) - 1}, got {seat}")
        lines = [self._rules(seat)] if self._rules_pending[seat] or self.history else []
        news = self._news[seat]
        if self._aside is not None and self._aside[0] == seat:
            news = [line for line in self._aside[1:] if line]
        return "\n".join(lines + self._past[seat] + news)

    def step(self, reply: str, *, well_formed: bool = True) -> Verdict:
        """Takes the reply of the seat to move: reads one action, plays it, or asks again, or ends the game.

        A player's reply that is not `well_formed`, not of the form that this player was asked for, counts as malformed,
        whatever it says.

        Raises:
          ValueError: the game has not begun or is over.
        """
        seat = self._mover()
        if seat >= self.seats:
            return self._step_simulator(seat, reply)
        said = spoken(reply) if well_formed else None  # a game does not read thoughts
        action = None if said is None else self._canonical(said)
        self._replied(seat, action)
        if action is None:
            self.malformed_tries[seat] += 1
            self._malformed_in_a_row += 1
            if well_formed:
                why = f"{UNREADABLE} Reply in the form {self._form()}."
            else:
                form = f"Think once, {THOUGHT}, then write {self._form()} and nothing else."
                why = f"{NOT_OF_FORM} {form}"
            if self._malformed_in_a_row > self.allowances(seat)[1]:
                self._forfeit(seat, why)
                return Verdict.FORFEIT_MALFORMED
            self._refuse(seat, f"{why} Try again.")
            return Verdict.MALFORMED
        self._malformed_in_a_row = 0
        objection = self._objection(action)
        if objection is not None:
            self.illegal_tries[seat] += 1
            self._illegal_in_a_row += 1
            if self._illegal_in_a_row > self.allowances(seat)[0]:
                self._forfeit(seat, objection.removesuffix(" Try again."))
                return Verdict.FORFEIT_ILLEGAL
            self._refuse(seat, objection)
            return Verdict.ILLEGAL
        self._illegal_in_a_row = 0
        self.actions_played += 1
        asked = self._aside
        result = self._play(action)
        if self._aside is asked:  # `_play` has not put another question
            self._aside = None
        self._go_on(result)
        return Verdict.PLAYED

    def _refuse(self, seat: int, why: str) -> None:
        """Tells a seat why its reply was not played; to an aside, which leaves no trace, the question is put again."""
        if self._aside is None:
            self._tell(seat, why)
        else:
            self._aside = (*self._aside[:2], why)

    def _canonical(self, reply: str) -> str | None:
        """Returns the canonical spelling of a reply's action, or None; games whose `extract` gives it read once.

        It is given what the reply says aloud (`spoken`).
        """
        extracted = self.extract(reply)
        return None if extracted is None else self._read(extracted)

    def _step_simulator(self, seat: int, reply: str) -> Verdict:
        asked = self._news[seat]
        self._replied(seat, " ".join((spoken(reply) or "").split()))
        result = self._answered(seat, reply)
        if not isinstance(result, str):
            self._refused_in_a_row = 0
            self._go_on(result)
            return Verdict.PLAYED
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= self.simulator_tries:
            useless = f"{self.simulator_tries} replies in a row that are of no use"
            self.discarded = f"the {self.role(seat)} gave {useless}, the last: {result}"
            self._end((Outcome.TRUNCATED,) * self.seats)
            return Verdict.DISCARDED
        if self._rules_pending[seat]:  # a conversation of its own: the question must be asked again
            self._news[seat] = asked
        self._tell(seat, result)
        return Verdict.REFUSED

    def _replied(self, seat: int, said: str | None) -> None:
        """Records that a seat has seen its news and replied; an aside leaves no trace."""
        if self._aside is not None:
            return
        forgets = self.role(seat) in self.stateless_roles
        if self.history and not forgets:
            self._past[seat] += [*self._news[seat], f"You: {said or '(nothing that could be read)'}"]
        self._news[seat] = []
        self._rules_pending[seat] = forgets

    def _go_on(self, result: int | tuple[Outcome, ...]) -> None:
        if not isinstance(result, int):
            self._end(result)
            return
        if self._aside is not None and self._aside[0] != result:
            raise ValueError(f"{self.id}: seat {self._aside[0]} was asked aside, but seat {result} moves next")
        self.to_move = result

    def truncate(self) -> None:
        """Stops the game from outside: every seat's outcome becomes TRUNCATED."""
        if not self.over:
            self._end((Outcome.TRUNCATED,) * self.seats)

    def stop(self) -> None:
        """Stops the game at a driver's limit of actions: `standing` decides, and without one it is truncated.

        Raises:
          ValueError: `standing` is not one WIN, DRAW or LOSS per player.
        """
        if self.over:
            return
        found = self.standing()
        if found is None:
            self.truncate()
            return
        if len(found) != self.seats or not {*found} <= {Outcome.WIN, Outcome.DRAW, Outcome.LOSS}:
            raise ValueError(f"{self.id}: standing() must be win, draw or loss for each of {self.seats}, got {found}")
        self._end(found)

    # ---- copies and records -----------------------------------------------------------------------------------

    def clone(self) -> Self:
        """Returns an independent copy: the same actions lead both to the same positions and rolls."""
        twin = copy.copy(self)
        # deepcopy would also copy the tables that every game of a class shares and is 20 times slower.
        twin.rng = GameRng(self.rng.seed, self.rng.draws)
        twin.illegal_tries = list(self.illegal_tries)
        twin.malformed_tries = list(self.malformed_tries)
        twin._news = [list(lines) for lines in self._news]  # noqa: SLF001 (its own class)
        twin._past = [list(lines) for lines in self._past]  # noqa: SLF001 (its own class)
        twin._rules_pending = list(self._rules_pending)  # noqa: SLF001 (its own class)
        twin._restore(self._state())  # noqa: SLF001 (its own class)
        return twin

    def to_json(self) -> dict[str, Any]:
        """Returns the whole state as JSON-ready data; constructor values are not part of it."""
        return {
            "chance": [self.rng.seed, self.rng.draws],
            "to_move": self.to_move,
            "outcomes": None if self.outcomes is None else [str(o) for o in self.outcomes],
            "illegal_tries": list(self.illegal_tries),
            "malformed_tries": list(self.malformed_tries),
            "forfeited_by": self.forfeited_by,
            "actions_played": self.actions_played,
            "discarded": self.discarded,
            "in_a_row": [self._illegal_in_a_row, self._malformed_in_a_row, self._refused_in_a_row],
            "past": [list(lines) for lines in self._past],
            "news": [list(lines) for lines in self._news],
            "rules_pending": list(self._rules_pending),
            **({} if self._aside is None else {"aside": list(self._aside)}),
            **({} if self.abort_reason is None else {"abort_reason": self.abort_reason}),
            **({} if self.lost_by is None else {"lost_by": self.lost_by, "loss_reason": self.loss_reason}),
            "state": self._state(),
        }

    def from_json(self, data: dict[str, Any]) -> None:
        """Sets the whole state from `to_json`'s data, on a game made with the same constructor values."""
        self.rng = GameRng(*data["chance"])
        self.to_move = data["to_move"]
        self.outcomes = None if data["outcomes"] is None else tuple(Outcome(o) for o in data["outcomes"])
        self.illegal_tries = list(data["illegal_tries"])
        self.malformed_tries = list(data["malformed_tries"])
        self.forfeited_by = data["forfeited_by"]
        self.actions_played = data["actions_played"]
        self.discarded = data["discarded"]
        self._illegal_in_a_row, self._malformed_in_a_row, self._refused_in_a_row = data["in_a_row"]
        self._past = [list(lines) for lines in data["past"]]
        self._news = [list(lines) for lines in data["news"]]
        self._rules_pending = list(data["rules_pending"])
        self._aside = tuple(data["aside"]) if "aside" in data else None
        self.abort_reason = data.get("abort_reason")
        self.lost_by, self.loss_reason = data.get("lost_by"), data.get("loss_reason")
        self._restore(data["state"])

    # ---- for subclasses ---------------------------------------------------------------------------------------

    def _mover(self) -> int:
        """Returns the seat to move where there must be one."""
        if self.to_move is None:
            raise ValueError(f"{self.id}: step() after the end or before reset(); check `over` first")
        return self.to_move

    def _tell(self, seat: int, line: str) -> None:
        self._news[seat].append(line)

    def _tell_all(self, line: str) -> None:
        for news in self._news[: self.seats]:
            news.append(line)

    def _won_by(self, seat: int) -> tuple[Outcome, ...]:
        return tuple(Outcome.WIN if s == seat else Outcome.LOSS for s in range(self.seats))

    def _drawn(self) -> tuple[Outcome, ...]:
        return (Outcome.DRAW,) * self.seats

    def _team(self, outcome: Outcome) -> tuple[Outcome, ...]:
        """Returns an outcome that all seats of a team share."""
        return (outcome,) * self.seats

    def _abort(self, why: str, by: int | None = None) -> tuple[Outcome, ...]:
        """Breaks off the game of a team or of a single player: for `_play` and `_answered` to return.

        `why` is for the record, not shown to players; `by` is the seat whose reply is the reason; None where it is no
        reply, such as at the game's own limit of turns.

        Raises:
          ValueError: the players are no team, or there is no such seat.
        """
        if self.seats > 1 and not self.team:
            raise ValueError(
                f"{self.id}: _abort() is for a team or a single player; a reply that cannot be used forfeits"
            )
        if by is not None and not 0 <= by < self.seats:
            raise ValueError(f"{self.id}: _abort(by=...) must be a seat from 0 to {self.seats - 1} or None, got {by}")
        self.abort_reason = why
        self.forfeited_by = by
        return self._team(Outcome.INVALID)

    def _lost(self, by: int, why: str) -> tuple[Outcome, ...]:
        """Ends a team's game as a loss for all by one seat's reply against the rules: for `_play` to return.

        A loss without a seat to blame, such as after the last wrong guess, is ``self._team(Outcome.LOSS)``. `why` is
        for the record, not shown to players.

        Raises:
          ValueError: the players are no team, or there is no such seat.
        """
        if not self.team:
            raise ValueError(
                f"{self.id}: _lost() is for a team; where seats win and lose apart, return `_won_by(seat)`"
            )
        if not 0 <= by < self.seats:
            raise ValueError(f"{self.id}: _lost(by=...) must be a seat from 0 to {self.seats - 1}, got {by}")
        self.lost_by, self.loss_reason = by, why
        return self._team(Outcome.LOSS)

    def _ask_aside(self, seat: int, question: str) -> int:
        """Puts a question to a player that leaves no trace in its conversation; returns the seat, as `_play` does.

        The next reply is its answer: `_read`, `_objection` and `_play` take it as any other. What the seat was told
        before waits for its next ordinary turn. Several asides may follow each other.

        Raises:
          ValueError: a simulator has that seat, or nobody, or the question is empty.
        """
        if not 0 <= seat < self.seats:
            raise ValueError(f"{self.id}: players on seats 0 to {self.seats - 1} can be asked aside, got {seat}")
        if not question:
            raise ValueError(f"{self.id}: what seat {seat} is asked aside is empty")
        self._aside = (seat, question, "")
        return seat

    def _end(self, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes = outcomes
        self.to_move = None
        self._aside = None

    def _forfeit(self, seat: int, why: str) -> None:
        self.forfeited_by = seat
        if self.team or self.has_quality:
            self.abort_reason = why
        if self.team:
            self._end(self._team(Outcome.INVALID))
            return
        self._end(tuple(Outcome.INVALID if s == seat else Outcome.WIN for s in range(self.seats)))

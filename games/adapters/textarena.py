"""Games of the installed TextArena package (0.6.4 or 0.7.4), played through it: ids ``textarena:<its id>``.

    game = registry.make("textarena:Othello-v0", max_actions=300)

The package keeps its randomness in Python's global generator (two of its games also use numpy's). Here every reset and
every step runs under one lock of the process with both generators seeded from (seed of the game, replies so far), and
puts back what was there. So the seed alone decides a game, games in several threads do not disturb each other, and the
caller's generators are as they were. Random numbers that other code takes in another thread meanwhile are not guarded.
"""

import contextlib
import difflib
import functools
import platform
import random
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from dfc.games import loading, registry
from dfc.games.adapters.foreign import Foreign
from dfc.games.game import Common, Outcome
from dfc.games.parsing import extract_action, spoken
from dfc.games.rng import derive_seed

_LONGEST_GROUP = 200  # characters of an action in brackets
_LONGEST_TALK = 4000  # Python converts up to 4300 digits; the package converts what it finds
_PATIENCE = 10**9  # errors the package forgives: `illegal_allowance` alone decides
_VARIANTS = ("-raw", "-train")  # of 0.7.4: other observations of the same game
_TALKERS = (  # games in which the words around a bracket, or words alone, count; by the beginning of the id
    "CharacterConclave", "Debate", "DontSayIt", "EmojiCharade", "GuessWho", "IteratedPrisonersDilemma",
    "IteratedStagHunt", "IteratedUltimatumGame", "Negotiation", "NewRecruit", "ScenarioPlanning", "ScorableGames",
    "SecretMafia", "SimpleBlindAuction", "SimpleNegotiation", "Taboo", "TruthAndDeception", "TwentyQuestions",
    "TwoDollar", "UsedCar",
)  # fmt: skip
_REASON = re.compile(r"Reason: (.*?) ?(?:Please resubmit|$)", re.DOTALL)
_LOCK = threading.RLock()


class TextArena(Foreign):
    """A game of the TextArena package for one or two players; `registry.kind` makes a subclass for every id.

    Rules: the package's, of the installed version. Its wrappers are taken off and the observation is written here: the
    prompt on one line, then what the package tells the seat, the opponent's words after "Opponent:"; blank lines and
    the seat's own words are left out, everything else (boards, its wording, its characters) is as it comes. So unlike
    this package's own games, news can name "Player 0", begin with blanks and hold other characters than ASCII.

    Action: with `talk` all that is said, on one line, cut after 4000 characters. Else the only bracketed group of the
    reply, which alone is handed on; of more than 200 characters it is unreadable. The package decides what is legal.

    `legal_actions` is always [], also while the game goes on: the package has no list (`lists_actions` is False).
    Whoever needs one (random-legal play, constrained sampling, disturbance by random actions) goes without.

    How an ending is read: two players are compared by their rewards, more wins and equal ones are a draw, so a reward
    outside [-1, 1] does no harm. One player has won with a reward of 1 or more; less is a loss, but in 0.6.4, which
    calls its turn limit a draw, a reward from 0 to below 1 is a draw. Partial credit never counts as a win.

    Differs from the package:
      - An illegal reply changes nothing, and only the offender hears of it (digits of the reason are shown as #).
        `illegal_allowance` says how many there may be in a row; then the offender has lost and the other one has won.
        The package's own counting is switched off, since some of its games never end by it.
      - At most `max_actions` actions, then both outcomes are TRUNCATED (some of its games have no limit).
      - An error raised inside the package ends the game as discarded, not as lost, at the first step or later; one
        that is raised while it begins leaves a game that is over at once.
      - Its own turn limits count as they do there.

    `start` is ``random`` for every id: the package does not say which games begin alike.

    Copies: the state is (seed, replies); a copy plays all replies again before its first step, and so does a game after
    an illegal reply. One step of a copy after n replies costs n + 1 steps. Of a game that draws from sets of words the
    order depends on the process; start Python with a fixed PYTHONHASHSEED where that matters.

    Attributes:
      upstream: the id in the package.
      talk: whether all that is said is the action.
      max_actions: legal actions after which the game is truncated.
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "random"
    grammar: ClassVar[str] = "[action], with the words that the rules ask for"
    package: ClassVar[str] = "textarena"

    def __init__(self, *, talk: bool = False, max_actions: int = 1000, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        if max_actions < 1:
            raise ValueError(f"max_actions must be 1 or more, got {max_actions}")
        self.talk = talk
        self.max_actions = max_actions
        self._prompts = ("",) * self.seats
        self._rewards = (0.0,) * self.seats
        self._result: int | tuple[Outcome, ...] = 0

    @property
    def max_game_length(self) -> int:
        """The cap."""
        return self.max_actions

    def extract(self, reply: str) -> str | None:
        """Returns all that is said, or the only bracketed group."""
        return spoken(reply) if self.talk else extract_action(reply)

    def _begin(self) -> int:
        self._replies = ()
        self._rewards = (0.0,) * self.seats
        with _alone():
            self._session = self._opened()
            heard = self._heard(self._session, None)
            mover = self._to_move(self._session)
        self._prompts = tuple(" ".join(lines[0].split()) if lines else "" for lines in heard)
        for seat, messages in enumerate(heard):
            self._tell_messages(seat, messages[1:])
        return mover

    def _rules(self, seat: int) -> str:
        how = "what you say, in the form these rules ask for" if self.talk else "one action in square brackets"
        told = re.search(rf"\bYou are Player {seat}\b", self._prompts[seat], re.IGNORECASE)
        who = f" You are Player {seat}." if self.seats > 1 and not told else ""
        return f"{self.upstream}.{who} {self._prompts[seat]} Reply with {how}."

    def _read(self, action: str) -> str | None:
        action = " ".join(action.split())
        if self.talk:
            return action[:_LONGEST_TALK].rstrip() or None
        return action if len(action) <= _LONGEST_GROUP else None

    def _objection(self, action: str) -> str | None:
        # Only the package knows what is legal, and it knows by playing: `_play` returns the result.
        try:
            with _alone():
                return self._tried(action)
        except Exception as error:  # noqa: BLE001 (whatever the package raises ends its game and no other)
            self._result = self._discarded(error)
            return None

    def _tried(self, action: str) -> str | None:
        env = self._session = self._session or self._rebuilt()
        seat = self._mover()
        errors = _errors(env)
        done, info = self._stepped(env, len(self._replies), action)
        if not done and _errors(env) > errors:
            told = [message for message in _messages(env.state.observations[seat]) if message[0] != seat]
            self._session = None  # whatever an illegal reply changed is gone with it
            return _objection(told)
        self._replies += (action,)
        if done:
            self._result = self._ended(env, seat, info)
            self._session = None
            return None
        for told_seat, messages in enumerate(self._heard(env, (seat, action))):
            self._tell_messages(told_seat, messages)
        self._result = self._to_move(env)
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        del action  # it has been played, see `_objection`
        if isinstance(self._result, int) and self.actions_played >= self.max_actions:
            return (Outcome.TRUNCATED,) * self.seats
        return self._result

    def measures(self) -> dict[str, float]:
        """Returns the package's reward of each seat; 0 where it did not end the game itself."""
        return {f"reward_{seat}": reward for seat, reward in enumerate(self._rewards)}

    def _state(self) -> dict[str, Any]:
        return {"replies": list(self._replies), "prompts": list(self._prompts), "rewards": list(self._rewards)}

    def _restore(self, state: dict[str, Any]) -> None:
        self._replies = tuple(state["replies"])
        self._prompts = tuple(state["prompts"])
        self._rewards = tuple(state["rewards"])
        self._session = None

    @staticmethod
    def _error_text(error: Exception) -> str:
        return _cause(error)

    # ---- the package's side; all of it runs under the lock ----------------------------------------------------------

    def _opened(self) -> Any:  # noqa: ANN401 (the package has no types)
        env = _make(self.upstream)
        seed = _seed(self.upstream, self.rng.seed, "start")
        env.reset(num_players=self.seats, seed=seed)
        if hasattr(env.state, "error_allowance"):
            env.state.error_allowance = _PATIENCE
        return env

    def _stepped(self, env: Any, number: int, action: str) -> tuple[bool, Any]:  # noqa: ANN401 (as above)
        # A seed for each reply, not a stored generator: that takes 2.5 kB a game, and an illegal reply would move it.
        _seed(self.upstream, self.rng.seed, number)
        done, info = env.step(action)
        return bool(done), info

    def _rebuilt(self) -> Any:  # noqa: ANN401 (as above)
        env = self._opened()
        self._heard(env, None)
        for number, action in enumerate(self._replies):
            self._stepped(env, number, action)
            self._heard(env, None)
        return env

    def _to_move(self, env: Any) -> int:  # noqa: ANN401 (as above)
        seat: int = env.state.current_player_id
        if seat not in range(self.seats):
            raise ValueError(f"seat {seat} is to move in a game of {self.seats}")
        return seat

    def _heard(self, env: Any, said: tuple[int, str] | None) -> list[list[str]]:  # noqa: ANN401 (as above)
        """Takes what is new for every seat as texts; `said` is who spoke last and what."""
        mover, shown = env.get_observation()  # some games add to it
        fresh = [shown if seat == mover else env.state.observations[seat] for seat in range(self.seats)]
        for seat in range(self.seats):
            env.state.observations[seat] = []
        return [self._texts(seat, messages, said) for seat, messages in enumerate(fresh)]

    def _texts(self, seat: int, raw: Any, said: tuple[int, str] | None) -> list[str]:  # noqa: ANN401 (as above)
        found = []
        for sender, text in _messages(raw):
            speaker = said[0] if said and sender < 0 and text == said[1] else sender  # one game signs a player's words
            if speaker < 0:
                found.append(text)
            elif speaker != seat:
                found.append(f"Opponent: {text}")
        return found

    def _tell_messages(self, seat: int, messages: list[str]) -> None:
        for message in messages:
            for line in message.split("\n"):
                if line.strip():
                    self._tell(seat, line.rstrip())

    def _ended(self, env: Any, seat: int, info: Any) -> tuple[Outcome, ...]:  # noqa: ANN401 (as above)
        closed = env.close()
        rewards, notes = closed if isinstance(closed, tuple) else (closed, None)
        if not rewards or any(rewards.get(s) is None for s in range(self.seats)):
            raise ValueError(f"the game ended with the rewards {rewards}")
        self._rewards = tuple(float(rewards[s]) for s in range(self.seats))
        offenders = {s for s in range(self.seats) if (notes or {}).get(s, {}).get("invalid_move")}
        if notes is None and str((info or {}).get("reason")).startswith("Invalid Move"):  # 0.6.4
            offenders = {seat}
        if offenders:
            self.forfeited_by = min(offenders)
            return tuple(Outcome.INVALID if s in offenders else Outcome.WIN for s in range(self.seats))
        return outcomes(self._rewards, partial_is_draw=notes is None)


def outcomes(rewards: tuple[float, ...], *, partial_is_draw: bool) -> tuple[Outcome, ...]:
    """Returns how a game that ended by its rules ended for each seat.

    Of one player, `partial_is_draw` says whether a reward from 0 to below 1 is a draw (0.6.4) or a loss.
    """
    if len(rewards) == 1:
        partial = Outcome.DRAW if partial_is_draw and rewards[0] >= 0 else Outcome.LOSS
        return (Outcome.WIN if rewards[0] >= 1 else partial,)
    best = max(rewards)
    if min(rewards) == best:
        return (Outcome.DRAW,) * len(rewards)
    return tuple(Outcome.WIN if reward == best else Outcome.LOSS for reward in rewards)


def entry(name: str) -> registry.Entry:
    """Returns how a game of the package is made, by the package's id, such as ``Othello-v0``.

    Raises:
      ValueError: the package is missing, has no such id, or cannot play it with one or two players.
    """
    known = names()
    if name not in known:
        folded = {candidate.lower(): candidate for candidate in known}
        nearest = folded[difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.0)[0]]
        raise ValueError(
            f"the installed textarena has no game {name!r}; did you mean {nearest!r}? It has {len(known)}, which "
            f"{loading.LISTING} --textarena lists"
        )
    return registry.Entry(_kind(name), {"talk": name.startswith(_TALKERS)})


@functools.cache
def names() -> tuple[str, ...]:
    """Returns the package's ids, without those that only differ in what is shown (``-raw``, ``-train``).

    Raises:
      ValueError: the package is missing.
    """
    found = _package().envs.registration.ENV_REGISTRY
    return tuple(name for name in found if not name.endswith(_VARIANTS))


@functools.cache
def _kind(name: str) -> type[TextArena]:
    refused: dict[str, str] = {}
    for seats, players in ((2, "two players"), (1, "one")):
        with _alone():
            try:
                _make(name).reset(num_players=seats, seed=0)
            except SyntaxError as error:
                raise ValueError(_unreadable(name, error)) from error
            except (Exception, SystemExit) as error:  # noqa: BLE001 (the package refuses a number of players with any exception)
                refused[players] = _cause(error)
            else:
                return type(f"TextArena_{name}", (TextArena,), {"seats": seats, "upstream": name})
    causes = set(refused.values())
    raise ValueError(
        f"textarena's {name} cannot be begun here with two players or one (other numbers are not supported): "
        + (causes.pop() if len(causes) == 1 else "; ".join(f"with {who}, {cause}" for who, cause in refused.items()))
    )


def _unreadable(name: str, error: SyntaxError) -> str:
    """Returns what is to be done where this Python cannot read a game's own file."""
    running = platform.python_version()
    place = f"line {error.lineno} of {error.filename}: {error.msg}"
    if sys.version_info < (3, 12) and str(error.msg).startswith("f-string"):  # quotes within quotes, since 3.12
        return (
            f"textarena's {name} needs Python 3.12 or newer, and this is Python {running} ({place}); "
            "install dfc[textarena] there, or name another game"
        )
    return f"textarena's {name} cannot be read by this Python {running} ({place}); name another game"


def _cause(error: BaseException) -> str:
    """Returns the kind of an error and the first sentence of its text on one line; some texts have fifty lines."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if re.search(r"\w", line)]
    sentence = re.split(r"(?<=[.!?]) ", lines[0])[0] if lines else ""
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__


@functools.cache
def _package() -> Any:  # noqa: ANN401 (as above)
    try:
        with _alone():
            import textarena  # noqa: PLC0415 (optional, and it takes a quarter of a second)
            import textarena.envs.registration  # noqa: PLC0415 (as above)
    except ImportError as error:
        raise ValueError(
            f"games with the prefix textarena: need the package textarena: {loading.PIP_INSTALL} 'dfc[textarena]', or "
            f"in a clone of the repository {loading.PIP_INSTALL} -e '.[textarena]' ({_cause(error)})"
        ) from error
    return textarena


def _make(name: str) -> Any:  # noqa: ANN401 (as above)
    package = _package()
    env = package.make(name)
    while isinstance(env, package.Wrapper):
        env = env.env
    return env


def _errors(env: Any) -> int:  # noqa: ANN401 (as above)
    return int(getattr(env.state, "error_count", 0))


def _messages(raw: Any) -> list[tuple[int, str]]:  # noqa: ANN401 (as above)
    """Returns (sender, text) of each message, the sender -1 for the game; 0.7.4 adds a type."""
    return [(message[0] if isinstance(message[0], int) else -1, str(message[1])) for message in raw]


def _objection(told: list[tuple[int, str]]) -> str:
    reasons = [match[1] for _, text in told if (match := _REASON.search(text))]
    reason = " ".join((reasons or ["The game does not accept this action."])[-1].split())
    return f"Refused: {''.join('#' if c.isdigit() else c for c in reason)} Try again."


def _seed(*parts: object) -> int:
    seed = derive_seed("textarena", *parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (the package draws from numpy's global generator)
    return seed % 2**32


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lets one thread at a time use the global generators, and puts them back."""
    with _LOCK:
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (as above)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 (as above)

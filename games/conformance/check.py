"""Checks a game against the protocol: what `python -m dfc.games --check` runs, on this package's games and on yours.

    for finding in check(lambda: MyGame(width=5)):
        print(finding)

Each property is a function of a `Subject` that yields one sentence per fault. What a property cannot see: whether the
rules are the right ones, and whether an observation lets out a secret; write tests of your own for these.
"""

import contextlib
import dataclasses
import itertools
import random
import signal
import sysconfig
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from dfc.games import game as game_module
from dfc.games import parsing, registry, scripted
from dfc.games import rng as rng_module
from dfc.games.conformance import copies, protocol, replies, texts
from dfc.games.conformance.protocol import Subject
from dfc.games.game import Game
from dfc.games.rng import GameRng, derive_seed

SECONDS = 20.0  # of CPU that one property may take on three seeds; of this package's games none takes 1 s
_FAULTS = 3  # sentences per property; the rest would say the same
_OURS = frozenset(  # an error is reported with the line of the game, not with one of these, if it went through both
    str(module.__file__)
    for module in (
        *(rng_module, parsing, game_module, protocol),
        *(copies, texts, replies, scripted, registry),
    )
) | {__file__}
_LIBRARY = sysconfig.get_path("stdlib")

Property = Callable[[Subject], Iterator[str]]


@dataclasses.dataclass(frozen=True)
class GameCosts:
    """What a game costs.

    Attributes:
      steps_per_second: steps of one core, each with `observation` and `legal_actions`; without the time of simulators.
      bytes_per_game: memory that one more game in the middle takes.
      longest_seen: most actions of players in one of the games that were played.
    """

    steps_per_second: float
    bytes_per_game: int
    longest_seen: int


class _TooLong(BaseException):
    """A property took too long; not an Exception, which the game under test could catch."""


def check(
    make: Callable[[], Game], seeds: Sequence[int] = range(3), simulators: Mapping[str, scripted.Player] | None = None
) -> list[str]:
    """Returns the faults of a game, each as ``property: sentence``; [] if none was found.

    A property of `FIRST` that does not hold, and one that takes too long, is the last one that is tried: what comes
    after it would only find the same fault again. A sentence that several properties find is reported once.

    `make` returns a new game, not yet begun, and is called often; more `seeds` find more; `simulators` are by role,
    None for the scripts of `dfc.games.scripted`.
    """
    subject = Subject(make, seeds, simulators or {})

    def begins(subject: Subject) -> Iterator[str]:
        game = subject.started(subject.seeds[0])
        if not game.lists_actions:
            yield "`lists_actions` is False; a check plays listed actions and can say nothing else"
        elif game.to_move is not None and game.to_move < game.seats and not game.legal_actions():
            yield "`legal_actions` is empty at the first turn; a check plays listed actions and can say nothing else"

    found = run("it can be made and begun", begins, subject)
    if found:
        return found
    if simulators is None:
        try:
            subject = dataclasses.replace(subject, simulators=scripted.simulators(make()))
        except ValueError as error:
            return [f"simulators have a script: {error}; hand it over as `simulators`"]
    by_sentence: dict[str, list[str]] = {}
    for name, holds in PROPERTIES.items():
        sentences, late = _tried(holds, subject, SECONDS * max(1.0, len(seeds) / 3))
        for sentence in sentences:
            by_sentence.setdefault(sentence, []).append(name)
        if late or (sentences and name in FIRST):
            break
    return [_sentence(sentence, names) for sentence, names in by_sentence.items()]


def _sentence(sentence: str, names: list[str]) -> str:
    first, *others = names
    if not others:
        return f"{first}: {sentence}"
    also = ", ".join(name for name in dict.fromkeys(others) if name != first)
    return f"{first}: {sentence} ({len(names)} times{f', also of: {also}' if also else ''})"


def run(name: str, holds: Property, subject: Subject, seconds: float = SECONDS) -> list[str]:
    """Returns the first faults that one property finds; an exception of the game and an endless loop are some.

    Each fault begins with `name`. After `seconds` of CPU time the property is stopped; that is without effect outside
    the main thread and where the system has no such timer.
    """
    return [f"{name}: {sentence}" for sentence in _tried(holds, subject, seconds)[0]]


def _tried(holds: Property, subject: Subject, seconds: float) -> tuple[list[str], bool]:
    """Returns what a property finds, and whether it was stopped."""
    found = []
    state = random.getstate()
    try:
        with _limited(seconds):
            for sentence in itertools.islice(holds(subject), _FAULTS):
                found.append(sentence)  # noqa: PERF402 (what was found before an exception counts)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a foreign game raises is its fault, reported with its place)
        found.append(f"it raised {type(error).__name__}: {error} ({_place(error)})")
    except _TooLong as error:
        found.append(
            f"it was stopped after {seconds:g} s of CPU time ({_place(error)}); the game is in an endless loop, or slow"
        )
        return found, True
    finally:
        random.setstate(state)
    return found, False


def _place(error: BaseException) -> str:
    """Returns where an error arose: the innermost line outside of Python, the protocol and the check, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = [frame for frame in frames if not _passed_through(frame.filename)]
    if not inner and error.__cause__ is not None:  # the registry says of a class that cannot be made what it raised
        return _place(error.__cause__)
    last = (inner or frames)[-1]
    return f"{last.filename}:{last.lineno} in {last.name}"


def _passed_through(file: str) -> bool:
    library = file.startswith(("<frozen ", _LIBRARY)) and "site-packages" not in file
    return library or file in _OURS


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises `_TooLong` in what runs inside once it has used so much CPU time."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # again and again: a bare `except:` may swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def measure(subject: Subject, seconds: float = 0.2) -> GameCosts:
    """Returns what a game costs, from random play for `seconds` of CPU time."""
    steps, spent, seed, longest = 0, 0.0, 0, 0
    while spent < seconds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("measure", seed))
        begun = time.thread_time()
        while not game.over:
            seat = game.to_move
            if seat is not None and seat >= game.seats:
                spent += time.thread_time() - begun
                reply = subject.reply(game, rng)
                begun = time.thread_time()
                game.observation(seat)
            else:
                game.observation(seat or 0)
                reply = subject.reply(game, rng)
            game.step(reply)
            steps += 1
        spent += time.thread_time() - begun
        seed += 1
        longest = max(longest, game.actions_played)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    games = [protocol.midgame(subject, seed) for seed in range(8)]
    size = (tracemalloc.get_traced_memory()[0] - before) // len(games)
    tracemalloc.stop()
    return GameCosts(steps / spent, size, longest)


PROPERTIES: dict[str, Property] = {
    "it declares what it is": protocol.declared,
    "it is made by keywords": protocol.constructed,
    "it ends": protocol.ends,
    "its position can be written": copies.written,
    "games are apart": copies.apart,
    "what is listed is legal": protocol.listed,
    "an action has one spelling": protocol.spelled,
    "what is illegal changes nothing": protocol.refused,
    "copies play on alike": copies.copied,
    "copies are independent": copies.independent,
    "the seed alone decides": copies.seeded,
    "the global generator is left alone": copies.alone,
    "observations are well-formed": texts.shown,
    "history is what was shown and said": texts.remembered,
    "what is asked aside leaves no trace": texts.asides,
    "malformed replies play nothing": replies.malformed,
    "huge replies are read at once": replies.huge,
    "what is not seen is not handed on": replies.unseen,
    "simulators can fail": replies.simulators_can_fail,
    "measures are numbers": protocol.measured,
}
"""By name: every property, a function of a `Subject` that yields one sentence per fault."""

FIRST = frozenset({"it ends", "its position can be written", "games are apart"})
"""Properties without which the later ones find nothing but their consequences."""

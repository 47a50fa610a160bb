"""Checks a game against the protocol: what `python -m dfc.games --check` runs, on this package's games and on yours.

    for finding in check(lambda: MyGame(width=5)):
        print(finding)

Each property is a function of a `Subject` that yields one sentence per fault. What a property cannot see: whether the
rules are the right ones, and whether an observation lets out a secret; write tests of your own for these.
"""

import dataclasses
import itertools
import random
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence

from dfc.games import properties, reply_properties, scripted
from dfc.games.chance import Chance, derive_seed
from dfc.games.game import Game
from dfc.games.properties import Subject

_FAULTS = 3  # sentences per property; the rest would say the same

Property = Callable[[Subject], Iterator[str]]


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a game costs.

    Attributes:
      steps_per_second: steps of one core, each with `observation` and `legal_actions`; without the time of staff.
      bytes_per_game: memory that one more game in the middle takes.
    """

    steps_per_second: float
    bytes_per_game: int


def check(
    make: Callable[[], Game], seeds: Sequence[int] = range(3), staff: Mapping[str, scripted.Player] | None = None
) -> list[str]:
    """Returns the faults of a game, each as ``property: sentence``; [] if none was found.

    Args:
      make: returns a new game, not yet begun; called often.
      seeds: of the games that are played; more find more.
      staff: by role, who answers for the game's world; None for the scripts of `dfc.games.scripted`.
    """
    subject = Subject(make, seeds, staff or {})

    def begins(subject: Subject) -> Iterator[str]:
        subject.started(subject.seeds[0]).legal_actions()
        yield from ()

    found = run("it can be made and begun", begins, subject)
    if found:
        return found
    if staff is None:
        try:
            subject = dataclasses.replace(subject, staff=scripted.staff(make()))
        except ValueError as error:
            return [f"staff has a script: {error}; hand it over as `staff`"]
    return [finding for name, holds in PROPERTIES.items() for finding in run(name, holds, subject)]


def run(name: str, holds: Property, subject: Subject) -> list[str]:
    """Returns the first faults that one property finds; an exception of the game is one."""
    found = []
    state = random.getstate()
    try:
        for sentence in itertools.islice(holds(subject), _FAULTS):
            found.append(f"{name}: {sentence}")  # noqa: PERF401 (what was found before an exception counts)
    except Exception as error:  # noqa: BLE001 (whatever a foreign game raises is a fault of it, to be told with its place)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno} in {frame.name}"
        found.append(f"{name}: it raised {type(error).__name__}: {error} ({place})")
    finally:
        random.setstate(state)
    return found


def measure(subject: Subject, seconds: float = 0.2) -> Figures:
    """Returns what a game costs, from random play for `seconds` of CPU time."""
    steps, spent, seed = 0, 0.0, 0
    while spent < seconds:
        game = subject.started(seed)
        chance = Chance(derive_seed("measure", seed))
        begun = time.process_time()
        while not game.over:
            seat = game.to_move
            if seat is not None and seat >= game.seats:
                spent += time.process_time() - begun
                reply = subject.reply(game, chance)
                begun = time.process_time()
                game.observation(seat)
            else:
                game.observation(seat or 0)
                reply = subject.reply(game, chance)
            game.step(reply)
            steps += 1
        spent += time.process_time() - begun
        seed += 1
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    games = [properties.midgame(subject, seed) for seed in range(8)]
    size = (tracemalloc.get_traced_memory()[0] - before) // len(games)
    tracemalloc.stop()
    return Figures(steps / spent, size)


PROPERTIES: dict[str, Property] = {
    "it declares what it is": properties.declared,
    "it is made by keywords": properties.constructed,
    "it ends": properties.ends,
    "what is listed is legal": properties.listed,
    "what is illegal changes nothing": properties.refused,
    "copies play on alike": properties.copied,
    "copies are independent": properties.independent,
    "the seed alone decides": properties.seeded,
    "the global generator is left alone": properties.alone,
    "observations are well-formed": properties.shown,
    "history is what was shown and said": properties.remembered,
    "malformed replies play nothing": reply_properties.malformed,
    "huge replies are read at once": reply_properties.huge,
    "staff can fail": reply_properties.staffed,
    "measures are numbers": properties.measured,
}
"""By name: every property, a function of a `Subject` that yields one sentence per fault."""

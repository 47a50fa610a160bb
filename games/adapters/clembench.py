"""Games of an installed clembench, played through its framework: ids ``clembench:<game_name>``.

    export CLEMBENCH_HOME=/path/to/clembench   # the code of its games runs
    game = registry.make("clembench:taboo", instances="instances_v2.0")

Needs clemcore 3.7.2 (``pip install "dfc[clembench]"``) and whatever the game itself needs.
"""

import dataclasses
import difflib
import functools
import importlib
from pathlib import Path
from typing import Any, ClassVar, Unpack

from dfc.games import loading, registry
from dfc.games.adapters import clembench_folder as folder
from dfc.games.adapters.clembench_folder import LoadedGame
from dfc.games.adapters.foreign import Foreign
from dfc.games.game import Common, GameInfo, Outcome
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng
from dfc.games.task import Task

ALL = "all"
"""The only split: the instances in the order of their file."""
_LONGEST = 20_000  # characters of a reply
_OUTCOMES = {"success": Outcome.WIN, "failure": Outcome.LOSS}


class Clembench(Foreign, Task):
    """A game of clembench for one player, or for a team of two; `registry.kind` makes a subclass for every game.

    Rules, texts and instances: the game's own. What a player is asked is what its model would be asked: the newest
    message, and before it what the game has put into the dialogue without asking (``You: ...`` where it put words into
    the player's mouth). Questions that leave no trace in a dialogue are asides. Players that are programs play by
    themselves.

    Action: all that is said, stripped, as clemcore's models give it, without thoughts. The game decides what follows
    from it; what it asks again is an ordinary turn. Only a reply of nothing breaks the game off here.

    How an ending is read: from the score that the game's own scorer computes of the record, which ``clem score`` would
    compute: aborted is INVALID, with the last note of the game master as its reason and the last player that replied to
    blame; success is WIN and anything else LOSS; `quality` is the Main Score. Rewards of clemcore's environments
    differ from it in some games and are not used.

    Differs from clemcore:
      - At most `max_turns` replies, asides included; then both outcomes are TRUNCATED.
      - Chance that a game takes from the global generators depends on the seed and the replies so far only; clemcore
        seeds nothing.
      - An error inside the game ends it as discarded, not as lost.

    Copies: the state is (seed, replies); a copy plays all replies again before its first step, and so does a game in
    which a player is asked in the middle of a step, after each such reply. So does a record, if the installed game is
    the same.

    `legal_actions` is always []: nobody knows what is legal but by trying.

    Attributes:
      upstream: the game's name there.
      home: the folder of the game folders.
      instances: the file of instances, in the game's folder ``in``; empty for the game's own.
    """

    grammar: ClassVar[str] = "as the game says"
    package: ClassVar[str] = "clembench"
    has_quality: ClassVar[bool] = True
    free_layout: ClassVar[bool] = True
    default_allowances: ClassVar[tuple[int, int]] = (0, 0)
    home: ClassVar[Path] = Path()

    def __init__(
        self, *, split: str = ALL, max_turns: int = 100, instances: str = "", **common: Unpack[Common]
    ) -> None:
        super().__init__(split=split, max_turns=max_turns, **common)
        self.instances = instances
        self._rows = self._loaded().instances(instances)
        self._first = [""] * self.seats
        self._scored: float | None = None

    def _loaded(self) -> LoadedGame:
        return folder.load(self.home, self.upstream)

    @property
    def number_of_tasks(self) -> int:
        """How many instances the file has."""
        return len(self._rows)

    @property
    def info(self) -> GameInfo:
        """What is known before the start; `splits` is the size of the file."""
        return dataclasses.replace(super().info, splits={ALL: len(self._rows)})

    @property
    def experiment(self) -> str:
        """The name of the instance's experiment."""
        return "" if self.task < 0 else str(self._rows[self.task]["experiment"]["name"])

    def extract(self, reply: str) -> str | None:
        """Returns all that is said aloud, with its lines, or None if that is nothing."""
        return (spoken(reply) or "")[:_LONGEST].strip() or None

    def _read(self, action: str) -> str | None:
        return action

    def _rules(self, seat: int) -> str:
        return self._first[seat]

    def observation(self, seat: int) -> str:
        """Returns what is new for a seat, as in `Game`: word for word what the game tells it."""
        # Where there is nothing before the news there is no line for it either.
        found = super().observation(seat)
        return found if self._first[seat] else found.removeprefix("\n")

    def measures(self) -> dict[str, float]:
        """Returns the Main Score as `quality`, of a game that came to its end."""
        return {} if self._scored is None else {"quality": self._scored}

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the whole seed decides what is left to chance
        self._replies, self._scored, self._first = (), None, [""] * self.seats
        self._session = None

    def _begin(self) -> int:
        super()._begin()
        found = self._after(self._played_on(None))
        if isinstance(found, int):
            return found
        raise ValueError("it ended before anybody was asked")

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        try:
            session = self._played_on(action)
            self._replies += (action,)
            if session.question is not None and self.actions_played >= self.max_turns:
                self._session = None
                return self._team(Outcome.TRUNCATED)
            return self._after(session)
        except Exception as error:  # noqa: BLE001 (whatever a game raises ends it and no other)
            return self._discarded(error)

    def _played_on(self, action: str | None) -> Any:  # noqa: ANN401 (a Session)
        """Returns the session after a reply, or at the beginning."""
        game = self._loaded()
        with folder.alone(game):
            if self._session is None:
                session = importlib.import_module("dfc.games.adapters.clembench_session")  # imports clemcore
                self._session = session.Session(game, self._rows[self.task], self.rng.seed, self._replies)
            if action is not None:
                self._session.reply(action)
        return self._session

    def _after(self, session: Any) -> int | tuple[Outcome, ...]:  # noqa: ANN401 (as above)
        """Tells the seat that is asked next, or returns the outcomes."""
        if (end := session.end) is not None:
            self._session = None
            self._scored = end.quality
            return self._team(_OUTCOMES[end.outcome]) if end.outcome in _OUTCOMES else self._abort(end.why, end.by)
        seat, asked = session.question.seat, session.question
        if self._rules_pending[seat]:  # nothing was told yet that left a trace
            self._first[seat] = asked.opening if asked.aside else asked.whole
            return int(self._ask_aside(seat, asked.text) if asked.aside else seat)
        if asked.aside:
            return self._ask_aside(seat, asked.whole)
        self._tell(seat, asked.whole)
        return int(seat)

    def _position(self) -> dict[str, Any]:
        return {"replies": list(self._replies), "first": list(self._first), "scored": self._scored}

    def _set_position(self, position: dict[str, Any]) -> None:
        self._replies, self._first = tuple(position["replies"]), list(position["first"])
        self._scored, self._session = position["scored"], None


def entry(name: str) -> registry.Entry:
    """Returns how a game of the folder is made, by its `game_name`.

    Raises:
      ValueError: there is no such folder or game, clemcore or something that the game needs is missing, or it cannot be
        played here.
    """
    home = folder.home()
    known = folder.specs(home)
    if name not in known:
        folded = {candidate.lower(): candidate for candidate in known}
        nearest = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.0)
        hint = f"did you mean {folded[nearest[0]]!r}? It has {', '.join(known)}" if nearest else "it has none"
        raise ValueError(f"{home} ({folder.HOME}) has no game {name!r}; {hint}"[:2000])
    return registry.Entry(_kind(home, name))


def names() -> tuple[str, ...]:
    """Returns the names of the folder's games; not every one of them can be begun.

    Raises:
      ValueError: there is no such folder.
    """
    return tuple(folder.specs(folder.home()))


@functools.cache
def _kind(home: Path, name: str) -> type[Clembench]:
    image = folder.specs(home)[name].get("image", "none")
    if image != "none":
        raise ValueError(f"clembench:{name}: it shows images ({image!r}), and only texts are played here")
    loaded = folder.load(home, name)
    rows = loaded.instances("")
    try:
        with folder.alone(loaded):
            session = importlib.import_module("dfc.games.adapters.clembench_session")
            roles = session.Session(loaded, rows[0], 0).roles
    except (Exception, SystemExit) as error:  # whatever a game raises
        raise ValueError(f"clembench:{name} cannot be begun: {loading.error_text(error)}") from error
    seats = len(roles)
    if seats not in (1, 2):
        raise ValueError(
            f"clembench:{name}: it has {seats} players that are no programs, and 1 or 2 can be seated here"
        )
    own = tuple(f"{role} {seat + 1}" if roles.count(role) > 1 else role for seat, role in enumerate(roles))
    return type(
        f"Clembench_{name}",
        (Clembench,),
        {
            "seats": seats,
            "team": seats > 1,
            "player_roles": own if seats > 1 else (),
            "splits": {ALL: len(rows)},
            "upstream": name,
            "home": home,
        },
    )

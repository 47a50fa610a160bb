"""Adventure game: find things in a house and bring them where they belong, one command a turn; from clembench."""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from dfc.games.dialogue.adventure_maps import DIFFICULTIES, adventures, invented
from dfc.games.dialogue.adventure_world import Adventure, World
from dfc.games.dialogue.dialogue_game import LONGEST, DialogueGame, after_tag
from dfc.games.game import Common, Outcome
from dfc.games.parsing import spoken
from dfc.games.rng import GameRng
from dfc.games.task import count_of

TAG, PLAN = ">", "Next actions:"
_HANDS = (0, 2)  # things that can be carried, 0: any number
_SETTINGS = tuple((d, planning, hands) for d in DIFFICULTIES for planning in (False, True) for hands in _HANDS)
EXPERIMENTS = tuple(
    f"{difficulty}_{'planning' if planning else 'basic'}{'_two_things' if hands else ''}"
    for difficulty, planning, hands in _SETTINGS
)
_MAPS = (("train", 16), ("validation", 16), ("test", 32))  # easy and hard ones together
_LONGEST_COMMAND, _LONGEST_PLAN = 200, 1_000  # characters


def adventure_of(split: str, task: int) -> Adventure:
    """Returns the adventure of a task; the tasks of one map and its goals follow each other in the settings."""
    difficulty = _SETTINGS[task % len(_SETTINGS)][0]
    number = len(DIFFICULTIES) * (task // len(_SETTINGS)) + DIFFICULTIES.index(difficulty)
    return adventures("AdventureGame", _MAPS).of(split, number)


class AdventureGame(DialogueGame):
    """Adventure game.

    Rules: one player stands in a room of a house, is told three goals, such as "put the mug on the table", and writes
    one command a turn; the world answers with the effect (`dfc.games.dialogue.adventure_world`). A command that
    cannot be carried out, or names what cannot be seen, is answered in words and costs its turn. ``> done`` ends the
    game: a win if all goals hold then, else a loss; ``quality`` is the share of goals that hold, times 100. The game is
    broken off by nobody's fault after `rounds` turns without ``> done``, whatever was reached, and by a reply without
    the form.

    Experiments: easy (four rooms; what is looked for lies in view, all of it belongs on one and the same place) and
    hard (six rooms; it lies in closed containers and belongs in or on three places); basic, or planning, where below
    each action a line ``Next actions: ...`` says what is to follow; as many things as one likes can be carried, or two.
    The four tasks of one difficulty that follow each other have the same map and goals.

    Action: ``> take mug``; in planning ``> take mug``, a line break, ``Next actions: go to kitchen, put mug on table``
    (``> done`` needs no plan). Other lines are ignored. Verbs: go to, take, put, open, close, examine, look, inventory,
    done, and some other words for them. `legal_actions` is a selection: the commands that would change something now.

    Differs from clembench:
      - A world, maps and goals of our own, in disjoint splits; no PDDL, grammar or solver. The player is told what
        verbs there are, and of the limit of turns.
      - What is put somewhere must be carried; there it may also lie within reach.
      - A plan may be missing only where the command ends the game; there also wherever the reply has the letters
        "done", and as the first reply of a game such a one raises an error there. The plan is not tried out and not
        counted.
      - ``> done`` in the last turn ends the game in time; there the limit goes first.
      - ``>`` with nothing behind it breaks the game off; there it is a command that is not understood.
      - A thing lies where that is on or in which it lies; there it can be in another room, as in 4 of the 128
        instances of clembench 2.0, which say two different things of a book.
      - Of a file of instances those with other actions or with events are left out, of clembench 3 the 16 of made-up
        states and of potions; verbs that an instance renames have the new word only, which is explained, as there.
      - `invented_words` (off) calls the three things and one verb by words that are explained to the player, as
        clembench's later instances do.

    Attributes:
      invented_words: as above.
      world: with what is so, what was seen and what is to be done.
      refused: commands that were not carried out.
    """

    seats: ClassVar[int] = 1
    team: ClassVar[bool] = False
    evaluation_only: ClassVar[bool] = True
    player_roles: ClassVar[tuple[str, ...]] = ("adventurer",)
    tags: ClassVar[tuple[str, ...]] = (TAG,)
    turns_per_round: ClassVar[int] = 1
    grammar: ClassVar[str] = f"{TAG} ..."
    splits: ClassVar[Mapping[str, int]] = {name: size // 2 * len(_SETTINGS) for name, size in _MAPS}

    def __init__(
        self,
        *,
        split: str = "test",
        rounds: int = 50,
        invented_words: bool = False,
        instances: str = "",
        **common: Unpack[Common],
    ) -> None:
        if invented_words and instances:
            raise ValueError("invented_words is for this package's own instances; leave `instances` empty or it False")
        super().__init__(split=split, rounds=rounds, instances=instances, **common)
        self.invented_words = invented_words
        self.world = self._world()
        self.refused = 0

    def _experiment(self) -> str:
        """Returns difficulty, form of the replies and whether only two things can be carried, one of `EXPERIMENTS`."""
        return EXPERIMENTS[self.task % len(EXPERIMENTS)]

    @property
    def planning(self) -> bool:
        """Whether a reply must have a line of plans below its action."""
        found = self._from_file()
        if found is not None:
            return bool(found.fields["planning"])
        return _SETTINGS[self.task % len(_SETTINGS)][1]

    def action(self, command: str, plan: str = "look") -> str:
        """Returns a command as an action of this task; the plan is left out where none is wanted."""
        with_plan = self.planning and self.world.verb(command)[0] != "done"
        return f"{TAG} {command}\n{PLAN} {plan}" if with_plan else f"{TAG} {command}"

    def measures(self) -> dict[str, float]:
        """Returns the turns begun, the goals that hold, the commands that were refused, and the quality at the end."""
        reached = {"goals": float(self.world.reached()), "refused": float(self.refused)}
        return {**super().measures(), **reached}

    def extract(self, reply: str) -> str | None:
        """Returns the lines that are said aloud, without empty ones, or None if there are none."""
        lines = (" ".join(line.split()) for line in (spoken(reply) or "")[:LONGEST].splitlines())
        return "\n".join(line for line in lines if line) or None

    def legal_actions(self) -> list[str]:
        """Returns the commands that would change something, those that look, and the one that ends the game."""
        return [] if self.to_move is None else [self.action(command) for command in self.world.feasible()]

    # ---- the rules ------------------------------------------------------------------------------------------------

    def _world(self) -> World:
        found = self._from_file()
        if found is not None:
            return World(found.fields["adventure"], found.fields["hands"], found.fields["vocabulary"])
        task = max(self.task, 0)
        adventure = adventure_of(self.split, task)
        hands = _SETTINGS[task % len(_SETTINGS)][2]
        return World(adventure, hands, invented(adventure, task) if self.invented_words else None)

    def _set_up(self, rng: GameRng) -> None:
        del rng  # the task's number decides
        self.world = self._world()
        self.refused = 0
        self._tell(0, self.world.describe())

    def _rules(self, seat: int) -> str:
        del seat
        verb = {name: self.world.say(name).split()[0] for name in ("go", "take", "put", "open", "close", "examine")}
        lines = [
            "You are playing a text adventure. I tell you what you see; you write one action, and I answer it.",
            "An action that is impossible costs its turn.",
            f"Begin your reply with {TAG} and write the action behind it, in a few words.",
        ]
        if self.planning:
            lines.append(
                f"On the line below it write {PLAN} and behind that, with commas, the actions you mean to take next."
            )
        lines += ["For example:", f"{TAG} open drawer", *([f"{PLAN} take ring, go to cellar"] * self.planning)]
        lines.append(
            f"You can: {verb['go']} to a room; {verb['take']} a thing; {verb['put']} a thing in or on a place; "
            f"{verb['open']}, {verb['close']} or {verb['examine']} something; look; inventory (what you carry)."
        )
        meanings = self.world.vocabulary.meanings.items()
        lines += [f"A new word: {word} means {meaning}." for word, meaning in meanings]
        if self.world.hands:
            lines.append(f"You can carry {count_of(self.world.hands, 'thing')} at a time, no more.")
        return "\n".join(
            [
                *lines,
                f"Your goal: {self.world.goal()}.",
                f"When you have reached it, write {TAG} done to end the game.",
                f"You must write that within {self.rounds} turns, or all of it counts for nothing.",
            ]
        )

    def _form(self) -> str:
        return f"{TAG} ..., and on a line below it {PLAN} ..." if self.planning else self.grammar

    def _read(self, action: str) -> str | None:
        first, *others = action.split("\n")
        command = (after_tag(first, TAG) or "").lower()[:_LONGEST_COMMAND].strip()
        if not command:
            return None
        if not self.planning or self.world.verb(command)[0] == "done":
            return f"{TAG} {command}"
        plan = next((line for line in others if line.startswith(PLAN)), None)
        if plan is None:
            return None
        return f"{TAG} {command}\n{PLAN} {plan.removeprefix(PLAN).strip()[:_LONGEST_PLAN]}".rstrip()

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        command = action.split("\n", maxsplit=1)[0].removeprefix(TAG).strip()
        if self.world.verb(command)[0] == "done":
            return self._team(Outcome.WIN if self.world.reached() == len(self.world.adventure.goals) else Outcome.LOSS)
        answer, carried_out = self.world.do(command)
        self.refused += not carried_out
        if not self._next_round():
            return self._abort(f"The limit of {count_of(self.rounds, 'turn')} was reached.")
        self._tell(0, answer)
        return 0

    def _quality(self) -> float:
        return 100.0 * self.world.reached() / len(self.world.adventure.goals)

    def _position(self) -> dict[str, Any]:
        return {"refused": self.refused, "world": self.world.state()}

    def _set_position(self, position: dict[str, Any]) -> None:
        self.world = self._world()
        self.refused = position["refused"]
        self.world.restore(position["world"])

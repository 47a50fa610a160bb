"""The ten games of Paprika as the tests that all of them share take them: tasks, replies, options."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dfc.games import scripted
from dfc.games.paprika.cellular_automata import RULES
from dfc.games.paprika.task import tagged
from dfc.games.paprika.world import AGENT
from dfc.games.rng import GameRng
from dfc.games.task import Task

WORLDS = ("twenty_questions", "guess_my_city", "customer_service", "murder_mystery")


@dataclasses.dataclass(frozen=True)
class PaprikaGame:
    """One game.

    Attributes:
      sizes: tasks by split.
      digests: by split, the first 16 digits of the sha256 of all tasks (`test_tasks_never_change`). A change of one
        task changes every result measured on it; change these only together with the notes on comparability.
      read: a reply that is read in every task.
      unread: replies without one readable action.
      wasted: replies that are played in task 0, of which none is right.
      refused: options out of their range, one each.
      long: pieces that are repeated to 100,000 characters; `leads` stand before, after and between.
      same: attributes that copies must have in common beside what is recorded.
      copied: how many tasks are copied at every step, with `copied_options`.
    """

    sizes: Mapping[str, int]
    digests: Mapping[str, str]
    read: str
    unread: tuple[str, ...]
    wasted: tuple[str, ...]
    refused: tuple[dict[str, Any], ...]
    long: tuple[str, ...]
    leads: tuple[str, ...] = ("",)
    same: tuple[str, ...] = ()
    copied: int = 20
    copied_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    legal_at_most: int = 10_000


def _untagged(answer: str, other: str) -> tuple[str, ...]:
    """Replies that hold an answer and none between one pair of tags."""
    plain = (answer, f"[{answer}]", f"<answer>{answer}</answer>", f"<Answer>{answer}", f"<Think>{tagged(answer)}")
    return ("", *plain, tagged(answer) + tagged(other), f"{tagged(answer)} or {tagged(other)}", "<Answer></Answer>")


_AUTOMATON, _OTHER = RULES[110], RULES[0]
_ENTRIES = _AUTOMATON.split(", ")
_SILENCE = ("", "  \n ", "<think>still thinking")
_RANGES = ({"split": "dev"}, {"max_turns": 0})

GAMES = {
    "wordle": PaprikaGame(
        sizes={"train": 1515, "test": 800},
        digests={"train": "2c8658f95679770e", "test": "11ea6e576386ed4d"},
        read=tagged("slate"),
        unread=_untagged("slate", "irate"),
        wasted=(tagged("ab"), tagged("qqqqq")),
        refused=(*_RANGES, {"feedback": "strict"}, {"length": 3}),
        long=("a", "<", "<Answer>", " ", "\u0130", "["),
    ),
    "mastermind": PaprikaGame(
        sizes={"train": 1000, "test": 500},
        digests={"train": "963e36076f48b8b9", "test": "49a6d1343ea35862"},
        read=tagged("1 2 3 4"),
        unread=_untagged("1234", "4321"),
        wasted=(tagged("12345"), tagged("0000"), tagged("x")),
        refused=_RANGES,
        long=("1", "1 ", "<", "\u0661", " "),
    ),
    "bandit": PaprikaGame(
        sizes={"train": 81, "test": 1},
        digests={"train": "573f3bd612a98030", "test": "119cefdad79a893f"},
        read=tagged("no such choice"),
        unread=_untagged("blue", "red"),
        wasted=(tagged("?"), tagged("none")),
        refused=(*_RANGES, {"max_turns": 1}),
        long=("blue ", "\u0130", "<", " "),
    ),
    "bandit_regret": PaprikaGame(
        sizes={"test": 100},
        digests={"test": "4a2b6257768440f9"},
        read=tagged("blue"),
        unread=_untagged("blue", "red"),
        wasted=(tagged("?"), tagged("none")),
        refused=({"arms": 1}, {"arms": 11}, {"gap": 0}, {"gap": 101}, {"split": "train"}, {"max_turns": 0}),
        long=("blue ", "\u0130", "<", " "),
        copied=5,
    ),
    "cellular_automata": PaprikaGame(
        sizes={"train": 1000, "test": 500},
        digests={"train": "1044a8ca74703339", "test": "fe0504790e88e92c"},
        read=tagged(_OTHER),
        unread=(
            *_untagged(_AUTOMATON, _OTHER),
            *map(
                tagged,
                (
                    "110",
                    *(", ".join(e for e in _ENTRIES if e is not missing) for missing in _ENTRIES),
                    _AUTOMATON.replace("111: 0", "111: 2"),
                    _AUTOMATON.replace("111: 0", "111: 00"),
                    _AUTOMATON.replace("111: 0", "1111: 0"),
                    _AUTOMATON.replace("111: 0", "111 0"),
                    _AUTOMATON.replace("111: 0", "111: \u0660"),  # a digit, but not one of ours
                    _AUTOMATON + ", 1000: 1",
                    _AUTOMATON + " I think",
                    _AUTOMATON.replace(", ", "; "),
                    "".join(_ENTRIES),
                ),
            ),
        ),
        wasted=(tagged(RULES[255]),),
        refused=_RANGES,
        long=("000:", "000: 1", "<rule>", "</rule", " ", "0", "\u0660", ", ", "000 : "),
        leads=("", _AUTOMATON),
        same=("pairs",),
        copied_options={"split": "test"},
    ),
    "battleship": PaprikaGame(
        sizes={"train": 1000, "test": 200},
        digests={"train": "bbdb95437971f347", "test": "775dfc541e0a5cc5"},
        read=tagged("B3"),
        unread=(
            *_untagged("B3", "B4"),
            *map(tagged, ("B", "3", "33", "3B", "BB3", "B-3", "B3.", "B3, B4", "B,3", "(1, 2)", "\u00c43", "\u01313")),
            *map(tagged, ("B\u0663", "B\u00b2", "B3 4")),
        ),
        wasted=tuple(map(tagged, ("Z9", "A0", "A7", "J1"))),
        refused=_RANGES,
        long=("9", "B", " ", "B3 ", "\u0660", "\u00df"),
        leads=("", "B3", "B"),
        same=("size",),
    ),
    "minesweeper": PaprikaGame(
        sizes={"train": 1000, "test": 200},
        digests={"train": "bd0f2b01ba975950", "test": "5bc6374c1cf758fc"},
        read=tagged("reveal 2 3"),
        unread=(
            *_untagged("reveal 2 3", "reveal 1 1"),
            *map(tagged, ("2 3", "reveal", "reveal 2", "reveal 2 3 4", "reveal 2, 3", "reveal (2, 3)", "reveal2 3")),
            *map(tagged, ("reveal 23", "reveal -1 2", "reveal 2 3.", "flag 2 3", "reveal a b", "reveal \u0662 3")),
            *map(tagged, ("reveal \u00b2 3", "I reveal 2 3")),
        ),
        wasted=(tagged("reveal 7 0"), tagged("reveal 26 0")),
        refused=_RANGES,
        long=("9", "9 ", " ", "reveal ", "\u0660", "reveal 1 2 "),
        leads=("", "reveal ", "reveal 1 ", " 1", "reveal" + " " * 99_000),
        same=("rows", "columns", "mines"),
        copied=40,
    ),
    "twenty_questions": PaprikaGame(
        sizes={"train": 1055, "test": 209},
        digests={"train": "95046dd28771e19f", "test": "9748b2b538d604e1"},
        read="Is it alive?",
        unread=_SILENCE,
        wasted=("Is it alive?", "Hello."),
        refused=_RANGES,
        long=("is it a tiger ", "tiger", "it it is a the ", "\u0130(", '"(('),
        copied=8,
        legal_at_most=300,
    ),
    "guess_my_city": PaprikaGame(
        sizes={"train": 324, "test": 108},
        digests={"train": "3f94ec569e95e04f", "test": "acfbd8bee13f79bd"},
        read="Is it in Ukraine?",
        unread=_SILENCE,
        wasted=("Is it on the coast?", "Hello."),
        refused=_RANGES,
        long=("Is it in Kyiv ", "kyiv", "city ", "\u0130(", "in Ukraine, "),
        copied=8,
        legal_at_most=573,
    ),
    "customer_service": PaprikaGame(
        sizes={"train": 120, "test": 40},
        digests={"train": "f905b4f729874403", "test": "187b4e53ea241281"},
        read="Hello.",
        unread=_SILENCE,
        wasted=("Hello.", "Hello again."),
        refused=(*_RANGES, {"wrong_remedies": -1}),
        long=("clean ", "not ", "a.b'c-", "\u0663\u00b2?", "? ! . ;"),
        copied=8,
        legal_at_most=18,
    ),
    "murder_mystery": PaprikaGame(
        sizes={"train": 60, "test": 20},
        digests={"train": "0913d59769ac36b5", "test": "77830c387a668f3d"},
        read="Wait.",
        unread=_SILENCE,
        wasted=("Wait.", "Dance."),
        refused=(*_RANGES, {"accusations": -1}),
        long=(
            *("Petra, ", "accuse ", "Petra is the the ", "Petra is the killer ", "not I accuse Petra ", "not ", "x"),
            *("@1, ", "\u0663\u00b2? ", "Ask Petra. "),
        ),
        leads=("", "Petra "),
        copied=9,
        copied_options={"accusations": 0},
        legal_at_most=40,
    ),
}


def simulator_reply(game: Task, rng: GameRng | None = None) -> str:
    """What the script of the simulator to move says."""
    return scripted.simulators(game)[game.role(game.to_move)].act(game, rng or GameRng(0))


def full_turn(game: Task, reply: str) -> None:
    """One reply of the player, and those of the simulators until the player is to move again."""
    game.step(reply)
    while not game.over and game.to_move != AGENT:
        game.step(simulator_reply(game))


def played(game: Task, player: scripted.Player, rng: GameRng) -> Task:
    """The game after its end; everybody draws from one stream."""
    simulators = scripted.simulators(game)
    while not game.over:
        who = player if game.to_move == AGENT else simulators[game.role(game.to_move)]
        game.step(who.act(game, rng))
    return game

"""Configuration of building rows from stored dialogues (Playpen's supervised rows and pairs), and of minigames.

Defaults are the published ones (arXiv 2504.08590, section 4.3 and appendix D) where the paper states them; where it
states none, the field says so.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from dfc.config.ranges import Count, CountOrZero, Range, ShareBelowOne
from dfc.config.run import RunConfig

Wanted = Literal["sft", "pairs_dialogue", "pairs_turn"]
WANTED: tuple[Wanted, ...] = get_args(Wanted)
Repair = Literal["imagegame_replies", "wordle_format", "wordle_asked_again", "referencegame_examples"]
REPAIRS: tuple[Repair, ...] = get_args(Repair)
Threshold = Annotated[float, Range(0, 100, below=True)]


@dataclasses.dataclass(frozen=True)
class DialogueChoiceConfig:
    """Which dialogues rows are made of, and how; see `dfc.rows.dialogue_rows`.

    Attributes:
      game_groups: only these games; empty: all (one name: the paper's D5).
      leave_out: without these games (one name: leave-one-out, the paper's D6).
      repairs: how published dialogues of the image game, the Wordles and the reference game are repaired (D.1, all
        four; `dfc.rows.dialogue_repairs`); empty: they are taken as they are.
      threshold: a dialogue is won if its quality is above it (the paper has one per game and prints none).
      thresholds: other ones, by game: of a quality with shades, what counts as solved.
      players: only dialogues of so many players are imitated or are the worse side of a pair, those with the most won
        ones; 0: all (the paper: 10).
      balance: as many dialogues of every game as of the one with the fewest, those of the best players first.
      most_per_game: dialogues of a game at most; 0: no limit of its own.
      rows: a row is a whole dialogue (``dialogues``), or each of its beginnings that end with a reply (``prefixes``).
      replies: which replies of a row are trained on: the ``last``, or ``all`` (the paper is silent).
      asides: what is asked aside: the questions of a round as one row (``merged``, the paper's), a row for each
        (``single``, as games ask), or no row (``none``).
      max_characters: rows with more, of all messages together, are left out, and pairs with such a side; 0: none is.
      held_out: share of each game's instances whose rows are held out (the paper: about 4 % of the rows).
      negatives: lost dialogues beside each won one (D.3 on DPO Dialogue: best with 1).
      aborted_negatives: games whose aborted dialogues may be the worse side, of dialogues and of turns (D.3: "we only
        integrated aborted interactions for this game (and variants)").
      aborted_count: in those games, so many aborted dialogues beside each won one and so many lost ones (``apart``,
        D.3: "n unsuccessful - and n aborted interactions for Wordle and variants"), or so many of both ``together``.
      turn_rejected: whose replies a reply of a won dialogue is paired with: of ``unsuccessful`` dialogues, which are
        the lost and the aborted ones (D.3), or of those of ``lower_quality``, which won ones that took longer are too.
      turn_negatives: worse replies for each turn of a won dialogue; 0: all different ones. The paper states no number
        (its "1 negative per positive" is of DPO Dialogue), and its Table 4 has more than one: 20,074 pairs of turns
        beside 4,689 of dialogues in taboo, where a dialogue has three turns at most.
      pairs_without: games of which no pairs are made (the paper's tables have none of privateshared).
      first_turn_pairs: game -> pairs of its first reply at most (D.3: "2k samples from the first turn" of these two
        Wordles, read as 2,000 of each).
    """

    game_groups: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = REPAIRS
    threshold: Threshold = 0.0
    thresholds: Mapping[str, Threshold] = dataclasses.field(
        default_factory=lambda: {"clem_imagegame": 99.0, "clem_privateshared": 99.0}
    )
    players: CountOrZero = 10
    balance: bool = True
    most_per_game: CountOrZero = 0
    rows: Literal["prefixes", "dialogues"] = "prefixes"
    replies: Literal["last", "all"] = "last"
    asides: Literal["merged", "single", "none"] = "merged"
    max_characters: CountOrZero = 0
    held_out: ShareBelowOne = 0.04
    negatives: Count = 1
    aborted_negatives: tuple[str, ...] = ("clem_wordle", "clem_wordle_withclue", "clem_wordle_withcritic")
    aborted_count: Literal["apart", "together"] = "apart"
    turn_rejected: Literal["unsuccessful", "lower_quality"] = "unsuccessful"
    turn_negatives: CountOrZero = 0
    pairs_without: tuple[str, ...] = ("clem_privateshared",)
    first_turn_pairs: Mapping[str, CountOrZero] = dataclasses.field(
        default_factory=lambda: {"clem_wordle": 2000, "clem_wordle_withclue": 2000}
    )


@dataclasses.dataclass(frozen=True)
class DialogueRowsConfig(DialogueChoiceConfig):
    """Which dialogues rows are made of, and which rows.

    Attributes:
      wanted: which files are written: supervised rows (``sft``), pairs of whole dialogues (``pairs_dialogue``), pairs
        of one reply (``pairs_turn``).
    """

    wanted: tuple[Wanted, ...] = WANTED


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildDialogues(DialogueRowsConfig, RunConfig, recipe="build_dialogues", module="stages.build_rows"):
    """Rows to train on from stored dialogues of any number of players.

    Attributes:
      sources: runs that collected trajectories, folders of trajectories, or files of published interactions
        (``.jsonl``, ``.json``, ``.parquet``; playpen-data); also as A,B,C.
      cut_unanswered: whether to drop what follows the last reply of a published row instead of refusing it.
      max_row_bytes: a published row that takes more is refused, before it is read whole.
    """

    sources: tuple[str, ...] = ()
    cut_unanswered: bool = False
    max_row_bytes: Annotated[int, Range(1000, 2**31 - 1)] = 16 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Minigames(RunConfig, recipe="minigames", module="stages.build_rows"):
    """Short instructions with exact replies, for a warm start or among rows of games.

    Attributes:
      rows: how many, of all templates in turn (the paper: about 20,000 of 26 templates).
      held_out: share of them that is written apart.
    """

    rows: Annotated[int, Range(1, 400_000)] = 20_000
    held_out: ShareBelowOne = 0.02

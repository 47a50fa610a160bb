"""Rows to train on from stored dialogues of any number of players (Playpen, arXiv 2504.08590, sections 4.3.1, 4.3.2).

    dialogues  of every source: trajectories of dfc, both seats, or published interactions (`dfc.rows.dialogues`),
               which are repaired as the paper's authors did (`dfc.rows.dialogue_repairs`)
    choice     what to imitate, pairs of dialogues, pairs of one reply (rules: `dfc.rows.dialogue_rows`)
    data       NAME.jsonl and NAME_held_out.jsonl of each kind in ``wanted``, statistics.json; layouts: docs/data.md
    tables     tables.md, in the shape of the paper's Tables 3 and 4

No model is read and nothing is played. With several processes the first one does it.
"""

import collections
import dataclasses
from collections.abc import Mapping
from pathlib import Path

from dfc.config import BuildDialogues
from dfc.config.dialogues import WANTED, Wanted
from dfc.files import write_json, write_text
from dfc.records.collection import parts_folder
from dfc.records.task_groups import evaluation_only
from dfc.records.trajectory_files import DatasetError
from dfc.report import data_tables
from dfc.rows.built_rows import build_once
from dfc.rows.conversations import Conversation, ConversationPair, SupervisedLayout, write_conversations, write_pairs
from dfc.rows.dialogue_repairs import repaired
from dfc.rows.dialogue_rows import DialogueRows, Split, choose, is_wanted
from dfc.rows.dialogues import Dialogue, read_dialogues
from dfc.rows.preference_pairs import STATISTICS_FILE
from dfc.rows.training_rows import DATA_FOLDER, TABLES, dialogue_file
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

_HINTS: dict[Wanted, str] = {
    "sft": "collect more, raise players or max_characters, or lower a threshold",
    "pairs_dialogue": "collect several dialogues of an instance, or raise players or max_characters",
    "pairs_turn": "collect several dialogues of an instance, of players who lose too, raise players or max_characters, "
    "or set turn_rejected=lower_quality",
}


def run(config: BuildDialogues, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; a finished run is shown, and nothing is built again."""
    del stop  # it takes minutes at most, and starts again
    build_once(folder, lambda: _build(config, folder))


def _build(config: BuildDialogues, folder: RunFolder) -> None:
    dialogues, unfinished, mended = _read(config)
    rows = choose(dialogues, config, seed=config.seed, unfinished=unfinished, repaired=mended)
    _refuse_nothing(config, rows)
    data = folder.path / DATA_FOLDER
    data.mkdir(parents=True, exist_ok=True)
    layout: SupervisedLayout = "messages" if config.replies == "all" else "prompt_completion"
    for held_out, some in enumerate(rows.sft):
        if some:
            write_conversations(data / dialogue_file("sft", held_out=bool(held_out)), some, layout=layout)
    for held_out, pairs in enumerate(rows.pairs_dialogue):
        if pairs:
            write_pairs(data / dialogue_file("pairs_dialogue", held_out=bool(held_out)), pairs)
    for held_out, pairs in enumerate(rows.pairs_turn):
        if pairs:
            write_pairs(data / dialogue_file("pairs_turn", held_out=bool(held_out)), pairs)
    settings = {
        "groups" if field.name == "game_groups" else field.name: getattr(config, field.name)  # the file keeps its keys
        for field in dataclasses.fields(config)
    }
    groups = [dataclasses.asdict(group) for group in rows.statistics]
    write_json(data / STATISTICS_FILE, {"settings": settings, "players": rows.players, "groups": groups})
    tables = data_tables.dialogue_data(groups, rows.players)
    write_text(folder.path / TABLES, "\n".join(table.markdown() for table in tables))


def _read(
    config: BuildDialogues,
) -> tuple[list[Dialogue], collections.Counter[str], collections.Counter[tuple[str, str]]]:
    """Returns the repaired dialogues of all sources; unfinished ones by game; repairs by game and field.

    Raises:
      DatasetError: a source cannot be read, or a game is named that has no dialogue or is for evaluation only.
    """
    dialogues: list[Dialogue] = []
    unfinished: collections.Counter[str] = collections.Counter()
    mended: collections.Counter[tuple[str, str]] = collections.Counter()
    for named in config.sources:
        path = Path(named).expanduser()
        source = parts_folder(path) if path.is_dir() else path
        print(f"reading {source}", flush=True)  # noqa: T201 - progress
        found = read_dialogues(
            source,
            wanted=lambda game: is_wanted(game, config),
            cut_unanswered=config.cut_unanswered,
            max_row_bytes=config.max_row_bytes,
        )
        for dialogue in found.dialogues:
            left, counts = repaired(dialogue, config.repairs)
            dialogues += [] if left is None else [left]
            mended.update({(dialogue.game, field): number for field, number in counts.items()})
        unfinished.update(found.unfinished)
    there = sorted({dialogue.game for dialogue in dialogues})
    places = ", ".join(config.sources)
    if absent := [game for game in config.game_groups if game not in there and game not in config.leave_out]:
        raise DatasetError(
            f"{places}: no dialogue of {', '.join(absent)}, there are {', '.join(there) or 'none'}{_left_out(mended)}; "
            "collect the game, or take it out of game_groups"
        )
    if measured := evaluation_only(there):
        left_out = ",".join(dict.fromkeys((*config.leave_out, *measured)))
        raise DatasetError(
            f"{places}: dialogues of {', '.join(measured)}, which is for evaluation only; leave it out with "
            f"--config.leave_out={left_out}"
        )
    if not there:
        raise DatasetError(
            f"{places}: no dialogue remains{_left_out(mended)}; leave out fewer games, or name other sources"
        )
    return dialogues, unfinished, mended


def _left_out(mended: Mapping[tuple[str, str], int]) -> str:
    """Returns a note on how many dialogues the repairs left out; empty if none."""
    number = sum(count for (_, field), count in mended.items() if field.startswith("rows_"))
    return f" (repairs left out {number} published ones; repairs=() takes them as they are)" if number else ""


def _refuse_nothing(config: BuildDialogues, rows: DialogueRows) -> None:
    """Raises DatasetError, with counts and the settings to change, where a file that is wanted has no row."""
    found = []
    for kind in WANTED:
        split: Split[Conversation] | Split[ConversationPair] = getattr(rows, kind)
        if kind not in config.wanted:
            continue
        if not split.train and not split.held_out:
            counts = "; ".join(
                f"{group.game}: {group.won} won, {group.lost} lost, {group.aborted} aborted of {group.dialogues} "
                f"dialogues at {group.instances} instances, {group.too_long} rows too long"
                for group in rows.statistics
            )
            found.append(f"{kind} has no row ({counts}); {_HINTS[kind]}, or take it out of wanted")
        elif not split.train or (config.held_out and not split.held_out):
            what = "to train on" if not split.train else "to hold out"
            counts = ", ".join(
                f"{group.game} {group.instances_held_out} of {group.instances} instances" for group in rows.statistics
            )
            found.append(
                f"held_out={config.held_out:g} leaves {kind} no row {what} (held out are of {counts}); "
                f"{'lower' if not split.train else 'raise'} it, set it to 0, or collect more instances"
            )
    if found:
        raise DatasetError(f"{', '.join(config.sources)}: {'; '.join(found)}")

"""Rows to train on, built without a model: of trajectories, of dialogues, or minigames; once, on the first host.

    build_data       successes and pairs of a folder of trajectories (Paprika, arXiv 2502.17543; rules:
                     `dfc.rows.selection`): sft.parquet, pairs.parquet; tables.md is the paper's Table 4
    build_dialogues  what to imitate, pairs of dialogues, pairs of one reply (Playpen, arXiv 2504.08590, sections 4.3.1,
                     4.3.2; rules: `dfc.rows.dialogue_rows`), from trajectories, both seats, and published interactions
                     (`dfc.rows.dialogues`), repaired as the paper's authors did (`dfc.rows.dialogue_repairs`):
                     NAME.jsonl and NAME_held_out.jsonl of each kind in ``wanted``; tables.md is its Tables 3 and 4
    minigames        short instructions with exact replies (Playpen, appendix D.2): minigames.jsonl and
                     minigames_held_out.jsonl, in the layout `messages` (`dfc.rows.minigames`)

Each chooses its rows, refuses what would leave a file without one, and writes ``data`` (layouts: docs/data.md), with
statistics.json beside the rows. A finished run is shown, and nothing is built again; one that was stopped begins again.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from dfc import multihost
from dfc.config import BuildData, BuildDialogues, Minigames
from dfc.config.dialogues import WANTED, Wanted
from dfc.errors import ConfigError
from dfc.files import write_json, write_text
from dfc.records.collection import parts_folder
from dfc.records.task_groups import evaluation_only
from dfc.records.trajectory_files import DatasetError, read_columns
from dfc.report import data_tables
from dfc.report.tables import Table
from dfc.rows import minigames
from dfc.rows.conversations import Conversation, SupervisedLayout, write_conversations, write_pairs
from dfc.rows.dialogue_repairs import repaired
from dfc.rows.dialogue_rows import DialogueRows, DialogueStatistics, choose, is_wanted
from dfc.rows.dialogues import Dialogue, read_dialogues
from dfc.rows.preference_pairs import STATISTICS_FILE, write_files
from dfc.rows.selection import GroupStatistics, SelectionConfig, select
from dfc.rows.training_rows import DATA_FOLDER, TABLES, dialogue_file
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

_HINTS: dict[Wanted, str] = {
    "sft": "collect more, raise players or max_characters, or lower a threshold",
    "pairs_dialogue": "collect several dialogues of an instance, or raise players or max_characters",
    "pairs_turn": "collect several dialogues of an instance, of players who lose too, raise players or max_characters, "
    "or set turn_rejected=lower_quality",
}
# By the statistic that counts a file's rows: why there is none with counts, and what is counted of each game.
_LACKING = {
    "sft": (
        "nothing to imitate ({}); collect more samples or easier tasks, or raise sft_tokens of build_data",
        (
            "{game}: {successes} successes in {trajectories} trajectories, {solved} of {tasks} tasks solved, "
            "{too_long_sft} successes too long"
        ),
    ),
    "pairs": (
        (
            "no pair of a better and a worse trajectory ({}); collect more samples of a task, lower turn_ratio, raise "
            "pair_tokens, or name labels in rejected_failures of build_data"
        ),
        (
            "{game}: {solved} of {tasks} tasks solved, {without_rejected} of them without a clearly worse trajectory, "
            "{too_long_pairs} trajectories too long"
        ),
    ),
}
_PLAYED = (
    "{game}: {won} won, {lost} lost, {aborted} aborted of {dialogues} dialogues at {instances} instances, {too_long} "
    "rows too long"
)


class _Built(NamedTuple):
    """The rows of a run: what writes their files into a folder; statistics, None: none; tables."""

    write: Callable[[Path], object]
    statistics: Mapping[str, Any] | None = None
    tables: Sequence[Table] = ()


def run(config: BuildData | BuildDialogues | Minigames, folder: RunFolder, stop: Stop) -> None:
    """Builds the rows unless the run is finished; prints its tables, if it has any, and where the rows are.

    What is raised on the first host, where alone rows are built, is raised on all.

    Raises:
      DatasetError: the source has nothing to train on, or the folder cannot be written to.
      ConfigError: the settings leave nothing, or cannot be met.
    """
    del stop  # it takes minutes at most, and starts again
    if multihost.broadcast(folder.finished.exists()):
        print(f"{folder.path} holds this run, finished", flush=True)  # noqa: T201 - why nothing happens
    else:
        multihost.on_all_hosts(lambda: _build(config, folder.path) if folder.writes else None)
        folder.finish()
    if not folder.writes:
        return
    tables = folder.path / TABLES
    if tables.exists():
        print(tables.read_text(encoding="utf-8"))  # noqa: T201 - the result
    print(f"rows: {folder.path / DATA_FOLDER}", flush=True)  # noqa: T201 - where to look


def _build(config: BuildData | BuildDialogues | Minigames, folder: Path) -> None:
    try:
        match config:
            case BuildData():
                built = _of_trajectories(config)
            case BuildDialogues():
                built = _of_dialogues(config)
            case Minigames():
                built = _of_minigames(config)
        data = folder / DATA_FOLDER
        data.mkdir(parents=True, exist_ok=True)
        built.write(data)
        if built.statistics is not None:
            write_json(data / STATISTICS_FILE, built.statistics)
            write_text(folder / TABLES, "\n".join(table.markdown() for table in built.tables))
    except OSError as error:
        why = error.strerror or error
        raise DatasetError(f"{folder}: cannot be written to: {why}; free space is needed there") from error


def _refuse_games(
    config: BuildData | BuildDialogues, place: object, what: tuple[str, str], there: Sequence[str], note: str = ""
) -> None:
    """Raises DatasetError unless every game named is there, one remains and none of these is for evaluation only."""
    named, left_out = config.game_groups, config.leave_out
    remain = [game for game in named or there if game in there and game not in left_out]
    if absent := [game for game in named if game not in there and game not in left_out]:
        why = (
            f"no {what[0]} of {', '.join(absent)}, there are {', '.join(there) or 'none'}{note}; collect the game, or "
        )
        raise DatasetError(f"{place}: {why}take it out of game_groups of {config.recipe}")
    if measured := evaluation_only(remain):
        why = f"holds {what[1]} of {', '.join(measured)}, which is for evaluation only; leave it out with "
        raise DatasetError(f"{place}: {why}--config.leave_out={','.join(dict.fromkeys((*left_out, *measured)))}")
    if not remain:
        why = f"no {what[0]} remains{note}; leave out fewer games, or name other sources"
        raise DatasetError(f"{place}: {why}")


def _counts(statistics: Sequence[GroupStatistics] | Sequence[DialogueStatistics], words: str, between: str) -> str:
    return between.join(words.format_map(dataclasses.asdict(group)) for group in statistics)


# ---- of trajectories ------------------------------------------------------------------------------------------------


def _of_trajectories(config: BuildData) -> _Built:
    trajectories = parts_folder(Path(config.trajectories).expanduser())
    names = [field.name for field in dataclasses.fields(SelectionConfig)]
    values = {name: getattr(config, name) for name in names} | {"turn_ratio": config.turn_ratio or float("inf")}
    settings = SelectionConfig(**values)
    there = sorted(pc.unique(read_columns(trajectories, ("game",)).table["game"]).to_pylist())
    _refuse_games(config, trajectories, ("trajectory", "trajectories"), there)
    groups = [game for game in config.game_groups or there if game not in config.leave_out]
    unused = [game for game in there if game not in groups]
    without = f"Without {', '.join(unused)}, of which there are trajectories too." if unused else ""
    print(f"choosing from {trajectories}: {', '.join(groups)}. {without}".rstrip(), flush=True)  # noqa: T201 - progress
    selection = select(trajectories, settings, groups=groups)
    _refuse_no_row(trajectories, selection.statistics, config.needed)
    table = data_tables.training_data([dataclasses.asdict(group) for group in selection.statistics], without)
    return _Built(lambda data: write_files(selection, data), selection.record(), [table])


def _refuse_no_row(trajectories: Path, statistics: Sequence[GroupStatistics], needed: str) -> None:
    """Raises DatasetError, with counts and the settings to change, if a needed file has no row; else prints a note."""
    lacking = {
        name: why.format(_counts(statistics, words, "; "))
        for name, (why, words) in _LACKING.items()
        if not sum(getattr(group, name) for group in statistics)
    }
    wanted = _LACKING if needed == "both" or len(lacking) > 1 else (needed,)
    if needed != "none" and (refused := [why for name, why in lacking.items() if name in wanted]):
        raise DatasetError("; ".join(f"{trajectories}: {why}" for why in refused))
    for name, why in lacking.items():
        print(f"{name}.parquet has no row: {why}", flush=True)  # noqa: T201 - what is missing


# ---- of dialogues ---------------------------------------------------------------------------------------------------


def _of_dialogues(config: BuildDialogues) -> _Built:
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
    left_out = sum(count for (_, field), count in mended.items() if field.startswith("rows_"))
    note = f" (repairs left out {left_out} published ones; repairs=() takes them as they are)" if left_out else ""
    there = sorted({dialogue.game for dialogue in dialogues})
    _refuse_games(config, ", ".join(config.sources), ("dialogue", "dialogues"), there, note)
    rows = choose(dialogues, config, seed=config.seed, unfinished=unfinished, repaired=mended)
    _refuse_empty(config, rows)
    settings = {
        "groups" if field.name == "game_groups" else field.name: getattr(config, field.name)  # the file keeps its keys
        for field in dataclasses.fields(config)
    }
    groups = [dataclasses.asdict(group) for group in rows.statistics]
    record = {"settings": settings, "players": rows.players, "groups": groups}
    layout: SupervisedLayout = "messages" if config.replies == "all" else "prompt_completion"
    kinds: dict[str, Any] = {kind: getattr(rows, kind) for kind in WANTED}
    return _Built(lambda data: _write(data, kinds, layout), record, data_tables.dialogue_data(groups, rows.players))


def _write(data: Path, kinds: Mapping[str, Sequence[Sequence[Any]]], layout: SupervisedLayout) -> None:
    """Writes the rows of each kind that has any, those to train on and those held out."""
    for kind, parts in kinds.items():
        for held_out, rows in enumerate(parts):
            path = data / dialogue_file(kind, held_out=bool(held_out))
            if rows and isinstance(rows[0], Conversation):
                write_conversations(path, rows, layout=layout)
            elif rows:
                write_pairs(path, rows)


def _refuse_empty(config: BuildDialogues, rows: DialogueRows) -> None:
    """Raises DatasetError, with counts and the settings to change, where a file that is wanted has no row."""
    found = []
    for kind in config.wanted:
        train, held_out = getattr(rows, kind)
        if not train and not held_out:
            counts = _counts(rows.statistics, _PLAYED, "; ")
            found.append(f"{kind} has no row ({counts}); {_HINTS[kind]}, or take it out of wanted")
        elif not train or (config.held_out and not held_out):
            what, change = ("to train on", "lower") if not train else ("to hold out", "raise")
            counts = _counts(rows.statistics, "{game} {instances_held_out} of {instances} instances", ", ")
            found.append(
                f"held_out={config.held_out:g} leaves {kind} no row {what} (held out are of {counts}); {change} it, "
                "set it to 0, or collect more instances"
            )
    if found:
        raise DatasetError(f"{', '.join(config.sources)}: {'; '.join(found)}")


# ---- minigames ------------------------------------------------------------------------------------------------------


def _of_minigames(config: Minigames) -> _Built:
    rows = minigames.minigames(config.rows, config.seed)
    parts = minigames.held_out(rows, config.held_out, config.seed)
    train, apart = map(len, parts)
    if not train or (config.held_out and not apart):
        what = f"leaves {train} of {len(rows)} rows to train on and {apart} to hold out"
        raise ConfigError([f"held_out={config.held_out:g}: {what}; ask for more rows, or set it to 0"])
    return _Built(lambda data: _write(data, {"minigames": parts}, "messages"))

"""Training rows from a folder of trajectories: supervised rows, pairs, and the paper's Table 4.

    groups  the games that are there, those of ``build_data.game_groups``, without ``build_data.leave_out``
    data    sft.parquet, pairs.parquet, statistics.json (`dfc.rows.preference_pairs`; rules: `dfc.rows.selection`)
    tables  tables.md

No model is read and nothing is played. With several processes the first one does it.
"""

import dataclasses
from pathlib import Path

import pyarrow.compute as pc

from dfc.config import BuildData
from dfc.errors import ConfigError
from dfc.files import write_text
from dfc.records.collection import parts_folder
from dfc.records.task_groups import evaluation_only
from dfc.records.trajectory_files import DatasetError, read_columns
from dfc.report import data_tables
from dfc.rows import preference_pairs
from dfc.rows.built_rows import build_once
from dfc.rows.preference_pairs import PAIRS_FILE, SFT_FILE
from dfc.rows.selection import GroupStatistics, SelectionConfig
from dfc.rows.training_rows import DATA_FOLDER, TABLES
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop


def run(config: BuildData, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; a finished run is shown, and nothing is built again."""
    del stop  # it takes minutes at most, and starts again
    build_once(folder, lambda: _build(config, folder))


def _build(config: BuildData, folder: RunFolder) -> None:
    trajectories = parts_folder(Path(config.trajectories).expanduser())
    try:
        selection = SelectionConfig(
            sft_tokens=config.sft_tokens,
            pair_tokens=config.pair_tokens,
            turn_ratio=config.turn_ratio or float("inf"),
            rejected_failures=config.rejected_failures,
            seed=config.seed,
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    there = sorted(pc.unique(read_columns(trajectories, ("game",)).table["game"]).to_pylist())
    groups = _groups(trajectories, config, there)
    unused = [game for game in there if game not in groups]
    without = f"Without {', '.join(unused)}, of which there are trajectories too." if unused else ""
    print(f"choosing from {trajectories}: {', '.join(groups)}. {without}".rstrip(), flush=True)  # noqa: T201 - progress
    statistics = preference_pairs.build(trajectories, folder.path / DATA_FOLDER, selection, groups=groups)
    table = data_tables.training_data([dataclasses.asdict(group) for group in statistics], without)
    write_text(folder.path / TABLES, table.markdown())
    _refuse_nothing(trajectories, statistics, config.needed)


def _groups(trajectories: Path, config: BuildData, there: list[str]) -> list[str]:
    """Returns the games to choose from; DatasetError if one named has no trajectory, or no game remains."""
    wanted, left_out = config.game_groups, config.leave_out
    if absent := [game for game in wanted if game not in there]:
        raise DatasetError(
            f"{trajectories}: no trajectory of {', '.join(absent)}, there are {', '.join(there)}; collect the game, or "
            "take it out of game_groups of build_data"
        )
    groups = [game for game in wanted or there if game not in left_out]
    if measured := evaluation_only(groups):
        names = ", ".join(measured)
        raise DatasetError(
            f"{trajectories}: holds trajectories of {names}, which is for evaluation only; leave it out with "
            f"--config.leave_out={','.join(dict.fromkeys((*left_out, *measured)))}"
        )
    if not groups:
        raise DatasetError(f"{trajectories}: no game remains without {', '.join(left_out)}; leave out fewer")
    return groups


def _refuse_nothing(trajectories: Path, statistics: tuple[GroupStatistics, ...], needed: str) -> None:
    """Raises DatasetError, with counts and the settings to change, if a needed file has no row; else prints a note."""
    lacking = {}
    if not sum(group.sft for group in statistics):
        counts = "; ".join(
            f"{group.game}: {group.successes} successes in {group.trajectories} trajectories, {group.solved} of "
            f"{group.tasks} tasks solved, {group.too_long_sft} successes too long"
            for group in statistics
        )
        lacking[SFT_FILE] = (
            f"nothing to imitate ({counts}); collect more samples or easier tasks, or raise sft_tokens of build_data"
        )
    if not sum(group.pairs for group in statistics):
        counts = "; ".join(
            f"{group.game}: {group.solved} of {group.tasks} tasks solved, {group.without_rejected} of them without a "
            f"clearly worse trajectory, {group.too_long_pairs} trajectories too long"
            for group in statistics
        )
        lacking[PAIRS_FILE] = (
            f"no pair of a better and a worse trajectory ({counts}); collect more samples of a task, lower "
            "turn_ratio, raise pair_tokens, or name labels in rejected_failures of build_data"
        )
    wanted = {"sft": [SFT_FILE], "pairs": [PAIRS_FILE], "both": [SFT_FILE, PAIRS_FILE]}.get(needed, [])
    refused = [file for file in lacking if file in wanted or len(lacking) > 1]
    if refused and needed != "none":
        raise DatasetError("; ".join(f"{trajectories}: {lacking[file]}" for file in refused))
    for file, why in lacking.items():
        print(f"{file} has no row: {why}", flush=True)  # noqa: T201 - what is missing

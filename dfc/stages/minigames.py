"""Minigames (Playpen, arXiv 2504.08590, appendix D.2): short instructions with exact replies.

    data  minigames.jsonl and minigames_held_out.jsonl, in the layout `messages` (`dfc.rows.minigames`)

No model is read and nothing is played. With several processes the first one does it.
"""

from dfc.config import Minigames
from dfc.errors import ConfigError
from dfc.rows import minigames
from dfc.rows.built_rows import build_once
from dfc.rows.conversations import write_conversations
from dfc.rows.training_rows import DATA_FOLDER, minigames_file
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop


def run(config: Minigames, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; a finished run is shown, and nothing is built again."""
    del stop  # it takes seconds, and starts again
    build_once(folder, lambda: _make(config, folder))


def _make(config: Minigames, folder: RunFolder) -> None:
    try:
        rows = minigames.minigames(config.rows, config.seed)
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    train, apart = minigames.held_out(rows, config.held_out, config.seed)
    if not train or (config.held_out and not apart):
        what = f"leaves {len(train)} of {len(rows)} rows to train on and {len(apart)} to hold out"
        raise ConfigError([f"held_out={config.held_out:g}: {what}; ask for more rows, or set it to 0"])
    data = folder.path / DATA_FOLDER
    data.mkdir(parents=True, exist_ok=True)
    write_conversations(data / minigames_file(), train)
    if apart:
        write_conversations(data / minigames_file(held_out=True), apart)

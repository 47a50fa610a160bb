"""A small tournament, and a second model for it, for the tests of evaluate."""

import json
import shutil

from dfc.config import Evaluate, RolloutConfig
from dfc.models import huggingface

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 4}}
ROLLOUT = RolloutConfig(slots=4, max_length=160, max_reply_length=4, stop=("]",))
CONFIG = Evaluate(
    name="t",
    games=GAMES,
    policies=("tiny_player", "random_legal"),
    rollout=ROLLOUT,
    seeds=2,
)


def twin_of(folder, tokenizer_differs):
    """The bundled model in a folder of its own."""
    shutil.copytree(huggingface.resolve("tiny_player"), folder, ignore=shutil.ignore_patterns("__*"))
    if tokenizer_differs:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "note": "the same, but another file"}))
    return str(folder)

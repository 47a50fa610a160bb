"""Folders of the bundled model's tokenizer, to be damaged, and how they have to be refused."""

import shutil
import time
from pathlib import Path

import pytest

from dfc.errors import WeightsError

TINY = Path(__file__).resolve().parents[1] / "models" / "tiny_player"
GOOD = (TINY / "chat_template.jinja").read_text()


@pytest.fixture
def folder(tmp_path):
    """The tokenizer of the bundled model, to be damaged."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        shutil.copy(TINY / name, tmp_path / name)
    return tmp_path


def refused(call, match):
    """Asserts on one message of a bounded length, in seconds."""
    began = time.thread_time()
    with pytest.raises(WeightsError, match=match) as caught:
        call()
    assert len(str(caught.value)) < 1500
    assert time.thread_time() - began < 60  # mostly far below 1
    return str(caught.value)

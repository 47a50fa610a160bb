"""The scripted conversations: right answers, the length that is promised, the same file from the same seed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dfc.rows.conversations import read_conversations

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "scripted_chat.py"
FACTORS = {"kilometres metres": 1000, "hours minutes": 60, "minutes seconds": 60, "kilograms grams": 1000}
FACTORS |= {"weeks days": 7, "feet inches": 12, "litres millilitres": 1000, "dozens pieces": 12}


def written(path, *, seed=0, count=400):
    command = [sys.executable, str(SCRIPT), f"--conversations={count}", f"--seed={seed}", f"--out={path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - the script above
    return done.stdout


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    path = tmp_path_factory.mktemp("chat") / "chat.jsonl"
    assert "400 conversations" in written(path)
    return path


def test_conversations_have_two_to_five_turns_and_hardly_repeat(chat):
    conversations = read_conversations(chat)
    assert {len(c.messages) // 2 for c in conversations} == {2, 3, 4, 5}
    assert all(c.meta["turns"] * 2 == len(c.messages) for c in conversations)
    assert len({c.messages for c in conversations}) > 380


def test_the_seed_decides_the_file(chat, tmp_path):
    written(tmp_path / "again.jsonl")
    written(tmp_path / "other.jsonl", seed=1)
    assert (tmp_path / "again.jsonl").read_bytes() == chat.read_bytes() != (tmp_path / "other.jsonl").read_bytes()


def test_sums_conversions_and_orders_are_right(chat):
    checked = {"sum": 0, "conversion": 0, "order": 0}
    for conversation in read_conversations(chat):
        turns = zip(conversation.messages[::2], conversation.messages[1::2], strict=True)
        for question, reply in ((q.content, r.content) for q, r in turns):
            if found := re.fullmatch(r"(-?\d+) (plus|minus|times) (\d+) is (-?\d+)\.", reply):
                a, b, result = (int(found[n]) for n in (1, 3, 4))
                assert result == {"plus": a + b, "minus": a - b, "times": a * b}[found[2]]
                checked["sum"] += 1
            if found := re.fullmatch(r"(\d+) (\w+) are (\d+) (\w+)\.", reply):
                assert int(found[3]) == int(found[1]) * FACTORS[f"{found[2]} {found[4]}"]
                checked["conversion"] += 1
            if found := re.fullmatch(r"(Put these names in alphabetical order: |Now sort )(.*)\.", question):
                assert reply.rstrip(".").split(", ") == sorted(found[2].split(", "))
                checked["order"] += 1
    assert min(checked.values()) > 40

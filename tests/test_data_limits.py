"""Files of others that would fill the memory, or hold what cannot be read, are refused with one message."""

import json
import resource

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dfc.records.trajectory_files import DatasetError, read_part
from dfc.rows import conversations, row_files, training_rows

TALK = [{"role": "user", "content": "Guess."}, {"role": "assistant", "content": "crane"}]


def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def refusal(path, **options):
    with pytest.raises(DatasetError) as found:
        conversations.read_conversations(path, **options)
    assert len(str(found.value)) < 600
    return str(found.value)


def test_a_line_that_is_too_long_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        file.write(json.dumps({"messages": TALK}) + "\n")
        file.truncate(1 << 30)  # a gibibyte of zeros behind it, which takes no disk
    before = memory()
    assert refusal(path).startswith(f"{path}, row 1 (line 2): takes more than 16777216 bytes")
    assert memory() - before < 200 << 20
    line = json.dumps({"messages": TALK})
    path.write_text(line + "\n")
    assert "takes more than 20 bytes" in refusal(path, max_row_bytes=20)
    assert len(conversations.read_conversations(path, max_row_bytes=len(line) + 1)) == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_nested_brackets_are_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text("[" * 100_000)
    assert "recursion" in refusal(path)


def test_an_array_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "_LARGEST_ARRAY", 100)
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"messages": TALK}] * 5))
    assert "one JSON array of" in refusal(path)


def talks(count, text):
    return pa.table({"messages": [TALK] * count, "notes": pa.array([text] * count)})


def test_a_small_file_that_unpacks_to_much_is_refused_before_it_is(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(talks(200, "x" * 1_000_000), path, use_dictionary=False, compression="zstd")
    assert path.stat().st_size < 50_000
    before = memory()
    assert "unpack to 200," in refusal(path)
    assert "unpack to " in message_of(
        training_rows.read, path, pairs=False, vocabulary=9, row_length=9, tokenizer=lambda: None
    )
    assert memory() - before < 100 << 20
    token_ids = pa.table({"token_ids": [[7] * 40_000_000], "mask": [[True] * 4]})
    pq.write_table(token_ids, path)
    assert "unpack to " in message_of(
        training_rows.read, path, pairs=False, vocabulary=9, row_length=9, tokenizer=lambda: None
    )
    assert "unpack to " in message_of(read_part, path, ("token_ids",))


def message_of(function, *arguments, **options):
    with pytest.raises(DatasetError) as found:
        function(*arguments, **options)
    return str(found.value)


def test_a_row_that_a_dictionary_repeats_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    long = [{"role": "user", "content": "x" * 3_000_000}, *TALK[1:]]
    pq.write_table(
        pa.table({"messages": [TALK] * 20 + [long * 4] * 2}), path, compression="none", dictionary_pagesize_limit=10**7
    )
    assert path.stat().st_size < 4_000_000
    assert refusal(path, max_row_bytes=10_000_000).startswith(f"{path}, row 20: takes more than 10000000 bytes")


def test_ordinary_rows_that_repeat_themselves_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(talks(2000, "the rules of the game, the same in every row " * 200), path, compression="zstd")
    assert len(conversations.read_conversations(path)) == 2000


def test_what_cannot_be_read_is_not_called_damage(tmp_path):
    path = tmp_path / "a.parquet"
    broken = pa.array([b"\xff\xfe", b"ok"]).view(pa.string())
    pq.write_table(pa.table({"messages": [TALK] * 2, "note": broken}), path)
    found = refusal(path)
    assert found.startswith(f"{path}: column note (string), rows 0 to 1: holds what cannot be read (UnicodeDecodeError")
    zone = pa.array([0, 1], pa.timestamp("s", tz="Mars/Phobos"))
    pq.write_table(pa.table({"messages": [TALK] * 2, "when": zone}), path)
    found = refusal(path)
    assert found.startswith(
        f"{path}: column when (timestamp[ms, tz=Mars/Phobos]), rows 0 to 1: holds what cannot be read"
    )
    assert "damaged" not in found

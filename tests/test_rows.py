"""Rows to train on: what is read is what was written, and every broken input is one sentence with a hint."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from offline_rows import MASK, TOKEN_IDS, pairs, sequences, trimmed, write_pairs, write_sft

from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.records.trajectories import Message
from dfc.records.trajectory_files import DatasetError, write_atomically
from dfc.rows import conversations, training_rows


def tokenizer():
    return ChatTokenizer.load(huggingface.resolve("tiny_player"))


def no_tokenizer():
    raise AssertionError("ids are not encoded again")


def read(path, *, pairs=False, vocabulary=1000, row_length=200, tokenizer=no_tokenizer):
    return training_rows.read(path, pairs=pairs, vocabulary=vocabulary, row_length=row_length, tokenizer=tokenizer)


def contents(found, side=0):
    return [tuple(array.tolist() for array in found.sides[side][row]) for row in range(len(found))]


@pytest.mark.parametrize("row_group_rows", [3, 1024])
def test_rows_are_what_was_written_without_what_follows_the_last_action(tmp_path, row_group_rows):
    written = sequences(20)
    found = read(write_sft(tmp_path / "sft.parquet", written, row_group_rows=row_group_rows))
    assert contents(found) == [trimmed(*row) for row in written]
    assert found.lengths.tolist() == [len(trimmed(*row)[0]) for row in written]
    assert found.actions.tolist() == [sum(row[1]) for row in written]


def test_pairs_have_both_sides_and_are_as_long_as_both(tmp_path):
    written = pairs(20)
    found = read(write_pairs(tmp_path / "pairs.parquet", written, row_group_rows=7), pairs=True)
    for side in (0, 1):
        assert contents(found, side) == [trimmed(*pair[side]) for pair in written]
    assert found.lengths.tolist() == [sum(len(trimmed(*side)[0]) for side in pair) for pair in written]


def test_a_folder_of_built_data_and_the_run_that_built_it_mean_the_same(tmp_path):
    (tmp_path / "run" / "data").mkdir(parents=True)
    write_sft(tmp_path / "run" / "data" / "sft.parquet", sequences(5))
    write_pairs(tmp_path / "run" / "data" / "pairs.parquet", pairs(4))
    for place in (tmp_path / "run", tmp_path / "run" / "data"):
        assert len(read(place)) == 5
        assert len(read(place, pairs=True)) == 4


def test_a_digest_names_ids_masks_and_their_order_and_nothing_else(tmp_path):
    written = sequences(6)
    first = read(write_sft(tmp_path / "one.parquet", written, row_group_rows=2)).digest
    assert read(write_sft(tmp_path / "two.parquet", written)).digest == first
    other = [(token_ids.copy(), mask.copy()) for token_ids, mask in written]
    other[3][0][0] += 1
    assert read(write_sft(tmp_path / "three.parquet", other)).digest != first
    assert read(write_sft(tmp_path / "four.parquet", written[::-1])).digest != first


def conversation(*replies):
    told = [Message("user", "guess a number")]
    for reply in replies:
        told += [Message("assistant", reply), Message("user", "higher")]
    return tuple(told[:-1])


def test_conversations_of_others_are_encoded_as_a_rollout_would_have_made_them(tmp_path):
    told = [conversation("[1]"), conversation("[5]", "[7]", "[9]")]
    conversations.write_conversations(tmp_path / "c.jsonl", [conversations.Conversation(c) for c in told])
    found = read(tmp_path / "c.jsonl", vocabulary=793, tokenizer=tokenizer)
    coder = tokenizer()
    expected = [conversations.encode(c, coder) for c in told]
    assert contents(found) == [(token_ids.tolist(), mask.tolist()) for token_ids, mask in expected]
    conversations.write_pairs(tmp_path / "p.parquet", [conversations.ConversationPair(*told)])
    both = read(tmp_path / "p.parquet", pairs=True, vocabulary=793, tokenizer=tokenizer)
    assert [contents(both, side) for side in (0, 1)] == [[row] for row in contents(found)]


def test_of_a_prompt_with_its_completion_and_of_explicit_pairs_only_what_follows_is_trained_on(tmp_path):
    talk = [Message("user", "Guess."), Message("assistant", "[4]"), Message("user", "No."), Message("assistant", "[5]")]
    coder, other = tokenizer(), [*talk[:3], Message("assistant", "[6]")]
    told = conversations.Conversation(tuple(talk), context_replies=1)
    conversations.write_conversations(tmp_path / "c.jsonl", [told], layout="prompt_completion")
    pair = conversations.ConversationPair(tuple(talk), tuple(other), context_replies=1)
    conversations.write_pairs(tmp_path / "p.jsonl", [pair])
    sft, both = (
        read(tmp_path / "c.jsonl", tokenizer=tokenizer),
        read(tmp_path / "p.jsonl", pairs=True, tokenizer=tokenizer),
    )
    prompt = [*coder.first_turn("Guess."), *coder.encode_reply("[4]"), coder.end_token_ids[0]]
    prompt += coder.next_turn("No.", closed=True)
    for found, reply in ((contents(sft), "[5]"), (contents(both), "[5]"), (contents(both, 1), "[6]")):
        said = [*coder.encode_reply(reply), coder.end_token_ids[0]]
        assert found == [([*prompt, *said], [False] * len(prompt) + [True] * len(said))]


def collected(told, system=None):
    """Rows of a collection: the ids that the bundled model makes of messages, and the messages."""
    coder = tokenizer()
    own = [Message("system", system)] if system else []
    token_ids = [
        [*coder.first_turn(text, system=system), *coder.encode_reply("[1]"), coder.end_token_ids[0]] for text in told
    ]
    first = [len(coder.first_turn(text, system=system)) for text in told]
    mask = [[n >= start for n in range(len(row))] for start, row in zip(first, token_ids, strict=True)]
    messages = [[m._asdict() for m in (*own, Message("user", text), Message("assistant", "[1]"))] for text in told]
    return pa.array(token_ids, TOKEN_IDS), pa.array(mask, MASK), pa.array(messages)


@pytest.mark.parametrize("system", [None, "be brief"])
def test_ids_of_the_model_s_own_tokenizer_are_trained_on_and_others_are_not(tmp_path, system):
    token_ids, mask, messages = collected(["guess a number", "and another one"], system)
    told = [m.as_py() for m in messages]
    told[0][-2]["content"] = "guess a word"
    for sides in (("",), ("chosen_", "rejected_")):
        pairs_ = len(sides) == 2
        columns = {f"{side}{name}": c for side in sides for name, c in (("token_ids", token_ids), ("mask", mask))}
        path = tmp_path / f"{len(sides)}.parquet"
        write_atomically(pa.table(columns | {f"{side}messages": messages for side in sides}), path)
        assert len(read(path, pairs=pairs_, tokenizer=tokenizer)) == 2
        write_atomically(pa.table(columns | {f"{side}messages": pa.array(told) for side in sides}), path)
        text = refusal(path, pairs=pairs_, tokenizer=tokenizer)
        assert "row 0: another tokenizer or chat template" in text
        made, now = (tokenizer().first_turn(said, system=system) for said in ("guess a number", "guess a word"))
        place = next(n for n in range(len(made)) if made[: n + 1] != now[: n + 1])
        assert f"token {place} of its first message is {made[place]} instead of {now[place]};" in text
    # Each row in a group of its own: some of the others are looked at, too.
    token_ids, mask, messages = collected(["guess a number"] * 20, system)
    told = [m.as_py() for m in messages]
    told[17][-2]["content"] = "guess a word"
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"token_ids": token_ids, "mask": mask, "messages": pa.array(told)}), path, row_group_size=1)
    assert "row 17: another tokenizer or chat template" in refusal(path, pairs=False, tokenizer=tokenizer)


# ---- broken input ---------------------------------------------------------------------------------------------------


def refusal(path, **options):
    with pytest.raises(DatasetError) as found:
        read(path, **options)
    text = str(found.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def changed(place, **values):
    found = sequences(5)
    token_ids, mask = found[place]
    found[place] = (values.get("token_ids", token_ids), values.get("mask", mask))
    return found


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (changed(3, token_ids=np.arange(4), mask=np.zeros(4, bool)), "row 3: no action token"),
        (changed(2, token_ids=np.zeros(0, np.int32), mask=np.zeros(0, bool)), "row 2: no action token"),
        (changed(1, token_ids=np.arange(4), mask=np.arange(4) % 2 == 0), "row 1: its first token is an action token"),
        (
            changed(4, token_ids=np.asarray([1, 1000, 3]), mask=np.arange(3) == 2),
            "row 4: token id 1000, but the model has token ids 0",
        ),
        (
            changed(0, token_ids=np.asarray([1, -1, 3]), mask=np.arange(3) == 2),
            "row 0: token id -1, but the model has",
        ),
        (changed(3, token_ids=np.arange(5), mask=np.arange(4) == 2), "row 3: 5 tokens but a mask of 4"),
        (
            changed(3, token_ids=np.arange(400), mask=np.arange(400) == 399),
            "row 3: it has 400 tokens but batch.row_length=200; raise it to 400",
        ),
    ],
    ids=["no action", "empty", "first id", "other tokenizer", "negative", "uneven", "too long"],
)
def test_a_broken_row_is_named(tmp_path, found, text):
    for row_group_rows in (2, 1024):
        path = write_sft(tmp_path / "sft.parquet", found, row_group_rows=row_group_rows)
        assert text in refusal(path)


def test_a_pair_must_fit_into_a_row_as_a_whole(tmp_path):
    path = write_pairs(tmp_path / "pairs.parquet", pairs(8))
    needed = int(read(path, pairs=True).lengths.max())
    assert len(read(path, pairs=True, row_length=needed)) == 8
    text = refusal(path, pairs=True, row_length=needed - 1)
    assert f"raise it to {needed}" in text
    assert "both sides" in text


def test_sides_must_be_told_the_same_first(tmp_path):
    found = pairs(5)
    found[3][1][0][1] += 1
    path = write_pairs(tmp_path / "pairs.parquet", found)
    assert "row 3: the sides share no prompt" in refusal(path, pairs=True, vocabulary=1001)


def test_an_opponent_may_have_begun_in_two_ways(tmp_path):
    found = pairs(5)
    found[3][1][0][1] += 1
    path = write_pairs(tmp_path / "plain.parquet", found)
    table = pq.read_table(path)
    write_atomically(table.append_column("opponent", pa.array(["strong"] * 5)), tmp_path / "played.parquet")
    assert len(read(tmp_path / "played.parquet", pairs=True, vocabulary=1001)) == 5
    write_atomically(table.append_column("opponent", pa.array(["none"] * 5)), tmp_path / "alone.parquet")
    assert "row 3" in refusal(tmp_path / "alone.parquet", pairs=True, vocabulary=1001)


def test_files_that_cannot_be_read_are_named(tmp_path):
    path = write_sft(tmp_path / "sft.parquet", sequences(400))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "cut or damaged" in refusal(path)
    middle = len(whole) // 3
    path.write_bytes(whole[:middle] + bytes(b ^ 255 for b in whole[middle : middle + 64]) + whole[middle + 64 :])
    assert "cut or damaged" in refusal(path)
    # Without compression nothing but a checksum sees that a value is another one.
    rows_ = sequences(5)
    plain = pa.table(
        {"token_ids": pa.array([i for i, _ in rows_], TOKEN_IDS), "mask": pa.array([m for _, m in rows_], MASK)}
    )
    pq.write_table(plain, path, compression="none", use_dictionary=False, write_page_checksum=True)
    whole = path.read_bytes()
    place = whole.index(rows_[1][0].tobytes())
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert "cut or damaged" in refusal(path)
    assert "no row" in refusal(write_sft(tmp_path / "none.parquet", []))
    assert "there is no such file" in refusal(tmp_path / "absent.parquet")
    (tmp_path / "empty").mkdir()
    assert "no sft.parquet" in refusal(tmp_path / "empty")


def test_columns_of_another_kind_are_named(tmp_path):
    def written(**columns):
        write_atomically(pa.table(columns), tmp_path / "sft.parquet")
        return tmp_path / "sft.parquet"

    token_ids, mask = pa.array([[1, 2]], TOKEN_IDS), pa.array([[False, True]], MASK)
    assert "no column mask" in refusal(written(token_ids=token_ids))
    assert "column token_ids is list<element: int64>" in refusal(written(token_ids=pa.array([[1, 2]]), mask=mask))
    assert "column mask is list<element: int32>" in refusal(
        written(token_ids=token_ids, mask=pa.array([[0, 1]], TOKEN_IDS))
    )
    assert "row 0: mask is not there" in refusal(written(token_ids=token_ids, mask=pa.array([None], MASK)))
    two = {"token_ids": pa.array([[1, 2]] * 2, TOKEN_IDS), "mask": pa.array([[False, True], [None, True]], MASK)}
    assert "row 1: mask is not there" in refusal(written(**two))


def test_pairs_and_trajectories_are_not_taken_for_each_other(tmp_path):
    text = refusal(write_pairs(tmp_path / "pairs.parquet", pairs(2)))
    assert "use the recipe preference, or name sft.parquet" in text
    text = refusal(write_sft(tmp_path / "sft.parquet", sequences(2)), pairs=True)
    assert "use the recipe sft, or name pairs.parquet" in text


def test_a_conversation_that_ends_in_a_user_turn_is_refused(tmp_path):
    path = tmp_path / "c.jsonl"
    good = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "[1]"}]
    path.write_text("\n".join(json.dumps({"messages": m}) for m in (good, [*good, {"role": "user", "content": "x"}])))
    text = refusal(path, vocabulary=793, tokenizer=tokenizer)
    assert "row 1 (line 2): messages ends with a user message" in text


def test_a_column_beside_token_ids_that_nobody_reads_is_refused_unless_it_is_empty(tmp_path):
    path = write_sft(tmp_path / "a.parquet", sequences(4))
    table = pq.read_table(path)
    good = table.append_column("source", pa.array(["x"] * 4)).append_column("weight", pa.nulls(4, pa.float32()))
    pq.write_table(good, path)
    assert len(read(path)) == 4
    pq.write_table(good.append_column("loss_weight\n", pa.array([0.5] * 4)), path)
    with pytest.raises(
        DatasetError, match=r"a.parquet: no column of this name is known beside token_ids: 'loss_weight"
    ):
        read(path)
    path = write_pairs(tmp_path / "b.parquet", pairs(4))
    table = pq.read_table(path).append_column("chosen_turns", pa.array([1] * 4))
    pq.write_table(table, path)
    assert len(read(path, pairs=True)) == 4
    pq.write_table(table.append_column("rejected_margin", pa.array([1] * 4)), path)
    with pytest.raises(DatasetError, match=r"b.parquet: no column of this name .*: rejected_margin; .*drop the column"):
        read(path, pairs=True)

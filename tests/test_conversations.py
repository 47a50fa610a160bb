"""Conversations of others: loaded, checked, written as TRL documents them, made into ids."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import transformers
from trajectory_rows import row

from dfc.models.chat import ChatTokenizer
from dfc.models.huggingface import resolve
from dfc.records.trajectories import Message, to_table
from dfc.records.trajectory_files import DatasetError
from dfc.rows import conversations
from dfc.rows.conversations import Conversation, ConversationPair
from dfc.rows.preference_pairs import pair_tables, sft_tables
from dfc.rows.selection import select

SYSTEM, ASK = {"role": "system", "content": "Help."}, {"role": "user", "content": "Guess."}
SAY, ALSO = {"role": "assistant", "content": "crane"}, {"role": "assistant", "content": "stone"}
TALK = [SYSTEM, ASK, SAY, {"role": "user", "content": "No."}, ALSO]


def messages(*plain):
    return tuple(Message(**one) for one in plain)


def lines(path, *rows):
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


# ---- what loads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["messages", "conversation", "chat"])
def test_conversations_load_whatever_their_column_is_called(tmp_path, name):
    path = lines(tmp_path / "a.jsonl", {name: TALK, "game": "taboo"}, {name: [ASK, SAY]})
    one, other = conversations.read_conversations(path)
    assert one == Conversation(messages(*TALK), {"game": "taboo"})
    assert other == Conversation(messages(ASK, SAY))
    assert conversations.read_conversations(lines(path, {"x": TALK}), column="x")[0].messages == messages(*TALK)


def test_the_same_rows_load_from_lines_an_array_and_parquet(tmp_path):
    rows = [{"messages": TALK, "meta": {"game": "taboo", "task_id": 3, "outcome": "success"}}, {"messages": [ASK, SAY]}]
    expected = conversations.read_conversations(lines(tmp_path / "a.jsonl", *rows))
    assert expected[0].meta == {"game": "taboo", "task_id": 3, "outcome": "success"}
    (tmp_path / "b.json").write_text(json.dumps(rows))
    assert conversations.read_conversations(tmp_path / "b.json") == expected
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    assert [c.messages for c in conversations.read_conversations(tmp_path / "c.parquet")] == [
        c.messages for c in expected
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"chosen": [SYSTEM, ASK, SAY], "rejected": [SYSTEM, ASK, ALSO]},  # TRL, implicit prompt
        {"prompt": [SYSTEM, ASK], "chosen": [SAY], "rejected": [ALSO]},  # TRL, explicit prompt
        {"prompt": [SYSTEM, ASK], "chosen": "crane", "rejected": "stone"},  # replies as texts
        {"prompt": [SYSTEM, ASK], "chosen": [SYSTEM, ASK, SAY], "rejected": [SYSTEM, ASK, ALSO]},  # prompt repeated
    ],
)
def test_every_layout_of_a_pair_is_the_same_pair(tmp_path, fields):
    (pair,) = conversations.read_pairs(lines(tmp_path / "a.jsonl", fields | {"game": "taboo"}))
    assert pair == ConversationPair(messages(SYSTEM, ASK, SAY), messages(SYSTEM, ASK, ALSO), {"game": "taboo"})
    assert pair.prompt == messages(SYSTEM, ASK)
    assert not pair.identical


def test_a_prompt_of_text_is_one_user_message(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"prompt": "Guess.", "chosen": [SAY], "rejected": [ASK, ALSO]})
    (pair,) = conversations.read_pairs(path)
    assert (pair.chosen, pair.rejected) == (messages(ASK, SAY), messages(ASK, ALSO))


def test_a_pair_of_one_trajectory_twice_loads_and_is_known(tmp_path):
    (pair,) = conversations.read_pairs(lines(tmp_path / "a.jsonl", {"chosen": TALK, "rejected": TALK}))
    assert pair.identical


def test_what_follows_the_last_reply_can_be_cut(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"messages": [*TALK, ASK]})
    assert conversations.read_conversations(path, cut_unanswered=True)[0].messages == messages(*TALK)
    path = lines(path, {"chosen": [ASK, SAY, ASK], "rejected": [ASK, ALSO]})
    assert conversations.read_pairs(path, cut_unanswered=True)[0].chosen == messages(ASK, SAY)


# ---- what does not --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"text": "hello"}, r"no column messages or conversation or chat, it has text; .*column="),
        ({"messages": []}, "messages has no message; drop the row"),
        ({"messages": "hello"}, "messages must be a list of messages, got str"),
        ({"messages": [ASK, SAY, ASK]}, "messages ends with a user message without a reply; .*cut_unanswered=True"),
        ({"messages": [SYSTEM]}, "messages ends with a system message"),
        ({"messages": [SAY]}, "message 0 of messages is of role assistant, expected user"),
        ({"messages": [ASK, ASK, SAY]}, "message 1 of messages is of role user, expected assistant"),
        ({"messages": [ASK, SYSTEM, SAY]}, "message 1 of messages is of role system, expected assistant"),
        ({"messages": [ASK, {"role": "tool", "content": "x"}]}, "message 1 of messages must have a role of system"),
        ({"messages": [{"from": "human", "value": "x"}]}, "message 0 of messages must have .*rename its fields"),
        ({"messages": [ASK, {"role": "assistant", "content": None}]}, "message 1 of messages must have"),
        (["no object"], "expected an object with named columns, got list"),
    ],
)
def test_a_bad_conversation_is_named_with_its_row_and_nothing_is_handed_out(tmp_path, bad, message):
    path = lines(tmp_path / "a.jsonl", {"messages": TALK}, {"messages": TALK}, bad, {"messages": TALK})
    with pytest.raises(DatasetError, match=rf"a.jsonl, row 2 \(line 3\): {message}"):
        conversations.read_conversations(path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"chosen": TALK}, "no column rejected, it has chosen"),
        ({"messages": TALK}, "no column chosen and no rejected, it has messages"),
        ({"chosen": [ASK, SAY], "rejected": [SYSTEM, ASK, SAY]}, "the sides share no prompt"),
        ({"chosen": [ASK, SAY], "rejected": [{**ASK, "content": "Other."}, SAY]}, "the sides share no prompt"),
        ({"prompt": [ASK, SAY], "chosen": [SAY], "rejected": [SAY]}, "prompt ends with no user message"),
        ({"prompt": [ASK], "chosen": [SAY, ASK], "rejected": [SAY]}, "chosen ends with a user message"),
        ({"prompt": [ASK], "chosen": [SAY], "rejected": []}, "rejected has no message"),
        ({"chosen": "crane", "rejected": "stone"}, "chosen is a text and there is no prompt"),
    ],
)
def test_a_bad_pair_is_named_with_its_row(tmp_path, bad, message):
    good = {"chosen": [ASK, SAY], "rejected": [ASK, ALSO]}
    with pytest.raises(DatasetError, match=rf"a.jsonl, row 1 \(line 2\): {message}"):
        conversations.read_pairs(lines(tmp_path / "a.jsonl", good, bad))
    pq.write_table(pa.Table.from_pylist([bad]), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match=rf"a.parquet, row 0: {message}"):
        conversations.read_pairs(tmp_path / "a.parquet")


def test_a_cut_an_empty_and_an_absent_file_are_named(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"messages": TALK}, {"messages": TALK})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DatasetError, match=r"a.jsonl, row 1 \(line 2\): no JSON: .*download or export it again"):
        conversations.read_conversations(path)
    (tmp_path / "b.json").write_text('[{"messages": [')
    with pytest.raises(DatasetError, match=r"b.json: .*cut or damaged"):
        conversations.read_conversations(tmp_path / "b.json")
    pq.write_table(pa.table({"messages": ["x"] * 900}), tmp_path / "c.parquet")
    (tmp_path / "c.parquet").write_bytes((tmp_path / "c.parquet").read_bytes()[:-9])
    with pytest.raises(DatasetError, match=r"c.parquet: cannot be read: .*cut or damaged"):
        conversations.read_conversations(tmp_path / "c.parquet")
    with pytest.raises(DatasetError, match=r"a.jsonl: no row"):
        conversations.read_conversations(lines(path))
    with pytest.raises(DatasetError, match=r"d.jsonl: there is no such file"):
        conversations.read_pairs(tmp_path / "d.jsonl")
    with pytest.raises(DatasetError, match=r"d.csv: expected a file ending in .jsonl"):
        conversations.read_pairs(tmp_path / "d.csv")


def test_half_a_character_pair_is_replaced(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(r'{"messages": [{"role": "user", "content": "a\ud800"}, {"role": "assistant", "content": "b"}]}')
    found = conversations.read_conversations(path)
    assert found[0].messages[0].content.startswith("a\ufffd")
    conversations.write_conversations(path, found)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"messages": TALK})
    path.write_bytes(path.read_bytes() + b'{"messages": "\xff\xfe"}\n')
    with pytest.raises(DatasetError, match=r"a.jsonl, row 1 \(line 2\): no JSON"):
        conversations.read_conversations(path)


# ---- what is written ------------------------------------------------------------------------------------------------


@pytest.fixture
def selection(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    rows = [row(task=t, sample=s, turns=2 + s, success=s < 2, said="“é”") for t in range(3) for s in range(3)]
    pq.write_table(to_table(rows), folder / "part-0.parquet")
    return select(folder)


def stored(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_our_rows_have_trls_columns_and_come_back(tmp_path, selection, ending):
    path = tmp_path / f"sft{ending}"
    ours = list(conversations.conversations(sft_tables(selection)))
    assert conversations.write_conversations(path, ours) == len(ours) == 6
    assert conversations.read_conversations(path) == ours
    rows = stored(path)
    for one in rows:
        assert set(one) == {"messages", "meta"}
        assert all(set(message) == {"role", "content"} for message in one["messages"])
        assert [message["role"] for message in one["messages"]] == ["user", "assistant"] * (len(one["messages"]) // 2)
    assert {c.meta["game"] for c in ours} == {"wordle"}
    assert {len(c.messages) for c in ours} == {4, 6}


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("layout", ["explicit", "implicit"])
def test_our_pairs_have_trls_columns_and_come_back(tmp_path, selection, ending, layout):
    path = tmp_path / f"pairs{ending}"
    ours = list(conversations.conversation_pairs(pair_tables(selection)))
    assert conversations.write_pairs(path, ours, layout=layout) == len(ours) == 3
    assert conversations.read_pairs(path) == ours
    rows = stored(path)
    for one, pair in zip(rows, ours, strict=True):
        start = [{"role": "user", "content": pair.chosen[0].content}]
        if layout == "explicit":
            assert set(one) == {"prompt", "chosen", "rejected", "meta"}
            assert one["prompt"] == start
            assert one["chosen"][0]["role"] == one["rejected"][0]["role"] == "assistant"
        else:
            assert set(one) == {"chosen", "rejected", "meta"}
            assert one["chosen"][:1] == one["rejected"][:1] == start
        assert one["chosen"] != one["rejected"]
        assert one["chosen"][-1]["role"] == one["rejected"][-1]["role"] == "assistant"


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_nothing_to_write_is_an_error_and_leaves_no_file(tmp_path, ending):
    with pytest.raises(DatasetError, match="nothing to write"):
        conversations.write_conversations(tmp_path / f"a{ending}", [])
    assert not list(tmp_path.iterdir())
    with pytest.raises(DatasetError, match=r"a.txt: expected a file ending in .jsonl or .parquet"):
        conversations.write_pairs(tmp_path / "a.txt", [])


def test_ids_of_a_conversation_are_those_of_the_chat_template():
    folder = resolve("tiny_player")
    tokenizer = ChatTokenizer.load(folder)
    pretrained = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    plain = [ASK, {"role": "assistant", "content": "[4]"}, {"role": "user", "content": "[0]"}, SAY]
    for talk in (plain, plain[:2]):
        token_ids, mask = conversations.encode(messages(*talk), tokenizer)
        whole = pretrained.apply_chat_template(talk, tokenize=True, return_dict=False)
        assert token_ids.tolist() == whole[: len(token_ids)]
        assert len(whole) - len(token_ids) <= 1  # the template may put a line break behind the last message
        replies = [one["content"] for one in talk if one["role"] == "assistant"]
        sampled = [*tokenizer.encode_reply(replies[0]), tokenizer.end_token_ids[0]]
        if len(replies) == 2:
            sampled += [*tokenizer.encode_reply(replies[1]), tokenizer.end_token_ids[0]]
        assert token_ids[mask].tolist() == sampled


def test_a_system_message_is_part_of_the_context():
    tokenizer = ChatTokenizer.load(resolve("tiny_player"))
    with_system, mask = conversations.encode(messages(SYSTEM, ASK, SAY), tokenizer)
    without, _ = conversations.encode(messages(ASK, SAY), tokenizer)
    assert len(with_system) > len(without)
    first = int(mask.argmax())
    assert with_system[:first].tolist() == list(tokenizer.first_turn("Guess.", system="Help."))


# ---- what is context only -------------------------------------------------------------------------------------------

NO = {"role": "user", "content": "No."}


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [SYSTEM, ASK, SAY, NO], "completion": [ALSO]},
        {"prompt": [SYSTEM, ASK, SAY, NO], "completion": "stone"},
        {"prompt": [SYSTEM, ASK, SAY, NO], "completion": TALK},  # the prompt repeated
    ],
)
def test_a_prompt_and_its_completion_are_a_conversation_whose_earlier_replies_are_context(tmp_path, fields):
    (found,) = conversations.read_conversations(lines(tmp_path / "a.jsonl", fields | {"game": "taboo"}))
    assert found == Conversation(messages(*TALK), {"game": "taboo"}, context_replies=1)


def test_replies_within_the_prompt_of_a_pair_are_context(tmp_path):
    fields = {"prompt": [ASK, SAY, NO], "chosen": [ALSO], "rejected": [SAY]}
    (pair,) = conversations.read_pairs(lines(tmp_path / "a.jsonl", fields))
    assert (pair.prompt, pair.context_replies) == (messages(ASK, SAY, NO), 1)
    assert (pair.chosen, pair.rejected) == (messages(ASK, SAY, NO, ALSO), messages(ASK, SAY, NO, SAY))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"completion": [SAY]}, "a completion and no prompt; add"),
        ({"prompt": [ASK, SAY], "completion": [SAY]}, "prompt ends with no user message"),
        ({"prompt": [ASK], "completion": [SAY, ASK]}, "completion ends with a user message"),
        ({"prompt": [ASK], "completion": []}, "completion has no message"),
    ],
)
def test_a_bad_completion_is_named_with_its_row(tmp_path, bad, message):
    path = lines(tmp_path / "a.jsonl", {"prompt": [ASK], "completion": [SAY]}, bad)
    with pytest.raises(DatasetError, match=rf"a.jsonl, row 1 \(line 2\): {message}"):
        conversations.read_conversations(path)


def test_what_is_cut_off_must_leave_a_reply_behind_the_prompt(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"prompt": [ASK, SAY, NO], "completion": [NO]})
    with pytest.raises(DatasetError, match="completion has no reply of its own"):
        conversations.read_conversations(path, cut_unanswered=True)
    path = lines(path, {"prompt": [ASK, SAY, NO], "chosen": [ALSO], "rejected": [NO]})
    with pytest.raises(DatasetError, match="rejected has no reply of its own after the prompt"):
        conversations.read_pairs(path, cut_unanswered=True)


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_what_is_context_only_is_still_so_after_writing_and_reading(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    talks = [
        Conversation(messages(*TALK), {"task": 1}, context_replies=1),
        Conversation(messages(ASK, SAY), {"task": 2}),
    ]
    conversations.write_conversations(path, talks, layout="prompt_completion")
    assert conversations.read_conversations(path) == talks
    assert stored(path)[0]["completion"] == [ALSO]
    pair = ConversationPair(messages(ASK, SAY, NO, ALSO), messages(ASK, SAY, NO, SAY), {}, context_replies=1)
    conversations.write_pairs(path, [pair])
    assert conversations.read_pairs(path) == [pair]
    with pytest.raises(DatasetError, match="1 replies that do not count, and here all do; use layout='prompt_comple"):
        conversations.write_conversations(path, talks)
    with pytest.raises(DatasetError, match="1 replies that do not count, and here all do; use layout='explicit'"):
        conversations.write_pairs(path, [pair], layout="implicit")


def test_only_ids_behind_the_context_are_trained_on():
    tokenizer = ChatTokenizer.load(resolve("tiny_player"))
    talk = messages(ASK, {"role": "assistant", "content": "[4]"}, NO, {"role": "assistant", "content": "[5]"})
    whole, every = conversations.encode(talk, tokenizer)
    token_ids, mask = conversations.encode(talk, tokenizer, context_replies=1)
    assert token_ids.tolist() == whole.tolist()
    prompt, _ = conversations.encode(talk[:3], tokenizer)  # whatever is behind it is the completion
    expected = [place >= len(prompt) for place in range(len(whole))]
    assert mask.tolist() == expected
    assert every.sum() > mask.sum() > 0


# ---- replies of weight 0 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("layout", ["messages", "prompt_completion"])
def test_a_reply_that_is_not_trained_on_is_still_so_after_writing_and_reading(tmp_path, ending, layout):
    path = tmp_path / f"a{ending}"
    talks = [
        Conversation(messages(ASK, SAY, NO, ALSO, NO, SAY), {"task": 1}, untrained=(1,)),
        Conversation(messages(*TALK), {"task": 2}),
    ]
    conversations.write_conversations(path, talks, layout=layout)
    assert conversations.read_conversations(path) == talks
    written = stored(path)[0].get("messages") or stored(path)[0]["completion"]
    assert [one["content"] for one in written if one.get("weight") == 0] == ["stone"]


def test_the_tokens_of_replies_that_are_not_trained_on_are_context():
    tokenizer = ChatTokenizer.load(resolve("tiny_player"))
    talk = messages(ASK, SAY, NO, ALSO, NO, SAY)
    whole, every = conversations.encode(talk, tokenizer)
    token_ids, mask = conversations.encode(talk, tokenizer, untrained=(0, 2))
    assert token_ids.tolist() == whole.tolist()
    before, until = (len(conversations.encode(talk[:n], tokenizer)[0]) for n in (3, 4))
    assert mask.tolist() == [chosen and before <= place < until for place, chosen in enumerate(every)]
    assert mask.sum() > 0


def test_only_scalars_that_describe_a_row_are_kept(tmp_path):
    fields = {"id": 7, "score_chosen": 1.5, "tags": ["a"], "prompt_id": "x", "tools": None, "weight": 1, "train": True}
    row = {"messages": [ASK, SAY], "meta": {"anything": 1, "id": 8, "list": []}, **fields}
    (found,) = conversations.read_conversations(lines(tmp_path / "a.jsonl", row))
    assert found.meta == {"id": 8, "score_chosen": 1.5, "prompt_id": "x", "anything": 1}


def test_a_field_or_a_column_that_stands_twice_is_refused(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"messages": TALK})
    twice = (
        '{"messages": [{"role": "user", "content": "Guess."}, {"role": "assistant", "content": "a", "content": "b"}]}'
    )
    path.write_text(path.read_text() + twice + "\n")
    with pytest.raises(DatasetError, match=r"a.jsonl, row 1 \(line 2\): content stands twice in one object, .*delete"):
        conversations.read_conversations(path)
    (tmp_path / "b.json").write_text(f"[{twice}]")
    with pytest.raises(DatasetError, match=r"b.json: content stands twice in one object"):
        conversations.read_conversations(tmp_path / "b.json")
    column = pa.array([[ASK, SAY]])
    pq.write_table(pa.Table.from_arrays([column, column], names=["messages", "messages"]), tmp_path / "c.parquet")
    with pytest.raises(DatasetError, match=r"c.parquet: two columns are called messages, and one would be dropped"):
        conversations.read_conversations(tmp_path / "c.parquet")

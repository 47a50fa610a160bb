"""One row of every layout of the field: trained on as it says, to the token, or refused by the name of the field.

What is right is written beside each row by hand, and its tokens come from transformers and the template itself.
"""

import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import transformers
from offline_rows import save_model
from offline_runs import configured, run

from dfc.config import HeldOutConfig, Preference, Sft
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.records.trajectory_files import DatasetError
from dfc.rows import training_rows
from dfc.training.batches import Batches
from dfc.training.row_shares import UpdateRows

SYSTEM, ASK, NO = (
    {"role": "system", "content": "Help."},
    {"role": "user", "content": "Guess."},
    {"role": "user", "content": "No."},
)
SAY, ALSO = {"role": "assistant", "content": "crane"}, {"role": "assistant", "content": "stone"}
TALK = [SYSTEM, ASK, SAY, NO, ALSO]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
NOTHING = {"tool_calls": None, "function_call": None, "refusal": None, "audio": None, "annotations": [], "name": ""}
PICTURE = {"type": "image_url", "image_url": {"url": "data:,x"}}


def text(words):
    return [{"type": "text", "text": word} for word in words]


# name: row, the conversation that it means, its replies that are trained on
READ = {
    "OpenAI fine-tuning": ({"messages": TALK}, TALK, ["crane", "stone"]),
    "OpenAI fine-tuning, a weight": (
        {"messages": [SYSTEM, ASK, {**SAY, "weight": 0}, NO, {**ALSO, "weight": 1}]},
        TALK,
        ["stone"],
    ),
    "OpenAI fine-tuning, the last reply of weight 0": (
        {"messages": [SYSTEM, ASK, {**SAY, "weight": 1}, NO, {**ALSO, "weight": 0}]},
        TALK[:3],
        ["crane"],
    ),
    "Together, a weight at every message": (
        {"messages": [{**one, "weight": int(one is SAY)} for one in TALK]},
        TALK[:3],
        ["crane"],
    ),
    "Parquet's weights, which are numbers": (
        {"messages": [{**one, "weight": 0.0 if one is SAY else None} for one in TALK]},
        TALK,
        ["stone"],
    ),
    "Fireworks, an even weight of the row": ({"messages": TALK, "weight": 1.0}, TALK, ["crane", "stone"]),
    "Axolotl, train at a message": ({"messages": [SYSTEM, ASK, {**SAY, "train": False}, NO, ALSO]}, TALK, ["stone"]),
    "OpenAI's client, what it writes of a reply": (
        {"messages": [ASK, {**SAY, **NOTHING}], "tools": [], "parallel_tool_calls": True},
        [ASK, SAY],
        ["crane"],
    ),
    "templates of thoughts, none": ({"messages": [ASK, {**SAY, "reasoning_content": ""}]}, [ASK, SAY], ["crane"]),
    "OpenAI, a developer": ({"messages": [{**SYSTEM, "role": "developer"}, *TALK[1:]]}, TALK, ["crane", "stone"]),
    "OpenAI, parts of text": (
        {"messages": [{**ASK, "content": text(["Gue", "ss."])}, {**SAY, "content": text(["cra", "ne"])}]},
        [ASK, SAY],
        ["crane"],
    ),
    "a vision data set's parts of text": (
        {
            "messages": [
                {**ASK, "content": [{"type": "text", "text": "Guess.", "image": None}]},
                {**SAY, "content": text(["crane"])},
            ],
            "images": [],
        },
        [ASK, SAY],
        ["crane"],
    ),
    "TRL, language modeling, conversational": ({"messages": TALK, "tools": None}, TALK, ["crane", "stone"]),
    "TRL, prompt-completion, conversational": ({"prompt": TALK[:4], "completion": [ALSO]}, TALK, ["stone"]),
    "TRL, prompt-completion, texts": ({"prompt": "Guess.", "completion": "crane"}, [ASK, SAY], ["crane"]),
    "TRL, a completion with a weight": (
        {"prompt": [SYSTEM, ASK], "completion": [{**SAY, "weight": 0}, NO, ALSO]},
        TALK,
        ["stone"],
    ),
    "UltraChat": ({"prompt": "Guess.", "prompt_id": "a1", "messages": [ASK, SAY]}, [ASK, SAY], ["crane"]),
    "Tulu 3": ({"id": "1", "messages": TALK, "source": "x"}, TALK, ["crane", "stone"]),
    "playpen-data": ({"messages": TALK, "meta": {"game": "taboo", "label": 1}}, TALK, ["crane", "stone"]),
    "another column": ({"conversation": [ASK, SAY], "__index_level_0__": 3}, [ASK, SAY], ["crane"]),
}

UNREAD = "is not read, and would change what is trained on"
# name: row, what the message says
REFUSED = {
    "OpenAI fine-tuning, a call": (
        {"messages": [ASK, {"role": "assistant", "content": "", "tool_calls": CALL}]},
        f"message 1 of messages: tool_calls {UNREAD}: tools are not rendered here",
    ),
    "OpenAI fine-tuning, a call and no content": (
        {"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": CALL}]},
        f"message 1 of messages: tool_calls {UNREAD}",
    ),
    "OpenAI fine-tuning, an old call": (
        {"messages": [ASK, {**SAY, "function_call": {"name": "look", "arguments": "{}"}}]},
        f"message 1 of messages: function_call {UNREAD}",
    ),
    "OpenAI fine-tuning, a tool's result": (
        {"messages": [ASK, {"role": "tool", "content": "x", "tool_call_id": "1"}]},
        "message 1 of messages must have a role of system, developer, user, assistant",
    ),
    "OpenAI fine-tuning, tools": ({"messages": TALK, "tools": TOOLS}, f"tools {UNREAD}: tools are not rendered"),
    "OpenAI fine-tuning, functions": ({"messages": TALK, "functions": TOOLS}, f"functions {UNREAD}"),
    "OpenAI fine-tuning, a picture": (
        {"messages": [{**ASK, "content": [*text(["Guess."]), PICTURE]}, {**SAY, "content": text(["crane"])}]},
        "message 0 of messages, part 1 of its content is of type image_url, expected text: only texts are read",
    ),
    "OpenAI, a refusal": (
        {"messages": [ASK, {**SAY, "refusal": "No."}]},
        f"message 1 of messages: refusal {UNREAD}: write the refusal as the content",
    ),
    "OpenAI, a name": ({"messages": [{**ASK, "name": "Ann"}, SAY]}, f"message 0 of messages: name {UNREAD}"),
    "a part of the weight": (
        {"messages": [ASK, {**SAY, "weight": 0.5}]},
        r"message 1 of messages: weight must be 0 or 1 \(false or true\), got 0.5",
    ),
    "a question that is trained on": (
        {"messages": [{**ASK, "train": True}, SAY]},
        "message 0 of messages: a user message with train: only replies",
    ),
    "no reply that is trained on": (
        {"messages": [ASK, {**SAY, "weight": 0}]},
        r"messages: no reply of it is trained on \(weight 0 or train false\); drop the row",
    ),
    "Fireworks, a weight of the row": ({"messages": TALK, "weight": 2.0}, f"weight {UNREAD}: all rows count alike"),
    "a row that is not trained on": ({"messages": TALK, "train": False}, f"train {UNREAD}: all rows count alike"),
    "DeepSeek's thoughts": (
        {"messages": [ASK, {**SAY, "reasoning_content": "Hm."}]},
        f"message 1 of messages: reasoning_content {UNREAD}: thoughts are trained on where they stand in the content",
    ),
    "gpt-oss' thoughts": ({"messages": [ASK, {**SAY, "thinking": "Hm."}]}, f"message 1 of messages: thinking {UNREAD}"),
    "TRL, arguments of the template": (
        {"messages": TALK, "chat_template_kwargs": {"enable_thinking": False}},
        f"chat_template_kwargs {UNREAD}: the model's chat template is rendered in one way",
    ),
    "TRL, unpaired preference": (
        {"prompt": [ASK], "completion": [SAY], "label": False},
        f"label {UNREAD}: a row with a label is for KTO, which is not here; keep the rows whose label is true",
    ),
    "TRL, unpaired preference, texts": ({"prompt": "Guess.", "completion": "crane", "label": True}, f"label {UNREAD}"),
    "TRL, a mask of the completion": (
        {"prompt": [ASK], "completion": [SAY], "completion_mask": [0, 1]},
        f"completion_mask {UNREAD}",
    ),
    "TRL, language modeling, text": ({"text": "Guess. crane"}, "no column messages or .*, it has text; rename"),
    "TRL, prompt only": ({"prompt": [ASK]}, "no column messages or .*, it has prompt"),
    "TRL, vision": ({"messages": TALK, "images": ["x.png"]}, f"images {UNREAD}: only texts are read"),
    "ShareGPT": (
        {"conversations": [{"from": "human", "value": "Guess."}, {"from": "gpt", "value": "crane"}]},
        "no column messages or .*, it has conversations; rename the one with the messages",
    ),
    "ShareGPT under a name that is read": (
        {"conversation": [{"from": "human", "value": "Guess."}, {"from": "gpt", "value": "crane"}]},
        "message 0 of conversation must have a role .*rename its fields and roles",
    ),
    "Alpaca": ({"instruction": "Guess.", "input": "", "output": "crane"}, "no column .*, it has instruction, input, o"),
    "LLaMA-Factory's system": ({"messages": [ASK, SAY], "system": "Help."}, f"system {UNREAD}: it belongs to another"),
    "ms-swift, loss at a message": (
        {"messages": [ASK, {**SAY, "loss": False}, NO, ALSO]},
        f"message 1 of messages: loss {UNREAD}: write weight 0 at the replies",
    ),
    "ms-swift, query and response": ({"query": "Guess.", "response": "crane"}, "no column .*, it has query, response"),
    "Axolotl, parts of a reply": (
        {"messages": [ASK, {**SAY, "train_detail": [{"begin_offset": 0, "end_offset": 1, "train": False}]}]},
        f"message 1 of messages: train_detail {UNREAD}",
    ),
    "tokens in lines": ({"input_ids": [1, 2], "labels": [-100, 2]}, "no column messages or .*, it has input_ids"),
    "two conversations": ({"messages": TALK, "conversation": [ASK, SAY]}, f"conversation {UNREAD}: it belongs to"),
    "a preference beside a conversation": (
        {"messages": TALK, "chosen": [ASK, SAY], "rejected": [ASK, ALSO]},
        f"chosen {UNREAD}: it belongs to another layout",
    ),
    "another prompt beside a conversation": (
        {"messages": TALK, "prompt": "Something else."},
        "a prompt beside messages, and messages does not begin with it; drop one of the two",
    ),
    "a field that nobody knows": ({"messages": TALK, "kept": 0}, "no field of this name is known: kept; put descrip"),
    "a field of a message that nobody knows": (
        {"messages": [ASK, {**SAY, "prefix": True}]},
        "message 1 of messages: no field of this name is known: prefix",
    ),
}

# name: row, both conversations, the replies of each that are compared
READ_PAIRS = {
    "TRL, explicit prompt": (
        {"prompt": [SYSTEM, ASK], "chosen": [SAY], "rejected": [ALSO]},
        ([SYSTEM, ASK, SAY], [SYSTEM, ASK, ALSO]),
        (["crane"], ["stone"]),
    ),
    "TRL, implicit prompt": (
        {"chosen": [SYSTEM, ASK, SAY], "rejected": [SYSTEM, ASK, ALSO]},
        ([SYSTEM, ASK, SAY], [SYSTEM, ASK, ALSO]),
        (["crane"], ["stone"]),
    ),
    "TRL, explicit prompt, texts": (
        {"prompt": "Guess.", "chosen": "crane", "rejected": "stone"},
        ([ASK, SAY], [ASK, ALSO]),
        (["crane"], ["stone"]),
    ),
    "UltraFeedback, binarized": (
        {
            "prompt": "Guess.",
            "prompt_id": "a1",
            "chosen": [ASK, SAY],
            "rejected": [ASK, ALSO],
            "messages": [ASK, SAY],
            "score_chosen": 8.5,
            "score_rejected": 3.0,
            "chosen-model": "x",
        },
        ([ASK, SAY], [ASK, ALSO]),
        (["crane"], ["stone"]),
    ),
    "Playpen's published pairs": (
        {
            "game": "taboo",
            "game_id": 3,
            "episode": "episode_3",
            "prompt": "Guess.",
            "chosen": [{**SAY, "type": "message"}],
            "rejected": [{**ALSO, "type": "message"}],
        },
        ([ASK, SAY], [ASK, ALSO]),
        (["crane"], ["stone"]),
    ),
    "a reply of weight 0 in the prompt": (
        {"prompt": [SYSTEM, ASK, {**SAY, "weight": 0}, NO], "chosen": [ALSO], "rejected": [SAY]},
        (TALK, [*TALK[:4], SAY]),
        (["stone"], ["crane"]),
    ),
    "a reply of weight 0 that both sides begin with": (
        {"chosen": [ASK, {**SAY, "weight": 0}, NO, ALSO], "rejected": [ASK, {**SAY, "weight": 0}, NO, SAY]},
        ([ASK, SAY, NO, ALSO], [ASK, SAY, NO, SAY]),
        (["stone"], ["crane"]),
    ),
}

REFUSED_PAIRS = {
    "TRL, implicit prompt, texts": (
        {"chosen": "Guess. crane", "rejected": "Guess. stone"},
        "chosen is a text and there is no prompt",
    ),
    "OpenAI's and Together's preference": (
        {"input": {"messages": [ASK]}, "preferred_output": [SAY], "non_preferred_output": [ALSO]},
        "no column chosen and no rejected, it has input, preferred_output, non_preferred_output; rename",
    ),
    "ms-swift, a rejected response": (
        {"messages": [ASK, SAY], "rejected_response": "stone"},
        "no column chosen and no rejected, it has messages, rejected_response",
    ),
    "ShareGPT, preference": (
        {
            "conversations": [{"from": "human", "value": "Guess."}],
            "chosen": {"from": "gpt", "value": "crane"},
            "rejected": {"from": "gpt", "value": "stone"},
        },
        f"conversations {UNREAD}: it belongs to another layout",
    ),
    "TRL, tools of a pair": (
        {"prompt": [ASK], "chosen": [SAY], "rejected": [ALSO], "tools": TOOLS},
        f"tools {UNREAD}",
    ),
    "a call on the worse side": (
        {"prompt": [ASK], "chosen": [SAY], "rejected": [{**ALSO, "tool_calls": CALL}]},
        f"message 0 of rejected: tool_calls {UNREAD}",
    ),
    "thoughts on the worse side": (
        {"chosen": [ASK, SAY], "rejected": [ASK, {**ALSO, "reasoning_content": "Hm."}]},
        f"message 1 of rejected: reasoning_content {UNREAD}",
    ),
    "a name in the prompt": (
        {"prompt": [{**ASK, "name": "Ann"}], "chosen": [SAY], "rejected": [ALSO]},
        f"message 0 of prompt: name {UNREAD}",
    ),
    "TRL, a margin": (
        {"prompt": [ASK], "chosen": [SAY], "rejected": [ALSO], "margin": 0.5},
        f"margin {UNREAD}: neither sft nor preference reads it",
    ),
    "a weight of the pair": ({"chosen": [ASK, SAY], "rejected": [ASK, ALSO], "weight": 2}, f"weight {UNREAD}"),
    "a compared reply of weight 0": (
        {"prompt": [ASK], "chosen": [{**SAY, "weight": 0}], "rejected": [ALSO]},
        r"chosen: a reply that is compared has weight 0 \(or train false\)",
    ),
    "a later reply of weight 0": (
        {"prompt": [ASK], "chosen": [SAY, NO, {**ALSO, "train": False}], "rejected": [ALSO]},
        "chosen: a reply that is compared has weight 0",
    ),
    "two sides of weight 0": (
        {"chosen": [ASK, {**SAY, "weight": 0}], "rejected": [ASK, {**ALSO, "weight": 0}]},
        "chosen: no reply of it is compared",
    ),
    "another conversation beside the sides": (
        {"chosen": [ASK, SAY], "rejected": [ASK, ALSO], "messages": [ASK, ALSO]},
        f"messages {UNREAD}",
    ),
    "a field that nobody knows": (
        {"chosen": [ASK, SAY], "rejected": [ASK, ALSO], "agreed": True},
        "no field of this name is known: agreed",
    ),
}


@pytest.fixture(scope="module")
def folder():
    return huggingface.resolve("tiny_player")


@pytest.fixture(scope="module")
def pretrained(folder):
    return transformers.PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)


def stored(folder, row, ending):
    """A file of one row."""
    path = folder / f"a{ending}"
    if ending == ".jsonl":
        path.write_text(json.dumps(row) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist([row]), path)
    return path


def read(path, folder, *, pairs=False):
    def tokenizer():
        return ChatTokenizer.load(folder)

    return training_rows.read(path, pairs=pairs, vocabulary=793, row_length=200, tokenizer=tokenizer)


def trained_on(side, pretrained):
    """The texts of what is trained on, stretch by stretch, and all tokens."""
    token_ids, mask = side[0]
    stretches = itertools.groupby(range(len(mask)), key=lambda place: bool(mask[place]))
    return [pretrained.decode(token_ids[list(places)]) for chosen, places in stretches if chosen], token_ids.tolist()


ENDINGS = pytest.mark.parametrize("ending", [".jsonl", ".parquet"])


@ENDINGS
@pytest.mark.parametrize("name", READ)
def test_a_row_is_trained_on_as_its_layout_says(tmp_path, folder, pretrained, name, ending):
    row, talk, replies = READ[name]
    found = read(stored(tmp_path, row, ending), folder)
    texts, token_ids = trained_on(found.sides[0], pretrained)
    assert texts == [f"{reply}<|end|>" for reply in replies]
    assert token_ids == pretrained.apply_chat_template(talk, tokenize=True, return_dict=False)


@ENDINGS
@pytest.mark.parametrize("name", REFUSED)
def test_a_row_whose_field_is_not_read_is_refused_by_its_name(tmp_path, folder, name, ending):
    row, message = REFUSED[name]
    path = stored(tmp_path, row, ending)
    place = r"row 0 \(line 1\)" if ending == ".jsonl" else "row 0"
    with pytest.raises(DatasetError, match=rf"a{ending}, {place}: {message}") as found:
        read(path, folder)
    assert any(cure in str(found.value) for cure in ("drop", "write", "put", "rename", "keep"))
    assert len(str(found.value).removeprefix(str(path))) < 600


@ENDINGS
@pytest.mark.parametrize("name", READ_PAIRS)
def test_a_pair_is_compared_as_its_layout_says(tmp_path, folder, pretrained, name, ending):
    row, talks, replies = READ_PAIRS[name]
    found = read(stored(tmp_path, row, ending), folder, pairs=True)
    for side, talk, own in zip(found.sides, talks, replies, strict=True):
        texts, token_ids = trained_on(side, pretrained)
        assert texts == [f"{reply}<|end|>" for reply in own]
        assert token_ids == pretrained.apply_chat_template(talk, tokenize=True, return_dict=False)


@ENDINGS
@pytest.mark.parametrize("name", REFUSED_PAIRS)
def test_a_pair_with_a_field_that_is_not_read_is_refused_by_its_name(tmp_path, folder, name, ending):
    row, message = REFUSED_PAIRS[name]
    path = stored(tmp_path, row, ending)
    with pytest.raises(DatasetError, match=rf"a{ending}, row 0.*: {message}"):
        read(path, folder, pairs=True)


# ---- more rows than one ----------------------------------------------------------------------------------------------


def test_fields_that_parquet_fills_in_for_other_rows_are_absent_and_the_row_that_has_one_is_named(tmp_path, folder):
    whole = {"messages": [ASK, SAY], "prompt": None, "completion": None, "tools": None}
    split = {"messages": None, "prompt": [ASK], "completion": [ALSO], "tools": None}
    path = tmp_path / "a.parquet"
    calling = {"messages": [ASK, {**SAY, "tool_calls": CALL, "weight": 1}], "prompt": None, "completion": None}
    pq.write_table(pa.Table.from_pylist([whole, split]), path)
    assert len(read(path, folder)) == 2
    pq.write_table(pa.Table.from_pylist([whole, split, {**calling, "tools": None}]), path)
    with pytest.raises(DatasetError, match=rf"a.parquet, row 2: message 1 of messages: tool_calls {UNREAD}"):
        read(path, folder)
    pq.write_table(pa.Table.from_pylist([whole, split, {**whole, "tools": TOOLS}]), path)
    with pytest.raises(DatasetError, match=rf"a.parquet, row 2: tools {UNREAD}"):
        read(path, folder)


def test_parts_and_texts_may_stand_in_one_conversation(tmp_path, folder, pretrained):
    row = {"messages": [{**ASK, "content": text(["Guess."])}, SAY]}
    texts, _ = trained_on(read(stored(tmp_path, row, ".jsonl"), folder).sides[0], pretrained)
    assert texts == ["crane<|end|>"]


@pytest.mark.parametrize(
    "field",
    [
        {"x" * 2**20: 1},
        {"a\nb\x1b[31m\u202e": 1},
        {f"field {number}": number for number in range(10_000)},
        {"tool_calls": [["x" * 2**20]]},
        {"": 1},
        {"weight": "0" * 2**20},
        {"weight": 10**300},
        {"weight": -1},
        {"weight": [0]},
        {"weight": float("nan")},
        {"train": "false"},
        {"content": [[[["deep"]]]]},
        {"content": [{"type": "y" * 2**20}]},
        {"content": [{"type": "text", "text": 3}]},
        {"content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "z" * 2**20},
        {"role": ["user"]},
        {"tools": json.loads("[" * 900 + "]" * 900)},
        {"tools": json.loads('{"a":' * 900 + "1" + "}" * 900)},
    ],
    ids=range(19),
)
@pytest.mark.parametrize("place", ["row", "message"])
def test_a_hostile_field_is_refused_in_one_line_that_says_where(tmp_path, folder, place, field):
    good = {"messages": [ASK, SAY]}
    bad = good | field if place == "row" else {"messages": [ASK, SAY | field]}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    if place == "row" and field.keys() & {"content", "role"}:
        field = {}  # of no row, and named as such
    with pytest.raises(DatasetError, match=r"a.jsonl, row 1 \(line 2\): ") as found:
        read(path, folder)
    said = str(found.value).removeprefix(str(path))
    assert len(said) < 1000
    assert said.isprintable()
    assert all(name in said for name in field if name.isidentifier() and len(name) < 50)


# ---- in a run --------------------------------------------------------------------------------------------------------


def test_the_loss_of_a_packed_update_covers_the_replies_that_are_trained_on_and_no_others(tmp_path, folder, pretrained):
    path = tmp_path / "a.jsonl"
    names = ["OpenAI fine-tuning, a weight", "Axolotl, train at a message", "Together, a weight at every message"]
    path.write_text("".join(json.dumps(READ[name][0]) + "\n" for name in names))
    found = read(path, folder)
    update_rows = UpdateRows(len(found), batch_size=3, epochs=1, seed=0)
    batch = Batches(found, update_rows, row_length=100, micro_batch_rows=2)[0]
    said = []
    for micro_batch in batch.micro_batches:
        for tokens, mask in zip(micro_batch.tokens, micro_batch.mask, strict=True):
            said += pretrained.decode(tokens[mask > 0]).split("<|end|>")[:-1]
    assert sorted(said) == ["crane", "stone", "stone"]
    assert batch.actions == sum(len(pretrained.encode(f"{one}<|end|>", add_special_tokens=False)) for one in said)


@pytest.mark.parametrize("place", ["data", "data_shares", "held_out"])
@pytest.mark.parametrize("kind", [Sft, Preference])
def test_every_file_of_a_run_is_refused_by_the_name_of_its_field(tmp_path, place, kind):
    fine, bad = tmp_path / "fine.jsonl", tmp_path / "bad.jsonl"
    good = {"messages": [ASK, SAY]} if kind is Sft else {"chosen": [ASK, SAY], "rejected": [ASK, ALSO]}
    fine.write_text((json.dumps(good) + "\n") * 8)
    bad.write_text(json.dumps(good) + "\n" + json.dumps(good | {"tools": TOOLS}) + "\n")
    changes = {
        "data": {},
        "data_shares": {"data_shares": {str(bad): 0.25}},
        "held_out": {"held_out": HeldOutConfig(data=str(bad), every=1)},
    }[place]
    model = save_model(tmp_path / "model")
    config = configured(model, bad if place == "data" else fine, kind, name="a", **changes)
    with pytest.raises(DatasetError, match=rf"bad.jsonl, row 1 \(line 2\): tools {UNREAD}"):
        run(tmp_path / "run", config)

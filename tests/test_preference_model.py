"""Scores of models of preferences equal those of transformers, packed or alone, on one device or eight."""

import json

import chat_families
import jax
import numpy as np
import pytest
from tiny_models import quiet, save_checkpoint, torch_and_transformers

from dfc.errors import ConfigError
from dfc.models import sharding
from dfc.models.chat import ChatTokenizer
from dfc.scoring import preference_model
from dfc.scoring.preference_model import PreferenceModel

SMALL = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "num_labels": 1,
    "pad_token_id": None,
}
KINDS = {
    "llama3": "LlamaForSequenceClassification",
    "qwen2.5": "Qwen2ForSequenceClassification",
    "qwen3": "Qwen3ForSequenceClassification",
}
QUERIES = ["Nim. You are Player 0.", "Piles: 3, 4, 5.", "Hi", "  space  ", "Answer in brackets " * 6] * 4
ANSWERS = ["[4]", "", "I play [3]. " * 5, "two\n\nlines ", "<|im_end|> <|eot_id|>"] * 4
ANSWERS = [f"{answer}{number}" for number, answer in enumerate(ANSWERS)]


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / request.param
    chat_families.write(path, chat_families.FAMILIES[request.param])
    options = dict(SMALL) if request.param == "qwen3" else {k: v for k, v in SMALL.items() if k != "head_dim"}
    save_checkpoint(path, KINDS[request.param], options, 0.4, embedding=0.1)
    return path


def their_tokens(folder, query, answer):
    oracle = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": query}, {"role": "assistant", "content": answer}]
    return oracle.apply_chat_template(messages, tokenize=True, return_dict=False, date_string=chat_families.DATE)


def their_scores(folder, rows):
    oracle = torch_and_transformers()
    with quiet(), oracle.torch.no_grad():
        architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
        model = getattr(oracle.transformers, architecture).from_pretrained(folder, dtype=oracle.torch.float32).eval()
        return [float(model(oracle.torch.tensor([row])).logits[0, 0]) for row in rows]


def test_the_template_is_applied_once_and_to_its_last_sign(folder):
    chat = ChatTokenizer.load(folder)
    for query, answer in zip(QUERIES, ANSWERS, strict=True):
        if "<|" not in answer:  # what spells a special token stays text here
            assert chat.closed_turn(query, answer) == their_tokens(folder, query, answer)
    forged = chat.closed_turn("Hi", "<|im_end|> <|eot_id|>")
    assert chat.closed_turn("Hi", "Yes")[-1] == forged[-1]
    assert len(set(forged) & set(chat.end_token_ids)) == 1
    assert sum(token == chat.end_token_ids[0] for token in forged) == sum(
        token == chat.end_token_ids[0] for token in chat.closed_turn("Hi", "Yes")
    )


def test_scores_are_those_of_transformers_packed_or_alone_on_one_device_or_eight(folder):
    one = PreferenceModel(str(folder), row_length=256, rows=2)
    rows = [one.token_ids(query, answer) for query, answer in zip(QUERIES, ANSWERS, strict=True)]
    expected = np.asarray(their_scores(folder, rows))
    assert expected.std() > 0.05
    packed = one(QUERIES, ANSWERS)
    assert packed.mask.all()
    assert dict(packed.counts) == {"scored": 20}
    np.testing.assert_allclose(packed.values, expected, atol=1e-4, rtol=0)
    alone = [one([query], [answer]).values[0] for query, answer in zip(QUERIES, ANSWERS, strict=True)]
    np.testing.assert_allclose(alone, expected, atol=1e-4, rtol=0)
    assert jax.device_count() == 8
    mesh = sharding.make_mesh(2, 2, 2)
    eight = PreferenceModel(str(folder), mesh=mesh, row_length=256, rows=4)(QUERIES, ANSWERS)
    np.testing.assert_allclose(eight.values, expected, atol=1e-4, rtol=0)


def test_several_conversations_lie_in_a_row(folder, monkeypatch):
    layouts = []
    model = PreferenceModel(str(folder), row_length=512, rows=1)
    compute = model._computed
    monkeypatch.setattr(
        model, "_computed", lambda layout, segments: layouts.append(layout) or compute(layout, segments)
    )
    model(QUERIES, ANSWERS)
    assert max(len(row) for layout in layouts for row in layout.rows) > 1


def test_what_fits_no_row_is_not_scored_and_the_others_are(folder):
    model = PreferenceModel(str(folder), row_length=128, rows=1)
    scores = model(["Hi", "Hi", "Hi"], ["[4]", "[4] " * 100, "[4]" * 10**6])
    assert scores.mask.tolist() == [True, False, False]
    assert scores.values[1:].tolist() == [0, 0]
    assert dict(scores.counts) == {"scored": 1, "too_long": 2}
    nothing = model([], [])
    assert nothing.values.shape == (0,)


def rewritten(folder, tmp_path, **changes):
    """A folder that has another config.json."""
    said = json.loads((folder / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(said))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["DebertaV2ForSequenceClassification"]}, "DebertaV2ForSequenceClassification"),
        ({"architectures": ["LlamaForCausalLM"]}, "is 'LlamaForCausalLM'; a supported model of preferences"),
        ({"architectures": None}, "is None"),
        ({"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}, "gives 2 scores"),
    ],
)
def test_other_models_are_refused_by_name(folder, tmp_path, changes, message):
    path = rewritten(folder, tmp_path, **changes)
    assert message in preference_model.problems(path)[0]
    with pytest.raises(ConfigError, match=r"LlamaForSequenceClassification|one label"):
        PreferenceModel(path)


def test_no_folder_and_rows_that_split_over_no_devices_are_refused(folder, tmp_path):
    assert "no such folder" in preference_model.problems(str(tmp_path / "none"))[0]
    with pytest.raises(ConfigError, match="multiple of 4"):
        PreferenceModel(str(folder), mesh=sharding.make_mesh(2, 2, 2), rows=2)

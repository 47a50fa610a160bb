"""Losses, gradients and files beside TRL's: `make agreement-trl`. Not collected by default.

One Llama with random weights, drawn by transformers and saved, is read by both sides, in float32. TRL prepares its own
batch from a file that `dfc.rows.conversations` wrote; ours is made from the same conversations by `encode`.

Where the two differ on purpose, the test says how and computes the one from the other:

* TRL's preference losses count every id behind the prompt, those of the environment too; ours count action ids. With
  one reply per side they are the same ids, with several ours agrees once it is given TRL's mask.
* TRL averages likelihoods over the ids of a batch, ours within each trajectory first.
* From pairs of whole conversations TRL derives a prompt that ends where the sides part, earlier replies included.
"""

import itertools
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import datasets
import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from dfc.losses import dpo_loss, packed_preference_loss, rpo_loss, sft_loss
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.packing import Layout, Segment, fill
from dfc.records.trajectories import Message
from dfc.rows.conversations import Conversation, ConversationPair, encode, write_conversations, write_pairs
from dfc.training.batch_logprobs import batch_logprobs

PLAYER = huggingface.resolve("tiny_player")
ROW = 512
# The template of the bundled model with the marks that TRL finds replies by; its text is the same.
MARKED = (
    "{{- bos_token -}}{%- for message in messages -%}{%- if message['role'] == 'user' -%}"
    "{{- message['content'] + '<|assistant|>' -}}{%- else -%}"
    "{%- generation -%}{{- message['content'] + '<|end|>' -}}{%- endgeneration -%}{%- endif -%}{%- endfor -%}"
)


def said(*texts):
    """A conversation in turns, the environment first."""
    return tuple(Message(role, text) for role, text in zip(itertools.cycle(("user", "assistant")), texts, strict=False))


ONE_TURN = [
    ConversationPair(said("Guess a number.", "[7]"), said("Guess a number.", "seven, or is it eight?")),
    ConversationPair(said("Your move", "[col 3]"), said("Your move", "[col 9]"), {"game": "wordle", "task": 3}),
    ConversationPair(said("Offer?", "[Accept] because it is fair"), said("Offer?", "no")),
]
SEVERAL_TURNS = [
    ConversationPair(
        said("Guess.", "[4]", "higher", "[6]", "higher", "[7]"), said("Guess.", "[4]", "higher", "[3]"), {"task": 1}
    ),
    ConversationPair(said("Play", "[1 2]", "ok", "[3 1]"), said("Play", "[2 2]", "no, take one", "[1 1]"), {"task": 2}),
]
TALKS = [Conversation(pair.chosen, pair.meta) for pair in (*ONE_TURN, *SEVERAL_TURNS)]


@pytest.fixture(autouse=True, scope="session")
def _caches(tmp_path_factory):
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    datasets.disable_progress_bars()


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders of a policy and of its reference."""
    folders = []
    for seed in range(2):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=793,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=96,
            tie_word_embeddings=True,
            initializer_range=0.2,
        )
        folders.append(tmp_path_factory.mktemp(f"model{seed}"))
        transformers.LlamaForCausalLM(config).save_pretrained(folders[-1])
    return folders


@pytest.fixture(scope="session")
def tokenizer():
    return ChatTokenizer.load(PLAYER)


def theirs(folder):
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


def processing():
    found = transformers.PreTrainedTokenizerFast.from_pretrained(str(PLAYER), local_files_only=True)
    found.chat_template = MARKED
    return found


def loaded(path):
    kind = {".jsonl": "json", ".parquet": "parquet"}[path.suffix]
    return datasets.load_dataset(kind, data_files=str(path), split="train")


SETTINGS = {"use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no", "max_length": None}


def preference_trainer(models, path, out, **settings):
    dataset = loaded(path)
    settings = SETTINGS | {"beta": 0.1, "per_device_train_batch_size": len(dataset)} | settings
    return DPOTrainer(
        model=theirs(models[0]),
        ref_model=theirs(models[1]),
        args=DPOConfig(output_dir=str(out), **settings),
        train_dataset=dataset,
        processing_class=processing(),
    )


def supervised_trainer(models, path, out, **settings):
    dataset = loaded(path)
    settings = SETTINGS | {"assistant_only_loss": True, "per_device_train_batch_size": len(dataset)} | settings
    return SFTTrainer(
        model=theirs(models[0]),
        args=SFTConfig(output_dir=str(out), **settings),
        train_dataset=dataset,
        processing_class=processing(),
    )


def loss_and_gradients(trainer):
    """TRL's loss of all rows, and the gradient of every weight by its name."""
    trainer.model.train()
    loss = trainer.compute_loss(trainer.model, next(iter(trainer.get_train_dataloader())))
    loss.backward()
    named = trainer.model.named_parameters()
    return loss.item(), {name: parameter.grad.numpy() for name, parameter in named}


def behind_the_prompt(token_ids, mask):
    """TRL's completion mask: everything from the first reply on."""
    return np.arange(len(token_ids)) >= mask.argmax()


def batch_of(rows):
    """Rows, each with its sides (ids, mask), as one packed micro-batch."""
    return fill(Layout(ROW, (tuple(range(len(rows))),)), lambda row: [Segment(*side) for side in rows[row]])


def our_loss_and_gradients(models, rows, loss, tmp_path):
    """Ours of packed rows, loss(logprobs, batch, reference); gradients by the names transformers gives them."""
    batch = batch_of(rows)
    (config, params), (_, reference) = (huggingface.load(folder, dtype="float32") for folder in models)
    before = batch_logprobs(config, reference, batch)

    def mean(params):
        return loss(batch_logprobs(config, params, batch), batch, before).mean

    value, gradients = jax.value_and_grad(mean)(params)
    huggingface.save(tmp_path / "gradients", config, gradients, copy_from=None)
    return float(value), safetensors.numpy.load_file(tmp_path / "gradients" / "model.safetensors")


def packed_dpo(logprobs, batch, reference):
    return packed_preference_loss(
        logprobs, batch.mask, reference, segments=batch.segments, num_segments=8, beta=0.1, alpha=0
    )


def assert_same_gradients(ours, expected):
    assert set(ours) == set(expected) - {"lm_head.weight"}
    for name, gradient in ours.items():
        scale = np.abs(expected[name]).max()
        assert scale > 0
        np.testing.assert_allclose(gradient, expected[name], atol=1e-4 * scale, err_msg=name)


# ---- losses ---------------------------------------------------------------------------------------------------------


def test_dpo_of_one_reply_and_its_gradient_of_every_weight(models, tokenizer, tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", ONE_TURN)
    expected, gradients = loss_and_gradients(preference_trainer(models, tmp_path / "pairs.jsonl", tmp_path / "out"))
    rows = [[encode(side, tokenizer) for side in (pair.chosen, pair.rejected)] for pair in ONE_TURN]
    value, ours = our_loss_and_gradients(models, rows, packed_dpo, tmp_path)
    assert abs(value - np.log(2)) > 0.01  # policy and reference differ
    assert value == pytest.approx(expected, rel=1e-4)
    assert_same_gradients(ours, gradients)


def test_the_loss_of_separate_rows_is_that_of_packed_ones_and_of_trl(models, tokenizer, tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", ONE_TURN)
    expected, _ = loss_and_gradients(preference_trainer(models, tmp_path / "pairs.jsonl", tmp_path / "out"))
    rows = [[encode(side, tokenizer) for side in (pair.chosen, pair.rejected)] for pair in ONE_TURN]
    ours = dpo_loss(**sides_apart(models, rows), beta=0.1)
    assert float(ours.mean) == pytest.approx(expected, rel=1e-4)


def sides_apart(models, rows):
    """Masks and log-probabilities of both sides, one trajectory per row, by their names."""
    named = {}
    for side, encoded in zip(("chosen", "rejected"), zip(*rows, strict=True), strict=True):
        batch = fill_rows(encoded)
        policy, reference = (batch_logprobs(*huggingface.load(folder, dtype="float32"), batch) for folder in models)
        named |= {f"{side}_mask": batch.mask, f"{side}_logprobs": policy, f"{side}_reference_logprobs": reference}
    return named


def fill_rows(encoded):
    """One trajectory per row."""
    layout = Layout(max(len(token_ids) for token_ids, _ in encoded), tuple((row,) for row in range(len(encoded))))
    return fill(layout, lambda row: [Segment(*encoded[row])])


def test_dpo_of_several_replies_agrees_once_the_environments_ids_count(models, tokenizer, tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", SEVERAL_TURNS)
    expected, gradients = loss_and_gradients(preference_trainer(models, tmp_path / "pairs.jsonl", tmp_path / "out"))
    encoded = [[encode(side, tokenizer) for side in (pair.chosen, pair.rejected)] for pair in SEVERAL_TURNS]
    everything = [[(token_ids, behind_the_prompt(token_ids, mask)) for token_ids, mask in sides] for sides in encoded]
    value, ours = our_loss_and_gradients(models, everything, packed_dpo, tmp_path)
    assert value == pytest.approx(expected, rel=1e-4)
    assert_same_gradients(ours, gradients)
    actions_only, _ = our_loss_and_gradients(models, encoded, packed_dpo, tmp_path)
    assert abs(actions_only - expected) > 1e-3


def test_rpo_of_one_pair(models, tokenizer, tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", ONE_TURN[:1])
    trainer = preference_trainer(
        models, tmp_path / "pairs.jsonl", tmp_path / "out", loss_type=["sigmoid", "sft"], loss_weights=[1.0, 1.0]
    )
    expected, gradients = loss_and_gradients(trainer)
    rows = [[encode(side, tokenizer) for side in (ONE_TURN[0].chosen, ONE_TURN[0].rejected)]]

    def rpo(logprobs, batch, reference):
        return packed_preference_loss(
            logprobs, batch.mask, reference, segments=batch.segments, num_segments=2, beta=0.1, alpha=1.0
        )

    value, ours = our_loss_and_gradients(models, rows, rpo, tmp_path)
    assert value == pytest.approx(expected, rel=1e-4)
    assert_same_gradients(ours, gradients)
    apart = rpo_loss(**sides_apart(models, rows), beta=0.1, alpha=1.0)
    assert float(apart.mean) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("packing", [False, True])
def test_supervised_loss_is_trls_with_trajectories_weighed_by_their_replies(models, tokenizer, tmp_path, packing):
    write_conversations(tmp_path / "sft.jsonl", TALKS)
    settings = {"packing": True, "packing_strategy": "bfd", "max_length": ROW} if packing else {}
    expected, gradients = loss_and_gradients(
        supervised_trainer(models, tmp_path / "sft.jsonl", tmp_path / "out", **settings)
    )
    rows = [[encode(talk.messages, tokenizer)] for talk in TALKS]
    counts = np.asarray([mask.sum() for ((_, mask),) in rows])

    def by_tokens(logprobs, batch, _):
        """The mean over ids: their sum, and how many there are."""
        loss = sft_loss(logprobs, batch.mask, segments=batch.segments, num_segments=8)
        total = -(logprobs * batch.mask).sum()
        return type(loss)(total, np.float32(counts.sum()), {})

    value, ours = our_loss_and_gradients(models, rows, by_tokens, tmp_path)
    assert value == pytest.approx(expected, rel=1e-4)
    assert_same_gradients(ours, gradients)

    def by_trajectory(logprobs, batch, _):
        return sft_loss(logprobs, batch.mask, segments=batch.segments, num_segments=8)

    each = [our_loss_and_gradients(models, [row], by_trajectory, tmp_path)[0] for row in rows]
    assert (np.asarray(each) * counts).sum() / counts.sum() == pytest.approx(expected, rel=1e-4)
    together, _ = our_loss_and_gradients(models, rows, by_trajectory, tmp_path)
    assert together == pytest.approx(np.mean(each), rel=1e-4)


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_conversations_we_wrote_become_our_ids_and_our_masks_there(models, tokenizer, tmp_path, ending):
    path = tmp_path / f"sft{ending}"
    write_conversations(path, TALKS)
    prepared = supervised_trainer(models, path, tmp_path / "out").train_dataset
    assert len(prepared) == len(TALKS)
    for row, talk in zip(prepared, TALKS, strict=True):
        token_ids, mask = encode(talk.messages, tokenizer)
        assert row["input_ids"] == token_ids.tolist()
        assert [label != -100 for label in row["labels"]] == mask.tolist()


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("layout", ["explicit", "implicit"])
def test_pairs_we_wrote_become_our_ids_there(models, tokenizer, tmp_path, ending, layout):
    path = tmp_path / f"pairs{ending}"
    pairs = [*ONE_TURN, *SEVERAL_TURNS]
    write_pairs(path, pairs, layout=layout)
    prepared = preference_trainer(models, path, tmp_path / "out").train_dataset
    assert len(prepared) == len(pairs)
    for row, pair in zip(prepared, pairs, strict=True):
        chosen, rejected = (encode(side, tokenizer) for side in (pair.chosen, pair.rejected))
        assert row["prompt_ids"] + row["chosen_ids"] == chosen[0].tolist()
        assert row["prompt_ids"] + row["rejected_ids"] == rejected[0].tolist()
        both = itertools.takewhile(lambda sides: sides[0] == sides[1], zip(pair.chosen, pair.rejected, strict=False))
        shared = pair.prompt if layout == "explicit" else [message for message, _ in both]
        assert len(row["prompt_ids"]) == sum(len(part) for part in parts_of(shared, tokenizer))


LATER_TURNS = [  # the first reply is context
    ConversationPair(pair.chosen[:4], (*pair.chosen[:3], pair.rejected[-1]), pair.meta, context_replies=1)
    for pair in SEVERAL_TURNS
]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_what_counts_of_a_prompt_with_its_completion_is_what_counts_there(models, tokenizer, tmp_path, ending):
    path = tmp_path / f"sft{ending}"
    talks = [Conversation(pair.chosen, {"task": 1}, context_replies=1) for pair in LATER_TURNS]
    talks.append(Conversation(ONE_TURN[0].chosen, {"task": 2}))
    write_conversations(path, talks, layout="prompt_completion")
    prepared = supervised_trainer(models, path, tmp_path / "out", assistant_only_loss=False).train_dataset
    assert len(prepared) == len(talks)
    for row, talk in zip(prepared, talks, strict=True):
        token_ids, mask = encode(talk.messages, tokenizer, context_replies=talk.context_replies)
        assert row["input_ids"] == token_ids.tolist()
        assert [label != -100 for label in row["labels"]] == mask.tolist()


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_what_counts_of_pairs_with_a_history_is_what_counts_there(models, tokenizer, tmp_path, ending):
    path = tmp_path / f"pairs{ending}"
    write_pairs(path, LATER_TURNS)
    prepared = preference_trainer(models, path, tmp_path / "out").train_dataset
    for row, pair in zip(prepared, LATER_TURNS, strict=True):
        for name, side in (("chosen_ids", pair.chosen), ("rejected_ids", pair.rejected)):
            token_ids, mask = encode(side, tokenizer, context_replies=pair.context_replies)
            assert row["prompt_ids"] + row[name] == token_ids.tolist()
            assert [False] * len(row["prompt_ids"]) + [True] * len(row[name]) == mask.tolist()


def parts_of(messages, tokenizer):
    """The ids of each message; the begin-of-text id stands before the first."""
    yield tokenizer.first_turn(messages[0].content)
    for message in messages[1:]:
        if message.role == "assistant":
            yield [*tokenizer.encode_reply(message.content), tokenizer.end_token_ids[0]]
        else:
            yield tokenizer.next_turn(message.content, closed=True)


def test_a_step_of_both_trainers_runs_on_files_we_wrote(models, tmp_path):
    write_conversations(tmp_path / "sft.parquet", TALKS)
    write_pairs(tmp_path / "pairs.parquet", SEVERAL_TURNS)
    for make, name in ((supervised_trainer, "sft"), (preference_trainer, "pairs")):
        trainer = make(models, tmp_path / f"{name}.parquet", tmp_path / name, max_steps=1, disable_tqdm=True)
        assert np.isfinite(trainer.train().training_loss)

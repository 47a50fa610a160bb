"""config.json in and out, against released files and their published parameter counts."""

import json
import math

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfc.errors import WeightsError
from dfc.models import families
from dfc.models.decoder_config import DecoderConfig, Llama3Rope
from dfc.models.transformer import abstract_params

# Released configuration files, fields without effect left in.
LLAMA_32_1B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
QWEN_25_HALF_B = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [(LLAMA_32_1B, 1_235_814_400), (QWEN_25_HALF_B, 494_032_768), (LLAMA_2_7B, 6_738_415_616)],
    ids=["llama-3.2-1b", "qwen2.5-0.5b", "llama-2-7b"],
)
def test_released_models_have_their_published_number_of_parameters(config, parameters):
    weights = abstract_params(families.from_config_json(config))
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(weights)) == parameters


def test_every_field_of_a_released_config_arrives():
    assert families.from_config_json(LLAMA_32_1B) == DecoderConfig(
        vocabulary=128256,
        width=2048,
        layers=16,
        heads=32,
        kv_heads=8,
        head_dim=64,
        feed_forward=8192,
        rope_theta=500000.0,
        norm_epsilon=1e-5,
        qkv_bias=False,
        tied_embedding=True,
        rope_scaling=Llama3Rope(32.0, 1.0, 4.0, 8192),
    )
    qwen = families.from_config_json(QWEN_25_HALF_B)
    assert (qwen.qkv_bias, qwen.head_dim, qwen.kv_heads, qwen.rope_theta) == (True, 64, 2, 1e6)
    assert families.from_config_json(LLAMA_2_7B).rope_theta == 10000.0


def test_both_spellings_of_the_rotary_settings_mean_the_same():
    plain = {key: value for key, value in LLAMA_2_7B.items() if key != "rope_scaling"}
    old = plain | {"rope_theta": 5e5, "rope_scaling": LLAMA3}
    oldest = plain | {
        "rope_theta": 5e5,
        "rope_scaling": {("type" if k == "rope_type" else k): v for k, v in LLAMA3.items()},
    }
    new = plain | {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}
    decoder = families.from_config_json(new)
    assert (decoder.rope_theta, decoder.rope_scaling) == (5e5, Llama3Rope(8.0, 1.0, 4.0, 8192))
    assert decoder == families.from_config_json(old) == families.from_config_json(oldest)
    assert decoder == families.from_config_json(old | new)


REFUSED = {
    "activation": ({"hidden_act": "gelu"}, "hidden_act: only 'silu' is computed for LlamaForCausalLM, got 'gelu'"),
    "attention bias": ({"attention_bias": True}, "attention_bias: only False"),
    "mlp bias": ({"mlp_bias": True}, "mlp_bias: only False"),
    "model type": ({"model_type": "mistral"}, "model_type: expected 'llama', got 'mistral'"),
    "sliding layers": (
        {"layer_types": ["full_attention", "sliding_attention"]},
        "layer_types: only 'full_attention' is computed, got [",
    ),
    "layers of a wrong kind": ({"layer_types": 5}, "layer_types: only 'full_attention' is computed, got 5"),
    "rope of a wrong kind": ({"rope_scaling": {"rope_type": []}}, "rope_scaling.rope_type: only 'default' or 'llama3'"),
    "quantized": ({"quantization_config": {"bits": 4}}, "quantization_config: unknown field with value {'bits': 4}"),
    "unknown field": ({"logit_scale": 0.5}, "logit_scale: unknown field with value 0.5"),
    "zero is a value": ({"logit_scale": 0}, "logit_scale: unknown field with value 0"),
    "custom code": ({"auto_map": {"AutoModel": "x"}}, "auto_map: unknown field"),
    "other rope": ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling.rope_type: only 'default' or 'llama3'"),
    "rope kind of old": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "got 'linear'"),
    "rope unknown": ({"rope_parameters": LLAMA3 | {"attention_factor": 2.0}}, "rope_parameters.attention_factor"),
    "rope part": ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor: only 1.0"),
    "rope incomplete": ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.low_freq_factor: expected a positive"),
    "rope order": ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "expected more than low_freq_factor (1)"),
    "rope text": ({"rope_scaling": "llama3"}, "rope_scaling: expected an object, got 'llama3'"),
    "theta twice": ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, "rope_theta: given several times"),
    "theta": ({"rope_theta": 0}, "rope_theta: expected a positive number, got 0"),
    "rope twice": ({"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default"}}, "they say different things"),
    "text for a number": ({"hidden_size": "4096"}, "hidden_size: expected a positive whole number, got '4096'"),
    "true for a number": ({"num_hidden_layers": True}, "num_hidden_layers: expected a positive whole number, got True"),
    "absent": ({"vocab_size": None}, "vocab_size: expected a positive whole number, got nothing"),
    "epsilon": ({"rms_norm_eps": float("inf")}, "rms_norm_eps: expected a positive number, got inf"),
    "tie": ({"tie_word_embeddings": 1}, "tie_word_embeddings: expected true or false, got 1"),
    "groups": (
        {"num_key_value_heads": 5},
        "num_attention_heads: expected a multiple of num_key_value_heads (5), got 32",
    ),
    "odd head": ({"head_dim": 63}, "head_dim: expected an even number, got 63"),
    "architecture": ({"architectures": ["GemmaForCausalLM"]}, "expected one of LlamaForCausalLM, Qwen2ForCausalLM"),
    "two architectures": ({"architectures": ["LlamaForCausalLM", "X"]}, "architectures is"),
    "no architecture": ({"architectures": None}, "architectures is None"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_computed_is_refused_by_name(change, message):
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(LLAMA_2_7B | change)
    assert message in str(caught.value)


def test_a_sliding_window_that_is_on_is_refused():
    with pytest.raises(WeightsError, match="use_sliding_window: only False"):
        families.from_config_json(QWEN_25_HALF_B | {"use_sliding_window": True})


def test_all_problems_come_in_one_error():
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(LLAMA_2_7B | {"hidden_act": "gelu", "mlp_bias": True, "vocab_size": 0, "odd": 1})
    assert all(f"- {name}: " in str(caught.value) for name in ("hidden_act", "mlp_bias", "vocab_size", "odd"))


SCALINGS = st.builds(
    Llama3Rope,
    factor=st.floats(1, 64),
    low_freq_factor=st.floats(0.5, 2),
    high_freq_factor=st.floats(3, 8),
    original_context=st.integers(1, 2**17),
)
DECODERS = st.builds(
    DecoderConfig,
    vocabulary=st.integers(1, 2**18),
    width=st.integers(1, 2**13),
    layers=st.integers(1, 80),
    heads=st.sampled_from([4, 8, 32]),
    kv_heads=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([2, 64, 128]),
    feed_forward=st.integers(1, 2**15),
    rope_theta=st.floats(100, 1e7),
    norm_epsilon=st.floats(1e-8, 1e-3),
    qkv_bias=st.booleans(),
    tied_embedding=st.booleans(),
    rope_scaling=st.none() | SCALINGS,
)


@given(DECODERS)
def test_a_written_config_reads_back_the_same(decoder):
    text = json.dumps(families.to_config_json(decoder))
    assert families.from_config_json(json.loads(text)) == decoder


def test_a_written_config_can_be_read_in_either_spelling_alone():
    decoder = families.from_config_json(LLAMA_32_1B)
    written = families.to_config_json(decoder)
    old = {name: value for name, value in written.items() if name != "rope_parameters"}
    new = {name: value for name, value in written.items() if name not in ("rope_theta", "rope_scaling")}
    assert families.from_config_json(old) == families.from_config_json(new) == decoder


def test_absent_fields_mean_what_they_meant_when_they_were_left_out():
    absent = ("tie_word_embeddings", "num_key_value_heads", "rope_scaling", "hidden_act")
    decoder = families.from_config_json({name: value for name, value in LLAMA_2_7B.items() if name not in absent})
    assert decoder == families.from_config_json(LLAMA_2_7B)


def test_a_written_config_keeps_ids_and_limits_and_nothing_else_of_its_base():
    decoder = families.from_config_json(LLAMA_2_7B)
    written = families.to_config_json(decoder, base=LLAMA_32_1B | {"logit_scale": 2.0})
    assert (written["bos_token_id"], written["eos_token_id"]) == (128000, [128001, 128008, 128009])
    assert written["max_position_embeddings"] == 131072
    assert written["dtype"] == written["torch_dtype"] == "float32"
    assert "logit_scale" not in written
    assert families.from_config_json(written) == decoder


@pytest.mark.parametrize("config", [LLAMA_32_1B, QWEN_25_HALF_B, LLAMA_2_7B])
def test_every_weight_has_a_tensor_name_of_its_own(config):
    decoder = families.from_config_json(config)
    names = families.tensor_names(decoder)
    assert len({name.tensor for name in names.values()}) == len(names) == len(jax.tree.leaves(abstract_params(decoder)))
    last = decoder.layers - 1
    assert names["layers", str(last), "mlp", "up", "kernel"].tensor == f"model.layers.{last}.mlp.up_proj.weight"
    assert (("head", "embedding") in names) == (not decoder.tied_embedding)


def test_only_computed_tensors_are_ignorable():
    tied, untied = families.from_config_json(LLAMA_32_1B), families.from_config_json(LLAMA_2_7B)
    assert families.is_ignorable("model.layers.3.self_attn.rotary_emb.inv_freq", untied)
    assert families.is_ignorable("lm_head.weight", tied)
    assert not families.is_ignorable("lm_head.weight", untied)
    assert not families.is_ignorable("model.layers.0.self_attn.q_norm.weight", tied)

"""What no family computes is refused by the name of its field, all of it in one error."""

import pytest
from released import (
    FULL,
    GEMMA_3_1B,
    GEMMA_3_12B,
    LLAMA3,
    LLAMA_2_7B,
    MISTRAL_7B_V03,
    QWEN_3_8B,
    QWEN_25_HALF_B,
    SKYWORK_REWARD_V2,
    SLIDING,
)

from dfc.errors import WeightsError
from dfc.models import families

REFUSED = {
    "activation": ({"hidden_act": "gelu"}, "hidden_act: only 'silu' is computed for LlamaForCausalLM, got 'gelu'"),
    "attention bias": ({"attention_bias": True}, "attention_bias: only False"),
    "mlp bias": ({"mlp_bias": True}, "mlp_bias: only False"),
    "model type": ({"model_type": "mistral"}, "model_type: expected 'llama', got 'mistral'"),
    "sliding layers": (
        {"layer_types": ["full_attention"] * 31 + ["sliding_attention"]},
        "layer_types: only 'full_attention' is computed for the layers of this model",
    ),
    "a sliding window": ({"sliding_window": 4096}, "sliding_window: only None is computed, got 4096"),
    "layers of a wrong kind": ({"layer_types": 5}, "layer_types: expected a list of 'full_attention' and"),
    "unknown layers": ({"layer_types": ["chunked_attention"] * 32}, "layer_types: expected a list of"),
    "too few layers": ({"layer_types": ["full_attention"]}, "expected one entry for each of the 32 layers, got 1"),
    "rope of a wrong kind": (
        {"rope_scaling": {"rope_type": []}},
        "rope_scaling.rope_type: only 'default' or 'linear' or 'llama3'",
    ),
    "quantized": ({"quantization_config": {"bits": 4}}, "quantization_config: only None is computed, got {'bits': 4}"),
    "unknown field": (
        {"unpadded_vocab_size": 5},
        "unpadded_vocab_size: unknown field with value 5; transformers reads",
    ),
    "zero is a value": ({"unpadded_vocab_size": 0}, "unpadded_vocab_size: unknown field with value 0"),
    "custom code": ({"auto_map": {"AutoModel": "x"}}, "auto_map: only an entry AutoTokenizer is passed over"),
    "other rope": (
        {"rope_scaling": {"rope_type": "yarn"}},
        "rope_scaling.rope_type: only 'default' or 'linear' or 'llama3'",
    ),
    "rope kind of old": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "got 'dynamic'"),
    "rope per layer": ({"rope_parameters": {"full_attention": {}}}, "rope_parameters.full_attention: unknown to rope"),
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
    "architecture": ({"architectures": ["GemmaForCausalLM"]}, "expected one of LlamaForCausalLM, MistralForCausalLM"),
    "two architectures": ({"architectures": ["LlamaForCausalLM", "X"]}, "architectures is"),
    "no architecture": ({"architectures": None}, "architectures is None"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_computed_is_refused_by_name(change, message):
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(LLAMA_2_7B | change)
    assert message in str(caught.value)


REFUSED_ELSEWHERE = {
    "qwen2, window off": (QWEN_25_HALF_B, {"layer_types": [SLIDING] * 24}, "layer_types: only 'full_attention'"),
    "qwen2, flag": (QWEN_25_HALF_B, {"use_sliding_window": "yes"}, "use_sliding_window: expected true or false"),
    "qwen2, first": (
        QWEN_25_HALF_B,
        {"use_sliding_window": True, "max_window_layers": -1},
        "max_window_layers: expected a whole number of at least 0, got -1",
    ),
    "qwen2, activation": (QWEN_25_HALF_B, {"hidden_act": "gelu"}, "hidden_act: only 'silu'"),
    "qwen3, bias": (QWEN_3_8B, {"attention_bias": True}, "attention_bias: only False is computed for Qwen3ForCausalLM"),
    "qwen3, pattern": (QWEN_3_8B, {"sliding_window_pattern": 6}, "sliding_window_pattern: unknown field with value 6"),
    "mistral, window": (MISTRAL_7B_V03, {"sliding_window": 0}, "sliding_window: expected a positive whole number"),
    "mistral, layers": (MISTRAL_7B_V03, {"layer_types": [SLIDING] * 32}, "layer_types: only 'full_attention'"),
    "gemma, activation": (GEMMA_3_1B, {"hidden_activation": "gelu"}, "hidden_activation: only 'gelu_pytorch_tanh'"),
    "gemma, both ways": (GEMMA_3_1B, {"use_bidirectional_attention": True}, "use_bidirectional_attention: only False"),
    "gemma, attention cap": (GEMMA_3_1B, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: only None"),
    "gemma, logit cap": (GEMMA_3_1B, {"final_logit_softcapping": 0}, "final_logit_softcapping: expected a positive"),
    "gemma, scale": (GEMMA_3_1B, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar: expected a positive whole"),
    "gemma, no window": (GEMMA_3_1B, {"sliding_window": None}, "sliding_window: expected a positive whole number"),
    "gemma, pattern": (GEMMA_3_1B, {"sliding_window_pattern": 0}, "sliding_window_pattern: expected a positive whole"),
    "gemma, flat rope": (
        GEMMA_3_1B,
        {"rope_parameters": {"rope_type": "default"}},
        "rope_parameters.rope_type: expected one object for full_attention and one for sliding_attention",
    ),
    "gemma, local scaling": (
        GEMMA_3_1B,
        {"rope_parameters": {SLIDING: {"rope_type": "linear", "factor": 8.0}}},
        "rope_parameters.sliding_attention.rope_type: only 'default'",
    ),
    "gemma, two local bases": (
        GEMMA_3_1B,
        {"rope_parameters": {SLIDING: {"rope_theta": 5.0}}},
        "rope_local_base_freq: given several times, as 10000, 5.0",
    ),
    "gemma, two scalings": (
        GEMMA_3_1B,
        {"rope_parameters": {FULL: {}}, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "rope_parameters.full_attention and rope_scaling: they say different things",
    ),
    "images, unknown": (GEMMA_3_12B, {"hidden_size": 8}, "hidden_size: unknown field with value 8"),
    "images, type": (GEMMA_3_12B, {"model_type": "gemma3n"}, "model_type: expected 'gemma3', got 'gemma3n'"),
    "images, no text": (GEMMA_3_12B, {"text_config": None}, "text_config: expected an object, got None"),
    "images, head": (GEMMA_3_12B, {"tie_word_embeddings": False}, "tie_word_embeddings: it is False here"),
    "images, text": (
        GEMMA_3_12B,
        {"text_config": GEMMA_3_12B["text_config"] | {"unpadded_vocab_size": 4}},
        "text_config.unpadded_vocab_size: unknown field with value 4",
    ),
    "score, no labels": (SKYWORK_REWARD_V2, {"id2label": {}}, "id2label: expected one entry for each of the 2 labels"),
    "score, two counts": (SKYWORK_REWARD_V2, {"num_labels": 3}, "expected one entry for each of the 3 labels, got 1"),
    "score, no number": (SKYWORK_REWARD_V2, {"id2label": {"good": "0"}}, "id2label: expected the numbers 0 to 0 with"),
    "score, other kind": (SKYWORK_REWARD_V2, {"id2label": ["a"]}, "id2label: expected an object, got ['a']"),
}


@pytest.mark.parametrize(("base", "change", "message"), REFUSED_ELSEWHERE.values(), ids=REFUSED_ELSEWHERE.keys())
def test_what_another_family_does_not_compute_is_refused_by_name(base, change, message):
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(base | change)
    assert message in str(caught.value)


def test_all_problems_come_in_one_error():
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(
            LLAMA_2_7B | {"hidden_act": "gelu", "mlp_bias": True, "vocab_size": 0, "is_causal": 1}
        )
    assert all(f"- {name}: " in str(caught.value) for name in ("hidden_act", "mlp_bias", "vocab_size", "is_causal"))

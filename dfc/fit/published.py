"""Published shapes of well-known models, as the ``config.json`` they were released with; no weights."""

from collections.abc import Mapping
from typing import Any

_LLAMA_3_1_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _llama_3_1(width: int, layers: int, heads: int, feed_forward: int) -> Mapping[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "intermediate_size": feed_forward,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": _LLAMA_3_1_ROPE,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }


def _qwen_2_5(width: int, layers: int, heads: int, kv_heads: int, feed_forward: int, vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": feed_forward,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }


# Llama 3.1: arXiv 2407.21783, table 3. Qwen2.5: arXiv 2412.15115, table 1. Vocabularies, bases and epsilons: the
# released files.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama-3.1-8b": _llama_3_1(4096, 32, 32, 14336),
    "llama-3.1-70b": _llama_3_1(8192, 80, 64, 28672),
    "qwen2.5-0.5b": _qwen_2_5(896, 24, 14, 2, 4864, 151936) | {"tie_word_embeddings": True},
    "qwen2.5-7b": _qwen_2_5(3584, 28, 28, 4, 18944, 152064),
    "qwen2.5-32b": _qwen_2_5(5120, 64, 40, 8, 27648, 152064),
}

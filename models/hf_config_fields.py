"""Fields of a ``config.json`` that no family reads: which of them change nothing, and which are not known to.

A field without effect is passed over. One without effect at one value only is refused at every other. Of the rest, a
field that transformers reads anywhere between the configuration and the logits is refused, and one that nothing there
reads is passed over and reported. What transformers reads is a list in this folder, made by a search of its files
(``make config-fields``); it is not written from memory.

Sources of the tables: released files of Llama 2, 3, 3.1 and 3.2, SmolLM and SmolLM2, TinyLlama, Falcon 3, Qwen2,
Qwen2.5, Qwen3, Mistral and Gemma 3, of trainers and converters (unsloth, axolotl, GGUF, MLX, transformers.js), and what
transformers 4 wrote when it wrote every field of its base class.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.errors import shown

# By the reason why they are no part of the function from tokens to logits.
# Rows of names: one a line would be a page.
# fmt: off
WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "where the file comes from and what wrote it": frozenset({
        "_commit_hash", "_model_name_or_path", "_name_or_path", "finetuning_task", "is_llama_config", "name_or_path",
        "tokenizer_class", "transformers_version", "unsloth_fixed", "unsloth_version",
    }),
    "settings of another runtime": frozenset({"transformers.js_config"}),
    # The padding token too: which tokens are padding, and so where a score is taken, the caller's segments define.
    "ids of special tokens, which the tokenizer's files decide here": frozenset({
        "bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id",
    }),
    "names and number of labels; score models read both": frozenset({
        "id2label", "label2id", "num_labels", "problem_type",
    }),
    "training: the initializer, dropout (dfc has none), memory": frozenset({
        "attention_dropout", "classifier_dropout", "gradient_checkpointing", "hidden_dropout", "initializer_range",
        "neftune_noise_alpha",
    }),
    "limits: a longer context is computed by the same formula": frozenset({
        "max_position_embeddings", "max_sequence_length", "model_max_length", "seq_length",
    }),
    "how the same function is computed: kernels, cache, order of sums, chunks, dtype": frozenset({
        "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "cache_implementation",
        "chunk_size_feed_forward", "dtype", "pretraining_tp", "torch_dtype", "torchscript", "use_bfloat16", "use_cache",
        "use_flash_attention", "use_sdpa",
    }),
    "what is returned beside the logits": frozenset({
        "output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate",
    }),
    "how tokens are sampled from the logits, which the run's configuration decides": frozenset({
        "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
        "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
        "forced_eos_token_id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups",
        "num_beams", "num_return_sequences", "prefix", "remove_invalid_values", "repetition_penalty", "suppress_tokens",
        "task_specific_params", "temperature", "top_k", "top_p", "typical_p",
    }),
    "a copy of layer_types, written by transformers 5": frozenset({"_sliding_window_pattern"}),
    "other kinds of models, which no decoder here is, whatever the value": frozenset({"is_decoder", "tf_legacy_loss"}),
}
# fmt: on

# Without effect at these values only. A family that reads a field, or fixes its value, takes precedence.
WITHOUT_EFFECT_AT: Mapping[str, tuple[object, ...]] = {
    # The attention: whether it sees what comes later, how far back it looks, how its logits are bounded.
    "is_causal": (True,),
    "use_bidirectional_attention": (False, None),
    "sliding_window": (None,),
    "use_sliding_window": (False,),
    "attention_chunk_size": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    # Biases these families do not have.
    "attention_bias": (False,),
    "mlp_bias": (False,),
    # Rotary embeddings: neighbouring channels paired, sections for images, a part of the channels, none at all.
    "rope_interleaved": (False,),
    "rope_traditional": (False,),
    "use_mrope": (False,),
    "partial_rotary_factor": (1.0,),
    "alibi": (False,),
    # Falcon 3's second name for hidden_act: a gated feed-forward with SiLU.
    "activation": ("swiglu",),
    # Encoders beside the decoder.
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False,),
    # Weights that are stored, cut or set layer by layer in another way.
    "quantization_config": (None,),
    "pruned_heads": ({}, None),
    "per_layer_config": (None,),
}

PASSED = frozenset().union(*WITHOUT_EFFECT.values())
# Of the files that weights came from, or the machine they ran on: untrue of weights that were trained since.
NOT_WRITTEN = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_commit_hash",
        "attn_implementation",
        "transformers.js_config",
    }
)
_UNQUANTIZED = "take the unquantized original (adapter.base=nf4 keeps it in 4 bits beside adapters)"
_LIST = "hf_config_fields_read.json"


@functools.cache
def _list() -> Mapping[str, Any]:
    values: Mapping[str, Any] = json.loads(Path(__file__).with_name(_LIST).read_text(encoding="utf-8"))
    return values


def transformers_version() -> str:
    """Returns the version of transformers whose files the list is of."""
    return str(_list()["transformers"])


@functools.cache
def read_by_transformers() -> frozenset[str]:
    """Returns the names of fields that transformers reads between a ``config.json`` and the logits of our families."""
    return frozenset(_list()["read"])


def objection(name: str, value: object) -> str | None:
    """Returns why a field that the family does not read keeps the model from being computed; None if it does not.

    A field that is in no table here and that transformers does not read gets no objection: `unknown` names it.
    """
    came = shown(value)
    if name == "auto_map" and not _is_tokenizer_code(value):
        return f"only an entry AutoTokenizer is passed over, a model's own code is never run; got {came}"
    if name in WITHOUT_EFFECT_AT:
        allowed = WITHOUT_EFFECT_AT[name]
        if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            hint = f"; {_UNQUANTIZED}" if name == "quantization_config" else ""
            return f"only {' or '.join(map(repr, allowed))} is computed, got {came}{hint}"
    elif name not in PASSED and name != "auto_map" and _reads(name):
        return f"unknown field with value {came}; transformers reads it, so removing it may be another model"
    return None


def _is_tokenizer_code(value: object) -> bool:
    # Ours is made from the tokenizer's files.
    return value is None or (isinstance(value, Mapping) and set(value) <= {"AutoTokenizer"})


def unknown(name: str) -> bool:
    """Returns whether a field is in no table and read by nothing: it is passed over and reported."""
    return name not in PASSED | WITHOUT_EFFECT_AT.keys() | {"auto_map"} and not _reads(name)


def _reads(name: str) -> bool:
    # transformers makes every field an attribute of the configuration: what Python itself reads is no exception.
    return name in read_by_transformers() or name.startswith("__")

"""The architectures whose files we read and write, as data: one `Family` says all that is its own.

These are its tensors' names, the fields of its ``config.json`` and what they are called here, and which values are
fixed, absent or refused. `dfc.models.families` reads and writes by these tables and knows no family by name.

Sources: the released ``config.json`` files of Llama 2, 3, 3.1, 3.2 (arXiv 2407.21783), Qwen2, Qwen2.5, Qwen3 (arXiv
2407.10671, 2412.15115, 2505.09388), Mistral 7B (arXiv 2310.06825), Gemma 3 (arXiv 2503.19786) and Skywork-Reward-V2
(arXiv 2507.01352); the meaning and the defaults of their fields: the configuration classes of transformers 5.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from dfc.models.hf_config import MOST_LAYERS, ConfigReader


@dataclasses.dataclass(frozen=True)
class TensorName:
    """One kind of tensor.

    Attributes:
      path: its place in our weights, keys joined by ``/``; ``{layer}`` stands for the layer's number.
      tensor: its Hugging Face name, with the same placeholder.
      transpose: whether the file holds [out, in] where we hold [in, out].
    """

    path: str
    tensor: str
    transpose: bool = False


@dataclasses.dataclass(frozen=True)
class ConfigField:
    """One field of ``config.json`` that is one field of `DecoderConfig`.

    Attributes:
      theirs: its name in ``config.json``.
      ours: its name in `DecoderConfig`.
      read: (reader, their name) -> our value; notes in the reader what is wrong.
      default: fields of `DecoderConfig` read before it -> their value of an absent field; None: see `read`.
      write: our value -> theirs.
      nullable: whether null may be written; without it a decoder for which `write` gives None is of another family.
    """

    theirs: str
    ours: str
    read: Callable[..., Any] = ConfigReader.integer
    default: Callable[[Mapping[str, Any]], object] | None = None
    write: Callable[[Any], Any] = lambda value: value
    nullable: bool = False


def _inverse_square(scale: float | None) -> int | None:
    """Returns the whole number whose inverse square root an attention scale is, if there is one."""
    scalar = 0 if scale is None else round(scale**-2)
    return scalar if scalar > 0 and scalar**-0.5 == scale else None


# Read in this order: what a default is computed from stands before.
FIELDS = (
    ConfigField("hidden_size", "width"),
    ConfigField("num_attention_heads", "heads"),
    ConfigField("num_hidden_layers", "layers", functools.partial(ConfigReader.integer, most=MOST_LAYERS)),
    ConfigField("vocab_size", "vocabulary"),
    ConfigField("num_key_value_heads", "kv_heads", default=lambda read: read["heads"]),
    ConfigField("head_dim", "head_dim", default=lambda read: max(read["width"] // read["heads"], 1)),
    ConfigField("intermediate_size", "feed_forward"),
    ConfigField("rms_norm_eps", "norm_epsilon", ConfigReader.positive),
    ConfigField("tie_word_embeddings", "tied_embedding", functools.partial(ConfigReader.boolean, default=False)),
)
_GEMMA3_FIELDS = (
    ConfigField(
        "query_pre_attn_scalar",
        "attention_scale",
        lambda reader, name: reader.integer(name) ** -0.5,
        write=_inverse_square,
    ),
    ConfigField(
        "final_logit_softcapping",
        "logit_soft_cap",
        lambda reader, name: None if reader.config.get(name) is None else reader.positive(name),
        nullable=True,
    ),
)
_EVERY_FAMILY = frozenset({"architectures", "model_type", "rope_theta", "rope_scaling", "rope_parameters"})
_WINDOW_FIELDS: Mapping[str, frozenset[str]] = {
    "none": frozenset({"layer_types"}),
    "all": frozenset({"layer_types", "sliding_window"}),
    "last": frozenset({"layer_types", "sliding_window", "use_sliding_window", "max_window_layers"}),
    "pattern": frozenset({"layer_types", "sliding_window", "sliding_window_pattern"}),
}
_LABELS = frozenset({"id2label", "num_labels"})

PLAIN_KIND: Mapping[str, object] = {
    "activation": "silu",
    "qkv_bias": False,
    "qk_norm": False,
    "unit_offset_norm": False,
    "sandwich_norms": False,
    "scaled_embedding": False,
    "attention_soft_cap": None,
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
      architecture: the entry of ``architectures`` in ``config.json``.
      model_type: the entry ``model_type``.
      names: every tensor a model of this family may have.
      fixed: fields of ``config.json`` that must be absent or have one of these values.
      own_kind: where `kind` differs from `PLAIN_KIND`.
      own_fields: what it reads beside `FIELDS`.
      windows: which layers may have a sliding window: ``none``; ``all`` if ``sliding_window`` is a number; ``last``:
        if ``use_sliding_window``, those from ``max_window_layers`` on; ``pattern``: all but every
        ``sliding_window_pattern``-th. A list ``layer_types`` overrides the last two.
      rope_theta: what an absent base of rotary frequencies means.
      local_rope_theta: the same for layers with a window; None: these have no base of their own.
      defaults: what other absent fields mean, where the family has a value of its own for them.
      scores: whether its models end in scores of the whole sequence rather than in logits of the next token.
      ignorable: beginnings of the names of tensors that are no part of the text model.
    """

    architecture: str
    model_type: str
    names: tuple[TensorName, ...]
    fixed: Mapping[str, tuple[object, ...]]
    own_kind: Mapping[str, object] = dataclasses.field(default_factory=dict)
    own_fields: tuple[ConfigField, ...] = ()
    windows: Literal["none", "all", "last", "pattern"] = "none"
    rope_theta: float = 10000.0  # Llama 1 and 2 were released without the field
    local_rope_theta: float | None = None
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scores: bool = False
    ignorable: tuple[str, ...] = ()

    @property
    def kind(self) -> Mapping[str, object]:
        """Fields of `DecoderConfig` that are the same in every model of the family."""
        return {**PLAIN_KIND, **self.own_kind}

    @property
    def fields(self) -> tuple[ConfigField, ...]:
        """The fields of ``config.json`` that are one field of `DecoderConfig` each, in the order they are read in."""
        return FIELDS + self.own_fields

    @property
    def reads(self) -> frozenset[str]:
        """Names of the fields of ``config.json`` that are read, without those in `fixed`."""
        local = {"rope_local_base_freq"} if self.local_rope_theta is not None else set()
        return (
            _EVERY_FAMILY.union(field.theirs for field in self.fields)
            | _WINDOW_FIELDS[self.windows]
            | local
            | (_LABELS if self.scores else frozenset())
        )


_LAYER = "model.layers.{layer}."
_ATTENTION, _MLP = _LAYER + "self_attn.", _LAYER + "mlp."
_BODY_NAMES = (
    TensorName("embed/embedding", "model.embed_tokens.weight"),
    TensorName("layers/{layer}/attention_norm/scale", _LAYER + "input_layernorm.weight"),
    TensorName("layers/{layer}/attention/query/kernel", _ATTENTION + "q_proj.weight", transpose=True),
    TensorName("layers/{layer}/attention/key/kernel", _ATTENTION + "k_proj.weight", transpose=True),
    TensorName("layers/{layer}/attention/value/kernel", _ATTENTION + "v_proj.weight", transpose=True),
    TensorName("layers/{layer}/attention/output/kernel", _ATTENTION + "o_proj.weight", transpose=True),
    TensorName("layers/{layer}/mlp/gate/kernel", _MLP + "gate_proj.weight", transpose=True),
    TensorName("layers/{layer}/mlp/up/kernel", _MLP + "up_proj.weight", transpose=True),
    TensorName("layers/{layer}/mlp/down/kernel", _MLP + "down_proj.weight", transpose=True),
    TensorName("norm/scale", "model.norm.weight"),
)
_PRE_NORM_NAMES = (TensorName("layers/{layer}/mlp_norm/scale", _LAYER + "post_attention_layernorm.weight"),)
_SANDWICH_NORM_NAMES = (  # the same tensor name as above stands for another norm here
    TensorName("layers/{layer}/attention_post_norm/scale", _LAYER + "post_attention_layernorm.weight"),
    TensorName("layers/{layer}/mlp_norm/scale", _LAYER + "pre_feedforward_layernorm.weight"),
    TensorName("layers/{layer}/mlp_post_norm/scale", _LAYER + "post_feedforward_layernorm.weight"),
)
_BIAS_NAMES = (
    TensorName("layers/{layer}/attention/query/bias", _ATTENTION + "q_proj.bias"),
    TensorName("layers/{layer}/attention/key/bias", _ATTENTION + "k_proj.bias"),
    TensorName("layers/{layer}/attention/value/bias", _ATTENTION + "v_proj.bias"),
)
_QK_NORM_NAMES = (
    TensorName("layers/{layer}/attention/query_norm/scale", _ATTENTION + "q_norm.weight"),
    TensorName("layers/{layer}/attention/key_norm/scale", _ATTENTION + "k_norm.weight"),
)
_HEAD_NAMES = (TensorName("head/embedding", "lm_head.weight"),)
_SCORE_NAMES = (TensorName("score/kernel", "score.weight", transpose=True),)

LLAMA = Family(
    architecture="LlamaForCausalLM",
    model_type="llama",
    names=_BODY_NAMES + _PRE_NORM_NAMES + _HEAD_NAMES,
    fixed={"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)},
)
MISTRAL = Family(
    architecture="MistralForCausalLM",
    model_type="mistral",
    names=LLAMA.names,
    fixed={"hidden_act": ("silu",)},
    windows="all",
    defaults={"num_key_value_heads": 8, "sliding_window": 4096},  # v0.3 says null, which is no window
)
QWEN2 = Family(
    architecture="Qwen2ForCausalLM",
    model_type="qwen2",
    names=_BODY_NAMES + _PRE_NORM_NAMES + _BIAS_NAMES + _HEAD_NAMES,
    fixed={"hidden_act": ("silu",)},
    own_kind={"qkv_bias": True},
    windows="last",
    defaults={"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
)
QWEN3 = Family(
    architecture="Qwen3ForCausalLM",
    model_type="qwen3",
    names=_BODY_NAMES + _PRE_NORM_NAMES + _QK_NORM_NAMES + _HEAD_NAMES,
    fixed={"hidden_act": ("silu",), "attention_bias": (False,)},
    own_kind={"qk_norm": True},
    windows="last",
    defaults={**QWEN2.defaults, "head_dim": 128},
)
GEMMA3 = Family(
    architecture="Gemma3ForCausalLM",
    model_type="gemma3_text",
    names=_BODY_NAMES + _SANDWICH_NORM_NAMES + _QK_NORM_NAMES + _HEAD_NAMES,
    fixed={
        "hidden_activation": ("gelu_pytorch_tanh",),
        "attention_bias": (False,),
        "attn_logit_softcapping": (None,),  # transformers does not apply it in this architecture
        "use_bidirectional_attention": (False, None),
    },
    own_kind={
        "activation": "gelu_tanh",
        "qk_norm": True,
        "unit_offset_norm": True,
        "sandwich_norms": True,
        "scaled_embedding": True,
    },
    own_fields=_GEMMA3_FIELDS,
    windows="pattern",
    rope_theta=1000000.0,
    local_rope_theta=10000.0,
    defaults={  # released files leave many of them out
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
    },
    ignorable=("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."),
)


def _scoring(family: Family) -> Family:
    """Returns the same decoder with a score head: one linear layer over the hidden state of the last token."""
    return dataclasses.replace(
        family,
        architecture=family.architecture.replace("CausalLM", "SequenceClassification"),
        names=tuple(name for name in family.names if name not in _HEAD_NAMES) + _SCORE_NAMES,
        scores=True,
    )


# Where two families compute the same (Mistral without a window is a Llama), the first is the one that is written.
_ALL = (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3, _scoring(LLAMA), _scoring(QWEN2), _scoring(QWEN3))
FAMILIES: Mapping[str, Family] = {family.architecture: family for family in _ALL}


@dataclasses.dataclass(frozen=True)
class WithImages:
    """An architecture that reads text and images; its text model stands in the object ``text_config``.

    Attributes:
      architecture: the entry of ``architectures``.
      model_type: the entry ``model_type``.
      text: the family of its text model.
      without_effect: fields beside ``text_config`` that only concern images.
      prefixes: what the names of its text model's tensors start with, and what that is in `text`; it differs between
        versions.
    """

    architecture: str
    model_type: str
    text: Family
    without_effect: frozenset[str]
    prefixes: Mapping[str, str]


WITH_IMAGES = WithImages(
    architecture="Gemma3ForConditionalGeneration",
    model_type="gemma3",
    text=GEMMA3,
    without_effect=frozenset(
        {
            "vision_config",
            "mm_tokens_per_image",
            "boi_token_id",  # the newer names of the next three
            "eoi_token_id",
            "image_token_id",
            "boi_token_index",
            "eoi_token_index",
            "image_token_index",
        }
    ),
    prefixes={
        "language_model.model.": "model.",
        "language_model.lm_head.": "lm_head.",
        "model.language_model.": "model.",
    },
)

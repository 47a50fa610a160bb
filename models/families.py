"""Model families: how a Hugging Face ``config.json`` and its tensor names map to `DecoderConfig` and our weights.

A family is data (`Family`), not code: an architecture name, the name of each tensor, and which configuration values
it fixes. A configuration is either computed exactly as its family defines it or refused; a field this file does not
know is refused too, because a field that is silently ignored is a different model.

Sources: the released ``config.json`` files of Llama 2, 3, 3.1, 3.2 (arXiv 2407.21783) and Qwen2, Qwen2.5 (arXiv
2407.10671, 2412.15115).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax

from dfc.errors import WeightsError
from dfc.models.decoder_config import DecoderConfig, Llama3Rope
from dfc.models.transformer import abstract_params

Path = tuple[str, ...]  # keys from the root of the weights to one array: ("layers", "0", "mlp", "up", "kernel")


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
class Family:
    """One architecture.

    Attributes:
      architecture: the entry of ``architectures`` in ``config.json``.
      model_type: the entry ``model_type``.
      qkv_bias: whether its query, key and value projections have a bias.
      fixed: fields of ``config.json`` that must be absent or have one of these values.
      names: every tensor a model of this family may have.
    """

    architecture: str
    model_type: str
    qkv_bias: bool
    fixed: Mapping[str, tuple[object, ...]]
    names: tuple[TensorName, ...]


_ATTENTION, _MLP = "model.layers.{layer}.self_attn.", "model.layers.{layer}.mlp."
_PLAIN_NAMES = (
    TensorName("embed/embedding", "model.embed_tokens.weight"),
    TensorName("layers/{layer}/attention_norm/scale", "model.layers.{layer}.input_layernorm.weight"),
    TensorName("layers/{layer}/attention/query/kernel", _ATTENTION + "q_proj.weight", transpose=True),
    TensorName("layers/{layer}/attention/key/kernel", _ATTENTION + "k_proj.weight", transpose=True),
    TensorName("layers/{layer}/attention/value/kernel", _ATTENTION + "v_proj.weight", transpose=True),
    TensorName("layers/{layer}/attention/output/kernel", _ATTENTION + "o_proj.weight", transpose=True),
    TensorName("layers/{layer}/mlp_norm/scale", "model.layers.{layer}.post_attention_layernorm.weight"),
    TensorName("layers/{layer}/mlp/gate/kernel", _MLP + "gate_proj.weight", transpose=True),
    TensorName("layers/{layer}/mlp/up/kernel", _MLP + "up_proj.weight", transpose=True),
    TensorName("layers/{layer}/mlp/down/kernel", _MLP + "down_proj.weight", transpose=True),
    TensorName("norm/scale", "model.norm.weight"),
    TensorName("head/embedding", "lm_head.weight"),
)
_BIAS_NAMES = (
    TensorName("layers/{layer}/attention/query/bias", _ATTENTION + "q_proj.bias"),
    TensorName("layers/{layer}/attention/key/bias", _ATTENTION + "k_proj.bias"),
    TensorName("layers/{layer}/attention/value/bias", _ATTENTION + "v_proj.bias"),
)

LLAMA = Family(
    architecture="LlamaForCausalLM",
    model_type="llama",
    qkv_bias=False,
    fixed={"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)},
    names=_PLAIN_NAMES,
)
QWEN2 = Family(
    architecture="Qwen2ForCausalLM",
    model_type="qwen2",
    qkv_bias=True,
    # Released Qwen2.5 files name a window and then switch it off; its size and layers then have no effect.
    fixed={"hidden_act": ("silu",), "use_sliding_window": (False,)},
    names=_PLAIN_NAMES + _BIAS_NAMES,
)
FAMILIES: Mapping[str, Family] = {family.architecture: family for family in (LLAMA, QWEN2)}

# Read below, field by field.
_READ = frozenset(
    {
        "architectures",
        "model_type",
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "rms_norm_eps",
        "tie_word_embeddings",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "layer_types",
    }
)
# No part of the function from ids to logits at inference: names, ids, the initializer, limits, library settings.
# Attention dropout belongs to a trainer, and ours has none; pretraining_tp only changes the order of a sum; a window
# counts only where use_sliding_window or layer_types say so.
_WITHOUT_EFFECT = frozenset(
    {
        "_name_or_path",
        "_attn_implementation",
        "attention_dropout",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "is_encoder_decoder",
        "label2id",
        "max_position_embeddings",
        "max_window_layers",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "sliding_window",
        "torch_dtype",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "use_cache",
    }
)
_LLAMA3_FIELDS = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_context": "original_max_position_embeddings",
}
_DEFAULT_ROPE_THETA = 10000.0  # Llama 1 and 2 were released without the field


class _Reader:
    """Reads typed fields of one configuration and collects what is wrong with them."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.problems: list[str] = []

    def integer(self, name: str, default: int | None = None) -> int:
        """Returns the positive whole number in a field; `default` stands for an absent or null one."""
        value = self.config.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            came = "nothing" if value is None else repr(value)
            self.problems.append(f"{name}: expected a positive whole number, got {came}")
            return 1
        return value

    def number(self, shown: str, value: object) -> float:
        """Returns `value` if it is a positive number; messages call it `shown`."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            self.problems.append(
                f"{shown}: expected a positive number, got {'nothing' if value is None else repr(value)}"
            )
            return 1.0
        return float(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        """Returns true or false; `default` stands for an absent field."""
        value = self.config.get(name, default)
        if not isinstance(value, bool):
            self.problems.append(f"{name}: expected true or false, got {value!r}")
            return default
        return value


def family_of(config: DecoderConfig) -> Family:
    """Returns the family whose files can hold this decoder."""
    return QWEN2 if config.qkv_bias else LLAMA


def _family_named(config: Mapping[str, Any]) -> Family:
    architectures = config.get("architectures")
    named = architectures if isinstance(architectures, list) else [architectures]
    found = [FAMILIES[name] for name in named if isinstance(name, str) and name in FAMILIES]
    if len(named) != 1 or not found:
        raise WeightsError(
            f"config.json: architectures is {architectures!r}; expected one of {', '.join(FAMILIES)}. "
            "docs/add_a_model_family.md says how to add a family."
        )
    return found[0]


def _check_values(reader: _Reader, family: Family) -> None:
    """Notes model_type, fixed values, layer types and unknown fields that the family cannot compute."""
    config, problems = reader.config, reader.problems
    if config.get("model_type", family.model_type) != family.model_type:
        problems.append(f"model_type: expected {family.model_type!r}, got {config['model_type']!r}")
    for name, allowed in family.fixed.items():
        if name in config and config[name] not in allowed:
            problems.append(
                f"{name}: only {' or '.join(map(repr, allowed))} is computed for {family.architecture}, "
                f"got {config[name]!r}"
            )
    types = config.get("layer_types") or []
    if not isinstance(types, list) or any(kind != "full_attention" for kind in types):
        problems.append(f"layer_types: only 'full_attention' is computed, got {types!r}")
    # A field that is null or false switches something off, which is what not knowing it amounts to.
    known = _READ | _WITHOUT_EFFECT | family.fixed.keys()
    for name in sorted(config.keys() - known):
        if config[name] is not None and config[name] is not False:
            problems.append(
                f"{name}: unknown field with value {config[name]!r}; if it does not change the computation, "
                "remove it from config.json"
            )


def _rope(reader: _Reader) -> tuple[float, Llama3Rope | None]:
    """Returns base and scaling from ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (4)."""
    config, problems = reader.config, reader.problems
    places: dict[str, Mapping[str, Any]] = {}
    for place in ("rope_parameters", "rope_scaling"):
        settings = config.get(place)
        if isinstance(settings, Mapping):
            places[place] = settings
        elif settings is not None:
            problems.append(f"{place}: expected an object, got {settings!r}")
    thetas = [source["rope_theta"] for source in (config, *places.values()) if source.get("rope_theta") is not None]
    if any(theta != thetas[0] for theta in thetas):
        problems.append(f"rope_theta: given several times, as {', '.join(map(repr, thetas))}; keep the right one")
    base = reader.number("rope_theta", thetas[0] if thetas else _DEFAULT_ROPE_THETA)
    scalings = [_scaling(reader, place, settings) for place, settings in places.items()]
    if any(scaling != scalings[0] for scaling in scalings):
        problems.append("rope_parameters and rope_scaling: they say different things; keep the right one")
    return base, scalings[0] if scalings else None


def _scaling(reader: _Reader, place: str, settings: Mapping[str, Any]) -> Llama3Rope | None:
    """Returns the scaling that one of the two fields asks for."""
    kind = settings.get("rope_type", settings.get("type", "default"))  # "type" before transformers 4.43
    fields = set(_LLAMA3_FIELDS.values()) if kind == "llama3" else set[str]()
    if kind not in ("default", "llama3"):  # a tuple: the value may be anything JSON has
        reader.problems.append(f"{place}.rope_type: only 'default' or 'llama3' is computed, got {kind!r}")
        return None
    whole = settings.get("partial_rotary_factor", 1.0)
    if whole != 1.0:
        reader.problems.append(f"{place}.partial_rotary_factor: only 1.0 is computed, got {whole!r}")
    unknown = settings.keys() - fields - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    reader.problems += [
        f"{place}.{name}: unknown to rope type {kind!r}, got {settings[name]!r}" for name in sorted(unknown)
    ]
    if kind == "default":
        return None
    values = {ours: reader.number(f"{place}.{theirs}", settings.get(theirs)) for ours, theirs in _LLAMA3_FIELDS.items()}
    scaling = Llama3Rope(
        factor=values["factor"],
        low_freq_factor=values["low_freq_factor"],
        high_freq_factor=values["high_freq_factor"],
        original_context=int(values["original_context"]),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        reader.problems.append(
            f"{place}.high_freq_factor: expected more than low_freq_factor ({scaling.low_freq_factor:g}), "
            f"got {scaling.high_freq_factor:g}"
        )
    return scaling


def from_config_json(config: Mapping[str, Any]) -> DecoderConfig:
    """Returns the decoder that a parsed ``config.json`` describes, with dtype float32.

    Both spellings of the rotary settings are read: ``rope_parameters`` and ``rope_theta`` with ``rope_scaling``.

    Raises:
      WeightsError: listing every field that is missing, of the wrong kind, unknown, or asks for something that is
        not computed here (another activation, biases, a sliding window, other rope types, quantization).
    """
    family = _family_named(config)
    reader = _Reader(config)
    _check_values(reader, family)
    theta, scaling = _rope(reader)
    width, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    decoder = DecoderConfig(
        vocabulary=reader.integer("vocab_size"),
        width=width,
        layers=reader.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=reader.integer("num_key_value_heads", heads),
        head_dim=reader.integer("head_dim", max(width // heads, 1)),
        feed_forward=reader.integer("intermediate_size"),
        rope_theta=theta,
        norm_epsilon=reader.number("rms_norm_eps", config.get("rms_norm_eps")),
        qkv_bias=family.qkv_bias,
        tied_embedding=reader.boolean("tie_word_embeddings", default=False),
        rope_scaling=scaling,
    )
    if not reader.problems:  # a stand-in for a missing number would only add confusing complaints
        if heads % decoder.kv_heads:
            reader.problems.append(
                f"num_attention_heads: expected a multiple of num_key_value_heads ({decoder.kv_heads}), got {heads}"
            )
        if decoder.head_dim % 2:
            reader.problems.append(f"head_dim: expected an even number, got {decoder.head_dim}")
    if reader.problems:
        listed = "\n".join(f"  - {problem}" for problem in reader.problems)
        raise WeightsError(f"config.json of a {family.architecture} cannot be used:\n{listed}")
    return decoder


def to_config_json(config: DecoderConfig, *, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the contents of a ``config.json`` that `from_config_json` reads back as `config` (but for its dtype).

    Rotary settings and dtype are written in both spellings, so that transformers 4 and 5, and servers built on
    either, compute the same model.

    Args:
      config: what to describe.
      base: the ``config.json`` the weights came from; its fields without effect on the logits (token ids, longest
        context, ...) are kept.
    """
    family = family_of(config)
    rope: dict[str, Any] = {"rope_type": "default"}
    if config.rope_scaling is not None:
        scaling = dataclasses.asdict(config.rope_scaling)
        rope = {"rope_type": "llama3"} | {theirs: scaling[ours] for ours, theirs in _LLAMA3_FIELDS.items()}
    kept = {name: value for name, value in (base or {}).items() if name in _WITHOUT_EFFECT}
    return kept | {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.feed_forward,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied_embedding,
        "rope_theta": config.rope_theta,
        "rope_scaling": None if config.rope_scaling is None else rope,
        "rope_parameters": rope | {"rope_theta": config.rope_theta},
        "dtype": config.dtype,
        "torch_dtype": config.dtype,
        **{name: allowed[0] for name, allowed in family.fixed.items()},
    }


def tensor_names(config: DecoderConfig) -> dict[Path, TensorName]:
    """Returns, for every array of a decoder's weights, its path and its tensor's name with the layer filled in."""
    by_path = {name.path: name for name in family_of(config).names}
    result = {}
    for keys, _ in jax.tree.leaves_with_path(abstract_params(config)):
        path = tuple(str(key.key) for key in keys)
        layer = path[1] if path[0] == "layers" else ""
        kind = by_path["/".join(("layers", "{layer}", *path[2:]) if layer else path)]
        result[path] = TensorName("/".join(path), kind.tensor.format(layer=layer), kind.transpose)
    return result


def is_ignorable(tensor: str, config: DecoderConfig) -> bool:
    """Returns whether a file's tensor that the decoder lacks changes nothing.

    That is the case for rotary frequencies, which are computed, and for a copy of a tied embedding.
    """
    return tensor.endswith(".rotary_emb.inv_freq") or (tensor == "lm_head.weight" and config.tied_embedding)

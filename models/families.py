"""Model families: how a Hugging Face ``config.json`` and its tensor names map to `DecoderConfig` and our weights.

A family is data (`dfc.models.hf_architectures`), not code. A configuration is either computed exactly as its family
defines it or refused. So is a field that no family reads, unless it is known to change nothing, or nothing in
transformers reads it either (`dfc.models.hf_config_fields`): a field that is silently ignored is a different model.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dfc.errors import WeightsError, shown
from dfc.models import hf_config, hf_config_fields
from dfc.models.config import DecoderConfig
from dfc.models.hf_architectures import FAMILIES, PLAIN_KIND, WITH_IMAGES, Family, TensorName
from dfc.models.model_folders import listed
from dfc.models.transformer import Path, abstract_params, by_path

_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")

_READ_WITH_IMAGES = WITH_IMAGES.without_effect | {"architectures", "model_type", "text_config", "tie_word_embeddings"}
_OWN = frozenset(field.ours for family in FAMILIES.values() for field in family.own_fields)
_DEFAULT_LABELS = 2  # what an absent id2label means in transformers


def _holds(family: Family, config: DecoderConfig) -> bool:
    """Returns whether the family's ``config.json`` can express everything in `config`."""
    local = config.windowed
    own = {field.ours for field in family.own_fields}
    may_window = {"none": not any(local), "all": len(set(local)) == 1, "last": True, "pattern": True}
    return (
        may_window[family.windows]
        and (config.labels is not None) == family.scores
        and (config.local_rope_theta is not None) == (family.local_rope_theta is not None and any(local))
        and all(getattr(config, name) is None for name in _OWN - own)
        and all(field.nullable or field.write(getattr(config, field.ours)) is not None for field in family.own_fields)
        and all(getattr(config, name) == value for name, value in family.kind.items())
    )


def _families_of(config: DecoderConfig) -> list[Family]:
    found = [family for family in FAMILIES.values() if _holds(family, config)]
    if not found:
        names = (*PLAIN_KIND, "attention_scale", "logit_soft_cap", "windowed", "local_rope_theta", "labels")
        values = ", ".join(f"{name}={getattr(config, name)!r}" for name in names)
        raise WeightsError(
            f"no architecture among {', '.join(FAMILIES)} computes a decoder with {values}; "
            "docs/add_a_model_family.md says how to add a family."
        )
    return found


def family_of(config: DecoderConfig) -> Family:
    """Returns the family whose files can hold this decoder; of several the one listed first.

    Raises:
      WeightsError: if no family computes it.
    """
    return _families_of(config)[0]


def _listed_problems(what: str, problems: list[str]) -> WeightsError:
    return WeightsError(f"config.json of a {what} cannot be used:{listed(problems, 20)}")


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the text model's part of the configuration of a Gemma 3 that also reads images."""
    reader = hf_config.ConfigReader(config)
    if config.get("model_type", WITH_IMAGES.model_type) != WITH_IMAGES.model_type:
        reader.refuse("model_type", f"expected {WITH_IMAGES.model_type!r}, got {shown(config['model_type'])}")
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        reader.refuse("text_config", f"expected an object, got {shown(text)}")
        text = {}
    _refuse_unread(reader, _READ_WITH_IMAGES)
    tied = reader.boolean("tie_word_embeddings", default=True)
    if tied != text.get("tie_word_embeddings", True):
        reader.refuse("tie_word_embeddings", f"it is {tied!r} here and the opposite in text_config; keep the right one")
    if reader.problems:
        raise _listed_problems(WITH_IMAGES.architecture, reader.problems)
    return text


def _family_named(config: Mapping[str, Any]) -> Family:
    architectures = config.get("architectures")
    named = architectures if isinstance(architectures, list) else [architectures]
    name = named[0] if len(named) == 1 else None
    known = (*FAMILIES, WITH_IMAGES.architecture)
    if name == WITH_IMAGES.architecture:
        return WITH_IMAGES.text
    if not isinstance(name, str) or name not in FAMILIES:
        raise WeightsError(
            f"config.json: architectures is {shown(architectures)}; expected one of {', '.join(known)}. "
            "docs/add_a_model_family.md says how to add a family."
        )
    return FAMILIES[name]


def _refuse_unread(reader: hf_config.ConfigReader, read: frozenset[str]) -> None:
    """Records fields that the family does not read and that are not known to change nothing."""
    for name in sorted(reader.config.keys() - read):
        objection = hf_config_fields.objection(name, reader.config[name])
        if objection is not None:
            reader.refuse(name, objection)


def _read_of(family: Family) -> frozenset[str]:
    return family.reads | family.fixed.keys()


def passed_over(config: Mapping[str, Any]) -> list[str]:
    """Returns the unknown fields of a ``config.json``: no family or table here reads them, nor does transformers.

    They change nothing that transformers computes. They are reported nevertheless: a fork may read them.

    Raises:
      WeightsError: if `from_config_json` refuses the architecture.
    """
    family = _family_named(config)
    if not reads_images(config):
        return sorted(name for name in config.keys() - _read_of(family) if hf_config_fields.unknown(name))
    text = config["text_config"].keys() - _read_of(family)
    return sorted(
        [name for name in config.keys() - _READ_WITH_IMAGES if hf_config_fields.unknown(name)]
        + [f"text_config.{name}" for name in text if hf_config_fields.unknown(name)]
    )


def reads_images(config: Mapping[str, Any]) -> bool:
    """Returns whether a ``config.json`` is of a model with an image part, whose text model is what we compute."""
    return config.get("architectures") in ([WITH_IMAGES.architecture], WITH_IMAGES.architecture)


def _check_values(reader: hf_config.ConfigReader, family: Family) -> None:
    """Records model_type, fixed values and unknown fields that the family cannot compute."""
    config = reader.config
    if config.get("model_type", family.model_type) != family.model_type:
        reader.refuse("model_type", f"expected {family.model_type!r}, got {shown(config['model_type'])}")
    for name, allowed in family.fixed.items():
        if name in config and config[name] not in allowed:
            values = " or ".join(map(repr, allowed))
            reader.refuse(name, f"only {values} is computed for {family.architecture}, got {shown(config[name])}")
    _refuse_unread(reader, _read_of(family))


def _windows(reader: hf_config.ConfigReader, family: Family, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """Returns `sliding_window` and `windowed_layers` of the decoder."""
    listed = hf_config.layer_types(reader, layers)
    sized = reader.config.get("sliding_window") is not None
    if family.windows == "pattern":
        every = reader.integer("sliding_window_pattern", 6)
        windowed = listed or tuple((layer + 1) % every != 0 for layer in range(layers))
    elif family.windows == "last" and reader.boolean("use_sliding_window", default=False) and sized:
        first = reader.integer("max_window_layers", least=0)
        windowed = listed or tuple(layer >= first for layer in range(layers))
    else:
        windowed = (family.windows == "all" and sized,) * layers
        if listed is not None and listed != windowed:
            kind = hf_config.write_layer_types(windowed)[0]
            reader.refuse("layer_types", f"only {kind!r} is computed for the layers of this model")
    return hf_config.windows(reader.integer("sliding_window") if any(windowed) else None, windowed)


def _labels(reader: hf_config.ConfigReader) -> int:
    """Returns the number of scores, which is the length of ``id2label``."""
    config = reader.config
    names = reader.mapping("id2label", config.get("id2label"))
    counted = len(names) if config.get("id2label") is not None else None
    given = reader.integer("num_labels", counted or _DEFAULT_LABELS)
    if counted is not None and given != counted:
        reader.refuse("id2label", f"expected one entry for each of the {given} labels, got {counted}")
    elif any(str(name) not in map(str, range(given)) for name in names):
        reader.refuse("id2label", f"expected the numbers 0 to {given - 1} with a name each, got {shown(names)}")
    return given


def from_config_json(config: Mapping[str, Any]) -> DecoderConfig:
    """Returns the decoder that a parsed ``config.json`` describes, with dtype float32.

    Both spellings of the rotary settings are read: ``rope_parameters`` and ``rope_theta`` with ``rope_scaling``.
    Of a Gemma 3 that also reads images (``Gemma3ForConditionalGeneration``) the text model is described.

    Raises:
      WeightsError: listing every field that is missing, of the wrong kind, unknown, or asks for something that is
        not computed here (another activation, other biases, other rope types, quantization).
    """
    family = _family_named(config)
    with_images = reads_images(config)
    text = _text_part(config) if with_images else config
    reader = hf_config.ConfigReader({**family.defaults, **text}, inside="text_config." if with_images else "")
    _check_values(reader, family)
    local_theta: float | None = None
    if family.local_rope_theta is None:
        theta, scaling = hf_config.rope(reader, default_theta=family.rope_theta)
    else:
        theta, scaling, local_theta = hf_config.layered_rope(
            reader, default_theta=family.rope_theta, default_local_theta=family.local_rope_theta
        )
    values: dict[str, Any] = {}
    for field in family.fields:
        default = () if field.default is None else (field.default(values),)
        values[field.ours] = field.read(reader, field.theirs, *default)
    window, windowed = _windows(reader, family, values["layers"])
    decoder = DecoderConfig(
        rope_theta=theta,
        rope_scaling=scaling,
        sliding_window=window,
        windowed_layers=windowed,
        local_rope_theta=None if window is None else local_theta,
        labels=_labels(reader) if family.scores else None,
        **values,
        **family.kind,  # type: ignore[arg-type]  # a table of fields of several types
    )
    if not reader.problems:  # a stand-in for a missing number would only add confusing complaints
        if decoder.heads % decoder.kv_heads:
            wanted = f"a multiple of num_key_value_heads ({decoder.kv_heads})"
            reader.refuse("num_attention_heads", f"expected {wanted}, got {decoder.heads}")
        if decoder.head_dim % 2:
            reader.refuse("head_dim", f"expected an even number, got {decoder.head_dim}")
    if reader.problems:
        raise _listed_problems(family.architecture, reader.problems)
    return decoder


def _rope_fields(config: DecoderConfig, family: Family) -> dict[str, Any]:
    """Returns the rotary settings in both spellings."""
    settings = hf_config.rope_settings(config.rope_scaling)
    fields = {
        "rope_theta": config.rope_theta,
        "rope_scaling": None if config.rope_scaling is None else settings,
        "rope_parameters": settings | {"rope_theta": config.rope_theta},
    }
    if family.local_rope_theta is None:
        return fields
    local = config.local_rope_theta or family.local_rope_theta  # read by windowed layers only
    return fields | {
        "rope_local_base_freq": local,
        "rope_parameters": {
            hf_config.FULL: fields["rope_parameters"],
            hf_config.SLIDING: {"rope_type": "default", "rope_theta": local},
        },
    }


def _window_fields(config: DecoderConfig, family: Family) -> dict[str, Any]:
    local = config.windowed
    fields: dict[str, Any] = {
        "sliding_window": config.sliding_window,
        "layer_types": hf_config.write_layer_types(local),
    }
    if family.windows == "none":
        return {}
    if family.windows == "all":
        return {"sliding_window": config.sliding_window}
    if family.windows == "last":
        first = local.index(True) if any(local) else config.layers
        return fields | {"use_sliding_window": any(local), "max_window_layers": first}
    for every in range(1, config.layers + 2):  # transformers before 4.53 knew regular patterns only
        if local == tuple((layer + 1) % every != 0 for layer in range(config.layers)):
            return fields | {"sliding_window_pattern": every}
    return fields


def _label_fields(config: DecoderConfig, base: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the names of the scores: those of `base` if it names as many."""
    names = base.get("id2label")
    if not isinstance(names, Mapping) or len(names) != config.labels:
        names = {str(label): f"LABEL_{label}" for label in range(config.labels or 0)}
    return {"id2label": dict(names), "label2id": {name: int(label) for label, name in names.items()}}


def to_config_json(config: DecoderConfig, *, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the contents of a ``config.json`` that `from_config_json` reads back as `config` (but for its dtype).

    Rotary settings and dtype are written in both spellings, so that transformers 4 and 5, and servers built on either,
    compute the same model. Gemma 3 is written as its text model, ``Gemma3ForCausalLM``. Of `base`, the ``config.json``
    the weights came from, fields without effect on the logits (token ids, longest context, ...) are kept, and its
    architecture if that computes the same.

    Raises:
      WeightsError: if no family computes this decoder.
    """
    base = base or {}
    if isinstance(base.get("text_config"), Mapping):
        base = {**base["text_config"], **base}
    found = _families_of(config)
    family = next((one for one in found if base.get("architectures") == [one.architecture]), found[0])
    kept = {
        name: value
        for name, value in base.items()
        if name in hf_config_fields.PASSED - hf_config_fields.NOT_WRITTEN - family.reads
    }
    return kept | {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        **{field.theirs: field.write(getattr(config, field.ours)) for field in family.fields},
        "dtype": config.dtype,
        "torch_dtype": config.dtype,
        **_rope_fields(config, family),
        **_window_fields(config, family),
        **(_label_fields(config, base) if family.scores else {}),
        **{name: allowed[0] for name, allowed in family.fixed.items()},
    }


def tensor_names(config: DecoderConfig) -> dict[Path, TensorName]:
    """Returns, for every array of a decoder's weights, its path and its tensor's name with the layer filled in."""
    kinds = {name.path: name for name in family_of(config).names}
    result = {}
    for path in by_path(abstract_params(config)):
        layer = path[1] if path[0] == "layers" else ""
        kind = kinds["/".join(("layers", "{layer}", *path[2:]) if layer else path)]
        result[path] = TensorName("/".join(path), kind.tensor.format(layer=layer), kind.transpose)
    return result


def check_layers(config: DecoderConfig, folder: object, tensors: Iterable[str]) -> None:
    """Compares how many layers a decoder has with what its files hold, before anything is built for each of them.

    `tensors` are the names of all tensors in the model's files; none leaves the question open.

    Raises:
      WeightsError: the highest layer of the files is not the decoder's last one.
    """
    tensors = sorted(tensors)
    names = [canonical_name(name) for name in tensors]
    held = max((int(match[1]) + 1 for match in map(_LAYER.match, names) if match), default=0)
    if names and not held:
        raise WeightsError(
            f"{folder}: expected tensors such as model.layers.0.self_attn.q_proj.weight, got {len(names)} of other "
            f"names, the first is {shown(tensors[0])}; save the model itself, unwrapped (an adapter merged), with "
            "transformers' save_pretrained"
        )
    if names and held != config.layers:
        raise WeightsError(
            f"{folder}: num_hidden_layers is {config.layers} in config.json, but the files hold the tensors of "
            f"{held} layers; keep the config.json that was saved with them"
        )


def canonical_name(tensor: str) -> str:
    """Returns the name that `tensor_names` uses for a tensor of a file.

    Models that also read images put a prefix before the names of their text model, which differs between versions.
    """
    for prefix, ours in WITH_IMAGES.prefixes.items():
        if tensor.startswith(prefix):
            return ours + tensor.removeprefix(prefix)
    return tensor


def is_ignorable(tensor: str, config: DecoderConfig) -> bool:
    """Returns whether a file's tensor that the decoder lacks changes nothing.

    That is the case for rotary frequencies, which are computed, for a copy of a tied embedding, and for the parts of
    a Gemma 3 that read images.
    """
    return (
        tensor.endswith(".rotary_emb.inv_freq")
        or (tensor == "lm_head.weight" and config.tied_embedding)
        or tensor.startswith(family_of(config).ignorable or ("\0",))
    )

"""config.json in and out, against released files and their published parameter counts."""

import dataclasses
import json
import math

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from released import (
    CONFIGS,
    FULL,
    GEMMA_3_1B,
    GEMMA_3_12B,
    LLAMA3,
    LLAMA_2_7B,
    LLAMA_32_1B,
    MISTRAL_7B_V03,
    QWEN_3_4B,
    QWEN_3_8B,
    QWEN_25_HALF_B,
    SKYWORK_REWARD_V2,
    SLIDING,
)

from dfc.errors import WeightsError
from dfc.models import families
from dfc.models.config import DecoderConfig, LinearRope, Llama3Rope
from dfc.models.transformer import abstract_params

# Of gemma-3-12b the published number, 12_187_325_040, counts its image reader, which transformers builds of
# 421_290_864 weights. Skywork-Reward-V2 is Llama 3.1 with one row of scores in place of the output projection.
PARAMETERS = {
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "llama-2-7b": 6_738_415_616,
    "skywork-reward-v2-llama-3.1-8b": 8_030_261_248 - 128256 * 4096 + 4096,
    "smollm2-135m-instruct": 134_515_008,
    "tinyllama-1.1b-chat": 1_100_048_384,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "mistral-7b-instruct-v0.3": 7_248_023_552,
    "gemma-3-1b-it": 999_885_952,
    "gemma-3-12b-it": 12_187_325_040 - 421_290_864,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_released_models_have_their_published_number_of_parameters(name):
    weights = abstract_params(families.from_config_json(CONFIGS[name]))
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(weights)) == PARAMETERS[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_released_config_is_read_back_as_it_is_written(name):
    config = CONFIGS[name]
    decoder = families.from_config_json(config)
    written = families.to_config_json(decoder, base=config)
    assert families.from_config_json(json.loads(json.dumps(written))) == decoder
    kept = config["architectures"] if config is not GEMMA_3_12B else ["Gemma3ForCausalLM"]
    assert written["architectures"] == kept
    assert written["eos_token_id"] == config["eos_token_id"]


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
    assert families.from_config_json(SKYWORK_REWARD_V2).labels == 1
    mistral = families.from_config_json(MISTRAL_7B_V03)
    assert (mistral.sliding_window, mistral.head_dim, mistral.kv_heads, mistral.qkv_bias) == (None, 128, 8, False)
    qwen3 = families.from_config_json(QWEN_3_8B)
    assert (qwen3.qk_norm, qwen3.qkv_bias, qwen3.norm_epsilon, qwen3.sliding_window) == (True, False, 1e-6, None)


def test_a_gemma_that_also_reads_images_is_read_as_its_text_model():
    assert families.from_config_json(GEMMA_3_12B) == DecoderConfig(
        vocabulary=262208,
        width=3840,
        layers=48,
        heads=16,
        kv_heads=8,
        head_dim=256,
        feed_forward=15360,
        rope_theta=1e6,
        norm_epsilon=1e-6,
        qkv_bias=False,
        tied_embedding=True,
        rope_scaling=LinearRope(8.0),
        activation="gelu_tanh",
        qk_norm=True,
        unit_offset_norm=True,
        sandwich_norms=True,
        scaled_embedding=True,
        attention_scale=256**-0.5,
        sliding_window=1024,
        windowed_layers=(True, True, True, True, True, False) * 8,  # five local layers, then a global one
        local_rope_theta=1e4,
    )


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


@pytest.mark.parametrize(
    ("base", "change", "window", "layers"),
    [
        (QWEN_25_HALF_B, {"use_sliding_window": True}, 32768, (False,) * 21 + (True,) * 3),
        (QWEN_25_HALF_B, {"use_sliding_window": True, "max_window_layers": 0}, 32768, ()),
        (QWEN_25_HALF_B, {"use_sliding_window": True, "max_window_layers": 24}, None, ()),
        (QWEN_3_8B, {"use_sliding_window": True}, None, ()),  # its window is null
        (
            QWEN_3_8B,
            {"use_sliding_window": True, "sliding_window": 8, "layer_types": [FULL, SLIDING] * 18},
            8,
            (False, True) * 18,
        ),
        (MISTRAL_7B_V03, {"sliding_window": 4096}, 4096, ()),  # v0.1
        (MISTRAL_7B_V03, {"sliding_window": 4096, "layer_types": [SLIDING] * 32}, 4096, ()),
        (GEMMA_3_1B, {}, 512, (*((True,) * 5 + (False,)) * 4, True, True)),
        (GEMMA_3_1B, {"sliding_window_pattern": 2}, 512, (True, False) * 13),
        (GEMMA_3_1B, {"sliding_window_pattern": 1}, None, ()),
        (GEMMA_3_1B, {"layer_types": [FULL] * 25 + [SLIDING]}, 512, (False,) * 25 + (True,)),
        (GEMMA_3_1B, {"layer_types": [SLIDING] * 26}, 512, ()),
    ],
)
def test_windows_are_on_the_layers_that_the_family_says(base, change, window, layers):
    decoder = families.from_config_json(base | change)
    assert (decoder.sliding_window, decoder.windowed_layers) == (window, layers)
    assert families.from_config_json(families.to_config_json(decoder, base=base)) == decoder


def test_an_absent_field_means_what_its_family_means_by_it():
    def without(config, *names):
        return families.from_config_json({name: value for name, value in config.items() if name not in names})

    assert without(MISTRAL_7B_V03, "sliding_window").sliding_window == 4096
    assert without(MISTRAL_7B_V03, "num_key_value_heads").kv_heads == 8
    assert without(QWEN_3_4B, "head_dim").head_dim == 128  # and not 2560 / 32
    gemma = without(GEMMA_3_1B, "head_dim", "rope_theta", "rope_local_base_freq", "sliding_window_pattern")
    assert gemma == families.from_config_json(GEMMA_3_1B)
    assert without(SKYWORK_REWARD_V2, "id2label").labels == 2


SCALINGS = (
    st.none()
    | st.builds(LinearRope, factor=st.floats(1, 64))
    | st.builds(
        Llama3Rope,
        factor=st.floats(1, 64),
        low_freq_factor=st.floats(0.5, 2),
        high_freq_factor=st.floats(3, 8),
        original_context=st.integers(1, 2**17),
    )
)


@st.composite
def decoders(draw):
    """Any decoder that some family computes, in the form in which it is read."""
    layers = draw(st.integers(2, 20))
    config = DecoderConfig(
        vocabulary=draw(st.integers(1, 2**18)),
        width=draw(st.integers(1, 2**13)),
        layers=layers,
        heads=draw(st.sampled_from([4, 8, 32])),
        kv_heads=draw(st.sampled_from([1, 2, 4])),
        head_dim=draw(st.sampled_from([2, 64, 128])),
        feed_forward=draw(st.integers(1, 2**15)),
        rope_theta=draw(st.floats(100, 1e7)),
        norm_epsilon=draw(st.floats(1e-8, 1e-3)),
        qkv_bias=False,
        tied_embedding=draw(st.booleans()),
        rope_scaling=draw(SCALINGS),
    )
    kind = draw(st.sampled_from(["llama", "mistral", "qwen2", "qwen3", "gemma3"]))
    window = draw(st.none() | st.integers(1, 10**5)) if kind != "llama" else None
    local = [True]
    if window is not None and kind != "mistral":
        local = draw(st.lists(st.booleans(), min_size=layers, max_size=layers).filter(any))
    windows = {"sliding_window": window, "windowed_layers": () if all(local) else tuple(local)}
    labels = draw(st.none() | st.integers(1, 5)) if kind in ("llama", "qwen2", "qwen3") else None
    special = {"qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}}.get(kind, {})
    if kind == "gemma3":
        special = {
            "activation": "gelu_tanh",
            "qk_norm": True,
            "unit_offset_norm": True,
            "sandwich_norms": True,
            "scaled_embedding": True,
            "attention_scale": draw(st.integers(1, 512)) ** -0.5,
            "logit_soft_cap": draw(st.none() | st.floats(1, 100)),
            "local_rope_theta": None if window is None else draw(st.floats(100, 1e7)),
        }
    return dataclasses.replace(config, labels=labels, **windows, **special)


@given(decoders())
def test_a_written_config_reads_back_the_same(decoder):
    text = json.dumps(families.to_config_json(decoder))
    assert families.from_config_json(json.loads(text)) == decoder


@pytest.mark.parametrize(
    "change",
    [
        {"qkv_bias": True, "qk_norm": True},
        {"activation": "gelu_tanh"},
        {"attention_soft_cap": 50.0},
        {"logit_soft_cap": 30.0},
        {"attention_scale": 0.5},
        {"sliding_window": 4, "local_rope_theta": 1e4},
        {"sliding_window": 4, "windowed_layers": (True, False) * 16},
        {"sliding_window": 4, "labels": 1},
    ],
)
def test_a_decoder_that_no_family_computes_cannot_be_written(change):
    decoder = dataclasses.replace(families.from_config_json(LLAMA_2_7B), **change)
    with pytest.raises(WeightsError, match=r"no architecture among LlamaForCausalLM, .* computes a decoder with"):
        families.to_config_json(decoder)


def test_a_gemma_whose_scale_or_base_its_files_cannot_say_cannot_be_written():
    decoder = families.from_config_json(GEMMA_3_1B)
    for scale in (None, 0.3, 10.0):
        with pytest.raises(WeightsError, match=f"attention_scale={scale}"):
            families.to_config_json(dataclasses.replace(decoder, attention_scale=scale))
    with pytest.raises(WeightsError, match="local_rope_theta=None"):  # its files always give windows a base
        families.to_config_json(dataclasses.replace(decoder, local_rope_theta=None))


def test_without_a_window_mistral_and_llama_are_one_and_its_file_keeps_its_name():
    decoder = families.from_config_json(MISTRAL_7B_V03)
    llama = families.to_config_json(decoder, base=LLAMA_2_7B)
    assert llama["architectures"] == ["LlamaForCausalLM"]
    assert "sliding_window" not in llama
    assert families.to_config_json(decoder, base=MISTRAL_7B_V03)["sliding_window"] is None
    windowed = families.to_config_json(dataclasses.replace(decoder, sliding_window=8), base=LLAMA_2_7B)
    assert (windowed["architectures"], windowed["sliding_window"]) == (["MistralForCausalLM"], 8)


def test_names_of_labels_are_kept_if_there_are_as_many():
    decoder = families.from_config_json(SKYWORK_REWARD_V2)
    named = SKYWORK_REWARD_V2 | {"id2label": {"0": "good"}, "label2id": {"good": 0}}
    written = families.to_config_json(decoder, base=named)
    assert (written["id2label"], written["label2id"]) == ({"0": "good"}, {"good": 0})
    two = families.to_config_json(dataclasses.replace(decoder, labels=2), base=named)
    assert two["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"}


@pytest.mark.parametrize("config", [LLAMA_32_1B, GEMMA_3_12B, GEMMA_3_1B | {"sliding_window_pattern": 2}])
def test_a_written_config_can_be_read_in_either_spelling_alone(config):
    decoder = families.from_config_json(config)
    written = families.to_config_json(decoder)
    new_names = ("rope_parameters", "layer_types", "dtype")
    old_names = ("rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern", "torch_dtype")
    old = {name: value for name, value in written.items() if name not in new_names}
    new = {name: value for name, value in written.items() if name not in old_names}
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


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_weight_has_a_tensor_name_of_its_own(config):
    decoder = families.from_config_json(config)
    names = families.tensor_names(decoder)
    assert len({name.tensor for name in names.values()}) == len(names) == len(jax.tree.leaves(abstract_params(decoder)))
    last = decoder.layers - 1
    assert names["layers", str(last), "mlp", "up", "kernel"].tensor == f"model.layers.{last}.mlp.up_proj.weight"
    assert (("head", "embedding") in names) == (not decoder.tied_embedding and decoder.labels is None)
    assert (("score", "kernel") in names) == (decoder.labels is not None)


def test_only_computed_tensors_are_ignorable():
    tied, untied = families.from_config_json(LLAMA_32_1B), families.from_config_json(LLAMA_2_7B)
    assert families.is_ignorable("model.layers.3.self_attn.rotary_emb.inv_freq", untied)
    assert families.is_ignorable("lm_head.weight", tied)
    assert not families.is_ignorable("lm_head.weight", untied)
    assert not families.is_ignorable("model.layers.0.self_attn.q_norm.weight", tied)
    gemma = families.from_config_json(GEMMA_3_12B)
    for tensor in ("vision_tower.encoder.x", "model.vision_tower.x", "multi_modal_projector.mm_soft_emb_norm.weight"):
        assert families.is_ignorable(tensor, gemma)
        assert not families.is_ignorable(tensor, tied)
    assert not families.is_ignorable("model.layers.0.self_attn.q_proj.bias", gemma)


def test_prefixes_of_a_text_model_within_another_are_dropped():
    for prefix in ("language_model.model.", "model.language_model.", "model."):
        assert families.canonical_name(f"{prefix}layers.0.mlp.up_proj.weight") == "model.layers.0.mlp.up_proj.weight"
    assert families.canonical_name("language_model.lm_head.weight") == "lm_head.weight"
    assert families.canonical_name("vision_tower.x") == "vision_tower.x"

"""config.json in and out, against released files and their published parameter counts."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfc.errors import WeightsError
from dfc.models import families
from dfc.models.config import DecoderConfig, LinearRope, Llama3Rope
from dfc.models.transformer import abstract_params

# Released configuration files, fields without effect left in.
CONFIGS = json.loads((Path(__file__).parent / "released_configs.json").read_text())
LLAMA_32_1B, LLAMA_2_7B = CONFIGS["llama-3.2-1b"], CONFIGS["llama-2-7b"]
SKYWORK_REWARD_V2 = CONFIGS["skywork-reward-v2-llama-3.1-8b"]
QWEN_25_HALF_B, QWEN_3_4B, QWEN_3_8B = CONFIGS["qwen2.5-0.5b"], CONFIGS["qwen3-4b"], CONFIGS["qwen3-8b"]
MISTRAL_7B_V03 = CONFIGS["mistral-7b-instruct-v0.3"]
GEMMA_3_1B, GEMMA_3_12B = CONFIGS["gemma-3-1b-it"], CONFIGS["gemma-3-12b-it"]
LLAMA3 = CONFIGS["llama-3.1-8b"]["rope_scaling"]
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


FULL, SLIDING = "full_attention", "sliding_attention"
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
    "score, other kind": (SKYWORK_REWARD_V2, {"id2label": ["a"]}, "id2label: expected an object, got ['a']"),
}


@pytest.mark.parametrize(("base", "change", "message"), REFUSED_ELSEWHERE.values(), ids=REFUSED_ELSEWHERE.keys())
def test_what_another_family_does_not_compute_is_refused_by_name(base, change, message):
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(base | change)
    assert message in str(caught.value)


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


def test_all_problems_come_in_one_error():
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(
            LLAMA_2_7B | {"hidden_act": "gelu", "mlp_bias": True, "vocab_size": 0, "is_causal": 1}
        )
    assert all(f"- {name}: " in str(caught.value) for name in ("hidden_act", "mlp_bias", "vocab_size", "is_causal"))


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

"""Fields of a config.json that no family reads: their tables against transformers, and hostile values against time."""

import json
import math
import shutil
import time
import tomllib
from pathlib import Path

import config_fields as search
import pytest
from released import CONFIGS
from released import GEMMA_3_12B as GEMMA_IMAGES
from tiny_models import quiet, torch_and_transformers

from dfc.errors import WeightsError
from dfc.models import families, hf_config, hf_config_fields, huggingface

ROOT = Path(__file__).resolve().parents[1]
LLAMA = CONFIGS["llama-3.1-8b"]
BOUND = 8000  # characters of a message


# ---- what is passed over ---------------------------------------------------------------------------------------------

CARRIED = {  # by released files of our families, and by what converters and trainers write
    "SmolLM2, from its GGUF file": {"_model_name_or_path": "Smollm2 135M 8k Lc100K Mix1 Ep2", "unk_token_id": 0},
    "SmolLM2": {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}},
    "Qwen2.5": {"use_mrope": False},
    "Falcon 3": {"activation": "swiglu"},
    "unsloth": {"unsloth_version": "2025.12.5", "unsloth_fixed": True, "_attn_implementation_autoset": True},
    "tokenizer code": {"auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", None]}},
    "transformers 4, every field": {
        "add_cross_attention": False,
        "bad_words_ids": None,
        "do_sample": False,
        "is_decoder": False,
        "max_length": 4096,
        "pruned_heads": {},
        "quantization_config": None,
        "temperature": 0.9,
        "tie_encoder_decoder": False,
        "torchscript": False,
        "top_k": 50,
        "use_bfloat16": False,
        "use_bidirectional_attention": False,
    },
}


@pytest.mark.parametrize("carried", CARRIED.values(), ids=CARRIED.keys())
def test_what_released_files_carry_changes_nothing_and_is_not_worth_a_word(carried):
    assert families.from_config_json(LLAMA | carried) == families.from_config_json(LLAMA)
    assert families.passed_over(LLAMA | carried) == []
    within = GEMMA_IMAGES | {"text_config": GEMMA_IMAGES["text_config"] | carried}
    assert families.from_config_json(within) == families.from_config_json(GEMMA_IMAGES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope_interleaved", True),
        ("rope_traditional", True),
        ("use_mrope", True),
        ("activation", "relu2"),
        ("is_causal", False),
        ("is_causal", None),
        ("is_causal", 1),
        ("attention_bias", True),
        ("partial_rotary_factor", 0.5),
        ("partial_rotary_factor", True),
        ("quantization_config", {}),
        ("per_layer_config", {"0": {"head_dim": 8}}),
        ("attribute_map", {"x": "hidden_size"}),
        ("__class__", "x"),
        ("auto_map", {"AutoModelForCausalLM": "modeling_x.X"}),
        ("auto_map", {"AutoConfig": "configuration_x.X", "AutoTokenizer": ["tokenization_x.X", None]}),
        ("auto_map", "modeling_x.X"),
    ],
)
@pytest.mark.parametrize("base", [CONFIGS["mistral-7b-instruct-v0.3"], GEMMA_IMAGES], ids=["mistral", "images"])
def test_a_field_that_changes_the_computation_is_refused_at_the_values_that_do(base, name, value):
    with pytest.raises(WeightsError, match=f"- {name}: "):
        families.from_config_json(base | {name: value})


def test_every_field_that_transformers_reads_is_read_here_or_in_a_table_or_refused_whatever_its_value():
    tables = hf_config_fields.PASSED | hf_config_fields.WITHOUT_EFFECT_AT.keys() | {"auto_map"}
    others = hf_config_fields.read_by_transformers() - tables
    assert {"hidden_size", "rope_theta", "unpadded_vocab_size", "attribute_map"} <= others
    for value in (None, False, 0, 1.5, "x", []):
        assert all(hf_config_fields.objection(name, value) for name in others)


def test_a_field_that_nobody_knows_is_passed_over_and_told_once(tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(huggingface.resolve("tiny_player"), folder)
    edit(folder, of_a_fork=0.5, other=False, **{f"x{n}": n for n in range(99)})
    for _ in range(2):
        huggingface.load(folder, dtype="float32")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "passed over" in line]
    assert "of_a_fork, other, x0, x1" in line
    assert line.endswith("and 91 more")
    assert hf_config_fields.transformers_version() in line
    within = GEMMA_IMAGES | {"outside": 1, "text_config": GEMMA_IMAGES["text_config"] | {"inside": 1}}
    assert families.passed_over(within) == ["outside", "text_config.inside"]


def edit(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_what_is_written_keeps_ids_and_limits_but_nothing_of_the_files_it_came_from():
    base = LLAMA | {"unk_token_id": 7, "auto_map": None, "is_causal": True, "of_a_fork": 1}
    base |= dict.fromkeys(hf_config_fields.NOT_WRITTEN, "x")
    decoder = families.from_config_json(base)
    written = families.to_config_json(decoder, base=base)
    assert written["unk_token_id"] == 7
    assert not written.keys() & (hf_config_fields.NOT_WRITTEN | {"auto_map", "is_causal", "of_a_fork"})
    assert families.from_config_json(written) == decoder


# ---- the tables and the list, against transformers -------------------------------------------------------------------


SMALL = {
    "vocab_size": 31,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
ARCHITECTURES = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma3Text")
SOME_VALUE = {
    **dict.fromkeys(("_attn_implementation", "attn_implementation"), "eager"),
    **dict.fromkeys(("dtype", "torch_dtype"), "float32"),
    "_sliding_window_pattern": 5,
    "cache_implementation": "static",
    "chunk_size_feed_forward": 3,
    "id2label": {"0": "a", "1": "b"},
    "label2id": {"a": 0, "b": 1},
    "max_position_embeddings": 77,
    "pretraining_tp": 2,
    "problem_type": "regression",
    "tokenizer_class": "LlamaTokenizer",
    "transformers_version": "4.31.0",
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "classifier_dropout", "initializer_range"), 0.5),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id"), 3),
}


@pytest.fixture(scope="module")
def logits():
    """A function from an architecture and fields of its config.json to transformers' logits, the weights the same."""
    oracle = torch_and_transformers()
    torch, transformers = oracle.torch, oracle.transformers
    weights = {}

    def compute(kind, fields):
        architecture = kind.removesuffix("Text") + "ForCausalLM"
        with quiet(), torch.no_grad():
            torch.manual_seed(0)
            config = getattr(transformers, f"{kind}Config").from_dict(SMALL | fields)
            model = getattr(transformers, architecture)(config).eval()
            if kind not in weights:
                for parameter in model.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
                weights[kind] = model.state_dict()
            model.load_state_dict(weights[kind])
            return model(torch.arange(12)[None], return_dict=True).logits

    for kind in ARCHITECTURES:
        compute(kind, {})
    return compute


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_is_said_to_have_no_effect_has_none_in_transformers(kind, logits):
    family = families.FAMILIES[kind.removesuffix("Text") + "ForCausalLM"]
    read = family.reads | family.fixed.keys()
    kept = {name: SOME_VALUE.get(name, True) for name in hf_config_fields.PASSED - read}
    at = {name: values for name, values in hf_config_fields.WITHOUT_EFFECT_AT.items() if name not in read}
    plain = logits(kind, {})
    for fields in (kept, {name: one[0] for name, one in at.items()}, {name: one[-1] for name, one in at.items()}):
        assert (logits(kind, fields) - plain).abs().max() < 1e-5  # another kernel adds up in another order
    assert plain.abs().max() > 0.1


def test_a_model_that_looks_ahead_is_another_model_in_transformers_and_refused_here(logits):
    """`is_causal` is a field of no configuration class."""
    with quiet():
        from transformers import LlamaConfig
    assert "is_causal" not in LlamaConfig.__dataclass_fields__
    plain, ahead = logits("Llama", {}), logits("Llama", {"is_causal": False})
    assert (plain - ahead).abs().max() > 0.1
    assert (plain - logits("Llama", {"is_causal": True})).abs().max() == 0
    with pytest.raises(WeightsError, match="is_causal: only True is computed"):
        families.from_config_json(LLAMA | {"is_causal": False})


def test_the_list_is_what_the_search_finds_in_this_transformers():
    committed = json.loads(search.LIST.read_text())
    with quiet():
        found = search.installed()
    if found["transformers"] != committed["transformers"]:
        pytest.skip(f"the list is of transformers {committed['transformers']}; make config-fields makes it anew")
    assert found == committed, "run `make config-fields`, and look through what changed"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(self):\n    return self.config.scale", {"scale"}),
        ("x = getattr(config, 'scale', None) or hasattr(module.config, 'other')", {"scale", "other"}),
        ("x = config.get_text_config(decoder=True).scale", {"get_text_config", "scale"}),
        (
            "x = config_dict.pop('scale', 1) if 'other' in config_dict else config_dict['third']",
            {"scale", "other", "third"},
        ),
        (
            "class A(PreTrainedConfig):\n    scale: int = 1\n    attribute_map = {'mine': 'theirs'}",
            {"scale", "attribute_map", "mine", "theirs"},
        ),
        (
            "class AConfig:\n    def f(self, theta, **kwargs):\n        return kwargs.get('scale') or self.other",
            {"f", "self", "theta", "scale", "other"},
        ),
        ("def f(config):\n    return [getattr(config, name) for name in ('scale', 'other')]", {"scale", "other"}),
        ("x = model.scale + getattr(model, 'other')", set()),
    ],
)
def test_the_search_sees_every_way_of_reading_a_field(source, found):
    assert search.read_in(source) == found


def test_a_file_that_transformers_moved_stops_the_search(tmp_path):
    with pytest.raises(ValueError, match=r"no activations.py any more"):
        search.read_by(tmp_path)


def test_the_list_is_part_of_the_wheel():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert search.LIST == ROOT / "models" / "hf_config_fields_read.json"
    assert search.LIST.name in data["dfc.models"]


# ---- hostile values --------------------------------------------------------------------------------------------------

WHOLE = {
    "llama-3.1-8b": (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
    ),
    "gemma-3-1b-it": ("query_pre_attn_scalar", "sliding_window", "sliding_window_pattern"),
    "qwen2.5-0.5b": ("max_window_layers", "sliding_window"),
    "skywork-reward-v2-llama-3.1-8b": ("num_labels",),
}
NUMBERS = {
    "llama-3.1-8b": ("rms_norm_eps", "rope_theta"),
    "gemma-3-1b-it": ("rms_norm_eps", "rope_theta", "rope_local_base_freq", "final_logit_softcapping"),
}
ALSO = {"qwen2.5-0.5b": {"use_sliding_window": True}}
ODD = (0, -1, 10**18, 10**400, 1.5, 1e18, True, "x", None, [], {}, math.nan, math.inf, -math.inf, "9" * 10**6)


def answer(config):
    """The decoder or None for a refusal of bounded length; neither takes long."""
    begun = time.thread_time()
    found, said = None, ""
    try:
        found = families.from_config_json(config)
    except WeightsError as error:
        said = str(error)
    assert len(said) < BOUND
    assert time.thread_time() - begun < 60  # mostly far below 1
    return found


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in WHOLE.items() for name in names])
def test_a_whole_number_that_cannot_be_is_refused_at_once_and_in_short(of, name):
    base = CONFIGS[of] | ALSO.get(of, {})
    assert answer(base) is not None
    for value in ODD:
        found = answer(base | {name: value})
        absent = value is None and answer({key: one for key, one in base.items() if key != name}) is not None
        first_layer = name == "max_window_layers" and value == 0 and value is not False
        assert found is None or absent or first_layer, value


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in NUMBERS.items() for name in names])
def test_a_number_that_cannot_be_is_refused_at_once_and_in_short(of, name):
    for value in (*ODD, 1e-300, 1e300):
        found = answer(CONFIGS[of] | {name: value})
        assert found is None or value is None or value in (1.5, 10**18), value


ROPE = LLAMA["rope_scaling"]


@pytest.mark.parametrize("name", [name for name in ROPE if name != "rope_type"])
def test_a_number_of_the_rotary_scaling_that_cannot_be_is_refused(name):
    for value in (*ODD, 8192.5 if name == "original_max_position_embeddings" else -2.0):
        found = answer(LLAMA | {"rope_scaling": ROPE | {name: value}})
        assert found is None or value in (1.5, 10**18), value


@pytest.mark.parametrize(
    "change",
    [
        {"architectures": ["x" * 99] * 10**5},
        {"model_type": "x" * 10**7},
        {"layer_types": ["sliding_attention"] * 10**6},
        {"hidden_act": ["x"] * 10**6},
        {"rope_scaling": {f"x{n}": n for n in range(10**5)}},
        {"auto_map": {f"x{n}": n for n in range(10**5)}},
        {"attention_bias": "x" * 10**7},
        {f"__{n}": "x" * 99 for n in range(10**5)},
        {"__" + "x" * 10**7: 1},
        {"__\x1b[2J\n": 1},
    ],
    ids=range(10),
)
def test_a_long_value_makes_no_long_message(change):
    with pytest.raises(WeightsError) as caught:
        families.from_config_json(LLAMA | change)
    text = str(caught.value)
    assert len(text) < BOUND
    assert all(character.isprintable() or character == "\n" for character in text)
    if len(change) > 99:
        assert text.endswith("and 99,980 more")


@pytest.mark.parametrize("layers", [1, 9_999, 10**4, 10**6, 10**18])
def test_more_or_fewer_layers_than_the_files_hold_are_refused_before_anything_is_built(tmp_path, layers, monkeypatch):
    folder = tmp_path / "model"
    shutil.copytree(huggingface.resolve("tiny_player"), folder)
    held = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    edit(folder, num_hidden_layers=layers, layer_types=None)
    for module in (huggingface, families):
        monkeypatch.setattr(module, "abstract_params", pytest.fail)
    with pytest.raises(WeightsError) as caught:
        huggingface.load(folder, dtype="float32")
    text = str(caught.value)
    assert len(text) < 1000
    if layers > hf_config.MOST_LAYERS:
        assert f"num_hidden_layers: expected a whole number of at most 10000, got {layers}" in text
    else:
        assert f"num_hidden_layers is {layers} in config.json, but the files hold the tensors of {held} layers" in text

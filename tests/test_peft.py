"""Adapters in and out of PEFT's layout, against PEFT on models of transformers (PyTorch on the CPU)."""

import json
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from tiny_models import quiet, save_checkpoint, torch_and_transformers

from dfc.errors import WeightsError
from dfc.models import huggingface, lora, peft
from dfc.models.lora import LoraConfig
from dfc.models.sharding import make_mesh
from dfc.models.transformer import Adapters, bind, stack_layers

SMALL = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TOKENS = np.random.default_rng(0).integers(0, 40, (2, 30)).astype(np.int32)
MODULES = {"query": "q_proj", "value": "v_proj", "down": "down_proj"}
# PEFT computes in float32 too; what differs is the order of sums.
SAME = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def oracle():
    with quiet():
        import peft as theirs

        return types.SimpleNamespace(**vars(torch_and_transformers()), peft=theirs)


@pytest.fixture(scope="module", params=["LlamaForCausalLM", "Qwen2ForCausalLM"])
def base(request, tmp_path_factory):
    """A model folder with random weights."""
    folder = tmp_path_factory.mktemp("base")
    save_checkpoint(folder, request.param, SMALL, 0.05)
    return folder


def made_by_peft(oracle, base, folder, **options):
    """Saves an adapter whose matrices are all random, and returns the logits with it."""
    with quiet():
        model = oracle.transformers.AutoModelForCausalLM.from_pretrained(base)
        settings = {"r": 4, "lora_alpha": 12, "lora_dropout": 0.1, "target_modules": list(MODULES.values())} | options
        adapted = oracle.peft.get_peft_model(model, oracle.peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
        oracle.torch.manual_seed(1)
        with oracle.torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name:
                    parameter.copy_(0.3 * oracle.torch.randn_like(parameter))
        adapted.save_pretrained(folder)
        return logits_of(oracle, adapted)


def logits_of(oracle, model):
    with oracle.torch.no_grad():
        return model(input_ids=oracle.torch.from_numpy(TOKENS).long()).logits.numpy()


def logits_by_peft(oracle, base, folder):
    with quiet():
        model = oracle.transformers.AutoModelForCausalLM.from_pretrained(base)
        return logits_of(oracle, oracle.peft.PeftModel.from_pretrained(model, folder).eval())


def logits(config, params, adapters=None):
    def forward(params, adapters):
        model = bind(config, params, adapters)
        positions = jnp.broadcast_to(jnp.arange(TOKENS.shape[1], dtype=jnp.int32), TOKENS.shape)
        return model.logits(model(jnp.asarray(TOKENS), positions, jnp.ones(TOKENS.shape, jnp.int32)))

    return np.asarray(jax.jit(forward)(params, adapters))


def test_an_adapter_of_peft_gives_the_logits_of_peft(oracle, base, tmp_path):
    rslora = (base / "config.json").read_text().count("qwen2") > 0
    expected = made_by_peft(oracle, base, tmp_path, use_rslora=rslora)
    config, params = huggingface.load(base, dtype="float32")
    loaded, adapters = peft.load_adapter(tmp_path, config)
    assert (loaded.rank, loaded.dropout, set(loaded.targets)) == (4, 0.1, set(MODULES))
    assert loaded.scale == (12 / 2 if rslora else 12 / 4)
    np.testing.assert_allclose(logits(config, params, Adapters(adapters, loaded.scale)), expected, **SAME)
    assert np.abs(logits(config, params) - expected).max() > 0.1  # the adapter matters
    merged = lora.merge(params, adapters, loaded.scale)
    np.testing.assert_allclose(logits(config, merged), expected, **SAME)


def test_peft_loads_our_adapter_and_computes_our_logits(oracle, base, tmp_path):
    config, params = huggingface.load(base, dtype="float32")
    mine = LoraConfig(rank=3, alpha=7.5, dropout=0.05, targets=("key", "output", "gate", "up"))
    initialized = lora.initialize_adapters(config, mine, 3)
    initialized = jax.tree.map(lambda x: x + 0.1, initialized)
    peft.save_adapter(tmp_path / "adapter", mine, initialized, config, str(base))
    peft.save_adapter(tmp_path / "stacked", mine, stack_layers(initialized), config, str(base))
    one, other = ((tmp_path / name / peft.WEIGHTS).read_bytes() for name in ("adapter", "stacked"))
    assert one == other
    expected = logits(config, params, Adapters(initialized, mine.scale))
    np.testing.assert_allclose(logits_by_peft(oracle, base, tmp_path / "adapter"), expected, **SAME)
    loaded, again = peft.load_adapter(tmp_path / "adapter", config)
    assert loaded == LoraConfig(rank=3, alpha=7.5, dropout=0.05, targets=loaded.targets)
    assert set(loaded.targets) == set(mine.targets)
    jax.tree.map(np.testing.assert_array_equal, again, initialized)


def test_an_adapter_is_split_over_a_mesh_like_its_kernels(sample, tmp_path):
    config, folder = sample
    mesh = make_mesh(2, 2, 2)
    loaded, adapters = peft.load_adapter(folder, config, mesh=mesh)
    assert jax.tree.map(lambda leaf: leaf.sharding, adapters) == lora.adapter_shardings(config, loaded, mesh)
    jax.tree.map(np.testing.assert_array_equal, adapters, peft.load_adapter(folder, config)[1])
    peft.save_adapter(tmp_path / "again", loaded, adapters, config, "base")
    found, wanted = (safetensors.numpy.load_file(place / peft.WEIGHTS) for place in (tmp_path / "again", folder))
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.fixture(scope="module")
def sample(oracle, tmp_path_factory):
    """A base model's configuration and an adapter's folder."""
    oracle.torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sample")
    oracle.transformers.LlamaForCausalLM(oracle.transformers.LlamaConfig(**SMALL)).save_pretrained(folder / "base")
    made_by_peft(oracle, folder / "base", folder / "adapter")
    return huggingface.load(folder / "base", dtype="float32")[0], folder / "adapter"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "use_dora: got True; DoRA's magnitudes are not computed"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save: got ['lm_head']; modules trained whole"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern: got {'q_proj': 8}; one rank"),
        ({"alpha_pattern": {"q_proj": 8}}, "alpha_pattern: got {'q_proj': 8}; one alpha"),
        ({"bias": "all"}, "bias: only 'none' is computed, got 'all'"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out: got True"),
        ({"lora_bias": True}, "lora_bias: got True"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: 'pissa' changes the base model's weights"),
        ({"peft_type": "IA3"}, "peft_type: expected 'LORA', got 'IA3'"),
        ({"from_the_future": 3}, "from_the_future: got 3; unknown"),
        ({"r": "four"}, "r: expected a positive whole number, got 'four'"),
        ({"r": 0}, "r: expected a positive whole number, got 0"),
        ({"lora_dropout": False}, "lora_dropout: expected a positive number, got False"),
        ({"lora_dropout": 1.0}, "lora.dropout: expected a number of at least 0 and below 1, got 1.0"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(sample, tmp_path, change, message):
    config, adapter = sample
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    settings = json.loads((folder / peft.CONFIG).read_text())
    (folder / peft.CONFIG).write_text(json.dumps(settings | change))
    with pytest.raises(WeightsError) as caught:
        peft.load_adapter(folder, config)
    assert message in str(caught.value)


def test_every_field_that_is_not_computed_is_listed(sample, tmp_path):
    config, adapter = sample
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    settings = json.loads((folder / peft.CONFIG).read_text())
    (folder / peft.CONFIG).write_text(json.dumps(settings | {"use_dora": True, "bias": "all", "lora_bias": True}))
    with pytest.raises(WeightsError) as caught:
        peft.load_adapter(folder, config)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[1:]] == [
        "  - bias",
        "  - lora_bias",
        "  - use_dora",
    ]


def test_every_wrong_tensor_of_an_adapter_is_listed(sample, tmp_path):
    config, adapter = sample
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    tensors = safetensors.numpy.load_file(folder / peft.WEIGHTS)
    stem = "base_model.model.model.layers."
    del tensors[stem + "1.self_attn.q_proj.lora_B.weight"]
    tensors[stem + "0.self_attn.v_proj.lora_A.weight"] = np.ones((5, 24), np.float32)
    tensors["base_model.model.lm_head.lora_A.weight"] = np.ones((4, 24), np.float32)
    safetensors.numpy.save_file(tensors, folder / peft.WEIGHTS)
    with pytest.raises(WeightsError) as caught:
        peft.load_adapter(folder, config)
    assert str(caught.value).splitlines()[1:] == [
        f"  - {stem}0.self_attn.v_proj.lora_A.weight: expected shape [4, 24], got [5, 24]",
        f"  - {stem}1.self_attn.q_proj.lora_B.weight: missing; every layer has to be adapted alike",
        "  - base_model.model.lm_head.lora_A.weight: extra; only the projections of this decoder's layers are adapted",
    ]


def test_a_folder_without_a_readable_adapter_says_what_is_missing(sample, tmp_path):
    config, adapter = sample
    with pytest.raises(WeightsError, match=r"expected an adapter's adapter_config\.json"):
        peft.load_adapter(tmp_path, config)
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    (folder / peft.WEIGHTS).write_bytes((folder / peft.WEIGHTS).read_bytes()[:-1])
    with pytest.raises(WeightsError, match="not a whole safetensors file"):
        peft.load_adapter(folder, config)
    (folder / peft.WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(WeightsError, match=r"adapter_model\.bin is there, and pickled files are never loaded"):
        peft.load_adapter(folder, config)


def test_adapters_that_do_not_fit_their_configuration_are_not_saved(sample, tmp_path):
    config, _ = sample
    mine = LoraConfig(rank=2, targets=("query",))
    adapters = lora.initialize_adapters(config, LoraConfig(rank=3, targets=("query", "key")), 0)
    with pytest.raises(WeightsError) as caught:
        peft.save_adapter(tmp_path / "adapter", mine, adapters, config, "base")
    assert "layers/0/attention/key/a: not a weight of this decoder" in str(caught.value)
    assert "layers/1/attention/query/b: expected float32 [2, 24], got float32 [3, 24]" in str(caught.value)
    assert not (tmp_path / "adapter").exists()


def test_an_adapter_replaces_an_adapter_and_nothing_else(sample, tmp_path):
    config, adapter = sample
    mine = LoraConfig(rank=2, targets=("query",))
    adapters = lora.initialize_adapters(config, mine, 0)
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    peft.save_adapter(folder, mine, adapters, config, "base")
    assert {file.name for file in folder.iterdir()} == {peft.CONFIG, peft.WEIGHTS}
    assert peft.load_adapter(folder, config)[0] == mine
    (folder / "notes.md").write_text("mine")
    with pytest.raises(WeightsError, match=r"holds notes\.md, which is no part of a saved adapter"):
        peft.save_adapter(folder, mine, adapters, config, "base")

"""What ``--help`` shows: the recipes, a configuration's keys with types, ranges, values and meanings."""

import typing
from collections.abc import Mapping
from pathlib import Path

import pytest

from dfc.config import RECIPES, CollectRound, Games, fields
from dfc.errors import ConfigError
from dfc.launch import command_line, help_text
from dfc.launch.__main__ import main
from dfc.launch.key_names import all_keys

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
KEY = "sk-proj-SECRET1234567"
VARIABLE = "--config.endpoints.opponent.key_variable"


def shown(*words):
    text = command_line.parse(words)
    assert isinstance(text, str)
    return text


def keys_in(text):
    return [line.split()[0].removeprefix("--config.") for line in text.splitlines() if line.startswith("  --config.")]


def keys_of(config):
    """Returns the keys of a configuration, those of named entries for any name and once for each."""
    found = []
    for key in all_keys(config):
        section, dot, rest = key.partition(".NAME.")
        found += [f"{section}.{name}.{rest}" for name in ("NAME", *getattr(config, section))] if dot else [key]
    return found


@pytest.mark.parametrize("word", ["--help", "-help", "--h", "-h", "-?", "--help="])
def test_help_alone_lists_flags_files_and_recipes_and_no_key(word):
    text = shown(word)
    assert keys_in(text) == []
    for kind in RECIPES.values():
        summary = kind.__doc__.partition("\n")[0]
        assert f"  {kind.recipe:20s} {summary}" in text.splitlines()
    for flag in ("config", "workdir", "distributed", "help"):
        assert f"\n  --{flag} " in text
    for path in CONFIGS.glob("*.py"):
        assert f"configs/{path.name}" in text


def test_help_ends_the_command_with_0_and_starts_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (["--help"], ["--config=configs/smoke.py", "--help"], ["--help=seed", "--stray", "--config=nothing="]):
        assert main(words) == (2 if "--stray" in words else 0)
    assert "usage: " in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_a_configuration_is_shown_with_every_key_once_and_the_values_of_its_file(path):
    config = command_line.load(str(path))
    text = shown(f"--config={path}", "--help")
    assert sorted(keys_in(text)) == sorted(keys_of(config))
    assert f"\n{config.recipe} ({type(config).__name__}): " in text
    assert f"  --config.name (text; {path.stem!r})\n" in text


def test_a_key_has_its_type_its_range_its_value_and_its_meaning():
    text = shown("--config=configs/smoke.py", "--help", "--config.groups_per_game=7")
    assert (
        "  --config.groups_per_game (a whole number, at least 1 and at most 1,000,000,000; 7)\n"
        "      groups of episodes per game and iteration on average, of a rollout seed each (the paper's S: 50).\n"
    ) in text
    assert "  --config.optimizer.learning_rate (a number, above 0; 0.001)\n" in text
    assert "  --config.half_negative (true or false; True)\n" in text
    assert "  --config.model.dtype (one of 'float32', 'bfloat16'; 'float32')\n" in text
    assert "  --config.rollout.stop (a tuple such as ('a', 'b'); (']',))\n" in text
    assert "  --config.rollout.prefill_buckets (a tuple such as (1, 2), at least 1 each; ())\n" in text
    assert "\nfusion: How policies become one (section 3.2.2); see" in text
    text = shown("--config=configs/paprika_tiny.py", "--help=samples_of")
    assert "  --config.collect.samples_of (a mapping such as {'mastermind': 100}, at least 1 and" in text
    (stages,) = (
        line for line in shown("--config=configs/paprika_tiny.py", "--help").splitlines() if "g.stages " in line
    )
    assert "(a tuple such as ('collect', 'build_data'), each one of 'collect', 'build_data', 'sft', 'rpo', " in stages


def test_a_text_leaves_the_keys_that_mention_it_in_name_or_meaning():
    found = keys_in(shown("--config=configs/smoke.py", "--help=WARM"))
    assert found == ["optimizer.learning_rate", "optimizer.warmup_steps"]
    assert keys_in(shown("--config=configs/smoke.py", "--help=samples_of")) == []
    text = shown("--help=samples_of")
    assert keys_in(text) == ["collect.samples_of", "samples_of"]
    assert [line.split()[0] for line in text.splitlines() if "): " in line] == ["paprika", "collect"]
    assert keys_in(shown("--help=there is no such text")) == []


@pytest.mark.parametrize("kind", [*RECIPES.values(), CollectRound])
def test_every_key_of_every_recipe_has_a_meaning(kind):
    def check(section):
        meanings = help_text.meanings_of(section)
        assert {name for name in fields.fields_of(section) if not meanings.get(name)} == set()
        for hint in fields.fields_of(section).values():
            inner = fields.section_of(hint) or hint
            if hasattr(inner, "__dataclass_fields__"):
                check(inner)

    check(kind)


NO_RANGE = {"mesh.data", "mesh.fsdp", "mesh.tensor"}  # 1 or more, or -1: no interval; `validation` says so


def numbers_without_range(hint):
    """Whether a type holds numbers, also within tuples and mappings, without a range beside them."""
    if fields.range_of(hint) is not None or hint == Games:  # a game knows its options
        return False
    if typing.get_origin(hint) in (tuple, Mapping):
        return any(map(numbers_without_range, typing.get_args(hint)))
    return hint in (int, float)


@pytest.mark.parametrize("kind", [*RECIPES.values(), CollectRound])
def test_every_number_of_a_recipe_has_a_range(kind):
    def hints(section, path=""):
        for name, hint in fields.annotated_fields(section).items():
            inner = fields.section_of(hint) or hint
            if hasattr(inner, "__dataclass_fields__"):
                yield from hints(inner, f"{path}{name}.")
            else:
                yield f"{path}{name}", hint

    assert {key for key, hint in hints(kind) if numbers_without_range(hint)} <= NO_RANGE


# ---- what a file or a word holds that is not to be shown -----------------------------------------------------------


def write(folder, body):
    (folder / "c.py").write_text(
        "from dfc.config import *\nclass Rude:\n    def __repr__(self): raise ValueError\n"
        f"def get_config():\n    return {body}\n"
    )
    return f"--config={folder / 'c.py'}"


@pytest.mark.parametrize(
    "body",
    [
        "DivideFuseConquer(name=Rude())",
        "DivideFuseConquer(name='n' * 100_000)",
        "DivideFuseConquer(seed=10**5000)",
        "DivideFuseConquer(rollout=3)",
        "DivideFuseConquer(rollout=Rude())",
        "DivideFuseConquer(games={1: Rude()})",
        f"DivideFuseConquer(endpoints={{'opponent': EndpointConfig(key_variable='{KEY}')}})",
        f"DivideFuseConquer(opponent='http://u:{KEY}@h/v1#m')",
    ],
)
def test_whatever_a_file_holds_can_be_shown(tmp_path, body):
    text = shown(write(tmp_path, body), "--help")
    assert "--config.name (" in text
    assert "SECRET" not in text
    assert len(text) < 40_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config=configs/smoke.py", "--config.sead=1", f"--config.seed={KEY}"], "there is no 'sead'"),
        (
            ["--config=configs/smoke.py", f"{VARIABLE}={KEY}", "--config.seed=x"],
            "seed=x: must be a whole",
        ),
        ([f"--config={KEY}"], "no such file"),
    ],
)
def test_a_word_that_cannot_be_applied_is_refused_without_its_key(words, said):
    with pytest.raises(ConfigError, match=said) as caught:
        command_line.parse(["--help", *words])
    assert "SECRET" not in str(caught.value)

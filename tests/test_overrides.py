"""Words such as ``--config.rollout.slots=12``: what they set, and what is said where they cannot."""

from pathlib import Path

import pytest

from dfc import validation
from dfc.config import (
    RECIPES,
    Collect,
    DivideFuseConquer,
    EndpointConfig,
    EvaluateTasks,
    Grpo,
    Paprika,
    SamplingConfig,
    TaskCurriculum,
    TinyPlayer,
    fields,
)
from dfc.launch import command_line
from dfc.launch.key_names import all_keys, is_switch
from dfc.launch.overrides import override, replaced, unknown_keys

SMOKE = command_line.load(str(Path(__file__).resolve().parents[1] / "configs/smoke.py"))


def value_at(config, key):
    for name in key.split("."):
        config = None if config is None else getattr(config, name)  # None: a section that may be left out
    return config


def after(config, *words):
    changed, found = override(config, words)
    assert found == []
    return changed


def refused(config, *words):
    """The one problem of words of which none changes anything."""
    changed, (problem,) = override(config, words)
    assert changed == config
    return problem


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("--config.optimizer.learning_rate=1e-3", "optimizer.learning_rate", 1e-3),
        ("--config.optimizer.learning_rate=1", "optimizer.learning_rate", 1.0),
        ("--config.rollout.slots=12", "rollout.slots", 12),
        ("--config.seed=4294967295", "seed", 2**32 - 1),
        ("--config.rollout.stop=]", "rollout.stop", ("]",)),
        ("--config.rollout.stop=('a', ']')", "rollout.stop", ("a", "]")),
        ("--config.rollout.stop=()", "rollout.stop", ()),
        ("--config.rollout.prefill_buckets=8,64", "rollout.prefill_buckets", (8, 64)),
        ("--config.half_negative=false", "half_negative", False),
        ("--noconfig.half_negative", "half_negative", False),
        ("--config.opponent=itself", "opponent", "itself"),
        ("--config.name=3", "name", "3"),
        ("--config.model.dtype=BFLOAT16", "model.dtype", "bfloat16"),
        ("--config.grouping.groups=(('Nim-v0',),)", "grouping.groups", (("Nim-v0",),)),
        ("--config.grouping.groups=[['a', 'b'], ['c']]", "grouping.groups", (("a", "b"), ("c",))),
        ("--config.games.TicTacToe-v0.illegal_allowance=3", "games", {"TicTacToe-v0": {"illegal_allowance": 3}}),
        ("--config.games={'TowerOfHanoi-v0': {'max_turns': 14}}", "games", {"TowerOfHanoi-v0": {"max_turns": 14}}),
        ("--config.games.Nim-v0={'piles': (1, 2)}", "games", {"Nim-v0": {"piles": (1, 2)}}),
    ],
)
def test_an_override_sets_one_value_of_its_type_and_nothing_else(word, key, value):
    changed = after(SMOKE, word)
    found = value_at(changed, key)
    if key == "games" and "games=" not in word:
        found = {name: options for name, options in found.items() if name in value}
        assert set(SMOKE.games) <= set(changed.games)
    assert found == value
    assert type(found) is type(value) or key == "games"
    assert changed.endpoints == SMOKE.endpoints
    for other in all_keys(SMOKE):
        if other != key and ".NAME." not in other:
            assert value_at(changed, other) == value_at(SMOKE, other)


def test_the_last_word_of_a_key_holds():
    assert after(SMOKE, "--config.rollout.slots=3", "--config.seed=9", "--config.rollout.slots=5").rollout.slots == 5


def test_options_of_two_ids_given_in_the_file_and_not_can_be_set_together():
    config = DivideFuseConquer(games={"TowerOfHanoi-v0": {"max_turns": 9}, "Nim-v0": {}})
    words = "TowerOfHanoi-v0.max_turns=14", "TowerOfHanoi-v0.num_disks=2", "Nim-v0.piles=(2,2)"
    assert after(config, *(f"--config.games.{word}" for word in words)).games == {
        "TowerOfHanoi-v0": {"max_turns": 14, "num_disks": 2},
        "Nim-v0": {"piles": (2, 2)},
    }


@pytest.mark.parametrize(
    ("config", "words", "key", "value"),
    [
        (Collect(), ["samples_of.mastermind=3"], "samples_of", {"mastermind": 3}),
        (EvaluateTasks(), ["tasks_of.wordle=3"], "tasks_of", {"bandit": 40, "wordle": 3}),
        (EvaluateTasks(), ["tasks_of.Nim-v0=3", "tasks_of.wordle=4", "tasks_of.Nim-v0=5"], "tasks_of",
         {"bandit": 40, "Nim-v0": 5, "wordle": 4}),
        (Collect(), ["samples_of={'wordle': 4}"], "samples_of", {"wordle": 4}),
        (Collect(), ["samples_of={}", "samples_of.wordle=4"], "samples_of", {"wordle": 4}),
        (Paprika(), ["collect.samples_of.mastermind=3"], "collect.samples_of", {"mastermind": 3}),
        (EvaluateTasks(), ["tasks_of={}"], "tasks_of", {}),
        (TinyPlayer(), ["transcripts_of.Nim-v0=3"], "transcripts_of", {"Nim-v0": 3}),
        (TaskCurriculum(), ["join_groups.codes=a,b"], "join_groups", {"codes": ("a", "b")}),
        (TaskCurriculum(), ["join_groups={'codes': ['a', 'b']}"], "join_groups", {"codes": ("a", "b")}),
    ],
)  # fmt: skip
def test_a_mapping_is_set_entry_by_entry_or_whole(config, words, key, value):
    before = repr(config)
    assert value_at(after(config, *(f"--config.{word}" for word in words)), key) == value
    assert repr(config) == before  # no default of a class is written into


def test_a_section_that_may_be_left_out_is_set_value_by_value_or_left_out():
    key = "opponent_reply.sampling"
    assert value_at(Grpo(), key) is None
    assert value_at(after(Grpo(), f"--config.{key}.temperature=1"), key) == SamplingConfig(temperature=1.0)
    twice = after(Grpo(), f"--config.{key}.temperature=0.5", f"--config.{key}.top_k=3")
    assert value_at(twice, key) == SamplingConfig(temperature=0.5, top_k=3)
    assert value_at(after(twice, f"--config.{key}=None"), key) is None
    assert value_at(after(twice, "--config.seed=3"), key) == value_at(twice, key)
    made = replaced(Grpo(), f"{key}.temperature", 1)
    assert value_at(made, key) == SamplingConfig(temperature=1.0)
    assert type(value_at(made, f"{key}.temperature")) is float
    assert value_at(replaced(made, key, None), key) is None
    assert fields.range_problems(replaced(Grpo(), f"{key}.top_p", 2.0)) == [
        f"{key}.top_p=2.0: must be above 0 and at most 1"
    ]
    for word in (f"--config.{key}=0.5", f"--config.{key}", f"--noconfig.{key}", f"--noconfig.{key}=None"):
        (problem,) = override(Grpo(), [word])[1]
        assert "a section; set its values one by one: top_k, top_p, min_p, temperature, or all of it to None" in problem
    (problem,) = override(Grpo(), ["--config.sampling=None"])[1]
    assert problem.endswith("a section; set its values one by one: top_k, top_p, min_p, temperature")


@pytest.mark.parametrize(
    ("config", "word", "said"),
    [
        (Collect(), "samples_of.wordle=many", "samples_of.wordle=many: must be a whole number, at least 1 and at most"),
        (Collect(), "samples_of=mastermind=3", "=mastermind=3: must be a mapping such as {'mastermind': 100}"),
        (Collect(), "samples_of={", "samples_of={: must be a mapping such as {'mastermind': 100}"),
        (Collect(), "samples_of", "samples_of: a value is missing; write --config.samples_of=VALUE"),
        (Collect(), "samples_of.wordle", "write --config.samples_of.wordle=VALUE"),
        (TaskCurriculum(), "join_groups.codes=(a", "join_groups.codes=(a: must be a tuple such as ('a', 'b')"),
        (SMOKE, "grouping.groups=((", "grouping.groups=((: must be a tuple such as"),
        (SMOKE, "half_negative=perhaps", "half_negative=perhaps: must be true or false"),
        (SMOKE, "model.dtype=float64", "model.dtype=float64: must be one of 'float32', 'bfloat16'"),
        (SMOKE, "rollout.slots.more=1", "rollout.slots is a whole number, at least 1 and at most 100,000, not a sec"),
        (SMOKE, "optimizer=3", "optimizer: a section; set its values one by one: learning_rate,"),
        (SMOKE, "sample_of.wordle=1", "there is no 'sample_of' in the configuration of divide_fuse_conquer"),
        (SMOKE, "rollout.slot=3", "there is no 'slot' in rollout; did you mean --config.rollout.slots?"),
        (SMOKE, "learning_rate=1", "; write --config.optimizer.learning_rate=1"),
        (
            Paprika(),
            "sft.learning_rate=1",
            "there is no 'learning_rate' in sft; write --config.sft.optimizer.learning_rate=1",
        ),
    ],
)
def test_what_cannot_be_set_is_one_sentence(config, word, said):
    problem = refused(config, f"--config.{word}")
    assert problem.startswith(f"--config.{word.partition('=')[0]}")
    assert said in problem


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("samples_of={'wordle': 'x'}", "samples_of={'wordle': 'x'} (dict): must be a mapping such as"),
        ("samples_of={1: 2}", "samples_of={1: 2} (dict): must be a mapping such as"),
        ("samples_of=(1, 2)", "samples_of=(1, 2) (tuple): must be a mapping such as"),
        ("samples_of.wordle=0", "must be at least 1 and at most 1,000,000,000 each"),
        ("samples_of.wordl=3", "samples_of: there is no game 'wordl'"),
    ],
)
def test_what_a_mapping_may_not_hold_is_said_by_the_checks(word, said):
    config = after(Collect(games={"wordle": {}}), f"--config.{word}")
    (problem,) = validation.problems(config)
    assert said in problem


@pytest.mark.parametrize("games", [3, None, ["Nim-v0"], "Nim-v0"])
@pytest.mark.parametrize("word", ["games.Nim-v0={}", "games.Nim-v0.piles=(1,)"])
def test_games_of_a_file_that_are_no_mapping_take_no_word(games, word):
    assert refused(DivideFuseConquer(games=games), f"--config.{word}").endswith(
        ": the games of the file are no mapping"
    )
    assert refused(DivideFuseConquer(games=games, rollout=3), f"--config.{word}")


def test_where_nothing_can_be_set_the_words_are_checked_all_the_same():
    config = DivideFuseConquer(rollout=3, games={"Nim-v0": {}})
    words = ["--config.sead=1", "--config.seed=2", "--config.games.Nim-v0.piles=(1,)", "--config.seed=x"]
    assert [problem.split(":")[0] for problem in override(config, words)[1]] == ["--config.sead", "--config.seed=x"]
    assert override(config, words)[0] is config


def test_a_key_of_no_recipe_is_known_without_a_configuration():
    assert (
        unknown_keys(["--config.stages=x", "--config.beta.x=1", "--config.games.x=1", "--noconfig.half_negative"]) == []
    )
    (problem,) = unknown_keys(["--config.half_negativ=1"])
    assert problem.endswith("there is no 'half_negativ' in any configuration; did you mean --config.half_negative?")


@pytest.mark.parametrize(
    ("key", "switch"),
    [("half_negative", True), ("rpo.normalize_length", True), ("rollout.slots", False), ("samples_of.wordle", False)],
)
def test_a_switch_takes_no_word_after_it(key, switch):
    assert is_switch(key) == switch


# A setting that a recipe would not read cannot be named there: the recipe, the key, and what is named instead.
ABSENT = [
    ("divide_fuse_conquer", "rollout.sampling.top_k"),
    ("divide_fuse_conquer", "optimizer.schedule"),
    ("divide_fuse_conquer", "adapter.dropout"),
    ("divide_fuse_conquer", "policies"),
    ("collect", "temperature"),
    ("collect", "rollout.sampling.temperature"),
    ("collect", "adapter.base"),
    ("collect", "optimizer.learning_rate"),
    ("build_data", "games"),
    ("build_data", "model.path"),
    ("build_dialogues", "turn_ratio"),
    ("build_dialogues", "trajectories"),
    ("minigames", "held_out_share"),
    ("sft", "beta"),
    ("preference", "objective"),
    ("paprika", "epochs"),
    ("paprika", "objective"),
    ("paprika", "policies"),
    ("paprika", "rollout.sampling.top_k"),
    ("paprika", "build_data.trajectories"),
    ("paprika", "optimizer.learning_rate"),
    ("task_curriculum", "epochs"),
    ("task_curriculum", "data"),
    ("task_curriculum", "policies"),
    ("task_curriculum", "build_data.trajectories"),
    ("task_curriculum", "build_data.game_groups"),
    ("task_curriculum", "collect.samples"),
    ("task_curriculum", "collect.samples_of"),
    ("task_curriculum", "collect.opponent"),
    ("evaluate_tasks", "rollout.sampling.min_p"),
    ("evaluate_tasks", "filters.temperature"),
    ("evaluate", "model.path"),
    ("evaluate", "batch.row_length"),
    ("tiny_player", "model.path"),
    ("tiny_player", "mesh.data"),
    ("tiny_player", "batch.workers"),
    ("tiny_player", "training.remat"),
]


@pytest.mark.parametrize(("recipe", "key"), ABSENT)
def test_what_a_recipe_does_not_read_cannot_be_named(recipe, key):
    config = section = RECIPES[recipe]()
    where, parts = f"the configuration of {recipe}", key.split(".")
    while hasattr(section, parts[0]):
        section, where = getattr(section, parts[0]), parts.pop(0)
    assert f"--config.{key}: there is no '{parts[0]}' in {where}" in refused(config, f"--config.{key}=1")
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{parts[0]}'"):
        type(section)(**{parts[0]: 1})


@pytest.mark.parametrize(
    ("given", "words", "entries"),
    [
        ({}, ["opponent.key_variable=MY_KEY"], {"opponent": EndpointConfig(key_variable="MY_KEY")}),
        ({}, ["opponent.timeout=3"], {"opponent": EndpointConfig(timeout=3.0)}),
        ({}, ["gpt-4.1.retries=0", "gpt-4.1.top_p=1"], {"gpt-4.1": EndpointConfig(retries=0, top_p=1.0)}),
        ({}, ["a.temperature=None", "b.seed=4"], {"a": EndpointConfig(temperature=None), "b": EndpointConfig(seed=4)}),
        ({"a": EndpointConfig(retries=2)}, ["a.cache=x"], {"a": EndpointConfig(retries=2, cache="x")}),
        ({"a": EndpointConfig(timeout=3)}, [], {"a": EndpointConfig(timeout=3.0)}),
        ({}, ["a.extra_body.top_k=20", "a.extra_body.kind=fast"],
         {"a": EndpointConfig(extra_body={"top_k": 20, "kind": "fast"})}),
        ({}, ["a.extra_body={'x': [1]}"], {"a": EndpointConfig(extra_body={"x": (1,)})}),
        ({}, ["a.allow_plain_http"], {"a": EndpointConfig(allow_plain_http=True)}),
    ],
)  # fmt: skip
def test_an_entry_of_a_mapping_of_sections_begins_with_the_defaults(given, words, entries):
    config = Collect(endpoints=given)
    found = after(config, *(f"--config.endpoints.{word}" for word in words)).endpoints
    assert found == entries
    assert {type(entry.timeout) for entry in found.values()} == {float}
    assert config.endpoints == given


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("endpoints=3", "set their values one by one: --config.endpoints.NAME.key_variable=VALUE"),
        ("endpoints.a=3", "set their values one by one: --config.endpoints.a.key_variable=VALUE"),
        ("endpoints.a.time_out=3", "there is no 'time_out' in endpoints.a; did you mean --config.endpoints.a.timeout?"),
        ("endpoints.a.timeout=soon", "endpoints.a.timeout=soon: must be a number, above 0 and at most 1e+06"),
        ("endpoints.a.seed.x=1", "endpoints.a.seed is a whole number, at least 0 and at most"),
        ("key_variable=MY_KEY", "; write --config.endpoints.NAME.key_variable=MY_KEY"),
    ],
)
def test_what_cannot_be_set_in_an_entry_is_one_sentence(word, said):
    assert said in refused(Collect(), f"--config.{word}")


def test_an_entry_that_is_true_or_false_takes_no_word_after_it():
    assert is_switch("endpoints.gpt-4.1.allow_plain_http")
    assert not is_switch("endpoints.gpt-4.1.timeout")

"""Run folders of before settings were renamed or moved: what is stored is read by the names of today."""

import dataclasses
import functools
import json
import re

import pytest
from test_run_folder import CONFIG, opened

from dfc import validation
from dfc.config import (
    RECIPES,
    Collect,
    DialogueChoiceConfig,
    DivideFuseConquer,
    EvaluateTasks,
    EvaluateTasksConfig,
    Grpo,
    LanguageSelfPlay,
    OpponentReplyConfig,
    Paprika,
    Playpen,
    RewardConfig,
    RlRunConfig,
    SamplingConfig,
    SelfRewardConfig,
    Sft,
    TeacherGrpoConfig,
    fields,
    renamed,
)
from dfc.errors import RunFolderError


def of_before(folder, **values):
    """Writes a folder's configuration as it was before its settings had their names of today; returns it as it lies."""
    path = folder / "config.json"
    stored = json.loads(path.read_text())
    sample_as_before(stored, RECIPES[stored["recipe"]])
    for old, new in renamed.keys_of(RECIPES[stored["recipe"]]).items():
        if "sampling" in new:
            continue
        *sections, name = new.split(".")
        section = functools.reduce(dict.__getitem__, sections, stored)
        section[old.rsplit(".", 1)[-1]] = section.pop(name)
    path.write_text(json.dumps(stored | values))
    return {path: path.read_bytes() for path in folder.iterdir()}


TEMPERATURES = (RlRunConfig, TeacherGrpoConfig, LanguageSelfPlay, OpponentReplyConfig, SelfRewardConfig)


def sample_as_before(section, kind):
    """Changes a stored section to how sampling was said before: one temperature, or filters beside temperatures."""
    if issubclass(kind, TEMPERATURES):
        sampling = section.pop("sampling")
        section["temperature"] = None if sampling is None else sampling["temperature"]
    if issubclass(kind, EvaluateTasksConfig):
        temperature = section["sampling"].pop("temperature")
        section |= {"filters": section.pop("sampling"), "temperatures": section["temperatures"] or [temperature]}
    for name, inner in fields.fields_of(kind).items():
        if dataclasses.is_dataclass(inner) and section.get(name) is not None:
            sample_as_before(section[name], inner)


def test_a_folder_of_before_a_setting_was_renamed_resumes_with_the_same_value(tmp_path):
    config = dataclasses.replace(CONFIG, random_action_rate=0.02)
    with opened(tmp_path / "run", config) as folder:
        folder.append("metrics", [{"step": 1}])
    before = of_before(tmp_path / "run")
    with opened(tmp_path / "run", config) as folder:
        assert folder.existed
        assert folder.records("metrics") == [{"step": 1}]
    assert (tmp_path / "run" / "config.json").read_bytes() == before[tmp_path / "run" / "config.json"]


def test_a_renamed_setting_with_another_value_is_refused_by_its_name_of_today(tmp_path):
    with opened(tmp_path / "run") as folder:
        folder.append("metrics", [{"step": 1}])
    before = of_before(tmp_path / "run", epsilon=0.02)
    with pytest.raises(RunFolderError, match="another configuration") as caught:
        opened(tmp_path / "run")
    assert "\n  - random_action_rate: the folder has 0.02, this run has 0.05\n" in str(caught.value)
    assert str(caught.value).count("  - ") == 1
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize(
    "config",
    [
        DivideFuseConquer(name="a", groups_per_game=3, group_size=5),
        Grpo(name="a", deals="epochs", tasks=8, groups_per_iteration=3, group_size=5),
        LanguageSelfPlay(name="a", groups_per_iteration=3, group_size=5),
        Playpen(
            name="a",
            build_dialogues=DialogueChoiceConfig(game_groups=("clem_taboo",)),
            grpo=TeacherGrpoConfig(groups_per_iteration=3, group_size=5),
        ),
    ],
    ids=lambda config: config.recipe,
)
def test_a_folder_of_before_of_every_recipe_resumes_and_says_what_differs_by_the_names_of_today(tmp_path, config):
    with opened(tmp_path / "run", config) as folder:
        folder.append("metrics", [{"step": 1}])
    before = of_before(tmp_path / "run")[tmp_path / "run" / "config.json"]
    assert not re.search(b"group_size|groups_per|game_groups", before)
    with opened(tmp_path / "run", config) as folder:
        assert folder.existed
        assert folder.records("metrics") == [{"step": 1}]
    other = dataclasses.replace(config, **changed_size(config))
    with pytest.raises(RunFolderError, match=r"group_size: the folder has 5, this run has 7\n"):
        opened(tmp_path / "run", other)
    assert (tmp_path / "run" / "config.json").read_bytes() == before


COLD = SamplingConfig(temperature=0.0)


@pytest.mark.parametrize(
    ("config", "other", "key"),
    [
        (
            Grpo(name="a"),
            {"sampling": SamplingConfig(temperature=0.5)},
            "sampling.temperature: the folder has 1.0, this",
        ),
        (
            DivideFuseConquer(name="a", opponent_reply=OpponentReplyConfig(sampling=COLD)),
            {"opponent_reply": OpponentReplyConfig()},
            "opponent_reply.sampling: the folder has {",
        ),
        (
            LanguageSelfPlay(name="a", self_reward=SelfRewardConfig(sampling=SamplingConfig(temperature=0.6))),
            {"self_reward": SelfRewardConfig()},
            "self_reward.sampling.temperature: the folder has 0.6, this run has 1.0",
        ),
        (
            Playpen(name="a"),
            {"grpo": TeacherGrpoConfig(sampling=SamplingConfig(temperature=0.5))},
            "grpo.sampling.temperature: the folder has 0.75, this run has 0.5",
        ),
        (
            Paprika(name="a"),
            {"evaluate_tasks": EvaluateTasksConfig(sampling=SamplingConfig(temperature=0.0, min_p=0.3))},
            "evaluate_tasks.sampling.temperature: the folder has 0.7, this run has 0.0",
        ),
        (
            EvaluateTasks(name="a", temperatures=(0.3, 0.9)),
            {"temperatures": ()},
            "temperatures: the folder has [0.3, 0.9], this run has []",
        ),
    ],
    ids=lambda value: getattr(value, "recipe", ""),
)
def test_a_folder_of_before_sampling_was_one_section_resumes(tmp_path, config, other, key):
    with opened(tmp_path / "run", config) as folder:
        folder.append("metrics", [{"step": 1}])
    before = of_before(tmp_path / "run")[tmp_path / "run" / "config.json"]
    assert b'"temperature' in before
    with opened(tmp_path / "run", config) as folder:
        assert folder.existed
    with pytest.raises(RunFolderError, match=re.escape(key)) as caught:
        opened(tmp_path / "run", dataclasses.replace(config, **other))
    assert str(caught.value).count("  - ") == 1
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_how_tokens_were_sampled_is_read_from_a_folder_of_before():
    whole = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    stored = {"temperature": 0.8, "opponent_reply": {"max_length": 3, "temperature": None}}
    today = {"sampling": whole | {"temperature": 0.8}, "opponent_reply": {"max_length": 3, "sampling": None}}
    assert renamed.with_new_names(stored, Grpo) == today
    stored = {"temperatures": [0.5], "filters": whole | {"min_p": 0.3}}
    today = {"temperatures": [], "sampling": whole | {"min_p": 0.3, "temperature": 0.5}}
    assert renamed.with_new_names(stored, EvaluateTasks) == today
    assert renamed.with_new_names({"evaluate_tasks": stored}, Playpen) == {"evaluate_tasks": today}
    assert renamed.with_new_names(stored | {"temperatures": [0.5, 0.5]}, EvaluateTasks) == today
    several = {"temperatures": [0.3, 0.5], "sampling": whole | {"min_p": 0.3, "temperature": 0.7}}
    assert renamed.with_new_names(stored | {"temperatures": [0.3, 0.5]}, EvaluateTasks) == several
    for kept in ({"temperature": 0.8}, {"sampling": whole, "temperatures": [0.5]}, {"filters": 3}):
        assert renamed.with_new_names(kept, Collect).keys() == kept.keys()
    assert renamed.with_new_names({"temperatures": [0.5]}, EvaluateTasks) == {"temperatures": [0.5]}
    for broken in ({"filters": 3}, {"filters": None, "temperatures": [0.5]}, {"filters": {}, "temperatures": "no"}):
        assert "sampling" in renamed.with_new_names(broken, EvaluateTasks)


def changed_size(config):
    """Returns what another size of groups is, in a recipe or in a recipe's stage."""
    if isinstance(config, Playpen):
        return {"grpo": dataclasses.replace(config.grpo, group_size=7)}
    return {"group_size": 7}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnRandomActions(Grpo):
    epsilon: float = 0.3


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnSelfPlay(LanguageSelfPlay):
    pass


def test_a_setting_of_ones_own_keeps_the_name_that_another_one_had():
    stored = {"recipe": "mine", "epsilon": 0.3}
    assert renamed.with_new_names(stored, OwnRandomActions) == stored
    both = stored | {"random_action_rate": 0.1}
    assert renamed.with_new_names(both, Grpo) == both
    assert renamed.with_new_names(stored, Grpo) == {"recipe": "mine", "random_action_rate": 0.3}


def test_queries_and_answers_are_settings_of_self_play_alone():
    stored = {"recipe": "mine", "queries": 8, "answers": 4}
    today = {"recipe": "mine", "groups_per_iteration": 8, "group_size": 4}
    assert renamed.with_new_names(stored, LanguageSelfPlay) == today
    assert renamed.with_new_names(stored, OwnSelfPlay) == today
    for kind in (Grpo, Playpen, Sft):
        assert renamed.with_new_names(stored, kind) == stored


def test_sections_are_read_by_their_own_names():
    stored = {
        "trajectories_per_seed": 1,
        "grpo": {"trajectories_per_seed": 8, "opponent": "strong"},
        "games": {"a": {}},
    }
    today = {"group_size": 8, "opponent": "strong"}
    assert renamed.with_new_names(stored, Playpen) == stored | {"grpo": today}
    assert renamed.with_new_names(stored | {"grpo": 3}, Playpen) == stored | {"grpo": 3}
    assert renamed.with_new_names({"grpo": {"trajectories_per_seed": 8}}, Grpo) == {
        "grpo": {"trajectories_per_seed": 8}
    }


def test_the_function_that_paid_table_5_is_the_measure_of_that_name():
    before = {
        "grpo": {"reward": {"function": "dfc.training.playpen_rewards:table_5", "measure": "outcome", "text": ""}}
    }
    today = {"grpo": {"reward": {"function": "", "measure": "table_5", "text": ""}}}
    assert renamed.with_new_names(before, Playpen) == today
    own = {"reward": {"function": "mine.py:reward", "measure": "outcome"}}
    assert renamed.with_new_names(own, Grpo) == own


def test_every_setting_that_was_renamed_is_there_under_its_new_name_and_not_under_the_old_one():
    for kind, names in renamed.RENAMED.items():
        known = fields.fields_of(kind)
        for old, new in names.items():
            section, _, name = new.partition(".")
            assert section in known
            assert not name or name in fields.fields_of(known[section])
            assert old not in known


def test_the_former_place_of_table_5_is_answered_with_what_to_write_today():
    place = "dfc.training.playpen_rewards:table_5"
    (problem,) = validation.problems(Grpo(games={"Nim-v0": {}}, reward=RewardConfig(function=place)))
    assert problem.startswith(f"reward.function={place!r}: ")
    assert problem.endswith("; write measure='table_5'")

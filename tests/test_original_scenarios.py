"""Files of the original releases: both layouts, all four groups, clear errors, and the games played on them."""

import json
import os
import pathlib

import pytest

from dfc.games import registry, scripted
from dfc.games.game import Verdict
from dfc.games.paprika import original
from dfc.games.paprika.guess_my_city import GuessMyCity
from dfc.games.paprika.twenty_questions import TwentyQuestions
from dfc.games.paprika.world import NOT_VALID, VALID
from dfc.games.rng import GameRng

PROMPTS = {"agent": "a prompt", "env": "a prompt", "judge_prompt_env": None, "max_turns": 20}


def written(folder, rows, **more):
    path = folder / "scenarios.json"
    path.write_text(json.dumps(PROMPTS | {"train": rows} | more), encoding="utf-8")
    return str(path)


def listed(folder, text):
    path = folder / "list.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_of_paprika_is_read_for_every_group(tmp_path):
    rows = [{"agent": "a  bird", "env": "Grey\n Owl"}, {"agent": "b", "env": "Paris, France"}]
    path = written(tmp_path, rows, eval=rows[:1], **{"LMRL-Gym": rows[1:]})
    for group in original.GROUPS:
        found = original.load(path, group)
        assert {split: len(tasks) for split, tasks in found.items()} == {"train": 2, "test": 1, "lmrl_gym": 1}
        first, second = found["train"]
        assert (first.briefing, first.truth) == ("a bird", "Grey Owl")
        assert first.facts == {}
        names = {"TwentyQuestions": ("Paris, France",), "GuessMyCity": ("Paris",)}.get(group, ())
        assert second.names == names
    assert [task.name for task in original.load(path, "CustomerService")["train"]] == ["train 0", "train 1"]
    assert original.load(path, "TwentyQuestions")["train"][0].group == "a bird"


def test_splits_that_are_missing_or_empty_are_left_out(tmp_path):
    path = written(tmp_path, [{"agent": "a", "env": "b"}], eval=[])
    assert list(original.load(path, "MurderMystery")) == ["train"]


def test_a_list_of_objects_is_read_with_all_spellings(tmp_path):
    path = listed(tmp_path, "apple\npan; frying pan ;saucepan\n\n dog \n")
    tasks = original.load(path, "TwentyQuestions")["lmrl_gym"]
    assert [task.names for task in tasks] == [("apple",), ("pan", "frying pan", "saucepan"), ("dog",)]
    assert {task.briefing for task in tasks} == {"object"}


@pytest.mark.parametrize(
    "header", ["Rank; City; Country; Population\n", "", "\ufeff", "\ufeffrank;name;country;population\n"]
)
def test_a_list_of_cities_is_read_below_its_header_with_its_first_city(tmp_path, header):
    path = listed(tmp_path, header + "1; Tokyo; Japan; 37,468,000\n2;New Delhi;India;28,514,000\n")
    tasks = original.load(path, "GuessMyCity")["lmrl_gym"]
    assert [task.truth for task in tasks] == ["Tokyo, Japan", "New Delhi, India"]
    assert [task.names for task in tasks] == [("Tokyo",), ("New Delhi",)]


@pytest.mark.parametrize(
    ("text", "group", "came"),
    [
        ("", "TwentyQuestions", "it holds no line"),
        ("Rank; City; Country; Population", "GuessMyCity", "it holds no line"),
        ("1; Tokyo; Japan", "GuessMyCity", "line 1 is '1; Tokyo; Japan'"),
        ("h\n1; ; Japan; 3", "GuessMyCity", "line 2 is"),
        ("hello", "CustomerService", "it does not begin with a brace"),
        ("{oops", "MurderMystery", "it is no JSON"),
        ("[1, 2]", "GuessMyCity", "it holds a JSON list"),
        ("{}", "GuessMyCity", r"it has only the keys \(none\)"),
        ('{"dev": []}', "GuessMyCity", "it has only the keys 'dev'"),
        ('{"train": {"a": 1}}', "GuessMyCity", "'train' is a dict"),
        ('{"eval": [{"agent": "a", "env": "b"}, {"agent": "a"}]}', "GuessMyCity", "entry 1 of 'eval' is"),
        ('{"train": [{"agent": 1, "env": "b"}]}', "GuessMyCity", "entry 0 of 'train' is"),
        ('{"train": [{"agent": "a", "env": " "}]}', "GuessMyCity", "entry 0 of 'train' is"),
        ('{"train": ["a"]}', "GuessMyCity", "entry 0 of 'train' is \"'a'\"|entry 0 of 'train' is 'a'"),
    ],
)
def test_an_ill_formed_file_is_one_error_with_place_expectation_and_cure(tmp_path, text, group, came):
    path = listed(tmp_path, text)
    with pytest.raises(ValueError, match=came) as error:
        original.load(path, group)
    message = str(error.value)
    assert message.startswith(path)
    assert "expected a JSON object" in message
    assert "leave it empty" in message


@pytest.mark.parametrize("name", ["missing.json", "nul\0l", "."])
def test_a_file_that_is_none_is_a_clear_error(tmp_path, name):
    path = f"{tmp_path}/{name}"
    with pytest.raises(ValueError, match="leave it empty"):
        original.load(path, "GuessMyCity")
    assert registry.problems("guess_my_city", {"scenarios": path})
    assert registry.problems("guess_my_city", {"scenarios": ""}) == []


def test_a_file_in_another_encoding_is_a_clear_error(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("1; S\u00e3o Paulo; Brazil; 1".encode("latin-1"))
    with pytest.raises(ValueError, match="cannot be read as UTF-8"):
        original.load(str(path), "GuessMyCity")


def test_an_unknown_group_is_an_error():
    with pytest.raises(ValueError, match="TwentyQuestions, GuessMyCity, CustomerService, MurderMystery, got 'Wordle'"):
        original.load("x", "Wordle")


def test_a_file_is_read_once_until_it_changes(tmp_path, monkeypatch):
    path = written(tmp_path, [{"agent": "a", "env": "b"}])
    first = original.load(path, "TwentyQuestions")
    with monkeypatch.context() as context:
        context.setattr(pathlib.Path, "read_text", lambda *_args, **_options: pytest.fail("the file was read again"))
        assert original.load(path, "TwentyQuestions") is first
    written(tmp_path, [{"agent": "a", "env": "c"}])
    os.utime(path, ns=(1, 1))
    assert original.load(path, "TwentyQuestions")["train"][0].truth == "c"


def test_a_game_plays_the_splits_of_its_file(tmp_path):
    path = written(tmp_path, [], **{"LMRL-Gym": [{"agent": "animal", "env": "Yak"}, {"agent": "food", "env": "Soup"}]})
    game = registry.make("twenty_questions", split="lmrl_gym", scenarios=path)
    assert game.number_of_tasks == 2
    assert game.info.splits == {"lmrl_gym": 2}
    game.reset(3)
    assert game.scenario.name == "Soup"
    assert "food" in game.observation(0)
    assert "Soup" not in game.observation(0)
    twin = registry.make("twenty_questions", split="lmrl_gym", scenarios=path)
    twin.from_json(json.loads(json.dumps(game.to_json())))
    for both in (game, twin, game.clone()):
        for reply in ("Is it soup?", "Goal reached", VALID):
            assert both.step(reply) is Verdict.PLAYED
        assert both.outcomes == ("win",)


def test_a_split_the_file_lacks_is_an_error_that_names_those_it_has(tmp_path):
    path = written(tmp_path, [{"agent": "animal", "env": "Yak"}])
    for split in ("test", "lmrl_gym"):
        with pytest.raises(ValueError, match=rf"split must be one of train in .*, got '{split}'"):
            TwentyQuestions(split=split, scenarios=path)
    with pytest.raises(ValueError, match="split must be one of train, test, got 'lmrl_gym'"):
        TwentyQuestions(split="lmrl_gym")


@pytest.mark.parametrize("kind", [TwentyQuestions, GuessMyCity])
def test_the_scripted_world_refuses_scenarios_without_facts_and_names_the_cure(tmp_path, kind):
    game = kind(scenarios=written(tmp_path, [{"agent": "animal", "env": "Yak"}]))
    simulators = scripted.simulators(game)
    game.reset(0)
    game.step("Is it a yak?")
    with pytest.raises(ValueError, match=r"hold no facts.*endpoint"):
        simulators["world"].act(game, GameRng(0))
    game.step("No")
    assert simulators["judge"].act(game, GameRng(0)) == VALID  # names are enough for the judge


@pytest.mark.parametrize(
    ("kind", "asked"), [(TwentyQuestions, "Is it a tiger or a lion?"), (GuessMyCity, "Is it Rome or Paris?")]
)
def test_several_names_are_left_to_the_world_where_the_pool_is_not_known(tmp_path, kind, asked):
    game = kind(scenarios=written(tmp_path, [{"agent": "animal", "env": "Yak"}]))
    game.reset(0)
    assert game.step(asked) is Verdict.PLAYED
    assert game.observation(1).endswith(f"<player>{asked}</player>")


@pytest.mark.parametrize("kind", [TwentyQuestions, GuessMyCity])
@pytest.mark.parametrize("strength", scripted.STRENGTHS)
def test_agents_play_loaded_scenarios_to_the_end(tmp_path, kind, strength):
    game = kind(scenarios=written(tmp_path, [{"agent": "a thing of mine", "env": "Yak"}]))
    agent = scripted.player(game, strength)
    game.reset(0)
    rng = GameRng(1)
    while not game.over:
        for reply in (agent.act(game, rng), "No", NOT_VALID):
            assert game.step(reply) is Verdict.PLAYED
    assert game.outcomes == ("loss",)

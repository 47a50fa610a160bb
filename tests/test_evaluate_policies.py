"""Who plays a tournament: how policies are named, which folders hold one, what is refused before anything starts."""

import dataclasses
import json

import pytest
from tournaments import CONFIG, GAMES

from dfc.config import DivideFuseConquer, EndpointConfig
from dfc.errors import ConfigError
from dfc.launch import command_line
from dfc.players import player_specs
from dfc.players.player_specs import PlayerSpec, WeightsSource
from dfc.runs.run_folder import config_json

API = {"policies": ("api=https://h/v1#m", "strong")}


@pytest.mark.parametrize(
    ("text", "name", "who", "kind"),
    [
        ("strong", "strong", "strong", "scripted"),
        ("best=strong", "best", "strong", "scripted"),
        ("runs/quickstart/", "quickstart", "runs/quickstart/", "model"),
        ("a=./lr=1e-3", "a", "./lr=1e-3", "model"),
        ("runs/lr=1e-3", "lr=1e-3", "runs/lr=1e-3", "model"),
        ("http://h:1/v1#org/m", "org/m", "http://h:1/v1#org/m", "endpoint"),
        ("gpt=https://h/v1#m", "gpt", "https://h/v1#m", "endpoint"),
        ("gs://bucket/m", "m", "gs://bucket/m", "model"),
    ],
)
def test_a_policy_is_named_and_sorted(text, name, who, kind):
    assert player_specs.parse(text) == PlayerSpec(name, who, kind)


@pytest.mark.parametrize("text", ["", "a=", "https://h/v1", "x=http://h/v1#"])
def test_who_is_nobody_is_refused(text):
    with pytest.raises(ConfigError):
        player_specs.parse(text)


def test_a_list_on_the_command_line_needs_no_brackets(monkeypatch):
    monkeypatch.setenv("KEY_A", "a-key-of-a")
    words = ["--config=configs/evaluate.py"]
    for value in ("strong, simple,r=random_legal", "('strong', 'simple', 'r=random_legal')"):
        config = command_line.parse([*words, f"--config.policies={value}"]).config
        assert config.policies == ("strong", "simple", "r=random_legal")
    more = ["--config.policies=a=https://h/v1#m,strong", "--config.endpoints.a.key_variable=KEY_A"]
    config = command_line.parse([*words, *more]).config
    (first, _) = player_specs.policies(config)
    made = player_specs.endpoint_config(config, first.name)
    assert (first.who, made) == ("https://h/v1#m", EndpointConfig(key_variable="KEY_A"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"policies": ()}, "policies is empty"),
        ({"policies": ("strong",)}, "need two policies"),
        ({"policies": ("strong", "strong")}, "2 of them are called 'strong'"),
        ({"policies": ("strong", "simulators=simple")}, "the name of the configured simulators"),
        ({"policies": ("strong", "http://h/v1")}, "name the model after a #"),
        ({"policies": ("strong", "a=https://u:p@h/v1#m")}, "policies: holds a user name or a password in an address"),
        ({"policies": ("strong", "a=https://h/v1?u#m")}, "policies: 'a': base_url: must hold no user name"),
        ({"anchor": "x"}, "anchor='x': must be one of tiny_player, random_legal"),
        ({"simulators": "strong"}, "simulators='strong': must be script"),
        ({"seeds": 0}, "seeds=0"),
        ({"simulators": "initial"}, "simulators='initial': must be script, a folder with weights or an endpoint"),
        (
            {**API, "endpoints": {"api": EndpointConfig(cache="c", temperature=1.0)}},
            "needs endpoints.api.temp",
        ),
        ({**API, "endpoints": {"api": EndpointConfig(cache="c", temperature=None)}}, "needs endpoints.api.temp"),
        (
            {**API, "endpoints": {"api": EndpointConfig(budget_money=1.0)}},
            "endpoints.api.budget_money=1.0: needs",
        ),
        ({**API, "endpoints": {"api": EndpointConfig(retries=-1)}}, "endpoints.api.retries=-1: must be at least 0"),
        ({**API, "endpoints": {"api": EndpointConfig(timeout="long")}}, "endpoints.api.timeout='long' (str): must be"),
        ({**API, "endpoints": {"api": 3}}, "endpoints.api: expected EndpointConfig(...) for recipe evaluate"),
        ({**API, "endpoints": 3}, "endpoints=3 (int): must be a mapping from names to sections (EndpointConfig)"),
        (
            {**API, "endpoints": {"apt": EndpointConfig()}},
            "endpoints.apt: must be a player of this run that is a chat endpoint (api); no player has this name",
        ),
        ({"endpoints": {"tiny_player": EndpointConfig()}}, "that is a chat endpoint (none); that player is none"),
        ({"endpoints": {"simulators": EndpointConfig()}}, "that is a chat endpoint (none); that player is none"),
    ],
)
def test_what_cannot_be_played_is_said_before_anything_starts(changes, problem):
    found = command_line.validation.problems(dataclasses.replace(CONFIG, **changes))
    assert any(problem in line for line in found), found


def test_a_key_in_the_wrong_place_is_not_repeated():
    entry = {"api": EndpointConfig(key_variable="sk-secret")}
    found = command_line.validation.problems(dataclasses.replace(CONFIG, **API, endpoints=entry))
    assert found
    assert "secret" not in " ".join(found)


def test_a_folder_that_holds_no_policy_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        player_specs.weights_in(str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        player_specs.weights_in(str(tmp_path))
    (tmp_path / "config.json").write_text('{"recipe": "divide_fuse_conquer", "model": {"path": "tiny_player"}}')
    with pytest.raises(ConfigError, match="without a policy or a checkpoint"):
        player_specs.weights_in(str(tmp_path))
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    assert player_specs.weights_in(str(tmp_path)).folder == str(tmp_path / "policy")


def test_a_run_with_a_policy_for_every_game_is_no_policy(tmp_path):
    """Its newest checkpoint holds that of the last game, which has not learned the others."""
    (tmp_path / "config.json").write_text(
        json.dumps(config_json(DivideFuseConquer(games=GAMES, method="naive_single")))
    )
    (tmp_path / "checkpoints" / "step_000000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match="own for every game; none is finished"):
        player_specs.weights_in(str(tmp_path))
    policy = tmp_path / "policy" / "TicTacToe-v0"
    policy.mkdir(parents=True)
    (policy / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"name one: {policy}"):
        player_specs.weights_in(str(tmp_path))
    assert player_specs.weights_in(str(policy)) == WeightsSource(str(policy))

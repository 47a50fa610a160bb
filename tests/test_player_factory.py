"""Players by name: programs of several games, endpoints, and what is said of names that fit neither."""

import re
from pathlib import Path

import pytest
from chat_server import says, serving

from dfc.config import EndpointConfig
from dfc.errors import ConfigError
from dfc.games import registry
from dfc.games.rng import GameRng
from dfc.players import factory, player_specs, sequential
from dfc.players.endpoint import Endpoint


@pytest.mark.parametrize("strength", ["random_legal", "simple", "strong"])
def test_one_program_plays_several_games(strength):
    player = factory.player(player_specs.parse(strength))
    for game_id in ("TicTacToe-v0", "Nim-v0", "TicTacToe-v0"):
        game = registry.make(game_id)
        game.reset(0)
        sequential.play_sequentially(game, [player, player], GameRng(0))
        assert game.forfeited_by is None


def test_a_program_needs_no_id_to_know_the_game():
    game = registry.make("Nim-v0")
    game.id = "of a file"
    game.reset(0)
    assert factory.player(player_specs.parse("strong")).act(game, GameRng(0)) in game.legal_actions()


def test_an_endpoint_has_its_settings(monkeypatch):
    monkeypatch.setenv("MY_KEY", "key-123456789")
    with serving(says("hello")) as server:
        spec = player_specs.parse(f"{server.url}#gpt", "opponent")
        player = factory.player(spec, EndpointConfig(key_variable="MY_KEY", top_p=0.5))
        assert isinstance(player, Endpoint)
        assert player.name == "opponent"
        with player:
            player.answer([{"role": "user", "content": "hello"}])
        assert (server.bodies[0]["model"], server.bodies[0]["top_p"]) == ("gpt", 0.5)
        assert server.headers[0]["authorization"] == "Bearer key-123456789"


@pytest.mark.parametrize(
    ("who", "said"),
    [
        (
            "Strong",
            "did you mean 'strong'? It must be random_legal, simple, strong, tiny_player, a folder with weights",
        ),
        ("initail", "no such folder (current folder: "),
        (
            "initail",
            "it must be random_legal, simple, strong, tiny_player, a folder with weights or a run, or a",
        ),
        ("http://127.0.0.1:8000/v1", "name the model after a #"),
        ("http://127.0.0.1:8000/v1#", "name the model after a #"),
        ("127.0.0.1:8000/v1#m", "did you mean 'http://127.0.0.1:8000/v1#m'?"),
        ("localhost:8000", "did you mean 'http://localhost:8000/v1#MODEL'?"),
        ("api.example.org/v1#m", "did you mean 'http://api.example.org/v1#m'?"),
        ("m" * 300, "cannot be read: "),
        ("~nobody-of-this-name/m", "cannot be read: "),
    ],
)
def test_a_wrong_name_is_answered_with_its_cure(who, said):
    try:
        found = player_specs.problem(player_specs.parse(who))
    except ConfigError as error:
        found = str(error)
    assert said in found


@pytest.mark.parametrize("who", ["simple", "http://h/v1#m", "https://h/v1#org/m", "tiny_player", "gs://bucket/m"])
def test_nothing_is_wrong_with_a_right_name(who):
    assert player_specs.problem(player_specs.parse(who)) is None


def test_other_words_may_be_meant_elsewhere():
    found = player_specs.problem(player_specs.parse("scrpt"), ("person", "script"))
    assert "did you mean 'script'? It must be person, script, tiny_player" in found


def test_a_folder_with_weights_or_a_run_is_a_player_and_another_is_none(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    assert "has no config.json" in player_specs.problem(player_specs.parse(str(folder)))
    (folder / "config.json").write_text("{}")
    assert player_specs.problem(player_specs.parse(str(folder))) is None


def test_a_model_is_made_where_there_is_an_engine():
    with pytest.raises(ValueError, match="is a model, which plays in an engine"):
        factory.player(player_specs.parse("tiny_player"))


def test_the_page_on_rollouts_plays_a_program_and_an_endpoint(capsys):
    page = (Path(__file__).resolve().parents[1] / "docs" / "rollouts.md").read_text()
    (code,) = (
        block for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "Endpoint(" in block
    )
    address = "http://127.0.0.1:8000/v1"
    assert code.count(address) == 1
    with serving(usual=says("[4] or [1 2]")) as server:  # two actions: it forfeits, and its game has been played
        exec(compile(code.replace(address, server.url), "docs/rollouts.md", "exec"), {})  # noqa: S102 - our own page
        assert {body["model"] for body in server.bodies} == {"my-model"}
    lines = [line for line in capsys.readouterr().out.split("\n") if " against " in line]
    assert len(lines) == 8
    assert sum(" against strong " in line for line in lines) == 4
    assert sum(line.endswith(" against my-model win") for line in lines) >= 1

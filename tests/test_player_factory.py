"""Players by name: programs of several games, endpoints, and what is said of names that fit neither."""

import re
from pathlib import Path

import pytest
from chat_server import says, serving

from dfc.errors import ConfigError
from dfc.games import registry
from dfc.games.rng import GameRng
from dfc.players import factory, sequential
from dfc.players.endpoint import Endpoint


@pytest.mark.parametrize("strength", ["random_legal", "simple", "strong"])
def test_one_program_plays_several_games(strength):
    player = factory.player(strength)
    for game_id in ("TicTacToe-v0", "Nim-v0", "TicTacToe-v0"):
        game = registry.make(game_id)
        game.reset(0)
        sequential.play_sequentially(game, [player, player], GameRng(0))
        assert game.forfeited_by is None


def test_a_program_needs_no_id_to_know_the_game():
    game = registry.make("Nim-v0")
    game.id = "of a file"
    game.reset(0)
    assert factory.player("strong").act(game, GameRng(0)) in game.legal_actions()


def test_an_endpoint_has_its_settings(monkeypatch):
    monkeypatch.setenv("MY_KEY", "key-123456789")
    with serving(says("hello")) as server:
        player = factory.player(f"{server.url}#gpt", "MY_KEY", {"top_p": 0.5})
        assert isinstance(player, Endpoint)
        with player:
            player.answer([{"role": "user", "content": "hello"}])
        assert (server.bodies[0]["model"], server.bodies[0]["top_p"]) == ("gpt", 0.5)
        assert server.headers[0]["authorization"] == "Bearer key-123456789"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Strong", "did you mean 'strong'? It must be random_legal, simple, strong, or a chat endpoint such as http"),
        ("initail", "must be random_legal, simple, strong, or a chat endpoint"),
        ("http://127.0.0.1:8000/v1", "name the model after a #"),
        ("http://127.0.0.1:8000/v1#", "name the model after a #"),
        ("127.0.0.1:8000/v1#m", "did you mean 'http://127.0.0.1:8000/v1#m'?"),
        ("localhost:8000", "did you mean 'http://localhost:8000#MODEL'?"),
        ("api.example.org/v1#m", "did you mean 'http://api.example.org/v1#m'?"),
    ],
)
def test_a_wrong_name_is_answered_with_its_cure(name, said):
    assert said in factory.problem(name)
    with pytest.raises(ConfigError) as caught:
        factory.player(name)
    assert f"{name}: " in str(caught.value)


@pytest.mark.parametrize("name", ["simple", "http://h/v1#m", "https://h/v1#org/m"])
def test_nothing_is_wrong_with_a_right_name(name):
    assert factory.problem(name) is None


def test_other_names_may_be_right_elsewhere():
    assert factory.problem("person", ("person", "script")) is None
    assert factory.problem("scrpt", ("person", "script")).startswith(
        "did you mean 'script'? It must be person, script, "
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"time_out": 3}, "endpoint.time_out: there is no such setting; did you mean 'timeout'?"),
        ({"zzz": 3}, "endpoint.zzz: there is no such setting; Known are temperature, "),
        ({"model": "m"}, "endpoint.model: the endpoint's name says where it is and what model"),
        ({"retries": -1}, "endpoint.retries=-1: must be a whole number of at least 0"),
    ],
)
def test_a_wrong_setting_is_answered_with_its_cure(settings, said):
    with pytest.raises(ConfigError) as caught:
        factory.player("http://127.0.0.1:1/v1#m", settings=settings)
    assert said in str(caught.value)


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

"""What clemcore looks for in its working directory, and the command that writes it; clemcore is not needed."""

import json

import pytest

from dfc.config import ServingConfig
from dfc.errors import ConfigError
from dfc.launch import clembench
from dfc.tools.clembench import register


def entries(folder):
    return json.loads((folder / "model_registry.json").read_text())


def run(folder, *words):
    return clembench.main(["register", f"--folder={folder}", *words])


def test_the_command_writes_the_backend_and_the_entry(tmp_path, capsys):
    assert run(tmp_path, "--policy=tiny_player", "--name=mine", "--slots=3", "--seed=7") == 0
    (entry,) = entries(tmp_path)
    config = {"slots": 3, "max_length": 2048, "decode_steps": 16, "seed": 7}
    assert entry == {"model_name": "mine", "backend": "dfc", "model_id": "tiny_player", "model_config": config}
    text = (tmp_path / "dfc_api.py").read_text()
    assert compile(text, "dfc_api.py", "exec", dont_inherit=True)
    assert "from dfc.tools.clembench.backend import DfcBackend" in text
    assert "clem run -g GAME -m mine" in capsys.readouterr().out
    assert register.settings_of(config) == (ServingConfig(slots=3), 7)


def test_other_entries_stay_and_one_of_this_name_is_replaced(tmp_path):
    other = {"model_name": "gpt", "backend": "openai", "context_size": 5}
    (tmp_path / "model_registry.json").write_text(json.dumps([{"model_name": "mine", "backend": "x"}, other]))
    assert run(tmp_path, "--policy=tiny_player", "--name=mine") == 0
    assert run(tmp_path, "--policy=tiny_player", "--name=second") == 0
    assert [entry["model_name"] for entry in entries(tmp_path)] == ["second", "mine", "gpt"]
    assert entries(tmp_path)[2] == other
    assert entries(tmp_path)[1]["backend"] == "dfc"


def test_a_folder_of_weights_is_named_from_everywhere(tmp_path, monkeypatch):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    register.register(tmp_path, "mine", "weights", {})
    assert entries(tmp_path)[0]["model_id"] == str(weights)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy=tiny_player", "--slots=0"], "slots=0"),
        (["--policy=tiny_player", "--seed=-1"], "model_config.seed: expected a whole number of 0 or more, got -1"),
        (["--policy=tiny_player", "--name=a--b"], "--name='a--b': names a folder of results"),
        (["--policy=tiny_player", "--name=../x"], "names a folder of results"),
        (["--policy=tiny_player", "--name=.hidden"], "names a folder of results"),
        (["--policy=gone"], "gone"),
        (["--policy=http://127.0.0.1:1/v1#m"], "its backend openai_compatible"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path, capsys, words, message):
    assert run(tmp_path, *words) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "no JSON"), ("[3]", "expected a list of objects"), ('"a"', "expected a list"), ("[" * 99999, "no JSON")],
)
def test_a_registry_that_is_none_is_left_alone(tmp_path, capsys, text, message):
    (tmp_path / "model_registry.json").write_text(text)
    assert run(tmp_path, "--policy=tiny_player") == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "model_registry.json").read_text() == text
    assert not (tmp_path / "dfc_api.py").exists()


def test_a_registry_that_is_too_large_is_not_read(tmp_path, capsys):
    (tmp_path / "model_registry.json").write_text("[" + " " * register.MAX_BYTES + "]")
    assert run(tmp_path, "--policy=tiny_player") == 2
    assert f"larger than {register.MAX_BYTES} bytes" in capsys.readouterr().err


def test_a_backend_file_of_somebody_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "dfc_api.py").write_text("mine = 1\n")
    assert run(tmp_path, "--policy=tiny_player") == 2
    assert "is not the file that this command writes" in capsys.readouterr().err
    assert (tmp_path / "dfc_api.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slot": 3}, "model_config.slot: there is no such field; known are slots"),
        ({"slots": "many"}, "model_config.slots="),
        ({"seed": True}, "model_config.seed: expected a whole number"),
    ],
)
def test_a_wrong_setting_of_an_entry_is_named(settings, message):
    with pytest.raises(ConfigError) as caught:
        register.settings_of(settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["register", "--policy=tiny_player", "--folder=gs://bucket"],
        ["results", "--games=.", "--results=gs://bucket"],
        ["rows", "--games=.", "--file=gs://bucket/rows.jsonl"],
    ],
)
def test_an_address_is_no_place_to_write(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert clembench.main(words) == 2
    assert "gs:/bucket" in (said := capsys.readouterr().err)
    assert "is an address, and what is written here needs a disk" in said
    assert not any(tmp_path.iterdir())

"""Keys and passwords in a wrong setting or word: refused before anything is written, and never repeated."""

import dataclasses
import json
import sys
import types

import pytest

from dfc.config import DivideFuseConquer, EndpointConfig
from dfc.launch import play
from dfc.launch.__main__ import main
from dfc.players import key_search
from dfc.runs.run_folder import RunFolder

WHO = "--config.simulators"
KEYS = "--config.endpoints.simulators.key_variable"
KEY = "sk-proj-SECRET1234567"
HELD = "tok/en+SECRET7654321"  # of no known form: only the variable tells that it is one
HOST = "http://127.0.0.1:9/v1"
SMOKE, EVALUATE = "--config=configs/smoke.py", "--config=configs/evaluate.py"
OPPONENT = "--config.opponent="
VARIABLE = "--config.endpoints.opponent.key_variable="
PLAYERS = f"--config.policies=a={HOST}#m,strong"
CITY = "--config.games={'guess_my_city': {}}"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DFC_HELD", HELD)
    monkeypatch.delenv("DFC_UNSET", raising=False)
    # What gets past the checks is to end at once, and to leave its folder.
    for name in ("methods.divide_fuse_conquer", "stages.evaluate", "stages.evaluate_tasks", "stages.collect"):
        module = types.ModuleType(f"dfc.{name}")
        module.run = lambda *_: None
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return tmp_path


CASES = {
    "key as variable of the opponent": ([SMOKE, f"{OPPONENT}{HOST}#m", VARIABLE + KEY], "key_variable: must be"),
    "key as variable without an opponent": ([SMOKE, VARIABLE + KEY], "key_variable: must be"),
    "key in capital letters as variable": ([SMOKE, VARIABLE + "AKIASECRET1234567890"], "key_variable: must be"),
    "random capitals as variable": ([SMOKE, VARIABLE + "A9SECRETJ8K2LM4N5P6Q7R"], "key_variable: must be"),
    "key with small letters as variable": ([SMOKE, VARIABLE + "aSECRETbcdefgh"], "key_variable: must be"),
    "that one as the model too": (
        [SMOKE, VARIABLE + "aSECRETbcdefgh", f"{OPPONENT}{HOST}#aSECRETbcdefgh"],
        "opponent: holds what looks like a key",
    ),
    "password of the opponent": ([SMOKE, f"{OPPONENT}http://user:SECRET@127.0.0.1:9/v1#m"], "opponent: holds a user"),
    "password with a path's characters": ([SMOKE, f"{OPPONENT}http://user:SEC/RE#T@h/v1#m"], "opponent: holds a user"),
    "password without http": ([SMOKE, f"{OPPONENT}user:SECRET@127.0.0.1:9/v1#m"], "opponent: holds a user"),
    "user alone": ([SMOKE, f"{OPPONENT}http://SECRET@127.0.0.1:9/v1#m"], "opponent: holds a user"),
    "key behind a question mark": ([SMOKE, f"{OPPONENT}{HOST}?key=SECRETS#m"], "opponent: base_url: must hold no user"),
    "key as the opponent's model": (
        [SMOKE, f"{OPPONENT}{HOST}#{HELD}", f"{VARIABLE}DFC_HELD"],
        "opponent: holds the key of the environment variable DFC_HELD",
    ),
    "the same percent-encoded": (
        [SMOKE, f"{OPPONENT}{HOST}#tok%2Fen%2BSECRET7654321", f"{VARIABLE}DFC_HELD"],
        "opponent: holds the key of the environment variable DFC_HELD",
    ),
    "key as a model in a tournament": (
        [EVALUATE, f"--config.policies=a={HOST}#{HELD},strong", "--config.endpoints.a.key_variable=DFC_HELD"],
        "policies: holds the key of the environment variable DFC_HELD",
    ),
    "key as variable in a tournament": (
        [EVALUATE, PLAYERS, f"--config.endpoints.a.key_variable={KEY}"],
        "endpoints.a.key_variable: must be the name",
    ),
    "key as the name of an endpoint": (
        [SMOKE, f"--config.endpoints.{KEY}.timeout=3"],
        "endpoints.<key>.timeout: holds what looks like a key",
    ),
    "key as variable of somebody who is no player": (
        [SMOKE, f"--config.endpoints.a.key_variable={KEY}"],
        "endpoints.a.key_variable: must be the name",
    ),
    "password in a tournament": ([EVALUATE, "--config.policies=a=http://u:SECRET@h/v1#m,strong"], "policies: holds a"),
    "key of the simulator": (
        [
            SMOKE,
            CITY,
            f"{WHO}={HOST}#m",
            f"{KEYS}={KEY}",
        ],
        "endpoints.simulators.key_variable: must be the name",
    ),
    "password of the simulator": (
        [SMOKE, f"{WHO}=http://u:SECRET@h/v1#m"],
        "simulators: holds a user",
    ),
    "key as the simulator's model": (
        [
            SMOKE,
            f"{WHO}={HOST}#{HELD}",
            f"{KEYS}=DFC_HELD",
        ],
        "simulators: holds the key",
    ),
    "password of a collection's opponent": (
        ["--config=configs/paprika_tiny.py", "--config.collect.opponent=http://u:SECRET@h/v1#m"],
        "collect.opponent: holds a user",
    ),
    "known form in the name of the run": ([SMOKE, f"--config.name={KEY}"], "name: holds what looks like a key"),
    "known form in an option of a game": (
        [SMOKE, f"--config.games={{'Nim-v0': {{'note': '{KEY}'}}}}"],
        "games.Nim-v0.note: holds what looks like a key",
    ),
    "known form as the run folder": ([SMOKE, f"--workdir={KEY}"], "--workdir: holds what looks like a key"),
    "key that a later word replaces": ([SMOKE, VARIABLE + "xSECRETx", VARIABLE], "key_variable: must be the name"),
    "password that a later word replaces": (
        [SMOKE, f"{OPPONENT}http://u:SECRET@h/v1#m", f"{OPPONENT}initial"],
        "opponent: holds a user",
    ),
    "key in a word of no flag": ([SMOKE, f"{OPPONENT}itself", KEY], "a word of the command line: holds what looks"),
    "key beside a value of the wrong type": ([SMOKE, VARIABLE + KEY, "--config.seed=x"], "seed=x: must be a whole"),
    "variable of the opponent that is not set": (
        [SMOKE, f"{OPPONENT}{HOST}#m", f"{VARIABLE}DFC_UNSET"],
        "key_variable: the environment variable DFC_UNSET is not set or empty",
    ),
    "variable of a tournament that is not set": (
        [EVALUATE, PLAYERS, "--config.endpoints.a.key_variable=DFC_UNSET"],
        "endpoints.a.key_variable: the environment variable DFC_UNSET is not set",
    ),
    "variable of the simulator that is not set": (
        [
            SMOKE,
            CITY,
            f"{WHO}={HOST}#m",
            f"{KEYS}=DFC_UNSET",
        ],
        "endpoints.simulators.key_variable: the environment variable DFC_UNSET is not set",
    ),
    "plain http to another machine": (
        [SMOKE, f"{OPPONENT}http://example.org/v1#m", f"{VARIABLE}DFC_HELD"],
        "opponent: base_url='http://example.org/v1': would send the key unencrypted",
    ),
}


@pytest.mark.parametrize(("words", "said"), CASES.values(), ids=CASES.keys())
def test_a_key_in_a_wrong_place_is_refused_before_a_folder_exists_and_not_repeated(here, capsys, words, said):
    assert main([*words, "--workdir=w"] if not any(word.startswith("--workdir") for word in words) else words) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert "SEC" not in out + err
    assert KEY not in out + err
    assert list(here.iterdir()) == []


def test_a_key_in_the_file_of_the_configuration_is_refused(here, capsys):
    for body in (
        f"DivideFuseConquer(games={{}}, name='{KEY}')",
        f"1 / 0  # {KEY}",
        f"DivideFuseConquer('{KEY}', '{KEY}', '{KEY}')",
    ):
        (here / "c.py").write_text(f"from dfc.config import *\ndef get_config():\n    return {body}\n")
        assert main(["--config=c.py"]) == 2
        assert "SECRET" not in capsys.readouterr().err
    assert [path.name for path in here.iterdir()] == ["c.py"]


@pytest.mark.parametrize(
    "words",
    [
        [f"--opponent=http://user:SECRET@{HOST[7:]}#m"],
        [f"--opponent={HOST}#{HELD}", "--key_variable=DFC_HELD"],
        [f"--opponent={HOST}#m", "--key_variable", "xSECRETx"],
        [f"--opponent={HOST}#m", f"--endpoint={{'api_key': '{KEY}'"],
        [f"--opponent={HOST}#m", "--key_variable=DFC_HELD", f'--endpoint={{"extra_body": {{"k": "{HELD}"}}}}'],
        [f"--opponent={KEY}"],
    ],
)
def test_playing_repeats_no_key_either(capsys, words):
    assert play.main(["--game=TicTacToe-v0", *words]) == 2
    out, err = capsys.readouterr()
    assert "SECRET" not in out + err
    assert "key" in err


def test_a_run_with_a_key_keeps_its_variable_and_nothing_else(here):
    assert main([SMOKE, "--workdir=w", f"{OPPONENT}{HOST}#m", f"{VARIABLE}DFC_HELD"]) == 0
    stored = "".join(path.read_text() for path in (here / "w").glob("*.json"))
    assert "DFC_HELD" in stored
    assert "SECRET" not in stored


def test_a_command_that_another_caller_hands_over_is_stored_without_keys(here):
    config = DivideFuseConquer(endpoints={"opponent": EndpointConfig(key_variable="DFC_HELD")})
    command = f"train --key={HELD} --other={KEY} --url=https://me:SECRET@host/v1#m --seed=3"
    RunFolder.open(here / "w", config, command=command).close()
    (start,) = json.loads((here / "w" / "versions.json").read_text())["starts"]
    assert start["command"] == "train --key=<key> --other=<key> --url=https://<key>@host/v1#m --seed=3"


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1#@cf/meta/llama-3@v2",
        "http://host:8000#llama3:8b@sha256:0123",
        "https://host/v1#org/model@20240229",
        "runs/sk-learn-experiment-2024",
        "task-0123456789abcdef0123456789",
        "models/0123456789abcdef0123456789abcdef01234567",
        "hf_models/llama",
        "--config.rollout.stop=(']', '@', ':')",
        "('mastermind=100',)",
        "bearer of news",
        "basic responsibilities of a player",
        "runs/qwen-lora_r8_alpha16_lr1e-4_seed0",
        "runs/lora-r8_alpha16_dropout005_layers_all_linear_seed0",
        "models--xai-org--grok-2-instruct-hf",
        "runs/sk-learn-20240101120000",
        "runs/sk-learn-0123456789abcdef0123456789abcdef01234567",
        "runs/gsk_group_size_8_learning_rate_1e-4_seed_0",
        "http://[::1]:8000/v1#claude-3-5-sonnet@20240620",
        "http://[2001:db8::1]:8000#claude-3-5-sonnet@20240620",
        "http://h:8000,http://i:8000/v1#a@b",
        "http://h,http://i:8000/v1#a@b",
        "https://host/v1?api-version=2024-02-01-preview#gpt",
    ],
)
def test_what_only_resembles_a_key_is_none(text):
    assert key_search.KeySearch([]).reason(text) is None


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"x={KEY}&y",
        "sk-proj-abcDEF123_456-ghiJKLmno789pqr",
        "sk-0123456789abcdef0123456789abcdef",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "gsk_" + "abcdefghij0123456789" * 2,
        "xai-" + "abcdefghij0123456789" * 4,
        "pplx-" + "abcdefghij0123456789" * 2,
        "r8_" + "abcdefghijklmnopqrstuvwxyz01234567890",
        "nvapi-" + "abcdefghij-123456789" * 3,
        "sk-or-v1-0123456789abcdef0123456789abcdef",
        "sk-ant-api03-abcdef-ghijkl_mnopqr",
        "https://x.azure.com/v1?api-key=0123456789abcdef0123456789abcdef#gpt",
        "https://host/v1?version=1&key=abcdefgh#gpt",
        "https://host/v1?TOKEN=abcdefgh",
        "https://host/v1?access_token=abcdefgh&x=1",
        "https://host/v1?sv=1&sig=abc%2Bdefgh",
        "Authorization: Basic dXNlcjpwYXNzd29yZA==",
        "http://me:pw@[::1]:8000/v1#m",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "Authorization: Bearer abcdefgh12345678",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
        "-----BEGIN RSA PRIVATE KEY-----",
        "ftp://me:pw@host/x",
        "https:/me:pw@host/x",
    ],
)
def test_known_forms_of_keys_are_seen_and_redacted(text):
    search = key_search.KeySearch([])
    assert search.reason(text)
    assert search.reason(search.redact(text).replace("<key>@", "")) is None


def test_a_default_is_no_secret_whatever_a_variable_holds(monkeypatch):
    monkeypatch.setenv("LOCAL_KEY", "tiny_player")  # of a server that takes any
    assert (
        key_search.problems(DivideFuseConquer(endpoints={"opponent": EndpointConfig(key_variable="LOCAL_KEY")})) == []
    )


@pytest.mark.parametrize("placeholder", ["lm-studio", "not-needed", "no-key-required"])
def test_a_placeholder_of_a_local_server_is_no_secret_within_a_path(monkeypatch, placeholder):
    monkeypatch.setenv("LOCAL_KEY", placeholder)
    search = key_search.KeySearch(["LOCAL_KEY"])
    path = f"/home/me/.{placeholder}/models/a"
    assert search.reason(path) is None
    assert search.redact(f"--config.model.path={path} --x={placeholder}") == f"--config.model.path={path} --x=<key>"
    assert search.reason(placeholder)
    assert key_search.word_problems([f"--workdir={path}"], ["LOCAL_KEY"]) == []
    assert key_search.word_problems([f"--workdir={placeholder}"], ["LOCAL_KEY"])


@pytest.mark.parametrize("key", ["abcdefg7", "abcdefghijklmnop"])
def test_a_key_of_substance_is_one_within_a_text(monkeypatch, key):
    monkeypatch.setenv("LOCAL_KEY", key)
    search = key_search.KeySearch(["LOCAL_KEY"])
    assert search.reason(f"runs/{key}-x")
    assert search.redact(f"runs/{key}-x") == "runs/<key>-x"


@pytest.mark.parametrize("name", ["MY_API_KEY", "MY_KEY", "MY_TOKEN", "MY_SECRET"])
def test_a_file_that_raises_with_a_key_of_the_environment_does_not_show_it(here, monkeypatch, capsys, name):
    monkeypatch.setenv(name, HELD)
    (here / "c.py").write_text(
        f"import os\ndef get_config():\n    raise ValueError('no server for ' + os.environ['{name}'])\n"
    )
    assert main(["--config=c.py"]) == 2
    err = capsys.readouterr().err
    assert "no server for <key>" in err
    assert "SECRET7654321" not in err


def test_defaults_of_sections_within_a_mapping_are_no_secrets_and_their_keys_are(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Players:
        opponent: str = "http://h/v1#hunter2hunter2"
        endpoints: dict = dataclasses.field(default_factory=dict)

    monkeypatch.setenv("LOCAL_KEY", "hunter2hunter2")
    given = EndpointConfig("LOCAL_KEY")
    assert key_search.problems(Players(endpoints={"a": given})) == []
    (problem,) = key_search.problems(Players(endpoints={"a": dataclasses.replace(given, cache="hunter2hunter2")}))
    assert problem.startswith("endpoints.a.cache: holds the key of the environment variable LOCAL_KEY")

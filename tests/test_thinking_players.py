"""Every player, judge and server that has weights tells its chat template what was configured for it."""

import json

import pytest
import thinking_models
from thinking_models import SIGN

from dfc import validation
from dfc.config import Evaluate, ModelConfig, PlayingRunConfig, RolloutConfig, SamplingConfig, ServingConfig
from dfc.errors import ConfigError, WeightsError
from dfc.evaluation.tournament_players import TournamentPlayers
from dfc.inference.engine import Engine
from dfc.launch import play, serve
from dfc.models.chat import ChatTokenizer
from dfc.rollout import model_player
from dfc.rollout.workers import RolloutWorkers
from dfc.tools.serving import requests, server

GAMES = {"Nim-v0": {}}
ROLLOUT = RolloutConfig(slots=2, max_length=96, max_reply_length=4)


def thinks(tokenizer):
    """Whether a prompt says that the reply may think."""
    return not tokenizer.decode(tokenizer.first_turn("Hi")).endswith(SIGN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return thinking_models.write(tmp_path_factory.mktemp("thinking") / "model")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return thinking_models.write_run(tmp_path_factory.mktemp("runs") / "run", enable_thinking=False)


def workers_of(folder, enable_thinking):
    model = ModelConfig(path=str(folder), enable_thinking=enable_thinking)
    return RolloutWorkers(PlayingRunConfig(games=GAMES, rollout=ROLLOUT, model=model), sampling=SamplingConfig())


def test_a_run_that_plays_tells_its_policys_template_what_is_configured(folder):
    assert [thinks(workers_of(folder, value).host.tokenizer) for value in (None, True, False)] == [True, True, False]


def test_a_model_whose_template_does_not_look_at_the_setting_is_refused_with_it():
    with pytest.raises(WeightsError, match="enable_thinking is set to False, but the chat template does not read it"):
        workers_of("tiny_player", enable_thinking=False)


def test_an_opponent_is_told_what_the_policy_is_and_one_that_was_trained_otherwise_is_refused(folder, run):
    said = r"was trained with model\.enable_thinking=False, this run has (None|True), .* --config\.model\.enable_thinki"
    for value in (None, True):
        workers = workers_of(folder, value)
        workers.seat(str(folder))
        for path in (run, run / "policy"):
            with pytest.raises(ConfigError, match=said):
                workers.seat(str(path))
    workers_of(folder, enable_thinking=False).seat(str(run))


def test_an_opponent_whose_run_told_its_template_nothing_is_refused_beside_a_policy_that_is_told(folder, tmp_path):
    silent = thinking_models.write_run(tmp_path / "run", enable_thinking=None)
    workers_of(folder, enable_thinking=None).seat(str(silent))
    for value in (True, False):
        said = rf"was trained with model\.enable_thinking=None, this run has {value}, .*enable_thinking=none"
        for path in (silent, silent / "policy"):
            with pytest.raises(ConfigError, match=said):
                workers_of(folder, value).seat(str(path))


def tournament(*policies, **given):
    return Evaluate(games=GAMES, rollout=ROLLOUT, policies=policies, **given)


def test_each_model_of_a_tournament_is_told_its_own(folder, run):
    config = tournament(
        f"plain={folder}", f"off={folder}", f"run={run}", f"on={run}", enable_thinking={"off": False, "on": True}
    )
    assert validation.problems(config) == []
    with TournamentPlayers(config) as players:
        told = {name: text.partition(", ")[2] for name, text in players.fingerprints().items()}
        found = {
            name: thinks(players._engine_groups[players._engine_group_of[name]].host.tokenizer)
            for name in ("plain", "off", "run", "on")
        }
    assert found == {"plain": True, "off": False, "run": False, "on": True}
    off, on = "enable_thinking=False", "enable_thinking=True"
    assert told == {"plain": "", "off": off, "run": off, "on": on}  # on record, and compared when a run goes on


def test_a_template_that_cannot_be_used_is_said_with_whose_it_is():
    said = "policy 'small': .*: enable_thinking is set to False, but the chat template does not read it"
    with pytest.raises(WeightsError, match=said):
        TournamentPlayers(tournament("small=tiny_player", "strong", enable_thinking={"small": False}))


def test_a_setting_of_nobody_who_is_a_model_is_refused(folder):
    for name in ("nobody", "strong"):
        config = tournament(f"m={folder}", "strong", enable_thinking={name: False})
        [problem] = validation.problems(config)
        assert problem == f"enable_thinking.{name}: must be a policy of this run that is a model (m)"


@pytest.mark.parametrize("value", ["no", 0, None])
def test_a_setting_that_is_no_truth_is_refused(folder, value):
    [problem] = validation.problems(tournament(f"m={folder}", "strong", enable_thinking={"m": value}))
    assert "must be a mapping such as {'base': False}" in problem


def test_a_model_in_the_terminal_is_told_what_its_run_was_or_what_is_said(folder, run):
    found = [
        thinks(model_player.load_player(str(path), enable_thinking=value)._tokenizer)
        for path, value in ((folder, None), (folder, False), (run, None), (run, True), (run / "policy", None))
    ]
    assert found == [True, False, False, True, False]


def test_the_terminals_flag_reaches_every_model_and_is_refused_where_none_plays(run, monkeypatch, capsys):
    told = []

    def load(path, **given):
        told.append((path, given["enable_thinking"]))
        raise ConfigError(["enough"])

    monkeypatch.setattr(model_player, "load_player", load)
    words = ["--game=TicTacToe-v0", f"--opponent={run}"]
    assert play.main([*words, "--enable_thinking=true"]) == 2
    assert play.main([*words, "--enable_thinking=False"]) == 2
    assert play.main(words) == 2
    assert play.main(["--game=twenty_questions", f"--world={run}", "--enable_thinking=true"]) == 2
    assert told == [(str(run), True), (str(run), False), (str(run), None), (str(run), True)]
    capsys.readouterr()
    assert play.main(["--game=TicTacToe-v0", "--opponent=strong", "--enable_thinking=false"]) == 2
    assert "--enable_thinking=false: no local model plays" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        play.main([*words, "--enable_thinking=maybe"])
    assert "must be true or false, got 'maybe'" in capsys.readouterr().err


# ---- the server -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uncompiled():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "warm_up", lambda _: None)  # its programs are compiled by the first request
        yield


SERVING = {"slots": 1, "max_length": 128}


def prompt(served, **fields):
    """The text that a request's conversation becomes."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    request = requests.parse(json.dumps(body).encode())
    tokenizer = requests.tokenizer(request, served.tokenizer, served.thinking)
    return tokenizer.decode(requests.token_ids(request, tokenizer))


@pytest.mark.usefixtures("uncompiled")
def test_a_server_tells_what_the_request_says_then_what_it_was_told_then_what_the_run_was(folder, run):
    said = {"chat_template_kwargs": {"enable_thinking": True}}, {"chat_template_kwargs": {"enable_thinking": False}}
    nothing = {}, {"chat_template_kwargs": None}, {"chat_template_kwargs": {}}
    for path, setting, default in (
        (folder, None, True),
        (folder, False, False),
        (run, None, False),
        (run, True, True),
    ):
        served = server.load(str(path), ServingConfig(**SERVING, enable_thinking=setting)).served
        assert [not prompt(served, **fields).endswith(SIGN) for fields in said] == [True, False]
        assert {not prompt(served, **fields).endswith(SIGN) for fields in nothing} == {default}


@pytest.mark.usefixtures("uncompiled")
def test_a_server_refuses_what_its_template_does_not_look_at():
    served = server.load("tiny_player", ServingConfig(**SERVING)).served
    assert served.thinking == {}
    with pytest.raises(requests.RequestError) as caught:
        prompt(served, chat_template_kwargs={"enable_thinking": False})
    assert (caught.value.status, caught.value.param) == (400, "chat_template_kwargs.enable_thinking")
    assert "does not read it" in caught.value.message
    with pytest.raises(WeightsError, match="enable_thinking is set to True, but the chat template does not read it"):
        server.load("tiny_player", ServingConfig(**SERVING, enable_thinking=True))


def test_a_setting_with_which_the_template_cannot_be_used_is_not_offered(folder, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    raises = "{%- if enable_thinking is defined and not enable_thinking -%}{{ raise_exception('always') }}{%- endif -%}"
    template = (folder / "chat_template.jinja").read_text() + raises
    (tmp_path / "chat_template.jinja").write_text(template)
    found = server.thinking(ChatTokenizer.load(tmp_path))
    assert list(found) == [True]


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"enable_thinking": "no"}, "chat_template_kwargs.enable_thinking"),
        ({"enable_thinking": 0}, "chat_template_kwargs.enable_thinking"),
        ({"thinking": False}, "chat_template_kwargs.thinking"),
        ({"enable_thinking": False, "date_string": "today"}, "chat_template_kwargs.date_string"),
        ({"x\x1b[2J" * 9000: 1}, None),
        ([], "chat_template_kwargs"),
        (False, "chat_template_kwargs"),
        ("enable_thinking", "chat_template_kwargs"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_whatever_else_a_request_tells_the_template_is_refused_by_name(value, param):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": value}
    with pytest.raises(requests.RequestError) as caught:
        requests.parse(json.dumps(body).encode())
    assert caught.value.status == 400
    assert param in (None, caught.value.param)
    assert caught.value.message.startswith(("chat_template_kwargs", "'chat_template_kwargs."))
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()


def test_the_servers_flag_takes_true_and_false_only(monkeypatch, capsys):
    told = []
    monkeypatch.setattr(serve, "_main", lambda _, config, __: told.append(config.enable_thinking) or 0)
    for words in (["--enable_thinking=false"], ["--enable_thinking", "True"], []):
        assert serve.main(["--policy=x", *words]) == 0
    assert told == [False, True, None]
    with pytest.raises(SystemExit):
        serve.main(["--policy=x", "--enable_thinking=None"])
    assert "must be true or false, got 'None'" in capsys.readouterr().err

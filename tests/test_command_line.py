import os
import shlex
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import dfc
from dfc.config import DivideFuseConquer, MeshConfig
from dfc.errors import CheckpointError, ConfigError
from dfc.launch import command_line, devices
from dfc.launch.__main__ import main
from dfc.runs.stop_signals import Interrupted, Stop

CHECKOUT = Path(__file__).resolve().parents[1]
SMOKE = "--config=configs/smoke.py"
PASTED = f"{shlex.quote(sys.executable)} -m dfc.launch"  # what a shell takes, wherever Python lies
TINY = "--config.model.path=tiny_player"  # in the place of weights that are not there


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems_of(*arguments):
    with pytest.raises(ConfigError) as caught:
        command_line.parse(arguments)
    return caught.value.problems


def config_of(*arguments):
    return command_line.parse([SMOKE, *arguments]).config


def write_config(path, body):
    path.write_text(
        f"from dfc.config import *\nfrom dfc.launch.command_line import load\ndef get_config():\n    {body}\n",
        encoding="utf-8",
    )
    return f"--config={path}"


def test_overrides_work_with_a_space_and_the_last_of_a_key_holds():
    assert config_of("--config.rollout.slots", "3", "--config.rollout.slots=5", "--config.seed", "9").rollout.slots == 5
    config = config_of("--config.half_negative", "--config.seed", "9")
    assert (config.half_negative, config.seed) == (True, 9)


def test_all_problems_are_listed_together_with_key_value_allowed_and_nearest():
    found = problems_of(
        SMOKE,
        "--wrkdir=x",
        "stray",
        "--config.rollout.slot=3",
        "--config.learning_rate=1",
        "--config.seed=x",
        "--config.optimizer=3",
        "--config.rollout.slots.more=1",
        "--config.half_negative=perhaps",
        "--config.games.TicTacTo-v0.show_board=true",
        "--config.games.TicTacToe-v0.show_bord=true",
        "--config.games.Nim-v0.piles=(1,2)",
        "--config.games=3",
        "--config.model.dtype=float64",
        "--config.optimizer.b1=nan",
    )
    expected = [
        "--wrkdir=x: there is no flag --wrkdir; did you mean 'workdir'?",
        "'stray': not expected here",
        "there is no 'slot' in rollout; did you mean --config.rollout.slots?",
        "--config.learning_rate: there is no 'learning_rate' in the configuration of divide_fuse_conquer; write --config.optimizer.learning_rate=1",  # noqa: E501 - one message
        "--config.seed=x: must be a whole number, at least 0 and below 4,294,967,296",
        "--config.optimizer: a section; set its values one by one: learning_rate,",
        "rollout.slots is a whole number, at least 1 and at most 100,000, not a section",
        "--config.half_negative=perhaps: must be true or false",
        "there is no game 'TicTacTo-v0'; did you mean 'TicTacToe-v0'?",
        "TicTacToe-v0 has no option 'show_bord'; did you mean 'show_board'?",
        "Nim-v0 is not among this run's games; add it: --config.games.Nim-v0={}",
        "--config.games=3: must be a mapping such as",
        "--config.model.dtype=float64: must be one of 'float32', 'bfloat16'",
        "optimizer.b1=nan (float): must be a number",
    ]
    assert len(found) == len(expected)
    for text in expected:
        assert any(text in problem for problem in found), text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--config.batch.row_length=100"], "batch.row_length=100: must be at least rollout.max_length=256"),
        (["--config.rollout.max_reply_length=300"], "must be at most rollout.max_length=256"),
        (["--config.opponent_reply.max_length=300"], "must be at most rollout.max_length=256"),
        (
            ["--config.opponent=itself", "--config.train_both_seats", "--config.opponent_reply.sampling.temperature=0"],
            "opponent_reply: must be left out with train_both_seats",
        ),
        (["--config.games={}"], "games is empty: name at least one id; allowed: TicTacToe-v0,"),
        (["--config.games={'Tic': {}}"], "did you mean 'TicTacToe-v0'?"),
        (["--config.games.GuessTheNumber-v0.min_number=30"], "games.GuessTheNumber-v0: "),
        (["--config.acceptance.games=5"], "acceptance.games=5: must be even"),
        (["--config.group_size=1"], "must be at least 2"),
        (["--config.rollout.slots=0"], "rollout.slots=0: must be at least 1"),
        (["--config.rollout.max_actions=-1"], "rollout.max_actions=-1: must be at least 0"),
        (["--config.rollout.max_prompt_length=-1"], "rollout.max_prompt_length=-1: must be at least 0"),
        (
            ["--config.rollout.max_prompt_length=300"],
            "rollout.max_prompt_length=300: must be at most rollout.max_length=256, the whole context",
        ),
        (["--config.rollout.max_replies=120"], "there is no 'max_replies' in rollout; allowed: slots,"),
        (["--config.reward.overrun=0.5"], "overrun=0.5: must be at least -1e+06 and at most 0"),
        (["--config.rollout.sampling.top_p=0"], "--config.rollout.sampling.top_p: there is no 'sampling' in rollout"),
        (
            ["--config.epsilon=0.2"],
            "TRL and Tunix is --config.grpo.clip_ratio=0.2 (the share of random actions is random_action_rate)",
        ),
        (["--config.random_action_rate=1.2"], "random_action_rate=1.2: must be at least 0 and at most 1"),
        (["--config.sampling.temperature=0"], "sampling.temperature=0.0: must be above 0; without chance"),
        (["--config.rollout.stop=('',)"], "must hold no empty text"),
        (["--config.mesh.data=0"], "mesh.data=0: must be at least 1, or -1"),
        (["--config.mesh.data=-1"], "mesh.data and mesh.fsdp are all -1"),
        (
            ["--config.mesh.fsdp=3"],
            "(mesh.data x mesh.fsdp); the nearest one is --config.batch.micro_batch_rows=9",
        ),
        (["--workdir=gs://bucket/run"], "--workdir=gs://bucket/run: is an address, and what is written here needs a"),
        (["--programs=gs://b"], "--programs=gs://b: is an address"),
        (["--config.name=a/b"], "name='a/b': must be one folder name"),
        (["--config.sampling.top_k=1"], "sampling.top_k=1: must be 2 or more, or 0 for no limit"),
        (
            ["--config.method=imitate_wins", "--config.sampling.min_p=0.1"],
            "sampling.top_k, .top_p and .min_p: must be left out with method='imitate_wins'",
        ),
        (["--config.grpo.updates_per_iteration=9"], "must be at most 2"),
        (
            [
                "--config.adapter.rank=4",
                "--config.adapter.base=nf4",
                "--config.method=naive_single",
            ],
            "must be 'full' with method='naive_single'",
        ),
        (
            ["--config.mixed_priority.a=0", "--config.mixed_priority.b=0"],
            "are both 0",
        ),
        (["--config.model.path=nowhere"], "model.path='nowhere': no such folder"),
        (["--config.model.path="], "model.path is empty"),
        (["--config.seed"], "--config.seed: a value is missing"),
        (["--config"], "--config"),
    ],
)
def test_a_value_that_cannot_work_is_one_problem_that_says_why(words, text):
    found = problems_of(SMOKE, *words)
    assert len(found) == 1
    assert text in found[0]


@pytest.mark.parametrize(
    ("file", "words", "text"),
    [
        ("evaluate", ["--config.sampling.top_p=0"], "sampling.top_p=0.0: must be above 0 and at most 1"),
        ("evaluate", ["--config.model.path=x"], "there is no 'model' in the configuration of evaluate"),
        (
            "evaluate_tasks",
            ["--config.policies=simple", "--config.temperatures=(-1, 0.5)"],
            "(-1, 0.5): must be at least 0 each",
        ),
        ("paprika_tiny", [TINY, "--config.collect.samples_of.wordle=0"], "at least 1 and at most 1,000,000,000 each"),
        ("tiny_player", ["--config.width=40"], "must be a multiple of 32"),
        ("tiny_player", ["--config.steps=0"], "steps=0: must be at least 1 and at most"),
        ("tiny_player", ["--config.skill=0.5,2"], "skill=(0.5, 2.0): must be at least 0 and at most 1 each"),
        ("smoke", ["--config.rollout.prefill_buckets=0,4"], "rollout.prefill_buckets=(0, 4): must be at least 1 each"),
        ("smoke", ["--config.checkpoint.keep=1"], "checkpoint.keep=1: must be at least 2"),
        (
            "paprika_tiny",
            [TINY, "--config.stages=collect,rest"],
            "each one of 'collect', 'build_data', 'sft', 'rpo', 'eval",
        ),
    ],
)
def test_values_of_other_recipes_are_checked_too(file, words, text):
    (problem,) = problems_of(f"--config=configs/{file}.py", *words)
    assert text in problem


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("return DivideFuseConquer(seeed=1)", "line 4 raised TypeError: "),
        ("return DivideFuseConquer(seeed=1)", "; did you mean seed=...?"),
        ("return 1 / 0", "line 4 raised ZeroDivisionError: division by zero"),
        ("return ]", "line 4 is no Python: "),
        (
            "return {}",
            "get_config() must return one of dfc.config (DivideFuseConquer, Grpo, Paprika, TaskCurriculum, Playpen,",
        ),
        ("return DivideFuseConquer(games={'Nim-v0': {}}, seed='1')", "seed='1' (str): must be a whole number"),
        ("return DivideFuseConquer(games={'Nim-v0': {}}, seed=True)", "seed=True (bool): must be a whole number"),
        (
            "return DivideFuseConquer(games={'Nim-v0': {}}, rollout=3)",
            "got 3 (int); write rollout=RolloutConfig(",
        ),
        ("return DivideFuseConquer(games=['Nim-v0'])", "games=['Nim-v0']: must be a mapping"),
        ("return DivideFuseConquer(games={'Nim-v0': 3})", "games.Nim-v0=3: must be a mapping of options"),
        ("return RunConfig()", "get_config() must return one of dfc.config ("),
        (
            "return Collect(sampling=RolloutConfig(), games={'wordle': {}})",
            "got RolloutConfig; write sampling=",
        ),
    ],
)
def test_a_faulty_file_is_named_with_line_and_cause(here, body, text):
    found = problems_of(write_config(here / "c.py", body), "--config.sead=1")
    assert len(found) == 2
    assert any(text in problem for problem in found)
    assert any("did you mean --config.seed?" in problem for problem in found)


def test_an_edited_file_is_read_anew(here):
    for seed in (1, 2):  # the same size within one second: a cached compilation would be taken
        path = write_config(here / "c.py", f"return DivideFuseConquer(seed={seed}, games={{'Nim-v0': {{}}}})")
        assert command_line.parse([path]).config.seed == seed


def test_a_missing_file_names_the_nearest_one_that_comes_with_dfc(here):
    assert "did you mean configs/smoke.py?" in problems_of("--config=configs/smok.py")[0]
    (here / "f.py").write_text("x = 1\n")
    assert "has no get_config()" in problems_of("--config=f.py")[0]
    assert "--config is missing" in problems_of("--config.seed=1")[0]


def test_a_file_of_the_current_folder_comes_before_the_one_of_dfc(here):
    (here / "configs").mkdir()
    write_config(here / "configs/smoke.py", "return DivideFuseConquer(seed=77, games={'Nim-v0': {}})")
    assert command_line.parse([SMOKE]).config.seed == 77


# ---- main -------------------------------------------------------------------------------------------------------


@pytest.fixture
def recipe(monkeypatch):
    """Puts a recipe of the test's own where smoke.py's recipe would be; the test sets its `run`."""
    module = types.ModuleType("dfc.methods.divide_fuse_conquer")
    module.run = lambda *_: None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def raising(error):
    def run(*_):
        raise error

    return run


def test_the_recipe_gets_configuration_folder_and_stop(recipe):
    got = []
    recipe.run = lambda *arguments: got.extend(arguments)
    assert main([SMOKE, "--workdir=w", "--config.seed=5"]) == 0
    config, folder, stop = got
    assert config.seed == 5
    assert folder.path == Path("w")
    assert isinstance(stop, Stop)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (CheckpointError("no space for it"), 1, "error: no space for it"),
        (OSError(28, "No space left on device", "/some/file"), 1, "error: /some/file: No space left on device"),
        (OSError(28, "No space left on device"), 1, "error: runs/smoke: No space left on device"),
        (Interrupted(15), 143, "stopped by SIGTERM; everything finished is saved, what was under way begins again."),
        (Interrupted(2), 130, f"run the same command:\n{PASTED} --config=configs/smoke.py '--config.games="),
        (KeyboardInterrupt(), 130, "stopped at once"),
    ],
)
def test_a_run_that_ends_early_says_why_and_has_its_exit_code(recipe, capsys, error, code, text):
    recipe.run = raising(error)
    assert main([SMOKE, "--config.games={'Nim-v0': {}}"]) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_jax_is_loaded_is_not_lost_and_begins_nothing(here, capsys, monkeypatch, number):
    def loading():
        os.kill(os.getpid(), number)
        return ["computing on nothing"]

    monkeypatch.setattr(devices, "lines", loading)
    before = signal.getsignal(number)
    assert main(["--config=configs/smoke.py", "--workdir=run"]) == 128 + number
    assert signal.getsignal(number) is before
    said = capsys.readouterr()
    assert f"stopped by {signal.Signals(number).name}; nothing had begun. The command was:\n" in said.err
    assert "--workdir=run" in said.err.splitlines()[-1]
    assert not (here / "run").exists()


def test_a_limit_below_a_games_longest_play_is_said_once_before_the_run(recipe, capsys):
    recipe.run = lambda *_: print("begins")  # noqa: T201 - what a recipe says first
    games = "--config.games={'Poker-v0': {}, 'TicTacToe-v0': {}, 'Nim-v0': {}}"
    assert main([SMOKE, games, "--config.rollout.max_actions=10"]) == 0
    first, on, notice, after = capsys.readouterr().out.splitlines()
    assert on.startswith("computing on ")
    assert first == f"dfc {dfc.__version__}, divide_fuse_conquer: runs/smoke"  # at once: libraries take seconds to load
    assert notice.startswith(
        "rollout.max_actions=10 is below the longest play of Nim-v0 12, Poker-v0 200: longer games"
    )
    assert after == "begins"
    assert main([SMOKE, "--workdir=w", "--config.rollout.max_actions=200"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["begins"]


@pytest.mark.usefixtures("recipe")
def test_a_wrong_configuration_touches_no_folder(here, capsys):
    assert main([SMOKE, "--workdir=w", "--config.seed=x"]) == 2
    assert main([SMOKE, "--workdir=w", "--config.mesh.fsdp=4", "--config.seed=1"]) == 2  # the tests have 8 devices
    message = capsys.readouterr().err
    said = "--config.seed=x: must be a whole number, at least 0 and below 4,294,967,296\n"
    assert f"1 problem in the configuration:\n  - {said}" in message
    assert "the product is 4, but must be the number of devices, 8" in message
    assert list(here.iterdir()) == []


def test_another_configurations_folder_is_refused_with_exit_code_1(capsys, recipe):
    recipe.run = lambda _config, folder, _stop: folder.append("metrics", [{"step": 1}])
    assert main([SMOKE, "--workdir=w"]) == 0
    assert main([SMOKE, "--workdir=w", "--config.seed=1"]) == 1
    assert "seed: the folder has 0, this run has 1" in capsys.readouterr().err


def test_a_mesh_must_fit_the_devices():
    def found(devices, **sizes):
        config = DivideFuseConquer(mesh=MeshConfig(**sizes))
        return command_line.validation.device_problems(config, devices)

    assert found(8) == found(8, data=2, fsdp=2, tensor=2) == found(8, data=2, tensor=2) == []
    assert "must divide the 8 devices" in found(8, data=3)[0]
    assert "must be the number of devices, 8" in found(8, fsdp=4)[0]
    assert "must be a multiple of 16" in found(16)[0]


def test_from_another_folder_errors_and_help_come_at_once_without_jax_or_a_traceback(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-X", "importtime", "-m", "dfc.launch", SMOKE, "--config.seeds=1", "--workdir=w"]
    done = subprocess.run(  # noqa: S603 - words of this test
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    message = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("import time:"))
    assert done.returncode == 2
    assert message.startswith("1 problem in the configuration:\n  - --config.seeds: there is no 'seeds'")
    assert "Traceback" not in message
    assert not [line for line in done.stderr.splitlines() if line.split("|")[-1].strip() in {"jax", "numpy"}]
    assert list(tmp_path.iterdir()) == []

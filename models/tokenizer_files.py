"""Reads the tokenizer of a folder in the Hugging Face layout; refuses untrusted files that could harm a reader.

Nothing of a folder is run: no code, no pipe is waited for, no file beyond all bounds is read, and no step of a
tokenizer that lengthens a text without bound.
"""

import base64
import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dfc.errors import WeightsError, cut
from dfc.models import model_folders
from dfc.models.safetensors_format import BrokenFileError, parse_json, refuse_special

_LARGEST_FILE = 256 * 2**20  # bytes; the tokenizers of the largest vocabularies have 40 MB
_HIGHEST_TOKEN_ID = 2**31 - 1  # token ids are int32
_MOST_STEPS = 64  # of a tokenizer; Gemma, Llama, Mistral and Qwen have 1 to 4
_MOST_GROWTH = 64  # times; Unicode's own normal forms make 18 characters of one
_LARGEST_TABLE = 4 * 2**20  # characters; that of Unicode's normal form NFKC has 0.3 million
FILES = "a Hugging Face folder holds tokenizer.json, tokenizer_config.json and its chat template: copy them there"


def declared_vocabulary(folder: Path) -> int | None:
    """Returns vocab_size of the folder's config.json or of its text_config, None if neither declares one."""
    path = folder / model_folders.CONFIG
    if not path.exists():
        return None
    config = model_folders.read_json(path)
    # A model with an image tower (Gemma 3) keeps its decoder's entries in text_config.
    text = config.get("text_config")
    size = config.get("vocab_size", text.get("vocab_size") if isinstance(text, Mapping) else None)
    if size is not None and not _is_token_id(size):
        raise WeightsError(f"{path}: vocab_size: expected a number of tokens, got {cut(repr(size))}")
    return size


def declared_end_token_ids(folder: Path) -> tuple[int, ...]:
    """Returns eos_token_id of the folder's generation_config.json, or of its config.json where that names none.

    A number or a list there, as `transformers.GenerationConfig` reads both files.
    """
    for path in (folder / "generation_config.json", folder / model_folders.CONFIG):
        config = model_folders.read_json(path) if path.exists() else {}
        declared, text = config.get("eos_token_id"), config.get("text_config")
        if declared is None and isinstance(text, Mapping):
            declared = text.get("eos_token_id")
        token_ids = tuple(declared) if isinstance(declared, list) else () if declared is None else (declared,)
        if not all(map(_is_token_id, token_ids)):
            raise WeightsError(
                f"{path}: eos_token_id: expected a token id or a list of them, got {cut(repr(declared))}"
            )
        if token_ids:
            return token_ids
    return ()


def _is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _HIGHEST_TOKEN_ID


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Lets transformers keep its advice to itself, such as to install PyTorch, which no tokenizer needs."""
    variable = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


@contextlib.contextmanager
def libraries_at(folder: Path, what: str) -> Iterator[None]:
    """Turns whatever the tokenizer's libraries raise into a WeightsError with what could not be done.

    On untrusted files they raise errors of every kind. A panic of the Rust library, such as when a regular
    expression of ``tokenizer.json`` gives up on a text, is no `Exception`, and its class cannot be imported.
    """
    try:
        yield
    except WeightsError:  # names everything
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        came = cut(" ".join(f"{type(error).__name__}: {error}".split()), 400)
        if "trust_remote_code" in came:
            came = "it asks for code of its own (auto_map), which is never run; save its tokenizer as tokenizer.json"
        raise WeightsError(f"{folder}: {what} ({came}): {FILES}") from error


def _refuse_files(folder: Path) -> None:
    """Refuses a folder with a file that a reader would wait for (a pipe) or that is beyond all bounds."""
    for file in sorted([*folder.glob("*"), *folder.glob("additional_chat_templates/*")]):
        if file.suffix not in (".json", ".jinja", ".model", ".txt") or file.name.endswith(".index.json"):
            continue
        try:
            refuse_special(file)
        except BrokenFileError as error:
            raise WeightsError(f"{file}: {error}") from error
        if file.is_file() and file.stat().st_size > _LARGEST_FILE:
            raise WeightsError(f"{file}: expected at most {_LARGEST_FILE} bytes, got {file.stat().st_size}: {FILES}")


def _growth(step: Mapping[str, Any]) -> float:
    """Returns by how much one step of a tokenizer may lengthen a text at most, 1 for a step that does not.

    Readers ignore fields of other kinds of steps, so each counts, whatever the step calls itself.
    """
    growth = 1.0
    pattern, content = step.get("pattern"), step.get("content")
    if isinstance(content, str) and pattern is not None:  # Replace
        fixed = pattern.get("String") if isinstance(pattern, Mapping) else None
        # An expression, like an empty string, may match between any two characters.
        growth *= max(1.0, len(content) / len(fixed) if isinstance(fixed, str) and fixed else 1.0 + len(content))
    if isinstance(step.get("prepend"), str):
        growth *= max(1, len(step["prepend"]))
    if "precompiled_charsmap" in step:
        growth *= _longest_text(step["precompiled_charsmap"])
    if "replacement" in step:
        growth *= 2.0  # Metaspace puts a character before each piece, and another step may cut pieces again
    if step.get("type") == "ByteLevel" or "trim_offsets" in step:
        growth *= 3.0  # one character per byte, most of which have two bytes again; and a space before each piece
    if "suffix" in step or "word_delimiter_token" in step:
        growth *= 3.0  # BPEDecoder and CTC make a space of it; an empty one is between any two characters
    return growth


def _longest_text(table: object) -> float:
    """Returns the length of the longest text that SentencePiece's table of characters (in base64) puts for one."""
    if not isinstance(table, str) or len(table) > _LARGEST_TABLE:
        return float("inf")
    # The size of an index, the index, and the texts with zeros between.
    data = base64.b64decode(table)
    texts = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
    return float(max(1, *(len(text.decode(errors="replace")) for text in texts)))


def refuse_growth(file: Path) -> None:
    """Refuses a ``tokenizer.json`` whose steps may lengthen a text without bound, before any of them runs.

    Steps run in this process, also on the tokens that are added while the file is read: 45 that replace ``i`` by
    ``ii`` take all memory there is. Those before the model multiply with each other, those of the decoder too.

    Raises:
      WeightsError: there are more than 64 steps, or their factors multiply to more than 64.
      ValueError: the file cannot be read.
    """
    data = parse_json(file.read_bytes())
    if not isinstance(data, dict):
        raise ValueError(f"{file.name}: expected a JSON object, got a {type(data).__name__}")  # noqa: TRY004
    for parts in (("normalizer", "pre_tokenizer", "post_processor"), ("decoder",)):
        count, growth = 0, 1.0
        for name in parts:
            left = [data.get(name)]
            while left:
                step = left.pop()
                if isinstance(step, Mapping):
                    # What a template of tokens consists of are dictionaries too; a step has a type, or had before 0.6.
                    count += "type" in step or "pattern" in step or "prepend" in step
                    growth *= 1.0 if name == "post_processor" else _growth(step)
                    left.extend(step.values())
                elif isinstance(step, list):
                    left.extend(step)
                if count > _MOST_STEPS or growth > _MOST_GROWTH:
                    raise WeightsError(
                        f"{file}: {' and '.join(parts)}: expected at most {_MOST_STEPS} steps that lengthen a text at "
                        f"most {_MOST_GROWTH} times, got {'more' if count > _MOST_STEPS else f'{growth:.3g} times'}: "
                        "texts would take time and memory without bound; use the tokenizer of the model's publisher"
                    )


def read_tokenizer(folder: Path) -> Any:  # noqa: ANN401  # transformers carries no types
    """Returns transformers' tokenizer of a folder, from local files only; no code in it is run."""
    # Importing transformers takes over a second, and only a process that loads a model needs it.
    with _without_advice():
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - slow to import

    _refuse_files(folder)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise WeightsError(f"{folder}: no tokenizer (tokenizer.json, tokenizer.model or vocab.json) found: {FILES}")
    # tokenizer.json states the whole pipeline; the model-specific classes behind AutoTokenizer may replace parts of it.
    kind: Any = PreTrainedTokenizerFast
    named = {"tokenizer_file": str(folder / "tokenizer.json")}
    if not (folder / "tokenizer.json").is_file():
        with _without_advice():
            from transformers import AutoTokenizer  # noqa: PLC0415 - it takes PyTorch along, two more seconds

        kind, named = AutoTokenizer, {}
    with libraries_at(folder, "its tokenizer cannot be read"):
        for file in sorted(folder.glob("tokenizer*.json")):
            if file.name != "tokenizer_config.json":
                refuse_growth(file)
        # Left open, the user would be asked in the middle of a start, and a "y" runs code of the folder.
        pretrained = kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **named)
    if not isinstance(pretrained, PreTrainedTokenizerFast):
        raise WeightsError(f"{folder}: {type(pretrained).__name__} has no form of the `tokenizers` library: {FILES}")
    if not pretrained.chat_template:
        raise WeightsError(f"{folder}: no chat template (chat_template.jinja or in tokenizer_config.json): {FILES}")
    return pretrained


def chat_template_of(pretrained: Any, folder: Path) -> str:  # noqa: ANN401  # transformers carries no types
    """Returns the chat template that transformers would take."""
    with libraries_at(folder, "it has no chat template for plain messages"):
        text = pretrained.get_chat_template()
    if not isinstance(text, str):
        raise WeightsError(f"{folder}: expected a chat template as a string, got a {type(text).__name__}: {FILES}")
    return text

"""The tokenizer of a GGUF file in the layout of Hugging Face: ``tokenizer.json`` and what stands beside it.

A GGUF file holds a vocabulary and its merges, and names the rule by which text is cut before merging
(``tokenizer.ggml.pre``). Another rule gives other tokens, so only rules that were compared are known here; transformers
5.23 takes GPT-2's rule for those it does not know, ``smollm`` among them.

Bytes that a vocabulary lacks vanish from a text, as in the tokenizers these files were made from: SmolLM2 has no
token for some control characters and for characters of private planes.

Sources: ``src/llama-vocab.cpp`` in https://github.com/ggml-org/llama.cpp (rules and kinds of tokens by name);
transformers' ``Qwen2Tokenizer``.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from dfc.errors import WeightsError, shown
from dfc.models.hf_config import shown_name
from dfc.models.model_folders import listed

_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _smollm(tokenizer: Tokenizer) -> None:
    """Digits stand alone, so white space before one belongs to no digit; the rest is cut as by GPT-2."""
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _qwen2(tokenizer: Tokenizer) -> None:
    """One expression for the words, over text in Unicode's form NFC."""
    tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(_QWEN2_WORDS), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


RULES: Mapping[str, Callable[[Tokenizer], None]] = {"smollm": _smollm, "qwen2": _qwen2}
"""By ``tokenizer.ggml.pre``: sets how a tokenizer cuts text."""

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # llama.cpp's kinds of tokens
_KNOWN_KINDS = frozenset({_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED})
_ADDITIONS = ("add_bos_token", "add_eos_token", "add_space_prefix")  # to a text, unasked
_READ = frozenset({"model", "pre", "tokens", "token_type", "merges", "scores", *_ADDITIONS})
_PREFIX, _TEMPLATE = "tokenizer.ggml.", "tokenizer.chat_template"
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def tokenizer_files(path: Path, fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the tokenizer files of a model by name: their texts, from a GGUF file's metadata; messages name `path`.

    Raises:
      WeightsError: the file has no chat template, or its tokenizer is none that is converted here: names what is not.
    """
    problems = _settings_problems(fields) + _vocabulary_problems(fields)
    if problems:
        raise WeightsError(f"{path}: its tokenizer cannot be converted:{listed(problems)}")
    special = {
        name: _token_id(fields, theirs) for name, theirs in _SPECIAL.items() if _token_id(fields, theirs) is not None
    }
    tokens = fields[f"{_PREFIX}tokens"]
    ends = [token_id for name in ("eos", "eot") if (token_id := _token_id(fields, name)) is not None]
    try:
        tokenizer = _tokenizer(tokens, fields[f"{_PREFIX}token_type"], fields[f"{_PREFIX}merges"])
        RULES[fields[f"{_PREFIX}pre"]](tokenizer)
    except Exception as error:  # the library raises nothing more special
        raise WeightsError(f"{path}: its tokenizer cannot be built: {shown_name(str(error))}") from error
    settings = {
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",  # others cut text by rules of their own
        **{name: tokens[token_id] for name, token_id in special.items()},
    }
    generation = {
        "bos_token_id": special.get("bos_token"),
        "eos_token_id": list(dict.fromkeys(ends)),
        "pad_token_id": special.get("pad_token"),
    }
    return {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
        "generation_config.json": json.dumps(generation, indent=2) + "\n",
        "chat_template.jinja": fields[_TEMPLATE],
    }


def _token_id(fields: Mapping[str, Any], name: str) -> int | None:
    token_id: int | None = fields.get(f"{_PREFIX}{name}_token_id")
    return token_id


def _settings_problems(fields: Mapping[str, Any]) -> list[str]:
    """Returns which settings of a tokenizer are not converted here, one sentence each."""
    problems = []
    for name, allowed in (("model", ("gpt2",)), ("pre", tuple(RULES))):
        came = fields.get(_PREFIX + name)
        if came not in allowed:
            problems.append(f"{_PREFIX}{name}: expected {' or '.join(map(repr, allowed))}, got {shown(came)}")
    problems += [
        f"{_PREFIX}{name}: only false is converted, got {shown(fields[_PREFIX + name])}"
        for name in _ADDITIONS
        if fields.get(_PREFIX + name) not in (None, False)
    ]
    problems += [
        f"{shown_name(name)}: unknown, got {shown(fields[name])}"
        for name in sorted(fields)
        if name.startswith("tokenizer.") and not name.startswith(_TEMPLATE) and not _is_known(name)
    ]
    if not isinstance(fields.get(_TEMPLATE), str):
        problems.append(
            f"{_TEMPLATE}: expected the chat template, got {shown(fields.get(_TEMPLATE))}; a model that was not "
            "trained to chat has none"
        )
    return problems


def _vocabulary_problems(fields: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with tokens, their kinds, merges and the ids of special ones, one sentence each."""
    tokens, merges = (_texts(fields, name) for name in ("tokens", "merges"))
    if not tokens:
        return [f"{_PREFIX}tokens: expected a list of texts, got {shown(fields.get(_PREFIX + 'tokens'))}"]
    problems = []
    kinds = fields.get(f"{_PREFIX}token_type")
    if not isinstance(kinds, list) or len(kinds) != len(tokens) or not _KNOWN_KINDS.issuperset(kinds):
        known = ", ".join(map(str, sorted(_KNOWN_KINDS)))
        problems.append(f"{_PREFIX}token_type: expected one of {known} for each token, got {shown(kinds)}")
    if len(set(tokens)) != len(tokens):
        problems.append(f"{_PREFIX}tokens: expected different texts, {len(tokens) - len(set(tokens))} occur again")
    odd = next((merge for merge in merges if len(merge.split(" ")) != 2), None)
    if odd is not None or not merges:
        came = shown(odd or fields.get(_PREFIX + "merges"))
        problems.append(f"{_PREFIX}merges: expected a list of two texts each with a blank between, got {came}")
    for name in sorted(fields):
        token_id = fields[name]
        if name.startswith(_PREFIX) and name.endswith("_token_id") and token_id not in range(len(tokens)):
            problems.append(f"{shown_name(name)}: expected a token id below {len(tokens)}, got {shown(token_id)}")
    if f"{_PREFIX}eos_token_id" not in fields:
        problems.append(f"{_PREFIX}eos_token_id: missing; nothing would end a reply")
    return problems


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    """Returns a list of texts; an empty one for anything else."""
    values = fields.get(_PREFIX + name)
    return values if isinstance(values, list) and all(isinstance(value, str) for value in values) else []


def _is_known(name: str) -> bool:
    known = name.removeprefix(_PREFIX)
    return name.startswith(_PREFIX) and (known in _READ or known.endswith("_token_id"))


def _tokenizer(tokens: list[str], kinds: list[int], merges: list[str]) -> Tokenizer:
    """Returns the tokenizer before it has a rule; tokens of kind `_UNUSED` fill rows of the weights and are no text."""
    vocabulary = {token: i for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != _UNUSED}
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.decoder = decoders.ByteLevel()
    for kind in (_CONTROL, _USER_DEFINED):
        special = kind == _CONTROL
        added = [
            AddedToken(token, normalized=False, special=special)
            for token, its in zip(tokens, kinds, strict=True)
            if its == kind
        ]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    return tokenizer

"""One word for one thing: identifiers, config fields, metric and record names hold to the field's terms.

Only words that have no second meaning here are listed. Prose is read, not searched.
"""

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("dfc", "games", "models", "launch", "configs", "benchmarks")

# An old word of this project -> the field's.
INSTEAD = {
    "staff": "simulators",
    "rival": "baseline",
    "rivals": "baselines",
    "arena": "runner",
    "voice": "transcript",
    "voices": "transcripts",
    "job": "episode spec",
    "jobs": "episode specs",
    "fed": "prefilled, cached or processed",
    "unfed": "pending",
    "forgetful": "stateless",
    "cure": "hint",
    "anew": "again",
    "agreement": "multihost",
    "untold": "unreported",
    "worth": "reward, advantage or value",
    "ids": "tokens or token_ids; games or game_ids",
}
# What else these words are part of.
ALLOWED = {
    *("game_ids", "token_ids", "device_ids", "segment_ids"),  # ids that say of what
    "m_arena_max",  # of the C library
    "text_arena",
    *("bad_words_ids", "input_ids", "prompt_ids"),  # fields of transformers and TRL
}
# Attributes of other libraries' objects, by file: the tokens of a tokenizers.Encoding.
OF_OTHERS = {"models/chat.py": {"ids"}, "dfc/tools/small_models/build_tokenizer.py": {"ids"}}


def words_of(name):
    """The words of an identifier in small letters, for snake_case and CamelCase alike."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def objection(name):
    """Why an identifier is not in the vocabulary, or None."""
    words = f"_{'_'.join(words_of(name))}_"
    for allowed in ALLOWED:
        words = words.replace(f"_{allowed}_", "_")
    return next((f"{word}: say {INSTEAD[word]}" for word in words.split("_") if word in INSTEAD), None)


def names_of(source, of_others=frozenset()):
    """Yields (line, name) of everything a file names, and of texts that are names: keys, metrics, columns."""
    seeds = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="derive_seed"), args=arguments):
                seeds.update(id(argument) for argument in arguments)  # a seed's purpose may never change
            case ast.Attribute(attr=name) if name in of_others:
                pass
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(name=name):
                yield node.lineno, node.asname or name
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.Constant(value=str(text)) if id(node) not in seeds and re.fullmatch(
                r"/?[a-z]+([_/][a-z]+)*/?", text
            ):
                yield node.lineno, text


def sources():
    for folder in FOLDERS:
        # os.walk does not follow the links dfc/games, dfc/models and dfc/launch: every file is read once.
        for directory, _, files in os.walk(ROOT / folder):
            yield from (Path(directory, file) for file in sorted(files) if file.endswith(".py"))


def test_names_are_in_the_vocabulary():
    paths = list(sources())
    assert len(paths) > 200
    wrong = {
        f"{path.relative_to(ROOT)}:{line}: {name}: {why}"
        for path in paths
        for line, name in names_of(
            path.read_text(encoding="utf-8"), OF_OTHERS.get(str(path.relative_to(ROOT)), frozenset())
        )
        if (why := objection(name))
    }
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    "source",
    [
        "def f(staff): pass",
        "class StaffConfig: pass",
        "x.jobs_at_once = 1",
        "f(reply_ids=3)",
        "metrics = {'ids_drawn/TicTacToe': 1, 'requests/staff': 2}",
        "rivals: int = 0",
        "columns = ['ids']",
        "name = f'requests/staff/{n}'",
        "from x import staff",
        "try:\n    pass\nexcept ValueError as job:\n    pass",
    ],
)
def test_an_old_word_is_seen(source):
    assert [name for _, name in names_of(source) if objection(name)]


@pytest.mark.parametrize(
    "source",
    [
        "game_ids = stop_token_ids",
        "class TextArena: pass",
        "derive_seed('transcript_staff', drawn)",
        "'staff sits here'",
    ],
)
def test_other_words_and_seeds_are_left_alone(source):
    assert not [name for _, name in names_of(source) if objection(name)]

"""The documentation speaks of what there is: names, files, links, commands."""

import ast
import re

import jax
import pytest
from doc_pages import LOG, PAGES, ROOT, blocks, commands, page_name

from dfc import validation
from dfc.config import RECIPES
from dfc.launch import __main__ as launch
from dfc.launch import command_line
from dfc.launch.key_names import all_keys
from dfc.launch.overrides import override
from dfc.training import game_plan

API = ROOT / "docs" / "api.md"
FOLDERS = ("benchmarks", "configs", "dfc", "docs", "games", "launch", "models", "tests")
DOCUMENTED = (
    *(
        f"dfc.{name}"
        for name in ("losses", "advantages", "rewards", "curriculum", "fusion", "logprobs", "samples", "episodes")
    ),
    "dfc.config",
    "dfc.games.game",
    "dfc.games.registry",
    "dfc.games.replay",
    "dfc.runs.checkpoint",
    *(
        f"dfc.models.{name}"
        for name in (
            *(
                "huggingface",
                "chat",
                "transformer",
                "cache",
                "cached_attention",
                "cache_kernels",
                "config",
                "execution",
            ),
            *("attention", "lora"),
            *("quantization", "peft", "sharding", "fetch", "hub", "gguf_files", "gguf_tokenizer"),
        )
    ),
    "dfc.packing",
    *(
        f"dfc.{folder.replace('/', '.')}.{path.stem}"
        for folder in (
            *("players", "inference", "rollout", "training", "scoring", "records", "rows", "evaluation", "report"),
            *("tools/serving", "tools/clembench"),
        )
        for path in sorted((ROOT / "dfc" / folder).glob("*.py"))
        if path.stem != "__init__"
    ),
    *(
        f"dfc.methods.language_self_play.{name}"
        for name in ("page", "records", "rewards", "sampling", "self_play_run", "update")
    ),
    *(f"dfc.stages.{name}" for name in ("comparisons", "demonstrations", "evaluation_run", "rows_run")),
    *(
        f"dfc.tools.small_models.{name}"
        for name in (
            "build_tokenizer",
            "family_answers",
            "imitation",
            "imitation_run",
            "self_play_roles",
            "transcripts",
        )
    ),
)
every_page = pytest.mark.parametrize("page", PAGES, ids=page_name)


def source(module):
    """The file of a dotted name below dfc, or None; a package is its __init__.py."""
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def is_all(node):
    """Whether a statement sets `__all__`."""
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]


def defined(module):
    """Public names that a module's own statements define, with `Class.method` for the methods of public classes.

    What a package takes from its own files counts as its own, and so does what a module names in `__all__` of a file
    without a section.
    """
    body = ast.parse(source(module).read_text()).body
    offered = {n.value for node in body if is_all(node) for n in ast.walk(node) if isinstance(n, ast.Constant)}
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names = [name]
            case ast.ClassDef(name=name, body=body):
                methods = [f"{name}.{inner.name}" for inner in body if isinstance(inner, ast.FunctionDef)]
                names = [name, *dict.fromkeys(methods)]
            case ast.Assign(targets=targets):
                names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.ImportFrom(module=str(file), names=aliases) if file.startswith((f"{module}.", "dfc.")):
                taken = {alias.name for alias in aliases}
                taken = taken if file.startswith(f"{module}.") else set() if file in DOCUMENTED else taken & offered
                names = [name for name in (defined(file) if taken else ()) if name.split(".")[0] in taken]
            case _:
                names = []
        yield from (name for name in names if not any(part.startswith("_") for part in name.split(".")))


def listed():
    """What docs/api.md lists: module -> {name: description}."""
    sections = re.split(r"^## (dfc\.[\w.]+)$", API.read_text(), flags=re.MULTILINE)[1:]
    rows = r"^\| (`[\w.]+`(?:, `[\w.]+`)*) \| (.+) \|$"  # names of one kind may share a row
    return {
        module: {
            name: description
            for names, description in re.findall(rows, text, re.MULTILINE)
            for name in names.replace("`", "").split(", ")
        }
        for module, text in zip(sections[::2], sections[1::2], strict=True)
    }


def dangling_links(text, folder):
    """Links in a page that lead nowhere."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    return [link for link in links if not re.match(r"https?:|mailto:", link) and not (folder / link).exists()]


def dangling(text, folder):
    """Links and paths in a page that lead nowhere."""
    # Paths of this repository, whether in running text or in a command; `<name>` stands for any name.
    paths = re.findall(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./<>-]*", text)
    named = [path.rstrip(".-") for path in paths if "<" not in path]
    return dangling_links(text, folder) + [path for path in named if not (ROOT / path).exists()]


def launches(text):
    """The words behind `python -m dfc.launch`, or `dfc.launch.fit`, of each such command in a page."""
    for _, *words in commands(text):
        ours = words[:1] == ["-m"] and words[1] in {"dfc.launch", "dfc.launch.fit"}
        if ours and any(word.startswith("--config=") for word in words):
            yield words[2:]


def shown_files(text):
    """The files that a page shows, by name, each before its block: This is (the whole file) `name.py`:"""
    return dict(
        re.findall(
            r"[Tt]his is (?:the (?:whole )?file )?`([\w.]+)`:\n\n```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
        )
    )


def wrong_launch(words, shown=()):
    """What is wrong with a documented command."""
    file = next(word.removeprefix("--config=") for word in words if word.startswith("--config="))
    if file in (*shown, "FILE", ""):
        return []
    if not (ROOT / file).is_file():
        return [f"{file} does not exist"]
    overrides = [word for word in words if re.match(r"--(no)?config\.", word)]
    config, found = override(command_line.load(str(ROOT / file)), overrides)
    return found or validation.problems(config)


@pytest.mark.parametrize("module", DOCUMENTED)
def test_every_public_name_has_its_line_in_the_api(module):
    section = listed().get(module)
    assert section is not None, f"docs/api.md has no section ## {module}"
    names = set(defined(module))
    assert names - section.keys() == set(), "not in docs/api.md"
    assert section.keys() - names == set(), "in docs/api.md but not in the module"


def test_the_api_lists_no_other_module():
    assert set(listed()) == set(DOCUMENTED)


def strange_keys(text):
    """Keys of the configuration that a page names, in whatever command or table, and that no recipe has."""
    named = set(re.findall(r"--(?:no)?config\.([a-z][\w.]*\w)", text))
    keys = {key for kind in RECIPES.values() for key in all_keys(kind)}
    whole = keys | {key.rpartition(".")[0] for key in keys}
    open_ended = tuple(f"{key}." for key in keys if key == "games" or key.endswith(("_of", "join_groups")))
    entries = [re.escape(key).replace("NAME", r"[\w.+-]+") for key in keys if ".NAME." in key]
    return sorted(
        key
        for key in named
        if key not in whole and not key.startswith(open_ended) and not any(re.fullmatch(e, key) for e in entries)
    )


@every_page
def test_keys_in_the_documentation_are_those_of_a_recipe(page):
    assert strange_keys(page.read_text()) == []


def strange_values(text):
    """Settings of the configuration that a page gives, within its prose too, and whose value no recipe takes."""
    found = []
    for word in re.findall(r"(?<![\w-])--config\.[a-z][\w.]*=[\w.+-]+(?=[`\s,;)]|$)", text):
        having = [kind for kind in RECIPES.values() if word[9:].split("=")[0] in all_keys(kind)]
        if having and all(override(kind(), [word])[1] for kind in having):
            found.append(word)
    return found


@every_page
def test_values_in_the_documentation_are_those_of_a_recipe(page):
    assert strange_values(page.read_text()) == []


@every_page
def test_links_and_paths_lead_somewhere(page):
    assert dangling(page.read_text(), page.parent) == []


@pytest.mark.parametrize("page", LOG, ids=page_name)
def test_links_of_the_log_lead_somewhere(page):
    assert dangling_links(page.read_text(), page.parent) == []


def test_the_index_of_the_log_has_a_line_for_every_day():
    index = (ROOT / "docs" / "log" / "README.md").read_text()
    days = [page.stem for page in LOG if page.stem != "README"]
    assert re.findall(r"^\| \[([\d-]+)\]\(\1\.md\) \|", index, re.MULTILINE) == days


def test_the_build_notes_are_two_hundred_lines_at_most():
    lines = (ROOT / "BUILD_NOTES.md").read_text().splitlines()
    assert len(lines) <= 200
    assert max(map(len, lines)) <= 140


@every_page
def test_documented_commands_name_files_and_values_that_exist(page, tmp_path, monkeypatch):
    text = page.read_text()
    shown = shown_files(text)
    for name, code in shown.items():
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    assert [problem for words in launches(text) for problem in wrong_launch(words, shown)] == []


@every_page
def test_python_in_the_documentation_imports_names_that_exist(page):
    for language, code in blocks(page.read_text()):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "dfc":
                names = {alias.name for alias in node.names}
                files = {name for name in names if source(f"{node.module}.{name}")}  # modules of a package or folder
                assert names == files or names - files <= set(defined(node.module))


@pytest.mark.parametrize("name", ["add_a_game.md", "add_a_method.md", "add_a_model_family.md"])
def test_a_guide_ends_with_the_tests_to_pass(name):
    text = (ROOT / "docs" / name).read_text()
    (_, end) = re.split(r"[Tt]he tests to pass", text)
    assert "pytest tests/" in end
    numbered = re.findall(r"^(?:## )?(\d+)\. ", text, re.MULTILINE)
    steps = list(dict.fromkeys(numbered))
    assert steps == [str(n) for n in range(1, len(steps) + 1)]


def test_the_configuration_of_ones_own_is_small_and_runs(tmp_path, monkeypatch):
    """It is said to end within five minutes; whole iterations play 100 games a second on two cores."""
    (code,) = (block for kind, block in blocks((ROOT / "docs" / "running.md").read_text()) if "def get_config" in block)
    (tmp_path / "mine.py").write_text(code)
    config = command_line.load(str(tmp_path / "mine.py"))
    assert validation.problems(config) == []
    assert sum(game_plan.games_played(config, config.iterations * len(config.games))) < 10_000
    monkeypatch.chdir(tmp_path)
    small = {"rollout.slots": 4, "rollout.workers": 1, "evaluation.games": 2, "batch.micro_batch_rows": 8}
    small |= dict.fromkeys(("iterations", "group_size", "acceptance.games"), 2)
    small |= {"groups_per_game": 4}
    words = [f"--config.{key}={value}" for key, value in small.items()]
    with jax.numpy_dtype_promotion("standard"):  # as optax wants it
        assert launch.main(["--config=mine.py", "--workdir=run", *words]) == 0
    assert (tmp_path / "run" / "policy" / "model.safetensors").exists()


# ---- the checks see what they are for ------------------------------------------------------------------------------


def test_a_strange_key_is_seen():
    right = (
        "--config.games.wordle.length=6 --noconfig.half_negative --config.samples_of.bandit=3 --config.rollout.stop=]"
    )
    assert strange_keys(f"`{right}` or --config.KEY=VALUE") == []
    assert strange_keys("`--config.offline.beta=1`, --config.recipe=collect") == ["offline.beta", "recipe"]


def test_a_strange_value_is_seen():
    right = (
        "`--config.method=naive_single`, --config.rollout.slots=8 and `--config.opponent=FOLDER`; --config.KEY=VALUE"
    )
    assert strange_values(right) == []
    wrong = ["--config.method=naive_multi", "--config.grpo.unit=episode", "--config.seed=x"]
    assert strange_values(f"with `{wrong[0]}`, {wrong[1]} or ({wrong[2]})") == wrong


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](gone.md) and [b](api.md#dfclosses)", ["gone.md"]),
        ("see [c](https://example.org/x.md), `games/textarena/nim.py`", []),
        ("`games/chess.py`, tests/test_docs.py.", ["games/chess.py"]),
        ("pytest tests/test_x.py \\\n  tests/test_docs.py", ["tests/test_x.py"]),
        ("`configs/<name>.py`, /models/my-llama, `games/<id>/win_rate`", []),
    ],
)
def test_a_path_that_leads_nowhere_is_seen(text, expected):
    assert dangling(text, ROOT / "docs") == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("--config=configs/gone.py", "configs/gone.py does not exist"),
        ("--config=configs/smoke.py \\\n  --config.sed=1", "did you mean"),
        ("--config=configs/smoke.py --config.rollout.slots=0", "rollout.slots"),
    ],
)
def test_a_wrong_command_is_seen(command, expected):
    (words,) = launches(f"```\npython -m dfc.launch {command}\n```\n")
    assert expected in " ".join(wrong_launch(words))


def test_public_names_are_functions_classes_constants_and_methods():
    names = set(defined("dfc.games.game"))
    assert {"Game", "Game.step", "Outcome", "Verdict"} <= names
    assert not {"Game._play", "Game.__init__", "extract_action", "GameRng"} & names
    assert "TOKENIZER_FILES" in set(defined("dfc.models.huggingface"))

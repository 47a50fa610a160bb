"""Imports point one way: read from the syntax of every file, and measured in fresh processes."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dfc.config import RECIPES, CollectRound

ROOT = Path(__file__).resolve().parents[1]
# Folder -> the dotted name its files are called by here.
FOLDERS = {"games": "dfc.games", "models": "dfc.models", "launch": "dfc.launch"} | {
    folder: folder for folder in ("dfc", "tests", "configs", "benchmarks")
}
PURE = ("losses", "logprobs", "advantages", "rewards", "curriculum", "fusion")
JAX = ("jax", "jaxlib", "flax", "optax", "orbax", "chex")


def sources():
    """Yields (dotted name, path)."""
    for folder, package in FOLDERS.items():
        # os.walk does not follow the links dfc/games, dfc/models and dfc/launch: every file is read once.
        for directory, _, files in os.walk(ROOT / folder):
            for file in sorted(files):
                path = Path(directory, file)
                if path.suffix != ".py":
                    continue
                inner = path.relative_to(ROOT / folder).with_suffix("").parts
                name = ".".join([package, *inner])
                yield name.removesuffix(".__init__"), path


def imported(name, source, *, is_package=False):
    """Names of everything a module imports anywhere in it, relative ones resolved, `from a import b` as `a.b`."""
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = importlib.util.resolve_name("." * level + (module or ""), package) if level else module
                yield from (f"{base}.{alias.name}" for alias in aliases)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module


def within(name, *packages):
    return any(name == package or name.startswith(package + ".") for package in packages)


ABOVE = (  # the rooms
    "inference players rollout training scoring self_play serving clembench data evaluation report runs recipes fit "
    "launch tiny_player"
)

# Who may not import what, except for what, and why; the first rule that applies speaks.
ANYONE = ("dfc", "tests", "configs", "benchmarks")
RULES = (
    (ANYONE, ("models", "games", "launch"), (), "is imported through dfc: a bare import makes a second module object"),
    (("dfc.games",), ("dfc",), ("dfc.games",), "is not part of games, which import nothing else of ours"),
    (("dfc.games",), JAX, (), "is JAX, which the rules of games do without"),
    *(
        ((f"dfc.{room}",), tuple(f"dfc.{other}" for other in others.split()), allowed, f"is above {room}")
        for room, others, allowed in (
            *(
                (base, f"models games {ABOVE} validation", ())
                for base in ("config", "episodes", "errors", "files", "multihost", "checkpoint", "template_day")
            ),
            *((f"validation.{part}", "data", ()) for part in ("players", "reinforcement")),
            (
                "validation",
                ABOVE.replace("players ", ""),
                (
                    "dfc.records.task_groups",
                    "dfc.records.trajectories",
                    "dfc.methods.language_self_play.prompts",
                    "dfc.methods.language_self_play.families",
                ),
            ),
            ("self_play", f"models validation {ABOVE.replace('self_play ', '')}", ("dfc.scoring.scorer",)),
            ("tiny_player", "inference players rollout scoring data evaluation report runs recipes fit launch", ()),
            ("models", f"games {ABOVE}", ()),
            ("inference", "games players rollout training scoring data evaluation report runs recipes fit launch", ()),
            ("players", "models inference rollout training scoring data evaluation report runs recipes fit launch", ()),
            ("rollout", "training scoring data evaluation report runs recipes fit launch", ()),
            *(
                (
                    f"training.{module}",
                    "games inference players rollout training.rl data evaluation report runs recipes fit launch",
                    (),
                )
                for module in ("trainer", "packing", "optimizer", "divergence", "update_parts", "logprob_gap")
            ),
            ("scoring", "games inference rollout data evaluation report runs recipes fit launch tiny_player", ()),
            ("training", "scoring data report recipes fit launch tiny_player", ()),
            ("runs", "models inference rollout training scoring data evaluation report recipes fit launch", ()),
            ("data", "evaluation report recipes fit launch", ()),
            ("evaluation", "scoring data training report runs recipes fit launch", ()),
            ("report", "models inference rollout training scoring data recipes fit launch", ()),
            ("fit", "report launch", ()),
            ("serving", "training scoring self_play data evaluation report runs recipes fit launch tiny_player", ()),
            ("clembench", "players training scoring self_play report runs recipes fit launch tiny_player", ()),
        )
    ),
    *(
        ((f"dfc.{module}",), ("dfc",), (f"dfc.{module}",), "is ours, and this module is arrays in, arrays out")
        for module in PURE
    ),
)
OURS = ("dfc", "configs", "benchmarks")
# Room -> who may import it beside itself; recipes do not import each other: a stage begins by its configuration.
FEW = {
    "launch": (),
    "recipes": ("dfc.launch", "dfc.tools.fit", "benchmarks"),
    "report": ("dfc.recipes", "dfc.launch"),
    "serving": ("dfc.launch", "dfc.tools.clembench", "benchmarks"),
    "clembench": ("dfc.launch",),
}
SURFACE = ("dfc", "dfc.launch.start")  # what `import dfc` offers, inside functions


def objection(name, target):
    """Why a module may not import a target, or None."""
    if (name, target) == SURFACE:
        return None
    for importers, forbidden, allowed, why in RULES:
        if within(name, *importers) and within(target, *forbidden) and not within(target, *allowed):
            return why
    for room, importers in FEW.items():
        inside = room != "recipes" and within(name, f"dfc.{room}")
        if within(target, f"dfc.{room}") and within(name, *OURS) and not inside and not within(name, *importers):
            return f"is imported by {', '.join(importers) or 'nobody'} only"
    return None


def objections(name, source, **options):
    return [f"{name}: {t} {why}" for t in imported(name, source, **options) if (why := objection(name, t))]


def test_imports_point_one_way():
    found = dict(sources())
    assert {"dfc.losses", "dfc.games.game", "dfc.models"} <= found.keys()  # so that the search does find files
    wrong = [
        line
        for name, path in found.items()
        for line in objections(name, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("dfc.training.trainer", "import models"),
        ("tests.test_x", "def f():\n    from games.nim import Nim"),
        ("configs.x", "import launch.play as play"),
        ("dfc.games.textarena.nim", "import jax.numpy as jnp"),
        ("dfc.games.textarena.nim", "from flax import nnx"),
        ("dfc.games.textarena.nim", "from dfc import losses"),
        ("dfc.games.textarena.nim", "from ...rollout import runner"),
        ("dfc.games.textarena.nim", "import dfc.config"),
        ("dfc.models.lora", "from dfc.training.trainer import update"),
        ("dfc.models.lora", "from dfc import games"),
        ("dfc.models.lora", "import importlib\nimportlib.import_module('dfc.rollout.runner')"),
        ("dfc.inference.engine", "from dfc.games.game import Game"),
        ("dfc.multihost", "from dfc.runs import progress"),
        ("dfc.config.sections", "from dfc.validation import tasks"),
        ("dfc.validation.tasks", "from dfc.stages import offline"),
        ("dfc.validation.tasks", "from dfc.records import collection"),
        ("dfc.validation.players", "from dfc.records import task_groups"),
        ("dfc.config.fields", "from dfc.games import registry"),
        ("dfc.players.endpoint", "from dfc.rollout import runner"),
        ("dfc.rollout.runner", "import dfc.stages.evaluate"),
        ("dfc.rollout.trained_weights", "from dfc.runs.run_folder import RunFolder"),
        ("dfc.runs.checkpoint", "from dfc.runs import run_folder"),
        ("dfc.scoring.formats", "from dfc.rows import conversations"),
        ("dfc.rollout.samples", "from dfc.scoring import formats"),
        ("dfc.training.trainer", "from dfc.rollout.runner import RolloutRunner"),
        ("dfc.runs.run_folder", "from dfc.report import run_page"),
        ("dfc.rows.training_rows", "from dfc.report import run_page"),
        ("dfc.rows.preference_pairs", "from dfc.report.tables import Table"),
        ("dfc.methods.paprika", "from dfc.stages import build_data"),
        ("dfc.methods.paprika", "import importlib\nimportlib.import_module('dfc.stages.build_data')"),
        ("dfc.files", "from dfc.report import tables"),
        ("benchmarks.x", "from dfc.report import tables"),
        ("dfc.validation", "from dfc.methods import paprika"),
        ("dfc.validation.self_play", "from dfc.methods.language_self_play import hygiene"),
        ("dfc.methods.language_self_play.watch", "from dfc.rollout import samples"),
        ("dfc.models.lora", "from dfc.methods.language_self_play import prompts"),
        ("dfc.evaluation.tasks", "from dfc.report import tables"),
        ("dfc.losses", "from dfc.logprobs import token_logprobs"),
        ("dfc.losses.preference", "from dfc.advantages import group_relative"),
        ("dfc.fusion", "from . import errors"),
        ("dfc.rewards", "from dfc.games.game import Outcome"),
        ("dfc.methods.paprika", "from dfc.launch import play"),
        ("dfc.report.run_page", "if TYPE_CHECKING:\n    import dfc.launch"),
        ("dfc.tools.serving.app", "from dfc.training import trainer"),
        ("dfc.stages.evaluate", "from dfc.tools.serving import server"),
        ("dfc.rows.dialogues", "from dfc.tools.clembench import rows"),
        ("dfc.tools.clembench.backend", "from dfc.launch import program_cache"),
    ],
)
def test_a_wrong_import_is_seen(name, source):
    assert len(objections(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("dfc.games.textarena.nim", "from dfc.games.game import Game\nfrom ..rng import GameRng\nimport numpy"),
        ("dfc.games.adapters.arena", "import textarena\nfrom ..game import Game"),
        ("dfc.losses", "import jax\nimport numpy as np"),
        ("dfc.losses.preference", "from dfc.losses.loss import Loss"),
        ("dfc.models.lora", "from dfc.models.transformer import Transformer\nfrom dfc.errors import WeightsError"),
        ("dfc.methods.paprika", "from dfc.report import tables\nfrom dfc.report.tables import Table"),
        ("dfc.report.run_page", "from dfc.report import tables"),
        ("dfc.tools.fit.iteration", "from dfc.methods import divide_fuse_conquer"),
        ("dfc.validation.tasks", "from dfc.records import task_groups\nfrom dfc.players import player_specs"),
        (
            "dfc.methods.language_self_play.family_scores",
            "from dfc.methods.language_self_play import families\nfrom dfc.scoring.scorer import Scores",
        ),
        ("dfc.launch.play", "from dfc.launch import serve\nfrom dfc.methods import paprika"),
        ("dfc.methods.paprika", "from dfc import losses, games, models\nimport modelscope"),
    ],
)
def test_a_right_import_is_not_objected_to(name, source):
    assert objections(name, source) == []


def test_every_file_of_recipes_is_a_recipe():
    files = {path.stem for path in (ROOT / "dfc" / "recipes").glob("*.py")} - {"__init__"}
    assert files == {kind.module for kind in (*RECIPES.values(), CollectRound)}


def test_relative_imports_of_a_package_are_resolved_from_itself():
    assert list(imported("dfc.games", "from . import rng", is_package=True)) == ["dfc.games.rng"]
    assert list(imported("dfc.games.textarena.nim", "from .. import rng")) == ["dfc.games.rng"]


def loaded_by(*modules):
    """Names of all modules in a fresh process that imported some."""
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    result = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    return set(result.stdout.split())


def test_the_pure_modules_load_no_model_no_game_and_no_tokenizer():
    pure = [f"dfc.{module}" for module in PURE]
    loaded = loaded_by(*pure)
    assert set(pure) <= loaded
    assert {name for name in loaded if within(name, "dfc") and not within(name, *pure)} == {"dfc"}
    assert not [
        name for name in loaded if within(name, "transformers", "tokenizers", "torch", "flax", "models", "games")
    ]


def test_games_rewards_and_curricula_load_no_jax():
    loaded = loaded_by("dfc.games.game", "dfc.rewards", "dfc.curriculum")
    assert "dfc.games.game" in loaded
    assert not [name for name in loaded if within(name, *JAX)]

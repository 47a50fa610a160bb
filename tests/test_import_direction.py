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


# A room -> the rooms that its modules may import, each listed above it, so that no circle of rooms is possible. All but
# games may import the base, and all but games and config the pure modules.
BASE = "commands episodes errors files multihost packing samples template_day"
ROOMS = {
    "games": "",
    "config": "",
    "models": "config",
    "players": "config games",
    "own_code": "games players",
    "runs": "config games players",
    "inference": "config models",
    "scoring": "config games models own_code players",
    "rollout": "config games inference models own_code players runs",
    "evaluation": "config games inference models players rollout",
    "report": "config evaluation games players runs",
    "records": "config games models players rollout runs",
    "rows": "config games models players records runs scoring",
    "training": "config evaluation games models records rollout rows runs scoring",
    "validation": "config games players records",
    "stages": "config evaluation games models players records report rollout rows runs scoring training",
    "methods": (
        "config evaluation games inference models players records report rollout rows runs scoring training validation"
    ),
    "tools.small_models": "config evaluation games methods models rollout runs scoring training",
    "tools.fit": (
        "config evaluation inference methods models players records rollout runs scoring stages tools.small_models "
        "training validation"
    ),
    "tools.serving": "config games inference models players rollout runs",
    "tools.clembench": "config evaluation games records rollout rows tools.serving",
    "launch": (
        "config evaluation games models own_code players report rollout rows runs tools.clembench tools.fit "
        "tools.serving validation"
    ),
}
# Rooms of which another one may import these modules only.
PART = {
    ("rollout", "runs"): ("dfc.runs.checkpoint",),
    ("scoring", "games"): ("dfc.games.functions",),
    ("own_code", "games"): ("dfc.games.loading", "dfc.games.printable"),
    ("validation", "records"): ("dfc.records.task_groups", "dfc.records.trajectories"),
}
# Modules that may import less than their room, or a module of a room above: checks read what a prompt and a family are.
NARROW = {
    **{
        f"dfc.training.{module}": "config models"
        for module in ("trainer", "batch_logprobs", "optimizer", "divergence", "update_parts")
    },
    **{  # what checks and the report read too
        f"dfc.methods.language_self_play.{module}": "config games scoring"
        for module in ("families", "hygiene", "penalty", "prompts", "query_files", "roles", "self_reward", "watch")
    },
    "dfc.runs.checkpoint": "config",
    "dfc.validation.players": "config games players",
    "dfc.validation.reinforcement": "config games players",
    "dfc.validation.sampling": "config",
}
EXTRA = {"validation": ("dfc.methods.language_self_play.prompts", "dfc.methods.language_self_play.families")}

# Who may not import what, except for what, and why; the first rule that applies speaks.
ANYONE = ("dfc", "tests", "configs", "benchmarks")
RULES = (
    (ANYONE, ("models", "games", "launch"), (), "is imported through dfc: a bare import makes a second module object"),
    (("dfc.games",), ("dfc",), ("dfc.games",), "is not part of games, which import nothing else of ours"),
    (("dfc.games",), JAX, (), "is JAX, which the rules of games do without"),
    *(
        ((f"dfc.{module}",), ("dfc",), (f"dfc.{module}",), "is ours, and this module is arrays in, arrays out")
        for module in PURE
    ),
)
OURS = ("dfc", "configs", "benchmarks")
# Room -> who may import it beside itself. A recipe is begun by its configuration: no recipe imports another one.
FEW = {
    "launch": (),
    "report": ("dfc.stages", "dfc.methods", "dfc.launch"),
    "tools.serving": ("dfc.launch", "dfc.tools.clembench", "benchmarks"),
    "tools.clembench": ("dfc.launch",),
    # Whoever plays holds a RolloutEngine, and does not know which one.
    "inference.engine": ("dfc.rollout.host", "dfc.tools.serving", "dfc.methods.loop", "benchmarks"),
}
RECIPE_MODULES = {f"dfc.{kind.module}" for kind in (*RECIPES.values(), CollectRound)}
RUN_RECIPES = ("dfc.launch", "dfc.tools.fit", "benchmarks")
SURFACE = ("dfc", "dfc.launch.start")  # what `import dfc` offers, inside functions


def room_of(name):
    """The room of a dotted name, or None for what is in none: the base, the pure modules, other packages."""
    return next((room for room in ROOMS if within(name, f"dfc.{room}")), None)


def direction(name, target):
    """Why a target is not among the rooms that a module may import, or None."""
    room, other = room_of(name), room_of(target)
    if other is None or (room == other and name not in NARROW):
        return None
    if room is None:
        return f"is above {name}" if within(name, *(f"dfc.{base}" for base in BASE.split())) else None
    if within(target, *EXTRA.get(room, ())):
        return None
    allowed = NARROW.get(name, ROOMS[room]).split()
    if room == other and target.startswith(tuple(NARROW)):
        return None
    part = PART.get((room, other))
    if other in allowed and (part is None or within(target, *part)):
        return None
    return f"is not among what {name if name in NARROW else room} may import"


def objection(name, target):
    """Why a module may not import a target, or None."""
    if (name, target) == SURFACE:
        return None
    for importers, forbidden, allowed, why in RULES:
        if within(name, *importers) and within(target, *forbidden) and not within(target, *allowed):
            return why
    if why := direction(name, target):
        return why
    if within(target, *RECIPE_MODULES) and within(name, *OURS) and not within(name, *RUN_RECIPES):
        return "is a recipe, which is begun by its configuration"
    for room, importers in FEW.items():
        inside = within(name, f"dfc.{room}")
        if within(target, f"dfc.{room}") and within(name, *OURS) and not inside and not within(name, *importers):
            return f"is imported by {', '.join(importers) or 'nobody'} only"
    return None


def test_rooms_import_rooms_that_are_listed_above_them():
    above = []
    for room, allowed in ROOMS.items():
        assert set(allowed.split()) <= set(above), room
        above.append(room)


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
        ("dfc.rollout.runner", "from dfc.inference.engine import Engine"),
        ("dfc.training.trainer", "from dfc.rollout.runner import RolloutRunner"),
        ("dfc.runs.run_folder", "from dfc.report import run_page"),
        ("dfc.rows.training_rows", "from dfc.report import run_page"),
        ("dfc.rows.preference_pairs", "from dfc.report.tables import Table"),
        ("dfc.methods.paprika", "from dfc.stages import build_rows"),
        ("dfc.methods.paprika", "import importlib\nimportlib.import_module('dfc.stages.build_rows')"),
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
            "dfc.methods.language_self_play.rewards",
            "from dfc.methods.language_self_play import families\nfrom dfc.scoring.scorer import Scores",
        ),
        ("dfc.launch.play", "from dfc.launch import serve\nfrom dfc.rollout import model_player"),
        ("dfc.methods.paprika", "from dfc import losses, games, models\nimport modelscope"),
    ],
)
def test_a_right_import_is_not_objected_to(name, source):
    assert objections(name, source) == []


def test_what_runs_a_recipe_is_named_by_a_configuration():
    found = {
        name
        for name, path in sources()
        if within(name, "dfc.methods", "dfc.stages", "dfc.tools.small_models")
        and "\ndef run(config" in path.read_text(encoding="utf-8")
    }
    assert found == RECIPE_MODULES


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

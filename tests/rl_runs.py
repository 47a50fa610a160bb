"""Small runs of reinforcement learning on a model of one layer.

Their model, shapes and loss are the same wherever a test does not ask for others, so that the tests of a session
compile them once: tracing and compiling are nearly all that such a run takes.
"""

import dataclasses
import functools

import recipe_runs
from self_play_runs import MODEL

from dfc.config import EvaluationConfig, GroupingConfig, Grpo, MatchesConfig, ModelConfig
from dfc.configs import smoke

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_number": 9}}
_SMOKE = smoke.get_config()
SHAPES = {
    "model": ModelConfig(path=str(MODEL), dtype="float32"),  # `self_play_runs.make_model` writes it
    "rollout": dataclasses.replace(_SMOKE.rollout, slots=4, max_length=160, prefill_buckets=(64,), legal_only=True),
    "batch": dataclasses.replace(_SMOKE.batch, row_length=160),
    "optimizer": _SMOKE.optimizer,
    "training": _SMOKE.training,
    "grpo": _SMOKE.grpo,
}
run = functools.partial(recipe_runs.run, promotion="standard")  # optax mixes types within itself


def configured(**method):
    return dataclasses.replace(
        _SMOKE,
        games=GAMES,
        grouping=GroupingConfig(trials=2, groups=tuple((game,) for game in GAMES)),
        evaluation=EvaluationConfig(games=2, stage_games=2),
        **SHAPES,
        **{"divide_iterations": 1, "conquer_iterations": 2, **method},
    )


def plain(**settings):
    base = configured()
    shared = {field.name: getattr(base, field.name) for field in dataclasses.fields(Grpo) if hasattr(base, field.name)}
    return Grpo(**shared | {"iterations": 2, "evaluation": MatchesConfig(games=2), **settings})

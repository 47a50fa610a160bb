"""Checks a configuration before anything runs, and reports every problem together.

`problems` looks at the configuration alone, `path_problems` at the file system, `device_problems` at the number of
devices: the first two need no JAX, so that a mistake is reported immediately. Types and ranges are those of the classes
(`dfc.config.fields`); rules between values are here, in one file per kind of recipe.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dfc.config import (
    BuildData,
    BuildDialogues,
    Evaluate,
    EvaluateAnswers,
    GamesRunConfig,
    LanguageSelfPlay,
    ModelRunConfig,
    Playpen,
    RlRunConfig,
    RunConfig,
    SelfPlayBase,
    SmallModel,
    TinyPlayer,
    TrainingRunConfig,
    fields,
    shipped,
)
from dfc.config.hub_names import is_hub_name
from dfc.errors import ConfigError, error_text, shown
from dfc.games import functions, registry
from dfc.players import key_search
from dfc.validation import answers, players, playpen, reinforcement, self_play, tasks

_LONGEST_NAME = 200  # of the 255 that file systems allow: temporary files add to it
_UP = {".", ".."}


def problems(config: RunConfig) -> list[str]:
    """Returns every problem of a configuration, one sentence each: the key, what came, what is allowed.

    Values are only compared with each other once every type is right and no key or password is among them, which no
    sentence repeats (`dfc.players.key_search`; the environment is read).
    """
    found = [*key_search.problems(config), *fields.type_problems(config)]
    if not found:
        found = fields.range_problems(config) + _rule_problems(config)
    if isinstance(config, GamesRunConfig):
        found = games_problems(config.games) + found
    search = key_search.KeySearch(key_search.variables_of(config))
    return [search.redact(problem) for problem in found]


def check(config: RunConfig) -> None:
    """Raises a `ConfigError` that lists all `problems`, if there are any."""
    found = problems(config)
    if found:
        raise ConfigError(found)


def _rule_problems(config: RunConfig) -> list[str]:
    found = _name_problems(config) + _module_problems(config)
    if isinstance(config, ModelRunConfig | Evaluate):
        found += config.mesh.problems()
    if isinstance(config, ModelRunConfig) and not config.model.path:
        found.append(
            "model.path is empty: must be a folder in the Hugging Face layout, ORG/NAME of the Hub, or tiny_player"
        )
    for kind, problems_of_kind in _RULES_OF_KINDS:
        if isinstance(config, kind):
            found += problems_of_kind(config)
    return found + players.problems(config) + tasks.problems(config)


def games_problems(games: object) -> list[str]:
    """Returns what is wrong with the games of a configuration, one sentence each."""
    if not isinstance(games, Mapping):
        return [f"games={shown(games)}: must be a mapping from an id to its options, such as {{'TicTacToe-v0': {{}}}}"]
    if not games:
        return [f"games is empty: name at least one id; allowed: {', '.join(registry.game_ids())}"]
    found = []
    for game_id, options in games.items():
        if not isinstance(options, Mapping):
            found.append(
                f"games.{game_id}={shown(options)}: must be a mapping of options; {{}} takes the id's defaults"
            )
        else:
            complaints = registry.problems(game_id, options)
            found += [f"games.{game_id}: {problem.removeprefix(f'{game_id}: ')}" for problem in complaints]
    return found


def _name_problems(config: RunConfig) -> list[str]:
    name = config.name
    if name.isprintable() and 0 < len(name.encode()) <= _LONGEST_NAME and not {"/", "\\"} & set(name) | {name} & _UP:
        return []
    allowed = f"one folder name of at most {_LONGEST_NAME} bytes, without control characters"
    return [f"name={name!r}: must be {allowed}; runs go to runs/<name>, --workdir takes a path"]


def _module_problems(config: RunConfig) -> list[str]:
    """Returns why a custom recipe's file cannot be run; it is imported, as the run does."""
    if config.module.endswith(".py"):
        try:
            functions.named(f"{config.module}:run")
        except ValueError as error:
            return [f"{type(config).__name__}: {error}; it runs the recipe, run(config, folder, stop)"]
    return []


def _rollout_problems(config: GamesRunConfig) -> list[str]:
    rollout, found = config.rollout, []
    if rollout.max_reply_length > rollout.max_length:
        found.append(
            f"rollout.max_reply_length={rollout.max_reply_length}: must be at most"
            f" rollout.max_length={rollout.max_length}, the whole context"
        )
    if rollout.max_prompt_length > rollout.max_length:
        found.append(
            f"rollout.max_prompt_length={rollout.max_prompt_length}: must be at most"
            f" rollout.max_length={rollout.max_length}, the whole context; 0 for no limit of its own"
        )
    if list(rollout.prefill_buckets) != sorted(set(rollout.prefill_buckets)):
        found.append(f"rollout.prefill_buckets={rollout.prefill_buckets}: must ascend")
    if rollout.legal_only and rollout.prompt == "think":
        found.append(
            "rollout.legal_only=true leaves no room for the thought that rollout.prompt='think' asks for: every reply"
            " would be malformed; set one of the two"
        )
    if "" in rollout.stop:
        found.append(f"rollout.stop={rollout.stop!r}: must hold no empty text, which would end every reply at once")
    return found


def _training_problems(config: TrainingRunConfig) -> list[str]:
    found, shards = [], config.mesh.data * config.mesh.fsdp
    if shards > 0 and config.batch.micro_batch_rows % shards:
        found.append(_rows_problem(config, shards))
    if config.training.attention == "splash" and config.batch.row_length % 128:
        found.append(f"batch.row_length={config.batch.row_length}: must be a multiple of 128 for splash attention")
    if config.training.attention == "cudnn" and config.model.dtype != "bfloat16":
        found.append(f"training.attention='cudnn': takes 16-bit numbers; model.dtype is {config.model.dtype!r}")
    return found


def _small_model_problems(config: SmallModel) -> list[str]:
    if config.width % 32:
        return [f"width={config.width}: must be a multiple of 32, the size of a head"]
    return []


def _tiny_player_problems(config: TinyPlayer) -> list[str]:
    found = []
    if len(config.skill) != 2 or config.skill[0] > config.skill[-1]:
        found.append(f"skill={config.skill}: must be two numbers from 0 to 1, the lower one first")
    for key, games in (("novice", config.novice), ("transcripts_of", tuple(config.transcripts_of))):
        strangers = [game for game in games if game not in config.games]
        if strangers:
            found.append(f"{key}: {', '.join(strangers)} must be among this run's games")
    return found


def _rows_problem(config: TrainingRunConfig, shards: int) -> str:
    rows = config.batch.micro_batch_rows
    nearest = max(1, (rows + shards // 2) // shards) * shards
    return (
        f"batch.micro_batch_rows={rows}: must be a multiple of {shards}, the devices a batch is split over"
        f" (mesh.data x mesh.fsdp); the nearest one is --config.batch.micro_batch_rows={nearest}"
    )


# ---- beside problems -------------------------------------------------------------------------------------------------


def notices(config: RunConfig) -> list[str]:
    """Returns notes on a valid configuration for the user, one line each."""
    found = reinforcement.notices(config) if isinstance(config, RlRunConfig) else []
    if not isinstance(config, GamesRunConfig) or not (limit := config.rollout.max_actions):
        return found
    max_game_length = {
        game_id: registry.make(game_id, **options).max_game_length for game_id, options in config.games.items()
    }
    stopped = [f"{game_id} {actions}" for game_id, actions in max_game_length.items() if actions > limit]
    if not stopped:
        return found
    what = "longer games are stopped there; the player ahead wins where the game can tell, otherwise they do not count"
    return [*found, f"rollout.max_actions={limit} is below the longest play of {', '.join(stopped)}: {what}"]


def path_problems(config: RunConfig) -> list[str]:
    """Returns what this machine lacks for a valid configuration: the model's folder, the keys of endpoints."""
    try:
        return _folder_problems(config) + players.path_problems(config) + players.key_problems(config)
    except (OSError, RuntimeError) as error:  # a name that is too long, a folder that may not be read, ~nobody
        return [f"a path of the configuration cannot be read: {error_text(error)}"]


def _folder_problems(config: RunConfig) -> list[str]:
    if isinstance(config, EvaluateAnswers) and (found := answers.path_problems(config)):
        return found
    if isinstance(config, BuildData):
        return tasks.path_problems(config)
    if isinstance(config, BuildDialogues):
        return tasks.dialogue_path_problems(config)
    found = tasks.path_problems(config)
    if isinstance(config, Playpen):
        found += playpen.path_problems(config)
    if isinstance(config, LanguageSelfPlay):
        found += self_play.path_problems(config)
    if not isinstance(config, ModelRunConfig) or config.model.path == "tiny_player" or is_hub_name(config.model.path):
        return found
    path = Path(config.model.path)
    if path.is_dir():
        if (path / "policy").is_dir():
            found.append(f"model.path={str(path)!r}: is a run; name its weights, {path / 'policy'}")
        return found
    named = "name a folder with weights in the Hugging Face layout, ORG/NAME of the Hub, or tiny_player"
    hint = shipped.how_to_make(config.model.path) or named
    return [*found, f"model.path={config.model.path!r}: no such folder (current folder: {Path.cwd()}); {hint}"]


def device_problems(config: RunConfig, devices: int) -> list[str]:
    """Returns why a valid configuration's mesh does not fit this number of devices."""
    if not isinstance(config, ModelRunConfig | Evaluate):
        return []
    try:
        data, fsdp, _ = config.mesh.shape(devices)
    except ConfigError as error:
        return list(error.problems)
    if isinstance(config, TrainingRunConfig) and config.batch.micro_batch_rows % (data * fsdp):
        return [_rows_problem(config, data * fsdp)]
    return []


# Kinds of configuration, and the rules that each has beside those of all.
_RULES_OF_KINDS: tuple[tuple[type, Callable[[Any], list[str]]], ...] = (
    (GamesRunConfig, _rollout_problems),
    (TrainingRunConfig, _training_problems),
    (RlRunConfig, reinforcement.problems),
    (Playpen, playpen.problems),
    (SmallModel, _small_model_problems),
    (TinyPlayer, _tiny_player_problems),
    (SelfPlayBase, self_play.base_problems),
    (EvaluateAnswers, answers.problems),
    (BuildDialogues, tasks.dialogue_problems),
    (LanguageSelfPlay, self_play.problems),
)

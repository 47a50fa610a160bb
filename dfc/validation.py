"""Checks a `RunConfig` before anything runs, and reports every problem together.

`problems` looks at the configuration alone, `path_problems` at the file system, `device_problems` at the number of
devices: the first two need no JAX, so that a mistake is answered at once.
"""

import dataclasses
import difflib
import functools
import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dfc import endpoint_validation, task_validation
from dfc.config import DivideFuseConquerConfig, FusionConfig, RunConfig
from dfc.errors import ConfigError, error_text, shown
from dfc.games import registry, scripted
from dfc.players import factory, key_search, player_specs


@dataclasses.dataclass(frozen=True)
class _Range:
    low: float
    high: float = math.inf
    above: bool = False  # low itself is out
    below: bool = False  # high itself is out

    def __contains__(self, value: float) -> bool:
        above_low = value > self.low if self.above else value >= self.low
        return above_low and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        low = f"above {_plain(self.low)}" if self.above else f"at least {_plain(self.low)}"
        if math.isinf(self.high):
            return low
        return f"{low} and {'below' if self.below else 'at most'} {_plain(self.high)}"


def _plain(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


_POSITIVE = _Range(0, above=True)
_NOT_NEGATIVE = _Range(0)
# No machine runs what is beyond these; a digit too many is reported before the memory for it is asked for.
_COUNT = _Range(1, 10**9)
_COUNT_OR_ZERO = _Range(0, 10**9)
_THREADS = _Range(1, 1024)
_LENGTH = _Range(2, 2**24)
_SHARE = _Range(0, 1)
_DECAY = _Range(0, 1, below=True)

_RANGES = {
    "seed": _Range(0, 2**32, below=True),
    "rollout.slots": _Range(1, 100_000),
    "rollout.rows": _COUNT_OR_ZERO,
    "rollout.decode_steps": _COUNT,
    "rollout.workers": _THREADS,
    "rollout.max_length": _LENGTH,
    "rollout.max_reply_length": _COUNT,
    "rollout.simulator_reply_length": _COUNT,
    "rollout.max_prompt_length": _NOT_NEGATIVE,
    "rollout.max_actions": _NOT_NEGATIVE,
    "rollout.sampling.temperature": _NOT_NEGATIVE,
    "rollout.sampling.top_k": _COUNT_OR_ZERO,
    "rollout.sampling.top_p": _Range(0, 1, above=True),
    "rollout.sampling.min_p": _DECAY,
    "optimizer.learning_rate": _POSITIVE,
    "optimizer.warmup_steps": _COUNT_OR_ZERO,
    "optimizer.warmup_ratio": _DECAY,
    "optimizer.b1": _DECAY,
    "optimizer.b2": _DECAY,
    "optimizer.weight_decay": _NOT_NEGATIVE,
    "optimizer.clip_norm": _POSITIVE,
    "batch.row_length": _LENGTH,
    "batch.micro_batch_rows": _COUNT,
    "batch.workers": _THREADS,
    "training.max_growth": _Range(1, 1e30, above=True),
    "training.max_update": _Range(0, 1e30, above=True),
    "adapter.rank": _Range(0, 2**16),
    "adapter.alpha": _POSITIVE,
    "adapter.dropout": _DECAY,
    "divide_fuse_conquer.divide_iterations": _COUNT_OR_ZERO,
    "divide_fuse_conquer.conquer_iterations": _COUNT_OR_ZERO,
    "divide_fuse_conquer.seeds_per_game": _COUNT,
    "divide_fuse_conquer.trajectories_per_seed": _Range(2, 10**9),  # one episode has nothing to be compared with
    "divide_fuse_conquer.tasks": _COUNT_OR_ZERO,
    "divide_fuse_conquer.epsilon": _SHARE,
    "divide_fuse_conquer.grouping.trials": _COUNT,
    "divide_fuse_conquer.grouping.winnable_above": _DECAY,
    "divide_fuse_conquer.fusion.weight": _Range(0, 1, above=True, below=True),
    "divide_fuse_conquer.fusion.scale": _POSITIVE,
    "divide_fuse_conquer.fusion.density": _Range(0, 1, above=True),
    "divide_fuse_conquer.pool.size": _COUNT,
    "divide_fuse_conquer.pool.every": _COUNT,
    "divide_fuse_conquer.mixed_priority.a": _NOT_NEGATIVE,
    "divide_fuse_conquer.mixed_priority.b": _NOT_NEGATIVE,
    "divide_fuse_conquer.mixed_priority.floor": _SHARE,
    "divide_fuse_conquer.acceptance.games": _Range(2, 10**9),
    "divide_fuse_conquer.acceptance.tolerance": _SHARE,
    "divide_fuse_conquer.grpo.clip_ratio": _Range(0, 1, above=True, below=True),
    "divide_fuse_conquer.grpo.clip_ratio_high": _NOT_NEGATIVE,
    "divide_fuse_conquer.grpo.kl_coefficient": _NOT_NEGATIVE,
    "divide_fuse_conquer.grpo.updates_per_iteration": _COUNT,
    "divide_fuse_conquer.grpo.importance_cap": _NOT_NEGATIVE,
    "divide_fuse_conquer.reward.invalid": _Range(-1e6, 0, below=True),
    "divide_fuse_conquer.reward.illegal_try": _NOT_NEGATIVE,
    "divide_fuse_conquer.reward.overrun": _Range(-1e6, 0),
    "tiny_player.tokens_per_game": _COUNT,
    "tiny_player.transcripts_per_game": _COUNT_OR_ZERO,
    "tiny_player.tasks": _COUNT_OR_ZERO,
    "tiny_player.illegal_share": _SHARE,
    "tiny_player.steps": _COUNT,
    "tiny_player.transcripts_per_step": _COUNT,
    "tiny_player.long_every": _COUNT,
    "tiny_player.width": _Range(32, 2**16),
    "tiny_player.layers": _Range(1, 1000),
    "tiny_player.feed_forward": _Range(1, 2**20),
    "tiny_player.vocabulary": _Range(257, 2**20),  # the 256 bytes and an end mark, so that every text can be written
    "evaluate.seeds": _COUNT,
    **{
        f"{section}.endpoint.{name}": allowed
        for section in ("evaluate", "simulators")
        for name, allowed in {
            "temperature": _Range(0, 2),
            "max_tokens": _COUNT,
            "concurrency": _Range(1, 1000),
            "timeout": _POSITIVE,
            "retries": _Range(0, 100),
            "budget_money": _NOT_NEGATIVE,
        }.items()
    },
    "collect.tasks": _COUNT_OR_ZERO,
    "collect.samples": _COUNT,
    "collect.temperature": _NOT_NEGATIVE,
    "collect.min_p": _DECAY,
    "collect.episodes_per_chunk": _COUNT_OR_ZERO,
    "build_data.sft_tokens": _COUNT,
    "build_data.pair_tokens": _COUNT,
    "build_data.turn_ratio": _NOT_NEGATIVE,
    "offline.epochs": _COUNT,
    "offline.batch_size": _COUNT,
    "offline.beta": _POSITIVE,
    "offline.alpha": _NOT_NEGATIVE,
    "offline.preference_weight": _NOT_NEGATIVE,
    "offline.margin": _NOT_NEGATIVE,
    "offline.max_row_bytes": _Range(1000, 2**31 - 1),
    "evaluate_tasks.first": _COUNT_OR_ZERO,
    "evaluate_tasks.tasks": _COUNT_OR_ZERO,
    "evaluate_tasks.trajectories": _COUNT,
    "evaluate_tasks.min_p": _DECAY,
    "task_curriculum.rounds": _COUNT,
    "task_curriculum.steps": _COUNT,
    "task_curriculum.tasks_at_once": _COUNT,
    "task_curriculum.c": _NOT_NEGATIVE,
    "task_curriculum.samples": _Range(2, 10**9),  # one trajectory has no spread
    "paprika.sft_learning_rate": _POSITIVE,
    "paprika.rpo_learning_rate": _POSITIVE,
    "paprika.sft_epochs": _COUNT,
    "paprika.rpo_epochs": _COUNT,
    "evaluation.games": _Range(2, 10**9),
    "evaluation.stage_games": _Range(2, 10**9),
    "checkpoint.every": _COUNT,
    "checkpoint.keep": _COUNT,
}
# Seats alternate: an odd number of games would favour whoever moves first.
_EVEN = ("divide_fuse_conquer.acceptance.games", "evaluation.games", "evaluation.stage_games")


def fields_of(section: object) -> dict[str, Any]:
    """Returns the field types of a configuration class (or instance) by name, in the order of the class."""
    return dict(_fields_of_class(section if isinstance(section, type) else type(section)))


@functools.cache
def _fields_of_class(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of the schema
    hints = typing.get_type_hints(section)
    return {field.name: hints[field.name] for field in dataclasses.fields(section)}


def describe_type(hint: object) -> str:
    """Returns in plain words what a field of this type accepts, e.g. ``one of 'float32', 'bfloat16'``."""
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"a tuple of {typing.get_args(hint)[0].__name__} such as ('a', 'b')"
    if typing.get_origin(hint) is not None or hint is dict:
        return "a mapping"
    names: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(hint, f"a section ({getattr(hint, '__name__', hint)})")


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Returns ``; did you mean 'x'?`` for the allowed name most like `name`, or what is allowed if none is like it."""
    allowed = list(allowed)
    match = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    return f"; did you mean '{match[0]}'?" if match else f"; allowed: {', '.join(allowed) or 'nothing'}"


_LARGEST = sys.float_info.max


def _fits(value: object, hint: object) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return isinstance(value, str) and value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return fits and bool(-_LARGEST <= typing.cast("float", value) <= _LARGEST)  # neither infinite nor NaN
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(hint, type) and isinstance(value, hint)


def _type_problems(section: object, path: str) -> list[str]:
    found = []
    for name, hint in fields_of(section).items():
        key, value = f"{path}{name}", getattr(section, name)
        if dataclasses.is_dataclass(hint):
            if isinstance(hint, type) and is_section(value, hint):
                found += _type_problems(value, f"{key}.")
            else:
                found.append(f"{key}={shown(value)}: must be {describe_type(hint)}")
        elif key != "games" and not _fits(value, hint):
            found.append(f"{key}={shown(value)} ({type(value).__name__}): must be {describe_type(hint)}")
    return found


def has_sections(config: object) -> bool:
    """Returns whether every section of a configuration is one of its class; what is in it may be anything."""
    sections = (
        (hint, getattr(config, name)) for name, hint in fields_of(config).items() if dataclasses.is_dataclass(hint)
    )
    return all(isinstance(hint, type) and is_section(value, hint) and has_sections(value) for hint, value in sections)


def is_section(value: object, kind: type) -> bool:
    """Returns whether a value is a section of a configuration with the fields of its class, none less and none more."""
    return isinstance(value, kind) and fields_of(value).keys() == fields_of(kind).keys()


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
        elif is_file(game_id):
            found.append(f"games.{game_id}: {OF_A_FILE}")
        else:
            complaints = registry.problems(game_id, options)
            found += [f"games.{game_id}: {problem.removeprefix(f'{game_id}: ')}" for problem in complaints]
    return found


OF_A_FILE = (
    "a file cannot be named here; a run takes a game of your own by its id, which the entry point of an installed "
    "package names: docs/add_a_game.md"
)


def is_file(game_id: object) -> bool:
    """Returns whether a game is named as ``FILE.py:CLASS``, which single games are played and checked by."""
    return isinstance(game_id, str) and ".py:" in game_id


def value_at(config: object, key: str) -> Any:  # noqa: ANN401 - the type depends on the key
    """Returns the value at a dotted key such as ``rollout.sampling.top_p``."""
    for name in key.split("."):
        config = getattr(config, name)
    return config


def _range_problems(config: RunConfig) -> list[str]:
    found = []
    for key, allowed in _RANGES.items():
        value = value_at(config, key)
        if value not in allowed:
            found.append(f"{key}={value!r}: must be {allowed}")
        elif key in _EVEN and value % 2:
            found.append(f"{key}={value!r}: must be even, because seats alternate")
    return found


_LONGEST_NAME = 200  # of the 255 that file systems allow: temporary files add to it
_UP = (".", "..")


def _contradictions(config: RunConfig) -> list[str]:
    rollout, batch = config.rollout, config.batch
    found = []
    name = config.name
    if not name.isprintable() or not 0 < len(name.encode()) <= _LONGEST_NAME or {"/", "\\"} & set(name) or name in _UP:
        allowed = f"one folder name of at most {_LONGEST_NAME} bytes, without control characters"
        found.append(f"name={name!r}: must be {allowed}; runs go to runs/<name>, --workdir takes a path")
    if not config.model.path:
        found.append("model.path is empty: must be a folder in the Hugging Face layout, or tiny_player")
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
    if config.recipe == "divide_fuse_conquer" and batch.row_length < rollout.max_length:
        found.append(
            f"batch.row_length={batch.row_length}: must be at least rollout.max_length={rollout.max_length},"
            " so that the longest episode fits into a row"
        )
    for name, numbers, least in (
        ("prefill_buckets", rollout.prefill_buckets, 1),
        ("cache_buckets", rollout.cache_buckets, 0),
    ):
        if list(numbers) != sorted(set(numbers)) or any(n < least for n in numbers):
            found.append(f"rollout.{name}={numbers}: must ascend, from {least} or more")
    if rollout.legal_only and rollout.prompt == "think":
        found.append(
            "rollout.legal_only=true leaves no room for the thought that rollout.prompt='think' asks for: every reply"
            " would be malformed; set one of the two"
        )
    if "" in rollout.stop:
        found.append(f"rollout.stop={rollout.stop!r}: must hold no empty text, which would end every reply at once")
    return found + _tiny_player_problems(config)


def _tiny_player_problems(config: RunConfig) -> list[str]:
    found = []
    if config.tiny_player.width % 32:
        found.append(f"tiny_player.width={config.tiny_player.width}: must be a multiple of 32, the size of a head")
    skill = config.tiny_player.skill
    if len(skill) != 2 or not 0 <= skill[0] <= skill[-1] <= 1:
        found.append(f"tiny_player.skill={skill}: must be two numbers from 0 to 1, the lower one first")
    found += task_validation.count_problems("tiny_player.transcripts_of", config.tiny_player.transcripts_of)
    if config.recipe == "tiny_player":
        numbers = task_validation.counts(config.tiny_player.transcripts_of)
        for key, games in (("novice", config.tiny_player.novice), ("transcripts_of", numbers)):
            strangers = [game for game in games if game not in config.games]
            if strangers:
                found.append(f"tiny_player.{key}: {', '.join(strangers)} must be among this run's games")
    return found


def _recipe_contradictions(config: RunConfig) -> list[str]:
    if config.recipe == "divide_fuse_conquer":
        return _method_contradictions(config) + _attention_problems(config)
    if config.recipe in task_validation.TRAINING:
        return _attention_problems(config)
    if config.adapter.rank == 0:
        return []
    return [f"adapter.rank={config.adapter.rank}: {config.recipe} has no adapters"]


def _attention_problems(config: RunConfig) -> list[str]:
    found = []
    if config.training.attention == "splash" and config.batch.row_length % 128:
        found.append(f"batch.row_length={config.batch.row_length}: must be a multiple of 128 for splash attention")
    if config.training.attention == "cudnn" and config.model.dtype != "bfloat16":
        found.append(f"training.attention='cudnn': takes 16-bit numbers; model.dtype is {config.model.dtype!r}")
    return found


def _method_contradictions(config: RunConfig) -> list[str]:
    method, found = config.divide_fuse_conquer, []
    if config.rollout.sampling.temperature == 0:
        found.append(
            "rollout.sampling.temperature=0: must be above 0 in training; without chance all episodes of a seed"
            " are the same and there is nothing to compare"
        )
    sampling = config.rollout.sampling
    if sampling.top_k or 0 < sampling.top_p < 1 or sampling.min_p:
        found.append(
            "rollout.sampling: top_k=0, top_p=1 and min_p=0 are required in training; the update compares"
            " probabilities of the whole distribution, and those of a cut one would all look changed"
        )
    if config.optimizer.schedule != "constant":
        found.append(
            "optimizer.schedule='cosine': must be 'constant' in divide_fuse_conquer, whose optimizer starts again"
            " at every stage and is undone with a dropped update"
        )
    if config.optimizer.warmup_ratio:
        found.append(
            f"optimizer.warmup_ratio={config.optimizer.warmup_ratio}: must be 0 in divide_fuse_conquer, which warms up"
            " again at every stage; set optimizer.warmup_steps"
        )
    found += _adapter_contradictions(config)
    priority = method.mixed_priority
    if priority.enabled and priority.a + priority.b == 0:
        found.append("divide_fuse_conquer.mixed_priority.a and .b are both 0: one must be above 0")
    if method.grpo.baseline == "leave_one_out" and method.grpo.normalize_std:
        found.append(
            "divide_fuse_conquer.grpo.normalize_std: must be false with baseline='leave_one_out', whose advantages are"
            " differences of rewards"
        )
    found += _group_contradictions(config) + _opponent_contradictions(config)
    groups = method.seeds_per_game
    if method.grpo.updates_per_iteration > groups:
        found.append(
            f"divide_fuse_conquer.grpo.updates_per_iteration={method.grpo.updates_per_iteration}: must be at most"
            f" {groups}, the groups of an iteration over one game (seeds_per_game)"
        )
    return found


_KINDS = DivideFuseConquerConfig().grouping.order
_OPPONENTS = ("initial", "itself", "pool")


def _group_contradictions(config: RunConfig) -> list[str]:
    grouping, fusion, found = config.divide_fuse_conquer.grouping, config.divide_fuse_conquer.fusion, []
    if sorted(grouping.order) != sorted(_KINDS):
        found.append(f"divide_fuse_conquer.grouping.order={grouping.order}: must hold each of {', '.join(_KINDS)} once")
    given = [game for group in grouping.groups for game in group]
    if given and (sorted(given) != sorted(config.games) or not all(grouping.groups)):
        found.append(
            f"divide_fuse_conquer.grouping.groups={grouping.groups}: must hold each id of games once"
            f" ({', '.join(config.games)}), and no empty group"
        )
    if fusion.method != "average" and config.adapter.rank > 0:
        found.append(
            f"divide_fuse_conquer.fusion.method={fusion.method!r}: must be 'average' with adapters (adapter.rank above"
            " 0), whose factors cannot be added one by one"
        )
    if fusion.method == "ties" and fusion.weight != FusionConfig().weight:
        found.append("divide_fuse_conquer.fusion.weight: ties weighs all policies alike; leave it at 0.5")
    return found


def _opponent_contradictions(config: RunConfig) -> list[str]:
    method, found = config.divide_fuse_conquer, []
    wrong = None if method.opponent in _OPPONENTS else factory.problem(method.opponent)
    if wrong is not None:
        found.append(
            f"divide_fuse_conquer.opponent={method.opponent!r}: must be {', '.join(_OPPONENTS)}; or else it {wrong}"
        )
    if method.opponent in scripted.STRENGTHS:
        strength: Any = method.opponent
        for game, options in player_specs.sound_games(config.games).items():
            try:
                if registry.make(game, **options).seats > 1:
                    scripted.player(game, strength)
            except ValueError as error:
                found.append(f"divide_fuse_conquer.opponent={method.opponent!r} cannot play {game}: {error}")
    if method.train_both_seats and method.opponent != "itself":
        found.append(
            f"divide_fuse_conquer.train_both_seats: needs opponent='itself', got {method.opponent!r}: what somebody"
            " else said is not the policy's"
        )
    return found


def _adapter_contradictions(config: RunConfig) -> list[str]:
    adapter, found = config.adapter, []
    if adapter.base == "nf4" and config.divide_fuse_conquer.method == "naive_single":
        found.append(
            "adapter.base='nf4': must be 'full' with method='naive_single', which plays on after it has written a"
            " game's policy; there would be no room for the whole weights. Or give every game a run of its own"
        )
    if adapter.base != "full" and adapter.rank == 0:
        found.append("adapter.base='nf4': quantized weights are not trained themselves; set adapter.rank above 0")
    if adapter.dropout > 0:
        found.append(
            f"adapter.dropout={adapter.dropout}: must be 0 in divide_fuse_conquer; games are played without dropout,"
            " and the update would take its noise for a change of the policy"
        )
    return found


def _mesh_problems(config: RunConfig) -> list[str]:
    sizes = dataclasses.asdict(config.mesh)
    found = [
        f"mesh.{axis}={size}: must be at least 1, or -1 for the devices that remain"
        for axis, size in sizes.items()
        if size < 1 and size != -1
    ]
    open_axes = [axis for axis, size in sizes.items() if size == -1]
    if len(open_axes) > 1:
        found.append(f"mesh.{' and mesh.'.join(open_axes)} are all -1: only one axis can take what remains")
    if not found:
        shards = config.mesh.data * config.mesh.fsdp
        if shards > 0 and config.batch.micro_batch_rows % shards:
            found.append(_rows_problem(config, shards))
    return found


def _rows_problem(config: RunConfig, shards: int) -> str:
    return (
        f"batch.micro_batch_rows={config.batch.micro_batch_rows}: must be a multiple of {shards},"
        " the devices a batch is split over (mesh.data x mesh.fsdp)"
    )


def problems(config: RunConfig) -> list[str]:
    """Returns every problem of a configuration, one sentence each: the key, what came, what is allowed.

    Values are only compared with each other once every type is right and no key or password is among them, which no
    sentence repeats (`dfc.players.key_search`; the environment is read).
    """
    found = [*key_search.problems(config), *_type_problems(config, "")]
    if not found:
        found = _range_problems(config) + _mesh_problems(config)
        found += _contradictions(config) + _recipe_contradictions(config)
        if config.recipe == "evaluate":
            found += player_specs.problems(config)
        found += task_validation.problems(config) + endpoint_validation.problems(config)
    if config.recipe not in task_validation.WITHOUT_GAMES:
        found = games_problems(config.games) + found
    search = key_search.KeySearch(key_search.variables_of(config))
    return [search.redact(problem) for problem in found]


def notices(config: RunConfig) -> list[str]:
    """Returns what a person should know of a valid configuration before it runs, one line each."""
    limit = config.rollout.max_actions
    if not limit or config.recipe in task_validation.WITHOUT_GAMES:
        return []
    max_game_length = {
        game_id: registry.make(game_id, **options).max_game_length for game_id, options in config.games.items()
    }
    stopped = [f"{game_id} {actions}" for game_id, actions in max_game_length.items() if actions > limit]
    if not stopped:
        return []
    what = "longer games are stopped there; whoever is ahead wins where the game can tell, otherwise they do not count"
    return [f"rollout.max_actions={limit} is below the longest play of {', '.join(stopped)}: {what}"]


def path_problems(config: RunConfig) -> list[str]:
    """Returns what this machine lacks for a valid configuration: the model's folder, the keys of endpoints."""
    try:
        return _folder_problems(config) + endpoint_validation.key_problems(config)
    except (OSError, RuntimeError) as error:  # a name that is too long, a folder that may not be read, ~nobody
        return [f"a path of the configuration cannot be looked at: {error_text(error)}"]


def _folder_problems(config: RunConfig) -> list[str]:
    if config.recipe == "evaluate":
        return player_specs.path_problems(config)
    path = config.model.path
    found = task_validation.path_problems(config)
    if config.recipe == "build_data":
        return found
    if config.recipe == "tiny_player" or path == "tiny_player":
        return found
    if Path(path).is_dir():
        if (Path(path) / "policy").is_dir():
            found.append(f"model.path={path!r}: is a run; name its weights, {Path(path) / 'policy'}")
        return found
    hint = "download the weights in the Hugging Face layout and name their folder, or use tiny_player"
    return [*found, f"model.path={path!r}: no such folder (current folder: {Path.cwd()}); {hint}"]


def device_problems(config: RunConfig, devices: int) -> list[str]:
    """Returns why a valid configuration's mesh does not fit this number of devices."""
    sizes = dataclasses.asdict(config.mesh)
    known = math.prod(size for size in sizes.values() if size != -1)
    text = ", ".join(f"mesh.{axis}={size}" for axis, size in sizes.items())
    example = "for example --config.mesh.data=1 --config.mesh.fsdp=-1 --config.mesh.tensor=1 (-1 takes what remains)"
    if -1 in sizes.values():
        if devices % known:
            return [f"{text}: the fixed sizes multiply to {known}, which must divide the {devices} devices; {example}"]
    elif known != devices:
        return [f"{text}: the product is {known}, but must be the number of devices, {devices}; {example}"]
    data, fsdp, _ = (size if size != -1 else devices // known for size in sizes.values())
    return [_rows_problem(config, data * fsdp)] if config.batch.micro_batch_rows % (data * fsdp) else []


def check(config: RunConfig) -> None:
    """Raises a `ConfigError` that lists all `problems`, if there are any."""
    found = problems(config)
    if found:
        raise ConfigError(found)

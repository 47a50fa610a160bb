"""What one iteration of a run holds and how often each program runs in it: all that is read of a recipe's settings.

The compiler knows a program, not a game: how long replies are, how many turns an episode has and how uneven the tail
of a batch is decide the rest. `Lengths` is an assumption and is printed with every time derived from it.
"""

import dataclasses
import math

from jax.sharding import Mesh

from dfc import validation
from dfc.config import DivideFuseConquer, Grpo, MeshConfig, RlRun, Run, SamplingConfig
from dfc.errors import ConfigError
from dfc.fit.analytic import Workload
from dfc.fit.hardware import Topology
from dfc.games import registry
from dfc.models.config import DecoderConfig
from dfc.recipes import divide_fuse_conquer
from dfc.training import rl
from dfc.training.optimizer import make_optimizer
from dfc.training.trainer import Trainer

COUNTED = (DivideFuseConquer.recipe, Grpo.recipe)  # the recipes whose iterations and copies of weights are known here
_GROUPS = 4  # start fixed or random, winnable or not: as many policies at most


@dataclasses.dataclass(frozen=True)
class Lengths:
    """What an episode is assumed to be.

    Attributes:
      episode: tokens of one seat's context at the end.
      generated_share: share of them the policy samples; the rest is prefilled.
    """

    episode: int
    generated_share: float

    def describe(self) -> str:
        """Returns the assumption in words."""
        return f"{self.episode} tokens per episode, {self.generated_share:.0%} of them sampled"


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs of each program in one iteration, all rows busy until the last episode ends.

    Attributes:
      episodes: of the iteration.
      decode: calls that sample in every row, each for all its steps.
      prefill: calls that only prefill, in every row.
      micro_batches: forward and backward passes.
      updates: optimizer steps; the weights for decoding are renewed after the last one.
    """

    episodes: int
    decode: int
    prefill: int
    micro_batches: int
    updates: int


def counted(config: Run) -> RlRun:
    """Returns the configuration of a recipe that is counted; raises a ConfigError unless it is one of `COUNTED`."""
    if not isinstance(config, RlRun):
        problem = (
            f"recipe={config.recipe!r}: what it keeps on a device and how often it runs each program is not known "
            f"here; only {' and '.join(COUNTED)} are counted. Sizes of that recipe would be wrong for another, so none "
            "are given"
        )
        raise ConfigError([problem])
    return config


def lengths_of(config: RlRun, episode: int | None = None, generated_share: float | None = None) -> Lengths:
    """Returns what is given; without it half of the longest context, half of it sampled."""
    return Lengths(episode or max(1, config.rollout.max_length // 2), generated_share or 0.5)


def _episodes(config: RlRun) -> int:
    return max(1, len(config.games)) * config.seeds_per_game * config.trajectories_per_seed


def _micro_batches(config: RlRun, lengths: Lengths) -> int:
    rows = math.ceil(_episodes(config) * lengths.episode / config.batch.row_length)
    return math.ceil(rows / config.batch.micro_batch_rows)


def runs(config: RlRun, lengths: Lengths, workload: Workload) -> Runs:
    """Counts one iteration; one seat per episode, no episode dropped."""
    episodes = _episodes(config)
    waves = episodes / workload.call_rows
    generated = lengths.episode * lengths.generated_share
    return Runs(
        episodes=episodes,
        decode=math.ceil(waves * generated / workload.steps),
        prefill=math.ceil(waves * (lengths.episode - generated) / workload.prefill),
        micro_batches=_micro_batches(config, lengths),
        updates=workload.updates,
    )


def workload_of(config: RlRun, decoder: DecoderConfig, topology: Topology, lengths: Lengths) -> Workload:
    """Returns what decides memory and time of this run on these devices.

    Raises:
      ConfigError: the mesh does not fit them.
    """
    problems = validation.device_problems(config, topology.devices)
    if problems:
        raise ConfigError(problems)
    sizes = dataclasses.asdict(config.mesh)
    known = math.prod(size for size in sizes.values() if size != -1)
    mesh = MeshConfig(**{axis: topology.devices // known if size == -1 else size for axis, size in sizes.items()})
    attention = config.training.attention
    updates = config.grpo.updates_per_iteration
    # Only this method has groups, of a game each at the least; the others' policies wait while the last is trained.
    divides = isinstance(config, DivideFuseConquer) and config.method == "divide_fuse_conquer"
    groups = min(_GROUPS, max(1, len(config.games))) if divides else 1
    two = any(registry.make(game_id, **options).info.seats > 1 for game_id, options in config.games.items())
    if attention == "auto":  # as `dfc.models.attention.choose` chooses on the devices
        nvidia = topology.chip.nvidia
        widest = 0 if nvidia is None or decoder.dtype == "float32" else 256 if float(nvidia.capability) >= 9 else 128
        attention = "cudnn" if decoder.head_dim <= widest else "xla"
        if topology.chip.platform == "tpu":
            attention = "splash"
    return Workload(
        model=decoder,
        mesh=mesh,
        batch=config.batch,
        training=dataclasses.replace(config.training, attention=attention),
        adapter=config.adapter,
        rollout=config.rollout,
        sampling=SamplingConfig(temperature=config.temperature),
        micro_batches=_micro_batches(config, lengths) // updates,
        updates=updates,
        reference=_learning(config).reads_reference,
        group_policies=groups - 1,
        compares=config.acceptance.rule != "always",
        conversations=2 if two else 1,
        apart=topology.devices > topology.of_a_host and topology.of_a_host % mesh.tensor == 0,
    )


def _learning(config: RlRun) -> rl.Learning:
    return divide_fuse_conquer.learning(config) if isinstance(config, DivideFuseConquer) else rl.grpo(config)


def make_trainer(config: RlRun, workload: Workload, mesh: Mesh) -> Trainer:
    """Returns the trainer the run would use."""
    return Trainer(
        workload.model,
        _learning(config).loss,
        make_optimizer(config.optimizer),
        temperature=config.temperature,
        training=config.training,
        lora=workload.lora,
        mesh=mesh,
    )

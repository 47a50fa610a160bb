"""What each stage of a run holds on its devices: from the sections of its configuration to a `Workload`."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import jax.numpy as jnp
from jax.sharding import Mesh

from dfc import validation
from dfc.config import (
    BatchConfig,
    Branch,
    Collect,
    CollectingRunConfig,
    DivideFuseConquer,
    Evaluate,
    EvaluateAnswers,
    EvaluateTasks,
    LanguageSelfPlay,
    MeshConfig,
    ModelConfig,
    ModelRunConfig,
    PlayersRunConfig,
    Preference,
    RlRunConfig,
    RowsAdapterConfig,
    RunConfig,
    SamplingConfig,
    Sft,
    SmallModel,
    TinyPlayer,
    TrainingConfig,
)
from dfc.errors import ConfigError
from dfc.methods import divide_fuse_conquer
from dfc.methods.language_self_play import self_play_run, update
from dfc.models import attention
from dfc.models.config import DecoderConfig
from dfc.models.execution import Platform
from dfc.players import player_specs
from dfc.players.player_specs import PlayerSpec
from dfc.rollout.workers import conversations
from dfc.stages import offline
from dfc.tools.fit import analytic, iteration
from dfc.tools.fit.hardware import Topology
from dfc.tools.fit.iteration import Lengths, Stage
from dfc.tools.fit.published import reward_model_of
from dfc.tools.fit.workload import OtherModel, Workload, decided
from dfc.tools.small_models import imitation
from dfc.training import online_trainer, rl
from dfc.training.method import Method
from dfc.training.trainer import Trainer

REWARD_MODEL = "reward model"
_GROUPS = 4  # start fixed or random, winnable or not: as many policies at most
Find = Callable[[ModelConfig], DecoderConfig]  # the shape of a model that a configuration names


def workload_of(config: RunConfig, decoder: DecoderConfig, topology: Topology, lengths: Lengths) -> Workload:
    """Returns what decides memory and time of a stage on these devices.

    The decoder of a tournament is that of all players.

    Raises:
      ConfigError: the mesh does not fit them, the recipe runs on fewer, or is not counted.
    """
    _refuse(config, topology)
    sizes = dataclasses.asdict(config.mesh if isinstance(config, ModelRunConfig | Evaluate) else MeshConfig(1, 1, 1))
    known = math.prod(size for size in sizes.values() if size != -1)
    mesh = MeshConfig(**{axis: topology.devices // known if size == -1 else size for axis, size in sizes.items()})
    apart = topology.devices > topology.of_a_host and topology.of_a_host % mesh.tensor == 0
    found = Workload(decoder, mesh, trains=False, plays=False, reference=False, apart=apart)
    platform: Platform = "tpu" if topology.chip.platform == "tpu" else "gpu"
    found = dataclasses.replace(found, of_a_host=topology.of_a_host, platform=platform, memory=topology.chip.memory)
    if isinstance(config, SmallModel):
        batch = BatchConfig(**vars(config.batch), workers=imitation.AT_ONCE)
        return dataclasses.replace(
            found,
            trains=True,
            batch=batch,
            training=TrainingConfig(scan_layers=False, remat="none", attention="xla"),
            micro_batches=iteration.micro_batches(config, batch, lengths),
            soft=True,
        )
    if isinstance(config, PlayersRunConfig):
        found = dataclasses.replace(
            found,
            plays=True,
            rollout=config.rollout,
            sampling=_sampling(config),
            other_sampling=_other_sampling(config),
            conversations=2 if isinstance(config, Evaluate) else conversations(config),
            others=_others(config, decoder),
        )
    if isinstance(config, EvaluateAnswers):
        rollout, sampling = config.engine_rollout, config.sampling
        found = dataclasses.replace(found, plays=True, rollout=rollout, sampling=sampling, conversations=1)
    if isinstance(config, LanguageSelfPlay):
        rollout = self_play_run.engine_config(config)
        judge = (config.self_reward.sampling,) if config.judges else ()
        found = dataclasses.replace(
            found, plays=True, rollout=rollout, sampling=config.sampling, other_sampling=judge, judges=config.judges
        )
    if isinstance(config, RlRunConfig | Sft | Preference | LanguageSelfPlay):
        found = _trained(found, config, topology, lengths)
    if found.plays:
        found = decided(found, mesh)
    if not found.trains and not found.plays:
        raise ConfigError([f"{type(config).__name__}: dfc/tools/fit/holdings.py does not say what this recipe holds"])
    return found


def _refuse(config: RunConfig, topology: Topology) -> None:
    problems = validation.device_problems(config, topology.devices)
    if isinstance(config, SmallModel) and topology.devices > 1:
        problems = [f"{config.recipe} makes its model on one device, not on {topology.devices}; --topology=h100:1"]
    if isinstance(config, Evaluate) and topology.hosts > 1:
        problems = [f"a tournament runs on one host, not on {topology.hosts}; take a --topology of one"]
    if problems:
        raise ConfigError(problems)


def _sampling(config: PlayersRunConfig) -> SamplingConfig:
    match config:
        case RlRunConfig():
            return config.sampling
        case EvaluateTasks():
            return dataclasses.replace(config.sampling, temperature=max(config.every_temperature))
        case CollectingRunConfig() | Evaluate():
            return config.sampling
        case _:
            return SamplingConfig()


def _other_sampling(config: PlayersRunConfig) -> tuple[SamplingConfig, ...]:
    """Returns how opponents sample that do so in their own way."""
    reply = config.opponent_reply.sampling if isinstance(config, RlRunConfig) else None
    return () if reply is None else (reply,)


def _others(config: PlayersRunConfig, decoder: DecoderConfig) -> tuple[OtherModel, ...]:
    """Returns the models that play beside the run's own; a tournament's are those of a meeting."""
    size = jnp.dtype(decoder.dtype).itemsize
    if isinstance(config, EvaluateTasks):
        if any(spec.who != config.model.path for spec in iteration.models_of(config)):
            return (OtherModel("policy that plays", decoder, size),)
    elif isinstance(config, RlRunConfig | Collect | Branch) and config.opponent not in ("initial", "itself", "pool"):
        quantized = isinstance(config, RlRunConfig) and config.adapter.base == "nf4"
        spec = player_specs.parse(config.opponent)
        if spec.kind == "model" and (quantized or spec.who != config.model.path):
            return (OtherModel("opponent", decoder, size),)
    return ()


def _trained(
    played: Workload, config: RlRunConfig | Sft | Preference | LanguageSelfPlay, topology: Topology, lengths: Lengths
) -> Workload:
    chip, adapter, batch = topology.chip, config.adapter, config.batch
    program = config.training.attention
    if program == "auto":
        model, tensor = played.model, played.mesh.tensor
        program = attention.automatic(
            "gpu" if chip.nvidia else chip.platform,
            chip.nvidia.capability if chip.nvidia else "",
            dtype=jnp.dtype(model.dtype),
            length=batch.row_length,
            head_dim=model.head_dim,
            soft_cap=model.attention_soft_cap,
            alike=model.heads % tensor == 0 and model.kv_heads % tensor == 0,
        )
    found = dataclasses.replace(
        played,
        trains=True,
        batch=batch,
        training=dataclasses.replace(config.training, attention=program),
        adapter=adapter,
        micro_batches=iteration.passes(config, batch, lengths, played.shards),
    )
    if isinstance(config, LanguageSelfPlay):
        # Log-probabilities of the reference are taken of every micro-batch, once.
        found = dataclasses.replace(found, reference=True, parts=2 if config.trains_challenger else 1, begins=False)
        if config.adapter_per_role:  # one loss at a time
            found = dataclasses.replace(found, parts=1, role_adapters=True)
        # Weights that are trained as they are read are the reference, too: the first update leaves them.
        keeps = found.one_layout or found.role_adapters
        return dataclasses.replace(found, keeps=keeps, others=_beside(config, played.model))
    if not isinstance(config, RlRunConfig):
        compares = offline.reads_reference(config)
        checks = bool(config.held_out.data)
        return dataclasses.replace(found, reference=compares, scores=compares, checks=checks, keeps=False)
    updates = config.grpo.updates_per_iteration
    # Only this method has groups, of at least one game each; the other groups' policies wait while the last is trained.
    divides = isinstance(config, DivideFuseConquer) and config.method == "divide_fuse_conquer"
    groups = min(_GROUPS, max(1, len(config.games))) if divides else 1
    return dataclasses.replace(
        found,
        micro_batches=iteration.passes(config, batch, lengths, played.shards, updates),
        updates=updates,
        reference=method_of(config).reads_reference,
        scores=config.grpo.importance_cap > 0 and updates > 1,
        group_policies=groups - 1,
        past_policies=config.pool.size if config.opponent == "pool" else 0,
        compares=config.acceptance.rule != "always",
    )


def _beside(config: LanguageSelfPlay, policy: DecoderConfig) -> tuple[OtherModel, ...]:
    """Returns the models in memory beside the policy: one of preferences, a reference of an earlier run."""
    found = []
    if "preference" in config.reward.weights:
        own = config.reward.preference
        model = reward_model_of(own.path, own.dtype, policy)
        found.append(OtherModel(REWARD_MODEL, model, jnp.dtype(own.dtype).itemsize, plays=False))
    if config.reference:
        size = jnp.dtype(policy.dtype).itemsize
        found.append(OtherModel("reference of its own", policy, size, plays=config.judges))
    return tuple(found)


def workload_of_stage(stage: Stage, run: RunConfig, find: Find, topology: Topology, lengths: Lengths) -> Workload:
    """Returns the workload of a stage; of a tournament, of the meeting that needs most.

    The stage is not an idle one; all stages of the run are of its model. `find` gives the shape of a model.

    Raises:
      ConfigError: as `workload_of`, or a model is not there.
    """
    config = stage.config
    if isinstance(config, Evaluate):
        return _meeting(config, find, topology, lengths)
    if not isinstance(run, SmallModel):
        assert isinstance(run, ModelRunConfig)  # noqa: S101 - all that is left
        return workload_of(config, find(run.model), topology, lengths)
    decoder = imitation.shape(run, run.vocabulary)
    found = workload_of(config, decoder, topology, lengths)
    if stage.name != iteration.EVALUATION or not isinstance(run, TinyPlayer):
        return found
    # Trained weights and moments are still there.
    return dataclasses.replace(found, sampling=run.sampling, others=(OtherModel("what was trained", decoder, 12.0),))


def _meeting(config: Evaluate, find: Find, topology: Topology, lengths: Lengths) -> Workload:
    def shape(spec: PlayerSpec) -> DecoderConfig:
        return find(ModelConfig(spec.who, config.dtype))

    shapes = {spec.name: shape(spec) for spec in iteration.models_of(config)}
    helper = shapes.pop(player_specs.SIMULATORS, None)
    found = []
    for meeting in iteration.meetings_of(config):
        models = [shapes[name] for name in (meeting.first, meeting.second) if name in shapes]
        for own, *others in itertools.permutations(models) if models else ():
            workload = workload_of(config, own, topology, lengths)
            beside = [("other policy", other, other != own) for other in others]
            beside += [] if helper is None else [(player_specs.SIMULATORS, helper, True)]
            placed = tuple(OtherModel(name, it, workload.weight_bytes, engines) for name, it, engines in beside)
            found.append(dataclasses.replace(workload, others=placed))
        if not models and helper is not None:
            found.append(workload_of(config, helper, topology, lengths))
    found = found or [workload_of(config, model, topology, lengths) for model in shapes.values()]  # without games
    return max(dict.fromkeys(found), key=lambda workload: analytic.memory(workload).peak)


# ---- training --------------------------------------------------------------------------------------------------------


def method_of(config: RlRunConfig) -> Method:
    """Returns the method of a recipe."""
    return divide_fuse_conquer.method_of(config) if isinstance(config, DivideFuseConquer) else rl.grpo(config)


def make_trainer(config: RlRunConfig | Sft | Preference | LanguageSelfPlay, workload: Workload, mesh: Mesh) -> Trainer:
    """Returns the trainer the run would use; what is not known before its data is not a shape of its programs."""
    training, adapter = workload.training, workload.adapter
    if isinstance(config, RlRunConfig | LanguageSelfPlay):
        config = dataclasses.replace(config, training=training, adapter=adapter)
        loss = update.make_losses(config) if isinstance(config, LanguageSelfPlay) else method_of(config).loss
        return online_trainer.make_trainer(config, workload.model, loss, mesh)
    dropout = RowsAdapterConfig(**vars(adapter))
    config = dataclasses.replace(config, training=training, adapter=dropout)
    return offline.make_trainer(config, workload.model, mesh, shortest=4, updates=1)

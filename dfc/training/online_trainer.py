"""The trainer of a run that learns from what its policy samples: from games, or from queries of its own."""

from collections.abc import Mapping

from jax.sharding import Mesh

from dfc.config import RlRunConfig
from dfc.config.self_play import LanguageSelfPlay
from dfc.models.config import DecoderConfig
from dfc.rollout.trained_weights import lora_config
from dfc.training.optimizer import make_optimizer
from dfc.training.trainer import LossFunction, Trainer


def make_trainer(
    config: RlRunConfig | LanguageSelfPlay,
    model: DecoderConfig,
    loss: LossFunction | Mapping[str, LossFunction],
    mesh: Mesh,
) -> Trainer:
    """Returns the trainer of a run's model."""
    return Trainer(
        model,
        loss,
        make_optimizer(config.optimizer),
        temperature=config.sampling.temperature,
        training=config.training,
        lora=lora_config(config.adapter),
        mesh=mesh,
        workers=config.batch.workers,
    )

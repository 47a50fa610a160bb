"""What runs have in common; every recipe's class is one of these with its own settings.

The class of a configuration is its recipe: it says which module of `dfc` runs it, and has exactly the settings
that are read there.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar

from dfc.config.ranges import Range
from dfc.config.sections import (
    BatchConfig,
    CheckpointConfig,
    EndpointConfig,
    Games,
    MeshConfig,
    ModelConfig,
    PlayerRolloutConfig,
    RolloutConfig,
    TrainingConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run; the class of a recipe says which: ``class Sft(..., recipe="sft", module="stages.offline")``.

    A custom method names its file: ``class Mine(RlRunConfig, recipe="mine", module=__file__)``.

    Attributes:
      recipe: the recipe's name, in messages and in ``config.json``.
      module: what runs it: a module inside `dfc`, or a path that ends with ``.py``.
      page: the module inside `dfc` with what the report shows of the method alone (`dfc.report.method_page`).
      shorter: settings that make a run shorter, most effective first, for messages.
      name: the run folder is ``runs/<name>`` unless ``--workdir`` is given.
      seed: with the rest of the configuration it determines every number of the run, clock readings apart.
    """

    recipe: ClassVar[str]
    module: ClassVar[str]
    page: ClassVar[str] = ""
    shorter: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, recipe: str = "", module: str = "") -> None:
        if recipe:
            cls.recipe, cls.module = recipe, module

    name: str = "run"
    seed: Annotated[int, Range(0, 2**32, below=True)] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GamesRunConfig(RunConfig):
    """A run that plays games.

    Attributes:
      games: game id, or ``FILE.py:CLASS``, -> constructor values that differ from the game's defaults.
      rollout: how games are played.
    """

    games: Games = dataclasses.field(default_factory=dict)
    rollout: PlayerRolloutConfig = PlayerRolloutConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayersRunConfig(GamesRunConfig):
    """A run in which other players can play beside its own policies.

    Attributes:
      rollout: how games are played.
      simulators: who plays the games' simulators: ``script``, ``initial`` (the model of the run, greedily), or a chat
        endpoint (``http://HOST/v1#MODEL``); in a tournament also a model, and not ``initial``.
      endpoints: how chat endpoints are asked, by the name of the player in this run: ``opponent``, ``simulators``,
        ``demonstrator``, or that of a policy; players not named use the defaults.
    """

    rollout: RolloutConfig = RolloutConfig()
    simulators: str = "script"
    endpoints: Mapping[str, EndpointConfig] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRunConfig(RunConfig):
    """A run of one model.

    Attributes:
      model: which weights to start from.
      mesh: how devices are laid out.
    """

    model: ModelConfig = ModelConfig()
    mesh: MeshConfig = MeshConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayingRunConfig(PlayersRunConfig, ModelRunConfig):
    """A run whose model plays games."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRunConfig(ModelRunConfig):
    """A run that trains its model.

    Attributes:
      batch: static shapes of an update.
      training: how an update is computed, and when it is refused.
      checkpoint: how the run survives a stop.
    """

    batch: BatchConfig = BatchConfig()
    training: TrainingConfig = TrainingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

"""The only schema of runs and the only home of their defaults: one frozen dataclass per recipe.

A configuration file (`configs/*.py`) returns one of the classes in `RECIPES`, such as `DivideFuseConquer` or `Paprika`;
the class is the recipe and has exactly the settings that it reads. The command line overrides single values
(`--config.optimizer.learning_rate=1e-3`). `dfc.launch` checks the whole tree (`dfc.validation`) before anything runs.
"""

from dfc.config.dialogues import BuildDialogues, DialogueChoiceConfig, DialogueRowsConfig, Minigames
from dfc.config.divide_fuse_conquer import DivideFuseConquer, EvaluationConfig, FusionConfig, GroupingConfig
from dfc.config.evaluate import AnswersRolloutConfig, CheckingConfig, Evaluate, EvaluateAnswers, PairwiseConfig
from dfc.config.grpo import (
    AcceptanceConfig,
    Grpo,
    GrpoConfig,
    MatchesConfig,
    MixedPriorityConfig,
    OpponentPoolConfig,
    RewardConfig,
    RlRunConfig,
)
from dfc.config.playpen import (
    AdaptedPreferenceConfig,
    AdaptedSftConfig,
    BranchConfig,
    DialogueCollectionConfig,
    Playpen,
    TeacherGrpoConfig,
)
from dfc.config.ranges import Range
from dfc.config.run import (
    GamesRunConfig,
    ModelRunConfig,
    PlayersRunConfig,
    PlayingRunConfig,
    RunConfig,
    TrainingRunConfig,
)
from dfc.config.sections import (
    AdapterConfig,
    BatchConfig,
    BatchShape,
    CheckpointConfig,
    DivergenceConfig,
    EndpointConfig,
    GameOptions,
    Games,
    HeldOutChecks,
    HeldOutConfig,
    MeshConfig,
    ModelConfig,
    OpponentReplyConfig,
    OptimizerConfig,
    PlayerRolloutConfig,
    RolloutConfig,
    RowsAdapterConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
    TrainingConfig,
)
from dfc.config.self_play import (
    AnswerRewardConfig,
    ChallengerConfig,
    LanguageSelfPlay,
    PreferenceRewardConfig,
    QueryTask,
    SelfPlayRolloutConfig,
    SelfRewardConfig,
    WatchConfig,
)
from dfc.config.serving import ServingConfig
from dfc.config.tasks import (
    Branch,
    BuildData,
    BuildDataConfig,
    ChoiceConfig,
    Collect,
    CollectConfig,
    CollectingRunConfig,
    CollectRound,
    EvaluateTasks,
    EvaluateTasksConfig,
    Paprika,
    Preference,
    PreferenceConfig,
    RowsRunConfig,
    SelectionLimits,
    Sft,
    SftConfig,
    StagesRunConfig,
    TaskCollectionConfig,
    TaskCurriculum,
)
from dfc.config.tiny_player import SelfPlayBase, SmallModel, TinyPlayer

RECIPES: dict[str, type[RunConfig]] = {
    kind.recipe: kind
    for kind in (
        DivideFuseConquer,
        Grpo,
        Paprika,
        TaskCurriculum,
        Playpen,
        LanguageSelfPlay,
        Collect,
        Branch,
        BuildData,
        BuildDialogues,
        Minigames,
        Sft,
        Preference,
        EvaluateTasks,
        EvaluateAnswers,
        Evaluate,
        TinyPlayer,
        SelfPlayBase,
    )
}


def is_recipe(kind: type) -> bool:
    """Returns whether configurations of a class can be run: those of `RECIPES`, and those of a custom file."""
    if kind in RECIPES.values():
        return True
    own = vars(kind) if issubclass(kind, RunConfig) else {}
    return str(own.get("module", "")).endswith(".py") and own["recipe"] not in RECIPES


__all__ = [
    "RECIPES",
    "AcceptanceConfig",
    "AdaptedPreferenceConfig",
    "AdaptedSftConfig",
    "AdapterConfig",
    "AnswerRewardConfig",
    "AnswersRolloutConfig",
    "BatchConfig",
    "BatchShape",
    "Branch",
    "BranchConfig",
    "BuildData",
    "BuildDataConfig",
    "BuildDialogues",
    "ChallengerConfig",
    "CheckingConfig",
    "CheckpointConfig",
    "ChoiceConfig",
    "Collect",
    "CollectConfig",
    "CollectRound",
    "CollectingRunConfig",
    "DialogueChoiceConfig",
    "DialogueCollectionConfig",
    "DialogueRowsConfig",
    "DivergenceConfig",
    "DivideFuseConquer",
    "EndpointConfig",
    "Evaluate",
    "EvaluateAnswers",
    "EvaluateTasks",
    "EvaluateTasksConfig",
    "EvaluationConfig",
    "FusionConfig",
    "GameOptions",
    "Games",
    "GamesRunConfig",
    "GroupingConfig",
    "Grpo",
    "GrpoConfig",
    "HeldOutChecks",
    "HeldOutConfig",
    "LanguageSelfPlay",
    "MatchesConfig",
    "MeshConfig",
    "Minigames",
    "MixedPriorityConfig",
    "ModelConfig",
    "ModelRunConfig",
    "OpponentPoolConfig",
    "OpponentReplyConfig",
    "OptimizerConfig",
    "PairwiseConfig",
    "Paprika",
    "PlayerRolloutConfig",
    "PlayersRunConfig",
    "PlayingRunConfig",
    "Playpen",
    "Preference",
    "PreferenceConfig",
    "PreferenceRewardConfig",
    "QueryTask",
    "Range",
    "RewardConfig",
    "RlRunConfig",
    "RolloutConfig",
    "RowsAdapterConfig",
    "RowsRunConfig",
    "RunConfig",
    "SamplingConfig",
    "ScheduledOptimizerConfig",
    "SelectionLimits",
    "SelfPlayBase",
    "SelfPlayRolloutConfig",
    "SelfRewardConfig",
    "ServingConfig",
    "Sft",
    "SftConfig",
    "SmallModel",
    "StagesRunConfig",
    "TaskCollectionConfig",
    "TaskCurriculum",
    "TeacherGrpoConfig",
    "TinyPlayer",
    "TrainingConfig",
    "TrainingRunConfig",
    "WatchConfig",
    "is_recipe",
]

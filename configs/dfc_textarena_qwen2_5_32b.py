"""The paper's run: Divide-Fuse-Conquer with Qwen2.5-32B on TextArena's games.

Paper: Divide-Fuse-Conquer (arXiv 2505.16401), section 4.2 for every value below, Table 2 for the games. Of its 18 games
those are listed that dfc has; the paper's Qwen2.5-32B-Align is not public, Qwen2.5-32B-Instruct takes its place.
Command: python -m dfc.launch --config=configs/dfc_textarena_qwen2_5_32b.py --config.model.path=FOLDER
  where FOLDER holds the weights in the Hugging Face layout.
Hardware: 64 devices of 80 GB (the paper: 64 A100).
Time: never run. By the analytic estimate it fits these devices, with a floor of 11 minutes per iteration over all games
  on H100 (docs/fit.md). Its programs were compiled for such devices without having them, for contexts of 8,192. What
  is smaller (another --config.model.path, shorter contexts) runs on one host.
Lengths: a call reads up to 8,192 tokens and writes up to 4,096, as in the paper; a conversation has room for both.
Score: the paper's Table 2, against the initial model over 20 games each, wins/draws/losses: TicTacToe 19/1/0,
  ConnectFour 15/0/5, ConnectFour-blind 19/0/1, ConnectFour-large 15/0/5, LiarsDice 8/11/1; GuessTheNumber,
  TowerOfHanoi and their harder variants 20/0/0.
Variant: --config.mesh.fsdp=1 --config.mesh.tensor=8 for one host of eight devices and a smaller model.
"""

from dfc.config import (
    AcceptanceConfig,
    BatchConfig,
    DivideFuseConquer,
    EvaluationConfig,
    GameOptions,
    GroupingConfig,
    GrpoConfig,
    MeshConfig,
    MixedPriorityConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
    SamplingConfig,
)
from dfc.games import registry

PAPER_GAMES = (
    "GuessTheNumber-v0",
    "GuessTheNumber-v0-hardcore",
    "TowerOfHanoi-v0",
    "TowerOfHanoi-v0-medium",
    "ConnectFour-v0",
    "ConnectFour-v0-blind",
    "ConnectFour-v0-large",
    "Poker-v0",
    "Poker-v0-long",
    "Poker-v0-extreme",
    "LiarsDice-v0",
    "SimpleNegotiation-v0",
    "SimpleNegotiation-v0-short",
    "SimpleNegotiation-v0-long",
    "TruthAndDeception-v0",
    "TruthAndDeception-v0-long",
    "TruthAndDeception-v0-extreme",
    "TicTacToe-v0",
)


STEPS = 120


def _options(game_id: str) -> GameOptions:
    """A chat model reads the board, unless the id hides it, and in poker when the match ends."""
    defaults = registry.defaults(game_id)
    if "show_board" in defaults and defaults.get("is_open", True):
        return {"show_board": True}
    return {"max_actions": STEPS} if "max_actions" in defaults else {}


def get_config() -> DivideFuseConquer:
    """Returns the configuration."""
    return DivideFuseConquer(
        name="dfc_textarena_qwen2_5_32b",
        games={game_id: _options(game_id) for game_id in PAPER_GAMES if game_id in registry.game_ids()},
        model=ModelConfig(path="Qwen2.5-32B-Instruct", dtype="bfloat16"),
        mesh=MeshConfig(data=1, fsdp=16, tensor=4),
        rollout=RolloutConfig(
            slots=256,
            max_length=12288,
            max_prompt_length=8192,
            max_reply_length=4096,
            max_actions=STEPS,
            prompt="think",
            think_language="Chinese",
        ),
        sampling=SamplingConfig(temperature=1.0),
        optimizer=OptimizerConfig(learning_rate=2e-6),
        batch=BatchConfig(row_length=12288, micro_batch_rows=64),
        divide_iterations=100,
        conquer_iterations=100,
        groups_per_game=50,
        group_size=8,
        opponent="itself",
        half_negative=True,
        random_action_rate=0.05,  # the paper states no number
        grouping=GroupingConfig(trials=100, winnable_above=0.0),
        mixed_priority=MixedPriorityConfig(a=0.2, b=0.8, floor=0.1),
        acceptance=AcceptanceConfig(rule="previous", games=20, tolerance=0.0),
        grpo=GrpoConfig(clip_ratio=0.1, kl_coefficient=0.1, updates_per_iteration=1),
        evaluation=EvaluationConfig(games=20, stage_games=20),
    )

"""Makes the bundled model: a tokenizer and a small decoder that know the words of nine games but not how to win.

Paper: none; the model stands in for a base model where there is no accelerator. It is trained on transcripts of
random legal play, so that it writes legal actions and leaves the winning to be learned.
Command: python -m dfc.launch --config=configs/tiny_player.py
Hardware: a CPU with two cores.
Time: 21 minutes on two cores shared with other work.
Score: at least 99 % legal replies in five tokens, 96 to 97 % in ConnectFour and GuessTheNumber-hardcore, 91 % in
  GuessTheNumber; 0.46 to 0.50 against random legal play.
Variant: --config.steps=400 for a quick and worse one.
"""

from dfc.config import BatchShape, CheckpointConfig, PlayerRolloutConfig, ScheduledOptimizerConfig, TinyPlayer

GAME_IDS = (  # the bundled weights were made from these; another list makes another model
    "TicTacToe-v0",
    "ConnectFour-v0",
    "ConnectFour-v0-blind",
    "TowerOfHanoi-v0",
    "TowerOfHanoi-v0-medium",
    "GuessTheNumber-v0",
    "GuessTheNumber-v0-hardcore",
    "LiarsDice-v0",
    "Nim-v0",
)


def get_config() -> TinyPlayer:
    """Returns the configuration."""
    return TinyPlayer(
        name="tiny_player",
        games={game_id: {} for game_id in GAME_IDS},
        rollout=PlayerRolloutConfig(slots=64, max_length=1024, max_reply_length=8, stop=("]",), prompt="bare_action"),
        optimizer=ScheduledOptimizerConfig(learning_rate=4e-3, warmup_steps=60, schedule="cosine", b2=0.98),
        batch=BatchShape(row_length=160, micro_batch_rows=4),
        checkpoint=CheckpointConfig(every=500, keep=2),
    )

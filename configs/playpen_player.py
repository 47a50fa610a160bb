"""Makes a small model that knows the rules and words of Playpen's 14 dialogue games, and none of their tasks by heart.

Paper: none; the model stands in for the paper's base model where there is no accelerator. It imitates scripted players,
  each with a skill of its own, in tasks drawn anew for every transcript (`split="fresh"`: none of them is in a split
  that later stages train on or measure by), and in ten games of TextArena and Paprika that no later stage trains: what
  it keeps of those says what later training costs.
Command: python -m dfc.launch --config=configs/playpen_player.py
Hardware: a CPU core.
Time: 45 minutes on half a busy core, of which transcripts, compiling and the games at the end 7. Measured as two runs,
  1,100 updates and, from their checkpoint, 800 more.
Score: 20 validation instances of each dialogue game, with itself, temperature 0: in domain 57 % played, quality 10; out
  of domain 57 % played, quality 27. The aim was quality 20 to 60 in either: missed in domain.
Variant: --config.steps=300 for a quick and worse one.
"""

from dfc.config import (
    BatchShape,
    CheckpointConfig,
    GameOptions,
    PlayerRolloutConfig,
    ScheduledOptimizerConfig,
    TinyPlayer,
)

DIALOGUE_GAMES = (
    "clem_taboo",
    "clem_privateshared",
    "clem_imagegame",
    "clem_referencegame",
    "clem_wordle",
    "clem_wordle_withclue",
    "clem_wordle_withcritic",
    "clem_codenames",
    "clem_adventuregame",
    "clem_guesswhat",
    "clem_matchit_ascii",
    "clem_textmapworld",
    "clem_textmapworld_specificroom",
    "clem_textmapworld_graphreasoning",
)
OTHER_GAMES: dict[str, GameOptions] = {
    "TicTacToe-v0": {},
    "Nim-v0": {},
    "LiarsDice-v0": {"num_dice": 2},
    "GuessTheNumber-v0": {},
    "TowerOfHanoi-v0": {"max_turns": 14},
    "bandit": {},
    "mastermind": {},
    "minesweeper": {},
    "cellular_automata": {},
    "battleship": {"show_board": False},  # the words of each shot tell the same, in fewer tokens
}


def get_config() -> TinyPlayer:
    """Returns the configuration."""
    return TinyPlayer(
        name="playpen_player",
        games={**{game: {"split": "fresh"} for game in DIALOGUE_GAMES}, **OTHER_GAMES},
        rollout=PlayerRolloutConfig(slots=32, max_length=1536, max_reply_length=160),
        optimizer=ScheduledOptimizerConfig(learning_rate=4e-3, warmup_steps=60, schedule="cosine", b2=0.98),
        batch=BatchShape(row_length=512, micro_batch_rows=2),
        transcripts_per_game=1000,
        # More where words or places must be learned, fewer of long games.
        transcripts_of={
            "clem_taboo": 2500,
            "clem_imagegame": 1500,
            "clem_privateshared": 1500,
            "clem_referencegame": 1500,
            "clem_codenames": 500,
            "clem_adventuregame": 600,
            "clem_textmapworld_graphreasoning": 500,
            **dict.fromkeys(OTHER_GAMES, 300),
        },
        skill=(0.7, 1.0),
        pieces="words",
        illegal_share=0.0,
        steps=1900,
        transcripts_per_step=16,
        long_every=12,
        width=96,
        layers=4,
        feed_forward=256,
        vocabulary=4096,
        evaluation_games=10,
        checkpoint=CheckpointConfig(every=100, keep=2),
    )

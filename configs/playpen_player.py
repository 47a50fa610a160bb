"""Makes a small model that knows the rules and words of Playpen's 14 dialogue games but has not memorised tasks.

Paper: none; the model stands in for the paper's base model where there is no accelerator. It imitates scripted players,
  each with a skill of its own, in fresh tasks for every transcript (`split="fresh"`: none of them is in a split
  that later stages train on or measure by), and in ten games of TextArena and Paprika that no later stage trains: what
  it keeps of those says what later training costs.
Command: python -m dfc.launch --config=configs/playpen_player.py
Hardware: a CPU core.
Time: 22 minutes on a core that other work shared for a part of them; transcripts and compiling 4 of them. 5 million
  tokens.
Score: 20 validation instances of each dialogue game, with itself, temperature 0: in domain 57 % played, quality 25; out
  of domain 70 % played, quality 24. The aim was 50 to 90 % played and quality 20 to 60 in either.
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
        optimizer=ScheduledOptimizerConfig(learning_rate=4e-3, warmup_steps=80, schedule="cosine", b2=0.98),
        batch=BatchShape(row_length=384, micro_batch_rows=4),
        transcripts_per_game=800,
        # Most where words or places must be learned (a transcript of taboo has 30 tokens), fewer of long games.
        transcripts_of={
            "clem_taboo": 50_000,
            "clem_privateshared": 9000,
            "clem_imagegame": 11_000,
            "clem_referencegame": 8000,
            "clem_wordle": 1500,
            "clem_wordle_withclue": 1500,
            "clem_wordle_withcritic": 1500,
            "clem_codenames": 400,
            "clem_guesswhat": 1800,
            "clem_matchit_ascii": 1200,
            "clem_textmapworld_graphreasoning": 400,
            **dict.fromkeys(OTHER_GAMES, 200),
        },
        skill=(0.8, 1.0),
        pieces="words",
        illegal_share=0.0,
        steps=2000,
        transcripts_per_step=44,
        long_every=12,
        width=96,
        layers=4,
        feed_forward=256,
        vocabulary=4096,
        evaluation_games=4,
        checkpoint=CheckpointConfig(every=100, keep=2),
    )

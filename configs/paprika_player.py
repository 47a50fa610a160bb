"""Makes a small model that writes the actions of Paprika's ten task groups and succeeds now and then in some of them.

Paper: none; the model stands in for the paper's base model where there is no accelerator. It imitates scripted players
  in the first 40 tasks of every split, each with a skill of its own. The test split is among them, as a pretrained
  model has heard of the words, cities and crimes of both: how well it plays test tasks says nothing about this model,
  only what later training changes in it does.
Command: python -m dfc.launch --config=configs/paprika_player.py
Hardware: a CPU with four cores.
Time: 9 minutes on four cores shared with other work, of which transcripts 2 and training 7.
Score: percent of success in 40 games each of both splits at temperature 1.5 and min-p 0.3: wordle 53,
  twenty_questions 50, customer_service 45, cellular_automata 45, bandit 30, murder_mystery 30, mastermind 23,
  minesweeper 20, guess_my_city 10, battleship 5. Legal replies: 98 to 100 %, in cellular_automata 89 %.
Variant: --config.steps=150 for a quick and worse one; 5000 for one that solves nine of ten of some
  groups, which leaves little to learn.
"""

from dfc.config import (
    BatchShape,
    CheckpointConfig,
    PlayerRolloutConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
    TinyPlayer,
)

GROUPS = {
    "wordle": {},
    "mastermind": {},
    "bandit": {},
    "cellular_automata": {},
    "battleship": {"show_board": False},  # the words of each shot tell the same, in fewer tokens
    "minesweeper": {},
    "twenty_questions": {},
    "guess_my_city": {},
    "customer_service": {},
    "murder_mystery": {},
}


def get_config() -> TinyPlayer:
    """Returns the configuration."""
    return TinyPlayer(
        name="paprika_player",
        games=GROUPS,
        rollout=PlayerRolloutConfig(
            slots=64,
            max_length=640,
            max_reply_length=40,
        ),
        sampling=SamplingConfig(temperature=1.5, min_p=0.3),
        optimizer=ScheduledOptimizerConfig(learning_rate=3e-3, warmup_steps=60, schedule="cosine", b2=0.98),
        batch=BatchShape(row_length=384, micro_batch_rows=2),
        transcripts_per_game=6000,
        transcripts_of={"mastermind": 9000, "bandit": 3000, "cellular_automata": 3000, "twenty_questions": 2500},
        skill=(0.9, 1.0),
        novice=("guess_my_city", "customer_service", "murder_mystery"),
        tasks=40,
        pieces="words",
        illegal_share=0.0,
        steps=2500,
        transcripts_per_step=16,
        long_every=25,
        width=128,
        layers=4,
        feed_forward=384,
        vocabulary=4096,
        evaluation_games=40,
        checkpoint=CheckpointConfig(every=500, keep=2),
    )

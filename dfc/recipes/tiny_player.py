"""Makes the model in the box: a tokenizer and a small decoder that knows the games' words, format and legal moves.

1. Games of random legal moves are played for every id, and for the shortened variants that small runs use.
2. A tokenizer is built from their messages.
3. A decoder is trained on the replies (`dfc.losses.sft_loss`), illegal tries excepted.
4. It is saved in the Hugging Face layout, loaded again, and plays: against a random legal player, for its legality.

The player is meant to be weak: it imitates random play, so that what a later run learns is its own.
"""

import json
import shutil
import time
from collections.abc import Mapping
from typing import Any

import grain
import jax

from dfc.config import RolloutConfig, RunConfig
from dfc.data import transcripts
from dfc.episodes import TokenBatch
from dfc.evaluation import matches
from dfc.games import registry, scripted
from dfc.games.chance import derive_seed
from dfc.interruption import Interrupted, Stop
from dfc.losses import Loss, sft_loss
from dfc.metrics import MetricsWriter
from dfc.models import huggingface, tiny_tokenizer
from dfc.models.chat import ChatTokenizer
from dfc.models.transformer import DecoderConfig, Params, initialize
from dfc.progress import Progress
from dfc.rollout.engine import Engine
from dfc.rollout.play import Arena
from dfc.run_folder import RunFolder
from dfc.training.checkpoint import Checkpointer
from dfc.training.optimizer import make_optimizer
from dfc.training.packing import Sequence1D, micro_batches, pack
from dfc.training.step import Trainer

# Variants that shortened runs play, beside every id's own rules: the numbers in the rules must not be new to the model.
VARIANTS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("TowerOfHanoi-v0", {"max_turns": 14}),
    ("TowerOfHanoi-v0", {"max_turns": 20}),
    ("TowerOfHanoi-v0-medium", {"max_turns": 30}),
    ("LiarsDice-v0", {"num_dice": 2}),
    ("LiarsDice-v0", {"num_dice": 3}),
)
LONG_ROW = 1024  # the longest transcripts: 100 moves of a tower


def run(config: RunConfig, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; the result lies in the run folder's ``policy``."""
    settings = config.tiny_player

    # ---- transcripts and tokenizer (cheap and seeded: made again after a stop) ------------------------------------
    data = list(_transcripts(config))
    built = folder.path / "tokenizer"
    if not (built / "tokenizer.json").exists():
        tiny_tokenizer.build(transcripts.texts(iter(data)), built, size=settings.vocabulary)
    tokenizer = ChatTokenizer.load(built)
    sequences = [transcripts.encode(t, tokenizer) for t in data]
    limit = config.batch.row_length
    short = [s for s in sequences if len(s.ids) <= limit]
    long = [s for s in sequences if limit < len(s.ids) <= LONG_ROW]
    short_data, long_data = (_shuffled(x, config.seed) for x in (short, long))

    # ---- model and update -----------------------------------------------------------------------------------------
    model = DecoderConfig(
        vocabulary=tokenizer.vocabulary,
        width=settings.width,
        layers=settings.layers,
        heads=settings.width // 32,
        kv_heads=settings.width // 32,
        head_dim=32,
        feed_forward=settings.feed_forward,
        rope_theta=10_000.0,
        norm_epsilon=1e-5,
        qkv_bias=False,
        tied_embedding=True,
    )
    optimizer = make_optimizer(config.optimizer, settings.steps)
    trainer = Trainer(model, _loss, optimizer)
    params = initialize(model, config.seed)
    state = trainer.initial_state(params)

    # ---- restore, loop --------------------------------------------------------------------------------------------
    checkpointer = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
    restored = checkpointer.restore(like={"params": params, "optimizer": state})
    first = 0
    if restored is not None:
        first = restored.step
        params, state = restored.arrays["params"], restored.arrays["optimizer"]
    folder.rewind(restored.progress["positions"] if restored is not None else dict.fromkeys(folder.positions(), 0))
    metrics = MetricsWriter(folder)
    with Progress(settings.steps, start_step=first) as progress:
        for step in range(first, settings.steps):
            begun = time.perf_counter()
            batches = _step_batches(config, short_data, long_data, step)
            update = trainer.update(params, state, batches)
            params, state = update.params, update.optimizer_state
            done = step + 1
            ids = sum(int((b.segments > 0).sum()) for b in batches)
            seconds = time.perf_counter() - begun
            if done % 20 == 0 or done == settings.steps:
                metrics.write(
                    step=done,
                    stage="supervised",
                    iteration=done,
                    metrics={"loss": update.loss, "gradient_norm": update.gradient_norm, "ids": ids},
                    clock={"seconds": seconds, "tokens_per_second": ids / seconds},
                )
                progress.update(
                    stage="supervised",
                    iteration=done,
                    iterations=settings.steps,
                    step=done,
                    episodes_per_second=settings.transcripts_per_step / seconds,
                    tokens_per_second=ids / seconds,
                    win_rates={},
                )
            if done % config.checkpoint.every == 0 or done == settings.steps or stop.requested is not None:
                arrays = {"params": params, "optimizer": state}
                checkpointer.save(done, arrays, {"positions": folder.positions()})
            if stop.requested is not None:
                raise Interrupted(stop.requested)

    # ---- save, load back, play --------------------------------------------------------------------------------------
    huggingface.save(folder.policy, model, params, copy_from=built)
    loaded_model, loaded = huggingface.load(folder.policy, dtype=config.model.dtype)
    rows = evaluate(config, loaded_model, loaded, ChatTokenizer.load(folder.policy))
    folder.append("evaluations", rows)
    folder.flush()
    (folder.path / "evaluation.json").write_text(json.dumps(rows, indent=1))
    for row in rows:
        print(_line(row))  # noqa: T201 - the result a person waits for
    shutil.rmtree(built)


def _transcripts(config: RunConfig) -> list[transcripts.Transcript]:
    """Returns transcripts of every id and variant, about `ids_per_game` ids of each (estimated at 7 ids a turn)."""
    settings = config.tiny_player
    made = []
    for game, options in (*((game, {}) for game in registry.ids()), *VARIANTS):
        turns, index = 0, 0
        while turns * 7 < settings.ids_per_game:
            seed = derive_seed("tiny player", config.seed, game, sorted(options.items()), index)
            new = transcripts.random_legal(game, options, seed, illegal_share=settings.illegal_share)
            turns += sum(len(t.exchanges) for t in new)
            made += new
            index += 1
    return made


def _shuffled(sequences: list[Sequence1D], seed: int) -> "grain.MapDataset[Sequence1D]":
    """An endless, seeded order over the sequences with random access, so that a resumed run goes on in place."""
    return grain.MapDataset.source(sequences).seed(seed % 2**31).shuffle().repeat()


def _step_batches(config: RunConfig, short: Any, long: Any, step: int) -> list[TokenBatch]:  # noqa: ANN401 - datasets
    count = config.tiny_player.transcripts_per_step
    if step % config.tiny_player.long_every == config.tiny_player.long_every - 1:
        wanted = max(2, count // 12)
        chosen = [long[step * wanted + i] for i in range(wanted)]
        return micro_batches(pack(chosen, LONG_ROW, 2), 2)
    chosen = [short[step * count + i] for i in range(count)]
    rows = config.batch.micro_batch_rows
    return micro_batches(pack(chosen, config.batch.row_length, rows), rows)


def _loss(logprobs: jax.Array, batch: TokenBatch, _: jax.Array | None) -> Loss:
    # No transcript is shorter than 8 ids, so a row holds at most a eighth of its length of them.
    return sft_loss(logprobs, batch.mask, segments=batch.segments, num_segments=logprobs.shape[1] // 8)


def evaluate(config: RunConfig, model: DecoderConfig, params: Params, tokenizer: ChatTokenizer) -> list[dict[str, Any]]:
    """Plays every configured id against a random legal player; returns the rows of evaluations.jsonl."""
    rollout: RolloutConfig = config.rollout
    engine = Engine(
        model,
        params,
        slots=rollout.slots,
        max_length=rollout.max_length,
        stop_ids=tokenizer.stop_ids(rollout.stop),
        sampling=rollout.sampling,
    )
    arena = Arena(rollout, tokenizer, engine, scripted.RandomLegal(), opponent_name="random_legal")
    games = config.games or {game: {} for game in registry.ids()}
    episodes = []
    for game, options in games.items():
        jobs = matches.match_jobs({game: options}, config.evaluation.games, config.seed, "tiny player")
        episodes += arena.play(jobs)
    rows = matches.evaluation_rows(matches.tally(episodes), stage="final", policy="final", opponent="random_legal")
    single = {game for game, options in games.items() if registry.make(game, **options).seats == 1}
    return [{**row, "opponent": "none"} if row["game"] in single else row for row in rows]


def _line(row: Mapping[str, Any]) -> str:
    legal = 1 - (row["illegal_replies"] + row["malformed_replies"]) / max(1, row["replies"])
    score = (row["win"] + 0.5 * row["draw"]) / max(1, row["games"])
    return f"{row['game']:28} seat {row['seat']}  score {score:.2f}  legal replies {legal:.1%}  of {row['replies']}"

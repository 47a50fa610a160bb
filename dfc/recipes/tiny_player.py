"""Makes the model in the box: a tokenizer and a small decoder that knows the games' words, format and legal moves.

1. Games of random legal moves are played for every id, and for the shortened variants that small runs use.
2. A tokenizer is built from their messages.
3. A decoder is trained on the replies, illegal tries excepted. The player of the transcripts is known, so the loss is
   the cross-entropy to its distribution over legal actions and not to the one action it drew.
4. It is saved in the Hugging Face layout, loaded again, and plays: against a random legal player, for its legality.

The player is meant to be weak: it imitates random play, so that what a later run learns is its own.
"""

import functools
import json
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dfc.config import RolloutConfig, RunConfig
from dfc.data import transcripts
from dfc.evaluation import matches
from dfc.games import registry, scripted
from dfc.games.chance import derive_seed
from dfc.interruption import Interrupted, Stop
from dfc.metrics import MetricsWriter
from dfc.models import huggingface, tiny_tokenizer
from dfc.models.chat import ChatTokenizer
from dfc.models.decoder_config import DecoderConfig
from dfc.models.transformer import Params, bind, initialize
from dfc.progress import Progress
from dfc.rollout.engine import Engine
from dfc.rollout.play import Arena
from dfc.run_folder import RunFolder
from dfc.training.checkpoint import Checkpointer
from dfc.training.optimizer import make_optimizer

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
    source = _Batches(config, data, tokenizer)

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
    update = make_update(model, optimizer)
    params = initialize(model, config.seed)
    state = optimizer.init(params)

    # ---- restore, loop --------------------------------------------------------------------------------------------
    checkpointer = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
    restored = checkpointer.restore(like={"params": params, "optimizer": state})
    first = 0
    if restored is not None:
        first = restored.step
        params, state = restored.arrays["params"], restored.arrays["optimizer"]
    folder.rewind(restored.progress["positions"] if restored is not None else dict.fromkeys(folder.positions(), 0))
    metrics = MetricsWriter(folder)
    with Progress(settings.steps, start_step=first) as progress, ThreadPoolExecutor(1) as ahead:
        upcoming = ahead.submit(source.step, first)  # the next step's batches are packed while the device works
        for step in range(first, settings.steps):
            begun = time.perf_counter()
            batches = upcoming.result()
            upcoming = ahead.submit(source.step, step + 1)
            params, state, loss = update(params, state, batches)
            done = step + 1
            ids = sum(int((b.segments > 0).sum()) for b in batches)
            seconds = time.perf_counter() - begun
            if done % 20 == 0 or done == settings.steps:
                metrics.write(
                    step=done,
                    stage="supervised",
                    iteration=done,
                    metrics={"loss": loss, "ids": ids},
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
    """Returns transcripts of every configured id, and fewer of every variant; about 7 ids are a turn."""
    settings = config.tiny_player
    made = []
    wanted: list[tuple[str, Mapping[str, Any], int]] = [(game, {}, settings.ids_per_game) for game in config.games]
    wanted += [(game, options, settings.ids_per_game // 4) for game, options in VARIANTS]
    for game, options, ids in wanted:
        turns, index = 0, 0
        while turns * 7 < ids:
            seed = derive_seed("tiny player", config.seed, game, sorted(options.items()), index)
            new = transcripts.random_legal(game, options, seed, illegal_share=settings.illegal_share)
            turns += sum(len(t.exchanges) for t in new)
            made += new
            index += 1
    return made


def _shuffled(data: list[transcripts.Transcript], seed: int) -> "grain.MapDataset[transcripts.Transcript]":
    """An endless, seeded order over the transcripts with random access, so that a resumed run goes on in place."""
    return grain.MapDataset.source(data).seed(seed % 2**31).shuffle().repeat()


class SoftBatch(NamedTuple):
    """Packed transcripts [B, T] with the distribution of every imitated id, float32 [B, T, V] (0 elsewhere)."""

    tokens: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    targets: np.ndarray


class _Batches:
    """Makes the micro-batches of a step: transcripts in the seeded order, packed row by row."""

    def __init__(self, config: RunConfig, data: list[transcripts.Transcript], tokenizer: ChatTokenizer) -> None:
        self._config, self._tokenizer = config, tokenizer
        lengths = [len(transcripts.encode(t, tokenizer).ids) for t in data]
        limit = config.batch.row_length
        self._short = _shuffled([t for t, n in zip(data, lengths, strict=True) if n <= limit], config.seed)
        self._long = _shuffled([t for t, n in zip(data, lengths, strict=True) if limit < n <= LONG_ROW], config.seed)
        self._choices = functools.lru_cache(100_000)(lambda exchange: transcripts.choices(exchange, tokenizer))

    def step(self, step: int) -> list[SoftBatch]:
        """Returns the micro-batches of a step."""
        settings = self._config.tiny_player
        if step % settings.long_every == settings.long_every - 1:
            count = max(2, settings.transcripts_per_step // 12)
            return self._pack([self._long[step * count + i] for i in range(count)], LONG_ROW, 1)
        count = settings.transcripts_per_step
        chosen = [self._short[step * count + i] for i in range(count)]
        return self._pack(chosen, self._config.batch.row_length, self._config.batch.micro_batch_rows)

    def _pack(self, chosen: list[transcripts.Transcript], length: int, rows: int) -> list[SoftBatch]:
        batches: list[SoftBatch] = []
        row, start, segment = rows, 0, 0  # full: the first transcript opens a batch
        for transcript in sorted(chosen, key=lambda t: len(t.exchanges)):
            encoded = transcripts.encode(transcript, self._tokenizer)
            size = len(encoded.ids)
            if row == rows or start + size > length:
                row, start, segment = row + 1, 0, 0
                if row >= rows:
                    batches.append(self._empty(rows, length))
                    row = 0
            batch, segment = batches[-1], segment + 1
            batch.tokens[row, start : start + size] = encoded.ids
            batch.positions[row, start : start + size] = np.arange(size)
            batch.segments[row, start : start + size] = segment
            shares = [d for e in transcript.exchanges if e.imitate for d in self._choices(e)]
            for place, distribution in zip(np.flatnonzero(encoded.mask), shares, strict=True):
                batch.targets[row, start + place, list(distribution)] = list(distribution.values())
            start += size
        return batches

    def _empty(self, rows: int, length: int) -> SoftBatch:
        tokens, positions, segments = (np.zeros((rows, length), np.int32) for _ in range(3))
        targets = np.zeros((rows, length, self._tokenizer.vocabulary), np.float32)
        return SoftBatch(tokens, positions, segments, targets)


def make_update(model: DecoderConfig, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """Returns update(params, state, batches) -> params, state, mean cross-entropy per imitated id."""

    def objective(params: Params, batch: SoftBatch) -> jax.Array:
        module = bind(model, params)
        tokens, positions, segments, _ = map(jnp.asarray, batch)
        hidden = module(tokens, positions, segments)[:, :-1]
        logits = jnp.matmul(hidden, module.output_embedding.T, preferred_element_type=jnp.float32)
        return -jnp.sum(batch.targets[:, 1:] * jax.nn.log_softmax(logits, axis=-1))

    @jax.jit
    def gradient(params: Params, batch: SoftBatch) -> tuple[jax.Array, Params]:
        return jax.value_and_grad(objective)(params, batch)

    @jax.jit
    def apply(params: Params, state: optax.OptState, total: Params, weight: jax.Array) -> tuple[Params, optax.OptState]:
        updates, state = optimizer.update(jax.tree.map(lambda g: g / weight, total), state, params)
        return optax.apply_updates(params, updates), state

    def update(params: Params, state: optax.OptState, batches: list[SoftBatch]) -> tuple[Params, optax.OptState, float]:
        loss, total = 0.0, None
        weight = np.float32(sum(float(batch.targets.sum()) for batch in batches))
        for batch in batches:
            value, found = gradient(params, batch)
            loss += float(value)
            total = found if total is None else jax.tree.map(jnp.add, total, found)
        return *apply(params, state, total, weight), loss / float(weight)

    return update


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
    arena = Arena(rollout, tokenizer, engine, opponent=scripted.RandomLegal(), opponent_name="random_legal")
    games = config.games
    episodes = []
    for game, options in games.items():
        jobs = matches.match_jobs({game: options}, config.evaluation.games, config.seed, "tiny player")
        episodes += arena.play(jobs)
    rows = matches.evaluation_rows(episodes, stage="final", policy="final", opponent="random_legal")
    single = {game for game, options in games.items() if registry.make(game, **options).seats == 1}
    return [{**row, "opponent": "none"} if row["game"] in single else row for row in rows]


def _line(row: Mapping[str, Any]) -> str:
    legal = 1 - (row["illegal_replies"] + row["malformed_replies"]) / max(1, row["replies"])
    score = (row["win"] + 0.5 * row["draw"]) / max(1, row["games"])
    return f"{row['game']:28} seat {row['seat']}  score {score:.2f}  legal replies {legal:.1%}  of {row['replies']}"

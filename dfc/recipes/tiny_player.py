"""Makes the bundled model: a tokenizer and a small decoder that knows the games' words, format and legal moves.

1. Matches of random legal moves, or of a player of mixed skill, are played of every game and of the shortened variants
   that small runs use.
2. A tokenizer is built from their messages.
3. A decoder is trained on the replies, illegal tries excepted. The player of the transcripts is known, so the loss is
   the cross-entropy to its distribution over legal actions and not to the one action it sampled (but where there are
   too many to list, such as words).
4. It is saved in the Hugging Face layout, loaded again, and plays: against a random legal player, for its legality.

The player is meant to be weak: it imitates random or mixed play, so that what a later run learns is its own.
"""

import dataclasses
import functools
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dfc.checkpoint import Checkpointer
from dfc.config import GameOptions, ModelConfig, PlayingRun, RolloutConfig, TinyPlayer
from dfc.errors import DivergenceError, Interrupted
from dfc.evaluation import matches
from dfc.files import write_json
from dfc.games import registry
from dfc.games.rng import derive_seed
from dfc.games.task import task_seed
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.models.transformer import Params, bind, initialize
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.workers import PolicyWeights, RolloutWorkers, check_actions_fit
from dfc.runs.metrics import MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.tiny_player import build_tokenizer, transcripts, vocabulary
from dfc.training import divergence, export
from dfc.training.optimizer import make_optimizer
from dfc.training.packing import Segment

# Variants that shortened runs play, beside every game's own rules: the numbers in the rules must not be new to the
# model.
VARIANTS: tuple[tuple[str, GameOptions], ...] = (
    ("TowerOfHanoi-v0", {"max_turns": 14}),
    ("TowerOfHanoi-v0", {"max_turns": 20}),
    ("TowerOfHanoi-v0-medium", {"max_turns": 30}),
    ("LiarsDice-v0", {"num_dice": 2}),
    ("LiarsDice-v0", {"num_dice": 3}),
)
LONG_ROW = 1024  # the longest transcripts: 100 moves of a tower


def run(config: TinyPlayer, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; the result lies in the run folder's ``policy``."""
    try:
        _run(config, folder, stop)
    except DivergenceError as error:
        raise export.diverged(str(error), config.optimizer.learning_rate) from None


def _run(config: TinyPlayer, folder: RunFolder, stop: Stop) -> None:

    # ---- transcripts and tokenizer (cheap and seeded: made again after a stop) ------------------------------------
    data = make_transcripts(config, stop.look)
    built = folder.path / "tokenizer"
    if not (built / "tokenizer.json").exists():
        messages = transcripts.texts(iter(data))
        if config.pieces == "words":
            messages = iter(vocabulary.choose(messages, config.vocabulary - build_tokenizer.SMALLEST))
        build_tokenizer.build(messages, built, size=config.vocabulary)
    tokenizer = ChatTokenizer.load(built)
    check_actions_fit(config, tokenizer)
    source = SoftBatches(config, data, tokenizer)

    # ---- model and update -----------------------------------------------------------------------------------------
    model = shape(config, tokenizer.vocabulary)
    optimizer = make_optimizer(config.optimizer, config.steps)
    update = make_update(model, optimizer, config.training.max_update)
    params = initialize(model, config.seed)
    state = optimizer.init(params)
    bounds = divergence.bounds(np.asarray(divergence.largest(params)), config.training.max_growth)

    # ---- restore, loop --------------------------------------------------------------------------------------------
    checkpointer = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
    restored = checkpointer.restore(like={"params": params, "optimizer": state})
    first = 0
    if restored is not None:
        first = restored.step
        params, state = restored.arrays["params"], restored.arrays["optimizer"]
    folder.rewind(restored.progress["positions"] if restored is not None else dict.fromkeys(folder.positions(), 0))
    metrics = MetricsWriter(folder)
    with Progress(config.steps, start_step=first, shorter=config.shorter) as progress, ThreadPoolExecutor(1) as ahead:
        upcoming = ahead.submit(source.step, first)  # the next step's batches are packed while the device works
        for step in range(first, config.steps):
            begun = time.perf_counter()
            batches = upcoming.result()
            upcoming = ahead.submit(source.step, step + 1)
            params, state, loss = update(params, state, batches, bounds)
            done = step + 1
            tokens = sum(int((b.segments > 0).sum()) for b in batches)
            seconds = time.perf_counter() - begun
            if done % 20 == 0 or done == config.steps:
                metrics.write(
                    step=done,
                    stage="supervised",
                    iteration=done,
                    metrics={"loss": loss, "tokens": tokens},
                    clock={"seconds": seconds, "tokens_per_second": tokens / seconds},
                )
                progress.update(
                    stage="supervised",
                    iteration=done,
                    iterations=config.steps,
                    step=done,
                    episodes_per_second=config.transcripts_per_step / seconds,
                    tokens_per_second=tokens / seconds,
                    win_rates={},
                )
            if done % config.checkpoint.every == 0 or done == config.steps or stop.requested is not None:
                arrays = {"params": params, "optimizer": state}
                checkpointer.save(done, arrays, {"positions": folder.positions()})
            if stop.requested is not None:
                raise Interrupted(stop.requested)

    # ---- save, load back, play --------------------------------------------------------------------------------------
    huggingface.save(folder.policy, model, params, copy_from=built)
    rows = evaluate(config, folder.policy, stop.look)
    folder.append("evaluations", rows)
    folder.flush()
    write_json(folder.path / "evaluation.json", rows)
    for row in rows:
        print(_line(row))  # noqa: T201 - the result a person waits for
    shutil.rmtree(built)


def shape(config: TinyPlayer, vocabulary: int) -> DecoderConfig:
    """Returns the decoder that a configuration describes."""
    return DecoderConfig(
        vocabulary=vocabulary,
        width=config.width,
        layers=config.layers,
        heads=config.width // 32,
        kv_heads=config.width // 32,
        head_dim=32,
        feed_forward=config.feed_forward,
        rope_theta=10_000.0,
        norm_epsilon=1e-5,
        qkv_bias=False,
        tied_embedding=True,
    )


def make_transcripts(config: TinyPlayer, look: Callable[[], None] = lambda: None) -> list[transcripts.Transcript]:
    """Returns transcripts of every configured game, and fewer of every variant and of novices' games.

    Args:
      config: of the run.
      look: called for every game; what it raises ends the making (`dfc.runs.stop_signals.Stop.look`).
    """
    wanted = [(game, options, 4) for game, options in config.games.items()]
    wanted += [(game, options, 1) for game, options in VARIANTS if game in config.games]
    low, high = config.skill
    made = []
    for game, options, quarters in wanted:
        novice = game in config.novice
        skill = (0.0, low) if novice else (low, high)
        shown = _shown(game, options, config.tasks)
        count = config.transcripts_of.get(game, config.transcripts_per_game)
        found: list[transcripts.Transcript] = []
        turns, index = 0, 0
        while (
            4 * len(found) < count * (1 if novice else quarters)
            if count
            else turns * 7 < config.tokens_per_game * quarters // 4  # about 7 tokens are a turn
        ):
            look()
            seed = derive_seed("tiny player", config.seed, game, sorted(options.items()), index)
            own, task = shown[index % len(shown)]
            new = transcripts.mixed_skill(game, own, seed, skill=skill, illegal_share=config.illegal_share, task=task)
            turns += sum(len(t.exchanges) for t in new)
            found += new
            index += 1
        made += found
    return made


def _shown(game: str, options: GameOptions, tasks: int) -> list[tuple[GameOptions, int | None]]:
    """Returns the options and task numbers that transcripts of a game walk through; None where the seed deals."""
    splits = registry.make(game, **options).info.splits if tasks else {}
    found: list[tuple[GameOptions, int | None]] = [
        ({**options, "split": split}, task) for split, size in splits.items() for task in range(min(tasks, size))
    ]
    return found or [(options, None)]


def _shuffled(data: list[transcripts.Transcript], seed: int) -> "grain.MapDataset[transcripts.Transcript]":
    """An endless, seeded order over the transcripts with random access, so that a resumed run continues in place."""
    return grain.MapDataset.source(data).seed(seed % 2**31).shuffle().repeat()


class SoftBatch(NamedTuple):
    """Packed transcripts [B, T], and the distributions of the tokens to imitate.

    Attributes:
      tokens: int32 [B, T]; positions, segments: as the decoder takes them.
      places: int32 [N], flat indices into [B, T] of what each of these tokens is predicted from; far fewer than
        B * T, since most of a transcript is what the player reads.
      targets: float32 [N, V], with which probability each token comes next there; 0 where nothing is imitated.
    """

    tokens: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    places: np.ndarray
    targets: np.ndarray


AT_ONCE = 3  # micro-batches
_PLACES = 256  # N is a multiple of it, so that few shapes are compiled


class SoftBatches:
    """Makes the micro-batches of a step: transcripts in the seeded order, packed into rows."""

    def __init__(self, config: TinyPlayer, data: list[transcripts.Transcript], tokenizer: ChatTokenizer) -> None:
        self._config, self._tokenizer = config, tokenizer
        lengths = [len(transcripts.encode(t, tokenizer).token_ids) for t in data]
        limit = config.batch.row_length
        self._short = _shuffled([t for t, n in zip(data, lengths, strict=True) if n <= limit], config.seed)
        longer = [t for t, n in zip(data, lengths, strict=True) if limit < n <= LONG_ROW]
        self._long = _shuffled(longer, config.seed) if longer else None
        self._choices = functools.lru_cache(100_000)(lambda exchange: transcripts.choices(exchange, tokenizer))

    def step(self, step: int) -> list[SoftBatch]:
        """Returns the micro-batches of a step."""
        config = self._config
        if self._long is not None and step % config.long_every == config.long_every - 1:
            count = max(2, config.transcripts_per_step // 12)
            return self._pack([self._long[step * count + i] for i in range(count)], LONG_ROW, 1)
        count = config.transcripts_per_step
        chosen = [self._short[step * count + i] for i in range(count)]
        return self._pack(chosen, self._config.batch.row_length, self._config.batch.micro_batch_rows)

    def _pack(self, chosen: list[transcripts.Transcript], length: int, rows: int) -> list[SoftBatch]:
        """Packs transcripts, the longest first, each into the first row that has room for it."""
        encoded = [(transcripts.encode(t, self._tokenizer), t) for t in chosen]
        packed: list[list[tuple[Segment, transcripts.Transcript]]] = []
        room: list[int] = []
        for sequence, transcript in sorted(encoded, key=lambda pair: -len(pair[0].token_ids)):
            size = len(sequence.token_ids)
            row = next((row for row, left in enumerate(room) if left >= size), len(room))
            if row == len(room):
                packed.append([])
                room.append(length)
            packed[row].append((sequence, transcript))
            room[row] -= size
        return [self._batch(packed[first : first + rows], length, rows) for first in range(0, len(packed), rows)]

    def _batch(self, packed: list[list[tuple[Segment, transcripts.Transcript]]], length: int, rows: int) -> SoftBatch:
        tokens, positions, segments = (np.zeros((rows, length), np.int32) for _ in range(3))
        places: list[int] = []
        shares: list[dict[int, float]] = []
        for row, sequences in enumerate(packed):
            start = 0
            for segment, (sequence, transcript) in enumerate(sequences, start=1):
                size = len(sequence.token_ids)
                tokens[row, start : start + size] = sequence.token_ids
                positions[row, start : start + size] = np.arange(size)
                segments[row, start : start + size] = segment
                places += (row * length + start - 1 + np.flatnonzero(sequence.mask)).tolist()
                shares += [d for e in transcript.exchanges if e.imitate for d in self._choices(e)]
                start += size
        count = -(-len(places) // _PLACES) * _PLACES
        targets = np.zeros((count, self._tokenizer.vocabulary), np.float32)
        for number, distribution in enumerate(shares):
            targets[number, list(distribution)] = list(distribution.values())
        padded = np.zeros(count, np.int32)
        padded[: len(places)] = places
        return SoftBatch(tokens, positions, segments, padded, targets)


def make_programs(
    model: DecoderConfig, optimizer: optax.GradientTransformation
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the programs of an update: the gradient of a batch, and what the optimizer makes of the sum."""

    def objective(params: Params, batch: SoftBatch) -> jax.Array:
        module = bind(model, params)
        tokens, positions, segments, places, targets = map(jnp.asarray, batch)
        hidden = module(tokens, positions, segments)
        # Only the positions that predict an imitated token need the vocabulary: about a third of all.
        hidden = hidden.reshape(-1, hidden.shape[-1])[places]
        logits = jnp.matmul(hidden, module.output_embedding.T, preferred_element_type=jnp.float32)
        return -jnp.sum(targets * jax.nn.log_softmax(logits, axis=-1))

    @jax.jit
    def gradient(params: Params, batch: SoftBatch) -> tuple[jax.Array, Params]:
        return jax.value_and_grad(objective)(params, batch)

    @jax.jit
    def apply(
        params: Params, state: optax.OptState, total: Params, weight: jax.Array
    ) -> tuple[Params, optax.OptState, jax.Array, jax.Array, jax.Array]:
        mean = jax.tree.map(lambda g: g / weight, total)
        updates, state = optimizer.update(mean, state, params)
        moved = divergence.share(params, updates)
        params = optax.apply_updates(params, updates)
        return (
            params,
            state,
            jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(mean))),
            divergence.largest(params),
            moved,
        )

    return gradient, apply


def make_update(model: DecoderConfig, optimizer: optax.GradientTransformation, most: float) -> Callable[..., Any]:
    """Returns update(params, state, batches, bounds) -> params, state, mean cross-entropy per imitated token.

    It raises DivergenceError where the result must not be kept; `bounds` are those of `dfc.training.divergence`, `most`
    is `TrainingConfig.max_update`.
    """
    gradient, apply = make_programs(model, optimizer)
    threads = ThreadPoolExecutor(AT_ONCE)

    def update(
        params: Params, state: optax.OptState, batches: list[SoftBatch], bounds: np.ndarray
    ) -> tuple[Params, optax.OptState, float]:
        loss, total = 0.0, None
        weight = np.float32(sum(float(batch.targets.sum()) for batch in batches))
        # One small batch does not keep a CPU's cores busy; several at once do. They are added in their order.
        for value, found in threads.map(functools.partial(gradient, params), batches):
            loss += float(value)
            total = found if total is None else jax.tree.map(jnp.add, total, found)
        params, state, norm, largest, moved = apply(params, state, total, weight)
        loss /= float(weight)
        divergence.refuse(
            params,
            np.asarray(largest),
            bounds,
            loss=loss,
            gradient_norm=float(norm),
            moved=float(moved),
            most=most,
        )
        return params, state, loss

    return update


def playing(config: TinyPlayer, policy: Path) -> PlayingRun:
    """Returns the configuration that plays what was made, in a folder."""
    rollout = RolloutConfig(**vars(config.rollout))
    return PlayingRun(games=config.games, rollout=rollout, model=ModelConfig(path=str(policy)))


def evaluate(config: TinyPlayer, policy: Path, look: Callable[[], None]) -> list[dict[str, Any]]:
    """Plays every configured game against a random legal player; returns the rows of evaluations.jsonl.

    Args:
      config: of the run.
      policy: the folder with what it has made.
      look: called between two calls of the engine; what it raises ends the games.
    """
    workers = RolloutWorkers(playing(config, policy), look, sampling=config.sampling)
    games = config.games
    specs: list[EpisodeSpec] = []
    for game, options in games.items():
        own = matches.match_specs({game: options}, config.evaluation_games, config.seed, "tiny player")
        # Of the tasks that it was shown, as many of each split as the games divide into.
        shown = _shown(game, options, config.tasks)
        specs += [_dealt(spec, *shown[i * len(shown) // len(own)]) for i, spec in enumerate(own)]
    episodes = workers.play(specs, PolicyWeights(workers.initial_params), "random_legal")
    workers.close()
    rows = matches.evaluation_rows(episodes, stage="final", policy="final", opponent="random_legal")
    single = {game for game, options in games.items() if registry.make(game, **options).seats == 1}
    return [{**row, "opponent": "none"} if row["game"] in single else row for row in rows]


def _dealt(spec: EpisodeSpec, options: GameOptions, task: int | None) -> EpisodeSpec:
    """Returns a game of the task, or as it was without one."""
    if task is None:
        return spec
    number = registry.make(spec.game, **options).info.splits[str(options["split"])]
    return dataclasses.replace(spec, options=options, game_seed=task_seed(spec.game_seed, task, number))


def _line(row: Mapping[str, Any]) -> str:
    legal = 1 - (row["illegal_replies"] + row["malformed_replies"]) / max(1, row["replies"])
    alone = row["opponent"] == "none"
    score = (row["win"] + (0 if alone else 0.5 * row["draw"])) / max(1, row["games"])
    result = f"{'solved' if alone else 'score'} {score:.2f}"
    return f"{row['game']:28} seat {row['seat']}  {result}  legal replies {legal:.1%}  of {row['replies']}"

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
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grain

from dfc.config import GameOptions, ModelConfig, PlayingRunConfig, RolloutConfig, TinyPlayer
from dfc.errors import DivergenceError
from dfc.evaluation import matches
from dfc.files import write_json
from dfc.games import registry
from dfc.games.rng import derive_seed
from dfc.games.task import task_seed
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.models.transformer import initialize
from dfc.rollout.host import PolicyWeights
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.workers import RolloutWorkers, check_actions_fit
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.tools.small_models import build_tokenizer, transcripts
from dfc.tools.small_models.imitation import Packer, SoftBatch, make_update, shape
from dfc.tools.small_models.imitation_run import imitate
from dfc.training import export
from dfc.training.optimizer import make_optimizer

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
    """Runs the recipe; the result is in the run folder's ``policy``."""
    try:
        _run(config, folder, stop)
    except DivergenceError as error:
        raise export.diverged(str(error), config.optimizer.learning_rate) from None


def _run(config: TinyPlayer, folder: RunFolder, stop: Stop) -> None:

    # ---- transcripts and tokenizer (cheap and seeded: made again after a stop) ------------------------------------
    data = make_transcripts(config, stop.check_stop)
    built = folder.path / "tokenizer"
    if not (built / "tokenizer.json").exists():
        messages = transcripts.texts(iter(data))
        if config.pieces == "words":
            messages = iter(build_tokenizer.choose_pieces(messages, config.vocabulary - build_tokenizer.SMALLEST))
        build_tokenizer.build(messages, built, size=config.vocabulary)
    tokenizer = ChatTokenizer.load(built, enable_thinking=None)
    check_actions_fit(config, tokenizer)
    source = SoftBatches(config, data, tokenizer)

    # ---- model and update -----------------------------------------------------------------------------------------
    model = shape(config, tokenizer.vocabulary)
    optimizer = make_optimizer(config.optimizer, config.steps)
    update = make_update(model, optimizer, config.training.max_update)
    params = initialize(model, config.seed)

    # ---- restore, loop --------------------------------------------------------------------------------------------
    params = imitate(config, folder, stop, source.step, update, params, optimizer.init(params))

    # ---- save, load back, play --------------------------------------------------------------------------------------
    huggingface.save(folder.policy, model, params, copy_from=built)
    rows = evaluate(config, folder.policy, stop.check_stop)
    folder.append("evaluations", rows)
    folder.flush()
    write_json(folder.path / "evaluation.json", rows)
    for row in rows:
        print(_line(row))  # noqa: T201 - the result a person waits for
    shutil.rmtree(built)


def make_transcripts(config: TinyPlayer, check_stop: Callable[[], None] = lambda: None) -> list[transcripts.Transcript]:
    """Returns transcripts of every configured game, and fewer of every variant and of novices' games.

    For every game `check_stop` is called; its exception aborts the call (`dfc.runs.stop_signals.Stop.check_stop`).
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
            check_stop()
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


class SoftBatches:
    """Makes the micro-batches of a step: transcripts in the seeded order, packed into rows."""

    def __init__(self, config: TinyPlayer, data: list[transcripts.Transcript], tokenizer: ChatTokenizer) -> None:
        self._config, self._packer = config, Packer(tokenizer)
        lengths = [len(transcripts.encode(t, tokenizer).token_ids) for t in data]
        limit = config.batch.row_length
        self._short = _shuffled([t for t, n in zip(data, lengths, strict=True) if n <= limit], config.seed)
        longer = [t for t, n in zip(data, lengths, strict=True) if limit < n <= LONG_ROW]
        self._long = _shuffled(longer, config.seed) if longer else None

    def step(self, step: int) -> list[SoftBatch]:
        """Returns the micro-batches of a step."""
        config = self._config
        if self._long is not None and step % config.long_every == config.long_every - 1:
            count = max(2, config.transcripts_per_step // 12)
            return self._packer.pack([self._long[step * count + i] for i in range(count)], LONG_ROW, 1)
        count = config.transcripts_per_step
        chosen = [self._short[step * count + i] for i in range(count)]
        return self._packer.pack(chosen, self._config.batch.row_length, self._config.batch.micro_batch_rows)


def playing(config: TinyPlayer, policy: Path) -> PlayingRunConfig:
    """Returns the configuration that plays what was made, in a folder."""
    rollout = RolloutConfig(**vars(config.rollout))
    return PlayingRunConfig(games=config.games, rollout=rollout, model=ModelConfig(path=str(policy)))


def evaluate(config: TinyPlayer, policy: Path, check_stop: Callable[[], None]) -> list[dict[str, Any]]:
    """Plays every configured game against a random legal player; returns the rows of evaluations.jsonl.

    Between engine calls `check_stop` is called; its exception aborts the games.
    """
    workers = RolloutWorkers(playing(config, policy), check_stop, sampling=config.sampling)
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

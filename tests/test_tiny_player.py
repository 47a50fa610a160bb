"""The bundled model: it loads in transformers with the same logits and ids, knows the rules, and is no expert."""

import collections
import dataclasses
import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dfc import validation
from dfc.config import RolloutConfig, SamplingConfig
from dfc.configs import paprika_player
from dfc.configs import tiny_player as bundled
from dfc.configs.tiny_player import GAME_IDS
from dfc.errors import DivergenceError
from dfc.evaluation import matches
from dfc.games import registry, scripted
from dfc.inference.engine import Engine
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.models.transformer import bind, initialize
from dfc.rollout.runner import RolloutRunner
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.tools.small_models import build_tokenizer, imitation, tiny_player, transcripts
from dfc.training.optimizer import make_optimizer

FOLDER = huggingface.resolve("tiny_player")
TWO_PLAYERS = [game for game in GAME_IDS if registry.make(game).seats == 2]
# The aim is 97 % everywhere. Where legal means "not named before" or "column not full", this version falls short; these
# floors hold what it reaches, so that it cannot get worse unnoticed (measured: docs/log/2026-11-21.md).
BELOW_AIM = {
    "ConnectFour-v0": 0.955,
    "ConnectFour-v0-blind": 0.955,
    "GuessTheNumber-v0": 0.90,
    "GuessTheNumber-v0-hardcore": 0.95,
}
LONG = ("TowerOfHanoi-v0", "TowerOfHanoi-v0-medium")  # up to 100 moves a game


@pytest.fixture(scope="module")
def loaded():
    model, params = huggingface.load(FOLDER, dtype="float32")
    return model, params, ChatTokenizer.load(FOLDER)


@pytest.fixture(scope="module")
def conversations():
    return [t for game in GAME_IDS for t in transcripts.random_legal(game, {}, 11, illegal_share=0.1)]


def test_it_fits_in_four_megabytes():
    assert sum(file.stat().st_size for file in Path(FOLDER).iterdir() if file.is_file()) <= 4 * 2**20


def test_transformers_gives_the_same_ids_for_whole_conversations(loaded, conversations):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        theirs = AutoTokenizer.from_pretrained(FOLDER)
    for transcript in conversations:
        messages = []
        for exchange in transcript.exchanges:
            messages += [
                {"role": "user", "content": exchange.observation},
                {"role": "assistant", "content": exchange.reply},
            ]
        expected = theirs.apply_chat_template(messages, tokenize=True, return_dict=False)
        assert transcripts.encode(transcript, loaded[2]).token_ids.tolist() == list(expected)


def test_transformers_gives_the_same_logits(loaded, conversations):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        theirs = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    model, params, tokenizer = loaded
    for transcript in conversations[:6]:
        token_ids = transcripts.encode(transcript, tokenizer).token_ids[None, :200]
        with torch.no_grad():
            expected = theirs(torch.from_numpy(token_ids.astype(np.int64))).logits.numpy()
        positions = jnp.arange(token_ids.shape[1], dtype=jnp.int32)[None]
        module = bind(model, params)
        logits = module(jnp.asarray(token_ids), positions, jnp.ones_like(positions)) @ module.output_embedding.T
        np.testing.assert_allclose(np.asarray(logits), expected, atol=1e-4)


def test_no_piece_holds_more_than_one_number_cell_disk_die_or_card(loaded):
    tokenizer = loaded[2]
    texts = [tokenizer.decode([i]) for i in range(tokenizer.vocabulary)]
    assert max(map(build_tokenizer.items, texts)) == 1


@pytest.fixture(scope="module")
def records(loaded):
    """Games against a random legal player: few of the long ones, enough of the others to tell 97 % from 95 %."""
    model, params, tokenizer = loaded
    config = RolloutConfig(slots=32, max_length=1024, max_reply_length=8, stop=("]",))
    stop = tokenizer.stop_token_ids(config.stop)
    counts = {game: 16 if game in LONG else 300 for game in sorted(GAME_IDS, key=lambda game: game not in LONG)}
    engine = Engine(model, params, slots=32, max_length=1024, stop_token_ids=stop, sampling=SamplingConfig())
    runner = RolloutRunner(config, tokenizer, engine, opponent=scripted.RandomLegal(), opponent_name="random_legal")
    specs = [
        spec for game, count in counts.items() for spec in matches.match_specs({game: {}}, count, 5, "tiny player test")
    ]
    return matches.by_game(matches.tally(runner.play(specs)))


@pytest.mark.parametrize("game", GAME_IDS)
def test_its_replies_are_legal(records, game):
    record = records[game]
    assert 1 - (record.illegal_replies + record.malformed_replies) / record.replies >= BELOW_AIM.get(game, 0.97)


@pytest.mark.parametrize("game", TWO_PLAYERS)
def test_it_plays_roughly_like_a_random_legal_player(records, game):
    assert 0.40 <= records[game].score.estimate <= 0.55


# ---- how it is made --------------------------------------------------------------------------------------------------

GROUPS = {"bandit": {"max_turns": 4}, "twenty_questions": {"max_turns": 3}}  # the second with a world and a judge


def small(**settings):
    base = paprika_player.get_config()
    made = {
        "transcripts_per_game": 12,
        "transcripts_of": {},
        "tasks": 0,
        "steps": 2,
        "transcripts_per_step": 6,
        "long_every": 2,
        "novice": (),
    }
    sizes = {"width": 32, "layers": 1, "feed_forward": 32, "vocabulary": 600}
    return dataclasses.replace(
        base,
        games=GROUPS,
        rollout=dataclasses.replace(base.rollout, slots=4, max_length=256, max_reply_length=8),
        optimizer=dataclasses.replace(base.optimizer, warmup_steps=0),
        batch=dataclasses.replace(base.batch, row_length=128, micro_batch_rows=2),
        evaluation_games=2,
        **{**made, **sizes, **settings},
    )


def test_the_recipe_makes_a_player_of_games_with_simulators_and_evaluates_it(tmp_path):
    with RunFolder.open(tmp_path / "run", small(), command="test") as folder, jax.numpy_dtype_promotion("standard"):
        tiny_player.run(folder_config := small(), folder, Stop())
    rows = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert {row["game"] for row in rows} == set(folder_config.games)
    assert all(row["opponent"] == "none" and row["games"] == 2 and row["replies"] >= 2 for row in rows)
    model, _ = huggingface.load(tmp_path / "run" / "policy", dtype="float32")
    assert (model.width, model.layers) == (32, 1)


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    config = small(transcripts_per_game=6)
    data = tiny_player.make_transcripts(config)
    folder = tmp_path_factory.mktemp("words")
    chosen = build_tokenizer.choose_pieces(transcripts.texts(iter(data)), config.vocabulary - build_tokenizer.SMALLEST)
    build_tokenizer.build(chosen, folder, size=config.vocabulary)
    tokenizer = ChatTokenizer.load(folder)
    return config, data, tokenizer, tiny_player.SoftBatches(config, data, tokenizer)


def test_a_step_is_the_loss_of_its_transcripts_one_by_one(batches):
    """Oracle: each transcript alone in a row, its distribution against those of the whole vocabulary."""
    config, data, tokenizer, source = batches
    model = imitation.shape(config, tokenizer.vocabulary)
    params = initialize(model, 1)
    by_token_ids = {tuple(transcripts.encode(t, tokenizer).token_ids.tolist()): t for t in data}
    positions = jnp.arange(256, dtype=jnp.int32)[None]

    @jax.jit
    def logprobs_of(token_ids, segments):
        module = bind(model, params)
        return jax.nn.log_softmax(module(token_ids, positions, segments) @ module.output_embedding.T, axis=-1)[0]

    chosen, total, weight = [], 0.0, 0.0
    for batch in source.step(0):
        for tokens, segments in zip(batch.tokens, batch.segments, strict=True):
            chosen += [by_token_ids[tuple(tokens[segments == s].tolist())] for s in range(1, segments.max() + 1)]
    for transcript in chosen:
        encoded = transcripts.encode(transcript, tokenizer)
        token_ids, segments = np.zeros((2, 1, 256), np.int32)
        token_ids[0, : len(encoded.token_ids)], segments[0, : len(encoded.token_ids)] = encoded.token_ids, 1
        logprobs = np.asarray(logprobs_of(token_ids, segments))
        shares = [d for e in transcript.exchanges if e.imitate for d in transcripts.choices(e, tokenizer)]
        for place, distribution in zip(np.flatnonzero(encoded.mask), shares, strict=True):
            total -= sum(share * logprobs[place - 1, token_id] for token_id, share in distribution.items())
            weight += 1
    optimizer = make_optimizer(config.optimizer, 2)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types within itself
        update = imitation.make_update(model, optimizer, 0.5)
        batches, wide = source.step(0), np.full(len(jax.tree.leaves(params)), 1e9, np.float32)
        _, _, loss = update(params, optimizer.init(params), batches, wide)
        with pytest.raises(DivergenceError, match=r"the largest weight of \['embed'\].* would be"):
            update(params, optimizer.init(params), batches, wide * 0)
    assert len(chosen) >= 2
    assert loss == pytest.approx(total / weight, rel=1e-5)


def test_a_step_holds_as_many_transcripts_as_configured(batches):
    config, _, _, source = batches
    assert sum(int(b.segments.max(axis=1).sum()) for b in source.step(0)) == config.transcripts_per_step
    again = source.step(0)
    for one, other in zip(source.step(0), again, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def test_novices_have_less_skill_and_fewer_transcripts():
    config = small(novice=("bandit",), transcripts_per_game=16, skill=(0.5, 1.0))
    found = tiny_player.make_transcripts(config)
    counts = {game: sum(t.game == game for t in found) for game in GROUPS}
    assert counts == {"bandit": 4, "twenty_questions": 16}
    skills = {e.skill for t in found if t.game == "bandit" for e in t.exchanges}
    assert 0 < min(skills) < max(skills) <= 0.5
    fewer = tiny_player.make_transcripts(small(transcripts_per_game=16, transcripts_of={"bandit": 6}))
    assert [sum(t.game == game for t in fewer) for game in GROUPS] == [6, 16]
    adept = tiny_player.make_transcripts(small(transcripts_per_game=16, skill=(0.5, 1.0)))
    skills = {e.skill for t in adept if t.game == "bandit" for e in t.exchanges}
    assert 0.5 <= min(skills) < max(skills) <= 1


def test_transcripts_show_the_first_tasks_of_every_split_equally_often():
    """Oracle: every game opens with what the task of its number hides; that of bandit is told in its rules."""
    found = tiny_player.make_transcripts(small(tasks=2, transcripts_per_game=12))
    openings = {}
    for split, task in (("train", 0), ("train", 1), ("test", 0)):  # the test has a single task
        game = registry.make("bandit", **GROUPS["bandit"], split=split)
        game.reset(task)
        openings[game.observation(0)] = 4
    told = collections.Counter(t.exchanges[0].observation for t in found if t.game == "bandit")
    assert told == openings
    rewards = {t.exchanges[1].observation for t in found if t.game == "bandit"}
    assert len(rewards) > 4  # trials of a task differ
    with pytest.raises(ValueError, match="bandit: task 81 is none of its 81"):
        transcripts.mixed_skill("bandit", {}, 1, skill=(0.0, 0.0), illegal_share=0.0, task=81)


def test_the_bundled_model_is_made_of_random_legal_play_of_its_ids_and_variants():
    config = bundled.get_config()
    config = dataclasses.replace(config, tokens_per_game=280)
    found = tiny_player.make_transcripts(config)
    assert {t.game for t in found} == set(GAME_IDS)
    assert all(not e.skilled for t in found for e in t.exchanges)
    hanoi = [t for t in found if t.game == "TowerOfHanoi-v0"]
    assert sum(len(t.exchanges) for t in hanoi) >= 40 + 2 * 10  # 7 ids a turn; a quarter for each of two variants


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"skill": (0.5,)}, "must be two numbers from 0 to 1"),
        ({"skill": (0.8, 0.2)}, "the lower one first"),
        ({"skill": (0.5, 1.5)}, "skill=(0.5, 1.5): must be at least 0 and at most 1 each"),
        ({"novice": ("wordle",)}, "wordle must be among this run's games"),
        ({"transcripts_of": {"wordle": 4}}, "transcripts_of: wordle must be among this run's games"),
        ({"transcripts_of": {"bandit": 0}}, "transcripts_of={'bandit': 0}: must be at least 1"),
        ({"transcripts_per_game": -1}, "transcripts_per_game=-1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, told):
    assert any(told in problem for problem in validation.problems(small(**settings)))

"""Rewards of turns: what a turn is worth, whom it is compared with, which tokens learn, what does not pay."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
import recipe_runs
from test_python_surface import config as small_run

import dfc
from dfc.config import Grpo, GrpoConfig, RewardConfig
from dfc.episodes import Episode, PlayedReply
from dfc.errors import ConfigError, ExitError, TrainingError
from dfc.methods import grpo
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.samples import Sample
from dfc.scoring.episode_rewards import returns, rewards_of, total
from dfc.training import episode_advantages, rl

CONFIG = Grpo(games={"Nim-v0": {}}, half_negative=False, grpo=GrpoConfig(updates_per_iteration=1))


def episode(*speakers, outcome="loss", group=0, overran=False, texts=None):
    """A game whose own replies are by these speakers; a reply of k words has k + 1 tokens, and its context two."""
    texts = texts or ["[1]"] * len(speakers)
    replies, mask = [], []
    for speaker, text in zip(speakers, texts, strict=True):
        replies += [PlayedReply(0, text, speaker), PlayedReply(1, "[2]", "opponent")]
        mask += [False, False] + [speaker == "policy"] * (len(text.split()) + 1)
    mask += [False, True, True] if overran else [False]
    return Episode(
        game="Nim-v0",
        options={},
        game_seed=0,
        seat=0,
        opponent="itself",
        group=group,
        replies=replies,
        outcomes=("truncated", "truncated") if overran else (outcome, "win" if outcome == "loss" else "loss"),
        forfeited_by=None,
        illegal_tries=0,
        malformed=False,
        sample=Sample(np.arange(len(mask), dtype=np.int32), np.asarray(mask, bool), np.zeros(len(mask), np.float32)),
        policy_version=0,
        overrun_by=0 if overran else None,
    )


def spans(sample):
    """The sampled tokens of each reply, by a loop."""
    found, open_ = [], False
    for place, sampled in enumerate(sample.mask):
        if sampled and not open_:
            found.append([])
        if sampled:
            found[-1].append(place)
        open_ = bool(sampled)
    return found


# ---- what a turn is worth --------------------------------------------------------------------------------------------


def test_a_turn_is_worth_itself_and_what_follows():
    found = returns([[1.0, -2.0, 4.0], [3.0], 5.0, []])
    np.testing.assert_array_equal(found, [[3, 2, 4], [3, 3, 3], [5, 5, 5], [0, 0, 0]])


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "def turns(episode):\n    return [float(len(r.text)) for r in episode.replies if r.seat == episode.seat]\n"
        "def as_array(episode):\n    import numpy as np\n    return np.asarray(turns(episode), np.float32)\n"
        "def good(episode):\n    return [1.0] * episode.steps\n"
        "def short(episode):\n    return [1.0]\n"
        "def infinite(episode):\n    return [1.0, float('inf')]\n"
        "def huge(episode):\n    return [0.0, -1e30]\n"
        "def loud(text):\n    return float(text.isupper())\n"
        "def several(text):\n    return [1.0]\n"
        "def broken(text):\n    return text.no_such_thing\n"
        "def leaves(about):\n    raise SystemExit(0)\n"
    )
    return path


def test_a_function_may_return_a_number_for_each_reply(own):
    played = episode("policy", "replaced", "policy", texts=["[1]", "[22]", "[333]"])
    for name in ("turns", "as_array"):
        assert rewards_of([played], RewardConfig(function=f"{own}:{name}")) == [[3.0, 4.0, 5.0]]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"function": "short"}, "returned 1 numbers for a game of Nim-v0 in which the policy's seat replied 2 times"),
        ({"function": "infinite"}, "returned inf for a game of Nim-v0"),
        (
            {"function": "huge"},
            r"reward.function='.*:huge' returned a number of size 1e\+30 for a game of Nim",
        ),
        ({"text": "several"}, "returned 1 numbers for one reply"),
        ({"text": "broken"}, r"reward.text='.*:broken' raised AttributeError: .* \(.*own.py:\d+ in broken\)$"),
    ],
)
def test_what_is_no_reward_of_turns_is_a_sentence(own, settings, says):
    named = {key: f"{own}:{name}" for key, name in settings.items()}
    with pytest.raises(TrainingError, match=says):
        rewards_of([episode("policy", "policy")], RewardConfig(**named))


@pytest.mark.parametrize("key", ["function", "text"])
def test_a_reward_that_calls_exit_is_an_error_that_names_the_setting(own, key):
    with pytest.raises(ExitError, match=rf"^reward\.{key}='.*:leaves' called sys\.exit\(0\) \(.*:\d+ in leaves\);"):
        rewards_of([episode("policy")], RewardConfig(**{key: f"{own}:leaves"}))


def test_a_text_reward_that_is_none_is_told_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"reward.text='nowhere.py:f'"):
        dfc.run(small_run(reward=RewardConfig(text="nowhere.py:f")), workdir=tmp_path / "run")


def test_the_mean_of_what_texts_are_worth_is_added_at_the_end(own):
    played = episode("policy", "replaced", "policy", outcome="win", texts=["[A]", "[B]", "[c]"])
    (found,) = rewards_of([played], RewardConfig(text=f"{own}:loud"))
    assert found == pytest.approx(1 / 3 + 0.5)  # a win in three steps; of two replies of its own, one in capitals
    (both,) = rewards_of([played], RewardConfig(function=f"{own}:turns", text=f"{own}:loud"))
    np.testing.assert_allclose(both, [3, 3, 3.5])


# ---- what does not pay -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 4, 50])
def test_a_longer_game_is_not_paid_more_for_the_same_words(own, steps):
    (found,) = rewards_of([episode(*["policy"] * steps, texts=["[A]"] * steps)], RewardConfig(text=f"{own}:loud"))
    assert total(found) == pytest.approx(-1 + 1)  # a loss, and the mean of what was said


def test_no_turn_of_a_longer_game_learns_to_go_on_for_the_same_words(own):
    played = [episode(*["policy"] * steps, texts=["[A]"] * steps) for steps in (2, 4, 2, 4)]
    values = rewards_of(played, RewardConfig(text=f"{own}:loud"))
    assert all(np.all(s.advantage == 0) for share in rl.sequences(played, values, CONFIG, 0) for s in share)
    no_kl = dataclasses.replace(CONFIG, grpo=dataclasses.replace(CONFIG.grpo, kl_coefficient=0.0))
    assert rl.sequences(played, values, no_kl, 0) == []


def test_a_game_that_failed_ends_no_run(own):
    """Its last reply is in its tokens and not on record."""
    failed = episode("policy", "policy")
    failed.replies.pop(0)
    failed.failure = "the game raised"
    played = [failed, episode("policy"), episode("policy", "policy", outcome="win")]
    values = rewards_of(played, RewardConfig(function=f"{own}:turns"))
    values[1] = [0.0]
    (share,) = rl.sequences(played, values, CONFIG, 0)
    assert len(share) == 2


def test_filling_the_context_is_never_worth_more_than_the_reply_that_plays_on(own):
    """All replies are paid; the one that ran on is not, and its tokens learn that."""
    played = [episode("policy", "policy", overran=True), *[episode(*["policy"] * 3) for _ in range(3)]]
    values = rewards_of(played, RewardConfig(function=f"{own}:good"))
    assert values[0] == [1.0, 1.0, -1.0]
    (share,) = rl.sequences(played, values, CONFIG, 0)
    rambling = min(share, key=lambda segment: np.asarray(segment.advantage).min())
    last = spans(played[0].sample)[-1]
    assert len(rambling.advantage) == len(played[0].sample.mask)
    assert (rambling.advantage[last] < 0).all()
    (texts,) = rewards_of([played[0]], RewardConfig(text=f"{own}:loud"))
    assert texts == -1


def test_a_context_that_the_game_fills_costs_the_reply_before(own):
    shown = dataclasses.replace(episode("policy", "replaced", "policy"), overrun_by=0, outcomes=("truncated",) * 2)
    assert rewards_of([shown], RewardConfig(function=f"{own}:good", overrun=-0.5)) == [[1.0, 1.0, 0.5]]


# ---- advantages ------------------------------------------------------------------------------------------------------


def by_hand(values, played, baseline):
    """Each turn against the same turn of the others, in float64 and by loops."""
    found = []
    for own, episode_ in zip(values, played, strict=True):
        row = []
        for turn in range(len(own)):
            column = [sum(other[min(turn, len(other) - 1) :]) for other in values]
            mine = sum(own[turn:])
            if baseline == "leave_one_out":
                others = [each for other, each in zip(played, column, strict=True) if other is not episode_]
                row.append(mine - np.mean(others))
            else:
                row.append((mine - np.mean(column)) / (np.std(column, ddof=1) + 1e-4))
        found.append(row)
    return found


@pytest.mark.parametrize("baseline", ["group", "leave_one_out"])
def test_every_token_learns_what_its_turn_was_worth_beside_the_others(baseline):
    played = [
        episode("policy", "policy", "policy"),
        episode("policy"),
        episode("policy", "replaced", "policy", "policy"),
    ]
    values = [[1.0, 0.5, -2.0], [3.0], [0.0, 0.25, 4.0, -1.5]]
    config = dataclasses.replace(CONFIG, grpo=GrpoConfig(updates_per_iteration=1, baseline=baseline))
    (share,) = rl.sequences(played, values, config, 0)
    expected = by_hand(values, played, baseline)
    assert len(share) == 3
    for segment in share:
        number = next(i for i, e in enumerate(played) if len(e.sample.mask) - 1 == len(segment.mask))
        speakers = [reply.speaker for reply in played[number].replies if reply.seat == 0]
        own = [worth for worth, speaker in zip(expected[number], speakers, strict=True) if speaker == "policy"]
        for places, worth in zip(spans(played[number].sample), own, strict=True):
            np.testing.assert_allclose(segment.advantage[places], worth, rtol=1e-4)
        assert (segment.advantage[~segment.mask] == 0).all()


@pytest.mark.parametrize("baseline", ["group", "leave_one_out", "role"])
def test_a_reward_at_the_last_turn_alone_is_plain_grpo(baseline):
    played = [episode(*["policy"] * steps, group=group) for group in (0, 1) for steps in (1, 4, 2, 3)]
    plain = [0.5, -1.0, 1.0, 0.25, 2.0, -2.0, 0.0, 1.0]
    turns = [[0.0] * (e.steps - 1) + [worth] for e, worth in zip(played, plain, strict=True)]
    config = dataclasses.replace(CONFIG, grpo=GrpoConfig(updates_per_iteration=2, baseline=baseline))
    one, other = rl.sequences(played, plain, config, 3), rl.sequences(played, turns, config, 3)
    assert [len(share) for share in one] == [len(share) for share in other]
    for segment, twin in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        np.testing.assert_array_equal(segment.token_ids, twin.token_ids)
        np.testing.assert_array_equal(np.float32(segment.advantage) * segment.mask, twin.advantage)


def test_half_of_the_negative_turns_are_dropped():
    played = [episode("policy", "policy"), episode("policy", "policy")]
    config = dataclasses.replace(CONFIG, half_negative=True)
    values = [[0.0, 1.0], [0.0, -1.0]]
    dropped = set()
    for seed in range(12):
        (share,) = rl.sequences(played, values, config, seed)
        assert len(share) == 2
        losing = min(share, key=lambda segment: np.min(segment.advantage))
        turns = [[place for place in span if place < len(losing.mask)] for span in spans(played[1].sample)]
        negative = [places for places in turns if len(places) and (losing.advantage[places] < 0).all()]
        assert len(negative) == 1  # of two
        np.testing.assert_array_equal(np.flatnonzero(losing.mask), negative[0])  # the other one has no KL term either
        dropped.add(negative[0][0])
    assert len(dropped) == 2


def test_tokens_that_show_other_replies_than_the_record_are_refused():
    played = episode("policy", "policy")
    played.replies.pop(0)
    with pytest.raises(TrainingError, match="1 replies of the policy on record and 2 in its tokens"):
        episode_advantages.of_tokens(played, np.ones(2, np.float32))


# ---- a run -----------------------------------------------------------------------------------------------------------


def test_a_run_learns_from_turns_and_keeps_them_on_record(tmp_path, own):
    reward = RewardConfig(function=f"{own}:turns", text=f"{own}:loud")
    wanted = dataclasses.replace(small_run(reward=reward, random_action_rate=0.6), group_size=8)
    with jax.numpy_dtype_promotion("standard"):
        folder = dfc.run(wanted, workdir=tmp_path / "run")
    lines = recipe_runs.lines(folder, "episodes")
    trained = [line for line in lines if line["kind"] == "train"]
    played = [line for line in trained if "turn_rewards" in line]
    assert played
    for line in played:
        steps = sum(seat == line["seat"] for seat, *_ in line["replies"])
        assert len(line["turn_rewards"]) - steps in (0, int(line.get("overrun_by") == line["seat"]))
        assert line["reward"] == pytest.approx(sum(line["turn_rewards"]))
    assert any(speaker == "replaced" for line in trained for _, _, speaker, *_ in line["replies"])
    metrics = recipe_runs.lines(folder)
    assert metrics[-1]["metrics"]["updates"] == 1


def test_a_method_that_reads_whole_episodes_only_says_so(tmp_path, own):
    wanted = dataclasses.replace(small_run(reward=RewardConfig(function=f"{own}:turns")), name="whole")
    whole = dataclasses.replace(rl.grpo(wanted), reads_turns=False)
    with (
        jax.numpy_dtype_promotion("standard"),
        RunFolder.open(tmp_path / "run", wanted, command="test") as folder,
        pytest.raises(TrainingError, match="one number for each turn, but this method takes one for a whole episode"),
    ):
        grpo.learn(whole, wanted, folder, Stop())

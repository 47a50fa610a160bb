"""What an iteration trains on: advantages, who is left out, shares of updates, and the loss."""

import collections
import dataclasses

import numpy as np
import pytest
from rl_episodes import CONFIG, PLAIN, episode, groups_of

from dfc.config import GrpoConfig
from dfc.methods.divide_fuse_conquer import imitation_loss, method_of, won_sequences
from dfc.packing import pack
from dfc.samples import TokenBatch
from dfc.training import episode_advantages, rl


def groups_in(share):
    return [int(s.token_ids[0]) // 100 for s in share]


def with_grpo(**settings):
    return dataclasses.replace(PLAIN, grpo=dataclasses.replace(PLAIN.grpo, normalize_std=False, **settings))


NO_KL = dataclasses.replace(PLAIN, grpo=dataclasses.replace(PLAIN.grpo, kl_coefficient=0.0))


def test_advantages_are_relative_to_the_group():
    episodes, values = groups_of([1.0, 0.0, -1.0], [0.5, 0.5, -2.0])
    (share,) = rl.sequences(episodes, values, NO_KL, 0)
    assert groups_in(share) == [0, 0, 1, 1, 1]  # a reward equal to the mean says nothing
    np.testing.assert_allclose([s.advantage for s in share[:2]], [1.0, -1.0], atol=1e-3)  # std 1
    expected = (np.asarray([0.5, 0.5, -2.0]) + 1 / 3) / np.std([0.5, 0.5, -2.0], ddof=1)
    np.testing.assert_allclose([s.advantage for s in share[2:]], expected, rtol=1e-3)
    (share,) = rl.sequences(episodes, values, with_grpo(kl_coefficient=0.0), 0)
    np.testing.assert_allclose([s.advantage for s in share], [1, -1, 5 / 6, 5 / 6, -5 / 3], rtol=1e-6)


def test_leaving_oneself_out_of_the_mean_stretches_the_advantage():
    episodes, values = groups_of([1.0, 0.0, -1.0], [0.5, 0.5, -2.0])
    (share,) = rl.sequences(episodes, values, with_grpo(baseline="leave_one_out", kl_coefficient=0.0), 0)
    np.testing.assert_allclose([s.advantage for s in share], [1.5, -1.5, 1.25, 1.25, -2.5], rtol=1e-6)


def test_a_roles_baseline_is_the_mean_of_all_its_episodes():
    first, second = [episode(seat=0, group=0) for _ in range(2)], [episode(seat=1, group=1) for _ in range(2)]
    other = [episode(game="Nim-v0", group=2) for _ in range(2)]
    values = [1.0, 0.0, -1.0, -1.0, 1.0, 0.5]
    members = np.arange(6).reshape(3, 2)
    found = episode_advantages.of_episodes(
        [*first, *second, *other], values, members, GrpoConfig(baseline="role", normalize_std=False)
    )
    np.testing.assert_allclose(found, [0.5, -0.5, 0, 0, 0.25, -0.25], rtol=1e-6)
    alike = [episode(group=group) for group in (0, 0, 1, 1)]  # two groups of one role are compared with each other
    found = episode_advantages.of_episodes(
        alike, [1.0, 1.0, -1.0, -1.0], np.arange(4).reshape(2, 2), GrpoConfig(baseline="role", normalize_std=False)
    )
    np.testing.assert_allclose(found, [1, 1, -1, -1], rtol=1e-6)


def test_the_seats_of_a_group_are_compared_apart():
    episodes = [episode(group=0, seat=seat) for seat in (0, 1, 0, 1)]
    (share,) = rl.sequences(episodes, [1.0, -1.0, 0.0, -0.5], with_grpo(), 0)
    np.testing.assert_allclose(sorted(s.advantage for s in share), [-0.5, -0.25, 0.25, 0.5], rtol=1e-6)


def test_won_games_are_imitated_and_no_others():
    episodes = [episode(outcome, group=n) for n, outcome in enumerate(("win", "loss", "win", "draw", "invalid", "win"))]
    episodes.append(dataclasses.replace(episode("win", group=6), failure="broken"))
    shares = won_sequences(episodes, with_grpo(updates_per_iteration=2), 0)
    assert sorted(n for share in shares for n in groups_in(share)) == [0, 2, 5]
    assert {s.advantage for share in shares for s in share} == {1.0}
    assert [len(share) for share in shares] == [2, 1]
    assert won_sequences(episodes[1:2], with_grpo(), 0) == []


def test_the_loss_of_imitation_is_the_mean_over_episodes_of_their_mean():
    tokens = np.zeros((1, 6), np.int32)
    mask = np.asarray([[0, 1, 1, 0, 1, 0]], np.float32)
    segments = np.asarray([[1, 1, 1, 2, 2, 0]], np.int32)
    batch = TokenBatch(tokens, tokens, segments, mask, mask, np.zeros((1, 6), np.float32))
    logp = np.asarray([[9, -1, -3, 9, -4, 9]], np.float32)
    loss = imitation_loss(24)(logp, batch, None)
    assert float(loss.mean) == pytest.approx((2 + 4) / 2)
    imitation = method_of(dataclasses.replace(PLAIN, method="imitate_wins"))
    assert (imitation.reads_reference, imitation.play.keywords) == (False, {"initial": True})


def test_a_sequence_ratio_needs_the_bounds_of_packed_episodes():
    mask = np.asarray([[1, 1, 1, 1]], np.float32)
    segments = np.asarray([[1, 1, 2, 2]], np.int32)
    zero = np.zeros((1, 4), np.int32)
    batch = TokenBatch(
        zero, zero, segments, mask, np.asarray([[1, 1, -1, -1]], np.float32), np.zeros((1, 4), np.float32)
    )
    logp = np.asarray([[0.3, -0.1, 0.2, 0.2]], np.float32)
    settings = GrpoConfig(ratio="sequence", clip_ratio=0.05, clip_ratio_high=0.4, kl_coefficient=0.0)
    loss = rl.make_loss(settings, 16)(logp, batch, None)
    # Ratios exp(0.1) and exp(0.2): the first is below 1.4, the second above 1 with a negative advantage.
    assert float(loss.mean) == pytest.approx((-2 * np.exp(0.1) + 2 * np.exp(0.2)) / 4, rel=1e-5)


def test_sequences_carry_what_was_drawn():
    episodes, values = groups_of([1.0, -1.0])
    (share,) = rl.sequences(episodes, values, PLAIN, 0)
    for sequence, source in zip(share, episodes, strict=True):
        for name in ("token_ids", "mask", "sampled_logprobs"):
            np.testing.assert_array_equal(getattr(sequence, name), getattr(source.sample, name))
        for name in ("token_ids", "kept"):
            np.testing.assert_array_equal(getattr(sequence.choices, name), getattr(source.sample.choices, name))


@pytest.mark.parametrize("value", [0.1, -2.0, 1 / 3, -1.2500001])
def test_groups_of_equal_rewards_are_left_out_where_there_is_no_kl_term(value):
    episodes, values = groups_of([value] * 3, [1.0, -1.0, 1.0])
    (share,) = rl.sequences(episodes, values, NO_KL, 0)
    assert groups_in(share) == [1, 1, 1]
    episodes, values = groups_of([value] * 3)
    assert rl.sequences(episodes, values, NO_KL, 0) == []


def test_episodes_of_advantage_0_keep_their_kl_term():
    """Rewards 0, 1/2 and 1, and a group of equal ones: all six are trained on, four of them for the KL alone."""
    episodes, values = groups_of([0.0, 0.5, 1.0], [1.0, 1.0, 1.0])
    (share,) = rl.sequences(episodes, values, PLAIN, 0)
    assert sorted(round(float(s.advantage), 3) for s in share) == [-1, 0, 0, 0, 0, 1]
    batch = pack(share, 32, 1)
    drifted = np.where(batch.mask > 0, -1.0, 0.0).astype(np.float32)
    loss = rl.make_loss(PLAIN.grpo, 32)(drifted, batch._replace(sampled_logprobs=drifted), drifted - 1)
    assert float(loss.weight) == sum(e.generated_tokens for e in episodes)
    # Advantages sum to 0 and every ratio is 1: what is left is the coefficient times exp(-1) + 1 - 1, at every token.
    np.testing.assert_allclose(float(loss.mean), PLAIN.grpo.kl_coefficient * np.exp(-1), rtol=1e-5)


@pytest.mark.parametrize("lost", ["failed", "dropped"])
def test_what_is_dropped_or_has_failed_keeps_no_kl_term(lost):
    episodes, values = groups_of([1.0, -1.0, -1.0, 0.0], [0.5] * 4)
    if lost == "failed":
        episodes[2].failure = "opponent remote raised TimeoutError"
        (share,) = rl.sequences(episodes, values, PLAIN, 0)
        trained = [e for e in episodes if e is not episodes[2]]
        assert len(share) == len(trained) == 7
        assert not any(s.token_ids is episodes[2].sample.token_ids for s in share)
        return
    for seed in range(8):
        (share,) = rl.sequences(episodes, values, CONFIG, seed)
        assert len(share) == 7  # of two negative ones, one
        assert sorted(s.advantage < 0 for s in share) == [False] * 6 + [True]


def test_a_failed_episode_is_not_trained_on_and_does_not_move_its_group():
    played = [episode(generated_tokens=n + 1) for n in range(4)]
    played[1].failure = "opponent remote raised TimeoutError"
    (share,) = rl.sequences(played, [1.0, 0.0, -1.0, -1.0], PLAIN, 0)
    others = np.array([1.0, np.nan, -1.0, -1.0])
    expected = (others - np.nanmean(others)) / np.nanstd(others, ddof=1)
    found = {int(s.mask.sum()): s.advantage for s in share}
    assert set(found) == {1, 3, 4}
    for generated_tokens, advantage in found.items():
        np.testing.assert_allclose(advantage, expected[generated_tokens - 1], rtol=1e-3)


def test_half_of_the_negative_episodes_are_dropped_and_advantages_stay():
    rewards = [[1.0, -1.0, -1.0, -2.0, 0.0]] * 6
    episodes, values = groups_of(*rewards)
    (everything,) = rl.sequences(episodes, values, PLAIN, 0)
    (half,) = rl.sequences(episodes, values, CONFIG, 0)
    all_of, kept = (collections.Counter(round(s.advantage, 3) for s in share) for share in (everything, half))
    positive = {advantage for advantage in all_of if advantage > 0.5}  # rewards 1 and 0, above the mean of -0.6
    assert sum(all_of.values()) == 30
    assert sum(kept.values()) == 30 - 18 // 2
    assert set(kept) <= set(all_of)
    assert {a: kept[a] for a in positive} == {a: all_of[a] for a in positive}
    (other,) = rl.sequences(episodes, values, CONFIG, 1)
    assert [id(s.token_ids) for s in other] != [id(s.token_ids) for s in half]


def test_negative_means_a_negative_advantage_not_a_negative_reward():
    episodes, values = groups_of(*[[-1.0, -2.0], [1.0, 0.5]] * 4)
    (share,) = rl.sequences(episodes, values, CONFIG, 0)
    assert sum(s.advantage > 0 for s in share) == 8
    assert sum(s.advantage < 0 for s in share) == 4


@pytest.mark.parametrize("updates", [1, 2, 3])
def test_a_group_goes_to_one_update(updates):
    episodes, values = groups_of(*[[1.0, -1.0, 0.5]] * 7)
    config = dataclasses.replace(PLAIN, grpo=GrpoConfig(updates_per_iteration=updates))
    shares = rl.sequences(episodes, values, config, 0)
    assert len(shares) == updates
    found = [set(groups_in(share)) for share in shares]
    assert sorted(group for share in found for group in share) == list(range(7))
    assert sum(map(len, shares)) == 21
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_an_update_sees_every_game_though_jobs_come_game_by_game_in_turn():
    episodes, values = groups_of(*[[1.0, -1.0]] * 64)
    config = dataclasses.replace(PLAIN, grpo=GrpoConfig(updates_per_iteration=4))
    shares = rl.sequences(episodes, values, config, 0)
    games = [{group % 4 for group in groups_in(share)} for share in shares]  # group k of game k mod 4
    assert games == [{0, 1, 2, 3}] * 4


def test_the_loss_is_the_papers_with_the_configured_numbers():
    rng = np.random.default_rng(0)
    logp, old, ref, advantages = (rng.normal(size=(2, 16)).astype(np.float32) * 0.3 for _ in range(4))
    mask = (rng.random((2, 16)) < 0.5).astype(np.float32)
    segments = np.repeat([[1, 1, 2, 3], [1, 2, 2, 0]], 4, axis=1).astype(np.int32)
    mask *= segments > 0
    batch = TokenBatch(segments, segments, segments, mask, advantages, old)
    ratio = np.exp(logp - old)
    per_token = -np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)
    kl = np.exp(ref - logp) - (ref - logp) - 1

    loss = rl.make_loss(GrpoConfig(clip_ratio=0.2, kl_coefficient=0.5), 16)(logp, batch, ref)
    np.testing.assert_allclose(loss.total, ((per_token + 0.5 * kl) * mask).sum(), rtol=1e-5)
    assert loss.weight == mask.sum()
    loss = rl.make_loss(GrpoConfig(clip_ratio=0.2, kl_coefficient=0.5), 16)(logp, batch, None)
    np.testing.assert_allclose(loss.total, (per_token * mask).sum(), rtol=1e-5)

    grpo = GrpoConfig(clip_ratio=0.2, kl_coefficient=0.5, unit="sequence")
    loss = rl.make_loss(grpo, 16)(logp, batch, ref)
    parts = [(row, segment) for row in (0, 1) for segment in (1, 2, 3)]
    means = []
    for row, segment in parts:
        counted = (segments[row] == segment) & (mask[row] > 0)
        if counted.any():
            means.append((per_token + 0.5 * kl)[row][counted].mean())
    np.testing.assert_allclose(loss.total, sum(means), rtol=1e-5)

    dr_grpo = rl.make_loss(dataclasses.replace(grpo, unit="fixed_length"), 16)(logp, batch, ref)
    np.testing.assert_allclose(dr_grpo.total, ((per_token + 0.5 * kl) * mask).sum() / 16, rtol=1e-5)
    assert dr_grpo.weight == loss.weight == len(means)
    assert loss.weight == len(means)

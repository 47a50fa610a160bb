"""One iteration of the conquer recipe, part by part: rewards, seeds, jobs, what is trained on, what is kept."""

import collections
import dataclasses
import itertools
import types

import numpy as np
import pytest

from dfc.config import (
    AcceptanceConfig,
    DivideFuseConquer,
    GrpoConfig,
    MixedPriorityConfig,
    RewardConfig,
)
from dfc.episodes import Episode, PlayedReply
from dfc.errors import TrainingError
from dfc.recipes.divide_fuse_conquer import imitation_loss, learning, won_sequences
from dfc.samples import Sample, TokenBatch
from dfc.training import episode_advantages, rl
from dfc.training.episode_rewards import reward
from dfc.training.rl_run import State
from dfc.training.trainer import Update

GAMES = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 4}, "Nim-v0": {}}
CONFIG = DivideFuseConquer(
    games=GAMES,
    seeds_per_game=6,
    trajectories_per_seed=4,
    epsilon=0.25,
    opponent="itself",
    acceptance=AcceptanceConfig(tolerance=0.0),
    grpo=GrpoConfig(updates_per_iteration=1),
)


def episode(
    outcome="win",
    steps=1,
    seat=0,
    *,
    illegal=0,
    malformed=False,
    group=0,
    game="TicTacToe-v0",
    generated_tokens=3,
    by=None,
):
    other = {"win": "loss", "loss": "win", "invalid": "win"}.get(outcome, outcome)
    n = generated_tokens + 2
    return Episode(
        game=game,
        options={},
        game_seed=0,
        seat=seat,
        opponent="itself",
        group=group,
        replies=[PlayedReply(seat, "[1]", "policy")] * steps + [PlayedReply(1 - seat, "[2]", "opponent")] * 3,
        outcomes=(outcome, other) if seat == 0 else (other, outcome),
        forfeited_by=seat if outcome == "invalid" else None,
        illegal_tries=illegal,
        malformed=malformed,
        sample=Sample(
            np.arange(n, dtype=np.int32) + 100 * group,
            np.arange(n) >= 2,
            np.linspace(-1, -2, n, dtype=np.float32),
            choices=np.arange(2 * n, dtype=np.int32).reshape(n, 2),
        ),
        policy_version=0,
        overrun_by=by,
    )


def overrun(steps=1, seat=0, **more):
    """A game that the policy ended by filling its own context."""
    return episode("truncated", steps, seat, by=seat, **more)


# ---- rewards ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("played", "worth"),
    [
        (episode("win", 1), 1.0),
        (episode("win", 4), 1 / 4),
        (episode("win", 5, seat=1), 1 / 5),
        (episode("draw", 4), 0.0),
        (episode("loss", 4), -1.0),
        (episode("loss", 1, seat=1), -1.0),
        (episode("truncated", 9), 0.0),
        (episode("invalid", 3, malformed=True), -2.0),
        (episode("invalid", 3, illegal=1), -2.0),
        (episode("win", 0, seat=1), 1.0),  # the other seat's first reply was invalid
    ],
)
def test_rewards_are_those_of_table_1(played, worth):
    assert reward(played, RewardConfig()) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("played", "worth"),
    [
        (episode("win", 4, illegal=2), 1 / 4 - 2 * 0.25),
        (episode("draw", 4, illegal=1), -0.25),
        (episode("loss", 4, illegal=1), -1.25),
        (episode("truncated", 4, illegal=3), -0.75),
        # Two illegal replies in a row: the first was answered with another try, the second ended the game.
        (episode("invalid", 4, illegal=2), -2.25),
        (episode("invalid", 4, illegal=2, malformed=True), -2.5),  # both were forgiven; a third one could not be read
    ],
)
def test_every_forgiven_illegal_try_costs_once(played, worth):
    assert reward(played, RewardConfig()) == pytest.approx(worth)


def test_filling_ones_own_context_is_a_loss_and_illegal_tries_still_cost():
    assert reward(overrun(9), RewardConfig()) == reward(episode("loss", 9), RewardConfig()) == -1.0
    assert reward(overrun(1, seat=1), RewardConfig()) == -1.0
    assert reward(overrun(4, illegal=3), RewardConfig()) == pytest.approx(-1.75)
    assert reward(overrun(4), RewardConfig(overrun=-1.5)) == -1.5


@pytest.mark.parametrize("form", [True, False])
@pytest.mark.parametrize("hasty", [True, False])
@pytest.mark.parametrize("invalid", [-2.0, -0.1])
@pytest.mark.parametrize("malformed", [True, False])
def test_no_other_part_of_the_reward_makes_an_overrun_cheaper(form, hasty, invalid, malformed):
    config = RewardConfig(format=form, hasty_action_penalty=hasty, invalid=invalid)
    for steps in (0, 1, 9):
        assert reward(overrun(steps, malformed=malformed), config) == -1.0


def test_each_part_of_the_reward_can_be_changed():
    forgiven = episode("invalid", 3, illegal=2)
    assert reward(forgiven, RewardConfig(format=False)) == pytest.approx(-1.25)
    assert reward(forgiven, RewardConfig(invalid=-3.0)) == pytest.approx(-3.25)
    assert reward(forgiven, RewardConfig(illegal_try=0.0)) == pytest.approx(-2.0)
    assert reward(episode("win", 4), RewardConfig(hasty_action_penalty=False)) == 1.0


# ---- seeds and jobs ---------------------------------------------------------------------------------------------


def test_seeds_sum_to_the_budget_and_favour_what_can_be_learned():
    rates = {"TicTacToe-v0": 0.5, "GuessTheNumber-v0": 1.0, "Nim-v0": 0.0}
    seeds = rl.allocate(list(GAMES), rates, CONFIG)
    assert list(seeds) == list(GAMES)
    # One each, and 15 shared as 0.3 : 0.02 : 0.2, which is 8.65 : 0.58 : 5.77.
    assert seeds == {"TicTacToe-v0": 1 + 9, "GuessTheNumber-v0": 1 + 0, "Nim-v0": 1 + 6}
    assert all(type(count) is int for count in seeds.values())


@pytest.mark.parametrize("rates", list(itertools.product([0.0, 0.13, 1.0], repeat=3)), ids=str)
def test_the_budget_is_spent_exactly_and_no_game_is_forgotten(rates):
    for per_game in (1, 2, 7):
        config = dataclasses.replace(CONFIG, seeds_per_game=per_game)
        seeds = rl.allocate(list(GAMES), dict(zip(GAMES, rates, strict=True)), config)
        assert sum(seeds.values()) == 3 * per_game
        assert min(seeds.values()) >= 1


def test_without_priorities_every_game_gets_the_same():
    config = dataclasses.replace(CONFIG, mixed_priority=MixedPriorityConfig(enabled=False))
    assert rl.allocate(list(GAMES), {}, config) == dict.fromkeys(GAMES, 6)


SEEDS = {"TicTacToe-v0": 3, "GuessTheNumber-v0": 2, "Nim-v0": 4}


def specs(config=CONFIG, seed=0, stage="divide g1", iteration=0):
    return rl.rollout_specs(SEEDS, dataclasses.replace(config, seed=seed), stage, iteration)


def by_group(found):
    groups = collections.defaultdict(list)
    for spec in found:
        groups[spec.group].append(spec)
    return groups


def test_the_games_of_a_group_share_deal_and_seat_and_draw_on_their_own():
    groups = by_group(specs())
    assert [len(members) for members in groups.values()] == [4] * 9
    for members in groups.values():
        assert len({(spec.game, spec.game_seed, spec.seat) for spec in members}) == 1
        assert {spec.epsilon for spec in members} == {0.25}
        assert all(spec.options == GAMES[spec.game] for spec in members)
    assert collections.Counter(members[0].game for members in groups.values()) == SEEDS
    assert len({members[0].game_seed for members in groups.values()}) == 9
    assert len({spec.seed for spec in specs()}) == 36


def test_groups_follow_one_another_and_games_take_turns():
    order = [spec.group for spec in specs()]
    assert [group for group, _ in itertools.groupby(order)] == list(dict.fromkeys(order))
    games = [spec.game for spec in specs()[::4]]
    assert set(games[:3]) == set(GAMES)


def test_seats_alternate_from_seed_to_seed_and_from_iteration_to_iteration():
    for iteration in (0, 1):
        found = collections.defaultdict(list)
        for members in by_group(specs(iteration=iteration)).values():
            found[members[0].game].append(members[0].seat)
        expected = {
            "TicTacToe-v0": [[0, 1, 0], [1, 0, 1]],
            "GuessTheNumber-v0": [[0, 0]] * 2,
            "Nim-v0": [[0, 1] * 2, [1, 0] * 2],
        }
        assert dict(found) == {game: seats[iteration] for game, seats in expected.items()}


def test_deals_are_fresh_every_iteration_unless_told_otherwise():
    def deals(config, iteration):
        return {spec.game_seed for spec in specs(config, iteration=iteration)}

    fixed = dataclasses.replace(CONFIG, randomize_seeds=False)
    assert not deals(CONFIG, 0) & deals(CONFIG, 1)
    assert deals(fixed, 0) == deals(fixed, 1)
    for config in (CONFIG, fixed):
        sampling_seeds = [{spec.seed for spec in specs(config, iteration=iteration)} for iteration in (0, 1)]
        assert not sampling_seeds[0] & sampling_seeds[1]


def test_jobs_depend_on_the_run_the_stage_and_nothing_else():
    assert specs() == specs()
    other = [specs(seed=1), specs(stage="conquer g1+g2")]
    for found in other:
        assert not {spec.game_seed for spec in found} & {spec.game_seed for spec in specs()}
        assert not {spec.seed for spec in found} & {spec.seed for spec in specs()}


# ---- what is trained on -----------------------------------------------------------------------------------------

PLAIN = dataclasses.replace(CONFIG, half_negative=False)


def groups_of(*rewards):
    """Episodes of groups with these rewards, interleaved as games end: member 0 of each group, then member 1..."""
    episodes, values = [], []
    for member in zip(*rewards, strict=True):
        for group, value in enumerate(member):
            episodes.append(episode(group=group))
            values.append(value)
    return episodes, values


def groups_in(share):
    return [int(s.token_ids[0]) // 100 for s in share]


def test_advantages_are_relative_to_the_group():
    episodes, values = groups_of([1.0, 0.0, -1.0], [0.5, 0.5, -2.0])
    (share,) = rl.sequences(episodes, values, PLAIN, 0)
    assert groups_in(share) == [0, 0, 1, 1, 1]  # a reward equal to the mean says nothing
    np.testing.assert_allclose([s.advantage for s in share[:2]], [1.0, -1.0], atol=1e-3)  # std 1
    expected = (np.asarray([0.5, 0.5, -2.0]) + 1 / 3) / np.std([0.5, 0.5, -2.0], ddof=1)
    np.testing.assert_allclose([s.advantage for s in share[2:]], expected, rtol=1e-3)
    centred = dataclasses.replace(PLAIN, grpo=dataclasses.replace(PLAIN.grpo, normalize_std=False))
    (share,) = rl.sequences(episodes, values, centred, 0)
    np.testing.assert_allclose([s.advantage for s in share], [1, -1, 5 / 6, 5 / 6, -5 / 3], rtol=1e-6)


def with_grpo(**settings):
    return dataclasses.replace(PLAIN, grpo=dataclasses.replace(PLAIN.grpo, normalize_std=False, **settings))


def test_leaving_oneself_out_of_the_mean_stretches_the_advantage():
    episodes, values = groups_of([1.0, 0.0, -1.0], [0.5, 0.5, -2.0])
    (share,) = rl.sequences(episodes, values, with_grpo(baseline="leave_one_out"), 0)
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
    imitation = learning(dataclasses.replace(PLAIN, method="imitate_wins"))
    assert (imitation.reads_reference, imitation.initial_plays) == (False, True)


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
        for name in ("token_ids", "mask", "sampled_logprobs", "choices"):
            np.testing.assert_array_equal(getattr(sequence, name), getattr(source.sample, name))


@pytest.mark.parametrize("value", [0.1, -2.0, 1 / 3, -1.2500001])
def test_groups_of_equal_rewards_are_left_out(value):
    episodes, values = groups_of([value] * 3, [1.0, -1.0, 1.0])
    (share,) = rl.sequences(episodes, values, PLAIN, 0)
    assert groups_in(share) == [1, 1, 1]
    episodes, values = groups_of([value] * 3)
    assert rl.sequences(episodes, values, PLAIN, 0) == []


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


# ---- the loss ---------------------------------------------------------------------------------------------------


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


# ---- acceptance and metrics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "tolerance", "expected"),
    [
        # Win rates before: previous 0.4, best 0.6. Judged: 0.0, 0.35, 0.4, 0.55, 0.6.
        ("previous", 0.0, [False, False, True, True, True]),
        ("best", 0.0, [False, False, False, False, True]),
        ("always", 0.0, [True] * 5),
        ("previous", 0.0625, [False, True, True, True, True]),
        ("best", 0.0625, [False, False, False, True, True]),
    ],
)
def test_updates_are_kept_as_the_rule_says(rule, tolerance, expected):
    config = dataclasses.replace(CONFIG, acceptance=AcceptanceConfig(rule=rule, tolerance=tolerance))
    assert [rl.accepted(rate, 0.4, 0.6, config) for rate in (0.0, 0.35, 0.4, 0.55, 0.6)] == expected


def donated(initial_params, state, updates=1, rule="always"):
    """Which updates of an iteration may reuse the memory of what they were given, as the recipe tells the trainer."""
    asked = []

    def update(params, optimizer, *_, donate, **__):
        asked.append((params, donate))
        return Update({"new": len(asked)}, optimizer, 0.0, 0.0, 1.0, {}, {})

    grpo = GrpoConfig(kl_coefficient=0.0, updates_per_iteration=updates)
    method = dataclasses.replace(PLAIN, grpo=grpo, acceptance=AcceptanceConfig(rule=rule))
    trainer = types.SimpleNamespace(update=update)
    run = types.SimpleNamespace(
        config=method,
        trainer=trainer,
        reference_params=None,
        lora=None,
        initial_params=initial_params,
        bounds=None,
        stop=types.SimpleNamespace(look=lambda _: None),
    )
    played, values = groups_of([1.0, -1.0], [1.0, -1.0])
    shares = rl.sequences(played, values, method, 0)
    rl.update(run, shares, state.best, state.optimizer, reads_reference=False, donate=rl.donates(run, state))
    assert asked[0][0] is state.best
    return [donate for _, donate in asked]


def of_one_seed(*ends):
    """A group of games with their advantages, by kind of end, under each baseline."""
    kinds = {
        "win": lambda: episode("win", 10),
        "loss": lambda: episode("loss", 10),
        "overrun": lambda: overrun(3),
        "stopped": lambda: episode("truncated", 3, by=1),  # the other seat's context was full
        "limit": lambda: episode("truncated", 3),
        "failed": lambda: dataclasses.replace(overrun(3), failure="the world raised"),
    }
    played = [kinds[end]() for end in ends]
    values = [reward(e, RewardConfig()) for e in played]
    found = {}
    for baseline in ("group", "leave_one_out", "role"):
        config = GrpoConfig(baseline=baseline, normalize_std=baseline != "leave_one_out")
        found[baseline] = episode_advantages.of_episodes(played, values, np.arange(len(ends))[None], config)
    return played, values, found


def test_a_one_player_game_that_a_limit_of_actions_stops_is_a_loss_and_no_way_out():
    """Nobody else can have used up the limit: who cannot solve a game gains nothing by delay."""
    config = RewardConfig()
    stalled, lost, won = (
        dataclasses.replace(episode(outcome, 5), game="TowerOfHanoi-v0", seat=0, outcomes=(outcome,))
        for outcome in ("truncated", "loss", "win")
    )
    assert reward(stalled, config) == reward(lost, config) < 0
    assert stalled.counted
    assert stalled.ran_out
    assert rl.win_rates([won, *[stalled] * 15]) == {"TowerOfHanoi-v0": 1 / 16}
    assert not dataclasses.replace(stalled, failure="the judge is gone").ran_out
    assert not episode("truncated", 5).ran_out  # for two: the other seat may have delayed it


def test_an_overrun_is_never_worth_more_than_a_loss():
    """Two wins in ten steps are worth 0.1 each: beside them a reward of 0 would teach to ramble."""
    _, _, found = of_one_seed("win", "win", *["loss"] * 4, "overrun", "overrun")
    for relative in found.values():
        assert (relative[:2] > 0).all()
        assert (relative[6:] < 0).all()
        assert relative[6:].max() <= relative[2:6].min()


@pytest.mark.parametrize("end", ["stopped", "limit", "failed"])
def test_a_game_stopped_from_outside_has_no_advantage_and_changes_no_other(end):
    played, values, found = of_one_seed("win", end, "win", *["loss"] * 4, end)
    _, _, without = of_one_seed("win", "win", *["loss"] * 4)
    for baseline, relative in found.items():
        np.testing.assert_array_equal(relative[[1, 7]], 0)
        np.testing.assert_array_equal(relative[[0, 2, 3, 4, 5, 6]], without[baseline])
    (share,) = rl.sequences(played, values, PLAIN, 0)
    assert len(share) == 6
    for seed in range(8):  # half-negative drops two of the four losses, never of six
        (share,) = rl.sequences(played, values, CONFIG, seed)
        assert sorted(s.advantage > 0 for s in share) == [False] * 2 + [True] * 2


def test_both_seats_are_told_apart_where_one_overran():
    """With `train_both_seats` the seat that filled its context has lost, and the other one has no result."""
    own, other = overrun(seat=1), episode("truncated", seat=0, by=1)
    assert (own.overran, own.counted, other.overran, other.counted) == (True, True, False, False)
    values = [reward(e, RewardConfig()) for e in (own, other, episode("win", seat=1), episode("win", seat=0))]
    found = episode_advantages.of_episodes(
        [own, other, episode("win", seat=1), episode("win", seat=0)],
        values,
        np.asarray([[0, 2], [1, 3]]),
        GrpoConfig(normalize_std=False),
    )
    np.testing.assert_allclose(found, [-1, 0, 1, 0])


def test_only_wins_are_imitated():
    ends = [
        overrun(),
        episode("truncated", by=1),
        episode("truncated"),
        episode("loss"),
        episode("win", generated_tokens=7),
    ]
    (share,) = won_sequences(ends, CONFIG, 0)
    assert [int(sequence.mask.sum()) for sequence in share] == [7]


def test_the_initial_weights_outlive_iterations_without_an_update():
    """An iteration in which all rewards were equal leaves the initial weights in the policy's place."""
    initial_params, other = {"w": 1}, {"w": 2}
    assert donated(initial_params, State(best=initial_params, iteration=3)) == [False]
    assert donated(initial_params, State(best=initial_params, iteration=3), updates=2) == [False, True]
    assert donated(initial_params, State(best=other, iteration=3)) == [True]
    assert donated(initial_params, State(best=other, iteration=3, pool={"iteration 1": other})) == [False]
    assert donated(initial_params, State(best=other, iteration=3), rule="previous") == [False]


def test_an_opponent_that_always_fails_stops_the_run():
    broken = [dataclasses.replace(episode(), failure="opponent far raised PlayerError: 401") for _ in range(2)]
    with pytest.raises(TrainingError, match="TicTacToe-v0: every game failed, the first with: opponent far"):
        rl.refuse_all_failed([*broken, episode(game="Nim-v0")])
    rl.refuse_all_failed([*broken, episode()])


def test_win_rates_count_wins_only():
    played = [episode(o, seat=n % 2) for n, o in enumerate(["win", "win", "draw", "loss", "invalid", "truncated"])]
    played += [episode("win", game="Nim-v0")]
    assert rl.win_rates(played) == {"TicTacToe-v0": pytest.approx(2 / 5), "Nim-v0": 1.0}
    played += [overrun(), overrun(seat=1), episode("truncated", by=1), episode("truncated", seat=1, by=0)]
    assert rl.win_rates(played) == {"TicTacToe-v0": pytest.approx(2 / 7), "Nim-v0": 1.0}


def test_a_game_of_which_nothing_counts_keeps_its_win_rate():
    stopped = [episode("truncated", by=1), episode("truncated", game="Nim-v0"), episode("win", game="Nim-v0")]
    assert rl.win_rates(stopped) == {"TicTacToe-v0": 0.0, "Nim-v0": 1.0}
    assert rl.win_rates(stopped, {"TicTacToe-v0": 0.4, "Nim-v0": 0.3}) == {"TicTacToe-v0": 0.4, "Nim-v0": 1.0}


def test_episode_metrics_are_means_per_game_or_reply():
    played = [
        episode("win", 2, generated_tokens=6),
        episode("loss", 4, seat=1, generated_tokens=7, illegal=1),
        episode("invalid", 2, generated_tokens=3, malformed=True),
        episode("win", 1, game="Nim-v0", generated_tokens=5),
        overrun(3, game="Nim-v0", generated_tokens=7),
        # Stopped from outside: in no mean.
        episode("truncated", 4, by=1, generated_tokens=90, illegal=3),
        episode("truncated", 9, game="LiarsDice-v0"),
    ]
    found = rl.episode_metrics(played, [0.5, -1.25, -2.0, 1.0, -1.0, 0.0, 0.0])
    assert found == pytest.approx(
        {
            "games/TicTacToe-v0/reward": -2.75 / 3,
            "games/TicTacToe-v0/format_rate": 1 - 2 / 8,
            "games/TicTacToe-v0/response_length": 16 / 8,
            "games/TicTacToe-v0/steps": 8 / 3,
            "games/TicTacToe-v0/overruns": 0.0,
            "games/TicTacToe-v0/dead_groups": 0.5,  # seat 1 of the group played once, seat 0 won and lost
            "games/Nim-v0/reward": 0.0,
            "games/Nim-v0/format_rate": 1.0,
            "games/Nim-v0/response_length": 12 / 4,
            "games/Nim-v0/steps": 2.0,
            "games/Nim-v0/overruns": 0.5,
            "games/Nim-v0/dead_groups": 0.0,
        }
    )

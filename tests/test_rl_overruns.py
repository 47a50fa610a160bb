"""Games that a limit or a full context ends: what they are worth, and what they do to the others of their group."""

import dataclasses

import numpy as np
import pytest
from rl_episodes import CONFIG, PLAIN, episode, overrun

from dfc.config import GrpoConfig, RewardConfig
from dfc.methods.divide_fuse_conquer import won_sequences
from dfc.scoring.episode_rewards import reward
from dfc.training import episode_advantages, rl


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

"""One iteration of the conquer recipe: rewards, seeds and jobs, which updates are kept, and its metrics."""

import collections
import dataclasses
import itertools
import types

import pytest
from rl_episodes import CONFIG, GAMES, PLAIN, episode, groups_of, overrun

from dfc.config import AcceptanceConfig, GrpoConfig, MixedPriorityConfig, RewardConfig
from dfc.errors import TrainingError
from dfc.packing import Halves
from dfc.scoring.episode_rewards import reward
from dfc.training import game_plan, rl
from dfc.training.games_run import State
from dfc.training.trainer import Update

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


def test_each_part_of_the_reward_can_be_changed():
    forgiven = episode("invalid", 3, illegal=2)
    assert reward(forgiven, RewardConfig(format=False)) == pytest.approx(-1.25)
    assert reward(forgiven, RewardConfig(invalid=-3.0)) == pytest.approx(-3.25)
    assert reward(forgiven, RewardConfig(illegal_try=0.0)) == pytest.approx(-2.0)
    assert reward(episode("win", 4), RewardConfig(hasty_action_penalty=False)) == 1.0


# ---- seeds and jobs ---------------------------------------------------------------------------------------------


def test_seeds_sum_to_the_budget_and_favour_what_can_be_learned():
    rates = {"TicTacToe-v0": 0.5, "GuessTheNumber-v0": 1.0, "Nim-v0": 0.0}
    seeds = game_plan.allocate(list(GAMES), rates, CONFIG)
    assert list(seeds) == list(GAMES)
    # One each, and 15 shared as 0.3 : 0.02 : 0.2, which is 8.65 : 0.58 : 5.77.
    assert seeds == {"TicTacToe-v0": 1 + 9, "GuessTheNumber-v0": 1 + 0, "Nim-v0": 1 + 6}
    assert all(type(count) is int for count in seeds.values())


@pytest.mark.parametrize("rates", list(itertools.product([0.0, 0.13, 1.0], repeat=3)), ids=str)
def test_the_budget_is_spent_exactly_and_no_game_is_forgotten(rates):
    for per_game in (1, 2, 7):
        config = dataclasses.replace(CONFIG, groups_per_game=per_game)
        seeds = game_plan.allocate(list(GAMES), dict(zip(GAMES, rates, strict=True)), config)
        assert sum(seeds.values()) == 3 * per_game
        assert min(seeds.values()) >= 1


def test_without_priorities_every_game_gets_the_same():
    config = dataclasses.replace(CONFIG, mixed_priority=MixedPriorityConfig(enabled=False))
    assert game_plan.allocate(list(GAMES), {}, config) == dict.fromkeys(GAMES, 6)


SEEDS = {"TicTacToe-v0": 3, "GuessTheNumber-v0": 2, "Nim-v0": 4}


def specs(config=CONFIG, seed=0, stage="divide g1", iteration=0):
    return game_plan.rollout_specs(SEEDS, dataclasses.replace(config, seed=seed), stage, iteration)


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
        assert {spec.random_action_rate for spec in members} == {0.25}
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
    trainer = types.SimpleNamespace(update=update, halves=Halves())
    run = types.SimpleNamespace(
        config=method,
        trainer=trainer,
        reference_params=None,
        reads_reference=False,
        policies=(),
        lora=None,
        initial_params=initial_params,
        bounds=None,
        stop=types.SimpleNamespace(check_stop=lambda _: None),
    )
    played, values = groups_of([1.0, -1.0], [1.0, -1.0])
    shares = rl.sequences(played, values, method, 0)
    rl.update(run, shares, state.best, state.optimizer, donate=rl.donates(run, state))
    assert asked[0][0] is state.best
    return [donate for _, donate in asked]


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

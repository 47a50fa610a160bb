"""Instances in epochs: every one once, in a new order each time, from the number of the iteration alone."""

import collections
import dataclasses
import itertools

import pytest
from rl_episodes import episode

from dfc import validation
from dfc.config import AcceptanceConfig, DivideFuseConquer, Grpo
from dfc.games import registry
from dfc.games.instances import numbers_of_instances
from dfc.training import game_plan, rl
from dfc.training.game_plan import epoch_specs, instances_of

TRAINING = (
    *("clem_taboo", "clem_wordle", "clem_wordle_withclue", "clem_wordle_withcritic", "clem_imagegame"),
    *("clem_referencegame", "clem_privateshared"),
)
PAPER = Grpo(
    games={game: {} for game in TRAINING},
    deals="epochs",
    groups_per_iteration=16,
    group_size=8,
    iterations=215,
    seed=3,
    learner_roles={"clem_taboo": "guesser"},
)


def played(config, iteration, stage="all games"):
    """The instances of an iteration by group, as (game, task)."""
    seeds, specs = epoch_specs(tuple(config.games), config, stage, iteration)
    groups = collections.defaultdict(set)
    for spec in specs:
        made = registry.make(spec.game, **spec.options)
        task = spec.game_seed % made.splits[made.split] if made.splits else spec.game_seed
        groups[spec.group].add((spec.game, task, spec.seat))
    assert all(len(members) == 1 for members in groups.values())
    found = [members.pop()[:2] for members in groups.values()]
    assert seeds == {game: sum(one[0] == game for one in found) for game in config.games}
    assert len(specs) == len(found) * config.group_size
    return found


def test_the_papers_run_goes_through_686_instances_five_times_in_215_iterations():
    numbers = numbers_of_instances(PAPER.games, 0)
    assert sorted(numbers.values()) == sorted([90, 60, 60, 60, 256, 80, 80])
    every = {(game, task) for game, number in numbers.items() for task in range(number)}
    orders = []
    for epoch in range(5):
        chosen = [instances_of(numbers, 16, 3, "all games", epoch * 43 + n) for n in range(43)]
        assert {number for number, _ in chosen} == {epoch}
        assert [len(some) for _, some in chosen] == [16] * 42 + [14]
        orders.append([one for _, some in chosen for one in some])
        assert collections.Counter(orders[-1]) == dict.fromkeys(every, 1)
    assert len(set(map(tuple, orders))) == 5
    assert validation.notices(PAPER) == ["215 iterations are 5 epochs of 686 instances"]
    (said,) = validation.notices(dataclasses.replace(PAPER, iterations=200))
    assert said.endswith(
        "are 4 epochs of 686 instances and 28 of the 43 iterations of another one; iterations=215 would end it"
    )


@pytest.mark.parametrize("size", [1, 4, 7, 20])
@pytest.mark.parametrize("tasks", [3, 0])
def test_every_instance_comes_once_an_epoch_whatever_the_size(size, tasks):
    games = {"clem_referencegame": {"split": "test"}, "clem_privateshared": {}, "Nim-v0": {}}
    if not tasks:
        del games["Nim-v0"]
    config = dataclasses.replace(PAPER, games=games, groups_per_iteration=size, tasks=tasks, group_size=2)
    every = {
        (game, task) for game in games for task in range(tasks or registry.make(game, **games[game]).number_of_tasks)
    }
    number = -(-len(every) // size)
    for epoch in range(2):
        counts = collections.Counter()
        for iteration in range(epoch * number, (epoch + 1) * number):
            counts.update(played(config, iteration))
        assert counts == dict.fromkeys(every, 1)


def test_an_iteration_depends_on_seed_stage_and_number_alone():
    plan = [epoch_specs(TRAINING, PAPER, "all games", n) for n in range(4)]
    assert [epoch_specs(TRAINING, PAPER, "all games", n) for n in (3, 2, 1, 0)] == plan[::-1]
    assert epoch_specs(TRAINING, dataclasses.replace(PAPER, seed=4), "all games", 0) != plan[0]
    assert epoch_specs(TRAINING, PAPER, "other", 0) != plan[0]
    seeds = [spec.seed for _, specs in plan for spec in specs]
    assert len(set(seeds)) == len(seeds)


def test_seats_are_those_of_roles_or_change_from_epoch_to_epoch():
    config = dataclasses.replace(PAPER, games={"clem_taboo": {}, "clem_imagegame": {}}, tasks=4, group_size=2)
    seats = collections.defaultdict(list)
    for epoch in range(2):
        _, specs = epoch_specs(tuple(config.games), config, "s", epoch)
        assert len(specs) == 2 * 4 * 2
        for spec in specs[::2]:
            made = registry.make(spec.game)
            seats[spec.game, spec.game_seed % made.splits["train"]].append(spec.seat)
    for (game, task), found in seats.items():
        assert found == ([1, 1] if game == "clem_taboo" else [task % 2, (task + 1) % 2])


def test_trials_of_a_task_follow_each_other():
    config = dataclasses.replace(PAPER, games={"bandit": {}}, tasks=2, group_size=2, groups_per_iteration=2)
    size = registry.make("bandit").splits["train"]
    deals = [sorted({spec.game_seed for spec in epoch_specs(("bandit",), config, "s", n)[1]}) for n in range(3)]
    assert deals == [[trial * size, trial * size + 1] for trial in range(3)]


def test_without_a_size_an_iteration_has_groups_per_game_of_every_game_on_average():
    config = dataclasses.replace(PAPER, groups_per_iteration=0, groups_per_game=2)
    assert len(epoch_specs(TRAINING, config, "s", 0)[1]) == 2 * 7 * 8
    judged = dataclasses.replace(config, acceptance=AcceptanceConfig(rule="previous"))
    assert game_plan.games_played(judged, 10 * 7) == (10 * 2 * 7 * 8, 10 * 7 * 20)
    assert game_plan.games_played(PAPER, 215 * 7) == (215 * 16 * 8, 0)


def test_priorities_that_nothing_is_shared_out_by_are_noticed():
    plain = Grpo(games={"Nim-v0": {}, "TicTacToe-v0": {}})
    assert validation.notices(plain) == []
    off = dataclasses.replace(plain.mixed_priority, a=0.5)
    (said,) = validation.notices(dataclasses.replace(plain, mixed_priority=off))
    assert said == "mixed_priority.a, .b and .floor change nothing: mixed_priority.enabled is false"
    on = dataclasses.replace(off, enabled=True)
    assert validation.notices(dataclasses.replace(plain, mixed_priority=on)) == []


def test_games_that_would_judge_updates_are_noticed_where_none_is_judged():
    plain = Grpo(games={"Nim-v0": {}})
    more = dataclasses.replace(plain.acceptance, games=8)
    (said,) = validation.notices(dataclasses.replace(plain, acceptance=more))
    assert said == "acceptance.games changes nothing: acceptance.rule is 'always', which measures nothing"
    judged = dataclasses.replace(more, rule="previous")
    assert validation.notices(dataclasses.replace(plain, acceptance=judged)) == []


def test_random_deals_stay_what_they_were():
    config = dataclasses.replace(PAPER, deals="random", groups_per_iteration=0)
    rates = dict.fromkeys(TRAINING, 0.5)
    seeds = game_plan.allocate(TRAINING, rates, config)
    assert game_plan.planned(TRAINING, rates, config, "s", 2) == (seeds, game_plan.rollout_specs(seeds, config, "s", 2))
    assert game_plan.planned(TRAINING, rates, PAPER, "s", 2) == epoch_specs(TRAINING, PAPER, "s", 2)


def test_games_that_do_not_occur_are_in_no_metric_and_keep_their_win_rate():
    found = [episode("win"), episode("loss", group=1)]
    known = {"TicTacToe-v0": 0.1, "Nim-v0": 0.7}
    assert {**known, **rl.win_rates(found, known)} == {"TicTacToe-v0": 0.5, "Nim-v0": 0.7}
    assert {name.split("/")[1] for name in rl.episode_metrics(found, [1.0, -1.0])} == {"TicTacToe-v0"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"deals": "random"}, "groups_per_iteration=16: is of deals='epochs'; leave it at 0"),
        ({"games": {**PAPER.games, "Nim-v0": {}}}, "deals='epochs': Nim-v0 has no splits, so say with tasks how many"),
        ({"randomize_seeds": False}, "randomize_seeds=false: must be true with deals='epochs'"),
        ({"groups_per_iteration": 687}, "groups_per_iteration=687: must be at most 686, the instances of an"),
        ({"groups_per_iteration": 3}, "grpo.updates_per_iteration=4: must be at most 3, the groups of an iteration"),
    ],
)
def test_settings_that_contradict_epochs_are_refused(changes, sentence):
    assert validation.problems(PAPER) == []
    problems = validation.problems(dataclasses.replace(PAPER, **changes))
    assert [problem for problem in problems if problem.startswith(sentence)] == problems


def test_a_stage_of_several_goes_through_its_own_games():
    config = DivideFuseConquer(games=PAPER.games, deals="epochs", groups_per_iteration=16, tasks=8)
    plans = [epoch_specs(("clem_wordle",), config, "divide g1", n)[1] for n in range(2)]
    groups = [{spec.game_seed for spec in plan} for plan in plans]
    assert groups[0] == set(range(8))
    assert groups[1] == set(range(60, 68))  # the second trial of each
    assert all(spec.game == "clem_wordle" for spec in itertools.chain(*plans))

"""Groups and the order of stages: Algorithm 1's, and those of the methods it is compared with."""

import dataclasses
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from observed import bases, record

from dfc.config import AcceptanceConfig, DivideFuseConquer, EvaluationConfig, FusionConfig, GroupingConfig
from dfc.errors import TrainingError
from dfc.methods.divide_fuse_conquer import (
    Group,
    Stage,
    _close_stage,
    _fused,
    games_between,
    group_games,
    iterations,
    plan,
    turns,
)
from dfc.rollout.workers import RolloutWorkers
from dfc.training import game_plan
from dfc.training.games_run import State

PAPER = DivideFuseConquer()
GROUPS = [Group(f"g{k}", (f"game{k}",), "fixed", winnable=True) for k in (1, 2, 3)]
GAMES = ("game1", "game2", "game3")


def measured(**games):
    return {game: {"start": start, "wins": wins, "trials": 100} for game, (start, wins) in games.items()}


def method(name, **more):
    return dataclasses.replace(PAPER, method=name, **more)


def test_groups_are_start_kind_times_winnable_in_the_papers_order():
    groups = group_games(
        measured(a=("random", 3), b=("fixed", 9), c=("fixed", 0), d=("random", 0), e=("fixed", 1)), GroupingConfig()
    )
    assert [(g.name, g.games, g.start, g.winnable) for g in groups] == [
        ("g1", ("c",), "fixed", False),
        ("g2", ("b", "e"), "fixed", True),
        ("g3", ("d",), "random", False),
        ("g4", ("a",), "random", True),
    ]


def test_the_order_of_groups_is_a_setting():
    games = measured(a=("random", 3), b=("fixed", 9), c=("fixed", 0))
    order = ("random_winnable", "fixed_winnable", "random_unwinnable", "fixed_unwinnable")
    groups = group_games(games, GroupingConfig(order=order))
    assert [(g.name, g.games) for g in groups] == [("g1", ("a",)), ("g2", ("b",)), ("g3", ("c",))]


@pytest.mark.parametrize(("threshold", "winnable"), [(0.0, True), (0.02, True), (0.03, False), (0.5, False)])
def test_a_game_is_winnable_above_the_threshold_not_at_it(threshold, winnable):
    settings = GroupingConfig(winnable_above=threshold)
    assert [g.winnable for g in group_games(measured(a=("fixed", 3)), settings)] == [winnable]


def test_empty_groups_are_left_out_and_names_have_no_gaps():
    groups = group_games(measured(a=("random", 0), b=("fixed", 5)), GroupingConfig())
    assert [(g.name, g.games) for g in groups] == [("g1", ("b",)), ("g2", ("a",))]


def test_groups_given_by_hand_are_taken_as_they_are():
    settings = GroupingConfig(groups=(("b",), ("a", "c")))
    groups = group_games(measured(a=("random", 0), b=("fixed", 5), c=("fixed", 0)), settings)
    assert [(g.name, g.games, g.why()) for g in groups] == [("g1", ("b",), "by hand"), ("g2", ("a", "c"), "by hand")]


def test_stages_are_every_divide_then_fuse_and_conquer_group_by_group():
    stages = plan(GROUPS, GAMES, PAPER)
    assert [s.name for s in stages] == ["divide g1", "divide g2", "divide g3", "conquer g1+g2", "conquer g1+g2+g3"]
    assert [s.games for s in stages][-2:] == [("game1", "game2"), ("game1", "game2", "game3")]
    assert [s.fuses for s in stages] == [(), (), (), ("g2",), ("g3",)]
    assert [s.group for s in stages] == ["g1", "g2", "g3", "", ""]


def test_fused_at_once_all_groups_are_conquered_in_one_stage():
    stages = plan(GROUPS, GAMES, method("divide_fuse_conquer", fusion=FusionConfig(at_once=True)))
    assert [s.name for s in stages] == ["divide g1", "divide g2", "divide g3", "conquer g1+g2+g3"]
    assert stages[-1].fuses == ("g1", "g2", "g3")


@pytest.mark.parametrize("at_once", [False, True])
def test_one_group_alone_is_divided_and_nothing_is_fused(at_once):
    settings = method("divide_fuse_conquer", fusion=FusionConfig(at_once=at_once))
    assert [s.name for s in plan(GROUPS[:1], GAMES, settings)] == ["divide g1"]


def test_the_baselines_have_stages_of_their_own():
    assert plan(GROUPS, GAMES, method("imitate_wins")) == [Stage("imitate wins", "imitate", GAMES)]
    single = plan(GROUPS, GAMES, method("naive_single"))
    assert [(s.name, s.kind, s.games) for s in single] == [(f"only {g}", "single", (g,)) for g in GAMES]


def test_only_divide_stages_have_the_iterations_of_divide():
    settings = method("divide_fuse_conquer", divide_iterations=3, conquer_iterations=5)
    assert [iterations(s, settings) for s in plan(GROUPS, GAMES, settings)] == [3, 3, 3, 5, 5]
    for name, count in (("naive_single", 3), ("imitate_wins", 1)):
        other = dataclasses.replace(settings, method=name)
        assert [iterations(s, other) for s in plan(GROUPS, GAMES, other)] == [5] * count


def test_the_games_of_a_run_are_counted_before_it_begins():
    settings = method(
        "divide_fuse_conquer",
        divide_iterations=3,
        conquer_iterations=5,
        groups_per_game=2,
        group_size=4,
        acceptance=AcceptanceConfig(games=6),
        evaluation=EvaluationConfig(stage_games=4),
        games={game: {} for game in GAMES},
    )
    stages = plan(GROUPS, GAMES, settings)
    iterations_of_games = 3 * 3 + 5 * (2 + 3)
    assert turns(stages, settings) == iterations_of_games
    assert game_plan.games_played(settings, iterations_of_games) == (iterations_of_games * 8, iterations_of_games * 6)
    always = dataclasses.replace(settings, acceptance=AcceptanceConfig(rule="always"))
    assert game_plan.games_played(always, iterations_of_games) == (iterations_of_games * 8, 0)
    # Three stages of groups and two after a fuse; each ends with matches in all games, a fuse has its own before it.
    assert games_between(stages, settings) == (3 + 2 + 2) * 3 * 4
    single = dataclasses.replace(settings, method="naive_single")
    assert games_between(plan(GROUPS, GAMES, single), single) == 3 * 4


def closed(stages, groups):
    """Returns the state after every stage, the best policy of stage n being n."""
    state = State(best=None)
    for number, _ in enumerate(stages, start=1):
        state.best = {"w": np.float32(number)}
        _close_stage(stages, state, groups)
        yield state


def test_after_the_last_divide_the_first_groups_policy_is_the_best_one():
    groups = GROUPS[:2]
    states = closed(plan(groups, GAMES, PAPER), groups)
    state = next(states)
    assert (state.stage, state.iteration, list(state.policies)) == (1, 0, ["g1"])
    state = next(states)
    assert jax.tree.leaves(state.best) == [1.0]  # Algorithm 1, line 7
    assert list(state.policies) == ["g2"]
    assert jax.tree.leaves(state.policies["g2"]) == [2.0]


def test_fused_at_once_every_groups_policy_waits_for_the_fuse():
    groups = GROUPS[:2]
    *_, state = closed(
        plan(groups, GAMES, method("divide_fuse_conquer", fusion=FusionConfig(at_once=True)))[:2], groups
    )
    assert {name: jax.tree.leaves(p) for name, p in state.policies.items()} == {"g1": [1.0], "g2": [2.0]}


def test_a_single_games_policy_is_not_kept_for_a_fuse():
    stages = plan(GROUPS, GAMES, method("naive_single"))
    *_, state = closed(stages, GROUPS)
    assert (state.stage, state.policies) == (3, {})


def fused(fusion, *policies, lora=None):
    """Returns the policies of groups 1, 2, ... as the recipe fuses them, the first one being the policy so far."""
    settings = method("divide_fuse_conquer", fusion=fusion)
    groups = [Group(f"g{n}", (f"game{n}",)) for n in range(1, len(policies) + 1)]
    stage = plan(groups, GAMES, settings)[-1]
    state = State(best=policies[0], policies={f"g{n}": p for n, p in enumerate(policies, start=1)})
    start = jax.tree.map(jnp.zeros_like, policies[0])
    run = types.SimpleNamespace(config=settings, lora=lora, initial_params=start, missed=None)
    return _fused(run, fusion, state, stage), run.missed


def weights(value):
    return {"w": jnp.asarray([value, 2 * value, -value], jnp.float32)}


@pytest.mark.parametrize(
    ("fusion", "expected"),
    [
        (FusionConfig(), 2.5),
        (FusionConfig(weight=0.25), 1.75),
        (FusionConfig(method="task_arithmetic", scale=2.0), 5.0),
        (FusionConfig(method="task_arithmetic", weight=0.25, scale=2.0), 3.5),
        (FusionConfig(method="ties", density=1.0), 2.5),
    ],
    ids=str,
)
def test_a_group_is_fused_into_the_policy_so_far(fusion, expected):
    found, _ = fused(fusion, weights(1.0), weights(4.0))
    np.testing.assert_allclose(found["w"], weights(expected)["w"], rtol=1e-6)


def test_fused_at_once_all_policies_weigh_alike():
    found, _ = fused(FusionConfig(at_once=True), weights(1.0), weights(4.0), weights(7.0))
    np.testing.assert_allclose(found["w"], weights(4.0)["w"], rtol=1e-6)


@pytest.mark.parametrize(("at_once", "shares"), [(True, (1 / 3, 1 / 3, 1 / 3)), (False, (0.75, 0.25))])
def test_adapters_are_fused_with_the_same_weights(at_once, shares):
    """With one first factor for all, the average keeps the rank, and nothing is missed."""
    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.normal(size=(6, 2)), jnp.float32)
    bs = [jnp.asarray(rng.normal(size=(2, 5)), jnp.float32) for _ in shares]
    adapters = [{"layers": {0: {"attention": {"query": {"a": a, "b": b}}}}} for b in bs]
    found, missed = fused(FusionConfig(weight=0.25, at_once=at_once), *adapters, lora=object())
    pair = found["layers"][0]["attention"]["query"]
    expected = a @ sum(share * b for share, b in zip(shares, bs, strict=True))
    np.testing.assert_allclose(pair["a"] @ pair["b"], expected, atol=1e-4)
    assert missed < 1e-3


def test_a_game_that_cannot_be_played_stops_the_run_before_it_is_in_no_group():
    play = RolloutWorkers.play

    def failing(*given, **more):
        return [dataclasses.replace(episode, failure="down") for episode in play(*given, **more)]

    config = dataclasses.replace(bases()["divide_fuse_conquer"], grouping=GroupingConfig(trials=2))
    with (
        mock.patch.object(RolloutWorkers, "play", failing),
        pytest.raises(TrainingError, match=r"every game failed.*down"),
    ):
        record(config)

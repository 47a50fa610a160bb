"""Grouping and the order of stages are those of Algorithm 1."""

import jax
import numpy as np
import pytest

from dfc.recipes.divide_fuse_conquer import Group, State, _close_stage, group_games, plan


def measured(**games):
    return {game: {"start": start, "wins": wins, "trials": 100} for game, (start, wins) in games.items()}


def test_groups_are_start_kind_times_winnable_in_the_papers_order():
    groups = group_games(
        measured(a=("random", 3), b=("fixed", 9), c=("fixed", 0), d=("random", 0), e=("fixed", 1)), 0.0
    )
    assert [(g.name, g.games, g.start, g.winnable) for g in groups] == [
        ("g1", ("c",), "fixed", False),
        ("g2", ("b", "e"), "fixed", True),
        ("g3", ("d",), "random", False),
        ("g4", ("a",), "random", True),
    ]


@pytest.mark.parametrize(("threshold", "winnable"), [(0.0, True), (0.02, True), (0.03, False), (0.5, False)])
def test_a_game_is_winnable_above_the_threshold_not_at_it(threshold, winnable):
    assert [g.winnable for g in group_games(measured(a=("fixed", 3)), threshold)] == [winnable]


def test_empty_groups_are_left_out_and_names_have_no_gaps():
    groups = group_games(measured(a=("random", 0), b=("fixed", 5)), 0.0)
    assert [(g.name, g.games) for g in groups] == [("g1", ("b",)), ("g2", ("a",))]


def test_stages_are_every_divide_then_fuse_and_conquer_group_by_group():
    groups = [Group(f"g{k}", (f"game{k}",), "fixed", winnable=True) for k in (1, 2, 3)]
    stages = plan(groups)
    assert [s.name for s in stages] == ["divide g1", "divide g2", "divide g3", "conquer g1+g2", "conquer g1+g2+g3"]
    assert [s.games for s in stages][-2:] == [("game1", "game2"), ("game1", "game2", "game3")]
    assert [s.group.name for s in stages if s.fuses] == ["g2", "g3"]


def test_one_group_alone_is_divided_and_nothing_is_fused():
    assert [s.name for s in plan([Group("g1", ("a",), "fixed", winnable=True)])] == ["divide g1"]


def test_after_the_last_divide_the_first_groups_policy_is_the_best_one():
    groups = [Group(f"g{k}", (f"game{k}",), "fixed", winnable=True) for k in (1, 2)]
    stages = plan(groups)
    state = State(best={"w": np.float32(1)})
    _close_stage(stages, state, groups)
    assert (state.stage, state.iteration, list(state.policies)) == (1, 0, ["g1"])
    state.best = {"w": np.float32(2)}
    _close_stage(stages, state, groups)
    assert jax.tree.leaves(state.best) == [1.0]  # Algorithm 1, line 7
    assert list(state.policies) == ["g2"]
    assert jax.tree.leaves(state.policies["g2"]) == [2.0]

import itertools
import json
import math
import random

import pytest

from dfc.report.warnings import Thresholds, find

GROUPS = {"groups": [{"name": "g1", "games": ["A", "B"]}, {"name": "g2", "games": ["C"]}]}


def rows(stage, count, start=0, **metrics):
    """`count` iterations of a stage; a metric is a number or one per iteration, `A__x` stands for games/A/x."""
    made = []
    for index in range(count):
        values = {
            (f"games/{name.replace('__', '/')}" if "__" in name else name): (
                value[index] if isinstance(value, list) else value
            )
            for name, value in metrics.items()
        }
        made.append({"step": start + index + 1, "stage": stage, "iteration": index + 1, "metrics": values})
    return made


def spans(warnings):
    return [(w.kind, w.subject, w.stage, w.first, w.iteration) for w in warnings]


# ---- format rate ----------------------------------------------------------------------------------------------------


def test_a_format_rate_below_nine_in_ten_is_raised_for_that_game_only():
    found = find(rows("divide g1", 4, A__format_rate=[0.95, 0.899, 0.9, 0.97], B__format_rate=0.9))
    assert spans(found) == [("format_rate", "A", "divide g1", 2, 2)]
    assert found[0].step == 2
    assert "89.9%" in found[0].sentence
    assert "90%" in found[0].sentence
    assert found[0].metrics == ("games/A/format_rate",)


def test_neighbouring_iterations_are_one_warning_and_later_ones_another():
    low = [1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1]  # 1: below; three good iterations between two bad ones still join them
    rates = [0.5 + 0.01 * i if bad else 1.0 for i, bad in enumerate(low)]
    found = find(rows("divide g1", 12, A__format_rate=rates) + rows("divide g2", 2, 12, A__format_rate=0.5))
    assert [(w.stage, w.first, w.iteration, w.first_step, w.step) for w in found] == [
        ("divide g1", 1, 5, 1, 5),
        ("divide g1", 11, 12, 11, 12),
        ("divide g2", 1, 2, 13, 14),
    ]
    assert "54.0%" in found[0].sentence  # the numbers are the last iteration's
    assert found[0].iterations == "divide g1, iterations 1-5"
    assert found[0].line.endswith("(divide g1, from iteration 1)")


def test_games_of_the_initial_policy_say_nothing_about_what_imitates_its_wins():
    lines = rows("imitate wins", 6, A__format_rate=0.5, A__dead_groups=1.0, A__seeds=8, A__win_rate=0.1, updates=1.0)
    assert {w.kind for w in find(lines)} == {"format_rate", "dead_groups"}
    assert find(lines, imitates=True) == []
    nothing = rows("imitate wins", 2, A__dead_groups=1.0, A__seeds=8, updates=0.0)
    assert [w.title for w in find(nothing, imitates=True)] == ["nothing to learn from any game"]


def test_a_title_says_the_same_while_the_warning_goes_on():
    lines = rows("divide g1", 9, A__format_rate=[1.0, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    assert {find(lines[:n])[-1].line for n in range(2, 10)} == {find(lines)[-1].line}


# ---- jumps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "values", "raised"),
    [
        ("kl", [0.2] * 6 + [0.41], [7]),
        ("kl", [0.2] * 6 + [0.39], []),  # not twice as much
        ("kl", [0.2, 0.2, 0.3, 0.2, 0.2, 0.2, 0.59], []),  # not twice the largest
        ("kl", [0.01] * 6 + [0.059], []),  # twice as much, but a small step
        ("kl", [0.2] * 4 + [5.0], []),  # too early to say
        ("kl", [0.2] * 6 + [0.01], []),  # closer to the initial policy is no jump
        ("kl", [0.01 * 1.6**i for i in range(12)], []),  # a steep but steady rise
        ("kl", [5.0] + [0.2] * 8 + [0.5], [10]),  # what lies behind the window is forgotten
        ("negative_logprob", [1.0] * 6 + [1.51], [7]),
        ("negative_logprob", [1.0] * 6 + [0.66], [7]),
        ("negative_logprob", [1.0] * 6 + [0.68], []),
        ("negative_logprob", [0.1] * 6 + [0.01], []),  # a small step
        ("negative_logprob", [1.0, 0.7, 1.0, 0.8, 1.2, 0.9, 1.3, 0.7], []),
        ("kl", [0.2] * 5 + [math.nan] + [0.41], [7]),
    ],
)
def test_a_jump_is_measured_against_all_iterations_of_the_window(metric, values, raised):
    found = find(rows("divide g1", len(values), **{metric: values}))
    assert [w.iteration for w in found] == raised
    assert all(w.metrics == (metric,) for w in found)


def test_every_stage_begins_anew():
    assert not find(rows("divide g1", 8, kl=0.01) + rows("conquer g1+g2", 8, 8, kl=1.0))


def test_both_directions_of_the_entropy_are_told_apart():
    up = find(rows("divide g1", 7, negative_logprob=[1.0] * 6 + [2.0]))
    down = find(rows("divide g1", 7, negative_logprob=[1.0] * 6 + [0.5]))
    assert "up to 2 nats" in up[0].sentence
    assert "at most 1" in up[0].sentence
    assert "down to 0.5 nats" in down[0].sentence
    assert up[0].title != down[0].title


def test_the_entropy_of_a_stage_that_wins_everything_may_fall():
    entropy = [1.0] * 6 + [0.5]
    assert not find(rows("divide g1", 7, negative_logprob=entropy, win_rate=1.0))
    assert find(rows("divide g1", 7, negative_logprob=entropy, win_rate=0.9))
    assert find(rows("divide g1", 7, negative_logprob=[1.0] * 6 + [2.0], win_rate=1.0))


# ---- dead groups ----------------------------------------------------------------------------------------------------


def dead(shares, seeds=16, win_rate=0.0):
    return rows("divide g1", len(shares), A__dead_groups=shares, A__seeds=seeds, A__win_rate=win_rate)


def test_dead_groups_are_counted_over_three_iterations():
    found = find(dead([0.5, 0.9, 0.9, 0.9, 0.5], win_rate=[0.1, 0.0, 0.0, 0.06, 0.1]))
    assert spans(found) == [("dead_groups", "A", "divide g1", 4, 4)]  # (0.9 + 0.9 + 0.9) / 3; before (0.5 + ...) / 3
    assert "43 of the last 48" in found[0].sentence
    assert "wins 2%" in found[0].sentence
    assert found[0].metrics == ("games/A/dead_groups",)


def test_a_few_dead_groups_and_those_of_a_solved_game_raise_nothing():
    assert not find(dead([1.0, 1.0, 1.0], seeds=2))
    assert find(dead([1.0, 1.0, 1.0], seeds=3))
    assert not find(dead([1.0, 1.0], win_rate=0.97))
    assert find(dead([1.0, 1.0], win_rate=0.94))


def test_an_iteration_without_an_update_is_raised_at_once():
    found = find(rows("divide g1", 3, updates=[4.0, 0.0, 4.0]))
    assert spans(found) == [("dead_groups", "", "divide g1", 2, 2)]


# ---- win-rate drops -------------------------------------------------------------------------------------------------


def conquered(before, after, *, count=12, games=16, accepted=1.0, **options):
    first = rows("divide g1", 6, A__win_rate=before, B__win_rate=before, accepted=1.0)
    second = rows("divide g2", 6, 6, C__win_rate=0.5, accepted=1.0)
    third = rows("conquer g1+g2", count, 12, A__win_rate=after, B__win_rate=after, C__win_rate=0.5, accepted=accepted)
    return find(first + second + third, options.get("groups", GROUPS), games=games)


def test_a_finished_group_that_lost_ground_is_raised_once_the_fuse_is_behind():
    found = conquered(0.9, 0.5)
    assert spans(found) == [("win_rate_drop", "g1", "conquer g1+g2", 11, 12)]
    assert "wins 50%; at the end of divide g1 it was 90%" in found[0].sentence
    # Newcombe's interval by hand: Wilson intervals at z = 3.5 of 80 and 144 of 160 games each.
    z, n = 3.5, 160

    def wilson(p):
        centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)

    (low_now, high_now), (low_was, high_was) = wilson(0.5), wilson(0.9)
    low = -0.4 - math.hypot(0.5 - low_now, high_was - 0.9)
    high = -0.4 + math.hypot(high_now - 0.5, 0.9 - low_was)
    assert f"between {100 * low:+.0f} and {100 * high:+.0f} points (99.95% interval)" in found[0].sentence
    assert found[0].metrics == ("games/A/win_rate", "games/B/win_rate")


def test_the_cost_of_a_fuse_that_is_won_back_raises_nothing():
    assert not conquered(0.9, [0.5] * 7 + [0.9] * 5)


def test_the_same_drop_over_few_games_may_be_chance():
    assert not conquered(0.9, 0.6, games=2)
    assert conquered(0.9, 0.6, games=40)


def test_dropped_updates_say_nothing_about_the_policy():
    after, accepted = [0.9, 0.1] * 6, [1.0, 0.0] * 6
    assert not conquered(0.9, after, accepted=accepted)
    assert conquered(0.9, after)


def test_a_group_is_compared_with_the_best_of_the_stages_that_trained_it():
    lines = rows("divide g1", 6, A__win_rate=0.5, B__win_rate=0.5)
    lines += rows("conquer g1+g2", 12, 6, A__win_rate=0.9, B__win_rate=0.9, C__win_rate=0.5)
    lines += rows("conquer g1+g2+g3", 12, 18, A__win_rate=0.6, B__win_rate=0.6, C__win_rate=0.5)
    found = find(lines, GROUPS, games=16)
    assert spans(found) == [("win_rate_drop", "g1", "conquer g1+g2+g3", 11, 12)]
    assert "at the end of conquer g1+g2 it was 90%" in found[0].sentence


def test_only_the_end_of_a_stage_counts():
    before = [1.0, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert not conquered(before, 0.5)


def test_without_groups_or_with_a_game_missing_nothing_is_compared():
    assert not conquered(0.9, 0.5, groups=None)
    assert not conquered(0.9, 0.5, groups={"groups": [{"name": "g1", "games": ["A", "D"]}]})


def test_seeds_stand_in_for_unknown_numbers_of_games():
    def lines(seeds):
        first = rows("divide g1", 6, A__win_rate=0.9, A__seeds=seeds)
        return first + rows("conquer g1+g2", 12, 6, A__win_rate=0.6, A__seeds=seeds)

    groups = {"groups": [{"name": "g1", "games": ["A"]}]}
    assert not find(lines(2.0), groups)
    assert find(lines(64.0), groups)


def test_chance_alone_hardly_ever_raises_a_drop():
    rng = random.Random(5)
    alarms = 0
    for _ in range(200):
        rates = {game: rng.uniform(0.1, 0.9) for game in "ABC"}

        def played(rate):
            return sum(rng.random() < rate for _ in range(16)) / 16

        def stage(name, count, start, games, rates=rates, played=played):
            metrics = {f"{game}__win_rate": [played(rates[game]) for _ in range(count)] for game in games}
            return rows(name, count, start, accepted=1.0, **metrics)

        lines = stage("divide g1", 12, 0, "AB") + stage("divide g2", 12, 12, "C")
        lines += stage("conquer g1+g2", 32, 24, "ABC")
        alarms += any(w.kind == "win_rate_drop" for w in find(lines, GROUPS, games=16))
    assert alarms <= 6  # of 200 runs


# ---- everything -----------------------------------------------------------------------------------------------------


def test_the_newest_warning_is_the_last():
    lines = rows("divide g1", 9, A__format_rate=[0.5] * 2 + [1.0] * 7, kl=[0.2] * 6 + [0.9, 0.2, 0.2])
    assert [w.kind for w in find(lines)] == ["format_rate", "kl"]


def test_metrics_that_are_absent_or_not_finite_raise_nothing():
    bad = rows("divide g1", 20, kl=math.nan, negative_logprob=math.inf, A__format_rate=math.nan, updates=math.nan)
    assert not find(bad, GROUPS)
    assert not find(rows("divide g1", 20), GROUPS)
    assert not find([], None)


def test_the_answer_does_not_depend_on_what_comes_later():
    rng = random.Random(3)
    values = [rng.choice([0.2, 0.2, 0.2, 1.5]) for _ in range(60)]
    lines = rows("divide g1", 60, kl=values, A__format_rate=[rng.uniform(0.85, 1.0) for _ in range(60)])
    raised = [{(w.kind, w.step) for w in find(lines[:n]) if w.step == n} for n in range(1, 61)]
    steps = {(w.kind, step) for w in find(lines) for step in (w.first_step, w.step)}
    assert steps <= set(itertools.chain.from_iterable(raised))


def test_every_threshold_can_change_an_answer():
    lines = json.loads(json.dumps(rows("divide g1", 2, A__format_rate=0.95)))
    assert not find(lines)
    assert find(lines, thresholds=Thresholds(format_rate=0.96))

"""Success rates, pass@k and paired differences against brute force and numpy; what the page shows of them."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from run_files import Page

from dfc.config import EvaluateTasks
from dfc.evaluation import tasks
from dfc.evaluation.task_statistics import Estimate, estimate, over_groups, pass_at_k, sign_flip_p
from dfc.evaluation.tasks import ALL_GROUPS, EvalSetting, Trial, summary
from dfc.report import task_page
from dfc.report.page import publish

WIN, LOSS = Trial("win", 3), Trial("loss", 6)


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_pass_at_k_is_the_share_of_all_choices_of_k_games_that_hold_a_success():
    for games in range(1, 8):
        for successes in range(games + 1):
            outcomes = [1] * successes + [0] * (games - successes)
            for k in range(1, games + 1):
                choices = list(itertools.combinations(outcomes, k))
                share = sum(any(choice) for choice in choices) / len(choices)
                assert pass_at_k(games, successes, k) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("games", "successes", "k"), [(200, 13, 10), (20, 1, 20), (100, 99, 2)])
def test_pass_at_k_equals_the_product_of_its_source(games, successes, k):
    # Chen et al., figure 3: 1 - prod(1 - k / i) over i from n - c + 1 to n.
    product = 1.0 - np.prod(1.0 - k / np.arange(games - successes + 1, games + 1))
    assert pass_at_k(games, successes, k) == pytest.approx(float(np.clip(product, 0, 1)), abs=1e-12)


@pytest.mark.parametrize(("games", "successes", "k"), [(4, 2, 0), (4, 2, 5), (4, 5, 1), (4, -1, 1)])
def test_pass_at_k_refuses_what_cannot_be(games, successes, k):
    with pytest.raises(ValueError, match="1 <= k <= games"):
        pass_at_k(games, successes, k)


def test_the_error_is_that_of_the_mean_of_tasks():
    rates = np.random.default_rng(1).uniform(size=23)
    found = estimate(rates)
    assert found.mean == pytest.approx(rates.mean())
    assert found.error == pytest.approx(rates.std(ddof=1) / np.sqrt(23))
    assert found.over == 23
    assert found.interval.low == pytest.approx(rates.mean() - 2.074 * found.error)  # t of 22 degrees
    assert math.isnan(estimate([0.5]).error)
    assert math.isnan(estimate([]).mean)


def test_the_error_counts_tasks_and_not_games():
    once = {task: [WIN if task % 2 else LOSS] for task in range(10)}
    often = {task: games * 50 for task, games in once.items()}  # the same task again and again tells nothing new
    alone, repeated = (summary(trials, limit=6, trajectories=1) for trials in (once, often))
    assert repeated.success == alone.success
    assert alone.success.error == pytest.approx(math.sqrt(0.25 * 10 / 9 / 10))


def test_groups_weigh_the_same_and_their_errors_add_in_squares():
    found = over_groups([Estimate(0.2, 0.03, 400), Estimate(0.8, 0.04, 4)])
    assert found[:3] == pytest.approx((0.5, 0.025, 2))
    assert math.isnan(over_groups([Estimate(0.2, 0.03, 4), Estimate(math.nan, math.nan, 0)]).mean)


@pytest.mark.parametrize("freedom", [1, 2, 3, 10, 19, 28])
def test_the_interval_of_few_tasks_is_students(freedom):
    low = Estimate(0.0, 1.0, freedom + 1, freedom).interval.low
    # The share of the density of t within the interval, by Simpson's rule.
    x, step = np.linspace(low, -low, 20_001, retstep=True)
    density = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    density *= (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    assert step / 3 * (density[0] + 4 * density[1:-1:2].sum() + 2 * density[2:-1:2].sum() + density[-1]) == (
        pytest.approx(0.95, abs=1e-4)
    )


def test_the_interval_of_many_tasks_is_normal_and_no_spread_is_none():
    assert Estimate(0.0, 1.0, 29, 28).interval.high == 2.048
    for freedom, t in ((29, 2.045), (30, 2.042), (39.9, 2.042), (40, 2.021), (119, 2.0), (400, 1.98), (math.inf, 1.96)):
        assert Estimate(0.0, 1.0, 30, freedom).interval.high == t
    assert estimate([0.5] * 3).interval == (0.5, 0.5, 0.5)
    assert estimate([0.0, 1.0, 0.0]).freedom == 2


def test_degrees_of_freedom_over_groups():
    alike = [Estimate(0.5, 0.1, 6, 5)] * 4
    assert over_groups(alike).freedom == pytest.approx(20)  # as of all tasks together
    known = [Estimate(0.5, 0.1, 6, 5), Estimate(0.9, 0.0, 6)]  # one group in which all tasks came out alike
    assert over_groups(known).freedom == pytest.approx(5)
    assert over_groups(known[1:]).freedom == math.inf
    # Of two unlike groups Welch's formula: between the smaller one's and the sum.
    unlike = [Estimate(0.5, 0.3, 4, 3), Estimate(0.5, 0.1, 11, 10)]
    assert over_groups(unlike).freedom == pytest.approx((0.09 + 0.01) ** 2 / (0.0081 / 3 + 0.0001 / 10))


def test_a_summary_counts_what_it_says():
    trials = {
        0: [Trial("win", 2, {"hits": 4.0}), Trial("loss", 6, {"hits": 2.0})],
        1: [Trial("invalid", 1), Trial("truncated", 3)],
        2: [Trial("win", 4), Trial("win", 5)],
        3: [Trial("draw", 6)],  # the other game of this task failed
    }
    found = summary(trials, limit=6, trajectories=2)
    assert (found.tasks, found.games) == (4, 7)
    assert found.success.mean == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    assert [e.mean for e in found.pass_at] == pytest.approx([1.5 / 4, 2 / 3])  # pass@2 of tasks with two games
    assert [e.over for e in found.pass_at] == [4, 3]
    assert found.turns.mean == pytest.approx(np.mean([(2 + 6) / 2, 6, 4.5, 6]))
    assert found.turns_of_successes.mean == pytest.approx((2 + 4.5) / 2)
    assert found.turns_of_successes.over == 2
    assert found.invalid.mean == pytest.approx(0.5 / 4)
    assert found.truncated.mean == pytest.approx(0.5 / 4)
    assert found.measures == {"hits": Estimate(3.0, pytest.approx(math.nan, nan_ok=True), 1)}


# ---- differences -----------------------------------------------------------------------------------------------------


def flipped(differences):
    """The p-value by going through all signs."""
    observed = abs(sum(differences))
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    hits = sum(abs(sum(s * d for s, d in zip(row, differences, strict=True))) >= observed for row in signs)
    return hits / len(signs)


@pytest.mark.parametrize("seed", range(8))
def test_the_sign_flip_test_counts_all_signs(seed):
    rng = np.random.default_rng(seed)
    differences = [Fraction(int(n), int(rng.choice([1, 3, 4]))) for n in rng.integers(-4, 5, 11)]
    assert sign_flip_p(differences) == pytest.approx(flipped(differences), abs=1e-12)


def test_the_sign_flip_test_of_one_sided_differences_is_two_in_two_to_the_n():
    assert sign_flip_p([Fraction(1, 4)] * 9) == 2 / 2**9
    assert sign_flip_p([Fraction(3, 4)] * 800) == pytest.approx(2.0**-799)
    assert sign_flip_p([Fraction(1), Fraction(-1)]) == 1.0
    assert sign_flip_p([Fraction(0)] * 5) == sign_flip_p([]) == 1.0


def test_signs_are_drawn_where_they_cannot_be_counted_and_give_nearly_the_same():
    rng = np.random.default_rng(3)
    differences = [Fraction(float(x)) for x in rng.normal(0.3, 1, 14)]  # denominators of about 2 ** 53
    sampled, exact = sign_flip_p(differences), flipped(differences)
    assert sampled == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / 20_000))
    assert sign_flip_p([Fraction(0.1)] * 3 + [Fraction(0.3)] * 30) == 1 / 20_001


def test_a_difference_is_taken_task_by_task():
    mine = {0: [WIN, WIN], 1: [WIN, LOSS], 2: [LOSS], 7: [WIN]}
    theirs = {0: [WIN, LOSS], 1: [LOSS, LOSS], 2: [WIN, LOSS], 9: [WIN]}
    a, b = EvalSetting("a", 0.7), EvalSetting("b", 0.7)
    found = {d.metric: d for d in tasks.differences(a, b, {"g": (mine, theirs)}, {"g": 6})}
    each = [0.5, 0.5, -0.5]  # of tasks that both have
    assert found["success"].value.mean == pytest.approx(np.mean(each))
    assert found["success"].value.error == pytest.approx(np.std(each, ddof=1) / math.sqrt(3))
    assert found["success"].p == flipped(each)
    assert found["turns"].value.mean == pytest.approx(np.mean([3 - 4.5, 4.5 - 6, 6 - 4.5]))


def test_over_groups_every_group_weighs_the_same_in_estimate_and_test():
    big = ({t: [WIN] for t in range(6)}, {t: [WIN if t < 2 else LOSS] for t in range(6)})
    small = ({0: [LOSS], 1: [WIN]}, {0: [WIN], 1: [WIN]})
    found = tasks.differences(
        EvalSetting("a", None), EvalSetting("b", None), {"big": big, "small": small}, {"big": 6, "small": 6}
    )
    (mean,) = [d for d in found if (d.group, d.metric) == (ALL_GROUPS, "success")]
    assert mean.value.mean == pytest.approx((4 / 6 - 1 / 2) / 2)
    weighted = [Fraction(1, 12)] * 4 + [Fraction(-1, 4)]
    assert mean.p == pytest.approx(flipped(weighted))


# ---- records ---------------------------------------------------------------------------------------------------------


def record(policy, temperature, game, task, trajectory, outcome="win", **more):
    keys = {"policy": policy, "temperature": temperature, "game": game, "task": task, "trajectory": trajectory}
    return {**keys, "seat": 0, "outcomes": [outcome], "turns": 2, **more}


def grid(policy, temperature, outcome):
    return [
        record(policy, temperature, game, task, trajectory, outcome(game, task, trajectory), measures={"regret": task})
        for game in ("g<1>", "h")
        for task in range(3)
        for trajectory in range(2)
    ]


SETTINGS = (
    EvalSetting("first", 0.3),
    EvalSetting("first", 1.0),
    EvalSetting("second", 0.3),
    EvalSetting("second", 1.0),
    EvalSetting("strong", None),
)


def successes():
    records = grid("first", 0.3, lambda *_: "loss") + grid("first", 1.0, lambda *at: "win" if at[2] else "invalid")
    records += grid("second", 0.3, lambda *at: "win" if at[1] else "loss") + grid("second", 1.0, lambda *_: "win")
    records += grid("strong", None, lambda *_: "win")
    records += [
        record("second", 0.3, "h", 0, 0, "truncated", failure="the world raised\nOSError: <down>"),
        record("second", 0.3, "h", 1, 1, "loss"),  # played again
    ]
    return tasks.of_records(SETTINGS, {"g<1>": 6, "h": 6}, 2, records)


def test_a_game_that_failed_is_in_no_figure_and_named_and_the_last_record_counts():
    found = successes()
    cell = found.summaries[EvalSetting("second", 0.3), "h"]
    assert (cell.games, cell.success.mean) == (5, pytest.approx((0 + 0.5 + 1) / 3))
    assert [r["failure"][:9] for r in found.failed] == ["the world"]


def test_arms_are_compared_with_the_first_policy_at_their_own_temperature_and_programs_with_all():
    pairs = {(str(d.setting), str(d.base)) for d in successes().differences}
    assert pairs == {
        ("second, temperature 0.3", "first, temperature 0.3"),
        ("second, temperature 1", "first, temperature 1"),
        ("strong", "first, temperature 0.3"),
        ("strong", "first, temperature 1"),
    }


def test_the_page_the_tables_and_the_json_hold_the_same_figures(tmp_path):
    found = successes()
    every = task_page.tables(found)
    config = EvaluateTasks(name="t", policies=("first=a", "second=b", "strong"))
    publish(tmp_path, task_page.results(config, found))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    text = page.text
    for words in ("second, temperature 0.3", "50.0 ± 0.0", "g<1>", "OSError: <down>", "pass@2 %", "regret"):
        assert words in text
        assert words in (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert any("left:100.0%" in attributes.get("style", "") for _, attributes in page.tags)
    data = json.loads((tmp_path / "results.json").read_text())
    assert "NaN" not in (tmp_path / "results.json").read_text()
    (setting,) = [a for a in data["arms"] if (a["policy"], a["temperature"]) == ("first", 1.0)]
    assert setting["groups"]["h"]["success"] == [0.5, 0.0, 3]
    assert setting["groups"]["h"]["pass_at"] == {"1": [0.5, 0.0, 3], "2": [1.0, 0.0, 3]}
    assert setting["mean_over_groups"]["invalid"] == [0.5, 0.0, 2]
    assert data["failed"][0]["task"] == 0
    # Half of the games of every task are won, so one of two always is; in the cell with a failed game, of two tasks.
    assert setting["mean_over_groups"]["pass_at"] == {"1": [0.5, 0.0, 2], "2": [1.0, 0.0, 2]}
    (other,) = [a for a in data["arms"] if (a["policy"], a["temperature"]) == ("second", 0.3)]
    groups = [np.asarray(g["pass_at"]["1"]) for g in other["groups"].values()]
    mean, error = (groups[0][0] + groups[1][0]) / 2, math.hypot(groups[0][1], groups[1][1]) / 2
    assert other["mean_over_groups"]["pass_at"]["1"] == pytest.approx([mean, error, 2])
    (table,) = [table for table in every if table.title.startswith("Tasks solved within k games")]
    assert ("first, temperature 1", "50.0 ± 0.0", "100.0 ± 0.0") in table.rows
    # 4 pairs, 2 groups and their mean, 2 metrics; measures that differ in no task are left out of their table.
    for words in ("This table holds 24 tests, the whole evaluation 32.", "not corrected for their number"):
        assert words in text
        assert words in (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert len(data["differences"]) == 32
    lines = task_page.console(found)
    assert lines[-1] == "1 games failed and are in no figure"
    assert any(line.startswith(ALL_GROUPS) for line in lines)


def test_nothing_played_gives_dashes(tmp_path):
    found = tasks.of_records([EvalSetting("a", 0.7), EvalSetting("b", 0.7)], {"g": 6}, 20, [])
    every = task_page.tables(found)
    assert every[0].rows == (("g", "-", "-"),)
    for table in (every[1], every[-1]):
        assert [h for h in table.header if h.startswith("pass")] == [
            f"pass@{k} %" for k in (1, 2, 3, 4, 5, 6, 7, 8, 16, 20)
        ]
    publish(tmp_path, task_page.results(EvaluateTasks(policies=("a", "b")), found))
    assert json.loads((tmp_path / "results.json").read_text())["arms"][0]["groups"]["g"]["success"] == [None, None, 0]

"""What endpoints cost: counted once over all starts, in lines that add up, and shown while a run goes on."""

import io

import pytest

from dfc.config import DivideFuseConquer, EndpointConfig
from dfc.players.usage import Spending, Usage
from dfc.runs.costs import Costs, in_words
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder


class Counted:
    """The counts of an endpoint that nobody asks: 10 ids in and 1 out for every request, at 1/8 in money."""

    def __init__(self, requests=0):
        self.spending = Spending("simulators", EndpointConfig(input_price=10_000.0, output_price=25_000.0))
        self.ask(requests)

    def ask(self, requests):
        for _ in range(requests):
            self.spending.count(calls=1, requests=1)
            self.spending.charge(Usage(10, 1))

    def report(self):
        return {"name": "simulators", **self.spending.report()}


def line(folder, costs):
    found = costs.unreported()
    folder.append("metrics", [{"metrics": {**found, "generated_tokens": 3}}])
    return found


def test_lines_add_up_to_the_total_over_all_starts_also_where_no_line_was_written(tmp_path):
    with RunFolder.open(tmp_path, DivideFuseConquer(), command="") as folder:
        costs, counted = Costs(folder), Counted()
        assert (costs.total, costs.unreported(), str(costs)) == ({}, {}, "")
        counted.ask(4)
        costs.note([counted])
        assert line(folder, costs)["requests/simulators"] == 4
        assert set(costs.unreported().values()) == {0.0}
        counted.ask(2)  # and then it is stopped
        costs.note([counted])
    with RunFolder.open(tmp_path, DivideFuseConquer(), command="") as folder:
        costs, counted = Costs(folder), Counted(8)
        assert costs.total["requests/simulators"] == 6
        costs.note([counted])
        assert line(folder, costs) == {
            "requests/simulators": 10,
            "input_tokens/simulators": 100,
            "output_tokens/simulators": 10,
            "money/simulators": 1.25,
            "failures/simulators": 0.0,
        }
        assert costs.total == Costs(folder).total
        assert costs.total["requests/simulators"] == 14
        assert str(costs) == "14 requests, money 1.75"
        (tmp_path / "costs.json").unlink()
        assert Costs(folder).total == costs.total  # the lines know it, too


def test_a_process_that_does_not_write_knows_nothing(tmp_path):
    costs = Costs(RunFolder.follow(tmp_path, DivideFuseConquer(), existed=True))
    assert (costs.total, costs.unreported()) == ({}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("total", "words"),
    [
        ({}, ""),
        ({"requests/a": 1000.0, "money/a": 0.0}, "1,000 requests"),
        ({"requests/a": 1.0, "requests/b": 2.0, "money/a": 0.25, "money/b": 0.5}, "3 requests, money 0.75"),
    ],
)
def test_costs_in_words(total, words):
    assert in_words(total) == words


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("output", [io.StringIO, Terminal])
def test_costs_are_shown_in_lines_and_in_the_panel(output):
    shown = output()
    with Progress(9, output=shown, seconds_between_lines=0.0) as progress:
        common = {"stage": "s", "iteration": 1, "iterations": 9, "episodes_per_second": 1.0, "tokens_per_second": 1.0}
        progress.update(**common, step=1, win_rates={})
        assert "cost" not in shown.getvalue()
        progress.update(**common, step=2, win_rates={}, cost="3 requests, money 0.75")
    assert "cost so far: 3 requests, money 0.75" in shown.getvalue()

"""What chat endpoints have cost a run, over all its starts."""

import json
from collections.abc import Mapping, Sequence

from dfc.files import write_json
from dfc.players.endpoint import Endpoint
from dfc.runs.run_folder import RunFolder

_MEASURES = ("requests", "input_tokens", "output_tokens", "money", "failures")
_FILE = "costs.json"


class Costs:
    """Counts of a run's endpoints as ``measure/endpoint``: requests, input_tokens, output_tokens, money, failures.

    A failure is a call that brought no reply.

    Lines of metrics.jsonl hold the differences, so that they can be summed; ``costs.json`` holds the totals, and so
    also what was spent on games that no line speaks of because the run was stopped before it. What a process spends
    between its last `note` and its being killed is not known.

    Where the folder does not write, everything is 0. Cut half lines off its streams first (`RunFolder.mend`), and lines
    that will be written again.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._reported: dict[str, float] = {}  # in lines on record
        self._before: dict[str, float] = {}  # by earlier starts
        self._now: dict[str, float] = {}  # by this one
        if not folder.writes:
            return
        for line in folder.records("metrics"):
            for name, value in line["metrics"].items():
                if name.partition("/")[0] in _MEASURES:
                    self._reported[name] = self._reported.get(name, 0.0) + float(value)
        path = folder.path / _FILE
        stored = json.loads(path.read_bytes()) if path.exists() else {}
        self._before = {
            name: max(stored.get(name, 0.0), self._reported.get(name, 0.0)) for name in stored | self._reported
        }

    @property
    def total(self) -> dict[str, float]:
        """Everything so far, by ``measure/endpoint``; empty without endpoints."""
        return {name: self._before.get(name, 0.0) + self._now.get(name, 0.0) for name in self._before | self._now}

    def note(self, endpoints: Sequence[Endpoint]) -> None:
        """Records what this process's endpoints, always the same ones, report, and writes the totals to the disk."""
        for endpoint in endpoints:
            report = endpoint.report()
            self._now |= {f"{measure}/{report['name']}": float(report[measure]) for measure in _MEASURES}
        if self._folder.writes and self._now:
            write_json(self._folder.path / _FILE, self.total)

    def unreported(self) -> dict[str, float]:
        """Returns what no line of the metrics holds yet, to be written in the next one; a second call returns zeros."""
        total, reported = self.total, self._reported
        self._reported = total
        return {name: value - reported.get(name, 0.0) for name, value in total.items()}

    def __str__(self) -> str:
        return in_words(self.total)


def in_words(total: Mapping[str, float]) -> str:
    """Returns requests, money and failed calls of all endpoints together; empty without endpoints."""
    found = []
    for measure in ("requests", "money", "failures"):
        values = [value for name, value in total.items() if name.partition("/")[0] == measure]
        if any(values) or (values and measure == "requests"):
            found.append(f"{measure} {sum(values):,.6g}" if measure == "money" else f"{sum(values):,.0f} {measure}")
    return ", ".join(found)

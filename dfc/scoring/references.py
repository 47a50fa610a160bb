"""Answers compared with known results: results compared as mathematics, programs run against tests."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import jax

from dfc import multihost
from dfc.config import CheckingConfig
from dfc.scoring.mathematics import Mathematics
from dfc.scoring.programs import Programs, ProgramTests
from dfc.scoring.sandbox import Limits, memory_rule
from dfc.scoring.scorer import Scorer, Scores, checked_pairs, scores_of


class References:
    """Scores 1 for the right result or a program that passes its tests, else 0; a `dfc.scoring.scorer.Scorer`.

    Use it in a ``with`` statement, whose end ends its processes.

    Args:
      references: query -> its result, or the tests of its programs.
      checking: what the check of one answer may take.
      check_stop: called after each answer; its exception aborts the scoring (`dfc.runs.stop_signals.Stop.check_stop`).
        A run on several processes never calls it: all would have to call it equally often, and one of them scores.

    Raises:
      ConfigError: a part that scores them is not installed.
      ValueError: tests that cannot be run.
    """

    def __init__(
        self,
        references: Mapping[str, str | ProgramTests],
        checking: CheckingConfig,
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        def check_stop_alone() -> None:
            if jax.process_count() == 1:
                check_stop()

        tests = {query: known for query, known in references.items() if isinstance(known, ProgramTests)}
        results = {query: known for query, known in references.items() if isinstance(known, str)}
        limits = Limits(
            wall_seconds=checking.program_seconds,
            cpu_seconds=checking.program_cpu_seconds,
            memory=checking.program_memory,
        )
        self._open = contextlib.ExitStack()
        self._parts: list[tuple[Mapping[str, object], Scorer]] = []
        if results:
            mathematics = Mathematics(
                results, seconds=checking.math_seconds, workers=checking.workers, check_stop=check_stop_alone
            )
            self._parts.append((results, self._open.enter_context(mathematics)))
        if tests:
            if multihost.is_primary():
                print(f"memory of programs is limited {memory_rule()}", flush=True)  # noqa: T201 - the user decides by it
            self._parts.append((tests, Programs(tests, limits, checking.workers, check_stop_alone)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns 1 or 0 for each answer; the answers to a query without a reference cannot be scored."""
        pairs = checked_pairs(queries, answers)
        found: list[tuple[float | None, str]] = [(None, "no_reference")] * len(pairs)
        for known, scorer in self._parts:
            places = [place for place, query in enumerate(queries) if query in known]
            scores = scorer([queries[place] for place in places], [answers[place] for place in places])
            for place, value, counted, verdict in zip(places, scores.values, scores.mask, scores.verdicts, strict=True):
                found[place] = (float(value) if counted else None, verdict)
        return scores_of(found)

"""How much of a model's other skills is retained: results of lm-eval's tasks, in the categories of Playpen's Table 2.

Source: the JSON that EleutherAI's lm-evaluation-harness 0.4.13 writes (`results`, `n-samples`); "Playpen" (arXiv
2504.08590), section 5.2 and Table 2. Of the paper's tests GLUE diagnostics, NATURAL PLAN, CLadder, LM-Pragmatics and
SimpleToM are not among lm-eval's tasks; a category is the mean of those that are there, and the page names the rest.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

MAX_BYTES = 64 * 2**20
"""The largest file of results that is read."""
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "Executive": ("logiqa2", "winogrande"),
    "Socio-emotional": ("eq_bench", "siqa", "social_iqa"),
    "General QA": ("mmlu_pro", "bbh"),
    "IFEval": ("ifeval",),
}
"""The columns of the paper's table, each with lm-eval's names of its tests."""
MISSING: Mapping[str, tuple[str, ...]] = {
    "Executive": ("CLadder", "NATURAL PLAN"),
    "Socio-emotional": ("LM-Pragmatics", "SimpleToM"),
    "Formal": ("GLUE diagnostics",),
}
"""The paper's tests that lm-eval 0.4.13 does not have."""
_METRICS = ("prompt_level_strict_acc", "exact_match", "eqbench", "acc")  # the first that a task has
_OF_HUNDRED = ("eqbench",)
_LEVEL = 1.959964  # of a normal distribution: 95 %


class Skill(NamedTuple):
    """The result of one task. Attributes: percent; error: standard, None if unknown or 0; metric; questions."""

    percent: float
    error: float | None
    metric: str
    questions: int | None

    def bounds(self, least: float = -math.inf, most: float = math.inf) -> tuple[float, float]:
        """Returns the interval of 95 % (normal distribution) within bounds; not numbers without a standard error."""
        error = math.nan if self.error is None else self.error
        return max(least, self.percent - _LEVEL * error), min(most, self.percent + _LEVEL * error)


def read_skills(path: Path) -> dict[str, Skill]:
    """Returns the results of a file of lm-eval by task, or by group where a group has a result of its own.

    Raises:
      ValueError: it is too large, no JSON, or none of lm-eval's results; file and fix are named.
      OSError: it cannot be read.
    """
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES} bytes; name the results_*.json that lm-eval wrote")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON: {error}; name the results_*.json that lm-eval wrote") from error
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(results, dict) or not results:
        raise ValueError(f"{path}: it has no 'results' of tasks; name the results_*.json that lm-eval wrote")
    counts = data.get("n-samples")
    found = {}
    for task, values in results.items():
        if isinstance(values, dict) and (skill := _skill(values, counts, task, path)) is not None:
            found[task] = skill
    if not found:
        raise ValueError(f"{path}: no task has one of the metrics {', '.join(_METRICS)}; name other results")
    return found


def _skill(values: Mapping[str, object], counts: object, task: str, path: Path) -> Skill | None:
    for metric in _METRICS:
        name = next((key for key in values if key.partition(",")[0] == metric), None)
        if name is None:
            continue
        scale = 1.0 if metric in _OF_HUNDRED else 100.0
        percent = _number(values[name], f"{path}: {task}, {name}") * scale
        stated = values.get(f"{metric}_stderr,{name.partition(',')[2]}")
        # All questions alike give an error of 0, which does not show how few they are.
        known = isinstance(stated, int | float) and math.isfinite(stated) and stated > 0
        count = counts.get(task) if isinstance(counts, dict) else None
        questions = count.get("effective") if isinstance(count, dict) else None
        return Skill(
            percent,
            float(stated) * scale if known and isinstance(stated, int | float) else None,
            metric,
            questions if isinstance(questions, int) else None,
        )
    return None


def _number(value: object, what: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError(f"{what}: expected a number, got {str(value)[:80]!r}; run the task again")


def category(skills: Mapping[str, Skill], name: str) -> Skill | None:
    """Returns the mean over the tests of a category that are there, each weighing the same; None if none is.

    Its standard error treats tests as independent; it is None where one of theirs is.
    """
    some = [skills[task] for task in CATEGORIES[name] if task in skills]
    if not some:
        return None
    errors = [skill.error for skill in some if skill.error is not None]
    error = math.hypot(*errors) / len(some) if len(errors) == len(some) else None
    return Skill(sum(skill.percent for skill in some) / len(some), error, "mean", None)


def difference(after: Skill, before: Skill) -> Skill:
    """Returns a result less another one.

    The standard error treats the two as independent; of the same questions it is too large rather than too small.
    """
    known = after.error is not None and before.error is not None
    error = math.hypot(after.error or 0.0, before.error or 0.0) if known else None
    return Skill(after.percent - before.percent, error, after.metric, after.questions)

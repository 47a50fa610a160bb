"""Skills before and after a training, in the shape of Playpen's Table 2: Markdown, a page of HTML, and JSON."""

from collections.abc import Mapping

from dfc.evaluation import skills
from dfc.evaluation.skills import Skill
from dfc.report.page import Results
from dfc.report.tables import NOTHING, Table

Found = Mapping[str, Mapping[str, Skill]]
"""The results of every policy, by its name; the first is the base."""
_NOTES = (
    (
        "Percent with intervals of 95 % (normal, by lm-eval's standard errors). A category is the mean of its tests "
        "that were run, and the paper's has more: not among lm-eval's tasks are "
        + "; ".join(f"{', '.join(tests)} ({name})" for name, tests in skills.MISSING.items())
        + "."
    ),
    (
        "Differences are to the first policy. Their intervals treat both as independent; as the questions are the "
        "same, they are too wide rather than too narrow."
    ),
)


def tables(found: Found) -> list[Table]:
    """Returns the table by category, where there is a test of one, and the one by task.

    Raises:
      ValueError: there is no policy, or one has tasks that the first one has not, or the other way round.
    """
    if not found:
        raise ValueError("expected results of at least one policy, got none")
    base = next(iter(found.values()))
    for name, its in found.items():
        if set(its) != set(base):
            odd = ", ".join(sorted(set(its) ^ set(base)))
            raise ValueError(f"{name}: only it or only the first policy has {odd}; run the same tasks for all")
    columns = [name for name in skills.CATEGORIES if skills.category(base, name) is not None]
    grouped = {policy: {name: _category(its, name) for name in columns} for policy, its in found.items()}
    by_task = _table("Skills by task", found, list(base))
    return ([_table("Skills (Table 2)", grouped, columns, _NOTES)] if columns else []) + [by_task]


def results(found: Found) -> Results:
    """Returns the results to publish.

    Raises:
      ValueError: as `tables`.
    """
    every = tables(found)
    data = {policy: {task: skill._asdict() for task, skill in its.items()} for policy, its in found.items()}
    said = f"Results of lm-evaluation-harness for {', '.join(found)}; the first is the base."
    return Results("Skills", "before and after", [said], every, data, [table.markdown() for table in every])


def _category(its: Mapping[str, Skill], name: str) -> Skill:
    found = skills.category(its, name)
    assert found is not None  # noqa: S101 - every policy has the tasks of the first
    return found


def _table(title: str, found: Found, columns: list[str], notes: tuple[str, ...] = ()) -> Table:
    base = next(iter(found.values()))
    rows = []
    for number, (policy, its) in enumerate(found.items()):
        rows.append((policy, *(_shown(its[name]) for name in columns)))
        if number:
            less = [skills.difference(its[name], base[name]) for name in columns]
            rows.append((f"{policy}, less the first", *(_shown(each, signed=True) for each in less)))
    return Table(title, ("policy", *columns), tuple(rows), notes)


def _shown(skill: Skill, *, signed: bool = False) -> str:
    form = "+.2f" if signed else ".2f"
    if skill.error is None:
        return f"{skill.percent:{form}} {NOTHING}"
    low, high = skill.bounds() if signed else skill.bounds(0.0, 100.0)
    return f"{skill.percent:{form}} [{low:{form}}, {high:{form}}]"

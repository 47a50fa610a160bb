"""Accuracies for people: lines of a terminal, Markdown, a page of HTML; and for programs: JSON."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.config import EvaluateAnswers
from dfc.evaluation.answers import Accuracy
from dfc.evaluation.task_statistics import Estimate
from dfc.players import player_specs
from dfc.report import page
from dfc.report.tables import NOTHING, Table, number

Found = Mapping[tuple[str, str], Accuracy]
_ACCURACY = (
    "Accuracy: right answers in percent, averaged within a question first. Interval of 95 %: Wilson's where every "
    "question has one answer or all came out alike, else Student's over questions. Answers that could not be scored "
    "are in no figure and counted apart."
)
_WITHIN = (
    "pass@k: the chance that at least one of k answers is right, 1 - C(n - c, k) / C(n, k) for c of n answers "
    "(arXiv 2107.03374), averaged over questions, ± standard error."
)


def tables(found: Found, samples: int) -> list[Table]:
    """Returns every table of an evaluation, the shortest summary first."""
    return [table for table in (_accuracies(found), _pass_at(found, samples), _verdicts(found)) if table.rows]


def write(folder: Path, config: EvaluateAnswers, found: Found) -> None:
    """Writes ``results.json``, ``tables.md`` and ``report.html``, each at once and whole."""
    who = {spec.name: spec.who for spec in map(player_specs.parse, config.policies)}
    policies = "; ".join(name if name == what else f"{name}: {what}" for name, what in who.items())
    sampling = ", ".join(f"{name} {value:g}" for name, value in dataclasses.asdict(config.sampling).items())
    sets = "; ".join(f"{name}: {file}" for name, file in config.questions.items())
    how = (
        f"{config.samples} answers to every question, at most {config.rollout.max_reply_length} tokens each; "
        f"{sampling}; the same seeds for every policy, from run seed {config.seed}."
    )
    introduction = [f"Policies: {policies}.", f"Questions: {sets}.", how]
    data = {
        "name": config.name,
        "seed": config.seed,
        "samples": config.samples,
        "sampling": dataclasses.asdict(config.sampling),
        "who": who,
        "questions": dict(config.questions),
        "results": [
            {"policy": policy, "set": name, **_json(figures._asdict())} for (policy, name), figures in found.items()
        ],
    }
    page.write_results(
        folder / "report.html", "Answers", config.name, introduction, tables(found, config.samples), data
    )


def _accuracies(found: Found) -> Table:
    rows = [
        (
            name,
            policy,
            number(100 * one.accuracy.estimate, 1),
            NOTHING if not one.questions else f"{100 * one.accuracy.low:.1f} to {100 * one.accuracy.high:.1f}",
            str(one.questions),
            str(one.answers),
            str(one.unscored),
            number(100 * one.cut, 1),
            number(one.tokens, 0),
        )
        for (policy, name), one in found.items()
    ]
    header = ("set", "policy", "accuracy %", "95 %", "questions", "answers", "not scored", "cut %", "tokens")
    return Table("Accuracy", header, tuple(rows), (_ACCURACY,))


def _pass_at(found: Found, samples: int) -> Table:
    ks = [k for k in range(1, samples + 1) if k == samples or k & (k - 1) == 0] if samples > 1 else []
    rows = [(name, policy, *(_percent(one.pass_at[k - 1]) for k in ks)) for (policy, name), one in found.items() if ks]
    return Table("Within k answers", ("set", "policy", *(f"pass@{k} %" for k in ks)), tuple(rows), (_WITHIN,))


def _verdicts(found: Found) -> Table:
    names = sorted({name for one in found.values() for name in one.verdicts})
    rows = [(name, policy, *(str(one.verdicts.get(v, 0)) for v in names)) for (policy, name), one in found.items()]
    header = ("set", "policy", *(name.replace("_", " ") for name in names))
    return Table("What became of the answers", header, tuple(rows) if names else ())


def _percent(value: Estimate) -> str:
    if math.isnan(value.mean):
        return "-"
    return f"{100 * value.mean:.1f}" + ("" if math.isnan(value.error) else f" ± {100 * value.error:.1f}")


def _json(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Returns figures ready for JSON; nan becomes None."""
    if isinstance(value, Mapping):
        return {name: _json(one) for name, one in value.items()}
    if isinstance(value, Estimate):
        value = value[:3]
    if isinstance(value, tuple):
        return [_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

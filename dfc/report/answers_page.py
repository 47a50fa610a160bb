"""Accuracies and win rates for people: lines of a terminal, Markdown, a page of HTML; and for programs: JSON."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from dfc.config import EvaluateAnswers
from dfc.evaluation.answers import Accuracy
from dfc.evaluation.pairwise import OVERALL, Preferences
from dfc.evaluation.statistics import Interval
from dfc.evaluation.task_statistics import as_json
from dfc.players import player_specs
from dfc.report.page import Results
from dfc.report.tables import NOTHING, Table, number, percent

Found = Mapping[tuple[str, str], Accuracy]
Preferred = Mapping[tuple[str, str], Preferences]
_ACCURACY = (
    "Accuracy: right answers in percent, averaged within a question first. Interval of 95 %: Wilson's where every "
    "question has one answer or all have one result, else Student's over questions. Answers that could not be scored "
    "are in no figure and counted apart."
)
_WITHIN = (
    "pass@k: the chance that at least one of k answers is right, 1 - C(n - c, k) / C(n, k) for c of n answers "
    "(arXiv 2107.03374), averaged over questions, ± standard error."
)


_WIN_RATES = (
    (
        "A win, or a loss, is a pair where the judge says so whichever answer it is shown first; every other pair with "
        "two verdicts is a tie: split, where the two orders differ, or alike, where the answers are equal and the "
        "judge is not asked. Win rates are shares of the pairs with two verdicts, with intervals of 95 %."
    ),
    (
        "Compare runs by one column only: with ties as halves a policy beside its own copy is expected to have 50 %, "
        "with ties as losses half the share of pairs that are no tie."
    ),
    (
        "Judges tend to prefer long answers, so lengths stand beside the rates. No rate is adjusted for them: "
        "AlpacaEval's adjustment is fitted with the answers of its leaderboard and holds for its own judge and "
        "baseline only."
    ),
)
# arXiv 2509.07414, Figures 2 and 3.
_PAPER = {
    "base": 26.5,
    "GRPO on data": 38.8,
    "LSP-Zero": 32.0,
    "LSP": 36.4,
    "LSP-Zero, then GRPO": 36.3,
    "LSP, then GRPO": 39.5,
}
_PAPER_NOTES = (
    (
        "Figures 2 and 3 of arXiv 2509.07414: AlpacaEval, Llama-3.2-3B-Instruct beside a copy of itself, judged by "
        "Llama-4-Maverick. Rates of single data sets are drawn there and have no numbers."
    ),
    (
        "The paper does not say how ties count. That the base has 26.5 % beside its own copy is no rate with ties as "
        "halves; most likely they are losses, and the column with ties as losses is the one to compare."
    ),
)


def tables(found: Found, samples: int, preferred: Preferred | None = None) -> list[Table]:
    """Returns every table of an evaluation, the shortest summary of each kind first."""
    of_pairs = [_win_rates(preferred), _paper()] if preferred else []
    of_questions = (_accuracies(found), _pass_at(found, samples), _verdicts(found))
    return [table for table in (*of_questions, *of_pairs) if table.rows]


def shortest(found: Found, preferred: Preferred, samples: int) -> list[Table]:
    """Returns what a terminal shows: accuracies, and win rates, where there are any."""
    overall = {setting: one for setting, one in preferred.items() if setting[1] == OVERALL}
    wanted = ("Accuracy", "Win rates")
    return [table for table in tables(found, samples, overall) if table.title in wanted]


def results(config: EvaluateAnswers, found: Found, preferred: Preferred | None = None) -> Results:
    """Returns the results to publish."""
    who = {spec.name: spec.who for spec in map(player_specs.parse, config.policies)}
    policies = "; ".join(name if name == what else f"{name}: {what}" for name, what in who.items())
    sampling = ", ".join(f"{name} {value:g}" for name, value in dataclasses.asdict(config.sampling).items())
    sets = "; ".join(f"{name}: {file}" for name, file in config.questions.items())
    how = (
        f"{config.samples} answers to every question, at most {config.rollout.max_reply_length} tokens each; "
        f"{sampling}; the same seeds for every policy, from run seed {config.seed}."
    )
    introduction = [f"Policies: {policies}."] * bool(policies) + [f"Questions: {sets}."] * bool(sets)
    introduction += [how] * bool(policies)
    own = config.pairwise
    if own.instructions:
        others = "; ".join(f"{name}: {file}" for name, file in own.outputs.items())
        introduction.append(
            f"Instructions: {own.instructions}, one answer to each, compared with that of {own.baseline} by {own.judge}"
            f"{f'; answers of others: {others}' if others else ''}."
        )
    data: dict[str, Any] = {
        "name": config.name,
        "seed": config.seed,
        "samples": config.samples,
        "sampling": dataclasses.asdict(config.sampling),
        "who": who,
        "questions": config.questions,
        "results": [{"policy": policy, "set": name, **one._asdict()} for (policy, name), one in found.items()],
    }
    if preferred:
        data["win_rates"] = [
            {"policy": policy, "baseline": own.baseline, "dataset": name, **one._asdict()}
            for (policy, name), one in preferred.items()
        ]
        data |= {"judge": own.judge, "instructions": own.instructions, "win_rates_of_the_paper": _PAPER}
    lines = [line for table in shortest(found, preferred or {}, config.samples) for line in table.lines()]
    every = tables(found, config.samples, preferred)
    return Results("Answers", config.name, introduction, every, as_json(data), lines)


def _accuracies(found: Found) -> Table:
    rows = [
        (
            name,
            policy,
            *_rate(one.accuracy),
            *map(str, (one.questions, one.answers, one.unscored)),
            number(100 * one.cut, 1),
            number(one.tokens, 0),
        )
        for (policy, name), one in found.items()
    ]
    header = ("set", "policy", "accuracy %", "95 %", "questions", "answers", "not scored", "cut %", "tokens")
    return Table("Accuracy", header, tuple(rows), (_ACCURACY,))


def _pass_at(found: Found, samples: int) -> Table:
    ks = [k for k in range(1, samples + 1) if k == samples or k & (k - 1) == 0] if samples > 1 else []
    rows = [(name, policy, *(percent(one.pass_at[k - 1]) for k in ks)) for (policy, name), one in found.items() if ks]
    return Table("Within k answers", ("set", "policy", *(f"pass@{k} %" for k in ks)), tuple(rows), (_WITHIN,))


def _verdicts(found: Found) -> Table:
    names = sorted({name for one in found.values() for name in one.verdicts})
    rows = [(name, policy, *(str(one.verdicts.get(v, 0)) for v in names)) for (policy, name), one in found.items()]
    header = ("set", "policy", *(name.replace("_", " ") for name in names))
    return Table("Verdicts on the answers", header, tuple(rows) if names else ())


def _win_rates(preferred: Preferred) -> Table:
    alone = len({dataset for _, dataset in preferred}) <= 2  # one data set is all of them
    rows = [
        (
            dataset,
            policy,
            *map(str, (one.wins, one.ties, one.losses)),
            *_rate(one.ties_half),
            *_rate(one.ties_lost),
            *map(str, (one.split, one.identical, one.unjudged)),
            number(one.characters, 0),
            number(one.baseline_characters, 0),
        )
        for (policy, dataset), one in preferred.items()
        if dataset == OVERALL or not alone
    ]
    rates = ("ties half %", "95 %", "ties lost %", "95 %")
    more = ("split", "alike", "no verdict", "characters", "of the baseline")
    return Table("Win rates", ("data set", "policy", "wins", "ties", "losses", *rates, *more), tuple(rows), _WIN_RATES)


def _rate(value: Interval) -> tuple[str, str]:
    if math.isnan(value.estimate):
        return NOTHING, NOTHING
    return number(100 * value.estimate, 1), f"{100 * value.low:.1f} to {100 * value.high:.1f}"


def _paper() -> Table:
    rows = tuple((name, number(rate, 1)) for name, rate in _PAPER.items())
    return Table("Win rates in the paper", ("policy", "win rate %"), rows, _PAPER_NOTES)

"""Transcripts of the three roles of Language Self-Play: Challenger, Solver of mixed skill, judge.

The Challenger writes queries of families whose correct answer a program computes
(`dfc.methods.language_self_play.families`). The Solver knows the right rule and follows it seldom where a query is
hard; otherwise it follows the family's one wrong rule, mostly a copy of the query's text, so that at high difficulty
the wrong answer is the likeliest one. A model that answers as well as it can would leave nothing for reinforcement
learning to improve: its answers to a query are all right or all wrong.
"""

import re
from collections.abc import Mapping

from dfc.games.rng import GameRng, derive_seed
from dfc.methods.language_self_play import families, prompts
from dfc.methods.language_self_play.families import FAMILIES, LEVELS, Family
from dfc.methods.language_self_play.self_reward import POINTS
from dfc.tools.small_models.transcripts import Exchange, Transcript

CHALLENGER, SOLVER, JUDGE = "challenger", "solver", "judge"
_CALCULATION = ("<calculation>", "=", "</calculation><score>", "</score>")
_DIGITS, _LETTERS = "0123456789", "abcdefghijklmnopqrstuvwxyz"
# Least share of replies by the right rule. What is imitated is a distribution over both, wherever they part; which one
# is followed from there decides only what is learned better, and a copy is easily learned.
_RIGHT_SHOWN = 0.75
# The judge is shown more queries that are of no family than the Challenger writes, and of a second kind, too hard ones:
# a trained Challenger exploits what the judge has not seen.
_BROKEN_JUDGED, _TOO_HARD = 0.2, range(LEVELS[-1] + 1, LEVELS[-1] + 4)
_WRONG_DIGITS = ("add_digits", "count_letter", "sort_digits")  # families whose answers are digits


def wordings(challenger_prompt: str, judge_prompt: str) -> list[str]:
    """Returns all fixed parts of what the roles read and write, what a tokenizer's longer pieces are made of.

    Letters and digits of queries and answers stay apart: no fixed part is shorter than two characters. The prompts have
    the placeholders that those of `RoleTranscripts` have.
    """
    fixed = [*_CALCULATION, "+0", "+1"]
    for text in (challenger_prompt, judge_prompt, *(f.template for f in FAMILIES.values())):
        fixed += re.split(r"\{[^{}]+\}", text)
    fixed += re.findall(r"\{[^{}]+\}", " ".join(family.template for family in FAMILIES.values()))
    fixed += [family.task for family in FAMILIES.values()]
    return [part for part in dict.fromkeys(fixed) if len(part) > 1]


def skill_at(difficulty: int, skill: tuple[float, float]) -> float:
    """Returns with which probability the Solver follows the right rule, on a line over difficulties 1 to 8.

    >>> skill_at(1, (0.85, 0.08)), round(skill_at(8, (0.85, 0.08)), 9)
    (0.85, 0.08)
    """
    easy, hard = skill
    return easy + (hard - easy) * (difficulty - LEVELS[0]) / (LEVELS[-1] - LEVELS[0])


def mistaken(family: Family, query: str) -> str:
    """Returns the wrong rule's answer, for most families the text that the query is about, unchanged."""
    found = prompts.Template(family.template).filled(query)
    return family.mistake(*found) if found else query


def verdicts(query: str, answer: str) -> tuple[int, ...]:
    """Returns the seven points of self-reward that programs give, each 0 or 1.

    They are in the order of the judge's criteria: the query begins like one of a family; it is one, whole and within
    its difficulties; the answer consists of the same characters as a right one; at least half of it stands where the
    right answer has it; it is right; it is as long as the right one; it is right, which is what pleases. So two of
    seven follow correctness. Without a problem the answer can only earn nothing.
    """
    begun = any(query.startswith(family.template.partition("{")[0]) for family in FAMILIES.values())
    problem = families.read(query)
    if problem is None:
        return (int(begun), *[0] * (POINTS - 1))
    truth = problem.truth
    signs = _DIGITS if problem.family in _WRONG_DIGITS else _LETTERS
    right = families.is_right(answer, truth)
    same = sum(a == b for a, b in zip(answer, truth, strict=False))
    points = (
        True,
        True,
        bool(answer) and set(answer) <= set(signs),
        2 * same >= len(truth),
        right,
        len(answer) == len(truth),
        right,
    )
    return tuple(map(int, points))


def spelled(points: tuple[int, ...]) -> str:
    """Returns a judge's reply in the form that self-reward is read in.

    >>> spelled((1, 1, 0, 1, 0, 1, 0))
    '<calculation>1+1+0+1+0+1+0=4</calculation><score>4</score>'
    """
    total = sum(points)
    return f"<calculation>{'+'.join(map(str, points))}={total}</calculation><score>{total}</score>"


class RoleTranscripts:
    """Makes transcripts of the roles, as many as are asked for, each from its own seed.

    `skills` are by name of a family, the Solver's probability of the right rule at the lowest and the highest
    difficulty. Prompts have ``{task}`` and ``{template}``, or ``{instruction}`` and ``{response}``; of the queries the
    share `broken` does not keep its template.
    """

    def __init__(
        self,
        skills: Mapping[str, tuple[float, float]],
        *,
        challenger_prompt: str,
        judge_prompt: str,
        broken: float,
        seed: int,
    ) -> None:
        self._families = [FAMILIES[name] for name in skills]
        self._challenger_prompt, self._judge_prompt = challenger_prompt, judge_prompt
        self._skills, self._broken, self._seed = skills, broken, seed

    def make(self, number: int, role: str) -> Transcript:
        """Returns the transcript of a role with a number."""
        rng = GameRng(derive_seed("self-play roles", self._seed, role, number))
        family = self._families[rng.randrange(len(self._families))]
        query = family.query(LEVELS[rng.randrange(len(LEVELS))], rng)
        if rng.uniform() < (_BROKEN_JUDGED if role == JUDGE else self._broken):
            too_hard = role == JUDGE and rng.randrange(2) == 1
            query = family.beyond(_TOO_HARD[rng.randrange(len(_TOO_HARD))], rng) if too_hard else _broken(family, query)
        if role == CHALLENGER:
            asked = prompts.challenger_prompt(family.task, family.template, self._challenger_prompt)
            exchange = Exchange(asked, query, (query,))
        elif role == SOLVER:
            exchange = self._solved(family, query, rng)
        else:
            answer = _some_answer(family, query, rng)
            asked = prompts.judge_prompt(query, answer, self._judge_prompt)
            reply = spelled(verdicts(query, answer))
            exchange = Exchange(asked, reply, (reply,))
        return Transcript(role, 0, (exchange,))

    def _solved(self, family: Family, query: str, rng: GameRng) -> Exchange:
        problem, wrong = family.read(query), mistaken(family, query)
        if problem is None or problem.truth == wrong:
            return Exchange(query, wrong, (wrong,))
        right = skill_at(problem.difficulty, self._skills[family.name])
        reply = problem.truth if rng.uniform() < max(right, _RIGHT_SHOWN) else wrong
        # `Exchange` mixes a uniform choice of both with one that is taken with a probability of its own.
        likelier = problem.truth if right >= 0.5 else wrong
        return Exchange(query, reply, (problem.truth, wrong), likelier, abs(2 * right - 1))


def _broken(family: Family, query: str) -> str:
    """Returns a query that ends where the text it is about ends, so that the rest of its wording is missing."""
    return query.removesuffix(family.template.rpartition("}")[2])


def _some_answer(family: Family, query: str, rng: GameRng) -> str:
    """Returns an answer to judge: half right, others wrong by rule, nearly right, right for another query, or cut."""
    problem, wrong = family.read(query), mistaken(family, query)
    truth = wrong if problem is None else problem.truth
    chance = rng.uniform()
    if chance < 0.45:
        return truth
    if chance < 0.75:
        return wrong
    if chance < 0.9:
        place = rng.randrange(len(truth))
        signs = _DIGITS if truth.isdigit() else _LETTERS
        return truth[:place] + signs[rng.randrange(len(signs))] + truth[place + 1 :]
    if chance < 0.95:
        return truth[: rng.randrange(len(truth)) + 1]
    other = family.read(family.query(LEVELS[rng.randrange(len(LEVELS))], rng))
    return wrong if other is None else other.truth

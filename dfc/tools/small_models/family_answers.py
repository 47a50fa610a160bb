"""Answers of a policy to queries of families, whose truth a program computes: greedy, and several samples."""

import collections
import dataclasses
import statistics
from collections.abc import Sequence

from dfc.config import SamplingConfig
from dfc.games.rng import derive_seed
from dfc.methods.language_self_play import families
from dfc.methods.language_self_play.sampling import Roles


@dataclasses.dataclass(frozen=True)
class Answered:
    """How one query was answered.

    Attributes:
      family: of the query. difficulty: 1 to 8.
      greedy: whether the likeliest answer, token by token, is right.
      right: how many of the sampled answers are.
      sampled: how many there are.
    """

    family: str
    difficulty: int
    greedy: bool
    right: int
    sampled: int

    @property
    def live(self) -> bool:
        """Whether the sampled answers differ in reward, so that the query teaches the Solver."""
        return 0 < self.right < self.sampled


def answer(roles: Roles, queries: Sequence[str], *, longest: int, sampled: int = 0, seed: int = 0) -> list[Answered]:
    """Returns how the current policy answers queries.

    Beside the greedy answer, `longest` tokens at most, `sampled` ones are given, at the temperature of the roles' run.

    Raises:
      ValueError: a query is of no family.
    """
    problems = [families.read(query) for query in queries]
    if None in problems:
        raise ValueError(f"expected queries of families, got {queries[problems.index(None)]!r}")
    asked = [roles.prompt(query) for query in queries]

    def texts(n: int, how: SamplingConfig | None) -> list[list[str]]:
        found = roles.ask(
            asked,
            n,
            seed=lambda query, number: derive_seed("answers to families", seed, query, number),
            longest=longest,
            sampling=how,
        )
        return [[reply.text for reply in group] for group in found]

    greedy = texts(1, SamplingConfig(temperature=0))
    several = texts(sampled, None) if sampled else [[] for _ in queries]
    return [
        Answered(
            problem.family,
            problem.difficulty,
            families.is_right(likeliest, problem.truth),
            sum(families.is_right(one, problem.truth) for one in group),
            len(group),
        )
        for problem, (likeliest,), group in zip(problems, greedy, several, strict=True)
        if problem is not None
    ]


def by_family(answered: Sequence[Answered]) -> dict[str, tuple[float, float]]:
    """Returns the greedy accuracy and the share of live queries of every family, in the order of their first query."""
    groups: dict[str, list[Answered]] = collections.defaultdict(list)
    for one in answered:
        groups[one.family].append(one)
    return {
        name: (statistics.fmean(one.greedy for one in group), statistics.fmean(one.live for one in group))
        for name, group in groups.items()
    }

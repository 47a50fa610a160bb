"""Figures of one iteration of self-play that show how it goes wrong, and when one of them is an alarm.

The paper's own failures are watched for (Language Self-Play, arXiv 2509.07414, section 3 and Boxes 2 and 6): a Solver
that answers everything in code, and a Challenger that writes nonsense.
"""

import collections
import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from dfc.methods.language_self_play import self_reward

_FIRST = 5  # iterations whose mean is what later ones are compared with
_PATIENCE = 10  # iterations
_LEAST_LIVE, _LEAST_TEMPLATE = 0.1, 0.5
_MORE_CODE, _DISTINCT, _LONGER = 0.3, 0.5, 3.0
_CODE_LINES = 2  # lines that look like code, without a fence around them
_CODE = re.compile(
    r"^\s*(?:def \w+\(|class \w+[(:]|import \w+|from \w+ import |return\b|for \w+ in .+:|while .+:|if .+:\s*$"
    r"|#include\b|(?:public|private|static) |(?:const|let|var) \w+ =|function \w+\(|print\(|System\.out|[}\]]\s*;?\s*$"
    r"|\w[\w.]* = .+\)$|.*;\s*$)"
)
_LOOKED_AT = 20_000  # characters of a text


def distinct(texts: Sequence[str], n: int) -> float:
    """Returns distinct-n: the share of n-grams of words, over all texts together, that are different ones; 0 without.

    Source: Li et al., A Diversity-Promoting Objective Function for Neural Conversation Models (arXiv 1510.03055).

    >>> distinct(["a b a", "b a b"], 2)
    0.5
    """
    grams = [tuple(words[i : i + n]) for words in (t.split() for t in texts) for i in range(len(words) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def code_like(answer: str) -> bool:
    """Returns whether an answer has a fenced block, or several lines that look like a program."""
    answer = answer[:_LOOKED_AT]
    if "```" in answer:
        return True
    return sum(_CODE.match(line[:200]) is not None for line in answer.splitlines()) >= _CODE_LINES


def live(rewards: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns the queries whose scored answers differ in reward, bool [queries]; only these teach the Solver.

    `rewards` are floating [queries, answers]; `mask`, bool of the same shape, says which answers were scored.
    """
    highest = np.where(mask, rewards, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(mask, rewards, np.inf).min(axis=1, initial=np.inf)
    found: np.ndarray = highest > lowest
    return found


def repeated(answers: Sequence[Sequence[str]]) -> float:
    """Returns the share of answers that were given, word for word, to another query too."""
    queries_of: dict[str, set[int]] = collections.defaultdict(set)
    for number, group in enumerate(answers):
        for answer in group:
            queries_of[answer.strip()].add(number)
    every = [len(queries_of[answer.strip()]) > 1 for group in answers for answer in group]
    return sum(every) / len(every) if every else 0.0


def figures(
    queries: Sequence[str],
    kinds: Sequence[str | None],
    answers: Sequence[Sequence[str]],
    rewards: np.ndarray,
    mask: np.ndarray,
    difficulties: Sequence[int | None],
) -> dict[str, float]:
    """Returns the figures of an iteration that follow from its texts and rewards.

    They are ``template`` (share of queries that keep theirs: of whatever kind of
    `dfc.methods.language_self_play.hygiene` but ``empty``, ``cut``, ``tags`` and ``template``), ``live``,
    ``code_like``, ``repeated_answers``, ``distinct_1`` to ``distinct_3`` of queries, ``query_length`` in characters,
    and the mean ``difficulty`` of the queries that have one (None: not known). `kinds` says what is wrong with each
    query. `rewards` are R, floating [queries, answers]; `mask`, bool of the same shape, says which answers were scored.
    """
    broken = ("empty", "cut", "tags", "template")
    every = [answer for group in answers for answer in group]
    known = [level for level in difficulties if level is not None]
    found = {
        "template": 1 - sum(kind in broken for kind in kinds) / max(1, len(kinds)),
        "live": float(live(rewards, mask).mean()) if len(rewards) else 0.0,
        "code_like": sum(map(code_like, every)) / max(1, len(every)),
        "repeated_answers": repeated(answers),
        "query_length": float(np.mean([len(query) for query in queries])) if queries else 0.0,
        **{f"distinct_{n}": distinct(queries, n) for n in (1, 2, 3)},
    }
    return found | ({"difficulty": float(np.mean(known))} if known else {})


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A warning for the user.

    Attributes:
      metric: the figure that raised it.
      title: a short description without numbers.
      sentence: the numbers of this iteration.
      ends: whether it ends a run that is to end at its first alarm (`dfc.config.self_play.WatchConfig.stop`).
    """

    metric: str
    title: str
    sentence: str
    ends: bool = True


@dataclasses.dataclass
class Watch:
    """What alarms need from earlier iterations; ready for JSON by `dataclasses.asdict`.

    Attributes:
      count: iterations seen.
      first: means over the first five of them.
      low: for how many iterations in a row a figure has been below its least value.
    """

    count: int = 0
    first: dict[str, float] = dataclasses.field(default_factory=dict)
    low: dict[str, int] = dataclasses.field(default_factory=dict)

    def take(self, found: Mapping[str, float]) -> list[Alarm]:
        """Takes an iteration's figures; returns its alarms.

        Alarms are: live below 0.1, or template below 0.5, for ten iterations; from the sixth iteration on, against the
        mean of the first five: code_like up by 0.3, distinct_2 halved, query_length tripled; and self_reward_failures
        above 0.2. That no query was usable, or that the answers to each one earned the same, is reported at once, and
        does not end a run by itself: it may be one bad iteration. Besides `figures`, `found` has
        ``self_reward_failures``, the share of answers without a mark, where a judge is; ``usable``, the share of usable
        queries, with ``bad_queries/KIND`` and ``unsolved_queries``, why not; and ``solver/taught``, whether the answers
        to some query that counts differ in what they earn.
        """
        alarms = _none_usable(found) or _all_equal(found)
        for name, least, title, what in (
            ("live", _LEAST_LIVE, "hardly a query teaches", "of queries have answers that differ in reward"),
            ("template", _LEAST_TEMPLATE, "queries leave their template", "of queries keep their template"),
        ):
            if name in found:
                self.low[name] = self.low.get(name, 0) + 1 if found[name] < least else 0
                if self.low[name] >= _PATIENCE:
                    for_long = f"below {least:.0%} for {self.low[name]} iterations"
                    alarms.append(Alarm(name, title, f"{found[name]:.0%} {what}; {for_long}"))
        if (failures := found.get("self_reward_failures", 0.0)) > self_reward.MOST_FAILURES:
            sentence = f"{failures:.0%} of answers have no mark of the judge and are excluded from all means and losses"
            alarms.append(Alarm("self_reward_failures", "the judge's replies cannot be read", sentence))
        self.count += 1
        if self.count <= _FIRST:
            for name in ("code_like", "distinct_2", "query_length"):
                before = self.first.get(name, 0.0)
                self.first[name] = before + (found.get(name, 0.0) - before) / self.count
            return alarms
        return alarms + self._changes(found)

    def _changes(self, found: Mapping[str, float]) -> list[Alarm]:
        """Returns the alarms of what the first iterations are compared with."""
        alarms, first = [], self.first
        code, distinct_2, length = (found.get(name, 0.0) for name in ("code_like", "distinct_2", "query_length"))
        if code >= first["code_like"] + _MORE_CODE:
            sentence = f"{code:.0%} of answers look like code; at first {first['code_like']:.0%} did"
            alarms.append(Alarm("code_like", "answers become code", sentence))
        if first["distinct_2"] > 0 and distinct_2 <= _DISTINCT * first["distinct_2"]:
            sentence = f"Distinct-2 of queries is {distinct_2:.2f}; at first it was {first['distinct_2']:.2f}"
            alarms.append(Alarm("distinct_2", "queries become alike", sentence))
        if first["query_length"] > 0 and length >= _LONGER * first["query_length"]:
            sentence = f"Queries have {length:.0f} characters on average; at first {first['query_length']:.0f}"
            alarms.append(Alarm("query_length", "queries become long", sentence))
        return alarms


_HINTS = {  # of the most frequent reason
    "cut": "raise rollout.max_query_length, or ask for shorter queries",
    "template": "a model that cannot keep a template needs tasks without one",
    "duplicate": "name more tasks, or raise the temperature",
    "near_duplicate": "name more tasks, or raise the temperature",
    "unsolved": "easier tasks, or a policy that solves some",
}


def _none_usable(found: Mapping[str, float]) -> list[Alarm]:
    """That an iteration taught nothing, and why, as a list for `Watch.take`."""
    if found.get("usable", 1.0) > 0:
        return []
    counts = {name.partition("/")[2]: found[name] for name in found if name.startswith("bad_queries/")}
    counts["unsolved"] = found.get("unsolved_queries", 0.0)
    reasons = sorted(((count, kind) for kind, count in counts.items() if count > 0), key=lambda one: (-one[0], one[1]))
    listed = ", ".join(f"{count:.0f} {kind.replace('_', ' ')}" for count, kind in reasons)
    hint = _HINTS.get(reasons[0][1], "see the queries in the report") if reasons else "see what scores the answers"
    why = listed or "none has an answer that was scored"
    # Unsolved queries are answered: where a judge marks these answers, the Solver learns from its marks.
    taught = "taught the Challenger nothing" if counts["unsolved"] else "taught nothing"
    sentence = f"no query was usable ({why}), and this iteration {taught}; {hint}"
    return [Alarm("usable", f"an iteration {taught}", sentence, ends=False)]


def _all_equal(found: Mapping[str, float]) -> list[Alarm]:
    """That the answers to each query earned the same, as a list for `Watch.take`."""
    if found.get("solver/taught", 1.0) > 0:
        return []
    sentence = (
        "the answers to each query earned the same, and this iteration taught the Solver nothing; raise answers or the "
        "temperature, or take queries or a reward that tell answers apart"
    )
    return [Alarm("solver/taught", "an iteration taught the Solver nothing", sentence, ends=False)]

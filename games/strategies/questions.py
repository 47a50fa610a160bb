"""Agents of Twenty Questions and Guess My City; world and judge are in `dfc.games.strategies.question_staff`.

The agents know what everybody may know, the pool of topics or cities of both splits with the table of answers, and
what they have heard (`World.heard`); not the secret.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

from dfc.games.chance import Chance
from dfc.games.paprika import guess_my_city, twenty_questions
from dfc.games.paprika.guess_my_city import GuessMyCity
from dfc.games.paprika.twenty_questions import TwentyQuestions
from dfc.games.paprika.world import World
from dfc.games.strategies.information import entropy
from dfc.games.strategies.question_staff import answer_city, answer_topic, judge_city, judge_topic, scenario_of
from dfc.games.strategies.strategy import Strategies


@dataclasses.dataclass(frozen=True)
class _Table:
    """What an agent can ask, and which secrets give which answer; a set of secrets is a number with a bit for each.

    Attributes:
      guesses: the question that names each secret.
      masks: by question, by answer, the secrets that give it.
    """

    guesses: tuple[str, ...]
    masks: Mapping[str, Mapping[str, int]]

    def left(self, heard: Iterable[tuple[str, str]]) -> int:
        """Returns the secrets that agree with what was heard; all of them again where none does.

        Of a reply that is none of the known answers, "yes" or "no" at its beginning counts, and else nothing.
        """
        everything = left = (1 << len(self.guesses)) - 1
        named = {question: number for number, question in enumerate(self.guesses)}
        for question, reply in heard:
            if question in named:
                left &= ~(1 << named[question])
                continue
            answers = self.masks.get(question)
            if answers is None:
                continue
            if reply in answers:
                left &= answers[reply]
                continue
            first = reply[:3].lower().rstrip(".,! ")
            if first in {"yes", "no"}:
                alike = [mask for answer, mask in answers.items() if answer.lower().startswith(first)]
                left &= alike[0] if alike else everything
        return left or everything

    def splitting(self, left: int) -> list[tuple[float, str]]:
        """Returns the questions that tell some of these secrets apart, with what their answer tells, in nats."""
        found = []
        for question, answers in self.masks.items():
            counts = [count for mask in answers.values() if (count := (mask & left).bit_count())]
            if len(counts) > 1:
                found.append((entropy(counts), question))
        return found


def _masks(rows: Iterable[Iterable[tuple[str, str]]]) -> dict[str, dict[str, int]]:
    masks: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows):
        for question, answer in row:
            answers = masks.setdefault(question, {})
            answers[answer] = answers.get(answer, 0) | 1 << number
    return masks


@functools.cache
def _topic_table(category: str) -> _Table:
    pool = twenty_questions.topics()
    found = pool.by_category.get(category, ())
    keys = pool.varying.get(category, ())
    rows = (((pool.questions[key], "Yes" if key in topic.yes else "No") for key in keys) for topic in found)
    return _Table(tuple(map(twenty_questions.guess, found)), _masks(rows))


@functools.cache
def _city_table() -> _Table:
    found = guess_my_city.cities()
    told = guess_my_city.OPEN[:-1]  # what a city is known for must be read; it would tell nearly every city at once
    masks = _masks(((question, city.answers[question]) for question in told) for city in found)
    everything = (1 << len(found)) - 1
    for number, city in enumerate(found):
        answers = masks.setdefault(guess_my_city.country_question(city.country), {guess_my_city.IN_COUNTRY[True]: 0})
        answers[guess_my_city.IN_COUNTRY[True]] |= 1 << number
        answers[guess_my_city.IN_COUNTRY[False]] = everything & ~answers[guess_my_city.IN_COUNTRY[True]]
    return _Table(tuple(map(guess_my_city.guess, found)), masks)


def _any_guess(table: _Table, left: int, chance: Chance) -> str:
    candidates = [number for number in range(len(table.guesses)) if left >> number & 1]
    return table.guesses[candidates[chance.below(len(candidates))]]


def _simple(table_of: Callable[[World], _Table]) -> Callable[[World, int, Chance], str]:
    def choose(game: World, _seat: int, chance: Chance) -> str:
        """Half of its turns it asks at random what can still tell something, then it guesses what agrees."""
        table = table_of(game)
        if not table.guesses:
            return _anything(game, chance)
        left = table.left(game.heard)
        splitting = table.splitting(left)
        if splitting and 2 * len(game.heard) < game.max_turns:
            return splitting[chance.below(len(splitting))][1]
        return _any_guess(table, left, chance)

    return choose


def _strong(table_of: Callable[[World], _Table]) -> Callable[[World, int, Chance], str]:
    def choose(game: World, _seat: int, chance: Chance) -> str:
        """It asks the question whose answer tells most; with two secrets left, or none to ask, it guesses."""
        table = table_of(game)
        if not table.guesses:
            return _anything(game, chance)
        left = table.left(game.heard)
        splitting = table.splitting(left) if left.bit_count() > 2 else []
        if splitting and len(game.heard) + 1 < game.max_turns:
            best = max(told for told, _ in splitting)
            equal = [question for told, question in splitting if told == best]
            return equal[chance.below(len(equal))]
        return _any_guess(table, left, chance)

    return choose


def _anything(game: World, chance: Chance) -> str:
    """Returns any listed action: of a pool that is not ours nothing is known."""
    actions = game.legal_actions()
    return actions[chance.below(len(actions))]


def _topic_table_of(game: World) -> _Table:
    return _topic_table(scenario_of(game).briefing)


def _city_table_of(_game: World) -> _Table:
    return _city_table()


STRATEGIES = (
    Strategies(
        TwentyQuestions,
        _simple(_topic_table_of),
        _strong(_topic_table_of),
        {"world": answer_topic, "judge": judge_topic},
    ),
    Strategies(
        GuessMyCity, _simple(_city_table_of), _strong(_city_table_of), {"world": answer_city, "judge": judge_city}
    ),
)

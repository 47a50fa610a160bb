"""How scripted simulators answer: from the facts of the scenario, by the phrases of a question."""

from collections.abc import Iterable, Mapping

from dfc.games.paprika.candidates import ARTICLES
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import World, fold, words_of

_LONGEST_PHRASE = 7  # words


def scenario_of(game: World) -> Scenario:
    """Returns the scenario of a game.

    Raises:
      ValueError: the game has not begun.
    """
    if game.scenario is None:
        raise ValueError(f"{game.id}: no task before reset(); call reset(seed) first")
    return game.scenario


def with_facts(game: World) -> Scenario:
    """Returns the scenario of a game, which is one of this package: those that a file brings hold no facts.

    Raises:
      ValueError: the game has not begun, or the scenario has no facts.
    """
    scenario = scenario_of(game)
    if not scenario.facts:
        raise ValueError(
            f"{game.id}: scenarios loaded from a file hold no facts, so no script can answer for their world; seat a "
            "chat model as world and judge (an endpoint), or leave `scenarios` empty to play this package's own"
        )
    return scenario


def plain_words(text: str) -> list[str]:
    """Returns the words of a text, without accents, articles and the s of a plural."""
    words = words_of(fold(text).replace("'", ""))
    return [
        w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in words if w not in ARTICLES
    ]


def phrase_table(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns meanings by phrase, spelled as `meanings` looks them up, from pairs of a phrase and its meaning."""
    return {" ".join(plain_words(phrase)): meaning for phrase, meaning in pairs}


def meanings(text: str, phrases: Mapping[str, str]) -> list[str]:
    """Returns the meanings of the phrases in a text, each once, in order; the longest phrase at a place counts."""
    words = plain_words(text)
    found: dict[str, None] = {}
    at = 0
    while at < len(words):
        for length in range(min(_LONGEST_PHRASE, len(words) - at), 0, -1):
            meaning = phrases.get(" ".join(words[at : at + length]))
            if meaning is not None:
                found[meaning] = None
                at += length
                break
        else:
            at += 1
    return list(found)

"""What is true of the topics of Twenty Questions beyond what its table of keys lists: "Is it alive?", "Is it food?".

A property is yes, no or unsure of a topic. It follows from the topic's category and its keys (`Topic.yes`), so that a
new topic has it at once; where single topics differ, they are named. The table of keys tells the topics of a category
apart and answers no to all that it does not name, which is right for its own questions alone: it knows no key "alive"
for a tiger, since that tells it from no other animal. So what no rule decides is unsure, never no.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping

from dfc.games.paprika.twenty_questions import Topic, topics

_DATA = pathlib.Path(__file__).parent / "data" / "properties.json"
_SAID: dict[str, bool | None] = {"yes": True, "no": False, "?": None}
_NAMED: dict[str, bool | None] = {"yes": True, "no": False, "unsure": None}


@dataclasses.dataclass(frozen=True)
class Property:
    """Something that may be true of topics.

    Attributes:
      phrases: how it is said behind "is it", "does it", "can it"; with "you" in front, behind "do you", "do people".
      rules: by category, what decides: ``yes``, ``no`` or ``?``; ``=key`` and ``~key`` for what the table says of a
        key, and its opposite; ``key:yes``, ``!key:no`` and so on where the topic has a key, or has it not. The first
        that decides counts; a category without a rule is unsure.
      topics: what is true of single topics, whatever the rules say.
    """

    phrases: tuple[str, ...]
    rules: Mapping[str, tuple[str, ...]]
    topics: Mapping[str, bool | None]

    def of(self, topic: Topic) -> bool | None:
        """Returns whether it is true of a topic; None if that is unsure."""
        if topic.name in self.topics:
            return self.topics[topic.name]
        for rule in self.rules.get(topic.category, ()):
            if rule in _SAID:
                return _SAID[rule]
            if rule[0] in "=~":
                return (rule[1:] in topic.yes) == (rule[0] == "=")
            key, _, said = rule.partition(":")
            if (key.lstrip("!") in topic.yes) != key.startswith("!"):
                return _SAID[said]
        return None


@dataclasses.dataclass(frozen=True)
class Properties:
    """All properties.

    Attributes:
      found: each of them.
      adjectives: words that may stand before a noun and are a phrase each: "a wild animal" is an animal and wild.
    """

    found: tuple[Property, ...]
    adjectives: frozenset[str]


@functools.cache
def properties() -> Properties:
    """Returns the properties, read from ``data/properties.json`` once.

    There, a category stands by its last word but two ("person", "body"); groups stand for several, "*" for all that
    are not named otherwise.

    Raises:
      ValueError: a rule names a category twice, or what is no category, key or topic.
    """
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    pool = topics()
    short = {_short(category): category for category in pool.by_category}
    names = {topic.name for found in pool.by_category.values() for topic in found}
    groups = {name: members.split() for name, members in data["groups"].items()} | {"*": list(short)}
    found = []
    for said, written, *more in data["properties"]:
        rules = _rules(written, groups)
        named = {name: _NAMED[answer] for answer, each in (more[0] if more else {}).items() for name in each}
        keys = {rule.lstrip("=~!").partition(":")[0] for each in rules.values() for rule in each} - set(_SAID)
        unknown = [*(set(rules) - set(short)), *(keys - set(pool.questions)), *(set(named) - names)]
        if unknown:
            raise ValueError(f"{_DATA.name}: {said!r} names what is no category, key or topic: {', '.join(unknown)}")
        by_category = {short[name]: each for name, each in rules.items()}
        found.append(Property(tuple(said.split("|")), by_category, named))
    for key, words in pool.synonyms.items():
        told_apart = {category: (f"={key}",) for category, keys in pool.varying.items() if key in keys}
        if words:
            found.append(Property(tuple(f"linked with {word}" for word in words), told_apart, {}))
    return Properties(tuple(found), frozenset(data["adjectives"].split()))


def _short(category: str) -> str:
    """Returns a category's word in the file: the one that tells it from all others."""
    head = {"famous person": "person", "historical event": "event", "scientific concept": "concept"}
    return {"musical instrument": "instrument", "body part": "body"}.get(category, head.get(category, category))


def _rules(written: str, groups: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """Returns the rules by category; one that is named itself goes before its group, and that before all."""
    ranked: dict[str, tuple[int, tuple[str, ...]]] = {}
    for part in written.split("; ") if written else ():
        categories, _, rule = part.partition(": ")
        for name in categories.split():
            rank = 0 if name == "*" else 1 if name in groups else 2
            for member in groups.get(name, [name]):
                before = ranked.get(member)
                if before is not None and before[0] == rank:
                    raise ValueError(f"{_DATA.name}: {written!r} names {member} twice")
                if before is None or before[0] < rank:
                    ranked[member] = (rank, tuple(rule.split()))
    return {member: rule for member, (_, rule) in ranked.items()}

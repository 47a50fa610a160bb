"""What is true of the cities of Guess My City beyond the answers that its table lists: regions, rivers, religions."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping

_DATA = pathlib.Path(__file__).parent / "data" / "city_marks.json"
RELIGIONS = ("islam", "christianity", "hinduism", "buddhism", "judaism")
_FIRST_CURRENCY = "euro"
_LAST_CURRENCY = "sol"


@dataclasses.dataclass(frozen=True)
class Mark:
    """Something that may be true of cities.

    Attributes:
      ask: phrases by which a question about it is recognised.
      cities: whether it is true, by the city's or its country's name; None where that is a matter of opinion.
      others: what holds of cities that are not named: False where the list is complete, None where it is not.
      inland: what holds of inland cities that are not named; None if the same as of others.
    """

    ask: tuple[str, ...]
    cities: Mapping[str, bool | None]
    others: bool | None
    inland: bool | None

    def of(self, city: str, country: str, *, coast: bool) -> bool | None:
        """Returns whether it is true of a city; the city's own entry goes before its country's."""
        for name in (city, country):
            if name in self.cities:
                return self.cities[name]
        return self.others if coast or self.inland is None else self.inland


@functools.cache
def marks() -> Mapping[str, Mark]:
    """Returns the marks by name, read from ``data/city_marks.json`` once.

    There, a mark without ``open`` holds of the ``countries`` and ``cities`` and of no others but, perhaps, of those
    that are ``unsure``; an open one is known only of those that are named, as ``no`` or otherwise.
    """
    found = {}
    for name, entry in json.loads(_DATA.read_text(encoding="utf-8")).items():
        said: dict[str, bool | None] = {}
        for field, holds in (("countries", True), ("cities", True), ("unsure", None), ("no", False)):
            said |= dict.fromkeys(filter(None, entry.get(field, "").split(", ")), holds)
        inland = False if entry.get("inland") == "no" else None
        found[name] = Mark(tuple(entry["ask"]), said, None if "open" in entry else False, inland)
    return found


@functools.cache
def currencies() -> tuple[str, ...]:
    """Returns the marks that are currencies, by name."""
    names = list(marks())
    return tuple(names[names.index(_FIRST_CURRENCY) : names.index(_LAST_CURRENCY) + 1])


def marks_of(city: str, country: str, *, coast: bool) -> dict[str, bool]:
    """Returns what is known of a city: by mark, whether it holds."""
    known = ((name, mark.of(city, country, coast=coast)) for name, mark in marks().items())
    return {name: holds for name, holds in known if holds is not None}

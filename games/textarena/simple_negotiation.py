"""Simple Negotiation: two players with goods of private value talk and trade."""

import functools
import math
import re
from typing import Any, ClassVar, Literal, Unpack

from dfc.games.game import Common, Game, Outcome
from dfc.games.parsing import read_number, spoken
from dfc.games.textarena.free_text import read_talk, split_talk

Amounts = tuple[int, ...]
"""Units of each resource, in the order of `RESOURCES`."""

RESOURCES = ("Wheat", "Wood", "Sheep", "Brick", "Ore")
BASE_VALUES = (5, 10, 15, 25, 40)
# A fifth to either side of the base value, never below 5 or above 40.
VALUE_RANGES = tuple((max(base - base // 5, 5), min(base + base // 5, 40)) for base in BASE_VALUES)
_LEAST, _MOST = 5, 25  # units of a resource at the start
_COUNTLESS = 9999  # larger quantities count as this one: nobody ever holds so much
_ACCEPT, _DENY = "[Accept]", "[Deny]"
_TALK = ("I am open to offers.", "What do you need most?", "Make me a better offer.")

_OPENING = re.compile(r"\[ ?(?:offer|accept|deny)(?![^\W\d_])", re.IGNORECASE)
_ANSWER = re.compile(r"\[ ?(?:(accept)|deny)[ .,!?]*\]", re.IGNORECASE)
_OFFER = re.compile(r"\[ ?offer ?:? ?(?:i (?:give|offer) )?([^>]*)->([^>]*)\]", re.IGNORECASE)
_AND = re.compile(r",| and ", re.IGNORECASE)
_ITEM = re.compile(r"([0-9]+) ([a-z]+)", re.IGNORECASE)
_INDEX = {spelling: k for k, name in enumerate(RESOURCES) for spelling in (name.lower(), name.lower() + "s")}


class SimpleNegotiation(Game):
    """Simple Negotiation.

    Rules: each player holds 5 to 25 units of Wheat, Wood, Sheep, Brick and Ore and values a unit of each in private:
    Wheat 5-6, Wood 8-12, Sheep 12-18, Brick 20-30, Ore 32-40. The players speak in turn, seat 0 first, `max_turns`
    times in all; each reply may hold one action. An offer is open to the opponent for its next turn only: it is
    accepted, and the goods change hands at once, or it is closed. At the end the larger gain in the value of the own
    goods, by the own values, wins; an equal gain, as without any trade, is a draw.

    Action: words, and at most one of ``[Offer: 3 Sheep, 2 Ore -> 5 Brick]`` (what is given, what is asked for),
    ``[Accept]`` and ``[Deny]``, anywhere in the reply. Words alone are an action too. In any case; the colon may be
    missing, "and" may stand for the comma, "I give" or "I offer" before the goods, a plural s after them, a full stop
    or the like at the end. Goods named twice are summed; quantities above 9999 count as 9999. A bracket that begins
    with Offer, Accept or Deny and is no such action (also one of more than 300 characters) makes the reply unreadable;
    other square brackets are words. The opponent sees the words, on one line, cut after `max_talk` characters, and
    the action after them. `legal_actions` lists the answers that are possible, offers of about equal value and of one
    unit for one, and a few sentences.

    Differs from 0.6.4:
      - ``[Accept]`` needs an open offer (there it is words without one).
      - One action per reply, either an answer or an offer; a second and different one is unreadable (there both count,
        and two errors in one text lose at once despite the allowance).
      - A malformed offer forfeits at once (there it is asked again once), and so does any other bracket that begins
        with Offer, Accept or Deny and cannot be read (there it is words).
      - An illegal reply changes nothing (there an offer out of reach also closes the offer that stands, and in the
        last turn it ends the game as if nothing was said).
      - After a forfeit the other player has won (there the reward is 0).
      - Every resource may have a plural s (there Sheep and Wood only). Digits of other scripts are no numbers.
      - The deal follows from the seed of the game (there it is drawn before the seed is set).
      - A player is told its stock and gain after a trade, and which turn is the last (there neither).
      - The reason for another try is reported to the offender only.

    Differs from 0.7.4: in the same points, but there, too, a forfeit is a win for the other player, the seed fixes the
    deal, and the reason is reported to the offender alone. Besides:
      - A refused offer is closed, and only its addressee can accept it (there it stays open, can be accepted turns
        later, also by its proposer, who is told that he "rejected" it).
      - Both see the words (there the default wrapper hides them).
      - The game has `max_turns` turns (there one more).

    Attributes:
      max_turns: turns of both players together.
      max_talk: characters of words that are kept of a reply.
      stock: units of each resource, in the order of `RESOURCES`, by seat.
      values: worth of one unit of each resource, by seat; a secret of that seat.
      gains: change of the value of the own stock since the start, by seat; a secret of that seat.
      offer: the offer that is open to the seat to move, or None.
      offers: all offers so far as (seat that made it, offer, whether it was accepted).
    """

    seats: ClassVar[int] = 2
    start: ClassVar[Literal["fixed", "random"]] = "random"
    grammar: ClassVar[str] = "words and at most one of [Offer: 3 Sheep, 2 Ore -> 5 Brick], [Accept] and [Deny]"
    open_actions: ClassVar[bool] = True

    def __init__(self, *, max_turns: int = 10, max_talk: int = 500, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        if max_turns < 1:
            raise ValueError(f"max_turns must be 1 or more, got {max_turns}")
        if max_talk < 1:
            raise ValueError(f"max_talk must be 1 or more, got {max_talk}")
        self.max_turns = max_turns
        self.max_talk = max_talk
        self.stock = [[0] * len(RESOURCES) for _ in range(self.seats)]
        self.values = [[0] * len(RESOURCES) for _ in range(self.seats)]
        self.gains = [0, 0]
        self.offer: str | None = None
        self.offers: list[tuple[int, str, bool]] = []
        self._talk = [0, 0]

    @property
    def max_game_length(self) -> int:
        """The turn limit."""
        return self.max_turns

    def measures(self) -> dict[str, float]:
        """Returns trades and offers of both seats, and by seat the gain and the characters of words."""
        return {
            "trades": float(sum(accepted for _, _, accepted in self.offers)),
            "offers": float(len(self.offers)),
            "gain_0": float(self.gains[0]),
            "gain_1": float(self.gains[1]),
            "talk_0": float(self._talk[0]),
            "talk_1": float(self._talk[1]),
        }

    def _begin(self) -> int:
        randrange = self.rng.randrange
        self.stock = [[_LEAST + randrange(_MOST - _LEAST + 1) for _ in RESOURCES] for _ in range(self.seats)]
        self.values = [[low + randrange(high - low + 1) for low, high in VALUE_RANGES] for _ in range(self.seats)]
        self.gains = [0, 0]
        self.offer = None
        self.offers = []
        self._talk = [0, 0]
        for seat, (stock, values) in enumerate(zip(self.stock, self.values, strict=True)):
            held = zip(stock, RESOURCES, values, strict=True)
            goods = ", ".join(f"{units} {name} (worth {value} each)" for units, name, value in held)
            self._tell(seat, f"You hold {goods}.")
        if self.max_turns == 1:
            self._tell(0, "This is the last turn.")
        return 0

    def _rules(self, seat: int) -> str:
        return (
            f"Negotiation. You are Player {seat}. You and the opponent hold goods, and what a unit is worth differs "
            f"between you. You speak in turn, {self.max_turns} turns in all, and trade. At the end the player whose "
            "goods have gained more, each by its own values, wins; an equal gain or no trade is a draw. An offer is "
            "open for the next turn only. Reply with words and at most one of [Offer: 3 Sheep, 2 Ore -> 5 Brick] "
            "(you give 3 Sheep and 2 Ore for 5 Brick), [Accept] and [Deny]."
        )

    def extract(self, reply: str) -> str | None:
        """Returns what the reply says aloud as one line, the words first, then the action; None if unreadable."""
        said = spoken(reply)
        return None if said is None else self._read(said)

    def is_action(self, said: str) -> bool:
        """Returns whether anything can be read: words are free, beside an offer too."""
        return self.extract(said) is not None

    def _canonical(self, reply: str) -> str | None:
        return self.extract(reply)

    def _read(self, action: str) -> str | None:
        return read_talk(action, _OPENING, _read_group, self.max_talk)

    def _objection(self, action: str) -> str | None:
        _, group = split_talk(action)
        stock = self.stock[self._mover()]
        if group == _ACCEPT:
            if self.offer is None:
                return "There is no open offer to accept. Try again."
            if not _covers(stock, amounts(self.offer)[1]):
                return "You do not hold what the offer asks for. Try again."
        elif group not in {"", _DENY} and not _covers(stock, amounts(group)[0]):
            return "You do not hold what you offer. Try again."
        return None

    def _play(self, action: str) -> int | tuple[Outcome, ...]:
        seat = self._mover()
        other = 1 - seat
        words, group = split_talk(action)
        self._talk[seat] += len(words)
        self._tell(other, f"Opponent: {action}")
        standing, self.offer = self.offer, None
        if group == _ACCEPT:
            self._trade(other, seat, *amounts(standing or ""))
            self.offers[-1] = (other, standing or "", True)
        elif group not in {"", _DENY}:
            self.offer = group
            self.offers.append((seat, group, False))
            give, take = map(_goods, amounts(group))
            self._tell(other, f"Open offer: you would get {give} for {take}.")
        left = self.max_turns - self.actions_played
        if not left:
            return self._settle()
        if left == 1:
            self._tell(other, "This is the last turn.")
        return other

    def _trade(self, giver: int, taker: int, give: Amounts, take: Amounts) -> None:
        for seat, paid, got in ((giver, give, take), (taker, take, give)):
            change = [plus - minus for plus, minus in zip(got, paid, strict=True)]
            self.stock[seat] = [held + units for held, units in zip(self.stock[seat], change, strict=True)]
            self.gains[seat] += sum(units * value for units, value in zip(change, self.values[seat], strict=True))
            self._tell(seat, f"Trade: you get {_goods(got)} for {_goods(paid)}. You hold {_goods(self.stock[seat])}.")
            self._tell(seat, f"Your gain since the start is {self.gains[seat]}.")

    def _settle(self) -> tuple[Outcome, ...]:
        for seat, gain in enumerate(self.gains):
            self._tell(seat, f"The end: you gained {gain}, the opponent gained {self.gains[1 - seat]}.")
        if self.gains[0] == self.gains[1]:
            return self._drawn()
        return self._won_by(0 if self.gains[0] > self.gains[1] else 1)

    def legal_actions(self) -> list[str]:
        """Returns ``[Deny]``, ``[Accept]`` where possible, offers of what is held, and a few sentences."""
        if self.to_move is None:
            return []
        stock = self.stock[self.to_move]
        actions = [_DENY]
        if self.offer is not None and _covers(stock, amounts(self.offer)[1]):
            actions.append(_ACCEPT)
        actions += [text for k, units, text in _listed() if units <= stock[k]]
        return [*actions, *_TALK]

    def _state(self) -> dict[str, Any]:
        return {
            "stock": [list(stock) for stock in self.stock],
            "values": [list(values) for values in self.values],
            "gains": list(self.gains),
            "offer": self.offer,
            "offers": [list(offer) for offer in self.offers],
            "talk": list(self._talk),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.stock = [list(stock) for stock in state["stock"]]
        self.values = [list(values) for values in state["values"]]
        self.gains = list(state["gains"])
        self.offer = state["offer"]
        self.offers = [(seat, offer, accepted) for seat, offer, accepted in state["offers"]]
        self._talk = list(state["talk"])


def offer_text(give: Amounts, take: Amounts) -> str:
    """Returns the canonical offer, such as ``[Offer: 2 Wheat -> 1 Wood]``; both sides hold at least one unit."""
    return f"[Offer: {_goods(give)} -> {_goods(take)}]"


@functools.lru_cache(maxsize=4096)
def amounts(offer: str) -> tuple[Amounts, Amounts]:
    """Returns what an offer gives and what it asks for.

    Raises:
      ValueError: it is no offer.
    """
    match = _OFFER.fullmatch(offer)
    sides = () if match is None else (_side(match[1]), _side(match[2].rstrip(" .,!?")))
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        raise ValueError(f"an offer must look like [Offer: 3 Sheep, 2 Ore -> 5 Brick], got {offer!r}")
    return sides[0], sides[1]


@functools.lru_cache(maxsize=4096)  # a group is bounded in length (`free_text.LONGEST_GROUP`)
def _read_group(group: str) -> str | None:
    match = _ANSWER.fullmatch(group)
    if match is not None:
        return _ACCEPT if match[1] else _DENY
    try:
        return offer_text(*amounts(group))
    except ValueError:
        return None


def _side(text: str) -> Amounts | None:
    """Returns the amounts of one side of an offer, or None if it is no list of goods."""
    units = [0] * len(RESOURCES)
    for part in _AND.split(text.strip()):
        match = _ITEM.fullmatch(part.strip())
        number = None if match is None else read_number(match[1])
        resource = None if match is None else _INDEX.get(match[2].lower())
        if number is None or number == "0" or resource is None:
            return None
        units[resource] = min(units[resource] + int(number), _COUNTLESS)
    return tuple(units)


def _goods(units: Amounts | list[int]) -> str:
    return ", ".join(f"{count} {name}" for count, name in zip(units, RESOURCES, strict=True) if count)


def _covers(stock: list[int], wanted: Amounts) -> bool:
    return all(held >= units for held, units in zip(stock, wanted, strict=True))


@functools.cache
def _listed() -> tuple[tuple[int, int, str], ...]:
    """Returns the offers that are listed as legal, as (resource given, units given, text).

    For every two resources a units of one for b of the other, the smallest of equal base value (2 Wheat for 1 Wood),
    and one for one where they are neighbours in value.
    """
    found = []
    kinds = range(len(RESOURCES))
    for i in kinds:
        for j in kinds:
            if i != j:
                common = math.gcd(BASE_VALUES[i], BASE_VALUES[j])
                rates = {(BASE_VALUES[j] // common, BASE_VALUES[i] // common)} | (
                    {(1, 1)} if abs(i - j) == 1 else set()
                )
                for a, b in sorted(rates):
                    give = tuple(a * (k == i) for k in kinds)
                    take = tuple(b * (k == j) for k in kinds)
                    found.append((i, a, offer_text(give, take)))
    return tuple(found)

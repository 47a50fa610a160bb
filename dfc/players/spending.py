"""What calls of a chat endpoint cost: counts of ids, money, and a budget that stops further requests."""

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dfc.players.remote import Message, PlayerError

_MOST_IDS = 10**12  # of one request


class BudgetExceeded(PlayerError):  # noqa: N818 - the word for it; it ends a call like any other PlayerError
    """The budget of an endpoint is spent: no further request is made."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Ids of one request.

    Attributes:
      input_ids: ids of the chat.
      output_ids: ids of the reply, thinking included.
      estimated: whether the server sent no counts, so that these come from the length of the texts.
    """

    input_ids: int
    output_ids: int
    estimated: bool = False


def estimated_usage(messages: Sequence[Message], reply: str) -> Usage:
    """Returns counts for a server that sends none: ceil(UTF-8 bytes / 4) per text, and 4 more per message of the chat.

    Four bytes per id is usual for English with vocabularies of 100,000; other scripts need more ids than that.
    """
    chat = sum(4 + _ids(message["content"]) for message in messages)
    return Usage(chat, _ids(reply), estimated=True)


def _ids(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4)


def reported_usage(usage: object) -> Usage | None:
    """Returns the counts in the ``usage`` field of an answer; None where they are no whole numbers from 0 to 1e12."""
    if not isinstance(usage, Mapping):
        return None
    inputs, outputs = usage.get("prompt_tokens"), usage.get("completion_tokens")
    # bool is an int, but no count; a number that no float holds would break every later sum of money.
    if type(inputs) is int and type(outputs) is int and 0 <= inputs <= _MOST_IDS and 0 <= outputs <= _MOST_IDS:
        return Usage(inputs, outputs)
    return None


@dataclasses.dataclass
class _Counts:
    calls: int = 0
    replies: int = 0
    cache_hits: int = 0
    failures: int = 0
    requests: int = 0
    retries: int = 0
    time_limits: int = 0
    cache_write_failures: int = 0
    input_ids: int = 0
    output_ids: int = 0
    estimated_replies: int = 0
    paused_seconds: float = 0.0


class Spending:
    """Counts of one endpoint; safe to share between threads."""

    def __init__(
        self,
        name: str,
        *,
        input_price: float = 0.0,
        output_price: float = 0.0,
        budget_money: float = 0.0,
        budget_ids: int = 0,
    ) -> None:
        """Starts at nothing.

        Args:
          name: of the endpoint, for the error.
          input_price: money per million ids of chats.
          output_price: money per million ids of replies.
          budget_money: no request is made once this much is spent; 0: no limit.
          budget_ids: no request is made once this many ids went in and out; 0: no limit.
        """
        self._name = name
        self._input_price = input_price
        self._output_price = output_price
        self._budget_money = budget_money
        self._budget_ids = budget_ids
        self._lock = threading.Lock()
        self._counts = _Counts()

    def count(self, **more: float) -> None:
        """Adds to counts by name, such as ``retries=1``."""
        with self._lock:
            for name, number in more.items():
                setattr(self._counts, name, getattr(self._counts, name) + number)

    def charge(self, usage: Usage) -> None:
        """Adds the ids of one request."""
        self.count(input_ids=usage.input_ids, output_ids=usage.output_ids, estimated_replies=int(usage.estimated))

    @property
    def money(self) -> float:
        """Input ids x input price / 1e6 + output ids x output price / 1e6, in the unit of the prices.

        Discounts, such as for chats the server has in its own cache, are not known here: it is an upper bound.
        """
        with self._lock:
            return self._money()

    def _money(self) -> float:
        counts = self._counts
        return (counts.input_ids * self._input_price + counts.output_ids * self._output_price) / 1e6

    def check(self) -> None:
        """Returns if another request may be made.

        Raises:
          BudgetExceeded: not so; says what is spent and which setting to raise.
        """
        with self._lock:
            counts, money = self._counts, self._money()
        ids = counts.input_ids + counts.output_ids
        if self._budget_money and money >= self._budget_money:
            over = f"{money:.6g} of a budget of {self._budget_money:g} in money is spent"
            cure = "budget_money"
        elif self._budget_ids and ids >= self._budget_ids:
            over = f"{ids} of a budget of {self._budget_ids} ids are spent"
            cure = "budget_ids"
        else:
            return
        raise BudgetExceeded(
            f"{self._name}: {over} ({counts.input_ids} ids in, {counts.output_ids} out, {counts.requests} requests); "
            f"no further request is made; raise EndpointConfig.{cure} (0: no limit) to go on"
        )

    def report(self) -> dict[str, Any]:
        """Returns every count and the money, ready for JSON."""
        with self._lock:
            found = {**dataclasses.asdict(self._counts), "money": self._money()}
        found["paused_seconds"] = round(found["paused_seconds"], 3)
        return found

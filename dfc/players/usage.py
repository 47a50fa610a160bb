"""What calls of a chat endpoint cost: counts of tokens, money, and a budget that stops further requests."""

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dfc.players.remote import ChatMessage, PlayerError

_MOST_TOKENS = 10**12  # of one request


class BudgetExceeded(PlayerError):  # noqa: N818 - the word for it; it ends a call like any other PlayerError
    """The budget of an endpoint is spent: no further request is made."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Tokens of one request.

    Attributes:
      input_tokens: tokens of the chat.
      output_tokens: tokens of the reply, thinking included.
      estimated: whether the server sent no counts, so that these come from the length of the texts.
    """

    input_tokens: int
    output_tokens: int
    estimated: bool = False


def estimated_usage(messages: Sequence[ChatMessage], reply: str) -> Usage:
    """Returns counts for a server that sends none: ceil(UTF-8 bytes / 4) per text, and 4 more per message of the chat.

    Four bytes per token is usual for English with vocabularies of 100,000; other scripts need more tokens than that.
    """
    chat = sum(4 + _num_tokens(message["content"]) for message in messages)
    return Usage(chat, _num_tokens(reply), estimated=True)


def _num_tokens(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4)


def reported_usage(usage: object) -> Usage | None:
    """Returns the counts in the ``usage`` field of an answer; None where they are no whole numbers from 0 to 1e12."""
    if not isinstance(usage, Mapping):
        return None
    inputs, outputs = usage.get("prompt_tokens"), usage.get("completion_tokens")
    # bool is an int, but no count; a number that no float holds would break every later sum of money.
    if type(inputs) is int and type(outputs) is int and 0 <= inputs <= _MOST_TOKENS and 0 <= outputs <= _MOST_TOKENS:
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
    input_tokens: int = 0
    output_tokens: int = 0
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
        budget_tokens: int = 0,
    ) -> None:
        """Starts at nothing.

        Args:
          name: of the endpoint, for the error.
          input_price: money per million tokens of chats.
          output_price: money per million tokens of replies.
          budget_money: no request is made once this much is spent; 0: no limit.
          budget_tokens: no request is made once this many tokens went in and out; 0: no limit.
        """
        self._name = name
        self._input_price = input_price
        self._output_price = output_price
        self._budget_money = budget_money
        self._budget_tokens = budget_tokens
        self._lock = threading.Lock()
        self._counts = _Counts()

    def count(self, **more: float) -> None:
        """Adds to counts by name, such as ``retries=1``."""
        with self._lock:
            for name, number in more.items():
                setattr(self._counts, name, getattr(self._counts, name) + number)

    def charge(self, usage: Usage) -> None:
        """Adds the tokens of one request."""
        self.count(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, estimated_replies=int(usage.estimated)
        )

    @property
    def money(self) -> float:
        """Input tokens x input price / 1e6 + output tokens x output price / 1e6, in the unit of the prices.

        Discounts, such as for chats the server has in its own cache, are not known here: it is an upper bound.
        """
        with self._lock:
            return self._money()

    def _money(self) -> float:
        counts = self._counts
        return (counts.input_tokens * self._input_price + counts.output_tokens * self._output_price) / 1e6

    def check(self) -> None:
        """Returns if another request may be made.

        Raises:
          BudgetExceeded: not so; says what is spent and which setting to raise.
        """
        with self._lock:
            counts, money = self._counts, self._money()
        tokens = counts.input_tokens + counts.output_tokens
        if self._budget_money and money >= self._budget_money:
            over = f"{money:.6g} of a budget of {self._budget_money:g} in money is spent"
            hint = "budget_money"
        elif self._budget_tokens and tokens >= self._budget_tokens:
            over = f"{tokens} of a budget of {self._budget_tokens} tokens are spent"
            hint = "budget_tokens"
        else:
            return
        raise BudgetExceeded(
            f"{self._name}: {over} ({counts.input_tokens} tokens in, {counts.output_tokens} out, {counts.requests} "
            f"requests); no further request is made; raise EndpointConfig.{hint} (0: no limit) to continue"
        )

    def report(self) -> dict[str, Any]:
        """Returns every count and the money, ready for JSON."""
        with self._lock:
            found = {**dataclasses.asdict(self._counts), "money": self._money()}
        found["paused_seconds"] = round(found["paused_seconds"], 3)
        return found

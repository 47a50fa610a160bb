"""The input of a trainer, from any method: a context with the tokens a policy wrote in it, and packed rows.

Tokens are the truth: what was sampled is what is trained on, token for token; text is never tokenized a second time.
"""

import dataclasses
from typing import NamedTuple, Self

import numpy as np

ARRAYS = ("token_ids", "mask", "sampled_logprobs", "versions", "choices")  # of a sample, [n] or [n, m] each


@dataclasses.dataclass(frozen=True)
class Sample:
    """One conversation of a policy, tokens only.

    Attributes:
      token_ids: the whole context: prompts, markup and replies, int32 [n].
      mask: where a token was sampled by the policy (and may be trained on), bool [n].
      sampled_logprobs: of those tokens under the distribution they were sampled from, float32 [n], 0 elsewhere.
      versions: of the weights that sampled each token, int32 [n], -1 elsewhere; None where they were not kept.
      choices: the tokens among which each was sampled, int32 [n, m] with -1 for padding; a row of -1 alone: the whole
        vocabulary. None: that everywhere.
    """

    token_ids: np.ndarray
    mask: np.ndarray
    sampled_logprobs: np.ndarray
    versions: np.ndarray | None = None
    choices: np.ndarray | None = None

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
        """Returns the arrays there are, by name."""
        return {name: array for name in ARRAYS if (array := getattr(self, name)) is not None}


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
      choices: int32 [B, T, M], as in `Sample`; None: every token was sampled from the whole vocabulary.
    """

    tokens: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    mask: np.ndarray
    advantages: np.ndarray
    sampled_logprobs: np.ndarray
    reference_logprobs: np.ndarray | None = None
    choices: np.ndarray | None = None

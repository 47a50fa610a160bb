"""Checks of an engine: tokens, seeds and probabilities that are invalid."""

from collections.abc import Sequence

import numpy as np

from dfc.errors import DecodingError


def check_seed(seed: int) -> None:
    """Raises ValueError unless a seed has 64 bits at most."""
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed {seed}: expected a number from 0 to 2 ** 64 - 1")


def check_token_ids(token_ids: Sequence[int], vocabulary: int) -> None:
    """Raises ValueError, naming the first token that is not of the vocabulary."""
    if len(token_ids) and not 0 <= min(token_ids) <= max(token_ids) < vocabulary:
        wrong = next(token_id for token_id in token_ids if not 0 <= token_id < vocabulary)
        raise ValueError(f"token {wrong}: expected one of the model's vocabulary, 0 to {vocabulary - 1}")


def check_numbers(logprobs: np.ndarray, policy: str, version: int) -> None:
    """Stops at a model that diverged: what it wrote into the cache would corrupt later conversations there, too.

    Raises:
      DecodingError: a log-probability is not a number.
    """
    if np.isnan(logprobs).any():
        raise DecodingError(
            f"policy {policy!r}, version {version}: its probabilities are not numbers, so "
            "its weights are not either, or are far too large: training has diverged, or the model's files are "
            "damaged; train again with a lower optimizer.learning_rate in another --workdir, or get the files again"
        )

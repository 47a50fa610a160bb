"""Losses of the four methods: log-probabilities in, a sum with its weight out.

Every function here is pure. It takes log-probabilities that the caller computed (`dfc.logprobs`) and a mask, and
returns a `Loss`: a sum, the number of units it runs over, and metrics summed over the same units. The trainer sums
up micro-batches and devices and divides once, so padding, packing and the cut into micro-batches cannot change a
result.

Conventions. All `[batch, time]` arrays have the same shape. A mask is 1 (or True) at an action token, one that the
trained policy sampled, and 0 elsewhere; every nonzero value counts as 1. What stands where the mask is 0, NaN and
infinities included, changes neither a value nor a gradient. Sums are taken in float32 or wider. Gradients flow into
the policy's log-probabilities only. Coefficients are Python numbers, fixed when a caller compiles.

Packed rows. Without `segments` a row is one trajectory. With `segments`, int `[batch, time]`, position t of a row
belongs to that row's trajectory 1..num_segments, and 0 is padding, never counted. A number outside 0..num_segments
makes the total NaN: compiled code cannot raise, and a trajectory must not vanish without a trace.
`packed_preference_loss` reads segments 2k-1 and 2k of a row as the two sides of its pair k.

A loss of your own is made of the same pieces: values per token, [batch, time], of `log_likelihood_ratio`,
`clipped_surrogate` and `k3`, or of your own, and `aggregate`, which makes a `Loss` of them.
"""

from dfc.losses.aggregation import aggregate
from dfc.losses.importance import ImportanceMode, ImportanceSums
from dfc.losses.language_self_play import lsp_challenger_loss, lsp_solver_loss
from dfc.losses.loss import Loss
from dfc.losses.policy_gradient import Surrogate, clipped_surrogate, grpo_loss, k3, log_likelihood_ratio
from dfc.losses.preference import dpo_loss, packed_preference_loss, rpo_loss, simpo_loss
from dfc.losses.sequences import Unit
from dfc.losses.supervised import sft_loss

__all__ = [
    "ImportanceMode",
    "ImportanceSums",
    "Loss",
    "Surrogate",
    "Unit",
    "aggregate",
    "clipped_surrogate",
    "dpo_loss",
    "grpo_loss",
    "k3",
    "log_likelihood_ratio",
    "lsp_challenger_loss",
    "lsp_solver_loss",
    "packed_preference_loss",
    "rpo_loss",
    "sft_loss",
    "simpo_loss",
]

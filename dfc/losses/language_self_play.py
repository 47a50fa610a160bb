"""The two losses of Language Self-Play."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dfc.losses.inputs import advantages_input, constant_input, not_negative, one_of, policy_inputs
from dfc.losses.loss import Loss, summed


def lsp_solver_loss(
    logprobs: ArrayLike,
    mask: ArrayLike,
    advantages: ArrayLike,
    reference_logprobs: ArrayLike,
    *,
    beta: float,
    kl_gradient: Literal["published", "score_function"] = "published",
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""The Solver's loss of Language Self-Play.

    With s_i the sum of log pi over the action tokens of answer i, s_ref_i the same under the reference, and sg the
    stop-gradient::

        total = sum_i -(exp(s_i - sg(s_i)) A_i - beta (s_i - s_ref_i))

    The first factor has the value 1 and the gradient of s_i.

    On what the KL term does: as published, its gradient is beta times that of s_i, which does not depend on the
    reference and whose expectation under the policy is zero, so it does not hold the policy near the reference.
    `kl_gradient="score_function"` keeps the value of the loss and gives the unbiased gradient of the KL divergence::

        -(exp(s_i - sg(s_i)) (A_i - beta sg(s_i - s_ref_i)))

    Args:
      logprobs: floating [batch, time], log pi of each token; the N x G answers are rows, or packed into rows.
      mask: [batch, time], 1 at action tokens.
      advantages: floating [batch] (see `dfc.advantages.solver`), or [batch, time], constant within an answer.
      reference_logprobs: floating [batch, time].
      beta: 0 or more.
      kl_gradient: how the KL term is differentiated.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of answers in a row; given together with `segments`.

    Returns:
      Unit: an answer with at least one action token (N x G of them). Metrics: `log_ratio`, s - s_ref, on-policy an
      estimate of the KL divergence; `logprob`, s; `advantage`.

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 4. Departure: the option `kl_gradient`.

    >>> logprobs = jnp.asarray([[-1.0, -2.0], [-1.0, -1.0]])
    >>> loss = lsp_solver_loss(logprobs, jnp.ones((2, 2)), jnp.asarray([1.0, -1.0]), logprobs - 1.0, beta=0.25)
    >>> float(loss.total), float(loss.weight)
    (1.0, 2.0)
    """
    arrays = (logprobs, mask, advantages, reference_logprobs)
    return _lsp_loss("lsp_solver_loss", arrays, beta, kl_gradient, (segments, num_segments))


def lsp_challenger_loss(
    logprobs: ArrayLike,
    mask: ArrayLike,
    advantages: ArrayLike,
    reference_logprobs: ArrayLike,
    *,
    beta: float,
    kl_gradient: Literal["published", "score_function"] = "published",
    segments: ArrayLike | None = None,
    num_segments: int | None = None,
) -> Loss:
    r"""The Challenger's loss of Language Self-Play: `lsp_solver_loss` over queries instead of answers.

    The same formula, with s_i the log-probability of query i given the challenger prompt.

    Args:
      logprobs: floating [batch, time], log pi of each token; the N queries are rows, or packed into rows.
      mask: [batch, time], 1 at the tokens of a query.
      advantages: floating [batch] (see `dfc.advantages.challenger`), or [batch, time], constant within a query.
      reference_logprobs: floating [batch, time].
      beta: 0 or more.
      kl_gradient: see `lsp_solver_loss`.
      segments: int [batch, time], for packed rows.
      num_segments: the largest number of queries in a row; given together with `segments`.

    Returns:
      Unit: a query with at least one action token (N of them). Metrics: those of `lsp_solver_loss`. The method's total
      loss is the Solver's mean plus alpha_Ch times the Challenger's (Algorithm 1, line 6).

    Raises:
      ValueError: shapes, types or coefficients do not fit.

    Source: Language Self-Play (arXiv 2509.07414), section 3, eq. 5. Departure: the option `kl_gradient`.

    >>> logprobs = jnp.asarray([[-1.0, -2.0]])
    >>> float(lsp_challenger_loss(logprobs, jnp.ones((1, 2)), jnp.asarray([0.5]), logprobs, beta=0.1).mean)
    -0.5
    """
    arrays = (logprobs, mask, advantages, reference_logprobs)
    return _lsp_loss("lsp_challenger_loss", arrays, beta, kl_gradient, (segments, num_segments))


def _lsp_loss(
    where: str,
    arrays: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike],
    beta: float,
    kl_gradient: str,
    segments: tuple[ArrayLike | None, int | None],
) -> Loss:
    not_negative(where, beta=beta)
    one_of(where, ("published", "score_function"), kl_gradient=kl_gradient)
    logprobs, mask, advantages, reference_logprobs = arrays
    logp, counted, packing = policy_inputs(where, logprobs, mask, *segments)
    token_advantages = jnp.where(counted, advantages_input(where, advantages, logp), 0)
    token_references = jnp.where(counted, constant_input(where, "reference_logprobs", reference_logprobs, logp), 0)
    logp = jnp.where(counted, logp, 0)

    lengths = packing.sums(counted.astype(logp.dtype))
    advantage = packing.sums(token_advantages) / jnp.maximum(lengths, 1)
    logprob, log_ratio = packing.sums(logp), packing.sums(logp - token_references)
    score = jnp.exp(logprob - jax.lax.stop_gradient(logprob))
    if kl_gradient == "published":
        values = -(score * advantage - beta * log_ratio)
    else:
        values = -score * (advantage - beta * jax.lax.stop_gradient(log_ratio))
    # A sequence without an action token has score 1 but advantage and log ratio 0: it adds nothing.
    metrics = {"log_ratio": log_ratio.sum(), "logprob": logprob.sum(), "advantage": advantage.sum()}
    return summed(packing.checked(values.sum()), (lengths > 0).sum(), metrics)

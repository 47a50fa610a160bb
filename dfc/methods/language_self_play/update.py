"""The update of Language Self-Play: both losses, what each is the mean over, the reference's log-probabilities."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dfc.config.self_play import LanguageSelfPlay
from dfc.losses import Loss, lsp_challenger_loss, lsp_solver_loss
from dfc.methods.language_self_play.roles import RoleAdvantages
from dfc.models.transformer import Params
from dfc.packing import Halves, packed, segment
from dfc.samples import Sample, TokenBatch
from dfc.training.run import Updated
from dfc.training.trainer import Trainer
from dfc.training.update_parts import LossFunction, Part

SOLVER, CHALLENGER = "solver", "challenger"
ROLES = (SOLVER, CHALLENGER)


def make_losses(config: LanguageSelfPlay) -> dict[str, LossFunction]:
    """Returns the losses of equations 4 and 5 by role, in the trainer's signature."""
    return {SOLVER: _loss(config, lsp_solver_loss), CHALLENGER: _loss(config, lsp_challenger_loss)}


def _loss(config: LanguageSelfPlay, formula: Callable[..., Loss]) -> LossFunction:
    def loss(logprobs: jax.Array, batch: TokenBatch, reference_logprobs: jax.Array) -> Loss:
        return formula(
            logprobs,
            batch.mask,
            batch.advantages,
            reference_logprobs,
            beta=config.kl_coefficient,
            kl_gradient=config.kl_gradient,
            segments=batch.segments,
            num_segments=batch.tokens.shape[1] // 2,  # a prompt and a reply have a token at least
        )

    return loss


def parts(
    config: LanguageSelfPlay,
    answers: Sequence[Sequence[Sample]],
    queries: Sequence[Sample],
    advantages: RoleAdvantages,
    halves: Halves = Halves(),  # noqa: B008 - frozen
) -> list[Part]:
    """Returns the parts of an update: the answers, and the queries if the Challenger learns.

    An answer or a query of advantage 0 is in it too: its KL term counts. Empty parts are left out. `answers`, by query,
    are fewer than in `advantages` where a query was not answered; `queries` are empty where they are data.
    """
    found = [
        (SOLVER, 1.0, [
            segment(sample, float(advantages.solver[i, j]))
            for i, group in enumerate(answers)
            for j, sample in enumerate(group)
            if advantages.trained_answers[i, j]
        ]),
    ]  # fmt: skip
    if config.trains_challenger:
        own = [
            segment(q, float(advantages.challenger[i])) for i, q in enumerate(queries) if advantages.trained_queries[i]
        ]
        found.append((CHALLENGER, config.challenger.coefficient, own))
    shape = config.batch.row_length, config.batch.micro_batch_rows
    return [
        Part(name, packed(segments, *shape, halves), coefficient)
        for name, coefficient, segments in found
        if any(one.mask.any() for one in segments)
    ]


def with_reference(
    trainer: Trainer, reference_params: Params, given: Sequence[Part], check_stop: Callable[[], None]
) -> list[Part]:
    """Returns the parts with the reference's log-probabilities, computed to the end, so that timings are right.

    `reference_params` are the model before training, as the trainer reads it (`Trainer.frozen_params`).
    """
    found = []
    for part in given:
        logprobs = trainer.reference_logprobs(reference_params, part.micro_batches, check_stop=check_stop)
        jax.block_until_ready(logprobs)  # type: ignore[no-untyped-call]  # jax leaves it untyped
        found.append(Part(part.name, part.micro_batches, part.coefficient, logprobs))
    return found


def step(
    trainer: Trainer,
    params: Params,
    optimizer: Any,  # noqa: ANN401 - any tree of arrays
    given: Sequence[Part],
    *,
    base_params: Params | None,
    donate: bool,
    check_stop: Callable[[], None],
) -> Updated:
    """Returns what is trained and the optimizer's state after one step for both losses, and its metrics.

    The trees are one, or one of each role by its name. With `donate` the memory of `params` and `optimizer` may be
    reused; adapters of roles leave theirs as it is, so that a stop between the two finds both as they were.
    """
    if not has_roles(params):
        made = trainer.update(params, optimizer, given, base_params=base_params, donate=donate, check_stop=check_stop)
        figures = {"loss": made.loss, "gradient_norm": made.gradient_norm, **made.metrics, **made.gap}
        return Updated(made.params, made.optimizer_state, figures)
    params, optimizer, metrics = dict(params), dict(optimizer), {"loss": 0.0, "gradient_norm": 0.0}
    for part in given:
        role = part.name
        made = trainer.update(params[role], optimizer[role], [part], base_params=base_params, check_stop=check_stop)
        params[role], optimizer[role] = made.params, made.optimizer_state
        own = {"gradient_norm": made.gradient_norm, **made.gap}
        metrics |= made.metrics | {f"{role}/{name}": value for name, value in own.items()}
        metrics["loss"] += made.loss
        metrics["gradient_norm"] = math.hypot(metrics["gradient_norm"], made.gradient_norm)
    return Updated(params, optimizer, metrics)


def has_roles(params: Params) -> bool:
    """Returns whether what is trained is a tree of each role, and not one for both."""
    return isinstance(params, Mapping) and SOLVER in params


def entropy(samples: Sequence[Sample]) -> float:
    """Returns an estimate of the entropy of a token: the mean of -log p over all that were sampled; 0 without."""
    found = [-sample.sampled_logprobs[sample.mask] for sample in samples]
    return float(np.mean(np.concatenate(found))) if found and sum(map(len, found)) else 0.0

"""From the advantages of an iteration to the step it takes: against the formulas, answer by answer, query by query."""

import dataclasses

import jax
import numpy as np
import one_layer
import optax
import pytest
from one_layer import CONFIG
from test_update_parts import ALPHA, BETA, RATE, ROW, by_hand, close

from dfc.config import BatchConfig
from dfc.config.self_play import ChallengerConfig, LanguageSelfPlay
from dfc.methods.language_self_play import update as learning
from dfc.methods.language_self_play.roles import role_advantages
from dfc.packing import Segment
from dfc.samples import Sample
from dfc.training.trainer import Trainer

params, reference_params = one_layer.params, one_layer.reference_params  # the fixtures
RUN = LanguageSelfPlay(
    groups_per_iteration=3,
    group_size=4,
    kl_coefficient=BETA,
    challenger=ChallengerConfig(coefficient=ALPHA, bad_queries="as_is"),
    batch=BatchConfig(row_length=ROW, micro_batch_rows=2),
)
REWARDS = np.array([[1.0, 0.0, 2.0, 5.0], [0.5, 0.5, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0]])
MARKS = np.array([[7.0, 0.0, 3.0, 0.0], [1.0, 1.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
# The last answer to the first query has no mark; the second query has two answers; all of the third are alike.
MASK = np.array([[True, True, True, False], [True, True, False, False], [True, True, True, True]])
SOLVED = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]


def written(seed):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(6, 15))
    tokens = rng.integers(0, CONFIG.vocabulary, size=length).astype(np.int32)
    return Sample(tokens, np.arange(length) >= 3, np.zeros(length, np.float32))


QUERIES = [written(number) for number in range(3)]
ANSWERS = [[written(10 * (i + 1) + j) for j in range(4)] for i in range(3)]


def made(config, params, reference_params, **changes):
    advantages = role_advantages(REWARDS, MARKS, MASK, np.zeros(3, bool), weight=0.5)
    trainer = Trainer(CONFIG, learning.make_losses(config), optax.sgd(RATE))
    given = learning.parts(config, ANSWERS, QUERIES, dataclasses.replace(advantages, **changes))
    given = learning.with_reference(trainer, trainer.frozen_params(reference_params), given, lambda: None)
    trained = trainer.initial_params(params)
    return trainer, trainer.update(trained, trainer.initial_state(trained), given)


def as_segment(sample, advantage):
    return Segment(sample.token_ids, sample.mask, advantage, sample.sampled_logprobs)


def test_a_step_is_that_of_the_formulas_and_an_answer_without_a_mark_is_nowhere_in_it(params, reference_params):
    """R + R_Q / 2 less its mean over the answers that count; -V + V_Q / 2 less its mean over the three queries."""
    trainer, found = made(RUN, params, reference_params)
    totals = {(i, j): REWARDS[i, j] + 0.5 * MARKS[i, j] for i, j in SOLVED}
    means = {i: np.mean([totals[at] for at in SOLVED if at[0] == i]) for i in range(3)}
    answers = [as_segment(ANSWERS[i][j], totals[i, j] - means[i]) for i, j in SOLVED]
    own = [-np.mean([1, 0, 2]) + 0.5 * np.mean([7, 0, 3]), -0.5 + 0.5, -3 + 0.5 * 2]
    queries = [as_segment(sample, own[i] - np.mean(own)) for i, sample in enumerate(QUERIES)]
    solver, of_answers = by_hand(params, reference_params, answers, "score_function")
    challenger, of_queries = by_hand(params, reference_params, queries, "score_function")
    assert (found.metrics["solver/weight"], found.metrics["challenger/weight"]) == (9, 3)
    assert found.loss == pytest.approx(solver + ALPHA * challenger, rel=1e-4)
    expected = jax.tree.map(lambda p, a, q: p - RATE * (a + ALPHA * q), params, of_answers, of_queries)
    close(found.params, trainer.initial_params(expected), atol=2e-5, rtol=0)


def test_both_losses_have_a_term_of_the_reference(params, reference_params):
    """Without any advantage what is left of either is beta (log pi - log pi_ref)."""
    nothing = {"solver": np.zeros((3, 4)), "challenger": np.zeros(3)}
    _, found = made(RUN, params, reference_params, **nothing)
    for role in ("solver", "challenger"):
        ratio = found.metrics[f"{role}/log_ratio"]
        assert abs(ratio) > 1e-2
        assert found.metrics[f"{role}/loss"] == pytest.approx(BETA * ratio, rel=1e-4)


def test_a_query_that_drops_out_is_in_no_loss(params, reference_params):
    """Not even its term of the reference is: the mean is over the two others."""
    _, found = made(RUN, params, reference_params, trained_queries=np.array([True, False, True]))
    advantages = role_advantages(REWARDS, MARKS, MASK, np.zeros(3, bool), weight=0.5)
    kept = [as_segment(QUERIES[i], advantages.challenger[i]) for i in (0, 2)]
    expected, _ = by_hand(params, reference_params, kept, "score_function")
    assert found.metrics["challenger/weight"] == 2
    assert found.metrics["challenger/loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("method", ["data", "untrained_challenger"])
def test_where_the_challenger_does_not_learn_its_queries_are_in_no_loss(params, reference_params, method):
    _, found = made(dataclasses.replace(RUN, method=method), params, reference_params)
    assert found.weight == found.metrics["solver/weight"] == 9
    assert not any(name.startswith("challenger") for name in found.metrics)

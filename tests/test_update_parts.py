"""Updates of several parts: one step along c_1 mean_1' + c_2 mean_2', against derivatives written by hand in numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import one_layer
import optax
import pytest
from one_layer import CONFIG

from dfc.config import GrpoConfig
from dfc.losses import lsp_challenger_loss, lsp_solver_loss
from dfc.models.lora import LoraConfig
from dfc.models.sharding import make_mesh
from dfc.models.transformer import bind
from dfc.packing import Segment, micro_batches, pack
from dfc.training.rl import make_loss
from dfc.training.trainer import Trainer
from dfc.training.update_parts import Part

ROW, BETA, ALPHA, RATE = 32, 0.3, 0.7, 0.1
params, reference_params = one_layer.params, one_layer.reference_params  # the fixtures


def segments(lengths, seed):
    """What a policy wrote behind a prompt, with an advantage; one of them of 0, which its KL term still counts."""
    rng, found = np.random.default_rng(seed), []
    for number, length in enumerate(lengths):
        mask = np.arange(length) >= max(1, length // 3)
        advantage = 0.0 if number == 1 else float(rng.normal())
        tokens = rng.integers(0, CONFIG.vocabulary, size=length).astype(np.int32)
        found.append(Segment(tokens, mask, advantage, np.zeros(length, np.float32)))
    return found


ANSWERS, QUERIES = segments((9, 14, 5, 20, 11, 7, 30, 4), 0), segments((6, 13, 10), 1)


def lsp(loss, kl_gradient):
    def of_a_batch(logprobs, batch, reference):
        return loss(
            logprobs,
            batch.mask,
            batch.advantages,
            reference,
            beta=BETA,
            kl_gradient=kl_gradient,
            segments=batch.segments,
            num_segments=ROW // 2,
        )

    return of_a_batch


def losses(kl_gradient="score_function"):
    return {"solver": lsp(lsp_solver_loss, kl_gradient), "challenger": lsp(lsp_challenger_loss, kl_gradient)}


@functools.cache
def trainer(kl_gradient="score_function", devices=1, lora=None):
    mesh = None if devices == 1 else make_mesh(2, devices // 2, 1, devices=jax.devices()[:devices])
    return Trainer(CONFIG, losses(kl_gradient), optax.sgd(RATE), mesh=mesh, lora=lora)


def batches(found, rows=2):
    return micro_batches(pack(found, ROW, rows), rows)


def parts(rows=(2, 2), coefficient=ALPHA):
    return [
        Part("solver", batches(ANSWERS, rows[0])),
        Part("challenger", batches(QUERIES, rows[1]), coefficient),
    ]


def stepped(trainer, params, given, reference_params=None, **options):
    trained = trainer.initial_params(params)
    return trainer.update(trained, trainer.initial_state(trained), given, reference_params, **options)


def close(tree, other, **bounds):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **bounds), tree, other)


# ---- by hand ---------------------------------------------------------------------------------------------------------


def written(params, tokens):
    """Log-probabilities [ROW - 1] of each token of one sequence after its first, from all logits of its own row."""
    model = bind(CONFIG, params)
    hidden = model(tokens[None], jnp.arange(ROW)[None], jnp.ones((1, ROW), jnp.int32))[0]
    table = jax.nn.log_softmax(hidden @ model.output_embedding.T, axis=-1)
    return table[jnp.arange(ROW - 1), tokens[1:]]


@jax.jit
def pulled(params, tokens, cotangent):
    """The gradient of cotangent . written(params, tokens)."""
    return jax.vjp(lambda p: written(p, tokens), params)[1](cotangent)[0]


def by_hand(params, reference_params, sequences, kl_gradient):
    """Equation 4 or 5 of one role: the value, and the gradient as a weighted sum of those of log-probabilities."""
    values, gradients = [], []
    for one in sequences:
        tokens, counted = np.zeros(ROW, np.int32), np.zeros(ROW - 1)
        tokens[: len(one.token_ids)] = one.token_ids  # what follows a sequence is not seen from before
        counted[: len(one.token_ids) - 1] = one.mask[1:]
        own, behind = (np.asarray(jax.jit(written)(p, tokens), np.float64) for p in (params, reference_params))
        ratio = float(counted @ (own - behind))
        values.append(-(one.advantage - BETA * ratio))
        # d/ds of -(exp(s - sg(s)) A - beta (s - s_ref)), or with the KL term beside A, at exp(0) = 1.
        weight = -(one.advantage - (BETA if kl_gradient == "published" else BETA * ratio))
        gradients.append(pulled(params, tokens, (weight * counted).astype(np.float32)))
    return np.mean(values), jax.tree.map(lambda *g: sum(g) / len(g), *gradients)


@pytest.mark.parametrize("kl_gradient", ["score_function", "published"])
def test_value_and_gradient_of_both_losses_are_those_of_the_formulas(params, reference_params, kl_gradient):
    solver, of_answers = by_hand(params, reference_params, ANSWERS, kl_gradient)
    challenger, of_queries = by_hand(params, reference_params, QUERIES, kl_gradient)
    made = stepped(trainer(kl_gradient), params, parts(), reference_params)
    assert made.metrics["solver/loss"] == pytest.approx(solver, rel=1e-4)
    assert made.metrics["challenger/loss"] == pytest.approx(challenger, rel=1e-4)
    assert made.loss == pytest.approx(solver + ALPHA * challenger, rel=1e-4)
    assert (made.metrics["solver/weight"], made.metrics["challenger/weight"], made.weight) == (8, 3, 11)
    expected = jax.tree.map(lambda p, a, q: p - RATE * (a + ALPHA * q), params, of_answers, of_queries)
    close(made.params, trainer().initial_params(expected), atol=2e-5, rtol=0)
    # The step is not lost in the tolerance.
    moved = jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), expected, params)
    assert max(jax.tree.leaves(moved)) > 0.02


def test_the_kl_term_is_in_both_losses(params, reference_params):
    made = stepped(trainer(), params, parts(), reference_params)
    for role in ("solver", "challenger"):
        assert made.metrics[f"{role}/log_ratio"] != 0
        given = dict(made.metrics)
        expected = -given[f"{role}/advantage"] + BETA * given[f"{role}/log_ratio"]
        assert given[f"{role}/loss"] == pytest.approx(expected, rel=1e-5)


# ---- cuts ------------------------------------------------------------------------------------------------------------


def relative(tree, other, before):
    """The norm of the difference of two steps over that of a step."""
    flat = [np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(t)]) for t in (tree, other)]
    start = np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(before)])
    return np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1] - start)


@pytest.mark.parametrize(("rows", "devices"), [((1, 1), 1), ((2, 4), 1), ((4, 1), 1), ((4, 4), 4)])
def test_any_cut_into_micro_batches_and_devices_gives_the_same_step(params, reference_params, rows, devices):
    # A weight of 1 rounds to 1e-7: the step is made large beside it, so that rounding of the sum is what is compared.
    whole = stepped(trainer(), params, parts((8, 8)), reference_params)
    cut = stepped(trainer(devices=devices), params, parts(rows), reference_params)
    assert relative(cut.params, whole.params, trainer().initial_params(params)) < 2e-6
    assert cut.loss == pytest.approx(whole.loss, rel=5e-6)  # of terms of both signs, each of which rounds to 1e-7


def test_parts_and_their_coefficients_add_up(params, reference_params):
    """The step of both is the sum of each alone; the coefficient scales the second one's."""
    start = trainer().initial_params(params)
    both = stepped(trainer(), params, parts(coefficient=2.0), reference_params).params
    alone = [stepped(trainer(), params, [part], reference_params).params for part in parts(coefficient=1.0)]
    expected = jax.tree.map(lambda s, a, b: s + (a - s) + 2 * (b - s), start, *alone)
    assert relative(both, expected, start) < 1e-5


def test_an_update_of_one_loss_is_what_it_was(params, reference_params):
    """Its micro-batches alone, or as the only part of coefficient 1: the same sums, the same step."""
    loss = make_loss(GrpoConfig(kl_coefficient=0.2), ROW)
    plain, named = Trainer(CONFIG, loss, optax.sgd(RATE)), Trainer(CONFIG, {"one": loss}, optax.sgd(RATE))
    found = batches(ANSWERS)
    made = stepped(plain, params, found, reference_params)
    other = stepped(named, params, [Part("one", found)], reference_params)
    close(made.params, other.params, atol=1e-8, rtol=0)
    assert {f"one/{name}" for name in made.metrics} < other.metrics.keys()


def test_the_references_log_probabilities_can_be_taken_before(params, reference_params):
    given = [
        Part(p.name, p.micro_batches, p.coefficient, trainer().reference_logprobs(reference_params, p.micro_batches))
        for p in parts()
    ]
    before, within = stepped(trainer(), params, given), stepped(trainer(), params, parts(), reference_params)
    close(before.params, within.params, atol=0, rtol=0)
    assert before.metrics == within.metrics


def test_with_adapters_the_reference_is_the_base(params):
    lora = LoraConfig(rank=2, alpha=4.0)
    with_lora = trainer(lora=lora)
    base = with_lora.frozen_params(params)
    made = stepped(with_lora, params, parts(), base, base_params=base)
    # Fresh adapters change nothing: the policy is its reference.
    assert made.metrics["solver/log_ratio"] == pytest.approx(0, abs=1e-4)
    assert made.gradient_norm > 0


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_parts_that_are_none_of_the_trainers_are_refused(params, reference_params):
    solver, challenger = parts()
    for wrong in ([solver, solver], [Part("judge", solver.micro_batches)], solver.micro_batches):
        with pytest.raises(ValueError, match=r"expected some of the trainer's losses \['solver', 'challenger'\]"):
            stepped(trainer(), params, wrong, reference_params)
    with pytest.raises(ValueError, match="part 'challenger': expected one or more micro-batches"):
        stepped(trainer(), params, [solver, Part("challenger", [])], reference_params)
    short = Part("challenger", challenger.micro_batches, reference_logprobs=[])
    with pytest.raises(ValueError, match="one array of the reference for each if any, got 1 and 0"):
        stepped(trainer(), params, [solver, short], reference_params)

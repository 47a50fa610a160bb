"""Every loss against loops in PyTorch (values and gradients), and the identities that must hold between them."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc import losses

# Five rows: gaps, padding in front, a full row, an empty row, a single id.
MASK = np.asarray([[int(c) for c in row] for row in ("0110110", "0001110", "1111111", "0000000", "0000010")])
BATCH, TIME = MASK.shape
GARBAGE = (np.nan, np.inf, -np.inf)


def draw(seed, *shape, low=-4.0, high=-0.05):
    return np.random.default_rng(seed).uniform(low, high, shape or (BATCH, TIME)).astype(np.float32)


LOGP, OLD, REF = draw(1), draw(2), draw(3)
ADVANTAGES = np.asarray([1.5, -0.7, 0.4, 2.0, -1.1], np.float32)


def near(array, seed, spread=0.3):
    """Log-probabilities near others, so that some ratios are clipped and some are not."""
    return (array + np.random.default_rng(seed).uniform(-spread, spread, array.shape)).astype(np.float32)


# ---- oracles: loops over trajectories in float64, differentiated by PyTorch ---------------------------------------


def rows_of(mask):
    return [[t for t in range(mask.shape[1]) if mask[i, t]] for i in range(mask.shape[0])]


def torch_sft(lp, mask):
    per_row = [-sum(lp[i, t] for t in ids) / len(ids) for i, ids in enumerate(rows_of(mask)) if ids]
    return sum(per_row), len(per_row)


def torch_grpo(lp, old, ref, adv, mask, *, unit, low, high, kl):
    rows = []
    for i, ids in enumerate(rows_of(mask)):
        row = []
        for t in ids:
            ratio = torch.exp(lp[i, t] - old[i, t])
            gain = torch.minimum(ratio * adv[i], torch.clamp(ratio, 1 - low, 1 + high) * adv[i])
            k3 = torch.exp(ref[i, t] - lp[i, t]) - (ref[i, t] - lp[i, t]) - 1
            row.append(-gain + kl * k3)
        if row:
            rows.append(row)
    if unit == "token":
        return sum(itertools.chain(*rows)), sum(map(len, rows))
    return sum(sum(row) / len(row) for row in rows), len(rows)


def torch_dpo(chosen, rejected, beta, alpha):
    (lp_w, mask_w, ref_w), (lp_l, mask_l, ref_l) = chosen, rejected
    total, pairs = 0, 0
    for i, (ids_w, ids_l) in enumerate(zip(rows_of(mask_w), rows_of(mask_l), strict=True)):
        if ids_w and ids_l:
            margin = sum(lp_w[i, t] - ref_w[i, t] for t in ids_w) - sum(lp_l[i, t] - ref_l[i, t] for t in ids_l)
            likelihood = sum(lp_w[i, t] for t in ids_w) / len(ids_w)
            total = total - torch.nn.functional.logsigmoid(beta * margin) - alpha * likelihood
            pairs += 1
    return total, pairs


def torch_lsp(lp, ref, adv, mask, beta):
    """Eq. 4 and 5 with probabilities of whole sequences, as products."""
    total, sequences = 0, 0
    for i, ids in enumerate(rows_of(mask)):
        if ids:
            p = math.prod(torch.exp(lp[i, t]) for t in ids)
            p_ref = math.prod(torch.exp(ref[i, t]) for t in ids)
            total = total - (p / p.detach() * adv[i] - beta * torch.log(p / p_ref))
            sequences += 1
    return total, sequences


def as_torch(*arrays):
    return [torch.tensor(np.asarray(a, np.float64)) for a in arrays]


def assert_agrees(loss_of, oracle_of, *policy, rtol=2e-5):
    """Same total, weight and gradient, with respect to each of the policy's arrays."""
    leaves = [t.requires_grad_() for t in as_torch(*policy)]
    total, weight = oracle_of(*leaves)
    total.backward()

    def with_total(*arrays):
        result = loss_of(*arrays)
        return result.total, result

    grads, loss = jax.jit(jax.grad(with_total, argnums=tuple(range(len(policy))), has_aux=True))(*policy)
    np.testing.assert_allclose(loss.total, total.item(), rtol=rtol)
    assert float(loss.weight) == weight
    np.testing.assert_allclose(loss.mean, total.item() / weight, rtol=rtol)
    for ours, leaf in zip(grads, leaves, strict=True):
        np.testing.assert_allclose(ours, leaf.grad.numpy(), rtol=rtol, atol=1e-6)


def test_sft_agrees_with_a_loop_over_trajectories():
    assert_agrees(lambda lp: losses.sft_loss(lp, MASK), lambda lp: torch_sft(lp, MASK), LOGP)


@pytest.mark.parametrize("unit", ["token", "sequence"])
@pytest.mark.parametrize(("low", "high", "kl"), [(0.1, None, 0.0), (0.1, 0.3, 0.2), (0.0, None, 1.0)])
def test_grpo_agrees_with_a_loop_over_ids(unit, low, high, kl):
    old, ref, adv = as_torch(near(LOGP, 4), near(LOGP, 5), ADVANTAGES)
    assert_agrees(
        lambda lp: losses.grpo_loss(
            lp,
            near(LOGP, 4),
            ADVANTAGES,
            MASK,
            clip_ratio=low,
            clip_ratio_high=high,
            reference_logprobs=near(LOGP, 5),
            kl_coefficient=kl,
            unit=unit,
        ),
        lambda lp: torch_grpo(lp, old, ref, adv, MASK, unit=unit, low=low, high=low if high is None else high, kl=kl),
        LOGP,
    )


OTHER_MASK = np.asarray([[int(c) for c in row] for row in ("0110", "1111", "0000", "1100", "0001")])
OTHER, OTHER_REF = draw(6, BATCH, 4), draw(7, BATCH, 4)


def test_dpo_agrees_with_a_loop_over_pairs_of_unequal_length():
    ref, other_ref = as_torch(REF, OTHER_REF)
    assert_agrees(
        lambda w, other: losses.dpo_loss(w, MASK, other, OTHER_MASK, REF, OTHER_REF, beta=0.3),
        lambda w, other: torch_dpo((w, MASK, ref), (other, OTHER_MASK, other_ref), 0.3, 0.0),
        LOGP,
        OTHER,
    )


def test_rpo_agrees_with_a_loop_over_pairs():
    ref, other_ref = as_torch(REF, OTHER_REF)
    assert_agrees(
        lambda w, other: losses.rpo_loss(w, MASK, other, OTHER_MASK, REF, OTHER_REF, beta=0.3, alpha=0.7),
        lambda w, other: torch_dpo((w, MASK, ref), (other, OTHER_MASK, other_ref), 0.3, 0.7),
        LOGP,
        OTHER,
    )


@pytest.mark.parametrize("loss", [losses.lsp_solver_loss, losses.lsp_challenger_loss])
def test_lsp_losses_agree_with_products_of_probabilities(loss):
    ref, adv = as_torch(REF, ADVANTAGES)
    assert_agrees(
        lambda lp: loss(lp, MASK, ADVANTAGES, REF, beta=0.2),
        lambda lp: torch_lsp(lp, ref, adv, MASK, 0.2),
        LOGP,
    )


# ---- one table of losses, many properties -------------------------------------------------------------------------


def sft(lp, _old, _ref, _adv, mask, **packing):
    return losses.sft_loss(lp, mask, **packing)


def grpo(unit, lp, old, ref, adv, mask, **packing):
    return losses.grpo_loss(
        lp, old, adv, mask, reference_logprobs=ref, kl_coefficient=0.3, unit=unit, clip_ratio=0.2, **packing
    )


def lsp(kl_gradient, lp, _old, ref, adv, mask, **packing):
    return losses.lsp_solver_loss(lp, mask, adv, ref, beta=0.1, kl_gradient=kl_gradient, **packing)


def dpo(lp, old, ref, _adv, mask):
    return losses.dpo_loss(lp, mask, old, mask[:, ::-1], ref, ref)


def rpo(lp, old, ref, _adv, mask):
    return losses.rpo_loss(lp, mask, old, mask[:, ::-1], ref, ref)


PACKABLE = {
    "sft": sft,
    "grpo_token": functools.partial(grpo, "token"),
    "grpo_sequence": functools.partial(grpo, "sequence"),
    "lsp_published": functools.partial(lsp, "published"),
    "lsp_score_function": functools.partial(lsp, "score_function"),
}
PAIRED = {"dpo": dpo, "rpo": rpo}  # the second array is the rejected side, under the mask read backwards
ALL = PACKABLE | PAIRED
every_loss = pytest.mark.parametrize("loss", ALL.values(), ids=ALL)
every_packable_loss = pytest.mark.parametrize("loss", PACKABLE.values(), ids=PACKABLE)
BATCH_ARRAYS = (LOGP, near(LOGP, 4), near(LOGP, 5), ADVANTAGES, MASK)


@functools.cache
def compiled(loss):
    """The loss and the gradient of its total in one program, compiled once per shape for all tests."""

    def both(lp, *rest, **packing):
        def total(x):
            result = loss(x, *rest, **packing)
            return result.total, result

        grad, result = jax.grad(total, has_aux=True)(lp)
        return result, grad

    return jax.jit(both, static_argnames="num_segments")


def value_and_grad(loss, *arrays, **packing):
    """The loss, and the gradient of its total."""
    result, grad = compiled(loss)(*arrays, **packing)
    return result, np.asarray(grad)


def value(loss, *arrays, **packing):
    return compiled(loss)(*arrays, **packing)[0]


def assert_same(one, other, rtol=2e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6), one, other)


@every_loss
def test_what_stands_at_masked_positions_changes_neither_value_nor_gradient(loss):
    clean, clean_grad = value_and_grad(loss, *BATCH_ARRAYS)
    # dpo and rpo read the second array under the reversed mask.
    other_mask = MASK[:, ::-1] if loss in PAIRED.values() else MASK
    unread = ~((MASK | other_mask).astype(bool))
    for garbage in GARBAGE:
        lp, old = np.where(MASK, LOGP, garbage), np.where(other_mask, BATCH_ARRAYS[1], garbage)
        ref = np.where(unread, garbage, BATCH_ARRAYS[2])
        adv = np.where(MASK.any(axis=1), ADVANTAGES, garbage)
        dirty, dirty_grad = value_and_grad(loss, *(a.astype(np.float32) for a in (lp, old, ref, adv)), MASK)
        assert_same(clean, dirty, rtol=0)
        np.testing.assert_array_equal(clean_grad, dirty_grad)
        assert (dirty_grad[MASK == 0] == 0).all()


@every_loss
def test_an_all_masked_batch_gives_zero_and_a_zero_gradient(loss):
    arrays = (*BATCH_ARRAYS[:4], np.zeros_like(MASK))
    result = value(loss, *arrays)
    assert float(result.total) == float(result.weight) == float(result.mean) == 0
    assert all(float(m) == 0 for m in (result.metrics | result.metric_means).values())
    grad = jax.jit(jax.grad(lambda lp: loss(lp, *arrays[1:]).mean))(arrays[0])
    assert (np.asarray(grad) == 0).all()


@every_loss
def test_padding_does_not_change_the_loss(loss):
    *arrays, adv, mask = BATCH_ARRAYS
    symmetric = ((2, 0), (3, 3))  # dpo and rpo read the mask backwards
    padded = [np.pad(a, symmetric, constant_values=-9.0) for a in arrays]
    adv_padded = np.pad(adv, (2, 0), constant_values=7.0)
    long, long_grad = value_and_grad(loss, *padded, adv_padded, np.pad(mask, symmetric))
    short, short_grad = value_and_grad(loss, *BATCH_ARRAYS)
    assert_same(long, short)
    np.testing.assert_allclose(long_grad[2:, 3:-3], short_grad, rtol=2e-5)


@every_loss
def test_micro_batches_add_up(loss):
    whole = value(loss, *BATCH_ARRAYS)
    first, second = (value(loss, *(a[rows] for a in BATCH_ARRAYS)) for rows in (slice(0, 2), slice(2, None)))
    summed = jax.tree.map(jnp.add, first, second)
    assert_same(whole, summed)
    np.testing.assert_allclose(whole.mean, summed.mean, rtol=2e-5)


# Two rows of length 12 that hold the five trajectories of MASK in another order; 0 is padding.
PACKED = [[(2, slice(0, 7)), (1, slice(3, 6))], [(4, slice(4, 6)), (3, slice(0, 2)), (0, slice(0, 7))]]


def packed_arrays():
    rows = {name: np.full((2, 12), -3.0, np.float32) for name in ("lp", "old", "ref", "adv")}
    mask, segments = np.ones((2, 12), np.int32), np.zeros((2, 12), np.int32)  # padding is left out by its segment
    places = {}
    for row, members in enumerate(PACKED):
        start = 0
        for number, (i, span) in enumerate(members, start=1):
            length = span.stop - span.start
            here = (row, slice(start, start + length))
            for name, source in zip(rows, BATCH_ARRAYS, strict=False):
                rows[name][here] = source[i] if name == "adv" else source[i, span]
            mask[here], segments[here] = MASK[i, span], number
            places[i, span.start, span.stop] = here
            start += length
    return rows.values(), mask, segments, places


@every_packable_loss
def test_packed_rows_equal_unpacked_rows(loss):
    arrays, mask, segments, places = packed_arrays()
    packed, packed_grad = value_and_grad(loss, *arrays, mask, segments=segments, num_segments=int(segments.max()))
    rows, rows_grad = value_and_grad(loss, *BATCH_ARRAYS)
    assert_same(packed, rows)
    for (i, start, stop), here in places.items():
        np.testing.assert_allclose(packed_grad[here], rows_grad[i, start:stop], rtol=2e-5)
    assert (packed_grad[segments == 0] == 0).all()


@every_packable_loss
@pytest.mark.parametrize("bad", [3, -1])
def test_a_segment_id_out_of_range_makes_the_total_nan(loss, bad):
    arrays, mask, segments, _ = packed_arrays()
    segments = np.minimum(segments, 2)
    segments[0, 0] = bad
    assert np.isnan(value(loss, *arrays, mask, segments=segments, num_segments=2).total)


@every_loss
def test_jit_and_vmap_give_the_same(loss):
    eager = loss(*BATCH_ARRAYS)
    assert_same(value(loss, *BATCH_ARRAYS), eager)
    stacked = [np.stack([a, a[::-1]]) for a in BATCH_ARRAYS]
    mapped = jax.jit(jax.vmap(loss))(*stacked)
    assert_same(jax.tree.map(lambda x: x[0], mapped), eager)
    assert_same(jax.tree.map(lambda x: x[1], mapped), value(loss, *(a[::-1] for a in BATCH_ARRAYS)))


@every_loss
def test_bfloat16_inputs_are_summed_in_float32(loss):
    lp, old, ref = (jnp.asarray(a, jnp.bfloat16) for a in BATCH_ARRAYS[:3])
    narrow, grad = value_and_grad(loss, lp, old, ref, *BATCH_ARRAYS[3:])
    assert {leaf.dtype for leaf in jax.tree.leaves(narrow)} == {jnp.dtype(jnp.float32)}
    assert grad.dtype == jnp.bfloat16
    wide = (np.asarray(a, np.float32) for a in (lp, old, ref))
    assert_same(narrow, value(loss, *wide, *BATCH_ARRAYS[3:]), rtol=1e-6)


@pytest.mark.parametrize("loss", [ALL["sft"], ALL["dpo"]], ids=["sft", "dpo"])
@pytest.mark.parametrize("kind", [bool, np.float32, jnp.bfloat16, np.int8])
def test_a_mask_may_have_any_dtype(loss, kind):
    assert_same(loss(*BATCH_ARRAYS[:4], MASK.astype(kind)), loss(*BATCH_ARRAYS), rtol=0)


@every_loss
def test_no_gradient_reaches_constants_weight_or_metrics(loss):
    def everything(lp, old, ref, adv):
        result = loss(lp, old, ref, adv, MASK)
        aside = sum(result.metrics.values()) + result.weight
        return result.total, aside

    of_total, of_aside = jax.jit(jax.jacrev(everything, argnums=(0, 1, 2, 3)))(*BATCH_ARRAYS[:4])
    policy = of_total[:2] if loss in PAIRED.values() else of_total[:1]
    assert all((np.asarray(g) != 0).any() for g in policy)
    assert all((np.asarray(g) == 0).all() for g in (*of_total[len(policy) :], *of_aside))


@every_packable_loss
def test_a_batch_split_over_devices_gives_the_same(loss):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    arrays, mask, segments, _ = packed_arrays()
    *tiled, segments = [np.tile(a, (4, 1)) for a in (*arrays, mask, segments)]
    there = value(loss, *jax.device_put(tiled, spread), segments=jax.device_put(segments, spread), num_segments=5)
    assert_same(there, value(loss, *tiled, segments=segments, num_segments=5))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_order_of_rows_and_what_padding_holds_never_matter(data):
    bits = data.draw(st.lists(st.sampled_from([0, 1]), min_size=MASK.size, max_size=MASK.size))
    mask = np.asarray(bits).reshape(MASK.shape)
    order = data.draw(st.permutations(range(BATCH)))
    filler = data.draw(st.floats(width=32))
    shuffled = [np.where(mask, a, filler).astype(np.float32)[order] for a in BATCH_ARRAYS[:3]]
    for loss in PACKABLE.values():
        assert_same(
            value(loss, *shuffled, ADVANTAGES[order], mask[order]), value(loss, *BATCH_ARRAYS[:4], mask), rtol=1e-4
        )


# ---- identities ---------------------------------------------------------------------------------------------------


def test_on_policy_grpo_has_the_gradient_of_reinforce():
    def reinforce(lp):
        return -(jnp.where(MASK != 0, lp, 0) * jnp.broadcast_to(ADVANTAGES[:, None], MASK.shape)).sum()

    ours = jax.jit(jax.grad(lambda lp: losses.grpo_loss(lp, LOGP, ADVANTAGES, MASK).total))(LOGP)
    np.testing.assert_allclose(ours, jax.jit(jax.grad(reinforce))(LOGP), rtol=1e-6)


def test_token_and_sequence_units_agree_when_all_lengths_are_equal():
    mask = np.zeros((BATCH, TIME), bool)
    mask[:, 2:5] = True
    token, sequence = (value(PACKABLE[f"grpo_{unit}"], *BATCH_ARRAYS[:4], mask) for unit in ("token", "sequence"))
    np.testing.assert_allclose(token.mean, sequence.mean, rtol=1e-6)
    assert_same(token.metric_means, sequence.metric_means)
    assert float(token.weight) == 3 * float(sequence.weight)


def test_advantages_per_id_equal_advantages_per_row():
    spread = np.broadcast_to(ADVANTAGES[:, None], MASK.shape)
    for loss in PACKABLE.values():
        assert_same(value(loss, *BATCH_ARRAYS[:3], spread, MASK), value(loss, *BATCH_ARRAYS))


def test_clipping_stops_the_gradient_on_one_side_only():
    old = jnp.zeros((4, 1))
    new = jnp.log(jnp.asarray([[1.5], [1.5], [0.5], [0.5]]))
    advantages = jnp.asarray([1.0, -1.0, 1.0, -1.0])
    loss, grad = value_and_grad(losses.grpo_loss, new, old, advantages, jnp.ones((4, 1)))
    assert [bool(g) for g in (grad != 0).ravel()] == [False, True, True, False]
    assert float(loss.metrics["clip_fraction"]) == 2


def test_the_two_bounds_of_the_clip_are_independent():
    new, old = jnp.log(jnp.asarray([[1.25]])), jnp.zeros((1, 1))
    totals = [
        float(losses.grpo_loss(new, old, jnp.ones(1), jnp.ones((1, 1)), clip_ratio=0.1, clip_ratio_high=high).total)
        for high in (None, 0.2, 0.3)
    ]
    np.testing.assert_allclose(totals, [-1.1, -1.2, -1.25], rtol=1e-6)


def test_the_kl_penalty_is_zero_at_the_reference_and_estimates_the_divergence():
    p, q = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.2, 0.5, 0.3])
    lp, ref = np.log(p)[:, None].astype(np.float32), np.log(q)[:, None].astype(np.float32)
    per_outcome = [
        float(
            losses.grpo_loss(
                lp[i : i + 1],
                lp[i : i + 1],
                np.zeros(1, np.float32),
                np.ones((1, 1)),
                reference_logprobs=ref[i : i + 1],
            ).metrics["kl"]
        )
        for i in range(3)
    ]
    np.testing.assert_allclose(np.dot(p, per_outcome), np.sum(p * np.log(p / q)), rtol=1e-5)
    same = losses.grpo_loss(LOGP, LOGP, ADVANTAGES, MASK, reference_logprobs=LOGP, kl_coefficient=1.0)
    assert float(same.metrics["kl"]) == 0


def test_grpo_metrics_are_sums_that_numpy_finds_too():
    old, ref = near(LOGP, 4), near(LOGP, 5)
    loss = losses.grpo_loss(LOGP, old, ADVANTAGES, MASK, reference_logprobs=ref)
    on = MASK.astype(bool)
    ratio, gap = np.exp(LOGP - old)[on], (ref - LOGP)[on]
    sign = np.sign(np.broadcast_to(ADVANTAGES[:, None], MASK.shape)[on])
    expected = {
        "ratio": ratio.sum(),
        "negative_logprob": -LOGP[on].sum(),
        "kl": (np.exp(gap) - gap - 1).sum(),
        "clip_fraction": (((ratio > 1.1) & (sign > 0)) | ((ratio < 0.9) & (sign < 0))).sum(),
    }
    assert loss.metrics.keys() == expected.keys()
    assert 0 < expected["clip_fraction"] < on.sum()
    for name, value in expected.items():
        np.testing.assert_allclose(loss.metrics[name], value, rtol=1e-5)


def test_rpo_is_dpo_plus_alpha_times_sft():
    chosen_mask = np.ones_like(MASK)
    arguments = (LOGP, chosen_mask, OLD, np.maximum(MASK, MASK[:1]), REF, REF)
    dpo_part, sft_part = losses.dpo_loss(*arguments), losses.sft_loss(LOGP, chosen_mask)
    whole = losses.rpo_loss(*arguments, alpha=0.4)
    np.testing.assert_allclose(whole.total, dpo_part.total + 0.4 * sft_part.total, rtol=1e-6)
    np.testing.assert_allclose([whole.metrics["dpo"], whole.metrics["sft"]], [dpo_part.total, sft_part.total])
    assert float(whole.weight) == float(dpo_part.weight) == BATCH
    assert_same(losses.rpo_loss(*arguments, alpha=0.0).total, dpo_part.total)


def test_an_untrained_pair_costs_log_two_and_has_no_margin():
    loss = losses.dpo_loss(LOGP, np.ones_like(MASK), OLD, np.ones_like(MASK), LOGP, OLD)
    np.testing.assert_allclose(loss.mean, math.log(2), rtol=1e-6)
    assert float(loss.metrics["margin"]) == float(loss.metrics["accuracy"]) == 0


def test_dpo_metrics_are_implicit_rewards():
    beta = 0.5
    chosen, rejected = np.asarray([[-1.0], [-1.0]], np.float32), np.asarray([[-2.0], [-2.0]], np.float32)
    references = np.asarray([[-3.0], [-1.0]], np.float32), np.asarray([[-2.0], [-4.0]], np.float32)
    loss = losses.dpo_loss(chosen, np.ones((2, 1)), rejected, np.ones((2, 1)), *references, beta=beta)
    expected = {"chosen_reward": beta * (2 + 0), "rejected_reward": beta * (0 + 2), "margin": 0.0, "accuracy": 1.0}
    assert {name: float(value) for name, value in loss.metrics.items()} == expected


def test_dpo_stays_finite_where_the_margin_is_large():
    lp = np.full((2, 1), -1.0, np.float32)
    ref = np.asarray([[-1e4], [1e4]], np.float32)
    loss, grad = value_and_grad(
        lambda w: losses.dpo_loss(w, np.ones((2, 1)), lp, np.ones((2, 1)), ref, lp, beta=1.0), lp
    )
    np.testing.assert_allclose(loss.total, 1e4, rtol=1e-3)
    assert np.isfinite(grad).all()


# ---- Language Self-Play: expectations by enumeration ----------------------------------------------------------------

POLICY_LOGITS, REFERENCE_LOGITS = jnp.asarray([0.3, -1.0, 0.8]), jnp.asarray([-0.5, 0.2, 0.9])


def expected_lsp_gradient(kl_gradient, rewards, beta):
    """Expectation over all outcomes of the gradient with respect to the logits of a three-way choice."""
    reference = jax.nn.log_softmax(REFERENCE_LOGITS)[:, None]

    def one(logits, i):
        lp = jax.nn.log_softmax(logits)[i][None, None]
        return losses.lsp_solver_loss(
            lp, jnp.ones((1, 1)), rewards[i][None], reference[i][None], beta=beta, kl_gradient=kl_gradient
        ).total

    per_outcome = jax.jit(jax.vmap(jax.grad(one), in_axes=(None, 0)))(POLICY_LOGITS, jnp.arange(3))
    return jax.nn.softmax(POLICY_LOGITS) @ per_outcome


def kl_to_reference(logits):
    lp = jax.nn.log_softmax(logits)
    return (jnp.exp(lp) * (lp - jax.nn.log_softmax(REFERENCE_LOGITS))).sum()


REWARDS = jnp.asarray([1.0, -0.5, 0.2])


def negative_expected_reward(logits):
    return -(jax.nn.softmax(logits) * REWARDS).sum()


def test_the_score_function_form_has_the_gradient_of_reward_and_divergence():
    expected = jax.grad(lambda z: negative_expected_reward(z) + 0.7 * kl_to_reference(z))(POLICY_LOGITS)
    np.testing.assert_allclose(expected_lsp_gradient("score_function", REWARDS, 0.7), expected, atol=1e-6)


def test_the_published_kl_term_has_no_gradient_in_expectation():
    expected = jax.grad(negative_expected_reward)(POLICY_LOGITS)
    np.testing.assert_allclose(expected_lsp_gradient("published", REWARDS, 0.7), expected, atol=1e-6)
    assert np.abs(jax.grad(kl_to_reference)(POLICY_LOGITS)).max() > 0.05  # so the two forms do differ


def test_the_score_function_form_weighs_each_id_by_its_advantage_less_the_penalty():
    _, grad = value_and_grad(PACKABLE["lsp_score_function"], *BATCH_ARRAYS)
    penalty = 0.1 * ((LOGP - BATCH_ARRAYS[2]) * MASK).sum(axis=1)
    np.testing.assert_allclose(grad, -(ADVANTAGES - penalty)[:, None] * MASK, rtol=1e-5)


def test_both_forms_of_the_lsp_loss_have_the_same_value():
    assert_same(*(value(PACKABLE[name], *BATCH_ARRAYS) for name in ("lsp_published", "lsp_score_function")))


def test_lsp_metrics_are_sums_over_sequences():
    loss = losses.lsp_solver_loss(LOGP, MASK, ADVANTAGES, REF, beta=0.1)
    per_row = {"logprob": (LOGP * MASK).sum(), "log_ratio": ((LOGP - REF) * MASK).sum()}
    per_row["advantage"] = ADVANTAGES[MASK.any(axis=1)].sum()
    for name, value in per_row.items():
        np.testing.assert_allclose(loss.metrics[name], value, rtol=1e-5, atol=1e-6)


# ---- bad input ------------------------------------------------------------------------------------------------------

ONES = np.ones((2, 3), np.float32)
GRPO = (ONES, ONES, ONES, ONES)
PAIR = (ONES,) * 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.sft_loss(ONES[0], ONES[0]), r"sft_loss: logprobs must be \[batch, time\], got shape \[3\]"),
        (lambda: losses.sft_loss(MASK, MASK), "sft_loss: logprobs must have a floating dtype, got int"),
        (lambda: losses.sft_loss(ONES, ONES.T), r"mask must be \[batch, time\] = \[2, 3\], got \[3, 2\]"),
        (lambda: losses.sft_loss(ONES, ONES, segments=MASK[:2, :3]), "given together"),
        (lambda: losses.sft_loss(ONES, ONES, num_segments=2), "given together"),
        (lambda: losses.sft_loss(ONES, ONES, segments=ONES, num_segments=2), "segments must have an integer dtype"),
        (lambda: losses.sft_loss(ONES, ONES, segments=MASK, num_segments=2), r"segments must be \[batch, time\]"),
        (lambda: losses.sft_loss(ONES, ONES, segments=MASK[:2, :3], num_segments=0), "num_segments must be 1 or more"),
        (lambda: losses.grpo_loss(ONES, ONES[:1], ONES, ONES), r"old_logprobs must be .*got \[1, 3\]"),
        (lambda: losses.grpo_loss(ONES, ONES, ONES[0], ONES), r"advantages must be \[batch\] = \[2\] or .*got \[3\]"),
        (lambda: losses.grpo_loss(*GRPO, clip_ratio=1.0), r"clip_ratio must be in \[0, 1\), got 1.0"),
        (lambda: losses.grpo_loss(*GRPO, clip_ratio_high=-0.1), "clip_ratio_high must be 0 or more"),
        (lambda: losses.grpo_loss(*GRPO, kl_coefficient=-1.0), "kl_coefficient must be 0 or more"),
        (lambda: losses.grpo_loss(*GRPO, kl_coefficient=0.1), "reference_logprobs is None"),
        (lambda: losses.grpo_loss(*GRPO, unit="row"), "unit must be 'token' or 'sequence', got 'row'"),
        (lambda: losses.dpo_loss(*PAIR, beta=0.0), "dpo_loss: beta must be above 0"),
        (lambda: losses.dpo_loss(*PAIR[:2], ONES[:1], ONES[:1], ONES, ONES[:1]), "chosen has 2 rows and rejected 1"),
        (lambda: losses.rpo_loss(*PAIR, alpha=-1.0), "rpo_loss: alpha must be 0 or more"),
        (lambda: losses.rpo_loss(*PAIR[:4], ONES[:1], ONES), "chosen_reference_logprobs must be"),
        (lambda: losses.lsp_solver_loss(*GRPO, beta=math.nan), "lsp_solver_loss: beta must be 0 or more"),
        (lambda: losses.lsp_challenger_loss(*GRPO, beta=0.1, kl_gradient="k3"), "lsp_challenger_loss: kl_gradient"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()

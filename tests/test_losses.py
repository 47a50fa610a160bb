"""What holds of every loss, and the input all of them refuse. What each computes has a file of its own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc import losses

# Five rows: gaps, padding in front, a full row, an empty row, a single id.
MASK = np.asarray([[int(c) for c in row] for row in ("0110110", "0001110", "1111111", "0000000", "0000010")])
BATCH, TIME = MASK.shape
GARBAGE = (np.nan, np.inf, -np.inf)


def random_logprobs(seed, *shape, low=-4.0, high=-0.05):
    return np.random.default_rng(seed).uniform(low, high, shape or (BATCH, TIME)).astype(np.float32)


LOGP = random_logprobs(1)
ADVANTAGES = np.asarray([1.5, -0.7, 0.4, 2.0, -1.1], np.float32)


def near(array, seed, spread=0.3):
    """Log-probabilities near others, so that some ratios are clipped and some are not."""
    return (array + np.random.default_rng(seed).uniform(-spread, spread, array.shape)).astype(np.float32)


# ---- one table of losses, many properties -------------------------------------------------------------------------


def sft(lp, _old, _ref, _adv, mask, **packing):
    return losses.sft_loss(lp, mask, **packing)


def grpo(unit, lp, old, ref, adv, mask, max_length=0, **packing):
    options = {"kl_coefficient": 0.3, "unit": unit, "max_length": max_length, "clip_ratio": 0.2}
    return losses.grpo_loss(lp, old, adv, mask, reference_logprobs=ref, **options, **packing)


def corrected_grpo(unit, lp, old, ref, adv, mask, **packing):
    return losses.grpo_loss(lp, old, adv, mask, proximal_logprobs=ref, importance_cap=1.2, unit=unit, **packing)


def gspo(unit, lp, old, ref, adv, mask, **packing):
    return losses.grpo_loss(
        lp, old, adv, mask, reference_logprobs=ref, kl_coefficient=0.3, ratio="sequence", unit=unit, **packing
    )


def corrected_gspo(lp, old, ref, adv, mask, **packing):
    return losses.grpo_loss(
        lp, old, adv, mask, proximal_logprobs=ref, importance_cap=1.02, ratio="sequence", unit="sequence", **packing
    )


def lsp(kl_gradient, lp, _old, ref, adv, mask, **packing):
    return losses.lsp_solver_loss(lp, mask, adv, ref, beta=0.1, kl_gradient=kl_gradient, **packing)


def sides(lp, old, mask):
    return {
        "chosen_logprobs": lp,
        "chosen_mask": mask,
        "rejected_logprobs": old,
        "rejected_mask": mask[:, ::-1],
    }


def dpo(lp, old, ref, _adv, mask, **options):
    references = {"chosen_reference_logprobs": ref, "rejected_reference_logprobs": ref}
    return losses.dpo_loss(**sides(lp, old, mask), **references, **options)


def rpo(lp, old, ref, _adv, mask):
    return losses.rpo_loss(**sides(lp, old, mask), chosen_reference_logprobs=ref, rejected_reference_logprobs=ref)


def simpo(lp, old, _ref, _adv, mask):
    return losses.simpo_loss(**sides(lp, old, mask), margin=0.4)


def packed_preference(lp, old, ref, _adv, mask):
    """Both sides one behind the other."""
    sides, masks, references = ((lp, old), (mask, mask[:, ::-1]), (ref, ref))
    segments = np.repeat([[1, 2]], lp.shape[1], axis=1) + np.zeros((len(lp), 1), int)
    return losses.packed_preference_loss(
        *(jnp.concatenate(pair, axis=1) for pair in (sides, masks, references)), segments=segments, num_segments=2
    )


PACKABLE = {
    "sft": sft,
    "grpo_token": functools.partial(grpo, "token"),
    "grpo_sequence": functools.partial(grpo, "sequence"),
    "grpo_fixed_length": functools.partial(grpo, "fixed_length", max_length=9),
    "corrected_grpo_token": functools.partial(corrected_grpo, "token"),
    "corrected_grpo_sequence": functools.partial(corrected_grpo, "sequence"),
    "gspo_token": functools.partial(gspo, "token"),
    "gspo_sequence": functools.partial(gspo, "sequence"),
    "corrected_gspo": corrected_gspo,
    "lsp_published": functools.partial(lsp, "published"),
    "lsp_score_function": functools.partial(lsp, "score_function"),
}
PAIRED = {  # the second array is the rejected side, under the mask read backwards
    "dpo": dpo,
    "rpo": rpo,
    "normalized_dpo": functools.partial(dpo, beta=2.0, normalize_length=True),
    "simpo": simpo,
    "packed_preference": packed_preference,
}
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
    # Losses of pairs read the second array under the reversed mask.
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
    symmetric = ((2, 0), (3, 3))  # losses of pairs read the mask backwards
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
    summed = first + second
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


def test_advantages_per_id_equal_advantages_per_row():
    spread = np.broadcast_to(ADVANTAGES[:, None], MASK.shape)
    for loss in PACKABLE.values():
        assert_same(value(loss, *BATCH_ARRAYS[:3], spread, MASK), value(loss, *BATCH_ARRAYS))


# ---- bad input ------------------------------------------------------------------------------------------------------

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.sft_loss(ONES[0], ONES[0]), r"sft_loss: logprobs must be \[batch, time\], got shape \[3\]"),
        (lambda: losses.sft_loss(MASK, MASK), "sft_loss: logprobs must have a floating dtype, got int"),
        (lambda: losses.sft_loss(ONES, ONES.T), r"mask must be \[batch, time\] = \[2, 3\], got \[3, 2\]"),
        (lambda: losses.sft_loss(ONES, -0.5 * ONES), r"mask must be 1 at action tokens and 0 elsewhere, got -0\.5"),
        (lambda: losses.sft_loss(ONES, ONES, segments=MASK[:2, :3]), "given together"),
        (lambda: losses.sft_loss(ONES, ONES, num_segments=2), "given together"),
        (lambda: losses.sft_loss(ONES, ONES, segments=ONES, num_segments=2), "segments must have an integer dtype"),
        (lambda: losses.sft_loss(ONES, ONES, segments=MASK, num_segments=2), r"segments must be \[batch, time\]"),
        (lambda: losses.sft_loss(ONES, ONES, segments=MASK[:2, :3], num_segments=0), "num_segments must be 1 or more"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Sampling against plain numpy in float64: which ids remain, how often each is drawn, what its log-probability is."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies
from scipy import stats

from dfc.config import SamplingConfig
from dfc.inference.sampling import (
    Filters,
    _first_beyond,
    filtered_logprobs,
    filters_of,
    row_sampling,
    sample_tokens,
    uniforms,
)

CONFIGS = {
    "plain": SamplingConfig(),
    "temperature": SamplingConfig(temperature=0.7),
    "hot": SamplingConfig(temperature=3.0),
    "top_k": SamplingConfig(top_k=5),
    "top_k_1": SamplingConfig(top_k=1),
    "top_k_all": SamplingConfig(top_k=64),
    "top_p": SamplingConfig(top_p=0.8),
    "top_p_small": SamplingConfig(top_p=0.01),
    "min_p": SamplingConfig(min_p=0.1),
    "min_p_1": SamplingConfig(min_p=1.0),
    "all": SamplingConfig(temperature=1.5, top_k=12, top_p=0.9, min_p=0.05),
    "k_then_p": SamplingConfig(temperature=0.5, top_k=4, top_p=0.7),
    "p_then_min": SamplingConfig(top_p=0.95, min_p=0.2),
}
_sample_tokens = jax.jit(sample_tokens, static_argnames="filters")
_filtered = jax.jit(filtered_logprobs, static_argnames="filters")


def settings_of(sampling, count):
    """One setting per row, from one for all of them or a list."""
    settings = [sampling] * count if isinstance(sampling, SamplingConfig) else sampling
    return row_sampling(settings), filters_of(settings)


def sampled(logits, numbers, sampling, allowed=None):
    rows, filters = settings_of(sampling, len(logits))
    found = _sample_tokens(jnp.asarray(logits), numbers, rows, filters=filters, allowed=allowed)
    return tuple(np.asarray(x) for x in found[:3])


def filtered(logits, sampling, allowed=None):
    rows, filters = settings_of(sampling, len(logits))
    return np.asarray(_filtered(jnp.asarray(logits), rows, filters=filters, allowed=allowed))


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def remaining(logits, sampling, allowed=None):
    """The probabilities of one row, by the definitions, id by id."""
    logits = np.asarray(logits, np.float64)
    if allowed is not None:
        p = np.zeros(len(logits))
        p[allowed] = remaining(logits[allowed], sampling)
        return p
    if sampling.temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    p = softmax(logits / sampling.temperature)
    if sampling.top_k:
        least = sorted(p, reverse=True)[: sampling.top_k][-1]
        p = np.array([q if q >= least else 0.0 for q in p])
        p /= p.sum()
    if sampling.top_p < 1:
        total, least = 0.0, 1.0
        for q in sorted(p, reverse=True):
            if total >= sampling.top_p:
                break
            total, least = total + q, q
        p = np.array([q if q >= least else 0.0 for q in p])
        p /= p.sum()
    if sampling.min_p:
        p = np.array([q if q >= sampling.min_p * p.max() else 0.0 for q in p])
        p /= p.sum()
    return p


@pytest.fixture(scope="module")
def logits():
    return (2 * np.random.default_rng(1).normal(size=(8, 40))).astype(np.float32)


@pytest.mark.parametrize("sampling", CONFIGS.values(), ids=CONFIGS.keys())
def test_filters_keep_what_their_definitions_keep(logits, sampling):
    found = np.exp(filtered(logits, sampling))
    expected = np.stack([remaining(row, sampling) for row in logits])
    np.testing.assert_array_equal(found > 0, expected > 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (SamplingConfig(top_k=2), [1, 1, 1, 0]),  # ids 1 and 2 share the second place
        (SamplingConfig(top_k=3), [1, 1, 1, 0]),
        (SamplingConfig(top_p=0.5), [1, 1, 1, 0]),  # 0.4 + 0.25 reach 0.5; both quarters stay
        (SamplingConfig(top_p=0.3), [1, 0, 0, 0]),
        (SamplingConfig(min_p=0.5), [1, 1, 1, 0]),  # 0.25 / 0.4
        (SamplingConfig(min_p=0.7), [1, 0, 0, 0]),
    ],
)
def test_ties_with_the_last_kept_id_are_kept(sampling, kept):
    logits = np.log(np.asarray([[0.4, 0.25, 0.25, 0.1]], np.float32))
    found = np.exp(filtered(logits, sampling))[0]
    np.testing.assert_array_equal(found > 0, np.asarray(kept, bool))


@pytest.mark.parametrize("sampling", [SamplingConfig(top_k=1), SamplingConfig(top_p=0.1), SamplingConfig(min_p=1.0)])
@pytest.mark.parametrize("value", [3.0, -3.0, 1e-20, -1e20])
def test_the_next_float_below_is_no_tie(sampling, value):
    row = np.asarray([[np.nextafter(np.float32(value), np.float32(-np.inf)), value, -np.inf]], np.float32)
    np.testing.assert_array_equal(np.isfinite(filtered(row, sampling)), [[False, True, False]])


def test_a_place_without_weight_is_never_the_answer():
    """Two levels of sums may disagree in their last bit: a target may lie before the first weight or behind all."""
    weights = jnp.asarray([[0, 1, 0, 2, 0]] * 4, jnp.float32)
    place, before = _first_beyond(weights, jnp.asarray([-1e-6, 0.5, 1.0, 3.5], jnp.float32))
    np.testing.assert_array_equal(place, [1, 1, 3, 3])
    np.testing.assert_array_equal(before, [0, 0, 1, 1])


def test_filters_apply_in_the_documented_order():
    """0.5, 0.3, 0.2: of the two most probable the first has 0.625, so top-p 0.6 keeps it alone; the other way two."""
    logits = jnp.log(jnp.asarray([[0.5, 0.3, 0.2]]))
    found = filtered(logits, SamplingConfig(top_k=2, top_p=0.6))[0]
    np.testing.assert_array_equal(np.isfinite(found), [True, False, False])
    # Temperature first: squared and renormalised 0.25, 0.09, 0.04 of 0.38, so the first alone reaches 0.6.
    found = filtered(logits, SamplingConfig(temperature=0.5, top_p=0.6))[0]
    np.testing.assert_array_equal(np.isfinite(found), [True, False, False])


SAMPLES = 8_000
# Close to each setting, yet another distribution: the chi-square must tell them apart, or it shows nothing.
WRONG = {
    "plain": SamplingConfig(temperature=0.9),
    "temperature": SamplingConfig(temperature=0.8),
    "hot": SamplingConfig(temperature=2.5),
    "top_k": SamplingConfig(top_k=6),
    "top_k_1": SamplingConfig(top_k=2),
    "top_k_all": SamplingConfig(temperature=1.1),
    "top_p": SamplingConfig(top_p=0.85),
    "top_p_small": SamplingConfig(top_p=0.5),
    "min_p": SamplingConfig(min_p=0.07),
    "min_p_1": SamplingConfig(min_p=0.5),
    "all": SamplingConfig(temperature=1.5, top_k=9, top_p=0.9, min_p=0.05),
    "k_then_p": SamplingConfig(temperature=0.5, top_k=4),
    "p_then_min": SamplingConfig(temperature=1.2, top_p=0.95, min_p=0.2),
}


def unlikeliness(token_ids, probabilities):
    """The p-value of Pearson's chi-square test; ids expected fewer than 5 times make one class."""
    expected = probabilities * len(token_ids)
    counts = np.bincount(token_ids, minlength=len(expected))
    if counts[expected == 0].any():
        return 0.0
    likely = expected >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    wanted = np.append(expected[likely], expected[~likely].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    return stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), max(len(wanted) - 1, 1))


@functools.cache
def mixed_samples(constrained):
    """Ids drawn under every setting, all in one batch, their rows interleaved; the allowed ids of each setting."""
    row = (2 * np.random.default_rng(1).normal(size=40)).astype(np.float32)
    settings = list(CONFIGS.values()) * SAMPLES
    masks = np.random.default_rng(3).random((len(CONFIGS), 40)) < 0.6
    numbers = uniforms(np.full(len(settings), 11, np.uint64), np.arange(len(settings), dtype=np.uint64))
    logits = np.repeat(row[None], len(settings), axis=0)
    token_ids, sampled_logprobs, plain = sampled(
        logits, numbers, settings, np.tile(masks, (SAMPLES, 1)) if constrained else None
    )
    by_setting = [x.reshape(SAMPLES, len(CONFIGS)).T for x in (token_ids, sampled_logprobs, plain)]
    return row, masks if constrained else [None] * len(CONFIGS), by_setting


@pytest.mark.parametrize("constrained", [False, True], ids=["free", "allowed"])
@pytest.mark.parametrize("name", CONFIGS)
def test_rows_of_all_settings_in_one_batch_follow_each_its_own_distribution(name, constrained):
    row, masks, (token_ids, sampled_logprobs, plain) = mixed_samples(constrained)
    place = list(CONFIGS).index(name)
    expected = remaining(row, CONFIGS[name], masks[place])
    assert unlikeliness(token_ids[place], expected) > 1e-4
    np.testing.assert_allclose(sampled_logprobs[place], np.log(expected[token_ids[place]]), atol=1e-5)
    np.testing.assert_allclose(plain[place], np.log(softmax(row.astype(np.float64))[token_ids[place]]), atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_chi_square_tells_close_settings_apart(name):
    row, _, (token_ids, _, _) = mixed_samples(constrained=False)
    assert unlikeliness(token_ids[list(CONFIGS).index(name)], remaining(row, WRONG[name])) < 1e-9


@pytest.mark.parametrize("vocabulary", [3, 1000, 32_000])
@pytest.mark.parametrize("constrained", [False, True], ids=["free", "allowed"])
def test_the_id_drawn_is_where_the_cumulative_distribution_passes_the_number(vocabulary, constrained):
    generator = np.random.default_rng(vocabulary)
    settings = list(CONFIGS.values())
    logits = (3 * generator.normal(size=(2 * len(settings), vocabulary))).astype(np.float32)
    allowed = generator.random(logits.shape) < 0.3
    allowed[:, vocabulary // 2] = True
    numbers = generator.random(len(logits)).astype(np.float32)
    numbers[:4] = [0, 1 - 2.0**-24, 0.5, 2.0**-24]
    numbers[-1] = 1 - 2.0**-24
    token_ids, sampled_logprobs, _ = sampled(logits, numbers, settings * 2, allowed if constrained else None)
    scores = filtered(logits, settings * 2, allowed if constrained else None)
    np.testing.assert_allclose(
        sampled_logprobs, np.take_along_axis(scores, token_ids[:, None], axis=1)[:, 0], atol=1e-6
    )
    for row, (token_id, number) in enumerate(zip(token_ids, numbers, strict=True)):
        p = remaining(logits[row], (settings * 2)[row], allowed[row] if constrained else None)
        assert p[token_id] > 0
        assert p[:token_id].sum() - 1e-5 <= number <= p[: token_id + 1].sum() + 1e-5


def test_rows_do_not_influence_each_other(logits):
    settings = list(CONFIGS.values())[:8]
    numbers = np.linspace(0.05, 0.95, 8, dtype=np.float32)
    together = sampled(logits, numbers, settings)
    other = -logits
    for row in range(8):
        # The same program with other neighbours, bit for bit.
        mixed = np.where(np.arange(8)[:, None] == row, logits, other)
        rotated = settings[2:] + settings[:2]
        neighbours = [settings[row] if i == row else s for i, s in enumerate(rotated)]
        for found, expected in zip(sampled(mixed, numbers, neighbours), together, strict=True):
            np.testing.assert_array_equal(found[row], expected[row])
    # And alone, in a program that holds the filters of this row only.
    alone = sampled(logits[5:6], numbers[5:6], settings[5])
    assert alone[0][0] == together[0][5]
    np.testing.assert_allclose([alone[1][0], alone[2][0]], [together[1][5], together[2][5]], atol=1e-6)


def test_a_greedy_row_takes_the_largest_logit_beside_random_rows(logits):
    settings = [SamplingConfig(temperature=0.0, top_k=3, top_p=0.5, min_p=0.1), SamplingConfig(temperature=5.0)] * 4
    allowed = np.random.default_rng(0).random(logits.shape) < 0.5
    for mask in (None, allowed):
        seen = np.where(True if mask is None else mask, logits, -np.inf)
        greedy, random = set(), set()
        for number in np.linspace(0, 0.99, 12, dtype=np.float32):
            token_ids, sampled_logprobs, _ = sampled(logits, np.full(8, number), settings, mask)
            np.testing.assert_array_equal(sampled_logprobs[::2], np.zeros(4))
            assert (sampled_logprobs[1::2] < 0).all()
            greedy.add(tuple(token_ids[::2].tolist()))
            random.add(tuple(token_ids[1::2].tolist()))
        assert greedy == {tuple(np.argmax(seen[::2], axis=1).tolist())}
        assert len(random) > 6


def test_a_filter_is_in_the_program_only_if_a_row_needs_it():
    assert filters_of([SamplingConfig(), SamplingConfig(min_p=0.1)]) == Filters()
    assert filters_of([SamplingConfig(), SamplingConfig(top_k=3)]) == Filters(top_k=True)
    assert filters_of([SamplingConfig(top_p=0.9), SamplingConfig(top_k=3)]) == Filters(top_k=True, top_p=True)
    assert filters_of([SamplingConfig(temperature=0, top_k=3, top_p=0.5)]) == Filters()  # greedy needs neither
    rows, _ = settings_of(SamplingConfig(temperature=0.7), 4)

    def loops(filters):
        text = (
            jax.jit(sample_tokens, static_argnums=3).lower(jnp.zeros((4, 256)), jnp.zeros(4), rows, filters).as_text()
        )
        assert "stablehlo.sort" not in text
        return text.count("stablehlo.while")

    assert [loops(Filters()), loops(Filters(top_k=True)), loops(Filters(top_k=True, top_p=True))] == [0, 1, 2]


@hypothesis.given(
    strategies.lists(
        strategies.sampled_from([-1e30, -80.0, -2.0, -0.0, 0.0, 0.5, 1e-3, 3.0, 40.0]), min_size=6, max_size=6
    ),
    strategies.integers(0, 7),
    strategies.sampled_from([0.137, 0.419, 0.777, 0.983, 1.0]),
    strategies.sampled_from([0.0, 0.031, 1.0]),
    strategies.lists(strategies.booleans(), min_size=6, max_size=6).filter(any),
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_what_is_kept_among_ties_and_extremes_is_what_the_definitions_keep(values, top_k, top_p, min_p, allowed):
    sampling = SamplingConfig(temperature=0.9, top_k=top_k, top_p=top_p, min_p=min_p)
    row = np.asarray(values, np.float32)
    rows = row_sampling([sampling])
    mask = np.asarray(allowed)
    found = np.exp(np.asarray(_filtered(row[None], rows, filters=Filters(top_k=True, top_p=True), allowed=mask[None])))
    np.testing.assert_allclose(found[0], remaining(row, sampling, mask), rtol=1e-4, atol=1e-30)


def test_an_id_with_a_logit_of_minus_infinity_is_never_drawn():
    row = np.full(300, -np.inf, np.float32)
    row[[5, 200]] = [1.0, 2.0]
    numbers = np.tile(np.asarray([0, 0.2, 0.3, 1 - 2.0**-24], np.float32), len(CONFIGS))
    settings = [sampling for sampling in CONFIGS.values() for _ in range(4)]
    token_ids, sampled_logprobs, plain = sampled(np.repeat(row[None], len(numbers), axis=0), numbers, settings)
    assert set(token_ids.tolist()) == {5, 200}
    assert np.isfinite(sampled_logprobs).all()
    assert np.isfinite(plain).all()


@pytest.mark.parametrize("sampling", CONFIGS.values(), ids=CONFIGS.keys())
def test_both_logprobs_belong_to_the_id_drawn(logits, sampling):
    numbers = uniforms(np.arange(8, dtype=np.uint64), np.zeros(8, np.uint64))
    token_ids, sampled_logprobs, plain = sampled(logits, numbers, sampling)
    for row, token_id, ours, raw in zip(logits.astype(np.float64), token_ids, sampled_logprobs, plain, strict=True):
        np.testing.assert_allclose(ours, np.log(remaining(row, sampling)[token_id]), atol=1e-5)
        np.testing.assert_allclose(raw, np.log(softmax(row)[token_id]), atol=1e-5)


def test_a_temperature_of_0_takes_the_first_most_probable_id(logits):
    tied = logits.copy()
    tied[:, [7, 30]] = 50.0
    numbers = np.linspace(0, 0.999, 8, dtype=np.float32)
    token_ids, sampled_logprobs, plain = sampled(tied, numbers, SamplingConfig(temperature=0.0))
    np.testing.assert_array_equal(token_ids, np.argmax(tied, axis=-1))
    np.testing.assert_array_equal(sampled_logprobs, np.zeros(8))
    scores = filtered(tied, SamplingConfig(temperature=0.0))
    np.testing.assert_array_equal(np.exp(scores), np.eye(40)[token_ids])
    expected = [np.log(softmax(row).max()) for row in tied.astype(np.float64)]
    np.testing.assert_allclose(plain, expected, atol=1e-5)


@pytest.mark.parametrize("sampling", [SamplingConfig(min_p=0.02), SamplingConfig(top_p=0.9), SamplingConfig(top_k=99)])
def test_a_removed_id_is_never_drawn_not_even_by_rounding(sampling):
    """A float32 running sum may change by its last bit where an id of probability 0 stands: aimed at on purpose."""
    row = (2 * np.random.default_rng(0).normal(size=1024)).astype(np.float32)
    logprobs = filtered(row[None], sampling)[0]
    kept = np.flatnonzero(np.isfinite(logprobs))
    borders = np.floor(np.append(np.cumsum(np.exp(logprobs.astype(np.float64)))[kept], [0, 1]) * 2**24)
    near = np.unique(np.concatenate([borders + step for step in range(-4, 5)]))
    numbers = (near[(near >= 0) & (near < 2**24)] * 2.0**-24).astype(np.float32)
    token_ids, sampled_logprobs, _ = sampled(np.repeat(row[None], len(numbers), axis=0), numbers, sampling)
    assert np.isfinite(np.asarray(sampled_logprobs)).all()
    assert set(np.asarray(token_ids).tolist()) == set(kept.tolist())


def test_any_float_type_is_computed_in_float32(logits):
    half = jnp.asarray(logits, jnp.bfloat16)
    settings = [SamplingConfig(), CONFIGS["all"]] * 4
    token_ids, sampled_logprobs, plain = sampled(half, np.full(8, 0.3, np.float32), settings)
    again = sampled(half.astype(jnp.float32), np.full(8, 0.3, np.float32), settings)
    for found, expected in zip((token_ids, sampled_logprobs, plain), again, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (token_ids.dtype, sampled_logprobs.dtype, plain.dtype) == (jnp.int32, jnp.float32, jnp.float32)

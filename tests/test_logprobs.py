"""Chunked log-probabilities against `log_softmax` of JAX and PyTorch, and that chunks stay small and local."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc import logprobs

token_logprobs = jax.jit(logprobs.token_logprobs, static_argnames=("token_chunk", "temperature", "soft_cap"))

TOKENS, WIDTH, VOCABULARY = 13, 8, 29


def arrays(seed=0, tokens=TOKENS, dtype=np.float32):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(tokens, WIDTH)).astype(dtype)
    embedding = rng.normal(size=(VOCABULARY, WIDTH)).astype(dtype)
    return jnp.asarray(hidden), jnp.asarray(embedding), jnp.asarray(rng.integers(0, VOCABULARY, tokens), jnp.int32)


def torch_oracle(hidden, embedding, targets, weights, *, temperature, soft_cap):
    """Values, and gradients of a weighted sum of both, in float64."""
    hidden, embedding = (torch.tensor(np.asarray(a, np.float64), requires_grad=True) for a in (hidden, embedding))
    logits = hidden @ embedding.T
    if soft_cap is not None:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    distribution = torch.distributions.Categorical(logits=logits / temperature)
    lp, entropy = distribution.log_prob(torch.tensor(np.asarray(targets))), distribution.entropy()
    (torch.tensor(weights[0]) * lp + torch.tensor(weights[1]) * entropy).sum().backward()
    return lp.detach(), entropy.detach(), hidden.grad, embedding.grad


@pytest.mark.parametrize("chunk", [1, 5, 12, 13])
@pytest.mark.parametrize(("temperature", "soft_cap"), [(1.0, None), (0.6, None), (1.7, 2.0)])
def test_values_and_gradients_agree_with_torch_for_every_chunk(chunk, temperature, soft_cap):
    hidden, embedding, targets = arrays()
    weights = np.random.default_rng(5).normal(size=(2, TOKENS))

    def objective(hidden, embedding):
        lp, entropy = logprobs.token_logprobs_and_entropy(
            hidden, embedding, targets, token_chunk=chunk, temperature=temperature, soft_cap=soft_cap
        )
        return (weights[0].astype(np.float32) * lp + weights[1].astype(np.float32) * entropy).sum(), (lp, entropy)

    grads, values = jax.jit(jax.grad(objective, argnums=(0, 1), has_aux=True))(hidden, embedding)
    expected = torch_oracle(hidden, embedding, targets, weights, temperature=temperature, soft_cap=soft_cap)
    for ours, theirs in zip((*values, *grads), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("chunk", [5, 1024])
def test_log_softmax_gives_the_same(chunk):
    hidden, embedding, targets = arrays(1)

    def plain(hidden, embedding):
        return jax.nn.log_softmax(hidden @ embedding.T)[jnp.arange(TOKENS), targets]

    def ours(hidden, embedding):
        return token_logprobs(hidden, embedding, targets, token_chunk=chunk)

    np.testing.assert_allclose(ours(hidden, embedding), plain(hidden, embedding), rtol=1e-5, atol=1e-5)
    weights = jnp.linspace(-1, 1, TOKENS)
    grads = [
        jax.jit(jax.grad(lambda h, e, f=f: (f(h, e) ** 2 * weights).sum(), argnums=(0, 1)))(hidden, embedding)
        for f in (plain, ours)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), *grads)


def test_tokens_keep_their_order_whatever_the_chunk():
    hidden, embedding, targets = arrays(2, tokens=24)
    whole = token_logprobs(hidden, embedding, targets)
    for chunk in (1, 7, 8):
        np.testing.assert_allclose(
            token_logprobs(hidden, embedding, targets, token_chunk=chunk), whole, rtol=1e-5, atol=1e-6
        )


def test_bfloat16_gives_float32_results_near_those_of_float32():
    hidden, embedding, targets = arrays(3, tokens=64)
    narrow = hidden.astype(jnp.bfloat16), embedding.astype(jnp.bfloat16)
    wide = tuple(a.astype(jnp.float32) for a in narrow)

    def objective(hidden, embedding):
        return token_logprobs(hidden, embedding, targets, token_chunk=2).sum()

    lp = token_logprobs(*narrow, targets, token_chunk=2)
    assert lp.dtype == jnp.float32
    # A product of two bfloat16 numbers is exact in float32: only the order of the sums differs.
    np.testing.assert_allclose(lp, token_logprobs(*wide, targets), rtol=1e-5, atol=1e-5)
    narrow_grads = jax.jit(jax.grad(objective, argnums=(0, 1)))(*narrow)
    wide_grads = jax.jit(jax.grad(objective, argnums=(0, 1)))(*wide)
    assert {g.dtype for g in narrow_grads} == {jnp.dtype(jnp.bfloat16)}
    for a, b in zip(narrow_grads, wide_grads, strict=True):
        # 2^-8 is one rounding to bfloat16; sums over 32 chunks kept in bfloat16 would be several times worse.
        np.testing.assert_allclose(a.astype(jnp.float32), b, rtol=2**-7, atol=0.02)


def test_the_embedding_gradient_is_summed_over_chunks_in_float32():
    # 1,024 equal contributions of about 1: added one at a time in bfloat16 the sum would stop at 256.
    tokens = 1024
    hidden = jnp.ones((tokens, 1), jnp.bfloat16)
    embedding = jnp.zeros((1024, 1), jnp.bfloat16)

    def objective(embedding):
        return token_logprobs(hidden, embedding, jnp.zeros(tokens, jnp.int32), token_chunk=1).sum()

    grad = jax.jit(jax.grad(objective))(embedding)
    np.testing.assert_allclose(float(grad[0, 0]), tokens * (1 - 1 / 1024), rtol=0.01)


def test_mixed_dtypes_are_computed_in_the_wider():
    hidden, embedding, targets = arrays(4)
    mixed = token_logprobs(hidden, embedding.astype(jnp.bfloat16), targets)
    rounded = embedding.astype(jnp.bfloat16).astype(jnp.float32)
    np.testing.assert_array_equal(mixed, token_logprobs(hidden, rounded, targets))


def test_an_id_outside_the_vocabulary_gives_nan_and_leaves_other_tokens_alone():
    hidden, embedding, targets = arrays(5)
    for bad in (-1, VOCABULARY):
        result = np.asarray(token_logprobs(hidden, embedding, targets.at[3].set(bad), token_chunk=4))
        assert np.isnan(result[3])
        assert np.isfinite(np.delete(result, 3)).all()


def test_a_masked_token_with_a_bad_id_has_no_gradient():
    hidden, embedding, targets = arrays(5)

    def masked(hidden, embedding):
        lp = token_logprobs(hidden, embedding, targets.at[3].set(-100), token_chunk=4)
        return jnp.where(jnp.arange(TOKENS) == 3, 0, lp).sum()

    hidden_grad, embedding_grad = jax.jit(jax.grad(masked, argnums=(0, 1)))(hidden, embedding)
    assert (np.asarray(hidden_grad[3]) == 0).all()
    assert np.isfinite(embedding_grad).all()


def test_improbable_ids_leave_entropy_and_gradient_finite():
    hidden, embedding = jnp.full((2, 1), 1e4), jnp.asarray([[0.0], [1.0], [-1.0]])

    def objective(hidden):
        lp, entropy = logprobs.token_logprobs_and_entropy(hidden, embedding, jnp.asarray([1, 1]))
        return (lp + entropy).sum()

    value, grad = jax.jit(jax.value_and_grad(objective))(hidden)
    assert float(value) == 0
    assert (np.asarray(grad) == 0).all()


def test_vmap_over_the_batch_gives_the_same():
    hidden, embedding, targets = arrays(6, tokens=24)
    mapped = jax.vmap(lambda h, t: token_logprobs(h, embedding, t, token_chunk=3))(
        hidden.reshape(2, 12, WIDTH), targets.reshape(2, 12)
    )
    np.testing.assert_allclose(mapped.ravel(), token_logprobs(hidden, embedding, targets), rtol=1e-5, atol=1e-6)


def largest_logits(chunk, tokens):
    """Rows of the largest [.., vocabulary] array in the compiled forward and backward program."""
    hidden, embedding, targets = arrays(7, tokens=tokens)

    def objective(hidden, embedding):
        return token_logprobs(hidden, embedding, targets, token_chunk=chunk).sum()

    text = jax.jit(jax.grad(objective, argnums=(0, 1))).lower(hidden, embedding).as_text()
    rows = [int(n) for n in re.findall(rf"tensor<(\d+)x{VOCABULARY}xf32>", text)]
    products = [int(a) * int(b) for a, b in re.findall(rf"tensor<(\d+)x(\d+)x{VOCABULARY}xf32>", text)]
    return max(rows + products)


def test_logits_of_all_tokens_never_exist_at_once():
    assert largest_logits(chunk=16, tokens=160) == 16
    assert largest_logits(chunk=160, tokens=160) == 160  # so that the search does find them


def test_up_to_one_chunk_there_is_no_loop():
    hidden, embedding, targets = arrays()
    for chunk, loops in ((TOKENS, False), (TOKENS - 1, True)):

        def objective(hidden, embedding, chunk=chunk):
            return token_logprobs(hidden, embedding, targets, token_chunk=chunk).sum()

        text = jax.jit(jax.grad(objective, argnums=(0, 1))).lower(hidden, embedding).as_text()
        assert ("stablehlo.while" in text) is loops


def test_each_device_projects_its_own_tokens():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    hidden, embedding, targets = arrays(8, tokens=64)

    def run(hidden, embedding, targets):
        return token_logprobs(hidden, embedding, targets, token_chunk=16)

    spread = jax.device_put(hidden, rows), jax.device_put(embedding, everywhere), jax.device_put(targets, rows)
    compiled = jax.jit(run).lower(*spread).compile()
    for collective in ("all-gather", "all-to-all", "all-reduce", "collective-permute"):
        assert collective not in compiled.as_text()
    np.testing.assert_allclose(compiled(*spread), run(hidden, embedding, targets), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": jnp.ones((2, 3, WIDTH))}, r"hidden must be floating with two axes.*\[2, 3, 8\]; flatten"),
        ({"hidden": jnp.ones((TOKENS, WIDTH), jnp.int32)}, "hidden must be floating"),
        ({"output_embedding": jnp.ones((WIDTH, VOCABULARY))}, "transpose"),
        ({"targets": jnp.zeros(3, jnp.int32)}, r"targets must be int \[tokens\] = \[13\], got int32 \[3\]"),
        ({"targets": jnp.zeros(TOKENS)}, "targets must be int"),
        ({"token_chunk": 0}, "token_chunk must be 1 or more, got 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"soft_cap": -1.0}, "soft_cap must be above 0"),
    ],
)
def test_bad_input_is_refused(change, message):
    hidden, embedding, targets = arrays()
    with pytest.raises(ValueError, match=message):
        logprobs.token_logprobs(**({"hidden": hidden, "output_embedding": embedding, "targets": targets} | change))

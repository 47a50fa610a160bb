"""Chunked log-probabilities against `log_softmax` of JAX and PyTorch, and that chunks stay small and local."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc import logprobs

OPTIONS = ("token_chunk", "vocab_chunk", "vocab_shards", "temperature", "soft_cap")
token_logprobs = jax.jit(logprobs.token_logprobs, static_argnames=OPTIONS)

TOKENS, WIDTH, VOCABULARY = 13, 8, 29


def arrays(seed=0, tokens=TOKENS, vocabulary=VOCABULARY):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(tokens, WIDTH)).astype(np.float32)
    embedding = rng.normal(size=(vocabulary, WIDTH)).astype(np.float32)
    return jnp.asarray(hidden), jnp.asarray(embedding), jnp.asarray(rng.integers(0, vocabulary, tokens), jnp.int32)


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


@pytest.mark.parametrize(
    ("vocabulary", "options"),
    [
        (
            60,
            {"vocab_chunk": 7, "token_chunk": 4},
        ),  # 9 tiles, the last starting 3 ids early; 4 chunks of 4 tokens, the last of 1
        (60, {"vocab_chunk": 8, "vocab_shards": 2, "token_chunk": 5}),
        (60, {"vocab_chunk": 5, "vocab_shards": 3}),  # no id twice
        (60, {"vocab_chunk": 7, "vocab_shards": 4, "temperature": 1.7, "soft_cap": 2.0, "token_chunk": 4}),
        (301, {"vocab_chunk": 200}),  # 2 tiles of 200, equal shares rounded up to 128 being too large
        (1500, {"vocab_shards": 2, "token_chunk": 6}),
        (1500, {"vocab_chunk": 1024, "temperature": 1.3}),  # 2 tiles of 768
        (1500, {"temperature": 1.3}),  # all logits at once, as in the next two
        (1500, {"temperature": 1.3, "soft_cap": 2.0}),
        (1500, {"token_chunk": TOKENS}),
    ],
)
def test_tiles_over_ids_agree_with_torch_within_1e_5(vocabulary, options):
    hidden, embedding, targets = arrays(9, vocabulary=vocabulary)
    targets = targets.at[:3].set(jnp.asarray([0, vocabulary - 1, vocabulary // 2]))
    weights = np.random.default_rng(5).normal(size=(2, TOKENS)).astype(np.float32)
    expected = torch_oracle(
        hidden, embedding, targets, weights, **({"temperature": 1.0, "soft_cap": None} | tempered(options))
    )

    def objective(hidden, embedding):
        lp, entropy = logprobs.token_logprobs_and_entropy(hidden, embedding, targets, **options)
        return (weights[0] * lp + weights[1] * entropy).sum(), (lp, entropy)

    def of_logprobs(hidden, embedding):
        return (weights[0] * token_logprobs(hidden, embedding, targets, **options)).sum()

    grads, values = jax.jit(jax.grad(objective, argnums=(0, 1), has_aux=True))(hidden, embedding)
    for ours, theirs in zip((*values, *grads), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    # The same without the entropy, which is then not computed.
    value, grads = jax.jit(jax.value_and_grad(of_logprobs, argnums=(0, 1)))(hidden, embedding)
    weights[1] = 0
    expected = torch_oracle(
        hidden, embedding, targets, weights, **({"temperature": 1.0, "soft_cap": None} | tempered(options))
    )
    np.testing.assert_allclose(value, (weights[0] * expected[0].numpy()).sum(), rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(grads, expected[2:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def tempered(options):
    return {name: value for name, value in options.items() if name in {"temperature", "soft_cap"}}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("tiles", [{}, {"vocab_chunk": 3}, {"vocab_chunk": 3, "vocab_shards": 2}])
def test_sums_survive_logits_that_grow_or_fall_by_thousands(order, tiles):
    rising = np.linspace(-3e4, 3e4, 40)[::order, None].astype(np.float32)
    rising[-1], rising[-2] = rising.max(), rising.max() - np.float32(0.5)
    targets = np.asarray([39, 38, 0])
    lp, entropy = jax.jit(logprobs.token_logprobs_and_entropy, static_argnames=OPTIONS)(
        jnp.ones((3, 1)), jnp.asarray(rising), jnp.asarray(targets, jnp.int32), **tiles
    )
    distribution = torch.distributions.Categorical(
        logits=torch.tensor(np.tile(rising[:, 0].astype(np.float64), (3, 1)))
    )
    np.testing.assert_allclose(lp, distribution.log_prob(torch.tensor(targets)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(entropy, distribution.entropy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tiles", [{}, {"vocab_chunk": 2}, {"vocab_chunk": 2, "vocab_shards": 2}])
def test_ids_of_logit_minus_infinity_count_as_absent(tiles):
    # Whole tiles of them come first, in between and last.
    logits = np.full(16, -np.inf, np.float32)
    logits[[5, 9]] = 0.0, np.log(3.0)
    lp, entropy = jax.jit(logprobs.token_logprobs_and_entropy, static_argnames=OPTIONS)(
        jnp.ones((3, 1)), jnp.asarray(logits[:, None]), jnp.asarray([5, 9, 0]), **tiles
    )
    np.testing.assert_allclose(lp, [np.log(0.25), np.log(0.75), -np.inf], rtol=1e-6)
    np.testing.assert_allclose(entropy, [-0.25 * np.log(0.25) - 0.75 * np.log(0.75)] * 3, rtol=1e-6)


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


@pytest.mark.parametrize("chunk", [2, None])
def test_bfloat16_gives_float32_results_near_those_of_float32(chunk):
    hidden, embedding, targets = arrays(3, tokens=64)
    narrow = hidden.astype(jnp.bfloat16), embedding.astype(jnp.bfloat16)
    wide = tuple(a.astype(jnp.float32) for a in narrow)

    def objective(hidden, embedding):
        return token_logprobs(hidden, embedding, targets, token_chunk=chunk).sum()

    lp = token_logprobs(*narrow, targets, token_chunk=chunk)
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


@pytest.mark.parametrize("tiles", [{}, {"token_chunk": 4}, {"token_chunk": 4, "vocab_chunk": 4}])
def test_an_id_outside_the_vocabulary_gives_nan_and_leaves_other_tokens_alone(tiles):
    hidden, embedding, targets = arrays(5)
    for bad in (-1, VOCABULARY):
        bad_targets = targets.at[3].set(bad)
        result = np.asarray(token_logprobs(hidden, embedding, bad_targets, **tiles))
        assert np.isnan(result[3])
        assert np.isfinite(np.delete(result, 3)).all()


@pytest.mark.parametrize("chunk", [4, None])
def test_a_masked_token_with_a_bad_id_has_no_gradient(chunk):
    hidden, embedding, targets = arrays(5)

    def masked(hidden, embedding):
        lp = token_logprobs(hidden, embedding, targets.at[3].set(-100), token_chunk=chunk)
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


@pytest.mark.parametrize(
    ("options", "loops"),
    [
        ({}, False),
        ({"token_chunk": TOKENS, "vocab_chunk": VOCABULARY}, False),
        ({"token_chunk": TOKENS - 1}, True),
        ({"vocab_chunk": VOCABULARY - 1}, True),
    ],
)
def test_where_all_fits_one_tile_there_is_no_loop(options, loops):
    hidden, embedding, targets = arrays()

    def objective(hidden, embedding):
        return token_logprobs(hidden, embedding, targets, **options).sum()

    text = jax.jit(jax.grad(objective, argnums=(0, 1))).lower(hidden, embedding).as_text()
    assert ("stablehlo.while" in text) is loops


def lowered(tokens, vocabulary, **options):
    """The gradient's program for arrays of these sizes, which are not made."""

    def objective(hidden, embedding, targets):
        return token_logprobs(hidden, embedding, targets, **options).sum()

    shapes = [((tokens, WIDTH), jnp.float32), ((vocabulary, WIDTH), jnp.float32), ((tokens,), jnp.int32)]
    return jax.jit(jax.grad(objective, argnums=(0, 1))).lower(*(jax.ShapeDtypeStruct(*s) for s in shapes)).as_text()


@pytest.mark.parametrize(
    ("tokens", "options", "whole"),
    [
        (4095, {}, True),
        (4096, {}, False),  # 4,096 x 8,192 x 4 bytes are 128 MiB
        (4095, {"token_chunk": 4095}, True),
        (4095, {"token_chunk": 4094}, False),
        (4095, {"vocab_chunk": 4096}, False),
        (4095, {"vocab_shards": 2}, False),
    ],
)
def test_all_logits_exist_at_once_only_below_128_mib_and_where_nothing_cuts_them(tokens, options, whole):
    text = lowered(tokens, 8192, **options)
    assert (f"tensor<{tokens}x8192xf32>" in text) is whole
    assert ("stablehlo.while" in text) is not whole


@pytest.mark.parametrize("vocabulary", [1024, 4096, 32_768, 152_576])
def test_only_whoever_asks_gets_tiles_with_rows_of_4096_bytes(vocabulary):
    tokens = -(-logprobs.WHOLE_BYTES // (4 * vocabulary))

    def columns(**options):
        return {int(n) for n in re.findall(r"tensor<\d+x1x(\d+)xf32>", lowered(tokens, vocabulary, **options))}

    assert max(columns()) < 1024 == max(columns(vocab_chunk=1024))


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


def on_a_mesh(hidden, embedding, targets, *, rows, **options):
    """Compiled gradients with rows over 4 devices if asked for and ids over 2; the arrays; the same in one tile."""
    mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(rows))
    by_vocabulary = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("tensor"))

    def grad(hidden, embedding, targets, **options):
        def objective(hidden, embedding):
            lp, entropy = logprobs.token_logprobs_and_entropy(hidden, embedding, targets, **options)
            return (lp + 0.3 * entropy).sum(), (lp, entropy)

        return jax.grad(objective, argnums=(0, 1), has_aux=True)(hidden, embedding)

    spread = jax.device_put((hidden, embedding, targets), (by_rows, by_vocabulary, by_rows))
    return jax.jit(functools.partial(grad, **options)).lower(*spread).compile(), spread, jax.jit(grad)


@pytest.mark.parametrize("token_chunk", [None, 16])
def test_ids_split_over_two_devices_and_rows_over_four_give_the_result_of_one(token_chunk):
    alone = arrays(10, tokens=64, vocabulary=600)
    compiled, spread, grad = on_a_mesh(*alone, rows="data", vocab_chunk=70, vocab_shards=2, token_chunk=token_chunk)
    result = compiled(*spread)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), result, grad(*alone))
    assert {shard.data.shape for shard in result[0][1].addressable_shards} == {(300, WIDTH)}


def test_devices_do_not_gather_each_others_ids():
    hidden, embedding, targets = arrays(10, tokens=64, vocabulary=4096)
    gathered = {}
    for shards in (1, 2):
        text = on_a_mesh(hidden, embedding, targets, rows=None, vocab_chunk=300, vocab_shards=shards)[0].as_text()
        results = re.findall(r"= (.*) all-gather(?:-start)?\(", text)
        gathered[shards] = 4 * sum(
            int(np.prod([int(n) for n in shape.split(",") if n]))
            for result in results
            for shape in re.findall(r"f32\[([\d,]*)\]", result)
        )
        # What devices do exchange, once per pass: sums per token.
        loops = [line for line in text.splitlines() if "all-reduce(" in line and "while/body" in line]
        assert not loops
    assert gathered[2] < embedding.nbytes <= gathered[1]  # the latter, so that the search does find them


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": jnp.ones((2, 3, WIDTH))}, r"hidden must be floating with two axes.*\[2, 3, 8\]; flatten"),
        ({"hidden": jnp.ones((TOKENS, WIDTH), jnp.int32)}, "hidden must be floating"),
        ({"output_embedding": jnp.ones((WIDTH, VOCABULARY))}, "transpose"),
        ({"targets": jnp.zeros(3, jnp.int32)}, r"targets must be int \[tokens\] = \[13\], got int32 \[3\]"),
        ({"targets": jnp.zeros(TOKENS)}, "targets must be int"),
        ({"token_chunk": 0}, "token_chunk must be 1 or more, got 0"),
        ({"vocab_chunk": 0}, "vocab_chunk must be 1 or more, got 0"),
        ({"vocab_shards": 0}, "vocab_shards must be 1 or more, got 0"),
        ({"vocab_shards": 2}, "vocab_shards must divide the vocabulary of 29 tokens, got 2; use 1"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"soft_cap": -1.0}, "soft_cap must be above 0"),
    ],
)
def test_bad_input_is_refused(change, message):
    hidden, embedding, targets = arrays()
    with pytest.raises(ValueError, match=message):
        logprobs.token_logprobs(**({"hidden": hidden, "output_embedding": embedding, "targets": targets} | change))

"""Log-probabilities among few choices: against enumeration and torch, by differences, on eight devices, in memory."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc.logprobs import choices as module
from dfc.logprobs import constrained_logprobs

TOKENS, WIDTH, VOCABULARY = 10, 8, 640


def arrays(most, *, tokens=TOKENS, vocabulary=VOCABULARY, seed=0):
    """Hidden states, embedding, targets anywhere in their sets, sets of all sizes from none on, and weights."""
    rng = np.random.default_rng(seed)
    choices = np.full((tokens, most), -1, np.int32)
    sizes = rng.integers(1, most + 1, tokens)
    sizes[:3] = most, 0, 1
    for row, size in zip(choices, sizes, strict=True):
        row[:size] = rng.choice(vocabulary, size, replace=False)
    targets = np.asarray([row[rng.integers(max(size, 1))] for row, size in zip(choices, sizes, strict=True)])
    hidden, embedding = (rng.normal(size=(n, WIDTH)).astype(np.float32) for n in (tokens, vocabulary))
    return hidden, embedding, targets, choices, rng.normal(size=tokens).astype(np.float32)


def enumerated(hidden, embedding, targets, choices, temperature=1.0, soft_cap=None):
    """The formula, one token and one choice after the other, in float64; 0 where there is no choice."""
    hidden, embedding = hidden.astype(np.float64), embedding.astype(np.float64)

    def exponential(n, v):
        z = sum(a * b for a, b in zip(hidden[n], embedding[v], strict=True))
        return np.exp((z if soft_cap is None else soft_cap * np.tanh(z / soft_cap)) / temperature)

    return np.asarray(
        [
            np.log(exponential(n, targets[n]) / sum(exponential(n, v) for v in row if v >= 0)) if row[0] >= 0 else 0
            for n, row in enumerate(choices)
        ]
    )


def gradients(hidden, embedding, targets, choices, weights, **options):
    """Values, and gradients of their weighted sum."""

    def objective(hidden, embedding):
        found = constrained_logprobs(hidden, embedding, jnp.asarray(targets), jnp.asarray(choices), **options)
        return (weights * found).sum(), found

    (_, found), grads = jax.jit(jax.value_and_grad(objective, argnums=(0, 1), has_aux=True))(hidden, embedding)
    return found, *grads


def by_torch(hidden, embedding, targets, choices, weights, temperature=1.0, soft_cap=None):
    hidden, embedding = (torch.tensor(np.asarray(a, np.float64), requires_grad=True) for a in (hidden, embedding))
    logits = hidden @ embedding.T
    logits = (logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)) / temperature
    total, found = torch.tensor(0.0, dtype=torch.float64), np.zeros(len(choices))
    for n in np.flatnonzero(choices[:, 0] >= 0):
        allowed = choices[n][choices[n] >= 0]
        one = torch.log_softmax(logits[n, allowed.tolist()], 0)[np.flatnonzero(allowed == targets[n])[0]]
        total, found[n] = total + float(weights[n]) * one, one.item()
    total.backward()
    return found, hidden.grad, embedding.grad


def in_a_loop(monkeypatch, pairs):
    """Has this many rows gathered at a time; None: all at once."""
    if pairs is not None:
        monkeypatch.setattr(module, "_WHOLE", 0)
        monkeypatch.setattr(module, "_GATHERED", pairs * WIDTH)


@pytest.mark.parametrize("pairs", [None, 1, 7, 10_000], ids=["at once", "one", "seven", "all in one turn"])
@pytest.mark.parametrize("most", [1, 16, 17])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.6}, {"temperature": 1.7, "soft_cap": 2.0}], ids=str)
def test_values_are_those_of_enumeration_and_gradients_those_of_torch(monkeypatch, most, pairs, options):
    in_a_loop(monkeypatch, pairs)
    given = arrays(most)
    found = gradients(*given, **options)
    np.testing.assert_allclose(found[0], enumerated(*given[:4], **options), rtol=2e-5, atol=2e-5)
    for ours, theirs in zip(found, by_torch(*given, **options), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("pairs", [None, 100])
def test_sets_of_512_agree_with_torch_and_differences_with_gradients(monkeypatch, pairs):
    in_a_loop(monkeypatch, pairs)
    given = arrays(512)
    found = gradients(*given)
    for ours, theirs in zip(found, by_torch(*given), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
    hidden, embedding, targets, choices, weights = given
    rng = np.random.default_rng(1)
    for which, array in enumerate((hidden, embedding)):
        step = 1e-4 * rng.normal(size=array.shape)
        moved = [[a.astype(np.float64) for a in (hidden, embedding)] for _ in range(2)]
        for sign, pair in zip((1, -1), moved, strict=True):
            pair[which] += sign * step
        ahead, behind = (weights @ enumerated(*pair, targets, choices) for pair in moved)
        assert (ahead - behind) / 2 == pytest.approx((np.asarray(found[1 + which]) * step).sum(), rel=1e-3)


@pytest.mark.parametrize("pairs", [None, 7])
def test_what_is_no_choice_has_no_gradient_and_without_any_choice_a_token_gives_0(monkeypatch, pairs):
    in_a_loop(monkeypatch, pairs)
    hidden, embedding, targets, choices, weights = arrays(17)
    found, hidden_gradient, embedding_gradient = map(
        np.asarray, gradients(hidden, embedding, targets, choices, weights)
    )
    assert found[1] == 0
    assert (hidden_gradient[1] == 0).all()
    others = np.setdiff1d(np.arange(VOCABULARY), choices)
    assert len(others) > 400
    assert (embedding_gradient[others] == 0).all()
    nothing = gradients(hidden, embedding, targets, np.full_like(choices, -1), weights)
    assert all((np.asarray(x) == 0).all() for x in nothing)


@pytest.mark.parametrize("pairs", [None, 7])
@pytest.mark.parametrize("fault", ["no choice of its own", "a choice outside", "a target of padding"])
def test_a_faulty_token_gives_nan_which_a_mask_keeps_from_all_gradients(monkeypatch, pairs, fault):
    in_a_loop(monkeypatch, pairs)
    hidden, embedding, targets, choices, weights = arrays(16)
    masked = np.arange(TOKENS) != 4
    without = gradients(hidden, embedding, targets, choices, weights * masked)
    choices[4, 1:] = -1
    if fault == "a choice outside":
        choices[4, 1] = VOCABULARY
    targets[4] = {"no choice of its own": (choices[4, 0] + 1) % VOCABULARY, "a target of padding": -1}.get(
        fault, choices[4, 0]
    )

    def objective(hidden, embedding):
        found = constrained_logprobs(hidden, embedding, jnp.asarray(targets), jnp.asarray(choices))
        return jnp.where(masked, weights * found, 0).sum(), found

    (_, found), grads = jax.jit(jax.value_and_grad(objective, argnums=(0, 1), has_aux=True))(hidden, embedding)
    assert np.flatnonzero(np.isnan(found)).tolist() == [4]
    for ours, theirs in zip(grads, without[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pairs", [None, 50])
def test_bfloat16_gives_the_values_of_float32_and_sums_gradients_in_it(monkeypatch, pairs):
    in_a_loop(monkeypatch, pairs)
    hidden, embedding, *rest = arrays(16, tokens=40)
    narrow = [jnp.asarray(a, jnp.bfloat16) for a in (hidden, embedding)]
    wide = [np.asarray(a, np.float32) for a in narrow]
    found, expected = gradients(*narrow, *rest), gradients(*wide, *rest)
    assert [a.dtype for a in found] == [jnp.float32, jnp.bfloat16, jnp.bfloat16]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(ours.astype(jnp.float32), theirs, rtol=2**-7, atol=0.02)
    # 1,024 equal contributions of a half: added one at a time in bfloat16 they would stop at 128.
    ones = jnp.ones((1024, 1), jnp.bfloat16)
    choices = np.tile(np.asarray([[0, 1]], np.int32), (1024, 1))
    many = gradients(ones, 0 * ones, choices[:, 0], choices, np.ones(1024, np.float32))[2]
    np.testing.assert_allclose(many[:3, 0].astype(jnp.float32), [512, -512, 0], rtol=0.01)


def spread(mesh, hidden, embedding, targets, choices, weights):
    """The gradient's program on eight devices, and its arguments."""
    devices = jax.make_mesh(mesh, ("data", "fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
    rows, head = (
        jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec(*names))
        for names in ((("data", "fsdp"),), ("tensor", "fsdp"))
    )

    def objective(hidden, embedding, targets, choices):
        found = constrained_logprobs(
            hidden, embedding, targets, choices, token_shards=mesh[0] * mesh[1], vocab_shards=mesh[2]
        )
        return (weights * found).sum(), found

    given = jax.device_put((hidden, embedding, targets, choices), (rows, head, rows, rows))
    gradient = jax.jit(jax.value_and_grad(objective, argnums=(0, 1), has_aux=True))
    return gradient.lower(*given).compile(), given


@pytest.mark.parametrize("mesh", [(8, 1, 1), (1, 1, 8), (2, 2, 2)], ids=str)
def test_eight_devices_find_what_one_does_and_send_no_rows_in_a_loop(monkeypatch, mesh):
    monkeypatch.setattr(module, "_GATHERED", 32 * WIDTH)  # 32 rows at a time
    given = arrays(32, tokens=64)
    alone = gradients(*given)
    compiled, arguments = spread(mesh, *given)
    (_, found), grads = compiled(*arguments)
    for ours, theirs in zip((found, *grads), alone, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * np.abs(theirs).max())
    names = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    sent = re.findall(rf"= (.*?) ({names})(?:-start)?\((.*)", compiled.as_text())
    assert sent
    assert not [line for line in sent if "while/body" in line[2]]
    shares = VOCABULARY // mesh[2], 64 // (mesh[0] * mesh[1])
    for shapes, name, _ in sent:
        for shape in re.findall(r"\[([\d,]*)\]", shapes):
            sizes = [int(n) for n in shape.split(",") if n]
            # Rows of the device's own vocabulary, hidden states of its own tokens, products of these or a total.
            assert int(np.prod(sizes)) <= max(shares[0] * WIDTH, shares[1] * 32 + 32), (name, shape)
            if name == "all-gather":  # of the width, over fsdp devices
                assert mesh[1] > 1
                assert sizes[-2:] == [shares[0], WIDTH]


def test_memory_stays_below_that_of_logits_and_of_the_rows_of_all_choices():
    tokens, width, vocabulary, most = 4096, 64, 49_152, 64

    def objective(hidden, embedding, targets, choices):
        return constrained_logprobs(hidden, embedding, targets, choices).sum()

    shapes = (
        jax.ShapeDtypeStruct(shape, dtype)
        for shape, dtype in (
            ((tokens, width), jnp.float32),
            ((vocabulary, width), jnp.float32),
            ((tokens,), jnp.int32),
            ((tokens, 8 * most), jnp.int32),
        )
    )
    compiled = jax.jit(jax.value_and_grad(objective, argnums=(0, 1))).lower(*shapes).compile()
    held = 4 * width * (tokens + vocabulary)  # sums of gradients
    bound = held + 10 * 4 * tokens * 8 * most
    assert compiled.memory_analysis().temp_size_in_bytes < bound < 4 * tokens * vocabulary
    assert bound < 4 * tokens * 8 * most * width


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": jnp.ones((2, 3, WIDTH))}, r"constrained_logprobs: hidden must be floating with two axes"),
        ({"output_embedding": jnp.ones((WIDTH, VOCABULARY))}, "constrained_logprobs: .* transpose"),
        ({"targets": jnp.zeros(3, jnp.int32)}, r"targets must be int \[tokens\] = \[10\]"),
        (
            {"choices": jnp.zeros((3, 4), jnp.int32)},
            r"choices must be int \[tokens, choices\] = \[10, 1 or more\].*3, 4",
        ),
        ({"choices": jnp.zeros(TOKENS, jnp.int32)}, "choices must be int"),
        ({"choices": jnp.zeros((TOKENS, 0), jnp.int32)}, "a token without choices has a row of -1"),
        ({"choices": jnp.zeros((TOKENS, 4))}, "choices must be int .* got float32"),
        ({"token_shards": 0}, "token_shards must be 1 or more, got 0"),
        ({"vocab_shards": 0}, "vocab_shards must be 1 or more, got 0"),
        ({"vocab_shards": 3}, "vocab_shards must divide the vocabulary of 640 tokens, got 3"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"soft_cap": -1.0}, "soft_cap must be above 0"),
    ],
)
def test_bad_input_is_refused(change, message):
    hidden, embedding, targets, choices, _ = arrays(4)
    given = {"hidden": hidden, "output_embedding": embedding, "targets": jnp.asarray(targets), "choices": choices}
    with pytest.raises(ValueError, match=message):
        constrained_logprobs(**(given | change))

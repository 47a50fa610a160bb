"""Averages of adapters, against the singular values of whole matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dfc.models import lora

TARGETS = (("attention", "query"), ("mlp", "down"))


def adapters(seed, rank=3, layers=2, scale=1.0):
    rng = np.random.default_rng(seed)

    def pair(inputs, outputs):
        a = rng.normal(size=(inputs, rank)) * scale
        b = rng.normal(size=(rank, outputs)) * scale
        return {"a": jnp.asarray(a, jnp.float32), "b": jnp.asarray(b, jnp.float32)}

    return {"layers": {n: {"attention": {"query": pair(10, 8)}, "mlp": {"down": pair(12, 9)}} for n in range(layers)}}


def products(tree):
    pairs = [
        tree["layers"][n][part][name]
        for n in tree["layers"]
        for part, name in (("attention", "query"), ("mlp", "down"))
    ]
    return [np.asarray(p["a"], np.float64) @ np.asarray(p["b"], np.float64) for p in pairs]


@pytest.mark.parametrize("weight", [0.5, 0.2])
def test_the_average_is_the_best_one_of_its_rank(weight):
    one, other = adapters(0), adapters(1)
    found, missing = lora.average(one, other, weight=weight)
    missed = whole = 0.0
    for got, x, y in zip(products(found), products(one), products(other), strict=True):
        exact = (1 - weight) * x + weight * y
        u, s, vt = np.linalg.svd(exact)
        best = u[:, :3] * s[:3] @ vt[:3]
        np.testing.assert_allclose(got, best, atol=1e-4)
        missed, whole = missed + (s[3:] ** 2).sum(), whole + (s**2).sum()
    assert missing == pytest.approx(np.sqrt(missed / whole), rel=1e-3)
    assert 0.05 < missing < 0.7


def test_the_average_with_itself_is_itself():
    tree = adapters(0)
    found, missing = lora.average(tree, tree)
    for got, expected in zip(products(found), products(tree), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-4)
    assert missing < 1e-3


def test_adapters_without_an_effect_can_still_be_trained_after_averaging():
    tree = jax.tree.map_with_path(lambda path, x: x * jnp.float32(path[-1].key == "a"), adapters(0))
    found, missing = lora.average(tree, tree)
    assert missing == 0
    for leaf in jax.tree.leaves_with_path(found):
        path, value = leaf
        assert bool(jnp.isfinite(value).all())
        assert bool((jnp.abs(value).max() > 0.1) == (path[-1].key == "a"))


def test_stacked_adapters_average_layer_by_layer():
    one, other = adapters(0), adapters(1)
    stack = lambda tree: {"layers": jax.tree.map(lambda *x: jnp.stack(x), *tree["layers"].values())}  # noqa: E731 - twice, in one line each
    found, missing = lora.average(stack(one), stack(other))
    plain, plain_missing = lora.average(one, other)
    assert missing == pytest.approx(plain_missing, rel=1e-4)
    for n in range(2):
        pair = found["layers"]["mlp"]["down"]
        expected = plain["layers"][n]["mlp"]["down"]
        np.testing.assert_allclose(pair["a"][n] @ pair["b"][n], expected["a"] @ expected["b"], atol=1e-4)


def test_adapters_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="same targets, rank"):
        lora.average(adapters(0), adapters(0, rank=2))

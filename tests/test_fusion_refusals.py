"""What every way of fusing refuses, with the leaf and both values."""

import numpy as np
import pytest

from dfc.fusion import average, task_arithmetic, ties

BASE = {"a": {"w": np.ones((2, 3), np.float32)}, "b": np.ones(2, np.float32)}
BASED = ("the base", "tree 1", "tree 2")
NAMES = {average: ("tree 1", "tree 2", "tree 3"), task_arithmetic: BASED, ties: BASED}  # of the trees in messages


def changed(**leaves):
    """The base with another `w` or `b`."""
    return {"a": {"w": leaves.get("w", BASE["a"]["w"])}, "b": leaves.get("b", BASE["b"])}


@pytest.mark.parametrize("method", NAMES, ids=lambda method: method.__name__)
@pytest.mark.parametrize(
    ("trees", "message"),
    [
        (
            (BASE, changed(w=np.ones((3, 2), np.float32))),
            r"\['a'\]\['w'\] is float32\[2, 3\] in {0} but float32\[3, 2\] in {1}",
        ),
        ((BASE, BASE, changed(b=np.ones(2, np.float64))), r"\['b'\] is float32\[2\] in {0} but float64\[2\] in {2}"),
        ((BASE, {"a": BASE["a"]}), r"{0} has a leaf \['b'\], {1} has none"),
        (({"a": BASE["a"]}, BASE), r"{1} has a leaf \['b'\], {0} has none"),
        ((changed(b=np.ones(2, np.int32)),) * 2, r"\['b'\] is int32\[2\]"),
        ((changed(b=0.5),) * 2, r"\['b'\] is 0.5 of type float"),
        ((BASE, changed(b=0.5)), r"\['b'\] is float32\[2\] in {0} but 0.5 of type float"),
        (([np.ones(1)], (np.ones(1),)), "the leaves of {0} and {1} agree but their containers do not"),
    ],
)
def test_trees_that_do_not_match_are_refused_with_the_leaf_and_both_values(method, trees, message):
    with pytest.raises(ValueError, match=f"^{method.__name__}: .*{message.format(*NAMES[method])}"):
        method(*trees)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (average, "average: needs at least one tree of parameters, got none"),
        (lambda: average(BASE, BASE, weights=(1.0,)), "average: 2 trees need 2 weights, got 1"),
        (lambda: average(BASE, BASE, weights=(1.0, 0.0)), "average: weights must be above 0"),
        (lambda: average(BASE, BASE, weights=(1.0, -1.0)), "average: weights must be above 0"),
        (lambda: average(BASE, BASE, weights=(1.0, np.nan)), "average: weights must be above 0"),
    ],
)
def test_an_average_of_nothing_or_of_weights_that_do_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


@pytest.mark.parametrize("method", [task_arithmetic, ties])
@pytest.mark.parametrize(
    ("trees", "scale", "message"),
    [
        ((BASE,), 1.0, "needs at least one tree of parameters besides the base, got none"),
        ((BASE, BASE), np.nan, "scale must be a finite number, got nan"),
        ((BASE, BASE), np.inf, "scale must be a finite number, got inf"),
    ],
)
def test_a_lonely_base_and_a_scale_that_is_no_number_are_refused(method, trees, scale, message):
    with pytest.raises(ValueError, match=f"^{method.__name__}: {message}"):
        method(*trees, scale=scale)


@pytest.mark.parametrize("density", [0, -0.2, 1.01, 20, np.nan])
def test_a_density_that_is_no_share_is_refused(density):
    with pytest.raises(ValueError, match=f"^ties: density must be above 0 and at most 1, got {density}"):
        ties(BASE, BASE, density=density)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1.0,), "2 trees besides the base need 2 weights, got 1"),
        ((), "2 trees besides the base need 2 weights, got 0"),
        ((1.0, np.nan), "weights must be finite numbers"),
        ((1.0, -np.inf), "weights must be finite numbers"),
    ],
)
def test_weights_of_task_vectors_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(ValueError, match=f"^task_arithmetic: {message}"):
        task_arithmetic(BASE, BASE, BASE, weights=weights)

"""The loop to read: it trains, it is short, and the page shows it."""

import ast
import itertools
import math

import jax
import numpy as np
import pytest
from doc_pages import ROOT, blocks

from dfc.methods import loop
from dfc.models.huggingface import load, resolve
from dfc.models.transformer import stack_layers

FILE = ROOT / "dfc" / "methods" / "loop.py"


@pytest.fixture(autouse=True)
def promotion():
    with jax.numpy_dtype_promotion("standard"):  # as optax wants it
        yield


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(loop, "GROUPS", 4)
    monkeypatch.setattr(loop, "GROUP_SIZE", 4)


def size_of_change(before, after):
    changes = jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), before, after)
    return max(jax.tree.leaves(changes))


@pytest.mark.usefixtures("small")
def test_the_loop_trains():
    _, initial = load(resolve("tiny_player"), dtype="float32")
    done = list(loop.train(iterations=3))
    assert len(done) == 3
    weights = [stack_layers(initial), *(update.params for _, update in done)]
    for before, after in itertools.pairwise(weights):
        assert 1e-5 < size_of_change(before, after) < 0.1
    assert size_of_change(weights[0], weights[-1]) > 1.5e-3  # one update of Adam is 1e-3 at most
    for reward, update in done:
        assert -1 <= reward <= 1
        assert math.isfinite(update.loss)
        assert update.gradient_norm > 0
        assert update.weight > 16  # action tokens
        assert {"ratio", "clip_fraction", "negative_logprob"} <= update.metrics.keys()
        # One update on what these weights sampled: nothing has moved yet that could be clipped.
        assert update.metrics["ratio"] == pytest.approx(1, abs=1e-3)
        assert update.gap["sampler_gap/max"] < 1e-3
    again = list(loop.train(iterations=1))
    assert size_of_change(again[0][1].params, done[0][1].params) == 0
    assert size_of_change(next(loop.train(iterations=1, seed=1))[1].params, done[0][1].params) > 0


@pytest.mark.usefixtures("small")
def test_it_prints_one_line_an_iteration(capsys):
    loop.main(iterations=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2"]
    assert all("reward" in line and "loss" in line for line in lines)


def test_it_has_fifty_lines_of_code_at_most():
    code = FILE.read_text()
    documentation = {
        line
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Module | ast.FunctionDef)
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    left = [
        line
        for number, line in enumerate(code.splitlines(), start=1)
        if number not in documentation and line.split("#")[0].strip()
    ]
    assert len(left) <= 50


def test_the_page_begins_with_it_as_it_is():
    first = next(code for language, code in blocks((ROOT / "docs" / "add_a_method.md").read_text()) if language)
    assert first == FILE.read_text()

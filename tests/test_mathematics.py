"""Answers compared as mathematics: verdicts equal math-verify's own, whatever hangs is replaced."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import util

import pytest

from dfc.errors import ConfigError
from dfc.scoring import mathematics
from dfc.scoring.mathematics import Mathematics

# Of each: the reference, an answer, and whether that is right.
CASES = [
    ("\\frac{1}{2}", "So it is $0.5$.", True),
    ("\\frac{1}{2}", "\\boxed{\\frac{2}{4}}", True),
    ("\\frac{1}{2}", "\\boxed{0.05}", False),
    ("72", "Natalia sold 48+24 = 72 clips.", True),
    ("72", "It is 73.", False),
    ("(-\\infty, 3)", "\\boxed{(-\\infty,3)}", True),
    ("x^2+2x+1", "$(x+1)^2$", True),
    ("\\{1,2\\}", "\\boxed{\\{2, 1\\}}", True),
    ("1000", "1,000", True),
    ("5", "no number here", False),
]
HANGS = "\\boxed{9^{9^{9^{9^{9}}}}}"


@pytest.fixture(scope="module")
def scorer():
    with Mathematics({reference: reference for reference, *_ in CASES} | {"bad": "\\text{}"}, seconds=20) as made:
        yield made


def test_verdicts_are_those_of_mathematics(scorer):
    scores = scorer([reference for reference, *_ in CASES], [answer for _, answer, _ in CASES])
    assert scores.values.tolist() == [float(right) for *_, right in CASES]
    assert scores.mask.all()
    assert dict(scores.counts) == {"right": 7, "wrong": 2, "no_answer": 1}


def test_the_reference_comes_first():
    math_verify = pytest.importorskip("math_verify")
    first, second = "1 < x < 2", "(1, 2)"
    both = [math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (first, second)]
    forward = math_verify.verify(both[0], both[1], timeout_seconds=None)
    backward = math_verify.verify(both[1], both[0], timeout_seconds=None)
    assert forward != backward  # the library is not symmetric here
    with Mathematics({"a": first, "b": second}, seconds=20, workers=1) as scorer:
        answers = [f"\\boxed{{{second}}}", f"\\boxed{{{first}}}"]
        assert scorer(["a", "b"], answers).values.tolist() == [float(forward), float(backward)]


def test_what_hangs_is_ended_and_the_next_answer_is_compared_in_time_from_any_thread():
    threads = set(threading.enumerate())
    with Mathematics({"q": "4"}, seconds=3.0, workers=1) as scorer, ThreadPoolExecutor(1) as pool:
        assert pool.submit(scorer, ["q"], ["4"]).result().values.tolist() == [1.0]
        before = scorer._idle.queue[0]._process.pid
        scores = pool.submit(scorer, ["q"], [HANGS]).result()
        assert scores.values.tolist() == [0.0]
        assert set(scores.counts) <= {"time_limit", "ended"}
        assert pool.submit(scorer, ["q"], ["$2+2$"]).result().values.tolist() == [1.0]
        assert scorer._idle.queue[0]._process.pid != before
    assert scorer._idle.queue[0]._process is None
    assert set(threading.enumerate()) <= threads


def test_processor_time_decides_and_not_the_clock_on_the_wall(monkeypatch):
    monkeypatch.setattr(mathematics, "_WALL", 100.0)
    with Mathematics({"q": "4"}, seconds=3.0, workers=1) as scorer, ThreadPoolExecutor(1) as pool:
        assert scorer(["q"], ["4"]).values.tolist() == [1.0]
        process = scorer._idle.queue[0]._process
        process.send_signal(signal.SIGSTOP)  # a machine that has no time for it
        late = pool.submit(scorer, ["q"], ["$2+2$"])
        time.sleep(4)
        process.send_signal(signal.SIGCONT)
        assert dict(late.result().counts) == {"right": 1}
        assert scorer._idle.queue[0]._process is process
        monkeypatch.setattr(mathematics, "_WALL", 0.5)
        process.send_signal(signal.SIGSTOP)
        assert dict(scorer(["q"], ["4"]).counts) == {"time_limit": 1}  # who does not compute ends, too


@pytest.mark.parametrize(
    "answer", ["{" * 3000, "\\boxed{" * 500, "$" * 5001, "\x00\ud800", "\\sqrt{" * 300 + "1", "1" * 5000, "x" * 300_000]
)
def test_a_hostile_answer_is_wrong_and_harms_nothing(scorer, answer):
    scores = scorer(["72", "72"], [answer, "72"])
    assert scores.values.tolist() == [0.0, 1.0]


def test_what_has_no_readable_reference_is_not_scored(scorer):
    scores = scorer(["other", "72"], ["1", "72"])
    assert scores.mask.tolist() == [False, True]
    assert scores.counts["no_reference"] == 1


def test_results_are_looked_at_for_a_stop_after_each():
    looks = []
    with Mathematics({"q": "4"}, seconds=60, workers=1, check_stop=lambda: looks.append(None)) as scorer:
        assert scorer(["q"] * 3, ["4", "5", "4"]).values.tolist() == [1.0, 0.0, 1.0]
    assert len(looks) == 3


def test_without_the_library_it_is_refused_with_the_command(monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"/.* -m pip install 'dfc\[math\]'"):
        Mathematics({})
    assert mathematics.problems()

"""What a run says while it compiles or computes, so that nobody looks at a silent terminal."""

import io
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import pytest

from dfc.runs import activity
from dfc.runs.activity import Compilations, Reports
from dfc.runs.progress import Progress

COMPILE = "/jax/core/compile/backend_compile_duration"
TRACE = "/jax/core/compile/jaxpr_trace_duration"


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def compiled(clock, compilations, name, seconds, event=COMPILE):
    compilations.begin(event, 0.0, fun_name=name)
    clock.now += seconds
    compilations.end(event, seconds, fun_name=name)


def test_seconds_of_compilation_are_those_on_the_wall_also_where_two_threads_compile(clock):
    compilations = Compilations(clock)
    compilations.begin(TRACE, 0.0)
    clock.now += 1
    thread = threading.Thread(target=compiled, args=(clock, compilations, "jit_decode", 2.0))
    thread.start()
    thread.join()
    clock.now += 1
    assert compilations.seconds == 4  # under way
    compilations.end(TRACE, 4.0)
    clock.now += 50
    compilations.begin("/jax/something/else", 0.0)
    clock.now += 50
    assert compilations.seconds == 4


def test_the_program_that_is_compiled_has_its_name_and_its_number(clock):
    compilations = Compilations(clock)
    compiled(clock, compilations, "jit_prefill", 3.0)
    compiled(clock, compilations, "jit_add", 0.1)  # as hundreds are
    compilations.begin(COMPILE, 0.0, fun_name="jit_decode")
    assert compilations.words() == ""
    clock.now += 1
    assert compilations.words() == "compiling decode, 2 of about 8"
    compilations.end(COMPILE, 1.0, fun_name="jit_decode")
    assert compilations.words() == ""
    for _ in range(6):
        compiled(clock, compilations, "jit_prefill", 1.0)
    compilations.begin(COMPILE, 0.0, fun_name="jit_apply")
    clock.now += 1
    assert compilations.words() == "compiling apply, 9 of about 9"  # more than usual


def test_a_first_start_is_told_that_its_programs_are_kept(clock):
    compilations = Compilations(clock, kept=lambda: True)
    compilations.reuse("/jax/compilation_cache/cache_misses")
    compilations.begin(COMPILE, 0.0, fun_name="jit_decode")
    clock.now += 1
    assert compilations.words() == "first start: compiling decode, 1 of about 8, kept for the next start"
    compilations.reuse("/jax/compilation_cache/cache_hits")
    assert compilations.words() == "compiling decode, 1 of about 8, kept for the next start"


def test_a_word_comes_after_five_seconds_of_silence_and_less_and_less_often_afterwards(clock):
    reports = Reports(Compilations(clock), clock)
    said = []
    for second in range(1, 180):
        clock.now += 1
        if reports.due():
            said.append(second)
    assert said == [5, 15, 35, 75, 135]
    reports.spoken()
    clock.now += 9
    assert reports.due() == ""
    clock.now += 1
    assert reports.due() == "in progress: the present step, 0:03:09 since the start"


def test_what_compiles_for_long_is_named_less_and_less_often(clock):
    compilations = Compilations(clock)
    reports = Reports(compilations, clock)
    compilations.begin(COMPILE, 0.0, fun_name="jit_decode")
    said = []
    for _ in range(40):
        clock.now += 1
        said += [line] if (line := reports.due()) else []
    assert said == [
        f"compiling decode, 1 of about 8, 0:00:{second:02} since the start, 0:00:{second:02} of them compiling"
        for second in (5, 15, 35)
    ]


def test_what_jax_compiles_is_named_and_counted():
    seen = []

    def slow(x):
        for _ in range(10):
            seen.append(activity.compilations().seconds)
            time.sleep(0.01)  # while it is traced
        return x * 2 + 3

    before = activity.compilations().seconds
    jax.jit(slow)(jnp.arange(7)).block_until_ready()
    assert sorted(seen) == seen
    assert seen[-1] - seen[0] >= 0.05
    assert 0.1 <= activity.compilations().seconds - before < 60


def test_a_process_that_says_nothing_for_a_while_says_what_it_is_busy_with():
    program = (
        "import time\n"
        "from dfc.runs import activity\n"
        "activity._FIRST = 0.3\n"
        "with activity.reported(every=0.05):\n    time.sleep(1)\n"
        "    with activity.shown_in_panel() as busy:\n        print(busy()); time.sleep(2)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    *before, last = done.stdout.splitlines()
    assert before
    assert all(line.startswith("in progress: the present step, 0:00:0") for line in before)
    assert last == "in progress: the present step"  # a panel shows it itself; nothing is printed beside it


# ---- how long a run takes ----------------------------------------------------------------------------------------


def progress(clock, total, *, compiling=lambda: 0.0, start_step=0):
    output = io.StringIO()
    shown = Progress(
        total, start_step=start_step, shorter=("iterations", "games"), output=output, clock=clock, compiled=compiling
    )
    return shown, output


def update(shown, step):
    shown.update(
        stage="all games",
        iteration=step,
        iterations=100,
        step=step,
        episodes_per_second=1.0,
        tokens_per_second=1.0,
        win_rates={},
    )


def test_seconds_of_compilation_are_not_expected_again(clock):
    seconds = [7.0]
    shown, _ = progress(clock, 10, compiling=lambda: seconds[0])
    clock.now += 100
    seconds[0] += 80
    update(shown, 1)
    assert shown.seconds_left() == 9 * 20


def test_a_run_of_more_than_an_hour_is_warned_of_once_with_what_shortens_it(clock):
    shown, output = progress(clock, 101)
    for step in (1, 2, 3):
        clock.now += 40
        update(shown, step)
    warnings = [line for line in output.getvalue().splitlines() if line.startswith("warning")]
    hint = "what shortens it: iterations, games"
    assert warnings == [f"warning: this takes more than an hour, about 1:06:40; {hint}"]


def test_a_run_of_an_hour_is_not_warned_of(clock):
    shown, output = progress(clock, 101)
    clock.now += 36
    update(shown, 1)
    assert "0:00:36 elapsed, 1:00:00 left" in output.getvalue()
    assert "warning" not in output.getvalue()

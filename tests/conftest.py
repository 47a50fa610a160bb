"""Tests run on eight virtual CPU devices, with strict dtype promotion; warnings are errors (pyproject.toml).

Programs are compiled with few optimizations: compiling is four fifths of the tests' time, and what a program computes
is the same. ``make test-optimized`` runs the tests with the programs that users run.
"""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# For the processes that tests start, too; an XLA_FLAGS from outside wins.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# Compiled programs of the runs that tests start are kept for the time of the tests, and not in the user's folder.
if "DFC_TESTS_CACHE" not in os.environ:
    os.environ["DFC_TESTS_CACHE"] = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="dfc-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

import jax
import pytest

# Needs TRL, which is no dependency of the tests; doctests are looked for in every other file.
collect_ignore = ["agreement_trl.py"]

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_end_with_their_file():
    """Without this one worker grows to 6 GB."""
    yield
    jax.clear_caches()

"""Tests run on eight virtual CPU devices, with strict dtype promotion; warnings are errors (pyproject.toml).

Programs are compiled with few optimizations and XLA's older emitters, and kept for the time of the tests: compiling is
four fifths of the tests' time, and what a program computes is the same. ``make test-optimized`` runs the tests with the
programs that users run.
"""

import atexit
import gc
import importlib.metadata
import os
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "XLA_FLAGS" not in os.environ:  # the processes that tests start take it over
    os.environ["XLA_FLAGS"] = (
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_parallel_codegen_split_count=1"
    )
    if importlib.metadata.version("jaxlib").startswith("0.10."):  # 0.12 ends at this flag, unknown to it
        os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

import gates
import jax
import pytest

from dfc.launch import program_cache

# Need TRL, clemcore or lm-eval, no dependencies of the tests; doctests are looked for in every other file.
collect_ignore = ["agreement_trl.py", "agreement_lm_eval.py"]
collect_ignore += [f"agreement_clembench{part}.py" for part in ("", "_games", "_replies")]
collect_ignore += ["clembench_games"]

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def _keep_programs():
    """Keeps what is compiled in one folder for the time of the tests: workers, files and runs they start share it.

    Not in the user's folder, and without an eviction, which would look at every entry whenever one is written. A folder
    from outside wins (JAX_COMPILATION_CACHE_DIR); it makes later runs of the tests shorter.
    """
    folder = tempfile.mkdtemp(prefix="dfc-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["DFC_TESTS_CACHE"] = os.environ["XDG_CACHE_HOME"] = folder
    kept = os.environ.get("JAX_COMPILATION_CACHE_DIR", folder)
    if program_cache.enable(kept) is None:  # None: this CPU takes back what was stored
        os.environ["JAX_COMPILATION_CACHE_DIR"] = kept
        os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = "-1"
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        jax.config.update("jax_compilation_cache_max_size", -1)


if "DFC_TESTS_CACHE" not in os.environ:  # a worker is given it
    _keep_programs()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spares the garbage collector what lives as long as the worker: modules and 14,000 tests, millions of objects.

    It went through them again and again: a third of the time of collecting, a seventh of that of a test that compiles.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_end_with_their_file():
    """Without this one worker grows to 6 GB."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def tokenizer():
    """That of the bundled model, in files that define no other."""
    from dfc.models import chat, huggingface

    return chat.ChatTokenizer.load(huggingface.resolve("tiny_player"))


@pytest.fixture
def compilations():
    """The durations of compilations, appended as they happen."""
    found = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def optax_promotion():
    """optax raises a float to an integer power, which strict promotion forbids; ours stays strict in the rest."""
    with jax.numpy_dtype_promotion("standard"):
        yield


# The files that take longest, longest first: begun last, one would keep a worker busy while the other one waits.
_LONG = (
    *("test_two_processes", "test_baselines", "test_every_field", "test_resume", "test_teacher_two_processes"),
    *("test_self_play_two_processes", "test_adapter_run", "test_tiny_player", "test_self_play_role_adapters"),
    *("test_tpu_cache", "test_offline_two_processes", "test_training_layouts", "test_losses", "test_offline"),
    *("test_decoding_mesh", "test_paprika_run", "test_self_play_kills", "test_language_self_play", "test_tutorial"),
    *("test_two_hosts_play", "test_games_protocol", "test_games_command", "test_collect", "test_serving_run"),
    *("test_execution", "test_family_parity", "test_trainer", "test_update_parts", "test_sandbox", "test_sampling"),
    *("test_import_direction", "test_logprobs", "test_offline_reference", "test_engine", "test_transformer"),
    *("test_workers", "test_saving", "test_preference_model", "test_engine_adapters", "test_trl_names"),
)


def pytest_addoption(parser):
    parser.addoption("--gate", choices=("first", "all"), default="all", help="which tests run (tests/gates.py)")


def pytest_ignore_collect(collection_path, config):
    """The first gate does not read the files of the second one."""
    if config.getoption("gate") == "first" and collection_path.stem in gates.SECOND:
        return True
    return None


def pytest_collection_modifyitems(config, items):
    """Leaves out what is of the second gate, and puts the files that take long first; the order within a file stays."""
    if config.getoption("gate") == "first":
        seconds = gates.measured()
        later = [item for item in items if gates.is_second(item.path.stem, item.name, seconds)]
        config.hook.pytest_deselected(items=later)
        left_out = set(map(id, later))
        items[:] = [item for item in items if id(item) not in left_out]
    place = {name: number for number, name in enumerate(_LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))

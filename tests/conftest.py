"""Tests run on eight virtual CPU devices, with strict dtype promotion; warnings are errors (pyproject.toml)."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax

# Needs TRL, which is no dependency of the tests; doctests are looked for in every other file.
collect_ignore = ["agreement_trl.py"]

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

"""How much memory of the process an engine takes, beside what its weights and its cache need.

    python benchmarks/memory.py [--size=33M] [--slots=64] [--positions=1024] [--quick]

As many conversations as there are slots, of three turns each, fill half of every slot's positions. Need: the bytes of
the weights and of a key and a value for every position of every slot. Measured: the largest resident size of the
process while it plays, less its size just before the weights are loaded (Python, jax and its libraries). The weights
are drawn and saved by another process. Aim: at most 1.3 times the need. Prints a table and one JSON line.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import rollout_workloads as workloads


def resident() -> float:
    """Returns the present size of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=workloads.SIZES, default="33M")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--positions", type=int, default=1024, help="of a slot")
    parser.add_argument("--quick", action="store_true", help="few, short, a small model, to see that it runs")
    flags = parser.parse_args()
    if flags.quick:
        flags.size, flags.slots, flags.positions = "0.5M", 4, 128
    with tempfile.TemporaryDirectory() as folder:
        draw = "import sys, pathlib, rollout_workloads as w; w.save_random(sys.argv[1], pathlib.Path(sys.argv[2]))"
        command = [sys.executable, "-c", draw, flags.size, folder]
        subprocess.run(command, cwd=Path(__file__).parent, check=True)  # noqa: S603 - our own
        jax.block_until_ready(jnp.ones(8) + 1)  # type: ignore[no-untyped-call]  # jax leaves it untyped
        before = resident()
        config, params = workloads.load(Path(folder))
        loaded = resident()
        engine = workloads.make_engine(config, params, slots=flags.slots, max_length=flags.positions)
        turn = (flags.positions // 6 - 16, 16)
        talks = [[turn] * 3] * flags.slots
        sampled = workloads.converse(engine, talks, workloads.random_tokens(config.vocabulary, 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    weights = 4 * workloads.weight_count(params) / 1e6
    cache = 4 * 2 * config.layers * config.kv_heads * config.head_dim * flags.slots * flags.positions / 1e6
    taken, need = peak - before, weights + cache
    print(f"{sampled} tokens sampled by {flags.slots} conversations of up to {flags.positions} positions; MB:")
    print(f"weights {weights:.0f} + cache {cache:.0f} = need {need:.0f}")
    print(f"process before {before:.0f}, with weights {loaded:.0f}, largest {peak:.0f}: taken {taken:.0f}")
    print(f"taken / need {taken / need:.2f} (aim 1.3)")
    print(
        json.dumps(
            {
                "benchmark": "memory",
                **vars(flags),
                "need": need,
                "before": before,
                "largest": peak,
                "ratio": taken / need,
            }
        )
    )


if __name__ == "__main__":
    main()

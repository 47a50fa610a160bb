"""How fast a model folder becomes device arrays, against only reading the bytes of its files.

    python benchmarks/loading.py [--gigabytes=1] [--repeats=5] [--dtype=bfloat16] [--cold] [--quick]

Measured: `dfc.models.huggingface.load` of a synthetic checkpoint (a Llama of width 2048, bfloat16, one file per layer)
onto one device: headers, checks, reading, transposing projections from [out, in] to [in, out], placing. Rate: bytes of
the files per second.

Against: the same files read into fresh memory by ``numpy.fromfile``, one after another, which is what any loader has
to do at least. Both sides run in one process and take turns; medians with the smallest and largest value. Every turn
frees what it made before the next begins.

The limit: with files in the page cache (the default) the copy to fresh memory is the bound, and what a load does on
top of it, transposing, costs as much as the copy or more on one core; on the disk (``--cold``: the page cache is asked
to drop the files before every turn, where the system has posix_fadvise) the disk is. The table splits the load by
loading the same bytes as projections (transposed) and as embeddings (not). The goal is 0.7 of the plain read.

Prints a table and one JSON line.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from dfc.models import families, huggingface, model_folders, safetensors_format, shard_reading
from dfc.models.config import DecoderConfig
from dfc.models.transformer import abstract_params, by_path

_SEED = 0
_BLOCK = np.random.default_rng(_SEED).standard_normal(2**21).astype("float32")
_BFLOAT16 = safetensors_format.NUMPY_DTYPES["BF16"]


def model_of(gigabytes: float) -> DecoderConfig:
    """Returns a Llama whose bfloat16 weights take about this many gigabytes (10^9 bytes)."""
    width, feed_forward, vocabulary = 2048, 7168, 32768
    layer = 2 * width * (width + 2 * width // 4 + width + 3 * feed_forward)
    layers = max(1, round((gigabytes * 1e9 - 4 * width * vocabulary) / layer))
    return DecoderConfig(
        vocabulary=vocabulary,
        width=width,
        layers=layers,
        heads=16,
        kv_heads=4,
        head_dim=128,
        feed_forward=feed_forward,
        rope_theta=1e4,
        norm_epsilon=1e-5,
        qkv_bias=False,
        tied_embedding=False,
        dtype="bfloat16",
    )


def write_checkpoint(folder: Path, config: DecoderConfig) -> list[Path]:
    """Writes the model, its bytes a repeated block, one file per layer; returns the files."""
    shapes = by_path(abstract_params(config))
    block = _BLOCK.astype(_BFLOAT16)
    groups: dict[str, list[safetensors_format.TensorToWrite]] = {}
    for path, name in families.tensor_names(config).items():
        shape = shapes[path].shape[::-1] if name.transpose else shapes[path].shape

        def values(shape: tuple[int, ...] = shape) -> np.ndarray:
            return np.resize(block, shape)

        group = path[1] if path[0] == "layers" else "ends"
        tensor = safetensors_format.TensorToWrite(name.tensor, _BFLOAT16, shape, values)
        groups.setdefault(group, []).append(tensor)
    files: list[Path] = []
    weight_map: dict[str, str] = {}
    for group, tensors in groups.items():
        files.append(folder / f"model-{group}.safetensors")
        safetensors_format.write_file(files[-1], tensors)
        weight_map |= {tensor.name: files[-1].name for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(families.to_config_json(config)))
    return files


def forget(files: Sequence[Path]) -> None:
    """Drops the files from the page cache."""
    for file in files:
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def alternating(
    sides: dict[str, Callable[[], object]], repeats: int, before: Callable[[], None]
) -> dict[str, list[float]]:
    """Returns seconds per side and turn; the sides take turns, after one turn each that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, run in sides.items():
            before()
            start = time.perf_counter()
            made = run()
            jax.block_until_ready(made)  # type: ignore[no-untyped-call]  # jax leaves it untyped
            elapsed = time.perf_counter() - start
            del made
            if turn:
                seconds[name].append(elapsed)
    return seconds


def read_kind(folder: Path, dtype: str, *, transpose: bool) -> tuple[Callable[[], object], int]:
    """Returns a load of the tensors that are, or are not, transposed, and their bytes."""
    tensors = model_folders.FolderTensors(folder)
    place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    chosen = [stored for name, stored in tensors.stored.items() if name.endswith("_proj.weight")]
    wanted = [
        shard_reading.WantedArray(
            stored, stored.shape[::-1] if transpose else stored.shape, np.dtype(dtype), place, transpose
        )
        for stored in chosen
    ]
    size = sum(int(np.prod(stored.shape)) * 2 for stored in chosen)
    return lambda: shard_reading.read_arrays(wanted), size


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before every turn")
    parser.add_argument("--quick", action="store_true", help="the least size, once, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.gigabytes, options.repeats = 0.0, 1
    config = model_of(options.gigabytes)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = write_checkpoint(folder, config)
        total = sum(file.stat().st_size for file in files)
        turned, kernels = read_kind(folder, options.dtype, transpose=True)
        straight, _ = read_kind(folder, options.dtype, transpose=False)
        sizes = {
            "plain read": total,
            "load": total,
            "projections, transposed": kernels,
            "projections, as stored": kernels,
        }
        sides: dict[str, Callable[[], object]] = {
            "plain read": lambda: [np.fromfile(file, np.uint8) for file in files],
            "load": lambda: huggingface.load(folder, dtype=options.dtype),
            "projections, transposed": turned,
            "projections, as stored": straight,
        }
        seconds = alternating(sides, options.repeats, (lambda: forget(files)) if options.cold else (lambda: None))
    rates = {name: [sizes[name] / s / 1e9 for s in seconds[name]] for name in sides}
    medians = {name: statistics.median(values) for name, values in rates.items()}
    # Turn by turn: what else the machine does slows both sides of a turn alike.
    fractions = [plain / load for plain, load in zip(seconds["plain read"], seconds["load"], strict=True)]
    state = "from the disk" if options.cold else "in the page cache"
    device = jax.local_devices()[0].device_kind
    print(f"{total / 1e9:.2f} GB in {len(files)} files {state}, to {options.dtype} on {device}, {os.cpu_count()} cores")
    for name, values in rates.items():
        print(f"{name:26} {medians[name]:6.2f} GB/s  ({min(values):.2f} to {max(values):.2f})")
    middle = statistics.median(fractions)
    print(f"{'load / plain read':26} {middle:6.2f}       ({min(fractions):.2f} to {max(fractions):.2f})")
    print(
        json.dumps(
            {
                "benchmark": "loading",
                "bytes": total,
                "files": len(files),
                "cold": options.cold,
                "dtype": options.dtype,
                "device": device,
                "machine": platform.machine(),
                "cores": os.cpu_count(),
                "repeats": options.repeats,
                "gigabytes_per_second": {name: round(value, 3) for name, value in medians.items()},
                "fraction_of_plain_read": round(middle, 3),
            }
        )
    )


if __name__ == "__main__":
    main()

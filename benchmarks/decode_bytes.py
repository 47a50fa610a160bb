"""Bytes that a decode step moves through device memory, read in the engine's programs, compiled for described devices.

    python benchmarks/decode_bytes.py --topology=h100:1 --shapes=1x2048,32x2048 [--model=llama-3.1-8b] [--tensor=1]
        [--programs=decode] [--prefill=512] [--quick]

Needs the extra ``aot`` and no device; XLA_FLAGS have to be empty. A shape is rows x positions; the cache has a quarter
more slots than rows, so that a copy of it and a copy of its rows would differ.

Counted is what the instructions of the outermost loop's body (of a program without one: of the program) read and write;
arrays in a TPU's fast memory count nothing. A fusion that only slices or gathers an operand reads what it takes of it,
one that scatters into an operand writes what is new. The compiler does not see into kernels: they are counted with the
slots of the call's rows, full ones. The least is weights, without the embedding of the input, and those slots. A copy
of the cache, or scores, would be a result that is not made in place and has an axis as long as a slot, or as all slots
or all rows together. Nothing is said of time: see `dfc.launch.fit`. Prints a table and one JSON line.
"""

import argparse
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dfc.config import Collect, MeshConfig, ModelConfig, RolloutConfig
from dfc.tools.fit import holdings, iteration, programs, published
from dfc.tools.fit.compilation import quiet
from dfc.tools.fit.hardware import Topology, parse_topology
from dfc.tools.fit.workload import Workload

_WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "s64": 8, "u64": 8, "f64": 8}
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+)\[([\d,]*)\](\{[^}]*\})?")
_HEADER = re.compile(r"^(ENTRY )?%?([^ ]+) \(.*\{$")
_LINE = re.compile(r"^\s+(ROOT )?%([^ ]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_FREE = ("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "while", "after-all", "iota")
_KERNEL = re.compile(r"triton|tpu_custom_call")
_TAKES = {"dynamic-slice", "slice", "gather"}
_PUTS = {"scatter": 2, "dynamic-update-slice": 1}  # the operand that is new


class Instruction(NamedTuple):
    """One line of a compiled program."""

    name: str
    shape: str
    kind: str
    rest: str
    root: bool

    @property
    def operands(self) -> list[str]:
        """The names of what it is given."""
        return re.findall(r"%([^ ,)]+)", self.rest.split("), ")[0])


def arrays(shape: str) -> Iterator[int]:
    """Yields the bytes of each array of a shape that is in device memory."""
    for kind, sizes, layout in _ARRAY.findall(shape):
        if not re.search(r"S\([1-9]\)", layout):
            yield math.prod(int(size) for size in sizes.split(",") if size) * _WIDTHS.get(kind, 4)


def read(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Returns the computations of a compiled text by name, and the name of the one that is run."""
    found: dict[str, list[Instruction]] = {}
    current = entry = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = header[2]
            found[current], entry = [], current if header[1] else entry
        elif current and (match := _LINE.match(line)):
            found[current].append(Instruction(match[2], match[3], match[4], match[5], bool(match[1])))
    return found, entry


def fused(body: list[Instruction], given: list[int], result: int) -> tuple[int, int, bool]:
    """Returns what a fusion reads and writes of its operands' bytes and its result's; and whether in place."""
    by_name = {each.name: each for each in body}
    users: dict[str, list[Instruction]] = {}
    for each in body:
        for name in each.operands:
            users.setdefault(name, []).append(each)

    def ends(name: str) -> Iterator[tuple[Instruction, str]]:
        for user in users.get(name, []):
            yield from ends(user.name) if user.kind in ("bitcast", "reshape") else [(user, name)]

    taken, put, in_place = 0, result, False
    for each in body:
        if each.kind != "parameter":
            continue
        size = given[int(each.rest.split(")")[0])]
        uses = list(ends(each.name))
        if uses and all(user.kind in _TAKES and user.operands[0] == name for user, name in uses):
            size = min(size, sum(sum(arrays(user.shape)) for user, _ in uses))
        elif uses and all(user.kind in _PUTS and user.operands[0] == name for user, name in uses):
            new = sum(sum(arrays(by_name[user.operands[_PUTS[user.kind]]].shape)) for user, _ in uses)
            put, size, in_place = put - size + new, 0, True
        taken += size
    return taken, max(put, 0), in_place


def step(text: str, caches: set[int], axes: set[int]) -> dict[str, Any]:
    """Counts one round of the outermost loop.

    Args:
      text: of the compiled program.
      caches: bytes of one layer's arrays of the cache, which kernels are given.
      axes: lengths that no axis of a result should have.
    """
    computations, entry = read(text)
    loops = [each for each in computations[entry] if each.kind == "while"]
    name = entry
    if loops:
        widest = max(loops, key=lambda loop: sum(arrays(loop.shape)))
        name = re.findall(r"body=%([^ ,)]+)", widest.rest)[0]
    by_name = {each.name: each for each in computations[name]}
    found: dict[str, Any] = {"bytes": 0, "kernels": 0, "made": []}
    for each in computations[name]:
        if each.kind in _FREE or each.kind.endswith("-done"):
            continue
        given = [sum(arrays(by_name[operand].shape)) for operand in each.operands if operand in by_name]
        taken, put, in_place = sum(given), sum(arrays(each.shape)), False
        if each.kind == "fusion":
            called = re.findall(r"calls=%([^ ,)]+)", each.rest)[0]
            taken, put, in_place = fused(computations[called], given, put)
        elif each.kind == "custom-call" and _KERNEL.search(each.rest):
            found["kernels"] += 1
            taken = sum(size for size in given if size not in caches)  # the rows' slots are added by the caller
        elif each.kind in _TAKES:
            taken = put
        elif each.kind in _PUTS:
            taken = put = given[_PUTS[each.kind]]
            in_place = True
        elif each.kind == "copy-start":  # results are the copy, what is copied, and a mark
            put = put - taken if put > taken else 0
        found["bytes"] += taken + put
        sizes = {int(size) for _, shape, _ in _ARRAY.findall(each.shape) for size in shape.split(",") if size}
        if not in_place and axes & sizes:
            found["made"].append(f"{each.kind} {each.shape}")
    return found


def workload_of(options: argparse.Namespace, topology: Topology, rows: int, positions: int) -> tuple[Collect, Workload]:
    """Returns a run that only plays, and what it holds."""
    model = ModelConfig(dtype="bfloat16")
    decoder = dataclasses.replace(published.model_of(model, options.model, None), dtype="bfloat16")
    rollout = RolloutConfig(
        slots=rows + max(1, rows // 4),
        rows=rows,
        max_length=positions,
        prefill_buckets=(options.prefill,),
        sharding="training",
    )
    config = Collect(
        games={"wordle": {}}, model=model, mesh=MeshConfig(tensor=options.tensor), rollout=rollout, tasks=4
    )
    (stage,) = iteration.stages_of(config)
    lengths = iteration.lengths_of(config)
    return config, holdings.workload_of_stage(stage, config, lambda _: decoder, topology, lengths)


def measured(options: argparse.Namespace, topology: Topology, rows: int, positions: int) -> Iterator[dict[str, Any]]:
    """Compiles and counts the programs that are asked for."""
    config, workload = workload_of(options, topology, rows, positions)
    often = iteration.runs(config, iteration.lengths_of(config), workload)
    model, tensor = workload.model, options.tensor
    one = positions * model.kv_heads // tensor * model.head_dim * 2
    past = workload.rows_here * 2 * one * model.layers
    axes = {positions, workload.held_here * positions, workload.rows_here * positions}
    caches = {workload.held_here * one, workload.held_here * 2 * one}  # keys and values apart, or side by side
    for program in programs.of_stage(config, workload, topology, often):
        if program.name not in options.programs.split(","):
            continue
        with programs.context(program, topology), quiet():
            compiled = program.trace().lower().compile()
        weights = program.arguments.get("weights")
        found, memory = step(compiled.as_text(), caches, axes), compiled.memory_analysis()
        read_once = 0 if weights is None else programs.local_bytes(weights) - programs.unread(weights.params, workload)
        yield {
            "program": program.name,
            "rows": rows,
            "positions": positions,
            "kernels": found["kernels"],
            "copies or scores": found["made"],
            "donated": memory.alias_size_in_bytes == programs.local_bytes(program.donated),
            "temporaries": memory.temp_size_in_bytes,
            "peak": memory.peak_memory_in_bytes,
            "bytes": found["bytes"] + (past if found["kernels"] else 0),
            "least": read_once + past,
        }


def table(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of a table in Markdown."""
    sizes = ("temporaries", "peak", "bytes", "least")
    yield f"| program | rows x positions | kernels | copies, scores | {' | '.join(sizes)} | bytes / least |"
    yield f"|{' --- |' * (5 + len(sizes))}"
    for row in rows:
        made = row["copies or scores"]
        cells = [
            row["program"],
            f"{row['rows']} x {row['positions']:,}",
            f"{row['kernels']}",
            f"{len(made)}: {made[0][:60]}" if made else "none",
            *(f"{row[name] / 1e9:.2f} GB" for name in sizes),
            f"{row['bytes'] / row['least']:.2f}" if row["kernels"] else "-",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Compiles, counts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="h100:1")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--shapes", default="1x2048,32x2048")
    parser.add_argument("--tensor", type=int, default=1, help="devices that share heads")
    parser.add_argument("--programs", default="decode", help="names as in docs/fit.md")
    parser.add_argument("--prefill", type=int, default=512, help="tokens of a prefill call's rows")
    parser.add_argument("--quick", action="store_true", help="one small shape, to see that it runs")
    options = parser.parse_args()
    options.shapes = "1x256" if options.quick else options.shapes
    topology = parse_topology(options.topology)
    found: list[dict[str, Any]] = []
    for shape in options.shapes.split(","):
        rows, positions = map(int, shape.split("x"))
        found += measured(options, topology, rows, positions)
    print("\n".join(table(found)))
    print(json.dumps({"benchmark": "decode_bytes", "topology": topology.name, "model": options.model, "rows": found}))


if __name__ == "__main__":
    main()

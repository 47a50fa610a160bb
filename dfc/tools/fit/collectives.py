"""What devices send each other: read from the text of a compiled program (HLO).

The text is compiler output without a stable form; what cannot be read is counted once and named in `unknown`.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Sequence

import numpy as np

_WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}
_KINDS = ("all-gather", "all-reduce", "reduce-scatter", "collective-permute", "all-to-all")
_SHAPE = re.compile(r"\b(pred|[subf]f?\d+(?:e\d\w*)?)\[([\d,]*)\]")
_HEADER = re.compile(r"^(ENTRY )?%([^ ]+) \(.*\{$")
_LINE = re.compile(r"^\s*(ROOT )?%([^ ]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body|called_computation)=%([^ ,)}]+)|branch_computations=\{([^}]*)\}")


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What one device sends in one run of a program.

    Attributes:
      calls: kind -> how often it runs.
      sent: kind -> bytes one device sends, by the usual ring algorithms: (g - 1) / g of the whole result for a gather
        among g devices, as much of the whole operand for a scatter, twice that for an all-reduce.
      crossing: bytes of `sent` whose group is not within neighbouring joined devices.
      unknown: loops whose number of trips could not be read.
    """

    calls: dict[str, int]
    sent: dict[str, float]
    crossing: float = 0.0
    unknown: int = 0

    @property
    def total(self) -> float:
        """Bytes one device sends."""
        return sum(self.sent.values())


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    shape: str
    kind: str
    rest: str


_Program = dict[str, list[_Instruction]]


def _read(text: str) -> tuple[_Program, str]:
    program: _Program = {}
    entry = current = ""
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            current = header[2]
            program[current] = []
            entry = current if header[1] else entry
            continue
        match = _LINE.match(line)
        if match and current:
            program[current].append(_Instruction(match[2], match[3], match[4], match[5]))
    return program, entry


def _sizes(shape: str) -> list[int]:
    return [
        math.prod(map(int, filter(None, dims.split(",")))) * _WIDTHS.get(kind, 1 if kind.startswith("f8") else 4)
        for kind, dims in _SHAPE.findall(shape)
    ]


def _result_bytes(instruction: _Instruction, kind: str) -> float:
    """Bytes of what a collective returns; a started one holds its operands first, then as many results."""
    sizes = _sizes(instruction.shape)
    if not instruction.kind.endswith("-start") or kind == "all-reduce":
        return float(sum(sizes))
    data = [size for size in sizes if size > 4]  # flags and counters
    return float(sum(data[len(data) // 2 :]))


def group_members(rest: str, devices: int) -> list[int]:
    """Returns the devices of a collective's first group, from the text of its attributes."""
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest)
    if iota:
        dims = _integers(iota[3])
        order = _integers(iota[4]) if iota[4] else range(len(dims))
        return _first_group(dims, order, int(iota[2]))
    named = re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", rest)
    if named:
        axes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", named[1])}
        chosen = re.findall(r"'([^']+)'", named[2])
        order = sorted(range(len(axes)), key=lambda place: list(axes)[place] in chosen)  # the chosen ones last
        return _first_group(list(axes.values()), order, math.prod(axes[name] for name in chosen))
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{\{([\d,]+)\}", rest)
    return _integers(listed[1]) if listed else list(range(devices))


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _first_group(dims: Sequence[int], order: Sequence[int], size: int) -> list[int]:
    """Returns the first `size` device numbers of an array of them, its axes reordered."""
    return [int(n) for n in np.arange(math.prod(dims)).reshape(dims).transpose(order).reshape(-1)[:size]]


def _operands(instruction: _Instruction) -> list[str]:
    return re.findall(r"%([^ ,)]+)", instruction.rest.split(")")[0])


def _constant(instruction: _Instruction | None) -> int | None:
    number = re.match(r"(\d+)\)", instruction.rest) if instruction and instruction.kind == "constant" else None
    return int(number[1]) if number else None


def _trips(loop: _Instruction, program: _Program) -> int | None:
    """Returns how often a loop runs that counts from 0 to a constant, if it can be read."""
    known = re.search(r"known_trip_count[^}]*?\"n\":\"(\d+)\"", loop.rest)
    if known:
        return int(known[1])
    condition, body = (re.search(rf"{part}=%([^ ,)]+)", loop.rest) for part in ("condition", "body"))
    if not condition or not body:
        return None
    by_name = {i.name: i for i in program.get(condition[1], [])}
    compare = next((i for i in by_name.values() if i.kind == "compare" and "direction=LT" in i.rest), None)
    operands = [by_name.get(name) for name in _operands(compare)] if compare else []
    if len(operands) != 2 or operands[0] is None:
        return None
    bound, place = _constant(operands[1]), re.search(r"index=(\d+)", operands[0].rest)
    step = _step(program.get(body[1], []), int(place[1]), program) if place else None
    return None if step is None or bound is None else -(-bound // step)


def _step(body: list[_Instruction], place: int, program: _Program) -> int | None:
    """Returns what a loop adds to its counter, the `place`-th of what it carries; compiler-made loops may add 2."""
    by_name = {i.name: i for i in body}
    root = next((i for i in reversed(body) if i.kind == "tuple"), None)
    names = re.findall(r"%([^ ,)]+)", root.rest) if root else []
    update = by_name.get(names[place]) if place < len(names) else None
    while update is not None and update.kind in ("copy", "bitcast", "convert"):
        update = by_name.get(_operands(update)[0])
    if update is not None and update.kind == "fusion":
        called = re.search(r"calls=%([^ ,)]+)", update.rest)
        by_name = {i.name: i for i in program.get(called[1], [])} if called else {}
        update = next((i for i in reversed(by_name.values()) if i.kind == "add"), None)
    if update is None or update.kind != "add":
        return None
    return next((step for name in _operands(update) if (step := _constant(by_name.get(name)))), None)


def traffic(text: str, devices: int, joined: int = 8, loop_trips: int | None = None) -> Traffic:
    """Returns what one device sends while the compiled program runs once.

    The text is ``compiled.as_text()``. Links join `joined` devices with neighbouring numbers: those of a GPU host, or
    of several. `loop_trips` are those of an outermost loop whose number of trips cannot be read; None: one, and it is
    counted as unknown.
    """
    program, entry = _read(text)
    calls: dict[str, int] = dict.fromkeys(_KINDS, 0)
    sent: dict[str, float] = dict.fromkeys(_KINDS, 0.0)
    seen: set[tuple[str, str]] = set()
    crossing, unknown = 0.0, 0

    @functools.cache
    def matters(name: str) -> bool:
        """Whether a computation, or one it calls, communicates; most are small and do not."""
        return any(
            i.kind.startswith(_KINDS) or any(matters(called) for called in _called(i)) for i in program.get(name, [])
        )

    def visit(name: str, times: int, loop: str, stated: int | None) -> None:
        nonlocal crossing, unknown
        for i in program.get(name, []):
            kind = next((k for k in _KINDS if i.kind in (k, f"{k}-start")), None)
            if kind is not None:
                channel = re.search(r"channel_id=(\d+)", i.rest)
                # One collective spread over several fusions appears in each of them, under one number.
                key = (loop, channel[1] if channel else f"{name}/{i.name}")
                if key in seen:
                    continue
                seen.add(key)
                members = group_members(i.rest, devices)
                amount = times * _sent(kind, _result_bytes(i, kind), len(members))
                calls[kind] += times
                sent[kind] += amount
                if len({member // joined for member in members}) > 1:
                    crossing += amount
                continue
            for called in _called(i):
                if not matters(called):
                    continue
                if i.kind != "while":
                    visit(called, times, loop, stated)
                    continue
                read = _trips(i, program)
                trips = stated if read is None else read
                unknown += trips is None
                visit(called, times * (trips or 1), called, None if read is None else stated)

    visit(entry, 1, entry, loop_trips)
    kept = [kind for kind in _KINDS if calls[kind]]
    return Traffic({k: calls[k] for k in kept}, {k: sent[k] for k in kept}, crossing, unknown)


def _called(instruction: _Instruction) -> list[str]:
    found = []
    for one, several in _CALLED.findall(instruction.rest):
        found += [one] if one else re.findall(r"%([^ ,]+)", several)
    return found


def _sent(kind: str, result: float, group: int) -> float:
    if group < 2:
        return 0.0
    share = (group - 1) / group
    return {
        "all-gather": result * share,
        "all-to-all": result * share,
        "reduce-scatter": result * (group - 1),
        "all-reduce": 2 * result * share,
        "collective-permute": result,
    }[kind]

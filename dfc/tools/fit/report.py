"""Turns the numbers into text: fixed-width tables on a terminal, Markdown in documents."""

import dataclasses
from collections.abc import Iterable, Sequence

from dfc.inference import decoding_mesh
from dfc.tools.fit import analytic
from dfc.tools.fit.analytic import MemoryEstimate, WorkEstimate
from dfc.tools.fit.collectives import Traffic
from dfc.tools.fit.compilation import Compiled
from dfc.tools.fit.hardware import Topology
from dfc.tools.fit.traced import Count
from dfc.tools.fit.workload import Workload

# Shares of peak taken for estimates: what well-made programs of this kind are reported to reach, rounded down.
ARITHMETIC_SHARE, BANDWIDTH_SHARE = 0.4, 0.5


@dataclasses.dataclass(frozen=True)
class Time:
    """Seconds of one run of a program: a bound nothing beats, and a guess."""

    floor: float
    estimate: float

    def __mul__(self, times: float) -> "Time":
        return Time(self.floor * times, self.estimate * times)

    def __add__(self, other: "Time") -> "Time":
        return Time(self.floor + other.floor, self.estimate + other.estimate)


def total(times: Iterable[Time]) -> Time:
    """Returns the sum of times."""
    return sum(times, Time(0.0, 0.0))


def time_of(work: WorkEstimate, topology: Topology, traffic: Traffic | None = None) -> Time:
    """Returns floor and estimate of one run.

    Floor: the largest of arithmetic at peak, memory at full bandwidth, sending at full link speed. Estimate: the
    larger of arithmetic at 40 % and memory at 50 %, plus sending at 50 %, as if nothing overlapped with it. Without
    `traffic`, what is sent is that of the work.
    """
    chip = topology.chip
    sending = 0.0
    if traffic is not None:
        further = traffic.crossing / (chip.network or chip.interconnect)
        sending = (traffic.total - traffic.crossing) / chip.interconnect + further
    elif work.sent:
        within = work.span <= chip.joined
        sending = work.sent / (chip.interconnect if within else chip.network or chip.interconnect)
    arithmetic, memory = work.flops / chip.flops, work.bytes / chip.bandwidth
    estimate = max(arithmetic / ARITHMETIC_SHARE, memory / BANDWIDTH_SHARE) + sending / 0.5
    return Time(max(arithmetic, memory, sending), estimate)


def gigabytes(size: float) -> str:
    """Returns a size in GB (1e9 bytes), two or three digits."""
    return f"{size / 1e9:.2g}" if size < 1e8 else f"{size / 1e9:.2f}" if size < 1e11 else f"{size / 1e9:.0f}"


def seconds(value: float) -> str:
    """Returns a time with its unit."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1, 1e3, "ms"), (120, 1, "s"), (7200, 1 / 60, "min")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value / 3600:.3g} h"


def number(value: float) -> str:
    """Returns a large number with its unit."""
    for factor, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g}"


def table(rows: Sequence[Sequence[str]], *, markdown: bool = False) -> str:
    """Returns rows, the first the heading, as aligned columns; all but the first column to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return f"| {' | '.join(cells)} |" if markdown else "  ".join(cells).rstrip()

    rule = f"|{'|'.join('-' * (w + 2) for w in widths)}|" if markdown else "  ".join("-" * w for w in widths)
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f} billion" if count >= 1e8 else f"{count / 1e6:.2f} million"


def heading(name: str, workload: Workload, topology: Topology) -> str:
    """Returns a text of the model and the devices."""
    chip, mesh = topology.chip, workload.mesh
    split = f"mesh data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor}"
    each = f"each {number(chip.flops)}FLOP/s, {number(chip.bandwidth)}B/s"
    lines = [
        f"{name}: {_billions(workload.parameters.total)} parameters, {workload.model.dtype}",
        f"{topology.name}: {topology.devices} devices, {split}, {chip.memory / 1e9:.1f} GB usable, {each}",
    ]
    if chip.platform != "tpu":
        lines.append("usable means 95 % of the device: start with XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 (JAX takes 75 %)")
    return "\n".join(lines) + "\n"


def settings(workload: Workload) -> str:
    """Returns a text of what a stage computes at a time."""
    training, rollout, parts = workload.training, workload.rollout, []
    if workload.trains:
        rows = f"micro-batches of {workload.batch.micro_batch_rows} rows x {workload.batch.row_length} tokens"
        kept = f", adapters of rank {workload.lora.rank}" if workload.lora is not None else ""
        parts.append(f"training: {rows}, remat {training.remat}, attention {training.attention}{kept}")
    if workload.plays:
        held = f"{workload.held_here * workload.played.shards} conversations x {rollout.max_length} positions"
        call = f"{workload.call_rows} of them, {workload.steps} steps or {workload.prefill} tokens prefilled"
        parts.append(f"playing: {rollout.slots} games, {held}; a call: {call}")
        if workload.decoding is not None and workload.devices > 1:
            parts.append(f"playing: {workload.decoding.describe()}")
    return "\n".join(parts) + "\n"


def memory_table(found: MemoryEstimate, available: float, *, markdown: bool = False) -> str:
    """Returns the parts of memory on one device, phase by phase, and whether they fit."""
    phases, peaks = found.phases, found.peaks.values()
    rows = [["per device, GB", *phases]]
    for name in dict.fromkeys(name for parts in phases.values() for name in parts):
        cells = (parts.get(name) for parts in phases.values())
        rows.append([name, *("-" if cell is None else gigabytes(cell) for cell in cells)])
    rows.append(["together", *map(gigabytes, peaks)])
    margin = 1 + analytic.MARGIN
    rows.append([f"with a margin of {analytic.MARGIN:.0%}", *(gigabytes(peak * margin) for peak in peaks)])
    rows.append(["usable", *[gigabytes(available)] * len(phases)])
    rows.append(["fits", *("yes" if peak * margin <= available else "NO" for peak in peaks)])
    return table(rows, markdown=markdown)


def stages_table(
    stages: Sequence[tuple[str, int, MemoryEstimate]], topology: Topology, *, markdown: bool = False
) -> str:
    """Returns the phase of each stage that needs most: each a name, in how many rounds, and its memory."""
    rows = [["stage", "rounds", "phase", "together, GB", f"with {analytic.MARGIN:.0%}", "usable", "fits"]]
    for name, times, found in stages:
        sizes = map(gigabytes, (found.peak, found.peak * (1 + analytic.MARGIN), topology.chip.memory))
        rows.append([name, f"{times}", found.dearest, *sizes, "yes" if found.fits(topology.chip.memory) else "NO"])
    return table(rows, markdown=markdown)


def shardings_table(workload: Workload, topology: Topology, *, markdown: bool = False) -> str:
    """Returns what a decoding step reads and sends, by sums, for each way of splitting what plays."""
    rows = [["sharding of playing", "mesh", "weights, GB", "cache, GB", "read", "sent", "a step takes at least", ""]]
    chosen = workload.decoding
    assert chosen is not None  # noqa: S101 - of several devices there is one
    for sharding in decoding_mesh.SHARDINGS:
        sizes = decoding_mesh.sizes_of(sharding, workload.model, chosen.trained, topology.of_a_host)
        made = dataclasses.replace(workload, mesh=sizes, decoding=None)
        work = analytic.decode_work(made)
        step = analytic.WorkEstimate(
            work.flops / made.steps, work.bytes / made.steps, work.sent / made.steps, work.span
        )
        rows.append(
            [
                sharding,
                f"{sizes.data} x {sizes.fsdp} x {sizes.tensor}",
                gigabytes(made.frozen),
                gigabytes(analytic.cache_bytes(made)),
                f"{number(step.bytes)}B",
                f"{number(step.sent)}B",
                seconds(time_of(step, topology).floor),
                "chosen" if sharding == chosen.sharding else "",
            ]
        )
    return table(rows, markdown=markdown)


def work_table(
    works: Sequence[tuple[str, WorkEstimate, float]], unit: str, topology: Topology, *, markdown: bool = False
) -> str:
    """Returns work and time of programs by sums: each a name, its work, and its runs in one unit of its stage."""
    rows = [
        ["per device and run", "FLOP", "bytes", "sent", "floor", "estimate", "runs", "floor of all", "estimate of all"]
    ]
    times = []
    for name, work, runs in works:
        one = time_of(work, topology)
        times.append(one * runs)
        cells = [seconds(value) for time in (one, times[-1]) for value in (time.floor, time.estimate)]
        rows.append(
            [
                name,
                number(work.flops),
                f"{number(work.bytes)}B",
                f"{number(work.sent)}B" if work.sent else "-",
                *cells[:2],
                f"{runs:.4g}" if runs % 1 else f"{runs}",
                *cells[2:],
            ]
        )
    whole = total(times)
    rows.append([unit, "", "", "", "", "", "", seconds(whole.floor), seconds(whole.estimate)])
    return table(rows, markdown=markdown)


@dataclasses.dataclass(frozen=True)
class ProgramReport:
    """One program, compiled or refused.

    Attributes:
      name: what it does.
      count: its operations, over all devices.
      bytes: of its arguments, and of the results that do not take an argument's place, on one device.
      beside: bytes on the device that are none of its arguments.
      compiled: what the compiler says; None if it was refused or not compiled.
      refusal: the compiler's message if it was refused.
      expected_alias: bytes of the arguments that are donated.
      runs: in one iteration.
    """

    name: str
    count: Count
    bytes: float
    beside: float
    compiled: Compiled | None
    refusal: str = ""
    expected_alias: int = 0
    runs: float = 1

    def together(self) -> float | None:
        """Bytes on the device while it runs."""
        return None if self.compiled is None else self.compiled.peak + self.beside

    def time(self, topology: Topology) -> Time:
        """Floor and estimate of one run."""
        work = WorkEstimate(self.count.total_flops / topology.devices, self.bytes)
        return time_of(work, topology, None if self.compiled is None else self.compiled.traffic)


def fits(programs: Sequence[ProgramReport], available: float) -> bool:
    """Whether there are programs, and every one was accepted and finds the room it needs."""
    needs = [program.together() for program in programs]
    accepted = bool(programs) and not any(p.refusal for p in programs)
    return accepted and all(need is None or need <= available for need in needs)


def program_tables(programs: Sequence[ProgramReport], topology: Topology, *, markdown: bool = False) -> str:
    """Returns two tables: memory, then work, of every program."""
    available = topology.chip.memory
    rows = [["per device, GB", "arguments", "donated", "temporary", "peak", "beside", "together", "usable", "fits"]]
    for p in programs:
        if p.compiled is None:
            rows.append(
                [p.name, *["-"] * 4, gigabytes(p.beside), "-", gigabytes(available), "NO" if p.refusal else "?"]
            )
            continue
        c, need = p.compiled, p.compiled.peak + p.beside
        donated = f"{gigabytes(c.aliased)} of {gigabytes(p.expected_alias)}"
        parts = map(gigabytes, (c.temporaries, c.peak, p.beside, need, available))
        rows.append([p.name, gigabytes(c.arguments), donated, *parts, "yes" if need <= available else "NO"])
    work = [["per device and run", "FLOP", "bytes", "sent", "collectives", "floor", "estimate", "runs", "compiled in"]]
    for p in programs:
        time = p.time(topology)
        sent = collectives = took = "-"
        if p.compiled is not None:
            t = p.compiled.traffic
            sent = f"{number(t.total)}B"
            collectives = ", ".join(f"{n} {kind} {number(t.sent[kind])}B" for kind, n in t.calls.items()) or "none"
            took = seconds(p.compiled.seconds)
        flops = number(p.count.total_flops / topology.devices)
        times = seconds(time.floor), seconds(time.estimate)
        work.append([p.name, flops, f"{number(p.bytes)}B", sent, collectives, *times, f"{p.runs:.4g}", took])
    return table(rows, markdown=markdown) + "\n\n" + table(work, markdown=markdown)

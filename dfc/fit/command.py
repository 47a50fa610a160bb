"""The answer of ``python -m dfc.launch.fit``: from a configuration and a topology to tables and an exit code."""

import dataclasses
from collections.abc import Sequence
from typing import TextIO

from dfc.config import Run
from dfc.errors import ConfigError
from dfc.fit import analytic, iteration, report
from dfc.fit.analytic import Workload
from dfc.fit.hardware import Topology, parse_topology
from dfc.fit.iteration import Lengths
from dfc.fit.published import model_of


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
      config: of the run, its values checked.
      topology: the devices' name.
      model: a name of `published.CONFIGS`, or None.
      model_config: a ``config.json`` or its folder, or None; without either, that of ``model.path``.
      compiles: whether to compile.
      programs: compile only programs whose names contain one of these; empty: all.
      episode_length: for times; None is the default of `iteration.lengths_of`.
      generated_share: likewise.
      markdown: how tables are printed.
    """

    config: Run
    topology: str
    model: str | None = None
    model_config: str | None = None
    compiles: bool = False
    programs: tuple[str, ...] = ()
    episode_length: int | None = None
    generated_share: float | None = None
    markdown: bool = False


def answer(request: Request, out: TextIO) -> int:
    """Writes the answer; returns 0 if everything fits, else 1.

    Raises:
      ConfigError: the recipe is not counted, or the model or the mesh cannot be what the request says.
    """
    config = iteration.counted(request.config)
    topology = parse_topology(request.topology)
    decoder, name = model_of(config.model, request.model, request.model_config)
    lengths = iteration.lengths_of(config, request.episode_length, request.generated_share)
    workload = iteration.workload_of(config, decoder, topology, lengths)
    available = topology.chip.memory
    found = analytic.memory(workload)
    out.write(report.heading(name, workload, topology))
    out.write("\n" + report.memory_table(found, available, markdown=request.markdown) + "\n\n")
    good = found.fits(available)
    if not good:
        out.write(_misfit(workload, available) + "\n\n")
    if request.compiles:
        return _compiled(request, workload, topology, lengths, out)
    runs = iteration.runs(config, lengths, workload)
    works = (
        ("micro-batch", analytic.update_work(workload), runs.micro_batches),
        ("optimizer", analytic.optimizer_work(workload), runs.updates),
        (f"decode, {workload.steps} steps", analytic.decode_work(workload), runs.decode),
        (f"prefill, {workload.prefill} tokens", analytic.prefill_work(workload), runs.prefill),
    )
    out.write(report.work_table(works, topology, markdown=request.markdown) + "\n")
    out.write(
        f"times: {runs.episodes} episodes of {lengths.describe()} "
        "(an assumption: --episode_length, --generated_share).\n"
        "floor: nothing is faster. estimate: 40 % of peak arithmetic or 50 % of bandwidth, sending not hidden;\n"
        "a guess, no promise. Neither counts games, opponents, the tail of a batch, evaluation or compiling.\n"
    )
    proof = "--compile is the proof" if topology.chip.platform != "rocm" else "nothing is compiled for this device"
    out.write(
        f"\n{topology.name}: {'fits' if good else 'does NOT fit'}, by sums, margin {analytic.MARGIN:.0%}; {proof}.\n"
    )
    return 0 if good else 1


def _compiled(request: Request, workload: Workload, topology: Topology, lengths: Lengths, out: TextIO) -> int:
    from dfc.fit import programs  # noqa: PLC0415 - imports the engine; the quick answer does without

    available = topology.chip.memory
    reports = []
    every = list(programs.of_run(iteration.counted(request.config), workload, topology, lengths))
    names = matching_names(request.programs, [program.name for program in every])
    for program in every:
        if program.name not in names:
            continue
        out.write(f"compiling {program.name} ...\n")
        out.flush()
        reports.append(programs.compile_one(program, workload, topology))
    out.write("\n" + report.program_tables(reports, topology, markdown=request.markdown) + "\n")
    good = report.fits(reports, available)
    for one in reports:
        if one.refusal:
            out.write(f"\n{one.name}: refused by the compiler: {one.refusal}; it counts arguments and temporaries\n")
        if one.compiled is not None and one.compiled.aliased < one.expected_alias:
            out.write(
                f"\n{one.name}: of {report.gigabytes(one.expected_alias)} GB given away only "
                f"{report.gigabytes(one.compiled.aliased)} GB were reused: a copy is made\n"
            )
    whole = report.total(one.time(topology) * one.runs for one in reports)
    out.write(
        f"\none iteration of these programs: floor {report.seconds(whole.floor)}, "
        f"estimate {report.seconds(whole.estimate)}\ntimes are at {lengths.describe()} (an assumption)\n"
    )
    if not good and analytic.memory(workload).fits(available):  # otherwise it was said above
        out.write(_misfit(workload, available) + "\n")
    which = "" if len(names) == len(every) else f"of those named ({len(names)} of {len(every)}) "
    misfits = sum(not report.fits([one], available) for one in reports)
    verdict = "every program fits" if good else f"{misfits} of {len(reports)} programs do NOT fit"
    out.write(f"\n{topology.name}: {which}{verdict}\n")
    return 0 if good else 1


def matching_names(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the names that contain one of the words; all without words.

    Raises:
      ConfigError: a word is in no name.
    """
    unknown = [word for word in words if not word or not any(word in name for name in names)]
    if unknown:
        known = ", ".join(names)
        raise ConfigError(
            [f"--programs={word}: no program of this run has it in its name: {known}" for word in unknown]
        )
    return [name for name in names if not words or any(word in name for word in words)]


def _misfit(workload: Workload, available: float) -> str:
    """Returns the largest parts, and the nearest setting that fits as words for the command line."""
    parts = analytic.memory(workload).culprits(4)
    largest = "largest: " + ", ".join(f"{name} {report.gigabytes(size)} GB" for name, size in parts) + "\n"
    found = analytic.nearest_fitting(workload, available)
    if found is None:
        return largest + (
            f"no rows, slots, split, context, remat or adapters make it fit {workload.devices} of these devices; "
            "take more of them, or bfloat16 (--config.model.dtype)"
        )
    words = " ".join(f"{word}={value}" for word, value in found.changes.items())
    return largest + f"the nearest setting that fits by the analytic model: {words}"

"""The answer of ``python -m dfc.launch.fit``: from a configuration and a topology to tables and an exit code."""

import dataclasses
from collections.abc import Sequence
from typing import TextIO

from dfc.config import Evaluate, ModelConfig, ModelRunConfig, RunConfig, SmallModel
from dfc.errors import ConfigError
from dfc.models.config import DecoderConfig
from dfc.players import player_specs
from dfc.tools.fit import analytic, iteration, programs, report
from dfc.tools.fit.hardware import Topology, parse_topology
from dfc.tools.fit.holdings import workload_of_stage
from dfc.tools.fit.iteration import Lengths, ProgramCalls, Stage
from dfc.tools.fit.nearest import nearest_fitting
from dfc.tools.fit.published import model_of
from dfc.tools.fit.workload import Workload


@dataclasses.dataclass(frozen=True)
class Request:
    """A request.

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

    config: RunConfig
    topology: str
    model: str | None = None
    model_config: str | None = None
    compiles: bool = False
    programs: tuple[str, ...] = ()
    episode_length: int | None = None
    generated_share: float | None = None
    markdown: bool = False


@dataclasses.dataclass(frozen=True)
class _Counted:
    """A stage that computes on devices, with what is known of it."""

    stage: Stage
    workload: Workload
    lengths: Lengths
    runs: ProgramCalls
    fits: bool


def answer(request: Request, out: TextIO) -> int:
    """Writes the answer; returns 0 if everything fits, else 1.

    Raises:
      ConfigError: a model or the mesh cannot be what the request says, or programs of the recipe are not compiled.
    """
    topology, stages = parse_topology(request.topology), iteration.stages_of(request.config)
    _refuse(request)
    counted = [_counted(request, stage, topology) for stage in stages if not stage.idle]
    if counted:
        out.write(report.heading(_called(request), counted[0].workload, topology) + "\n")
    for stage in stages:
        if stage.idle:
            out.write(f"{stage.name}: {stage.idle}; nothing is held on a device\n\n")
    for one in counted:
        out.write(f"{one.stage.name}\n{'=' * len(one.stage.name)}\n" if len(stages) > 1 else "")
        _by_sums(request, one, topology, out)
    if not counted:
        return 0
    if len(stages) > 1:
        peaks = [(one.stage.name, one.stage.times, analytic.memory(one.workload)) for one in counted]
        out.write(report.stages_table(peaks, topology, markdown=request.markdown) + "\n\n")
        name, _, dearest = max(peaks, key=lambda peak: peak[2].peak)
        out.write(f"most memory: stage {name}, {dearest.dearest}: {report.gigabytes(dearest.peak)} GB\n\n")
    if request.compiles:
        return _compiled(request, counted, topology, out)
    good = all(one.fits for one in counted)
    out.write(
        "floor: nothing is faster. estimate: 40 % of peak arithmetic or 50 % of bandwidth, sending not hidden;\n"
        "a guess, no promise. Neither counts games, opponents, the tail of a batch, evaluation or compiling.\n"
        f"\n{topology.name}: {'fits' if good else 'does NOT fit'}, by sums, margin {analytic.MARGIN:.0%}; "
        f"{_proof(topology)}.\n"
    )
    return 0 if good else 1


def _refuse(request: Request) -> None:
    if isinstance(request.config, SmallModel) and (request.model or request.model_config):
        raise ConfigError(
            [f"--model: {request.config.recipe} makes a model of its own; its shape is width, layers, ... there"]
        )


def _proof(topology: Topology) -> str:
    """Returns what would prove an answer by sums."""
    return "--compile is the proof" if topology.chip.platform != "rocm" else "nothing is compiled for this device"


def _called(request: Request) -> str:
    """Returns what to call the model."""
    config = request.config
    if request.model or request.model_config:
        return request.model or "the model of --model_config"
    if isinstance(config, Evaluate):
        return "a model of the meeting that needs most memory"
    return config.model.path if isinstance(config, ModelRunConfig) else config.recipe


def _counted(request: Request, stage: Stage, topology: Topology) -> _Counted:
    lengths = iteration.lengths_of(stage.config, request.episode_length, request.generated_share)

    def find(model: ModelConfig) -> DecoderConfig:
        if isinstance(request.config, Evaluate) and request.model is None and request.model_config is None:
            model = dataclasses.replace(model, path=player_specs.weights_in(model.path).folder)
        return model_of(model, request.model, request.model_config)

    workload = workload_of_stage(stage, request.config, find, topology, lengths)
    runs = iteration.runs(stage.config, lengths, workload, stage.episodes)
    return _Counted(stage, workload, lengths, runs, analytic.memory(workload).fits(topology.chip.memory))


def _by_sums(request: Request, one: _Counted, topology: Topology, out: TextIO) -> None:
    workload, runs, available = one.workload, one.runs, topology.chip.memory
    found = analytic.memory(workload)
    out.write(report.settings(workload) + "\n")
    out.write(report.memory_table(found, available, markdown=request.markdown) + "\n\n")
    if not one.fits:
        out.write(_misfit(workload, available) + "\n\n")
    if workload.decoding is not None and workload.devices > 1:
        out.write(report.shardings_table(workload, topology, markdown=request.markdown) + "\n\n")
    if request.compiles:
        return
    works: list[tuple[str, analytic.WorkEstimate, float]] = []
    if workload.trains:
        works.append(("micro-batch", analytic.update_work(workload), runs.micro_batches))
        works.append(("optimizer", analytic.optimizer_work(workload), runs.updates))
    if workload.scores:
        works.append(("log-probabilities", analytic.score_work(workload), runs.scored))
    if workload.plays:
        works.append((f"decode, {workload.steps} steps", analytic.decode_work(workload), runs.decode))
        works.append((f"prefill, {workload.prefill} tokens", analytic.prefill_work(workload), runs.prefill))
    out.write(report.work_table(works, runs.unit, topology, markdown=request.markdown) + "\n")
    rounds = f", in each of {one.stage.times} rounds" if one.stage.times > 1 else ""
    out.write(f"times: {runs.describe(one.lengths)}{rounds} (an assumption: --episode_length, --generated_share).\n\n")


def _compiled(request: Request, counted: Sequence[_Counted], topology: Topology, out: TextIO) -> int:
    available, several = topology.chip.memory, len(counted) > 1
    every = [
        (one, dataclasses.replace(program, name=f"{one.stage.name}: {program.name}") if several else program)
        for one in counted
        for program in programs.of_stage(one.stage.config, one.workload, topology, one.runs)
    ]
    names = matching_names(request.programs, [program.name for _, program in every])
    made = []
    for one, program in every:
        if program.name in names:
            out.write(f"compiling {program.name} ...\n")
            out.flush()
            made.append((one, programs.compile_one(program, one.workload, topology)))
    reports = [each for _, each in made]
    out.write("\n" + report.program_tables(reports, topology, markdown=request.markdown) + "\n")
    good = report.fits(reports, available)
    for each in reports:
        if each.refusal:
            out.write(f"\n{each.name}: refused by the compiler: {each.refusal}; it counts arguments and temporaries\n")
        if each.compiled is not None and each.compiled.aliased < each.expected_alias:
            out.write(
                f"\n{each.name}: of {report.gigabytes(each.expected_alias)} GB given away only "
                f"{report.gigabytes(each.compiled.aliased)} GB were reused: a copy is made\n"
            )
    for one in counted:
        mine = [each for owner, each in made if owner is one]
        whole = report.total(each.time(topology) * each.runs for each in mine)
        out.write(
            f"\n{one.stage.name + ': ' if several else ''}{one.runs.unit} of these programs: floor "
            f"{report.seconds(whole.floor)}, estimate {report.seconds(whole.estimate)}\n"
            f"times: {one.runs.describe(one.lengths)} (an assumption)\n"
        )
        if one.fits and mine and not report.fits(mine, available):  # otherwise it was said above
            out.write(_misfit(one.workload, available) + "\n")
        for phase, size in analytic.memory(one.workload).peaks.items():
            if phase in ("loading", "saving") and size > available:  # no program: by sums, which are exact there
                good = False
                out.write(f"\n{one.stage.name}: {phase} does NOT fit: {report.gigabytes(size)} GB\n")
    which = "" if len(names) == len(every) else f"of those named ({len(names)} of {len(every)}) "
    misfits = sum(not report.fits([made], available) for made in reports)
    verdict = f"{misfits} of {len(reports)} programs do NOT fit" if misfits else "every program fits"
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
    found = nearest_fitting(workload, available)
    if found is None:
        return largest + (
            f"no rows, slots, split, context, remat or adapters make it fit {workload.devices} of these devices; "
            "take more of them, or bfloat16 (model.dtype; dtype of a tournament)"
        )
    words = " ".join(f"{word}={value}" for word, value in found.changes.items())
    return largest + f"the nearest setting that fits by the analytic model: {words}"

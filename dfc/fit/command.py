"""The answer of ``python -m dfc.launch.fit``: from a configuration and a topology to tables and an exit code."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import jax.numpy as jnp

from dfc import validation
from dfc.config import DivideFuseConquer
from dfc.errors import ConfigError
from dfc.fit import analytic, iteration, published, report
from dfc.fit.analytic import Workload
from dfc.fit.hardware import Topology, parse_topology
from dfc.fit.iteration import Lengths
from dfc.games import registry
from dfc.inference import buckets
from dfc.models import families, huggingface, model_folders
from dfc.models.config import DecoderConfig
from dfc.recipes import divide_fuse_conquer
from dfc.rollout.workers import lora_config

COUNTED = ("divide_fuse_conquer",)  # the recipes whose iterations and copies of weights are known here
_GROUPS = 4  # start fixed or random, winnable or not: as many policies at most


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
      config: of the run, its values checked.
      topology: the devices' name.
      model: a name of `published.CONFIGS`, or None.
      model_config: a parsed ``config.json``, or None; without either, that of ``model.path``.
      compiles: whether to compile.
      programs: compile only programs whose names contain one of these; empty: all.
      episode_length: for times; None is the default of `iteration.default_lengths`.
      generated_share: likewise.
      markdown: how tables are printed.
    """

    config: DivideFuseConquer
    topology: str
    model: str | None = None
    model_config: Mapping[str, Any] | None = None
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
    if request.config.recipe not in COUNTED:
        raise ConfigError([_not_counted(request.config.recipe)])
    topology = parse_topology(request.topology)
    decoder, name = model_of(request)
    problems = validation.device_problems(request.config, topology.devices)
    if problems:
        raise ConfigError(problems)
    lengths = _lengths(request)
    updates = request.config.grpo.updates_per_iteration
    passes = iteration.micro_batches(request.config, lengths)
    workload = workload_of(request.config, decoder, topology, passes // updates)
    available = topology.chip.memory
    found = analytic.memory(workload)
    markdown = request.markdown
    out.write(_heading(name, workload, topology))
    out.write("\n" + report.memory_table(found, available, markdown=markdown) + "\n\n")
    good = found.fits(available)
    if not good:
        out.write(_misfit(workload, available) + "\n\n")
    if not request.compiles:
        out.write(_analytic_times(request.config, workload, topology, lengths, markdown=markdown))
        verdict = "fits" if good else "does NOT fit"
        out.write(f"\n{topology.name}: {verdict}, by sums, margin {analytic.MARGIN:.0%}; --compile is the proof.\n")
        return 0 if good else 1
    return _compiled(request, workload, topology, lengths, out)


def _not_counted(recipe: str) -> str:
    return (
        f"recipe={recipe!r}: what it keeps on a device and how often it runs each program is not known here; only "
        f"{', '.join(COUNTED)} is counted. Sizes of that recipe would be wrong for another, so none are given"
    )


def _compiled(request: Request, workload: Workload, topology: Topology, lengths: Lengths, out: TextIO) -> int:
    from dfc.fit import programs  # noqa: PLC0415 - imports the trainer and the engine; the quick answer does without

    available = topology.chip.memory
    reports = []
    every = list(programs.of_run(request.config, workload, topology, lengths))
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
    out.write("\n" + _iteration_text(reports, topology, lengths))
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


def model_of(request: Request) -> tuple[DecoderConfig, str]:
    """Returns the decoder asked about, in the run's dtype, and its name.

    Raises:
      ConfigError: there is no such model.
    """
    path = request.config.model.path
    if request.model is not None:
        if request.model not in published.CONFIGS:
            raise ConfigError(
                [f"--model={request.model}: not among the published ones: {', '.join(published.CONFIGS)}"]
            )
        values, name = published.CONFIGS[request.model], request.model
    elif request.model_config is not None:
        values, name = request.model_config, "the model of --model_config"
    else:
        try:
            values, name = model_folders.read_json(huggingface.resolve(path) / model_folders.CONFIG), path
        except (OSError, ValueError, RecursionError) as error:
            known = ", ".join(published.CONFIGS)
            problem = (
                f"model.path={path!r}: no config.json can be read there ({error}); a folder with that file alone is "
                f"enough, or name a published model with --model: {known}"
            )
            raise ConfigError([problem]) from error
    decoder = families.from_config_json(values)
    return dataclasses.replace(decoder, dtype=request.config.model.dtype), name


def workload_of(config: DivideFuseConquer, decoder: DecoderConfig, topology: Topology, micro_batches: int) -> Workload:
    """Returns what decides memory and time of this run on these devices; `micro_batches` are of one update."""
    sizes = dataclasses.asdict(config.mesh)
    known = math.prod(size for size in sizes.values() if size != -1)
    mesh = {axis: topology.devices // known if size == -1 else size for axis, size in sizes.items()}
    training, method = config.training, config
    # Only this method has groups, of a game each at the least; the others' policies wait while the last is trained.
    groups = min(_GROUPS, max(1, len(config.games))) if method.method == "divide_fuse_conquer" else 1
    rollout, attention = config.rollout, training.attention
    prefill_buckets = rollout.prefill_buckets or buckets.default_prefill_buckets(rollout.max_length)
    two = any(registry.make(game_id, **options).info.seats > 1 for game_id, options in config.games.items())
    if attention == "auto":
        attention = "splash" if topology.chip.platform == "tpu" else "cudnn" if decoder.dtype != "float32" else "xla"
    return Workload(
        model=decoder,
        data=mesh["data"],
        fsdp=mesh["fsdp"],
        tensor=mesh["tensor"],
        rows=config.batch.micro_batch_rows,
        row_length=config.batch.row_length,
        micro_batches=micro_batches,
        updates=method.grpo.updates_per_iteration,
        remat=training.remat,
        attention=attention,
        master_bytes=int(jnp.dtype(training.master_dtype).itemsize),
        scan_layers=training.scan_layers,
        lora=lora_config(config.adapter),
        nf4=config.adapter.base == "nf4",
        reference=divide_fuse_conquer.learning(config).reads_reference,
        group_policies=groups - 1,
        compares=method.acceptance.rule != "always",
        engines=rollout.workers,
        slots=rollout.slots,
        conversations=2 if two else 1,
        call_rows=rollout.rows,
        positions=rollout.max_length,
        prompt=rollout.max_prompt_length,
        prefill=prefill_buckets[-1],
        steps=min(rollout.decode_steps, rollout.max_reply_length),
        apart=topology.devices > topology.of_a_host and topology.of_a_host % mesh["tensor"] == 0,
    )


def _lengths(request: Request) -> Lengths:
    given = iteration.default_lengths(request.config)
    return Lengths(request.episode_length or given.episode, request.generated_share or given.generated_share)


def _heading(name: str, workload: Workload, topology: Topology) -> str:
    count = analytic.parameters(workload.model, 1, 1, 1).total
    chip = topology.chip
    adapters = "" if workload.lora is None else f", adapters of rank {workload.lora.rank}"
    what = f"{name}: {count / 1e9:.2f} billion parameters, {workload.model.dtype}{adapters}"
    how = f"remat {workload.remat}, attention {workload.attention}"
    mesh = f"mesh data {workload.data} x fsdp {workload.fsdp} x tensor {workload.tensor}"
    each = f"each {report.number(chip.flops)}FLOP/s, {report.number(chip.bandwidth)}B/s"
    train = f"micro-batches of {workload.rows} rows x {workload.row_length} tokens"
    held = (
        f"{workload.slots} games, {workload.held_here * workload.shards} conversations x {workload.positions} positions"
    )
    call = (
        f"a call: {workload.rows_here * workload.shards} of them, {workload.steps} steps or "
        f"{workload.prefill} tokens prefilled"
    )
    play = f"{held}; {call}"
    lines = [
        f"{what}, {how}",
        f"{topology.name}: {topology.devices} devices, {mesh}, {chip.memory / 1e9:.1f} GB usable, {each}",
        f"training: {train}; playing: {play}",
    ]
    if chip.platform == "cuda":
        lines.append("usable means 95 % of the device: start with XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 (JAX takes 75 %)")
    return "\n".join(lines) + "\n"


def _misfit(workload: Workload, available: float) -> str:
    found = analytic.memory(workload)
    suggestion = analytic.nearest_fitting(workload, available)
    return report.culprits_text(found.culprits(4)) + "\n" + report.suggestion_text(suggestion, workload)


def _analytic_times(
    config: DivideFuseConquer, workload: Workload, topology: Topology, lengths: Lengths, *, markdown: bool
) -> str:
    rows = workload.rows_here * workload.shards
    runs = iteration.runs(config, lengths, rows=rows, steps=workload.steps, width=workload.prefill)
    works = (
        ("micro-batch", analytic.update_work(workload), runs.micro_batches),
        ("optimizer", analytic.optimizer_work(workload), runs.updates),
        (f"decode, {workload.steps} steps", analytic.decode_work(workload), runs.decode),
        (f"prefill, {workload.prefill} tokens", analytic.prefill_work(workload), runs.prefill),
    )
    lines = [["per device and run", "FLOP", "bytes", "floor", "estimate", "runs", "floor of all", "estimate of all"]]
    whole = report.Time(0.0, 0.0)
    for name, work, times in works:
        time = report.time_of(work, topology)
        whole += time * times
        cells = (time.floor, time.estimate), (time.floor * times, time.estimate * times)
        first, all_runs = (tuple(map(report.seconds, cell)) for cell in cells)
        lines.append([name, report.number(work.flops), f"{report.number(work.bytes)}B", *first, f"{times}", *all_runs])
    lines.append(["one iteration", "", "", "", "", "", report.seconds(whole.floor), report.seconds(whole.estimate)])
    return report.table(lines, markdown=markdown) + "\n" + _caveat(runs.episodes, lengths)


def _caveat(episodes: int, lengths: Lengths) -> str:
    return (
        f"times: {episodes} episodes of {lengths.describe()} (an assumption: --episode_length, --generated_share).\n"
        "floor: nothing is faster. estimate: 40 % of peak arithmetic or 50 % of bandwidth, sending not hidden;\n"
        "a guess, no promise. Neither counts games, opponents, the tail of a batch, evaluation or compiling.\n"
    )


def _iteration_text(reports: list[report.ProgramReport], topology: Topology, lengths: Lengths) -> str:
    whole = report.Time(0.0, 0.0)
    for one in reports:
        whole += one.time(topology) * one.runs
    return (
        f"one iteration of these programs: floor {report.seconds(whole.floor)}, "
        f"estimate {report.seconds(whole.estimate)}\ntimes are at {lengths.describe()} (an assumption)\n"
    )

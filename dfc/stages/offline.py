"""Training on stored rows: supervised on trajectories, or from preferences on pairs; read from top to bottom.

    rows       read and checked to the end before anything trains, those that are held out too
    reference  log-probabilities of the model before training, once, kept beside the data
    updates    every row once per epoch, in a seeded order, beside a share of other files; packed while the device
               computes; the loss on rows held out every so often
    policy     the trained model, or the checkpoint that the rows held out chose, in the Hugging Face layout, a summary

Paprika's (arXiv 2502.17543, section 3.3) first stage is the recipe ``sft``, its second one ``preference`` with
``alpha=1`` (RPO). How it departs from the paper's code:

1. The loss counts the policy's tokens only; its DPO counted what the environment wrote too.
2. The mean of an update is over its trajectories, or pairs, exactly, whatever the cut into micro-batches.

Resume order: 1. the run folder's streams are cut to the checkpoint's sizes; 2. weights and optimizer state are read;
3. the check of rows held out that was under way is made; 4. updates resume at the checkpoint's number. What an update
trains on follows from (seed, its number) and the data.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from dfc import multihost
from dfc.config import Preference, Sft
from dfc.errors import DivergenceError, Interrupted
from dfc.files import write_json
from dfc.games.rng import derive_seed
from dfc.losses import Loss, packed_preference_loss, sft_loss
from dfc.models import families, huggingface, model_folders
from dfc.models.config import DecoderConfig
from dfc.models.safetensors_format import Location
from dfc.models.sharding import batch_sharding, make_mesh
from dfc.models.transformer import Params
from dfc.records.trajectory_files import DatasetError
from dfc.report.tables import Table
from dfc.rollout.host import load_tokenizer
from dfc.rollout.trained_weights import lora_config
from dfc.rows import training_rows as data_rows
from dfc.rows.training_rows import TrainingRows
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.metrics import MetricsWriter
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.samples import TokenBatch
from dfc.stages.rows_run import RowsRun, State
from dfc.training import reference_logprobs
from dfc.training.batches import Batch, Batches
from dfc.training.held_out import HeldOut
from dfc.training.optimizer import learning_rate, make_optimizer
from dfc.training.row_shares import UpdateRows, joined
from dfc.training.run import loop
from dfc.training.trainer import LossFunction, Trainer, Update

Config = Sft | Preference
_LOOKED_AT, _MUCH_PADDING = 50, 0.4
_SUMMARY = "summary.json"


def run(config: Config, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes if the folder holds a checkpoint. The result is in the run folder's ``policy``."""
    if multihost.broadcast(folder.finished.exists()):
        print(f"{folder.path} holds this run, finished")  # noqa: T201 - why nothing happens
        _show_summary(folder)
        return

    # ---- rows ---------------------------------------------------------------------------------------------------
    source = huggingface.resolve(config.model.path)
    data = _read(config, source, stop)

    # ---- model, update ------------------------------------------------------------------------------------------
    print(f"loading {config.model.path}", flush=True)  # noqa: T201 - progress
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    model, weights = huggingface.load(source, mesh=mesh, dtype=config.model.dtype, nf4=config.adapter.base == "nf4")
    folder.note_device(multihost.device_text())
    stop.check_stop()
    trainer = make_trainer(config, model, mesh, shortest=data.shortest, updates=data.update_rows.updates)
    params = trainer.initial_params(weights, config.seed)
    trainer.bound_growth(params)
    base_params = None if config.adapter.rank == 0 else trainer.frozen_params(weights)
    del weights  # they would be a second copy of the weights

    # ---- reference ----------------------------------------------------------------------------------------------
    def packed(some: TrainingRows, which: UpdateRows, frozen: Params | None) -> Batches:
        own, reference = _own_rows(mesh), None
        shape = {"row_length": config.batch.row_length, "micro_batch_rows": config.batch.micro_batch_rows}

        def compute(batches: Sequence[TokenBatch]) -> list[np.ndarray]:
            found = trainer.logprobs(params, batches, base_params=frozen, check_stop=stop.check_stop)
            return [multihost.to_host(x) for x in found]

        if reads_reference(config):
            name = ""
            if multihost.is_primary():  # reads all of the weights
                name = reference_logprobs.key(source, some, dtype=config.model.dtype, base=config.adapter.base)
            name = multihost.broadcast(name)
            reference = reference_logprobs.obtain(
                some, name, compute, run_folder=folder.path, own=own, stop=stop, halves=trainer.halves, **shape
            )
        return Batches(some, which, **shape, own=own, reference=reference, halves=trainer.halves)

    batches = packed(data.rows, data.update_rows, base_params)
    held_out = None
    if data.held_out is not None:
        whole = UpdateRows(len(data.held_out), batch_size=len(data.held_out), epochs=1, seed=config.seed)
        held_out = HeldOut(
            config.held_out,
            updates=batches.updates,
            trainer=trainer,
            loss=make_loss(config, data.shortest),
            mesh=mesh,
            micro_batches=packed(data.held_out, whole, base_params)[0].micro_batches,
            folder=folder.path,
        )
    _say_padding(batches)

    # ---- updates ------------------------------------------------------------------------------------------------
    checkpoints = Checkpointer(folder.checkpoints, keep=config.checkpoint.keep)
    run_ = RowsRun(
        folder, stop, checkpoints, config, source, None, trainer, params, base_params, data.digests, held_out
    )
    del base_params
    state = _train(run_, batches)
    state.optimizer = None

    # ---- policy, summary ----------------------------------------------------------------------------------------
    policy = None if held_out is None else held_out.policy()
    policy = trainer.policy(state.params) if policy is None else policy
    run_.write_played(policy, folder.policy, folder.adapter)
    _write_summary(config, folder, data.files, held_out)
    folder.finish()
    if held_out is not None:
        held_out.remove()
    _show_summary(folder)


# ---- rows and reference ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Data:
    """What is trained on: rows of all `files`, `update_rows` of each update; and `held_out` rows, None: none."""

    files: Sequence[TrainingRows]
    rows: TrainingRows
    update_rows: UpdateRows
    held_out: TrainingRows | None

    @property
    def shortest(self) -> int:
        """Tokens of the shortest row."""
        return min(int(rows.lengths.min()) for rows in (self.rows, self.held_out) if rows is not None)

    @property
    def digests(self) -> dict[str, tuple[Path, str]]:
        """What must be the same when the run resumes, by its name in a checkpoint."""
        parts = {"rows": self.rows, "held_out_rows": self.held_out}
        return {name: (rows.path, rows.digest) for name, rows in parts.items() if rows is not None}


def _read(config: Config, source: Location, stop: Stop) -> _Data:
    """Reads the rows before the weights, by vocabulary and tokenizer; DatasetError if the run has no row of a file."""
    decoder = families.from_config_json(model_folders.read_json(source / model_folders.CONFIG))

    def read(place: str) -> TrainingRows:
        print(f"reading {place}", flush=True)  # noqa: T201 - progress
        found = data_rows.read(
            Path(place).expanduser(),
            pairs=isinstance(config, Preference),
            vocabulary=decoder.vocabulary,
            row_length=config.batch.row_length,
            tokenizer=lambda: load_tokenizer(source, enable_thinking=config.model.enable_thinking),
            max_row_bytes=config.max_row_bytes,
        )
        what = "pairs" if len(found.sides) == 2 else "trajectories"
        use = "held out" if place == config.held_out.data else "trained on"
        tokens, actions = found.lengths.sum(), found.actions.sum()
        print(f"{len(found):,} {what}, {tokens:,} tokens, {actions:,} of them {use}", flush=True)  # noqa: T201 - progress
        return found

    places = [config.data, *config.data_shares, *filter(None, [config.held_out.data])]
    read_files = multihost.on_all_hosts(lambda: [read(place) for place in places])
    stop.check_stop()
    files = read_files[: 1 + len(config.data_shares)]
    held_out = read_files[-1] if config.held_out.data else None
    found = _Data(files, joined(files), _update_rows(config, files), held_out)
    digests = [(np.frombuffer(bytes.fromhex(digest), np.uint8),) for _, digest in found.digests.values()]
    multihost.require_equal("rows of the data", digests)
    return found


def _update_rows(config: Config, files: Sequence[TrainingRows]) -> UpdateRows:
    """Returns which rows each update has, and prints how often each row is trained on."""
    first, *others = files
    found = UpdateRows(
        len(first),
        batch_size=config.batch_size,
        epochs=config.epochs,
        seed=config.seed,
        others=[(len(file), share) for file, share in zip(others, config.data_shares.values(), strict=True)],
        max_updates=config.max_updates,
    )
    for file, count in zip(files, found.counts() if others else [], strict=bool(others)):
        if not count:
            raise DatasetError(
                f"{file.path}: none of its {len(file)} rows would be trained on in {found.updates} updates of "
                f"{config.batch_size} rows; raise its share in data_shares, or max_updates"
            )
        print(f"{file.path}: each row is trained on {count / len(file):.2f} times", flush=True)  # noqa: T201 - the effect of the shares
    return found


def _own_rows(mesh: jax.sharding.Mesh) -> Callable[[tuple[int, int]], Collection[int] | None]:
    """Returns a function that says which rows of an array [B, T] this process's devices hold."""

    def own(shape: tuple[int, int]) -> Collection[int] | None:
        if jax.process_count() == 1:
            return None
        places = batch_sharding(mesh).addressable_devices_indices_map(shape).values()
        return {row for place in places if place is not None for row in range(shape[0])[place[0]]}

    return own


def _say_padding(batches: Batches) -> None:
    """Prints how much of what is computed is padding, from the layouts of the first updates."""
    layouts = [batches.layouts(update) for update in range(min(batches.updates, _LOOKED_AT))]
    places = sum(len(layout.rows) * layout.row_length for _, found in layouts for layout in found)
    padding = 1 - sum(int(batches.lengths[chosen].sum()) for chosen, _ in layouts) / places
    hint = "; fewer batch.micro_batch_rows, or a larger batch_size, lower it" if padding > _MUCH_PADDING else ""
    print(f"{batches.updates} updates, {padding:.0%} of what they compute is padding{hint}", flush=True)  # noqa: T201 - what it costs


# ---- updates ---------------------------------------------------------------------------------------------------------


def _train(run: RowsRun, batches: Batches) -> State:
    """Makes the updates that are left; returns the state. Interrupted: saved. TrainingError: one is refused."""
    config, trainer, held_out = run.config, run.trainer, run.held_out
    rows, updates, objective = batches.rows, batches.updates, _objective(config)
    state = run.restore() or run.begin()
    rate = learning_rate(config.optimizer, updates)
    upcoming = batches.iterate(state.done)

    def write(record: dict[str, Any], *, again: bool) -> None:
        """Records an update once the check that is due after it is made, which a stop puts off to the next start."""
        if held_out is not None and held_out.due(state.done):
            begun = time.perf_counter()
            try:
                checked = held_out.check(state.done, state.params, run.base_params, run.stop.check_stop)
            except Interrupted:
                if not again:
                    state.unchecked = record
                    run.save(state)
                    run.settle()
                raise
            except DivergenceError:  # their memory goes to the newest checkpoint
                state.params = state.optimizer = None
                raise
            record["metrics"] |= checked
            record["clock"]["held_out_seconds"] = time.perf_counter() - begun
        state.unchecked = None
        writer.write(**record)

    def once(state: State) -> _Done:
        begun, batch, number = time.perf_counter(), next(upcoming), state.done
        drops = config.adapter.rank and config.adapter.dropout
        try:
            update = trainer.update(
                state.params,
                state.optimizer,
                batch.micro_batches,
                base_params=run.base_params,
                dropout_seed=derive_seed("adapter dropout", config.seed, number) % 2**32 if drops else None,
                donate=True,
                check_stop=run.stop.check_stop,
            )
        except DivergenceError as error:
            raise DivergenceError(f"update {number + 1}: {error}") from None
        state.params, state.optimizer, state.done = update.params, update.optimizer_state, number + 1
        return _Done(update, batch, number, time.perf_counter() - begun)

    def show(found: _Done) -> None:
        update, batch, number, seconds = found
        record = {
            "step": state.done,
            "stage": objective,
            "iteration": state.done,
            "metrics": _metrics(update, batch, rate, number, drift=reads_reference(config)),
            "clock": {
                "time": time.time(),
                "seconds": seconds,
                "tokens_per_second": batch.num_tokens / seconds,
                "trained_tokens_per_second": batch.actions / seconds,
            },
        }
        write(record, again=False)
        progress.update(
            stage=f"{objective}, loss {update.loss:.4f}{_held_out_words(held_out)}",
            iteration=state.done,
            iterations=updates,
            step=state.done,
            episodes_per_second=len(batch.rows) * len(rows.sides) / seconds,
            tokens_per_second=batch.num_tokens / seconds,
            win_rates={},
        )

    shorter, folder = config.shorter, run.folder
    with MetricsWriter(folder) as writer, Progress(updates, start_step=state.done, shorter=shorter) as progress:
        if state.unchecked is not None:
            run.measured(functools.partial(write, state.unchecked, again=True))
        due = lambda: state.done % config.checkpoint.every == 0 or state.done == updates  # noqa: E731 - beside its use
        loop(run, state, once, show, left=lambda: state.done < updates, due=due)
    return state


class _Done(NamedTuple):
    """An update that was made: what it gave, of which rows, its number from 0, its seconds."""

    update: Update
    batch: Batch
    number: int
    seconds: float


def _held_out_words(held_out: HeldOut | None) -> str:
    return f", held out {held_out.checks[-1].loss:.4f}" if held_out is not None and held_out.checks else ""


# ---- one update ------------------------------------------------------------------------------------------------------


def reads_reference(config: Config) -> bool:
    """Returns whether the loss compares with the model before training; a preference of weight 0 does not."""
    return isinstance(config, Preference) and config.reference and config.preference_weight > 0


def make_trainer(
    config: Config, model: DecoderConfig, mesh: jax.sharding.Mesh, *, shortest: int, updates: int
) -> Trainer:
    """Returns the trainer of a run's model, for `updates` of the whole run; `shortest` is as for `make_loss`."""
    return Trainer(
        model,
        make_loss(config, shortest),
        make_optimizer(config.optimizer, updates),
        training=config.training,
        lora=lora_config(config.adapter),
        mesh=mesh,
        workers=config.batch.workers,
    )


def make_loss(config: Config, shortest: int) -> LossFunction:
    """Returns the loss in the trainer's signature; a batch has the reference's log-probabilities if they are read.

    The `shortest` row's tokens bound how many fit into a packed one.
    """

    def loss(logprobs: jax.Array, batch: TokenBatch, reference: jax.Array | None) -> Loss:
        del reference  # of `Trainer.update`, which would compute it in every update
        most = max(1, batch.tokens.shape[1] // shortest)
        if isinstance(config, Sft):
            return sft_loss(logprobs, batch.mask, segments=batch.segments, num_segments=most)
        return packed_preference_loss(
            logprobs,
            batch.mask,
            batch.reference_logprobs if reads_reference(config) else None,
            segments=batch.segments,
            num_segments=2 * most,
            beta=config.beta,
            alpha=config.alpha,
            preference_weight=config.preference_weight,
            normalize_length=config.normalize_length,
            margin=config.margin,
        )

    return loss


def _metrics(update: Update, batch: Batch, rate: optax.Schedule, number: int, *, drift: bool) -> dict[str, float]:
    found = {
        "loss": update.loss,
        "gradient_norm": update.gradient_norm,
        "learning_rate": float(rate(number)),
        "rows": float(len(batch.rows)),
        "tokens": float(batch.num_tokens),
        "trained_tokens": float(batch.actions),
        "padding": 1 - batch.num_tokens / batch.places,
        **update.metrics,
    }
    if drift:  # of the policy from the reference, before this update
        found |= update.gap
    return found


# ---- results ---------------------------------------------------------------------------------------------------------


def _objective(config: Config) -> str:
    """Returns what is learned, as records name it."""
    return "supervised" if isinstance(config, Sft) else "preference"


def _write_summary(config: Config, folder: RunFolder, files: Sequence[TrainingRows], held_out: HeldOut | None) -> None:
    """Writes ``summary.json`` from what was recorded, of every start of the run."""
    if not folder.writes:
        return
    rows = {str(file.path): len(file) for file in files}
    records = folder.records("metrics")
    tenth = max(1, len(records) // 10)
    data, *others = rows

    def mean(name: str, some: list[dict[str, Any]]) -> float:
        return sum(float(record["metrics"][name]) for record in some) / len(some)

    summary: dict[str, Any] = {
        "objective": _objective(config),
        "data": data,
        "rows": rows[data],
        "updates": len(records),
        "trained_tokens": int(sum(record["metrics"]["trained_tokens"] for record in records)),
        "tokens": int(sum(record["metrics"]["tokens"] for record in records)),
        "seconds": sum(record["clock"]["seconds"] for record in records),
    }
    for name in ("loss", "accuracy", "margin"):
        if name in records[0]["metrics"]:
            summary[name] = {"first": mean(name, records[:tenth]), "last": mean(name, records[-tenth:])}
    if others:
        summary["further_data"] = {other: rows[other] for other in others}
    if held_out is not None:
        summary["held_out"] = {"data": config.held_out.data, **held_out.summary()}
    write_json(folder.path / _SUMMARY, summary, indent=2)


def _show_summary(folder: RunFolder) -> None:
    """Prints the result and where to look."""
    if not folder.writes:
        return
    found = json.loads((folder.path / _SUMMARY).read_text(encoding="utf-8"))
    done = f"{found['objective']}: {found['updates']} updates on {found['rows']:,} rows"
    lines = [
        f"{done}, {found['trained_tokens']:,} tokens trained on in {found['seconds']:.0f} s",
        *(
            f"{name}: {found[name]['first']:.4f} -> {found[name]['last']:.4f} (first and last tenth of the updates)"
            for name in ("loss", "accuracy", "margin")
            if name in found
        ),
    ]
    if "held_out" in found:
        lines += _held_out_lines(found["held_out"])
    if folder.adapter.exists():
        lines.append(f"adapter: {folder.adapter}")
    print("\n".join([*lines, f"policy: {folder.policy}"]), flush=True)  # noqa: T201 - the result


def _held_out_lines(held_out: Mapping[str, Any]) -> list[str]:
    """Returns the checks of rows held out as lines, and why this policy is kept."""
    checks, kept = held_out["checks"], held_out["kept"]
    lowest = min(checks, key=lambda check: float(check["loss"]))["update"]
    why = {
        "last": "the last one",
        "best": "the lowest",
        "before_lowest": f"the first within {held_out['tolerance']:g} of the lowest, that of update {lowest}",
    }[held_out["keep"]]
    rows = tuple((str(c["update"]), f"{c['loss']:.4f}", why if c["update"] == kept else "") for c in checks)
    return Table(f"loss on rows held out, {held_out['data']}", ("update", "loss", "kept"), rows).lines()

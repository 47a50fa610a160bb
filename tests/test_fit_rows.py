"""What fit counts of training on rows, against arrays and programs of real updates."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny_models
from fit_workloads import EIGHT, LORA, MODEL, ONCE, ONE, ROLLOUT, ROWS, TRAINING, phases, really_local, workload_of

from dfc import packing
from dfc.config import BatchConfig, Grpo, GrpoConfig, HeldOutConfig, MeshConfig, Preference, RowsAdapterConfig, Sft
from dfc.models import lora, quantization, sharding
from dfc.samples import TokenBatch
from dfc.stages import offline
from dfc.tools.fit import analytic, holdings, iteration, programs
from dfc.tools.fit.iteration import runs

pytestmark = pytest.mark.usefixtures("optax_promotion")


KINDS = [
    pytest.param(Sft(**ROWS), id="sft"),
    pytest.param(Sft(**ROWS, held_out=HeldOutConfig(data="rows.jsonl")), id="held out"),
    pytest.param(Preference(**ROWS), id="preference"),
    pytest.param(Preference(**ROWS, reference=False), id="without reference"),
    pytest.param(Sft(**ROWS, adapter=RowsAdapterConfig(**LORA, dropout=0.1)), id="adapters"),
    pytest.param(Preference(**ROWS, adapter=RowsAdapterConfig(**LORA, base="nf4")), id="four bits"),
]


class Recorder:
    """A program that keeps its first arguments, and computes nothing."""

    def __init__(self, program):
        self.program, self.given = program, None

    def __call__(self, *given, **options):
        traced = self.program.trace(*given, **options)
        self.given = self.given or (jax.tree.map(lambda x: (x.shape, x.dtype), given), str(traced.jaxpr))
        return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), traced.out_info)


@pytest.mark.parametrize("config", KINDS)
def test_the_programs_of_training_on_rows_are_those_an_update_runs(config):
    """The update as `offline._train` makes it, its batch as `dfc.packing.fill` does."""
    mesh, workload = sharding.make_mesh(1, 4, 2), workload_of(config)
    trainer = holdings.make_trainer(config, workload, mesh)
    weights = jax.device_put(tiny_models.filled(MODEL, 0.5), sharding.param_shardings(MODEL, mesh))
    if config.adapter.base == "nf4":
        places = quantization.quantized_shardings(MODEL, mesh)
        weights = jax.device_put(quantization.quantize_params(tiny_models.filled(MODEL, 0.5)), places)
    params = trainer.initial_params(weights)
    base = None if config.adapter.rank == 0 else trainer.frozen_params(weights)
    state = trainer.initial_state(params)
    held = analytic.memory(workload).phases["gradient"]
    assert held["trained weights"] == really_local(params)
    assert held["optimizer"] == pytest.approx(really_local(state), abs=16)
    if config.adapter.base == "full":  # blocks of 64 inputs of so small a model cannot be split as the sum has it
        assert held.get("frozen weights, stacked", 0) == really_local(base)
    # Nothing else of the model is there: `offline.run` has let go of what it read.
    assert not {"initial policy", "reference policy, stacked", "weights for decoding", "cache"} & set(held)

    for name, program in trainer.programs.items():
        trainer.programs[name] = Recorder(program)
    arrays = [np.ones((8, 32), np.int32)] * 3 + [np.ones((8, 32), np.float32)] * 3
    batch = TokenBatch(*arrays)
    if config.held_out.data:
        trainer.logprobs(params, [batch], base_params=base)
    if offline.reads_reference(config):
        (scored,) = trainer.logprobs(params, [batch], base_params=base)
        batch = batch._replace(reference_logprobs=np.asarray(scored))
    seed = 7 if config.adapter.dropout else None
    trainer.update(params, state, [batch], base_params=base, dropout_seed=seed, donate=True)
    ran = {name: recorder for name, recorder in trainer.programs.items() if recorder.given and name != "largest"}

    fresh = holdings.make_trainer(config, workload, mesh)
    workload = dataclasses.replace(workload, micro_batches=1)
    found = {p.name: p for p in programs._training(fresh, workload, programs.shapes_of(fresh, workload, mesh), ONCE)}
    names = {
        "gradient": "gradient",
        "reference log-probabilities": "own_logprobs",
        "held-out log-probabilities": "own_logprobs",
        "optimizer step in place": "apply_in_place",
    }
    assert {names[name] for name in found} == set(ran)
    for name, program in found.items():
        shapes, jaxpr = ran[names[name]].given
        foretold = jax.tree.map(lambda x: (x.shape, x.dtype), tuple(program.arguments))
        assert jax.tree.leaves(foretold) == jax.tree.leaves(shapes), name
        assert str(program.trace().jaxpr) == jaxpr, name


def test_every_update_on_rows_takes_the_memory_of_what_it_starts_from():
    config = Sft(**ROWS)
    workload, mesh = workload_of(config), sharding.make_mesh(1, 4, 2)
    trainer = holdings.make_trainer(config, workload, mesh)
    shapes = programs.shapes_of(trainer, workload, mesh)
    found = {p.name: p for p in programs._training(trainer, workload, shapes, ONCE)}
    step = found["optimizer step in place"]
    memory = step.trace().lower().compile().memory_analysis()
    assert memory.alias_size_in_bytes == programs.local_bytes(step.donated) == programs.local_bytes(step.arguments[:2])
    held = analytic.memory(workload).phases["optimizer step"]
    assert set(held) == {"trained weights", "optimizer", "gradients", "updates"}
    updates = held["updates"]
    assert sum(held.values()) - updates == pytest.approx(memory.argument_size_in_bytes, rel=0.01)
    assert updates == held["gradients"]  # of float32, as what is trained


def test_a_reference_is_held_where_games_are_played_and_run_before_where_rows_are_read():
    with_, without = (phases(Preference(**ROWS, reference=reads)) for reads in (True, False))
    assert with_["gradient"] == without["gradient"]
    assert set(with_) - set(without) == {"reference"}
    assert "optimizer" not in with_["reference"]
    held, not_held = (
        phases(Grpo(**ROWS, rollout=ROLLOUT, grpo=GrpoConfig(kl_coefficient=weight))) for weight in (0.1, 0.0)
    )
    assert set(held["gradient"]) - set(not_held["gradient"]) == {"reference policy, stacked"}
    assert set(held) == set(not_held)


def test_pairs_have_two_rows_and_their_reference_is_run_once_in_all_epochs():
    lengths = iteration.Lengths(32, 0.5)
    for config, rows, scored in (
        (Sft(**ROWS, batch_size=16, epochs=4), 16, 0),
        (Preference(**ROWS, batch_size=16, epochs=4), 32, 1.0),
        (Preference(**ROWS, batch_size=16, epochs=2, preference_weight=0.0), 32, 0),
    ):
        found = runs(config, lengths, holdings.workload_of(config, MODEL, EIGHT, lengths))
        assert (found.unit, found.episodes, found.micro_batches) == ("one update", rows, rows * 32 / 32 / 8)
        assert found.scored == scored
        assert (found.decode, found.prefill) == (0, 0)


@pytest.mark.parametrize(("row_length", "count", "least"), [(96, 8, 1), (512, 56, 2)])
def test_sums_of_gradients_are_counted_wherever_an_update_can_have_two_micro_batches(row_length, count, least):
    """Short ones go into rows of their own length, where those are cut in whole tiles."""
    batch = BatchConfig(row_length=row_length, micro_batch_rows=64)
    config = Sft(**ROWS | {"batch": batch}, batch_size=2 * count)
    tokens = [row_length * 6 // 10] * count + [row_length // 2 - 4] * count
    real = packing.lay_out(tokens, row_length, 64, packing.Halves(1))
    passes = iteration.passes(config, batch, iteration.Lengths(sum(tokens) // len(tokens), 0.5), 1)
    assert (len(real), passes) == (least, least)


def test_adapters_are_merged_beside_the_model_at_full_precision():
    """`offline_results.save_policy` loads the model again, whatever it was trained in, and merges."""
    adapter = lora.LoraConfig(rank=4, targets=lora.ALL_LINEAR)
    weights = jax.tree.map(jax.numpy.asarray, tiny_models.filled(MODEL, 0.5))
    merged = lora.merge(weights, lora.initialize_adapters(MODEL, adapter, 0), adapter.scale)
    of_model = {id(leaf) for leaf in jax.tree.leaves(weights)}
    new = [leaf for leaf in jax.tree.leaves(merged) if id(leaf) not in of_model]
    one = {"mesh": MeshConfig(1, 1, 1), "batch": BatchConfig(row_length=32, micro_batch_rows=8), "training": TRAINING}
    for base in ("full", "nf4"):
        found = phases(Sft(**one, adapter=RowsAdapterConfig(**LORA, base=base)), topology=ONE)["saving"]
        assert found["merged weights"] == pytest.approx(sum(leaf.nbytes for leaf in new))
        assert found["weights at full precision"] == sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    played = phases(Grpo(**one, rollout=ROLLOUT, adapter=RowsAdapterConfig(**LORA)), topology=ONE)["saving"]
    assert "weights at full precision" not in played  # the initial policy is there
    assert played["cache"] > 0
    assert "saving" not in phases(Sft(**one), topology=ONE)

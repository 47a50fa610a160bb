"""Two processes of two devices each: an adapter for each role, and what a judge is asked, are those of one process."""

import dataclasses
import json
import os

import numpy as np
import pytest
import recipe_runs
from answer_runs import run as evaluate
from chat_server import completion, fails, serving
from processes import ROOT, free_port, joining, outcome, python
from recipe_runs import untimed
from self_play_runs import ROLES, first_gradients, one_device, run

from dfc.config import CheckpointConfig, EndpointConfig, EvaluateAnswers, PairwiseConfig

__all__ = ["one_device"]

CONFIG = dataclasses.replace(ROLES, iterations=2, checkpoint=CheckpointConfig(every=1))
PAIRS = 3

# Runs self-play, and once more from a copy made behind the first checkpoint; compares answers, first while the judge is
# down. Prints a digest of the weights on its own devices at each checkpoint: each process has all of them.
DRIVER = """
import dataclasses, hashlib, pathlib, shutil, sys
from dfc.launch import distributed

place, judge, *flags = sys.argv[1:]
processes, problems = distributed.read(dict(flag[2:].split("=") for flag in flags))
assert not problems, problems
distributed.connect(processes)
place = pathlib.Path(place)

import jax, numpy as np
from dfc import multihost
from dfc.config import MeshConfig
from dfc.errors import DfcError
from dfc.stages import evaluate_answers
from dfc.methods.language_self_play import recipe as language_self_play
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.methods.language_self_play.self_play_run import SelfPlayRun
from self_play_runs import first_gradients
from test_self_play_two_processes import CONFIG, comparing

save = SelfPlayRun.save


def digest(params):
    weights = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        parts = {str(shard.index): np.asarray(shard.data).tobytes() for shard in leaf.addressable_shards}
        weights.update(b"".join(parts[index] for index in sorted(parts)))
    return weights.hexdigest()


def copying(play, state):
    save(play, state)
    play.settle()  # the copy is of a whole checkpoint
    print("weights", play.folder.path.name, state.done, digest(state.params))
    if (play.folder.path.name, state.done, multihost.is_primary()) == ("two", 1, True):
        shutil.copytree(play.folder.path, place / "cut")


def run(recipe, config, name):
    existed = multihost.broadcast((place / name / "config.json").exists())
    if multihost.is_primary():
        folder = RunFolder.open(place / name, config, command="")
    else:
        folder = RunFolder.follow(place / name, config, existed=existed)
    with folder, jax.numpy_dtype_promotion("standard"):
        recipe.run(config, folder, Stop())


SelfPlayRun.save = copying
config = dataclasses.replace(CONFIG, mesh=MeshConfig(2, 2, 1))
with first_gradients() as found:
    run(language_self_play, config, "two")
np.savez(place / f"gradients-{jax.process_index()}.npz", **found)
run(language_self_play, config, "cut")

config = comparing(place, judge)
try:
    run(evaluate_answers, config, "compared")
except DfcError as error:
    print("refused", error)
run(evaluate_answers, config, "compared")
jax.distributed.shutdown()
"""


def comparing(place, judge):
    """Returns how answers are compared of which the last two are equal; their files lie in a folder."""
    files = {name: place / f"{name}.json" for name in ("mine", "theirs")}
    for name, path in files.items():
        texts = [f"{name} {n}" for n in range(PAIRS)] + ["the same"]
        path.write_text(json.dumps([{"instruction": f"Say {n}.", "output": t} for n, t in enumerate(texts)]))
    own = PairwiseConfig(
        instructions=str(files["mine"]),
        outputs={name: str(path) for name, path in files.items()},
        baseline="theirs",
        judge=judge,
        endpoint=EndpointConfig(backoff=0.0, retries=0),
    )
    return EvaluateAnswers(name="compared", policies=(), pairwise=own)


def prefers_a(handler, _):
    handler.send(200, json.dumps(completion("Verdict: A")).encode())


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder of what two processes made, what each printed, and the requests that the judge got."""
    place = tmp_path_factory.mktemp("together")
    path, port = os.pathsep.join(map(str, (ROOT, ROOT / "tests"))), free_port()
    with serving(*[fails(503)] * 2 * PAIRS, usual=prefers_a) as server:
        judge = f"{server.url}#m"
        comparing(place, judge)
        started = [
            python(DRIVER, place, judge, *joining(port, n), JAX_NUM_CPU_DEVICES="2", PYTHONPATH=path) for n in range(2)
        ]
        said = [outcome(process).splitlines() for process in started]
        evaluate(comparing(place, judge), place / "alone")
        return place, said, [json.dumps(body, sort_keys=True) for body in server.bodies]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder of a run on one device, and its first gradients."""
    with first_gradients() as found:
        return run(CONFIG, tmp_path_factory.mktemp("alone") / "run"), found


def test_both_roles_take_the_first_step_of_one_device(together, alone):
    place, _, _ = together
    path, expected = alone
    first = [untimed(folder, "episodes")[: CONFIG.groups_per_iteration] for folder in (path, place / "two")]
    assert first[0] == first[1]
    for number in range(2):
        found = np.load(place / f"gradients-{number}.npz")
        assert set(found) == set(expected)
        for role in ("solver", "challenger"):
            one, two = (
                np.concatenate([tree[name].ravel() for name in sorted(expected) if f"['{role}']" in name])
                for tree in (expected, found)
            )
            assert np.linalg.norm(two - one) <= 1e-6 * np.linalg.norm(one), role
            assert np.linalg.norm(one) > 1e-3
    one, two = (untimed(folder, "metrics")[0]["metrics"] for folder in (path, place / "two"))
    for name in ("loss", "solver/gradient_norm", "challenger/gradient_norm", "reward"):
        assert two[name] == pytest.approx(one[name], rel=1e-6, abs=1e-6), name


def test_both_processes_hold_the_same_adapters_and_resume_bit_for_bit(together):
    place, said, _ = together
    digests = [[line for line in lines if line.startswith("weights")] for lines in said]
    assert digests[0] == digests[1]
    *_, whole, cut = (line.split() for line in digests[0])
    assert (whole[1:3], cut[1:3]) == (["two", "2"], ["cut", "2"])
    assert whole[3] == cut[3]
    for stream in ("episodes", "metrics"):
        assert untimed(place / "two", stream) == untimed(place / "cut", stream)
    assert [line["iteration"] for line in untimed(place / "cut", "metrics")] == [1, 2]
    for name in (
        "policy/model.safetensors",
        "challenger_policy/model.safetensors",
        "adapter/adapter_model.safetensors",
    ):
        assert (place / "two" / name).read_bytes() == (place / "cut" / name).read_bytes()


def test_one_process_asks_the_judge_and_both_stop_where_it_is_down(together):
    place, said, asked = together
    for lines in said:
        (refused,) = (line for line in lines if line.startswith("refused"))
        assert f"no reply on any of the last {PAIRS} pairs" in refused
    found = recipe_runs.lines(place / "compared", "episodes")
    whole = recipe_runs.lines(place / "alone", "episodes")
    assert len(found) == PAIRS + 1
    assert found == whole
    # While the judge is down, when it replies, and when one process asks: each time both orders of each pair, once.
    requests = 2 * PAIRS
    assert len(asked) == 3 * requests
    for begin in range(0, len(asked), requests):
        assert set(asked[begin : begin + requests]) == set(asked[:requests])
    assert len(set(asked)) == requests
    for name in ("results.json", "tables.md"):
        assert (place / "compared" / name).read_bytes() == (place / "alone" / name).read_bytes()

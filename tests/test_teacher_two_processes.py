"""Games that the teacher spoiled, on two processes: they replace the same ones by the same ones, and so does one."""

import pytest
from offline_rows import save_model
from processes import ROOT, ended, free_port, joining, programs_in, started
from recipe_runs import lines

CONFIG = f"""
from dfc import config as c


def get_config():
    return c.Grpo(
        name="spoiled",
        games={{"{ROOT / "tests" / "sound_games.py"}:Unasked": {{}}}},
        model=c.ModelConfig(path="model", dtype="float32"),
        mesh=c.MeshConfig(data=2, fsdp=2),
        rollout=c.RolloutConfig(
            slots=8, max_length=192, max_reply_length=4, stop=("]",), prompt="bare_action", legal_only=True,
            prefill_buckets=(64,),
        ),
        optimizer=c.OptimizerConfig(learning_rate=1e-2),
        batch=c.BatchConfig(row_length=192, micro_batch_rows=8),
        training=c.TrainingConfig(scan_layers=False, remat="none"),
        iterations=2,
        groups_per_game=4,
        group_size=3,
        random_action_rate=0.0,
        opponent="random_legal",
        learner_roles={{"{ROOT / "tests" / "sound_games.py"}:Unasked": "teller"}},
        teacher_errors="replace",
        acceptance=c.AcceptanceConfig(rule="always", games=2),
        grpo=c.GrpoConfig(updates_per_iteration=1),
        evaluation=c.MatchesConfig(games=2),
        checkpoint=c.CheckpointConfig(every=1, keep=2),
    )
"""

# Runs the launcher beside a teacher that breaks off some of its games and else repeats what it was told. Notes the
# records and weights that this process itself has; a process that does not write drops its records. How it ends:
# "finished"; "stopped", by a SIGTERM to itself when games are to be played again for the second time; "played", with
# the games of the first iteration.
RUN = """
import hashlib, os, pathlib, signal, sys
import jax, numpy as np
from dfc.launch.__main__ import main
from dfc.models import huggingface
from dfc.rollout.workers import RolloutWorkers
from dfc.runs.run_folder import RunFolder, json_line
from dfc.training import game_plan, teacher_errors

notes, end, *arguments = sys.argv[1:]
played = hashlib.sha256()
append, save, play_again = RunFolder.append, huggingface.save, teacher_errors._Settling.play_again
times = 0


class Spoils:
    name = "spoils"

    def act(self, game, rng):
        return "[3]" if rng.uniform() < 0.5 else f"[{game.told}]"


def noting_append(self, stream, records):
    records = list(records)
    if stream != "metrics":
        played.update(b"".join(map(json_line, records)))
    append(self, stream, records)
    if end == "played" and any(record.get("kind") == "train" for record in records):
        self.flush()
        os._exit(0)


def noting_save(folder, config, params, **options):
    weights = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        parts = {str(shard.index): np.asarray(shard.data).tobytes() for shard in leaf.addressable_shards}
        weights.update(b"".join(parts[index] for index in sorted(parts)))
    pathlib.Path(notes).write_text(weights.hexdigest() + " " + played.hexdigest())
    save(folder, config, params, **options)


def stopping(self, attempt, play):
    global times
    times += 1
    if end == "stopped" and times == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    play_again(self, attempt, play)


RunFolder.append, huggingface.save, teacher_errors._Settling.play_again = noting_append, noting_save, stopping
game_plan.choose_opponent = lambda *_: (Spoils(), "spoils")
RolloutWorkers.seat = lambda *_: {}
sys.exit(main(arguments))
"""


def run(place, name, notes, end, *flags, devices):
    words = ["run.py", notes, end, "--config=config.py", f"--workdir={name}", *flags]
    return started(place, *words, devices=devices, **programs_in(place))


def together(place, name, stops=None):
    port, ends = free_port(), ["stopped" if n == stops else "finished" for n in range(2)]
    return ended(run(place, name, f"{name}.{n}", end, *joining(port, n), devices=2) for n, end in enumerate(ends))


def records(folder):
    return lines(folder, "episodes")


def trained_on(folder):
    return [one for one in records(folder) if one["kind"] == "train"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where two processes have made the run ``whole``."""
    folder = tmp_path_factory.mktemp("spoiled")
    save_model(folder / "model")  # of one layer: most of the time goes into compiling
    (folder / "config.py").write_text(CONFIG)
    (folder / "run.py").write_text(RUN)
    for process, _, errors in together(folder, "whole"):
        assert process.returncode == 0, errors
    return folder


def test_both_processes_replace_the_same_games_and_learn_the_same(place):
    first, second = ((place / f"whole.{n}").read_text().split() for n in range(2))
    assert first == second
    found = trained_on(place / "whole")
    marks = [one.get("teacher_error") for one in found]
    assert {"replayed", "replaced"} <= set(marks)
    assert len(found) == 2 * 4 * 3 + marks.count("replayed")
    spoiled = [one.get("abort_reason") is not None for one in found]
    assert spoiled == [mark is not None for mark in marks]


def test_two_processes_settle_like_one(place):
    ((process, _, errors),) = ended([run(place, "one", "one.0", "played", devices=4)])
    assert process.returncode == 0, errors
    names = ("game", "seed", "replies", "outcomes", "teacher_error", "replay", "trained", "reward")
    one, two = (
        [{name: record.get(name) for name in names} for record in trained_on(place / name) if record["iteration"] == 1]
        for name in ("one", "whole")
    )
    assert one == two
    assert len(one) > 4 * 3


def test_a_stop_of_one_while_games_are_played_again_resumes_bit_for_bit(place):
    for process, _, errors in together(place, "stopped", stops=1):
        assert process.returncode == 143, errors
    done = {one["iteration"] for one in trained_on(place / "stopped")}
    assert done == {1}
    for process, _, errors in together(place, "stopped"):
        assert process.returncode == 0, errors
    assert records(place / "stopped") == records(place / "whole")
    weights = [(place / name).read_text().split()[0] for name in ("stopped.0", "stopped.1", "whole.0")]
    assert len(set(weights)) == 1

"""clembench's own framework and dfc on each other's side: `make agreement-clembench`. Not collected by default.

Games of our own (tests/clembench_games) run under clemcore 3.7.2 with the bundled model: through the backend, in one
batch and one by one, and over the server; the answers must be the same. What we write as results goes through
``clem eval`` and ``clem transcribe``, and what they make of it is compared with what we say.

With CLEMBENCH_HOME, a clone of clembench, the real games that can be loaded there are played as well.
"""

import csv
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

# As conftest.py has it, which is not read here: most of the time would be compilation.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest
from dialogue_samples import taboo
from trajectory_rows import PROVENANCE, played

from dfc.evaluation.clemscore import clemscore
from dfc.launch import clembench
from dfc.records.trajectories import from_episode
from dfc.rows.dialogues import from_trajectory
from dfc.tools.clembench.read_results import read_results, read_scores
from dfc.tools.clembench.write_results import write_results

HOME = os.environ.get("CLEMBENCH_HOME")
GAMES = Path(__file__).resolve().parent / "clembench_games"
os.environ["CLEMBENCH_HOME"] = str(GAMES)
CLEM = Path(sys.executable).with_name("clem")
SHORT = ("--slots=4", "--max_length=512", "--decode_steps=8")
MODEL = "mine"


def clem(folder, *words):
    result = subprocess.run(  # noqa: S603 - clemcore's command and our own words
        [CLEM, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def events(folder):
    """What was said in every game, by the place of its file."""
    found = {}
    for path in sorted(folder.rglob("interactions.json")):
        turns = json.loads(path.read_text())["turns"]
        said = [[e["from"], e["to"], e["action"]["content"]] for turn in turns for e in turn]
        found[str(path.relative_to(folder).parent)] = said
    return found


def table(results):
    """What ``clem eval`` makes of results: model -> column -> number; without what it has none of."""
    clem(results.parent, "eval", "-r", results)
    with (results / "results.csv").open() as file:
        rows = [dict(row) for row in csv.DictReader(file)]
    return {row.pop(""): {name: float(value) for name, value in row.items() if value} for row in rows}


def expected(results):
    """The same of ours. A model that played nothing has a clemscore of 0 here, and none there."""
    found = {}
    for model, games in read_scores(results).items():
        total = clemscore(games)
        row = {"-, clemscore": None if total.quality is None else total.clemscore}
        row["all, Average % Played"] = total.played
        row["all, Average Quality Score"] = total.quality
        for game, score in games.items():
            row |= {f"{game}, % Played": score.played, f"{game}, Quality Score": score.quality}
        found[model] = {name: value for name, value in row.items() if value is not None}
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with the bundled model registered, and its greedy games of one batch."""
    found = tmp_path_factory.mktemp("clem")
    assert clembench.main(["register", "--policy=tiny_player", f"--name={MODEL}", f"--folder={found}", *SHORT]) == 0
    clem(found, "run", "-g", "number_hunt", "hidden_colour", "-m", MODEL, "-b", 32, "-l", 24, "-r", "batch")
    return found


def test_the_oracle_is_the_version_that_was_read():
    assert importlib.metadata.version("clemcore") == "3.7.2"


# ---- the backend ----------------------------------------------------------------------------------------------------


def test_clem_runs_scores_and_evaluates_a_policy(folder):
    clem(folder, "score", "-r", "batch")
    assert len(events(folder / "batch")) == 9
    found = table(folder / "batch")
    assert set(found) == {MODEL}
    assert found == expected(folder / "batch")
    for dialogue in read_results(folder / "batch").dialogues:
        assert (dialogue.player, dialogue.game) in {(MODEL, "number_hunt"), (MODEL, "hidden_colour")}


def test_one_by_one_the_answers_are_those_of_a_batch(folder):
    clem(folder, "run", "-g", "number_hunt", "hidden_colour", "-m", MODEL, "-b", 1, "-l", 24, "-r", "single")
    one, other = events(folder / "single"), events(folder / "batch")
    # Weather and the like come from the global generator, which nobody seeds: only what was told alike is compared.
    alike = [name for name in one if one[name][0] == other[name][0]]
    assert len(alike) >= 6
    assert [one[name] for name in alike] == [other[name] for name in alike]


def test_over_the_server_the_answers_are_the_same(folder):
    words = ["--policy=tiny_player", f"--name={MODEL}", "--port=0", *SHORT]
    server = subprocess.Popen(  # noqa: S603 - this interpreter and our own words
        [sys.executable, "-m", "dfc.launch.serve", *words], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    try:
        line = next(line for line in server.stdout if line.startswith("serving"))
        address = line.split(" at ")[1].split(";")[0]
        work = folder / "http"
        work.mkdir()
        (work / "key.json").write_text(json.dumps({"openai_compatible": {"api_key": "none", "base_url": address}}))
        entry = {"model_name": MODEL, "backend": "openai_compatible", "model_id": MODEL, "model_config": {}}
        (work / "model_registry.json").write_text(json.dumps([entry]))
        clem(work, "run", "-g", "number_hunt", "-m", MODEL, "-l", 24, "-r", "results")
    finally:
        server.terminate()
        server.wait(30)
    found = {name: said for name, said in events(folder / "batch").items() if "number_hunt" in name}
    assert events(work / "results") == found


@pytest.fixture(scope="module")
def model(folder):
    """The model as clemcore loads it, in this process."""
    before = Path.cwd()
    os.chdir(folder)  # where importing it opens its log
    try:
        from clemcore.backends import load_models

        (found,) = load_models([MODEL], {"temperature": 0.9, "max_tokens": 16})
    finally:
        os.chdir(before)
    return found


def asked(*texts):
    roles = ("user", "assistant")
    return [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]


def test_what_is_sampled_does_not_depend_on_the_batch_and_differs_each_time(model):
    dialogues = [asked("Nim. You are Player 0."), asked("Hello"), asked("a", "b", "c"), asked("Hello")]
    together = [response.text for response in model.generate_batch_response(dialogues)]
    model._asked.clear()
    apart = [model.generate_response(dialogue).text for dialogue in dialogues]
    assert together == apart
    raw = [response.raw["text"] for response in model.generate_batch_response([asked("Nim. You are Player 0.")] * 6)]
    assert len(set(raw)) > 1
    assert model.generate_batch_response([]) == []


def test_a_dialogue_without_room_is_answered_with_nothing_and_its_neighbours_are_answered(model):
    long, short = asked("col 3 " * 600), asked("Hello")
    model._asked.clear()
    first, second = model.generate_batch_response([long, short])
    assert (first.text, first.raw["error"]) == ("", "context_length_exceeded")
    model._asked.clear()
    assert second.text == model.generate_response(short).text
    assert model.generate_response(long).raw["tokens"] == 0


def test_messages_of_one_role_are_joined_and_images_are_refused(model):
    (prompt, _, _) = model.generate_response([*asked("a"), *asked("b")])
    assert prompt == asked("a\n\nb")
    with pytest.raises(ValueError, match=r"image.: not supported here"):
        model.generate_response([{"role": "user", "content": "a", "image": ["x.png"]}])


# ---- results --------------------------------------------------------------------------------------------------------


def test_clem_eval_and_transcribe_read_ours(tmp_path):
    rows = [taboo(1, (True,)), taboo(2, ("no", True)), taboo(3, ("a", "b", "c")), taboo(4, ("no", None))]
    rows += [taboo(5, ("no", True), cut_after=2)]
    rows += [
        from_episode(played(game, seed, rng_seed=seed), sample=0, provenance=PROVENANCE)
        for game in ("clem_wordle", "clem_privateshared", "clem_wordle_withcritic")
        for seed in range(3)
    ]
    results = tmp_path / "results"
    write_results(rows, results)
    assert table(results) == expected(results)
    clem(tmp_path, "transcribe", "-r", results)
    pages = sorted(results.rglob("transcript.html"))
    assert len(pages) == len(list(results.rglob("transcript.tex"))) == len(rows)
    texts = [page.read_text() for page in pages]
    for row in rows:
        assert any(row.replies[-1][1][:20].splitlines()[0] in text for text in texts)
    assert {one.key for one in read_results(results).dialogues} == {
        one.key for row in rows for one in from_trajectory(row)
    }


def test_clemcore_itself_lets_a_game_without_score_make_the_mean_better(tmp_path):
    """Why a missing score is an error here."""
    results = tmp_path / "results"
    write_results([taboo(1, (True,)), taboo(4, ("no", None))], results)
    assert table(results)["tiny_player"]["-, clemscore"] == 50.0
    next(results.rglob("instance_00004/scores.json")).unlink()
    assert table(results)["tiny_player"]["-, clemscore"] == 100.0
    with pytest.raises(ValueError, match="1 of 2 games are not complete"):
        read_scores(results)

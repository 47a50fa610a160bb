"""What observed configurations name: a model, collected games, rows, questions and dialogues, in one folder."""

import functools
import itertools
import json
import shutil
import tempfile
from pathlib import Path

from dialogue_samples import collection, lines, published, taboo
from offline_rows import pairs, sequences, write_pairs, write_sft
from stand_ins import BUNDLED
from trajectory_rows import PROVENANCE, row

from dfc.config import RolloutConfig
from dfc.games import registry, scripted
from dfc.records.trajectories import from_episode
from dfc.records.trajectory_files import TrajectoryWriter
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.sequential_match import play_episode

_HELD = tempfile.TemporaryDirectory(prefix="every_field_")  # until this process ends
PLACE = Path(_HELD.name)
SIMULATORS = {"twenty_questions": {"max_turns": 3}}
TASKS = {**SIMULATORS, "bandit": {"max_turns": 3}}


@functools.cache
def other_model():
    """The bundled model in another folder."""
    return str(shutil.copytree(BUNDLED, PLACE / "other"))


@functools.cache
def collected(name="collected", tasks=4):
    """A run of collect: of two games tasks that were solved and failed, and one where a reply could not be read."""
    with TrajectoryWriter(PLACE / name / "trajectories", PROVENANCE) as writer:
        for game in ("wordle", "mastermind"):
            for task in range(tasks):
                writer.write(row(game, task, 0, turns=2, tokens=20))
                writer.write(row(game, task, 1, turns=5, tokens=40))
                writer.write(row(game, task, 2, turns=6, tokens=200, success=False))
                writer.write(row(game, task, 4, turns=2, tokens=30))
            writer.write(row(game, tasks, 0, turns=2, tokens=20))
            writer.write(row(game, tasks, 1, turns=4, tokens=60, success=False, failure="malformed"))
    return str(PLACE / name)


@functools.cache
def recorded(name="recorded", tasks=3):
    """A run that collected games which can be played again, of both splits."""
    rollout, games = RolloutConfig(), {**TASKS, "wordle": {}}
    with TrajectoryWriter(PLACE / name / "trajectories", PROVENANCE) as writer:
        for game, task, split in itertools.product(games, range(tasks), ("train", "test")):
            if task >= registry.make(game, split=split).number_of_tasks:
                continue
            spec = EpisodeSpec(game, {**games[game], "split": split}, task, 0, task, task)
            episode = play_episode(spec, [scripted.player(game, "random_legal")], rollout)
            writer.write(from_episode(episode, sample=0, provenance=PROVENANCE))
    return str(PLACE / name)


@functools.cache
def rows(kind, seed=0):
    """Rows to train on."""
    write = {
        "sft": lambda path: write_sft(path, sequences(13, seed=seed)),
        "pairs": lambda path: write_pairs(path, pairs(13, seed=seed)),
    }
    folder = PLACE / f"rows_{kind}_{seed}"
    folder.mkdir()
    return str(write[kind](folder / f"{kind}.parquet"))


@functools.cache
def questions(first=0):
    """A file of questions, one of which takes more bytes than the others; and a program with its tests."""
    path = PLACE / f"questions_{first}.jsonl"
    rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(first, first + 4)]
    rows[1]["answer"] = "x" * 1100 + rows[1]["answer"]
    rows.append({"text": "Square.", "test_list": ["assert square(2) == 4"], "code": ""})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


@functools.cache
def instructions(sets=2):
    """A file of instructions with answers."""
    path = PLACE / f"instructions_{sets}.jsonl"
    rows = [{"instruction": f"Say {n}.", "output": f"{n}", "dataset": f"{n % sets}"} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


@functools.cache
def conversations(kind, sizes=(5, 9, 1100)):
    """The same as conversations of others, one of which takes more bytes than the others."""
    path = PLACE / f"conversations_{kind}_{len(sizes)}.jsonl"
    lines = []
    for size in sizes:
        asked, *said = (
            {"role": role, "content": text}
            for role, text in (("user", "x" * size), ("assistant", "[4]"), ("assistant", "[5]"))
        )
        pair = {"prompt": [asked], "chosen": said[:1], "rejected": said[1:]}
        lines.append(json.dumps(pair if kind == "pairs" else {"messages": [asked, said[0]]}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@functools.cache
def dialogues(tasks=8):
    """Places with dialogues: games of two players, won sooner or later, lost and aborted, and published ones.

    Some of the latter were asked aside, one is long, and one ends with a question.
    """
    ends = [(True,), ("no", True), ("a", "b", "c"), ("no", None)]
    for number, player in enumerate(("first", "second")):
        some = [taboo(task, ends[(task * (number + 1) + n) % 4]) for task in range(tasks) for n in range(3)]
        collection(PLACE / f"dialogues_{tasks}" / player, some, model=player)
    asked = ("rules", "Ok.", "ASIDE: a?", "ASIDE: no", "ASIDE: b?", "ASIDE: yes", "ME: where?")
    rows_ = [published(*asked, f"ANSWER: {n}", game="privateshared", task=n, model="third") for n in range(tasks)]
    for n in range(tasks):
        for m, end in enumerate(("success", "failure", "aborted")):
            asked = ("guess: a", "Please try again.") if m else ()  # one of the repairs takes it out
            rows_ += [published(f"rules {n}", *asked, f"guess: {m}", game="wordle", outcome=end, task=n, model=f"{m}")]
    rows_ += [published("rules", "x" * 1100), published("rules", "a", "who answers?")]
    file = lines(PLACE / f"dialogues_{tasks}.jsonl", *rows_)
    return (*(str(PLACE / f"dialogues_{tasks}" / player) for player in ("first", "second")), str(file))

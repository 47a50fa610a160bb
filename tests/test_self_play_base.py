"""The model that self-play starts from: what its roles are shown, when it is made again, and one made small."""

import collections
import dataclasses
import itertools
import json

import pytest
import recipe_runs
from recipe_runs import untimed

from dfc import validation
from dfc.config import BatchShape, CheckpointConfig, SelfPlayBase
from dfc.configs import lsp_base, lsp_study
from dfc.errors import RunFolderError
from dfc.methods.language_self_play import families, prompts, self_reward
from dfc.methods.language_self_play.families import FAMILIES
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.runs.checkpoint import Checkpointer
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.tools.small_models import build_tokenizer, transcripts
from dfc.tools.small_models import self_play_base as recipe
from dfc.tools.small_models.family_answers import Answered, answer, by_family
from dfc.tools.small_models.self_play_roles import (
    CHALLENGER,
    JUDGE,
    SOLVER,
    mistaken,
    skill_at,
    spelled,
    verdicts,
    wordings,
)

CONFIG = SelfPlayBase()
ROLES = recipe.transcripts(CONFIG, dict.fromkeys(CONFIG.families, 0.85))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer.build(wordings(CONFIG.challenger_prompt, CONFIG.judge_prompt), folder, size=512)
    return ChatTokenizer.load(folder)


@pytest.mark.parametrize(
    ("query", "answer", "expected"),
    [
        ("Sort the digits 402 from small to large.", "024", (1, 1, 1, 1, 1, 1, 1)),
        ("Sort the digits 402 from small to large.", "402", (1, 1, 1, 0, 0, 1, 0)),
        ("Sort the digits 402 from small to large.", "0245", (1, 1, 1, 1, 0, 0, 0)),
        ("Write the letters abc backwards.", "cbx", (1, 1, 1, 1, 0, 1, 0)),
        ("Write the letters abc backwards.", "7", (1, 1, 0, 0, 0, 0, 0)),
        ("Add up the digits 407.", "", (1, 1, 0, 0, 0, 0, 0)),
        ("Add up the digits 407", "11", (1, 0, 0, 0, 0, 0, 0)),  # not whole
        ("Tell me a story.", "11", (0, 0, 0, 0, 0, 0, 0)),
    ],
)
def test_programs_give_seven_points(query, answer, expected):
    assert verdicts(query, answer) == expected
    assert self_reward.read_marks(spelled(expected)) == sum(expected)


def test_the_challenger_is_shown_queries_of_every_family_and_difficulty_of_which_some_are_broken():
    queries = [ROLES.make(number, CHALLENGER).exchanges[0].reply for number in range(1000)]
    problems = [families.read(query) for query in queries]
    assert sum(problem is None for problem in problems) / 1000 == pytest.approx(CONFIG.broken, abs=0.02)
    cells = collections.Counter((p.family, p.difficulty) for p in problems if p is not None)
    assert set(cells) == set(itertools.product(CONFIG.families, families.LEVELS))
    assert queries == [ROLES.make(number, CHALLENGER).exchanges[0].reply for number in range(1000)]


def test_the_solver_follows_the_right_rule_as_often_as_the_difficulty_says(tokenizer):
    """Where both answers part, the distribution that is imitated is the skill, whichever was followed."""
    seen = 0
    for number in range(300):
        (exchange,) = ROLES.make(number, SOLVER).exchanges
        problem = families.read(exchange.observation)
        if problem is None or len(exchange.legal) == 1:
            continue
        wrong = mistaken(FAMILIES[problem.family], exchange.observation)
        assert set(exchange.legal) == {problem.truth, wrong}
        skill = skill_at(problem.difficulty, CONFIG.skill)
        assert exchange.share(problem.truth) == pytest.approx(skill)
        shares = transcripts.choices(exchange, tokenizer)
        parting = next(place for place, (a, b) in enumerate(itertools.zip_longest(problem.truth, wrong)) if a != b)
        assert sorted(shares[parting].values()) == pytest.approx(sorted((skill, 1 - skill)))
        seen += 1
    assert seen > 200


def test_while_rules_come_first_the_solver_follows_the_right_one_alone():
    early = recipe.transcripts(CONFIG, dict.fromkeys(CONFIG.families, 0.7), always_right=True)
    shares = set()
    for number in range(300):
        (exchange,) = early.make(number, SOLVER).exchanges
        problem = families.read(exchange.observation)
        if problem is not None and len(exchange.legal) == 2:
            assert exchange.reply == problem.truth
            shares.add((problem.difficulty, exchange.share(problem.truth)))
    assert shares == {(level, 1.0) for level in families.LEVELS}


def test_the_judge_is_shown_queries_without_an_end_and_too_hard_ones_which_earn_the_begun_point_alone():
    kinds = collections.Counter()
    for number in range(1000):
        (exchange,) = ROLES.make(number, JUDGE).exchanges
        query = exchange.observation.removeprefix("Rate: ").rpartition(" -> ")[0]
        whole = any(prompts.Template(FAMILIES[name].template).filled(query) for name in CONFIG.families)
        kind = "of a family" if families.read(query) else "too hard" if whole else "no end"
        kinds[kind] += 1
        if kind != "of a family":
            assert exchange.reply == spelled((1, 0, 0, 0, 0, 0, 0))
    assert kinds["too hard"] / 1000 == pytest.approx(0.1, abs=0.03)
    assert kinds["no end"] / 1000 == pytest.approx(0.1, abs=0.03)


def test_letters_and_digits_are_tokens_of_their_own_and_wordings_are_one(tokenizer):
    for number, role in itertools.product(range(60), (CHALLENGER, SOLVER, JUDGE)):
        (exchange,) = ROLES.make(number, role).exchanges
        texts = [tokenizer.decode([token]) for token in tokenizer.first_turn(exchange.observation)]
        assert max(len(text) for text in texts if text.isalnum() or not text.strip()) <= 1
        assert len(transcripts.encode(ROLES.make(number, role), tokenizer).token_ids) <= 57


def test_answers_are_counted_by_family_and_only_mixed_groups_are_live():
    answered = [
        Answered("add_digits", 1, greedy=True, right=8, sampled=8),
        Answered("add_digits", 2, greedy=False, right=3, sampled=8),
        Answered("sort_digits", 1, greedy=False, right=0, sampled=8),
    ]
    assert by_family(answered) == {"add_digits": (0.5, 0.5), "sort_digits": (0.0, 0.0)}
    with pytest.raises(ValueError, match=r"expected queries of families, got 'Tell me a story\.'"):
        answer(None, ["Add up the digits 407.", "Tell me a story."], longest=3)


def row(**changes):
    figures = {name: {"accuracy": 0.45, "live": 0.6} for name in CONFIG.families}
    for name, change in changes.items():
        figures[name] |= change
    return {"steps": 1000, "skills": dict.fromkeys(CONFIG.families, 0.85), "families": figures}


def test_a_model_that_meets_the_aim_is_kept_and_another_one_is_made_again_by_the_rule():
    assert recipe.missed(CONFIG, row()) == []
    skilled = row(add_digits={"accuracy": 0.7})
    (said,) = recipe.missed(CONFIG, skilled)
    assert said == "add_digits: greedy accuracy 70% is not within 30% to 60%"
    skills, steps = recipe.next_attempt(CONFIG, skilled)
    assert steps == 1000
    assert skills == {**dict.fromkeys(CONFIG.families, 0.85), "add_digits": pytest.approx(0.75)}
    for low in ({"accuracy": 0.2}, {"live": 0.4}):
        assert len(recipe.missed(CONFIG, row(sort_digits=low))) == 1
        assert recipe.next_attempt(CONFIG, row(sort_digits=low)) == (dict.fromkeys(CONFIG.families, 0.85), 1500)


@pytest.mark.usefixtures("optax_promotion")
def test_one_is_made_evaluated_and_made_again(tmp_path, capsys):
    config = SelfPlayBase(
        steps=2, transcripts_per_step=4, width=32, layers=1, feed_forward=32, vocabulary=512, attempts=2,
        batch=BatchShape(row_length=64, micro_batch_rows=2), evaluation_queries=8, evaluation_answers=2,
    )  # fmt: skip
    assert validation.problems(config) == []
    with RunFolder.open(tmp_path / "base", config, command="") as folder:
        recipe.run(config, folder, Stop())
    first, second = json.loads((tmp_path / "base" / "evaluation.json").read_text())
    assert (first["steps"], second["steps"]) == (2, 3)
    assert first["families"].keys() == set(CONFIG.families)
    assert first["readable"] <= 1
    assert "warning: the aim is missed" in capsys.readouterr().out
    assert ChatTokenizer.load(tmp_path / "base" / "policy").vocabulary < 512
    with RunFolder.open(tmp_path / "base", config, command="") as folder:
        recipe.run(config, folder, Stop())
    assert "the aim is missed" in capsys.readouterr().out
    assert len((tmp_path / "base" / "evaluations.jsonl").read_text().splitlines()) == 2


SMALL = SelfPlayBase(
    steps=2, transcripts_per_step=4, width=32, layers=1, feed_forward=32, vocabulary=512, attempts=2,
    batch=BatchShape(row_length=64, micro_batch_rows=2), evaluation_queries=8, evaluation_answers=2,
    families=("add_digits", "count_letter"), checkpoint=CheckpointConfig(every=1, keep=2),
)  # fmt: skip


class Killed(Exception):  # noqa: N818 - no error of ours
    """The process is gone."""


def made(path):
    return recipe_runs.run(path, SMALL, promotion="standard")  # as optax wants it


def left(path):
    """What a run leaves, without its clocks."""
    files = [(path / name).read_text() for name in ("evaluation.json", "evaluations.jsonl")]
    weights = (path / "policy" / "model.safetensors").read_bytes()
    return untimed(path), files, weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return made(tmp_path_factory.mktemp("whole") / "run")


def before(function):
    """Dies in the place of a call."""

    def dies(*_, **__):
        raise Killed

    del function
    return dies


def after(function):
    """Dies once a call has done its work."""

    def dies(*given, **more):
        function(*given, **more)
        raise Killed

    return dies


# Where a process dies, on which call of it.
KILLS = {
    "between two updates": (Checkpointer, "save", after, 1),
    "with the policy half written": (huggingface, "save", before, 1),
    "before the evaluation": (recipe, "evaluate", before, 1),
    "before the row": (recipe, "write_json", before, 1),
    "behind the row": (recipe, "write_json", after, 1),
    "in the second attempt, before its first checkpoint": (Checkpointer, "save", before, 3),
    "in the second attempt": (Checkpointer, "save", after, 4),
    "behind the last row": (recipe, "write_json", after, 2),
    "before the end": (RunFolder, "append", before, 3),
    "with evaluations on record, and no end": (RunFolder, "finish", before, 1),
}


@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_anywhere_leaves_what_a_whole_run_leaves(whole, tmp_path, monkeypatch, kill):
    place, name, how, number = KILLS[kill]
    function, calls = getattr(place, name), itertools.count(1)
    dies = how(function)

    def counted(*given, **more):
        return (dies if next(calls) == number else function)(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, counted)
        with pytest.raises(Killed):
            made(tmp_path / "run")
    assert left(made(tmp_path / "run")) == left(whole)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_checkpoints_of_an_attempt_that_is_over_are_read_by_nobody(whole, tmp_path, monkeypatch):
    """A kill in the middle of deleting them leaves half a folder behind, and the next attempt begins anew."""
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "write_json", after(recipe.write_json))
        with pytest.raises(Killed):
            made(path)
    (old,) = (path / "checkpoints").iterdir()
    assert old.name == "attempt_1"
    for file in old.glob("step_*/manifest.json"):
        file.unlink()
    assert left(made(path)) == left(whole)


def test_only_checkpoints_of_attempts_are_deleted(whole, tmp_path, monkeypatch):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "write_json", after(recipe.write_json))
        with pytest.raises(Killed):
            made(path)
    others = [path / "checkpoints" / name for name in (".nfs01", "attempt_3", "attempts/kept", "attempt_0/kept")]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_text("mine")
    assert left(made(path)) == left(whole)
    assert [other.read_text() for other in others] == ["mine"] * 4
    assert {one.name for one in (path / "checkpoints").iterdir()} == {
        ".nfs01", "attempt_0", "attempt_3", "attempts",
    }  # fmt: skip


def test_checkpoints_of_an_older_version_are_refused_and_stay(tmp_path):
    old = tmp_path / "run" / "checkpoints" / "step_000000001"
    with RunFolder.open(tmp_path / "run", SMALL, command="") as folder:
        old.mkdir(parents=True)
        (old / "state.json").write_text("{}")
        with pytest.raises(
            RunFolderError, match=r"step_000000001: a checkpoint of an older version .* another --workd"
        ):
            recipe.run(SMALL, folder, Stop())
    assert (old / "state.json").exists()
    assert not (tmp_path / "run" / "tokenizer").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"families": ("sums",)}, "families=('sums',): must be some of sort_digits"),
        ({"shares": (0.5, 0.5, 0.5)}, "sum is 1"),
        ({"skill": (0.5,)}, "skill=(0.5,): must be two numbers"),
        ({"accuracy_aim": (0.6, 0.3)}, "the lower one first"),
        ({"challenger_prompt": "Write."}, "challenger_prompt: has no {template}"),
        ({"judge_prompt": "{instruction}"}, "judge_prompt: must have {instruction} and {response}"),
        ({"max_answer_length": 600}, "max_answer_length=600: must be below batch.row_length=512"),
        ({"width": 48}, "width=48: must be a multiple of 32"),
    ],
)
def test_what_cannot_be_made_is_refused(change, said):
    (problem,) = validation.problems(dataclasses.replace(CONFIG, **change))
    assert said in problem


def test_the_study_asks_what_its_model_was_shown():
    base, study = lsp_base.get_config(), lsp_study.get_config()
    assert validation.problems(base) == validation.problems(study) == []
    assert tuple(study.tasks) == base.families
    assert (study.challenger.prompt, study.self_reward.prompt) == (base.challenger_prompt, base.judge_prompt)

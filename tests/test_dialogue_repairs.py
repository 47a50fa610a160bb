"""Published dialogues mended as the paper's appendix D.1 says; the rows are made up, in the published layout."""

import dataclasses
import json
import re

import pytest
import recipe_runs
from dialogue_samples import collection, dialogue, lines, published, taboo, talk

from dfc import validation
from dfc.config import BuildDialogues, DialogueRowsConfig
from dfc.config.dialogues import REPAIRS
from dfc.records.trajectory_files import DatasetError
from dfc.rows.dialogue_repairs import is_published, repaired
from dfc.rows.dialogues import read_dialogues
from dfc.tools.clembench.rows import write_rows

OLD = "Three grids. Here is an example with grids. Expression: Filled as T. Now these grids: ..."
NEW = "Three grids. Describe the target grid."
NEXT = "What is your next instruction?"
AGAIN = "Your guess is not a valid word for this game. Please try again."
FORM = "Provide your response only in this format.\nexplanation: details\nguess: word"


def read(tmp_path, *rows):
    return read_dialogues(lines(tmp_path / "rows.jsonl", *rows)).dialogues


def mend(tmp_path, row, repairs=REPAIRS):
    (one,) = read(tmp_path, row)
    return repaired(one, repairs)


# ---- the image game -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Instruction: Put a B in row 2\nwhat is your next instruction", "Instruction: Put a B in row 2"),
        ("Instruction: Fill row 1\n\nWhat is your next instruction?\nInstruction: DONE", "Instruction: Fill row 1"),
        ("instruction: İ\n WHAT  IS your next\ninstruction?", "instruction: İ"),
        ("Instruction: DONE", "Instruction: DONE"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_a_giver_of_instructions_does_not_ask_for_the_next_one(tmp_path, said, left, outcome):
    row = published("rules", said, NEXT, said, NEXT, "Instruction: DONE", game="imagegame", outcome=outcome)
    found = mend(tmp_path, row)
    # What the game itself asks stays.
    assert found.dialogue.messages == talk("rules", left, NEXT, left, NEXT, "Instruction: DONE")
    assert found.counts == {"replies_cut": 2 * (said != left)}
    assert mend(tmp_path, row, ()).dialogue.messages == talk("rules", said, NEXT, said, NEXT, "Instruction: DONE")


def test_the_reply_that_aborted_an_image_game_stays_as_it_is(tmp_path):
    said = f"Instruction: Fill row 1\n{NEXT}"
    found = mend(tmp_path, published("rules", said, NEXT, said, game="imagegame", outcome="aborted"))
    assert found.dialogue.messages == talk("rules", "Instruction: Fill row 1", NEXT, said)
    assert found.counts == {"replies_cut": 1}


def test_who_draws_is_not_cut(tmp_path):
    said = f"A ▢ ▢\n{NEXT}"
    row = published("Instruction: Fill row 1", said, game="imagegame", role="InstructionFollower")
    assert mend(tmp_path, row).dialogue.messages == talk("Instruction: Fill row 1", said)


# ---- the Wordles ----------------------------------------------------------------------------------------------------

WORDLES = ("wordle", "wordle_withclue", "wordle_withcritic")


@pytest.mark.parametrize("game", WORDLES)
@pytest.mark.parametrize("outcome", ["success", "failure", "aborted"])
@pytest.mark.parametrize("place", range(4))
def test_wordles_with_an_invalid_format_are_left_out(tmp_path, game, outcome, place):
    texts = ["rules", "guess: crane", "guess_feedback: ...", "guess: slate"]
    texts[place] += "\nexplanation: INVALID_FORMAT"
    row = published(*texts, game=game, outcome=outcome)
    assert mend(tmp_path, row) == (None, {"rows_invalid_format": 1})
    others = [name for name in REPAIRS if name != "wordle_format"]
    assert mend(tmp_path, row, others).dialogue.messages == talk(*texts)


@pytest.mark.parametrize("game", WORDLES)
@pytest.mark.parametrize(
    "again",
    [
        AGAIN,
        "The guess should have exactly 5 letters. Please try again.",
        f"{AGAIN}\n\n{FORM}",
        "Provide your response only in this format:\nagreement: yes or no\nexplanation: details\nPlease try again",
    ],
)
def test_replies_that_were_asked_again_go_with_the_question(tmp_path, game, again):
    texts = (
        "rules",
        "guess: xyzzy",
        again,
        "guess: plugh",
        again,
        "guess: crane",
        "guess_feedback: ...",
        "guess: slate",
    )
    found = mend(tmp_path, published(*texts, game=game))
    assert found.dialogue.messages == talk("rules", "guess: crane", "guess_feedback: ...", "guess: slate")
    assert found.counts == {"replies_asked_again": 2}
    others = [name for name in REPAIRS if name != "wordle_asked_again"]
    assert mend(tmp_path, published(*texts, game=game), others).dialogue.messages == talk(*texts)


def test_the_reply_that_aborted_a_wordle_stays(tmp_path):
    row = published("rules", "guess: xyzzy", AGAIN, "guess: plugh", game="wordle", outcome="aborted")
    assert mend(tmp_path, row).dialogue.messages == talk("rules", "guess: plugh")


def test_a_critic_who_says_please_try_again_asks_nothing_again(tmp_path):
    critic = "clue: snow\nguess_agreement: no\nagreement_explanation: It does not fit, please try again."
    texts = ("rules; a word that is not in the list: please try again", "guess: crane", critic, "guess: slate")
    texts += (f"guess_feedback: ...\n{FORM}", "guess: white")
    found = mend(tmp_path, published(*texts, game="wordle_withcritic"))
    assert (found.dialogue.messages, found.counts) == (talk(*texts), {"replies_asked_again": 0})


# ---- the reference game, and all others -----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["success", "failure", "aborted"])
def test_reference_games_with_examples_are_of_old_versions_and_left_out(tmp_path, outcome):
    old = published(OLD, "Expression: Filled as T.", game="referencegame", outcome=outcome)
    new = published(NEW, "Expression: Here is an example.", game="referencegame", outcome=outcome)
    assert mend(tmp_path, old) == (None, {"rows_with_examples": 1})
    assert mend(tmp_path, new).dialogue.messages == talk(NEW, "Expression: Here is an example.")
    others = [name for name in REPAIRS if name != "referencegame_examples"]
    assert mend(tmp_path, old, others).dialogue.messages == talk(OLD, "Expression: Filled as T.")


def test_other_games_are_not_mended(tmp_path):
    texts = (OLD, f"Instruction: a {NEXT}", AGAIN, "INVALID_FORMAT")
    for game in ("taboo", "privateshared", "dond", "codenames"):
        found = mend(tmp_path, published(*texts, game=game))
        assert (found.dialogue.messages, dict(found.counts)) == (talk(*texts), {})


def test_games_of_here_are_not_mended_and_those_read_from_clembench_are(tmp_path):
    """Rows of `dfc.tools.clembench` are of either; the games here ask again too, as their rules have it."""
    texts = ("rules", "guess: xyzzy", AGAIN, "guess: crane")
    ours = dialogue(*texts, game="clem_wordle", instance='{"split":"train","task":2}')
    theirs = dialogue(*texts, game="clem_wordle", instance='{"experiment":"0_high","task_id":"2"}')
    write_rows(tmp_path / "own.jsonl", [ours, theirs])
    own, other = read_dialogues(tmp_path / "own.jsonl").dialogues
    assert [is_published(one) for one in (own, other)] == [False, True]
    assert repaired(own, REPAIRS) == (ours, {})
    assert repaired(other, REPAIRS).dialogue.messages == talk("rules", "guess: crane")
    collection(tmp_path / "run", [taboo(2, ("no", True))])
    assert not any(is_published(one) for one in read_dialogues(tmp_path / "run").dialogues)


def test_what_does_not_have_to_be_mended_comes_back_equal(tmp_path):
    for game in ("imagegame", "referencegame", *WORDLES):
        (one,) = read(tmp_path, published("rules", "Instruction: a", "more", "guess: b", game=game))
        assert repaired(one, REPAIRS).dialogue == one


# ---- as the recipe does it ------------------------------------------------------------------------------------------


def rows():
    """Every kind of fault once, each beside a dialogue that has none."""
    for task in range(4):
        common = {"task": task, "game": "wordle"}
        yield published(f"rules {task}", "guess: xyzzy", AGAIN, "guess: crane", **common)
        yield published(f"rules {task}", "guess: slate", outcome="failure", model="other", **common)
        yield published(f"rules {task}", "guess: INVALID_FORMAT", model="third", **common)
        said = f"Instruction: Fill row {task}\n{NEXT}"
        yield published("rules", said, NEXT, said, game="imagegame", task=task)
        yield published(f"{OLD} {task}", "Expression: T", game="referencegame", task=task)


def build(path, source, **settings):
    fixed = {"held_out": 0.0, "balance": False, "wanted": ("sft", "pairs_turn")}
    config = BuildDialogues(name="b", sources=(str(source),), **fixed, **settings)
    assert validation.problems(config) == []
    recipe_runs.run(path, config)
    groups = {one["game"]: one for one in json.loads((path / "data" / "statistics.json").read_text())["groups"]}
    return groups, (path / "data" / "sft.jsonl").read_text(), (path / "tables.md").read_text()


def test_the_recipe_mends_published_rows_by_default_and_counts_what_it_did(tmp_path):
    source = lines(tmp_path / "rows.jsonl", *rows())
    groups, sft, tables = build(tmp_path / "run", source)
    wordle, image, reference = (groups[f"clem_{name}"] for name in ("wordle", "imagegame", "referencegame"))
    assert (wordle["replies_asked_again"], wordle["rows_invalid_format"], wordle["dialogues"]) == (4, 4, 8)
    assert (image["replies_cut"], image["dialogues"]) == (8, 4)
    assert (reference["rows_with_examples"], reference["dialogues"]) == (4, 0)
    assert wordle["pairs_turn"] == 4  # the mended first reply beside the lost dialogue's
    for wrong in ("try again", "xyzzy", "INVALID_FORMAT", "Filled as T", "row 1\\n"):
        assert wrong not in sft
    title, _, table = tables.partition("Published dialogues, repaired")
    assert title
    shown = [line for line in table.split("\n") if line.startswith("| ")]
    assert shown[0].startswith("| game | replies cut short | replies asked again, out | with INVALID_FORMAT, out |")
    assert "| clem_wordle | 0 | 4 | 4 | 0 |" in shown
    assert "| total | 8 | 4 | 4 | 4 |" in shown


def test_published_rows_are_taken_as_they_are_without_repairs(tmp_path):
    source = lines(tmp_path / "rows.jsonl", *rows())
    groups, sft, tables = build(tmp_path / "run", source, repairs=())
    assert {game: one["dialogues"] for game, one in groups.items()} == {
        "clem_imagegame": 4, "clem_referencegame": 4, "clem_wordle": 12
    }  # fmt: skip
    assert all(word in sft for word in ("try again", "INVALID_FORMAT", "Filled as T"))
    assert "mended" not in tables
    assert DialogueRowsConfig().repairs == REPAIRS


def test_rows_that_are_all_left_out_are_told(tmp_path):
    old = [row for row in rows() if row["meta"]["game"] == "referencegame"]
    source = lines(tmp_path / "rows.jsonl", *old)
    said = r"no dialogue remains \(repairs left out 4 published ones; repairs=\(\) takes them as they are\)"
    with pytest.raises(DatasetError, match=said):
        build(tmp_path / "run", source)
    with pytest.raises(DatasetError, match=r"no dialogue of clem_referencegame, there are none \(repairs left out 4"):
        build(tmp_path / "more", source, game_groups=("clem_referencegame",))


def test_a_repair_is_named_once():
    (problem,) = validation.problems(dataclasses.replace(BuildDialogues(), repairs=("wordle_format",) * 2))
    assert re.search(r"repairs=.*must be some of imagegame_replies, wordle_format, .*each once", problem)

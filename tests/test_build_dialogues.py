"""Rows from dialogues as a recipe: which files, in which layout, from which places, and what is refused."""

import json
import re

import pytest
import recipe_runs
from dialogue_samples import collection, lines, published, taboo
from trajectory_rows import played, trajectory

from dfc import validation
from dfc.config import BuildDialogues
from dfc.records.trajectory_files import DatasetError
from dfc.rows import conversations, training_rows

FILES = [f"{kind}{end}.jsonl" for kind in ("pairs_dialogue", "pairs_turn", "sft") for end in ("", "_held_out")]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A run of collect, a folder of trajectories of another player, and a file of published rows."""
    place = tmp_path_factory.mktemp("sources")
    games = [(True,), ("no", True), ("no", "never", "nothing")]
    (place / "run").mkdir()
    collection(place / "run" / "trajectories", [taboo(task, games[task % 3]) for task in range(12)])
    (place / "run" / "config.json").write_text("{}")
    (place / "run" / "finished.json").write_text("{}")
    collection(place / "other", [taboo(task, games[(task + 1) % 3]) for task in range(12)], model="other", seed=8)
    file = lines(
        place / "published.jsonl",
        *(published(f"rules {n}", f"GUESS: {n % 2}{m}", outcome=("success", "failure")[m], task=n)
          for n in range(12) for m in range(2)),
    )  # fmt: skip
    return tuple(map(str, (place / "run", place / "other", file)))


def run(path, sources, **settings):
    config = BuildDialogues(name="b", sources=sources, **{"held_out": 0.25, **settings})
    assert validation.problems(config) == validation.path_problems(config) == []
    return recipe_runs.run(path, config) / "data"


def test_every_kind_is_written_with_statistics_and_tables(tmp_path, sources, capsys):
    data = run(tmp_path / "run", sources)
    assert sorted(file.name for file in data.iterdir()) == sorted([*FILES, "statistics.json"])
    statistics = json.loads((data / "statistics.json").read_text())
    (group,) = statistics["groups"]
    for file in FILES:
        read = conversations.read_conversations if file.startswith("sft") else conversations.read_pairs
        assert len(read(data / file)) == group[file.removesuffix(".jsonl")] > 0
    assert (group["game"], group["dialogues"], group["players"]) == ("clem_taboo", 2 * 24 + 24, 3)
    assert statistics["players"] == ["other", "tiny_player", "gpt"]
    assert (statistics["settings"]["held_out"], statistics["settings"]["groups"]) == (0.25, [])
    tables = (tmp_path / "run" / "tables.md").read_text()
    counts = [group[name] for name in ("chosen", "chosen_held_out", "sft", "sft_held_out")]
    assert f"| clem_taboo | {' | '.join(map(str, counts))} |" in tables
    names = (
        "pairs_dialogue",
        "pairs_dialogue_held_out",
        "pairs_turn",
        "pairs_turn_held_out",
        "without_negative",
        "too_long",
    )
    assert f"| total | {' | '.join(str(group[name]) for name in names)} |" in tables
    assert "first: other, tiny_player, gpt." in tables
    assert "turn pairs held out | won without a worse one | rows and pairs too long |" in tables
    assert tables in capsys.readouterr().out
    assert (tmp_path / "run" / "finished.json").exists()


def first(data, file):
    return json.loads((data / file).read_text().split("\n")[0])


def test_rows_have_the_layouts_that_trl_reads(tmp_path, sources):
    data = run(tmp_path / "last", sources)
    row = first(data, "sft.jsonl")
    assert set(row) == {"prompt", "completion", "meta"}
    assert [message["role"] for message in row["completion"]] == ["assistant"]
    for file in ("pairs_dialogue.jsonl", "pairs_turn.jsonl"):
        assert set(first(data, file)) == {"prompt", "chosen", "rejected", "meta"}
    assert len(first(data, "pairs_turn.jsonl")["chosen"]) == 1
    every = run(tmp_path / "all", sources, replies="all", rows="dialogues", wanted=("sft",), held_out=0.0)
    assert set(first(every, "sft.jsonl")) == {"messages", "meta"}
    assert sorted(file.name for file in every.iterdir()) == ["sft.jsonl", "statistics.json"]


def test_the_order_of_sources_does_not_matter_and_the_seed_does(tmp_path, sources):
    one = run(tmp_path / "1", sources)
    other = run(tmp_path / "2", (*reversed(sources), sources[0] + "/trajectories"))  # one of them twice
    changed = run(tmp_path / "3", sources, seed=1)
    for file in FILES:
        assert (one / file).read_bytes() == (other / file).read_bytes()
        assert (one / file).read_bytes() != (changed / file).read_bytes()


def test_a_run_is_found_by_its_name_as_what_offline_training_reads(tmp_path, sources):
    data = run(tmp_path / "run", sources)
    assert (
        training_rows.find(tmp_path / "run", pairs=False) == data / "sft.jsonl" == training_rows.find(data, pairs=False)
    )
    with pytest.raises(DatasetError, match=r"holds pairs_dialogue\.jsonl and pairs_turn\.jsonl; name one of the files"):
        training_rows.find(tmp_path / "run", pairs=True)
    only = run(tmp_path / "turn", sources, wanted=("pairs_turn",))
    assert training_rows.find(tmp_path / "turn", pairs=True) == only / "pairs_turn.jsonl"


def test_a_finished_run_is_shown_and_not_built_again(tmp_path, sources, capsys):
    data = run(tmp_path / "run", sources)
    (data / "sft.jsonl").unlink()
    capsys.readouterr()
    run(tmp_path / "run", sources)
    assert "holds this run, finished" in capsys.readouterr().out
    assert not (data / "sft.jsonl").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"held_out": 0.01},
            r"held_out=0\.01 leaves sft no row to hold out .*clem_taboo 0 of 24 instances.*; raise it",
        ),
        ({"held_out": 0.99}, r"held_out=0\.99 leaves sft no row to train on .*24 of 24.*; lower it, set it to 0, or"),
        (
            {"max_characters": 5},
            r"sft has no row \(clem_taboo: .* won, .* rows too long\); collect more, raise players",
        ),
        (
            {"game_groups": ("clem_taboo", "clem_wordle")},
            "no dialogue of clem_wordle, there are clem_taboo; collect the game",
        ),
        ({"leave_out": ("clem_taboo",)}, "no dialogue remains; leave out fewer games"),
        (
            {"pairs_without": ("clem_taboo",)},
            "pairs_dialogue has no row .*take it out of wanted; pairs_turn .* or set turn_rejected=lower_quality",
        ),
    ],
)
def test_what_leaves_a_file_without_a_row_is_refused_and_nothing_is_written(tmp_path, sources, settings, message):
    with pytest.raises(DatasetError, match=message):
        run(tmp_path / "run", sources, **settings)
    assert not (tmp_path / "run" / "data").exists()
    assert not (tmp_path / "run" / "finished.json").exists()


def test_games_for_evaluation_only_make_no_rows(tmp_path, sources):
    episode = trajectory(played("clem_textmapworld", 0))
    measured = str(collection(tmp_path / "m", [episode]))
    with pytest.raises(
        DatasetError, match=r"dialogues of clem_textmapworld, which is for .*leave_out=clem_textmapworld"
    ):
        run(tmp_path / "run", (*sources, measured))
    assert run(tmp_path / "run", (*sources, measured), leave_out=("clem_textmapworld",))
    row = published("a", "b", game="codenames")
    with pytest.raises(DatasetError, match="dialogues of clem_codenames, which is for evaluation only"):
        run(tmp_path / "more", (*sources, str(lines(tmp_path / "a.jsonl", row))))


def test_a_run_that_has_not_collected_everything_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    collection(tmp_path / "open" / "trajectories", [taboo(0, (True,)), taboo(1, (True,))])
    (tmp_path / "open" / "config.json").write_text("{}")
    with pytest.raises(DatasetError, match="open: is not finished, 2 trajectories are there; start its command again"):
        run(tmp_path / "run", (str(tmp_path / "open"),))


def test_published_rows_are_bounded_and_may_be_cut(tmp_path, sources):
    path = str(lines(tmp_path / "a.jsonl", published("a", "b", "c" * 2000)))
    with pytest.raises(DatasetError, match=r"row 0 .*ends with a user message"):
        run(tmp_path / "run", (*sources, path))
    assert run(tmp_path / "run", (*sources, path), cut_unanswered=True)
    with pytest.raises(DatasetError, match=r"row 0 .*takes more than 1500 bytes"):
        run(tmp_path / "more", (*sources, path), cut_unanswered=True, max_row_bytes=1500)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"wanted": ()}, r"wanted=\(\): must be some of sft, pairs_dialogue, pairs_turn, each once"),
        ({"wanted": ("sft", "sft")}, "each once"),
        ({"game_groups": ("a", "b"), "leave_out": ("b",)}, "game_groups and leave_out both name b"),
        ({"game_groups": ("clem_codenames",)}, r"game_groups=.*clem_codenames is for evaluation only"),
        ({"threshold": 100.0}, "threshold=100.0: must be at least 0 and below 100"),
        ({"held_out": 1.0}, "held_out=1.0: must be at least 0 and below 1"),
    ],
)
def test_settings_that_contradict_each_other_are_reported(settings, problem):
    (found,) = validation.problems(BuildDialogues(**settings))
    assert re.search(problem, found)


def test_sources_that_are_not_there_are_reported(tmp_path):
    assert validation.path_problems(BuildDialogues())[0].startswith("sources is empty; name a run that collected")
    found = validation.path_problems(BuildDialogues(sources=(str(tmp_path), str(tmp_path / "x"))))
    assert len(found) == 1
    assert f"sources: '{tmp_path / 'x'}': there is no such place" in found[0]

"""Results in clembench's layout and rows of its published interactions: written, read back, and what is refused."""

import dataclasses
import json
import math

import pytest
from dialogue_samples import collection, dialogue, drawn, taboo
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dialogues import of_game
from trajectory_rows import PROVENANCE, played

from dfc.evaluation.clemscore import game_score
from dfc.launch import clembench
from dfc.records.trajectories import from_episode
from dfc.records.trajectory_files import DatasetError
from dfc.rows.conversations import read_conversations
from dfc.rows.dialogues import Aside, from_conversation, from_trajectory, read_dialogues
from dfc.tools.clembench.read_results import read_results, read_scores
from dfc.tools.clembench.rows import to_conversation, write_rows
from dfc.tools.clembench.write_results import trajectories_in, write_results

GAMES = ("clem_taboo", "clem_wordle", "clem_wordle_withcritic", "clem_privateshared", "wordle")


def games(seeds=range(3), **options):
    return [of_game(game_id, seed, **options)[0] for game_id in GAMES for seed in seeds]


def of(rows):
    return [one for row in rows for one in from_trajectory(row)]


def in_order(dialogues):
    return sorted(dialogues, key=lambda one: one.key)


def file(folder, name="interactions.json"):
    (path,) = folder.rglob(name)
    return path


def changed(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# ---- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opponent", ["itself", "strong"])
def test_written_games_are_read_back_as_the_same_dialogues(tmp_path, opponent):
    rows = games(opponent=opponent)
    assert write_results(rows, tmp_path) == len(rows)
    assert in_order(read_results(tmp_path).dialogues) == in_order(of(rows))
    assert {one.outcome for one in of(rows)} == {"failure"}  # those of the next test end in the other ways


def test_ends_of_every_kind_are_read_back(tmp_path):
    rows = [taboo(1, (True,)), taboo(2, ("no", True)), taboo(3, ("a", "b", "c")), taboo(4, ("no", None))]
    rows += [from_episode(played("clem_taboo", 5, ["no clue"]), sample=0, provenance=PROVENANCE)]
    write_results(rows, tmp_path)
    found = read_results(tmp_path).dialogues
    assert in_order(found) == in_order(of(rows))
    assert {(one.outcome, one.quality, one.to_blame) for one in found} == {
        ("success", 100.0, True),
        ("success", 50.0, True),
        ("failure", 0.0, True),
        ("aborted", None, True),
        ("aborted", None, False),
    }


def test_the_score_is_that_of_the_games_and_a_stopped_game_was_not_played(tmp_path):
    rows = [taboo(1, (True,)), taboo(2, ("no", True)), taboo(4, ("no", None)), taboo(5, ("no", True), cut_after=2)]
    write_results(rows, tmp_path)
    assert read_scores(tmp_path) == {"tiny_player": {"clem_taboo": game_score([100.0, 50.0, None, None])}}
    assert read_results(tmp_path).unfinished == {"clem_taboo": 1}


def test_the_files_are_those_of_the_layout(tmp_path):
    row = taboo(2, ("no", None), opponent="strong")
    write_results([row], tmp_path)
    path = file(tmp_path)
    assert path.parts[-5:-1] == ("tiny_player--strong", "clem_taboo", path.parts[-3], "instance_00002")
    data = json.loads(path.read_text())
    assert data["meta"]["game_id"] == 2
    assert data["meta"]["round_count"] == len(data["turns"]) == 2
    assert data["players"]["Player 2"] == {"game_role": "guesser", "model_name": "strong"}
    assert [event["from"] for event in data["turns"][0]] == ["GM", "Player 1", "GM", "Player 2"]
    assert [event["to"] for event in data["turns"][0]] == ["Player 1", "GM", "Player 2", "GM"]
    last = [event["action"]["type"] for event in data["turns"][1]]
    assert last == ["send message", "get message", "send message", "get message", "invalid reply", "end"]
    assert (data["Request Count"], data["Violated Request Count"]) == ([2, 2], [0, 1])
    assert (data["Aborted"], data["Lose"], data["Success"]) == (1, 0, 0)
    scores = json.loads(file(tmp_path, "scores.json").read_text())
    assert math.isnan(scores["episode scores"].pop("Main Score"))
    assert scores["episode scores"]["Request Success Ratio"] == 0.75
    assert "Played" not in scores["episode scores"]
    assert json.loads(file(tmp_path, "instance.json").read_text())["game_id"] == 2
    assert json.loads(file(tmp_path, "experiment.json").read_text())["game_name"] == "clem_taboo"


def test_asides_are_forgotten_and_belong_to_the_round_they_are_asked_in(tmp_path):
    (row, _) = of_game("clem_privateshared", 3)
    write_results([row], tmp_path)
    turns = json.loads(file(tmp_path).read_text())["turns"]
    labels = [event["action"].get("label") for turn in turns for event in turn]
    assert len(turns) == from_trajectory(row)[0].replies
    assert {turn[0]["action"]["label"] for turn in turns[1:]} == {"context"}  # of rounds after the first
    assert labels.count("forget") == 2 * sum(len(one.asides) for one in from_trajectory(row))


def test_writing_the_same_games_again_changes_nothing_and_others_are_refused(tmp_path):
    write_results([taboo(1, (True,))], tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    write_results([taboo(1, (True,))], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before
    with pytest.raises(DatasetError, match="another game is there already"):
        write_results([taboo(1, ("no", True))], tmp_path)
    write_results([taboo(1, ("no", True), sample=3)], tmp_path)  # another try at the task has a place of its own
    assert len(read_results(tmp_path).dialogues) == 4


@pytest.mark.parametrize("name", ["instance.json", "interactions.json", "scores.json", "experiment.json"])
def test_no_file_of_another_game_is_replaced(tmp_path, name):
    write_results([taboo(1, (True,))], tmp_path)
    changed(file(tmp_path, name), lambda data: data.update(other=1))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    with pytest.raises(DatasetError, match=rf"{name}: another game is there already; write to a folder of its own"):
        write_results([taboo(1, (True,))], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


def test_a_game_that_was_half_written_is_completed(tmp_path):
    write_results([taboo(1, (True,))], tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    file(tmp_path, "scores.json").unlink()
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    write_results([taboo(1, (True,))], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_players_against_each_other_have_no_place_in_the_layout(tmp_path):
    episode = played("TicTacToe-v0", 0, [f"[{cell}]" for cell in ("0", "3", "1", "4", "2")])
    with pytest.raises(ValueError, match="TicTacToe-v0: its players play against each other"):
        write_results([from_episode(episode, sample=0, provenance=PROVENANCE)], tmp_path)
    with pytest.raises(DatasetError, match="no game to write"):
        write_results([], tmp_path)


def test_no_name_leads_out_of_the_folder(tmp_path):
    row = taboo(1, (True,))
    wild = dataclasses.replace(row.provenance, model="../../up")
    write_results([dataclasses.replace(row, provenance=wild)], tmp_path / "results")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert {one.player for one in read_results(tmp_path).dialogues} == {"../../up"}


@pytest.mark.parametrize("name", ["scores.json", "interactions.json"])
def test_a_game_without_score_or_record_is_an_error_and_no_better_mean(tmp_path, name):
    write_results([taboo(1, (True,)), taboo(2, ("no", True))], tmp_path)
    next(tmp_path.rglob(f"instance_00002/{name}")).unlink()
    for read in (read_results, read_scores):
        with pytest.raises(
            DatasetError, match=f"1 of 2 games are not complete .*instance_00002 has no {name}.*clem sc"
        ):
            read(tmp_path)


def test_a_folder_without_games_is_named(tmp_path):
    with pytest.raises(DatasetError, match="no game of clembench's results"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("scores.json", lambda data: data.pop("episode scores"), "it has no 'episode scores'"),
        ("scores.json", lambda data: data["episode scores"].pop("Aborted"), "Aborted and Success must be 0 or 1"),
        ("scores.json", lambda data: data["episode scores"].update(Aborted=2), "Aborted and Success must be 0 or 1"),
        ("scores.json", lambda data: data["episode scores"].pop("Main Score"), "the Main Score .*got 'None'"),
        ("scores.json", lambda data: data["episode scores"].update({"Main Score": 101}), "from 0 to 100, got '101'"),
        (
            "scores.json",
            lambda data: data["episode scores"].update({"Main Score": 10**400}),
            "from 0 to 100, got '1000",
        ),
        ("scores.json", lambda data: data["episode scores"].update({"Main Score": math.nan}), "got 'nan'"),
        ("interactions.json", lambda data: data.pop("turns"), "turns must be a list, got 'None'"),
        ("interactions.json", lambda data: data.update(turns=[3]), "a turn must be a list, got '3'"),
        ("interactions.json", lambda data: data["turns"][0].append({"from": "GM"}), "an event must have from, to"),
        ("interactions.json", lambda data: data.update(players=[]), "players must be an object"),
        ("interactions.json", lambda data: data["players"].update({"Player 1": 3}), "player 'Player 1' must be an"),
        ("interactions.json", lambda data: data["meta"].pop("game_id"), "task_id of meta must be a text or a whole"),
        ("interactions.json", lambda data: data["players"]["Player 1"].pop("model_name"), "model of meta must be"),
        ("interactions.json", lambda data: data.update(dfc=[]), "dfc must be an object"),
    ],
)
def test_a_file_that_is_none_of_the_layout_is_named(tmp_path, name, change, message):
    write_results([taboo(1, (True,))], tmp_path)
    changed(file(tmp_path, name), change)
    with pytest.raises(DatasetError, match=rf"{name}: .*{message}"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "no JSON"), ("[" * 10**5, "no JSON"), ("3", "a JSON object, got int")]
)
def test_damaged_and_large_files_are_named(tmp_path, monkeypatch, text, message):
    write_results([taboo(1, (True,))], tmp_path)
    file(tmp_path).write_text(text)
    with pytest.raises(DatasetError, match=rf"interactions\.json: .*{message}"):
        read_results(tmp_path)
    monkeypatch.setattr("dfc.tools.clembench.read_results.MAX_BYTES", 0)
    with pytest.raises(DatasetError, match="more than 0 bytes"):
        read_results(tmp_path)


def told(to, text, label="context"):
    action = {"type": "send message", "content": text, "label": label}
    return {"from": "GM", "to": to, "timestamp": "t", "action": action}


def said(by, text, label="response"):
    action = {"type": "get message", "content": text, "label": label}
    return {"from": by, "to": "GM", "timestamp": "t", "action": action}


def alone(folder, *events, model="gpt"):
    """A game of the original with one player."""
    place = folder / "gpt" / "quiz" / "easy" / "instance_00007"
    place.mkdir(parents=True)
    players = {"GM": {"model_name": "programmatic"}, "Player 1": {"game_role": "Guesser", "model_name": model}}
    meta = {"game_name": "quiz", "experiment_name": "easy", "game_id": 7}
    (place / "interactions.json").write_text(json.dumps({"meta": meta, "players": players, "turns": [list(events)]}))
    (place / "scores.json").write_text('{"episode scores": {"Aborted": 0, "Success": 1, "Main Score": 50}}')
    return place


def test_results_of_the_original_are_dialogues_under_the_names_of_here(tmp_path):
    """As ``clem run`` writes them: a program among the players, notes of any kind, an opening that nobody answered."""

    note = {"from": "GM", "to": "GM", "timestamp": "t", "action": {"type": "metadata", "content": {"any": 1}}}
    place = tmp_path / "gpt--gpt" / "taboo" / "high_en" / "instance_00007"
    place.mkdir(parents=True)
    interactions = {
        "meta": {"game_name": "taboo", "experiment_name": "high_en", "game_id": 7},
        "players": {
            "GM": {"game_role": "Game Master", "model_name": "programmatic"},
            "Player 1": {"game_role": "WordDescriber", "model_name": "gpt"},
            "Player 2": {"game_role": "Clock", "model_name": "programmatic"},
            "Player 3": {"game_role": "WordGuesser", "model_name": "gpt"},
        },
        "turns": [
            [told("Player 1", "rules"), told("Player 1", "begin"), said("Player 1", "CLUE: a"), note],
            [told("Player 2", "tick"), said("Player 2", "tock"), told("Player 3", "CLUE: a")],
            [told("Player 1", "ASIDE?", "forget"), said("Player 1", "no", "forget"), said("Player 3", "GUESS: b")],
            [told("Player 1", "never answered")],
        ],
    }
    (place / "interactions.json").write_text(json.dumps(interactions))
    (place / "scores.json").write_text('{"episode scores": {"Aborted": false, "Success": 1, "Main Score": 50.0}}')
    instance = '{"experiment":"high_en","task_id":"7"}'
    values = {"instance": instance, "player": "gpt", "quality": 50.0}
    assert read_results(tmp_path).dialogues == (
        dialogue("rules\n\nbegin", "CLUE: a", seat="WordDescriber", asides=(Aside(2, "ASIDE?", "no"),), **values),
        dialogue("CLUE: a", "GUESS: b", seat="WordGuesser", **values),
    )
    assert read_scores(tmp_path) == {"gpt--gpt": {"taboo": game_score([50.0])}}


@pytest.mark.parametrize(
    ("events", "words", "asides"),
    [
        (  # a message waits for a reply while another one is asked aside, which the model read together with it
            [("board", "context"), ("PROBE", "forget"), ("no", "forget"), ("A2", "response")],
            ["rules", "A1", "board", "A2"],
            [Aside(2, "board\n\nPROBE", "no")],
        ),
        (
            [(text, "forget") for text in ("P", "p", "Q", "q")] + [("board", "context"), ("A2", "response")],
            ["rules", "A1", "board", "A2"],
            [Aside(2, "P", "p"), Aside(2, "Q", "q")],
        ),
        (  # the reply alone is forgotten; then the game waits in vain
            [("board", "context"), ("no", "forget"), ("now", "context")],
            ["rules", "A1"],
            [Aside(2, "board", "no")],
        ),
        ([("PROBE", "forget")], ["rules", "A1"], []),
        ([("P", "forget"), ("p", "forget"), ("A1, too", "response")], ["rules", "A1\n\nA1, too"], [Aside(2, "P", "p")]),
    ],
)
def test_what_is_asked_aside_is_no_part_of_the_dialogue(tmp_path, events, words, asides):
    def event(text, label):
        return (said if text in ("no", "p", "q") or label == "response" else told)("Player 1", text, label)

    first = [told("Player 1", "rules"), said("Player 1", "A1")]
    alone(tmp_path, *first, *(event(*one) for one in events))
    (found,) = read_results(tmp_path).dialogues
    assert [message.content for message in found.messages] == words
    assert list(found.asides) == asides


def test_a_reply_to_nothing_that_is_forgotten_is_refused(tmp_path):
    alone(tmp_path, said("Player 1", "no", "forget"))
    with pytest.raises(DatasetError, match=r"interactions\.json: a reply that is forgotten must follow a message"):
        read_results(tmp_path)


def test_a_message_that_waits_is_not_repeated_without_bound(tmp_path, monkeypatch):
    asked = [told("Player 1", "?", "forget"), said("Player 1", "no", "forget")]
    alone(tmp_path, told("Player 1", "x" * 1000), *asked * 20, said("Player 1", "A1"))
    assert len(read_results(tmp_path).dialogues[0].asides) == 20
    monkeypatch.setattr("dfc.tools.clembench.read_results.MAX_BYTES", 10_000)
    with pytest.raises(DatasetError, match="what Player 1 is asked aside has more than 10000 characters"):
        read_results(tmp_path)


def test_half_a_surrogate_pair_is_replaced_wherever_a_text_has_one(tmp_path):
    half = "\ud800"
    alone(tmp_path, told("Player 1", f"rules{half}"), said("Player 1", half), model=f"gpt{half}")
    found = read_results(tmp_path).dialogues
    assert "\ufffd" in found[0].messages[1].content
    assert write_rows(tmp_path / "rows.jsonl", found) == 1
    assert read_dialogues(tmp_path / "rows.jsonl").dialogues == found


def test_model_and_game_are_the_levels_below_the_named_folder(tmp_path):
    place = alone(tmp_path / "results", told("Player 1", "rules"), said("Player 1", "A1"))
    assert read_scores(tmp_path / "results") == {"gpt": {"quiz": game_score([50.0])}}
    for folder in (tmp_path, tmp_path / "results" / "gpt", place):
        with pytest.raises(
            DatasetError, match=r"instance_00007: expected MODEL/GAME/EXPERIMENT/INSTANCE below .*, got"
        ):
            read_scores(folder)
    changed(place / "scores.json", lambda data: data.update(meta={"results_folder": "gpt4", "game_name": "quizzes"}))
    for folder in (tmp_path, tmp_path / "results" / "gpt", place):
        assert read_scores(folder) == {"gpt4": {"quizzes": game_score([50.0])}}


# ---- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_written_rows_are_read_back_as_the_same_dialogues(tmp_path, name):
    dialogues = [*of(games(opponent="strong")), *drawn(5, 40)]
    assert write_rows(tmp_path / name, dialogues) == len(dialogues)
    assert read_dialogues(tmp_path / name).dialogues == tuple(dialogues)


def test_a_row_has_the_seven_fields_of_the_published_ones(tmp_path):
    write_rows(tmp_path / "a.jsonl", from_trajectory(taboo(2, ("no", True), opponent="strong")))
    first, second = read_conversations(tmp_path / "a.jsonl")
    expected = {"game": "clem_taboo", "experiment": "train", "task_id": 2, "outcome": "success", "quality": 50.0}
    assert expected.items() <= first.meta.items()
    described = [(row.meta["game_role"], row.meta["player_name"], row.meta["model"]) for row in (first, second)]
    assert described == [("describer", "Player 1", "tiny_player"), ("guesser", "Player 2", "strong")]


def test_a_published_row_is_written_as_it_came():
    instance = '{"experiment":"0_high","task_id":"12"}'
    row = to_conversation(dialogue("a", "b", game="dond", instance=instance, seat="Player 2", quality=None))
    assert (row.meta["experiment"], row.meta["task_id"], row.meta["instance"]) == ("0_high", 12, None)
    assert (row.meta["player_name"], row.meta["outcome"]) == ("Player 2", "aborted")


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.tuples(_TEXT, _TEXT), min_size=1, max_size=4),
    system=st.none() | _TEXT,
    asked=st.lists(st.tuples(st.integers(0, 4), _TEXT, _TEXT), max_size=4),
    quality=st.none() | st.floats(0, 100),
    instance=st.sampled_from(['{"experiment":"a","task_id":"01"}', '{"split":"x","task":3}', "7", "any thing"]),
    seat=_TEXT,
    world=st.none() | _TEXT,
    to_blame=st.booleans(),
)
def test_every_dialogue_comes_back_from_its_row(texts, system, asked, quality, instance, seat, world, to_blame):
    start = 0 if system is None else 1
    asides = tuple(Aside(start + 2 * min(turn, len(texts)), *both) for turn, *both in sorted(asked, key=lambda a: a[0]))
    words = [text for pair in texts for text in pair]
    one = dialogue(
        *words,
        system=system,
        quality=quality,
        instance=instance,
        seat=seat,
        world=world,
        to_blame=to_blame,
        asides=asides,
    )
    assert from_conversation(to_conversation(one)) == one


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("quality", 101.0, "quality of meta must be a number from 0 to 100, got '101.0'"),
        ("quality", True, "quality of meta must be a number"),
        ("asides", "1", "asides of meta must be places of user messages, got '1'"),
        ("asides", "x", "asides of meta must be places"),
        ("asides", "0", "every message is an aside"),
        ("instance", "", "instance of meta must be a text"),
        ("world", "", "world of meta must be a text"),
    ],
)
def test_a_further_field_that_cannot_be_is_named(field, value, message):
    row = to_conversation(dialogue("a", "b"))
    wrong = dataclasses.replace(row, meta={**row.meta, field: value})
    with pytest.raises(ValueError, match=message):
        from_conversation(wrong)


# ---- the command ----------------------------------------------------------------------------------------------------


def test_the_command_writes_results_scores_and_rows(tmp_path, capsys):
    rows = [taboo(1, (True,)), taboo(2, ("no", True)), taboo(4, ("no", None))]
    source, results = collection(tmp_path / "run" / "trajectories", rows).parent, tmp_path / "results"
    assert clembench.main(["results", f"--games={source}", f"--results={results}"]) == 0
    assert clembench.main(["scores", f"--results={results}"]) == 0
    said = capsys.readouterr().out
    assert "3 games; clem eval -r" in said
    assert "tiny_player: clemscore 50.0, 66.67 % played, quality 75.0\n  clem_taboo: 66.67 % of 3 played" in said
    for place in (f"--games={source}", f"--results={results}"):
        assert clembench.main(["rows", place, f"--file={tmp_path / 'rows.jsonl'}"]) == 0
        assert in_order(read_dialogues(tmp_path / "rows.jsonl").dialogues) == in_order(of(rows))


def test_games_of_an_evaluation_are_results_too(tmp_path):
    def record(row, task, **more):
        ended = {"seat": 0, "opponent": "mine", "policy": "mine", "temperature": 0.7, "task": task, "trajectory": 0}
        return row.record() | ended | {"measures": dict(row.measures), "team": True} | more

    rows = [taboo(1, (True,)), taboo(2, ("no", None))]
    lines = [json.dumps(record(row, row.task)) for row in rows]
    (tmp_path / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    assert write_results(trajectories_in(tmp_path), tmp_path / "results") == 2
    assert read_scores(tmp_path / "results") == {"mine-t0.7": {"clem_taboo": game_score([100.0, None])}}
    lines[1] = json.dumps(record(rows[1], 2, failure="the endpoint was gone", outcomes=["truncated"] * 2))
    (tmp_path / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"clem_taboo, task 2: .*\(the endpoint was gone\); play it again"):
        write_results(trajectories_in(tmp_path), tmp_path / "others")
    (tmp_path / "episodes.jsonl").write_text('{"game": "clem_taboo"}\n')
    with pytest.raises(DatasetError, match=r"row 0 \(line 1\): no game of evaluate_tasks \(KeyError"):
        list(trajectories_in(tmp_path))


def test_a_game_of_an_evaluation_that_failed_and_was_played_again_counts_once(tmp_path):
    ended = {"seat": 0, "opponent": "mine", "policy": "mine", "temperature": None, "task": 1, "trajectory": 0}
    good = taboo(1, (True,)).record() | ended | {"measures": {"quality": 100.0}, "team": True}
    failed = good | {"failure": "the endpoint was gone", "outcomes": ["truncated"] * 2}
    other = taboo(2, ("no", True)).record() | ended | {"task": 2, "measures": {"quality": 50.0}, "team": True}
    (tmp_path / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (failed, other, good)))
    assert write_results(trajectories_in(tmp_path), tmp_path / "results") == 2
    assert read_scores(tmp_path / "results") == {"mine": {"clem_taboo": game_score([100.0, 50.0])}}


def test_what_cannot_be_is_said_in_a_sentence(tmp_path, capsys):
    assert clembench.main(["scores", f"--results={tmp_path}"]) == 2
    assert "no game of clembench's results" in capsys.readouterr().err

"""Dialogues from trajectories and from published rows: what each seat saw and said, and what is refused."""

import dataclasses

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dialogue_samples import collection, dialogue, lines, published, taboo, talk
from test_perspectives import played as noted
from trajectory_rows import PROVENANCE, played, row

from dfc.games import registry
from dfc.records.trajectories import Message, from_episode
from dfc.records.trajectory_files import DatasetError
from dfc.rows import dialogues
from dfc.rows.dialogues import Aside, from_trajectory, read_dialogues


def of_game(game_id, seed, opponent="itself"):
    """A trajectory of random legal players, and by seat what was shown and said on the way, asides apart."""
    record, seen = noted(game_id, seed)
    episode = played(game_id, seed, [said for _, _, said, _ in seen])
    assert [list(reply) for reply in record["outcomes"]] == [list(outcome) for outcome in episode.outcomes]
    trajectory = from_episode(
        dataclasses.replace(episode, opponent=opponent), sample=0, provenance=PROVENANCE, system="Play well."
    )
    return trajectory, seen


def of_first_reply(**fields):
    """A published row of two replies; its first one has further fields."""
    row_ = published("a", "b", "c", "d")
    return row_ | {"messages": [row_["messages"][0], row_["messages"][1] | fields, *row_["messages"][2:]]}


def with_prompt():
    """A published row whose first reply stands in a prompt."""
    whole = of_first_reply()
    return {"prompt": whole["messages"][:3], "completion": whole["messages"][3:], "meta": whole["meta"]}


# ---- trajectories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game_id", ["clem_taboo", "clem_wordle_withcritic", "clem_privateshared", "TicTacToe-v0"])
def test_every_seat_of_a_game_has_a_dialogue_of_what_it_saw_and_said(game_id):
    trajectory, seen = of_game(game_id, 3)
    info = registry.make(game_id).info
    found = {one.seat: one for one in from_trajectory(trajectory)}
    roles = info.player_roles or ("0", "1")[: info.seats]
    assert set(found) == set(roles)
    for seat, role in enumerate(roles):
        expected, asides = [Message("system", "Play well.")], []
        for who, shown, said, aside in seen:
            if who == seat and aside:
                asides.append(Aside(len(expected), shown, said))
            elif who == seat:
                expected += [Message("user", shown), Message("assistant", said)]
        assert found[role].messages == tuple(expected)
        assert found[role].asides == tuple(asides)
        assert found[role].replies == sum(who == seat and not aside for who, _, _, aside in seen)
        assert found[role].start == 2
    assert bool(asides) == (game_id == "clem_privateshared")


@pytest.mark.parametrize(
    ("guesses", "outcome", "quality"),
    [((True,), "success", 100.0), (("no", True), "success", 50.0), (("a", "b", "c"), "failure", 0.0)],
)
def test_a_team_has_one_outcome_and_one_quality(guesses, outcome, quality):
    found = from_trajectory(taboo(2, guesses))
    assert [(one.seat, one.outcome, one.quality) for one in found] == [
        ("describer", outcome, quality),
        ("guesser", outcome, quality),
    ]
    assert {one.instance for one in found} == {'{"split":"train","task":2}'}


def test_only_the_seat_that_broke_a_game_off_is_to_blame():
    describer, guesser = from_trajectory(taboo(2, ("no", None)))
    assert (describer.outcome, describer.quality, describer.to_blame) == ("aborted", None, False)
    assert (guesser.outcome, guesser.quality, guesser.to_blame) == ("aborted", None, True)
    assert guesser.messages[-1] == Message("assistant", "oh")


def test_a_seat_that_never_replied_has_no_dialogue():
    episode = played("clem_taboo", 2, ["no clue"])
    assert [one.seat for one in from_trajectory(from_episode(episode, sample=0, provenance=PROVENANCE))] == [
        "describer"
    ]


def test_players_against_each_other_have_outcomes_of_their_own():
    moves = [f"[{cell}]" for cell in ("0", "3", "1", "4", "2")]
    episode = played("TicTacToe-v0", 0, moves)
    found = from_trajectory(from_episode(episode, sample=0, provenance=PROVENANCE))
    assert [(one.seat, one.player, one.outcome, one.quality) for one in found] == [
        ("0", "tiny_player", "success", 100.0),
        ("1", "random_legal", "failure", 0.0),
    ]
    assert {one.instance for one in found} == {'{"deal":0,"options":{}}'}


@pytest.mark.parametrize(
    ("opponent", "player"),
    [("itself", "tiny_player"), ("initial", "tiny_player"), ("strong", "strong"), ("http://h/v1#gpt", "gpt")],
)
def test_who_sat_in_the_other_seat_is_its_player(opponent, player):
    assert [one.player for one in from_trajectory(taboo(1, (True,), opponent=opponent))] == ["tiny_player", player]


def test_collections_of_several_models_and_seeds_are_read_together(tmp_path):
    collection(tmp_path, [taboo(1, (True,))])
    collection(tmp_path / "b", [taboo(2, ("no", True))], model="other", seed=9)
    (tmp_path / "b").joinpath("part-00000-of-00001-000000.parquet").rename(
        tmp_path / "part-00009-of-00001-000000.parquet"
    )
    found = read_dialogues(tmp_path)
    assert [one.player for one in found.dialogues] == ["tiny_player"] * 2 + ["other"] * 2
    assert read_dialogues(tmp_path, wanted=lambda game: game != "clem_taboo").dialogues == ()


def test_games_that_were_stopped_are_counted(tmp_path):
    rows = [taboo(1, (True,)), taboo(2, ("no", True), cut_after=1), taboo(3, ("no", True), cut_after=2)]
    found = read_dialogues(collection(tmp_path, rows))
    assert len(found.dialogues) == 2
    assert found.unfinished == {"clem_taboo": 2}


def test_a_record_that_the_rules_contradict_is_named(tmp_path):
    wrong = dataclasses.replace(taboo(2, ("no", True)), outcomes=("loss", "loss"))
    with pytest.raises(DatasetError, match=r"000000\.parquet, row 1: clem_taboo: ended with .*leave clem_taboo out"):
        read_dialogues(collection(tmp_path, [taboo(1, (True,)), wrong]))


def test_a_folder_without_trajectories_and_a_place_that_is_not_there_are_named(tmp_path):
    with pytest.raises(DatasetError, match="no trajectory in it; collect some first"):
        read_dialogues(tmp_path)
    with pytest.raises(DatasetError, match="absent: there is no such place"):
        read_dialogues(tmp_path / "absent")


# ---- published rows -------------------------------------------------------------------------------------------------


def test_published_rows_are_dialogues_under_the_names_of_here(tmp_path):
    rows = [
        published("rules", "CLUE: a", role="WordDescriber", model="gpt--gpt"),
        published("rules", "GUESS: b", outcome="failure", model="gpt--llama"),
        published("rules", "what", game="dond", outcome="aborted", role="", task="x"),
    ]
    found = read_dialogues(lines(tmp_path / "a.jsonl", *rows)).dialogues
    instance = '{"experiment":"0_high_en","task_id":"1"}'
    one = dialogue("rules", "CLUE: a", instance=instance, seat="WordDescriber", player="gpt")
    other = dialogue("rules", "GUESS: b", instance=instance, seat="WordGuesser", player="gpt--llama", quality=0.0)
    assert found[:2] == (one, other)
    third = found[2]
    assert (third.game, third.outcome, third.quality, third.to_blame) == ("dond", "aborted", None, True)
    assert third.seat == "Player 2"
    pq.write_table(pa.Table.from_pylist(rows[:2]), tmp_path / "a.parquet")
    assert read_dialogues(tmp_path / "a.parquet").dialogues == found[:2]


def test_published_probes_leave_no_trace(tmp_path):
    texts = ("rules", "Ok.", "ASIDE: a?", "ASIDE: no", "ME: where?", "ANSWER: here", "ASIDE: b?", "ASIDE: yes")
    (found,) = read_dialogues(lines(tmp_path / "a.jsonl", published(*texts, game="privateshared"))).dialogues
    assert found.messages == talk("rules", "Ok.", "ME: where?", "ANSWER: here")
    assert found.asides == (Aside(2, "ASIDE: a?", "ASIDE: no"), Aside(4, "ASIDE: b?", "ASIDE: yes"))
    (found,) = read_dialogues(lines(tmp_path / "a.jsonl", published(*texts))).dialogues  # of taboo: no probes
    assert found.messages == talk(*texts)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (published("a", "b", "c"), "messages ends with a user message without a reply; drop it from the row"),
        (
            published("a", "b", outcome="win"),
            r"outcome of meta must be one of success, failure, aborted, got 'win'; .*its",
        ),
        (published("a", "b", game=""), "game of meta must be a text or a whole number, got ''; add it to the row"),
        (published("a", "b", task=None), "task_id of meta must be a text or a whole number, got 'None'"),
        (published("a", "b", model=True), "model of meta must be"),
        (published("a", "b", model="m" * 2000), "model of meta must be"),
        (published("a", "b", experiment=1.5), "experiment of meta must be"),
        (of_first_reply(weight=0), "a reply is not to be trained on .*, but every reply of a dialogue is"),
        (of_first_reply(train=False), "a reply is not to be trained on"),
        (of_first_reply(reasoning_content="Hm."), "message 1 of messages: reasoning_content is not read"),
        (of_first_reply() | {"tools": [{"type": "function"}]}, "tools is not read"),
        (with_prompt(), "a reply is not to be trained on"),
        (published("a", "b", role=None, player_name=None), "player_name of meta must be"),
        (published("ASIDE: a", "b", game="privateshared"), "every message is an aside or a probe"),
        ({"text": "x"}, "no column messages"),
    ],
)
def test_a_bad_row_is_named_with_file_row_and_what_to_do(tmp_path, bad, message):
    with pytest.raises(DatasetError, match=rf"a\.jsonl, row 1 \(line 2\): {message}"):
        read_dialogues(lines(tmp_path / "a.jsonl", published("a", "b"), bad))


def test_what_follows_the_last_reply_can_be_cut_and_large_rows_are_refused(tmp_path):
    path = lines(tmp_path / "a.jsonl", published("a", "b", "c"), published("a", "b" * 5000))
    found = read_dialogues(path, cut_unanswered=True).dialogues
    assert found[0].messages == talk("a", "b")
    with pytest.raises(DatasetError, match=r"row 1 \(line 2\): takes more than 2000 bytes"):
        read_dialogues(path, cut_unanswered=True, max_row_bytes=2000)


def test_a_part_of_a_collection_is_read_by_its_folder(tmp_path):
    folder = collection(tmp_path, [row("wordle", 0, 0)])
    (part,) = folder.glob("*.parquet")
    with pytest.raises(DatasetError, match=r"row 0: .*its folder|row 0: .*meta must be"):
        read_dialogues(part)


# ---- identity -------------------------------------------------------------------------------------------------------


def test_the_key_names_everything_and_nothing_else():
    one = dialogue("a", "b")
    assert one.key == dialogue("a", "b").key
    changes = [
        {"messages": talk("a", "c")}, {"game": "x"}, {"instance": "2"}, {"seat": "x"}, {"player": "x"},
        {"outcome": "failure"}, {"quality": 50.0}, {"world": "x"}, {"to_blame": False},
        {"asides": (Aside(0, "q", "r"),)},
    ]  # fmt: skip
    assert {name for change in changes for name in change} == {f.name for f in dataclasses.fields(dialogues.Dialogue)}
    assert len({one.key, *(dataclasses.replace(one, **change).key for change in changes)}) == len(changes) + 1

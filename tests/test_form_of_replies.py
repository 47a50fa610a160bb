"""Replies of models that were told to think: one block, then one action and nothing else; what others cost."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from dfc.config import RewardConfig, RolloutConfig
from dfc.episodes import PlayedReply, from_bytes, to_bytes
from dfc.evaluation import matches
from dfc.games import registry
from dfc.games.game import Verdict
from dfc.games.parsing import text_after_thought
from dfc.games.replay import ReplayError, replay
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal
from dfc.inference import slots
from dfc.players import sequential
from dfc.players.remote import ChatMessage, FunctionPlayer
from dfc.records.trajectories import OLDER, Provenance, from_episode, to_table
from dfc.records.trajectory_files import read_columns, read_rows, read_trajectories, write_atomically
from dfc.rollout.match import EpisodeSpec, Match, MatchContext
from dfc.scoring.episode_rewards import reward
from dfc.training import rl

THOUGHT = "<think>I take it.</think>"


def outcome_of(game_id, replies, *, well_formed=True, **options):
    game = registry.make(game_id, **options)
    game.reset(0)
    for reply in replies:
        game.step(reply, well_formed=well_formed)
    return game


# ---- the form -----------------------------------------------------------------------------------------------------

WELL_FORMED = ["<think>a</think>[col 3]", " <think>\na [col 1] b\n</think>\n [col 3]\n", "<THINK></THINK>[col 3]"]
ILL_FORMED = [
    "[col 3]",
    "",
    "<think>a</think><think>b</think>[col 3]",
    "<think>a<think>b</think>[col 3]",
    "<think>a</think></think>[col 3]",
    "<think>a</think>I choose [col 3]. It is the best!",
    "<think>a</think>[col 3].",
    "<think>a</think>[col 3][col 3]",
    "<think>a</think>",
    "a</think>[col 3]",
    "Well, <think>a</think>[col 3]",
    "<think>a [col 3]",
    "[col 3]<think>a</think>",
]


@pytest.mark.parametrize("reply", WELL_FORMED)
def test_one_thought_and_one_action_behind_it_are_well_formed(reply):
    assert registry.make("ConnectFour-v0").well_formed(reply)
    assert text_after_thought(reply) == "[col 3]"


@pytest.mark.parametrize("reply", ILL_FORMED)
def test_everything_else_is_not(reply):
    assert not registry.make("ConnectFour-v0").well_formed(reply)


@pytest.mark.parametrize("unseen", ["\u200b", "\0", "\u00ad", "\ufe0f", "\u2800"])
@pytest.mark.parametrize("game_id", ["twenty_questions", "SimpleNegotiation-v0"])
def test_a_tag_that_unseen_characters_cut_is_a_tag(game_id, unseen):
    game = registry.make(game_id)
    game.reset(0)
    assert not game.well_formed(f"<think>a</think> Is it alive? </{unseen}think> Is it big?")
    assert not game.well_formed(f"<think>a</think> Is it alive? <thi{unseen}nk> Is it big?")
    assert game.well_formed(f"{unseen}<think>a</think> Is it alive?{unseen}")


@pytest.mark.parametrize(
    ("game_id", "said", "expected"),
    [
        ("wordle", " <Answer> crane </Answer> ", True),
        ("wordle", "<Answer>crane</Answer> I am sure.", False),
        ("wordle", "<Answer>crane</Answer><Answer>crane</Answer>", False),
        ("wordle", "crane", False),
        ("twenty_questions", "Is it alive? I ask because it may be.", True),
        ("twenty_questions", "", False),
        ("SimpleNegotiation-v0", "My last word. [Offer: 3 Sheep -> 5 Brick] Take it!", True),
        ("SimpleNegotiation-v0", "No deal yet.", True),
        ("TruthAndDeception-v0", "Believe me: the first.", True),
        ("GuessTheNumber-v0", "[5] [5]", False),
    ],
)
def test_what_one_action_is_the_grammar_of_each_game_says(game_id, said, expected):
    game = registry.make(game_id)
    game.reset(0)
    assert game.well_formed(f"{THOUGHT}{said}") is expected
    assert not game.well_formed(said)


@pytest.mark.parametrize("game_id", registry.game_ids())
def test_a_thought_before_any_listed_action_is_well_formed(game_id):
    game = registry.make(game_id)
    if not game.lists_actions:
        pytest.skip("lists no actions")
    game.reset(1)
    assert all(game.well_formed(f"{THOUGHT}\n{action}") for action in game.legal_actions()[:50])


def test_the_time_of_the_check_grows_with_the_length_of_the_reply_and_no_faster():
    game = registry.make("ConnectFour-v0")
    for piece in ("<think>", "</think>", "[", "<"):
        assert not game.well_formed(piece * 200_000)


# ---- what the game makes of it ----------------------------------------------------------------------------------


def test_an_ill_formed_reply_is_malformed_whatever_it_says_and_the_player_is_told_the_form():
    game = outcome_of("TicTacToe-v0", ["[4]"], well_formed=False, malformed_allowance=1)
    assert (game.malformed_tries, game.actions_played, game.to_move) == ([1, 0], 0, 0)
    assert "<think>your thoughts</think>, then write [4] and nothing else" in game.observation(0)
    assert game.step("[4]", well_formed=False) is Verdict.FORFEIT_MALFORMED
    assert (game.malformed_tries, game.outcomes) == ([2, 0], ("invalid", "win"))


def test_malformed_tries_are_counted_by_seat_and_survive_copies():
    game = outcome_of("TicTacToe-v0", ["[4]", "hello", "what", "[0]", "hm"], malformed_allowance=5)
    assert game.malformed_tries == [1, 2]
    twin = game.clone()
    twin.step("hm")
    other = registry.make("TicTacToe-v0", malformed_allowance=5)
    other.from_json(json.loads(json.dumps(game.to_json())))
    assert (game.malformed_tries, twin.malformed_tries, other.malformed_tries) == ([1, 2], [2, 2], [1, 2])
    game.reset(0)
    assert game.malformed_tries == [0, 0]


# ---- the driver ---------------------------------------------------------------------------------------------------


class Told:
    """Stands in for the engine: what the table is told to have heard is given by the test."""

    max_length = 4096

    def version(self, policy):
        return len(policy)


def played(tokenizer, said, *, opponent=None, prompt="think", game="TicTacToe-v0", random_action_rate=0.0, **options):
    """The game in which the engine says `said`, one after another, for every seat that it plays."""
    rollout = RolloutConfig(prompt=prompt, max_length=4096)
    opponent = "policy" if opponent is None else opponent
    context = MatchContext(rollout, tokenizer, Told(), "policy", opponent, "other", {}, 1.0, 1)
    match = Match.create(context, 0, EpisodeSpec(game, options, 0, 0, 0, 0, random_action_rate=random_action_rate))
    waits = match.start()
    for text in said:
        while waits == "remote":
            waits = match.on_remote_reply()
        if waits is None:
            break
        token_ids = [*tokenizer.encode_reply(text), tokenizer.end_token_ids[0]]
        zeros = [0.0] * len(token_ids)
        waits = match.on_engine_reply(slots.EngineReply(0, token_ids, zeros, zeros, [0] * len(token_ids), stopped=True))
    while waits == "remote":
        waits = match.on_remote_reply()
    if not match.game.over and match.failure is None:
        match.game.truncate()
    assert match.failure is None
    return match.episodes()[0]


@pytest.mark.parametrize("reply", [r.replace("col 3", "4") for r in ILL_FORMED])
def test_a_model_told_to_think_forfeits_by_a_reply_of_another_form(tokenizer, reply):
    episode = played(tokenizer, [reply])
    assert (episode.outcome, episode.malformed, episode.malformed_tries) == ("invalid", True, 1)
    assert episode.replies == [
        PlayedReply(0, tokenizer.decode(tokenizer.encode_reply(reply)), "policy", well_formed=False)
    ]


def test_both_seats_of_models_are_held_to_the_form_and_may_try_again(tokenizer):
    said = ["<think>a</think>[4]", "[0]", "<think>b</think>[0]", "<think>a</think>[8]"]
    episode = played(tokenizer, said, malformed_allowance=1)
    assert [(r.seat, r.well_formed) for r in episode.replies] == [(0, True), (1, False), (1, True), (0, True)]
    assert (episode.malformed_tries, episode.illegal_tries) == (0, 0)


def test_without_the_prompt_no_form_is_asked_for(tokenizer):
    episode = played(tokenizer, ["[4]", "so [0] it is"], prompt="bare_action")
    assert [r.well_formed for r in episode.replies] == [True, True]
    assert episode.forfeited_by is None


def test_scripted_players_and_replaced_actions_are_held_to_no_form(tokenizer):
    episode = played(tokenizer, [], opponent=RandomLegal(), random_action_rate=1.0)
    assert {r.speaker for r in episode.replies} == {"replaced", "opponent"}
    assert all(r.well_formed for r in episode.replies)
    assert episode.forfeited_by is None


def test_a_simulator_is_held_to_no_form(tokenizer):
    episode = played(tokenizer, ["<think>a</think>Is it alive?"], game="twenty_questions")
    assert [(r.speaker, r.well_formed) for r in episode.replies] == [
        ("policy", True),
        ("simulator", True),
        ("simulator", True),
    ]


def test_a_remote_player_is_held_to_the_form_and_a_template_of_the_policys_does_not_help_it(tokenizer):
    remote = FunctionPlayer(lambda _: "a</think>[0]", name="far")
    first = "<think>a</think>[4]"
    assert played(tokenizer, [first], opponent=remote).forfeited_by == 1
    remote = FunctionPlayer(lambda _: "<think>a</think>[0]", name="far")
    assert played(tokenizer, [first], opponent=remote).forfeited_by is None


def test_where_the_template_opens_the_thought_a_reply_begins_inside_it(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "thought", "<think>\n")
    assert played(tokenizer, ["a</think>[4]"]).forfeited_by is None
    assert played(tokenizer, ["<think>a</think>[4]"]).forfeited_by == 0
    assert played(tokenizer, ["[4]"]).forfeited_by == 0


def test_games_without_an_engine_hold_endpoints_to_the_form_too():
    def chat(messages: list[ChatMessage]) -> str:
        assert [m["content"] for m in messages if m["role"] == "system"] == [system] * (system is not None)
        return "<think>a</think>[4]" if any(m["role"] == "assistant" for m in messages) else "[4]"

    for system, verdicts in (("Think.", ["malformed", "played"]), (None, ["played"])):
        game = registry.make("TicTacToe-v0", malformed_allowance=1)
        game.reset(0)
        said = sequential.play_sequentially(
            game, [FunctionPlayer(chat), RandomLegal()], GameRng(0), len(verdicts), system=system
        )
        assert [str(s.verdict) for s in said] == verdicts
        assert [s.well_formed for s in said] == [v == "played" for v in verdicts]


# ---- records ------------------------------------------------------------------------------------------------------


def tried_again(tokenizer):
    said = ["[4]", "<think>a</think>[4]", "<think>b</think>[0]", "[8]", "[8]", "<think>a</think>[8]"]
    return played(tokenizer, said, malformed_allowance=3)


def test_a_replay_of_ill_formed_replies_comes_to_the_same_end(tokenizer):
    for episode in (tried_again(tokenizer), played(tokenizer, ["[4]"])):
        record = json.loads(json.dumps(episode.record()))
        turns = list(replay(record))
        assert [t.well_formed for t in turns] == [r.well_formed for r in episode.replies]
        assert sum(t.verdict in ("malformed", "forfeit_malformed") for t in turns) == episode.malformed_tries
        assert any(entry[3:] == [False] for entry in record["replies"])
        with pytest.raises(ReplayError):
            list(replay(record | {"replies": [entry[:3] for entry in record["replies"]]}))
        assert from_bytes(to_bytes([episode]))[0].replies == episode.replies


def test_records_of_three_elements_read_as_before_and_no_other_fourth_is_taken():
    record = {"game": "TicTacToe-v0", "options": {}, "seed": 0, "outcomes": ["truncated"] * 2, "forfeited_by": None}
    assert [t.well_formed for t in replay(record | {"replies": [[0, "[4]", "policy"]]})] == [True]
    for entry in ([0, "[4]", "policy", True], [0, "[4]", "replaced", False], [0, "[4]", "policy", False, 1]):
        with pytest.raises(ReplayError, match="at most False"):
            list(replay(record | {"replies": [entry]}))


def test_a_trajectory_keeps_which_replies_were_ill_formed(tokenizer):
    episode = tried_again(tokenizer)
    row = from_episode(episode, sample=0, provenance=Provenance("m", "h", {}, 0))
    assert [reply[3] for reply in row.replies] == [False, True, True, False, False, True]
    assert [t.verdict for t in replay(row.record())] == [t.verdict for t in replay(episode.record())]


def test_files_of_trajectories_keep_the_form_and_older_ones_are_read_as_well_formed(tokenizer, tmp_path):
    row = from_episode(tried_again(tokenizer), sample=0, provenance=Provenance("m", "h", {}, 0))
    table = to_table([row])
    place = table.schema.get_field_index("replies")
    said = [[{k: v for k, v in r.items() if k != "well_formed"} for r in table["replies"].to_pylist()[0]]]
    older = table.set_column(place, "replies", pa.array(said, OLDER["replies"]))
    for name, written, formed in (("new", table, [r[3] for r in row.replies]), ("old", older, [True] * 6)):
        (tmp_path / name).mkdir()
        write_atomically(written, tmp_path / name / "part.parquet")
        (found,) = read_trajectories(tmp_path / name)
        assert [reply[3] for reply in found.replies] == formed
        columns = read_columns(tmp_path / name, ["game"])
        (chunk,) = read_rows(columns, [np.array([0])], ("game", "replies"))
        assert [reply["well_formed"] is not False for reply in chunk["replies"].to_pylist()[0]] == formed


def test_the_world_of_a_trajectory_is_not_read_from_a_reply_that_played_nothing(tokenizer):
    said = ["<Answer>reveal 0 0</Answer>", "<think>a</think><Answer>reveal 2 3</Answer>"]
    episode = played(tokenizer, said, game="minesweeper", malformed_allowance=1)
    row = from_episode(episode, sample=0, provenance=Provenance("m", "h", {}, 0))
    assert row.world == "reveal 2 3"


# ---- what it costs ------------------------------------------------------------------------------------------------


def finished(tokenizer, before_each_move, *, illegal=False):
    """The policy wins in three moves; before each of them it says `before_each_move`, if anything."""
    moves = {0: ["[0]", "[1]", "[2]"], 1: ["[3]", "[4]"]}
    said = []
    for turn in range(3):
        said += [before_each_move] * bool(before_each_move) + ["[3]"] * (illegal and turn > 0) + [moves[0][turn]]
        said += moves[1][turn : turn + 1]
    return played(tokenizer, said, prompt="bare_action", malformed_allowance=1)


def test_an_unreadable_reply_before_each_move_costs_its_price_each_time(tokenizer):
    config = RewardConfig(hasty_action_penalty=False)
    plain, babbling = finished(tokenizer, ""), finished(tokenizer, "hm")
    assert (plain.outcome, babbling.outcome) == ("win", "win")
    assert (plain.malformed_tries, babbling.malformed_tries) == (0, 3)
    assert reward(plain, config) - reward(babbling, config) == pytest.approx(3 * config.illegal_try)
    mixed = finished(tokenizer, "hm", illegal=True)
    assert (mixed.malformed_tries, mixed.illegal_tries) == (3, 2)
    assert reward(mixed, config) == pytest.approx(1 - 5 * config.illegal_try)


def test_the_reply_that_forfeits_is_not_priced_a_second_time(tokenizer):
    config = RewardConfig()
    forfeit = played(tokenizer, ["hm", "hm"], prompt="bare_action", malformed_allowance=1)
    assert (forfeit.malformed, forfeit.malformed_tries) == (True, 2)
    assert reward(forfeit, config) == pytest.approx(config.invalid - config.illegal_try)
    old = dataclasses.replace(forfeit, malformed_tries=0)  # a record without the count
    assert reward(old, config) == pytest.approx(config.invalid)
    illegal = played(tokenizer, ["[4]", "[0]", "hm", "[4]", "[4]"], prompt="bare_action", malformed_allowance=1)
    assert (illegal.malformed, illegal.malformed_tries, illegal.illegal_tries) == (False, 1, 2)
    assert reward(illegal, config) == pytest.approx(config.invalid - 2 * config.illegal_try)


def test_matches_and_the_format_rate_count_every_malformed_try(tokenizer):
    episode = finished(tokenizer, "hm")
    record = matches.record_of(episode)
    assert (record.malformed_replies, record.replies) == (3, 6)
    assert rl.episode_metrics([episode], [1.0])["games/TicTacToe-v0/format_rate"] == pytest.approx(0.5)
    old = dataclasses.replace(played(tokenizer, ["hm"], prompt="bare_action"), malformed_tries=0)
    assert matches.record_of(old).malformed_replies == 1


def test_a_policy_gains_nothing_by_thinking_no_more(tokenizer):
    config = RewardConfig(hasty_action_penalty=False)
    moves = ["[0]", "[3]", "[1]", "[4]", "[2]"]
    thinking = played(tokenizer, [f"<think>a</think>{move}" for move in moves])
    bare = [f"<think>a</think>{move}" if number % 2 else move for number, move in enumerate(moves)]
    assert thinking.outcome == "win"
    assert reward(thinking, config) > reward(played(tokenizer, bare), config)
    assert np.isclose(reward(thinking, config), 1.0)

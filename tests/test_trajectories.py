"""Trajectories made from episodes: messages, ids, tasks, labels of every kind of end, and what is refused."""

import dataclasses

import numpy as np
import pytest
from trajectory_rows import played, row, same, trajectory

from dfc.games import registry
from dfc.games.replay import ReplayError, replay
from dfc.records.trajectories import Message, canonical_json, to_table, to_trajectories

# ---- from an episode ------------------------------------------------------------------------------------------------


def test_the_messages_are_what_the_seat_was_shown_and_what_it_said():
    episode = played("TicTacToe-v0", 5, rng_seed=1)
    found = trajectory(episode, system="Play well.")
    game = registry.make("TicTacToe-v0")
    game.reset(5)
    expected = [Message("system", "Play well.")]
    for reply in episode.replies:
        if reply.seat == 0:
            expected += [Message("user", game.observation(0)), Message("assistant", reply.text)]
        else:
            game.observation(1)
        game.step(reply.text)
    assert list(found.messages) == expected
    assert found.turns == sum(reply.seat == 0 for reply in episode.replies)


@pytest.mark.parametrize("game_id", ["wordle", "mastermind", "battleship", "minesweeper", "bandit", "TicTacToe-v0"])
def test_ids_are_the_episodes_own_and_the_row_replays(game_id):
    episode = played(game_id, 7, rng_seed=2)
    found = trajectory(episode, sample=11)
    assert np.array_equal(found.token_ids, episode.sample.token_ids)
    assert np.array_equal(found.mask, episode.sample.mask)
    assert (found.tokens, found.action_tokens) == (len(episode.sample.token_ids), int(episode.sample.mask.sum()))
    assert [turn.reply for turn in replay(found.record())] == [reply.text for reply in episode.replies]
    assert dict(found.measures) == dict(episode.measures)
    assert found.sample == 11
    assert found.success == (episode.outcomes[0] == "win")
    assert found.failure is None


def test_the_task_is_the_number_in_the_split_and_else_the_deal():
    found = trajectory(played("wordle", 1515 * 3 + 8, rng_seed=1, options={"split": "train"}))
    assert (found.split, found.task, found.game_seed) == ("train", 8, 1515 * 3 + 8)
    found = trajectory(played("wordle", 807, rng_seed=1, options={"split": "test"}))
    assert (found.split, found.task, found.options) == ("test", 7, '{"split":"test"}')
    found = trajectory(played("Nim-v0", 807))
    assert (found.split, found.task) == (None, 807)


def test_every_kind_of_end_has_its_label_and_is_kept():
    malformed = trajectory(played("wordle", 0, ["no tags here"]))
    assert (malformed.failure, malformed.outcome, malformed.success) == ("malformed", "invalid", False)
    illegal = trajectory(played("TicTacToe-v0", 0, ["[4]", "[0]", "[4]", "[4]"]))
    assert (illegal.failure, illegal.outcome, illegal.illegal_tries) == ("illegal", "invalid", 2)
    truncated = trajectory(played("wordle", 0, cut_after=2))
    assert (truncated.failure, truncated.outcome, truncated.turns) == ("truncated", "truncated", 2)
    discarded = trajectory(played("twenty_questions", 0, ["Is it alive?", *["Perhaps."] * 5]))
    assert discarded.failure == "discarded"
    assert "5 replies in a row" in discarded.failure_reason
    failed = dataclasses.replace(
        played("wordle", 0, cut_after=1), failure="game.step for seat 0 raised KeyError: 'x'", outcomes=("truncated",)
    )
    failed = trajectory(failed)
    assert (failed.failure, failed.success, len(failed.messages)) == ("failed", False, 2)
    rows = [malformed, illegal, truncated, discarded, failed]
    assert all(map(same, to_trajectories(to_table(rows)), rows))


def test_only_the_policys_own_overrun_is_its_failure():
    alone = dataclasses.replace(played("wordle", 0, cut_after=2), overrun_by=0)
    assert trajectory(alone).failure == "truncated"
    for by, label in ((0, "truncated"), (1, "discarded"), (None, "discarded")):
        found = trajectory(dataclasses.replace(played("TicTacToe-v0", 0, cut_after=2), overrun_by=by))
        assert (found.failure, found.outcome, found.success) == (label, "truncated", False)


def test_a_failure_of_the_other_seat_is_none_of_the_policys():
    episode = played("TicTacToe-v0", 0, ["[4]", "[4]", "[4]"])
    assert episode.forfeited_by == 1
    found = trajectory(episode)
    assert (found.failure, found.success) == (None, True)


def test_a_failed_game_whose_replay_raises_keeps_what_came_before():
    episode = played("wordle", 0, cut_after=2)
    episode.failure, episode.outcomes = "game.measures raised", ("truncated",)
    episode.replies.append(dataclasses.replace(episode.replies[0], seat=1))  # the rules contradict this one
    found = trajectory(episode)
    assert (found.failure, len(found.messages)) == ("failed", 4)
    episode.failure = None
    with pytest.raises(ReplayError, match="seat 1"):
        trajectory(episode)


def test_the_world_of_minesweeper_is_the_first_cell_that_was_opened():
    def world(*actions):
        replies = [f"<Answer>{action}</Answer>" for action in actions]
        return trajectory(played("minesweeper", 3, replies, cut_after=len(replies))).world

    assert world("reveal 0 1") == world("Reveal   00 01") == "reveal 0 1"
    assert world("reveal 0 2") == "reveal 0 2"
    assert world("reveal 9 9", "reveal 0 2") == "reveal 0 2"  # no such cell: the mines are not laid yet
    assert world("reveal 9 9") is None
    assert trajectory(played("minesweeper", 3, ["nothing"])).world is None


def test_the_world_of_the_bandit_is_its_seed_and_other_games_have_none():
    assert trajectory(played("bandit", 5)).world != trajectory(played("bandit", 5 + 81)).world
    assert trajectory(played("bandit", 5)).task == trajectory(played("bandit", 5 + 81)).task
    assert trajectory(played("wordle", 5)).world is None


def test_options_have_one_spelling():
    assert canonical_json({"b": (1, 2), "a": "é"}) == canonical_json({"a": "é", "b": [1, 2]}) == '{"a":"é","b":[1,2]}'
    with pytest.raises(ValueError, match="expected settings that JSON can hold"):
        canonical_json({"a": float("nan")})


def test_lone_surrogates_do_not_stop_a_collection():
    found = dataclasses.replace(row(), messages=(Message("user", "a\ud800b"), Message("assistant", "c")))
    (back,) = to_trajectories(to_table([found]))
    assert back.messages[0].content.startswith("a\ufffd")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"failure": "lost"}, "failure must be one of None, malformed"),
        ({"failure": "truncated"}, "a success has outcome win and no failure"),
        ({"outcome": "won"}, "outcome must be one of win"),
        ({"mask": np.ones(3, bool)}, r"must be \[n\] each"),
        ({"sample": -1}, "must be 0 or more"),
        ({"messages": (Message("tool", "x"),)}, "a role must be one of system, user, assistant, got 'tool'"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(row(), **changes)


# ---- with the engine ------------------------------------------------------------------------------------------------


def test_the_messages_of_a_rollout_spell_its_ids():
    # JAX is only loaded where it is needed.
    from dfc.config import RolloutConfig, SamplingConfig
    from dfc.games.scripted import RandomLegal
    from dfc.inference.engine import Engine
    from dfc.models.chat import ChatTokenizer
    from dfc.models.huggingface import load, resolve
    from dfc.rollout.runner import EpisodeSpec, RolloutRunner
    from dfc.rows.conversations import encode

    folder = resolve("tiny_player")
    config, params = load(folder, dtype="float32")
    tokenizer = ChatTokenizer.load(folder)
    limits = RolloutConfig(slots=4, max_length=192, max_reply_length=6, stop=())
    engine = Engine(
        config,
        params,
        slots=4,
        max_length=192,
        stop_token_ids=frozenset(tokenizer.end_token_ids),
        sampling=SamplingConfig(temperature=1.5, min_p=0.3),
        prefill_buckets=(16,),
        rows=2,
    )
    runner = RolloutRunner(limits, tokenizer, engine, opponent=RandomLegal(), opponent_name="random_legal")
    specs = [EpisodeSpec(game="TicTacToe-v0", options={}, game_seed=n, seat=n % 2, group=0, seed=n) for n in range(8)]
    rows = [trajectory(episode, n) for n, episode in enumerate(runner.play(specs))]
    assert all(map(same, to_trajectories(to_table(rows)), rows))
    compared = 0
    for found in rows:
        token_ids, mask = encode(found.messages, tokenizer)
        # A reply that no end id closed, or that the tokenizer would cut otherwise, spells other ids.
        if len(token_ids) == len(found.token_ids) and np.array_equal(token_ids, found.token_ids):
            assert np.array_equal(mask, found.mask)
            compared += 1
        assert found.messages[-1].role == "assistant"
        assert (found.sampled_logprobs[found.mask] < 0).any()
        assert found.opponent == "random_legal"
    assert compared >= 4

"""With `rollout.legal_only` every legal action must fit into a reply: refused before a run, named later on."""

import dataclasses
import functools
import re

import pytest

from dfc.config import DivideFuseConquer, Evaluate, OpponentReplyConfig, RolloutConfig, SamplingConfig, TinyPlayer
from dfc.errors import ConfigError
from dfc.evaluation.tournament_players import TournamentPlayers
from dfc.games import registry
from dfc.games.game import Game
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal
from dfc.games.textarena.nim import Nim
from dfc.inference.constraints import ActionTrie, cut_reply
from dfc.models.chat import ChatTokenizer
from dfc.models.huggingface import resolve
from dfc.rollout.match import EpisodeSpec, Match, MatchContext
from dfc.rollout.model_player import ModelPlayer
from dfc.rollout.workers import RolloutWorkers, check_actions_fit
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.tools.small_models import tiny_player
from dfc.validation import problems


@functools.cache
def tokenizer():
    return ChatTokenizer.load(resolve("tiny_player"))


def config(games, limit, *, kind=DivideFuseConquer, stop=("]",), legal_only=True, **more):
    rollout = RolloutConfig(slots=2, max_length=160, max_reply_length=limit, stop=stop, legal_only=legal_only)
    return kind(games={game: {} for game in games}, rollout=rollout, **more)


def length(action):
    return len(tokenizer().encode_reply(action))


def cut(actions, limit, stop=()):
    return cut_reply(actions, tokenizer().encode_reply, tokenizer().decode, limit=limit, stop=stop)


# ---- one set of actions -------------------------------------------------------------------------------------------


def test_an_action_that_takes_more_tokens_than_a_reply_is_named_and_one_that_fills_it_is_whole():
    actions = ["[roll]", "[0]"]
    tokens = length("[roll]")
    assert tokens > length("[0]")
    assert cut(actions, tokens) is None
    assert cut(actions, tokens - 1) == (
        f"the legal action '[roll]' takes {tokens} tokens, and a reply has {tokens - 1} at most"
    )
    assert cut([], 1) is None
    assert len(cut(["[" + "x" * 10_000 + "]"], 4)) < 200


def test_a_stop_string_cuts_where_it_is_complete_before_the_last_token():
    text = "[roll it]"
    assert cut([text], 99, ("]",)) is None
    assert cut([text], 99, ("nothing",)) is None
    for stop in ("r", "l i", "oll"):
        assert f"holds the stop string {stop!r} before its last token" in cut(["[0]", text], 99, ("]", stop))


# ---- before a run -------------------------------------------------------------------------------------------------


def refused(games, limit, **more):
    with pytest.raises(ConfigError) as error:
        check_actions_fit(config(games, limit, **more), tokenizer())
    return str(error.value)


def test_a_game_whose_actions_do_not_fit_is_refused_with_the_action_and_what_to_do():
    games = ("TicTacToe-v0", "Poker-v0", "ConnectFour-v0")
    message = refused(games, 1)
    found = re.search(r"games\.Poker-v0: the legal action '(\[.*?\])' takes (\d+) tokens, and a reply has 1 ", message)
    assert length(found[1]) == int(found[2]) > 1
    assert f"set rollout.max_reply_length to {found[2]} or more" in message
    check_actions_fit(config(games, 99), tokenizer())
    check_actions_fit(config(games, 1, legal_only=False), tokenizer())
    other = refused(("Poker-v0",), 99, opponent_reply=OpponentReplyConfig(max_length=1))
    assert f"set opponent_reply.max_length to {found[2]} or more" in other


def test_a_stop_string_inside_an_action_is_refused():
    assert "holds the stop string 'A' before its last token" in refused(("TowerOfHanoi-v0",), 99, stop=("A",))
    assert "change rollout.stop" in refused(("TowerOfHanoi-v0",), 99, stop=("A",))


def test_games_that_list_nothing_or_raise_are_no_reason_to_refuse(monkeypatch):
    def broken(_):
        raise RuntimeError("broken")

    monkeypatch.setattr(Nim, "legal_actions", broken)
    check_actions_fit(config(("Nim-v0",), 99), tokenizer())


@pytest.mark.parametrize("game_id", ["twenty_questions", "wordle", "battleship"])
def test_games_with_simulators_and_many_actions_are_looked_at_too(game_id):
    check_actions_fit(config((game_id,), 400, stop=()), tokenizer())


def test_every_recipe_that_plays_looks_before_it_plays(tmp_path):
    game = ("LiarsDice-v0",)
    says = r"games\.LiarsDice-v0: the legal action .* takes \d+ tokens"
    with pytest.raises(ConfigError, match=says):
        RolloutWorkers(config(game, 1), sampling=SamplingConfig())
    tournament = config(game, 1, kind=Evaluate, policies=("tiny_player", "strong"), seeds=1)
    with pytest.raises(ConfigError, match=says):
        TournamentPlayers(tournament)
    made = config(game, 1, kind=TinyPlayer, tokens_per_game=2000, steps=1, vocabulary=560)
    with RunFolder.open(tmp_path / "run", made, command="test") as folder, pytest.raises(ConfigError, match=says):
        tiny_player.run(made, folder, Stop())


def test_restricted_replies_and_thoughts_are_refused_together():
    rollout = dataclasses.replace(config(("Nim-v0",), 8).rollout, prompt="think")
    asked = dataclasses.replace(config(("Nim-v0",), 8), rollout=rollout)
    assert any("rollout.legal_only=true leaves no room for the thought" in problem for problem in problems(asked))


# ---- while games are played -----------------------------------------------------------------------------------------


class Told:
    """Stands in for the engine; nothing is ever drawn."""

    max_length = 4096

    def version(self, policy):
        return len(policy)


def started(game, limit, stop=()):
    rollout = RolloutConfig(max_length=4096, max_reply_length=limit, legal_only=True, stop=stop)
    context = MatchContext(rollout, tokenizer(), Told(), "policy", RandomLegal(), "other", {}, 1.0, 1)
    match = Match.create(context, 0, EpisodeSpec(game, {}, 0, 0, 0, 0))
    return match, match.start()


@pytest.mark.parametrize(("limit", "stop", "why"), [(1, (), "takes"), (99, ("A",), "holds the stop string 'A'")])
def test_an_action_that_would_be_cut_fails_its_game_by_name(limit, stop, why):
    match, waits = started("TowerOfHanoi-v0", limit, stop)
    assert waits is None
    assert "the constraint to game.legal_actions for seat 0, reply 1 of the game, raised ValueError: the legal " in (
        match.failure
    )
    assert why in match.failure
    assert match.episodes()[0].failed


def test_what_fits_is_asked_for_under_its_constraint():
    match, waits = started("ConnectFour-v0", 99, ("]",))
    assert waits == "engine"
    assert isinstance(match.constraint, ActionTrie)


def test_the_games_own_limit_of_a_reply_counts(monkeypatch):
    monkeypatch.setattr(type(registry.make("Nim-v0")), "max_reply_tokens", 1)
    assert "the game itself allows no more than 1" in refused(("Nim-v0",), 99)
    assert "takes" in started("Nim-v0", 99)[0].failure


def test_a_seated_model_refuses_it_too():
    rollout = RolloutConfig(max_length=160, max_reply_length=1, legal_only=True)
    game: Game = registry.make("LiarsDice-v0")
    game.reset(0)
    with pytest.raises(ValueError, match=r"the legal action .* takes"):
        ModelPlayer(rollout, tokenizer(), Told()).act(game, GameRng(0))

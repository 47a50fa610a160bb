"""Games played through the textarena package: whole games beside the native ones, seeds, threads, copies, faults.

Works with textarena 0.6.4 and 0.7.4; figures that differ between them are looked up by version.
"""

import json
import platform
import random
import sys
import threading

import numpy as np
import pytest
from textarena.envs import registration
from textarena_turns import OLD, PAPER, finished, reply_for, started

from dfc.games import registry
from dfc.games.adapters import textarena as adapter
from dfc.games.conformance.check import PROPERTIES, run
from dfc.games.conformance.protocol import Subject
from dfc.games.conformance.replies import UNSEEN
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed

TALK = [name for name in PAPER if name.startswith(("SimpleNegotiation", "TruthAndDeception"))]
MORE = ["Nim-v0", "KuhnPoker-v0", "Othello-v0", "UltimateTicTacToe-v0", "Mastermind-v0", "SimpleTak-v0"]
RANDOM = [name for name in PAPER if name.startswith(("Guess", "Liars", "Poker", "Simple", "Truth"))]

# ---- whole games ----------------------------------------------------------------------------------------------------


def test_the_paper_names_eighteen_ids():
    assert len(PAPER) == 18
    assert set(PAPER) <= set(adapter.names())


@pytest.mark.parametrize("name", PAPER)
def test_a_random_game_ends_with_outcomes_of_its_rules(name):
    for seed in range(3):
        game, verdicts, shown = finished(name, seed)
        assert game.id == f"textarena:{name}"
        assert game.seats == (1 if name.startswith(("Guess", "Tower")) else 2)
        assert game.seats == registry.make(name).seats
        assert game.actions_played == verdicts.count("played")
        assert shown[0].startswith(f"{name}. ")
        if game.seats == 1:
            assert game.outcomes[0] in {"win", "draw", "loss", "invalid"}
            assert (game.outcomes[0] == "win") == (game.measures()["reward_0"] == 1)
        else:
            ends = [["draw", "draw"], ["loss", "win"], ["invalid", "win"]]
            assert sorted(map(str, game.outcomes)) in ends
        assert set(verdicts) <= {"played", "illegal", "forfeit_illegal"}
        assert game.legal_actions() == []


@pytest.mark.parametrize("name", ["TicTacToe-v0", "ConnectFour-v0", "ConnectFour-v0-blind", "ConnectFour-v0-large"])
def test_board_games_end_as_the_native_ones_with_the_same_actions(name):
    ends = set()
    for seed in range(12):
        rng = GameRng(derive_seed("mirror", seed))
        native, game = registry.make(name), started(name, seed)
        native.reset(seed)
        while not native.over:
            assert game.to_move == native.to_move
            actions = native.legal_actions()
            action = actions[rng.randrange(len(actions))]
            assert native.step(action) is game.step(f"<think>[col 99]</think>I play {action}.") is Verdict.PLAYED
        assert game.outcomes == native.outcomes
        assert game.actions_played == native.actions_played
        ends.add(game.outcomes)
    assert len(ends) >= 2


def test_nim_ends_as_the_native_one():
    for seed in range(5):
        rng = GameRng(derive_seed("mirror", seed))
        native, game = registry.make("Nim-v0"), started("Nim-v0", seed)
        native.reset(seed)
        while not native.over:
            actions = native.legal_actions()
            action = actions[rng.randrange(len(actions))]
            assert native.step(action) is game.step(action) is Verdict.PLAYED
        assert game.outcomes == native.outcomes


def test_hanoi_is_solved_by_seven_moves_and_not_by_the_turn_limit():
    game = started("TowerOfHanoi-v0")
    for move in ("[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"):
        assert game.step(move) is Verdict.PLAYED
    assert game.outcomes == (Outcome.WIN,)
    game = started("TowerOfHanoi-v0")
    while not game.over:
        game.step("[A B]")
        if not game.over:
            game.step("[B A]")
    assert game.actions_played == (100 if OLD else 15)
    assert game.outcomes == (Outcome.DRAW if OLD else Outcome.LOSS,)


def test_only_one_move_of_a_reply_is_played():
    game = started("TowerOfHanoi-v0")  # the package would play both
    assert game.step("[A C] [A B]") is Verdict.FORFEIT_MALFORMED
    assert game.outcomes == (Outcome.INVALID,)


@pytest.mark.parametrize("name", MORE)
def test_games_without_a_native_engine_begin_and_forfeit(name):
    game = started(name)
    assert game.observation(game.to_move).startswith(f"{name}. ")
    assert "Reply with one action in square brackets." in game.observation(game.to_move)
    loser = game.to_move
    assert game.step("[no such action 7]") is Verdict.ILLEGAL
    said = game.observation(loser)
    assert said.startswith("Refused: ")
    assert said.endswith(" Try again.")
    assert not any(c.isdigit() for c in said)
    assert game.step("[no such action 7]") is Verdict.FORFEIT_ILLEGAL
    assert game.outcomes[loser] == "invalid"
    assert [end for s, end in enumerate(game.outcomes) if s != loser] == ["win"] * (game.seats - 1)


# ---- replies --------------------------------------------------------------------------------------------------------


def test_an_illegal_reply_changes_nothing_and_the_other_seat_hears_nothing():
    game = started("TicTacToe-v0", illegal_allowance=2)
    game.step("[4]")
    before, other = game.to_json()["state"], game.observation(0)
    for _ in range(2):
        assert game.step("[4]") is Verdict.ILLEGAL
    assert (game.to_json()["state"], game.observation(0), game.to_move) == (before, other, 1)
    assert game.step("[0]") is Verdict.PLAYED
    assert game.step("[0]") is Verdict.ILLEGAL  # the count begins anew
    assert game.illegal_tries == [1, 2]


@pytest.mark.parametrize("reply", ["hello", "", "[1] [2]", "[" + "9" * 5000 + "]", "[x" * 50_000, "<think>[4]"])
def test_what_holds_no_single_group_is_malformed(reply):
    assert started("TicTacToe-v0").step(reply) is Verdict.FORFEIT_MALFORMED
    game = started("TicTacToe-v0", malformed_allowance=1)
    assert game.step(reply) is Verdict.MALFORMED
    assert game.step("[4]") is Verdict.PLAYED


def test_talk_reaches_the_opponent_on_one_line_without_thoughts():
    game = started("TruthAndDeception-v0")
    assert game.talk
    assert game.step("<think>I lie.</think>Fact 1\nis\ttrue.") is Verdict.PLAYED
    lines = game.observation(1).split("\n")
    assert "Opponent: Fact 1 is true." in lines
    assert "lie" not in game.observation(1)
    assert "Reply with what you say" in lines[0]
    assert game.step("x" * 100_000) is Verdict.PLAYED
    assert game.observation(0).count("x") == 4000
    assert game.step(f"Fact{UNSEEN} 2{UNSEEN}") is Verdict.PLAYED
    assert "Opponent: Fact 2" in game.observation(1).split("\n")
    assert game.step("\n ") is Verdict.FORFEIT_MALFORMED


@pytest.mark.parametrize("name", TALK)
def test_talk_is_the_default_where_words_count_and_can_be_switched_off(name):
    assert registry.defaults(f"textarena:{name}")["talk"] is True
    assert registry.defaults("textarena:TicTacToe-v0")["talk"] is False
    game = started(name, talk=False)
    assert game.step("no brackets") is Verdict.FORFEIT_MALFORMED


def test_the_last_turn_asks_for_the_guess_and_decides():
    ends = set()
    for seed in range(6):
        game = started("TruthAndDeception-v0", seed)
        for _ in range(5):
            game.step("Trust me.")
        assert "Now guess" in game.observation(1)
        true = next(k for k in (1, 2) if game._session.state.game_state[f"fact{k}"]["is_correct"])
        game.step(f"[Fact {true if seed % 2 else 3 - true}]")
        ends.add((seed % 2, game.outcomes))
    assert ends == {(1, ("loss", "win")), (0, ("win", "loss"))}


@pytest.mark.parametrize("reply", ["[Check]", "[Fold me a boat]", "[Check] please"])
def test_poker_ends_though_the_package_would_ask_for_ever(reply):
    game = started("Poker-v0")
    for _ in range(2000):
        if game.over:
            break
        game.step(reply)
    assert game.over


def test_the_cap_truncates():
    game = started("LiarsDice-v0", max_actions=2)
    game.step("[Bid: 1, 1]")
    assert not game.over
    game.step("[Bid: 1, 2]")
    assert game.outcomes == ("truncated", "truncated")
    assert game.info.max_game_length == 2
    with pytest.raises(ValueError, match="max_actions must be 1 or more, got 0"):
        registry.make("textarena:TicTacToe-v0", max_actions=0)


def test_an_error_inside_the_package_discards_the_game(monkeypatch):
    game = started("TicTacToe-v0")

    def fail(action):
        raise KeyError(action)

    monkeypatch.setattr(game._session, "step", fail)
    assert game.step("[4]") is Verdict.DISCARDED
    assert game.outcomes == ("truncated", "truncated")
    assert game.discarded == "TicTacToe-v0 of textarena raised KeyError: '[4]'"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            """BOARD = {"a": 1}\nTEXT = f"{BOARD["a"]}"\n""",
            r"Quoted-v0 needs Python 3\.12 or newer, and this is Python {running} \(line 2 of {file}: f-string",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads it"),
            id="quotes within quotes",
        ),
        pytest.param(
            "BOARD = 1\nBOARD BOARD\n",
            r"Quoted-v0 cannot be read by this Python {running} \(line 2 of {file}: invalid syntax\)",
            id="no Python at all",
        ),
    ],
)
def test_a_game_whose_file_this_python_cannot_read_says_so(tmp_path, monkeypatch, source, expected):
    path = tmp_path / "quoted_env.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = registration.EnvSpec("Quoted-v0", "quoted_env:Env", [])
    monkeypatch.setitem(registration.ENV_REGISTRY, "Quoted-v0", spec)
    adapter.names.cache_clear()
    try:
        with pytest.raises(ValueError, match=expected.format(running=platform.python_version(), file=path)):
            registry.make("textarena:Quoted-v0")
    finally:
        adapter.names.cache_clear()


@pytest.mark.skipif(OLD or sys.version_info >= (3, 12), reason="textarena 0.7.4 has such games, for older Pythons")
@pytest.mark.parametrize("name", ["Chess-v0", "Checkers-v0", "ReverseTicTacToe-v0", "IteratedStagHunt-v0"])
def test_games_of_the_newer_package_that_need_python_3_12(name):
    with pytest.raises(ValueError, match=rf"textarena's {name} needs Python 3\.12 or newer, and this is Python 3\.11"):
        registry.make(f"textarena:{name}")


# ---- endings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "old", "new"),
    [
        ((1.0,), ("win",), ("win",)),
        ((0.947,), ("draw",), ("loss",)),
        ((0.0,), ("draw",), ("loss",)),
        ((-1.0,), ("loss",), ("loss",)),
        ((1.0, -1.0), ("win", "loss"), None),
        ((-1.0, 1.0), ("loss", "win"), None),
        ((0.0, 0.0), ("draw", "draw"), None),
        ((1.0, 3.0), ("loss", "win"), None),
        ((-1.0, 0.0), ("loss", "win"), None),
    ],
)
def test_rewards_are_read_as_outcomes(rewards, old, new):
    assert adapter.outcomes(rewards, partial_is_draw=True) == old
    assert adapter.outcomes(rewards, partial_is_draw=False) == (new or old)


def test_a_disqualification_by_the_package_is_read_as_one():
    game = started("TicTacToe-v0")
    game._session.state.error_allowance = 0
    assert game.step("[no]") is Verdict.PLAYED
    assert game.outcomes == ("invalid", "win")
    assert game.forfeited_by == 0


def test_an_ending_without_rewards_is_discarded():
    game = started("TicTacToe-v0")
    game._session.step = lambda _: (True, {})
    assert game.step("[4]") is Verdict.DISCARDED
    assert "ended with the rewards None" in game.discarded


# ---- seeds, threads, copies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANDOM)
def test_the_seed_alone_decides(name):
    state = random.getstate(), np.random.get_state()  # noqa: NPY002 (that this generator is left alone is the claim)
    ends = []
    for noise in (1, 2):
        random.seed(noise)
        game, verdicts, shown = finished(name, 7)
        ends.append((game.to_json(), verdicts, shown))
    assert ends[0] == ends[1]
    random.setstate(state[0])
    starts = {started(name, seed)._session.state.game_state.__repr__() for seed in range(8)}
    assert len(starts) >= 4


@pytest.mark.parametrize("name", ["LiarsDice-v0", "TicTacToe-v0"])
def test_the_global_generators_are_left_alone(name):
    random.seed(5)
    before, numpy = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 (as above)
    finished(name, 0)
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numpy  # noqa: NPY002 (as above)


def test_four_threads_play_the_games_that_one_plays():
    expected = {seed: finished("LiarsDice-v0", seed)[0].to_json() for seed in range(8)}
    found: dict[int, list[object]] = {seed: [] for seed in expected}

    def play(first):
        for k in range(8):
            seed = (first + k) % 8
            found[seed].append(finished("LiarsDice-v0", seed)[0].to_json())

    before = random.getstate()
    threads = [threading.Thread(target=play, args=(2 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(games == [expected[seed]] * 4 for seed, games in found.items())
    assert random.getstate() == before


@pytest.mark.parametrize("name", ["LiarsDice-v0", "Poker-v0", "SimpleNegotiation-v0", "TicTacToe-v0"])
def test_copies_and_records_have_the_same_future(name):
    game = started(name, 3)
    rng = GameRng(derive_seed("future", name))
    replies = []
    while not game.over and len(replies) < 40:
        twin = game.clone()
        record = registry.make(game.id)
        record.from_json(json.loads(json.dumps(game.to_json())))
        reply = reply_for(game, rng)
        replies.append(reply)
        verdict = game.step(reply)
        for other in (twin, record):
            assert [other.observation(s) for s in range(2)] != [""] * 2
            assert other.step(reply) is verdict
            assert other.to_json() == game.to_json()
    assert len(replies) > 4


def test_a_copy_is_independent():
    game = started("TicTacToe-v0")
    game.step("[4]")
    twin = game.clone()
    twin.step("[0]")
    assert game.step("[0]") is Verdict.PLAYED
    assert twin.step("[1]") is Verdict.PLAYED
    assert game.to_move == 0
    assert twin.to_move == 1


class Listed:
    """What a game of the package needs to be checked as one of this package's: a list, and that it begins alike."""

    start = "fixed"

    def legal_actions(self):
        taken = set(self._replies)
        return [] if self.to_move is None else [f"[{n}]" for n in range(9) if f"[{n}]" not in taken]


def test_tic_tac_toe_keeps_the_protocol_but_for_the_form_of_its_texts():
    kind = type("Listed", (Listed, registry.kind("textarena:TicTacToe-v0")), {})
    subject = Subject(kind, range(2), {})
    faults = {name: run(name, holds, subject) for name, holds in PROPERTIES.items()}
    shown = faults.pop("observations are well-formed")
    assert not any(faults.values()), faults
    assert all("blanks at an end of a line" in fault or "player's number" in fault for fault in shown)

"""Games that do not go well: players and games that raise, games that never end, interrupts."""

import dataclasses
import re
import sys

import pytest
import watched_runners
from watched_runners import ROLLOUT, SLOTS, FirstFree, first_free, make, same, specs, truncated

from dfc.errors import ExitError
from dfc.games import registry
from dfc.games.replay import ReplayError, replay
from dfc.games.scripted import RandomLegal
from dfc.games.textarena.tic_tac_toe import TicTacToe
from dfc.players.remote import FunctionPlayer

tokenizer = watched_runners.tokenizer  # the fixture


# ---- what raises ------------------------------------------------------------------------------------------------


class RaisesAt:
    """Plays random legal actions; at its third turn, in games of an even deal, it does something else."""

    def __init__(self, deed):
        self.deed = deed

    def act(self, game, rng):
        if game.rng.seed % 2 == 0 and game.actions_played >= 4:
            return self.deed()
        return RandomLegal().act(game, rng)


PLACE = r" \(.*test_runner_failures\.py:\d+ in {}\)"  # of the line that raised
BREAK = PLACE.format("_break")


def raising(error):
    def deed():
        raise error

    return deed


def test_a_player_that_raises_ends_its_game_as_failed_and_no_other(tokenizer):
    healthy = make(tokenizer, RandomLegal())[0].play(specs(12))
    runner, engine = make(tokenizer, RaisesAt(raising(LookupError("no such opening"))))
    found = runner.play(specs(12))
    assert [e.game_seed for e in found] == list(range(12))
    assert sum(e.failed for e in found) > 3
    for episode, whole in zip(found, healthy, strict=True):
        late = any(reply.seat != whole.seat for reply in whole.replies[4:])
        assert episode.failed == (late and episode.game_seed % 2 == 0)
        if not episode.failed:
            same(episode, whole)
            assert "failure" not in episode.record()
            continue
        count = len(episode.replies)
        expected = (
            f"opponent other for seat {1 - episode.seat}, reply {count + 1} of the game, raised "
            "LookupError: no such opening"
        )
        assert re.fullmatch(re.escape(expected) + PLACE.format("deed"), episode.failure)
        assert episode.record()["failure"] == episode.failure
        assert (truncated(episode), episode.forfeited_by, episode.malformed) == (True, None, False)
        assert episode.replies == whole.replies[:count]
        assert episode.sample.token_ids.tolist() == whole.sample.token_ids[: len(episode.sample.token_ids)].tolist()
        list(replay(episode.record()))
    assert engine.free == SLOTS


def test_an_action_that_is_no_text_is_the_players_failure(tokenizer):
    runner, _ = make(tokenizer, RaisesAt(lambda: 4))
    failures = {e.failure for e in runner.play(specs(4, seat=0)) if e.failed}
    assert failures == {"opponent other for seat 1 must return an action as str, got int"}


class Broken(TicTacToe):
    """Raises where it is told to, in games of an even deal."""

    where = ""

    def _break(self, where):
        if where == self.where and self.rng.seed % 2 == 0 and (where == "reset" or self.actions_played > 1):
            raise RuntimeError(f"broken {where}")

    def reset(self, seed):
        super().reset(seed)
        self._break("reset")

    def observation(self, seat):
        self._break("observation")
        return super().observation(seat)

    def legal_actions(self):
        self._break("legal_actions")
        return super().legal_actions()

    def step(self, reply):
        self._break("step")
        verdict = super().step(reply)
        if self.over:
            self._break("end")
        if self.where == "to_move" and self.rng.seed % 2 == 0 and self.to_move is not None:
            self.to_move = 7
        return verdict


@pytest.mark.parametrize("opponent", ["scripted", "remote", "policy"])
@pytest.mark.parametrize(
    ("where", "failure"),
    [
        ("reset", r"game\.reset raised RuntimeError: broken reset" + BREAK),
        (
            "observation",
            r"game\.observation for seat \d, reply 3 of the game, raised RuntimeError: broken observation" + BREAK,
        ),
        ("legal_actions", r"(game\.legal_actions|opponent other) for seat \d, reply 3 .* RuntimeError: broken legal.*"),
        (
            "step",
            r"game\.step for seat 0, reply 3 of the game, raised RuntimeError: broken step"
            + BREAK
            + r"; the reply was '\[\d\]'",
        ),
        (
            "end",
            r"game\.step for seat \d, reply \d of the game, raised RuntimeError: broken end"
            + BREAK
            + r"; the reply was '\[\d\]'",
        ),
        ("to_move", r"game\.to_move is 7, expected a seat from 0 to 1"),
    ],
)
def test_a_game_that_raises_ends_as_failed_and_no_other(tokenizer, monkeypatch, where, failure, opponent):
    monkeypatch.setitem(registry._GAMES, "Broken-v0", registry.Entry(Broken))
    monkeypatch.setattr(Broken, "where", where)
    other = {"scripted": RandomLegal(), "remote": FunctionPlayer(first_free), "policy": "policy"}[opponent]
    runner, engine = make(tokenizer, other)
    found = runner.play(specs(8, "Broken-v0"))
    for episode in found:
        if opponent == "remote" and where == "legal_actions" and episode.seat == 1:
            continue  # nobody lists its actions at reply 3; the policy's are listed at reply 4
        assert episode.failed == (episode.game_seed % 2 == 0)
        assert not episode.failed or re.fullmatch(failure, episode.failure)
        assert not episode.failed or truncated(episode)
    assert sum(e.failed for e in found) == 4
    assert engine.free == SLOTS


def test_a_disturbance_without_a_legal_action_is_a_failure(tokenizer, monkeypatch):
    monkeypatch.setitem(registry._GAMES, "Broken-v0", registry.Entry(Broken))
    monkeypatch.setattr(Broken, "legal_actions", lambda _: [])
    (episode,) = make(tokenizer, "policy")[0].play(specs(1, "Broken-v0", random_action_rate=1.0))
    assert episode.failure == "game.legal_actions for seat 0 is empty, but random_action_rate asks for one of them"


def test_an_action_that_cannot_be_spelled_is_a_failure(tokenizer, monkeypatch):
    monkeypatch.setitem(registry._GAMES, "Broken-v0", registry.Entry(Broken))
    monkeypatch.setattr(Broken, "legal_actions", lambda _: [""])
    (episode,) = make(tokenizer, "policy")[0].play(specs(1, "Broken-v0"))
    assert episode.failure.startswith(
        "the constraint to game.legal_actions for seat 0, reply 1 of the game, raised Val"
    )


@pytest.mark.parametrize("opponent", ["policy", "scripted"])
def test_a_game_that_never_ends_is_truncated(tokenizer, monkeypatch, opponent):
    class Endless(TicTacToe):
        def _objection(self, _):
            return None

        def _play(self, _):
            self._tell_all("Nothing happened.")
            return 1 - self.to_move

    class Miscounting(Endless):
        def _play(self, _):
            self.actions_played = 0
            return 1 - self.to_move

    monkeypatch.setitem(registry._GAMES, "Endless-v0", registry.Entry(Endless))
    monkeypatch.setitem(registry._GAMES, "Miscounting-v0", registry.Entry(Miscounting))
    other = RandomLegal() if opponent == "scripted" else opponent
    longer = dataclasses.replace(ROLLOUT, max_length=1024)
    # By default the game's own longest play; one that does not count its actions, the replies these could take at most.
    for game, rollout, limit in (
        ("Endless-v0", longer, 9),
        ("Endless-v0", dataclasses.replace(longer, max_actions=40), 40),
        ("Miscounting-v0", longer, 9 * 2),
        ("Endless-v0", dataclasses.replace(ROLLOUT, max_actions=40), None),
    ):
        runner, engine = make(tokenizer, other, rollout=rollout)
        for episode in runner.play(specs(6, game)):
            assert (truncated(episode), episode.failed) == (True, False)
            assert limit is None or len(episode.replies) == limit
            assert (episode.overrun_by is None) == (limit is not None)
            assert limit is not None or len(episode.replies) < 40  # the context was full before
            assert not episode.sample.mask[rollout.max_length :].any()
        assert engine.free == SLOTS


def test_who_is_ahead_at_the_limit_of_actions_has_won(tokenizer, monkeypatch):
    class Centre(TicTacToe):
        def measures(self):
            return {"lead": 1.0}

        def standing(self):
            return self._won_by(1)

    monkeypatch.setitem(registry._GAMES, "Centre-v0", registry.Entry(Centre))
    runner, _ = make(tokenizer, FirstFree(), rollout=dataclasses.replace(ROLLOUT, max_actions=2))
    for episode in runner.play(specs(4, "Centre-v0")):
        assert (len(episode.replies), episode.outcomes, episode.counted) == (2, ("loss", "win"), True)
        assert episode.measures == {"lead": 1.0}
        list(replay(episode.record()))
        for outcomes in (["win", "loss"], ["draw", "draw"]):
            with pytest.raises(ReplayError, match="ended with outcomes"):
                list(replay(episode.record() | {"outcomes": outcomes}))
    monkeypatch.setattr(Centre, "standing", lambda _: ("win",))
    for episode in runner.play(specs(2, "Centre-v0")):
        assert "the end at rollout.max_actions raised ValueError: Centre-v0: standing() must be" in episode.failure


# ---- what ends the play -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "ends"), [(KeyboardInterrupt(), KeyboardInterrupt), (SystemExit(3), ExitError)])
@pytest.mark.parametrize("opponent", ["scripted", "remote"])
def test_an_interrupt_ends_the_play_and_frees_the_slots(tokenizer, error, ends, opponent):
    def interrupted(messages):
        if len(messages) > 3:
            raise error
        return first_free(messages)

    other = RaisesAt(raising(error)) if opponent == "scripted" else FunctionPlayer(interrupted)
    runner, engine = make(tokenizer, other)
    with pytest.raises(ends) as caught:
        runner.play(specs(12))
    assert engine.free == SLOTS
    if ends is ExitError:
        who = r"^games 'TicTacToe-v0': opponent other for seat \d, reply \d+ of the game, called sys\.exit\(3\)"
        assert re.search(rf"{who} \({__file__}:", str(caught.value))


def test_a_game_that_calls_exit_ends_the_play_by_name(tokenizer, monkeypatch):
    def leaves(*_):
        sys.exit(0)

    runner, engine = make(tokenizer, "policy")
    for method in ("_play", "observation"):
        with monkeypatch.context() as patched:
            patched.setattr(type(registry.make("TicTacToe-v0")), method, leaves)
            with pytest.raises(ExitError, match=r"^games 'TicTacToe-v0'.* called sys\.exit\(0\) .* in leaves\)"):
                runner.play(specs(3))
        assert engine.free == SLOTS


def test_an_error_of_the_engine_ends_the_play_and_the_engine_plays_on(tokenizer):
    runner, engine = make(tokenizer, "policy")
    expected = runner.play(specs(6))
    engine.breaks = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        runner.play(specs(6))
    assert engine.free == SLOTS
    for first, second in zip(runner.play(specs(6)), expected, strict=True):
        same(first, second)


def test_an_error_of_the_jobs_ends_the_play_and_frees_the_slots(tokenizer):
    def listed():
        yield from specs(3)
        raise OSError("the list is gone")

    runner, engine = make(tokenizer, "policy")
    with pytest.raises(OSError, match="the list is gone"):
        runner.play(listed())
    assert engine.free == SLOTS
    with pytest.raises(ValueError, match="there is no game id 'Chess'"):
        runner.play([*specs(2), *specs(1, "Chess")])
    assert engine.free == SLOTS

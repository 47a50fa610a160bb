"""Games whose world answers in words: who answers for it, what they are shown, and what happens if they are of no use.

The game is a riddle of five numbers; the world says whether the guess is right, the judge confirms it.
"""

import dataclasses
import re
import threading
import time

import pytest
import watched_runners

from dfc.config import RolloutConfig, SamplingConfig
from dfc.episodes import from_bytes, to_bytes
from dfc.games import registry
from dfc.games.game import Game, Outcome
from dfc.games.registry import Entry
from dfc.games.replay import replay
from dfc.inference.engine import Engine
from dfc.models.chat import ChatTokenizer
from dfc.players.remote import FunctionPlayer
from dfc.rollout.runner import EpisodeSpec, RolloutRunner
from dfc.tools.small_models import build_tokenizer

SLOTS = 12
ROLLOUT = RolloutConfig(
    slots=4,
    max_length=384,
    max_reply_length=6,
    simulator_reply_length=6,
    stop=("]",),
    legal_only=True,
)


class Riddle(Game):
    """A number from 0 to 4; world and judge answer in words."""

    seats, start, grammar = 1, "random", "[3]"
    simulators = ("world", "judge")
    stateless_roles = frozenset({"judge"})

    max_game_length = 5

    def _begin(self):
        self.secret, self.said = self.rng.randrange(5), []
        return 0

    def _rules(self, seat):
        return ("Guess. Reply with a number.", f"You know that it is {self.secret}.", f"Is it {self.secret}?")[seat]

    def _read(self, action):
        return action if re.fullmatch(r"\[[0-4]\]", action) else None

    def _objection(self, action):
        return "That was guessed. Try again." if action in self.said else None

    def _play(self, action):
        self.said.append(action)
        self._tell(1, f"Guess {action}")
        return 1

    def _answered(self, seat, reply):
        if seat == 1:
            if reply not in {"yes", "no"}:
                return "Say yes or no."
            self._tell(0, reply)
            self._tell(2, f"Guess {self.said[-1]}")
            return 2
        if reply not in {"valid", "invalid"}:
            return "Say valid or invalid."
        return (Outcome.WIN,) if reply == "valid" else 0

    def legal_actions(self):
        return [] if self.to_move != 0 else [f"[{n}]" for n in range(5) if f"[{n}]" not in self.said]

    def measures(self):
        return {"guesses": float(len(self.said))}

    def _state(self):
        return {"secret": self.secret, "said": list(self.said)}

    def _restore(self, state):
        self.secret, self.said = state["secret"], list(state["said"])


class World:
    def act(self, game, _):
        return "yes" if game.said[-1] == f"[{game.secret}]" else "no"


class Judge:
    def act(self, game, _):
        return "valid" if game.said[-1] == f"[{game.secret}]" else "invalid"


SCRIPTS = {"world": World(), "judge": Judge()}


def chat_world(messages):
    secret = re.search(r"it is (\d)", messages[0]["content"])[1]
    return "yes" if messages[-1]["content"].endswith(f"[{secret}]") else "no"


def chat_judge(messages):
    return "valid" if len(set(re.findall(r"\d", messages[-1]["content"]))) == 1 else "invalid"


@pytest.fixture(autouse=True)
def riddle(monkeypatch):
    monkeypatch.setitem(registry._GAMES, "Riddle-v0", Entry(Riddle))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    words = ["Guess. Reply with a number. You know that it is 0 1 2 3 4. Is it? Guess [0] yes no valid invalid Say or"]
    build_tokenizer.build(words * 20, folder, size=400)
    return ChatTokenizer.load(folder)


@pytest.fixture(scope="module")
def weights(tokenizer):
    return watched_runners.weights(tokenizer.vocabulary)


@pytest.fixture
def play(tokenizer, weights):
    """Returns a function that plays riddles with some simulators, and afterwards finds every slot free."""

    def played(simulators, count=8, rollout=ROLLOUT, **options):
        engine = Engine(
            *weights,
            slots=SLOTS,
            rows=4,
            max_length=ROLLOUT.max_length,
            stop_token_ids=tokenizer.stop_token_ids(ROLLOUT.stop),
            sampling=SamplingConfig(),
            prefill_buckets=(32,),
            decode_steps=8,
        )
        runner = RolloutRunner(rollout, tokenizer, engine, opponent_name="none", simulators=simulators, **options)
        found = runner.play([EpisodeSpec("Riddle-v0", {}, n, 0, n, 100 + n) for n in range(count)])
        assert engine.free == SLOTS
        return found

    return played


def test_scripts_answer_for_the_world_and_the_record_can_be_replayed(play):
    episodes = play(SCRIPTS)
    for episode in episodes:
        assert episode.outcomes == ("win",)
        assert [reply.speaker for reply in episode.replies] == ["policy", "simulator", "simulator"] * episode.steps
        assert episode.measures == {"guesses": episode.steps}
        assert episode.record()["measures"] == episode.measures
        assert [turn.status for turn in replay(episode.record())][:3] == ["policy", "simulator", "simulator"]
    assert from_bytes(to_bytes(episodes))[3].measures == episodes[3].measures
    episodes[3].overrun_by = 0
    assert from_bytes(to_bytes(episodes))[3].record() == episodes[3].record()
    assert (episodes[3].record()["overrun_by"], "overrun_by" in episodes[0].record()) == (0, False)


def test_remote_simulators_play_as_scripts_of_the_same_mind(play):
    for found, expected in zip(
        play({"world": FunctionPlayer(chat_world), "judge": FunctionPlayer(chat_judge)}), play(SCRIPTS), strict=True
    ):
        assert found.record() == expected.record()
        assert found.sample.token_ids.tolist() == expected.sample.token_ids.tolist()


def test_the_world_remembers_and_the_judge_does_not(play):
    chats, lock = {"world": [], "judge": []}, threading.Lock()

    def noting(role, answer):
        def reply(messages):
            with lock:
                chats[role].append(messages)
            return answer(messages)

        return FunctionPlayer(reply)

    (episode,) = play({"world": noting("world", chat_world), "judge": noting("judge", chat_judge)}, count=1)
    assert [len(chat) for chat in chats["world"]] == [2 * turn + 1 for turn in range(episode.steps)]
    assert {len(chat) for chat in chats["judge"]} == {1}
    assert all("Is it" in chat[0]["content"] for chat in chats["judge"])
    assert "You know" not in str([turn.observation for turn in replay(episode.record()) if turn.seat == 0])


def test_a_world_of_no_use_is_asked_five_times_and_fails_its_episode_only(play):
    class Sometimes(World):
        def act(self, game, rng):
            return "hm" if game.rng.seed % 2 else super().act(game, rng)

    for number, episode in enumerate(play({"world": Sometimes(), "judge": Judge()})):
        if number % 2:
            assert episode.failed
            assert "the world gave 5 replies in a row that are of no use" in episode.failure
            assert "Say yes or no." in episode.failure
            assert episode.outcomes == ("truncated",)
            assert [reply.speaker for reply in episode.replies] == ["policy", *["simulator"] * 5]
            assert episode.measures == {}
        else:
            assert episode.outcomes == ("win",)


def test_a_simulator_that_mends_its_reply_is_taken_at_its_word(play):
    tries = []

    class Second(World):
        def act(self, game, rng):
            tries.append(1)
            return "hm" if len(tries) % 2 else super().act(game, rng)

    (episode,) = play({"world": Second(), "judge": Judge()}, count=1)
    assert episode.outcomes == ("win",)
    assert len(tries) == 2 * episode.steps


def test_a_policy_of_the_engine_can_be_a_simulator(play):
    """Random weights say nothing of use; what matters is that they are asked, greedily, and their slots come back."""
    first = play({"world": "policy", "judge": Judge()})
    assert {episode.failed for episode in first} == {True}
    again = play({"world": "policy", "judge": Judge()}, count=3)
    assert [episode.record() for episode in again] == [episode.record() for episode in first[:3]]
    worlds = [[r.text for r in episode.replies if r.seat == 1] for episode in first]
    assert all(len(said) == 5 for said in worlds)


def test_a_judge_in_the_engine_is_asked_five_times_too(play):
    episodes = play({"world": World(), "judge": "policy"}, count=2)
    assert all("the judge gave 5 replies" in episode.failure for episode in episodes)


def test_a_simulator_that_fills_its_context_fails_the_episode_and_truncates_nobody(play):
    for episode in play(
        {"world": "policy", "judge": Judge()}, rollout=dataclasses.replace(ROLLOUT, simulator_reply_length=999)
    ):
        assert episode.failure == "the world for seat 1 needs more than 384 tokens"


def test_a_game_that_was_set_aside_for_its_world_comes_back_to_its_judge(play):
    """Whoever is to move is asked then, and that need not be the policy that is trained."""

    def slow(messages):
        time.sleep(0.03)
        return chat_world(messages)

    rollout = dataclasses.replace(ROLLOUT, slots=1)
    simulators = {"world": FunctionPlayer(slow), "judge": "policy"}
    found = play(simulators, 4, rollout, park_after=0.001)
    for episode, expected in zip(found, play({"world": World(), "judge": "policy"}, 4), strict=True):
        assert episode.record() == expected.record()
        assert "the judge gave 5 replies" in episode.failure


def test_games_of_one_and_of_two_conversations_never_want_more_slots_than_there_are(tokenizer, weights):
    """Two games of one conversation make room for one of two, not one of them."""

    def slow(reply):
        def answer(_):
            time.sleep(0.05)
            return reply

        return FunctionPlayer(answer)

    sizes = {"rows": 3, "prefill_buckets": (32,), "decode_steps": 8}
    stop = tokenizer.stop_token_ids(ROLLOUT.stop)
    engine = Engine(
        *weights, slots=3, max_length=ROLLOUT.max_length, stop_token_ids=stop, sampling=SamplingConfig(), **sizes
    )
    simulators = {"world": "policy", "judge": slow("invalid")}
    runner = RolloutRunner(
        dataclasses.replace(ROLLOUT, slots=3),
        tokenizer,
        engine,
        opponent=slow("[4]"),
        opponent_name="slow",
        simulators=simulators,
        park_after=0.001,
        most_parked=8,
    )
    specs = [EpisodeSpec("TicTacToe-v0", {}, n, 1, n, n) for n in range(6)] + [
        EpisodeSpec("Riddle-v0", {}, n, 0, n, n) for n in range(3)
    ]
    found = runner.play(specs)
    assert [episode.game for episode in found] == [spec.game for spec in specs]
    assert engine.free == 3


def test_replies_of_simulators_do_not_count_as_the_players(play):
    episodes = play(SCRIPTS, rollout=dataclasses.replace(ROLLOUT, max_actions=5))
    assert {episode.outcomes for episode in episodes} == {("win",)}
    assert max(len(episode.replies) for episode in episodes) > 5
    for episode in play(SCRIPTS, rollout=dataclasses.replace(ROLLOUT, max_actions=1)):
        assert episode.steps == 1


def test_simulators_without_a_script_have_to_be_named(play):
    with pytest.raises(ValueError, match="no simulators for 'Riddle'"):
        play({"world": World()})


def test_a_dead_endpoint_fails_the_episodes_and_says_who(play):
    def dead(_):
        raise ConnectionError("nobody there")

    remote = FunctionPlayer(dead, retries=0, name="endpoint")
    episodes = play({"world": remote, "judge": Judge()}, count=3)
    for episode in episodes:
        assert "the world for seat 1" in episode.failure
        assert "nobody there" in episode.failure

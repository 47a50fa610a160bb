"""Truth and Deception: the game of textarena 0.6.4 but for the listed deviations, what the Guesser may know."""

import functools
import time

import game_turns
import pytest
from game_turns import pick
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.games import scripted
from dfc.games.bots.hidden_information import _asserted
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.textarena import truth_and_deception
from dfc.games.textarena.truth_and_deception import DECEIVER, GUESSER, TruthAndDeception, fact_pairs

GAMES = 2000  # against the oracle, per turn limit
STRATEGY_GAMES = 400
SIGN = {"invalid": -1, "loss": -1, "win": 1}


started = functools.partial(game_turns.started, TruthAndDeception)


def last_turn(seed=0, **options):
    """A game in which the guess is due."""
    game = started(seed, **options)
    while not game.last_turn:
        game.step("hm")
    return game


def pair(max_turns, seed):
    from textarena.envs.TruthAndDeception.env import TruthAndDeceptionEnv

    game = started(seed, max_turns=max_turns, split=pick(GameRng(seed), ("train", "eval")))
    env = TruthAndDeceptionEnv(max_turns=max_turns)
    env.reset(num_players=2)
    for number, fact in enumerate(game.facts_shown, 1):
        env.state.game_state[f"fact{number}"] = {"fact": fact, "is_correct": number == game.true_fact(DECEIVER)}
    return game, env


REPLIES = (
    "Fact 1 is true.",
    "[Fact 1]",
    "[Fact 1] [fact 2]",
    "I [think] it is\nfact 2",
    "[Fact 3]",
    "Caf\u00e9 [Fact 2]",
)
GUESSES = (
    "[Fact {}]",
    "[fact {}]",
    "Surely it is [FACT {}], not the other.",
    "[Fact {0}]\n[Fact {0}]",
    "[So] [Fact {}]",
)


@pytest.mark.parametrize("max_turns", [6, 12, 2])
def test_deception_is_the_game_of_textarena(max_turns):
    ends = set()
    for seed in range(GAMES):
        rng = GameRng(derive_seed("deception replies", seed))
        game, env = pair(max_turns, seed)
        while not game.over:
            seat = game.to_move
            assert seat == env.state.current_player_id
            reply = pick(rng, GUESSES).format(1 + rng.randrange(2)) if game.last_turn else pick(rng, REPLIES)
            assert game.step(reply) is Verdict.PLAYED
            done, _ = env.step(reply)
            assert done == game.over
            if not done:
                told = [text for sender, text in env.state.observations[game.to_move] if sender == -1]
                assert game.last_turn == any("Now guess" in text for text in told)
                assert game.last_turn == ("Guess now" in game.observation(game.to_move))
        rewards = env.close()
        assert [SIGN[outcome] for outcome in game.outcomes] == [rewards[who] for who in range(2)]
        assert game.actions_played == max_turns
        ends.add(game.outcomes)
    assert ends == {(Outcome.WIN, Outcome.LOSS), (Outcome.LOSS, Outcome.WIN)}


def test_naming_both_facts_wins_there_and_is_unreadable_here():
    for seed in range(10):
        game, env = pair(2, seed)
        game.step("hm")
        env.step("hm")
        reply = "[Fact 1] [Fact 2]"
        assert env.step(reply)[0]
        assert env.close() == {0: -1, 1: 1}
        assert game.step(reply) is Verdict.FORFEIT_MALFORMED
        assert game.outcomes == ("win", "invalid")
        assert game.measures()["correct"] == 0


def test_a_last_reply_without_a_guess_is_asked_again_there_and_forfeits_here():
    game, env = pair(2, 0)
    game.step("hm")
    env.step("hm")
    assert env.step("I do not know") == (False, {})
    assert game.step("I do not know") is Verdict.FORFEIT_MALFORMED
    assert game.outcomes == ("win", "invalid")


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("[Fact 1]", "[Fact 1]"),
        ("so [ fact2 ] it is", "so it is [Fact 2]"),
        ("[Fact 1] yes [FACT 1]", "yes [Fact 1]"),
        ("[No]thing: [Fact 2]", "(No)thing: [Fact 2]"),
        ("[Factual] [Fact 2]", "(Factual) [Fact 2]"),
        ("<think>[Fact 1]</think>[Fact 2]", "[Fact 2]"),
        ("[Fact 1] [Fact 2]", None),
        ("[Fact 1] [Fact 3]", None),
        ("[Fact 1: the Sun]", None),
        ("[Fact 1", None),
        ("[Fact \u0661]", None),
        ("Fact 1", None),
        ("1", None),
        ("", None),
    ],
)
def test_a_guess_names_exactly_one_fact(reply, action):
    game = last_turn()
    assert game.extract(reply) == action
    if action is not None:
        assert game._read(action) == game.extract(action) == action


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("[Fact 1]", "(Fact 1)"),
        ("[Fact 1] [Fact 2] [Fact 7", "(Fact 1) (Fact 2) (Fact 7"),
        ("a\nb", "a b"),
        (" ", None),
        ("<think>x", None),
    ],
)
def test_before_the_last_turn_everything_is_words(reply, action):
    guesser_speaks = started(max_turns=4)
    guesser_speaks.step("hm")
    for game in (started(), guesser_speaks):
        assert game.extract(reply) == action
        if action is not None:
            assert game._read(action) == game.extract(action) == action
            other = 1 - game.to_move
            assert game.step(reply) is Verdict.PLAYED
            assert not game.over
            assert game.observation(other).split("\n")[-1] == f"Opponent: {action}"


def test_a_guess_before_the_last_turn_does_not_end_the_game():
    game = started(max_turns=4)
    game.step("hm")
    assert game.step("[Fact 1]") is Verdict.PLAYED
    assert game.to_move == DECEIVER
    assert game.guess == 0


@pytest.mark.parametrize("number", [1, 2])
def test_the_outcome_follows_the_guess(number):
    for seed in range(20):
        game = last_turn(seed)
        right = game.true_fact(DECEIVER) == number
        game.step(f"I am sure. [Fact {number}]")
        assert game.outcomes == (("loss", "win") if right else ("win", "loss"))
        assert game.measures() == {"correct": right, "talk_0": 3 * 2, "talk_1": 2 * 2 + len("I am sure.")}


def test_the_deceiver_is_told_the_truth_and_both_see_the_same_facts():
    pairs = fact_pairs()
    shown = set()
    for seed in range(200):
        for split in pairs:
            game = started(seed, split=split)
            number = game.true_fact(DECEIVER)
            true, false = game.facts_shown[number - 1], game.facts_shown[2 - number]
            assert (true, false) in pairs[split]
            facts = [f"Fact {k}: {fact}" for k, fact in enumerate(game.facts_shown, 1)]
            told = game.observation(DECEIVER).split("\n")
            assert told[1:] == [*facts, f"Fact {number} is true, Fact {3 - number} is false."]
            assert game.observation(GUESSER).split("\n")[1:] == facts
            shown.add((split, number))
    assert len(shown) == 4


def test_every_pair_is_shown_in_both_orders_about_equally_often():
    for split, size in TruthAndDeception.splits.items():
        games = [started(seed, split=split) for seed in range(20 * size)]
        assert len({(game._pair, game._true) for game in games}) == 2 * size
        first = sum(game._true == 1 for game in games) / len(games)
        assert abs(first - 0.5) < 5 * 0.5 / len(games) ** 0.5


def test_the_guesser_learns_nothing_of_the_truth_before_its_guess(monkeypatch):
    # The twin shows the same two statements in the same order, and the other one is true.
    compared = 0
    pairs = fact_pairs()
    turned = {split: [(false, true) for true, false in found] for split, found in pairs.items()}
    for seed in range(40):
        game = started(seed, split="eval")
        data = game.to_json()
        data["state"]["true"] = 3 - data["state"]["true"]
        monkeypatch.setattr(truth_and_deception, "fact_pairs", lambda: turned)
        twin = TruthAndDeception(split="eval")
        twin.from_json(data)
        shown = twin.facts_shown
        rng = GameRng(derive_seed("twin", seed))
        replies = []
        while not twin.over:
            if twin.to_move == GUESSER:
                for strength in scripted.STRENGTHS:
                    player = scripted.player(game, strength)
                    replies.append(player.act(twin, GameRng(seed)))
            replies.append((twin.observation(GUESSER), twin.legal_actions()))
            twin.step(pick(rng, twin.legal_actions()))
        monkeypatch.setattr(truth_and_deception, "fact_pairs", lambda: pairs)
        assert game.facts_shown == shown
        assert game.true_fact(DECEIVER) != twin.true_fact(DECEIVER)
        rng = GameRng(derive_seed("twin", seed))
        expected = []
        while not game.over:
            if game.to_move == GUESSER:
                for strength in scripted.STRENGTHS:
                    player = scripted.player(game, strength)
                    expected.append(player.act(game, GameRng(seed)))
            expected.append((game.observation(GUESSER), game.legal_actions()))
            game.step(pick(rng, game.legal_actions()))
        assert replies == expected
        assert game.outcomes == twin.outcomes[::-1]
        compared += 1
    assert compared == 40
    with pytest.raises(ValueError, match="only seat 0 knows which fact is true, got 1"):
        game.true_fact(GUESSER)


def test_bad_options_are_refused():
    for turns in (0, 1, 7):
        with pytest.raises(ValueError, match=f"max_turns must be an even number from 2 on, .*got {turns}"):
            TruthAndDeception(max_turns=turns)
    with pytest.raises(ValueError, match="split must be one of train, eval, got 'test'"):
        TruthAndDeception(split="test")
    with pytest.raises(ValueError, match="max_talk must be 1 or more, got 0"):
        TruthAndDeception(max_talk=0)


PIECES = ("[", "]", "[Fact 1]", "[fact 2", "[Fact", " 1", "<think>", "</think>", " ")


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(parts=st.lists(st.tuples(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), st.sampled_from((1, 2, 900)))))
def test_reading_twice_changes_nothing(parts):
    reply = "".join(piece * count for piece, count in parts)
    for game in (started(max_talk=40), last_turn(max_talk=40)):
        action = game.extract(reply)
        if action is not None:
            assert game.extract(action) == game._read(action) == action
            assert action.isprintable()
            assert len(action) <= 40 + 1 + len("[Fact 1]")
            assert ("[" in action) == game.last_turn


@pytest.mark.parametrize("piece", ["[", "]", "[Fact ", "[Fact 1]", "[Fact 1][Fact 2]", " ", "\u00e9", "\ud800", "\0"])
def test_replies_of_100_000_characters_are_read_at_once(piece):
    for game in (started(), last_turn()):
        for reply in ((piece * 100_000)[:100_000], f"{piece * 100_000}"[:99_990] + "[Fact 1]"):
            begun = time.process_time()
            assert game.clone().step(reply) in set(Verdict)
            assert time.process_time() - begun < 3.0


# ---- bots ----------------------------------------------------------------------------------------------------------


def correct(deceiver, guesser):
    """The share of right guesses."""
    right = 0
    players = [scripted.player("TruthAndDeception-v0", strength) for strength in (deceiver, guesser)]
    for seed in range(STRATEGY_GAMES):
        game = started(seed)
        streams = [GameRng(derive_seed("player", seat, seed)) for seat in range(2)]
        while not game.over:
            seat = game.to_move
            action = players[seat].act(game, streams[seat])
            assert action in game.legal_actions()
            game.step(action)
        right += game.measures()["correct"]
    return right / STRATEGY_GAMES


@pytest.mark.parametrize(
    ("deceiver", "guesser", "share"),
    [
        ("simple", "simple", 0.5),
        ("strong", "simple", 0.5),
        ("random_legal", "random_legal", 0.5),
        ("simple", "strong", 0.5),
        ("random_legal", "strong", 0.5),
        ("strong", "strong", 1.0),
    ],
)
def test_a_guesser_without_knowledge_is_right_half_the_time_unless_the_deceiver_always_lies(deceiver, guesser, share):
    deviation = 5 * 0.5 / STRATEGY_GAMES**0.5
    assert abs(correct(deceiver, guesser) - share) < (deviation if share < 1.0 else 1e-9)


def test_the_strong_deceiver_asserts_the_false_fact_in_changing_words():
    player = scripted.player("TruthAndDeception-v0", "strong")
    said = set()
    for seed in range(200):
        game = started(seed)
        line = player.act(game, GameRng(seed))
        claimed = 1 if _asserted(line) > 0 else 2
        assert _asserted(line) != 0
        assert claimed != game.true_fact(DECEIVER)
        said.add(line)
    assert len(said) == 16


def test_an_honest_deceiver_beats_the_strong_guesser():
    player = scripted.player("TruthAndDeception-v0", "strong")
    for seed in range(20):
        game = started(seed)
        while not game.over:
            honest = f"Fact {game.true_fact(DECEIVER)} is true."
            game.step(honest if game.to_move == DECEIVER else player.act(game, GameRng(seed)))
        assert game.outcomes == ("win", "loss")


@pytest.mark.parametrize(
    ("line", "claims"),
    [
        ("Fact 1 is true.", 1),
        ("fact 2 is surely CORRECT", -1),
        ("Fact 1 is not true. Fact 2 is right!", -2),
        ("Fact 2 isn't wrong", -1),
        ("Fact 1 is false and fact 2 is false", 0),
        ("Fact 12 is true", 0),
        ("I like facts.", 0),
    ],
)
def test_claims_are_counted(line, claims):
    assert _asserted(line) == claims

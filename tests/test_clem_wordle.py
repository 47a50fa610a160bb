"""Wordle in dialogue: form of replies, feedback, unknown words, the critic's turn, secrecy, quality, targets, bots."""

import collections
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.games import scripted
from dfc.games.bots.codes import BOTS
from dfc.games.dialogue.wordle import (
    CRITIC,
    GUESSER,
    ClemWordle,
    ClemWordleWithClue,
    ClemWordleWithCritic,
    allowed,
    clues,
    coloured,
    targets,
)
from dfc.games.dialogue.words import stems
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika.wordle import words
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal, Scripted

KINDS = (ClemWordle, ClemWordleWithClue, ClemWordleWithCritic)
YES = "explanation: It fits.\nagreement: yes"


def guess(word, why="It may be this."):
    return f"explanation: {why}\nguess: {word}"


def started(kind, target=None, seed=0, **options):
    game = kind(**options)
    game.reset(seed)
    return game if target is None else swapped(game, target)


def swapped(game, target):
    data = game.to_json()
    data["state"]["position"]["target"] = target
    twin = type(game)(split=game.split, reply_rule=game.reply_rule)
    twin.from_json(data)
    return twin


def finished(game, guesses):
    """Plays one guess a round; a critic agrees, and the guesser proposes what it guesses."""
    for word in guesses:
        for reply in (guess(word), YES, guess(word))[: game.turns_per_round]:
            game.step(reply)
    return game


# ---- feedback -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guessed", "target", "colours"),
    [
        ("toast", "boost", "red green red green green"),
        ("eerie", "elder", "green yellow yellow red red"),
        ("sassy", "glass", "yellow yellow red green red"),
        ("geese", "eagle", "yellow yellow red red green"),
    ],
)
def test_repeated_letters_are_green_first_and_then_yellow_as_often_as_the_word_has_them(guessed, target, colours):
    game = started(ClemWordle, target)
    game.step(guess(guessed))
    told = " ".join(f"{a}<{b}>" for a, b in zip(guessed, colours.split(), strict=True))
    assert told in game.observation(0)
    assert coloured(*game.turns[0]) == told


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_colours_of_a_letter_count_what_both_words_share(data):
    word, target = (data.draw(st.text("abc", min_size=5, max_size=5)) for _ in range(2))
    game = started(ClemWordle, target)
    game._guessed(word)
    found = game.turns[0][1]
    for letter in "abc":
        of_letter = [mark for a, mark in zip(word, found, strict=True) if a == letter]
        marked = [mark for mark in of_letter if mark != "-"]
        assert len(marked) == min(word.count(letter), target.count(letter))
        others = [m for m in of_letter if m != "+"]
        assert others == sorted(others, reverse=True)  # "?" before "-": yellows from left to right
    assert all((mark == "+") == (a == b) for a, b, mark in zip(word, target, found, strict=True))


# ---- the form of a reply --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("explanation: Why not?\nguess: Stare", "explanation: Why not?\nguess: stare"),
        ("EXPLANATION: Why\nnot?\n\nGuess:STARE  \nmore", "explanation: Why not?\nguess: stare"),
        ("<think>guess: audio</think>Explanation:\nguess: stare", "explanation:\nguess: stare"),
    ],
)
@pytest.mark.parametrize("rule", ["clembench", "paper"])
def test_replies_of_the_form_are_read(reply, said, rule):
    game = started(ClemWordle, "zebra", reply_rule=rule)
    assert game.extract(reply) == said == game._read(said)
    assert game.is_action(reply)
    assert game.step(reply) is Verdict.PLAYED
    assert game.turns[0][0] == "stare"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "reply", ["explanation: why guess: stare", "Explanation: guess: stare", "explanation:guess:stare"]
)
def test_one_line_is_read_by_the_rule_of_the_paper_alone(kind, reply):
    """clembench looks below the explanation's line since April 2026; the games of the paper did not."""
    assert started(kind).reply_rule == "clembench"
    assert started(kind, "zebra").step(reply) is Verdict.FORFEIT_MALFORMED
    game = started(kind, "zebra", reply_rule="paper")
    assert game.step(reply) is Verdict.PLAYED
    assert "stare" in (game.proposal if kind is ClemWordleWithCritic else game.turns[0][0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_guess_within_the_explanation_counts_by_the_rule_of_the_paper_alone(kind):
    reply = guess("stare", "My guess: audio. ")
    game = started(kind, "zebra")
    assert game.extract(reply) == "explanation: My guess: audio.\nguess: stare"
    assert game.step(reply) is Verdict.PLAYED
    assert "stare" in (game.proposal if kind is ClemWordleWithCritic else game.turns[0][0])
    assert started(kind, "zebra", reply_rule="paper").step(reply) is Verdict.FORFEIT_MALFORMED


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_rule_is_refused(kind):
    for rule in ("papers", None, "\x1b" * 10_000, ["paper"]):
        with pytest.raises(ValueError, match="reply_rule must be one of clembench, paper, got") as refused:
            kind(reply_rule=rule)
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", scripted.STRENGTHS)
def test_whatever_is_written_here_is_two_lines_that_clembench_reads(kind, strength):
    """The oracle reads as clembench's master: the keyword once, below the line that the explanation is on."""
    for seed in range(8):
        game, rng = started(kind, seed=seed), GameRng(seed)
        shown = game.observation(GUESSER)
        assert "\nexplanation: It tries four vowels at once.\nguess: adieu" in shown
        while not game.over:
            keyword = game.keyword(game.to_move)
            assert "and on the next line" in game._form()
            for reply in (scripted.player(game, strength).act(game, rng), *game.legal_actions()[:5]):
                first, second = reply.split("\n")
                assert re.fullmatch("explanation: .+", first)
                assert re.fullmatch(f"{keyword} [a-z]+", second)
                assert game.extract(reply) == reply
            game.step(reply if strength == "random_legal" else scripted.player(game, strength).act(game, rng))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "reply",
    [
        *("stare", "guess: stare", "guess: stare\nexplanation: why", "explanation: why stare", "explanation:\nguess:"),
        *(guess("stars!"), guess("star"), guess("staring"), guess("sta re"), guess("st4re"), guess("st\u00e4re")),
        *(guess("stare", "Or:\nguess: audio."), guess("stare\nguess: stare"), guess("\nstare"), guess("stare."), YES),
        *("Sure! " + guess("stare"), guess("stare", "a " * 5_000), "<think>" + guess("stare")),
    ],
)
def test_any_other_reply_breaks_the_game_off_at_once(kind, reply):
    game = started(kind, "zebra")
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert set(game.outcomes) == {Outcome.INVALID}
    assert (game.forfeited_by, "quality" in game.measures()) == (GUESSER, False)


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_words_are_asked_again_five_times_in_a_row_without_costing_a_round(kind):
    game = started(kind, "zebra")
    for _ in range(2):  # a known word in between clears the count
        assert [game.step(guess("qqqqq")) for _ in range(5)] == [Verdict.ILLEGAL] * 5
        assert "qqqqq is not in the word list" in game.observation(GUESSER)
        assert (game.round, game.actions_played, game.turns) == (1, 0, []) or game.round == 2
        finished(game, ["stare"])
    assert (game.round, game.over) == (3, False)
    assert [game.step(guess("qqqqq")) for _ in range(6)] == [Verdict.ILLEGAL] * 5 + [Verdict.FORFEIT_ILLEGAL]
    assert set(game.outcomes) == {Outcome.INVALID}
    assert "quality" not in game.measures()


# ---- the critic -----------------------------------------------------------------------------------------------------


def test_a_round_with_a_critic_is_a_proposal_its_opinion_and_a_guess():
    game = started(ClemWordleWithCritic, "zebra")
    game.observation(CRITIC)
    game.step(guess("zebra", "I say\nso."))  # a proposal is not judged
    assert (game.over, game.to_move) == (False, CRITIC)
    assert game.observation(CRITIC).endswith("Your partner proposes: explanation: I say so.\nguess: zebra")
    game.step("Explanation: I doubt it.\nAgreement: No")
    assert "explanation: I doubt it.\nagreement: no" in game.observation(GUESSER)
    assert game.step(guess("qqqqq")) is Verdict.ILLEGAL
    game.step(guess("stare"))
    assert (game.round, game.to_move, game.proposal, game.opinion) == (2, GUESSER, "", "")
    told = "s<red> t<red> a<yellow> r<green> e<yellow>"
    assert all(told in game.observation(seat) for seat in (GUESSER, CRITIC))
    finished(game, ["zebra"])
    assert (game.outcomes, game.measures()["quality"]) == ((Outcome.WIN, Outcome.WIN), 50.0)


def test_explanations_pass_on_shortened():
    game = started(ClemWordleWithCritic, "zebra")
    before = len(game.observation(CRITIC))
    game.step(guess("stare", "a " * 900))
    assert 1_000 < len(game.observation(CRITIC)) - before < 1_100


@pytest.mark.parametrize(
    "reply",
    [
        *("yes", "agreement: yes", "explanation: hm", "explanation: hm\nagreement: maybe", f"{YES}\nagreement: no"),
        *("explanation: hm\nagreement: yes, it does", guess("stare"), "", "explanation: hm\nagreement:\nyes"),
    ],
)
def test_a_critic_is_never_asked_again(reply):
    game = started(ClemWordleWithCritic, "zebra")
    game.step(guess("stare"))
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == ((Outcome.INVALID, Outcome.INVALID), CRITIC)


# ---- ends -----------------------------------------------------------------------------------------------------------

WRONG = ["stare", "audio", "lucky", "might", "honey"]


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("kind", KINDS)
def test_quality_of_a_success_by_round(kind, number):
    game = finished(started(kind, "zebra"), [*WRONG[: number - 1], "zebra"])
    worth = (100, 100, 100, 50, 30, 20)[number - 1] if kind is ClemWordle else 100 / number
    assert (set(game.outcomes), game.measures()) == ({Outcome.WIN}, {"rounds": number, "quality": pytest.approx(worth)})


@pytest.mark.parametrize("kind", KINDS)
def test_six_wrong_guesses_are_a_loss_and_no_abort(kind):
    game = finished(started(kind, "zebra"), [*WRONG, "ghost"])
    assert set(game.outcomes) == {Outcome.LOSS}
    assert (game.abort_reason, game.measures()) == (None, {"rounds": 6.0, "quality": 0.0})
    assert game.actions_played == game.max_game_length


# ---- what is hidden -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_games_that_differ_in_the_target_alone_show_the_same_until_the_feedback_differs(kind):
    one, other = started(kind, "zebra"), started(kind, "pizza")
    round_of = ["dusky", "dusky", "ghost", "ghost"] if kind is ClemWordleWithCritic else ["dusky", "ghost"]
    for word in round_of:  # letters of neither
        for game in (one, other):
            game.step(guess(word))
            if game.to_move == CRITIC:
                assert "proposes" in game.observation(CRITIC)
                game.step(YES)
        for seat in range(one.seats):
            assert one.observation(seat) == other.observation(seat)
        assert one.legal_actions() == other.legal_actions()
    assert [mark for _, mark in one.turns] == ["-----", "-----"]
    assert finished(one, ["piano"]).observation(GUESSER) != finished(other, ["piano"]).observation(GUESSER)


def test_both_seats_know_the_clue_and_nobody_the_target():
    for seed in range(60):
        for kind in KINDS:
            game = started(kind, seed=seed)
            texts = [game.observation(seat) for seat in range(game.seats)]
            assert all((game.clue in text) for text in texts if kind is not ClemWordle)
            assert not any(game.target in stems(text) for text in texts)


# ---- targets --------------------------------------------------------------------------------------------------------


def test_targets_are_allowed_words_in_disjoint_splits_with_clues_that_do_not_name_them():
    splits = {name: targets(name) for name in ("train", "validation", "test")}
    assert {name: len(found) for name, found in splits.items()} == {"train": 60, "validation": 60, "test": 30}
    every = [word for found in splits.values() for word in found]
    assert len(set(every)) == 150
    assert set(every) <= set(words(5)) < allowed()
    table = {word: clue for found in clues().values() for word, clue in found.items()}
    assert set(table) == set(every)
    assert len(set(table.values())) == 150
    assert not [word for word, clue in table.items() if word[:4] in clue.lower()]
    counts = collections.Counter(started(ClemWordle, seed=n, split="test").experiment for n in range(30))
    assert counts == {"high": 10, "medium": 20}
    for n, word in enumerate(splits["test"]):
        for kind in KINDS:
            game = started(kind, seed=n, split="test")
            assert word == game.target in clues()[game.experiment]


# ---- bots -----------------------------------------------------------------------------------------------------------


def mean_quality(kind, players, tasks):
    total = 0.0
    for seed in tasks:
        game = started(kind, seed=seed, split="test")
        rng = GameRng(seed)
        while not game.over:
            assert game.step(players[game.to_move].act(game, rng)) is Verdict.PLAYED
        total += game.measures()["quality"]
    return total / len(tasks)


@pytest.mark.parametrize("bots", BOTS[2:], ids=lambda bots: bots.kind.__name__)
def test_strong_beats_simple_beats_random(bots):
    simple, strong = (Scripted(bots.kind, choose) for choose in (bots.simple, bots.strong))
    means = [mean_quality(bots.kind, [player] * 2, range(30)) for player in (RandomLegal(), simple, strong)]
    assert means == sorted(means)
    assert means[0] < 10 < means[1]
    assert means[2] >= 60


def test_a_strong_critic_agrees_with_what_fits_clue_and_feedback_alone():
    game = started(ClemWordleWithCritic)
    strong = Scripted(ClemWordleWithCritic, BOTS[-1].strong)
    for word, said in ((game.target, "yes"), ("stare", "no")):
        twin = game.clone()
        twin.step(guess(word))
        assert strong.act(twin, GameRng(0)).endswith(f"agreement: {said}")
    unknown = started(ClemWordleWithCritic)
    unknown.clue = "Nobody has heard of it"
    finished(unknown, ["fudge"])
    for word, fits in (("fudge", "no"), (unknown.target, "yes")):
        twin = unknown.clone()
        twin.step(guess(word))
        assert strong.act(twin, GameRng(0)).endswith(f"agreement: {fits}")

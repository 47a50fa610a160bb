"""Guess what: requests and their price, questions that are not allowed, its table and tasks, secrets, players."""

import collections
import itertools

import pytest
from game_turns import played

from dfc.games import registry, scripted
from dfc.games.dialogue import guess_what
from dfc.games.dialogue.guess_what import ANSWERER, BOUNDS, EXPERIMENTS, GUESSER, GuessWhat, Instance, instances
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 60, "validation": 60, "test": 60}
WORDS = ("horse", "cow", "dog", "cat", "lion", "tiger", "whale", "bat")
WON, LOST, BROKEN_OFF = ((outcome,) * 2 for outcome in (Outcome.WIN, Outcome.LOSS, Outcome.INVALID))


def started(target="lion", level=3, candidates=WORDS, **options):
    game = GuessWhat(**options)
    game.reset(0)
    game.instance = Instance(candidates, target, f"concrete_level_{level}")
    return game


def asked(game, number):
    for _ in range(number):
        played(game, "QUESTION: Is it wild?", "ANSWER: yes")
    return game


# ---- the price of requests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "qualities"),
    [
        (1, [100, 100, 100, 100, 100, 200 / 3, 100 / 3, 0]),
        (2, [100, 100, 100, 100, 75, 50, 25, 0]),
        (3, [100, 100, 100, 100, 100, 200 / 3, 100 / 3, 0]),
    ],
)
def test_the_bound_is_that_of_the_level(level, qualities):
    """clembench takes 5 for each level."""
    for before, quality in enumerate(qualities):
        game = asked(started(level=level), before)
        assert "quality" not in game.measures()
        played(game, "GUESS: Lion!")
        assert (game.outcomes, game.measures()) == (WON, {"rounds": before + 1.0, "quality": pytest.approx(quality)})


@pytest.mark.parametrize("guess", ["tiger", "umbrella", "lions"])
def test_one_wrong_guess_loses(guess):
    game = asked(started(), 2)
    assert played(game, f"GUESS: {guess}") is Verdict.PLAYED
    assert (game.outcomes, game.measures()["quality"], game.abort_reason) == (LOST, 0.0, None)


def test_as_many_questions_as_rounds_lose():
    game = asked(started(), 7)
    assert not game.over
    asked(game, 1)
    assert (game.outcomes, game.measures(), game.forfeited_by) == (LOST, {"rounds": 8.0, "quality": 0.0}, None)


# ---- replies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Is it wild?",
        "question: wild?",
        "QUESTION:",
        "GUESS:",
        "GUESS: ?!",
        "GUESS: a lion",
        "ANSWER: yes",
        "QUESTION: Wild? Tame?",
        "QUESTION: Wild? GUESS: lion",
        "QUESTION: QUESTION: wild",
        "GUESS: lion\nGUESS: cow",
    ],
)
def test_a_guesser_without_form_breaks_the_game_off(reply):
    game = started()
    assert played(game, reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GUESSER)
    assert game.abort_reason == "No action could be read. Reply in the form QUESTION: ... or GUESS: ...."
    assert game.measures() == {"rounds": 1.0}


@pytest.mark.parametrize(
    "reply", ["yes", "ANSWER: maybe", "ANSWER: yes, it is", "Answer: yes", "ANSWER: YES", "ANSWER: yes.", "ANSWER:"]
)
def test_an_answerer_says_yes_or_no_and_nothing_else(reply):
    game = started()
    assert played(game, "QUESTION: Is it wild?", reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, ANSWERER)


@pytest.mark.parametrize(("reply", "answer"), [("ANSWER: Yes.", "yes"), ("ANSWER:no", "no"), (" ANSWER:  No ", "no")])
def test_answers_are_told_in_one_form(reply, answer):
    game = started()
    played(game, "QUESTION: Is it wild?", reply)
    assert game.observation(GUESSER) == f"ANSWER: {answer}"


@pytest.mark.parametrize(
    ("question", "about"),
    [
        ("Does it start with the letter L?", "letters"),
        ("Does the word start with L", "letters"),
        ("Does it end in an 'n'?", "letters"),
        ("Does it contain e or o?", "letters"),
        ("Is it spelled as it is spoken?", "letters"),
        ("Does it have two vowels?", "letters"),
        ("Does it rhyme with cat?", "letters"),
        ("Is the target word long?", "length"),
        ("Is it a short word?", "length"),
        ("Is the word longer than four?", "length"),
        ("Does it have more than 4 characters?", "length"),
        ("Does it have two syllables?", "syllables"),
        ("Is it a noun?", "part of speech"),
        ("Is it a lion?", "a guess"),
        ("Is the target word 'LIONS'?", "a guess"),
        ("lion?", "a guess"),
        ("Is it a horse or a cow?", "a guess"),
        ("Is it bigger than a dog or a cat?", "list"),
        ("Does an animal such as horse/cow eat it?", "list"),
    ],
)
def test_questions_about_the_form_of_the_word_and_guesses_in_disguise_break_the_game_off(question, about):
    game = started()
    assert played(game, f"QUESTION: {question}") is Verdict.FORFEIT_ILLEGAL
    assert (game.outcomes, game.forfeited_by) == (BROKEN_OFF, GUESSER)
    assert about in game.abort_reason
    assert "quality" not in game.measures()


@pytest.mark.parametrize(
    "question",
    [
        "Does the target word mean an animal with a long neck?",
        "Is it bigger than a dog?",
        "Does it end with a party?",
        "Does it begin in winter?",
        "Does it live long?",
        "Does it have a tail?",
        "Is it a strong character in tales",
        "Is it used to cast a spell?",
        "Is the word for something short-lived?",
    ],
)
def test_questions_about_what_the_word_means_are_allowed(question):
    game = started()
    assert played(game, f"QUESTION: {question}") is Verdict.PLAYED
    assert game.observation(ANSWERER).endswith(f"\nQUESTION: {question}")


# ---- secrets --------------------------------------------------------------------------------------------------------


def test_the_guesser_reads_the_same_whatever_the_target_is_and_the_answerer_whatever_the_candidates_are():
    twins = [started("lion"), started("cow"), started("lion", candidates=("lion", "apple", *WORDS[:4], "bus", "belt"))]
    for reply in ("QUESTION: Is it wild?", "ANSWER: no", "QUESTION: Is it big?", "ANSWER: yes", "QUESTION: Is it old?"):
        first, other_target, other_words = twins
        assert first.observation(GUESSER) == other_target.observation(GUESSER)
        assert first.observation(ANSWERER) == other_words.observation(ANSWERER)
        assert first.legal_actions() == (other_target if first.to_move == GUESSER else other_words).legal_actions()
        for strength in ("simple", "strong"):
            if first.to_move == GUESSER:
                player = scripted.player(registry.make("clem_guesswhat"), strength)
                assert player.act(first, GameRng(5)) == player.act(other_target, GameRng(5))
        for game in twins:
            game.step(reply)


# ---- the table and the tasks ----------------------------------------------------------------------------------------


def test_no_two_words_of_a_category_have_the_same_attributes_and_no_word_has_two_categories():
    words = [w for kind in guess_what.KINDS for words in guess_what.categories(kind).values() for w in words]
    assert len(words) == len(set(words)) == 192
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)
    for kind in guess_what.KINDS:
        for category in guess_what.categories(kind).values():
            answers = {tuple(word in yes for yes in guess_what.questions().values()) for word in category}
            assert len(answers) == len(category) == 12


def worst_case(words):
    """How many questions are needed, by brute force over all orders of the questions that divide them."""
    if len(words) == 1:
        return 0
    halves = [(words & yes, words - yes) for yes in guess_what.questions().values()]
    return 1 + min(max(worst_case(some), worst_case(rest)) for some, rest in halves if some and rest)


def test_the_number_of_questions_needed():
    assert guess_what.questions_needed(frozenset({"second", "minute"})) == 1
    for words in itertools.combinations(("lion", "tiger", "whale", "bat", "apple"), 4):
        assert guess_what.questions_needed(frozenset(words)) == worst_case(frozenset(words))
    alone = frozenset({"shirt", "belt", "coat", "hat", "tie"})  # each question fits one of them at most
    assert guess_what.questions_needed(alone) == worst_case(alone) == 4


def test_tasks_have_targets_of_their_own_and_the_shape_of_their_level():
    assert dict(GuessWhat.splits) == SPLITS
    assert GuessWhat.evaluation_only
    found = [instance for split in SPLITS for instance in instances(split)]
    assert len({instance.target for instance in found}) == len(found) == 180
    category = {w: c for kind in guess_what.KINDS for c, ws in guess_what.categories(kind).items() for w in ws}
    for split in SPLITS:
        experiments = [instance.experiment for instance in instances(split)]
        assert experiments == list(EXPERIMENTS) * 10
    for instance in found:
        assert instance.target in instance.candidates
        assert len(set(instance.candidates)) == 8
        each = {1: [2] * 4, 2: [4] * 2, 3: [8]}[instance.level]
        assert sorted(collections.Counter(category[word] for word in instance.candidates).values()) == each
        kind = instance.experiment.partition("_")[0]
        assert {category[word] for word in instance.candidates} <= set(guess_what.categories(kind))
        assert guess_what.questions_needed(frozenset(instance.candidates)) < BOUNDS[instance.level]
        for question in guess_what.questions():
            assert guess_what.objection_to(question, instance.candidates) is None
    places = collections.Counter(instance.candidates.index(instance.target) for instance in found)
    assert min(places[place] for place in range(8)) >= 10  # of 180, 22.5 are expected


# ---- players --------------------------------------------------------------------------------------------------------


def mean_quality(guesser, answerer, split):
    found = []
    for task in range(SPLITS[split]):
        game = registry.make("clem_guesswhat", split=split)
        game.reset(task)
        assert game.instance == instances(split)[task]
        assert game.experiment == game.instance.experiment
        players, rng = [scripted.player(game, strength) for strength in (guesser, answerer)], GameRng(task)
        while not game.over:
            assert game.step(players[game.to_move].act(game, rng)) is Verdict.PLAYED
        found.append(game.measures()["quality"])
    return sum(found) / len(found)


@pytest.mark.parametrize("split", SPLITS)
def test_two_strong_players_keep_every_bound(split):
    assert mean_quality("strong", "strong", split) == 100.0


def test_simple_players_are_between_random_and_strong_ones():
    assert mean_quality("random_legal", "random_legal", "test") < 25.0
    assert 40.0 < mean_quality("simple", "simple", "test") < 90.0


@pytest.mark.parametrize(
    ("question", "target", "simple", "strong"),
    [
        ("Is it a mammal?", "lion", "yes", "yes"),
        ("Is it a mammal?", "bus", "no", "no"),
        ("Is this word for a mammal?", "lion", "no", "yes"),
        ("Does it run on rails?", "tram", "no", "yes"),
        ("Has it ever met a king?", "lion", "no", "no"),
    ],
)
def test_the_strong_answerer_knows_questions_that_are_like_those_of_the_table(question, target, simple, strong):
    game = started(target)
    played(game, f"QUESTION: {question}")
    for strength, answer in (("simple", simple), ("strong", strong)):
        assert scripted.player(game, strength).act(game, GameRng(0)) == f"ANSWER: {answer}"

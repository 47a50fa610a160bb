"""Customer service limits what can be tried: one remedy a turn and how many wrong ones, however they are put."""

import itertools

import pytest
from service_turns import FOUND, PHONE, played, simulator_reply, started, turn

from dfc.games.game import Outcome, Verdict
from dfc.games.paprika.customer_service import UNCLEAR, CustomerService, cases, check, clearly, topics
from dfc.games.paprika.world import AGENT, GOAL, JUDGE, NOT_VALID, VALID, WORLD

# ---- trying everything does not pay -------------------------------------------------------------------------------

SEVERAL = [
    "Delete old videos. Switch off airplane mode. Clean the port.",
    "Delete old videos, switch off airplane mode, unblock the friend, and clean the port.",
    "Clean the port. If that does not help, switch off airplane mode.",
    "Could you clean the port or delete old videos?",
    "Have you tried to clean the port? Have you tried to switch off airplane mode?",
    "clean port; airplane; mute",
    "Delete old videos.\nSwitch off airplane mode.",
    "Port clean. Please switch off airplane mode.",
]
BARE = ["clean port", "Clean port.", "toothpick", "airplane!", "clean, port", "AIRPLANE", "mute mute"]


@pytest.mark.parametrize("message", [*SEVERAL, *BARE])
@pytest.mark.parametrize("task", [PHONE, PHONE + 1, PHONE + 2])
def test_several_remedies_or_bare_key_words_get_one_answer_whatever_they_are(task, message):
    game = started(task)
    assert not clearly(" ".join(message.split()), "phone")
    assert game.step(message) is Verdict.PLAYED
    assert game.to_move == AGENT  # neither the customer nor the judge, whoever plays them, is asked
    assert game.observation(AGENT) == UNCLEAR
    assert (game.actions_played, game.wrong_remedies_made) == (1, 0)
    assert game.heard == [(" ".join(message.split()), UNCLEAR)]


def test_a_turn_with_several_remedies_is_spent():
    game = started(max_turns=2)
    game.step(SEVERAL[0])
    game.step(SEVERAL[0])
    assert game.outcomes == (Outcome.LOSS,)


def test_several_remedies_do_not_let_the_customer_name_the_cause():
    game = started()
    game.step("Is it lint packed in the socket? Clean the port. Switch off airplane mode.")
    game.step("What do you see?")
    assert game.step("Yes, lint packed in the socket.") is Verdict.REFUSED


@pytest.mark.parametrize(("wrong_remedies", "ends_after"), [(1, 1), (3, 3), (5, 5)])
def test_so_many_wrong_remedies_end_the_case_unsolved(wrong_remedies, ends_after):
    game = started(wrong_remedies=wrong_remedies)
    wrong = [str(case.facts["remedy"]) for case in cases("phone") if case is not game.scenario]
    for number, remedy in enumerate(wrong[:ends_after], 1):
        assert not game.over
        assert turn(game, remedy) == "I have tried that, but it did not help."
        assert game.measures()["wrong_remedies"] == number
    assert game.outcomes == (Outcome.LOSS,)


def test_the_third_remedy_may_be_the_right_one():
    game = started()
    for case in [case for case in cases("phone") if case is not game.scenario][:2]:
        turn(game, str(case.facts["remedy"]))
    turn(game, "Clean the port.")
    assert game.outcomes == (Outcome.WIN,)


def test_any_number_of_wrong_remedies_can_be_allowed():
    game = started(wrong_remedies=0)
    for case in cases("phone"):
        if not game.over:
            turn(game, str(case.facts["remedy"]))
    assert game.outcomes == (Outcome.WIN,)
    with pytest.raises(ValueError, match=r"wrong_remedies must be 0 \(any number\) or more, got -1"):
        CustomerService(wrong_remedies=-1)


def test_wrong_remedies_are_counted_whoever_plays_customer_and_judge():
    game = started()
    for said in ("Could you delete old videos?", "Switch off airplane mode.", "Take the phone out of its case."):
        for reply in (said, "Hm, let me see.", NOT_VALID):
            assert game.step(reply) is Verdict.PLAYED
    assert game.outcomes == (Outcome.LOSS,)
    assert game.wrong_remedies_made == 3


@pytest.mark.parametrize(
    "message",
    [
        "Would it help to stop it? I mean the navigation, if you tried?",
        "If you stop it, does it help? The navigation, if you tried that?",
    ],
)
def test_a_remedy_that_two_sentences_try_together_is_counted(message):
    game = started()
    turn(game, message)
    assert game.wrong_remedies_made == 1


@pytest.mark.parametrize(
    "message",
    ["Is airplane mode on?", "Do not delete old videos.", "Switch it off and on again.", "Paint it red.", "Hello."],
)
def test_what_proposes_no_remedy_of_the_domain_is_not_counted(message):
    game = started()
    for _ in range(5):
        turn(game, message)
    assert not game.over
    assert game.wrong_remedies_made == 0


def test_a_right_remedy_that_the_judge_refuses_is_not_counted():
    game = started()
    for reply in ("Clean the port.", "It is clean.", NOT_VALID):
        game.step(reply)
    assert game.wrong_remedies_made == 0


def remedies_in_turn(game):
    return [str(case.facts["remedy"]) for case in cases(game.scenario.group)]


def two_remedies_a_turn(game):
    remedies = remedies_in_turn(game)
    return [f"{one} {other}" for one, other in itertools.pairwise(remedies)][::2]


def key_words_of_two(game):
    keys = [" ".join(case.facts["keys"][0]) for case in cases(game.scenario.group)]
    return [f"{one}. {other}." for one, other in itertools.pairwise(keys)][::2]


def key_words_of_one(game):
    return [" ".join(case.facts["keys"][0]) for case in cases(game.scenario.group)]


def all_key_words(game):
    return [" ".join(" ".join(case.facts["keys"][0]) for case in cases(game.scenario.group))]


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (remedies_in_turn, 0.5),
        (two_remedies_a_turn, 0.0),
        (key_words_of_two, 0.0),
        (key_words_of_one, 0.0),
        (all_key_words, 0.0),
    ],
)
def test_trying_all_remedies_of_a_domain_solves_few_cases(policy, most):
    solved = 0
    for task in range(CustomerService.splits["test"]):
        game = started(task, split="test")
        for message in itertools.islice(itertools.cycle(policy(game)), game.max_turns):
            game.step(message)
            while game.to_move in (WORLD, JUDGE):
                game.step(simulator_reply(game))
            if game.over:
                break
        solved += game.outcomes == (Outcome.WIN,)
    assert solved / CustomerService.splits["test"] <= most


# ---- a remedy in another mood -------------------------------------------------------------------------------------

MOODS = [
    "Is it solved when you {}?",
    "Is the remedy to {}?",
    "Describe what happens once you {}.",
    "Tell me whether it helps: {}.",
    "Does it help if you {}?",
    "What if you {}?",
    "{}?",
    "Is this a case of {}?",
    "Why don't you {}?",
    "Never mind: {}.",
    "Will it not do to {}?",
]


def put(mood, remedies):
    return mood.format(", ".join(remedy[0].lower() + remedy[1:].rstrip(".") for remedy in remedies))


def to_lenient_simulators(game, message):
    """The judge takes whatever holds the remedy for a proposal, the customer concedes nothing."""
    game.step(message)
    if game.to_move == WORLD:
        game.step("Let me see.")
        remedy = str(game.scenario.facts["remedy"]).rstrip(".").lower()
        game.step(VALID if remedy in message.lower() else NOT_VALID)


@pytest.mark.parametrize("mood", MOODS)
def test_no_mood_lets_a_policy_try_all_remedies_before_a_lenient_judge(mood):
    solved = 0
    for task in range(CustomerService.splits["test"]):
        game = started(task, split="test")
        for remedy in remedies_in_turn(game):
            if not game.over:
                to_lenient_simulators(game, put(mood, [remedy]))
        solved += game.outcomes == (Outcome.WIN,)
    assert solved / CustomerService.splits["test"] <= 0.5  # three of eight would be 37.5 %


@pytest.mark.parametrize("mood", MOODS)
def test_several_remedies_in_any_mood_reach_nobody(mood):
    for task in range(CustomerService.splits["test"]):
        game = started(task, split="test")
        for some in (remedies_in_turn(game), remedies_in_turn(game)[:2]):
            assert not clearly(put(mood, some), game.scenario.group)
            to_lenient_simulators(game, put(mood, some))
            assert game.observation(AGENT) == UNCLEAR


@pytest.mark.parametrize(
    "messages",
    [
        ["Clean it. Port.", "Delete them. Old videos."],
        ["Is it solved when you delete old videos?", "Does airplane mode help?", "What if you clean the port?"],
    ],
)
def test_a_message_wins_only_if_it_would_be_counted_in_another_case(messages):
    for task in range(PHONE, PHONE + 6):
        game = started(task)
        for message in messages:
            if not game.over:
                before = game.wrong_remedies_made
                for reply in (message, "Hm.", VALID):
                    game.step(reply)
                assert game.outcomes == (Outcome.WIN,) or game.wrong_remedies_made == before + 1


@pytest.mark.parametrize("said", ["Goal reached", "It did not help."])
def test_a_judge_cannot_make_the_remedy_of_another_case_right(said):
    for split in CustomerService.splits:
        for task in range(0, CustomerService.splits[split], 3):
            game = started(task, split=split)
            other = next(case for case in cases(game.scenario.group) if case is not game.scenario)
            for reply in (str(other.facts["remedy"]), said, VALID):
                assert game.step(reply) is Verdict.PLAYED
            assert game.wrong_remedies_made == 1
            assert game.outcomes == ((Outcome.LOSS,) if said == GOAL else None)


@pytest.mark.parametrize(
    "message",
    [
        "Is airplane mode on?",
        "Is the port clean?",
        "When did you last clean the port?",
        "Tell me about the storage.",
        "Are there old videos that you want to delete?",
        "Do not delete old videos.",
        "Is it on mute?",
    ],
)
def test_questions_about_how_things_are_neither_win_nor_count(message):
    game = started()
    for _ in range(5):
        for reply in (message, "I think so.", VALID if "port" in message else NOT_VALID):
            assert game.step(reply) is Verdict.PLAYED
    assert not game.over
    assert game.wrong_remedies_made == 0


@pytest.mark.parametrize(
    "message",
    ["What about cleaning the port?", "Why don't you clean the port?", "Does it help if you clean the port?"],
)
def test_a_remedy_that_is_put_as_a_question_can_be_right(message):
    game = started()
    for reply in (message, "Oh, there is lint.", VALID):
        game.step(reply)
    assert game.outcomes == (Outcome.WIN,)


def test_every_listed_action_is_clear_and_no_check_puts_a_remedy_forward():
    for split in CustomerService.splits:
        for task in range(0, CustomerService.splits[split], 2):
            game = started(task, split=split)
            assert all(clearly(action, game.scenario.group) for action in game.legal_actions())
            for topic in topics(game.scenario.group):
                copy = game.clone()
                for reply in (check(topic), "As always.", NOT_VALID):
                    copy.step(reply)
                assert copy.wrong_remedies_made == 0


def test_every_remedy_of_the_data_is_a_clear_proposal():
    for split in CustomerService.splits:
        for scenario in CustomerService.scenarios(split):
            assert clearly(scenario.facts["remedy"], scenario.group)


@pytest.mark.parametrize(
    ("wrong_remedies", "said"), [(3, "3 remedies that do not help end"), (1, "A remedy that does not help ends")]
)
def test_the_rules_say_how_many_wrong_remedies_end_the_case(wrong_remedies, said):
    assert said in started(wrong_remedies=wrong_remedies).observation(AGENT)
    assert "not help" not in started(wrong_remedies=0).observation(AGENT)


def test_the_simple_agent_asks_about_everything_and_then_proposes():
    for task in range(40):
        game = played(task, FOUND.simple, seed=task, split="test")
        asked = {check(topic) for topic in topics(game.scenario.group)}
        assert set(game.used[: len(asked)]) == asked
        assert game.outcomes == (Outcome.WIN,)

import csv
import json
import pathlib

import pytest
from case_turns import CaseTurns, random_agent
from game_turns import said

from dfc.games.bots.cases import BOTS
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika.accusations import accused
from dfc.games.paprika.murder_mystery import NO_ACCUSATION, MurderMystery, accusation
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import AGENT, GOAL, JUDGE, NOT_VALID, VALID, WORLD
from dfc.games.rng import GameRng

_, FOUND = BOTS
SUSPECTS = ("Dora Finch", "Milo Brandt", "Petra Vance")
LIGHTHOUSE = 0  # task whose culprit is Petra Vance
TURNS = CaseTurns(MurderMystery, FOUND, LIGHTHOUSE)
started, simulator_reply, turn, played = TURNS.started, TURNS.simulator_reply, TURNS.turn, TURNS.played


def wins(agent, **options):
    games = [played(task, agent, seed=task, **options) for task in range(MurderMystery.splits[options["split"]])]
    return sum(game.outcomes == (Outcome.WIN,) for game in games) / len(games)


# ---- whole games --------------------------------------------------------------------------------------------------


def test_only_listed_sentences_count_as_used():
    game = started()
    listed = game.legal_actions()[0]
    turn(game, "Look around.")
    turn(game, listed)
    assert game.used == [listed]


def test_a_game_goes_from_the_briefing_over_clues_to_the_accusation():
    game = started()
    assert game.scenario.facts["culprit"] == "Petra Vance"
    assert game.observation(AGENT).endswith(f"The case: {game.scenario.briefing}")
    assert "glove" in turn(game, "I look closely at the rail of the stairs.")
    assert "coast guard" in turn(game, "Verify where Dora was.")
    assert "bed at nine" in turn(game, "Ask Petra Vance what she did that night.")
    assert turn(game, "Dance.") == "Nothing of note comes of it."
    assert turn(game, "I accuse Petra Vance.") == GOAL
    assert game.outcomes == (Outcome.WIN,)
    assert game.measures() == {"clues": 3.0, "accusations": 1.0}


def test_one_wrong_accusation_ends_the_case():
    game = started()
    assert turn(game, "I accuse Milo Brandt.") == GOAL
    assert game.outcomes == (Outcome.LOSS,)


def test_a_wrong_accusation_ends_the_case_whatever_the_world_says():
    game = started()
    for reply in ("I accuse Milo Brandt.", "He smiles.", NOT_VALID):
        game.step(reply)
    assert game.outcomes == (Outcome.LOSS,)


UNFORESEEN = "All that we found points to {}."


@pytest.mark.parametrize(
    ("name", "tag", "outcome", "made"),
    [
        ("Petra Vance", VALID, Outcome.WIN, 1),
        ("Milo Brandt", NOT_VALID, Outcome.LOSS, 1),
        ("Milo Brandt", NO_ACCUSATION, None, 0),
        ("Milo Brandt", VALID, None, 0),  # a judge who errs gives no win for another name
    ],
)
def test_an_accusation_in_unforeseen_words_is_the_judges_to_find(name, tag, outcome, made):
    message = UNFORESEEN.format(name)
    assert accused(message, SUSPECTS) == frozenset()
    game = said(started(), message, "The wind howls.", tag)
    assert game.outcomes == (None if outcome is None else (outcome,))
    assert game.accusations_made == made


@pytest.mark.parametrize(
    ("message", "tag", "outcome"),
    [
        ("I accuse Petra Vance.", VALID, Outcome.WIN),
        ("I accuse Petra Vance.", NOT_VALID, Outcome.LOSS),
        ("I accuse Petra Vance.", NO_ACCUSATION, Outcome.LOSS),
        ("I accuse Milo Brandt.", VALID, Outcome.LOSS),
        ("I accuse Milo Brandt.", NO_ACCUSATION, Outcome.LOSS),
        ("I accuse Petra Vance and Milo Brandt.", VALID, Outcome.LOSS),
        ("It was Petra. It was Milo.", VALID, Outcome.LOSS),
        ("Everything points to Petra or Milo.", VALID, None),
        ("Petra Vance might be the killer.", VALID, None),
        ("Ask Petra Vance whether she is the killer.", VALID, None),
        ("Is it Petra Vance?", VALID, None),
        ("Ask Petra Vance where she was.", NOT_VALID, None),  # a judge with two tags in mind ends no case
        ("Inspect the stairs.", NOT_VALID, None),
        ("I climb the stairs.", NOT_VALID, None),
        ("I climb the stairs.", VALID, None),
    ],
)
def test_what_rules_and_judge_make_of_a_message_together(message, tag, outcome):
    game = said(started(), message, "The wind howls.", tag)
    assert game.outcomes == (None if outcome is None else (outcome,))


@pytest.mark.parametrize("words", ["I accuse {}.", "It must be {}.", "My verdict is {}.", UNFORESEEN, "Hang {}!"])
def test_trying_all_suspects_through_a_judge_that_reads_wins_no_more_than_the_first_try(words):
    wins_ = 0
    for task in range(20):
        game = started(task, split="test")
        facts = game.scenario.facts
        for name in facts["suspects"]:
            if not game.over:
                said(game, words.format(name), "I see.", VALID if name == facts["culprit"] else NOT_VALID)
        assert game.accusations_made == 1
        wins_ += game.outcomes == (Outcome.WIN,)
    assert wins_ == sum(s.facts["suspects"][0] == s.facts["culprit"] for s in MurderMystery.scenarios("test")) < 10


def test_accusations_in_unforeseen_words_count_up_to_the_allowed_number():
    game = said(started(accusations=2), UNFORESEEN.format("Milo Brandt"), "Hm.", NOT_VALID)
    assert not game.over
    said(game, "I accuse Dora Finch.", "Hm.", NOT_VALID)
    assert game.outcomes == (Outcome.LOSS,)
    game = started(accusations=0)
    for _ in range(5):
        said(game, "I accuse Dora Finch.", "Hm.", NOT_VALID)
    assert not game.over


@pytest.mark.parametrize("tag", ["<NONE>", "<none>", "**<NONE>**", "<NONE>."])
def test_the_judge_may_find_no_accusation(tag):
    game = said(started(), "Look around.", "It is dark.", tag)
    assert game.to_move == AGENT


@pytest.mark.parametrize("tag", ["none", "", "<NONE> or <VALID>"])
def test_the_judge_must_say_one_of_three_tags(tag):
    game = said(started(), "I climb the stairs.", "It is dark.")
    assert game.step(tag if "or" not in tag else "<NONE> <VALID> <NOTVALID>") is Verdict.REFUSED
    assert "<VALID>, <NOTVALID> and <NONE>" in game.observation(JUDGE)


def test_script_and_rules_read_every_message_alike():
    for message in (
        "It was Petra Vance.",
        "It was Milo.",
        "Petra and Milo did it.",
        "Ask Petra.",
        "It was Petra or Milo.",
    ):
        game = started()
        turn(game, message)
        assert game.accusations_made == bool(accused(message, SUSPECTS))
        assert (game.outcomes == (Outcome.WIN,)) == (accused(message, SUSPECTS) == {"Petra Vance"})


def test_the_world_may_say_that_it_was_somebody_who_left_a_room():
    game = said(started(), "Ask Dora who was on the stairs at ten.", "It was Petra Vance.")
    assert game.to_move == JUDGE


def test_accusations_up_to_the_allowed_number_can_be_wrong():
    game = started(accusations=2)
    assert turn(game, "I accuse Milo Brandt.") == "The evidence does not support this."
    assert not game.over
    turn(game, "I accuse Dora Finch.")
    assert game.outcomes == (Outcome.LOSS,)
    game = started(accusations=2)
    turn(game, "I accuse Milo Brandt.")
    turn(game, "I accuse Petra Vance.")
    assert game.outcomes == (Outcome.WIN,)


def test_any_number_of_accusations_lets_a_guesser_win():
    game = started(accusations=0)
    for name in game.scenario.facts["suspects"]:
        turn(game, accusation(name))
    assert game.outcomes == (Outcome.WIN,)
    assert game.accusations_made == 3


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("accusations", [0, 1])
def test_the_strong_detective_finds_the_culprit(split, accusations):
    assert wins(FOUND.strong, split=split, accusations=accusations) >= 0.9


def test_stronger_detectives_win_more_often():
    assert wins(FOUND.strong, split="train") > wins(FOUND.simple, split="train") + 0.2
    assert wins(FOUND.simple, split="train") > wins(random_agent, split="train") + 0.05


def test_the_strong_detective_looks_at_no_clue_that_it_was_not_told():
    # With the world silent it cannot know better than chance, and accuses in the end.
    right = 0
    for task in range(60):
        game = started(task)
        while not game.over:
            if game.to_move == AGENT:
                reply = FOUND.strong(game, AGENT, GameRng(0))
            else:
                reply = simulator_reply(game) if game.to_move == JUDGE else "Nothing."
            game.step(reply)
        right += game.outcomes == (Outcome.WIN,)
    assert 8 <= right <= 32


# ---- what simulators may say --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty"),
        ("<think>hm", "empty"),
        ("You learn that Petra Vance did it.", "says who did it"),
        ("The culprit is Petra.", "says who did it"),
    ],
)
def test_a_useless_reply_of_the_world_is_asked_for_again(reply, why):
    game = started()
    game.step("Look around.")
    before = json.dumps(game.to_json()["state"])
    assert game.step(reply) is Verdict.REFUSED
    assert why in game.observation(WORLD)
    assert json.dumps(game.to_json()["state"]) == before
    assert game.step("Petra looks away.") is Verdict.PLAYED
    assert game.to_move == JUDGE


def test_the_world_may_confirm_who_did_it_once_the_agent_has_accused():
    game = started()
    game.step("I accuse Petra Vance.")
    assert game.step("Yes, Petra Vance did it.") is Verdict.PLAYED


# ---- what is told to whom -----------------------------------------------------------------------------------------


def test_the_agent_is_told_the_briefing_and_no_more():
    for split in MurderMystery.splits:
        for task, scenario in enumerate(MurderMystery.scenarios(split)):
            rules, news = started(task, split=split).observation(AGENT).split("\n")
            assert news == f"The case: {scenario.briefing}"
            assert rules == started().observation(AGENT).split("\n")[0]
            assert not any(clue.text in news for clue in scenario.facts["clues"])


def test_the_judge_is_told_its_third_tag_and_the_world_how_often_one_may_accuse():
    game = started()
    assert NO_ACCUSATION in game.observation(JUDGE)
    assert started(accusations=0).observation(WORLD) != game.observation(WORLD)


@pytest.mark.parametrize(("accusations", "said"), [(1, "accuse once"), (3, "accuse 3 times"), (0, "and accuse when")])
def test_the_rules_say_how_often_one_can_accuse(accusations, said):
    assert said in started(accusations=accusations).observation(AGENT)


def test_listed_actions_do_not_depend_on_who_did_it():
    for task in range(60):
        game = started(task)
        actions = game.legal_actions()
        assert len(set(actions)) == len(actions) <= 40
        facts = game.scenario.facts
        for name in facts["suspects"]:
            assert {accusation(name), f"Question {name}.", f"Check the alibi of {name}."} <= set(actions)
            game.scenario = Scenario("x", game.scenario.briefing, "y", facts={**facts, "culprit": name})
            assert game.legal_actions() == actions


def test_only_what_was_told_is_counted_as_seen():
    game = started()
    first = game.scenario.facts["clues"][0]
    game.step(first.action)
    game.step("Later, perhaps.")
    game.step(NOT_VALID)
    assert game.seen == []
    turn(game, first.action)
    turn(game, first.action)
    assert game.seen == [first]
    assert game.used == [first.action] * 3


# ---- copies, records, odd replies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "made"),
    [("I accuse Bo.", 1), ("I now accuse Bo.", 1), ("I cannot accuse anybody yet.", 0), ("I never accuse early.", 0)],
)
def test_without_known_suspects_the_plain_word_accuses_unless_it_is_denied(said, made):
    game = started()
    game.scenario = Scenario("x", "A man is dead.", "Ann did it.")
    game.step(said)
    assert game.accusations_made == made


def test_scenarios_without_facts_can_be_played():
    game = started()
    game.scenario = Scenario("x", "A man is dead.", "Ann did it.")
    for reply in ("The clues are clear, I accuse Bo of it.", "He smiles.", NOT_VALID):
        assert game.step(reply) is Verdict.PLAYED
    assert game.outcomes == (Outcome.LOSS,)


NATURAL = pathlib.Path(__file__).parent / "paprika_questions" / "murder_mystery.tsv"


def test_three_in_four_of_sixty_natural_actions_get_a_useful_answer():
    """The actions were written before cases and script; see the README beside them."""
    useful = []
    with NATURAL.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            split, task = row["case"].split()
            game = TURNS.started(int(task), split=split)
            assert game.step(row["question"]) is Verdict.PLAYED
            useful.append(row["answer"] != "-" and row["answer"] in TURNS.simulator_reply(game))
    assert len(useful) == 60
    assert sum(useful) >= 45


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("Examine the lighthouse stairs.", "glove with fresh lamp grease"),  # not the lamp, for "light"
        ("Did anyone see Milo Brandt that night?", "barred from outside"),
        ("Did Dora Finch quarrel with Amos?", "quarrelled about money"),
        ("Look around the scene.", "the lamp, the stairs, the body, the logbook, the stove"),
        ("Search Milo Brandt's shoes.", "Nothing of note"),
    ],
)
def test_an_action_tells_of_what_it_names(action, told):
    assert told in TURNS.turn(TURNS.started(0), action)

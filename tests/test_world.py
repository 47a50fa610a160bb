"""World, agent and judge: who is asked when, what staff may not say, and who decides the outcome."""

import json
import time

import pytest

from dfc.games.game import Verdict
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.world import AGENT, GOAL, JUDGE, NOT_VALID, VALID, WORLD, World, fold

TASKS = {
    "train": (
        Scenario("Sao Paulo, Brazil", "brief", "Sao Paulo, Brazil", ("Sao Paulo", "Sampa")),
        Scenario("fault", "a car does not start", "the tank is empty"),
    ),
    "test": (Scenario("C.I.A.", "brief", "C.I.A.", ("C.I.A.",)),),
}


class Chat(World):
    """A world without rules of its own."""

    splits = {"train": 2, "test": 1}  # noqa: RUF012 (as in every game)

    @classmethod
    def scenarios(cls, split):
        return TASKS[split]

    def legal_actions(self):
        return ["hello"] if self.to_move == AGENT else []

    def _rules(self, seat):
        truth = "" if seat == AGENT else f" {self.scenario.truth}"
        return f"Rules {seat}.{truth} Reply with words."


def started(seed=0, **options):
    game = Chat(**options)
    game.reset(seed)
    return game


def turn(game, asked, reply="Well.", finding=NOT_VALID):
    assert [game.step(said) for said in (asked, reply, finding)] == [Verdict.PLAYED] * 3


def test_a_turn_goes_from_agent_to_world_to_judge_and_back():
    game = started()
    seats = []
    for said in ("one", "two", NOT_VALID):
        seats.append(game.to_move)
        assert game.step(said) is Verdict.PLAYED
    assert seats == [AGENT, WORLD, JUDGE]
    assert game.to_move == AGENT
    assert game.actions_played == 1
    assert game.heard == [("one", "two")]
    assert game.observation(AGENT) == "two"


def test_the_world_remembers_and_the_judge_does_not():
    game = started()
    game.step("first words")
    assert game.observation(WORLD) == "Rules 1. Sao Paulo, Brazil Reply with words.\nfirst words"
    game.step("so it is")
    assert game.observation(JUDGE) == "Rules 2. Sao Paulo, Brazil Reply with words.\nfirst words"
    game.step(NOT_VALID)
    game.step("second words")
    assert game.observation(WORLD) == "second words"
    game.step("so it is")
    assert game.observation(JUDGE) == "Rules 2. Sao Paulo, Brazil Reply with words.\nsecond words"


@pytest.mark.parametrize("reply", ["No.", GOAL, "anything"])
def test_valid_is_a_win_whatever_the_world_says(reply):
    game = started()
    turn(game, "hello", reply, VALID)
    assert game.outcomes == ("win",)


@pytest.mark.parametrize("reply", [GOAL, "goal REACHED.", f"Well done. {GOAL}!"])
def test_a_world_that_concedes_without_the_judge_is_a_loss(reply):
    game = started()
    turn(game, "hello", reply, NOT_VALID)
    assert game.outcomes == ("loss",)


def test_the_turn_limit_is_a_loss_unless_the_last_words_are_valid():
    for finding, outcome in ((NOT_VALID, "loss"), (VALID, "win")):
        game = started(max_turns=3)
        turn(game, "one")
        turn(game, "two")
        turn(game, "three", "Well.", finding)
        assert game.outcomes == (outcome,)
        assert game.actions_played == game.longest == 3


@pytest.mark.parametrize(
    "reply",
    [
        "It is Sao Paulo.",
        "sao paulo",
        "SAO  PAULO!",
        "S\u00e3o Paulo",
        "Sa\u0303o Paulo",
        "Sao-Paulo",
        "**Sao_Paulo**",
        "_Sampa_",
        "Sampa's streets",
        "Sao Pau\u200blo",
        "\uff33ao Paulo",
    ],
)
def test_the_world_may_not_name_the_secret_before_the_agent(reply):
    game = started()
    game.step("hello")
    assert game.step(reply) is Verdict.REFUSED
    assert game.to_move == WORLD
    assert game.heard == []
    assert "by name" in game.observation(WORLD)
    assert game.step("It is large.") is Verdict.PLAYED


@pytest.mark.parametrize("reply", ["Samparino", "San Paulo", "Sao", "preSampa", "Sampa2", "Paulo Sao"])
def test_words_that_only_contain_a_name_are_no_leak(reply):
    game = started()
    game.step("hello")
    assert game.step(reply) is Verdict.PLAYED


def test_a_name_made_of_letters_and_points_is_found():
    game = started(split="test")
    game.step("hello")
    assert game.step("the c.i.a. of course") is Verdict.REFUSED
    assert game.step("the ciao") is Verdict.PLAYED


@pytest.mark.parametrize("asked", ["Is it Sao Paulo?", "s\u00e3o paulo?", "Sampa?"])
def test_after_the_agent_named_the_secret_the_world_may(asked):
    game = started()
    turn(game, asked, "Yes, Sao Paulo.")
    turn(game, "and?", "As I said, Sampa.")


def test_a_secret_without_names_can_be_spoken_of():
    game = started(1)
    turn(game, "hello", "the tank is empty")


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (VALID, Verdict.PLAYED),
        (f"I think so: {VALID}", Verdict.PLAYED),
        ("<valid>", Verdict.PLAYED),
        (f"<think>{NOT_VALID}?</think>{VALID}", Verdict.PLAYED),
        ("long " * 3000 + VALID, Verdict.PLAYED),
        (NOT_VALID, Verdict.PLAYED),
        (f"{VALID} or {NOT_VALID}", Verdict.REFUSED),
        (f"This is not {VALID}.", Verdict.REFUSED),
        ("It isn't <valid>", Verdict.REFUSED),
        (f"It is not {NOT_VALID}", Verdict.REFUSED),
        (f"It names the city, not a country: {VALID}", Verdict.PLAYED),
        ("VALID", Verdict.REFUSED),
        ("yes", Verdict.REFUSED),
        ("", Verdict.REFUSED),
        (f"<think>{VALID}", Verdict.REFUSED),
        ("< VALID >", Verdict.REFUSED),
    ],
)
def test_the_judge_must_say_exactly_one_of_two_tags(reply, verdict):
    game = started()
    game.step("hello")
    game.step("well")
    assert game.step(reply) is verdict
    if verdict is Verdict.REFUSED:
        assert game.to_move == JUDGE
        lines = game.observation(JUDGE).split("\n")
        assert lines[:2] == ["Rules 2. Sao Paulo, Brazil Reply with words.", "hello"]  # asked afresh, with the reason
        assert VALID in lines[2]
        assert NOT_VALID in lines[2]


@pytest.mark.parametrize(("before", "bad", "role"), [((), "", "world"), (("well",), "hm", "judge")])
def test_five_useless_replies_discard_the_game(before, bad, role):
    game = started()
    for said in ("hello", *before):
        game.step(said)
    for _ in range(4):
        assert game.step(bad) is Verdict.REFUSED
        assert game.discarded is None
    assert game.step(bad) is Verdict.DISCARDED
    assert game.over
    assert game.outcomes == ("truncated",)
    assert role in game.discarded
    assert game.forfeited_by is None


def test_a_usable_reply_starts_the_count_of_useless_ones_again():
    game = started()
    game.step("hello")
    for reply in ("", "", "", "", "well"):
        game.step(reply)
    for reply in ("", "", "", "", NOT_VALID):
        game.step(reply)
    assert game.to_move == AGENT
    assert game.discarded is None


@pytest.mark.parametrize("reply", ["", "  \n ", "<think>still thinking"])
def test_an_agent_that_says_nothing_forfeits(reply):
    game = started()
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert game.outcomes == ("invalid",)


def test_what_is_said_is_one_line_without_thoughts_of_at_most_4000_characters():
    game = started()
    game.step("<think>a secret plan</think>one\n\n two\tthree")
    assert game.asked == "one two three"
    assert game.observation(WORLD).split("\n")[-1] == "one two three"
    game = started()
    game.step("x" * 100_000)
    assert len(game.asked) == 4000


@pytest.mark.parametrize("history", [False, True])
def test_copies_made_at_every_step_also_of_staff_play_on_alike(history):
    said = [
        "one",
        "",
        "Sampa",
        "a",
        "oops",
        VALID + NOT_VALID,
        NOT_VALID,
        "Sampa?",
        "Sampa!",
        NOT_VALID,
        "x",
        GOAL,
        VALID,
    ]
    game, cloned, restored = (started(history=history) for _ in range(3))
    for reply in said:
        cloned = cloned.clone()
        record = json.dumps(restored.to_json())
        restored = Chat(history=history)
        restored.from_json(json.loads(record))
        assert json.dumps(restored.to_json()) == record
        verdicts = {twin.step(reply) for twin in (game, cloned, restored)}
        assert len(verdicts) == 1
        for twin in (cloned, restored):
            assert twin.to_json() == game.to_json()
            assert twin.heard == game.heard
            assert [twin.observation(seat) for seat in range(3)] == [game.observation(seat) for seat in range(3)]
    assert game.outcomes == ("win",)


def test_a_copy_shares_nothing_with_the_game():
    game = started()
    game.step("one")
    twin, before = game.clone(), json.dumps(game.to_json())
    twin.step("well")
    assert json.dumps(game.to_json()) == before
    record = game.to_json()
    game.step("well")
    assert record["state"]["position"]["heard"] == []


def test_the_agent_is_not_shown_the_truth():
    for seed in range(2):
        game = started(seed, history=True)
        turn(game, "one", "well")
        assert game.scenario.truth not in game.observation(AGENT)
        assert game.scenario.truth in game.observation(WORLD)


def test_a_new_game_knows_nothing_of_the_last():
    game, fresh = started(), started()
    turn(game, "Sampa", GOAL)
    game.reset(0)
    assert game.to_json() == fresh.to_json()
    assert game.heard == []
    game.step("hello")
    assert game.step("Sampa") is Verdict.REFUSED


def test_a_seed_beyond_the_tasks_begins_again_with_the_first():
    assert [started(seed).scenario.name for seed in range(4)] == [task.name for task in TASKS["train"]] * 2


@pytest.mark.parametrize("text", ["S\u00e3o" * 30_000, "\u0130" * 100_000, "Sao " * 25_000, "Sao-" * 25_000])
def test_long_replies_of_any_characters_are_read_at_once(text):
    begun = time.process_time()
    game = started()
    game.step(text)
    game.step(text)
    game.step(text)
    assert time.process_time() - begun < 0.2


def test_folding_drops_accents_case_and_invisible_characters():
    assert fold("\u00c9cole\u200b STRASSE") == "ecole strasse"


def test_an_unknown_split_is_an_error_that_names_the_known():
    with pytest.raises(ValueError, match="split must be one of train, test, got 'dev'"):
        Chat(split="dev")

"""What all ten games of Paprika, and the bandit with regret, keep alike: tasks, turns, replies of any kind, copies.

What is one game's own stands in the tests of that game; what every game keeps, in test_games_protocol.py.
"""

import hashlib
import json
import time

import hypothesis
import pytest
from game_turns import started
from hypothesis import strategies as st
from paprika_games import GAMES, WORLDS, full_turn, played, simulator_reply

from dfc.games import registry, scripted
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika.guess_my_city import CAPITAL
from dfc.games.paprika.scenario import Scenario
from dfc.games.paprika.task import tagged
from dfc.games.paprika.world import AGENT, GOAL, JUDGE, NOT_VALID, VALID, WORLD
from dfc.games.rng import GameRng

SPLITS = [(name, split) for name, game in GAMES.items() for split in game.sizes]
ANSWERS = [name for name in GAMES if name not in WORLDS]
every_game = pytest.mark.parametrize("name", GAMES)
every_world = pytest.mark.parametrize("name", WORLDS)


# ---- tasks --------------------------------------------------------------------------------------------------------


def described(game):
    """All that makes a task, as JSON holds it."""
    scenario = getattr(game, "scenario", None)
    told = [] if scenario is None else [v for k, v in vars(scenario).items() if k != "facts"]
    return [game.to_json()["state"]["position"], told]


def digest(name, split):
    tasks = [described(started(name, task, split=split)) for task in range(GAMES[name].sizes[split])]
    return hashlib.sha256(json.dumps(tasks).encode()).hexdigest()[:16]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_tasks_never_change(name, split):
    assert digest(name, split) == GAMES[name].digests[split]


@every_game
def test_the_splits_have_the_declared_sizes(name):
    kind = registry.kind(name)
    assert kind.splits == registry.make(name).info.splits == GAMES[name].sizes
    for split, size in GAMES[name].sizes.items():
        assert registry.make(name, split=split).number_of_tasks == size


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_a_seed_takes_the_task_of_its_number_and_starts_again_after_the_last(name, split):
    size = GAMES[name].sizes[split]
    for seed in (0, 1, size - 1, size, size + 7, 12345 * size + 3):
        game, first = started(name, seed, split=split), started(name, seed % size, split=split)
        assert game.task == seed % size
        if name == "bandit":  # the means are the seed's
            assert game.scenario == first.scenario
        else:
            assert described(game) == described(first)
    if size > 8:
        assert described(started(name, 7, split=split)) != described(started(name, 8, split=split))


@pytest.mark.parametrize(("name", "options"), [(name, o) for name, game in GAMES.items() for o in game.refused])
def test_a_value_out_of_range_is_refused(name, options):
    with pytest.raises(ValueError, match=rf"{next(iter(options))} must be .*, got"):
        registry.kind(name)(**options)


# ---- turns and replies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2, 6, 12])
@every_game
def test_the_task_fails_when_the_turns_are_used_up(name, turns):
    turns += name == "bandit"  # a try and the decision
    for reply in GAMES[name].wasted:
        game = started(name, max_turns=turns)
        for turn in range(turns):
            assert not game.over
            assert game.actions_played == turn
            full_turn(game, reply)
            if name in ("wordle", "mastermind"):
                assert f" {turns - turn - 1} turn" in game.observation(0)
        assert game.outcomes == (Outcome.LOSS,)
        assert game.info.max_game_length == game.actions_played == turns


@pytest.mark.parametrize(("name", "reply"), [(name, reply) for name, game in GAMES.items() for reply in game.unread])
def test_a_reply_without_one_answer_is_invalid_and_asked_again_if_allowed(name, reply):
    game = started(name)
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert game.outcomes == (Outcome.INVALID,)
    patient = started(name, malformed_allowance=2)
    for _ in range(2):
        assert patient.step(reply) is Verdict.MALFORMED
        assert patient.actions_played == 0
        assert patient.grammar in patient.observation(0)
        assert patient.observation(0).endswith("Try again.")
    assert patient.clone().step(GAMES[name].read) is Verdict.PLAYED
    assert patient.step(reply) is Verdict.FORFEIT_MALFORMED


@pytest.mark.parametrize("name", ANSWERS)
def test_any_text_gets_a_verdict(name):
    words = [word for lead in GAMES[name].leads for word in lead.split(", ")]
    parts = st.lists(st.sampled_from([*words, *(part[:20] for part in GAMES[name].long), ",", "x", " "]))

    @hypothesis.settings(max_examples=150, deadline=None, database=None)
    @hypothesis.given(st.text(), parts, st.integers(0, 10**30), st.booleans())
    def hears(text, parts, number, tags):
        joined = "".join(parts)
        for said in (text, joined, " ".join(parts) + text, f"{joined}{number}", f"{joined} {number} {text}"):
            game = started(name, malformed_allowance=1)
            verdict = game.step(tagged(said) if tags else said)
            assert verdict in {Verdict.PLAYED, Verdict.MALFORMED}
            assert game.actions_played == (verdict is Verdict.PLAYED)

    hears()


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, game in GAMES.items() for part in game.long])
def test_replies_of_any_length_are_read_at_once(name, part):
    said = part * (100_000 // len(part))
    begun = time.process_time()
    for text in dict.fromkeys(text for lead in GAMES[name].leads for text in (lead + said, said + lead)):
        game = started(name, malformed_allowance=9, history=name not in WORLDS)
        full_turn(game, text)
        if name in WORLDS or game.over:
            continue
        game.step(tagged(text))
        if name not in ("battleship", "minesweeper"):  # a number of any length names a cell off their boards
            assert game.over or len(game.observation(0)) < 2000
    assert time.process_time() - begun < 3.0


# ---- copies -------------------------------------------------------------------------------------------------------


@every_game
def test_copies_and_records_at_every_step_play_on_alike(name):
    options, size = GAMES[name].copied_options, min(GAMES[name].sizes.values())
    for task in range(0, size, max(1, size // GAMES[name].copied)):
        game, cloned, read = (started(name, task, **options) for _ in range(3))
        rng = GameRng(task)
        while not game.over:
            cloned = cloned.clone()
            record = json.dumps(read.to_json())
            read = registry.make(name, **options)
            read.from_json(json.loads(record))
            assert json.dumps(read.to_json()) == record == json.dumps(game.to_json())
            legal = game.legal_actions()
            assert cloned.legal_actions() == read.legal_actions() == legal
            assert len(set(legal)) == len(legal) <= GAMES[name].legal_at_most
            reply = legal[rng.randrange(len(legal))] if game.to_move == AGENT else simulator_reply(game, rng)
            game.clone().step(reply)
            assert json.dumps(game.to_json()) == record
            assert {twin.step(reply) for twin in (game, cloned, read)} == {Verdict.PLAYED}
            assert game.to_json() == cloned.to_json() == read.to_json()
            for twin in (cloned, read):
                for seat in range(1 + len(game.simulators)):
                    assert twin.observation(seat) == game.observation(seat)
                assert [getattr(twin, each) for each in GAMES[name].same] == [
                    getattr(game, each) for each in GAMES[name].same
                ]
                assert twin.measures() == game.measures()


@every_game
def test_a_game_can_be_recorded_before_it_begins(name):
    game = registry.make(name)
    game.from_json(json.loads(json.dumps(game.to_json())))
    assert getattr(game, "scenario", None) is None
    assert game.legal_actions() == []


@pytest.mark.parametrize(
    ("name", "task", "replies"),
    [
        (
            "twenty_questions",
            "tiger",
            ("Lion? Tiger?", "Is it big?", "Perhaps", "Yes", "both", NOT_VALID, "Is it a tiger?", GOAL, VALID),
        ),
        (
            "guess_my_city",
            "Lyon, France",
            (
                "Lyon? Nice?",
                CAPITAL,
                "Not Lyon",
                "No.",
                "both",
                NOT_VALID,
                "Is it Lyon?",
                "Yes, Lyon",
                VALID,
            ),
        ),
    ],
)
def test_replies_that_are_refused_are_restored_as_well(name, task, replies):
    kind = registry.kind(name)
    places = ((split, number, s.name) for split in kind.splits for number, s in enumerate(kind.scenarios(split)))
    split, number = next((split, number) for split, number, found in places if found == task)
    game, twin = (started(name, number, split=split) for _ in range(2))
    for reply in replies:
        record = json.dumps(twin.to_json())
        twin = registry.make(name, split=split)
        twin.from_json(json.loads(record))
        assert twin.step(reply) is game.step(reply)
        assert twin.to_json() == game.to_json() == game.clone().to_json()
        assert twin.clone().observation(WORLD) == game.observation(WORLD)
    assert game.outcomes == twin.outcomes == ("win",)


# ---- world and judge ----------------------------------------------------------------------------------------------


@every_world
def test_simulators_are_told_the_truth_and_the_forms_of_their_replies(name):
    for task in range(0, min(GAMES[name].sizes.values()), 7):
        game = started(name, task)
        for seat, forms in ((AGENT, ()), (WORLD, (GOAL, *game.answers)), (JUDGE, (VALID, NOT_VALID))):
            text = game.observation(seat)
            assert text.isascii()
            assert text.count("Reply with") == 1
            assert game.scenario.briefing in text
            assert (game.scenario.truth in text) == (seat != AGENT)
            assert name != "guess_my_city" or (game.scenario.names[0] in text) == (seat != AGENT)
            assert all(form in text for form in forms)
            assert seat == AGENT or "\n" not in text


@pytest.mark.parametrize("before", [[], ["Yes"]])
@every_world
def test_five_useless_replies_of_a_simulator_discard_the_game(name, before):
    game = started(name)
    for reply in [GAMES[name].read, *before]:
        assert game.step(reply) is Verdict.PLAYED
    for _ in range(4):
        assert game.step("") is Verdict.REFUSED
    assert game.step("") is Verdict.DISCARDED
    assert game.outcomes == (Outcome.TRUNCATED,)
    assert game.forfeited_by is None
    assert ("judge" if before else "world") in game.discarded


@every_world
def test_scenarios_without_facts_have_agents_and_no_script(name):
    game = started(name)
    game.scenario = Scenario("x", "Something is wrong.", "It is off. Switch it on.")
    assert len(game.legal_actions()) >= 2
    for strength in ("simple", "strong"):
        assert scripted.player(name, strength).act(game, GameRng(0)) in game.legal_actions()
    game.step("Switch it on.")
    with pytest.raises(ValueError, match=rf"{name}: scenarios loaded from a file hold no facts.*seat a chat model as"):
        simulator_reply(game)
    assert game.step("Yes") is Verdict.PLAYED
    assert game.step(NOT_VALID) is Verdict.PLAYED


# ---- bots ---------------------------------------------------------------------------------------------------------

RATES = {  # tasks of the test split, and how many of them each strength solves, from and to
    "battleship": (60, {"simple": (16, 44), "strong": (46, 60)}),
    "minesweeper": (100, {"random_legal": (0, 39), "simple": (61, 99), "strong": (91, 100)}),
    "twenty_questions": (60, {"random_legal": (0, 23), "simple": (36, 60), "strong": (59, 60)}),
    "guess_my_city": (40, {"random_legal": (0, 38), "simple": (1, 38), "strong": (39, 40)}),
}


@pytest.mark.parametrize("name", RATES)
def test_bots_of_more_strength_succeed_more_often_and_sooner(name):
    number, bounds = RATES[name]
    wins, turns = {}, {}
    for strength, (least, most) in bounds.items():
        games = [started(name, seed, split="test") for seed in range(number)]
        for seed, game in enumerate(games):
            played(game, scripted.player(name, strength), GameRng(seed))
        wins[strength] = sum(game.outcomes == (Outcome.WIN,) for game in games)
        turns[strength] = sum(game.actions_played for game in games) / number
        assert least <= wins[strength] <= most, (strength, wins)
    assert list(wins.values()) == sorted(wins.values())
    if name in WORLDS:
        assert wins["random_legal"] < wins["simple"]
        assert wins["random_legal"] + {"twenty_questions": 0.3 * number}.get(name, 0) < wins["simple"]
        assert turns["strong"] < {"twenty_questions": 9, "guess_my_city": 7}[name]
        assert turns["strong"] < turns["simple"] < turns["random_legal"]
    if name in ("minesweeper", "guess_my_city"):
        assert wins["simple"] < wins["strong"]

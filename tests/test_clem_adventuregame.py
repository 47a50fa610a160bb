"""The adventure game: its world against a model of its own, prices and ends, what is hidden, maps, and its players."""

import collections
import dataclasses
import itertools
import re

import pytest

from dfc.games import registry, scripted
from dfc.games.dialogue.adventure import EXPERIMENTS, AdventureGame, adventure_of
from dfc.games.dialogue.adventure_world import PHRASES, Adventure, Place, World, data
from dfc.games.game import NOT_OF_FORM, UNREADABLE, Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 64, "validation": 64, "test": 128}
# Kitchen: a table with a mug, a closed box with a pen and a hat. Cellar, beside it: a shelf with an apple.
HOUSE = Adventure(
    rooms=("kitchen", "cellar"),
    exits=((1,), (0,)),
    start=0,
    places=(
        Place("table", 0, container=False, open=True),
        Place("box", 0, container=True, open=False),
        Place("shelf", 1, container=False, open=True),
    ),
    things=("mug", "pen", "hat", "apple"),
    lying=(0, 1, 1, 2),
    goals=((0, 2), (1, 0), (3, 1)),
)


def started(task=0, world=None, **options):
    game = AdventureGame(**options)
    game.reset(task)
    if world is not None:
        game.world = world
    return game


def at_home(**options):
    return started(world=World(HOUSE), **options)


# ---- the world ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "said", "answer", "done"),
    [
        ((), "look", "You are in the kitchen.\nThere is a table; on it: a mug.\nThere is a box; it is closed.\n", True),
        ((), "open the BOX.", "You open it. There is an open box; in it: a pen and a hat.", True),
        (("open box",), "open box", "The box is already open.", False),
        ((), "close box", "The box is already closed.", False),
        ((), "open table", "The table cannot be opened or closed.", False),
        ((), "open mug", "The mug cannot be opened or closed.", False),
        ((), "open shelf", "You see no shelf here.", False),
        ((), "pick up the mug", "You have the mug now. You carry a mug.", True),
        ((), "take mug from the table", "You have the mug now. You carry a mug.", True),
        (("take mug",), "take mug", "You already carry the mug.", False),
        ((), "take table", "You cannot carry the table.", False),
        (("open box", "close box"), "take pen", "You see no pen here.", False),
        (("take mug", "open box"), "put the mug into the box", "The mug is now in the box.", True),
        (("take mug",), "put mug in box", "The box is closed.", False),
        (("take mug",), "put mug on shelf", "You see no shelf here.", False),
        (("take mug",), "put mug on mug", "Nothing can lie in or on the mug.", False),
        (("take mug",), "put mug", "Say also where, in or on what.", False),
        ((), "put mug on table", "You do not carry a thing called mug.", False),
        ((), "go cellar", "You are in the cellar.\nThere is a shelf; on it: an apple.\nYou can go to: kitchen.", True),
        ((), "go back to the kitchen", "You are already in the kitchen.", False),
        ((), "go to attic", "You cannot go to the attic from here.", False),
        (("take mug",), "inventory", "You carry a mug.", True),
        ((), "inventory", "You carry nothing.", True),
        ((), "examine mug", "The mug is on the table.", True),
        ((), "look in box", "There is a box; it is closed.", True),
        ((), "take", "Name also what or where: take ...", False),
        ((), "eat mug", "You do not know how to do that: eat mug", False),
        ((), "dance " * 50, f"You do not know how to do that: {('dance ' * 50)[:40]}...", False),
    ],
)
def test_answers(before, said, answer, done):
    world = World(HOUSE)
    for command in before:
        assert world.do(command)[1], command
    unchanged = world.state()
    told, carried_out = world.do(said)
    assert (told.startswith(answer), carried_out) == (True, done), told
    assert carried_out or world.state() == unchanged


def test_two_things_at_a_time():
    world = World(HOUSE, hands=2)
    assert all(world.do(command)[1] for command in ("take mug", "open box", "take pen"))
    assert world.do("take hat") == ("You can carry only 2 things at a time. You carry a mug and a pen.", False)
    assert not any(command.startswith("take") for command in world.feasible())
    assert World(HOUSE).do("take mug")[1]
    assert world.do("put pen on table")[1]
    assert world.do("take hat")[1]


def test_invented_words_replace_the_usual_ones_and_are_explained():
    for task in range(32):
        game, usual = started(task, invented_words=True), started(task)
        words = game.world.vocabulary
        assert len(words.things) == 3
        assert len(words.verbs) == 1
        assert len(words.meanings) == 4
        rules = game.observation(0)
        for word, meaning in words.meanings.items():
            assert f"A new word: {word} means {meaning}." in rules
            assert word not in usual.observation(0).split()
        (verb,) = words.verbs
        assert not any(game.world.verb(f"{phrase} x")[0] for phrase in PHRASES[verb])
        shown = set(re.findall("[a-z]+", " ".join([*game.world.names, game.world.goal()])))
        assert not shown & set(words.things)
    taken = {word for known in data()["rooms"].values() for names in known.values() for name in names for word in name}
    assert not set(data()["invented"]) & (taken | set(data()["items"]) | set(data()["rooms"]))


def test_every_listed_command_is_carried_out():
    for task in range(0, 128, 5):
        game = started(task, invented_words=task % 2 == 0)
        rng = GameRng(task)
        for _ in range(30):
            commands = game.world.feasible()
            for command in commands:
                twin = game.clone()
                assert twin.world.do(command)[1], command
            game.world.do(commands[rng.randrange(len(commands))])


# ---- ends and prices ------------------------------------------------------------------------------------------------

SOLVED = ("take mug", "open box", "take pen", "put pen on table", "go to cellar", "put mug on shelf", "take apple")
SOLVED = (*SOLVED, "go to kitchen", "put apple in box")


@pytest.mark.parametrize(("turns", "reached"), [(0, 0), (4, 1), (6, 2), (9, 3)])
def test_done_is_paid_for_the_goals_that_hold_then(turns, reached):
    game = at_home()
    for command in SOLVED[:turns]:
        assert game.step(f"> {command}") is Verdict.PLAYED
        assert "quality" not in game.measures()
    assert game.step("> Done.") is Verdict.PLAYED
    assert game.outcomes == (Outcome.WIN if reached == 3 else Outcome.LOSS,)
    assert game.measures()["quality"] == pytest.approx(100 * reached / 3)
    assert (game.measures()["goals"], game.measures()["refused"], game.abort_reason) == (reached, 0.0, None)


def test_a_goal_that_no_longer_holds_is_not_paid():
    game = at_home()
    for command in ("open box", "take pen", "put pen on table", "take pen", "done"):
        game.step(f"> {command}")
    assert (game.outcomes, game.measures()["quality"]) == ((Outcome.LOSS,), 0.0)


def test_the_limit_of_turns_breaks_off_by_nobodys_fault_whatever_was_reached():
    game = at_home(rounds=10)
    for command in (*SOLVED, "look"):
        assert not game.over
        game.step(f"> {command}")
    assert (game.outcomes, game.forfeited_by, game.actions_played) == ((Outcome.INVALID,), None, 10)
    assert game.abort_reason == "The limit of 10 turns was reached."
    assert game.measures() == {"rounds": 10.0, "goals": 3.0, "refused": 0.0}
    in_time = at_home(rounds=10)
    for command in (*SOLVED, "done"):
        in_time.step(f"> {command}")
    assert (in_time.outcomes, in_time.measures()["quality"]) == ((Outcome.WIN,), 100.0)


def test_what_cannot_be_done_costs_a_turn_and_breaks_nothing_off():
    game = at_home(rounds=3)
    for command in ("take dragon", "go to the moon"):
        assert game.step(f"> {command}") is Verdict.PLAYED
    assert game.observation(0) == "You cannot go to the moon from here."
    assert game.measures() == {"rounds": 3.0, "goals": 0.0, "refused": 2.0}
    assert started().world.hands == 0
    assert AdventureGame().rounds == 50


@pytest.mark.parametrize("reply", ["", "look", "I will look.\n> look", ">", "> \nlook", "done", "<think>> look"])
def test_a_reply_without_the_sign_breaks_the_game_off(reply):
    game = started()
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == ((Outcome.INVALID,), 0)
    assert game.abort_reason.startswith((UNREADABLE, NOT_OF_FORM))
    assert "quality" not in game.measures()


PLANNING = EXPERIMENTS.index("easy_planning")


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("> look\nNext actions: take mug, abandoned", Verdict.PLAYED),
        ("> look\nI think.\nNext actions:", Verdict.PLAYED),
        ("> done", Verdict.PLAYED),
        ("> look", Verdict.FORFEIT_MALFORMED),
        ("> look Next actions: done", Verdict.FORFEIT_MALFORMED),
        ("> look\nnext actions: done", Verdict.FORFEIT_MALFORMED),
        ("> look at the abandoned thing", Verdict.FORFEIT_MALFORMED),
        ("Next actions: look\n> look", Verdict.FORFEIT_MALFORMED),
    ],
)
def test_planning_wants_a_line_of_plans_except_for_the_end(reply, verdict):
    game = started(PLANNING)
    assert game.experiment == "easy_planning"
    assert game.step(reply) is verdict
    if verdict is not Verdict.PLAYED:
        assert "Next actions:" in game.abort_reason
    assert started().step(reply.replace("Next actions: look\n", "")) is Verdict.PLAYED  # basic ignores further lines


def test_only_the_first_line_is_carried_out_and_the_plan_is_not():
    game = started(PLANNING, World(HOUSE))
    game.step("> open box\nNext actions: take pen, done\n> take hat\n> done")
    assert not game.over
    assert game.world.open[1]
    assert game.world.carried() == []


# ---- what is hidden -------------------------------------------------------------------------------------------------


def test_what_lies_in_closed_containers_shows_nowhere_until_they_are_opened():
    """Twins: the same house, other things in the box; all texts, lists and choices agree until it is opened."""
    other = dataclasses.replace(HOUSE, lying=(0, 2, 2, 2))
    hidden = dataclasses.replace(HOUSE, lying=(0, 1, 1, 1))
    emptied = dataclasses.replace(hidden, things=("mug", "pen", "apple", "hat"))
    for said in ("look", "take pen", "take hat", "take apple", "examine box", "examine pen", "put pen on table"):
        assert World(hidden).do(said) == World(emptied).do(said)
    for said in ("take hat", "examine hat", "open hat"):  # as what does not exist
        assert World(HOUSE).do(said)[0] == World(HOUSE).do(said.replace("hat", "ufo"))[0].replace("ufo", "hat")
    assert World(HOUSE).do("look") == World(other).do("look")
    assert World(HOUSE).feasible() == World(other).feasible()


def test_players_know_only_what_was_seen():
    """Everything that was not seen is shuffled before each choice, which is what it was."""
    for task, strength in itertools.product(range(0, 128, 7), ("strong", "simple")):
        game = started(task)
        player = scripted.player(game, strength)
        rng = GameRng(task)
        while not game.over:
            twin, world = game.clone(), game.world
            unseen = [place for place, seen in enumerate(world.seen) if not seen]
            for thing, place in enumerate(world.where):
                if place in unseen:
                    twin.world.where[thing] = unseen[(unseen.index(place) + 1) % len(unseen)]
            reply = player.act(game, GameRng(rng.randrange(99)))
            rng.draws -= 1
            goals_met = twin.world.reached() != world.reached()
            assert goals_met or player.act(twin, GameRng(rng.randrange(99))) == reply
            game.step(reply)


# ---- maps -----------------------------------------------------------------------------------------------------------


def shortest(house, hands):
    """The fewest commands that reach all goals, by a search in a model of its own; nothing is closed or moved twice."""
    goals = dict(house.goals)
    needed = {house.lying[thing] for thing in goals} | set(goals.values())
    closed = frozenset(place for place in needed if not house.places[place].open)
    first = (house.start, tuple(house.lying[thing] for thing in goals), closed)
    before, queue = {first: None}, collections.deque([first])
    while queue:
        state = queue.popleft()
        room, lying, shut = state
        if lying == tuple(goals.values()):
            path = []
            while before[state]:
                state, command = before[state]
                path.append(command)
            return path[::-1]
        steps = [((other, lying, shut), f"go to {house.rooms[other]}") for other in house.exits[room]]
        near = {place for place in needed if house.places[place].room == room}
        steps += [((room, lying, shut - {place}), f"open {house.places[place].name}") for place in near & shut]
        for number, (thing, target) in enumerate(goals.items()):
            name = house.things[thing]
            if lying[number] in near - shut and lying[number] != target and (not hands or lying.count(-1) < hands):
                steps.append(((room, (*lying[:number], -1, *lying[number + 1 :]), shut), f"take {name}"))
            if lying[number] == -1 and target in near - shut:
                moved = (*lying[:number], target, *lying[number + 1 :])
                steps.append(((room, moved, shut), f"put {name} on {house.places[target].name}"))
        for after, command in steps:
            if after not in before:
                before[after] = (state, command)
                queue.append(after)
    return None


@pytest.mark.parametrize("split", SPLITS)
def test_every_map_is_solved_by_a_search_and_by_the_strong_player(split):
    for task in range(SPLITS[split]):
        game = started(task, split=split)
        player, rng = scripted.player(game, "strong"), GameRng(0)
        while not game.over:
            assert game.step(player.act(game, rng)) is Verdict.PLAYED
        assert game.measures()["quality"] == 100.0
        assert game.measures()["refused"] == 0.0
        if task % 8 in (0, 5):  # easy with any number of things, hard with two
            solved = started(task, split=split)
            path = shortest(solved.world.adventure, solved.world.hands)
            assert len(path) < game.actions_played <= 40
            for command in (*path, "done"):
                solved.step(solved.action(command))
            assert (solved.outcomes, solved.measures()["refused"]) == ((Outcome.WIN,), 0.0)


def test_maps_of_all_splits_differ_and_are_as_their_experiment_says():
    assert dict(AdventureGame.splits) == SPLITS
    assert AdventureGame.evaluation_only
    assert len(set(EXPERIMENTS)) == 8
    found = {}
    for split, size in SPLITS.items():
        for task in range(size):
            game = started(task + 3 * size, split=split)
            house, world = game.world.adventure, game.world
            assert game.experiment == EXPERIMENTS[task % 8]
            assert (world.hands == 2) == game.experiment.endswith("two_things")
            assert house == adventure_of(split, task)
            hard = game.experiment.startswith("hard")
            sources, targets = (
                [house.places[p] for p in ps]
                for ps in zip(*((house.lying[t], p) for t, p in house.goals), strict=False)
            )
            assert len(house.rooms) == (6 if hard else 4)
            assert len(set(house.things)) == len(house.things)
            assert len({*targets}) == (3 if hard else 1)
            assert not {*sources} & {*targets}
            assert all(place.open != hard for place in sources)
            assert any(not place.open for place in targets) == hard
            goals = frozenset((house.things[t], house.places[p].name) for t, p in house.goals)
            found.setdefault((goals, frozenset(house.rooms)), set()).add((split, task // 8))
    assert len(found) == 64
    assert all(len(places) == 1 for places in found.values())
    names = [place for known in data()["rooms"].values() for kind in known.values() for place in kind]
    assert len(names) == len(set(names))
    assert not set(names) & (set(data()["items"]) | set(data()["rooms"]))


def test_simple_players_are_between_random_and_strong_ones():
    quality = {}
    for strength in ("random_legal", "simple", "strong"):
        games = []
        for task in range(64):
            game = registry.make("clem_adventuregame")
            game.reset(task)
            player, rng = scripted.player(game, strength), GameRng(task)
            while not game.over:
                game.step(player.act(game, rng))
            games.append(game.measures().get("quality", 0.0))
        quality[strength] = sum(games) / len(games)
    assert quality["random_legal"] < 5.0
    assert 50.0 < quality["simple"] < 90.0 < quality["strong"]

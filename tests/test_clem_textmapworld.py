"""Map navigation: what a step is worth, when a game ends or is broken off, its maps, its graphs, its players."""

import itertools
import json

import pytest
from game_turns import played

from dfc.games import registry, scripted
from dfc.games.dialogue import maps
from dfc.games.dialogue.maps import BACK, STEPS, RoomMap, useful_moves
from dfc.games.dialogue.text_map import TextMap, TextMapGraph, TextMapRoom
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng

KINDS = {
    "clem_textmapworld": (TextMap, {"train": 50, "validation": 30, "test": 50}),
    "clem_textmapworld_specificroom": (TextMapRoom, {"train": 50, "validation": 30, "test": 30}),
    "clem_textmapworld_graphreasoning": (TextMapGraph, {"train": 50, "validation": 30, "test": 30}),
}
# Attic
#   |
# Hall - Study - Vault      the player begins in the Study
MAP = RoomMap(
    ("Attic", "Hall", "Study", "Vault"),
    ({"south": 1}, {"north": 0, "east": 2}, {"east": 3, "west": 1}, {"west": 2}),
    start=2,
)


def started(kind=TextMap, found=MAP, **options):
    game = kind(**options)
    game.reset(0)
    game.from_json({**game.to_json(), "state": {**game._state(), "position": {"map": found.to_json(), "path": [2]}}})
    return game


def started_graph(found=MAP, **options):
    game = TextMapGraph(**options)
    game.reset(0)
    game.map, game.path = found, [2]
    return game


def walked(*ways, **options):
    game = started(**options)
    played(game, *(f"GO: {way}" for way in ways), "DONE")
    return game


# ---- quality --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ways", "efficiency", "exploration"),
    [
        (("east", "west", "west", "north"), 1.0, 1.0),
        # Hall and Vault are known, and a walk through both begins as well in the west. But in the Hall, with Attic and
        # Vault left (north and back again, or the Vault first), the end is at the Vault: 1 + 3 steps against 2 + 3.
        (("west", "north", "south", "east", "east"), 1.0, 1.0),
        (("west", "east", "east", "west", "west", "north"), 5 / 6, 1.0),
        (("east", "west", "west", "north", "south"), 4 / 5, 1.0),  # nothing is left: the last step is of no use
        (("east", "west"), 1.0, 1 / 2),  # done too early is no failure
        (("north", "east"), 1 / 2, 1 / 2),  # a wall is a step
        (("east", "east", "east", "east"), 1 / 4, 1 / 2),
    ],
)
def test_quality_is_the_harmonic_mean_of_useful_steps_and_rooms(ways, efficiency, exploration):
    game = walked(*ways)
    quality = 100 * 2 * efficiency * exploration / (efficiency + exploration)
    assert game.outcomes == (Outcome.WIN,)
    assert game.measures() == {
        "rounds": len(ways) + 1.0,
        "quality": pytest.approx(quality),
        "efficiency": pytest.approx(100 * efficiency),
        "exploration": pytest.approx(100 * exploration),
    }


@pytest.mark.parametrize("ways", [(), ("north",), ("north",) * 10])
def test_who_does_nothing_useful_loses(ways):
    game = walked(*ways)
    assert (game.outcomes, game.measures()["quality"], game.abort_reason) == ((Outcome.LOSS,), 0.0, None)


def shortest_walk(found, entered, here, left):
    """Brute force: the walks of length 1, 2, ... over passages seen, until some go through all rooms left."""
    for length in range(1, 30):
        firsts = set()
        for ways in itertools.product(STEPS, repeat=length):
            room, still, first = here, set(left), None
            for way in ways:
                behind = found.exits[room].get(way)
                if behind is None or (room not in entered and behind not in entered):
                    break
                room, first = behind, behind if first is None else first
                still.discard(room)
            else:
                firsts |= set() if still else {first}
        if firsts:
            return firsts
    raise AssertionError


def test_useful_moves_are_those_of_all_shortest_walks():
    checked = 0
    for seed in range(25):
        rng = GameRng(seed)
        drawn = maps.draw(rng, 5 + seed % 3, cycles=seed % 2)
        if drawn is None:
            continue
        found = drawn[0]
        entered, here = {found.start}, found.start
        for _ in range(8):
            left = {room for known in entered for room in found.exits[known].values()} - entered
            useful = useful_moves(found, frozenset(entered), here)
            if left and len(left) <= 3:
                distances = sum(maps.distance(found, here, room) for room in left)
                if distances <= 6:
                    assert useful == shortest_walk(found, entered, here, left)
                    checked += 1
            assert bool(useful) == bool(left)
            behind = list(found.exits[here].values())
            here = behind[rng.randrange(len(behind))]
            entered.add(here)
    assert checked > 60


# ---- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TextMap, TextMapRoom])
def test_who_never_says_that_it_is_done_has_the_game_broken_off_without_a_culprit(kind):
    game = started(kind, rounds=6)
    verdict = played(game, *["GO: east", "GO: west"] * 3)
    assert (verdict, game.outcomes) == (Verdict.PLAYED, (Outcome.INVALID,))
    assert (game.forfeited_by, game.abort_reason) == (None, "the player had not said DONE after 6 replies")
    assert game.measures() == {"rounds": 6.0}
    assert walked("east", "west", "west", "north", "south", rounds=6).outcomes == (Outcome.WIN,)


@pytest.mark.parametrize(
    "reply",
    ["", "north", "GO north", "GO: up", "DONE GO: north", "GO: north\nGO: west", "I am DONE", "GO: west.", "DONE."],
)
def test_a_reply_that_is_no_action_breaks_the_game_off(reply):
    game = started()
    assert played(game, reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == ((Outcome.INVALID,), 0)
    assert "quality" not in game.measures()


@pytest.mark.parametrize("reply", ["go: WEST", "GO:west", "<think>or GO: east?</think>\nGo:  west\n"])
def test_letter_case_and_blanks_do_not_matter(reply):
    game = started()
    assert played(game, reply) is Verdict.PLAYED
    assert game.path == [2, 1]
    assert game.observation(0).endswith("You are in this room: Hall. Passages lead north, east.")
    played(game, "done")
    assert game.over


def test_only_the_target_room_counts():
    there = RoomMap(MAP.names, MAP.exits, MAP.start, target=0)
    for ways, quality in (
        (("west", "north"), 100.0),
        (("west",), 0.0),
        (("east", "west", "west", "north"), 100.0),
        ((), 0.0),
    ):
        game = walked(*ways, kind=TextMapRoom, found=there)
        assert game.measures()["quality"] == quality
        assert game.outcomes == ((Outcome.WIN if quality else Outcome.LOSS),)
        assert "Find this room: Attic." in game._rules(0)


# ---- graphs ---------------------------------------------------------------------------------------------------------


def drawing(action, nodes, **edges):
    return json.dumps({"action": action, "graph": {"nodes": nodes, "edges": edges}})


def test_graphs_are_compared_apart_from_the_quality():
    game = started_graph()
    replies = (
        drawing("GO: west", ["study "]),  # right: 1
        drawing("GO: north", ["Study", "Hall"], east=[["Hall", "Study"]], west=[["Study", "Hall"]]),  # right, twice: 1
        drawing("GO: south", ["Study", "Hall", "Attic"], south=[["Attic", "Hall"]]),  # 4 of 5, none wrong: 8/9
        drawing("GO: east", [], north=[["Attic", "Hall"]]),  # 0
        drawing("GO: east", ["Hall", "Pool"]),  # 1 right of 2, of 5: 2/7
        drawing("DONE", []),  # 0
    )
    assert played(game, *replies) is Verdict.PLAYED
    assert game.similarities == pytest.approx([1, 1, 8 / 9, 0, 2 / 7, 0])
    plain = walked("west", "north", "south", "east", "east")
    assert game.measures() == plain.measures() | {"graph_similarity": pytest.approx(100 * (2 + 8 / 9 + 2 / 7) / 6)}


@pytest.mark.parametrize(
    "reply",
    [
        "GO: west",
        "{}",
        "[" * 3_000,
        '{"action": "GO: west"}',
        '{"action": "GO: west", "graph": {}}',
        '{"action": "west", "graph": {"nodes": [], "edges": {}}}',
        '{"action": ["DONE"], "graph": {"nodes": [], "edges": {}}}',
        '{"action": "DONE", "graph": {"nodes": [1], "edges": {}}}',
        '{"action": "DONE", "graph": {"nodes": [], "edges": {"up": []}}}',
        '{"action": "DONE", "graph": {"nodes": [], "edges": {"north": [["a"]]}}}',
        '{"action": "DONE", "graph": {"nodes": [], "edges": {"north": {}}}}',
        '{"action": "DONE", "graph": {"nodes": [], "edges": {}}} Bye.',
        '{"action": "DONE", "graph": {"nodes": ["' + "a" * 5_000 + '"], "edges": {}}}',
    ],
)
def test_what_is_no_graph_breaks_the_game_off(reply):
    game = started_graph()
    assert played(game, reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == ((Outcome.INVALID,), 0)


def test_a_fence_around_a_graph_does_not_matter():
    game = started_graph()
    assert played(game, f"<think>{{}}</think>```json\n{drawing('GO: west', ['Study'])}\n```") is Verdict.PLAYED
    assert (game.path, game.similarities) == ([2, 1], [1.0])


# ---- what the player may know, and the maps -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TextMap, TextMapGraph])
def test_what_was_not_entered_is_not_shown(kind):
    """Twins: behind the Vault, which the player does not enter, lies nothing or another part of the building."""
    more = RoomMap(
        ("Attic", "Hall", "Study", "Crypt", "Pool"),
        (*MAP.exits[:3], {"west": 2, "south": 4}, {"north": 3}),
        start=2,
    )
    twins = [started(kind, found) if kind is TextMap else started_graph(found) for found in (MAP, more)]
    for way in ("west", "north", "south", "south", "east"):
        first, second = twins
        assert first.observation(0) == second.observation(0)
        assert first.legal_actions() == second.legal_actions()
        replies = {
            scripted.player(registry.make("clem_textmapworld"), "strong").act(game, GameRng(1)) for game in twins
        }
        assert len(replies) == 1
        for game in twins:
            game.step(
                f"GO: {way}" if kind is TextMap else json.dumps({"action": f"GO: {way}", "graph": game.known_graph()})
            )


def seen_from_the_start(found):
    """Passages as walks from the start: two maps with the same ones look alike to the player but for names."""
    places, todo = {found.start: (0, 0)}, [found.start]
    for room in todo:
        for way, behind in found.exits[room].items():
            x, y = places[room]
            place = (x + STEPS[way][0], y + STEPS[way][1])
            assert places.setdefault(behind, place) == place
            todo += [] if behind in todo else [behind]
    assert len(set(places.values())) == len(found.names)
    passages = {(places[a], way) for a, exits in enumerate(found.exits) for way in exits}
    return frozenset(passages), places.get(found.target)


@pytest.mark.parametrize("game_id", KINDS)
def test_maps_are_sound_and_no_two_of_them_alike(game_id):
    kind, splits = KINDS[game_id]
    assert dict(kind.splits) == splits
    assert kind.evaluation_only
    alike = set()
    for split, size in splits.items():
        for task in range(size):
            game = registry.make(game_id, split=split)
            game.reset(task + size)
            found = game.map
            assert found == kind.maps()[split][task]
            assert len(set(found.names)) == len(found.names)
            assert set(found.names) <= set(maps.descriptions())
            for room, exits in enumerate(found.exits):
                assert all(found.exits[behind][BACK[way]] == room for way, behind in exits.items())
            alike.add(seen_from_the_start(found))
            rooms, cycles = len(found.names), sum(map(len, found.exits)) // 2 - len(found.names) + 1
            if kind is TextMapRoom:
                steps = maps.distance(found, found.start, found.target)
                assert game.experiment == {1: "near", 2: "middle"}.get(steps, "far")
                assert (rooms, cycles) == (8, 0)
            else:
                named = {4: "small", 6: "medium", 8: "large"}[rooms] + ("_cycle" if cycles else "")
                assert (game.experiment, cycles) == (named, int("cycle" in named))
                assert game.experiment == kind.experiments[task % len(kind.experiments)]
    assert len(alike) == sum(splits.values())


# ---- players --------------------------------------------------------------------------------------------------------


def test_a_strong_player_goes_back_to_the_room_that_somebody_left_when_no_other_is_left():
    game = started(TextMapRoom, RoomMap(MAP.names, MAP.exits, MAP.start, target=3))
    for way in ("east", "west", "west", "north"):
        game.step(f"GO: {way}")
    player, replies = scripted.player(game, "strong"), []
    while not game.over:
        replies.append(player.act(game, GameRng(0)))
        game.step(replies[-1])
    assert replies == ["GO: south", "GO: east", "GO: east", "DONE"]
    assert game.measures()["quality"] == 100.0


def mean_quality(game_id, strength):
    found = []
    for task in range(KINDS[game_id][1]["test"]):
        game = registry.make(game_id, split="test")
        game.reset(task)
        player, rng = scripted.player(game, strength), GameRng(task)
        while not game.over:
            assert game.step(player.act(game, rng)) is Verdict.PLAYED
        found.append(game.measures().get("quality", 0.0))
    return sum(found) / len(found)


@pytest.mark.parametrize("game_id", KINDS)
def test_strong_players_play_perfectly_and_simple_ones_almost(game_id):
    assert mean_quality(game_id, "strong") == 100.0
    assert 80.0 < mean_quality(game_id, "simple") < 100.0
    assert mean_quality(game_id, "random_legal") < 50.0

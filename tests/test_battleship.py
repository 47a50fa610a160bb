"""Battleship of Paprika: boards against an enumeration of all layouts, shots against a model kept by coordinates."""

import collections
import functools
import itertools
import json

import game_turns
import pytest

from dfc.games.bots import puzzles
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika import battleship
from dfc.games.paprika.battleship import Battleship, placements
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng

SIZES = {"train": 1000, "test": 200}
LENGTHS = {"Carrier": 5, "Battleship": 4, "Destroyer": 2}
PLAYER = next(found for found in puzzles.BOTS if found.kind is Battleship)
started = functools.partial(game_turns.started, Battleship)


def tasks(split):
    game = Battleship(split=split)
    for task in range(SIZES[split]):
        game.reset(task)
        yield game.size, tuple(game._ships)


def cells_of(mask, size):
    return {(n // size, n % size) for n in range(size * size) if mask >> n & 1}


def name(cell):
    return "ABCDEFGHIJ"[cell[0]] + str(cell[1] + 1)


def lines_of(size, length):
    """Every straight run of cells, by trying all sets of runs from every cell."""
    found = set()
    for row, column, down in itertools.product(range(size), range(size), (0, 1)):
        run = frozenset((row + k * down, column + k * (1 - down)) for k in range(length))
        if all(r < size and c < size for r, c in run):
            found.add(run)
    return found


@functools.cache
def layouts(size):
    """Every layout of the three ships, by brute force over their runs."""
    ways = [lines_of(size, length) for length in LENGTHS.values()]
    return [(a, b, c) for a in ways[0] for b in ways[1] if not a & b for c in ways[2] if not c & a and not c & b]


# ---- boards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("length", [2, 4, 5])
def test_placements_are_the_straight_runs_on_the_board(size, length):
    found = placements(size, length)
    assert len(set(found)) == len(found) == 2 * size * (size - length + 1)
    assert {frozenset(cells_of(mask, size)) for mask in found} == lines_of(size, length)


@pytest.mark.parametrize("split", SIZES)
def test_ships_are_straight_whole_on_the_board_and_apart(split):
    sizes = collections.Counter()
    for size, ships in tasks(split):
        sizes[size] += 1
        cells = [cells_of(mask, size) for mask in ships]
        assert sum(1 << r * size + c for ship in cells for r, c in ship) == sum(ships)  # none off the board
        assert [len(ship) for ship in cells] == [5, 4, 2]
        assert len(set.union(*cells)) == 11
        for ship, length in zip(cells, LENGTHS.values(), strict=True):
            assert frozenset(ship) in lines_of(size, length)
    assert sizes == ({5: 504, 6: 496} if split == "train" else {5: 111, 6: 89})
    assert sum(size == 5 for size, _ in itertools.islice(tasks(split), 20)) in range(8, 14)  # mixed from the start


def test_no_two_tasks_have_the_same_ships():
    boards = [board for split in SIZES for board in tasks(split)]
    assert len(set(boards)) == len(boards) == 1200


def test_all_layouts_are_about_equally_likely():
    # Of the small boards about a quarter is drawn; a rule that lays one ship after the other would favour some.
    every = layouts(5)
    assert len(every) > 3 * (504 + 111)
    drawn = [ships for split in SIZES for size, ships in tasks(split) if size == 5]
    at_edge = {0, 4}
    expected = sum(len({r for r, _ in a}) == 1 and next(iter(a))[0] in at_edge for a, _, _ in every) / len(every)
    carriers = [cells_of(ships[0], 5) for ships in drawn]
    found = sum(len({r for r, _ in a}) == 1 and next(iter(a))[0] in at_edge for a in carriers) / len(drawn)
    assert abs(found - expected) < 0.07


# ---- shots --------------------------------------------------------------------------------------------------------


def board_text(size, shots, afloat):
    """The board as text, from the shots and where ships lie."""
    lines = ["- " + " ".join(str(c + 1) for c in range(size))]
    for row in range(size):
        symbols = [("X" if (row, c) in afloat else "M") if (row, c) in shots else "." for c in range(size)]
        lines.append(" ".join(["ABCDEF"[row], *symbols]))
    return lines


@pytest.mark.parametrize("show_board", [True, False])
def test_shots_are_answered_as_by_a_model_kept_by_coordinates(show_board):
    wins = 0
    for task in range(120):
        game = started(task, show_board=show_board, max_turns=22)
        size = game.size
        ships = dict(zip(LENGTHS, (cells_of(mask, size) for mask in game._ships), strict=True))
        afloat = set.union(*ships.values())
        shots, wasted = set(), 0
        rng = GameRng(task)
        while not game.over:
            cell = rng.randrange(size), rng.randrange(size)
            if len(shots) > 12 and rng.randrange(3):
                cell = min(afloat - shots, default=cell)
            game.step(tagged(name(cell)))
            hit = next((ship for ship, cells in ships.items() if cell in cells), None)
            if cell in shots:
                wasted += 1
                expected = f"{name(cell)} was fired at before."
            else:
                shots.add(cell)
                sunk = hit is not None and ships[hit] <= shots
                expected = (
                    f"{name(cell)}: miss." if hit is None else f"{name(cell)}: hit, {hit} of {LENGTHS[hit]} cells"
                )
                expected += "" if hit is None else ", and it has sunk." if sunk else "."
            board = board_text(size, shots, afloat) if show_board else []
            assert game.observation(0).split("\n") == [expected, *board]
            untried = [tagged(name((r, c))) for r in range(size) for c in range(size) if (r, c) not in shots]
            assert game.legal_actions() == ([] if game.over else untried)
            down = sum(cells <= shots for cells in ships.values())
            assert game.ships_sunk == down
            assert [cells_of(hits, size) for hits in game.hits] == [cells & shots for cells in ships.values()]
            hits = len(afloat & shots)
            figures = {"ships_sunk": down, "hits": hits, "misses": len(shots) - hits, "wasted_turns": wasted}
            assert game.measures() == figures
            assert game.over == (down == 3 or game.actions_played == 22)
            assert not game.over or game.outcomes == ((Outcome.WIN if down == 3 else Outcome.LOSS),)
        wins += game.outcomes == (Outcome.WIN,)
    assert 0 < wins < 120


@pytest.mark.parametrize("seed", [1, 2])
def test_eleven_hits_in_the_last_turns_succeed_and_one_turn_less_fails(seed):
    targets = set.union(*(cells_of(mask, started(seed).size) for mask in started(seed)._ships))
    assert len(targets) == 11
    for turns, outcome in ((11, Outcome.WIN), (10, Outcome.LOSS)):
        game = started(seed, max_turns=turns)
        for cell in sorted(targets)[:turns]:
            assert not game.over
            game.step(tagged(name(cell)))
        assert game.outcomes == (outcome,)


def test_twenty_wasted_turns_fail():
    game = started()
    for turn, answer in enumerate(["Z9", "A0", "A7", "J1"] * 5):
        assert not game.over
        assert game.step(tagged(answer)) is Verdict.PLAYED
        assert game.actions_played == turn + 1
        assert "There is no such cell." in game.observation(0)
    assert game.outcomes == (Outcome.LOSS,)
    assert game.measures() == {"ships_sunk": 0, "hits": 0, "misses": 0, "wasted_turns": 20}


def test_the_rules_name_the_size_of_the_board():
    for seed in range(10):
        game = started(seed)
        rules = game.observation(0)
        assert "\n" not in rules
        assert f"{game.size} rows, A to {'?????EF'[game.size]}, and {game.size} columns, 1 to {game.size}" in rules
        assert "within 20 shots" in rules


def results(ships, size, shots):
    """What an honest referee says of shots: per shot the number of the ship hit, or None."""
    return [next((n for n, mask in enumerate(ships) if mask >> r * size + c & 1), None) for r, c in shots]


def test_a_player_cannot_tell_layouts_apart_that_the_shots_do_not():
    compared = 0
    for task in range(150):
        game = started(task)
        if game.size != 5:
            continue
        rng = GameRng(task)
        shots = []
        for _ in range(rng.randrange(9)):
            cell = rng.randrange(5), rng.randrange(5)
            game.step(tagged(name(cell)))
            shots.append(cell)
        own = tuple(game._ships)
        as_masks = (tuple(sum(1 << r * 5 + c for r, c in ship) for ship in layout) for layout in layouts(5))
        said = results(own, 5, shots)
        others = [other for other in as_masks if other != own and results(other, 5, shots) == said]
        if not others:
            continue
        other = others[rng.randrange(len(others))]
        data = game.to_json()
        data["state"]["position"]["ships"] = list(other)
        swapped = Battleship()
        swapped.from_json(data)
        for step in range(6):
            assert swapped.observation(0) == game.observation(0)
            assert swapped.legal_actions() == game.legal_actions()
            assert swapped.measures() == game.measures()
            for choose in (PLAYER.simple, PLAYER.strong):
                assert choose(swapped, 0, GameRng(step)) == choose(game, 0, GameRng(step))
            alike = [c for c in itertools.product(range(5), range(5)) if results(own, 5, [c]) == results(other, 5, [c])]
            cell = alike[rng.randrange(len(alike))]
            shots.append(cell)
            if any(own[n] != other[n] and set(cells_of(own[n], 5)) <= set(shots) for n in range(3)):
                break  # now one of the two has sunk a ship
            if any(own[n] != other[n] and set(cells_of(other[n], 5)) <= set(shots) for n in range(3)):
                break
            assert swapped.step(tagged(name(cell))) is game.step(tagged(name(cell)))
            compared += 1
    assert compared > 100


# ---- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["B3", "b3", " B3 ", "B 3", "b\t03", "\nB3\n"])
def test_spellings_of_a_cell(answer):
    assert started()._read(tagged(answer)) == tagged("B3")


# ---- copies and players -------------------------------------------------------------------------------------------


def test_the_strong_player_fires_where_most_of_the_possible_layouts_lie():
    checked = 0
    for task in range(12):
        game = started(task)
        if game.size != 5:
            continue
        possible = layouts(5)
        rng = GameRng(task)
        while not game.over:
            action = PLAYER.strong(game, 0, rng)
            counts = collections.Counter(cell for layout in possible for ship in layout for cell in ship)
            hidden = [
                cell for cell in itertools.product(range(5), range(5)) if game.board[cell[0] * 5 + cell[1]] == "."
            ]
            best = max(counts[cell] for cell in hidden)
            assert action in {tagged(name(cell)) for cell in hidden if counts[cell] == best}
            checked += 1
            cell = (
                hidden[rng.randrange(len(hidden))]
                if rng.randrange(2)
                else next(c for c in hidden if tagged(name(c)) == action)
            )
            game.step(tagged(name(cell)))
            said = results(game._ships, 5, [cell])[0]
            possible = [p for p in possible if next((n for n, ship in enumerate(p) if cell in ship), None) == said]
    assert checked > 50


def test_the_simple_player_hunts_next_to_a_ship_that_was_hit():
    hunted = 0
    for task in range(40):
        game = started(task)
        rng = GameRng(task)
        while not game.over:
            size = game.size
            found = set().union(
                *(cells_of(h, size) for h, n in zip(game.hits, LENGTHS.values(), strict=True) if h.bit_count() < n)
            )
            hidden = {divmod(n, size) for n, symbol in enumerate(game.board) if symbol == "."}
            near = {c for c in hidden if any(abs(c[0] - r) + abs(c[1] - k) == 1 for r, k in found)}
            action = PLAYER.simple(game, 0, rng)
            assert action in {tagged(name(cell)) for cell in near or hidden}
            hunted += bool(near)
            game.step(action)
    assert hunted > 100


def test_the_table_of_tasks_belongs_to_no_single_game():
    assert battleship._tasks() is battleship._tasks()
    assert "tasks" not in json.dumps(started().to_json())

"""Cellular Automata of Paprika: the step against integer arithmetic, the tasks, what is read and what is told."""

import collections
import functools
import itertools
import json

import game_turns
import numpy as np
import pytest

from dfc.games import scripted
from dfc.games.game import Outcome, Verdict
from dfc.games.paprika import cellular_automata
from dfc.games.paprika.cellular_automata import RULES, CellularAutomata
from dfc.games.paprika.task import tagged
from dfc.games.rng import GameRng

SIZES = {"train": 1000, "test": 500}
ANSWER = RULES[110]
KEYS = [f"{a}{b}{c}" for a in (0, 1) for b in (0, 1) for c in (0, 1)]
started = functools.partial(game_turns.started, CellularAutomata)


def all_pairs(split):
    game = CellularAutomata(split=split)
    for task in range(SIZES[split]):
        game.reset(task)
        yield game.pairs


def wolfram(number, cells):
    """One step by Wolfram's numbering, with array shifts."""
    state = np.array([int(cell) for cell in cells])
    code = 4 * np.roll(state, 1) + 2 * state + np.roll(state, -1)
    return "".join(str(number >> int(c) & 1) for c in code)


def spaced(cells):
    return " ".join(cells)


def outputs_of(rule, game):
    """What the game says that a rule gives for its inputs."""
    if game.step(tagged(rule)) is not Verdict.PLAYED:
        raise AssertionError(rule)
    return game.observation(0).split("\n")


# ---- the automaton ------------------------------------------------------------------------------------------------


def test_the_256_rules_are_listed_by_wolframs_number():
    assert len(set(RULES)) == 256
    for number, rule in enumerate(RULES):
        assert rule == ", ".join(f"{key}: {number >> int(key, 2) & 1}" for key in KEYS)


def test_one_step_is_that_of_integer_arithmetic_for_every_rule():
    states = ["".join(cells) for length in (3, 4, 5) for cells in itertools.product("01", repeat=length)]
    for number, rule in enumerate(RULES):
        table = dict(entry.split(": ") for entry in rule.split(", "))
        for state in [*states, "1011001110"]:
            assert cellular_automata.evolve(table, state) == wolfram(number, state), (number, state)


@pytest.mark.parametrize(
    ("number", "law"),
    [
        (204, lambda near: near[1]),
        (51, lambda near: 1 - near[1]),
        (170, lambda near: near[2]),
        (240, lambda near: near[0]),
        (90, lambda near: near[0] ^ near[2]),
        (232, lambda near: int(sum(near) > 1)),
    ],
)
def test_rules_with_a_name_do_what_their_name_says(number, law):
    table = dict(entry.split(": ") for entry in RULES[number].split(", "))
    for cells in itertools.product((0, 1), repeat=7):
        expected = "".join(str(law((cells[i - 1], cells[i], cells[(i + 1) % 7]))) for i in range(7))
        assert cellular_automata.evolve(table, "".join(map(str, cells))) == expected


# ---- the tasks ----------------------------------------------------------------------------------------------------


def test_no_two_tasks_show_the_same_pairs():
    seen = [frozenset(pairs) for split in SIZES for pairs in all_pairs(split)]
    assert len(set(seen)) == len(seen) == 1500


def test_every_task_comes_from_a_rule_and_has_different_inputs_of_3_to_10_cells():
    lengths, counts = collections.Counter(), collections.Counter()
    for split in SIZES:
        for pairs in all_pairs(split):
            counts[split, len(pairs)] += 1
            lengths.update(len(before) for before, _ in pairs)
            assert len({before for before, _ in pairs}) == len(pairs)
            shown = {(s[i - 1], s[i], s[(i + 1) % len(s)], after[i]) for s, after in pairs for i in range(len(s))}
            assert len({entry[:3] for entry in shown}) == len(shown)  # no neighbourhood has two next states
    assert counts["test", 3] == 500
    assert all(280 < counts["train", n] < 390 for n in (1, 2, 3))
    assert sorted(lengths) == list(range(3, 11))
    assert max(lengths.values()) < 1.3 * min(lengths.values())


def test_no_rule_is_kept_in_the_game():
    game = started(3)
    state = game.to_json()["state"]
    assert set(state["position"]) == {"pairs", "answers", "reproduced"}
    assert not any(rule in json.dumps(state) for rule in RULES)


# ---- play ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "task"), [("train", 0), ("train", 5), ("train", 11), ("test", 0), ("test", 77)])
def test_exactly_the_rules_that_reproduce_every_output_succeed(split, task):
    pairs = started(task, split=split).pairs
    around = {(s[i - 1], s[i], s[(i + 1) % len(s)]) for s, _ in pairs for i in range(len(s))}
    winners = 0
    for number, rule in enumerate(RULES):
        game = started(task, split=split)
        lines = outputs_of(rule, game)
        given = [wolfram(number, before) for before, _ in pairs]
        right = [output == after for output, (_, after) in zip(given, pairs, strict=True)]
        assert game.measures() == {"pairs": len(pairs), "pairs_reproduced": sum(right), "answers": 1}
        if all(right):
            winners += 1
            assert game.outcomes == (Outcome.WIN,)
            assert lines == ["Your rule reproduces every output."]
        else:
            assert not game.over
            assert lines == [
                f"Your rule gives for input {n}: {spaced(output)} ({'right' if ok else 'wrong'})."
                for n, (output, ok) in enumerate(zip(given, right, strict=True), start=1)
            ]
    assert winners == 2 ** (8 - len(around))


@pytest.mark.parametrize("split", SIZES)
def test_the_player_is_told_the_true_number_of_pairs_and_all_of_them(split):
    for task in range(40):
        game = started(task, split=split)
        rules, *news = game.observation(0).split("\n")
        count = len(game.pairs)
        assert ("1 input and its output" if count == 1 else f"{count} inputs and their outputs") in rules
        assert news == [
            f"Input {n}: {spaced(before)}. Output {n}: {spaced(after)}."
            for n, (before, after) in enumerate(game.pairs, start=1)
        ]


def test_a_right_rule_in_the_last_turn_still_succeeds():
    game = started(2, split="test")
    right = next(rule for n, rule in enumerate(RULES) if all(wolfram(n, b) == a for b, a in game.pairs))
    wrong = next(rule for n, rule in enumerate(RULES) if any(wolfram(n, b) != a for b, a in game.pairs))
    assert "You have 6 turns" in game.observation(0)
    for _ in range(5):
        game.step(tagged(wrong))
    game.step(tagged(right))
    assert game.outcomes == (Outcome.WIN,)


# ---- reading ------------------------------------------------------------------------------------------------------


def entries(form="{}: {}"):
    return [form.format(*entry.split(": ")) for entry in ANSWER.split(", ")]


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER,
        "\n".join(entries()),
        " ".join(entries()),
        ",".join(reversed(entries())),
        ",\n".join(entries("{} :  {}")),
        " ".join(entries("{}:{}")),
        "\n".join(entries("<rule> {}: {} </rule>")),
        "".join(entries("<rule>{}:{}</rule>")),
        "<Rule> 111: 1 </Rule> 000: 1, " + ANSWER,  # the last entry of a neighbourhood counts
        f"\t {ANSWER}, \u2003",
    ],
)
def test_the_eight_entries_are_read_in_any_order_and_dress(answer):
    assert started()._read(tagged(answer)) == tagged(ANSWER)


# ---- copies and players -------------------------------------------------------------------------------------------


def test_the_strong_player_solves_every_task_at_once():
    for split, size in SIZES.items():
        for task in range(size):
            game = started(task, split=split)
            game.step(scripted.strong(game).act(game, GameRng(0)))
            assert game.outcomes == (Outcome.WIN,)


def test_the_simple_player_reproduces_the_first_pair_and_is_weaker():
    won = 0
    for task in range(100):
        game = started(task, split="test")
        rng = GameRng(task)
        while not game.over:
            action = scripted.player(game, "simple").act(game, rng)
            assert action in game.legal_actions()
            game.step(action)
            assert "(wrong)" not in game.observation(0).split("\n")[0]
        won += game.outcomes == (Outcome.WIN,)
    assert 40 < won < 90

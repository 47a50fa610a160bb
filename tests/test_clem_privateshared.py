"""Private and shared: its rules and quality, probes that leave no trace, its forms and its players."""

import functools
import itertools
import re

import game_turns
import pytest

from dfc.games import registry, scripted
from dfc.games.dialogue import private_shared
from dfc.games.dialogue.private_shared import SLOTS, PrivateShared, cohen_kappa, mentioned, named, table
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng

SPLITS = {"train": 80, "validation": 60, "test": 50}
started = functools.partial(game_turns.started, PrivateShared)


def probes(game, *, wrong=0):
    """Answers a whole block of asides truly, but for the first `wrong` of them."""
    for number in range(SLOTS):
        assert game.aside
        slot, question = game.probe
        assert question in game.observation(0)
        known = game.shared_from[slot] < len(game.filled)
        game.step(f"ASIDE: {'yes' if known is (number >= wrong) else 'no'}")


def finished(game, answers=None, *, wrong=0):
    """Plays to the end: one answer for each question, by default the value; `wrong` false asides in the last block."""
    for number, answer in enumerate([*game.form.values] if answers is None else answers):
        probes(game)
        assert game.observation(0).endswith(game.form.questions[number])
        assert game.step(f"ANSWER: {answer}") is Verdict.PLAYED
    probes(game, wrong=wrong)
    return game


# ---- quality --------------------------------------------------------------------------------------------------------


def kappa_of_table(first, second):
    """Another way to it, that of sklearn's `cohen_kappa_score`: 1 - (off the diagonal seen) / (off it expected)."""
    table_of = [[sum((a, b) == (row, column) for a, b in zip(first, second, strict=True)) for column in (0, 1)]
                for row in (0, 1)]  # fmt: skip
    rows = [sum(table_of[row]) for row in (0, 1)]
    columns = [table_of[0][column] + table_of[1][column] for column in (0, 1)]
    expected = sum(rows[row] * columns[1 - row] for row in (0, 1)) / len(first)
    return 1.0 - (table_of[0][1] + table_of[1][0]) / expected if expected else 0.0


def test_kappa_is_that_of_the_table_of_agreement():
    for cases in range(1, 6):
        for first in itertools.product([False, True], repeat=cases):
            for second in itertools.product([False, True], repeat=cases):
                assert cohen_kappa(first, second) == pytest.approx(kappa_of_table(first, second))
    assert cohen_kappa([True, True, False, False], [True, False, False, False]) == 0.5
    assert cohen_kappa([True, False], [False, True]) == -1.0
    assert cohen_kappa([True] * 30, [True] * 30) == 0.0


def test_all_slots_and_all_asides_right_win():
    game = finished(started())
    assert game.outcomes == (Outcome.WIN,)
    assert game.measures() == {"rounds": 5.0, "quality": 100.0, "slot_accuracy": 1.0, "kappa": 1.0}
    assert game.actions_played == game.max_game_length == 35


def test_quality_is_the_harmonic_mean_of_slots_and_kappa():
    game = started()
    # 4 of 5 slots; 2 of 30 asides wrong, where 15 are yes: p_o 28/30, said 13 yes, p_e 1/2.
    finished(game, [*game.form.values[:4], "I forgot"], wrong=2)
    assert game.outcomes == (Outcome.LOSS,)
    assert game.measures()["kappa"] == pytest.approx((28 / 30 - 0.5) / 0.5)
    assert game.measures()["slot_accuracy"] == 0.8
    assert game.measures()["quality"] == pytest.approx(100 * 2 / (1 / 0.8 + 1 / (13 / 15)))


@pytest.mark.parametrize("said", ["yes", "no"])
def test_one_reply_to_all_asides_is_worth_nothing_however_well_the_form_is_filled(said):
    """What the paper saw of trained models: "ASIDE: no" to everything."""
    game = started()
    while not game.over:
        game.step(f"ASIDE: {said}" if game.aside else f"ANSWER: {game.form.values[len(game.filled)]}")
    assert (game.outcomes, game.measures()["quality"]) == ((Outcome.LOSS,), 0.0)
    assert (game.measures()["slot_accuracy"], game.measures()["kappa"]) == (1.0, 0.0)


def test_a_negative_kappa_counts_as_none():
    game = started()
    for value in [*game.form.values[:4], "nothing"]:
        probes(game, wrong=SLOTS)
        game.step(f"ANSWER: {value}")
    probes(game, wrong=SLOTS)
    assert game.measures() == {"rounds": 5.0, "quality": 0.0, "slot_accuracy": 0.8, "kappa": -1.0}


def test_a_value_that_is_told_early_is_shared_from_then_on():
    game = started()
    values = game.form.values
    probes(game)
    game.step(f"ANSWER: {values[0]}, and {values[3].upper()}!")
    assert game.shared_from == [0, 1, 2, 0, 4]
    assert game.filled == [False]
    probes(game)
    truth = {slot: known for (slot, _), known in zip(game.form.probes[1], game.truth()[SLOTS:], strict=True)}
    assert truth == {0: True, 1: False, 2: False, 3: True, 4: False}


def test_a_question_that_was_answered_is_shared_whatever_was_said():
    """As there: from the question for a slot on the true reply is yes, its value told or not."""
    game = started()
    probes(game)
    game.step("ANSWER: I would rather not say")
    probes(game)
    assert sum(game.truth()) == 1
    assert game.filled == [False]


@pytest.mark.parametrize(("most", "filled"), [(1, 0.0), (4, 0.0), (5, 1.0), (0, 1.0)])
def test_the_whole_form_in_every_answer_fills_nothing(most, filled):
    game = started(values_per_answer=most)
    finished(game, [", ".join(game.form.values)] * SLOTS)
    assert game.measures()["slot_accuracy"] == filled
    assert game.shared_from == [0] * SLOTS
    assert game.measures()["kappa"] == 1.0


BLIND = {  # without a look at the question
    "one value": lambda form: form.values[0],
    "two values": lambda form: " or ".join(sorted(form.values)[:2]),
    "a value and one that is not in the form": lambda form: (
        f"{form.values[0]} or {next(value for value in form.pool if value not in form.values)}"
    ),
    "all values": lambda form: ", ".join(form.values),
    "all values of the tables": lambda form: ", ".join(form.pool),
}


@pytest.mark.parametrize("policy", BLIND)
def test_two_values_in_one_answer_pay_no_more_than_none(policy):
    paid = []
    for task in range(50):
        game = PrivateShared(split="test")
        game.reset(task)
        while not game.over:
            game.step("ASIDE: no" if game.aside else f"ANSWER: {BLIND[policy](game.form)}")
        paid.append(game.measures()["slot_accuracy"])
    assert len(paid) == 50
    assert sum(paid) / 50 == pytest.approx(0.2 if policy == "one value" else 0.0)


def test_a_value_within_another_one_is_not_counted_as_a_second():
    assert named(("wine", "red wine"), "Red wine, please") == 1
    assert named(("wine", "red wine"), "Red wine and wine") == 2
    assert named(("Oslo", "oslo"), "Oslo, I said Oslo") == 1


@pytest.mark.parametrize(
    ("value", "text", "held"),
    [("Oslo", "oslo.", True), ("ice tea", "Ice-tea please", True), ("17", "117", False), ("tact", "contact", False)],
)
def test_values_are_compared_word_by_word(value, text, held):
    assert mentioned(value, text) is held


# ---- form of replies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", ["Oslo", "answer: Oslo", "ASIDE: Oslo", "ANSWER:", "ANSWER: Oslo\nBye", "", "ASIDE: yes"]
)
def test_an_answer_without_tag_or_of_two_lines_breaks_the_game_off(reply):
    game = started()
    probes(game)
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert (game.outcomes, game.forfeited_by) == ((Outcome.INVALID,), 0)
    assert game.measures() == {"rounds": 1.0, "slot_accuracy": 0.0}


def test_an_aside_has_five_tries_and_each_begins_anew():
    game = started()
    for _ in range(2):
        before = len(game.probed)
        assert [game.step("ASIDE: maybe") for _ in range(4)] == [Verdict.MALFORMED] * 4
        assert game.observation(0).endswith("Reply in the form ASIDE: yes or ASIDE: no. Try again.")
        assert game.step("ASIDE: Yes, it does.") is Verdict.PLAYED
        assert game.probed[before:] == [True]
    for _ in range(4):
        game.step("no")
    assert game.step("ASIDE: nothing") is Verdict.FORFEIT_MALFORMED
    assert game.outcomes == (Outcome.INVALID,)


@pytest.mark.parametrize(
    "said", ["ASIDE: no", "ANSWER: no", "ASIDE: No.", "ASIDE: no, not yet", "<think>?</think>\nASIDE:no"]
)
def test_spellings_of_no(said):
    game = started()
    assert game.step(said) is Verdict.PLAYED
    assert game.probed == [False]


@pytest.mark.parametrize("said", ['ASIDE: "no"', "ASIDE: - yes", "aside: no"])
def test_signs_before_the_word_are_asked_again_as_in_clembench(said):
    game = started()
    assert game.step(said) is Verdict.MALFORMED
    assert game.probed == []


def test_a_reply_is_cut_before_it_is_read():
    late = started()
    probes(late)
    late.step(f"ANSWER: {'x' * 2000} {late.form.values[0]}")
    assert late.filled == [False]


# ---- what is asked --------------------------------------------------------------------------------------------------


def test_the_conversation_holds_questions_and_answers_and_no_aside():
    game = started(history=True)
    finished(game)
    shown = game.observation(0)
    body = shown.removeprefix(game._rules(0))
    assert "ASIDE" not in body
    tag = table()[game.experiment]["questioner"]
    expected = [
        line
        for slot in range(SLOTS)
        for line in (f"{tag}: {game.form.questions[slot]}", f"You: ANSWER: {game.form.values[slot]}")
    ]
    assert body.strip().split("\n") == expected


def test_every_block_asks_for_every_slot():
    for split, size in SPLITS.items():
        for task in range(size):
            game = started(task, split=split)
            assert [sorted(slot for slot, _ in block) for block in game.form.probes] == [list(range(SLOTS))] * 6


def test_the_order_of_the_questions_is_not_the_order_of_the_form():
    orders = set()
    for task in range(0, 80, 5):
        form = started(task).form
        orders.add(tuple(next(n for n, line in enumerate(form.lines) if line.endswith(value)) for value in form.values))
    assert len(orders) > 8


def test_splits_are_disjoint_in_their_forms_and_hold_every_experiment_alike():
    assert dict(PrivateShared.splits) == SPLITS
    seen = set()
    for split, size in SPLITS.items():
        kinds = []
        for task in range(size):
            game = started(task + 3 * size, split=split)
            kinds.append(game.experiment)
            seen.add(frozenset(game.form.values))
        assert kinds == list(table()) * (size // 5)
    assert len(seen) == sum(SPLITS.values())
    assert PrivateShared().experiment == ""


def test_no_value_holds_another_one_and_none_stands_in_the_rules():
    for setting in table().values():
        values = [(name, value) for name, slot in setting["slots"].items() for value in slot["values"]]
        assert len(setting["slots"]) == SLOTS
        assert len({value.lower() for _, value in values}) == len(values) == 50
        for (name, value), (other, longer) in itertools.permutations(values, 2):
            assert name == other or not mentioned(value, longer)
        said = [text for slot in setting["slots"].values() for text in (*slot["questions"], *slot["probes"])]
        assert not [(value, text) for _, value in values for text in said if mentioned(value, text)]
    assert not [line for line in re.findall("ANSWER: .*", started()._rules(0)) if mentioned("Oslo", line)]


def test_forms_that_differ_in_their_values_put_the_same_questions():
    """Twins: nothing of what the program says beside the form depends on the values."""
    game, twin = started(), started()
    other = ["one thing", "another", "a third", "a fourth", "a fifth"]
    twin.form = private_shared.dataclasses.replace(twin.form, values=tuple(other), lines=tuple(other))
    for _ in range(35):
        assert game.aside == twin.aside
        assert game.observation(0).removeprefix(game._rules(0)) == twin.observation(0).removeprefix(twin._rules(0))
        game.step("ASIDE: no" if game.aside else "ANSWER: something")
        twin.step("ASIDE: no" if twin.aside else "ANSWER: something")
    assert game.over


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="values_per_answer must be from 0 to 5, got 6"):
        PrivateShared(values_per_answer=6)


# ---- players --------------------------------------------------------------------------------------------------------


def test_players_differ_in_what_they_remember():
    quality = {}
    for strength in scripted.STRENGTHS:
        player, total = scripted.player("clem_privateshared", strength), 0.0
        for task in range(50):
            game = registry.make("clem_privateshared", split="test")
            game.reset(task)
            rng = GameRng(task)
            while not game.over:
                game.step(player.act(game, rng))
            total += game.measures()["quality"]
        quality[strength] = total / 50
    assert quality["strong"] == 100.0
    assert quality["random_legal"] < 15.0
    assert 40.0 < quality["simple"] < 60.0

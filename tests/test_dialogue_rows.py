"""Rows chosen from dialogues, against every row that the rules allow, counted out one by one."""

import collections
import itertools
import random

import pytest
from dialogue_samples import dialogue, drawn, replies, settings, talk, won

from dfc.records.trajectories import Message
from dfc.rows.dialogue_rows import choose, held_out_instances, merged, player_ranking, rows_of
from dfc.rows.dialogues import Aside

KINDS = ("sft", "pairs_dialogue", "pairs_turn")


def contents(rows):
    """Everything about rows, for comparisons."""
    return {kind: tuple(getattr(rows, kind)) for kind in KINDS}, rows.players, rows.statistics


# ---- who and what is imitated ---------------------------------------------------------------------------------------


def test_players_are_ranked_by_their_won_dialogues_then_by_name():
    some = [dialogue("a", "b", player=player, quality=quality) for player, quality in
            [("z", 100.0), ("z", 10.0), ("m", 100.0), ("b", 100.0), ("b", 0.0), ("b", None), ("n", None)]]  # fmt: skip
    assert player_ranking(some, settings()) == ["z", "b", "m", "n"]
    assert player_ranking(some, settings(threshold=10.0)) == ["b", "m", "z", "n"]


def test_won_dialogues_of_the_best_players_are_imitated_whatever_their_game_asks():
    some = drawn(1)
    found = choose(some, settings(wanted=("sft",), players=2, rows="dialogues", thresholds={"clem_wordle": 50.0}))
    limits = collections.defaultdict(float, clem_wordle=50.0)
    different = {one.key: one for one in some}.values()
    wins = collections.Counter(one.player for one in different if won(one, limits[one.game]))
    best = [player for player, _ in sorted(wins.items(), key=lambda item: (-item[1], item[0]))][:2]
    assert list(found.players) == best
    expected = sorted(one.messages for one in different if one.player in best and won(one, limits[one.game]))
    assert (
        sorted(row.messages for row in found.sft.train if not row.messages[-1].content.startswith("ASIDE")) == expected
    )
    assert 0 < len(expected) < len(different)


def test_games_are_balanced_before_they_are_cut_into_rows_and_the_best_players_stay():
    some = drawn(2, 400)
    found = choose(some, settings(wanted=("sft",), balance=True, asides="none", rows="dialogues"))
    different = {one.key: one for one in some}.values()
    counts = collections.Counter(one.game for one in different if won(one))
    fewest = min(counts.values())
    assert len(set(counts.values())) > 1
    chosen = collections.Counter(row.meta["game"] for row in found.sft.train)
    assert chosen == dict.fromkeys(counts, fewest)
    rank = {player: place for place, player in enumerate(found.players)}
    for game in counts:
        best_ranks = sorted(rank[one.player] for one in different if won(one) and one.game == game)[:fewest]
        assert sorted(rank[row.meta["player"]] for row in found.sft.train if row.meta["game"] == game) == best_ranks
    for limit, expected in ((fewest - 3, fewest - 3), (fewest + 5, fewest)):
        few = choose(
            some, settings(wanted=("sft",), balance=True, most_per_game=limit, asides="none", rows="dialogues")
        )
        assert set(collections.Counter(row.meta["game"] for row in few.sft.train).values()) == {expected}
    capped = choose(some, settings(wanted=("sft",), most_per_game=fewest + 1, asides="none", rows="dialogues"))
    found = collections.Counter(row.meta["game"] for row in capped.sft.train)
    assert found == {game: min(count, fewest + 1) for game, count in counts.items()}


def test_a_game_that_nobody_won_does_not_empty_the_others():
    some = [*drawn(3, games=("clem_taboo",)), dialogue("a", "b", game="clem_wordle", quality=0.0)]
    found = choose(some, settings(wanted=("sft",), balance=True))
    assert len(found.sft.train) > 10


def test_identical_dialogues_count_once():
    one, other = dialogue("a", "b"), dialogue("a", "b", player="p1")
    found = choose([one, one, other, one], settings(wanted=("sft",)))
    assert len(found.sft.train) == 2
    assert found.players == ("p0", "p1")


# ---- rows of a dialogue ---------------------------------------------------------------------------------------------

TALK = dialogue("ask", "one", "more", "two", "end", "three", system="s")


@pytest.mark.parametrize(("replies_", "context"), [("last", [0, 1, 2]), ("all", [0, 0, 0])])
def test_prefixes_end_with_each_reply_in_turn(replies_, context):
    found = rows_of(TALK, settings(replies=replies_))
    assert [row.messages for row in found] == [TALK.messages[:3], TALK.messages[:5], TALK.messages]
    assert [row.context_replies for row in found] == context
    (whole,) = rows_of(TALK, settings(replies=replies_, rows="dialogues"))
    assert (whole.messages, whole.context_replies) == (TALK.messages, context[-1])
    assert whole.meta == {"game": "clem_taboo", "instance": "1", "seat": "guesser", "player": "p0", "quality": 100.0}


def test_with_the_last_reply_of_every_prefix_each_reply_counts_once():
    some = drawn(4)
    found = choose(some, settings(wanted=("sft",), asides="none"))
    counted = collections.Counter(row.messages for row in found.sft.train)
    assert all(len(replies(row.messages)) - row.context_replies == 1 for row in found.sft.train)
    different = {one.key: one for one in some if won(one)}.values()
    expected = collections.Counter(
        one.messages[: place + 1]
        for one in different
        for place, message in enumerate(one.messages)
        if message.role == "assistant"
    )
    assert counted == expected


ASKED = dialogue(
    "rules", "a", "more", "b", game="clem_privateshared",
    asides=(Aside(0, "rules\nQ1", "yes"), Aside(0, "rules\nQ2", "no"), Aside(2, "Q3", "no"), Aside(4, "Q4", "yes")),
)  # fmt: skip


def test_what_was_asked_aside_in_one_round_is_one_row_and_stands_in_no_other():
    found = rows_of(ASKED, settings())
    assert [row.messages for row in found] == [
        talk("rules\nQ1\nQ2", "yes\nno"),
        talk("rules", "a"),
        talk("rules", "a", "Q3", "no"),
        talk("rules", "a", "more", "b"),
        talk("rules", "a", "more", "b", "Q4", "yes"),
    ]
    assert [row.context_replies for row in found] == [0, 0, 1, 1, 2]
    assert [row.context_replies for row in rows_of(ASKED, settings(replies="all"))] == [0] * 5


def test_asides_are_rows_of_their_own_or_none():
    single = [row.messages for row in rows_of(ASKED, settings(asides="single"))]
    assert single[:2] == [talk("rules\nQ1", "yes"), talk("rules\nQ2", "no")]
    assert len(single) == 6
    assert [row.messages for row in rows_of(ASKED, settings(asides="none", rows="dialogues"))] == [ASKED.messages]


@pytest.mark.parametrize(
    ("questions", "expected"),
    [
        (["r\ns\nA?", "r\ns\nB?"], "r\ns\nA?\nB?"),
        (["r\nA?", "s\nB?"], "r\nA?\ns\nB?"),
        (["r\nA?", "r\nA?"], "r\nA?\nA?"),
        (["r", "r\nB?"], "r\nr\nB?"),
        (["r\nA?\nx", "r\nB?\nx"], "r\nA?\nx\nB?\nx"),
        (["r\na\nx\nA?", "r\nb\nx\nB?"], "r\na\nx\nA?\nb\nx\nB?"),
    ],
)
def test_lines_that_all_questions_begin_with_stand_once(questions, expected):
    assert merged([Aside(0, question, "yes") for question in questions]) == (expected, "yes\nyes")


def test_rows_of_one_dialogue_stand_together_and_dialogues_are_shuffled():
    some = drawn(5)
    found = choose(some, settings(wanted=("sft",), asides="none")).sft.train
    ends = [place for place, row in enumerate(found) if row.context_replies == 0]  # where a dialogue begins
    for start, stop in zip(ends, [*ends[1:], len(found)], strict=True):
        block = found[start:stop]
        assert [row.context_replies for row in block] == list(range(len(block)))
        assert all(one.messages == other.messages[: len(one.messages)] for one, other in itertools.pairwise(block))
    order = [row.meta["game"] for row in found]
    assert sum(one != other for one, other in itertools.pairwise(order)) > len(order) / 4


def test_rows_and_pairs_that_are_too_long_are_left_out_and_counted():
    some = [dialogue("x" * 50, "a", "b", "c"), dialogue("x" * 50, "aa", quality=0.0), dialogue("x" * 50, "a" * 9)]
    found = choose(some, settings(max_characters=52))
    assert [len(row.messages) for row in found.sft.train] == [2]
    assert found.statistics[0].sft == 1
    assert found.statistics[0].too_long == 2 + 2 + 1  # rows, pairs of dialogues, pairs of a turn
    assert found.statistics[0].pairs_turn == len(found.pairs_turn.train) == 1


# ---- held out, and independence -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.1, 2), (0.025, 1), (0.02, 0), (0.5, 10)])
def test_a_share_of_the_instances_of_every_game_is_held_out(share, expected):
    some = drawn(9, 600, instances=20)
    found = held_out_instances(some, share, 0)
    assert collections.Counter(game for game, _ in found) == ({game: expected for game, _ in found})
    assert len(found) == 3 * expected
    assert share in (0.0, 0.02) or found != held_out_instances(some, share, 1)


def test_no_instance_is_on_both_sides_of_any_two_kinds():
    found = choose(drawn(10, 600, instances=10), settings(held_out=0.3))
    sides = []
    for side in ("train", "held_out"):
        rows = [row for kind in KINDS for row in getattr(getattr(found, kind), side)]
        assert all(getattr(getattr(found, kind), side) for kind in KINDS)
        sides.append({(row.meta["game"], row.meta["instance"]) for row in rows})
    assert not sides[0] & sides[1]
    for group in found.statistics:
        assert (group.instances, group.instances_held_out) == (10, 3)


@pytest.mark.parametrize("turns", [{}, {"turn_negatives": 1}, {"turn_negatives": 1, "turn_rejected": "lower_quality"}])
def test_the_order_of_dialogues_and_repetitions_do_not_matter_and_the_seed_does(turns):
    config = settings(held_out=0.3, players=3, balance=True, negatives=1, first_turn_pairs={"clem_taboo": 5}, **turns)
    some = drawn(11, 200)
    found = choose(some, config)
    again = [*some, *some[:50]]
    random.Random(0).shuffle(again)
    assert contents(choose(again, config)) == contents(found)
    for kind in KINDS:
        assert getattr(choose(some, config, seed=1), kind) != getattr(found, kind)


def test_every_choice_has_the_seed_and_games_choose_apart():
    some = [
        dialogue(f"{game} {number}", "a", game=game, instance=str(number))
        for game in ("clem_taboo", "clem_wordle")
        for number in range(20)
    ]
    held = settings(wanted=("sft",), held_out=0.5)
    kept = settings(wanted=("sft",), most_per_game=5)
    halves, fives, orders = [], [], []
    for seed in (0, 1):
        halves.append({(row.meta["game"], row.meta["instance"]) for row in choose(some, held, seed=seed).sft.held_out})
        fives.append({row.messages for row in choose(some, kept, seed=seed).sft.train})
        orders.append([row.messages for row in choose(some, settings(wanted=("sft",)), seed=seed).sft.train])
    assert halves[0] != halves[1]
    taboo, wordle = ({name for own, name in halves[0] if own == game} for game in ("clem_taboo", "clem_wordle"))
    assert taboo != wordle
    assert fives[0] != fives[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_single_games_are_chosen_and_left_out_and_only_what_is_wanted_is_made():
    some = drawn(12)
    one = choose(some, settings(game_groups=("clem_taboo",)))
    assert [group.game for group in one.statistics] == ["clem_taboo"]
    rest = choose(some, settings(leave_out=("clem_taboo",)), unfinished={"clem_taboo": 4, "clem_wordle": 2, "x": 1})
    assert [(group.game, group.unfinished) for group in rest.statistics] == [
        ("clem_privateshared", 0), ("clem_wordle", 2), ("x", 1)
    ]  # fmt: skip
    for kind in KINDS:
        made = choose(some, settings(wanted=(kind,)))
        assert [bool(getattr(made, other).train) for other in KINDS] == [other == kind for other in KINDS]


def test_statistics_count_what_is_there():
    some = drawn(13, 300)
    found = choose(some, settings(held_out=0.3, rows="prefixes", asides="none"))
    different = {one.key: one for one in some}.values()
    for group in found.statistics:
        own = [one for one in different if one.game == group.game]
        assert (group.dialogues, group.players) == (len(own), len({one.player for one in own}))
        outcomes = collections.Counter(
            "won" if won(one) else "aborted" if one.quality is None else "lost" for one in own
        )
        assert (group.won, group.lost, group.aborted) == tuple(outcomes[name] for name in ("won", "lost", "aborted"))
        for kind in KINDS:
            for side, end in (("train", ""), ("held_out", "_held_out")):
                rows = [row for row in getattr(getattr(found, kind), side) if row.meta["game"] == group.game]
                assert getattr(group, kind + end) == len(rows)
        starts = [row for row in found.sft.train if row.meta["game"] == group.game and not row.context_replies]
        assert group.chosen == len(starts)
        assert group.chosen + group.chosen_held_out == group.won


def test_messages_are_handed_on_as_they_are():
    one = dialogue("a\u2028b", "c")
    (row,) = choose([one], settings()).sft.train
    assert row.messages == (Message("user", "a\u2028b"), Message("assistant", "c"))

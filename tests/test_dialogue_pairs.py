"""Pairs chosen from dialogues, against every pair that the rules allow, counted out one by one."""

import collections
import dataclasses
import hashlib
import itertools
import json
import tracemalloc

import pytest
from dialogue_samples import dialogue, drawn, replies, settings, won

from dfc.config import DialogueRowsConfig
from dfc.rows.conversations import opening
from dfc.rows.dialogue_pairs import is_won
from dfc.rows.dialogue_rows import choose

# ---- pairs of dialogues ---------------------------------------------------------------------------------------------


def may_lose(one, best, config):
    return one.player in best and (one.quality is not None or (one.game in config.aborted_negatives and one.to_blame))


def different_of(some, config):
    return [one for one in {one.key: one for one in some}.values() if one.game not in config.pairs_without]


def same_start(one, other):
    return (one.game, one.instance, one.seat, one.world) == (other.game, other.instance, other.seat, other.world)


@pytest.mark.parametrize(
    "changes", [{}, {"players": 2}, {"threshold": 50.0}, {"aborted_negatives": ("clem_taboo",)}, {"negatives": 1},
                {"negatives": 2}, {"negatives": 1, "aborted_count": "together"}, {"pairs_without": ("clem_wordle",)}],
)  # fmt: skip
def test_every_won_dialogue_is_paired_with_lost_ones_that_begin_alike(changes):
    config = settings(wanted=("pairs_dialogue",), **changes)
    some = drawn(6, 300, instances=3)
    found = choose(some, config)
    best = found.players
    different = different_of(some, config)
    without = collections.Counter()
    allowed = collections.defaultdict(list)
    for one in different:
        if not won(one, config.threshold):
            continue
        others = [
            other
            for other in different
            if same_start(one, other)
            and one.messages[0] == other.messages[0]
            and not won(other, config.threshold)
            and may_lose(other, best, config)
            and other.messages != one.messages
        ]
        without[one.game] += not others
        key = (one.game, one.instance, one.seat, one.player, one.quality, one.messages)
        allowed[key] += [[(o.messages, o.player, o.quality) for o in others]]
    by_won = collections.defaultdict(list)
    for pair in found.pairs_dialogue.train:
        meta = pair.meta
        key = tuple(meta[name] for name in ("game", "instance", "seat", "chosen_player", "chosen_quality"))
        by_won[*key, pair.chosen].append((pair.rejected, meta["rejected_player"], meta["rejected_quality"]))
        assert pair.prompt == opening(pair.chosen) == opening(pair.rejected)
    for key, options in allowed.items():
        # Two won dialogues may differ in nothing but their asides: each has its pairs.
        expected = 0
        for others in options:
            aborted = sum(quality is None for _, _, quality in others)
            kinds = [len(others) - aborted, aborted] if config.aborted_count == "apart" else [len(others)]
            expected += sum(min(number, config.negatives) for number in kinds)
        assert len(by_won[key]) == expected
        assert set(by_won[key]) <= set(itertools.chain.from_iterable(options))
    assert sum(map(len, by_won.values())) > 20
    assert {group.game: group.without_negative for group in found.statistics} == {
        game: without[game] for game in {one.game for one in some}
    }


def test_a_won_dialogue_of_a_wordle_is_beside_as_many_aborted_ones_as_lost_ones():
    def found(**changes):
        some = [dialogue("a", "b", game=game) for game in ("clem_wordle", "clem_taboo")]
        some += [
            dialogue("a", f"{quality} {n}", game=game, quality=quality)
            for game in ("clem_wordle", "clem_taboo")
            for quality in (0.0, None)
            for n in range(5)
        ]
        pairs = choose(some, settings(**changes)).pairs_dialogue.train
        return collections.Counter((pair.meta["game"], pair.meta["rejected_quality"]) for pair in pairs)

    assert found(negatives=2) == {("clem_wordle", 0.0): 2, ("clem_wordle", None): 2, ("clem_taboo", 0.0): 2}
    together = found(negatives=2, aborted_count="together")
    assert together["clem_wordle", 0.0] + together["clem_wordle", None] == together["clem_taboo", 0.0] == 2


def test_where_another_seat_made_the_difference_there_is_no_pair():
    some = [dialogue("a", "b"), dialogue("a", "b", quality=0.0)]
    found = choose(some, settings())
    assert found.pairs_dialogue.train == found.pairs_turn.train == ()
    assert found.statistics[0].without_negative == 1


def test_pairs_of_dialogues_are_drawn_by_the_seed_and_shuffled():
    some = [
        dialogue(f"rules {number}", said, instance=str(number), quality=100.0 if said == "won" else 0.0)
        for number in range(10)
        for said in ("won", *(f"lost {other}" for other in range(5)))
    ]

    def found(negatives, seed):
        config = settings(wanted=("pairs_dialogue",), negatives=negatives)
        pairs = choose(some, config, seed=seed).pairs_dialogue.train
        return [(pair.meta["instance"], pair.rejected[-1].content) for pair in pairs]

    assert len(found(1, 0)) == 10
    assert set(found(1, 0)) != set(found(1, 1))
    every = [instance for instance, _ in found(5, 0)]
    assert sorted(found(5, 0)) == sorted(found(5, 1))
    assert sum(one != other for one, other in itertools.pairwise(every)) > len(every) / 2


def test_dialogues_that_begin_otherwise_are_no_pair():
    won_, lost = dialogue("clue", "b", system="s"), dialogue("clue", "c", system="s", quality=0.0)
    assert len(choose([won_, lost], settings()).pairs_dialogue.train) == 1
    for other in (dialogue("hint", "c", system="s", quality=0.0), dialogue("clue", "c", system="t", quality=0.0)):
        found = choose([won_, other], settings())
        assert found.pairs_dialogue.train == found.pairs_turn.train == ()
        assert found.statistics[0].without_negative == 1


def test_instances_are_not_mixed_where_they_begin_alike():
    some = [dialogue("a", "b", instance="1"), dialogue("a", "c", quality=0.0, instance="2")]
    assert choose(some, settings()).pairs_dialogue.train == choose(some, settings()).pairs_turn.train == ()


def test_worlds_are_not_mixed():
    some = [dialogue("a", "b", world="1"), dialogue("a", "c", quality=0.0, world="2")]
    assert choose(some, settings()).pairs_dialogue.train == choose(some, settings()).pairs_turn.train == ()
    assert len(choose([some[0], dataclasses.replace(some[1], world="1")], settings()).pairs_turn.train) == 1


# ---- pairs of one reply ---------------------------------------------------------------------------------------------


def allowed_turns(some, config, best):
    """Every (game, instance, seat, history, better reply, worse reply) that the rules allow."""
    found = set()
    value = lambda one: -1 if one.quality is None else one.quality  # noqa: E731 - a word for it
    for one, other in itertools.product(different_of(some, config), repeat=2):
        if not (won(one, config.threshold) and same_start(one, other) and may_lose(other, best, config)):
            continue
        if config.turn_rejected == "unsuccessful" and won(other, config.threshold):
            continue
        if config.turn_rejected == "lower_quality" and value(one) <= value(other):
            continue
        for place in range(1, min(len(one.messages), len(other.messages)), 2):
            if one.messages[:place] != other.messages[:place]:
                break
            if one.messages[place] != other.messages[place]:
                said = one.messages[place].content, other.messages[place].content
                found.add((one.game, one.instance, one.seat, one.messages[:place], *said))
    return found


def of_pairs(pairs):
    return [
        (p.meta["game"], p.meta["instance"], p.meta["seat"], p.prompt, p.chosen[-1].content, p.rejected[-1].content)
        for p in pairs
    ]


@pytest.mark.parametrize(
    "changes", [{}, {"players": 2}, {"threshold": 50.0}, {"aborted_negatives": ("clem_taboo",)},
                {"pairs_without": ("clem_wordle", "clem_privateshared")}, {"turn_rejected": "lower_quality"},
                {"turn_rejected": "lower_quality", "players": 2, "threshold": 10.0}],
)  # fmt: skip
def test_all_pairs_of_one_reply_are_found_once(changes):
    config = settings(wanted=("pairs_turn",), **changes)
    some = drawn(7, 250, instances=3)
    found = choose(some, config)
    pairs = of_pairs(found.pairs_turn.train)
    expected = allowed_turns(some, config, found.players)
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
    assert len(expected) > 30
    for pair in found.pairs_turn.train:
        assert len(pair.chosen) == len(pair.rejected) == len(pair.prompt) + 1
        assert pair.meta["turn"] == pair.context_replies == len(replies(pair.prompt))
        rejected = pair.meta["rejected_quality"]
        assert rejected is None or pair.meta["chosen_quality"] > rejected


@pytest.mark.parametrize("rejected", ["unsuccessful", "lower_quality"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_so_many_worse_replies_as_asked_for_are_drawn_for_each_turn(rejected, number):
    some = drawn(8, 250, instances=3)
    config = settings(wanted=("pairs_turn",), turn_negatives=number, turn_rejected=rejected, negatives=7)
    found = choose(some, config)
    pairs = of_pairs(found.pairs_turn.train)
    expected = allowed_turns(some, config, found.players)
    assert set(pairs) <= expected
    there, drawn_ = (collections.Counter(pair[:5] for pair in every) for every in (expected, pairs))
    assert set(there) == set(drawn_)
    # Several won dialogues that gave one reply draw each for itself, so that there may be more, and all at most.
    assert all(min(count, number) <= drawn_[key] <= count for key, count in there.items())
    assert number > 1 or len(pairs) < len(expected)


def test_by_default_a_turn_is_paired_with_every_reply_of_dialogues_that_were_not_won():
    """A won one that took longer has a lower quality and is no worse side (D.3 of the paper)."""
    some = [
        dialogue("a", text, game=game, quality=quality)
        for game in ("clem_wordle", "clem_taboo")
        for text, quality in (("b", 100.0), ("slower", 50.0), ("c", 0.0), ("d", 0.0), ("aborted", None))
    ]

    def found(**changes):
        config = dataclasses.replace(DialogueRowsConfig(), held_out=0.0, **changes)
        return {
            (pair.meta["game"], pair.chosen[-1].content, pair.rejected[-1].content)
            for pair in choose(some, config).pairs_turn.train
        }

    lost = {
        (game, better, worse) for game in ("clem_wordle", "clem_taboo") for better in ("b", "slower") for worse in "cd"
    }
    aborted = {("clem_wordle", better, "aborted") for better in ("b", "slower")}
    assert found() == lost | aborted
    slower = {(game, "b", "slower") for game in ("clem_wordle", "clem_taboo")}
    assert found(turn_rejected="lower_quality") == lost | aborted | slower


# Of the commit before `turn_rejected`, `turn_negatives` and `aborted_count` were: its `negatives`, pairs of turns and
# of dialogues, and what of their JSON `digest` gives.
BEFORE = [
    (1, 122, "3be1e2ab6d8f0991", 166, "8a43abedcf50f7f5"),
    (3, 149, "845951cc3c0a727a", 498, "0bccbcff04962864"),
]


@pytest.mark.parametrize(("negatives", "turns", "of_turns", "whole", "of_whole"), BEFORE)
def test_the_rules_of_before_are_settings_and_give_the_same_pairs_in_the_same_order(
    negatives, turns, of_turns, whole, of_whole
):
    def digest(pairs):
        rows = [[pair.chosen, pair.rejected, pair.meta, pair.context_replies] for pair in pairs]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]

    rules = {"turn_rejected": "lower_quality", "turn_negatives": negatives, "aborted_count": "together"}
    config = settings(
        players=4, thresholds={"clem_imagegame": 60.0}, first_turn_pairs={"clem_wordle": 20}, negatives=negatives,
        balance=True, pairs_without=("clem_privateshared",), **rules,
    )  # fmt: skip
    some = drawn(21, 400, games=("clem_taboo", "clem_wordle", "clem_imagegame"), instances=3)
    found = choose(some, config, seed=5)
    assert (len(found.pairs_turn.train), digest(found.pairs_turn.train)) == (turns, of_turns)
    assert (len(found.pairs_dialogue.train), digest(found.pairs_dialogue.train)) == (whole, of_whole)


def test_pairs_that_the_limit_of_first_turns_leaves_out_are_not_held():
    """150 x 150 first replies are 22,500 pairs; held at once, they take more than 10 MB."""
    some = [
        dialogue("a", f"{quality} {n}", game="clem_wordle", quality=quality)
        for quality in (0.0, 100.0)
        for n in range(150)
    ]
    config = settings(wanted=("pairs_turn",), first_turn_pairs={"clem_wordle": 50})
    every = settings(wanted=("pairs_turn",))
    tracemalloc.start()
    try:
        few = choose(some, config).pairs_turn.train
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2e6
    # They are those with the smallest numbers: the first ones of all.
    assert few == choose(some, every).pairs_turn.train[:50]


def test_a_system_message_is_no_turn():
    some = [
        dialogue("a", said, "more", said, system="s", quality=quality) for said, quality in (("b", 100.0), ("c", 0))
    ]
    some.append(dialogue("a", "b", "more", "d", system="s", quality=0.0))
    pairs = choose(some, settings()).pairs_turn.train
    assert sorted((pair.meta["turn"], pair.rejected[-1].content) for pair in pairs) == [(0, "c"), (1, "d")]


def test_each_worse_reply_is_drawn_once_however_often_it_was_given():
    some = [dialogue("a", "b"), dialogue("a", "c", quality=0.0)]
    some += [dialogue("a", "d", "more", str(other), quality=0.0) for other in range(20)]
    for number in (0, 2):
        pairs = choose(some, settings(turn_negatives=number)).pairs_turn.train
        assert sorted(pair.rejected[-1].content for pair in pairs) == ["c", "d"]


def test_replies_of_equal_quality_are_no_pair():
    some = [dialogue("a", "b"), dialogue("a", "c"), dialogue("a", "d", quality=50.0)]
    config = settings(turn_rejected="lower_quality")
    assert min(of_pairs(choose(some, config).pairs_turn.train))[4:] == ("b", "d")
    assert len(choose(some, config).pairs_turn.train) == 2
    assert choose(some[:2], config).pairs_turn.train == ()


def test_aborted_dialogues_lose_in_the_wordles_only_and_only_who_is_to_blame():
    games = ("clem_wordle", "clem_wordle_withclue", "clem_wordle_withcritic", "clem_taboo", "clem_imagegame")
    some = []
    for game in games:
        some += [dialogue("a", "b", game=game), dialogue("a", "c", game=game, quality=None)]
        some += [dialogue("a", "d", game=game, quality=None, to_blame=False)]
    found = choose(some, dataclasses.replace(DialogueRowsConfig(), held_out=0.0))
    for pairs in (found.pairs_dialogue.train, found.pairs_turn.train):
        assert sorted(pair.meta["game"] for pair in pairs) == sorted(games[:3])
        assert {pair.rejected[-1].content for pair in pairs} == {"c"}


def test_pairs_of_the_first_reply_are_capped_for_the_games_named_and_others_are_not():
    some = [
        dialogue(f"rules {n}", "a" if better else "b", "more", f"{better}", game=game, instance=str(n), quality=better)
        for n in range(30)
        for game in ("clem_wordle", "clem_taboo")
        for better in (0.0, 100.0)
    ]
    some += [
        dialogue(f"rules {n}", "same", "more", f"{better}", game="clem_wordle", instance=f"x{n}", quality=better)
        for n in range(8)
        for better in (0.0, 100.0)
    ]
    found = choose(some, settings(first_turn_pairs={"clem_wordle": 7}))
    counts = collections.Counter((pair.meta["game"], pair.meta["turn"]) for pair in found.pairs_turn.train)
    assert counts == {("clem_wordle", 0): 7, ("clem_wordle", 1): 8, ("clem_taboo", 0): 30}
    both = choose(some, settings(first_turn_pairs={"clem_wordle": 7, "clem_taboo": 9})).pairs_turn.train
    assert collections.Counter(pair.meta["game"] for pair in both if not pair.meta["turn"]) == {
        "clem_wordle": 7,
        "clem_taboo": 9,
    }
    others = choose(some, settings(first_turn_pairs={"clem_wordle": 7}), seed=1)
    assert of_pairs(found.pairs_turn.train) != of_pairs(others.pairs_turn.train)
    assert DialogueRowsConfig().first_turn_pairs == {"clem_wordle": 2000, "clem_wordle_withclue": 2000}


def test_what_the_paper_states_is_the_default():
    config = DialogueRowsConfig()
    assert (config.players, config.balance, config.negatives) == (10, True, 1)
    assert (config.turn_rejected, config.turn_negatives, config.aborted_count) == ("unsuccessful", 0, "apart")
    assert (config.rows, config.replies, config.asides, config.threshold) == ("prefixes", "last", "merged", 0.0)
    for game, quality in (("clem_imagegame", 99.0), ("clem_privateshared", 99.0), ("clem_taboo", 0.0)):
        assert not is_won(dialogue("a", "b", game=game, quality=quality), config)
        assert is_won(dialogue("a", "b", game=game, quality=quality + 0.5), config)


def test_by_default_there_are_no_pairs_of_privateshared():
    some = [dialogue("a", "b", game="clem_privateshared"), dialogue("a", "c", game="clem_privateshared", quality=0.0)]
    found = choose(some, dataclasses.replace(DialogueRowsConfig(), held_out=0.0))
    assert (len(found.sft.train), found.pairs_dialogue.train, found.pairs_turn.train) == (1, (), ())

"""Rows chosen from dialogues, against every row that the rules allow, counted out one by one."""

import collections
import dataclasses
import hashlib
import itertools
import json
import random
import tracemalloc

import pytest
from dialogue_samples import dialogue, drawn, talk

from dfc.config import DialogueRowsConfig
from dfc.records.trajectories import Message
from dfc.rows.conversations import opening
from dfc.rows.dialogue_pairs import is_won
from dfc.rows.dialogue_rows import choose, held_out_instances, merged, player_ranking, rows_of
from dfc.rows.dialogues import Aside

KINDS = ("sft", "pairs_dialogue", "pairs_turn")
# Everything may be in pairs, whoever played it: what a test is not about is out of its way.
OPEN = DialogueRowsConfig(
    held_out=0.0, players=0, balance=False, pairs_without=(), first_turn_pairs={}, thresholds={}, negatives=10**6
)


def settings(**changes):
    return dataclasses.replace(OPEN, **changes)


def replies(messages):
    return [message.content for message in messages if message.role == "assistant"]


def contents(rows):
    """Everything about rows, for comparisons."""
    return {kind: tuple(getattr(rows, kind)) for kind in KINDS}, rows.players, rows.statistics


def won(one, limit=0.0):
    return one.quality is not None and one.quality > limit


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

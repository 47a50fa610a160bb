"""Rows to train on: chosen as the paper says, the same whoever wrote the files, beside brute force."""

import collections
import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trajectory_rows import PROVENANCE, row, same

from dfc.records import trajectory_files
from dfc.records.trajectories import to_table, to_trajectories
from dfc.records.trajectory_files import DatasetError, TrajectoryWriter, read_part
from dfc.report import data_tables
from dfc.rows import preference_pairs
from dfc.rows.selection import SelectionConfig, select


def stored(folder, rows, sizes=None):
    """Writes rows into parts of the given sizes; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rest, number = list(rows), 0
    for size in sizes or [len(rest)]:
        head, rest = rest[:size], rest[size:]
        if head:
            pq.write_table(to_table(head), folder / f"part-{number:03d}.parquet", row_group_size=3)
            number += 1
    if rest:
        pq.write_table(to_table(rest), folder / f"part-{number:03d}.parquet", row_group_size=3)
    return folder


def keys(selection, rows):
    """The keys of chosen rows."""
    columns = selection.columns
    found = []
    for number in rows:
        (one,) = to_trajectories(read_part(columns.parts[columns.part[number]]).slice(int(columns.row[number]), 1))
        found.append(one.key)
    return found


def tasks(rows):
    found = collections.defaultdict(list)
    for one in rows:
        found[one.key[:-1]].append(one)
    return found


def worse_than(best, one, config):
    """The rule, in plain words: both in the same world, and a failure or clearly more turns."""
    if one.tokens > config.pair_tokens or one.world != best.world or one is best:
        return False
    if one.success:
        return one.turns >= config.turn_ratio * best.turns
    return one.failure is None or one.failure in config.rejected_failures


rows_strategy = st.lists(
    st.builds(
        dict,
        game=st.sampled_from(["wordle", "minesweeper"]),
        task=st.integers(0, 1),
        seat=st.sampled_from([0, 0, 0, 1]),
        opponent=st.sampled_from(["none", "none", "none", "random_legal"]),
        turns=st.integers(1, 6),
        kind=st.sampled_from(
            ["success", "success", "loss", "malformed", "illegal", "truncated", "failed", "discarded"]
        ),
        world=st.sampled_from([None, None, "a", "b"]),
        tokens=st.integers(1, 12),
    ),
    min_size=10,
    max_size=40,
)
config_strategy = st.builds(
    SelectionConfig,
    sft_tokens=st.integers(4, 12),
    pair_tokens=st.integers(4, 12),
    turn_ratio=st.sampled_from([1.01, 1.5, 2.0, math.inf]),
    rejected_failures=st.sampled_from([(), ("malformed",), ("illegal", "truncated")]),
    seed=st.integers(0, 3),
)


def built(described):
    counts = collections.Counter()
    found = []
    for figures in described:
        values = {name: value for name, value in figures.items() if name != "kind"}
        kind = figures["kind"]
        task = values["game"], values["task"], values["seat"], values["opponent"]
        failure = None if kind in {"success", "loss"} else kind
        found.append(row(sample=counts[task], success=kind == "success", failure=failure, **values))
        counts[task] += 1
    return found


@settings(max_examples=80, deadline=None)
@given(described=rows_strategy, config=config_strategy)
def test_rows_and_pairs_are_those_that_brute_force_allows(tmp_path_factory, described, config):
    rows = built(described)
    by_key = {one.key: one for one in rows}
    folder = stored(tmp_path_factory.mktemp("set"), rows, [5, 2])
    selection = select(folder, config)

    sft = [by_key[key] for key in keys(selection, selection.sft)]
    short = [one for one in rows if one.success and one.tokens <= config.sft_tokens]
    assert collections.Counter((one.key[:-1], one.turns) for one in sft) == collections.Counter(
        {(one.key[:-1], one.turns) for one in short}
    )
    assert all(one in short for one in sft)

    chosen = [by_key[key] for key in keys(selection, selection.chosen)]
    rejected = [by_key[key] for key in keys(selection, selection.rejected)]
    pairs = {w.key[:-1]: (w, r) for w, r in zip(chosen, rejected, strict=True)}
    assert len(pairs) == len(chosen)  # one per task
    for task, own in tasks(rows).items():
        wins = [one for one in own if one.success and one.tokens <= config.pair_tokens]
        best = [one for one in wins if one.turns == min(w.turns for w in wins)]
        allowed = [(w, r) for w in best for r in own if worse_than(w, r, config)]
        if allowed:
            assert any(w is pairs[task][0] and r is pairs[task][1] for w, r in allowed)
        else:
            assert task not in pairs

    for group in selection.statistics:
        own = [one for one in rows if one.game == group.game]
        usable = tasks([one for one in own if one.failure not in {"failed", "discarded"}])
        assert group.tasks == len(usable)
        assert group.trajectories == len(own)
        assert group.successes == sum(one.success for one in own)
        assert group.solved == sum(any(one.success for one in samples) for samples in usable.values())
        assert group.pairs == sum(w.game == group.game for w in chosen)
        assert group.sft == sum(one.game == group.game for one in sft)
        counted = collections.Counter(one.failure for one in own)
        assert group.failures == {label: counted[label] for label in group.failures}
        assert group.too_long_pairs == sum(one.tokens > config.pair_tokens for one in own)
        assert group.too_long_sft == sum(one.success and one.tokens > config.sft_tokens for one in own)
        short_wins = {one.key[:-1] for one in own if one.success and one.tokens <= config.pair_tokens}
        assert group.without_rejected == len(short_wins) - group.pairs


@settings(max_examples=30, deadline=None)
@given(described=rows_strategy, order=st.randoms(use_true_random=False), size=st.integers(1, 9))
def test_neither_the_order_of_rows_nor_the_files_change_what_is_chosen(tmp_path_factory, described, order, size):
    rows = built(described)
    one = select(stored(tmp_path_factory.mktemp("one"), rows))
    shuffled = list(rows)
    order.shuffle(shuffled)
    other = select(stored(tmp_path_factory.mktemp("other"), shuffled, [size] * 40))
    for name in ("sft", "chosen", "rejected"):
        assert keys(one, getattr(one, name)) == keys(other, getattr(other, name))
    assert one.statistics == other.statistics


def test_hosts_that_shared_the_work_make_the_same_pairs(tmp_path):
    rows = [row(task=t, sample=s, turns=1 + s % 5, success=s % 3 == 0) for t in range(6) for s in range(7)]
    for hosts in (1, 3):
        for host in range(hosts):
            with TrajectoryWriter(tmp_path / str(hosts), PROVENANCE, host=host, hosts=hosts, rows_per_part=4) as writer:
                for one in rows[host::hosts]:
                    writer.write(one)
        preference_pairs.build(tmp_path / str(hosts), tmp_path / f"built{hosts}")
    for name in (preference_pairs.SFT_FILE, preference_pairs.PAIRS_FILE):
        tables = [pq.read_table(tmp_path / f"built{hosts}" / name) for hosts in (1, 3)]
        assert tables[0].equals(tables[1])
        assert tables[0].num_rows


def test_every_worse_trajectory_and_every_equal_best_is_drawn_equally_often(tmp_path):
    # 2,000 tasks of 2 best, 1 slightly slower and 4 worse ones.
    figures = [(2, True), (2, True), (3, True), (4, True), (6, True), (5, False), (1, False)]
    rows = [
        row(task=t, sample=s, turns=n, success=w, tokens=1) for t in range(2000) for s, (n, w) in enumerate(figures)
    ]
    selection = select(stored(tmp_path, rows))
    chosen, rejected = (
        np.bincount(selection.columns.row[getattr(selection, name)] % 7, minlength=7) for name in ("chosen", "rejected")
    )
    # 6 standard deviations of a binomial count: sqrt(2000 * 0.25) = 22.4 and sqrt(2000 * 0.25 * 0.75) = 19.4.
    assert chosen.tolist() == [chosen[0], 2000 - chosen[0], 0, 0, 0, 0, 0]
    assert abs(chosen[0] - 1000) < 135
    assert rejected[:3].tolist() == [0, 0, 0]
    assert (abs(rejected[3:] - 500) < 117).all()
    both = np.zeros((2, 7))
    np.add.at(both, (selection.columns.row[selection.chosen] % 7, selection.columns.row[selection.rejected] % 7), 1)
    assert (abs(both[:, 3:] - 250) < 6 * math.sqrt(2000 / 8 * 7 / 8)).all()  # one draw says nothing about the other
    again = select(tmp_path, SelectionConfig(seed=1))
    assert 0.6 < (selection.rejected != again.rejected).mean() < 0.9  # 3/4 expected


def test_minesweeper_pairs_agree_in_the_first_reveal_even_if_another_best_must_be_taken(tmp_path):
    rows = [
        row("minesweeper", 0, 0, turns=2, world="reveal 0 0"),
        row("minesweeper", 0, 1, turns=2, world="reveal 3 3"),
        row("minesweeper", 0, 2, turns=9, success=False, world="reveal 3 3"),
        row("minesweeper", 0, 3, turns=1, success=False, failure="malformed", world=None),
        row("minesweeper", 1, 0, turns=2, world="reveal 0 0"),
        row("minesweeper", 1, 1, turns=5, success=False, world="reveal 0 1"),
    ]
    for seed in range(5):
        selection = select(stored(tmp_path, rows), SelectionConfig(seed=seed, rejected_failures=("malformed",)))
        assert [key.sample for key in keys(selection, selection.chosen)] == [1]
        assert [key.sample for key in keys(selection, selection.rejected)] == [2]
        (group,) = selection.statistics
        assert (group.solved, group.pairs, group.without_rejected) == (2, 1, 1)


def test_the_limits_are_the_papers_and_a_row_of_exactly_that_length_is_in(tmp_path):
    config = SelectionConfig()
    assert (config.sft_tokens, config.pair_tokens) == (12_000, 8_192)
    rows = [row(task=0, sample=s, turns=s + 1, tokens=n) for s, n in enumerate((8_192, 8_193, 12_000, 12_001))]
    selection = select(stored(tmp_path, rows))
    assert [key.sample for key in keys(selection, selection.sft)] == [0, 1, 2]
    assert not len(selection.chosen)  # 4 turns against 1 would do, but not with that many ids
    selection = select(tmp_path, SelectionConfig(pair_tokens=12_001))
    assert [key.sample for key in keys(selection, selection.chosen)] == [0]


@pytest.mark.parametrize(
    ("ratio", "turns", "worse"), [(2.0, 5, 0), (2.0, 6, 1), (1.5, 4, 0), (1.5, 5, 1), (1.01, 3, 0)]
)
def test_clearly_more_turns_is_a_ratio(tmp_path, ratio, turns, worse):
    rows = [row(sample=0, turns=3), row(sample=1, turns=turns)]
    assert len(select(stored(tmp_path, rows), SelectionConfig(turn_ratio=ratio)).chosen) == worse


def test_the_authors_rule_is_failures_only(tmp_path):
    rows = [row(sample=0, turns=1), row(sample=1, turns=20), row(task=1, turns=1), row(task=1, sample=1, success=False)]
    selection = select(stored(tmp_path, rows), SelectionConfig(turn_ratio=math.inf))
    assert [key.task for key in keys(selection, selection.chosen)] == [1]


def test_groups_can_be_left_out_and_an_empty_one_is_named(tmp_path):
    rows = [row("wordle", 0, s, success=s == 0) for s in range(2)]
    rows += [row("mastermind", 0, s, success=s == 0) for s in range(2)]
    selection = select(stored(tmp_path, rows, [1, 2]), groups=("mastermind",))
    assert [group.game for group in selection.statistics] == ["mastermind"]
    assert {key.game for key in keys(selection, selection.chosen)} == {"mastermind"}
    with pytest.raises(DatasetError, match=r"no trajectory of bandit, there are mastermind, wordle"):
        select(tmp_path, groups=("wordle", "bandit"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"turn_ratio": 1.0}, "turn_ratio must be above 1"),
        ({"sft_tokens": 0}, "token limits"),
        ({"rejected_failures": ("failed",)}, "must be among malformed, illegal, aborted, truncated, got failed"),
    ],
)
def test_settings_outside_their_range_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        SelectionConfig(**values)


# ---- broken input ---------------------------------------------------------------------------------------------------


def test_a_sample_that_stands_there_twice_is_named_with_both_places(tmp_path):
    stored(tmp_path, [row(task=1), row(task=2), row(task=1)], [2])
    with pytest.raises(DatasetError, match=r"part-001.parquet, row 0: sample 0 of task 1 of wordle .*part-000.*row 0"):
        select(tmp_path)


def test_an_unknown_label_and_an_empty_number_are_named(tmp_path):
    table = to_table([row(task=t, success=False) for t in range(3)])
    place = table.schema.get_field_index("failure")
    strange = table.set_column(place, "failure", pa.array([None, "tired", None], pa.string()))
    pq.write_table(strange, tmp_path / "part-000.parquet")
    with pytest.raises(DatasetError, match=r"part-000.parquet, row 1: failure is 'tired'"):
        select(tmp_path)
    place = table.schema.get_field_index("turns")
    empty = table.set_column(place, "turns", pa.array([1, 1, None], pa.int32()))
    pq.write_table(empty, tmp_path / "part-000.parquet")
    with pytest.raises(DatasetError, match=r"part-000.parquet, row 2: turns is empty"):
        select(tmp_path)


# ---- files to train on ----------------------------------------------------------------------------------------------


def test_files_hold_whole_rows_and_both_sides_of_every_pair(tmp_path, monkeypatch):
    rows = [row(task=t, sample=s, turns=1 + s, success=s < 2, tokens=5 + s) for t in range(9) for s in range(4)]
    by_key = {one.key: one for one in rows}
    stored(tmp_path / "set", rows, [7, 7, 7, 7])
    statistics = preference_pairs.build(tmp_path / "set", tmp_path / "built")
    whole = pq.read_table(tmp_path / "built" / preference_pairs.PAIRS_FILE)
    sft = to_trajectories(pq.read_table(tmp_path / "built" / preference_pairs.SFT_FILE))
    assert len(sft) == 18
    assert all(same(one, by_key[one.key]) for one in sft)
    assert whole.num_rows == 9
    for side in ("chosen", "rejected"):
        names = [*preference_pairs.TASK_COLUMNS, *(f"{side}_{name}" for name in preference_pairs.SIDE_COLUMNS)]
        table = whole.select(names).rename_columns([name.removeprefix(f"{side}_") for name in names])
        own = to_trajectories(table)
        assert all(same(one, by_key[one.key]) for one in own)
        assert [one.task for one in own] == list(range(9))
        assert {one.sample for one in own} <= ({0} if side == "chosen" else {1, 2, 3})
    record = json.loads((tmp_path / "built" / preference_pairs.STATISTICS_FILE).read_text())
    assert record["groups"][0]["pairs"] == 9 == statistics[0].pairs
    assert json.loads(whole.schema.metadata[b"dfc.selection"])["pair_tokens"] == 8192
    monkeypatch.setattr(preference_pairs, "_TOKENS_AT_ONCE", 20)  # in many chunks instead of one
    monkeypatch.setattr(trajectory_files, "_BYTES_AT_ONCE", 2000)  # and not all in memory
    preference_pairs.build(tmp_path / "set", tmp_path / "chunks")
    names = {preference_pairs.PAIRS_FILE, preference_pairs.SFT_FILE, preference_pairs.STATISTICS_FILE}
    assert {path.name for path in (tmp_path / "chunks").iterdir()} == names
    for name in names - {preference_pairs.STATISTICS_FILE}:
        one, other = (pq.read_table(tmp_path / folder / name) for folder in ("built", "chunks"))
        assert one.equals(other, check_metadata=True)


def test_every_row_group_is_read_once_for_both_files(tmp_path, monkeypatch):
    # Games alternate in the set and follow one another in the files.
    rows = [row(game, t, s, success=s < 1) for t in range(8) for game in ("wordle", "bandit") for s in range(3)]
    stored(tmp_path / "set", rows, [12, 12, 12])
    read = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda file, n, *a, **k: read.append(n) or original(file, n, *a, **k)
    )
    monkeypatch.setattr(preference_pairs, "_TOKENS_AT_ONCE", 20)
    (bandit, wordle) = preference_pairs.build(tmp_path / "set", tmp_path / "built")
    assert (bandit.pairs, wordle.pairs) == (8, 8)
    assert len(read) == len(rows) // 3


def test_a_set_without_a_success_gives_empty_files_and_says_so(tmp_path):
    stored(tmp_path / "set", [row(task=t, success=False) for t in range(3)])
    (group,) = preference_pairs.build(tmp_path / "set", tmp_path / "built")
    assert (group.best_of_k, group.pairs, group.sft) == (0.0, 0, 0)
    assert pq.read_table(tmp_path / "built" / preference_pairs.SFT_FILE).num_rows == 0
    assert pq.read_table(tmp_path / "built" / preference_pairs.PAIRS_FILE).num_rows == 0


def test_the_table_adds_up(tmp_path):
    rows = [
        row(game, t, s, success=s == 0 and t < 3) for game in ("wordle", "bandit") for t in range(4) for s in range(2)
    ]
    table = data_tables.training_data([dataclasses.asdict(g) for g in select(stored(tmp_path, rows)).statistics])
    assert [line[:5] for line in table.rows] == [
        ("bandit", "75.0%", "3", "3", "4"),
        ("wordle", "75.0%", "3", "3", "4"),
        ("total", "", "6", "6", "8"),
    ]

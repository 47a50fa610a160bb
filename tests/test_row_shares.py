"""Rows of several files by share: every row of the data once per epoch, shares met to less than a row."""

from fractions import Fraction

import hypothesis
import numpy as np
import offline_runs
import pytest
from hypothesis import strategies
from offline_rows import pairs, sequences, write_pairs, write_sft
from offline_runs import configured, run, write_data
from recipe_runs import lines

from dfc import validation
from dfc.config import BatchConfig, CheckpointConfig
from dfc.records.trajectory_files import DatasetError
from dfc.rows import training_rows
from dfc.training.row_shares import UpdateRows, joined

model = offline_runs.model  # the fixture

SHARES = strategies.sampled_from([(0.25,), (0.1,), (1 / 3,), (0.7,), (0.2, 0.3), (0.05, 0.5, 0.07), (0.9,)])


def ordered(rows_, others, **settings):
    return UpdateRows(rows_, others=others, **{"batch_size": 8, "epochs": 2, "seed": 0} | settings)


@hypothesis.given(strategies.integers(1, 40), SHARES, strategies.integers(3, 20), strategies.integers(0, 2**40))
@hypothesis.settings(max_examples=8, deadline=None)
def test_an_epoch_is_every_row_of_the_data_once_and_shares_are_met_to_less_than_a_row(count, shares, batch_size, seed):
    sizes = [5 + 3 * n for n in range(len(shares))]
    others = list(zip(sizes, shares, strict=True))
    batch_size = max(batch_size, 2 * len(shares))
    found = ordered(count, others, batch_size=batch_size, seed=seed)
    edges = np.cumsum([0, count, *sizes])
    per_epoch = found.updates // 2
    assert found.updates == 2 * per_epoch
    for epoch in range(2):
        own, so_far, taken = [], 0, np.zeros(len(sizes), int)
        for update in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            chosen = found[update]
            last = update == (epoch + 1) * per_epoch - 1
            assert len(chosen) == batch_size or (last and 0 < len(chosen) <= batch_size)
            own += chosen[chosen < count].tolist()
            so_far += len(chosen)
            for file, share in enumerate(shares):
                taken[file] += ((chosen >= edges[file + 1]) & (chosen < edges[file + 2])).sum()
                assert 0 <= so_far * Fraction(str(share)) - taken[file] < 1
        assert sorted(own) == list(range(count))
        assert (update + 1) % per_epoch == 0
    assert found.counts() == [2 * count, *(2 * taken)]


def test_a_quarter_of_every_four_rows_is_one_row():
    found = ordered(30, [(7, 0.25)], batch_size=4, epochs=1)
    # Nine times three rows of the data and one further; then the three that are left.
    assert [int((found[n] >= 30).sum()) for n in range(found.updates)] == [1] * 9 + [0]
    assert [len(found[n]) for n in range(found.updates)] == [4] * 9 + [3]


def test_a_further_file_is_gone_through_again_and_again_in_orders_of_its_own():
    found = ordered(40, [(5, 0.5)], batch_size=10, epochs=1)
    passes = [[int(row) - 40 for row in found[n] if row >= 40] for n in range(7)]
    assert [sorted(each) for each in passes] == [list(range(5))] * 7
    assert len({tuple(each) for each in passes}) > 4


def test_rows_follow_from_the_seed_and_the_number_alone():
    others = [(9, 0.3), (4, 0.2)]
    found, same, another = (ordered(50, others, seed=seed) for seed in (1, 1, 2))
    for update in (found.updates - 1, 3, 0):
        np.testing.assert_array_equal(found[update], same[update])
    assert any(found[n].tolist() != another[n].tolist() for n in range(found.updates))
    epochs = [np.concatenate([found[n] for n in part]) for part in (range(13), range(13, 26))]
    assert epochs[0].tolist() != epochs[1].tolist()


@pytest.mark.parametrize("others", [[(5, 0.6), (5, 0.4)], [(5, 0.2)] * 3])
def test_shares_that_do_not_fit_are_refused(others):
    with pytest.raises(ValueError, match="expected shares that fit into updates of 2 rows"):
        ordered(20, others, batch_size=2)


def test_the_number_of_updates_can_be_limited():
    whole = UpdateRows(20, batch_size=8, epochs=2, seed=0)
    cut = UpdateRows(20, batch_size=8, epochs=2, seed=0, max_updates=4)
    assert (whole.updates, cut.updates) == (6, 4)
    assert all(cut[n].tolist() == whole[n].tolist() for n in range(4))
    assert UpdateRows(20, batch_size=8, epochs=2, seed=0, max_updates=100).updates == 6


@pytest.mark.parametrize("two", [False, True], ids=["trajectories", "pairs"])
def test_joined_files_are_their_rows_one_after_another(tmp_path, two):
    make, write = (pairs, write_pairs) if two else (sequences, write_sft)
    found = [make(4, seed=1), make(3, seed=2), make(5, seed=3)]
    files = [
        training_rows.read(
            write(tmp_path / f"{n}.parquet", some, row_group_rows=2),
            pairs=two,
            vocabulary=1000,
            row_length=512,
            tokenizer=None,
        )
        for n, some in enumerate(found)
    ]
    whole = joined(files)
    assert whole.path == files[0].path
    assert len(whole) == 12
    row = 0
    for file in files:
        for own in range(len(file)):
            for side, same in zip(whole.sides, file.sides, strict=True):
                for array, expected in zip(side[row], same[own], strict=True):
                    np.testing.assert_array_equal(array, expected)
            assert (whole.lengths[row], whole.actions[row]) == (file.lengths[own], file.actions[own])
            row += 1
    assert joined(files[:1]) is files[0]
    assert len({whole.digest, *(file.digest for file in files)}) == 4


# ---- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_trains_on_shares_and_ends_after_so_many_updates(tmp_path, model, capsys):
    data = write_data(tmp_path / "built")
    minigames = write_sft(tmp_path / "minigames.parquet", sequences(6, seed=9))
    settings = {"data_shares": {str(minigames): 0.25}, "batch_size": 4, "max_updates": 2}
    settings |= {"batch": BatchConfig(row_length=128, micro_batch_rows=8), "checkpoint": CheckpointConfig(every=100)}
    path = run(tmp_path / "run", configured(model, data, **settings))
    records = lines(path)
    assert [record["metrics"]["rows"] for record in records] == [4, 4]
    said = capsys.readouterr().out
    assert f"{minigames}: each row is trained on 0.33 times" in said
    with pytest.raises(DatasetError, match=r"minigames\.parquet: none of its 6 rows would be trained on in 1 updates"):
        run(
            tmp_path / "none",
            configured(model, data, **settings | {"data_shares": {str(minigames): 0.1}, "max_updates": 1}),
        )


def test_shares_that_do_not_fit_are_named_before_anything_is_read(tmp_path, model):
    data = write_data(tmp_path / "built")
    (tmp_path / "a").write_text("")

    def problems(**changes):
        config = configured(model, data, **changes)
        return [*validation.problems(config), *validation.path_problems(config)]

    known = str(tmp_path / "a")
    assert problems(data_shares={known: 0.3}) == []
    (sum_,) = problems(data_shares={known: 0.5, str(data): 0.5})
    assert "sum to 1; must leave 0.001 of every update at least for data" in sum_
    (many,) = problems(data_shares={known: 0.2, str(data): 0.2}, batch_size=1)
    assert "an update of batch_size=1 can have 1 + 1 rows of these files" in many
    (absent,) = problems(data_shares={str(tmp_path / "absent"): 0.2})
    assert absent.startswith(f"data_shares='{tmp_path / 'absent'}': there is no such place")
    for share in (0.0, 1.0):
        (range_,) = problems(data_shares={known: share})
        assert "must be above 0 and below 1" in range_

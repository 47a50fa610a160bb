"""The sets of sampled tokens in games: what conversations keep, and runs that train on what filters left."""

import dataclasses
import types

import numpy as np
import pytest
import rl_runs
from recipe_runs import untimed
from self_play_runs import one_device

from dfc.config import SamplingConfig
from dfc.inference.protocol import EngineReply
from dfc.rollout.transcript import SeatTranscript
from dfc.rollout.workers import RolloutWorkers
from dfc.samples import Choices, Sample, choices_metrics

__all__ = ["one_device"]

SAMPLING = SamplingConfig(temperature=1.3, top_k=9, min_p=0.2)


# ---- conversations --------------------------------------------------------------------------------------------------


def transcript():
    engine = types.SimpleNamespace(max_length=64, roll_back=lambda *_: None)
    return SeatTranscript(engine, "policy", 0, slot=0)


def replied(to, *sets):
    """Adds a reply of the first token of each set."""
    tokens = [own[0] for own in sets]
    logprobs, versions = [-1.0] * len(tokens), [0] * len(tokens)
    to.add_reply(EngineReply(0, tokens, logprobs, [], versions, stopped=True, choices=Choices.of(sets)))


def rows(sample):
    return [row[row >= 0].tolist() for row in sample.choices.table()]


def test_a_reply_that_is_taken_back_leaves_no_set():
    seat = transcript()
    seat.add_context([1, 2])
    replied(seat, [3, 4], [5])
    length = len(seat.token_ids)
    seat.add_context([6])
    replied(seat, [7, 8, 9], [9, 10], [11], [12])
    seat.roll_back(length, closed=False)
    assert rows(seat.sample()) == [[], [], [3, 4], [5]]
    seat.add_context([6, 6])  # another offset than that of the reply taken back
    replied(seat, [20, 21], [22])
    assert rows(seat.sample()) == [[], [], [3, 4], [5], [], [], [20, 21], [22]]


def test_a_conversation_that_was_recorded_goes_on_with_its_sets():
    before, after = transcript(), transcript()
    before.add_context([1])
    replied(before, [3, 4], [5])
    after.begin_with(before.sample())
    after.add_context([6])
    replied(after, [7, 8])
    assert rows(after.sample()) == [[], [3, 4], [5], [], [7, 8]]


# ---- metrics --------------------------------------------------------------------------------------------------------


def sample(kept):
    sets = [range(min(number, 512)) for number in kept]
    zeros = np.zeros(len(kept), np.float32)
    return Sample(np.zeros(len(kept), np.int32), np.asarray(kept) > 0, zeros, None, Choices.of(sets, kept))


def test_metrics_count_what_survived_at_the_tokens_that_have_a_set():
    whole = Sample(np.zeros(2, np.int32), np.ones(2, bool), np.zeros(2, np.float32))
    found = choices_metrics([sample([0, 0, 3, 512]), whole, sample([0, 513, 700, 2])])
    assert found == {"kept_tokens/mean": pytest.approx(1730 / 5), "kept_tokens/max": 700, "kept_tokens/cut": 0.4}
    assert choices_metrics([whole]) == {}
    assert choices_metrics([]) == {}


# ---- runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [SAMPLING, SamplingConfig(temperature=1.3)], ids=["filters", "none"])
def test_the_engines_of_a_run_keep_the_sets_that_its_filters_leave(sampling):
    (engine,) = RolloutWorkers(rl_runs.plain(sampling=sampling), sampling=sampling).engines
    assert engine._kept_sets == sampling.filtered


@pytest.mark.parametrize("legal_only", [False, True])
def test_games_are_trained_on_at_the_probabilities_they_were_sampled_with(tmp_path, legal_only):
    config = rl_runs.plain(
        sampling=SAMPLING,
        rollout=dataclasses.replace(rl_runs.SHAPES["rollout"], legal_only=legal_only, max_reply_length=4),
        opponent="itself",
        train_both_seats=True,
        iterations=1,
        random_action_rate=0.2,
    )
    (line,) = untimed(rl_runs.run(tmp_path / "run", config))
    metrics = line["metrics"]
    assert 0 < metrics["sampler_gap/max"] < 1e-4
    assert 1 <= metrics["kept_tokens/mean"] <= metrics["kept_tokens/max"] <= 9
    assert metrics["kept_tokens/cut"] == 0

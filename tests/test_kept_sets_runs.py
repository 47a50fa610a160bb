"""Self-play with filters on all three kinds of reply: the trainer finds what was sampled, of queries and of answers."""

import dataclasses

import pytest
from recipe_runs import untimed
from self_play_runs import BASE, one_device, run

from dfc.config import SamplingConfig
from dfc.methods.language_self_play import self_reward
from dfc.methods.language_self_play import update as learning

__all__ = ["one_device"]


def test_queries_answers_and_marks_are_sampled_with_filters_and_trained_among_what_they_left(tmp_path, monkeypatch):
    seen, parts = [], learning.parts

    def noted(*given, **more):
        seen.append(found := parts(*given, **more))
        return found

    monkeypatch.setattr(learning, "parts", noted)
    monkeypatch.setattr(self_reward, "read_marks", lambda reply: sum(map(ord, reply)) % 8)
    config = dataclasses.replace(
        BASE,
        method="lsp",
        iterations=1,
        sampling=SamplingConfig(temperature=1.3, min_p=0.1, top_p=0.95),
        self_reward=dataclasses.replace(BASE.self_reward, sampling=SamplingConfig(temperature=0.7, top_k=5)),
    )
    (line,) = untimed(run(config, tmp_path / "run"), "metrics")
    assert {part.name for made in seen for part in made} == {"solver", "challenger"}
    for part in (part for made in seen for part in made):
        for batch in part.micro_batches:
            assert ((batch.choices[:, :, 0] >= 0) == (batch.mask > 0)).all()
    assert line["metrics"]["updates"] == 1
    assert line["metrics"]["sampler_gap/max"] == pytest.approx(0, abs=1e-4)
    # Of a random model more tokens survive than a set holds: they are sampled, and trained on, among 512.
    assert line["metrics"]["kept_tokens/mean"] > 512
    assert line["metrics"]["kept_tokens/cut"] > 0.5
    assert {batch.choices.shape[2] for made in seen for part in made for batch in part.micro_batches} == {512}

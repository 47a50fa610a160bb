"""Collecting from a demonstrator: who may be one, and that its games are written down as the model would see them."""

import dataclasses
import json

import numpy as np
import pytest
import recipe_runs
from chat_server import completion, serving
from collect_runs import rows, run, same
from recipe_runs import StopsAfter, lines

from dfc import validation
from dfc.config import BuildData, Collect, EndpointConfig, Paprika, RolloutConfig
from dfc.errors import ConfigError
from dfc.games.replay import replay
from dfc.models import huggingface
from dfc.rows import training_rows
from dfc.rows.conversations import encode
from dfc.runs.stop_signals import Interrupted

CONFIG = Collect(
    name="demonstrations",
    games={"Nim-v0": {}, "GuessTheNumber-v0": {}},
    tasks=12,
    samples=1,
    demonstrator="strong",
    opponent="random_legal",
    episodes_per_chunk=10,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("demonstrations") / "run", CONFIG)


def test_no_weights_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "load", lambda *_, **__: pytest.fail("weights were read"))
    assert len(rows(run(tmp_path / "run", dataclasses.replace(CONFIG, tasks=1)))) == 2


def test_a_strong_player_wins_and_its_replies_are_what_is_learned(whole, tokenizer):
    found = rows(whole)
    assert len(found) == 24
    assert np.mean([row.success for row in found.values()]) > 0.8
    for row in found.values():
        own = [reply for seat, reply, *_ in row.replies if seat == row.seat]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.mask, [0]])))
        spans = [row.token_ids[start:end].tolist() for start, end in edges.reshape(-1, 2)]
        assert [tokenizer.decode(span[:-1]) for span in spans] == own
        assert {span[-1] for span in spans} == {tokenizer.end_token_ids[0]}
        assert row.sampled_logprobs is None
        list(replay(row.record()))


def test_its_tokens_are_those_of_a_game_that_the_model_plays(tmp_path, whole, tokenizer):
    """A rollout's tokens are the oracle: whatever the model said, encoded anew, comes out as it was."""
    model = dataclasses.replace(
        CONFIG,
        demonstrator="",
        tasks=2,
        rollout=RolloutConfig(slots=4, max_length=512, max_reply_length=8, legal_only=True),
    )
    played = rows(run(tmp_path / "run", model))
    for attempt, row in played.items():
        own = rows(whole)[attempt]
        first = int(np.argmax(row.mask))
        np.testing.assert_array_equal(own.token_ids[:first], row.token_ids[:first])
        assert int(np.argmax(own.mask)) == first
        token_ids, mask = encode(row.messages, tokenizer)
        np.testing.assert_array_equal(token_ids[: len(row.token_ids)], row.token_ids)
        np.testing.assert_array_equal(mask[: len(row.mask)], row.mask)
    assert {row.provenance.model for row in rows(whole).values()} == {"strong"}


def test_a_stop_loses_nothing(tmp_path, whole):
    with pytest.raises(Interrupted):
        run(tmp_path / "run", CONFIG, StopsAfter(2))
    assert 0 < len(rows(tmp_path / "run")) < 24
    same(rows(run(tmp_path / "run", CONFIG)), rows(whole))


def test_what_it_won_is_built_and_read_with_the_models_tokenizer(tmp_path, whole, tokenizer):
    config = BuildData(name="rows", trajectories=str(whole), needed="sft")
    recipe_runs.run(tmp_path / "rows", config)
    found = training_rows.read(
        tmp_path / "rows" / "data" / "sft.parquet",
        pairs=False,
        vocabulary=2**20,
        row_length=512,
        tokenizer=lambda: tokenizer,
    )
    assert len(found) == sum(row.success for row in rows(whole).values())


def test_an_endpoint_demonstrates_and_what_it_costs_is_counted(tmp_path):
    def answer(handler, _):
        handler.send(200, json.dumps(completion("I take [1 1]")).encode())

    with serving(usual=answer) as server:
        config = dataclasses.replace(
            CONFIG,
            games={"Nim-v0": {}},
            tasks=2,
            demonstrator=f"{server.url}#m",
            endpoints={"demonstrator": EndpointConfig(concurrency=2)},
        )
        found = rows(run(tmp_path / "run", config))
    assert all("I take [1 1]" in [text for _, text, *_ in row.replies] for row in found.values())
    assert lines(tmp_path / "run")[-1]["metrics"]["requests/demonstrator"] >= 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"demonstrator": "tiny_player"}, "demonstrator='tiny_player': must be random_legal"),
        ({"opponent": "initial"}, "opponent='initial': a demonstrator meets itself"),
        ({"opponent": "tiny_player"}, "opponent='tiny_player': a demonstrator meets itself"),
        ({"simulators": "initial"}, "simulators='initial': with demonstrator='strong' no model plays"),
        ({"rollout": RolloutConfig(prompt="think")}, "rollout.prompt='think': scripted players write no thoughts"),
        ({"endpoints": {"demonstrator": EndpointConfig()}}, "endpoints.demonstrator: must be a player of this run"),
    ],
)
def test_who_cannot_demonstrate_is_said_before_anything_runs(change, complaint):
    with pytest.raises(ConfigError) as caught:
        validation.check(dataclasses.replace(CONFIG, **change))
    assert any(complaint in problem for problem in caught.value.problems), caught.value.problems


def test_the_stages_of_a_warm_start_name_their_demonstrator():
    config = Paprika(
        name="warm",
        games={"Nim-v0": {}},
        stages=("collect", "build_data", "sft"),
        collect=dataclasses.replace(Paprika().collect, demonstrator="nobody"),
    )
    with pytest.raises(ConfigError) as caught:
        validation.check(config)
    assert any(problem.startswith("collect.demonstrator='nobody'") for problem in caught.value.problems)

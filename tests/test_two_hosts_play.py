"""Two hosts with games of their own: different numbers of live games, and the episodes of one process."""

import numpy as np
import pytest
from processes import ended, free_port, joining, programs_in, started

from dfc.episodes import from_bytes

# Plays seven games in each case; the first host has four of them, the second three. Writes what each process returns.
PLAY = """
import sys
from dfc.launch import distributed

place, cases, *flags = sys.argv[1:]
processes, problems = distributed.read(dict(flag[2:].split("=") for flag in flags))
assert not problems, problems
distributed.connect(processes)

import jax
from dfc.config import MeshConfig, PlayingRunConfig, RolloutConfig, SamplingConfig
from dfc.episodes import to_bytes
from dfc.evaluation import matches
from dfc.models.sharding import make_mesh, param_shardings
from dfc.rollout.host import PolicyWeights
from dfc.rollout.workers import RolloutWorkers

games = {"TicTacToe-v0": {}, "GuessTheNumber-v0": {}}
specs = [spec for game, count in zip(games, (5, 2)) for spec in matches.match_specs({game: {}}, count, 3, "two")]
for case in cases.split("+"):
    legal_only, sizes, sharding = case.split(":")
    sizes = list(map(int, sizes.split(",")))
    rollout = RolloutConfig(
        slots=8, max_length=192, max_reply_length=6, stop=("]",), prefill_buckets=(32,),
        decode_steps=6, legal_only=legal_only == "legal", sharding=sharding,
    )
    config = PlayingRunConfig(name="two", games=games, rollout=rollout, mesh=MeshConfig(*sizes))
    workers = RolloutWorkers(config, sampling=SamplingConfig())
    as_trained = param_shardings(workers.host.model, make_mesh(*sizes))  # moved back by the engine
    episodes = workers.play(specs, PolicyWeights(jax.device_put(workers.initial_params, as_trained)), "itself")
    name = f"{case}-{jax.process_index()}-of-{jax.process_count()}"
    with open(f"{place}/{name}", "wb") as file:
        file.write(to_bytes(episodes))
    sampled = [engine.counts.generated_tokens for engine in workers.engines]
    open(f"{place}/{name}.counts", "w").write(str(sum(sampled)))
if jax.process_count() > 1:
    jax.distributed.shutdown()
"""


ALONE = {"free": "free:1,1,1:auto", "legal": "legal:1,1,1:auto"}
TOGETHER = ("free:2,1,2:training", "legal:2,1,2:training", "free:1,4,1:tensor")


def start(place, cases, *, process=None, port=None, devices=2):
    # A name for each process: one that is starting may be reading its own while the next one's is written.
    driver = place / f"driver{process}.py"
    driver.write_text(PLAY)
    words = [driver, place, "+".join(cases), *([] if process is None else joining(port, process))]
    return started(place, *words, devices=devices, **programs_in(place))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of what a single process played, and two together."""
    place = tmp_path_factory.mktemp("two_hosts")
    port = free_port()
    for group in (
        [start(place, ALONE.values(), devices=1)],
        [start(place, TOGETHER, process=index, port=port) for index in range(2)],
    ):
        for process, _, errors in ended(group):
            assert process.returncode == 0, errors
    return place


@pytest.fixture(params=TOGETHER)
def played(request, place):
    """Episodes of a single process, and of each of two, with how many ids the engines of each drew."""
    names = [f"{ALONE[request.param.split(':')[0]]}-0-of-1", *(f"{request.param}-{index}-of-2" for index in range(2))]
    return [(from_bytes((place / n).read_bytes()), int((place / f"{n}.counts").read_text())) for n in names]


def test_hosts_with_different_numbers_of_games_return_the_episodes_of_one_process(played):
    (alone, _), *hosts = played
    assert len(alone) == 7
    for episodes, _ in hosts:
        for one, other in zip(alone, episodes, strict=True):
            assert (one.game, one.seat, one.outcomes, one.replies) == (
                other.game,
                other.seat,
                other.outcomes,
                other.replies,
            )
            np.testing.assert_array_equal(one.sample.token_ids, other.sample.token_ids)
            np.testing.assert_array_equal(one.sample.versions, other.sample.versions)
            np.testing.assert_allclose(one.sample.sampled_logprobs, other.sample.sampled_logprobs, atol=1e-5, rtol=0)


def test_each_host_drew_its_own_share_only(played):
    (_, whole), (_, first), (_, second) = played
    assert first + second == whole
    assert 0 < second < first

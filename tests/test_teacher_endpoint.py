"""A teacher that is a chat endpoint: a server that is gone stops the run, which resumes where it was."""

import dataclasses
import json
from pathlib import Path

import pytest
import rl_runs
from chat_server import fails, says, serving
from recipe_runs import lines, run
from self_play_runs import make_model

from dfc.config import (
    AcceptanceConfig,
    CheckpointConfig,
    EndpointConfig,
    Grpo,
    GrpoConfig,
    MatchesConfig,
)
from dfc.errors import TrainingError

PLACE = f"{Path(__file__).parent / 'sound_games.py'}:Unasked"


def configured(url, **changes):
    make_model()
    config = Grpo(
        games={PLACE: {}},
        **rl_runs.SHAPES | {"grpo": GrpoConfig(updates_per_iteration=1, kl_coefficient=0.0)},
        groups_per_game=2,
        group_size=2,
        random_action_rate=0.0,
        opponent=f"{url}#m",
        endpoints={"opponent": EndpointConfig(retries=1, backoff=0.0, concurrency=1)},
        learner_roles={PLACE: "teller"},
        teacher_errors="replace",
        acceptance=AcceptanceConfig(rule="always", games=2),
        evaluation=MatchesConfig(games=2),
        checkpoint=CheckpointConfig(every=10),
        iterations=2,
    )
    return dataclasses.replace(config, **changes)


def test_a_teacher_that_is_down_stops_the_run_and_the_same_command_resumes(tmp_path, capsys):
    asked, down = [], [4]  # requests that are answered before the server fails: those of an iteration

    def answers(handler, body):
        asked.append(body)
        reply = says("[1]") if len(asked) <= down[0] else fails(503)
        reply(handler, body)

    with serving(usual=answers) as server:
        config = configured(server.url)
        with pytest.raises(TrainingError) as error:
            run(tmp_path / "run", config)
        text = str(error.value)
        assert "every game failed, the first with: opponent " in text
        assert "status 503" in text
        before = lines(tmp_path / "run", "metrics")
        assert [line["step"] for line in before] == [1]
        down[0] = 10**6
        capsys.readouterr()
        run(tmp_path / "run", config)
        # The iterations before the failure are not made again, although the next checkpoint was due after ten.
        assert "resuming after step 1;" in capsys.readouterr().out
        whole = lines(tmp_path / "run", "metrics")
        assert [line["step"] for line in whole] == [1, 2]
        assert whole[:1] == before
        run(tmp_path / "whole", config)
    one, other = (lines(tmp_path / name, "episodes") for name in ("run", "whole"))
    assert one == other
    assert (tmp_path / "run" / "finished.json").exists()
    assert json.loads((tmp_path / "run" / "costs.json").read_text())["failures/opponent"] == 4

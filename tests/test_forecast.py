"""What a run is going to take, in words, before its first step."""

import dataclasses
import types

import pytest

from dfc.config import RECIPES
from dfc.launch.key_names import all_keys
from dfc.runs import activity
from dfc.training import forecast
from dfc.training.forecast import Pace


@dataclasses.dataclass
class Played:
    generated_tokens: int


def test_pace_counts_games_tokens_and_seconds_without_those_of_compilation(monkeypatch):
    now = [50.0]
    compiled = types.SimpleNamespace(seconds=3.0)
    monkeypatch.setattr(forecast, "compilations", lambda: compiled)
    monkeypatch.setattr(forecast, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))

    def play():
        now[0] += 10
        compiled.seconds += 4
        return [Played(5), Played(7)]

    pace = Pace()
    assert pace.timed(play) == [Played(5), Played(7)]
    assert pace == Pace(games=2, tokens=12, seconds=6.0)
    pace.timed(play)
    assert pace == Pace(games=4, tokens=24, seconds=12.0)


def test_the_words_are_those_of_all_games_at_the_pace_of_the_first():
    first, second = forecast.lines(Pace(games=40, tokens=200, seconds=2.0), 5000, 800, 200, ())
    assert first == "games: 5,000 to train on, 800 to decide what is kept, 200 in matches"
    assert second == (
        "tokens: about 30,000 to sample, 5.0 a game; at the speed of the first 40 games playing takes 0:05:00, "
        "training comes on top"
    )


def test_more_than_an_hour_of_playing_is_warned_of_before_the_first_step():
    *_, warning = forecast.lines(Pace(40, 200, 40.0), 40_000, 2_000, 0, ("iterations",))
    assert warning == "warning: this takes more than an hour, about 11:40:00; what shortens it: iterations"


def test_after_a_resume_only_the_games_are_told():
    assert len(forecast.lines(Pace(), 5000, 800, 200, ())) == 1


@pytest.mark.parametrize("name", RECIPES)
def test_what_makes_a_run_shorter_can_be_set(name):
    kind = RECIPES[name]
    keys = set(all_keys(kind())) | {key.split(".")[0] for key in all_keys(kind())}
    assert set(kind.shorter) <= keys
    of_stages, of_rows = {"paprika", "task_curriculum", "playpen"}, {"build_data", "build_dialogues", "minigames"}
    assert kind.shorter or kind.recipe in of_stages | of_rows  # stages have their own, rows take seconds


def test_a_forecast_reads_the_clock_of_compilations():
    assert forecast.compilations is activity.compilations

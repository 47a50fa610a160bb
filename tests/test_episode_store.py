"""Games on record: what is missing is played and counted, whatever comes of it."""

import json
import types

import pytest

from dfc.config import DivideFuseConquer, Evaluate, Grpo
from dfc.errors import ConfigError, RunFolderError
from dfc.players import player_specs
from dfc.players.remote import PlayerError
from dfc.records.episode_store import EpisodeStore, Part, Played, Players, in_chunks
from dfc.runs import players_on_record
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder, config_json
from dfc.runs.stop_signals import Interrupted, Stop


class Asked:
    """An endpoint that has cost something."""

    def report(self):
        return {"name": "api", "requests": 2, "input_tokens": 3, "output_tokens": 4, "money": 0.5, "failures": 0}


def key(record):
    return record["game"], record["deal"]


def record(name, **more):
    return {"game": name[0], "deal": name[1], "outcomes": ["win"], "seat": 0, **more}


@pytest.fixture
def folder(tmp_path):
    with RunFolder.open(tmp_path / "run", Evaluate(), command="test") as opened:
        yield opened


class TwoAtATime(Players):
    endpoints = (Asked(),)

    def __init__(self, played, failed_before):
        self.played, self.failed_before = played, failed_before

    def begin(self, _):
        return 2

    def play(self, _, some):
        return self.played(some)

    def wins(self, record):
        return [(record["game"], True)]


def play(folder, wanted, played, store=None, *, failed_before=False):
    store = store or EpisodeStore(folder, key)
    with Progress(len(wanted)) as progress:
        return store.play(Part("t", ["p"], wanted), TwoAtATime(played, failed_before), 0, Stop(), progress)


GAMES = {("a", n): n for n in range(5)}


def test_games_on_record_are_not_played_again_but_those_that_failed_are(folder):
    asked = []

    def played(some, failing=(3,)):
        asked.append(list(some))
        ends = [record(("a", n), **({"failure": "x"} if n in failing else {})) for n in some]
        return Played(ends, {"generated_tokens/p": 4 if failing else 0})

    assert play(folder, GAMES, played) == 5
    assert asked == [[0, 1], [2, 3], [4]]
    asked.clear()
    assert play(folder, GAMES, lambda some: played(some, ())) == 1
    assert asked == [[3]]
    assert EpisodeStore(folder, key).missing(GAMES) == []
    lines = folder.records("metrics")
    assert [line["metrics"].get("generated_tokens/p") for line in lines] == [4, 4, 4, None]
    assert sum(line["metrics"].get("money/api", 0.0) for line in lines) == 1.0  # 0.5 of each start


def test_all_that_fail_stop_a_run_and_may_only_be_let_fail_again(folder):
    def failing(some):
        return Played([record(("a", n), failure="down") for n in some], {})

    for _ in range(2):
        with pytest.raises(PlayerError, match="all of the last 2 games failed, the first one so: down"):
            play(folder, GAMES, failing)
    left = {name: n for name, n in GAMES.items() if n < 2}
    assert play(folder, left, failing, failed_before=True) == 2
    with pytest.raises(PlayerError):  # games that have not failed before
        play(folder, {("a", 4): 4}, failing, failed_before=True)


def test_failures_that_pass_are_never_let_fail_again(folder):
    """Down twice, then failing by itself twice: the fourth time is the one that was seen before."""
    down = True

    def failing(some):
        return Played([record(("a", n), failure="down" if down else "own") for n in some], {})

    def store():
        return EpisodeStore(folder, key, passing=lambda one: one.get("failure") == "down")

    def start():
        return play(folder, {name: n for name, n in GAMES.items() if n < 2}, failing, failed_before=True, store=store())

    for _ in range(2):
        with pytest.raises(PlayerError):
            start()
    assert store().passing(GAMES) == [name for name, n in GAMES.items() if n < 2]
    down = False
    with pytest.raises(PlayerError):
        start()
    assert store().passing(GAMES) == []
    assert start() == 2
    down = True
    with pytest.raises(PlayerError):
        start()


@pytest.mark.parametrize("error", [Interrupted(15), ValueError("a game cannot be played again")])
def test_money_is_counted_whatever_ends_a_chunk(folder, error):
    def raising(_):
        raise error

    with pytest.raises(type(error)):
        play(folder, GAMES, raising)
    assert json.loads((folder.path / "costs.json").read_bytes())["money/api"] == 0.5


def test_a_stop_before_a_game_has_ended_counts_money_too(folder):
    assert play(folder, GAMES, lambda _: Played([], {})) == 0
    assert json.loads((folder.path / "costs.json").read_bytes())["money/api"] == 0.5


def test_other_players_of_the_same_name_are_refused(folder):
    players_on_record.refuse_others(folder, {"p": "one"})
    players_on_record.refuse_others(folder, {"p": "one"})
    with pytest.raises(RunFolderError, match="p is not the policy that played the games on record"):
        players_on_record.refuse_others(folder, {"p": "two"})


def test_chunks_are_those_of_everything_and_ask_for_a_stop():
    checks = []
    stop = types.SimpleNamespace(check=lambda: checks.append(1))
    found = list(in_chunks(range(7), 3, lambda some: [n for n in some if n not in (0, 1, 2, 4)], stop))
    assert found == [[3, 5], [6]]
    assert len(checks) == 2


@pytest.mark.parametrize("kind", [DivideFuseConquer, Grpo])
def test_the_newest_checkpoint_of_a_run_can_play(tmp_path, kind):
    (tmp_path / "config.json").write_text(json.dumps(config_json(kind())))
    with pytest.raises(ConfigError, match="a run without a policy or a checkpoint of divide_fuse_conquer or grpo yet"):
        player_specs.weights_in(str(tmp_path))
    (tmp_path / "checkpoints" / "step_1").mkdir(parents=True)
    assert player_specs.weights_in(str(tmp_path)).run == tmp_path

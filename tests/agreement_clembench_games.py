"""Games of a clembench folder played here, beside the same games under clemcore: `make agreement-clembench`.

Not collected by default. The oracle: ``clem run`` with the players that the games bring along, and ``clem score``; its
replies are given to the adapter, which must tell the players the same and come to the same score.

With CLEMBENCH_HOME, a clone of clembench, the real games that can be loaded there are compared as well.
"""

import json
import logging
import os
import random
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import pytest

from dfc.games import registry
from dfc.games.game import Outcome, Verdict
from dfc.games.replay import replay
from dfc.rows.dialogues import perspective

HOME = os.environ.get("CLEMBENCH_HOME")
GAMES = Path(__file__).resolve().parent / "clembench_games"
os.environ["CLEMBENCH_HOME"] = str(GAMES)
CLEM = Path(sys.executable).with_name("clem")
OUTCOMES = {"Aborted": Outcome.INVALID, "Lose": Outcome.LOSS, "Success": Outcome.WIN}


def clem(folder, home, *words):
    result = subprocess.run(  # noqa: S603 - clemcore's command and our own words
        [CLEM, *map(str, words)],
        cwd=folder,
        env=os.environ | {"CLEMBENCH_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def runs(folder):
    """(experiment, game_id, what each player was told and said in order, scores) of every game."""
    for path in sorted(folder.rglob("interactions.json")):
        data = json.loads(path.read_text())
        said = [
            (event["from"], event["to"], event["action"]["content"], event["action"].get("label"))
            for turn in data["turns"]
            for event in turn
            if event["from"] != event["to"]
        ]
        scores = json.loads(path.with_name("scores.json").read_text())["episode scores"]
        yield data["meta"]["experiment_name"], data["meta"]["game_id"], said, scores


def task_of(game, experiment, game_id):
    return next(
        number
        for number, row in enumerate(game._rows)
        if (row["experiment"]["name"], row["game_instance"]["game_id"]) == (experiment, game_id)
    )


def given(game, task, replies):
    """Plays a game with the replies of each player; returns what each seat was told."""
    game.reset(task)
    told = []
    while not game.over and game.discarded is None:
        player = f"Player {game.to_move + 1}"
        told.append((player, game.observation(game.to_move), game.aside))
        game.step(replies[player].pop(0))
    assert game.discarded is None
    return told


def started(name, seed=0, **options):
    game = registry.make(f"clembench:{name}", **options)
    game.reset(seed)
    return game


def ended(game):
    return game.outcomes[0], game.measures().get("quality")


def expected(scores):
    (outcome,) = (outcome for name, outcome in OUTCOMES.items() if scores[name])
    return outcome, None if outcome is Outcome.INVALID else pytest.approx(scores["Main Score"])


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mock")
    clem(folder, GAMES, "run", "-g", "number_hunt", "hidden_colour", "-m", "mock", "-r", "results")
    clem(folder, GAMES, "score", "-r", "results")
    return folder / "results"


def test_the_same_replies_are_told_the_same_and_come_to_the_same_score(scored):
    ends = set()
    for experiment, game_id, said, scores in runs(scored / "mock" / "number_hunt"):
        game = registry.make("clembench:number_hunt")
        replies = {"Player 1": [text for sender, _, text, _ in said if sender == "Player 1"]}
        told = given(game, task_of(game, experiment, game_id), replies)
        assert [text for _, text, _ in told] == [text for _, to, text, _ in said if to == "Player 1"]
        assert ended(game) == expected(scores)
        assert game.experiment == experiment
        ends.add(ended(game))
    assert len(ends) == 4


def test_a_game_for_two_with_an_opening_chance_and_asides(scored):
    for experiment, game_id, said, scores in runs(scored / "mock" / "hidden_colour"):
        game = registry.make("clembench:hidden_colour")
        replies = {name: [text for sender, _, text, _ in said if sender == name] for name in ("Player 1", "Player 2")}
        names, asked = list(replies["Player 2"]), 0
        for place in range(len(names), 0, -1):  # clemcore's record does not have what is asked by a call
            if names[place - 1] != f"NAME: {('red', 'green', 'blue')[game_id]}":
                replies["Player 2"].insert(place, "ASIDE: yes")
                asked += 1
        told = given(game, task_of(game, experiment, game_id), replies)
        assert [aside for _, _, aside in told].count(True) == asked
        assert [text for player, text, _ in told if player == "Player 1"][1:] == [
            text for _, to, text, _ in said if to == "Player 1"
        ][1:]
        opening = "Name one of red, green, blue: NAME: ...\n\nYou: OK\n\nHINT: a colour"
        assert next(text for player, text, aside in told if player == "Player 2" and not aside) == opening
        assert ended(game) == expected(scores)


def test_roles_team_and_why_a_game_was_broken_off():
    game = started("hidden_colour")
    assert (game.info.team, game.info.player_roles, game.info.splits) == (True, ("Teller", "Namer"), {"all": 3})
    game.step("HINT: sky")
    assert game.step("blue") is Verdict.PLAYED
    assert game.outcomes == (Outcome.INVALID,) * 2
    assert (game.forfeited_by, game.abort_reason) == (1, "invalid format: Namer did not keep the form")


def test_a_reply_may_have_lines_and_thoughts_and_what_is_asked_again_is_a_turn():
    game = started("number_hunt")
    assert game.step("<think>GUESS: 9</think>\n GUESS: 0") is Verdict.PLAYED
    assert game.observation(0) == "From 1 to 3, please."
    assert game.step("GUESS: 1") is Verdict.PLAYED
    assert ended(game) == (Outcome.WIN, 100.0)
    assert started("number_hunt").step(" ") is Verdict.FORFEIT_MALFORMED


def test_the_number_of_replies_has_a_limit():
    game = started("number_hunt", max_turns=2)
    game.step("GUESS: 0")
    game.step("GUESS: 0")
    assert game.outcomes == (Outcome.TRUNCATED,)
    assert game.discarded is None


def test_chance_depends_on_the_seed_alone_and_the_caller_s_is_as_it_was():
    moods = {seed: started("hidden_colour", seed).observation(0).split(".")[0] for seed in range(12)}
    assert len(set(moods.values())) > 1
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert {seed: started("hidden_colour", seed).observation(0).split(".")[0] for seed in reversed(range(12))} == {
        **moods
    }
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    assert "helpers" not in sys.modules


@pytest.mark.parametrize("name", ["number_hunt", "hidden_colour"])
def test_copies_at_every_reply_play_alike(name):
    for seed in range(4):
        game = started(name, seed)
        said = []
        while not game.over:
            others = [game.clone(), registry.make(game.id)]
            others[1].from_json(json.loads(json.dumps(game.to_json())))
            reply = f"GUESS: {len(said) + 2}" if name == "number_hunt" else "ASIDE: no" if game.aside else None
            reply = reply or ("HINT: sky" if game.to_move == 0 else "NAME: blue")
            said.append([game.to_move, reply, "policy", *([True, True] if game.aside else [])])
            for other in others:
                assert other.observation(other.to_move) == game.observation(game.to_move)
                other.step(reply)
            game.step(reply)
            assert all(other.to_json() == game.to_json() for other in others)
        record = {"game": game.id, "options": {}, "seed": seed, "replies": said, "forfeited_by": game.forfeited_by}
        record |= {"outcomes": [str(outcome) for outcome in game.outcomes]}
        assert len(list(replay(record))) == len(said)
        assert len(perspective(record, 0)) == sum(seat == 0 for seat, *_ in said)


FAULTY = GAMES / "number_hunt" / "master.py"


@pytest.mark.parametrize(
    ("line", "fault", "message"),
    [
        ("self.target, self.most", "1 / 0; self.target, self.most", "ZeroDivisionError"),
        ('self.log_to_self("guess", parsed_response)', "raise KeyError('x')", "raised KeyError"),
        ('self.log_to_self("guess", parsed_response)', "self.set_context_for(player, ''); return", "tells it nothing"),
        ("100 / len", "1000 / len", "Main Score 1000.0; expected a number from 0 to 100"),
        ("initial_context=prompt", "initial_context=dict(content=prompt, image=['a.png'])", "has an image"),
    ],
)
def test_what_a_game_raises_ends_it_and_no_other(tmp_path, monkeypatch, line, fault, message):
    folder = tmp_path / "number_hunt"
    (folder / "in").mkdir(parents=True)
    for name in ("clemgame.json", "in/instances.json"):
        (folder / name).write_text((GAMES / "number_hunt" / name).read_text())
    (folder / "master.py").write_text(FAULTY.read_text().replace(line, fault))
    assert fault in (folder / "master.py").read_text()
    monkeypatch.setenv("CLEMBENCH_HOME", str(tmp_path))
    if message in ("ZeroDivisionError", "has an image"):  # at the beginning of every game
        with pytest.raises(ValueError, match=f"clembench:number_hunt cannot be begun: .*{message}"):
            started("number_hunt")
        return
    game = started("number_hunt")
    other = started("number_hunt", 1)
    assert game.step("GUESS: 1") is Verdict.DISCARDED
    assert game.outcomes == (Outcome.TRUNCATED,)
    assert message in game.discarded
    assert not other.over


def test_nothing_is_set_up_or_written_where_games_are_played(tmp_path):
    script = """
        import logging, os, sys
        logging.getLogger("mine").setLevel("INFO")
        before = list(logging.root.handlers), logging.root.level, list(sys.path)
        from dfc.games import registry
        game = registry.make("clembench:hidden_colour")
        game.reset(0)
        game.step("HINT: x")
        assert (list(logging.root.handlers), logging.root.level, list(sys.path)) == before
        assert not logging.getLogger("mine").disabled
        assert os.listdir() == [], os.listdir()
    """
    code = "\n".join(line[8:] for line in script.splitlines())
    result = subprocess.run(  # noqa: S603 - this interpreter and our own words
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert logging.root.manager.disable == 0


def test_a_policy_trains_on_games_of_the_folder(tmp_path):
    config = """
        from dfc.config import *

        def get_config():
            return Grpo(
                name="hunt", games={"clembench:number_hunt": {"max_turns": 4}},
                model=ModelConfig(path="tiny_player", dtype="float32"), opponent="itself", random_action_rate=0.0,
                rollout=RolloutConfig(slots=4, max_length=512, max_reply_length=8),
                batch=BatchConfig(row_length=512, micro_batch_rows=4),
                training=TrainingConfig(scan_layers=False, remat="none"),
                iterations=1, groups_per_game=4, group_size=4,
                acceptance=AcceptanceConfig(rule="always", tolerance=0.0),
                reward=RewardConfig(hasty_action_penalty=False, invalid=-1.0), grpo=GrpoConfig(updates_per_iteration=1),
                evaluation=MatchesConfig(games=2),
            )
    """
    (tmp_path / "hunt.py").write_text("\n".join(line[8:] for line in config.splitlines()))
    words = ["--config=hunt.py", "--workdir=run"]
    result = subprocess.run(  # noqa: S603 - this interpreter and our own words
        [sys.executable, "-m", "dfc.launch", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-3000:]
    records = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    assert {record["game"] for record in records} == {"clembench:number_hunt"}
    assert not [record["failure"] for record in records if "failure" in record]
    assert {"win"} < {outcome for record in records for outcome in record["outcomes"]}
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["metrics"]["updates"] > 0
    for record in records:
        list(replay(record))
    assert (tmp_path / "run" / "policy" / "model.safetensors").exists()


# ---- the real games -------------------------------------------------------------------------------------------------

# Without adventuregame, which parses for a second a game, and privateshared, whose record lacks what its program asks.
REAL = (
    *("taboo", "wordle", "wordle_withclue", "wordle_withcritic", "imagegame", "referencegame", "guesswhat"),
    *("matchit_ascii", "codenames", "textmapworld", "textmapworld_graphreasoning", "textmapworld_specificroom"),
)


@pytest.mark.skipif(HOME is None, reason="CLEMBENCH_HOME names no clone of clembench")
@pytest.mark.parametrize("name", REAL)
def test_a_real_game_comes_to_the_score_of_clemcore(name, tmp_path, monkeypatch):
    monkeypatch.setenv("CLEMBENCH_HOME", HOME)
    try:
        game = registry.make(f"clembench:{name}")
    except ValueError as error:
        pytest.skip(str(error)[:300])
    clem(tmp_path, HOME, "run", "-g", name, "-m", "mock", "-r", "results")
    clem(tmp_path, HOME, "score", "-g", name, "-r", "results")
    compared = 0
    for experiment, game_id, said, scores in list(runs(tmp_path / "results"))[::3]:
        replies = {f"Player {n}": [text for sender, _, text, _ in said if sender == f"Player {n}"] for n in (1, 2)}
        told = given(game, task_of(game, experiment, game_id), replies)
        assert ended(game) == expected(scores)
        assert [text for _, text, _ in told] == [text for sender, _, text, _ in said if sender == "GM"]
        compared += 1
    sys.stdout.write(f"{name}: {compared} games\n")
    assert compared > 5

"""Evaluations of tasks from end to end: what is played, with which draws, what survives a stop, what is refused."""

import collections
import dataclasses
import json
import shutil

import jax
import pytest
import recipe_runs
from chat_server import completion, serving
from recipe_runs import StopsAfter, lines

from dfc import validation
from dfc.config import EndpointConfig, EvaluateTasks, RolloutConfig, SamplingConfig
from dfc.errors import ConfigError, RunFolderError
from dfc.evaluation.tasks import EvalSetting
from dfc.games import registry
from dfc.games.replay import replay
from dfc.games.rng import derive_seed
from dfc.games.textarena.guess_the_number import GuessTheNumber
from dfc.models import huggingface
from dfc.players.remote import PlayerError
from dfc.records.task_groups import split_games
from dfc.runs.stop_signals import Interrupted
from dfc.stages import evaluate_tasks

GAMES = {"GuessTheNumber-v0": {"max_turns": 4, "max_number": 9}, "TowerOfHanoi-v0": {"num_disks": 1, "max_turns": 3}}
CONFIG = EvaluateTasks(
    name="t",
    games=GAMES,
    policies=("first=tiny_player", "again=tiny_player", "strong"),
    rollout=RolloutConfig(slots=2, max_length=160, max_reply_length=4, stop=("]",)),
    tasks=3,
    trajectories=2,
    sampling=SamplingConfig(temperature=0.7, min_p=0.1),
)
LONG = len(CONFIG.policies) * len(GAMES) * 3 * 2  # games of the whole run


def run(config, path, stop=None):
    return json.loads((recipe_runs.run(path, config, stop) / "results.json").read_text())


def records(path):
    return lines(path, "episodes")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    run(CONFIG, path)
    return path


# ---- what is played --------------------------------------------------------------------------------------------------


def test_every_policy_plays_every_trajectory_of_every_task_once(whole):
    keys = [(r["policy"], r["temperature"], r["game"], r["task"], r["trajectory"]) for r in records(whole)]
    assert len(keys) == len(set(keys)) == LONG
    assert {key[:2] for key in keys} == {("first", 0.7), ("again", 0.7), ("strong", None)}
    assert collections.Counter(key[2] for key in keys) == dict.fromkeys(GAMES, LONG // 2)


def test_the_same_weights_under_two_names_say_the_same(whole):
    said = collections.defaultdict(dict)
    for r in records(whole):
        said[r["policy"]][r["game"], r["task"], r["trajectory"]] = (r["seed"], r["replies"])
    assert said["first"] == said["again"]
    assert len({str(replies) for _, replies in said["first"].values()}) > 3  # and not because nothing is drawn
    found = json.loads((whole / "results.json").read_text())
    same = [d for d in found["differences"] if d["policy"] == "again"]
    assert same
    assert all((d["difference"][0], d["p"]) == (0.0, 1.0) for d in same)


def test_a_scripted_player_has_no_more_actions_than_a_model(tmp_path):
    rollout = dataclasses.replace(CONFIG.rollout, max_actions=1)
    run(dataclasses.replace(CONFIG, policies=("strong",), rollout=rollout), tmp_path)
    guesses = [r for r in records(tmp_path) if r["game"] == "GuessTheNumber-v0"]
    assert guesses
    for r in guesses:
        assert r["turns"] == 1
        assert len(list(replay(r))) == 1


def test_the_record_is_true_and_its_figures_are_those_of_the_results(whole):
    for r in records(whole):
        assert sum(turn.seat == 0 for turn in replay(r)) == r["turns"] == r["counts"][0]["replies"]
    found = json.loads((whole / "results.json").read_text())
    for setting in found["arms"]:
        for game, figures in setting["groups"].items():
            mine = [r for r in records(whole) if (r["policy"], r["game"]) == (setting["policy"], game)]
            assert figures["games"] == len(mine) == 6
            assert figures["success"][0] == pytest.approx(sum(r["outcomes"] == ["win"] for r in mine) / 6)
            limit = registry.make(game, **GAMES[game]).info.max_game_length
            turns = [r["turns"] if r["outcomes"] == ["win"] else limit for r in mine]
            assert figures["turns"][0] == pytest.approx(sum(turns) / 6)
            assert figures["invalid"][0] == pytest.approx(sum(r["outcomes"] == ["invalid"] for r in mine) / 6)
    hanoi = {setting["policy"]: setting["groups"]["TowerOfHanoi-v0"]["success"][0] for setting in found["arms"]}
    assert hanoi["strong"] == 1.0  # one disk


def test_the_draws_belong_to_game_task_and_trajectory_and_the_deals_of_games_without_splits_are_no_other_recipes():
    def plays(config, setting):
        return evaluate_tasks.plays(config, split_games(config.games, config.split), setting)

    one, other = plays(CONFIG, EvalSetting("a", 0.3)), plays(CONFIG, EvalSetting("b", 1.0))
    assert [(p.episode_spec, p.trajectory) for p in one] == [(p.episode_spec, p.trajectory) for p in other]
    assert len({p.episode_spec.seed for p in one}) == len(one)
    assert {p.episode_spec.seed for p in plays(dataclasses.replace(CONFIG, seed=1), EvalSetting("a", 0.3))}.isdisjoint(
        p.episode_spec.seed for p in one
    )
    assert one[0].episode_spec.seed == derive_seed("evaluate tasks", 0, "GuessTheNumber-v0", 0, 0)
    deals = {p.episode_spec.game_seed for p in one}
    assert len(deals) == 6
    assert min(deals) > 1000  # `collect` takes the first deals


def test_tasks_of_a_split_are_its_seeds_and_more_than_it_has_are_further_trials():
    games = {"wordle": {"length": 6}, "bandit": {}, "minesweeper": {}}
    config = EvaluateTasks(games=games, tasks=250, tasks_of={"bandit": 7}, trajectories=3)
    chosen = split_games(games, config.split)
    assert chosen["wordle"] == {"length": 6, "split": "test"}
    seeds = collections.defaultdict(list)
    for play in evaluate_tasks.plays(config, chosen, EvalSetting("a", 0.7)):
        assert play.episode_spec.options["split"] == "test"
        seeds[play.episode_spec.game].append(play.episode_spec.game_seed)
    assert seeds["bandit"] == [task for task in range(7) for _ in range(3)]  # the split has one scenario
    assert len(seeds["minesweeper"]) == 200 * 3  # all there are
    everything = dataclasses.replace(config, tasks=0, tasks_of={})
    found = evaluate_tasks.plays(everything, chosen, EvalSetting("a", 0.7))
    assert {p.episode_spec.game_seed for p in found if p.episode_spec.game == "bandit"} == {0}


def test_the_temperature_reaches_the_model(tmp_path):
    config = dataclasses.replace(CONFIG, policies=("tiny_player",), temperatures=(0.0, 1.5), trajectories=4, tasks=2)
    run(config, tmp_path)
    said = collections.defaultdict(set)
    for r in records(tmp_path):
        said[r["temperature"], r["game"], r["task"]].add(str(r["replies"]))
    assert all(len(replies) == 1 for (temperature, *_), replies in said.items() if temperature == 0)
    assert all(len(replies) > 1 for (temperature, *_), replies in said.items() if temperature > 0)


# ---- what survives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [2, 4])
def test_a_stop_and_half_a_line_change_nothing(whole, tmp_path, looks):
    with pytest.raises(Interrupted):
        run(CONFIG, tmp_path, StopsAfter(looks))
    before = len(records(tmp_path))
    assert 0 < before < LONG
    with (tmp_path / "episodes.jsonl").open("ab") as file:
        file.write(b'{"game":"Guess')
    run(CONFIG, tmp_path)
    assert records(tmp_path) == records(whole)
    assert (tmp_path / "results.json").read_bytes() == (whole / "results.json").read_bytes()


def test_a_finished_run_shows_its_result_and_plays_nothing(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "copy")
    before = {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir() if p.name not in ("versions.json", ".lock")}
    run(CONFIG, tmp_path / "copy", StopsAfter(1))
    assert "TowerOfHanoi-v0" in capsys.readouterr().out
    after = {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir() if p.name in before}
    assert after == before


def test_games_that_failed_are_played_again_and_games_that_always_fail_do_not_stop_a_run(tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, policies=("random_legal",), games={"GuessTheNumber-v0": {}})
    broken = True
    step = GuessTheNumber.step

    def fails(game, reply):
        if broken:
            raise OSError("the line is dead")
        return step(game, reply)

    monkeypatch.setattr(GuessTheNumber, "step", fails)
    with pytest.raises(PlayerError, match="all of the last 6 games failed, the first one so: OSError"):
        run(config, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    found = run(config, tmp_path / "a")  # again, in vain
    assert (len(found["failed"]), found["arms"][0]["groups"]["GuessTheNumber-v0"]["games"]) == (6, 0)
    assert "Games that failed" in (tmp_path / "a" / "tables.md").read_text()
    broken = False
    found = run(config, tmp_path / "b")
    assert (len(found["failed"]), found["arms"][0]["groups"]["GuessTheNumber-v0"]["games"]) == (0, 6)


def test_another_policy_in_the_same_place_is_refused(tmp_path):
    source = huggingface.resolve("tiny_player")
    model = tmp_path / "model"
    shutil.copytree(source, model)
    config = dataclasses.replace(CONFIG, policies=(f"mine={model}",))
    with pytest.raises(Interrupted):
        run(config, tmp_path / "run", StopsAfter(2))
    decoder, params = huggingface.load(source, dtype="float32")
    changed = jax.tree.map(lambda x: x * 2, params)
    shutil.rmtree(model)
    huggingface.save(model, decoder, changed, copy_from=source)
    with pytest.raises(RunFolderError, match="mine is not the policy that played the games on record"):
        run(config, tmp_path / "run")


def test_a_model_of_another_shape_or_tokenizer_is_refused(tmp_path):
    for name in ("wider", "speaks"):
        shutil.copytree(huggingface.resolve("tiny_player"), tmp_path / name)
    shape = tmp_path / "wider" / "config.json"
    shape.write_text(json.dumps(json.loads(shape.read_text()) | {"intermediate_size": 64}))
    words = tmp_path / "speaks" / "tokenizer_config.json"
    words.write_text(words.read_text() + " ")
    config = dataclasses.replace(CONFIG, policies=("tiny_player", *(str(tmp_path / n) for n in ("wider", "speaks"))))
    with pytest.raises(ConfigError) as caught:
        run(config, tmp_path / "run")
    wider, speaks = caught.value.problems
    assert "'wider'" in wider
    assert "another architecture than model.path='tiny_player'" in wider
    assert "another tokenizer" in speaks


def test_a_model_of_another_shape_is_refused_before_the_first_game_of_anybody(tmp_path):
    shutil.copytree(huggingface.resolve("tiny_player"), tmp_path / "wider")
    shape = tmp_path / "wider" / "config.json"
    shape.write_text(json.dumps(json.loads(shape.read_text()) | {"intermediate_size": 64}))
    config = dataclasses.replace(CONFIG, policies=("random_legal", "tiny_player", str(tmp_path / "wider")))
    with pytest.raises(ConfigError, match="'wider'"):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "episodes.jsonl").exists()


def test_what_simulators_cost_is_counted_over_all_starts(tmp_path, capsys):
    def answers(handler, body):
        judged = "referee" in body["messages"][0]["content"]
        handler.send(200, json.dumps(completion("<NOTVALID>" if judged else "No")).encode())

    with serving(usual=answers) as server:
        config = dataclasses.replace(
            CONFIG,
            tasks=3,
            trajectories=4,
            games={"twenty_questions": {"max_turns": 2}},
            policies=("tiny_player",),
            rollout=dataclasses.replace(CONFIG.rollout, max_length=448, prefill_buckets=(64,)),
            simulators=f"{server.url}#m",
            endpoints={"simulators": EndpointConfig(input_price=1, output_price=2)},
        )
        with pytest.raises(Interrupted):
            run(config, tmp_path, StopsAfter(2))
        first = len(server.requests)
        assert first > 0
        found = run(config, tmp_path)
        requests = len(server.requests)
    assert requests > first
    assert found["cost"]["requests/simulators"] == requests
    assert found["cost"]["money/simulators"] == pytest.approx(requests * 16e-6)
    assert [line["metrics"]["requests/simulators"] for line in lines(tmp_path)] == [first, requests - first]
    said = capsys.readouterr().out
    assert f"cost so far: {first} requests" in said
    assert f"\ncost: {requests} requests, money {requests * 16e-6:.6g}" in said


# ---- words of a configuration ----------------------------------------------------------------------------------------


def problems(**changes):
    return " | ".join(validation.problems(dataclasses.replace(CONFIG, **changes)))


def test_a_sound_configuration_has_no_problems():
    assert problems() == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policies": ()}, "policies is empty"),
        ({"policies": ("a=tiny_player", "a=strong")}, "2 of them are called 'a'"),
        ({"policies": ("http://h/v1#m",)}, "'m' is a chat endpoint; evaluate_tasks plays models"),
        ({"games": {"Nim-v0": {}}}, "games.Nim-v0: is for two players"),
        ({"tasks": 0}, "GuessTheNumber-v0 has no splits, so say how many deals"),
        ({"tasks_of": ("bandit",)}, "tasks_of=('bandit',) (tuple): must be a mapping"),
        ({"tasks_of": {"bandits": 1}}, "tasks_of: there is no game 'bandits'"),
        ({"games": {"wordle": {"split": "train"}}}, "leave its split to split='test'"),
        (
            {"games": {"twenty_questions": {}}, "simulators": "initial"},
            "strong plays twenty_qu",
        ),
        ({"sampling": SamplingConfig(min_p=2.0)}, "sampling.min_p=2.0"),
    ],
)
def test_what_cannot_be_played_is_said(changes, words):
    assert words in problems(**changes)


@pytest.mark.parametrize("setting", ["adapter", "collect", "batch", "filters"])
def test_what_is_not_read_cannot_be_named(setting):
    with pytest.raises(TypeError, match=setting):
        dataclasses.replace(CONFIG, **{setting: None})


def test_a_policy_that_is_nowhere_is_said():
    config = dataclasses.replace(CONFIG, policies=("base=tiny_player", "runs/there_is_none"))
    (problem,) = validation.path_problems(config)
    assert "'runs/there_is_none': no such folder" in problem

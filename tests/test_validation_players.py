"""Who sits in the seats of a run: what is refused before anything runs, in one sentence each."""

import dataclasses

import pytest

from dfc import validation
from dfc.config import Collect, CollectConfig, EndpointConfig, Evaluate, Grpo, Paprika, TinyPlayer

TWO, CITY = {"TicTacToe-v0": {}}, {"guess_my_city": {}}
FAR = "https://h/v1#m"


def problems(config):
    return validation.problems(config) or validation.path_problems(config)


def without(config):
    """The problems that a configuration with an opponent or simulators has more than the same one without."""
    bare = dataclasses.replace(config, simulators="script", endpoints={})
    bare = dataclasses.replace(bare, opponent="itself") if hasattr(bare, "opponent") else bare
    return [problem for problem in problems(config) if problem not in problems(bare)]


@pytest.mark.parametrize("opponent", ["initial", "itself", "pool", "strong", "tiny_player", FAR])
def test_every_kind_of_player_can_be_the_opponent_of_training(opponent):
    assert problems(Grpo(games=TWO, opponent=opponent)) == []


@pytest.mark.parametrize("opponent", ["initial", "itself", "simple", "tiny_player", FAR])
def test_every_kind_of_player_can_be_the_opponent_of_a_collection(opponent):
    assert without(Collect(games=TWO, tasks=1, opponent=opponent)) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            Grpo(games=TWO, opponent="stong"),
            "opponent: 'stong': did you mean 'strong'? It must be initial, itself, p",
        ),
        (Grpo(games=TWO, opponent="nowhere/m"), "opponent: 'nowhere/m': no such folder (current folder: "),
        (Grpo(games=TWO, opponent="h.org/v1#m"), "opponent: 'h.org/v1#m': an address begins with http:// or https://"),
        (Grpo(games=TWO, opponent="http://h/v1"), "opponent: 'http://h/v1': name the model after a #"),
        (Grpo(games=TWO, opponent=""), "opponent: '': is empty"),
        (
            Grpo(games=TWO, opponent="rival=strong"),
            "opponent: 'rival=strong': this player is called 'opponent' and gets",
        ),
        (
            Grpo(games=TWO, simulators=f"mine={FAR}"),
            f"this player is called 'simulators' and gets no other name; write '{FAR}'",
        ),
        (Collect(games=TWO, tasks=1, opponent="pool"), "opponent: 'pool': no such folder"),
        (Grpo(games=TWO, simulators="strong"), "simulators='strong': must be script, initial, or an endpoint"),
        (
            Grpo(games=TWO, simulators="tiny_player"),
            "simulators='tiny_player': must be script, initial, or an ",
        ),
        (Grpo(games=TWO, opponent="strong", train_both_seats=True), "needs opponent='itself', got 'strong'"),
        (
            Paprika(games=CITY, stages=("collect", "build_data"), collect=CollectConfig(opponent="stong")),
            "collect.opponent: 'stong': did you mean 'strong",
        ),
    ],
)
def test_who_cannot_sit_there_is_said(config, said):
    assert any(problem.startswith(said) or said in problem for problem in problems(config)), problems(config)


def entries(**named):
    return {name: EndpointConfig(**values) for name, values in named.items()}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Grpo(games=TWO, opponent=FAR, endpoints=entries(opponent={"retries": 1})), None),
        (Grpo(games=TWO, simulators=FAR, endpoints=entries(simulators={})), None),
        (Paprika(games=CITY, collect=CollectConfig(opponent=FAR), endpoints=entries(opponent={})), None),
        (Grpo(games=TWO, endpoints=entries(opponent={})), "endpoints.opponent: must be a player of this run that is a"),
        (Grpo(games=TWO, opponent="strong", endpoints=entries(opponent={})), "endpoint (none); that player is none"),
        (Grpo(games=TWO, opponent=FAR, endpoints=entries(oponent={})), "endpoint (opponent); no player has this name"),
        (
            Paprika(games=CITY, stages=("evaluate_tasks",), endpoints=entries(opponent={})),
            "endpoints.opponent: must be",
        ),
        (Evaluate(games=TWO, policies=("strong", FAR), endpoints=entries(opponent={})), "endpoint (m); that player"),
        (
            Grpo(games=TWO, opponent=FAR, endpoints=entries(opponent={"cache": "c", "temperature": 0.5})),
            "endpoints.opponent.cache='c': needs endpoints.opponent.temperature=0",
        ),
        (
            Grpo(games=TWO, opponent="http://far/v1#m", endpoints=entries(opponent={"key_variable": "K"})),
            "opponent: base_url='http://far/v1': would send the key unencrypted",
        ),
        (
            Grpo(games=TWO, opponent=FAR, endpoints=entries(opponent={"key_variable": "DFC_NO_SUCH_KEY"})),
            "endpoints.opponent.key_variable: the environment variable DFC_NO_SUCH_KEY is not set or empty",
        ),
    ],
)
def test_entries_are_for_players_that_are_endpoints_and_make_sense(config, said):
    found = without(config)
    assert found == [] if said is None else any(said in problem for problem in found), found


def test_a_recipe_in_which_nobody_else_plays_has_no_endpoints():
    assert not {"endpoints", "simulators"} & {field.name for field in dataclasses.fields(TinyPlayer)}

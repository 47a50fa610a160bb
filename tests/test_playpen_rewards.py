"""The rewards of Playpen's Table 5, against a replay of every game by its rules."""

import dataclasses

import pytest
from rl_episodes import episode

from dfc import validation
from dfc.config import Grpo, RewardConfig, RolloutConfig
from dfc.games import registry, scripted
from dfc.games.dialogue.image_game import f1
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.sequential_match import play_episode
from dfc.scoring.episode_rewards import rewards_of, table_5

GAMES = (
    *("clem_taboo", "clem_wordle", "clem_wordle_withclue", "clem_wordle_withcritic", "clem_referencegame"),
    *("clem_imagegame", "clem_privateshared", "clem_matchit_ascii", "clem_guesswhat"),
)


def played(game, strength, seed):
    seats = registry.make(game).seats
    players = [scripted.player(game, strength)] * seats
    return play_episode(EpisodeSpec(game, {}, seed, seats - 1, 0, seed), players, RolloutConfig())


def by_the_rules(one):
    """What Table 5 pays, from the game itself at its end."""
    game = registry.make(one.game, **one.options)
    game.reset(one.game_seed)
    for reply in one.replies:
        game.step(reply.text)
    if game.abort_reason is not None:
        return 0.0
    paid = game.measures()["quality"] / 100
    match one.game:
        case "clem_taboo":
            right = game.guesses and game.guesses[-1].lower() == game.target
            paid = 1 / len(game.guesses) if right and len(game.guesses) <= 3 else 0.0
        case "clem_referencegame":
            paid = float(game.order[("first", "second", "third").index(game.answer)] == 0)
        case "clem_imagegame":
            paid = f1(game.target, game.drawn or ())
        case "clem_privateshared":
            paid = sum(game.filled) / 5
        case "clem_wordle" | "clem_wordle_withclue" | "clem_wordle_withcritic":
            paid = float(game.turns[-1][0] == game.target)
    return paid


@pytest.mark.parametrize("game", GAMES)
def test_what_the_table_pays_is_what_the_rules_say(game):
    paid = []
    for strength in ("random_legal", "simple", "strong"):
        for seed in range(5):
            one = played(game, strength, seed)
            paid.append(table_5(one))
            assert paid[-1] == pytest.approx(by_the_rules(one)), (strength, seed)
    assert 0 <= min(paid) <= max(paid) <= 1
    assert len(set(paid)) > 1


def test_what_was_broken_off_or_cut_is_worth_nothing():
    won = dataclasses.replace(played("clem_taboo", "strong", 0), measures={"rounds": 2.0, "quality": 50.0})
    assert table_5(won) == 0.5
    ends = ({"abort_reason": "no tag"}, {"outcomes": ("truncated",) * 2}, {"failure": "gone"})
    assert [table_5(dataclasses.replace(won, **end)) for end in ends] == [0.0] * 3
    assert table_5(dataclasses.replace(won, measures={"rounds": 4.0, "quality": 25.0})) == 0.0  # n <= 3
    assert table_5(episode("win")) == 0.0  # a game without a quality


def test_a_run_names_the_function_by_its_module():
    config = Grpo(games={"clem_taboo": {}}, reward=RewardConfig(measure="table_5"))
    assert validation.problems(config) == []
    won = dataclasses.replace(played("clem_taboo", "strong", 0), measures={"rounds": 3.0})
    assert rewards_of([won], config.reward) == [pytest.approx(1 / 3)]

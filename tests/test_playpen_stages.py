"""The chain of Playpen's stages: what each is given, what is skipped, what is refused before anything is played."""

import dataclasses
from pathlib import Path

import pytest

from dfc import validation
from dfc.config import (
    AcceptanceConfig,
    AdapterConfig,
    EndpointConfig,
    Grpo,
    MixedPriorityConfig,
    ModelConfig,
    OptimizerConfig,
    Playpen,
    RewardConfig,
    RowsAdapterConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
)
from dfc.config.dialogues import DialogueChoiceConfig
from dfc.config.playpen import (
    LEARNER_ROLES,
    STAGES,
    AdaptedPreferenceConfig,
    AdaptedSftConfig,
    DialogueCollectionConfig,
    TeacherGrpoConfig,
)
from dfc.config.sections import HeldOutChecks
from dfc.configs import playpen_llama3_1_8b
from dfc.errors import ConfigError
from dfc.launch.__main__ import main
from dfc.methods.playpen import recipe
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop

RUN = Playpen(
    games={"clem_taboo": {}, "clem_wordle": {}},
    measured_games={"clem_guesswhat": {}},
    model=ModelConfig(path="tiny_player"),
    stages=STAGES,
    rehearsal=0.25,
    sft=AdaptedSftConfig(batch_size=4, adapter=RowsAdapterConfig(rank=2, dropout=0.05)),
    dpo_turn=AdaptedPreferenceConfig(beta=0.3, optimizer=ScheduledOptimizerConfig(learning_rate=4.0)),
    grpo=TeacherGrpoConfig(optimizer=OptimizerConfig(learning_rate=3.0), adapter=AdapterConfig(rank=8)),
)


def by_name(config, folder="run"):
    return {stage.name: stage.config for stage in recipe.stages(config, Path(folder))}


def changed(**changes):
    return dataclasses.replace(RUN, **changes)


def test_each_stage_reads_what_the_ones_before_wrote():
    stages = by_name(RUN)
    assert list(stages) == [
        *("collect/strong", "collect/simple", "build_dialogues", "minigames", "warm_start", "sft"),
        *("branch/collect", "branch/siblings", "branch/pairs", "dpo_dialogue", "dpo_turn", "grpo", "sft_grpo"),
        *("evaluate_tasks", "evaluate_with_teacher"),
    ]
    built = "run/build_dialogues/data"
    assert stages["build_dialogues"].sources == ("run/collect/strong", "run/collect/simple")
    assert stages["warm_start"].data == "run/minigames/data/minigames.jsonl"
    assert stages["warm_start"].held_out.data == "run/minigames/data/minigames_held_out.jsonl"
    assert stages["sft"].data == f"{built}/sft.jsonl"
    assert stages["sft"].data_shares == {"run/minigames/data/minigames.jsonl": 0.25}
    assert stages["sft"].held_out.data == f"{built}/sft_held_out.jsonl"
    assert stages["branch/siblings"].trajectories == "run/branch/collect"
    assert stages["branch/pairs"].sources == ("run/branch/collect", "run/branch/siblings")
    assert stages["dpo_dialogue"].data == f"{built}/pairs_dialogue.jsonl"
    assert stages["dpo_turn"].data == "run/branch/pairs/data/pairs_turn.jsonl"
    assert stages["dpo_turn"].held_out.data == "run/branch/pairs/data/pairs_turn_held_out.jsonl"


def test_preferences_and_one_grpo_begin_with_the_merged_weights_of_sft():
    stages = by_name(RUN)
    paths = {name: stage.model.path for name, stage in stages.items() if hasattr(stage, "model")}
    after = dict.fromkeys(
        ("branch/collect", "branch/siblings", "dpo_dialogue", "dpo_turn", "sft_grpo"), "run/sft/policy"
    )
    base = dict.fromkeys(
        ("collect/strong", "collect/simple", "warm_start", "grpo", "evaluate_tasks", "evaluate_with_teacher"),
        "tiny_player",
    )
    assert paths == {**base, **after, "sft": "run/warm_start/policy"}


def test_players_talk_with_themselves_and_the_model_is_one_of_them_by_its_word():
    players = ("initial", "http://127.0.0.1:1/v1#m")
    asked = EndpointConfig(max_tokens=7)
    stages = by_name(
        changed(collect=DialogueCollectionConfig(players=players), endpoints={"m": asked, "opponent": asked})
    )
    assert stages["collect/initial"].demonstrator == ""
    assert stages["collect/m"].demonstrator == players[1]
    assert stages["collect/initial"].opponent == stages["collect/m"].opponent == "itself"
    assert stages["collect/initial"].endpoints == stages["evaluate_tasks"].endpoints == {}
    assert stages["collect/m"].endpoints == {"demonstrator": asked}
    assert stages["grpo"].endpoints == stages["evaluate_with_teacher"].endpoints == {"opponent": asked}


def test_the_learner_has_the_roles_of_table_9_in_grpo_and_all_seats_elsewhere():
    stages = by_name(dataclasses.replace(playpen_llama3_1_8b.get_config(), stages=STAGES))
    assert stages["grpo"].learner_roles == stages["sft_grpo"].learner_roles == LEARNER_ROLES
    assert stages["evaluate_tasks"].opponent == "itself"
    assert not stages["evaluate_tasks"].learner_roles
    assert stages["collect/strong"].opponent == "itself"
    assert set(stages["evaluate_with_teacher"].games) == {
        *("clem_taboo", "clem_imagegame", "clem_referencegame", "clem_wordle_withcritic")
    }
    assert stages["evaluate_with_teacher"].learner_roles == LEARNER_ROLES


def narrowed(roles=LEARNER_ROLES, **changes):
    config = dataclasses.replace(playpen_llama3_1_8b.get_config(), stages=STAGES, **changes)
    return dataclasses.replace(config, grpo=dataclasses.replace(config.grpo, learner_roles=roles))


@pytest.mark.parametrize(
    ("games", "roles"),
    [
        (("clem_taboo", "clem_wordle"), {"clem_taboo": "guesser"}),
        (("clem_imagegame", "clem_taboo"), {"clem_imagegame": "follower", "clem_taboo": "guesser"}),
        (("clem_wordle",), {}),
    ],
)
def test_fewer_games_have_fewer_roles_in_every_stage(games, roles):
    config = narrowed(games={game: {} for game in games})
    assert validation.problems(config) == []
    stages = by_name(config)
    assert stages["grpo"].learner_roles == stages["sft_grpo"].learner_roles == roles
    assert stages["evaluate_with_teacher"].learner_roles == roles
    for name, stage in stages.items():
        played = {game: {} for game in games} | ({} if name != "evaluate_tasks" else playpen_llama3_1_8b.MEASURED)
        assert not hasattr(stage, "games") or set(stage.games) <= set(played)
        # Where no game is for two, there is nobody to play beside the teacher, and that is said.
        if roles or name != "evaluate_with_teacher":
            assert validation.problems(stage) == []


def test_a_role_of_ones_own_is_kept_and_that_of_a_game_for_one_too():
    roles = {"clem_taboo": "describer", "clem_wordle": "guesser", "clem_imagegame": "follower"}
    stages = by_name(narrowed(roles, games={"clem_taboo": {}, "clem_wordle": {}}))
    assert stages["grpo"].learner_roles == {"clem_taboo": "describer", "clem_wordle": "guesser"}
    assert stages["evaluate_with_teacher"].learner_roles == {"clem_taboo": "describer"}
    assert [validation.problems(stages[name]) for name in ("grpo", "evaluate_with_teacher")] == [[], []]


@pytest.mark.parametrize(
    "wrong",
    [
        {"clem_tabo": "guesser"},  # a typo
        {"clem_imagegame": "giver"},  # a game that is not played, and not the role that stands there by default
        {"clem_codenames": "guesser"},  # only measured
    ],
)
def test_a_role_of_ones_own_in_a_game_that_is_not_trained_on_is_refused(wrong):
    (game,) = wrong
    config = narrowed({**LEARNER_ROLES, **wrong}, games={"clem_taboo": {}, "clem_wordle": {}})
    said = f"grpo.learner_roles: {game!r} must be among this run's games, clem_taboo, clem_wordle"
    assert validation.problems(config) == [said]
    assert validation.problems(dataclasses.replace(config, stages=("collect", "build_dialogues", "sft"))) == []
    alone = Grpo(games={"clem_taboo": {}}, model=ModelConfig(path="tiny_player"), learner_roles=wrong)
    assert any(f"learner_roles: {game!r} must be among" in problem for problem in validation.problems(alone))
    defaults = dataclasses.replace(alone, learner_roles=LEARNER_ROLES)  # what is a default there is none here
    assert any("'clem_imagegame' must be among" in problem for problem in validation.problems(defaults))


def test_games_are_narrowed_on_the_command_line_without_rewriting_roles(capsys):
    config = "--config=configs/playpen_llama3_1_8b.py"
    assert main([config, "--config.games={'clem_taboo': {}, 'clem_wordle': {}}", "--print-config"]) == 0
    shown = capsys.readouterr().out
    assert "clem_privateshared" not in shown.partition("games")[2].partition("measured_games")[0]
    assert main([config, "--config.games={'clem_taboo': {}}", "--config.grpo.learner_roles.clem_tabo=guesser"]) == 2
    assert "grpo.learner_roles: 'clem_tabo' must be among this run's games, clem_taboo" in capsys.readouterr().err


def test_every_training_has_an_adapter_an_optimizer_and_checks_of_its_own():
    stages = by_name(RUN)
    assert (stages["sft"].adapter.rank, stages["sft"].adapter.dropout) == (2, 0.05)
    assert (stages["dpo_turn"].beta, stages["dpo_turn"].optimizer.learning_rate) == (0.3, 4.0)
    assert stages["dpo_dialogue"].adapter.rank == 0
    assert (stages["grpo"].adapter.rank, stages["grpo"].optimizer.learning_rate) == (8, 3.0)
    assert stages["sft"].held_out.keep == "before_lowest"
    assert stages["dpo_dialogue"].held_out.keep == "best"
    none = by_name(changed(build_dialogues=DialogueChoiceConfig(held_out=0.0)))
    assert none["sft"].held_out.data == none["dpo_turn"].held_out.data == ""
    assert none["sft"].held_out.keep == "last"


def test_grpo_goes_through_the_instances_in_epochs_and_answers_for_the_teacher():
    grpo = by_name(RUN)["grpo"]
    assert (grpo.deals, grpo.teacher_errors, grpo.teacher_replays) == ("epochs", "replace", 1)
    assert (grpo.random_action_rate, grpo.half_negative) == (0, False)
    assert grpo.acceptance == AcceptanceConfig(rule="always", tolerance=0.0)
    assert grpo.mixed_priority == MixedPriorityConfig(enabled=False)
    assert grpo.reward == RewardConfig(measure="table_5")


def test_rows_of_another_run_are_trained_on_where_none_are_built():
    stages = by_name(changed(stages=("sft", "dpo_turn"), built="other/build_dialogues", rehearsal=0.0))
    assert list(stages) == ["sft", "dpo_turn"]
    assert stages["sft"].data == "other/build_dialogues/data/sft.jsonl"
    assert stages["dpo_turn"].data == "other/build_dialogues/data/pairs_turn.jsonl"
    assert stages["sft"].model.path == "tiny_player"  # nothing came before


def test_pairs_of_dialogues_and_of_turns_have_numbers_of_their_own():
    settings = DialogueChoiceConfig(negatives=1, turn_negatives=5, turn_rejected="lower_quality")
    stages = by_name(changed(build_dialogues=settings))
    for stage in (stages["build_dialogues"], stages["branch/pairs"]):
        assert (stage.negatives, stage.turn_negatives, stage.turn_rejected) == (1, 5, "lower_quality")
    published = by_name(playpen_llama3_1_8b.get_config())["build_dialogues"]
    assert (published.negatives, published.turn_negatives, published.turn_rejected) == (1, 0, "unsuccessful")


def test_only_rows_that_a_stage_reads_are_built():
    stages = by_name(changed(stages=("collect", "build_dialogues", "sft"), rehearsal=0.0))
    assert stages["build_dialogues"].wanted == ("sft",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stages": ()}, "must be some of collect, build_dialogues,"),
        ({"stages": ("sft", "collect")}, "each once, in this order"),
        ({"stages": ("collect", "build_dialogues"), "rehearsal": 0.0}, "trains nothing"),
        ({"stages": ("warm_start",), "rehearsal": 0.0}, "warm_start begins after minigames; add it"),
        ({"stages": ("sft_grpo",), "rehearsal": 0.0}, "sft_grpo begins after sft"),
        ({"stages": ("sft",)}, "rehearsal=0.25: needs the stages minigames and sft"),
        (
            {"grpo": TeacherGrpoConfig(sampling=SamplingConfig(temperature=0.0))},
            "grpo.sampling.temperature=0.0: must be above 0; without chance",
        ),
        (
            {"grpo": TeacherGrpoConfig(sampling=SamplingConfig(top_k=1))},
            "grpo.sampling.top_k=1: must be 2 or more, or 0 for no limit; of one token there is no choice to learn",
        ),
        ({"measured_games": {"clem_taboo": {}}}, "games and measured_games both name clem_taboo"),
        ({"stages": ("build_dialogues", "sft"), "rehearsal": 0.0}, "collect.sources is empty"),
        ({"built": "x"}, "built: is not read where build_dialogues is a stage"),
        ({"collect": DialogueCollectionConfig(players=())}, "collect.players is empty"),
        ({"collect": DialogueCollectionConfig(players=("a=strong", "a=simple"))}, "2 of them are called 'a'"),
        ({"grpo": TeacherGrpoConfig(opponent="http://127.0.0.1:1/v1")}, "grpo.opponent"),
    ],
)
def test_what_stages_need_of_each_other_is_said_now(changes, words):
    assert validation.problems(RUN) == []
    found = validation.problems(changed(**changes))
    assert any(words in problem for problem in found), found


def test_settings_of_a_stage_that_contradict_each_other_are_said_before_anything_is_played(tmp_path):
    config = changed(sft=AdaptedSftConfig(adapter=RowsAdapterConfig(rank=0, base="nf4")))
    with RunFolder.open(tmp_path / "run", config, command="") as folder, pytest.raises(ConfigError) as caught:
        recipe.run(config, folder, Stop())
    assert any(problem.startswith("stage sft: adapter.base='nf4'") for problem in caught.value.problems)
    assert not list((tmp_path / "run").glob("*/config.json"))


def test_places_that_are_read_and_do_not_exist_are_named():
    found = validation.path_problems(changed(stages=("sft",), built="nowhere", rehearsal=0.0))
    assert any("built='nowhere': there is no such place" in problem for problem in found), found
    sources = DialogueCollectionConfig(sources=("nowhere",))
    found = validation.path_problems(changed(collect=sources))
    assert any("collect.sources: 'nowhere': there is no such place" in problem for problem in found), found


def test_the_published_run_has_the_published_values():
    config = playpen_llama3_1_8b.get_config()
    assert validation.problems(config) == []
    stages = by_name(config)
    assert [problem for stage in stages.values() for problem in validation.problems(stage)] == []
    sft, dpo, grpo = stages["sft"], stages["dpo_turn"], stages["grpo"]
    assert sft.adapter == RowsAdapterConfig(rank=64, alpha=32, dropout=0.05, targets="all_linear", base="nf4")
    assert (sft.batch_size, sft.optimizer.schedule, sft.optimizer.weight_decay) == (4, "linear", 0.01)
    assert sft.held_out == dataclasses.replace(sft.held_out, every=100, keep="before_lowest", tolerance=0.015)
    assert dpo.adapter == RowsAdapterConfig(rank=64, alpha=64, targets="all_linear", base="nf4")
    assert (dpo.batch_size, dpo.beta, dpo.alpha, dpo.optimizer.learning_rate) == (6, 0.1, 0, 5e-6)
    assert (dpo.held_out.every, dpo.held_out.keep) == (0.2, "best")
    assert grpo.adapter == AdapterConfig(rank=64, alpha=128, targets="qkvo")
    assert (grpo.groups_per_iteration, grpo.group_size, grpo.sampling.temperature) == (16, 8, 0.75)
    assert (grpo.iterations, grpo.grpo.kl_coefficient, grpo.grpo.updates_per_iteration) == (215, 0.04, 1)
    assert (grpo.opponent_reply.max_length, grpo.opponent_reply.sampling) == (100, SamplingConfig(temperature=0.0))
    assert HeldOutChecks().tolerance == 0.015

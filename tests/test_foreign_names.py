"""Names of other libraries: each is answered with a setting that the recipe at hand has, wherever it was written."""

import re
from pathlib import Path

import pytest

import dfc
from dfc.config import (
    RECIPES,
    Collect,
    DivideFuseConquer,
    EvaluateTasks,
    Grpo,
    GrpoConfig,
    LanguageSelfPlay,
    Paprika,
    Playpen,
    Preference,
    Sft,
    fields,
)
from dfc.errors import ConfigError
from dfc.launch import command_line, foreign_names, key_names
from dfc.launch.key_names import all_keys
from dfc.launch.overrides import override

ROOT = Path(__file__).resolve().parents[1]
KEYS = {recipe: set(all_keys(kind)) for recipe, kind in RECIPES.items()}
LIBRARIES = {"TRL", "verl", "Tunix", "Transformers", "PEFT"}
RENAMED = {"epsilon", "random_action_rate"}  # one of them is the share of random actions
SMOKE = "configs/smoke.py"
every_name = pytest.mark.parametrize("name", foreign_names.NAMES)


def entry_of(name):
    return foreign_names.find(name)[1]


def said(kind, word):
    _, (problem,) = override(kind(), [f"--config.{word}"])
    return problem


def suggested(text):
    """The keys of configurations that a sentence tells to write."""
    return re.findall(r"--config\.([\w.]*\w)", text.partition("; ")[2])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- the table -----------------------------------------------------------------------------------------------------


def test_the_table_has_the_usual_names_each_once_with_its_libraries():
    names = [name for entry in foreign_names.TABLE for name in entry.names]
    assert len(names) == len(set(names)) >= 60
    for entry in foreign_names.TABLE:
        assert {library for of in entry.names.values() for library in of.split(", ")} <= LIBRARIES
        assert entry.keys or entry.note or entry.flag
    usual = (
        "beta epsilon epsilon_high num_generations max_completion_length max_prompt_length max_length max_new_tokens "
        "learning_rate lr output_dir report_to run_name per_device_train_batch_size gradient_accumulation_steps "
        "gradient_checkpointing push_to_hub hub_model_id num_train_epochs max_steps warmup_ratio warmup_steps "
        "lr_scheduler_type weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm bf16 fp16 save_steps "
        "save_total_limit logging_steps eval_steps resume_from_checkpoint model_name_or_path torch_dtype "
        "attn_implementation use_peft lora_r lora_alpha lora_dropout lora_target_modules load_in_4bit loss_type "
        "scale_rewards num_iterations mask_truncated_completions temperature top_p top_k min_p use_vllm vllm_mode "
        "ref_model sync_ref_model reward_funcs reward_model_path deepspeed fsdp packing assistant_only_loss "
        "completion_only_loss dataset_name eval_strategy kl_coef kl_loss_coef clip_ratio entropy_coeff total_epochs "
        "n_gpus_per_node nnodes tensor_model_parallel_size actor_rollout_ref.actor.ppo_mini_batch_size "
        "data.train_batch_size algorithm.adv_estimator trainer.total_epochs actor_rollout_ref.rollout.n"
    )
    assert [name for name in usual.split() if foreign_names.find(name) is None] == []


@every_name
def test_every_key_and_flag_of_the_table_exists_in_a_recipe(name):
    entry = entry_of(name)
    for key in (*entry.keys, *entry.otherwise, *re.findall(r"`([\w.]+)`", entry.note)):
        if key in RENAMED:
            assert any(RENAMED & keys for keys in KEYS.values())
        else:
            assert any(key in keys for keys in KEYS.values()), key
    assert entry.flag in {"", *command_line._FLAGS}
    if entry.value:  # what is to be written can be
        for kind in RECIPES.values():
            for key in entry.keys_among(all_keys(kind)):
                assert override(kind(), [f"--config.{key}={entry.value}"])[1] == []


def test_the_sections_of_stages_are_sections_of_a_recipe():
    sections = {name for kind in RECIPES.values() for name in fields.fields_of(kind)}
    assert set(foreign_names.STAGES) <= sections


@pytest.mark.parametrize("kind", RECIPES.values(), ids=RECIPES)
def test_what_is_told_to_be_written_is_there_in_every_recipe(kind):
    told = 0
    for name in foreign_names.NAMES:
        if name.split(".")[0] in fields.fields_of(kind):  # ours too
            continue
        problem = said(kind, f"{name}=1")
        assert "\n" not in problem
        assert len(problem) < 500
        assert set(suggested(problem)) <= KEYS[kind.recipe], problem
        assert "; allowed:" not in problem
        assert re.search(r"; write --config\.| is --| see --| of |has no such setting", problem)
        entry = entry_of(name)
        meant = {*entry.keys, *entry.otherwise}
        for key in suggested(problem):  # it is what the table says, in a stage's section or not
            assert meant & {key, key.partition(".")[2]} or key.endswith(f".{name}"), problem
        told += len(suggested(problem))
    assert told


def test_the_clip_is_told_beside_the_share_of_random_actions():
    entry = entry_of("epsilon")
    assert entry.keys_among(all_keys(Grpo)) == ["grpo.clip_ratio"]
    assert entry.keys_among(all_keys(Playpen)) == ["grpo.grpo.clip_ratio"]
    assert (
        entry.note_for(["grpo.clip_ratio", "random_action_rate"]) == "the share of random actions is random_action_rate"
    )
    assert entry.note_for(["grpo.clip_ratio"]) == ""  # nothing is named that is not there
    assert "; epsilon of TRL and Tunix is --config.grpo.clip_ratio=0.2" in said(Grpo, "grpo.epsilon=0.2")


# ---- what is said --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "word", "told"),
    [
        (Grpo, "beta=0.04", "beta of TRL and Tunix is --config.grpo.kl_coefficient=0.04"),
        (Grpo, "grpo.beta=0.04", "beta of TRL and Tunix is --config.grpo.kl_coefficient=0.04"),
        (LanguageSelfPlay, "beta=0.04", "is --config.kl_coefficient=0.04"),
        (Playpen, "beta=0.04", "is --config.grpo.grpo.kl_coefficient=0.04 or --config.dpo_dialogue.beta=0.04 or"),
        (Sft, "beta=0.1", "; recipe sft has no such setting: divide_fuse_conquer, grpo have grpo.kl_coefficient; "),
        (Sft, "beta=0.1", "; preference has beta"),
        (Grpo, "num_generations=8", "num_generations of TRL and Tunix is --config.group_size=8"),
        (LanguageSelfPlay, "num_generations=8", "is --config.group_size=8"),
        (Grpo, "actor_rollout_ref.rollout.n=8", "rollout.n of verl is --config.group_size=8"),
        (Sft, "data.train_batch_size=8", "for train_batch_size of verl see --config.batch_size (rows of an update"),
        (Grpo, "algorithm.adv_estimator=grpo", "for adv_estimator of verl see --config.grpo.baseline (group for GRPO"),
        (Grpo, "bf16", "bf16 of Transformers is --config.model.dtype=bfloat16"),
        (Grpo, "warmup_ratio=0.1", "for warmup_ratio of Transformers and Tunix see --config.optimizer.warmup_steps"),
        (Sft, "warmup_ratio=0.1", "; write --config.optimizer.warmup_ratio=0.1"),
        (Playpen, "sft.lr=1e-5", "lr of verl is --config.sft.optimizer.learning_rate=1e-5"),
        (Grpo, "output_dir=x", "output_dir of Transformers is --workdir=x"),
        (Grpo, "report_to=wandb", "TensorBoard files are in the run folder"),
        (Grpo, "top_p=0.9", "; write --config.sampling.top_p=0.9"),
        (Collect, "top_k=9", "; write --config.sampling.top_k=9 (0 keeps all)"),
        (Grpo, "num_generation=8", "num_generations of TRL and Tunix is --config.group_size=8"),
        (Preference, "num-train-epochs=2", "num_train_epochs of Transformers and Tunix is --config.epochs=2"),
        (Grpo, f"beta={'9' * 300}", "is --config.grpo.kl_coefficient=VALUE"),
    ],
)  # fmt: skip
def test_a_key_of_another_library_is_answered_with_ours(kind, word, told):
    assert told in said(kind, word)


def test_python_is_told_the_key_without_the_prefix_of_command_lines():
    with pytest.raises(ConfigError) as caught:
        dfc.load_config(SMOKE, {"grpo.beta": 0.1}, beta=0.04, learning_rate=1)
    for problem, (key, told) in zip(
        caught.value.problems,
        [
            ("grpo.beta", "there is no 'beta' in grpo; beta of TRL and Tunix is grpo.kl_coefficient"),
            ("beta", "; beta of TRL and Tunix is grpo.kl_coefficient"),
            ("learning_rate", "; write optimizer.learning_rate"),
        ],
        strict=True,
    ):
        assert problem.startswith(f"{key}: ")
        assert problem.endswith(told)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("Grpo(beta=0.04)", "beta of TRL and Tunix is grpo=GrpoConfig(kl_coefficient=...)"),
        ("Grpo(learning_rate=1e-5)", "; write optimizer=OptimizerConfig(learning_rate=...)"),
        ("Grpo(num_generations=8)", "num_generations of TRL and Tunix is group_size=..."),
        ("Grpo(grpo=GrpoConfig(beta=0.04))", "beta of TRL and Tunix is kl_coefficient=..."),
        ("Grpo(optimizer=OptimizerConfig(lr=1e-5))", "lr of verl is learning_rate=..."),
        ("Grpo(optimizer=OptimizerConfig(b22=1))", "; did you mean b2=...?"),
        ("Grpo(optimizer=OptimizerConfig(zzz=1))", "; allowed: learning_rate, warmup_steps,"),
        ("Grpo(bf16=True)", "is model=ModelConfig(dtype='bfloat16')"),
        ("Sft(beta=0.1)", "; recipe sft has no such setting: "),
        ("GrpoConfig(output_dir='x')", "output_dir of Transformers is --workdir=VALUE"),
    ],
)
def test_a_keyword_of_another_library_in_a_file_is_answered_in_python(here, made, told):
    (here / "c.py").write_text(f"from dfc.config import *\n\ndef get_config():\n    return {made}\n")
    with pytest.raises(ConfigError) as caught:
        command_line.parse(["--config=c.py"])
    (problem,) = caught.value.problems
    assert "line 4 raised TypeError: " in problem
    assert told in problem


def test_what_a_file_is_told_to_write_can_be_written():
    assert key_names.constructed(Grpo, "--config.grpo.kl_coefficient=3") == "grpo=GrpoConfig(kl_coefficient=3)"
    assert Grpo(grpo=GrpoConfig(kl_coefficient=3)).grpo.kl_coefficient == 3


# ---- names of before ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "word", "told"),
    [
        (Grpo, "trajectories_per_seed=8", "trajectories_per_seed is now --config.group_size=8"),
        (Grpo, "seeds_per_game=8", "seeds_per_game is now --config.groups_per_game=8"),
        (Grpo, "instances_per_iteration=8", "instances_per_iteration is now --config.groups_per_iteration=8"),
        (LanguageSelfPlay, "answers=8", "answers is now --config.group_size=8"),
        (LanguageSelfPlay, "queries=8", "queries is now --config.groups_per_iteration=8"),
        (Playpen, "grpo.trajectories_per_seed=8", "trajectories_per_seed is now --config.grpo.group_size=8"),
        (Playpen, "trajectories_per_seed=8", "trajectories_per_seed is now --config.grpo.group_size=8"),
        (Playpen, "grpo.instances_per_iteration=8", "is now --config.grpo.groups_per_iteration=8"),
        (LanguageSelfPlay, "trajectories_per_seed=8", "trajectories_per_seed is now --config.group_size=8"),
        (Sft, "seeds_per_game=8", "; recipe sft has no such setting: divide_fuse_conquer, grpo have groups_per_game"),
        (Sft, "answers=8", "; recipe sft has no such setting: language_self_play has group_size"),
        (Playpen, "build_dialogues.groups=a", "groups is now --config.build_dialogues.game_groups=a"),
        (Paprika, "groups=a", "groups is now --config.build_data.game_groups=a"),
        (Grpo, "temperature=0.8", "; write --config.sampling.temperature=0.8"),
        (LanguageSelfPlay, "temperature=0.8", "; write --config.sampling.temperature=0.8"),
        (Playpen, "grpo.temperature=0.8", "temperature is now --config.grpo.sampling.temperature=0.8"),
        (Grpo, "opponent_reply.temperature=0", "is now --config.opponent_reply.sampling.temperature=0"),
        (LanguageSelfPlay, "self_reward.temperature=2", "is now --config.self_reward.sampling.temperature=2"),
    ],
)
def test_a_name_of_before_is_refused_with_the_one_of_today(kind, word, told):
    assert f"there is no '{word.split('=')[0].rsplit('.', 1)[-1]}' in " in said(kind, word)
    assert told in said(kind, word)


@pytest.mark.parametrize(
    ("kind", "key", "today"),
    [(EvaluateTasks, "filters.min_p", "sampling.min_p"), (Paprika, "evaluate_tasks.filters.top_k", "sampling.top_k")],
)
def test_filters_are_named_in_the_section_of_today(kind, key, today):
    *section, _, name = key.split(".")
    assert f"; {name} is now --config.{'.'.join([*section, today])}=0.3" in said(kind, f"{key}=0.3")


def test_groups_of_another_meaning_were_not_renamed():
    assert " is now " not in said(DivideFuseConquer, "groups=a")
    assert override(DivideFuseConquer(), ["--config.grouping.groups=(('Nim-v0',),)"])[1] == []


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("Grpo(trajectories_per_seed=8)", "trajectories_per_seed is now group_size=..."),
        ("LanguageSelfPlay(queries=8)", "queries is now groups_per_iteration=..."),
        ("Grpo(temperature=0.8)", "; write sampling=SamplingConfig(temperature=...)"),
        ("Grpo(opponent_reply=OpponentReplyConfig(temperature=0))", "write sampling=SamplingConfig(temperature=...)"),
        ("LanguageSelfPlay(self_reward=SelfRewardConfig(temperature=1))", "write sampling=SamplingConfig(temperature="),
        ("EvaluateTasks(filters=SamplingConfig())", "filters is now sampling="),
        ("Playpen(grpo=TeacherGrpoConfig(instances_per_iteration=8))", "is now groups_per_iteration=..."),
    ],
)
def test_a_keyword_of_before_in_a_file_is_refused_with_the_one_of_today(here, made, told):
    (here / "c.py").write_text(f"from dfc.config import *\n\ndef get_config():\n    return {made}\n")
    with pytest.raises(ConfigError) as caught:
        command_line.parse(["--config=c.py"])
    (problem,) = caught.value.problems
    assert told in problem


def test_flags_python_and_help_know_the_names_of_before():
    with pytest.raises(ConfigError) as caught:
        command_line.parse([f"--config={SMOKE}", "--seeds_per_game=5"])
    assert str(caught.value.problems[0]).endswith("; seeds_per_game is now --config.groups_per_game=5")
    with pytest.raises(ConfigError) as caught:
        command_line.parse(["--config.seeds_per_game=5"])
    assert "; seeds_per_game was renamed: divide_fuse_conquer, grpo have groups_per_game" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        dfc.load_config(SMOKE, seeds_per_game=5)
    assert str(caught.value.problems[0]).endswith("; seeds_per_game is now groups_per_game")
    text = command_line.parse([f"--config={SMOKE}", "--help=trajectories_per_seed"])
    assert keys_in(text) == ["group_size"]
    assert "\n  trajectories_per_seed is now --config.group_size\n" in text
    assert "group_size" in keys_in(command_line.parse(["--help=trajectories_per_seed"]))


# ---- flags and bare words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--learning_rate=1e-5"],
            "--learning_rate=1e-5: there is no flag --learning_rate; write --config.optimizer.l",
        ),
        (["--learning_rate", "1e-5"], "; write --config.optimizer.learning_rate=1e-5"),
        (["--learning-rate=1e-5"], "; write --config.optimizer.learning_rate=1e-5"),
        (["-learning_rate=1e-5"], "; write --config.optimizer.learning_rate=1e-5"),
        (["--output_dir=x"], "output_dir of Transformers is --workdir=x"),
        (["--output_dir", "x"], "output_dir of Transformers is --workdir=x"),
        (["--report_to=wandb"], "TensorBoard files are in the run folder"),
        (["--push_to_hub"], "push_to_hub of Transformers: nothing is uploaded; policy/ of the run folder has the Hugg"),
        (["--push_to_hub", "--config.seed=1"], "--push_to_hub: there is no flag"),
        (["--push_to_hub=True"], "nothing is uploaded"),
        (["--max_steps", "-1"], "--max_steps=-1: there is no flag --max_steps; for max_steps of"),
        (["--groups_per_game=5"], "; write --config.groups_per_game=5"),
        (["--groups_per_game", "5"], "; write --config.groups_per_game=5"),
        (["--groups_per_game"], "; write --config.groups_per_game=VALUE"),
        (["--groups-per-game=5"], "; write --config.groups_per_game=5"),
        (["--optimizer.learning_rate=1"], "; write --config.optimizer.learning_rate=1"),
        (["--optimizer.learning_rat=1"], "; did you mean --config.optimizer.learning_rate?"),
        (["--half_negative"], "; write --config.half_negative"),
        (["--nohalf_negative"], "; write --noconfig.half_negative"),
        (["--games={}"], "; write --config.games={}"),
        (["--gradient_checkpointing=False"], "; for gradient_checkpointing of Transformers see --config.training.rem"),
        (["--nogradient_checkpointing"], "; for gradient_checkpointing of Transformers see --config.training.remat"),
        (["--bf16", "no"], "; for bf16 of Transformers see --config.model.dtype"),
        (["--nopush_to_hub"], "push_to_hub of Transformers: nothing is uploaded"),
        (["--chat_template_kwargs={}"], "see --config.model.enable_thinking (of its entries only enable_thinking is p"),
        (["--steps_per_generation=4"], "see --config.grpo.updates_per_iteration (TRL's divided by its gradient_accum"),
        (["--beta=1"], "is --config.grpo.kl_coefficient=1"),
        (
            ["--iterations=5"],
            "; recipe divide_fuse_conquer has no such setting: grpo, language_self_play have iteration",
        ),
        (["--wrkdir=x"], "; did you mean 'workdir'?"),
        (["--zzz=1"], "; allowed: config, workdir,"),
        (
            ["learning_rate=1e-5"],
            "'learning_rate=1e-5': not expected here; write --config.optimizer.learning_rate=1e-5",
        ),
        (
            ["trainer.total_epochs=2"],
            "for total_epochs of verl see --config.divide_iterations or --config.conquer_iter",
        ),
        (["stray"], "'stray': not expected here; a value belongs to its flag, as in --config=FILE"),
        (["zzz=1"], "'zzz=1': not expected here; a value belongs to its flag, as in --config=FILE"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_word_that_is_no_flag_is_one_problem_with_what_it_means(words, told, first):
    arguments = [*words, f"--config={SMOKE}"] if first else [f"--config={SMOKE}", *words]
    with pytest.raises(ConfigError) as caught:
        command_line.parse(arguments)
    (problem,) = caught.value.problems
    assert told in problem
    assert "\n" not in problem


def test_a_flag_of_ours_keeps_its_value_behind_a_stranger():
    with pytest.raises(ConfigError) as caught:
        command_line.parse(["stray", "--lr", "1", "--config", SMOKE, "--workdir", "w", "--config.seed", "x"])
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["'stray'", "--lr=1", "--config.seed=x"]


def test_without_a_configuration_the_recipes_that_have_it_are_told():
    with pytest.raises(ConfigError) as caught:
        command_line.parse(["--iterations=5", "--num_generations=8", "--config.num_generations=8"])
    flag, foreign, _, key = caught.value.problems
    assert flag.endswith("; write --config.iterations=5")
    for problem in (foreign, key):
        assert "divide_fuse_conquer, grpo, language_self_play have group_size" in problem


def test_a_key_in_a_strangers_value_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        command_line.parse([f"--config={SMOKE}", "--hub_token", f"hf_{'aB3' * 12}", f"--lr=hf_{'aB3' * 12}"])
    assert "aB3" not in str(caught.value)
    assert "HF_TOKEN of the environment is read" in str(caught.value)


# ---- what was meant ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "word", "told"),
    [
        (Grpo, "rollout.sampling.temperature=0.6", "there is no 'sampling' in rollout; write --config.sampling.temp"),
        (Grpo, "rollout.temperature=0.6", "; write --config.sampling.temperature=0.6"),
        (Collect, "rollout.sampling.temperature=0.6", "; write --config.sampling.temperature=0.6"),
        (EvaluateTasks, "rollout.sampling.temperature=0.6", "; write --config.sampling.temperature=0.6"),
        (
            Playpen,
            "rollout.temperature=1",
            "; write --config.collect.sampling.temperature=1 or --config.branch.sampling.t",
        ),
        (Grpo, "rolout.slots=3", "; did you mean --config.rollout.slots?"),
        (Grpo, "rollout.kl_coef=1", "is --config.grpo.kl_coefficient=1"),
        (Grpo, "mico_batch_rows=3", "; did you mean --config.batch.micro_batch_rows?"),
        (Grpo, "temp=1", " or --config.sampling.temperature?"),
        (
            Sft,
            "rolout.slots=3",
            "; recipe sft has no such setting: divide_fuse_conquer, grpo and 10 other recipes have",
        ),
        (Grpo, "epochs=3", "; recipe grpo has no such setting: sft, preference have epochs; "),
        (Grpo, "pairwise.judge=x", "; recipe grpo has no such setting: evaluate_answers has pairwise.judge"),
        (
            Grpo,
            "endpoints.a.time_out=3",
            "there is no 'time_out' in endpoints.a; did you mean --config.endpoints.a.time",
        ),
        (Grpo, "key_variable=K", "; write --config.endpoints.NAME.key_variable=K"),
        (Grpo, "rollout.slots.more=1", "at most 100,000, not a section"),
    ],
)
def test_a_key_is_looked_for_in_the_whole_configuration_and_in_other_recipes(kind, word, told):
    assert told in said(kind, word)


def test_what_is_only_a_little_alike_is_not_suggested():
    assert "sharding" not in said(Grpo, "rollout.sampling.temperature=0.6").partition("; ")[2]
    assert "sharding" not in said(Grpo, "rollout.sampling=1").partition("did you mean")[2]
    assert "iterations" not in said(Grpo, "num_generations=8")
    assert fields.near("sampling", ["sharding"]) is None
    assert fields.near("num_generations", ["iterations"]) is None
    assert fields.near("sead", ["seed", "size"]) == "seed"
    assert fields.near("clip", ["clip_ratio_high", "clip_ratio"]) == "clip_ratio"


@pytest.mark.parametrize(
    "name", ["x" * 100_000, "a." * 50_000 + "beta", "beta." * 3, "", ".", "..beta", "\x1b[31m", "ß" * 300]
)
def test_a_hostile_name_has_one_bounded_answer(name):
    for kind in (None, Grpo):
        assert len(key_names.suggestion(kind, name, "1")) < 500
        assert len(key_names.flag_suggestion(kind, name, "1" * 10_000)) < 500
    assert len(fields.near(name, all_keys(Grpo)) or "") < 100


# ---- help and documentation ----------------------------------------------------------------------------------------


def keys_in(text):
    return [line.split()[0].removeprefix("--config.") for line in text.splitlines() if line.startswith("  --config.")]


def test_help_finds_ours_by_the_name_of_another_library():
    text = command_line.parse([f"--config={SMOKE}", "--help=beta"])
    assert keys_in(text) == ["grpo.kl_coefficient"]
    assert "\n  beta of TRL and Tunix is --config.grpo.kl_coefficient\n" in text
    text = command_line.parse([f"--config={SMOKE}", "--help=actor_rollout_ref.rollout.n"])
    assert keys_in(text) == ["group_size"]
    text = command_line.parse(["--help=beta"])
    assert {"grpo.kl_coefficient", "kl_coefficient", "beta", "rpo.beta"} <= set(keys_in(text))
    assert text.count("divide_fuse_conquer, grpo have grpo.kl_coefficient") == 1
    text = command_line.parse(["--help=report_to"])
    assert keys_in(text) == []
    assert text.count("TensorBoard files are in the run folder") == 1


def test_the_documentation_has_the_whole_table():
    text = (ROOT / "docs" / "losses.md").read_text().partition("\n## Names of other libraries\n")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    code = re.compile(r"`([^`]+)`")
    assert [code.findall(there) for there, _ in rows] == [list(_by_library(entry)) for entry in foreign_names.TABLE]
    for (there, ours), entry in zip(rows, foreign_names.TABLE, strict=True):
        assert {library for group in re.findall(r"\(([^)]+)\)", there) for library in group.split(", ")} == {
            library for of in entry.names.values() for library in of.split(", ")
        }
        assert {*entry.keys, *entry.otherwise} <= set(code.findall(ours))
        assert entry.note in ours


def _by_library(entry):
    """The names of an entry as a row has them: those of the same libraries together."""
    for of in dict.fromkeys(entry.names.values()):
        yield from (name for name, libraries in entry.names.items() if libraries == of)

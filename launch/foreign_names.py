"""Settings of TRL, verl, Tunix, Transformers and PEFT by their own names, and dfc's equivalents.

Read from TRL 1.10 (with names that it has dropped), verl of January 2026, Tunix of August 2026, transformers 5 (with
names of 4) and PEFT 0.21. A key of verl is found by its end: ``rollout.n`` is ``actor_rollout_ref.rollout.n``.

Nothing here knows the configuration classes: the caller passes the keys of a recipe.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

# Sections that hold a stage's settings: a key of the table stands for the stages' too, where the recipe has it nowhere
# else (`sft.optimizer.learning_rate`).
STAGES = (
    "collect", "build_data", "build_dialogues", "warm_start", "sft", "rpo", "branch", "dpo_dialogue", "dpo_turn",
    "grpo", "evaluate_tasks",
)  # fmt: skip
LONGEST = 200
"""Characters of a name that is looked for; longer ones are none."""
_NAMED = re.compile(r"`([\w.]+)`")  # a key within a note


@dataclasses.dataclass(frozen=True)
class ForeignName:
    """One setting of other libraries.

    Attributes:
      names: how they call it, dotted where one part alone would be ambiguous -> the libraries that do.
      keys: dfc's equivalents, in any recipe; of these a recipe's own are shown.
      value: what to write for dfc's key: None: the value as it is; ``""``: one of another kind, which `note` explains.
      note: what differs, or what there is instead where no key stands for it. Shown where the recipe has every key that
        it names between backticks.
      otherwise: similar keys of dfc, for recipes without any of `keys`.
      flag: the flag of `dfc.launch` that stands for it.
    """

    names: Mapping[str, str]
    keys: tuple[str, ...] = ()
    value: str | None = None
    note: str = ""
    otherwise: tuple[str, ...] = ()
    flag: str = ""

    def keys_among(self, keys: Collection[str]) -> list[str]:
        """Returns those of a recipe's keys that stand for this setting, of its stages too."""
        return among(self.keys, keys)

    def near_keys_among(self, keys: Collection[str]) -> list[str]:
        """Returns similar keys of a recipe, if none is equivalent."""
        return [] if self.keys_among(keys) else among(self.otherwise, keys)

    def note_for(self, keys: Collection[str]) -> str:
        """Returns the note, without its backticks; empty where it names what a recipe does not have."""
        named = _NAMED.findall(self.note)
        return _NAMED.sub(r"\1", self.note) if all(among((key,), keys) for key in named) else ""

    def called(self, name: str) -> str:
        """Returns a name of this setting with the libraries that have it."""
        return f"{name} of {' and '.join(self.names[name].rsplit(', ', 1))}"


def among(wanted: Sequence[str], keys: Collection[str]) -> list[str]:
    """Returns those of a recipe's keys that wanted ones are, or that have the same place within a stage's section."""
    found: list[str] = []
    for key in wanted:
        found += [key] if key in keys else [f"{stage}.{key}" for stage in STAGES if f"{stage}.{key}" in keys]
    return list(dict.fromkeys(found))


def find(key: str) -> tuple[str, ForeignName] | None:
    """Returns the setting that a key, or the end of it, names, with that name; None: no library has one.

    The longest end counts, so that ``rollout.n`` is not ``n``; dashes are underscores, as on command lines.
    """
    if len(key) > LONGEST:
        return None
    parts = key.replace("-", "_").split(".")
    ends = (".".join(parts[place:]) for place in range(len(parts)))
    return next(((end, _BY_NAME[end]) for end in ends if end in _BY_NAME), None)


_SAMPLED = "the trainer would have to penalise the same tokens in every context"
_MESH = "-1 takes the devices that remain; several hosts: --distributed=auto"
_REWARD = "FILE.py:NAME or module:NAME"
_REFERENCE = "the reference is the model before training"

TABLE: tuple[ForeignName, ...] = (
    # ---- policy gradients --------------------------------------------------------------------------------------------
    ForeignName({"beta": "TRL, Tunix"}, ("grpo.kl_coefficient", "kl_coefficient", "beta")),
    ForeignName({"kl_coef": "TRL, verl", "kl_loss_coef": "verl"}, ("grpo.kl_coefficient", "kl_coefficient")),
    ForeignName(
        {"use_kl_loss": "verl", "use_kl_in_reward": "verl"},
        ("grpo.kl_coefficient", "kl_coefficient"), "", "the KL term is part of the loss; 0 turns it off",
    ),
    ForeignName(
        {"epsilon": "TRL, Tunix"},
        ("grpo.clip_ratio",), note="the share of random actions is `random_action_rate`",
    ),
    ForeignName({"cliprange": "TRL"}, ("grpo.clip_ratio",)),
    ForeignName({"clip_ratio": "verl", "clip_ratio_low": "verl"}, ("grpo.clip_ratio",)),
    ForeignName({"epsilon_high": "TRL, Tunix"}, ("grpo.clip_ratio_high",), note="0: the same as below"),
    ForeignName({"clip_ratio_high": "verl"}, ("grpo.clip_ratio_high",)),
    ForeignName({"num_generations": "TRL, Tunix"}, ("group_size", "samples")),
    ForeignName({"rollout.n": "verl", "rollout_n": "verl"}, ("group_size", "samples")),
    ForeignName(
        {"filter_groups.enable": "verl", "dynamic_sampling": "Tunix"},
        ("refill",), "", "how many rounds of further groups; 0 turns it off",
    ),
    ForeignName(
        {"max_num_gen_batches": "verl"},
        ("refill",), "", "verl's less 1, as the first games are no round; there is always a limit",
    ),
    ForeignName(
        {"filter_groups.metric": "verl", "gen_batch_size": "verl"},
        note="nothing to set: groups are told apart by their rewards, and as many are played as teach nothing",
    ),
    ForeignName(
        {"degenerate_group_masking": "Tunix"},
        note="nothing to set: episodes of advantage 0 are in the loss for its KL term alone",
    ),
    ForeignName(
        {"replay_buffer_size": "TRL"},
        ("refill",), "", "another cure for groups that teach nothing: further ones, never earlier ones",
    ),
    ForeignName(
        {"loss_type": "TRL, verl", "loss_agg_mode": "verl, Tunix"},
        ("grpo.unit", "preference_weight", "normalize_length"), "", "docs/losses.md says which is which",
    ),
    ForeignName(
        {"importance_sampling_level": "TRL", "loss_mode": "verl"},
        ("grpo.ratio",), "", "token or sequence, which is GSPO",
    ),
    ForeignName(
        {"scale_rewards": "TRL", "norm_adv_by_std_in_grpo": "verl"},
        ("grpo.normalize_std",), "", "true or false",
    ),
    ForeignName(
        {"adv_estimator": "verl", "advantage_estimator": "Tunix"},
        ("grpo.baseline",), "", "group for GRPO, leave_one_out for RLOO; there is no critic",
    ),
    ForeignName(
        {"num_iterations": "TRL, Tunix", "ppo_epochs": "verl", "num_ppo_epochs": "TRL"},
        ("grpo.updates_per_iteration",), "", "another thing: updates on shares of an iteration's samples",
    ),
    ForeignName({"num_mini_batches": "TRL"}, ("grpo.updates_per_iteration",)),
    ForeignName(
        {"steps_per_generation": "TRL"},
        ("grpo.updates_per_iteration",), "", "TRL's divided by its gradient_accumulation_steps",
    ),
    ForeignName(
        {"ppo_mini_batch_size": "verl", "mini_batch_size": "TRL, Tunix"},
        ("grpo.updates_per_iteration",), "", "how many such parts an iteration's samples are cut into",
    ),
    ForeignName(
        {"vllm_importance_sampling_cap": "TRL", "vllm_importance_sampling_clip_max": "TRL",
         "tis_imp_ratio_cap": "verl", "sampler_is_threshold": "Tunix"},
        ("grpo.importance_cap",),
    ),
    ForeignName(
        {"rollout_is_threshold": "verl"},
        ("grpo.importance_cap",),
        note="of a text LOWER_UPPER the upper; the lower is `grpo.importance_floor`, with a mode that masks",
    ),
    ForeignName(
        {"vllm_importance_sampling_clip_min": "TRL"}, ("grpo.importance_floor",), note="0: no lower bound",
    ),
    ForeignName({"vllm_importance_sampling_mode": "TRL"}, ("grpo.importance_mode",)),
    ForeignName(
        {"rollout_is": "verl"},
        ("grpo.importance_mode",), "",
        "token is token_truncate, or token_mask with a threshold LOWER_UPPER; sequence likewise",
    ),
    ForeignName(
        {"rollout_rs": "verl", "rollout_rs_threshold": "verl"},
        ("grpo.importance_mode",), "",
        "token_k1 is near to token_mask, seq_sum_k1 to sequence_mask; verl takes what it rejects out of the mean",
    ),
    ForeignName(
        {"vllm_importance_sampling_correction": "TRL"},
        ("grpo.importance_cap",), "", "a number above 0 corrects, 0 does not",
    ),
    ForeignName({"entropy_coeff": "verl", "entropy_coef": "TRL, Tunix"}, note="there is no entropy term"),
    ForeignName(
        {"gamma": "TRL, verl, Tunix", "lam": "TRL, verl", "gae_lambda": "Tunix", "vf_coef": "TRL",
         "cliprange_value": "TRL, verl", "critic_warmup": "verl"},
        note="there is no critic and no discount: advantages compare the samples of a group",
    ),
    ForeignName({"mask_truncated_completions": "TRL"}, note="a reply that was cut is trained on as any other"),
    ForeignName(
        {"top_entropy_quantile": "TRL", "delta": "TRL", "off_policy_mask_threshold": "TRL"},
        note="there is no such term",
    ),
    ForeignName({"reward_funcs": "TRL", "reward_fns": "Tunix"}, ("reward.function",), "", _REWARD),
    ForeignName(
        {"custom_reward_function.path": "verl", "custom_reward_function.name": "verl"},
        ("reward.function",), "", _REWARD,
    ),
    ForeignName(
        {"reward_weights": "TRL"},
        ("reward.sources",), "", "source -> its weight", otherwise=("reward.function",),
    ),
    ForeignName(
        {"reward_model_path": "TRL", "reward_model.model.path": "verl"},
        ("reward.preference.path",), otherwise=("reward.function",),
    ),
    ForeignName({"missing_eos_penalty": "TRL"}, ("reward.overrun",), "", "at most 0"),
    ForeignName(
        {"ref_model": "TRL, Tunix", "reference_free": "TRL"},
        ("reference",), "", "by default the model before training", otherwise=("grpo.kl_coefficient",),
    ),
    ForeignName(
        {"sync_ref_model": "TRL", "ref_model_mixup_alpha": "TRL", "ref_model_sync_steps": "TRL"},
        note=f"{_REFERENCE} from the first update to the last",
    ),
    ForeignName({"precompute_ref_log_probs": "TRL"}, note="nothing to set; " + _REFERENCE),
    # ---- pairs -------------------------------------------------------------------------------------------------------
    ForeignName(
        {"rpo_alpha": "TRL", "loss_weights": "TRL"},
        ("alpha",), "", "weight of the likelihood of the chosen side",
    ),
    ForeignName({"simpo_gamma": "TRL"}, ("margin",)),
    ForeignName(
        {"label_smoothing": "TRL, Tunix", "f_divergence_type": "TRL", "ld_alpha": "TRL", "use_weighting": "TRL"},
        note="there is no such loss of pairs",
    ),
    # ---- sampling ----------------------------------------------------------------------------------------------------
    ForeignName(
        {"max_completion_length": "TRL", "max_new_tokens": "Transformers, TRL", "max_response_length": "verl, Tunix",
         "response_length": "TRL, verl", "max_tokens_to_generate": "Tunix", "total_generation_steps": "Tunix"},
        ("rollout.max_reply_length", "rollout.max_answer_length"),
    ),
    ForeignName(
        {"max_prompt_length": "TRL, verl, Tunix", "prompt_length": "verl"},
        ("rollout.max_prompt_length",), otherwise=("rollout.max_length", "batch.row_length"),
    ),
    ForeignName(
        {"max_length": "Transformers, TRL, verl", "max_seq_length": "TRL", "max_model_len": "verl",
         "vllm_max_model_length": "TRL", "max_target_length": "Tunix"},
        ("rollout.max_length", "batch.row_length"),
    ),
    ForeignName({"temperature": "Transformers, TRL, verl, Tunix"}, ("sampling.temperature",)),
    ForeignName({"top_p": "Transformers, TRL, verl, Tunix"}, ("sampling.top_p",)),
    ForeignName({"top_k": "Transformers, TRL, verl, Tunix"}, ("sampling.top_k",), note="0 keeps all"),
    ForeignName({"min_p": "Transformers, TRL"}, ("sampling.min_p",)),
    ForeignName({"do_sample": "Transformers, verl"}, ("sampling.temperature",), "", "0 is greedy"),
    ForeignName({"repetition_penalty": "Transformers, TRL"}, note=f"there is none: {_SAMPLED}"),
    ForeignName(
        {"stop_token": "TRL", "eos_token": "TRL"},
        ("rollout.stop",), "", "texts; a reply ends with an end-of-turn token too",
    ),
    ForeignName(
        {"use_vllm": "TRL", "vllm_mode": "TRL", "vllm_server_host": "TRL", "vllm_server_port": "TRL",
         "vllm_gpu_memory_utilization": "TRL", "gpu_memory_utilization": "verl", "rollout.name": "verl",
         "rollout_engine": "Tunix"},
        note="nothing to set: games are played by dfc's own engine, on the devices that train",
    ),
    ForeignName({"max_num_seqs": "verl"}, ("rollout.slots",)),
    ForeignName(
        {"generation_batch_size": "TRL"},
        ("groups_per_game", "groups_per_iteration"), "", "groups of an iteration, of each game or of all together",
    ),
    ForeignName(
        {"train_batch_size": "verl"},
        ("batch_size", "groups_per_game", "groups_per_iteration"), "",
        "rows of an update; of reinforcement learning groups of an iteration",
    ),
    # ---- optimizer and batches ---------------------------------------------------------------------------------------
    ForeignName({"learning_rate": "Transformers, Tunix", "lr": "verl"}, ("optimizer.learning_rate",)),
    ForeignName({"adam_beta1": "Transformers"}, ("optimizer.b1",)),
    ForeignName({"adam_beta2": "Transformers"}, ("optimizer.b2",)),
    ForeignName({"betas": "verl"}, ("optimizer.b1", "optimizer.b2"), "", "one number each"),
    ForeignName({"adam_epsilon": "Transformers"}, note="1e-8, nothing to set"),
    ForeignName({"weight_decay": "Transformers, verl, Tunix"}, ("optimizer.weight_decay",)),
    ForeignName(
        {"max_grad_norm": "Transformers, Tunix", "clip_grad": "verl", "grad_clip": "verl"},
        ("optimizer.clip_norm",),
    ),
    ForeignName(
        {"warmup_ratio": "Transformers, Tunix", "lr_warmup_steps_ratio": "verl"},
        ("optimizer.warmup_ratio",), otherwise=("optimizer.warmup_steps",),
    ),
    ForeignName({"warmup_steps": "Transformers, Tunix", "lr_warmup_steps": "verl"}, ("optimizer.warmup_steps",)),
    ForeignName(
        {"lr_scheduler_type": "Transformers, TRL, verl", "warmup_style": "verl", "lr_scheduler": "verl",
         "schedule_type": "Tunix"},
        ("optimizer.schedule",), "", "constant, cosine or linear",
    ),
    ForeignName(
        {"optim": "Transformers, verl", "opt_type": "Tunix"},
        note="Adam with decoupled weight decay, nothing to choose",
    ),
    ForeignName(
        {"per_device_train_batch_size": "Transformers", "ppo_micro_batch_size_per_gpu": "verl",
         "micro_batch_size_per_gpu": "verl", "ppo_micro_batch_size": "verl", "train_micro_batch_size": "Tunix"},
        ("batch.micro_batch_rows",), "", "rows of one pass, of all devices together",
    ),
    ForeignName(
        {"gradient_accumulation_steps": "Transformers, Tunix"},
        ("batch_size", "batch.micro_batch_rows"), "", "gradients of as many passes as an update needs are added up",
    ),
    ForeignName(
        {"num_train_epochs": "Transformers, Tunix", "total_epochs": "verl"},
        ("epochs",), otherwise=("iterations", "divide_iterations", "conquer_iterations", "rounds", "steps"),
    ),
    ForeignName(
        {"max_steps": "Transformers, Tunix", "total_training_steps": "verl"},
        ("max_updates",), otherwise=("iterations", "divide_iterations", "conquer_iterations", "rounds", "steps"),
    ),
    ForeignName(
        {"data_seed": "Transformers", "rng_seed": "Tunix", "full_determinism": "Transformers, verl"},
        ("seed",), "", "with the configuration it determines every number of a run",
    ),
    # ---- memory and devices ------------------------------------------------------------------------------------------
    ForeignName({"bf16": "Transformers"}, ("model.dtype", "dtype"), "bfloat16"),
    ForeignName({"fp16": "Transformers"}, ("model.dtype", "dtype"), "", "float32 or bfloat16"),
    ForeignName({"torch_dtype": "Transformers, TRL", "dtype": "Transformers, TRL, verl"}, ("model.dtype", "dtype")),
    ForeignName(
        {"gradient_checkpointing": "Transformers", "enable_gradient_checkpointing": "verl",
         "activation_checkpointing": "Transformers"},
        ("training.remat",), "layer",
    ),
    ForeignName({"activation_offloading": "TRL", "enable_activation_offload": "verl"}, ("training.remat",), "offload"),
    ForeignName(
        {"attn_implementation": "Transformers, TRL, verl"},
        ("training.attention",), "", "auto, xla, cudnn or splash",
    ),
    ForeignName(
        {"use_liger_kernel": "Transformers", "use_liger": "verl", "torch_compile": "Transformers",
         "use_torch_compile": "verl", "use_fused_kernels": "verl"},
        note="nothing to set: XLA compiles every program",
    ),
    ForeignName(
        {"deepspeed": "Transformers", "fsdp": "Transformers", "fsdp_config": "Transformers, verl", "fsdp_size": "verl",
         "strategy": "verl"},
        ("mesh.fsdp",), "", _MESH,
    ),
    ForeignName(
        {"tensor_model_parallel_size": "verl", "vllm_tensor_parallel_size": "TRL",
         "tensor_parallel_size": "verl, Tunix"},
        ("mesh.tensor",),
    ),
    ForeignName({"data_parallel_size": "verl, Tunix"}, ("mesh.data",)),
    ForeignName({"n_gpus_per_node": "verl", "nnodes": "verl"}, ("mesh.data", "mesh.fsdp", "mesh.tensor"), "", _MESH),
    ForeignName({"use_peft": "TRL", "peft_config": "TRL"}, ("adapter.rank",), "", "above 0 trains adapters"),
    ForeignName({"lora_r": "TRL", "lora_rank": "verl"}, ("adapter.rank",)),
    ForeignName({"lora_alpha": "TRL, verl, PEFT"}, ("adapter.alpha",)),
    ForeignName({"lora_dropout": "TRL, PEFT"}, ("adapter.dropout",)),
    ForeignName(
        {"lora_target_modules": "TRL", "target_modules": "verl, PEFT"},
        ("adapter.targets",), "", "qkvo or all_linear",
    ),
    ForeignName(
        {"load_in_4bit": "Transformers, TRL", "bnb_4bit_quant_type": "Transformers, TRL"},
        ("adapter.base",), "nf4",
    ),
    ForeignName(
        {"load_in_8bit": "Transformers, TRL", "use_dora": "TRL, PEFT", "use_rslora": "TRL, PEFT",
         "lora_modules_to_save": "TRL"},
        note="not there; adapters are plain LoRA beside full weights or nf4",
    ),
    # ---- model and data ----------------------------------------------------------------------------------------------
    ForeignName(
        {"model_name_or_path": "Transformers, TRL", "model_name": "Tunix", "model_id": "Tunix", "model_path": "Tunix",
         "partial_pretrain": "verl", "sft_model_path": "TRL"},
        ("model.path",), otherwise=("policies",),
    ),
    ForeignName({"model_revision": "TRL"}, ("model.path",), "", "ORG/NAME@REVISION"),
    ForeignName(
        {"trust_remote_code": "Transformers, TRL, verl"},
        note="nothing to set: code of a model's folder is not run",
    ),
    ForeignName(
        {"dataset_name": "TRL, Tunix", "train_files": "verl", "data_files": "TRL",
         "train_dataset": "Transformers, TRL"},
        ("data",), "", "a file or a folder on this machine", otherwise=("games",),
    ),
    ForeignName(
        {"val_files": "verl", "eval_dataset": "Transformers, TRL", "dataset_test_split": "TRL"},
        ("held_out.data",), "", "a file on this machine", otherwise=("evaluation.games",),
    ),
    ForeignName(
        {"packing": "TRL", "packing_strategy": "TRL", "padding_free": "TRL", "use_remove_padding": "verl"},
        ("batch.row_length",), "", "rows are always packed, up to this many tokens",
    ),
    ForeignName(
        {"assistant_only_loss": "TRL", "completion_only_loss": "TRL"},
        note="nothing to set: only the policy's own replies are trained on",
    ),
    ForeignName(
        {"dataset_text_field": "TRL", "prompt_key": "verl", "response_key": "verl", "messages_key": "verl"},
        ("data",), "", "docs/data.md lists the layouts that are read",
    ),
    ForeignName(
        {"chat_template_path": "TRL", "custom_chat_template": "verl", "chat_template": "verl"},
        ("model.path",), "", "the chat template is that of the model's folder",
    ),
    ForeignName(
        {"chat_template_kwargs": "TRL", "apply_chat_template_kwargs": "verl"},
        ("model.enable_thinking", "enable_thinking"), "", "of its entries only enable_thinking is passed to a template",
    ),
    # ---- runs --------------------------------------------------------------------------------------------------------
    ForeignName(
        {"output_dir": "Transformers", "default_local_dir": "verl", "checkpoint_root_directory": "Tunix"},
        flag="workdir", note="the run folder; workdir= of dfc.run",
    ),
    ForeignName({"run_name": "Transformers, Tunix", "experiment_name": "verl"}, ("name",)),
    ForeignName(
        {"report_to": "Transformers", "project_name": "verl, Tunix", "logger": "verl", "logging_dir": "Transformers"},
        note="TensorBoard files are in the run folder (tensorboard --logdir runs), beside metrics.jsonl",
    ),
    ForeignName(
        {"logging_steps": "Transformers", "logging_strategy": "Transformers", "log_completions": "TRL",
         "log_level": "Transformers"},
        note="nothing to set: every iteration is in metrics.jsonl and episodes.jsonl of the run folder",
    ),
    ForeignName(
        {"push_to_hub": "Transformers", "hub_model_id": "Transformers", "hub_strategy": "Transformers",
         "hub_private_repo": "Transformers"},
        note="nothing is uploaded; policy/ of the run folder has the Hugging Face layout: hf upload",
    ),
    ForeignName({"hub_token": "Transformers"}, note="nothing to set: HF_TOKEN of the environment is read"),
    ForeignName(
        {"save_steps": "Transformers", "save_freq": "verl", "save_interval_steps": "Tunix"},
        ("checkpoint.every",),
    ),
    ForeignName(
        {"save_total_limit": "Transformers", "max_actor_ckpt_to_keep": "verl", "max_ckpt_to_keep": "verl",
         "max_to_keep": "Tunix"},
        ("checkpoint.keep",), note="2 at least",
    ),
    ForeignName({"save_strategy": "Transformers"}, ("checkpoint.every",), "", "iterations between two checkpoints"),
    ForeignName(
        {"resume_from_checkpoint": "Transformers", "resume_mode": "verl", "resume_from_path": "verl"},
        flag="workdir", value="", note="the same command with the same run folder resumes",
    ),
    ForeignName(
        {"eval_steps": "Transformers", "eval_strategy": "Transformers", "evaluation_strategy": "Transformers",
         "test_freq": "verl", "eval_every_n_steps": "Tunix"},
        ("held_out.every", "watch.every"), "", "updates or iterations between two",
        otherwise=("evaluation.games", "evaluate_tasks.tasks"),
    ),
    ForeignName(
        {"load_best_model_at_end": "Transformers", "metric_for_best_model": "Transformers"},
        ("held_out.keep",), "", "last, best or before_lowest", otherwise=("acceptance.rule",),
    ),
    ForeignName(
        {"dataloader_num_workers": "Transformers, verl", "dataset_num_proc": "TRL",
         "remove_unused_columns": "Transformers"},
        note="nothing to set",
    ),
    ForeignName(
        {"local_rank": "Transformers", "ddp_backend": "Transformers", "ddp_timeout": "Transformers"},
        flag="distributed", value="", note="auto: this process is one of several",
    ),
)  # fmt: skip

_BY_NAME = {name: entry for entry in TABLE for name in entry.names}
NAMES: tuple[str, ...] = tuple(_BY_NAME)
"""Every name of another library."""

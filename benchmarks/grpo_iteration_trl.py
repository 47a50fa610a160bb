"""The baseline of `grpo_iteration.py`: TRL's `GRPOTrainer`, run by an interpreter with trl.

    PYTHON benchmarks/grpo_iteration_trl.py --make=FOLDER --shape=JSON
    PYTHON benchmarks/grpo_iteration_trl.py --model=FOLDER --iterations=9 --prompts=8 --copies=8 --reply=48

The first writes the model, the second trains and prints one JSON line.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}

import datasets
import torch
import transformers
import trl

TOKENIZER = Path(__file__).parents[1] / "models" / "tiny_player"


def make(folder: Path, shape: dict[str, Any]) -> None:
    """Writes a Llama with random weights and the bundled tokenizer."""
    shutil.copytree(TOKENIZER, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.py", "__pycache__"))
    given = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=given["vocab_size"],
        num_key_value_heads=2,
        tie_word_embeddings=False,
        max_position_embeddings=4096,
        bos_token_id=given.get("bos_token_id"),
        eos_token_id=given.get("eos_token_id"),
        pad_token_id=given.get("pad_token_id"),
        **shape,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def rewards(completions: list[Any], **_: object) -> list[float]:
    """Returns the share of the letter e in each reply."""
    said = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [text.count("e") / max(1, len(text)) for text in said]


class Clocked(trl.GRPOTrainer):  # type: ignore[misc]  # TRL is not installed where types are checked
    """Notes the processor time of every iteration, and of its generation."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - as TRL has it
        self.generated: list[float] = []
        self.sampled: list[int] = []
        super().__init__(*given, **named)

    def _generate_and_score_completions(self, inputs: Any) -> Any:  # noqa: ANN401 - as TRL has it
        begun = time.process_time()
        found = super()._generate_and_score_completions(inputs)
        self.generated.append(time.process_time() - begun)
        self.sampled.append(int(found["completion_mask"].sum()))
        return found


class Steps(transformers.TrainerCallback):  # type: ignore[misc]  # transformers leaves it untyped
    """Notes processor time from the end of a step to the end of the next."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Starts the clock."""
        self.at.append(time.process_time())

    def on_step_end(self, *_: object, **__: object) -> None:
        """Notes a step."""
        self.at.append(time.process_time())


def main() -> None:
    """Makes the model, or trains and prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--make", type=Path)
    parser.add_argument("--shape", type=json.loads)
    parser.add_argument("--model", type=Path)
    for name in ("iterations", "prompts", "copies", "reply"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    if options.make is not None:
        make(options.make, options.shape)
        return
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    size = options.prompts * options.copies
    rows = [
        {"prompt": [{"role": "user", "content": f"Say it: {number % 10}."}]}
        for number in range(options.prompts * options.iterations)
    ]
    steps = Steps()
    with tempfile.TemporaryDirectory() as out:
        args = trl.GRPOConfig(
            output_dir=out,
            per_device_train_batch_size=size,
            num_generations=options.copies,
            max_completion_length=options.reply,
            max_steps=options.iterations,
            learning_rate=1e-5,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            beta=0.0,
            temperature=1.0,
            top_k=0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            options.model, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )
        trainer = Clocked(
            model=model,
            reward_funcs=rewards,
            args=args,
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[steps],
        )
        trainer.train()
    whole = [after - before for before, after in zip(steps.at, steps.at[1:], strict=False)]
    update = [one - playing for one, playing in zip(whole, trainer.generated, strict=True)]
    figures = {"iteration": whole, "update": update, "first": whole[0], "sampled": trainer.sampled[-1]}
    versions = {"trl": trl.__version__, "torch": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps({**figures, "versions": versions}))


if __name__ == "__main__":
    main()

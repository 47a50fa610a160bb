"""What the settings of an evaluation on questions must be to each other."""

from pathlib import Path

from dfc.config import EvaluateAnswers
from dfc.errors import ConfigError
from dfc.players import player_specs


def problems(config: EvaluateAnswers) -> list[str]:
    """Returns what is wrong, one sentence each; looks at no file."""
    found, names = [], []
    if not config.policies:
        found.append("policies is empty: name who answers, such as --config.policies=base=FOLDER,trained=runs/NAME")
    for text in config.policies:
        try:
            spec = player_specs.parse(text)
        except ConfigError as error:
            found += [f"policies: {problem}" for problem in error.problems]
            continue
        names.append(spec.name)
        if spec.kind != "model":
            found.append(
                f"policies: {text!r} is no model; name initial, a folder with weights or a run, or tiny_player"
            )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        found.append(f"policies: {', '.join(repeated)} stands for several; give each a name of its own: NAME=WHO")
    if not config.questions:
        found.append("questions is empty: name files, such as --config.questions=\"{'gsm8k': 'gsm8k_test.jsonl'}\"")
    if "" in config.questions:
        found.append("questions: a name is empty; name every file, as the tables call it")
    rollout = config.rollout
    if rollout.max_reply_length > rollout.max_length:
        found.append(
            f"rollout.max_reply_length={rollout.max_reply_length}: must be at most rollout.max_length="
            f"{rollout.max_length}, the question and its answer"
        )
    if list(rollout.prefill_buckets) != sorted(set(rollout.prefill_buckets)):
        found.append(f"rollout.prefill_buckets={rollout.prefill_buckets}: must ascend")
    return found


def path_problems(config: EvaluateAnswers) -> list[str]:
    """Returns which files and models that are named do not exist."""
    found = [
        f"questions.{name}={file!r}: there is no such file (current folder: {Path.cwd()})"
        for name, file in config.questions.items()
        if not Path(file).expanduser().is_file()
    ]
    specs = [spec for spec in map(player_specs.parse, config.policies) if spec.who != "initial"]
    wrong = (player_specs.problem(spec, ("initial",)) for spec in specs)
    return found + [f"policies: {problem}" for problem in wrong if problem is not None]

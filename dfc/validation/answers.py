"""Rules between the settings of an evaluation on questions."""

from pathlib import Path

from dfc.config import EvaluateAnswers, PairwiseConfig
from dfc.config.evaluate import INSTRUCTIONS
from dfc.errors import ConfigError
from dfc.players import player_specs
from dfc.players.endpoint_config import address_problems, rule_problems, split_name
from dfc.players.key_search import Secret


def problems(config: EvaluateAnswers) -> list[str]:
    """Returns what is wrong, one sentence each; reads no file."""
    found, names = _policy_problems(config)
    found += _question_problems(config) + _pairwise_problems(config.pairwise, names)
    rollout = config.rollout
    if rollout.max_reply_length > rollout.max_length:
        found.append(
            f"rollout.max_reply_length={rollout.max_reply_length}: must be at most rollout.max_length="
            f"{rollout.max_length}, the question and its answer"
        )
    if list(rollout.prefill_buckets) != sorted(set(rollout.prefill_buckets)):
        found.append(f"rollout.prefill_buckets={rollout.prefill_buckets}: must ascend")
    return found


def _policy_problems(config: EvaluateAnswers) -> tuple[list[str], list[str]]:
    """Returns what is wrong with those who answer, and the names of those who can be read."""
    found, names = [], []
    if not config.policies and not config.pairwise.outputs:
        found.append("policies is empty: name some, such as --config.policies=base=FOLDER,trained=runs/NAME")
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
        found.append(f"policies: {', '.join(repeated)} stands for several; give each a name of its own: NAME=PLAYER")
    return found, names


def _question_problems(config: EvaluateAnswers) -> list[str]:
    found = []
    if not config.questions and not config.pairwise.instructions:
        found.append(
            "questions is empty: name files, such as --config.questions=\"{'gsm8k': 'gsm8k_test.jsonl'}\", or "
            "pairwise.instructions for comparisons by a judge"
        )
    if config.questions and not config.policies and config.pairwise.outputs:
        found.append("questions: no policy answers them, since policies is empty; name policies, or leave them out")
    if "" in config.questions:
        found.append("questions: a name is empty; name every file, as the tables call it")
    if INSTRUCTIONS in config.questions:
        found.append(f"questions.{INSTRUCTIONS}: is what records call those of pairwise; give the file another name")
    return found


def _pairwise_problems(own: PairwiseConfig, policies: list[str]) -> list[str]:
    if not own.instructions:
        set_ = [name for name, default in vars(PairwiseConfig()).items() if getattr(own, name) != default]
        return [f"pairwise.{name}: would be ignored; name a file in pairwise.instructions" for name in set_]
    found, known = [], [*policies, *own.outputs]
    if repeated := [name for name in own.outputs if name in policies]:
        found.append(f"pairwise.outputs.{repeated[0]}: a policy has this name, too; give the file another name")
    if own.baseline_again and own.baseline in policies and own.second_answers in known:
        found.append(
            f"pairwise.baseline_again: the second answers of {own.baseline!r} are called {own.second_answers!r}, as is "
            "one of policies or pairwise.outputs; give that one another name, or set pairwise.baseline_again=False"
        )
    if not all(own.outputs):
        found.append("pairwise.outputs: a name is empty; name every file, as the tables call the source of the answers")
    if own.baseline not in known:
        hint = "name what the others are compared with"
        found.append(f"pairwise.baseline={own.baseline!r}: must be one of {', '.join(known) or 'none'}; {hint}")
    elif known == [own.baseline] and not (own.baseline_again and policies):
        found.append("pairwise.baseline: no other policy answers; name another policy, or set pairwise.baseline_again")
    base_url, model = split_name(own.judge)
    if not player_specs.is_endpoint(own.judge) or not model:
        found.append(f"pairwise.judge={own.judge!r}: must be a chat endpoint such as {player_specs.EXAMPLE}")
    else:
        found += [f"pairwise.judge: {problem}" for problem in address_problems(base_url, own.endpoint)]
    return found + [f"pairwise.endpoint.{problem}" for problem in rule_problems(own.endpoint)]


def path_problems(config: EvaluateAnswers) -> list[str]:
    """Returns which files, models and keys that are named do not exist."""
    own = config.pairwise
    files = {f"questions.{name}": file for name, file in config.questions.items()}
    files |= {"pairwise.instructions": own.instructions} if own.instructions else {}
    files |= {f"pairwise.outputs.{name}": file for name, file in own.outputs.items()}
    found = [
        f"{key}={file!r}: there is no such file (current folder: {Path.cwd()})"
        for key, file in files.items()
        if not Path(file).expanduser().is_file()
    ]
    if own.instructions:
        try:
            Secret.read(own.endpoint.key_variable)
        except ConfigError as error:
            found += [f"pairwise.{problem}" for problem in error.problems]
    specs = [spec for spec in map(player_specs.parse, config.policies) if spec.who != "initial"]
    wrong = (player_specs.problem(spec, ("initial",)) for spec in specs)
    return found + [f"policies: {problem}" for problem in wrong if problem is not None]

"""What the settings of self-play must be to each other, and to the disk."""

from pathlib import Path

from dfc.config.self_play import LanguageSelfPlay
from dfc.games import functions
from dfc.self_play.families import FAMILIES
from dfc.self_play.prompts import Template


def problems(config: LanguageSelfPlay) -> list[str]:
    """Returns every contradiction, one sentence each."""
    found = _task_problems(config) + _prompt_problems(config)
    longest = config.rollout.max_length
    if config.batch.row_length < longest:
        found.append(
            f"batch.row_length={config.batch.row_length}: must be at least rollout.max_length={longest}, so that the "
            "longest conversation fits into a row"
        )
    for name in ("max_query_length", "max_answer_length", "max_judgement_length"):
        if (length := getattr(config.rollout, name)) >= longest:
            found.append(
                f"rollout.{name}={length}: must be below rollout.max_length={longest}, which a prompt is part of"
            )
    buckets = config.rollout.prefill_buckets
    if list(buckets) != sorted(set(buckets)):
        found.append(f"rollout.prefill_buckets={buckets}: must ascend")
    if (config.method == "data") != bool(config.data):
        what = "is for method='data' only; leave it out" if config.data else "must name a file with method='data'"
        found.append(f"data={config.data!r}: {what}")
    if config.adapter.base != "full" and config.adapter.rank == 0:
        found.append("adapter.base='nf4': quantized weights are not trained themselves; set adapter.rank above 0")
    strangers = [name for name in config.reward.families if name not in FAMILIES]
    if strangers or len(set(config.reward.families)) < len(config.reward.families):
        found.append(f"reward.families={config.reward.families}: must be some of {', '.join(FAMILIES)}, each once")
    try:
        functions.named(config.reward.function)
    except ValueError as error:
        found.append(f"reward.function={config.reward.function!r}: {error}")
    if config.reward.function and config.reward.families:
        found.append("reward.families: must be left out with reward.function, which is the whole reward")
    return found


def _task_problems(config: LanguageSelfPlay) -> list[str]:
    return [
        f"tasks.{name}.template={task.template!r}: has no placeholder, so every query would be the same; put one in "
        "braces where the Challenger's own text goes, such as {question}"
        for name, task in config.tasks.items()
        if task.template and not Template(task.template).placeholders
    ]


def _prompt_problems(config: LanguageSelfPlay) -> list[str]:
    found = []
    own = config.challenger.prompt
    if own and "{template}" not in own and any(task.template for task in config.tasks.values()):
        found.append("challenger.prompt: has no {template}, which the tasks have; put it where the template goes")
    judge = config.self_reward.prompt
    if judge and not all(part in judge for part in ("{instruction}", "{response}")):
        found.append("self_reward.prompt: must have {instruction} and {response} where a query and its answer go")
    return found


def path_problems(config: LanguageSelfPlay) -> list[str]:
    """Returns whether the file of queries is missing."""
    if not config.data or Path(config.data).expanduser().is_file():
        return []
    return [f"data={config.data!r}: there is no such file (current folder: {Path.cwd()}); name one with a query a line"]

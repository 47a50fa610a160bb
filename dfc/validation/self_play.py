"""Rules between the settings of self-play and of the model that it starts from, and the files that they name."""

import math
from pathlib import Path

from dfc.config import SelfPlayBase, shipped
from dfc.config.hub_names import is_hub_name
from dfc.config.self_play import LanguageSelfPlay, QueryTask
from dfc.games import functions
from dfc.methods.language_self_play.families import FAMILIES
from dfc.methods.language_self_play.prompts import Template, challenger_prompt, forbidden_tags, holds
from dfc.validation import sampling

_ROLES = 3


def problems(config: LanguageSelfPlay) -> list[str]:
    """Returns every contradiction, one sentence each."""
    found = sampling.problems(config.sampling) + _task_problems(config) + _prompt_problems(config)
    judge, why = config.self_reward.sampling, "a judge that gave no mark is asked again"
    found += sampling.temperature_problems(judge, "self_reward.sampling.", why)
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
    if config.adapter_per_role and config.adapter.rank == 0:
        found.append("adapter_per_role=True: needs adapters; set adapter.rank above 0, or leave it out")
    if config.adapter_per_role and config.method == "data":
        found.append("adapter_per_role=True: with method='data' there is no Challenger; leave it out")
    return found + _reward_problems(config)


_SOURCES = ("families", "function", "preference", "formats", "references")


def _reward_problems(config: LanguageSelfPlay) -> list[str]:
    own, found = config.reward, []
    if strangers := [name for name in own.sources if name not in _SOURCES]:
        found.append(f"reward.sources={dict(own.sources)}: {strangers[0]!r} is none of {', '.join(_SOURCES)}")
    strangers = [name for name in own.families if name not in FAMILIES]
    if strangers or len(set(own.families)) < len(own.families):
        found.append(f"reward.families={own.families}: must be some of {', '.join(FAMILIES)}, each once")
    try:
        functions.named(own.function)
    except ValueError as error:
        found.append(f"reward.function={own.function!r}: {error}")
    settings = {"function": own.function, "preference.path": own.preference.path, "formats": own.formats}
    for key, value in settings.items():
        source = key.partition(".")[0]
        if source in own.weights and not value:
            found.append(f"reward.{key} is empty: must be given, since {source} is a source of the reward")
        if source not in own.weights and value:
            found.append(f"reward.{key}: would be ignored; add {source!r} with its weight to reward.sources")
    if own.families and "families" not in own.weights:
        found.append("reward.families: would be ignored, since families are no source of the reward; leave it out")
    if "references" in own.weights and config.method != "data":
        found.append(
            f"reward.sources has references, and method={config.method!r}: a query that the Challenger invents has no "
            "reference answer; take another source, or method='data'"
        )
    if own.preference.row_length < config.rollout.max_length and "preference" in own.weights:
        found.append(
            f"reward.preference.row_length={own.preference.row_length}: must be at least rollout.max_length="
            f"{config.rollout.max_length}, so that every conversation can be scored"
        )
    return found + _unsolved_problems(config)


def _unsolved_problems(config: LanguageSelfPlay) -> list[str]:
    """Unsolved is what has no reward above 0, so rewards must be 0 or one number above it."""
    if config.challenger.unsolved_queries != "worst" or not config.trains_challenger:
        return []
    sources = config.reward.weights
    if len(sources) > 1:
        why = f"a sum of {', '.join(sources)} has more than two values"
    elif "preference" in sources:
        why = "the scores of a model of preferences have no 0 that means unsolved"
    elif "formats" in sources and len(config.reward.formats) > 1:
        why = f"the share of {len(config.reward.formats)} format checks has more than two values"
    else:
        return []
    hint = "leave it at 'as_is', or make families, references, a function of 0 and 1 or one format check the source"
    return [f"challenger.unsolved_queries='worst': is for rewards that are 0 or 1, and {why}; {hint}"]


def _task_problems(config: LanguageSelfPlay) -> list[str]:
    found, tags = [], forbidden_tags(config.challenger.prompt)
    for name, task in config.tasks.items():
        where = f"tasks.{name}.template={task.template!r}"
        if task.template and not Template(task.template).placeholders:
            found.append(
                f"{where}: has no placeholder, so every query would be the same; put one in "
                "braces where the Challenger's own text goes, such as {question}"
            )
        if held := [tag for tag in tags if holds(task.template, [tag])]:
            what = f"has {held[0]!r} in it, a tag of the Challenger's prompt, which no query may hold"
            found.append(f"{where}: {what}; change the one or the other")
    return found


def _prompt_problems(config: LanguageSelfPlay) -> list[str]:
    found = []
    own = config.challenger.prompt
    if own and "{template}" not in own and any(task.template for task in config.tasks.values()):
        found.append("challenger.prompt: has no {template}, which the tasks have; put it where the template goes")
    for name, task in (config.tasks or {"": QueryTask()}).items():
        if own and config.method != "data" and not challenger_prompt(task.task, task.template, own).strip():
            what = f"task {name!r}, which has none" if name else "no tasks, as here"
            found.append(f"challenger.prompt={own!r}: is empty for {what}; write in it what is asked for")
    judge = config.self_reward.prompt
    if judge and not all(part in judge for part in ("{instruction}", "{response}")):
        found.append("self_reward.prompt: must have {instruction} and {response} where a query and its answer go")
    return found


def path_problems(config: LanguageSelfPlay) -> list[str]:
    """Returns which files of queries, and which model of preferences, are missing."""
    files = {"data": config.data, "watch.probe_data": config.watch.probe_data}
    found = [
        f"{key}={file!r}: there is no such file (current folder: {Path.cwd()}); name one with a query a line"
        for key, file in files.items()
        if file and not Path(file).expanduser().is_file()
    ]
    models = {"reward.preference.path": config.reward.preference.path, "reference": config.reference}
    named = "name a model's folder, or ORG/NAME of the Hub"
    found += [
        f"{key}={model!r}: no such folder (current folder: {Path.cwd()}); {shipped.how_to_make(model) or named}"
        for key, model in models.items()
        if model not in ("", "tiny_player") and not is_hub_name(model) and not Path(model).is_dir()
    ]
    return found


def base_problems(config: SelfPlayBase) -> list[str]:
    """Returns every contradiction of the model that self-play starts from, one sentence each."""
    found = []
    strangers = [name for name in config.families if name not in FAMILIES]
    if strangers or not config.families or len(set(config.families)) < len(config.families):
        found.append(f"families={config.families}: must be some of {', '.join(FAMILIES)}, each once")
    if len(config.skill) != 2:
        found.append(f"skill={config.skill}: must be two numbers, of the lowest and of the highest difficulty")
    if len(config.shares) != _ROLES or not math.isclose(sum(config.shares), 1.0, abs_tol=1e-9):
        found.append(f"shares={config.shares}: must be three numbers whose sum is 1: of Challenger, Solver and judge")
    if len(config.accuracy_aim) != 2 or config.accuracy_aim[0] > config.accuracy_aim[-1]:
        found.append(f"accuracy_aim={config.accuracy_aim}: must be two numbers from 0 to 1, the lower one first")
    if "{template}" not in config.challenger_prompt:
        found.append("challenger_prompt: has no {template}; put it where the form of a query goes")
    if not all(part in config.judge_prompt for part in ("{instruction}", "{response}")):
        found.append("judge_prompt: must have {instruction} and {response} where a query and its answer go")
    return found + [
        f"{name}={length}: must be below batch.row_length={config.batch.row_length}"
        for name in ("max_query_length", "max_answer_length", "max_judgement_length")
        if (length := getattr(config, name)) >= config.batch.row_length
    ]

"""Rules between the settings of the model that self-play starts from."""

import math

from dfc.config import SelfPlayBase
from dfc.methods.language_self_play.families import FAMILIES

_ROLES = 3


def problems(config: SelfPlayBase) -> list[str]:
    """Returns every contradiction, one sentence each."""
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

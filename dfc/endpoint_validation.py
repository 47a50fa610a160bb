"""Checks the chat endpoints that a configuration names: before anything runs what would show at the first game."""

from dfc import task_validation
from dfc.config import RunConfig
from dfc.errors import ConfigError
from dfc.evaluation import policy_specs
from dfc.players import named
from dfc.players.secret import Secret

_KEY_VARIABLE = "divide_fuse_conquer.key_variable"  # of whoever sits opposite, in a collection too


def problems(config: RunConfig) -> list[str]:
    """Returns why the opponent of this recipe's games cannot be asked; the other endpoints are checked by their names.

    The rest: `dfc.evaluation.policy_specs` for those of tournaments, `dfc.task_validation` for simulated worlds.
    """
    key, name = _opponent(config)
    if not named.is_endpoint(name) or named.problem(name) is not None:
        return []
    try:
        named.endpoint_config(name, config.divide_fuse_conquer.key_variable)
    except ConfigError as error:
        return [f"{key}: {problem.removeprefix('endpoint.')}" for problem in error.problems]
    return []


def key_problems(config: RunConfig) -> list[str]:
    """Returns which keys of this recipe's endpoints the environment lacks, or has in a form that cannot be sent."""
    found = []
    for key, variable in _variables(config):
        try:
            Secret.read(variable)
        except ConfigError as error:
            found += [f"{key}: {problem.removeprefix('endpoint.key_variable: ')}" for problem in error.problems]
    return found


def _opponent(config: RunConfig) -> tuple[str, str]:
    """Returns the setting that says who sits opposite in this recipe's games, and its value; "" where nobody does."""
    if "collect" in task_validation.stages(config):
        return "collect.opponent", config.collect.opponent
    if config.recipe == "divide_fuse_conquer":
        return "divide_fuse_conquer.opponent", config.divide_fuse_conquer.opponent
    return "", ""


def _variables(config: RunConfig) -> list[tuple[str, str]]:
    """Returns (setting, variable) for every endpoint that this recipe asks with a key."""
    found = []
    if named.is_endpoint(_opponent(config)[1]):
        found.append((_KEY_VARIABLE, config.divide_fuse_conquer.key_variable))
    if config.recipe in ("evaluate", "evaluate_tasks"):
        helper = policy_specs.staff(config.evaluate)
        specs = [*policy_specs.policies(config), *([] if helper is None else [helper])]
        asked = [policy_specs.endpoint_config(s, config.evaluate.endpoint) for s in specs if s.kind == "endpoint"]
        found += [("evaluate.endpoint.key_variables", how.key_variable) for how in asked]
    if task_validation.seats_staff(config) and named.is_endpoint(config.staff.who):
        spec = policy_specs.PolicySpec(policy_specs.STAFF, config.staff.who, "endpoint")
        how = policy_specs.endpoint_config(spec, config.staff.endpoint)
        found.append(("staff.endpoint.key_variables", how.key_variable))
    return list(dict.fromkeys(found))

"""Checks the chat endpoints that a configuration names: before anything runs what would show at the first game."""

from dfc import task_validation
from dfc.config import RunConfig
from dfc.errors import ConfigError
from dfc.players import factory, player_specs
from dfc.players.secret import Secret

_KEY_VARIABLE = "divide_fuse_conquer.key_variable"  # of whoever sits opposite, in a collection too


def problems(config: RunConfig) -> list[str]:
    """Returns why the opponent of this recipe's games cannot be asked; the other endpoints are checked by their names.

    The rest: `dfc.players.player_specs` for those of tournaments, `dfc.task_validation` for simulators.
    """
    key, name = _opponent(config)
    if not factory.is_endpoint(name) or factory.problem(name) is not None:
        return []
    try:
        factory.endpoint_config(name, config.divide_fuse_conquer.key_variable)
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
    if factory.is_endpoint(_opponent(config)[1]):
        found.append((_KEY_VARIABLE, config.divide_fuse_conquer.key_variable))
    if config.recipe in ("evaluate", "evaluate_tasks"):
        helper = player_specs.simulators(config.evaluate)
        specs = [*player_specs.policies(config), *([] if helper is None else [helper])]
        asked = [player_specs.endpoint_config(s, config.evaluate.endpoint) for s in specs if s.kind == "endpoint"]
        found += [("evaluate.endpoint.key_variables", how.key_variable) for how in asked]
    if task_validation.uses_simulators(config) and factory.is_endpoint(config.simulators.who):
        spec = player_specs.PolicySpec(player_specs.SIMULATORS, config.simulators.who, "endpoint")
        how = player_specs.endpoint_config(spec, config.simulators.endpoint)
        found.append(("simulators.endpoint.key_variables", how.key_variable))
    return list(dict.fromkeys(found))

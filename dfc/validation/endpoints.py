"""Checks the chat endpoints that a configuration names: before anything runs what would show at the first game."""

from dfc.config import CollectConfig, Evaluate, Paprika, PlayingRun, RlRun, Run
from dfc.errors import ConfigError
from dfc.players import factory, player_specs
from dfc.players.key_search import Secret


def problems(config: Run) -> list[str]:
    """Returns why the opponent of this recipe's games cannot be asked; the other endpoints are checked by their names.

    The rest: `dfc.players.player_specs` for those of tournaments, `dfc.validation.tasks` for simulators.
    """
    path, name, variable = _opponent(config)
    if not factory.is_endpoint(name) or factory.problem(name) is not None:
        return []
    try:
        factory.endpoint_config(name, variable)
    except ConfigError as error:
        return [f"{path}opponent: {problem.removeprefix('endpoint.')}" for problem in error.problems]
    return []


def key_problems(config: Run) -> list[str]:
    """Returns which keys of this recipe's endpoints the environment lacks, or has in a form that cannot be sent."""
    found = []
    for key, variable in _variables(config):
        try:
            Secret.read(variable)
        except ConfigError as error:
            found += [f"{key}: {problem.removeprefix('endpoint.key_variable: ')}" for problem in error.problems]
    return found


def _opponent(config: Run) -> tuple[str, str, str]:
    """Returns who sits opposite in this recipe's games: the path of the setting, its value, the key's variable."""
    if isinstance(config, RlRun | CollectConfig):
        return "", config.opponent, config.key_variable
    if isinstance(config, Paprika) and "collect" in config.stages:
        return "collect.", config.collect.opponent, config.collect.key_variable
    return "", "", ""


def _variables(config: Run) -> list[tuple[str, str]]:
    """Returns (setting, variable) for every endpoint that this recipe asks with a key."""
    found = []
    path, name, variable = _opponent(config)
    if factory.is_endpoint(name):
        found.append((f"{path}key_variable", variable))
    if isinstance(config, Evaluate):
        helper = player_specs.simulators(config)
        specs = [*player_specs.policies(config), *([] if helper is None else [helper])]
        asked = [player_specs.endpoint_config(s, config.endpoint) for s in specs if s.kind == "endpoint"]
        found += [("endpoint.key_variables", how.key_variable) for how in asked]
    if isinstance(config, PlayingRun) and factory.is_endpoint(config.simulators.who):
        spec = player_specs.PolicySpec(player_specs.SIMULATORS, config.simulators.who, "endpoint")
        how = player_specs.endpoint_config(spec, config.simulators.endpoint)
        found.append(("simulators.endpoint.key_variables", how.key_variable))
    return list(dict.fromkeys(found))

"""What customer service and murder mystery share: their simulators answer from the facts of a case.

A case is a scenario of this package (`dfc.games.paprika.case`); scenarios that a file brings have no facts.
"""

from dfc.games.paprika.scenario import Scenario


def with_facts(scenario: Scenario | None) -> Scenario:
    """Returns the scenario.

    Raises:
      ValueError: there is none, or it has no facts.
    """
    if scenario is None or not scenario.facts:
        raise ValueError(
            "the script of the simulators answers only for scenarios with facts, which are those of this package; seat "
            "a chat model as world and judge for scenarios from a file"
        )
    return scenario

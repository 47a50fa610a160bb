"""Errors that a user can act on: what was expected, what came, where, and the cure."""


class DfcError(Exception):
    """Base of every error dfc raises for a cause outside its own code."""


class ConfigError(DfcError, ValueError):
    """A configuration that cannot be run; lists every problem found, not only the first.

    Attributes:
      problems: one sentence per problem, each naming the key, what came and what is allowed.
    """

    def __init__(self, problems: "list[str]") -> None:
        self.problems = tuple(problems)
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{count} in the configuration:\n" + "\n".join(f"  - {p}" for p in problems))


class TrainingError(DfcError):
    """Training that cannot go on, such as a loss that is not finite."""


class DecodingError(DfcError):
    """A policy whose probabilities are not numbers."""


class CheckpointError(DfcError):
    """A checkpoint or a run folder that cannot be used as it stands."""


class WeightsError(DfcError, ValueError):
    """A model folder that cannot be loaded as it stands; lists every missing, extra or misshapen tensor."""


class RunFolderError(DfcError):
    """A run folder that cannot be written to, or that belongs to another configuration."""

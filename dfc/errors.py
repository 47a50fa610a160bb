"""Errors that a user can act on: what was expected, what came, where, and how to fix it."""

import re
import signal

_WORD = 250  # characters of a value in a message; paths are rarely longer
_SENTENCE = 4000  # of a whole problem: the list of all games takes 1,500
_LONG_WORD = re.compile(rf"\S{{{_WORD + 1},}}")


def cut(text: str, limit: int = _WORD) -> str:
    """Returns a text of at most `limit` characters (20 or more): a longer one loses its middle."""
    if len(text) <= limit:
        return text
    kept = (limit - 5) // 2
    return f"{text[:kept]} ... {text[-kept:]}"


def shown(value: object) -> str:
    """Returns the `repr` of any value, bounded in length; a value may refuse to be shown."""
    try:
        return cut(repr(value))
    except Exception:  # noqa: BLE001 - of a class of the user's; a whole number of 5000 digits raises too
        return f"<a value of type {type(value).__name__}>"


def error_text(error: BaseException) -> str:
    """Returns the text of any exception; its class may be the user's, and raise in place of a text."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - see above
        return "(an error without a text)"


class DfcError(Exception):
    """Base of every error dfc raises for a cause outside its own code."""


class ConfigError(DfcError, ValueError):
    """A configuration that cannot be run; lists every problem found, not only the first.

    Attributes:
      problems: one sentence per problem, each naming the key, what came and what is allowed; a value of thousands of
        letters loses its middle.
    """

    def __init__(self, problems: "list[str]") -> None:
        self.problems = tuple(cut(_LONG_WORD.sub(lambda word: cut(word[0]), p), _SENTENCE) for p in problems)
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{count} in the configuration:\n" + "\n".join(f"  - {p}" for p in self.problems))


class TrainingError(DfcError):
    """Training that cannot continue, such as a loss that is not finite."""


class DivergenceError(TrainingError):
    """An update that must not be kept: numbers that are not finite, or weights far out of range."""


class ExitError(DfcError):
    """Custom code called ``sys.exit``, which must not end a run as if it had finished (`dfc.own_code`)."""


class DecodingError(DfcError):
    """A policy whose probabilities are not numbers."""


class CheckpointError(DfcError):
    """A checkpoint or a run folder that cannot be used as it stands."""


class WeightsError(DfcError, ValueError):
    """A model folder that cannot be loaded as it stands; lists every missing, extra or misshapen tensor."""


class RunFolderError(DfcError):
    """A run folder that cannot be written to, or that belongs to another configuration."""


class Interrupted(DfcError):  # noqa: N818 - being asked to stop is no error
    """A recipe saved its state and stopped because it was asked to.

    Attributes:
      signal_number: the signal that asked, e.g. 15 for SIGTERM.
    """

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")

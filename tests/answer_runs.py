"""Runs of the recipe `evaluate_answers` in tests, and stops at a given moment."""

from dfc import validation
from dfc.errors import Interrupted
from dfc.recipes import evaluate_answers
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop


def run(config, path, stop=None):
    """Returns the records of a run."""
    assert validation.problems(config) == []
    with RunFolder.open(path, config, command="test") as folder:
        evaluate_answers.run(config, folder, stop or Stop())
        return folder.records("episodes")


class StopAt(Stop):
    """Asks for a stop when it has been looked at so often."""

    def __init__(self, checks):
        super().__init__()
        self._left = checks

    def check(self):
        self._left -= 1
        if self._left < 0:
            raise Interrupted(15)

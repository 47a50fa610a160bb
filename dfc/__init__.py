"""dfc: open-weights chat models become better agents by playing language games (JAX/Flax).

    import dfc
    config = dfc.load_config("configs/smoke.py", seed=1, **{"optimizer.learning_rate": 5e-4})
    dfc.run(config, workdir="runs/mine")

Configurations are the classes of `dfc.config`; losses, advantages, rewards, curriculum, fusion and log-probabilities
for research code are modules of their own (`dfc.losses`, ...).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dfc.config import RunConfig
    from dfc.games.game import Game

__version__ = "0.2.0.dev0"
__all__ = ["load_config", "make_game", "run"]


def run(config: "RunConfig", workdir: str | Path | None = None) -> Path:
    """Runs a configuration as ``python -m dfc.launch`` does, in this process; returns the run folder.

    A run folder that holds this configuration's run is resumed, or shown if it is finished. Ctrl-C or SIGTERM saves and
    stops.

    Args:
      config: one of the classes of `dfc.config`.
      workdir: the run folder; ``runs/<name>`` in the current folder if None.

    Raises:
      dfc.errors.ConfigError: the configuration cannot be run; lists every problem. dfc.errors.DfcError: it failed; says
        what to do. dfc.runs.stop_signals.Interrupted: it was stopped, and resumes by the same call.
    """
    from dfc.launch import start  # noqa: PLC0415 - `import dfc` takes no time

    return start.run(config, workdir)


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None, **values: Any) -> "RunConfig":  # noqa: ANN401 - of any field
    """Returns the configuration of a file with other values.

    Args:
      path: the file, in the current folder or among those that come with dfc.
      overrides: values by dotted key, such as ``{"optimizer.learning_rate": 1e-3}``.
      values: more of them, for keys without a dot.

    Raises:
      dfc.errors.ConfigError: the file holds no configuration, or there is no such key; lists every problem.
    """
    from dfc.launch import start  # noqa: PLC0415 - `import dfc` takes no time

    return start.load_config(path, {**(overrides or {}), **values})


def make_game(name: str, /, **options: Any) -> "Game":  # noqa: ANN401 - what is allowed depends on the game
    """Returns a game by its id, ``FILE.py:CLASS`` or ``module:CLASS``; it has to be reset before it is played.

    Raises:
      ValueError: there is no such game or option; lists those there are.
    """
    from dfc.games import registry  # noqa: PLC0415 - `import dfc` takes no time

    return registry.make(name, **options)

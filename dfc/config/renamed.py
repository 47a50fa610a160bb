"""Settings that were renamed, so that run folders of before can be read."""

from collections.abc import Collection, Mapping
from typing import Any

RENAMED: Mapping[str, str] = {"epsilon": "random_action_rate"}
"""Name of before -> the one of today, of settings at the top of a configuration."""


def with_new_names(stored: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Returns a stored configuration with the names of today.

    Args:
      stored: as ``config.json`` has it.
      known: the settings of its class; a name of before that the class has itself stays.
    """
    renamed = {old for old, new in RENAMED.items() if old not in known and new in known and new not in stored}
    return {RENAMED[key] if key in renamed else key: value for key, value in stored.items()}

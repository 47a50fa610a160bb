"""Settings that have another name than they had: what a name of before is answered with, and how folders are read."""

from collections.abc import Collection, Mapping
from typing import Any

RENAMED: Mapping[str, str] = {"epsilon": "random_action_rate"}
"""Name of before -> the one of today, of settings at the top of a configuration."""

# What else a name of before may have been meant for, by whoever knows it from somewhere else.
_MEANT = {"epsilon": "; the range of the likelihood ratio (TRL's epsilon) is 'grpo.clip_ratio'"}


def hint(name: str, allowed: Collection[str]) -> str:
    """Returns ``; it is called 'x' now`` for a name of before whose new one is allowed; "" for any other."""
    new = RENAMED.get(name)
    return f"; it is called '{new}' now{_MEANT.get(name, '')}" if new in allowed else ""


def with_new_names(stored: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Returns a stored configuration with the names of today.

    Args:
      stored: as ``config.json`` has it.
      known: the settings of its class; a name of before that the class has itself stays.
    """
    renamed = {old for old, new in RENAMED.items() if old not in known and new in known and new not in stored}
    return {RENAMED[key] if key in renamed else key: value for key, value in stored.items()}

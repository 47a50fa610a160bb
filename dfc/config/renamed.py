"""Settings that were renamed or moved: older run folders are read, a former name is answered with the current one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dfc.config import fields
from dfc.config.dialogues import DialogueChoiceConfig
from dfc.config.grpo import RewardConfig, RlRunConfig
from dfc.config.playpen import TeacherGrpoConfig
from dfc.config.sections import OpponentReplyConfig
from dfc.config.self_play import LanguageSelfPlay, SelfRewardConfig
from dfc.config.tasks import BuildDataConfig, EvaluateTasksConfig

_TEMPERATURE = {"temperature": "sampling.temperature"}
RENAMED: Mapping[type, Mapping[str, str]] = {
    RlRunConfig: {
        "epsilon": "random_action_rate",
        "trajectories_per_seed": "group_size",
        "seeds_per_game": "groups_per_game",
        "instances_per_iteration": "groups_per_iteration",
        **_TEMPERATURE,
    },
    TeacherGrpoConfig: {
        "trajectories_per_seed": "group_size",
        "instances_per_iteration": "groups_per_iteration",
        **_TEMPERATURE,
    },
    LanguageSelfPlay: {"answers": "group_size", "queries": "groups_per_iteration", **_TEMPERATURE},
    OpponentReplyConfig: _TEMPERATURE,
    SelfRewardConfig: _TEMPERATURE,
    EvaluateTasksConfig: {"filters": "sampling"},
    BuildDataConfig: {"groups": "game_groups"},
    DialogueChoiceConfig: {"groups": "game_groups"},
}
"""Class of a configuration or of a section -> former name -> current name, dotted where it is in a section."""
_VALUES: Mapping[type, Mapping[tuple[str, Any], Mapping[str, Any]]] = {
    RewardConfig: {
        ("function", "dfc.training.playpen_rewards:table_5"): {"function": "", "measure": "table_5"},
    }
}
"""Class of a section -> (name, value of before) -> the values of today."""


def with_new_names(stored: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Returns a stored configuration with current names, in its sections too.

    Args:
      stored: as ``config.json`` has it.
      kind: its class; where a class has a field that bears a former name, that name stays.
    """
    known, new_names = fields.fields_of(kind), _new_names(kind)
    renamed: dict[str, Any] = {}
    for name, value in stored.items():
        today, _, within = new_names.get(name, name).partition(".")
        today, within = (name, "") if today in stored else (today, within)
        inner = known.get(today)
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            if isinstance(value, Mapping):
                value = with_new_names(value, inner)  # noqa: PLW2901 - the same section by its names of today
            if within:
                value = None if value is None else {within: value}  # noqa: PLW2901 - the section that it is in today
            if today != name and isinstance(value, Mapping):
                value = {**vars(getattr(kind, today, None) or inner()), **value}  # noqa: PLW2901 - all of it
        renamed[today] = value
    if "filters" in stored and "filters" not in renamed:
        renamed |= _of_one_temperature(renamed)
    for (name, before), values in _VALUES.get(kind, {}).items():
        if renamed.get(name) == before:
            renamed |= values
    return renamed


def hint(kind: type, name: str, value: object) -> str:
    """Returns what to write today for a former value of a setting; empty for another one."""
    values = _VALUES.get(kind, {}).get((name, value), {})
    return "".join(f"; write {key}={current!r}" for key, current in values.items() if current)


def keys_of(kind: type, path: str = "") -> dict[str, str]:
    """Returns the former dotted keys of a class of configurations or sections, each with its current key."""
    found, known = {}, fields.fields_of(kind)
    for old, new in _new_names(kind).items():
        found[f"{path}{old}"] = f"{path}{new}"
        if dataclasses.is_dataclass(inner := known.get(new)):
            found |= {f"{path}{old}.{name}": f"{path}{new}.{name}" for name in fields.fields_of(inner)}
    for name, inner in known.items():
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            found |= keys_of(inner, f"{path}{name}.")
    return found


def names_of_today(name: str) -> list[str]:
    """Returns the current form of a former name, in any class."""
    return list(dict.fromkeys(names[name] for names in RENAMED.values() if name in names))


def _of_one_temperature(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the one temperature that tasks were played at where it is said today, in the section."""
    match stored:
        case {"temperatures": [temperature, *others], "sampling": dict(sampling)} if not any(
            other != temperature for other in others
        ):
            return {"temperatures": [], "sampling": {**sampling, "temperature": temperature}}
    return {}


def _new_names(kind: type) -> dict[str, str]:
    """Returns the former names of a class, each with its current one; none that the class has itself."""
    known = fields.fields_of(kind)
    return {
        old: new
        for base, names in RENAMED.items()
        if issubclass(kind, base)
        for old, new in names.items()
        if old not in known and new.partition(".")[0] in known
    }

"""Reading a ``config.json`` field by field: what is wrong is collected and reported together, by name.

Here is what several families share: typed fields, rotary settings and attention windows, in the spellings of
transformers 4 and 5. Which family reads which of them is in `dfc.models.families`.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dfc.errors import cut, shown
from dfc.models.config import LinearRope, Llama3Rope

Scaling = Llama3Rope | LinearRope | None
FULL, SLIDING = "full_attention", "sliding_attention"

_SCALING_FIELDS: Mapping[str, Mapping[str, str]] = {  # by rope_type: our field and theirs
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_context": "original_max_position_embeddings",
    },
}

# No released model is close: beyond them a number is a mistake, or meant to make us compute for ever.
LARGEST = 2**31 - 1
MOST_LAYERS = 10_000

_TINY, _HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def shown_name(name: str) -> str:
    """Returns a field's name for a message: as it is, unless it is long or would act on a terminal."""
    return cut(name) if name.isprintable() else shown(name)


class ConfigReader:
    """Reads typed fields of one configuration and collects what is wrong with them.

    Attributes:
      config: the parsed object.
      problems: one sentence per field that cannot be used.
    """

    def __init__(self, config: Mapping[str, Any], *, inside: str = "") -> None:
        """Starts with no problems; `inside` is put before the names in messages, such as ``text_config.``."""
        self.config = config
        self.problems: list[str] = []
        self._inside = inside

    def refuse(self, name: str, reason: str) -> None:
        """Notes that field `name` cannot be used."""
        self.problems.append(f"{self._inside}{shown_name(name)}: {reason}")

    def integer(self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST) -> int:
        """Returns the whole number in a field, from `least` to `most`; `default` stands for an absent or null one."""
        value = self.config.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            kind = "a positive whole number" if least == 1 else f"a whole number of at least {least}"
            self.refuse(name, f"expected {kind}, got {_came(value)}")
            return 1
        if value > most:
            self.refuse(name, f"expected a whole number of at most {most}, got {shown(value)}")
            return 1
        return value

    def number(self, name: str, value: object) -> float:
        """Returns `value` if it is a positive number that float32 holds; messages call it `name`."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            self.refuse(name, f"expected a positive number, got {_came(value)}")
            return 1.0
        if not _TINY <= value <= _HUGE:
            self.refuse(name, f"expected a number from {_TINY:.1e} to {_HUGE:.1e}, got {shown(value)}")
            return 1.0
        return float(value)

    def positive(self, name: str) -> float:
        """Returns the positive number in a field."""
        return self.number(name, self.config.get(name))

    def boolean(self, name: str, *, default: bool) -> bool:
        """Returns true or false; `default` stands for an absent field."""
        value = self.config.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, f"expected true or false, got {shown(value)}")
            return default
        return value

    def mapping(self, name: str, value: object) -> Mapping[str, Any]:
        """Returns `value` if it is an object, and an empty one for null; messages call it `name`."""
        if isinstance(value, Mapping):
            return value
        if value is not None:
            self.refuse(name, f"expected an object, got {shown(value)}")
        return {}


def _came(value: object) -> str:
    return "nothing" if value is None else shown(value)


# Rotary settings


def rope(reader: ConfigReader, *, default_theta: float) -> tuple[float, Scaling]:
    """Returns base and scaling from ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (4)."""
    settings = {
        place: reader.mapping(place, reader.config[place])
        for place in ("rope_parameters", "rope_scaling")
        if reader.config.get(place) is not None
    }
    return _rope_of(reader, "rope_theta", settings, default_theta)


def layered_rope(
    reader: ConfigReader, *, default_theta: float, default_local_theta: float
) -> tuple[float, Scaling, float]:
    """Returns base and scaling of full layers, and the base of windowed ones, which is never scaled (Gemma 3).

    They stand in ``rope_parameters``, one object per kind of layer (transformers 5), or in ``rope_theta``,
    ``rope_scaling`` and ``rope_local_base_freq`` (4).
    """
    full: dict[str, Mapping[str, Any]] = {}
    local: dict[str, Mapping[str, Any]] = {}
    nested = reader.mapping("rope_parameters", reader.config.get("rope_parameters"))
    for kind, value in sorted(nested.items()):
        place = f"rope_parameters.{kind}"
        if kind == FULL:
            full[place] = reader.mapping(place, value)
        elif kind == SLIDING:
            local[place] = reader.mapping(place, value)
        else:
            reader.refuse(place, f"expected one object for {FULL} and one for {SLIDING}, got {shown(value)}")
    if reader.config.get("rope_scaling") is not None:
        full["rope_scaling"] = reader.mapping("rope_scaling", reader.config["rope_scaling"])
    theta, scaling = _rope_of(reader, "rope_theta", full, default_theta)
    local_theta, local_scaling = _rope_of(reader, "rope_local_base_freq", local, default_local_theta)
    if local_scaling is not None:
        reader.refuse(f"rope_parameters.{SLIDING}.rope_type", "only 'default' is computed for windowed layers")
    return theta, scaling, local_theta


def _rope_of(
    reader: ConfigReader, base: str, settings: Mapping[str, Mapping[str, Any]], default_theta: float
) -> tuple[float, Scaling]:
    """Returns base and scaling, each from the one or several places that give it."""
    given = (reader.config.get(base), *(place.get("rope_theta") for place in settings.values()))
    thetas = [theta for theta in given if theta is not None]
    if any(theta != thetas[0] for theta in thetas):
        reader.refuse(base, f"given several times, as {', '.join(map(shown, thetas))}; keep the right one")
    theta = reader.number(base, thetas[0] if thetas else default_theta)
    scalings = [_scaling(reader, place, value) for place, value in settings.items()]
    if any(scaling != scalings[0] for scaling in scalings):
        reader.refuse(" and ".join(settings), "they say different things; keep the right one")
    return theta, scalings[0] if scalings else None


def _scaling(reader: ConfigReader, place: str, settings: Mapping[str, Any]) -> Scaling:
    """Returns the scaling that one place asks for."""
    kind = settings.get("rope_type", settings.get("type", "default"))  # "type" before transformers 4.43
    if not isinstance(kind, str) or kind not in _SCALING_FIELDS:
        kinds = " or ".join(map(repr, _SCALING_FIELDS))
        reader.refuse(f"{place}.rope_type", f"only {kinds} is computed, got {shown(kind)}")
        return None
    whole = settings.get("partial_rotary_factor", 1.0)
    if whole != 1.0:
        reader.refuse(f"{place}.partial_rotary_factor", f"only 1.0 is computed, got {shown(whole)}")
    fields = _SCALING_FIELDS[kind]
    known = {*fields.values(), "rope_type", "type", "rope_theta", "partial_rotary_factor"}
    for name in sorted(settings.keys() - known):
        reader.refuse(f"{place}.{name}", f"unknown to rope type {kind!r}, got {shown(settings[name])}")
    values = {ours: reader.number(f"{place}.{theirs}", settings.get(theirs)) for ours, theirs in fields.items()}
    if kind == "default":
        return None
    if kind == "linear":
        return LinearRope(values["factor"])
    context = values["original_context"]
    if not context.is_integer():
        reader.refuse(f"{place}.original_max_position_embeddings", f"expected a whole number, got {shown(context)}")
    scaling = Llama3Rope(
        factor=values["factor"],
        low_freq_factor=values["low_freq_factor"],
        high_freq_factor=values["high_freq_factor"],
        original_context=int(context),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        reader.refuse(
            f"{place}.high_freq_factor",
            f"expected more than low_freq_factor ({scaling.low_freq_factor:g}), got {scaling.high_freq_factor:g}",
        )
    return scaling


def rope_settings(scaling: Scaling) -> dict[str, Any]:
    """Returns the object that `scaling` is written as, without the base."""
    if scaling is None:
        return {"rope_type": "default"}
    kind = "linear" if isinstance(scaling, LinearRope) else "llama3"
    values = dataclasses.asdict(scaling)
    return {"rope_type": kind} | {theirs: values[ours] for ours, theirs in _SCALING_FIELDS[kind].items()}


# Attention windows


def layer_types(reader: ConfigReader, layers: int) -> tuple[bool, ...] | None:
    """Returns for each layer whether ``layer_types`` gives it a window; None if the field is absent or null."""
    types = reader.config.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or any(kind not in (FULL, SLIDING) for kind in types):
        reader.refuse("layer_types", f"expected a list of {FULL!r} and {SLIDING!r}, got {shown(types)}")
        return None
    if len(types) != layers:
        reader.refuse("layer_types", f"expected one entry for each of the {layers} layers, got {len(types)}")
        return None
    return tuple(kind == SLIDING for kind in types)


def windows(window: int | None, windowed: tuple[bool, ...]) -> tuple[int | None, tuple[bool, ...]]:
    """Returns ``sliding_window`` and ``windowed_layers`` of a decoder: one form for what computes the same."""
    if window is None or not any(windowed):
        return None, ()
    return window, () if all(windowed) else windowed


def write_layer_types(windowed: tuple[bool, ...]) -> list[str]:
    """Returns the list that `layer_types` reads as `windowed`."""
    return [SLIDING if local else FULL for local in windowed]

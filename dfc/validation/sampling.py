"""What the sampling of a policy must be that is trained on what it samples."""

import dataclasses

from dfc.config import SamplingConfig

_PLAIN = SamplingConfig()


def problems(sampling: SamplingConfig, path: str = "sampling.") -> list[str]:
    """Returns what is wrong with how such a policy samples, one sentence each.

    Args:
      sampling: how the policy samples.
      path: what leads to it in the configuration, with a dot behind it.
    """
    values = dataclasses.asdict(dataclasses.replace(sampling, temperature=_PLAIN.temperature))
    found = temperature_problems(sampling, path, "without chance all samples of a group are the same")
    if filters := [f"{path}{name}={value}" for name, value in values.items() if value != getattr(_PLAIN, name)]:
        found.append(
            f"{', '.join(filters)}: must be left out; the update compares probabilities of the whole distribution, so "
            f"only {path}temperature can be set"
        )
    return found


def temperature_problems(sampling: SamplingConfig, path: str, why: str) -> list[str]:
    """Returns why a temperature is refused, where one of 0 makes no sense."""
    return [] if sampling.temperature != 0 else [f"{path}temperature={sampling.temperature}: must be above 0; {why}"]

"""What the sampling of a policy must be that is trained on what it samples."""

from dfc.config import SamplingConfig


def problems(sampling: SamplingConfig, path: str = "sampling.") -> list[str]:
    """Returns what is wrong with how such a policy samples, one sentence each.

    Args:
      sampling: how the policy samples.
      path: what leads to it in the configuration, with a dot behind it.
    """
    found = temperature_problems(sampling, path, "without chance all samples of a group are the same")
    if sampling.top_k == 1:
        found.append(f"{path}top_k=1: must be 2 or more, or 0 for no limit; of one token there is no choice to learn")
    return found


def temperature_problems(sampling: SamplingConfig, path: str, why: str) -> list[str]:
    """Returns why a temperature is refused, where one of 0 makes no sense."""
    return [] if sampling.temperature != 0 else [f"{path}temperature={sampling.temperature}: must be above 0; {why}"]

"""The weights that an engine answers with, by name: which of them share calls, and which a conversation may use."""

import itertools
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from dfc.inference.programs import EnginePolicy, EngineWeights
from dfc.inference.slots import SlotState


class Policies:
    """The policies of one engine."""

    def __init__(self) -> None:
        """Begins without any."""
        self._policies: dict[str, EnginePolicy] = {}
        self._serials = itertools.count()

    def __getitem__(self, name: str) -> EnginePolicy:
        """Returns the policy of a name; a KeyError if there is none."""
        return self._policies[name]

    def set(self, name: str, weights: EngineWeights, version: int, pool: int | None) -> None:
        """Takes over weights, new or under a new name; the same ones under two names have one serial number.

        Args:
          name: of the policy.
          weights: unrolled.
          version: of them.
          pool: how many adapters they come with, None without.
        """
        known = self._policies.get(name)
        number = len(self._policies) if known is None else known.number
        same = (policy.serial for policy in self._policies.values() if _are_same(policy.weights, weights))
        serial = next(same, next(self._serials))
        self._policies[name] = EnginePolicy(number, weights, version, pool, serial)

    def check(self, name: str, adapter: int) -> None:
        """Raises ValueError unless there is a policy of this name with this adapter."""
        known = self._policies.get(name)
        if known is None:
            raise ValueError(f"policy {name!r} is not known; set_params gave {', '.join(self._policies)}")
        if not 0 <= adapter < (known.pool or 1):
            raise ValueError(f"adapter {adapter}: expected one of 0 to {(known.pool or 1) - 1}, the adapters given")

    def weights(self) -> Iterable[EngineWeights]:
        """Yields the weights of every policy."""
        return (policy.weights for policy in self._policies.values())

    def numbered(self, number: int) -> EnginePolicy:
        """Returns the policy of a number."""
        return next(policy for policy in self._policies.values() if policy.number == number)

    def number(self, state: SlotState) -> int:
        """Returns the number of the first policy that has the same weights as a conversation's: both share calls."""
        mine = self._policies[state.policy].weights
        return next(policy.number for policy in self._policies.values() if _are_same(policy.weights, mine))

    def serial(self, state: SlotState) -> int:
        """Returns the serial number of the weights that a conversation is answered with."""
        return self._policies[state.policy].serial

    def of_each_shape(self) -> Iterable[int]:
        """Returns the number of one policy for each set of shapes: weights of the same shapes share programs."""
        kinds = {str(jax.tree.map(jnp.shape, policy.weights)): policy.number for policy in self._policies.values()}
        return kinds.values()


def _are_same(some: EngineWeights, other: EngineWeights) -> bool:
    """Whether two are the same arrays, not only equal ones."""
    return some.params is other.params and some.adapters is other.adapters

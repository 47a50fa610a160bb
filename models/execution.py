"""How a decoder is computed, as against what it computes: devices, attention program, what the backward pass keeps."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, cast

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

RESIDUAL = "residual"  # the name under which a layer's input can be moved to host memory
ROWS = ("data", "fsdp")  # mesh axes that rows of a batch, and slots of a cache, are split over

AttentionProgram = Literal["auto", "xla", "cudnn", "splash"]
Remat = Literal["none", "dots", "layer", "offload"]
Platform = Literal["cpu", "gpu", "tpu"]


def platform_of(mesh: Mesh | None) -> Platform:
    """Returns where programs over a mesh run; without one, where this process computes by default."""
    platform: str = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    return cast("Platform", {"cuda": "gpu", "rocm": "gpu"}.get(platform, platform))


@dataclasses.dataclass(frozen=True)
class Execution:
    """Choices that change memory and speed, and results by rounding only.

    Attributes:
      attention: the program for whole sequences; ``auto`` chooses by platform and shape (dfc.models.attention).
      remat: what a training step keeps of each layer for its backward pass: ``none`` keeps everything, ``dots`` the
        results of matrix products, ``layer`` the layer's input only (everything is computed a second time),
        ``offload`` the same, kept in host memory.
      mesh: the devices the arrays are split over; None: one.
      platform: where the program runs; None: on the mesh's devices, or on this process's without one.
      constrained: whether activations are placed on the mesh. Off, the partitioner places them: of a few tokens it
        rather sends these around than the weights.
    """

    attention: AttentionProgram = "auto"
    remat: Remat = "none"
    mesh: Mesh | None = None
    platform: Platform | None = None
    constrained: bool = True

    @property
    def runs_on(self) -> Platform:
        """Where the program runs."""
        return platform_of(self.mesh) if self.platform is None else self.platform

    @property
    def _places(self) -> Mesh | None:
        """The mesh that activations are placed on."""
        return self.mesh if self.constrained else None

    def shard_residual(self, x: jax.Array) -> jax.Array:
        """Splits x [B, T, D] by row over data and fsdp devices, and by position over tensor devices.

        Between the layers no device then holds more than its share: with 4 tensor devices this halves the peak
        memory of a 32B training step.
        """
        if self._places is None:
            return x
        return self._constrain(x, "tensor" if x.shape[1] % self._places.shape["tensor"] == 0 else None, None)

    def gather_positions(self, x: jax.Array) -> jax.Array:
        """Makes all positions of x [B, T, D] whole on every tensor device, rows split: what a block's products read.

        Without it the partitioner keeps the positions apart and gathers the weights of the feed-forward instead, on
        every device and for every layer, and sums their gradients over all.
        """
        return x if self._places is None else self._constrain(x, None, None)

    def shard_columns(self, x: jax.Array) -> jax.Array:
        """Splits x [B, T, F], between the products of the feed-forward, by column over tensor devices."""
        if self._places is None:
            return x
        return self._constrain(x, None, "tensor" if x.shape[2] % self._places.shape["tensor"] == 0 else None)

    def shard_heads(self, x: jax.Array) -> jax.Array:
        """Splits x [B, heads, T, H] by row over data and fsdp devices and by head over tensor devices."""
        if self._places is None:
            return x
        return self._constrain(x, "tensor" if x.shape[1] % self._places.shape["tensor"] == 0 else None, None, None)

    def one_ahead(self, x: jax.Array, weights: Any) -> tuple[jax.Array, Any]:  # noqa: ANN401 - a pytree of arrays
        """Lets devices gather the weights of the next unrolled layer when x, the input of this one, is there.

        Without it a TPU's scheduler gathers those of as many layers as the device has room for, and does not count
        memory outside the program: 0.28 GB of temporaries instead of 0.05 with 12 layers of 34 MB (v5e:2x2).
        """
        if self._places is None or self._places.shape["fsdp"] == 1:
            return x, weights
        held: tuple[jax.Array, Any] = jax.lax.optimization_barrier((x, weights))  # type: ignore[no-untyped-call]  # jax leaves it untyped
        return held

    def _constrain(self, x: jax.Array, *rest: str | None) -> jax.Array:
        assert self.mesh is not None  # noqa: S101 - both callers have looked
        rows = ROWS if x.shape[0] % (self.mesh.shape["data"] * self.mesh.shape["fsdp"]) == 0 else None
        spec = PartitionSpec(rows, *rest)  # type: ignore[no-untyped-call]  # jax leaves it untyped
        placed: jax.Array = jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))  # type: ignore[no-untyped-call]  # jax leaves it untyped
        return placed

    def remat_policy(self) -> Callable[..., Any]:
        """Returns the policy for `jax.checkpoint`; do not call it for ``none``."""
        policies: Any = jax.checkpoint_policies
        chosen: Callable[..., Any] = policies.nothing_saveable
        if self.remat == "dots":
            chosen = policies.dots_with_no_batch_dims_saveable
        if self.remat == "offload":
            chosen = policies.save_and_offload_only_these_names(
                names_which_can_be_saved=[],
                names_which_can_be_offloaded=[RESIDUAL],
                offload_src="device",
                offload_dst="pinned_host",
            )
        return chosen


def name_residual(x: jax.Array) -> jax.Array:
    """Marks a layer's input for ``offload``; anything else marked there is computed again and moves nothing."""
    named: jax.Array = checkpoint_name(x, RESIDUAL)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return named

"""Low-rank adapters (LoRA): small trained matrices beside frozen projections.

A targeted projection computes x @ kernel + scale * (dropout(x) @ a) @ b, with a [in, r], b [r, out] and
scale = alpha / r. Adapters are a nested dict shaped like the weights that holds only the targeted projections:
``{"layers": {0: {"attention": {"query": {"a", "b"}}}}}``. Here are the operations on such trees outside a forward
pass; the forward pass itself is in `dfc.models.transformer` (`Adapters`).

Everything here speaks of the unrolled layout; `stack_layers` and `unstack_layers` of `dfc.models.transformer` turn
adapters from one layout to the other as they do weights.

Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, arXiv 2106.09685, section 4.1.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.errors import ConfigError
from dfc.models.config import DecoderConfig
from dfc.models.quantization import Nf4Kernel, is_quantized
from dfc.models.sharding import DEFAULT_RULES, Rules, param_shardings
from dfc.models.transformer import Params, Path, abstract_params, by_path, path_of

AdapterTree = Any  # shaped like Params, only targeted projections, each {"a": [in, r], "b": [r, out]}

QKVO = ("query", "key", "value", "output")
ALL_LINEAR = (*QKVO, "gate", "up", "down")


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Which projections are adapted, and how strongly.

    Attributes:
      rank: r, columns of a and rows of b.
      alpha: the adapter's output is multiplied by alpha / rank.
      dropout: share of an adapter's inputs set to 0 in training; the others are divided by 1 - dropout.
      targets: names of projections: "query", "key", "value", "output", "gate", "up", "down". `QKVO` and `ALL_LINEAR`
        are the usual choices.

    Nothing is checked on construction, so that `problems` can be reported together with those of a whole
    configuration; every function here that takes a `LoraConfig` checks it.
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] = QKVO

    @property
    def scale(self) -> float:
        """The factor alpha / rank of the adapter's output."""
        return self.alpha / self.rank

    def problems(self, where: str = "lora") -> list[str]:
        """Returns one sentence per field that is out of its range; `where` is the section they are named under."""
        found = []
        if self.rank < 1:
            found.append(f"{where}.rank: expected a whole number of at least 1, got {self.rank!r}")
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            found.append(f"{where}.alpha: expected a number above 0, got {self.alpha!r}")
        if not 0 <= self.dropout < 1:
            found.append(f"{where}.dropout: expected a number of at least 0 and below 1, got {self.dropout!r}")
        if not self.targets:
            found.append(f"{where}.targets: expected at least one of {', '.join(ALL_LINEAR)}, got none")
        found += [
            f"{where}.targets: {name!r} is no projection; allowed are {', '.join(ALL_LINEAR)}"
            for name in self.targets
            if name not in ALL_LINEAR
        ]
        twice = sorted({name for name in self.targets if self.targets.count(name) > 1})
        found += [f"{where}.targets: {name!r} is listed more than once; name it once" for name in twice]
        return found


def abstract_adapters(config: DecoderConfig, lora: LoraConfig) -> AdapterTree:
    """Returns the shapes of the adapters, float32, nothing allocated: a [in, r] and b [r, out] per targeted kernel.

    Raises:
      ConfigError: listing what is wrong with `lora`.
    """

    def shapes(kernel: jax.ShapeDtypeStruct) -> AdapterTree:
        rows, columns = kernel.shape
        sizes = {"a": (rows, lora.rank), "b": (lora.rank, columns)}
        return jax.eval_shape(lambda: {name: jnp.zeros(size, jnp.float32) for name, size in sizes.items()})

    return _over_targets(abstract_params(config), lora, shapes)


def initialize_adapters(config: DecoderConfig, lora: LoraConfig, seed: int) -> AdapterTree:
    """Returns fresh adapters, float32, that change nothing yet: b = 0.

    ::

        a ~ Uniform(-1 / sqrt(in), 1 / sqrt(in))

    That is Kaiming's uniform with slope sqrt(5), what the PEFT package samples by default; the LoRA paper samples a
    from a normal. A projection's sample depends on the seed, its layer and its name, not on the other targets.

    Raises:
      ConfigError: listing what is wrong with `lora`.
    """
    shapes = abstract_adapters(config, lora)
    base = jax.random.key(seed)

    def init_leaf(path: tuple[Any, ...], shape: jax.ShapeDtypeStruct) -> jax.Array:
        _, layer, _, name, matrix = (part.key for part in path)
        if matrix == "b":
            return jnp.zeros(shape.shape, shape.dtype)
        key = jax.random.fold_in(jax.random.fold_in(base, layer), ALL_LINEAR.index(name))
        bound = shape.shape[0] ** -0.5
        return jax.random.uniform(key, shape.shape, shape.dtype, -bound, bound)

    return jax.tree.map_with_path(init_leaf, shapes)


def adapter_shardings(config: DecoderConfig, lora: LoraConfig, mesh: Mesh, rules: Rules = DEFAULT_RULES) -> AdapterTree:
    """Returns the sharding of every adapter weight, in the shape of the unrolled adapters.

    The input axis of a and the output axis of b are split as the kernel's; the rank is replicated.

    Raises:
      ConfigError: listing what is wrong with `lora`.
      ValueError: if the rules split one array twice over the same mesh axis.
    """

    def place(kernel: NamedSharding) -> AdapterTree:
        rows, columns = kernel.spec
        return {
            "a": NamedSharding(mesh, PartitionSpec(rows, None)),  # type: ignore[no-untyped-call]  # jax leaves it untyped
            "b": NamedSharding(mesh, PartitionSpec(None, columns)),  # type: ignore[no-untyped-call]  # jax leaves it untyped
        }

    return _over_targets(param_shardings(config, mesh, rules), lora, place)


def pool(adapters: Sequence[AdapterTree]) -> AdapterTree:
    """Returns several adapters as one tree: a [..., P, in, r] and b [..., P, r, out]; `...` is L if they are stacked.

    ``Adapters(weights, scale, rows)`` then applies adapter ``rows[i]`` to row i of a batch.

    Raises:
      ValueError: if there is none, or if they differ in targets, shapes or dtypes.
    """
    if not adapters:
        raise ValueError("pool: needs at least one adapter, got none")
    first = _shapes(adapters[0])
    for number, other in enumerate(adapters[1:], start=1):
        shapes = _shapes(other)
        differing = sorted(name for name in first.keys() | shapes.keys() if first.get(name) != shapes.get(name))
        if differing:
            name = differing[0]
            raise ValueError(
                f"pool: adapters must have the same targets, rank and dtype; adapter 0 has "
                f"{first.get(name, 'nothing')} at {name}, adapter {number} has {shapes.get(name, 'nothing')}"
                + (f" ({len(differing)} arrays differ)" if len(differing) > 1 else "")
            )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-3), *adapters)


def merge(params: Params, adapters: AdapterTree, scale: float, *, dtype: jax.typing.DTypeLike | None = None) -> Params:
    """Returns plain weights that compute what `params` with these adapters do: kernel + scale * a @ b.

    The sum is taken in float32 and rounded once to the kernel's dtype; a kernel that is a jax array outside jit keeps
    its sharding. Both layouts are served; `params` and `adapters` must have the same one.

    `adapters` are one adapter, not a pool, with scale alpha / rank. `dtype` is of kernels that are stored in nf4, all
    of which become plain arrays; None if there are no such.

    Raises:
      ValueError: if an adapter has no kernel of its shape (a pool, another layout, another model), or if there are nf4
        kernels and no dtype for them.
    """
    pairs = _pairs(adapters)
    shapes = {path: leaf.shape for path, leaf in by_path(params, is_quantized).items()}
    for path, (a, b) in pairs.items():
        shape, made = shapes.get((*path, "kernel")), (*a.shape[:-1], b.shape[-1])
        if shape != made:
            raise ValueError(
                f"merge: the adapter {'/'.join(path)} has a {list(a.shape)} and b {list(b.shape)}, for a kernel "
                f"{list(made)}; "
                + (f"the weights have {list(shape)}" if shape else "the weights have none there")
                + "; give one adapter (not a pool), in the layout of the weights"
            )

    def merged(keys: tuple[Any, ...], leaf: jax.Array | Nf4Kernel) -> jax.Array:
        *path, last = path_of(keys)
        if isinstance(leaf, Nf4Kernel) and dtype is None:
            name = "/".join([*path, last])
            raise ValueError(f"merge: {name} is stored in nf4; give the dtype it shall have when merged")
        pair = pairs.get(tuple(path)) if last == "kernel" else None
        if pair is not None:
            return _merged(leaf, pair, scale, dtype)
        return leaf.dequantize(jnp.dtype(dtype)) if isinstance(leaf, Nf4Kernel) else leaf

    return jax.tree.map_with_path(merged, params, is_leaf=is_quantized)


def average(one: AdapterTree, other: AdapterTree, *, weight: float = 0.5) -> tuple[AdapterTree, float]:
    """Returns the adapters of the same rank nearest to the average of two adapted models, and what they miss.

    The average of W + scale a1 b1 and W + scale a2 b2 is W + scale ((1 - weight) a1 b1 + weight a2 b2), whose
    correction has up to twice the rank; averaging a and b apart would be another model altogether. The best
    approximation of rank R, in the Frobenius norm, keeps its R largest singular values (Eckart and Young 1936); they
    are found from 2R x 2R matrices, without forming the product. The columns of the new a get the mean length of the
    old ones, so that training continues as from any adapter, also where the correction is zero. Both are in either
    layout, of one scale and the same shapes; `weight` is of `other`.

    Returns:
      The adapters, and the Frobenius norm of what they miss over that of the exact average, all projections together;
      0 if the average is zero.

    Raises:
      ValueError: the adapters differ in targets, shapes or dtypes.
    """
    if _shapes(one) != _shapes(other):
        raise ValueError("average: adapters must have the same targets, rank, layout and dtype")
    theirs, found, missed, whole = _pairs(other), {}, 0.0, 0.0
    for path, (a, b) in _pairs(one).items():
        new_a, new_b, squares = _average(a, b, *theirs[path], weight)
        found[*path, "a"], found[*path, "b"] = _as(new_a, a), _as(new_b, b)
        missed, whole = missed + float(squares[0]), whole + float(squares[1])
    tree = jax.tree.map_with_path(lambda keys, _: found[path_of(keys)], one)
    return tree, math.sqrt(missed / whole) if whole > 0 else 0.0


@jax.jit
def _average(
    a1: jax.Array, b1: jax.Array, a2: jax.Array, b2: jax.Array, weight: jax.Array | float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns a, b and the squared norms of what they miss and of the whole; leading axes are a batch."""
    rank = a1.shape[-1]
    wide = [x.astype(jnp.float32) for x in (a1, b1, a2, b2)]
    left = jnp.concatenate([wide[0], wide[2]], axis=-1)
    right = jnp.concatenate([(1 - weight) * wide[1], weight * wide[3]], axis=-2).swapaxes(-1, -2)
    left_basis, left_rest = jnp.linalg.qr(left)
    right_basis, right_rest = jnp.linalg.qr(right)
    u, values, vt = jnp.linalg.svd(left_rest @ right_rest.swapaxes(-1, -2), full_matrices=False)
    length = jnp.linalg.norm(left, axis=-2).mean(axis=-1)[..., None, None]
    safe = jnp.where(length > 0, length, 1)
    a = left_basis @ u[..., :rank] * safe
    b = values[..., :rank, None] / safe * (vt[..., :rank, :] @ right_basis.swapaxes(-1, -2))
    squares = jnp.square(values)
    return a, b, jnp.stack([squares[..., rank:].sum(), squares.sum()])


def _as(new: jax.Array, old: jax.Array) -> jax.Array:
    """Gives a result the type and place of what it replaces."""
    cast = new.astype(old.dtype)
    placed: jax.Array = jax.device_put(cast, old.sharding) if isinstance(old, jax.Array) else cast
    return placed


def _over_targets(tree: Params, lora: LoraConfig, make: Callable[[Any], AdapterTree]) -> AdapterTree:
    """Returns the tree cut down to targeted projections, with `make` of the kernel's leaf in their place."""
    found = lora.problems()
    if found:
        raise ConfigError(found)

    def cut(part: Mapping[Any, Any]) -> AdapterTree:
        kept = {}
        for name, value in part.items():
            if name in lora.targets:
                kept[name] = make(value["kernel"])
            elif isinstance(value, Mapping) and (inner := cut(value)):
                kept[name] = inner
        return kept

    return {"layers": cut(tree["layers"])}


def _shapes(adapters: AdapterTree) -> dict[str, str]:
    return {"/".join(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in by_path(adapters).items()}


def _pairs(adapters: AdapterTree) -> dict[Path, tuple[jax.Array, jax.Array]]:
    """Returns a and b by the path of their projection."""
    leaves = by_path(adapters)
    return {path[:-1]: (leaf, leaves[*path[:-1], "b"]) for path, leaf in leaves.items() if path[-1] == "a"}


def _merged(
    kernel: jax.Array | Nf4Kernel,
    pair: tuple[jax.Array, jax.Array],
    scale: float,
    nf4_dtype: jax.typing.DTypeLike | None,
) -> jax.Array:
    dtype = jnp.dtype(nf4_dtype) if isinstance(kernel, Nf4Kernel) else kernel.dtype
    result: jax.Array = _sum(kernel, *pair, scale, dtype)
    if isinstance(kernel, Nf4Kernel) or isinstance(result, jax.core.Tracer) or not isinstance(kernel, jax.Array):
        return result
    return result if result.sharding == kernel.sharding else jax.device_put(result, kernel.sharding)


@jax.jit(static_argnames="dtype")
def _sum(
    kernel: jax.Array | Nf4Kernel, a: jax.Array, b: jax.Array, scale: jax.Array | float, dtype: jnp.dtype
) -> jax.Array:
    base = kernel.dequantize(jnp.float32) if isinstance(kernel, Nf4Kernel) else kernel.astype(jnp.float32)
    # Accelerators would otherwise multiply float32 in fewer bits.
    change = jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)
    return (base + scale * change).astype(dtype)

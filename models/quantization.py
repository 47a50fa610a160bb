"""Frozen weights in four bits (nf4), as in QLoRA.

A kernel [in, out] is cut into blocks of 64 consecutive inputs of one output. A block keeps its largest absolute
value, and each of its weights, divided by that, is replaced by the number of the nearest of 16 values between -1 and
1. The 16 values are quantiles of a normal distribution, which trained weights resemble. Two numbers share a byte.

Bits per weight: 4 + 32 / 64 = 4.5 with float32 scales, 4.25 with bfloat16 ones. The paper quantizes the scales once
more to reach 4 + 8 / 64 + 32 / (64 * 256) = 4.127; this is not done here.

Source: Dettmers et al., QLoRA: Efficient Finetuning of Quantized LLMs, arXiv 2305.14314, section 3 and appendix E.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dfc.errors import WeightsError
from dfc.models.config import DecoderConfig
from dfc.models.sharding import DEFAULT_RULES, Rules, param_shardings
from dfc.models.transformer import Path, abstract_params, by_path, path_of

BLOCK = 64

# Appendix E of the paper: quantiles of the standard normal, 7 below and 8 above an exact zero, divided by the largest.
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)

Tree = Any  # a nested dict whose leaves are arrays or `Nf4Kernel`


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Nf4Kernel:
    """A kernel [..., in, out] in four bits per weight; takes the place of a kernel array in the weights.

    Leading axes (layers) may be added, sliced, scanned and mapped over as with an array, because they lead both fields.

    Attributes:
      codes: uint8 [..., in / 2, out]; byte i holds the numbers of inputs 2 i (high four bits) and 2 i + 1 (low).
      scales: floating [..., in / 64, out]; the largest absolute weight of each block.
    """

    codes: jax.Array
    scales: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the kernel it stands for, [..., in, out]."""
        *leading, half, columns = self.codes.shape
        return (*leading, 2 * half, columns)

    @property
    def ndim(self) -> int:
        """Number of axes of the kernel it stands for."""
        return self.codes.ndim

    def dequantize(self, dtype: jax.typing.DTypeLike) -> jax.Array:
        """Returns the kernel [..., in, out]: NF4[code] * scale, computed in float32 and rounded once to `dtype`.

        Meant to be traced where the kernel is used, so that the compiler fuses it. Under differentiation its result
        would be kept until the backward pass; ``x @ kernel`` keeps the four bits instead.
        """
        kernel: jax.Array = _dequantize(self, jnp.dtype(dtype))
        return kernel

    def __rmatmul__(self, x: jax.Array) -> jax.Array:
        """Returns x @ kernel for x [..., in], in the dtype of x.

        The backward pass dequantizes again: a kept copy per layer would undo what four bits save.
        """
        product: jax.Array = _multiply(x, self)
        return product


def _lookup(codes: jax.Array) -> jax.Array:
    """Returns NF4[codes], float32, by halving the table once per bit: no gather; as fast as one on a CPU."""
    level: list[jax.Array] = [jnp.float32(value) for value in NF4]
    for bit in range(4):
        upper = ((codes >> bit) & 1).astype(bool)
        level = [jnp.where(upper, odd, even) for even, odd in zip(level[::2], level[1::2], strict=True)]
    return level[0]


@jax.jit(static_argnames="dtype")  # traced once per shape, however many layers have it
def _dequantize(kernel: Nf4Kernel, dtype: jnp.dtype) -> jax.Array:
    *leading, rows, columns = kernel.shape
    codes = jnp.stack([kernel.codes >> 4, kernel.codes & 15], axis=-2)
    values = _lookup(codes.reshape(*leading, rows // BLOCK, BLOCK, columns))
    scaled = values * kernel.scales.astype(jnp.float32)[..., :, None, :]
    return scaled.reshape(kernel.shape).astype(dtype)


@jax.checkpoint
def _multiply(x: jax.Array, kernel: Nf4Kernel) -> jax.Array:
    product: jax.Array = x @ kernel.dequantize(x.dtype)
    return product


def quantize(kernel: jax.Array, *, scale_dtype: jax.typing.DTypeLike = jnp.float32) -> Nf4Kernel:
    """Returns the kernel in nf4.

    ::

        scale[b, o] = max_i |kernel[64 b + i, o]|
        code[64 b + i, o] = argmin_c |kernel[64 b + i, o] / scale[b, o] - NF4[c]|

    A tie takes the lower number; a block of zeros has scale 0 and stays zeros. Works under jit and on leading axes.
    `kernel` is floating [..., in, out], `in` a multiple of 64. Codes are chosen for the scales as stored, in
    `scale_dtype`.

    Raises:
      ValueError: if `kernel` is not floating, has fewer than two axes, or `in` is not a multiple of 64.

    Source: Dettmers et al. (arXiv 2305.14314), section 3. Departure: scales are not quantized a second time.
    """
    problem = _misfit(kernel.shape, kernel.dtype)
    if problem:
        raise ValueError(f"quantize: {problem}")
    quantized: Nf4Kernel = _quantize(kernel, jnp.dtype(scale_dtype))
    return quantized


def _misfit(shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> str:
    """Says why a kernel cannot be quantized; empty if it can."""
    if len(shape) < 2 or not jnp.issubdtype(dtype, jnp.floating):
        return f"expected a floating kernel [..., in, out], got {jnp.dtype(dtype).name} {list(shape)}"
    if shape[-2] % BLOCK:
        return (
            f"expected an input size that is a multiple of {BLOCK} (one scale per {BLOCK} inputs), got {shape[-2]} "
            f"in shape {list(shape)}; keep this model's weights unquantized"
        )
    return ""


@jax.jit(static_argnames="scale_dtype")
def _quantize(kernel: jax.Array, scale_dtype: jnp.dtype) -> Nf4Kernel:
    *leading, rows, columns = kernel.shape
    blocks = kernel.astype(jnp.float32).reshape(*leading, rows // BLOCK, BLOCK, columns)
    scales = jnp.max(jnp.abs(blocks), axis=-2).astype(scale_dtype)
    divisor = jnp.where(scales == 0, jnp.ones_like(scales), scales).astype(jnp.float32)
    normed = blocks / divisor[..., :, None, :]
    # Between two neighbours of the table the nearer one changes at their midpoint: the number of midpoints passed.
    codes = jnp.zeros(normed.shape, jnp.uint8)
    for low, high in itertools.pairwise(NF4):
        codes += (normed > (low + high) / 2).astype(jnp.uint8)
    pairs = codes.reshape(*leading, rows // 2, 2, columns)
    return Nf4Kernel(codes=(pairs[..., 0, :] << 4) | pairs[..., 1, :], scales=scales)


def is_quantized(leaf: object) -> bool:
    """Whether a leaf is in nf4; the `is_leaf` that makes `jax.tree.map` stop at kernels."""
    return isinstance(leaf, Nf4Kernel)


def quantize_params(params: Tree, *, scale_dtype: jax.typing.DTypeLike = jnp.float32) -> Tree:
    """Returns the weights with every projection kernel of the layers in nf4.

    Embeddings, norms, biases and the output head stay as they are. Both layouts of the weights are served. For
    shapes alone use ``jax.eval_shape(quantize_params, abstract)``.

    Raises:
      WeightsError: naming every kernel whose input size is not a multiple of 64.
    """
    kernels = {path: leaf for path, leaf in by_path(params).items() if _is_kernel(path)}
    misfits = {"/".join(path): _misfit(leaf.shape, leaf.dtype) for path, leaf in kernels.items()}
    problems = [f"  - {name}: {problem}" for name, problem in misfits.items() if problem]
    if problems:
        raise WeightsError("quantize_params: these kernels cannot be stored in nf4:\n" + "\n".join(problems))
    return jax.tree.map_with_path(
        lambda keys, leaf: quantize(leaf, scale_dtype=scale_dtype) if _is_kernel(path_of(keys)) else leaf, params
    )


def _is_kernel(path: Path) -> bool:
    return path[0] == "layers" and path[-1] == "kernel"


def dequantize_params(params: Tree, dtype: jax.typing.DTypeLike) -> Tree:
    """Returns the weights with every nf4 kernel as an array of `dtype`; all else stays as it is."""
    return jax.tree.map(
        lambda leaf: leaf.dequantize(dtype) if is_quantized(leaf) else leaf, params, is_leaf=is_quantized
    )


def quantized_shardings(config: DecoderConfig, mesh: Mesh, rules: Rules = DEFAULT_RULES) -> Tree:
    """Returns the sharding of every quantized weight, in the shape of the unrolled quantized weights.

    Codes and scales take the split of the kernel they came from (`param_shardings`). The input axis is cut only
    between blocks; if the devices along it do not divide the number of blocks, it is replicated over them.

    Raises:
      WeightsError: naming every kernel whose input size is not a multiple of 64.
      ValueError: if the rules split one array twice over the same mesh axis.
    """
    abstract = jax.eval_shape(quantize_params, abstract_params(config))

    def place(leaf: jax.ShapeDtypeStruct | Nf4Kernel, sharding: NamedSharding) -> NamedSharding | Nf4Kernel:
        if not isinstance(leaf, Nf4Kernel):
            return sharding
        inputs, outputs = sharding.spec
        whole = inputs is None or leaf.scales.shape[0] % mesh.shape[inputs]
        spec = PartitionSpec(None if whole else inputs, outputs)  # type: ignore[no-untyped-call]  # jax leaves it untyped
        placed: Any = NamedSharding(mesh, spec)
        return Nf4Kernel(codes=placed, scales=placed)

    return jax.tree.map(place, abstract, param_shardings(config, mesh, rules), is_leaf=is_quantized)

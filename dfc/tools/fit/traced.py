"""Exact operation counts of a program, read from its traced form; nothing is compiled.

A compiler's own cost analysis counts the body of a loop once, however often it runs, and sees nothing inside a kernel.
The traced program (jaxpr) states every loop length. The counts are those of the whole program over all devices, before
it is split: divided by the number of devices they are a lower bound of one device's work, which replication raises.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.interpreters import partial_eval

# Matrix products of fused attention, each 2 x queries x keys x head size operations per head.
_CUDNN_PRODUCTS = {"dot_product_attention_fwd": 2, "dot_product_attention_bwd": 5}


@dataclasses.dataclass(frozen=True)
class Count:
    """What a program does; numbers are of the whole program over all devices.

    Attributes:
      flops: of matrix products, a multiply and an add being two.
      kernel_flops: of attention kernels, by formula, half of the square counted (causal masks).
      carried_bytes: what loops write for, or read from, another loop: residuals saved for a backward pass are counted
        at both ends.
      unknown: operations whose number of repetitions the traced program does not state; they are counted once.
    """

    flops: float = 0.0
    kernel_flops: float = 0.0
    carried_bytes: float = 0.0
    unknown: tuple[str, ...] = ()

    @property
    def total_flops(self) -> float:
        """Matrix products, kernels included."""
        return self.flops + self.kernel_flops

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.flops + other.flops,
            self.kernel_flops + other.kernel_flops,
            self.carried_bytes + other.carried_bytes,
            tuple(dict.fromkeys(self.unknown + other.unknown)),
        )

    def __mul__(self, times: float) -> "Count":
        return Count(self.flops * times, self.kernel_flops * times, self.carried_bytes * times, self.unknown)


Trips = tuple[int, ...]  # of loops within each other, the outermost first


def count(program: ClosedJaxpr, loop_trips: Trips = ()) -> Count:
    """Returns what a traced program (``jax.jit(f).trace(...).jaxpr`` or ``jax.make_jaxpr``) does.

    Operations whose results are unused are left out first, as a compiler does: the recomputation of a layer for its
    backward pass ends before the layer's last product. `loop_trips` says how often to count the body of a loop whose
    length is data, such as one that ends when all rows have ended; of such loops within each other the outermost first.
    Those beyond them are counted once, and `Count.unknown` names them.
    """
    live, _ = partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))
    return _walk(live, loop_trips)


def _bytes(value: Any) -> float:  # noqa: ANN401 - jax leaves variables of a jaxpr untyped
    shape = getattr(value.aval, "shape", ())
    size = getattr(getattr(value.aval, "dtype", None), "itemsize", 0)
    return float(math.prod(shape) * size)


def _walk(jaxpr: Jaxpr, loop_trips: Trips) -> Count:
    return sum((_equation(equation, loop_trips) for equation in jaxpr.eqns), Count())


def _equation(equation: Any, loop_trips: Trips) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    name = equation.primitive.name
    known = _RULES.get(name)
    if known is not None:
        return known(equation, loop_trips)
    if name.removesuffix("_wrapper") in _CUDNN_PRODUCTS:
        return _cudnn(equation)
    return sum((_walk(inner, loop_trips) for inner in _inner(equation.params)), Count())


def _scan(equation: Any, loop_trips: Trips) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    params = equation.params
    passed = params["num_consts"] + params["num_carry"]
    outer = [*equation.invars[passed:], *equation.outvars[params["num_carry"] :]]
    length: int = params["length"]
    return _walk(params["jaxpr"].jaxpr, loop_trips) * length + Count(carried_bytes=sum(map(_bytes, outer)))


def _while(equation: Any, loop_trips: Trips) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    inside = equation.params["body_jaxpr"].jaxpr
    trips = _trips(equation)
    if trips is not None:
        return _walk(inside, loop_trips) * trips
    body = _walk(inside, loop_trips[1:])
    if loop_trips:
        return body * loop_trips[0]
    return body + Count(unknown=("a while loop without a fixed number of rounds",)) if body.total_flops else body


def _cond(equation: Any, loop_trips: Trips) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    branches = (_walk(branch.jaxpr, loop_trips) for branch in equation.params["branches"])
    return max(branches, key=lambda found: found.total_flops)


def _shard_map(equation: Any, loop_trips: Trips) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    mesh = equation.params["mesh"]
    manual = equation.params.get("manual_axes") or mesh.axis_names
    devices: int = math.prod(mesh.shape[axis] for axis in manual)
    return _walk(_open(equation.params["jaxpr"]), loop_trips) * devices


def _cudnn(equation: Any) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    products = _CUDNN_PRODUCTS[equation.primitive.name.removesuffix("_wrapper")]
    query, key = equation.invars[0].aval.shape, equation.invars[1].aval.shape  # [B, T, N, H], [B, S, K, H]
    return Count(kernel_flops=float(products * math.prod(query) * key[1]))  # 2 x T x S x H, halved


def _product(equation: Any, _: Trips) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    depth = math.prod(left[axis] for axis in contracted)
    return Count(flops=2.0 * math.prod(equation.outvars[0].aval.shape) * depth)


def _open(jaxpr: Jaxpr | ClosedJaxpr) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def _inner(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """Yields the programs an equation calls once; of a function with its own derivative, the function."""
    for value in params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Jaxpr | ClosedJaxpr):
                yield _open(part)


def _trips(equation: Any) -> int | None:  # noqa: ANN401 - jax leaves equations untyped
    """Returns how often a loop ``i < bound, i += step`` runs if start, bound and step are constants, else None."""
    params = equation.params
    condition, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    if len(condition.eqns) != 1 or condition.eqns[0].primitive.name != "lt":
        return None
    index, bound = condition.eqns[0].invars
    if isinstance(index, Literal) or index not in condition.invars:
        return None
    place = condition.invars.index(index) - params["cond_nconsts"]
    before = params["cond_nconsts"] + params["body_nconsts"]
    start = equation.invars[before + place]
    if not isinstance(bound, Literal) or not isinstance(start, Literal):
        return None
    result, carried = body.outvars[place], body.invars[params["body_nconsts"] + place]
    steps = [
        e.invars[1].val
        for e in body.eqns
        if e.primitive.name == "add"
        and e.outvars[0] is result
        and e.invars[0] is carried
        and isinstance(e.invars[1], Literal)
    ]
    if len(steps) != 1 or int(steps[0]) < 1:
        return None
    return max(0, -(-(int(bound.val) - int(start.val)) // int(steps[0])))


def _kernel(equation: Any, _: Trips) -> Count:  # noqa: ANN401 - jax leaves equations untyped
    """An attention kernel by formula: products in its body x queries x keys x head size x 2, times the share they see.

    Of whole sequences, half: its grid visits tiles and skips those the mask hides, which the traced program does not
    state; the formula is exact but for tiles on the diagonal, counted half and computed whole. Of slots, all: the rows
    are at the end of theirs; a TPU's kernel has a pair of products for every head in its body, and counts as one pair.
    A window shortens the work further.
    """
    products = _dots(_open(equation.params["jaxpr"]))
    if not products:
        return Count()
    arrays = [v.aval.shape for v in equation.invars if len(v.aval.shape) >= 3 and v.aval.dtype.kind not in "iub"]
    label = str(equation.params.get("name") or equation.params.get("name_and_src_info") or "a kernel")
    share = next((share for name, share in _KERNELS.items() if name in label), None)
    if len(arrays) < 2 or share is None:
        return Count(unknown=(f"kernel {label}",))
    query, key = arrays[0], arrays[1]  # [..., N, T, H], [..., K, S, H]
    if "ragged" in label:  # [tokens, N, H] and pages [.., positions, 2K, H], of which every row has a list [R, pages]
        pages = max(v.aval.shape[1] for v in equation.invars if len(v.aval.shape) == 2)
        return Count(kernel_flops=float(2 * 2 * math.prod(query) * pages * key[1]))
    return Count(kernel_flops=float(2 * share * products * math.prod(query) * key[-2]))


_KERNELS = {
    "splash": 0.5,
    "attend_slots": 1.0,
    "ragged_paged_attention": 1.0,
}  # by name, the share of their pairs that see one another


def _dots(jaxpr: Jaxpr) -> int:
    """Returns the number of products in one visit of a tile; of branches, the largest number."""
    found = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found += 1
        elif equation.primitive.name == "cond":
            found += max(_dots(branch.jaxpr) for branch in equation.params["branches"])
        else:
            found += sum(_dots(inner) for inner in _inner(equation.params))
    return found


_RULES: Mapping[str, Callable[[Any, Trips], Count]] = {
    "dot_general": _product,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "shard_map": _shard_map,
    "pallas_call": _kernel,
    "conv_general_dilated": lambda *_: Count(unknown=("a convolution",)),
}

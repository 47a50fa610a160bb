"""Counts from a traced program against counts by hand, and against the compiler's where no loop hides anything."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, PartitionSpec

from dfc.models.attention import AttentionSpec
from dfc.models.cache_kernels import flash_prefill, ragged
from dfc.tools.fit.traced import count

A, B = jnp.ones((4, 8)), jnp.ones((8, 16))
ONE = 2 * 4 * 8 * 16


def flops(f, *args):
    return count(jax.make_jaxpr(f)(*args)).flops


def test_a_product_is_two_operations_per_term():
    assert flops(jnp.matmul, A, B) == ONE


def test_batched_and_multiply_contracted_products_agree_with_the_compiler():
    x, y = jnp.ones((3, 4, 8, 2)), jnp.ones((3, 8, 2, 5))

    def f(x, y):
        return jnp.einsum("bijk,bjkl->bil", x, y)

    assert flops(f, x, y) == 2 * 3 * 4 * 8 * 2 * 5


def test_a_scan_counts_its_body_as_often_as_it_runs():
    def f(a, kernels):
        return jax.lax.scan(lambda x, k: (jnp.tanh(x @ k), None), a, kernels)[0]

    x, kernels = jnp.ones((4, 8)), jnp.ones((7, 8, 8))
    assert flops(f, x, kernels) == 7 * 2 * 4 * 8 * 8
    # The compiler's analysis, for comparison, knows one round only, or the unrolled loop exactly.
    unrolled = jax.jit(lambda x: [x := jnp.tanh(x @ k) for k in kernels][-1])
    compiled = unrolled.lower(x).compile().cost_analysis()["flops"]
    assert compiled >= flops(f, x, kernels)
    assert compiled < 1.1 * flops(f, x, kernels)


def test_loops_nest():
    def inner(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: y @ jnp.ones((8, 8)), x)

    def f(x):
        return jax.lax.scan(lambda x, _: (inner(x), None), x, None, length=5)[0]

    assert flops(f, jnp.ones((4, 8))) == 15 * 2 * 4 * 8 * 8


def test_a_while_loop_with_constant_bounds_is_counted():
    def f(x):
        return jax.lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 3, c[1] @ jnp.ones((8, 8))), (0, x))[1]

    found = count(jax.make_jaxpr(f)(jnp.ones((4, 8))))
    assert found.flops == 4 * 2 * 4 * 8 * 8
    assert not found.unknown


def test_a_loop_of_unknown_length_is_named_and_counted_once():
    def f(x):
        return jax.lax.while_loop(lambda x: x.sum() < 1, lambda x: x @ jnp.ones((8, 8)), x)

    found = count(jax.make_jaxpr(f)(jnp.ones((4, 8))))
    assert found.flops == 2 * 4 * 8 * 8
    assert found.unknown


def test_a_loop_whose_length_is_data_counts_as_often_as_is_stated():
    kernel = jnp.ones((8, 8))

    def inner(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: y @ kernel, x)

    def f(x, limit):
        return jax.lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, inner(c[1]) @ kernel), (0, x @ kernel))

    found = count(jax.make_jaxpr(f)(jnp.ones((4, 8)), 7), loop_trips=(5,))
    assert found.flops == (1 + 5 * (3 + 1)) * 2 * 4 * 8 * 8
    assert found.unknown == ()


def test_of_loops_within_each_other_the_statement_is_about_the_outermost():
    def search(x):
        return jax.lax.while_loop(lambda x: x.sum() < 1, lambda x: x @ jnp.ones((8, 8)), x)

    def f(x):
        return jax.lax.while_loop(lambda x: x.sum() < 1, search, x)

    found = count(jax.make_jaxpr(f)(jnp.ones((4, 8))), loop_trips=(5,))
    assert found.flops == 5 * 2 * 4 * 8 * 8
    assert found.unknown


def test_of_branches_the_dearest_counts():
    def f(flag, a, b):
        return jax.lax.cond(flag, lambda: a @ b, lambda: (a @ b) @ b.T @ b)

    assert flops(f, A[0, 0] > 0, A, B) == 3 * ONE


def test_rematerialisation_is_counted_and_its_dead_end_is_not():
    @jax.checkpoint
    def block(x, first, second):
        return jnp.sin(x @ first) @ second

    def loss(first, second, x):
        return block(x, first, second).sum()

    x, first, second = jnp.ones((4, 8)), jnp.ones((8, 8)), jnp.ones((8, 8))
    # Forward 2 products, of which the second is dead if only gradients are wanted; again forward: 1, for the sine's
    # argument; backward: 2 for the second, 1 for the first whose input needs no gradient.
    value_and_gradient = flops(jax.value_and_grad(loss, argnums=(0, 1)), first, second, x)
    assert value_and_gradient == (2 + 1 + 3) * 2 * 4 * 8 * 8


def test_a_function_with_its_own_derivative_is_counted_once():
    @jax.custom_vjp
    def f(a, b):
        return a @ b

    f.defvjp(lambda a, b: (a @ b, (a, b)), lambda r, g: (g @ r[1].T, r[0].T @ g))
    assert flops(f, A, B) == ONE
    assert flops(jax.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1)), A, B) == 3 * ONE - ONE  # the value is not used


def test_a_mapped_program_counts_on_every_device():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    f = jax.shard_map(
        jnp.matmul, mesh=mesh, in_specs=(PartitionSpec("x"), PartitionSpec()), out_specs=PartitionSpec("x")
    )
    assert flops(f, A, B) == ONE


def test_residuals_are_counted_where_they_are_written_and_where_they_are_read():
    def loss(kernels, x):
        def body(x, k):
            return jnp.sin(x @ k), None

        return jax.lax.scan(jax.checkpoint(body), x, kernels)[0].sum()

    kernels, x = jnp.ones((5, 8, 8)), jnp.ones((4, 8))
    found = count(jax.make_jaxpr(jax.grad(loss))(kernels, x))
    residuals = 5 * 4 * 8 * 4  # five layer inputs, float32
    weights = kernels.nbytes  # read forward, read backward, gradient written
    assert found.carried_bytes == 2 * residuals + 3 * weights


@pytest.mark.parametrize(("segments", "heads"), [(1, 2), (2, 4)])
def test_splash_attention_is_half_the_square_forward_and_seven_products_backward(segments, heads):
    kernel = pytest.importorskip("jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel")
    masks = pytest.importorskip("jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask")
    length, size = 256, 128
    block = kernel.BlockSizes(
        block_q=128, block_kv=128, block_kv_compute=128, block_q_dkv=128, block_kv_dkv=128,
        block_kv_dkv_compute=128, block_q_dq=128, block_kv_dq=128,
    )  # fmt: skip
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    attend = kernel.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=block)
    x = jnp.ones((heads, length, size))
    segment_ids = kernel.SegmentIds(
        q=jnp.full((length,), segments, jnp.int32), kv=jnp.full((length,), segments, jnp.int32)
    )
    square = heads * length * length * size  # one product over half of it
    forward = count(jax.make_jaxpr(lambda x: attend(x, x, x, segment_ids))(x))
    assert forward.kernel_flops == 2 * square
    both = count(jax.make_jaxpr(jax.grad(lambda x: attend(x, x, x, segment_ids).sum()))(x))
    assert both.kernel_flops == (2 + 3 + 4) * square
    assert not both.unknown


def test_a_kernel_over_slots_is_counted_to_their_ends():
    shape = jax.ShapeDtypeStruct
    query, cache, numbers = shape((4, 8, 1, 64), "bfloat16"), shape((16, 2, 256, 64), "bfloat16"), shape((4,), "int32")
    program = jax.make_jaxpr(lambda *given: flash_prefill(*given, AttentionSpec(0.1)))
    found = count(program(query, cache, cache, numbers, numbers))
    assert found.kernel_flops == 2 * 2 * 4 * 8 * 64 * 256  # keys and values: two operations for every pair and number
    assert found.unknown == ()
    pages = shape((16, 1024, 16, 128), "bfloat16")  # eight heads' keys and values, read in two pieces a slot
    program = jax.make_jaxpr(lambda *given: ragged(*given, AttentionSpec(0.1)))
    for tokens in (1, 3):
        found = count(program(shape((4, 16, tokens, 128), "bfloat16"), pages, numbers, numbers))
        assert found.kernel_flops == 2 * 2 * 4 * 16 * tokens * 128 * 1024
        assert found.unknown == ()

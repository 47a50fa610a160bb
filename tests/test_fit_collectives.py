"""Traffic of compiled programs, by hand and from small programs compiled for eight CPU devices."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dfc.tools.fit.collectives import group_members, traffic

FUSED = """\
HloModule m

%start (p: bf16[1,8]) -> bf16[4,8] {
  %p = bf16[1,8]{1,0} parameter(0)
  ROOT %g.1 = bf16[4,8]{1,0} all-gather(%p), channel_id=7, replica_groups=[2,4]<=[8], dimensions={0}
}

%middle (p.1: bf16[1,8]) -> bf16[4,8] {
  %p.1 = bf16[1,8]{1,0} parameter(0)
  ROOT %g.2 = bf16[4,8]{1,0} all-gather(%p.1), channel_id=7, replica_groups=[2,4]<=[8], dimensions={0}
}

%condition (c: (s32[], bf16[1,8])) -> pred[] {
  %limit = s32[] constant(9)
  %c = (s32[], bf16[1,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  ROOT %lt = pred[] compare(%i, %limit), direction=LT
}

%body (b: (s32[], bf16[1,8])) -> (s32[], bf16[1,8]) {
  %b = (s32[], bf16[1,8]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%b), index=0
  %x = bf16[1,8]{1,0} get-tuple-element(%b), index=1
  %two = s32[] constant(2)
  %next = s32[] add(%j, %two)
  %f1 = bf16[4,8]{1,0} fusion(%x), kind=kLoop, calls=%start
  %f2 = bf16[4,8]{1,0} fusion(%x), kind=kLoop, calls=%middle
  ROOT %t = (s32[], bf16[1,8]{1,0}) tuple(%next, %x)
}

ENTRY %main (a: bf16[1,8]) -> bf16[1,8] {
  %a = bf16[1,8]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], bf16[1,8]{1,0}) tuple(%zero, %a)
  %loop = (s32[], bf16[1,8]{1,0}) while(%init), condition=%condition, body=%body
  ROOT %out = bf16[1,8]{1,0} get-tuple-element(%loop), index=1
}
"""


def test_a_collective_spread_over_fusions_counts_once_per_round_and_rounds_respect_the_step():
    found = traffic(FUSED, 8)
    assert found.calls == {"all-gather": 5}  # 0, 2, 4, 6, 8
    assert found.sent["all-gather"] == 5 * 4 * 8 * 2 * 3 / 4
    assert found.unknown == 0


def test_a_loop_whose_length_is_data_sends_as_often_as_is_stated():
    text = FUSED.replace("direction=LT", "direction=NE")
    once, stated = traffic(text, 8), traffic(text, 8, loop_trips=7)
    assert (once.calls, once.unknown) == ({"all-gather": 1}, 1)
    assert (stated.calls, stated.unknown) == ({"all-gather": 7}, 0)
    assert stated.total == 7 * once.total
    assert traffic(FUSED, 8, loop_trips=7) == traffic(FUSED, 8)  # what the text says goes first


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("replica_groups={{0,1},{2,3}}", [0, 1]),
        ("replica_groups=[2,4]<=[8], x", [0, 1, 2, 3]),
        ("replica_groups=[2,4]<=[4,2]T(1,0), x", [0, 2, 4, 6]),
        ("replica_groups=mesh['a'=4,'b'=2] {'a','b'}, x", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("replica_groups=mesh['a'=4,'b'=2] {'a'}, x", [0, 2, 4, 6]),
        ("source_target_pairs={{3,4},{4,5}}", [3, 4]),
        ("replica_groups={}", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_groups_are_read_in_every_notation(text, members):
    assert group_members(text, 8) == members


def test_sending_beyond_the_devices_that_links_join_is_told_apart():
    text = FUSED.replace("[2,4]<=[8]", "[8,2]<=[2,8]T(1,0)")
    assert traffic(text, 16).crossing == traffic(text, 16).total
    assert traffic(text, 16, joined=72).crossing == 0  # as in a rack of GB200
    assert traffic(FUSED, 8).crossing == 0


def compiled(f, in_spec, *shapes):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    arguments = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in zip(shapes, in_spec, strict=True)
    ]
    return jax.jit(f, out_shardings=NamedSharding(mesh, PartitionSpec())).lower(*arguments).compile().as_text()


def test_an_all_reduce_sends_nearly_twice_its_result():
    text = compiled(jnp.matmul, (PartitionSpec(None, "x"), PartitionSpec("x")), (16, 64), (64, 32))
    found = traffic(text, 8)
    assert found.calls == {"all-reduce": 1}
    assert found.total == 2 * 16 * 32 * 4 * 7 / 8


def test_a_loop_multiplies_what_is_sent_in_it():
    def f(x, kernels):
        return jax.lax.scan(lambda x, k: (jnp.tanh(x @ k), None), x, kernels)[0]

    text = compiled(f, (PartitionSpec(), PartitionSpec(None, "x")), (16, 64), (5, 64, 64))
    found = traffic(text, 8)
    assert sum(found.calls.values()) >= 5
    assert found.unknown == 0


def test_a_program_on_one_device_sends_nothing():
    text = jax.jit(jnp.matmul).lower(jnp.ones((4, 4)), jnp.ones((4, 4))).compile().as_text()
    assert traffic(text, 1).total == 0

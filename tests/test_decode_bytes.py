"""What is counted in the text of a compiled decode program, on a text small enough to count by hand."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "decode_bytes.py"
# A loop that writes two rows of 4 numbers into a cache of 8 slots x 16 positions, reads it by a kernel, multiplies by
# weights, looks up 2 of 100 rows of a table, and copies to a TPU's fast memory.
TEXT = """
HloModule jit__decode

%fused_scatter (param_0: bf16[8,16,4], param_1: s32[2,2], param_2: bf16[2,1,4]) -> bf16[8,16,4] {
  %param_0 = bf16[8,16,4]{2,1,0} parameter(0)
  %param_1 = s32[2,2]{1,0} parameter(1)
  %param_2 = bf16[2,1,4]{2,1,0} parameter(2)
  ROOT %scatter.1 = bf16[8,16,4]{2,1,0} scatter(%param_0, %param_1, %param_2), to_apply=%region
}

%fused_gather (param_0: f32[100,4], param_1: s32[2,1]) -> f32[2,4] {
  %param_0 = f32[100,4]{1,0} parameter(0)
  %param_1 = s32[2,1]{1,0} parameter(1)
  ROOT %gather.1 = f32[2,4]{1,0} gather(%param_0, %param_1), offset_dims={1}
}

%body (arg: (bf16[8,16,4], s32[2,2], bf16[2,1,4], bf16[64,4], f32[100,4], s32[2,1])) -> bf16[8,16,4] {
  %arg = (bf16[8,16,4]{2,1,0}, s32[2,2]{1,0}, bf16[2,1,4]{2,1,0}, bf16[64,4]{1,0}) parameter(0)
  %cache = bf16[8,16,4]{2,1,0} get-tuple-element(%arg), index=0
  %place = s32[2,2]{1,0} get-tuple-element(%arg), index=1
  %new = bf16[2,1,4]{2,1,0} get-tuple-element(%arg), index=2
  %weights = bf16[64,4]{1,0} get-tuple-element(%arg), index=3
  %table = f32[100,4]{1,0} get-tuple-element(%arg), index=4
  %row = s32[2,1]{1,0} get-tuple-element(%arg), index=5
  %written = bf16[8,16,4]{2,1,0} fusion(%cache, %place, %new), kind=kInput, calls=%fused_scatter
  %attended = f32[2,4]{1,0} custom-call(%new, %written), custom_call_target="__gpu$xla.gpu.triton"
  %product = f32[2,64]{1,0} dot(%attended, %weights), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %looked_up = f32[2,4]{1,0} fusion(%table, %row), kind=kLoop, calls=%fused_gather
  %fetch = (bf16[64,4]{1,0:S(1)}, bf16[64,4]{1,0}, u32[]) copy-start(%weights), cross_program_prefetch_index=0
EXTRA
  ROOT %tuple.1 = (bf16[8,16,4]{2,1,0}) tuple(%written)
}

%condition (arg: (bf16[8,16,4])) -> pred[] {
  ROOT %true = pred[] constant(true)
}

ENTRY %main (arg: (bf16[8,16,4])) -> bf16[8,16,4] {
  %arg = (bf16[8,16,4]{2,1,0}) parameter(0)
  ROOT %while.1 = (bf16[8,16,4]{2,1,0}) while(%arg), condition=%condition, body=%body
}
"""
CACHE = 8 * 16 * 4 * 2
BY_HAND = (
    (2 * 2 * 4 + 2 * 1 * 4 * 2 + 2 * 1 * 4 * 2)  # written in place: where, what, and that it is written
    + (2 * 1 * 4 * 2 + 2 * 4 * 4)  # the kernel without its cache
    + (2 * 4 * 4 + 64 * 4 * 2 + 2 * 64 * 4)  # a product
    + (2 * 4 * 4 + 2 * 1 * 4 + 2 * 4 * 4)  # two rows of the table
    + (64 * 4 * 2 + 4)  # read into fast memory, and a mark
)


@pytest.fixture(scope="module")
def step():
    return runpy.run_path(str(SCRIPT), run_name="decode_bytes")["step"]


def test_a_step_is_what_its_instructions_read_and_write(step):
    found = step(TEXT.replace("EXTRA\n", ""), {CACHE}, {16})
    assert found == {"bytes": BY_HAND, "kernels": 1, "made": []}


@pytest.mark.parametrize(
    ("extra", "moved"),
    [
        ("  %copied = bf16[8,16,4]{2,1,0} copy(%written)\n", 2 * CACHE),
        ('  %scores = f32[2,16]{1,0} custom-call(%attended), custom_call_target="other"\n', 2 * 4 * 4 + 2 * 16 * 4),
    ],
)
def test_a_copy_of_the_cache_and_scores_are_named(step, extra, moved):
    found = step(TEXT.replace("EXTRA\n", extra), {CACHE}, {16})
    assert len(found["made"]) == 1
    assert found["bytes"] == BY_HAND + moved

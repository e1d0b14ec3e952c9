"""Bytes of single instructions, worked out by hand."""

import pytest
from layerbench_tests_programs import module

from layerbench.measure.program.analysis import analyse

BIG = 7 * 64 * 4  # f32[7,64]
ROW = 64 * 4


def fused(*lines):
    body = "\n".join(f"  {line}" for line in lines)
    return f"%f (p: f32[]) -> f32[] {{\n{body}\n}}\n"


def moved(*lines, computations="", platform="cpu"):
    """Bytes read and written by the last instruction of an entry with some arguments."""
    text = module(
        "%big = f32[7,64]{1,0} parameter(0)",
        "%row = f32[1,64]{1,0} parameter(1)",
        "%i = s32[] parameter(2)",
        "%chip = f32[7,64]{1,0:S(1)} parameter(3)",
        *lines,
        entry="(a: f32[]) -> f32[]",
        computations=computations,
    )
    traffic = analyse(text, platform).movements[-1].traffic
    return sum(read.bytes for read in traffic.reads), traffic.written


def fusion(root_shape, operands, *lines, platform="cpu"):
    call = f"ROOT %r = {root_shape} fusion({operands}), kind=kLoop, calls=%f"
    return moved(call, computations=fused(*lines), platform=platform)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("copy(%big)", (BIG, BIG)),
        ("negate(%big)", (BIG, BIG)),
        ("add(%big, %big)", (2 * BIG, BIG)),
        ("dynamic-update-slice(%big, %row, %i, %i)", (ROW + 8, ROW)),
    ],
)
def test_plain_instructions_read_operands_and_write_results(line, expected):
    assert moved(f"ROOT %r = f32[7,64]{{1,0}} {line}") == expected


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("slice(%big), slice={[0:1], [0:64]}", ROW),
        ("dynamic-slice(%big, %i, %i), dynamic_slice_sizes={1,64}", ROW + 8),
        ("gather(%big, %i), slice_sizes={1,64}", ROW + 4),
    ],
)
def test_a_slice_is_read_as_far_as_it_reaches(line, reads):
    assert moved(f"ROOT %r = f32[1,64]{{1,0}} {line}") == (reads, ROW)


def test_views_tuples_and_reserved_buffers_move_nothing():
    text = module(
        "%p = f32[7]{0} parameter(0)",
        "%b = f32[7,1]{1,0} bitcast(%p)",
        '%a = f32[7]{0} custom-call(), custom_call_target="AllocateBuffer"',
        '%c = f32[14]{0} custom-call(%p, %p), custom_call_target="ConcatBitcast"',
        "ROOT %t = (f32[7,1]{1,0}, f32[7]{0}, f32[14]{0}) tuple(%b, %a, %c)",
        entry="(p: f32[7]) -> f32[7]",
    )
    assert analyse(text, "tpu").movements == ()


@pytest.mark.parametrize(("platform", "expected"), [("tpu", (0, BIG)), ("gpu", (BIG, BIG))])
def test_memory_space_one_is_on_the_chip_of_a_tpu_and_main_memory_of_a_gpu(platform, expected):
    assert moved("ROOT %r = f32[7,64]{1,0} copy(%chip)", platform=platform) == expected


def test_an_asynchronous_copy_counts_once_at_its_start():
    text = module(
        "%p = f32[7]{0} parameter(0)",
        "%s = (f32[7]{0:S(1)}, f32[7]{0}, u32[]{:S(2)}) copy-start(%p)",
        "%d = f32[7]{0:S(1)} copy-done(%s)",
        "ROOT %r = f32[7]{0} negate(%d)",
        entry="(p: f32[7]) -> f32[7]",
    )
    start, negate = analyse(text, "tpu").movements
    assert (start.traffic.bytes, negate.traffic.bytes) == (28, 28)


def test_an_asynchronous_fusion_counts_its_result_and_not_its_context():
    text = module(
        "%p = f32[7]{0} parameter(0)",
        "%s = ((f32[7]{0}), f32[7]{0}, u32[]) fusion-start(%p), kind=kLoop, calls=%f",
        "ROOT %d = f32[7]{0} fusion-done(%s)",
        entry="(p: f32[7]) -> f32[7]",
        computations=fused("%p = f32[7]{0} parameter(0)", "ROOT %n = f32[7]{0} negate(%p)"),
    )
    (start,) = analyse(text, "gpu").movements
    assert start.traffic.bytes == 2 * 28


def test_a_fused_slice_reads_the_slice_alone_also_behind_other_operations():
    reads, written = fusion(
        "f32[1,64]{1,0}",
        "%big, %i",
        "%p = f32[7,64]{1,0} parameter(0)",
        "%i = s32[] parameter(1)",
        "%n = f32[7,64]{1,0} negate(%p)",
        "%b = f32[7,64]{1,0} bitcast(%n)",
        "ROOT %s = f32[1,64]{1,0} dynamic-slice(%b, %i, %i), dynamic_slice_sizes={1,64}",
    )
    assert (reads, written) == (ROW + 4, ROW)


def test_a_parameter_that_is_sliced_and_used_whole_is_read_once():
    reads, _ = fusion(
        "f32[7,64]{1,0}",
        "%big",
        "%p = f32[7,64]{1,0} parameter(0)",
        "%s = f32[1,64]{1,0} slice(%p), slice={[0:1], [0:64]}",
        "%w = f32[7,64]{1,0} broadcast(%s), dimensions={0,1}",
        "ROOT %a = f32[7,64]{1,0} add(%p, %w)",
    )
    assert reads == BIG


def test_a_parameter_that_nobody_uses_is_not_read():
    reads, _ = fusion(
        "f32[1,64]{1,0}",
        "%big, %row",
        "%p = f32[7,64]{1,0} parameter(0)",
        "%q = f32[1,64]{1,0} parameter(1)",
        "ROOT %n = f32[1,64]{1,0} negate(%q)",
    )
    assert reads == ROW


UPDATE = (
    "%p = f32[7,64]{1,0} parameter(0)",
    "%q = f32[1,64]{1,0} parameter(1)",
    "%i = s32[] parameter(2)",
    "%n = f32[1,64]{1,0} negate(%q)",
)


def test_a_fused_update_in_place_writes_the_update_and_reads_none_of_the_buffer():
    assert fusion(
        "f32[7,64]{1,0}",
        "%big, %row, %i",
        *UPDATE,
        "ROOT %d = f32[7,64]{1,0} dynamic-update-slice(%p, %n, %i, %i)",
    ) == (ROW + 4, ROW)


def test_a_chain_of_updates_writes_each_of_them():
    assert fusion(
        "f32[7,64]{1,0}",
        "%big, %row, %i",
        *UPDATE,
        "%d = f32[7,64]{1,0} dynamic-update-slice(%p, %n, %i, %i)",
        "%b = f32[7,64]{1,0} bitcast(%d)",
        "ROOT %e = f32[7,64]{1,0} dynamic-update-slice(%b, %q, %i, %i)",
    ) == (ROW + 4, 2 * ROW)


def test_an_update_of_a_new_buffer_writes_all_of_it():
    assert fusion(
        "f32[7,64]{1,0}",
        "%big, %row, %i",
        *UPDATE,
        "%z = f32[] constant(0)",
        "%w = f32[7,64]{1,0} broadcast(%z), dimensions={}",
        "ROOT %d = f32[7,64]{1,0} dynamic-update-slice(%w, %n, %i, %i)",
    ) == (ROW + 4, BIG)


def test_an_updated_buffer_that_is_read_as_well_counts_what_is_read():
    reads, written = fusion(
        "(f32[7,64]{1,0}, f32[7,64]{1,0})",
        "%big, %row, %i",
        *UPDATE,
        "%d = f32[7,64]{1,0} dynamic-update-slice(%p, %n, %i, %i)",
        "%m = f32[7,64]{1,0} negate(%p)",
        "ROOT %t = (f32[7,64]{1,0}, f32[7,64]{1,0}) tuple(%d, %m)",
    )
    assert (reads, written) == (BIG + ROW + 4, ROW + BIG)


def test_a_scatter_in_place_reads_and_writes_as_much_as_it_updates():
    assert moved("ROOT %r = f32[7,64]{1,0} scatter(%big, %i, %row), to_apply=%f",
                 computations=fused("ROOT %p = f32[] parameter(0)")) == (2 * ROW + 4, ROW)  # fmt: skip


def test_results_that_nobody_reads_are_not_written():
    text = module(
        "%p = f32[7]{0} parameter(0)",
        '%c = (f32[7]{0}, s8[4096]{0}) custom-call(%p), custom_call_target="gemm"',
        "%w = s8[4096]{0} get-tuple-element(%c), index=1",
        "ROOT %r = f32[7]{0} get-tuple-element(%c), index=0",
        entry="(p: f32[7]) -> f32[7]",
    )
    (call,) = analyse(text, "gpu").movements
    assert (call.traffic.bytes, call.traffic.opaque) == (56, 56)


def test_a_kernel_counts_its_own_estimate_where_it_has_one():
    config = '{"custom_call_config": {"cost_estimate": {"flops": 3, "bytes_accessed": 1234}}}'
    text = module(
        "%p = f32[7]{0} parameter(0)",
        'ROOT %c = f32[7]{0} custom-call(%p), custom_call_target="tpu_custom_call", '
        f"backend_config={config}",
        entry="(p: f32[7]) -> f32[7]",
    )
    (call,) = analyse(text, "tpu").movements
    assert (call.traffic.bytes, call.traffic.opaque) == (1234, 0)


def test_of_a_conditional_the_costliest_branch_counts():
    branch = "%{0} (p: f32[7]) -> f32[7] {{\n  %p = f32[7]{{0}} parameter(0)\n  {1}\n}}\n\n"
    text = module(
        "%p = f32[7]{0} parameter(0)",
        "%i = s32[] parameter(1)",
        "ROOT %c = f32[7]{0} conditional(%i, %p, %p), branch_computations={%cheap, %dear}",
        entry="(p: f32[7]) -> f32[7]",
        computations=branch.format("cheap", "ROOT %b = f32[7]{0} bitcast(%p)")
        + branch.format("dear", "ROOT %n = f32[7]{0} negate(%p)"),
    )
    analysis = analyse(text, "cpu")
    assert [each.traffic.instruction.name for each in analysis.movements] == ["n"]
    assert analysis.has_branches

"""Reading HLO text: what it holds, and what happens to text that is none."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layerbench_tests_loop_kinds import KINDS
from layerbench_tests_programs import computation, module

from layerbench.measure.program.analysis import analyse
from layerbench.measure.program.buffers import Watched
from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.figures import program_figures
from layerbench.measure.program.hlo import Alias
from layerbench.measure.program.parser import parse_module
from layerbench.measure.program.products import product_flops
from layerbench.measure.program.shapes import parse_shape

ONE = module("ROOT %p = f32[3]{0} parameter(0)", entry="(p: f32[3]) -> f32[3]")


@pytest.mark.parametrize(
    ("text", "sizes", "spaces"),
    [
        ("f32[]", [4], [0]),
        ("bf16[3,128]{1,0:T(4,128)(2,1)S(1)}", [768], [1]),
        ("pred[5]{0}", [5], [0]),
        ("s4[3]{0:E(4)}", [2], [0]),
        ("s4[3]{0:E(8)}", [3], [0]),
        ("u32[]{:S(2)}", [4], [2]),
        ("f32[<=7]{0}", [28], [0]),
        ("f32[0,4]{1,0}", [0], [0]),
        ("()", [], []),
        ("token[]", [0], [0]),
        ("(s32[], (f32[2]{0:S(1)}, pred[]), /*index=2*/c64[3])", [4, 8, 1, 24], [0, 1, 0, 0]),
    ],
)
def test_a_shape_has_its_bytes_and_memory_spaces(text, sizes, spaces):
    shape = parse_shape(text)
    assert [leaf.bytes for leaf in shape.leaves] == sizes
    assert [leaf.memory_space for leaf in shape.leaves] == spaces
    assert shape.bytes == sum(sizes)


@pytest.mark.parametrize(
    "text",
    ["", "f32", "f99[2]", "f32[2", "f32[-1]", "f32[9999999999999999999]", "(f32[] f32[])", "("],
)
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(ProgramError):
        parse_shape(text)


def test_an_instruction_keeps_its_operands_and_attributes_and_loses_its_metadata():
    parsed = parse_module(
        module(
            '%p.1 = (f32[2]{0}, s32[]) parameter(0), metadata={op_name="a{b}"}',
            '%c = f32[2]{0} constant({1, 2}), metadata={op_name="calls=%nothing" source_line=3}',
            "%g = f32[2]{0} get-tuple-element((f32[2]{0}, s32[]) %p.1), index=0",
            'ROOT %k = f32[2]{0} custom-call(%g, /*index=1*/%c), custom_call_target="a, \\"b=c",'
            ' operand_layout_constraints={f32[2]{0}, f32[2]{0}}, metadata={op_name="x"}',
            entry="(p.1: (f32[2], s32[])) -> f32[2]",
        )
    )
    parameter, constant, element, call = parsed.entry_computation.instructions
    assert (parameter.payload, constant.payload) == ("0", "{1, 2}")
    assert (element.operands, element.index()) == (("p.1",), 0)
    assert call.operands == ("g", "c")
    assert call.is_root
    assert call.attribute("custom_call_target") == '"a, \\"b=c"'
    assert call.attribute("operand_layout_constraints") == "{f32[2]{0}, f32[2]{0}}"
    assert not any("op_name" in each.attributes for each in parsed.entry_computation.instructions)


def test_names_are_read_without_the_percent_sign_too():
    parsed = parse_module(
        "HloModule m\n\nENTRY main {\n  p = f32[2]{0} parameter(0)\n"
        "  ROOT a = f32[2]{0} add(f32[2]{0} p, f32[2]{0} p)\n}\n"
    )
    assert parsed.entry_computation.root.operands == ("p", "p")


def test_aliases_tell_which_result_takes_which_argument():
    header = (
        ", is_scheduled=true, input_output_alias={ {1}: (13, {}, may-alias), "
        "{2, 0}: (1, {3}, must-alias) }, entry_computation_layout={(f32[])->f32[]}"
    )
    parsed = parse_module(
        module("ROOT %p = f32[] parameter(0)", entry="(p: f32[]) -> f32[]", header=header)
    )
    assert parsed.aliases == (Alias((1,), 13, ()), Alias((2, 0), 1, (3,)))


def test_tables_of_source_lines_are_passed_over():
    text = ONE.replace(
        "HloModule m\n",
        'HloModule m\n\nFileNames\n1 "a.py"\n\nStackFrames\n1 {file_location_id=1}\n',
    )
    assert parse_module(text).entry_computation.root.name == "p"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "module's header"),
        (ONE.replace("ENTRY ", ""), "no entry"),
        (ONE.replace("HloModule m", ""), "module's header"),
        (ONE.rstrip("}\n"), "ends inside"),
        (ONE.replace("parameter(0)", "parameter(0"), "does not close"),
        (ONE.replace("f32[3]{0} parameter", "f33[3]{0} parameter"), "unknown element type"),
        (ONE.replace("ROOT %p =", "ROOT %p"), "expected an instruction"),
        (ONE.replace("parameter(0)", "negate(%q)"), "not made before it"),
        (ONE.replace("parameter(0)", "call(), to_apply=%f"), "no computation 'f'"),
        (ONE + ONE.partition("\n\n")[2], "two computations"),
        ("HloModule m\n\nENTRY %e () -> f32[] {\n}\n", "is empty"),
    ],
)
def test_text_that_is_no_program_is_refused_in_one_line(text, message):
    with pytest.raises(ProgramError, match=message) as caught:
        parse_module(text)
    assert "\n" not in str(caught.value)


def test_computations_that_call_each_other_are_refused():
    circle = computation("f", "ROOT %c = f32[] call(), to_apply=%g") + computation(
        "g", "ROOT %c = f32[] call(), to_apply=%f"
    )
    text = module("ROOT %c = f32[] call(), to_apply=%f", entry="() -> f32[]", computations=circle)
    with pytest.raises(ProgramError, match="calls itself"):
        analyse(text, "cpu")


def test_a_program_that_calls_twice_as_often_at_each_level_is_no_work():
    """Two to the hundredth calls are counted, not made."""
    levels = computation("f0", "%p = f32[] parameter(0)", "ROOT %n = f32[] negate(%p)")
    for level in range(1, 101):
        levels += computation(
            f"f{level}",
            "%p = f32[] parameter(0)",
            f"%a = f32[] call(%p), to_apply=%f{level - 1}",
            f"ROOT %b = f32[] call(%a), to_apply=%f{level - 1}",
        )
    text = module(
        "%p = f32[] parameter(0)",
        "ROOT %c = f32[] call(%p), to_apply=%f100",
        entry="(p: f32[]) -> f32[]",
        computations=levels,
    )
    (movement,) = analyse(text, "cpu").movements
    assert movement.weight.once == 2**100


def read_or_refuse(text, platform):
    """Everything that is done with a text; any error but the typed one fails the test."""
    watched = (Watched("kv_cache", (0,), ()), Watched("weights", (1,), ()))
    with contextlib.suppress(ProgramError):
        analysis = analyse(text, platform, with_turns=True, watched=watched)
        program_figures(analysis, with_turns=True)
        product_flops(analysis.module)


PIECES = st.sampled_from(
    ["(", ")", "{", "}", '"', ",", " = ", "%", "\n", "/*", "*/", "=", "[", "]", "  ", "ROOT ",
     "while(", "tuple(", "fusion(", ", index=", ", calls=%", "-1", "99999999999", "\\", "é"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_text_is_read_or_refused_and_nothing_else(data, stored_text):
    target = data.draw(st.sampled_from(["tpu", "gpu"]))
    text = stored_text(target, data.draw(st.sampled_from(list(KINDS))))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.one_of(st.just(start), st.integers(start, min(len(text), start + 300))))
        text = text[:start] + data.draw(st.one_of(st.just(""), PIECES)) + text[stop:]
    read_or_refuse(text, target)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_names_and_numbers_exchanged_are_read_or_refused(data, stored_text):
    """Text of the right form that contradicts itself: the harder half of malformed."""
    target = data.draw(st.sampled_from(["tpu", "gpu"]))
    text = stored_text(target, data.draw(st.sampled_from(list(KINDS))))
    words = sorted(set(text.replace("(", " ").replace(")", " ").replace(",", " ").split()))
    for _ in range(data.draw(st.integers(1, 3))):
        old, new = data.draw(st.sampled_from(words)), data.draw(st.sampled_from(words))
        text = text.replace(old, new, data.draw(st.integers(1, 3)))
    read_or_refuse(text, target)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text):
    for damaged in (text, f"HloModule m\n\nENTRY %e () -> f32[] {{\n  ROOT %a = {text}\n}}\n"):
        read_or_refuse(damaged, "cpu")

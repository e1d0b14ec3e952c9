"""A program in short: complete, small, and equal for equal programs."""

import json

import pytest
from layerbench_tests_loop_kinds import KINDS
from layerbench_tests_programs import carried_cache_step, passed_cache_step, read_step

from layerbench.measure.program.analysis import analyse
from layerbench.measure.program.archive import archived, read_archive
from layerbench.measure.program.bill import make_bill
from layerbench.measure.program.fingerprint import take_fingerprint
from layerbench.measure.program.parser import parse_module, without_metadata
from layerbench.measure.program.weights import ZERO


def bytes_of(parts):
    total = ZERO
    for part in parts:
        total += part.bytes
    return total


@pytest.mark.parametrize("target", ["tpu", "gpu"])
@pytest.mark.parametrize("name", KINDS)
def test_both_parts_of_a_bill_sum_up_to_all_bytes(target, name, stored_text):
    analysis = analyse(stored_text(target, name), target, with_turns=True)
    bill = make_bill(analysis)
    total = ZERO
    for movement in analysis.movements:
        total += movement.weight * movement.traffic.bytes
    assert bytes_of(bill.flows) == bytes_of(bill.movers) == total


def test_what_a_faulty_cache_does_is_named_in_its_bill():
    bill = make_bill(read_step(passed_cache_step).analysis)
    purposes = {mover.purpose for mover in bill.movers}
    assert {"copies the KV cache", "updates layers of the KV cache"} <= purposes


def test_a_part_that_was_cut_out_is_still_read_as_the_buffers_data():
    bill = make_bill(read_step(carried_cache_step).analysis)
    purposes = {mover.purpose for mover in bill.movers}
    assert {"cuts out KV cache", "reads KV cache", "updates KV cache"} <= purposes


def test_a_fingerprint_is_small_strict_json():
    fingerprint = take_fingerprint(read_step(passed_cache_step).analysis).as_dict()
    text = json.dumps(fingerprint, allow_nan=False)
    assert json.loads(text) == fingerprint
    assert len(text) < 3_000


def test_equal_programs_have_equal_fingerprints_and_others_have_not():
    first, again, other = (
        take_fingerprint(read_step(function).analysis)
        for function in (carried_cache_step, carried_cache_step, passed_cache_step)
    )
    assert first == again
    assert first.digest != other.digest


def test_names_and_source_lines_do_not_change_a_fingerprint():
    text = read_step(carried_cache_step).text
    renamed = text.replace("fusion", "fu_sion").replace(" fu_sion(", " fusion(")
    renamed = renamed.replace("source_line=", "source_line=1")
    assert renamed != text
    before, after = (take_fingerprint(analyse(each, "cpu")) for each in (text, renamed))
    assert before == after


def test_an_archive_keeps_the_program_without_its_metadata(tmp_path):
    text = read_step(carried_cache_step).text
    assert "metadata=" in text
    (tmp_path / "a.hlo.gz").write_bytes(archived(text))
    kept = read_archive(tmp_path / "a.hlo.gz")
    assert kept == without_metadata(text)
    assert "metadata=" not in kept
    assert "StackFrames" not in kept
    assert parse_module(kept) == parse_module(text)
    assert archived(text) == archived(kept)

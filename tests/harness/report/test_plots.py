"""Figures: what is drawn, and that the same numbers give the same file."""

from __future__ import annotations

import struct
import sys
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest

from layerbench.record import Record
from layerbench.report.comparison import compare_records
from layerbench.report.plots import layout_styles, plot_comparison, plot_section


def svg_text(comparison):
    (section,) = comparison.sections()
    return plot_section(section, "svg").decode()


def test_each_phase_with_a_number_has_a_figure(comparison):
    plots = plot_comparison(comparison)
    assert list(plots) == [
        "cpu-qwen3-tiny-decode_step-float32-B2-S64",
        "cpu-qwen3-tiny-prefill-float32-B2-S64",
    ]
    for image in plots.values():
        assert image.startswith(b"\x89PNG")
        assert struct.unpack(">II", image[16:24]) == (1248, 598)
        assert len(image) < 200_000


@pytest.mark.parametrize("image_format", ["png", "svg"])
def test_the_same_numbers_give_the_same_file(comparison, image_format):
    assert plot_comparison(comparison, image_format) == plot_comparison(comparison, image_format)


def test_an_svg_is_well_formed(comparison):
    for image in plot_comparison(comparison, "svg").values():
        ET.fromstring(image.decode())  # noqa: S314 - our own file


def test_a_layout_keeps_its_style_whoever_is_beside_it():
    names = ["unrolled", "stacked-scan", "vmap", "stacked"]
    assert [layout_styles([name])[name] for name in names] == [
        layout_styles(reversed([*names, "new"]))[name] for name in names
    ]


def test_no_two_layouts_of_a_figure_look_the_same():
    names = ["unrolled", "stacked-scan", "vmap", "stacked", *(f"variant-{n}" for n in range(8))]
    styles = layout_styles(names)
    assert len(set(styles.values())) == len(names)


def test_one_depth_one_sample_and_no_floor_can_be_drawn(make_record):
    record = make_record(count=1)
    assert "<svg" in svg_text(compare_records([record]))


def test_a_failed_cell_and_a_marginal_turn_of_nothing_leave_a_gap(make_record):
    negative = make_record("b", -0.1)
    failed = Record.failure(make_record("c").cell, "out of memory")
    assert "<svg" in svg_text(compare_records([make_record("a"), negative, failed]))


def test_only_failures_have_no_figure(make_record):
    failed = Record.failure(make_record().cell, "out of memory")
    assert plot_comparison(compare_records([failed])) == {}


def test_a_file_name_holds_no_folder(make_record):
    (name,) = plot_comparison(compare_records([make_record(phase="a/../b c")]))
    assert "/" not in name
    assert " " not in name


def test_drawing_leaves_no_global_state_and_needs_no_pyplot(comparison):
    before = mpl.rcParams.copy()
    sys.modules.pop("matplotlib.pyplot", None)
    plot_comparison(comparison)
    # By copies: looking up the backend in the original would itself import pyplot.
    assert mpl.rcParams.copy() == before
    assert "matplotlib.pyplot" not in sys.modules

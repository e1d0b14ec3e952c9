"""The page: whole, self-contained and safe."""

from __future__ import annotations

import dataclasses
import html
import re
from html.parser import HTMLParser

import pytest

from layerbench.environment import Source
from layerbench.record import Record
from layerbench.report.comparison import compare_records
from layerbench.report.page import render_page
from layerbench.report.plots import plot_comparison

VOID = {"meta", "link", "img"}


class Tags(HTMLParser):
    """Checks that tags are closed in order, and keeps the attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.names = [], [], []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parse(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


@pytest.fixture
def page(run, comparison):
    return render_page(run, comparison, plot_comparison(comparison))


def test_it_is_well_formed_and_asks_for_nothing_from_elsewhere(page):
    tags = parse(page)
    assert "script" not in tags.names
    links = [value for name, value in tags.attributes if name in {"src", "href", "srcset"}]
    assert links
    assert all(link.startswith(("data:", "#note-")) for link in links)
    assert "@import" not in page
    assert "url(" not in page


def test_footnotes_lead_somewhere(page):
    attributes = parse(page).attributes
    ids = {value for name, value in attributes if name == "id"}
    assert {value[1:] for name, value in attributes if value and value.startswith("#")} == ids


def test_it_says_what_was_found_where_and_how_to_do_it_again(page, run, comparison):
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    for expected in (
        *comparison.summary,
        run.command,
        run.source.commit,
        "A CPU <of> some kind",
        "0.10.2",
        "--xla_cpu_example=1",
        "the worker was ended by SIGKILL (is there enough memory?)",
        "A pipeline: all stages run at once",
        "this commit has no train_step",
    ):
        assert expected in text
    assert page.count("data:image/png;base64,") == 2


def test_what_comes_from_outside_is_escaped(run, make_record):
    record = Record.failure(make_record("<script>alert(1)</script>").cell, "<b>'\"&")
    hostile = dataclasses.replace(run, command="<img src=x>", source=Source())
    page = render_page(hostile, compare_records([record]), {})
    assert "script" not in parse(page).names
    assert "img" not in parse(page).names
    assert "Outside a repository" in page


def test_an_empty_run_has_a_page(run):
    empty = dataclasses.replace(run, records=[], environments={})
    parse(render_page(empty, compare_records([]), {}))

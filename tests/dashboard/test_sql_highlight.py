"""SQL on the page: coloured, underlined, and made up from the streams."""

from __future__ import annotations

import re
from html import unescape

import pytest

from tests.dashboard.fake import stream
from transom.dashboard.editor import error_html
from transom.dashboard.sql_highlight import error_place, examples, highlight
from transom.errors import SQLError


@pytest.mark.parametrize(
    "sql",
    ["SELECT 'it''s' FROM `a b` -- why\n[RANGE 5 minutes]", "SELECT '", "", "/* open", 'a <> 3.5% "x"'],
)
def test_colours_leave_the_text_as_it_is(sql):
    assert unescape(re.sub(r"</?span[^>]*>", "", highlight(sql))) == sql


@pytest.mark.parametrize(
    ("text", "start", "end", "place"),
    [
        ("abc", 1, 2, (1, 2)),
        ("abc", 3, None, (2, 3)),
        ("abc", 1, 99, (1, 3)),
        ("abc", None, None, None),
        ("", 0, 1, None),
    ],
)
def test_an_error_is_underlined_within_the_text(text, start, end, place):
    assert error_place(text, start, end) == place


def test_an_error_shows_its_line_with_a_mark_under_the_place():
    sql = "SELECT a\nFROM b WHERE <c"
    shown = error_html(sql, SQLError("unknown", sql, 22, 24))
    assert "2 FROM b WHERE &lt;c" in shown and "^^" in shown and 'data-testid="check-error"' in shown


def test_examples_are_of_the_streams_columns_with_names_quoted_where_they_must_be():
    made = {example.title: example.sql for example in examples([stream()])}
    assert made["Mean unit price by site"].startswith("SELECT site, avg(`unit price`) AS mean")
    assert made["Total unit price, told early"].endswith("EMIT EARLY AT 75% OF SLIDE")
    assert "SLIDE" not in made["Top unit price, looked up on demand"]
    assert "RANGE 100 SLIDE 10" in examples([stream(is_time=False)])[0].sql
    assert len(examples([stream(columns={"ts": "timestamp"})])) == 1

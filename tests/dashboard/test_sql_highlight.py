"""SQL on the dashboard: highlighting and error positions."""

from __future__ import annotations

import re
from html import unescape

import pytest

from transom.dashboard.editor import error_html
from transom.dashboard.sql_highlight import EXCERPT, break_lines, error_span, highlight
from transom.errors import SQLError
from transom.sql.clauses.end_clauses import END_CLAUSES


@pytest.mark.parametrize(
    "sql",
    ["SELECT 'it''s' FROM `a b` -- why\n[RANGE 5 minutes]", "SELECT '", "", "/* open", 'a <> 3.5% "x"'],
)
def test_highlighting_keeps_the_text(sql):
    assert unescape(re.sub(r"</?span[^>]*>", "", highlight(sql))) == sql


@pytest.mark.parametrize("reader", END_CLAUSES, ids=lambda reader: reader.openings[0])
def test_every_clause_at_the_end_is_highlighted_and_begins_a_line(reader):
    for opening in reader.openings:
        words = [*opening.split(), *reader.keywords]
        assert highlight(" ".join(words)) == " ".join(f'<span class="k">{word}</span>' for word in words)
        assert break_lines(f"SELECT a FROM b {opening} c") == f"SELECT a\nFROM b\n{opening} c"


@pytest.mark.parametrize(
    ("text", "start", "end", "span"),
    [
        ("abc", 1, 2, (1, 2)),
        ("abc", 3, None, (2, 3)),
        ("abc", 1, 99, (1, 3)),
        ("abc", None, None, None),
        ("", 0, 1, None),
    ],
)
def test_an_error_is_underlined_within_the_text(text, start, end, span):
    assert error_span(text, start, end) == span


def test_an_error_shows_its_line_with_carets_below():
    sql = "SELECT a\nFROM b WHERE <c"
    shown = error_html(sql, SQLError("unknown", sql, 22, 24))
    assert "2 FROM b WHERE &lt;c" in shown and "^^" in shown and 'data-testid="check-error"' in shown


@pytest.mark.parametrize("place", [0, 40, 150, 290])
def test_the_carets_of_a_long_line_are_near_its_beginning(place):
    line = "x" * place + "prise" + "y" * (295 - place)
    sql = f"SELECT\n{line}"
    shown = unescape(error_html(sql, SQLError("unknown", sql, 7 + place, 12 + place)))
    text, carets = re.search(r"<pre>(.*)\n(.*)</pre>", shown).groups()
    assert len(text) <= EXCERPT + 4
    carets = carets.replace("<b>", "").replace("</b>", "")
    assert text[carets.index("^") : carets.rindex("^") + 1] == "prise"

"""EMIT CORRECTIONS in all the ways to write it, where the editor offers it, and how it is formatted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sql.test_completion import WINDOW, labels
from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.elements import Emit
from transom.errors import SQLError
from transom.sql import Query, bind_one
from transom.sql.editor.formatter import format_sql

QUERY = "SELECT site, count(*) AS n FROM Trades [RANGE 5 min SLIDE 1 min] GROUP BY site"
SECOND = 1_000_000
FORMS = {
    "EMIT CORRECTIONS WITHIN '1 day'": 86_400 * SECOND,
    "emit corrections within 90 minutes": 5_400 * SECOND,
    "EMIT CORRECTIONS WITHIN INTERVAL '250' MILLISECONDS": SECOND // 4,
    "EMIT CORRECTIONS WITHIN /* often */ 1 hour 30 minutes;": 5_400 * SECOND,
}


@pytest.mark.parametrize("clause", FORMS)
def test_each_form_is_bound(clause: str) -> None:
    query = bind_one(f"{QUERY} {clause}", CATALOG, Rules())
    assert isinstance(query, Query) and query.corrections == FORMS[clause]
    assert replace(query, corrections=None, text=QUERY) == bound(QUERY)


@pytest.mark.parametrize(
    "ends",
    [
        "EMIT CORRECTIONS WITHIN 1 hour EMIT EARLY ON DEMAND",
        "EMIT EARLY ON DEMAND EMIT CORRECTIONS WITHIN 1 hour",
        "EMIT CORRECTIONS WITHIN '1 hour' EMIT EARLY EVERY '1 second' CONFIDENCE 80%",
    ],
)
def test_early_results_may_be_named_before_or_after(ends: str) -> None:
    query = bind_one(f"{QUERY} {ends}", CATALOG, Rules())
    assert isinstance(query, Query) and isinstance(query.emit, Emit) and query.corrections == 3_600 * SECOND


def test_a_number_along_an_integer_column() -> None:
    text = "SELECT count(*) FROM Trades [RANGE 100 SLIDE 10 WATTR volume] EMIT CORRECTIONS WITHIN 50"
    query = bind_one(text, CATALOG, Rules())
    assert isinstance(query, Query) and query.retention == 50
    with pytest.raises(SQLError, match="WITHIN over an integer column is a plain number, not '1 day'"):
        bind_one(text.replace("50", "'1 day'"), CATALOG, Rules())


def test_an_error_points_at_its_part() -> None:
    text = f"{QUERY} EMIT CORRECTIONS FOR '1 day'"
    with pytest.raises(SQLError, match="EMIT CORRECTIONS needs how long") as caught:
        bind_one(text, CATALOG, Rules())
    assert text[caught.value.start : caught.value.end] == "FOR"


def test_a_clause_that_is_given_twice_is_named() -> None:
    once = "EMIT CORRECTIONS WITHIN '1 day'"
    for between in (" ", " EMIT EARLY ON DEMAND "):
        text = f"{QUERY} {once}{between}{once}"
        with pytest.raises(SQLError, match="EMIT CORRECTIONS is given twice") as caught:
            bind_one(text, CATALOG, Rules())
        assert (caught.value.start, caught.value.end) == (text.rindex("EMIT"), text.rindex("EMIT") + 4)


def test_emit_and_corrections_stay_names() -> None:
    text = "SELECT count(*) AS corrections, max(price) AS emit FROM Trades [RANGE 5 min SLIDE 1 min] HAVING emit > 1"
    assert [item.name for item in bound(text).items] == ["corrections", "emit"]


def test_the_editor_offers_the_clause() -> None:
    text = f"SELECT count(*) FROM flights {WINDOW}"
    assert "CORRECTIONS WITHIN" in labels(f"{text} EMIT |")
    assert "WITHIN" in labels(f"{text} EMIT CORRECTIONS |")
    assert "EMIT EARLY" in labels(f"{text} EMIT CORRECTIONS WITHIN '1 day' |")


def test_the_formatter_puts_the_clause_on_a_line() -> None:
    found = format_sql(f"{QUERY} emit corrections within '1 day' emit early on demand")
    assert "\nEMIT CORRECTIONS WITHIN '1 day'\n" in found and found.rstrip().endswith("EMIT EARLY ON DEMAND")

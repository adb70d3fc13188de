"""ALERT at the end of a query: each spelling with its value, each mistake with its place."""

from __future__ import annotations

import pytest

from tests.sql.trades_catalog import CATALOG, Rules
from transom.elements import AlertTerms, Emit, EmptyWindows
from transom.errors import SQLError
from transom.sql import Query, bind_all, bind_one
from transom.sql.editor.formatter import format_sql

START = "SELECT symbol, count(*) AS n FROM Trades [RANGE 5 min SLIDE 1 min] GROUP BY symbol HAVING n > 1"
HOUR = 3_600_000_000

SPELLINGS = {
    "ALERT": AlertTerms(),
    "alert for 3 windows": AlertTerms(3),
    "ALERT FOR 1 WINDOW": AlertTerms(1),
    "ALERT RESOLVE AFTER 2 WINDOWS FOR 3 WINDOWS": AlertTerms(3, 2),
    "ALERT REPEAT EVERY '1 hour' SEVERITY 'page'": AlertTerms(repeat=HOUR, labels=(("severity", "page"),)),
    "ALERT REPEAT EVERY 1 hour": AlertTerms(repeat=HOUR),
    "ALERT SUMMARY '{symbol}: {n}'": AlertTerms(annotations=(("summary", "{symbol}: {n}"),)),
}


@pytest.mark.parametrize("clause, terms", SPELLINGS.items())
def test_spellings(clause: str, terms: AlertTerms) -> None:
    query = bind_one(f"{START} {clause}", CATALOG, Rules())
    assert isinstance(query, Query) and query.alert == terms


def test_other_clauses_come_first() -> None:
    query = bind_one(
        f"{START} EMIT EMPTY FOR 3 WINDOWS EMIT EARLY EVERY '1 s' ALERT FOR 2 WINDOWS", CATALOG, Rules()
    )
    assert isinstance(query, Query)
    assert (query.empty, query.emit, query.alert) == (EmptyWindows(3), Emit(every=1_000_000), AlertTerms(2))
    query = bind_one(f"{START} EMIT EARLY EVERY '1 s' EMIT EMPTY ALERT", CATALOG, Rules())
    assert isinstance(query, Query) and query.alert == AlertTerms()


def test_texts_that_differ_in_the_clause_only() -> None:
    """They share a template, and each has its own terms."""
    texts = {str(n): f"{START} ALERT FOR {n} WINDOWS SEVERITY 's{n}'" for n in range(1, 5)}
    bound = bind_all(texts, CATALOG, Rules(), {})
    assert [query.alert for query in bound.values()] == [
        AlertTerms(n, labels=(("severity", f"s{n}"),)) for n in range(1, 5)
    ]


def test_alert_is_still_a_name() -> None:
    text = "SELECT count(*) AS alert FROM Trades [RANGE 5 min SLIDE 1 min] HAVING alert > 1 AND alert < 9"
    query = bind_one(text, CATALOG, Rules())
    assert isinstance(query, Query) and query.alert is None
    assert query.items[0].name == "alert"


MISTAKES = {
    f"{START} ALERT FOR 3": ("FOR takes a number of windows", "FOR 3"),
    f"{START} ALERT FOR 1.5 WINDOWS": ("FOR takes a number of windows", "1.5"),
    f"{START} ALERT FOR WINDOWS": ("FOR takes a number of windows", "WINDOWS"),
    f"{START} ALERT FOR 10001 WINDOWS": ("1 to 10,000", "10001"),
    f"{START} ALERT RESOLVE 3 WINDOWS": ("expected AFTER", "3"),
    f"{START} ALERT REPEAT EVERY": ("needs a duration", "REPEAT"),
    f"{START} ALERT SEVERITY page": ("SEVERITY needs a text", "SEVERITY"),
    f"{START} ALERT FOR 3 WINDOWS FOR 2 WINDOWS": ("FOR is given twice", "FOR"),
    f"{START} ALERT FOR 3 WINDOWS EMIT EARLY EVERY '1 s'": (
        "only BACKFILL and AS OF can follow ALERT",
        "EMIT",
    ),
    f"{START} ALERT FOR 3 WINDOWS WHENEVER": ("expected FOR 3 WINDOWS", "WHENEVER"),
    f"{START} ALERT SUMMARY '{{m}}'": ("no column 'm'", "ALERT SUMMARY '{m}'"),
    f"{START.partition(' HAVING')[0]} ALERT": ("ALERT needs HAVING", "ALERT"),
    f"{START.replace(' SLIDE 1 min', '')} ALERT": ("ALERT needs SLIDE", "ALERT"),
}


@pytest.mark.parametrize("text, expected", MISTAKES.items())
def test_mistakes(text: str, expected: tuple[str, str]) -> None:
    with pytest.raises(SQLError) as raised:
        bind_one(text, CATALOG, Rules())
    error = raised.value
    assert expected[0] in error.message and text[error.start : error.end] == expected[1]


def test_the_clause_is_a_line_of_its_own_when_formatted() -> None:
    assert format_sql(f"{START} alert for 3 windows").splitlines()[-1] == "ALERT FOR 3 WINDOWS"

"""Sessions: three ways to write them, and what they can't have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.elements import Clock, ClockKind, WindowSpec
from transom.errors import SQLError
from transom.sql import bind, bind_one

MINUTE = 60_000_000
HALF_AN_HOUR = WindowSpec.session(30 * MINUTE)
REFERENCE = (Path(__file__).parents[2] / "docs/reference/sql.md").read_text()
GROUPED = "GROUP BY session_window(ts, '30 minutes'), site"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT site, count(*) FROM Trades [SESSION 30 minutes] GROUP BY site",
        "SELECT site, count(*) FROM Trades T [session = '30 min', WATTR T.ts] GROUP BY site",
        f"SELECT site, count(*) FROM Trades {GROUPED}",
        "SELECT site, count(*) FROM Trades GROUP BY SESSION_WINDOW(ts, INTERVAL '30' MINUTES), site",
        "SELECT session_window(ts, '30 minutes') AS w, site, count(*) FROM Trades GROUP BY w, site",
        "SELECT site, count(*) FROM SESSION(TABLE Trades PARTITION BY site, DESCRIPTOR(ts), INTERVAL '30' MINUTES) "
        "GROUP BY window_start, window_end, site",
        "SELECT site, count(*) FROM TABLE(SESSION(TABLE Trades PARTITION BY (Site), DESCRIPTOR(ts), "
        "INTERVAL '30' MINUTES)) "
        "GROUP BY site, window_start, window_end",
        "SELECT site, count(*) FROM TABLE(SESSION(DATA => TABLE Trades PARTITION BY Trades.site, "
        "TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '30' MINUTES)) GROUP BY window_start, window_end, site",
        "SELECT site, count(*) FROM (SELECT * FROM Trades WHERE price > 1) d [SESSION 30 minutes] GROUP BY site",
    ],
)
def test_every_form_has_the_same_window(text: str) -> None:
    query = bound(text)
    assert (query.window, query.clock, query.is_standing) == (HALF_AN_HOUR, Clock("Trades", "ts"), True)
    assert [key.name for key in query.keys] == ["site"]


def test_the_forms_of_the_reference_can_be_bound() -> None:
    forms = re.findall(
        r"^\| `(SELECT .*?)` \|", REFERENCE.split("### Session windows")[1].split("###")[0], re.MULTILINE
    )
    queries = [bound(text.replace("bids", "Trades")) for text in forms]
    assert len(queries) == 3
    assert {query.window for query in queries} == {HALF_AN_HOUR}


def test_two_partition_columns_may_be_written_without_parentheses() -> None:
    source = "SESSION(TABLE Trades PARTITION BY site, symbol, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
    query = bound(f"SELECT count(*) FROM {source} GROUP BY symbol, site, window_start, window_end")
    assert [key.name for key in query.keys] == ["symbol", "site"]


def test_sessions_of_an_integer_column() -> None:
    query = bound("SELECT count(*) FROM Trades [SESSION 10 WATTR site]")
    assert (query.window, query.clock.kind) == (WindowSpec.session(10), ClockKind.INTEGER)


@pytest.mark.parametrize(
    ("item", "sql"),
    [
        ("session_window.start", "`window_start`"),
        ("session_window(ts, '30 minutes').`end`", "`window_end`"),
        ("session_window", "named_struct('start', `window_start`, 'end', `window_end`)"),
        ("window_end", "`window_end`"),
    ],
)
def test_the_session_can_be_selected(item: str, sql: str) -> None:
    assert bound(f"SELECT {item}, count(*) FROM Trades {GROUPED}").items[1].sql == sql


def test_queries_that_differ_in_gaps_only_are_read_once() -> None:
    for form in ("[SESSION # minutes]", "GROUP BY session_window(ts, '# minutes')"):
        texts = {
            gap: f"SELECT count(*) AS n FROM Trades {form.replace('#', gap)}" for gap in ("1", "2", "30")
        }
        assert bind(texts, CATALOG, Rules()) == {gap: bound(text) for gap, text in texts.items()}


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("SELECT count(*) FROM Trades [SESSION 1 hour SLIDE 1 min]", "SESSION takes no SLIDE", "1 min"),
        ("SELECT count(*) FROM Trades [SESSION 1 hour RANGE 1 min]", "SESSION takes no RANGE", "1 min"),
        ("SELECT count(*) FROM Trades [SESSION 1 hour ORIGIN 1 min]", "SESSION takes no ORIGIN", "1 min"),
        ("SELECT count(*) FROM Trades [SESSION 5 ROWS 3]", "SESSION takes no ROWS", "3"),
        ("SELECT count(*) FROM Trades [SESSION]", "SESSION needs a value", "SESSION"),
        ("SELECT count(*) FROM Trades [SESSION 5]", "has no unit", "5"),
        ("SELECT count(*) FROM Trades [SESSION 0 s]", "SESSION must be positive", "0 s"),
        (
            "SELECT count(*) FROM Trades GROUP BY session_window(ts)",
            "takes a time column and a gap",
            "session_window(ts)",
        ),
        ("SELECT count(*) FROM Trades GROUP BY session_window(ts, price)", "expected a duration", "price"),
        ("SELECT count(*) FROM Trades GROUP BY session_window(site, '1 min')", "and site is int32", "site"),
        ("SELECT count(*) FROM Trades GROUP BY session_window(ts, '0 s')", "must be positive", "'0 s'"),
        (
            "SELECT count(*) FROM Trades GROUP BY window(ts, '1 min'), session_window(ts, '1 min')",
            "a query has one window",
            "session_window(ts, '1 min')",
        ),
        (
            "SELECT site, count(*) AS n FROM Trades [SESSION 1 min] GROUP BY site ORDER BY n LIMIT 3",
            "use HAVING",
            "3",
        ),
        (
            "SELECT count(*) FROM Trades [SESSION 1 min] EMIT EARLY AT 75% OF SLIDE",
            "no common slide",
            "EMIT",
        ),
        (
            "SELECT count(*) FROM Trades [SESSION 1 min] EMIT EARLY WITH ACCURACY 90%",
            "no common slide",
            "EMIT",
        ),
        ("SELECT count(*) FROM Trades [SESSION 1 min] USING exact", "the query has sessions", None),
        (
            "SELECT count(*) FROM Trades [SESSION 1 min IN TIME ZONE 'UTC']",
            "SESSION takes no IN TIME ZONE",
            "'UTC'",
        ),
        (
            "SELECT count(*) FROM Trades GROUP BY SESSION(ts, INTERVAL '5' MINUTE), site",
            "SESSION is not supported here; write GROUP BY session_window(ts, '10 minutes')",
            None,
        ),
        ("SELECT count(*) FROM Trades [SESSION 1 min] EMIT EMPTY", "EMIT EMPTY needs RANGE and SLIDE", None),
        (
            "SELECT LAG(count(*)) OVER WINDOWS FROM Trades [SESSION 1 min]",
            "LAG needs RANGE and SLIDE",
            None,
        ),
    ],
)
def test_what_sessions_cannot_have_is_pointed_at(text: str, said: str, place: str | None) -> None:
    with pytest.raises(SQLError) as refused:
        bind_one(text, CATALOG, Rules())
    error = refused.value
    assert said in error.message
    assert place is None or text[error.start : error.end] == place

"""Windows of the last rows of each key: how they are written, and what they can't have."""

from __future__ import annotations

import pytest

from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.elements import Clock, ClockKind, WindowSpec
from transom.errors import SQLError
from transom.sql import bind, bind_one

FIVE_BY_ONE = "[PARTITION BY site ROWS 5 SLIDE 1]"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT site, count(*) FROM Trades {FIVE_BY_ONE} GROUP BY site",
        "SELECT site, count(*) FROM Trades [ROWS 5, SLIDE 1, PARTITION BY Site] GROUP BY site",
        "SELECT site, count(*) FROM Trades T [rows = 5 partition by (site) slide = 1] GROUP BY T.site",
        f"SELECT site, count(*) FROM (SELECT * FROM Trades WHERE price > 1) {FIVE_BY_ONE} GROUP BY site",
    ],
)
def test_every_order_of_the_parts_has_the_same_window(text: str) -> None:
    query = bound(text)
    assert (query.window, query.clock) == (WindowSpec.of_keys(5, 1), Clock("Trades", "", ClockKind.ROWS))
    assert [key.name for key in query.keys] == ["site"]


def test_several_columns() -> None:
    query = bound(
        "SELECT count(*) FROM Trades [PARTITION BY site, symbol ROWS 4 SLIDE 2] GROUP BY symbol, site"
    )
    assert query.window == WindowSpec.of_keys(4, 2)


@pytest.mark.parametrize(
    "text",
    [
        "FROM Trades [PARTITION BY Trades.site ROWS 5 SLIDE 1] GROUP BY site",
        "FROM Trades T [PARTITION BY T.`site` ROWS 5 SLIDE 1] GROUP BY T.site",
        "FROM Trades [PARTITION BY upper(symbol) ROWS 5 SLIDE 1] GROUP BY upper( Symbol )",
        "FROM Trades [PARTITION BY (abs(site), symbol) ROWS 5 SLIDE 1] GROUP BY symbol, abs(site)",
        "FROM (SELECT site AS place, ts FROM Trades) [PARTITION BY place ROWS 5 SLIDE 1] GROUP BY place",
        "FROM (SELECT site % 7 AS place, ts FROM Trades) d [PARTITION BY d.place ROWS 5 SLIDE 1] GROUP BY place",
    ],
)
def test_keys_can_be_qualified_computed_and_columns_of_a_subquery(text: str) -> None:
    assert bound(f"SELECT count(*) AS n {text}").window == WindowSpec.of_keys(5, 1)


def test_queries_that_differ_in_numbers_only_are_read_once() -> None:
    text = "SELECT site, count(*) AS n FROM Trades [PARTITION BY site ROWS #0 SLIDE #] GROUP BY site"
    texts = {number: text.replace("#", number) for number in ("1", "2", "3")}
    assert bind(texts, CATALOG, Rules()) == {number: bound(one) for number, one in texts.items()}


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("FROM Trades [PARTITION BY site ROWS 5] GROUP BY site", "needs ROWS and SLIDE", None),
        ("FROM Trades [PARTITION BY site SLIDE 5] GROUP BY site", "needs ROWS and SLIDE", None),
        ("FROM Trades [PARTITION BY ROWS 5 SLIDE 1] GROUP BY site", "needs a column", "PARTITION BY"),
        ("FROM Trades [PARTITION BY site ROWS 5 SLIDE 6] GROUP BY site", "SLIDE is at most ROWS", "6"),
        ("FROM Trades [PARTITION BY site RANGE 5 min SLIDE 1 min] GROUP BY site", "and no RANGE", "5 min"),
        ("FROM Trades [PARTITION BY site ROWS 5 SLIDE 1 ORIGIN 3] GROUP BY site", "and no ORIGIN", "3"),
        ("FROM Trades [PARTITION BY site ROWS 5 SLIDE 1 WATTR ts] GROUP BY site", "takes no WATTR", "ts"),
        (f"FROM Trades {FIVE_BY_ONE}", "GROUP BY must have the columns of PARTITION BY", FIVE_BY_ONE),
        (f"FROM Trades {FIVE_BY_ONE} GROUP BY site, symbol", "and no others", FIVE_BY_ONE),
        (f"FROM Trades {FIVE_BY_ONE} GROUP BY site + 1", "and no others", FIVE_BY_ONE),
        ("FROM Trades [PARTITION BY sit ROWS 5 SLIDE 1] GROUP BY site", "unknown column sit", None),
        (
            "FROM Trades [PARTITION BY site % 7 ROWS 5 SLIDE 1] GROUP BY site % 7",
            "takes no constants: site % 7; compute the key in a subquery",
            None,
        ),
        (
            "FROM (SELECT site, symbol, ts FROM Trades) [PARTITION BY symbol ROWS 5 SLIDE 1] GROUP BY site",
            "and no others",
            None,
        ),
        (
            f"FROM Trades T {FIVE_BY_ONE} JOIN Close C ON T.symbol = C.symbol GROUP BY site",
            "over one stream, without joins",
            FIVE_BY_ONE,
        ),
        (
            f"FROM Trades {FIVE_BY_ONE} GROUP BY site ORDER BY site LIMIT 3",
            "each of these windows has one row",
            "3",
        ),
        (f"FROM Trades {FIVE_BY_ONE} GROUP BY site EMIT EARLY AT 50% OF SLIDE", "no common slide", "EMIT"),
        (f"FROM Trades {FIVE_BY_ONE} GROUP BY site EMIT EMPTY", "EMIT EMPTY needs RANGE and SLIDE", None),
    ],
)
def test_what_windows_of_keys_cannot_have_is_pointed_at(text: str, said: str, place: str | None) -> None:
    text = f"SELECT count(*) AS n {text}"
    with pytest.raises(SQLError) as refused:
        bind_one(text, CATALOG, Rules())
    error = refused.value
    assert said in error.message
    assert place is None or text[error.start : error.end] == place


def test_no_query_over_the_results_is_suggested_as_none_can_read_them() -> None:
    with pytest.raises(SQLError, match=r"use HAVING\n"):
        bound(f"SELECT site, count(*) AS n FROM Trades {FIVE_BY_ONE} GROUP BY site ORDER BY n LIMIT 3")

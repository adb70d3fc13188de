"""CREATE VIEW and DROP VIEW as they are read, and queries over views: those that one would write by hand."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.sql.trades_catalog import CATALOG, Rules
from transom.errors import SQLError
from transom.sql import Query, bind_all, sources_of
from transom.sql.binding.views import bind_view
from transom.sql.clauses.view import (
    CreateViewStatement,
    DropViewStatement,
    is_view_statement,
    read_view_statement,
)

WINDOW = "[RANGE 5 min SLIDE 1 min]"
VIEWS = {
    "live_trades": "SELECT * FROM Trades WHERE live",
    "dear": "SELECT symbol AS s, price * volume AS value, ts FROM Live_Trades t WHERE t.price > 5 -- dear",
    "with_one": "WITH a AS (SELECT site + 1 AS n, ts FROM Trades) SELECT n FROM a WHERE n > 2",
    "quoted": "SELECT concat(symbol, \"'\") AS c FROM Trades WHERE symbol != 'it''s'",
    "of_a_query": "SELECT total FROM per_site WHERE total > 10",
}
CATALOG_WITH_VIEWS = replace(CATALOG, views=VIEWS)


def bound(text: str, **others: str) -> Query:
    query = bind_all({"q": text, **others}, CATALOG_WITH_VIEWS, Rules(), {})["q"]
    if isinstance(query, SQLError):
        raise query
    return query


ALIKE = {
    "a filter": (
        f"SELECT site, count(*) AS n FROM live_trades {WINDOW} GROUP BY site",
        f"SELECT site, count(*) AS n FROM Trades {WINDOW} WHERE live GROUP BY site",
    ),
    "a view over a view, in another case": (
        f"SELECT s, sum(value) AS v FROM DEAR x {WINDOW} WHERE x.s = 'a' GROUP BY s",
        f"SELECT symbol AS s, sum(price * volume) AS v FROM Trades {WINDOW} WHERE live AND price > 5 AND symbol = 'a' GROUP BY symbol",
    ),
    "a view in a subquery": (
        f"SELECT max(v) AS m FROM (SELECT value AS v FROM dear) {WINDOW}",
        f"SELECT max(price * volume) AS m FROM Trades {WINDOW} WHERE live AND price > 5",
    ),
    "a view in WITH": (
        f"WITH d AS (SELECT * FROM dear WHERE s IS NOT NULL) SELECT count(*) AS n FROM d {WINDOW}",
        f"SELECT count(*) AS n FROM Trades {WINDOW} WHERE live AND price > 5 AND symbol IS NOT NULL",
    ),
    "a name of WITH hides a view": (
        f"WITH dear AS (SELECT * FROM Trades) SELECT count(*) AS n FROM dear {WINDOW}",
        f"SELECT count(*) AS n FROM Trades {WINDOW}",
    ),
    "WITH in a view": (
        f"SELECT count(*) AS n FROM with_one {WINDOW}",
        f"SELECT count(*) AS n FROM Trades {WINDOW} WHERE site + 1 > 2",
    ),
    "a join outside": (
        f"SELECT C.sector, sum(price) AS v FROM live_trades d {WINDOW} JOIN Close C ON d.symbol = C.symbol GROUP BY C.sector",
        f"SELECT C.sector, sum(price) AS v FROM Trades d {WINDOW} JOIN Close C ON d.symbol = C.symbol WHERE live GROUP BY C.sector",
    ),
    "quotes in a text": (
        f"SELECT count(*) AS n FROM quoted {WINDOW} WHERE c = 'x''y'",
        f"SELECT count(*) AS n FROM Trades {WINDOW} WHERE symbol != 'it''s' AND concat(symbol, \"'\") = 'x''y'",
    ),
    "on demand": (
        "SELECT max(value) AS m FROM dear [RANGE 5 minutes]",
        "SELECT max(price * volume) AS m FROM Trades [RANGE 5 minutes] WHERE live AND price > 5",
    ),
}


@pytest.mark.parametrize("case", ALIKE)
def test_a_view_is_inlined(case: str) -> None:
    over_view, by_hand = (replace(bound(text), text="") for text in ALIKE[case])
    assert [scalar.sql.replace("(", "").replace(")", "") for scalar in over_view.scalars()] == [
        scalar.sql.replace("(", "").replace(")", "") for scalar in by_hand.scalars()
    ]
    assert replace(over_view, where=None, keys=(), calls=()) == replace(
        by_hand, where=None, keys=(), calls=()
    )


def test_queries_that_differ_in_constants_share_a_template_over_a_view() -> None:
    texts = {f"q{n}": f"SELECT count(*) AS n FROM dear {WINDOW} WHERE value > {n}.5" for n in range(3)}
    queries = bind_all(texts, CATALOG_WITH_VIEWS, Rules(), {})
    for n in range(3):
        by_hand = (
            f"SELECT count(*) AS n FROM Trades {WINDOW} WHERE live AND price > 5 AND price * volume > {n}.5"
        )
        query, expected = queries[f"q{n}"], bound(by_hand)
        assert isinstance(query, Query) and repr(query.where).replace("(", "") == repr(
            expected.where
        ).replace("(", "")


def test_a_view_of_the_results_of_a_query() -> None:
    per_site = f"SELECT site, sum(volume) AS total FROM Trades {WINDOW} GROUP BY site"
    query = bound(f"SELECT max(total) AS m FROM of_a_query {WINDOW}", per_site=per_site)
    assert query.stream == "per_site"
    assert sources_of("SELECT count(*) FROM of_a_query", views=VIEWS) == ("per_site",)


def test_the_columns_of_a_view() -> None:
    view = bind_view("dear", CATALOG_WITH_VIEWS, Rules(), {})
    assert (view.stream, list(view.columns)) == ("Trades", ["s", "value", "ts"])
    assert pa.types.is_timestamp(view.columns["ts"])


STATEMENTS = {
    "CREATE VIEW v AS SELECT * FROM s;": CreateViewStatement("v", "SELECT * FROM s", 12, 13),
    "create or replace view `a-b` as\nselect 1 from s": CreateViewStatement(
        "a-b", "select 1 from s", 23, 28, replaces=True
    ),
    "CREATE VIEW IF NOT EXISTS v AS WITH a AS (SELECT 1) SELECT * FROM a": CreateViewStatement(
        "v", "WITH a AS (SELECT 1) SELECT * FROM a", 26, 27, if_missing=True
    ),
    "DROP VIEW v": DropViewStatement("v", 10, 11),
    "/* now */ drop view if exists v ;": DropViewStatement("v", 30, 31, if_exists=True),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements(text: str) -> None:
    assert is_view_statement(text)
    assert read_view_statement(text) == STATEMENTS[text]


WRONG = {
    "CREATE VIEW v": "expected AS after V",
    "CREATE VIEW AS SELECT 1": "expected AS after AS",
    "CREATE VIEW v (a, b) AS SELECT 1, 2 FROM s": "a list of columns is not supported",
    "CREATE TEMPORARY VIEW v AS SELECT * FROM s": "leave out TEMPORARY",
    "CREATE OR REPLACE v AS SELECT 1": "expected VIEW after REPLACE",
    "DROP VIEW v, w": "expected the end of the statement",
    "CREATE VIEW 5 AS SELECT 1": "expected the name of a view",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_statements(text: str) -> None:
    with pytest.raises(SQLError, match=WRONG[text]):
        read_view_statement(text)


REFUSED = {
    "an aggregate": ("SELECT count(*) AS n FROM Trades", "is not supported in a view", "count(*)"),
    "GROUP BY": ("SELECT site FROM Trades GROUP BY site", "GROUP BY is not supported in a view", "site"),
    "a window": (f"SELECT site FROM Trades {WINDOW}", "a view has no window", WINDOW),
    "an unknown column": ("SELECT ts, pride FROM Trades", "unknown column pride; did you mean price", "pride"),
    "an unknown stream": ("SELECT * FROM Trade", "unknown stream, table or query Trade", "Trade"),
    "EMIT EARLY": ("SELECT site FROM Trades EMIT EARLY ON DEMAND", "belongs to the queries that read", "EMIT"),
    "no name": ("SELECT price * 2 FROM Trades", "an expression in a view needs a name", "price * 2"),
    "a join": ("SELECT price FROM Trades JOIN Close USING (symbol)", "a join is not supported in a view", None),
    "itself": ("SELECT * FROM broken", "the view broken can't read itself", None),
    "a circle": ("SELECT * FROM around", "the view broken can't read itself: it reads around, which reads broken", None),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_views_that_are_refused(case: str) -> None:
    text, message, place = REFUSED[case]
    views = {"around": "SELECT * FROM broken", "broken": text}
    with pytest.raises(SQLError, match=message) as raised:
        bind_view("broken", replace(CATALOG, views=views), Rules(), {})
    if place is not None:
        assert raised.value.text == text
        assert text[raised.value.start : raised.value.end] == place


def test_a_view_is_joined_as_its_stream_is() -> None:
    with pytest.raises(SQLError, match="the join of Trades and l needs a time bound"):
        bound(f"SELECT count(*) AS n FROM Trades {WINDOW} JOIN live_trades l ON l.site = Trades.site")

"""UNION ALL and explode in subqueries and views: what they are bound to, and what is refused."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import pyarrow as pa
import pytest

from transom.errors import SQLError
from transom.sql import Catalog, Query, Relation, bind_all, sources_of
from transom.sql.binding.views import bind_view
from transom.sql.interpreter.scalars import InterpretedScalars

TIME = pa.timestamp("us", tz="UTC")
WINDOW = "[RANGE 10 seconds SLIDE 10 seconds]"
ITEMS = pa.list_(pa.struct([("n", pa.string()), ("q", pa.int32())]))
STREAMS = {
    "t": Relation(
        "t", {"ts": TIME, "a": pa.int32(), "items": ITEMS, "m": pa.map_(pa.string(), pa.int32())}, "ts"
    ),
    "u": Relation("u", {"at": TIME, "b": pa.int32()}, "at"),
}
VIEWS = {
    "each": "SELECT ts, a, explode(items) AS item FROM t WHERE a > 1",
    "both": "SELECT ts, a FROM t WHERE a > 2 UNION ALL SELECT at, b + 1 FROM u -- the end",
}
CATALOG = Catalog(STREAMS, views=VIEWS)


def bound(text: str) -> Query:
    query = bind_all({"q": text}, CATALOG, InterpretedScalars(), {})["q"]
    if isinstance(query, SQLError):
        raise query
    return query


ALIKE = {
    "LATERAL VIEW": (
        f"SELECT item.n, sum(item.q) AS s FROM each {WINDOW} GROUP BY item.n",
        f"SELECT item.n, sum(x.item.q) AS s FROM t {WINDOW} LATERAL VIEW explode(items) x AS item WHERE a > 1 GROUP BY item.n",
    ),
    "names that explode makes": (
        f"SELECT col.n, count(*) AS c FROM (SELECT explode(items) FROM t) {WINDOW} GROUP BY col.n",
        f"SELECT i.n, count(*) AS c FROM (SELECT ts, explode(items) AS i FROM t) {WINDOW} GROUP BY i.n",
    ),
    "maps": (
        f"SELECT key, sum(value) AS s FROM (SELECT explode_outer(m) FROM t) {WINDOW} GROUP BY key",
        f"SELECT k AS key, sum(v) AS s FROM t {WINDOW} LATERAL VIEW OUTER explode(m) x AS k, v GROUP BY k",
    ),
    "a view of a union": (
        f"SELECT sum(a) AS s FROM both {WINDOW} WHERE a < 9",
        f"WITH x AS (SELECT ts, a FROM t WHERE a > 2 UNION ALL SELECT at, b + 1 FROM u) SELECT sum(a) AS s FROM x {WINDOW} WHERE a < 9",
    ),
    "a union of a union": (
        f"SELECT sum(a) AS s FROM (SELECT * FROM both UNION ALL SELECT at, b FROM u) {WINDOW}",
        f"SELECT sum(a) AS s FROM (SELECT ts, a FROM t WHERE a > 2 UNION ALL SELECT at, (b + 1) FROM u UNION ALL SELECT at, b FROM u) {WINDOW}",
    ),
    "a union of a filtered union": (
        f"SELECT sum(c) AS s FROM (SELECT at, b AS c FROM u UNION ALL SELECT ts, a * 2 FROM both WHERE a < 7) {WINDOW}",
        f"SELECT sum(c) AS s FROM (SELECT at, b AS c FROM u UNION ALL SELECT ts, a * 2 FROM t WHERE (a > 2) AND (a < 7) UNION ALL SELECT at, (b + 1) * 2 FROM u WHERE (b + 1) < 7) {WINDOW}",
    ),
    "types that hold the values of all parts": (
        f"SELECT sum(c) AS s FROM (SELECT ts, a AS c, NULL AS d FROM t UNION ALL SELECT at, b * 1.5D, 'x' FROM u) {WINDOW}",
        f"SELECT sum(c) AS s FROM (SELECT ts, CAST(a AS DOUBLE) AS c, CAST(NULL AS STRING) AS d FROM t UNION ALL SELECT at, b * 1.5D, 'x' FROM u) {WINDOW}",
    ),
}


@pytest.mark.parametrize("case", ALIKE)
def test_queries_that_have_one_derived_stream(case: str) -> None:
    one, other = (bound(text) for text in ALIKE[case])
    assert one.derived is not None and one.derived == other.derived
    assert one.stream == other.stream == one.derived.name
    assert set(map(str, one.scalars())) == set(map(str, other.scalars()))


def test_explode_and_explode_outer_have_one_stream() -> None:
    inner, outer = (
        bound(f"SELECT count(*) AS n FROM (SELECT {call}(items) AS i FROM t) {WINDOW}")
        for call in ("explode", "explode_outer")
    )
    assert inner.stream == outer.stream
    assert (inner.where is not None, outer.where) == (True, None)


def test_the_columns_of_views() -> None:
    each, both = (bind_view(name, CATALOG, InterpretedScalars(), {}) for name in VIEWS)
    assert (list(each.columns), each.columns["item"]) == (["ts", "a", "item"], ITEMS.value_type)
    assert list(both.columns.items()) == [("ts", TIME), ("a", pa.int32())]
    assert sources_of("SELECT count(*) FROM both", views=VIEWS) == ("t", "u")
    assert sources_of(f"SELECT k FROM t {WINDOW} LATERAL VIEW explode(m) x AS k, v GROUP BY k") == ("t",)


REFUSED = {
    "UNION": (f"SELECT sum(a) AS s FROM (SELECT ts, a FROM t UNION SELECT at, b FROM u) {WINDOW}", "write UNION ALL"),
    "UNION ALL outside": (f"SELECT sum(a) AS s FROM t {WINDOW} UNION ALL SELECT 1", "in subqueries, WITH and views only"),
    "no time": (f"SELECT sum(a) AS s FROM (SELECT a FROM t UNION ALL SELECT b FROM u) {WINDOW}", "must select the event time of its stream"),
    "other types": (f"SELECT count(*) AS n FROM (SELECT ts, a FROM t UNION ALL SELECT at, CAST(b AS STRING) FROM u) {WINDOW}", "a is int32 in the first part of UNION ALL and string here; write CAST"),
    "other numbers of columns": (f"SELECT count(*) AS n FROM (SELECT ts, a FROM t UNION ALL SELECT at FROM u) {WINDOW}", "different numbers of columns: 2 and 1"),
    "ROWS": ("SELECT sum(a) AS s FROM both [ROWS 5 SLIDE 5]", "are along the event time, ts; use RANGE"),
    "an aggregate in a part": (f"SELECT sum(a) AS s FROM (SELECT ts, a FROM t UNION ALL SELECT at, sum(b) FROM u) {WINDOW}", "not supported in a subquery"),
    "explode outside": (f"SELECT explode(items) AS i FROM t {WINDOW}", r"explode\(\) is allowed only in a subquery, in a view, or after LATERAL VIEW"),
    "explode in an expression": (f"SELECT count(*) AS n FROM (SELECT explode(items).n AS i FROM t) {WINDOW}", "must be a whole item of SELECT"),
    "no array": (f"SELECT count(*) AS n FROM (SELECT explode(a) AS i FROM t) {WINDOW}", "takes an array or a map, and this is int32"),
    "two arrays": (f"SELECT count(*) AS n FROM (SELECT explode(items) AS i, explode(m) AS (k, v) FROM t) {WINDOW}", "can explode one expression of a stream"),
    "two LATERAL VIEWs": (f"SELECT count(*) AS n FROM t {WINDOW} LATERAL VIEW explode(items) x AS i LATERAL VIEW explode(m) y AS k, v", "can explode one expression of a stream"),
    "one name for a map": (f"SELECT count(*) AS n FROM (SELECT explode(m) AS k FROM t) {WINDOW}", "returns 2 columns here"),
    "inline": (f"SELECT count(*) AS n FROM (SELECT inline(items) FROM t) {WINDOW}", "inline"),
    "another LATERAL": (f"SELECT count(*) AS n FROM t {WINDOW}, LATERAL (SELECT 1)", "LATERAL is supported as LATERAL VIEW"),
    "a join of streams": (f"SELECT count(*) AS n FROM both {WINDOW} JOIN u ON both.a = u.b AND u.at BETWEEN both.ts AND both.ts + INTERVAL 5 SECONDS", "both can.t be joined with a stream: it is the result of UNION ALL or explode"),
    "an unknown column": (f"SELECT count(*) AS n FROM (SELECT explode(itens) AS i FROM t) {WINDOW}", "unknown column itens; did you mean items"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(SQLError, match=message):
        bound(text)


def test_results_of_queries_are_not_exploded() -> None:
    texts = {
        "lists": f"SELECT collect_list(a) AS l FROM t {WINDOW}",
        "q": f"SELECT count(*) AS n FROM (SELECT explode(l) AS x FROM lists) {WINDOW}",
    }
    query = bind_all(texts, CATALOG, InterpretedScalars(), {})["q"]
    assert isinstance(query, SQLError) and "read declared streams, and lists is not one" in query.message

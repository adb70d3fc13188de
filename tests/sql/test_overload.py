"""ON OVERLOAD PREFER at the end of a window query: which rows it wants when there is not time for all."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sql.stores_catalog import CATALOG, COUNT, SUMMARIES
from tests.sql.test_templates import counted
from tests.sql.trades_catalog import Rules
from transom.elements import Emit
from transom.errors import SQLError
from transom.sql import Query, bind, bind_one
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Number
from transom.sql.query import OverloadPreference

STORES = replace(CATALOG, summaries=SUMMARIES)
QUERY = "SELECT till, sum(price) AS s FROM store1 a [RANGE 5 min SLIDE 1 min] WHERE price > 1 GROUP BY till"
ITEM, TILL = EstimatedCount("store1", "item"), EstimatedCount("store1", "till")


def bound(text: str) -> Query:
    return bind_one(text, STORES, Rules())


CLAUSES: dict[str, OverloadPreference] = {
    f"ON OVERLOAD PREFER {COUNT}(item)": OverloadPreference("desc", ITEM),
    f"on overload prefer ASC {COUNT}(a.item);": OverloadPreference("asc", ITEM),
    f"ON OVERLOAD PREFER weighted {COUNT}(item) * price": OverloadPreference("weighted", Arithmetic("*", ITEM, Column("store1", "price"))),
    f"ON OVERLOAD PREFER desc {COUNT}(item) + {COUNT}(till)": OverloadPreference("desc", Arithmetic("+", ITEM, TILL)),
    "ON OVERLOAD PREFER desc price": OverloadPreference("desc", Column("store1", "price")),
}  # fmt: skip


@pytest.mark.parametrize("clause", CLAUSES)
def test_each_form_of_the_clause_is_bound(clause: str) -> None:
    query = bound(f"{QUERY} {clause}")
    assert query.overload == CLAUSES[clause]
    assert replace(query, text=QUERY, overload=None) == bound(QUERY)


def test_on_overload_comes_before_emit_early() -> None:
    query = bound(f"{QUERY} ON OVERLOAD PREFER asc {COUNT}(item) EMIT EARLY AT 50% OF SLIDE")
    assert query.overload == OverloadPreference("asc", ITEM)
    assert query.emit == Emit(at=(0.5,))


def test_the_clause_may_follow_any_other_clause() -> None:
    joined = f"SELECT count(*) FROM store1 [RANGE 5 s SLIDE 1 s] JOIN goods ON store1.item = goods.item ON OVERLOAD PREFER {COUNT}(store1.item)"
    assert bound(joined).overload == OverloadPreference("desc", ITEM)
    assert bound(joined).joins
    windowed = f"SELECT count(*) FROM store1 GROUP BY window(ts, '5 s') ON OVERLOAD PREFER {COUNT}(item)"
    assert bound(windowed).overload == OverloadPreference("desc", ITEM)


def test_queries_that_differ_in_constants_keep_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch)
    texts = {
        f"q{i}": f"{QUERY.replace('> 1', f'> {i}')} ON OVERLOAD PREFER {COUNT}(item) * {i % 7} EMIT EARLY AT {i % 5 + 1}0% OF SLIDE"
        for i in range(60)
    }
    many = bind(texts, STORES, Rules())
    assert len(read) == 1
    for i in range(60):
        query = many[f"q{i}"]
        assert isinstance(query, Query)
        assert query.overload == OverloadPreference("desc", Arithmetic("*", ITEM, Number(float(i % 7))))
        assert query.emit == Emit(at=((i % 5 + 1) / 10,))
        assert query == bound(texts[f"q{i}"])


def test_columns_of_another_query_s_clause_are_not_kept() -> None:
    texts = {
        f"q{i}": f"{QUERY} ON OVERLOAD PREFER {COUNT}(item) + {i} * price / {i + 1}" for i in range(1500)
    }
    for name, query in bind(texts, STORES, Rules()).items():
        assert isinstance(query, Query), name
        assert query.overload is not None
        right = Arithmetic("*", Number(float(name[1:])), Column("store1", "price"))
        whole = Arithmetic("/", right, Number(float(name[1:]) + 1))
        assert query.overload.promise == Arithmetic("+", ITEM, whole)


def test_an_error_points_into_its_own_text() -> None:
    texts = {
        name: f"{QUERY} ON OVERLOAD PREFER {number} * {COUNT}(item) FADE"
        for name, number in (("a", 1), ("b", 22))
    }
    for name, error in bind(texts, STORES, Rules()).items():
        assert isinstance(error, SQLError)
        assert error.text == texts[name]
        assert error.text[error.start : error.end] == "FADE"


def test_overload_may_be_a_name() -> None:
    relation = replace(CATALOG.tables["goods"], name="overload")
    catalog = replace(STORES, tables={"overload": relation})
    text = "SELECT count(*) AS overload FROM store1 [RANGE 5 s SLIDE 1 s] JOIN overload ON overload.item = store1.item"
    assert bind_one(text, catalog, Rules()).overload is None


@pytest.mark.parametrize(
    ("clause", "said", "place"),
    [
        ("ON OVERLOAD", "expected PREFER after OVERLOAD", "OVERLOAD"),
        (f"ON OVERLOAD PREFR {COUNT}(item)", "expected PREFER after OVERLOAD, found PREFR; did you mean PREFER?", "PREFR"),
        ("ON OVERLOAD PREFER", "expected an expression after PREFER", "PREFER"),
        ("ON OVERLOAD PREFER asc EMIT EARLY ON DEMAND", "expected an expression after asc", "asc"),
        (f"ON OVERLOAD PREFER asd {COUNT}(item)", "expected desc, asc or weighted, found asd; did you mean asc?", "asd"),
        (f"ON OVERLOAD PREFER {COUNT}(price)", "price of store1 has no summary; make one with CREATE SUMMARY store1_price ON store1(price) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)", "price"),
        (f"ON OVERLOAD PREFER {COUNT}(itm)", "unknown column itm; did you mean item?", "itm"),
        ("ON OVERLOAD PREFER name", "a promise is a number, and name is string", "name"),
        (f"ON OVERLOAD PREFER {COUNT}(item) FADE FACTOR 0.5", "FADE belongs to WITH PREFERENCE; ON OVERLOAD PREFER takes an order only", "FADE"),
        (f"ON OVERLOAD PREFER {COUNT}(item) BUDGET 5 PROBES", "BUDGET belongs to WITH PREFERENCE", "BUDGET"),
        (f"ON OVERLOAD PREFER {COUNT}(item) USING exact", "ON OVERLOAD PREFER is for queries with SLIDE, and USING for those without", "USING"),
        (f"ON OVERLOAD PREFER {COUNT}(item) HAVING s > 5", "ON OVERLOAD PREFER comes at the very end of a query", "HAVING"),
        (f"ON OVERLOAD PREFER {COUNT}(item) ON OVERLOAD PREFER item", "ON OVERLOAD PREFER is given twice", "ON"),
        (f"ON OVERLOAD PREFER {COUNT}(item) EMITS EARLY", "found EMITS; did you mean EMIT?", "EMITS"),
        (f"EMIT EARLY ON DEMAND ON OVERLOAD PREFER {COUNT}(item)", "ON OVERLOAD PREFER comes before EMIT EARLY", "ON OVERLOAD"),
    ],
)  # fmt: skip
def test_a_wrong_clause_is_pointed_at(clause: str, said: str, place: str) -> None:
    with pytest.raises(SQLError) as refused:
        bound(f"{QUERY} {clause}")
    error = refused.value
    assert said in error.message
    assert error.text[error.start : error.end] == place


def test_the_clause_needs_slide_and_columns_of_the_stream() -> None:
    clause = f"ON OVERLOAD PREFER {COUNT}(item)"
    with pytest.raises(SQLError, match="ON OVERLOAD PREFER needs SLIDE"):
        bound(f"SELECT sum(price) FROM store1 [RANGE 5 min] {clause}")
    text = "SELECT count(*) FROM store1 [RANGE 5 s SLIDE 1 s] JOIN goods g ON store1.item = g.item ON OVERLOAD PREFER"
    with pytest.raises(SQLError, match="a promise can use only columns of a stream, and item is a table's"):
        bound(f"{text} g.item")

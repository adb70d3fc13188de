"""Joins with static tables: by comma and WHERE, by ON, by USING, in chains."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from hashlib import sha1

import pyarrow as pa
import pytest

from tests.sql.trades_catalog import bound
from transom.errors import SQLError
from transom.sql.query import And, Comparison, Join, Scalar, Truth

WINDOW = "[RANGE 5 min SLIDE 1 min]"


def id_of(table: str, condition: str) -> str:
    digest = sha1(f"{table}\n{condition}".encode()).hexdigest()[:8]
    return f"{table}#{digest}"


CLOSE = id_of("Close", "`Close.Symbol` = `symbol`")
FLAG = Truth(Scalar(f"`{CLOSE}`", pa.bool_()))
ON_CLOSE = f"`{CLOSE}.Symbol` = `symbol`"


INNER_JOINS = {
    "comma and WHERE": f"Trades T {WINDOW}, Close C WHERE T.symbol = C.symbol",
    "comma and WHERE, table first": f"Trades T {WINDOW}, Close C WHERE C.SYMBOL = T.Symbol",
    "table before the stream": f"Close C, Trades T {WINDOW} WHERE (C.symbol = T.symbol)",
    "JOIN ON": f"Trades {WINDOW} JOIN Close ON Trades.symbol = Close.symbol",
    "INNER JOIN ON, table first": f"Trades {WINDOW} T INNER JOIN Close AS C ON C.symbol = T.symbol",
    "JOIN USING": f"Trades T {WINDOW} JOIN Close C USING (symbol)",
    "JOIN USING in another case": f"Trades T {WINDOW} JOIN Close C USING (Symbol)",
}


@pytest.mark.parametrize("source", INNER_JOINS.values(), ids=INNER_JOINS)
def test_an_inner_join_is_a_left_join_with_its_match_flag_in_where(source: str) -> None:
    query = bound(f"SELECT avg(cp) FROM {source}")
    assert query.joins == (Join(CLOSE, "Close", ON_CLOSE, ("Symbol",), ("cp",)),)
    assert query.where == FLAG
    assert query.calls[0].args == (Scalar(f"`{CLOSE}.cp`", pa.float64()),)


@pytest.mark.parametrize("words", ["LEFT JOIN", "left outer join"])
def test_a_left_join_has_no_match_flag_in_where(words: str) -> None:
    query = bound(
        f"SELECT avg(cp) FROM Trades T {WINDOW} {words} Close C ON T.symbol = C.symbol WHERE price > 1"
    )
    assert query.joins == (Join(CLOSE, "Close", ON_CLOSE, ("Symbol",), ("cp",)),)
    assert query.where == Comparison(Scalar("`price`", pa.float64(), "price"), ">", 1.0)


@pytest.mark.parametrize(
    "source",
    [
        f"Trades T {WINDOW}, Close C, Index X WHERE T.symbol = C.symbol AND X.sector = C.sector AND price > 1",
        f"Trades T {WINDOW}, Index X, Close C WHERE C.sector = X.sector AND price > 1 AND T.symbol = C.symbol",
        f"Trades T {WINDOW} JOIN Close C ON T.symbol = C.symbol JOIN Index X ON C.sector = X.sector WHERE price > 1",
        f"Trades T {WINDOW}, Close C JOIN Index X ON C.sector = X.sector WHERE T.symbol = C.symbol AND price > 1",
    ],
)
def test_a_table_may_be_joined_to_an_earlier_table(source: str) -> None:
    query = bound(f"SELECT avg(cp) FROM {source} GROUP BY X.name")
    index = id_of("Index", f"`Index.sector` = `{CLOSE}.sector`")
    assert query.joins == (
        Join(CLOSE, "Close", ON_CLOSE, ("Symbol",), ("cp", "sector")),
        Join(index, "Index", f"`{index}.sector` = `{CLOSE}.sector`", ("sector",), ("name",)),
    )
    price = Comparison(Scalar("`price`", pa.float64(), "price"), ">", 1.0)
    assert query.where == And((FLAG, Truth(Scalar(f"`{index}`", pa.bool_())), price))
    assert query.keys[0].scalar == Scalar(f"`{index}.name`", pa.string())


def test_a_condition_on_the_table_alone_stays_in_where() -> None:
    query = bound(
        f"SELECT count(*) FROM Trades T {WINDOW}, Close C WHERE T.symbol = C.symbol AND C.sector = 3"
    )
    assert query.joins[0].columns == ("sector",)
    assert query.where == And((FLAG, Comparison(Scalar(f"`{CLOSE}.sector`", pa.int32()), "=", 3)))


def test_other_conditions_of_on_stay_in_on() -> None:
    query = bound(
        f"SELECT count(*) FROM Trades T {WINDOW} LEFT JOIN Close C "
        "ON (C.cp > 1 OR T.live) AND lower(T.symbol) = C.symbol AND T.site + 1 = C.sector"
    )
    (join,) = query.joins
    assert join.on == (
        f"(`{join.id}.cp` > 1 OR `live`) AND `{join.id}.Symbol` = lower(`symbol`) "
        f"AND `{join.id}.sector` = (`site` + 1)"
    )
    assert (join.keys, join.columns) == (("Symbol", "sector"), ("cp",))


def test_the_same_table_can_be_joined_twice() -> None:
    query = bound(
        f"SELECT max(A.cp - B.cp) FROM Trades T {WINDOW} JOIN Close A ON T.symbol = A.symbol "
        "LEFT JOIN Close B ON A.sector = B.sector"
    )
    first, second = query.joins
    assert (first.id, first.table, second.table) == (CLOSE, "Close", "Close")
    assert first.id != second.id
    assert query.calls[0].args[0].sql == f"`{first.id}.cp` - `{second.id}.cp`"


def test_equal_joins_under_two_aliases_are_one() -> None:
    query = bound(
        f"SELECT max(A.cp), max(B.sector) FROM Trades T {WINDOW} JOIN Close A ON T.symbol = A.symbol "
        "JOIN Close B ON B.symbol = T.symbol"
    )
    assert query.joins == (Join(CLOSE, "Close", ON_CLOSE, ("Symbol",), ("cp", "sector")),)
    assert query.where == FLAG


@pytest.mark.parametrize(
    ("source", "said", "place"),
    [
        (f"Trades T {WINDOW}, Close C", "no equality links C", "Close C"),
        (f"Trades T {WINDOW}, Close C WHERE C.sector = 3", "no equality links C", "Close C"),
        (f"Trades T {WINDOW} JOIN Close C ON T.price > C.cp", "no equality links C", "Close C"),
        (f"Trades T {WINDOW} JOIN Close C", "no equality links C", "Close C"),
        (f"Trades T {WINDOW}, S", "can't be compared", "S"),
        (f"Trades T {WINDOW} RIGHT JOIN Close C ON T.symbol = C.symbol", "RIGHT JOIN of a static table is not supported", "Close C"),
        (f"Trades T {WINDOW} FULL OUTER JOIN Close C ON T.symbol = C.symbol", "FULL JOIN of a static table is not supported", "Close C"),
        (f"Trades T {WINDOW} CROSS JOIN Close C", "CROSS JOIN is not supported", "CROSS"),
        (f"Trades T {WINDOW} LEFT SEMI JOIN Close C ON T.symbol = C.symbol WHERE C.cp > 1", "columns of C can't be read here", "C.cp"),
        (f"Trades T {WINDOW} LEFT SEMI JOIN S ON T.symbol = S.symbol", "the streams have different clocks", "S"),
        (f"Trades T {WINDOW} ANTI JOIN Close C ON T.price > C.cp", "no equality links C", "Close C"),
        (f"Trades T {WINDOW} WHERE price > 1 OR symbol IN (SELECT Symbol FROM Close)", "a subquery must be a whole condition of WHERE", "symbol IN (SELECT Symbol FROM Close)"),
        (f"Trades T {WINDOW} WHERE symbol IN (SELECT Symbol, cp FROM Close)", "selects one column", "cp"),
        (f"Trades T {WINDOW} WHERE symbol IN (SELECT upper(Symbol) FROM Close)", "selects a column of the table", "symbol IN (SELECT upper(Symbol) FROM Close)"),
        (f"Trades T {WINDOW} WHERE symbol IN (SELECT symbol FROM Trades)", "and Trades is a stream", "Trades"),
        (f"Trades T {WINDOW} WHERE symbol IN (SELECT Symbol FROM Close LIMIT 1)", "LIMIT is not supported in a subquery", "Symbol"),
        (f"Trades T {WINDOW} WHERE EXISTS (SELECT 1 FROM Close)", "no equality links Close", "Close"),
        (f"Trades T {WINDOW} WHERE EXISTS (SELECT 1 FROM Close c WHERE c.symbl = T.symbol)", "unknown column symbl", "symbl"),
        (f"Trades T {WINDOW} NATURAL JOIN Close C", "NATURAL JOIN is not supported", "NATURAL"),
        (f"Trades T {WINDOW} JOIN Close T ON T.symbol = T.symbol", "T is in FROM twice", "Close T"),
        (f"Trades T {WINDOW} JOIN Clos C ON T.symbol = C.symbol", "unknown stream or table Clos; did you mean Close?", "Clos"),
        (f"Trades T {WINDOW} JOIN Close C ON T.symbol = C.symbl", "unknown column symbl; did you mean Symbol?", "symbl"),
        (f"Trades T {WINDOW} JOIN Close C ON symbol = C.symbol", "symbol is ambiguous: T.symbol or C.Symbol", "symbol"),
        (f"Trades T {WINDOW} JOIN Close C ON count(*) = C.sector", "an aggregate is not allowed in ON", "count(*)"),
        (f"Close C {WINDOW}", "a query needs a stream; this is a static table", "Close C"),
    ],
)  # fmt: skip
def test_a_wrong_join_is_pointed_at(source: str, said: str, place: str) -> None:
    with pytest.raises(SQLError) as refused:
        bound(f"SELECT count(*) FROM {source}")
    error = refused.value
    assert said in error.message
    assert error.text[error.start : error.end] == place

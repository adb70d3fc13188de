"""WHERE, lowered: what the kernel compares by itself, and what is left to Spark."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.trades_catalog import TRADES, UTC, over_trades
from transom.errors import SQLError
from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth, scalars_of

DAY = 86_400_000_000
T2020 = 18_262 * DAY


def col(name: str) -> Scalar:
    return Scalar(f"`{name}`", TRADES[name], name)


def truth(sql: str) -> Truth:
    return Truth(Scalar(sql, pa.bool_()))


def is_(name: str, op: str, value: Any) -> Comparison:
    return Comparison(col(name), op, value)


PRODUCT = Scalar("`price` * `volume`", pa.float64())


@pytest.mark.parametrize(
    ("condition", "predicate"),
    [
        # numbers
        ("volume > 50000", is_("volume", ">", 50000)),
        ("T.Volume>50000", is_("volume", ">", 50000)),
        ("50000 < volume", is_("volume", ">", 50000)),
        ("50000 = volume", is_("volume", "=", 50000)),
        ("volume <> 5", is_("volume", "!=", 5)),
        ("volume != -5", is_("volume", "!=", -5)),
        ("volume <=> 5", is_("volume", "<=>", 5)),
        ("volume IS NOT DISTINCT FROM 5", is_("volume", "<=>", 5)),
        ("volume IS DISTINCT FROM 5", Not(is_("volume", "<=>", 5))),
        ("volume = 5L", is_("volume", "=", 5)),
        ("volume >= 10.5", is_("volume", ">=", Decimal("10.5"))),
        ("volume >= 10.0", is_("volume", ">=", 10)),
        ("volume >= 1e3", is_("volume", ">=", 1000.0)),
        ("volume >= 1e30", truth("`volume` >= 1e30")),
        ("price > 1e400", truth("`price` > 1e400")),
        ("price > .1.5", truth("`price` > 0.1.5")),
        ("price > 10", is_("price", ">", 10.0)),
        ("price = 0.1", is_("price", "=", 0.1)),
        ("price = 1.5D", is_("price", "=", 1.5)),
        ("rate = 0.1", is_("rate", "=", 0.1)),
        ("rate = 16777217", is_("rate", "=", 16777216.0)),
        ("cost <= 7.25", is_("cost", "<=", Decimal("7.25"))),
        ("cost <= 7", is_("cost", "<=", Decimal(7))),
        ("cost <= 7e0", truth("`cost` <= 7e0")),
        ("price * volume > 10", Comparison(PRODUCT, ">", 10.0)),
        ("((price * volume)) > (10)", Comparison(PRODUCT, ">", 10.0)),
        # other kinds of values
        ("symbol = 'MSFT'", is_("symbol", "=", "MSFT")),
        ('symbol < "M"', is_("symbol", "<", "M")),
        ("symbol = 'it''s'", is_("symbol", "=", "it's")),
        (r"symbol = 'a\tb'", truth(r"`symbol` = 'a\tb'")),
        ("lower(symbol) = 'm'", Comparison(Scalar("lower(`symbol`)", pa.string()), "=", "m")),
        ("live = true", is_("live", "=", True)),
        ("live IS TRUE", is_("live", "<=>", True)),
        ("live IS NOT FALSE", Not(is_("live", "<=>", False))),
        ("live", Truth(col("live"))),
        ("NOT live", Not(Truth(col("live")))),
        ("day = DATE '2020-01-01'", is_("day", "=", date(2020, 1, 1))),
        ("day = '2020-01-01'", is_("day", "=", date(2020, 1, 1))),
        ("day = '2020-02-30'", truth("`day` = '2020-02-30'")),
        ("day = '2020'", truth("`day` = '2020'")),
        ("cast(ts as date) = '2020-01-01'", Comparison(Scalar("CAST(`ts` AS DATE)", pa.date32()), "=", date(2020, 1, 1))),
        ("ts >= TIMESTAMP '2020-01-01 00:00:00'", is_("ts", ">=", T2020)),
        ("ts >= '2020-01-01'", is_("ts", ">=", T2020)),
        ("ts >= DATE '2020-01-01'", is_("ts", ">=", T2020)),
        ("ts >= '2020-01-01 02:00:00.5+02:00'", is_("ts", ">=", T2020 + 500_000)),
        ("local >= '2020-01-01 00:00'", is_("local", ">=", T2020)),
        ("local >= '2020-01-01 00:00:00+02:00'", truth("`local` >= '2020-01-01 00:00:00+02:00'")),
        # lists and ranges
        ("price BETWEEN 1 AND 2.5", And((is_("price", ">=", 1.0), is_("price", "<=", 2.5)))),
        ("price NOT BETWEEN 1 AND 2", Not(And((is_("price", ">=", 1.0), is_("price", "<=", 2.0))))),
        ("price BETWEEN 1 AND volume", truth("`price` BETWEEN 1 AND `volume`")),
        ("symbol IN ('a', 'b', 'a')", Member(col("symbol"), ("a", "b"))),
        ("symbol NOT IN ('a', NULL)", Not(Member(col("symbol"), ("a",), null=True))),
        ("site IN (3, 4)", Member(col("site"), (3, 4))),
        ("site IN (3, '4')", truth("`site` IN (3, '4')")),
        ("symbol IN ('a', symbol)", truth("`symbol` IN ('a', `symbol`)")),
        # nulls
        ("symbol IS NULL", IsNull(col("symbol"))),
        ("symbol IS NOT NULL", Not(IsNull(col("symbol")))),
        ("symbol <=> NULL", IsNull(col("symbol"))),
        ("symbol = NULL", truth("`symbol` = NULL")),
        # connectives
        ("price > 1 AND (volume > 2 AND site = 3)", And((is_("price", ">", 1.0), is_("volume", ">", 2), is_("site", "=", 3)))),
        ("price > 1 AND volume BETWEEN 2 AND 3", And((is_("price", ">", 1.0), is_("volume", ">=", 2), is_("volume", "<=", 3)))),
        ("price > 1 OR volume > 2 AND live", Or((is_("price", ">", 1.0), And((is_("volume", ">", 2), Truth(col("live"))))))),
        ("NOT (price > 1 OR live)", Not(Or((is_("price", ">", 1.0), Truth(col("live")))))),
        # left to Spark
        ("symbol LIKE 'M%'", truth("`symbol` LIKE 'M%'")),
        ("symbol NOT LIKE 'M%'", truth("`symbol` NOT LIKE 'M%'")),
        ("symbol RLIKE '^M'", truth("`symbol` RLIKE '^M'")),
        ("midcap(symbol)", truth("`midcap`(`symbol`)")),
        ("price > volume", truth("`price` > `volume`")),
        ("symbol = 5", truth("`symbol` = 5")),
        ("volume = '5'", truth("`volume` = '5'")),
        ("1 = 1", truth("1 = 1")),
        ("true", truth("true")),
        ("price > 1 = live", truth("`price` > 1 = `live`")),
        ("spot.lat > 1", Comparison(Scalar("`spot`.`lat`", pa.float64()), ">", 1.0)),
    ],
)  # fmt: skip
def test_a_condition_is_lowered(condition: str, predicate: Predicate) -> None:
    assert over_trades("count(*)", f"WHERE {condition}").where == predicate


def test_the_same_lowering_serves_filter() -> None:
    (call,) = over_trades("count(*) FILTER (WHERE price > 1 AND live)").calls
    assert call.where == And((is_("price", ">", 1.0), Truth(col("live"))))


def test_no_condition_is_no_predicate() -> None:
    query = over_trades()
    assert query.where is None
    assert list(scalars_of(query.where)) == []


def test_types_are_those_of_the_columns() -> None:
    query = over_trades("count(*)", "WHERE ts > '2020-01-01' AND price * volume > 2")
    assert [scalar.type for scalar in scalars_of(query.where)] == [UTC, pa.float64()]


@pytest.mark.parametrize(
    ("condition", "said", "place"),
    [
        ("price", "expected a condition, and this is double", "price"),
        ("price + 1", "expected a condition, and this is double", "price + 1"),
        ("live AND volume", "expected a condition, and this is int64", "volume"),
        ("count(*) > 1", "an aggregate is not allowed in WHERE", "count(*)"),
        ("to_number(symbol) > 1", "to_number takes two arguments", "to_number(symbol)"),
        ("price IN (SELECT 1)", "the subquery needs FROM and the name of a static table", "1"),
    ],
)
def test_an_expression_that_is_no_condition_is_an_error_with_a_place(
    condition: str, said: str, place: str
) -> None:
    with pytest.raises(SQLError) as refused:
        over_trades("count(*)", f"WHERE {condition}")
    error = refused.value
    assert said in error.message
    assert error.text[error.start : error.end] == place

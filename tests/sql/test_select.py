"""SELECT, GROUP BY and HAVING: keys, aggregate calls, and the columns of the result."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.sql.trades_catalog import TRADES, bound, over_trades
from transom.errors import SQLError
from transom.sql.binding.aggregate_calls import result_type
from transom.sql.query import Call, Comparison, Item, Key, Scalar

LONG, DOUBLE = pa.int64(), pa.float64()


def col(name: str) -> Scalar:
    return Scalar(f"`{name}`", TRADES[name], name)


@pytest.mark.parametrize(
    ("written", "function", "argument", "kind", "parameters"),
    [
        ("count(*)", "count_rows", None, LONG, ()),
        ("COUNT(1)", "count_rows", None, LONG, ()),
        ("count(price)", "count", "price", LONG, ()),
        ("sum(price)", "sum", "price", DOUBLE, ()),
        ("sum(volume)", "sum", "volume", LONG, ()),
        ("sum(site)", "sum", "site", LONG, ()),
        ("sum(rate)", "sum", "rate", DOUBLE, ()),
        ("sum(cost)", "sum", "cost", pa.decimal128(20, 2), ()),
        ("avg(cost)", "avg", "cost", pa.decimal128(14, 6), ()),
        ("avg(site)", "avg", "site", DOUBLE, ()),
        ("mean(rate)", "avg", "rate", DOUBLE, ()),
        ("min(symbol)", "min", "symbol", pa.string(), ()),
        ("max(ts)", "max", "ts", TRADES["ts"], ()),
        ("max(live)", "max", "live", pa.bool_(), ()),
        ("min(cost)", "min", "cost", TRADES["cost"], ()),
        ("variance(cost)", "var_samp", "cost", DOUBLE, ()),
        ("var_samp(price)", "var_samp", "price", DOUBLE, ()),
        ("var_pop(price)", "var_pop", "price", DOUBLE, ()),
        ("stddev(price)", "stddev_samp", "price", DOUBLE, ()),
        ("std(price)", "stddev_samp", "price", DOUBLE, ()),
        ("stddev_samp(price)", "stddev_samp", "price", DOUBLE, ()),
        ("stddev_pop(price)", "stddev_pop", "price", DOUBLE, ()),
        ("approx_count_distinct(symbol)", "approx_count_distinct", "symbol", LONG, (0.05,)),
        ("approx_count_distinct(symbol, 0.01)", "approx_count_distinct", "symbol", LONG, (0.01,)),
        ("approx_percentile(site, 0.5)", "approx_percentile", "site", pa.int32(), (0.5, 10_000)),
        ("percentile_approx(ts, 1, 100)", "approx_percentile", "ts", TRADES["ts"], (1.0, 100)),
        ("approx_percentile(price, array(0.1, 0.9), 50)", "approx_percentile", "price", pa.list_(DOUBLE), ((0.1, 0.9), 50)),
    ],
)  # fmt: skip
def test_an_aggregate_has_sparks_type(
    written: str, function: str, argument: str | None, kind: pa.DataType, parameters: tuple[Any, ...]
) -> None:
    query = over_trades(f"{written} AS x")
    args = (col(argument),) if argument else ()
    assert query.calls == (Call(function, args, kind, None, parameters),)
    assert query.items == (Item("x", "`a0`", kind),)


def test_wide_decimals_stay_within_38_digits() -> None:
    wide = pa.decimal128(38, 10)
    assert result_type("sum", [wide], ()) == pa.decimal128(38, 10)
    assert result_type("avg", [wide], ()) == pa.decimal128(38, 14)


def test_equal_calls_are_one() -> None:
    query = over_trades(
        "sum(price) AS s, SUM( T.Price ) / count(*) AS m", "HAVING count(1) > 1 AND sum(price) > 2"
    )
    assert [call.function for call in query.calls] == ["sum", "count_rows"]
    assert [item.sql for item in query.items] == ["`a0`", "`a0` / `a1`"]
    assert query.having == "`a1` > 1 AND `a0` > 2"


def test_calls_that_differ_in_their_filter_are_two() -> None:
    query = over_trades("count(*) AS n, count(*) FILTER (WHERE price > 1) AS m")
    assert query.calls[0] == Call("count_rows", (), LONG)
    assert query.calls[1] == Call("count_rows", (), LONG, Comparison(col("price"), ">", 1.0))


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("count(*)", ["count(*)"]),
        ("COUNT( * )", ["count(*)"]),
        ("SUM(T.Price * volume)", ["sum(price * volume)"]),
        ("sum(price) / count(*)", ["sum(price) / count(*)"]),
        ("sum(price) FILTER (WHERE live)", ["sum(price) FILTER (WHERE live)"]),
        ("max(spot.lat) AS `far north`", ["far north"]),
        ("1 AS one, count(*) n", ["one", "n"]),
    ],
)
def test_a_column_is_called_by_its_alias_or_its_text(select: str, names: list[str]) -> None:
    assert [item.name for item in over_trades(select).items] == names


@pytest.mark.parametrize(
    ("select", "group", "keys", "items"),
    [
        ("site, count(*) n", "site", [("site", "`site`")], [("site", "`k0`"), ("n", "`a0`")]),
        ("count(*) n", "site", [("site", "`site`")], [("site", "`k0`"), ("n", "`a0`")]),
        ("count(*) n, T.site AS s", "Site", [("s", "`site`")], [("n", "`a0`"), ("s", "`k0`")]),
        ("site AS s, count(*) n", "s", [("s", "`site`")], [("s", "`k0`"), ("n", "`a0`")]),
        ("site + 1 AS s, count(*) n", "1", [("s", "`site` + 1")], [("s", "`k0`"), ("n", "`a0`")]),
        ("(SITE+1) * 2 AS s", "site + 1", [("site + 1", "`site` + 1")], [("site + 1", "`k0`"), ("s", "(`k0`) * 2")]),
        ("site, site + 1 AS t", "site", [("site", "`site`")], [("site", "`k0`"), ("t", "`k0` + 1")]),
        ("spot.lat", "spot", [("spot", "`spot`")], [("spot", "`k0`"), ("lat", "`k0`.`lat`")]),
        ("count(*) AS site", "site", [("site_2", "`site`")], [("site_2", "`k0`"), ("site", "`a0`")]),
        ("site, site AS again", "site, site", [("site", "`site`")], [("site", "`k0`"), ("again", "`k0`")]),
        ("lower(symbol) l, site", "lower(symbol), site", [("l", "lower(`symbol`)"), ("site", "`site`")], [("l", "`k0`"), ("site", "`k1`")]),
        ("sum(site) AS price, price AS p", "price", [("p", "`price`")], [("price", "`a0`"), ("p", "`k0`")]),
    ],
)  # fmt: skip
def test_keys_are_found_in_what_is_selected(
    select: str, group: str, keys: list[tuple[str, str]], items: list[tuple[str, str]]
) -> None:
    query = over_trades(select, f"GROUP BY {group}")
    assert [(key.name, key.scalar.sql) for key in query.keys] == keys
    assert [(item.name, item.sql) for item in query.items] == items


def test_a_key_that_is_a_plain_column_has_its_name() -> None:
    query = over_trades("count(*)", "GROUP BY site, site + 1")
    assert query.keys == (Key("site", col("site")), Key("site + 1", Scalar("`site` + 1", DOUBLE)))


@pytest.mark.parametrize(
    ("select", "having", "text"),
    [
        ("site, count(*) AS n", "n > 5", "`a0` > 5"),
        ("site, count(*) AS n", "N > 5 AND site = 3", "`a0` > 5 AND `k0` = 3"),
        ("site, sum(price) / count(*) AS m", "m > 5", "(`a0` / `a1`) > 5"),
        ("site, count(*) AS n", "max(price) > n", "`a1` > `a0`"),
        ("site, count(*) AS price", "price > 5", "`a0` > 5"),
        ("site, count(*) AS n", "sum(price) FILTER (WHERE live) > 5", "`a1` > 5"),
        ("site, count(*) AS n", "window.end > '2020-01-01'", "`window_end` > '2020-01-01'"),
    ],
)
def test_having_is_text_over_keys_and_aggregates(select: str, having: str, text: str) -> None:
    assert over_trades(select, f"GROUP BY site HAVING {having}").having == text


def test_user_defined_functions_are_listed() -> None:
    query = over_trades("SCORE(sum(price)) AS s", "WHERE MidCap(symbol)")
    assert query.functions == {"midcap", "Score"}
    assert query.items[0].sql == "`Score`(`a0`)"


@pytest.mark.parametrize(
    ("select", "rest", "said", "place"),
    [
        ("sum(prise)", "", "unknown column prise; did you mean price?", "prise"),
        ("summ(price)", "", "unknown function summ; did you mean sum?", "summ"),
        ("price", "GROUP BY site", "price is neither in GROUP BY nor inside an aggregate", "price"),
        ("T.price + count(*)", "", "T.price is neither in GROUP BY", "T.price"),
        ("count(*)", "HAVING price > 1", "price is neither in GROUP BY", "price"),
        ("count(*) AS total", "HAVING totl > 1", "unknown column totl; did you mean total?", "totl"),
        ("count(*)", "GROUP BY sit", "unknown column sit; did you mean site?", "sit"),
        ("count(*)", "GROUP BY 3", "GROUP BY position 3 is not in the SELECT list", "3"),
        ("count(*)", "GROUP BY 1", "an aggregate is not allowed in GROUP BY", "count(*)"),
        ("count(*)", "GROUP BY extra", "a map can't be grouped by", "extra"),
        ("mode(DISTINCT site)", "", "mode(DISTINCT ...) is not supported", "mode(DISTINCT site)"),
        ("count_if(site)", "", "expected a condition, and this is int32", "site"),
        ("count_if(live, live)", "", "count_if takes 1 argument, found 2", "count_if(live, live)"),
        ("bool_or(site)", "", "bool_or needs a condition, and this is int32", "site"),
        ("percentile_cont(0.5)", "", "WITHIN GROUP (ORDER BY x)", "percentile_cont(0.5)"),
        ("sum(price) WITHIN GROUP (ORDER BY site)", "", "sum does not take WITHIN GROUP", "sum(price)"),
        ("max(price) IGNORE NULLS", "", "max does not take IGNORE NULLS", "max(price)"),
        ("medain(price)", "", "unknown function medain; did you mean median?", "medain"),
        ("sum(max(price))", "", "an aggregate is not allowed in another aggregate", "max(price)"),
        ("sum(price) FILTER (WHERE count(*) > 1)", "", "an aggregate is not allowed in FILTER", "count(*)"),
        ("abs(price) FILTER (WHERE live)", "GROUP BY price", "FILTER belongs to an aggregate", "abs(price)"),
        ("sum(price) OVER (PARTITION BY site)", "", "window functions (OVER) are not supported", "OVER"),
        ("(SELECT 1)", "", "a subquery is supported in FROM, and after IN and EXISTS in WHERE", "SELECT"),
        ("count(*)", "ORDER BY 1", "ORDER BY needs LIMIT", None),
        ("count(*)", "LIMIT 1", "LIMIT needs ORDER BY", "1"),
        ("count(*)", "ORDER BY 1 LIMIT 0", "LIMIT takes a positive whole number", "0"),
        ("count(*)", "ORDER BY 1 LIMIT site", "LIMIT takes a positive whole number", "site"),
        ("count(*)", "ORDER BY 2 LIMIT 1", "ORDER BY position 2 is not in the SELECT list", "2"),
        ("count(*)", "ORDER BY price LIMIT 1", "price is neither in GROUP BY", "price"),
        ("count(*)", "ORDER BY totl LIMIT 1", "unknown column totl", "totl"),
        ("count(*)", "ORDER BY 1 LIMIT 1 OFFSET 2", "OFFSET is not supported", "OFFSET"),
        ("count(*)", "UNION ALL SELECT 1", "UNION ALL is supported in subqueries, WITH and views only", "UNION"),
        ("*", "", "SELECT * is not supported", "*"),
        ("T.*", "", "SELECT * is not supported", None),
        ("DISTINCT site", "", "SELECT DISTINCT is not supported", "DISTINCT"),
        ("1", "", "needs an aggregate or GROUP BY", "1"),
        ("sum(symbol)", "", "sum needs a number, and this is string", "symbol"),
        ("sum(*)", "", "only count takes *", "sum(*)"),
        ("sum(price, site)", "", "sum takes 1 argument, found 2", "sum(price, site)"),
        ("count()", "", "count takes at least 1 argument", "count"),
        ("max(extra)", "", "max can't compare maps", "extra"),
        ("approx_percentile(price, 2)", "", "a percentage is a constant between 0 and 1", "2"),
        ("approx_percentile(price, site)", "", "a percentage is a constant", "site"),
        ("approx_percentile(symbol, 0.5)", "", "needs a number or a time, and this is string", "symbol"),
        ("approx_percentile(price, 0.5, 0)", "", "the accuracy is a positive whole constant", "0"),
        ("approx_count_distinct(price, 5)", "", "between 0 and 1", "5"),
        ("bit_xor(site)", "", "the aggregate bit_xor is not supported", "bit_xor(site)"),
        ("count(*) AS n, sum(price) AS N", "", "two columns of the result are called N", "sum(price) AS N"),
        ("to_number(max(symbol)) AS x", "", "to_number takes two arguments", "to_number(max(symbol))"),
        ("count(*)", "HAVING count(*) + 1", "expected a condition, and this is double", "count(*) + 1"),
        ("count(*)", "GROUP-BY site", "write GROUP BY, without the hyphen", "GROUP-BY"),
        ("count(*)", "WHERE WHERE", "", "WHERE"),
        ("count(*)", "; SELECT 1", "one query at a time", ";"),
    ],
)  # fmt: skip
def test_an_error_points_at_its_place(select: str, rest: str, said: str, place: str | None) -> None:
    with pytest.raises(SQLError) as refused:
        over_trades(select, rest)
    error = refused.value
    assert said in error.message
    assert error.start is not None
    assert place is None or error.text[error.start : error.end] == place


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the query is empty"),
        (" ; ", "the query is empty"),
        ("-- nothing", "the query is empty"),
        ("DROP TABLE x", "expected SELECT"),
        ("SELECT count(*)", "expected FROM"),
        ("SELECT count(*) FROM", ""),
        ("SELECT 'open FROM Trades", "not closed"),
        (
            "SELECT count(*) FROM Tradez [RANGE 5 min SLIDE 1 min]",
            "unknown stream or table Tradez; did you mean Trades?",
        ),
        ("SELECT count(*) FROM (Trades) [RANGE 5 min SLIDE 1 min]", ""),
        ("SELECT count(*) FROM VALUES (1) [RANGE 5 min SLIDE 1 min]", ""),
        ("WITH x AS (SELECT 1) SELECT count(*) FROM x", "a subquery needs FROM and the name of a stream"),
        ("SELECT FROM Trades [RANGE 5 s SLIDE 1 s]", "SELECT needs something to select"),
    ],
)
def test_a_text_that_is_no_query_is_an_error(text: str, said: str) -> None:
    with pytest.raises(SQLError) as refused:
        bound(text)
    assert said in refused.value.message


@pytest.mark.parametrize("key", ["volume > 5", "volume % 5", "NOT live", "volume IN (1, 2)", "lower(symbol)"])
@pytest.mark.parametrize(
    "having",
    [
        "a0 > 9",
        "a0 IN (1, 2)",
        "NOT a0 > 9",
        "lower(a0) = 'x'",
        "window_start > ts0",
        "a0 % 5 = 1",
        "a0 > 9 AND g IS NULL",
    ],
)
def test_having_compares_an_alias_whatever_the_key_is(key: str, having: str) -> None:
    query = over_trades(f"{key} AS g, sum(price) AS a0, max(ts) AS ts0", f"GROUP BY {key} HAVING {having}")
    assert "`a0`" in (query.having or "") or "`a1`" in (query.having or "")


def test_the_key_in_a_condition_is_the_key_and_not_an_alias() -> None:
    query = over_trades("volume > 5 AS g, sum(price) AS a", "GROUP BY volume > 5 HAVING volume > 5 AND a > 9")
    assert query.having == "`k0` AND `a0` > 9"


def test_window_is_no_part_of_a_key() -> None:
    query = bound(
        "SELECT volume > 5 AS g, count(*) AS n FROM Trades GROUP BY window(ts, '1 minute'), volume > 5 "
        "HAVING window(ts, '1 minute').start > ts0 OR window.end > max(ts)".replace("ts0", "min(ts)")
    )
    assert query.having == "`window_start` > `a1` OR `window_end` > `a2`"


@pytest.mark.parametrize(
    ("key", "item", "sql"),
    [
        ("upper(symbol)", "upper(symbol) || '!'", "`k0` || '!'"),
        ("upper(symbol)", "'<' || upper(symbol) || '>'", "'<' || `k0` || '>'"),
        ("tags[0]", "tags[0] || '!'", "`k0` || '!'"),
        ("cast(site AS string)", "cast(site AS string) || symbol", None),
        ("site + 1", "(site + 1) || '!'", "(`k0`) || '!'"),
        ("site % 7", "(site % 7) & 3", "(`k0`) & 3"),
        ("abs(site)", "abs(site) << 1", "`k0` << 1"),
    ],
)
def test_a_key_is_found_in_a_chain_of_operators(key: str, item: str, sql: str | None) -> None:
    if sql is None:
        with pytest.raises(SQLError, match="symbol is neither in GROUP BY"):
            over_trades(f"{item} AS x, count(*)", f"GROUP BY {key}")
    else:
        assert over_trades(f"{item} AS x, count(*)", f"GROUP BY {key}").items[-2].sql == sql


@pytest.mark.parametrize(
    ("clause", "limit", "order"),
    [
        pytest.param("ORDER BY n LIMIT 3", 3, [("`a0`", False, True)], id="an alias, nulls first"),
        pytest.param("ORDER BY 2 DESC LIMIT 1", 1, [("`a0`", True, False)], id="a position, nulls last"),
        pytest.param(
            "ORDER BY max(price) DESC NULLS FIRST, site NULLS LAST LIMIT 10",
            10,
            [("`a1`", True, True), ("`k0`", False, False)],
            id="an aggregate that is not selected, and a group",
        ),
        pytest.param("ORDER BY n / 2 LIMIT 3", 3, [("`a0` / 2", False, True)], id="an expression"),
    ],
)
def test_order_by_and_limit_are_the_first_rows_of_each_window(
    clause: str, limit: int, order: list[tuple[str, bool, bool]]
) -> None:
    text = f"SELECT site, count(*) AS n FROM Trades [RANGE 5 min SLIDE 1 min] GROUP BY site {clause}"
    query = bound(text)
    assert query.top is not None
    assert query.top.limit == limit
    found = [
        (key.sql.replace("(", "").replace(")", ""), key.is_descending, key.nulls_first)
        for key in query.top.order
    ]
    assert found == order

"""Flink's TUMBLE, HOP and CUMULATE in FROM are the same windows as those of the bracket."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.errors import SQLError
from transom.sql import bind, sources_of

ENDS = "GROUP BY window_start, window_end"


@pytest.mark.parametrize(
    ("table", "bracket"),
    [
        ("TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '10' MINUTES))", "[RANGE 10 min SLIDE 10 min]"),
        ("TUMBLE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' DAY)", "[RANGE 1 day SLIDE 1 day]"),
        (
            "TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '5' MINUTES))",
            "[RANGE 1 h SLIDE 1 h ORIGIN 5 min]",
        ),
        (
            "TABLE(HOP(TABLE Trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))",
            "[RANGE 10 min SLIDE 5 min]",
        ),
        (
            "TABLE(HOP(TABLE Trades, DESCRIPTOR(day), INTERVAL '1' DAY, INTERVAL '2' DAYS))",
            "[RANGE 2 days SLIDE 1 day WATTR day]",
        ),
        (
            "TABLE(HOP(DATA => TABLE Trades, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '4' MINUTES, SLIDE => INTERVAL '2' MINUTES))",
            "[RANGE 4 min SLIDE 2 min]",
        ),
        (
            "TABLE(HOP(TABLE Trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES, INTERVAL '1' MINUTE))",
            "[RANGE 10 min SLIDE 5 min ORIGIN 1 min]",
        ),
        (
            "TABLE(CUMULATE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' DAY))",
            "[RANGE UP TO 1 day SLIDE 1 min]",
        ),
        (
            "CUMULATE(DATA => TABLE Trades, TIMECOL => DESCRIPTOR(ts), STEP => INTERVAL '2' MINUTES, SIZE => INTERVAL '1' HOUR, OFFSET => INTERVAL '7' MINUTES)",
            "[RANGE UP TO 1 hour SLIDE 2 min ORIGIN 7 min]",
        ),
    ],
)
def test_a_window_table_function_is_a_bracket(table: str, bracket: str) -> None:
    items = "window_start, window_end, site, count(*) AS n"
    function = bound(f"SELECT {items} FROM {table} {ENDS}, site")
    assert replace(function, text="") == replace(
        bound(f"SELECT {items} FROM Trades {bracket} GROUP BY site"), text=""
    )
    assert sources_of(f"SELECT {items} FROM {table} {ENDS}, site") == ("Trades",)


def test_a_window_table_function_has_an_alias_and_joins_tables() -> None:
    query = bound(
        "SELECT C.sector, sum(t.price) AS p FROM TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) AS t "
        f"JOIN Close C ON t.symbol = C.symbol {ENDS}, C.sector HAVING window_end > max(t.ts)"
    )
    assert ([join.table for join in query.joins], query.having) == (["Close"], "`window_end` > `a1`")


def test_queries_that_differ_in_lengths_only_are_read_once() -> None:
    text = f"SELECT count(*) AS n FROM TABLE(HOP(TABLE Trades, DESCRIPTOR(ts), INTERVAL '#' MINUTES, INTERVAL '#0' MINUTES)) {ENDS}"
    texts = {length: text.replace("#", length) for length in ("1", "2", "30")}
    assert bind(texts, CATALOG, Rules()) == {name: bound(one) for name, one in texts.items()}


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (
            "FROM TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY site",
            "a query over TUMBLE needs GROUP BY window_start, window_end",
            None,
        ),
        (
            f"FROM TABLE(HOP(TABLE Trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '12' MINUTES)) {ENDS}",
            "must be a multiple of its slide",
            "INTERVAL '12' MINUTES",
        ),
        (
            f"FROM TABLE(CUMULATE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '5' HOURS, INTERVAL '1' DAY)) {ENDS}",
            "the size of CUMULATE must be a multiple of its step, as in Flink",
            "INTERVAL '1' DAY",
        ),
        (
            f"FROM TABLE(CUMULATE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '5' HOURS)) {ENDS}",
            "CUMULATE needs SIZE",
            "CUMULATE",
        ),
        (
            f"FROM TABLE(SESSION(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR)) {ENDS}, site",
            "PARTITION BY in SESSION must have the columns of GROUP BY",
            "TABLE(SESSION(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
        ),
        (
            f"FROM SESSION(TABLE Trades PARTITION BY site, DESCRIPTOR(ts), INTERVAL '1' HOUR) {ENDS}, symbol",
            "PARTITION BY in SESSION must have the columns of GROUP BY",
            None,
        ),
        (
            f"FROM SESSION(TABLE Trades PARTITION BY site, DESCRIPTOR(ts)) {ENDS}, site",
            "SESSION needs one GAP",
            "SESSION",
        ),
        (
            f"FROM SESSION(TABLE Trades BY site, DESCRIPTOR(ts), INTERVAL '1' HOUR) {ENDS}",
            "expected PARTITION BY",
            "BY",
        ),
        (
            f"FROM SESSION(Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR) {ENDS}",
            r"write SESSION\(TABLE bids",
            "SESSION",
        ),
        (
            f"FROM TABLE(TUMBEL(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR)) {ENDS}",
            "expected TUMBLE, HOP, CUMULATE or SESSION",
            "TUMBEL",
        ),
        (f"FROM TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts))) {ENDS}", "TUMBLE needs SIZE", "TUMBLE"),
        (
            f"FROM TABLE(TUMBLE(Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR)) {ENDS}",
            "expected TABLE and the name of a stream",
            "Trades",
        ),
        (f"FROM TABLE(TUMBLE(TABLE Trades, ts, INTERVAL '1' HOUR)) {ENDS}", "expected DESCRIPTOR", "ts"),
        (
            f"FROM TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(symbol), INTERVAL '1' HOUR)) {ENDS}",
            "symbol",
            "symbol",
        ),
        (f"FROM TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' MONTH)) {ENDS}", "month", None),
        (
            f"FROM TABLE(TUMBLE(TABLE Trade, DESCRIPTOR(ts), INTERVAL '1' HOUR)) {ENDS}",
            "unknown stream or table Trade; did you mean Trades",
            "Trade",
        ),
        (
            f"FROM TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts), INTERVAL '1' HOUR) {ENDS}",
            "TABLE\\( is not closed",
            None,
        ),
        ("FROM TABLE(TUMBLE(TABLE Trades, DESCRIPTOR(ts)", "TUMBLE\\( is not closed", None),
        ("FROM TABLE(", "expected TUMBLE, HOP, CUMULATE or SESSION", None),
    ],
)
def test_a_wrong_function_is_an_error_at_its_place(text: str, message: str, place: str | None) -> None:
    with pytest.raises(SQLError, match=message) as caught:
        bound(f"SELECT count(*) AS n {text}")
    assert place is None or caught.value.text[caught.value.start : caught.value.end] == place

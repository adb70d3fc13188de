"""The window of a query in all the ways to write it."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sql.trades_catalog import CATALOG, UTC, Rules, bound
from transom.elements import Clock, ClockKind, WindowSpec
from transom.errors import SQLError
from transom.sql import bind_one

MINUTE = 60_000_000
TS = Clock("Trades", "ts")
FIVE_ONE = WindowSpec.ending(5 * MINUTE, MINUTE)


@pytest.mark.parametrize(
    ("source", "spec"),
    [
        ("Trades [RANGE 5 minutes SLIDE 1 minute]", FIVE_ONE),
        ("trades [slide 1 minute range 5 minutes]", FIVE_ONE),
        ("Trades T [RANGE '5 min' SLIDE '1 min']", FIVE_ONE),
        ("Trades AS T [RANGE 5 minutes SLIDE 1 minute]", FIVE_ONE),
        ("Trades [RANGE 5 minutes SLIDE 1 minute] T", FIVE_ONE),
        ("Trades [RANGE 5 minutes SLIDE 1 minute] AS T", FIVE_ONE),
        ("Trades[RANGE=5 minutes,SLIDE=1 minute]", FIVE_ONE),
        ("Trades Window[Range 5min, Slide 60 s]", FIVE_ONE),
        ("Trades [RANGE INTERVAL 5 MINUTES SLIDE INTERVAL '1' MINUTE]", FIVE_ONE),
        ("Trades [RANGE 4 minutes 60 seconds SLIDE 1 minute]", FIVE_ONE),
        ("Trades [RANGE 5 /* five */ minutes -- and\n SLIDE 1 minute]", FIVE_ONE),
        ("Trades T [WATTR T.ts RANGE 5 minutes SLIDE 1 minute]", FIVE_ONE),
        ("Trades [WATTR `TS`, RANGE 5 minutes, SLIDE 1 minute]", FIVE_ONE),
        (
            "Trades [RANGE 12 min SLIDE 5 min ORIGIN '1970-01-01 00:01']",
            WindowSpec(12 * MINUTE, 5 * MINUTE, MINUTE),
        ),
        (
            "Trades [RANGE 12 min SLIDE 5 min ORIGIN TIMESTAMP '1970-01-01 00:01']",
            WindowSpec(12 * MINUTE, 5 * MINUTE, MINUTE),
        ),
        ("Trades [ORIGIN 1 minute RANGE 12 min SLIDE 5 min]", WindowSpec(12 * MINUTE, 5 * MINUTE, MINUTE)),
        ("Trades [RANGE 1 s SLIDE 250 ms ORIGIN -1 ms]", WindowSpec(1_000_000, 250_000, -1000)),
    ],
)
def test_the_bracket_aligns_ends(source: str, spec: WindowSpec) -> None:
    query = bound(f"SELECT count(*) FROM {source}")
    assert (query.window, query.clock, query.clock_type) == (spec, TS, UTC)


@pytest.mark.parametrize(
    ("call", "spec"),
    [
        ("window(ts, '5 minutes')", WindowSpec.starting(5 * MINUTE, 5 * MINUTE)),
        ("WINDOW(ts, '12 minutes', '5 minutes')", WindowSpec.starting(12 * MINUTE, 5 * MINUTE)),
        (
            "window(T.ts, '12 minutes', '5 minutes', '1 minute')",
            WindowSpec.starting(12 * MINUTE, 5 * MINUTE, MINUTE),
        ),
        (
            "window(ts, INTERVAL 12 MINUTES, INTERVAL '5' MINUTES)",
            WindowSpec.starting(12 * MINUTE, 5 * MINUTE),
        ),
        (
            "window(ts, '5 minutes', '5 minutes', '-1 minute')",
            WindowSpec.starting(5 * MINUTE, 5 * MINUTE, -MINUTE),
        ),
    ],
)
def test_sparks_form_aligns_starts(call: str, spec: WindowSpec) -> None:
    query = bound(f"SELECT site, count(*) FROM Trades T GROUP BY {call}, site")
    assert (query.window, query.clock) == (spec, TS)
    assert [key.name for key in query.keys] == ["site"]


@pytest.mark.parametrize(
    ("source", "clock", "kind", "spec"),
    [
        ("S [RANGE 60 SLIDE 20]", Clock("S", "timestamp", ClockKind.INTEGER), pa.int64(), WindowSpec(60, 20)),
        ("S [RANGE '60' SLIDE 20 ORIGIN 7]", Clock("S", "timestamp", ClockKind.INTEGER), pa.int64(), WindowSpec(60, 20, 7)),
        ("Trades [RANGE 60 SLIDE 20 WATTR Site]", Clock("Trades", "site", ClockKind.INTEGER), pa.int64(), WindowSpec(60, 20)),
        ("Trades [ROWS 100 SLIDE 10]", Clock("Trades", "", ClockKind.ROWS), pa.int64(), WindowSpec(100, 10)),
        ("Trades [RANGE 1 day SLIDE 1 day WATTR day]", Clock("Trades", "day"), UTC, WindowSpec(1440 * MINUTE, 1440 * MINUTE)),
        ("Trades [RANGE 1 min SLIDE 1 min WATTR local]", Clock("Trades", "local"), pa.timestamp("us"), WindowSpec(MINUTE, MINUTE)),
        ("clockless [RANGE 5 SLIDE 5 WATTR n]", Clock("clockless", "n", ClockKind.INTEGER), pa.int64(), WindowSpec(5, 5)),
    ],
)  # fmt: skip
def test_every_kind_of_clock_is_bound(source: str, clock: Clock, kind: pa.DataType, spec: WindowSpec) -> None:
    query = bound(f"SELECT count(*) FROM {source}")
    assert (query.clock, query.clock_type, query.window) == (clock, kind, spec)


@pytest.mark.parametrize(
    ("item", "sql", "name"),
    [
        ("window.start", "`window_start`", "start"),
        ("window.END AS e", "`window_end`", "e"),
        ("window", "named_struct('start', `window_start`, 'end', `window_end`)", "window"),
        ("window(ts, '5 minutes').start", "`window_start`", "start"),
        ("WINDOW( ts , '5 minutes' ).`end`", "`window_end`", "end"),
        ("window(ts, '5 minutes')", "named_struct('start', `window_start`, 'end', `window_end`)", "window"),
        ("window_end", "`window_end`", "window_end"),
        ("year(window.start) AS y", "year(`window_start`)", "y"),
    ],
)
def test_the_window_can_be_selected(item: str, sql: str, name: str) -> None:
    query = bound(f"SELECT {item}, count(*) FROM Trades GROUP BY window(ts, '5 minutes')")
    assert (query.items[0].sql, query.items[0].name) == (sql, name)


def test_the_window_is_typed_like_its_clock() -> None:
    query = bound("SELECT window, window.start, count(*) FROM Trades [RANGE 1 min SLIDE 1 min WATTR local]")
    assert query.items[0].type == pa.struct([("start", pa.timestamp("us")), ("end", pa.timestamp("us"))])
    assert query.items[1].type == pa.timestamp("us")


def test_a_window_may_be_grouped_by_through_its_alias_or_position() -> None:
    by_alias = bound("SELECT window(ts, '5 minutes') AS w, count(*) FROM Trades GROUP BY w")
    by_position = bound("SELECT window(ts, '5 minutes') AS w, count(*) FROM Trades GROUP BY 1")
    assert by_alias.window == by_position.window == WindowSpec.starting(5 * MINUTE, 5 * MINUTE)
    assert by_alias.keys == by_position.keys == ()


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("SELECT count(*) FROM Trades", "no window; write FROM Trades [RANGE 4 minutes SLIDE 1 minute], or GROUP BY window(ts,", "Trades"),
        ("SELECT count(*) FROM Trades [SLIDE 5 minutes]", "needs RANGE", "[SLIDE 5 minutes]"),
        ("SELECT count(*) FROM Trades [RANG 5 min SLIDE 1 min]", "expected RANGE, SLIDE, WATTR, ORIGIN, ROWS, SESSION or IN TIME ZONE, found RANG; did you mean RANGE?", "RANG"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min RANGE 2 min]", "RANGE is given twice", "RANGE"),
        ("SELECT count(*) FROM Trades [RANGE SLIDE 1 min]", "RANGE needs a value", "RANGE"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE]", "SLIDE needs a value", "SLIDE"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min", "not closed", "["),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 0 s]", "SLIDE must be positive", "0 s"),
        ("SELECT count(*) FROM Trades [RANGE 5 minuts SLIDE 1 min]", "unknown unit minuts; did you mean minutes?", "5 minuts"),
        ("SELECT count(*) FROM Trades [RANGE 1 month SLIDE 1 min]", "no fixed length", "1 month"),
        ("SELECT count(*) FROM Trades [RANGE 60 SLIDE 20]", "'60' has no unit", "60"),
        ("SELECT count(*) FROM S [RANGE 5 minutes SLIDE 20]", "a plain number, not '5 minutes'", "5 minutes"),
        ("SELECT count(*) FROM Trades [ROWS 5 minutes SLIDE 1]", "over rows is a plain number", "5 minutes"),
        ("SELECT count(*) FROM Trades [ROWS 5 SLIDE 1 WATTR ts]", "takes no WATTR", "ts"),
        ("SELECT count(*) FROM Trades [ROWS 5 RANGE 5 min SLIDE 1]", "not both", "5"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min WATTR spot.lat]", "unknown column spot.lat, and WATTR takes a column; declare the stream with time='spot.lat'", "spot.lat"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min WATTR symbol]", "symbol is no clock: it is string", "symbol"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min WATTR tss]", "unknown column tss; did you mean ts?", "tss"),
        ("SELECT count(*) FROM clockless [RANGE 5 min SLIDE 1 min]", "no time column; name one with WATTR", "[RANGE 5 min SLIDE 1 min]"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min ORIGIN noon]", "ORIGIN is a time or a duration, not 'noon'", "noon"),
        ("SELECT count(*) FROM S [RANGE 5 SLIDE 1 ORIGIN '2013-01-01']", "ORIGIN is a plain number here", "'2013-01-01'"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min] GROUP BY window(ts, '5 min')", "either the bracket or window()", "window(ts, '5 min')"),
        ("SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min] [ROWS 5 SLIDE 1]", "a query has one window", "["),
        ("SELECT count(*) FROM Trades T, Close C [RANGE 5 min SLIDE 1 min] WHERE T.symbol = C.symbol", "belongs to a stream, and C is a static table", "[RANGE 5 min SLIDE 1 min]"),
        ("SELECT count(*) FROM Trades GROUP BY window(ts)", "window() takes a time column, a length", "window(ts)"),
        ("SELECT count(*) FROM Trades GROUP BY window(site, '5 min')", "window() takes a time column, and site is int32", "site"),
        ("SELECT count(*) FROM Trades GROUP BY window(ts, '5 minuts')", "unknown unit minuts", "'5 minuts'"),
        ("SELECT count(*) FROM Trades GROUP BY window(ts, 5)", "expected a duration", "5"),
        ("SELECT count(*) FROM Trades GROUP BY window(ts, '5 min'), window(ts, '6 min')", "a query has one window", "window(ts, '6 min')"),
        ("SELECT window(ts, '6 min'), count(*) FROM Trades GROUP BY window(ts, '5 min')", "not the one of GROUP BY", "window(ts, '6 min')"),
        ("SELECT window.middle, count(*) FROM Trades GROUP BY window(ts, '5 min')", "window has start and end, not middle", "window.middle"),
        ("SELECT count(*) FROM Trades WHERE window(ts, '5 min') = 1 GROUP BY window(ts, '5 min')", "window() belongs in GROUP BY", "window(ts, '5 min')"),
    ],
)  # fmt: skip
def test_a_wrong_window_is_pointed_at(text: str, said: str, place: str) -> None:
    with pytest.raises(SQLError) as refused:
        bind_one(text, CATALOG, Rules())
    error = refused.value
    assert said in error.message
    assert text[error.start : error.end] == place

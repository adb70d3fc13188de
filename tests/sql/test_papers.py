"""The papers' own queries, in our grammar."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sql.trades_catalog import Rules
from transom.elements import Clock, ClockKind, WindowSpec
from transom.sql import Catalog, Query, Relation, bind_one
from transom.sql.query import And, Comparison, Scalar, Truth

UTC = pa.timestamp("us", "UTC")
MINUTE = 60_000_000
CATALOG = Catalog(
    streams={
        "Trades": Relation(
            "Trades", {"symbol": pa.string(), "price": pa.float64(), "volume": pa.int64(), "ts": UTC}, time="ts"
        ),
        "bids": Relation("bids", {"auction-site": pa.int32(), "price": pa.float64(), "timestamp": UTC}),
        "S": Relation(
            "S", {"starttime": UTC, "timestamp": pa.int64(), "sensor_id": pa.int32(), "speed": pa.float64(),
                  "volume": pa.int64(), "counter": pa.int64()}, time="starttime",
        ),
    },
    tables={
        "Close": Relation("Close", {"symbol": pa.string(), "cp": pa.float64()}),
        "Index": Relation("Index", {"symbol": pa.string(), "name": pa.string()}),
    },
    functions=frozenset({"midcap"}),
)  # fmt: skip


def paper(text: str) -> Query:
    return bind_one(text, CATALOG, Rules())


@pytest.mark.parametrize(
    ("name", "text", "spec", "clock", "function"),
    [
        (
            "on-the-fly sharing, query 1",
            "SELECT sum(T.price * T.volume) FROM Trades T [RANGE '12 min' SLIDE '5 min'] WHERE T.volume > 50000",
            WindowSpec(12 * MINUTE, 5 * MINUTE), Clock("Trades", "ts"), "sum",
        ),
        (
            "on-the-fly sharing, query 2",
            "SELECT sum(T.price * T.volume) FROM Trades T [RANGE '18 min' SLIDE '15 min']",
            WindowSpec(18 * MINUTE, 15 * MINUTE), Clock("Trades", "ts"), "sum",
        ),
        (
            "on-the-fly sharing, query 3",
            "SELECT sum(T.price * T.volume) FROM Trades T [RANGE '5 min' SLIDE '5 min'] "
            "WHERE (T.volume > 100) AND midcap(T.symbol)",
            WindowSpec(5 * MINUTE, 5 * MINUTE), Clock("Trades", "ts"), "sum",
        ),
        (
            "window ids and panes, query 1",
            "SELECT `auction-site`, count(*)\nFROM bids [WATTR timestamp\n  RANGE 4 minutes\n  SLIDE 1 minute]\n"
            "GROUP BY `auction-site`",
            WindowSpec(4 * MINUTE, MINUTE), Clock("bids", "timestamp"), "count_rows",
        ),
        (
            "prodding, Q1-1",
            "SELECT avg(speed) FROM S WINDOW [RANGE 5 min, SLIDE 1 min]",
            WindowSpec(5 * MINUTE, MINUTE), Clock("S", "starttime"), "avg",
        ),
        (
            "prodding, Q2-1",
            "SELECT sum(volume) FROM S [RANGE 60 SLIDE 20 WATTR timestamp]",
            WindowSpec(60, 20), Clock("S", "timestamp", ClockKind.INTEGER), "sum",
        ),
        (
            "prodding, Q3-2",
            "Select Sum(volume) from S Window [RANGE=50, SLIDE=50, WATTR=timestamp] Group by sensor_id",
            WindowSpec(50, 50), Clock("S", "timestamp", ClockKind.INTEGER), "sum",
        ),
        (
            "prodding, Q4-1",
            "Select Sum(volume) from S Window[Range 10min, Slide 2min]",
            WindowSpec(10 * MINUTE, 2 * MINUTE), Clock("S", "starttime"), "sum",
        ),
        (
            "prodding, Q4-2",
            "Select Max(counter) from S\n\nWindow [Range=5 Second, Slide=1 Second]",
            WindowSpec(5_000_000, 1_000_000), Clock("S", "starttime"), "max",
        ),
    ],
)  # fmt: skip
def test_each_query_of_the_papers_is_bound(
    name: str, text: str, spec: WindowSpec, clock: Clock, function: str
) -> None:
    query = paper(text)
    assert (query.window, query.clock, query.calls[0].function) == (spec, clock, function), name


def test_query_4_of_on_the_fly_sharing_joins_two_tables_on_the_symbol() -> None:
    query = paper(
        "SELECT sum(T.price * T.volume) FROM Trades T[RANGE '600 seconds' SLIDE '300 seconds'],Close C,Index X "
        "WHERE T.Symbol = C.Symbol AND T.Symbol = X.Symbol "
        "AND X.name = 'R3000' AND abs(T.price - C.cp) / C.cp > 0.05"
    )
    close, index = query.joins
    assert (close.table, close.keys, close.columns) == ("Close", ("symbol",), ("cp",))
    assert (index.table, index.keys, index.columns) == ("Index", ("symbol",), ("name",))
    change = f"abs(`price` - `{close.id}.cp`) / `{close.id}.cp`"
    assert query.where == And(
        (
            Truth(Scalar(f"`{close.id}`", pa.bool_())),
            Truth(Scalar(f"`{index.id}`", pa.bool_())),
            Comparison(Scalar(f"`{index.id}.name`", pa.string()), "=", "R3000"),
            Comparison(Scalar(change, pa.float64()), ">", 0.05),
        )
    )

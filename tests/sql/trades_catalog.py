"""A catalog of trades to bind queries against, and a `Scalars` that types expressions by simple rules."""

from __future__ import annotations

import re
from typing import Mapping, Sequence

import pyarrow as pa

from transom.errors import SQLError
from transom.sql import Catalog, Query, Relation, bind_one

UTC = pa.timestamp("us", "UTC")
TRADES = {
    "symbol": pa.string(),
    "price": pa.float64(),
    "volume": pa.int64(),
    "site": pa.int32(),
    "rate": pa.float32(),
    "cost": pa.decimal128(10, 2),
    "live": pa.bool_(),
    "day": pa.date32(),
    "ts": UTC,
    "local": pa.timestamp("us"),
    "spot": pa.struct([("lat", pa.float64()), ("Zone", pa.struct([("name", pa.string())]))]),
    "tags": pa.list_(pa.string()),
    "extra": pa.map_(pa.string(), pa.int32()),
    "auction-site": pa.int32(),
}
CATALOG = Catalog(
    streams={
        "Trades": Relation("Trades", TRADES, time="ts"),
        "S": Relation(
            "S",
            {"timestamp": pa.int64(), "sensor_id": pa.int32(), "speed": pa.float64(), "volume": pa.int64()},
            time="timestamp",
        ),
        "clockless": Relation("clockless", {"name": pa.string(), "n": pa.int16()}),
    },
    tables={
        "Close": Relation("Close", {"Symbol": pa.string(), "cp": pa.float64(), "sector": pa.int32()}),
        "Index": Relation("Index", {"symbol": pa.string(), "name": pa.string(), "sector": pa.int32()}),
    },
    functions=frozenset({"midcap", "Score"}),
)
_CONDITION = re.compile(
    r" (LIKE|ILIKE|RLIKE|IN|IS|BETWEEN|AND|OR|=|!=|<|<=|>|>=|<=>) |^NOT |^`midcap`|^isnull\(|^true$|^false$"
)


class Rules:
    """Conditions are boolean, casts are what they say, `/` and what is unknown is double."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], list[str]]] = []

    def types(
        self, columns: Mapping[str, pa.DataType], expressions: Sequence[str]
    ) -> list[pa.DataType | SQLError]:
        self.calls.append((tuple(columns), list(expressions)))
        return [self._type(text) for text in expressions]

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        raise NotImplementedError

    def _type(self, text: str) -> pa.DataType | SQLError:
        if "to_number(" in text:
            return SQLError("to_number takes two arguments")
        if text.startswith("CAST(") and text.endswith("AS DATE)"):
            return pa.date32()
        if text.startswith(("lower(", "concat(")):
            return pa.string()
        return pa.bool_() if _CONDITION.search(text) else pa.float64()


def bound(text: str) -> Query:
    """The query that a text is, over the trading catalog."""
    return bind_one(text, CATALOG, Rules())


def over_trades(select: str = "count(*)", rest: str = "") -> Query:
    """A query over Trades with a window that doesn't matter."""
    return bound(f"SELECT {select} FROM Trades T [RANGE 5 minutes SLIDE 1 minute] {rest}")

"""Two stores that sell the same items, and summaries of what they sell."""

from __future__ import annotations

import pyarrow as pa

from tests.sql.trades_catalog import UTC, Rules
from transom.elements import Summary
from transom.sql import Catalog, PreferenceQuery, Relation, bind_preference_query

SECOND = 1_000_000
MINUTE = 60 * SECOND
STORE = {
    "item": pa.int64(),
    "price": pa.float64(),
    "name": pa.string(),
    "till": pa.int32(),
    "ts": UTC,
    "spot": pa.struct([("floor", pa.int32())]),
    "extra": pa.map_(pa.string(), pa.int32()),
}
CATALOG = Catalog(
    streams={
        "store1": Relation("store1", STORE, "ts"),
        "Store2": Relation("Store2", STORE | {"item": pa.int64(), "Code": pa.int32()}, "ts"),
        "store3": Relation("store3", STORE, "ts"),
        "ticks": Relation("ticks", {"n": pa.int64(), "item": pa.int64()}, "n"),
        "clockless": Relation("clockless", {"item": pa.int64()}),
        "my-store": Relation("my-store", {"an item": pa.int64(), "ts": UTC}, "ts"),
    },
    tables={"goods": Relation("goods", {"item": pa.int64(), "kind": pa.string()})},
    functions=frozenset({"Score"}),
    queries=frozenset({"per_item"}),
)
ITEMS = Summary("items", "store1", "item", 10 * SECOND)  # keeps 210 seconds
SUMMARIES = {
    summary.name: summary
    for summary in (
        ITEMS,
        Summary("items2", "Store2", "item", 10 * SECOND, depth=5),
        Summary("codes", "Store2", "Code", 10 * SECOND),
        Summary("tills", "store1", "till", 10 * SECOND),
        Summary("tills2", "Store2", "till", 10 * SECOND, buckets=64, between=(0.0, 100.0)),
        Summary("names", "store1", "name", 10 * SECOND),
        Summary("names2", "Store2", "name", 10 * SECOND),
        Summary("prices", "store3", "price", 10 * SECOND),
    )
}
COUNT = "SUMMARY.Estimate.Count"


def preference_query(text: str) -> PreferenceQuery:
    """The query WITH PREFERENCE that a text is, over the stores."""
    return bind_preference_query(text, CATALOG, Rules(), SUMMARIES)

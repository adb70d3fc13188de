"""The oracle behind the SQL front: text in, results out."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from transom.oracle import OracleBatch, OracleStreamRules, answer, join_tables
from transom.sql import Catalog, Relation, bind_one
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.interpreter.values import microseconds

MINUTE = 60_000_000
NOON = microseconds(datetime(2005, 6, 14, 12, tzinfo=UTC))
BIDS = {
    "site": pa.int32(),
    "price": pa.float64(),
    "fee": pa.decimal128(6, 2),
    "kind": pa.string(),
    "seq": pa.int64(),
    "ts": pa.timestamp("us", tz="UTC"),
}
SITES = {"id": pa.int32(), "city": pa.string()}
CATALOG = Catalog(
    streams={"bids": Relation("bids", BIDS, time="ts")},
    tables={"sites": Relation("sites", SITES)},
)
SITE_ROWS = pa.table({"id": [3, 5], "city": ["Portland", None]}, schema=pa.schema(list(SITES.items())))

#        12:00         12:01         12:02         12:03
#          | 1 2         | 3           | 4 5
#   site   | 3 5         | 3           | 7 null
ROWS = [
    dict(zip(BIDS, values, strict=True))
    for values in [
        (3, 10.0, Decimal("0.25"), "a", 1, NOON + 10),
        (5, 20.0, Decimal("0.50"), "b", 2, NOON + 20),
        (3, 30.0, None, "b", 3, NOON + MINUTE),
        (7, float("nan"), Decimal("1.00"), None, 4, NOON + 2 * MINUTE),
        (None, 50.0, Decimal("2.00"), "a", 5, NOON + 2 * MINUTE + 1),
    ]
]

CASES: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "groups, HAVING by alias and IN",
        "SELECT site, count(*) AS n FROM bids [RANGE 2 minutes SLIDE 2 minutes] WHERE kind IN ('a', 'b') "
        "GROUP BY site HAVING n > 1",
        [{"site": 3, "n": 2}],
    ),
    (
        "an expression inside and one over aggregates",
        "SELECT sum(price * 2) / count(*) AS x FROM bids [RANGE 2 minutes SLIDE 2 minutes] WHERE seq < 4",
        [{"x": 40.0}],
    ),
    (
        "Spark's own form, with the window as a column",
        "SELECT window.start AS w, max(price) AS m FROM bids GROUP BY window(ts, '1 minute')",
        [{"w": NOON, "m": 20.0}, {"w": NOON + MINUTE, "m": 30.0}, {"w": NOON + 2 * MINUTE, "m": "NaN"}],
    ),
    (
        "decimals keep Spark's scales",
        "SELECT sum(fee) AS s, avg(fee) AS a FROM bids [RANGE 10 minutes SLIDE 10 minutes]",
        [{"s": Decimal("3.75"), "a": Decimal("0.937500")}],
    ),
    (
        "FILTER and several percentiles",
        "SELECT count(*) FILTER (WHERE price > 15) AS n, approx_percentile(seq, array(0.5, 1.0)) AS p "
        "FROM bids [RANGE 10 minutes SLIDE 10 minutes]",
        [{"n": 4, "p": [3, 5]}],
    ),
    (
        "tuple-based windows",
        "SELECT sum(seq) AS s FROM bids [ROWS 2 SLIDE 2]",
        [{"s": 3}, {"s": 7}, {"s": 5}],
    ),
    (
        "windows along an integer column",
        "SELECT count(*) AS n FROM bids [RANGE 3 SLIDE 3 WATTR seq]",
        [{"n": 2}, {"n": 3}],
    ),
    (
        "an inner join by comma and WHERE",
        "SELECT city, count(*) AS n FROM bids [RANGE 10 minutes SLIDE 10 minutes], sites WHERE site = id "
        "GROUP BY city",
        [{"city": "Portland", "n": 2}, {"city": None, "n": 1}],
    ),
    (
        "a left join keeps rows without a match",
        "SELECT coalesce(city, 'nowhere') AS c, count(*) AS n FROM bids [RANGE 10 minutes SLIDE 10 minutes] "
        "LEFT JOIN sites ON site = id GROUP BY coalesce(city, 'nowhere')",
        [{"c": "Portland", "n": 2}, {"c": "nowhere", "n": 3}],
    ),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_query_in_sql(text: str, expected: list[dict[str, Any]]) -> None:
    scalars = InterpretedScalars()
    query = bind_one(text, CATALOG, scalars)
    batches = [OracleBatch("bids", ROWS[3:]), OracleBatch("bids", ROWS[:3], end_of_stream=True)]
    if query.clock.attribute == "":
        batches = [OracleBatch("bids", ROWS, end_of_stream=True)]  # ROWS windows number batch by batch
    rules = {"bids": OracleStreamRules("ts", slack={"ts": 10 * MINUTE, "seq": 10}, columns=BIDS)}
    outcome = answer({"q": query}, batches, rules, scalars, join_tables({"sites": SITE_ROWS}, scalars))
    names = [item.name for item in query.items]
    found = [{name: result[name] for name in names} for result in outcome.results["q"]]
    assert sorted(map(shown, found)) == sorted(map(shown, expected))


def shown(result: dict[str, Any]) -> str:
    """A result as text, in which NaN equals itself."""
    return repr({name: "NaN" if value != value else value for name, value in result.items()})

"""Whole queries in Spark's own form: the oracle's answers are those of a Spark batch."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from transom.oracle import OracleBatch, OracleStreamRules, answer
from transom.sql import Catalog, Relation, bind_one
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.interpreter.values import table_of, table_rows

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {
    "ts": pa.timestamp("us", tz="UTC"),
    "g": pa.float64(),
    "i": pa.int32(),
    "l": pa.int64(),
    "d": pa.float64(),
    "m": pa.decimal128(6, 2),
    "s": pa.string(),
}
AGGREGATES = {
    "n": "count(*)",
    "nd": "count(d)",
    "two": "count(i, d)",
    "si": "sum(i)",
    "sl": "sum(l)",
    "sd": "sum(d)",
    "sm": "sum(m)",
    "ai": "avg(i)",
    "am": "avg(m)",
    "lo": "min(d)",
    "hi": "max(d)",
    "text": "max(s)",
    "vp": "var_pop(i)",
    "vs": "variance(i)",
    "sp": "stddev_pop(m)",
    "ss": "stddev(d)",
    "some": "sum(i) FILTER (WHERE s LIKE 'a%' OR d > 1)",
    "mixed": "sum(i * 2) / count(*)",
}
WINDOWS = ["'10 seconds'", "'12 seconds', '5 seconds'", "'12 seconds', '5 seconds', '1 second'"]


def drawn(seed: int, count: int = 200) -> list[dict[str, Any]]:
    """Rows with nulls, NaN, both zeros, ties, sums that overflow and times on both sides of 1970."""
    draw = random.Random(seed)
    return [
        {
            "ts": draw.randrange(-30, 30) * SECOND + draw.choice([0, 0, -1, 1]),
            "g": draw.choice([None, 0.0, -0.0, math.nan, 1.0]),
            "i": draw.choice([None, 2**31 - 1, *range(-5, 5)]),
            "l": draw.choice([None, 2**62, -(2**62), 1]),
            "d": draw.choice([None, 0.5, -1.25, 3.0, 1e10] + [math.nan] * (draw.random() < 0.1)),
            "m": draw.choice([None, Decimal("9999.99"), Decimal("-0.01"), Decimal("1.00")]),
            "s": draw.choice([None, "a", "ab", "B", "é"]),
        }
        for _ in range(count)
    ]


def shown(row: dict[str, Any]) -> str:
    """A row as text, with doubles to twelve digits and NaN equal to itself."""
    return repr({name: f"{value:.12g}" if isinstance(value, float) else value for name, value in row.items()})


@pytest.mark.parametrize("window", WINDOWS)
def test_a_query_that_pastes_over_from_spark_has_spark_s_answers(
    spark_without_ansi: Any, window: str
) -> None:
    items = ", ".join(f"{sql} AS {name}" for name, sql in AGGREGATES.items())
    text = (
        f"SELECT window.start AS w0, window.end AS w1, g, {items} FROM drawn "
        f"WHERE NOT (i = 3 AND d > 0) GROUP BY window(ts, {window}), g HAVING n > 1"
    )
    rows = drawn(seed=len(window))
    spark_without_ansi.createDataFrame(table_of(rows, COLUMNS)).createOrReplaceTempView("drawn")
    theirs = table_rows(spark_without_ansi.sql(text).toArrow())

    catalog = Catalog(streams={"drawn": Relation("drawn", COLUMNS, time="ts")})
    query = bind_one(text, catalog, InterpretedScalars())
    rules = {"drawn": OracleStreamRules("ts", slack=None, columns=COLUMNS)}
    batches = [OracleBatch("drawn", rows[:90]), OracleBatch("drawn", rows[90:], end_of_stream=True)]
    results = answer({"q": query}, batches, rules, InterpretedScalars()).results["q"]
    ours = [{name: result[name] for name in ("w0", "w1", "g", *AGGREGATES)} for result in results]
    assert len(ours) > 20
    assert sorted(map(shown, ours)) == sorted(map(shown, theirs))

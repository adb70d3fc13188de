"""Every aggregate over random rows: the engine and Spark give the same values and the same types."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids_engine

pytestmark = [pytest.mark.spark, pytest.mark.comparison]

SCHEMA = (
    "g int, i int, l bigint, d double, f float, m decimal(10,2), w decimal(38,4), s string, b boolean, "
    "e date, a array<int>, st struct<p:int,q:string>, ts timestamp"
)
NUMBERS = ["i", "l", "d", "f", "m", "w"]
START = datetime(2013, 1, 1, 12)
# Spark's `first` and `last` depend on the order in which tasks read rows; here they are by time.
BY_TIME = {
    "first(s)": "min_by(s, ts)",
    "last(st)": "max_by(st, ts)",
    "any_value(d)": "min_by(d, ts)",
    "first(i) IGNORE NULLS": "min_by(i, ts) FILTER (WHERE i IS NOT NULL)",
    "last_value(m, true)": "max_by(m, ts) FILTER (WHERE m IS NOT NULL)",
}
AGGREGATES = [
    "count_if(d > 1)", "bool_and(b)", "every(i > 0)", "bool_or(b)", "some(i > 5)", "any(b)",
    "count(DISTINCT s)", "count(DISTINCT i, s)", "count(DISTINCT st)", "count(DISTINCT d)",
    "mode(s, true)", "mode() WITHIN GROUP (ORDER BY i DESC)", "mode() WITHIN GROUP (ORDER BY e)",
    *BY_TIME, "min_by(l, ts)", "max_by(l, ts)", "max_by(s, l)", "min_by(st, l)",
    "max(st)", "min(st)", "max(a)", "min(a)", "max(struct(b, s))",
    "regr_avgx(m, w)", "regr_avgy(l, d)", "regr_count(i, d)",
    *(f"{function}(DISTINCT {x})" for function in ("sum", "avg") for x in NUMBERS),
    *(f"{function}({x})" for function in ("median", "skewness", "kurtosis") for x in NUMBERS),
    *(f"percentile({x}, array(0.0, 0.1, 0.5, 0.77, 1.0))" for x in NUMBERS),
    *(f"percentile_disc(0.3) WITHIN GROUP (ORDER BY {x})" for x in NUMBERS),
    *(f"percentile_cont(0.3) WITHIN GROUP (ORDER BY {x} DESC)" for x in NUMBERS),
    "percentile_disc(0.75) WITHIN GROUP (ORDER BY i DESC)",
    *(f"hll_sketch_estimate(hll_sketch_agg({x}))" for x in ("i", "l", "s")),
    "hll_sketch_estimate(hll_sketch_agg(l, 10))",
    "histogram_numeric(l, 2000)",  # Spark has several bins for a value that several tasks have read
    *(f"transform(approx_top_k({x}, 10), each -> each.count)" for x in ("i", "m", "s", "b", "e", "ts")),
    *(
        f"{function}({pair})"
        for function in (
            "corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx",
            "regr_syy", "regr_sxy",
        )
        for pair in ("d, i", "l, m", "i, i")
    ),
]  # fmt: skip


def rows(seed: int) -> list[tuple[Any, ...]]:
    """Rows of groups with many and few values, constants, nulls and NaN; no two rows have the same time."""
    rng = Random(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    drawn = []
    for number in range(120):
        g = rng.choice([1, 1, 1, 2, 3, 4])
        spread = {1: 20, 2: 3, 3: 1, 4: 1000}[g]
        d = (
            rng.choice([math.nan, math.inf, -0.0])
            if g == 2 and rng.random() < 0.1
            else rng.randint(0, spread) / 4
        )
        drawn.append((
            g, maybe(rng.randint(0, spread)), number * 7 % 120, maybe(d), maybe(rng.randint(0, spread) / 2),
            maybe(Decimal(rng.randint(0, 100 * spread)).scaleb(-2)), maybe(Decimal(rng.randint(0, spread)).scaleb(-4)),
            maybe(rng.choice("abcé")), maybe(rng.random() < 0.5), maybe(date(2013, 1, rng.randint(1, 9))),
            maybe([maybe(rng.randint(0, 2)) for _ in range(rng.randint(0, 3))]),
            maybe({"p": maybe(rng.randint(0, 2)), "q": maybe(rng.choice("xy"))}),
            START + timedelta(milliseconds=number * 391 % 50_000),
        ))  # fmt: skip
    return drawn


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (left != left and right != right) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


def sql_type(kind: Any) -> str:
    """A type without what SQL does not see: how Arrow calls the elements of a list, and that none is null."""
    return str(kind).replace("element: ", "item: ").replace(" not null", "")


@pytest.mark.parametrize("seed", range(2))
def test_aggregates_are_those_of_spark(
    make_engine: EngineFactory, spark_without_ansi: Any, tmp_path: Path, seed: int
) -> None:
    drawn = rows(seed)
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    names = {f"x{number}": text for number, text in enumerate(AGGREGATES)}
    items = ", ".join(f"{text} AS {name}" for name, text in names.items())
    for_spark = ", ".join(f"{BY_TIME.get(text, text)} AS {name}" for name, text in names.items())
    query = engine.register(f"SELECT g, {items} FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY g")
    for start in range(0, len(drawn), 37):
        feed.push(drawn[start : start + 37])
        engine.step()
    engine.drain()
    ours = {row["g"]: row for row in query.results().to_pylist()}
    spark_without_ansi.createDataFrame(drawn, SCHEMA).createOrReplaceTempView("rows")
    answer = spark_without_ansi.sql(f"SELECT g, {for_spark} FROM rows GROUP BY g").toArrow()
    theirs = {row["g"]: row for row in answer.to_pylist()}
    assert ours.keys() == theirs.keys()
    wrong = [
        f"{text} of group {g}: {ours[g][name]!r}, Spark has {theirs[g][name]!r}"
        for name, text in names.items()
        for g in theirs
        if not same(ours[g][name], theirs[g][name])
    ]
    assert not wrong, "\n".join(wrong)
    types = [
        f"{text}: {query.results().schema.field(name).type}, Spark has {answer.schema.field(name).type}"
        for name, text in names.items()
        if sql_type(query.results().schema.field(name).type) != sql_type(answer.schema.field(name).type)
    ]
    assert not types, "\n".join(types)

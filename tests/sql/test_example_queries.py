"""Example queries: which columns they group by and aggregate, and that an engine accepts them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import transom
from transom.columns.column_statistics import column_statistics
from transom.sql.editor.completion import KnownRelation
from transom.sql.editor.example_queries import (
    StreamSample,
    entity_column,
    example_queries,
    grouping_column,
    measure_column,
)

START = datetime(2024, 5, 1, 12, tzinfo=UTC)


def payments(rows: int = 500) -> pa.Table:
    """A stream as a fraud platform has it: ids first, the quantity and the categories later."""
    return pa.table(
        {
            "event_id": [f"e{n}" for n in range(rows)],
            "merchant_id": pa.array([n % 40 for n in range(rows)], pa.int64()),
            "card": [f"c{n * 7 % 150}" for n in range(rows)],
            "status code": pa.array([200 if n % 9 else 500 for n in range(rows)], pa.int32()),
            "amount": [float(n % 97) for n in range(rows)],
            "country": [("NO", "IT", "FR")[n % 3] for n in range(rows)],
            "declined": [n % 5 == 0 for n in range(rows)],
            "note": pa.array([None] * rows, pa.string()),
            "tags": [["a"]] * rows,
            "ts": pa.array([START + timedelta(seconds=n) for n in range(rows)], pa.timestamp("us", "UTC")),
        }
    )


def sampled(table: pa.Table, seen: bool = True, time: str = "ts") -> StreamSample:
    columns = dict(zip(table.schema.names, table.schema.types, strict=True))
    return StreamSample(
        KnownRelation("payments", "stream", columns, time), column_statistics(table) if seen else {}
    )


def test_statistics_decide_what_to_group_by_and_to_aggregate():
    sample = sampled(payments())
    assert grouping_column(sample) == "country"
    assert measure_column(sample) == "amount"
    assert entity_column(sample) == "card"
    titles = [example.title for example in example_queries(sample)]
    assert titles[:3] == ["Count payments", "Average amount by country", "Top 10 by card"]
    assert "Count where country is NO" in titles
    assert not any("event_id" in example.sql for example in example_queries(sample))


def test_without_rows_names_decide():
    sample = sampled(payments(), seen=False)
    assert (grouping_column(sample), measure_column(sample)) == ("card", "amount")
    assert not any("event_id" in example.sql for example in example_queries(sample))


def test_a_window_has_some_dozens_of_rows():
    fast, slow = sampled(payments()), payments()
    hours = pa.array([START + timedelta(hours=n) for n in range(500)], pa.timestamp("us", "UTC"))
    slow = slow.set_column(slow.schema.get_field_index("ts"), "ts", hours)
    assert "[RANGE 1 minute SLIDE 10 seconds]" in example_queries(fast)[0].sql
    assert "[RANGE 1 day SLIDE 1 hour]" in example_queries(sampled(slow))[0].sql


def test_a_static_table_with_a_column_of_the_stream_is_joined():
    table = KnownRelation("countries", "table", {"country": pa.string(), "region": pa.string()})
    joined = example_queries(sampled(payments()), [table])[-1]
    assert joined.title == "Count by region of countries"
    assert "JOIN countries t ON s.country = t.country" in joined.sql


@pytest.mark.parametrize("seen", [True, False])
def test_an_engine_accepts_all_examples(seen: bool):
    schema = (
        "event_id string, merchant_id bigint, card string, `status code` int, amount double, country string, "
        "declined boolean, note string, tags array<string>, ts timestamp"
    )
    with transom.Engine(backend="local") as engine:
        engine.feed("payments", schema, time="ts")
        engine.table("countries", [{"country": "NO", "region": "north"}])
        table = KnownRelation("countries", "table", {"country": pa.string(), "region": pa.string()})
        examples = example_queries(sampled(payments(), seen), [table])
        assert len(examples) >= 5
        for example in examples:
            engine.check(example.sql)


def test_examples_over_a_stream_of_numbers_and_one_without_columns():
    with transom.Engine(backend="local") as engine:
        engine.feed("steps", "seq bigint, `unit price` double", time="seq")
        columns = {"seq": pa.int64(), "unit price": pa.float64()}
        for example in example_queries(StreamSample(KnownRelation("steps", "stream", columns, "seq"))):
            engine.check(example.sql)
    only_time = StreamSample(KnownRelation("ticks", "stream", {"ts": pa.timestamp("us", "UTC")}, "ts"))
    assert [example.title for example in example_queries(only_time)] == ["Count ticks"]


def test_statistics_of_values_that_cannot_be_compared():
    found = column_statistics(pa.table({"tags": [["a"], None], "blob": [b"x", b"x"], "x": [None, None]}))
    assert (found["tags"].nulls, found["tags"].distinct) == (1, None)
    assert found["blob"].least is None and found["blob"].distinct == 1
    assert (found["x"].nulls, found["x"].distinct, found["x"].repeats) == (2, 0, 0.0)

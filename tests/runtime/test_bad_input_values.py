"""Values that are hard to read, to show or to hold: broken text, absurd times, NaN, giant strings, many groups."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.bad_files import NOON, broken_text, put, stream_engine
from tests.runtime.engine_helpers import PER_MINUTE, accounted, answers, at, bids_engine, bids_table, written
from transom.durations import parse_instant

LAST_INSTANT = parse_instant("9999-12-31 23:59:59.999999")
INSTANT = pa.timestamp("us", tz="UTC")


# --- text that is no UTF-8 -------------------------------------------------------------------


def test_broken_text_in_a_parquet_file_is_repaired(make_engine: EngineFactory, tmp_path: Path) -> None:
    when = pa.array([NOON], pa.int64()).cast(INSTANT)
    put(tmp_path, "a.parquet", pa.table({"name": broken_text(b"a\xffb"), "ts": when}), 0)
    engine = stream_engine(make_engine, None, tmp_path)
    query = engine.register(
        "SELECT name, max(name) AS m, approx_count_distinct(name) AS d "
        "FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY name"
    )
    engine.drain()
    assert answers(query, "name", "m", "d") == [("12:00", "12:01", "a\ufffdb", "a\ufffdb", 1)]


def test_broken_text_that_is_pushed_is_repaired(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("bids", "name string, ts timestamp", time="ts")
    engine.register(PER_MINUTE)
    feed.push(pa.table({"name": broken_text(b"\xf0\x28"), "ts": pa.array([None], INSTANT)}))
    engine.step()
    assert [row["name"] for row in engine.rejected("bids").to_pylist()] == ["\ufffd("]


@pytest.mark.parametrize(
    "name, content, rejected",
    [
        (
            "a.json",
            b'{"name": "x", "ts": "2013-01-01 12:00:00"}\n{"name": "\xff", "ts": "2013-01-01 12:00:01"}\n',
            1,
        ),
        ("a.csv", b"name,ts\nx,2013-01-01 12:00:00\n\xff,2013-01-01 12:00:01\n", 0),
        ("a.csv", b"name,ts\nx,2013-01-01 12:00:00\n\xff,no time\n", 1),
    ],
    ids=["json", "csv", "csv without a time"],
)
def test_rejected_rows_with_broken_text_can_be_read(
    make_engine: EngineFactory, tmp_path: Path, name: str, content: bytes, rejected: int
) -> None:
    put(tmp_path, name, content, 0)
    engine = stream_engine(make_engine, None, tmp_path, schema="name string, ts timestamp")
    engine.register(PER_MINUTE)
    engine.drain()
    assert accounted(engine)["rejected"] == rejected
    rows = engine.rejected("bids").to_pylist()
    assert ["\ufffd" in row["_corrupt_record"] for row in rows] == [True] * rejected


# --- times -----------------------------------------------------------------------------------


def absurd_rows(*times: int | None) -> pa.Table:
    """Bids with these times, and with other times and dates that Python has not."""
    rows = len(times)
    return pa.table(
        {
            "site": pa.array(range(rows), pa.int32()),
            "seen": pa.array([2**61, -(2**61), LAST_INSTANT + 1, 2**61][:rows], pa.int64()).cast(INSTANT),
            "day": pa.array([2**30, -(2**30), 0, 2**30][:rows], pa.int32()).cast(pa.date32()),
            "ts": pa.array(times, pa.int64()).cast(INSTANT),
        }
    )


ABSURD_QUERIES = {
    "values": "SELECT max(seen) AS seen, min(day) AS day FROM bids [RANGE 1 minute SLIDE 1 minute]",
    "groups": "SELECT seen, day FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY seen, day",
    "rows": "SELECT max(seen) AS seen FROM bids [ROWS 2 SLIDE 2]",
}


def test_absurd_times_leave_all_outputs_readable(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(
        make_engine, tmp_path, schema="site int, seen timestamp, day date, ts timestamp"
    )
    queries = engine.register_all(ABSURD_QUERIES)
    lookup = engine.register("SELECT max(seen) AS seen, count(*) AS n FROM bids [RANGE 1 minute]", "recent")
    queries["values"].sink("json", str(tmp_path / "out"))
    feed.push(absurd_rows(NOON, -(2**61), 2**61, None))
    engine.step()
    assert queries["values"].prod().to_pylist()[0]["seen"] is None
    feed.push(absurd_rows(NOON + 600_000_000))
    engine.step()
    feed.push(absurd_rows(NOON))
    engine.drain()
    assert {name: query.results().num_rows for name, query in queries.items()} == {
        "values": 3,
        "groups": 2,
        "rows": 2,
    }
    for query in queries.values():
        assert {row["seen"] for row in query.results().to_pylist()} == {None}
    assert lookup.lookup().to_pylist()[0]["n"] == 1
    assert [row["site"] for row in engine.late("bids").to_pylist()] == [0]
    assert {row["site"]: row["reason"] for row in engine.rejected("bids").to_pylist()} == {
        1: "no time: not of the years 1 to 9999",
        2: "ahead of the engine's clock by more than 1 day (max_ahead)",
        3: "no time: null",
    }
    assert accounted(engine) == {"rows": 6, "counted": 2, "unwanted": 0, "late": 1, "rejected": 3}
    assert len(written(tmp_path / "out", "json")) == 2 and engine.progress().unaccounted == 0


def test_rows_at_the_ends_of_the_clock_are_rejected_and_listed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema="site int, ts timestamp")
    query = engine.register(PER_MINUTE)
    times = [NOON, -(2**63), -(2**63) + 1, 2**63 - 1, None]
    feed.push(
        pa.table({"site": pa.array(range(5), pa.int32()), "ts": pa.array(times, pa.int64()).cast(INSTANT)})
    )
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1)]
    assert accounted(engine) == {"rows": 5, "counted": 1, "unwanted": 0, "late": 0, "rejected": 4}
    assert sorted(row["site"] for row in engine.rejected("bids").to_pylist()) == [1, 2, 3, 4]


# --- numbers, sizes, shapes ------------------------------------------------------------------


def test_nan_and_infinities_are_values(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(
        "SELECT max(price) AS high, min(price) AS low, sum(price) AS total, count(price) AS n "
        "FROM bids [RANGE 1 minute SLIDE 1 minute]"
    )
    values = [
        (1, math.nan, at("12:00")),
        (1, math.inf, at("12:00")),
        (1, -math.inf, at("12:00")),
        (1, None, at("12:00")),
    ]
    feed.push(values)
    engine.drain()
    row = query.results().to_pylist()[0]
    assert math.isnan(row["high"]) and row["low"] == -math.inf and math.isnan(row["total"]) and row["n"] == 3


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.parquet"])
def test_a_string_of_ten_megabytes_is_a_value(make_engine: EngineFactory, tmp_path: Path, name: str) -> None:
    giant = "x" * (10 << 20)
    contents: dict[str, Any] = {
        "a.json": json.dumps({"name": giant, "ts": "2013-01-01 12:00:00"}) + "\n",
        "a.csv": f"name,ts\n{giant},2013-01-01 12:00:00\n",
        "a.parquet": pa.table({"name": [giant], "ts": pa.array([NOON], pa.int64()).cast(INSTANT)}),
    }
    put(tmp_path, name, contents[name], 0)
    engine = stream_engine(make_engine, None, tmp_path, schema="name string, ts timestamp")
    query = engine.register(
        "SELECT name, max(length(name)) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY name"
    )
    engine.drain()
    assert query.results()["n"].to_pylist() == [len(giant)] and query.results()["name"].to_pylist() == [giant]


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_an_empty_file_is_read_when_it_has_content(
    make_engine: EngineFactory, tmp_path: Path, format: str
) -> None:
    contents: dict[str, Any] = {
        "json": '{"site": 1, "price": 1.0, "ts": "2013-01-01 12:00:10"}\n',
        "csv": "site,price,ts\n1,1.0,2013-01-01 12:00:10\n",
        "parquet": bids_table((1, 1.0, "12:00:10")),
    }
    put(tmp_path, f"a.{format}", b"", 0)
    engine = stream_engine(
        make_engine, None, tmp_path, format=format, schema="site int, price double, ts timestamp"
    )
    query = engine.register(PER_MINUTE)
    assert engine.step() == 1 and accounted(engine)["rows"] == 0  # the query joins
    put(tmp_path, f"a.{format}", contents[format], 1)
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1)] and engine.file_problems("bids").num_rows == 0


def test_files_with_a_header_or_a_footer_and_no_rows_bring_none(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    put(tmp_path / "csv", "a.csv", "site,price,ts\n", 0)
    put(tmp_path / "parquet", "a.parquet", bids_table(), 0)
    put(tmp_path / "json", "a.json", "\n\n", 0)
    for place in ("csv", "parquet", "json"):
        engine = stream_engine(
            make_engine, None, tmp_path / place, schema="site int, price double, ts timestamp"
        )
        engine.register(PER_MINUTE)
        engine.drain()
        assert accounted(engine)["rows"] == 0 and engine.file_problems("bids").num_rows == 0


def test_a_hot_group_with_nine_tenths_of_the_rows(make_engine: EngineFactory, tmp_path: Path) -> None:
    rows, hot = 100_000, 90_000
    engine, feed = bids_engine(make_engine, tmp_path, schema="site bigint, ts timestamp")
    query = engine.register(
        "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
    )
    sites = np.r_[np.zeros(hot, np.int64), np.arange(1, rows - hot + 1)]
    feed.push(pa.table({"site": sites, "ts": pa.array(np.full(rows, NOON)).cast(INSTANT)}))
    engine.drain()
    counts = query.results()["n"].to_numpy()
    assert len(counts) == rows - hot + 1 and counts.max() == hot and counts.sum() == rows


def test_a_million_groups(make_engine: EngineFactory, tmp_path: Path) -> None:
    rows = 1_000_000
    engine, feed = bids_engine(make_engine, tmp_path, schema="site bigint, ts timestamp")
    query = engine.register(
        "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
    )
    feed.push(pa.table({"site": np.arange(rows), "ts": pa.array(np.full(rows, NOON)).cast(INSTANT)}))
    engine.drain()
    assert query.results().num_rows == accounted(engine)["counted"] == rows


def test_null_times_are_rejected_with_a_reason(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    feed.push([(1, 1.0, None), (2, 1.0, at("12:00"))])
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1)]
    assert [(row["site"], row["reason"]) for row in engine.rejected("bids").to_pylist()] == [
        (1, "no time: null")
    ]


def test_a_pushed_row_that_does_not_fit_is_refused_whole(make_engine: EngineFactory, tmp_path: Path) -> None:
    _, feed = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.SettingError, match="do not fit its schema"):
        feed.push([(1, 1.0, at("12:00")), (2**40, 1.0, at("12:00"))])

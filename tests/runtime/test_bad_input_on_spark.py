"""Bad input on Spark, whose readers fail in their own ways and at their own time."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory, on_spark
from tests.runtime.bad_files import (
    COUNT,
    NOON,
    broken_text,
    damaged_page,
    problems,
    put,
    retyped,
    stream_engine,
    three_files,
    truncated_gzip,
)
from tests.runtime.engine_helpers import PER_MINUTE, accounted, answers, bids, bids_engine, bids_table
from transom.backends.spark.hadoop_file import HadoopFile

pytestmark = [
    on_spark("Spark's readers fail in their own ways; the local backend has tests of its own"),
    pytest.mark.comparison,
]
BIDS = "site int, price double, ts timestamp"
LINES = "".join(
    f'{{"site": {n}, "price": 1.5, "ts": "2013-01-01T12:00:{n % 60:02d}Z"}}\n' for n in range(4000)
)


def test_every_kind_of_unreadable_parquet_file_is_left_out(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = three_files(tmp_path / "in", "site,price,ts\n1,2,3\n")
    put(place, "d.parquet", damaged_page(tmp_path), 3)
    put(place, "e.parquet", retyped("price", pa.string()), 4)
    put(place, "f.parquet", retyped("site", pa.int64(), [1 << 40]), 5)
    put(place, "g.parquet", bids_table((5, 8.0, "12:00:40")), 6)
    engine = stream_engine(make_engine, tmp_path / "checkpoint", place, files_per_batch=7)
    query = engine.register(COUNT)
    engine.register(PER_MINUTE, "second")
    engine.drain()
    assert answers(query, "n", "total") == [("12:00", "12:01", 3, 13.0)]
    assert problems(engine) == [
        ("unreadable", "b.parquet", None),
        ("unreadable", "e.parquet", "price"),
        ("unreadable", "f.parquet", "site"),
        ("unreadable", "d.parquet", None),
    ]
    assert engine.progress().suspended == {} and accounted(engine)["rows"] == 3


def test_types_that_lose_nothing_are_read_with_a_cast(make_engine: EngineFactory, tmp_path: Path) -> None:
    place = tmp_path / "in"
    contents: list[Any] = [
        bids_table((2, 2.0, "12:00:20")),
        retyped("site", pa.int64()),
        retyped("site", pa.int8()),
        retyped("price", pa.float32()),
        retyped("price", pa.int32()),
        retyped("price", pa.null(), [None]),
        retyped("ts", pa.timestamp("ns", tz="UTC")),
        retyped("ts", pa.timestamp("ms", tz="UTC")),
        retyped("ts", pa.timestamp("us")),
    ]
    for number, content in enumerate(contents):
        put(place, f"{number}.parquet", content, number)
    engine = stream_engine(make_engine, None, place, files_per_batch=9)
    query = engine.register(COUNT.replace("SELECT", "SELECT site,") + " GROUP BY site")
    engine.drain()
    assert problems(engine) == []
    assert answers(query, "site", "n", "total") == [("12:00", "12:01", 2, 9, 16.0)]


def test_a_truncated_gzip_and_a_deleted_file_are_left_out(make_engine: EngineFactory, tmp_path: Path) -> None:
    place = tmp_path / "in"
    for number, name in enumerate("abcd"):
        content = truncated_gzip(LINES) if name == "b" else gzip.compress(LINES.encode())
        put(place, f"{name}.json.gz", content, number)
    engine = stream_engine(make_engine, None, place, schema=BIDS, slack="1 minute", files_per_batch=2)
    query = engine.register(COUNT)
    engine.step(1)
    (place / "c.json.gz").unlink()
    engine.drain()
    assert answers(query, "n") == [("12:00", "12:01", 8000)]
    assert problems(engine) == [("unreadable", "b.json.gz", None), ("unreadable", "c.json.gz", None)]
    reasons = engine.file_problems("bids")["reason"].to_pylist()
    assert reasons[1] == "it was deleted after it was listed" and "\n" not in reasons[0]


def test_columns_that_come_and_go_and_rewritten_files_are_noted(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = three_files(
        tmp_path / "in", bids_table((2, 2.0, "12:00:20")).rename_columns(["site", "cost", "ts"])
    )
    engine = stream_engine(make_engine, None, place, files_per_batch=3)
    query = engine.register(COUNT)
    engine.step()
    put(place, "a.parquet", bids_table((9, 9.0, "12:00:50"), (9, 9.0, "12:00:51")), 9)
    engine.drain()
    assert answers(query, "n", "total") == [("12:00", "12:01", 3, 5.0)]
    assert problems(engine) == [
        ("missing column", "b.parquet", "price"),
        ("new column", "b.parquet", "cost"),
        ("rewritten", "a.parquet", None),
    ]


def test_a_row_of_the_year_9999_makes_no_later_row_late(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    for time in ("12:00:10", "9999-12-31 00:00", "12:00:20"):
        feed.push(bids((1, 1.0, time)))
        engine.step()
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 2)]
    assert [row["reason"] for row in engine.rejected("bids").to_pylist()] == [
        "ahead of the engine's clock by more than 1 day (max_ahead)"
    ]


def test_broken_text_and_absurd_times_leave_the_outputs_readable(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    instant = pa.timestamp("us", tz="UTC")
    rows = pa.table(
        {
            "name": broken_text(b"a\xffb"),
            "seen": pa.array([2**61], pa.int64()).cast(instant),
            "ts": pa.array([NOON], pa.int64()).cast(instant),
        }
    )
    put(tmp_path / "in", "a.parquet", rows, 0)
    put(tmp_path / "in", "b.parquet", rows.set_column(2, "ts", pa.array([None], instant)), 1)
    engine = stream_engine(make_engine, None, tmp_path / "in")
    query = engine.register(
        "SELECT name, max(seen) AS seen FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY name"
    )
    engine.drain()
    assert answers(query, "name", "seen") == [("12:00", "12:01", "a\ufffdb", None)]
    assert [(row["name"], row["seen"]) for row in engine.rejected("bids").to_pylist()] == [("a\ufffdb", None)]


def test_a_file_of_a_hadoop_file_system_is_read_as_a_python_file(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    file = put(tmp_path, "a.parquet", bids_table((1, 1.0, "12:00:10")), 0)
    with io.BufferedReader(HadoopFile(make_engine.session, f"file:{file}")) as opened:
        assert opened.read() == file.read_bytes()
        opened.seek(-4, io.SEEK_END)
        assert opened.read(9) == b"PAR1"
    with pytest.raises(FileNotFoundError):
        HadoopFile(make_engine.session, f"file:{tmp_path}/nothing")

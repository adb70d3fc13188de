"""Files that can't be read are left out and named; files with other columns are read as far as possible."""

from __future__ import annotations

import gzip
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.bad_files import (
    COUNT,
    damaged_page,
    problems,
    put,
    retyped,
    stream_engine,
    three_files,
    truncated,
    truncated_gzip,
)
from tests.runtime.engine_helpers import accounted, answers, begun, bids_table

UNREADABLE = [("unreadable", "b.parquet", None)]
LINES = "".join(
    f'{{"site": {n}, "price": 1.5, "ts": "2013-01-01T12:00:{n % 60:02d}Z"}}\n' for n in range(4000)
)
CSV = "site,price,ts\n" + "".join(f"{n},1.5,2013-01-01T12:00:{n % 60:02d}Z\n" for n in range(4000))
BIDS = "site int, price double, ts timestamp"


@pytest.mark.parametrize(
    "content, column, reason",
    [
        ("site,price,ts\n1,2,3\n", None, "Parquet"),
        (b"PAR1 is no footer PAR1", None, ""),
        (retyped("price", pa.string()), "price", "its column price is string, the stream's is double"),
        (retyped("site", pa.int64(), [1 << 40]), "site", "its column site is int64, the stream's is int32"),
        (retyped("price", pa.decimal128(12, 4)), "price", "its column price is decimal128"),
        (retyped("ts", pa.date32()), "ts", "its column ts is date32"),
    ],
    ids=[
        "text",
        "no footer",
        "text for numbers",
        "a number that does not fit",
        "a decimal",
        "a date for a time",
    ],
)
def test_an_unreadable_parquet_file_is_left_out_and_named(
    make_engine: EngineFactory, tmp_path: Path, content: Any, column: str | None, reason: str
) -> None:
    engine = stream_engine(make_engine, None, three_files(tmp_path / "in", content), files_per_batch=3)
    query = engine.register(COUNT)
    engine.drain()
    assert answers(query, "n", "total") == [("12:00", "12:01", 2, 5.0)]
    assert problems(engine) == [("unreadable", "b.parquet", column)]
    assert reason in engine.file_problems("bids")["reason"].to_pylist()[0]
    assert accounted(engine)["rows"] == 2
    assert engine.progress().streams["bids"].file_problems == {"unreadable": 1}
    assert "unreadable files 1" in str(engine.progress())


def test_a_truncated_file_and_one_with_a_damaged_page_are_left_out(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = three_files(tmp_path / "in", truncated(bids_table((2, 2.0, "12:00:20")), tmp_path / "in"))
    put(place, "d.parquet", damaged_page(tmp_path), 3)
    put(place, "e.parquet", bids_table((5, 8.0, "12:00:40")), 4)
    engine = stream_engine(make_engine, None, place, files_per_batch=2)
    query = engine.register(COUNT)
    engine.drain()
    assert answers(query, "n", "total") == [("12:00", "12:01", 3, 13.0)]
    assert problems(engine) == [("unreadable", "b.parquet", None), ("unreadable", "d.parquet", None)]


@pytest.mark.parametrize("name, text", [("b.json.gz", LINES), ("b.csv.gz", CSV)])
def test_a_truncated_gzip_is_left_out_whole(
    make_engine: EngineFactory, tmp_path: Path, name: str, text: str
) -> None:
    first, last = name.replace("b", "a", 1), name.replace("b", "c", 1)
    put(tmp_path / "in", first, gzip.compress(text.encode()), 0)
    put(tmp_path / "in", name, truncated_gzip(text), 1)
    put(tmp_path / "in", last, gzip.compress(text.encode()), 2)
    engine = stream_engine(
        make_engine, None, tmp_path / "in", schema=BIDS, slack="1 minute", files_per_batch=3
    )
    query = engine.register(COUNT)
    engine.drain()
    assert answers(query, "n", "total") == [("12:00", "12:01", 8000, 12000.0)]
    assert problems(engine) == [("unreadable", name, None)] and accounted(engine)["rows"] == 8000


def test_a_file_that_is_deleted_after_it_was_listed_is_left_out(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = three_files(tmp_path / "in")
    engine = stream_engine(make_engine, None, place)
    query = engine.register(COUNT)
    engine.step(1)  # all three are listed
    (place / "b.parquet").unlink()
    engine.drain()
    assert answers(query, "n") == [("12:00", "12:01", 2)]
    assert problems(engine) == UNREADABLE
    assert engine.file_problems("bids")["reason"].to_pylist() == ["it was deleted after it was listed"]


def test_a_missing_directory_is_not_taken_for_missing_files(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = three_files(tmp_path / "in")
    engine = stream_engine(make_engine, None, place)
    query = engine.register(COUNT)
    engine.step(1)
    place.rename(tmp_path / "elsewhere")  # as when a disk is not mounted
    with pytest.raises(FileNotFoundError):
        engine.step()
    (tmp_path / "elsewhere").rename(place)
    engine.drain()
    assert answers(query, "n") == [("12:00", "12:01", 3)] and problems(engine) == []


@pytest.mark.parametrize(
    "content",
    [
        retyped("site", pa.int64()),
        retyped("site", pa.int8()),
        retyped("price", pa.float32()),
        retyped("price", pa.int32()),
        retyped("ts", pa.timestamp("ns", tz="UTC")),
        retyped("ts", pa.timestamp("ms", tz="UTC")),
        retyped("ts", pa.timestamp("us")),
        retyped("price", pa.float64()).rename_columns(["Site", "PRICE", "ts"]),
    ],
    ids=["bigint", "tinyint", "float", "int", "nanoseconds", "milliseconds", "no zone", "other cases"],
)
def test_a_type_that_loses_nothing_is_read_with_a_cast(
    make_engine: EngineFactory, tmp_path: Path, content: pa.Table
) -> None:
    engine = stream_engine(make_engine, None, three_files(tmp_path / "in", content), files_per_batch=3)
    query = engine.register(COUNT.replace("SELECT", "SELECT site,") + " GROUP BY site")
    engine.drain()
    assert [row[2:] for row in answers(query, "site", "total")] == [(1, 1.0), (2, 2.0), (3, 4.0)]
    assert problems(engine) == []


def test_decimals_grow(make_engine: EngineFactory, tmp_path: Path) -> None:
    place = tmp_path / "in"
    put(place, "a.parquet", retyped("price", pa.decimal128(10, 2)), 0)
    put(place, "b.parquet", retyped("price", pa.decimal128(8, 1)), 1)
    put(place, "c.parquet", retyped("price", pa.decimal128(12, 2)), 2)
    engine = stream_engine(make_engine, None, place)
    query = engine.register(COUNT)
    engine.drain()
    assert answers(query, "n") == [("12:00", "12:01", 2)]
    assert problems(engine) == [("unreadable", "c.parquet", "price")]


def test_a_replayed_batch_leaves_out_the_same_file(make_engine: EngineFactory, tmp_path: Path) -> None:
    place = three_files(tmp_path / "in", damaged_page(tmp_path))
    engine = stream_engine(make_engine, tmp_path / "checkpoint", place, files_per_batch=3)
    query = engine.register(COUNT)

    def fail(report: object) -> None:
        raise OSError("the power failed")

    engine._loop.listeners.append(fail)
    with pytest.raises(OSError, match="power"):
        engine.step()
    intent = begun(tmp_path)
    assert intent is not None and [os.path.basename(file) for file in intent.reference["files"]] == [
        "a.parquet",
        "c.parquet",
    ]
    # Repaired, but the batch has begun without it.
    put(place, "b.parquet", bids_table((2, 2.0, "12:00:20")), 1)
    again = stream_engine(make_engine, tmp_path / "checkpoint", place, files_per_batch=3)
    again.drain()
    assert answers(again.query(query.name), "n") == [("12:00", "12:01", 2)]
    assert problems(again) == [*UNREADABLE, ("rewritten", "b.parquet", None)]
    third = stream_engine(make_engine, tmp_path / "checkpoint", place, files_per_batch=3)
    assert problems(third)[:1] == UNREADABLE, "the list is part of the checkpoint"
    assert third.progress().streams["bids"].file_problems["unreadable"] == 1


def test_no_query_is_accused_of_an_unreadable_file(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = stream_engine(make_engine, None, three_files(tmp_path / "in", damaged_page(tmp_path)))
    for number in range(3):
        engine.register(COUNT, f"q{number}")
    engine.drain()
    assert engine.progress().suspended == {} and problems(engine) == UNREADABLE


def test_a_stream_of_unreadable_files_goes_on(make_engine: EngineFactory, tmp_path: Path) -> None:
    for number, name in enumerate(("a.parquet", "b.parquet")):
        put(tmp_path / "in", name, "no parquet", number)
    engine = stream_engine(
        make_engine, None, tmp_path / "in", format="parquet", schema=BIDS, files_per_batch=2
    )
    query = engine.register(COUNT)
    assert engine.step() == 1
    put(tmp_path / "in", "c.parquet", bids_table((1, 1.0, "12:00:10")), 3)
    engine.drain()
    assert answers(query, "n") == [("12:00", "12:01", 1)]
    assert engine.progress().streams["bids"].file_problems == {"unreadable": 2}


def test_the_columns_are_told_by_the_first_file_that_can_be_read(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    put(tmp_path / "in", "a.parquet", "no parquet", 0)
    put(tmp_path / "in", "b.parquet", bids_table((1, 1.0, "12:00:10")), 1)
    engine = stream_engine(make_engine, None, tmp_path / "in")
    query = engine.register(COUNT)
    engine.drain()
    assert answers(query, "n") == [("12:00", "12:01", 1)] and problems(engine)[0][1] == "a.parquet"
    put(tmp_path / "bad", "a.parquet", "no parquet", 0)
    with pytest.raises(
        transom.SettingError, match=r"can't read the first files of .*bad to tell its columns"
    ):
        make_engine().stream("s", str(tmp_path / "bad"), time="ts")


# --- columns that come and go ----------------------------------------------------------------


def test_a_missing_and_a_new_column_are_noted(
    make_engine: EngineFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renamed = bids_table((2, 2.0, "12:00:20")).rename_columns(["site", "cost", "ts"])
    place = three_files(tmp_path / "in", renamed)
    put(place, "d.parquet", renamed, 3)
    engine = stream_engine(make_engine, tmp_path / "checkpoint", place)
    query = engine.register(COUNT)
    with caplog.at_level(logging.WARNING, "transom"):
        engine.drain()
    assert answers(query, "n", "total") == [("12:00", "12:01", 4, 5.0)]
    assert problems(engine) == [
        ("missing column", "b.parquet", "price"),
        ("new column", "b.parquet", "cost"),
        ("missing column", "d.parquet", "price"),
    ]
    assert engine.progress().streams["bids"].file_problems == {"missing column": 2, "new column": 1}
    assert engine.file_problems("bids")["batch"].to_pylist() == [2, 2, 4]
    assert "b.parquet: missing column price: its values are null" in caplog.text
    put(place, "e.parquet", renamed, 4)
    again = stream_engine(make_engine, tmp_path / "checkpoint", place)
    again.drain()
    assert again.progress().streams["bids"].file_problems == {"missing column": 3, "new column": 1}


@pytest.mark.parametrize(
    "name, first, second",
    [
        ("csv", "site,price,ts\n1,1.0,2013-01-01 12:00:10\n", "site,cost,ts\n2,2.0,2013-01-01 12:00:20\n"),
        (
            "json",
            '{"site": 1, "price": 1.0, "ts": "2013-01-01 12:00:10"}\n',
            '{"site": 2, "cost": 2.0, "ts": "2013-01-01 12:00:20"}\n',
        ),
    ],
)
def test_columns_of_text_files_are_compared_too(
    make_engine: EngineFactory, tmp_path: Path, name: str, first: str, second: str
) -> None:
    put(tmp_path / "in", f"a.{name}", first, 0)
    put(tmp_path / "in", f"b.{name}", second, 1)
    engine = stream_engine(make_engine, None, tmp_path / "in", schema=BIDS)
    query = engine.register(COUNT)
    engine.drain()
    assert answers(query, "n", "total") == [("12:00", "12:01", 2, 1.0)]
    assert problems(engine) == [
        ("missing column", f"b.{name}", "price"),
        ("new column", f"b.{name}", "cost"),
    ]


def test_a_file_that_is_rewritten_after_it_was_read_is_noted_once(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = three_files(tmp_path / "in")
    engine = stream_engine(make_engine, tmp_path / "checkpoint", place)
    query = engine.register(COUNT)
    engine.step()
    assert problems(engine) == []
    put(place, "a.parquet", bids_table((9, 9.0, "12:00:50"), (9, 9.0, "12:00:51")), 9)
    engine.step()
    assert problems(engine) == [("rewritten", "a.parquet", None)]
    put(place, "a.parquet", bids_table((9, 9.0, "12:00:50")), 10)
    put(place, "d.parquet", bids_table((4, 8.0, "12:00:40")), 11)
    engine.drain()
    again = stream_engine(make_engine, tmp_path / "checkpoint", place)
    again.step()
    assert problems(again) == [("rewritten", "a.parquet", None)]
    assert answers(again.query(query.name), "n", "total") == [("12:00", "12:01", 4, 15.0)]


def test_a_stream_that_is_no_path_has_no_file_problems(make_engine: EngineFactory) -> None:
    engine = make_engine()
    engine.feed("bids", BIDS, time="ts")
    assert engine.file_problems("bids").num_rows == 0

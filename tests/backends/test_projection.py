"""The shared projection: tables joined without dropping rows, scalars named, times as integers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from transom.backends.base import Backend, Frame, TableJoin
from transom.backends.expressions import at_clock, micros
from transom.errors import SettingError
from transom.sql.query import Join

pytestmark = ON_BOTH

PRICES = [(1, 2.0), (2, 0.0), (3, 5.0), (None, 1.0)]
INSTANT = pa.timestamp("us", tz="UTC")
SITES = Join("sites#1a2b3c4d", "sites", "`site` = `sites#1a2b3c4d.id`", ("id",), ("name", "region"))
REGIONS = Join(
    "regions#5e6f7a8b",
    "regions",
    "`sites#1a2b3c4d.region` = `regions#5e6f7a8b.id`",
    ("id",),
    ("id", "tax"),
)
AGAIN = Join("sites#99999999", "sites", "`price` = `sites#99999999.id`", ("id",), ("name",))


@pytest.fixture(scope="module")
def batch(backend: Backend) -> Frame:
    return backend.frame(
        pa.table(
            {
                "site": pa.array([site for site, _ in PRICES], pa.int32()),
                "price": pa.array([price for _, price in PRICES]),
                "ts": pa.array([0, 1, 2, 3], INSTANT),
            }
        ),
    )


@pytest.fixture(scope="module")
def tables(backend: Backend) -> dict[str, Frame]:
    sites = pa.table(
        {
            "id": pa.array([1, 2, None], pa.int32()),
            "name": ["one", None, "none"],
            "region": ["eu", "us", "eu"],
            "unused": [1, 2, 3],
        }
    )
    regions = pa.table({"id": ["eu"], "tax": [0.2]})
    return {"sites": backend.frame(sites), "regions": backend.frame(regions)}


def rows(frame: Frame) -> list[tuple[Any, ...]]:
    table = frame.to_table()
    table = table.sort_by(table.column_names[0])
    return [tuple(row.values()) for row in table.to_pylist()]


def joined(tables: dict[str, Frame], *joins: Join) -> list[TableJoin]:
    return [TableJoin(join, tables[join.table]) for join in joins]


def test_scalars_are_named_and_raw_columns_kept(batch: Frame) -> None:
    found = batch.project({"s0": "`price` * 2", "s1": "10 / `price`"}, keep=("price", "site"))
    assert list(found.columns) == ["price", "site", "s0", "s1"]
    assert rows(found) == [
        (0.0, 2, 0.0, None),
        (1.0, None, 2.0, 10.0),
        (2.0, 1, 4.0, 5.0),
        (5.0, 3, 10.0, 2.0),
    ]


def test_a_joined_table_drops_no_row_and_says_what_matched(batch: Frame, tables: dict[str, Frame]) -> None:
    found = batch.project(
        {"name": "`sites#1a2b3c4d.name`", "matched": "`sites#1a2b3c4d`"},
        keep=("ts",),
        joins=joined(tables, SITES),
    )
    assert [row[1:] for row in rows(found)] == [
        ("one", True),
        (None, True),  # matched, with a null name
        (None, False),
        (None, False),  # a null never equals a null
    ]


def test_a_table_may_join_through_another_and_twice(batch: Frame, tables: dict[str, Frame]) -> None:
    found = batch.project(
        {
            "tax": "`regions#5e6f7a8b.tax`",
            "taxed": "`regions#5e6f7a8b`",
            "other": "`sites#99999999.name`",
            "both": "`sites#99999999` AND `sites#1a2b3c4d`",
        },
        keep=("ts",),
        joins=joined(tables, SITES, REGIONS, AGAIN),
    )
    assert [row[1:] for row in rows(found)] == [
        (0.2, True, None, True),
        (None, False, None, False),
        (None, False, None, False),
        (None, False, "one", False),
    ]


def test_the_projection_keeps_no_columns_it_was_not_asked_for(batch: Frame, tables: dict[str, Frame]) -> None:
    assert list(batch.project({"one": "1"}, joins=joined(tables, SITES)).columns) == ["one"]


NOW = 1_700_000_000_123_456
CLOCKS = [
    ("current_timestamp()", datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
    ("CURRENT_TIMESTAMP", datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
    ("now( )", datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
    ("current_date()", date(2023, 11, 14)),
    ("curdate()", date(2023, 11, 14)),
    ("localtimestamp()", datetime(2023, 11, 14, 22, 13, 20, 123456)),
    ("unix_timestamp()", 1_700_000_000),
    ("unix_timestamp('1970-01-01 00:00:01')", 1),
    ("'current_timestamp() isn\\'t now()'", "current_timestamp() isn't now()"),
]


@pytest.mark.parametrize("text, value", CLOCKS, ids=[text for text, _ in CLOCKS])
def test_what_time_it_is_is_the_batches(batch: Frame, text: str, value: Any) -> None:
    assert rows(batch.project({"x": at_clock(text, NOW)}))[0] == (value,)


def test_a_column_that_is_called_like_a_clock_is_left_alone() -> None:
    assert (
        at_clock('`current_date` + `now()` + renow() + "now()"', NOW)
        == '`current_date` + `now()` + renow() + "now()"'
    )


def test_without_a_batch_clock_the_text_is_unchanged() -> None:
    assert at_clock("now()", None) == "now()"


TIMES: list[tuple[str, pa.DataType, int]] = [
    ("TIMESTAMP '1969-12-31 23:59:59.999999Z'", INSTANT, -1),
    ("TIMESTAMP '2024-03-31 01:00:00Z'", INSTANT, 1_711_846_800_000_000),
    ("TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'", pa.timestamp("us"), -1),
    ("TIMESTAMP_NTZ '2024-03-31 02:30:00.000001'", pa.timestamp("us"), 1_711_852_200_000_001),
    ("TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'", pa.timestamp("us"), 253_402_300_799_999_999),
    ("TIMESTAMP_NTZ '0001-01-01 00:00:00'", pa.timestamp("us"), -62_135_596_800_000_000),
    ("DATE '1969-12-31'", pa.date32(), -86_400_000_000),
    ("DATE '2024-03-31'", pa.date32(), 1_711_843_200_000_000),
    ("CAST(-7 AS TINYINT)", pa.int8(), -7),
    ("CAST(NULL AS TIMESTAMP_NTZ)", pa.timestamp("us"), None),  # type: ignore[list-item]
]


def test_times_become_microseconds(batch: Frame) -> None:
    check_micros(batch)


@on_spark("only a Spark session has a zone")
def test_times_become_the_same_microseconds_in_another_zone(make_engine: EngineFactory, batch: Frame) -> None:
    make_engine.session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        check_micros(batch)
    finally:
        make_engine.session.conf.set("spark.sql.session.timeZone", "UTC")


def check_micros(batch: Frame) -> None:
    found = batch.project({str(i): micros(*time[:2]) for i, time in enumerate(TIMES)}).first(1)
    assert set(found.schema.types) == {pa.int64()}
    assert list(found.to_pylist()[0].values()) == [time[2] for time in TIMES]


def test_a_text_is_no_clock() -> None:
    with pytest.raises(SettingError, match="a clock is a time or an integer"):
        micros("`name`", pa.string())


@pytest.mark.parametrize("few", [True, False])
def test_many_expressions_have_the_same_values_as_few(
    backend: Backend, batch: Frame, tables: dict[str, Frame], few: bool
) -> None:
    """Spark evaluates them in chunks, if there are few rows."""
    scalars = {f"c{i}": f"`price` * {i} + `site`" for i in range(450)}
    scalars |= {"region": "`sites#1a2b3c4d.region`", "time": micros("`ts`", INSTANT)}
    joins = [TableJoin(SITES, tables["sites"])]
    found = batch.project(scalars, ["site"], joins).to_table(few).sort_by("time")
    assert found.column_names == ["site", *scalars] and found.num_rows == 4
    assert found["region"].to_pylist() == ["eu", "us", None, None]
    for i in (0, 199, 200, 449):
        values = [None if site is None else price * i + site for site, price in PRICES]
        assert found[f"c{i}"].to_pylist() == values
    assert batch.project(scalars, [], joins).columns["c449"] == pa.float64()

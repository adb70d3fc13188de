"""Calendar windows and cumulative windows have the answers of Spark's date functions in a session of the zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine_factory import EngineFactory

pytestmark = [pytest.mark.spark, pytest.mark.comparison]

CHANGES = [
    ("Europe/Berlin", "2024-03-29"),
    ("Europe/Berlin", "2024-10-25"),
    ("America/New_York", "2024-03-08"),
    ("America/New_York", "2024-11-01"),
    ("Asia/Kolkata", "2024-03-29"),
    ("Australia/Lord_Howe", "2024-04-05"),
    ("Australia/Lord_Howe", "2024-10-04"),
    ("America/Sao_Paulo", "2018-11-02"),
]
PER_UNIT = "SELECT date_trunc('{unit}', ts) AS start, site, sum(v) AS v FROM drawn GROUP BY 1, site"
SINCE_MIDNIGHT = """
    SELECT e.stop, site, sum(v) AS v FROM drawn JOIN (
        SELECT explode(sequence(TIMESTAMP '{first}', TIMESTAMP '{last}', INTERVAL 30 MINUTES)) AS stop) e
    ON ts < e.stop AND date_trunc('DAY', ts) = date_trunc('DAY', e.stop - INTERVAL 1 SECOND) GROUP BY e.stop, site"""


@pytest.fixture
def session_zone(spark: Any) -> Iterator[Any]:
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


def drawn(seed: int, day: str) -> list[tuple[datetime, int, int]]:
    rng, first = Random(seed), datetime.fromisoformat(day).replace(tzinfo=UTC)
    times = sorted(first + timedelta(minutes=rng.randrange(6 * 24 * 60)) for _ in range(400))
    return [(time, rng.randrange(3), rng.randrange(100)) for time in times]


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_days_weeks_and_months_are_those_of_date_trunc(
    spark: Any, session_zone: Any, tmp_path: Path, zone: str, day: str, seed: int
) -> None:
    rows = drawn(seed, day)
    engine = EngineFactory("local")(tmp_path / "calendar")
    feed = engine.feed("s", "ts timestamp, site int, v int", time="ts")
    queries = {
        unit: engine.register(
            f"SELECT site, sum(v) AS v FROM s [RANGE 1 {unit} SLIDE 1 {unit} IN TIME ZONE '{zone}'] GROUP BY site",
            unit,
        )
        for unit in ("day", "week", "month", "quarter", "year")
    }
    up_to = f"[RANGE UP TO 1 day SLIDE 30 minutes IN TIME ZONE '{zone}']"
    grows = engine.register(f"SELECT site, sum(v) AS v FROM s {up_to} GROUP BY site", "up")
    feed.push(rows)
    engine.step()
    engine.flush("s")
    engine.step(empty=True)
    session_zone(zone)
    spark.createDataFrame(rows, "ts timestamp, site int, v int").createOrReplaceTempView("drawn")
    for unit, query in queries.items():
        found = query.results().to_pylist()
        expected = (
            spark.sql(PER_UNIT.format(unit=unit)).selectExpr("unix_micros(start)", "site", "v").collect()
        )
        assert sorted(_numbers(row, "window_start") for row in found) == sorted(map(tuple, expected)), unit
    first = f"{rows[0][0]:%Y-%m-%d %H}:00:00Z"
    last = f"{(rows[-1][0] + timedelta(days=2)):%Y-%m-%d %H}:00:00Z"
    statement = spark.sql(SINCE_MIDNIGHT.format(first=first, last=last))
    expected = statement.selectExpr("unix_micros(stop)", "site", "v").collect()
    own = [_numbers(row, "window_end") for row in grows.results().to_pylist()]
    assert sorted(own) == sorted(map(tuple, expected))


def _numbers(row: dict[str, Any], bound: str) -> tuple[int, int, int]:
    return int(row[bound].timestamp()) * 1_000_000, row["site"], row["v"]

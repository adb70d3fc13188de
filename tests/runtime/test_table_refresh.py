"""Static tables that are read again, by the program or at intervals."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from transom.errors import SettingError

SQL = (
    "SELECT city, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute], sites "
    "WHERE bids.site = sites.site GROUP BY city"
)


@ON_BOTH
def test_a_table_is_read_again(make_engine: EngineFactory, tmp_path: Path) -> None:
    file = tmp_path / "sites.csv"
    file.write_text("site,city\n1,Oslo\n")
    with make_engine(tmp_path / "checkpoint") as engine:
        engine.table("sites", str(file))
        bids = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(SQL)
        bids.push([(1, "2024-01-01 12:00:01")])
        engine.step()
        assert not engine.refresh("sites")  # nothing has changed, so there is no new version
        file.write_text("site,city\n1,Rome\n")
        assert engine.refresh("sites")
        for minute in range(1, 6):
            bids.push([(1, f"2024-01-01 12:0{minute}:01")])
            engine.step()
        cities = [row["city"] for row in query.results().sort_by("window_end").to_pylist()]
        assert cities == ["Oslo", *["Rome"] * 4]
        assert [path.name for path in (tmp_path / "checkpoint/tables/sites").iterdir()] == ["v2"]
        with pytest.raises(SettingError, match="no table named sits; did you mean sites"):
            engine.refresh("sits")


def test_a_running_engine_reads_a_table_at_intervals(
    make_engine: EngineFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sites.csv"
    file.write_text("site,city\n1,Oslo\n")
    with make_engine() as engine, caplog.at_level(logging.WARNING, logger="transom"):
        engine.table("sites", str(file), refresh="50 ms")
        bids = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(SQL)
        engine.start()
        file.unlink()
        deadline = time.monotonic() + 30
        while "could not be read again" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "table sites could not be read again, and stays as it is" in caplog.text
        (tmp_path / "new.csv").write_text("site,city\n1,Rome\n")
        (tmp_path / "new.csv").rename(file)
        cities: list[str] = []
        second = 0
        while "Rome" not in cities and time.monotonic() < deadline:
            bids.push([(1, f"2024-01-01 12:{second // 60:02}:{second % 60:02}")])
            second += 40
            time.sleep(0.1)
            cities = [row["city"] for row in query.results().to_pylist()]
        assert "Rome" in cities and engine.failure is None


@pytest.mark.parametrize("refresh", ["0 seconds", "-1 minute", "soon"])
def test_what_is_no_interval_is_refused(make_engine: EngineFactory, refresh: str) -> None:
    with make_engine() as engine, pytest.raises(SettingError):
        engine.table("sites", [{"site": 1}], refresh=refresh)


@on_spark("JDBC is Spark's")
def test_a_table_of_a_database(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Derby comes with Spark, so that no server is needed."""
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    spark = make_engine.session

    def write(city: str) -> None:
        rows = spark.createDataFrame([(1, city)], "site int, city string")
        rows.write.mode("overwrite").jdbc(url, "sites")

    write("Oslo")
    with make_engine() as engine:
        select = "SELECT SITE AS site, upper(CITY) AS city FROM sites"
        engine.table("sites", format="jdbc", options={"url": url, "dbtable": "sites"}, select=select)
        bids = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(SQL)
        bids.push([(1, "2024-01-01 12:00:01")])
        engine.step()
        assert not engine.refresh("sites")
        write("Rome")
        assert engine.refresh("sites")
        bids.push([(1, "2024-01-01 12:01:01")])
        engine.drain()
        assert [row["city"] for row in query.results().sort_by("window_end").to_pylist()] == ["OSLO", "ROME"]

"""Results upserted into a table of PostgreSQL, and a static table that is read from it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from tests.postgres.conftest import PASSWORD, USER
from transom.errors import SettingError
from transom.storage.failpoints import arm

pytestmark = pytest.mark.postgres

COUNTS = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"


@pytest.fixture
def access(database: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("TRANSOM_DB_PASSWORD", PASSWORD)
    return {"url": database, "user": USER, "password": "${env:TRANSOM_DB_PASSWORD}"}


def rows_of(engine: EngineFactory, database: str, table: str) -> list[dict[str, Any]]:
    rows = engine.session.read.format("jdbc").options(**plain(database, table)).load().collect()
    return [row.asDict() for row in rows]


def plain(database: str, table: str) -> dict[str, str]:
    """Options for Spark itself."""
    driver = "org.postgresql.Driver"
    return {"url": database, "user": USER, "password": PASSWORD, "dbtable": table, "driver": driver}


def fail_after_delivery(engine: Any) -> None:
    """Run a batch that is delivered and not committed."""

    def fail(point: str) -> None:
        if point == "delivery.end":
            raise OSError("the power is gone")

    arm(fail)
    try:
        with pytest.raises(OSError, match="power"):
            engine.step()
    finally:
        arm(None)
        engine.stop()


def test_results_are_upserted_exactly_once(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any], tmp_path: Path
) -> None:
    """A batch that fails after delivery runs again; early results and a null group are rows like others."""

    def started() -> Any:
        engine = postgres_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(f"{COUNTS} EMIT EARLY ON DEMAND", "counts")
        query.sink("jdbc", **access, dbtable="results", upsert=True)
        return engine, feed, query

    engine, feed, query = started()
    feed.push([(1, "2024-01-01 12:00:01"), (None, "2024-01-01 12:00:02"), (1, "2024-01-01 12:01:01")])
    fail_after_delivery(engine)
    assert len(rows_of(postgres_engine, database, "results")) == 2
    engine, feed, query = started()
    with engine:
        engine.step()
        feed.push([(1, "2024-01-01 12:01:02")])
        engine.drain()
        wanted = {
            (f"{row['window_end']:%H:%M}", row["site"]): row["n"] for row in query.results().to_pylist()
        }
    rows = rows_of(postgres_engine, database, "results")
    found = {(f"{row['window_end']:%H:%M}", row["site"]): row["n"] for row in rows}
    assert found == wanted == {("12:01", 1): 1, ("12:01", None): 1, ("12:02", 1): 2}
    assert len(rows) == 3 and {row["query"] for row in rows} == {"counts"}


def test_results_without_a_window_are_written_exactly_once(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any], tmp_path: Path
) -> None:
    """Two rows of one instant are two results. A batch that runs again replaces its rows."""

    def started() -> Any:
        engine = postgres_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        rows = engine.register("SELECT site FROM bids WHERE site > 0", "rows")
        engine.register(COUNTS, "counts")
        rows.sink("jdbc", **access, dbtable="found", upsert=True)
        engine.sink("jdbc", **access, dbtable="everything", upsert=True)
        return engine, feed

    engine, feed = started()
    feed.push([(1, "2024-01-01 12:00:01"), (1, "2024-01-01 12:00:01"), (2, "2024-01-01 12:01:01")])
    fail_after_delivery(engine)
    engine, feed = started()
    with engine:
        engine.step()
        feed.push([(1, "2024-01-01 12:01:02")])
        engine.drain()
    assert sorted(row["site"] for row in rows_of(postgres_engine, database, "found")) == [1, 1, 1, 2]
    everything = rows_of(postgres_engine, database, "everything")
    assert sorted(row["query"] for row in everything) == ["counts"] * 3 + ["rows"] * 4


def test_a_table_is_refreshed_while_the_engine_runs(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any]
) -> None:
    def write(city: str) -> None:
        rows = postgres_engine.session.createDataFrame([(1, city)], "site int, city string")
        rows.write.format("jdbc").options(**plain(database, "sites")).mode("overwrite").save()

    write("Oslo")
    with postgres_engine() as engine:
        engine.table("sites", format="jdbc", options=access | {"dbtable": "sites"}, refresh="200 ms")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(
            "SELECT city, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute], sites "
            "WHERE bids.site = sites.site GROUP BY city"
        )
        engine.start()
        write("Rome")
        cities: set[str] = set()
        for minute in range(59):
            feed.push([(1, f"2024-01-01 12:{minute:02}:01")])
            engine.await_termination(0.5)
            cities = {row["city"] for row in query.results().to_pylist()}
            if "Rome" in cities:
                break
        assert "Rome" in cities


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"password": "wrong"}, "can't connect to the database: .*password authentication failed"),
        ({"url": "jdbc:derby:x"}, "upsert is for PostgreSQL"),
        ({"dbtabel": "x"}, "no option dbtabel; did you mean dbtable"),
    ],
)
def test_wrong_sinks_are_refused(
    postgres_engine: EngineFactory, access: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    with postgres_engine() as engine, pytest.raises(SettingError, match=says) as raised:
        engine.sink("jdbc", **(access | {"dbtable": "t"} | change), upsert=True)
    assert PASSWORD not in str(raised.value)
